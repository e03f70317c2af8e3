//! Extrapolation with restart (Ang and Gillis 2019). The update of each factor is based on the extrapolated point Y =
//! max(0, X_new + β (X_new − X_old)), and β grows as long as the objective falls.
//!
//! The objective is f(U, V_y) = ‖M‖² − 2⟨U, M V_y⟩ + ⟨UᵀU, V_yᵀV_y⟩. It costs only a Gram matrix, because M V_y is known
//! from U's update. Two words are summed for it together with the Gram matrix of the extrapolated U. A rise is therefore
//! detected after U has been extrapolated. A restart reverts the extrapolation of U and V and sums the Gram matrix again.
//!
//! Where components nearly depend on each other, U can move far at the same objective, and the extrapolated U, from which V
//! follows, is then far from any good one. Two more words are for the objective of that U; the same restart refuses it.

use ndarray::{Array2, ArrayView, ArrayViewMut2, Dimension, Zip};
use serde::{Deserialize, Serialize};

use fednmf_linalg::Real;

fednmf_base::words! {
    /// Where a factor's update starts.
    pub enum Extrapolation {
        /// At the last iterate
        None = "none",
        /// At a point beyond it, while the objective falls
        Restart = "restart",
    }
}

/// β at the start. Values from 0.2 to 0.7 were tried on planted, word-count and image data; this one was never far from the
/// best. From 0.5, the first steps can overshoot. The other three constants are those of the paper.
const START: f64 = 0.4;
/// Factor of β after a decrease of the objective, and divisor after an increase.
const GROWTH: f64 = 1.01;
const SHRINK: f64 = 1.5;
/// Growth factor of β's bound after a decrease of the objective.
const BOUND_GROWTH: f64 = 1.005;
/// The same constants for extrapolation between anchors, of which there are fewer.
const ANCHOR_START: f64 = 0.5;
const ANCHOR_GROWTH: f64 = 1.05;
const ANCHOR_BOUND_GROWTH: f64 = 1.01;

/// An extrapolated factor is refused if its objective is more than this multiple of the last one. On digits, faces, word counts and
/// cells the quotient is below 2.5, and mostly below 1.001; where a run went astray, it had been 80 and more for many iterations.
const FAR: f64 = 4.0;

/// Iterations without extrapolation at the start. They decide which components explain what; extrapolated from the first one on,
/// some small structured matrices end in local minima that the plain method avoids.
const PLAIN: usize = 3;

/// β, its upper bound, and the last objective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Momentum {
    beta: f64,
    bound: f64,
    /// Iterations left without extrapolation.
    #[serde(default)]
    plain: usize,
    /// `None` before the first iteration.
    objective: Option<f64>,
}

impl Momentum {
    /// For few, long steps: from one anchor of VR-DSANLS to the next.
    pub fn of_anchors() -> Self {
        Momentum { beta: ANCHOR_START, plain: 0, ..Momentum::default() }
    }

    /// The weight of the next extrapolation.
    pub fn beta(&self) -> f64 {
        if self.plain > 0 { 0.0 } else { self.beta }
    }

    /// [`Momentum::accept`] with the constants for anchors.
    pub fn accept_at_anchor(&mut self, objective: f64) -> bool {
        self.accept_growing(objective, true, ANCHOR_GROWTH, ANCHOR_BOUND_GROWTH)
    }

    /// Records the objective at the new U. Returns whether to keep the extrapolated factors.
    pub fn accept(&mut self, objective: f64) -> bool {
        self.accept_growing(objective, true, GROWTH, BOUND_GROWTH)
    }

    /// As [`Momentum::accept`], but keeps no factors if the objective `beyond` of the extrapolated U is far above the last one, for
    /// objectives with errors of up to `rounding`.
    pub fn accept_unless_far(&mut self, objective: f64, beyond: f64, rounding: f64) -> bool {
        let near = self.objective.is_none_or(|last| beyond <= FAR * last.max(0.0) + rounding);
        self.accept_growing(objective, near, GROWTH, BOUND_GROWTH)
    }

    /// Records the objective of the update that was repeated after a rise.
    pub fn replace(&mut self, objective: f64) {
        self.objective = Some(objective).filter(|x| x.is_finite());
    }

