//! What a party releases under differential privacy: a message cut to its bound, put on a grid, with noise on it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::privacy::noise::{NOISE_KEY, Noise};
use crate::privacy::plan::{Bound, Mechanism, Plan};

/// The releases of the hosted parties in a run.
pub struct Releases {
    plan: Plan,
    /// Each hosted party's key of noise.
    keys: Vec<[u8; NOISE_KEY]>,
    /// Releases of each party so far.
    done: u64,
    /// Of each hosted party, how many of them had to be cut.
    cut: Vec<u64>,
}

/// A party's releases in its checkpoint. The key is secret: it predicts all noise of the run.
#[derive(Serialize, Deserialize)]
pub struct SavedReleases {
    key: [u8; NOISE_KEY],
    done: u64,
    cut: u64,
}

impl Releases {
    /// Nothing released yet; a key for each hosted party.
    pub fn new(plan: Plan, keys: Vec<[u8; NOISE_KEY]>) -> Self {
        Releases { cut: vec![0; keys.len()], plan, keys, done: 0 }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Releases so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Whether the budget allows no release more.
    pub fn is_spent(&self) -> bool {
        self.done >= self.plan.releases()
    }

    /// Opens the next release of all parties.
    ///
    /// # Errors
    /// On all ranks, when the budget does not allow it.
    pub fn open(&mut self) -> Result<()> {
        if self.is_spent() {
            return Err(Error::input(format!(
                "--epsilon: the budget is spent after {} release(s); another one would exceed it",
                self.done
            ))
            .on_all_ranks());
        }
        self.done += 1;
        Ok(())
    }

    /// Makes the message of the hosted party number `hosted` private, in place: bound, grid and noise of its own. What
    /// `reference` says is known to everybody.
    pub fn noised<T: Real>(&mut self, hosted: usize, message: &mut [T], reference: Option<&[T]>) {
        let mut noise = Noise::new(&self.keys[hosted], self.done);
        if self.plan.mechanism() == Mechanism::Xor {
            return self.flip(hosted, message, &mut noise);
        }
        let cut = Cut::of(&self.plan, message, reference);
        self.cut[hosted] += u64::from(cut.cuts);
        let (grid, relative) = (self.plan.grid(), self.is_relative());
        for (at, x) in message.iter_mut().enumerate() {
            let known = reference.map_or(0.0, |r| r[at].as_f64());
            let word = steps(cut.entry(at, *x, known), grid).wrapping_add(self.plan.draw(&mut noise));
            *x = T::from_f64(if relative { known } else { 0.0 } + word as f64 * grid);
        }
    }

    /// The message of the hosted party number `hosted` as whole numbers modulo 2⁶⁴, its share of the noise included, for
    /// a sum of all parties' (see [`Releases::decode`]). A party that has nothing to say passes `None`: noise alone.
    pub fn words<T: Real>(&mut self, hosted: usize, message: Option<&[T]>, reference: Option<&[T]>, out: &mut [u64]) {
        let mut noise = Noise::new(&self.keys[hosted], self.done);
        let cut = message.map(|m| Cut::of(&self.plan, m, reference));
        self.cut[hosted] += u64::from(cut.as_ref().is_some_and(|c| c.cuts));
        for (at, out) in out.iter_mut().enumerate() {
            let own = message.zip(cut.as_ref()).map_or(0, |(message, cut)| {
                let known = reference.map_or(0.0, |r| r[at].as_f64());
                steps(cut.entry(at, message[at], known), self.plan.grid())
            });
            *out = own.wrapping_add(self.plan.draw(&mut noise)).cast_unsigned();
        }
    }

    /// The number that a sum of words stands for: of messages, or of their differences from the reference.
    pub fn decode(&self, sum: u64) -> f64 {
        sum.cast_signed() as f64 * self.plan.grid()
    }

    /// Whether what is summed are differences from the reference.
    pub fn is_relative(&self) -> bool {
        matches!(self.plan.bound(), Bound::Ball(_))
    }

    fn flip<T: Real>(&mut self, hosted: usize, bits: &mut [T], noise: &mut Noise) {
        let most = if let Bound::Ones(c) = self.plan.bound() { c } else { bits.len() };
        let mut ones = 0;
        for x in bits {
            let one = x.as_f64() > 0.5;
            ones += usize::from(one);
            let flipped = (one && ones <= most) != self.plan.flips(noise);
            *x = if flipped { T::one() } else { T::zero() };
        }
        self.cut[hosted] += u64::from(ones > most);
    }

    /// How many releases of the hosted parties had to be cut.
    pub fn cut(&self) -> impl Iterator<Item = u64> + '_ {
        self.cut.iter().copied()
    }

