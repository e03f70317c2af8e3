//! XᵀU, for all rows of X or for selected ones. Vectors run along the rows of X and entries of U are broadcast. A tile of
//! some rows is used for all columns while the next one is prefetched, since hardware cannot predict selected rows.

use ndarray::{ArrayView2, ArrayViewMut2, s};
use pulp::bytemuck::cast_slice;
use pulp::{Simd, WithSimd};

use super::panel::{aligned, column_blocks, write};
use crate::flops;
use crate::memory::prefetch;
use crate::real::Real;
use crate::simd::{dispatch, lanes};

/// Rows of a tile.
const TILE_ROWS: usize = 64;
/// Bytes of a tile and its sums: most of a typical second-level cache.
const TILE_BYTES: usize = 768 << 10;

/// The rows of X in a product.
#[derive(Clone, Copy)]
pub(crate) enum RowSelection<'a> {
    All,
    Listed(&'a [usize]),
}

impl RowSelection<'_> {
    #[inline(always)]
    fn at(self, place: usize) -> usize {
        match self {
            RowSelection::All => place,
            RowSelection::Listed(rows) => rows[place],
        }
    }
}

/// out = (X_S)ᵀU for selected rows S of X (rows × cols with contiguous rows), U |S| × k and out cols × k (fastest with
/// contiguous columns); with `add`, out += (X_S)ᵀU.
pub(crate) fn tmul<T: Real>(
    x: &ArrayView2<T>,
    rows: RowSelection,
    u: &ArrayView2<T>,
    add: bool,
    out: &mut ArrayViewMut2<T>,
) {
    assert!(out.dim() == (x.ncols(), u.ncols()), "shapes of a transposed product");
    assert!(
        u.nrows() == if let RowSelection::Listed(rows) = rows { rows.len() } else { x.nrows() },
        "rows of a product"
    );
    if u.is_empty() || out.is_empty() {
        if !add {
            out.fill(T::zero());
        }
        return;
    }
    flops::count(2 * u.len() * x.ncols());
    T::with_buffer(|buffer| dispatch(TmulKernel { x, rows, u, add, out, buffer }));
}

struct TmulKernel<'a, 'b, 'c, T> {
    x: &'a ArrayView2<'b, T>,
    rows: RowSelection<'a>,
    u: &'a ArrayView2<'b, T>,
    add: bool,
    out: &'a mut ArrayViewMut2<'c, T>,
    buffer: &'a mut Vec<T>,
}

impl<T: Real> WithSimd for TmulKernel<'_, '_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        if S::REGISTER_COUNT >= 32 {
            self.run::<S, 5>(s, 5);
        } else {
            self.run::<S, 3>(s, 4);
        }
    }
}

/// sum[c] += u[i][c] · (V vectors of rows[i] starting at `at`), over the rows of a tile, for C columns.
#[inline(always)]
fn outer<T: Real, S: Simd, const V: usize, const C: usize>(
    s: S,
    rows: &[&[T]],
    at: usize,
    u: &[T],
    sum: &mut [T::Vector<S>],
) {
    let sum: &mut [[T::Vector<S>; V]; C] = sum.as_chunks_mut::<V>().0.try_into().expect("C columns of sums");
    let mut total = *sum;
    for (row, u) in rows.iter().zip(u.as_chunks::<C>().0) {
        let x = &T::vectors::<S>(&row[at..at + V * lanes::<T, S>()]).0.as_chunks::<V>().0[0];
        for c in 0..C {
            let u = T::splat_v(s, u[c]);
            for v in 0..V {
                total[c][v] = T::mul_add_v(s, u, x[v], total[c][v]);
            }
        }
    }
    *sum = total;
}

/// [`outer`] for a number of columns known at run time.
#[inline(always)]
fn outer_any<T: Real, S: Simd, const V: usize>(
    s: S,
    rows: &[&[T]],
    at: usize,
    u: &[T],
    size: usize,
    sum: &mut [T::Vector<S>],
) {
    match size {
        1 => outer::<T, S, V, 1>(s, rows, at, u, sum),
        2 => outer::<T, S, V, 2>(s, rows, at, u, sum),
        3 => outer::<T, S, V, 3>(s, rows, at, u, sum),
        4 => outer::<T, S, V, 4>(s, rows, at, u, sum),
        _ => outer::<T, S, V, 5>(s, rows, at, u, sum),
    }
}

