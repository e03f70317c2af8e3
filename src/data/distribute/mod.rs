//! From the lines of files to the blocks of ranks and parties.

pub mod assemble;
pub mod deal;
pub mod dense;
pub mod load;
pub mod quantile;
pub mod route;
pub mod statistics;
pub mod triplets;
