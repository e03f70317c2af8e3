//! A start from the factors of a sample. Some lines of the longer dimension (rows or columns) are drawn uniformly without
//! replacement. Accelerated HALS on the sample finds the factor of the other dimension. A few lines per component determine
//! this factor nearly as well as all lines do, at a fraction of the work. The factor of the longer dimension is then fitted
//! to all data, with one product.

use std::collections::BTreeSet;
use std::ops::Range;

use ndarray::{Array2, ArrayView2, Axis};

use fednmf_base::error::SharedResult;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::nls::{Penalty, Sweep, sweep};
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::{Real, gram};

use super::DataAndFactors;
use super::TAGS;
use super::low_rank::{GRAM, Task};
use super::uniform;
use crate::shared::extrapolation::{Momentum, WORDS, extrapolate, inner, split_into_two_words};
use crate::shared::factor_side::FactorSide;
use crate::shared::grid::Grid;
use crate::shared::rank_data::{RankData, rank_data};
use crate::shared::sizes::Sizes;

pub const NORM: MessageTag = MessageTag::new("start: norm of the sample", Payload::Scalar);

/// Sizes of a sample and of the iterations on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Number of sampled rows, or of columns if the matrix has more columns than rows.
    pub lines: usize,
    /// Maximum number of iterations; fewer if the objective stalls.
    pub iterations: usize,
    /// Maximum number of samples, of which the best is taken.
    pub tries: usize,
}

impl Sample {
    /// The number of lines that are drawn: all of `long` if more than half would be.
    pub fn drawn(self, long: usize) -> usize {
        if 2 * self.lines > long { long } else { self.lines }
    }

    /// The sizes of the sampled matrix.
    pub fn sizes(self, &Sizes { m, n, entries, k }: &Sizes) -> Sizes {
        let entries = entries * self.lines as f64 / m.max(n) as f64;
        if m < n { Sizes { m, n: self.lines, entries, k } } else { Sizes { m: self.lines, n, entries, k } }
    }
}

/// The objective stalls if an iteration decreases it by less than this fraction.
const STALL: f64 = 1e-4;
/// Number of sweeps that fit the longer factor.
pub const FIT_SWEEPS: usize = 8;

/// Distinct indices below `all`, ascending; all of them if `count` is more than half.
pub fn draw(seed: u64, all: usize, count: usize) -> Vec<usize> {
    if 2 * count > all {
        return (0..all).collect();
    }
    let mut cursor = Stream::new(seed, Purpose::StartSample, 0).at(0);
    let mut drawn = BTreeSet::new();
    while drawn.len() < count {
        drawn.insert(cursor.below(all as u64) as usize);
    }
    drawn.into_iter().collect()
}

