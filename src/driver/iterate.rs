//! The course of a run: iterate to the next point, evaluate, save, decide. Ranks meet only here.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::CONTROL;
use crate::algorithms::{Algorithm, Measures};
use super::settings::{Every, Settings};
use crate::comm::{Communicator, Signals, watchdog};
use crate::driver::checkpointer::{Checkpointer, diverged};
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::output::progress::Progress;
use crate::output::trace::Trace;
use crate::privacy::Releases;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stop {
    MaxIters,
    Tolerance,
    TargetError,
    TimeLimit,
    /// The algorithm has nothing left to do.
    Done,
    /// Another release would exceed `--epsilon`.
    Budget,
    Signal(usize),
}

impl Stop {
    /// As in the trace's `stopped_by`.
    pub fn name(self) -> &'static str {
        match self {
            Stop::MaxIters => "max_iters",
            Stop::Tolerance => "tol",
            Stop::TargetError => "target_error",
            Stop::TimeLimit => "time_limit",
            Stop::Done => "done",
            Stop::Budget => "epsilon",
            Stop::Signal(number) => Signals::name(number),
        }
    }
}

/// About how often ranks ask each other whether to stop, in seconds: what a signal or a time limit may wait.
const PACE: f64 = 0.25;

/// Where a run is.
pub struct Course<'a> {
    settings: &'a Settings,
    pub iteration: usize,
    pub resumed_from: usize,
    /// Wall time in the algorithm, loading and evaluation not counted.
    pub seconds: f64,
    /// The last evaluation.
    pub measures: Measures,
    /// How many there were.
    pub evaluations: usize,
    evaluated_at: Option<usize>,
    first_error: Option<f64>,
    saved_at: usize,
    /// Merges whose order stands in the trace already.
    merges_told: usize,
    /// Iterations to the next question, so that it comes about every PACE seconds.
    pace: usize,
}

/// What rank 0 and the signals have to say at a point.
struct Word {
    signal: usize,
    time_is_up: bool,
    save: bool,
}

impl<'a> Course<'a> {
    pub fn new(settings: &'a Settings) -> Self {
        Course {
            settings,
            iteration: 0,
            resumed_from: 0,
            seconds: 0.0,
            measures: Vec::new(),
            evaluations: 0,
            evaluated_at: None,
            first_error: None,
            saved_at: 0,
            merges_told: 0,
            pace: 1,
        }
    }

