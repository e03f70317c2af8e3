//! Asyn-SD and Asyn-SSD-V (Qian et al. 2022, Alg. 6 and 7). A server holds U. A party takes a copy, runs `--local-iters`
//! steps on its own columns, and returns the copy U_r. The server merges it, U ← (1 − ω_t) U + ω_t U_r with ω_t = ρ/(ρ +
//! t), and the party continues with the result. No party waits for a slower one; parties with more data report less often.
//!
//! One of three clocks decides which party is merged next:
//!
//! * virtual (`schedule`): a turn takes time in proportion to its multiplications, counted from public numbers. So
//!   the order of merges, and every bit of the result, is the same on any number of ranks. Ranks work in parallel: a
//!   rank executes its own parties' turns and waits only for the server's answers;
//! * real (`real_clock`): parties are merged in order of arrival, which differs between runs and can be recorded;
//! * a recorded order (`--replay`), executed like the virtual clock. What a party computes in a turn depends only on
//!   the U that it received and on the number of the turn, so the replayed run has the bits of the recorded one.
//!
//! t counts from 1: with t = 0 the first party would replace the server's U. The server sees every U_r, so there is no
//! sum to mask.

mod real_clock;
mod schedule;

use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::PartySum;
use fednmf_comm::{Loss, MessageTag, Parties, Parts, PartyCommunicator, Payload};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::Real;
use fednmf_privacy::{Declared, DeclaredMut};

use self::real_clock::{Live, TURNS};
use self::schedule::{Schedule, replay};
use super::{PAPER, PublicInfo, Refitted, fit, hosted_parties, pieces, relative_error, start_u};
use crate::decision::Decision;
use crate::description::{Description, DifferentialPrivacy, LARGEST_TERM, MessageSpec, Partition, Unit};
use crate::federated::columns::local::{
    Draws, LocalParams, LocalParty, NoGroup, OptionalGroup, Scratch, UpdateOrder, sketch_sizes,
};
use crate::method::Method;
use crate::metrics;
use crate::parameters::{Auto, OrNone, auto, number};
use crate::shared::sketched_step::{SketchParams, SketchedStep};
use crate::{Algorithm, Asynchronous, Measures, Problem};

const TO_SERVER: MessageTag = MessageTag::new("a party's U_r to the server", Payload::SharedFactor);
const FROM_SERVER: MessageTag = MessageTag::new("the server's U to a party", Payload::SharedFactor);
const SHOW_U: MessageTag = MessageTag::of_evaluation("evaluation: the server's U", Payload::SharedFactor);
const LEFT: MessageTag = MessageTag::new("norm of the columns that are left", Payload::Scalar);
const LAST_U: MessageTag = MessageTag::new("the server's last U", Payload::SharedFactor);

const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(TO_SERVER, "m x k", "each merge").to_one(),
    MessageSpec::new(FROM_SERVER, "m x k", "each merge").to_one(),
    MessageSpec::new(SHOW_U, "m x k", "each evaluation"),
    MessageSpec::new(LAST_U, "m x k", "once, at the end"),
    MessageSpec::new(metrics::RESIDUAL, "1; once 2 with penalties", "twice each evaluation"),
    MessageSpec::new(LEFT, "1", "after a loss, with --clock real").after_loss(),
    MessageSpec::control(TURNS, "a kind and a party", "each turn, with --clock real"),
    LARGEST_TERM,
];

fednmf_base::words! {
    /// What decides the order of merges.
    pub enum Clock {
        /// Counted work: the same result in every run and on any number of ranks
        Virtual = "virtual",
        /// Order of arrival; rank 0 is the server, and hosts no party where there are more ranks than parties
        Real = "real",
    }
}

