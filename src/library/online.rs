//! Single steps of online NMF, for callers that have one batch at a time.

use std::ops::Range;

use ndarray::Array2;

use fednmf_linalg::nls::{Penalty, project};
use fednmf_linalg::{Context, ContextOptions, gram};
pub use fednmf_methods::distributed::online::Surrogate;
use fednmf_methods::distributed::online::Terms;
use fednmf_methods::shared::batches;

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
        let ((rows, n), k) = (batch.shape(), v.ncols());
        if v.nrows() != n || surrogate.b.dim() != (n, k) || surrogate.a.dim() != (k, k) {
            return Err(Error::input(format!("the batch has {n} columns, but V has {}", v.nrows())));
        }
        // SAFETY: the block is dropped before this function returns.
        #[expect(unsafe_code, reason = "see MatrixView::unbounded")]
        let block = unsafe { batch.unbounded() }?.checked_block()?;
        let [penalty_u, penalty_v] = [self.penalty_u, self.penalty_v].map(|[l1, l2]| Penalty { l1, l2 });
        let context = Context::new(ContextOptions { threads: self.threads, ..ContextOptions::default() })?;
        context.install(|| {
            let order = block.order();
            let mut in_order = order.zeros(n, k);
            in_order.assign(v);
            let mut u = order.zeros(rows, k);
            u.assign(&project(&block, &v.view(), penalty_u));
            let penalty = penalty_u.value(&u.view()) + rows as f64 * penalty_v.value(&v.view());
            let cost = 0.5 * block.residual2(&u.view(), &in_order.view()) + penalty;
            let (mut a, mut b) = (Array2::zeros((k, k)), order.zeros(n, k));
            gram(&u.view(), &mut a.view_mut());
            block.part_tmul_add(0..rows, &u.view(), &mut b.view_mut());
            surrogate.add(&Terms { a: &a, b: &b, rows }, self.rho, penalty_v, &mut v.view_mut());
            Ok(cost)
        })
    }
}
