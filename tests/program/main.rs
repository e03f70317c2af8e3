//! All tests that need the built program or several ranks: one module for each subject. They are one program because
//! linking MKL takes longer than most of the tests. `cargo test --test program secure::` runs one module.

mod common;
mod naive;

mod boolean;
mod clock;
mod crossing;
mod data_ranks;
mod docs;
mod estimate;
mod extremes;
mod faults;
mod fnmf;
mod grid;
mod guide;
mod interrupted;
mod jobs;
mod losses;
mod missing;
mod outputs;
mod ppdnmf;
mod private;
mod ranks;
mod refused;
mod report;
mod reproduce;
mod run;
mod secure;
mod starts;
mod sweep;
mod theory;
