//! Coordinate descent: HALS, and with μ > 0 the proximal coordinate descent of DSANLS (Alg. 3).

use ndarray::{ArrayView2, ArrayViewMut2};

use crate::linalg::Real;

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
/// X and R are rows × k in the same memory order; G is k × k. A component with G_jj + μ = 0 is left as it is.
pub fn sweep<T: Real>(x: &mut ArrayViewMut2<T>, r: &ArrayView2<T>, g: &ArrayView2<T>, settings: Sweep<T>) {
    let k = x.ncols();
    assert!(r.dim() == x.dim() && g.dim() == (k, k), "shapes of a sweep");
    for _ in 0..settings.passes {
        for j in 0..k {
            let scale = g[[j, j]] + settings.mu;
            if scale <= T::zero() {
                continue;
            }
            for i in 0..x.nrows() {
                let mut gradient = -r[[i, j]];
                for l in 0..k {
                    gradient += g[[j, l]] * x[[i, l]];
                }
                x[[i, j]] = (x[[i, j]] - gradient / scale).max(T::zero());
            }
        }
    }
}
