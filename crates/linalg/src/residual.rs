//! Norms and residuals of a block, always computed in f64, since a small residual is the difference of large numbers.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::blas::gemm;
use super::block::Block;
use super::contiguous::Contiguous;
use super::csr_kernels::{self, each_ahead, nonzeros};
use super::order::Order;
use super::real::Real;
use super::simd::dispatch_fn;

/// Rows and columns of the tiles of the direct residual.
const TILE: (usize, usize) = (128, 1024);

/// Rows that are multiplied or widened together.
const PART: usize = 4096;

/// Below this fraction of ‖X‖² the Gram form has lost half of its digits to cancellation.
const CANCELLATION: f64 = 1e-7;

/// ‖X − UVᵀ‖² from ‖X‖², ⟨X, UVᵀ⟩ and ‖UVᵀ‖², all in f64; `None` if cancellation spoils it.
pub fn residual2_of_products(norm2: f64, cross: f64, product: f64) -> Option<f64> {
    let residual = norm2 - 2.0 * cross + product;
    (residual > CANCELLATION * norm2.max(product)).then_some(residual)
}

impl<T: Real> Block<T> {
    /// ‖X‖_F².
    pub fn norm2(&self) -> f64 {
        match self {
            Block::Dense(x) => {
                x.rows().into_iter().map(|row| row.iter().map(|x| x.as_f64() * x.as_f64()).sum::<f64>()).sum()
            }
            Block::Sparse(x) => squares(x.matrix().data()),
            Block::Bits(x) => x.count() as f64,
        }
    }

