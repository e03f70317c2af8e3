//! The weight γ of the proximal term that ties a party's V to V̂ in its local steps, which the paper leaves open.
//!
//! Held at 1 the parties of noisy data each follow their own noise; from 30 % of flipped cells on, the mean of what they
//! found is below ½ everywhere. Held at 10 it finds too little in any data. Falling from 10 to 1 it finds more than either
//! where there is noise, and less than 1 where there is little. Which of the two the data are, shows in V̂ after a few rounds
//! at 1: so these come first, and all starts over with a γ that falls where rounding would change V̂ by more than the ones
//! that it leaves, ‖V̂ − [V̂]‖₁ > ‖[V̂]‖₁: what the parties agree on is then less than what they disagree on. Nothing is sent
//! for it, V̂ being known to all.

use crate::linalg::Real;

/// The rounds at 1 that come first.
const PROBE: usize = 10;
/// What γ falls from, and how from round to round.
const FIRST: f64 = 10.0;
const FALL: f64 = 0.95;

/// γ, round by round.
#[derive(Debug, Clone, Copy)]
pub struct Gamma {
    last: f64,
    probes: bool,
    /// The round in which all started over; 0 while that is not so.
    pub began: usize,
}

impl Gamma {
    /// The same in all rounds.
    pub fn fixed(gamma: f64) -> Gamma {
        Gamma { last: gamma, probes: false, began: 0 }
    }

    /// For b local steps: 1 up to 10 of them, 10 for 50; at 0 the parties drift apart, above 30 nothing moves. It may fall
    /// where steps are neither so few that nobody drifts, nor so many that γ is high anyway; and not where rounds cost
    /// privacy (`private`). The number of rounds to come decides nothing: a run may be taken up again for more.
    pub fn auto(local_iters: usize, private: bool) -> Gamma {
        let last = if local_iters <= 10 { 1.0 } else { (local_iters as f64 / 5.0).min(20.0) };
        let probes = !private && (3..=10).contains(&local_iters);
        Gamma { last, probes, began: 0 }
    }

    /// γ in this round.
    pub fn at(&self, round: usize) -> f64 {
        if self.began == 0 {
            return self.last;
        }
        (FIRST * FALL.powi((round - self.began).min(1 << 20) as i32)).max(self.last)
    }

    /// Whether all starts over before the next round, this many having led to this V̂; equal on all ranks.
    pub fn starts_over<T: Real>(&mut self, rounds: usize, v: &[T]) -> bool {
        if !self.probes || self.began > 0 || rounds != PROBE {
            return false;
        }
        let ones = v.iter().filter(|v| v.as_f64() > 0.5).count();
        let changed: f64 = v.iter().map(|v| v.as_f64().min(1.0 - v.as_f64())).sum();
        let again = changed > ones as f64;
        if again {
            self.began = rounds;
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::Gamma;

    #[test]
    fn it_falls_only_where_rounding_changes_more_than_it_leaves() {
        let (clear, blurred) = ([0.9, 1.0, 0.0, 0.1], [0.4, 0.5, 0.2, 0.3]);
        // One 1 is left, and rounding changes entries by 0.9 or 1.1.
        let (nearly, not_quite) = ([0.9, 0.4, 0.4, 0.0], [0.9, 0.4, 0.4, 0.2]);
        for (v, falls) in [(clear, false), (blurred, true), (nearly, false), (not_quite, true)] {
            let mut gamma = Gamma::auto(10, false);
            assert!(!gamma.starts_over(9, &v) && gamma.at(9) == 1.0);
            assert_eq!(gamma.starts_over(10, &v), falls);
            assert_eq!(gamma.at(10), if falls { 10.0 } else { 1.0 });
            assert!(!gamma.starts_over(11, &blurred));
            assert!(gamma.at(11) <= gamma.at(10) && gamma.at(100) == 1.0);
        }
        for mut held in [Gamma::fixed(3.0), Gamma::auto(10, true), Gamma::auto(50, false), Gamma::auto(1, false)] {
            assert!(!held.starts_over(10, &blurred) && held.at(0) == held.at(90));
        }
    }
}
