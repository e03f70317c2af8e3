//! Syn-SD and Syn-SSD (Qian et al., Alg. 4 and 5): each party factorises its columns with a copy U_r of U for
//! `--local-iters` steps; then the copies are averaged. That is one round.
//!
//! * `syn-sd`: nothing else is exchanged.
//! * `syn-ssd-u`: in each local step V_r is fitted to the average of the sketched copies S₂ᵀU_r, a few rows of U. This
//!   ties the copies together: the error becomes that of the whole matrix in one place.
//! * `syn-ssd-v`: U_r's step is sketched by S₁, which picks or mixes the party's own columns; nothing more is sent.
//! * `syn-ssd-uv`: both.
//!
//! S₂ is the same for all parties. S₁ is a party's own: nothing made with it is summed. Averages are weighted by the
//! parties' numbers of columns (`--weights equal`: as printed, not at all; far slower where one party has most columns). V's step comes first (`--order`): U first, as printed, replaces a fresh average by a
//! fit to an old V. In the end each party fits V_r to the final U, for itself; `rel_error` is with that, and
//! `rel_error_unfitted` without.

use std::ops::Range;

use ndarray::Array2;

use super::{
    FORMS, Facts, PAPER, Refitted, SUMMING, entries, entries_mut, of_those_left, parties, pieces, relative_error,
    restore, start_u, summed, summer,
};
use crate::algorithms::columns::local::{Draws, Member, Scratch, sketch_sizes, trace};
use crate::algorithms::options::{LOCAL_ITERS, ORDER, SKETCH, SKETCH_SIZE, Taken, WEIGHTS};
use crate::algorithms::registry::{LARGEST_TERM, MessageSpec, Method, Partition, Unit};
use crate::algorithms::shared::dp;
use crate::algorithms::shared::dp::{Messages, SURVIVING};
use crate::algorithms::shared::sketched_step;
use crate::algorithms::shared::sketched_step::Step;
use crate::algorithms::{Algorithm, Measures, Problem};
use crate::comm::{Communicator, MessageTag, Payload};
use crate::error::Result;
use crate::linalg::{Real, gram};
use crate::metrics;
use crate::privacy::{KEYS, Releases, Summer};
use crate::sketch;
use crate::sketch::Sketch;
use crate::state::{Piece, SavedState, State};

const AVERAGE_U: MessageTag = MessageTag::new("average of U_r", Payload::SharedFactor);
const AVERAGE_SKETCH: MessageTag = MessageTag::new("average of sketched U_r", Payload::SketchedFactor);

const AVERAGES: [MessageSpec; 2] = summed(AVERAGE_U, "m x k", "each round");
const SKETCHES: [MessageSpec; 2] = summed(AVERAGE_SKETCH, "d_V x k", "each local step");
const RESIDUALS: [MessageSpec; 2] = summed(metrics::RESIDUAL, "1", "twice each evaluation");
const KEY: MessageSpec = MessageSpec::new(KEYS, "32 bytes", "once, with --secure-sum");
static MESSAGES: &[MessageSpec] = &[
    AVERAGES[0],
    AVERAGES[1],
    RESIDUALS[0],
    RESIDUALS[1],
    LARGEST_TERM,
    KEY,
    SURVIVING[0],
    SURVIVING[1],
    SURVIVING[2],
    dp::MESSAGES,
    dp::MESSAGES_MASKED,
];
static MESSAGES_U: &[MessageSpec] = &[
    AVERAGES[0],
    AVERAGES[1],
    SKETCHES[0],
    SKETCHES[1],
    RESIDUALS[0],
    RESIDUALS[1],
    LARGEST_TERM,
    KEY,
    SURVIVING[0],
    SURVIVING[1],
    SURVIVING[2],
];

const STEP: [Taken; 4] = sketched_step::OPTIONS;
const OWN: [Taken; 8] =
    [LOCAL_ITERS.or("10"), ORDER.or("v-first"), WEIGHTS.or("columns"), STEP[0], STEP[1], STEP[2], STEP[3], SUMMING[2]];
