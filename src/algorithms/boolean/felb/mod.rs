//! FELB and FELB-MU: federated Boolean matrix factorisation by proximal gradients (Dalleiger, Vreeken, Kamp: Federated
//! Binary Matrix Factorization using Proximal Optimization, Alg. 1).
//!
//! In each round every party starts from the shared V̂ and does b steps of inertial proximal alternating minimisation on
//! its own rows, each for U_i and for V_i (`boolean::proximal`); then V̂ ← prox(Σ V_i / C), all that is ever exchanged:
//! n k words a party. The weight λ_t = λ·rate^t of the pull to {0, 1} grows with the *round*; the server's prox has the
//! step 1/C that follows from (10). The steps are those of ½‖A − UVᵀ‖². Inertia starts afresh in each round.
//!
//! The paper leaves γ open; see `gamma`.
//!
//! What comes out is V̂ rounded at ½, and for each party a Boolean U_i refitted to it.

mod gamma;

use std::ops::Range;

use gamma::Gamma;
use ndarray::Array2;
use serde::{Deserialize, Serialize};

use super::{COUNTS, Client, Components, Ones, Outcome, clients, pieces, round_rows, rounded};
use crate::algorithms::boolean::proximal::{Rule, Step, gram, prox, step};
use crate::algorithms::options::{
    CLAMP, DP, GAMMA, INERTIA, KAPPA, LAMBDA, LAMBDA_RATE, LOCAL_ITERS, REFIT, SECURE_SUM, Taken, UNTIL_BOOLEAN,
};
use crate::algorithms::registry::{Build, Form, LARGEST_TERM, MessageSpec, Method, Partition, Unit};
use crate::algorithms::shared::dp;
use crate::algorithms::shared::dp::Messages;
use crate::algorithms::shared::start;
use crate::algorithms::{Algorithm, Measures, Problem};
use crate::comm::{Communicator, MessageTag, Payload};
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::privacy::{Bound, KEYS, Mechanism, Releases, Summer, masked};
use crate::state::{Owner, Piece, SavedState, State};

const PAPER: &str = "Dalleiger, Vreeken, Kamp: Federated Binary Matrix Factorization using Proximal Optimization";

const OWN: [Taken; 9] = [
    LOCAL_ITERS.or("10"),
    LAMBDA.or("0.1"),
    LAMBDA_RATE.or("1.05"),
    KAPPA.or("0.001"),
    GAMMA.or("auto"),
    INERTIA.or("0.001"),
    REFIT.or("greedy"),
    UNTIL_BOOLEAN.or("false"),
    CLAMP.or("false"),
];
const OPTIONS: [Taken; 19] = dp::with(OWN);

const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(SUM_V, "n x k for each party", "each round"),
    MessageSpec::new(masked(SUM_V), "n x k for each party", "the same, with --secure-sum"),
    MessageSpec::new(COUNTS, "9 for each party", "each evaluation"),
    MessageSpec::new(masked(COUNTS), "9 for each party", "the same, with --secure-sum"),
    dp::MESSAGES,
    dp::MESSAGES_MASKED,
    LARGEST_TERM,
    MessageSpec::new(KEYS, "32 bytes", "once, with --secure-sum"),
];

const fn method(
    name: &'static str,
    aliases: &'static [&'static str],
    summary: &'static str,
    build64: Build<f64>,
    build32: Build<f32>,
) -> Method {
    Method {
        name,
        aliases,
        summary,
        paper: PAPER,
        partition: Partition::PartyRows,
        unit: Unit::Round,
        forms: &[Form::Dense, Form::Sparse, Form::Bits],
        allows_negative: false,
        options: &OPTIONS,
        messages: MESSAGES,
        build64,
        build32,
    }
}

pub static FELB: Method = method(
    "felb",
    &["felb-lipschitz"],
    "federated Boolean factorisation: private U_i, shared components, Lipschitz steps",
    lipschitz,
    lipschitz,
);

pub static FELB_MU: Method =
    method("felb-mu", &[], "as felb, with multiplicative step sizes", multiplicative, multiplicative);

const SUM_V: MessageTag = MessageTag::new("sum V_i", Payload::SharedFactor);

/// A V̂ this near to {0, 1} is Boolean.
const BOOLEAN: f64 = 1e-6;

fn lipschitz<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    build(problem, Rule::Lipschitz)
}

fn multiplicative<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    build(problem, Rule::Multiplicative)
}

/// What is the same in every round.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rule: Rule,
    local_iters: usize,
    lambda: f64,
    rate: f64,
    kappa: f64,
    gamma: Gamma,
    inertia: f64,
}

/// Memory of a local step, used by one hosted party after the other.
struct Work<T> {
    u_before: Vec<T>,
    u_rhs: Array2<T>,
    v_before: Array2<T>,
    v_rhs: Array2<T>,
    gram: Vec<T>,
}

