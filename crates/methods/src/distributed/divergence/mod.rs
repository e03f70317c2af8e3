//! Factorisations for the generalised Kullback-Leibler divergence, min Σ m log(m / (u·v)) − m + u·v plus the penalties on U
//! and V, which suits counts; and in `beta` for any β-divergence.
//!
//! Rank r owns U[I_r] and V[J_r] and holds the rows M[I_r, :] and the columns M[:, J_r]. Each half of an iteration gathers
//! the whole of the other factor; U is updated first, and V with the new U. The methods differ in the update of a row.

pub mod beta;
pub mod cd;
pub mod mu;
pub mod online;
mod streamed;
pub mod volume;

use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::state::{Owner, Piece, SavedState, State};
use fednmf_data::{Cuts, Statistics};
use fednmf_linalg::Contiguous;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::nls::divergence::{DivergenceUpdate, FixedFactor, add_gram, column_sums};
use fednmf_linalg::random::mix;
use fednmf_linalg::{Block, Order, PerThread, Real, even_part, over_rows};

use crate::cost::{Cost, Kernel, Message, Pattern, Workload};
use crate::decision::Decision;
use crate::description::{DefaultStop, Description, MessageSpec};
use crate::method::SweepSettings;
use crate::metrics;
use crate::metrics::Measure;
use crate::parameters::Init;
use crate::shared::blocks_of_own_lines;
use crate::shared::extrapolation::{Extrapolation, NesterovWeights, extrapolate_growing};
use crate::shared::factor_side::{FactorSide, FactorTags, GATHER_U, GATHER_V, U, V};
use crate::shared::grid;
use crate::shared::init;
use crate::shared::init::{InitParams, Sample, Start, Task};
use crate::shared::missing;
use crate::shared::missing::{MissingParams, UpdateKind};
use crate::shared::rank_data::rank_data;
use crate::shared::regularization;
use crate::shared::regularization::{Penalties, RegularizationParams};
use crate::shared::sizes::Sizes;
use crate::{Algorithm, Measures, Problem};

use self::volume::Volume;

const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(
        GATHER_V,
        "n x k",
        "each iteration, and each evaluation; once for a computed start, or for each of its samples",
    ),
    MessageSpec::new(GATHER_U, "m x k", "each iteration"),
    MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
    MessageSpec::new(metrics::DIVERGENCE, "1", "each evaluation, and once for each sample of the start"),
    regularization::MESSAGES,
    init::MESSAGES[0],
    init::MESSAGES[1],
    init::MESSAGES[2],
    init::MESSAGES[3],
    init::MESSAGES[4],
    init::MESSAGES[5],
    init::MESSAGES[6],
];

/// The same for the methods that support missing entries.
const MESSAGES_WITH_MISSING: &[MessageSpec] = &{
    let mut all = [missing::MESSAGES; MESSAGES.len() + 1];
    let mut i = 0;
    while i < MESSAGES.len() {
        all[i] = MESSAGES[i];
        i += 1;
    }
    all
};

/// The parts of the description that the methods share.
const fn describe(
    name: &'static str,
    alias: &'static [&'static str; 1],
    summary: &'static str,
    paper: &'static str,
    measure: Measure,
) -> Description {
    Description {
        name,
        aliases: alias,
        summary,
        paper,
        measure,
        messages: match measure {
            Measure::Divergence => MESSAGES_WITH_MISSING,
            _ => MESSAGES,
        },
        stop: DefaultStop { max_iters: 1000, tol: Some(1e-5) },
        ..Description::USUAL
    }
}

fednmf_base::parameters! {
    /// Parameters of the methods for the Kullback-Leibler divergence.
    pub struct KlParams {
        group init: InitParams;
        group regularization: RegularizationParams;
        group missing: MissingParams;
    }
}

impl KlParams {
    /// See [`Method::for_sweep`](crate::method::Method::for_sweep).
    fn for_sweep(&self, SweepSettings { missing, regularization, .. }: &SweepSettings) -> Self {
        KlParams { init: InitParams::RANDOM, missing: missing.clone(), regularization: regularization.clone() }
    }

    /// The start: by the sizes, unless one is named or entries are missing.
    fn start(&self) -> InitParams {
        if self.missing.any() { self.init.clone() } else { self.init.by_size() }
    }

