//! How messages are made private: bound, sensitivity, grid, noise, and what the releases of a run cost.
//!
//! The unit of privacy is one party's whole data, and neighbours differ in what one party has: any data against any
//! other. So nothing is assumed of how a message came about (no algorithm here has a sensitivity that could be shown), and
//! any row of a party's data is covered with the whole. The message is bounded instead: two messages within the bound
//! differ by the *sensitivity* at most.
//!
//! Numbers are rounded to multiples of a step g far below noise and sensitivity, and the noise is a whole number of steps
//! ([`Noise`]); the rounding is part of the sensitivity. The discrete Gaussian on such a grid is the Gaussian of the
//! exact trade-off but for a factor e^±η on its probabilities, which is added to ε ([`NoisePlan::epsilon`]).

use libm::ldexp;
use serde_json::{Value, json};

use super::gaussian;
use crate::error::{Error, Result};
use crate::privacy::account::PrivacyLoss;
use crate::privacy::noise::{LARGEST_SCALE, Noise};

/// The kind of noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Gaussian,
    Laplace,
    /// Bits are flipped.
    Xor,
}

/// What bounds a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Entries are in [0, 1].
    Box,
    /// So many nonnegative components, contiguous in a message, have norm 1 at most.
    Units(usize),
    /// The message differs from a reference that everybody knows by this norm at most: the Euclidean norm for Gaussian
    /// noise, the sum of magnitudes for Laplace noise.
    Ball(f64),
    /// At most so many bits are set.
    Ones(usize),
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseRequest {
    pub mechanism: Mechanism,
    /// Budget of the whole run.
    pub epsilon: Option<f64>,
    pub delta: f64,
    /// Standard deviation (Gaussian) or scale (Laplace) of an entry's noise, or the chance that a bit is flipped.
    pub noise: Option<f64>,
    /// The papers' formula in the place of the exact one.
    pub classic: bool,
    /// Releases that the budget is split over.
    pub releases: u64,
}

/// How a run's messages are made private.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoisePlan {
    asked: NoiseRequest,
    bound: Bound,
    /// Entries of a message.
    length: usize,
    /// Most by which two messages differ, the rounding included; bits for `Xor`.
    sensitivity: f64,
    /// The step of the grid.
    grid: f64,
    /// Scale of one party's noise in steps of the grid; of 2⁶⁴ for `Xor`.
    scale: u64,
    /// Parties whose shares make up the noise of a sum; 0 where each message has its own.
    sharing: usize,
    loss: PrivacyLoss,
    releases: u64,
}

impl NoisePlan {
    /// For messages of `length` entries within `bound`. `parties` is given where only sums of all parties' messages are
    /// seen: each then adds a share of the noise, so large that the shares of all others but one are enough (a party
    /// knows its own share).
    ///
    /// # Errors
    /// When what is asked for cannot be had, with the reason.
    pub fn new(asked: NoiseRequest, bound: Bound, length: usize, parties: Option<usize>) -> Result<Self> {
        let sharing = parties.map_or(0, |p| p.max(2) - 1);
        let (exact, spread) = sensitivity(asked.mechanism, bound, length);
        let mut plan = NoisePlan {
            asked,
            bound,
            length,
            sensitivity: exact,
            grid: 1.0,
            scale: 1,
            sharing,
            loss: PrivacyLoss::Gaussian { mu: 0.0 },
            releases: asked.releases,
        };
        let mut noise = match (asked.noise, asked.epsilon) {
            (Some(noise), _) => noise,
            (None, Some(epsilon)) => plan.wanted(epsilon, exact)?,
            (None, None) => {
                return Err(Error::input("--dp: give --epsilon, the budget of the whole run, or --dp-noise"));
            }
        };
        plan.set(noise, exact, spread)?;
        let Some(budget) = asked.epsilon else { return Ok(plan) };
        if asked.noise.is_some() {
            plan.releases = plan.loss.releases(budget, asked.delta, asked.releases);
            while plan.releases > 0 && plan.epsilon(plan.releases) > budget {
                plan.releases -= 1;
            }
            if plan.releases == 0 {
                return Err(Error::input(format!(
                    "--dp-noise {noise}: one release costs epsilon {:.4}, more than --epsilon {budget}",
                    plan.epsilon(1)
                )));
            }
            return Ok(plan);
        }
        // What the grid costs is little, but it must not be more than the budget has.
        for _ in 0..200 {
            if plan.epsilon(plan.releases) <= budget {
                return Ok(plan);
            }
            noise = if asked.mechanism == Mechanism::Xor { noise + (0.5 - noise) * 1e-4 } else { noise * 1.0001 };
            plan.set(noise, exact, spread)?;
        }
        Err(Error::input(format!("--epsilon {budget}: no noise on the grid is enough for it; ask for a larger one")))
    }

