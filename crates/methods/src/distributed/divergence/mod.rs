//! Factorisations for the generalised Kullback-Leibler divergence: counts rather than measurements,
//! min Σ m log(m / (u·v)) − m + u·v and the penalties on U and V; and in `beta` for any β-divergence.
//!
//! Rank r owns U[I_r] and V[J_r] and has the rows M[I_r, :] and the columns M[:, J_r]. The other factor is gathered
//! whole for each half of an iteration, U then V with the new U; the methods differ in the update of a row.

pub mod beta;
pub mod cd;
pub mod mu;

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2, s};

use fednmf_base::error::{Error, Result};
use fednmf_comm::{Communicator, MessageTag, Parts, Payload, even_part};
use fednmf_data::state::{Owner, Piece, SavedState};
use fednmf_data::{Cuts, Statistics};
use fednmf_linalg::nls::Penalty;
use fednmf_linalg::nls::divergence::{DivergenceUpdate, Fixed, add_gram, column_sums};
use fednmf_linalg::{Block, Order, PerThread, Real, over_rows};

use crate::cost::{Cost, Kernel, Message, Pattern, Workload};
use crate::description::{Description, Form, MessageSpec, NO_PARTIES, Partition, Unit};
use crate::method::Groups;
use crate::metrics;
use crate::metrics::Measure;
use crate::shared::grid;
use crate::shared::init;
use crate::shared::init::{InitArgs, Start, Task};
use crate::shared::missing;
use crate::shared::missing::{MissingArgs, UpdateKind};
use crate::shared::regularization;
use crate::shared::regularization::{Penalties, RegularizationArgs};
use crate::shared::row_stream::RankData;
use crate::shared::sizes::Sizes;
use crate::{Algorithm, Measures, Problem};

const GATHER_V: MessageTag = MessageTag::new("gather V", Payload::SharedFactor);
const GATHER_U: MessageTag = MessageTag::new("gather U", Payload::SharedFactor);

const MESSAGES: &[MessageSpec] = &[
    MessageSpec::new(GATHER_V, "n x k", "each iteration, and each evaluation; once for a start from singular vectors"),
    MessageSpec::new(GATHER_U, "m x k", "each iteration"),
    MessageSpec::new(metrics::RESIDUAL, "1", "each evaluation"),
    MessageSpec::new(metrics::DIVERGENCE, "1", "each evaluation"),
    regularization::MESSAGES,
    init::MESSAGES[0],
    init::MESSAGES[1],
    init::MESSAGES[2],
    init::MESSAGES[3],
    init::MESSAGES[4],
    init::MESSAGES[5],
];

/// The same for the methods that take missing entries.
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
        partition: Partition::RowsAndColumns,
        unit: Unit::Update,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure,
        dp: NO_PARTIES,
        limits: None,
        messages: match measure {
            Measure::Divergence => MESSAGES_WITH_MISSING,
            _ => MESSAGES,
        },
    }
}

/// Parameters of the methods for the Kullback-Leibler divergence.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct KlArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub init: InitArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub regularization: RegularizationArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub missing: MissingArgs,
}

impl KlArgs {
    /// Refuses incompatible options.
    ///
    /// # Errors
    /// Naming the option.
    fn check(&self) -> Result<()> {
        if self.missing.any() && self.init.is_computed() {
            let what = "--init nndsvd, nndsvda, nndsvdar, compressed and sampled cannot be combined with --missing and --holdout";
            return Err(Error::input(format!("{what}; leave it out")));
        }
        Ok(())
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            init: Some(&self.init),
            regularization: Some(&self.regularization),
            missing: Some(&self.missing),
            ..Groups::default()
        }
    }

    /// The factorisation by `update`, or by its counterpart for observed entries where some are missing. Collective.
    ///
    /// # Errors
    /// If the given start cannot be read.
    fn build<T: Real, R: DivergenceUpdate<T> + Sync>(
        &self,
        problem: Problem<'_, T>,
        update: R,
        of_observed: UpdateKind,
    ) -> Result<Box<dyn Algorithm<T>>> {
        if self.missing.any() {
            return missing::build(problem, &self.missing, &self.regularization, of_observed);
        }
        build(problem, &self.init, &self.regularization, Loss::KullbackLeibler, update)
    }
}

