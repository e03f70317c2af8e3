//! One way out: any panic or lone error ends the whole job with one message, and signals ask for a stop politely.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use super::{Communicator, mpi, watchdog};
use crate::error::EXIT_FAILED;

/// Makes a panic on any rank end the job: unwinding past MPI's finalisation would leave the other ranks waiting.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let text = info
            .payload()
            .downcast_ref::<&str>()
            .copied()
            .map(str::to_string)
            .or_else(|| info.payload().downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "panic".to_string());
        let place = info.location().map_or_else(String::new, |l| format!(" ({}:{})", l.file(), l.line()));
        eprintln!("fednmf: internal error: {text}{place}\nThis is a bug: please report it with the command line.");
        mpi::abort(EXIT_FAILED);
    }));
}

/// Ends the job on all ranks at once; for an error that only this rank knows of.
pub fn end_job(code: i32) -> ! {
    mpi::abort(code)
}

/// The others have given this rank up and meet without it: it says nothing more until they end the job.
pub fn stand_aside() -> ! {
    loop {
        watchdog::step();
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Ends a job in which ranks were lost, once all that are left have come here: those would never come to MPI's own end.
pub fn end_without_the_lost(left: &Communicator, code: i32) -> ! {
    left.barrier();
    if left.is_root() {
        mpi::abort(code);
    }
    stand_aside()
}

/// SIGTERM, SIGINT and SIGUSR1 since the start: remembered, and acted on at the driver's next point.
#[derive(Debug, Clone)]
pub struct Signals {
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Catches the three signals from the first call on. A second SIGINT or SIGTERM ends the process the usual way.
    pub fn catch() -> std::io::Result<Self> {
        static CAUGHT: OnceLock<Signals> = OnceLock::new();
        if let Some(signals) = CAUGHT.get() {
            return Ok(signals.clone());
        }
        let last = Arc::new(AtomicUsize::new(0));
        let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // Order matters: the first signal finds the flag down and raises it, the second finds it up.
            signal_hook::flag::register_conditional_default(signal, armed.clone())?;
            signal_hook::flag::register(signal, armed.clone())?;
        }
        for signal in [SIGTERM, SIGINT, SIGUSR1] {
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)?;
        }
        Ok(CAUGHT.get_or_init(|| Signals { last }).clone())
    }

    /// The number of the last signal caught, 0 for none.
    pub fn last(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    /// `SIGTERM` and so on.
    pub fn name(number: usize) -> &'static str {
        match number as i32 {
            SIGTERM => "SIGTERM",
            SIGINT => "SIGINT",
            SIGUSR1 => "SIGUSR1",
            _ => "a signal",
        }
    }
}

/// This process's rank as the launcher tells it before MPI starts; 0 without a launcher.
pub fn launched_rank() -> usize {
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]
        .iter()
        .find_map(|name| std::env::var(name).ok().and_then(|v| v.parse().ok()))
        .unwrap_or(0)
}
