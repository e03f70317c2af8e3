//! Products of a dense block with thin factors, by loops of our own.
//!
//! MKL reaches two thirds to three quarters of the machine's peak with a factor of some ten columns. Here a register
//! tile of accumulators is filled from panels that stay in the caches, cut so that no number of columns wastes lanes:
//!
//! * X·B: rows of X and columns of B are both contiguous along the inner dimension, so vectors run along it, an
//!   accumulator is a vector of partial sums of one entry, and is added up when all of a panel has gone by. X is read in
//!   place, once.
//! * XᵀU: vectors run along the rows of X, entries of U are broadcast. The rows may be all, or those that a sketch has
//!   chosen. Pieces of some rows at a time are used for all columns, and the next are asked for meanwhile: no hardware
//!   foresees where they are.

use ndarray::{ArrayView2, ArrayViewMut1, ArrayViewMut2, s};
use pulp::bytemuck::cast_slice;
use pulp::{Simd, WithSimd};

use super::mkl::prefetch;
use super::simd::{dispatch, lanes};
use super::threads::even_part;
use super::{Real, flops};

/// Bytes of the panel of B in X·B: most of a usual second-level cache.
const PANEL_BYTES: usize = 640 << 10;
/// Bytes of one row's piece in X·B that is used for all columns before the next: a register tile's rows stay in the
/// first-level cache.
const PIECE_BYTES: usize = 2 << 10;
/// Rows of X·B that are written at a time: the result has its columns contiguous.
const PANEL_ROWS: usize = 60;
/// Rows of a tile in XᵀU.
const TILE_ROWS: usize = 64;
/// Bytes of a tile and of the sums beside it in XᵀU: most of a usual second-level cache.
const TILE_BYTES: usize = 768 << 10;

/// out = X·B for X rows × n with contiguous rows, B n × k, out rows × k (fastest with contiguous columns).
pub(super) fn mul<T: Real>(x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    assert!(b.nrows() == x.ncols() && out.dim() == (x.nrows(), b.ncols()), "shapes of a product");
    if x.ncols() == 0 || out.is_empty() {
        return out.fill(T::zero());
    }
    flops::count(2 * x.len() * b.ncols());
    T::with_buffer(|buffer| dispatch(Mul { x, b, out, buffer }));
}

/// Which rows of X take part in XᵀU.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    All,
    Chosen(&'a [usize]),
}

impl Rows<'_> {
    #[inline(always)]
    fn at(self, place: usize) -> usize {
        match self {
            Rows::All => place,
            Rows::Chosen(rows) => rows[place],
        }
    }
}

/// out = (X_S)ᵀU for the rows S of X (rows × cols, its rows contiguous), U |S| × k, out cols × k (fastest with
/// contiguous columns); with `add` out += that.
pub(super) fn tmul<T: Real>(x: &ArrayView2<T>, rows: Rows, u: &ArrayView2<T>, add: bool, out: &mut ArrayViewMut2<T>) {
    assert!(out.dim() == (x.ncols(), u.ncols()), "shapes of a transposed product");
    assert!(u.nrows() == if let Rows::Chosen(rows) = rows { rows.len() } else { x.nrows() }, "rows of a product");
    if u.is_empty() || out.is_empty() {
        if !add {
            out.fill(T::zero());
        }
        return;
    }
    flops::count(2 * u.len() * x.ncols());
    T::with_buffer(|buffer| dispatch(Tmul { x, rows, u, add, out, buffer }));
}

/// 0..k as (first, size) of blocks of at most `most`, of nearly equal size.
#[inline(always)]
fn blocks(k: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = k.div_ceil(most);
    (0..count).map(move |i| {
        let part = even_part(k, count, i);
        (part.start, part.len())
    })
}

/// `length` elements of a buffer that begin at a cache line.
#[inline(always)]
fn lined<T: Real>(buffer: &mut Vec<T>, length: usize) -> &mut [T] {
    let line = 64 / size_of::<T>();
    if buffer.len() < length + line {
        buffer.resize(length + line, T::zero());
    }
    let start = buffer.as_ptr().align_offset(64).min(line);
    &mut buffer[start..start + length]
}

/// Overwrites a piece of a column with the first of `from`, or adds them.
#[inline(always)]
fn write<T: Real>(mut column: ArrayViewMut1<T>, from: &[T], add: bool) {
    let put = |(to, &from): (&mut T, &T)| *to = if add { *to + from } else { from };
    match column.as_slice_mut() {
        Some(column) => column.iter_mut().zip(from).for_each(put),
        None => column.iter_mut().zip(from).for_each(put),
    }
}

struct Mul<'a, 'b, 'c, T> {
    x: &'a ArrayView2<'b, T>,
    b: &'a ArrayView2<'b, T>,
    out: &'a mut ArrayViewMut2<'c, T>,
    buffer: &'a mut Vec<T>,
}

