//! ELBMF and ZHANG, the rivals that relax U_i and V_i to numbers: alternating steps of `proximal` on the party's own rows,
//! under a weight λ_t = λ·rate^t that draws entries to {0, 1}.
//!
//! * `elbmf` (Dalleiger, Vreeken: Efficiently Factorizing Boolean Matrices using Proximal Gradient Descent): inertial
//!   proximal gradients with two elastic nets; rounded at ½.
//! * `zhang` (Zhang, Li, Ding, Zhang: Binary Matrix Factorization with Applications): multiplicative updates of a penalty
//!   method; rounded at the two thresholds, of a grid of 100 × 100, whose Boolean product fits the party's rows best.

use ndarray::Array2;

use super::rival;
use super::{Client, round_rows, rounded};
use crate::algorithms::boolean::proximal::{Rule, Step, gram, step};
use crate::algorithms::boolean::rival::Local;
use crate::algorithms::boolean::thresholds::best_thresholds;
use crate::algorithms::options::{AGGREGATE, INERTIA, KAPPA, LAMBDA, LAMBDA_RATE, REFIT};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::shared::dp;
use crate::algorithms::shared::start;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::{Bits, Real};

pub static ELBMF: Method = Method {
    name: "elbmf",
    aliases: &[],
    summary: "Boolean factorisation by proximal gradients at each party, components joined by vote",
    paper: "Dalleiger, Vreeken: Efficiently Factorizing Boolean Matrices using Proximal Gradient Descent",
    partition: Partition::PartyRows,
    unit: Unit::Local,
    forms: &[Form::Dense, Form::Sparse, Form::Bits],
    allows_negative: false,
    options: &dp::with::<6, 16>([
        LAMBDA.or("0.01"),
        LAMBDA_RATE.or("1.02"),
        KAPPA.or("0.01"),
        INERTIA.or("0.01"),
        AGGREGATE.or("vote"),
        REFIT.or("greedy"),
    ]),
    messages: rival::MESSAGES,
    build64: elbmf,
    build32: elbmf,
};

pub static ZHANG: Method = Method {
    name: "zhang",
    aliases: &[],
    summary: "Boolean factorisation by a penalty method and a search for thresholds at each party, joined by vote",
    paper: "Zhang, Li, Ding, Zhang: Binary Matrix Factorization with Applications",
    partition: Partition::PartyRows,
    unit: Unit::Local,
    forms: &[Form::Dense, Form::Sparse, Form::Bits],
    allows_negative: false,
    options: &dp::with::<4, 14>([LAMBDA.or("0.01"), LAMBDA_RATE.or("1.02"), AGGREGATE.or("vote"), REFIT.or("greedy")]),
    messages: rival::MESSAGES,
    build64: zhang,
    build32: zhang,
};

/// λ_t grows no further: entries are as Boolean as they get, and the numbers stay finite.
const MOST_LAMBDA: f64 = 1e8;

struct Relaxed<T> {
    parameters: Step,
    rate: f64,
    u: Array2<T>,
    v: Array2<T>,
    u_before: Array2<T>,
    v_before: Array2<T>,
    u_rhs: Array2<T>,
    v_rhs: Array2<T>,
    gram: Vec<T>,
}

fn elbmf<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let options = problem.options;
    let parameters = Step {
        rule: Rule::Lipschitz,
        kappa: options.number(&KAPPA),
        lambda: options.number(&LAMBDA),
        inertia: options.number(&INERTIA),
    };
    build(problem, parameters)
}

fn zhang<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let lambda = problem.options.number(&LAMBDA);
    build(problem, Step { rule: Rule::Penalty, kappa: 0.0, lambda, inertia: 0.0 })
}

fn build<T: Real>(problem: Problem<'_, T>, parameters: Step) -> Result<Box<dyn Algorithm<T>>> {
    let (seed, k, n, rate) = (problem.seed, problem.k, problem.data.header.cols, problem.options.number(&LAMBDA_RATE));
    rival::build(problem, None, move |client, first_row| {
        let rows = client.x.shape().0;
        let (mut u, mut v) = (Array2::zeros((rows, k)), Array2::zeros((n, k)));
        start::u(seed, &(first_row..first_row + rows), 1.0, u.view_mut());
        // Every party starts from its own V.
        let first = client.party * n;
        start::v(seed, &(first..first + n), 1.0, v.view_mut());
        Relaxed {
            parameters,
            rate,
            u_before: u.clone(),
            v_before: v.clone(),
            u_rhs: Array2::zeros((rows, k)),
            v_rhs: Array2::zeros((n, k)),
            gram: vec![T::zero(); k * k],
            u,
            v,
        }
    })
}

/// A factor and what belongs to it, as slices.
fn slice<T>(a: &Array2<T>) -> &[T] {
    a.as_slice().expect("factors are in row order")
}

fn slice_mut<T>(a: &mut Array2<T>) -> &mut [T] {
    a.as_slice_mut().expect("factors are in row order")
}

impl<T: Real> Local<T> for Relaxed<T> {
    fn iterate(&mut self, client: &Client<T>, t: usize) {
        let k = self.v.ncols();
        let lambda = (self.parameters.lambda * self.rate.powf(t as f64)).min(MOST_LAMBDA);
        let parameters = Step { lambda, ..self.parameters };
        gram(slice(&self.v), k, &mut self.gram);
        client.x.mul(&self.v.view(), &mut self.u_rhs.view_mut());
        let (x, before) = (slice_mut(&mut self.u), slice_mut(&mut self.u_before));
        step(x, before, slice(&self.u_rhs), &self.gram, k, parameters, None);

        gram(slice(&self.u), k, &mut self.gram);
        client.x.tmul(&self.u.view(), &mut self.v_rhs.view_mut());
        let (x, before) = (slice_mut(&mut self.v), slice_mut(&mut self.v_before));
        step(x, before, slice(&self.v_rhs), &self.gram, k, parameters, None);
    }

    fn boolean(&self, client: &Client<T>) -> (Bits, Bits) {
        if self.parameters.rule == Rule::Penalty {
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
