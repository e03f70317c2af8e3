//! Missing entries by completion: before each update, missing entries are set to their values in the current fit
//! (expectation-maximisation, Zhang, Wang, Ford and Makedon 2006). Let M have zeros at missing entries, and let P be the
//! projection onto these. For the completed matrix M' the right-hand side of the rows X is M' Y = M Y + P(X Yᵀ) Y, and the
//! Gram matrix of Y is that of all rows. A method that steps on (Gram matrix, right-hand side) therefore works on missing
//! data without change, and its messages keep their size.
//!
//! ½‖M' − X Yᵀ‖² bounds the error on the observed entries from above. At the X that completed the matrix, both have the
//! same value and the same gradient. A step that decreases one therefore decreases the other, and a gradient step is that
//! of the observed entries.

use ndarray::{Array2, ArrayView2, s};

use fednmf_linalg::nls::{Penalty, Pivoting};
use fednmf_linalg::{Block, Real, gram, over_rows};

use crate::metrics::not_negative;

use super::lists::{Listed, Lists, each, kept};
use super::sampled::{self, copy};

/// The missing entries of a block, by rows and by columns.
pub struct MissingEntries<T: Real> {
    listed: Listed,
    rows: Lists<T>,
    columns: Lists<T>,
    /// Both factors in row order, for one completion.
    x: Vec<T>,
    y: Vec<T>,
}

/// The factor that is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Rows,
    Columns,
}

impl<T: Real> MissingEntries<T> {
    /// Separates a block (rows × n) into the block with zeros at missing entries and the positions of these. Missing are
    /// NaN and, with `only_stored`, every zero. Factors have k columns.
    pub fn take(block: Block<T>, only_stored: bool, k: usize) -> (Block<T>, Self) {
        let (rows, n) = block.shape();
        let mut places = Vec::new();
        for a in 0..rows {
            each(&block, a, |b, x| {
                let missing = if only_stored { x == T::zero() } else { x.is_nan() };
                if missing != only_stored {
                    places.push((a as u32, b));
                }
            });
        }
        let block = if only_stored { block } else { kept(block, |_, _, x| !x.is_nan()) };
        let turned = places.iter().map(|&(a, b)| (b, a)).collect();
        let listed = if only_stored { Listed::Observed } else { Listed::Missing };
        let zeros = |rows: usize| vec![T::zero(); rows * k];
        let length = rows.max(n);
        let (rows, columns) = (Lists::of_places(rows, places), Lists::of_places(n, turned));
        (block, MissingEntries { listed, rows, columns, x: zeros(length), y: zeros(length) })
    }

