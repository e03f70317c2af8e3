//! Syn-SD and Syn-SSD (Qian et al. 2022, Alg. 4 and 5): in each round, each party factorises its columns with a copy U_r of
//! U for `--local-iters` steps; then the copies are averaged.
//!
//! * `syn-sd`: nothing else is exchanged.
//! * `syn-ssd-u`: each local step fits V_r to the average of the sketched copies S₂ᵀU_r, a few rows of U. This ties the
//!   copies together: the error approaches that of the pooled matrix.
//! * `syn-ssd-v`: U_r's step is sketched by S₁, which samples or mixes the party's own columns; nothing more is sent.
//! * `syn-ssd-uv`: both.
//!
//! S₂ is the same for all parties. S₁ is private to a party, and no value computed with it is summed. Averages are weighted
//! by the parties' numbers of columns. `--weights equal` averages as in the paper, and converges far more slowly if one
//! party has most columns. V's step comes first (`--order`). With U first, as in the paper, a fit to an old V replaces the
//! fresh average. At the end each party fits V_r to the final U locally; `rel_error` is computed with that fit, and
//! `rel_error_unfitted` without it.

use std::fmt;
use std::ops::Range;

use ndarray::Array2;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::{KEYS, PartySum, show_term};
use fednmf_comm::{MessageTag, PartyCommunicator, Payload};
use fednmf_data::state::{Piece, SavedState, State};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::Sketch;
use fednmf_linalg::{Real, gram};
use fednmf_privacy::{NoisePlan, Releases};

use super::{
    PAPER, Party, PublicInfo, Refitted, fit, hosted_parties, normalize_by_survivors, pieces, relative_error, restore,
    start_u, summed,
};
use crate::cost::{Cost, Kernel, Shape, Sketched, Workload};
use crate::decision::Decision;
use crate::description::{Description, DifferentialPrivacy, LARGEST_TERM, MessageSpec, Partition, ProtectedUnit, Unit};
use crate::federated::columns::local::{
    Draws, LocalParams, LocalParty, NoGroup, OptionalGroup, Scratch, UpdateOrder, sketch_sizes, trace,
};
use crate::method::{ConfiguredMethod, Method};
use crate::metrics;
use crate::shared::alternating::Factor;
use crate::shared::disclosure::OpenedSums;
use crate::shared::dp;
use crate::shared::dp::{DpParams, Expected, Messages};
use crate::shared::init::start_entry;
use crate::shared::missing::Side;
use crate::shared::secure_sum::{SURVIVING, SecureSumParams, ThresholdParams, party_sum};
use crate::shared::sketched_step::{SketchParams, SketchedStep};
use crate::{Algorithm, Measures, Problem};

fednmf_base::words! {
    /// How the parties' copies of U are weighted in averages.
    pub enum PartyWeights {
        /// By the number of a party's columns, so that each column counts alike
        Columns = "columns",
        /// Equally, as printed in the paper
        Equal = "equal",
    }
}

fednmf_base::parameters! {
    /// Parameters that all variants share.
    pub struct SynParams {
        group local: LocalParams;
        /// Weights of the parties in averages of U; they differ where the parties have different numbers of columns
        pub weights: PartyWeights = PartyWeights::Columns, "HOW";
        group secure_sum: SecureSumParams;
        group threshold: ThresholdParams;
    }
}

/// The differences between the variants.
pub trait Variant: fmt::Debug + Clone + PartialEq + Send + Sync + 'static {
    const DESCRIPTION: &'static Description;
    /// Whether V_r is fitted to the average of the sketched copies S₂ᵀU_r, in each local step.
    const AVERAGES_SKETCHES: bool;
    /// Whether U_r's step is sketched by S₁.
    const SKETCHES_COLUMNS: bool;

    type Sketch: OptionalGroup<SketchParams>;
    type Dp: OptionalGroup<DpParams>;
}

fednmf_base::parameters! {
    /// Parameters of a variant.
    pub struct SynVariant<V: Variant> {
        group syn: SynParams;
        group sketch: V::Sketch;
        group dp: V::Dp;
    }
}

/// Syn-SD.
#[derive(Debug, Clone, PartialEq)]
pub struct Sd;
/// Syn-SSD-U.
#[derive(Debug, Clone, PartialEq)]
pub struct SsdU;
/// Syn-SSD-V.
#[derive(Debug, Clone, PartialEq)]
pub struct SsdV;
/// Syn-SSD-UV.
#[derive(Debug, Clone, PartialEq)]
pub struct SsdUv;

