//! A lower bound on ε from repeated runs on two neighbouring data sets: it follows from how well a threshold on a score
//! distinguishes them (Jagielski, Ullman, Oprea, Auditing Differentially Private Machine Learning, NeurIPS 2020). A bound
//! above the claimed ε refutes the claim; one below it proves nothing.

/// Thresholds that are tried.
const THRESHOLDS: usize = 100;

/// A lower bound that holds except with the requested probability of error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LowerBound {
    /// The bound on ε, for any mechanism.
    pub epsilon: f64,
    /// The bound on μ, for a mechanism whose trade-off is that of Gaussian noise (Nasr et al., Tight Auditing of
    /// Differentially Private Machine Learning, USENIX Security 2023).
    pub mu: f64,
}

/// Confidence limits of a probability of which `hits` of `trials` were observed (Clopper and Pearson, 1934); each is wrong
/// with probability `error`.
pub fn limits(hits: usize, trials: usize, error: f64) -> (f64, f64) {
    let low = if hits == 0 { 0.0 } else { root(|p| at_least(hits, trials, p) > error) };
    // P(X ≤ hits) decreases with p.
    let high = if hits >= trials { 1.0 } else { root(|p| 1.0 - at_least(hits + 1, trials, p) <= error) };
    (low, high)
}

/// The smallest p in 0..1 for which a monotone predicate holds.
fn root(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if holds(middle) { high = middle } else { low = middle }
    }
    0.5 * (low + high)
}

/// P(X ≥ hits) of the binomial distribution.
fn at_least(hits: usize, trials: usize, p: f64) -> f64 {
    if hits == 0 || p >= 1.0 {
        return 1.0;
    }
    if p <= 0.0 || hits > trials {
        return 0.0;
    }
    let gamma = |x: usize| libm::lgamma(x as f64 + 1.0);
    let term = |i: usize| {
        let ways = gamma(trials) - gamma(i) - gamma(trials - i);
        (ways + i as f64 * p.ln() + (trials - i) as f64 * (-p).ln_1p()).exp()
    };
    // The terms are summed on the side of the mean on which they decrease.
    let odds = p / (1.0 - p);
    if hits as f64 > p * trials as f64 {
        let next =
            |&(i, x): &(usize, f64)| (i < trials).then(|| (i + 1, x * (trials - i) as f64 / (i + 1) as f64 * odds));
        sum(std::iter::successors(Some((hits, term(hits))), next))
    } else {
        let next = |&(i, x): &(usize, f64)| (i > 0).then(|| (i - 1, x * i as f64 / (trials - i + 1) as f64 / odds));
        1.0 - sum(std::iter::successors(Some((hits - 1, term(hits - 1))), next))
    }
}

/// The sum of decreasing terms.
fn sum(terms: impl Iterator<Item = (usize, f64)>) -> f64 {
    let mut total = 0.0;
    for (_, x) in terms {
        total += x;
        if x < 1e-17 * total {
            break;
        }
    }
    total.min(1.0)
}

/// Φ⁻¹, the quantile of the standard normal distribution.
fn quantile(p: f64) -> f64 {
    root(|x| 0.5 * libm::erfc((0.5 - x) * 80.0 / std::f64::consts::SQRT_2) >= p).mul_add(80.0, -40.0)
}

/// A lower bound on ε at `delta` from scores of runs with and without the difference. Scores of the runs with it should
/// be higher. Every second score chooses the threshold, the others are counted. The bound is wrong with probability
/// `error`.
pub fn lower_bound(with: &[f64], without: &[f64], delta: f64, error: f64) -> LowerBound {
    let half = |scores: &[f64], first: usize| {
        let mut half: Vec<f64> = scores.iter().skip(first).step_by(2).copied().collect();
        half.sort_unstable_by(f64::total_cmp);
        half
    };
    let (choosing, counted) = ([half(with, 0), half(without, 0)], [half(with, 1), half(without, 1)]);
    if choosing.iter().chain(&counted).any(Vec::is_empty) {
        return LowerBound { epsilon: 0.0, mu: 0.0 };
    }
    let mut all: Vec<f64> = choosing.concat();
    all.sort_unstable_by(f64::total_cmp);
    let thresholds = (1..THRESHOLDS).map(|i| all[i * all.len() / THRESHOLDS]);
    let tried: Vec<(f64, LowerBound)> =
        thresholds.map(|threshold| (threshold, rates(&choosing, threshold, delta, error))).collect();
    let best = |of: fn(LowerBound) -> f64| {
        let chosen = tried.iter().max_by(|(_, a), (_, b)| of(*a).total_cmp(&of(*b)));
        chosen.map_or(0.0, |(threshold, _)| of(rates(&counted, *threshold, delta, error)))
    };
    LowerBound { epsilon: best(|b| b.epsilon), mu: best(|b| b.mu) }
}