    /// The noise that the budget asks for.
    fn wanted(&self, epsilon: f64, sensitivity: f64) -> Result<f64> {
        let NoiseRequest { mechanism, delta, classic, releases, .. } = self.asked;
        let wrong = |why: String| Err(Error::input(why));
        if epsilon <= 0.0 {
            return wrong(format!("--epsilon {epsilon}: must be above 0"));
        }
        match mechanism {
            Mechanism::Gaussian if delta <= 0.0 => {
                wrong("--dp gaussian: needs a --delta above 0; with 0 use laplace".into())
            }
            Mechanism::Gaussian if classic => {
                let each = epsilon / releases as f64;
                if each >= 1.0 {
                    return wrong(format!(
                        "--dp-calibration classic: the papers' formula holds for epsilon below 1, and each of {releases} \
                         release(s) would have {each}; use analytic, or less"
                    ));
                }
                Ok(sensitivity * gaussian::classic(each, delta / releases as f64))
            }
            Mechanism::Gaussian => match PrivacyLoss::gaussian(epsilon, delta, releases) {
                PrivacyLoss::Gaussian { mu } => Ok(sensitivity / mu),
                PrivacyLoss::Pure { .. } => unreachable!("a Gaussian loss"),
            },
            Mechanism::Laplace => Ok(sensitivity / self.pure(epsilon, 1.0)),
            Mechanism::Xor => Ok(1.0 / (1.0 + self.pure(epsilon, sensitivity).exp())),
        }
    }

    /// The ε of each piece that a release of pure noise may have.
    fn pure(&self, epsilon: f64, pieces: f64) -> f64 {
        match PrivacyLoss::pure(epsilon, self.asked.delta, self.asked.releases, pieces) {
            PrivacyLoss::Pure { epsilon, .. } => epsilon,
            PrivacyLoss::Gaussian { .. } => unreachable!("a pure loss"),
        }
    }

    /// Takes this noise, rounded up on a grid that is laid out for it.
    fn set(&mut self, noise: f64, exact: f64, spread: f64) -> Result<()> {
        if self.asked.mechanism == Mechanism::Xor {
            if !(noise > 0.0 && noise <= 0.5) {
                return Err(Error::input(format!(
                    "--dp-noise {noise}: bits are flipped with a chance above 0, at most 0.5"
                )));
            }
            self.scale = (ldexp(noise, 64).ceil() as u64).clamp(1, 1 << 63);
            let p = ldexp(self.scale as f64, -64);
            self.loss = PrivacyLoss::Pure { epsilon: ((1.0 - p) / p).ln(), pieces: exact };
            return Ok(());
        }
        if !(noise > 0.0 && noise.is_finite()) {
            return Err(Error::input(format!("--dp-noise {noise}: must be a number above 0")));
        }
        let step = (exact / spread).min(noise) / 65536.0;
        self.grid = ldexp(1.0, step.log2().floor() as i32);
        // The last factor is for the rounding of the norm that a message is cut by.
        self.sensitivity = (exact + self.grid * spread) * (1.0 + ldexp(1.0, -30));
        let whole = noise / self.grid;
        let share = (whole / (self.sharing.max(1) as f64).sqrt()).ceil();
        // A sum of all shares has to stay below 2⁶³, out to 64 standard deviations.
        let sum = share * 64.0 * (self.sharing + 1) as f64;
        if !(self.grid > 0.0 && share <= LARGEST_SCALE as f64 && sum < ldexp(1.0, 63)) {
            return Err(Error::input(format!(
                "--dp: noise of {noise:e} on messages of {} entries with sensitivity {exact:e} does not fit the grid; ask \
                 for less noise or a smaller --clip",
                self.length
            )));
        }
        self.scale = share as u64;
        let ratio = self.sensitivity / self.noise();
        self.loss = match self.asked.mechanism {
            Mechanism::Gaussian => PrivacyLoss::Gaussian { mu: ratio },
            _ => PrivacyLoss::Pure { epsilon: ratio, pieces: 1.0 },
        };
        Ok(())
    }

    /// Standard deviation or scale of the noise that counts (of a sum without one party's share), or the chance of a flip.
    pub fn noise(&self) -> f64 {
        match self.asked.mechanism {
            Mechanism::Xor => ldexp(self.scale as f64, -64),
            _ => self.scale as f64 * self.grid * (self.sharing.max(1) as f64).sqrt(),
        }
    }

