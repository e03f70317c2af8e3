//! The update of a factor from its right-hand side and the Gram matrix of the other factor, both summed over parties.

use ndarray::Array2;

use fednmf_linalg::Real;
use fednmf_linalg::nls::{Penalty, Pivoting, Sweep, sweep};

fednmf_base::words! {
    /// Update of a factor from its sums.
    pub enum Update {
        /// Sweeps of coordinate descent, component by component
        Hals = "hals",
        /// The exact minimiser, by block principal pivoting
        Bpp = "bpp",
    }
}

/// The update of a factor from its right-hand side and Gram matrix.
pub struct LeastSquaresUpdate {
    passes: usize,
    exact: Option<Pivoting>,
}

impl LeastSquaresUpdate {
    /// The exact minimiser, or `passes` sweeps of coordinate descent; for k components.
    pub fn new(exact: bool, passes: usize, k: usize) -> Self {
        LeastSquaresUpdate { passes, exact: exact.then(|| Pivoting::new(k)) }
    }

    /// Updates X, which has this penalty, for the right-hand side r and the Gram matrix g.
    pub fn apply<T: Real>(&mut self, x: &mut Array2<T>, r: &Array2<T>, g: &Array2<T>, penalty: Penalty) {
        let passes = self.passes;
        match &mut self.exact {
            Some(solver) => solver.solve_keeping(&mut x.view_mut(), &r.view(), &g.view(), penalty),
            None => sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: T::zero(), passes, penalty }),
        }
    }
}
