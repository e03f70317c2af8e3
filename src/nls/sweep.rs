//! Coordinate descent: HALS, and with μ > 0 the proximal coordinate descent of DSANLS (Alg. 3).

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::linalg::Real;
use crate::nls::strips::{Method, apply};

/// Settings of [`sweep`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sweep<T> {
    /// Weight of the proximal term μ‖x − x_old‖²; 0 is HALS.
    pub mu: T,
    /// How often each coordinate is visited.
    pub passes: usize,
}

/// One visit (or `passes`) of every coordinate of every row, components in order:
/// x_j ← max(0, x_j + (r_j − Σ_l G_jl x_l) / (G_jj + μ)).
/// X and R are rows × k (fastest in the same memory order); G is k × k. A component with G_jj + μ = 0 is left as it
/// is. The new row depends on the row alone, to the bit: not on how many there are nor on where it stands.
pub fn sweep<T: Real>(x: &mut ArrayViewMut2<T>, r: &ArrayView2<T>, g: &ArrayView2<T>, settings: Sweep<T>) {
    sweep_below(x, r, g, settings, T::infinity());
}

/// As [`sweep`], for entries in [0, most]: each is the minimiser in that range.
pub fn sweep_below<T: Real>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    settings: Sweep<T>,
    most: T,
) {
    let step = |own: T| Some((own + settings.mu).recip()).filter(|s| *s > T::zero() && s.is_finite());
    let step = |own: T| step(own).unwrap_or(T::zero());
    apply::<T, _, true>(x, r, g, Method { step, passes: settings.passes, most });
}
