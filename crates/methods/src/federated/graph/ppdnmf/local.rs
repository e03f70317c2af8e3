//! An agent's local work: ADMM for min ½‖A − U Bᵀ‖² with U = X ≥ 0 (PPDNMF, Eqs. (8)–(10) and (12)–(14)), which needs only
//! H = BᵀB and R = A B. The same steps update X (B = Y_iᵀ, A = Z_i) and Y_iᵀ (B = X_i, A = Z_iᵀ).

use ndarray::{Array2, Zip};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::{Block, Cholesky, Contiguous, ContiguousMut, Order, Real, gemm, gram};
use fednmf_privacy::Private;

use crate::parameters::{Auto, auto, count, number};

fednmf_base::parameters! {
    /// The inner ADMM, with and without neighbours.
    pub struct InnerAdmmParams {
        /// Penalty mu between X and its copy U in the inner ADMM (not the --mu of dsanls). auto: from the data's mean
        pub mu_penalty: Auto<f64> = Auto::Auto, "X", auto(number(0.0, f64::INFINITY));
        /// Penalty eta between Y and its copy in the inner ADMM. auto: from the data's mean
        pub eta: Auto<f64> = Auto::Auto, "X", auto(number(0.0, f64::INFINITY));
        /// Most ADMM iterations for X, and for Y, in each iteration
        pub admm_iters: usize = 30, "N", count(1);
        /// Relative change of its factor below which a party flags convergence, which ends the ADMM of all parties. 0:
        /// never
        pub admm_tol: f64 = 0.0, "X", number(0.0, 1.0);
    }
}

/// A factor split into its nonnegative part, the copy that fits the data, and the scaled dual variable of their
/// equality.
pub struct Split<T: Real> {
    /// X (or Yᵀ): rows × k.
    pub x: Array2<T>,
    /// U (or Vᵀ).
    pub u: Array2<T>,
    /// P (or Rᵀ).
    pub p: Array2<T>,
    /// R: the product of the data with the other factor.
    pub product: Array2<T>,
    right: Array2<T>,
}

impl<T: Real> Split<T> {
    pub fn new(order: Order, rows: usize, k: usize) -> Self {
        let zeros = || order.zeros(rows, k);
        Split { x: zeros(), u: zeros(), p: zeros(), product: zeros(), right: zeros() }
    }

    /// (8) or (12): X = max(0, U + P). Returns the relative squared change of X: the dual residual.
    pub fn project(&mut self) -> f64 {
        let (mut moved, mut size) = (0.0, 0.0);
        Zip::from(&mut self.x).and(&self.u).and(&self.p).for_each(|x, &u, &p| {
            let sum = u + p;
            let new = if sum > T::zero() { sum } else { T::zero() };
            moved += (new - *x).as_f64().powi(2);
            size += new.as_f64().powi(2);
            *x = new;
        });
        if size > 0.0 { moved / size } else { moved }
    }

    /// (9) or (13): U = [R + μ(X − P) + `more`(U)] (H + λI)⁻¹ for a given inverse. `more` adds terms to the bracket, its
    /// first argument; its second argument is the previous U.
    pub fn fit(&mut self, mu: T, inverse: &Array2<T>, more: impl FnOnce(&mut Array2<T>, &Array2<T>)) {
        Zip::from(&mut self.right)
            .and(&self.product)
            .and(&self.x)
            .and(&self.p)
            .for_each(|right, &r, &x, &p| *right = r + mu * (x - p));
        more(&mut self.right, &self.u);
        gemm(T::one(), &self.right.view(), &inverse.view(), T::zero(), &mut self.u.view_mut());
    }

    /// (10) or (14): P ← P − (X − U). Returns ‖X − U‖²/‖X‖², the primal residual.
    pub fn dual(&mut self) -> f64 {
        let (mut apart, mut size) = (0.0, 0.0);
        Zip::from(&mut self.p).and(&self.x).and(&self.u).for_each(|p, &x, &u| {
            let d = x - u;
            *p -= d;
            apart += d.as_f64() * d.as_f64();
            size += x.as_f64() * x.as_f64();
        });
        if size > 0.0 { apart / size } else { apart }
    }
}

