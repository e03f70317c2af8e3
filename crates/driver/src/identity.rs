//! The parameters that a run and its checkpoint must have in common for a resume.

use std::path::Path;

use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_data::Loaded;
use fednmf_data::state::{Owner, SavedState};
use fednmf_files::names;
use fednmf_files::output::checkpoint;
use fednmf_files::output::checkpoint::Resumed;
use fednmf_files::output::matrices::Annotations;
use fednmf_linalg::Real;
use fednmf_methods::Algorithm;
use fednmf_methods::shared::missing::MissingParams;

use super::checkpoint::{FINGERPRINT, SHARED_STATE, replaced, shared_state};
use super::iterate::Trajectory;
use super::missing;
use super::plan::Planned;
use super::spec::{DP_RELEASES, OPENED_AT};
use crate::progress::Progress;

/// The parameters that a resumed run must have in common with the run that wrote the checkpoint.
pub fn of<T: Real>(planned: &Planned, loaded: &Loaded<T>) -> Map<String, Value> {
    let mut identity = planned.result_parameters();
    identity.insert("m".into(), loaded.header.rows.into());
    identity.insert("n".into(), loaded.header.cols.into());
    identity.insert("split".into(), planned.split.counts().into());
    if planned.is_private() {
        // Without --parties or files of parties there is one for each rank.
        identity.insert("parties".into(), planned.parties.count.into());
    }
    identity.insert("checksum".into(), checksum(planned, loaded));
    identity
}

/// The parameters that, in addition to the options, determine which entries a run excludes.
pub fn left_out(planned: &Planned, sparse: bool, marks: Option<u64>) -> Map<String, Value> {
    let mut all = Map::new();
    all.extend(marks.map(|marks| (missing::MARKS.to_string(), missing::checksum_text(marks).into())));
    if planned.method.groups().missing.is_some_and(|group| group.holdout > 0.0) {
        all.insert(missing::HELD_OUT_OF_SPARSE.into(), sparse.into());
    }
    all
}

/// Digests of the names of rows and columns if entries are excluded by position, so that a reader of the factors notices that
/// the matrix was reordered. Names are known where the output is written, on rank 0.
pub fn order_of_names(planned: &Planned, annotations: &Annotations) -> Map<String, Value> {
    // Private names could be guessed from a digest.
    let private = planned.is_private();
    if private || !planned.method.groups().missing.is_some_and(MissingParams::any) {
        return Map::new();
    }
    let lists = [(missing::ROW_ORDER, &annotations.rows), (missing::COLUMN_ORDER, &annotations.columns)];
    let digests = lists.into_iter().filter_map(|(name, list)| Some((name, names::digest(list.as_ref()?))));
    digests.map(|(name, digest)| (name.to_string(), digest.into())).collect()
}

/// A hash of the data; null for private data, about which even a hash reveals something.
pub fn checksum<T: Real>(planned: &Planned, loaded: &Loaded<T>) -> Value {
    if planned.is_private() {
        return Value::Null;
    }
    format!("{:016x}", loaded.statistics.checksum).into()
}

/// The fingerprints of the hosted parties' data, which each party compares with its own checkpoint.
pub fn fingerprints<T: Real>(planned: &Planned, loaded: &Loaded<T>, rank: usize) -> Vec<(usize, u64)> {
    if !planned.is_private() {
        return Vec::new();
    }
    planned.parties.hosted(rank).zip(loaded.fingerprints.iter().copied()).collect()
}

/// Restores the method from the checkpoint at `path`.
pub fn resume<T: Real>(
    path: &Path,
    comm: &Communicator,
    identity: &Map<String, Value>,
    fingerprints: &[(usize, u64)],
    algorithm: &mut dyn Algorithm<T>,
) -> Result<Trajectory> {
    let (stored, attributes) = Resumed::open(path, comm)?;
    check_releases(&attributes, identity).map_err(|e| e.at(path.display()))?;
    check_opening(&attributes, identity).map_err(|e| e.at(path.display()))?;
    checkpoint::compare(&attributes, identity).map_err(|e| e.at(path.display()))?;
    for &(party, fingerprint) in fingerprints {
        let saved = SavedState::<T>::scalars(&stored, Owner::Party(party))?;
        if saved.get(FINGERPRINT).is_some_and(|saved| *saved != fingerprint) {
            return Err(Error::input(format!(
                "{}: party {party} resumes with other data than it had; give its matrix of then, or start without --resume",
                path.display()
            )));
        }
    }
    let trajectory = Trajectory::resume(&attributes).map_err(|e| e.at(path.display()))?;
    algorithm.restore(&stored, trajectory.iteration)?;
    for &(party, _) in fingerprints.iter().filter(|_| algorithm.private_releases().is_some()) {
        let saved = SavedState::<T>::scalars(&stored, Owner::Party(party))?;
        if saved.get(SHARED_STATE).and_then(Value::as_str) != Some(&shared_state(algorithm, &options(identity))) {
            return Err(Error::input(format!(
                "{}: is not as it was when party {party} saved its own part, so with --dp its noise would not do for what is \
                 released; resume from the files as the run left them, or start without --resume",
                path.display()
            )));
        }
    }
    Ok(trajectory)
}

/// All that a resumed run must have in common with the run that wrote the checkpoint, as bytes: what noise depends on.
pub fn options(identity: &Map<String, Value>) -> Vec<u8> {
    Value::Object(identity.clone()).to_string().into_bytes()
}

/// Refuses to continue if the budget would be split over another number of releases, which --max-iters may change.
///
/// # Errors
/// With the option that keeps the split.
fn check_releases(found: &Map<String, Value>, identity: &Map<String, Value>) -> Result<()> {
    let planned = |of: &Map<String, Value>| of.get(DP_RELEASES).and_then(Value::as_u64);
    match (planned(found), planned(identity)) {
        (Some(then), Some(now)) if then != now => Err(Error::input(format!(
            "--dp-releases: the run split its --epsilon over {then} releases, and now it would be {now} (by default as many as \
             --max-iters): what is released cannot be split again. Resume with --dp-releases {then}, with which the run ends \
             after these, or start a new one with --dp-releases {now}, which spends a budget of its own"
        ))),
        _ => Ok(()),
    }
}

/// Refuses to open a result on shares after another number of iterations than was agreed.
///
/// # Errors
/// With the option that keeps the number.
fn check_opening(found: &Map<String, Value>, identity: &Map<String, Value>) -> Result<()> {
    let opened_at = |of: &Map<String, Value>| of.get(OPENED_AT).and_then(Value::as_u64);
    match (opened_at(found), opened_at(identity)) {
        (Some(then), Some(now)) if then != now => Err(Error::input(format!(
            "--max-iters {now}: the run opens its result after {then} iterations, and only then, because the results of several \
             iterations together reveal more than one; resume with --max-iters {then}"
        ))),
        _ => Ok(()),
    }
}

/// Refuses to replace a checkpoint of another run, and prints a warning before replacing one of this run. Rank 0
/// checks.
pub fn check_replaced(
    planned: &Planned,
    comm: &Communicator,
    identity: &Map<String, Value>,
    progress: &mut Progress,
) -> Result<()> {
    let Some(path) = planned.spec.checkpoint.as_ref().filter(|_| comm.reports()) else { return Ok(()) };
    let Some(found) = replaced(path, identity)? else { return Ok(()) };
    if let Some(iteration) = found.get("iteration").and_then(Value::as_u64) {
        progress.warn(&format!(
            "--checkpoint {}: the checkpoint of this run at iteration {iteration} will be replaced; --resume continues it",
            path.display()
        ));
    }
    Ok(())
}
