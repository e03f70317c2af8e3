//! Files that get their final name only when they are complete; until then they have a temporary name in the same
//! directory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::host;

/// The suffix of the name of an unfinished file.
const SUFFIX: &str = ".fednmf-part";

/// The start of a digest of the machine's name, since several machines may write to one directory.
static MACHINE: LazyLock<String> = LazyLock::new(|| {
    let digest = Sha256::digest(host::name().unwrap_or_default().as_bytes());
    digest[..3].iter().map(|byte| format!("{byte:02x}")).collect()
});

/// Directories in which this process has removed the leftovers of killed processes.
static TIDIED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The temporary name next to `path`, which no other process uses.
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{}{SUFFIX}", *MACHINE, std::process::id()));
    path.with_file_name(name)
}

/// Whether a process of this machine is still running. A zombie process counts as ended.
fn is_running(process: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The name of the program, in parentheses, may have any characters; the state follows it.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Removes the unfinished files of processes of this machine that are gone, once for each directory.
fn tidy(directory: &Path) {
    let is_new = TIDIED.lock().is_ok_and(|mut tidied| tidied.insert(directory.to_path_buf()));
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().take_while(|_| is_new) {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_suffix(SUFFIX)?.rsplit_once(&format!(".{}-", *MACHINE)))
            .and_then(|(_, process)| process.parse::<u32>().ok());
        if process.is_some_and(|process| !is_running(process)) {
            let _ = fs::remove_file(entry.path()); // It may be another user's.
        }
    }
}

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Permissions by the user's umask.
    Default,
    /// Readable by the owner only: a party's private rows, or keys.
    OwnerOnly,
}

impl Access {
    /// That of a file which is computed from these: if only its owner may read one of them, only the owner may read it.
    pub fn as_of<P: AsRef<Path>>(sources: impl IntoIterator<Item = P>) -> Access {
        let is_private = |path: P| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 == 0);
        if sources.into_iter().any(is_private) { Access::OwnerOnly } else { Access::Default }
    }
}

/// Creates the file under its temporary name and removes the unfinished files of killed runs. Never follows a link.
///
/// # Errors
/// If it cannot be created.
pub fn create_part(path: &Path, access: Access) -> io::Result<fs::File> {
    let part = part_of(path);
    tidy(directory(path));
    if fs::symlink_metadata(&part).is_ok_and(|found| !found.is_dir()) {
        fs::remove_file(&part)?;
    }
    let mode = if access == Access::OwnerOnly { 0o600 } else { 0o666 };
    fs::OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(part)
}

/// Creates or replaces a file in one step; `write` writes its contents. After an error the previous file is unchanged.
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

/// Writes a file that must not exist yet. After an error there is none.
///
/// # Errors
/// If it exists or cannot be written.
pub fn create(path: &Path, access: Access, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<()> {
    let mode = if access == Access::OwnerOnly { 0o600 } else { 0o666 };
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    write(&mut file).and_then(|()| file.sync_all()).inspect_err(|_| {
        let _ = fs::remove_file(path); // The error matters more.
    })
}

/// Opens a file to write to it. A named pipe that nobody reads is refused: no signal would end the wait for a reader.
///
/// # Errors
/// If it cannot be opened.
pub fn open_to_write(path: &Path, options: &mut fs::OpenOptions) -> io::Result<fs::File> {
    if !fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        return options.open(path);
    }
    let at_once = OFlags::NONBLOCK.bits() as i32;
    let file =
        fs::OpenOptions::new().write(true).custom_flags(at_once).open(path).map_err(
            |e| match Errno::from_io_error(&e) {
                Some(Errno::NXIO) => io::Error::other("nobody reads from this named pipe"),
                _ => e,
            },
        )?;
    // A full pipe is waited for, as always.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// The directory of `path`.
pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_new_file_is_whole_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let failed = create(&path, Access::OwnerOnly, |out| {
            out.write_all(b"sec")?;
            Err(io::Error::other("full"))
        });
        assert!(failed.is_err() && !path.exists());
        create(&path, Access::OwnerOnly, |out| out.write_all(b"secret")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path, Access::OwnerOnly, |_| Ok(())).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"secret");
    }

    #[test]
    fn a_named_pipe_needs_a_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let open = || open_to_write(&path, fs::OpenOptions::new().write(true).create(true).truncate(true));
        assert!(open().unwrap_err().to_string().contains("nobody reads"));
        let mut reader =
            fs::OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path).unwrap();
        let mut file = open().unwrap();
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
        file.write_all(b"line").unwrap();
        drop(file);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "line");
    }

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

    #[test]
    fn what_is_computed_from_a_private_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let [open, own] = ["open", "own"].map(|name| dir.path().join(name));
        fs::write(&open, "1").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&own, Access::OwnerOnly, |out| out.write_all(b"1")).unwrap();
        assert_eq!(Access::as_of([&open]), Access::Default);
        assert_eq!(Access::as_of([&open, &own]), Access::OwnerOnly);
        assert_eq!(Access::as_of([dir.path().join("none")]), Access::Default);
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_what_others_write_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        // A zombie: ended, but not waited for.
        let mut child = std::process::Command::new("true").stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Read::read_to_end(child.stdout.as_mut().unwrap(), &mut Vec::new()).unwrap();
        while is_running(child.id()) {
            std::thread::yield_now();
        }
        let own = part_of(&path).to_string_lossy().into_owned();
        let of =
            |process: u32| own.replace(&format!("-{}{SUFFIX}", std::process::id()), &format!("-{process}{SUFFIX}"));
        let dead = of(child.id());
        // Process 1 is alive; a process of another machine cannot be checked.
        let kept = [of(1), dead.replace(&*MACHINE, "000000"), dir.path().join("a.fednmf-part").display().to_string()];
        for name in kept.iter().chain([&dead]) {
            fs::write(name, "part").unwrap();
        }
        std::os::unix::fs::symlink(dir.path().join("target"), &own).unwrap();
        replace(&path, Access::OwnerOnly, |out| out.write_all(b"whole")).unwrap();
        assert!(!Path::new(&dead).exists() && kept.iter().all(|name| Path::new(name).exists()));
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(!dir.path().join("target").exists(), "the link was followed");
        child.wait().unwrap();
    }
}
