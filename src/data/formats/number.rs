//! Numbers: from text, and whether an entry may pass.

use super::decimal;
use crate::linalg::Real;

/// A decimal number at the start of `text`, correctly rounded, and how many bytes it took.
#[inline]
pub fn float(text: &[u8]) -> Option<(f64, usize)> {
    let digit = |at: usize| text.get(at).map_or(u8::MAX, |b| b.wrapping_sub(b'0'));
    let start = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let (mut mantissa, mut at) = digits(text, start, 0);
    let (mut count, mut exponent) = (at - start, 0i32);
    if text.get(at) == Some(&b'.') {
        let point = at + 1;
        (mantissa, at) = digits(text, point, mantissa);
        count += at - point;
        exponent = -i32::try_from(at - point).unwrap_or(i32::MAX);
    }
    if count == 0 {
        return word(text);
    }
    let end = at;
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let mut next = at + 1 + usize::from(matches!(text.get(at + 1), Some(b'-' | b'+')));
        if digit(next) < 10 {
            let negative = text[at + 1] == b'-';
            let mut size = 0i32;
            while digit(next) < 10 {
                size = size.saturating_mul(10).saturating_add(i32::from(digit(next)));
                next += 1;
            }
            exponent = exponent.saturating_add(if negative { -size } else { size });
            at = next;
        }
    }
    // 19 digits cannot wrap around; zeros before them do not count.
    let before = || text[start..end].iter().take_while(|b| matches!(b, b'0' | b'.')).count();
    // Where there are only zeros, the point makes `before` one more than `count`.
    let fits = count <= 19 || count.saturating_sub(before()) < 19;
    let value = match fits.then(|| decimal::nearest(mantissa, exponent)).flatten() {
        Some(value) if text[0] == b'-' => -value,
        Some(value) => value,
        None => std::str::from_utf8(&text[..at]).ok()?.parse().ok()?,
    };
    Some((value, at))
}

/// Appends the digits from `at` on to a number (modulo 2⁶⁴), and tells where they end.
#[inline]
fn digits(text: &[u8], mut at: usize, mut number: u64) -> (u64, usize) {
    while let Some(eight) = text.get(at..).and_then(|t| t.first_chunk::<8>()).and_then(|t| decimal::eight_digits(*t)) {
        number = number.wrapping_mul(100_000_000).wrapping_add(eight);
        at += 8;
    }
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (number, at)
}

/// `nan`, `inf` and their like, so that the message can say what they are.
fn word(text: &[u8]) -> Option<(f64, usize)> {
    let end = text.iter().position(|b| !(b.is_ascii_alphabetic() || matches!(b, b'-' | b'+'))).unwrap_or(text.len());
    let value = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((value, end))
}

/// A whole number at the start of `text` and how many bytes it took.
#[inline]
pub fn whole(text: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut at) = (0u64, 0);
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    if at > 19 {
        // it may have wrapped around
        value = std::str::from_utf8(&text[..at]).ok()?.parse().ok()?;
    }
    (at > 0).then_some((value, at))
}

/// What entries must be.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub allow_negative: bool,
    /// Whether NaN may pass, for a missing value.
    pub allow_nan: bool,
}

impl Rule {
    /// The entry in the run's precision, or what is wrong with it.
    #[inline]
    pub fn entry<T: Real>(self, x: f64) -> Result<T, String> {
        let value = T::from_f64(x);
        let missing = self.allow_nan && x.is_nan();
        if missing || (value.is_finite() && (x >= 0.0 || self.allow_negative)) {
            Ok(value)
        } else {
            Err(self.complaint::<T>(x))
        }
    }

    /// The first entry of `values` that may not pass, and why.
    pub fn first_wrong<T: Real>(self, values: &[T]) -> Option<(usize, String)> {
        let good = |x: T| (self.allow_nan && x.is_nan()) | (x.is_finite() & ((x >= T::zero()) | self.allow_negative));
        // Whole blocks first, without a branch for each entry.
        let block = values.chunks(1024).position(|c| !c.iter().fold(true, |all, &x| all & good(x)))?;
        let at = block * 1024 + values[block * 1024..].iter().position(|&x| !good(x))?;
        Some((at, self.complaint::<T>(values[at].as_f64())))
    }

