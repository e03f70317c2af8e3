//! Results that are put aside until a second person releases them: `--hold`, `--hold-for`, and `fednmf audit release`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use fednmf_base::error::{Error, Result};
use fednmf_driver::spec::{Outputs, Place};
use fednmf_sites::digest_of;

use super::encryption::{Recipients, SecretKeys, plain_name};

/// The end of the name of a directory of results that are put aside.
const HELD: &str = ".held";

/// A file system in memory, in which results are until they are encrypted.
const MEMORY: &str = "/dev/shm";
/// The beginning of the names of directories there.
const UNENCRYPTED: &str = "fednmf-unencrypted-";
/// That of a directory which is not locked yet.
const NEW: &str = "fednmf-new-";

/// Results that are put aside while a run goes on.
pub struct Held {
    directory: PathBuf,
    /// Where they are until then, and for whom they are encrypted; `None` if they are not.
    encrypted: Option<(InMemory, Recipients)>,
}

/// A directory in memory that only its owner can read. It is deleted at the end, and if the process is killed, at the next start:
/// a killed process has no lock.
struct InMemory {
    path: PathBuf,
    _lock: File,
}

impl InMemory {
    /// A new directory in `parent`. Those that killed processes left there are deleted.
    fn new(parent: &Path) -> io::Result<Self> {
        for left in fs::read_dir(parent)?.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let is_ours = left.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNENCRYPTED));
            // Those of other users cannot be opened.
            if is_ours && File::open(&left).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_dir_all(&left);
            }
        }
        // It has its name once it is locked: otherwise another process could take it for one that was left.
        let [new, path] = [NEW, UNENCRYPTED].map(|name| parent.join(format!("{name}{}", std::process::id())));
        fs::DirBuilder::new().mode(0o700).create(&new)?;
        let lock = File::open(&new)?;
        lock.try_lock()?;
        fs::rename(&new, &path)?;
        Ok(InMemory { path, _lock: lock })
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn unusable(directory: &Path, why: impl std::fmt::Display) -> Error {
    Error::input(format!("--hold: {}: {why}", directory.display()))
}

/// Lets the results of a run go to a new directory beside `--output` that only its owner can read. With `recipients` they are in
/// memory first, and [`Held::close`] encrypts them to that directory.
///
/// # Errors
/// If the directory has files or cannot be made, or there is no file system in memory.
pub fn put_aside(outputs: &mut Outputs, recipients: Option<Recipients>) -> Result<Held> {
    let place = |path: &Path, directory: &Path| directory.join(path.file_name().unwrap_or_default());
    let Some(factors) = &outputs.factors else { return Err(Error::input("--hold: is about results; add --output")) };
    if outputs.add {
        return Err(Error::input("--hold: a file that factors are added to is not put aside; use --output"));
    }
    let mut name = factors.clone().into_os_string();
    name.push(HELD);
    let directory = PathBuf::from(name);
    let made = fs::DirBuilder::new().mode(0o700).create(&directory);
    match made {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(&directory).map_err(|e| unusable(&directory, e))?;
            if !found.is_dir() || found.mode() & 0o077 != 0 || !files(&directory)?.is_empty() {
                return Err(unusable(
                    &directory,
                    "holds results already, or others can read it; give --output another name",
                ));
            }
        }
        made => {
            made.map_err(|e| unusable(&directory, format!("cannot be made ({e}); choose a directory of your own")))?
        }
    }
    let in_memory = || {
        InMemory::new(Path::new(MEMORY)).map_err(|e| {
            Error::input(format!("--hold-for: needs {MEMORY}, so that no disk gets readable results ({e})"))
        })
    };
    let encrypted = recipients.map(|recipients| in_memory().map(|memory| (memory, recipients))).transpose()?;
    let first = encrypted.as_ref().map_or(&directory, |(memory, _)| &memory.path);
    outputs.factors = Some(place(factors, first));
    if let Some((report, _)) = &mut outputs.report {
        *report = place(report, first);
    }
    outputs.place = if encrypted.is_some() { Place::Encrypted(directory.clone()) } else { Place::OnlyThere };
    Ok(Held { directory, encrypted })
}

/// What a run has put aside, for the log.
pub struct PutAside {
    /// SHA-256 by name, before encryption.
    pub results: BTreeMap<String, String>,
    /// The public keys for which they are encrypted.
    pub keys: Vec<String>,
}

impl Held {
    /// After the run, whatever its outcome: encrypts the results, if somebody is named for whom.
    ///
    /// # Errors
    /// If they cannot be read or encrypted.
    pub fn close(self) -> Result<PutAside> {
        let Held { directory, encrypted } = self;
        let Some((memory, recipients)) = encrypted else {
            return Ok(PutAside { results: digests(&directory, None)?, keys: Vec::new() });
        };
        let encrypt = |results| {
            for file in files(&memory.path)? {
                let written = recipients.encrypt(&file, &directory);
                written.map_err(|e| Error::failed(format!("--hold-for: {}: {e}", name_of(&file).display())))?;
            }
            Ok(PutAside { results, keys: recipients.names() })
        };
        digests(&memory.path, None).and_then(encrypt).map_err(|e: Error| {
            let message = format!("{}; results that could not be encrypted are deleted", e.message);
            e.with_message(message)
        })
    }
}

/// Whether a file is what remains of one that a killed process was writing.
fn is_unfinished(file: &Path) -> bool {
    file.to_string_lossy().ends_with(".fednmf-part")
}

/// Whether a file is a lock of a run that has not ended.
fn is_lock(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().contains(".fednmf-")) && !is_unfinished(file)
}

