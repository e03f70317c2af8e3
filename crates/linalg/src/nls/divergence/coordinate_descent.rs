//! Coordinate descent by Newton steps (Hsieh and Dhillon, Fast Coordinate Descent Methods with Variable Selection for
//! Non-negative Matrix Factorization, KDD 2011).
//!
//! Along a coordinate the slope of this objective is concave. Left of its root a Newton step stays left of it. Right of the
//! root a step can overshoot, and the original method may increase the objective. A step to x/2 or more cannot, since the
//! curvature at t is at most (x/t)² times that at x. For longer steps the slope at the new point decides: either the step is
//! taken, or the root of the chord, which lies right of the root of the slope. The objective never increases.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use pulp::{Simd, WithSimd};

use super::newton::{Newton, Row, Step};
use super::{DivergenceUpdate, FixedFactor, LANES, column_sums, multiplied};
use crate::memory::prefetch;
use crate::nls::Penalty;
use crate::simd::{Lanes, dispatch};
use crate::{Block, PerThread, Real, over_rows};

/// A fit is at least this fraction of its entry, so that an entry whose fit is 0 has a finite gradient. Far below what factors leave of
/// a weight that fades away: a fit that is held up is not that of the minimum.
const MIN_FIT: f64 = 1e-60;

/// Maximum number of sweeps of [`KlSweeps::solve`].
const MAX_SWEEPS: usize = 2000;
/// Newton steps follow where more sweeps than this would be left, after the first few sweeps, or as soon as no entry changes by more
/// than `NEAR` times the largest one. Until a row is solved, the steps take as long as some twelve sweeps.
const PATIENCE: f64 = 12.0;
const FIRST_SWEEPS: usize = 3;
const NEAR: f64 = 0.1;
/// The objective is at its minimum once it falls by less than this share of the sum of the data; x is after that many more steps.
const ROUNDING: f64 = 1e-15;
const LAST_STEPS: usize = 2;
/// The tolerance of [`KlSweeps::solve`] of an exact solution.
pub const SOLVED: f64 = 1e-12;

/// Sweeps of [`KlSweeps::minimise`] between two gaps, each of which takes about half a sweep.
const SWEEPS_PER_GAP: usize = 3;

/// Visits the k coordinates of a row `passes` times, with one Newton step each.
#[derive(Debug, Clone)]
pub struct KlSweeps {
    passes: usize,
    /// The row x.
    x: Vec<f64>,
    /// The number of nonzeros of the row of the data.
    count: usize,
    /// The nonzeros, and the fits there. These and all columns are filled up to a multiple of [`LANES`] by zeros with the fit
    /// 1.
    entries: Vec<f64>,
    fit: Vec<f64>,
    /// Their columns in the data.
    places: Vec<usize>,
    /// The rows of Y at these nonzeros, as k columns.
    columns: Vec<f64>,
    newton: Newton,
}

/// How a row is solved for next.
enum Phase {
    /// By sweeps: the number of those done, and the largest change of the last one.
    Sweeps(usize, f64),
    /// By Newton steps: how many are left once only rounding moves the row.
    Newton(usize),
}

/// The first derivative of Σ m ln f along a coordinate, and the negative second one.
struct Derivatives {
    slope: f64,
    curvature: f64,
}

impl<T: Real> DivergenceUpdate<T> for KlSweeps {
    fn update(&mut self, (block, row): (&Block<T>, usize), y: FixedFactor<'_, T>, x: &mut [T], penalty: Penalty) {
        self.read(block, row, y.rows);
        self.x.iter_mut().zip(&*x).for_each(|(own, x)| *own = x.as_f64());
        self.fit_row();
        for _ in 0..self.passes {
            self.pass(y.sums, penalty);
        }
        x.iter_mut().zip(&self.x).for_each(|(x, &own)| *x = T::from_f64(own));
    }

    fn flops(&self, stored: usize, _: usize) -> usize {
        Self::flops_of(self.passes) * stored
    }
}

