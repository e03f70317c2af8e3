//! `fednmf sweep`: chooses the number of components. Runs every k with several seeds in one job: the ranks are split into
//! groups, and each group loads the data once and does its share of the runs. Every finished run has a file of its own, so
//! a sweep that was stopped continues where it was, and several jobs may share a directory.

mod choice;
mod consensus;
mod method;
mod stability;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ndarray::Array2;
use serde_json::{Map, Value, json};

use self::choice::{Point, choose};
use self::consensus::Observed;
use self::method::SweepMethod;
use self::stability::stability;
use self::summary::Summary;
use crate::algorithms::Problem;
use crate::algorithms::method::{ConfiguredMethod, Precision};
use crate::algorithms::parameters::{self, Missing};
use crate::algorithms::shared::grid;
use crate::algorithms::shared::missing::MissingArgs;
use crate::comm::{CONTROL, Communicator, Parties};
use crate::data;
use crate::data::{InputSpec, Layout, Loaded, PartySplit, TableOptions};
use crate::driver::{Checkpointer, Driver, Limits, Trajectory};
use crate::error::{EXIT_DONE, Error, Result};
use crate::linalg::SparseKernel;
use crate::metrics::Measure;
use crate::output::matrices;
use crate::output::matrices::Stored;
use crate::output::progress::Progress;
use crate::output::trace::Trace;

/// The entries that a sweep can leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepMissing {
    None,
    /// NaN
    Nan,
    /// Zeros: only stored entries count
    ZeroUnobserved,
}

impl From<SweepMissing> for Missing {
    fn from(missing: SweepMissing) -> Missing {
        match missing {
            SweepMissing::None => Missing::None,
            SweepMissing::Nan => Missing::Nan,
            SweepMissing::ZeroUnobserved => Missing::ZeroUnobserved,
        }
    }
}

/// `fednmf sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Numbers of components: 5..50, 5..50:5 (in steps of 5) or 4,8,12
    #[arg(long = "k", short = 'k', value_name = "KS")]
    pub components: String,
    /// Matrix: any input that a run takes
    #[arg(long, value_name = "PATH")]
    pub input: String,
    /// Directory for the results: the factors of each run, the consensus of those with the recommended k, sweep.json and
    /// sweep.html. What is there already is not done again
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Runs for each k, with different starts and entries held out
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub runs: usize,
    /// Method. hals, mu and auto can hold entries out
    #[arg(long, value_name = "NAME", value_enum, default_value_t = SweepMethod::Hals)]
    pub algo: SweepMethod,
    /// Share of the observed entries that a run does not see; 0: none, each run is faster, and k is chosen by stability and
    /// error [default: 0.05; 0 where the method cannot hold entries out]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = parameters::number(0.0, 0.9))]
    pub holdout: Option<f64>,
    /// Missing entries
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = SweepMissing::None)]
    pub missing: SweepMissing,
    /// Most iterations of a run
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_iters: usize,
    /// A run ends when in ten iterations the error falls by less than X times the first error
    #[arg(long, value_name = "X", default_value_t = 1e-4)]
    pub tol: f64,
    /// Seed of the first run; the next ones count on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Groups of ranks, each with the whole matrix and one run at a time [default: one for each rank]
    #[arg(long, value_name = "N")]
    pub groups: Option<usize>,
    /// Factorise the transposed matrix
    #[arg(long)]
    pub transpose: bool,
    #[command(flatten)]
    pub table: TableOptions,
    /// No progress on stderr
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Iterations between two evaluations.
const EVAL_EVERY: usize = 10;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    k: usize,
    run: usize,
}

/// What all runs have in common.
struct Sweep<'a> {
    args: &'a SweepArgs,
    /// The entries that do not count.
    left_out: MissingArgs,
    /// The method of each k, as soon as the shape of the matrix is known.
    methods: BTreeMap<usize, Arc<dyn ConfiguredMethod>>,
    input: InputSpec,
    ks: Vec<usize>,
}

