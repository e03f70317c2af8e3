//! The threads of a rank (`--threads`): each computes a range of rows of a product or of a factor, with sequential MKL.
//!
//! The usual setup is one rank per core, and the default is one thread. Threads save the memory and the messages of further
//! ranks on a machine.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use ndarray::{ArrayViewMut2, Axis};
use rayon::{ThreadPool, ThreadPoolBuilder};

use fednmf_base::error::{Error, Result};

use super::real::Real;

static POOL: OnceLock<ThreadPool> = OnceLock::new();

thread_local! {
    /// The pool of [`with_threads`], in place of that of the process.
    static OWN: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

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
    let _ = POOL.set(pool(threads)?);
    Ok(())
}

/// Runs `f` with so many threads, which end with it. For programs whose calls differ in the number of threads, or that fork.
///
/// # Errors
/// If the system refuses the threads.
pub fn with_threads<R>(threads: usize, f: impl FnOnce() -> R) -> Result<R> {
    /// Also after a panic.
    struct Restore(Option<Arc<ThreadPool>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OWN.replace(self.0.take());
        }
    }
    let own = if threads > 1 { Some(Arc::new(pool(threads)?)) } else { None };
    let _restore = Restore(OWN.replace(own));
    Ok(f())
}

fn pool(threads: usize) -> Result<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| Error::failed(format!("--threads {threads}: the system refuses to start so many threads ({e})")))
}

/// Calls `f` with the pool of this thread's work.
fn with_pool<R>(f: impl FnOnce(Option<&ThreadPool>) -> R) -> R {
    let own = OWN.with_borrow(Clone::clone);
    f(own.as_deref().or_else(|| POOL.get()))
}

/// Number of threads.
pub fn threads() -> usize {
    with_pool(|pool| pool.map_or(1, ThreadPool::current_num_threads))
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
    let parts = threads().min(out.nrows() / FEWEST_ROWS).max(1);
    with_pool(|pool| match pool {
        Some(pool) if parts > 1 => pool.install(|| split(0, out.view_mut(), parts, f)),
        _ => f(0, out.view_mut()),
    });
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
    with_pool(|pool| match pool {
        Some(pool) if parts > 1 => pool.scope(|s| (0..parts).for_each(|part| s.spawn(move |_| f(part)))),
        _ => (0..parts).for_each(f),
    });
}

/// Working memory of the threads: as many copies as were ever in use at the same time, kept for the next call.
pub struct PerThread<S> {
    first: S,
    idle: Mutex<Vec<S>>,
}

impl<S: Clone> PerThread<S> {
    pub fn new(first: S) -> Self {
        PerThread { first, idle: Mutex::default() }
    }

    /// Calls `f` with a copy that no other thread uses.
    pub fn with<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        let mut own = self.idle.lock().ok().and_then(|mut idle| idle.pop()).unwrap_or_else(|| self.first.clone());
        let result = f(&mut own);
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(own);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_threads_that_it_asks_for_and_the_next_one_its_own() {
        for count in [3, 2, 1] {
            assert_eq!(with_threads(count, threads), Ok(count));
        }
        let nested = with_threads(4, || (with_threads(2, threads), threads()));
        assert_eq!(nested, Ok((Ok(2), 4)));
        let mut x = ndarray::Array2::<f64>::zeros((100, 1));
        let fill = |first: usize, mut rows: ArrayViewMut2<'_, f64>| {
            rows.rows_mut().into_iter().enumerate().for_each(|(i, mut row)| row[0] = (first + i) as f64);
        };
        with_threads(3, || over_rows(&mut x.view_mut(), &fill)).unwrap();
        assert!(x.iter().enumerate().all(|(i, &x)| x == i as f64));
    }
}