    fn accept_growing(&mut self, objective: f64, near: bool, growth: f64, bound_growth: f64) -> bool {
        self.plain = self.plain.saturating_sub(1);
        let accepted = near && objective <= self.objective.unwrap_or(f64::INFINITY);
        if accepted {
            self.beta = (self.beta * growth).min(self.bound);
            self.bound = (self.bound * bound_growth).min(1.0);
        } else {
            self.bound = self.beta;
            self.beta /= SHRINK;
        }
        self.objective = Some(objective).filter(|x| x.is_finite());
        accepted
    }
}

impl Default for Momentum {
    fn default() -> Self {
        Momentum { beta: START, bound: 1.0, plain: PLAIN, objective: None }
    }
}

/// The weights of Nesterov's sequence: (t − 1) / t' with t' = (1 + √(1 + 4t²)) / 2, from t = 1 on.
#[derive(Debug, Clone, Copy)]
pub struct NesterovWeights {
    t: f64,
}

impl NesterovWeights {
    /// The sequence after this number of iterations.
    pub fn after(iterations: usize) -> Self {
        let mut weights = NesterovWeights { t: 1.0 };
        (0..iterations).for_each(|_| {
            weights.advance();
        });
        weights
    }

    /// The weight of the next iteration.
    pub fn advance(&mut self) -> f64 {
        let next = 0.5 * (1.0 + (1.0 + 4.0 * self.t * self.t).sqrt());
        let weight = (self.t - 1.0) / next;
        self.t = next;
        weight
    }
}

/// (x, old) ← (x + α max(0, x − old), x): only entries that grow are extrapolated.
pub fn extrapolate_growing<T: Real>(x: &mut Array2<T>, old: &mut Array2<T>, weight: f64) {
    let weight = T::from_f64(weight);
    Zip::from(x).and(old).for_each(|x, old| {
        let new = *x;
        *x = new + weight * (new - *old).max(T::zero());
        *old = new;
    });
}

/// (x, old) ← (max(0, x + β (x − old)), x): the extrapolated point, and the new iterate.
pub fn extrapolate<T: Real>(x: &mut Array2<T>, old: &mut Array2<T>, beta: f64) {
    extrapolate_rows(x.view_mut(), old.view_mut(), beta);
}

/// As [`extrapolate`], for some rows of a factor.
pub fn extrapolate_rows<T: Real>(x: ArrayViewMut2<'_, T>, old: ArrayViewMut2<'_, T>, beta: f64) {
    let beta = T::from_f64(beta);
    Zip::from(x).and(old).for_each(|x, old| {
        let new = *x;
        *x = (new + beta * (new - *old)).max(T::zero());
        *old = new;
    });
}

/// ⟨a, b⟩ in f64.
pub fn inner<T: Real, D: Dimension>(a: &ArrayView<T, D>, b: &ArrayView<T, D>) -> f64 {
    let mut sum = 0.0;
    Zip::from(a).and(b).for_each(|a, b| sum += a.as_f64() * b.as_f64());
    sum
}

/// Largest rounding error of an objective of a matrix with this squared norm.
pub fn rounding<T: Real>(norm2: f64) -> f64 {
    100.0 * T::epsilon().as_f64() * norm2
}

/// Words for the objective in the message with the Gram matrix of U: two, so that its sum is exact in f32 too.
pub const WORDS: usize = 2;

/// x in two words whose sums over ranks keep about 40 bits of `unit`: multiples of unit·2⁻¹⁶ add up exactly.
pub fn split_into_two_words<T: Real>(x: f64, unit: f64) -> [T; WORDS] {
    let step = unit / 65536.0;
    let high = if step > 0.0 { (x / step).round() * step } else { 0.0 };
    [T::from_f64(high), T::from_f64(x - high)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_far_above_the_last_objective_is_refused() {
        let mut momentum = Momentum::default();
        assert!(momentum.accept_unless_far(2.0, 1e9, 0.0), "there is no last objective");
        assert!(momentum.accept_unless_far(1.9, 7.9, 0.0) && !momentum.accept_unless_far(1.8, 7.7, 0.0));
        assert!(!momentum.accept_unless_far(1.9, 1.9, 0.0), "a rise");
        // Below the rounding error all objectives are equal.
        assert!(momentum.accept_unless_far(-1e-9, 1e-9, 1e-8) && momentum.accept_unless_far(-2e-9, 1e-9, 1e-8));
    }
}
