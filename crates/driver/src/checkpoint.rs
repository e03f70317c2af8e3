//! When a run saves its state: checkpoints at an interval that costs at most 2 % of the time, and the last good factors in
//! case the run fails.

use std::path::Path;
use std::time::Instant;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, Result, SharedError, SharedResult};
use fednmf_base::warning::warn;
use fednmf_comm::Communicator;
use fednmf_data::state::{OwnedPiece, Owner, Piece, State};
use fednmf_files::output::checkpoint;
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_linalg::Real;
use fednmf_methods::{Algorithm, Measures};
use fednmf_privacy::transcript::hex;

use super::checks::all_finite;
use super::spec::Every;

/// Least number of seconds between two checkpoints, unless `--checkpoint-every` says otherwise.
const MIN_INTERVAL: f64 = 300.0;
/// Largest fraction of a run's time that its checkpoints may take, likewise.
const MAX_FRACTION: f64 = 0.02;

/// The scalar of a party's file with the fingerprint of its data.
pub(super) const FINGERPRINT: &str = "fingerprint";
/// The scalar of a party's file with the digest of the shared state.
pub(super) const SHARED_STATE: &str = "shared_state";

/// A digest of the shared part of `algorithm`'s state, its iteration and the options, by which a party notices that something
/// else than a run changed the shared file.
pub(super) fn shared_state<T: Real>(algorithm: &dyn Algorithm<T>, options: &[u8]) -> String {
    let State { matrices, scalars } = algorithm.state();
    let mut digest = Sha256::new().chain_update(options).chain_update(algorithm.iteration().to_le_bytes());
    for piece in matrices.iter().filter(|piece| piece.owner == Owner::Shared) {
        digest.update(piece.name);
        for size in [piece.values.nrows(), piece.values.ncols(), piece.first_row] {
            digest.update(size.to_le_bytes());
        }
        piece.values.iter().for_each(|x| digest.update(x.as_f64().to_bits().to_le_bytes()));
    }
    for (_, scalars) in scalars.iter().filter(|(owner, _)| *owner == Owner::Shared) {
        digest.update(scalars.to_string());
    }
    hex(&digest.finalize())
}

/// When checkpoints are due. Rank 0's clock decides for all.
#[derive(Debug)]
struct Schedule {
    every: Every,
    begun: Instant,
    last: Instant,
    /// Seconds that the last checkpoint took.
    cost: f64,
    /// Seconds that all checkpoints took.
    spent: f64,
}

impl Schedule {
    fn new(every: Every) -> Self {
        Schedule { every, begun: Instant::now(), last: Instant::now(), cost: 0.0, spent: 0.0 }
    }

    /// Whether a checkpoint is due after `iteration`.
    fn is_due(&self, iteration: usize) -> bool {
        let since = self.last.elapsed().as_secs_f64();
        match self.every {
            Every::Iterations(n) => iteration.is_multiple_of(n),
            Every::Seconds(s) => since >= s,
            Every::Auto => affordable(since, self.begun.elapsed().as_secs_f64(), self.spent, self.cost),
        }
    }

    /// Records the seconds that writing a checkpoint, or the attempt, took.
    fn took(&mut self, seconds: f64) {
        (self.cost, self.last) = (seconds, Instant::now());
        self.spent += seconds;
    }
}

/// Whether one more checkpoint, at the cost of the last one, keeps all of them within their fraction of the run's time.
fn affordable(since: f64, run: f64, spent: f64, cost: f64) -> bool {
    since >= MIN_INTERVAL && spent + cost <= MAX_FRACTION * run
}

/// Writes the checkpoints of a run and remembers the factors of its last good evaluation.
pub struct Checkpointer<T: Real> {
    comm: Communicator,
    checkpoint: Option<Checkpoint>,
    /// The parameters that a resumed run must share with this one.
    identity: Map<String, Value>,
    schedule: Schedule,
    /// Whether the first checkpoint is due at once.
    starts_at_once: bool,
    /// Why the last checkpoint could not be written, if so.
    pub checkpoint_error: Option<SharedError>,
    /// Whether there is an output for the last good factors.
    remembers: bool,
    last_good: Option<LastGood<T>>,
    /// The hosted parties, each with the fingerprint of its data.
    fingerprints: Vec<(usize, u64)>,
    /// If the hosted parties release noised data: the options, on which these depend.
    options: Option<Vec<u8>>,
}

