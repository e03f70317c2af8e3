//! `dsanls-secure`: DSANLS over private columns (Qian et al., section 4.1), and how long that stays safe.
//!
//! Party r owns V[J_r] and U[I_r]. V's step is that of DSANLS. For U's step the parties sum Σ_r M[:, J_r] S_t[J_r, :],
//! so that everyone sees the whole sketch M S_t (m × d). Each such release is d linear equations for every row of M:
//! with ⌈n/d⌉ of them M is known (Theorem 3; `fednmf attack` does it with what `--record-releases` kept). So at most `--max-releases` are made, by
//! default the most with fewer than n equations in all. After that the iterations go round the sketches that everyone
//! has already, and nothing more of M leaves a party.
//!
//! Fewer than n equations are no proof of secrecy: they leave M undetermined, but whoever knows something of M already
//! learns from each. A subsampled release is raw columns of M, and a count sketch has buckets with a single column;
//! these two are refused without `--i-know-this-leaks`.

use std::ops::Range;

use ndarray::{Array2, s};

use super::{FORMS, Facts, PAPER, Party, SUMMING, entries, entries_mut, parties, relative_error, summed, summer};
use crate::algorithms::columns::local::{Draws, Scratch, trace};
use crate::algorithms::options::{I_KNOW, MAX_RELEASES, Options, RECORD_RELEASES, SKETCH, SKETCH_SIZE};
use crate::algorithms::registry::{LARGEST_TERM, MessageSpec, Method, Partition, Unit};
use crate::algorithms::shared::sketched_step;
use crate::algorithms::shared::sketched_step::Step;
use crate::algorithms::shared::start;
use crate::algorithms::{Algorithm, Measures, Problem};
use crate::comm::{Communicator, MessageTag, Parties, Parts, Payload, even_part};
use crate::error::{Error, Result};
use crate::linalg::{Real, gemm, gram};
use crate::metrics;
use crate::privacy::{KEYS, Summer};
use crate::random::Stream;
use crate::sketch;
use crate::sketch::Sketch;
use crate::state::{Owner, Piece, SavedState, State};

pub static METHOD: Method = Method {
    name: "dsanls-secure",
    aliases: &[],
    summary: "DSANLS over private columns: every iteration releases a sketch of the data, so only a few are allowed",
    paper: PAPER,
    partition: Partition::PartyColumns,
    unit: Unit::Update,
    forms: FORMS,
    allows_negative: false,
    options: &[
        SKETCH.or("gaussian"),
        SKETCH_SIZE.or("auto"),
        MAX_RELEASES.or("0"),
        I_KNOW.or("false"),
        RECORD_RELEASES.or("none"),
        sketched_step::OPTIONS[0],
        sketched_step::OPTIONS[1],
        sketched_step::OPTIONS[2],
        sketched_step::OPTIONS[3],
        SUMMING[0],
        SUMMING[1],
    ],
    messages: MESSAGES,
    build64: build,
    build32: build,
};

const RELEASE: MessageTag = MessageTag::new("sketch of M", Payload::Sketch);
const SKETCHED_V: MessageTag = MessageTag::new("sketched V", Payload::SketchedFactor);
const SKETCHED_U: MessageTag = MessageTag::new("sketched U", Payload::SketchedFactor);
const GATHER_U: MessageTag = MessageTag::new("evaluation: gather U", Payload::SharedFactor);

const RELEASES: [MessageSpec; 2] = summed(RELEASE, "m x d_U", "each of the first --max-releases iterations");
const SKETCHES_V: [MessageSpec; 2] = summed(SKETCHED_V, "d_U x k", "each iteration");
const SKETCHES_U: [MessageSpec; 2] = summed(SKETCHED_U, "d_V x k", "each iteration");
const RESIDUALS: [MessageSpec; 2] = summed(metrics::RESIDUAL, "1", "each evaluation");
static MESSAGES: &[MessageSpec] = &[
    RELEASES[0],
    RELEASES[1],
    SKETCHES_V[0],
    SKETCHES_V[1],
    SKETCHES_U[0],
    SKETCHES_U[1],
    MessageSpec::new(GATHER_U, "m x k", "each evaluation"),
    RESIDUALS[0],
    RESIDUALS[1],
    LARGEST_TERM,
    MessageSpec::new(KEYS, "32 bytes", "once, with --secure-sum"),
];

