//! Bindings to MKL. This is the only `unsafe` file of the numerical code, so it also has prefetching and the advice on large
//! pages, for which Rust has no safe interface.
//!
//! Functions take slices or views, check their lengths against the shapes, and pass pointers to MKL.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;

// Without a use of the crate the library is not linked.
use intel_mkl_src as _;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};

use fednmf_base::error::{Error, Result};

use super::csr_matrix::CsrMatrix;
use super::flops;
use super::real::Real;

const ROW_MAJOR: c_int = 101;
const NO_TRANS: c_int = 111;
const TRANS: c_int = 112;
const SPARSE_NO_TRANS: c_int = 10;
const SPARSE_TRANS: c_int = 11;
const SPARSE_ROW_MAJOR: c_int = 101;
const SPARSE_INDEX_BASE_ZERO: c_int = 0;

/// `sparse_matrix_t` of `mkl_spblas.h`.
pub type SparseHandle = *mut c_void;

/// `struct matrix_descr` of `mkl_spblas.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Description {
    kind: c_int,
    mode: c_int,
    diag: c_int,
}

const GENERAL: Description = Description { kind: 20, mode: 40, diag: 50 };

// SAFETY: the declarations are those of MKL's mkl_cblas.h, mkl_spblas.h and mkl_service.h for 32-bit integers.
unsafe extern "C" {
    fn cblas_dgemm(
        layout: c_int,
        ta: c_int,
        tb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: f64,
        a: *const f64,
        lda: c_int,
        b: *const f64,
        ldb: c_int,
        beta: f64,
        c: *mut f64,
        ldc: c_int,
    );
    fn cblas_sgemm(
        layout: c_int,
        ta: c_int,
        tb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: f32,
        a: *const f32,
        lda: c_int,
        b: *const f32,
        ldb: c_int,
        beta: f32,
        c: *mut f32,
        ldc: c_int,
    );
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

/// The leading dimension of a view, and whether it is the transpose of a row-major matrix; `None` if BLAS has no form for
/// it, because no stride is 1 or the dimension needs more than 31 bits.
fn leading((rows, cols): (usize, usize), strides: &[isize]) -> Option<(c_int, bool)> {
    // A single row or column fits both layouts; its other stride is meaningless.
    let transposed = strides[1] != 1 && cols > 1;
    let (count, length, stride) = if transposed { (cols, rows, strides[1]) } else { (rows, cols, strides[0]) };
    let unit = length <= 1 || strides[usize::from(!transposed)] == 1;
    let dimension = if count <= 1 { length } else { usize::try_from(stride).ok()? };
    if !unit || dimension < length {
        return None;
    }
    Some((c_int::try_from(dimension.max(1)).ok()?, transposed))
}

/// C = alpha·A·B + beta·C, for A m × k, B k × n and C m × n, fastest with a unit stride and dimensions below 2³¹.
pub fn gemm<T: Kernels>(alpha: T, a: &ArrayView2<T>, b: &ArrayView2<T>, beta: T, c: &mut ArrayViewMut2<T>) {
    let (m, n) = c.dim();
    let k = a.ncols();
    assert!(a.nrows() == m && b.dim() == (k, n), "shapes of a product: {:?} {:?} {:?}", a.dim(), b.dim(), c.dim());
    if m == 0 || n == 0 {
        return;
    }
    flops::count(2 * m * n * k);
    if blas_gemm(alpha, a, b, beta, c).is_none() {
        general_mat_mul(alpha, a, b, beta, c);
    }
}

/// [`gemm`] by BLAS; `None` if it has no form for the operands.
fn blas_gemm<T: Kernels>(
    alpha: T,
    a: &ArrayView2<T>,
    b: &ArrayView2<T>,
    beta: T,
    c: &mut ArrayViewMut2<T>,
) -> Option<()> {
    let int = |n: usize| c_int::try_from(n).ok();
    let [m, n, k] = [int(c.nrows())?, int(c.ncols())?, int(a.ncols())?];
    let (lda, ta) = leading(a.dim(), a.strides())?;
    let (ldb, tb) = leading(b.dim(), b.strides())?;
    let (ldc, tc) = leading(c.dim(), c.strides())?;
    let flag = |t: bool| if t { TRANS } else { NO_TRANS };
    let (a, b, c) = ((a.as_ptr(), lda), (b.as_ptr(), ldb), (c.as_mut_ptr(), ldc));
    // SAFETY: the views are valid for the shapes and strides that are passed.
    unsafe {
        if tc {
            // C is column-major: compute Cᵀ = Bᵀ·Aᵀ in row-major order.
            T::gemm(flag(!tb), flag(!ta), [n, m, k], alpha, b, a, beta, c);
        } else {
            T::gemm(flag(ta), flag(tb), [m, n, k], alpha, a, b, beta, c);
        }
    }
    Some(())
}

/// Bytes of a cache line.
pub const CACHE_LINE: usize = 64;

/// Prefetches every cache line of a slice into the second-level cache.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    slice.chunks((CACHE_LINE / size_of::<T>().max(1)).max(1)).for_each(|line| prefetch_line(line.as_ptr()));
}

