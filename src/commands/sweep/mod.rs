//! `fednmf sweep`: chooses the number of components. Runs every k with several seeds in one job: the ranks are split into
//! groups, and each group loads the data once and does its share of the runs. Every finished run has a file of its own, so
//! a sweep that was stopped continues where it was, and several jobs may share a directory.

mod args;
pub mod cnmf;
mod consensus;
pub mod programs;
mod runs;
mod summary;

use std::path::Path;

pub use self::args::SweepArgs;
use fednmf_base::error::{EXIT_DONE, EXIT_REQUEUE, Error, Result, SharedResult};
use fednmf_base::unfinished::Access;
use fednmf_base::units::counted;
use fednmf_base::warning::warn;
use fednmf_comm::{Communicator, MessageTag, Payload, Signals};
use fednmf_data::{Loaded, memory};
use fednmf_driver::missing::{warning_of_stored_zeros, warning_without_nan};
use fednmf_driver::model_selection::{
    Choice, Criterion, Point, SweepPlan, check_sizes, choose, choose_by_rows, considered, drops, errors_of_rows,
    group_of, inertias, layout,
};
use fednmf_driver::plan::Storage;
use fednmf_driver::progress::Progress;
use fednmf_driver::spec::Precision;
use fednmf_driver::{check_size, metadata, streaming, tell_of_duplicates, warning_of_logarithms};
use fednmf_files as data;
use fednmf_files::Input;
use fednmf_files::output::matrices::Stored;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters::Missing;
use fednmf_methods::shared::missing::MissingParams;

use self::cnmf::CnmfDirectory;
use self::runs::{Sweep, Task};
use self::summary::Summary;

/// The runs that are still to do, and the results of all.
const RUNS: MessageTag = MessageTag::new("runs of the sweep", Payload::Metadata);

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
    let mut new: Vec<&Path> = args.output.ancestors().take_while(|path| !path.exists()).collect();
    new.retain(|path| comm.is_root() && !path.as_os_str().is_empty());
    perform(args, comm).inspect_err(|_| {
        // A refused sweep leaves nothing behind; a directory with results is not removed.
        let _ = new.iter().try_for_each(std::fs::remove_dir);
    })
}

