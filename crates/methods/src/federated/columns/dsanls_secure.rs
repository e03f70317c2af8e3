//! `dsanls-secure`: DSANLS over private columns (Qian et al. 2022, section 4.1), with a limit on the number of releases.
//!
//! Party r owns V[J_r] and U[I_r]. V's step is that of DSANLS. For U's step the parties sum Σ_r M[:, J_r] S_t[J_r, :], so
//! that all of them see the whole sketch M S_t (m × d). Each such release is d linear equations for every row of M. After
//! ⌈n/d⌉ releases M is determined (Theorem 3; `fednmf audit attack` computes it from a view of `--record-view`), so at most
//! `--max-releases` are made. A party knows its own columns. The default is therefore the largest number with fewer
//! equations than unknown columns for the party with the most columns. Later iterations reuse the released sketches in
//! turn, and nothing more of M leaves a party.
//!
//! Fewer equations than unknowns are no proof of secrecy: they leave M undetermined, but each reveals something to anyone
//! who has prior knowledge of M. One example is integer data: an entry with w possible values has log₂ w bits, and an
//! equation in double precision gives 52 bits. Releases of entries with few values, such as counts times any factor or their
//! logarithms ([`EntryFacts::bits`]), therefore end before their bits are as many as those of the unknown part of a row; from more,
//! lattice reduction finds the data.
//! Another example is sparse data: basis pursuit finds rows with few nonzeros from fewer equations than unknowns, so
//! releases end before it succeeds ([`EntryFacts::nonzero_share`]). A subsampled release is raw columns of M, and a count sketch has
//! buckets with a single column. These two are refused without `--accept-risk sketches`.

use std::ops::Range;

use ndarray::{Array2, s};

use fednmf_audit::pursuit;
use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{KEYS, PartySum};
use fednmf_comm::{MessageTag, Parties, Parts, PartyCommunicator, Payload, even_part};
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::random::Stream;
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::{Sketch, SketchKind};
use fednmf_linalg::{Real, gemm, gram};
use fednmf_privacy::{Declared, DeclaredMut};

use super::{PAPER, Party, PublicInfo, fit, hosted_parties, summed};
use crate::decision::Decision;
use crate::description::{Description, DifferentialPrivacy, LARGEST_TERM, MessageSpec, Partition};
use crate::federated::columns::local::{Draws, Scratch, trace};
use crate::federated::few_values::EntryFacts;
use crate::method::Method;
use crate::metrics;
use crate::parameters::{Auto, Sizes, count};
use crate::shared::alternating::Factor;
use crate::shared::disclosure::{PrivatePart, Risk};
use crate::shared::init;
use crate::shared::missing::PartyMissing;
use crate::shared::regularization::RegularizationParams;
use crate::shared::secure_sum::{SecureSumParams, party_sum};
use crate::shared::sketched_step::{SketchedStep, StepParams, oblivious};
use crate::{Algorithm, Measures, Problem};

fednmf_base::parameters! {
    /// Parameters of DSANLS over private columns.
    pub struct DsanlsSecure {
        /// Random matrix that shrinks each subproblem. Only subsample saves much time: the others read the whole data;
        /// subsample and count release columns as they are
        pub sketch: SketchKind = SketchKind::Gaussian, "KIND", oblivious;
        /// Columns kept for U's update and rows kept for V's: counts, or shares with %; one value is for both. auto:
        /// 10 % of a dimension, more where it is small
        pub sketch_size: Auto<Sizes> = Auto::Auto, "D_U[,D_V]";
        /// Most sketches of the data that are released. 0: as many as possible without determining the data: fewer equations
        /// than columns, less for rows with many zeros, and for whole numbers and other entries with few values fewer bits than
        /// a row has
        pub max_releases: usize = 0, "N", count(0);
        group step: StepParams;
        group regularization: RegularizationParams;
        group secure_sum: SecureSumParams;
    }
}

