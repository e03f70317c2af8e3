//! Multiplicative updates (Lee and Seung, Algorithms for Non-negative Matrix Factorization, NIPS 2000).

use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder, s};
use pulp::{Simd, WithSimd};

use super::{DivergenceUpdate, FixedFactor, Majorant, multiplied, update_each};
use crate::memory::{CACHE_LINE, prefetch_line};
use crate::nls::Penalty;
use crate::simd::{dispatch_along, dispatch_fn, lanes, load, store, sums};
use crate::tall_skinny::{RowSelection, aligned, mul, outer, tmul};
use crate::{Block, Real, flops};

/// Calls `held` with the number of vectors before the last one as a constant if a row of k numbers fits the registers,
/// otherwise `any`.
macro_rules! with_held {
    ($kernel:ident, $s:ident, $k:expr) => {
        with_held!($kernel, $s, $k, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($kernel:ident, $s:ident, $k:expr, $($head:literal)*) => {
        match ($k.div_ceil(lanes::<T, S>()), $k >= lanes::<T, S>()) {
            $((vectors, true) if vectors == $head + 1 => $kernel.held::<S, $head, { at_once($head) }>($s),)*
            _ => $kernel.any($s),
        }
    };
}

/// Rows and columns of dense data that are updated together: their fits stay in the second-level cache, and whole register
/// tiles of [`outer`] cover them.
const TILE: (usize, usize) = (160, 400);

/// x_l ← x_l (Σ_j m_j y_jl / f_j) / Σ_j y_jl; with penalties the root of a quadratic equation. The objective never
/// increases.
#[derive(Debug, Clone)]
pub struct KlMultiply {
    /// Σ_j m_j y_jl / f_j of the rows that are updated together, k each, in f64, since a row may be long.
    ratios: Vec<f64>,
}

impl KlMultiply {
    /// Operations for each stored entry and component: those of fits and ratios.
    pub const FLOPS: usize = 4;

    pub fn new(k: usize) -> Self {
        KlMultiply { ratios: vec![0.0; k] }
    }
}

impl<T: Real> DivergenceUpdate<T> for KlMultiply {
    fn update(&mut self, data: (&Block<T>, usize), y: FixedFactor<'_, T>, x: &mut [T], penalty: Penalty) {
        self.multiply(data, y, x, penalty);
    }

    fn update_rows(
        &mut self,
        (block, first): (&Block<T>, usize),
        y: FixedFactor<'_, T>,
        x: &mut [T],
        _last: &[T],
        penalty: Penalty,
    ) {
        let k = y.sums.len();
        match block {
            Block::Dense(m) if m.strides().contains(&1) => {
                for (tile, x) in x.chunks_mut(TILE.0 * k).enumerate() {
                    let first = first + tile * TILE.0;
                    let rows = first..first + x.len() / k;
                    self.multiply_tile(&m.slice(s![rows, ..]), y, x, penalty);
                }
            }
            _ => update_each(self, (block, first), y, x, penalty),
        }
    }

    fn flops(&self, stored: usize, _: usize) -> usize {
        Self::FLOPS * stored
    }
}

impl<T: Real> Majorant<T> for KlMultiply {
    const ROWS: usize = TILE.0;

    /// The majorant at x̂ is Σ s_l x_l − x̂_l r_l ln x_l + ½λ₂ x_l² with the sums s (λ₁ included) and the ratios r, of which
    /// x̂_l r_l = x_l (s_l + λ₂ x_l) at its minimum x. Its decrease has logarithms, of which lower bounds do.
    #[inline(always)]
    fn rise(&self, y: FixedFactor<'_, T>, last: &[T], from: &[T], to: &[T], penalty: Penalty) -> f64 {
        let (l1, l2) = penalty.weights::<f64>();
        let mut rise = 0.0;
        for (((last, from), to), sum) in last.iter().zip(from).zip(to).zip(y.sums) {
            let (last, from, to, sum) = (last.as_f64(), from.as_f64(), to.as_f64(), sum + l1);
            let product = to * (sum + l2 * to);
            let gradient = sum + l2 * from - product / from;
            let log = if to > 0.0 { product * least_ln(to, from) } else { 0.0 };
            let decrease = sum * (from - to) + log + 0.5 * l2 * (from * from - to * to);
            rise += if from > 0.0 { gradient * (from - last) - decrease } else { 0.0 };
        }
        rise
    }
}

/// A lower bound of ln(a / b) for positive numbers: quotients of polynomials, which agree with the logarithm up to the third power
/// of a / b − 1 and can be computed for several numbers at once.
#[inline(always)]
fn least_ln(a: f64, b: f64) -> f64 {
    let grows = a >= b;
    let x = if grows { a / b } else { b / a } - 1.0;
    let least = 3.0 * x * (x + 2.0) / (x * (x + 6.0) + 6.0);
    let most = x * (x + 6.0) / (4.0 * x + 6.0);
    // A quotient of infinities is no bound.
    match (grows, x < 1e100) {
        (true, true) => least,
        (true, false) => 3.0,
        (false, true) => -most,
        (false, false) => -0.25 * x,
    }
}

impl KlMultiply {
    fn multiply<T: Real>(
        &mut self,
        (block, row): (&Block<T>, usize),
        y: FixedFactor<'_, T>,
        x: &mut [T],
        penalty: Penalty,
    ) {
        let k = x.len();
        self.ratios.clear();
        self.ratios.resize(k, 0.0);
        let ratios = &mut self.ratios;
        T::with_buffer(|part| {
            part.clear();
            part.resize(k, T::zero());
            dispatch_along(size_of_val(x), RowRatios { block, row, y: y.rows, x, part, ratios });
        });
        step(x, ratios, y.sums, penalty);
    }

    /// Updates some rows of dense data, by tiles of their columns.
    fn multiply_tile<T: Real>(&mut self, m: &ArrayView2<'_, T>, y: FixedFactor<'_, T>, x: &mut [T], penalty: Penalty) {
        let ((rows, columns), k) = (m.dim(), y.sums.len());
        self.ratios.clear();
        self.ratios.resize(rows * k, 0.0);
        let by_rows = m.strides()[1] == 1;
        T::with_buffer(|buffer| {
            let buffer = aligned(buffer, rows * (TILE.1 + 2 * k) + TILE.1 * k);
            let (fits, buffer) = buffer.split_at_mut(rows * TILE.1);
            let (sums, buffer) = buffer.split_at_mut(rows * k);
            let (x_columns, y_columns) = buffer.split_at_mut(rows * k);
            transpose(x, k, x_columns);
            for from in (0..columns).step_by(TILE.1) {
                let tile = from..columns.min(from + TILE.1);
                let width = tile.len();
                let y = &y.rows[tile.start * k..tile.end * k];
                let y_columns = &mut y_columns[..y.len()];
                transpose(y, k, y_columns);
                let view = |rows, columns, at| ArrayView2::from_shape((rows, columns), at).expect("a factor");
                let (x, y) = (view(rows, k, &*x), view(width, k, y));
                let (x_columns, y_columns) = (view(k, rows, &*x_columns), view(k, width, &*y_columns));
                let m = m.slice(s![.., tile]);
                // Both in the order of the data.
                let (m, shape, tall, wide) = if by_rows {
                    (m, (rows, width), x, y_columns)
                } else {
                    (m.reversed_axes(), (width, rows), y, x_columns)
                };
                let mut fit = ArrayViewMut2::from_shape(shape, &mut fits[..rows * width]).expect("room for a tile");
                outer(&tall, &wide, &mut fit);
                dispatch_fn(
                    #[inline(always)]
                    || {
                        for (mut fit, m) in fit.rows_mut().into_iter().zip(m.rows()) {
                            if let (Some(fit), Some(m)) = (fit.as_slice_mut(), m.to_slice()) {
                                fit.iter_mut().zip(m).for_each(|(f, &m)| *f = ratio(m, *f));
                            }
                        }
                    },
                );
                let mut sums = ArrayViewMut2::from_shape((rows, k).f(), &mut *sums).expect("k numbers for each row");
                let y = y_columns.reversed_axes();
                if by_rows {
                    mul(&fit.view(), &y, &mut sums);
                } else {
                    tmul(&fit.view(), RowSelection::All, &y, false, &mut sums);
                }
                let ratios = self.ratios.chunks_exact_mut(k).zip(sums.rows());
                ratios.for_each(|(ratios, sums)| ratios.iter_mut().zip(sums).for_each(|(r, s)| *r += s.as_f64()));
            }
        });
        for (x, ratios) in x.chunks_exact_mut(k).zip(self.ratios.chunks_exact(k)) {
            step(x, ratios, y.sums, penalty);
        }
    }
}

/// Transposes rows of k numbers.
fn transpose<T: Real>(rows: &[T], k: usize, columns: &mut [T]) {
    let count = rows.len() / k;
    for (l, column) in columns.chunks_exact_mut(count).take(k).enumerate() {
        column.iter_mut().zip(rows[l..].iter().step_by(k)).for_each(|(to, &from)| *to = from);
    }
}

/// Adds Σ_j m_j y_jl / f_j for a row of the data to `ratios`.
struct RowRatios<'a, T: Real> {
    block: &'a Block<T>,
    row: usize,
    y: &'a [T],
    x: &'a [T],
    /// k zeros at the start: the sums over up to [`SHORT`] nonzeros, in the precision of the data.
    part: &'a mut [T],
    ratios: &'a mut [f64],
}

/// Adds Σ_i u_il m_ij / f_ij to the ratios of column j, for the rows U of a block, from its row `first` on, with the fit
/// F = U Yᵀ. U is rows × k, Y and the ratios are columns × k. Ratios of all rows are those of an update of Y
/// ([`step_by_ratios`]).
pub fn add_ratios<T: Real>((block, first): (&Block<T>, usize), u: &[T], y: &[T], k: usize, ratios: &mut [T]) {
    let (rows, columns) = block.shape();
    assert!(first * k + u.len() <= rows * k && y.len() == columns * k && ratios.len() == y.len(), "shapes of ratios");
    flops::count(KlMultiply::FLOPS * block.stored_in(first..first + u.len() / k) * k);
    for (row, u) in u.chunks_exact(k).enumerate() {
        dispatch_along(k * size_of::<T>(), ColumnRatios { block, row: first + row, y, u, ratios });
    }
}

/// The terms of a row of the data in the ratios of all columns.
struct ColumnRatios<'a, T: Real> {
    block: &'a Block<T>,
    row: usize,
    y: &'a [T],
    u: &'a [T],
    ratios: &'a mut [T],
}

