//! Rows of a factor for the generalised Kullback-Leibler divergence: each row x ≥ 0 minimises Σ_j (f_j − m_j ln f_j) +
//! λ₁ Σ_l x_l + ½λ₂ Σ_l x_l² with the fit f_j = x·y_j, for a fixed other factor Y. Apart from the sums of Y's columns,
//! only nonzeros of the data have a term: work ∝ nonzeros × k. `beta` has updates for any β-divergence; the Kullback-Leibler
//! divergence is that with β = 1.

mod beta;
mod coordinate_descent;
mod extrapolated;
mod multiplicative;
mod newton;

pub use beta::{BetaMultiply, add_gram, divergence_of, unit};
pub use coordinate_descent::{KlSweeps, SOLVED, solve_rows};
pub use extrapolated::{Extrapolated, Majorant};
pub use multiplicative::{KlMultiply, add_ratios, minimiser, step_by_ratios};

use ndarray::{Array2, ArrayView2};

use super::Penalty;
use crate::{Block, Real, flops};

/// The rows x ≥ 0 (rows of the block × k) of minimum β-divergence for a fixed factor Y (columns × k).
pub fn project_on<T: Real>(block: &Block<T>, y: &ArrayView2<'_, T>, beta: f64, penalty: Penalty) -> Array2<T> {
    if beta == 1.0 { coordinate_descent::project(block, y, penalty) } else { beta::project(block, y, beta, penalty) }
}

/// The fixed factor Y, columns × k.
#[derive(Debug, Clone, Copy)]
pub struct FixedFactor<'a, T> {
    /// Its rows, one after the other: k numbers for each column of the data.
    pub rows: &'a [T],
    /// The sums of its k columns.
    pub sums: &'a [f64],
    /// Its Gram matrix, k × k, for updates that need it ([`DivergenceUpdate::takes_gram`]).
    pub gram: &'a [f64],
}

/// An update of single rows, with its workspace.
pub trait DivergenceUpdate<T: Real>: Clone + Send + 'static {
    /// Updates x, the factor's row for this row of the block.
    fn update(&mut self, data: (&Block<T>, usize), y: FixedFactor<'_, T>, x: &mut [T], penalty: Penalty);

    /// Updates consecutive rows of the factor, k numbers each, from the one for row `first` of the block on. If the update
    /// [`extrapolates`](DivergenceUpdate::extrapolates), x holds extrapolated rows and `last` the rows before the extrapolation;
    /// otherwise `last` is empty.
    fn update_rows(
        &mut self,
        (block, first): (&Block<T>, usize),
        y: FixedFactor<'_, T>,
        x: &mut [T],
        _last: &[T],
        penalty: Penalty,
    ) {
        update_each(self, (block, first), y, x, penalty);
    }

    /// Floating-point operations of the update of a row, or of some, for each component: `stored` of their `all` entries are stored.
    fn flops(&self, stored: usize, all: usize) -> usize;

    /// Whether updates need the Gram matrix of the fixed factor.
    fn takes_gram(&self) -> bool {
        false
    }

    /// Whether updates begin at extrapolated rows.
    fn extrapolates(&self) -> bool {
        false
    }
}

/// Updates consecutive rows one after the other, and counts their operations.
fn update_each<T: Real, R: DivergenceUpdate<T>>(
    update: &mut R,
    (block, first): (&Block<T>, usize),
    y: FixedFactor<'_, T>,
    x: &mut [T],
    penalty: Penalty,
) {
    let k = y.sums.len();
    let rows = first..first + x.len() / k;
    flops::count(k * update.flops(block.stored_in(rows.clone()), rows.len() * block.shape().1));
    for (row, x) in rows.zip(x.chunks_exact_mut(k)) {
        update.update((block, row), y, x, penalty);
    }
}

/// The sums of the columns of Y (rows of `sums.len()` numbers), in f64: they have as many terms as the data has rows or
/// columns.
pub fn column_sums<T: Real>(y: &[T], sums: &mut [f64]) {
    sums.fill(0.0);
    for y in y.chunks_exact(sums.len()) {
        sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += y.as_f64());
    }
}

/// Number of interleaved partial sums.
const LANES: usize = 8;

/// x·y in the precision of `wide`.
#[inline(always)]
pub fn dot<T: Real, W: Real>(x: &[T], y: &[T], wide: impl Fn(T) -> W) -> W {
    let mut sums = [W::zero(); LANES];
    let ([x, y], [rest_x, rest_y]) = lanes([x, y]);
    for (x, y) in x.iter().zip(y) {
        for lane in 0..LANES {
            sums[lane] += wide(x[lane]) * wide(y[lane]);
        }
    }
    for (sum, (&x, &y)) in sums.iter_mut().zip(rest_x.iter().zip(rest_y)) {
        *sum += wide(x) * wide(y);
    }
    for half in [4, 2, 1] {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
    }
    sums[0]
}

/// Slices as arrays of [`LANES`] numbers, and their remainders.
#[inline(always)]
fn lanes<T, const N: usize>(slices: [&[T]; N]) -> ([&[[T; LANES]]; N], [&[T]; N]) {
    (slices.map(|slice| slice.as_chunks::<LANES>().0), slices.map(|slice| slice.as_chunks::<LANES>().1))
}

/// The root t ≥ 0 of λ₂t² + sum t = product: the minimiser of the auxiliary function of multiplicative updates for an
/// entry x, where product = x Σ_j m_j y_j / f_j and the sum is that of Y's column and λ₁.
#[inline(always)]
fn multiplied(product: f64, sum: f64, l2: f64) -> f64 {
    if l2 == 0.0 {
        return if sum > 0.0 { product / sum } else { 0.0 };
    }
    let root = sum + (sum * sum + 4.0 * l2 * product).sqrt();
    if root > 0.0 { 2.0 * product / root } else { 0.0 }
}