impl Method for DsanlsSecure {
    const DESCRIPTION: &'static Description = &Description {
        name: "dsanls-secure",
        summary: "DSANLS: each iteration releases a sketch of the data, so only a few are allowed",
        paper: PAPER,
        partition: Partition::PartyColumns,
        dp: DifferentialPrivacy::Refused(
            "it releases sketches of the data, and enough noise on them would drown the data",
        ),
        limits: Some([
            "It releases sketches of the data; enough of them determine it (Theorem 3 of the paper), hence the limit.",
            "Few values (counts, also scaled) and many zeros allow few or none. Fewer leave the data undetermined, not secret.",
        ]),
        messages: &[
            MessageSpec::new(LIMITS, "2", "once, before the first release").always_shown(),
            RELEASES[0],
            RELEASES[1],
            SKETCHES_V[0],
            SKETCHES_V[1],
            SKETCHES_U[0],
            SKETCHES_U[1],
            MessageSpec::new(GATHER_U, "m x k", "each evaluation").always_shown(),
            RESIDUALS[0],
            RESIDUALS[1],
            LARGEST_TERM,
            MessageSpec::control(KEYS, "32 bytes", "once, with --secure-sum"),
        ],
        ..Description::USUAL
    };

    fn check(&self) -> Result<()> {
        let kind = match self.sketch {
            SketchKind::Subsample => "subsample",
            SketchKind::Count => "count",
            SketchKind::Gaussian | SketchKind::Uniform | SketchKind::Srht => return Ok(()),
        };
        if self.accepts_sketches() {
            return Ok(());
        }
        Err(Error::input(format!(
            "--sketch {kind}: a single release shows columns of M as they are; use --sketch gaussian, or add {ACCEPT}"
        )))
    }

    fn check_entries(&self, part: &PrivatePart<'_>, blocks: &[&dyn EntryFacts]) -> Result<()> {
        let (all, most) = (part.counts.iter().sum(), part.counts.iter().copied().max().unwrap_or(0));
        let hidden = hidden(all, most);
        sizes(self, (part.length, all, part.k), hidden, |d_u| SafeReleases::of(blocks, hidden, d_u)).map(|_| ())
    }

    fn why_not(name: &str) -> Option<&'static str> {
        (name == "missing").then_some(
            "it reuses a few released sketches of the data, and completed data change with the factors: new sketches would be \
             more releases than are safe, old ones the completion of the start; use syn-ssd-u",
        )
    }

    fn sends(&self, kind: &str) -> bool {
        kind != LIMITS.kind || !self.accepts_sketches()
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(self, problem)
    }
}

impl DsanlsSecure {
    fn accepts_sketches(&self) -> bool {
        self.secure_sum.disclosure.accept_risk.contains(Risk::Sketches)
    }
}

/// The option that allows releases that reveal the data.
const ACCEPT: &str = "--accept-risk sketches";

const RELEASE: MessageTag = MessageTag::new("sketch of M", Payload::Sketch);
const SKETCHED_V: MessageTag = MessageTag::new("sketched V", Payload::SketchedFactor);
const SKETCHED_U: MessageTag = MessageTag::new("sketched U", Payload::SketchedFactor);
const LIMITS: MessageTag = MessageTag::new("limits of releases", Payload::Metadata);
const GATHER_U: MessageTag = MessageTag::of_evaluation("evaluation: gather U", Payload::SharedFactor);

const RELEASES: [MessageSpec; 2] = summed(RELEASE, "m x d_U", "each of the first --max-releases iterations");
const SKETCHES_V: [MessageSpec; 2] = summed(SKETCHED_V, "d_U x k", "each iteration");
const SKETCHES_U: [MessageSpec; 2] = summed(SKETCHED_U, "d_V x k", "each iteration");
const RESIDUALS: [MessageSpec; 2] = summed(metrics::RESIDUAL, "1; 2 with penalties", "each evaluation");
/// Rows of S that are generated at a time.
const CHUNK: usize = 256;

