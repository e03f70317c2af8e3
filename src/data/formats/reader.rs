//! What the readers of all formats share: how they hand over entries, and which entries they accept.

use std::ops::Range;

use crate::data::formats::refusal::Refusal;
use crate::error::Result;
use crate::linalg::Real;

/// Receives (row, column, value) of each entry, numbered as in the file; the error says what is wrong with the value.
/// Readers are generic in it because it is called once per entry.
pub trait EntrySink: FnMut(usize, usize, f64) -> std::result::Result<(), String> {}

impl<F: FnMut(usize, usize, f64) -> std::result::Result<(), String>> EntrySink for F {}

/// The result of parsing a block of text; an error comes with the byte of the block at which its line begins.
pub type BlockResult<T> = std::result::Result<T, (usize, Refusal)>;

/// Reads a dense file in storage order. A *line* is a row, or a column of a file stored by columns.
pub trait DenseReader<T> {
    /// Reads the entries `within` of each of `lines` into `out`, line after line. Successive calls move forward through
    /// the reader's part of the file; several lines are only requested whole.
    ///
    /// # Errors
    /// If the file does not hold them, or an entry is not accepted.
    fn fill(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()>;
}

/// Which entries are accepted.
#[derive(Debug, Clone, Copy)]
pub struct EntryPolicy {
    pub allow_negative: bool,
    /// Whether NaN is accepted, as a missing value.
    pub allow_nan: bool,
    /// What to do about a missing value that is not accepted, as a sentence without its end.
    pub remedy: &'static str,
}

/// What to do about missing values where that is up to the command.
pub const LEAVE_OUT: &str = "--missing nan leaves it out";

impl EntryPolicy {
    /// For a command that says itself whether values are missing.
    pub fn new(allow_negative: bool, allow_nan: bool) -> Self {
        EntryPolicy { allow_negative, allow_nan, remedy: LEAVE_OUT }
    }

    /// The entry in the precision of the run. No reason contains the value: errors of one party's file reach the others.
    ///
    /// # Errors
    /// The reason why it is refused, as a predicate: "is …".
    #[inline]
    pub fn check<T: Real>(self, x: f64) -> std::result::Result<T, String> {
        let value = T::from_f64(x);
        // A tiny negative number may become zero in the conversion.
        let negative = x < 0.0 && !self.allow_negative;
        if self.accepts(value) && !negative { Ok(value) } else { Err(self.reason::<T>(x)) }
    }

    #[inline]
    fn accepts<T: Real>(self, x: T) -> bool {
        (self.allow_nan & x.is_nan()) | (x.is_finite() & ((x >= T::zero()) | self.allow_negative))
    }

    /// The index of the first refused entry of `values`, and the reason.
    pub fn first_refused<T: Real>(self, values: &[T]) -> Option<(usize, String)> {
        // Whole blocks first, without a branch per entry.
        let block = values.chunks(1024).position(|c| !c.iter().fold(true, |all, &x| all & self.accepts(x)))?;
        let at = block * 1024 + values[block * 1024..].iter().position(|&x| !self.accepts(x))?;
        Some((at, self.reason::<T>(values[at].as_f64())))
    }

    fn reason<T: Real>(self, x: f64) -> String {
        if x.is_nan() {
            format!("is not a number (NaN); if that marks a missing value, {}", self.remedy)
        } else if x.is_infinite() {
            format!("is infinite, or too large for --precision {}", T::NAME)
        } else if !T::from_f64(x).is_finite() {
            format!("is too large for --precision {}", T::NAME)
        } else {
            "is negative, but the factorisation requires a nonnegative matrix".to_string()
        }
    }
}

/// A position for a message, counted from 1.
pub fn position(row: usize, col: usize) -> String {
    format!("row {}, column {}", row + 1, col + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_state_their_reason() {
        let strict = EntryPolicy::new(false, false);
        assert_eq!(strict.check::<f64>(2.0), Ok(2.0));
        assert!(strict.check::<f64>(-1.0).unwrap_err().contains("negative"));
        assert!(strict.check::<f64>(f64::NAN).unwrap_err().contains("NaN"));
        assert!(strict.check::<f32>(1e300).unwrap_err().contains("too large"));
        assert_eq!(EntryPolicy::new(true, false).check::<f64>(-1.0), Ok(-1.0));
        let missing = EntryPolicy::new(false, true);
        assert!(missing.check::<f64>(f64::NAN).is_ok_and(f64::is_nan) && missing.check::<f64>(-1.0).is_err());
        assert!(missing.first_refused(&[1.0, f64::NAN, 0.0]).is_none());
        assert!(missing.first_refused(&[f64::INFINITY]).is_some());
        let mut values = vec![1.0f32; 5000];
        assert!(strict.first_refused(&values).is_none());
        values[4097] = -3.0;
        assert_eq!(strict.first_refused(&values).unwrap().0, 4097);
    }
}
