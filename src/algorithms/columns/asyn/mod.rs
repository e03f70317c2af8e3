//! Asyn-SD and Asyn-SSD-V (Qian et al., Alg. 6 and 7): a server holds U; a party takes a copy, does `--local-iters` steps
//! on its own columns, and hands the copy back. The server merges it, U ← (1 − ω_t) U + ω_t U_r with ω_t = ρ/(ρ + t), and
//! the party goes on with the result. Nobody waits for a slower party; those with more data report less often.
//!
//! Three clocks decide which party is merged next:
//!
//! * virtual ([`schedule`]): a turn of a party takes as long as its multiplications are many, counted from public numbers.
//!   So the order of merges, and every bit of the result, is the same on any number of ranks. Ranks do work side by side:
//!   a rank goes through its own parties' turns and waits for the server's answers alone;
//! * real ([`live`]): who reports first is merged first. No two such runs are alike, but the order is kept;
//! * a recorded order (`--replay`), which goes the way of the virtual clock. What a party computes in a turn depends on the
//!   U that it got and on the number of the turn, never on when: so the replayed run has the bits of the recorded one.
//!
//! t counts from 1: with t = 0 the first party would replace the server's U. The server sees every U_r, so there is no
//! sum to be masked here.

mod live;
mod schedule;

use ndarray::{Array2, ArrayView2};

use self::live::Live;
use self::schedule::{Schedule, replay};
use super::{FORMS, Facts, PAPER, Refitted, entries, entries_mut, parties, pieces, private, relative_error, start_u};
use crate::algorithms::columns::local::{Draws, Member, Scratch, sketch_sizes};
use crate::algorithms::options::{
    CLOCK, LOCAL_ITERS, ORDER, PARTY_TIMEOUT, RECORD_ORDER, REPLAY, RHO, SKETCH, SKETCH_SIZE, Taken,
};
use crate::algorithms::registry::{LARGEST_TERM, MessageSpec, Method, Partition, Unit};
use crate::algorithms::shared::sketched_step;
use crate::algorithms::shared::sketched_step::Step;
use crate::algorithms::{Algorithm, Measures, Owner, Piece, Problem, Restore};
use crate::comm::{Communicator, MessageTag, Parties, Parts, Payload};
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::metrics;
use crate::privacy::Summer;

const TO_SERVER: MessageTag = MessageTag::new("a party's U_r to the server", Payload::SharedFactor);
const FROM_SERVER: MessageTag = MessageTag::new("the server's U to a party", Payload::SharedFactor);
const SHOW_U: MessageTag = MessageTag::new("evaluation: the server's U", Payload::SharedFactor);
const LEFT: MessageTag = MessageTag::new("norm of the columns that are left", Payload::Scalar);
const LAST_U: MessageTag = MessageTag::new("the server's last U", Payload::SharedFactor);

static MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(TO_SERVER, "m x k", "each merge"),
    MessageSpec::new(FROM_SERVER, "m x k", "each merge"),
    MessageSpec::new(SHOW_U, "m x k", "each evaluation"),
    MessageSpec::new(LAST_U, "m x k", "once, at the end"),
    MessageSpec::new(metrics::RESIDUAL, "1", "twice each evaluation"),
    MessageSpec::new(LEFT, "1", "after a loss, with --clock real"),
    LARGEST_TERM,
];

const STEP: [Taken; 4] = sketched_step::OPTIONS;
const CLOCKS: [Taken; 4] = [CLOCK.or("virtual"), RECORD_ORDER.or("none"), REPLAY.or("none"), PARTY_TIMEOUT.or("600")];

