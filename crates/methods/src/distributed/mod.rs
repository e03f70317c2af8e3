//! Methods without privacy: all ranks may see all data, and blocks belong to ranks.

pub mod auto;
pub mod bpp;
pub mod divergence;
pub mod dsanls;
pub mod hals;
pub mod mu;
pub mod online;
pub mod symnmf;
pub mod vr_dsanls;