impl KlSweeps {
    /// Operations for each stored entry and component: the fit, and in each pass a ratio, its terms in the slope and the curvature,
    /// and the new fit.
    pub const fn flops_of(passes: usize) -> usize {
        2 + 7 * passes
    }

    pub fn new(k: usize, passes: usize) -> Self {
        KlSweeps {
            passes,
            x: vec![0.0; k],
            count: 0,
            entries: Vec::new(),
            fit: Vec::new(),
            places: Vec::new(),
            columns: Vec::new(),
            newton: Newton::default(),
        }
    }

    /// Computes the row x of minimum divergence, until no entry changes by more than `tolerance` times the largest one;
    /// [`KlSweeps::solution`] returns it. Returns the number of sweeps and Newton steps.
    pub fn solve<T: Real>(
        &mut self,
        (block, row): (&Block<T>, usize),
        y: FixedFactor<'_, T>,
        penalty: Penalty,
        tolerance: f64,
    ) -> usize {
        self.read(block, row, y.rows);
        // The best multiple of the row of ones.
        let (all, own): (f64, f64) = (y.sums.iter().sum(), self.entries.iter().sum());
        let ones = if all > 0.0 { own / all } else { 0.0 };
        // The data say nothing of a component without any column.
        self.x.iter_mut().zip(y.sums).for_each(|(x, &sum)| *x = if sum > 0.0 { ones } else { 0.0 });
        self.fit_row();
        self.newton.begin(self.x.len());
        let mut phase = Phase::Sweeps(0, f64::INFINITY);
        (1..MAX_SWEEPS).find(|_| self.has_converged(&mut phase, y.sums, penalty, tolerance)).unwrap_or(MAX_SWEEPS)
    }

    /// The row of the last [`KlSweeps::solve`].
    pub fn solution(&self) -> &[f64] {
        &self.x
    }

    /// A sweep or a Newton step; returns whether no coordinate changed by more than `tolerance` times the largest one,
    /// or rounding ends the descent.
    fn has_converged(&mut self, phase: &mut Phase, sums: &[f64], penalty: Penalty, tolerance: f64) -> bool {
        let step = if matches!(phase, Phase::Sweeps(..)) { None } else { self.newton_step(sums, penalty) };
        let moved = step.as_ref().map_or_else(|| self.pass(sums, penalty), |step| step.moved);
        let largest = self.x.iter().copied().fold(0.0, f64::max);
        match phase {
            Phase::Sweeps(done, last) => {
                // As many more sweeps if each one's change is this share of the last one's.
                let more = if moved < *last {
                    (tolerance * largest / moved).ln() / (moved / *last).ln()
                } else {
                    f64::INFINITY
                };
                let near = *done >= FIRST_SWEEPS || moved <= NEAR * largest;
                (*done, *last) = (*done + 1, moved);
                if near && more > PATIENCE {
                    *phase = Phase::Newton(LAST_STEPS);
                }
            }
            Phase::Newton(steps) => {
                let total: f64 = self.entries.iter().sum();
                if step.is_some_and(|step| step.fall <= ROUNDING * total) {
                    *steps -= 1;
                }
            }
        }
        moved <= tolerance * largest || matches!(phase, Phase::Newton(0))
    }

    fn newton_step(&mut self, sums: &[f64], penalty: Penalty) -> Option<Step> {
        let KlSweeps { x, entries, fit, columns, newton, .. } = self;
        let step = newton.step(Row { x, entries, fit, columns, least: MIN_FIT }, sums, penalty)?;
        self.fit_row();
        Some(step)
    }

