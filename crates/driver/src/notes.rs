//! Notes and warnings printed before the first iteration.

use serde_json::Value;

use fednmf_base::host;
use fednmf_base::units::{about, counted};
use fednmf_files::output::view::file_of;
use fednmf_methods::Forecast;
use fednmf_methods::decision::Decision;
use fednmf_methods::description::Partition;
use fednmf_methods::parameters::Missing;
use fednmf_methods::registry;
use fednmf_methods::shared::alternating::Factor;
use fednmf_methods::shared::regularization::RegularizationParams;

use super::plan::{Planned, divided};
use super::spec::SAMPLE_INPUT;
use super::{precision, record};
use crate::progress::Progress;

/// A run with at least this delta prints a warning: the guarantee should fail for less than one in a thousand units.
const LARGE_DELTA: f64 = 1e-3;

/// Prints consequences of the plan that the user may not expect.
pub fn of_plan(planned: &Planned, progress: &mut Progress) {
    if planned.spec.input_text == SAMPLE_INPUT {
        progress
            .note("no --input: a synthetic matrix with known factors is factorised; --input FILE names your own data");
    }
    if let Some(why) = planned.method_why {
        progress.note(&format!("--algo auto: {} ({why})", planned.description().name));
    }
    if let Some(why) = &planned.precision_why {
        progress.note(&format!("--precision auto: {} ({why})", planned.precision.name()));
    }
    if let Some(warning) = precision::warning(&planned.spec, planned.precision) {
        progress.warn(&warning);
    }
    if let Some(warning) = too_few_cores(planned.spec.threads) {
        progress.warn(&warning);
    }
    if let Some(seed) = planned.result_parameters().get("secret_seed").and_then(Value::as_u64) {
        progress.warn(&format!("--secret-seed {seed}: keys, masks and noise can be guessed; for tests only"));
    }
    if let Some(delta) =
        planned.method.groups().dp.filter(|dp| dp.is_on()).map(|dp| dp.delta).filter(|x| *x > LARGE_DELTA)
    {
        progress.warn(&format!(
            "--delta {delta}: with this probability the noise may protect nothing; choose less than one divided by the number \
             of what is protected"
        ));
    }
    if planned.method.groups().lets_scales_drift() {
        progress.warn(
            "--mu-alpha 0 --mu-beta 0: nothing holds the scale of a component between sketches; it grows in one factor and vanishes \
             in the other, until numbers overflow; use --mu-alpha 0.01, or --algo hals for a step without regularisation",
        );
    }
    if let Some((with, without)) = planned.method.groups().regularization.and_then(RegularizationParams::one_sided) {
        progress.note(&format!(
            "--alpha-u, --alpha-v: only {with} has a penalty, so it shrinks while {without} grows, and the product is hardly \
             restricted; a penalty on both acts on the product"
        ));
    }
    if let Some(path) = &planned.spec.record_view {
        progress.warn(&format!(
            "--record-view: {} and the other ranks' files hold the parties' data and all that they receive",
            file_of(path, 0).display()
        ));
    }
}

/// A warning if a process may not run on as many cores as it starts threads.
pub fn too_few_cores(threads: usize) -> Option<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (threads > cores).then(|| {
        let has = |cores: usize| counted(cores, "core", "cores");
        match host::cores().filter(|of_machine| *of_machine < threads) {
            Some(all) => format!("--threads {threads}: this machine has {} only; more threads share them", has(all)),
            None => format!(
                "--threads {threads}: this rank may run on {} only; start it with mpirun --bind-to none, or srun \
                 --cpus-per-task {threads}",
                has(cores)
            ),
        }
    })
}

/// Prints what the method decided and the user may not expect, for an m × n matrix.
pub fn of_decisions(planned: &Planned, decisions: &[Decision], shape: (usize, usize), progress: &mut Progress) {
    choices(planned, decisions, progress);
    small_sketches(decisions, planned.spec.k, shape, progress);
    unobserved(decisions, progress);
    held_out(planned, decisions, shape, progress);
}

/// Prints the choices that a method made for parameters with the value `auto`.
fn choices(planned: &Planned, decisions: &[Decision], progress: &mut Progress) {
    let requested = planned.method.parameters();
    // A resumed run computes no start.
    let chosen = decisions.iter().filter_map(record::word).filter(|(option, _)| *option != "init" || !planned.resuming);
    for (option, chosen) in chosen {
        if requested.iter().any(|parameter| parameter.name == option && parameter.text.as_deref() == Some("auto")) {
            progress.note(&format!("--{} auto: {chosen}", option.replace('_', "-")));
        }
    }
}

/// Seconds of a run that are shown even if notes are not.
const LONG: f64 = 60.0;

/// Says how long a run of many slow steps may take.
pub fn duration(forecast: Option<Forecast>, iterations: usize, progress: &mut Progress) {
    if let Some(Forecast { seconds, what }) = forecast {
        let all = seconds * iterations as f64;
        let text = format!(
            "{what} {} an iteration and {} for {}, as measured here",
            about(seconds),
            about(all),
            counted(iterations, "iteration", "iterations"),
        );
        if all > LONG { progress.warn(&text) } else { progress.note(&text) }
    }
}

