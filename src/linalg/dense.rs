//! Dense products: those with thin factors by loops of our own, all others on MKL.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::thin;
use super::{Real, over_rows};
pub use crate::linalg::mkl::gemm;
use crate::linalg::thin::Rows;

/// A dense block, rows × cols, row-major.
pub type Dense<T> = Array2<T>;

/// out = FᵀF for a factor F (rows × k), out k × k.
pub fn gram<T: Real>(f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    gemm(T::one(), &f.t(), f, T::zero(), out);
}

/// out = X·B for X rows × cols in row order, B cols × k, out rows × k.
pub fn mul<T: Real>(x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![first..first + out.nrows(), ..]);
        thin::mul(&x, b, &mut out);
    });
}

/// out = X_S·B for the rows S of X, B cols × k, out |S| × k.
pub(super) fn chosen_mul<T: Real>(x: &ArrayView2<T>, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    over_rows(out, &|first, mut out| {
        let rows = &rows[first..first + out.nrows()];
        // Consecutive rows are one product, as they lie.
        let mut from = 0;
        while from < rows.len() {
            let run = rows[from..].iter().enumerate().take_while(|&(i, &row)| row == rows[from] + i).count();
            let part = x.slice(s![rows[from]..rows[from] + run, ..]);
            thin::mul(&part, b, &mut out.slice_mut(s![from..from + run, ..]));
            from += run;
        }
    });
}

/// out = XᵀU for X rows × cols in row order, U rows × k, out cols × k.
pub fn tmul<T: Real>(x: &ArrayView2<T>, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    rows_tmul(x, Rows::All, u, false, out);
}

/// out = (X_S)ᵀU for the rows S of X, U |S| × k, out cols × k; with `add` out += that.
pub(super) fn rows_tmul<T: Real>(
    x: &ArrayView2<T>,
    rows: Rows,
    u: &ArrayView2<T>,
    add: bool,
    out: &mut ArrayViewMut2<T>,
) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![.., first..first + out.nrows()]);
        thin::tmul(&x, rows, u, add, &mut out);
    });
}
