//! Reads HDF5 files in a child process first. The HDF5 library crashes on some damaged files and never returns from others;
//! a probe takes that risk, and the ranks only open files that it survived.
//!
//! A probe is this same program, started with [`FLAG`] before it touches MPI: `main` asks [`requested`] and reads the
//! [`Content`] that its parent is about to read.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The first argument of a probe; not part of the command line.
const FLAG: &str = "--hdf5-probe";

/// What is read from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A matrix.
    Matrix,
    /// Factors that this program wrote.
    Factors,
    /// Names of rows and columns.
    Names,
}

impl Content {
    const ALL: [(Content, &str); 3] =
        [(Content::Matrix, "matrix"), (Content::Factors, "factors"), (Content::Names, "names")];
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Makes [`run`] start this program. Without it, as when the library is part of another program, there are no probes.
pub fn enable() {
    if let Ok(program) = std::env::current_exe() {
        let _ = PROGRAM.set(program);
    }
}

/// In a probe: what it reads, from which file and, for a matrix, which dataset.
pub fn requested() -> Option<(Content, String, Option<String>)> {
    let mut words = std::env::args().skip(1);
    if words.next()? != FLAG {
        return None;
    }
    let word = words.next()?;
    let (content, _) = Content::ALL.into_iter().find(|(_, name)| *name == word)?;
    Some((content, words.next()?, words.next()))
}

/// Reads the file in a probe.
///
/// # Errors
/// If the probe crashes or does not end: the file is damaged. An error that the probe reports is left to the caller, who
/// will meet it as well.
pub fn run(content: Content, path: &str, dataset: Option<&str>) -> Result<()> {
    let Some(program) = PROGRAM.get() else { return Ok(()) };
    let name = Content::ALL.into_iter().find(|(c, _)| *c == content).map(|(_, name)| name);
    let child = Command::new(program)
        .arg(FLAG)
        .args(name)
        .arg(path)
        .args(dataset)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // Where no process may be started, there is no probe.
    let Ok(mut child) = child else { return Ok(()) };
    let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    let limit = 3.0 + bytes as f64 / 50e6;
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return verdict(path, status),
            Ok(None) if cpu_seconds(child.id()) < limit => {
                // An eighth longer than the probe takes, at most.
                std::thread::sleep((start.elapsed() / 8).clamp(Duration::from_millis(1), Duration::from_millis(20)));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(damaged(path, "does not return from reading it"));
            }
        }
    }
}

fn verdict(path: &str, status: ExitStatus) -> Result<()> {
    // A process without an exit code was ended by a signal.
    if status.code().is_some() { Ok(()) } else { Err(damaged(path, "crashes on it")) }
}

fn damaged(path: &str, what: &str) -> Error {
    Error::input(format!("{path}: is damaged: the HDF5 library {what}; use a copy of it, or write it again"))
}

/// CPU time of a process: a slow disk is no reason to give up, an endless loop is.
fn cpu_seconds(process: u32) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0; // The unit of /proc on Linux, whatever the clock of the kernel.
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in brackets, may contain blanks; user and system time are the 12th and 13th word after it.
    let words = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(2).filter_map(|w| w.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}
