//! The privacy budget of data over all runs on it: the contents of a `--budget` file.
//!
//! A run is stored with the loss of its mechanism, so that runs compose as the releases of one run do: Gaussian noise by
//! μ = √Σ μᵢ² (Dong, Roth, Su, Gaussian Differential Privacy, 2022, corollary 3.3), pure mechanisms by their Rényi
//! divergences. Runs in files of version 1 have only an epsilon; it is added (Dwork and Roth, The Algorithmic
//! Foundations of Differential Privacy, 2014, theorem 3.16), and so is its delta. Gaussian and pure mechanisms are each
//! evaluated at the smallest delta of all runs: at the sum of the deltas, a run with a large one would lower the epsilon
//! that others have spent.
//!
//! All runs of a file have the same privacy unit. Files of versions 1 and 2 do not name it, so that no run can be added
//! to those of such a file.
//!
//! A run notes each release, with the state that it is made at, before it makes it. A resumed run that comes to the same state
//! repeats its message; at another state, because something that it resumes from was changed, it makes a further release,
//! which is charged.
//!
//! From version 4 on a file carries a code under a key ([`BudgetKey`]), so that a file that was edited is refused.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, why_not_json};
use fednmf_base::units::counted;

use super::accounting::{PrivacyLoss, composition};
use super::budget_key::BudgetKey;
use super::budget_scope::BudgetScope;
use super::gaussian;

/// The budget of all runs on some data together, and what they have spent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetFile {
    /// Version of this format.
    pub fednmf_budget: u32,
    /// Largest epsilon of all runs together.
    pub limit: f64,
    /// The privacy unit of all runs; `None` in files without runs, and in those that versions 1 and 2 began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protects: Option<BudgetScope>,
    pub runs: Vec<Charge>,
    /// The authentication code of the rest; `None` in files of versions 1 to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// The entry of one run: what it has spent or may still spend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Charge {
    /// The name of the run, the same after a resume: a digest of its noise key.
    pub run: String,
    pub method: String,
    pub epsilon: f64,
    pub delta: f64,
    /// The loss that `epsilon` follows from; `None` in entries of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<RunLoss>,
    /// Whether the run has ended, so that `epsilon` is what it spent and not what it may spend.
    pub ended: bool,
    /// Whether the run was resumed after it ended without a report (a killed process). How much it had released is not
    /// known, so its whole reservation counts as spent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub killed: bool,
    /// Whether the run was resumed, after it was killed or ended early.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// All releases that the run has made, or was about to make; empty in entries of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<ReleasedAt>,
    /// The names of the run in the log of its site, one for each time that it was started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logged: Vec<String>,
}

/// A release of a run, and the state that it was made at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleasedAt {
    /// Its number in the run, from 1.
    pub number: u64,
    /// See [`super::ReleaseState::text`].
    pub state: String,
}

impl Charge {
    /// How many releases have the number of another one, at another state.
    pub fn forks(&self) -> usize {
        let numbers: BTreeSet<u64> = self.releases.iter().map(|release| release.number).collect();
        self.releases.len() - numbers.len()
    }

    /// The known state of the run, whether its entry exceeds what it is known to have spent, and its names in the log.
    pub fn state(&self) -> String {
        let words = [(self.killed, "killed"), (self.resumed || self.killed, "resumed")];
        let mut words: Vec<&str> = words.into_iter().filter_map(|(holds, word)| holds.then_some(word)).collect();
        words.push(if self.ended { "ended" } else { "not ended" });
        let counts = if self.killed || !self.ended { ": all that it reserved counts" } else { "" };
        let forks = match self.forks() {
            0 => String::new(),
            forks => format!("; {forks} release(s) from a changed state, charged in addition"),
        };
        let logged =
            if self.logged.is_empty() { String::new() } else { format!("; in the log: {}", self.logged.join(", ")) };
        words.join(", ") + counts + &forks + &logged
    }
}

/// The privacy loss of all releases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLoss {
    /// The loss of the mechanism with continuous noise.
    pub loss: PrivacyLoss,
    /// The amount that the grid of the noise adds to ε.
    pub grid: f64,
}

impl RunLoss {
    /// The ε of this run without the others.
    fn epsilon(&self, delta: f64) -> f64 {
        self.loss.epsilon(1, delta) + self.grid
    }
}

