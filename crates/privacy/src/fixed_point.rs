//! Fixed-point numbers modulo 2⁶⁴: in them a masked sum has the bits of the plain sum, since masks cancel exactly.

use libm::ldexp;

/// A fixed-point format for the entries of a sum: multiples of a power of two, up to a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FixedPoint {
    /// Units in 1: a power of two.
    units: f64,
    limit: f64,
}

impl FixedPoint {
    /// The format for a sum over `parties` parties with entries of magnitude at most `limit`. The unit is at most
    /// 2⁻⁶⁰ · parties · limit (and at least 2⁻¹⁰⁰⁰).
    pub fn new(limit: f64, parties: usize) -> Self {
        let limit = if limit.is_finite() { limit.clamp(f64::MIN_POSITIVE, 1e280) } else { 1e280 };
        // parties · limit < 2^exponent: the sum stays below 2⁶², which leaves the sign and one bit for rounding.
        let exponent = (parties.max(1) as f64).log2().ceil() as i32 + limit.log2().ceil() as i32;
        FixedPoint { units: ldexp(1.0, (62 - exponent).min(1000)), limit }
    }

    /// The largest magnitude that can be encoded.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The nearest multiple of the unit; `None` if x is out of range or NaN.
    pub fn encode(&self, x: f64) -> Option<u64> {
        (x.abs() <= self.limit).then(|| ((x * self.units).round_ties_even() as i64).cast_unsigned())
    }

    /// The value of a sum of encoded numbers.
    pub fn decode(&self, sum: u64) -> f64 {
        sum.cast_signed() as f64 / self.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_unit_and_refused_beyond_the_limit() {
        for (limit, parties) in [(1.0, 1), (1e-9, 10), (3e17, 50), (1e-200, 3), (1e270, 1000)] {
            let fixed = FixedPoint::new(limit, parties);
            for x in [0.0, 1.0, -1.0, 0.3, -0.7123, 1e-5] {
                let back = fixed.decode(fixed.encode(x * limit).unwrap());
                assert!((back - x * limit).abs() <= limit * parties as f64 * 2f64.powi(-60), "{x} {limit}: {back}");
            }
            assert_eq!((fixed.encode(limit * 1.0001), fixed.encode(-2.0 * limit)), (None, None));
            assert_eq!((fixed.encode(f64::NAN), fixed.encode(f64::INFINITY)), (None, None));
            // The largest terms of all parties do not overflow.
            let sum = (0..parties).fold(0u64, |s, _| s.wrapping_add(fixed.encode(-limit).unwrap()));
            assert!((fixed.decode(sum) / (-limit * parties as f64) - 1.0).abs() < 1e-12);
        }
    }
}