pub static SD: Method = Method {
    name: "asyn-sd",
    aliases: &[],
    summary: "as syn-sd with a server that merges a party's U whenever it comes: nobody waits for the slowest",
    paper: PAPER,
    partition: Partition::PartyColumns,
    unit: Unit::Merge,
    forms: FORMS,
    allows_negative: false,
    options: &[
        LOCAL_ITERS.or("10"),
        ORDER.or("v-first"),
        RHO.or("auto"),
        CLOCKS[0],
        CLOCKS[1],
        CLOCKS[2],
        CLOCKS[3],
        STEP[0],
        STEP[1],
        STEP[2],
        STEP[3],
    ],
    messages: MESSAGES,
    build64: build::<f64, false>,
    build32: build::<f32, false>,
};
pub static SSD_V: Method = Method {
    name: "asyn-ssd-v",
    summary: "as asyn-sd; U's steps see a sketch of the party's own columns",
    options: &[
        LOCAL_ITERS.or("10"),
        ORDER.or("v-first"),
        RHO.or("auto"),
        CLOCKS[0],
        CLOCKS[1],
        CLOCKS[2],
        CLOCKS[3],
        SKETCH.or("subsample"),
        SKETCH_SIZE.or("auto"),
        STEP[0],
        STEP[1],
        STEP[2],
        STEP[3],
    ],
    build64: build::<f64, true>,
    build32: build::<f32, true>,
    ..SD
};

/// The rank that the server runs on.
const SERVER: usize = 0;

struct Asyn<T: Real> {
    comm: Communicator,
    /// Those who meet: all, or those that are left.
    meeting: Communicator,
    who: Parties,
    /// By rank: whether it hosts a party with data.
    busy: Vec<bool>,
    summer: Summer,
    facts: Facts,
    draws: Draws,
    step: Step,
    local_iters: usize,
    v_first: bool,
    rho: f64,
    /// The order of merges, where it is known beforehand.
    schedule: Option<Schedule>,
    /// Where it is not.
    live: Option<Live>,
    /// The merges so far, by party, as rank 0 keeps them where they are asked for.
    order: Option<Vec<T>>,
    members: Vec<Member<T>>,
    scratch: Scratch<T>,
    /// The server's U; elsewhere what the last evaluation showed.
    u: Array2<T>,
    /// Whether every rank has the server's U.
    shown: bool,
    /// What is on its way: as many entries as U has.
    sent: Vec<T>,
    /// Each hosted party's steps in its present turn, 1 × 1, for a checkpoint.
    steps: Vec<Array2<T>>,
    refitted: Refitted<T>,
    iteration: usize,
}

fn build<T: Real, const SKETCHED: bool>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, options, parties: who, comm, carry_on, .. } = problem;
    let facts = Facts::of(&data, k);
    let u = start_u(&facts, seed);
    let kind = if SKETCHED { options.word(&SKETCH) } else { "" };
    let (d_u, _) = sketch_sizes(if SKETCHED { options.sizes(&SKETCH_SIZE) } else { None }, &facts)?;
    let (m, n) = (facts.m as f64, facts.n as f64);
    // Multiplications of a step: two products with the data, two Gram matrices and two sweeps.
    let density = if data.header.sparse { data.statistics.nonzeros as f64 / (m * n) } else { 1.0 };
    let cost = data.cuts.cols.iter().map(|cols| {
        let columns = cols.len() as f64;
        let seen = if SKETCHED { d_u(cols.len()) as f64 } else { columns };
        let step = m * (columns + seen) * density + 2.0 * (m + columns) * k as f64;
        (columns > 0.0).then_some((step * k as f64) as u64 + 1)
    });
    let busy = |rank: usize| who.hosted(rank).any(|party| !data.cuts.cols[party].is_empty());
    let busy = (0..who.ranks).map(busy).collect();
    let cost = cost.collect();
    let real = options.word(&CLOCK) == "real";
    let replay = replay(&comm, options, who)?;
    let kept = real || replay.is_some() || options.file(&RECORD_ORDER).is_some();
    let schedule = if real { None } else { Some(replay.unwrap_or_else(|| Schedule::of_time(cost))) };
    let mine = parties(data, &facts, kernel, seed, who.hosted(comm.rank()))?;
    let member = |party| Member::new(party, &u, &facts, SKETCHED.then_some((kind, &d_u)));
    Ok(Box::new(Asyn {
        summer: Summer::plain(&comm, who),
        draws: Draws { seed, parties: who.count },
        step: Step::new(options),
        local_iters: options.count(&LOCAL_ITERS),
        v_first: options.word(&ORDER) == "v-first",
        rho: options.number_or_auto(&RHO).unwrap_or(who.count as f64),
        schedule,
        live: real.then(|| Live::new(options, carry_on, who, comm.rank())),
        order: kept.then(Vec::new),
        busy,
        steps: mine.iter().map(|_| Array2::zeros((1, 1))).collect(),
        members: mine.into_iter().map(member).collect(),
        scratch: Scratch::new(&facts),
        sent: entries(&u).to_vec(),
        u,
        shown: true,
        refitted: Refitted::default(),
        iteration: 0,
        facts,
        who,
        meeting: comm.clone(),
        comm,
    }))
}

