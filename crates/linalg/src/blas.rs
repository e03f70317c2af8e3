//! Bindings to BLAS: products of dense matrices by MKL (feature `mkl`) or OpenBLAS (feature `openblas`).
//!
//! Functions take views, check their lengths against the shapes, and pass pointers to the library.

use std::ffi::c_int;
#[cfg(feature = "openblas")]
use std::ffi::{CStr, c_char};

// Without a use of the crate the library is not linked.
#[cfg(feature = "mkl")]
use intel_mkl_src as _;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};

use super::flops;
#[cfg(feature = "mkl")]
use super::mkl::{self, SparseFunctions};

const ROW_MAJOR: c_int = 101;
const NO_TRANS: c_int = 111;
const TRANS: c_int = 112;

// SAFETY: the declarations are those of cblas.h for 32-bit integers.
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
}

// SAFETY: the declarations are those of OpenBLAS's cblas.h.
#[cfg(feature = "openblas")]
unsafe extern "C" {
    fn openblas_get_config() -> *const c_char;
    fn openblas_set_num_threads(threads: c_int);
    fn openblas_get_parallel() -> c_int;
}

/// Name and version of the BLAS library.
#[cfg(feature = "mkl")]
pub fn version() -> String {
    mkl::version()
}

/// Name and version of the BLAS library.
#[cfg(feature = "openblas")]
pub fn version() -> String {
    // SAFETY: the library returns a string that it never changes or frees.
    unsafe { CStr::from_ptr(openblas_get_config()) }.to_string_lossy().trim().to_string()
}

/// Whether several threads may call the BLAS library at once. A build of OpenBLAS without threads hands them the same buffer, and
/// products are wrong.
pub fn is_thread_safe() -> bool {
    #[cfg(feature = "openblas")]
    // SAFETY: it returns a number.
    return unsafe { openblas_get_parallel() } != 0;
    #[cfg(not(feature = "openblas"))]
    true
}

/// Keeps the BLAS library from starting threads of its own, which would compete with those of a context and with other
/// ranks, and make the bits of a product depend on the number of cores. MKL is the sequential one.
pub fn sequential() {
    #[cfg(feature = "openblas")]
    // SAFETY: it sets a number.
    unsafe {
        openblas_set_num_threads(1);
    }
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

/// The kernels of the BLAS library for one precision, with its own signatures.
pub trait Kernels: LinalgScalar {
    /// Sparse products.
    #[cfg(feature = "mkl")]
    const SPARSE: SparseFunctions<Self>;

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
}

macro_rules! kernels {
    ($t:ty, $gemm:ident, $sparse:ident) => {
        impl Kernels for $t {
            #[cfg(feature = "mkl")]
            const SPARSE: SparseFunctions<$t> = mkl::$sparse;

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
        }
    };
}

kernels!(f64, cblas_dgemm, SPARSE_F64);
kernels!(f32, cblas_sgemm, SPARSE_F32);

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

    /// OpenBLAS without threads fails here in one of ten runs.
    #[test]
    fn products_of_several_threads_at_once_are_right() {
        if !is_thread_safe() {
            return;
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let (m, k, n) = (300 + 7 * thread, 100 + thread, 100);
                    let a = Array2::from_shape_fn((m, k), |(i, l)| ((3 * i + l + thread) % 13) as f64);
                    let b = Array2::from_shape_fn((k, n), |(l, j)| ((l + 5 * j) % 17) as f64);
                    // Sums of whole numbers, which are exact.
                    let of = |i: usize, j: usize| (0..k).map(|l| a[[i, l]] * b[[l, j]]).sum::<f64>();
                    let expected = Array2::from_shape_fn((m, n), |(i, j)| of(i, j));
                    let mut found = Array2::zeros((m, n));
                    for round in 0..300 {
                        found.fill(-1.0);
                        gemm(1.0, &a.view(), &b.view(), 0.0, &mut found.view_mut());
                        assert_eq!(found, expected, "thread {thread}, round {round}");
                    }
                });
            }
        });
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
