//! The report of a run at its end, and `fednmf report` from traces.

use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde_json::{Map, Value, json};

use super::CONTROL;
use crate::algorithms::description::Partition;
use crate::algorithms::{Owner, Piece, registry};
use super::settings::Settings;
use crate::commands::report::ReportArgs;
use crate::comm::{Communicator, MessageTag, Payload};
use crate::data;
use crate::data::{Header, InputSpec, Layout, Loaded, Source, Stack, Threshold, names};
use crate::error::{EXIT_DONE, Error, Result};
use crate::linalg::Real;
use crate::output::matrices;
use crate::output::matrices::Stored;
use crate::output::progress::Progress;
use crate::output::trace::Trace;
use crate::report;
use crate::report::{Course, Lines, Run, Sample, Wishes};

/// Some lines of the matrix, on their way to the page; never of parties' data.
const SAMPLE: MessageTag = MessageTag::new("rows for the report", Payload::Data);
/// Entries up to which the matrix is read again for a few of its rows without being asked.
const READ_UNASKED: f64 = 5e7;

/// Which lines the report of a run will show; `None` without a report.
///
/// # Errors
/// When the image or the list of names does not fit the matrix.
pub fn lines(settings: &Settings, header: &Header) -> Result<Option<Lines>> {
    let Some((_, wishes)) = &settings.report else { return Ok(None) };
    Ok(Some(wishes.lines((header.rows, header.cols))?.unwrap_or(Lines::Rows)))
}

/// Lines of the data of a run; `None` where it is the parties' own. Collective.
pub fn sample_of<T: Real>(
    settings: &Settings,
    lines: Lines,
    plan: &Layout,
    loaded: &Loaded<T>,
    comm: &Communicator,
) -> Option<Sample> {
    let (_, wishes) = settings.report.as_ref().filter(|_| !settings.description().partition.is_private())?;
    Some(sample(lines, wishes.rows, plan, loaded, comm))
}

/// `count` lines, put together from all ranks' blocks. Collective.
fn sample<T: Real>(lines: Lines, count: usize, plan: &Layout, loaded: &Loaded<T>, comm: &Communicator) -> Sample {
    let (number, length) = lines.shape((loaded.header.rows, loaded.header.cols));
    let at = report::spread(count, number);
    let mut values = Array2::<f64>::zeros((at.len(), length));
    // Of two blocks that cover the matrix each, the second one is stored as it stands.
    if let (Some(block), Some(tile)) = (loaded.blocks.last(), plan.tiles(&loaded.cuts, comm.rank()).last()) {
        for (&line, mut out) in at.iter().zip(values.rows_mut()) {
            match lines {
                Lines::Rows if tile.rows.contains(&line) => {
                    let mut part = vec![0.0; tile.cols.len()];
                    block.widen_row(line - tile.rows.start, 0, &mut part);
                    out.iter_mut().skip(tile.cols.start).zip(part).for_each(|(out, x)| *out = x);
                }
                Lines::Columns if tile.cols.contains(&line) => {
                    for (i, out) in out.iter_mut().skip(tile.rows.start).take(tile.rows.len()).enumerate() {
                        block.widen_row(i, line - tile.cols.start, std::slice::from_mut(out));
                    }
                }
                _ => {}
            }
        }
    }
    comm.sum(SAMPLE, values.as_slice_mut().expect("made contiguous"));
    Sample { lines, at, values }
}

/// The course of a run so far.
///
/// # Errors
/// When the trace of a run that was resumed cannot be read.
pub fn course(settings: &Settings, trace: &Trace) -> Result<Course> {
    match settings.trace.as_ref().filter(|p| p.is_file() && settings.resume) {
        // The course before the resume is there too.
        Some(trace) => Course::read(trace),
        None => Course::new(settings.description().name.to_string(), trace.kept().iter().cloned(), PathBuf::new()),
    }
}