/// Factors with a finite error that is no worse than that of zero factors or of the start.
pub struct LastGood<T: Real> {
    pub iteration: usize,
    pub measures: Measures,
    pieces: Vec<OwnedPiece<T>>,
}

impl<T: Real> LastGood<T> {
    /// The factors as written to the output.
    pub fn pieces(&self) -> Vec<Piece<'_, T>> {
        self.pieces.iter().map(OwnedPiece::view).collect()
    }
}

/// The attributes of the existing checkpoint at `path`, which a new one would replace; `None` if there is no file.
///
/// # Errors
/// If the file is not a checkpoint of the run with this identity.
pub(super) fn replaced(path: &Path, identity: &Map<String, Value>) -> Result<Option<Map<String, Value>>> {
    if !checkpoint::has_content(path) {
        return Ok(None);
    }
    let refused = |why: &str| {
        Error::input(format!(
            "--checkpoint {}: exists and is not replaced: {why}; give another name, or remove it",
            path.display()
        ))
    };
    let (_, found) =
        Checkpoint::open(path).map_err(|_| refused("it is no complete checkpoint of this version of fednmf"))?;
    checkpoint::compare(&found, identity).map_err(|why| refused(&why.message))?;
    Ok(Some(found))
}

impl<T: Real> Checkpointer<T> {
    /// Writes checkpoints to `checkpoint`, if any. `remembers`: whether to hold the last good factors too.
    pub fn new(
        comm: &Communicator,
        checkpoint: Option<Checkpoint>,
        identity: Map<String, Value>,
        every: Every,
        remembers: bool,
    ) -> Self {
        let (comm, schedule) = (comm.clone(), Schedule::new(every));
        Checkpointer {
            comm,
            checkpoint,
            identity,
            schedule,
            starts_at_once: false,
            checkpoint_error: None,
            remembers,
            last_good: None,
            fingerprints: Vec::new(),
            options: None,
        }
    }

    /// With the fingerprints of the hosted parties' data, which are kept in those parties' files.
    #[must_use]
    pub fn with_fingerprints(self, fingerprints: Vec<(usize, u64)>) -> Self {
        Checkpointer { fingerprints, ..self }
    }

    /// With the digest of the shared state in the hosted parties' files, if they release noised data with these options.
    #[must_use]
    pub fn with_options(self, options: Option<Vec<u8>>) -> Self {
        Checkpointer { options, ..self }
    }

    /// With the first checkpoint at once, if parties may be lost: one that is lost can come back only to a checkpoint of its own.
    #[must_use]
    pub fn with_losses(self, may_lose: bool) -> Self {
        Checkpointer { starts_at_once: may_lose, ..self }
    }

    /// For a run that saves nothing.
    pub fn none(comm: &Communicator) -> Self {
        Checkpointer::new(comm, None, Map::new(), Every::Auto, false)
    }

    /// Whether checkpoints are requested.
    pub fn has_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Whether a checkpoint is due after `iteration`.
    pub fn is_due(&self, iteration: usize) -> bool {
        self.has_checkpoint() && (self.starts_at_once || self.schedule.is_due(iteration))
    }

    /// Iterations between two checkpoints, if the request counts iterations.
    pub fn iterations_between(&self) -> Option<usize> {
        match self.schedule.every {
            Every::Iterations(n) if self.has_checkpoint() => Some(n),
            _ => None,
        }
    }

