//! The exact trade-off between ε and δ of Gaussian noise (Balle and Wang, Improving the Gaussian Mechanism for Differential
//! Privacy, ICML 2018, Theorem 8): δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), where μ = sensitivity / standard deviation.
//! Successive releases with μ_i, adaptive ones included, compose to μ = √(Σ μ_i²) (Dong, Roth, Su, Gaussian Differential
//! Privacy, 2022, Corollary 3.3).

/// ln Φ(x), the logarithm of the standard normal distribution function.
fn ln_phi(x: f64) -> f64 {
    if x > -20.0 {
        return (0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)).ln();
    }
    // Asymptotic series; the first omitted term is below 1e-9 here.
    let y = 1.0 / (x * x);
    let series = 1.0 - y * (1.0 - 3.0 * y * (1.0 - 5.0 * y * (1.0 - 7.0 * y)));
    -0.5 * x * x - (-x * (2.0 * std::f64::consts::PI).sqrt()).ln() + series.ln()
}

/// The smallest δ for which noise with this μ is (ε, δ)-private.
pub fn delta(epsilon: f64, mu: f64) -> f64 {
    if mu == 0.0 {
        return 0.0;
    }
    let above = ln_phi(0.5 * mu - epsilon / mu);
    let below = epsilon + ln_phi(-0.5 * mu - epsilon / mu);
    above.exp() * -(below - above).min(0.0).exp_m1()
}

/// The smallest ε for which noise with this μ is (ε, δ)-private; infinite for δ = 0.
pub fn epsilon(mu: f64, target: f64) -> f64 {
    if target <= 0.0 && mu > 0.0 {
        return f64::INFINITY;
    }
    smallest(|e| delta(e, mu) <= target)
}

/// The largest μ for which noise is (ε, δ)-private.
pub fn mu(epsilon: f64, target: f64) -> f64 {
    1.0 / smallest(|inverse| delta(epsilon, 1.0 / inverse) <= target)
}

/// σ / sensitivity = √(2 ln(1.25/δ)) / ε for one release (Dwork and Roth, The Algorithmic Foundations of Differential
/// Privacy, 2014, Theorem 3.22), valid only for ε < 1.
pub fn classic(epsilon: f64, delta: f64) -> f64 {
    (2.0 * (1.25 / delta).ln()).sqrt() / epsilon
}

/// The smallest x ≥ 0 for which a monotone predicate holds, rounded up at 12 digits; infinite if there is none.
pub fn smallest(holds: impl Fn(f64) -> bool) -> f64 {
    if holds(0.0) {
        return 0.0;
    }
    let mut high = 1.0;
    while !holds(high) {
        high *= 2.0;
        if high > 1e300 {
            return f64::INFINITY;
        }
    }
    let mut low = if high > 1.0 { 0.5 * high } else { 0.0 };
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if high - low <= 1e-12 * high {
            break;
        }
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// δ by its definition, ∫ max(0, p(x) − e^ε q(x)) dx, with the midpoint rule.
    fn by_integration(epsilon: f64, mu: f64) -> f64 {
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let h = 1e-4;
        let grid = (-150_000..(150_000 + (mu / h) as i64)).map(|i| (i as f64 + 0.5) * h);
        grid.map(|x| (density(x - mu) - epsilon.exp() * density(x)).max(0.0) * h).sum()
    }

    #[test]
    fn delta_is_the_integral_that_defines_it() {
        for (epsilon, mu) in [(0.0, 0.5), (1.0, 0.268), (0.3, 1.0), (5.0, 1.5), (2.0, 3.0), (20.0, 5.0)] {
            let (found, expected) = (delta(epsilon, mu), by_integration(epsilon, mu));
            assert!((found - expected).abs() < 1e-7 * expected + 1e-12, "{epsilon} {mu}: {found} {expected}");
        }
    }

    #[test]
    fn calibration_and_its_inverse_agree() {
        for e in [0.01, 0.5, 1.0, 8.0, 60.0] {
            for d in [1e-12, 1e-5, 0.05] {
                let mu = mu(e, d);
                assert!((epsilon(mu, d) - e).abs() < 1e-6 * e, "{e} {d} {mu}");
            }
        }
        // The published example of the analytic mechanism, and the larger noise of the classic one.
        assert!((1.0 / mu(1.0, 1e-5) - 3.730_631).abs() < 1e-5, "{}", 1.0 / mu(1.0, 1e-5));
        assert!((classic(1.0, 1e-5) - 4.844_805).abs() < 1e-5);
        assert_eq!((epsilon(0.0, 1e-5), epsilon(1.0, 0.0)), (0.0, f64::INFINITY));
        assert!(epsilon(0.3, 0.9) == 0.0);
    }

    #[test]
    fn the_tail_is_smooth_where_the_formula_changes() {
        for x in [-19.9, -20.0, -20.1, -35.0] {
            let step = (ln_phi(x + 1e-3) - ln_phi(x - 1e-3)) / 2e-3;
            // The derivative φ/Φ is −x − 1/x + 2/x³ + O(x⁻⁵).
            assert!((step + x + 1.0 / x - 2.0 / x.powi(3)).abs() < 1e-4, "{x}: {step}");
        }
    }
}
