//! The baselines of FELB (Dalleiger, Vreeken, Kamp: Federated Binary Matrix Factorization using Proximal Optimization, Alg.
//! 2). Every party factorises its own rows by a [`LocalMethod`]. The Boolean components are then merged, one by one, by
//! majority vote, rounded average or logical or. Only they are exchanged: k n entries per party. With `--parties 1` the
//! result is that of the local method on all data.

use std::fmt;

use ndarray::Array2;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::PartySum;
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::{Bits, Real};
use fednmf_privacy::{Bound, NoisePlan, Releases};

use super::{Client, Components, Counts, Outcome, clients, distinct};
use crate::boolean::result::Refit;
use crate::description::{Description, MessageSpec, Unit};
use crate::method::Method;
use crate::parameters::Parameters;
use crate::shared::disclosure::OpenedSums;
use crate::shared::dp;
use crate::shared::dp::{DpParams, Expected, Messages, Noise};
use crate::shared::secure_sum;
use crate::shared::secure_sum::SecureSumParams;
use crate::{Algorithm, Measures, Problem};

const VOTES: MessageTag = MessageTag::new("votes on components", Payload::SharedFactor);

const MESSAGES: &[MessageSpec] = &super::messages(VOTES, "at the end; each evaluation (with --dp only at the end)");

/// A factorisation of one party's rows, in progress.
pub trait LocalFactorization<T: Real> {
    /// One local iteration; `t` counts from 0.
    fn iterate(&mut self, x: &Client<T>, t: usize);

    /// The current Boolean U_i (rows × k) and components (k × n).
    fn boolean(&self, x: &Client<T>) -> (Bits, Bits);

    /// The matrices that a resumed run needs, by name.
    fn state(&self) -> Vec<(&'static str, &Array2<T>)>;
    fn state_mut(&mut self) -> Vec<(&'static str, &mut Array2<T>)>;

    /// Recomputes the values that follow from the state.
    fn restored(&mut self) {}
}

/// A method for one party's rows: the type of its parameters.
pub trait LocalMethod: Parameters + Default + Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// See [`describe`].
    const DESCRIPTION: &'static Description;

    type Local<T: Real>: LocalFactorization<T> + 'static;

    /// The factorisation of one party's rows before its first iteration.
    fn start<T: Real>(&self, client: &Client<T>, problem: &LocalProblem) -> Self::Local<T>;
}

/// The inputs of a party's factorisation other than its data.
#[derive(Debug, Clone, Copy)]
pub struct LocalProblem {
    /// Number of components.
    pub k: usize,
    pub seed: u64,
    /// The party's first row in the whole matrix.
    pub first_row: usize,
}

fednmf_base::parameters! {
    /// Parameters of a method `L` that each party runs on its own rows, followed by a vote on the components.
    pub struct Voted<L: LocalMethod> {
        group local: L;
        group vote: VoteParams;
    }
}

fednmf_base::words! {
    /// How the parties' components become shared ones.
    pub enum Aggregate {
        /// The mean, rounded: more than half of the parties
        Average = "average",
        /// Half of the parties suffice
        Vote = "vote",
        /// One party suffices
        Or = "or",
    }
}

fednmf_base::parameters! {
    /// Options of all methods with a vote.
    pub struct VoteParams {
        /// How the parties' Boolean components become shared ones
        pub aggregate: Aggregate = Aggregate::Vote, "HOW";
        /// Rows of U for the shared components
        pub refit: Refit = Refit::Greedy, "HOW";
        group dp: DpParams;
        group sum: SecureSumParams;
    }
}

impl<L: LocalMethod> Method for Voted<L> {
    const DESCRIPTION: &'static Description = L::DESCRIPTION;