fn perform(args: &SweepArgs, comm: &Communicator) -> Result<i32> {
    let mut sweep = Sweep::new(args).map_err(Error::on_all_ranks)?;
    sweep.ranks = comm.size();
    let signals = Signals::catch()?;
    let created = if comm.is_root() { make_directory(&args.output) } else { Ok(()) };
    let checked = created.and_then(|()| if comm.is_root() { check_results(args, &sweep.ks) } else { Ok(()) });
    comm.agree_on_error(checked)?;
    let tasks: Vec<Task> = sweep.ks.iter().flat_map(|&k| (0..args.runs).map(move |run| Task { k, run })).collect();
    let cnmf = comm.agree_on_error(
        args.cnmf.as_deref().map(|path| CnmfDirectory::open(path, Access::as_of(sweep.input.files()))).transpose(),
    )?;
    let cnmf_files = cnmf.as_ref().filter(|_| comm.is_root()).map_or(Ok(()), |cnmf| {
        cnmf.check(&tasks)?;
        programs::check(&sweep, cnmf)
    });
    comm.agree_on_error(cnmf_files)?;
    let most = args.groups.unwrap_or(comm.size()).clamp(1, comm.size().min(tasks.len()));
    let mut progress = Progress::quiet(comm.is_root(), args.quiet, None);
    let (mut group, mut input) = open(&sweep, most, comm)?;
    let SweepPlan { methods, groups, storage } = plan(&mut sweep, &input, most, &mut progress, comm)?;
    if groups < most {
        (group, input) = open(&sweep, groups, comm)?;
    }
    sweep.methods = methods;
    sweep.streamed = storage != Storage::InMemory;
    let (number, _) = group_of(comm.rank(), comm.size(), groups);
    let loaded = comm.agree_on_error(load(&sweep, input, &storage, &group, &mut progress))?;
    sweep.names = metadata::names_of(&sweep.input, false, &group);
    let partition = sweep.method(sweep.ks[0]).description().partition;
    comm.agree_on_error(metadata::check_symmetric(partition, &sweep.names))?;
    if let Some(cnmf) = &cnmf {
        let checked = match comm.is_root() {
            true => cnmf.check_genes(loaded.header.cols, sweep.names.columns.as_deref()),
            false => Ok(()),
        };
        comm.agree_on_error(checked)?;
        if sweep.left_out.holdout > 0.0 {
            progress.note(&format!(
                "--cnmf: each run leaves out the share {} of the entries, where cNMF leaves out none; --holdout 0 does so too",
                sweep.left_out.holdout
            ));
        }
    }
    let sweep = sweep;
    let checksum = loaded.statistics.checksum;

    // Tasks are assigned before any run starts, so files that other jobs write meanwhile change nothing.
    let open = || -> Result<Vec<bool>> {
        let is_open = |&task| {
            let done = sweep.done(task, checksum)?.is_some();
            if done {
                sweep.check_names(task)?;
            }
            Ok(!done)
        };
        tasks.iter().map(is_open).collect()
    };
    let open = comm.agree_on_error(if comm.is_root() { open() } else { Ok(Vec::new()) })?;
    let open = comm.broadcast_value(RUNS, open);
    let todo: Vec<Task> = tasks.iter().zip(open).filter(|(_, open)| *open).map(|(task, _)| *task).collect();
    progress.note(&format!(
        "{} of {} runs to do, by {} of ranks; results in {}",
        todo.len(),
        tasks.len(),
        counted(groups, "group", "groups"),
        args.output.display()
    ));
    let mine = deal(todo, groups).swap_remove(number);
    let count = mine.len();
    let (mut all, mut signal) = (Ok(()), [0u32]);
    for (i, task) in mine.into_iter().enumerate() {
        let done = sweep.run(task, &loaded, &signals, &group);
        match done.map_err(|e| e.at(format!("k = {}, run {}", task.k, task.run))) {
            Ok(None) => {
                progress.run(i + 1, count, &format!("k = {}, start {}", task.k, task.run));
            }
            Ok(Some(caught)) => {
                signal = [caught as u32];
                break;
            }
            // The other ranks of the group wait for this one, so the job ends.
            Err(e) if !e.is_shared() && group.size() > 1 => return Err(e),
            Err(e) => {
                if group.is_root() && groups > 1 {
                    // The other groups finish their runs; then the job ends with this error.
                    warn(&format!("{e}; the other groups continue"));
                }
                all = Err(e);
                break;
            }
        }
    }
    comm.agree_on_error(all)?;
    comm.max(RUNS, &mut signal);
    if signal[0] > 0 {
        progress.finish();
        if comm.is_root() {
            let kept = tasks.iter().filter(|&&task| sweep.is_done(task)).count();
            warn(&format!(
                "stopped by {}: {kept} of {} runs are kept in {}, and the same command performs the others",
                Signals::name(signal[0] as usize),
                tasks.len(),
                args.output.display()
            ));
        }
        return Ok(EXIT_REQUEUE);
    }

    if let Some(cnmf) = &cnmf {
        // From the files, since earlier jobs did some of the runs. Rank 0 of each group knows the names.
        let own = tasks.iter().enumerate().filter(|(i, _)| group.is_root() && i % groups == number);
        let written =
            own.map(|(_, &task)| cnmf.write(task, &sweep.components_of(task)?, sweep.names.columns.as_deref()));
        comm.agree_on_error(written.collect::<Result<()>>())?;
    }
    let own = sweep.ks.iter().enumerate().filter(|(i, _)| i % comm.size() == comm.rank());
    let points = own.map(|(_, &k)| sweep.point(k, checksum)).collect::<Result<Vec<Point>>>();
    let mut points: Vec<Point> =
        comm.all_gather_value(RUNS, &comm.agree_on_error(points)?).into_iter().flatten().collect();
    points.sort_by_key(|p| p.k);
    // Hours may have passed since the first check, so it is repeated.
    comm.agree_on_error(if comm.is_root() { check_results(args, &sweep.ks) } else { Ok(()) })?;
    if !sweep.left_out.any() && sweep.measure() == Measure::RelativeError {
        let ks: Vec<usize> = points.iter().map(|p| p.k).collect();
        let found = inertias(&loaded, ks.last().map_or(0, |k| k + 1), &group);
        let found = comm.agree_on_error(found.map_err(Error::from))?;
        points.iter_mut().zip(drops(&ks, &found)).for_each(|(point, drop)| point.drop = Some(drop));
    }
    let most = loaded.header.rows.min(loaded.header.cols);
    let choice = match args.criterion {
        None => Ok(choose(&points, most)),
        // One group fits the rows, and makes the consensus.
        Some(Criterion::SigProfiler) if number == 0 => choose_by_fit(&sweep, (&points, most), &loaded, &group),
        Some(Criterion::SigProfiler) => Ok(None),
    };
    let choice = comm.agree_on_error(choice.map_err(Error::from))?;
    // Another job may write there meanwhile, so one rank decides.
    let own_name = if comm.is_root() { summary::own_name(&args.output, &sweep.ks) } else { None };
    let own_name = comm.broadcast_value(RUNS, own_name);
    let consensus = choice.as_ref().filter(|_| number == 0).map(|choice| {
        let k = choice.of_consensus();
        let file = consensus::file(&args.output, k, own_name.as_deref());
        consensus::make(&sweep, (k, file), &loaded, &group)
    });
    let consensus = consensus.transpose();
    let consensus = comm.agree_on_error(consensus.map_err(Error::from))?;
    let divisor = loaded.divisor.filter(|_| sweep.input.binarize.is_none());
    drop(loaded);
    if let Some(cnmf) = &cnmf {
        programs::write(&sweep, cnmf, comm, &mut progress)?;
    }
    progress.finish();
    let [html, numbers] = summary::files(&args.output, own_name.as_deref());
    let summary = Summary { sweep: &sweep, points: &points, choice, consensus, divisor, html, numbers };
    comm.agree_on_error(if comm.is_root() { summary.write() } else { Ok(()) })?;
    Ok(EXIT_DONE)
}

