//! What keeps the parties' data from each other: sums of which nobody sees a single share.

mod masking;
mod summer;

pub use masking::FixedPoint;
pub use summer::{KEYS, Summer, masked};
