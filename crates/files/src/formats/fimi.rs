//! FIMI transactions: each line is a row, and its items are the columns of its ones. Items are numbered from 1, or from 0
//! if a 0 occurs; an empty line is a row of zeros.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::formats::number::whole;
use crate::formats::reader::{BlockResult, EntrySink};
use crate::formats::refusal::Refusal;

/// Counts over a text of transactions, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transactions {
    pub rows: u64,
    pub ones: u64,
    pub least: u64,
    pub most: u64,
}

/// The range of the items of one or several texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Items {
    least: u64,
    most: u64,
}

impl Items {
    /// The items of a range that is not empty.
    pub fn new(range: &Range<u64>) -> Option<Items> {
        (!range.is_empty()).then(|| Items { least: range.start, most: range.end - 1 })
    }

    /// The items that are columns.
    pub fn columns(self) -> Range<u64> {
        self.least.min(1)..self.most.saturating_add(1)
    }

    /// The smallest range that contains both.
    #[must_use]
    pub fn merge(self, other: Items) -> Items {
        Items { least: self.least.min(other.least), most: self.most.max(other.most) }
    }
}

impl Transactions {
    pub const EMPTY: Transactions = Transactions { rows: 0, ones: 0, least: u64::MAX, most: 0 };

    /// The combined counts of this part and another.
    #[must_use]
    pub fn merge(self, other: Transactions) -> Transactions {
        Transactions {
            rows: self.rows + other.rows,
            ones: self.ones + other.ones,
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// The counts over a block of lines.
    ///
    /// # Errors
    /// If a line is invalid: its position and the reason.
    pub fn count(text: &[u8]) -> BlockResult<Transactions> {
        let mut counts = Transactions::EMPTY;
        let rows = items(text, &mut |_, item| {
            counts.ones += 1;
            counts.least = counts.least.min(item);
            counts.most = counts.most.max(item);
            Ok(())
        })?;
        Ok(Transactions { rows, ..counts })
    }

    /// The range of the items.
    pub fn items(&self) -> Items {
        Items { least: self.least, most: self.most }
    }

    /// The same counts with another range of items, that of all files together.
    #[must_use]
    pub fn within(self, Items { least, most }: Items) -> Transactions {
        Transactions { least, most, ..self }
    }

    /// Number of columns: the items from the first to the last.
    pub fn cols(&self) -> u64 {
        let columns = self.items().columns();
        columns.end.saturating_sub(columns.start)
    }

    /// The item of the first column.
    fn base(&self) -> u64 {
        self.items().columns().start
    }

    /// Passes the entries of a block of lines to `sink` and returns their number; `before` lines precede the block.
    ///
    /// # Errors
    /// If a line is invalid: its position and the reason.
    pub fn entries(&self, text: &[u8], before: u64, sink: &mut impl EntrySink) -> BlockResult<u64> {
        let (mut ones, base) = (0, self.base());
        items(text, &mut |line, item| {
            ones += 1;
            sink((before + line) as usize, (item - base) as usize, 1.0)
        })?;
        Ok(ones)
    }
}

/// Counts the lines of a block; the last one may lack its line end.
pub fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64 + u64::from(text.last().is_some_and(|&b| b != b'\n'))
}

/// Passes (line, item) of each item of a block to `sink`, each item of a line once, and returns the number of lines.
fn items(text: &[u8], sink: &mut impl FnMut(u64, u64) -> Result<(), String>) -> BlockResult<u64> {
    let mut line = 0;
    let mut at = 0;
    let mut start = 0;
    let mut seen: Vec<u64> = Vec::new();
    loop {
        match text.get(at) {
            Some(b' ' | b'\t' | b'\r' | b',') => at += 1,
            end @ (None | Some(b'\n')) => {
                if !seen.is_sorted_by(|a, b| a < b) {
                    seen.sort_unstable();
                    seen.dedup();
                }
                seen.drain(..).try_for_each(|item| sink(line, item)).map_err(|what| (start, what.into()))?;
                if end.is_none() {
                    return Ok(line + u64::from(at > start));
                }
                line += 1;
                at += 1;
                start = at;
            }
            Some(_) => {
                let Some((item, used)) = whole(&text[at..]) else {
                    return Err((start, not_whole(&text[at..])));
                };
                at += used;
                if !matches!(text.get(at), None | Some(b' ' | b'\t' | b'\r' | b'\n' | b',')) {
                    return Err((start, not_whole(&text[at - used..])));
                }
                seen.push(item);
            }
        }
    }
}

fn not_whole(text: &[u8]) -> Refusal {
    Refusal::quoting(text, |text| format!("expected whole numbers, found {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rows() {
        let mut out = Vec::new();
        let rows = items(b"3 1 3 2 \r\n\n7\n5", &mut |row, item| {
            out.push((row, item));
            Ok(())
        });
        assert_eq!(rows, Ok(4));
        assert_eq!(out, [(0, 1), (0, 2), (0, 3), (2, 7), (3, 5)]);
        let found = Transactions::count(b"3 1 3 2 \n\n7\n").unwrap();
        assert_eq!(found, Transactions { rows: 3, ones: 4, least: 1, most: 7 });
        assert_eq!(found.base(), 1);
        assert_eq!(found.merge(Transactions::count(b"0\n").unwrap()).base(), 0);
        assert_eq!(Transactions::count(b"").unwrap(), Transactions::EMPTY);
    }

    #[test]
    fn only_whole_numbers_are_accepted() {
        for (text, place) in [("1 2\nx\n", 4), ("1 -2\n", 0), ("1.5\n", 0), ("99999999999999999999999\n", 0)] {
            assert_eq!(Transactions::count(text.as_bytes()).unwrap_err().0, place, "{text}");
        }
    }
}