/// The bound by one threshold, from sorted scores.
fn rates([with, without]: &[Vec<f64>; 2], threshold: f64, delta: f64, error: f64) -> LowerBound {
    let above = |scores: &[f64]| scores.len() - scores.partition_point(|&x| x < threshold);
    let found = limits(above(with), with.len(), 0.5 * error).0;
    let wrong = limits(above(without), without.len(), 0.5 * error).1;
    // P(S | with) ≤ e^ε P(S | without) + δ, and the same for the complement of S.
    let ratio = |p: f64, q: f64| if p > delta { ((p - delta) / q).ln() } else { 0.0 };
    LowerBound {
        epsilon: ratio(found, wrong).max(ratio(1.0 - wrong, 1.0 - found)).max(0.0),
        mu: if found > 0.0 && wrong < 1.0 { (quantile(found) - quantile(wrong)).max(0.0) } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{Beta, ContinuousCDF, Normal};

    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    #[test]
    fn limits_are_the_quantiles_of_the_beta_distribution() {
        for (hits, trials) in [(1usize, 10usize), (7, 20), (500, 1000), (999, 1000)] {
            let (low, high) = limits(hits, trials, 0.025);
            let beta = |a: usize, b: usize| Beta::new(a as f64, b as f64).unwrap();
            let expected =
                [beta(hits, trials - hits + 1).inverse_cdf(0.025), beta(hits + 1, trials - hits).inverse_cdf(0.975)];
            assert!((low - expected[0]).abs() < 1e-6 && (high - expected[1]).abs() < 1e-6, "{low} {high} {expected:?}");
        }
        assert_eq!((limits(0, 50, 0.05).0, limits(50, 50, 0.05).1), (0.0, 1.0));
        // The rule of three.
        assert!((limits(0, 1000, 0.05).1 - 0.003).abs() < 1e-4);
        for p in [1e-6, 0.1, 0.5, 0.99] {
            assert!((quantile(p) - Normal::standard().inverse_cdf(p)).abs() < 1e-6, "{p}");
        }
    }

    #[test]
    fn the_bound_comes_near_to_the_truth_and_not_above_it() {
        let mut noise = Stream::new(4, Purpose::Probe, 0).at(0);
        let mut draws = |mean: f64| -> Vec<f64> { (0..20_000).map(|_| mean + noise.normal()).collect() };
        for mu in [0.5, 1.0, 3.0] {
            let (with, without) = (draws(mu), draws(0.0));
            let bound = lower_bound(&with, &without, 1e-5, 1e-3);
            assert!(bound.mu < mu && bound.mu > 0.85 * mu - 0.06, "{mu}: {bound:?}");
            let true_epsilon = fednmf_privacy::PrivacyLoss::Gaussian { mu }.epsilon(1, 1e-5);
            assert!(bound.epsilon < true_epsilon && bound.epsilon > 0.2 * true_epsilon, "{mu}: {bound:?}");
            // Scores the wrong way round prove nothing.
            assert!(lower_bound(&without, &with, 1e-5, 1e-3).mu < 0.1);
        }
        let (a, b) = (draws(0.0), draws(0.0));
        let none = lower_bound(&a, &b, 1e-5, 1e-3);
        assert!(none.epsilon < 0.05 && none.mu < 0.05, "{none:?}");
        assert_eq!(lower_bound(&[], &[1.0], 0.0, 0.1).epsilon, 0.0);
    }
}
