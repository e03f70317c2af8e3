//! Asyn-SD and Asyn-SSD-V (Qian et al., Alg. 6 and 7): a server holds U; a party takes a copy, does `--local-iters` steps
//! on its own columns, and hands the copy back. The server merges it, U ← (1 − ω_t) U + ω_t U_r with ω_t = ρ/(ρ + t), and
//! the party goes on with the result. Nobody waits for a slower party; those with more data report less often.
//!
//! Time is virtual: a turn of a party takes as long as its multiplications are many, counted from public numbers. The
//! next merge is of the party whose turn ends first, the lower party of two. So the order of merges, and every bit of
//! the result, is the same on any number of ranks. Ranks do work side by side: a rank goes through its own parties'
//! turns and waits for the server's answers alone.
//!
//! t counts from 1: with t = 0 the first party would replace the server's U. The server sees every U_r, so there is no
//! sum to be masked here.

use ndarray::Array2;

use super::local::{Draws, Member, Scratch, sketch_sizes};
use super::{FORMS, Facts, PAPER, Refitted, entries, entries_mut, parties, pieces, private, relative_error, start_u};
use crate::algo::options::{LOCAL_ITERS, ORDER, RHO, SKETCH, SKETCH_SIZE, Taken};
use crate::algo::registry::{LARGEST_TERM, Method, Partition, Unit, Wire};
use crate::algo::step::{self, Step};
use crate::algo::{Algorithm, Measures, Owner, Piece, Problem, Restore};
use crate::comm::{Door, Parcel, Parties, Parts, Payload};
use crate::error::Result;
use crate::linalg::Real;
use crate::metrics;
use crate::privacy::Summer;

const TO_SERVER: Parcel = Parcel::new("a party's U_r to the server", Payload::SharedFactor);
const FROM_SERVER: Parcel = Parcel::new("the server's U to a party", Payload::SharedFactor);
const SHOW_U: Parcel = Parcel::new("evaluation: the server's U", Payload::SharedFactor);

static WIRE: &[Wire] = &[
    Wire::new(TO_SERVER, "m x k", "each merge"),
    Wire::new(FROM_SERVER, "m x k", "each merge"),
    Wire::new(SHOW_U, "m x k", "each evaluation"),
    Wire::new(metrics::RESIDUAL, "1", "twice each evaluation"),
    LARGEST_TERM,
];

const STEP: [Taken; 4] = step::OPTIONS;

pub static SD: Method = Method {
    name: "asyn-sd",
    aliases: &[],
    summary: "as syn-sd with a server that merges a party's U whenever it comes: nobody waits for the slowest",
    paper: PAPER,
    partition: Partition::PartyColumns,
    unit: Unit::Merge,
    forms: FORMS,
    allows_negative: false,
    options: &[LOCAL_ITERS.or("10"), ORDER.or("v-first"), RHO.or("auto"), STEP[0], STEP[1], STEP[2], STEP[3]],
    wire: WIRE,
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

/// Whose turn ends next, in virtual time.
#[derive(Debug, Clone, PartialEq)]
struct Clock {
    /// Time that a turn of each party takes; `None` for one without data, which has no turns.
    cost: Vec<Option<u64>>,
    /// Turns that each has done.
    turns: Vec<usize>,
}

impl Clock {
    fn new(cost: Vec<Option<u64>>) -> Self {
        Clock { turns: vec![0; cost.len()], cost }
    }

    /// The party whose turn ends next, and which of its turns it is.
    fn next(&mut self) -> (usize, usize) {
        let end = |party: usize| self.cost[party].map(|c| u128::from(c) * (self.turns[party] as u128 + 1));
        let party = (0..self.cost.len()).filter_map(|p| Some((end(p)?, p))).min().map_or(0, |(_, p)| p);
        self.turns[party] += 1;
        (party, self.turns[party] - 1)
    }
}

struct Asyn<T: Real> {
    door: Door,
    who: Parties,
    summer: Summer,
    facts: Facts,
    draws: Draws,
    step: Step,
    local_iters: usize,
    v_first: bool,
    rho: f64,
    clock: Clock,
    members: Vec<Member<T>>,
    scratch: Scratch<T>,
    /// The server's U; elsewhere what the last evaluation showed.
    u: Array2<T>,
    /// Whether every rank has the server's U.
    shown: bool,
    /// What a party sent.
    sent: Array2<T>,
    refitted: Refitted<T>,
    iteration: usize,
}

fn build<T: Real, const SKETCHED: bool>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, options, parties: who, door, .. } = problem;
    let facts = Facts::of(&data, k);
    let u = start_u(&facts, seed);
    let kind = if SKETCHED { options.word(&SKETCH) } else { "" };
    let (d_u, _) = sketch_sizes(if SKETCHED { options.sizes(&SKETCH_SIZE) } else { None }, &facts)?;
    let (m, n) = (facts.m as f64, facts.n as f64);
    // Multiplications of a step: two products with the data, two Gram matrices and two sweeps.
    let density = if data.header.sparse { data.figures.nonzeros as f64 / (m * n) } else { 1.0 };
    let cost = data.cuts.cols.iter().map(|cols| {
        let columns = cols.len() as f64;
        let seen = if SKETCHED { d_u(cols.len()) as f64 } else { columns };
        let step = m * (columns + seen) * density + 2.0 * (m + columns) * k as f64;
        (columns > 0.0).then_some((step * k as f64) as u64 + 1)
    });
    let clock = Clock::new(cost.collect());
    let mine = parties(data, &facts, kernel, seed, who.hosted(door.rank()))?;
    let member = |party| Member::new(party, &u, &facts, SKETCHED.then_some((kind, &d_u)));
    Ok(Box::new(Asyn {
        summer: Summer::plain(&door, who),
        draws: Draws { seed, parties: who.count },
        step: Step::new(options),
        local_iters: options.count(&LOCAL_ITERS),
        v_first: options.word(&ORDER) == "v-first",
        rho: options.number_or_auto(&RHO).unwrap_or(who.count as f64),
        clock,
        members: mine.into_iter().map(member).collect(),
        scratch: Scratch::new(&facts),
        sent: u.clone(),
        u,
        shown: true,
        refitted: Refitted::default(),
        iteration: 0,
        facts,
        who,
        door,
    }))
}

