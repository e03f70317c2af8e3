//! Methods whose ranks are one domain of trust: the blocks belong to the ranks, and speed is all that matters.

pub mod auto;
pub mod bpp;
pub mod dsanls;
pub mod hals;
pub mod kl_mu;
pub mod mu;
