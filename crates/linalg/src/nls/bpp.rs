//! Block principal pivoting (Kim and Park, Fast Nonnegative Matrix Factorization: An Active-Set-Like Method and
//! Comparisons, SIAM J. Sci. Comput. 33, 2011): the exact minimiser of ½ x G xᵀ − r xᵀ over x ≥ 0 for every row. With a
//! penalty, G + λ₂I and r − λ₁ take the place of G and r.
//!
//! A row is solved when its KKT conditions hold: x ≥ 0, y = x G − r ≥ 0, x ∘ y = 0. The passive set F has the coordinates
//! with y = 0; in all others x = 0. Coordinates that violate a sign are exchanged, as long as the number of violations falls.
//! The paper then exchanges one coordinate at a time, which is finite but slow, and cycles if G is nearly singular; here the
//! active-set method takes over. Rows with the same passive set share the Cholesky factor of G_FF. A row starts from the
//! positive coordinates of its last solution.
//!
//! The arithmetic is in f64 in both precisions, since the exchanges depend on signs. Each row is independent of the others.
//! Coordinates are scaled by powers of two such that the diagonal of G is about 1: components of very different sizes are
//! solved for with the same relative accuracy.

use ndarray::{Array1, ArrayView2, ArrayViewMut2};

use super::Penalty;
use super::active_set::ActiveSet;
use crate::{Cholesky, Real};

/// Exchanges that do not reduce the violations, before the active-set method takes over.
const EXCHANGES: u32 = 3;
/// δ of [`Pivoting::solve`]: above the rounding of G, which would make a nearly singular G indefinite; 1e-14 in double precision.
fn ridge<T: Real>(k: usize) -> f64 {
    // One component depends on no other.
    if k > 1 { 45.0 * T::epsilon().as_f64() } else { 0.0 }
}

/// A power of two s with s² x from ½ to 2, or 0 if x is.
fn inverse_root(x: f64) -> f64 {
    if x > 0.0 { (-0.5 * x.log2()).round().exp2() } else { 0.0 }
}

/// The state of the exchange rule for one row.
#[derive(Debug, Clone, Copy)]
struct ExchangeState {
    fewest_violations: u32,
    exchanges_left: u32,
}

/// The solver with its workspace, which is allocated on first use and then reused.
#[derive(Debug, Clone, Default)]
pub struct Pivoting {
    k: usize,
    /// D G D, with D = diag(`scales`).
    gram: Vec<f64>,
    /// A power of two for each coordinate; 0 for one on which nothing acts, and which becomes 0.
    scales: Vec<f64>,
    /// λ₁ of the penalty.
    l1: f64,
    /// Passive sets, `words` for each row.
    passive: Vec<u64>,
    words: usize,
    exchanges: Vec<ExchangeState>,
    /// Rows that are not solved yet.
    open: Vec<u32>,
    /// x, then y, of one row.
    x: Vec<f64>,
    /// The passive set of the current Cholesky factor, that factor, and the coordinates of the set, ascending.
    current: Vec<u64>,
    cholesky: Cholesky,
    members: Vec<usize>,
    active_set: ActiveSet,
}

impl Pivoting {
    /// A solver for k components.
    pub fn new(k: usize) -> Self {
        // The passive sets of later rows may be larger than those of the first.
        Pivoting {
            k,
            words: k.div_ceil(64),
            members: Vec::with_capacity(k),
            cholesky: Cholesky::with_capacity(k),
            active_set: ActiveSet::new(k),
            ..Pivoting::default()
        }
    }

    /// X ← the solution for every row; X and R are rows × k, G is k × k, symmetric and positive semidefinite. The positive
    /// entries of X are the starting passive sets. The matrix solved for is G + δ diag(G) with δ = 45 ε, so that a singular G has a
    /// solution.
    pub fn solve<T: Real>(&mut self, x: &mut ArrayViewMut2<T>, r: &ArrayView2<T>, g: &ArrayView2<T>) {
        self.solve_penalized(x, r, g, Penalty::NONE);
    }

