//! X·B. Rows of X and columns of B are contiguous along the inner dimension, so vectors run along it: an accumulator is a
//! vector of partial sums of one entry, which is reduced at the end of a panel. X is read in place, once.

use ndarray::{ArrayView2, ArrayViewMut2, s};
use pulp::{Simd, WithSimd};

use super::panel::{aligned, column_blocks, write};
use crate::flops;
use crate::memory::prefetch;
use crate::real::Real;
use crate::simd::{dispatch, lanes};
use crate::threads::even_part;

/// Bytes of a panel of B: most of a typical second-level cache.
const PANEL_BYTES: usize = 640 << 10;
/// Bytes of the piece of a row that is used for all columns before the next piece: the rows of a register tile stay in
/// the first-level cache.
const PIECE_BYTES: usize = 2 << 10;
/// Rows of the result that are written at a time, since its columns are contiguous.
const PANEL_ROWS: usize = 60;

/// out = X·B for X rows × n with contiguous rows, B n × k, out rows × k (fastest with contiguous columns).
pub(crate) fn mul<T: Real>(x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
    assert!(b.nrows() == x.ncols() && out.dim() == (x.nrows(), b.ncols()), "shapes of a product");
    if x.ncols() == 0 || out.is_empty() {
        return out.fill(T::zero());
    }
    flops::count(2 * x.len() * b.ncols());
    T::with_buffer(|buffer| dispatch(MulKernel { x, b, out, buffer }));
}

struct MulKernel<'a, 'b, 'c, T> {
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

impl<T: Real> WithSimd for MulKernel<'_, '_, '_, T> {
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

impl<T: Real> MulKernel<'_, '_, '_, T> {
    /// With register tiles of R rows and at most `columns` columns.
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

        let buffer = aligned(self.buffer, panel_size + sums_size + PANEL_ROWS * k);
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
                    // The last row stands in for rows past the end.
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
                    for (c, size) in column_blocks(k, columns) {
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

/// Computes all register tiles of R rows of a piece and prefetches the `next` rows. Returns the number of vectors of
/// `packed` that were used.
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
    for (c, size) in column_blocks(k, columns) {
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

/// Packs rows of B in the order in which [`tiles`] reads them: by piece, by block of columns, by vector of rows, by column
/// of the block. A last partial vector is a piece of its own, padded with zeros.
#[inline(always)]
fn pack_panel<T: Real>(b: &ArrayView2<T>, lanes: usize, piece: usize, columns: usize, packed: &mut [T]) {
    let (n, k) = b.dim();
    let whole = n - n % lanes;
    let mut at = 0;
    let pieces = (0..whole).step_by(piece * lanes).map(|i| (i, (i + piece * lanes).min(whole)));
    for (from, to) in pieces.chain((whole < n).then_some((whole, n))) {
        let length = (to - from).next_multiple_of(lanes);
        for (first, size) in column_blocks(k, columns) {
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