    /// Refuses options that exclude each other.
    ///
    /// # Errors
    /// If options exclude each other; the message names one of them.
    fn check(&self, extrapolation: Extrapolation) -> Result<()> {
        if self.missing.any() && extrapolation == Extrapolation::Restart {
            let what = "--extrapolation restart cannot be combined with --missing and --holdout";
            return Err(Error::input(format!("{what}; leave it out")));
        }
        if self.missing.any() && self.init.is_computed() {
            let what = "--init nndsvd, nndsvda, nndsvdar, compressed and sampled cannot be combined with --missing and --holdout";
            return Err(Error::input(format!("{what}; leave it out")));
        }
        Ok(())
    }

    /// The factorisation by `update`, or by its counterpart for observed entries if some are missing. Collective.
    ///
    /// # Errors
    /// If the given start cannot be read.
    fn build<T: Real, R: DivergenceUpdate<T> + Sync>(
        &self,
        problem: Problem<'_, T>,
        update: R,
        of_observed: UpdateKind,
    ) -> SharedResult<Box<dyn Algorithm<T>>> {
        if self.missing.any() {
            return missing::build(problem, &self.missing, &self.regularization, of_observed);
        }
        build(problem, &self.start(), &self.regularization, Loss::KullbackLeibler, update)
    }
}

/// The start. By size it is that of the best of several samples, also for sparse data and short dimensions: the iterations on a
/// sample are those of HALS, which cost a fraction of an update for a divergence. Their number does not depend on whether the data
/// are sparse. From a compressed start with many components, updates for some data change little for hundreds of iterations.
fn choose_start(init: &InitParams, sizes: &Sizes, sparse: bool) -> Start {
    let by_size = init.init == Init::BySize && sizes.k <= sizes.m.min(sizes.n);
    if by_size || init.init == Init::Sampled {
        let sizes = &Sizes { entries: sizes.m as f64 * sizes.n as f64, ..*sizes };
        let start = Start::choose(&Init::Sampled, sizes, false);
        return if by_size { start.with_tries(sizes, TRIAL) } else { start };
    }
    Start::choose(&init.init, sizes, sparse)
}

/// The cost of an iteration with `flops` flops per nonzero and component.
fn cost(init: &InitParams, extrapolation: Extrapolation, workload: &Workload, ranks: usize, flops: f64) -> Cost {
    let Workload { m, n, k, word, stored, sparse, .. } = *workload;
    let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
    let (entries_u, entries_v) = (workload.part(rows, n), workload.part(m, cols));
    let mut cost = Cost::default();
    let entry = flops * k as f64;
    cost.add(Kernel::Other, entry * (entries_u + entries_v), 2.0 * entry * stored);
    for (kind, length) in [(GATHER_V.kind, n), (GATHER_U.kind, m)] {
        cost.messages.extend(Message::shared_out(kind, Pattern::AllGather, (1, ranks), length * k, word));
    }
    cost.data = workload.block(rows, entries_u) + workload.block(cols, entries_v);
    let last = if extrapolation == Extrapolation::Restart { rows + cols } else { 0 };
    cost.factors = workload.bytes((rows + cols + last + m + n) * k);
    // The start is computed on a grid of rows, in which the whole V is gathered, twice if its memory order changes.
    let gathered = if ranks > 1 { if sparse { n } else { 2 * n } } else { 0 };
    let start = choose_start(init, &Sizes { m, n, entries: stored, k }, sparse);
    cost.start = start.bytes(workload, [rows, cols], gathered);
    if let Start::Sampled(sample) = start
        && sample.tries > 1
    {
        // The lines of the trials in both blocks with their factors, and the last and the best start.
        let (short, long, lines) = (m.min(n), m.max(n), sample.drawn(m.max(n)));
        let own = 3 * (lines.div_ceil(ranks) + short.div_ceil(ranks));
        let factors = workload.bytes((own + lines + short + 2 * (rows + cols)) * k);
        cost.start += cost.data * lines as f64 / long as f64 + factors;
    }
    // Before the start several ranks transpose their blocks, one at a time.
    let copy = if ranks > 1 { cost.data / 2.0 } else { 0.0 };
    cost.start = cost.start.max(copy);
    cost
}