/// A party, with its rows of U and its terms of the sums.
struct SecureParty<T: Real> {
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

struct DsanlsSecureRun<T: Real> {
    comm: PartyCommunicator,
    party_sum: PartySum,
    public: PublicInfo,
    draws: Draws,
    step: SketchedStep,
    /// Maximum number of releases.
    limit: usize,
    members: Vec<SecureParty<T>>,
    /// S for U's step, of which `CHUNK` rows are generated at a time, and S' for V's step.
    across: Box<dyn Sketch<T>>,
    down: Box<dyn Sketch<T>>,
    chunk: Array2<T>,
    eye: Array2<T>,
    /// All releases so far, stacked: (limit · m) × d_U. Every party has them.
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

/// The number of columns that the party with the most columns does not know, of `all`: the unknowns of the equations.
fn hidden(all: usize, most: usize) -> usize {
    // A single party has no other party to hide its columns from.
    if most == all { all } else { all - most }
}

/// Safe numbers of releases for entries of parties.
#[derive(Debug, Clone, Copy)]
struct SafeReleases {
    /// The largest number of releases with fewer bits than the unknown part of a row; `None` if no party's entries have few
    /// values.
    for_few_values: Option<usize>,
    /// The largest number of releases with fewer equations than basis pursuit needs for the sparsest row.
    for_zeros: usize,
}

impl SafeReleases {
    /// The limits of these blocks for releases of `d_u` columns, `hidden` of which a party does not know.
    fn of(blocks: &[&dyn EntryFacts], hidden: usize, d_u: usize) -> Self {
        let unknown = hidden as f64;
        let for_few_values = blocks
            .iter()
            .filter_map(|block| Some((unknown * block.bits()? / (d_u as f64 * block.precision())) as usize));
        let for_zeros = blocks.iter().map(|block| {
            (pursuit::insufficient_equations(block.nonzero_share(), unknown) as usize).min(hidden.saturating_sub(1))
                / d_u
        });
        SafeReleases { for_few_values: for_few_values.min(), for_zeros: for_zeros.min().unwrap_or(usize::MAX) }
    }

