//! The context of a run: its threads (`--threads`), its kernels (`--kernel`) and its counter of operations.
//!
//! A context is current within [`Context::install`], on the calling thread and on the threads of its pool, as a thread pool
//! of rayon is within `ThreadPool::install`. Runs with different contexts in one process do not affect each other. Kernels
//! look up the current context once per call. Without one there is a single thread, products are native, and operations are
//! not counted.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};

use fednmf_base::error::{Error, Result};

use super::blas;
use super::kernel::ProductKernels;

thread_local! {
    static CURRENT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// How the kernels of a run compute; by default with one thread and the native kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextOptions {
    /// Number of threads; 0 counts as 1.
    pub threads: usize,
    /// Kernels of the products with all rows of a block.
    pub kernels: ProductKernels,
}

impl Default for ContextOptions {
    fn default() -> Self {
        ContextOptions { threads: 1, kernels: ProductKernels::NATIVE }
    }
}

/// Threads, kernels and operation counter of a run. Clones share all three; the threads end with the last clone.
///
/// ```
/// use fednmf_linalg::{Context, ContextOptions, gram};
/// use ndarray::{Array2, array};
///
/// let context = Context::new(ContextOptions { threads: 2, ..ContextOptions::default() })?;
/// let factor = array![[1.0, 2.0], [0.0, 1.0]];
/// let mut product = Array2::zeros((2, 2));
/// context.install(|| gram(&factor.view(), &mut product.view_mut()));
/// assert_eq!(product, array![[1.0, 2.0], [2.0, 5.0]]);
/// assert_eq!(context.flops(), 16);
/// # Ok::<(), fednmf_base::error::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    state: Arc<State>,
    /// `None` for one thread, and on the threads of the pool itself, which would otherwise keep it alive.
    pool: Option<Arc<ThreadPool>>,
}

pub(crate) struct State {
    pub options: ContextOptions,
    flops: AtomicU64,
}

impl Context {
    /// Starts the threads, if there is more than one.
    ///
    /// # Errors
    /// If the system refuses the threads, or the BLAS library does not support them.
    pub fn new(options: ContextOptions) -> Result<Self> {
        blas::sequential();
        let threads = options.threads.max(1);
        let options = ContextOptions { threads, ..options };
        let mut context = Context { state: Arc::new(State { options, flops: AtomicU64::new(0) }), pool: None };
        if threads > 1 && !blas::is_thread_safe() {
            return Err(Error::input(format!(
                "--threads {threads}: this OpenBLAS ({}) was built without threads and gives wrong products to several; use ranks, or the \
                 build with threads (Debian: libopenblas-pthread-dev)",
                blas::version()
            )));
        }
        if threads > 1 {
            let of_worker = context.clone();
            let pool = ThreadPoolBuilder::new()
                .num_threads(threads)
                .start_handler(move |_| drop(CURRENT.replace(Some(of_worker.clone()))))
                .build()
                .map_err(|e| {
                    Error::failed(format!("--threads {threads}: the system refuses to start so many threads ({e})"))
                })?;
            context.pool = Some(Arc::new(pool));
        }
        Ok(context)
    }

    /// Calls `f` with this context as the current one.
    pub fn install<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Restores the previous context, also after a panic.
        struct Restore(Option<Context>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.replace(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        f()
    }

    pub fn options(&self) -> ContextOptions {
        self.state.options
    }

    /// Floating-point operations counted in this context so far ([`crate::flops`]).
    pub fn flops(&self) -> u64 {
        self.state.flops.load(Ordering::Relaxed)
    }
}

impl State {
    pub fn count(&self, flops: usize) {
        self.flops.fetch_add(flops as u64, Ordering::Relaxed);
    }

