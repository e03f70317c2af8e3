//! The main loop: iterates to the next point at which something is due, evaluates, saves, decides. Ranks synchronise
//! only there.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::error::{Error, Result};
use fednmf_comm::{CONTROL, Communicator, Interrupt, Loss, Signals, watchdog};
use fednmf_files::output::checkpoint::LOST;
use fednmf_linalg::Real;
use fednmf_methods::description::Description;
use fednmf_methods::metrics::Measure;
use fednmf_methods::{Algorithm, Asynchronous, Measures};
use fednmf_privacy::{Public, Releases};

use crate::checkpoint::Checkpointer;
use crate::progress::Progress;
use crate::sums::{Stage, SumRecord};
use crate::trace::Trace;
use crate::view::Viewing;

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
    /// An [`Observer`] ended it.
    Observer,
}

/// Called after each block of iterations with their number and the last measures; `false` ends the run.
pub type Observer<'a> = Box<dyn FnMut(usize, &Measures) -> bool + 'a>;

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
            Stop::Observer => "observer",
        }
    }

    /// For the summary.
    pub fn phrase(self) -> String {
        match self {
            Stop::MaxIters | Stop::Tolerance | Stop::TargetError | Stop::TimeLimit => {
                format!("stopped at --{}", self.name().replace('_', "-"))
            }
            Stop::Done => "done".into(),
            Stop::Budget => "the budget of --epsilon is spent".into(),
            Stop::Signal(_) => format!("stopped by {}", self.name()),
            Stop::Observer => "stopped by its caller".into(),
        }
    }
}

/// When a run stops, and how often it is evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub max_iters: usize,
    /// Stop once the loss of the leading measure falls between two evaluations by less than this fraction of
    /// [`Measure::size_of_decrease`].
    pub tol: Option<f64>,
    /// Stop at this relative error.
    pub target_error: Option<f64>,
    /// Stop after this many seconds in the algorithm.
    pub time_limit: Option<f64>,
    /// Iterations between two evaluations; 0: none.
    pub eval_every: usize,
}

impl Limits {
    /// Refuses values out of range, and limits that nothing would evaluate.
    ///
    /// # Errors
    /// Naming the option.
    pub fn check(&self) -> Result<()> {
        let limits = [("--tol", self.tol), ("--target-error", self.target_error), ("--time-limit", self.time_limit)];
        for (name, value) in limits {
            if let Some(x) = value.filter(|x| !(*x >= 0.0 && x.is_finite())) {
                return Err(Error::input(format!("{name} {x}: must be a number of at least 0")));
            }
        }
        if self.eval_every == 0 && (self.tol.is_some() || self.target_error.is_some()) {
            return Err(Error::input("--tol and --target-error need evaluations: --eval-every must not be 0"));
        }
        Ok(())
    }

    /// Checks that a method which is only evaluated at the end has no limits on its error.
    ///
    /// # Errors
    /// Naming the options.
    pub fn check_for(&self, method: &Description) -> Result<()> {
        if method.on_shares && (self.tol.is_some() || self.target_error.is_some()) {
            return Err(Error::input(format!(
                "--tol and --target-error need evaluations during the run, and {} opens nothing before the end; use --max-iters \
                 instead",
                method.name
            )));
        }
        Ok(())
    }
}

/// The measures of one evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Iterations before it.
    pub iteration: usize,
    /// Seconds in the algorithm before it.
    pub seconds: f64,
    /// The measures by name, the relative error first.
    pub measures: Measures,
}

/// How far a run has come.
#[derive(Debug, Default)]
pub struct Trajectory {
    pub iteration: usize,
    /// Wall time in the algorithm, its start included, without loading and evaluation.
    pub seconds: f64,
    /// Seconds before a resume, since a time limit applies to each process.
    seconds_before: f64,
    /// The last evaluation.
    pub measures: Measures,
    /// Number of evaluations in this process.
    pub evaluations: usize,
    /// All evaluations, if they are kept.
    pub history: Option<Vec<Evaluation>>,
    pub(super) evaluated_at: Option<usize>,
    pub(super) first_error: Option<f64>,
    /// First and smallest value of the measure that `--tol` monitors.
    pub(super) first_loss: Option<f64>,
    pub(super) best_loss: Option<f64>,
    /// What `--tol` compares.
    pub(super) compared: Compared,
    saved_at: usize,
    /// Merges whose order has already been written to the trace.
    pub(super) merges_traced: usize,
    /// The ranks that were lost while the others continued.
    pub(super) losses: Vec<LostRank>,
}