    /// Number of hosted parties.
    pub fn hosted(&self) -> usize {
        self.keys.len()
    }

    /// What a resume needs of each hosted party.
    pub fn saved(&self) -> impl Iterator<Item = SavedReleases> + '_ {
        self.keys.iter().zip(&self.cut).map(|(&key, &cut)| SavedReleases { key, done: self.done, cut })
    }

    /// Restores what [`Releases::saved`] returned of a hosted party.
    pub fn restore(&mut self, hosted: usize, saved: SavedReleases) {
        let SavedReleases { key, done, cut } = saved;
        (self.keys[hosted], self.done, self.cut[hosted]) = (key, done, cut);
    }

    /// The table of what was released, for trace, summary and output. `beside` is what the guarantee does not cover.
    pub fn json(&self, beside: &[String]) -> Value {
        let mut table: serde_json::Map<String, Value> =
            self.plan.json(self.done).into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        table.insert("not_covered".into(), beside.into());
        table.into()
    }
}

/// The nearest whole number of steps.
fn steps(x: f64, grid: f64) -> i64 {
    (x / grid).round_ties_even() as i64
}

/// A number, or 0 for what is none: it must not undo a bound.
fn number(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

/// How a message is brought within its bound.
struct Cut {
    bound: Bound,
    /// What to multiply with: a factor for each `component` of entries.
    factors: Vec<f64>,
    component: usize,
    /// Whether this changes the message.
    cuts: bool,
}

impl Cut {
    fn of<T: Real>(plan: &Plan, message: &[T], reference: Option<&[T]>) -> Self {
        let mut cuts = message.iter().any(|x| !x.is_finite());
        let (mut factors, mut component) = (vec![1.0], message.len().max(1));
        match plan.bound() {
            Bound::Box => cuts |= message.iter().any(|x| !(0.0..=1.0).contains(&x.as_f64())),
            Bound::Units(k) => {
                component = (message.len() / k.max(1)).max(1);
                let norm = |part: &[T]| part.iter().map(|x| number(x.as_f64()).max(0.0).powi(2)).sum::<f64>().sqrt();
                factors = message.chunks(component).map(|part| norm(part).max(1.0).recip()).collect();
                // A norm of 1 with the rounding of the message's own precision is no cut.
                cuts |= factors.iter().any(|f| *f < 1.0 - 1e-5);
            }
            Bound::Ball(radius) => {
                let known = |at: usize| reference.map_or(0.0, |r| r[at].as_f64());
                let changes = message.iter().enumerate().map(|(at, x)| number(x.as_f64() - known(at)));
                let norm = match plan.mechanism() {
                    Mechanism::Laplace => changes.map(f64::abs).sum::<f64>(),
                    _ => changes.map(|c| c * c).sum::<f64>().sqrt(),
                };
                if norm > radius {
                    (factors[0], cuts) = (radius / norm, true);
                }
            }
            Bound::Ones(_) => {}
        }
        Cut { bound: plan.bound(), factors, component, cuts }
    }

    /// Entry `at` of the message, less what is `known`, within the bound.
    fn entry<T: Real>(&self, at: usize, x: T, known: f64) -> f64 {
        match self.bound {
            Bound::Box => number(x.as_f64()).clamp(0.0, 1.0),
            Bound::Units(_) => number(x.as_f64()).max(0.0) * self.factors[at / self.component],
            _ => number(x.as_f64() - known) * self.factors[0],
        }
    }
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
