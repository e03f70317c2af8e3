//! Exact samplers of integer noise (Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, NeurIPS 2020,
//! Algorithms 1 to 3). They use no floating-point numbers, whose last digits would leak the hidden value (Mironov, On
//! Significance of the Least Significant Bits for Differential Privacy, CCS 2012).
//!
//! The time of a draw depends on its result: timing is not protected.

use chacha20::ChaCha20Rng;
use rand::{Rng, SeedableRng};
use sha2::{Digest as _, Sha256};

/// Bytes of a noise key.
pub const NOISE_KEY: usize = 32;

/// The largest scale of the noise, in steps of the grid, for which squares of draws fit into 128 bits.
pub const LARGEST_SCALE: u64 = 1 << 50;

/// The noise of one release of one party: a ChaCha20 stream whose key follows from the party's secret key and the state that
/// the release is made at.
pub struct NoiseSampler {
    random: ChaCha20Rng,
}

impl NoiseSampler {
    /// The noise at the state with this digest. Equal keys and states give equal noise: a resumed run repeats its messages
    /// instead of sending further ones about the same data. At any other state the noise is fresh, because the difference of
    /// two messages with the same noise is exact.
    pub fn new(key: &[u8; NOISE_KEY], state: &[u8; 32]) -> Self {
        let seed = Sha256::new().chain_update(b"fednmf noise v2").chain_update(key).chain_update(state).finalize();
        NoiseSampler { random: ChaCha20Rng::from_seed(seed.into()) }
    }

    /// Uniform in 0..n (n > 0), unbiased.
    fn below(&mut self, n: u128) -> u128 {
        if let Ok(n) = u64::try_from(n) {
            // Lemire's multiply-shift with rejection.
            let reject = n.wrapping_neg() % n;
            loop {
                let wide = u128::from(self.random.next_u64()) * u128::from(n);
                if wide as u64 >= reject {
                    return wide >> 64;
                }
            }
        }
        let mask = u128::MAX >> (n - 1).leading_zeros();
        loop {
            let wide = u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
            if wide & mask < n {
                return wide & mask;
            }
        }
    }

    /// True with probability exp(−a/b), for a ≤ b (Algorithm 1).
    fn exp_fraction(&mut self, a: u128, b: u128) -> bool {
        let mut k = 1;
        while self.below(b * k) < a {
            k += 1;
        }
        k % 2 == 1
    }

    /// True with probability exp(−a/b).
    fn exp(&mut self, a: u128, b: u128) -> bool {
        (0..a / b).all(|_| self.exp_fraction(1, 1)) && self.exp_fraction(a % b, b)
    }

    /// Discrete Laplace: P(x) ∝ exp(−|x|/t) (Algorithm 2);
    /// 1 ≤ t ≤ [`LARGEST_SCALE`].
    pub fn laplace(&mut self, t: u64) -> i64 {
        loop {
            let rest = self.below(t.into());
            if !self.exp_fraction(rest, t.into()) {
                continue;
            }
            let mut whole = 0;
            while self.exp_fraction(1, 1) {
                whole += 1;
            }
            let size = (rest as i64).saturating_add((t as i64).saturating_mul(whole));
            let negative = self.below(2) == 1;
            // +0 and −0 must count as one outcome.
            if !(negative && size == 0) {
                return if negative { -size } else { size };
            }
        }
    }

    /// Discrete Gaussian: P(x) ∝ exp(−x²/2s²) (Algorithm 3, with Laplace proposals of scale s); 1 ≤ s ≤ [`LARGEST_SCALE`].
    pub fn gaussian(&mut self, s: u64) -> i64 {
        loop {
            let x = self.laplace(s);
            let beyond = u128::from(x.unsigned_abs().abs_diff(s));
            if self.exp(beyond * beyond, 2 * u128::from(s) * u128::from(s)) {
                return x;
            }
        }
    }

    /// True with probability `threshold` / 2⁶⁴.
    pub fn flip(&mut self, threshold: u64) -> bool {
        self.random.next_u64() < threshold
    }
}

#[cfg(test)]
mod tests {
    use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

    use fednmf_linalg::random::secret_rng;

    use super::*;

    /// Probability that a correct sampler fails a test; every test draws fresh randomness from the operating system.
    const ERROR_RATE: f64 = 1e-6;

    fn fresh(owner: u64) -> NoiseSampler {
        let mut key = [0; NOISE_KEY];
        secret_rng(None, owner).unwrap().fill_bytes(&mut key);
        NoiseSampler::new(&key, &[0; 32])
    }

    /// Pearson's χ² test at [`ERROR_RATE`]: whether the samples contradict the distribution ∝ `weight`. Outcomes with fewer
    /// than 25 expected counts share one cell.
    fn contradicts(samples: &[i64], weight: impl Fn(i64) -> f64) -> bool {
        let far = 60 * (1 + samples.iter().map(|x| x.abs()).max().unwrap() / 4);
        let total: f64 = (-far..=far).map(&weight).sum();
        let n = samples.len() as f64;
        let mut counts = std::collections::HashMap::new();
        samples.iter().for_each(|x| *counts.entry(*x).or_insert(0.0) += 1.0);
        let (mut chi2, mut cells, mut rare, mut rare_expected) = (0.0, 0.0, 0.0, 0.0);
        for x in -far..=far {
            let (found, expected) = (counts.get(&x).copied().unwrap_or(0.0), n * weight(x) / total);
            if expected >= 25.0 {
                chi2 += f64::powi(found - expected, 2) / expected;
                cells += 1.0;
            } else {
                (rare, rare_expected) = (rare + found, rare_expected + expected);
            }
        }
        if rare_expected >= 25.0 {
            chi2 += f64::powi(rare - rare_expected, 2) / rare_expected;
            cells += 1.0;
        }
        chi2 > ChiSquared::new(cells - 1.0).unwrap().inverse_cdf(1.0 - ERROR_RATE)
    }

