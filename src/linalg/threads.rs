//! The threads of a rank (`--threads`): each computes a range of rows of a product or of a factor, with sequential MKL.
//!
//! The usual setup is one rank per core, and the default is one thread. Threads save the memory and the messages of further
//! ranks on a machine.

use std::ops::Range;
use std::sync::OnceLock;

use ndarray::{ArrayViewMut2, Axis};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::real::Real;
use crate::error::{Error, Result};

static POOL: OnceLock<ThreadPool> = OnceLock::new();

/// The smallest number of rows per thread that pays off.
const FEWEST_ROWS: usize = 16;

/// Starts the thread pool of the process; no pool for one thread. A second call has no effect.
///
/// # Errors
/// If the system refuses the threads.
pub fn start_threads(threads: usize) -> Result<()> {
    if threads <= 1 {
        return Ok(());
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| {
        Error::failed(format!("--threads {threads}: the system refuses to start so many threads ({e})"))
    })?;
    let _ = POOL.set(pool);
    Ok(())
}

/// Number of threads.
pub(crate) fn threads() -> usize {
    POOL.get().map_or(1, ThreadPool::current_num_threads)
}

/// Range `i` of `total` items that are split into `parts` ranges whose lengths differ by at most one.
pub fn even_part(total: usize, parts: usize, i: usize) -> Range<usize> {
    let (length, longer) = (total / parts, total % parts);
    let start = i * length + i.min(longer);
    start..start + length + usize::from(i < longer)
}

/// Splits the rows of `out` into ranges, one per thread, and calls `f(first, rows)` for each in parallel; `first` is the
/// index of the first row of the range.
pub(crate) fn over_rows<T: Real>(out: &mut ArrayViewMut2<'_, T>, f: &(impl Fn(usize, ArrayViewMut2<'_, T>) + Sync)) {
    let parts = threads().min(out.nrows() / FEWEST_ROWS).max(1);
    match POOL.get() {
        Some(pool) if parts > 1 => pool.install(|| split(0, out.view_mut(), parts, f)),
        _ => f(0, out.view_mut()),
    }
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
pub(crate) fn over_parts(parts: usize, f: &(impl Fn(usize) + Sync)) {
    match POOL.get() {
        Some(pool) if parts > 1 => pool.scope(|s| (0..parts).for_each(|part| s.spawn(move |_| f(part)))),
        _ => (0..parts).for_each(f),
    }
}
