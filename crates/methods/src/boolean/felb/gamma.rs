//! The weight γ of the proximal term that ties a party's V to V̂ in its local steps, which the paper leaves open.
//!
//! At a low γ, the parties of noisy data each fit their own noise, and the mean of their components is below ½
//! everywhere. At a high γ they agree, but find less in noise-free data. V̂ shows which case applies by its *blur*, ‖V̂
//! − [V̂]‖₁ / ‖[V̂]‖₁: the change by rounding relative to the ones that remain. A run begins at a low γ. If the blur
//! exceeds 1 after a few rounds, the parties disagree on more entries than they agree on, and the run restarts at a
//! high γ. This γ decreases from round to round while the blur is below about ½, and increases while it is above. No
//! message is needed, because all parties know V̂.

use serde::{Deserialize, Serialize};

use fednmf_linalg::Real;

/// Rounds at the low γ before the decision to restart.
const PROBE: usize = 10;
/// The high γ, and the factors by which it decreases and increases per round. It increases faster, because what V̂
/// loses does not return.
const HIGH: f64 = 10.0;
const FALL: f64 = 0.9;
const RISE: f64 = 1.25;
/// The blur above which a run restarts, and the blur above which γ increases.
const STARTS_OVER: f64 = 1.0;
const RISES: f64 = 0.55;

/// γ, round by round.
#[derive(Debug, Clone, Copy)]
pub struct Gamma {
    low: f64,
    probes: bool,
    state: GammaState,
}

/// The part of γ's state that a checkpoint keeps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GammaState {
    /// γ in the next round.
    pub gamma: f64,
    /// The round in which the run restarted; 0 if it has not.
    pub began: usize,
}

impl Gamma {
    /// A constant γ.
    pub fn fixed(gamma: f64) -> Gamma {
        Gamma { low: gamma, probes: false, state: GammaState { gamma, began: 0 } }
    }

    /// An adaptive γ for b local steps: 1 for up to 10 steps, 10 for 50. At 0 the parties drift apart; above 30 nothing
    /// moves. γ is adapted only if the steps are neither so few that no party drifts nor so many that γ is high anyway,
    /// and not if rounds cost privacy (`private`), because a restarted run spends them twice. The number of remaining
    /// rounds has no influence, because a run may be resumed with more.
    pub fn auto(local_iters: usize, private: bool) -> Gamma {
        let low = if local_iters <= 10 { 1.0 } else { (local_iters as f64 / 5.0).min(20.0) };
        Gamma { probes: !private && (3..=10).contains(&local_iters), ..Gamma::fixed(low) }
    }

    /// γ in the next round.
    pub fn get(&self) -> f64 {
        self.state.gamma
    }

    /// The round in which the run restarted; 0 if it did not.
    pub fn began(&self) -> usize {
        self.state.began
    }

    pub fn state(&self) -> GammaState {
        self.state
    }

    pub fn restore(&mut self, state: GammaState) {
        self.state = state;
    }

    /// Adapts γ to the V̂ of the last of `rounds` rounds, which is equal on all ranks. Returns whether the run restarts.
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

/// Whether the blur of V̂ exceeds `blur`.
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
        // One entry is rounded to 1; rounding changes entries by 0.9 or 1.1 in total.
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
