//! Multiplicative updates (Lee and Seung, Algorithms for Non-negative Matrix Factorization, NIPS 2000).

use super::{DivergenceUpdate, Fixed, multiplied};
use crate::linalg::simd::dispatch;
use crate::linalg::{Block, Real};
use crate::nls::Penalty;

/// x_l ← x_l (Σ_j m_j y_jl / f_j) / Σ_j y_jl; with penalties the root of a quadratic equation. The objective never
/// rises.
#[derive(Debug, Clone)]
pub struct KlMultiply {
    /// Σ_j m_j y_jl / f_j of one row, in f64, since a row may be long.
    ratios: Vec<f64>,
}

impl KlMultiply {
    pub fn new(k: usize) -> Self {
        KlMultiply { ratios: vec![0.0; k] }
    }
}

impl<T: Real> DivergenceUpdate<T> for KlMultiply {
    fn update(&mut self, data: (&Block<T>, usize), y: Fixed<'_, T>, x: &mut [T], penalty: Penalty) {
        dispatch(
            #[inline(always)]
            || self.multiply(data, y, x, penalty),
        );
    }
}

impl KlMultiply {
    #[inline(always)]
    fn multiply<T: Real>(&mut self, (block, row): (&Block<T>, usize), y: Fixed<'_, T>, x: &mut [T], penalty: Penalty) {
        let (k, ratios) = (x.len(), &mut self.ratios);
        let (l1, l2) = penalty.weights::<f64>();
        ratios.fill(0.0);
        block.for_each_nonzero(row, |j, m| {
            let y = &y.rows[j * k..(j + 1) * k];
            let fit = x.iter().zip(y).fold(T::zero(), |sum, (&x, &y)| sum + x * y);
            // Where the factors say 0, or next to it, no multiple of them says m: the entry cannot pull.
            let pull = m / fit;
            if pull.is_finite() {
                ratios.iter_mut().zip(y).for_each(|(ratio, &y)| *ratio += (pull * y).as_f64());
            }
        });
        for ((x, &ratio), &sum) in x.iter_mut().zip(&*ratios).zip(y.sums) {
            let next = T::from_f64(multiplied(x.as_f64() * ratio, sum + l1, l2));
            // A large penalty makes factors so small that a ratio overflows.
            *x = if next.is_finite() || penalty.is_none() { next } else { T::zero() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Csr;
    use crate::nls::divergence::column_sums;
    use crate::random::{Purpose, Stream, uniform_factor};
    use ndarray::{Array2, Axis};

    fn update<T: Real>(block: &Block<T>, x: &mut Array2<T>, y: &Array2<T>, penalty: Penalty) {
        let mut sums = vec![0.0; y.ncols()];
        let rows = y.as_slice().unwrap();
        column_sums(rows, &mut sums);
        let mut step = KlMultiply::new(y.ncols());
        for (row, mut x) in x.rows_mut().into_iter().enumerate() {
            step.update((block, row), Fixed { rows, sums: &sums, gram: &[] }, x.as_slice_mut().unwrap(), penalty);
        }
    }

    #[test]
    fn an_update_is_the_formula_and_the_divergence_never_rises() {
        let random = |i, rows, k| uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0);
        let mut m = random(1, 15, 12);
        m.iter_mut().step_by(3).for_each(|x| *x = 0.0);
        let y = random(3, 12, 4);
        let divergence = |x: &Array2<f64>| {
            let fit = x.dot(&y.t());
            let one = |(m, f): (&f64, &f64)| if *m > 0.0 { m * (m / f).ln() - m + f } else { *f };
            m.iter().zip(&fit).map(one).sum::<f64>()
        };
        let sparse = Block::Sparse(Csr::new(sprs::CsMatI::csr_from_dense(m.view(), 0.0)));
        for block in [Block::Dense(m.clone().into()), sparse] {
            let start = random(2, 15, 4);
            let mut x = start.clone();
            update(&block, &mut x, &y, Penalty::NONE);
            let expected = &start * &(&m / &start.dot(&y.t())).dot(&y) / y.sum_axis(Axis(0));
            assert!((&x - &expected).iter().all(|e| e.abs() < 1e-12));
            let (before, after) = (divergence(&start), divergence(&x));
            assert!(after < before, "{before} {after}");
            for penalty in [Penalty { l1: 0.5, l2: 0.0 }, Penalty { l1: 0.0, l2: 2.0 }, Penalty { l1: 0.3, l2: 1.0 }] {
                let objective = |x: &Array2<f64>| divergence(x) + penalty.value(&x.view());
                for _ in 0..300 {
                    let before = objective(&x);
                    update(&block, &mut x, &y, penalty);
                    assert!(objective(&x) <= before * (1.0 + 1e-12), "{penalty:?}");
                }
                // Where an entry is positive the gradient has come to 0.
                let ratio = (&m / &x.dot(&y.t())).dot(&y);
                let gradient = &x * penalty.l2 + penalty.l1 + y.sum_axis(Axis(0)) - ratio;
                assert!((&x * &gradient).iter().all(|x| x.abs() < 1e-3), "{penalty:?}");
                x.assign(&start);
            }
            for penalty in [Penalty { l1: 1e150, l2: 0.0 }, Penalty { l1: 0.0, l2: 1e150 }] {
                (0..5).for_each(|_| update(&block, &mut x, &y, penalty));
                assert!(x.iter().all(|x| (0.0..1e-50).contains(x)), "{penalty:?}");
                x.assign(&start);
            }
        }
    }

    /// The other factor has more rows than f32 can count: x = 1 becomes m / n for the only entry m of n.
    #[test]
    fn sums_of_long_columns_lose_no_terms() {
        let n = (1 << 24) + (1 << 21);
        let one = sprs::CsMatI::new((1, n), vec![0, 1], vec![7], vec![n as f32]);
        let mut x = Array2::ones((1, 1));
        update(&Block::Sparse(Csr::new(one)), &mut x, &Array2::<f32>::ones((n, 1)), Penalty::NONE);
        assert_eq!(x[[0, 0]], 1.0);
    }
}