impl<T: Real> WithSimd for ColumnRatios<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        with_held!(self, s, self.u.len());
    }
}

impl<T: Real> ColumnRatios<'_, T> {
    #[inline(always)]
    fn held<S: Simd, const HEAD: usize, const N: usize>(self, s: S) {
        let ColumnRatios { block, row, y, u, ratios } = self;
        let k = u.len();
        let (width, tail) = (HEAD * lanes::<T, S>(), k - lanes::<T, S>());
        let u = Held::<T, S, HEAD>::new(u);
        block.for_each_ahead::<N>(
            row,
            #[inline(always)]
            |columns, values, next| {
                for j in next {
                    Held::<T, S, HEAD>::prefetch(y, j, k);
                    Held::<T, S, HEAD>::prefetch(ratios, j, k);
                }
                let by = u.ratios(s, values, y, columns);
                for n in 0..N {
                    let (j, ratio) = (columns[n], T::splat_v(s, by[n]));
                    let sums = &mut ratios[j * k..(j + 1) * k];
                    // The last vector adds nothing where it overlaps the one before it, and is read after that is written.
                    let head = T::vectors_mut::<S>(&mut sums[..width]).0;
                    for n in 0..HEAD {
                        head[n] = T::mul_add_v(s, ratio, u.head[n], head[n]);
                    }
                    let last = T::mul_add_v(s, ratio, u.tail, load::<T, S>(&sums[tail..]));
                    store::<T, S>(&mut sums[tail..], last);
                }
            },
        );
    }

    /// Any number of columns.
    #[inline(always)]
    fn any<S: Simd>(self, s: S) {
        let ColumnRatios { block, row, y, u, ratios } = self;
        let k = u.len();
        let (u, u_rest) = T::vectors::<S>(u);
        let u_rest = T::load_short(s, u_rest);
        block.for_each_nonzero(
            row,
            #[inline(always)]
            |j, m| {
                let (y, y_rest) = T::vectors::<S>(&y[j * k..(j + 1) * k]);
                let mut fit = T::mul_v(s, u_rest, T::load_short(s, y_rest));
                for (&u, &y) in u.iter().zip(y) {
                    fit = T::mul_add_v(s, u, y, fit);
                }
                let ratio = T::splat_v(s, ratio(m, T::sum_v(s, fit)));
                let (sums, sums_rest) = T::vectors_mut::<S>(&mut ratios[j * k..(j + 1) * k]);
                for (sum, &u) in sums.iter_mut().zip(u) {
                    *sum = T::mul_add_v(s, ratio, u, *sum);
                }
                let rest = T::mul_add_v(s, ratio, u_rest, T::load_short(s, sums_rest));
                T::store_short(s, sums_rest, rest);
            },
        );
    }
}

