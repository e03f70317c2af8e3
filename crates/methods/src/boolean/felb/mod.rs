//! FELB and FELB-MU: federated Boolean matrix factorisation by proximal gradients (Dalleiger, Vreeken, Kamp: Federated
//! Binary Matrix Factorization using Proximal Optimization, Alg. 1).
//!
//! In each round every party starts from the shared V̂ and runs b local steps on its own rows. Each step updates U_i and
//! V_i by inertial proximal alternating minimisation (`boolean::proximal`) of ½‖A − UVᵀ‖². Then V̂ ← prox(Σ V_i / C), where
//! the prox has the step 1/C that follows from (10). Only this sum is exchanged: n k words per party. The weight λ_t =
//! λ·rate^t of the regulariser around {0, 1} grows with the *round*. Each round starts without inertia.
//!
//! The paper does not specify γ; see `gamma`.
//!
//! The result is V̂ rounded at ½, and for each party a Boolean U_i refitted to it.

mod gamma;

use std::ops::Range;

use gamma::Gamma;
use ndarray::Array2;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{PartySum, SUMMED};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::{Contiguous, Real};
use fednmf_privacy::{Bound, Mechanism, NoisePlan, Releases};

use super::{Client, Components, Ones, Outcome, clients, describe, distinct, messages, round_rows, rounded};
use crate::boolean::Refit;
use crate::boolean::proximal::{ProximalRule, ProximalStep, gram, prox, step};
use crate::cost::{Cost, Kernel, Workload};
use crate::decision::Decision;
use crate::description::{Description, MessageSpec, Unit};
use crate::method::Method;
use crate::parameters::{Auto, auto, count, number};
use crate::shared::disclosure::OpenedSums;
use crate::shared::dp;
use crate::shared::dp::{DpParams, Expected, Messages, Noise};
use crate::shared::init;
use crate::shared::secure_sum;
use crate::shared::secure_sum::SecureSumParams;
use crate::{Algorithm, Measures, Problem};

const PAPER: &str = "Dalleiger, Vreeken, Kamp: Federated Binary Matrix Factorization using Proximal Optimization";

fednmf_base::parameters! {
    /// Parameters of FELB.
    pub struct Felb {
        /// Steps of a party between two exchanges
        pub local_iters: usize = 10, "N", count(1);
        /// Weight of what draws entries to 0 or 1, at the start
        pub lambda: f64 = 0.1, "X", number(0.0, f64::INFINITY);
        /// Factor by which --lambda grows from one iteration to the next
        pub lambda_rate: f64 = 1.05, "X", number(1.0, 2.0);
        /// Soft threshold around 0 and 1
        pub kappa: f64 = 0.001, "X", number(0.0, f64::INFINITY);
        /// Weight of the pull of a party's V to the shared one, in every local step. auto: 1 with 10 local steps; where rounding
        /// the shared V after 10 rounds would change it by more than the ones it leaves, the run starts over at 10, and the weight
        /// falls to 1 as far as V stays clear
        pub gamma: Auto<f64> = Auto::Auto, "X", auto(number(0.0, f64::INFINITY));
        /// Share of the last change that a proximal step carries on; 0 for none
        pub inertia: f64 = 0.001, "X", number(0.0, 1.0);
        /// Rows of U for the shared components
        pub refit: Refit = Refit::Greedy, "HOW";
        /// Stop as soon as the shared factor is Boolean to 1e-6 (raise --max-iters: some hundred rounds)
        pub until_boolean: bool;
        /// Parties cut their noised entries to [0, 1] before they send them, as in the paper
        pub clamp: bool;
        group dp: DpParams;
        group sum: SecureSumParams;
    }
}

fednmf_base::parameters! {
    /// Parameters of FELB-MU: those of FELB.
    pub struct FelbMu {
        group felb: Felb;
    }
}

impl Felb {
    fn messages(&self, max_iters: usize, length: usize) -> Messages {
        let boolean = self.dp.dp == Noise::Xor;
        Messages { max_iters, once: false, length, natural: Some(Bound::Box), entry: 1.0, boolean }
    }
}

