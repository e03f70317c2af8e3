//! The common frame of the row-wise methods: strips of rows in vector registers.
//!
//! A strip is V vectors of rows. Its part of X and of the right-hand side is packed component by component, so that
//! one vector instruction does the same for all its rows, and stays in the first-level cache while every component is
//! visited. What happens to a row depends neither on its place in a strip nor on the number of rows (a last strip is
//! filled up with rows of zeros): any split of the rows over ranks gives the same bits.

use ndarray::{ArrayView2, ArrayViewMut2, s};
use pulp::{Simd, WithSimd};

use crate::linalg::Real;
use crate::linalg::simd::{dispatch, lanes};

/// Bytes of one tile, the strips that are packed together: a quarter of a usual second-level cache.
const TILE_BYTES: usize = 256 << 10;
/// Strips of one tile at most: enough to spread the cost of finding a column's memory.
const TILE_STRIPS: usize = 16;
/// Components of one register block at most (with V vectors each they fill 32 registers).
const MAX_BLOCK: usize = 8;

/// A strip: for each component the V vectors of its rows.
pub(super) type Strip<T, S, const V: usize> = [[<T as crate::linalg::simd::Lanes>::Vector<S>; V]];

/// A row-wise method: what it does to a strip.
pub(super) trait Update<T: Real> {
    /// Updates x; `spare` is memory of the same shape.
    fn strip<S: Simd, const V: usize>(
        &self,
        s: S,
        gram: &Gram<T>,
        x: &mut Strip<T, S, V>,
        r: &Strip<T, S, V>,
        spare: &mut Strip<T, S, V>,
    );
}

/// The Gram matrix as the register blocks read it.
pub(super) struct Gram<'a, T> {
    k: usize,
    /// For each block of components j: for each l the block's G_jl, one after the other.
    packed: &'a [T],
    blocks: usize,
}

impl<T> Gram<'_, T> {
    /// The blocks as (first component, number of components), of nearly equal size.
    #[inline(always)]
    pub(super) fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<T> {
        blocks(self.k, self.blocks)
    }

    /// For each l the J entries G_jl of the block that starts at component `first`.
    #[inline(always)]
    pub(super) fn block<const J: usize>(&self, first: usize) -> &[[T; J]] {
        self.packed[first * self.k..(first + J) * self.k].as_chunks().0
    }
}

#[inline(always)]
fn blocks(k: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    let (size, longer) = (k / count.max(1), k % count.max(1));
    (0..count).map(move |b| (b * size + b.min(longer), size + usize::from(b < longer)))
}

/// r_j − Σ_l G_jl x_l for the J components of a block, in registers.
#[inline(always)]
pub(super) fn residual<T: Real, S: Simd, const J: usize, const V: usize>(
    s: S,
    g: &[[T; J]],
    x: &Strip<T, S, V>,
    r: &Strip<T, S, V>,
) -> [[T::Vector<S>; V]; J] {
    let mut sum: [[T::Vector<S>; V]; J] = std::array::from_fn(|j| r[j]);
    for (x, g) in x.iter().zip(g) {
        for j in 0..J {
            let g = T::splat_v(s, g[j]);
            for v in 0..V {
                sum[j][v] = T::mul_sub_v(s, g, x[v], sum[j][v]);
            }
        }
    }
    sum
}

/// Calls a function with the block size as a constant.
macro_rules! for_block_size {
    ($size:expr, $call:ident::<T, S, J, V>($($arg:expr),*)) => {
        match $size {
            1 => $call::<T, S, 1, V>($($arg),*),
            2 => $call::<T, S, 2, V>($($arg),*),
            3 => $call::<T, S, 3, V>($($arg),*),
            4 => $call::<T, S, 4, V>($($arg),*),
            5 => $call::<T, S, 5, V>($($arg),*),
            6 => $call::<T, S, 6, V>($($arg),*),
            7 => $call::<T, S, 7, V>($($arg),*),
            8 => $call::<T, S, 8, V>($($arg),*),
            size => unreachable!("a register block of {size} components"),
        }
    };
}
pub(super) use for_block_size;

/// Applies a method to all rows of X (rows × k) with right-hand side R (rows × k) and Gram matrix G (k × k).
pub(super) fn apply<T: Real, U: Update<T>>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    update: &U,
) {
    let k = x.ncols();
    assert!(r.dim() == x.dim() && g.dim() == (k, k), "shapes of a row-wise update");
    if x.is_empty() {
        return;
    }
    T::with_buffer(|buffer| dispatch(Rows { x: x.view_mut(), r: r.view(), g: g.view(), update, buffer }));
}

