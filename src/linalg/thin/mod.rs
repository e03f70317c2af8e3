//! Products of a dense block with thin factors, by loops of our own.
//!
//! MKL reaches two thirds to three quarters of the machine's peak with a factor of some ten columns. Here a register
//! tile of accumulators is filled from panels that stay in the caches, cut so that no number of columns wastes lanes:
//! X·B in [`mul`], XᵀU (of all rows, or of those that a sketch has chosen) in [`tmul`].

mod mul;
mod tiles;
mod tmul;

pub(super) use mul::mul;
pub(super) use tmul::{Rows, tmul};