static OPTIONS: [Taken; 18] = dp::with(OWN);
static OWN_SKETCH: [Taken; 20] = dp::with([
    OWN[0],
    OWN[1],
    OWN[2],
    SKETCH.or("subsample"),
    SKETCH_SIZE.or("auto"),
    OWN[3],
    OWN[4],
    OWN[5],
    OWN[6],
    OWN[7],
]);
static SKETCHED: &[Taken] = &[
    LOCAL_ITERS.or("10"),
    ORDER.or("v-first"),
    WEIGHTS.or("columns"),
    SKETCH.or("subsample"),
    SKETCH_SIZE.or("auto"),
    STEP[0],
    STEP[1],
    STEP[2],
    STEP[3],
    SUMMING[0],
    SUMMING[1],
    SUMMING[2],
];

/// What all four have in common.
const BASE: Method = Method {
    name: "syn-sd",
    aliases: &[],
    summary: "private columns: each party factorises its own, and copies of U are averaged now and then",
    paper: PAPER,
    partition: Partition::PartyColumns,
    unit: Unit::Round,
    forms: FORMS,
    allows_negative: false,
    options: &OPTIONS,
    messages: MESSAGES,
    build64: build::<f64, false, false>,
    build32: build::<f32, false, false>,
};

pub static SD: Method = BASE;
pub static SSD_U: Method = Method {
    name: "syn-ssd-u",
    summary: "as syn-sd; a few rows (a sketch) of the parties' U are averaged in every step, which ties them together",
    options: SKETCHED,
    messages: MESSAGES_U,
    build64: build::<f64, true, false>,
    build32: build::<f32, true, false>,
    ..BASE
};
pub static SSD_V: Method = Method {
    name: "syn-ssd-v",
    summary: "as syn-sd; U's steps see a sketch of the party's own columns",
    options: &OWN_SKETCH,
    build64: build::<f64, false, true>,
    build32: build::<f32, false, true>,
    ..BASE
};
pub static SSD_UV: Method = Method {
    name: "syn-ssd-uv",
    summary: "syn-ssd-u and syn-ssd-v together",
    options: SKETCHED,
    messages: MESSAGES_U,
    build64: build::<f64, true, true>,
    build32: build::<f32, true, true>,
    ..BASE
};

/// What the sketched exchange of `syn-ssd-u` and `-uv` needs on a rank.
struct Exchange<T: Real> {
    /// S₂, m × d
    sketch: Box<dyn Sketch<T>>,
    /// Each hosted party's share of the average of S₂ᵀU_r, d × k
    shares: Vec<Array2<T>>,
    /// The average.
    fixed: Array2<T>,
}

struct Syn<T: Real> {
    comm: Communicator,
    summer: Summer,
    releases: Option<Releases>,
    /// The first hosted party.
    first: usize,
    facts: Facts,
    draws: Draws,
    /// Weights of all parties in averages; 1 together.
    weights: Vec<f64>,
    step: Step,
    local_iters: usize,
    v_first: bool,
    members: Vec<Member<T>>,
    exchange: Option<Exchange<T>>,
    scratch: Scratch<T>,
    /// The average, which every member's copy is equal to between rounds.
    u: Array2<T>,
    refitted: Refitted<T>,
    iteration: usize,
}