/// sum[r][c] += rows[r] · (column c of b), lane by lane.
#[inline(always)]
fn dots<T: Real, S: Simd, const R: usize, const C: usize>(
    s: S,
    rows: [&[T::Vector<S>]; R],
    b: &[T::Vector<S>],
    sum: &mut [T::Vector<S>],
) {
    let b = b.as_chunks::<C>().0;
    let len = b.len();
    let rows = rows.map(|row| &row[..len]);
    let sum: &mut [[T::Vector<S>; C]; R] = sum.as_chunks_mut::<C>().0.try_into().expect("R rows of sums");
    let mut total = *sum;
    for (t, b) in b.iter().enumerate() {
        for r in 0..R {
            let x = rows[r][t];
            for c in 0..C {
                total[r][c] = T::mul_add_v(s, x, b[c], total[r][c]);
            }
        }
    }
    *sum = total;
}

impl<T: Real> WithSimd for Mul<'_, '_, '_, T> {
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

impl<T: Real> Mul<'_, '_, '_, T> {
    /// Register tiles of R rows and at most `columns` columns.
    #[inline(always)]
    fn run<S: Simd, const R: usize>(self, s: S, columns: usize) {
        let lanes = lanes::<T, S>();
        let ((rows, n), k) = (self.x.dim(), self.b.ncols());
        let vectors = n.div_ceil(lanes);
        let panels = (vectors * k * lanes * size_of::<T>()).div_ceil(PANEL_BYTES).min(vectors);
        let longest = vectors.div_ceil(panels);
        let piece = PIECE_BYTES / size_of::<T::Vector<S>>();
        let line = 64 / size_of::<T>();
        let (panel_size, sums_size) =
            ((longest * k * lanes).next_multiple_of(line), (R * k * lanes).next_multiple_of(line));

        let buffer = lined(self.buffer, panel_size + sums_size + PANEL_ROWS * k);
        let (packed, buffer) = buffer.split_at_mut(panel_size);
        let (sums, done) = buffer.split_at_mut(sums_size);
        for p in 0..panels {
            let panel = even_part(vectors, panels, p);
            let (start, end) = (panel.start * lanes, (panel.end * lanes).min(n));
            pack_panel(&self.b.slice(s![start..end, ..]), lanes, piece, columns, packed);
            let packed = T::vectors::<S>(packed).0;
            for top in (0..rows).step_by(PANEL_ROWS) {
                let height = PANEL_ROWS.min(rows - top);
                for first in (0..height).step_by(R) {
                    let sums = &mut T::vectors_mut::<S>(sums).0[..R * k];
                    sums.fill(T::splat_v(s, T::zero()));
                    // Missing rows at the end are the last one again.
                    let row = |i: usize| &self.x.row(i.min(rows - 1)).to_slice().unwrap_or_default()[start..end];
                    let rows: [&[T]; R] = std::array::from_fn(|r| row(top + (first + r).min(height - 1)));
                    let next: [&[T]; R] = std::array::from_fn(|r| row(top + first + R + r));
                    let whole = rows.map(|row| T::vectors::<S>(row).0);
                    let rest = rows.map(|row| [T::load_short(s, T::vectors::<S>(row).1)]);
                    let mut at = 0;
                    for from in (0..whole[0].len()).step_by(piece) {
                        let to = (from + piece).min(whole[0].len());
                        let next = next.map(|row| &row[from * lanes..to * lanes]);
                        at +=
                            tiles::<T, S, R>(s, whole.map(|row| &row[from..to]), next, &packed[at..], k, columns, sums);
                    }
                    if whole[0].len() < panel.len() {
                        let rest = rest.each_ref().map(|row| &row[..]);
                        tiles::<T, S, R>(s, rest, [&[]; R], &packed[at..], k, columns, sums);
                    }
                    for (c, size) in blocks(k, columns) {
                        for (r, sums) in sums[c * R..(c + size) * R].chunks_exact(size).enumerate() {
                            for (i, &sum) in sums.iter().enumerate() {
                                if first + r < height {
                                    done[(c + i) * PANEL_ROWS + first + r] = T::sum_v(s, sum);
                                }
                            }
                        }
                    }
                }
                for (c, done) in done.chunks_exact(PANEL_ROWS).enumerate() {
                    write(self.out.slice_mut(s![top..top + height, c]), &done[..height], p > 0);
                }
            }
        }
    }
}

/// All register tiles of R rows of a piece, while those of the `next` rows are brought near; how many vectors of
/// `packed` that took.
#[inline(always)]
fn tiles<T: Real, S: Simd, const R: usize>(
    s: S,
    rows: [&[T::Vector<S>]; R],
    next: [&[T]; R],
    packed: &[T::Vector<S>],
    k: usize,
    columns: usize,
    sums: &mut [T::Vector<S>],
) -> usize {
    let len = rows[0].len();
    for (c, size) in blocks(k, columns) {
        for next in next {
            prefetch(&next[next.len() * c / k..next.len() * (c + size) / k]);
        }
        let b = &packed[c * len..(c + size) * len];
        let sums = &mut sums[c * R..(c + size) * R];
        match size {
            1 => dots::<T, S, R, 1>(s, rows, b, sums),
            2 => dots::<T, S, R, 2>(s, rows, b, sums),
            3 => dots::<T, S, R, 3>(s, rows, b, sums),
            4 => dots::<T, S, R, 4>(s, rows, b, sums),
            _ => dots::<T, S, R, 5>(s, rows, b, sums),
        }
    }
    k * len
}

