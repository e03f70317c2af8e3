//! ELBMF and ZHANG, the baselines with real-valued U_i and V_i: alternating steps of `proximal` on the party's own rows,
//! with a weight λ_t = λ·rate^t that pushes entries towards 0 or 1.
//!
//! * `elbmf` (Dalleiger, Vreeken: Efficiently Factorizing Boolean Matrices using Proximal Gradient Descent): inertial
//!   proximal gradients with two elastic nets, rounded at ½. The steps are those of the authors' code, or those of FELB.
//! * `zhang` (Zhang, Li, Ding, Zhang: Binary Matrix Factorization with Applications): multiplicative updates of a penalty
//!   method. They are rounded at the two thresholds, from a grid of 100 × 100, whose Boolean product fits the party's rows
//!   best.

use ndarray::Array2;

use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::{Bits, Real};

use super::{Client, round_rows, rounded};
use crate::boolean::proximal::{ProximalRule, ProximalStep, gram, step};
use crate::boolean::thresholds::best_thresholds;
use crate::boolean::vote::{self, LocalFactorization, LocalMethod, LocalProblem};
use crate::description::{Description, Unit};
use crate::parameters::number;
use crate::shared::init;

fednmf_base::parameters! {
    /// The weight λ_t.
    pub struct WeightParams {
        /// Weight of what draws entries to 0 or 1, at the start
        pub lambda: f64 = 0.01, "X", number(0.0, f64::INFINITY);
        /// Factor by which --lambda grows from one iteration to the next
        pub lambda_rate: f64 = 1.02, "X", number(1.0, 2.0);
    }
}

fednmf_base::words! {
    /// The length of ELBMF's steps.
    pub enum StepSize {
        /// 2(1-b)/(1+2b)/|G|, b being --inertia (1/(1.1|G|) without inertia), entries cut at 0: the authors' code
        Ipalm = "ipalm",
        /// 1/|G|, entries cut to [0, 1]: the step of felb
        Lipschitz = "lipschitz",
    }
}

fednmf_base::parameters! {
    /// Parameters of ELBMF.
    pub struct Elbmf {
        group weight: WeightParams;
        /// Soft threshold around 0 and 1
        pub kappa: f64 = 0.01, "X", number(0.0, f64::INFINITY);
        /// Share of the last change that a proximal step carries on; 0 for none
        pub inertia: f64 = 0.01, "X", number(0.0, 1.0);
        /// Length of a proximal step, G being the Gram matrix of the other factor in the Frobenius norm
        pub step_size: StepSize = StepSize::Ipalm, "STEP";
    }
}

impl LocalMethod for Elbmf {
    const DESCRIPTION: &'static Description = &vote::describe(
        "elbmf",
        "Boolean factors by proximal gradients at each party, components joined by vote",
        "Dalleiger, Vreeken: Efficiently Factorizing Boolean Matrices using Proximal Gradient Descent",
        Unit::Local,
    );

    type Local<T: Real> = Relaxed<T>;

    fn start<T: Real>(&self, client: &Client<T>, problem: &LocalProblem) -> Relaxed<T> {
        let step = ProximalStep {
            rule: match self.step_size {
                StepSize::Ipalm => ProximalRule::Ipalm,
                StepSize::Lipschitz => ProximalRule::Lipschitz,
            },
            kappa: self.kappa,
            lambda: self.weight.lambda,
            inertia: self.inertia,
        };
        Relaxed::new(step, self.weight.lambda_rate, client, problem)
    }
}

fednmf_base::parameters! {
    /// Parameters of ZHANG.
    pub struct Zhang {
        group weight: WeightParams;
    }
}

impl LocalMethod for Zhang {
    const DESCRIPTION: &'static Description = &vote::describe(
        "zhang",
        "Boolean factors by penalties and thresholds, components joined by vote",
        "Zhang, Li, Ding, Zhang: Binary Matrix Factorization with Applications",
        Unit::Local,
    );

    type Local<T: Real> = Relaxed<T>;

    fn start<T: Real>(&self, client: &Client<T>, problem: &LocalProblem) -> Relaxed<T> {
        let step = ProximalStep { rule: ProximalRule::Penalty, kappa: 0.0, lambda: self.weight.lambda, inertia: 0.0 };
        Relaxed::new(step, self.weight.lambda_rate, client, problem)
    }
}

/// Upper limit of λ_t. Entries are Boolean to working precision by then, and larger values could overflow.
const MAX_LAMBDA: f64 = 1e8;

/// The real-valued factors of one party, U (rows × k) and V (n × k), before they are rounded.
pub struct Relaxed<T> {
    step: ProximalStep,
    /// Growth of λ from one iteration to the next.
    rate: f64,
    u: Array2<T>,
    v: Array2<T>,
    u_before: Array2<T>,
    v_before: Array2<T>,
    u_rhs: Array2<T>,
    v_rhs: Array2<T>,
    gram: Vec<T>,
}

impl<T: Real> Relaxed<T> {
    fn new(
        step: ProximalStep,
        rate: f64,
        client: &Client<T>,
        &LocalProblem { k, seed, first_row }: &LocalProblem,
    ) -> Self {
        let (rows, n) = client.x.shape();
        let (mut u, mut v) = (Array2::zeros((rows, k)), Array2::zeros((n, k)));
        init::u(seed, &(first_row..first_row + rows), 1.0, u.view_mut());
        // Each party starts from its own V.
        let first = client.party * n;
        init::v(seed, &(first..first + n), 1.0, v.view_mut());
        Relaxed {
            step,
            rate,
            u_before: u.clone(),
            v_before: v.clone(),
            u_rhs: Array2::zeros((rows, k)),
            v_rhs: Array2::zeros((n, k)),
            gram: vec![T::zero(); k * k],
            u,
            v,
        }
    }
}

impl<T: Real> LocalFactorization<T> for Relaxed<T> {
    fn iterate(&mut self, client: &Client<T>, t: usize) {
        let k = self.v.ncols();
        let lambda = (self.step.lambda * self.rate.powf(t as f64)).min(MAX_LAMBDA);
        let parameters = ProximalStep { lambda, ..self.step };
        gram(self.v.row_major(), k, &mut self.gram);
        client.x.mul(&self.v.view(), &mut self.u_rhs.view_mut());
        let (x, before) = (self.u.row_major_mut(), self.u_before.row_major_mut());
        step(x, before, self.u_rhs.row_major(), &self.gram, k, parameters, None);

        gram(self.u.row_major(), k, &mut self.gram);
        client.x.tmul(&self.u.view(), &mut self.v_rhs.view_mut());
        let (x, before) = (self.v.row_major_mut(), self.v_before.row_major_mut());
        step(x, before, self.v_rhs.row_major(), &self.gram, k, parameters, None);
    }

    fn boolean(&self, client: &Client<T>) -> (Bits, Bits) {
        if self.step.rule == ProximalRule::Penalty {
            return best_thresholds(&client.x, &self.u, &self.v);
        }
        (round_rows(&self.u), rounded(&self.v.view()))
    }

    fn state(&self) -> Vec<(&'static str, &Array2<T>)> {
        vec![("U", &self.u), ("V", &self.v), ("U before", &self.u_before), ("V before", &self.v_before)]
    }

    fn state_mut(&mut self) -> Vec<(&'static str, &mut Array2<T>)> {
        let (u, v) = (&mut self.u, &mut self.v);
        vec![("U", u), ("V", v), ("U before", &mut self.u_before), ("V before", &mut self.v_before)]
    }
}
