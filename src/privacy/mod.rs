//! What keeps a party's data its own: sums of which nobody sees a single share, and numbers that travel encrypted.

mod masking;
pub mod paillier;
mod summer;

pub use masking::FixedPoint;
pub use summer::{KEYS, Summer, masked};
