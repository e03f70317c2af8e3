//! The Cholesky factorisation A = L Lᵀ of a small symmetric matrix (k × k) in f64.
//!
//! It uses loops of its own instead of LAPACK (through ndarray-linalg): the bits of the result do not depend on memory
//! alignment, so party methods have the same results on every rank, and pivots that rounding makes negative are tolerated.
//! In block principal pivoting from a warm start, LAPACK takes 1.10 times as long for k = 10, 0.79 for k = 20 and 0.60 for
//! k = 40.

/// The factor L, lower triangle, packed by rows.
#[derive(Debug, Clone, Default)]
pub struct Cholesky {
    factor: Vec<f64>,
    /// L⁻¹, packed alike; scratch of [`Cholesky::inverse`].
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
        Cholesky { factor: Vec::with_capacity(row(most)), ..Cholesky::default() }
    }

    /// Factorises the n × n matrix with entries `a(i, j)`, j ≤ i. Pivots below `floor` · a(i, i) are raised to that.
    /// Returns whether the matrix is positive definite with this floor; otherwise the factor must not be used.
    #[inline]
    pub fn factorise(&mut self, n: usize, floor: f64, a: impl Fn(usize, usize) -> f64) -> bool {
        self.n = n;
        let l = &mut self.factor;
        l.clear();
        let mut definite = true;
        for i in 0..n {
            for j in 0..=i {
                let dot: f64 = (0..j).map(|c| l[row(i) + c] * l[row(j) + c]).sum();
                let rest = a(i, j) - dot;
                l.push(if j < i {
                    rest / l[row(j) + j]
                } else {
                    let pivot = rest.max(floor * a(i, i));
                    definite &= pivot > 0.0 && pivot.is_finite();
                    pivot.sqrt()
                });
            }
        }
        definite
    }

    /// log det A.
    pub fn log_determinant(&self) -> f64 {
        (0..self.n).map(|i| 2.0 * self.factor[row(i) + i].ln()).sum()
    }

    /// x ← A⁻¹ x, for x of length n.
    #[inline]
    pub fn solve(&self, x: &mut [f64]) {
        let l = &self.factor;
        for i in 0..self.n {
            let dot: f64 = (0..i).map(|j| l[row(i) + j] * x[j]).sum();
            x[i] = (x[i] - dot) / l[row(i) + i];
        }
        for i in (0..self.n).rev() {
            let dot: f64 = (i + 1..self.n).map(|j| l[row(j) + i] * x[j]).sum();
            x[i] = (x[i] - dot) / l[row(i) + i];
        }
    }

    /// A⁻¹ = L⁻ᵀ L⁻¹, as calls of `write(i, j, entry)` for j ≤ i.
    pub fn inverse(&mut self, mut write: impl FnMut(usize, usize, f64)) {
        let (l, inverse) = (&self.factor, &mut self.inverse);
        inverse.clear();
        for i in 0..self.n {
            for j in 0..=i {
                let dot: f64 = (j..i).map(|c| l[row(i) + c] * inverse[row(c) + j]).sum();
                inverse.push((f64::from(u8::from(i == j)) - dot) / l[row(i) + i]);
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
