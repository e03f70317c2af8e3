//! Runs a method on matrices in memory, in one process, for all of the library.

use std::sync::Arc;
use std::time::Instant;

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::{Error, Result};
use fednmf_base::units::bytes;
use fednmf_comm::{Communicator, MessageTag};
use fednmf_data::assemble::Entries;
use fednmf_data::policy::EntryPolicy;
use fednmf_data::state::{Owner, Piece, ReadRows};
use fednmf_data::{Loaded, PartySplit, memory, parties_in_memory};
use fednmf_driver::disclosure;
use fednmf_driver::plan;
use fednmf_driver::precision::{check_mixed, check_noise};
use fednmf_driver::record;
use fednmf_driver::spec::{Precision, sharing};
use fednmf_driver::{Driver, FactorScale, Observer, Trajectory, arrange, check_size};
use fednmf_linalg::{Context, ContextOptions};
use fednmf_methods::Problem;
use fednmf_methods::description::{Description, Partition};
use fednmf_methods::method::{ConfiguredMethod, MatrixShape};
use fednmf_methods::shared::disclosure::Duration;

use super::fit::{Edge, Factor, Fit, Sent};
use super::{MatrixView, Options, Real};

/// U (m × k) and V (n × k) to start from.
pub type Start<'a, T> = (ArrayView2<'a, T>, ArrayView2<'a, T>);

/// Factorises one matrix, or the blocks of several parties.
///
/// # Errors
/// When the data or the parameters are refused, or the iterations fail.
pub fn run<T: Real>(
    method: Arc<dyn ConfiguredMethod>,
    parts: Vec<MatrixView<'_, T>>,
    options: &Options,
    start: Option<Start<'_, T>>,
    observer: Option<Observer<'_>>,
) -> Result<Fit<T>> {
    options.check()?;
    method.check()?;
    let kernels = options.kernels(parts.iter().any(MatrixView::is_sparse));
    let context = Context::new(ContextOptions { threads: options.threads, kernels })?;
    context.install(|| run_on_threads(method, parts, options, start, observer))
}

