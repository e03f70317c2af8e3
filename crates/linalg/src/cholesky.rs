//! The Cholesky factorisation A = L Lᵀ of a small symmetric matrix (k × k) in f64.
//!
//! It uses loops of its own instead of LAPACK (through ndarray-linalg): the bits of the result do not depend on memory
//! alignment nor on the processor, so party methods have the same results on every rank, and pivots that rounding makes negative
//! are tolerated. The loops run along rows of Lᵀ, so that the compiler vectorises them.

use crate::simd::dispatch_fn;

/// The factor L.
#[derive(Debug, Clone, Default)]
pub struct Cholesky {
    /// Lᵀ, n × n, of which only the upper triangle is used.
    factor: Vec<f64>,
    /// L⁻¹, the lower triangle packed by rows; scratch of [`Cholesky::inverse`].
    inverse: Vec<f64>,
    n: usize,
}

/// Start of row i of a packed lower triangle.
#[inline(always)]
fn row(i: usize) -> usize {
    i * (i + 1) / 2
}

impl Cholesky {
    /// With memory for factors of up to `most` rows.
    pub fn with_capacity(most: usize) -> Self {
        Cholesky { factor: Vec::with_capacity(most * most), ..Cholesky::default() }
    }

    /// Factorises the n × n matrix with entries `a(i, j)`, j ≤ i. Pivots below `floor` · a(i, i) are raised to that.
    /// Returns whether the matrix is positive definite with this floor; otherwise the factor must not be used.
    #[inline]
    pub fn factorise(&mut self, n: usize, floor: f64, a: impl Fn(usize, usize) -> f64) -> bool {
        self.n = n;
        self.factor.clear();
        self.factor.resize(n * n, 0.0);
        for j in 0..n {
            for i in j..n {
                self.factor[j * n + i] = a(i, j);
            }
        }
        let factor = &mut self.factor;
        let floors = |i: usize| floor * a(i, i);
        let mut definite = true;
        dispatch_fn(
            #[inline(always)]
            || {
                for c in 0..n {
                    let (done, rest) = factor.split_at_mut((c + 1) * n);
                    let own = &mut done[c * n + c..];
                    let pivot = own[0].max(floors(c));
                    definite &= pivot > 0.0 && pivot.is_finite();
                    let root = pivot.sqrt();
                    own.iter_mut().for_each(|x| *x /= root);
                    own[0] = root;
                    for (i, to) in rest.chunks_exact_mut(n).enumerate() {
                        let from = &own[i + 1..];
                        let by = from[0];
                        to[c + 1 + i..].iter_mut().zip(from).for_each(|(to, x)| *to -= by * x);
                    }
                }
            },
        );
        definite
    }

    /// log det A.
    pub fn log_determinant(&self) -> f64 {
        (0..self.n).map(|i| 2.0 * self.factor[i * self.n + i].ln()).sum()
    }

    /// x ← A⁻¹ x, for x of length n.
    #[inline]
    pub fn solve(&self, x: &mut [f64]) {
        let (l, n) = (&self.factor, self.n);
        dispatch_fn(
            #[inline(always)]
            || {
                for i in 0..n {
                    let own = &l[i * n + i..(i + 1) * n];
                    let (done, rest) = x[i..].split_at_mut(1);
                    done[0] /= own[0];
                    let by = done[0];
                    rest.iter_mut().zip(&own[1..]).for_each(|(x, l)| *x -= by * l);
                }
                for i in (0..n).rev() {
                    let own = &l[i * n + i..(i + 1) * n];
                    let dot = super::nls::divergence::dot(&own[1..], &x[i + 1..n], |x| x);
                    x[i] = (x[i] - dot) / own[0];
                }
            },
        );
    }

    /// A⁻¹ = L⁻ᵀ L⁻¹, as calls of `write(i, j, entry)` for j ≤ i.
    pub fn inverse(&mut self, mut write: impl FnMut(usize, usize, f64)) {
        let (l, inverse) = (&self.factor, &mut self.inverse);
        inverse.clear();
        for i in 0..self.n {
            for j in 0..=i {
                let dot: f64 = (j..i).map(|c| l[c * self.n + i] * inverse[row(c) + j]).sum();
                inverse.push((f64::from(u8::from(i == j)) - dot) / l[i * self.n + i]);
            }
        }
        for i in 0..self.n {
            for j in 0..=i {
                write(i, j, (i..self.n).map(|c| inverse[row(c) + i] * inverse[row(c) + j]).sum());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, Array2};

    use super::*;

    #[test]
    fn solutions_and_inverses_satisfy_their_equations() {
        for n in [0, 1, 3, 20] {
            let b = Array2::from_shape_fn((n + 2, n), |(i, j)| ((i * 7 + j * 5) as f64).sin());
            let a = b.t().dot(&b) + Array2::<f64>::eye(n) * 0.25;
            let mut cholesky = Cholesky::default();
            assert!(cholesky.factorise(n, 0.0, |i, j| a[[i, j]]));
            let x = Array1::from_shape_fn(n, |i| (i as f64).cos());
            let mut y = a.dot(&x);
            cholesky.solve(y.as_slice_mut().unwrap());
            assert!((&y - &x).iter().all(|e| e.abs() < 1e-11));
            let mut inverse = Array2::zeros((n, n));
            cholesky.inverse(|i, j, x| (inverse[[i, j]], inverse[[j, i]]) = (x, x));
            assert!((a.dot(&inverse) - Array2::<f64>::eye(n)).iter().all(|e| e.abs() < 1e-11));
        }
    }

    #[test]
    fn matrices_that_are_not_positive_definite_are_reported() {
        let mut cholesky = Cholesky::default();
        for a in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
            assert!(!cholesky.factorise(2, 0.0, |_, _| a), "{a}");
        }
        // Singular: the second pivot is 0, or the floor.
        assert!(!cholesky.factorise(2, 0.0, |_, _| 1.0) && cholesky.factorise(2, 1e-14, |_, _| 1.0));
    }
}
