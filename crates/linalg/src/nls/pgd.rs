//! Projected gradient steps, and the bound of ‖G‖₂ that their length needs.

use ndarray::{ArrayView2, ArrayViewMut1, ArrayViewMut2};

use super::Penalty;
use super::row_panels::{RowUpdate, apply};
use crate::Real;

/// X ← max(0, X − η (X (G + λ₂I) − R + λ₁)) for X and R rows × k and symmetric G k × k: equation (14) of Qian et al.
/// (DSANLS) with η = 2η_t, and a penalty. As in [`crate::nls::coordinate_descent`], the bits of a new row depend only on the
/// old row.
pub fn gradient_step<T: Real>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    eta: T,
    penalty: Penalty,
) {
    gradient_step_below(x, r, g, eta, penalty, T::infinity());
}

/// As [`gradient_step`], projected onto [0, upper].
pub fn gradient_step_below<T: Real>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    eta: T,
    penalty: Penalty,
    upper: T,
) {
    apply::<T, _, false>(x, r, g, RowUpdate { step: |_| eta, passes: 1, upper, penalty });
}

/// An upper bound of ‖G‖₂ for a symmetric k × k matrix G: the Collatz-Wielandt bound max_i (|G| x)_i / x_i over 30 steps of
/// the power method. It converges to ‖G‖₂ if G has no negative entries (the Gram matrix of a nonnegative factor), and is
/// then tight to about one per cent. `scratch` has length 2k.
pub fn spectral_bound<T: Real>(g: &ArrayView2<T>, scratch: &mut ArrayViewMut1<T>) -> T {
    const STEPS: usize = 30;
    let k = g.ncols();
    let (mut x, mut next) = scratch.view_mut().split_at(ndarray::Axis(0), k);
    x.fill(T::one());
    let mut best = T::infinity();
    for _ in 0..STEPS {
        let (mut bound, mut largest) = (T::zero(), T::zero());
        for i in 0..k {
            next[i] = (0..k).map(|j| g[[i, j]].abs() * x[j]).sum();
            bound = bound.max(next[i] / x[i]);
            largest = largest.max(next[i]);
        }
        best = best.min(bound);
        if largest <= T::zero() {
            return T::zero();
        }
        // Adding a small constant keeps every entry positive, which each bound requires.
        x.zip_mut_with(&next, |x, &y| *x = y / largest + T::from_f64(1e-6));
    }
    best
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, Array2};

    use super::*;
    use crate::random::{Purpose, Stream, uniform_factor};

    #[test]
    fn the_bound_is_tight() {
        use ndarray_linalg::{EighInto, UPLO};
        for (k, n) in [(1, 5), (4, 30), (20, 25), (40, 400)] {
            let y = uniform_factor::<f64>(&Stream::new(k as u64, Purpose::Probe, 0), 0..n, k, 1.0);
            let g: Array2<f64> = y.t().dot(&y);
            let (values, _) = g.clone().eigh_into(UPLO::Lower).unwrap();
            let norm = values[k - 1];
            let bound = spectral_bound(&g.view(), &mut Array1::zeros(2 * k).view_mut());
            assert!(bound >= norm * (1.0 - 1e-12) && bound <= norm * 1.02, "{bound} {norm}");
        }
        assert_eq!(spectral_bound(&Array2::<f64>::zeros((3, 3)).view(), &mut Array1::zeros(6).view_mut()), 0.0);
    }
}
