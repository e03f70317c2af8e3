//! Rows with few components: the row x ≥ 0 that minimises loss + c · (number of its components), by single steps. L(S) is the least
//! loss of a row whose components are in S. From those of the unrestricted minimiser, the component is removed whose removal raises
//! L(S) least, while that is at most c; then the one is added that lowers L(S) most, if by more than c, and components are
//! removed again. Refits of samples to a catalogue of signatures remove and add in this way (SigProfilerAssignment, Díaz-Gay et al.,
//! Bioinformatics 39, 2023).

use ndarray::{Array1, Array2, ArrayView2, Axis};

use super::Penalty;
use super::bpp::Pivoting;
use super::divergence::{FixedFactor, KlSweeps, column_sums};
use super::project::{NormalEquations, in_double};
use crate::{Block, PerThread, Real, over_rows};

/// Losses that are compared are at most this share of the cost of a component above their minima, or this share of the size of the row.
const COMPARED: f64 = 1e-3;
const LEAST_GAP: f64 = 1e-9;
/// The tolerance of the divergence from which the selection begins.
const NEAR: f64 = 1e-3;

/// The losses of a row, with any components.
trait Subsets {
    /// Finds the minimiser whose components are `used`, from `start` on; returns its loss, at most `gap` above the minimum, or an infinite
    /// one if it exceeds `most`.
    fn minimise(&mut self, from: (&[f64], &[bool]), goal: (f64, f64)) -> f64;

    /// The last minimiser.
    fn solution(&self) -> &[f64];

    /// The slope of the loss along a component at the last minimiser.
    fn slope(&self, component: usize) -> f64;
}

/// Leaves the minimiser of loss + `cost` · (number of components) in `row`, as far as single steps from its `solution` find it.
fn select(row: &mut impl Subsets, cost: f64, size: f64) {
    let gap = (COMPARED * cost).max(LEAST_GAP * size);
    let mut x = row.solution().to_vec();
    let k = x.len();
    let mut loss = row.minimise((&x, &vec![true; k]), (gap, f64::INFINITY));
    x.copy_from_slice(row.solution());
    let mut used: Vec<bool> = x.iter().map(|x| *x > 0.0).collect();
    // The candidate with the least loss, if that is at most `most`.
    let best = |row: &mut _, x: &[f64], used: &mut [bool], candidates: &[usize], mut most: f64| {
        let mut best = None;
        for &j in candidates {
            used[j] = !used[j];
            let found = Subsets::minimise(row, (x, used), (gap, most));
            used[j] = !used[j];
            if found <= most {
                (best, most) = (Some(j), found);
            }
        }
        best
    };
    // Each addition lowers the objective; the limit is for rounding errors.
    for _ in 0..4 * k {
        let members: Vec<usize> = (0..k).filter(|&j| used[j]).collect();
        let step = best(row, &x, &mut used, &members, loss + cost).or_else(|| {
            row.minimise((&x, &used), (gap, f64::INFINITY));
            let others: Vec<usize> = (0..k).filter(|&j| !used[j] && row.slope(j) < 0.0).collect();
            best(row, &x, &mut used, &others, (loss - cost).next_down())
        });
        let Some(j) = step else { break };
        used[j] = !used[j];
        loss = row.minimise((&x, &used), (gap, f64::INFINITY));
        x.copy_from_slice(row.solution());
    }
    row.minimise((&x, &used), (0.0, f64::INFINITY));
}

/// ½‖x − V u‖² from the Gram matrix and the right-hand side.
struct Squares<'a> {
    g: ArrayView2<'a, f64>,
    rhs: Array1<f64>,
    norm2: f64,
    penalty: Penalty,
    solver: &'a mut Pivoting,
    u: Array2<f64>,
}

impl Subsets for Squares<'_> {
    fn minimise(&mut self, (_, used): (&[f64], &[bool]), _: (f64, f64)) -> f64 {
        // Where the right-hand side is negative, the minimiser is 0.
        let none = -self.rhs.iter().fold(f64::MIN_POSITIVE, |most, r| most.max(*r));
        let rhs = Array2::from_shape_fn(self.u.dim(), |(_, l)| if used[l] { self.rhs[l] } else { none });
        self.solver.solve_penalized(&mut self.u.view_mut(), &rhs.view(), &self.g, self.penalty);
        let u = self.u.row(0);
        0.5 * self.norm2 + 0.5 * u.dot(&self.g.dot(&u)) - u.dot(&self.rhs) + self.penalty.value(&self.u.view())
    }

    fn solution(&self) -> &[f64] {
        self.u.as_slice().unwrap_or_default()
    }

    fn slope(&self, component: usize) -> f64 {
        let own = self.penalty.l1 + self.penalty.l2 * self.u[[0, component]];
        self.g.row(component).dot(&self.u.row(0)) - self.rhs[component] + own
    }
}

