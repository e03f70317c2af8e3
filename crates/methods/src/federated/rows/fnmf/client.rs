//! The client: a party's data, its factors, and its local steps (`CLIENT` of FNMF, Alg. 2).

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2};

use fednmf_comm::PartyCommunicator;
use fednmf_linalg::nls::{Penalty, Pivoting, Sweep, gradient_step, multiply, spectral_bound, sweep};
use fednmf_linalg::{Block, Order, Real, gram};
use fednmf_privacy::Private;

use crate::federated::rows::fnmf::align::Aligner;
use crate::metrics::not_negative;
use crate::shared::missing::{MissingEntries, Side};
use crate::shared::regularization::Penalties;

/// The local steps between two exchanges.
#[derive(Debug, Clone, Copy)]
pub struct LocalSteps {
    /// Maximum number of steps.
    pub steps: usize,
    /// Relative change of both factors below which the steps stop early.
    pub tolerance: f64,
    /// The update of a factor.
    pub rule: LocalRule,
}

/// The rule by which a factor is updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LocalRule {
    /// Inertial proximal gradient: Z = U + β(U − U'), U ← [Z − η(Z G − R)]₊ with β = `inertia`·(t − 1)/(t + 2).
    Ipalm { inertia: f64 },
    /// HALS: each component is a block with the step 1/G_ll, without inertia.
    Hals,
    /// Multiplicative updates.
    Mur,
}

/// The proximal term ½ γ ‖V_j − V̄‖² in V_j's steps, with V̄ (k × n) for `target`.
pub struct ProximalTerm<'a, T> {
    pub target: &'a Array2<T>,
    pub gamma: f64,
}

/// A party's data and factors: X_j ≈ U_j V_jᵀ.
pub struct Client<T: Real> {
    pub party: usize,
    /// The party's rows of the whole matrix.
    pub rows: Range<usize>,
    pub block: Private<Block<T>>,
    /// The missing entries, for which the block contains zeros; `None` if nothing is missing.
    pub missing: Option<Private<MissingEntries<T>>>,
    /// The party's share of the penalties.
    pub penalties: Penalties,
    /// |rows| × k.
    pub u: Private<Array2<T>>,
    /// n × k.
    pub v: Array2<T>,
    /// The factors before the last step.
    pub u_before: Array2<T>,
    pub v_before: Array2<T>,
    rhs: Array2<T>,
    /// Steps since V_j was last set from outside.
    pub steps_since_reset: usize,
    /// This party's own components (n × k), at the positions of components of V̄ without a counterpart here; 0
    /// elsewhere. It has no columns if no components are personal.
    pub own: Array2<T>,
    /// For each component of V̄, its counterpart in V_j.
    slots: Vec<usize>,
}

/// Memory that the clients of a rank share.
pub struct Work<T> {
    rhs: Array2<T>,
    gram: Array2<T>,
    probe: Array1<T>,
    tile: Array2<T>,
    pub aligner: Aligner<T>,
}

/// The proximal weight of HALS, relative to the mean curvature. Without it, a component that a party hardly uses would be
/// unbounded, and could dominate those of the other parties in the mean.
const HALS_PROXIMAL: f64 = 1e-9;
/// Rows of a tile of a multiplicative step.
const TILE_ROWS: usize = 1024;

impl<T: Real> Work<T> {
    /// Work arrays for V_j (n × k) in this memory order.
    pub fn new(n: usize, k: usize, order: Order, aligner: Aligner<T>) -> Self {
        Work {
            rhs: order.zeros(n, k),
            gram: Array2::zeros((k, k)),
            probe: Array1::zeros(2 * k),
            tile: order.zeros(TILE_ROWS, k),
            aligner,
        }
    }
}

impl<T: Real> Client<T> {
    /// A party with zero factors, and no penalties.
    pub fn new(party: usize, rows: Range<usize>, block: Block<T>, k: usize, personalize: bool) -> Self {
        let (height, n) = block.shape();
        let zeros = |rows| block.order().zeros(rows, k);
        Client {
            party,
            rows,
            penalties: Penalties::default(),
            u: Private::new(zeros(height)),
            v: zeros(n),
            u_before: zeros(height),
            v_before: zeros(n),
            rhs: zeros(height),
            steps_since_reset: 0,
            own: block.order().zeros(n, if personalize { k } else { 0 }),
            slots: (0..k).collect(),
            block: Private::new(block),
            missing: None,
        }
    }

    /// Whether component l is this party's own.
    pub fn is_own(&self, l: usize) -> bool {
        self.own.ncols() > 0 && self.own.column(l).iter().any(|x| *x != T::zero())
    }

