//! Composition of releases: (ε, δ) of a run from the privacy loss of one release, and back.

use serde::{Deserialize, Serialize};

use super::gaussian;

/// The privacy loss of one release, or of several together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PrivacyLoss {
    /// Gaussian noise with μ = sensitivity / standard deviation.
    Gaussian { mu: f64 },
    /// `pieces` independent pieces, each `epsilon`-private with δ = 0; neighbours may differ in all of them. Laplace noise
    /// is one piece; randomised bits are as many as may differ.
    Pure { epsilon: f64, pieces: f64 },
}

impl PrivacyLoss {
    /// The smallest proven ε of `releases` releases at this δ; each release may depend on those before it.
    pub fn epsilon(self, releases: u64, delta: f64) -> f64 {
        let releases = releases as f64;
        match self {
            PrivacyLoss::Gaussian { mu } => gaussian::epsilon(mu * releases.sqrt(), delta),
            PrivacyLoss::Pure { epsilon, pieces } => {
                let count = pieces * releases;
                (count * epsilon).min(from_renyi(|alpha| count * renyi(epsilon, alpha), delta))
            }
        }
    }

    /// The loss of `releases` releases together.
    #[must_use]
    pub fn composed(self, releases: u64) -> PrivacyLoss {
        let releases = releases as f64;
        match self {
            PrivacyLoss::Gaussian { mu } => PrivacyLoss::Gaussian { mu: mu * releases.sqrt() },
            PrivacyLoss::Pure { epsilon, pieces } => PrivacyLoss::Pure { epsilon, pieces: pieces * releases },
        }
    }

    /// Whether its numbers are possible for a mechanism.
    pub fn is_valid(self) -> bool {
        let numbers = match self {
            PrivacyLoss::Gaussian { mu } => [mu, 0.0],
            PrivacyLoss::Pure { epsilon, pieces } => [epsilon, pieces],
        };
        numbers.into_iter().all(|x| x.is_finite() && x >= 0.0)
    }

    /// The loss that a release with Gaussian noise may have so that `releases` of them stay within (ε, δ).
    pub fn gaussian(epsilon: f64, delta: f64, releases: u64) -> PrivacyLoss {
        PrivacyLoss::Gaussian { mu: gaussian::mu(epsilon, delta) / (releases.max(1) as f64).sqrt() }
    }

    /// The same for pure noise in `pieces` pieces.
    pub fn pure(epsilon: f64, delta: f64, releases: u64, pieces: f64) -> PrivacyLoss {
        let loss = |each: f64| PrivacyLoss::Pure { epsilon: each, pieces };
        let inverse = gaussian::smallest(|inverse| loss(1.0 / inverse).epsilon(releases, delta) <= epsilon);
        loss(1.0 / inverse)
    }

    /// The largest number of releases within (ε, δ), at most `most`.
    pub fn releases(self, epsilon: f64, delta: f64, most: u64) -> u64 {
        let (mut low, mut high) = (0, most.saturating_add(1));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.epsilon(middle, delta) <= epsilon { low = middle } else { high = middle }
        }
        low
    }
}

/// A proven ε of mechanisms of all kinds one after the other, and its δ: Gaussian ones by their exact trade-off, pure ones
/// by the sum of their Rényi divergences. Each kind is evaluated at the smallest δ of all mechanisms that have a δ, so
/// that no further mechanism, whatever its δ, makes the ε smaller.
pub fn composition(losses: impl Iterator<Item = (PrivacyLoss, f64)>) -> (f64, f64) {
    let (mut mu2, mut gaussian) = (0.0, false);
    let (mut pure, mut simple) = (Vec::new(), 0.0);
    let mut least = f64::INFINITY;
    for (loss, delta) in losses {
        if delta > 0.0 {
            least = delta.min(least);
        }
        match loss {
            PrivacyLoss::Gaussian { mu } => {
                mu2 += mu * mu;
                gaussian = true;
            }
            PrivacyLoss::Pure { epsilon, pieces } => {
                pure.push((epsilon, pieces));
                simple += pieces * epsilon;
            }
        }
    }
    let (mut epsilon, mut delta) = (0.0, 0.0);
    if gaussian {
        epsilon += gaussian::epsilon(mu2.sqrt(), least);
        delta += least;
    }
    if !pure.is_empty() {
        let renyi = |alpha: f64| pure.iter().map(|&(epsilon, pieces)| pieces * renyi(epsilon, alpha)).sum();
        let together = if least.is_finite() { from_renyi(renyi, least) } else { f64::INFINITY };
        epsilon += together.min(simple);
        delta += if together < simple { least } else { 0.0 };
    }
    (epsilon, delta)
}