/// The version that is written.
const VERSION: u32 = 4;
/// Numbers that differ by at most this fraction are equal up to rounding.
const ROUNDING: f64 = 1e-9;

impl BudgetFile {
    pub fn new(limit: f64) -> Self {
        BudgetFile { fednmf_budget: VERSION, limit, protects: None, runs: Vec::new(), code: None }
    }

    /// Reads a file of version 1 to 4. The code is checked under `key`, if there is one; a file of versions 1 to 3 has none, and
    /// is refused if it has a key, which only later versions make.
    ///
    /// # Errors
    /// If the text is no budget, an entry contradicts itself, or the file is not as it was written.
    pub fn read(text: &str, key: Option<&BudgetKey>) -> Result<Self> {
        let budget = BudgetFile::parse(text)?;
        let own = |key: &BudgetKey| key.code(budget.uncoded().as_bytes());
        match (&budget.code, key) {
            (Some(code), Some(key)) if *code != own(key) => Err(Error::input(
                "was changed by something else than a run: its code is not that of its contents and key; restore it, with its key, \
                 from a backup",
            )),
            (None, Some(_)) => Err(Error::input(
                "has no authentication code, but there is a key, so it was changed or replaced; restore it from a backup",
            )),
            _ => Ok(budget),
        }
    }

