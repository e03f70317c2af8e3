//! The sparse block: CSR in sprs' container, products by MKL on optimised row blocks or by loops of our own.

use ndarray::{ArrayView2, ArrayViewMut2, s};
use sprs::CsMatI;

use super::mkl::{Kernels, SparseMatrix};
use super::{Real, csr_native};
use crate::error::Result;

/// Rows of one MKL handle: small enough that a transposed product's scatter stays in cache (measured: 4,096 rows are
/// 5 times faster than one big call) and that a block's row pointers fit 32 bits.
const BLOCK_ROWS: usize = 4096;

/// Which kernel multiplies a sparse block (`--sparse-kernel`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseKernel {
    /// MKL's inspector-executor routines on row blocks.
    Mkl,
    /// The loops of this file.
    Native,
}

/// A sparse block, rows × cols, with i32 column indices sorted in each row.
pub struct Csr<T: Real> {
    matrix: CsMatI<T, i32, usize>,
    blocks: Vec<RowBlock<T>>,
    kernel: SparseKernel,
}

/// One MKL handle and the row pointers it reads; the indices and values are the matrix's own.
struct RowBlock<T> {
    handle: SparseMatrix<T>,
    rows: std::ops::Range<usize>,
    _indptr: Vec<i32>,
}

impl<T: Real> Csr<T> {
    /// Takes a CSR matrix; products are native until [`Csr::prepare`].
    pub fn new(matrix: CsMatI<T, i32, usize>) -> Self {
        assert!(matrix.is_csr(), "a block is stored by rows");
        Csr { matrix, blocks: Vec::new(), kernel: SparseKernel::Native }
    }

    pub fn shape(&self) -> (usize, usize) {
        self.matrix.shape()
    }

    pub fn matrix(&self) -> &CsMatI<T, i32, usize> {
        &self.matrix
    }

    /// Chooses the kernel for products with k columns; for MKL makes the handles once and lets it optimise them, which
    /// may leave a copy of the matrix in a form of MKL's own. The native kernel keeps nothing beside the matrix.
    ///
    /// # Errors
    /// When MKL refuses the matrix.
    pub fn prepare(&mut self, kernel: SparseKernel, k: usize) -> Result<()> {
        let (rows, cols) = self.shape();
        self.blocks.clear();
        // MKL takes no matrix without columns.
        self.kernel = if cols == 0 { SparseKernel::Native } else { kernel };
        if self.kernel == SparseKernel::Native {
            return Ok(());
        }
        let indptr = self.matrix.indptr();
        let starts = indptr.raw_storage();
        let mut first = 0;
        while first < rows {
            let last = (first + BLOCK_ROWS).min(rows);
            let (a, b) = (starts[first], starts[last]);
            let local: Vec<i32> = starts[first..=last].iter().map(|&p| (p - a) as i32).collect();
            let mut handle = <T as Kernels>::sparse_create(
                last - first,
                cols,
                &local,
                &self.matrix.indices()[a..b],
                &self.matrix.data()[a..b],
            )?;
            handle.optimize(false, k, 1000);
            handle.optimize(true, k, 1000);
            self.blocks.push(RowBlock { handle, rows: first..last, _indptr: local });
            first = last;
        }
        Ok(())
    }

    /// out = X·B (B cols × k, out rows × k, both in row order).
    pub fn mul(&self, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        let k = b.ncols();
        match self.kernel {
            SparseKernel::Mkl => {
                let x = contiguous(b);
                for block in &self.blocks {
                    let mut part = out.slice_mut(s![block.rows.clone(), ..]);
                    T::sparse_mm(&block.handle, false, x, k, T::zero(), contiguous_mut(&mut part));
                }
            }
            SparseKernel::Native => csr_native::mul(&self.matrix, contiguous(b), k, contiguous_mut(out)),
        }
    }

    /// out = XᵀU (U rows × k, out cols × k, both in row order).
    pub fn tmul(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        let k = u.ncols();
        match self.kernel {
            SparseKernel::Mkl => {
                out.fill(T::zero());
                let y = contiguous_mut(out);
                for block in &self.blocks {
                    let part = u.slice(s![block.rows.clone(), ..]);
                    T::sparse_mm(&block.handle, true, contiguous(&part), k, T::one(), y);
                }
            }
            SparseKernel::Native => self.rows_tmul(0..self.shape().0, u, out),
        }
    }

    /// out = (X_S)ᵀ·B for the rows S of X in the order given (B |S| × k, out cols × k, in row order).
    pub fn rows_tmul(&self, rows: impl Iterator<Item = usize> + Clone, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        out.fill(T::zero());
        self.rows_tmul_add(rows, b, out);
    }

    /// out += (X_S)ᵀ·B, otherwise as [`Csr::rows_tmul`].
    pub fn rows_tmul_add(
        &self,
        rows: impl Iterator<Item = usize> + Clone,
        b: &ArrayView2<T>,
        out: &mut ArrayViewMut2<T>,
    ) {
        csr_native::rows_tmul(&self.matrix, rows, contiguous(b), b.ncols(), contiguous_mut(out));
    }
}

fn contiguous<'a, T>(a: &'a ArrayView2<'_, T>) -> &'a [T] {
    a.as_slice().expect("an operand of a sparse product in row order")
}

fn contiguous_mut<'a, T>(a: &'a mut ArrayViewMut2<'_, T>) -> &'a mut [T] {
    a.as_slice_mut().expect("an operand of a sparse product in row order")
}