    /// The smallest limits of all parties; each looks at its own entries, because those of all would have to be shared.
    /// Collective.
    fn agree(self, comm: &PartyCommunicator, hosted: usize) -> Self {
        let sent = |limit: usize| u32::MAX - u32::try_from(limit).unwrap_or(u32::MAX - 1).min(u32::MAX - 1);
        let for_zeros = Some(self.for_zeros).filter(|&limit| limit < usize::MAX);
        let mut smallest = [self.for_few_values, for_zeros].map(|limit| limit.map_or(0, sent));
        comm.max(LIMITS, hosted, DeclaredMut(&mut smallest));
        let [for_few_values, for_zeros] = smallest.map(|limit| (limit > 0).then_some((u32::MAX - limit) as usize));
        SafeReleases { for_few_values, for_zeros: for_zeros.unwrap_or(usize::MAX) }
    }
}

/// Limit on the entries of all releases, which are kept in memory.
const MAX_KEPT: usize = 1 << 40;

/// d_U, d_V and the number of releases, from which no party can compute its `hidden` columns. `safe_for_entries` maps d_U
/// to the number that the entries allow.
fn sizes(
    args: &DsanlsSecure,
    (m, n, k): (usize, usize, usize),
    hidden: usize,
    safe_for_entries: impl Fn(usize) -> SafeReleases,
) -> Result<(usize, usize, usize)> {
    let (d_u, d_v) = match args.sketch_size.given() {
        Some(sizes) => (sizes.u.of(n), sizes.v.of(m)),
        None => (sketch::default_size(n, k).min(hidden.saturating_sub(1).max(1)), sketch::default_size(m, k)),
    };
    if d_u > n || d_v > m {
        return Err(Error::input(format!(
            "--sketch-size {d_u},{d_v}: at most the matrix's own {n} columns for U's update and {m} rows for V's"
        )));
    }
    let safe = (hidden - 1) / d_u;
    let limit = if args.max_releases == 0 { safe } else { args.max_releases };
    let kept = limit.checked_mul(m).and_then(|rows| rows.checked_mul(d_u));
    if kept.is_none_or(|entries| entries > MAX_KEPT) {
        return Err(Error::input(format!(
            "--max-releases {limit}: {m} x {d_u} numbers each are more than any memory holds; {} release(s) determine M",
            n.div_ceil(d_u)
        )));
    }
    if args.accepts_sketches() {
        return Ok((d_u, d_v, limit.max(1)));
    }
    if safe == 0 || limit > safe {
        return Err(Error::input(format!(
            "--max-releases {}: {} sketches with {d_u} of {n} columns are enough for a party to compute the {hidden} columns \
             of the others; at most {safe} are allowed (a smaller --sketch-size allows more) without {ACCEPT}",
            limit.max(1),
            hidden.div_ceil(d_u)
        )));
    }
    let SafeReleases { for_few_values, for_zeros } = safe_for_entries(d_u);
    let allowed = limit.min(for_zeros).min(for_few_values.unwrap_or(usize::MAX));
    if allowed >= 1 && args.max_releases <= allowed {
        return Ok((d_u, d_v, allowed));
    }
    let why = match for_few_values {
        Some(bits) if bits <= for_zeros => format!(
            "entries have few values (whole numbers, multiples of a unit, or logarithms of them), so the numbers of {limit} \
             sketch(es) of {d_u} columns have more bits than what a party does not know of a row, and lattice reduction may \
             find it"
        ),
        _ => {
            format!("rows have many zeros, so that basis pursuit may find one from {limit} sketch(es) of {d_u} columns")
        }
    };
    Err(Error::input(format!(
        "--max-releases {}: a party's {why}; {allowed} are allowed (a smaller --sketch-size allows more) without {ACCEPT}",
        limit.max(1)
    )))
}

fn build<T: Real>(args: &DsanlsSecure, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let public = PublicInfo::of(&data, k, Some(&args.regularization));
    let PublicInfo { m, n, order, .. } = public;
    let hidden = hidden(n, data.cuts.cols.iter().map(Range::len).max().unwrap_or(0));
    let facts: Vec<&dyn EntryFacts> = data.blocks.iter().map(|block| block as &dyn EntryFacts).collect();
    let safe = |d_u| SafeReleases::of(&facts, hidden, d_u).agree(&comm, facts.len());
    let (d_u, d_v, limit) = sizes(args, (m, n, k), hidden, safe).map_err(Error::on_all_ranks)?;
    let rows_of = |range: Range<usize>| match (range.start, range.end) {
        (a, b) if a < b => even_part(m, parties.count, a).start..even_part(m, parties.count, b - 1).end,
        _ => 0..0,
    };
    let u_rows = rows_by_rank(parties, rows_of);
    let mine = hosted_parties(data, &public, PartyMissing::None, seed, (&comm, parties))?;
    let member = |party: Party<T>| {
        let rows = even_part(m, parties.count, party.index);
        let mut u = order.zeros(rows.len(), k);
        init::u(seed, &rows, public.scales[0], u.view_mut());
        SecureParty {
            rhs: order.zeros(rows.len(), k),
            sketch: order.zeros(party.cols.len(), d_u),
            release: order.zeros(m, d_u),
            shares: [order.zeros(d_u, k), order.zeros(d_v, k)],
            party,
            rows,
            u,
        }
    };
    Ok(Box::new(DsanlsSecureRun {
        party_sum: party_sum(&comm, parties, &args.secure_sum, None)?,
        draws: Draws { seed, parties: parties.count },
        step: SketchedStep::new(&args.step),
        limit,
        members: mine.into_iter().map(member).collect(),
        across: sketch::make(args.sketch, n, d_u, CHUNK, order),
        down: sketch::make(args.sketch, m, d_v, k, order),
        chunk: order.zeros(d_u, CHUNK),
        eye: Array2::eye(CHUNK),
        released: Array2::zeros((limit * m, d_u)),
        release: order.zeros(m, d_u),
        fixed: [order.zeros(d_u, k), order.zeros(d_v, k)],
        scratch: Scratch::new(&public),
        u_parts: Parts::new(&u_rows, k),
        u_rows,
        public,
        comm,
        iteration: 0,
    }))
}

/// The rows of U that each rank's parties own; a rank without parties has an empty range where the last one ended.
fn rows_by_rank(parties: Parties, rows_of: impl Fn(Range<usize>) -> Range<usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let each = (0..parties.ranks).map(|rank| {
        let rows = rows_of(parties.hosted(rank));
        if rows.is_empty() && parties.hosted(rank).is_empty() {
            return end..end;
        }
        end = rows.end;
        rows
    });
    each.collect()
}

impl<T: Real> DsanlsSecureRun<T> {
    /// The stream of the sketch of release `number`.
    fn stream(draws: &Draws, number: usize) -> Stream {
        sketch::stream(draws.seed, true, number)
    }

