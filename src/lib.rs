//! fednmf: nonnegative and Boolean matrix factorisation over MPI ranks, and over parties that may not show each other
//! their data. `ARCHITECTURE.md` is the map.

#![deny(unsafe_code)] // but for the doors to MPI and MKL

pub mod algo;
pub mod cli;
pub mod comm;
pub mod data;
pub mod error;
pub mod estimate;
pub mod linalg;
pub mod metrics;
pub mod nls;
pub mod output;
pub mod privacy;
pub mod random;
pub mod report;
pub mod run;
pub mod sketch;
pub mod trial;