    /// The number of this party's own components.
    pub fn own_count(&self) -> usize {
        (0..self.own.ncols()).filter(|&l| self.is_own(l)).count()
    }

    /// V_j ← V̄, except for this party's own components, which are unchanged. The next step has no inertia.
    pub fn set(&mut self, mean: &Array2<T>) {
        for (l, mean) in mean.rows().into_iter().enumerate() {
            if self.is_own(l) {
                self.v.column_mut(l).assign(&self.own.column(l));
            } else {
                self.v.column_mut(l).assign(&mean);
            }
        }
        self.steps_since_reset = 0;
    }

    /// `local.steps` alternating updates of U_j and V_j, those of V_j with the proximal term.
    pub fn run(
        &mut self,
        comm: &PartyCommunicator,
        local: LocalSteps,
        work: &mut Work<T>,
        term: Option<&ProximalTerm<'_, T>>,
    ) {
        work.aligner.reset();
        for _ in 0..local.steps {
            self.steps_since_reset += 1;
            let t = self.steps_since_reset as f64;
            comm.work("Gram", || gram(&self.v.view(), &mut work.gram.view_mut()));
            comm.work("product X V", || self.block.mul(&self.v.view(), &mut self.rhs.view_mut()));
            comm.work("update", || {
                advance(&mut self.u, &mut self.u_before, local.rule, t);
                if let Some(missing) = &mut self.missing {
                    let (x, y, g) = (&self.u.view(), &self.v.view(), &work.gram.view());
                    missing.complete(Side::Rows, x, y, g, &mut self.rhs);
                }
                let own = (&mut *self.u, self.penalties.u);
                update(own, &self.rhs, work_of(work), local.rule);
            });

            comm.work("Gram", || gram(&self.u.view(), &mut work.gram.view_mut()));
            comm.work("product X'U", || self.block.tmul(&self.u.view(), &mut work.rhs.view_mut()));
            comm.work("update", || {
                advance(&mut self.v, &mut self.v_before, local.rule, t);
                if let Some(missing) = &mut self.missing {
                    let (x, y, g) = (&self.v.view(), &self.u.view(), &work.gram.view());
                    missing.complete(Side::Columns, x, y, g, &mut work.rhs);
                }
            });
            // HALS includes the term in its least squares problem; with the other rules a proximal step follows.
            let (inside, after) = if local.rule == LocalRule::Hals { (term, None) } else { (None, term) };
            if let Some(term) = inside {
                comm.work("pull", || {
                    work.aligner.align(&self.v.t(), &term.target.view());
                    let Work { rhs, gram, aligner, .. } = work;
                    aligner.add_proximal_term(
                        &mut rhs.view_mut().reversed_axes(),
                        gram,
                        &term.target.view(),
                        term.gamma,
                    );
                });
            }
            comm.work("update", || {
                let Work { rhs, gram, probe, tile, .. } = work;
                let own = (&mut self.v, self.penalties.v);
                update(own, rhs, (gram, probe, tile), local.rule);
            });
            if let Some(term) = after {
                comm.work("pull", || {
                    work.aligner.align(&self.v.t(), &term.target.view());
                    work.aligner.apply_proximal_step(
                        &mut self.v.view_mut().reversed_axes(),
                        &term.target.view(),
                        term.gamma,
                    );
                });
            }
            if local.tolerance > 0.0
                && has_converged(&self.u, &self.u_before, local.tolerance)
                && has_converged(&self.v, &self.v_before, local.tolerance)
            {
                break;
            }
        }
    }

    /// Scales each component of V_j to norm 1, and U_j by the inverse.
    pub fn normalise(&mut self) {
        for (mut u, mut v) in self.u.columns_mut().into_iter().zip(self.v.columns_mut()) {
            let norm = v.iter().map(|x| x.as_f64() * x.as_f64()).sum::<f64>().sqrt();
            let (down, up) = (T::from_f64(1.0 / norm), T::from_f64(norm));
            if norm > 0.0 && down.is_finite() && up.is_finite() {
                v.iter_mut().for_each(|x| *x *= down);
                u.iter_mut().for_each(|x| *x *= up);
            }
        }
    }

