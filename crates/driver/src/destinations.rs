//! Outputs whose names have been taken since the run began. Hours may pass between the check of the names and the
//! result, and neither the result nor the file that it would replace may be lost.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use fednmf_base::error::Error;
use fednmf_base::unfinished::directory;
use fednmf_comm::{CONTROL, Communicator};
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_privacy::Public;

use super::metadata;
use super::run::RunRecord;
use super::spec::Outputs;

/// The outputs, with new names in place of those that are taken, and messages about the changes. Collective.
pub(super) fn recheck(run: &RunRecord, comm: &Communicator) -> (Outputs, Vec<String>) {
    let mut outputs = run.planned.outputs.clone();
    let mut messages = Vec::new();
    if let Some(path) = &run.planned.outputs.factors {
        let taken = if outputs.add {
            let shape = ["m", "n"].map(|name| run.start[name].as_u64().unwrap_or(0) as usize);
            comm.reports().then(|| no_longer_fits(path, shape.into(), run)).flatten()
        } else {
            taken(comm, Target { option: "--output", path, content: Content::Factors })
        };
        if let Some((free, message)) = agree(comm, taken) {
            (outputs.factors, outputs.add) = (Some(free), false);
            messages.push(message);
        }
    }
    if let Some((path, _)) = &mut outputs.report {
        let taken = taken(comm, Target { option: "--report", path, content: Content::Report });
        if let Some((free, message)) = agree(comm, taken) {
            *path = free;
            messages.push(message);
        }
    }
    (outputs, messages)
}

/// Where factors may be written if `path` fails: next to the checkpoint, in the current directory, in the temporary one.
/// Collective.
pub(super) fn elsewhere(run: &RunRecord, path: &Path, comm: &Communicator) -> [PathBuf; 3] {
    let checkpoint =
        run.planned.spec.checkpoint.as_deref().map_or_else(|| PathBuf::from("."), |of| directory(of).into());
    let name = path.file_name().map_or_else(|| PathBuf::from("factors.h5"), PathBuf::from);
    let places = [checkpoint, PathBuf::from("."), std::env::temp_dir()].map(|place| {
        let path = place.join(&name);
        if path.exists() { targets::next_free_path(&path) } else { path }
    });
    if comm.has_owners() { places } else { comm.broadcast_public(CONTROL, Places(places)).0 }
}

/// A free name and a message, if the name of the target belongs to a file that fednmf did not write.
fn taken(comm: &Communicator, target: Target<'_>) -> Option<(PathBuf, String)> {
    if !comm.reports() {
        return None;
    }
    let why = targets::check_existing(&target).err()?;
    Some(instead(target.path, &why))
}

/// As [`taken`], for a file that factors are added to and that has changed so that they no longer fit.
fn no_longer_fits(path: &Path, shape: (usize, usize), run: &RunRecord) -> Option<(PathBuf, String)> {
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
    if comm.has_owners() { found } else { comm.broadcast_public(CONTROL, Conflict(found)).0 }
}

/// Where factors may be written.
#[derive(Serialize, Deserialize)]
struct Places([PathBuf; 3]);

impl Public for Places {
    const WHY: &'static str = "paths of outputs, which all ranks write together";
}

/// A free name for an output, and why.
#[derive(Serialize, Deserialize)]
struct Conflict(Option<(PathBuf, String)>);

impl Public for Conflict {
    const WHY: &'static str = "the path of an output, which all ranks write together";
}
