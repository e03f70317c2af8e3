//! Decentralised methods: agents on a graph, and their centralised counterpart.

pub mod admm;
pub mod ppdnmf;
