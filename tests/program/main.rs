//! All tests that need the built program or several ranks: one module for each subject. They are one program because
//! linking MKL takes longer than most of the tests. `cargo test --test program secure::` runs one module.

// Without MPI only some of the modules below use these helpers.
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
mod common;

mod boolean;
mod consortium;
mod crossing;
mod data_ranks;
mod docs;
mod estimate;
mod fnmf;
#[cfg(feature = "sites")]
mod governance;
mod guide;
mod jobs;
mod predict;
mod prepare;
mod private;
mod ranks;
mod refused;
mod releases;
mod reproduce;
mod secure;
#[cfg(feature = "sites")]
mod sites;
#[cfg(feature = "sites")]
mod sites_hostile;
#[cfg(all(feature = "sites", feature = "mpi"))]
mod sites_losses;
mod terms;
mod transport;

// Without MPI there are no ranks: these modules, and the tests marked with `needs MPI`, are left out.
#[cfg(feature = "mpi")]
mod align;
mod audit;
#[cfg(feature = "mpi")]
mod beta;
#[cfg(feature = "mpi")]
mod choose;
#[cfg(feature = "mpi")]
mod clock;
mod column_privacy;
#[cfg(feature = "mpi")]
mod extremes;
#[cfg(feature = "mpi")]
mod faults;
#[cfg(feature = "mpi")]
mod features;
#[cfg(feature = "mpi")]
mod files;
#[cfg(feature = "mpi")]
mod grid;
#[cfg(feature = "mpi")]
mod interrupted;
#[cfg(feature = "mpi")]
mod joint;
#[cfg(feature = "mpi")]
mod kept;
#[cfg(feature = "mpi")]
mod losses;
#[cfg(feature = "mpi")]
mod missing;
#[cfg(feature = "mpi")]
mod mpc;
#[cfg(feature = "mpi")]
mod naive;
#[cfg(feature = "mpi")]
mod online;
#[cfg(feature = "mpi")]
mod outputs;
#[cfg(feature = "mpi")]
mod ppdnmf;
#[cfg(feature = "mpi")]
mod precision;
#[cfg(feature = "mpi")]
mod regularization;
#[cfg(feature = "mpi")]
mod report;
#[cfg(feature = "mpi")]
mod results;
#[cfg(feature = "mpi")]
mod run;
#[cfg(feature = "mpi")]
mod sampled;
#[cfg(feature = "mpi")]
mod start_up;
#[cfg(feature = "mpi")]
mod starts;
#[cfg(feature = "mpi")]
mod streamed;
#[cfg(feature = "mpi")]
mod sweep;
#[cfg(feature = "mpi")]
mod symmetric;
#[cfg(feature = "mpi")]
mod tables;
#[cfg(feature = "mpi")]
mod theory;
#[cfg(feature = "mpi")]
mod transcript;
#[cfg(feature = "mpi")]
mod usability;
#[cfg(feature = "mpi")]
mod volume;
#[cfg(feature = "mpi")]
mod work;