/// The update of rows `y` (k numbers each) from their ratios over all rows of the data ([`add_ratios`]), with the column sums
/// of the other factor. `wide` is scratch for k numbers.
pub fn step_by_ratios<T: Real>(y: &mut [T], ratios: &[T], sums: &[f64], penalty: Penalty, wide: &mut [f64]) {
    for (y, ratios) in y.chunks_exact_mut(sums.len()).zip(ratios.chunks_exact(sums.len())) {
        wide.iter_mut().zip(ratios).for_each(|(wide, ratio)| *wide = ratio.as_f64());
        step(y, wide, sums, penalty);
    }
}

/// The entry y of which `product` is y times its ratio: the minimiser of sum y + λ₁ y + ½λ₂ y² − product ln y.
pub fn minimiser(product: f64, sum: f64, penalty: Penalty) -> f64 {
    multiplied(product, sum + penalty.l1, penalty.l2)
}

/// Number of nonzeros, a multiple of four, that are summed in the precision of the data before their sums are added in f64.
const SHORT: usize = 64;

/// Number of nonzeros whose fits are computed together, for rows of `head` vectors and a last one: four longer rows do not fit
/// the registers.
const fn at_once(head: usize) -> usize {
    if head > 3 { 1 } else { 4 }
}

/// A row of numbers in registers: `HEAD` vectors, and a last one that may overlap them, with zeros there.
struct Held<T: Real, S: Simd, const HEAD: usize> {
    head: [T::Vector<S>; HEAD],
    tail: T::Vector<S>,
    k: usize,
}