    /// Generates each party's rows of S.
    fn draw(&mut self, number: usize) {
        let DsanlsSecureRun { comm, draws, members, across, chunk, eye, .. } = self;
        comm.work("draw S", || {
            across.draw(&Self::stream(draws, number));
            for SecureParty { party, sketch, .. } in members.iter_mut() {
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
        let DsanlsSecureRun {
            comm,
            party_sum,
            public,
            draws,
            step,
            members,
            down,
            released,
            release,
            fixed,
            scratch,
            ..
        } = self;
        let PublicInfo { m, n, scales: [scale_u, scale_v], .. } = *public;
        let [fixed_v, fixed_u] = fixed;
        let lies = s![number * m..(number + 1) * m, ..];
        if t < self.limit {
            comm.work("sketch M", || {
                for SecureParty { party, sketch, release, .. } in members.iter_mut() {
                    party.block.mul(&sketch.view(), &mut release.view_mut());
                }
            });
            let expected = (public.norm2 / m as f64 / fixed_v.nrows() as f64).sqrt();
            party_sum.sum(
                comm,
                RELEASE,
                expected,
                members.iter().map(|x| x.release.entries()),
                release.entries_mut(),
            )?;
            released.slice_mut(lies).assign(release);
        }

        for SecureParty { party, sketch, shares, .. } in members.iter_mut() {
            gemm(T::one(), &sketch.t(), &party.v.view(), T::zero(), &mut shares[0].view_mut());
        }
        let expected = scale_v * n as f64 / fixed_v.nrows() as f64;
        party_sum.sum(
            comm,
            SKETCHED_V,
            expected,
            members.iter().map(|x| x.shares[0].entries()),
            fixed_v.entries_mut(),
        )?;
        comm.work("U's step", || {
            let g = &mut scratch.gram;
            gram(&fixed_v.view(), &mut g.view_mut());
            let norm2 = trace(g);
            let sketched = released.slice(lies);
            for SecureParty { rows, u, rhs, .. } in members.iter_mut() {
                let own = sketched.slice(s![rows.clone(), ..]);
                gemm(T::one(), &own, &fixed_v.view(), T::zero(), &mut rhs.view_mut());
                let g = (&g.view(), public.penalties.u);
                step.apply(&mut u.view_mut(), &rhs.view(), g, norm2, t, &mut scratch.probe.view_mut());
            }
        });

        comm.work("sketch U", || {
            down.draw(&draws.shared(t));
            for SecureParty { rows, u, shares, .. } in members.iter_mut() {
                down.sketch_rows(rows.start, &u.view(), &mut shares[1].view_mut());
            }
        });
        let expected = scale_u * m as f64 / fixed_u.nrows() as f64;
        party_sum.sum(
            comm,
            SKETCHED_U,
            expected,
            members.iter().map(|x| x.shares[1].entries()),
            fixed_u.entries_mut(),
        )?;
        comm.work("V's step", || {
            let g = &mut scratch.gram;
            gram(&fixed_u.view(), &mut g.view_mut());
            let norm2 = trace(g);
            for SecureParty { party, .. } in members.iter_mut() {
                down.product(&party.block, &fixed_u.view(), &mut party.rhs.view_mut());
                let (r, g) = (&party.rhs.view(), (&g.view(), public.penalties.v));
                step.apply(&mut party.v.view_mut(), r, g, norm2, t, &mut scratch.probe.view_mut());
            }
        });
        self.iteration += 1;
        Ok(())
    }
}

impl<T: Real> Algorithm<T> for DsanlsSecureRun<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        (0..n).try_for_each(|_| self.iterate())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let PublicInfo { m, k, .. } = self.public;
        let mut own = Array2::zeros((self.u_rows[self.comm.rank()].len(), k));
        let first = self.u_rows[self.comm.rank()].start;
        for SecureParty { rows, u, .. } in &self.members {
            own.slice_mut(s![rows.start - first..rows.end - first, ..]).assign(u);
        }
        let mut whole = Array2::zeros((m, k));
        self.comm.gather(GATHER_U, self.members.len(), Declared(own.entries()), &self.u_parts, whole.entries_mut());
        let parts = self.members.iter().map(|x| (&x.party, &*x.party.v));
        fit(&self.comm, &mut self.party_sum, &self.public, parts, &whole.view())
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let us = self.members.iter().map(|x| Piece::shared("U", self.public.m, x.rows.start, x.u.view()));
        us.chain(self.members.iter().map(|x| Piece::private("V", x.party.index, x.party.v.view()))).collect()
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(self.factors());
        state.matrices.push(Piece::shared("released", self.released.nrows(), 0, self.released.view()));
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        saved.rows("released", Owner::Shared, 0, self.released.view_mut())?;
        for SecureParty { party, rows, u, .. } in &mut self.members {
            saved.rows("U", Owner::Shared, rows.start, u.view_mut())?;
            saved.rows("V", Owner::Party(party.index), 0, party.v.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        vec![
            Decision::SketchSize(Factor::U, self.release.ncols()),
            Decision::SketchSize(Factor::V, self.down.size()),
            Decision::Releases(self.limit),
            Decision::ProximalWeight(self.step.alpha()),
        ]
    }
}
