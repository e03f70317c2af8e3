//! One file or folder for each subcommand: its arguments, and what it does.

pub mod account;
#[cfg(feature = "sites")]
pub mod approve;
pub mod audit;
pub mod choose;
pub mod clusters;
pub mod estimate;
pub mod evaluate;
mod factor_rows;
pub mod factorize;
#[cfg(feature = "sites")]
pub mod join;
#[cfg(feature = "sites")]
pub mod keygen;
pub mod list;
mod matched_input;
pub mod predict;
pub mod prepare;
pub mod programs;
pub mod project;
mod provenance;
pub mod report;
#[cfg(feature = "sites")]
pub mod serve;
#[cfg(feature = "sites")]
mod signer;
pub mod sweep;
pub mod tools;
pub mod top;
