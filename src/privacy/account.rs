//! What releases cost together: (ε, δ) of a whole run from the loss of one release, and back.

use super::gaussian;

/// The loss of one release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PrivacyLoss {
    /// Gaussian noise with μ = sensitivity over standard deviation.
    Gaussian { mu: f64 },
    /// `pieces` independent pieces, all of which may differ between two neighbours, each `epsilon`-private with δ = 0:
    /// Laplace noise is one piece, a matrix of flipped bits as many as bits may differ.
    Pure { epsilon: f64, pieces: f64 },
}

impl PrivacyLoss {
    /// The least ε that can be shown for so many releases one after the other, each of which may depend on those before.
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

    /// The loss of Gaussian noise that a release may have so that `releases` of them stay within (ε, δ).
    pub fn gaussian(epsilon: f64, delta: f64, releases: u64) -> PrivacyLoss {
        PrivacyLoss::Gaussian { mu: gaussian::mu(epsilon, delta) / (releases.max(1) as f64).sqrt() }
    }

    /// The same for pure noise in so many pieces.
    pub fn pure(epsilon: f64, delta: f64, releases: u64, pieces: f64) -> PrivacyLoss {
        let loss = |each: f64| PrivacyLoss::Pure { epsilon: each, pieces };
        let inverse = gaussian::least(|inverse| loss(1.0 / inverse).epsilon(releases, delta) <= epsilon);
        loss(1.0 / inverse)
    }

    /// The most releases within (ε, δ), up to `most`.
    pub fn releases(self, epsilon: f64, delta: f64, most: u64) -> u64 {
        let (mut low, mut high) = (0, most.saturating_add(1));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.epsilon(middle, delta) <= epsilon { low = middle } else { high = middle }
        }
        low
    }
}

/// The largest Rényi divergence of order α between two outcomes of an ε-private mechanism (Bun and Steinke 2016,
/// Proposition 3.3): that of a bit flipped with probability 1/(1 + e^ε).
fn renyi(epsilon: f64, alpha: f64) -> f64 {
    let above = 0.5 * epsilon * epsilon * alpha;
    if epsilon < 0.01 {
        // The bound of the same proposition, which digits are not lost in.
        return above;
    }
    // ln of sinh(αε) − sinh((α−1)ε) over sinh(ε), without overflow.
    let ln_sinh = |x: f64| x + (-(-2.0 * x).exp_m1()).ln();
    let [a, b, c] = [alpha * epsilon, (alpha - 1.0) * epsilon, epsilon].map(ln_sinh);
    ((a + (-((b - a).exp())).ln_1p() - c) / (alpha - 1.0)).clamp(0.0, above.min(epsilon))
}

/// The least ε that follows from Rényi divergences (Canonne, Kamath, Steinke 2020, Proposition 12), over a grid of orders.
fn from_renyi(renyi: impl Fn(f64) -> f64, delta: f64) -> f64 {
    if delta <= 0.0 {
        return f64::INFINITY;
    }
    let of = |alpha: f64| renyi(alpha) + ((alpha - 1.0) / alpha).ln() - (delta.ln() + alpha.ln()) / (alpha - 1.0);
    let orders = (0..400).map(|i| 1.0 + 1e-3 * 1.05f64.powi(i));
    orders.map(of).fold(f64::INFINITY, f64::min).max(0.0)
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
        // The known bound by zCDP is above it: ρ + 2 √(ρ ln 1/δ).
        let rho = 100.0 * (0.1f64).powi(2) / 2.0;
        let bound = rho + 2.0 * (rho * 1e5f64.ln()).sqrt();
        let found = PrivacyLoss::Gaussian { mu: 0.1 }.epsilon(100, 1e-5);
        assert!(found < bound && found > 0.8 * bound, "{found} {bound}");
    }

    /// The divergence of two flipped bits by its definition.
    fn by_definition(epsilon: f64, alpha: f64) -> f64 {
        let p = 1.0 / (1.0 + epsilon.exp());
        let q = 1.0 - p;
        (p.powf(alpha) * q.powf(1.0 - alpha) + q.powf(alpha) * p.powf(1.0 - alpha)).ln() / (alpha - 1.0)
    }

    #[test]
    fn pure_releases_cost_what_the_definition_says() {
        for epsilon in [1e-3, 0.1, 1.0, 4.0] {
            for alpha in [1.1, 2.0, 7.5, 40.0] {
                let (found, expected) = (renyi(epsilon, alpha), by_definition(epsilon, alpha));
                let right = found >= expected * (1.0 - 1e-6) && found < expected * (1.0 + 1e-3);
                assert!(right, "{epsilon} {alpha}: {found} {expected}");
            }
        }
        let loss = PrivacyLoss::Pure { epsilon: 0.1, pieces: 1.0 };
        // Without a δ only the plain sum is left; with many releases the other bound wins.
        assert!((loss.epsilon(7, 0.0) - 0.7).abs() < 1e-12);
        let one = loss.epsilon(1, 1e-5);
        assert!(one <= 0.1 && one > 0.099, "{one}");
        assert!(loss.epsilon(1000, 1e-5) < 30.0);
        for (epsilon, releases, pieces) in [(1.0, 1, 1.0), (2.0, 50, 1.0), (10.0, 3, 400.0), (0.2, 1000, 7.0)] {
            let loss = PrivacyLoss::pure(epsilon, 1e-6, releases, pieces);
            assert!((loss.epsilon(releases, 1e-6) - epsilon).abs() < 1e-6 * epsilon);
        }
    }

    /// The real (ε, δ) of many flipped bits is a sum over binomial numbers: the bound must be above it, and not far.
    #[test]
    fn the_bound_for_bits_holds_against_the_exact_sum() {
        let (each, bits) = (0.4, 60u32);
        let p = 1.0 / (1.0 + f64::exp(each));
        let mut choose = vec![1.0f64; 1];
        for n in 1..=bits as usize {
            choose = (0..=n).map(|i| if i == 0 || i == n { 1.0 } else { choose[i - 1] + choose[i] }).collect();
        }
        let exact = |epsilon: f64| -> f64 {
            (0..=bits as i32)
                .map(|wrong| {
                    let (a, b) = (wrong, bits as i32 - wrong);
                    let (one, other) = (p.powi(a) * (1.0 - p).powi(b), p.powi(b) * (1.0 - p).powi(a));
                    choose[a as usize] * (one - epsilon.exp() * other).max(0.0)
                })
                .sum()
        };
        let bound = PrivacyLoss::Pure { epsilon: each, pieces: bits.into() }.epsilon(1, 1e-5);
        let least = gaussian::least(|e| exact(e) <= 1e-5);
        assert!(bound >= least && bound < 1.15 * least, "{bound} {least}");
    }

    #[test]
    fn a_budget_lasts_for_so_many_releases() {
        let loss = PrivacyLoss::gaussian(2.0, 1e-6, 17);
        assert_eq!(loss.releases(2.0 + 1e-9, 1e-6, 1000), 17);
        assert_eq!(loss.releases(2.0 + 1e-9, 1e-6, 5), 5);
        assert_eq!(loss.releases(0.01, 1e-6, 1000), 0);
    }
}
