//! `fednmf report`: one page from the traces of runs, with their factors and matrices where these can be found.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_base::unfinished::Access;
use fednmf_base::units::parse_bytes;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_driver::missing::{MARKS, checksum_text};
use fednmf_driver::progress::Progress;
use fednmf_driver::report::{OWN_INPUT_OF, hide_marked, hide_zeros, sample, with_names};
use fednmf_driver::{metadata, missing, streaming};
use fednmf_files as data;
use fednmf_files::formats::detect::is_table_name;
use fednmf_files::names::{Match, compare};
use fednmf_files::output::matrices::Stored;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_files::{InputSpec, Source, TableOptions, names};
use fednmf_linalg::Real;
use fednmf_methods::parameters;
use fednmf_methods::parameters::Missing;
use fednmf_report as report;
use fednmf_report::{Display, History, Lines, Run, Sample, image_size};

use super::provenance::Provenance;

/// The runs that a report shows.
const TASKS: MessageTag = MessageTag::new("runs of the report", Payload::Metadata);

/// Options for what a report shows.
#[derive(Debug, Args)]
pub struct DisplayArgs {
    /// Report: show components as images of this height and width, where a row or column of the matrix is one
    #[arg(long, value_name = "HxW", help_heading = "Output")]
    pub image: Option<String>,

    /// Report: show components by their top terms, named in this file, one per line (FILE:2: its second column, between
    /// tabs). AnnData and 10x files and tables in text have names already
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub terms: Option<String>,

    /// Report: number of rows to show with their reconstruction: the best, the median and the worst [default: 6]
    #[arg(long, value_name = "N", help_heading = "Output", value_parser = parameters::whole_number)]
    pub report_rows: Option<usize>,
}

impl DisplayArgs {
    /// Checks the options and reads the list of names.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    pub fn check(&self) -> Result<Display> {
        let image = self.image.as_deref().map(image_size).transpose()?;
        let names = self.terms.as_deref().map(|text| names::list("--terms", text)).transpose()?;
        Ok(Display { image, names, rows: self.report_rows.unwrap_or(6), line_names: None })
    }

    /// Whether any of these options was given.
    pub fn any(&self) -> bool {
        self.image.is_some() || self.terms.is_some() || self.report_rows.is_some()
    }
}

/// `fednmf report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files that --trace wrote, one for each run
    #[arg(required = true)]
    pub traces: Vec<PathBuf>,
    /// The page
    #[arg(short = 'o', long, value_name = "F.html")]
    pub output: PathBuf,
    /// Factors of the run, as --output wrote them [default: where the trace says that they are; several runs: each its own]
    #[arg(long, value_name = "F.h5")]
    pub factors: Option<PathBuf>,
    /// The matrix, for rows beside their reconstruction [default: the one that the trace names, unless it is large]
    #[arg(short = 'i', long, value_name = "PATH")]
    pub input: Option<String>,
    /// Memory that the ranks of a node may use together: 4G, 512M [default: what is free there]. Rows of the matrix that do not fit
    /// are read from the file a panel at a time
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    #[command(flatten)]
    pub display: DisplayArgs,
}

/// Number of entries up to which a matrix is read again for a few sample rows without `--input`.
const READ_UNASKED: f64 = 5e7;

/// The input of a run according to its trace, or `typed` instead, if given.
fn input_of(start: &Value, typed: Option<&str>) -> Result<InputSpec> {
    let params = &start["params"];
    let named = typed.or(params["input"].as_str());
    let named =
        named.ok_or_else(|| Error::input("report: a trace does not say what its input was; name it with --input"))?;
    let mut spec = InputSpec::parse(named)?;
    // A matrix that is named now may be in another format.
    if typed.is_none_or(is_table_name) {
        spec.table = TableOptions::from_json(params);
    }
    let run = Provenance::of(start.as_object().unwrap_or(&Map::new()), Path::new("report: a trace"))?;
    run.apply(&mut spec);
    spec.transpose = run.transpose;
    spec.allow_negative = true;
    spec.parties = start["parties"].as_u64().map(|n| n as usize).filter(|_| spec.by_party());
    Ok(spec)
}

