//! A count of the floating-point operations of the kernels, for profiles and for tests of what an iteration costs.
//!
//! Counted are products (a multiplication and an addition for each entry and component) and row-wise updates; what is
//! only proportional to the factors' entries, and the solver of block principal pivoting, whose work depends on the
//! data, is not.

use std::sync::atomic::{AtomicU64, Ordering};

static FLOPS: AtomicU64 = AtomicU64::new(0);

/// Counts `flops` more.
pub(crate) fn count(flops: usize) {
    FLOPS.fetch_add(flops as u64, Ordering::Relaxed);
}

/// All that this process has counted.
pub fn total() -> u64 {
    FLOPS.load(Ordering::Relaxed)
}