impl Method for Felb {
    const DESCRIPTION: &'static Description = &Description {
        aliases: &["felb-lipschitz"],
        ..describe(
            "felb",
            "federated Boolean factorisation: private U_i, shared components, Lipschitz steps",
            PAPER,
            Unit::Round,
            MESSAGES,
        )
    };

    fn check(&self) -> Result<()> {
        if self.clamp && (!matches!(self.dp.dp, Noise::Gaussian | Noise::Laplace) || self.sum.secure_sum) {
            return Err(Error::input(
                "--clamp: cuts each party's noised entries, so it needs --dp gaussian or laplace without --secure-sum",
            ));
        }
        Ok(())
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, k, word, stored: entries, .. } = *workload;
        let (parties, hosted) = workload.parties(ranks);
        let rows = m.div_ceil(parties) * hosted;
        let stored = workload.part(rows, n);
        let t = self.local_iters as f64;
        let mut cost = Cost::default();
        let (products, square) = (4.0 * t * k as f64, 4.0 * t * (k * k) as f64);
        let own = products * stored + square * (rows + n * hosted) as f64;
        cost.add(Kernel::Other, own, products * entries + square * (m + n * parties) as f64);
        self.sum.add_cost(None, &mut cost, (ranks, parties), &[(SUM_V, n * k)], (word, 1));
        cost.caveat("the flops are those of the printed formulas; no kernel counts them");
        cost.data = workload.block(rows, stored);
        cost.factors = workload.bytes((2 * rows + (hosted + 3) * n) * k) + (16 * n * k) as f64;
        Ok(Some(cost))
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Some(OpenedSums::EachIteration(1))
    }

    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>> {
        let messages = self.messages(run.max_iters, run.n * run.k);
        dp::plan(&self.dp, self.sum.secure_sum, messages, run.parties)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(self, problem, ProximalRule::Lipschitz)
    }
}

impl Method for FelbMu {
    const DESCRIPTION: &'static Description =
        &describe("felb-mu", "as felb, with multiplicative step sizes", PAPER, Unit::Round, MESSAGES);

    fn check(&self) -> Result<()> {
        Method::check(&self.felb)
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        Method::cost(&self.felb, workload, ranks)
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Some(OpenedSums::EachIteration(1))
    }

    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>> {
        Method::noise(&self.felb, run)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(&self.felb, problem, ProximalRule::Multiplicative)
    }
}

const MESSAGES: &[MessageSpec] = &messages(SUM_V, "each round");
const SUM_V: MessageTag = MessageTag::new("sum V_i", Payload::SharedFactor);

/// V̂ counts as Boolean if no entry is farther from {0, 1}.
const BOOLEAN: f64 = 1e-6;

/// Parameters of the steps, and γ.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rule: ProximalRule,
    local_iters: usize,
    lambda: f64,
    rate: f64,
    kappa: f64,
    gamma: Gamma,
    inertia: f64,
}

/// Scratch memory of a local step, shared by the hosted parties.
struct Work<T> {
    u_before: Vec<T>,
    u_rhs: Array2<T>,
    v_before: Array2<T>,
    v_rhs: Array2<T>,
    gram: Vec<T>,
}