    /// As [`BudgetFile::read`], without a check of the code.
    ///
    /// # Errors
    /// If the text is no budget, or an entry contradicts itself.
    fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Error::input(format!("is no privacy budget ({why}); name a file that an earlier run wrote, or a new one"))
        };
        let budget: BudgetFile = serde_json::from_str(text).map_err(|e| wrong(why_not_json(&e)))?;
        let numbers = budget.runs.iter().flat_map(|run| [run.epsilon, run.delta]).chain([budget.limit]);
        if !(1..=VERSION).contains(&budget.fednmf_budget) {
            return Err(wrong(format!("version {}", budget.fednmf_budget)));
        }
        if numbers.into_iter().any(|x| !(x.is_finite() && x >= 0.0)) {
            return Err(wrong("a negative number".into()));
        }
        if budget.protects.is_some() && budget.fednmf_budget < 3 {
            return Err(wrong("what its runs protect, in a file of an older version".into()));
        }
        if budget.code.is_some() != (budget.fednmf_budget == VERSION) {
            return Err(wrong(format!(
                "version {}, and a code is part of version {VERSION} alone",
                budget.fednmf_budget
            )));
        }
        for Charge { run, epsilon, delta, loss, .. } in &budget.runs {
            let Some(RunLoss { loss: of, grid }) = loss else { continue };
            if budget.fednmf_budget == 1 || !of.is_valid() || !(grid.is_finite() && *grid >= 0.0) {
                return Err(wrong(format!("the loss of run {run}")));
            }
            // If the loss exceeds the stored epsilon, one of the two was changed.
            let own = RunLoss { loss: *of, grid: *grid }.epsilon(*delta);
            if own > epsilon * (1.0 + 1e-6) + 1e-12 {
                return Err(wrong(format!("the loss of run {run} is an epsilon of {own}, not {epsilon}")));
            }
        }
        Ok(BudgetFile { fednmf_budget: VERSION, ..budget })
    }

    /// As JSON for people and programs, with its code under `key`.
    pub fn text(&self, key: &BudgetKey) -> String {
        let code = Some(key.code(self.uncoded().as_bytes()));
        BudgetFile { code, ..self.clone() }.json()
    }

    /// The text that the code is of.
    fn uncoded(&self) -> String {
        BudgetFile { code: None, ..self.clone() }.json()
    }

    fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }

    /// Sums of the epsilons and of the deltas of all runs: a different guarantee from that of [`BudgetFile::spent`].
    pub fn simple(&self) -> (f64, f64) {
        self.runs.iter().fold((0.0, 0.0), |(epsilon, delta), run| (epsilon + run.epsilon, delta + run.delta))
    }

    /// Epsilon and delta of all runs together, by composition. No run makes this epsilon smaller.
    pub fn spent(&self) -> (f64, f64) {
        composed(self.runs.iter())
    }

    /// The epsilon that further runs may spend, whatever their noise.
    pub fn left(&self) -> f64 {
        (self.limit - self.spent().0).max(0.0)
    }

    /// The epsilon that another run like the last one may request, if the last one had Gaussian noise, whose loss composes to less
    /// than the sum.
    pub fn left_for_gaussian(&self) -> Option<f64> {
        let is_gaussian = |run: &&Charge| matches!(run.loss, Some(RunLoss { loss: PrivacyLoss::Gaussian { .. }, .. }));
        let last = self.runs.last().filter(is_gaussian)?;
        Some(left_for(&self.runs.iter().collect::<Vec<_>>(), last, self.limit))
    }

    /// Reserves the budget of a run with the units `protects` before the run spends it; a resumed run keeps its
    /// entry, with all that it has released. Returns its previous entry, if any.
    ///
    /// # Errors
    /// If the other runs protect other units, or units that the file does not name, or if all runs together would exceed the
    /// limit.
    pub fn reserve(&mut self, charge: Charge, protects: &BudgetScope) -> Result<Option<Charge>> {
        let before = self.runs.iter().find(|other| other.run == charge.run).cloned();
        let mut charge = Charge { resumed: before.is_some(), ..charge };
        if let Some(before) = &before {
            charge.releases.clone_from(&before.releases);
            charge.logged.splice(..0, before.logged.iter().cloned());
            charge.killed = before.killed || !before.ended;
            // It has made releases from changed states, beyond those that it plans.
            if before.epsilon > charge.epsilon {
                (charge.epsilon, charge.loss) = (before.epsilon, before.loss);
            }
        }
        let others = || self.runs.iter().filter(|other| other.run != charge.run);
        let is_first = others().next().is_none();
        if !is_first {
            self.check_scope(&charge.run, protects)?;
        }
        if composed(others().chain([&charge])).0 > self.limit * (1.0 + ROUNDING) {
            return Err(Error::input(format!(
                "{} spent or reserved {} of an epsilon of {} on this data, and this one asks for {}; \
                 {} is left for --epsilon",
                counted(others().count(), "earlier run has", "earlier runs have"),
                round_up_text(composed(others()).0),
                self.limit,
                charge.epsilon,
                round_down_text(left_for(&others().collect::<Vec<_>>(), &charge, self.limit)),
            )));
        }
        if is_first {
            self.protects = Some(protects.clone());
        }
        self.runs.retain(|other| other.run != charge.run);
        self.runs.push(charge);
        Ok(before)
    }

    /// Notes a release before the run makes it. If the run has then made more than it has reserved, because it was resumed
    /// from changed states, the excess is charged; `loss_of` gives the epsilon and the loss of a number of its releases.
    ///
    /// # Errors
    /// If all runs together would exceed the limit; the release must not be made then.
    pub fn release(&mut self, run: &str, at: ReleasedAt, loss_of: impl Fn(u64) -> (f64, RunLoss)) -> Result<()> {
        let Some(place) = self.runs.iter().position(|charge| charge.run == run) else {
            return Err(Error::failed("the run has no place in it any more"));
        };
        let mut charge = self.runs[place].clone();
        if charge.releases.contains(&at) {
            return Ok(());
        }
        let number = at.number;
        charge.releases.push(at);
        let (epsilon, loss) = loss_of(charge.releases.len() as u64);
        if epsilon > charge.epsilon * (1.0 + ROUNDING) {
            (charge.epsilon, charge.loss) = (epsilon, Some(loss));
            let others = self.runs.iter().filter(|other| other.run != run);
            let all = composed(others.chain([&charge])).0;
            if all > self.limit * (1.0 + ROUNDING) {
                return Err(Error::input(format!(
                    "release {number} is from another state than before: the checkpoint was changed, or another party sent \
                     something else. It would be a further release, with which all runs spend {} of an epsilon of {}",
                    round_up_text(all),
                    self.limit
                )));
            }
        }
        self.runs[place] = charge;
        Ok(())
    }

    /// Refuses a run whose units are not those of the file. A run already in a file without units adds nothing to it.
    fn check_scope(&self, run: &str, protects: &BudgetScope) -> Result<()> {
        let has_place = self.runs.iter().any(|other| other.run == run);
        match &self.protects {
            Some(own) if own == protects => Ok(()),
            None if has_place => Ok(()),
            Some(own) => Err(Error::input(format!(
                "its runs protect {}, and this run {}; epsilons of different units do not add up, so this run needs \
                 another --budget file",
                own.describe(),
                protects.describe()
            ))),
            None => Err(Error::input(format!(
                "is of an earlier version, which did not note what its runs protect, and this run protects {}; name \
                 another --budget file, with a --budget-limit that is lower by what this one has spent ({})",
                protects.describe(),
                round_up_text(self.spent().0)
            ))),
        }
    }

    /// Removes the entry of a run and restores the one that it had `before`.
    pub fn withdraw(&mut self, run: &str, before: Option<Charge>) {
        self.runs.retain(|other| other.run != run);
        self.runs.extend(before);
        if self.runs.is_empty() {
            self.protects = None;
        }
    }

    /// Replaces the reservation of a run by what it spent, if all of its processes have reported. `loss_of` is as for
    /// [`BudgetFile::release`].
    pub fn settle(&mut self, run: &str, loss_of: impl Fn(u64) -> (f64, RunLoss)) {
        for charge in self.runs.iter_mut().filter(|charge| charge.run == run) {
            if !charge.killed {
                let (epsilon, loss) = loss_of(charge.releases.len() as u64);
                (charge.epsilon, charge.loss) = (epsilon, Some(loss));
            }
            charge.ended = true;
        }
    }
}