    /// As [`Pivoting::solve`], with a penalty on X.
    pub fn solve_penalized<T: Real>(
        &mut self,
        x: &mut ArrayViewMut2<T>,
        r: &ArrayView2<T>,
        g: &ArrayView2<T>,
        penalty: Penalty,
    ) {
        let (rows, k) = x.dim();
        let (l1, l2) = penalty.weights::<f64>();
        self.l1 = l1;
        assert!(k == self.k && r.dim() == (rows, k) && g.dim() == (k, k), "shapes of a pivoting step");
        let own = |j: usize| g[[j, j]].as_f64() + l2;
        if (0..k).all(|j| own(j) <= 0.0) {
            // Only λ₁ acts on X.
            if l1 > 0.0 {
                x.fill(T::zero());
            }
            return;
        }
        self.scales.clear();
        self.scales.extend((0..k).map(|j| inverse_root(own(j))));
        let scales = &self.scales;
        self.gram.clear();
        self.gram.extend((0..k * k).map(|p| g[[p / k, p % k]].as_f64() * scales[p / k] * scales[p % k]));
        for j in 0..k {
            let own = own(j) * scales[j] * scales[j];
            self.gram[j * k + j] = if own > 0.0 { own * (1.0 + ridge::<T>(k)) } else { 1.0 };
        }
        self.start(x);
        while !self.open.is_empty() {
            let (passive, words) = (&self.passive, self.words);
            let set = |i: u32| &passive[i as usize * words..(i as usize + 1) * words];
            self.open.sort_unstable_by(|&a, &b| set(a).cmp(set(b)).then(a.cmp(&b)));
            let mut open = std::mem::take(&mut self.open);
            let mut kept = 0;
            let mut factorised = false;
            for at in 0..open.len() {
                let i = open[at] as usize;
                if !factorised || self.current != self.passive[i * self.words..(i + 1) * self.words] {
                    self.factorise(i);
                    factorised = true;
                }
                if !self.solve_row(i, x, r) {
                    open[kept] = open[at];
                    kept += 1;
                }
            }
            open.truncate(kept);
            self.open = open;
        }
    }

    /// As [`Pivoting::solve_penalized`], but without a penalty a component on which nothing acts, since the other factor has none of
    /// it, keeps its values. They do not matter now, and with zeros it could never come back.
    pub fn solve_keeping<T: Real>(
        &mut self,
        x: &mut ArrayViewMut2<T>,
        r: &ArrayView2<T>,
        g: &ArrayView2<T>,
        penalty: Penalty,
    ) {
        let idle = |j: &usize| penalty.is_none() && g[[*j, *j]] <= T::zero();
        // Empty, so without memory, in all but a few iterations.
        let kept: Vec<(usize, Array1<T>)> =
            (0..self.k).filter(idle).map(|j| (j, x.column(j).mapv(|value| value.max(T::zero())))).collect();
        self.solve_penalized(x, r, g, penalty);
        kept.iter().for_each(|(j, values)| x.column_mut(*j).assign(values));
    }

    fn start<T: Real>(&mut self, x: &ArrayViewMut2<T>) {
        let rows = x.nrows();
        self.passive.clear();
        self.passive.resize(rows * self.words, 0);
        self.exchanges.clear();
        let state = ExchangeState { fewest_violations: u32::MAX, exchanges_left: EXCHANGES };
        self.exchanges.resize(rows, state);
        self.open.clear();
        self.open.extend(0..u32::try_from(rows).expect("a block has fewer than 2^32 rows"));
        for ((i, j), &v) in x.indexed_iter() {
            if v > T::zero() && self.scales[j] > 0.0 {
                self.passive[i * self.words + j / 64] |= 1 << (j % 64);
            }
        }
        self.x.resize(2 * self.k, 0.0);
    }

    /// Factorises G_FF for the passive set of row i.
    fn factorise(&mut self, i: usize) {
        let k = self.k;
        self.current.clear();
        self.current.extend_from_slice(&self.passive[i * self.words..(i + 1) * self.words]);
        let passive = &self.passive[i * self.words..(i + 1) * self.words];
        self.members.clear();
        self.members.extend((0..k).filter(|&j| passive[j / 64] >> (j % 64) & 1 == 1));
        let (members, gram) = (&self.members, &self.gram);
        // The floor is for nearly singular matrices, where rounding can make a pivot negative.
        self.cholesky.factorise(members.len(), 1e-14, |a, b| gram[members[a] * k + members[b]]);
    }