struct Rows<'a, T, U> {
    x: ArrayViewMut2<'a, T>,
    r: ArrayView2<'a, T>,
    g: ArrayView2<'a, T>,
    update: &'a U,
    buffer: &'a mut Vec<T>,
}

impl<T: Real, U: Update<T>> WithSimd for Rows<'_, T, U> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        // The accumulators of a block, V vectors of x and a broadcast entry of G must fit the registers.
        if S::REGISTER_COUNT >= 32 {
            self.run::<S, 3>(s, MAX_BLOCK);
        } else {
            self.run::<S, 2>(s, 6);
        }
    }
}

impl<T: Real, U: Update<T>> Rows<'_, T, U> {
    #[inline(always)]
    fn run<S: Simd, const V: usize>(mut self, s: S, block: usize) {
        let (rows, k) = self.x.dim();
        let width = V * lanes::<T, S>();
        let size = k.next_multiple_of(4) * width;
        let strips = (TILE_BYTES / (2 * size * size_of::<T>())).clamp(1, TILE_STRIPS).min(rows.div_ceil(width));

        // One stretch of memory, from a cache line's start: strips of x, strips of r, a spare strip, the Gram matrix.
        let line = 64 / size_of::<T>();
        let total = (2 * strips + 1) * size + k * k + line;
        if self.buffer.len() < total {
            self.buffer.resize(total, T::zero());
        }
        let start = self.buffer.as_ptr().align_offset(64).min(line);
        let (tile_x, rest) = self.buffer[start..start + total - line].split_at_mut(strips * size);
        let (tile_r, rest) = rest.split_at_mut(strips * size);
        let (spare, packed) = rest.split_at_mut(size);
        let count = k.div_ceil(block);
        for (first, size) in blocks(k, count) {
            for (l, entries) in packed[first * k..(first + size) * k].chunks_exact_mut(size).enumerate() {
                for (j, entry) in entries.iter_mut().enumerate() {
                    *entry = self.g[[first + j, l]];
                }
            }
        }
        let gram = Gram { k, packed, blocks: count };

        // Both in row order: rows are transposed four components at a time. Otherwise columns are copied; both ways
        // must be the same for x and r, since the first leaves the rows of a strip in an order of its own.
        let in_rows = self.r.as_slice().is_some() && self.x.as_slice().is_some();
        let mut first = 0;
        while first < rows {
            let last = (first + strips * width).min(rows);
            let used = (last - first).div_ceil(width) * size;
            if let (true, Some(x), Some(r)) = (in_rows, self.x.as_slice(), self.r.as_slice()) {
                pack_rows::<T, S, V>(s, &x[first * k..last * k], k, spare, &mut tile_x[..used]);
                pack_rows::<T, S, V>(s, &r[first * k..last * k], k, spare, &mut tile_r[..used]);
            } else {
                pack_columns(&self.x.slice(s![first..last, ..]), width, &mut tile_x[..used]);
                pack_columns(&self.r.slice(s![first..last, ..]), width, &mut tile_r[..used]);
            }
            for (x, r) in tile_x[..used].chunks_exact_mut(size).zip(tile_r.chunks_exact(size)) {
                let x = T::vectors_mut::<S>(&mut x[..k * width]).0.as_chunks_mut().0;
                let r = T::vectors::<S>(&r[..k * width]).0.as_chunks().0;
                let spare = T::vectors_mut::<S>(&mut spare[..k * width]).0.as_chunks_mut().0;
                self.update.strip::<S, V>(s, &gram, x, r, spare);
            }
            match self.x.as_slice_mut() {
                Some(x) if in_rows => {
                    unpack_rows::<T, S, V>(s, &tile_x[..used], spare, k, &mut x[first * k..last * k]);
                }
                _ => unpack_columns(&tile_x[..used], width, &mut self.x.slice_mut(s![first..last, ..])),
            }
            first = last;
        }
    }
}

