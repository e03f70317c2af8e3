//! Alignment: the correspondence between the components of two factors (FNMF, Dalleiger and Gionis, Definition 2). It is a
//! matrix P with A ≈ P B for the rows of A and B (k × n).
//!
//! * `lap` (D₁): P is the permutation with the smallest ‖A − P B‖;
//! * `lap-rho` (D₂): the permutation with the smallest correlation distance, without its pairs that are not significantly
//!   correlated: such a row of A is unaligned, its row of P is 0;
//! * `sinkhorn` (D₃): stochastic rows, by entropic transport; `sinkhorn-rho` the same on the correlation distance;
//! * `knn`: the mean of the nearest rows.

mod knn;
mod lap;
mod rho;
mod sinkhorn;

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

pub use self::lap::Assignment;
use fednmf_linalg::{Real, gemm};

use self::sinkhorn::Sinkhorn;

fednmf_base::words! {
    /// The kinds of alignment.
    pub enum Alignment {
        /// Best one-to-one assignment
        Lap = "lap",
        /// The same by correlation, only where it is significant
        LapRho = "lap-rho",
        /// Soft weights by optimal transport
        Sinkhorn = "sinkhorn",
        /// The same by correlation, only where it is significant
        SinkhornRho = "sinkhorn-rho",
        /// Nearest three
        Knn = "knn";
        /// P = I: components stand for themselves, as in generic federated learning.
        Identity = "identity"
    }
}

/// The assignment cost of a forbidden pair: more than any correlation distance, which is at most 2.
const UNMATCHED_COST: f64 = 2.1;
/// Bounds and replaces non-finite costs, so that every solver terminates; the driver detects such values.
const NON_FINITE_COST: f64 = 1e300;

/// Computes alignments, with its work arrays.
#[derive(Debug, Clone)]
pub struct Aligner<T> {
    alignment: Alignment,
    /// The correlation that two components must exceed to be aligned, for the alignments that test it.
    above: f64,
    k: usize,
    dot: Array2<T>,
    cost: Vec<f64>,
    weights: Vec<f64>,
    /// Norms or moments of the rows.
    rows: Vec<f64>,
    order: Vec<usize>,
    lap: Assignment,
    pairing: Assignment,
    sinkhorn: Sinkhorn,
    /// P of the last [`Aligner::align`], k × k.
    plan: Array2<T>,
    /// The counterpart of each row, for alignments whose rows of P have at most a single 1; then P B needs no product.
    counterpart: Option<Vec<usize>>,
}

/// The entry of `counterpart` for a row without one.
const UNALIGNED: usize = usize::MAX;

impl<T: Real> Aligner<T> {
    /// An aligner for k components.
    pub fn new(alignment: Alignment, k: usize) -> Self {
        Aligner {
            alignment,
            above: 0.0,
            k,
            dot: Array2::zeros((k, k)),
            cost: vec![0.0; k * k],
            weights: vec![0.0; k * k],
            rows: vec![0.0; 4 * k],
            order: vec![0; k],
            lap: Assignment::new(k),
            pairing: Assignment::new(k),
            sinkhorn: Sinkhorn::new(k),
            plan: Array2::eye(k),
            counterpart: matches!(alignment, Alignment::Identity | Alignment::Lap | Alignment::LapRho)
                .then(|| (0..k).collect()),
        }
    }

    /// The same, but two components correspond only if their correlation is significantly above ρ₀ = `above`.
    pub fn with_min_correlation(self, above: f64) -> Self {
        Aligner { above, ..self }
    }

    /// Resets the warm start for a series of similar alignments: the next one depends only on its operands.
    pub fn reset(&mut self) {
        self.lap.reset();
        self.sinkhorn.reset();
    }