/// An ε with six decimals, rounded up, for a budget that is spent.
pub fn round_up_text(epsilon: f64) -> String {
    six_decimals(epsilon, |rounded| rounded >= epsilon, STEP)
}

/// An ε with six decimals, rounded down, for a budget that is left.
pub fn round_down_text(epsilon: f64) -> String {
    six_decimals(epsilon, |rounded| rounded <= epsilon, -STEP)
}

/// The last decimal of [`round_up_text`] and [`round_down_text`].
const STEP: f64 = 1e-6;

/// The nearest number of six decimals, or the `next` one if that is not `right`.
fn six_decimals(x: f64, right: impl Fn(f64) -> bool, next: f64) -> String {
    let nearest = format!("{x:.6}");
    match nearest.parse::<f64>() {
        Ok(rounded) if !right(rounded) => format!("{:.6}", rounded + next),
        _ => nearest,
    }
}

/// A sum of deltas without the last digits, which are rounding errors.
pub fn delta_text(delta: f64) -> String {
    format!("{:e}", format!("{delta:.12e}").parse().unwrap_or(delta))
}

/// The (ε, δ) of some runs together. An entry without a loss adds its own ε and δ.
fn composed<'a>(runs: impl Iterator<Item = &'a Charge>) -> (f64, f64) {
    let (mut epsilon, mut delta, mut losses) = (0.0, 0.0, Vec::new());
    for run in runs {
        match run.loss {
            Some(RunLoss { loss, grid }) => {
                epsilon += grid;
                losses.push((loss, run.delta));
            }
            None => {
                epsilon += run.epsilon;
                delta += run.delta;
            }
        }
    }
    let together = composition(losses.into_iter());
    (epsilon + together.0, delta + together.1)
}

