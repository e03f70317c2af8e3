//! The common frame of the row-wise methods: strips of rows in vector registers.
//!
//! A strip is V vectors of rows. Its part of X and of the right-hand side is packed component by component, so that
//! one vector instruction does the same for all its rows, and stays in the first-level cache while every component is
//! visited. What happens to a row depends neither on its place in a strip nor on the number of rows (a last strip is
//! filled up with rows of zeros): any split of the rows over ranks gives the same bits.

use ndarray::{ArrayView2, ArrayViewMut2, s};
use pulp::{Simd, WithSimd};

use crate::linalg::Real;
use crate::linalg::simd::{Lanes, dispatch, lanes};

/// Bytes of one tile, the strips that are packed together: a quarter of a usual second-level cache.
const TILE_BYTES: usize = 256 << 10;
/// Strips of one tile at most: enough to spread the cost of finding a column's memory.
const TILE_STRIPS: usize = 16;
/// Components of one register block at most (with V vectors each they fill 32 registers).
const MAX_BLOCK: usize = 8;

/// A strip: for each component the V vectors of its rows.
type Strip<T, S, const V: usize> = [[<T as Lanes>::Vector<S>; V]];

/// A row-wise method: x_j ← max(0, x_j + s_j (r_j − Σ_l G_jl x_l)).
pub(super) struct Method<F> {
    /// The step s_j from G_jj.
    pub step: F,
    /// How often every component is visited.
    pub passes: usize,
}

/// The coefficients as the register blocks read them. A block of J components j has k + J + 1 rows of J numbers:
/// for each l the s_j G_jl (less 1 on the diagonal, where x_j itself comes in), for each l of the block again those
/// that the first k rows leave at zero because x_l is new by then, and the s_j.
struct Coefficients<'a, T> {
    k: usize,
    count: usize,
    packed: &'a mut [T],
}

impl<'a, T: Real> Coefficients<'a, T> {
    /// Room for one component: its share of its block's rows.
    fn room(k: usize) -> usize {
        k + MAX_BLOCK + 1
    }