impl<T: Real, S: Simd, const HEAD: usize> Held<T, S, HEAD> {
    #[inline(always)]
    fn new(x: &[T]) -> Self {
        let (lanes, k) = (lanes::<T, S>(), x.len());
        let head = T::vectors::<S>(&x[..HEAD * lanes]).0;
        let mut masked = [T::zero(); 64];
        let overlap = (HEAD + 1) * lanes - k;
        masked[overlap..lanes].copy_from_slice(&x[HEAD * lanes..]);
        Held { head: std::array::from_fn(|n| head[n]), tail: load::<T, S>(&masked), k }
    }

    /// The ratios of entries and their fits, the inner products with rows of `y`.
    #[inline(always)]
    fn ratios<const N: usize>(&self, s: S, entries: [T; N], y: &[T], rows: [usize; N]) -> [T; N] {
        let mut products = [T::splat_v(s, T::zero()); N];
        for n in 0..N {
            products[n] = self.products(s, &y[rows[n] * self.k..][..self.k]);
        }
        let mut ratios = sums::<T, S, N>(s, products);
        let fits = ratios;
        for n in 0..N {
            ratios[n] = entries[n] / fits[n];
        }
        // Compared together.
        if !ratios.iter().fold(true, |all, ratio| all & (*ratio <= T::max_value())) {
            for n in 0..N {
                ratios[n] = ratio(entries[n], fits[n]);
            }
        }
        ratios
    }

    /// The products with a row of as many numbers, to be added up.
    #[inline(always)]
    fn products(&self, s: S, y: &[T]) -> T::Vector<S> {
        let lanes = lanes::<T, S>();
        let head = T::vectors::<S>(&y[..HEAD * lanes]).0;
        let mut sums = [T::mul_v(s, self.tail, load::<T, S>(&y[y.len() - lanes..])), T::splat_v(s, T::zero())];
        for n in 0..HEAD {
            sums[n % 2] = T::mul_add_v(s, self.head[n], head[n], sums[n % 2]);
        }
        T::add_v(s, sums[0], sums[1])
    }

