//! The kernel of the row-wise methods, on panels of rows.
//!
//! A panel has as many rows as V vectors have lanes. Its rows of X and of the right-hand side are packed component by
//! component, so that one vector instruction updates all rows, and stay in the first-level cache while all components are
//! visited. The arithmetic of a row depends neither on its position in a panel nor on the number of rows (the last panel is
//! padded with rows of zeros): any split of the rows over ranks gives the same bits.

mod pack;

use ndarray::{ArrayView2, ArrayViewMut2, s};
use pulp::{Simd, WithSimd};

use self::pack::{pack_columns, pack_rows, unpack_columns, unpack_rows};
use super::Penalty;
use crate::simd::{Lanes, dispatch, lanes};
use crate::{Real, even_part, flops, over_rows, prefetch};

/// Bytes of a tile, the panels that are packed together: a quarter of a typical second-level cache.
const TILE_BYTES: usize = 256 << 10;
/// Largest number of panels in a tile: enough to amortise the access to the columns.
const TILE_PANELS: usize = 16;
/// Largest number of components in a register block; with V vectors each they fill 32 registers.
const MAX_BLOCK: usize = 8;

/// A panel: the V vectors of rows of each component.
type Panel<T, S, const V: usize> = [[<T as Lanes>::Vector<S>; V]];

/// A row-wise update: x_j ← min(upper, max(0, x_j + s_j (r_j − λ₁ − λ₂ x_j − Σ_l G_jl x_l))).
#[derive(Clone)]
pub(super) struct RowUpdate<T, F> {
    /// The step s_j from G_jj + λ₂. A component without a step (0) stays as it is, or becomes 0 if λ₁ > 0.
    pub step: F,
    /// Number of visits of each component.
    pub passes: usize,
    /// Upper bound of the entries; may be infinite.
    pub upper: T,
    pub penalty: Penalty,
}

/// The coefficients in the order in which the register blocks read them. A block of J components has k + J + 1 rows of J
/// numbers: for each l the s_j G_jl (minus 1 on the diagonal, which stands for x_j itself), with zeros where a sequential
/// method uses the new x_l; for each l of the block its s_j G_jl for that case; and the s_j.
struct Coefficients<'a, T> {
    k: usize,
    count: usize,
    /// Upper bound of the entries.
    upper: T,
    packed: &'a mut [T],
}

impl<'a, T: Real> Coefficients<'a, T> {
    /// Numbers per component, for the largest block.
    fn room(k: usize) -> usize {
        k + MAX_BLOCK + 1
    }

    /// Packs G (k × k) for blocks of at most `block` components; a `sequential` method uses the new x_l for l < j.
    fn pack<F: Fn(T) -> T>(
        packed: &'a mut [T],
        g: &ArrayView2<T>,
        block: usize,
        sequential: bool,
        update: &RowUpdate<T, F>,
    ) -> Coefficients<'a, T> {
        let k = g.ncols();
        let RowUpdate { step, upper, penalty, .. } = update;
        let (l1, l2) = penalty.weights::<T>();
        let new = Coefficients { k, count: k.div_ceil(block), upper: *upper, packed };
        for (first, size) in new.blocks() {
            let rows = &mut new.packed[first * Self::room(k)..][..(k + size + 1) * size];
            for j in 0..size {
                let own = g[[first + j, first + j]] + l2;
                let step = step(own);
                // With a step of 0 only λ₁ acts on the component.
                let stays = if step == T::zero() && l1 > T::zero() { T::zero() } else { T::one() };
                for l in 0..k {
                    let entry = if l == first + j { step * own - stays } else { step * g[[first + j, l]] };
                    let later = sequential && (first..first + j).contains(&l);
                    rows[l * size + j] = if later { T::zero() } else { entry };
                    if (first..first + size).contains(&l) {
                        rows[(k + l - first) * size + j] = entry;
                    }
                }
                rows[(k + size) * size + j] = step;
            }
        }
        new
    }

    /// The blocks as (first component, number of components), of nearly equal sizes.
    #[inline(always)]
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let (size, longer) = (self.k / self.count, self.k % self.count);
        (0..self.count).map(move |b| (b * size + b.min(longer), size + usize::from(b < longer)))
    }

    /// The rows of the block that starts at component `first`.
    #[inline(always)]
    fn block<const J: usize>(&self, first: usize) -> &[[T; J]] {
        self.packed[first * Self::room(self.k)..][..(self.k + J + 1) * J].as_chunks().0
    }
}

