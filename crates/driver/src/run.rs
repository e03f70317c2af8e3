//! A run that is ready for its first iteration: the method is built, resumed from a checkpoint if there is one, and the
//! trace is open.

use std::ops::Range;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::error::{Result, SharedResult};
use fednmf_base::unfinished::Access;
use fednmf_base::warning::note;
use fednmf_comm::{CONTROL, Communicator, Signals, watchdog};
use fednmf_data::Sharing;
use fednmf_data::state::{Owner, Piece, ReadRows};
use fednmf_files::names::Names;
use fednmf_files::output::attributes;
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_files::output::matrices::Annotations;
use fednmf_linalg as linalg;
use fednmf_linalg::Real;
use fednmf_methods::decision::Decision;
use fednmf_methods::description::Partition;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::precision::Precision;
use fednmf_methods::shared::dp;
use fednmf_methods::{Algorithm, Problem};
use fednmf_privacy::Public;
use fednmf_report::Sample;

use super::init_file::Initial;
use super::load::Loaded;
use super::nonce::{NONCE, RunNonce};
use super::plan::Planned;
use super::spec;
use super::{budget, identity, kernels, metadata, missing, nonce, notes, record, report, view};
use crate::checkpoint::Checkpointer;
use crate::iterate::{Driver, Limits, Stop, Trajectory};
use crate::progress::Progress;
use crate::sums::SumRecord;
use crate::trace::Trace;

/// A run that is ready for its first iteration.
pub struct Run<T: Real> {
    pub record: RunRecord,
    pub driver: Driver<T>,
}

/// A run after its last iteration.
pub struct Outcome<T: Real> {
    pub record: RunRecord,
    pub driver: Driver<T>,
    /// Why the iterations ended.
    pub iterated: Result<Stop>,
}

/// The part of a run that its iterations do not change and that is written with its results.
pub struct RunRecord {
    pub planned: Planned,
    /// The trace's start event.
    pub start: Value,
    pub annotations: Annotations,
    /// Lines of the matrix for the report.
    pub sample: Option<Sample>,
    /// Whether a factor stays with the parties.
    pub private_factor: bool,
    /// Whether all data are one party's, so that nobody else's factors are beside its own.
    pub one_party: bool,
}

impl<T: Real> Run<T> {
    /// Iterates until a limit is reached or an iteration fails. Collective.
    pub fn iterate(self) -> Outcome<T> {
        let Run { record, mut driver } = self;
        if let Some(least) = least_parties(&*record.planned.method) {
            driver.comm().continue_without_lost(least);
        }
        watchdog::enter("iterating");
        let iterated = driver.iterate();
        Outcome { record, driver, iterated }
    }
}

/// The number of parties with which a run goes on without the others, if it does.
fn least_parties(method: &dyn ConfiguredMethod) -> Option<usize> {
    method.groups().threshold?.secure_threshold.as_ref().copied()
}

/// The properties of the data that are recorded; the method consumes the data themselves.
struct DataRecord {
    shape: (usize, usize),
    sparse: bool,
    /// `None` if the parties have not shared it.
    nonzeros: Option<u64>,
    format: String,
    image: Option<(usize, usize)>,
    checksum: Value,
    grids: Option<Value>,
    seconds: f64,
    /// The threshold of `--binarize` if the data decided it.
    threshold: Option<f64>,
    /// The number by which `--scale` divided the entries.
    divisor: Option<f64>,
}

impl DataRecord {
    fn of<T: Real>(loaded: &Loaded<T>) -> Self {
        let header = &loaded.data.header;
        DataRecord {
            shape: (header.rows, header.cols),
            sparse: header.sparse,
            nonzeros: (loaded.planned.input.sharing != Sharing::Nothing).then_some(loaded.data.statistics.nonzeros),
            format: header.format.clone(),
            image: header.image,
            checksum: identity::checksum(&loaded.planned, &loaded.data),
            grids: loaded.grids.clone(),
            seconds: loaded.seconds,
            threshold: loaded.decided_threshold(),
            divisor: loaded.data.divisor,
        }
    }
}