    /// ‖X_:j‖² of every column. The bits depend only on the column.
    pub fn column_norms2(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.shape().1];
        for i in 0..self.shape().0 {
            self.for_each_nonzero(i, |j, x| sums[j] += x.as_f64() * x.as_f64());
        }
        sums
    }

    /// ‖X − UVᵀ‖_F² for U rows × k and V cols × k in any memory order.
    ///
    /// For sparse and Boolean blocks this is ‖X‖² − 2⟨X, UVᵀ⟩ + ⟨UᵀU, VᵀV⟩, with work proportional to the nonzeros. If the
    /// result is so small that cancellation spoils it, the direct residual is computed.
    pub fn residual2(&self, u: &ArrayView2<T>, v: &ArrayView2<T>) -> f64 {
        if matches!(self, Block::Dense(_)) {
            return self.direct_residual2(u, v);
        }
        let norm2 = self.norm2();
        let (gu, gv) = (wide_gram(u), wide_gram(v));
        let product = gu.iter().zip(&gv).map(|(a, b)| a * b).sum::<f64>();
        residual2_of_products(norm2, self.cross(u, v), product).unwrap_or_else(|| self.direct_residual2(u, v))
    }

    /// ‖X − UVᵀ‖_F² entry by entry, zeros included: 2·rows·cols·k flops for every kind of block.
    pub fn direct_residual2(&self, u: &ArrayView2<T>, v: &ArrayView2<T>) -> f64 {
        let (rows, cols) = self.shape();
        assert!(u.nrows() == rows && v.nrows() == cols && u.ncols() == v.ncols(), "shapes of a residual");
        let v = widened(v);
        let mut memory = vec![0.0; TILE.0.min(rows) * TILE.1.min(cols)];
        let mut total = 0.0;
        for i in (0..rows).step_by(TILE.0) {
            let (i, to) = (i, (i + TILE.0).min(rows));
            let u = widened(&u.slice(s![i..to, ..]));
            for j in (0..cols).step_by(TILE.1) {
                let width = TILE.1.min(cols - j);
                let tile = &mut memory[..(to - i) * width];
                for (row, tile) in (i..to).zip(tile.chunks_exact_mut(width)) {
                    self.widen_row(row, j, tile);
                }
                let view =
                    &mut ArrayViewMut2::from_shape((to - i, width), &mut *tile).expect("the tile has this shape");
                gemm(-1.0, &u.view(), &v.slice(s![j..j + width, ..]).t(), 1.0, view);
                total += sum_of(tile, |x| x * x);
            }
        }
        total
    }

    /// ⟨X, UVᵀ⟩ = Σ x_ij u_i·v_j over the stored entries, for U rows × k and V cols × k in any memory order.
    pub fn cross(&self, u: &ArrayView2<T>, v: &ArrayView2<T>) -> f64 {
        let (rows, cols) = self.shape();
        assert!(u.nrows() == rows && v.nrows() == cols && u.ncols() == v.ncols(), "shapes of a product");
        let k = v.ncols();
        let v = widened(v);
        let v = v.row_major();
        let mut total = 0.0;
        if let Block::Sparse(x) = self {
            let mut products = vec![0.0; PART.min(rows) * k];
            for first in (0..rows).step_by(PART) {
                let u = u.slice(s![first..(first + PART).min(rows), ..]);
                let products = &mut products[..u.len()];
                csr_kernels::mul(x.matrix(), first, v, k, products);
                total += u.iter().zip(products).map(|(u, product)| u.as_f64() * *product).sum::<f64>();
            }
            return total;
        }
        let mut sum = vec![0.0; k];
        let mut entry = vec![];
        for (i, u) in u.rows().into_iter().enumerate() {
            entry.clear();
            match self {
                Block::Bits(x) => entry.extend(x.ones(i).map(|j| (j, 1.0))),
                _ => self.for_each_nonzero(i, |j, x| entry.push((j, x.as_f64()))),
            }
            sum.fill(0.0);
            dispatch_fn(
                #[inline(always)]
                || {
                    for &(j, x) in &entry {
                        for (sum, v) in sum.iter_mut().zip(&v[j * k..(j + 1) * k]) {
                            *sum += x * v;
                        }
                    }
                },
            );
            total += sum.iter().zip(u).map(|(sum, u)| sum * u.as_f64()).sum::<f64>();
        }
        total
    }

    /// Calls `f` with column and value of each nonzero entry of a row. Inlined, so that a kernel's `f` has its instruction
    /// set.
    #[inline(always)]
    pub fn for_each_nonzero(&self, row: usize, mut f: impl FnMut(usize, T)) {
        match self {
            Block::Dense(x) => {
                for (j, &x) in x.row(row).iter().enumerate().filter(|(_, x)| **x != T::zero()) {
                    f(j, x);
                }
            }
            Block::Sparse(x) => {
                for (j, &x) in nonzeros(x.matrix(), row).filter(|(_, x)| **x != T::zero()) {
                    f(j, x);
                }
            }
            Block::Bits(x) => {
                for j in x.ones(row) {
                    f(j, T::one());
                }
            }
        }
    }

    /// Calls `f` with columns and values of each `N` nonzeros of a row, and with columns of later ones, to prefetch what belongs to
    /// them. If nonzeros are missing in the last ones, a column of theirs comes again with the value 0. Inlined as
    /// [`Block::for_each_nonzero`].
    #[inline(always)]
    pub(crate) fn for_each_ahead<const N: usize>(&self, row: usize, mut f: impl FnMut([usize; N], [T; N], [usize; N])) {
        if let Block::Sparse(x) = self {
            return each_ahead(x.matrix(), row, f);
        }
        let (mut columns, mut values, mut count) = ([0; N], [T::zero(); N], 0);
        self.for_each_nonzero(
            row,
            #[inline(always)]
            |j, x| {
                (columns[count], values[count]) = (j, x);
                count += 1;
                if count == N {
                    f(columns, values, columns);
                    count = 0;
                }
            },
        );
        if count > 0 {
            let first = columns[0];
            columns[count..].fill(first);
            values[count..].fill(T::zero());
            f(columns, values, columns);
        }
    }

    /// Copies the entries (row, first ..) to `out` as f64, as many as fit.
    pub fn widen_row(&self, row: usize, first: usize, out: &mut [f64]) {
        match self {
            Block::Dense(x) => {
                out.iter_mut().zip(x.slice(s![row, first..])).for_each(|(out, x)| *out = x.as_f64());
            }
            Block::Sparse(x) => {
                out.fill(0.0);
                if let Some(row) = x.matrix().outer_view(row) {
                    let start = row.indices().partition_point(|&j| (j as usize) < first);
                    for (&j, x) in row.indices()[start..].iter().zip(&row.data()[start..]) {
                        match out.get_mut(j as usize - first) {
                            Some(out) => *out = x.as_f64(),
                            None => break,
                        }
                    }
                }
            }
            Block::Bits(x) => {
                for (j, out) in out.iter_mut().enumerate() {
                    *out = f64::from(u8::from(x.get(row, first + j)));
                }
            }
        }
    }
}

/// A factor in f64, row-major.
fn widened<T: Real>(f: &ArrayView2<T>) -> Array2<f64> {
    let mut out = Order::RowMajor.zeros(f.nrows(), f.ncols());
    out.zip_mut_with(f, |out, f| *out = f.as_f64());
    out
}

/// Σ x² in f64: a sum of 2²⁴ equal terms in f32 would grow no further.
pub fn squares<T: Real>(values: &[T]) -> f64 {
    values.chunks(4096).map(|part| sum_of(part, |x| x * x)).sum()
}

/// FᵀF in f64.
fn wide_gram<T: Real>(f: &ArrayView2<T>) -> Array2<f64> {
    let k = f.ncols();
    let mut out = Array2::zeros((k, k));
    for first in (0..f.nrows()).step_by(PART) {
        let part = widened(&f.slice(s![first..(first + PART).min(f.nrows()), ..]));
        gemm(1.0, &part.t(), &part.view(), 1.0, &mut out.view_mut());
    }
    out
}

/// Σ f(x) in f64, in eight independent partial sums.
fn sum_of<T: Real>(values: &[T], f: impl Fn(f64) -> f64) -> f64 {
    let (eights, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for eight in eights {
        for (sum, x) in sums.iter_mut().zip(eight) {
            *sum += f(x.as_f64());
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|x| f(x.as_f64())).sum::<f64>()
}