    /// The plan P with A ≈ P B, for A and B k × n in any memory order.
    pub fn align(&mut self, a: &ArrayView2<T>, b: &ArrayView2<T>) {
        if self.alignment == Alignment::Identity {
            return;
        }
        let k = self.k;
        gemm(T::one(), a, &b.t(), T::zero(), &mut self.dot.view_mut());
        match self.alignment {
            Alignment::Identity => {}
            Alignment::Lap => {
                // ‖A − P B‖² is −2⟨A, P B⟩ plus a term that no permutation changes.
                self.cost.iter_mut().zip(&self.dot).for_each(|(c, d)| *c = finite(-d.as_f64()));
                self.weights.fill(0.0);
                let columns = self.lap.solve(&self.cost);
                columns.iter().enumerate().for_each(|(r, s)| self.weights[r * k + s] = 1.0);
            }
            Alignment::LapRho => {
                rho::distances(a, b, &self.dot.view(), self.above, &mut self.rows, &mut self.cost);
                self.cost.iter_mut().for_each(|c| *c = c.min(UNMATCHED_COST));
                self.weights.fill(0.0);
                for (r, &s) in self.lap.solve(&self.cost).iter().enumerate() {
                    self.weights[r * k + s] = f64::from(u8::from(self.cost[r * k + s] < UNMATCHED_COST));
                }
            }
            Alignment::Sinkhorn => {
                self.squared_distances(a, b);
                self.sinkhorn.solve(&self.cost, &mut self.weights);
            }
            Alignment::SinkhornRho => {
                rho::distances(a, b, &self.dot.view(), self.above, &mut self.rows, &mut self.cost);
                self.sinkhorn.solve(&self.cost, &mut self.weights);
            }
            Alignment::Knn => {
                self.squared_distances(a, b);
                knn::solve(&self.cost, &mut self.order, &mut self.weights);
            }
        }
        self.plan.iter_mut().zip(&self.weights).for_each(|(p, w)| *p = T::from_f64(*w));
        if let Some(counterpart) = &mut self.counterpart {
            for (s, weights) in counterpart.iter_mut().zip(self.weights.chunks_exact(k)) {
                *s = weights.iter().position(|w| *w > 0.0).unwrap_or(UNALIGNED);
            }
        }
    }

    /// cost[r, s] ← ‖a_r − b_s‖², from `dot`.
    fn squared_distances(&mut self, a: &ArrayView2<T>, b: &ArrayView2<T>) {
        let k = self.k;
        let norm2 = |rows: &ArrayView2<T>, r: usize| rows.row(r).iter().map(|x| x.as_f64() * x.as_f64()).sum::<f64>();
        for r in 0..k {
            (self.rows[r], self.rows[k + r]) = (norm2(a, r), norm2(b, r));
        }
        for (p, (cost, dot)) in self.cost.iter_mut().zip(&self.dot).enumerate() {
            *cost = finite(self.rows[p / k] + self.rows[k + p % k] - 2.0 * dot.as_f64()).max(0.0);
        }
    }

    /// ‖a_r − b_s‖² for all r and s, k × k by rows.
    pub fn distances2(&mut self, a: &ArrayView2<T>, b: &ArrayView2<T>) -> &[f64] {
        gemm(T::one(), a, &b.t(), T::zero(), &mut self.dot.view_mut());
        self.squared_distances(a, b);
        &self.cost
    }