pub type SynSd = SynVariant<Sd>;
pub type SynSsdU = SynVariant<SsdU>;
pub type SynSsdV = SynVariant<SsdV>;
pub type SynSsdUv = SynVariant<SsdUv>;

impl Variant for Sd {
    const DESCRIPTION: &'static Description =
        &averaging("syn-sd", "each party factorises its columns, and copies of U are averaged periodically");
    const AVERAGES_SKETCHES: bool = false;
    const SKETCHES_COLUMNS: bool = false;
    type Sketch = NoGroup;
    type Dp = DpParams;
}

impl Variant for SsdU {
    const DESCRIPTION: &'static Description = &averaging_sketches(
        "syn-ssd-u",
        "as syn-sd; a few rows (a sketch) of the copies of U are averaged in every step",
    );
    const AVERAGES_SKETCHES: bool = true;
    const SKETCHES_COLUMNS: bool = false;
    type Sketch = SketchParams;
    type Dp = NoGroup;
}

impl Variant for SsdV {
    const DESCRIPTION: &'static Description =
        &averaging("syn-ssd-v", "as syn-sd; U's steps see a sketch of the party's own columns");
    const AVERAGES_SKETCHES: bool = false;
    const SKETCHES_COLUMNS: bool = true;
    type Sketch = SketchParams;
    type Dp = DpParams;
}

impl Variant for SsdUv {
    const DESCRIPTION: &'static Description = &averaging_sketches("syn-ssd-uv", "syn-ssd-u and syn-ssd-v together");
    const AVERAGES_SKETCHES: bool = true;
    const SKETCHES_COLUMNS: bool = true;
    type Sketch = SketchParams;
    type Dp = NoGroup;
}

const AVERAGE_U: MessageTag = MessageTag::new("average of U_r", Payload::SharedFactor);
const AVERAGE_SKETCH: MessageTag = MessageTag::new("average of sketched U_r", Payload::SketchedFactor);

const AVERAGES: [MessageSpec; 2] = summed(AVERAGE_U, "m x k", "each round");
const SKETCHES: [MessageSpec; 2] = summed(AVERAGE_SKETCH, "d_V x k", "each local step");
const RESIDUALS: [MessageSpec; 2] = summed(metrics::RESIDUAL, "1; once 2 with penalties", "twice each evaluation");
const KEY: MessageSpec = MessageSpec::control(KEYS, "32 bytes", "once, with --secure-sum");

/// The description of a variant whose only release is U_r, once a round, and which therefore offers `--dp`.
const fn averaging(name: &'static str, summary: &'static str) -> Description {
    Description {
        name,
        summary,
        paper: PAPER,
        partition: Partition::PartyColumns,
        unit: Unit::Round,
        dp: DifferentialPrivacy::Offered(ProtectedUnit::Party),
        limits: Some([
            "Without --dp all parties see each U_r (with --secure-sum only the mean), which reveals some of its data.",
            "--epsilon covers a whole run, unless --eval-every or --scale max makes it share more. Its last table says so.",
        ]),
        messages: &[
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
        ],
        ..Description::USUAL
    }
}

/// The description of a variant that also averages sketches of U_r in each local step.
const fn averaging_sketches(name: &'static str, summary: &'static str) -> Description {
    Description {
        dp: DifferentialPrivacy::Refused(
            "rows of U are released in every local step, more often than a budget can cover; use syn-sd",
        ),
        limits: Some([
            "All parties see each U_r (with --secure-sum only the mean), which reveals some of its party's data.",
            "Parties are honest but curious; all others together can compute a party's term. No noise is added.",
        ]),
        messages: &[
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
        ],
        ..averaging(name, summary)
    }
}

/// What parties release with `--dp`: U_r, with entries of this size at the start.
fn messages(max_iters: usize, length: usize, entry: f64) -> Messages {
    Messages { max_iters, once: false, length, natural: None, entry, boolean: false }
}

impl<V: Variant> Method for SynVariant<V> {
    const DESCRIPTION: &'static Description = V::DESCRIPTION;

    fn check(&self) -> Result<()> {
        self.sketch.group().map_or(Ok(()), |args| self.syn.local.check_sketch(args.sketch))
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        self.syn.cost(self.sketches(), workload, ranks).map(Some)
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        // An average of U in a round, and one of a sketch of it in each local step.
        Some(OpenedSums::EachIteration(1 + if V::AVERAGES_SKETCHES { self.syn.local.local_iters } else { 0 }))
    }

    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>> {
        let groups = ConfiguredMethod::groups(self);
        let Some(dp) = groups.dp else { return Ok(None) };
        dp::plan(dp, Method::masks_sums(self), messages(run.max_iters, run.m * run.k, 1.0), run.parties)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        build(&self.syn, self.sketches(), self.dp.group(), problem)
    }
}