/// The largest share of nonzeros at which dense data are compressed. On 2000 × 800 counts, `kl-mu` was faster with compressed rows
/// below a share of about 0.4 for k = 10 and 0.28 for k = 40; `kl-cd` hardly differed.
const COMPRESSED: f64 = 0.25;

/// Iterations on the lines of a trial, by which the start is chosen. With more the choice is hardly better.
const TRIAL: usize = 5;
/// Trials end once the least divergence is found twice, up to this fraction: the data then hardly have other local minima.
const SAME: f64 = 0.003;
/// A later start is chosen only if its divergence is lower by this fraction: rounding, which depends on the number of ranks, decides
/// nothing.
const ROUNDING: f64 = 1e-3;

/// Names in a checkpoint of the rows before the last update.
const LAST_U: &str = "U_last";
const LAST_V: &str = "V_last";

/// A factor, row-major, and the data of its rows.
struct DivergenceSide<T: Real> {
    factor: FactorSide<T>,
    /// The own rows before the last update, from which they are extrapolated; empty without extrapolation.
    last: Array2<T>,
    /// Own rows × rows of the other factor.
    block: Block<T>,
}

/// The loss to minimise.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    KullbackLeibler,
    /// β, and the unit of the data.
    Beta(f64, f64),
}

impl Loss {
    fn beta(self) -> f64 {
        match self {
            Loss::KullbackLeibler => 1.0,
            Loss::Beta(beta, _) => beta,
        }
    }
}

/// A factorisation whose rows are updated by `R`.
struct DivergenceNmf<T: Real, R> {
    comm: Communicator,
    u: DivergenceSide<T>,
    v: DivergenceSide<T>,
    /// Column sums of the fixed factor.
    sums: Vec<f64>,
    updates: PerThread<R>,
    /// Whether updates start at extrapolated rows, and the weights of the extrapolation.
    extrapolates: bool,
    weights: NesterovWeights,
    /// Gram matrix of the fixed factor, for updates that use it.
    gram: Vec<f64>,
    loss: Loss,
    penalties: Penalties,
    /// The minimum-volume penalty.
    volume: Option<Volume<T>>,
    norm2: f64,
    start: Start,
    iteration: usize,
}

/// The factorisation. Collective.
///
/// # Errors
/// If the given start cannot be read, or one cannot be computed.
fn build<T: Real, R: DivergenceUpdate<T> + Sync>(
    problem: Problem<'_, T>,
    init: &InitParams,
    regularization: &RegularizationParams,
    loss: Loss,
    update: R,
) -> SharedResult<Box<dyn Algorithm<T>>> {
    Ok(Box::new(factorisation(problem, init, regularization, loss, update)?))
}