    fn complaint<T: Real>(self, x: f64) -> String {
        if x.is_nan() {
            "is not a number (NaN); where that means that it is missing: --missing nan (for hals and mu)".to_string()
        } else if x.is_infinite() {
            format!("is infinite, or too large for --precision {}", T::NAME)
        } else if !T::from_f64(x).is_finite() {
            format!("is {x:e}, too large for --precision {}", T::NAME)
        } else {
            format!("is {x}: negative, and the factorisation is of nonnegative matrices")
        }
    }
}

/// `a row, column b` as a user counts them.
pub fn place(row: usize, col: usize) -> String {
    format!("row {}, column {}", row + 1, col + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_the_standard_library_reads_them(x in any::<f64>(), digits in 0usize..20) {
            for text in [format!("{x}"), format!("{x:e}"), format!("{x:.digits$}"), format!("{x:.digits$E}"), format!("+{:.3}", x.abs())] {
                let expected: f64 = text.parse().unwrap();
                let (got, used) = float(text.as_bytes()).unwrap();
                prop_assert_eq!(used, text.len());
                prop_assert!(got == expected || got.is_nan() && expected.is_nan(), "{} {} {}", text, got, expected);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let _ = float(&bytes);
            let _ = whole(&bytes);
        }
    }

    #[test]
    fn odd_numbers() {
        for (text, value, used) in [
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            (".5", 0.5, 2),
            ("5. ", 5.0, 2),
            ("-0", 0.0, 2),
            ("9007199254740993", 9007199254740992.0, 16),
            ("1e400", f64::INFINITY, 5),
            ("0.000012345678901234567", 0.000012345678901234567, 23),
            ("000000000000000000000000007", 7.0, 27),
            ("12345678901234567890123", 12345678901234567890123.0, 23),
            ("000000000000000000000.0e0", 0.0, 25),
            ("-0000000000000000000000.", 0.0, 24),
            ("1.0000000000000000e+00", 1.0, 22),
            ("3,4", 3.0, 1),
            ("Infinity", f64::INFINITY, 8),
        ] {
            assert_eq!(float(text.as_bytes()), Some((value, used)), "{text}");
        }
        assert!(float(b"NaN 3").is_some_and(|(x, used)| x.is_nan() && used == 3));
        assert!(float(b"").is_none() && float(b"-").is_none() && float(b"x").is_none() && float(b".").is_none());
        assert_eq!(whole(b"18446744073709551615 "), Some((u64::MAX, 20)));
        assert_eq!(whole(b"18446744073709551616"), None);
    }

    #[test]
    fn rules_name_what_is_wrong() {
        let strict = Rule { allow_negative: false, allow_nan: false };
        assert_eq!(strict.entry::<f64>(2.0), Ok(2.0));
        assert!(strict.entry::<f64>(-1.0).unwrap_err().contains("negative"));
        assert!(strict.entry::<f64>(f64::NAN).unwrap_err().contains("NaN"));
        assert!(strict.entry::<f32>(1e300).unwrap_err().contains("too large"));
        assert_eq!(Rule { allow_negative: true, allow_nan: false }.entry::<f64>(-1.0), Ok(-1.0));
        let missing = Rule { allow_negative: false, allow_nan: true };
        assert!(missing.entry::<f64>(f64::NAN).is_ok_and(f64::is_nan) && missing.entry::<f64>(-1.0).is_err());
        assert!(
            missing.first_wrong(&[1.0, f64::NAN, 0.0]).is_none() && missing.first_wrong(&[f64::INFINITY]).is_some()
        );
        let mut values = vec![1.0f32; 5000];
        assert!(strict.first_wrong(&values).is_none());
        values[4097] = -3.0;
        assert_eq!(strict.first_wrong(&values).unwrap().0, 4097);
    }
}