/// The choice by how well the consensus of each k fits the rows. Collective in a group.
fn choose_by_fit(
    sweep: &Sweep<'_>,
    (points, most): (&[Point], usize),
    loaded: &Loaded<f64>,
    group: &Communicator,
) -> SharedResult<Option<Choice>> {
    let errors = considered(points).into_iter().map(|point| {
        let matched = sweep.matched(point.k, group)?;
        errors_of_rows(matched.as_ref(), point.k, loaded, group)
    });
    Ok(choose_by_rows(points, &errors.collect::<SharedResult<Vec<_>>>()?, most))
}

fn make_directory(path: &Path) -> Result<()> {
    let wrong = |why: String| Error::input(format!("--output {}: {why}", path.display()));
    if path.exists() && !path.is_dir() {
        return Err(wrong("is a file; give the name of a directory for the results".into()));
    }
    std::fs::create_dir_all(path)
        .map_err(|e| wrong(format!("the directory cannot be made ({e}); choose one of your own")))
}

/// Refuses to replace results that are not a sweep's: the page is recognised, and its numbers are in the file next to it.
fn check_results(args: &SweepArgs, ks: &[usize]) -> Result<()> {
    let [page, numbers] = summary::files(&args.output, summary::own_name(&args.output, ks).as_deref());
    targets::check(&[Target { option: "--output", path: &page, content: Content::Report }], &[])?;
    if numbers.exists() && !page.exists() {
        return Err(Error::input(format!(
            "--output: {} exists and is not a sweep's, so it is not replaced; choose another directory",
            numbers.display()
        )));
    }
    let entries = std::fs::read_dir(&args.output).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let consensus = name.starts_with("consensus-k") && name.ends_with(".h5");
        let is_a_sweeps =
            |stored: Stored| stored.is_output() && stored.attributes().get("algo").is_some_and(|algo| algo == "sweep");
        if consensus && !Stored::open(&path).is_ok_and(is_a_sweeps) {
            return Err(Error::input(format!(
                "--output: {} exists and is not a sweep's, or something was added to it, so it is not replaced; move it or \
                 choose another directory",
                path.display()
            )));
        }
    }
    Ok(())
}

