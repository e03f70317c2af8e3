//! Numbers in text.

/// A decimal number at the start of `text`, correctly rounded, and its length in bytes. `nan`, `inf` and `infinity` are
/// numbers as well, so that a message can give the reason for refusing them.
#[inline]
pub fn float(text: &[u8]) -> Option<(f64, usize)> {
    fast_float2::parse_partial(text).ok()
}

/// A whole number at the start of `text` and its length in bytes.
#[inline]
pub fn whole(text: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut at) = (0u64, 0);
    while let Some(digit) = text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    if at > 19 {
        // The value may have wrapped around.
        value = std::str::from_utf8(&text[..at]).ok()?.parse().ok()?;
    }
    (at > 0).then_some((value, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let _ = float(&bytes);
            let _ = whole(&bytes);
        }
    }

    #[test]
    fn a_number_ends_where_its_text_does() {
        for (text, value, used) in [
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            (".5", 0.5, 2),
            ("5. ", 5.0, 2),
            ("-0", 0.0, 2),
            ("+2.5", 2.5, 4),
            ("9007199254740993", 9007199254740992.0, 16),
            ("1e400", f64::INFINITY, 5),
            ("0.000012345678901234567", 0.000012345678901234567, 23),
            ("12345678901234567890123", 12345678901234567890123.0, 23),
            ("000000000000000000000.0e0", 0.0, 25),
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
}
