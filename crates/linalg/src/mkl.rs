//! Bindings to MKL's sparse products.
//!
//! Functions take slices, check their lengths against the shapes, and pass pointers to MKL.

use std::ffi::{c_char, c_int, c_void};
use std::ops::{Deref, Range};

use fednmf_base::error::{Error, Result};

use super::csr_matrix::CsrMatrix;
use super::real::Real;

const NO_TRANS: c_int = 10;
const TRANS: c_int = 11;
const ROW_MAJOR: c_int = 101;
const INDEX_BASE_ZERO: c_int = 0;

/// `sparse_matrix_t` of `mkl_spblas.h`.
type SparseHandle = *mut c_void;

/// `struct matrix_descr` of `mkl_spblas.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Description {
    kind: c_int,
    mode: c_int,
    diag: c_int,
}

const GENERAL: Description = Description { kind: 20, mode: 40, diag: 50 };

// SAFETY: the declarations are those of MKL's mkl_spblas.h and mkl_service.h for 32-bit integers.
unsafe extern "C" {
    fn mkl_sparse_d_create_csr(
        a: *mut SparseHandle,
        base: c_int,
        rows: c_int,
        cols: c_int,
        start: *mut c_int,
        end: *mut c_int,
        indices: *mut c_int,
        values: *mut f64,
    ) -> c_int;
    fn mkl_sparse_s_create_csr(
        a: *mut SparseHandle,
        base: c_int,
        rows: c_int,
        cols: c_int,
        start: *mut c_int,
        end: *mut c_int,
        indices: *mut c_int,
        values: *mut f32,
    ) -> c_int;
    fn mkl_sparse_set_mm_hint(
        a: SparseHandle,
        op: c_int,
        d: Description,
        layout: c_int,
        columns: c_int,
        calls: c_int,
    ) -> c_int;
    fn mkl_sparse_optimize(a: SparseHandle) -> c_int;
    fn mkl_sparse_d_mm(
        op: c_int,
        alpha: f64,
        a: SparseHandle,
        d: Description,
        layout: c_int,
        x: *const f64,
        columns: c_int,
        ldx: c_int,
        beta: f64,
        y: *mut f64,
        ldy: c_int,
    ) -> c_int;
    fn mkl_sparse_s_mm(
        op: c_int,
        alpha: f32,
        a: SparseHandle,
        d: Description,
        layout: c_int,
        x: *const f32,
        columns: c_int,
        ldx: c_int,
        beta: f32,
        y: *mut f32,
        ldy: c_int,
    ) -> c_int;
    fn mkl_sparse_destroy(a: SparseHandle) -> c_int;
    fn mkl_get_version_string(buffer: *mut c_char, length: c_int);
}

/// Name and version of the MKL library.
pub fn version() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: the length passed is that of the buffer.
    unsafe { mkl_get_version_string(buffer.as_mut_ptr().cast(), buffer.len() as c_int) };
    let end = buffer.iter().position(|&c| c == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_string()
}

/// The sparse functions of one precision, with MKL's own signatures.
pub struct SparseFunctions<T> {
    /// `mkl_sparse_?_create_csr`: the handle of a matrix, which points to the arrays.
    create: unsafe extern "C" fn(
        *mut SparseHandle,
        c_int,
        c_int,
        c_int,
        *mut c_int,
        *mut c_int,
        *mut c_int,
        *mut T,
    ) -> c_int,
    /// `mkl_sparse_?_mm`: Y = alpha·op(X)·B + beta·Y.
    mm: unsafe extern "C" fn(
        c_int,
        T,
        SparseHandle,
        Description,
        c_int,
        *const T,
        c_int,
        c_int,
        T,
        *mut T,
        c_int,
    ) -> c_int,
}

pub const SPARSE_F64: SparseFunctions<f64> = SparseFunctions { create: mkl_sparse_d_create_csr, mm: mkl_sparse_d_mm };
pub const SPARSE_F32: SparseFunctions<f32> = SparseFunctions { create: mkl_sparse_s_create_csr, mm: mkl_sparse_s_mm };

/// A CSR matrix with MKL handles of blocks of its rows.
///
/// A handle points to the arrays of the matrix. The matrix is owned here and shared only for reading, so the arrays stay
/// in place and unchanged until the handles are gone.
pub struct SparseRows<T: Real> {
    /// Dropped before the matrix.
    blocks: Vec<RowBlock>,
    matrix: CsrMatrix<T>,
}