/// Rows of S that are made at a time.
const CHUNK: usize = 256;

/// A party, with its rows of U and its shares of the sums.
struct Member<T: Real> {
    party: Party<T>,
    /// I_r
    rows: Range<usize>,
    /// U[I_r], |I_r| × k
    u: Array2<T>,
    rhs: Array2<T>,
    /// S[J_r, :], |J_r| × d_U
    sketch: Array2<T>,
    /// M[:, J_r] S[J_r, :], m × d_U
    release: Array2<T>,
    /// S[J_r, :]ᵀ V_r, d_U × k, and S'[I_r, :]ᵀ U[I_r], d_V × k
    shares: [Array2<T>; 2],
}

struct DsanlsSecure<T: Real> {
    comm: Communicator,
    summer: Summer,
    facts: Facts,
    draws: Draws,
    step: Step,
    /// Most releases.
    limit: usize,
    members: Vec<Member<T>>,
    /// S for U's step, a CHUNK of rows at a time, and S' for V's.
    across: Box<dyn Sketch<T>>,
    down: Box<dyn Sketch<T>>,
    chunk: Array2<T>,
    eye: Array2<T>,
    /// All releases so far, one below the other: (limit · m) × d_U. Every party has them.
    released: Array2<T>,
    release: Array2<T>,
    /// Σ SᵀV and Σ S'ᵀU.
    fixed: [Array2<T>; 2],
    scratch: Scratch<T>,
    /// Rows of U for each rank.
    u_rows: Vec<Range<usize>>,
    u_parts: Parts,
    iteration: usize,
}

/// d_U, d_V and the number of releases.
fn sizes(options: &Options, facts: &Facts) -> Result<(usize, usize, usize)> {
    let Facts { m, n, k, .. } = *facts;
    let (d_u, d_v) = match options.sizes(&SKETCH_SIZE) {
        Some((u, v)) => (u.of(n), v.of(m)),
        None => (sketch::default_size(n, k).min(n.saturating_sub(1).max(1)), sketch::default_size(m, k)),
    };
    if d_u > n || d_v > m {
        return Err(Error::input(format!(
            "--sketch-size {d_u},{d_v}: at most the matrix's own {n} columns for U's update and {m} rows for V's"
        )));
    }
    let safe = (n - 1) / d_u;
    let asked = options.count(&MAX_RELEASES);
    let limit = if asked == 0 { safe } else { asked };
    if options.flag(&I_KNOW) {
        return Ok((d_u, d_v, limit.max(1)));
    }
    let kind = options.word(&SKETCH);
    if matches!(kind, "subsample" | "count") {
        return Err(Error::input(format!(
            "--sketch {kind}: a single release shows columns of M as they are; take --sketch gaussian, or say \
             --i-know-this-leaks"
        )));
    }
    if safe == 0 || limit > safe {
        return Err(Error::input(format!(
            "--max-releases {}: {} sketches with {d_u} of {n} columns are enough to compute M from them; at most {safe} are \
             allowed (a smaller --sketch-size allows more) unless you say --i-know-this-leaks",
            limit.max(1),
            n.div_ceil(d_u)
        )));
    }
    Ok((d_u, d_v, limit))
}

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, options, parties: who, comm, .. } = problem;
    let facts = Facts::of(&data, k);
    let (d_u, d_v, limit) = sizes(options, &facts)?;
    let Facts { m, n, order, .. } = facts;
    let rows_of = |parties: Range<usize>| match (parties.start, parties.end) {
        (a, b) if a < b => even_part(m, who.count, a).start..even_part(m, who.count, b - 1).end,
        _ => 0..0,
    };
    let u_rows = rows_by_rank(who, rows_of);
    let mine = parties(data, &facts, kernel, seed, who.hosted(comm.rank()))?;
    let member = |party: Party<T>| {
        let rows = even_part(m, who.count, party.index);
        let mut u = order.zeros(rows.len(), k);
        start::u(seed, &rows, facts.scale, u.view_mut());
        Member {
            rhs: order.zeros(rows.len(), k),
            sketch: order.zeros(party.cols.len(), d_u),
            release: order.zeros(m, d_u),
            shares: [order.zeros(d_u, k), order.zeros(d_v, k)],
            party,
            rows,
            u,
        }
    };
    Ok(Box::new(DsanlsSecure {
        summer: summer(&comm, who, options)?,
        draws: Draws { seed, parties: who.count },
        step: Step::new(options),
        limit,
        members: mine.into_iter().map(member).collect(),
        across: sketch::make(options.word(&SKETCH), n, d_u, CHUNK, order),
        down: sketch::make(options.word(&SKETCH), m, d_v, k, order),
        chunk: order.zeros(d_u, CHUNK),
        eye: Array2::eye(CHUNK),
        released: Array2::zeros((limit * m, d_u)),
        release: order.zeros(m, d_u),
        fixed: [order.zeros(d_u, k), order.zeros(d_v, k)],
        scratch: Scratch::new(&facts),
        u_parts: Parts::new(&u_rows, k),
        u_rows,
        facts,
        comm,
        iteration: 0,
    }))
}

