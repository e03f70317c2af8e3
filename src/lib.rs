//! fednmf: nonnegative and Boolean matrix factorisation over MPI ranks, and over parties that may not show each other
//! their data. `ARCHITECTURE.md` describes the structure.

pub mod cli;
pub mod commands;
pub mod library;

/// The git revision that the program was built from, or `unknown`.
pub const REVISION: &str = env!("FEDNMF_GIT");