    /// Prefetches row `next` of rows of k numbers.
    #[inline(always)]
    fn prefetch(rows: &[T], next: usize, k: usize) {
        let row = rows.as_ptr().wrapping_add(next * k);
        for n in (0..HEAD).step_by((CACHE_LINE / size_of::<T::Vector<S>>()).max(1)) {
            prefetch_line(row.wrapping_add(n * lanes::<T, S>()));
        }
        prefetch_line(row.wrapping_add(k - lanes::<T, S>()));
    }
}

impl<T: Real> WithSimd for RowRatios<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        with_held!(self, s, self.x.len());
    }
}

impl<T: Real> RowRatios<'_, T> {
    #[inline(always)]
    fn held<S: Simd, const HEAD: usize, const N: usize>(self, s: S) {
        let RowRatios { block, row, y, x, part, ratios } = self;
        let k = x.len();
        let (width, tail) = (HEAD * lanes::<T, S>(), k - lanes::<T, S>());
        let x = Held::<T, S, HEAD>::new(x);
        let zero = T::splat_v(s, T::zero());
        let (mut head, mut last, mut count) = ([zero; HEAD], zero, 0);
        block.for_each_ahead::<N>(
            row,
            #[inline(always)]
            |columns, values, next| {
                for j in next {
                    Held::<T, S, HEAD>::prefetch(y, j, k);
                }
                let by = x.ratios(s, values, y, columns);
                for n in 0..N {
                    let (y, ratio) = (&y[columns[n] * k..][..k], T::splat_v(s, by[n]));
                    let from = T::vectors::<S>(&y[..width]).0;
                    for n in 0..HEAD {
                        head[n] = T::mul_add_v(s, ratio, from[n], head[n]);
                    }
                    last = T::mul_add_v(s, ratio, load::<T, S>(&y[tail..]), last);
                }
                count += N;
                if size_of::<T>() < size_of::<f64>() && count == SHORT {
                    add_row::<T, S, HEAD>(ratios, part, (head, last));
                    (head, last, count) = ([zero; HEAD], zero, 0);
                }
            },
        );
        add_row::<T, S, HEAD>(ratios, part, (head, last));
    }

    /// Any number of columns.
    #[inline(always)]
    fn any<S: Simd>(self, s: S) {
        let RowRatios { block, row, y, x, part, ratios } = self;
        let k = x.len();
        let (x, x_rest) = T::vectors::<S>(x);
        let x_rest = T::load_short(s, x_rest);
        let zero = T::splat_v(s, T::zero());
        let (mut sum_rest, mut count) = (zero, 0);
        block.for_each_nonzero(
            row,
            #[inline(always)]
            |j, m| {
                let (y, y_rest) = T::vectors::<S>(&y[j * k..(j + 1) * k]);
                let y_rest = T::load_short(s, y_rest);
                let mut fit = T::mul_v(s, x_rest, y_rest);
                for (&x, &y) in x.iter().zip(y) {
                    fit = T::mul_add_v(s, x, y, fit);
                }
                let ratio = T::splat_v(s, ratio(m, T::sum_v(s, fit)));
                for (sum, &y) in T::vectors_mut::<S>(part).0.iter_mut().zip(y) {
                    *sum = T::mul_add_v(s, ratio, y, *sum);
                }
                sum_rest = T::mul_add_v(s, ratio, y_rest, sum_rest);
                count += 1;
                if count == SHORT {
                    T::store_short(s, T::vectors_mut::<S>(part).1, sum_rest);
                    add_and_clear(ratios, part);
                    (sum_rest, count) = (zero, 0);
                }
            },
        );
        T::store_short(s, T::vectors_mut::<S>(part).1, sum_rest);
        add_and_clear(ratios, part);
    }
}

/// Adds a row that is held in registers to `sums`, with scratch of the same length.
#[inline(always)]
fn add_row<T: Real, S: Simd, const HEAD: usize>(
    sums: &mut [f64],
    scratch: &mut [T],
    (head, last): ([T::Vector<S>; HEAD], T::Vector<S>),
) {
    let lanes = lanes::<T, S>();
    T::vectors_mut::<S>(&mut scratch[..HEAD * lanes]).0.copy_from_slice(&head);
    let tail = scratch.len() - lanes;
    store::<T, S>(&mut scratch[tail..], last);
    sums.iter_mut().zip(scratch).for_each(|(sum, part)| *sum += part.as_f64());
}