/// The largest Rényi divergence of order α of an ε-private mechanism (Bun and Steinke, Concentrated Differential Privacy,
/// TCC 2016, Proposition 3.3), which randomised response with flip probability 1/(1 + e^ε) attains.
fn renyi(epsilon: f64, alpha: f64) -> f64 {
    let above = 0.5 * epsilon * epsilon * alpha;
    if epsilon < 0.01 {
        // The upper bound of the same proposition, which does not suffer from cancellation.
        return above;
    }
    // ln((sinh(αε) − sinh((α−1)ε)) / sinh(ε)) without overflow.
    let ln_sinh = |x: f64| x + (-(-2.0 * x).exp_m1()).ln();
    let [a, b, c] = [alpha * epsilon, (alpha - 1.0) * epsilon, epsilon].map(ln_sinh);
    ((a + (-((b - a).exp())).ln_1p() - c) / (alpha - 1.0)).clamp(0.0, above.min(epsilon))
}

/// The smallest ε over a grid of orders that a Rényi divergence implies (Canonne, Kamath, Steinke 2020, Proposition 12).
fn from_renyi(renyi: impl Fn(f64) -> f64, delta: f64) -> f64 {
    if delta <= 0.0 {
        return f64::INFINITY;
    }
    let at = |alpha: f64| renyi(alpha) + ((alpha - 1.0) / alpha).ln() - (delta.ln() + alpha.ln()) / (alpha - 1.0);
    let orders = (0..400).map(|i| 1.0 + 1e-3 * 1.05f64.powi(i));
    orders.map(at).fold(f64::INFINITY, f64::min).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaussian_releases_add_up_in_squares() {
        let one = PrivacyLoss::gaussian(1.0, 1e-5, 1);
        assert!((one.epsilon(1, 1e-5) - 1.0).abs() < 1e-9);
        let hundred = PrivacyLoss::gaussian(1.0, 1e-5, 100);
        assert!((hundred.epsilon(100, 1e-5) - 1.0).abs() < 1e-9);
        match (one, hundred) {
            (PrivacyLoss::Gaussian { mu: a }, PrivacyLoss::Gaussian { mu: b }) => assert!((a / b - 10.0).abs() < 1e-12),
            _ => panic!("Gaussian"),
        }
        // The bound by zCDP, ρ + 2 √(ρ ln 1/δ), is larger.
        let rho = 100.0 * (0.1f64).powi(2) / 2.0;
        let bound = rho + 2.0 * (rho * 1e5f64.ln()).sqrt();
        let found = PrivacyLoss::Gaussian { mu: 0.1 }.epsilon(100, 1e-5);
        assert!(found < bound && found > 0.8 * bound, "{found} {bound}");
    }

    /// The divergence of randomised response by its definition.
    fn by_definition(epsilon: f64, alpha: f64) -> f64 {
        let p = 1.0 / (1.0 + epsilon.exp());
        let q = 1.0 - p;
        (p.powf(alpha) * q.powf(1.0 - alpha) + q.powf(alpha) * p.powf(1.0 - alpha)).ln() / (alpha - 1.0)
    }

    #[test]
    fn the_loss_of_pure_releases_follows_the_definition() {
        for epsilon in [1e-3, 0.1, 1.0, 4.0] {
            for alpha in [1.1, 2.0, 7.5, 40.0] {
                let (found, expected) = (renyi(epsilon, alpha), by_definition(epsilon, alpha));
                let right = found >= expected * (1.0 - 1e-6) && found < expected * (1.0 + 1e-3);
                assert!(right, "{epsilon} {alpha}: {found} {expected}");
            }
        }
        let loss = PrivacyLoss::Pure { epsilon: 0.1, pieces: 1.0 };
        // With δ = 0 only plain composition holds; with many releases the Rényi bound is smaller.
        assert!((loss.epsilon(7, 0.0) - 0.7).abs() < 1e-12);
        let one = loss.epsilon(1, 1e-5);
        assert!(one <= 0.1 && one > 0.099, "{one}");
        assert!(loss.epsilon(1000, 1e-5) < 30.0);
        for (epsilon, releases, pieces) in [(1.0, 1, 1.0), (2.0, 50, 1.0), (10.0, 3, 400.0), (0.2, 1000, 7.0)] {
            let loss = PrivacyLoss::pure(epsilon, 1e-6, releases, pieces);
            assert!((loss.epsilon(releases, 1e-6) - epsilon).abs() < 1e-6 * epsilon);
        }
    }

    /// The exact (ε, δ) of many randomised bits is a sum over binomial coefficients: the bound is larger, by little.
    #[test]
    fn the_bound_for_bits_holds_against_the_exact_sum() {
        let (each, bits) = (0.4, 60u32);
        let p = 1.0 / (1.0 + f64::exp(each));
        let mut choose = vec![1.0f64; 1];
        for n in 1..=bits as usize {
            choose = (0..=n).map(|i| if i == 0 || i == n { 1.0 } else { choose[i - 1] + choose[i] }).collect();
        }
        let delta = |epsilon: f64| -> f64 {
            (0..=bits as i32)
                .map(|wrong| {
                    let (a, b) = (wrong, bits as i32 - wrong);
                    let (one, other) = (p.powi(a) * (1.0 - p).powi(b), p.powi(b) * (1.0 - p).powi(a));
                    choose[a as usize] * (one - epsilon.exp() * other).max(0.0)
                })
                .sum()
        };
        let bound = PrivacyLoss::Pure { epsilon: each, pieces: bits.into() }.epsilon(1, 1e-5);
        let exact = gaussian::smallest(|e| delta(e) <= 1e-5);
        assert!(bound >= exact && bound < 1.15 * exact, "{bound} {exact}");
    }

    /// The privacy loss ln p/q of discrete mechanisms as a distribution on a grid, rounded up, and its convolutions: ε
    /// of their composition by the definition of δ (Koskela, Jälkö, Honkela, AISTATS 2020).
    fn by_convolution(mechanisms: &[Vec<(f64, f64)>], delta: f64) -> f64 {
        const STEP: f64 = 1e-3;
        let mut total: std::collections::BTreeMap<i64, f64> = [(0, 1.0)].into();
        for each in mechanisms {
            let mut next = std::collections::BTreeMap::new();
            for (&at, p) in &total {
                for &(loss, q) in each {
                    *next.entry(at + (loss / STEP).ceil() as i64).or_insert(0.0) += p * q;
                }
            }
            total = next;
        }
        let delta_of = |epsilon: f64| -> f64 {
            total.iter().map(|(&at, p)| p * -(epsilon - at as f64 * STEP).min(0.0).exp_m1()).sum()
        };
        gaussian::smallest(|epsilon| delta_of(epsilon) <= delta)
    }

    /// Losses ln p/q and probabilities of N(μ, 1) against N(0, 1), in slices.
    fn gaussian_losses(mu: f64) -> Vec<(f64, f64)> {
        let phi = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
        let slice = |i: i32| (f64::from(i) * 0.02, f64::from(i + 1) * 0.02);
        let slices = (-350..350).map(slice);
        // The loss of the upper end of a slice is the largest in it.
        slices.map(|(low, high)| (mu * high + 0.5 * mu * mu, phi(high) - phi(low))).collect()
    }

    #[test]
    fn mechanisms_of_several_kinds_compose_within_little_of_the_numerical_reference() {
        let bit = |epsilon: f64| {
            let p = 1.0 / (1.0 + epsilon.exp());
            vec![(epsilon, 1.0 - p), (-epsilon, p)]
        };
        let delta = 1e-4;
        // Gaussian releases without others are exact; the closed form is μ = √Σμ².
        let mus = [0.3, 0.5, 0.4];
        let (found, _) = composition(mus.iter().map(|&mu| (PrivacyLoss::Gaussian { mu }, delta)));
        let reference = by_convolution(&mus.map(gaussian_losses), delta);
        assert!((found - gaussian::epsilon(0.5f64.sqrt(), delta)).abs() < 1e-9);
        assert!(found <= reference && reference < 1.03 * found, "{found} {reference}");
        // Pure ones by Rényi divergences.
        let each = [0.2, 0.3, 0.1];
        let losses = each.iter().map(|&epsilon| (PrivacyLoss::Pure { epsilon, pieces: 20.0 }, delta));
        let (found, at) = composition(losses);
        assert_eq!(at, delta);
        let all: Vec<_> = each.iter().flat_map(|&epsilon| vec![bit(epsilon); 20]).collect();
        let reference = by_convolution(&all, delta);
        assert!(found >= reference - 0.06 && found < 1.2 * reference, "{found} {reference}");
        // Both together: never below the truth.
        let (both, at) = composition(
            [
                (PrivacyLoss::Gaussian { mu: 0.5 }, delta / 2.0),
                (PrivacyLoss::Pure { epsilon: 0.3, pieces: 20.0 }, delta / 2.0),
            ]
            .into_iter(),
        );
        assert_eq!(at, delta);
        let mut all = vec![bit(0.3); 20];
        all.push(gaussian_losses(0.5));
        let reference = by_convolution(&all, delta);
        assert!(both >= reference - 0.05 && both < 1.8 * reference, "{both} {reference}");
        // Without δ, pure losses add up.
        let none = composition([0.1, 0.2].map(|epsilon| (PrivacyLoss::Pure { epsilon, pieces: 1.0 }, 0.0)).into_iter());
        assert!((none.0 - 0.3).abs() < 1e-12 && none.1 == 0.0 && composition(std::iter::empty()) == (0.0, 0.0));
    }

    #[test]
    fn a_budget_determines_the_number_of_releases() {
        let loss = PrivacyLoss::gaussian(2.0, 1e-6, 17);
        assert_eq!(loss.releases(2.0 + 1e-9, 1e-6, 1000), 17);
        assert_eq!(loss.releases(2.0 + 1e-9, 1e-6, 5), 5);
        assert_eq!(loss.releases(0.01, 1e-6, 1000), 0);
    }
}