    /// Solves row i for its passive set. Writes the row and returns true if it is the solution; otherwise exchanges
    /// coordinates.
    fn solve_row<T: Real>(&mut self, i: usize, x: &mut ArrayViewMut2<T>, r: &ArrayView2<T>) -> bool {
        let k = self.k;
        let (solution, dual) = self.x.split_at_mut(k);
        let f = self.members.len();
        let (scales, l1) = (&self.scales, self.l1);
        let target = |j: usize| (r[[i, j]].as_f64() - l1) * scales[j];
        solution.iter_mut().zip(&self.members).for_each(|(x, &j)| *x = target(j));
        self.cholesky.solve(&mut solution[..f]);
        // y = x G − r outside the set. Signs are tested up to rounding relative to the size of the terms.
        dual.fill(0.0);
        for (&p, &v) in self.members.iter().zip(&*solution) {
            dual.iter_mut().zip(&self.gram[p * k..(p + 1) * k]).for_each(|(y, g)| *y += g * v);
        }
        let size = solution[..f].iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        let tiny_x = 1e-12 * size;
        let mut violations = 0;
        let mut member = 0;
        for j in 0..k {
            let wrong = if member < f && self.members[member] == j {
                member += 1;
                dual[j] = 0.0;
                solution[member - 1] < -tiny_x
            } else {
                let (fit, size_of_target) = (dual[j], (r[[i, j]].as_f64().abs() + l1) * scales[j]);
                fit - target(j) < -1e-12 * (size_of_target + 2.0 * size)
            };
            if wrong {
                violations += 1;
                dual[j] = f64::NAN; // marked
            }
        }
        if violations == 0 {
            let mut member = 0;
            for j in 0..k {
                let inside = member < f && self.members[member] == j;
                x[[i, j]] = if inside { T::from_f64(solution[member].max(0.0) * scales[j]) } else { T::zero() };
                member += usize::from(inside);
            }
            return true;
        }
        let state = &mut self.exchanges[i];
        if violations < state.fewest_violations {
            *state = ExchangeState { fewest_violations: violations, exchanges_left: EXCHANGES };
        } else if state.exchanges_left > 0 {
            state.exchanges_left -= 1;
        } else {
            self.descend(i, x, r);
            return true;
        }
        for j in (0..k).filter(|&j| dual[j].is_nan()) {
            self.passive[i * self.words + j / 64] ^= 1 << (j % 64);
        }
        false
    }

