//! Row-wise nonnegative least squares on (Gram, right-hand side): each row x of X solves
//! min over x ≥ 0 of ½ x G xᵀ − r xᵀ, where G is the Gram matrix of the fixed factor and r the row of the right-hand
//! side. One file per method.

mod bpp;
mod mu;
mod pack;
mod pgd;
mod strips;
mod sweep;

pub use bpp::Pivoting;
pub use mu::multiply;
pub use pgd::{gradient_step, gradient_step_below, spectral_bound};
pub use sweep::{Sweep, sweep, sweep_below};