    /// What a checkpoint keeps of the course.
    pub fn state(&self) -> Map<String, Value> {
        let error = self.measures.first().map(|(_, e)| *e);
        [
            ("iteration", json!(self.iteration)),
            ("seconds", json!(self.seconds)),
            ("first_error", json!(self.first_error)),
            ("last_error", json!(error)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect()
    }

    /// Takes up where [`Course::state`] was.
    ///
    /// # Errors
    /// When the checkpoint lacks it.
    pub fn restore(&mut self, from: &Map<String, Value>) -> Result<()> {
        let lacks = |what: &str| Error::input(format!("the checkpoint has no {what}; start afresh without --resume"));
        let iteration = from.get("iteration").and_then(Value::as_u64).ok_or_else(|| lacks("iteration"))?;
        self.iteration = usize::try_from(iteration).map_err(|_| lacks("usable iteration"))?;
        self.resumed_from = self.iteration;
        self.saved_at = self.iteration;
        self.merges_told = self.iteration;
        self.seconds = from.get("seconds").and_then(Value::as_f64).ok_or_else(|| lacks("seconds"))?;
        self.first_error = from.get("first_error").and_then(Value::as_f64);
        Ok(())
    }

    /// Iterates until something says stop, and has the checkpointer keep what is due.
    ///
    /// # Errors
    /// When the algorithm fails, the factors are no numbers any more, or the trace cannot be written.
    pub fn follow<T: Real>(
        &mut self,
        algorithm: &mut dyn Algorithm<T>,
        comm: &Communicator,
        signals: &Signals,
        trace: &mut Trace,
        progress: &mut Progress,
        checkpointer: &mut Checkpointer<'_, T>,
    ) -> Result<Stop> {
        let mut comm = comm.clone();
        let mut stop = self.evaluate_if_due(algorithm, &comm, trace, progress, checkpointer)?;
        loop {
            if stop.is_none() && self.iteration >= self.settings.max_iters {
                stop = Some(Stop::MaxIters);
            }
            if let Some(stop) = stop {
                let released = |a: &dyn Algorithm<T>| a.releases().map(Releases::done);
                let before = released(algorithm);
                // What is to go on from a checkpoint keeps a release that comes once for its end.
                let goes_on = matches!(stop, Stop::TimeLimit | Stop::Signal(_)) && self.settings.checkpoint.is_some();
                if !(goes_on && before.is_some()) {
                    algorithm.conclude()?;
                }
                if before != released(algorithm) {
                    self.evaluated_at = None;
                }
                if self.settings.eval_every > 0 && self.evaluated_at != Some(self.iteration) {
                    self.evaluate(algorithm, &comm, trace, progress, checkpointer)?;
                }
                let due = self.saved_at != self.iteration || self.iteration == 0 || checkpointer.unsaved.is_some();
                // A checkpoint without the lost ones' state would replace a whole one.
                if due && algorithm.left().is_none() {
                    checkpointer.save(algorithm, self.state())?;
                }
                return Ok(stop);
            }

            let n = self.to_next_point();
            let start = Instant::now();
            algorithm.advance(n)?;
            let elapsed = start.elapsed().as_secs_f64();
            self.seconds += elapsed;
            let made = algorithm.iteration() - self.iteration;
            self.iteration += made;
            watchdog::iterations(self.iteration);
            if let Some(others) = algorithm.left() {
                comm = others.clone();
            }
            let word = self.word(&comm, signals, elapsed / made.max(1) as f64, checkpointer);

            stop = self.evaluate_if_due(algorithm, &comm, trace, progress, checkpointer)?;
            if word.save && algorithm.left().is_none() {
                checkpointer.save(algorithm, self.state())?;
                self.saved_at = self.iteration;
            }
            if algorithm.done() {
                let spent = algorithm.releases().is_some_and(Releases::is_spent);
                let last = self.iteration >= self.settings.max_iters;
                stop = stop.or((!spent).then_some(Stop::Done)).or((!last).then_some(Stop::Budget));
            }
            if word.time_is_up {
                stop = stop.or(Some(Stop::TimeLimit));
            }
            if word.signal > 0 {
                stop = Some(Stop::Signal(word.signal));
            }
            if self.evaluated_at != Some(self.iteration) {
                progress.iteration(self.iteration, self.seconds, None);
            }
        }
    }

    /// Iterations to the next point at which something is due on all ranks.
    fn to_next_point(&self) -> usize {
        let gap = |every: usize| if every == 0 { usize::MAX } else { every - self.iteration % every };
        let save = match self.settings.checkpoint_every {
            Every::Iterations(n) if self.settings.checkpoint.is_some() => n,
            _ => 0,
        };
        (self.settings.max_iters - self.iteration).min(gap(self.settings.eval_every)).min(gap(save)).min(self.pace)
    }

    /// One small all-reduce: what rank 0's clock says, and whether any rank has caught a signal.
    fn word<T: Real>(
        &mut self,
        comm: &Communicator,
        signals: &Signals,
        seconds_per_iteration: f64,
        checkpointer: &Checkpointer<'_, T>,
    ) -> Word {
        let mut words = [signals.last() as f64, 0.0, 0.0, 0.0];
        if comm.is_root() {
            let pace = (PACE / seconds_per_iteration.max(1e-9)).clamp(1.0, 1e6);
            words[1] = f64::from(u8::from(self.settings.time_limit.is_some_and(|limit| self.seconds >= limit)));
            words[2] = f64::from(u8::from(checkpointer.has_checkpoint() && checkpointer.pace.due(self.iteration)));
            words[3] = pace.floor();
        }
        comm.max(CONTROL, &mut words);
        self.pace = words[3] as usize;
        Word { signal: words[0] as usize, time_is_up: words[1] > 0.0, save: words[2] > 0.0 }
    }

    fn evaluate_if_due<T: Real>(
        &mut self,
        algorithm: &mut dyn Algorithm<T>,
        comm: &Communicator,
        trace: &mut Trace,
        progress: &mut Progress,
        checkpointer: &mut Checkpointer<'_, T>,
    ) -> Result<Option<Stop>> {
        let every = self.settings.eval_every;
        let first = self.evaluated_at.is_none();
        if every == 0 || !(first || self.iteration.is_multiple_of(every)) {
            return Ok(None);
        }
        self.evaluate(algorithm, comm, trace, progress, checkpointer)
    }

    fn evaluate<T: Real>(
        &mut self,
        algorithm: &mut dyn Algorithm<T>,
        comm: &Communicator,
        trace: &mut Trace,
        progress: &mut Progress,
        checkpointer: &mut Checkpointer<'_, T>,
    ) -> Result<Option<Stop>> {
        let before = self.measures.first().map(|(_, e)| *e);
        self.measures = comm.span("evaluation", || algorithm.measure())?;
        self.evaluated_at = Some(self.iteration);
        self.evaluations += 1;
        let error = self.measures.first().map_or(f64::NAN, |(_, e)| *e);
        let mut event = json!({"event": "iter", "iter": self.iteration, "seconds": self.seconds});
        for (name, value) in &self.measures {
            event[*name] = json!(value);
        }
        if let Some(releases) = algorithm.releases() {
            event["epsilon_spent"] = releases.plan().epsilon(releases.done()).into();
        }
        let order = algorithm.order();
        if order.len() > self.merges_told {
            event["order"] = json!(order[self.merges_told..]);
            self.merges_told = order.len();
        }
        event["bytes_sent"] = comm.ledger().algorithm_total().mpi_bytes.into();
        comm.agree_on_error(trace.write(&event))?;
        progress.iteration(self.iteration, self.seconds, Some(error));
        if !error.is_finite() {
            return Err(diverged(self.iteration, &format!(" (relative error {error})")));
        }
        let first = *self.first_error.get_or_insert(error);
        // What is worse than no factors at all, and than the start, is on its way out.
        if error <= first.max(1.0) {
            checkpointer.keep(algorithm, self.iteration, &self.measures);
        }
        if self.settings.target_error.is_some_and(|target| error <= target) {
            return Ok(Some(Stop::TargetError));
        }
        let settled = |tol: f64| before.is_some_and(|b| b - error < tol * first);
        Ok(self.settings.tol.is_some_and(settled).then_some(Stop::Tolerance))
    }
}
