//! Masked sums that tolerate parties that drop out (Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving
//! Machine Learning, CCS 2017, for honest but curious parties).
//!
//! `protocol` has the four stages as messages and states, `shamir` the secret sharing behind them, and `resilient_sum`
//! runs one round of the protocol between ranks for every sum.

mod protocol;
mod resilient_sum;
mod shamir;

pub use resilient_sum::{ANSWERS, ROUND_KEYS, ResilientSum, SEALED_SHARES};

#[cfg(test)]
mod tests;