    fn check(&self) -> Result<()> {
        self.vote.check()
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Some(OpenedSums::AtEvaluations)
    }

    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>> {
        let VoteParams { dp, sum, .. } = &self.vote;
        dp::plan(dp, sum.secure_sum, messages(run.max_iters, run.n * run.k), run.parties)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

impl VoteParams {
    /// Refuses noise and aggregations that are not defined for Boolean components.
    fn check(&self) -> Result<()> {
        let name = match self.dp.dp {
            Noise::None | Noise::Xor => None,
            Noise::Gaussian => Some("gaussian"),
            Noise::Laplace => Some("laplace"),
        };
        if let Some(name) = name {
            return Err(Error::input(format!(
                "--dp {name}: this method's components are Boolean, and with noise they would no longer be; use --dp xor"
            )));
        }
        if self.dp.is_on() && self.aggregate == Aggregate::Or {
            return Err(Error::input(
                "--aggregate or: with --dp xor nearly every entry is flipped to 1 by some party; use vote or average",
            ));
        }
        Ok(())
    }
}

/// The description of a method whose parties vote.
pub const fn describe(name: &'static str, summary: &'static str, paper: &'static str, unit: Unit) -> Description {
    super::describe(name, summary, paper, unit, MESSAGES)
}

impl Aggregate {
    /// Whether an entry with `votes` of `parties` votes is a one of the shared components.
    fn accepts(self, votes: f32, parties: usize) -> bool {
        match self {
            Aggregate::Average => 2.0 * votes > parties as f32,
            Aggregate::Vote => 2.0 * votes >= parties as f32,
            Aggregate::Or => votes > 0.0,
        }
    }
}

struct Vote<T: Real, L> {
    comm: PartyCommunicator,
    parties: usize,
    party_sum: PartySum,
    releases: Option<Releases>,
    aggregate: Aggregate,
    /// (k, n)
    shape: (usize, usize),
    /// The number of iterations after which all components are found; `None` if iterations refine all of them.
    max_iterations: Option<usize>,
    clients: Vec<Client<T>>,
    locals: Vec<L>,
    outcome: Outcome<T>,
    iteration: usize,
    /// The iteration of the last vote.
    voted_at: Option<usize>,
}

fn messages(max_iters: usize, length: usize) -> Messages {
    Messages { max_iters, once: true, length, natural: Some(Bound::Box), entry: 1.0, boolean: true }
}

fn build<T: Real, L: LocalMethod>(method: &Voted<L>, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, max_iters, parties, comm, .. } = problem;
    let VoteParams { aggregate, refit, dp, sum } = &method.vote;
    let comm = PartyCommunicator::new(comm);
    let (m, n) = (data.header.rows, data.header.cols);
    let releases = dp::releases(dp, sum.secure_sum, messages(max_iters, n * k), parties, &comm)?;
    let party_sum = secure_sum::party_sum(&comm, parties, sum, None)?;
    let rows = data.cuts.rows.clone();
    let clients = clients(data, parties, &comm)?;
    let start =
        |client: &Client<T>| method.local.start(client, &LocalProblem { k, seed, first_row: rows[client.party].start });
    let locals = clients.iter().map(start).collect();
    let outcome = Outcome::new(&clients, (m, n), k, *refit == Refit::Greedy);
    Ok(Box::new(Vote::<T, L::Local<T>> {
        comm,
        parties: parties.count,
        releases,
        party_sum,
        aggregate: *aggregate,
        shape: (k, n),
        max_iterations: (L::DESCRIPTION.unit == Unit::Component).then_some(k),
        clients,
        locals,
        outcome,
        iteration: 0,
        voted_at: None,
    }))
}

impl<T: Real, L: LocalFactorization<T>> Vote<T, L> {
    fn first_party(&self) -> usize {
        self.clients.first().map_or(0, |c| c.party)
    }

