//! The counter of floating-point operations of the current [`Context`](crate::Context), for profiles and for tests of the
//! cost of an iteration.
//!
//! It counts products (a multiplication and an addition per entry and component) and row-wise updates. It does not count
//! work proportional to the entries of the factors, nor exact solutions, such as by block principal pivoting, whose work depends on
//! the data.

use super::context::{State, with_current};

/// Adds `flops` to the counter.
#[inline]
pub fn count(flops: usize) {
    with_current(|current| current.iter().for_each(|state| state.count(flops)));
}

/// Operations in the current context so far; 0 without one.
pub fn total() -> u64 {
    with_current(|current| current.map_or(0, State::total))
}