/// The Kullback-Leibler divergence.
struct Divergences<'a> {
    sweeps: &'a mut KlSweeps,
    sums: &'a [f64],
    penalty: Penalty,
}

impl Subsets for Divergences<'_> {
    fn minimise(&mut self, from: (&[f64], &[bool]), goal: (f64, f64)) -> f64 {
        self.sweeps.minimise(from, (self.sums, self.penalty), goal)
    }

    fn solution(&self) -> &[f64] {
        self.sweeps.solution()
    }

    fn slope(&self, component: usize) -> f64 {
        self.sweeps.slope(component, self.sums, self.penalty)
    }
}

/// The rows U ≥ 0 (rows × k) for a block M (rows × columns) and a fixed V (columns × k) with as few components as a component lowers the
/// loss of its row, with the penalty on U, by more than `gain` times the size of the row: ½‖m‖² for the squared error, and with
/// `by_divergence` the sum of m for the Kullback-Leibler divergence.
pub fn project_few<T: Real>(
    block: &Block<T>,
    v: &ArrayView2<'_, T>,
    by_divergence: bool,
    penalty: Penalty,
    gain: f64,
) -> Array2<T> {
    let (rows, k) = (block.shape().0, v.ncols());
    if by_divergence {
        let size = |row: usize| {
            let mut size = 0.0;
            block.for_each_nonzero(row, |_, m| size += m.as_f64());
            size
        };
        let flat: Vec<T> = v.iter().copied().collect();
        let mut sums = vec![0.0; k];
        column_sums(&flat, &mut sums);
        let fixed = FixedFactor { rows: &flat, sums: &sums, gram: &[] };
        let solvers = PerThread::new(KlSweeps::new(k, 1));
        let mut u = Array2::zeros((rows, k));
        over_rows(&mut u.view_mut(), &|first, mut rows| {
            solvers.with(|sweeps| {
                for (i, mut u) in rows.rows_mut().into_iter().enumerate() {
                    let size = size(first + i);
                    sweeps.solve((block, first + i), fixed, penalty, NEAR);
                    select(&mut Divergences { sweeps, sums: &sums, penalty }, gain * size, size);
                    u.iter_mut().zip(sweeps.solution()).for_each(|(u, &x)| *u = T::from_f64(x));
                }
            });
        });
        return u;
    }
    let equations = NormalEquations::new(v, penalty, block.order());
    let (g, penalty, scales) = (equations.gram.view(), equations.penalty, &equations.scales);
    let mut solver = Pivoting::new(k);
    in_double(block, k, |part| {
        let (mut u, rhs) = equations.solve(part, &mut solver);
        for (i, mut u) in u.rows_mut().into_iter().enumerate() {
            let mut norm2 = 0.0;
            part.for_each_nonzero(i, |_, m| norm2 += m * m);
            let (rhs, start) = (rhs.row(i).to_owned(), u.to_owned().insert_axis(Axis(0)));
            let mut row = Squares { g, rhs, norm2, penalty, solver: &mut solver, u: start };
            select(&mut row, 0.5 * gain * norm2, norm2);
            u.iter_mut().zip(row.solution()).zip(scales).for_each(|((u, x), scale)| *u = x * scale);
        }
        u
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nls::project;
    use crate::random::{Purpose, Stream};

    /// Rows of three of eight components, with noise, and the number that are found.
    fn planted() -> (Array2<f64>, Array2<f64>, Array2<f64>) {
        let mut cursor = Stream::new(4, Purpose::Probe, 0).at(0);
        let v = Array2::from_shape_fn((60, 8), |_| cursor.uniform().powi(4));
        let v = &v / &v.sum_axis(Axis(0));
        let u =
            Array2::from_shape_fn(
                (20, 8),
                |(i, l)| if (i + 3 * l) % 8 < 3 { 300.0 + 700.0 * cursor.uniform() } else { 0.0 },
            );
        let x = u.dot(&v.t()).mapv(|mean| cursor.poisson(mean));
        (x, u, v)
    }

    fn loss(x: &Array2<f64>, u: &Array2<f64>, v: &Array2<f64>, by_divergence: bool, row: usize) -> f64 {
        let fit = u.row(row).dot(&v.t());
        let divergence = |(m, f): (&f64, &f64)| if *m > 0.0 { m * (m / f).ln() - m + f } else { *f };
        let square = |(m, f): (&f64, &f64)| 0.5 * (m - f).powi(2);
        x.row(row).iter().zip(&fit).map(|pair| if by_divergence { divergence(pair) } else { square(pair) }).sum()
    }

    #[test]
    fn planted_components_are_selected() {
        let (x, u, v) = planted();
        for by_divergence in [false, true] {
            for block in [Block::Dense(x.clone().into()), Block::Dense(x.clone().into()).sparsified()] {
                let found = project_few(&block, &v.view(), by_divergence, Penalty::NONE, 0.01);
                let same = found.iter().zip(&u).filter(|(a, b)| (**a > 0.0) == (**b > 0.0)).count();
                assert!(same >= 155, "{by_divergence}: {same} of 160");
                let all = project_few(&block, &v.view(), by_divergence, Penalty::NONE, 0.0);
                assert!(all.iter().filter(|x| **x > 0.0).count() > found.iter().filter(|x| **x > 0.0).count());
            }
        }
    }

    /// No single step improves the selection, and the weights are the exact minimiser for it.
    #[test]
    fn the_selection_follows_its_rule() {
        let (x, _, v) = planted();
        let block = Block::Dense(x.clone().into());
        for (by_divergence, gain) in [(false, 0.003), (false, 0.02), (true, 0.002), (true, 0.02)] {
            let found = project_few(&block, &v.view(), by_divergence, Penalty::NONE, gain);
            for i in 0..x.nrows() {
                let used: Vec<bool> = found.row(i).iter().map(|x| *x > 0.0).collect();
                let cost = gain * if by_divergence { x.row(i).sum() } else { 0.5 * x.row(i).dot(&x.row(i)) };
                let own = Block::Dense(x.slice(ndarray::s![i..=i, ..]).to_owned().into());
                let least = |used: &[bool]| {
                    let chosen: Vec<usize> = (0..8).filter(|&l| used[l]).collect();
                    let part = v.select(Axis(1), &chosen);
                    let u = match by_divergence {
                        true => super::super::divergence::project_on(&own, &part.view(), 1.0, Penalty::NONE),
                        false => project(&own, &part.view(), Penalty::NONE),
                    };
                    let x = x.slice(ndarray::s![i..=i, ..]).to_owned();
                    loss(&x, &u, &part, by_divergence, 0)
                };
                let now = least(&used);
                let exact = loss(&x, &found, &v, by_divergence, i);
                assert!((exact - now).abs() <= 1e-6 * (1.0 + now), "{by_divergence} {i}: {exact} {now}");
                for j in 0..8 {
                    let mut other = used.clone();
                    other[j] = !used[j];
                    let change = least(&other) - now;
                    let slack = 1e-5 * (1.0 + now);
                    let better = if used[j] { change <= cost - slack } else { change < -cost - slack };
                    assert!(!better, "{by_divergence} {gain}, row {i}, component {j}: {change} {cost}");
                }
            }
        }
    }

    #[test]
    fn rows_of_zeros_and_single_precision_are_served() {
        let (mut x, _, v) = planted();
        x.row_mut(3).fill(0.0);
        let (single, narrow) = (x.mapv(|x| x as f32), v.mapv(|x| x as f32));
        for by_divergence in [false, true] {
            let wide = project_few(&Block::Dense(x.clone().into()), &v.view(), by_divergence, Penalty::NONE, 0.02);
            assert!(wide.row(3).iter().all(|x| *x == 0.0));
            let found =
                project_few(&Block::Dense(single.clone().into()), &narrow.view(), by_divergence, Penalty::NONE, 0.02);
            let off = |(a, b): (&f64, &f32)| (a - f64::from(*b)).abs() > 1e-2 * (1.0 + a);
            assert_eq!(wide.iter().zip(&found).filter(|pair| off(*pair)).count(), 0, "{by_divergence}");
        }
    }
}