    pub fn total(&self) -> u64 {
        self.flops.load(Ordering::Relaxed)
    }
}

/// Calls `f` with the current context, if there is one. `f` must not install another.
#[inline]
pub(crate) fn with_current<R>(f: impl FnOnce(Option<&State>) -> R) -> R {
    CURRENT.with_borrow(|current| f(current.as_ref().map(|context| &*context.state)))
}

/// The options of the current context.
pub(crate) fn options() -> ContextOptions {
    with_current(|current| current.map_or_else(ContextOptions::default, |state| state.options))
}

/// Calls `f` on a thread of the pool of the current context; if there is no pool, or if this is such a thread, directly.
pub(crate) fn in_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let pool = CURRENT.with_borrow(|current| current.as_ref().and_then(|context| context.pool.clone()));
    match pool {
        Some(pool) => pool.install(f),
        None => f(),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayViewMut2, array};

    use super::*;
    use crate::kernel::ProductKernel;
    use crate::threads::{over_rows, threads};
    use crate::{Block, flops, gemm};

    /// Another kernel than that of the default, if there is one.
    const OTHER: ProductKernel = ProductKernel::ALL[0];

    fn context(threads: usize, kernel: ProductKernel) -> Context {
        Context::new(ContextOptions { threads, kernels: kernel.into() }).unwrap()
    }

    #[test]
    fn a_context_is_current_within_a_call_and_the_previous_one_after_it() {
        assert_eq!(options(), ContextOptions::default());
        for count in [3, 2, 1, 0] {
            assert_eq!(context(count, ProductKernel::Native).install(threads), count.max(1));
        }
        let [outer, inner] = [(4, OTHER), (2, ProductKernel::Native)].map(|(n, kernel)| context(n, kernel));
        let nested = outer.install(|| (inner.install(options), options()));
        assert_eq!(nested, (inner.options(), outer.options()));
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| outer.install(|| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert_eq!(options(), ContextOptions::default());
    }

    #[test]
    fn the_threads_of_a_pool_have_its_context() {
        let context = context(3, OTHER);
        let mut x = Array2::<f64>::zeros((100, 1));
        context.install(|| {
            over_rows(&mut x.view_mut(), &|first, mut rows: ArrayViewMut2<'_, f64>| {
                assert_eq!((options(), rayon::current_num_threads()), (context.options(), 3));
                rows.rows_mut().into_iter().enumerate().for_each(|(i, mut row)| row[0] = (first + i) as f64);
                flops::count(rows.nrows());
            });
        });
        assert!(x.iter().enumerate().all(|(i, &x)| x == i as f64));
        assert_eq!(context.flops(), 100);
    }

    /// Two runs at the same time, each with its own threads, kernels and counter.
    #[test]
    fn runs_in_one_process_do_not_affect_each_other() {
        let x = Block::<f64>::Dense(Array2::ones((64, 8)).into());
        let both_run = std::sync::Barrier::new(2);
        let run = |context: &Context, times: usize| {
            context.install(|| {
                let (b, mut out) = (Array2::ones((8, 2)), Array2::zeros((64, 2)));
                both_run.wait();
                for _ in 0..times {
                    x.mul(&b.view(), &mut out.view_mut());
                    assert_eq!(options(), context.options());
                }
                both_run.wait();
                flops::total()
            })
        };
        let [a, b] = [(2, OTHER), (3, ProductKernel::Native)].map(|(n, kernel)| context(n, kernel));
        let (of_a, of_b) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(&b, 5));
            (run(&a, 3), other.join().unwrap())
        });
        assert_eq!((of_a, of_b), (3 * 2 * 64 * 8 * 2, 5 * 2 * 64 * 8 * 2));
        assert_eq!((a.flops(), b.flops()), (of_a, of_b));
    }

    #[test]
    fn nothing_is_counted_without_a_context() {
        let (x, mut out) = (array![[1.0]], array![[0.0]]);
        gemm(1.0, &x.view(), &x.view(), 0.0, &mut out.view_mut());
        assert_eq!((out[[0, 0]], flops::total()), (1.0, 0));
    }
}
