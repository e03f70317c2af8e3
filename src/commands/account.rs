//! `fednmf account`: the (ε, δ) of a number of releases, or the number that a budget allows; or what a `--budget` file says.
//! Reads no data.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;

use fednmf_base::error::{Error, Result};
use fednmf_base::printable::printable;
use fednmf_base::units::counted;
use fednmf_driver::budget;
use fednmf_files::{PARTY, highest_party};
use fednmf_methods::parameters;
use fednmf_privacy::dp::{delta_text, round_down_text, round_up_text};
use fednmf_privacy::{BudgetFile, BudgetUnit, PrivacyLoss};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NoiseKind {
    Gaussian,
    Laplace,
    Xor,
}

/// The question.
#[derive(Debug, Args)]
pub struct AccountArgs {
    /// Kind of noise
    #[arg(long, value_enum, default_value_t = NoiseKind::Gaussian)]
    dp: NoiseKind,
    /// Noise of a release in units of its sensitivity: standard deviation (gaussian) or scale (laplace); for xor the
    /// chance that a bit is flipped
    #[arg(long, value_name = "X", value_parser = parameters::any_number)]
    noise: Option<f64>,
    /// Budget: prints the noise that it requires, or with --noise how many releases it allows
    #[arg(long, value_name = "X", value_parser = parameters::any_number)]
    epsilon: Option<f64>,
    /// The delta that belongs to epsilon
    #[arg(long, value_name = "X", default_value_t = 1e-5, value_parser = parameters::any_number)]
    delta: f64,
    /// Releases one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    releases: u64,
    /// Bits by which two messages may differ (xor): entries of V, or twice --clip
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    bits: u64,
    /// Print what a --budget file says instead: what it protects, the runs, what they have spent or may still spend,
    /// composed and as a plain sum, the limit, and what is left. With {party} in its name the files of all parties
    #[arg(long, value_name = "F.json", conflicts_with_all = ["dp", "noise", "epsilon", "delta", "releases", "bits"])]
    budget: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn whole_number(text: &str) -> std::result::Result<u64, String> {
    parameters::whole_number(text).map(|number| number as u64)
}

impl AccountArgs {
    fn check(&self) -> Result<()> {
        let wrong = |why: String| Err(Error::input(why));
        if self.noise.is_none() && self.epsilon.is_none() {
            return wrong(
                "account: give --noise (what does it cost?), --epsilon (what does it ask for?), or both".into(),
            );
        }
        if let Some(x) = self.epsilon.filter(|x| !(*x > 0.0 && x.is_finite())) {
            return wrong(format!("--epsilon {x}: must be a number above 0"));
        }
        let most = if self.dp == NoiseKind::Xor { 0.5 } else { f64::MAX };
        if let Some(x) = self.noise.filter(|x| !(*x > 0.0 && *x <= most)) {
            return wrong(format!("--noise {x}: must be above 0{}", if most < 1.0 { ", at most 0.5" } else { "" }));
        }
        if !(0.0..0.5).contains(&self.delta) || self.dp == NoiseKind::Gaussian && self.delta == 0.0 {
            return wrong(format!("--delta {}: must be above 0 (laplace and xor: or 0) and below 0.5", self.delta));
        }
        if self.releases == 0 || self.bits == 0 {
            return wrong("--releases and --bits: must be at least 1".into());
        }
        Ok(())
    }

    fn loss(&self, noise: f64) -> PrivacyLoss {
        match self.dp {
            NoiseKind::Gaussian => PrivacyLoss::Gaussian { mu: 1.0 / noise },
            NoiseKind::Laplace => PrivacyLoss::Pure { epsilon: 1.0 / noise, pieces: 1.0 },
            NoiseKind::Xor => PrivacyLoss::Pure { epsilon: ((1.0 - noise) / noise).ln(), pieces: self.bits as f64 },
        }
    }

    /// The noise level at which `releases` releases cost `epsilon`.
    fn noise_for(&self, epsilon: f64) -> f64 {
        let pieces = if self.dp == NoiseKind::Xor { self.bits as f64 } else { 1.0 };
        let loss = match self.dp {
            NoiseKind::Gaussian => PrivacyLoss::gaussian(epsilon, self.delta, self.releases),
            _ => PrivacyLoss::pure(epsilon, self.delta, self.releases, pieces),
        };
        match (loss, self.dp) {
            (PrivacyLoss::Gaussian { mu }, _) => 1.0 / mu,
            (PrivacyLoss::Pure { epsilon, .. }, NoiseKind::Xor) => 1.0 / (1.0 + epsilon.exp()),
            (PrivacyLoss::Pure { epsilon, .. }, _) => 1.0 / epsilon,
        }
    }

    /// The contents of the budget files.
    fn kept(&self, path: &Path) -> Result<String> {
        let text = path.display().to_string();
        // With several files, a missing one is an error.
        let last = if text.contains(PARTY) { highest_party(&text).unwrap_or(0) } else { 0 };
        let mut out = String::new();
        for party in 0..=last {
            let path = &text.replace(PARTY, &party.to_string());
            let budget = budget::read(Path::new(path))?;
            out += &if self.json { format!("{}\n", budget_json(path, &budget)) } else { budget_table(path, &budget) };
        }
        Ok(out)
    }

