//! Releases: messages clipped to their bound, rounded to the grid, with noise.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, SharedResult};
use fednmf_linalg::Real;

use super::budget::round_up_text;
use super::budget_scope::BudgetUnit;
use super::noise_plan::{Bound, ColumnBound, Mechanism, NoisePlan};
use super::sampler::{NOISE_KEY, NoiseSampler};
use crate::released::{NoiseAdded, Noised};

/// What a release is computed at: a digest of the options and of all public states of the run up to this release, on which
/// the private state of a party depends, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseState([u8; 32]);

impl ReleaseState {
    /// As text, for a [`super::BudgetFile`]. Who knows the public states can compute it.
    pub fn text(&self) -> String {
        self.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Is called before a release with its number and state; an error, on all ranks, prevents the release.
pub type BeforeRelease = Box<dyn FnMut(u64, &ReleaseState) -> SharedResult<()>>;

/// The releases of the hosted parties in a run.
pub struct Releases {
    plan: NoisePlan,
    /// The noise key of each hosted party.
    keys: Vec<[u8; NOISE_KEY]>,
    /// Digest of the options.
    options: [u8; 32],
    /// The state of the last release.
    state: ReleaseState,
    /// Releases of each party so far.
    done: u64,
    before_release: Option<BeforeRelease>,
    /// What the run protects.
    unit: BudgetUnit,
    /// Number of clipped releases of each hosted party; with [`Bound::Columns`] of the clipped columns of a release.
    clipped: Vec<u64>,
}

/// A party's releases in its checkpoint. The key is secret: it predicts all noise of the run.
#[derive(Serialize, Deserialize)]
pub struct SavedReleases {
    key: [u8; NOISE_KEY],
    state: ReleaseState,
    done: u64,
    clipped: u64,
}

impl Releases {
    /// No releases so far; `keys` has one key for each hosted party.
    pub fn new(plan: NoisePlan, keys: Vec<[u8; NOISE_KEY]>) -> Self {
        Releases {
            clipped: vec![0; keys.len()],
            options: Sha256::digest(format!("{plan:?}")).into(),
            state: ReleaseState([0; 32]),
            unit: plan.unit(),
            plan,
            keys,
            done: 0,
            before_release: None,
        }
    }

    /// Names what the run protects, of the input as it is in its file.
    pub fn protect(&mut self, unit: BudgetUnit) {
        self.unit = unit;
    }

    /// Makes the noise depend on these options, in addition to the plan: a run with others draws other noise.
    pub fn bind(&mut self, options: &[u8]) {
        self.options = Sha256::new().chain_update(self.options).chain_update(options).finalize().into();
    }

    /// Calls `f` before each release.
    pub fn before_release(&mut self, f: BeforeRelease) {
        self.before_release = Some(f);
    }

    pub fn plan(&self) -> &NoisePlan {
        &self.plan
    }

    /// Number of releases of each party so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The budget of the run: the epsilon that it may spend, if it is limited, and delta.
    pub fn budget(&self) -> (Option<f64>, f64) {
        self.plan.budget()
    }

    /// The epsilon spent so far.
    pub fn spent(&self) -> f64 {
        self.plan.epsilon(self.done)
    }

    /// The name of the run in a [`super::BudgetFile`], the same after a resume: a digest of the noise key of a hosted party,
    /// which does not reveal the key.
    pub fn run(&self, hosted: usize) -> String {
        let digest = Sha256::new().chain_update(b"fednmf budget v1").chain_update(self.keys[hosted]).finalize();
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the budget is spent.
    pub fn is_spent(&self) -> bool {
        self.done >= self.plan.releases()
    }

    /// Starts the next release of all parties, in this iteration. `shared` is the public factor that it is computed at. What a
    /// party sends is a function of its data, the options, and the iterations and shared factors of all releases so far; so
    /// the noise depends on all of these.
    ///
    /// # Errors
    /// On all ranks, if the budget is spent.
    pub fn open<T: Real>(&mut self, iteration: usize, shared: &[T]) -> SharedResult<()> {
        if self.is_spent() {
            return Err(Error::input(format!(
                "--epsilon: the budget is spent after {} release(s); another one would exceed it",
                self.done
            ))
            .on_all_ranks());
        }
        let number = self.done + 1;
        let mut digest = Sha256::new().chain_update(self.state.0).chain_update(self.options);
        for size in [number, iteration as u64, shared.len() as u64] {
            digest.update(size.to_le_bytes());
        }
        shared.iter().for_each(|x| digest.update(x.as_f64().to_bits().to_le_bytes()));
        let state = ReleaseState(digest.finalize().into());
        if let Some(before) = &mut self.before_release {
            before(number, &state)?;
        }
        (self.done, self.state) = (number, state);
        Ok(())
    }

    /// Makes a message private, in place, with its own noise. `hosted` is the place of its party among the hosted ones,
    /// `reference` a public message that [`Bound::Ball`] is centred at.
    pub fn release<'m, T: Real>(
        &mut self,
        hosted: usize,
        message: &'m mut [T],
        reference: Option<&[T]>,
    ) -> Noised<'m, T> {
        let mut noise = NoiseSampler::new(&self.keys[hosted], &self.state.0);
        if self.plan.mechanism() == Mechanism::Xor {
            self.flip(hosted, message, &mut noise);
            return Noised::new(message);
        }
        let clipping = Clipping::new(&self.plan, message, reference);
        self.clipped[hosted] += u64::from(clipping.clips);
        let (grid, relative) = (self.plan.grid(), self.is_relative());
        for (at, x) in message.iter_mut().enumerate() {
            let known = reference.map_or(0.0, |r| r[at].as_f64());
            let word = steps(clipping.entry(at, *x, known), grid).wrapping_add(self.plan.draw(&mut noise));
            *x = T::from_f64(if relative { known } else { 0.0 } + word as f64 * grid);
        }
        Noised::new(message)
    }

    /// A message with its share of the noise, as numbers modulo 2⁶⁴ for a sum over all parties (see [`Releases::decode`]).
    /// A party that does not take part passes no message and adds only noise.
    pub fn release_words<T: Real>(
        &mut self,
        hosted: usize,
        message: Option<&[T]>,
        reference: Option<&[T]>,
        out: &mut [u64],
    ) -> NoiseAdded {
        let mut noise = NoiseSampler::new(&self.keys[hosted], &self.state.0);
        let clipping = message.map(|m| Clipping::new(&self.plan, m, reference));
        self.clipped[hosted] += u64::from(clipping.as_ref().is_some_and(|c| c.clips));
        for (at, out) in out.iter_mut().enumerate() {
            let own = message.zip(clipping.as_ref()).map_or(0, |(message, clipping)| {
                let known = reference.map_or(0.0, |r| r[at].as_f64());
                steps(clipping.entry(at, message[at], known), self.plan.grid())
            });
            *out = own.wrapping_add(self.plan.draw(&mut noise)).cast_unsigned();
        }
        NoiseAdded::new()
    }

    /// The value of a sum of words: of messages, or of their differences from the reference ([`Releases::is_relative`]).
    pub fn decode(&self, sum: u64) -> f64 {
        sum.cast_signed() as f64 * self.plan.grid()
    }

    /// Whether sums are of differences from the reference.
    pub fn is_relative(&self) -> bool {
        matches!(self.plan.bound(), Bound::Ball(_))
    }

    fn flip<T: Real>(&mut self, hosted: usize, bits: &mut [T], noise: &mut NoiseSampler) {
        let most = if let Bound::Ones(c) = self.plan.bound() { c } else { bits.len() };
        let mut ones = 0;
        for x in bits {
            let one = x.as_f64() > 0.5;
            ones += usize::from(one);
            let flipped = (one && ones <= most) != self.plan.flips(noise);
            *x = if flipped { T::one() } else { T::zero() };
        }
        self.clipped[hosted] += u64::from(ones > most);
    }

    /// Records how many columns of a party its method has clipped, with [`Bound::Columns`].
    pub fn count_clipped(&mut self, hosted: usize, columns: u64) {
        self.clipped[hosted] = columns;
    }

    /// The bound on columns, if messages are sums over them.
    pub fn columns(&self) -> Option<ColumnBound> {
        if let Bound::Columns(columns) = self.plan.bound() { Some(columns) } else { None }
    }

    /// Number of clipped releases of each hosted party; with [`Bound::Columns`] of the clipped columns of a release.
    pub fn clipped(&self) -> impl Iterator<Item = u64> + '_ {
        self.clipped.iter().copied()
    }