/// Adds `part` to `sums` and clears it.
#[inline(always)]
fn add_and_clear<T: Real>(sums: &mut [f64], part: &mut [T]) {
    for (sum, part) in sums.iter_mut().zip(part) {
        *sum += part.as_f64();
        *part = T::zero();
    }
}

/// m / f; 0 if the fit is 0 or nearly 0: no multiple of the fit reaches m, so the entry has no influence.
#[inline(always)]
fn ratio<T: Real>(m: T, fit: T) -> T {
    let ratio = m / fit;
    // Neither is negative.
    if ratio <= T::max_value() { ratio } else { T::zero() }
}

/// The new row x.
#[inline(always)]
fn step<T: Real>(x: &mut [T], ratios: &[f64], sums: &[f64], penalty: Penalty) {
    let (l1, l2) = penalty.weights::<f64>();
    for ((x, &ratio), &sum) in x.iter_mut().zip(ratios).zip(sums) {
        let next = T::from_f64(multiplied(x.as_f64() * ratio, sum + l1, l2));
        // A large penalty makes factors so small that a ratio overflows.
        *x = if next.is_finite() || penalty.is_none() { next } else { T::zero() };
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Axis};

    use super::*;
    use crate::Csr;
    use crate::nls::divergence::column_sums;
    use crate::random::{Purpose, Stream, uniform_factor};

    fn update<T: Real>(block: &Block<T>, x: &mut Array2<T>, y: &Array2<T>, penalty: Penalty) {
        let mut sums = vec![0.0; y.ncols()];
        let rows = y.as_slice().unwrap();
        column_sums(rows, &mut sums);
        let fixed = FixedFactor { rows, sums: &sums, gram: &[] };
        KlMultiply::new(y.ncols()).update_rows((block, 0), fixed, x.as_slice_mut().unwrap(), &[], penalty);
    }

    /// Dense data of several tiles in either memory order, compared with the same data row by row.
    #[test]
    fn tiles_give_the_rows_that_single_updates_give() {
        let random = |i, rows, k| uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0);
        let (rows, columns, k) = (2 * TILE.0 + 3, TILE.1 + 5, 7);
        let mut m = random(1, rows, columns);
        m.iter_mut().step_by(3).for_each(|x| *x = 0.0);
        let (mut start, mut y) = (random(2, rows, k), random(3, columns, k));
        // Fits that are 0, for a nonzero and for a zero of the data.
        start.row_mut(1).fill(0.0);
        y.row_mut(2).fill(0.0);
        let sparse = Block::Sparse(Csr::new(sprs::CsMatI::csr_from_dense(m.view(), 0.0)));
        let mut expected = start.clone();
        update(&sparse, &mut expected, &y, Penalty::NONE);
        let mut columns_first = Array2::zeros((rows, columns).f());
        columns_first.assign(&m);
        for dense in [m, columns_first] {
            let mut x = start.clone();
            update(&Block::Dense(dense.into()), &mut x, &y, Penalty::NONE);
            assert!((&x - &expected).iter().all(|e| e.abs() < 1e-12));
        }
    }

    /// The update of Y from ratios that are added up over blocks of rows is that from the whole columns.
    #[test]
    fn ratios_of_blocks_of_rows_give_the_update_of_the_other_factor() {
        let random = |i, rows, k| uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0);
        for k in [1, 3, 8, 13] {
            let (mut m, u, y) = (random(1, 40, 30), random(2, 40, k), random(3, 30, k));
            m.iter_mut().step_by(3).for_each(|x| *x = 0.0);
            for penalty in [Penalty::NONE, Penalty { l1: 0.3, l2: 0.2 }] {
                let mut expected = y.clone();
                update(&Block::Dense(m.t().as_standard_layout().into_owned().into()), &mut expected, &u, penalty);
                for sparse in [false, true] {
                    let (mut ratios, mut sums, mut found) = (Array2::<f64>::zeros((30, k)), vec![0.0; k], y.clone());
                    for rows in [0..17, 17..17, 17..40] {
                        let part = m.slice(s![rows.clone(), ..]);
                        let block = match sparse {
                            true => Block::Sparse(Csr::new(sprs::CsMatI::csr_from_dense(part, 0.0))),
                            false => Block::Dense(part.to_owned().into()),
                        };
                        let u = u.slice(s![rows, ..]);
                        let ratios = ratios.as_slice_mut().unwrap();
                        add_ratios((&block, 0), u.as_slice().unwrap(), y.as_slice().unwrap(), k, ratios);
                    }
                    column_sums(u.as_slice().unwrap(), &mut sums);
                    let wide = &mut vec![0.0; k];
                    step_by_ratios(found.as_slice_mut().unwrap(), ratios.as_slice().unwrap(), &sums, penalty, wide);
                    assert!((&found - &expected).iter().all(|e| e.abs() < 1e-12), "k = {k}");
                }
            }
        }
    }

    #[test]
    fn logarithms_are_bounded_from_below() {
        for power in -2000..2000 {
            let (a, b) = (f64::exp(0.35 * f64::from(power)), 1.0);
            let (least, exact) = (least_ln(a, b), 0.35 * f64::from(power));
            assert!(least <= exact + 1e-14 * exact.abs(), "{a}: {least} {exact}");
        }
        for x in [-1e-2, -1e-3, 1e-3, 1e-2f64] {
            assert!((least_ln(1.0 + x, 1.0) - x.ln_1p()).abs() < 0.1 * x.powi(4));
        }
    }

    #[test]
    fn an_update_is_the_formula_and_the_divergence_never_increases() {
        let random = |i, rows, k| uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0);
        let mut m = random(1, 15, 12);
        m.iter_mut().step_by(3).for_each(|x| *x = 0.0);
        let y = random(3, 12, 4);
        let divergence = |x: &Array2<f64>| {
            let fit = x.dot(&y.t());
            let one = |(m, f): (&f64, &f64)| if *m > 0.0 { m * (m / f).ln() - m + f } else { *f };
            m.iter().zip(&fit).map(one).sum::<f64>()
        };
        let sparse = Block::Sparse(Csr::new(sprs::CsMatI::csr_from_dense(m.view(), 0.0)));
        for block in [Block::Dense(m.clone().into()), sparse] {
            let start = random(2, 15, 4);
            let mut x = start.clone();
            update(&block, &mut x, &y, Penalty::NONE);
            let expected = &start * &(&m / &start.dot(&y.t())).dot(&y) / y.sum_axis(Axis(0));
            assert!((&x - &expected).iter().all(|e| e.abs() < 1e-12));
            let (before, after) = (divergence(&start), divergence(&x));
            assert!(after < before, "{before} {after}");
            for penalty in [Penalty { l1: 0.5, l2: 0.0 }, Penalty { l1: 0.0, l2: 2.0 }, Penalty { l1: 0.3, l2: 1.0 }] {
                let objective = |x: &Array2<f64>| divergence(x) + penalty.value(&x.view());
                for _ in 0..300 {
                    let before = objective(&x);
                    update(&block, &mut x, &y, penalty);
                    assert!(objective(&x) <= before * (1.0 + 1e-12), "{penalty:?}");
                }
                // Where an entry is positive, the gradient has converged to 0.
                let ratio = (&m / &x.dot(&y.t())).dot(&y);
                let gradient = &x * penalty.l2 + penalty.l1 + y.sum_axis(Axis(0)) - ratio;
                assert!((&x * &gradient).iter().all(|x| x.abs() < 1e-3), "{penalty:?}");
                x.assign(&start);
            }
            for penalty in [Penalty { l1: 1e150, l2: 0.0 }, Penalty { l1: 0.0, l2: 1e150 }] {
                (0..5).for_each(|_| update(&block, &mut x, &y, penalty));
                assert!(x.iter().all(|x| (0.0..1e-50).contains(x)), "{penalty:?}");
                x.assign(&start);
            }
        }
    }

    /// The other factor has more rows than f32 can count: x = 1 becomes m / n for the only entry m of n.
    #[test]
    fn sums_of_long_columns_lose_no_terms() {
        let n = (1 << 24) + (1 << 21);
        let one = sprs::CsMatI::new((1, n), vec![0, 1], vec![7], vec![n as f32]);
        let mut x = Array2::ones((1, 1));
        update(&Block::Sparse(Csr::new(one)), &mut x, &Array2::<f32>::ones((n, 1)), Penalty::NONE);
        assert_eq!(x[[0, 0]], 1.0);
    }
}
