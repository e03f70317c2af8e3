//! How messages are made private: bound, sensitivity, grid and noise, and the privacy loss of a run's releases.
//!
//! The unit of privacy is the whole data of one party: neighbouring inputs differ arbitrarily in the data of one party.
//! Nothing is assumed about how a message is computed, since no algorithm here has a provable sensitivity. Messages are
//! clipped to a bound instead, and the *sensitivity* is the largest distance between two messages within the bound.
//! Only [`Bound::Columns`] has a smaller unit, one column: its messages are sums of one clipped term for each column.
//!
//! Entries are rounded to a grid whose step is far below noise and sensitivity, and the noise is a whole number of steps
//! ([`NoiseSampler`]); the sensitivity includes the rounding. The probabilities of the discrete Gaussian on this grid are
//! within a factor e^±η of those of the Gaussian in the exact trade-off; [`NoisePlan::epsilon`] adds η to ε.

use libm::ldexp;
use serde_json::{Value, json};

use fednmf_base::error::{Error, Result};

use super::accounting::PrivacyLoss;
use super::budget::RunLoss;
use super::budget_scope::BudgetUnit;
use super::gaussian;
use super::sampler::{LARGEST_SCALE, NoiseSampler};

/// The sensitivities for which no norm of a message within its bound overflows, and none outside it underflows.
const SENSITIVITIES: std::ops::RangeInclusive<f64> = 1e-100..=1e100;

/// The distribution of the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Gaussian,
    Laplace,
    /// Randomised response: bits are flipped.
    Xor,
}

/// The set that messages are clipped to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Entries are in [0, 1].
    Box,
    /// This many nonnegative components, contiguous in the message, each of Euclidean norm at most 1.
    Units(usize),
    /// The distance from a public reference is at most this: in the Euclidean norm for Gaussian noise, in the 1-norm for
    /// Laplace noise.
    Ball(f64),
    /// At most this many bits are set.
    Ones(usize),
    /// A sum with one term per column, clipped by the method such that replacing one column changes the sum by at most
    /// norm².
    Columns(ColumnBound),
}

/// The columns that a message is a sum over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnBound {
    /// The largest norm of a column: longer ones are scaled down.
    pub norm: f64,
    /// Whether shorter ones are scaled up to it, so that all have this norm.
    pub all: bool,
    /// Number of columns of all parties.
    pub columns: usize,
    /// Increase of the sensitivity by rounding in the sum, as a fraction of the sensitivity.
    pub rounding: f64,
}

/// The requested noise or budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseRequest {
    pub mechanism: Mechanism,
    /// Budget of the whole run.
    pub epsilon: Option<f64>,
    pub delta: f64,
    /// Standard deviation (Gaussian) or scale (Laplace) of the noise of an entry, or the probability that a bit is flipped.
    pub noise: Option<f64>,
    /// Whether to calibrate by [`gaussian::classic`] instead of the exact trade-off.
    pub classic: bool,
    /// Number of releases that the budget is split over.
    pub releases: u64,
}

/// How the messages of a run are made private.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoisePlan {
    request: NoiseRequest,
    bound: Bound,
    /// Entries of a message.
    length: usize,
    /// Largest distance between two messages, including rounding; a number of bits for `Xor`.
    sensitivity: f64,
    /// The step of the grid.
    grid: f64,
    /// Scale of the noise of one party, in steps of the grid; for `Xor` the flip probability times 2⁶⁴.
    scale: u64,
    /// Number of parties whose shares make up the noise of a sum; 0 if each message has noise of its own.
    sharing: usize,
    loss: PrivacyLoss,
    releases: u64,
}

