//! Native kernels of the sparse products: a strip of columns of the factor is held in vector registers while the kernel
//! walks the nonzeros of a row.

use pulp::{Simd, WithSimd};

use super::csr_matrix::CsrMatrix;
use super::memory::{CACHE_LINE, prefetch_line};
use super::real::Real;
use super::simd::{dispatch_along, lanes, load, store};

/// Largest number of vectors in a strip: the accumulators, or the row that is scattered, take half of the registers.
#[inline(always)]
fn max_vectors<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 { 16 } else { 8 }
}

/// Consecutive columns `first ..` of the factors, covered by vectors; the last vector may overlap the one before it.
#[derive(Clone, Copy)]
struct ColumnStrip {
    first: usize,
    /// Start of the last vector.
    tail: usize,
    /// Number of columns in which the last vector overlaps the one before it.
    overlap: usize,
}

impl ColumnStrip {
    /// Prefetches this strip, of `HEAD` vectors and the last one, of the row of a factor that starts at `row`.
    #[inline(always)]
    fn prefetch<T: Real, S: Simd, const HEAD: usize>(self, row: *const T) {
        for n in (0..HEAD).step_by((CACHE_LINE / size_of::<T::Vector<S>>()).max(1)) {
            prefetch_line(row.wrapping_add(self.first + n * lanes::<T, S>()));
        }
        prefetch_line(row.wrapping_add(self.tail));
    }
}

/// Strips that cover k ≥ `lanes` columns, each with its number of vectors: nearly equal, at most `max`.
#[inline(always)]
fn strips(k: usize, lanes: usize, max: usize) -> impl Iterator<Item = (ColumnStrip, usize)> {
    let vectors = k.div_ceil(lanes);
    let count = vectors.div_ceil(max);
    let (size, longer) = (vectors / count, vectors % count);
    (0..count).map(move |c| {
        let (start, n) = (c * size + c.min(longer), size + usize::from(c < longer));
        let last = (start + n - 1) * lanes;
        let tail = last.min(k - lanes);
        (ColumnStrip { first: start * lanes, tail, overlap: last - tail }, n)
    })
}

/// out = X·B for the rows `first ..` of X, as many as out has; B is cols × k, out rows × k, both row-major.
pub(super) fn mul<T: Real>(x: &CsrMatrix<T>, first: usize, b: &[T], k: usize, out: &mut [T]) {
    assert!(b.len() == x.cols() * k && out.len() <= (x.rows() - first) * k, "shapes of a sparse product");
    if k > 0 {
        dispatch_along(k * size_of::<T>(), CsrMul { x, first, b, k, out });
    }
}

/// out += (X_S)ᵀB for selected rows S of X; B is |S| × k, out cols × k, both row-major.
pub(super) fn rows_tmul<T: Real>(
    x: &CsrMatrix<T>,
    rows: impl Iterator<Item = usize> + Clone,
    b: &[T],
    k: usize,
    out: &mut [T],
) {
    assert!(b.len().is_multiple_of(k.max(1)) && out.len() == x.cols() * k, "shapes of a transposed sparse product");
    if k > 0 {
        dispatch_along(k * size_of::<T>(), CsrScatter { x, rows, b, k, out });
    }
}

/// Prefetch distance in nonzeros: rows of the factor come from the third-level cache or from memory.
const AHEAD: usize = 12;

/// The column indices and values of row i, each with the column index [`AHEAD`] nonzeros later.
#[inline(always)]
fn nonzeros_ahead<T: Real>(x: &CsrMatrix<T>, i: usize) -> impl Iterator<Item = ((usize, &T), usize)> {
    let starts = x.indptr().into_raw_storage();
    let later = x.indices().get(starts[i] + AHEAD..).unwrap_or_default();
    // At the end of the matrix the indices of the row itself serve: prefetching them is harmless.
    let later = if later.len() < starts[i + 1] - starts[i] { &x.indices()[starts[i]..] } else { later };
    nonzeros(x, i).zip(later.iter().map(|&j| j as usize))
}

/// The column indices and values of row i.
#[inline(always)]
fn nonzeros<T: Real>(x: &CsrMatrix<T>, i: usize) -> impl Iterator<Item = (usize, &T)> {
    let starts = x.indptr().into_raw_storage();
    let range = starts[i]..starts[i + 1];
    x.indices()[range.clone()].iter().map(|&j| j as usize).zip(&x.data()[range])
}

/// Calls `strip` for every strip, with its number of vectors before the last one as a constant.
macro_rules! each_strip {
    ($kernel:ident, $s:ident, $($head:literal)*) => {
        for (strip, vectors) in strips($kernel.k, lanes::<T, S>(), max_vectors::<S>()) {
            match vectors - 1 {
                $($head => $kernel.strip::<S, $head>($s, strip),)*
                _ => unreachable!("a strip has at most 16 vectors"),
            }
        }
    };
}

struct CsrMul<'a, T: Real> {
    x: &'a CsrMatrix<T>,
    first: usize,
    b: &'a [T],
    k: usize,
    out: &'a mut [T],
}

