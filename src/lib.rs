//! fednmf: nonnegative and Boolean matrix factorisation over MPI ranks, and over parties that may not show each other
//! their data. `ARCHITECTURE.md` describes the structure.

#![deny(unsafe_code)] // except in the bindings to MPI and MKL

pub mod algorithms;
pub mod cli;
pub mod comm;
pub mod commands;
pub mod data;
pub mod driver;
pub mod error;
pub mod file_lock;
pub mod hdf5_probe;
pub mod host;
pub mod library;
pub mod linalg;
pub mod metrics;
pub mod model_selection;
pub mod nls;
pub mod output;
pub mod party_sum;
pub mod privacy;
pub mod random;
pub mod report;
pub mod sketch;
pub mod state;
pub mod unfinished;
pub mod units;
pub mod warning;