/// (H + λI)⁻¹ by Cholesky, in f64.
pub struct Inverse<T: Real> {
    gram: Array2<T>,
    cholesky: Cholesky,
    pub inverse: Array2<T>,
}

impl<T: Real> Inverse<T> {
    pub fn new(k: usize) -> Self {
        Inverse { gram: Array2::zeros((k, k)), cholesky: Cholesky::default(), inverse: Array2::zeros((k, k)) }
    }

    /// For H = BᵀB.
    ///
    /// # Errors
    /// As [`Inverse::of_gram`].
    pub fn of_factor(&mut self, b: &Array2<T>, lambda: f64) -> Result<()> {
        let mut h = std::mem::take(&mut self.gram);
        gram(&b.view(), &mut h.view_mut());
        let result = self.of_gram(h.row_major(), lambda);
        self.gram = h;
        result
    }

    /// For H (k × k), row-major.
    ///
    /// # Errors
    /// If H + λI is not positive definite: entries are not finite, or λ is negligible compared with them.
    pub fn of_gram(&mut self, h: &[T], lambda: f64) -> Result<()> {
        let (k, inverse) = (self.inverse.nrows(), &mut self.inverse);
        let entry = |i: usize, j: usize| h[i * k + j].as_f64() + if i == j { lambda } else { 0.0 };
        if !self.cholesky.factorise(k, 0.0, entry) {
            return Err(Error::failed(
                "the factors' products are too large for the penalties, or not finite; divide the \
                 data (--scale max) or raise --mu-penalty and --eta",
            ));
        }
        self.cholesky.inverse(|i, j, x| (inverse[[i, j]], inverse[[j, i]]) = (T::from_f64(x), T::from_f64(x)));
        Ok(())
    }
}

/// The penalties of all agents: public.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalties {
    pub mu: f64,
    pub eta: f64,
    pub g_max: f64,
}

/// One agent: a party with its columns Z_i.
pub struct Agent<T: Real> {
    pub party: usize,
    pub block: Private<Block<T>>,
    /// ‖Z_i‖².
    pub norm2: f64,
    /// m × k.
    pub x: Split<T>,
    /// Y_iᵀ: |columns| × k.
    pub y: Private<Split<T>>,
    pub q: Array2<T>,
    pub q_before: Array2<T>,
    inverse: Inverse<T>,
    penalties: Penalties,
    /// τ_i = d_i g_max²: an upper bound of Σ_j ρ_ij that does not require a neighbour's g.
    tau: f64,
}

impl<T: Real> Agent<T> {
    pub fn new(party: usize, block: Block<T>, k: usize, penalties: Penalties, neighbours: usize) -> Self {
        let (m, n) = block.shape();
        let order = block.order();
        Agent {
            party,
            norm2: block.norm2(),
            x: Split::new(order, m, k),
            y: Private::new(Split::new(order, n, k)),
            q: order.zeros(m, k),
            q_before: order.zeros(m, k),
            inverse: Inverse::new(k),
            tau: neighbours as f64 * penalties.g_max * penalties.g_max,
            penalties,
            block: Private::new(block),
        }
    }

    /// Computes the quantities that stay constant while X is estimated.
    ///
    /// # Errors
    /// As [`Inverse::of_gram`].
    pub fn begin_x(&mut self) -> Result<()> {
        self.block.mul(&self.y.x.view(), &mut self.x.product.view_mut());
        self.inverse.of_factor(&self.y.x, self.penalties.mu + self.tau).map_err(|e| self.name(e))
    }