/// Warns of sketched subproblems with fewer equations than unknowns.
fn small_sketches(decisions: &[Decision], k: usize, (m, n): (usize, usize), progress: &mut Progress) {
    for decision in decisions {
        let &Decision::SketchSize(factor, size) = decision else { continue };
        let (what, most, factor) = if factor == Factor::U { ("columns", n, "U") } else { ("rows", m, "V") };
        if size < k.min(most) {
            progress.warn(&format!(
                "--sketch-size: {size} {what} are sketched for the update of {factor}, fewer than the {k} components, which they \
                 cannot determine; use {} or more",
                (2 * k).min(most)
            ));
        }
    }
}

/// Warns of rows and columns without any observed entry.
fn unobserved(decisions: &[Decision], progress: &mut Progress) {
    for decision in decisions {
        let &Decision::Unobserved { rows, columns } = decision else { continue };
        for (count, one, many, factor) in [(rows, "row", "rows", "U"), (columns, "column", "columns", "V")] {
            if count == 0.0 {
                continue;
            }
            progress.warn(&format!(
                "nothing is observed in {} of the matrix, so the rows of {factor} are zeros there",
                counted(count as usize, one, many)
            ));
        }
    }
}

/// Prints how many entries are held out if that is far from the requested share, as for sparse data.
fn held_out(planned: &Planned, decisions: &[Decision], (m, n): (usize, usize), progress: &mut Progress) {
    let groups = planned.method.groups();
    let (holdout, all_observed) = match (groups.missing, groups.party_holdout) {
        (Some(group), _) => (group.holdout, group.missing == Missing::None),
        (None, Some(group)) => (group.holdout, !groups.party_missing.is_some_and(|group| group.any())),
        (None, None) => return,
    };
    if holdout == 0.0 {
        return;
    }
    let held = decisions.iter().find_map(|decision| match *decision {
        Decision::HeldOut { entries, above_zero } => Some((entries, above_zero)),
        _ => None,
    });
    let Some((held, above_zero)) = held else { return };
    if above_zero == Some(0.0) {
        progress.warn(&format!(
            "--holdout {holdout}: all {held} held-out entries are zeros, so the held-out error says nothing of the others; hold out a \
             larger share"
        ));
    }
    let entries = m as f64 * n as f64;
    if all_observed && held < 0.5 * holdout * entries {
        progress.note(&format!(
            "--holdout {holdout}: {held} entries are held out, the share {:.2e}: of sparse data at most about as many as it has \
             nonzeros",
            held / entries
        ));
    }
}

/// A warning if the parties' files are used with a method that has no parties.
pub fn without_parties(planned: &Planned) -> String {
    let of = |partition| {
        let alike = registry::descriptions().find(|method| method.partition == partition && !method.is_boolean());
        alike.map_or("", |method| method.name)
    };
    format!(
        "{} has no private parties: ranks read entries of each other's {{party}} files, and one file gets all of U and V. If \
         each owner must keep its data, choose a method of private rows (such as --algo {}) or columns (--algo {}); 'fednmf \
         list' shows all",
        planned.description().name,
        of(Partition::PartyRows),
        of(Partition::PartyColumns)
    )
}

/// A warning if the number of ranks decides that of the parties, and so the result.
pub fn parties_follow_ranks(planned: &Planned) -> String {
    let (_, what) = divided(planned.description().partition, planned.shape);
    format!(
        "the {what} are divided among {} parties, one for each rank, so the result depends on the number of ranks; --parties 1 \
         keeps all {what} together, --parties N divides them in the same way on any number of ranks",
        planned.parties.count
    )
}

/// A warning if a job of Slurm has several tasks and this process works alone.
pub fn unused_tasks() -> Option<String> {
    fednmf_comm::unused_tasks().map(|tasks| {
        format!(
            "SLURM_NTASKS={tasks}, but neither srun nor mpirun has started this process, so it works alone: start it with one of \
             them, or give it the cores with --threads"
        )
    })
}

/// Warns of masked sums that hide little.
pub fn few_parties(planned: &Planned, progress: &mut Progress) {
    let groups = planned.method.groups();
    if planned.method.description().on_shares && planned.parties.count == 2 {
        progress.warn(
            "with two parties one of them sees all data, since three compute on the secret shares; between owners this run would be \
             refused",
        );
    }
    if !groups.secure_sum.is_some_and(|sum| sum.secure_sum) {
        return;
    }
    let (parties, colluding) = (planned.parties.count, groups.disclosure.map_or(1, |limits| limits.colluding));
    if parties == 2 && groups.is_noised() {
        progress.note(
            "between two parties masks hide nothing: the other one sees this party's sums with their noise, which is that of --dp \
             in full",
        );
    } else if parties == 2 {
        progress.warn(
            "--secure-sum hides nothing between two parties: each can subtract its own term from the sum; use three or more",
        );
    } else if parties > 2 && colluding + 2 > parties {
        progress.warn(&format!(
            "--colluding {colluding}: all but one of {parties} parties can subtract their terms from a sum, so --secure-sum hides \
             nothing from them"
        ));
    }
}
