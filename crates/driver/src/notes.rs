//! Notes and warnings printed before the first iteration.

use serde_json::Value;

use fednmf_base::units::about;
use fednmf_files::output::view::file_of;
use fednmf_linalg::Real;
use fednmf_methods::description::Partition;
use fednmf_methods::parameters::Missing;
use fednmf_methods::registry;
use fednmf_methods::shared::missing::{HELD_OUT, UNOBSERVED_COLUMNS, UNOBSERVED_ROWS};
use fednmf_methods::shared::sketched_step::StepParams;
use fednmf_methods::{Algorithm, Forecast};

use super::precision;
use super::settings::{SAMPLE_INPUT, Settings};
use crate::progress::Progress;

/// A run with at least this delta prints a warning: the guarantee should fail for less than one in a thousand units.
const LARGE_DELTA: f64 = 1e-3;

/// Prints consequences of the settings that the user may not expect.
pub fn of_settings(settings: &Settings, progress: &mut Progress) {
    if settings.input_text == SAMPLE_INPUT {
        progress.note("the data: a synthetic matrix with a known answer; --input FILE is for your own");
    }
    if let Some(why) = settings.automatic {
        progress.note(&format!("--algo auto: {} ({why})", settings.description().name));
    }
    if let Some(why) = &settings.precision_why {
        progress.note(&format!("--precision auto: {} ({why})", settings.precision_name()));
    }
    if let Some(warning) = settings.precision.and_then(|precision| precision::warning(settings, precision)) {
        progress.warn(&warning);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if settings.threads > cores {
        progress.note(&format!(
            "--threads {}: this rank may run on {cores} core(s) only; start it with mpirun --bind-to none, or srun \
             --cpus-per-task {}",
            settings.threads, settings.threads
        ));
    }
    if let Some(seed) = settings.result_parameters().get("secret_seed").and_then(Value::as_u64) {
        progress.warn(&format!("--secret-seed {seed}: keys, masks and noise can be guessed; for tests only"));
    }
    if let Some(delta) =
        settings.method.groups().dp.filter(|dp| dp.is_on()).map(|dp| dp.delta).filter(|x| *x > LARGE_DELTA)
    {
        progress.warn(&format!(
            "--delta {delta}: with this probability the noise may protect nothing; choose less than one divided by the number \
             of what is protected"
        ));
    }
    let parameters = settings.method.parameters();
    // A sketch of all rows and columns is exact, and the step is that of hals.
    let sketched = parameters.get("sketch_size").is_some_and(|size| size.as_str() != Some("100%,100%"));
    if sketched && settings.method.groups().step.is_some_and(StepParams::lets_scales_drift) {
        progress.warn(
            "--mu-alpha 0 --mu-beta 0: nothing holds the scale of a component between sketches; it grows in one factor and vanishes \
             in the other, until numbers overflow; use --mu-alpha 0.01, or --algo hals for a step without regularisation",
        );
    }
    if let Some(path) = &settings.record_view {
        progress.warn(&format!(
            "--record-view: {} and the other ranks' files hold the parties' data and all that they receive",
            file_of(path, 0).display()
        ));
    }
}

/// Prints the choices that a method made for parameters with the value `auto`.
pub fn choices<T: Real>(settings: &Settings, algorithm: &dyn Algorithm<T>, progress: &mut Progress) {
    let asked = settings.method.parameters();
    for (name, chosen) in algorithm.decisions() {
        if let (Some(Value::String(word)), Value::String(chosen)) = (asked.get(name), &chosen)
            && word == "auto"
            // A value without digits is a choice; a size is a detail.
            && !chosen.contains(|c: char| c.is_ascii_digit())
        {
            progress.note(&format!("--{} auto: {chosen}", name.replace('_', "-")));
        }
    }
}

/// Says how long a run of many slow steps may take.
pub fn duration(forecast: Option<Forecast>, iterations: usize, progress: &mut Progress) {
    if let Some(Forecast { seconds, what }) = forecast {
        progress.note(&format!(
            "{what} {} for {iterations} iteration(s), {} each, as measured here",
            about(seconds * iterations as f64),
            about(seconds)
        ));
    }
}

/// Warns of rows and columns without any observed entry.
pub fn unobserved<T: Real>(algorithm: &dyn Algorithm<T>, progress: &mut Progress) {
    let decisions = algorithm.decisions();
    for (name, what, factor) in [(UNOBSERVED_ROWS, "row(s)", "U"), (UNOBSERVED_COLUMNS, "column(s)", "V")] {
        let count = decisions.iter().find(|(decision, _)| *decision == name).and_then(|(_, count)| count.as_f64());
        if let Some(count) = count.filter(|count| *count > 0.0) {
            progress.warn(&format!(
                "nothing is observed in {count} {what} of the matrix, so their rows of {factor} are zeros"
            ));
        }
    }
}

/// Prints how many entries are held out if that is far from the requested share, as for sparse data.
pub fn held_out<T: Real>(
    settings: &Settings,
    algorithm: &dyn Algorithm<T>,
    (m, n): (usize, usize),
    progress: &mut Progress,
) {
    let Some(group) = settings.method.groups().missing.filter(|group| group.holdout > 0.0) else { return };
    let decisions = algorithm.decisions();
    let held = decisions.iter().find(|(name, _)| *name == HELD_OUT).and_then(|(_, count)| count.as_f64());
    let entries = m as f64 * n as f64;
    if let Some(held) = held.filter(|held| group.missing == Missing::None && *held < 0.5 * group.holdout * entries) {
        progress.note(&format!(
            "--holdout {}: {held} entries are held out, the share {:.2e}: of sparse data at most about as many as it has \
             nonzeros",
            group.holdout,
            held / entries
        ));
    }
}

/// A warning if the parties' files are used with a method that has no parties.
pub fn without_parties(settings: &Settings) -> String {
    let of = |partition| {
        let alike = registry::descriptions().find(|method| method.partition == partition && !method.is_boolean());
        alike.map_or("", |method| method.name)
    };
    format!(
        "{} has no private parties: the entries of the {{party}} files pass between the ranks in the clear, and U and V are \
         whole in one file; methods of private rows, such as --algo {}, or columns, such as --algo {}, keep each party's \
         data with it ('fednmf list')",
        settings.description().name,
        of(Partition::PartyRows),
        of(Partition::PartyColumns)
    )
}

/// Warns of masked sums that hide little.
pub fn few_parties(settings: &Settings, parties: usize, progress: &mut Progress) {
    let groups = settings.method.groups();
    if !groups.secure_sum.is_some_and(|sum| sum.secure_sum) {
        return;
    }
    if parties == 2 {
        progress.warn(
            "--secure-sum: of two parties each learns the other's term, the sum less its own; three or more hide it",
        );
    }
}