/// Prepares everything up to the first iteration. Collective.
///
/// # Errors
/// On wrong input (on all ranks alike), or if the run cannot start.
pub fn prepare<T: Precision>(mut loaded: Loaded<T>, comm: &Communicator, signals: Signals) -> SharedResult<Run<T>> {
    watchdog::enter("preparing");
    let data = DataRecord::of(&loaded);
    let shape = data.shape;
    let hosted = loaded.planned.is_private().then(|| loaded.hosted(comm.rank()));
    let public = hosted.is_none().then(|| annotate(&loaded.planned, data.shape, None, comm)).transpose()?;
    let mut sample = report::sample_of(&loaded.planned, &mut loaded.data, comm)?;
    let mut identity = identity::of(&loaded.planned, &loaded.data);
    let fingerprints = identity::fingerprints(&loaded.planned, &loaded.data, comm.rank());
    let protects = budget::scope(&loaded.planned, comm, &loaded.data.cuts);
    let view = loaded.view.take().map(|file| view::Viewing::new(file, comm, &loaded.planned, &loaded.data));
    let Loaded { planned, data: matrix, mut progress, .. } = loaded;
    let building = Instant::now();
    let (mut algorithm, marks) = build(&planned, matrix, sample.as_mut(), comm)?;
    let building = building.elapsed().as_secs_f64();
    let one_party = is_one_party(&planned, &*algorithm, comm);
    let private_factor = hosted.is_some() && !one_party && has_private_factor(&*algorithm, comm);
    let annotations = match public {
        Some(annotations) => annotations,
        // A method of parties may still give all factors to all parties.
        None => {
            let owners = hosted.as_deref().filter(|_| planned.input.by_party() || private_factor);
            annotate(&planned, data.shape, owners, comm)?
        }
    };
    let decisions = algorithm.decisions();
    notes::of_decisions(&planned, &decisions, data.shape, &mut progress);
    let left_out = identity::left_out(&planned, data.sparse, marks);
    identity.extend(left_out.clone());
    identity.extend(nonce::identity(planned.nonce.as_ref(), comm));
    identity.extend(record::identifying(&decisions));
    identity.insert(kernels::USED.into(), kernels::names(planned.kernels));
    if let Some((releases, unit)) = algorithm.private_releases_mut().zip(planned.description().protects()) {
        releases.protect(unit.of_input(planned.input.transpose));
    }
    let options = algorithm.private_releases_mut().map(|releases| {
        let options = identity::options(&identity);
        releases.bind(&options);
        options
    });
    let trajectory = match planned.spec.checkpoint.as_ref().filter(|_| planned.resuming) {
        Some(path) => {
            let resumed = identity::resume(path, comm, &identity, &fingerprints, &mut *algorithm);
            let trajectory = comm.agree_on_error(resumed)?;
            progress.note(&format!("going on at iteration {} from {}", trajectory.iteration, path.display()));
            trajectory
        }
        None => {
            comm.agree_on_error(identity::check_replaced(&planned, comm, &identity, &mut progress))?;
            Trajectory::after(building)
        }
    };
    let mut parameters = parameters(&planned, &decisions, &data);
    parameters.extend(left_out);
    parameters.extend(identity::order_of_names(&planned, &annotations));
    let start = start_event(&planned, data, parameters, trajectory.iteration, comm);
    warn_of_run(&planned, shape, &mut *algorithm, &trajectory, comm, &mut progress)?;
    let notes = budget::reserve(&planned, comm, protects.as_ref(), algorithm.private_releases_mut())?;
    progress.notes(&notes);
    let trace = open_trace(&planned, comm, trajectory.iteration, &start)?;
    let checkpoint = planned.spec.checkpoint.as_ref().map(|path| Checkpoint::new(path));
    let mut sums = comm.agree_on_error(SumRecord::begin(&planned, trajectory.iteration, comm))?;
    if let Some(sums) = &mut sums {
        sums.agree_on_evaluation(&planned, trajectory.iteration, comm);
    }
    let remembers = planned.outputs.factors.is_some();
    let may_lose = least_parties(&*planned.method).is_some();
    let driver = Driver {
        comm: comm.clone(),
        algorithm,
        trajectory,
        limits: Limits {
            max_iters: planned.spec.max_iters,
            tol: planned.spec.tol,
            target_error: planned.spec.target_error,
            time_limit: planned.spec.time_limit,
            eval_every: planned.spec.eval_every,
        },
        leading: planned.measure(),
        signals: Some(signals),
        trace,
        progress: progress.within(planned.spec.time_limit),
        checkpointer: Checkpointer::new(comm, checkpoint, identity, planned.spec.checkpoint_every, remembers)
            .with_fingerprints(fingerprints)
            .with_options(options)
            .with_losses(may_lose),
        view,
        sums,
    };
    Ok(Run { record: RunRecord { planned, start, annotations, sample, private_factor, one_party }, driver })
}

