//! Bindings to MKL. This is the only `unsafe` file of the numerical code, so prefetching and the advice on large pages,
//! which Rust has no safe interface for, are here too.
//!
//! Functions take slices or views, check their lengths against the shapes, and pass on pointers.

use std::ffi::{c_char, c_int, c_void};

// Without a use of the crate the library is not linked.
use intel_mkl_src as _;
use ndarray::{ArrayView2, ArrayViewMut2};

use fednmf_base::error::{Error, Result};

use super::flops;

const ROW_MAJOR: c_int = 101;
const NO_TRANS: c_int = 111;
const TRANS: c_int = 112;
const SPARSE_NO_TRANS: c_int = 10;
const SPARSE_TRANS: c_int = 11;
const SPARSE_ROW_MAJOR: c_int = 101;
const SPARSE_INDEX_BASE_ZERO: c_int = 0;

type SparseHandle = *mut c_void;

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

/// The leading dimension of a view, and whether it is the transpose of a row-major matrix.
fn leading(dim: (usize, usize), strides: &[isize]) -> (c_int, bool) {
    let (rows, cols) = dim;
    // A single row or column fits both layouts; its other stride is meaningless.
    if strides[1] == 1 || cols <= 1 {
        let ld = if rows <= 1 { cols as isize } else { strides[0] };
        assert!(ld >= cols as isize && (cols <= 1 || strides[1] == 1), "a BLAS operand without a unit stride");
        (int(ld.max(1).unsigned_abs()), false)
    } else {
        let ld = if cols <= 1 { rows as isize } else { strides[1] };
        assert!(ld >= rows as isize && (rows <= 1 || strides[0] == 1), "a BLAS operand without a unit stride");
        (int(ld.max(1).unsigned_abs()), true)
    }
}

/// C = alpha·A·B + beta·C, for A m × k, B k × n and C m × n in any memory order with a unit stride.
pub fn gemm<T: Kernels>(alpha: T, a: &ArrayView2<T>, b: &ArrayView2<T>, beta: T, c: &mut ArrayViewMut2<T>) {
    let (m, n) = c.dim();
    let k = a.ncols();
    assert!(a.nrows() == m && b.dim() == (k, n), "shapes of a product: {:?} {:?} {:?}", a.dim(), b.dim(), c.dim());
    if m == 0 || n == 0 {
        return;
    }
    flops::count(2 * m * n * k);
    let (lda, ta) = leading(a.dim(), a.strides());
    let (ldb, tb) = leading(b.dim(), b.strides());
    let (ldc, tc) = leading(c.dim(), c.strides());
    let flag = |t: bool| if t { TRANS } else { NO_TRANS };
    // SAFETY: the views are valid for the shapes and strides that are passed.
    unsafe {
        if tc {
            // C is column-major: compute Cᵀ = Bᵀ·Aᵀ in row-major order.
            T::gemm(
                flag(!tb),
                flag(!ta),
                [n, m, k],
                alpha,
                (b.as_ptr(), ldb),
                (a.as_ptr(), lda),
                beta,
                (c.as_mut_ptr(), ldc),
            );
        } else {
            T::gemm(
                flag(ta),
                flag(tb),
                [m, n, k],
                alpha,
                (a.as_ptr(), lda),
                (b.as_ptr(), ldb),
                beta,
                (c.as_mut_ptr(), ldc),
            );
        }
    }
}

/// Prefetches every cache line of a slice into the second-level cache.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in slice.chunks((64 / size_of::<T>().max(1)).max(1)) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect, and the address lies in the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice;
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

fn int(n: usize) -> c_int {
    c_int::try_from(n).expect("the partition keeps block dimensions below 2^31")
}

/// The MKL kernels of one precision.
pub trait Kernels: Sized {
    /// Row-major `cblas_?gemm`; `shape` is [m, n, k].
    ///
    /// # Safety
    /// The pointers must be valid for the shapes and leading dimensions.
    #[allow(clippy::too_many_arguments)] // the signature of BLAS
    unsafe fn gemm(
        ta: c_int,
        tb: c_int,
        shape: [usize; 3],
        alpha: Self,
        a: (*const Self, c_int),
        b: (*const Self, c_int),
        beta: Self,
        c: (*mut Self, c_int),
    );

    /// An MKL handle on three CSR arrays, which the caller must keep alive and in place.
    ///
    /// # Errors
    /// If MKL refuses the matrix.
    fn sparse_create(
        rows: usize,
        cols: usize,
        indptr: &[i32],
        indices: &[i32],
        values: &[Self],
    ) -> Result<SparseMatrix<Self>>;

