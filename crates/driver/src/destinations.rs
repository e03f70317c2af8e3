//! Outputs whose names have been taken since the run began. Hours may pass between the check of the names and the
//! result, and neither the result nor the file that it would replace must be lost.

use std::path::{Path, PathBuf};

use fednmf_base::error::{Error, SharedError};
use fednmf_comm::{CONTROL, Communicator};
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};

use super::metadata;
use super::prepare::Run;

/// Gives the factors and the report other names if theirs are taken; returns what the user must know. Collective.
pub(super) fn recheck(run: &mut Run, comm: &Communicator) -> Option<SharedError> {
    let mut messages = Vec::new();
    if let Some(path) = run.settings.output.clone() {
        let taken = if run.settings.add {
            let shape = ["m", "n"].map(|name| run.start[name].as_u64().unwrap_or(0) as usize);
            comm.reports().then(|| no_longer_fits(&path, shape.into(), run)).flatten()
        } else {
            taken(comm, Target { option: "--output", path: &path, content: Content::Factors })
        };
        if let Some((free, message)) = agree(comm, taken) {
            run.settings.output = Some(free);
            run.settings.add = false;
            run.annotations.add = false;
            messages.push(message);
        }
    }
    if let Some((path, display)) = run.settings.report.clone() {
        let taken = taken(comm, Target { option: "--report", path: &path, content: Content::Report });
        if let Some((free, message)) = agree(comm, taken) {
            run.settings.report = Some((free, display));
            messages.push(message);
        }
    }
    (!messages.is_empty()).then(|| Error::failed(messages.join("; ")).on_all_ranks())
}

/// A free name and a message, if something that fednmf did not write has that of the target.
fn taken(comm: &Communicator, target: Target<'_>) -> Option<(PathBuf, String)> {
    if !comm.reports() {
        return None;
    }
    let why = targets::check_existing(&target).err()?;
    Some(instead(target.path, &why))
}

/// As [`taken`], for a file that factors are added to and that has changed so that they no longer fit.
fn no_longer_fits(path: &Path, shape: (usize, usize), run: &Run) -> Option<(PathBuf, String)> {
    let why = match metadata::fit(path, shape, &run.annotations) {
        Ok((turned, _)) if turned == run.annotations.transposed => return None,
        Ok(_) => Error::input(format!("--add-to {}: is transposed", path.display())),
        Err(why) => why,
    };
    Some(instead(path, &why))
}

fn instead(path: &Path, why: &Error) -> (PathBuf, String) {
    let free = targets::next_free_path(path);
    let message =
        format!("{} (this has changed during the run); the result is in {} instead", why.message, free.display());
    (free, message)
}

/// The conflict found by rank 0 or, if each rank has an owner, by this rank. Collective.
fn agree(comm: &Communicator, found: Option<(PathBuf, String)>) -> Option<(PathBuf, String)> {
    if comm.has_owners() { found } else { comm.broadcast_value(CONTROL, found) }
}
