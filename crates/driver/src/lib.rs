//! The driver: from a request to factors on disk.
//!
//! A run passes through stages, each of which consumes the one before:
//!
//! | stage | made by | has |
//! | --- | --- | --- |
//! | [`spec::Spec`] | the command line | what was requested; it never changes |
//! | [`open::Opened`] | [`open`](mod@open) | shape and format of the input |
//! | [`plan::Planned`] | [`plan`](mod@plan) | all choices that do not need the entries; a pure function |
//! | [`load::Loaded`] | [`load`](mod@load) | this rank's blocks |
//! | [`run::Run`] | [`run`](mod@run) | the method, built or resumed, and the start event of the trace |
//! | [`run::Outcome`] | [`iterate`] | the last iterate, evaluated ([`evaluate`]) and saved ([`checkpoint`]) on the way |
//!
//! [`finish`] writes the results, with the components in order ([`arrange`](mod@arrange)). [`notes`] has the notes and
//! warnings of the stages, [`record`] the fields of decisions. Limits, evaluation, progress, trace, checkpoints and signals
//! are handled here and nowhere else, so every method has them. `fednmf sweep` runs the same loop.

mod arrange;
pub mod budget;
mod checkpoint;
mod checks;
mod destinations;
pub mod disclosure;
mod evaluate;
mod finish;
mod grid;
mod identity;
mod init_file;
pub mod inspect;
mod iterate;
pub mod kernels;
mod load;
mod logarithms;
pub mod metadata;
pub mod missing;
pub mod model_selection;
pub mod nonce;
mod notes;
mod open;
pub mod own_files;
pub mod plan;
pub mod precision;
pub mod progress;
pub mod record;
pub mod report;
mod run;
pub mod spec;
pub mod streaming;
pub mod summary;
mod sums;
pub mod trace;
pub mod transcript;
pub mod view;

pub use notes::too_few_cores;

use fednmf_base::error::{Error, Result};
use fednmf_comm::watchdog;
use fednmf_comm::watchdog::Watchdog;
use fednmf_comm::{Communicator, Signals};
use fednmf_linalg::{Context, ContextOptions};
use fednmf_methods::precision::Precision as RunPrecision;

use self::open::OpenFiles;
use self::plan::Planned;
use self::spec::{Precision, Spec};

pub use arrange::{FactorScale, arrange, by_weight};
pub use checkpoint::Checkpointer;
pub use checks::check_size;
pub use iterate::{Driver, Evaluation, Limits, Observer, Stop, Trajectory};
pub use load::tell_of_duplicates;
pub use logarithms::{has_logarithms, warning_of_logarithms};

/// Runs a factorisation; returns the exit code. Collective.
///
/// # Errors
/// On wrong input (on all ranks alike), or if the run fails.
pub fn run(spec: &Spec, comm: &Communicator) -> Result<i32> {
    let done = start(spec, comm);
    // A failed run has not ended its recording.
    comm.end_view();
    done
}

fn start(spec: &Spec, comm: &Communicator) -> Result<i32> {
    let signals = Signals::catch()?;
    watchdog::enter("opening the files");
    let _watchdog = Watchdog::start(comm.rank(), spec.stall_timeout)
        .map_err(|e| Error::failed(format!("the system refuses a thread: {e}")))?;
    // Before a transcript and its key are created.
    let resuming = comm.agree_on_error(checks::before_reading(spec, comm))?;
    let nonce = nonce::agree(spec, comm, resuming)?;
    // A site has locked its files before it met the others.
    let locks = if comm.is_root() && !comm.has_owners() { own_files::lock(spec) } else { Ok(Vec::new()) };
    let _locks = comm.agree_on_error(locks)?;
    let transcript = transcript::begin(&transcript::Request::of_run(spec), nonce.as_ref(), comm)?;
    let planned = open::open(spec, comm, resuming, nonce).and_then(|opened| opened.plan(spec, comm));
    let ready = planned.and_then(|(planned, files)| {
        checks::check_output_space(&planned, comm)?;
        let options = ContextOptions { threads: spec.threads, kernels: planned.kernels };
        Ok((planned, files, comm.agree_on_error(Context::new(options))?))
    });
    let (planned, files, context) = ready.inspect_err(|_| transcript.discard(comm))?;
    context.install(|| match planned.precision {
        Precision::F64 | Precision::Mixed => run_in::<f64>(planned, files, comm, signals, &transcript),
        Precision::F32 => run_in::<f32>(planned, files, comm, signals, &transcript),
    })
}

fn run_in<T: RunPrecision>(
    planned: Planned,
    files: OpenFiles,
    comm: &Communicator,
    signals: Signals,
    transcript: &transcript::Created,
) -> Result<i32> {
    let loaded = load::load::<T>(planned, files, comm);
    let run = loaded.and_then(|loaded| run::prepare(loaded, comm, signals));
    let run = run.inspect_err(|_| transcript.discard(comm))?;
    finish::finish(run.iterate())
}