fednmf_base::parameters! {
    /// The order of merges.
    pub struct ClockParams {
        /// What decides the order of merges
        pub clock: Clock = Clock::Virtual, "KIND";
        /// Write the order of merges to this file, one party per line, for --replay
        #[affects_result = false]
        pub record_order: OrNone<PathBuf> = OrNone::None, "F|none";
        /// Merge in the order that --record-order wrote: U and V are those of that run, bit for bit, on any number of ranks
        #[affects_result = false]
        pub replay: OrNone<PathBuf> = OrNone::None, "F|none";
        /// With --clock real, seconds without a message after which a rank that works on a turn counts as lost
        #[needs(clock: "parties are waited for with --clock real; add it")]
        #[affects_result = false]
        pub party_timeout: f64 = 600.0, "S", number(0.001, 1e9);
    }
}

impl ClockParams {
    /// Whether parties take their turns in real time.
    pub fn is_real(&self) -> bool {
        self.clock == Clock::Real
    }

    /// Where the order of merges is to be written.
    pub fn order_file(&self) -> Option<&Path> {
        self.record_order.as_ref().map(PathBuf::as_path)
    }

    /// The file with the order of merges to replay.
    pub fn replayed_file(&self) -> Option<&Path> {
        self.replay.as_ref().map(PathBuf::as_path)
    }
}

fednmf_base::parameters! {
    /// Parameters that both variants share.
    pub struct AsynParams {
        group local: LocalParams;
        /// Relaxation: merge number t weights a party's U by rho/(rho+t). auto: the number of parties
        pub rho: Auto<f64> = Auto::Auto, "X", auto(number(0.0, f64::INFINITY));
        group clock: ClockParams;
    }
}

impl AsynParams {
    fn check(&self) -> Result<()> {
        if self.clock.clock == Clock::Real && self.clock.replay.as_ref().is_some() {
            return Err(Error::input("--replay: the order is the recorded one; omit --clock real"));
        }
        Ok(())
    }
}

fednmf_base::parameters! {
    /// Parameters of a variant: Asyn-SSD-V sketches U's steps (`S` is [`SketchParams`]), Asyn-SD does not ([`NoGroup`]).
    pub struct AsynVariant<S: Variant> {
        group asyn: AsynParams;
        group sketch: S;
    }
}

/// The differences between the variants.
pub trait Variant: OptionalGroup<SketchParams> {
    const DESCRIPTION: &'static Description;
}

pub type AsynSd = AsynVariant<NoGroup>;
pub type AsynSsdV = AsynVariant<SketchParams>;

impl Variant for NoGroup {
    const DESCRIPTION: &'static Description =
        &describe("asyn-sd", "as syn-sd with a server that merges copies of U as they arrive: nobody waits");
}

impl Variant for SketchParams {
    const DESCRIPTION: &'static Description =
        &describe("asyn-ssd-v", "as asyn-sd; U's steps see a sketch of the party's own columns");
}

const fn describe(name: &'static str, summary: &'static str) -> Description {
    Description {
        name,
        summary,
        paper: PAPER,
        partition: Partition::PartyColumns,
        unit: Unit::Merge,
        dp: DifferentialPrivacy::Refused(
            "each party releases U at its own pace, so a budget has no common rounds; use syn-sd",
        ),
        limits: Some([
            "The server sees each party's U_r after every turn; there is no sum that could be masked.",
            "The order of merges shows which parties are slow or have much data. No noise is added.",
        ]),
        messages: MESSAGES,
        ..Description::USUAL
    }
}

impl<S: Variant> Method for AsynVariant<S> {
    const DESCRIPTION: &'static Description = S::DESCRIPTION;

    fn check(&self) -> Result<()> {
        self.asyn.check()?;
        self.sketch.group().map_or(Ok(()), |args| self.asyn.local.check_sketch(args.sketch))
    }

    fn sends(&self, kind: &str) -> bool {
        self.asyn.clock.is_real() || ![TURNS.kind, LEFT.kind].contains(&kind)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(&self.asyn, self.sketch.group(), problem)
    }
}

/// The rank that the server runs on.
const SERVER: usize = 0;

