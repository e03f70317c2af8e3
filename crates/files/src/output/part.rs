//! A file under a temporary name, published by a rename: under its final name it is complete or absent.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use fednmf_base::error::{Error, Result};
use fednmf_base::file_lock::FileLock;
use fednmf_base::unfinished::{Access, create_part, directory, part_of};

/// Checks that a file can be written at `path`, and leaves nothing behind.
///
/// # Errors
/// If its directory does not exist or cannot be written to, or `path` is a directory itself.
pub fn check_writable(path: &Path) -> Result<()> {
    let (shown, dir) = (path.display(), directory(path));
    let named_as_directory = path.as_os_str().as_bytes().ends_with(b"/");
    if path.file_name().is_none() || path.is_dir() || named_as_directory {
        return Err(Error::input(format!("{shown}: is a directory; add the name of a file in it")));
    }
    if !dir.is_dir() {
        return Err(Error::input(format!(
            "{shown}: there is no directory {}; create it first, or give another name",
            dir.display()
        )));
    }
    let tried = create_part(path, Access::OwnerOnly).and_then(|_| fs::remove_file(part_of(path)));
    tried.map_err(|e| {
        Error::input(format!("{shown}: cannot write into {} ({e}); choose a directory of your own", dir.display()))
    })
}

/// The system's message inside an HDF5 error, or the whole error if there is none.
fn plain(words: &str) -> &str {
    let quoted = words.split_once("error message = '").and_then(|(_, rest)| rest.split_once('\''));
    quoted.map_or(words, |(message, _)| message)
}

pub(super) fn unwritten(path: &Path, e: impl std::fmt::Display) -> Error {
    let words = e.to_string();
    Error::failed(format!(
        "{}: cannot be written ({}); check the free space and the rights in {}",
        path.display(),
        plain(&words),
        directory(path).display()
    ))
}

/// A finished file under its temporary name. If dropped before [`Part::publish`], it is removed.
pub struct Part {
    path: PathBuf,
    published: bool,
    /// The lock of an existing file that is changed.
    lock: Option<FileLock>,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.published {
            // Nothing depends on whether the unwanted file can be removed.
            let _ = fs::remove_file(part_of(&self.path));
        }
    }
}

impl Part {
    /// A file to be published at `path`.
    pub(super) fn new(path: &Path) -> Self {
        Part { path: path.to_path_buf(), published: false, lock: None }
    }

    /// Holds the lock of an existing file that is changed, until the new file is published.
    pub(super) fn keep(&mut self, lock: FileLock) {
        self.lock = Some(lock);
    }

    /// The final name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to its final name, replacing an existing file.
    ///
    /// # Errors
    /// If the rename fails.
    pub fn publish(mut self) -> Result<()> {
        fs::rename(part_of(&self.path), &self.path).map_err(|e| unwritten(&self.path, e))?;
        self.published = true;
        self.lock = None;
        // The rename must be on disk before anything relies on it.
        fs::File::open(directory(&self.path)).and_then(|d| d.sync_all()).map_err(|e| unwritten(&self.path, e))
    }
}

/// Gives a copy the owner and the group of its original.
pub(super) fn keep_owner(original: &Path, copy: &Path) -> std::io::Result<()> {
    let (original, found) = (fs::metadata(original)?, fs::metadata(copy)?);
    if (original.uid(), original.gid()) == (found.uid(), found.gid()) {
        return Ok(());
    }
    chown(copy, Some(original.uid()), Some(original.gid()))?;
    // A change of owner may clear bits of the mode.
    fs::set_permissions(copy, original.permissions())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_cannot_be_written_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.h5");
        check_writable(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let missing = check_writable(&dir.path().join("no/o.h5")).unwrap_err();
        assert!(missing.message.contains("create it first"), "{missing}");
        assert_eq!(missing.exit_code(), 2);
        assert!(check_writable(dir.path()).unwrap_err().message.contains("is a directory"));
        assert!(check_writable(Path::new("/proc/o.h5")).unwrap_err().message.contains("cannot write"));
        // A file where a directory should be.
        fs::write(&path, "x").unwrap();
        assert!(check_writable(&path.join("o.h5")).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn the_systems_message_is_found() {
        let words = "H5Dwrite(): can't write data: errno = 28, error message = 'No space left on device', buf = 0x5";
        assert_eq!(plain(words), "No space left on device");
        assert_eq!(plain("can't do it"), "can't do it");
    }
}