    /// (8)–(10) with the U step of ADMM: the coupling to the neighbours is τU + 2Q − Q_before, where Q already contains ρ.
    /// (The printed (9) multiplies Q by ρ once more, and the agents then never agree.) Returns whether this agent has
    /// converged to `tolerance`.
    pub fn step_x(&mut self, tolerance: f64) -> bool {
        let (mu, tau, two) = (T::from_f64(self.penalties.mu), T::from_f64(self.tau), T::from_f64(2.0));
        let Agent { x, q, q_before, inverse, .. } = self;
        let moved = x.project();
        x.fit(mu, &inverse.inverse, |right, u| {
            Zip::from(right).and(u).and(&*q).and(&*q_before).for_each(|right, &u, &q, &before| {
                *right += tau * u + two * q - before;
            });
        });
        let apart = x.dual();
        tolerance > 0.0 && apart.max(moved) <= tolerance * tolerance
    }

    /// (11) with its missing ½: Q ← Q + ½ Σ_j ρ_ij (U_j − U_i), where `pull` yields the sum entry by entry in memory
    /// order.
    pub fn pull(&mut self, pull: impl Iterator<Item = f64>) {
        self.q_before.assign(&self.q);
        let q = self.q.entries_mut();
        q.iter_mut().zip(pull).for_each(|(q, pull)| *q += T::from_f64(0.5 * pull));
    }

    /// The whole estimation of Y_i, (12)–(14), which is local.
    ///
    /// # Errors
    /// As [`Inverse::of_gram`].
    pub fn estimate_y(&mut self, iters: usize, tolerance: f64) -> Result<()> {
        self.block.tmul(&self.x.x.view(), &mut self.y.product.view_mut());
        self.inverse.of_factor(&self.x.x, self.penalties.eta).map_err(|e| self.name(e))?;
        for _ in 0..iters {
            let moved = self.y.project();
            self.y.fit(T::from_f64(self.penalties.eta), &self.inverse.inverse, |_, _| ());
            if self.y.dual().max(moved) <= tolerance * tolerance {
                break;
            }
        }
        Ok(())
    }

    fn name(&self, e: Error) -> Error {
        e.at(format!("party {}", self.party))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_is_one() {
        let b = Array2::from_shape_fn((7, 3), |(i, j)| ((i * 3 + j * 5) % 7) as f64 - 2.0);
        let mut inverse = Inverse::new(3);
        inverse.of_factor(&b, 0.25).unwrap();
        let one = (b.t().dot(&b) + Array2::<f64>::eye(3) * 0.25).dot(&inverse.inverse);
        assert!(one.iter().zip(Array2::<f64>::eye(3).iter()).all(|(a, b)| (a - b).abs() < 1e-12), "{one}");
        assert!(inverse.of_gram(&[f64::NAN; 9], 1.0).is_err());
        assert!(inverse.of_gram(&[-1.0; 9], 0.5).is_err());
    }

    /// Many steps solve the nonnegative least-squares problem: the optimality conditions hold.
    #[test]
    fn the_steps_lead_to_the_least_squares_solution() {
        let x = Array2::from_shape_fn((9, 2), |(i, j)| ((i * 2 + j) as f64 * 0.7).sin().abs());
        let z = Array2::from_shape_fn((9, 4), |(i, j)| ((i + 3 * j) as f64 * 1.3).cos());
        let penalties = Penalties { mu: 1.0, eta: 1.0, g_max: 0.0 };
        let mut agent = Agent::new(0, Block::Dense(z.clone().into()), 2, penalties, 0);
        agent.x.x.assign(&x);
        agent.estimate_y(4000, 0.0).unwrap();
        let y = &agent.y.x;
        let gradient = y.dot(&x.t().dot(&x)) - z.t().dot(&x);
        assert!(y.iter().any(|y| *y == 0.0), "the case is too easy");
        assert!(y.iter().zip(&gradient).all(|(&y, &g)| y >= 0.0 && g > -1e-8 && (y * g).abs() < 1e-8));
    }
}