struct Asyn<T: Real> {
    comm: PartyCommunicator,
    /// All ranks, or the survivors after a loss.
    survivors: PartyCommunicator,
    parties: Parties,
    /// For each rank, whether it hosts a party with data.
    busy: Vec<bool>,
    party_sum: PartySum,
    public: PublicInfo,
    draws: Draws,
    step: SketchedStep,
    local_iters: usize,
    v_first: bool,
    rho: f64,
    /// The order of merges, if it is known in advance.
    schedule: Option<Schedule>,
    /// The state of a run whose order of merges is not known in advance.
    live: Option<Live>,
    /// The parties whose turns have been merged, on rank 0; `None` if the order is not needed.
    order: Option<Vec<usize>>,
    members: Vec<LocalParty<T>>,
    scratch: Scratch<T>,
    /// The server's U; on other ranks, the copy received at the last evaluation.
    u: Array2<T>,
    /// Whether every rank has the server's U.
    shown: bool,
    /// Buffer for a copy of U that is sent or received.
    sent: Vec<T>,
    refitted: Refitted<T>,
    iteration: usize,
}

fn build<T: Real>(
    args: &AsynParams,
    sketch: Option<&SketchParams>,
    problem: Problem<'_, T>,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, continue_on_loss, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let public = PublicInfo::of(&data, k, Some(&args.local.regularization));
    let u = start_u(&public, seed);
    let (d_u, _) =
        sketch_sizes(sketch.and_then(|args| args.sketch_size.given()), &public).map_err(Error::on_all_ranks)?;
    let (m, n) = (public.m as f64, public.n as f64);
    // Multiplications of a step: two products with the data, two Gram matrices and two sweeps.
    let density = if data.header.sparse { data.statistics.nonzeros as f64 / (m * n) } else { 1.0 };
    let cost = data.cuts.cols.iter().map(|cols| {
        let columns = cols.len() as f64;
        let seen = if sketch.is_some() { d_u(cols.len()) as f64 } else { columns };
        let step = m * (columns + seen) * density + 2.0 * (m + columns) * k as f64;
        (columns > 0.0).then_some((step * k as f64) as u64 + 1)
    });
    let busy = |rank: usize| parties.hosted(rank).any(|party| !data.cuts.cols[party].is_empty());
    let busy = (0..parties.ranks).map(busy).collect();
    let cost = cost.collect();
    let ClockParams { clock, record_order, replay: recorded, party_timeout } = &args.clock;
    let real = *clock == Clock::Real;
    let replay = match recorded.as_ref() {
        Some(path) => Some(replay(&comm, path, parties)?),
        None => None,
    };
    let kept = real || replay.is_some() || record_order.as_ref().is_some();
    let schedule = if real { None } else { Some(replay.unwrap_or_else(|| Schedule::of_time(cost))) };
    let mine = hosted_parties(data, &public, args.local.missing.missing, seed, (&comm, parties))?;
    let own = sketch.map(|args| (args.sketch, &d_u as &dyn Fn(usize) -> usize));
    let member = |party| LocalParty::new(party, &u, &public, own);
    Ok(Box::new(Asyn {
        party_sum: PartySum::plain(&comm, parties),
        draws: Draws { seed, parties: parties.count },
        step: SketchedStep::new(&args.local.step),
        local_iters: args.local.local_iters,
        v_first: args.local.order == UpdateOrder::VFirst,
        rho: args.rho.given().unwrap_or(parties.count as f64),
        schedule,
        live: real.then(|| Live::new(*party_timeout, continue_on_loss, parties, comm.rank())),
        order: kept.then(Vec::new),
        busy,
        members: mine.into_iter().map(member).collect(),
        scratch: Scratch::new(&public),
        sent: u.entries().to_vec(),
        u,
        shown: true,
        refitted: Refitted::default(),
        iteration: 0,
        public,
        parties,
        survivors: comm.clone(),
        comm,
    }))
}

/// The state of the merges in a checkpoint.
#[derive(Serialize, Deserialize)]
struct MergeHistory {
    /// The parties in the order of their merges.
    order: Vec<usize>,
}

