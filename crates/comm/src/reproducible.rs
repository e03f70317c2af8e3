//! Sums whose bits do not depend on the order of summation.
//!
//! Each value is split against common powers of two into two bins. The numbers of a bin are multiples of one unit and so
//! small that any sum of `terms` of them is exact in f64; an all-reduce gives the same bits in any order. The bins keep
//! 2·(53 − log₂ terms) bits below the largest magnitude, so the result is at least as accurate as a plain f64 sum. The cost
//! is two f64 words for each value, in either precision.

use libm::ldexp;

use fednmf_base::error::{Error, Result};

/// The two splitting constants for a given largest magnitude and number of terms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bins {
    /// 1.5 · 2⁵² units of the bin: adding and subtracting it rounds to a multiple of the unit.
    round: [f64; 2],
}

impl Bins {
    /// Bins for sums of `terms` values of magnitude at most `largest`.
    ///
    /// # Errors
    /// If `largest` is not finite, or so large that a sum could overflow.
    pub fn new(largest: f64, terms: usize) -> Result<Self> {
        let growth = usize::BITS as i32 - terms.max(1).leading_zeros() as i32; // 2^growth > terms
        // 2^exponent > largest
        let exponent = if largest == 0.0 { f64::MIN_EXP } else { (largest.log2().floor() as i32).saturating_add(1) };
        if !largest.is_finite() || exponent.saturating_add(growth) > 1021 {
            return Err(Error::failed(format!(
                "values as large as {largest:e} cannot be summed over {terms} parties; divide the data first (--scale max)"
            )));
        }
        // The unit of a bin, as an exponent; below the smallest normal number every sum is exact.
        let first = (exponent + growth - 52).max(-1022);
        let second = (first - 1 + growth - 52).max(-1022);
        Ok(Bins { round: [first, second].map(|unit| ldexp(1.5, unit + 52)) })
    }

    /// Splits x into its two bins, exact multiples of their units; bits below the second unit are dropped.
    pub fn split(&self, x: f64) -> [f64; 2] {
        let high = (x + self.round[0]) - self.round[0];
        let low = ((x - high) + self.round[1]) - self.round[1];
        [high, low]
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    #[test]
    fn any_order_gives_the_same_bits() {
        let mut cursor = Stream::new(1, Purpose::Probe, 0).at(0);
        for scale in [1.0, 1e-300, 1e290, 1e-12] {
            let mut values: Vec<f64> = (0..1000).map(|i| scale * cursor.normal() * 10f64.powi(i % 17 - 8)).collect();
            let largest = values.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            let bins = Bins::new(largest, values.len()).unwrap();
            let sum = |v: &[f64]| {
                let [a, b] = v.iter().fold([0.0, 0.0], |[a, b], &x| {
                    let [h, l] = bins.split(x);
                    [a + h, b + l]
                });
                a + b
            };
            let forward = sum(&values);
            let plain: f64 = values.iter().sum();
            assert!((forward - plain).abs() <= 1e-12 * largest, "{forward} {plain}");
            values.reverse();
            assert_eq!(forward.to_bits(), sum(&values).to_bits());
            values.sort_by(f64::total_cmp);
            assert_eq!(forward.to_bits(), sum(&values).to_bits());
        }
    }

    #[test]
    fn infinite_and_overflowing_sums_are_refused() {
        assert!(Bins::new(f64::INFINITY, 2).is_err());
        assert!(Bins::new(f64::NAN, 2).is_err());
        assert!(Bins::new(1e308, 100).is_err());
        assert_eq!(Bins::new(0.0, 3).unwrap().split(0.0), [0.0, 0.0]);
    }
}