    /// Votes on the components and fits every U_i to them. Does nothing if the parties have voted in this iteration.
    fn vote(&mut self) -> Result<()> {
        if self.voted_at == Some(self.iteration) {
            return Ok(());
        }
        let (k, n) = self.shape;
        // Of several parties, components with the same number must agree.
        let found = self.max_iterations.map_or(if self.iteration > 0 { k } else { 0 }, |_| self.iteration.min(k));
        let exact = |client: &Client<T>| if self.parties == 1 { distinct::factors(&client.x, found, k) } else { None };
        let boolean = |(client, local): (&Client<T>, &L)| exact(client).unwrap_or_else(|| local.boolean(client));
        let locals: Vec<(Bits, Bits)> =
            self.comm.work("Boolean components", || self.clients.iter().zip(&self.locals).map(boolean).collect());
        let mut votes: Vec<Vec<f32>> = locals
            .iter()
            .map(|(_, v)| {
                let mut votes = vec![0.0; k * n];
                (0..k).for_each(|c| v.ones(c).for_each(|j| votes[c * n + j] = 1.0));
                votes
            })
            .collect();
        let mut sum = vec![0.0f32; k * n];
        match &mut self.releases {
            Some(releases) => {
                releases.open::<f32>(self.iteration, &[])?;
                let votes = votes.iter_mut().enumerate();
                let noised: Vec<_> = votes.map(|(hosted, votes)| releases.release(hosted, votes, None)).collect();
                self.party_sum.sum_noised(&self.comm, VOTES, 1.0, &noised, &mut sum)?;
            }
            None => self.party_sum.sum(&self.comm, VOTES, 1.0, votes.iter().map(Vec::as_slice), &mut sum)?,
        }
        let mut shared = Bits::zeros(k, n);
        for (at, _) in sum.iter().enumerate().filter(|(_, votes)| self.aggregate.accepts(**votes, self.parties)) {
            shared.set(at / n, at % n);
        }
        let locals: Vec<(Bits, Option<Counts>)> = locals
            .into_iter()
            .zip(&self.clients)
            .map(|((u, v), client)| {
                let counts = Components::new(v).fit(&client.x, &u, None);
                (u, Some(counts))
            })
            .collect();
        let shared = Components::new(shared);
        self.comm.work("refit", || self.outcome.set(&self.clients, &shared, locals.into_iter()));
        self.voted_at = Some(self.iteration);
        Ok(())
    }
}

impl<T: Real, L: LocalFactorization<T>> Algorithm<T> for Vote<T, L> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            if self.done() {
                break;
            }
            let t = self.iteration;
            self.comm.work("local iteration", || {
                self.clients.iter().zip(&mut self.locals).for_each(|(client, local)| local.iterate(client, t));
            });
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn done(&self) -> bool {
        self.max_iterations.is_some_and(|max| self.iteration >= max)
    }

    fn conclude(&mut self) -> Result<()> {
        self.vote()
    }

    fn measure(&mut self) -> Result<Measures> {
        // Under differential privacy there is only one release, at the end; nothing is shared before it.
        if self.releases.is_none() {
            self.vote()?;
        }
        let mut all = self.outcome.measures(&mut self.party_sum, &self.comm, self.parties)?;
        dp::measure(self.releases.as_ref(), &mut self.party_sum, &self.comm, &mut all)?;
        Ok(all)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        self.outcome.factors(&self.clients)
    }

    fn state(&self) -> State<'_, T> {
        let all = self.clients.iter().zip(&self.locals);
        let own = all.flat_map(|(c, l)| l.state().into_iter().map(|(name, a)| Piece::private(name, c.party, a.view())));
        dp::save(own.collect::<Vec<_>>().into(), self.releases.as_ref(), self.first_party())
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (client, local) in self.clients.iter().zip(&mut self.locals) {
            for (name, values) in local.state_mut() {
                saved.rows(name, Owner::Party(client.party), 0, values.view_mut())?;
            }
            local.restored();
        }
        let first = self.first_party();
        dp::restore(saved, self.releases.as_mut(), first)?;
        self.iteration = iteration;
        self.voted_at = None;
        Ok(())
    }

    fn private_releases(&self) -> Option<&Releases> {
        self.releases.as_ref()
    }

    fn private_releases_mut(&mut self) -> Option<&mut Releases> {
        self.releases.as_mut()
    }
}
