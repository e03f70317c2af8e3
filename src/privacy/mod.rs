//! Protection of the parties' data: masked sums, encryption, and differential privacy.
//!
//! - [`PartySum`]: sums over parties, in the clear or masked (`masking`, in the `fixed_point` numbers modulo 2⁶⁴), and
//!   masked with tolerance of parties that drop out (`dropout`).
//! - [`dp`]: noise on what a party releases, and the privacy loss of a run.
//! - [`paillier`]: additively homomorphic encryption.
//! - [`adversary`]: what can be computed from what a party receives.

pub mod adversary;
pub mod dp;
mod dropout;
mod fixed_point;
mod key_agreement;
mod masking;
pub mod paillier;
mod party_sum;

pub use dp::{Bound, Mechanism, NOISE_KEY, NoisePlan, NoiseRequest, PrivacyLoss, Releases};
pub use dropout::{ANSWERS, ROUND_KEYS, SEALED_SHARES};
pub use party_sum::{Joint, KEYS, PartySum, masked};