/// Computes the own rows of both factors, and returns the data too. A component that vanishes on the sample is random with the mean
/// `fill`. Collective.
///
/// # Errors
/// On all ranks, if MKL refuses a sparse block, or data cannot be read.
pub fn factors<T: Real>(
    task: &Task<'_>,
    mut data: Box<dyn RankData<T>>,
    sample: Sample,
    fill: f64,
) -> SharedResult<DataAndFactors<T>> {
    let Task { comm, cuts, shape: (m, n), k, entries, .. } = *task;
    let tall = m >= n;
    let drawn = draw(task.seed, m.max(n), sample.lines);
    let inside = |block: &Range<usize>| {
        drawn.partition_point(|&at| at < block.start)..drawn.partition_point(|&at| at < block.end)
    };
    let (place, pc) = (comm.rank(), cuts.cols.len());
    let mut sampled = cuts.clone();
    let (own, lists) =
        if tall { (&cuts.rows[place / pc], &mut sampled.rows) } else { (&cuts.cols[place % pc], &mut sampled.cols) };
    lists.iter_mut().for_each(|block| *block = inside(block));
    let places: Vec<usize> = drawn[inside(own)].iter().map(|at| at - own.start).collect();
    let mut block = data.select(comm, Axis(usize::from(!tall)), &places)?;
    comm.agree_on_error(block.prepare(k))?;
    let mut norm2 = [comm.work("start: sample", || block.norm2())];
    comm.sum(NORM, &mut norm2);
    let mut small = Grid::new(comm, rank_data(vec![block], None, None), &sampled, k, [TAGS; 2]);
    let scale = uniform::scale(task.sum, task.shape, k);
    uniform::u(task.seed, &small.u.own_rows, scale, small.u.own.view_mut());
    uniform::v(task.seed, &small.v.own_rows, scale, small.v.own.view_mut());
    let sample = Sample { lines: drawn.len(), ..sample };
    let sweeps = sample.sizes(&Sizes { m, n, entries, k }).sweeps();
    iterate(comm, &mut small, norm2[0], sweeps, sample.iterations)?;

    comm.agree_on_error(data.prepare(k))?;
    let mut grid = Grid::new(comm, data, cuts, k, [TAGS; 2]);
    let (found, short) = if tall { (small.v.own, &mut grid.v) } else { (small.u.own, &mut grid.u) };
    short.own.assign(&found);
    let mut g = Array2::zeros((k, k));
    summed_gram(comm, &short.own, &mut g);
    let lost: Vec<usize> = (0..k).filter(|&j| g[[j, j]] <= T::zero()).collect();
    if !lost.is_empty() {
        // Of equal columns the second would be fitted to rounding errors.
        let mut random = short.own.clone();
        uniform::u(task.seed, &short.own_rows, 2.0 * fill, random.view_mut());
        lost.iter().for_each(|&j| short.own.column_mut(j).assign(&random.column(j)));
        summed_gram(comm, &short.own, &mut g);
    }
    if tall {
        grid.product_for_u(comm)?
    } else {
        grid.product_for_v(comm)?
    }
    let long = if tall { &mut grid.u } else { &mut grid.v };
    comm.work("start: fit", || fit(&mut long.own, &long.rhs.view(), &g));
    Ok((grid.data, [grid.u.own, grid.v.own]))
}

/// Computes FᵀF over all ranks' rows of F.
fn summed_gram<T: Real>(comm: &Communicator, factor: &Array2<T>, g: &mut Array2<T>) {
    comm.work("start: Gram", || gram(&factor.view(), &mut g.view_mut()));
    comm.sum(GRAM, g.row_major_mut());
}

/// Accelerated HALS with extrapolation on the sample, until the objective stalls. `norm2` is the squared norm of the
/// sample, and `sweeps` are the sweeps of U and V.
fn iterate<T: Real>(
    comm: &Communicator,
    grid: &mut Grid<T>,
    norm2: f64,
    sweeps: [usize; 2],
    iterations: usize,
) -> SharedResult<()> {
    let k = grid.u.own.ncols();
    let mut momentum = Momentum::default();
    let [mut new_u, mut new_v] = [grid.u.own.clone(), grid.v.own.clone()];
    let (mut gram_u, mut gram_v) = (Array2::zeros((k, k)), Array2::zeros((k, k)));
    let mut message = vec![T::zero(); k * k + WORDS];
    let update = |side: &mut FactorSide<T>, g: &Array2<T>, passes: usize| {
        let pass = Sweep { mu: T::zero(), passes, penalty: Penalty::NONE };
        comm.work("start: update", || sweep(&mut side.own.view_mut(), &side.rhs.view(), &g.view(), pass));
    };
    let mut last = f64::INFINITY;
    for _ in 0..iterations {
        summed_gram(comm, &grid.v.own, &mut gram_v);
        grid.product_for_u(comm)?;
        update(&mut grid.u, &gram_v, sweeps[0]);
        comm.work("start: Gram", || {
            let u = &mut grid.u.own;
            gram(&u.view(), &mut gram_u.view_mut());
            let objective = inner(&gram_u.view(), &gram_v.view()) - 2.0 * inner(&u.view(), &grid.u.rhs.view());
            extrapolate(u, &mut new_u, momentum.beta());
            gram(&u.view(), &mut gram_u.view_mut());
            message[..k * k].copy_from_slice(gram_u.row_major());
            message[k * k..].copy_from_slice(&split_into_two_words(objective, norm2));
        });
        comm.sum(GRAM, &mut message);
        let objective = norm2 + message[k * k].as_f64() + message[k * k + 1].as_f64();
        if momentum.accept(objective) {
            gram_u.row_major_mut().copy_from_slice(&message[..k * k]);
        } else {
            grid.u.own.assign(&new_u);
            grid.v.own.assign(&new_v);
            summed_gram(comm, &grid.u.own, &mut gram_u);
        }
        grid.product_for_v(comm)?;
        update(&mut grid.v, &gram_u, sweeps[1]);
        comm.work("start: update", || extrapolate(&mut grid.v.own, &mut new_v, momentum.beta()));
        let fall = last - objective;
        if (0.0..STALL * objective).contains(&fall) {
            break;
        }
        last = objective;
    }
    // The factors after their last updates.
    grid.u.own.assign(&new_u);
    grid.v.own.assign(&new_v);
    Ok(())
}