/// As [`build`].
///
/// # Errors
/// If the given start cannot be read, or one cannot be computed.
fn factorisation<T: Real, R: DivergenceUpdate<T> + Sync>(
    problem: Problem<'_, T>,
    init: &InitParams,
    regularization: &RegularizationParams,
    loss: Loss,
    update: R,
) -> SharedResult<DivergenceNmf<T, R>> {
    let Problem { data, k, seed, comm, initial, resuming, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let sparse = data.header.sparse;
    let entries = if sparse { data.statistics.nonzeros as f64 } else { m as f64 * n as f64 };
    let start = match initial {
        Some(_) => Start::Given,
        None => choose_start(init, &Sizes { m, n, entries, k }, sparse),
    };
    let [block_u, block_v] = blocks_of_own_lines(data.blocks, comm.size());
    let side = |block: Block<T>, tags: FactorTags, cuts: &[Range<usize>]| {
        let factor = FactorSide::of_all_ranks(tags, &comm, cuts, k, Order::RowMajor).with_gathered();
        DivergenceSide { factor, last: Array2::zeros((0, k)), block }
    };
    let mut u = side(block_u, U, &data.cuts.rows);
    let mut v = side(block_v, V, &data.cuts.cols);
    // Only nonzeros have work: dense blocks of few nonzeros are compressed, on all ranks or on none.
    let nonzeros = data.statistics.nonzeros as f64;
    let compresses = loss == Loss::KullbackLeibler && !sparse && nonzeros <= COMPRESSED * m as f64 * n as f64;
    let penalties = regularization.penalties((m, n));
    match initial {
        // A checkpoint replaces the start.
        None if start != Start::Random && !resuming => {
            let cuts = Cuts { rows: data.cuts.rows.clone(), cols: std::iter::once(0..n).collect() };
            let Statistics { sum, norm2, .. } = data.statistics;
            let entries = if matches!(start, Start::Sampled(_)) { m as f64 * n as f64 } else { entries };
            let task = Task { comm: &comm, cuts: &cuts, shape: (m, n), entries, k, sum, norm2, seed };
            match start {
                Start::Sampled(sample) if sample.tries > 1 => {
                    from_best_sample(sample, &task, (loss, &update, compresses), [&mut u, &mut v])?;
                }
                _ => from_data(start, &task, &mut u, &mut v.factor)?,
            }
        }
        _ => {
            let scales = init::random_scales(penalties, data.statistics.sum, (m, n), k, loss.beta());
            init::given_or_random(initial, seed, scales, &comm, [&mut u.factor, &mut v.factor])?;
        }
    }
    if compresses {
        for side in [&mut u, &mut v] {
            let block = std::mem::replace(&mut side.block, Block::Dense(Array2::zeros((0, 0)).into()));
            side.block = block.sparsified();
        }
    }
    if start != Start::Random && initial.is_none() && !resuming {
        init::balance(&comm, penalties, data.statistics.sum, [&mut u.factor.own, &mut v.factor.own]);
    }
    Ok(DivergenceNmf { norm2: data.statistics.norm2, start, ..DivergenceNmf::new(comm, u, v, loss, penalties, update) })
}

/// Writes a start that is computed from the data, of which each rank has a block of rows. No entry is 0, because
/// multiplicative updates keep zeros. Collective.
///
/// # Errors
/// On all ranks, if the start cannot be computed.
fn from_data<T: Real>(
    start: Start,
    task: &Task<'_>,
    u: &mut DivergenceSide<T>,
    v: &mut FactorSide<T>,
) -> SharedResult<()> {
    let Task { comm, cuts, shape: (m, n), k, sum, .. } = *task;
    let rows = grid::own_rows(comm, cuts);
    let block = std::mem::replace(&mut u.block, Block::Dense(Array2::zeros((0, 0)).into()));
    let data = rank_data(vec![block], None, None);
    let scales = [init::scale(sum, (m, n), k); 2];
    let (data, [start_u, start_v]) = init::on_grid(start, None, task, true, data, rows.each_ref(), scales)?;
    u.block = data.into_block().expect("the data are in memory");
    u.factor.own.assign(&start_u);
    // The grid distributes the rows of V evenly; the update distributes them by the number of entries in their columns.
    let even: Vec<Range<usize>> = (0..comm.size()).map(|rank| even_part(n, comm.size(), rank)).collect();
    let mut of_grid = FactorSide::of_all_ranks(V, comm, &even, k, Order::RowMajor);
    of_grid.own.assign(&start_v);
    v.own.assign(&of_grid.gather_copy().slice(s![v.own_rows.clone(), ..]));
    Ok(())
}

/// As [`from_data`] from the best of several samples. A start counts by its divergence after a few iterations on lines that are drawn
/// independently, so that no start is judged on its own sample. Collective.
///
/// # Errors
/// On all ranks, if a start cannot be computed.
fn from_best_sample<T: Real, R: DivergenceUpdate<T> + Sync>(
    sample: Sample,
    task: &Task<'_>,
    (loss, update, compresses): (Loss, &R, bool),
    [u, v]: [&mut DivergenceSide<T>; 2],
) -> SharedResult<()> {
    let Task { comm, shape: (m, n), k, seed, .. } = *task;
    let of_try = |number: usize| if number == 0 { seed } else { mix(seed ^ mix(number as u64)) };
    let lines = init::draw(of_try(sample.tries), m.max(n), sample.lines);
    let long = usize::from(m < n);
    let side = |place: usize, of: &DivergenceSide<T>| {
        let cuts: Vec<Range<usize>> = of.factor.cuts().iter().map(|rows| inside(&lines, rows)).collect();
        let own: Vec<usize> =
            lines[inside(&lines, &of.factor.own_rows)].iter().map(|line| line - of.factor.own_rows.start).collect();
        let (block, cuts) = if place == long {
            (of.block.select(Axis(0), &own), &*cuts)
        } else {
            (of.block.select(Axis(1), &lines), of.factor.cuts())
        };
        let block = if compresses { block.sparsified() } else { block };
        let factor = FactorSide::of_all_ranks(init::TAGS, comm, cuts, k, Order::RowMajor).with_gathered();
        (DivergenceSide { factor, last: Array2::zeros((0, k)), block }, own)
    };
    let ((trial_u, of_u), (trial_v, of_v)) = (side(0, u), side(1, v));
    let own = if long == 0 { of_u } else { of_v };
    let none = Penalties { u: Penalty::NONE, v: Penalty::NONE };
    let mut trial = DivergenceNmf::new(comm.clone(), trial_u, trial_v, loss, none, update.clone());
    let mut best: Option<[Array2<T>; 2]> = None;
    let mut found: Vec<f64> = Vec::new();
    for number in 0..sample.tries {
        from_data(Start::Sampled(sample), &Task { seed: of_try(number), ..*task }, u, &mut v.factor)?;
        let start = [&u.factor.own, &v.factor.own];
        let on_lines = [0, 1].map(|i| if i == long { start[i].select(Axis(0), &own) } else { start[i].clone() });
        let divergence = trial.run_from(on_lines, TRIAL);
        let least = found.iter().copied().fold(f64::INFINITY, f64::min);
        if best.is_none() || divergence < least * (1.0 - ROUNDING) {
            best = Some(start.map(Array2::clone));
        }
        let twice = divergence <= least * (1.0 + SAME) && divergence >= least * (1.0 - SAME);
        found.push(divergence);
        if twice {
            break;
        }
    }
    let [best_u, best_v] = best.expect("there is at least one try");
    u.factor.own.assign(&best_u);
    v.factor.own.assign(&best_v);
    Ok(())
}

/// The places in `lines`, which ascend, of those in this range.
fn inside(lines: &[usize], range: &Range<usize>) -> Range<usize> {
    lines.partition_point(|&at| at < range.start)..lines.partition_point(|&at| at < range.end)
}

impl<T: Real> DivergenceSide<T> {
    /// Updates this factor's rows from the whole other factor, `y`; with extrapolation, starting at extrapolated rows.
    fn update<R: DivergenceUpdate<T> + Sync>(
        &mut self,
        y: &ArrayView2<'_, T>,
        (sums, gram): (&mut [f64], &mut [f64]),
        (updates, weight): (&PerThread<R>, f64),
        penalty: Penalty,
    ) {
        let extrapolates = !self.last.is_empty();
        if extrapolates {
            extrapolate_growing(&mut self.factor.own, &mut self.last, weight);
        }
        let rows = y.row_major();
        column_sums(rows, sums);
        if !gram.is_empty() {
            add_gram(rows, sums.len(), gram);
        }
        let (block, last, y) = (&self.block, self.last.row_major(), FixedFactor { rows, sums, gram });
        over_rows(&mut self.factor.own.view_mut(), &|first, mut rows: ArrayViewMut2<'_, T>| {
            updates.with(|update| {
                let x = rows.row_major_mut();
                let last = if extrapolates { &last[first * y.sums.len()..][..x.len()] } else { last };
                update.update_rows((block, first), y, x, last, penalty);
            });
        });
    }
}