struct FelbRun<T: Real> {
    comm: PartyCommunicator,
    parties: usize,
    party_sum: PartySum,
    releases: Option<Releases>,
    clamp: bool,
    plan: Plan,
    until_boolean: bool,
    seed: u64,
    /// Row ranges of the hosted parties.
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

fn build<T: Real>(args: &Felb, problem: Problem<'_, T>, rule: ProximalRule) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, max_iters, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let (m, n) = (data.header.rows, data.header.cols);
    let local_iters = args.local_iters;
    let releases = dp::releases(&args.dp, args.sum.secure_sum, args.messages(max_iters, n * k), parties, &comm)?;
    let plan = Plan {
        rule,
        local_iters,
        lambda: args.lambda,
        rate: args.lambda_rate,
        kappa: args.kappa,
        gamma: match args.gamma.given() {
            Some(gamma) => Gamma::fixed(gamma),
            None => Gamma::auto(local_iters, releases.is_some()),
        },
        inertia: args.inertia,
    };
    let party_sum = secure_sum::party_sum(&comm, parties, &args.sum, None)?;
    let cuts = data.cuts.rows.clone();
    let clients = clients(data, parties, &comm)?;
    let mut u: Vec<Array2<T>> = clients.iter().map(|c| Array2::zeros((c.x.shape().0, k))).collect();
    let rows: Vec<Range<usize>> = clients.iter().map(|c| cuts[c.party].clone()).collect();
    let mut shared = Array2::zeros((n, k));
    start(seed, &rows, &mut u, &mut shared);
    let max_rows = u.iter().map(Array2::nrows).max().unwrap_or(0);
    let work = Work {
        u_before: vec![T::zero(); max_rows * k],
        u_rhs: Array2::zeros((max_rows, k)),
        v_before: Array2::zeros((n, k)),
        v_rhs: Array2::zeros((n, k)),
        gram: vec![T::zero(); k * k],
    };
    Ok(Box::new(FelbRun {
        outcome: Outcome::new(&clients, (m, n), k, args.refit == Refit::Greedy),
        until_boolean: args.until_boolean,
        v: vec![shared.clone(); clients.len()],
        parties: parties.count,
        clamp: args.clamp,
        releases,
        party_sum,
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

/// Fills the public start: U_i for the rows of the hosted parties, and V̂.
fn start<T: Real>(seed: u64, rows: &[Range<usize>], u: &mut [Array2<T>], shared: &mut Array2<T>) {
    for (rows, u) in rows.iter().zip(u) {
        init::u(seed, rows, 1.0, u.view_mut());
    }
    init::v(seed, &(0..shared.nrows()), 1.0, shared.view_mut());
}

impl<T: Real> Work<T> {
    /// The local steps of one party in one round, which update `u` and `v`; `v` starts from `shared`, and a proximal term
    /// of weight γ ties it to `shared`.
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
        let parameters = ProximalStep { rule: plan.rule, kappa: plan.kappa, lambda, inertia: plan.inertia };
        let u_before = &mut self.u_before[..u.len()];
        let mut u_rhs = self.u_rhs.slice_mut(ndarray::s![..u.nrows(), ..]);
        u_before.copy_from_slice(u.row_major());
        self.v_before.assign(v);
        for _ in 0..plan.local_iters {
            gram(v.row_major(), k, &mut self.gram);
            x.mul(&v.view(), &mut u_rhs);
            let rhs = u_rhs.row_major();
            step(u.row_major_mut(), u_before, rhs, &self.gram, k, parameters, None);

            gram(u.row_major(), k, &mut self.gram);
            x.tmul(&u.view(), &mut self.v_rhs.view_mut());
            let target = (gamma > 0.0).then(|| (shared.row_major(), gamma));
            step(
                v.row_major_mut(),
                self.v_before.row_major_mut(),
                self.v_rhs.row_major(),
                &self.gram,
                k,
                parameters,
                target,
            );
        }
    }
}

impl<T: Real> FelbRun<T> {
    /// V̂ ← Σ V_i, the release of a round.
    fn sum(&mut self) -> Result<()> {
        let FelbRun { comm, clients, parties, party_sum, releases, clamp, v, shared, iteration, .. } = self;
        for (client, v) in clients.iter().zip(&*v) {
            comm.knows(SUMMED, Some(client.party), v.dim(), v.row_major());
        }
        if let Some(releases) = releases {
            releases.open(*iteration, shared.row_major())?;
            if party_sum.is_masked() && releases.plan().mechanism() != Mechanism::Xor {
                let fill = |hosted: usize, out: &mut [u64]| {
                    releases.release_words(hosted, Some(v[hosted].row_major()), Some(shared.row_major()), out)
                };
                let total = party_sum.sum_noised_words(comm, SUM_V, shared.len(), fill);
                let known = if releases.is_relative() { T::from_f64(*parties as f64) } else { T::zero() };
                for (x, sum) in shared.row_major_mut().iter_mut().zip(total) {
                    *x = known * *x + T::from_f64(releases.decode(*sum));
                }
                return Ok(());
            }
            let (low, high) = if *clamp { (T::zero(), T::one()) } else { (T::neg_infinity(), T::infinity()) };
            let noised: Vec<_> = comm.work("noise", || {
                let noised = v.iter_mut().enumerate().map(|(hosted, v)| {
                    let release = releases.release(hosted, v.row_major_mut(), Some(shared.row_major()));
                    release.map(|x| x.max(low).min(high))
                });
                noised.collect()
            });
            return party_sum.sum_noised(comm, SUM_V, 1.0, &noised, shared.row_major_mut());
        }
        party_sum.sum(comm, SUM_V, 1.0, v.iter().map(Contiguous::row_major), shared.row_major_mut())
    }

    /// The largest distance of an entry of V̂ from {0, 1}.
    fn gap(&self) -> f64 {
        self.shared.iter().map(|x| x.as_f64().min(1.0 - x.as_f64())).fold(0.0, f64::max)
    }

    fn first_party(&self) -> usize {
        self.clients.first().map_or(0, |c| c.party)
    }

    /// Rounds V̂ and refits the Boolean U_i to it.
    fn round_off(&mut self) {
        let k = self.shared.ncols();
        // Noised components are all that may be released.
        let alone = self.iteration > 0 && self.parties == 1 && self.releases.is_none();
        let exact = self.clients.first().filter(|_| alone).and_then(|client| distinct::factors(&client.x, k, k));
        if let Some((u, v)) = exact {
            self.outcome.set(&self.clients, &Components::new(v), std::iter::once((u, None)));
            return;
        }
        let shared = Components::new(rounded(&self.shared.view()));
        let locals = self.u.iter().map(|u| (round_rows(u), None));
        self.outcome.set(&self.clients, &shared, locals);
    }
}

impl<T: Real> Algorithm<T> for FelbRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            if self.done() {
                break;
            }
            if self.plan.gamma.adapt(self.iteration, self.shared.row_major()) {
                start(self.seed, &self.rows, &mut self.u, &mut self.shared);
            }
            let round = self.iteration - self.plan.gamma.began();
            let lambda = (self.plan.lambda * self.plan.rate.powi(round as i32)).min(1e12);
            let gamma = self.plan.gamma.get();
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
        let mut all = self.outcome.measures(&mut self.party_sum, &self.comm, self.parties)?;
        all.push(("integrality_gap", self.gap()));
        dp::measure(self.releases.as_ref(), &mut self.party_sum, &self.comm, &mut all)?;
        Ok(all)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        self.outcome.factors(&self.clients)
    }

    fn state(&self) -> State<'_, T> {
        // On all ranks, so that each party has a digest of what is shared.
        let mut pieces = vec![Piece::shared("V", self.shared.nrows(), 0, self.shared.view())];
        pieces.extend(self.clients.iter().zip(&self.u).map(|(c, u)| Piece::private("U", c.party, u.view())));
        let state = State::from(pieces).with(Owner::Shared, &self.plan.gamma.state());
        dp::save(state, self.releases.as_ref(), self.first_party())
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        saved.rows("V", Owner::Shared, 0, self.shared.view_mut())?;
        for (client, u) in self.clients.iter().zip(&mut self.u) {
            saved.rows("U", Owner::Party(client.party), 0, u.view_mut())?;
        }
        self.plan.gamma.restore(saved.read(Owner::Shared)?);
        let first = self.first_party();
        dp::restore(saved, self.releases.as_mut(), first)?;
        self.iteration = iteration;
        Ok(())
    }

    fn private_releases(&self) -> Option<&Releases> {
        self.releases.as_ref()
    }

    fn private_releases_mut(&mut self) -> Option<&mut Releases> {
        self.releases.as_mut()
    }

    fn decisions(&self) -> Vec<Decision> {
        vec![Decision::Gamma(self.plan.gamma.get())]
    }
}