/// The rows of U that each rank's parties own; those of a rank without parties are none, where the last ones ended.
fn rows_by_rank(who: Parties, rows_of: impl Fn(Range<usize>) -> Range<usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let each = (0..who.ranks).map(|rank| {
        let rows = rows_of(who.hosted(rank));
        if rows.is_empty() && who.hosted(rank).is_empty() {
            return end..end;
        }
        end = rows.end;
        rows
    });
    each.collect()
}

impl<T: Real> DsanlsSecure<T> {
    /// The stream of the sketch of release `number`.
    fn stream(draws: &Draws, number: usize) -> Stream {
        sketch::stream(draws.seed, true, number)
    }

    /// Makes each party's rows of S.
    fn draw(&mut self, number: usize) {
        let DsanlsSecure { comm, draws, members, across, chunk, eye, .. } = self;
        comm.work("draw S", || {
            across.draw(&Self::stream(draws, number));
            for Member { party, sketch, .. } in members.iter_mut() {
                for first in (0..party.cols.len()).step_by(CHUNK) {
                    let rows = CHUNK.min(party.cols.len() - first);
                    let identity = eye.slice(s![..rows, ..]);
                    across.sketch_rows(party.cols.start + first, &identity, &mut chunk.view_mut());
                    sketch.slice_mut(s![first..first + rows, ..]).assign(&chunk.slice(s![.., ..rows]).t());
                }
            }
        });
    }