    /// Minimises the objective for the row that was solved last over the coordinates that are used, from `start` on, until it is at most
    /// `gap` above its minimum; returns it. It is infinite as soon as it is known to be larger than `most`.
    pub fn minimise(
        &mut self,
        (start, used): (&[f64], &[bool]),
        (sums, penalty): (&[f64], Penalty),
        (gap, most): (f64, f64),
    ) -> f64 {
        // No pass visits a coordinate of infinite cost.
        let costs: Vec<f64> =
            sums.iter().zip(used).map(|(&sum, &used)| if used { sum } else { f64::INFINITY }).collect();
        let total: f64 = self.entries.iter().sum();
        let all: f64 = costs.iter().filter(|sum| sum.is_finite()).sum();
        let ones = if all > 0.0 { total / all } else { 0.0 };
        let begins = start.iter().zip(used).any(|(x, used)| *used && *x > 0.0);
        for (((x, &start), &used), &sum) in self.x.iter_mut().zip(start).zip(used).zip(sums) {
            *x = if !used || sum == 0.0 {
                0.0
            } else if begins {
                start
            } else {
                ones
            };
        }
        self.fit_row();
        self.newton.begin(self.x.len());
        let mut phase = Phase::Sweeps(0, f64::INFINITY);
        for sweep in 1..=MAX_SWEEPS {
            if self.has_converged(&mut phase, &costs, penalty, SOLVED) {
                break;
            }
            if sweep % SWEEPS_PER_GAP == 0 {
                let left = self.gap(total, &costs, penalty);
                if left <= gap {
                    break;
                }
                if self.objective(sums, penalty) - left > most {
                    return f64::INFINITY;
                }
            }
        }
        self.objective(sums, penalty)
    }

    fn objective(&self, sums: &[f64], penalty: Penalty) -> f64 {
        let cost = |(x, sum): (&f64, &f64)| x * (sum + penalty.l1 + 0.5 * penalty.l2 * x);
        self.x.iter().zip(sums).map(cost).sum::<f64>()
            + self.entries[..self.count].iter().zip(&self.fit).map(|(m, fit)| m * (m / fit).ln() - m).sum::<f64>()
    }

    /// The duality gap. Any θ ≥ 0 with Σ_j θ_j y_jl ≤ c_l for the cost c_l of each coordinate, here a multiple t of m / f, bounds the
    /// minimum of Σ_l c_l x_l − Σ m ln f from below by Σ m + Σ m ln (θ / m).
    fn gap(&self, total: f64, costs: &[f64], penalty: Penalty) -> f64 {
        let (mut linear, mut t) = (0.0, f64::INFINITY);
        for (l, (&x, &sum)) in self.x.iter().zip(costs).enumerate().filter(|(_, (_, sum))| **sum < f64::INFINITY) {
            let cost = sum + penalty.l1 + penalty.l2 * x;
            linear += cost * x;
            t = t.min(cost / self.pull(l));
        }
        linear - total - total * t.ln()
    }

    /// Σ m y / f for a coordinate.
    fn pull(&self, coordinate: usize) -> f64 {
        dispatch(Pull { sweeps: self, coordinate })
    }

    /// The slope of the objective along a coordinate at the last solution.
    pub fn slope(&self, coordinate: usize, sums: &[f64], penalty: Penalty) -> f64 {
        sums[coordinate] + penalty.l1 + penalty.l2 * self.x[coordinate] - self.pull(coordinate)
    }

    /// Copies the nonzeros of a row, and the rows of Y there.
    fn read<T: Real>(&mut self, block: &Block<T>, row: usize, y: &[T]) {
        let KlSweeps { count, entries, places, fit, columns, .. } = self;
        entries.clear();
        places.clear();
        block.for_each_nonzero(row, |j, m| {
            entries.push(m.as_f64());
            places.push(j);
        });
        *count = entries.len();
        let length = count.next_multiple_of(LANES);
        entries.resize(length, 0.0);
        fit.resize(length, 0.0);
        columns.resize(length * self.x.len(), 0.0);
        dispatch(Transpose { places, y, columns, length });
        if length > *count {
            columns.chunks_exact_mut(length).for_each(|column| column[*count..].fill(0.0));
        }
    }

    fn fit_row(&mut self) {
        dispatch(FitRow(self));
    }

    /// Visits each coordinate once and returns the largest change.
    fn pass(&mut self, sums: &[f64], penalty: Penalty) -> f64 {
        dispatch(Pass { sweeps: self, sums, weights: penalty.weights() })
    }
}

