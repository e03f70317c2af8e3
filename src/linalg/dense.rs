//! Dense products on MKL.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

pub use super::mkl::gemm;
use super::{Real, over_rows};

/// A dense block, rows × cols, row-major.
pub type Dense<T> = Array2<T>;

/// out = FᵀF for a factor F (rows × k), out k × k.
pub fn gram<T: Real>(f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    tmul(f, f, out);
}

/// Rows of one call to GEMM in [`mul`]: the long product in pieces of this size was up to a third faster than in one
/// call on every shape and in both memory orders tried (20000×2000 and 60000×784 with k = 40), while the transposed
/// product and the Gram matrix gained nothing.
const MUL_ROWS: usize = 1024;

/// out = X·B for X rows × cols in row order, B cols × k, out rows × k.
pub fn mul<T: Real>(x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![first..first + out.nrows(), ..]);
        for (x, mut out) in x.axis_chunks_iter(Axis(0), MUL_ROWS).zip(out.axis_chunks_iter_mut(Axis(0), MUL_ROWS)) {
            gemm(T::one(), &x, b, T::zero(), &mut out);
        }
    });
}

/// out = XᵀU for X rows × cols in row order, U rows × k, out cols × k.
pub fn tmul<T: Real>(x: &ArrayView2<T>, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![.., first..first + out.nrows()]);
        gemm(T::one(), &x.t(), u, T::zero(), &mut out);
    });
}
