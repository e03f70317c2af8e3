//! `--profile`: settings that belong together.

use std::ffi::OsString;

use fednmf_base::error::{Error, Result};
use fednmf_driver::spec::Spec;

/// A set of protections under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Data of patients: masked sums, noise, no evaluations; a budget and a policy are required
    Clinical,
}

/// What [`Profile::Clinical`] sets, if the command line does not.
const CLINICAL: [&str; 3] = ["--secure-sum", "--dp=gaussian", "--eval-every=0"];

impl Profile {
    /// As typed.
    fn name(self) -> &'static str {
        match self {
            Profile::Clinical => "clinical",
        }
    }

    /// The profile of this name.
    pub fn of(name: &str) -> Option<Profile> {
        <Profile as clap::ValueEnum>::from_str(name, false).ok()
    }

    /// The words of a command line of `join` with the settings of the profile in front, so that what was typed is what counts.
    pub fn expand(self, mut words: Vec<OsString>) -> Vec<OsString> {
        let settings = match self {
            Profile::Clinical => CLINICAL,
        };
        words.splice(2..2, settings.map(OsString::from));
        words
    }

    /// Says that the profile has set the option that an error is about.
    pub fn explain(self, e: Error) -> Error {
        let option = |setting: &&str| e.message.starts_with(setting.split('=').next().unwrap_or(setting));
        match CLINICAL.iter().any(option) {
            true => e.at(format!("--profile {}", self.name())),
            false => e,
        }
    }

    /// The settings in words, for the summary of the run.
    ///
    /// # Errors
    /// If an option contradicts the profile, or one that it requires is missing; all are named at once.
    pub fn check(self, spec: &Spec, policy: Option<&str>) -> Result<String> {
        let groups = spec.method.assumed().groups();
        let dp = groups.dp.filter(|dp| dp.is_on());
        let epsilon = dp.and_then(|dp| dp.epsilon.given());
        let budget = dp.and_then(|dp| dp.budget_path());
        let mut reasons = Vec::new();
        if !groups.secure_sum.is_some_and(|sum| sum.secure_sum) {
            reasons.push("sets --secure-sum, which this run does not have");
        }
        if dp.is_none() {
            reasons.push("sets --dp gaussian, and --dp none contradicts it");
        } else if epsilon.is_none() {
            reasons.push("requires --epsilon, the budget of the run");
        }
        if spec.eval_every > 0 {
            reasons.push("sets --eval-every 0, and another number contradicts it");
        }
        if dp.is_some() && budget.is_none() {
            reasons.push("requires --budget, the file that remembers what all runs on the data have spent");
        }
        if policy.is_none() {
            reasons.push("requires --policy");
        }
        let (Some(dp), Some(epsilon), Some(budget), Some(policy), true) =
            (dp, epsilon, budget, policy, reasons.is_empty())
        else {
            return Err(Error::input(format!("--profile {}:\n  {}", self.name(), reasons.join("\n  "))));
        };
        Ok(format!(
            "--profile {}: --secure-sum, --dp {}, --eval-every 0, with --epsilon {epsilon}, --budget {} and --policy {policy}.",
            self.name(),
            dp.dp,
            budget.path.display(),
        ))
    }
}
