//! Message transport between the ranks of a job.
//!
//! [`Transport`] is the interface that a [`Communicator`](super::Communicator) needs: collectives, messages between two
//! ranks and subgroups. It knows buffers of numbers and ranks, but neither parties nor message kinds. [`start`] chooses
//! between two implementations: [`Mpi`] for the processes that a launcher has started, and [`Local`] for one process,
//! without MPI. `fednmf-sites` has a third, for processes on the machines of different owners.

mod interface;
mod launch;
mod local;
#[cfg(feature = "mpi")]
#[allow(unsafe_code)]
mod mpi;

use std::rc::Rc;
use std::sync::OnceLock;

pub use self::interface::{Buffer, BufferMut, ControlMessage, Loss, Op, OwnedBuffer, RankPart, Transport};
use self::launch::Launch;
pub use self::local::Local;
#[cfg(feature = "mpi")]
pub use self::mpi::Mpi;
use fednmf_base::error::{Error, SharedResult};
use fednmf_base::failure::close_records;
#[cfg(feature = "mpi")]
use fednmf_base::warning::warn;

/// Overrides the choice of the transport: `mpi` or `local`.
const OVERRIDE: &str = "FEDNMF_TRANSPORT";

/// Connects this process to the ranks of its job: through MPI if a launcher has started it, otherwise it is the only rank.
/// The environment variable `FEDNMF_TRANSPORT` (`mpi` or `local`) overrides this.
///
/// # Errors
/// Alike on all ranks: if several processes were started but the program is built without MPI, or with another library than
/// that of the launcher; if the variable has another value, or if MPI was initialised before.
pub fn start() -> SharedResult<Rc<dyn Transport>> {
    let wanted = std::env::var(OVERRIDE).ok();
    let wants_mpi = match (wanted.as_deref(), Launch::detect()) {
        (Some("mpi"), _) => true,
        (Some("local"), _) | (None, None) => false,
        (Some(other), _) => {
            return Err(Error::input(format!("{OVERRIDE}={other}: must be mpi or local")).on_all_ranks());
        }
        // A single process works without MPI if the program was built without it.
        (None, Some(launch)) => cfg!(feature = "mpi") || launch.size != Some(1),
    };
    if wants_mpi { start_mpi() } else { Ok(Rc::new(Local)) }
}

#[cfg(feature = "mpi")]
fn start_mpi() -> SharedResult<Rc<dyn Transport>> {
    let mpi = Mpi::start()?;
    let (library, slurm) = match library() {
        Some(name) if name.contains("Open MPI") => (name, "pmix"),
        Some(name) => (name, "pmi2"),
        None => ("another library".into(), "pmix"),
    };
    let cure = format!(
        "fednmf is built with {library}: use its mpirun, or with Slurm srun --mpi={slurm} (srun --mpi=list shows the choices); \
         {OVERRIDE}=local runs every process on its own"
    );
    let started = match Launch::detect().filter(|_| mpi.size() == 1) {
        Some(Launch { size: Some(size), .. }) if size > 1 => format!("{size} processes"),
        Some(Launch { size: None, rank }) if rank > 0 => format!("at least {} processes", rank + 1),
        Some(Launch { size: None, .. }) => {
            warn(&format!(
                "MPI connects this process to no other, and the launcher does not say whether it started others: then each would \
                 do all the work, since the launcher is of another MPI library. {cure}"
            ));
            return Ok(Rc::new(mpi));
        }
        _ => return Ok(Rc::new(mpi)),
    };
    Err(Error::input(format!(
        "the launcher started {started}, but MPI connects this one to no other, so each would do all the work: the launcher is of \
         another MPI library. {cure}"
    ))
    .on_all_ranks())
}

#[cfg(not(feature = "mpi"))]
fn start_mpi() -> SharedResult<Rc<dyn Transport>> {
    let started = match Launch::detect().map(|launch| launch.size) {
        Some(Some(size)) => format!("the launcher started {size} processes"),
        Some(None) => "it was started by an MPI launcher".into(),
        None => format!("{OVERRIDE}=mpi"),
    };
    Err(Error::input(format!(
        "built without MPI; {started}. Run it without mpirun or srun, build it with MPI (cargo build --release), or set \
         {OVERRIDE}=local to run every process on its own"
    ))
    .on_all_ranks())
}

/// This process's rank according to its launcher, before any transport is started; 0 without a launcher.
pub fn launched_rank() -> usize {
    Launch::detect().map_or(0, |launch| launch.rank)
}

/// Whether this process prints why [`start`] failed, for all. Where the launcher does not tell the number of processes, rank 0
/// may have started, as if it were the only one.
pub fn reports_refused_start() -> bool {
    Launch::detect().is_none_or(|launch| launch.rank == 0 || launch.rank == 1 && launch.size.is_none())
}

/// The tasks of a Slurm job of which only this process runs, since no launcher has started it.
pub fn unused_tasks() -> Option<usize> {
    Launch::unused_tasks()
}

/// Notifies the other processes of the job that this one ends; set by a transport outside this crate.
static BEFORE_ABORT: OnceLock<fn(i32)> = OnceLock::new();

/// Registers `notify`, which [`abort`] calls with the exit code before it ends this process. Only the first call counts.
pub fn before_abort(notify: fn(i32)) {
    let _ = BEFORE_ABORT.set(notify);
}

/// Name and version of the MPI library; `None` in a build without MPI. Needs no started MPI.
pub fn library() -> Option<String> {
    #[cfg(feature = "mpi")]
    return mpi::library();
    #[cfg(not(feature = "mpi"))]
    None
}

/// Ends the whole job at once, from any thread and whatever the other ranks are doing.
pub fn abort(code: i32) -> ! {
    close_records();
    #[cfg(feature = "mpi")]
    mpi::abort(code);
    if let Some(notify) = BEFORE_ABORT.get() {
        notify(code);
    }
    // No destructors: another thread may be inside a library.
    signal_hook::low_level::exit(code)
}