impl<V: Variant> SynVariant<V> {
    fn sketches(&self) -> Sketches<'_> {
        let sketch = self.sketch.group();
        Sketches { exchanged: sketch.filter(|_| V::AVERAGES_SKETCHES), own: sketch.filter(|_| V::SKETCHES_COLUMNS) }
    }
}

/// The sketches of a variant.
#[derive(Debug, Clone, Copy)]
struct Sketches<'a> {
    /// S₂, of the copies of U that are averaged in each local step.
    exchanged: Option<&'a SketchParams>,
    /// S₁, of the party's own columns.
    own: Option<&'a SketchParams>,
}

impl SynParams {
    /// The cost of a round on `ranks` ranks.
    fn cost(&self, sketches: Sketches<'_>, workload: &Workload, ranks: usize) -> Result<Cost> {
        let Workload { m, n, k, word, sparse, stored: all_stored, .. } = *workload;
        let (parties, hosted) = workload.parties(ranks);
        let own = n.div_ceil(parties);
        let cols = own * hosted;
        let steps = self.local.local_iters;
        let sizes = sketches.exchanged.or(sketches.own).and_then(|args| args.sketch_size.given());
        let d_v = sizes.map_or(sketch::default_size(m, k), |sizes| sizes.v.of(m));
        if d_v > m {
            return Err(Error::input(format!("--sketch-size: {d_v} rows for V's update, but the matrix has {m}")));
        }
        let mut cost = Cost::default();
        let (product, square, t) = (2.0 * k as f64, 2.0 * (k * k) as f64, steps as f64);
        let stored = workload.part(m, cols);
        let part = |across, own, products| Sketched { across, own, products };
        const DRAWN: &str = "the flops of sketches depend on which rows are drawn and on each party's columns";
        // V's steps: against the whole U, or against the average of its sketches.
        if let Some(args) = sketches.exchanged {
            let sizes = [part(cols, m * hosted, hosted), part(n, m * parties, parties)];
            workload.sketched(&mut cost, args.sketch, Kernel::SampledForV, (m, d_v), t, sizes);
            cost.add(Kernel::Gram, t * square * d_v as f64, t * square * (d_v * ranks) as f64);
            let sum = [(AVERAGE_SKETCH, d_v * k)];
            self.secure_sum.add_cost(Some(&self.threshold), &mut cost, (ranks, parties), &sum, (word, steps as u64));
        } else {
            cost.add(Kernel::Tmul, t * product * stored, t * product * all_stored);
            cost.add(Kernel::Gram, t * square * (m * hosted) as f64, t * square * (m * parties) as f64);
        }
        // U's steps: on the party's own columns, all of them or a sketch.
        if let Some(args) = sketches.own {
            let d_u = sizes.map_or(sketch::default_size(own, k), |sizes| sizes.u.of(own)).min(own);
            let sizes = [part(m * hosted, cols, hosted), part(m * parties, n, parties)];
            workload.sketched(&mut cost, args.sketch, Kernel::SampledForU, (own, d_u), t, sizes);
            cost.add(Kernel::Gram, t * square * (d_u * hosted) as f64, t * square * (d_u * parties) as f64);
            if n % parties != 0 || sparse {
                cost.caveat(DRAWN);
            }
        } else {
            cost.add(Kernel::Mul, t * product * stored, t * product * all_stored);
            cost.add(Kernel::Gram, t * square * cols as f64, t * square * n as f64);
        }
        if sketches.exchanged.is_some() && sparse {
            cost.caveat(DRAWN);
        }
        let updates = (cols + m * hosted) as f64;
        cost.add(Kernel::Sweep, t * square * updates, t * square * (n + m * parties) as f64);
        self.secure_sum.add_cost(Some(&self.threshold), &mut cost, (ranks, parties), &[(AVERAGE_U, m * k)], (word, 1));
        let gram = if sketches.exchanged.is_some() { d_v } else { m };
        cost.shape = Shape { block: (m, own), updated: m, gram, ..cost.shape };
        // U's sketched steps need the columns as rows: a second copy.
        cost.data = workload.block(m * hosted, stored) * if sketches.own.is_some() { 2.0 } else { 1.0 };
        cost.factors = workload.bytes((2 * cols + (2 + hosted) * m) * k) + (16 * m * k) as f64;
        Ok(cost)
    }
}