fn build<T: Real, const SKETCH_U: bool, const SKETCH_V: bool>(
    problem: Problem<'_, T>,
) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, options, max_iters, parties: who, comm, .. } = problem;
    let facts = Facts::of(&data, k);
    let u = start_u(&facts, seed);
    let kind = if SKETCH_U || SKETCH_V { options.word(&SKETCH) } else { "" };
    let sizes = if SKETCH_U || SKETCH_V { options.sizes(&SKETCH_SIZE) } else { None };
    let (for_u, for_v) = sketch_sizes(sizes, &facts)?;
    let count = who.count as f64;
    let equal = options.word(&WEIGHTS) == "equal";
    let weight = |cols: &Range<usize>| if equal { 1.0 / count } else { cols.len() as f64 / facts.n as f64 };
    let weights = data.cuts.cols.iter().map(weight).collect();
    let mine = parties(data, &facts, kernel, seed, who.hosted(comm.rank()))?;
    let member = |party| Member::new(party, &u, &facts, SKETCH_V.then_some((kind, &for_u)));
    let members: Vec<Member<T>> = mine.into_iter().map(member).collect();
    let exchange = SKETCH_U.then(|| Exchange {
        sketch: sketch::make(kind, facts.m, for_v, k, facts.order),
        shares: members.iter().map(|_| facts.order.zeros(for_v, k)).collect(),
        fixed: facts.order.zeros(for_v, k),
    });
    let releases = if SKETCH_U {
        None
    } else {
        let length = facts.m * facts.k;
        let messages = Messages { max_iters, once: false, length, natural: None, boolean: false };
        dp::releases(options, messages, who, &comm)?
    };
    Ok(Box::new(Syn {
        releases,
        first: who.hosted(comm.rank()).start,
        summer: summer(&comm, who, options)?,
        comm,
        draws: Draws { seed, parties: who.count },
        weights,
        step: Step::new(options),
        local_iters: options.count(&LOCAL_ITERS),
        v_first: options.word(&ORDER) == "v-first",
        members,
        exchange,
        scratch: Scratch::new(&facts),
        facts,
        u,
        refitted: Refitted::default(),
        iteration: 0,
    }))
}

impl<T: Real> Syn<T> {
    /// V's step of all parties: each against its own copy of U, or against the average of the sketched copies.
    fn step_v(&mut self, t: usize) -> Result<()> {
        let Syn { comm, summer, facts, draws, weights, step, members, exchange, scratch, .. } = self;
        let Some(Exchange { sketch, shares, fixed }) = exchange else {
            comm.work("V's step", || members.iter_mut().for_each(|x| x.step_v(step, t, scratch)));
            return Ok(());
        };
        comm.work("sketch U", || {
            sketch.draw(&draws.shared(t));
            for (member, share) in members.iter().zip(shares.iter_mut()) {
                sketch.sketch_rows(0, &member.u.view(), &mut share.view_mut());
                let weight = T::from_f64(weights[member.party.index]);
                share.mapv_inplace(|x| x * weight);
            }
        });
        let expected = facts.scale * facts.m as f64 / sketch.size() as f64;
        summer.sum(comm, AVERAGE_SKETCH, expected, shares.iter().map(entries), entries_mut(fixed))?;
        of_those_left(summer, weights, fixed);
        comm.work("V's step", || {
            gram(&fixed.view(), &mut scratch.gram.view_mut());
            let norm2 = trace(&scratch.gram);
            for Member { party, .. } in members.iter_mut() {
                sketch.product(&party.block, &fixed.view(), &mut party.rhs.view_mut());
                let (r, g) = (&party.rhs.view(), &scratch.gram.view());
                step.apply(&mut party.v.view_mut(), r, g, norm2, t, &mut scratch.probe.view_mut());
            }
        });
        Ok(())
    }

    /// U's step of all parties: on their own copies.
    fn step_u(&mut self, t: usize) {
        let Syn { comm, draws, step, members, scratch, .. } = self;
        comm.work("U's step", || members.iter_mut().for_each(|x| x.step_u(step, t, draws, scratch)));
    }

    /// U ← weighted mean of all U_r.
    fn average(&mut self) -> Result<()> {
        let Syn { comm, summer, facts, weights, members, u, .. } = self;
        for member in members.iter_mut() {
            let weight = T::from_f64(weights[member.party.index]);
            member.u.mapv_inplace(|x| x * weight);
        }
        summer.sum(comm, AVERAGE_U, facts.scale, members.iter().map(|x| entries(&x.u)), entries_mut(u))?;
        of_those_left(summer, weights, u);
        Ok(())
    }