/// The losses of the last two evaluations that were due. A resumed run has those of the run before it, so that it stops where an
/// uninterrupted one does.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Compared {
    pub at: Option<usize>,
    pub last: Option<f64>,
    pub before: Option<f64>,
}

impl Compared {
    /// Notes the loss of an evaluation that was due, unless it was noted before a resume.
    pub fn note(&mut self, iteration: usize, loss: f64) {
        if self.at != Some(iteration) {
            *self = Compared { at: Some(iteration), last: Some(loss), before: self.last };
        }
    }
}

/// A party of a lost rank, and when the loss was detected.
#[derive(Debug, Clone)]
pub struct LostRank {
    pub party: usize,
    pub loss: Loss,
    /// As in messages: `site c`.
    pub name: String,
    pub iteration: usize,
    pub seconds: f64,
}

impl LostRank {
    /// For trace and summary.
    pub fn json(&self) -> Value {
        json!({"party": self.party, "name": self.name, "why": self.loss.why, "iter": self.iteration,
               "seconds": self.seconds})
    }
}

/// The part of a [`Trajectory`] that a checkpoint keeps.
#[derive(Serialize, Deserialize)]
struct SavedTrajectory {
    iteration: usize,
    seconds: f64,
    first_error: Option<f64>,
    first_loss: Option<f64>,
    best_loss: Option<f64>,
    last_error: Option<f64>,
    compared_at: Option<usize>,
    compared_loss: Option<f64>,
    loss_before: Option<f64>,
}

impl Trajectory {
    /// Seconds in the algorithm since the start of this process.
    fn seconds_here(&self) -> f64 {
        self.seconds - self.seconds_before
    }

    /// Before the first iteration, after `seconds` of preparation.
    pub fn after(seconds: f64) -> Self {
        Trajectory { seconds, ..Trajectory::default() }
    }

    /// The same, with all evaluations kept from now on.
    #[must_use]
    pub fn with_history(self) -> Self {
        Trajectory { history: Some(Vec::new()), ..self }
    }

    /// The relative error of the last evaluation.
    pub fn error(&self) -> Option<f64> {
        self.value(Measure::RelativeError.key())
    }

    /// A measure of the last evaluation by its key.
    pub fn value(&self, key: &str) -> Option<f64> {
        self.measures.iter().find(|(name, _)| *name == key).map(|(_, x)| *x)
    }

    /// The attributes that a checkpoint keeps.
    pub fn saved(&self) -> Map<String, Value> {
        let Trajectory { iteration, seconds, first_error, first_loss, best_loss, compared, .. } = *self;
        let saved = SavedTrajectory {
            iteration,
            seconds,
            first_error,
            first_loss,
            best_loss,
            last_error: self.error(),
            compared_at: compared.at,
            compared_loss: compared.last,
            loss_before: compared.before,
        };
        match serde_json::to_value(saved) {
            Ok(Value::Object(map)) => map,
            _ => unreachable!("a struct is a JSON object"),
        }
    }

    /// Continues from what [`Trajectory::saved`] returned.
    ///
    /// # Errors
    /// If an attribute is missing.
    pub fn resume(attributes: &Map<String, Value>) -> Result<Self> {
        let saved = serde_json::from_value(Value::Object(attributes.clone()));
        let saved: SavedTrajectory = saved.map_err(|e| {
            Error::input(format!("the checkpoint does not say how far the run was ({e}); start again without --resume"))
        })?;
        let SavedTrajectory { iteration, seconds, first_error, first_loss, best_loss, .. } = saved;
        let mut compared = Compared { at: saved.compared_at, last: saved.compared_loss, before: saved.loss_before };
        let (mut first_loss, mut best_loss) = (first_loss, best_loss);
        if attributes.get(LOST).and_then(Value::as_array).is_some_and(|lost| !lost.is_empty()) {
            // The lost parties may be back, and losses over other parties cannot be compared.
            (compared, first_loss, best_loss) = (Compared::default(), None, None);
        }
        let (saved_at, merges_traced) = (iteration, iteration);
        Ok(Trajectory {
            iteration,
            seconds,
            seconds_before: seconds,
            first_error,
            first_loss,
            best_loss,
            compared,
            saved_at,
            merges_traced,
            ..Trajectory::default()
        })
    }
}

