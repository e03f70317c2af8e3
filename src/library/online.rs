//! Single steps of online NMF, for callers that have one batch at a time.

use std::ops::Range;

use ndarray::Array2;

use fednmf_linalg::nls::divergence::{FixedFactor, KlSweeps, add_ratios, column_sums, solve_rows};
use fednmf_linalg::nls::{Penalty, project};
use fednmf_linalg::{Block, Context, ContextOptions, Contiguous, ContiguousMut, PerThread, gram};
use fednmf_methods::distributed::divergence::online as kl;
pub use fednmf_methods::distributed::divergence::online::Majorant;
pub use fednmf_methods::distributed::online::Surrogate;
use fednmf_methods::distributed::online::Terms;
use fednmf_methods::metrics::own_divergence;
use fednmf_methods::shared::batches;
use fednmf_methods::shared::joint::update_shared;
pub use fednmf_methods::shared::joint::{JointRows, JointSet};

use super::matrix::MatrixView;
use super::{Error, Real, Result};

/// The rows of each batch of about `size` of m rows, as those of [`Online`](super::Online).
pub fn batches(m: usize, size: usize) -> Vec<Vec<Range<usize>>> {
    batches::schedule(m, size)
}

/// V and the statistics of the batches so far.
pub struct OnlineState<T: Real> {
    /// V (n × k).
    pub v: Array2<T>,
    /// A, B (n × k) and the rows that they hold.
    pub surrogate: Surrogate<T>,
}

/// V and the statistics of the batches so far, for the Kullback-Leibler divergence.
pub struct KlOnlineState<T: Real> {
    /// V (n × k), in row order.
    pub v: Array2<T>,
    /// A (n × k), b and the rows that they hold.
    pub majorant: Majorant<T>,
}

/// The settings of a step.
#[derive(Debug, Clone, Copy)]
pub struct OnlineStep {
    /// Factor of the former statistics.
    pub rho: f64,
    /// λ₁ and λ₂ on a row of U.
    pub penalty_u: [f64; 2],
    /// λ₁ and λ₂ on V for each row of the data.
    pub penalty_v: [f64; 2],
    /// Number of threads.
    pub threads: usize,
}

impl OnlineStep {
    /// Adds a batch X (rows × n), and updates V. Returns ½‖X − U Vᵀ‖_F² and the penalties for the former V.
    ///
    /// # Errors
    /// If the shapes do not fit, or the batch has entries that are negative or not finite.
    pub fn add<T: Real>(&self, batch: MatrixView<'_, T>, state: &mut OnlineState<T>) -> Result<f64> {
        let OnlineState { v, surrogate } = state;
        let (n, k) = v.dim();
        let fits = surrogate.b.dim() == (n, k) && surrogate.a.dim() == (k, k);
        let [penalty_u, penalty_v] = self.penalties();
        with_squares(batch, (n, fits), self.threads, |block| {
            let rows = block.shape().0;
            let order = block.order();
            let mut in_order = order.zeros(n, k);
            in_order.assign(v);
            let mut u = order.zeros(rows, k);
            u.assign(&project(block, &v.view(), penalty_u));
            let penalty = penalty_u.value(&u.view()) + rows as f64 * penalty_v.value(&v.view());
            let cost = 0.5 * block.residual2(&u.view(), &in_order.view()) + penalty;
            let (mut a, mut b) = (Array2::zeros((k, k)), order.zeros(n, k));
            gram(&u.view(), &mut a.view_mut());
            block.part_tmul_add(0..rows, &u.view(), &mut b.view_mut());
            surrogate.add(&Terms { a: &a, b: &b, rows }, self.rho, penalty_v, &mut v.view_mut());
            cost
        })
    }

    /// As [`OnlineStep::add`], for the Kullback-Leibler divergence. Returns that of X from U Vᵀ and the penalties.
    ///
    /// # Errors
    /// As [`OnlineStep::add`].
    pub fn add_kl<T: Real>(&self, batch: MatrixView<'_, T>, state: &mut KlOnlineState<T>) -> Result<f64> {
        let KlOnlineState { v, majorant } = state;
        let (n, k) = v.dim();
        if !v.is_standard_layout() {
            *v = v.as_standard_layout().into_owned();
        }
        let fits = majorant.a.dim() == (n, k) && majorant.b.len() == k;
        let [penalty_u, penalty_v] = self.penalties();
        with_block(batch, (n, fits), self.threads, |block| {
            let rows = block.shape().0;
            let (mut of_v, mut of_u) = (vec![0.0; k], vec![0.0; k]);
            column_sums(v.view().row_major(), &mut of_v);
            let mut u = Array2::zeros((rows, k));
            let whole = v.view();
            let fixed = FixedFactor { rows: whole.row_major(), sums: &of_v, gram: &[] };
            let solvers = PerThread::new(KlSweeps::new(k, 1));
            solve_rows(&solvers, (block, 0), fixed, (penalty_u, kl::TOLERANCE), &mut u.view_mut());
            let penalty = penalty_u.value(&u.view()) + rows as f64 * penalty_v.value(&v.view());
            let cost = own_divergence(1.0, block, &u.view(), &v.view(), 1.0) + penalty;
            let mut ratios = Array2::zeros((n, k));
            add_ratios((block, 0), u.view().row_major(), v.view().row_major(), k, ratios.entries_mut());
            column_sums(u.view().row_major(), &mut of_u);
            of_v.iter_mut().for_each(|sum| *sum /= n as f64);
            let terms = kl::Terms { ratios: &ratios, sums: &of_u, rows, means: &of_v };
            majorant.add(&terms, self.rho, penalty_v, &mut v.view_mut());
            cost
        })
    }

