//! A·B for a tall A and a wide B: a tile of a fit. Vectors run along the rows of B, and entries of A are broadcast.

use ndarray::{ArrayView2, ArrayViewMut2};
use pulp::{Simd, WithSimd};

use super::panel::aligned;
use crate::flops;
use crate::real::Real;
use crate::simd::{dispatch, lanes};

/// out = A·B for A p × k, B k × q and out p × q, all with contiguous rows.
pub(crate) fn outer<T: Real>(a: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    assert!(a.ncols() == b.nrows() && out.dim() == (a.nrows(), b.ncols()), "shapes of a product");
    flops::count(2 * a.len() * b.ncols());
    T::with_buffer(|buffer| dispatch(OuterKernel { a, b, out, buffer }));
}

struct OuterKernel<'a, 'b, 'c, T> {
    a: &'a ArrayView2<'b, T>,
    b: &'a ArrayView2<'b, T>,
    out: &'a mut ArrayViewMut2<'c, T>,
    buffer: &'a mut Vec<T>,
}

impl<T: Real> WithSimd for OuterKernel<'_, '_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        if S::REGISTER_COUNT >= 32 {
            self.run::<S, 5, 5>(s);
        } else {
            self.run::<S, 4, 3>(s);
        }
    }
}

/// The products of R rows with a panel of B, V vectors of each row.
#[inline(always)]
fn products<T: Real, S: Simd, const R: usize, const V: usize>(
    s: S,
    rows: [&[T]; R],
    panel: &[[T::Vector<S>; V]],
) -> [[T::Vector<S>; V]; R] {
    let rows = rows.map(|row| &row[..panel.len()]);
    let mut sums = [[T::splat_v(s, T::zero()); V]; R];
    for (l, b) in panel.iter().enumerate() {
        for r in 0..R {
            let a = T::splat_v(s, rows[r][l]);
            for v in 0..V {
                sums[r][v] = T::mul_add_v(s, a, b[v], sums[r][v]);
            }
        }
    }
    sums
}

impl<T: Real> OuterKernel<'_, '_, '_, T> {
    /// With register tiles of R rows and V vectors.
    #[inline(always)]
    fn run<S: Simd, const R: usize, const V: usize>(self, s: S) {
        let OuterKernel { a, b, out, buffer } = self;
        let ((p, k), width) = (a.dim(), V * lanes::<T, S>());
        let panel = aligned(buffer, k * width);
        let row = |i: usize| a.row(i.min(p - 1)).to_slice().expect("contiguous rows");
        for from in (0..b.ncols()).step_by(width) {
            let to = (from + width).min(b.ncols());
            for (panel, row) in panel.chunks_exact_mut(width).zip(b.rows()) {
                let (filled, rest) = panel.split_at_mut(to - from);
                filled.copy_from_slice(&row.to_slice().expect("contiguous rows")[from..to]);
                rest.fill(T::zero());
            }
            let panel = T::vectors::<S>(panel).0.as_chunks::<V>().0;
            for first in (0..p).step_by(R) {
                // The last row stands in for rows past the end.
                let found = products::<T, S, R, V>(s, std::array::from_fn(|r| row(first + r)), panel);
                for (r, found) in found.iter().enumerate().take(p - first) {
                    let mut out = out.row_mut(first + r);
                    let out = &mut out.as_slice_mut().expect("contiguous rows")[from..to];
                    let (whole, rest) = T::vectors_mut::<S>(out);
                    let vectors = whole.len();
                    whole.copy_from_slice(&found[..vectors]);
                    if let Some(&last) = found.get(vectors) {
                        T::store_short(s, rest, last);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::random::{Purpose, Stream, uniform_factor};
    use crate::simd::with_each_arch;

    fn check<T: Real>((p, k, q): (usize, usize, usize)) {
        let random = |i, rows, columns| uniform_factor::<T>(&Stream::new(i, Purpose::Probe, 0), 0..rows, columns, 1.0);
        let (a, b) = (random(1, p, k), random(2, k, q));
        let mut out = Array2::from_elem((p, q), T::from_f64(f64::NAN));
        outer(&a.view(), &b.view(), &mut out.view_mut());
        let error = (&out - &a.dot(&b)).iter().fold(0.0, |most: f64, e| most.max(e.as_f64().abs()));
        assert!(error <= 1e2 * T::epsilon().as_f64() * k as f64, "{p} {k} {q}: {error}");
    }

    #[test]
    fn products_are_those_of_the_definition() {
        let all = || {
            for shape in [(1, 1, 1), (3, 2, 7), (5, 4, 40), (13, 9, 41), (6, 1, 80), (161, 10, 403)] {
                check::<f64>(shape);
                check::<f32>(shape);
            }
            Ok::<(), ()>(())
        };
        with_each_arch(all).unwrap();
    }
}