/// Updates J components, in x if `SEQUENTIAL` (each uses the new values of those before it), otherwise in `new`: first a
/// small matrix product in registers with all values known so far, then one component after the other.
#[inline(always)]
fn block<T: Real, S: Simd, const J: usize, const V: usize, const SEQUENTIAL: bool>(
    s: S,
    coefficients: &Coefficients<T>,
    first: usize,
    x: &mut Panel<T, S, V>,
    r: &Panel<T, S, V>,
    new: &mut Panel<T, S, V>,
) {
    let rows = coefficients.block::<J>(first);
    let (rows, own) = rows.split_at(coefficients.k);
    let r = &r[first..first + J];
    let mut sum: [[T::Vector<S>; V]; J] = [[T::splat_v(s, T::zero()); V]; J];
    for j in 0..J {
        let step = T::splat_v(s, own[J][j]);
        for v in 0..V {
            sum[j][v] = T::mul_v(s, step, r[j][v]);
        }
    }
    for (x, row) in x.iter().zip(rows) {
        for j in 0..J {
            let coefficient = T::splat_v(s, row[j]);
            for v in 0..V {
                sum[j][v] = T::mul_sub_v(s, coefficient, x[v], sum[j][v]);
            }
        }
    }
    let (zero, upper) = (T::splat_v(s, T::zero()), T::splat_v(s, coefficients.upper));
    let new = if SEQUENTIAL { x } else { new };
    let new = &mut new[first..first + J];
    // Unrolled, since the compiler keeps `sum` in registers for constant indices only.
    macro_rules! finish {
        ($($j:literal)*) => {$(
            if $j < J {
                let x: [T::Vector<S>; V] = std::array::from_fn(|v| T::min_v(s, T::max_v(s, sum[$j][v], zero), upper));
                new[$j] = x;
                for after in 0..J {
                    if SEQUENTIAL && after > $j {
                        let coefficient = T::splat_v(s, own[$j][after]);
                        for v in 0..V {
                            sum[after][v] = T::mul_sub_v(s, coefficient, x[v], sum[after][v]);
                        }
                    }
                }
            }
        )*};
    }
    finish!(0 1 2 3 4 5 6 7);
}

/// [`block`] for a size known at run time.
#[inline(always)]
fn any_block<T: Real, S: Simd, const V: usize, const SEQUENTIAL: bool>(
    s: S,
    coefficients: &Coefficients<T>,
    (first, size): (usize, usize),
    x: &mut Panel<T, S, V>,
    r: &Panel<T, S, V>,
    new: &mut Panel<T, S, V>,
) {
    match size {
        1 => block::<T, S, 1, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
        2 => block::<T, S, 2, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
        3 => block::<T, S, 3, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
        4 => block::<T, S, 4, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
        5 => block::<T, S, 5, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
        6 => block::<T, S, 6, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
        7 => block::<T, S, 7, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
        _ => block::<T, S, 8, V, SEQUENTIAL>(s, coefficients, first, x, r, new),
    }
}

/// Applies an update to all rows of X (rows × k) with right-hand side R (rows × k) and Gram matrix G (k × k); with
/// `SEQUENTIAL` a component uses the new values of those before it.
pub(super) fn apply<T: Real, F: Fn(T) -> T + Clone + Sync, const SEQUENTIAL: bool>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    update: RowUpdate<T, F>,
) {
    let k = x.ncols();
    assert!(r.dim() == x.dim() && g.dim() == (k, k), "shapes of a row-wise update");
    if x.is_empty() {
        return;
    }
    flops::count(2 * x.nrows() * k * k * update.passes);
    over_rows(x, &|first, x| {
        let r = r.slice(s![first..first + x.nrows(), ..]);
        T::with_buffer(|buffer| {
            dispatch(PanelKernel::<T, F, SEQUENTIAL> { x, r, g: g.view(), update: update.clone(), buffer });
        });
    });
}

struct PanelKernel<'a, T, F, const SEQUENTIAL: bool> {
    x: ArrayViewMut2<'a, T>,
    r: ArrayView2<'a, T>,
    g: ArrayView2<'a, T>,
    update: RowUpdate<T, F>,
    buffer: &'a mut Vec<T>,
}

