//! Native kernels of the sparse products: a strip of columns of the factor is held in vector registers while the kernel
//! walks the nonzeros of a row. Where there are enough nonzeros, the factor is first copied to strips whose rows are
//! aligned to cache lines and padded with zeros. Neither changes any bit of a result.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::csr_matrix::CsrMatrix;
use super::memory::{CACHE_LINE, prefetch_line};
use super::real::Real;
use super::simd::{dispatch_along, lanes, load, store};
use super::tall_skinny::aligned;

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

/// Strips that cover k columns, each with its number of vectors: nearly equal, at most `max`. For k < `lanes` the only
/// vector is longer than the strip.
#[inline(always)]
fn strips(k: usize, lanes: usize, max: usize) -> impl Iterator<Item = (ColumnStrip, usize)> {
    let vectors = k.div_ceil(lanes);
    let count = vectors.div_ceil(max);
    let (size, longer) = (vectors / count, vectors % count);
    (0..count).map(move |c| {
        let (start, n) = (c * size + c.min(longer), size + usize::from(c < longer));
        let last = (start + n - 1) * lanes;
        let tail = last.min(k.saturating_sub(lanes));
        (ColumnStrip { first: start * lanes, tail, overlap: last - tail }, n)
    })
}

/// out = X·B for the rows `first ..` of X, as many as out has; B is cols × k, out rows × k, both row-major. The entries
/// of X are converted to the precision of B.
pub(super) fn mul<X: Real, T: Real>(x: &CsrMatrix<X>, first: usize, b: &[T], k: usize, out: &mut [T]) {
    assert!(b.len() == x.cols() * k && out.len() <= (x.rows() - first) * k, "shapes of a sparse product");
    let Some(rows) = out.len().checked_div(k) else { return };
    let starts = x.indptr().into_raw_storage();
    let packed = worth_packing(starts[first + rows] - starts[first], x.cols(), k * size_of::<T>());
    T::with_buffer(|buffer| dispatch_along(k * size_of::<T>(), CsrMul { x, first, b, k, out, packed, buffer }));
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
        let starts = x.indptr().into_raw_storage();
        let nonzeros: usize = rows.clone().map(|i| starts[i + 1] - starts[i]).sum();
        let packed = worth_packing(nonzeros, x.cols(), k * size_of::<T>());
        T::with_buffer(|buffer| dispatch_along(k * size_of::<T>(), CsrScatter { x, rows, b, k, out, packed, buffer }));
    }
}

/// Largest size of a copied factor, of which each thread has one, so that estimates of memory need not know of it.
const PACKED_BYTES: usize = 32 << 20;

/// Whether a product with this many nonzeros is worth a copy of the factor for the columns, with rows of `bytes` bytes.
fn worth_packing(nonzeros: usize, columns: usize, bytes: usize) -> bool {
    nonzeros >= 8 * columns && columns * bytes.next_multiple_of(CACHE_LINE) <= PACKED_BYTES
}

/// N vectors of a row of at most as many numbers; the last one is filled up with zeros.
#[inline(always)]
fn load_row<T: Real, S: Simd, const N: usize>(s: S, row: &[T]) -> [T::Vector<S>; N] {
    let (whole, rest) = T::vectors::<S>(row);
    std::array::from_fn(|n| if n < whole.len() { whole[n] } else { T::load_short(s, rest) })
}

/// The inverse of [`load_row`].
#[inline(always)]
fn store_row<T: Real, S: Simd, const N: usize>(s: S, row: &mut [T], from: &[T::Vector<S>; N]) {
    let (whole, rest) = T::vectors_mut::<S>(row);
    for n in 0..N {
        match whole.get_mut(n) {
            Some(to) => *to = from[n],
            None => T::store_short(s, rest, from[n]),
        }
    }
}

