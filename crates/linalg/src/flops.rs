//! A counter of the floating-point operations of the kernels, for profiles and for tests of the cost of an iteration.
//!
//! It counts products (a multiplication and an addition per entry and component) and row-wise updates. It does not count
//! work proportional to the entries of the factors, nor block principal pivoting, whose work depends on the data.

use std::sync::atomic::{AtomicU64, Ordering};

static FLOPS: AtomicU64 = AtomicU64::new(0);

/// Adds `flops` to the counter.
pub fn count(flops: usize) {
    FLOPS.fetch_add(flops as u64, Ordering::Relaxed);
}

/// Operations of this process so far.
pub fn total() -> u64 {
    FLOPS.load(Ordering::Relaxed)
}