    /// Y = A·X + beta·Y, or with `transposed` Y = Aᵀ·X + beta·Y, for row-major X and Y with k columns.
    fn sparse_mm(a: &SparseMatrix<Self>, transposed: bool, x: &[Self], k: usize, beta: Self, y: &mut [Self]);
}

/// An MKL handle of a CSR matrix; the owner of this value owns the arrays.
pub struct SparseMatrix<T> {
    handle: SparseHandle,
    rows: usize,
    cols: usize,
    element: std::marker::PhantomData<T>,
}

// SAFETY: after `mkl_sparse_optimize` a handle is only read, and mkl_sparse_mm is thread-safe.
unsafe impl<T: Send> Send for SparseMatrix<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for SparseMatrix<T> {}

impl<T> SparseMatrix<T> {
    /// Lets MKL optimise the matrix for this product.
    pub fn optimize(&mut self, transposed: bool, k: usize, calls: usize) {
        let op = if transposed { SPARSE_TRANS } else { SPARSE_NO_TRANS };
        // SAFETY: the handle is valid until drop. Both calls are hints: "not supported" (6) is not a failure.
        unsafe {
            mkl_sparse_set_mm_hint(self.handle, op, GENERAL, SPARSE_ROW_MAJOR, int(k), int(calls));
            mkl_sparse_optimize(self.handle);
        }
    }

    fn check(&self, transposed: bool, x: usize, k: usize, y: usize) {
        let (inner, outer) = if transposed { (self.rows, self.cols) } else { (self.cols, self.rows) };
        assert!(x >= inner * k && y >= outer * k, "operands of a sparse product are too short");
    }
}

impl<T> Drop for SparseMatrix<T> {
    fn drop(&mut self) {
        // SAFETY: the handle is from create_csr and destroyed once.
        unsafe { mkl_sparse_destroy(self.handle) };
    }
}

macro_rules! kernels {
    ($t:ty, $gemm:ident, $create:ident, $mm:ident) => {
        impl Kernels for $t {
            unsafe fn gemm(
                ta: c_int,
                tb: c_int,
                [m, n, k]: [usize; 3],
                alpha: $t,
                a: (*const $t, c_int),
                b: (*const $t, c_int),
                beta: $t,
                c: (*mut $t, c_int),
            ) {
                // SAFETY: guaranteed by the caller.
                unsafe { $gemm(ROW_MAJOR, ta, tb, int(m), int(n), int(k), alpha, a.0, a.1, b.0, b.1, beta, c.0, c.1) };
            }

            fn sparse_create(
                rows: usize,
                cols: usize,
                indptr: &[i32],
                indices: &[i32],
                values: &[$t],
            ) -> Result<SparseMatrix<$t>> {
                assert!(indptr.len() == rows + 1 && indices.len() == values.len());
                let mut handle = std::ptr::null_mut();
                // SAFETY: the arrays have the lengths of the CSR format; MKL takes them as mutable but does not write.
                let status = unsafe {
                    let start = indptr.as_ptr().cast_mut();
                    $create(
                        &mut handle,
                        SPARSE_INDEX_BASE_ZERO,
                        int(rows),
                        int(cols),
                        start,
                        start.add(1),
                        indices.as_ptr().cast_mut(),
                        values.as_ptr().cast_mut(),
                    )
                };
                if status != 0 {
                    return Err(Error::failed(format!(
                        "MKL refuses a sparse block of {rows}x{cols} (status {status})"
                    )));
                }
                Ok(SparseMatrix { handle, rows, cols, element: std::marker::PhantomData })
            }

            fn sparse_mm(a: &SparseMatrix<$t>, transposed: bool, x: &[$t], k: usize, beta: $t, y: &mut [$t]) {
                a.check(transposed, x.len(), k, y.len());
                let op = if transposed { SPARSE_TRANS } else { SPARSE_NO_TRANS };
                // SAFETY: x and y cover the shapes, as checked above; the owner of the handle keeps the arrays alive.
                let status = unsafe {
                    $mm(
                        op,
                        1.0,
                        a.handle,
                        GENERAL,
                        SPARSE_ROW_MAJOR,
                        x.as_ptr(),
                        int(k),
                        int(k),
                        beta,
                        y.as_mut_ptr(),
                        int(k),
                    )
                };
                assert_eq!(status, 0, "mkl_sparse_mm");
            }
        }
    };
}

kernels!(f64, cblas_dgemm, mkl_sparse_d_create_csr, mkl_sparse_d_mm);
kernels!(f32, cblas_sgemm, mkl_sparse_s_create_csr, mkl_sparse_s_mm);