impl<T: Real> Asyn<T> {
    /// One merge, on the ranks that have to do with it.
    fn merge(&mut self) {
        let (party, turn) = self.clock.next();
        self.iteration += 1;
        let (here, host) = (self.door.rank(), self.who.host(party));
        let Asyn { door, who, members, draws, step, scratch, u, sent, rho, .. } = self;
        let mut member = (here == host).then(|| &mut members[party - who.hosted(here).start]);
        if let Some(member) = &mut member {
            door.work("turn", || {
                for t in turn * self.local_iters..(turn + 1) * self.local_iters {
                    if self.v_first {
                        member.step_v(step, t, scratch);
                        member.step_u(step, t, draws, scratch);
                    } else {
                        member.step_u(step, t, draws, scratch);
                        member.step_v(step, t, scratch);
                    }
                }
            });
            sent.assign(&member.u);
        }
        if here != host && here != SERVER {
            return;
        }
        door.hand_over(TO_SERVER, host, SERVER, entries_mut(sent));
        if here == SERVER {
            // Merge number t = 1, 2, …
            let omega = T::of(*rho / (*rho + self.iteration as f64));
            door.work("merge", || {
                u.zip_mut_with(sent, |u, &new| *u = (T::one() - omega) * *u + omega * new);
                sent.assign(u);
            });
        }
        door.hand_over(FROM_SERVER, SERVER, host, entries_mut(sent));
        if let Some(member) = member {
            member.u.assign(sent);
        }
    }

    /// The server's U on every rank.
    fn show_u(&mut self) {
        let Facts { m, k, .. } = self.facts;
        let rows: Vec<_> = (0..self.door.size()).map(|r| if r == SERVER { 0..m } else { m..m }).collect();
        let own = if self.door.rank() == SERVER { entries(&self.u) } else { &[] };
        let mut all = self.sent.clone();
        self.door.all_gather(SHOW_U, own, &Parts::new(&rows, k), entries_mut(&mut all));
        self.u = all;
        self.shown = true;
        self.refitted.forget();
    }
}

impl<T: Real> Algorithm<T> for Asyn<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).for_each(|_| self.merge());
        self.shown = false;
        self.refitted.forget();
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        self.show_u();
        let Asyn { door, summer, facts, members, u, refitted, .. } = self;
        let each = || members.iter().map(|x| &x.party);
        let fitted = each().zip(refitted.get(each(), &u.view()));
        let error = relative_error(door, summer, facts.norm2, fitted, &u.view())?;
        let unfitted = relative_error(door, summer, facts.norm2, each().map(|p| (p, &p.v)), &u.view())?;
        Ok(vec![("rel_error", error), ("rel_error_unfitted", unfitted)])
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let parts = || self.members.iter().map(|x| &x.party);
        if !self.shown {
            // Without an evaluation (--eval-every 0) the parties do not know the final U to fit their V to.
            return pieces(&self.u, parts().map(|p| (p, &p.v)));
        }
        pieces(&self.u, parts().zip(self.refitted.get(parts(), &self.u.view())))
    }

    fn state(&self) -> Vec<Piece<'_, T>> {
        let mut all = pieces(&self.u, self.members.iter().map(|x| (&x.party, &x.party.v)));
        all.extend(self.members.iter().map(|x| private("U_r", x.party.index, &x.u)));
        all
    }

    fn restore(&mut self, from: &dyn Restore<T>, iteration: usize) -> Result<()> {
        super::restore(from, &mut self.u, self.members.iter_mut().map(|x| &mut x.party))?;
        for Member { party, u, .. } in &mut self.members {
            from.rows("U_r", Owner::Party(party.index), 0, u.view_mut())?;
        }
        self.clock.turns.fill(0);
        for _ in 0..iteration {
            self.clock.next();
        }
        self.shown = false;
        self.refitted.forget();
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("rho", self.rho.into()), ("clock", "virtual".into()), ("mu_alpha", self.step.alpha().into())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_report_as_often_as_they_are_fast() {
        let mut clock = Clock::new(vec![Some(30), Some(10), None, Some(10)]);
        let order: Vec<(usize, usize)> = (0..8).map(|_| clock.next()).collect();
        // Ends: party 1 and 3 at 10, 20, 30, …; party 0 at 30. The lower party comes first.
        assert_eq!(order, [(1, 0), (3, 0), (1, 1), (3, 1), (0, 0), (1, 2), (3, 2), (1, 3)]);
    }
}
