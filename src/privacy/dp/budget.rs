//! The privacy budget of data over all runs on it: what a `--budget` file keeps. By basic composition, epsilons and deltas
//! of runs add up (Dwork and Roth, The Algorithmic Foundations of Differential Privacy, 2014, theorem 3.16).

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What all runs on some data may spend together, and what they have spent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetFile {
    /// Version of this format.
    pub fednmf_budget: u32,
    /// Largest sum of the epsilons of all runs.
    pub limit: f64,
    pub runs: Vec<Charge>,
}

/// What one run has spent or may still spend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// Names the run, also when it is resumed; a digest of its noise key.
    pub run: String,
    pub method: String,
    pub epsilon: f64,
    pub delta: f64,
    /// Whether the run has ended, so that `epsilon` is what it spent and not what it may spend.
    pub ended: bool,
}

/// The version that is written.
const VERSION: u32 = 1;
/// Sums that exceed a limit by no more than this share of it are rounded ones.
const ROUNDING: f64 = 1e-9;

impl BudgetFile {
    pub fn new(limit: f64) -> Self {
        BudgetFile { fednmf_budget: VERSION, limit, runs: Vec::new() }
    }

    /// # Errors
    /// If the text is no budget.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Error::input(format!("is no privacy budget ({why}); name a file that an earlier run wrote, or a new one"))
        };
        let budget: BudgetFile = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let numbers = budget.runs.iter().flat_map(|run| [run.epsilon, run.delta]).chain([budget.limit]);
        if budget.fednmf_budget != VERSION {
            return Err(wrong(format!("version {}", budget.fednmf_budget)));
        }
        if numbers.into_iter().any(|x| !(x.is_finite() && x >= 0.0)) {
            return Err(wrong("a negative number".into()));
        }
        Ok(budget)
    }

    /// As JSON for people and programs.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }

    /// Epsilon and delta of all runs together.
    pub fn spent(&self) -> (f64, f64) {
        self.runs.iter().fold((0.0, 0.0), |(epsilon, delta), run| (epsilon + run.epsilon, delta + run.delta))
    }

    /// The epsilon that further runs may spend.
    pub fn left(&self) -> f64 {
        (self.limit - self.spent().0).max(0.0)
    }

    /// Reserves what a run may spend before it spends it; a run that is resumed keeps its place. Returns what it had reserved
    /// before, if anything.
    ///
    /// # Errors
    /// If all runs together would exceed the limit.
    pub fn reserve(&mut self, run: &str, method: &str, epsilon: f64, delta: f64) -> Result<Option<Charge>> {
        let others =
            self.runs.iter().filter(|other| other.run != run).map(|other| other.epsilon).fold(0.0, |sum, x| sum + x);
        if others + epsilon > self.limit * (1.0 + ROUNDING) {
            let left = (self.limit - others).max(0.0);
            return Err(Error::input(format!(
                "{} earlier run(s) on this data may spend {others} of an epsilon of {}, and this one asks for {epsilon}; \
                 {left} is left for --epsilon",
                self.runs.iter().filter(|other| other.run != run).count(),
                self.limit,
            )));
        }
        let place = self.runs.iter().position(|other| other.run == run);
        let before = place.map(|place| self.runs.remove(place));
        self.runs.push(Charge { run: run.into(), method: method.into(), epsilon, delta, ended: false });
        Ok(before)
    }

    /// Takes back what a run has reserved, and leaves what it had reserved `before`.
    pub fn withdraw(&mut self, run: &str, before: Option<Charge>) {
        self.runs.retain(|other| other.run != run);
        self.runs.extend(before);
    }

    /// Replaces what a run might have spent by what it spent.
    pub fn settle(&mut self, run: &str, epsilon: f64) {
        for charge in self.runs.iter_mut().filter(|charge| charge.run == run) {
            charge.epsilon = epsilon;
            charge.ended = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up_to_the_limit_and_no_further() {
        let mut budget = BudgetFile::new(1.0);
        for run in 0..10 {
            budget.reserve(&format!("run {run}"), "felb", 0.1, 1e-6).unwrap();
        }
        let refused = budget.reserve("another", "felb", 1e-3, 1e-6).unwrap_err();
        assert!(refused.message.contains("10 earlier run(s)"), "{refused}");
        // A resumed run has its place; one that spent less leaves the rest.
        budget.reserve("run 3", "felb", 0.1, 1e-6).unwrap();
        assert!(budget.reserve("run 3", "felb", 0.2, 1e-6).is_err());
        budget.settle("run 3", 0.02);
        budget.reserve("another", "felb", 0.08, 1e-6).unwrap();
        let spent = budget.clone();
        assert_eq!(budget.reserve("another", "felb", 0.07, 1e-6).unwrap().map(|charge| charge.epsilon), Some(0.08));
        budget.withdraw("another", spent.runs.last().cloned());
        assert_eq!(budget, spent);
        let (epsilon, delta) = budget.spent();
        assert!((epsilon - 1.0).abs() < 1e-12 && (delta - 1.1e-5).abs() < 1e-18, "{epsilon} {delta}");
        assert_eq!(BudgetFile::parse(&budget.text()).unwrap(), budget);
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        for text in [
            "",
            "{}",
            "[1]",
            "{\"fednmf_budget\": 2, \"limit\": 1, \"runs\": []}",
            "{\"fednmf_budget\": 1, \"limit\": -1, \"runs\": []}",
        ] {
            assert!(BudgetFile::parse(text).is_err_and(|e| e.message.contains("no privacy budget")), "{text}");
        }
    }
}