    /// The kind of noise.
    pub fn mechanism(&self) -> Mechanism {
        self.asked.mechanism
    }

    /// Releases within the budget.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Most by which two messages differ.
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }

    /// The ε of so many releases. A discrete Gaussian of s steps and the rounded real one differ in a probability by a
    /// factor e^η, |η| ≤ max(z², 1)/(24 s²) at z standard deviations; all but e^−60 of the probability lies where z² is
    /// below 2 (ε + 60 + ln of the entries). (A sum of shares is a discrete Gaussian to 10 e^(−π² s²): Kairouz, Liu,
    /// Steinke 2021, Theorem 11.)
    pub fn epsilon(&self, releases: u64) -> f64 {
        if releases == 0 {
            return 0.0;
        }
        let epsilon = self.loss.epsilon(releases, self.asked.delta);
        if self.asked.mechanism != Mechanism::Gaussian {
            return epsilon;
        }
        let entries = releases as f64 * self.length as f64;
        let far = 2.0 * (epsilon + 60.0 + entries.ln());
        epsilon + 2.0 * entries * far / (24.0 * (self.scale as f64).powi(2))
    }

    /// One party's noise for an entry, in steps of the grid.
    pub(super) fn draw(&self, noise: &mut Noise) -> i64 {
        match self.asked.mechanism {
            Mechanism::Gaussian => noise.gaussian(self.scale),
            _ => noise.laplace(self.scale),
        }
    }

    /// Whether a bit is flipped.
    pub(super) fn flips(&self, noise: &mut Noise) -> bool {
        noise.flip(self.scale)
    }

    /// The step of the grid.
    pub(super) fn grid(&self) -> f64 {
        self.grid
    }

    /// What bounds a message.
    pub(super) fn bound(&self) -> Bound {
        self.bound
    }

    /// For trace, summary and output.
    pub(super) fn json(&self, done: u64) -> Vec<(&'static str, Value)> {
        let name = match self.asked.mechanism {
            Mechanism::Gaussian => "discrete Gaussian",
            Mechanism::Laplace => "discrete Laplace",
            Mechanism::Xor => "flipped bits",
        };
        let bound = match (self.bound, self.asked.mechanism) {
            (Bound::Box, _) => "entries in [0, 1]".to_string(),
            (Bound::Units(k), _) => format!("{k} nonnegative components of norm at most 1"),
            (Bound::Ball(r), Mechanism::Laplace) => format!("sum of |changes| at most {r}"),
            (Bound::Ball(r), _) => format!("norm of the change at most {r}"),
            (Bound::Ones(c), _) => format!("at most {c} ones"),
        };
        let shared = if self.sharing > 0 { "the sum of all parties" } else { "each party's message" };
        let planned = if self.asked.epsilon.is_some() { json!(self.releases) } else { Value::Null };
        vec![
            ("mechanism", name.into()),
            ("unit", "one party's whole data, in the place of any other".into()),
            ("noise_on", shared.into()),
            ("noise", self.noise().into()),
            ("grid", self.grid.into()),
            ("bound", bound.into()),
            ("sensitivity", self.sensitivity.into()),
            ("entries", self.length.into()),
            ("calibration", if self.asked.classic { "classic" } else { "analytic" }.into()),
            ("releases", done.into()),
            ("releases_planned", planned),
            ("epsilon_spent", self.epsilon(done).into()),
            ("epsilon", json!(self.asked.epsilon)),
            ("delta", self.asked.delta.into()),
        ]
    }
}

/// Most by which two messages differ, and the factor by which rounding each entry by half a step adds to it.
fn sensitivity(mechanism: Mechanism, bound: Bound, length: usize) -> (f64, f64) {
    let d = length as f64;
    match (mechanism, bound) {
        (Mechanism::Xor, Bound::Ones(c)) => ((2.0 * c as f64).min(d), 0.0),
        (Mechanism::Xor, _) => (d, 0.0),
        (Mechanism::Gaussian, Bound::Ball(r)) => (2.0 * r, d.sqrt()),
        // Nonnegative components of norm 1 are √2 apart at most, in each of k places.
        (Mechanism::Gaussian, Bound::Units(k)) => ((2.0 * k as f64).sqrt(), d.sqrt()),
        (Mechanism::Gaussian, _) => (d.sqrt(), d.sqrt()),
        (Mechanism::Laplace, Bound::Ball(r)) => (2.0 * r, d),
        (Mechanism::Laplace, Bound::Units(k)) => ((2.0 * k as f64 * d).sqrt(), d),
        (Mechanism::Laplace, _) => (d, d),
    }
}