impl<T: Real> WithSimd for CsrMul<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        if self.k < lanes::<T, S>() {
            return self.narrow(s);
        }
        each_strip!(self, s, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
}

impl<T: Real> CsrMul<'_, T> {
    /// A strip of `HEAD` vectors and the last one.
    #[inline(always)]
    fn strip<S: Simd, const HEAD: usize>(&mut self, s: S, strip: ColumnStrip) {
        let (k, lanes) = (self.k, lanes::<T, S>());
        let width = HEAD * lanes;
        let zero = T::splat_v(s, T::zero());
        for (i, out) in self.out.chunks_exact_mut(k).enumerate() {
            let (mut head, mut tail) = ([zero; HEAD], zero);
            for ((j, &value), next) in nonzeros_ahead(self.x, self.first + i) {
                strip.prefetch::<T, S, HEAD>(self.b.as_ptr().wrapping_add(next * k));
                let value = T::splat_v(s, value);
                let row = &self.b[j * k..(j + 1) * k];
                let from = T::vectors::<S>(&row[strip.first..strip.first + width]).0;
                for n in 0..HEAD {
                    head[n] = T::mul_add_v(s, value, from[n], head[n]);
                }
                tail = T::mul_add_v(s, value, load::<T, S>(&row[strip.tail..]), tail);
            }
            T::vectors_mut::<S>(&mut out[strip.first..strip.first + width]).0.copy_from_slice(&head);
            store::<T, S>(&mut out[strip.tail..], tail);
        }
    }

    /// Fewer columns than a vector has lanes.
    #[inline(always)]
    fn narrow<S: Simd>(self, s: S) {
        for (i, out) in self.out.chunks_exact_mut(self.k).enumerate() {
            let mut sum = T::splat_v(s, T::zero());
            for (j, &value) in nonzeros(self.x, self.first + i) {
                let row = T::load_short(s, &self.b[j * self.k..(j + 1) * self.k]);
                sum = T::mul_add_v(s, T::splat_v(s, value), row, sum);
            }
            T::store_short(s, out, sum);
        }
    }
}

struct CsrScatter<'a, T: Real, I> {
    x: &'a CsrMatrix<T>,
    rows: I,
    b: &'a [T],
    k: usize,
    out: &'a mut [T],
}

impl<T: Real, I: Iterator<Item = usize> + Clone> WithSimd for CsrScatter<'_, T, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        if self.k < lanes::<T, S>() {
            return self.narrow(s);
        }
        each_strip!(self, s, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
}

impl<T: Real, I: Iterator<Item = usize> + Clone> CsrScatter<'_, T, I> {
    /// A strip of `HEAD` vectors and the last one.
    #[inline(always)]
    fn strip<S: Simd, const HEAD: usize>(&mut self, s: S, strip: ColumnStrip) {
        let (k, lanes) = (self.k, lanes::<T, S>());
        let width = HEAD * lanes;
        // Zeros where the last vector overlaps the one before it.
        let mut masked = [T::zero(); 64];
        for (i, u) in self.rows.clone().zip(self.b.chunks_exact(k)) {
            let head = T::vectors::<S>(&u[strip.first..strip.first + width]).0;
            let head: [T::Vector<S>; HEAD] = std::array::from_fn(|n| head[n]);
            masked[strip.overlap..lanes].copy_from_slice(&u[strip.tail + strip.overlap..strip.tail + lanes]);
            let tail = load::<T, S>(&masked);
            for ((j, &value), next) in nonzeros_ahead(self.x, i) {
                strip.prefetch::<T, S, HEAD>(self.out.as_ptr().wrapping_add(next * k));
                let value = T::splat_v(s, value);
                let row = &mut self.out[j * k..(j + 1) * k];
                // Everything is read before anything is written, and the last vector is written first: the overlap keeps
                // the values of the vector before it.
                let last = T::mul_add_v(s, value, tail, load::<T, S>(&row[strip.tail..]));
                let to = T::vectors::<S>(&row[strip.first..strip.first + width]).0;
                let new: [T::Vector<S>; HEAD] = std::array::from_fn(|n| T::mul_add_v(s, value, head[n], to[n]));
                store::<T, S>(&mut row[strip.tail..], last);
                T::vectors_mut::<S>(&mut row[strip.first..strip.first + width]).0.copy_from_slice(&new);
            }
        }
    }

    /// Fewer columns than a vector has lanes.
    #[inline(always)]
    fn narrow<S: Simd>(self, s: S) {
        let k = self.k;
        for (i, u) in self.rows.zip(self.b.chunks_exact(k)) {
            let u = T::load_short(s, u);
            for (j, &value) in nonzeros(self.x, i) {
                let row = &mut self.out[j * k..(j + 1) * k];
                let new = T::mul_add_v(s, T::splat_v(s, value), u, T::load_short(s, row));
                T::store_short(s, row, new);
            }
        }
    }
}
