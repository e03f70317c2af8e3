//! A lock file: one process at a time, and nothing is left behind.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A lock that this process holds; dropped, it removes its file and lets the next one in.
pub struct FileLock {
    path: PathBuf,
    _file: File,
}

impl FileLock {
    /// Waits until no other process holds the lock of the file at `target`.
    ///
    /// # Errors
    /// If the lock file beside it cannot be made or locked.
    pub fn acquire(target: &Path) -> Result<Self> {
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(".fednmf-lock");
        let path = target.with_file_name(name);
        loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock()?;
            // Whoever held the lock may have removed the file meanwhile, and another process may hold a new one.
            let held = file.metadata()?;
            match fs::metadata(&path) {
                Ok(found) if (found.dev(), found.ino()) == (held.dev(), held.ino()) => {
                    return Ok(FileLock { path, _file: file });
                }
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
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
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_holds_it_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let lock = FileLock::acquire(&path).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 1600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
