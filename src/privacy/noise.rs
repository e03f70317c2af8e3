//! Exact samplers of noise on the whole numbers (Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy,
//! 2020, Algorithms 1 to 3). There is no floating-point number in them, so nothing of what is hidden shows in the last
//! digits of the result, as it does with rounded normal numbers (Mironov 2012).
//!
//! How long a draw takes depends on its result: the time of a run is not hidden.

use chacha20::ChaCha20Rng;
use rand::{Rng, SeedableRng};

/// Bytes of a key of noise.
pub const NOISE_KEY: usize = 32;

/// The largest scale of noise, in steps of the grid: squares of draws fit 128 bits.
pub const LARGEST_SCALE: u64 = 1 << 50;

/// One party's noise for one release: a stream of its own under the party's secret key.
pub struct Noise<R = ChaCha20Rng> {
    random: R,
}

impl Noise {
    /// The noise of release number `release`. The same key and number give the same noise: a run that was interrupted
    /// repeats its messages instead of sending others about the same data.
    pub fn new(key: &[u8; NOISE_KEY], release: u64) -> Self {
        let mut random = ChaCha20Rng::from_seed(*key);
        random.set_stream(release);
        Noise { random }
    }
}

impl<R: Rng> Noise<R> {
    /// Uniform in 0..n (n > 0), without bias.
    fn below(&mut self, n: u128) -> u128 {
        if let Ok(n) = u64::try_from(n) {
            // Lemire's multiply-shift; what would make the first numbers likelier is drawn again.
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

    /// The discrete Laplace distribution: x with probability in proportion to exp(−|x|/t) (Algorithm 2);
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
            // 0 must not come twice as often.
            if !(negative && size == 0) {
                return if negative { -size } else { size };
            }
        }
    }

    /// The discrete Gaussian distribution: x with probability in proportion to exp(−x²/2s²) (Algorithm 3, from Laplace
    /// noise of scale s: any will do); 1 ≤ s ≤ [`LARGEST_SCALE`].
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
pub(super) mod tests {
    use super::*;
    use crate::random::{normal_quantile, secret_rng};

    /// Chance that a right sampler fails a test; every test has fresh randomness of the operating system.
    pub const ERROR_RATE: f64 = 1e-6;

    fn fresh(what: u64) -> Noise {
        let mut key = [0; NOISE_KEY];
        secret_rng(None, what).unwrap().fill_bytes(&mut key);
        Noise::new(&key, what)
    }

    /// Pearson's test: whether samples are not those of `weight` (up to a factor), at [`ERROR_RATE`]. What is rarer than
    /// 25 expected counts goes into one cell.
    fn is_another(samples: &[i64], weight: impl Fn(i64) -> f64) -> bool {
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
        // Wilson and Hilferty's quantile of χ².
        let freedom: f64 = cells - 1.0;
        let part = 2.0 / (9.0 * freedom);
        chi2 > freedom * (1.0 - part + normal_quantile(1.0 - ERROR_RATE) * part.sqrt()).powi(3)
    }

    fn many(mut sample: impl FnMut() -> i64) -> Vec<i64> {
        (0..400_000).map(|_| sample()).collect()
    }

    #[test]
    fn gaussian_noise_has_its_distribution() {
        for s in [1, 3, 20] {
            let mut noise = fresh(s);
            let weight = |x: i64| (-(x * x) as f64 / (2 * s * s) as f64).exp();
            assert!(!is_another(&many(|| noise.gaussian(s)), weight), "s = {s}");
        }
    }

    #[test]
    fn laplace_noise_has_its_distribution() {
        for t in [1, 2, 15] {
            let mut noise = fresh(100 + t);
            assert!(!is_another(&many(|| noise.laplace(t)), |x| (-x.abs() as f64 / t as f64).exp()), "t = {t}");
        }
    }

    #[test]
    fn flips_have_their_probability() {
        let mut noise = fresh(7);
        let threshold = (0.3 * 2f64.powi(64)) as u64;
        assert!(!is_another(&many(|| noise.flip(threshold).into()), |x| [0.7, 0.3]
            .get(x as usize)
            .map_or(0.0, |p| *p)));
    }

    /// What could go wrong, done wrong on purpose, is seen by the same test.
    #[test]
    fn broken_samplers_are_caught() {
        let gauss = |s: f64| move |x: i64| (-(x * x) as f64 / (2.0 * s * s)).exp();
        let mut noise = fresh(8);
        assert!(is_another(&many(|| noise.gaussian(20)), gauss(20.5)), "too little noise");
        assert!(is_another(&many(|| noise.laplace(3)), gauss(3.0)), "another distribution");
        let mut cursor = crate::random::Stream::new(1, crate::random::Purpose::Probe, 9).at(0);
        assert!(is_another(&many(|| cursor.normal().round() as i64), gauss(1.0)), "rounded normal numbers");
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
        assert!(is_another(&twice_zero, laplace(2.0)), "0 too often");
        let threshold = (0.295 * 2f64.powi(64)) as u64;
        let flips = many(|| noise.flip(threshold).into());
        assert!(is_another(&flips, |x| [0.7, 0.3].get(x as usize).map_or(0.0, |p| *p)), "too few flips");
    }

    #[test]
    fn large_scales_have_the_right_moments() {
        // No test of a distribution reaches so far: two moments do, and the squares need all 128 bits.
        for s in [1 << 20, 1 << 36, LARGEST_SCALE] {
            let mut noise = fresh(s);
            let draws: Vec<f64> = (0..50_000).map(|_| noise.gaussian(s) as f64 / s as f64).collect();
            let n = draws.len() as f64;
            let (mean, square) = (draws.iter().sum::<f64>() / n, draws.iter().map(|x| x * x).sum::<f64>() / n);
            let z = normal_quantile(1.0 - ERROR_RATE);
            assert!(mean.abs() < z / n.sqrt() && (square - 1.0).abs() < z * (2.0 / n).sqrt(), "{s}: {mean} {square}");
        }
    }

    #[test]
    fn uniform_draws_reach_every_number_alike() {
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
    fn a_release_repeats_its_own_noise_and_no_other() {
        let draw = |key: u8, release| Noise::new(&[key; NOISE_KEY], release).gaussian(1 << 30);
        assert_eq!(draw(1, 5), draw(1, 5));
        assert!(draw(1, 5) != draw(1, 6) && draw(1, 5) != draw(2, 5));
    }
}