/// Prefetches the cache line at this address, which need not be valid, into the second-level cache.
#[inline(always)]
pub fn prefetch_line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Advises the system to use large pages for a large slice, best before it is first written: access to distant rows then
/// misses the TLB less often. A refusal has no effect.
pub fn large_pages<T>(slice: &[T]) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let (start, length) = (slice.as_ptr().addr().next_multiple_of(PAGE), size_of_val(slice));
        if length >= 4 << 20 {
            let end = (slice.as_ptr().addr() + length) / PAGE * PAGE;
            // SAFETY: the range consists of whole pages of the slice, and the advice does not change their contents.
            unsafe {
                libc::madvise(slice.as_ptr().with_addr(start).cast_mut().cast(), end - start, libc::MADV_HUGEPAGE)
            };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = slice;
}

/// The MKL kernels of one precision, with MKL's own signatures.
pub trait Kernels: LinalgScalar {
    /// Row-major `cblas_?gemm`; `shape` is [m, n, k].
    ///
    /// # Safety
    /// The pointers must be valid for the shapes and leading dimensions.
    #[allow(clippy::too_many_arguments)] // the signature of BLAS
    unsafe fn gemm(
        ta: c_int,
        tb: c_int,
        shape: [c_int; 3],
        alpha: Self,
        a: (*const Self, c_int),
        b: (*const Self, c_int),
        beta: Self,
        c: (*mut Self, c_int),
    );

    /// `mkl_sparse_?_create_csr`: writes a handle of a rows × cols matrix, which points to the arrays, and returns a status.
    ///
    /// # Safety
    /// The arrays must have the lengths of the CSR format, and must stay in place and unchanged for as long as the handle
    /// exists.
    unsafe fn sparse_create(
        handle: &mut SparseHandle,
        shape: [c_int; 2],
        starts: &[i32],
        indices: &[i32],
        values: &[Self],
    ) -> c_int;

    /// `mkl_sparse_?_mm` with alpha = 1, for row-major X and Y with `columns` columns; returns a status.
    ///
    /// # Safety
    /// The handle must be valid, and the pointers must be valid for the shapes.
    unsafe fn sparse_mm(
        op: c_int,
        handle: SparseHandle,
        x: *const Self,
        columns: c_int,
        beta: Self,
        y: *mut Self,
    ) -> c_int;
}

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

impl<T: Real> SparseRows<T> {
    /// Without handles.
    pub fn new(matrix: CsrMatrix<T>) -> Self {
        assert!(matrix.is_csr(), "a block is stored by rows");
        SparseRows { blocks: Vec::new(), matrix }
    }

    pub fn matrix(&self) -> &CsrMatrix<T> {
        &self.matrix
    }

    /// Replaces the matrix, destroys the handles, and returns the previous matrix.
    pub fn replace(&mut self, matrix: CsrMatrix<T>) -> CsrMatrix<T> {
        std::mem::replace(self, SparseRows::new(matrix)).into_matrix()
    }

    pub fn into_matrix(self) -> CsrMatrix<T> {
        drop(self.blocks);
        self.matrix
    }

    pub fn destroy_handles(&mut self) {
        self.blocks.clear();
    }

    /// Number of row blocks that have a handle.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Rows of each block that has a handle.
    pub fn block_rows(&self) -> usize {
        self.blocks.first().map_or(1, |block| block.rows.len())
    }

