//! Choosing the number of components: factorisations from several starts, with entries held out, are scored by error
//! and stability, and a k follows. What `fednmf sweep` and the library have in common; files and arguments are theirs.

mod choice;
mod consensus;
mod method;
mod stability;
mod trial;

pub use choice::{Choice, Point, STABLE, choose};
pub use consensus::{Component, Consensus};
pub use method::{SweepMissing, configure, leaves_out, left_out, sweepable, sweepable_method};
pub use stability::{Matched, Similarities, Stability};
pub use trial::{Errors, Finished, Trial, check_sizes, layout, point};
