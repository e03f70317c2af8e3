//! The driver: from checked settings to factors on disk. It alone knows of limits, evaluation, progress, trace,
//! checkpoints and signals, so every algorithm has them all.

mod checkpointer;
mod checks;
mod initial;
mod iterate;
mod kernels;
pub mod metadata;
mod missing;
mod report;

use std::io::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use self::checkpointer::{Checkpointer, Good, all_finite};
use self::checks::{before_reading, check_form, check_grid, check_shape, check_size, share, split_name};
use self::initial::Initial;
use self::iterate::{Course, Stop};
use crate::algorithms::options::{RECORD_ORDER, RECORD_RELEASES, SECURE_SUM};
use crate::algorithms::registry::Partition;
use crate::algorithms::shared::dp;
use crate::algorithms::{Algorithm, Problem, Restore};
use crate::cli::{Precision, SAMPLE_INPUT, Settings};
use crate::comm::watchdog;
use crate::comm::watchdog::Watchdog;
use crate::comm::{Communicator, MessageTag, Parties, Payload, Signals, end_without_lost_ranks};
use crate::data;
use crate::data::{Plan, Share};
use crate::error::{EXIT_DONE, EXIT_FAILED, EXIT_REQUEUE, Error, Result};
use crate::linalg;
use crate::output::checkpoint;
use crate::output::checkpoint::Checkpoint;
use crate::output::progress::Progress;
use crate::output::trace::Trace;
use crate::output::{attributes, matrices, summary};

pub use report::report;

/// Seeds, decisions and the like, from rank 0 to all.
pub(crate) const CONTROL: MessageTag = MessageTag::new("control", Payload::Control);

/// Runs a factorisation; the exit code. Collective.
///
/// # Errors
/// On wrong input (on all ranks alike) or when the run fails.
pub fn run(settings: &Settings, comm: &Communicator) -> Result<i32> {
    match settings.precision {
        Precision::F64 => run_in::<f64>(settings, comm),
        Precision::F32 => run_in::<f32>(settings, comm),
    }
}