/// Books what a party of the server's own rank hands over or gets: it crosses no border.
fn book_own<T: Real>(comm: &Communicator, tag: MessageTag, elements: &[T]) {
    comm.record_local::<T>(tag, 2 * elements.len());
}

impl<T: Real> Asyn<T> {
    /// The merge that comes next in a known order, on the ranks that have to do with it; whether there is one.
    fn merge(&mut self) -> bool {
        let Some((party, turn)) = self.schedule.as_mut().and_then(Schedule::next) else { return false };
        let (here, host) = (self.comm.rank(), self.who.host(party));
        let Asyn { comm, who, members, draws, step, scratch, sent, local_iters, v_first, .. } = self;
        let local = (here == host).then(|| party - who.hosted(here).start);
        if let Some(i) = local {
            let member = &mut members[i];
            comm.work("turn", || {
                for t in turn * *local_iters..(turn + 1) * *local_iters {
                    member.local_step(*v_first, step, t, draws, scratch);
                }
            });
            sent.copy_from_slice(entries(&member.u));
        }
        if here != host && here != SERVER {
            self.iteration += 1;
            return true;
        }
        comm.transfer(TO_SERVER, host, SERVER, sent);
        if here == SERVER {
            self.blend(party);
        } else {
            self.iteration += 1;
        }
        self.comm.transfer(FROM_SERVER, SERVER, host, &mut self.sent);
        if let Some(i) = local {
            entries_mut(&mut self.members[i].u).copy_from_slice(&self.sent);
        }
        true
    }

    /// At the server: merge number t = 1, 2, … of what was sent, which becomes the merged U.
    fn blend(&mut self, party: usize) {
        self.iteration += 1;
        let omega = T::from_f64(self.rho / (self.rho + self.iteration as f64));
        let Asyn { comm, u, sent, order, .. } = self;
        comm.work("merge", || {
            for (u, new) in entries_mut(u).iter_mut().zip(sent) {
                *u = (T::one() - omega) * *u + omega * *new;
                *new = *u;
            }
        });
        if let Some(order) = order {
            order.push(T::from_f64(party as f64));
        }
    }

    /// After a loss: the error is relative to the columns that are left. Collective among those.
    fn reckon_with_those_left(&mut self) -> Result<()> {
        let each: Vec<[f64; 1]> = self.members.iter().map(|x| [x.party.block.norm2()]).collect();
        let mut sum = [0.0];
        let shares = each.iter().map(<[f64; 1]>::as_slice);
        self.summer.sum(&self.meeting, LEFT, self.facts.norm2, shares, &mut sum)?;
        self.facts.norm2 = sum[0];
        Ok(())
    }

    /// The server's U on every rank.
    fn show_u(&mut self, why: MessageTag) {
        let Facts { m, k, .. } = self.facts;
        let rows: Vec<_> = (0..self.meeting.size()).map(|r| if r == SERVER { 0..m } else { m..m }).collect();
        let own = if self.comm.rank() == SERVER { entries(&self.u) } else { &[] };
        let mut all = self.facts.order.zeros(m, k);
        self.meeting.all_gather(why, own, &Parts::new(&rows, k), entries_mut(&mut all));
        self.u = all;
        self.shown = true;
        self.refitted.forget();
    }
}

