//! Integers wide enough to represent every f64 exactly, for exact sums modulo 2⁶⁴ word by word: masked sums of numbers
//! whose size must not be disclosed beforehand.

use libm::ldexp;

/// Bits of a number in each word; the rest is room for sums.
const BITS: usize = 32;
/// Exponent of the unit: that of the smallest f64.
const UNIT: i32 = -1074;
/// Words of a number: enough for the sum of 2³¹ of the largest.
pub const WORDS: usize = (1024 - UNIT as isize) as usize / BITS + 3;

/// Writes a finite number to [`WORDS`] words, of which at most three are not zero.
pub fn encode(x: f64, out: &mut [u64]) {
    assert!(x.is_finite() && out.len() == WORDS);
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as usize;
    let fraction = bits & ((1 << 52) - 1) | u64::from(exponent > 0) << 52;
    let shift = exponent.max(1) - 1;
    let digits = u128::from(fraction) << (shift % BITS);
    out.fill(0);
    for (k, word) in out[shift / BITS..].iter_mut().take(3).enumerate() {
        let digit = (digits >> (BITS * k)) as u64 & 0xffff_ffff;
        *word = if x < 0.0 { digit.wrapping_neg() } else { digit };
    }
}

/// The number nearest to a sum of fewer than 2³¹ encoded ones.
pub fn decode(sum: &[u64]) -> f64 {
    assert_eq!(sum.len(), WORDS);
    let (digits, carry) = digits(sum.iter().map(|word| word.cast_signed()));
    if carry < 0 {
        let (digits, _) = self::digits(sum.iter().map(|word| word.wrapping_neg().cast_signed()));
        return -magnitude(&digits);
    }
    magnitude(&digits)
}

/// The digits in base 2³² of a number in signed words, and what is carried out of the last.
fn digits(words: impl Iterator<Item = i64>) -> (Vec<u32>, i64) {
    let mut carry = 0i64;
    let digits = words.map(|word| {
        let all = i128::from(word) + i128::from(carry);
        carry = (all >> BITS) as i64;
        all as u32
    });
    (digits.collect(), carry)
}

/// The nearest f64: the first three digits that are not zero hold more bits than it has; of the others it only matters
/// whether there are any.
fn magnitude(digits: &[u32]) -> f64 {
    let top = digits.iter().rposition(|digit| *digit != 0).unwrap_or(0);
    let low = top.saturating_sub(2);
    let rest = u128::from(digits[..low].iter().any(|digit| *digit != 0));
    let all = digits[low..=top].iter().rev().fold(0u128, |all, digit| all << BITS | u128::from(*digit));
    ldexp((all | rest) as f64, (BITS * low) as i32 + UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(terms: &[f64]) -> f64 {
        let mut total = vec![0u64; WORDS];
        let mut term = vec![0u64; WORDS];
        for x in terms {
            encode(*x, &mut term);
            total.iter_mut().zip(&term).for_each(|(total, x)| *total = total.wrapping_add(*x));
        }
        decode(&total)
    }

    #[test]
    fn every_number_is_exact() {
        for x in [0.0, 1.0, -1.0, 0.1, -1e-5, 5e-324, -5e-324, f64::MIN_POSITIVE, 3e300, f64::MAX, f64::MIN, 1.5e-310] {
            assert_eq!(sum(&[x]).to_bits(), x.to_bits(), "{x:e}");
            assert_eq!(sum(&[x, 3.0, -x, 1e200, -3.0, -1e200]), 0.0, "{x:e}");
        }
    }

    #[test]
    fn sums_are_rounded_once_in_any_order() {
        let terms: Vec<f64> = (0..1000).map(|i| ldexp(f64::from(i * 7919 % 1009 - 500), i % 90 - 40)).collect();
        let backwards: Vec<f64> = terms.iter().rev().copied().collect();
        assert_eq!(sum(&terms).to_bits(), sum(&backwards).to_bits());
        // Half a unit in the last place goes to the even neighbour, and a bit more away from it.
        let half = ldexp(1.0, -53);
        assert_eq!(sum(&[1.0, half]), 1.0);
        assert_eq!(sum(&[1.0, half, 5e-324]), 1.0 + f64::EPSILON);
        assert_eq!(sum(&[-1.0, -half, -5e-324]), -1.0 - f64::EPSILON);
        assert_eq!(sum(&[1e300, 1.0, -1e300]), 1.0);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    }
}