impl<T: Real, F: Fn(T) -> T, const SEQUENTIAL: bool> WithSimd for PanelKernel<'_, T, F, SEQUENTIAL> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        // The registers hold the accumulators of a block, V vectors of x and a broadcast coefficient.
        if S::REGISTER_COUNT >= 32 {
            self.run::<S, 3>(s, MAX_BLOCK);
        } else {
            self.run::<S, 2>(s, 6);
        }
    }
}

impl<T: Real, F: Fn(T) -> T, const SEQUENTIAL: bool> PanelKernel<'_, T, F, SEQUENTIAL> {
    #[inline(always)]
    fn run<S: Simd, const V: usize>(mut self, s: S, block: usize) {
        let (rows, k) = self.x.dim();
        let width = V * lanes::<T, S>();
        let size = k.next_multiple_of(4) * width;
        let panels = (TILE_BYTES / (2 * size * size_of::<T>())).clamp(1, TILE_PANELS).min(rows.div_ceil(width));

        // One buffer, aligned to a cache line: panels of x, panels of r, a spare panel, the coefficients.
        let line = 64 / size_of::<T>();
        let total = (2 * panels + 1) * size + k * Coefficients::<T>::room(k) + line;
        if self.buffer.len() < total {
            self.buffer.resize(total, T::zero());
        }
        let start = self.buffer.as_ptr().align_offset(64).min(line);
        let (tile_x, rest) = self.buffer[start..start + total - line].split_at_mut(panels * size);
        let (tile_r, rest) = rest.split_at_mut(panels * size);
        let (spare, packed) = rest.split_at_mut(size);
        let coefficients = Coefficients::pack(packed, &self.g, block, SEQUENTIAL, &self.update);
        let (l1, _) = self.update.penalty.weights::<T>();

        // In row order, rows are transposed four components at a time; otherwise columns are copied. x and r must be
        // packed alike, since the first way reorders the rows of a panel.
        let in_rows = self.r.as_slice().is_some() && self.x.as_slice().is_some();
        let mut first = 0;
        while first < rows {
            let last = (first + panels * width).min(rows);
            let used = (last - first).div_ceil(width) * size;
            if let (true, Some(x), Some(r)) = (in_rows, self.x.as_slice(), self.r.as_slice()) {
                pack_rows::<T, S, V>(s, &x[first * k..last * k], k, spare, &mut tile_x[..used]);
                pack_rows::<T, S, V>(s, &r[first * k..last * k], k, spare, &mut tile_r[..used]);
            } else {
                pack_columns(&self.x.slice(s![first..last, ..]), width, &mut tile_x[..used]);
                pack_columns(&self.r.slice(s![first..last, ..]), width, &mut tile_r[..used]);
            }
            if l1 > T::zero() {
                tile_r[..used].iter_mut().for_each(|r| *r -= l1);
            }
            // Each panel prefetches a part of the next tile.
            let (next, count) = (last..(last + panels * width).min(rows), used / size);
            for (i, (x, r)) in tile_x[..used].chunks_exact_mut(size).zip(tile_r.chunks_exact(size)).enumerate() {
                let part = even_part(if in_rows { next.len() } else { k }, count, i);
                for from in [&self.x.view(), &self.r] {
                    match from.as_slice() {
                        Some(from) if in_rows => {
                            prefetch(&from[(next.start + part.start) * k..(next.start + part.end) * k]);
                        }
                        _ => part.clone().for_each(|j| {
                            prefetch(from.slice(s![next.clone(), j]).to_slice().unwrap_or_default());
                        }),
                    }
                }
                let x = T::vectors_mut::<S>(&mut x[..k * width]).0.as_chunks_mut().0;
                let r = T::vectors::<S>(&r[..k * width]).0.as_chunks().0;
                let spare = T::vectors_mut::<S>(&mut spare[..k * width]).0.as_chunks_mut().0;
                for _ in 0..self.update.passes {
                    for block in coefficients.blocks() {
                        any_block::<T, S, V, SEQUENTIAL>(s, &coefficients, block, x, r, spare);
                    }
                    if !SEQUENTIAL {
                        x.copy_from_slice(spare);
                    }
                }
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

#[cfg(test)]
mod tests;
