//! What keeps a party's data its own.

pub mod paillier;
