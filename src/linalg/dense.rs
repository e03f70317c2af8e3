//! Dense products on MKL.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use super::Real;
pub use super::mkl::gemm;

/// A dense block, rows × cols, row-major.
pub type Dense<T> = Array2<T>;

/// out = FᵀF for a factor F (rows × k), out k × k.
pub fn gram<T: Real>(f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    gemm(T::one(), &f.t(), f, T::zero(), out);
}

/// out = X·B for X rows × cols, B cols × k.
pub fn mul<T: Real>(x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    gemm(T::one(), x, b, T::zero(), out);
}