    /// The answer.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    pub fn answer(&self) -> Result<String> {
        if let Some(path) = &self.budget {
            return self.kept(path);
        }
        self.check()?;
        let noise = match (self.noise, self.epsilon) {
            (Some(noise), _) => noise,
            (None, budget) => self.noise_for(budget.unwrap_or(f64::INFINITY)),
        };
        let loss = self.loss(noise);
        let allowed = self.noise.and(self.epsilon).map(|e| loss.releases(e, self.delta, 1 << 40));
        let total = loss.epsilon(self.releases, self.delta);
        if self.json {
            let all = json!({
                "dp": format!("{:?}", self.dp).to_lowercase(), "noise": noise, "delta": self.delta, "releases": self.releases,
                "epsilon": total, "releases_allowed": allowed,
            });
            return Ok(format!("{all}\n"));
        }
        let noise_text = match self.dp {
            NoiseKind::Gaussian => format!("standard deviation {noise:.6} times the sensitivity"),
            NoiseKind::Laplace => format!("scale {noise:.6} times the sensitivity"),
            NoiseKind::Xor => format!("{noise:.6}, the chance of a flip"),
        };
        let mut out = format!(
            "{:?} noise: {noise_text}, delta {}\n\
             What epsilon protects: {}. With secure-hals: {}, or with --transpose {}.\n\n\
             releases  epsilon\n",
            self.dp,
            self.delta,
            BudgetUnit::Party.describe(),
            BudgetUnit::Column.describe(),
            BudgetUnit::Row.describe()
        );
        // 1, 2, 5, 10, 20, 50, …
        let steps = (0..18).flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)));
        for at in steps.take_while(|at| *at < self.releases) {
            let _ = writeln!(out, "{at:>8}  {:.6}", loss.epsilon(at, self.delta));
        }
        let _ = writeln!(out, "{:>8}  {total:.6}", self.releases);
        if let (Some(allowed), Some(budget)) = (allowed, self.epsilon) {
            let allowed = counted(allowed as usize, "release", "releases");
            let _ = writeln!(out, "\nepsilon {budget} allows {allowed}.");
        }
        Ok(out)
    }
}

fn budget_json(path: &str, budget: &BudgetFile) -> serde_json::Value {
    let (epsilon, delta) = budget.spent();
    json!({
        "budget": path, "limit": budget.limit, "epsilon": epsilon, "epsilon_simple": budget.simple().0, "delta": delta,
        "left": budget.left(), "left_for_gaussian": budget.left_for_gaussian(), "protects": budget.protects, "runs": budget.runs,
    })
}

fn budget_table(path: &str, budget: &BudgetFile) -> String {
    let protects = match &budget.protects {
        Some(scope) => scope.describe(),
        None if budget.runs.is_empty() => "what the first run will".into(),
        None => "not known, the file is of an earlier version; no other run can be added".into(),
    };
    let mut out = format!("{path}: a budget for all runs on its data\nprotects: {protects}\n\n");
    let width = budget.runs.iter().map(|run| run.method.len()).max().unwrap_or(0).max("method".len());
    let _ = writeln!(out, "{:16}  {:width$}  {:>12}  {:>10}  state", "run", "method", "epsilon", "delta");
    for run in &budget.runs {
        let (epsilon, delta, state) = (round_up_text(run.epsilon), delta_text(run.delta), printable(&run.state()));
        let _ = writeln!(out, "{:16}  {:width$}  {epsilon:>12}  {delta:>10}  {state}", run.run, run.method);
    }
    let (epsilon, delta) = budget.spent();
    let _ = writeln!(
        out,
        "\nSpent or reserved by {}: epsilon {}, delta {} together (sums of epsilons and of deltas: {}, {}).",
        counted(budget.runs.len(), "run", "runs"),
        round_up_text(epsilon),
        delta_text(delta),
        round_up_text(budget.simple().0),
        delta_text(budget.simple().1)
    );
    let _ = writeln!(
        out,
        "The limit is epsilon {}, of which {} is left for runs with any noise.",
        budget.limit,
        round_down_text(budget.left())
    );
    if let Some(left) = budget.left_for_gaussian() {
        let _ = writeln!(
            out,
            "Gaussian noise composes to less than the sum: for another run like the last one, --epsilon may be up to {}.",
            round_down_text(left)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, Request, parse};

    fn answer(line: &str) -> Result<String> {
        match parse(format!("fednmf account {line}").split(' ').map(Into::into))? {
            Request::Other(Command::Account(args)) => args.answer(),
            _ => panic!("not an account"),
        }
    }

    #[test]
    fn questions_without_data_are_answered() {
        // The published example of the analytic mechanism.
        let text = answer("--epsilon 1").unwrap();
        assert!(text.contains("deviation 3.7306") && text.contains("       1  1.000000"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&answer("--noise 37.30632 --releases 100 --json").unwrap()).unwrap();
        assert!((json["epsilon"].as_f64().unwrap() - 1.0).abs() < 1e-4, "{json}");
        assert!(answer("--noise 37.307 --epsilon 1").unwrap().contains("allows 100 releases."));
        assert!(answer("--dp laplace --noise 10 --delta 0 --releases 7").unwrap().contains("       7  0.700000"));
        let text = answer("--dp xor --noise 0.25 --bits 2 --delta 0 --releases 60").unwrap();
        let releases: Vec<&str> = text.lines().skip(4).filter_map(|l| l.split_whitespace().next()).collect();
        assert_eq!(releases, ["1", "2", "5", "10", "20", "50", "60"]);
        assert!(text.contains(&format!("{:.6}", 2.0 * 3f64.ln())), "{text}");
        for wrong in ["--delta 1e-6", "--noise 0", "--epsilon -1", "--dp xor --noise 0.6", "--noise 1 --delta 0"] {
            assert!(answer(wrong).is_err_and(|e| e.exit_code() == 2), "{wrong}");
        }
    }
}
