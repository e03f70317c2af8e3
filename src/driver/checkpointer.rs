//! What a run keeps on its way: checkpoints, at a bearable pace, and the last good factors, for the case that it fails.

use std::time::Instant;

use ndarray::Array2;
use serde_json::{Map, Value};

use super::CONTROL;
use crate::algorithms::{Algorithm, Measures, Owner, Piece};
use super::settings::Every;
use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::output::checkpoint::Checkpoint;

/// Seconds between two checkpoints, where nothing else was asked for.
const USUALLY: f64 = 300.0;
/// The part of a run's time that its checkpoints may take, where nothing else was asked for.
const PART: f64 = 0.02;

/// When checkpoints are due. Rank 0's clock decides for all.
#[derive(Debug)]
pub struct Pace {
    every: Every,
    begun: Instant,
    last: Instant,
    /// Seconds that the last one took, and all of them.
    cost: f64,
    spent: f64,
}

impl Pace {
    pub fn new(every: Every) -> Self {
        Pace { every, begun: Instant::now(), last: Instant::now(), cost: 0.0, spent: 0.0 }
    }

    /// Whether one is due after `iteration`.
    pub fn due(&self, iteration: usize) -> bool {
        let since = self.last.elapsed().as_secs_f64();
        match self.every {
            Every::Iterations(n) => iteration.is_multiple_of(n),
            Every::Seconds(s) => since >= s,
            Every::Auto => affordable(since, self.begun.elapsed().as_secs_f64(), self.spent, self.cost),
        }
    }

    /// One was written, or tried, and took that long.
    fn took(&mut self, seconds: f64) {
        (self.cost, self.last) = (seconds, Instant::now());
        self.spent += seconds;
    }
}

/// Whether one more checkpoint, if it costs as much as the last one, leaves them all within their part of the time.
fn affordable(since: f64, run: f64, spent: f64, cost: f64) -> bool {
    since >= USUALLY && spent + cost <= PART * run
}

/// Keeps checkpoints of a run and the factors of its last evaluation.
pub struct Checkpointer<'a, T: Real> {
    comm: &'a Communicator,
    checkpoint: Option<Checkpoint>,
    /// What a later run must agree on.
    identity: Map<String, Value>,
    pub pace: Pace,
    /// Why the last checkpoint could not be written, if so.
    pub unsaved: Option<Error>,
    /// Whether anybody would get to see the last good factors.
    rescues: bool,
    good: Option<Good<T>>,
}

/// Factors that an evaluation found in order.
pub struct Good<T: Real> {
    pub iteration: usize,
    pub measures: Measures,
    pieces: Vec<(&'static str, Owner, [usize; 2], Array2<T>)>,
}

impl<T: Real> Good<T> {
    /// As they go to the output.
    pub fn pieces(&self) -> Vec<Piece<'_, T>> {
        self.pieces
            .iter()
            .map(|(name, owner, [total_rows, first_row], values)| Piece {
                name,
                owner: *owner,
                total_rows: *total_rows,
                first_row: *first_row,
                values: values.view(),
            })
            .collect()
    }
}

impl<'a, T: Real> Checkpointer<'a, T> {
    /// `rescues`: whether the last good factors are to be kept too.
    pub fn new(
        comm: &'a Communicator,
        checkpoint: Option<Checkpoint>,
        identity: Map<String, Value>,
        every: Every,
        rescues: bool,
    ) -> Self {
        Checkpointer { comm, checkpoint, identity, pace: Pace::new(every), unsaved: None, rescues, good: None }
    }