fn run_in<T: crate::algorithms::registry::Precision>(settings: &Settings, comm: &Communicator) -> Result<i32> {
    let signals = Signals::catch().map_err(|e| Error::failed(format!("cannot catch signals: {e}")))?;
    watchdog::enter("opening the files");
    let _watch = Watchdog::start(comm.rank(), settings.stall_timeout)
        .map_err(|e| Error::failed(format!("the system refuses a thread: {e}")))?;
    comm.agree_on_error(linalg::start_threads(settings.threads))?;
    check_grid(settings, comm.size()).map_err(Error::on_all_ranks)?;
    let resuming = comm.agree_on_error(before_reading(settings, comm))?;
    let share = comm.agree_on_error(share(settings, comm))?;
    watchdog::enter("loading");
    let loading = std::time::Instant::now();
    let input = data::open(&settings.input, comm)?;
    let header = input.header().clone();
    check_shape(settings, &header).map_err(Error::on_all_ranks)?;
    let lines = report::lines(settings, &header).map_err(Error::on_all_ranks)?;
    let settings = &settings.settled(header.rows, header.cols, header.sparse).map_err(Error::on_all_ranks)?;

    let mut progress = Progress::new(comm.is_root() && !settings.quiet, Some(settings.max_iters));
    if settings.input_text == SAMPLE_INPUT {
        progress.note("the data: a synthetic matrix with a known answer; --input FILE is for your own");
    }
    if let Some(why) = settings.automatic {
        progress.note(&format!("--algo auto: {} ({why})", settings.method.name));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if settings.threads > cores {
        progress.note(&format!(
            "--threads {}: this rank may run on {cores} core(s) only; start it with mpirun --bind-to none, or srun \
             --cpus-per-task {}",
            settings.threads, settings.threads
        ));
    }
    if let Some(seed) = settings.deciding().get("secret_seed").and_then(Value::as_u64) {
        progress.note(&format!("warning: --secret-seed {seed}: keys, masks and noise can be guessed; for tests only"));
    }
    if let Some(path) = settings.options.file(&RECORD_RELEASES) {
        progress.note(&format!(
            "warning: --record-releases: whoever reads {} knows of the data what every party does, with enough releases all",
            path.display()
        ));
    }
    let counted = if let Share::Counts(counts) = &share { Some(counts.len()) } else { None };
    let count = settings.parties.or(counted).unwrap_or(comm.size());
    let parties = Parties { count, ranks: comm.size() };
    let partition = settings.method.partition;
    let shape = (header.rows, header.cols);
    let (items, what) = if partition == Partition::PartyRows { (shape.0, "rows") } else { (shape.1, "columns") };
    share.check(items, count, what).map_err(|e| e.at(split_name(settings)).on_all_ranks())?;
    let shared_out = share.counts();
    let plan = match settings.options.missing() {
        Some(_) => Plan::RowsAndColumns { ranks: comm.size() },
        None => partition.plan(shape, comm.size(), parties, share, settings.options.grid()),
    };
    let loaded = input.load::<T>(&plan, comm, &mut |part| {
        watchdog::step();
        progress.loading(part);
    })?;
    watchdog::enter("preparing");
    let load_seconds = loading.elapsed().as_secs_f64();
    let statistics = loaded.statistics;
    let threshold = loaded.threshold.filter(|_| matches!(settings.input.binarize, Some(data::Threshold::Quantile(_))));
    if let Some(threshold) = threshold {
        progress.note(&format!("--binarize: entries from {threshold} on are ones"));
    }
    if loaded.duplicates > 0 {
        progress.note(&format!("{} entries were given more than once and added up", loaded.duplicates));
    }
    if let Some(block) = loaded.blocks.first() {
        check_form(settings, block).map_err(Error::on_all_ranks)?;
    }
    check_size(&statistics).map_err(Error::on_all_ranks)?;

    let mut cells = metadata::cells(settings.output.as_deref(), &settings.input, comm);
    let sample = lines.and_then(|lines| report::sample_of(settings, lines, &plan, &loaded, comm));
    let sparse_kernels = kernels::choose(settings, resuming, &loaded.blocks, comm)?;
    let initial = settings.options.init_file().map(|path| Initial::open(path, (header.rows, header.cols), settings.k));
    let initial = comm.agree_on_error(initial.transpose())?;
    let file = settings.options.missing_file();
    let missing = file.map(|path| missing::read(path, shape, &loaded.cuts, comm)).transpose()?;
    let problem = Problem {
        missing,
        initial: initial.as_ref().map(|initial| initial as &dyn Restore<T>),
        data: loaded,
        k: settings.k,
        seed: settings.seed,
        kernel: sparse_kernels,
        options: &settings.options,
        max_iters: settings.max_iters,
        parties,
        carry_on: settings.carry_on,
        comm: comm.clone(),
    };
    let mut algorithm = comm.agree_on_error(T::build(settings.method, problem))?;

    let mut identity = settings.deciding();
    identity.insert("m".into(), header.rows.into());
    identity.insert("n".into(), header.cols.into());
    identity.insert("split".into(), shared_out.into());
    identity.insert("checksum".into(), format!("{:016x}", statistics.checksum).into());
    let mut course = Course::new(settings);
    if resuming {
        let path = settings.checkpoint.as_ref().expect("--resume needs --checkpoint");
        comm.agree_on_error(resume(path, &identity, &mut *algorithm, &mut course))?;
        progress.note(&format!("going on at iteration {} from {}", course.iteration, path.display()));
    }

    if algorithm.releases().is_some() && settings.eval_every > 0 {
        progress.note(
            "--dp: evaluations send exact errors of the parties, which --epsilon does not cover; --eval-every 0 sends none",
        );
    }
    let start = json!({
        "event": "start", "version": attributes::VERSION, "git": attributes::GIT, "algo": settings.method.name,
        "args": settings.words, "ranks": comm.size(), "parties": parties.count, "m": header.rows, "n": header.cols,
        "nnz": statistics.nonzeros, "k": settings.k, "seed": settings.seed, "precision": T::NAME, "host": attributes::hostname(),
        "time": attributes::now(), "params": parameters(settings, &*algorithm, threshold), "format": header.format,
        kernels::USED: kernels::names(sparse_kernels),
        "checksum": identity["checksum"], "mkl": linalg::mkl_version(),
        "load_seconds": load_seconds, "resumed_from": course.iteration, "output": settings.output,
    });
    watchdog::enter("opening the trace");
    let mut trace = comm.agree_on_error(open_trace(settings, comm, resuming))?;
    if metadata::wants_course(settings) {
        trace = trace.keeping();
    }
    comm.agree_on_error(trace.write(&start))?;

    let checkpoint = settings.checkpoint.as_ref().map(|path| Checkpoint::new(path));
    identity.insert(kernels::USED.into(), kernels::names(sparse_kernels));
    let rescues = settings.output.is_some();
    let mut checkpointer = Checkpointer::new(comm, checkpoint, identity, settings.checkpoint_every, rescues);
    watchdog::enter("iterating");
    let iterated = course.follow(&mut *algorithm, comm, &signals, &mut trace, &mut progress, &mut checkpointer);
    progress.finish();
    let left = algorithm.left().cloned();
    let comm = left.as_ref().unwrap_or(comm);
    let concluded = iterated.and_then(|stop| {
        all_finite(comm, &*algorithm)?;
        Ok(stop)
    });
    cells.course = metadata::course(settings, &trace);
    let stop = match concluded {
        Ok(stop) => stop,
        Err(e) => return Err(rescue(e, settings, comm, &start, &course, (checkpointer.good(), &cells))),
    };

    watchdog::enter("writing the output");
    let privacy = algorithm.releases().map(|r| r.json(&not_covered(settings, &course)));
    if let Some(path) = &settings.output {
        let mut all = provenance(settings, comm, &start, &course, stop.name());
        all.extend(privacy.clone().map(|table| ("privacy".to_string(), table)));
        matrices::write_factors(comm, path, &algorithm.factors(), &all, &cells)?;
    }
    if let Some(path) = settings.options.file(&RECORD_RELEASES) {
        let all = provenance(settings, comm, &start, &course, stop.name());
        matrices::write(comm, path, &algorithm.seen(), &all)?;
    }
    if let Some(path) = settings.options.file(&RECORD_ORDER) {
        comm.agree_on_error(if comm.is_root() { write_order(path, &algorithm.order()) } else { Ok(()) })?;
    }
    let profile = summary::profile(comm);
    let mut end = json!({
        "event": "end", "iter": course.iteration, "seconds": course.seconds, "stopped_by": stop.name(),
    });
    let end_map = end.as_object_mut().expect("an object");
    end_map.extend(course.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
    end_map.extend(profile.json());
    end_map.extend(privacy.map(|table| ("privacy".to_string(), table)));
    comm.agree_on_error(trace.write(&end))?;
    report::of_run(settings, comm, &trace, &algorithm.factors(), sample)?;
    if comm.is_root() {
        tell(settings, &start, &end, &profile);
    }
    if let Some(e) = checkpointer.unsaved {
        let done = if settings.output.is_some() { "the factors are written" } else { "the run came to its end" };
        return Err(Error::failed(format!("{done}, but the last checkpoint is not: {e}")).on_all_ranks());
    }
    let code = match stop {
        Stop::Signal(_) if settings.checkpoint.is_none() => EXIT_FAILED,
        Stop::Signal(_) => EXIT_REQUEUE,
        Stop::TimeLimit if settings.checkpoint.is_some() => EXIT_REQUEUE,
        _ => EXIT_DONE,
    };
    match left {
        Some(left) => end_without_lost_ranks(&left, code),
        None => Ok(code),
    }
}

/// The order of merges, a party on each line.
fn write_order(path: &Path, order: &[usize]) -> Result<()> {
    let lines: String = order.iter().map(|party| format!("{party}\n")).collect();
    std::fs::write(path, lines)
        .map_err(|e| Error::failed(format!("--record-order {}: cannot be written ({e})", path.display())))
}

/// What leaves a party without noise on it.
fn not_covered(settings: &Settings, course: &Course<'_>) -> Vec<String> {
    let mut all = vec!["sum, norm, range, number and hash of all entries, once while loading".to_string()];
    if course.evaluations > 0 {
        let whose = if settings.options.flag(&SECURE_SUM) { "sums of the parties'" } else { "each party's" };
        all.push(format!("{whose} errors in {} evaluation(s)", course.evaluations));
    }
    all
}

/// The summary on stdout.
fn tell(settings: &Settings, start: &Value, end: &Value, profile: &summary::Profile) {
    let text = if settings.json {
        let mut all = end.clone();
        for key in ["algo", "ranks", "parties", "m", "n", "nnz", "k", "seed", "precision", "params", "resumed_from"] {
            all[key] = start[key].clone();
        }
        all["output"] = json!(settings.output);
        all["report"] = json!(settings.report.as_ref().map(|(path, _)| path));
        format!("{all}\n")
    } else {
        let count = |v: &Value| v.as_u64().unwrap_or(0) as usize;
        let output = settings.output.as_ref().map(|p| p.display().to_string());
        let facts = summary::Facts {
            algo: settings.method.name,
            shape: (count(&start["m"]), count(&start["n"])),
            k: settings.k,
            ranks: count(&start["ranks"]),
            parties: count(&start["parties"]),
            iterations: count(&end["iter"]),
            seconds: end["seconds"].as_f64().unwrap_or(0.0),
            rel_error: end["rel_error"].as_f64(),
            stopped_by: end["stopped_by"].as_str().unwrap_or(""),
            output: output.as_deref(),
        };
        let report = settings.report.as_ref().map(|(path, _)| format!(" The report is {}.", path.display()));
        let privacy = dp::lines(&end["privacy"]);
        let ones = start["params"]["binarize_threshold"].as_f64();
        let ones = ones.map_or_else(String::new, |t| format!("Entries from {t} on are the ones of --binarize. "));
        let said = summary::paragraph(&facts, profile);
        format!("{}\n{privacy}{ones}{said}{}\n", profile.table(), report.unwrap_or_default())
    };
    // A reader that has gone (`| head`) does not make the run a failure.
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn resume<T: linalg::Real>(
    path: &std::path::Path,
    identity: &Map<String, Value>,
    algorithm: &mut dyn Algorithm<T>,
    course: &mut Course<'_>,
) -> Result<()> {
    let (stored, found) = Checkpoint::resume(path)?;
    checkpoint::compare(&found, identity).map_err(|e| e.at(path.display()))?;
    course.restore(&found).map_err(|e| e.at(path.display()))?;
    algorithm.restore(&stored, course.iteration)
}

fn open_trace(settings: &Settings, comm: &Communicator, append: bool) -> Result<Trace> {
    Trace::open(settings.trace.as_deref().filter(|_| comm.is_root()), append)
}

/// All effective parameters, the algorithm's own decisions included.
fn parameters<T: linalg::Real>(
    settings: &Settings,
    algorithm: &dyn Algorithm<T>,
    threshold: Option<f64>,
) -> Map<String, Value> {
    let mut all = settings.all();
    all.extend(threshold.map(|t| ("binarize_threshold".to_string(), json!(t))));
    all.extend(algorithm.decisions().into_iter().map(|(name, value)| (name.to_string(), value)));
    all
}

/// A run that failed on all ranks alike leaves the last factors that an evaluation found in order; the error that tells
/// of both. Collective where the error is known everywhere.
fn rescue<T: linalg::Real>(
    error: Error,
    settings: &Settings,
    comm: &Communicator,
    start: &Value,
    course: &Course<'_>,
    (good, cells): (Option<&Good<T>>, &matrices::Cells),
) -> Error {
    let (true, Some(path), Some(good)) = (error.everywhere, &settings.output, good) else { return error };
    let mut all = provenance(settings, comm, start, course, "failure");
    all.insert("iterations".into(), good.iteration.into());
    all.extend(good.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
    let message = match matrices::write_factors(comm, path, &good.pieces(), &all, cells) {
        Ok(()) => format!("the factors of iteration {}, the last good ones, are in {}", good.iteration, path.display()),
        Err(e) => format!("nor can the last good factors be kept: {e}"),
    };
    Error { message: format!("{}; {message}", error.message), ..error }
}

/// The attributes of the output file.
fn provenance(
    settings: &Settings,
    comm: &Communicator,
    start: &Value,
    course: &Course<'_>,
    stopped_by: &str,
) -> Map<String, Value> {
    let mut all = Map::new();
    for key in ["algo", "version", "git", "parties", "m", "n", "k", "seed", "precision", "checksum", "args", "params"] {
        all.insert(key.into(), start[key].clone());
    }
    all.insert("input".into(), settings.input_text.clone().into());
    all.insert("ranks".into(), comm.size().into());
    all.insert("iterations".into(), course.iteration.into());
    all.insert("seconds".into(), course.seconds.into());
    all.insert("stopped_by".into(), stopped_by.into());
    all.insert("date".into(), attributes::now().into());
    all.extend(course.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
    all
}