    /// As [`MissingEntries::complete`], for a sketch that selects rows of Y without repetition: `picked` contains their indices,
    /// ascending, and their rows of B; `g` is BᵀB.
    pub fn complete_sample(
        &mut self,
        side: Side,
        x: &ArrayView2<'_, T>,
        picked: (&[usize], &ArrayView2<'_, T>),
        g: &ArrayView2<'_, T>,
        rhs: &mut Array2<T>,
    ) {
        let lists = if side == Side::Rows { &self.columns } else { &self.rows };
        sampled::complete((self.listed, lists), x, picked, g, rhs, [&mut self.x, &mut self.y]);
    }

    /// Adds to the right-hand side of X the terms of the missing entries of the completed matrix. The rows of X correspond
    /// to the rows of the block or to its columns (`side`). `g` is the Gram matrix YᵀY. Work ∝ missing × k; if the observed
    /// entries are listed, ∝ observed × k + rows of X × k².
    pub fn complete(
        &mut self,
        side: Side,
        x: &ArrayView2<'_, T>,
        y: &ArrayView2<'_, T>,
        g: &ArrayView2<'_, T>,
        rhs: &mut Array2<T>,
    ) {
        let k = x.ncols();
        copy(x, &mut self.x);
        copy(y, &mut self.y);
        let (x, y, listed) = (&self.x, &self.y, self.listed);
        let lists = if side == Side::Rows { &self.rows } else { &self.columns };
        over_rows(&mut rhs.view_mut(), &|first, mut rhs| {
            for (a, mut rhs) in rhs.rows_mut().into_iter().enumerate() {
                let number = first + a;
                let x = &x[number * k..(number + 1) * k];
                if listed == Listed::Observed {
                    rhs.iter_mut().zip(g.rows()).for_each(|(rhs, g)| {
                        *rhs += g.iter().zip(x).fold(T::zero(), |sum, (&g, &x)| sum + g * x);
                    });
                }
                for &b in lists.row(number).0 {
                    let y = &y[b as usize * k..(b as usize + 1) * k];
                    let fit = x.iter().zip(y).fold(T::zero(), |sum, (&x, &y)| sum + x * y);
                    let fit = if listed == Listed::Observed { -fit } else { fit };
                    rhs.iter_mut().zip(y).for_each(|(rhs, &y)| *rhs += fit * y);
                }
            }
        });
    }

    /// Σ (m_ij − u_i·v_j)² over the observed entries of a block that has zeros at the others.
    pub fn residual2(&self, block: &Block<T>, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
        let mut listed = 0.0;
        for (a, u) in u.rows().into_iter().enumerate() {
            let mut fit = |b: u32, m: f64| {
                let fit: f64 = u.iter().zip(v.row(b as usize)).map(|(u, v)| u.as_f64() * v.as_f64()).sum();
                listed += (m - fit).powi(2);
            };
            match self.listed {
                Listed::Missing => self.rows.row(a).0.iter().for_each(|&b| fit(b, 0.0)),
                Listed::Observed => each(block, a, |b, m| {
                    if m != T::zero() {
                        fit(b, m.as_f64());
                    }
                }),
            }
        }
        match self.listed {
            Listed::Observed => listed,
            Listed::Missing => not_negative(block.residual2(u, v) - listed),
        }
    }

    /// The number of observed entries of a block of this shape.
    pub fn observed(&self, (rows, n): (usize, usize)) -> usize {
        match self.listed {
            Listed::Observed => self.rows.len(),
            Listed::Missing => rows * n - self.rows.len(),
        }
    }

    /// Zeros the rows of a factor without an observed entry; a row (or column) of the data has n entries.
    pub fn clear_unobserved(&self, side: Side, x: &mut Array2<T>, n: usize) {
        let lists = if side == Side::Rows { &self.rows } else { &self.columns };
        lists.clear_unobserved(self.listed, n, x);
    }

    /// X ← the minimiser over X ≥ 0 of ½ Σ (m_ij − x_i·y_j)² over the observed entries plus the penalty on X, given the
    /// right-hand side M Y (for columns MᵀY). Each row has its own Gram matrix.
    pub fn solve(
        &self,
        side: Side,
        x: &mut Array2<T>,
        rhs: &ArrayView2<'_, T>,
        y: &ArrayView2<'_, T>,
        solver: &mut Pivoting,
        penalty: Penalty,
    ) {
        let k = y.ncols();
        let lists = if side == Side::Rows { &self.rows } else { &self.columns };
        let mut all = Array2::zeros((k, k));
        gram(y, &mut all.view_mut());
        let mut g = Array2::<T>::zeros((k, k));
        for a in 0..x.nrows() {
            let sign = if self.listed == Listed::Observed {
                g.fill(T::zero());
                T::one()
            } else {
                g.assign(&all);
                -T::one()
            };
            for &b in lists.row(a).0 {
                let y = y.row(b as usize);
                for (i, &yi) in y.iter().enumerate() {
                    g.row_mut(i).scaled_add(sign * yi, &y);
                }
            }
            let row = s![a..=a, ..];
            solver.solve_penalized(&mut x.slice_mut(row), &rhs.slice(row), &g.view(), penalty);
        }
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream, uniform_factor};
    use fednmf_linalg::{Csr, Order};

    use super::*;

    fn random(seed: u64, rows: usize, k: usize) -> Array2<f64> {
        uniform_factor(&Stream::new(seed, Purpose::Probe, 0), 0..rows, k, 1.0)
    }

    /// A 7 × 5 matrix with NaN at about a third of its entries, and the same with zeros there.
    fn matrices() -> (Array2<f64>, Array2<f64>) {
        let mut m = random(1, 7, 5) + 0.1;
        m.indexed_iter_mut().filter(|((i, j), _)| (3 * i + 2 * j) % 3 == 1).for_each(|(_, x)| *x = f64::NAN);
        let zeros = m.mapv(|x| if x.is_nan() { 0.0 } else { x });
        (m, zeros)
    }

    #[test]
    fn the_right_hand_side_is_that_of_the_completed_matrix() {
        let (m, zeros) = matrices();
        let (u, v) = (random(2, 7, 2), random(3, 5, 2));
        let product = u.dot(&v.t());
        let completed = ndarray::Zip::from(&m).and(&product).map_collect(|&m, &f| if m.is_nan() { f } else { m });
        let residual: f64 = (&m - &product).iter().filter(|x| !x.is_nan()).map(|x| x * x).sum();
        let sparse = Csr::new(sprs::CsMatI::csr_from_dense(zeros.view(), 0.0));
        for (block, only_stored) in [
            (Block::Dense(m.clone().into()), false),
            (Block::Dense(zeros.clone().into()), true),
            (Block::Sparse(sparse), true),
        ] {
            let (block, mut gaps) = MissingEntries::take(block, only_stored, 2);
            let (mut of_u, mut of_v) = (zeros.dot(&v), zeros.t().dot(&u));
            gaps.complete(Side::Rows, &u.view(), &v.view(), &v.t().dot(&v).view(), &mut of_u);
            gaps.complete(Side::Columns, &v.view(), &u.view(), &u.t().dot(&u).view(), &mut of_v);
            assert!((of_u - completed.dot(&v)).iter().all(|e| e.abs() < 1e-12));
            assert!((of_v - completed.t().dot(&u)).iter().all(|e| e.abs() < 1e-12));
            assert!((gaps.residual2(&block, &u.view(), &v.view()) - residual).abs() < 1e-12);
            assert_eq!(gaps.observed((7, 5)), m.iter().filter(|x| !x.is_nan()).count());
        }
    }

    #[test]
    fn rows_are_fitted_to_what_is_observed() {
        let (u, v) = (random(4, 7, 2), random(5, 5, 2));
        let (mask, _) = matrices();
        let mut m = u.dot(&v.t());
        ndarray::Zip::from(&mut m).and(&mask).for_each(|m, &x| *m = if x.is_nan() { x } else { *m });
        m.row_mut(6).fill(f64::NAN);
        let (block, gaps) = MissingEntries::take(Block::Dense(m.into()), false, 2);
        let mut rhs = Order::RowMajor.zeros(7, 2);
        for a in 0..7 {
            block.for_each_nonzero(a, |j, x| rhs.row_mut(a).scaled_add(x, &v.row(j)));
        }
        let mut found = random(6, 7, 2);
        gaps.clear_unobserved(Side::Rows, &mut found, 5);
        gaps.solve(Side::Rows, &mut found, &rhs.view(), &v.view(), &mut Pivoting::new(2), Penalty::NONE);
        assert!((&found - &u).slice(s![..6, ..]).iter().all(|e| e.abs() < 1e-9) && found.row(6).sum() == 0.0);
    }
}