    /// Creates a handle of each `most_rows` rows, or of fewer where the row pointers would not fit 32 bits, optimised for
    /// products with k columns: X·B, XᵀU or both, as `products` says.
    ///
    /// # Errors
    /// If MKL refuses the matrix.
    pub fn create_handles(&mut self, most_rows: usize, products: [bool; 2], k: usize) -> Result<()> {
        self.blocks.clear();
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
        // SAFETY: the arrays are parts of a CSR matrix; `self` keeps them, and the block keeps its row pointers.
        let status = unsafe { T::sparse_create(&mut handle, dimensions, &local, indices, values) };
        if status != 0 {
            return Err(refused(&format!("status {status}")));
        }
        let block = RowBlock { handle, rows, _starts: local };
        for (_, op) in [(mul, SPARSE_NO_TRANS), (tmul, SPARSE_TRANS)].into_iter().filter(|(needed, _)| *needed) {
            // SAFETY: the handle is valid. Both calls are hints: "not supported" (6) is not a failure.
            unsafe {
                mkl_sparse_set_mm_hint(handle, op, GENERAL, SPARSE_ROW_MAJOR, columns, CALLS);
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
        unsafe { product(SPARSE_NO_TRANS, block, b, k, T::zero(), out) };
    }

    /// out += (X_I)ᵀU_I for the rows I of a block; U is rows × k, out cols × k, both row-major.
    pub fn tmul_add(&self, block: usize, u: &[T], k: usize, out: &mut [T]) {
        let block = &self.blocks[block];
        let u = &u[block.rows.start * k..block.rows.end * k];
        assert!(out.len() >= self.matrix.cols() * k, "operands of a sparse product are too short");
        // SAFETY: the operands cover the shapes.
        unsafe { product(SPARSE_TRANS, block, u, k, T::one(), out) };
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
    let status = unsafe { T::sparse_mm(op, block.handle, b.as_ptr(), columns, beta, y.as_mut_ptr()) };
    assert_eq!(status, 0, "mkl_sparse_mm");
}

macro_rules! kernels {
    ($t:ty, $gemm:ident, $create:ident, $mm:ident) => {
        impl Kernels for $t {
            unsafe fn gemm(
                ta: c_int,
                tb: c_int,
                [m, n, k]: [c_int; 3],
                alpha: $t,
                a: (*const $t, c_int),
                b: (*const $t, c_int),
                beta: $t,
                c: (*mut $t, c_int),
            ) {
                // SAFETY: guaranteed by the caller.
                unsafe { $gemm(ROW_MAJOR, ta, tb, m, n, k, alpha, a.0, a.1, b.0, b.1, beta, c.0, c.1) };
            }

            unsafe fn sparse_create(
                handle: &mut SparseHandle,
                [rows, cols]: [c_int; 2],
                starts: &[i32],
                indices: &[i32],
                values: &[$t],
            ) -> c_int {
                let start = starts.as_ptr().cast_mut();
                let (indices, values) = (indices.as_ptr().cast_mut(), values.as_ptr().cast_mut());
                // SAFETY: guaranteed by the caller; MKL takes the arrays as mutable but does not write.
                unsafe { $create(handle, SPARSE_INDEX_BASE_ZERO, rows, cols, start, start.add(1), indices, values) }
            }

            unsafe fn sparse_mm(
                op: c_int,
                handle: SparseHandle,
                x: *const $t,
                columns: c_int,
                beta: $t,
                y: *mut $t,
            ) -> c_int {
                // SAFETY: guaranteed by the caller.
                unsafe { $mm(op, 1.0, handle, GENERAL, SPARSE_ROW_MAJOR, x, columns, columns, beta, y, columns) }
            }
        }
    };
}

kernels!(f64, cblas_dgemm, mkl_sparse_d_create_csr, mkl_sparse_d_mm);
kernels!(f32, cblas_sgemm, mkl_sparse_s_create_csr, mkl_sparse_s_mm);

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};

    use super::*;

    /// The products, including operands for which BLAS has no form.
    #[test]
    fn products_are_computed_whatever_the_strides() {
        let x = Array2::from_shape_fn((6, 8), |(i, j)| ((7 * i + 3 * j) % 11) as f64);
        let views = [
            x.slice(s![.., ..]),
            x.slice(s![..;2, ..;2]),
            x.slice(s![..;-1, ..]),
            x.slice(s![.., 2..3]).reversed_axes(),
        ];
        for a in &views {
            for (a, b) in [(a.view(), a.t()), (a.t(), a.view())] {
                let mut found = Array2::ones((a.nrows(), b.ncols()));
                gemm(2.0, &a, &b, 1.0, &mut found.view_mut());
                assert_eq!(found, 2.0 * a.dot(&b) + 1.0);
            }
        }
    }

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
            let mut rows = SparseRows::new(crate::csr_matrix::owned_rows(sparse.clone()));
            rows.create_handles(block_rows, [true, true], 3).unwrap();
            assert_eq!((rows.blocks(), rows.block_rows()), (23usize.div_ceil(block_rows), block_rows.min(23)));
            let mut out = Array2::<f64>::zeros((23, 3));
            for (block, mut part) in out.axis_chunks_iter_mut(ndarray::Axis(0), rows.block_rows()).enumerate() {
                rows.mul(block, b.as_slice().unwrap(), 3, part.as_slice_mut().unwrap());
            }
            assert_eq!(out, x.dot(&b));
        }
    }

    #[test]
    fn a_dimension_that_needs_more_than_31_bits_is_not_for_blas() {
        let large = 1usize << 31;
        for (shape, strides, expected) in [
            ((2, 3), [3, 1], Some((3, false))),
            ((2, 3), [1, 2], Some((2, true))),
            ((large, 1), [1, 1], Some((1, false))),
            ((2, large), [large as isize, 1], None),
            ((large, 2), [1, large as isize], None),
            ((2, 3), [6, 2], None),
            ((2, 3), [-3, 1], None),
            ((2, 1), [0, 0], None),
        ] {
            assert_eq!(leading(shape, &strides), expected, "{shape:?} {strides:?}");
        }
    }
}
