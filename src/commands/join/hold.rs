//! Results that are put aside until a second person releases them: `--hold`, and `fednmf audit release`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fednmf_base::error::{Error, Result};
use fednmf_driver::spec::Outputs;
use fednmf_sites::file_digest;

/// The end of the name of a directory of results that are put aside.
const HELD: &str = ".held";

fn unusable(directory: &Path, why: impl std::fmt::Display) -> Error {
    Error::input(format!("--hold: {}: {why}", directory.display()))
}

/// Lets the results of a run go to a new directory beside `--output` that only its owner can read; returns it.
///
/// # Errors
/// If the directory has files or cannot be made.
pub fn put_aside(outputs: &mut Outputs) -> Result<PathBuf> {
    let place = |path: &Path, directory: &Path| directory.join(path.file_name().unwrap_or_default());
    let Some(factors) = &outputs.factors else { return Err(Error::input("--hold: is about results; add --output")) };
    if outputs.add {
        return Err(Error::input("--hold: a file that factors are added to is not put aside; use --output"));
    }
    let mut name = factors.clone().into_os_string();
    name.push(HELD);
    let directory = PathBuf::from(name);
    let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    match made {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(&directory).map_err(|e| unusable(&directory, e))?;
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
    outputs.factors = Some(place(factors, &directory));
    if let Some((report, _)) = &mut outputs.report {
        *report = place(report, &directory);
    }
    Ok(directory)
}

/// The files of a directory of results.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(directory).and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect());
    let mut files: Vec<PathBuf> = read.map_err(|e| unusable(directory, format!("cannot be read ({e})")))?;
    files.sort();
    // Locks of a run that has not ended.
    files.retain(|file| !file.to_string_lossy().contains(".fednmf-"));
    Ok(files)
}

/// SHA-256 of the files of a directory of results, by name.
///
/// # Errors
/// If one cannot be read.
pub fn digests(directory: &Path) -> Result<BTreeMap<String, String>> {
    let digest = |file: PathBuf| {
        let name = file.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
        let digest = file_digest(&file).map_err(|e| unusable(directory, format!("{name} cannot be read ({e})")))?;
        Ok((name, digest))
    };
    files(directory)?.into_iter().map(digest).collect()
}

/// Moves the results out of their directory, beside it; returns where they are.
///
/// # Errors
/// If the directory is none of results, or a file is in the way; nothing has been moved then.
pub fn take_out(directory: &Path) -> Result<Vec<PathBuf>> {
    if directory.extension().is_none_or(|end| end != &HELD[1..]) {
        return Err(unusable(directory, format!("is no directory of --hold, whose name ends in {HELD}")));
    }
    let parent = directory.parent().unwrap_or(Path::new(""));
    let moves: Vec<(PathBuf, PathBuf)> = files(directory)?
        .into_iter()
        .map(|file| (file.clone(), parent.join(file.file_name().unwrap_or_default())))
        .collect();
    if let Some((_, taken)) = moves.iter().find(|(_, to)| to.exists()) {
        return Err(unusable(directory, format!("{} exists and is not replaced; move it away", taken.display())));
    }
    for (from, to) in &moves {
        std::fs::rename(from, to)
            .map_err(|e| unusable(directory, format!("{} cannot be moved ({e})", from.display())))?;
    }
    // Only an empty directory is removed; one with other files stays.
    let _ = std::fs::remove_dir(directory);
    Ok(moves.into_iter().map(|(_, to)| to).collect())
}