impl Sweep<'_> {
    /// Checks what was typed.
    fn new(args: &SweepArgs) -> Result<Sweep<'_>> {
        let left_out = args.algo.left_out(args.missing.into(), args.holdout)?;
        if args.runs == 0 || args.max_iters == 0 {
            return Err(Error::input("--runs and --max-iters: must be at least 1"));
        }
        if !(args.tol >= 0.0 && args.tol.is_finite()) {
            return Err(Error::input(format!("--tol {}: must be a number of at least 0", args.tol)));
        }
        let mut input = InputSpec::parse(&args.input)?;
        input.transpose = args.transpose;
        input.table = args.table;
        input.allow_nan = args.missing == SweepMissing::Nan;
        Ok(Sweep { args, left_out, methods: BTreeMap::new(), input, ks: numbers(&args.components)? })
    }

    fn method(&self, k: usize) -> &dyn ConfiguredMethod {
        &*self.methods[&k]
    }

    /// The entries that count, whatever single runs hold out of them.
    fn observed(&self) -> Observed {
        match self.args.missing {
            SweepMissing::None => Observed::All,
            SweepMissing::Nan => Observed::Finite,
            SweepMissing::ZeroUnobserved => Observed::Nonzero,
        }
    }

    fn file(&self, task: Task) -> PathBuf {
        self.args.output.join(format!("k{:04}-run{:03}.h5", task.k, task.run))
    }

    /// Everything that determines the results of a run.
    fn identity(&self, task: Task, checksum: u64) -> Map<String, Value> {
        let args = self.args;
        let all = json!({
            "algo": self.method(task.k).description().name, "k": task.k, "seed": args.seed + task.run as u64,
            "holdout": self.left_out.holdout, "missing": args.missing, "max_iters": args.max_iters, "tol": args.tol,
            "transpose": u8::from(args.transpose), "checksum": format!("{checksum:016x}"),
            "params": self.method(task.k).parameters(),
        });
        all.as_object().cloned().unwrap_or_default()
    }

    /// The attributes of a finished run; `None` if it is still to do.
    ///
    /// # Errors
    /// If its file belongs to another sweep.
    fn done(&self, task: Task, checksum: u64) -> Result<Option<Map<String, Value>>> {
        let path = self.file(task);
        if !path.exists() {
            return Ok(None);
        }
        let stored = Stored::open(&path)?;
        for (name, value) in self.identity(task, checksum) {
            let found = stored.attributes().get(&name).cloned().unwrap_or(Value::Null);
            if let Some((name, found, value)) = difference(&name, &found, &value) {
                return Err(Error::input(format!(
                    "{}: belongs to another sweep: its {name} is {found}, not {value}; give another directory with --output",
                    path.display()
                )));
            }
        }
        Ok(Some(stored.attributes().clone()))
    }

    /// Performs one run and writes its file. Collective in the group.
    fn run(&self, task: Task, loaded: &Loaded<f64>, group: &Communicator) -> Result<()> {
        let problem = Problem {
            data: loaded.copy(),
            k: task.k,
            seed: self.args.seed + task.run as u64,
            kernel: SparseKernel::Native.into(),
            parties: Parties { count: group.size(), ranks: group.size() },
            max_iters: self.args.max_iters,
            initial: None,
            missing: None,
            carry_on: false,
            comm: group.clone(),
        };
        let mut driver = Driver {
            comm: group.clone(),
            algorithm: group.agree_on_error(f64::build(self.method(task.k), problem))?,
            trajectory: Trajectory::default(),
            limits: Limits {
                max_iters: self.args.max_iters,
                tol: Some(self.args.tol),
                target_error: None,
                time_limit: None,
                eval_every: EVAL_EVERY,
            },
            leading: Measure::RelativeError,
            signals: None,
            trace: Trace::default(),
            progress: Progress::new(false, None),
            checkpointer: Checkpointer::none(group),
        };
        driver.iterate()?;
        let Driver { algorithm, trajectory, .. } = driver;
        let statistics = &loaded.statistics;
        let mut all = self.identity(task, statistics.checksum);
        if !self.left_out.any() {
            let entries = loaded.header.rows as f64 * loaded.header.cols as f64;
            all.insert(
                "rmse".into(),
                json!(trajectory.error().unwrap_or(f64::NAN) * (statistics.norm2 / entries).sqrt()),
            );
        }
        all.extend(trajectory.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
        all.insert("iterations".into(), trajectory.iteration.into());
        all.insert("input".into(), self.args.input.clone().into());
        matrices::write(group, &self.file(task), &algorithm.factors(), &all)
    }

    /// V of every run with k components.
    fn components(&self, k: usize) -> Result<Vec<Array2<f64>>> {
        let read = |run| {
            let stored = Stored::open(&self.file(Task { k, run }))?;
            let mut v = Array2::zeros(stored.matrix("V")?);
            stored.as_f64("V", 0, v.view_mut())?;
            Ok(v)
        };
        (0..self.args.runs).map(read).collect()
    }

    /// Error and stability of one k, from the files of its runs.
    fn point(&self, k: usize, checksum: u64) -> Result<Point> {
        let (mut seen, mut held, mut divergences) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..self.args.runs {
            let task = Task { k, run };
            let Some(found) = self.done(task, checksum)? else {
                return Err(Error::failed(format!("{}: is no longer there", self.file(task).display())));
            };
            let value = |name: &str| found.get(name).and_then(Value::as_f64);
            seen.extend(value("rmse"));
            held.extend(value("heldout_rmse"));
            divergences.extend(value("kl_divergence"));
        }
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len().max(1) as f64;
        let heldout = (!held.is_empty()).then(|| {
            let (mean, n) = (mean(&held), held.len() as f64);
            let squares: f64 = held.iter().map(|x| (x - mean).powi(2)).sum();
            (mean, if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 })
        });
        let divergence = (!divergences.is_empty()).then(|| mean(&divergences));
        let stability = stability(&self.components(k)?);
        Ok(Point { k, runs: self.args.runs, rmse: mean(&seen), divergence, heldout, stability })
    }
}