    /// Packs G (k × k) for blocks of at most `block` components; `sequential` methods use the new x_l for l < j.
    fn pack(
        packed: &'a mut [T],
        g: &ArrayView2<T>,
        block: usize,
        sequential: bool,
        step: impl Fn(T) -> T,
    ) -> Coefficients<'a, T> {
        let k = g.ncols();
        let new = Coefficients { k, count: k.div_ceil(block), packed };
        for (first, size) in new.blocks() {
            let rows = &mut new.packed[first * Self::room(k)..][..(k + size + 1) * size];
            for j in 0..size {
                let step = step(g[[first + j, first + j]]);
                for l in 0..k {
                    let entry = step * g[[first + j, l]] - if l == first + j { T::one() } else { T::zero() };
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

    /// The blocks as (first component, number of components), of nearly equal size.
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

/// The new values of J components, into x if `SEQUENTIAL` (each uses those before it), else into `new`: first one small
/// matrix product in registers with all that is known before, then one component after the other.
#[inline(always)]
fn block<T: Real, S: Simd, const J: usize, const V: usize, const SEQUENTIAL: bool>(
    s: S,
    coefficients: &Coefficients<T>,
    first: usize,
    x: &mut Strip<T, S, V>,
    r: &Strip<T, S, V>,
    new: &mut Strip<T, S, V>,
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
    let zero = T::splat_v(s, T::zero());
    let new = if SEQUENTIAL { x } else { new };
    let new = &mut new[first..first + J];
    // Written out, since only constant indices let the compiler keep `sum` in registers.
    macro_rules! finish {
        ($($j:literal)*) => {$(
            if $j < J {
                let x: [T::Vector<S>; V] = std::array::from_fn(|v| T::max_v(s, sum[$j][v], zero));
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
    x: &mut Strip<T, S, V>,
    r: &Strip<T, S, V>,
    new: &mut Strip<T, S, V>,
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

/// Applies a method to all rows of X (rows × k) with right-hand side R (rows × k) and Gram matrix G (k × k);
/// `SEQUENTIAL` if a component uses the new values of those before it.
pub(super) fn apply<T: Real, F: Fn(T) -> T, const SEQUENTIAL: bool>(
    x: &mut ArrayViewMut2<T>,
    r: &ArrayView2<T>,
    g: &ArrayView2<T>,
    method: Method<F>,
) {
    let k = x.ncols();
    assert!(r.dim() == x.dim() && g.dim() == (k, k), "shapes of a row-wise update");
    if x.is_empty() {
        return;
    }
    T::with_buffer(|buffer| {
        dispatch(Rows::<T, F, SEQUENTIAL> { x: x.view_mut(), r: r.view(), g: g.view(), method, buffer });
    });
}

struct Rows<'a, T, F, const SEQUENTIAL: bool> {
    x: ArrayViewMut2<'a, T>,
    r: ArrayView2<'a, T>,
    g: ArrayView2<'a, T>,
    method: Method<F>,
    buffer: &'a mut Vec<T>,
}

impl<T: Real, F: Fn(T) -> T, const SEQUENTIAL: bool> WithSimd for Rows<'_, T, F, SEQUENTIAL> {
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

impl<T: Real, F: Fn(T) -> T, const SEQUENTIAL: bool> Rows<'_, T, F, SEQUENTIAL> {
    #[inline(always)]
    fn run<S: Simd, const V: usize>(mut self, s: S, block: usize) {
        let (rows, k) = self.x.dim();
        let width = V * lanes::<T, S>();
        let size = k.next_multiple_of(4) * width;
        let strips = (TILE_BYTES / (2 * size * size_of::<T>())).clamp(1, TILE_STRIPS).min(rows.div_ceil(width));

        // One stretch of memory, from a cache line's start: strips of x, strips of r, a spare strip, the Gram matrix.
        let line = 64 / size_of::<T>();
        let total = (2 * strips + 1) * size + k * Coefficients::<T>::room(k) + line;
        if self.buffer.len() < total {
            self.buffer.resize(total, T::zero());
        }
        let start = self.buffer.as_ptr().align_offset(64).min(line);
        let (tile_x, rest) = self.buffer[start..start + total - line].split_at_mut(strips * size);
        let (tile_r, rest) = rest.split_at_mut(strips * size);
        let (spare, packed) = rest.split_at_mut(size);
        let coefficients = Coefficients::pack(packed, &self.g, block, SEQUENTIAL, &self.method.step);

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
                for _ in 0..self.method.passes {
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
                // Element by element: a call to copy so few would take longer.
                groups[fours.len() * width + i] =
                    std::array::from_fn(|q| if q < rest.len() { rest[q] } else { T::zero() });
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
                for q in 0..3 {
                    if q < rest.len() {
                        rest[q] = from[q];
                    }
                }
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

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};
    use proptest::prelude::*;

    use super::super::{Sweep, gradient_step, sweep};
    use crate::linalg::{Order, Real};
    use crate::random::{Purpose, Stream, uniform_factor};

    /// The definition, in f64.
    fn plain(x: &Array2<f64>, r: &Array2<f64>, g: &Array2<f64>, mu: f64, passes: usize) -> Array2<f64> {
        let mut x = x.clone();
        for _ in 0..passes {
            for i in 0..x.nrows() {
                for j in 0..x.ncols() {
                    let gradient = (0..x.ncols()).map(|l| g[[j, l]] * x[[i, l]]).sum::<f64>() - r[[i, j]];
                    if g[[j, j]] + mu > 0.0 {
                        x[[i, j]] = (x[[i, j]] - gradient / (g[[j, j]] + mu)).max(0.0);
                    }
                }
            }
        }
        x
    }

    fn ordered<T: Real>(a: &Array2<f64>, order: Order) -> Array2<T> {
        let mut out = order.zeros(a.nrows(), a.ncols());
        out.zip_mut_with(a, |o, &a| *o = T::of(a));
        out
    }

    /// X, R and G of a well-posed problem; component `dead` of the Gram matrix is zero.
    fn problem(seed: u64, rows: usize, k: usize, dead: Option<usize>) -> [Array2<f64>; 3] {
        let draw = |slot, rows| uniform_factor::<f64>(&Stream::new(seed, Purpose::Probe, slot), 0..rows, k, 1.0);
        let mut y = draw(0, 2 * k + 3);
        if let Some(j) = dead {
            y.column_mut(j % k).fill(0.0);
        }
        let r = draw(1, rows).dot(&y.t()).dot(&y);
        [draw(2, rows), r, y.t().dot(&y)]
    }

    fn agrees<T: Real>(
        [x, r, g]: &[Array2<f64>; 3],
        orders: [Order; 2],
        mu: f64,
        passes: usize,
    ) -> Result<(), TestCaseError> {
        let tolerance = 1e4 * T::epsilon().wide() * passes as f64;
        let (start, rhs, gram) = (ordered::<T>(x, orders[0]), ordered::<T>(r, orders[1]), ordered::<T>(g, Order::Rows));
        let wide = |a: &Array2<T>| a.mapv(T::wide);
        let (x, r, g) = (wide(&start), wide(&rhs), wide(&gram));
        let close = |a: &Array2<T>, b: &Array2<f64>| {
            a.iter().zip(b).all(|(a, b)| (a.wide() - b).abs() <= tolerance * (1.0 + b.abs()))
        };

        let mut got = start.clone();
        let settings = Sweep { mu: T::of(mu), passes };
        sweep(&mut got.view_mut(), &rhs.view(), &gram.view(), settings);
        prop_assert!(close(&got, &plain(&x, &r, &g, T::of(mu).wide(), passes)));

        // Any part of the rows gives the same bits, and so do views into a larger array.
        let (from, to) = (x.nrows() / 3, x.nrows() - x.nrows() / 4);
        let mut part = start.clone();
        sweep(&mut part.slice_mut(s![from..to, ..]), &rhs.slice(s![from..to, ..]), &gram.view(), settings);
        prop_assert_eq!(part.slice(s![from..to, ..]), got.slice(s![from..to, ..]));
        prop_assert_eq!(part.slice(s![..from, ..]), start.slice(s![..from, ..]));
        prop_assert_eq!(part.slice(s![to.., ..]), start.slice(s![to.., ..]));

        let eta = 0.5 / (1.0 + g.diag().sum());
        let mut got = start;
        gradient_step(&mut got.view_mut(), &rhs.view(), &gram.view(), T::of(eta));
        let gradient = x.dot(&g) - &r;
        prop_assert!(close(&got, &(&x - &(gradient * eta)).mapv(|x| x.max(0.0))));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn updates_follow_their_definition(
            seed in 0..1000u64, rows in 0..150usize, k in 1..36usize, dead in proptest::option::of(0..40usize),
            mu in prop_oneof![Just(0.0), Just(0.7)], passes in 1..4usize, own in any::<bool>(), other in any::<bool>(),
        ) {
            let problem = problem(seed, rows, k, dead);
            let order = |b| if b { Order::Rows } else { Order::Components };
            agrees::<f64>(&problem, [order(own), order(other)], mu, passes)?;
            agrees::<f32>(&problem, [order(own), order(other)], mu, passes)?;
        }
    }

    #[test]
    fn long_factors_cross_tiles() {
        for (rows, k) in [(3000, 10), (700, 100)] {
            for order in [Order::Rows, Order::Components] {
                agrees::<f64>(&problem(5, rows, k, None), [order, order], 0.0, 1).unwrap();
                agrees::<f32>(&problem(5, rows, k, None), [order, order], 0.0, 1).unwrap();
            }
        }
    }

    #[test]
    fn a_component_without_curvature_stays_and_nothing_becomes_nan() {
        for order in [Order::Rows, Order::Components] {
            let mut x = ordered::<f64>(&Array2::from_elem((5, 3), 2.0), order);
            let r = ordered::<f64>(&Array2::from_elem((5, 3), 1.0), order);
            let g = Array2::zeros((3, 3));
            sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: 0.0, passes: 2 });
            assert!(x.iter().all(|&x| x == 2.0));
            let g = Array2::from_elem((3, 3), 1e-310);
            sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: 0.0, passes: 1 });
            assert!(x.iter().all(|x| x.is_finite()), "{x}");
        }
    }
}