/// A running method with its limits, trace, progress and checkpoints.
pub struct Driver<T: Real> {
    pub comm: Communicator,
    pub algorithm: Box<dyn Algorithm<T>>,
    pub trajectory: Trajectory,
    pub limits: Limits,
    /// The leading measure of the progress display.
    pub leading: Measure,
    /// `None`: signals keep their default action.
    pub signals: Option<Signals>,
    pub trace: Trace,
    pub progress: Progress,
    pub checkpointer: Checkpointer<T>,
    /// The record of `--record-view`.
    pub view: Option<Viewing>,
    /// Between sites, with checkpoints: which parties are in which sum.
    pub(crate) sums: Option<SumRecord>,
}

/// The agreement of all ranks between two blocks of iterations, from rank 0's clock and all ranks' signals; equal on
/// all ranks.
struct Verdict {
    /// A signal, and the last rank that has caught one.
    signal: Option<(usize, usize)>,
    time_is_up: bool,
    save: bool,
    /// Iterations until the next verdict at the latest.
    block: usize,
}

/// More than the number of any signal.
const SIGNALS: usize = 128;

/// The words of a [`Verdict`] on their way: signal and [`SIGNALS`] times its rank, whether time is up, whether to save, iterations
/// until the next.
struct Agreed([f64; 4]);

impl Public for Agreed {
    const WHY: &'static str = "signals and who caught them, losses of ranks, and what rank 0's clock decides";
}

impl AsMut<[f64]> for Agreed {
    fn as_mut(&mut self) -> &mut [f64] {
        &mut self.0
    }
}

/// Target interval of these agreements, in seconds: the maximum delay of a signal or a time limit.
const INTERVAL: f64 = 0.25;

impl<T: Real> Driver<T> {
    /// A run that shows and writes nothing.
    pub fn silent(algorithm: Box<dyn Algorithm<T>>, limits: Limits, leading: Measure, comm: &Communicator) -> Self {
        Driver {
            comm: comm.clone(),
            algorithm,
            trajectory: Trajectory::default(),
            limits,
            leading,
            signals: None,
            trace: Trace::default(),
            progress: Progress::new(false, None),
            checkpointer: Checkpointer::none(comm),
            view: None,
            sums: None,
        }
    }

    /// Iterates until a limit, a signal or the algorithm itself stops the run; evaluates and saves what is due.
    /// Collective.
    ///
    /// # Errors
    /// If the algorithm fails, or the factors are no longer finite.
    pub fn iterate(&mut self) -> Result<Stop> {
        self.iterate_observed(None)
    }

    /// As [`Driver::iterate`]; the observer is called after each block of iterations, about four times a second or
    /// after each iteration that takes longer, and may end the run. For one process.
    ///
    /// # Errors
    /// As [`Driver::iterate`].
    pub fn iterate_observed(&mut self, mut observer: Option<Observer<'_>>) -> Result<Stop> {
        let interrupt = Interrupt::new(self.signals.clone());
        self.algorithm.watch(&interrupt);
        if let Some(view) = &self.view {
            view.turn_to(self.trajectory.iteration, &*self.algorithm);
        }
        let mut stop = self.evaluate_if_due()?;
        let mut block = 1;
        while stop.is_none() && self.trajectory.iteration < self.limits.max_iters {
            let left = self.limits.time_limit.map(|limit| (limit - self.trajectory.seconds_here()).clamp(0.0, 1e9));
            let deadline = left.map(|left| Instant::now() + Duration::from_secs_f64(left));
            // Only the root's clock decides.
            interrupt.set_deadline(deadline.filter(|_| self.comm().is_root()));
            let seconds_per_iteration = self.advance(block)?;
            let verdict = self.agree(seconds_per_iteration);
            block = verdict.block;
            self.note_losses();
            stop = self.evaluate_if_due()?;
            if verdict.save {
                self.save()?;
            }
            stop = self.stop_by(stop, &verdict);
            if let Some((signal, rank)) =
                verdict.signal.filter(|(_, rank)| self.comm.has_owners() && *rank != self.comm.rank())
            {
                let (site, name) = (self.comm.name_of(rank), Signals::name(signal));
                self.progress.warn(&format!("{site} was stopped by {name}, which ends the run at all sites"));
            }
            if let Some(observe) = &mut observer
                && !observe(self.trajectory.iteration, &self.trajectory.measures)
            {
                stop = Some(Stop::Observer);
            }
            if self.trajectory.evaluated_at != Some(self.trajectory.iteration) {
                self.progress.iteration(self.trajectory.iteration, self.trajectory.seconds, &[]);
            }
        }
        let stop = stop.unwrap_or(Stop::MaxIters);
        self.conclude(stop)?;
        self.note_losses();
        if let Some(view) = &self.view {
            view.turn_to(self.trajectory.iteration, &*self.algorithm);
        }
        Ok(stop)
    }