/// The first difference of two values by name; of parameters that of a single one.
fn difference(name: &str, found: &Value, value: &Value) -> Option<(String, Value, Value)> {
    if let (Some(found), Some(value)) = (found.as_object(), value.as_object()) {
        let null = Value::Null;
        let names: BTreeSet<&String> = found.keys().chain(value.keys()).collect();
        let of = |all: &'_ Map<String, Value>, name: &str| all.get(name).unwrap_or(&null).clone();
        return names.into_iter().find_map(|name| difference(name, &of(found, name), &of(value, name)));
    }
    let equal = found == value || found.as_f64().zip(value.as_f64()).is_some_and(|(a, b)| a == b);
    (!equal).then(|| (name.to_string(), found.clone(), value.clone()))
}

/// `5..50`, `5..50:5`, `4,8,12`: numbers of components, ascending.
fn numbers(text: &str) -> Result<Vec<usize>> {
    let wrong = || Error::input(format!("--k {text}: must be as 5..50, 5..50:5 (in steps of 5) or 4,8,12"));
    let count = |t: &str| t.trim().parse::<usize>().ok().filter(|&k| k > 0).ok_or_else(wrong);
    let mut all = match text.split_once("..") {
        Some((from, rest)) => {
            let (to, step) = rest.split_once(':').unwrap_or((rest, "1"));
            let (from, to, step) = (count(from)?, count(to)?, count(step)?);
            if to - from.min(to) > 100_000 {
                return Err(wrong());
            }
            (from..=to).step_by(step).collect()
        }
        None => text.split(',').map(count).collect::<Result<Vec<usize>>>()?,
    };
    all.sort_unstable();
    all.dedup();
    if all.is_empty() { Err(wrong()) } else { Ok(all) }
}

/// The tasks of each group: the largest first, each to the group with the least work so far. The same on all ranks.
fn deal(mut tasks: Vec<Task>, groups: usize) -> Vec<Vec<Task>> {
    tasks.sort_by(|a, b| b.k.cmp(&a.k).then(a.run.cmp(&b.run)));
    let mut by_group = vec![Vec::new(); groups];
    let mut weights = vec![0usize; groups];
    for task in tasks {
        let least = (0..groups).min_by_key(|&g| weights[g]).unwrap_or(0);
        weights[least] += task.k;
        by_group[least].push(task);
    }
    by_group
}