/// Copies some columns of the `rows` rows of a factor (k columns) to a strip of N vectors.
#[inline(always)]
fn pack<'a, T: Real, S: Simd, const N: usize>(
    s: S,
    buffer: &'a mut Vec<T>,
    (factor, rows, k): (&[T], usize, usize),
    columns: &Range<usize>,
) -> &'a mut [[T::Vector<S>; N]] {
    let packed = T::vectors_mut::<S>(aligned(buffer, rows * N * lanes::<T, S>())).0.as_chunks_mut::<N>().0;
    for (to, row) in packed.iter_mut().zip(factor.chunks_exact(k)) {
        *to = load_row(s, &row[columns.clone()]);
    }
    packed
}

/// Prefetches a row of a packed strip, which may be past its end.
#[inline(always)]
fn prefetch_row<V, const N: usize>(rows: &[[V; N]], next: usize) {
    let row = rows.as_ptr().wrapping_add(next).cast::<V>();
    for n in (0..N).step_by((CACHE_LINE / size_of::<V>()).max(1)) {
        prefetch_line(row.wrapping_add(n));
    }
}

/// Prefetch distance in nonzeros: rows of the factor come from the third-level cache or from memory.
const AHEAD: usize = 16;

/// The column indices and values of row i, each with the column index [`AHEAD`] nonzeros later.
#[inline(always)]
pub(super) fn nonzeros_ahead<T: Real>(x: &CsrMatrix<T>, i: usize) -> impl Iterator<Item = ((usize, &T), usize)> {
    let starts = x.indptr().into_raw_storage();
    let later = x.indices().get(starts[i] + AHEAD..).unwrap_or_default();
    // At the end of the matrix the indices of the row itself serve: prefetching them is harmless.
    let later = if later.len() < starts[i + 1] - starts[i] { &x.indices()[starts[i]..] } else { later };
    nonzeros(x, i).zip(later.iter().map(|&j| j as usize))
}

/// Calls `f` with column indices and values of each `N` entries of row i, and with column indices [`AHEAD`] nonzeros later. If
/// entries are missing in the last ones, the first column there comes again with the value 0.
#[inline(always)]
pub(super) fn each_ahead<T: Real, const N: usize>(
    x: &CsrMatrix<T>,
    i: usize,
    mut f: impl FnMut([usize; N], [T; N], [usize; N]),
) {
    let starts = x.indptr().into_raw_storage();
    let mut later = x.indices().get(starts[i] + AHEAD..).unwrap_or_default();
    let (columns, rest) = x.indices()[starts[i]..starts[i + 1]].as_chunks::<N>();
    let (values, last) = x.data()[starts[i]..starts[i + 1]].as_chunks::<N>();
    let wide = |columns: &[i32; N]| std::array::from_fn(|n| columns[n] as usize);
    for (columns, values) in columns.iter().zip(values) {
        // At the end of the matrix the entries themselves serve: prefetching for them is harmless.
        f(wide(columns), *values, wide(later.first_chunk().unwrap_or(columns)));
        later = later.get(N..).unwrap_or_default();
    }
    if let Some(&first) = rest.first() {
        let (mut columns, mut values) = ([first; N], [T::zero(); N]);
        columns[..rest.len()].copy_from_slice(rest);
        values[..rest.len()].copy_from_slice(last);
        f(wide(&columns), values, wide(&columns));
    }
}

/// The column indices and values of row i.
#[inline(always)]
pub(super) fn nonzeros<T: Real>(x: &CsrMatrix<T>, i: usize) -> impl Iterator<Item = (usize, &T)> {
    let starts = x.indptr().into_raw_storage();
    let range = starts[i]..starts[i + 1];
    x.indices()[range.clone()].iter().map(|&j| j as usize).zip(&x.data()[range])
}

/// Calls a method for every strip, with its number of vectors, less `$less`, as a constant.
macro_rules! each_strip {
    ($kernel:ident, $s:ident, $method:ident, $less:literal, $($count:literal)*) => {
        for (strip, vectors) in strips($kernel.k, lanes::<T, S>(), max_vectors::<S>()) {
            match vectors - $less {
                $($count => $kernel.$method::<S, $count>($s, strip),)*
                _ => unreachable!("a strip has at most 16 vectors"),
            }
        }
    };
}