/// Buffers of the sketched exchange of `syn-ssd-u` and `-uv` on a rank.
struct Exchange<T: Real> {
    /// S₂, m × d
    sketch: Box<dyn Sketch<T>>,
    /// Each hosted party's term of the average of S₂ᵀU_r, d × k
    shares: Vec<Array2<T>>,
    /// The average.
    fixed: Array2<T>,
}

struct Syn<T: Real> {
    comm: PartyCommunicator,
    party_sum: PartySum,
    releases: Option<Releases>,
    /// The first hosted party.
    first: usize,
    public: PublicInfo,
    draws: Draws,
    /// Weights of all parties in averages; they add up to 1.
    weights: Vec<f64>,
    step: SketchedStep,
    local_iters: usize,
    v_first: bool,
    members: Vec<LocalParty<T>>,
    exchange: Option<Exchange<T>>,
    scratch: Scratch<T>,
    /// The average, which equals every party's copy between rounds.
    u: Array2<T>,
    refitted: Refitted<T>,
    iteration: usize,
}

fn build<T: Real>(
    args: &SynParams,
    sketches: Sketches<'_>,
    dp: Option<&DpParams>,
    problem: Problem<'_, T>,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, max_iters, parties, comm, .. } = problem;
    let comm = PartyCommunicator::new(comm);
    let public = PublicInfo::of(&data, k, Some(&args.local.regularization));
    let u = start_u(&public, seed);
    let sizes = sketches.exchanged.or(sketches.own).and_then(|args| args.sketch_size.given());
    let (for_u, for_v) = sketch_sizes(sizes, &public).map_err(Error::on_all_ranks)?;
    let weight = |cols: &Range<usize>| match args.weights {
        PartyWeights::Equal => 1.0 / parties.count as f64,
        PartyWeights::Columns => cols.len() as f64 / public.n as f64,
    };
    let cuts = data.cuts.cols.clone();
    let weights = cuts.iter().map(weight).collect();
    let mine = hosted_parties(data, &public, args.local.missing.missing, seed, (&comm, parties))?;
    let own = sketches.own.map(|args| args.sketch);
    let member = |party| LocalParty::new(party, &u, &public, own.map(|kind| (kind, &for_u as &dyn Fn(usize) -> usize)));
    let members: Vec<LocalParty<T>> = mine.into_iter().map(member).collect();
    let exchange = sketches.exchanged.map(|args| Exchange {
        sketch: sketch::make(args.sketch, public.m, for_v, k, public.order),
        shares: members.iter().map(|_| public.order.zeros(for_v, k)).collect(),
        fixed: public.order.zeros(for_v, k),
    });
    let releases = match dp {
        Some(dp) => {
            let messages = messages(max_iters, public.m * public.k, start_entry(public.scales[0]));
            dp::releases(dp, args.secure_sum.secure_sum, messages, parties, &comm)?
        }
        None => None,
    };
    Ok(Box::new(Syn {
        releases,
        first: parties.hosted(comm.rank()).start,
        party_sum: party_sum(&comm, parties, &args.secure_sum, Some((&args.threshold, &cuts)))?,
        comm,
        draws: Draws { seed, parties: parties.count },
        weights,
        step: SketchedStep::new(&args.local.step),
        local_iters: args.local.local_iters,
        v_first: args.local.order == UpdateOrder::VFirst,
        members,
        exchange,
        scratch: Scratch::new(&public),
        public,
        u,
        refitted: Refitted::default(),
        iteration: 0,
    }))
}

impl<T: Real> Syn<T> {
    /// V's step of all parties: each against its own copy of U, or against the average of the sketched copies.
    fn step_v(&mut self, t: usize) -> Result<()> {
        let Syn { comm, party_sum, public, draws, weights, step, members, exchange, scratch, .. } = self;
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
        let expected = public.scales[0] * public.m as f64 / sketch.size() as f64;
        party_sum.sum(comm, AVERAGE_SKETCH, expected, shares.iter().map(Contiguous::entries), fixed.entries_mut())?;
        normalize_by_survivors(party_sum, weights, fixed);
        comm.work("V's step", || {
            gram(&fixed.view(), &mut scratch.gram.view_mut());
            let norm2 = trace(&scratch.gram);
            for LocalParty { party, .. } in members.iter_mut() {
                let Party { block, missing, v, rhs, .. } = party;
                sketch.product(block, &fixed.view(), &mut rhs.view_mut());
                if let (Some(missing), Some(picked)) = (missing, sketch.picked()) {
                    let picked = (picked, &fixed.view());
                    missing.complete_sample(Side::Columns, &v.view(), picked, &scratch.gram.view(), rhs);
                }
                let (r, g) = (&party.rhs.view(), (&scratch.gram.view(), public.penalties.v));
                step.apply(&mut party.v.view_mut(), r, g, norm2, t, &mut scratch.probe.view_mut());
            }
        });
        Ok(())
    }

