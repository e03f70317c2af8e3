//! `--threads`: a rank's own threads, each on a run of the rows of a product or of a factor, each with sequential MKL.
//!
//! One rank for each core is the usual way and the default is one thread; threads save the memory and messages of ranks
//! that share a machine.

use std::ops::Range;
use std::sync::OnceLock;

use ndarray::{ArrayViewMut2, Axis};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::Real;
use crate::error::{Error, Result};

static POOL: OnceLock<ThreadPool> = OnceLock::new();

/// Fewer rows than this for each thread are not worth waking it.
const FEWEST_ROWS: usize = 16;

/// Starts `threads` threads for all that follows; once in a process. One thread is no pool at all.
///
/// # Errors
/// When the system refuses the threads.
pub fn start_threads(threads: usize) -> Result<()> {
    if threads <= 1 {
        return Ok(());
    }
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| Error::failed(format!("--threads {threads}: the system does not start so many threads ({e})")))?;
    // A second start in one process keeps the first pool.
    let _ = POOL.set(pool);
    Ok(())
}

/// Number of threads at work.
pub(crate) fn threads() -> usize {
    POOL.get().map_or(1, ThreadPool::current_num_threads)
}

/// Cuts `total` items into `parts` runs whose lengths differ by one at most; run `i`.
pub fn even_part(total: usize, parts: usize, i: usize) -> Range<usize> {
    let (length, longer) = (total / parts, total % parts);
    let start = i * length + i.min(longer);
    start..start + length + usize::from(i < longer)
}

/// Calls `f(first, rows)` for runs of `out`'s rows that together are all of them, one run for each thread, at the same
/// time; `first` is the first row of the run in `out`.
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

/// Calls `f(part)` for every part 0..parts of some work that is not cut by rows of a result.
pub(crate) fn over_parts(parts: usize, f: &(impl Fn(usize) + Sync)) {
    match POOL.get() {
        Some(pool) if parts > 1 => pool.scope(|s| (0..parts).for_each(|part| s.spawn(move |_| f(part)))),
        _ => (0..parts).for_each(f),
    }
}