/// Packs rows that are contiguous: groups of four components are moved to where a vector reads them, then transposed.
#[inline(always)]
fn pack_rows<T: Real, S: Simd, const V: usize>(s: S, rows: &[T], k: usize, spare: &mut [T], tile: &mut [T]) {
    let width = V * lanes::<T, S>();
    for (strip, rows) in tile.chunks_exact_mut(spare.len()).zip(rows.chunks(width * k)) {
        let groups = spare.as_chunks_mut::<4>().0;
        let mut used = 0;
        for (i, row) in rows.chunks_exact(k).enumerate() {
            let (fours, rest) = row.as_chunks::<4>();
            for (to, four) in groups[i..].iter_mut().step_by(width).zip(fours) {
                *to = *four;
            }
            if !rest.is_empty() {
                let mut four = [T::zero(); 4];
                four[..rest.len()].copy_from_slice(rest);
                groups[fours.len() * width + i] = four;
            }
            used = i + 1;
        }
        for four in groups.chunks_exact_mut(width) {
            four[used..].fill([T::zero(); 4]);
        }
        let from = T::vectors::<S>(spare).0.chunks_exact(4 * V);
        for (to, from) in T::vectors_mut::<S>(strip).0.chunks_exact_mut(4 * V).zip(from) {
            for v in 0..V {
                let parts = T::deinterleave(s, [from[4 * v], from[4 * v + 1], from[4 * v + 2], from[4 * v + 3]]);
                for (q, part) in parts.into_iter().enumerate() {
                    to[q * V + v] = part;
                }
            }
        }
    }
}

/// The way back of [`pack_rows`].
#[inline(always)]
fn unpack_rows<T: Real, S: Simd, const V: usize>(s: S, tile: &[T], spare: &mut [T], k: usize, rows: &mut [T]) {
    let width = V * lanes::<T, S>();
    for (strip, rows) in tile.chunks_exact(spare.len()).zip(rows.chunks_mut(width * k)) {
        let to = T::vectors_mut::<S>(spare).0.chunks_exact_mut(4 * V);
        for (to, from) in to.zip(T::vectors::<S>(strip).0.chunks_exact(4 * V)) {
            for v in 0..V {
                let parts = T::interleave(s, [from[v], from[V + v], from[2 * V + v], from[3 * V + v]]);
                to[4 * v..4 * v + 4].copy_from_slice(&parts);
            }
        }
        let groups = spare.as_chunks::<4>().0;
        for (i, row) in rows.chunks_exact_mut(k).enumerate() {
            let (fours, rest) = row.as_chunks_mut::<4>();
            let mut from = groups[i..].iter().step_by(width);
            for (four, from) in fours.iter_mut().zip(&mut from) {
                *four = *from;
            }
            if let (false, Some(from)) = (rest.is_empty(), from.next()) {
                rest.copy_from_slice(&from[..rest.len()]);
            }
        }
    }
}

/// Packs any view, column by column.
#[inline(always)]
fn pack_columns<T: Real>(view: &ArrayView2<T>, width: usize, tile: &mut [T]) {
    let (rows, k) = view.dim();
    let size = k.next_multiple_of(4) * width;
    for (j, column) in view.columns().into_iter().enumerate() {
        if let Some(column) = column.as_slice() {
            let (whole, rest) = column.split_at(rows - rows % width);
            for (i, part) in whole.chunks_exact(width).enumerate() {
                tile[i * size + j * width..][..width].copy_from_slice(part);
            }
            if !rest.is_empty() {
                let to = &mut tile[rows / width * size + j * width..][..width];
                to[..rest.len()].copy_from_slice(rest);
                to[rest.len()..].fill(T::zero());
            }
        } else {
            for (i, strip) in tile.chunks_exact_mut(size).enumerate() {
                for (w, to) in strip[j * width..][..width].iter_mut().enumerate() {
                    *to = column.get(i * width + w).copied().unwrap_or(T::zero());
                }
            }
        }
    }
}

/// The way back of [`pack_columns`].
#[inline(always)]
fn unpack_columns<T: Real>(tile: &[T], width: usize, view: &mut ArrayViewMut2<T>) {
    let k = view.ncols();
    let size = k.next_multiple_of(4) * width;
    for (j, mut column) in view.columns_mut().into_iter().enumerate() {
        let strips = tile.chunks_exact(size).map(|strip| &strip[j * width..][..width]);
        if let Some(column) = column.as_slice_mut() {
            let (whole, rest) = column.split_at_mut(column.len() - column.len() % width);
            let mut strips = strips;
            for (to, from) in whole.chunks_exact_mut(width).zip(&mut strips) {
                to.copy_from_slice(from);
            }
            if let Some(from) = strips.next() {
                rest.copy_from_slice(&from[..rest.len()]);
            }
        } else {
            column.iter_mut().zip(strips.flatten()).for_each(|(to, &from)| *to = from);
        }
    }
}
