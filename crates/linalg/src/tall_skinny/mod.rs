//! Native products of a dense block with tall-skinny factors.
//!
//! MKL reaches two thirds to three quarters of the peak of the machine for factors with about ten columns. Here register
//! tiles of accumulators are filled from panels that stay in cache, cut so that no number of columns wastes vector lanes:
//! X·B in `mul`, XᵀU (for all rows of X or for selected ones) in `tmul`. A tile of a fit A·Bᵀ is in `outer`.

mod mul;
mod outer;
mod panel;
mod tmul;

pub(super) use mul::mul;
pub(super) use outer::outer;
pub(super) use panel::aligned;
pub(super) use tmul::{RowSelection, tmul};