    /// P of the last alignment.
    pub fn plan(&self) -> ArrayView2<'_, T> {
        self.plan.view()
    }

    /// Whether row r of A has a counterpart in B.
    pub fn is_aligned(&self, r: usize) -> bool {
        self.plan.row(r).iter().any(|p| *p > T::zero())
    }

    /// out ← P B.
    pub fn apply(&self, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        let Some(counterpart) = &self.counterpart else {
            return gemm(T::one(), &self.plan.view(), b, T::zero(), out);
        };
        for (mut row, &s) in out.rows_mut().into_iter().zip(counterpart) {
            if s == UNALIGNED {
                row.fill(T::zero());
            } else {
                row.assign(&b.row(s));
            }
        }
    }

    /// A ← A + w P B.
    fn add(&self, w: T, b: &ArrayView2<T>, a: &mut ArrayViewMut2<T>) {
        let Some(counterpart) = &self.counterpart else {
            return gemm(w, &self.plan.view(), b, T::one(), a);
        };
        for (mut row, &s) in a.rows_mut().into_iter().zip(counterpart).filter(|(_, s)| **s != UNALIGNED) {
            row.scaled_add(w, &b.row(s));
        }
    }

    /// The proximal step A ← (A + γ P B) / (1 + γ), except for rows without a counterpart.
    pub fn apply_proximal_step(&self, a: &mut ArrayViewMut2<T>, b: &ArrayView2<T>, gamma: f64) {
        let (own, other) = (T::from_f64(1.0 / (1.0 + gamma)), T::from_f64(gamma / (1.0 + gamma)));
        for r in 0..self.k {
            if self.is_aligned(r) {
                a.row_mut(r).iter_mut().for_each(|x| *x *= own);
            }
        }
        self.add(other, b, a);
    }

    /// Adds the term λ/2 ‖A − P B‖² to a least squares problem in A, given by its right-hand side (as A, k × n) and Gram
    /// matrix (k × k); λ is γ times the mean diagonal of the Gram matrix. Rows without a counterpart have no term.
    pub fn add_proximal_term(&self, rhs: &mut ArrayViewMut2<T>, gram: &mut Array2<T>, b: &ArrayView2<T>, gamma: f64) {
        let trace: f64 = gram.diag().iter().map(|g| g.as_f64()).sum();
        let lambda = T::from_f64(gamma * trace / self.k as f64);
        self.add(lambda, b, rhs);
        for r in 0..self.k {
            if self.is_aligned(r) {
                gram[[r, r]] += lambda;
            }
        }
    }

    /// For each row of A at most one row of B, by the weights of the last plan; `None` for a row without counterpart.
    pub fn pairs(&mut self) -> impl Iterator<Item = Option<usize>> + '_ {
        let k = self.k;
        self.cost.iter_mut().zip(&self.plan).for_each(|(c, p)| *c = -p.as_f64());
        self.pairing.reset();
        let plan = &self.plan;
        (0..k).zip(self.pairing.solve(&self.cost)).map(move |(r, &s)| (plan[[r, s]] > T::zero()).then_some(s))
    }

    /// ‖PᵀP − I‖_F of the last plan: 0 for a permutation.
    pub fn orthogonality_gap(&mut self) -> f64 {
        gemm(T::one(), &self.plan.t(), &self.plan.view(), T::zero(), &mut self.dot.view_mut());
        let gap = |(p, x): (usize, &T)| (x.as_f64() - f64::from(u8::from(p / self.k == p % self.k))).powi(2);
        self.dot.iter().enumerate().map(gap).sum::<f64>().sqrt()
    }
}