fn run_on_threads<T: Real>(
    method: Arc<dyn ConfiguredMethod>,
    parts: Vec<MatrixView<'_, T>>,
    options: &Options,
    start: Option<Start<'_, T>>,
    observer: Option<Observer<'_>>,
) -> Result<Fit<T>> {
    let limits = options.limits(method.description().stop);
    let method = chosen(method, &parts, options.components);
    let description = method.description();
    check::<T>(&*method, parts.len(), options, start.is_some())?;
    let scale = match description.partition.is_private() {
        // The weights of the components are private to the parties.
        true => match options.scale {
            None | Some(FactorScale::AsFound) => FactorScale::AsFound,
            Some(_) => {
                return Err(Error::input("scale: the weights of components stay with the parties; leave it out"));
            }
        },
        false => {
            if let Some(scale) = options.scale {
                scale.check(&*method, "scale", "")?;
            }
            FactorScale::of_run(options.scale, &*method)?
        }
    };
    let (comm, parties) = (Communicator::local(), parties_in_memory(parts.len()));
    let precision = match options.mixed_precision {
        true => Precision::Mixed,
        false if T::NAME == <f32 as fednmf_linalg::Real>::NAME => Precision::F32,
        false => Precision::F64,
    };
    let shape = shape(&parts, description.partition);
    let layout = plan::layout(&*method, shape, 1, parties, PartySplit::Even);
    let policy = EntryPolicy {
        allow_negative: description.allows_negative,
        allow_nan: method.groups().accepts_nan(),
        ..EntryPolicy::default()
    };
    check_memory(shape, options.components, size_of::<T>())?;
    let suppress = method.groups().disclosure.and_then(|limits| limits.suppress_rare.as_ref().copied());
    let sharing = sharing(&*method, limits.eval_every != 0);
    let rows = if let [one] = &parts[..] { one.rows() } else { None };
    let data = match rows {
        Some(rows) => rows.load(&*method, (options.components, precision), &comm)?,
        None => {
            // SAFETY: all that borrows the matrices is dropped before this function returns: the result has copies of the factors.
            #[expect(unsafe_code, reason = "see MatrixView::unbounded")]
            let parts = parts.into_iter().map(|part| unsafe { part.unbounded() }).collect::<Result<Vec<_>>>()?;
            Loaded::in_memory(parts, &layout, policy, (suppress, sharing), &comm)?
        }
    };
    let run = Duration { iterations: limits.max_iters, eval_every: limits.eval_every };
    let refused_between_owners = {
        let blocks: Option<Vec<_>> = data.blocks.iter().map(Entries::of).collect();
        blocks.and_then(|blocks| disclosure::refusal(&*method, &layout, shape, (options.components, run), &blocks))
    };
    check_size(precision, &data.statistics)?;
    let given = start.map(|(u, v)| Given { u, v });
    let problem = Problem {
        data,
        k: options.components,
        seed: options.seed,
        parties,
        max_iters: limits.max_iters,
        initial: given.as_ref().map(|given| given as &dyn ReadRows<T>),
        missing: None,
        resuming: false,
        continue_on_loss: false,
        comm: comm.clone(),
    };
    let build = if options.mixed_precision { T::build_mixed } else { T::build };
    let building = Instant::now();
    let algorithm = build(&*method, problem)?;
    let building = building.elapsed().as_secs_f64();
    let mut driver = Driver::silent(algorithm, limits, method.groups().measure(description), &comm);
    driver.trajectory = Trajectory::after(building).with_history();
    let stop = driver.iterate_observed(observer)?;
    let Driver { algorithm, trajectory, .. } = driver;
    let decided: Vec<_> = algorithm.decisions().iter().flat_map(record::fields).collect();
    let decisions = decided.into_iter().map(|(name, value)| match value.as_str() {
        Some(word) => (name, word.to_string()),
        None => (name, value.to_string()),
    });
    let decisions = decisions.collect();
    let found = algorithm.factors();
    let factors = match arrange(&comm, scale, &found) {
        Some(arranged) => factors(&arranged.iter().map(|piece| piece.view()).collect::<Vec<_>>()),
        None => factors(&found),
    };
    let Trajectory { iteration, seconds, measures, history, .. } = trajectory;
    Ok(Fit {
        factors,
        iterations: iteration,
        seconds,
        stop,
        measures,
        history: history.unwrap_or_default(),
        decisions,
        ledger: sent(&comm),
        edges: edges(&comm),
        refused_between_owners,
        shape,
        method,
    })
}