/// Copies rows of Y to columns of `length` numbers, [`LANES`] rows at a time, so that each cache line is written once.
struct Transpose<'a, T> {
    places: &'a [usize],
    y: &'a [T],
    columns: &'a mut [f64],
    length: usize,
}

impl<T: Real> WithSimd for Transpose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Transpose { places, y, columns, length } = self;
        if places.is_empty() {
            return;
        }
        let k = columns.len() / length;
        let row = |at: usize| {
            // Past the end, the last row is copied again.
            let j = places[at.min(places.len() - 1)];
            &y[j * k..(j + 1) * k]
        };
        for at in (0..length).step_by(LANES) {
            (at + LANES..at + 2 * LANES).for_each(|next| prefetch(row(next)));
            let rows: [&[T]; LANES] = std::array::from_fn(|n| row(at + n));
            for l in 0..k {
                let to = &mut columns[l * length + at..][..LANES];
                for n in 0..LANES {
                    to[n] = rows[n][l].as_f64();
                }
            }
        }
    }
}

/// Vectors of f64.
type Vectors<'a, S> = &'a [<f64 as Lanes>::Vector<S>];

/// See [`KlSweeps::pull`].
struct Pull<'a> {
    sweeps: &'a KlSweeps,
    coordinate: usize,
}

impl WithSimd for Pull<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) -> f64 {
        let KlSweeps { entries, fit, columns, .. } = self.sweeps;
        let column = &columns[self.coordinate * entries.len()..(self.coordinate + 1) * entries.len()];
        derivatives(s, [entries, fit, column].map(|slice| f64::vectors::<S>(slice).0), 0.0).slope
    }
}

/// Computes the fits of the row x.
struct FitRow<'a>(&'a mut KlSweeps);

impl WithSimd for FitRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let KlSweeps { x, count, entries, fit, columns, .. } = self.0;
        let length = entries.len();
        let entries = f64::vectors::<S>(entries).0;
        let (to, columns) = (f64::vectors_mut::<S>(fit).0, f64::vectors::<S>(columns).0);
        let least = f64::splat_v(s, MIN_FIT);
        to.fill(f64::splat_v(s, 0.0));
        for (l, &x) in x.iter().enumerate() {
            let x = f64::splat_v(s, x);
            for (fit, &y) in to.iter_mut().zip(&columns[l * entries.len()..(l + 1) * entries.len()]) {
                *fit = f64::mul_add_v(s, x, y, *fit);
            }
        }
        for (fit, &m) in to.iter_mut().zip(entries) {
            *fit = f64::max_v(s, *fit, f64::mul_v(s, least, m));
        }
        fit[*count..length].fill(1.0);
    }
}

/// See [`KlSweeps::pass`].
struct Pass<'a> {
    sweeps: &'a mut KlSweeps,
    sums: &'a [f64],
    weights: (f64, f64),
}

impl WithSimd for Pass<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) -> f64 {
        let KlSweeps { x, entries, fit, columns, .. } = self.sweeps;
        let (l1, l2) = self.weights;
        let [entries, columns] = [entries, columns].map(|slice| f64::vectors::<S>(slice).0);
        let (fit, count) = (f64::vectors_mut::<S>(fit).0, entries.len());
        let least = f64::splat_v(s, MIN_FIT);
        let mut moved: f64 = 0.0;
        for (l, (x, &sum)) in x.iter_mut().zip(self.sums).enumerate().filter(|(_, (_, sum))| **sum < f64::INFINITY) {
            let column = &columns[l * count..(l + 1) * count];
            let next = step(
                *x,
                sum + l1,
                l2,
                #[inline(always)]
                |shift| derivatives(s, [entries, fit, column], shift),
            );
            let shift = next - *x;
            if shift != 0.0 {
                *x = next;
                moved = moved.max(shift.abs());
                let shift = f64::splat_v(s, shift);
                for ((fit, &y), &m) in fit.iter_mut().zip(column).zip(entries) {
                    *fit = f64::max_v(s, f64::mul_add_v(s, shift, y, *fit), f64::mul_v(s, least, m));
                }
            }
        }
        moved
    }
}