/// The handle of some rows, with their row pointers.
struct RowBlock {
    handle: SparseHandle,
    rows: Range<usize>,
    _starts: Vec<i32>,
}

// SAFETY: after `mkl_sparse_optimize` a handle is only read, and mkl_sparse_mm is thread-safe.
unsafe impl Send for RowBlock {}
// SAFETY: as above.
unsafe impl Sync for RowBlock {}

impl Drop for RowBlock {
    fn drop(&mut self) {
        // SAFETY: the handle is from create_csr and destroyed once.
        unsafe { mkl_sparse_destroy(self.handle) };
    }
}

/// Without handles.
impl<T: Real> From<CsrMatrix<T>> for SparseRows<T> {
    fn from(matrix: CsrMatrix<T>) -> Self {
        assert!(matrix.is_csr(), "a block is stored by rows");
        SparseRows { blocks: Vec::new(), matrix }
    }
}

impl<T: Real> From<SparseRows<T>> for CsrMatrix<T> {
    fn from(rows: SparseRows<T>) -> Self {
        drop(rows.blocks);
        rows.matrix
    }
}

impl<T: Real> Deref for SparseRows<T> {
    type Target = CsrMatrix<T>;

    fn deref(&self) -> &CsrMatrix<T> {
        &self.matrix
    }
}

impl<T: Real> SparseRows<T> {
    /// Number of row blocks that have a handle.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Rows of each block that has a handle.
    pub fn block_rows(&self) -> usize {
        self.blocks.first().map_or(1, |block| block.rows.len())
    }

    /// Creates a handle of each `most_rows` rows, or of fewer where the row pointers would not fit 32 bits, optimised for
    /// products with k columns: X·B, XᵀU or both, as `products` says. Without products there are no handles.
    ///
    /// # Errors
    /// If MKL refuses the matrix.
    pub fn create_handles(&mut self, most_rows: usize, products: [bool; 2], k: usize) -> Result<()> {
        self.blocks.clear();
        if products == [false; 2] {
            return Ok(());
        }
        let rows = self.matrix.rows();
        let block_rows = block_rows(self.matrix.indptr().raw_storage(), most_rows, c_int::MAX as usize);
        for first in (0..rows).step_by(block_rows) {
            self.blocks.push(self.row_block(first..rows.min(first + block_rows), products, k)?);
        }
        Ok(())
    }

    fn row_block(&self, rows: Range<usize>, [mul, tmul]: [bool; 2], k: usize) -> Result<RowBlock> {
        const CALLS: c_int = 1000;
        let shape @ (count, cols) = (rows.len(), self.matrix.cols());
        let refused =
            |why: &str| Error::failed(format!("MKL refuses a sparse block of {}x{} ({why})", shape.0, shape.1));
        let int = |n: usize| c_int::try_from(n).map_err(|_| refused("it has 2147483648 rows or columns, or more"));
        let (dimensions, columns) = ([int(count)?, int(cols)?], int(k)?);
        let indptr = self.matrix.indptr();
        let starts = &indptr.raw_storage()[rows.start..=rows.end];
        let entries = starts[0]..starts[count];
        int(entries.len())?;
        let local: Vec<i32> = starts.iter().map(|&start| (start - entries.start) as i32).collect();
        let (indices, values) = (&self.matrix.indices()[entries.clone()], &self.matrix.data()[entries]);
        let mut handle = std::ptr::null_mut();
        let start = local.as_ptr().cast_mut();
        let (indices, values) = (indices.as_ptr().cast_mut(), values.as_ptr().cast_mut());
        // SAFETY: the arrays are parts of a CSR matrix; `self` keeps them, and the block keeps its row pointers. MKL takes them
        // as mutable but does not write.
        let status = unsafe {
            let [rows, cols] = dimensions;
            (T::SPARSE.create)(&mut handle, INDEX_BASE_ZERO, rows, cols, start, start.add(1), indices, values)
        };
        if status != 0 {
            return Err(refused(&format!("status {status}")));
        }
        let block = RowBlock { handle, rows, _starts: local };
        for (_, op) in [(mul, NO_TRANS), (tmul, TRANS)].into_iter().filter(|(needed, _)| *needed) {
            // SAFETY: the handle is valid. Both calls are hints: "not supported" (6) is not a failure.
            unsafe {
                mkl_sparse_set_mm_hint(handle, op, GENERAL, ROW_MAJOR, columns, CALLS);
                mkl_sparse_optimize(handle);
            }
        }
        Ok(block)
    }