/// Fits the rows X ≥ 0 to the right-hand side for the Gram matrix of the other factor by sweeps. They start from the
/// positive part of the right-hand side, each component divided by its diagonal entry and each row scaled to its best fit.
fn fit<T: Real>(x: &mut Array2<T>, rhs: &ArrayView2<'_, T>, g: &Array2<T>) {
    x.assign(rhs);
    for (mut column, &square) in x.columns_mut().into_iter().zip(g.diag()) {
        let inverse = if square > T::zero() { square.recip() } else { T::zero() };
        column.mapv_inplace(|r| r.max(T::zero()) * inverse);
    }
    const ROWS: usize = 4096;
    for (mut x, rhs) in x.axis_chunks_iter_mut(Axis(0), ROWS).zip(rhs.axis_chunks_iter(Axis(0), ROWS)) {
        let product = x.dot(g);
        for ((mut row, r), of_g) in x.rows_mut().into_iter().zip(rhs.rows()).zip(product.rows()) {
            let [fits, square] = [r, of_g].map(|other| inner(&row.view(), &other));
            let factor = if square > 0.0 { fits.max(0.0) / square } else { 0.0 };
            row.mapv_inplace(|a| T::from_f64(a.as_f64() * factor));
        }
    }
    let passes = Sweep { mu: T::zero(), passes: FIT_SWEEPS, penalty: Penalty::NONE };
    sweep(&mut x.view_mut(), rhs, &g.view(), passes);
}

#[cfg(test)]
mod tests {
    use ndarray::arr2;

    use super::*;

    #[test]
    fn lines_are_distinct_and_ascend() {
        for (all, count) in [(1000, 1), (1000, 500), (10, 6), (7, 7), (1, 1)] {
            let drawn = draw(3, all, count);
            assert_eq!(drawn.len(), if 2 * count > all { all } else { count });
            assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]) && drawn.iter().all(|&at| at < all));
        }
        assert_ne!(draw(3, 1000, 100), draw(4, 1000, 100));
        // All indices are drawn about equally often.
        let mut hits = [0; 20];
        (0..2000).for_each(|seed| draw(seed, 20, 5).into_iter().for_each(|at| hits[at] += 1));
        assert!(hits.iter().all(|&n| (400..600).contains(&n)), "{hits:?}");
    }

    #[test]
    fn rows_of_known_factors_are_found_again() {
        // (x, g) with the right-hand side x g: the minimum is x itself.
        let g = arr2(&[[2.0, 0.5], [0.5, 1.0]]);
        let exact = arr2(&[[1.0, 3.0], [0.0, 2.0], [4.0, 0.0], [0.0, 0.0]]);
        let mut x = Array2::zeros((4, 2));
        fit(&mut x, &exact.dot(&g).view(), &g);
        assert!((&x - &exact).iter().all(|d: &f64| d.abs() < 1e-4), "{x}");
        // A component of norm zero.
        fit(&mut x, &exact.view(), &arr2(&[[1.0, 0.0], [0.0, 0.0]]));
        assert!(x.iter().all(|x| x.is_finite()));
    }
}
