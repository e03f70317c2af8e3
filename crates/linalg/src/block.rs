//! A local block of the data, dense, sparse or Boolean, and its products with factors.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};
use sprs::CsMatI;

use fednmf_base::error::{Error, Result};

use super::bits::Bits;
use super::csr::Csr;
use super::dense::{self, Dense};
use super::flops;
use super::order::Order;
use super::real::Real;
use super::tall_skinny::RowSelection;

/// A local block X (rows × cols) of the data matrix.
pub enum Block<T: Real> {
    /// All entries, row-major.
    Dense(Dense<T>),
    /// Compressed sparse rows.
    Sparse(Csr<T>),
    /// One bit per entry.
    Bits(Bits),
}

impl<T: Real> Block<T> {
    /// Number of rows and of columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Block::Dense(x) => x.dim(),
            Block::Sparse(x) => x.shape(),
            Block::Bits(x) => x.shape(),
        }
    }

    /// Number of stored entries.
    pub fn stored(&self) -> usize {
        match self {
            Block::Dense(x) => x.len(),
            Block::Sparse(x) => x.matrix().nnz(),
            Block::Bits(x) => x.count(),
        }
    }

    /// Number of stored entries in some rows.
    pub fn stored_in(&self, rows: Range<usize>) -> usize {
        match self {
            Block::Dense(x) => rows.len() * x.ncols(),
            Block::Sparse(x) => x.stored_in(rows),
            Block::Bits(x) => rows.map(|i| x.row(i).iter().map(|word| word.count_ones() as usize).sum::<usize>()).sum(),
        }
    }

    /// Number of entries that are NaN.
    pub fn nan_count(&self) -> usize {
        match self {
            Block::Dense(x) => x.iter().filter(|x| x.is_nan()).count(),
            Block::Sparse(x) => x.matrix().data().iter().filter(|x| x.is_nan()).count(),
            Block::Bits(_) => 0,
        }
    }

    /// A copy of X, not prepared for products. The copy of a block that borrows its entries borrows the same ones.
    pub fn copy(&self) -> Self {
        match self {
            Block::Dense(x) => Block::Dense(x.clone()),
            Block::Sparse(x) => Block::Sparse(Csr::from_rows(x.matrix().clone())),
            Block::Bits(x) => Block::Bits(x.clone()),
        }
    }

    /// A copy in another precision, not prepared for products.
    pub fn converted<S: Real>(&self) -> Block<S> {
        let convert = |x: &T| S::from_f64(x.as_f64());
        match self {
            Block::Dense(x) => Block::Dense(x.map(convert).into()),
            Block::Sparse(x) => {
                let (rows, x) = (x.matrix(), x.matrix().data());
                let values: Vec<S> = x.iter().map(convert).collect();
                let starts = rows.indptr().into_raw_storage().to_vec();
                Block::Sparse(Csr::new(CsMatI::new(rows.shape(), starts, rows.indices().to_vec(), values)))
            }
            Block::Bits(x) => Block::Bits(x.clone()),
        }
    }

    /// The same entries as compressed rows, if they are dense: for methods that visit nonzeros only.
    #[must_use]
    pub fn sparsified(self) -> Self {
        let Block::Dense(x) = &self else { return self };
        let stored = |x: &&T| **x != T::zero();
        let count = x.iter().filter(stored).count();
        let (mut starts, mut places, mut values) = (vec![0], Vec::with_capacity(count), Vec::with_capacity(count));
        for row in x.rows() {
            for (j, x) in row.iter().enumerate().filter(|(_, x)| stored(x)) {
                places.push(j as i32);
                values.push(*x);
            }
            starts.push(values.len());
        }
        Block::Sparse(Csr::new(CsMatI::new(x.dim(), starts, places, values)))
    }

    /// A copy of Xᵀ, for methods that select columns as often as rows.
    pub fn transposed(&self) -> Self {
        match self {
            Block::Dense(x) => Block::Dense(x.t().as_standard_layout().into_owned().into()),
            Block::Sparse(x) => Block::Sparse(Csr::new(x.matrix().transpose_view().to_csr())),
            Block::Bits(x) => Block::Bits(x.transposed()),
        }
    }

    /// A copy of the rows (axis 0) or columns (axis 1) with these ascending indices, not prepared for products.
    #[must_use]
    pub fn select(&self, axis: Axis, places: &[usize]) -> Self {
        match self {
            Block::Dense(x) if axis == Axis(0) => Block::Dense(x.select(axis, places).into()),
            Block::Dense(x) => {
                let mut out = Array2::zeros((x.nrows(), places.len()));
                for (mut out, row) in out.rows_mut().into_iter().zip(x.rows()) {
                    out.iter_mut().zip(places).for_each(|(out, &j)| *out = row[j]);
                }
                Block::Dense(out.into())
            }
            Block::Sparse(x) => Block::Sparse(x.select(axis, places)),
            Block::Bits(x) => {
                let by_rows = axis == Axis(0);
                let (rows, cols) = x.shape();
                let mut out =
                    Bits::zeros(if by_rows { places.len() } else { rows }, if by_rows { cols } else { places.len() });
                for (to, &from) in places.iter().enumerate() {
                    match by_rows {
                        true => out.row_mut(to).copy_from_slice(x.row(from)),
                        false => (0..rows).filter(|&i| x.get(i, from)).for_each(|i| out.set(i, to)),
                    }
                }
                Block::Bits(out)
            }
        }
    }

    /// Blocks of one kind stacked vertically.
    ///
    /// # Errors
    /// If they have different kinds or numbers of columns.
    pub fn stacked(parts: Vec<Self>) -> Result<Self> {
        let unlike = || Error::failed("parts of a block do not fit together; this is a bug, please report it");
        let dense: Option<Vec<_>> =
            parts.iter().map(|part| if let Block::Dense(x) = part { Some(x.view()) } else { None }).collect();
        if let Some(dense) = dense {
            return ndarray::concatenate(Axis(0), &dense).map(|x| Block::Dense(x.into())).map_err(|_| unlike());
        }
        let sparse: Option<Vec<_>> =
            parts.iter().map(|part| if let Block::Sparse(x) = part { Some(x) } else { None }).collect();
        Csr::stacked(&sparse.ok_or_else(unlike)?).map(Block::Sparse).ok_or_else(unlike)
    }

    /// The memory order of factors and right-hand sides in products with this block.
    pub fn order(&self) -> Order {
        match self {
            Block::Dense(_) => Order::ColumnMajor,
            Block::Sparse(_) | Block::Bits(_) => Order::RowMajor,
        }
    }

    /// Prepares a sparse block for products with k columns by the kernels of the current context
    /// ([`Context`](crate::Context)). Other blocks need no preparation.
    ///
    /// # Errors
    /// If MKL refuses the block.
    pub fn prepare(&mut self, k: usize) -> Result<()> {
        match self {
            Block::Sparse(x) => x.prepare(k),
            _ => Ok(()),
        }
    }

    /// out = X·B for B cols × k and out rows × k, in the order of the block.
    pub fn mul(&self, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::mul(&x.view(), b, out),
            Block::Sparse(x) => x.mul(b, out),
            Block::Bits(x) => x.rows_mul(0..out.nrows(), b, out),
        }
    }

    /// out = XᵀU for U rows × k and out cols × k, in the order of the block.
    pub fn tmul(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::tmul(&x.view(), u, out),
            Block::Sparse(x) => x.tmul(u, out),
            Block::Bits(x) => {
                out.fill(T::zero());
                x.rows_tmul_add(0..u.nrows(), u, out);
            }
        }
    }

    /// out += XᵀU; otherwise as [`Block::tmul`].
    pub fn tmul_add(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::rows_tmul(&x.view(), RowSelection::All, u, true, out),
            Block::Sparse(x) => x.tmul_add(u, out),
            Block::Bits(x) => x.rows_tmul_add(0..u.nrows(), u, out),
        }
    }

    /// out = X_R·B for consecutive rows R of X, B cols × k and out |R| × k, in the order of the block. Unlike [`Block::mul`],
    /// it needs no preparation.
    pub fn part_mul(&self, rows: Range<usize>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::mul(&x.slice(s![rows, ..]), b, out),
            Block::Sparse(x) => x.part_mul(rows, b, out),
            Block::Bits(x) => x.rows_mul(rows, b, out),
        }
    }

    /// out += (X_R)ᵀU for consecutive rows R of X, U |R| × k and out cols × k; otherwise as [`Block::part_mul`].
    pub fn part_tmul_add(&self, rows: Range<usize>, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::rows_tmul(&x.slice(s![rows, ..]), RowSelection::All, u, true, out),
            Block::Sparse(x) => x.part_tmul_add(rows, u, out),
            Block::Bits(x) => x.rows_tmul_add(rows, u, out),
        }
    }

    /// out = X_S·B for selected rows S of X, B cols × k and out |S| × k, in the order of the block.
    pub fn rows_mul(&self, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::rows_mul(&x.view(), rows, b, out),
            Block::Sparse(x) => {
                for (&i, mut out) in rows.iter().zip(out.rows_mut()) {
                    out.fill(T::zero());
                    if let Some(row) = x.matrix().outer_view(i) {
                        row.iter().for_each(|(j, &v)| out.scaled_add(v, &b.row(j)));
                    }
                }
                flops::count(2 * self.stored() * rows.len() / self.shape().0.max(1) * b.ncols());
            }
            Block::Bits(x) => x.rows_mul(rows.iter().copied(), b, out),
        }
    }

    /// out = (X_S)ᵀB for selected rows S of X, B |S| × k and out cols × k, in the order of the block. Work and memory
    /// traffic are proportional to |S|; X_S is not copied.
    pub fn rows_tmul(&self, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::rows_tmul(&x.view(), RowSelection::Listed(rows), b, false, out),
            Block::Sparse(x) => x.rows_tmul(rows, b, out),
            Block::Bits(x) => {
                out.fill(T::zero());
                x.rows_tmul_add(rows.iter().copied(), b, out);
            }
        }
    }
}
