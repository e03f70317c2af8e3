//! A local block of the data in whichever form it has, and the products that the algorithms ask of it.

use std::ops::Range;

use ndarray::{ArrayView2, ArrayViewMut2, s};

use super::dense;
use super::{Bits, Csr, Order, Real, SparseKernels, flops};
use crate::error::Result;
use crate::linalg::dense::Dense;
use crate::linalg::thin::Rows;

/// A local block X (rows × cols) of the data matrix.
pub enum Block<T: Real> {
    Dense(Dense<T>),
    Sparse(Csr<T>),
    Bits(Bits),
}

impl<T: Real> Block<T> {
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

    /// A copy of X, not prepared for products.
    pub fn copy(&self) -> Self {
        match self {
            Block::Dense(x) => Block::Dense(x.clone()),
            Block::Sparse(x) => Block::Sparse(Csr::new(x.matrix().clone())),
            Block::Bits(x) => Block::Bits(x.clone()),
        }
    }

    /// A copy of Xᵀ, for methods that pick columns as often as rows.
    pub fn transposed(&self) -> Self {
        match self {
            Block::Dense(x) => Block::Dense(x.t().as_standard_layout().into_owned()),
            Block::Sparse(x) => Block::Sparse(Csr::new(x.matrix().transpose_view().to_csr())),
            Block::Bits(x) => {
                let (rows, cols) = x.shape();
                let mut out = Bits::zeros(cols, rows);
                (0..rows).for_each(|i| x.ones(i).for_each(|j| out.set(j, i)));
                Block::Bits(out)
            }
        }
    }

    /// The memory order that factors and right-hand sides of this block's products must have.
    pub fn order(&self) -> Order {
        match self {
            Block::Dense(_) => Order::Components,
            Block::Sparse(_) | Block::Bits(_) => Order::Rows,
        }
    }

    /// Settles how a sparse block multiplies with k columns; nothing to do for the others.
    ///
    /// # Errors
    /// When MKL refuses the block.
    pub fn prepare(&mut self, kernels: impl Into<SparseKernels>, k: usize) -> Result<()> {
        match self {
            Block::Sparse(x) => x.prepare(kernels, k),
            _ => Ok(()),
        }
    }

    /// out = X·B, for B cols × k and out rows × k in this block's order.
    pub fn mul(&self, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::mul(&x.view(), b, out),
            Block::Sparse(x) => x.mul(b, out),
            Block::Bits(x) => {
                for (i, mut out) in out.rows_mut().into_iter().enumerate() {
                    out.fill(T::zero());
                    x.ones(i).for_each(|j| out += &b.row(j));
                }
            }
        }
    }

    /// out = XᵀU, for U rows × k and out cols × k in this block's order.
    pub fn tmul(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::tmul(&x.view(), u, out),
            Block::Sparse(x) => x.tmul(u, out),
            Block::Bits(x) => {
                out.fill(T::zero());
                for (i, u) in u.rows().into_iter().enumerate() {
                    x.ones(i).for_each(|j| out.row_mut(j).scaled_add(T::one(), &u));
                }
            }
        }
    }

    /// out += (X_R)ᵀ·B for consecutive rows R of X: B |R| × k, out cols × k, in this block's order.
    pub fn range_tmul_add(&self, rows: Range<usize>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::rows_tmul(&x.slice(s![rows, ..]), Rows::All, b, true, out),
            Block::Sparse(x) => x.rows_tmul_add(rows, b, out),
            Block::Bits(x) => {
                for (i, b) in rows.zip(b.rows()) {
                    x.ones(i).for_each(|j| out.row_mut(j).scaled_add(T::one(), &b));
                }
            }
        }
    }

    /// out = X_S·B for the rows S of X: B cols × k, out |S| × k, in this block's order.
    pub fn rows_mul(&self, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::chosen_mul(&x.view(), rows, b, out),
            Block::Sparse(x) => {
                for (&i, mut out) in rows.iter().zip(out.rows_mut()) {
                    out.fill(T::zero());
                    if let Some(row) = x.matrix().outer_view(i) {
                        row.iter().for_each(|(j, &v)| out.scaled_add(v, &b.row(j)));
                    }
                }
                flops::count(2 * self.stored() * rows.len() / self.shape().0.max(1) * b.ncols());
            }
            Block::Bits(x) => {
                for (&i, mut out) in rows.iter().zip(out.rows_mut()) {
                    out.fill(T::zero());
                    x.ones(i).for_each(|j| out += &b.row(j));
                }
            }
        }
    }

    /// out = (X_S)ᵀ·B for the rows S of X: work and memory traffic ∝ |S|, X_S is never stored whole.
    /// B is |S| × k, out cols × k, in this block's order.
    pub fn rows_tmul(&self, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::rows_tmul(&x.view(), Rows::Chosen(rows), b, false, out),
            Block::Sparse(x) => x.rows_tmul(rows, b, out),
            Block::Bits(x) => {
                out.fill(T::zero());
                for (&i, b) in rows.iter().zip(b.rows()) {
                    x.ones(i).for_each(|j| out.row_mut(j).scaled_add(T::one(), &b));
                }
            }
        }
    }
}