struct Felb<T: Real> {
    comm: Communicator,
    parties: usize,
    summer: Summer,
    releases: Option<Releases>,
    clamp: bool,
    plan: Plan,
    until_boolean: bool,
    seed: u64,
    /// Of the hosted parties.
    rows: Vec<Range<usize>>,
    clients: Vec<Client<T>>,
    u: Vec<Array2<T>>,
    v: Vec<Array2<T>>,
    /// V̂
    shared: Array2<T>,
    work: Work<T>,
    outcome: Outcome<T>,
    iteration: usize,
}

/// What a checkpoint keeps beside the factors.
#[derive(Serialize, Deserialize)]
struct FelbState {
    /// [`Gamma::began`]
    began: usize,
}

fn build<T: Real>(problem: Problem<'_, T>, rule: Rule) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, options, max_iters, parties, comm, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let local_iters = options.count(&LOCAL_ITERS);
    let boolean = options.word(&DP) == "xor";
    let messages = Messages { max_iters, once: false, length: n * k, natural: Some(Bound::Box), boolean };
    let releases = dp::releases(options, messages, parties, &comm)?;
    if options.flag(&CLAMP) && (releases.is_none() || boolean || options.flag(&SECURE_SUM)) {
        return Err(Error::input(
            "--clamp: cuts each party's noised entries, so it needs --dp gaussian or laplace without \
                                 --secure-sum",
        ));
    }
    let plan = Plan {
        rule,
        local_iters,
        lambda: options.number(&LAMBDA),
        rate: options.number(&LAMBDA_RATE),
        kappa: options.number(&KAPPA),
        gamma: match options.number_or_auto(&GAMMA) {
            Some(gamma) => Gamma::fixed(gamma),
            None => Gamma::auto(local_iters, releases.is_some()),
        },
        inertia: options.number(&INERTIA),
    };
    let summer = dp::summer(&comm, parties, options)?;
    let cuts = data.cuts.rows.clone();
    let clients = clients(data, parties, &comm)?;
    let mut u: Vec<Array2<T>> = clients.iter().map(|c| Array2::zeros((c.x.shape().0, k))).collect();
    let rows: Vec<Range<usize>> = clients.iter().map(|c| cuts[c.party].clone()).collect();
    let mut shared = Array2::zeros((n, k));
    start(seed, &rows, &mut u, &mut shared);
    let most = u.iter().map(Array2::nrows).max().unwrap_or(0);
    let work = Work {
        u_before: vec![T::zero(); most * k],
        u_rhs: Array2::zeros((most, k)),
        v_before: Array2::zeros((n, k)),
        v_rhs: Array2::zeros((n, k)),
        gram: vec![T::zero(); k * k],
    };
    Ok(Box::new(Felb {
        outcome: Outcome::new(&clients, (m, n), k, options.word(&REFIT) == "greedy"),
        until_boolean: options.flag(&UNTIL_BOOLEAN),
        v: vec![shared.clone(); clients.len()],
        parties: parties.count,
        clamp: options.flag(&CLAMP),
        releases,
        summer,
        comm,
        plan,
        seed,
        rows,
        clients,
        u,
        shared,
        work,
        iteration: 0,
    }))
}

/// The public start: U_i for the hosted parties' rows, and V̂.
fn start<T: Real>(seed: u64, rows: &[Range<usize>], u: &mut [Array2<T>], shared: &mut Array2<T>) {
    for (rows, u) in rows.iter().zip(u) {
        start::u(seed, rows, 1.0, u.view_mut());
    }
    start::v(seed, &(0..shared.nrows()), 1.0, shared.view_mut());
}

impl<T: Real> Work<T> {
    /// The local steps of one party in one round: `u` and `v` move, `v` from `shared` and never far from it.
    fn round(
        &mut self,
        x: &Ones<T>,
        u: &mut Array2<T>,
        v: &mut Array2<T>,
        shared: &Array2<T>,
        plan: &Plan,
        (lambda, gamma): (f64, f64),
    ) {
        let k = v.ncols();
        v.assign(shared);
        let parameters = Step { rule: plan.rule, kappa: plan.kappa, lambda, inertia: plan.inertia };
        let u_before = &mut self.u_before[..u.len()];
        let mut u_rhs = self.u_rhs.slice_mut(ndarray::s![..u.nrows(), ..]);
        u_before.copy_from_slice(slice(u));
        self.v_before.assign(v);
        for _ in 0..plan.local_iters {
            gram(slice(v), k, &mut self.gram);
            x.mul(&v.view(), &mut u_rhs);
            let rhs = u_rhs.as_slice().expect("rows from the first are contiguous");
            step(slice_mut(u), u_before, rhs, &self.gram, k, parameters, None);

            gram(slice(u), k, &mut self.gram);
            x.tmul(&u.view(), &mut self.v_rhs.view_mut());
            let pull = (gamma > 0.0).then(|| (slice(shared), gamma));
            step(slice_mut(v), slice_mut(&mut self.v_before), slice(&self.v_rhs), &self.gram, k, parameters, pull);
        }
    }
}