impl NoisePlan {
    /// A plan for messages of `length` entries within `bound`. `parties` is given if only sums over all parties are
    /// visible: each party then adds a share of the noise such that the shares of all parties but one suffice, since a
    /// party knows its own share.
    ///
    /// # Errors
    /// If the request cannot be met, with the reason.
    pub fn new(request: NoiseRequest, bound: Bound, length: usize, parties: Option<usize>) -> Result<Self> {
        let sharing = parties.map_or(0, |p| p.max(2) - 1);
        let (exact, spread) = sensitivity(request.mechanism, bound, length);
        if !SENSITIVITIES.contains(&exact) {
            return Err(Error::input(format!(
                "--clip: bounds a message to a sensitivity of {exact:e}, with which norms are not computed reliably; scale the \
                 data, and with them the bound"
            )));
        }
        let mut plan = NoisePlan {
            request,
            bound,
            length,
            sensitivity: exact,
            grid: 1.0,
            scale: 1,
            sharing,
            loss: PrivacyLoss::Gaussian { mu: 0.0 },
            releases: request.releases,
        };
        let mut noise = match (request.noise, request.epsilon) {
            (Some(noise), _) => noise,
            (None, Some(epsilon)) => plan.required_noise(epsilon, exact)?,
            (None, None) => {
                return Err(Error::input("--dp: give --epsilon, the budget of the whole run, or --dp-noise"));
            }
        };
        plan.set(noise, exact, spread)?;
        let Some(budget) = request.epsilon else { return Ok(plan) };
        if request.noise.is_some() {
            plan.releases = plan.loss.releases(budget, request.delta, request.releases);
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
        // The grid adds little to ε, but the total must stay within the budget, so the noise is increased until it
        // does.
        for _ in 0..200 {
            if plan.epsilon(plan.releases) <= budget {
                return Ok(plan);
            }
            noise = if request.mechanism == Mechanism::Xor { noise + (0.5 - noise) * 1e-4 } else { noise * 1.0001 };
            plan.set(noise, exact, spread)?;
        }
        Err(Error::input(format!("--epsilon {budget}: no noise on the grid meets it; give a larger budget")))
    }

    /// The noise that the budget requires.
    fn required_noise(&self, epsilon: f64, sensitivity: f64) -> Result<f64> {
        let NoiseRequest { mechanism, delta, classic, releases, .. } = self.request;
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
                         release(s) would have {each}; use analytic, or a smaller epsilon"
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

    /// The ε that each piece of a release with pure noise may have.
    fn pure(&self, epsilon: f64, pieces: f64) -> f64 {
        match PrivacyLoss::pure(epsilon, self.request.delta, self.request.releases, pieces) {
            PrivacyLoss::Pure { epsilon, .. } => epsilon,
            PrivacyLoss::Gaussian { .. } => unreachable!("a pure loss"),
        }
    }

    /// Chooses the grid for this noise and rounds the noise up to it.
    fn set(&mut self, noise: f64, exact: f64, spread: f64) -> Result<()> {
        if self.request.mechanism == Mechanism::Xor {
            if !(noise > 0.0 && noise <= 0.5) {
                return Err(Error::input(format!(
                    "--dp-noise {noise}: bits are flipped with a probability above 0, at most 0.5"
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
        // The last factor covers the rounding of the norm that a message is clipped by.
        let rounding = ldexp(1.0, -30) + ldexp(self.length as f64, -52);
        self.sensitivity = (exact + self.grid * spread) * (1.0 + rounding);
        let whole = noise / self.grid;
        let share = (whole / (self.sharing.max(1) as f64).sqrt()).ceil();
        // The sum of all shares must stay below 2⁶³ up to 64 standard deviations.
        let sum = share * 64.0 * (self.sharing + 1) as f64;
        let values = if let Bound::Columns(c) = self.bound { c.columns as f64 * exact / self.grid } else { 0.0 };
        if !(self.grid > 0.0 && share <= LARGEST_SCALE as f64 && sum + values < ldexp(1.0, 63)) {
            return Err(Error::input(format!(
                "--dp: noise of {noise:e} on messages of {} entries with sensitivity {exact:e} does not fit the grid; \
                 ask for less noise or a smaller --clip",
                self.length
            )));
        }
        self.scale = share as u64;
        let ratio = self.sensitivity / self.noise();
        self.loss = match self.request.mechanism {
            Mechanism::Gaussian => PrivacyLoss::Gaussian { mu: ratio },
            _ => PrivacyLoss::Pure { epsilon: ratio, pieces: 1.0 },
        };
        Ok(())
    }

    /// Standard deviation or scale of the effective noise (in a sum: without the share of one party), or the flip
    /// probability.
    pub fn noise(&self) -> f64 {
        match self.request.mechanism {
            Mechanism::Xor => ldexp(self.scale as f64, -64),
            _ => self.scale as f64 * self.grid * (self.sharing.max(1) as f64).sqrt(),
        }
    }

    /// Whether releases are sums over columns, each of which is protected.
    pub fn releases_columns(&self) -> bool {
        matches!(self.bound, Bound::Columns(_))
    }

    pub fn mechanism(&self) -> Mechanism {
        self.request.mechanism
    }

    /// Number of releases within the budget.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Largest distance between two messages.
    pub fn sensitivity(&self) -> f64 {
        self.sensitivity
    }

    /// The requested epsilon, if there was one, and delta.
    pub(super) fn budget(&self) -> (Option<f64>, f64) {
        (self.request.epsilon, self.request.delta)
    }

    /// The ε of `releases` releases. The probabilities of a discrete Gaussian of s steps and of the rounded continuous one
    /// differ by a factor e^η with |η| ≤ max(z², 1)/(24 s²) at z standard deviations, and all but e^−60 of the mass has
    /// z² < 2 (ε + 60 + ln entries). A sum of shares is a discrete Gaussian to 10 e^(−π² s²) (Kairouz, Liu, Steinke, The
    /// Distributed Discrete Gaussian Mechanism, ICML 2021, Theorem 11).
    pub fn epsilon(&self, releases: u64) -> f64 {
        if releases == 0 {
            return 0.0;
        }
        self.loss.epsilon(releases, self.request.delta) + self.grid_loss(releases)
    }

    /// The amount that the grid adds to the ε of `releases` releases; see [`NoisePlan::epsilon`].
    fn grid_loss(&self, releases: u64) -> f64 {
        if self.request.mechanism != Mechanism::Gaussian || releases == 0 {
            return 0.0;
        }
        let entries = releases as f64 * self.length as f64;
        let far = 2.0 * (self.loss.epsilon(releases, self.request.delta) + 60.0 + entries.ln());
        2.0 * entries * far / (24.0 * (self.scale as f64).powi(2))
    }

    /// The ε of `releases` releases, and their loss in the form in which further runs compose with it.
    pub fn loss_of(&self, releases: u64) -> (f64, RunLoss) {
        let loss = RunLoss { loss: self.loss.composed(releases), grid: self.grid_loss(releases) };
        (self.epsilon(releases), loss)
    }

    /// Draws the noise of one party for an entry, in steps of the grid.
    pub(super) fn draw(&self, noise: &mut NoiseSampler) -> i64 {
        match self.request.mechanism {
            Mechanism::Gaussian => noise.gaussian(self.scale),
            _ => noise.laplace(self.scale),
        }
    }

    /// Draws whether a bit is flipped.
    pub(super) fn flips(&self, noise: &mut NoiseSampler) -> bool {
        noise.flip(self.scale)
    }

    /// The privacy unit of the releases, if the input is not transposed.
    pub(super) fn unit(&self) -> BudgetUnit {
        if let Bound::Columns(_) = self.bound { BudgetUnit::Column } else { BudgetUnit::Party }
    }

    /// The noise in the sum of what `parties` release, relative to the largest norm of such a sum; for columns the spectral norm
    /// of the noise on R (m × k), relative to the share of a component in the norm of all columns.
    pub fn noise_over_bound(&self, parties: usize, (m, k): (usize, usize)) -> f64 {
        let (parties, d) = (parties as f64, self.length as f64);
        // The standard deviation in the sum.
        let shared = if self.sharing > 0 { 1.0 } else { parties.sqrt() };
        let sigma = match self.request.mechanism {
            Mechanism::Gaussian => self.noise(),
            Mechanism::Laplace => self.noise() * std::f64::consts::SQRT_2,
            // A bit counts 1 - 2p, give or take that of the flips.
            Mechanism::Xor => (self.noise() * (1.0 - self.noise())).sqrt() / (1.0 - 2.0 * self.noise()),
        } * shared;
        match self.bound {
            Bound::Columns(columns) => {
                let (m, k) = (m as f64, k as f64);
                sigma * (m.sqrt() + k.sqrt()) * k / (columns.columns as f64 * self.sensitivity)
            }
            Bound::Box => sigma / parties,
            Bound::Units(k) => sigma * (d / k as f64).sqrt() / parties,
            Bound::Ball(radius) => sigma * d.sqrt() / (parties * radius),
            Bound::Ones(ones) => sigma * (d / ones as f64).sqrt() / parties,
        }
    }

    /// Step of the grid.
    pub(super) fn grid(&self) -> f64 {
        self.grid
    }

    /// The set that messages are clipped to.
    pub(super) fn bound(&self) -> Bound {
        self.bound
    }

    /// The plan and the loss after `done` releases, for trace, summary and output.
    pub(super) fn json(&self, done: u64) -> Vec<(&'static str, Value)> {
        let name = match self.request.mechanism {
            Mechanism::Gaussian => "discrete Gaussian",
            Mechanism::Laplace => "discrete Laplace",
            Mechanism::Xor => "flipped bits",
        };
        let bound = match (self.bound, self.request.mechanism) {
            (Bound::Box, _) => "entries in [0, 1]".to_string(),
            (Bound::Units(k), _) => format!("{k} nonnegative components of norm at most 1"),
            (Bound::Ball(r), Mechanism::Laplace) => format!("sum of |changes| at most {r}"),
            (Bound::Ball(r), _) => format!("norm of the change at most {r}"),
            (Bound::Ones(c), _) => format!("at most {c} ones"),
            (Bound::Columns(c), _) if c.all => format!("columns at norm {}", c.norm),
            (Bound::Columns(c), _) => format!("columns of norm at most {}", c.norm),
        };
        let shared = if self.sharing > 0 { "the sum of all parties" } else { "each party's message" };
        let planned = if self.request.epsilon.is_some() { json!(self.releases) } else { Value::Null };
        vec![
            ("mechanism", name.into()),
            ("noise_on", shared.into()),
            ("noise", self.noise().into()),
            ("grid", self.grid.into()),
            ("bound", bound.into()),
            ("sensitivity", self.sensitivity.into()),
            ("entries", self.length.into()),
            ("calibration", if self.request.classic { "classic" } else { "analytic" }.into()),
            ("releases", done.into()),
            ("releases_planned", planned),
            ("epsilon_spent", self.epsilon(done).into()),
            ("epsilon", json!(self.request.epsilon)),
            ("delta", self.request.delta.into()),
        ]
    }
}

/// Largest distance between two messages within the bound, and how much rounding adds to it per step of the grid.
fn sensitivity(mechanism: Mechanism, bound: Bound, length: usize) -> (f64, f64) {
    let d = length as f64;
    match (mechanism, bound) {
        (Mechanism::Xor, Bound::Ones(c)) => ((2.0 * c as f64).min(d), 0.0),
        (Mechanism::Xor, _) => (d, 0.0),
        (Mechanism::Gaussian, Bound::Columns(c)) => (c.norm * c.norm * (1.0 + c.rounding), d.sqrt()),
        (Mechanism::Gaussian, Bound::Ball(r)) => (2.0 * r, d.sqrt()),
        // Nonnegative components of norm 1 are at most √2 apart, for each of k components.
        (Mechanism::Gaussian, Bound::Units(k)) => ((2.0 * k as f64).sqrt(), d.sqrt()),
        (Mechanism::Gaussian, _) => (d.sqrt(), d.sqrt()),
        (Mechanism::Laplace, Bound::Columns(c)) => (c.norm * c.norm * (1.0 + c.rounding) * d.sqrt(), d),
        (Mechanism::Laplace, Bound::Ball(r)) => (2.0 * r, d),
        (Mechanism::Laplace, Bound::Units(k)) => ((2.0 * k as f64 * d).sqrt(), d),
        (Mechanism::Laplace, _) => (d, d),
    }
}