    /// The ranks that take part: those of the run, or the survivors once some were lost.
    pub fn comm(&self) -> &Communicator {
        self.survivors().unwrap_or(&self.comm)
    }

    /// The communicator of the surviving ranks, if some were lost.
    pub fn survivors(&self) -> Option<&Communicator> {
        let survivors = self.algorithm.asynchronous().and_then(Asynchronous::survivors);
        survivors.map(|survivors| self.comm.ranks_of(survivors))
    }

    /// Runs at most `block` iterations, none past the next point at which something is due; returns seconds per
    /// iteration.
    fn advance(&mut self, block: usize) -> Result<f64> {
        let trajectory = &mut self.trajectory;
        let gap = |every: usize| if every == 0 { usize::MAX } else { every - trajectory.iteration % every };
        let n = (self.limits.max_iters - trajectory.iteration)
            .min(gap(self.limits.eval_every))
            .min(gap(self.checkpointer.iterations_between().unwrap_or(0)))
            .min(block)
            .min(if self.view.is_some() { 1 } else { usize::MAX });
        let start = Instant::now();
        match &self.sums {
            None => self.algorithm.advance(n)?,
            Some(sums) => (0..n).try_for_each(|done| {
                sums.turn_to(trajectory.iteration + done, Stage::Update);
                self.algorithm.advance(1)
            })?,
        }
        let elapsed = start.elapsed().as_secs_f64();
        let done = self.algorithm.iteration() - trajectory.iteration;
        trajectory.seconds += elapsed;
        trajectory.iteration += done;
        watchdog::iterations(trajectory.iteration);
        if let Some(view) = &self.view {
            view.turn_to(trajectory.iteration, &*self.algorithm);
        }
        Ok(elapsed / done.max(1) as f64)
    }

    /// One small all-reduce: rank 0's clock, and whether any rank has caught a signal.
    fn agree(&self, seconds_per_iteration: f64) -> Verdict {
        let comm = self.comm();
        // The state in which the others continue must be saved: a lost rank may come back to this state, and to no
        // earlier one, whose sums would be repeated over more parties.
        let newly_lost = comm.losses().len() > self.trajectory.losses.len();
        let save = f64::from(u8::from(newly_lost && self.checkpointer.has_checkpoint()));
        let signal = self.signals.as_ref().map_or(0, Signals::last);
        let signal = if signal > 0 { signal + SIGNALS * comm.rank() } else { 0 };
        let mut words = [signal as f64, 0.0, save, 0.0];
        if comm.is_root() {
            let (iteration, seconds) = (self.trajectory.iteration, self.trajectory.seconds_here());
            words[1] = f64::from(u8::from(self.limits.time_limit.is_some_and(|limit| seconds >= limit)));
            words[2] = words[2].max(f64::from(u8::from(self.checkpointer.is_due(iteration))));
            words[3] = (INTERVAL / seconds_per_iteration.max(1e-9)).clamp(1.0, 1e6).floor();
        }
        let mut words = Agreed(words);
        comm.max_public(CONTROL, &mut words);
        let [signal, time_is_up, save, block] = words.0;
        // If rank 0 has just been lost, there is no block size.
        let block = (block as usize).max(1);
        let signal = signal as usize;
        let signal = (signal > 0).then_some((signal % SIGNALS, signal / SIGNALS));
        Verdict { signal, time_is_up: time_is_up > 0.0, save: save > 0.0, block }
    }