impl<T: Real, R: DivergenceUpdate<T> + Sync> DivergenceNmf<T, R> {
    /// The factorisation that starts at these factors.
    fn new(
        comm: Communicator,
        u: DivergenceSide<T>,
        v: DivergenceSide<T>,
        loss: Loss,
        penalties: Penalties,
        update: R,
    ) -> Self {
        let k = u.factor.own.ncols();
        let mut nmf = DivergenceNmf {
            comm,
            u,
            v,
            sums: vec![0.0; k],
            gram: if update.takes_gram() { vec![0.0; k * k] } else { Vec::new() },
            loss,
            extrapolates: update.extrapolates(),
            updates: PerThread::new(update),
            weights: NesterovWeights::after(0),
            penalties,
            volume: None,
            norm2: 0.0,
            start: Start::Given,
            iteration: 0,
        };
        nmf.keep_start();
        nmf
    }

    /// Extrapolates from these factors on.
    fn keep_start(&mut self) {
        self.weights = NesterovWeights::after(0);
        if self.extrapolates {
            [&mut self.u, &mut self.v].into_iter().for_each(|side| side.last = side.factor.own.clone());
        }
    }

    /// The divergence after n iterations from these rows of the factors. Collective.
    fn run_from(&mut self, [u, v]: [Array2<T>; 2], n: usize) -> f64 {
        (self.u.factor.own, self.v.factor.own) = (u, v);
        self.keep_start();
        self.iterate(n);
        self.v.factor.gather();
        let (beta, unit) = if let Loss::Beta(beta, unit) = self.loss { (beta, unit) } else { (1.0, 1.0) };
        let (rows, columns) = (self.u.factor.own.view(), self.v.factor.gathered());
        metrics::beta_divergence(&self.comm, (beta, unit), &self.u.block, &rows, &columns)
    }