/// Runs a sweep; returns the exit code. Collective.
///
/// # Errors
/// On all ranks, if arguments, data or the files of earlier runs are wrong.
pub fn sweep(args: &SweepArgs, comm: &Communicator) -> Result<i32> {
    let mut sweep = Sweep::new(args).map_err(Error::on_all_ranks)?;
    let made = if comm.is_root() { std::fs::create_dir_all(&args.output) } else { Ok(()) };
    let made = made.map_err(|e| {
        Error::input(format!(
            "--output {}: the directory cannot be made ({e}); choose one of your own",
            args.output.display()
        ))
    });
    comm.agree_on_error(made)?;
    let tasks: Vec<Task> = sweep.ks.iter().flat_map(|&k| (0..args.runs).map(move |run| Task { k, run })).collect();
    let groups = args.groups.unwrap_or(comm.size()).clamp(1, comm.size().min(tasks.len()));
    let number = comm.rank() * groups / comm.size();
    let group = comm.split(number);
    let mut progress = Progress::new(comm.is_root() && !args.quiet, None);
    let loaded = load(&mut sweep, &group, &mut progress);
    let (loaded, layout) = comm.agree_on_error(loaded)?;
    let sweep = sweep;
    let checksum = loaded.statistics.checksum;

    // Tasks are dealt before any run starts: files that other jobs write meanwhile change nothing.
    let open = || -> Result<Vec<bool>> {
        tasks.iter().map(|&task| sweep.done(task, checksum).map(|found| found.is_none())).collect()
    };
    let open = comm.agree_on_error(if comm.is_root() { open() } else { Ok(Vec::new()) })?;
    let open = comm.broadcast_value(CONTROL, open);
    let todo: Vec<Task> = tasks.iter().zip(open).filter(|(_, open)| *open).map(|(task, _)| *task).collect();
    progress.note(&format!(
        "{} of {} runs to do, by {groups} group(s) of ranks; results in {}",
        todo.len(),
        tasks.len(),
        args.output.display()
    ));
    let mine = deal(todo, groups).swap_remove(number);
    let count = mine.len();
    let all = mine.into_iter().enumerate().try_for_each(|(i, task)| {
        let done = sweep.run(task, &loaded, &group).map_err(|e| e.at(format!("k = {}, run {}", task.k, task.run)));
        done.inspect_err(|e| {
            if group.is_root() && groups > 1 {
                // The other groups finish their runs; then the job ends with this error.
                eprintln!("fednmf: {e}; the other groups continue");
            }
        })?;
        progress.note(&format!("k = {}, run {} done ({} of {count} of this group)", task.k, task.run, i + 1));
        Ok(())
    });
    comm.agree_on_error(all)?;

    let own = sweep.ks.iter().enumerate().filter(|(i, _)| i % comm.size() == comm.rank());
    let points = own.map(|(_, &k)| sweep.point(k, checksum)).collect::<Result<Vec<Point>>>();
    let mut points: Vec<Point> =
        comm.all_gather_value(CONTROL, &comm.agree_on_error(points)?).into_iter().flatten().collect();
    points.sort_by_key(|p| p.k);
    let choice = choose(&points, loaded.header.rows.min(loaded.header.cols));
    let consensus = choice.as_ref().filter(|_| number == 0);
    let consensus = consensus.map(|choice| consensus::make(&sweep, choice.k, &loaded, &layout, &group)).transpose();
    let consensus = comm.agree_on_error(consensus)?;
    progress.finish();
    let summary = Summary { sweep: &sweep, points: &points, choice, consensus };
    comm.agree_on_error(if comm.is_root() { summary.write() } else { Ok(()) })?;
    Ok(EXIT_DONE)
}

/// Settles the methods and loads the whole matrix into each group, in the layout that they need. Collective in the group.
fn load(sweep: &mut Sweep<'_>, group: &Communicator, progress: &mut Progress) -> Result<(Loaded<f64>, Layout)> {
    let input = data::open(&sweep.input, group)?;
    progress.notes(&input.header().notes);
    let (m, n, sparse) = (input.header().rows, input.header().cols, input.header().sparse);
    if let Some(k) = sweep.ks.iter().find(|&&k| k > m.min(n)) {
        return Err(Error::input(format!(
            "--k: {k} components are more than the {m} x {n} matrix has rows or columns"
        )));
    }
    sweep.methods = sweep.args.algo.configure(&sweep.ks, (m, n, sparse), &sweep.left_out);
    let partition = sweep.method(sweep.ks[0]).description().partition;
    let plan = if sweep.left_out.any() {
        Layout::RowsAndColumns { ranks: group.size() }
    } else {
        grid::plan(partition, (m, n), group.size(), Parties { count: 1, ranks: 1 }, PartySplit::Even, None)
    };
    let loaded = input.load::<f64>(&plan, group, &mut |part| progress.loading(part))?;
    Ok((loaded, plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_components() {
        assert_eq!(numbers("5..8"), Ok(vec![5, 6, 7, 8]));
        assert_eq!(numbers("2..9:3"), Ok(vec![2, 5, 8]));
        assert_eq!(numbers("8, 4,4"), Ok(vec![4, 8]));
        for wrong in ["", "0..3", "5..", "5..3", "a", "3..9:0", "1..999999999"] {
            assert!(numbers(wrong).is_err_and(|e| e.exit_code() == 2 && e.message.contains("--k")), "{wrong}");
        }
    }

    #[test]
    fn tasks_are_dealt_evenly_by_their_size() {
        let tasks: Vec<Task> = (1..=20).flat_map(|k| (0..3).map(move |run| Task { k, run })).collect();
        let by_group = deal(tasks.clone(), 4);
        let weights: Vec<usize> = by_group.iter().map(|own| own.iter().map(|t| t.k).sum()).collect();
        assert!(weights.iter().max().unwrap() - weights.iter().min().unwrap() <= 20, "{weights:?}");
        assert_eq!(by_group.concat().len(), tasks.len());
    }
}
