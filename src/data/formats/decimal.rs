//! From decimal digits to the nearest f64, fast.
//!
//! A number of at most 2⁵³ times a small power of ten takes one exact operation (Clinger). Others are multiplied by the
//! power's first 64 bits: that pins the product down to a few units of its 64th bit, which decides the rounding in all
//! but a few of a thousand cases (after Lemire, «Number parsing at a gigabyte per second», 2021). Those are left to the
//! standard library.

/// Powers of ten that are exact in f64.
const EXACT: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Largest exponent of ten in the table; far from where f64 ends, so that nothing overflows.
const LARGEST: usize = 64;

/// 10^q = (`bits` + less than 2) · 2^`exponent`, with the top bit of `bits` set.
#[derive(Clone, Copy)]
struct Power {
    bits: u64,
    exponent: i32,
}

/// 10^-64 … 10^64.
const POWERS: [Power; 2 * LARGEST + 1] = powers();

const fn powers() -> [Power; 2 * LARGEST + 1] {
    let mut table = [Power { bits: 1 << 63, exponent: -63 }; 2 * LARGEST + 1];
    // 128 bits of the power, cut off: 64 steps lose far less than the lower half.
    let (mut up, mut up_exponent) = (1u128 << 127, -127);
    let (mut down, mut down_exponent) = (1u128 << 127, -127);
    let mut q = 1;
    while q <= LARGEST {
        // times 10/16, with the exponent 4 higher
        up = (up >> 4) * 10;
        up_exponent += 4;
        let shift = up.leading_zeros();
        up <<= shift;
        up_exponent -= shift as i32;
        table[LARGEST + q] = Power { bits: (up >> 64) as u64, exponent: up_exponent + 64 };
        down /= 10;
        let shift = down.leading_zeros();
        down <<= shift;
        down_exponent -= shift as i32;
        table[LARGEST - q] = Power { bits: (down >> 64) as u64, exponent: down_exponent + 64 };
        q += 1;
    }
    table
}

/// The f64 nearest to `mantissa` · 10^`exponent`, ties to even; `None` where that takes more than this.
#[inline]
pub fn nearest(mantissa: u64, exponent: i32) -> Option<f64> {
    if mantissa <= 1 << 53 && (-22..=22).contains(&exponent) {
        let size = mantissa as f64;
        let power = EXACT[exponent.unsigned_abs() as usize];
        return Some(if exponent < 0 { size / power } else { size * power });
    }
    if exponent < 0 && mantissa.is_multiple_of(100_000_000) && mantissa != 0 {
        // 1.0000000000000000e+00 and its like: shorter than they are written
        let (mut mantissa, mut exponent) = (mantissa / 100_000_000, exponent + 8);
        while exponent < 0 && mantissa.is_multiple_of(10) {
            mantissa /= 10;
            exponent += 1;
        }
        return nearest(mantissa, exponent);
    }
    approximate(mantissa, exponent)
}

fn approximate(mantissa: u64, exponent: i32) -> Option<f64> {
    let power = POWERS.get(usize::try_from(exponent.checked_add(LARGEST as i32)?).ok()?)?;
    if mantissa == 0 {
        return Some(0.0);
    }
    let zeros = mantissa.leading_zeros();
    let high = ((u128::from(mantissa << zeros) * u128::from(power.bits)) >> 64) as u64;
    // The product is (high + less than 3) · 2^(power.exponent + 64 - zeros); 53 of its bits stay.
    let dropped = 11 - high.leading_zeros();
    let half = 1u64 << (dropped - 1);
    let rest = high & (2 * half - 1);
    if rest <= half && rest + 3 > half {
        return None;
    }
    // Where the missing part would carry over, rounding up carries as well.
    let kept = (high >> dropped) + u64::from(rest > half);
    let scale = power.exponent + 64 - zeros as i32 + dropped as i32;
    Some(kept as f64 * f64::from_bits(((1023 + scale) as u64) << 52))
}

/// The number that eight ASCII digits write, if they are digits.
#[inline]
pub fn eight_digits(text: [u8; 8]) -> Option<u64> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let bytes = u64::from_le_bytes(text);
    let digits = bytes.wrapping_sub(ONES * 0x30);
    // Above '9' adding 0x46 sets a byte's top bit, below '0' subtracting has; what a borrow or a carry does to the byte
    // after it does not matter any more then.
    if (bytes.wrapping_add(ONES * 0x46) | digits) & (ONES * 0x80) != 0 {
        return None;
    }
    // Pairs, then fours, then all eight.
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn rounds_as_the_standard_library(mantissa in any::<u64>(), shift in 0u32..64, exponent in -70i32..70) {
            let mantissa = mantissa >> shift;
            let expected: f64 = format!("{mantissa}e{exponent}").parse().unwrap();
            if let Some(got) = nearest(mantissa, exponent) {
                prop_assert_eq!(got.to_bits(), expected.to_bits(), "{}e{}: {} {}", mantissa, exponent, got, expected);
            }
        }

        #[test]
        fn numbers_next_to_a_tie(x in 1e-30f64..1e30, digits in 15usize..19) {
            // the middle between two neighbours, written with too few digits to be it exactly
            let (low, high) = (x.to_bits(), x.to_bits() + 1);
            let middle = format!("{:.*e}", digits - 1, x + (f64::from_bits(high) - f64::from_bits(low)) / 2.0);
            let (mantissa, exponent) = middle.split_once('e').unwrap();
            let exponent = exponent.parse::<i32>().unwrap() - (digits as i32 - 1);
            let mantissa: u64 = mantissa.replace('.', "").parse().unwrap();
            if let Some(got) = nearest(mantissa, exponent) {
                prop_assert_eq!(got, middle.parse::<f64>().unwrap());
            }
        }

        #[test]
        fn eight_bytes(bytes in any::<[u8; 8]>(), number in 0u64..100_000_000) {
            let digits: [u8; 8] = format!("{number:08}").into_bytes().try_into().unwrap();
            prop_assert_eq!(eight_digits(digits), Some(number));
            let mut one_wrong = digits;
            one_wrong[usize::from(bytes[0] % 8)] = bytes[1];
            for text in [bytes, one_wrong] {
                let expected = text.iter().all(u8::is_ascii_digit)
                    .then(|| std::str::from_utf8(&text).unwrap().parse::<u64>().unwrap());
                prop_assert_eq!(eight_digits(text), expected, "{:?}", text);
            }
        }
    }

    #[test]
    fn few_are_left_over() {
        let left =
            (0..10_000u64).filter(|i| nearest(1 << 60 | i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 5, -20).is_none());
        assert!(left.count() < 100);
    }
}
