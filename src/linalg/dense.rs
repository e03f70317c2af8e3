//! Products of dense blocks with tall-skinny factors, in parallel over rows of the result, and Gram matrices.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use super::mkl::gemm;
use super::real::Real;
use super::simd::Lanes;
use super::tall_skinny::{self, RowSelection};
use super::threads::over_rows;

/// A dense block, rows × cols, row-major.
pub type Dense<T> = Array2<T>;

/// Rows of a factor whose Gram matrix is summed in f32.
const F32_ROWS: usize = 1 << 16;

/// out = FᵀF for a factor F rows × k and out k × k. In f32 the Gram matrices of [`F32_ROWS`] rows at a time are added up in
/// f64, since a long sum in f32 loses its last terms.
pub fn gram<T: Real>(f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    if size_of::<T>() == size_of::<f64>() || f.nrows() <= F32_ROWS {
        return gemm(T::one(), &f.t(), f, T::zero(), out);
    }
    f64::with_buffer(|sums| {
        sums.clear();
        sums.resize(out.len(), 0.0);
        for part in f.axis_chunks_iter(Axis(0), F32_ROWS) {
            gemm(T::one(), &part.t(), &part, T::zero(), out);
            sums.iter_mut().zip(out.iter()).for_each(|(sum, x)| *sum += x.as_f64());
        }
        out.iter_mut().zip(sums).for_each(|(x, sum)| *x = T::from_f64(*sum));
    });
}

/// out = X·B for X rows × cols in row order, B cols × k and out rows × k.
pub fn mul<T: Real>(x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![first..first + out.nrows(), ..]);
        tall_skinny::mul(&x, b, &mut out);
    });
}

/// out = X_S·B for selected rows S of X, B cols × k and out |S| × k.
pub(super) fn rows_mul<T: Real>(x: &ArrayView2<T>, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    over_rows(out, &|first, mut out| {
        let rows = &rows[first..first + out.nrows()];
        // Consecutive rows are one product.
        let mut from = 0;
        while from < rows.len() {
            let run = rows[from..].iter().enumerate().take_while(|&(i, &row)| row == rows[from] + i).count();
            let part = x.slice(s![rows[from]..rows[from] + run, ..]);
            tall_skinny::mul(&part, b, &mut out.slice_mut(s![from..from + run, ..]));
            from += run;
        }
    });
}

/// out = XᵀU for X rows × cols in row order, U rows × k and out cols × k.
pub fn tmul<T: Real>(x: &ArrayView2<T>, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    rows_tmul(x, RowSelection::All, u, false, out);
}

/// out = (X_S)ᵀU for selected rows S of X, U |S| × k and out cols × k; with `add`, out += (X_S)ᵀU.
pub(super) fn rows_tmul<T: Real>(
    x: &ArrayView2<T>,
    rows: RowSelection,
    u: &ArrayView2<T>,
    add: bool,
    out: &mut ArrayViewMut2<T>,
) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![.., first..first + out.nrows()]);
        tall_skinny::tmul(&x, rows, u, add, &mut out);
    });
}
