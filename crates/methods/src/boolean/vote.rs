//! Common skeleton of FELB's baselines (its paper's Alg. 2): every party factorises its own rows by itself, then the Boolean
//! components are merged by majority vote, rounded average or logical or, component by component. Nothing else is
//! exchanged: k n entries per party. With `--parties 1` it is the method itself on all the data.

use ndarray::Array2;

use fednmf_base::error::{Error, Result};
use fednmf_comm::party_sum::{KEYS, PartySum, masked};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::{Bits, Real};
use fednmf_privacy::{Bound, Releases};

use super::{COUNTS, Client, Components, Counts, Outcome, clients};
use crate::boolean::result::Refit;
use crate::description::{
    Description, DifferentialPrivacy, Form, LARGEST_TERM, MessageSpec, Partition, ProtectedUnit, Unit,
};
use crate::metrics::Measure;
use crate::shared::dp;
use crate::shared::dp::{DpParams, Messages, Noise};
use crate::shared::secure_sum;
use crate::shared::secure_sum::SecureSumParams;
use crate::{Algorithm, Measures, Problem};

const VOTES: MessageTag = MessageTag::new("votes on components", Payload::SharedFactor);

pub const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(VOTES, "n x k for each party", "at the end; each evaluation (with --dp at the end alone)"),
    MessageSpec::new(masked(VOTES), "n x k for each party", "the same, with --secure-sum"),
    MessageSpec::new(COUNTS, "9 for each party", "each evaluation"),
    MessageSpec::new(masked(COUNTS), "9 for each party", "the same, with --secure-sum"),
    dp::MESSAGES,
    dp::MESSAGES_MASKED,
    LARGEST_TERM,
    MessageSpec::new(KEYS, "32 bytes", "once, with --secure-sum"),
];

/// A factorisation of one party's rows.
pub trait Local<T: Real> {
    /// One local iteration; `t` counts from 0.
    fn iterate(&mut self, x: &Client<T>, t: usize);

    /// The present Boolean U_i (rows × k) and components (k × n).
    fn boolean(&self, x: &Client<T>) -> (Bits, Bits);

    /// The matrices that a later resume needs, by name.
    fn state(&self) -> Vec<(&'static str, &Array2<T>)>;
    fn state_mut(&mut self) -> Vec<(&'static str, &mut Array2<T>)>;

    /// Recomputes the values that follow from the state.
    fn restored(&mut self) {}
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

impl VoteParams {
    /// # Errors
    /// Naming the option that is wrong.
    pub fn check(&self) -> Result<()> {
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

/// The description of a method with a vote.
pub const fn describe(name: &'static str, summary: &'static str, paper: &'static str, unit: Unit) -> Description {
    Description {
        name,
        aliases: &[],
        summary,
        paper,
        partition: Partition::PartyRows,
        unit,
        forms: &[Form::Dense, Form::Sparse, Form::Bits],
        allows_negative: false,
        measure: Measure::F1,
        dp: DifferentialPrivacy::Offered(ProtectedUnit::Party),
        limits: Some(super::LIMITS),
        messages: MESSAGES,
    }
}

impl Aggregate {
    /// Whether an entry that `votes` of `parties` have is one of the shared components.
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
    /// Maximum useful number of iterations, independent of the data.
    most: Option<usize>,
    clients: Vec<Client<T>>,
    locals: Vec<L>,
    outcome: Outcome<T>,
    iteration: usize,
    /// The iteration whose components were last made shared ones.
    concluded: Option<usize>,
}

/// Puts a method together that has nothing left to do after `most` iterations; `local` is made for each hosted party with
/// its first row of all.
///
/// # Errors
/// When the data is not Boolean.
pub fn build<T: Real, L: Local<T> + 'static>(
    problem: Problem<'_, T>,
    args: &VoteParams,
    most: Option<usize>,
    mut local: impl FnMut(&Client<T>, usize) -> L,
) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, max_iters, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let (m, n) = (data.header.rows, data.header.cols);
    let messages =
        Messages { max_iters, once: true, length: n * k, natural: Some(Bound::Box), entry: 1.0, boolean: true };
    let releases = dp::releases(&args.dp, args.sum.secure_sum, messages, parties, &comm)?;
    let party_sum = secure_sum::party_sum(&comm, parties, &args.sum, None)?;
    let rows = data.cuts.rows.clone();
    let clients = clients(data, parties, &comm)?;
    let locals = clients.iter().map(|c| local(c, rows[c.party].start)).collect();
    let outcome = Outcome::new(&clients, (m, n), k, args.refit == Refit::Greedy);
    let (parties, shape) = (parties.count, (k, n));
    Ok(Box::new(Vote {
        comm,
        parties,
        releases,
        party_sum,
        aggregate: args.aggregate,
        shape,
        most,
        clients,
        locals,
        outcome,
        iteration: 0,
        concluded: None,
    }))
}

impl<T: Real, L: Local<T>> Vote<T, L> {
    fn first_party(&self) -> usize {
        self.clients.first().map_or(0, |c| c.party)
    }

    /// Votes on the components and fits every U_i to them.
    fn vote(&mut self) -> Result<()> {
        if self.concluded == Some(self.iteration) {
            return Ok(());
        }
        let (k, n) = self.shape;
        let boolean = |(client, local): (&Client<T>, &L)| local.boolean(client);
        let own: Vec<(Bits, Bits)> =
            self.comm.work("Boolean components", || self.clients.iter().zip(&self.locals).map(boolean).collect());
        let mut votes: Vec<Vec<f32>> = own
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
                releases.open()?;
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
        let locals: Vec<(Bits, Option<Counts>)> = own
            .into_iter()
            .zip(&self.clients)
            .map(|((u, v), client)| {
                let counts = Components::new(v).fit(&client.x, &u, None);
                (u, Some(counts))
            })
            .collect();
        let shared = Components::new(shared);
        self.comm.work("refit", || self.outcome.set(&self.clients, &shared, locals.into_iter()));
        self.concluded = Some(self.iteration);
        Ok(())
    }
}

impl<T: Real, L: Local<T>> Algorithm<T> for Vote<T, L> {
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
        self.most.is_some_and(|most| self.iteration >= most)
    }

    fn conclude(&mut self) -> Result<()> {
        self.vote()
    }

    fn measure(&mut self) -> Result<Measures> {
        // Under differential privacy there is one release, at the end: until then nothing is shared.
        if self.releases.is_none() {
            self.vote()?;
        }
        let mut all = self.outcome.measures(&mut self.party_sum, &self.comm, self.parties)?;
        dp::measure(self.releases.as_ref(), &mut self.party_sum, &self.comm, &mut all)?;
        Ok(all)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        self.outcome.factors(&self.clients, &self.comm)
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
        self.concluded = None;
        Ok(())
    }

    fn private_releases(&self) -> Option<&Releases> {
        self.releases.as_ref()
    }
}
