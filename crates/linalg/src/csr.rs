//! The sparse block: a CSR matrix, with products by MKL on optimised row blocks or by our own loops.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayView2, ArrayViewMut2, Axis, s};
use sprs::CsMatI;

use fednmf_base::error::Result;

use super::context::options;
use super::contiguous::{Contiguous, ContiguousMut};
use super::csr_matrix::{CsrMatrix, owned_rows};
use super::kernel::{ProductKernel, ProductKernels};
#[cfg(feature = "mkl")]
use super::mkl::SparseRows;
use super::real::Real;
use super::threads::{even_part, over_parts, over_rows, threads};
use super::{csr_kernels, flops};

/// Rows of one MKL handle: few enough that the scatter of a transposed product stays in cache (measured: 5 times faster
/// than one large call). Fewer where their row pointers would not fit 32 bits.
#[cfg(feature = "mkl")]
const BLOCK_ROWS: usize = 4096;

/// The rows of a block; only MKL needs more than the matrix.
#[cfg(not(feature = "mkl"))]
type SparseRows<T> = CsrMatrix<T>;

/// A sparse block, rows × cols.
///
/// The handles of MKL point to the arrays of the matrix. These can neither change nor end before the handles:
///
/// ```compile_fail,E0596
/// # use fednmf_linalg::{Block, Csr};
/// let mut x = Csr::new(sprs::CsMatI::<f64, i32, usize>::eye(3));
/// x.prepare(2)?;
/// x.matrix().data_mut()[0] = 2.0; // cannot borrow as mutable
/// # Ok::<(), fednmf_base::error::Error>(())
/// ```
///
/// ```compile_fail,E0505
/// # use fednmf_linalg::{Block, Csr};
/// let mut x = Csr::new(sprs::CsMatI::<f64, i32, usize>::eye(3));
/// let values = x.matrix().data();
/// x.prepare(2)?;
/// drop(x); // cannot move out of `x` because it is borrowed
/// println!("{values:?}");
/// # Ok::<(), fednmf_base::error::Error>(())
/// ```
pub struct Csr<T: Real> {
    rows: SparseRows<T>,
    /// Kernels of the products with all rows.
    kernels: ProductKernels,
    /// The partial transposed products of the threads, if there are several.
    partials: Mutex<Vec<Vec<T>>>,
}

impl<T: Real> Csr<T> {
    /// A block of this CSR matrix; products are native until [`Csr::prepare`].
    pub fn new(matrix: CsMatI<T, i32, usize>) -> Self {
        Csr::from_rows(owned_rows(matrix))
    }

    /// As [`Csr::new`]; borrowed entries are not copied.
    pub fn from_rows(matrix: CsrMatrix<T>) -> Self {
        assert!(matrix.is_csr(), "a block is stored by rows");
        Csr { rows: SparseRows::from(matrix), kernels: ProductKernels::NATIVE, partials: Mutex::default() }
    }

    /// Number of rows and of columns.
    pub fn shape(&self) -> (usize, usize) {
        self.matrix().shape()
    }

    /// The matrix, which is only read while MKL has handles of it.
    pub fn matrix(&self) -> &CsrMatrix<T> {
        &self.rows
    }

    /// The matrix without its kernels.
    pub fn into_matrix(self) -> CsrMatrix<T> {
        self.rows.into()
    }

    /// Replaces the matrix and returns the previous one. Work arrays are kept, and products use the native kernel until
    /// [`Csr::prepare`].
    pub fn replace(&mut self, matrix: CsrMatrix<T>) -> CsrMatrix<T> {
        self.kernels = ProductKernels::NATIVE;
        std::mem::replace(&mut self.rows, Csr::from_rows(matrix).rows).into()
    }

    /// Which rows and which columns have stored entries.
    pub fn occupied(&self) -> [Vec<bool>; 2] {
        let rows = self.matrix().outer_iterator().map(|row| row.nnz() > 0).collect();
        let mut cols = vec![false; self.matrix().cols()];
        self.matrix().indices().iter().for_each(|&j| cols[j as usize] = true);
        [rows, cols]
    }

