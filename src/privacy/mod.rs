//! What keeps a party's data its own: sums of which nobody sees a single share, numbers that travel encrypted, and noise
//! that hides what any single party had to say.

mod account;
pub mod attack;
mod dropout;
mod gaussian;
mod masking;
mod noise;
pub mod paillier;
mod plan;
mod release;
mod shamir;
mod party_sum;
mod survivors;

pub use account::PrivacyLoss;
pub use masking::FixedPoint;
pub use noise::NOISE_KEY;
pub use plan::{NoiseRequest, Bound, Mechanism, NoisePlan};
pub use release::Releases;
pub use party_sum::{KEYS, PartySum, masked};
pub use survivors::{ANSWERS, DROP, ROUND_KEYS, SEALED_SHARES};
