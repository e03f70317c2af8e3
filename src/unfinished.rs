//! Files that get their name when they are complete: until then they have a temporary one beside it.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The temporary name beside `path`. It is always the same, so the next run overwrites what a killed one left, and
/// one that no file of a user has.
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".fednmf-part");
    path.with_file_name(name)
}

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As the user's umask says.
    Default,
    /// The owner alone: a party's private rows, or keys.
    OwnerOnly,
}

/// Creates the file under its temporary name. What a killed run left there is removed; a link is never followed.
///
/// # Errors
/// If it cannot be created.
pub fn create_part(path: &Path, access: Access) -> io::Result<fs::File> {
    let part = part_of(path);
    if fs::symlink_metadata(&part).is_ok_and(|found| !found.is_dir()) {
        fs::remove_file(&part)?;
    }
    let mode = if access == Access::OwnerOnly { 0o600 } else { 0o666 };
    fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(part)
}

/// Creates or replaces a file by what `write` writes, in one step; after an error it is as before.
///
/// # Errors
/// If it cannot be written.
pub fn replace(path: &Path, access: Access, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    let mut part = create_part(path, access)?;
    let named = write(&mut part).and_then(|()| part.sync_all()).and_then(|()| fs::rename(part_of(path), path));
    if named.is_err() {
        let _ = fs::remove_file(part_of(path)); // The error matters more.
    }
    named?;
    fs::File::open(directory(path))?.sync_all()
}

/// The directory of `path`.
pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        replace(&path, Access::Default, |out| out.write_all(b"first")).unwrap();
        let failed = replace(&path, Access::Default, |out| {
            out.write_all(b"sec")?;
            Err(io::Error::other("full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "full");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }
}
