//! Packing of the rows of a factor into panels and back. A panel holds the entries of its rows component by component, and
//! the number of components is padded to a multiple of four. The two packings order the rows of a panel differently.

use ndarray::{ArrayView2, ArrayViewMut2};
use pulp::Simd;

use crate::Real;
use crate::simd::lanes;

/// Packs contiguous rows: gathers groups of four components of the rows of a vector, and transposes them.
#[inline(always)]
pub fn pack_rows<T: Real, S: Simd, const V: usize>(s: S, rows: &[T], k: usize, spare: &mut [T], tile: &mut [T]) {
    let width = V * lanes::<T, S>();
    for (panel, rows) in tile.chunks_exact_mut(spare.len()).zip(rows.chunks(width * k)) {
        let groups = spare.as_chunks_mut::<4>().0;
        let mut used = 0;
        for (i, row) in rows.chunks_exact(k).enumerate() {
            let (fours, rest) = row.as_chunks::<4>();
            for (to, four) in groups[i..].iter_mut().step_by(width).zip(fours) {
                *to = *four;
            }
            if !rest.is_empty() {
                // Element by element, since a call of memcpy for so few takes longer.
                groups[fours.len() * width + i] =
                    std::array::from_fn(|q| if q < rest.len() { rest[q] } else { T::zero() });
            }
            used = i + 1;
        }
        for four in groups.chunks_exact_mut(width) {
            four[used..].fill([T::zero(); 4]);
        }
        let from = T::vectors::<S>(spare).0.chunks_exact(4 * V);
        for (to, from) in T::vectors_mut::<S>(panel).0.chunks_exact_mut(4 * V).zip(from) {
            for v in 0..V {
                let parts = T::deinterleave(s, [from[4 * v], from[4 * v + 1], from[4 * v + 2], from[4 * v + 3]]);
                for (q, part) in parts.into_iter().enumerate() {
                    to[q * V + v] = part;
                }
            }
        }
    }
}

/// The inverse of [`pack_rows`].
#[inline(always)]
pub fn unpack_rows<T: Real, S: Simd, const V: usize>(s: S, tile: &[T], spare: &mut [T], k: usize, rows: &mut [T]) {
    let width = V * lanes::<T, S>();
    for (panel, rows) in tile.chunks_exact(spare.len()).zip(rows.chunks_mut(width * k)) {
        let to = T::vectors_mut::<S>(spare).0.chunks_exact_mut(4 * V);
        for (to, from) in to.zip(T::vectors::<S>(panel).0.chunks_exact(4 * V)) {
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
                for q in 0..3 {
                    if q < rest.len() {
                        rest[q] = from[q];
                    }
                }
            }
        }
    }
}

/// Packs a view of any memory order, column by column.
#[inline(always)]
pub fn pack_columns<T: Real>(view: &ArrayView2<T>, width: usize, tile: &mut [T]) {
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
            for (i, panel) in tile.chunks_exact_mut(size).enumerate() {
                for (w, to) in panel[j * width..][..width].iter_mut().enumerate() {
                    *to = column.get(i * width + w).copied().unwrap_or(T::zero());
                }
            }
        }
    }
}

/// The inverse of [`pack_columns`].
#[inline(always)]
pub fn unpack_columns<T: Real>(tile: &[T], width: usize, view: &mut ArrayViewMut2<T>) {
    let k = view.ncols();
    let size = k.next_multiple_of(4) * width;
    for (j, mut column) in view.columns_mut().into_iter().enumerate() {
        let panels = tile.chunks_exact(size).map(|panel| &panel[j * width..][..width]);
        if let Some(column) = column.as_slice_mut() {
            let (whole, rest) = column.split_at_mut(column.len() - column.len() % width);
            let mut panels = panels;
            for (to, from) in whole.chunks_exact_mut(width).zip(&mut panels) {
                to.copy_from_slice(from);
            }
            if let Some(from) = panels.next() {
                rest.copy_from_slice(&from[..rest.len()]);
            }
        } else {
            column.iter_mut().zip(panels.flatten()).for_each(|(to, &from)| *to = from);
        }
    }
}