/// The checkpointed state of a party in real time.
#[derive(Serialize, Deserialize)]
struct TurnState {
    /// Local steps done in the current turn.
    steps: usize,
}

/// Records a transfer between the server and a party on its own rank, which needs no message.
fn record_local_transfer<T: Real>(comm: &PartyCommunicator, tag: MessageTag, elements: &[T]) {
    comm.record_upload(tag, [Declared(elements); 2].into_iter());
}

impl<T: Real> Asyn<T> {
    /// The next merge of a known order, on the ranks of server and party. Returns whether there is one.
    fn merge(&mut self) -> bool {
        let Some((party, turn)) = self.schedule.as_mut().and_then(Schedule::next) else { return false };
        let (here, host) = (self.comm.rank(), self.parties.host(party));
        let Asyn { comm, parties, members, draws, step, scratch, sent, local_iters, v_first, .. } = self;
        let local = (here == host).then(|| party - parties.hosted(here).start);
        if let Some(i) = local {
            let member = &mut members[i];
            comm.work("turn", || {
                for t in turn * *local_iters..(turn + 1) * *local_iters {
                    member.local_step(*v_first, step, t, draws, scratch);
                }
            });
            sent.copy_from_slice(member.u.entries());
        }
        if here != host && here != SERVER {
            self.iteration += 1;
            return true;
        }
        comm.transfer(TO_SERVER, host, SERVER, &mut DeclaredMut(sent));
        if here == SERVER {
            self.blend(party);
        } else {
            self.iteration += 1;
        }
        self.comm.transfer(FROM_SERVER, SERVER, host, &mut DeclaredMut(&mut self.sent));
        if let Some(i) = local {
            self.members[i].u.entries_mut().copy_from_slice(&self.sent);
        }
        true
    }

    /// At the server: merges `sent` as number t = 1, 2, …; `sent` becomes the merged U.
    fn blend(&mut self, party: usize) {
        self.iteration += 1;
        let omega = T::from_f64(self.rho / (self.rho + self.iteration as f64));
        let Asyn { comm, u, sent, order, .. } = self;
        comm.work("merge", || {
            for (u, new) in u.entries_mut().iter_mut().zip(sent) {
                *u = (T::one() - omega) * *u + omega * *new;
                *new = *u;
            }
        });
        if let Some(order) = order {
            order.push(party);
        }
    }

    /// After a loss, makes errors relative to the columns of the remaining parties. Collective among the survivors.
    fn restrict_norm_to_survivors(&mut self) -> Result<()> {
        let each: Vec<[f64; 1]> = self.members.iter().map(|x| [x.party.block.norm2()]).collect();
        let mut sum = [0.0];
        let shares = each.iter().map(<[f64; 1]>::as_slice);
        self.party_sum.sum(&self.survivors, LEFT, self.public.norm2, shares, &mut sum)?;
        self.public.norm2 = sum[0];
        Ok(())
    }

    /// Broadcasts the server's U. Collective among the survivors.
    fn show_u(&mut self, tag: MessageTag) {
        let PublicInfo { m, k, .. } = self.public;
        let rows: Vec<_> = (0..self.survivors.size()).map(|r| if r == SERVER { 0..m } else { m..m }).collect();
        let own = if self.comm.rank() == SERVER { self.u.entries() } else { &[] };
        let mut all = self.public.order.zeros(m, k);
        let hosted = self.members.len();
        self.survivors.gather(tag, hosted, Declared(own), &Parts::new(&rows, k), all.entries_mut());
        self.u = all;
        self.shown = true;
        self.refitted.forget();
    }
}