    /// Number of hosted parties.
    pub fn hosted(&self) -> usize {
        self.keys.len()
    }

    /// The state of each hosted party for a resume.
    pub fn saved(&self) -> impl Iterator<Item = SavedReleases> + '_ {
        let (state, done) = (self.state, self.done);
        self.keys.iter().zip(&self.clipped).map(move |(&key, &clipped)| SavedReleases { key, state, done, clipped })
    }

    /// Restores the state of a hosted party that [`Releases::saved`] returned.
    pub fn restore(&mut self, hosted: usize, saved: SavedReleases) {
        let SavedReleases { key, state, done, clipped } = saved;
        (self.keys[hosted], self.state, self.done, self.clipped[hosted]) = (key, state, done, clipped);
    }

    /// The table of releases for trace, summary and output, with the verdict on the run as a whole. `not_covered` lists what
    /// else has left the parties, and other reasons for which epsilon does not hold.
    pub fn json(&self, not_covered: &[String]) -> Value {
        let mut table: serde_json::Map<String, Value> =
            self.plan.json(self.done).into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        let (guarantee, clause) = match (not_covered, self.spent()) {
            ([], epsilon) if epsilon.is_finite() => (
                "formal",
                format!("{}; epsilon {}, delta {}", self.unit.replaced(), round_up_text(epsilon), self.plan.budget().1),
            ),
            ([], _) => ("none", "epsilon is infinite at delta 0".into()),
            (reasons, _) => ("none", format!("epsilon does not cover {}", reasons.join("; "))),
        };
        table.insert("unit".into(), self.unit.replaced().into());
        table.insert("guarantee".into(), guarantee.into());
        table.insert("verdict".into(), format!("{guarantee}: {clause}").into());
        table.insert("not_covered".into(), not_covered.into());
        table.into()
    }
}

