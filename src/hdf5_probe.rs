//! A first reading in a process of its own. The HDF5 library crashes on some damaged files and never returns from
//! others; the child process takes that upon itself, and the ranks only open what it survived.
//!
//! A child repeats what its parent is about to do: it starts this same program with [`ASK`] before anything of MPI's.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::error::{Error, Result};

/// The first argument of a child; no part of the command line.
const ASK: &str = "--trial-reading";

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A matrix: `--input`.
    Matrix,
    /// Factors that this program wrote.
    Factors,
    /// Names of rows and columns.
    Names,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::Matrix => "matrix",
            What::Factors => "factors",
            What::Names => "names",
        }
    }
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Lets [`read`] start this program; without it (the library in another program) nothing is tried.
pub fn arm() {
    if let Ok(program) = std::env::current_exe() {
        let _ = PROGRAM.set(program);
    }
}

/// In a child: what it was started to read, with the name of the dataset if there is one.
pub fn asked() -> Option<(What, String, Option<String>)> {
    let mut words = std::env::args().skip(1);
    if words.next()? != ASK {
        return None;
    }
    let word = words.next()?;
    let what = [What::Matrix, What::Factors, What::Names].into_iter().find(|w| w.word() == word)?;
    Some((what, words.next()?, words.next()))
}

/// Has a child read the file first.
///
/// # Errors
/// When the child crashed or did not come to an end: the file is damaged. A file that it refused in words is for the
/// caller to refuse.
pub fn read(what: What, path: &str, dataset: Option<&str>) -> Result<()> {
    let Some(program) = PROGRAM.get() else { return Ok(()) };
    let child = Command::new(program)
        .args([ASK, what.word(), path])
        .args(dataset)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // Where no process may be started there is no trial.
    let Ok(mut child) = child else { return Ok(()) };
    let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    let limit = 3.0 + bytes as f64 / 50e6;
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return verdict(path, status),
            Ok(None) if seconds_of_work(child.id()) < limit => std::thread::sleep(pause),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(damaged(path, "does not come to an end"));
            }
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn verdict(path: &str, status: ExitStatus) -> Result<()> {
    // No code: ended by a signal.
    if status.code().is_some() { Ok(()) } else { Err(damaged(path, "crashes")) }
}

fn damaged(path: &str, what: &str) -> Error {
    Error::input(format!("{path}: is damaged: the HDF5 library {what} on it; use a copy of it, or make it anew"))
}

/// The processor time of a process: a slow disk is no reason to give up, a loop without end is.
fn seconds_of_work(process: u32) -> f64 {
    const TICKS_A_SECOND: f64 = 100.0; // what Linux shows to programs, whatever its own clock
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in brackets, may hold blanks; user and system time are the 12th and 13th word after it.
    let words = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(2).filter_map(|w| w.parse::<f64>().ok()).sum::<f64>() / TICKS_A_SECOND
}
