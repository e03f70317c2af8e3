//! Coordinate descent: HALS (Cichocki and Phan, Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor
//! Factorizations, 2009), and with μ > 0 the proximal coordinate descent of DSANLS (Qian et al., Alg. 3).

use ndarray::{ArrayView2, ArrayViewMut2};

use super::Penalty;
use super::row_panels::{RowUpdate, apply};
use crate::Real;

/// Parameters of [`sweep`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sweep<T> {
    /// Weight of the proximal term μ‖x − x_old‖²; 0 is HALS.
    pub mu: T,
    /// Number of visits of each coordinate.
    pub passes: usize,
    pub penalty: Penalty,
}

/// Visits the coordinates of every row in order, `passes` times, with the penalty's λ₁ and λ₂:
/// x_j ← max(0, x_j + (r_j − λ₁ − λ₂ x_j − Σ_l G_jl x_l) / (G_jj + λ₂ + μ)).
/// X and R are rows × k (fastest in the same memory order), G is k × k. Components with G_jj + λ₂ + μ = 0 are left
/// unchanged, or become 0 if λ₁ > 0.
/// The bits of a new row depend only on the old row, neither on its position nor on the number of rows.
pub fn sweep<T: Real>(x: &mut ArrayViewMut2<T>, r: &ArrayView2<T>, g: &ArrayView2<T>, parameters: Sweep<T>) {
    sweep_below(x, r, g, parameters, T::infinity());
}

/// As [`sweep`], for entries in [0, upper]: each step is the minimiser in that interval.
pub fn sweep_below<T: Real>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    parameters: Sweep<T>,
    upper: T,
) {
    let step = |own: T| Some((own + parameters.mu).recip()).filter(|s| *s > T::zero() && s.is_finite());
    let step = |own: T| step(own).unwrap_or(T::zero());
    let Sweep { passes, penalty, .. } = parameters;
    apply::<T, _, true>(x, r, g, RowUpdate { step, passes, upper, penalty });
}