/// The next x ≥ 0, for the slope s(x + shift) = sum + λ₂ (x + shift) − data(shift).slope of the objective.
#[inline(always)]
fn step(x: f64, sum: f64, l2: f64, data: impl Fn(f64) -> Derivatives) -> f64 {
    let here = data(0.0);
    let (slope, curvature) = (sum + l2 * x - here.slope, here.curvature + l2);
    if slope == 0.0 || !slope.is_finite() {
        return x;
    }
    // The minimiser of the auxiliary function of multiplicative updates is between x and the root as well.
    let multiplied = multiplied(x * here.slope, sum, l2);
    if slope < 0.0 {
        return (x - slope / curvature).max(multiplied);
    }
    let next = if curvature > 0.0 { (x - slope / curvature).max(0.0) } else { 0.0 };
    if next >= 0.5 * x {
        return next;
    }
    let slope_there = sum + l2 * next - data(next - x).slope;
    if slope_there >= -slope {
        return next;
    }
    let chord = next - (x - next) * slope_there / (slope - slope_there);
    if chord.is_finite() { chord.min(multiplied) } else { multiplied }
}

/// Σ m y / (f + shift y) and Σ m y² / (f + shift y)².
#[inline(always)]
fn derivatives<S: Simd>(s: S, [entries, fit, column]: [Vectors<'_, S>; 3], shift: f64) -> Derivatives {
    let zero = f64::splat_v(s, 0.0);
    let (mut slopes, mut curvatures) = (zero, zero);
    let (by, least) = (f64::splat_v(s, shift), f64::splat_v(s, MIN_FIT));
    for ((&m, &fit), &y) in entries.iter().zip(fit).zip(column) {
        // The fits themselves are large enough.
        let fit = match shift == 0.0 {
            true => fit,
            false => f64::max_v(s, f64::mul_add_v(s, by, y, fit), f64::mul_v(s, least, m)),
        };
        let ratio = f64::div_v(s, y, fit);
        let term = f64::mul_v(s, m, ratio);
        slopes = f64::add_v(s, slopes, term);
        curvatures = f64::mul_add_v(s, term, ratio, curvatures);
    }
    Derivatives { slope: f64::sum_v(s, slopes), curvature: f64::sum_v(s, curvatures) }
}

/// The U ≥ 0 (rows × k) that minimises the divergence of a block M (rows × columns) from U Vᵀ and the penalty on U, for
/// a fixed V (columns × k).
pub fn project<T: Real>(block: &Block<T>, v: &ArrayView2<'_, T>, penalty: Penalty) -> Array2<T> {
    let (rows, k) = (block.shape().0, v.ncols());
    let v: Vec<T> = v.iter().copied().collect();
    let mut sums = vec![0.0; k];
    column_sums(&v, &mut sums);
    let mut u = Array2::zeros((rows, k));
    let fixed = FixedFactor { rows: &v, sums: &sums, gram: &[] };
    let solvers = PerThread::new(KlSweeps::new(k, 1));
    solve_rows(&solvers, (block, 0), fixed, (penalty, SOLVED), &mut u.view_mut());
    u
}

/// The rows of U for the rows of a block from `first` on, to a tolerance. Their bits do not depend on the former ones, nor on the
/// threads.
pub fn solve_rows<T: Real>(
    solvers: &PerThread<KlSweeps>,
    (block, first): (&Block<T>, usize),
    v: FixedFactor<'_, T>,
    (penalty, tolerance): (Penalty, f64),
    u: &mut ArrayViewMut2<'_, T>,
) {
    over_rows(u, &|at, mut rows: ArrayViewMut2<'_, T>| {
        solvers.with(|solver| {
            for (i, mut u) in rows.rows_mut().into_iter().enumerate() {
                solver.solve((block, first + at + i), v, penalty, tolerance);
                u.iter_mut().zip(&solver.x).for_each(|(u, &x)| *u = T::from_f64(x));
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::Csr;
    use crate::random::{Purpose, Stream, uniform_factor};

    fn random(i: u64, rows: usize, k: usize) -> Array2<f64> {
        uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0)
    }

    /// Counts with zeros, and a last row of zeros.
    fn counts() -> Array2<f64> {
        let mut m = random(1, 15, 37).mapv(|x| (x * 12.0 - 6.0).max(0.0).floor());
        m.row_mut(14).fill(0.0);
        m
    }

    /// The rows of Y, and the sums of its columns.
    fn parts(y: &Array2<f64>) -> (Vec<f64>, Vec<f64>) {
        (y.iter().copied().collect(), y.sum_axis(ndarray::Axis(0)).to_vec())
    }

    fn fixed<'a>(rows: &'a [f64], sums: &'a [f64]) -> FixedFactor<'a, f64> {
        FixedFactor { rows, sums, gram: &[] }
    }

    fn objective(m: &Array2<f64>, x: &Array2<f64>, y: &Array2<f64>, penalty: Penalty) -> f64 {
        let one = |(m, f): (&f64, &f64)| if *m > 0.0 { m * (m / f).ln() - m + f } else { *f };
        m.iter().zip(&x.dot(&y.t())).map(one).sum::<f64>() + penalty.value(&x.view())
    }

    const PENALTIES: [Penalty; 4] =
        [Penalty::NONE, Penalty { l1: 0.5, l2: 0.0 }, Penalty { l1: 0.0, l2: 2.0 }, Penalty { l1: 0.3, l2: 1.0 }];

    #[test]
    fn the_objective_never_rises_and_comes_to_a_stationary_point() {
        let (m, y) = (counts(), random(3, 37, 4));
        let (flat, sums) = parts(&y);
        let sparse = Block::Sparse(Csr::new(sprs::CsMatI::csr_from_dense(m.view(), 0.0)));
        for block in [Block::Dense(m.clone().into()), sparse] {
            // From starts far above the root, a Newton step passes it.
            for (penalty, scale) in
                PENALTIES.into_iter().flat_map(|penalty| [0.01, 1.0, 1e3].map(|scale| (penalty, scale)))
            {
                let mut x = random(2, 15, 4) * scale;
                let mut sweeps = KlSweeps::new(4, 1);
                for _ in 0..200 {
                    let before = objective(&m, &x, &y, penalty);
                    for (row, mut x) in x.rows_mut().into_iter().enumerate() {
                        sweeps.update((&block, row), fixed(&flat, &sums), x.as_slice_mut().unwrap(), penalty);
                    }
                    assert!(objective(&m, &x, &y, penalty) <= before + 1e-12 * before.abs(), "{penalty:?} {scale}");
                }
                check_stationary(&m, &x, &y, penalty);
            }
        }
    }

    /// The gradient is 0 where an entry is positive, and at least 0 elsewhere.
    fn check_stationary(m: &Array2<f64>, x: &Array2<f64>, y: &Array2<f64>, penalty: Penalty) {
        let pull = |(m, f): (&f64, &f64)| if *m > 0.0 { m / f } else { 0.0 };
        let ratios: Vec<f64> = m.iter().zip(&x.dot(&y.t())).map(pull).collect();
        let ratios = Array2::from_shape_vec(m.dim(), ratios).unwrap().dot(y);
        let gradient = x * penalty.l2 + penalty.l1 + y.sum_axis(ndarray::Axis(0)) - ratios;
        for (x, gradient) in x.iter().zip(&gradient) {
            assert!(*gradient > -1e-8 && (x * gradient).abs() < 1e-8, "{penalty:?}: {x} {gradient}");
        }
    }

    #[test]
    fn a_projection_is_the_minimum() {
        let (m, y) = (counts(), random(3, 37, 4));
        for penalty in PENALTIES {
            let x = project(&Block::Dense(m.clone().into()), &y.view(), penalty);
            check_stationary(&m, &x, &y, penalty);
            assert!(x.row(14).iter().all(|x| *x == 0.0), "a row of zeros has none");
        }
        // With one component it is Σ m / Σ y, and with more the fits have the sum of the entries, however small a weight is.
        for tiny in [1e-8, 1e-12, 1e-13, 1e-17, 1e-40_f64] {
            let found = project(
                &Block::Dense(array![[1.0, 2.0, 100.0]].into()),
                &array![[1.0], [1.0], [tiny]].view(),
                Penalty::NONE,
            );
            assert!((found[[0, 0]] / (103.0 / (2.0 + tiny)) - 1.0).abs() < 1e-9, "{tiny}: {found}");
            let y = array![[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [tiny, 1.1 * tiny]];
            let found = project(&Block::Dense(array![[1.0, 2.0, 1.0, 5.0]].into()), &y.view(), Penalty::NONE);
            assert!((found.dot(&y.t()).sum() / 9.0 - 1.0).abs() < 1e-8, "{tiny}: {found}");
        }
        // A planted U is recovered.
        let planted = random(5, 9, 4);
        let exact = planted.dot(&y.t());
        let found = project(&Block::Dense(exact.into()), &y.view(), Penalty::NONE);
        assert!((&found - &planted).iter().all(|e| e.abs() < 1e-8));
    }

    /// Components that resemble each other, more of them than columns, zeros: few steps, and none better after thousands of sweeps.
    #[test]
    fn few_steps_find_what_sweeps_approach() {
        for (draw, (n, k)) in [(37, 4), (300, 20), (8, 12), (1, 3), (90, 40)].into_iter().enumerate() {
            let resemblance = random(10, 1, n).row(0).to_owned();
            for (share, penalty) in
                [0.0, 0.9, 0.99].into_iter().flat_map(|share| PENALTIES.map(|penalty| (share, penalty)))
            {
                let mut y = random(20 + draw as u64, n, k).mapv(|y: f64| (y - 0.3).max(0.0));
                for mut column in y.columns_mut() {
                    column.zip_mut_with(&resemblance, |y, all| *y = share * all + (1.0 - share) * *y);
                }
                let planted = random(30, 6, k).mapv(|x| (x - 0.5).max(0.0) * 30.0);
                let noise = random(40, 6, n);
                let m = (planted.dot(&y.t()) * &noise * 2.0).mapv(f64::round);
                let (flat, sums) = parts(&y);
                let block = Block::Dense(m.clone().into());
                for i in 0..6 {
                    let fixed = fixed(&flat, &sums);
                    let mut sweeps = KlSweeps::new(k, 2000);
                    let steps = sweeps.solve((&block, i), fixed, penalty, SOLVED);

                    assert!(steps <= 25, "{n} {k} {share} {penalty:?}: {steps} steps");
                    let found = sweeps.objective(&sums, penalty);
                    let mut x = sweeps.x.clone();
                    sweeps.update((&block, i), fixed, &mut x, penalty);
                    let better = sweeps.objective(&sums, penalty);
                    let rounding = 1e-13 * m.row(i).sum();
                    assert!(found <= better + rounding, "{n} {k} {share} {penalty:?}: {found}, not {better}");
                }
            }
        }
    }

    #[test]
    fn a_component_without_columns_has_no_weight() {
        let (m, mut y) = (counts(), random(3, 37, 4));
        y.column_mut(2).fill(0.0);
        let x = project(&Block::Dense(m.clone().into()), &y.view(), Penalty::NONE);
        assert!(x.column(2).iter().all(|x| *x == 0.0), "{x}");
        check_stationary(&m, &x, &y, Penalty::NONE);
    }

    /// The iteration leaves a start with zeros where the data has ones.
    #[test]
    fn zeros_can_be_left() {
        let (m, y) = (Array2::from_elem((1, 6), 3.0), random(3, 6, 2));
        let (flat, sums) = parts(&y);
        let mut x = Array2::zeros((1, 2));
        let row = x.as_slice_mut().unwrap();
        KlSweeps::new(2, 300).update((&Block::Dense(m.clone().into()), 0), fixed(&flat, &sums), row, Penalty::NONE);
        check_stationary(&m, &x, &y, Penalty::NONE);
    }
}