    /// Writes a checkpoint if one is requested. A failure to write is reported and does not end the run: the
    /// last good checkpoint is still there, and the next attempt may succeed. Collective.
    ///
    /// # Errors
    /// On all ranks, if the factors are not finite: such a state must not replace a good one.
    pub fn save(&mut self, algorithm: &dyn Algorithm<T>, trajectory: Map<String, Value>) -> SharedResult<()> {
        let Some(checkpoint) = &mut self.checkpoint else { return Ok(()) };
        all_finite(&self.comm, algorithm)?;
        let mut attributes = self.identity.clone();
        attributes.extend(trajectory);
        let start = Instant::now();
        let mut state = algorithm.state();
        for &(party, fingerprint) in &self.fingerprints {
            state.extend(Owner::Party(party), FINGERPRINT, fingerprint.into());
            if let Some(options) = &self.options {
                state.extend(Owner::Party(party), SHARED_STATE, shared_state(algorithm, options).into());
            }
        }
        let own = if self.comm.reports() { replaced(checkpoint.path(), &self.identity).map(drop) } else { Ok(()) };
        let saved = self.comm.span("checkpoint", || {
            self.comm.agree_on_error(own)?;
            checkpoint.save(&self.comm, &state, &attributes)
        });
        self.schedule.took(start.elapsed().as_secs_f64());
        self.starts_at_once = false;
        self.checkpoint_error = match saved {
            Err(e) => {
                if self.comm.reports() {
                    warn(&format!(
                        "no checkpoint: {e}; if there is an earlier one, it is unchanged; the run continues"
                    ));
                }
                Some(e)
            }
            Ok(()) => None,
        };
        Ok(())
    }

    /// Copies the factors of a good evaluation.
    pub fn remember(&mut self, algorithm: &dyn Algorithm<T>, iteration: usize, measures: &Measures) {
        if !self.remembers {
            return;
        }
        let mut reused = self.last_good.take().map_or_else(Vec::new, |good| good.pieces).into_iter();
        let pieces = algorithm.factors();
        let copy = |piece: &Piece<'_, T>| {
            let values = match reused.next() {
                Some(OwnedPiece { mut values, .. }) if values.dim() == piece.values.dim() => {
                    values.assign(&piece.values);
                    values
                }
                _ => piece.values.to_owned(),
            };
            let &Piece { name, owner, total_rows, first_row, .. } = piece;
            OwnedPiece { name, owner, total_rows, first_row, values }
        };
        let pieces = pieces.iter().map(copy).collect();
        self.last_good = Some(LastGood { iteration, measures: measures.clone(), pieces });
    }

    /// Frees the factors of the last good evaluation, after the run has finished.
    pub fn forget(&mut self) {
        (self.last_good, self.remembers) = (None, false);
    }

    /// The factors of the last good evaluation.
    pub fn last_good(&self) -> Option<&LastGood<T>> {
        self.last_good.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds that checkpoints of a run of `run` seconds take, if each costs `cost`.
    fn spent(run: f64, cost: f64) -> f64 {
        let (mut now, mut last, mut spent, mut known) = (0.0, 0.0, 0.0, 0.0);
        while now < run {
            now += 1.0;
            if affordable(now - last, now, spent, known) {
                now += cost;
                (last, known) = (now, cost);
                spent += cost;
            }
        }
        spent
    }

    #[test]
    fn checkpoints_take_no_more_than_their_fraction() {
        for cost in [0.01, 1.0, 5.0, 20.0, 100.0, 1000.0] {
            let week = 7.0 * 86_400.0;
            assert!(spent(week, cost) <= MAX_FRACTION * week, "{cost}");
            // But checkpoints are written.
            assert!(spent(week, cost) >= cost.min(0.015 * week), "{cost}");
        }
        // Cheap ones come every five minutes.
        assert!((spent(86_400.0, 0.01) / 0.01 - 86_400.0 / 300.0).abs() < 3.0);
    }

    #[test]
    fn requested_intervals_are_kept() {
        let schedule = Schedule::new(Every::Iterations(5));
        assert!(schedule.is_due(10) && !schedule.is_due(11));
        let mut schedule = Schedule::new(Every::Seconds(1e-9));
        schedule.took(1e6);
        assert!(schedule.is_due(3));
        assert!(!Schedule::new(Every::Auto).is_due(3));
    }
}
