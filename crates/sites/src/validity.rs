//! For how long a certificate is valid. The library that verifies it only says whether it is valid now.

/// The next element of DER: its tag and its content.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let &[tag, length] = bytes.split_off(..2)?.first_chunk()?;
    let length = match length {
        0..0x80 => usize::from(length),
        _ => {
            let digits =
                bytes.split_off(..usize::from(length & 0x7f)).filter(|digits| (1..=4).contains(&digits.len()))?;
            digits.iter().fold(0, |value, &digit| value << 8 | usize::from(digit))
        }
    };
    Some((tag, bytes.split_off(..length)?))
}

/// The day of a time, counted from a fixed one: UTCTime has two digits of the year, GeneralizedTime four (RFC 5280,
/// section 4.1.2.5).
fn day((tag, text): (u8, &[u8])) -> Option<i64> {
    let (year, rest) = text.split_at_checked(if tag == 0x17 { 2 } else { 4 })?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok().map(i64::from);
    let year = match number(year)? {
        year if tag != 0x17 => year,
        year if year < 50 => year + 2000,
        year => year + 1900,
    };
    let (month, day) = (number(rest.get(..2)?)?, number(rest.get(2..4)?)?);
    // The year begins in March, so that a leap day ends it.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day)
}

/// The days for which a certificate in DER is valid; `None` if it is none.
pub fn days(certificate: &[u8]) -> Option<u64> {
    let (_, mut certificate) = element(&mut &*certificate)?;
    let (_, mut body) = element(&mut certificate)?;
    // An optional version, then serial number, algorithm and issuer.
    if body.first() == Some(&0xa0) {
        element(&mut body)?;
    }
    for _ in 0..3 {
        element(&mut body)?;
    }
    let (_, mut validity) = element(&mut body)?;
    let (begin, end) = (day(element(&mut validity)?)?, day(element(&mut validity)?)?);
    u64::try_from(end - begin).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(begin: (i32, u8, u8), days: u64) -> Vec<u8> {
        let mut params = CertificateParams::new(["a".to_string()]).unwrap();
        params.not_before = date_time_ymd(begin.0, begin.1, begin.2);
        params.not_after = params.not_before + Duration::from_secs(86_400 * days);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn days_are_counted_over_leap_years_and_both_forms_of_time() {
        for (begin, length) in
            [((2026, 1, 31), 1), ((2023, 12, 31), 366), ((2026, 11, 26), 825), ((1999, 12, 31), 36_525)]
        {
            assert_eq!(days(&certificate(begin, length)), Some(length), "{begin:?}");
        }
        // From 2050 on a time has four digits of the year.
        assert_eq!(days(&certificate((2049, 6, 1), 3650)), Some(3650));
    }

    proptest! {
        #[test]
        fn what_is_no_certificate_has_no_days(cut in 0usize..150, at in 0usize..300, bit in 0u8..8) {
            let whole = certificate((2026, 1, 1), 30);
            prop_assert!(days(&whole[..cut.min(whole.len())]).is_none());
            let mut changed = whole;
            let at = at % changed.len();
            changed[at] ^= 1 << bit;
            let _ = days(&changed);
        }
    }
}
