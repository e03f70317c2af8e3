//! The Kullback-Leibler divergence on the observed entries of a party's rows, where V is updated from sums over parties.

use ndarray::{Array2, ArrayView2};

use fednmf_linalg::nls::Penalty;
use fednmf_linalg::{Block, Real};

use super::divergence::DivergenceStep;
use super::lists::Holdout;
use super::observed::{Fit, Observed, held_out_positions};
use super::step::UpdateKind;

/// The observed entries of a party's rows.
pub struct ObservedRows<T: Real> {
    rows: Observed<T>,
    columns: Observed<T>,
    step: DivergenceStep,
}

impl<T: Real> ObservedRows<T> {
    /// Separates the missing and the held-out entries of a block whose first row has the number `first` among those of all
    /// parties. Factors have k columns.
    pub fn new(block: Block<T>, only_stored: bool, (holdout, first): (Holdout, usize), k: usize) -> Self {
        let held = held_out_positions(&block, holdout, |a| first + a, |b| b, |b| b);
        let rows = Observed::new(block, only_stored, held.into_iter());
        ObservedRows { columns: rows.transposed(), rows, step: DivergenceStep::new(UpdateKind::KlMu, k) }
    }

    /// Zeros the rows of U without an observed entry, which no update changes.
    pub fn clear_unobserved(&self, u: &mut Array2<T>) {
        self.rows.clear_unobserved(u);
    }

    /// Updates U.
    pub fn update(&mut self, u: &mut Array2<T>, v: &ArrayView2<'_, T>) {
        self.step.update(UpdateKind::KlMu, self.rows.rows(), u, v, Penalty::NONE);
    }

    /// The terms of V's update: V times the numerators, and the denominators (n × k each).
    pub fn terms(&mut self, u: &ArrayView2<'_, T>, v: &Array2<T>, [above, below]: [&mut Array2<T>; 2]) {
        self.step.terms(self.columns.rows(), (v, u), [above, below]);
    }

    /// Statistics of the observed entries, without errors.
    pub fn statistics(&self) -> Fit {
        self.rows.statistics()
    }

    /// Errors and statistics of the observed entries.
    pub fn fit(&self, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> Fit {
        self.rows.fit(u, v)
    }

    /// The divergence of the observed entries.
    pub fn divergence(&self, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
        self.rows.divergence(u, v)
    }

    /// As [`Observed::heldout_divergence`].
    pub fn heldout_divergence(&self, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>, mean: f64) -> f64 {
        self.rows.heldout_divergence(u, v, mean)
    }
}
