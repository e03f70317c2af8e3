//! Sizes in bytes, durations and whole numbers as text.

/// A number of bytes as text, with binary prefixes.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut x, mut unit) = (n as f64 / 1024.0, 0);
    // A number that would be rounded to 1024.0 gets the next unit.
    while x >= 1023.95 && unit + 1 < UNITS.len() {
        (x, unit) = (x / 1024.0, unit + 1);
    }
    format!("{x:.1} {}", UNITS[unit])
}

/// A whole number with commas between thousands: `60,000`.
pub fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(String::from_utf8_lossy);
    let head = (first > 0).then(|| digits[..first].into());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

/// A number with four significant digits: `0.3247`, `1525`, `2.301e-6`.
pub fn short(x: f64) -> String {
    let exponent = if x == 0.0 { 0.0 } else { x.abs().log10().floor() };
    match exponent {
        -3.0..=5.0 => format!("{x:.*}", (3.0 - exponent).clamp(0.0, 6.0) as usize),
        _ => format!("{x:.3e}"),
    }
}

/// A number with six decimals, or seven significant digits where these are few or many: `0.324700`, `3.303880e-9`.
pub fn precise(x: f64) -> String {
    if x == 0.0 || (1e-3..1e15).contains(&x.abs()) { format!("{x:.6}") } else { format!("{x:.6e}") }
}

/// A count with its noun: `1 rank`, `2 ranks`.
pub fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", thousands(n), if n == 1 { one } else { many })
}

/// A rough duration: `about 3 min`.
pub fn about(seconds: f64) -> String {
    let (x, unit) = match seconds {
        s if s < 0.95 => return "less than 1 s".to_string(),
        s if s < 90.0 => (s, "s"),
        s if s < 5400.0 => (s / 60.0, "min"),
        s if s < 48.0 * 3600.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    format!("about {x:.0} {unit}")
}

/// Parses a size such as `4G`, `512M` or `1e9`, in bytes; suffixes are powers of 1024.
///
/// # Errors
/// If the text is no size: what it must be.
pub fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let text = text.trim().trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (number, unit) = match text.char_indices().last() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => (&text[..at], "KMGTP".find(letter.to_ascii_uppercase())),
        _ => (text, Some(usize::MAX)),
    };
    let factor = match unit {
        Some(usize::MAX) => 1.0,
        Some(power) => 1024f64.powi(power as i32 + 1),
        None => f64::NAN,
    };
    match number.trim().parse::<f64>() {
        Ok(x) if x * factor >= 1.0 && x * factor < 1e18 => Ok((x * factor) as u64),
        _ => Err("must be a size in bytes, such as 4G or 512M".into()),
    }
}

/// Parses a whole number such as 1000000, 1_000_000, 1e6 or 2.5e5; `None` for any other text. Works on the digits, since a
/// float would round a long number.
pub fn whole_number(text: &str) -> Option<usize> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<u32>().ok()?),
        None => (text, 0),
    };
    let (before, after) = mantissa.split_once('.').map_or((mantissa, None), |(before, after)| (before, Some(after)));
    // Underscores stand between digits.
    let grouped =
        |digits: &str| digits.split('_').all(|group| group.chars().all(|c| c.is_ascii_digit()) && !group.is_empty());
    if !grouped(before) || after.is_some_and(|after| !grouped(after)) {
        return None;
    }
    let digits = |text: &str| text.replace('_', "");
    let after = digits(after.unwrap_or(""));
    let after = after.trim_end_matches('0');
    let zeros = exponent.checked_sub(u32::try_from(after.len()).ok()?)?;
    let number: usize = (digits(before) + after).parse().ok()?;
    if number == 0 { Some(0) } else { number.checked_mul(10usize.checked_pow(zeros)?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (n, text) in [(0, "0"), (999, "999"), (60_000, "60,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(n), text);
        }
        for (x, text) in [
            (0.324_703, "0.3247"),
            (1525.4, "1525"),
            (12.3456, "12.35"),
            (2.301e-6, "2.301e-6"),
            (0.0, "0.000"),
            (4.2e7, "4.200e7"),
        ] {
            assert_eq!(short(x), text);
        }
        assert_eq!((short(-0.25), short(f64::NAN)), ("-0.2500".into(), "NaN".into()));
        assert_eq!(
            (counted(1, "rank", "ranks"), counted(0, "party", "parties")),
            ("1 rank".into(), "0 parties".into())
        );
    }

    #[test]
    fn numbers_keep_their_digits() {
        for (x, text) in [
            (0.0, "0.000000"),
            (0.3247, "0.324700"),
            (-2.5, "-2.500000"),
            (3.30388e-9, "3.303880e-9"),
            (1e300, "1.000000e300"),
        ] {
            assert_eq!(precise(x), text);
        }
    }

    #[test]
    fn sizes_as_text() {
        for (n, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1_048_575, "1.0 MiB"), (u64::MAX, "16.0 EiB")]
        {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn durations_are_rough() {
        for (seconds, text) in [
            (0.01, "less than 1 s"),
            (2.4, "about 2 s"),
            (175.0, "about 3 min"),
            (5400.0, "about 2 h"),
            (864_000.0, "about 10 days"),
        ] {
            assert_eq!(about(seconds), text);
        }
    }

    #[test]
    fn sizes_are_parsed_or_refused() {
        for (text, bytes) in
            [("4G", 4u64 << 30), ("512M", 512 << 20), ("1.5k", 1536), ("2GiB", 2 << 30), ("1e6", 1_000_000)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "4X", "0", "nan", "1e30"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
