//! After the last iteration: factors, records, the end of the trace, report, summary and exit code.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, EXIT_FAILED, EXIT_REQUEUE, Error, Result, SharedResult};
use fednmf_base::stdout::print;
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::units::short;
use fednmf_base::warning::warn;
use fednmf_comm::{Communicator, LARGEST, MessageTag, Payload, end_without_lost_ranks, watchdog};
use fednmf_data::messages::{CHECKPOINT, OUTPUT};
use fednmf_data::state::{OwnedPiece, Piece};
use fednmf_files::output::matrices::Annotations;
use fednmf_files::output::own_text;
use fednmf_files::output::{attributes, matrices};
use fednmf_linalg::Real;
use fednmf_methods::description::MessageSpec;
use fednmf_methods::federated::columns::asyn::ClockParams;
use fednmf_methods::federated::rows::fnmf::barycenter::INSIDE;
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_methods::shared::dp;
use fednmf_privacy::Protection;

use super::arrange::arrange;
use super::checks::all_finite;
use super::iterate::{Driver, LostRank, Stop, Trajectory};
use super::nonce::NONCE;
use super::plan::Planned;
use super::run::{Outcome, RunRecord};
use super::spec::{Outputs, Place};
use super::{budget, destinations, grid, metadata, record, report, transcript};
use crate::summary;
use crate::summary::Profile;

/// Writes the results of a run, or the last good factors if it failed; returns the exit code. Collective.
///
/// # Errors
/// If the run failed, or its results cannot be written.
pub fn finish<T: Real>(outcome: Outcome<T>) -> Result<i32> {
    let Outcome { record: run, mut driver, iterated } = outcome;
    driver.progress.finish();
    let survivors = driver.survivors().cloned();
    let comm = driver.comm().clone();
    let finished = iterated.and_then(|stop| {
        all_finite(&comm, &*driver.algorithm)?;
        Ok(stop)
    });
    let history = metadata::history(&run.planned, &driver.trace);
    let mut run = RunRecord { annotations: Annotations { history, ..run.annotations }, ..run };
    let stop = match finished {
        Ok(stop) => stop,
        Err(e) => {
            let _ = transcript::end(run.planned.spec.transcript.as_deref(), &comm, driver.algorithm.private_releases());
            return Err(write_last_good(e, &run, &driver, &comm));
        }
    };

    watchdog::enter("writing the output");
    let privacy = driver
        .algorithm
        .private_releases()
        .map(|r| r.json(&not_covered(&run.planned, &comm, driver.trajectory.evaluations)));
    budget::settle(&run.planned, &comm, driver.algorithm.private_releases())?;
    driver.checkpointer.forget();
    let (mut outputs, mut problems) = destinations::recheck(&run, &comm);
    if !driver.algorithm.is_open() {
        (outputs.factors, outputs.report) = (None, None);
    }
    run.annotations.add = outputs.add;
    let found = driver.algorithm.factors();
    let wanted = outputs.factors.is_some() || outputs.report.is_some();
    let arranged = wanted.then(|| arrange(&comm, run.planned.spec.factor_scale, &found)).flatten();
    let factors = arranged.as_ref().map_or(found, |arranged| arranged.iter().map(OwnedPiece::view).collect());
    let factors = run.output_pieces(factors);
    problems.extend(write_factors(&run, (&driver, stop), &mut outputs, &comm, &factors, privacy.as_ref())?);
    write_records(&run, (&driver, stop), &comm, privacy.as_ref())?;
    let profile = summary::profile(&comm, run.planned.is_private());
    let mut end = end_event(&driver.trajectory, stop, &profile, privacy);
    end.extend(record::of_decisions(&driver.algorithm.outcome()));
    let end = Value::from(end);
    driver.trace.write(&end);
    let reported = report::of_run(&run.planned, &outputs, &comm, &driver.trace, &factors, run.sample.take());
    if let Err(e) = reported {
        problems.push(format!("{e}; `fednmf report` makes the page from a trace and the factors"));
        outputs.report = None;
    }
    let printed = if comm.reports() {
        warnings(&run, &end, driver.leading, &driver.trajectory).iter().for_each(|text| warn(text));
        print_summary(&run, &outputs, (stop, &end), &profile, driver.leading)
    } else {
        Ok(())
    };
    comm.agree_on_error(printed)?;
    if let Some(e) = driver.checkpointer.checkpoint_error {
        let done = if outputs.factors.is_some() { "the factors are written" } else { "the run came to its end" };
        return Err(Error::failed(format!("{done}, but the last checkpoint is not: {e}")).on_all_ranks().into());
    }
    comm.agree_on_error(transcript::end(
        run.planned.spec.transcript.as_deref(),
        &comm,
        driver.algorithm.private_releases(),
    ))?;
    if !problems.is_empty() {
        return Err(Error::failed(problems.join("; ")).on_all_ranks().into());
    }
    let code = exit_code(stop, run.planned.spec.checkpoint.is_some());
    match survivors {
        Some(survivors) => end_without_lost_ranks(&survivors, code),
        None => Ok(code),
    }
}