/// Rows of B as [`tiles`] reads them: for each piece, for each block of columns, for each vector of rows those of the
/// block's columns. A last vector that is not whole makes a piece of its own, filled up with zeros.
#[inline(always)]
fn pack_panel<T: Real>(b: &ArrayView2<T>, lanes: usize, piece: usize, columns: usize, packed: &mut [T]) {
    let (n, k) = b.dim();
    let whole = n - n % lanes;
    let mut at = 0;
    let pieces = (0..whole).step_by(piece * lanes).map(|i| (i, (i + piece * lanes).min(whole)));
    for (from, to) in pieces.chain((whole < n).then_some((whole, n))) {
        let length = (to - from).next_multiple_of(lanes);
        for (first, size) in blocks(k, columns) {
            for c in 0..size {
                let column = b.slice(s![from..to, first + c]);
                let places = packed[at + first * length..][..length * size].chunks_exact_mut(lanes);
                let places = places.skip(c).step_by(size);
                match column.to_slice() {
                    Some(column) if length == column.len() => {
                        places.zip(column.chunks_exact(lanes)).for_each(|(to, from)| to.copy_from_slice(from));
                    }
                    _ => {
                        let filled = column.iter().copied().chain(std::iter::repeat(T::zero()));
                        places.flatten().zip(filled).for_each(|(to, from)| *to = from);
                    }
                }
            }
        }
        at += k * length;
    }
}

struct Tmul<'a, 'b, 'c, T> {
    x: &'a ArrayView2<'b, T>,
    rows: Rows<'a>,
    u: &'a ArrayView2<'b, T>,
    add: bool,
    out: &'a mut ArrayViewMut2<'c, T>,
    buffer: &'a mut Vec<T>,
}

impl<T: Real> WithSimd for Tmul<'_, '_, '_, T> {
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

/// sum[c] += u[i][c] · (V vectors of rows[i] from `at` on) over the rows of a tile, for C columns.
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

impl<T: Real> Tmul<'_, '_, '_, T> {
    /// Register tiles of at most V vectors and `columns` columns.
    #[inline(always)]
    fn run<S: Simd, const V: usize>(self, s: S, columns: usize) {
        let lanes = lanes::<T, S>();
        let (cols, (count, k)) = (self.x.ncols(), self.u.dim());
        let vectors = cols.div_ceil(lanes);
        // Whole register tiles but at the end.
        let most = (TILE_BYTES / ((TILE_ROWS + k) * size_of::<T::Vector<S>>())).max(V);
        let strip = vectors.div_ceil(vectors.div_ceil(most)).next_multiple_of(V);
        let line = 64 / size_of::<T>();
        let sums_size = (strip * k * lanes).next_multiple_of(line);
        let buffer = lined(self.buffer, sums_size + TILE_ROWS * (k.next_multiple_of(line) + lanes));
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
                // Meanwhile the next rows come near, a few cache lines at a time.
                let ahead = TILE_ROWS.min(count - top - height) * (to - from);
                let mut asked = 0;
                for (first, v) in stripes::<V>(to - from, lanes) {
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
                    for (c, size) in blocks(k, columns) {
                        let wanted = ahead * (first * k + v * (c + size)) / (width * k);
                        while asked < wanted {
                            let (i, j) = (asked / (to - from), asked % (to - from));
                            let piece = (wanted - asked).min(to - from - j);
                            prefetch(&row(top + height + i)[j..j + piece]);
                            asked += piece;
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
                for (first, v) in stripes::<V>(to - from, lanes) {
                    let (start, end) = (from + first * lanes, (from + (first + v) * lanes).min(to));
                    let sum: &[T] = cast_slice(&sums[first * k + c * v..][..v]);
                    write(self.out.slice_mut(s![start..end, c]), &sum[..end - start], self.add);
                }
            }
        }
    }
}

/// The register tiles along a row of `length` elements as (first vector, number of vectors): as many of V vectors as
/// there are, one of the whole vectors that are left, one of the rest.
#[inline(always)]
fn stripes<const V: usize>(length: usize, lanes: usize) -> impl Iterator<Item = (usize, usize)> {
    let whole = length / lanes;
    let rest = (!length.is_multiple_of(lanes)).then_some((whole, 1));
    (0..whole).step_by(V).map(move |first| (first, V.min(whole - first))).chain(rest)
}

/// The rows of U as [`outer`] reads them: for each block of columns row after row.
#[inline(always)]
fn pack_columns<T: Real>(u: &ArrayView2<T>, columns: usize, packed: &mut [T]) {
    let (height, k) = u.dim();
    for (first, size) in blocks(k, columns) {
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