/// x rounded to steps of the grid.
fn steps(x: f64, grid: f64) -> i64 {
    (x / grid).round_ties_even() as i64
}

/// x, or 0 if x is not finite: the bound must hold for every message. Not for sums over columns, which one column must not
/// erase.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

/// How a message is clipped to its bound.
pub(super) struct Clipping {
    bound: Bound,
    /// A factor for each run of `component` entries.
    factors: Vec<f64>,
    component: usize,
    /// Whether this changes the message.
    clips: bool,
}

impl Clipping {
    pub(super) fn new<T: Real>(plan: &NoisePlan, message: &[T], reference: Option<&[T]>) -> Self {
        let mut clips = message.iter().any(|x| !x.is_finite());
        let (mut factors, mut component) = (vec![1.0], message.len().max(1));
        match plan.bound() {
            Bound::Box => clips |= message.iter().any(|x| !(0.0..=1.0).contains(&x.as_f64())),
            Bound::Units(k) => {
                component = (message.len() / k.max(1)).max(1);
                let norm = |part: &[T]| part.iter().map(|x| finite(x.as_f64()).max(0.0).powi(2)).sum::<f64>().sqrt();
                factors = message.chunks(component).map(|part| norm(part).max(1.0).recip()).collect();
                // A norm of 1, rounded in the precision of the message, does not count as clipped.
                clips |= factors.iter().any(|f| *f < 1.0 - 1e-5);
            }
            Bound::Ball(radius) => {
                let known = |at: usize| reference.map_or(0.0, |r| r[at].as_f64());
                let changes = message.iter().enumerate().map(|(at, x)| finite(x.as_f64() - known(at)));
                let norm = match plan.mechanism() {
                    Mechanism::Laplace => changes.map(f64::abs).sum::<f64>(),
                    _ => changes.map(|c| c * c).sum::<f64>().sqrt(),
                };
                if norm > radius {
                    (factors[0], clips) = (radius / norm, true);
                }
            }
            Bound::Ones(_) | Bound::Columns(_) => {}
        }
        Clipping { bound: plan.bound(), factors, component, clips }
    }

    /// Entry `at` of the clipped message, minus the entry `known` of the reference.
    pub(super) fn entry<T: Real>(&self, at: usize, x: T, known: f64) -> f64 {
        match self.bound {
            Bound::Box => finite(x.as_f64()).clamp(0.0, 1.0),
            Bound::Units(_) => finite(x.as_f64()).max(0.0) * self.factors[at / self.component],
            Bound::Columns(_) => {
                assert!(x.is_finite(), "entry {at} of a sum over columns is not finite: a column of weight 0 is in it");
                x.as_f64()
            }
            _ => finite(x.as_f64() - known) * self.factors[0],
        }
    }
}