/// The exit code of a run that stopped without an error.
fn exit_code(stop: Stop, has_checkpoint: bool) -> i32 {
    match (stop, has_checkpoint) {
        (Stop::Signal(_) | Stop::TimeLimit, true) => EXIT_REQUEUE,
        (Stop::Signal(_), false) => EXIT_FAILED,
        _ => EXIT_DONE,
    }
}

/// Writes the factors. If their path fails, they are written elsewhere, so that the result of hours is not lost: `outputs`
/// gets the new path, and the returned message reports it. Collective.
///
/// # Errors
/// On all ranks, if every path fails.
fn write_factors<T: Real>(
    run: &RunRecord,
    at: (&Driver<T>, Stop),
    outputs: &mut Outputs,
    comm: &Communicator,
    factors: &[Piece<'_, T>],
    privacy: Option<&Value>,
) -> SharedResult<Option<String>> {
    let Some(path) = &outputs.factors else { return Ok(None) };
    let about = about(run, at, comm, privacy);
    let Err(why) = matrices::write_factors(comm, path, factors, &about, &run.annotations) else { return Ok(None) };
    if outputs.place != Place::Anywhere {
        return Err(why);
    }
    match write_elsewhere(run, path, comm, factors, &about) {
        Ok(elsewhere) => {
            let message = format!("{why}; the result is in {} instead", elsewhere.display());
            (outputs.factors, outputs.add) = (Some(elsewhere), false);
            Ok(Some(message))
        }
        Err(all) => {
            let mut failed = format!("{why}; {all}");
            if let Some(checkpoint) = &run.planned.spec.checkpoint {
                failed = format!("{failed}; --resume continues from --checkpoint {}", checkpoint.display());
            }
            Err(Error::failed(failed).on_all_ranks())
        }
    }
}

/// Writes factors to the first of the other places that is possible; returns it, or why none is. Collective.
fn write_elsewhere<T: Real>(
    run: &RunRecord,
    path: &Path,
    comm: &Communicator,
    factors: &[Piece<'_, T>],
    about: &Map<String, Value>,
) -> std::result::Result<PathBuf, String> {
    let annotations = Annotations { add: false, ..run.annotations.clone() };
    let mut failed = Vec::new();
    for elsewhere in destinations::elsewhere(run, path, comm) {
        match matrices::write_factors(comm, &elsewhere, factors, about, &annotations) {
            Ok(()) => return Ok(elsewhere),
            Err(e) => failed.push(e.to_string()),
        }
    }
    Err(failed.join("; "))
}

/// Writes the files of `--record-view` and `--record-order`. Collective.
fn write_records<T: Real>(
    run: &RunRecord,
    (driver, stop): (&Driver<T>, Stop),
    comm: &Communicator,
    privacy: Option<&Value>,
) -> SharedResult<()> {
    if let Some(view) = &driver.view {
        let mut about = about(run, (driver, stop), comm, privacy);
        // A view is as confidential as the data, which an audit may look for.
        about.insert("input".into(), run.planned.spec.input_text.clone().into());
        comm.agree_on_error(view.finish(about))?;
    }
    if let (Some(path), Some(method)) =
        (run.planned.method.groups().clock.and_then(ClockParams::order_file), driver.algorithm.asynchronous())
    {
        comm.agree_on_error(if comm.reports() { write_order(path, method.order()) } else { Ok(()) })?;
    }
    Ok(())
}

/// The attributes of the files that a finished run writes.
fn about<T: Real>(
    run: &RunRecord,
    (driver, stop): (&Driver<T>, Stop),
    comm: &Communicator,
    privacy: Option<&Value>,
) -> Map<String, Value> {
    let mut all = provenance(run, comm, &driver.trajectory, stop.name());
    all.extend(record::of_decisions(&driver.algorithm.outcome()));
    all.extend(privacy.map(|table| ("privacy".to_string(), table.clone())));
    all
}

/// The order of merges, a party on each line.
fn write_order(path: &Path, order: &[usize]) -> Result<()> {
    let lines: String = order.iter().map(|party| format!("{party}\n")).collect();
    unfinished::replace(path, Access::Default, |out| write!(out, "{}", own_text::order(&lines)))
        .map_err(|e| Error::failed(format!("--record-order {}: cannot be written ({e})", path.display())))
}

/// Messages that are in the clear also where all others have noise, because they follow from the noised ones, and sums are
/// booked under their own names. Results and checkpoints hold the shared factors.
const FOLLOWING: [&str; 4] = [OUTPUT.kind, CHECKPOINT.kind, INSIDE.kind, LARGEST.kind];

/// What the epsilon of a run does not cover: messages that left a party without noise, from the ledger, in the words of the
/// message table, and circumstances in which noise hides nothing.
fn not_covered(planned: &Planned, comm: &Communicator, evaluations: usize) -> Vec<String> {
    let (description, ledger) = (planned.description(), comm.ledger());
    let leaves = |spec: &&MessageSpec| {
        let same = |tag: &MessageTag| tag.kind == spec.kind && tag.payload == spec.payload;
        let plain = |tag: &MessageTag| matches!(tag.protection(), Protection::Declared | Protection::Masked);
        // Neighbouring data agree in shapes and names.
        let counts = spec.payload != Payload::Metadata && !FOLLOWING.contains(&spec.kind);
        counts && ledger.messages().any(|(tag, _)| same(tag) && plain(tag))
    };
    let words = |spec: &MessageSpec| match spec.evaluation {
        true => format!("{}, in {evaluations} evaluation(s)", spec.kind),
        false => format!("{} ({})", spec.kind, spec.in_words(false).join("; ")),
    };
    let mut all: Vec<String> = description.all_messages().filter(leaves).map(words).collect();
    if planned.method.groups().dp.is_some_and(|dp| dp.secret_seed.seed().is_some()) {
        all.push("a guess of --secret-seed, with which anybody can remove the noise".into());
    }
    if planned.shows_entries(comm.size()) {
        all.push("loading: one file, which all ranks read".into());
    }
    all
}

/// The trace's end event.
fn end_event(trajectory: &Trajectory, stop: Stop, profile: &Profile, privacy: Option<Value>) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("event".into(), "end".into());
    all.insert("iter".into(), trajectory.iteration.into());
    all.insert("seconds".into(), trajectory.seconds.into());
    all.insert("stopped_by".into(), stop.name().into());
    all.extend(trajectory.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
    all.extend(profile.json());
    all.extend(privacy.map(|table| ("privacy".to_string(), table)));
    all.extend(lost(trajectory));
    all
}

/// The ranks that were lost while the others continued, if any.
fn lost(trajectory: &Trajectory) -> Option<(String, Value)> {
    let all: Vec<Value> = trajectory.losses.iter().map(LostRank::json).collect();
    (!all.is_empty()).then(|| ("lost".to_string(), all.into()))
}

/// Warnings about a result that looks normal.
fn warnings(run: &RunRecord, end: &Value, leading: Measure, trajectory: &Trajectory) -> Vec<String> {
    let mut all = Vec::new();
    let value = |measure: Measure| end[measure.key()].as_f64();
    if let (Measure::HeldoutRmse | Measure::HeldoutDivergence, Some(last), Some(best)) =
        (leading, value(leading), trajectory.best_loss)
        && last > 1.01 * best
    {
        all.push(format!(
            "overfitting: the {} rose from {} to {}; stop earlier (--tol 1e-3), or use fewer components than -k {}",
            leading.label(),
            short(best),
            short(last),
            run.planned.spec.k
        ));
    }
    // The zero product has relative error 1.
    let is_one = |within: f64| value(Measure::RelativeError).is_some_and(|error| (error - 1.0).abs() < within);
    if run.planned.method.groups().is_regularized() && is_one(1e-6) {
        all.push(
            "--alpha-u, --alpha-v: no component is left under the penalties; use smaller weights, fewer components, or \
             another --init"
                .into(),
        );
    } else if is_one(1e-12) && leading != Measure::F1 {
        all.push(
            "the factors have become zero, so they say nothing; try fewer iterations, --scale max, --precision f64, or \
             another --init"
                .into(),
        );
    }
    let infinite = [Measure::Divergence, Measure::BetaDivergence].iter().find_map(|measure| {
        let beta = run.start["params"]["beta"].as_f64().unwrap_or(1.0);
        metrics::note_infinite(beta, trajectory.value(measure.key())?)
    });
    all.extend(infinite.map(|why| format!("{why}; if the start (--init) has the zeros, take one without")));
    let stayed_in_f32 = end["iterations_in_f32"].as_u64() == Some(trajectory.iteration as u64);
    if stayed_in_f32 && trajectory.iteration > 0 {
        let cure = match run.planned.spec.checkpoint {
            Some(_) => "go on with --resume and more iterations",
            None => "give it more iterations, or --precision f64",
        };
        all.push(format!(
            "--precision mixed: the run ended before it changed to f64, so the factors are as exact as those of f32; {cure}"
        ));
    }
    if leading == Measure::F1 && value(leading) == Some(0.0) && end["privacy"].is_null() {
        all.push(
            "f1 is 0: the product has no one where the matrix has one, so the components say nothing; try the greedy --algo \
             grecond or asso, other parameters of the method, or another --seed"
                .into(),
        );
    }
    all
}

/// Prints the summary.
fn print_summary(
    run: &RunRecord,
    outputs: &Outputs,
    (stop, end): (Stop, &Value),
    profile: &Profile,
    leading: Measure,
) -> Result<()> {
    let spec = &run.planned.spec;
    if spec.json {
        return print(&json_summary(run, outputs, end));
    }
    let checkpoint = spec.checkpoint.as_ref().filter(|_| exit_code(stop, true) == EXIT_REQUEUE);
    let resume = checkpoint
        .map(|path| format!("Not finished: repeat the command with --resume (checkpoint {}).\n", path.display()));
    print(&(text_summary(run, outputs, (stop, end), profile, leading) + &resume.unwrap_or_default()))
}

fn json_summary(run: &RunRecord, outputs: &Outputs, end: &Value) -> String {
    let start = &run.start;
    let mut all = end.clone();
    for key in ["algo", "ranks", "parties", "m", "n", "nnz", "k", "seed", "precision", "params", "resumed_from"] {
        all[key] = start[key].clone();
    }
    all["output"] = match &outputs.place {
        Place::Encrypted(directory) => json!(directory),
        _ => json!(outputs.factors),
    };
    all["report"] = json!(outputs.report.as_ref().map(|(path, _)| path));
    if let Some(profile) = &run.planned.spec.consent.profile {
        all["profile"] = profile.clone().into();
    }
    format!("{all}\n")
}

fn text_summary(
    run: &RunRecord,
    outputs: &Outputs,
    (stop, end): (Stop, &Value),
    profile: &Profile,
    leading: Measure,
) -> String {
    let RunRecord { planned, start, .. } = run;
    let count = |v: &Value| v.as_u64().unwrap_or(0) as usize;
    let of_parties = run.private_factor || !run.annotations.of_parties.is_empty();
    let beside = match start["own_input_of"].is_null() {
        _ if !of_parties => "",
        true => " and the parties' files beside it",
        false => " and this site's own part beside it",
    };
    let output = outputs.factors.as_ref().map(|path| match &outputs.place {
        Place::Encrypted(directory) => format!("encrypted in {}", directory.display()),
        _ => format!("{}{beside}", path.display()),
    });
    // Writing failed, or the factors are still secret shares.
    let not_written = planned.spec.outputs.factors.as_ref().map(|_| "not written".to_string());
    let output = output.or(not_written);
    let report = outputs.report.as_ref().map(|(path, _)| path.display().to_string());
    let facts = summary::SummaryInfo {
        algo: planned.description().name,
        extrapolated: start["params"]["extrapolation"] == "restart",
        shape: (count(&start["m"]), count(&start["n"])),
        k: planned.spec.k,
        ranks: count(&start["ranks"]),
        threads: planned.spec.threads,
        parties: count(&start["parties"]),
        iterations: count(&end["iter"]),
        resumed_from: count(&start["resumed_from"]),
        seconds: end["seconds"].as_f64().unwrap_or(0.0),
        measures: leading.leading(|key| end[key].as_f64()),
        beta: start["params"]["beta"].as_f64(),
        stopped_by: stop,
        tol: planned.spec.tol,
        output: output.as_deref(),
        report: report.as_deref(),
        party_bytes: planned.is_private().then(|| end["party_bytes"].as_u64().unwrap_or(0)),
    };
    let privacy = dp::lines(&end["privacy"]);
    let is_quantile = start["params"]["binarize"].is_string();
    let ones = start["params"]["binarize_threshold"].as_f64().filter(|_| is_quantile);
    // A quantile is the next larger number after an entry, which has fewer digits.
    let above =
        ones.map(f64::next_down).filter(|below| below.to_string().len() < ones.unwrap_or(0.0).to_string().len());
    let which = above.map_or_else(|| ones.map(|t| format!("from {t} on")), |below| Some(format!("above {below}")));
    let ones = which.map_or_else(String::new, |which| format!("Entries {which} are the ones of --binarize.\n"));
    let is_binary = !start["params"]["binarize"].is_null();
    let divisor = start["params"]["scale_divisor"].as_f64().filter(|_| !is_binary);
    let scaled = divisor.map_or_else(String::new, |divisor| {
        let penalties = end[Measure::Objective.key()].is_number();
        let note = metrics::note_of_scale(divisor, start["params"]["beta"].as_f64(), penalties);
        format!("{note} (`fednmf predict` is in these units).\n")
    });
    let block = summary::block(&facts, profile);
    let agreed = planned.spec.consent.profile.as_ref().map_or_else(String::new, |profile| format!("{profile}\n"));
    let lost = |one: &Value| {
        let [name, why] = ["name", "why"].map(|key| one[key].as_str().unwrap_or_default());
        format!(
            "{name} {why}; the result is that of the others from iteration {} on; relative errors assume that \
             the rows or columns of all parties have the same norm on average.\n",
            one["iter"]
        )
    };
    let losses: String = end["lost"].as_array().into_iter().flatten().map(lost).collect();
    let table = match planned.spec.verbose {
        true => format!("{}{}\n", grid::table(&start["grids"]), profile.table()),
        false => String::new(),
    };
    format!("{table}{agreed}{privacy}{losses}{ones}{scaled}{block}")
}

/// Writes the last good factors of a run that failed on all ranks alike; returns the error, with their path added.
/// Collective if the error is known everywhere.
fn write_last_good<T: Real>(error: Error, run: &RunRecord, driver: &Driver<T>, comm: &Communicator) -> Error {
    let (true, Some(path), Some(good)) =
        (error.is_shared(), &run.planned.outputs.factors, driver.checkpointer.last_good())
    else {
        return error;
    };
    let mut all = provenance(run, comm, &driver.trajectory, "failure");
    all.insert("iterations".into(), good.iteration.into());
    all.extend(good.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
    let found = good.pieces();
    let arranged = arrange(comm, run.planned.spec.factor_scale, &found);
    let factors = arranged.as_ref().map_or(found, |arranged| arranged.iter().map(OwnedPiece::view).collect());
    let factors = run.output_pieces(factors);
    let outputs = &run.planned.outputs;
    let written = match matrices::write_factors(comm, path, &factors, &all, &run.annotations) {
        Ok(()) => Ok(path.clone()),
        Err(e) if outputs.place != Place::Anywhere => Err(e.to_string()),
        Err(_) => write_elsewhere(run, path, comm, &factors, &all),
    };
    let message = match written {
        Ok(path) => {
            format!("the factors of iteration {}, the last good ones, are in {}", good.iteration, path.display())
        }
        Err(why) => format!("nor can the last good factors be kept: {why}"),
    };
    let message = format!("{}; {message}", error.message);
    error.with_message(message)
}

/// The attributes of the output file.
fn provenance(run: &RunRecord, comm: &Communicator, trajectory: &Trajectory, stopped_by: &str) -> Map<String, Value> {
    let mut all = Map::new();
    for key in ["algo", "version", "git", "parties", "m", "n", "k", "seed", "precision", "checksum", "args", "params"] {
        all.insert(key.into(), run.start[key].clone());
    }
    all.extend(run.planned.nonce.as_ref().map(|nonce| (NONCE.to_string(), nonce.text().into())));
    all.insert("input".into(), run.planned.spec.shown_input().into());
    all.insert("ranks".into(), comm.size().into());
    all.insert("iterations".into(), trajectory.iteration.into());
    all.insert("seconds".into(), trajectory.seconds.into());
    all.insert("stopped_by".into(), stopped_by.into());
    all.insert("date".into(), attributes::now().into());
    let names = trajectory.losses.iter().map(|lost| format!("{} at iteration {}", lost.name, lost.iteration));
    let names: Vec<String> = names.collect();
    all.extend((!names.is_empty()).then(|| ("lost".to_string(), names.join(", ").into())));
    all.extend(trajectory.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stopped_early_asks_to_be_queued_again_if_it_can_resume() {
        for (stop, codes) in [
            (Stop::Signal(15), [EXIT_FAILED, EXIT_REQUEUE]),
            (Stop::TimeLimit, [EXIT_DONE, EXIT_REQUEUE]),
            (Stop::MaxIters, [EXIT_DONE, EXIT_DONE]),
            (Stop::Budget, [EXIT_DONE, EXIT_DONE]),
        ] {
            assert_eq!([false, true].map(|checkpoint| exit_code(stop, checkpoint)), codes, "{stop:?}");
        }
    }
}