impl<T: Real> Asyn<T> {
    /// Restores the order of `merges` and the parties' progress within their turns.
    fn restore_order(&mut self, saved: &dyn SavedState<T>, merges: usize) -> Result<()> {
        let known = self.schedule.as_mut().map(|schedule| schedule.skip_to(merges));
        let stored = || -> Result<Vec<usize>> {
            let MergeHistory { order } = saved.read(Owner::Shared)?;
            Ok(order)
        };
        let order = match known {
            // Virtual time has a single order, which a checkpoint need not hold.
            Some(known) if !self.schedule.as_ref().is_some_and(Schedule::is_recorded) => known,
            Some(known) if known == stored()? => known,
            Some(_) => return Err(Error::input("--replay: the checkpoint is of a run with another order of merges")),
            None => stored()?,
        };
        if let Some(Live { turns, .. }) = &mut self.live {
            for (turn, member) in turns.iter_mut().zip(&self.members) {
                let party = member.party.index;
                let TurnState { steps } = saved.read(Owner::Party(party))?;
                turn.number = order.iter().filter(|&&merged| merged == party).count();
                turn.steps = steps.min(self.local_iters);
            }
        }
        if let Some(recorded) = &mut self.order {
            *recorded = order;
        }
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for Asyn<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        if self.live.is_some() {
            self.live(n)?;
        } else {
            (0..n).take_while(|_| self.merge()).for_each(drop);
        }
        self.shown = false;
        self.refitted.forget();
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        if !self.shown {
            self.show_u(SHOW_U);
        }
        let Asyn { survivors: comm, party_sum, public, members, u, refitted, live, .. } = self;
        let each = || members.iter().map(|x| &x.party);
        let fitted = each().zip(refitted.get(each(), &u.view(), public));
        let mut all = fit(comm, party_sum, public, fitted, &u.view())?;
        if live.is_some() {
            // The parties are in the middle of a turn, so their V does not match any result.
            return Ok(all);
        }
        let unfitted = relative_error(comm, party_sum, public.norm2, each().map(|p| (p, &*p.v)), &u.view())?;
        all.push(("rel_error_unfitted", unfitted));
        Ok(all)
    }

    fn conclude(&mut self) -> Result<()> {
        // The parties fit their V to the final U.
        if !self.shown {
            self.show_u(LAST_U);
        }
        Ok(())
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let parts = || self.members.iter().map(|x| &x.party);
        pieces(&self.u, parts().zip(self.refitted.get(parts(), &self.u.view(), &self.public)))
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(pieces(&self.u, self.members.iter().map(|x| (&x.party, &*x.party.v))));
        state.matrices.extend(self.members.iter().map(|x| Piece::private("U_r", x.party.index, x.u.view())));
        if let Some(live) = &self.live {
            let turns = self.members.iter().zip(&live.turns);
            state = turns.fold(state, |state, (x, turn)| {
                state.with(Owner::Party(x.party.index), &TurnState { steps: turn.steps })
            });
        }
        match &self.order {
            Some(order) => state.with(Owner::Shared, &MergeHistory { order: order.clone() }),
            None => state,
        }
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        crate::federated::columns::restore(saved, &mut self.u, self.members.iter_mut().map(|x| &mut x.party))?;
        for LocalParty { party, u, .. } in &mut self.members {
            saved.rows("U_r", Owner::Party(party.index), 0, u.view_mut())?;
        }
        self.restore_order(saved, iteration)?;
        self.shown = false;
        self.refitted.forget();
        self.iteration = iteration;
        Ok(())
    }

    fn done(&self) -> bool {
        self.schedule.as_ref().is_some_and(Schedule::is_over)
    }

    fn asynchronous(&self) -> Option<&dyn Asynchronous> {
        Some(self)
    }

    fn decisions(&self) -> Vec<Decision> {
        vec![Decision::MergeWeight(self.rho), Decision::ProximalWeight(self.step.alpha())]
    }
}

impl<T: Real> Asynchronous for Asyn<T> {
    fn order(&self) -> &[usize] {
        self.order.as_deref().unwrap_or_default()
    }

    fn survivors(&self) -> Option<&PartyCommunicator> {
        self.live.as_ref().and_then(Live::left).map(|_| &self.survivors)
    }

    fn losses(&self) -> Vec<(usize, Loss)> {
        self.live.as_ref().map_or_else(Vec::new, |live| live.losses(self.parties))
    }
}