/// The names for the output of the factors, private ones for the parties `hosted` here. Collective.
fn annotate(
    planned: &Planned,
    shape: (usize, usize),
    hosted: Option<&[(usize, Range<usize>)]>,
    comm: &Communicator,
) -> SharedResult<Annotations> {
    let add = planned.outputs.add;
    let to = planned.outputs.factors.as_deref().map(|path| metadata::Destination { path, add, private: hosted });
    let annotations = metadata::annotations(to, &planned.input, shape, comm)?;
    let partition = planned.method.description().partition;
    if partition == Partition::Symmetric {
        let Annotations { rows, columns, .. } = &annotations;
        let names = match to {
            Some(_) => Names { rows: rows.clone(), columns: columns.clone(), ..Names::default() },
            None => metadata::names_of(&planned.input, false, comm),
        };
        comm.agree_on_error(metadata::check_symmetric(partition, &names))?;
    }
    Ok(Annotations { owner_only: planned.results_access() == Access::OwnerOnly, ..annotations })
}

/// Whether a factor stays with the parties. Collective.
fn has_private_factor<T: Real>(algorithm: &dyn Algorithm<T>, comm: &Communicator) -> bool {
    let own = algorithm.factors().iter().any(|piece| piece.owner != Owner::Shared);
    comm.all_gather_public(CONTROL, &HasPrivateFactor(own)).into_iter().any(|HasPrivateFactor(any)| any)
}

/// Whether a rank has a factor that stays with the parties.
#[derive(Serialize, Deserialize)]
struct HasPrivateFactor(bool);

impl Public for HasPrivateFactor {
    const WHY: &'static str = "the method decides it";
}

/// Whether a single party has all data, in a file of all ranks, and its private matrices are factors. Collective.
fn is_one_party<T: Real>(planned: &Planned, algorithm: &dyn Algorithm<T>, comm: &Communicator) -> bool {
    let others =
        algorithm.factors().iter().any(|piece| piece.owner != Owner::Shared && !["U", "V"].contains(&piece.name));
    let others =
        comm.all_gather_public(CONTROL, &HasPrivateFactor(others)).into_iter().any(|HasPrivateFactor(any)| any);
    !others && planned.is_private() && planned.parties.count == 1 && !planned.input.by_party() && !comm.has_owners()
}

impl RunRecord {
    /// The pieces for the output: a single party's own factors are in the shared file.
    pub fn output_pieces<'a, T>(&self, pieces: Vec<Piece<'a, T>>) -> Vec<Piece<'a, T>> {
        let owner = |piece: &Piece<'a, T>| if self.one_party { Owner::Shared } else { piece.owner };
        pieces.into_iter().map(|piece| Piece { owner: owner(&piece), ..piece }).collect()
    }
}

/// Prints how long the run may take, and what it releases unprotected. Collective.
///
/// # Errors
/// On all ranks, if the time of an iteration cannot be measured.
fn warn_of_run<T: Real>(
    planned: &Planned,
    (m, _): (usize, usize),
    algorithm: &mut dyn Algorithm<T>,
    trajectory: &Trajectory,
    comm: &Communicator,
    progress: &mut Progress,
) -> SharedResult<()> {
    let max_iters = planned.spec.max_iters;
    if trajectory.iteration > max_iters {
        progress.warn(&format!(
            "--max-iters {max_iters}: the checkpoint is of iteration {}, whose factors are kept as they are",
            trajectory.iteration
        ));
    }
    let forecast = comm.agree_on_error(algorithm.forecast())?;
    notes::duration(forecast, max_iters.saturating_sub(trajectory.iteration), progress);
    // Before anything of a budget is reserved.
    let releases = algorithm.private_releases();
    if let Some(warning) = releases.and_then(|r| dp::too_noisy(r.plan(), planned.parties.count, (m, planned.spec.k))) {
        progress.warn(&warning);
    }
    if releases.is_some() && planned.spec.eval_every > 0 {
        progress.warn(
            "--dp: evaluations send exact errors of the parties, which --epsilon does not cover, so the run has no formal guarantee \
             as a whole; without --eval-every it has one",
        );
    }
    Ok(())
}