    /// out = X_I·B for the rows I of a block; B is cols × k, out |I| × k, both row-major.
    pub fn mul(&self, block: usize, b: &[T], k: usize, out: &mut [T]) {
        let block = &self.blocks[block];
        let (rows, cols) = (block.rows.len(), self.matrix.cols());
        assert!(b.len() >= cols * k && out.len() >= rows * k, "operands of a sparse product are too short");
        // SAFETY: the operands cover the shapes.
        unsafe { product(NO_TRANS, block, b, k, T::zero(), out) };
    }

    /// out += (X_I)ᵀU_I for the rows I of a block; U is rows × k, out cols × k, both row-major.
    pub fn tmul_add(&self, block: usize, u: &[T], k: usize, out: &mut [T]) {
        let block = &self.blocks[block];
        let u = &u[block.rows.start * k..block.rows.end * k];
        assert!(out.len() >= self.matrix.cols() * k, "operands of a sparse product are too short");
        // SAFETY: the operands cover the shapes.
        unsafe { product(TRANS, block, u, k, T::one(), out) };
    }
}

/// Rows of blocks of a CSR matrix with these row pointers: at most `rows`, and so few that no block has more than `entries`
/// entries, unless a single row has.
fn block_rows(starts: &[usize], rows: usize, entries: usize) -> usize {
    let fits = |rows: usize| {
        let ends = (0..starts.len()).step_by(rows).chain([starts.len() - 1]);
        ends.clone().zip(ends.skip(1)).all(|(first, end)| starts[end] - starts[first] <= entries)
    };
    std::iter::successors(Some(rows), |rows| (*rows > 1).then_some(rows / 2)).find(|rows| fits(*rows)).unwrap_or(1)
}

/// Y = op(X)·B + beta·Y for the rows X of a block, with row-major B and Y of k columns.
///
/// # Safety
/// B and Y must cover the shapes.
unsafe fn product<T: Real>(op: c_int, block: &RowBlock, b: &[T], k: usize, beta: T, y: &mut [T]) {
    let columns = c_int::try_from(k).expect("factors have at most as many columns as the matrix, fewer than 2^31");
    // SAFETY: the handle is valid for as long as the block; the rest is guaranteed by the caller.
    let status = unsafe {
        (T::SPARSE.mm)(
            op,
            T::one(),
            block.handle,
            GENERAL,
            ROW_MAJOR,
            b.as_ptr(),
            columns,
            columns,
            beta,
            y.as_mut_ptr(),
            columns,
        )
    };
    assert_eq!(status, 0, "mkl_sparse_mm");
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn blocks_have_row_pointers_of_32_bits() {
        let most = c_int::MAX as usize;
        // A thousand rows with a third of 2³¹ entries each.
        let heavy: Vec<usize> = (0..=1000).map(|row| row * (most / 3)).collect();
        assert_eq!(block_rows(&heavy, 4096, most), 2);
        assert_eq!(block_rows(&heavy[..3], 4096, most), 4096);
        let single: Vec<usize> = (0..=100).map(|row| if row > 50 { row + most - 1 } else { row }).collect();
        assert_eq!(block_rows(&single, 64, most), 1);
        assert_eq!(block_rows(&[0, most, 2 * most], 4096, most), 1);
        assert_eq!(block_rows(&[0], 4096, most), 4096);
    }

    /// Products with blocks of any size are the same.
    #[test]
    fn smaller_blocks_give_the_same_products() {
        let x = Array2::from_shape_fn((23, 7), |(i, j)| if (i * 3 + j) % 4 == 0 { (1 + i + j) as f64 } else { 0.0 });
        let sparse = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(x.view(), 0.0);
        let b = Array2::from_shape_fn((7, 3), |(i, j)| (i + 2 * j) as f64);
        for block_rows in [1, 2, 5, 4096] {
            let mut rows = SparseRows::from(crate::csr_matrix::owned_rows(sparse.clone()));
            rows.create_handles(block_rows, [true, true], 3).unwrap();
            assert_eq!((rows.blocks(), rows.block_rows()), (23usize.div_ceil(block_rows), block_rows.min(23)));
            let mut out = Array2::<f64>::zeros((23, 3));
            for (block, mut part) in out.axis_chunks_iter_mut(ndarray::Axis(0), rows.block_rows()).enumerate() {
                rows.mul(block, b.as_slice().unwrap(), 3, part.as_slice_mut().unwrap());
            }
            assert_eq!(out, x.dot(&b));
        }
    }
}