/// The method itself or, for `auto`, its choice by the sizes.
fn chosen<T: Real>(
    method: Arc<dyn ConfiguredMethod>,
    parts: &[MatrixView<'_, T>],
    k: usize,
) -> Arc<dyn ConfiguredMethod> {
    let (m, n) = shape(parts, method.description().partition);
    let (sparse, streamed) = (parts.iter().any(MatrixView::is_sparse), parts.iter().any(|part| part.rows().is_some()));
    match method.choose(Some(MatrixShape { m, n, k, sparse, streamed })) {
        Some(choice) => choice.method,
        None => method,
    }
}

/// Refuses settings that exclude each other.
fn check<T: Real>(method: &dyn ConfiguredMethod, parts: usize, options: &Options, started: bool) -> Result<()> {
    let Description { name, partition, .. } = method.description();
    if parts != 1 && !partition.is_private() {
        return Err(Error::input(format!("{name} takes one matrix, not those of {parties} parties", parties = parts)));
    }
    options.limits(method.description().stop).check_for(method.description())?;
    if options.mixed_precision {
        check_mixed(method.description(), options.eval_every)?;
    }
    if T::NAME == <f32 as fednmf_linalg::Real>::NAME {
        check_noise(method)?;
    }
    let groups = method.groups();
    if !started && let Some(path) = groups.init.and_then(|group| group.file()) {
        return Err(Error::input(format!(
            "{}: factors are not read from a file here; give them as matrices",
            path.display()
        )));
    }
    if let Some(marks) = groups.missing.and_then(|group| group.missing.marks()) {
        return Err(Error::input(format!(
            "{marks}: missing entries are not marked by a file here; enter NaN for them"
        )));
    }
    Ok(())
}

/// Refuses factors and Gram matrices that do not fit into memory, of which an allocation would end the process.
///
/// # Errors
/// With how much is needed and free.
pub fn check_memory((m, n): (usize, usize), k: usize, word: usize) -> Result<()> {
    let (m, n, k) = (m as f64, n as f64, k as f64);
    // Each factor and its update, and a few k × k matrices.
    let need = word as f64 * (2.0 * (m + n) * k + 4.0 * k * k);
    let free = memory::free();
    if need <= free {
        return Ok(());
    }
    Err(Error::memory(format!(
        "the factors of {m} x {n} with {k} components need at least {}, and {} are free; use fewer components",
        bytes(need as u64),
        bytes(free as u64)
    )))
}

/// The shape of the matrix that the parts make up.
fn shape<T: Real>(parts: &[MatrixView<'_, T>], partition: Partition) -> (usize, usize) {
    let by_columns = partition == Partition::PartyColumns;
    let (first_m, first_n) = parts.first().map_or((0, 0), MatrixView::shape);
    let total = |length: fn((usize, usize)) -> usize| parts.iter().map(|part| length(part.shape())).sum();
    if by_columns { (first_m, total(|(_, n)| n)) } else { (total(|(m, _)| m), first_n) }
}

/// The matrices that the pieces make up.
fn factors<T: Real>(pieces: &[Piece<'_, T>]) -> Vec<Factor<T>> {
    let mut factors: Vec<Factor<T>> = Vec::new();
    for piece in pieces {
        let party = match piece.owner {
            Owner::Shared => None,
            Owner::Party(party) => Some(party),
        };
        let at = factors.iter().position(|factor| factor.name == piece.name && factor.party == party);
        let at = at.unwrap_or_else(|| {
            let values = Array2::zeros((piece.total_rows, piece.values.ncols()));
            factors.push(Factor { name: piece.name, party, values });
            factors.len() - 1
        });
        let rows = piece.first_row..piece.first_row + piece.values.nrows();
        factors[at].values.slice_mut(ndarray::s![rows, ..]).assign(&piece.values);
    }
    factors
}

fn sent(comm: &Communicator) -> Vec<Sent> {
    let row = |(tag, entry): (&MessageTag, &fednmf_comm::Entry)| Sent {
        kind: tag.kind,
        payload: tag.payload,
        protection: tag.protection(),
        rounds: entry.calls,
        bytes: entry.party_bytes,
    };
    comm.ledger().messages().filter(|(_, entry)| entry.party_bytes > 0).map(row).collect()
}

fn edges(comm: &Communicator) -> Vec<Edge> {
    let edge = |((from, to), entry): ((usize, usize), &fednmf_comm::Entry)| Edge {
        from,
        to,
        messages: entry.calls,
        bytes: entry.party_bytes,
    };
    comm.ledger().edges().map(edge).collect()
}

/// A start in memory.
struct Given<'a, T> {
    u: ArrayView2<'a, T>,
    v: ArrayView2<'a, T>,
}

impl<T: Real> ReadRows<T> for Given<'_, T> {
    fn rows(&self, name: &str, _owner: Owner, first_row: usize, mut out: ArrayViewMut2<'_, T>) -> Result<()> {
        let factor = if name == "U" { &self.u } else { &self.v };
        let rows = first_row..first_row + out.nrows();
        if rows.end > factor.nrows() || factor.ncols() != out.ncols() {
            let ((m, k), (need, columns)) = (factor.dim(), (rows.end, out.ncols()));
            return Err(Error::input(format!("init: {name} is {m} x {k}, not {need} x {columns}")));
        }
        out.assign(&factor.slice(ndarray::s![rows, ..]));
        Ok(())
    }
}