/// The description of a run that rank 0 sends to the others.
#[derive(serde::Serialize, serde::Deserialize)]
struct Task {
    start: Value,
    lines: Lines,
    /// Why no lines of the matrix are read; `None` if they are.
    without: Option<String>,
}

/// `fednmf report`. Collective.
///
/// # Errors
/// If a trace, the factors or the input cannot be read, or the page cannot be written.
pub fn report(args: &ReportArgs, comm: &Communicator) -> Result<i32> {
    let display = args.display.check().map_err(Error::on_all_ranks)?;
    if args.traces.len() > 1 && (args.factors.is_some() || args.input.is_some()) {
        return Err(Error::input("--factors and --input are one run's, but there are several traces")
            .on_all_ranks()
            .into());
    }
    let read = || -> Result<Vec<Run>> {
        let mut sources: Vec<targets::Source> = args.traces.iter().map(|path| ("TRACES", path.clone())).collect();
        sources.extend(args.factors.clone().map(|path| ("--factors", path)));
        sources.extend(args.input.iter().map(|path| ("--input", PathBuf::from(path))));
        let target = Target { option: "--output", path: &args.output, content: Content::Report };
        targets::check(&[target], &sources)?;
        let mut histories = args.traces.iter().map(|path| History::read(path)).collect::<Result<Vec<_>>>()?;
        report::distinguish(&mut histories);
        histories.into_iter().map(|history| found(history, args, &display)).collect()
    };
    let mut runs = comm.agree_on_error(if comm.is_root() { read() } else { Ok(Vec::new()) })?;
    let tasks = runs.iter().map(|run| task(run, args)).collect::<Result<Vec<_>>>();
    let tasks: Vec<Task> = comm.broadcast_value(TASKS, comm.agree_on_error(tasks)?);
    let mut progress = Progress::new(comm.is_root(), None);
    runs.iter().flat_map(|run| &run.notes).for_each(|note| progress.warn(note));
    for (i, task) in tasks.into_iter().enumerate() {
        let sample = match task.without {
            None => {
                lines_of(&task, display.rows, args, comm, &mut progress)?.inspect_err(|changed| progress.warn(changed))
            }
            Some(without) => Err(without),
        };
        if let Some(run) = runs.get_mut(i) {
            run.sample = sample;
        }
    }
    progress.finish();
    let sources = args.traces.iter().cloned().chain(args.factors.clone()).chain(args.input.iter().map(PathBuf::from));
    let access = Access::as_of(sources);
    comm.agree_on_error(if comm.is_root() { report::write(&args.output, runs, access) } else { Ok(()) })?;
    if comm.is_root() {
        print_line(&format!("The report is {}.", args.output.display()))?;
    }
    Ok(EXIT_DONE)
}

/// The evidence that factors are from another run, if any.
fn difference(stored: &Stored, history: &History) -> Option<&'static str> {
    let same = |key: &str| stored.attributes().get(key).is_none_or(|found| *found == history.start[key]);
    [("k", "number of components"), ("seed", "seed"), ("args", "options")]
        .into_iter()
        .find_map(|(key, what)| (!same(key)).then_some(what))
}

/// The factors, unless a later run has replaced them.
fn of_this_run(stored: Stored, history: &History, name: &str) -> std::result::Result<Stored, String> {
    match difference(&stored, history) {
        None => Ok(stored),
        Some(_) => Err(format!("{name} was written by another run since")),
    }
}