impl<T: Real> Asyn<T> {
    /// Takes up the order of `merges`, and how far the parties are in their turns.
    fn restore_order(&mut self, from: &dyn Restore<T>, merges: usize) -> Result<()> {
        let known = self.schedule.as_mut().map(|schedule| schedule.go_to(merges));
        let stored = || -> Result<Vec<usize>> {
            let mut column = Array2::<T>::zeros((merges, 1));
            from.rows("order", Owner::Shared, 0, column.view_mut())?;
            Ok(column.iter().map(|party| party.as_f64() as usize).collect())
        };
        let order = match known {
            // Virtual time has one order only; a checkpoint need not keep it.
            Some(known) if !self.schedule.as_ref().is_some_and(Schedule::is_recorded) => known,
            Some(known) if known == stored()? => known,
            Some(_) => return Err(Error::input("--replay: the checkpoint is of a run with another order of merges")),
            None => stored()?,
        };
        if let Some(Live { turns, .. }) = &mut self.live {
            for (turn, member) in turns.iter_mut().zip(&self.members) {
                let party = member.party.index;
                let mut steps = Array2::<T>::zeros((1, 1));
                from.rows("steps", Owner::Party(party), 0, steps.view_mut())?;
                turn.number = order.iter().filter(|&&merged| merged == party).count();
                turn.steps = (steps[[0, 0]].as_f64() as usize).min(self.local_iters);
            }
        }
        if let Some(kept) = &mut self.order {
            *kept = order.into_iter().map(|party| T::from_f64(party as f64)).collect();
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
        if let Some(live) = &self.live {
            for (steps, turn) in self.steps.iter_mut().zip(&live.turns) {
                steps.fill(T::from_f64(turn.steps as f64));
            }
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
        let Asyn { meeting: comm, summer, facts, members, u, refitted, live, .. } = self;
        let each = || members.iter().map(|x| &x.party);
        let fitted = each().zip(refitted.get(each(), &u.view()));
        let error = relative_error(comm, summer, facts.norm2, fitted, &u.view())?;
        if live.is_some() {
            // The parties are in the midst of a turn: their V is nobody's result.
            return Ok(vec![("rel_error", error)]);
        }
        let unfitted = relative_error(comm, summer, facts.norm2, each().map(|p| (p, &p.v)), &u.view())?;
        Ok(vec![("rel_error", error), ("rel_error_unfitted", unfitted)])
    }

    fn conclude(&mut self) -> Result<()> {
        // The parties fit their V to the final U, so they have to know it.
        if !self.shown {
            self.show_u(LAST_U);
        }
        Ok(())
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let parts = || self.members.iter().map(|x| &x.party);
        pieces(&self.u, parts().zip(self.refitted.get(parts(), &self.u.view())))
    }

    fn state(&self) -> Vec<Piece<'_, T>> {
        let mut all = pieces(&self.u, self.members.iter().map(|x| (&x.party, &x.party.v)));
        all.extend(self.members.iter().map(|x| private("U_r", x.party.index, &x.u)));
        if self.live.is_some() {
            all.extend(self.members.iter().zip(&self.steps).map(|(x, steps)| private("steps", x.party.index, steps)));
        }
        if self.comm.rank() == SERVER
            && let Some(order) = &self.order
            && let Ok(column) = ArrayView2::from_shape((order.len(), 1), order)
        {
            all.push(Piece::shared("order", order.len(), 0, column));
        }
        all
    }

    fn restore(&mut self, from: &dyn Restore<T>, iteration: usize) -> Result<()> {
        crate::algorithms::columns::restore(from, &mut self.u, self.members.iter_mut().map(|x| &mut x.party))?;
        for Member { party, u, .. } in &mut self.members {
            from.rows("U_r", Owner::Party(party.index), 0, u.view_mut())?;
        }
        self.restore_order(from, iteration)?;
        self.shown = false;
        self.refitted.forget();
        self.iteration = iteration;
        Ok(())
    }

    fn done(&self) -> bool {
        self.schedule.as_ref().is_some_and(Schedule::is_over)
    }

    fn order(&self) -> Vec<usize> {
        self.order.iter().flatten().map(|party| party.as_f64() as usize).collect()
    }

    fn left(&self) -> Option<&Communicator> {
        self.live.as_ref().and_then(Live::left).map(|_| &self.meeting)
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("rho", self.rho.into()), ("mu_alpha", self.step.alpha().into())]
    }
}
