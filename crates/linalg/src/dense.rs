//! Products of dense blocks with tall-skinny factors, in parallel over rows of the result, and Gram matrices.

use ndarray::{ArrayView2, ArrayViewMut2, Axis, CowArray, Ix2, s};

use super::blas::gemm;
use super::context::options;
use super::kernel::ProductKernel;
use super::real::Real;
use super::simd::Lanes;
use super::tall_skinny::{self, RowSelection};
use super::threads::over_rows;

/// A dense block, rows × cols, row-major, which owns its entries or borrows those of a caller.
pub type Dense<T> = CowArray<'static, T, Ix2>;

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

/// out = X·B for row-major X rows × cols, B cols × k and out rows × k.
pub fn mul<T: Real>(x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    mul_by(options().kernels.mul, x, b, out);
}

fn mul_by<T: Real>(kernel: ProductKernel, x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![first..first + out.nrows(), ..]);
        match kernel {
            #[cfg(feature = "mkl")]
            ProductKernel::Mkl => gemm(T::one(), &x, b, T::zero(), &mut out),
            ProductKernel::Native => tall_skinny::mul(&x, b, &mut out),
        }
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

/// out = XᵀU for row-major X rows × cols, U rows × k and out cols × k.
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
    tmul_by(options().kernels.tmul, x, rows, u, add, out);
}

fn tmul_by<T: Real>(
    kernel: ProductKernel,
    x: &ArrayView2<T>,
    rows: RowSelection,
    u: &ArrayView2<T>,
    add: bool,
    out: &mut ArrayViewMut2<T>,
) {
    over_rows(out, &|first, mut out| {
        let x = x.slice(s![.., first..first + out.nrows()]);
        match (kernel, rows) {
            #[cfg(feature = "mkl")]
            (ProductKernel::Mkl, RowSelection::All) => {
                gemm(T::one(), &x.t(), u, if add { T::one() } else { T::zero() }, &mut out);
            }
            _ => tall_skinny::tmul(&x, rows, u, add, &mut out),
        }
    });
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::Order;

    #[test]
    fn all_kernels_compute_the_same_products() {
        let value = |i: usize, j: usize| ((7 * i + 3 * j) % 11) as f64 - 2.0;
        let x = Array2::from_shape_fn((37, 23), |(i, j)| value(i, j));
        for order in [Order::ColumnMajor, Order::RowMajor] {
            let (mut b, mut u) = (order.zeros(23, 5), order.zeros(37, 5));
            b.indexed_iter_mut().for_each(|((i, j), b)| *b = value(i + 1, j));
            u.indexed_iter_mut().for_each(|((i, j), u)| *u = value(i, j + 2));
            for &kernel in ProductKernel::ALL {
                let (mut xb, mut xu) = (order.zeros(37, 5), order.zeros(23, 5));
                mul_by(kernel, &x.view(), &b.view(), &mut xb.view_mut());
                // Added to the previous contents.
                xu.fill(1.0);
                tmul_by(kernel, &x.view(), RowSelection::All, &u.view(), true, &mut xu.view_mut());
                // The products of small whole numbers are exact.
                assert_eq!((xb, xu), (x.dot(&b), x.t().dot(&u) + 1.0), "{kernel:?}");
            }
        }
    }
}
