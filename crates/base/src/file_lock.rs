//! Lock files, each held by one process at a time and removed when it is released.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval between two attempts to take a lock, if the wait is limited.
const POLL: Duration = Duration::from_millis(10);

/// A lock that this process holds. Dropping it removes the file and releases the lock.
pub struct FileLock {
    path: PathBuf,
    _file: File,
}

/// The name of a lock file next to `target`, which no user's file has. `purpose` is a word.
pub fn lock_of(target: &Path, purpose: &str) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".fednmf-{purpose}"));
    target.with_file_name(name)
}

impl FileLock {
    /// Waits until no other process holds the lock at `path`.
    ///
    /// # Errors
    /// If the file cannot be created or locked.
    pub fn acquire(path: &Path) -> Result<Self> {
        loop {
            let file = FileLock::open(path)?;
            file.lock()?;
            if let Some(lock) = FileLock::holding(path, file)? {
                return Ok(lock);
            }
        }
    }

    /// As [`FileLock::acquire`], but `None` if another process still holds the lock after `timeout`.
    ///
    /// # Errors
    /// As [`FileLock::acquire`].
    pub fn acquire_within(path: &Path, timeout: Duration) -> Result<Option<Self>> {
        let start = Instant::now();
        loop {
            let file = FileLock::open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if start.elapsed() < timeout => {
                    std::thread::sleep(POLL);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(e),
            }
            if let Some(lock) = FileLock::holding(path, file)? {
                return Ok(Some(lock));
            }
        }
    }

    fn open(path: &Path) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    /// The lock on an open file; `None` if this is no longer the file at `path`: the previous holder may have removed it,
    /// and another process may hold a new one.
    fn holding(path: &Path, file: File) -> Result<Option<Self>> {
        let held = file.metadata()?;
        match fs::metadata(path) {
            Ok(found) if (found.dev(), found.ino()) == (held.dev(), held.ino()) => {
                Ok(Some(FileLock { path: path.to_path_buf(), _file: file }))
            }
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(None),
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_holds_it_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let lock = FileLock::acquire(&path).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        assert!(FileLock::acquire_within(&path, Duration::ZERO).unwrap().is_none());
                        inside.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 1600);
        assert!(!path.exists());
    }

    #[test]
    fn one_that_is_released_in_time_is_acquired() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = FileLock::acquire(&path).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| FileLock::acquire_within(&path, Duration::from_secs(60)).unwrap());
            std::thread::sleep(5 * POLL);
            drop(held);
            assert!(waiting.join().unwrap().is_some());
        });
    }
}
