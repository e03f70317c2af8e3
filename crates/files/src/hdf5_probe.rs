//! Reads HDF5 files in a child process first. The HDF5 library crashes on some damaged files and hangs on others. The
//! child takes that risk, and the ranks open only files that it has read successfully.
//!
//! A probe is this program, started with [`FLAG`]: `main` calls [`requested`] before it initialises MPI, and reads the
//! [`Content`] that its parent is about to read.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fednmf_base::error::{Error, Result};

/// The first argument of a probe; not part of the command line.
const FLAG: &str = "--hdf5-probe";

/// The content that is read from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A matrix, and the names of its rows and columns.
    Matrix,
    /// Factors that this program wrote, and the names of their rows.
    Factors,
    /// Names of rows and columns.
    Names,
}

impl Content {
    const ALL: [(Content, &str); 3] =
        [(Content::Matrix, "matrix"), (Content::Factors, "factors"), (Content::Names, "names")];
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Makes [`run`] start this program. Without this call, as when the library is part of another program, there are no probes.
pub fn enable() {
    if let Ok(program) = std::env::current_exe() {
        let _ = PROGRAM.set(program);
    }
}

/// If this process is a probe: the content that it reads, the file and, for a matrix, the dataset.
pub fn requested() -> Option<(Content, String, Option<String>)> {
    let mut words = std::env::args().skip(1);
    if words.next()? != FLAG {
        return None;
    }
    let word = words.next()?;
    let (content, _) = Content::ALL.into_iter().find(|(_, name)| *name == word)?;
    Some((content, words.next()?, words.next()))
}

/// The subject of a probe: the content of a file, and the given dataset.
#[derive(Clone, PartialEq)]
struct Subject {
    content: Content,
    path: String,
    dataset: Option<String>,
    /// Device, inode, size and modification time, to recognise a changed file.
    version: [i64; 5],
}

impl Subject {
    fn new(content: Content, path: &str, dataset: Option<&str>) -> Self {
        let version = std::fs::metadata(path)
            .map_or([0; 5], |m| [m.dev() as i64, m.ino() as i64, m.len() as i64, m.mtime(), m.mtime_nsec()]);
        Subject { content, path: path.to_string(), dataset: dataset.map(str::to_string), version }
    }

    /// Whether a probe of `self` includes the reads of `wanted`.
    fn covers(&self, wanted: &Subject) -> bool {
        let more = (self.content, wanted.content) == (Content::Matrix, Content::Names);
        (more || self.content == wanted.content) && Subject { content: wanted.content, ..self.clone() } == *wanted
    }

    /// Starts the probe; `None` if no process can be started.
    fn spawn(&self) -> Option<Running> {
        let name = Content::ALL.into_iter().find(|(content, _)| *content == self.content).map(|(_, name)| name);
        let child = Command::new(PROGRAM.get()?)
            .arg(FLAG)
            .args(name)
            .arg(&self.path)
            .args(&self.dataset)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Some(Running { subject: self.clone(), child: child.ok()? })
    }
}

/// A probe that was started.
struct Running {
    subject: Subject,
    child: Child,
}

impl Running {
    /// Waits until the probe ends.
    fn finish(mut self) -> Result<()> {
        let path = &self.subject.path;
        let bytes = self.subject.version[2];
        let limit = 3.0 + bytes as f64 / 50e6;
        // The probe writes nothing: its output ends when it does.
        let (ended, wait) = mpsc::channel::<()>();
        let output = self.child.stdout.take();
        // If no thread can be created, the probe has no time limit.
        let _ = std::thread::Builder::new().spawn(move || {
            let _ended = ended;
            output.map(|mut output| output.read(&mut [0]))
        });
        loop {
            match wait.recv_timeout(Duration::from_millis(100)) {
                Err(RecvTimeoutError::Timeout) if cpu_seconds(self.child.id()) < limit => {}
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return Err(damaged(path, "does not return from reading it"));
                }
                _ => return self.child.wait().map_or(Ok(()), |status| verdict(path, status)),
            }
        }
    }
}

/// The probe that [`start`] has started, until [`run`] takes it.
static STARTED: Mutex<Option<Running>> = Mutex::new(None);
/// Subjects that probes have read successfully.
static SURVIVED: Mutex<Vec<Subject>> = Mutex::new(Vec::new());

/// Starts a probe whose result [`run`] will need, so that other work is done while it reads.
pub fn start(content: Content, path: &str, dataset: Option<&str>) {
    *STARTED.lock().unwrap_or_else(PoisonError::into_inner) = Subject::new(content, path, dataset).spawn();
}

/// Reads the file in a probe, unless an earlier probe has survived it.
///
/// # Errors
/// If the probe crashes or does not end, since the file is then damaged. An error that the probe reports is ignored, since
/// the caller will encounter it as well.
pub fn run(content: Content, path: &str, dataset: Option<&str>) -> Result<()> {
    let wanted = Subject::new(content, path, dataset);
    let mut survived = SURVIVED.lock().unwrap_or_else(PoisonError::into_inner);
    if survived.iter().any(|subject| subject.covers(&wanted)) {
        return Ok(());
    }
    let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner).take_if(|probe| probe.subject.covers(&wanted));
    let Some(probe) = started.or_else(|| wanted.spawn()) else { return Ok(()) };
    let subject = probe.subject.clone();
    probe.finish()?;
    survived.push(subject);
    Ok(())
}

fn verdict(path: &str, status: ExitStatus) -> Result<()> {
    // A process without an exit code was ended by a signal.
    if status.code().is_some() { Ok(()) } else { Err(damaged(path, "crashes on it")) }
}

fn damaged(path: &str, what: &str) -> Error {
    Error::input(format!("{path}: is damaged: the HDF5 library {what}; use a copy of it, or write it again"))
}

/// CPU time of a process in seconds. It is limited, and not the elapsed time, to stop an endless loop but tolerate a slow
/// disk.
fn cpu_seconds(process: u32) -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0; // The unit of /proc on Linux, whatever the clock of the kernel.
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in brackets, may contain blanks; user and system time are the 12th and 13th word after it.
    let words = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(2).filter_map(|w| w.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_the_matrix_covers_its_names_while_the_file_is_the_same() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let subject = |content, dataset| Subject::new(content, path, dataset);
        let matrix = subject(Content::Matrix, None);
        assert!(matrix.covers(&matrix) && matrix.covers(&subject(Content::Names, None)));
        assert!(!subject(Content::Names, None).covers(&matrix) && !matrix.covers(&subject(Content::Factors, None)));
        assert!(!matrix.covers(&subject(Content::Matrix, Some("X"))));
        std::fs::write(path, "longer").unwrap();
        assert!(!matrix.covers(&subject(Content::Matrix, None)));
    }
}