    /// The rows × `cols` matrix whose column `places[j]` is column j of this one; its other columns are empty.
    #[must_use]
    pub fn with_columns_at(&self, places: &[usize], cols: usize) -> Self {
        let x = self.matrix();
        let mut starts = vec![0usize];
        let (mut index, mut values) = (Vec::with_capacity(x.nnz()), Vec::with_capacity(x.nnz()));
        for row in x.outer_iterator() {
            let mut entries: Vec<(i32, T)> = row.iter().map(|(j, &value)| (places[j] as i32, value)).collect();
            entries.sort_unstable_by_key(|(j, _)| *j);
            entries.into_iter().for_each(|(j, value)| {
                index.push(j);
                values.push(value);
            });
            starts.push(index.len());
        }
        Csr::new(CsMatI::new((x.rows(), cols), starts, index, values))
    }

    /// The submatrix of the rows (axis 0) or columns (axis 1) with these ascending indices.
    #[must_use]
    pub fn select(&self, axis: Axis, places: &[usize]) -> Self {
        let x = self.matrix();
        let mut starts = vec![0usize];
        let (mut index, mut values) = (Vec::new(), Vec::new());
        if axis == Axis(0) {
            for row in places.iter().filter_map(|&i| x.outer_view(i)) {
                index.extend_from_slice(row.indices());
                values.extend_from_slice(row.data());
                starts.push(index.len());
            }
            return Csr::new(CsMatI::new((places.len(), x.cols()), starts, index, values));
        }
        let mut to = vec![None; x.cols()];
        places.iter().enumerate().for_each(|(at, &j)| to[j] = Some(at as i32));
        for row in x.outer_iterator() {
            for (at, &value) in row.iter().filter_map(|(j, value)| Some((to[j]?, value))) {
                index.push(at);
                values.push(value);
            }
            starts.push(index.len());
        }
        Csr::new(CsMatI::new((x.rows(), places.len()), starts, index, values))
    }

    /// The matrices stacked vertically; `None` if there is none or their numbers of columns differ.
    pub fn stacked(parts: &[&Self]) -> Option<Self> {
        let cols = parts.first()?.matrix().cols();
        let mut starts = vec![0usize];
        let (mut index, mut values) = (Vec::new(), Vec::new());
        for x in parts.iter().map(|part| part.matrix()) {
            let (from, end) = (x.indptr(), index.len());
            if x.cols() != cols {
                return None;
            }
            index.extend_from_slice(x.indices());
            values.extend_from_slice(x.data());
            starts.extend(from.raw_storage()[1..].iter().map(|start| end + start));
        }
        Some(Csr::new(CsMatI::new((starts.len() - 1, cols), starts, index, values)))
    }

    /// Prepares products with k columns by the kernels of the current context. For MKL this creates and optimises handles,
    /// which may keep a copy of the matrix in a format of MKL; the native kernels need no further memory.
    ///
    /// # Errors
    /// If MKL refuses the matrix.
    pub fn prepare(&mut self, k: usize) -> Result<()> {
        // MKL refuses matrices without columns.
        self.kernels = if self.shape().1 == 0 { ProductKernels::NATIVE } else { options().kernels };
        #[cfg(feature = "mkl")]
        {
            let products = [self.kernels.mul, self.kernels.tmul].map(|kernel| kernel == ProductKernel::Mkl);
            self.rows.create_handles(BLOCK_ROWS, products, k)?;
        }
        #[cfg(not(feature = "mkl"))]
        let _ = k;
        Ok(())
    }

    /// out = X·B for B cols × k and out rows × k, both row-major.
    pub fn mul(&self, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        let k = b.ncols();
        flops::count(2 * self.matrix().nnz() * k);
        match self.kernels.mul {
            #[cfg(feature = "mkl")]
            ProductKernel::Mkl => {
                let x = b.row_major();
                let out = Mutex::new(out.axis_chunks_iter_mut(Axis(0), self.rows.block_rows()).enumerate());
                over_parts(threads(), &|_| {
                    // A free thread takes the next block.
                    let next = || out.lock().unwrap_or_else(PoisonError::into_inner).next();
                    while let Some((block, mut part)) = next() {
                        self.rows.mul(block, x, k, part.row_major_mut());
                    }
                });
            }
            ProductKernel::Native => self.native_mul(0, b, out),
        }
    }

    /// out = X_R·B for the rows R `first ..` of X, as many as out has.
    fn native_mul(&self, first: usize, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        let k = b.ncols();
        over_rows(out, &|from, mut out| {
            csr_kernels::mul(self.matrix(), first + from, b.row_major(), k, out.row_major_mut());
        });
    }