/// The files of a directory of results.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(directory).and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect());
    let mut files: Vec<PathBuf> = read.map_err(|e| unusable(directory, format!("cannot be read ({e})")))?;
    files.sort();
    files.retain(|file| !is_lock(file) && !is_unfinished(file));
    Ok(files)
}

/// SHA-256 of the results in a directory, by name. Encrypted ones are read with `keys`.
///
/// # Errors
/// If one cannot be read, or decrypted; if there are keys, and nothing is encrypted.
pub fn digests(directory: &Path, keys: Option<&SecretKeys>) -> Result<BTreeMap<String, String>> {
    let files = files(directory)?;
    if keys.is_some() && !files.iter().any(|file| plain_name(file).is_some()) {
        return Err(Error::input(format!(
            "--identity: nothing in {} is encrypted; leave the option out",
            directory.display()
        )));
    }
    let digest = |file: &PathBuf| {
        let name = name_of(file).to_string_lossy().into_owned();
        let unreadable = |e: io::Error| unusable(directory, format!("{name} cannot be read ({e})"));
        let digest = digest_of(&mut open(file, keys)?).map_err(unreadable)?;
        Ok((name, digest))
    };
    files.iter().map(digest).collect()
}

/// The name of a result.
fn name_of(file: &Path) -> OsString {
    plain_name(file).unwrap_or_else(|| file.file_name().unwrap_or_default().to_os_string())
}

/// The contents of a result.
fn open(file: &Path, keys: Option<&SecretKeys>) -> Result<Box<dyn io::Read>> {
    match (plain_name(file), keys) {
        (Some(_), Some(keys)) => Ok(Box::new(keys.open(file)?)),
        (Some(_), None) => Err(Error::input(format!(
            "{}: is encrypted; give --identity FILE with the secret key of the person whom --hold-for named",
            file.display()
        ))),
        (None, _) => {
            let opened = File::open(file);
            Ok(Box::new(opened.map_err(|e| Error::input(format!("{}: cannot be read ({e})", file.display())))?))
        }
    }
}

/// Moves the results out of their directory, beside it, decrypted with `keys`; returns where they are.
///
/// # Errors
/// If the directory is none of results, a file is in the way, or one cannot be read or written; nothing is beside it then.
pub fn take_out(directory: &Path, keys: Option<&SecretKeys>) -> Result<Vec<PathBuf>> {
    if directory.extension().is_none_or(|end| end != &HELD[1..]) {
        return Err(unusable(directory, format!("is no directory of --hold, whose name ends in {HELD}")));
    }
    let parent = directory.parent().unwrap_or(Path::new(""));
    let moves: Vec<(PathBuf, PathBuf)> = files(directory)?
        .into_iter()
        .map(|file| {
            let to = parent.join(name_of(&file));
            (file, to)
        })
        .collect();
    if let Some((_, taken)) = moves.iter().find(|(_, to)| to.exists()) {
        return Err(unusable(directory, format!("{} exists and is not replaced; move it away", taken.display())));
    }
    let (encrypted, readable): (Vec<_>, Vec<_>) = moves.iter().partition(|(from, _)| plain_name(from).is_some());
    for (i, (from, to)) in encrypted.iter().enumerate() {
        decrypt(from, to, keys).inspect_err(|_| {
            encrypted[..i].iter().for_each(|(_, written)| drop(fs::remove_file(written)));
        })?;
    }
    for (from, to) in readable {
        fs::rename(from, to).map_err(|e| unusable(directory, format!("{} cannot be moved ({e})", from.display())))?;
    }
    for (from, _) in encrypted {
        fs::remove_file(from)
            .map_err(|e| unusable(directory, format!("{} cannot be deleted ({e})", from.display())))?;
    }
    // Only an empty directory is removed; one with other files stays.
    let _ = fs::remove_dir(directory);
    Ok(moves.into_iter().map(|(_, to)| to).collect())
}

/// Writes the contents of an encrypted result to a new file with its permissions.
fn decrypt(from: &Path, to: &Path, keys: Option<&SecretKeys>) -> Result<()> {
    let mut contents = open(from, keys)?;
    let mut write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        io::copy(&mut contents, &mut file)?;
        file.set_permissions(fs::metadata(from)?.permissions())?;
        file.sync_all()
    };
    write().map_err(|e: io::Error| {
        let _ = fs::remove_file(to);
        Error::input(format!("{}: cannot be written ({e}); the results are still in their directory", to.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_in_memory_is_deleted() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{UNENCRYPTED}0"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("f.h5"), "U").unwrap();
        let running = parent.path().join(format!("{UNENCRYPTED}1"));
        fs::create_dir(&running).unwrap();
        let lock = File::open(&running).unwrap();
        lock.try_lock().unwrap();
        let own = InMemory::new(parent.path()).unwrap();
        assert_eq!(fs::metadata(&own.path).unwrap().mode() & 0o777, 0o700);
        assert!(!left.exists() && running.exists());
        let path = own.path.clone();
        fs::write(path.join("f.h5"), "U").unwrap();
        drop(own);
        assert!(!path.exists());
    }

    /// Not beside the checkpoint, nor in the temporary directory.
    #[test]
    fn results_that_are_held_have_one_place() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = |name: &str| Outputs {
            factors: Some(dir.path().join(name)),
            add: false,
            report: None,
            place: Place::Anywhere,
        };
        let mut plain = outputs("a.h5");
        let held = put_aside(&mut plain, None).unwrap();
        assert_eq!(plain.place, Place::OnlyThere);
        assert_eq!(plain.factors, Some(dir.path().join("a.h5.held/a.h5")));
        assert!(held.close().unwrap().keys.is_empty());
    }
}
