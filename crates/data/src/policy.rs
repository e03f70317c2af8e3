//! Which entries of a matrix are accepted.

use std::fmt;

use pulp::{Simd, WithSimd};

use fednmf_linalg::Real;
use fednmf_linalg::simd::dispatch;

use crate::ends::Span;

/// How a user can handle missing or NaN entries that are refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NanRemedy {
    /// The command can leave them out (`--missing nan`).
    #[default]
    LeaveOut,
    /// Zeros are left out (`--missing zero-unobserved`).
    Zero,
    /// Other methods can leave them out; the text names them.
    OtherMethods(&'static str),
    /// The command cannot handle them; the user must fill them in.
    FillIn,
    /// They are in a file of marks.
    Mark,
}

impl fmt::Display for NanRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NanRemedy::LeaveOut => f.write_str("if that marks a missing value, --missing nan leaves it out"),
            NanRemedy::Zero => f.write_str(
                "if that marks a missing value, remove its line from triples, or write 0 in its place elsewhere: \
                 --missing zero-unobserved takes zeros as missing",
            ),
            NanRemedy::OtherMethods(words) => write!(f, "if that marks a missing value, {words}"),
            NanRemedy::FillIn => {
                f.write_str("missing values cannot be prepared; fill them in, or remove their rows or columns, before")
            }
            NanRemedy::Mark => {
                f.write_str("marks are numbers: 1 where an entry of the data is missing, and 0 elsewhere")
            }
        }
    }
}

/// An entry in the precision of the run. A positive one stays positive, however small: zeros may count as missing.
#[inline(always)]
pub fn rounded<T: Real>(x: f64) -> T {
    let value = T::from_f64(x);
    if (value == T::zero()) & (x > 0.0) { T::from_f64(f64::from(f32::from_bits(1))) } else { value }
}

/// Which entries are accepted.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryPolicy {
    pub allow_negative: bool,
    /// Whether NaN is accepted as a missing value.
    pub allow_nan: bool,
    pub nan_remedy: NanRemedy,
}

impl EntryPolicy {
    /// Converts an entry to the precision of the run.
    ///
    /// # Errors
    /// The reason for a refusal, as a predicate: "is …". It does not contain the value, because errors in one party's file
    /// reach the other parties.
    #[inline]
    pub fn check<T: Real>(self, x: f64) -> std::result::Result<T, String> {
        let value = rounded::<T>(x);
        // A tiny negative number may become zero in the conversion.
        let negative = x < 0.0 && !self.allow_negative;
        if self.accepts(value) && !negative { Ok(value) } else { Err(self.reason::<T>(x)) }
    }

    #[inline(always)]
    fn accepts<T: Real>(self, x: T) -> bool {
        let least = if self.allow_negative { T::min_value() } else { T::zero() };
        (self.allow_nan & x.is_nan()) | ((x >= least) & (x <= T::max_value()))
    }

    /// Whether all entries with this span are accepted.
    pub fn accepts_all<T: Real>(self, span: Span) -> bool {
        let [most, least] = [span.ends[0], -span.ends[1]].map(T::from_f64);
        (self.allow_nan || !span.missing) && (most < least || self.accepts(most) && self.accepts(least))
    }

    /// The index of the first refused entry of `values`, and the reason.
    pub fn first_refused<T: Real>(self, values: &[T]) -> Option<(usize, String)> {
        let block = dispatch(RefusedBlock { policy: self, values })? * BLOCK;
        let at = block + values[block..].iter().position(|&x| !self.accepts(x))?;
        Some((at, self.reason::<T>(values[at].as_f64())))
    }

    fn reason<T: Real>(self, x: f64) -> String {
        if x.is_nan() {
            format!("is not a number (NaN); {}", self.nan_remedy)
        } else if x.is_infinite() {
            format!("is infinite, or too large for --precision {}", T::NAME)
        } else if !T::from_f64(x).is_finite() {
            format!("is too large for --precision {}", T::NAME)
        } else {
            "is negative, but the factorisation requires a nonnegative matrix".to_string()
        }
    }
}

/// Size of the blocks that are checked as a whole.
const BLOCK: usize = 1024;

/// The number of the first block with a refused entry.
struct RefusedBlock<'a, T> {
    policy: EntryPolicy,
    values: &'a [T],
}

impl<T: Real> WithSimd for RefusedBlock<'_, T> {
    type Output = Option<usize>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Option<usize> {
        // No branch per entry, so that the loop is vectorised.
        let accepted = |block: &[T]| block.iter().fold(true, |all, &x| all & self.policy.accepts(x));
        self.values.chunks(BLOCK).position(|block| !accepted(block))
    }
}

/// A position for a message, counted from 0 like all indices except line numbers.
pub fn position(row: usize, col: usize) -> String {
    format!("row {row}, column {col}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ends::NO_ENDS;

    #[test]
    fn positive_entries_stay_positive() {
        for x in [5e-324, 1e-200, 1e-46, 1e-45, 1e-38, 1.0] {
            assert!(rounded::<f32>(x) > 0.0 && rounded::<f64>(x) == x, "{x}");
        }
        assert_eq!([0.0, -1e-50, -1.0].map(rounded::<f32>), [0.0, 0.0, -1.0]);
    }

    #[test]
    fn refusals_state_their_reason() {
        let strict = EntryPolicy::default();
        assert_eq!(strict.check::<f64>(2.0), Ok(2.0));
        assert!(strict.check::<f64>(-1.0).unwrap_err().contains("negative"));
        assert!(strict.check::<f64>(f64::NAN).unwrap_err().contains("NaN"));
        let prepared = EntryPolicy { nan_remedy: NanRemedy::FillIn, ..strict };
        assert!(strict.check::<f64>(f64::NAN).unwrap_err().contains("--missing nan"));
        assert!(!prepared.check::<f64>(f64::NAN).unwrap_err().contains("--missing"));
        let zeros = EntryPolicy { nan_remedy: NanRemedy::Zero, ..strict };
        assert!(zeros.check::<f64>(f64::NAN).unwrap_err().contains("remove its line from triples"));
        assert!(strict.check::<f32>(1e300).unwrap_err().contains("too large"));
        assert_eq!(EntryPolicy { allow_negative: true, ..strict }.check::<f64>(-1.0), Ok(-1.0));
        let missing = EntryPolicy { allow_nan: true, ..strict };
        assert!(missing.check::<f64>(f64::NAN).is_ok_and(f64::is_nan) && missing.check::<f64>(-1.0).is_err());
        assert!(missing.first_refused(&[1.0, f64::NAN, 0.0]).is_none());
        assert!(missing.first_refused(&[f64::INFINITY]).is_some());
        let mut values = vec![1.0f32; 5000];
        assert!(strict.first_refused(&values).is_none());
        values[4097] = -3.0;
        assert_eq!(strict.first_refused(&values).unwrap().0, 4097);
        let accepted = |policy: EntryPolicy, most, least: f64, missing| {
            policy.accepts_all::<f32>(Span { ends: [most, -least], missing })
        };
        assert!(accepted(strict, 3.0, 0.0, false) && !accepted(strict, 3.0, 0.0, true));
        assert!(accepted(missing, 3.0, 0.0, true) && !accepted(missing, 3.0, -1.0, true));
        assert!(!accepted(strict, 1e300, 0.0, false));
        // Nothing but missing entries.
        assert!(missing.accepts_all::<f64>(Span { ends: NO_ENDS, missing: true }));
    }
}
