//! The output files of a run. No other run on the machine may write them at the same time: it would replace this run's
//! results, and their traces would be mixed.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fednmf_base::error::{Error, Result};
use fednmf_base::file_lock::{FileLock, lock_of};

use super::spec::Spec;

/// Maximum time that a run waits for its files. A killed run holds its locks until the system has released its memory,
/// and the job that resumes it may start at once.
const PATIENCE: Duration = Duration::from_secs(5);

fn taken(option: &str, path: &Path, does: &str) -> Error {
    let why = format!("another run of fednmf {does} this file; give each run a name of its own");
    Error::input(format!("{option} {}: {why}", path.display()))
}

/// Another value once the file was replaced or written to.
fn version(path: &Path) -> Option<(u64, i64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec()))
}

/// Locks the files that a run writes until the locks are dropped.
///
/// # Errors
/// If another process does not release one within five seconds, or sooner if `--stall-timeout` is short.
pub fn lock(spec: &Spec) -> Result<Vec<FileLock>> {
    let report = spec.outputs.report.as_ref().map(|(path, _)| path);
    let files = [
        // Adding factors to a file waits for its own lock.
        ("--output", spec.outputs.factors.as_ref().filter(|_| !spec.outputs.add)),
        ("--checkpoint", spec.checkpoint.as_ref()),
        ("--trace", spec.trace.as_ref()),
        ("--report", report),
    ];
    // The other ranks wait for this one, and are not to be warned of a stall.
    let patience = spec.stall_timeout.map_or(PATIENCE, |limit| PATIENCE.min(limit / 3));
    let start = Instant::now();
    let mut locks: Vec<(PathBuf, FileLock)> = Vec::new();
    for (option, path) in files.into_iter().filter_map(|(option, path)| Some((option, path?))) {
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let lock = lock_of(&target, "run");
        // Several runs may write to a device. A name that is given twice, or a missing directory, is reported later.
        let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let has_directory = lock.parent().is_some_and(|dir| dir.as_os_str().is_empty() || dir.is_dir());
        if is_special || !has_directory || locks.iter().any(|(held, _)| *held == lock) {
            continue;
        }
        let before = version(&target);
        match FileLock::acquire_within(&lock, patience.saturating_sub(start.elapsed())) {
            // The run that held the lock has ended well. A run that is resumed replaces what its interrupted part wrote.
            Ok(Some(_)) if version(&target) != before && !spec.resume && option != "--checkpoint" => {
                return Err(taken(option, path, "has just written"));
            }
            Ok(Some(held)) => locks.push((lock, held)),
            // A killed run holds no lock, even if its file is still there.
            Ok(None) => return Err(taken(option, path, "is writing")),
            // Some file systems have no locks, and whether the directory can be written to is found later.
            Err(_) => {}
        }
    }
    Ok(locks.into_iter().map(|(_, lock)| lock).collect())
}
