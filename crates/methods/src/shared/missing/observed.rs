//! The error of given factors on the observed entries of a matrix, and the best U for a given V.

use ndarray::{Array2, ArrayView2, s};

use fednmf_linalg::nls::{Penalty, Pivoting};
use fednmf_linalg::{Block, Real, gram};

use super::divergence::{Rows, divergence, project};
use super::lists::{Holdout, Listed, Lists, each, held_out, kept};
use crate::metrics::{heldout_divergence_of, not_negative};

/// Rows of a matrix with missing entries.
pub struct Observed<T: Real> {
    /// The rows, with zeros at missing entries.
    block: Block<T>,
    /// The missing entries, or with `only_stored` the observed ones.
    lists: Lists<T>,
    only_stored: bool,
    /// The data at marked or held-out positions: row, column, entry.
    held: Vec<(u32, u32, T)>,
}

/// Error of factors on the observed entries of some rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fit {
    /// Σ (m_ij − u_i·v_j)²
    pub residual2: f64,
    /// Σ m_ij²
    pub norm2: f64,
    /// Number of observed entries.
    pub count: f64,
    /// Σ m_ij
    pub sum: f64,
    /// Σ (m_ij − u_i·v_j)² over the known values of marked or held-out entries.
    pub held2: f64,
    /// Number of these entries.
    pub held: f64,
}

/// The positions in a block that a run held out. `row` and `column` map a row and a column of the block to their positions
/// in the matrix of the run; `place` maps a position back to a column of the block.
pub fn held_out_positions<T: Real>(
    block: &Block<T>,
    holdout: Holdout,
    row: impl Fn(usize) -> usize,
    column: impl Fn(usize) -> usize,
    place: impl Fn(usize) -> usize,
) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    if !holdout.any() {
        return places;
    }
    let (rows, n) = block.shape();
    for a in 0..rows {
        if holdout.is_drawn() {
            holdout.columns(row(a), n, |j| places.push((a, place(j))));
        } else {
            each(block, a, |b, _| {
                if holdout.takes(row(a), column(b as usize)) {
                    places.push((a, b as usize));
                }
            });
        }
    }
    places
}

impl<T: Real> Observed<T> {
    /// Separates the missing entries of a block (rows × n): NaN, zeros if only stored entries count, and `marks`, pairs of
    /// a row of the block and a column.
    pub fn new(block: Block<T>, only_stored: bool, marks: impl Iterator<Item = (usize, usize)>) -> Self {
        let rows = block.shape().0;
        let mut gone: Vec<(u32, u32)> = marks.map(|(a, b)| (a as u32, b as u32)).collect();
        for a in 0..rows {
            each(&block, a, |b, x| {
                if x.is_nan() || (only_stored && x == T::zero()) {
                    gone.push((a as u32, b));
                }
            });
        }
        let absent = Lists::<T>::of_places(rows, gone);
        let held = held_out(&block, &absent, only_stored);
        let missing = |a: usize, b: u32| absent.row(a).0.binary_search(&b).is_ok();
        let block = kept(block, |a, b, _| !missing(a, b));
        let lists = if only_stored { Lists::of_block(&block, &absent) } else { absent };
        Observed { block, lists, only_stored, held }
    }

    /// The error of U (rows × k) and V (n × k).
    pub fn fit(&self, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> Fit {
        let rows = self.block.shape().0;
        let value = |a: usize, b: u32| -> f64 {
            u.row(a).iter().zip(v.row(b as usize)).map(|(u, v)| u.as_f64() * v.as_f64()).sum()
        };
        let mut fit = self.statistics();
        fit.held2 = self.held.iter().map(|&(a, b, x)| (x.as_f64() - value(a as usize, b)).powi(2)).sum();
        for a in 0..rows {
            let (columns, values) = self.lists.row(a);
            for (i, &b) in columns.iter().enumerate() {
                let x = values.get(i).map_or(0.0, |x| x.as_f64());
                fit.residual2 += (x - value(a, b)).powi(2);
            }
        }
        if !self.only_stored {
            // The block has zeros at missing entries, so the fit there is not an error.
            fit.residual2 = not_negative(self.block.residual2(u, v) - fit.residual2);
        }
        fit
    }

    /// The statistics of a [`Fit`], without its errors.
    pub(super) fn statistics(&self) -> Fit {
        let (rows, n) = self.block.shape();
        let mut fit = Fit { norm2: self.block.norm2(), held: self.held.len() as f64, ..Fit::default() };
        (0..rows).for_each(|a| self.block.for_each_nonzero(a, |_, x| fit.sum += x.as_f64()));
        let listed = self.lists.len() as f64;
        fit.count = if self.only_stored { listed } else { rows as f64 * n as f64 - listed };
        fit
    }
}

impl<T: Real> Observed<T> {
    /// The Kullback-Leibler divergence of the observed entries from U Vᵀ.
    pub fn divergence(&self, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
        divergence(self.rows(), u, v)
    }

