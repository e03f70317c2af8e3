//! Protection of the parties' data: masks, secret shares, encryption, differential privacy. Nothing here communicates.
//!
//! - [`released`]: the types of values that may leave a party; each protection creates its own.
//! - [`masking`]: pairwise masks for sums, in the [`fixed_point`] or [`wide`] numbers modulo 2⁶⁴; [`dropout`] tolerates
//!   parties that drop out.
//! - [`sharing`]: computation on secret shares of three parties.
//! - [`dp`]: noise on the releases of a party, and the privacy loss of a run.
//! - `paillier`: additively homomorphic encryption (feature `paillier`).

pub mod dp;
pub mod dropout;
pub mod fixed_point;
pub mod key_agreement;
pub mod masking;
#[cfg(feature = "paillier")]
pub mod paillier;
pub mod released;
pub mod sharing;
pub mod transcript;
pub mod wide;

pub use dp::{
    BeforeRelease, Bound, BudgetFile, BudgetKey, BudgetScope, BudgetUnit, Charge, ColumnBound, Covers, Division, Lines,
    Mechanism, NOISE_KEY, NoisePlan, NoiseRequest, PrivacyLoss, ReleaseState, Releases,
};
pub use released::{
    Ciphertexts, Declared, DeclaredMut, MaskedWords, NoiseAdded, Noised, Private, Protection, Public, PublicKeys,
    Release, SealedShares, Seeded, Transfer, UnmaskShares, WireAccess,
};