    fn penalties(&self) -> [Penalty; 2] {
        [self.penalty_u, self.penalty_v].map(|[l1, l2]| Penalty { l1, l2 })
    }
}

/// The settings of a step of joint NMF, X_i ≈ U_i (V + W_i)ᵀ for several data sets with the same columns.
#[derive(Debug, Clone, Copy)]
pub struct JointStep {
    /// λ, the weight of ½‖U_i W_iᵀ‖².
    pub own_penalty: f64,
    /// Number of threads.
    pub threads: usize,
}

/// A batch of a data set.
pub struct JointBatch<'a, T: Real> {
    /// The data set, counted from 0.
    pub set: usize,
    /// X (rows × n).
    pub rows: MatrixView<'a, T>,
    /// Factor of the former statistics of the data set.
    pub rho: f64,
}

impl JointStep {
    /// The rows of U for a matrix X (rows × n), for V and a data set's W (n × k, in row order).
    ///
    /// # Errors
    /// If the shapes do not fit, or X has entries that are negative or not finite.
    pub fn rows<T: Real>(&self, x: MatrixView<'_, T>, v: &Array2<T>, own: &Array2<T>) -> Result<JointRows<T>> {
        let fits = (v.nrows(), v.dim() == own.dim());
        with_squares(x, fits, self.threads, |block| JointRows::solve(block, v, own, self.own_penalty))
    }

    /// Adds batches of some data sets, whose W are updated, and then V (n × k, in row order). Returns the part of the objective
    /// Σ_i (½‖X_i − U_i (V + W_i)ᵀ‖² + ½ λ ‖U_i W_iᵀ‖²) that the batches had before.
    ///
    /// # Errors
    /// As [`JointStep::rows`]; V and the data sets are then of no use.
    pub fn add<T: Real>(
        &self,
        batches: Vec<JointBatch<'_, T>>,
        v: &mut Array2<T>,
        sets: &mut [JointSet<T>],
    ) -> Result<f64> {
        let (n, k) = v.dim();
        let mut cost = 0.0;
        for JointBatch { set, rows, rho } in batches {
            let count = sets.len();
            let set = sets.get_mut(set).ok_or_else(|| Error::input(format!("data set {set} of {count}")))?;
            let fits = [&set.own, &set.b].iter().all(|x| x.dim() == (n, k)) && set.a.dim() == (k, k);
            cost += with_squares(rows, (n, fits), self.threads, |block| {
                let rows = JointRows::solve(block, v, &set.own, self.own_penalty);
                set.add(block, &rows, rho, v, self.own_penalty);
                0.5 * (rows.residual2 + self.own_penalty * rows.own2)
            })?;
        }
        update_shared(v, sets);
        Ok(cost)
    }
}

/// As [`with_block`], for entries whose squares are added up.
fn with_squares<T: Real, R: Send>(
    batch: MatrixView<'_, T>,
    fits: (usize, bool),
    threads: usize,
    f: impl FnOnce(&Block<T>) -> R + Send,
) -> Result<R> {
    with_block(batch, fits, threads, |block| {
        let norm2 = block.norm2();
        // With a margin for rounding errors.
        let in_range = 4.0 * norm2 < T::max_value().as_f64();
        in_range.then(|| f(block)).ok_or_else(|| {
            let more = if size_of::<T>() == size_of::<f32>() { ", or use --precision f64" } else { "" };
            let size = norm2.sqrt();
            Error::input(format!(
                "the root of the sum of all squares of a batch is {size:e}, too large for {}; divide the data first{more}",
                T::NAME
            ))
        })
    })?
}

/// Calls `f` with the block of a batch, on this number of threads, if its columns are the n rows of V, and the statistics fit.
fn with_block<T: Real, R: Send>(
    batch: MatrixView<'_, T>,
    (n, fits): (usize, bool),
    threads: usize,
    f: impl FnOnce(&Block<T>) -> R + Send,
) -> Result<R> {
    let columns = batch.shape().1;
    if n != columns || !fits {
        return Err(Error::input(format!("the batch has {columns} columns, but V has {n}")));
    }
    // SAFETY: the block is dropped before this function returns.
    #[expect(unsafe_code, reason = "see MatrixView::unbounded")]
    let block = unsafe { batch.unbounded() }?.checked_block()?;
    let context = Context::new(ContextOptions { threads, ..ContextOptions::default() })?;
    Ok(context.install(|| f(&block)))
}
