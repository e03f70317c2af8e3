//! Evaluation: measure the factors, record the values, and decide whether they end the run.

use serde_json::json;

use fednmf_base::error::Result;
use fednmf_comm::Communicator;
use fednmf_comm::party_sum::LOST_PARTIES;
use fednmf_linalg::Real;

use super::checks::diverged;
use super::iterate::{Compared, Driver, Evaluation, Stop, Trajectory};
use super::sums::Stage;

impl<T: Real> Driver<T> {
    /// Evaluates at the start, and then every `--eval-every` iterations.
    pub(super) fn evaluate_if_due(&mut self) -> Result<Option<Stop>> {
        let (every, trajectory) = (self.limits.eval_every, &self.trajectory);
        let first = trajectory.evaluated_at.is_none();
        // After an interrupted iteration, the factors are those before it.
        let again = trajectory.evaluated_at == Some(trajectory.iteration);
        if self.sums.as_ref().is_some_and(|sums| sums.leaves_out(trajectory.iteration)) {
            return Ok(None);
        }
        if every == 0 || again || !self.algorithm.is_open() || !(first || trajectory.iteration.is_multiple_of(every)) {
            return Ok(None);
        }
        self.evaluate()
    }

    /// Evaluates the current factors. Collective.
    ///
    /// # Errors
    /// If the factors are no longer finite, or the trace cannot be written.
    pub(super) fn evaluate(&mut self) -> Result<Option<Stop>> {
        let leading = self.leading;
        let loss = |trajectory: &Trajectory| trajectory.value(leading.key()).map(|value| leading.loss(value));
        let comm = self.comm().clone();
        let trajectory = &mut self.trajectory;
        if let Some(sums) = &self.sums {
            sums.turn_to(trajectory.iteration, Stage::Evaluation);
        }
        let lost = |trajectory: &Trajectory| trajectory.value(LOST_PARTIES).unwrap_or(0.0);
        let before = lost(trajectory);
        trajectory.measures = comm.span("evaluation", || self.algorithm.measure())?;
        if lost(trajectory) != before {
            // Losses over other parties cannot be compared.
            (trajectory.compared, trajectory.first_loss, trajectory.best_loss) = (Compared::default(), None, None);
        }
        trajectory.evaluated_at = Some(trajectory.iteration);
        trajectory.evaluations += 1;
        if let Some(history) = &mut trajectory.history {
            let (iteration, seconds, measures) =
                (trajectory.iteration, trajectory.seconds, trajectory.measures.clone());
            history.push(Evaluation { iteration, seconds, measures });
        }
        self.record(&comm);
        let trajectory = &mut self.trajectory;
        let error = trajectory.error().unwrap_or(f64::NAN);
        if !error.is_finite() {
            return Err(diverged(trajectory.iteration, &format!(" (relative error {error})")).into());
        }
        let first = *trajectory.first_error.get_or_insert(error);
        // If the leading measure is undefined here, such as an infinite divergence, the relative error is monitored.
        let now = loss(trajectory).unwrap_or(error);
        let first_loss = *trajectory.first_loss.get_or_insert(now);
        trajectory.best_loss = Some(trajectory.best_loss.map_or(now, |best| best.min(now)));
        // Factors worse than both zeros and the start are on their way to divergence.
        if error <= first.max(1.0) {
            self.checkpointer.remember(&*self.algorithm, trajectory.iteration, &trajectory.measures);
        }
        // Without a lost party the norm of the data is an estimate.
        if lost(trajectory) == 0.0 && self.limits.target_error.is_some_and(|target| error <= target) {
            return Ok(Some(Stop::TargetError));
        }
        // The first evaluation of a resumed run may be none that is due.
        if self.limits.eval_every == 0 || !trajectory.iteration.is_multiple_of(self.limits.eval_every) {
            return Ok(None);
        }
        trajectory.compared.note(trajectory.iteration, now);
        let before = trajectory.compared.before;
        let stalled =
            |tol: f64| before.is_some_and(|before| before - now < tol * leading.size_of_decrease(first_loss, before));
        let ends = self.limits.tol.is_some_and(stalled) && self.algorithm.ends_at_tolerance()?;
        Ok(ends.then_some(Stop::Tolerance))
    }

    /// Writes the evaluation to trace and progress.
    fn record(&mut self, comm: &Communicator) {
        let trajectory = &mut self.trajectory;
        let mut event = json!({"event": "iter", "iter": trajectory.iteration, "seconds": trajectory.seconds});
        for (name, value) in &trajectory.measures {
            event[*name] = json!(value);
        }
        if let Some(releases) = self.algorithm.private_releases() {
            event["epsilon_spent"] = releases.plan().epsilon(releases.done()).into();
        }
        let order = self.algorithm.asynchronous().map_or(&[][..], |method| method.order());
        if order.len() > trajectory.merges_traced {
            event["order"] = json!(order[trajectory.merges_traced..]);
            trajectory.merges_traced = order.len();
        }
        event["bytes_sent"] = comm.ledger().algorithm_total().mpi_bytes.into();
        // The first evaluation of a resumed run may be in the trace already.
        let recorded = self.trace.evaluated_at() == Some(trajectory.iteration);
        if !recorded {
            self.trace.write(&event);
        }
        let shown = self.leading.leading(|key| trajectory.value(key));
        self.progress.iteration(trajectory.iteration, trajectory.seconds, &shown);
    }
}