    fn iterate(&mut self) -> Result<()> {
        let t = self.iteration;
        let number = t % self.limit;
        self.draw(number);
        let DsanlsSecure { comm, summer, facts, draws, step, members, down, released, release, fixed, scratch, .. } =
            self;
        let Facts { m, n, scale, .. } = *facts;
        let [fixed_v, fixed_u] = fixed;
        let lies = s![number * m..(number + 1) * m, ..];
        if t < self.limit {
            comm.work("sketch M", || {
                for Member { party, sketch, release, .. } in members.iter_mut() {
                    party.block.mul(&sketch.view(), &mut release.view_mut());
                }
            });
            let expected = (facts.norm2 / m as f64 / fixed_v.nrows() as f64).sqrt();
            summer.sum(comm, RELEASE, expected, members.iter().map(|x| entries(&x.release)), entries_mut(release))?;
            released.slice_mut(lies).assign(release);
        }

        for Member { party, sketch, shares, .. } in members.iter_mut() {
            gemm(T::one(), &sketch.t(), &party.v.view(), T::zero(), &mut shares[0].view_mut());
        }
        let expected = scale * n as f64 / fixed_v.nrows() as f64;
        summer.sum(comm, SKETCHED_V, expected, members.iter().map(|x| entries(&x.shares[0])), entries_mut(fixed_v))?;
        comm.work("U's step", || {
            let g = &mut scratch.gram;
            gram(&fixed_v.view(), &mut g.view_mut());
            let norm2 = trace(g);
            let sketched = released.slice(lies);
            for Member { rows, u, rhs, .. } in members.iter_mut() {
                let own = sketched.slice(s![rows.clone(), ..]);
                gemm(T::one(), &own, &fixed_v.view(), T::zero(), &mut rhs.view_mut());
                step.apply(&mut u.view_mut(), &rhs.view(), &g.view(), norm2, t, &mut scratch.probe.view_mut());
            }
        });

        comm.work("sketch U", || {
            down.draw(&draws.shared(t));
            for Member { rows, u, shares, .. } in members.iter_mut() {
                down.sketch_rows(rows.start, &u.view(), &mut shares[1].view_mut());
            }
        });
        let expected = scale * m as f64 / fixed_u.nrows() as f64;
        summer.sum(comm, SKETCHED_U, expected, members.iter().map(|x| entries(&x.shares[1])), entries_mut(fixed_u))?;
        comm.work("V's step", || {
            let g = &mut scratch.gram;
            gram(&fixed_u.view(), &mut g.view_mut());
            let norm2 = trace(g);
            for Member { party, .. } in members.iter_mut() {
                down.product(&party.block, &fixed_u.view(), &mut party.rhs.view_mut());
                let r = &party.rhs.view();
                step.apply(&mut party.v.view_mut(), r, &g.view(), norm2, t, &mut scratch.probe.view_mut());
            }
        });
        self.iteration += 1;
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for DsanlsSecure<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let Facts { m, k, norm2, .. } = self.facts;
        let mut own = Array2::zeros((self.u_rows[self.comm.rank()].len(), k));
        let first = self.u_rows[self.comm.rank()].start;
        for Member { rows, u, .. } in &self.members {
            own.slice_mut(s![rows.start - first..rows.end - first, ..]).assign(u);
        }
        let mut whole = Array2::zeros((m, k));
        self.comm.all_gather(GATHER_U, entries(&own), &self.u_parts, entries_mut(&mut whole));
        let parts = self.members.iter().map(|x| (&x.party, &x.party.v));
        let error = relative_error(&self.comm, &mut self.summer, norm2, parts, &whole.view())?;
        Ok(vec![("rel_error", error)])
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let us = self.members.iter().map(|x| Piece::shared("U", self.facts.m, x.rows.start, x.u.view()));
        us.chain(self.members.iter().map(|x| Piece::private("V", x.party.index, x.party.v.view()))).collect()
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(self.factors());
        state.matrices.push(Piece::shared("released", self.released.nrows(), 0, self.released.view()));
        state
    }

    fn recorded_view(&self) -> Option<Piece<'_, T>> {
        let rows = self.iteration.min(self.limit) * self.facts.m;
        Some(Piece::shared("released", rows, 0, self.released.slice(s![..rows, ..])))
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        saved.rows("released", Owner::Shared, 0, self.released.view_mut())?;
        for Member { party, rows, u, .. } in &mut self.members {
            saved.rows("U", Owner::Shared, rows.start, u.view_mut())?;
            saved.rows("V", Owner::Party(party.index), 0, party.v.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("sketch_size_u", self.release.ncols().into()),
            ("sketch_size_v", self.down.size().into()),
            ("releases", self.limit.into()),
            ("mu_alpha", self.step.alpha().into()),
        ]
    }
}