    /// Permutes the columns of U_j as the aligner's last plan, V̄ ≈ P V_j, permutes those of V_j. A component without a
    /// counterpart in V̄ is removed from U_j; if components may be personal, it is kept at the position of a component
    /// of V̄ that has no counterpart here.
    pub fn align_to_shared(&mut self, aligner: &mut Aligner<T>) {
        let k = self.slots.len();
        let free = k;
        for (slot, pair) in self.slots.iter_mut().zip(aligner.pairs()) {
            *slot = pair.unwrap_or(free);
        }
        self.u_before.assign(&self.u);
        self.own.fill(T::zero());
        let mut spare = 0;
        for l in 0..k {
            if self.slots[l] < free {
                self.u.column_mut(l).assign(&self.u_before.column(self.slots[l]));
                continue;
            }
            if self.own.ncols() == 0 {
                self.u.column_mut(l).fill(T::zero());
                continue;
            }
            while self.slots.contains(&spare) {
                spare += 1;
            }
            self.slots[l] = spare;
            self.u.column_mut(l).assign(&self.u_before.column(spare));
            self.own.column_mut(l).assign(&self.v.column(spare));
        }
    }

    /// The effective V of this party: V̄ with its own components at their positions, k × n.
    pub fn effective(&self, mean: &Array2<T>) -> Array2<T> {
        let mut out = mean.clone();
        for l in (0..mean.nrows()).filter(|&l| self.is_own(l)) {
            out.row_mut(l).assign(&self.own.column(l));
        }
        out
    }

    /// The squared error of this U and V (n × k) on the observed entries.
    pub fn residual2(&self, u: &Array2<T>, v: &Array2<T>) -> f64 {
        let (u, v) = (&u.view(), &v.view());
        match &self.missing {
            Some(missing) => missing.residual2(&self.block, u, v),
            None => not_negative(self.block.residual2(u, v)),
        }
    }

    /// The number of observed entries.
    pub fn observed(&self) -> usize {
        let (rows, n) = self.block.shape();
        self.missing.as_ref().map_or(rows * n, |missing| missing.observed((rows, n)))
    }

    /// U ← the exact minimiser over U ≥ 0, with this party's penalty, for V (n × k), the right-hand side M V, and VᵀV.
    pub fn fit(
        &self,
        u: &mut Array2<T>,
        v: &Array2<T>,
        (rhs, g): (&ArrayView2<'_, T>, &Array2<T>),
        solver: &mut Pivoting,
    ) {
        match &self.missing {
            Some(missing) => missing.solve(Side::Rows, u, rhs, &v.view(), solver, self.penalties.u),
            None => solver.solve_penalized(&mut u.view_mut(), rhs, &g.view(), self.penalties.u),
        }
    }

    /// Whether this party has no data.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn work_of<T>(work: &mut Work<T>) -> (&mut Array2<T>, &mut Array1<T>, &mut Array2<T>) {
    (&mut work.gram, &mut work.probe, &mut work.tile)
}

/// Stores X for the next step, and moves it to the point of the step: for iPALM, the extrapolated point.
fn advance<T: Real>(x: &mut Array2<T>, before: &mut Array2<T>, rule: LocalRule, t: f64) {
    let LocalRule::Ipalm { inertia } = rule else {
        before.assign(x);
        return;
    };
    let beta = T::from_f64(inertia * (t - 1.0) / (t + 2.0));
    ndarray::Zip::from(x).and(before).for_each(|x, before| {
        let now = *x;
        *x = now + beta * (now - *before);
        *before = now;
    });
}

/// One update of X, which has this penalty, for the right-hand side R and the Gram matrix G of the other factor.
fn update<T: Real>(
    (x, penalty): (&mut Array2<T>, Penalty),
    r: &Array2<T>,
    (g, probe, tile): (&mut Array2<T>, &mut Array1<T>, &mut Array2<T>),
    rule: LocalRule,
) {
    match rule {
        LocalRule::Mur => multiply(&mut x.view_mut(), &r.view(), &g.view(), penalty, tile),
        LocalRule::Hals => {
            let mu = T::from_f64(HALS_PROXIMAL * g.diag().iter().map(|g| g.as_f64()).sum::<f64>() / g.nrows() as f64);
            sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu, passes: 1, penalty });
        }
        LocalRule::Ipalm { .. } => {
            // The gradient X (G + λ₂I) − R + λ₁ has Lipschitz constant ‖G‖₂ + λ₂.
            let bound = spectral_bound(&g.view(), &mut probe.view_mut()) + penalty.weights::<T>().1;
            let eta = if bound > T::zero() { bound.recip() } else { T::zero() };
            gradient_step(&mut x.view_mut(), &r.view(), &g.view(), eta, penalty);
        }
    }
}

/// ‖X − X'‖ ≤ tolerance · ‖X‖.
fn has_converged<T: Real>(x: &Array2<T>, before: &Array2<T>, tolerance: f64) -> bool {
    let (mut change, mut size) = (0.0, 0.0);
    ndarray::Zip::from(x).and(before).for_each(|x, b| {
        change += (x.as_f64() - b.as_f64()).powi(2);
        size += x.as_f64() * x.as_f64();
    });
    change <= tolerance * tolerance * size
}