    /// U's step of all parties, on their own copies.
    fn step_u(&mut self, t: usize) {
        let Syn { comm, draws, step, members, scratch, .. } = self;
        comm.work("U's step", || members.iter_mut().for_each(|x| x.step_u(step, t, draws, scratch)));
    }

    /// U ← weighted mean of all U_r.
    fn average(&mut self) -> Result<()> {
        let Syn { comm, party_sum, public, weights, members, u, .. } = self;
        for member in members.iter_mut() {
            let weight = T::from_f64(weights[member.party.index]);
            member.u.mapv_inplace(|x| x * weight);
        }
        members.iter().for_each(|member| show_term(comm, member.party.index, &member.u));
        party_sum.sum(comm, AVERAGE_U, public.scales[0], members.iter().map(|x| x.u.entries()), u.entries_mut())?;
        normalize_by_survivors(party_sum, weights, u);
        Ok(())
    }

    /// The same from each party's weighted change of the mean, w_r (U_r − U), which is clipped and noised.
    fn average_noised(&mut self) -> Result<()> {
        let Syn { comm, party_sum, releases, public, weights, members, u, iteration, .. } = self;
        let Some(releases) = releases else { return Ok(()) };
        releases.open(*iteration, u.entries())?;
        for member in members.iter_mut() {
            let weight = T::from_f64(weights[member.party.index]);
            member.u.zip_mut_with(u, |own, mean| *own = weight * (*own - *mean));
        }
        if party_sum.is_masked() {
            let fill = |hosted: usize, out: &mut [u64]| {
                releases.release_words(hosted, Some(members[hosted].u.entries()), None, out)
            };
            let sum = party_sum.sum_noised_words(comm, AVERAGE_U, u.len(), fill);
            u.entries_mut().iter_mut().zip(sum).for_each(|(x, sum)| *x += T::from_f64(releases.decode(*sum)));
        } else {
            let noised: Vec<_> = comm.work("noise", || {
                let members = members.iter_mut().enumerate();
                members.map(|(hosted, x)| releases.release(hosted, x.u.entries_mut(), None)).collect()
            });
            let mut moved = u.clone();
            party_sum.sum_noised(comm, AVERAGE_U, public.scales[0], &noised, moved.entries_mut())?;
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
        self.refitted.get(self.members.iter().map(|x| &x.party), &self.u.view(), &self.public)
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
        let Syn { comm, party_sum, public, members, u, refitted, .. } = self;
        let each = || members.iter().map(|x| &x.party);
        let fitted = each().zip(refitted.get(each(), &u.view(), public));
        let mut all = fit(comm, party_sum, public, fitted, &u.view())?;
        let unfitted = relative_error(comm, party_sum, public.norm2, each().map(|p| (p, &*p.v)), &u.view())?;
        all.push(("rel_error_unfitted", unfitted));
        all.extend(party_sum.losses());
        dp::measure(self.releases.as_ref(), party_sum, comm, &mut all)?;
        Ok(all)
    }

    fn done(&self) -> bool {
        self.releases.as_ref().is_some_and(Releases::is_spent)
    }

    fn private_releases(&self) -> Option<&Releases> {
        self.releases.as_ref()
    }

    fn private_releases_mut(&mut self) -> Option<&mut Releases> {
        self.releases.as_mut()
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        pieces(&self.u, self.members.iter().map(|x| &x.party).zip(self.refitted()))
    }

    fn state(&self) -> State<'_, T> {
        let factors = pieces(&self.u, self.members.iter().map(|x| (&x.party, &*x.party.v)));
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

    fn decisions(&self) -> Vec<Decision> {
        let mut all = vec![Decision::ProximalWeight(self.step.alpha())];
        all.extend(self.exchange.as_ref().map(|e| Decision::SketchSize(Factor::V, e.sketch.size())));
        all
    }
}