fn finite(x: f64) -> f64 {
    if x.is_nan() { NON_FINITE_COST } else { x.clamp(-NON_FINITE_COST, NON_FINITE_COST) }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream, uniform_factor};

    use super::*;

    #[test]
    fn every_kind_finds_a_permutation_but_the_nearest_neighbours() {
        let (k, n) = (6, 80);
        let order = [3, 1, 5, 0, 2, 4];
        let b = uniform_factor::<f64>(&Stream::new(3, Purpose::Probe, 0), 0..k, n, 1.0).mapv(|x| x.powi(8));
        let a = b.select(ndarray::Axis(0), &order);
        for alignment in [Alignment::Lap, Alignment::LapRho, Alignment::Sinkhorn, Alignment::SinkhornRho] {
            let mut aligner = Aligner::new(alignment, k);
            aligner.align(&a.view(), &b.view());
            assert_eq!(aligner.pairs().map(Option::unwrap).collect::<Vec<_>>(), order, "{alignment:?}");
            let mut out = Array2::zeros((k, n));
            aligner.apply(&b.view(), &mut out.view_mut());
            assert!((&out - &a).iter().all(|e| e.abs() < 1e-3), "{alignment:?}");
            assert!(aligner.orthogonality_gap() < 1e-2, "{alignment:?} {}", aligner.orthogonality_gap());
        }
        let mut nearest = Aligner::new(Alignment::Knn, k);
        nearest.align(&a.view(), &b.view());
        assert!(nearest.orthogonality_gap() > 0.5);
    }

    #[test]
    fn a_component_that_only_one_side_has_is_neither_aligned_nor_moved() {
        let (k, n) = (3, 90);
        // Disjoint supports: A's last row is nonzero where B is zero.
        let part = |c: usize| move |j: usize| if j / 15 == c { 1.0 + (j % 4) as f64 } else { 0.0 };
        let rows = |parts: [usize; 3]| Array2::<f64>::from_shape_fn((k, n), |(r, j)| part(parts[r])(j));
        let (mut a, b) = (rows([1, 0, 5]), rows([0, 1, 2]));
        for alignment in [Alignment::LapRho, Alignment::SinkhornRho] {
            let mut aligner = Aligner::new(alignment, k);
            aligner.align(&a.view(), &b.view());
            assert_eq!(aligner.pairs().collect::<Vec<_>>(), [Some(1), Some(0), None], "{alignment:?}");
            let before = a.clone();
            aligner.apply_proximal_step(&mut a.view_mut(), &b.view(), 0.5);
            assert!((&a - &before).iter().all(|e| e.abs() < 1e-12), "{alignment:?}");
        }
    }

    #[test]
    fn the_proximal_step_is_the_weighted_mean() {
        let (mut a, b) = (ndarray::array![[4.0, 1.0], [0.0, 3.0]], ndarray::array![[1.0, 3.0], [3.0, 0.0]]);
        let mut aligner = Aligner::new(Alignment::Lap, 2);
        aligner.align(&a.view(), &b.view());
        aligner.apply_proximal_step(&mut a.view_mut(), &b.view(), 0.25);
        let expected = ndarray::array![[(4.0 + 0.25 * 3.0) / 1.25, 0.8], [0.2, 3.0]];
        assert!((&a - &expected).iter().all(|e: &f64| e.abs() < 1e-14), "{a}");
    }

    /// λ = γ tr(G)/k is added to the problem ½ aᵀG a − rᵀa of each column, but not for the row that has no counterpart.
    #[test]
    fn the_proximal_term_is_added_to_the_problem() {
        let part = |c: usize| move |j: usize| if j / 15 == c { 1.0 + (j % 4) as f64 } else { 0.0 };
        let rows = |parts: [usize; 3]| Array2::<f64>::from_shape_fn((3, 90), |(r, j)| part(parts[r])(j));
        let (a, b) = (rows([1, 0, 5]), rows([0, 1, 2]));
        for alignment in [Alignment::LapRho, Alignment::SinkhornRho] {
            let mut aligner = Aligner::new(alignment, 3);
            aligner.align(&a.view(), &b.view());
            let (mut r, mut g) = (a.clone(), Array2::from_diag(&ndarray::array![1.0, 2.0, 6.0]));
            aligner.add_proximal_term(&mut r.view_mut(), &mut g, &b.view(), 0.5);
            assert_eq!(g.diag().to_vec(), [2.5, 3.5, 6.0], "{alignment:?}");
            for (row, expected) in
                r.rows().into_iter().zip([&a.row(0) + &(&b.row(1) * 1.5), &a.row(1) + &(&b.row(0) * 1.5)])
            {
                assert!((&row - &expected).iter().all(|e| e.abs() < 1e-9), "{alignment:?}");
            }
            assert_eq!(r.row(2), a.row(2));
        }
    }

    #[test]
    fn numbers_that_are_none_come_to_an_end() {
        let a = Array2::from_elem((4, 9), f64::NAN);
        for alignment in
            [Alignment::Lap, Alignment::LapRho, Alignment::Sinkhorn, Alignment::SinkhornRho, Alignment::Knn]
        {
            let mut aligner = Aligner::new(alignment, 4);
            aligner.align(&a.view(), &a.view());
            assert_eq!(aligner.pairs().count(), 4);
        }
    }
}
