//! The weight γ of the proximal term that ties a party's V to V̂ in its local steps, which the paper leaves open.
//!
//! At a low γ the parties of noisy data each follow their own noise, and the mean of what they found is below ½
//! everywhere. At a high γ they agree, but find less in data that are clear. V̂ shows which of the two is the case, by what
//! rounding changes beside the ones that it leaves, its *blur* ‖V̂ − [V̂]‖₁ / ‖[V̂]‖₁. A run begins at a low γ. If the blur
//! is above 1 after a few rounds, so that the parties disagree on more than they agree on, the run starts over at a high γ,
//! which falls from round to round while the blur is below about ½, and rises while it is above. Nothing is sent for this, since V̂
//! is known to all.

use serde::{Deserialize, Serialize};

use fednmf_linalg::Real;

/// The rounds at the low γ that come first.
const PROBE: usize = 10;
/// The high γ, and the factors by which it falls and rises in a round. A rise is faster, since what V̂ loses does not return.
const HIGH: f64 = 10.0;
const FALL: f64 = 0.9;
const RISE: f64 = 1.25;
/// The blur above which a run starts over, and the one above which γ rises.
const STARTS_OVER: f64 = 1.0;
const RISES: f64 = 0.55;

/// γ, round by round.
#[derive(Debug, Clone, Copy)]
pub struct Gamma {
    low: f64,
    probes: bool,
    state: GammaState,
}

/// What a checkpoint keeps of γ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GammaState {
    /// γ in the next round.
    pub gamma: f64,
    /// The round in which the run started over; 0 while it has not.
    pub began: usize,
}

impl Gamma {
    /// The same in all rounds.
    pub fn fixed(gamma: f64) -> Gamma {
        Gamma { low: gamma, probes: false, state: GammaState { gamma, began: 0 } }
    }

    /// For b local steps: 1 up to 10 of them, 10 for 50; at 0 the parties drift apart, above 30 nothing moves. It is
    /// adapted only where steps are neither so few that nobody drifts, nor so many that γ is high anyway; and not where
    /// rounds cost privacy (`private`), since a run that starts over spends them twice. The number of rounds to come
    /// decides nothing: a run may be resumed for more.
    pub fn auto(local_iters: usize, private: bool) -> Gamma {
        let low = if local_iters <= 10 { 1.0 } else { (local_iters as f64 / 5.0).min(20.0) };
        Gamma { probes: !private && (3..=10).contains(&local_iters), ..Gamma::fixed(low) }
    }

    /// γ in the next round.
    pub fn get(&self) -> f64 {
        self.state.gamma
    }

    /// The round in which the run started over; 0 if it did not.
    pub fn began(&self) -> usize {
        self.state.began
    }

    pub fn state(&self) -> GammaState {
        self.state
    }

    pub fn restore(&mut self, state: GammaState) {
        self.state = state;
    }

    /// Adapts γ to the V̂ of the last of `rounds` rounds, which is equal on all ranks. Returns whether the run starts over.
    pub fn adapt<T: Real>(&mut self, rounds: usize, v: &[T]) -> bool {
        let GammaState { gamma, began } = &mut self.state;
        if !self.probes || *began == 0 && rounds != PROBE {
            return false;
        }
        if *began > 0 {
            *gamma = if is_blurred(v, RISES) { (*gamma * RISE).min(HIGH) } else { (*gamma * FALL).max(self.low) };
            return false;
        }
        if is_blurred(v, STARTS_OVER) {
            (*gamma, *began) = (HIGH, rounds);
        }
        *began > 0
    }
}

/// Whether rounding changes V̂ by more than so many times the ones that it leaves.
fn is_blurred<T: Real>(v: &[T], blur: f64) -> bool {
    let ones = v.iter().filter(|v| v.as_f64() > 0.5).count();
    let changed: f64 = v.iter().map(|v| v.as_f64().min(1.0 - v.as_f64())).sum();
    changed > blur * ones as f64
}

#[cfg(test)]
mod tests {
    use super::{FALL, Gamma, RISE};

    #[test]
    fn the_run_starts_over_only_if_rounding_changes_more_than_it_leaves() {
        let (clear, blurred) = ([0.9, 1.0, 0.0, 0.1], [0.4, 0.5, 0.2, 0.3]);
        // One 1 is left, and rounding changes entries by 0.9 or 1.1.
        let (nearly, not_quite) = ([0.9, 0.4, 0.4, 0.0], [0.9, 0.4, 0.4, 0.2]);
        for (v, again) in [(clear, false), (blurred, true), (nearly, false), (not_quite, true)] {
            let mut gamma = Gamma::auto(10, false);
            assert!(!gamma.adapt(9, &v) && gamma.get() == 1.0);
            assert_eq!(gamma.adapt(10, &v), again);
            assert_eq!((gamma.get(), gamma.began()), if again { (10.0, 10) } else { (1.0, 0) });
            assert!(!gamma.adapt(11, &blurred));
            assert_eq!(gamma.get(), if again { 10.0 } else { 1.0 });
        }
        for mut held in [Gamma::fixed(3.0), Gamma::auto(10, true), Gamma::auto(50, false), Gamma::auto(1, false)] {
            let before = held.get();
            assert!(!held.adapt(10, &blurred) && !held.adapt(11, &clear) && held.get() == before);
        }
    }

    #[test]
    fn it_falls_while_v_is_clear_and_rises_while_it_is_blurred() {
        let (clear, blurred) = ([0.9, 1.0, 0.0, 0.1], [0.4, 0.5, 0.2, 0.3]);
        let mut gamma = Gamma::auto(10, false);
        gamma.adapt(10, &blurred);
        gamma.adapt(11, &clear);
        gamma.adapt(12, &clear);
        let fallen = gamma.get();
        assert!((fallen - 10.0 * FALL * FALL).abs() < 1e-12);
        let mut resumed = Gamma::auto(10, false);
        resumed.restore(gamma.state());
        resumed.adapt(13, &blurred);
        assert!((resumed.get() - (fallen * RISE).min(10.0)).abs() < 1e-12);
        for round in 14..100 {
            gamma.adapt(round, &clear);
        }
        assert_eq!(gamma.get(), 1.0);
    }
}