/// This rank's group, and the input, opened by its ranks. Collective.
fn open(sweep: &Sweep<'_>, groups: usize, comm: &Communicator) -> Result<(Communicator, Input)> {
    let group = comm.split(group_of(comm.rank(), comm.size(), groups).0);
    let input = comm.agree_on_error(data::open(&sweep.input, &group).map_err(Error::from))?;
    Ok((group, input))
}

/// Determines the methods, the groups, and whether memory holds the matrix. Collective.
fn plan(
    sweep: &mut Sweep<'_>,
    input: &Input,
    most: usize,
    progress: &mut Progress,
    comm: &Communicator,
) -> Result<SweepPlan> {
    let header = input.header();
    progress.notes(&header.notes);
    progress.warnings(&header.warnings);
    sweep.input.complete(header);
    sweep.sparse = header.sparse;
    check_sizes(&sweep.ks, (header.rows, header.cols)).map_err(|e| e.at("--k").on_all_ranks())?;
    let nodes = memory::nodes(0.0, sweep.input.memory, comm);
    let args = sweep.args;
    let planned = |left_out: &MissingParams| {
        let settings = args.settings(left_out);
        let runs = (&sweep.algo, &sweep.ks[..], &settings);
        let streaming = match args.resample {
            Some(_) => Err("--resample draws the copies in memory".to_string()),
            None => input.check_streaming(),
        };
        SweepPlan::new(runs, header, streaming, (most, args.groups), &nodes)
    };
    let refused = match planned(&sweep.left_out) {
        Ok(plan) => return Ok(plan),
        Err(refused) => refused,
    };
    if args.holdout.is_some() || sweep.left_out.holdout == 0.0 || sweep.left_out.missing != Missing::None {
        return Err(refused.into());
    }
    let complete = MissingParams { holdout: 0.0, ..sweep.left_out.clone() };
    let plan = planned(&complete)?;
    sweep.left_out = complete;
    progress.note(
        "memory is too small to hold entries out: all are seen (--holdout 0), and k is chosen by stability and error",
    );
    Ok(plan)
}

/// Loads the whole matrix into the group, in the layout that the methods need. Collective in the group.
fn load(
    sweep: &Sweep<'_>,
    input: Input,
    storage: &Storage,
    group: &Communicator,
    progress: &mut Progress,
) -> Result<Loaded<f64>> {
    let shape = (input.header().rows, input.header().cols);
    let layout = layout(sweep.method(sweep.ks[0]), shape, group.size());
    let show = &mut |part| progress.loading(part);
    let (mut loaded, note) = streaming::load::<f64>(input, (&layout, None), storage, None, group, show)?;
    note.iter().for_each(|note| progress.note(note));
    // Each run reads a copy.
    loaded.release();
    check_size(Precision::F64, &loaded.statistics).map_err(Error::on_all_ranks)?;
    if sweep.args.resample.is_some() {
        loaded.check_counts(group).map_err(|e| e.at("--resample"))?;
    }
    tell_of_duplicates(loaded.duplicates, &sweep.input, progress);
    if sweep.input.allow_nan
        && let Some(warning) = warning_without_nan(loaded.blocks.first(), group)
    {
        progress.warn(&warning);
    }
    if let Some(warning) = warning_of_stored_zeros(&sweep.left_out.missing, loaded.stored_zeros) {
        progress.warn(&warning);
    }
    if let Some(warning) = warning_of_logarithms(sweep.method(sweep.ks[0]).description().measure, loaded.blocks.last())
    {
        progress.warn(&warning);
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_dealt_evenly_by_their_size() {
        let tasks: Vec<Task> = (1..=20).flat_map(|k| (0..3).map(move |run| Task { k, run })).collect();
        let by_group = deal(tasks.clone(), 4);
        let weights: Vec<usize> = by_group.iter().map(|own| own.iter().map(|t| t.k).sum()).collect();
        assert!(weights.iter().max().unwrap() - weights.iter().min().unwrap() <= 20, "{weights:?}");
        assert_eq!(by_group.concat().len(), tasks.len());
    }
}