    /// Records new losses in the trace.
    fn note_losses(&mut self) {
        let trajectory = &mut self.trajectory;
        // Asynchronous methods notice by themselves that a rank is gone.
        let noticed = self.algorithm.asynchronous().map_or_else(Vec::new, |turns| turns.losses());
        // Of others a rank that can be lost has one party.
        let all = self.comm.losses().into_iter().map(|loss| (loss.rank, loss)).chain(noticed);
        let known: Vec<usize> = trajectory.losses.iter().map(|lost| lost.party).collect();
        for (party, loss) in all.filter(|(party, _)| !known.contains(party)) {
            let name = self.comm.name_of(loss.rank);
            let lost = LostRank { party, loss, name, iteration: trajectory.iteration, seconds: trajectory.seconds };
            let mut event = lost.json();
            event["event"] = "lost".into();
            trajectory.losses.push(lost);
            self.trace.write(&event);
        }
    }

    /// Why the run stops now, if it does: a signal, else `evaluated`, the verdict of an evaluation, else the algorithm,
    /// else the clock.
    fn stop_by(&self, evaluated: Option<Stop>, verdict: &Verdict) -> Option<Stop> {
        if let Some((signal, _)) = verdict.signal {
            return Some(Stop::Signal(signal));
        }
        let done = || {
            let spent = self.algorithm.private_releases().is_some_and(Releases::is_spent);
            let last = self.trajectory.iteration >= self.limits.max_iters;
            match (spent, last) {
                (false, _) => Some(Stop::Done),
                (true, false) => Some(Stop::Budget),
                (true, true) => None,
            }
        };
        evaluated
            .or_else(|| if self.algorithm.done() { done() } else { None })
            .or(verdict.time_is_up.then_some(Stop::TimeLimit))
    }

    /// Completes the run after the last iteration: final step of the method, last evaluation, last checkpoint.
    fn conclude(&mut self, stop: Stop) -> Result<()> {
        let released = |a: &dyn Algorithm<T>| a.private_releases().map(Releases::done);
        let before = released(&*self.algorithm);
        // A run that will be resumed must not spend the release that is made once, at the end.
        let resumes = matches!(stop, Stop::TimeLimit | Stop::Signal(_)) && self.checkpointer.has_checkpoint();
        let once = before.is_some() || !self.algorithm.is_open();
        if !(resumes && once) {
            self.algorithm.conclude()?;
        }
        let trajectory = &mut self.trajectory;
        if before != released(&*self.algorithm) {
            trajectory.evaluated_at = None;
        }
        if self.limits.eval_every > 0
            && self.algorithm.is_open()
            && trajectory.evaluated_at != Some(trajectory.iteration)
        {
            self.evaluate()?;
        }
        let Trajectory { iteration, saved_at, .. } = self.trajectory;
        if saved_at != iteration || iteration == 0 || self.checkpointer.checkpoint_error.is_some() {
            self.save()?;
        }
        Ok(())
    }

    /// Writes a checkpoint if one is requested and no rank was lost: without the state of the lost ranks it
    /// would replace a complete one.
    fn save(&mut self) -> Result<()> {
        if self.survivors().is_none() {
            let mut saved = self.trajectory.saved();
            let lost: Vec<usize> = self.comm.losses().iter().map(|loss| loss.rank).collect();
            saved.insert(LOST.into(), lost.into());
            self.checkpointer.save(&*self.algorithm, saved)?;
            self.trajectory.saved_at = self.trajectory.iteration;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trajectory_continues_where_it_was_saved() {
        let measures = vec![("rel_error", 0.1 + 0.2), ("f1", 0.9)];
        let first =
            Trajectory { iteration: 7, seconds: 1.0 / 3.0, measures, first_error: Some(1.0), ..Default::default() };
        let mut saved = first.saved();
        assert_eq!(saved["last_error"], 0.1 + 0.2);
        saved.insert("seed".into(), 3.into());
        let second = Trajectory::resume(&saved).unwrap();
        assert_eq!((second.iteration, second.seconds, second.first_error), (7, 1.0 / 3.0, Some(1.0)));
        assert!(second.seconds_here() == 0.0, "a time limit begins anew");
        assert_eq!((second.saved_at, second.evaluations, second.error()), (7, 0, None));
        // Never evaluated: the file has neither error, since null is not stored.
        saved.retain(|name, _| !name.ends_with("error"));
        assert_eq!(Trajectory::resume(&saved).unwrap().first_error, None);
        saved.remove("seconds");
        let error = Trajectory::resume(&saved).unwrap_err();
        assert!(error.exit_code() == 2 && error.message.contains("seconds"), "{error}");
    }
}