/// What an iteration costs, with so many flops for each nonzero and component.
fn cost(init: &InitArgs, workload: &Workload, ranks: usize, flops: f64) -> Cost {
    let Workload { m, n, k, word, stored, sparse, .. } = *workload;
    let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
    let (of_u, of_v) = (workload.part(rows, n), workload.part(m, cols));
    let mut cost = Cost::default();
    let entry = flops * k as f64;
    cost.add(Kernel::Other, entry * (of_u + of_v), 2.0 * entry * stored);
    for (kind, length) in [(GATHER_V.kind, n), (GATHER_U.kind, m)] {
        cost.messages.extend(Message::shared_out(kind, Pattern::AllGather, (1, ranks), length * k, word));
    }
    cost.data = workload.block(rows, of_u) + workload.block(cols, of_v);
    cost.factors = workload.bytes((rows + cols + m + n) * k);
    // The start is computed on a grid of rows, in which the whole V is gathered, twice if its memory order changes.
    let gathered = if ranks > 1 { if sparse { n } else { 2 * n } } else { 0 };
    let start = Start::choose(&init.init, &Sizes { m, n, entries: stored, k }, sparse);
    cost.start = start.bytes(k, (m, n), [rows, cols], gathered, word);
    cost.caveat("the flops are those of the printed formulas; no kernel counts them");
    cost
}

/// One factor on one rank, and the data of its rows.
struct Side<T: Real> {
    /// Own rows × all of the other factor's.
    block: Block<T>,
    own: Array2<T>,
    rows: Range<usize>,
    parts: Parts,
    whole: Array2<T>,
    tag: MessageTag,
}

/// The objective.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    KullbackLeibler,
    Beta(f64),
}

/// A factorisation whose rows `R` updates.
struct DivergenceNmf<T: Real, R> {
    comm: Communicator,
    u: Side<T>,
    v: Side<T>,
    /// The sums of the columns of the factor that is fixed.
    sums: Vec<f64>,
    updates: PerThread<R>,
    /// The Gram matrix of the factor that is fixed, where the updates take it.
    gram: Vec<f64>,
    loss: Loss,
    penalties: Penalties,
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
    init: &InitArgs,
    regularization: &RegularizationArgs,
    loss: Loss,
    update: R,
) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, comm, initial, resuming, .. } = problem;
    let (m, n) = (data.header.rows, data.header.cols);
    let sparse = data.header.sparse;
    let entries = if sparse { data.statistics.nonzeros as f64 } else { m as f64 * n as f64 };
    let start = match initial {
        Some(_) => Start::Given,
        None => Start::choose(&init.init, &Sizes { m, n, entries, k }, sparse),
    };
    let mut blocks = data.blocks.into_iter();
    let mut side = |cuts: &[Range<usize>], total: usize, tag: MessageTag| {
        let rows = cuts[comm.rank()].clone();
        let zeros = |rows: usize| Order::RowMajor.zeros(rows, k);
        let block = blocks.next().expect("the plan gives a row block and a column block").transposed();
        Side { block, own: zeros(rows.len()), whole: zeros(total), parts: Parts::new(cuts, k), rows, tag }
    };
    let mut u = side(&data.cuts.rows, m, GATHER_U);
    let mut v = side(&data.cuts.cols, n, GATHER_V);
    match initial {
        Some(given) => {
            comm.agree_on_error(init::given(given, [&u.rows, &v.rows], [u.own.view_mut(), v.own.view_mut()]))?;
        }
        // A checkpoint replaces the start.
        None if start == Start::Random || resuming => {
            let scale = init::scale(data.statistics.sum, (m, n), k);
            init::u(seed, &u.rows, scale, u.own.view_mut());
            init::v(seed, &v.rows, scale, v.own.view_mut());
        }
        None => {
            let cuts = Cuts { rows: data.cuts.rows.clone(), cols: std::iter::once(0..n).collect() };
            let Statistics { sum, norm2, .. } = data.statistics;
            let task = Task { comm: &comm, cuts: &cuts, shape: (m, n), entries, k, sum, norm2, seed };
            from_data(start, &task, &mut u, &mut v)?;
        }
    }
    Ok(Box::new(DivergenceNmf {
        comm,
        u,
        v,
        sums: vec![0.0; k],
        gram: if update.takes_gram() { vec![0.0; k * k] } else { Vec::new() },
        loss,
        updates: PerThread::new(update),
        penalties: regularization.penalties((m, n)),
        norm2: data.statistics.norm2,
        start,
        iteration: 0,
    }))
}