    /// The same by what each party moves the mean, w_r (U_r − U): that is what is bounded and noised.
    fn average_noised(&mut self) -> Result<()> {
        let Syn { comm, summer, releases, facts, weights, members, u, .. } = self;
        let Some(releases) = releases else { return Ok(()) };
        releases.open()?;
        for member in members.iter_mut() {
            let weight = T::from_f64(weights[member.party.index]);
            member.u.zip_mut_with(u, |own, mean| *own = weight * (*own - *mean));
        }
        if summer.is_masked() {
            let fill =
                |hosted: usize, out: &mut [u64]| releases.words(hosted, Some(entries(&members[hosted].u)), None, out);
            let sum = summer.words(comm, AVERAGE_U, u.len(), fill);
            entries_mut(u).iter_mut().zip(sum).for_each(|(x, sum)| *x += T::from_f64(releases.decode(*sum)));
        } else {
            comm.work("noise", || {
                for (hosted, member) in members.iter_mut().enumerate() {
                    releases.noised(hosted, entries_mut(&mut member.u), None);
                }
            });
            let mut moved = u.clone();
            summer.sum(comm, AVERAGE_U, facts.scale, members.iter().map(|x| entries(&x.u)), entries_mut(&mut moved))?;
            *u += &moved;
        }
        u.mapv_inplace(|x| x.max(T::zero()));
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        for t in self.iteration * self.local_iters..(self.iteration + 1) * self.local_iters {
            if self.v_first {
                self.step_v(t)?;
                self.step_u(t);
            } else {
                self.step_u(t);
                self.step_v(t)?;
            }
        }
        if self.releases.is_some() {
            self.average_noised()?;
        } else {
            self.average()?;
        }
        let Syn { members, u, .. } = self;
        members.iter_mut().for_each(|x| x.u.assign(u));
        self.refitted.forget();
        self.iteration += 1;
        Ok(())
    }

    fn refitted(&self) -> &[Array2<T>] {
        self.refitted.get(self.members.iter().map(|x| &x.party), &self.u.view())
    }
}

impl<T: Real> Algorithm<T> for Syn<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            if self.done() {
                break;
            }
            self.round()?;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        self.refitted();
        let Syn { comm, summer, facts, members, u, refitted, .. } = self;
        let each = || members.iter().map(|x| &x.party);
        let fitted = each().zip(refitted.get(each(), &u.view()));
        let error = relative_error(comm, summer, facts.norm2, fitted, &u.view())?;
        let unfitted = relative_error(comm, summer, facts.norm2, each().map(|p| (p, &p.v)), &u.view())?;
        let mut all = vec![("rel_error", error), ("rel_error_unfitted", unfitted)];
        all.extend(summer.losses());
        dp::measure(self.releases.as_ref(), summer, comm, &mut all)?;
        Ok(all)
    }

    fn done(&self) -> bool {
        self.releases.as_ref().is_some_and(Releases::is_spent)
    }

    fn private_releases(&self) -> Option<&Releases> {
        self.releases.as_ref()
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        pieces(&self.u, self.members.iter().map(|x| &x.party).zip(self.refitted()))
    }

    fn state(&self) -> State<'_, T> {
        let factors = pieces(&self.u, self.members.iter().map(|x| (&x.party, &x.party.v)));
        dp::save(factors.into(), self.releases.as_ref(), self.first)
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        restore(saved, &mut self.u, self.members.iter_mut().map(|x| &mut x.party))?;
        let u = &self.u;
        self.members.iter_mut().for_each(|x| x.u.assign(u));
        dp::restore(saved, self.releases.as_mut(), self.first)?;
        self.refitted.forget();
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        let mut all = vec![("mu_alpha", self.step.alpha().into())];
        all.extend(self.exchange.as_ref().map(|e| ("sketch_size_v", e.sketch.size().into())));
        all
    }
}