    /// Whether checkpoints are asked for.
    pub fn has_checkpoint(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Writes a checkpoint, if they are asked for. One that cannot be written is told and ends no run: the last good one
    /// is still there, and the next may find the disk as it should be. Collective.
    ///
    /// # Errors
    /// When the factors are no numbers, on all ranks: such a state must not take the place of a good one.
    pub fn save(&mut self, algorithm: &dyn Algorithm<T>, state: Map<String, Value>) -> Result<()> {
        let Some(checkpoint) = &mut self.checkpoint else { return Ok(()) };
        all_finite(self.comm, algorithm)?;
        let mut all = self.identity.clone();
        all.extend(state);
        let start = Instant::now();
        let saved = self.comm.span("checkpoint", || checkpoint.save(self.comm, &algorithm.state(), &all));
        self.pace.took(start.elapsed().as_secs_f64());
        self.unsaved = match saved {
            Err(e) if !e.everywhere => return Err(e),
            Err(e) => {
                if self.comm.is_root() {
                    eprintln!(
                        "fednmf: warning: no checkpoint: {e}; the last good one is left as it was, the run goes on"
                    );
                }
                Some(e)
            }
            Ok(()) => None,
        };
        Ok(())
    }

    /// Keeps a copy of the factors, which an evaluation has just found in order.
    pub fn keep(&mut self, algorithm: &dyn Algorithm<T>, iteration: usize, measures: &Measures) {
        if !self.rescues {
            return;
        }
        let pieces = algorithm.factors();
        let good = self.good.get_or_insert_with(|| Good { iteration, measures: Vec::new(), pieces: Vec::new() });
        (good.iteration, good.measures) = (iteration, measures.clone());
        good.pieces.truncate(pieces.len());
        for (i, piece) in pieces.iter().enumerate() {
            let place = [piece.total_rows, piece.first_row];
            match good.pieces.get_mut(i) {
                Some((name, owner, at, values)) if values.dim() == piece.values.dim() => {
                    values.assign(&piece.values);
                    (*name, *owner, *at) = (piece.name, piece.owner, place);
                }
                Some(old) => *old = (piece.name, piece.owner, place, piece.values.to_owned()),
                None => good.pieces.push((piece.name, piece.owner, place, piece.values.to_owned())),
            }
        }
    }

    /// The factors of the last evaluation.
    pub fn good(&self) -> Option<&Good<T>> {
        self.good.as_ref()
    }
}

/// Refuses factors with entries that are no finite numbers. Collective.
///
/// # Errors
/// On all ranks, when any rank has such an entry.
pub fn all_finite<T: Real>(comm: &Communicator, algorithm: &dyn Algorithm<T>) -> Result<()> {
    let sound = algorithm.factors().iter().all(|piece| piece.values.iter().all(|x| x.is_finite()));
    let mut wrong = [u32::from(!sound)];
    comm.max(CONTROL, &mut wrong);
    if wrong[0] == 0 { Ok(()) } else { Err(diverged(algorithm.iteration(), "")) }
}

/// What is said when the numbers have run away.
pub fn diverged(iteration: usize, more: &str) -> Error {
    Error::failed(format!(
        "the factors are no longer finite numbers after iteration {iteration}{more}; try --scale max, or --precision f64"
    ))
    .on_all_ranks()
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
    fn checkpoints_take_no_more_than_their_part() {
        for cost in [0.01, 1.0, 5.0, 20.0, 100.0, 1000.0] {
            let week = 7.0 * 86_400.0;
            assert!(spent(week, cost) <= PART * week, "{cost}");
            // and there are some
            assert!(spent(week, cost) >= cost.min(0.015 * week), "{cost}");
        }
        // cheap ones come every five minutes
        assert!((spent(86_400.0, 0.01) / 0.01 - 86_400.0 / 300.0).abs() < 3.0);
    }

    #[test]
    fn what_was_asked_for_is_done() {
        assert!(Pace::new(Every::Iterations(5)).due(10) && !Pace::new(Every::Iterations(5)).due(11));
        let mut pace = Pace::new(Every::Seconds(1e-9));
        pace.took(1e6);
        assert!(pace.due(3));
        assert!(!Pace::new(Every::Auto).due(3));
    }
}
