//! Row-wise nonnegative least squares in normal-equations form: each row x of a factor minimises ½ x G xᵀ − r xᵀ over
//! x ≥ 0, where G (k × k) is the Gram matrix of the fixed factor and r the row of the right-hand side. A [`Penalty`] on the
//! factor adds to the diagonal of G and subtracts from r.
//!
//! One file per method; `sweep` and `pgd` share the kernel in `row_panels`.

mod active_set;
mod bpp;
mod coordinate_descent;
pub mod divergence;
mod mu;
mod penalty;
mod pgd;
mod project;
mod row_panels;
mod select;

pub use bpp::Pivoting;
pub use coordinate_descent::{Sweep, sweep, sweep_below};
pub use mu::{multiplied, multiply};
pub use penalty::Penalty;
pub use pgd::{gradient_step, gradient_step_below, spectral_bound};
pub use project::project;
pub use select::project_few;