/// Refuses factors whose rows and columns are not those of the matrix, in its order: the matrix may have been sorted since
/// the run, or another program may have sorted or cut an AnnData file.
fn check_order(stored: &Stored, history: &History, args: &ReportArgs) -> Result<()> {
    let (found, known) = (stored.names(), names::of_input(&input_of(&history.start, args.input.as_deref())?));
    let matrix = match &args.input {
        Some(typed) => format!("--input {typed}"),
        None => format!("the matrix {}", history.parameter("input").as_str().unwrap_or_default()),
    };
    let factors = stored.path().display();
    for (what, found, known) in [("rows", &found.rows, &known.rows), ("columns", &found.columns, &known.columns)] {
        // Names may be private, and the page is for others, so the message has none.
        let message = match compare(found.as_deref(), known.as_deref()) {
            Match::Equal => continue,
            Match::Reordered(_) | Match::Repeated(_) => format!(
                "the {what} of {matrix} are in another order than in the run, by their names in {factors}; give the matrix in \
                 that order, or the factors as the run wrote them if they were sorted since"
            ),
            Match::Different(..) => format!(
                "{factors}: its {what} are others than those of {matrix}; give the matrix of the run, and the factors as the \
                 run wrote them"
            ),
        };
        return Err(Error::input(message));
    }
    Ok(())
}

/// A run, with its factors if they are found.
fn found(history: History, args: &ReportArgs, display: &Display) -> Result<Run> {
    let mut notes = Vec::new();
    let factors = match (&args.factors, history.start["output"].as_str()) {
        (Some(path), _) => {
            let stored = Stored::open(path)?;
            stored.check_factors()?;
            check_order(&stored, &history, args)?;
            notes.extend(difference(&stored, &history).map(|what| {
                format!("{} holds the factors of another run than the trace: their {what} differs.", path.display())
            }));
            Ok(stored)
        }
        (None, Some(name)) => match history.find(name) {
            Some(path) => {
                let stored = Stored::open(&path).and_then(|stored| {
                    stored.check_factors()?;
                    check_order(&stored, &history, args).map(|()| stored)
                });
                stored.map_err(|e| e.to_string()).and_then(|stored| of_this_run(stored, &history, name))
            }
            None => Err(format!("{name} no longer exists; give its path with --factors")),
        },
        (None, None) => Err("the run kept no factors (--output)".to_string()),
    };
    let mut display = display.clone();
    display.show_images(serde_json::from_value(history.start["image"].clone()).unwrap_or_default());
    let shape = (history.count("m"), history.count("n"));
    let display = with_names(&display, &input_of(&history.start, args.input.as_deref())?, shape);
    Ok(Run { history, factors, sample: Err(String::new()), display, notes })
}

fn task(run: &Run, args: &ReportArgs) -> Result<Task> {
    let history = &run.history;
    let (m, n) = (history.count("m"), history.count("n"));
    let lines = run.display.lines((m, n))?.unwrap_or(Lines::Rows);
    let mut without = None;
    if run.factors.is_ok() && args.input.is_none() {
        if history.start[OWN_INPUT_OF].is_u64() {
            let without = Some(
                "Rows of the matrix are not shown: the run at this site had its own party's part of it alone.".into(),
            );
            return Ok(Task { start: history.start.clone(), lines, without });
        }
        let name = history.parameter("input").as_str().unwrap_or_default();
        let Source::File { path, .. } = input_of(&history.start, None)?.source else {
            let entries = m as f64 * n as f64;
            without = (entries > READ_UNASKED).then(|| large(entries));
            return Ok(Task { start: history.start.clone(), lines, without });
        };
        let entries = if history.start["format"].as_str().is_some_and(|f| f.contains("npy") || f.contains("dense")) {
            m as f64 * n as f64
        } else {
            history.start["nnz"].as_f64().unwrap_or(f64::INFINITY)
        };
        // The trace of a private run does not name its file.
        if path.contains("{party}") || report::is_private(history) {
            without = Some("The rows of the matrix are the parties' own: they are not shown.".into());
        } else if entries > READ_UNASKED {
            without = Some(large(entries));
        } else if !Path::new(&path).exists() {
            let alone = if args.traces.len() > 1 { ", in a report of this run alone" } else { "" };
            without = Some(format!(
                "Rows of the matrix are not shown: {name} is not there; say where it is with --input{alone}."
            ));
        }
    } else if run.factors.is_err() {
        without = Some("Rows of the matrix are not shown, since there are no factors.".into());
    }
    Ok(Task { start: history.start.clone(), lines, without })
}

