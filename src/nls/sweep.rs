//! Coordinate descent: HALS, and with μ > 0 the proximal coordinate descent of DSANLS (Alg. 3).

use ndarray::{ArrayView2, ArrayViewMut2};
use pulp::Simd;

use super::strips::{Gram, Strip, Update, apply, for_block_size, residual};
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
/// X and R are rows × k (fastest in the same memory order); G is k × k. A component with G_jj + μ = 0 is left as it
/// is. The new row depends on the row alone, to the bit: not on how many there are nor on where it stands.
pub fn sweep<T: Real>(x: &mut ArrayViewMut2<T>, r: &ArrayView2<T>, g: &ArrayView2<T>, settings: Sweep<T>) {
    apply(x, r, g, &settings);
}

impl<T: Real> Update<T> for Sweep<T> {
    #[inline(always)]
    fn strip<S: Simd, const V: usize>(
        &self,
        s: S,
        gram: &Gram<T>,
        x: &mut Strip<T, S, V>,
        r: &Strip<T, S, V>,
        _: &mut Strip<T, S, V>,
    ) {
        for _ in 0..self.passes {
            for (first, size) in gram.blocks() {
                for_block_size!(size, block::<T, S, J, V>(s, gram, first, self.mu, x, r));
            }
        }
    }
}

/// The visit of J components: their residuals with the old values of the block, as one small matrix product; then one
/// after the other is updated, and what it changes is taken off the residuals of those behind it.
#[inline(always)]
fn block<T: Real, S: Simd, const J: usize, const V: usize>(
    s: S,
    gram: &Gram<T>,
    first: usize,
    mu: T,
    x: &mut Strip<T, S, V>,
    r: &Strip<T, S, V>,
) {
    let g = gram.block::<J>(first);
    let mut residual = residual::<T, S, J, V>(s, g, x, &r[first..first + J]);
    let zero = T::splat_v(s, T::zero());
    let own = &g[first..first + J];
    let x = &mut x[first..first + J];
    for j in 0..J {
        let step = (own[j][j] + mu).recip();
        if !(step > T::zero() && step.is_finite()) {
            continue;
        }
        let step = T::splat_v(s, step);
        for v in 0..V {
            let new = T::max_v(s, T::mul_add_v(s, residual[j][v], step, x[j][v]), zero);
            let change = T::sub_v(s, new, x[j][v]);
            x[j][v] = new;
            for after in j + 1..J {
                residual[after][v] = T::mul_sub_v(s, T::splat_v(s, own[j][after]), change, residual[after][v]);
            }
        }
    }
}
