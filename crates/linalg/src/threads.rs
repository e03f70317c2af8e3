//! The threads of a rank (`--threads`): each computes a range of rows of a product or of a factor, with sequential MKL.
//!
//! The usual setup is one rank per core, and the default is one thread. Compared with further ranks on a machine, threads
//! save memory and messages.

use std::ops::Range;
use std::sync::Mutex;

use ndarray::{ArrayViewMut2, Axis};

use super::context::{in_pool, options};
use super::real::Real;

/// Smallest number of rows per thread that is worth a thread.
const MIN_ROWS: usize = 16;

/// Number of threads of the current context.
pub fn threads() -> usize {
    options().threads
}

/// Range `i` of `total` items that are split into `parts` ranges whose lengths differ by at most one.
pub fn even_part(total: usize, parts: usize, i: usize) -> Range<usize> {
    let (length, longer) = (total / parts, total % parts);
    let start = i * length + i.min(longer);
    start..start + length + usize::from(i < longer)
}

/// Splits the rows of `out` into ranges, one per thread, and calls `f(first, rows)` for each in parallel; `first` is the
/// index of the first row of the range.
pub fn over_rows<T: Real>(out: &mut ArrayViewMut2<'_, T>, f: &(impl Fn(usize, ArrayViewMut2<'_, T>) + Sync)) {
    let parts = threads().min(out.nrows() / MIN_ROWS).max(1);
    if parts == 1 {
        return f(0, out.view_mut());
    }
    in_pool(|| split(0, out.view_mut(), parts, f));
}

fn split<T: Real>(
    first: usize,
    out: ArrayViewMut2<'_, T>,
    parts: usize,
    f: &(impl Fn(usize, ArrayViewMut2<'_, T>) + Sync),
) {
    if parts == 1 {
        return f(first, out);
    }
    let left = parts / 2;
    let at = out.nrows() * left / parts;
    let (a, b) = out.split_at(Axis(0), at);
    rayon::join(|| split(first, a, left, f), || split(first + at, b, parts - left, f));
}

/// Calls `f(part)` for every part in 0..parts in parallel.
pub fn over_parts(parts: usize, f: &(impl Fn(usize) + Sync)) {
    if parts <= 1 || threads() == 1 {
        return (0..parts).for_each(f);
    }
    in_pool(|| rayon::scope(|s| (0..parts).for_each(|part| s.spawn(move |_| f(part)))));
}

/// Workspaces of the threads: as many copies as were ever in use at the same time, kept for the next call.
pub struct PerThread<S> {
    first: S,
    idle: Mutex<Vec<S>>,
}

impl<S: Clone> PerThread<S> {
    /// Workspaces that are clones of `first`.
    pub fn new(first: S) -> Self {
        PerThread { first, idle: Mutex::default() }
    }

    /// Calls `f` with a workspace that no other thread uses.
    pub fn with<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        let mut own = self.idle.lock().ok().and_then(|mut idle| idle.pop()).unwrap_or_else(|| self.first.clone());
        let result = f(&mut own);
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(own);
        }
        result
    }
}
