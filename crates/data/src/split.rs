//! How much of the data each party has: even parts, `--skew`, or the counts of a `--split` file.

use std::ops::Range;

use fednmf_base::error::{Error, Result};
use fednmf_comm::even_part;

/// How rows or columns are divided among the parties.
#[derive(Debug, Clone, PartialEq)]
pub enum PartySplit {
    /// Equal parts.
    Even,
    /// This fraction (perhaps 0) for party 0; equal parts of the rest for the others.
    First(f64),
    /// A number for each party.
    Counts(Vec<usize>),
}

impl PartySplit {
    /// Parses the text of a `--split` file: one whole number per line, beginning with party 0. A `#` begins a comment;
    /// empty lines are ignored.
    ///
    /// # Errors
    /// If a line is not a count, or if there is no count.
    pub fn parse(text: &str) -> Result<Self> {
        let mut counts = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let word = line.split('#').next().unwrap_or("").trim();
            if word.is_empty() {
                continue;
            }
            counts.push(word.parse().map_err(|_| {
                Error::input(format!(
                    "line {}: '{word}' is not a whole number; each line is the number of columns (for methods that split \
                     rows: of rows) of one party",
                    at + 1
                ))
            })?);
        }
        if counts.is_empty() {
            return Err(Error::input("holds no count; each line is the number of columns or rows of one party"));
        }
        Ok(PartySplit::Counts(counts))
    }

    /// The counts as text, for comparison with a checkpoint; `None` if the split is not by counts.
    pub fn counts(&self) -> Option<String> {
        let PartySplit::Counts(counts) = self else { return None };
        Some(counts.iter().map(usize::to_string).collect::<Vec<_>>().join(" "))
    }

    /// Checks that the split divides `total` items (`what`: rows or columns) among `parties`.
    ///
    /// # Errors
    /// If the number of counts or their sum is wrong, or if a fraction is given for a single party.
    pub fn check(&self, total: usize, parties: usize, what: &str) -> Result<()> {
        if matches!(self, PartySplit::First(_)) && parties == 1 {
            return Err(Error::input("a single party has all of the data; leave this out, or give more --parties"));
        }
        let PartySplit::Counts(counts) = self else { return Ok(()) };
        if counts.len() != parties {
            return Err(Error::input(format!("{} counts for {parties} parties (--parties)", counts.len())));
        }
        let sum = counts.iter().fold(0u128, |sum, &count| sum + count as u128);
        if sum != total as u128 {
            return Err(Error::input(format!("the counts add up to {sum}, but the matrix has {total} {what}")));
        }
        Ok(())
    }

    /// Each party's run of `total` items. Counts must add up to `total`; see [`PartySplit::check`].
    pub(super) fn cuts(&self, total: usize, parts: usize) -> Vec<Range<usize>> {
        match self {
            PartySplit::First(fraction) if parts > 1 => {
                let first = ((total as f64 * fraction).round() as usize).min(total);
                let others = (0..parts - 1).map(|i| even_part(total - first, parts - 1, i));
                std::iter::once(0..first).chain(others.map(|p| p.start + first..p.end + first)).collect()
            }
            PartySplit::First(_) => whole(total),
            PartySplit::Even => (0..parts).map(|i| even_part(total, parts, i)).collect(),
            PartySplit::Counts(counts) => counts
                .iter()
                .scan(0, |end, &count| {
                    let start = *end;
                    *end += count;
                    Some(start..*end)
                })
                .collect(),
        }
    }
}

/// `total` items as a single run.
pub fn whole(total: usize) -> Vec<Range<usize>> {
    std::iter::once(0..total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_covers_all_items() {
        for parts in [1, 2, 3, 4, 97, 120] {
            for split in [PartySplit::Even, PartySplit::First(0.5), PartySplit::First(0.0)] {
                let cuts = split.cuts(97, parts);
                let covered = cuts.iter().try_fold(0, |end, p| (end == p.start && p.end >= end).then_some(p.end));
                assert_eq!((cuts.len(), covered), (parts, Some(97)), "{split:?} {parts}");
            }
        }
        assert_eq!(PartySplit::First(0.5).cuts(100, 3), [0..50, 50..75, 75..100]);
    }

    #[test]
    fn a_file_lists_the_counts() {
        let split = PartySplit::parse("# hospital, columns\n30\n  0 # none yet\n\n12\r\n").unwrap();
        assert_eq!(split, PartySplit::Counts(vec![30, 0, 12]));
        assert_eq!(split.cuts(42, 3), [0..30, 30..30, 30..42]);
        split.check(42, 3, "columns").unwrap();
        for (total, parties, words) in [(41, 3, ["42", "41 columns"]), (42, 4, ["3 counts", "4 parties"])] {
            let message = split.check(total, parties, "columns").unwrap_err().message;
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
        for (text, words) in [
            ("3\n4 5\n", ["line 2", "4 5"]),
            ("3\n\n-1", ["line 3", "-1"]),
            ("1.5", ["line 1", "1.5"]),
            ("99999999999999999999999", ["line 1", "whole number"]),
            ("# nothing\n\n", ["no count", "each line"]),
        ] {
            let message = PartySplit::parse(text).unwrap_err().message;
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
        let huge = PartySplit::Counts(vec![usize::MAX, usize::MAX]);
        assert!(huge.check(5, 2, "rows").is_err());
    }
}