/// Writes a start that is computed from the data, of whose rows each rank has a block. No entry is 0, since multiplicative
/// updates keep zeros. Collective.
///
/// # Errors
/// If the start cannot be computed.
fn from_data<T: Real>(start: Start, task: &Task<'_>, u: &mut Side<T>, v: &mut Side<T>) -> Result<()> {
    let Task { comm, cuts, shape: (_, n), k, .. } = *task;
    let rows = grid::own_rows(comm, cuts);
    let block = std::mem::replace(&mut u.block, Block::Dense(Array2::zeros((0, 0)).into()));
    let data = RankData { block, stream: None };
    let (data, [of_u, of_v]) = init::on_grid(start, None, task, true, data, rows.each_ref())?;
    u.block = data.block;
    u.own.assign(&of_u);
    // The grid distributes the rows of V evenly; the update distributes them by the number of entries in their columns.
    let shares: Vec<Range<usize>> = (0..comm.size()).map(|rank| even_part(n, comm.size(), rank)).collect();
    let of_v = of_v.as_standard_layout();
    let whole = v.whole.as_slice_mut().expect("made in row order");
    comm.all_gather(GATHER_V, of_v.as_slice().expect("made in row order"), &Parts::new(&shares, k), whole);
    v.own.assign(&v.whole.slice(s![v.rows.clone(), ..]));
    Ok(())
}

impl<T: Real> Side<T> {
    fn gather(&mut self, comm: &Communicator) {
        let (own, whole) = (self.own.as_slice(), self.whole.as_slice_mut());
        comm.all_gather(self.tag, own.expect("made in row order"), &self.parts, whole.expect("made in row order"));
    }

    /// Updates this factor's rows, for y = the other factor, whole.
    fn update<R: DivergenceUpdate<T> + Sync>(
        &mut self,
        y: &Array2<T>,
        (sums, gram): (&mut [f64], &mut [f64]),
        updates: &PerThread<R>,
        penalty: Penalty,
    ) {
        let rows = y.as_slice().expect("made in row order");
        column_sums(rows, sums);
        if !gram.is_empty() {
            add_gram(rows, sums.len(), gram);
        }
        let (block, y) = (&self.block, Fixed { rows, sums, gram });
        over_rows(&mut self.own.view_mut(), &|first, mut rows: ArrayViewMut2<'_, T>| {
            updates.with(|update| {
                update.update_rows((block, first), y, rows.as_slice_mut().expect("made in row order"), penalty);
            });
        });
    }
}

impl<T: Real, R: DivergenceUpdate<T> + Sync> Algorithm<T> for DivergenceNmf<T, R> {
    fn advance(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let DivergenceNmf { comm, u, v, sums, gram, updates, penalties, .. } = self;
            v.gather(comm);
            comm.work("update", || u.update(&v.whole, (sums, gram), updates, penalties.u));
            u.gather(comm);
            comm.work("update", || v.update(&u.whole, (sums, gram), updates, penalties.v));
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    /// The relative error as of every method, and the divergence, infinite where a nonzero entry cannot be reached.
    fn measure(&mut self) -> Result<Measures> {
        let DivergenceNmf { comm, u, v, loss, norm2, penalties, .. } = self;
        v.gather(comm);
        let block = std::iter::once((&u.block, u.own.view(), v.whole.view()));
        let error = metrics::relative_error(comm, *norm2, block);
        let (rows, columns) = (u.own.view(), v.whole.view());
        let (name, divergence) = match *loss {
            Loss::KullbackLeibler => ("kl_divergence", metrics::kl_divergence(comm, &u.block, &rows, &columns)),
            // The residual is at hand, and costs no more than the nonzeros.
            Loss::Beta(2.0) => ("beta_divergence", 0.5 * error * error * *norm2),
            Loss::Beta(beta) => ("beta_divergence", metrics::beta_divergence(comm, beta, &u.block, &rows, &columns)),
        };
        let penalty = penalties.sum(comm, &u.own.view(), &v.own.view());
        let mut found = vec![("rel_error", error), (name, divergence)];
        found.extend(penalties.objective(divergence, penalty));
        Ok(found)
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let piece = |name, side: &'_ Side<T>| (name, side.whole.nrows(), side.rows.start);
        let [(u, m, i), (v, n, j)] = [piece("U", &self.u), piece("V", &self.v)];
        vec![Piece::shared(u, m, i, self.u.own.view()), Piece::shared(v, n, j, self.v.own.view())]
    }

    fn restore(&mut self, saved: &dyn SavedState<T>, iteration: usize) -> Result<()> {
        for (name, side) in [("U", &mut self.u), ("V", &mut self.v)] {
            saved.rows(name, Owner::Shared, side.rows.start, side.own.view_mut())?;
        }
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        self.start.decisions()
    }
}