impl<T: Real> TmulKernel<'_, '_, '_, T> {
    /// With register tiles of at most V vectors and `columns` columns.
    #[inline(always)]
    fn run<S: Simd, const V: usize>(self, s: S, columns: usize) {
        let lanes = lanes::<T, S>();
        let (cols, (count, k)) = (self.x.ncols(), self.u.dim());
        let vectors = cols.div_ceil(lanes);
        // A multiple of the register tile.
        let max = (TILE_BYTES / ((TILE_ROWS + k) * size_of::<T::Vector<S>>())).max(V);
        let strip = vectors.div_ceil(vectors.div_ceil(max)).next_multiple_of(V);
        let line = 64 / size_of::<T>();
        let sums_size = (strip * k * lanes).next_multiple_of(line);
        let buffer = aligned(self.buffer, sums_size + TILE_ROWS * (k.next_multiple_of(line) + lanes));
        let (sums, buffer) = buffer.split_at_mut(sums_size);
        let (tails, packed) = buffer.split_at_mut(TILE_ROWS * lanes);

        for start in (0..vectors).step_by(strip) {
            let width = strip.min(vectors - start);
            let (from, to) = (start * lanes, ((start + width) * lanes).min(cols));
            let row = |i: usize| &self.x.row(self.rows.at(i)).to_slice().unwrap_or_default()[from..to];
            let sums = &mut T::vectors_mut::<S>(sums).0[..width * k];
            sums.fill(T::splat_v(s, T::zero()));
            for top in (0..count).step_by(TILE_ROWS) {
                let height = TILE_ROWS.min(count - top);
                pack_columns(&self.u.slice(s![top..top + height, ..]), columns, packed);
                let mut rows: [&[T]; TILE_ROWS] = [&[]; TILE_ROWS];
                rows[..height].iter_mut().enumerate().for_each(|(i, to)| *to = row(top + i));
                // The next tile is prefetched a few cache lines at a time.
                let ahead = TILE_ROWS.min(count - top - height) * (to - from);
                let mut prefetched = 0;
                for (first, v) in register_tiles::<V>(to - from, lanes) {
                    let mut now = &rows[..height];
                    let mut at = first * lanes;
                    let short: [&[T]; TILE_ROWS];
                    if at + v * lanes > to - from {
                        for (to, row) in tails.chunks_exact_mut(lanes).zip(now) {
                            to.fill(T::zero());
                            to[..row.len() - at].copy_from_slice(&row[at..]);
                        }
                        short = std::array::from_fn(|i| &tails[i * lanes..(i + 1) * lanes]);
                        (now, at) = (&short[..height], 0);
                    }
                    for (c, size) in column_blocks(k, columns) {
                        let wanted = ahead * (first * k + v * (c + size)) / (width * k);
                        while prefetched < wanted {
                            let (i, j) = (prefetched / (to - from), prefetched % (to - from));
                            let piece = (wanted - prefetched).min(to - from - j);
                            prefetch(&row(top + height + i)[j..j + piece]);
                            prefetched += piece;
                        }
                        let u = &packed[c * height..(c + size) * height];
                        let sum = &mut sums[first * k + c * v..][..size * v];
                        match v {
                            1 => outer_any::<T, S, 1>(s, now, at, u, size, sum),
                            2 => outer_any::<T, S, 2>(s, now, at, u, size, sum),
                            3 => outer_any::<T, S, 3>(s, now, at, u, size, sum),
                            4 => outer_any::<T, S, 4>(s, now, at, u, size, sum),
                            _ => outer_any::<T, S, 5>(s, now, at, u, size, sum),
                        }
                    }
                }
            }
            for c in 0..k {
                for (first, v) in register_tiles::<V>(to - from, lanes) {
                    let (start, end) = (from + first * lanes, (from + (first + v) * lanes).min(to));
                    let sum: &[T] = cast_slice(&sums[first * k + c * v..][..v]);
                    write(self.out.slice_mut(s![start..end, c]), &sum[..end - start], self.add);
                }
            }
        }
    }
}

/// The register tiles along a row of `length` elements, as (first vector, number of vectors): tiles of V vectors, one of
/// the remaining whole vectors, one of a partial vector.
#[inline(always)]
fn register_tiles<const V: usize>(length: usize, lanes: usize) -> impl Iterator<Item = (usize, usize)> {
    let whole = length / lanes;
    let rest = (!length.is_multiple_of(lanes)).then_some((whole, 1));
    (0..whole).step_by(V).map(move |first| (first, V.min(whole - first))).chain(rest)
}

/// Packs rows of U in the order in which [`outer`] reads them: by block of columns, by row.
#[inline(always)]
fn pack_columns<T: Real>(u: &ArrayView2<T>, columns: usize, packed: &mut [T]) {
    let (height, k) = u.dim();
    for (first, size) in column_blocks(k, columns) {
        for c in 0..size {
            let column = u.column(first + c);
            let places = packed[first * height..(first + size) * height].iter_mut().skip(c).step_by(size);
            match column.to_slice() {
                Some(column) => places.zip(column).for_each(|(to, &from)| *to = from),
                None => places.zip(column).for_each(|(to, &from)| *to = from),
            }
        }
    }
}
