//! FIMI transactions: a line is a row, the numbers on it are the columns of its ones. Numbers count from 1, or from 0 if
//! a 0 occurs; an empty line is a row of zeros.

use serde::{Deserialize, Serialize};

use crate::data::formats::number::whole;
use crate::data::formats::text::quote;

/// What a text of transactions holds, in whole or in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baskets {
    pub rows: u64,
    pub ones: u64,
    pub least: u64,
    pub most: u64,
}

impl Baskets {
    pub const NOTHING: Baskets = Baskets { rows: 0, ones: 0, least: u64::MAX, most: 0 };

    /// Together with another part.
    pub fn and(self, other: Baskets) -> Baskets {
        Baskets {
            rows: self.rows + other.rows,
            ones: self.ones + other.ones,
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// The number of the first column.
    pub fn base(&self) -> u64 {
        self.least.min(1)
    }
}

/// Hands (line in the block, number) of each item to `sink`, each item of a line once; returns the number of lines.
///
/// # Errors
/// With the place in the block.
pub fn items(text: &[u8], sink: &mut impl FnMut(u64, u64) -> Result<(), String>) -> Result<u64, (usize, String)> {
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
                seen.drain(..).try_for_each(|item| sink(line, item)).map_err(|what| (start, what))?;
                if end.is_none() {
                    return Ok(line + u64::from(at > start));
                }
                line += 1;
                at += 1;
                start = at;
            }
            Some(_) => {
                let Some((item, used)) = whole(&text[at..]) else {
                    return Err((start, format!("expected whole numbers, found {}", quote(&text[at..]))));
                };
                at += used;
                if !matches!(text.get(at), None | Some(b' ' | b'\t' | b'\r' | b'\n' | b',')) {
                    return Err((start, format!("expected whole numbers, found {}", quote(&text[at - used..]))));
                }
                seen.push(item);
            }
        }
    }
}

/// Counts what a block of lines holds.
///
/// # Errors
/// With the place in the block.
pub fn survey(text: &[u8]) -> Result<Baskets, (usize, String)> {
    let mut found = Baskets::NOTHING;
    let rows = items(text, &mut |_, item| {
        found.ones += 1;
        found.least = found.least.min(item);
        found.most = found.most.max(item);
        Ok(())
    })?;
    Ok(Baskets { rows, ..found })
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
        let found = survey(b"3 1 3 2 \n\n7\n").unwrap();
        assert_eq!(found, Baskets { rows: 3, ones: 4, least: 1, most: 7 });
        assert_eq!(found.base(), 1);
        assert_eq!(found.and(survey(b"0\n").unwrap()).base(), 0);
        assert_eq!(survey(b"").unwrap(), Baskets::NOTHING);
    }

    #[test]
    fn other_things_than_numbers_are_refused() {
        for (text, place) in [("1 2\nx\n", 4), ("1 -2\n", 0), ("1.5\n", 0), ("99999999999999999999999\n", 0)] {
            assert_eq!(survey(text.as_bytes()).unwrap_err().0, place, "{text}");
        }
    }
}
