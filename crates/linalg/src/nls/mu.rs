//! Multiplicative updates (Lee and Seung, Algorithms for Non-negative Matrix Factorization, NIPS 2000).

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::Penalty;
use crate::{Real, gemm};

/// x max(r, 0) / d, and 0 where d is. NaN stays NaN, so that it is noticed.
pub fn multiplied<T: Real>(x: T, r: T, d: T) -> T {
    if d == T::zero() {
        return T::zero();
    }
    // One of the quotients may overflow: r / d for a tiny x, x / d for a tiny curvature.
    let quotient = x / d;
    let next = if quotient.is_finite() { quotient * r } else { x * (r / d) };
    if next < T::zero() { T::zero() } else { next }
}

/// X ← X ∘ max(R, 0) ⊘ (X G + λ₁ + λ₂X) for X and R rows × k and G k × k; entries with denominator 0 become 0. The loss with
/// its penalty does not increase. Computed in blocks of the rows of the scratch matrix `tile` (k columns), so that X G stays
/// in cache.
pub fn multiply<T: Real>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    penalty: Penalty,
    tile: &mut Array2<T>,
) {
    let (l1, l2) = penalty.weights::<T>();
    assert!(r.dim() == x.dim() && g.dim() == (x.ncols(), x.ncols()), "shapes of a multiplicative step");
    let height = tile.nrows();
    for first in (0..x.nrows()).step_by(height) {
        let rows = first..(first + height).min(x.nrows());
        let mut x = x.slice_mut(s![rows.clone(), ..]);
        let mut xg = tile.slice_mut(s![..rows.len(), ..]);
        gemm(T::one(), &x.view(), g, T::zero(), &mut xg);
        ndarray::Zip::from(&mut x).and(&r.slice(s![rows, ..])).and(&xg).for_each(|x, &r, &d| {
            *x = multiplied(*x, r, d + l1 + l2 * *x);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Order;
    use crate::random::{Purpose, Stream, uniform_factor};

    #[test]
    fn tiny_denominators_leave_finite_numbers_and_nan_is_kept() {
        let tiny = f64::MIN_POSITIVE / 1e4;
        assert_eq!(multiplied(0.0, 1e-4, tiny), 0.0);
        assert!((multiplied(tiny, 1e-4, 2.0 * tiny) / 5e-5 - 1.0).abs() < 1e-2);
        assert!((multiplied(1.0f32, 1e-20, 1e-40) / 1e20 - 1.0).abs() < 1e-2);
        assert_eq!([multiplied(1.0, -1.0, 2.0), multiplied(1.0, 3.0, 0.0)], [0.0, 0.0]);
        assert!(multiplied(f64::NAN, 1.0, 1.0).is_nan() && multiplied(1.0, 1.0, f64::NAN).is_nan());
    }

    #[test]
    fn the_update_follows_its_formula_and_the_loss_does_not_increase() {
        let random = |i, rows, k| uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0);
        let (m, y, mut x) = (random(1, 37, 20), random(2, 20, 4), random(3, 37, 4));
        let (r, g) = (m.dot(&y), y.t().dot(&y));
        let loss = |x: &Array2<f64>| (&m - &x.dot(&y.t())).mapv(|e| e * e).sum();
        let expected = &x * &r / x.dot(&g);
        let before = loss(&x);
        multiply(&mut x.view_mut(), &r.view(), &g.view(), Penalty::NONE, &mut Order::ColumnMajor.zeros(8, 4));
        assert!((&x - &expected).iter().all(|e| e.abs() < 1e-12) && loss(&x) <= before);
        // With a penalty.
        let penalty = Penalty { l1: 0.8, l2: 3.0 };
        let whole = |x: &Array2<f64>| 0.5 * loss(x) + penalty.value(&x.view());
        for _ in 0..200 {
            let (before, expected) = (whole(&x), &x * &r / &(x.dot(&g) + 0.8 + &(&x * 3.0)));
            multiply(&mut x.view_mut(), &r.view(), &g.view(), penalty, &mut Order::ColumnMajor.zeros(8, 4));
            assert!((&x - &expected).iter().all(|e| e.abs() < 1e-12) && whole(&x) <= before * (1.0 + 1e-14));
        }
        x.fill(0.0);
        multiply(&mut x.view_mut(), &r.view(), &g.view(), Penalty::NONE, &mut Order::RowMajor.zeros(8, 4));
        assert!(x.iter().all(|x| *x == 0.0));
    }
}