    /// The active-set method on row i, from the present x.
    fn descend<T: Real>(&mut self, i: usize, x: &mut ArrayViewMut2<T>, r: &ArrayView2<T>) {
        let (row, target) = self.x.split_at_mut(self.k);
        for (j, &scale) in self.scales.iter().enumerate() {
            let known = scale > 0.0;
            row[j] = if known { x[[i, j]].as_f64().max(0.0) / scale } else { 0.0 };
            target[j] = (r[[i, j]].as_f64() - self.l1) * scale;
        }
        self.active_set.solve(&self.gram, target, row);
        row.iter().zip(&self.scales).enumerate().for_each(|(j, (v, scale))| x[[i, j]] = T::from_f64(v * scale));
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::random::{Purpose, Stream};

    fn random(seed: u64, rows: usize, cols: usize) -> Array2<f64> {
        let stream = Stream::new(seed, Purpose::Probe, 0);
        let mut cursor = stream.at(0);
        Array2::from_shape_fn((rows, cols), |_| cursor.normal())
    }

    /// A component that the other factor does not have keeps its values, unless a penalty acts on it.
    #[test]
    fn a_component_on_which_nothing_acts_is_kept() {
        let mut b = random(3, 5, 3).mapv(f64::abs);
        b.column_mut(1).fill(0.0);
        let (g, r) = (b.t().dot(&b), random(4, 7, 5).mapv(f64::abs).dot(&b));
        let begin = random(5, 7, 3).mapv(f64::abs);
        let solved = |penalty: Penalty, keeping: bool| {
            let mut x = begin.clone();
            let mut solver = Pivoting::new(3);
            match keeping {
                true => solver.solve_keeping(&mut x.view_mut(), &r.view(), &g.view(), penalty),
                false => solver.solve_penalized(&mut x.view_mut(), &r.view(), &g.view(), penalty),
            }
            x
        };
        let (kept, usual) = (solved(Penalty::NONE, true), solved(Penalty::NONE, false));
        for j in [0, 2] {
            assert_eq!(kept.column(j), usual.column(j));
        }
        assert_eq!((kept.column(1), usual.column(1).sum()), (begin.column(1), 0.0));
        let ridge = Penalty { l2: 0.1, ..Penalty::NONE };
        assert_eq!(solved(ridge, true), solved(ridge, false));
    }

    /// Two rows of B span a plane, and the right-hand sides are off it by what f32 rounds.
    #[test]
    fn a_singular_matrix_and_a_rounded_right_hand_side_end() {
        let b = random(3, 2, 6).mapv(f64::abs);
        let g = b.t().dot(&b).mapv(|v| v as f32);
        let r = random(4, 300, 2).dot(&b).mapv(|v| v as f32);
        let mut x = Array2::<f32>::zeros((300, 6));
        Pivoting::new(6).solve(&mut x.view_mut(), &r.view(), &g.view());
        let (x, r, g) = (x.mapv(f64::from), r.mapv(f64::from), g.mapv(f64::from));
        assert!(kkt(&x, &r, &g) < 1e-3, "{}", kkt(&x, &r, &g));
    }

    fn kkt(x: &Array2<f64>, r: &Array2<f64>, g: &Array2<f64>) -> f64 {
        let y = x.dot(g) - r;
        let scale = r.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
        x.iter().zip(&y).fold(0.0, |m: f64, (x, y)| m.max(-x).max(-y / scale).max((x * y).abs() / scale))
    }

    #[test]
    fn the_kkt_conditions_hold() {
        for (seed, k, rows) in [(1, 1, 50), (2, 5, 200), (3, 20, 300), (4, 70, 120)] {
            let y = random(seed, 2 * k + 3, k);
            let (g, r) = (y.t().dot(&y), random(seed + 100, rows, k) * 3.0);
            let mut x = Array2::zeros((rows, k));
            let mut solver = Pivoting::new(k);
            solver.solve(&mut x.view_mut(), &r.view(), &g.view());
            assert!(kkt(&x, &r, &g) < 1e-8, "k = {k}: {}", kkt(&x, &r, &g));
            assert!(k == 1 || x.iter().any(|v| *v > 0.0) && x.iter().any(|v| *v == 0.0));
            // A warm start and another start lead to the same solution.
            let (mut warm, mut other) = (x.clone(), random(seed + 7, rows, k).mapv(f64::abs));
            solver.solve(&mut warm.view_mut(), &r.view(), &g.view());
            solver.solve(&mut other.view_mut(), &r.view(), &g.view());
            assert!((&warm - &x).iter().chain((&other - &x).iter()).all(|e| e.abs() < 1e-8));
        }
    }

    #[test]
    fn a_penalty_is_part_of_the_problem() {
        let y = random(21, 17, 6);
        let (g, r) = (y.t().dot(&y), random(22, 80, 6) * 5.0);
        let penalty = Penalty { l1: 1.5, l2: 0.7 };
        let mut x = Array2::zeros((80, 6));
        Pivoting::new(6).solve_penalized(&mut x.view_mut(), &r.view(), &g.view(), penalty);
        assert!(kkt(&x, &(&r - 1.5), &(&g + &(Array2::<f64>::eye(6) * 0.7))) < 1e-8);
        // Nothing but the penalty acts on a row, or it outweighs all.
        for (g, l1, l2) in [(Array2::zeros((6, 6)), 1.0, 0.0), (g, 1e300, 1e300)] {
            let mut x = Array2::<f64>::ones((80, 6));
            let penalty = Penalty { l1, l2 };
            Pivoting::new(6).solve_penalized(&mut x.view_mut(), &r.view(), &g.view(), penalty);
            assert!(x.iter().all(|x| *x == 0.0), "{penalty:?}");
        }
    }

    #[test]
    fn a_row_does_not_depend_on_other_rows() {
        let y = random(9, 15, 6);
        let (g, r) = (y.t().dot(&y), random(10, 40, 6));
        let mut whole = Array2::zeros((40, 6));
        Pivoting::new(6).solve(&mut whole.view_mut(), &r.view(), &g.view());
        let mut part = Array2::zeros((7, 6));
        Pivoting::new(6).solve(&mut part.view_mut(), &r.slice(ndarray::s![20..27, ..]), &g.view());
        assert_eq!(whole.slice(ndarray::s![20..27, ..]), part);
    }

    #[test]
    fn singular_and_empty_problems_terminate() {
        let y = random(11, 2, 5); // rank 2
        let (g, r) = (y.t().dot(&y), random(12, 30, 5).dot(&y.t().dot(&y)));
        let mut x = Array2::ones((30, 5));
        Pivoting::new(5).solve(&mut x.view_mut(), &r.view(), &g.view());
        assert!(x.iter().all(|v| v.is_finite() && *v >= 0.0));
        let mut zero = Array2::<f64>::ones((3, 5));
        Pivoting::new(5).solve(&mut zero.view_mut(), &r.slice(ndarray::s![..3, ..]), &Array2::zeros((5, 5)).view());
        assert!(zero.iter().all(|v| v.is_finite()));
        Pivoting::new(5).solve(&mut Array2::<f64>::zeros((0, 5)).view_mut(), &r.slice(ndarray::s![..0, ..]), &g.view());
    }
}