/// Builds the method; with the checksum of the marks of `--missing FILE`, whose entries are missing in the report's sample too.
/// Collective.
fn build<T: Precision>(
    planned: &Planned,
    data: fednmf_data::Loaded<T>,
    sample: Option<&mut Sample>,
    comm: &Communicator,
) -> SharedResult<(Box<dyn Algorithm<T>>, Option<u64>)> {
    let spec = &planned.spec;
    let shape = (data.header.rows, data.header.cols);
    let groups = planned.method.groups();
    let (start, marks) =
        (groups.init.and_then(|group| group.file()), groups.missing.and_then(|group| group.missing.marks()));
    let names = match start.is_some() || marks.is_some() {
        true => metadata::names_of(&planned.input, planned.is_private(), comm),
        false => Names::default(),
    };
    let left_out = groups.missing.map(|group| (group, spec.seed));
    let open = |path| Initial::open(path, shape, (spec.k, &planned.input), left_out, &names, comm);
    let initial = start.map(open).transpose()?;
    if let Some(path) = marks.filter(|_| planned.input.transpose && shape.0 == shape.1 && comm.reports()) {
        note(&format!("--missing {path}: marks entries of the matrix after --transpose"));
    }
    let marks = marks.map(|path| missing::read(path, shape, &names, &data.cuts, comm)).transpose()?;
    if let (Some(marks), Some(divisor)) = (&marks, data.divisor) {
        missing::check_largest(marks, &data, divisor, comm)?;
    }
    if let (Some(marks), Some(sample)) = (&marks, sample) {
        report::hide_marked(sample, &marks.places.rows, comm);
    }
    let (missing, checksum) = marks
        .map(|marks| {
            let checksum = marks.checksum(comm);
            (marks.places, checksum)
        })
        .unzip();
    let problem = Problem {
        missing,
        resuming: planned.resuming,
        initial: initial.as_ref().map(|initial| initial as &dyn ReadRows<T>),
        data,
        k: spec.k,
        seed: planned.seed(),
        max_iters: spec.max_iters,
        parties: planned.parties,
        continue_on_loss: spec.continue_on_loss,
        comm: comm.clone(),
    };
    let build = if planned.precision == spec::Precision::Mixed { T::build_mixed } else { T::build };
    Ok((build(&*planned.method, problem)?, checksum))
}

/// The trace's start event.
fn start_event(
    planned: &Planned,
    data: DataRecord,
    parameters: Map<String, Value>,
    resumed_from: usize,
    comm: &Communicator,
) -> Value {
    let spec = &planned.spec;
    let (m, n) = data.shape;
    json!({
        "event": "start", "version": attributes::VERSION, "git": attributes::revision(),
        "algo": planned.description().name, "args": spec.shown_words(), "ranks": comm.size(), "parties": planned.parties.count,
        "m": m, "n": n, "nnz": data.nonzeros, "k": spec.k, "seed": spec.seed, "precision": planned.precision.name(),
        "host": (!planned.is_private()).then(attributes::hostname), "time": attributes::now(), "params": parameters, "format": data.format,
        "image": data.image, kernels::USED: kernels::names(planned.kernels), "checksum": data.checksum,
        "blas": linalg::blas_version(), "load_seconds": data.seconds, "resumed_from": resumed_from, "grids": data.grids,
        "output": planned.outputs.factors,
        // At a site, the input is the data of one party.
        NONCE: planned.nonce.as_ref().map(RunNonce::text),
        report::OWN_INPUT_OF: planned.input.own_disk.then(|| comm.rank()),
    })
}

/// All effective parameters, with what the data and the method decided.
fn parameters(planned: &Planned, decisions: &[Decision], data: &DataRecord) -> Map<String, Value> {
    let mut all = planned.parameters();
    all.extend(data.threshold.map(|t| ("binarize_threshold".to_string(), json!(t))));
    all.extend(data.divisor.map(|d| ("scale_divisor".to_string(), json!(d))));
    all.extend(record::of_decisions(decisions));
    if planned.is_private() {
        all.insert("input".into(), planned.spec.shown_input().into());
        all.values_mut().for_each(spec::hide_files);
    }
    all
}

/// Opens the trace on rank 0, or at each owner of a rank, and writes its start event. Collective.
fn open_trace(planned: &Planned, comm: &Communicator, iteration: usize, start: &Value) -> SharedResult<Trace> {
    watchdog::enter("opening the trace");
    let path = planned.spec.trace.as_deref().filter(|_| comm.reports());
    let trace = Trace::open(path, planned.resuming.then_some(iteration), planned.results_access());
    let mut trace = comm.agree_on_error(trace)?;
    if metadata::needs_history(&planned.outputs) {
        trace = trace.in_memory();
    }
    trace.write(start);
    Ok(trace)
}