struct CsrMul<'a, X: Real, T: Real> {
    x: &'a CsrMatrix<X>,
    first: usize,
    b: &'a [T],
    k: usize,
    out: &'a mut [T],
    packed: bool,
    buffer: &'a mut Vec<T>,
}

impl<X: Real, T: Real> WithSimd for CsrMul<'_, X, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        if self.packed {
            each_strip!(self, s, packed, 0, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        } else if self.k < lanes::<T, S>() {
            self.narrow(s);
        } else {
            each_strip!(self, s, strip, 1, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    }
}

impl<X: Real, T: Real> CsrMul<'_, X, T> {
    /// A strip of N vectors, packed.
    #[inline(always)]
    fn packed<S: Simd, const N: usize>(&mut self, s: S, strip: ColumnStrip) {
        let k = self.k;
        let columns = strip.first..k.min(strip.first + N * lanes::<T, S>());
        let packed = pack::<T, S, N>(s, self.buffer, (self.b, self.x.cols(), k), &columns);
        for (i, out) in self.out.chunks_exact_mut(k).enumerate() {
            let mut sums = [T::splat_v(s, T::zero()); N];
            for ((j, &value), next) in nonzeros_ahead(self.x, self.first + i) {
                prefetch_row(packed, next);
                let (value, row) = (T::splat_v(s, T::from_f64(value.as_f64())), &packed[j]);
                for n in 0..N {
                    sums[n] = T::mul_add_v(s, value, row[n], sums[n]);
                }
            }
            store_row(s, &mut out[columns.clone()], &sums);
        }
    }

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
                let value = T::splat_v(s, T::from_f64(value.as_f64()));
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
    fn narrow<S: Simd>(&mut self, s: S) {
        for (i, out) in self.out.chunks_exact_mut(self.k).enumerate() {
            let mut sum = T::splat_v(s, T::zero());
            for (j, &value) in nonzeros(self.x, self.first + i) {
                let row = T::load_short(s, &self.b[j * self.k..(j + 1) * self.k]);
                sum = T::mul_add_v(s, T::splat_v(s, T::from_f64(value.as_f64())), row, sum);
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
    packed: bool,
    buffer: &'a mut Vec<T>,
}

impl<T: Real, I: Iterator<Item = usize> + Clone> WithSimd for CsrScatter<'_, T, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        if self.packed {
            each_strip!(self, s, packed, 0, 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
        } else if self.k < lanes::<T, S>() {
            self.narrow(s);
        } else {
            each_strip!(self, s, strip, 1, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
    }
}

impl<T: Real, I: Iterator<Item = usize> + Clone> CsrScatter<'_, T, I> {
    /// A strip of N vectors, packed.
    #[inline(always)]
    fn packed<S: Simd, const N: usize>(&mut self, s: S, strip: ColumnStrip) {
        let k = self.k;
        let columns = strip.first..k.min(strip.first + N * lanes::<T, S>());
        let packed = pack::<T, S, N>(s, self.buffer, (self.out, self.x.cols(), k), &columns);
        for (i, u) in self.rows.clone().zip(self.b.chunks_exact(k)) {
            let u: [T::Vector<S>; N] = load_row(s, &u[columns.clone()]);
            for ((j, &value), next) in nonzeros_ahead(self.x, i) {
                prefetch_row(packed, next);
                let (value, row) = (T::splat_v(s, value), &mut packed[j]);
                for n in 0..N {
                    row[n] = T::mul_add_v(s, value, u[n], row[n]);
                }
            }
        }
        for (from, row) in packed.iter().zip(self.out.chunks_exact_mut(k)) {
            store_row(s, &mut row[columns.clone()], from);
        }
    }

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
    fn narrow<S: Simd>(&mut self, s: S) {
        let k = self.k;
        for (i, u) in self.rows.clone().zip(self.b.chunks_exact(k)) {
            let u = T::load_short(s, u);
            for (j, &value) in nonzeros(self.x, i) {
                let row = &mut self.out[j * k..(j + 1) * k];
                let new = T::mul_add_v(s, T::splat_v(s, value), u, T::load_short(s, row));
                T::store_short(s, row, new);
            }
        }
    }
}