fn slice<T>(a: &Array2<T>) -> &[T] {
    a.as_slice().expect("factors are in row order")
}

fn slice_mut<T>(a: &mut Array2<T>) -> &mut [T] {
    a.as_slice_mut().expect("factors are in row order")
}

impl<T: Real> Felb<T> {
    /// V̂ ← Σ V_i, the release of a round.
    fn sum(&mut self) -> Result<()> {
        let Felb { comm, parties, summer, releases, clamp, v, shared, .. } = self;
        if let Some(releases) = releases {
            releases.open()?;
            if summer.is_masked() && releases.plan().mechanism() != Mechanism::Xor {
                let fill = |hosted: usize, out: &mut [u64]| {
                    releases.words(hosted, Some(slice(&v[hosted])), Some(slice(shared)), out);
                };
                let total = summer.words(comm, SUM_V, shared.len(), fill);
                let known = if releases.is_relative() { T::from_f64(*parties as f64) } else { T::zero() };
                for (x, sum) in slice_mut(shared).iter_mut().zip(total) {
                    *x = known * *x + T::from_f64(releases.decode(*sum));
                }
                return Ok(());
            }
            comm.work("noise", || {
                for (hosted, v) in v.iter_mut().enumerate() {
                    releases.noised(hosted, slice_mut(v), Some(slice(shared)));
                    if *clamp {
                        v.mapv_inplace(|x| x.max(T::zero()).min(T::one()));
                    }
                }
            });
        }
        summer.sum(comm, SUM_V, 1.0, v.iter().map(slice), slice_mut(shared))
    }

    /// The largest distance of an entry of V̂ from {0, 1}.
    fn gap(&self) -> f64 {
        self.shared.iter().map(|x| x.as_f64().min(1.0 - x.as_f64())).fold(0.0, f64::max)
    }

    fn first_party(&self) -> usize {
        self.clients.first().map_or(0, |c| c.party)
    }

    /// Rounds V̂ and fits the Boolean U_i to it.
    fn round_off(&mut self) {
        let shared = Components::new(rounded(&self.shared.view()));
        let locals = self.u.iter().map(|u| (round_rows(u), None));
        self.outcome.set(&self.clients, &shared, locals);
    }
}

impl<T: Real> Algorithm<T> for Felb<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            if self.done() {
                break;
            }
            if self.plan.gamma.starts_over(self.iteration, slice(&self.shared)) {
                start(self.seed, &self.rows, &mut self.u, &mut self.shared);
            }
            let round = self.iteration - self.plan.gamma.began;
            let lambda = (self.plan.lambda * self.plan.rate.powi(round as i32)).min(1e12);
            let gamma = self.plan.gamma.at(self.iteration);
            self.comm.work("local steps", || {
                for ((client, u), v) in self.clients.iter().zip(&mut self.u).zip(&mut self.v) {
                    self.work.round(&client.x, u, v, &self.shared, &self.plan, (lambda, gamma));
                }
            });
            self.sum()?;
            let share = T::from_f64(1.0 / self.parties as f64);
            let (kappa, lambda) = (T::from_f64(self.plan.kappa) * share, T::from_f64(lambda) * share);
            self.shared.mapv_inplace(|x| prox(x * share, kappa, lambda));
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn done(&self) -> bool {
        (self.until_boolean && self.gap() < BOOLEAN) || self.releases.as_ref().is_some_and(Releases::is_spent)
    }

    fn conclude(&mut self) -> Result<()> {
        self.round_off();
        Ok(())
    }

    fn measure(&mut self) -> Result<Measures> {
        self.round_off();
        let mut all = self.outcome.measures(&mut self.summer, &self.comm, self.parties)?;
        all.push(("integrality_gap", self.gap()));
        dp::measure(self.releases.as_ref(), &mut self.summer, &self.comm, &mut all)?;
        Ok(all)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        self.outcome.factors(&self.clients, &self.comm)
    }

    fn state(&self) -> State<'_, T> {
        let factors = State::from(pieces(&self.clients, &self.comm, &self.shared, self.u.iter()));
        let state = factors.with(Owner::Shared, &FelbState { began: self.plan.gamma.began });
        dp::save(state, self.releases.as_ref(), self.first_party())
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        saved.rows("V", Owner::Shared, 0, self.shared.view_mut())?;
        for (client, u) in self.clients.iter().zip(&mut self.u) {
            saved.rows("U", Owner::Party(client.party), 0, u.view_mut())?;
        }
        let FelbState { began } = saved.read(Owner::Shared)?;
        self.plan.gamma.began = began;
        let first = self.first_party();
        dp::restore(saved, self.releases.as_mut(), first)?;
        self.iteration = iteration;
        Ok(())
    }

    fn private_releases(&self) -> Option<&Releases> {
        self.releases.as_ref()
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("gamma", self.plan.gamma.at(self.iteration).into())]
    }
}
