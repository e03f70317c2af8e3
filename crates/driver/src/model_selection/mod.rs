//! Choosing the number of components: factorisations from several starts, with entries held out, are scored by error
//! and stability, which determine k. Shared by `fednmf sweep` and the library, which handle files and arguments.

mod choice;
mod consensus;
mod method;
mod plan;
mod programs;
mod sigprofiler;
mod spectrum;
mod stability;
mod trial;

pub use choice::{Choice, Point, STABLE, choose};
pub use consensus::{Component, Consensus};
pub use method::{
    SweepMissing, check_settings, configure, iterations, left_out, requested, sweepable, sweepable_method,
};
pub use plan::{SweepPlan, group_of};
pub use programs::{CellSums, Clusters, Genes, OneOwner, Programs, Spectra};
pub use sigprofiler::{Criterion, choose_by_rows, considered, errors_of_rows};
pub use spectrum::{drops, inertias};
pub use stability::{Matched, Similarities, Stability};
pub use trial::{Errors, Finished, Trial, check_sizes, layout, point};