/// The largest epsilon that a run like `charge` may request after `others`.
fn left_for(others: &[&Charge], charge: &Charge, limit: f64) -> f64 {
    let fits = |epsilon: f64| {
        let loss = match charge.loss {
            Some(RunLoss { loss: PrivacyLoss::Gaussian { .. }, grid }) => {
                Some(RunLoss { loss: PrivacyLoss::gaussian(epsilon, charge.delta, 1), grid })
            }
            _ => None,
        };
        composed(others.iter().copied().chain([&Charge { epsilon, loss, ..charge.clone() }])).0 <= limit
    };
    if !fits(0.0) { 0.0 } else { 1.0 / gaussian::smallest(|inverse| inverse > 0.0 && fits(1.0 / inverse)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BudgetUnit, Covers, Division, Lines};

    fn parties_of(sizes: &str) -> BudgetScope {
        let division = Division::Cut { parties: 4, along: Lines::Columns, sizes: sizes.into() };
        BudgetScope::new(BudgetUnit::Party, Covers::AllParties, division)
    }

    fn parties() -> BudgetScope {
        parties_of("4 x 3")
    }

    fn charge(run: &str, epsilon: f64, delta: f64, loss: Option<RunLoss>) -> Charge {
        Charge {
            run: run.into(),
            method: "felb".into(),
            epsilon,
            delta,
            loss,
            ended: false,
            killed: false,
            resumed: false,
            releases: Vec::new(),
            logged: Vec::new(),
        }
    }

    fn key() -> BudgetKey {
        BudgetKey::new([7; 32])
    }

    /// What is read from what is written.
    fn read_again(budget: &BudgetFile) -> BudgetFile {
        BudgetFile { code: None, ..BudgetFile::read(&budget.text(&key()), Some(&key())).unwrap() }
    }

    /// `epsilon` for any number of releases.
    fn always(epsilon: f64) -> impl Fn(u64) -> (f64, RunLoss) {
        move |_| (epsilon, RunLoss { loss: PrivacyLoss::Pure { epsilon: 0.02, pieces: 1.0 }, grid: 0.0 })
    }

    fn gaussian_run(run: &str, epsilon: f64, delta: f64) -> Charge {
        charge(run, epsilon, delta, Some(RunLoss { loss: PrivacyLoss::gaussian(epsilon, delta, 1), grid: 0.0 }))
    }

    /// A killed process may have released all that was reserved, whatever the checkpoint contains.
    #[test]
    fn a_run_that_was_killed_has_spent_what_it_reserved() {
        let mut budget = BudgetFile::new(1.0);
        budget.reserve(charge("run", 0.5, 1e-6, None), &parties()).unwrap();
        budget.settle("run", always(0.02));
        budget.reserve(charge("run", 0.5, 1e-6, None), &parties()).unwrap();
        budget.settle("run", always(0.03));
        assert_eq!(budget.simple().0, 0.03);
        // The next process reports nothing at its end.
        budget.reserve(charge("run", 0.5, 1e-6, None), &parties()).unwrap();
        let mut budget = read_again(&budget);
        for _ in 0..2 {
            budget.reserve(charge("run", 0.5, 1e-6, None), &parties()).unwrap();
            budget.settle("run", always(0.04));
            assert_eq!((budget.simple().0, budget.runs[0].ended), (0.5, true));
            budget = read_again(&budget);
        }
    }

    #[test]
    fn runs_without_a_loss_add_up_to_the_limit_and_no_further() {
        let mut budget = BudgetFile::new(1.0);
        for run in 0..10 {
            budget.reserve(charge(&format!("run {run}"), 0.1, 1e-6, None), &parties()).unwrap();
        }
        let refused = budget.reserve(charge("another", 1e-3, 1e-6, None), &parties()).unwrap_err();
        assert!(refused.message.contains("10 earlier runs"), "{refused}");
        // A resumed run keeps its reservation; a run that spent less leaves the rest.
        assert!(budget.reserve(charge("run 3", 0.2, 1e-6, None), &parties()).is_err());
        budget.settle("run 3", always(0.02));
        budget.reserve(charge("another", 0.08, 1e-6, None), &parties()).unwrap();
        let spent = budget.clone();
        let again = budget.reserve(charge("another", 0.07, 1e-6, None), &parties()).unwrap();
        assert_eq!(again.map(|charge| charge.epsilon), Some(0.08));
        budget.withdraw("another", spent.runs.last().cloned());
        assert_eq!(budget, spent);
        let (epsilon, delta) = budget.spent();
        assert!((epsilon - 1.0).abs() < 1e-4 && (delta - 1.1e-5).abs() < 1e-18, "{epsilon} {delta}");
        assert_eq!(budget.simple().1, delta);
        assert_eq!(read_again(&budget), budget);
    }

    /// n equal Gaussian runs have √n of the μ of one, at the same delta.
    #[test]
    fn gaussian_runs_compose_by_the_closed_form() {
        let mut budget = BudgetFile::new(4.0);
        let (epsilon, delta) = (1.0, 1e-6);
        let mu = gaussian::mu(epsilon, delta);
        let mut count = 0;
        while budget.reserve(gaussian_run(&format!("run {count}"), epsilon, delta), &parties()).is_ok() {
            count += 1;
            let (found, at) = budget.spent();
            let n = f64::from(count);
            assert!((found - gaussian::epsilon(mu * n.sqrt(), delta)).abs() < 1e-9 && found <= n * epsilon + 1e-9);
            assert!(at == delta && (budget.simple().0 - n).abs() < 1e-9);
        }
        // The sum allows four.
        assert!(count > 8 && budget.left() < 1.0, "{count}");
        // The refusal says what is left, and that fits.
        let refused = budget.reserve(gaussian_run("more", 3.0, delta), &parties()).unwrap_err().message;
        let left: f64 = refused.split("; ").last().unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(left > budget.left(), "{refused}");
        assert!(budget.clone().reserve(gaussian_run("more", left * 1.001, delta), &parties()).is_err());
        budget.reserve(gaussian_run("more", left * 0.999, delta), &parties()).unwrap();
    }

    /// Evaluated at the sum of the deltas, the last run would increase what is left of the limit.
    #[test]
    fn no_run_lowers_what_others_have_spent() {
        let pure = |run: &str, epsilon, delta| {
            let loss = PrivacyLoss::Pure { epsilon, pieces: 1.0 };
            charge(run, epsilon, delta, Some(RunLoss { loss, grid: 0.0 }))
        };
        let mut budget = BudgetFile::new(1e9);
        let mut spent = (0.0, 1.0);
        for (i, (epsilon, delta)) in
            [(2.0, 1e-5), (2.0, 1e-5), (0.01, 0.01), (0.01, 0.499), (1.0, 1e-7)].iter().enumerate()
        {
            budget.reserve(gaussian_run(&format!("g{i}"), *epsilon, *delta), &parties()).unwrap();
            budget.reserve(pure(&format!("p{i}"), *epsilon, *delta), &parties()).unwrap();
            let now = budget.spent();
            assert!(now.0 > spent.0 && now.1 <= spent.1, "{now:?} after {spent:?}");
            spent = now;
        }
        // The pure runs are so few that their epsilons add up to less, without a delta.
        assert!((spent.1 - 1e-7).abs() < 1e-20, "{spent:?}");
    }

    /// The unit of their runs is not known: no other run is added, but an existing one may be resumed.
    #[test]
    fn runs_of_older_files_count_with_their_epsilon_and_stay_alone() {
        let old = r#"{"fednmf_budget": 1, "limit": 3, "runs": [
            {"run": "a", "method": "felb", "epsilon": 1.5, "delta": 1e-6, "ended": true},
            {"run": "b", "method": "felb", "epsilon": 1, "delta": 1e-6, "ended": true}]}"#;
        let mut budget = BudgetFile::parse(old).unwrap();
        assert_eq!((budget.spent().0, budget.protects.clone()), (2.5, None));
        let refused = budget.reserve(gaussian_run("c", 0.1, 1e-6), &parties()).unwrap_err().message;
        assert!(refused.contains("earlier version") && refused.contains("2.500000"), "{refused}");
        budget.reserve(gaussian_run("b", 1.0, 1e-6), &parties()).unwrap();
        assert!((budget.spent().0 - 2.5).abs() < 1e-9 && budget.protects.is_none());
        assert!(budget.reserve(gaussian_run("c", 0.1, 1e-6), &parties()).is_err());
        assert!(budget.text(&key()).contains("\"fednmf_budget\": 4"));
        assert_eq!(read_again(&budget), budget);
        // Without other runs the unit is known: that of the only run.
        budget.withdraw("a", None);
        budget.reserve(gaussian_run("b", 1.0, 1e-6), &parties()).unwrap();
        assert_eq!(budget.protects, Some(parties()));
    }

    #[test]
    fn runs_that_protect_other_units_are_refused() {
        let mut budget = BudgetFile::new(9.0);
        budget.reserve(gaussian_run("a", 3.0, 1e-6), &parties()).unwrap();
        let before = budget.clone();
        let column = BudgetScope::new(BudgetUnit::Column, Covers::AllParties, Division::OwnFiles);
        for other in [column, parties_of("1 x 6 + 3 x 2")] {
            let refused = budget.reserve(gaussian_run("b", 1.0, 1e-6), &other).unwrap_err().message;
            assert!(refused.contains(&other.describe()) && refused.contains(&parties().describe()), "{refused}");
            assert!(refused.contains("another --budget file"), "{refused}");
            assert_eq!(budget, before);
        }
        budget.reserve(gaussian_run("b", 1.0, 1e-6), &parties()).unwrap();
        // The next run of a file from which all were withdrawn sets the unit.
        budget.withdraw("a", None);
        budget.withdraw("b", None);
        budget.reserve(gaussian_run("c", 1.0, 1e-6), &parties_of("1 x 12")).unwrap();
        assert_eq!(read_again(&budget).protects, Some(parties_of("1 x 12")));
    }

    #[test]
    fn a_run_has_its_names_in_the_log_of_the_site() {
        let mut budget = BudgetFile::new(1.0);
        for name in ["one", "two"] {
            let charge = Charge { logged: vec![name.into()], ..charge("run", 0.5, 1e-6, None) };
            budget.reserve(charge, &parties()).unwrap();
            budget.settle("run", always(0.02));
            budget = read_again(&budget);
        }
        assert_eq!(budget.runs[0].state(), "resumed, ended; in the log: one, two");
    }

    #[test]
    fn what_became_of_a_run_is_told() {
        let mut budget = BudgetFile::new(1.0);
        let mut states = Vec::new();
        // It stops early, is resumed and killed, and resumed again.
        for ends in [true, false, true] {
            budget.reserve(charge("run", 0.5, 1e-6, None), &parties()).unwrap();
            states.push(budget.runs[0].state());
            if ends {
                budget.settle("run", always(0.02));
                states.push(budget.runs[0].state());
            }
        }
        let expected = [
            "not ended: all that it reserved counts",
            "ended",
            "resumed, not ended: all that it reserved counts",
            "killed, resumed, not ended: all that it reserved counts",
            "killed, resumed, ended: all that it reserved counts",
        ];
        assert_eq!(states, expected);
        assert_eq!(budget.simple().0, 0.5);
    }

    /// A run of four releases, each with an epsilon of 0.1, stops after three, and is resumed after the first: once as it
    /// was, and then from changed states.
    #[test]
    fn releases_from_changed_states_are_charged_and_repeated_ones_are_not() {
        let loss_of = |releases: u64| {
            let epsilon = 0.1 * releases as f64;
            (epsilon, RunLoss { loss: PrivacyLoss::Pure { epsilon, pieces: 1.0 }, grid: 0.0 })
        };
        let at = |number, state: &str| ReleasedAt { number, state: state.into() };
        let mut budget = BudgetFile::new(0.65);
        let reserve = |budget: &mut BudgetFile| {
            budget.reserve(charge("run", 0.4, 1e-6, Some(loss_of(4).1)), &parties()).unwrap();
        };
        reserve(&mut budget);
        for (number, state) in [(1, "a"), (2, "b"), (3, "c")] {
            budget.release("run", at(number, state), loss_of).unwrap();
        }
        budget.settle("run", loss_of);
        let epsilon = |budget: &BudgetFile| (budget.simple().0 * 10.0).round();
        assert_eq!((epsilon(&budget), budget.runs[0].forks()), (3.0, 0));
        reserve(&mut budget);
        for (number, state) in [(2, "b"), (3, "c"), (4, "d")] {
            budget.release("run", at(number, state), loss_of).unwrap();
        }
        budget.settle("run", loss_of);
        assert_eq!((epsilon(&budget), budget.runs[0].forks()), (4.0, 0));
        for (number, state) in [(2, "B"), (3, "C")] {
            reserve(&mut budget);
            budget.release("run", at(number, state), loss_of).unwrap();
            budget.settle("run", loss_of);
        }
        assert_eq!((epsilon(&budget), budget.runs[0].forks()), (6.0, 2));
        assert!(budget.runs[0].state().contains("2 release(s) from a changed state"), "{}", budget.runs[0].state());
        // The next one would exceed the limit, and stays undone.
        reserve(&mut budget);
        let before = budget.clone();
        let refused = budget.release("run", at(4, "D"), loss_of).unwrap_err();
        assert!(refused.message.contains("another state") && refused.exit_code() == 2, "{refused}");
        assert_eq!(budget, before);
        assert_eq!(read_again(&budget), budget);
    }

    #[test]
    fn a_file_that_was_edited_is_refused() {
        let mut budget = BudgetFile::new(3.0);
        budget.reserve(gaussian_run("a", 1.0, 1e-6), &parties()).unwrap();
        let text = budget.text(&key());
        let read = |text: &str, key: Option<&BudgetKey>| BudgetFile::read(text, key).map(drop);
        read(&text, Some(&key())).unwrap();
        // Without the key it can be read, but not checked.
        read(&text, None).unwrap();
        let empty = |version: u32| format!("{{\"fednmf_budget\": {version}, \"limit\": 3, \"runs\": []}}");
        let code = text.split("\"code\"").nth(1).unwrap();
        for edited in [
            text.replace("\"limit\": 3.0", "\"limit\": 9.0"),
            text.replace("\"ended\": false", "\"ended\": true"),
            text.replace("\"delta\": 1e-6", "\"delta\": 1e-5"),
            empty(4).replace("[]", &format!("[], \"code\"{}", code.trim_end().trim_end_matches('}'))),
            empty(3),
            BudgetFile::new(3.0).text(&BudgetKey::new([8; 32])),
        ] {
            assert_ne!(edited, text);
            let refused = read(&edited, Some(&key())).unwrap_err();
            assert!(refused.message.contains("changed") && refused.exit_code() == 2, "{refused}: {edited}");
        }
        // A file of an earlier version has no key yet.
        read(&empty(3), None).unwrap();
    }

    #[test]
    fn digits_are_left_out_on_the_safe_side() {
        assert_eq!([round_up_text(5.9993962918565735), round_down_text(5.9993962918565735)], ["5.999397", "5.999396"]);
        assert_eq!([round_up_text(4.2955312), round_down_text(4.7044688)], ["4.295532", "4.704468"]);
        for exact in [0.0, 0.1, 3.0, 2.05] {
            assert_eq!([round_up_text(exact), round_down_text(exact)], [format!("{exact:.6}"), format!("{exact:.6}")]);
        }
        for at in 0..2000 {
            let x = f64::from(at) * std::f64::consts::PI * 1e-7;
            let [up, down] = [round_up_text(x), round_down_text(x)].map(|text| text.parse::<f64>().unwrap());
            assert!(down <= x && x <= up && up - down < 1.5e-6, "{x} {up} {down}");
        }
        assert_eq!(delta_text(0.1 + 0.2), "3e-1");
    }

    #[test]
    fn what_is_no_budget_is_refused_in_words() {
        for (text, why) in [("", "it ends too early"), ("{}", "other contents"), ("budget", "line 1 is not JSON")] {
            let message = BudgetFile::parse(text).unwrap_err().message;
            assert!(message.contains(why) && !message.contains("column"), "{message}");
        }
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        let run = |version: u32, epsilon: &str, loss: &str| {
            format!(
                "{{\"fednmf_budget\": {version}, \"limit\": 9, \"runs\": [{{\"run\": \"a\", \"method\": \"felb\", \
                 \"epsilon\": {epsilon}, \"delta\": 1e-6, \"loss\": {loss}, \"ended\": true}}]}}"
            )
        };
        let loss = |mu: &str| format!("{{\"loss\": {{\"gaussian\": {{\"mu\": {mu}}}}}, \"grid\": 0}}");
        assert!(BudgetFile::parse(&run(2, "1", &loss("0.1"))).is_ok());
        for text in [
            String::new(),
            "{}".into(),
            "[1]".into(),
            "{\"fednmf_budget\": 5, \"limit\": 1, \"runs\": []}".into(),
            "{\"fednmf_budget\": 4, \"limit\": 1, \"runs\": []}".into(),
            "{\"fednmf_budget\": 3, \"limit\": 1, \"runs\": [], \"code\": \"00\"}".into(),
            "{\"fednmf_budget\": 2, \"limit\": 1, \"runs\": [],
              \"protects\": {\"unit\": \"column\", \"covers\": \"all-parties\"}}"
                .into(),
            "{\"fednmf_budget\": 3, \"limit\": 1, \"runs\": [], \"protects\": {\"unit\": \"matrix\"}}".into(),
            "{\"fednmf_budget\": 1, \"limit\": -1, \"runs\": []}".into(),
            run(1, "1", &loss("0.1")),
            run(2, "1", &loss("-0.1")),
            run(2, "1", &loss("1e999")),
            // A loss above the epsilon of the same entry.
            run(2, "0.1", &loss("0.5")),
            run(2, "1", "{\"loss\": {\"other\": {\"mu\": 0.1}}, \"grid\": 0}"),
            run(2, "1", "{\"loss\": {\"gaussian\": {\"mu\": 0.1}}}"),
            run(2, "1", "{\"loss\": {\"gaussian\": {\"mu\": 0.1, \"sigma\": 1}}, \"grid\": 0}"),
        ] {
            assert!(BudgetFile::parse(&text).is_err_and(|e| e.message.contains("no privacy budget")), "{text}");
        }
    }
}
