//! Reconstructs a neighbour's copy U_j from answers g (U_j − U_i), in which each entry has a secret weight g between half
//! of its limit and the limit; and the neighbour's products Z Yᵀ and Y Yᵀ from its copies in all steps of a round, which are
//! linear in them (the ADMM of PPDNMF for the nonnegative factor X, with U as its copy that fits the data).

use ndarray::{Array1, Array2, Axis};

use fednmf_linalg::Cholesky;

/// E[1/g] for g uniform from half its limit to the limit, times the limit.
const MEAN_INVERSE: f64 = 2.0 * std::f64::consts::LN_2;

/// U_j from the own copy and an answer; `g_max` is in units of the answer divided by those of U.
pub fn copy(own: &Array2<f64>, answer: &Array2<f64>, g_max: f64) -> Array2<f64> {
    own + &(answer * (MEAN_INVERSE / g_max))
}

/// The state of a neighbour's ADMM, in a round that is observed from its first step.
#[derive(Debug, Clone)]
pub struct State {
    /// X, U and P (the dual variable) at the beginning, m × k each.
    pub x: Array2<f64>,
    pub u: Array2<f64>,
    pub p: Array2<f64>,
    /// Q and its previous value.
    pub q: Array2<f64>,
    pub q_before: Array2<f64>,
}

/// The penalties of the steps.
#[derive(Debug, Clone, Copy)]
pub struct Weights {
    pub mu: f64,
    pub tau: f64,
}

impl State {
    /// The neighbour's start: all start from the same U.
    pub fn start(u: &Array2<f64>) -> State {
        let zeros = Array2::zeros(u.dim());
        State { x: u.clone(), u: u.clone(), p: zeros.clone(), q: zeros.clone(), q_before: zeros }
    }

    /// Follows a round: `copies` are U_j after each step, `pulls` Σ ρ (U_i − U_j) as the neighbour received it after each.
    /// Returns the right-hand sides that the products have to explain: U H − R of each step.
    pub fn follow(&mut self, copies: &[Array2<f64>], pulls: &[Array2<f64>], weights: Weights) -> Vec<Array2<f64>> {
        let Weights { mu, tau } = weights;
        let mut known = Vec::new();
        for (new, pull) in copies.iter().zip(pulls) {
            self.x = (&self.u + &self.p).mapv(|x| x.max(0.0));
            let right = (&self.x - &self.p) * mu + &self.u * tau + &self.q * 2.0 - &self.q_before;
            known.push(right - new * (mu + tau));
            self.p = &self.p - &(&self.x - new);
            self.u.assign(new);
            let q = &self.q + &(pull * 0.5);
            self.q_before = std::mem::replace(&mut self.q, q);
        }
        known
    }
}

/// R = Z Yᵀ (m × k) and H = Y Yᵀ (k × k) of a round by least squares, with U_t H − R = known_t for its steps t. `None` for
/// too few steps.
pub fn products(copies: &[Array2<f64>], known: &[Array2<f64>]) -> Option<(Array2<f64>, Array2<f64>)> {
    let (steps, (m, k)) = (copies.len(), copies.first()?.dim());
    if steps < 3 {
        return None;
    }
    let mean =
        |all: &[Array2<f64>]| all.iter().fold(Array2::zeros((m, k)), |sum: Array2<f64>, x| sum + x) / steps as f64;
    let (mean_u, mean_known) = (mean(copies), mean(known));
    let (mut left, mut right) = (Array2::<f64>::zeros((k, k)), Array2::<f64>::zeros((k, k)));
    for (u, c) in copies.iter().zip(known) {
        let u = u - &mean_u;
        left += &u.t().dot(&u);
        right += &u.t().dot(&(c - &mean_known));
    }
    let ridge = 1e-12 * left.diag().sum().max(f64::MIN_POSITIVE);
    let mut cholesky = Cholesky::default();
    if !cholesky.factorise(k, 0.0, |i, j| left[[i, j]] + if i == j { ridge } else { 0.0 }) {
        return None;
    }
    for mut column in right.axis_iter_mut(Axis(1)) {
        let mut x = column.to_vec();
        cholesky.solve(&mut x);
        column.assign(&Array1::from(x));
    }
    let h = (&right + &right.t()) / 2.0;
    let r = mean_u.dot(&h) - mean_known;
    Some((r, h))
}

