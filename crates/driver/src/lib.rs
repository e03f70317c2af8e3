//! The driver: from checked settings to factors on disk.
//!
//! [`prepare`] opens the data, of which [`precision`] may follow, loads them ([`streaming`]: or has them read in passes),
//! builds the method and resumes from a checkpoint of the same run ([`identity`]); [`notes`] has what the user is told then.
//! [`iterate`] runs it, and between blocks of iterations evaluates ([`evaluate`]) and saves ([`checkpoint`]);
//! [`finish`] writes the results, with the components in order ([`arrange`]). Limits, evaluation, progress, trace,
//! checkpoints and signals are handled here and nowhere else, so every method has them. `fednmf sweep` runs the same
//! loop.

mod arrange;
mod budget;
mod checkpoint;
mod checks;
mod destinations;
mod evaluate;
mod finish;
mod grid;
mod identity;
mod init_file;
mod iterate;
pub mod kernels;
pub mod metadata;
pub mod missing;
pub mod model_selection;
mod notes;
pub mod own_files;
pub mod precision;
mod prepare;
pub mod progress;
pub mod report;
pub mod settings;
pub mod streaming;
pub mod summary;
pub mod trace;
mod transcript;
pub mod view;

use fednmf_base::error::{Error, Result};
use fednmf_comm::watchdog;
use fednmf_comm::watchdog::Watchdog;
use fednmf_comm::{Communicator, Signals};
use fednmf_linalg::Context;
use fednmf_methods::precision::Precision;

use self::prepare::Opened;
use self::settings::Settings;

pub use arrange::{FactorScale, arrange, by_weight};
pub use checkpoint::Checkpointer;
pub use iterate::{Driver, Limits, Observer, Stop, Trajectory};

/// Runs a factorisation; returns the exit code. Collective.
///
/// # Errors
/// On wrong input (on all ranks alike), or if the run fails.
pub fn run(settings: &Settings, comm: &Communicator) -> Result<i32> {
    let done = start(settings, comm);
    // A failed run has not ended its recording.
    comm.end_view();
    done
}

fn start(settings: &Settings, comm: &Communicator) -> Result<i32> {
    let signals = Signals::catch()?;
    watchdog::enter("opening the files");
    let _watchdog = Watchdog::start(comm.rank(), settings.stall_timeout)
        .map_err(|e| Error::failed(format!("the system refuses a thread: {e}")))?;
    // Before a transcript and its key are created.
    let resuming = comm.agree_on_error(checks::before_reading(settings, comm))?;
    // A site has locked its files before it met the others.
    let locks = if comm.is_root() && !comm.has_owners() { own_files::lock(settings) } else { Ok(Vec::new()) };
    let _locks = comm.agree_on_error(locks)?;
    let transcript = transcript::begin(settings, comm)?;
    let opened = prepare::open(settings, comm, resuming);
    let opened = opened.and_then(|opened| Ok((opened, kernels::context(settings, resuming, comm)?)));
    let (opened, context) = match opened {
        Ok(opened) => opened,
        Err(e) => {
            transcript.discard(comm);
            return Err(e.into());
        }
    };
    context.install(|| match opened.precision() {
        settings::Precision::F64 | settings::Precision::Mixed => {
            run_in::<f64>(opened, &context, comm, signals, transcript)
        }
        settings::Precision::F32 => run_in::<f32>(opened, &context, comm, signals, transcript),
    })
}

fn run_in<T: Precision>(
    opened: Opened,
    context: &Context,
    comm: &Communicator,
    signals: Signals,
    transcript: transcript::Created,
) -> Result<i32> {
    let (run, mut driver) = match prepare::prepare::<T>(opened, context, comm, signals) {
        Ok(prepared) => prepared,
        Err(e) => {
            transcript.discard(comm);
            return Err(e.into());
        }
    };
    let threshold = run.settings.method.groups().threshold.and_then(|group| group.secure_threshold.as_ref().copied());
    if let Some(least) = threshold {
        comm.continue_without_lost(least);
    }
    watchdog::enter("iterating");
    let iterated = driver.iterate();
    finish::finish(run, driver, iterated)
}