    /// out = X_R·B for consecutive rows R of X, B cols × k and out |R| × k, both row-major, by the native kernel.
    pub fn part_mul(&self, rows: Range<usize>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        flops::count(2 * self.stored_in(rows.clone()) * b.ncols());
        self.native_mul(rows.start, b, out);
    }

    /// out += (X_R)ᵀU for consecutive rows R of X, U |R| × k and out cols × k, both row-major, by the native kernel.
    pub fn part_tmul_add(&self, rows: Range<usize>, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        flops::count(2 * self.stored_in(rows.clone()) * u.ncols());
        self.native_tmul_add(rows, u, out);
    }

    fn native_tmul_add(&self, rows: Range<usize>, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        let first = rows.start;
        self.partial_sums(rows.len(), out, |places, y| {
            let part = u.slice(s![places.clone(), ..]);
            let rows = first + places.start..first + places.end;
            csr_kernels::rows_tmul(self.matrix(), rows, part.row_major(), u.ncols(), y);
        });
    }

    /// out = XᵀU for U rows × k and out cols × k, both row-major.
    pub fn tmul(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        out.fill(T::zero());
        self.tmul_add(u, out);
    }

    /// out += XᵀU; otherwise as [`Csr::tmul`].
    pub fn tmul_add(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        flops::count(2 * self.matrix().nnz() * u.ncols());
        match self.kernels.tmul {
            #[cfg(feature = "mkl")]
            ProductKernel::Mkl => self.partial_sums(self.rows.blocks(), out, |blocks, y| {
                blocks.for_each(|block| self.rows.tmul_add(block, u.row_major(), u.ncols(), y));
            }),
            ProductKernel::Native => self.native_tmul_add(0..self.shape().0, u, out),
        }
    }

    /// out = (X_S)ᵀB for selected rows S of X, B |S| × k and out cols × k, both row-major.
    pub fn rows_tmul(&self, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        flops::count(2 * self.stored_in(rows.iter().copied()) * b.ncols());
        out.fill(T::zero());
        self.partial_sums(rows.len(), out, |places, y| {
            let part = b.slice(s![places.clone(), ..]);
            csr_kernels::rows_tmul(self.matrix(), rows[places].iter().copied(), part.row_major(), b.ncols(), y);
        });
    }

    /// Adds the terms of 0..items to `out`. `add` adds those of a range: each thread calls it with its range and a buffer of
    /// its own, and the buffers are summed at the end.
    fn partial_sums(&self, items: usize, out: &mut ArrayViewMut2<T>, add: impl Fn(Range<usize>, &mut [T]) + Sync) {
        let threads = threads();
        if threads == 1 {
            return add(0..items, out.row_major_mut());
        }
        let mut partials = self.partials.lock().unwrap_or_else(PoisonError::into_inner);
        let length = out.len();
        partials.resize_with(threads, Vec::new);
        let places: Vec<Mutex<&mut Vec<T>>> = partials.iter_mut().map(Mutex::new).collect();
        over_parts(threads, &|t| {
            let mut sum = places[t].lock().unwrap_or_else(PoisonError::into_inner);
            sum.clear();
            sum.resize(length, T::zero());
            add(even_part(items, threads, t), &mut sum);
        });
        drop(places);
        over_rows(out, &|first, mut out| {
            let k = out.ncols();
            for partial in partials.iter() {
                let part = &partial[first * k..first * k + out.len()];
                out.row_major_mut().iter_mut().zip(part).for_each(|(sum, &x)| *sum += x);
            }
        });
    }

    /// Number of stored entries in these rows.
    pub(crate) fn stored_in(&self, rows: impl Iterator<Item = usize>) -> usize {
        let indptr = self.matrix().indptr();
        let starts = indptr.raw_storage();
        rows.map(|i| starts[i + 1] - starts[i]).sum()
    }

    /// out += (X_S)ᵀB; otherwise as [`Csr::rows_tmul`].
    pub fn rows_tmul_add(
        &self,
        rows: impl Iterator<Item = usize> + Clone,
        b: &ArrayView2<T>,
        out: &mut ArrayViewMut2<T>,
    ) {
        flops::count(2 * self.stored_in(rows.clone()) * b.ncols());
        csr_kernels::rows_tmul(self.matrix(), rows, b.row_major(), b.ncols(), out.row_major_mut());
    }
}