/// How far a column is from the leading left singular vector of R, relative to its norm, with the best factor.
pub fn column_error(r: &Array2<f64>, column: &Array1<f64>) -> f64 {
    let mut x = r.sum_axis(Axis(1));
    for _ in 0..100 {
        x = r.dot(&r.t().dot(&x));
        let norm = x.dot(&x).sqrt();
        if norm == 0.0 {
            return 1.0;
        }
        x /= norm;
    }
    let along = x.dot(column);
    let left = column - &(&x * along);
    (left.dot(&left) / column.dot(column).max(f64::MIN_POSITIVE)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix((rows, cols): (usize, usize), step: f64) -> Array2<f64> {
        Array2::from_shape_fn((rows, cols), |(i, j)| (((i * cols + j + 1) as f64 * step).sin() * 0.5 + 0.6).abs())
    }

    /// A neighbour's round, by the formulas of its paper, without weights that hide anything.
    #[test]
    fn the_products_of_a_round_follow_from_its_copies() {
        let ((m, k), weights) = ((8, 2), Weights { mu: 0.3, tau: 0.2 });
        let (z, y) = (matrix((m, 1), 1.7), matrix((k, 1), 0.9));
        let (r, h) = (z.dot(&y.t()), y.dot(&y.t()));
        let start = matrix((m, k), 0.4);
        let mut cholesky = Cholesky::default();
        let shift = weights.mu + weights.tau;
        assert!(cholesky.factorise(k, 0.0, |i, j| h[[i, j]] + if i == j { shift } else { 0.0 }));
        let (mut state, mut copies, mut pulls) = (State::start(&start), Vec::new(), Vec::new());
        for step in 0..12 {
            let x = (&state.u + &state.p).mapv(|x| x.max(0.0));
            let right =
                &r + &((&x - &state.p) * weights.mu) + &state.u * weights.tau + &state.q * 2.0 - &state.q_before;
            let mut new = right;
            for mut row in new.rows_mut() {
                let mut x = row.to_vec();
                cholesky.solve(&mut x);
                row.assign(&Array1::from(x));
            }
            let pull = matrix((m, k), 0.3 + f64::from(step)) * 0.01;
            state.p = &state.p - &(&x - &new);
            state.u.assign(&new);
            let q = &state.q + &(&pull * 0.5);
            state.q_before = std::mem::replace(&mut state.q, q);
            copies.push(new);
            pulls.push(pull);
        }
        let known = State::start(&start).follow(&copies, &pulls, weights);
        let (found_r, found_h) = products(&copies, &known).unwrap();
        let worst = |a: &Array2<f64>, b: &Array2<f64>| (a - b).iter().fold(0.0, |w: f64, x| w.max(x.abs()));
        assert!(worst(&found_r, &r) < 1e-6 && worst(&found_h, &h) < 1e-6, "{found_r} {r}");
        assert!(column_error(&found_r, &z.column(0).to_owned()) < 1e-6);
        assert!(column_error(&found_r, &matrix((m, 1), 0.2).column(0).to_owned()) > 0.1);
        assert!(products(&copies[..2], &known[..2]).is_none());
    }

    #[test]
    fn a_weight_hides_a_difference_up_to_a_factor() {
        let (own, theirs) = (matrix((6, 2), 0.8), matrix((6, 2), 1.3));
        for g in [0.5, 0.75, 1.0] {
            let found = copy(&own, &((&theirs - &own) * (g * 4.0)), 4.0);
            let off = (&found - &theirs).mapv(|x| x * x).sum() / (&theirs - &own).mapv(|x| x * x).sum();
            assert!((off.sqrt() - (g * MEAN_INVERSE - 1.0).abs()).abs() < 1e-9);
        }
    }
}