    fn iterate(&mut self, n: usize) {
        for _ in 0..n {
            let weight = self.weights.advance();
            let DivergenceNmf { comm, u, v, sums, gram, updates, penalties, volume, .. } = self;
            let whole = v.factor.gather();
            if let Some(volume) = volume {
                volume.keep(whole.row_major());
            }
            comm.work("update", || u.update(&whole, (sums, gram), (updates, weight), penalties.u));
            let whole = u.factor.gather();
            comm.work("update", || v.update(&whole, (sums, gram), (updates, weight), penalties.v));
            if let Some(volume) = volume {
                volume.update(&mut v.factor, sums);
            }
            self.iteration += 1;
        }
    }
}

impl<T: Real, R: DivergenceUpdate<T> + Sync> Algorithm<T> for DivergenceNmf<T, R> {
    fn advance(&mut self, n: usize) -> Result<()> {
        self.iterate(n);
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    /// The relative error, as for every method, and the divergence. The divergence is infinite if a nonzero entry has the
    /// fit 0.
    fn measure(&mut self) -> Result<Measures> {
        let DivergenceNmf { comm, u, v, loss, norm2, penalties, volume, .. } = self;
        v.factor.gather();
        let (rows, columns) = (u.factor.own.view(), v.factor.gathered());
        let error = metrics::relative_error(comm, *norm2, std::iter::once((&u.block, rows, columns)));
        let (name, divergence) = match *loss {
            Loss::KullbackLeibler => ("kl_divergence", metrics::kl_divergence(comm, &u.block, &rows, &columns)),
            // For β = 2 the divergence follows from the residual, which is known.
            Loss::Beta(2.0, _) => ("beta_divergence", 0.5 * error * error * *norm2),
            Loss::Beta(beta, unit) => {
                ("beta_divergence", metrics::beta_divergence(comm, (beta, unit), &u.block, &rows, &columns))
            }
        };
        let penalty = penalties.sum(comm, &rows, &v.factor.own.view());
        let mut found = vec![("rel_error", error), (name, divergence)];
        match volume {
            Some(volume) => {
                found.push((Measure::Objective.key(), divergence + penalty + volume.value(columns.row_major())));
            }
            None => found.extend(penalties.objective(divergence, penalty)),
        }
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        vec![self.u.factor.piece(), self.v.factor.piece()]
    }

    fn state(&self) -> State<'_, T> {
        let mut state = State::from(self.factors());
        if self.extrapolates {
            state.matrices.push(self.u.factor.piece_of(LAST_U, &self.u.last));
            state.matrices.push(self.v.factor.piece_of(LAST_V, &self.v.last));
        }
        state
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (name, side) in [(LAST_U, &mut self.u), (LAST_V, &mut self.v)] {
            side.factor.restore(saved)?;
            if self.extrapolates {
                saved.rows(name, Owner::Shared, side.factor.own_rows.start, side.last.view_mut())?;
            }
        }
        self.weights = NesterovWeights::after(iteration);
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<Decision> {
        let extrapolated = self.extrapolates.then_some(Decision::Extrapolated);
        std::iter::once(Decision::Start(self.start)).chain(extrapolated).collect()
    }
}
