//! Masked sums that tolerate parties that drop out (Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving
//! Machine Learning, CCS 2017, for honest but curious parties).
//!
//! `protocol` has the four stages as messages and states, `shamir` the secret sharing behind them.
//! [`fednmf_comm::party_sum`] runs one round of the protocol between ranks for every sum.

mod protocol;
mod shamir;

pub use protocol::{
    PartyRound, ROUND_KEYS, RoundKeys, SEALED, ServerRound, UnmaskAnswer, address, answer, enough, publish,
};
pub use shamir::SHARE;

#[cfg(test)]
mod tests;