/// Writes the report that a run was asked for. Collective.
///
/// # Errors
/// On all ranks, when it cannot be written.
pub fn of_run<T: Real>(
    settings: &Settings,
    comm: &Communicator,
    trace: &Trace,
    factors: &[Piece<'_, T>],
    sample: Option<Sample>,
) -> Result<()> {
    let Some((path, wishes)) = &settings.report else { return Ok(()) };
    // The pictures are made from a file of factors, so that no rank must hold them all.
    let kept = settings.output.clone().filter(|p| Stored::open(p).is_ok() || !comm.is_root());
    let kept = comm.broadcast_value(CONTROL, kept);
    let file = kept.clone().unwrap_or_else(|| beside(path));
    if kept.is_none() {
        let shared = |p: &&Piece<'_, T>| p.owner == Owner::Shared;
        let shared: Vec<Piece<'_, T>> = factors
            .iter()
            .filter(shared)
            .map(|p| Piece::shared(p.name, p.total_rows, p.first_row, p.values.view()))
            .collect();
        matrices::write(comm, &file, &shared, &Map::new())?;
    }
    let write = || {
        let course = course(settings, trace)?;
        let wishes = with_names(wishes, &settings.input, course.count("n"));
        let mut notes = Vec::new();
        if settings.description().partition.is_private() {
            notes.push("The rows of the matrix are the parties' own: they are not shown.".to_string());
        }
        let factors = Stored::open(&file).map_err(|e| format!("The components are not shown: {e}."));
        report::write(path, vec![Run { course, factors, sample, wishes, notes }])
    };
    let written = if comm.is_root() { write() } else { Ok(()) };
    if kept.is_none() && comm.is_root() {
        // What is left of it harms nobody.
        let _ = std::fs::remove_file(&file);
    }
    comm.agree_on_error(written)
}

/// The name of a file that is there for a moment only.
fn beside(report: &Path) -> PathBuf {
    let mut name = report.file_name().unwrap_or_default().to_os_string();
    name.push(".factors.h5");
    report.with_file_name(name)
}

/// The wishes, with the names that the input brings along for its n columns where none were given and no image was
/// asked for.
fn with_names(wishes: &Wishes, input: &InputSpec, n: usize) -> Wishes {
    let mut wishes = wishes.clone();
    if wishes.image.is_none() && wishes.names.is_none() {
        wishes.names = names::of_input(input).columns.filter(|names| names.len() == n);
    }
    wishes
}

/// The input of a run as its trace has it, with `typed` in its place if that was given.
fn input_of(start: &Value, typed: Option<&str>) -> Result<InputSpec> {
    let params = &start["params"];
    let mut spec = InputSpec::parse(typed.or(params["input"].as_str()).unwrap_or_default())?;
    spec.transpose = params["transpose"] == json!(true);
    spec.scale = if params["scale"] == "max" { data::Scale::Max } else { data::Scale::None };
    spec.binarize = Threshold::from_json(&params["binarize"]);
    spec.allow_negative = true;
    spec.allow_nan = params["missing"] == "nan";
    spec.parties = start["parties"].as_u64().map(|n| n as usize).filter(|_| spec.by_party());
    let by_columns = start["algo"]
        .as_str()
        .and_then(registry::find)
        .is_some_and(|entry| entry.description().partition == Partition::PartyColumns);
    spec.stack = if by_columns { Stack::Columns } else { Stack::Rows };
    Ok(spec)
}

/// What rank 0 found out about a run.
#[derive(serde::Serialize, serde::Deserialize)]
struct Task {
    start: Value,
    lines: Lines,
    /// Why no lines of the matrix are read.
    without: Option<String>,
}

/// `fednmf report`. Collective.
///
/// # Errors
/// When a trace, the factors or the input that were named cannot be read, or the page not be written.
pub fn report(args: &ReportArgs, comm: &Communicator) -> Result<i32> {
    let wishes = args.wishes.check().map_err(Error::on_all_ranks)?;
    if args.traces.len() > 1 && (args.factors.is_some() || args.input.is_some()) {
        return Err(Error::input("--factors and --input are one run's, but there are several traces").on_all_ranks());
    }
    let read = || -> Result<Vec<Run>> {
        matrices::check_writable(&args.output).map_err(|e| e.at("--output"))?;
        let mut courses = args.traces.iter().map(|path| Course::read(path)).collect::<Result<Vec<_>>>()?;
        report::distinguish(&mut courses);
        courses.into_iter().map(|course| found(course, args, &wishes)).collect()
    };
    let mut runs = comm.agree_on_error(if comm.is_root() { read() } else { Ok(Vec::new()) })?;
    let tasks = runs.iter().map(|run| task(run, args)).collect::<Result<Vec<_>>>();
    let tasks: Vec<Task> = comm.broadcast_value(CONTROL, comm.agree_on_error(tasks)?);
    let mut progress = Progress::new(comm.is_root(), None);
    for (i, task) in tasks.into_iter().enumerate() {
        let sample = match task.without {
            None => Some(lines_of(&task, wishes.rows, args.input.as_deref(), comm, &mut progress)?),
            Some(_) => None,
        };
        if let Some(run) = runs.get_mut(i) {
            run.sample = sample;
            run.notes.extend(task.without);
        }
    }
    progress.finish();
    comm.agree_on_error(if comm.is_root() { report::write(&args.output, runs) } else { Ok(()) })?;
    if comm.is_root() {
        println!("The report is {}.", args.output.display());
    }
    Ok(EXIT_DONE)
}

/// A run with its factors, as far as they are to be found.
fn found(course: Course, args: &ReportArgs, wishes: &Wishes) -> Result<Run> {
    let factors = match (&args.factors, course.start["output"].as_str()) {
        (Some(path), _) => Ok(Stored::open(path)?),
        (None, Some(name)) => match course.find(name) {
            Some(path) => Stored::open(&path).map_err(|e| format!("The components are not shown: {e}.")),
            None => Err(format!(
                "The components are not shown: {name} is not there any more; name its place with --factors."
            )),
        },
        (None, None) => Err("The components are not shown: the run kept no factors (--output).".to_string()),
    };
    let wishes = with_names(wishes, &input_of(&course.start, args.input.as_deref())?, course.count("n"));
    Ok(Run { course, factors, sample: None, wishes, notes: Vec::new() })
}

fn task(run: &Run, args: &ReportArgs) -> Result<Task> {
    let course = &run.course;
    let (m, n) = (course.count("m"), course.count("n"));
    let lines = run.wishes.lines((m, n))?.unwrap_or(Lines::Rows);
    let mut without = None;
    if run.factors.is_ok() && args.input.is_none() {
        let name = course.parameter("input").as_str().unwrap_or_default();
        let Source::File { path, .. } = input_of(&course.start, None)?.source else {
            let entries = m as f64 * n as f64;
            without = (entries > READ_UNASKED).then(|| large(entries));
            return Ok(Task { start: course.start.clone(), lines, without });
        };
        let entries = if course.start["format"].as_str().is_some_and(|f| f.contains("npy") || f.contains("dense")) {
            m as f64 * n as f64
        } else {
            course.start["nnz"].as_f64().unwrap_or(f64::INFINITY)
        };
        if entries > READ_UNASKED {
            without = Some(large(entries));
        } else if !path.contains("{party}") && !Path::new(&path).is_file() {
            without =
                Some(format!("Rows of the matrix are not shown: {name} is not there; name its place with --input."));
        } else if path.contains("{party}") {
            without = Some("The rows of the matrix are the parties' own: they are not shown.".into());
        }
    } else if run.factors.is_err() {
        without = Some("Without factors no rows are set beside their reconstruction.".into());
    }
    Ok(Task { start: course.start.clone(), lines, without })
}

fn large(entries: f64) -> String {
    format!(
        "Rows of the matrix are not shown: it has {entries:.1e} entries to read; name it with --input to have them."
    )
}

/// Lines of the matrix of a run, read again. Collective.
fn lines_of(
    task: &Task,
    rows: usize,
    typed: Option<&str>,
    comm: &Communicator,
    progress: &mut Progress,
) -> Result<Sample> {
    let spec = input_of(&task.start, typed).map_err(Error::on_all_ranks)?;
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let loaded = data::open(&spec, comm)?.load::<f64>(&plan, comm, &mut |part| progress.loading(part))?;
    let (m, n) = (loaded.header.rows, loaded.header.cols);
    if task.start["m"].as_u64() != Some(m as u64) || task.start["n"].as_u64() != Some(n as u64) {
        return Err(Error::input(format!(
            "the matrix is {m} x {n}, but the trace is of one of {} x {}; name the right one with --input",
            task.start["m"], task.start["n"]
        ))
        .on_all_ranks());
    }
    Ok(sample(task.lines, rows, &plan, &loaded, comm))
}
