//! Exit paths: a panic or an error on one rank ends the whole job, and signals request a regular stop. None of this
//! depends on the transport.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use fednmf_base::error::{EXIT_FAILED, Error, Result};
use fednmf_base::panics;
use fednmf_base::warning::error;
use fednmf_privacy::Public;

use super::{CONTROL, Communicator, transport, watchdog};

/// Makes a panic on any rank end the job: unwinding past the end of MPI would leave the other ranks waiting.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        if panics::are_caught() {
            return;
        }
        let payload = info.payload();
        let text =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("panic");
        let place = info.location().map_or_else(String::new, |l| format!(" ({}:{})", l.file(), l.line()));
        error(&format!("internal error: {text}{place}\nThis is a bug: please report it with the command line."));
        transport::abort(EXIT_FAILED);
    }));
}

/// Ends the job on all ranks at once, for an error that only this rank knows.
pub fn end_job(code: i32) -> ! {
    transport::abort(code)
}

/// Idles until the job ends, on a rank that was excluded from the surviving communicator.
pub fn idle_until_abort() -> ! {
    loop {
        watchdog::step();
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Ends a job that has lost ranks once all `survivors` have called this: the lost ones would never reach the end of MPI.
pub fn end_without_lost_ranks(survivors: &Communicator, code: i32) -> ! {
    survivors.barrier();
    if survivors.is_root() {
        transport::abort(code);
    }
    idle_until_abort()
}

/// Whether the parent of this process made it ignore SIGHUP.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// The last of SIGTERM, SIGINT, SIGUSR1 and SIGHUP since the start; the driver acts on it at its next check.
#[derive(Debug, Clone)]
pub struct Signals {
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Catches the signals from the first call on. A second SIGINT, such as from Ctrl-C pressed again, ends the process the
    /// default way. A second SIGTERM does not: batch systems send it twice within milliseconds, and SIGKILL after a grace
    /// period. SIGHUP stays ignored under nohup.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub fn catch() -> Result<Self> {
        Signals::register().map_err(|e| Error::failed(format!("cannot catch signals: {e}")))
    }

    fn register() -> std::io::Result<Self> {
        static CAUGHT: OnceLock<Signals> = OnceLock::new();
        if let Some(signals) = CAUGHT.get() {
            return Ok(signals.clone());
        }
        let last = Arc::new(AtomicUsize::new(0));
        let armed = Arc::new(AtomicBool::new(false));
        // Order matters: the first signal finds the flag unset and sets it, the second finds it set.
        signal_hook::flag::register_conditional_default(SIGINT, armed.clone())?;
        signal_hook::flag::register(SIGINT, armed)?;
        let hang_up = Some(SIGHUP).filter(|_| !ignores_hang_up());
        for signal in [SIGTERM, SIGINT, SIGUSR1].into_iter().chain(hang_up) {
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)?;
        }
        Ok(CAUGHT.get_or_init(|| Signals { last }).clone())
    }

    /// The number of the last signal caught, 0 for none.
    pub fn last(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    /// Fails once a signal has been caught, so that long work can be abandoned.
    ///
    /// # Errors
    /// If a signal has been caught. The kind of the error is one after which no write is repeated.
    pub fn check(&self) -> std::io::Result<()> {
        match self.last() {
            0 => Ok(()),
            number => Err(std::io::Error::other(format!("stopped by {}", Signals::name(number)))),
        }
    }

    /// If a signal was caught: the error that says so and that `path` was not written. Otherwise `e`.
    pub fn or_stopped(&self, path: &Path, e: Error) -> Error {
        match self.check() {
            Ok(()) => e,
            Err(stopped) => Error::failed(format!("{}: was not written: {stopped}", path.display())),
        }
    }

    /// The name of a signal, such as `SIGTERM`.
    pub fn name(number: usize) -> &'static str {
        match number as i32 {
            SIGTERM => "SIGTERM",
            SIGINT => "SIGINT",
            SIGUSR1 => "SIGUSR1",
            SIGHUP => "SIGHUP",
            _ => "a signal",
        }
    }
}

/// The flag that the run is to stop within an iteration, as far as this rank knows: after a signal, or on rank 0 at the
/// time limit. Methods with long iterations poll it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    signals: Option<Signals>,
    deadline: Rc<Cell<Option<Instant>>>,
}

impl Interrupt {
    /// An interrupt that is raised by `signals`, if they are caught.
    pub fn new(signals: Option<Signals>) -> Self {
        Interrupt { signals, deadline: Rc::default() }
    }

    /// Sets the time limit of the run, on the rank whose clock decides.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.deadline.set(deadline);
    }

    pub fn is_raised(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| signals.last() > 0)
            || self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether it is raised on any rank. Collective.
    pub fn is_raised_anywhere(&self, comm: &Communicator) -> bool {
        let mut raised = Raised([u32::from(self.is_raised())]);
        comm.max_public(CONTROL, &mut raised);
        raised.0[0] > 0
    }
}

/// Whether an [`Interrupt`] is raised.
struct Raised([u32; 1]);

impl Public for Raised {
    const WHY: &'static str = "the user's signals and time limit raise it";
}

impl AsMut<[u32]> for Raised {
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }
}