    fn many(mut sample: impl FnMut() -> i64) -> Vec<i64> {
        (0..400_000).map(|_| sample()).collect()
    }

    #[test]
    fn gaussian_noise_has_its_distribution() {
        for s in [1, 3, 20] {
            let mut noise = fresh(s);
            let weight = |x: i64| (-(x * x) as f64 / (2 * s * s) as f64).exp();
            assert!(!contradicts(&many(|| noise.gaussian(s)), weight), "s = {s}");
        }
    }

    #[test]
    fn laplace_noise_has_its_distribution() {
        for t in [1, 2, 15] {
            let mut noise = fresh(100 + t);
            assert!(!contradicts(&many(|| noise.laplace(t)), |x| (-x.abs() as f64 / t as f64).exp()), "t = {t}");
        }
    }

    #[test]
    fn flips_have_their_probability() {
        let mut noise = fresh(7);
        let threshold = (0.3 * 2f64.powi(64)) as u64;
        assert!(!contradicts(&many(|| noise.flip(threshold).into()), |x| [0.7, 0.3]
            .get(x as usize)
            .map_or(0.0, |p| *p)));
    }

    /// The same test detects samplers with deliberate mistakes.
    #[test]
    fn broken_samplers_are_detected() {
        let gauss = |s: f64| move |x: i64| (-(x * x) as f64 / (2.0 * s * s)).exp();
        let mut noise = fresh(8);
        assert!(contradicts(&many(|| noise.gaussian(20)), gauss(20.5)), "too little noise");
        assert!(contradicts(&many(|| noise.laplace(3)), gauss(3.0)), "another distribution");
        let mut cursor = fednmf_linalg::random::Stream::new(1, fednmf_linalg::random::Purpose::Probe, 9).at(0);
        assert!(contradicts(&many(|| cursor.normal().round() as i64), gauss(1.0)), "rounded normal numbers");
        let laplace = |t: f64| move |x: i64| (-x.abs() as f64 / t).exp();
        // Algorithm 2 without the rejection of −0.
        let twice_zero = many(|| {
            loop {
                let rest = noise.below(2);
                if noise.exp_fraction(rest, 2) {
                    let whole = (0..).take_while(|_| noise.exp_fraction(1, 1)).count() as i64;
                    let size = rest as i64 + 2 * whole;
                    return if noise.below(2) == 1 { -size } else { size };
                }
            }
        });
        assert!(contradicts(&twice_zero, laplace(2.0)), "0 is too frequent");
        // 14 standard deviations away: 0.295 would be 7, which the test misses once in 45 runs.
        let threshold = (0.29 * 2f64.powi(64)) as u64;
        let flips = many(|| noise.flip(threshold).into());
        assert!(contradicts(&flips, |x| [0.7, 0.3].get(x as usize).map_or(0.0, |p| *p)), "too few flips");
    }

    #[test]
    fn large_scales_have_the_right_moments() {
        // Too many outcomes for a χ² test: two moments. The squares need all 128 bits.
        for s in [1 << 20, 1 << 36, LARGEST_SCALE] {
            let mut noise = fresh(s);
            let draws: Vec<f64> = (0..50_000).map(|_| noise.gaussian(s) as f64 / s as f64).collect();
            let n = draws.len() as f64;
            let (mean, square) = (draws.iter().sum::<f64>() / n, draws.iter().map(|x| x * x).sum::<f64>() / n);
            let z = Normal::standard().inverse_cdf(1.0 - ERROR_RATE);
            assert!(mean.abs() < z / n.sqrt() && (square - 1.0).abs() < z * (2.0 / n).sqrt(), "{s}: {mean} {square}");
        }
    }

    #[test]
    fn uniform_draws_are_in_range_and_unbiased() {
        let mut noise = fresh(9);
        for n in [1u128, 2, 3, 10, (1 << 70) + 1] {
            let draws: Vec<u128> = (0..20_000).map(|_| noise.below(n)).collect();
            assert!(draws.iter().all(|x| *x < n));
            let mean = draws.iter().map(|x| *x as f64 / n as f64).sum::<f64>() / 20_000.0;
            let middle = (n - 1) as f64 / 2.0 / n as f64;
            assert!((mean - middle).abs() < 5.0 * (1.0 / 12.0f64 / 20_000.0).sqrt(), "{n}: {mean}");
        }
    }

    #[test]
    fn every_key_and_state_has_noise_of_its_own() {
        let draw = |key: u8, state: u8| NoiseSampler::new(&[key; NOISE_KEY], &[state; 32]).gaussian(1 << 30);
        assert_eq!(draw(1, 5), draw(1, 5));
        assert!(draw(1, 5) != draw(1, 6) && draw(1, 5) != draw(2, 5));
    }
}