    /// The sum of [`heldout_divergence_of`] over the known values of marked or held-out entries; `mean` is that of the observed
    /// entries of the whole matrix.
    pub fn heldout_divergence(&self, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>, mean: f64) -> f64 {
        let fit = |a: u32, b: u32| -> f64 {
            u.row(a as usize).iter().zip(v.row(b as usize)).map(|(u, v)| u.as_f64() * v.as_f64()).sum()
        };
        self.held.iter().map(|&(a, b, x)| heldout_divergence_of(x.as_f64(), fit(a, b), mean)).sum()
    }

    /// The rows u ≥ 0 (rows × k) that minimise the divergence on the observed entries plus the penalty on U.
    pub fn project_by_divergence(&self, v: &ArrayView2<'_, T>, penalty: Penalty) -> Array2<T> {
        project(self.rows(), v, penalty)
    }

    /// The rows, for updates and errors.
    pub(super) fn rows(&self) -> Rows<'_, T> {
        Rows { block: &self.block, lists: &self.lists, listed: self.listed() }
    }

    fn listed(&self) -> Listed {
        if self.only_stored { Listed::Observed } else { Listed::Missing }
    }

    /// The same entries by columns, without the held-out ones.
    pub(super) fn transposed(&self) -> Self {
        let n = self.block.shape().1;
        let (block, lists) = (self.block.transposed(), self.lists.transposed(n));
        Observed { block, lists, only_stored: self.only_stored, held: Vec::new() }
    }

    /// Zeros the rows of a factor without an observed entry. Returns the number of such rows.
    pub fn clear_unobserved(&self, u: &mut Array2<T>) -> f64 {
        self.lists.clear_unobserved(self.listed(), self.block.shape().1, u)
    }
}

impl Observed<f64> {
    /// The rows u ≥ 0 (rows × k) that minimise ½ Σ (m_ij − u_i·v_j)² over the observed entries plus the penalty on U.
    /// Components of a row that its observed entries do not determine are 0.
    pub fn project(&self, v: &ArrayView2<'_, f64>, penalty: Penalty) -> Array2<f64> {
        let (rows, k) = (self.block.shape().0, v.ncols());
        let mut all = Array2::zeros((k, k));
        gram(v, &mut all.view_mut());
        let mut u = Array2::zeros((rows, k));
        let (mut g, mut rhs) = (Array2::zeros((k, k)), Array2::zeros((1, k)));
        let mut solver = Pivoting::new(k);
        for a in 0..rows {
            let (columns, _) = self.lists.row(a);
            // Sums over the observed entries, or over all minus the missing ones.
            let sign = if self.only_stored { 1.0 } else { -1.0 };
            if self.only_stored {
                g.fill(0.0);
            } else {
                g.assign(&all);
            }
            for &b in columns {
                let y = v.row(b as usize);
                for (i, &yi) in y.iter().enumerate() {
                    g.row_mut(i).scaled_add(sign * yi, &y);
                }
            }
            rhs.fill(0.0);
            self.block.for_each_nonzero(a, |j, x| rhs.row_mut(0).scaled_add(x, &v.row(j)));
            solver.solve_penalized(&mut u.slice_mut(s![a..=a, ..]), &rhs.view(), &g.view(), penalty);
        }
        u
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use fednmf_linalg::Csr;

    use super::*;

    #[test]
    fn missing_entries_neither_count_nor_pull() {
        let (u, v) = (array![[1.0, 0.0], [0.5, 2.0]], array![[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]);
        let m = u.dot(&v.t());
        let mut holes = m.clone();
        holes[[0, 2]] = f64::NAN;
        holes[[1, 0]] = f64::NAN;
        let marked: Vec<(usize, usize)> = vec![(0, 2), (1, 0)];
        let mut spoiled = m.clone();
        spoiled[[0, 2]] = 50.0;
        spoiled[[1, 0]] = 70.0;
        let by_nan = Observed::new(Block::Dense(holes.into()), false, std::iter::empty());
        let by_marks = Observed::new(Block::Dense(spoiled.into()), false, marked.into_iter());
        let stored = sprs::CsMatI::csr_from_dense(m.view(), 0.0);
        let by_zeros = Observed::new(Block::Sparse(Csr::new(stored)), true, std::iter::empty());
        for (observed, count) in
            [(by_nan, 6.0), (by_marks, 6.0), (by_zeros, m.iter().filter(|x| **x > 0.0).count() as f64)]
        {
            let exact = observed.fit(&u.view(), &v.view());
            assert!(exact.residual2 < 1e-12 && exact.count == count, "{exact:?}");
            let off = observed.fit(&(&u * 1.5).view(), &v.view());
            assert!((off.residual2 - 0.25 * off.norm2).abs() < 1e-12, "{off:?}");
            assert!((observed.project(&v.view(), Penalty::NONE) - &u).iter().all(|e| e.abs() < 1e-9));
        }
    }
}