fn large(entries: f64) -> String {
    format!(
        "Rows of the matrix are not shown: reading its {entries:.1e} entries takes long; give --input to show them."
    )
}

/// Sample lines of a run's matrix, read again in the precision of the run, or why they are not those of the run.
/// Collective.
fn lines_of(
    task: &Task,
    rows: usize,
    args: &ReportArgs,
    comm: &Communicator,
    progress: &mut Progress,
) -> Result<std::result::Result<Sample, String>> {
    // The checksum is that of the entries in the precision of the run.
    match task.start["precision"].as_str() {
        Some(f32::NAME) => lines_in::<f32>(task, rows, args, comm, progress),
        _ => lines_in::<f64>(task, rows, args, comm, progress),
    }
}

fn lines_in<T: Real>(
    task: &Task,
    rows: usize,
    args: &ReportArgs,
    comm: &Communicator,
    progress: &mut Progress,
) -> Result<std::result::Result<Sample, String>> {
    let typed = args.input.as_deref();
    let mut spec = input_of(&task.start, typed).map_err(Error::on_all_ranks)?;
    spec.memory = args.memory;
    let input = data::open(&spec, comm)?;
    progress.notes(&input.header().notes);
    progress.warnings(&input.header().warnings);
    let show = &mut |part| progress.loading(part);
    let (mut loaded, note) = streaming::load_rows::<T>(input, 0.0, Ok(()), comm, show)?;
    note.iter().for_each(|note| progress.note(note));
    let (m, n) = (loaded.header.rows, loaded.header.cols);
    if task.start["m"].as_u64() != Some(m as u64) || task.start["n"].as_u64() != Some(n as u64) {
        return Err(Error::input(format!(
            "the matrix is {m} x {n}, but the trace is of one of {} x {}; name the right one with --input",
            task.start["m"], task.start["n"]
        ))
        .on_all_ranks()
        .into());
    }
    let now = checksum_text(loaded.statistics.checksum);
    if let Some(then) = task.start["checksum"].as_str().filter(|then| *then != now) {
        let name = typed.or(task.start["params"]["input"].as_str()).unwrap_or_default();
        return Ok(Err(format!(
            "Rows of the matrix are not shown: {name} is not as it was in the run (its checksum is {now}, and was {then})."
        )));
    }
    let mut sample = sample(task.lines, rows, &mut loaded, comm)?;
    let params = &task.start["params"];
    let missing = params["missing"].as_str().and_then(|text| parameters::missing(text).ok()).unwrap_or(Missing::None);
    if missing == Missing::ZeroUnobserved {
        hide_zeros(&mut sample);
    }
    let Some(file) = missing.marks() else { return Ok(Ok(sample)) };
    let unread =
        |why: &str| Ok(Err(format!("Rows of the matrix are not shown: {file}, which marks missing entries, {why}.")));
    if !InputSpec::parse(file).map_err(Error::on_all_ranks)?.files().iter().any(|file| file.exists()) {
        return unread("is not here");
    }
    let names = metadata::names_of(&spec, false, comm);
    let marks = missing::read(file, (m, n), &names, &loaded.cuts, comm)?;
    if params[MARKS].as_str().is_some_and(|then| !marks.agree_with(then, [&|i| i, &|j| j], comm)) {
        return unread("is not as it was in the run");
    }
    hide_marked(&mut sample, &marks.places.rows, comm);
    Ok(Ok(sample))
}
