//! The files of a site, which no other process on its machine may write at the same time. Ranks of one job check each
//! other's names; sites do not know each other's.

use std::path::PathBuf;

use super::settings::Settings;
use crate::error::{Error, Result};
use crate::file_lock::{FileLock, lock_of};

/// Locks the files that a run writes until the locks are dropped.
///
/// # Errors
/// If another process holds one, or the directory of one cannot be written.
pub fn lock(settings: &Settings) -> Result<Vec<FileLock>> {
    let report = settings.report.as_ref().map(|(path, _)| path);
    let files = [
        ("--output", settings.output.as_ref()),
        ("--checkpoint", settings.checkpoint.as_ref()),
        ("--trace", settings.trace.as_ref()),
        ("--report", report),
    ];
    let mut locks: Vec<(PathBuf, FileLock)> = Vec::new();
    for (option, path) in files.into_iter().filter_map(|(option, path)| Some((option, path?))) {
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let lock = lock_of(&target, "site");
        // A device may be written by many; a name that is given twice, and a directory that is not there, are told
        // later.
        let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let has_directory = lock.parent().is_some_and(|dir| dir.as_os_str().is_empty() || dir.is_dir());
        if is_special || !has_directory || locks.iter().any(|(held, _)| *held == lock) {
            continue;
        }
        let wrong = |why: String| Err(Error::input(format!("{option} {}: {why}", path.display())));
        match FileLock::try_acquire(&lock) {
            Ok(Some(held)) => locks.push((lock, held)),
            Ok(None) => {
                return wrong(
                    "another process of fednmf join writes this file; give each site a name of its own".into(),
                );
            }
            Err(e) => return wrong(format!("cannot be locked ({e}); choose a directory of your own")),
        }
    }
    Ok(locks.into_iter().map(|(_, lock)| lock).collect())
}
