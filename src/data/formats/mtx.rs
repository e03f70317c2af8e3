//! MatrixMarket: `coordinate` and `array`; `real`, `integer`, `pattern`; `general` and `symmetric`.

use std::io::{BufRead, BufReader, Read};

use serde::{Deserialize, Serialize};

use crate::data::formats::file::Sink;
use crate::data::formats::number::{float, whole};
use crate::data::formats::text::{io_error, quote, stream};
use crate::error::{Error, Result};

/// What the header of a MatrixMarket file says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Market {
    pub rows: usize,
    pub cols: usize,
    /// Entries as the file writes them.
    pub entries: u64,
    pub coordinate: bool,
    pub pattern: bool,
    pub symmetric: bool,
    /// Where the entries begin in the (uncompressed) text.
    pub start: u64,
    /// The banner without its first word.
    pub banner: String,
}

/// Most bytes that one byte of a gzip file can stand for.
const DEFLATE: u64 = 1032;
/// Longest banner and size line.
const LINE: u64 = 1 << 12;

/// Bytes of text that a file of this size can hold.
pub fn text_bytes(size: u64, gz: bool) -> u64 {
    if gz { size.saturating_mul(DEFLATE) } else { size }
}

/// Reads the header; `size` is the file's.
pub fn header(path: &str, gz: bool, size: u64) -> Result<Market> {
    let mut from = BufReader::new(stream(path, gz)?);
    let wrong = |line: usize, what: String| Error::input(format!("{path}: line {line}: {what}"));
    let mut start = 0;
    let mut line = Vec::new();
    let mut number = 0;
    let mut banner: Option<Vec<String>> = None;
    loop {
        line.clear();
        number += 1;
        let limit = if banner.is_some() { u64::MAX } else { LINE };
        let comment = banner.is_some() && from.fill_buf().map_err(|e| io_error(path, &e))?.first() == Some(&b'%');
        if comment {
            start += skip_line(&mut from).map_err(|e| io_error(path, &e))?;
            continue;
        }
        let got = (&mut from).take(limit.min(LINE)).read_until(b'\n', &mut line).map_err(|e| io_error(path, &e))?;
        start += got as u64;
        if got == 0 {
            return Err(Error::input(format!("{path}: ends before its size line (an empty or truncated file)")));
        }
        let words: Vec<String> =
            String::from_utf8_lossy(&line).split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
        let Some(banner) = &banner else {
            if words.first().is_none_or(|w| w != "%%matrixmarket") {
                return Err(wrong(1, format!("begins with {}, not with %%MatrixMarket", quote(&line))));
            }
            banner = Some(words);
            continue;
        };
        if words.is_empty() {
            continue;
        }
        let market = understand(banner, &words).map_err(|what| wrong(number, what))?;
        return check(Market { start, ..market }, text_bytes(size, gz).saturating_sub(start))
            .map_err(|what| wrong(number, what));
    }
}

fn skip_line(from: &mut impl BufRead) -> std::io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = from.fill_buf()?;
        let (used, done) = match memchr::memchr(b'\n', buffer) {
            Some(end) => (end + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        from.consume(used);
        skipped += used as u64;
        if done {
            return Ok(skipped);
        }
    }
}

fn understand(banner: &[String], size: &[String]) -> std::result::Result<Market, String> {
    let word = |i: usize| banner.get(i).map_or("", String::as_str);
    let known = |i: usize, good: &[&str], what: &str| {
        if good.contains(&word(i)) {
            Ok(())
        } else {
            Err(format!("the header says '{}' for the {what}; {} can be read", word(i), good.join(" and ")))
        }
    };
    known(1, &["matrix"], "object")?;
    known(2, &["coordinate", "array"], "format")?;
    known(3, &["real", "double", "integer", "unsigned-integer", "pattern"], "field")?;
    known(4, &["general", "symmetric"], "symmetry")?;
    let coordinate = word(2) == "coordinate";
    let pattern = word(3) == "pattern";
    let symmetric = word(4) == "symmetric";
    if pattern && !coordinate {
        return Err("an array cannot be a pattern".into());
    }
    let numbers: Option<Vec<u64>> = size.iter().map(|w| w.parse().ok()).collect();
    let (rows, cols, entries) = match numbers.as_deref() {
        Some(&[rows, cols, entries]) if coordinate => (rows, cols, entries),
        Some(&[rows, cols]) if !coordinate => {
            let all = if symmetric {
                u128::from(rows) * (u128::from(rows) + 1) / 2
            } else {
                u128::from(rows) * u128::from(cols)
            };
            (rows, cols, u64::try_from(all).unwrap_or(u64::MAX))
        }
        _ => {
            let want = if coordinate { "rows, columns and entries" } else { "rows and columns" };
            return Err(format!("the size line should hold the numbers of {want}, not '{}'", size.join(" ")));
        }
    };
    if symmetric && rows != cols {
        return Err(format!("symmetric, but {rows} × {cols}"));
    }
    let banner = format!("MatrixMarket {} {} {}", word(2), word(3), word(4));
    Ok(Market { rows: rows as usize, cols: cols as usize, entries, coordinate, pattern, symmetric, start: 0, banner })
}

/// Refuses what the file cannot hold, before anything is allocated for it.
fn check(market: Market, left: u64) -> std::result::Result<Market, String> {
    let Market { rows, cols, entries, coordinate, pattern, .. } = market;
    // the shortest entries are `1 1`, `1 1 1` and `1`, each with a line end, which the last may lack
    let least = match (coordinate, pattern) {
        (true, true) => 4,
        (true, false) => 6,
        (false, _) => 2,
    };
    if entries.saturating_mul(least) > left.saturating_add(1) {
        return Err(format!("the header promises {entries} entries, more than the {left} bytes after it can hold"));
    }
    shape(rows, cols, coordinate.then_some(entries)).map(|()| market)
}

/// Refuses shapes that no honest file has: nothing in one direction, or far more rows or columns than entries.
pub fn shape(rows: usize, cols: usize, entries: Option<u64>) -> std::result::Result<(), String> {
    if rows == 0 || cols == 0 {
        return Err(format!("the matrix is empty: {rows} × {cols}"));
    }
    let Some(entries) = entries else { return Ok(()) };
    let most = entries.saturating_mul(1000).saturating_add(1_000_000).min(i32::MAX as u64);
    if rows as u64 > most || cols as u64 > most {
        return Err(format!(
            "the header promises {rows} × {cols} with {entries} entries: more rows or columns than this program takes \
             (2147483647, and 1000 for each entry)"
        ));
    }
    Ok(())
}

impl Market {
    /// Hands each entry of a block of whole lines to `sink`, symmetric ones twice, and returns how many were written.
    /// An error comes with its place in the block.
    pub fn coordinates(&self, text: &[u8], sink: &mut impl Sink) -> std::result::Result<u64, (usize, String)> {
        let mut at = 0;
        let mut entries = 0;
        while let Some(line) = next_line(text, &mut at) {
            let mut p = line;
            let (Some(i), Some(j)) = (index(text, &mut p), index(text, &mut p)) else {
                return Err((
                    line,
                    format!(
                        "expected row, column{}, found {}",
                        if self.pattern { "" } else { ", value" },
                        quote(&text[line..])
                    ),
                ));
            };
            if i == 0 || j == 0 || i > self.rows as u64 || j > self.cols as u64 {
                return Err((
                    line,
                    format!("row {i}, column {j} lies outside the {} × {} matrix", self.rows, self.cols),
                ));
            }
            let value = if self.pattern {
                1.0
            } else {
                let Some((value, used)) = float(&text[p..]) else {
                    return Err((line, format!("expected row, column, value, found {}", quote(&text[line..]))));
                };
                p += used;
                value
            };
            at = line_end(text, p)
                .ok_or_else(|| (line, format!("more than an entry on a line: {}", quote(&text[line..]))))?;
            let (i, j) = (i as usize - 1, j as usize - 1);
            sink(i, j, value).map_err(|what| (line, what))?;
            if self.symmetric && i != j {
                sink(j, i, value).map_err(|what| (line, what))?;
            }
            entries += 1;
        }
        Ok(entries)
    }

    /// Hands each entry of a block of lines of a symmetric array to `sink`, both times; `before` entries lie before the
    /// block. The array is the lower triangle, column by column.
    pub fn triangle(
        &self,
        text: &[u8],
        before: u64,
        sink: &mut impl Sink,
    ) -> std::result::Result<u64, (usize, String)> {
        let n = self.rows;
        let column_start = |j: usize| j as u64 * n as u64 - (j as u64 * (j as u64).saturating_sub(1)) / 2;
        // the last column that begins at or before the block
        let (mut low, mut high) = (0, n);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if column_start(middle) <= before { low = middle } else { high = middle }
        }
        let mut j = low;
        let mut i = j + (before - column_start(j)) as usize;
        let (mut at, mut entries) = (0, 0);
        while let Some(line) = next_line(text, &mut at) {
            let (value, end) = crate::data::formats::lines::number_line(text, line).map_err(|what| (line, what))?;
            at = end;
            if j >= n {
                return Err((line, "more entries than the lower triangle has".into()));
            }
            sink(i, j, value).map_err(|what| (line, what))?;
            if i != j {
                sink(j, i, value).map_err(|what| (line, what))?;
            }
            entries += 1;
            i += 1;
            if i == n {
                j += 1;
                i = j;
            }
        }
        Ok(entries)
    }
}

/// The start of the next line that holds something, from `at` on; blank lines and comments are skipped.
pub fn next_line(text: &[u8], at: &mut usize) -> Option<usize> {
    loop {
        match text.get(*at)? {
            b' ' | b'\t' | b'\r' | b'\n' => *at += 1,
            b'%' => *at += memchr::memchr(b'\n', &text[*at..])? + 1,
            _ => return Some(*at),
        }
    }
}

/// Counts the lines that hold something.
pub fn count_lines(text: &[u8]) -> u64 {
    let (mut at, mut lines) = (0, 0);
    while let Some(line) = next_line(text, &mut at) {
        at = memchr::memchr(b'\n', &text[line..]).map_or(text.len(), |end| line + end + 1);
        lines += 1;
    }
    lines
}

/// The end of the line if only blanks follow.
fn line_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match text.get(at) {
            None => return Some(at),
            Some(b'\n') => return Some(at + 1),
            Some(b' ' | b'\t' | b'\r') => at += 1,
            _ => return None,
        }
    }
}

/// An index and the blanks behind it.
#[inline]
fn index(text: &[u8], at: &mut usize) -> Option<u64> {
    let (value, used) = whole(&text[*at..])?;
    *at += used;
    while matches!(text.get(*at), Some(b' ' | b'\t')) {
        *at += 1;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn head(text: &str) -> Result<Market> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        header(file.path().to_str().unwrap(), false, text.len() as u64)
    }

    #[test]
    fn headers() {
        let market =
            head("%%MatrixMarket matrix coordinate Integer Symmetric\n% x\n%\n\n 3 3 2\n1 1 1\n3 2 5\n").unwrap();
        assert_eq!((market.rows, market.cols, market.entries, market.symmetric), (3, 3, 2, true));
        assert_eq!(market.start, 65);
        for (text, names) in [
            ("", "empty or truncated"),
            ("%%MatrixMarket matrix coordinate real general\n% x\n", "truncated"),
            ("hello\n", "%%MatrixMarket"),
            ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n", "complex"),
            ("%%MatrixMarket matrix coordinate real skew-symmetric\n1 1 1\n", "skew-symmetric"),
            ("%%MatrixMarket matrix coordinate real general\n1 1\n", "size line"),
            ("%%MatrixMarket matrix coordinate real general\n2 -1 3\n", "size line"),
            ("%%MatrixMarket matrix coordinate real general\n0 5 0\n", "empty"),
            ("%%MatrixMarket matrix coordinate real general\n9 9 1000\n1 1 1\n", "promises 1000 entries"),
            ("%%MatrixMarket matrix coordinate real general\n2000000000 9 1\n1 1 1\n", "more rows"),
            ("%%MatrixMarket matrix array real general\n4294967296 4294967296\n1\n", "promises"),
            ("%%MatrixMarket matrix array real symmetric\n3 4\n1\n", "3 × 4"),
        ] {
            let message = head(text).unwrap_err().message;
            assert!(message.contains(names), "{text:?}: {message}");
        }
    }

    type Entries = Vec<(usize, usize, f64)>;

    fn entries(market: &Market, text: &str) -> std::result::Result<Entries, (usize, String)> {
        let mut out = Vec::new();
        market.coordinates(text.as_bytes(), &mut |i, j, v| {
            out.push((i, j, v));
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn entries_and_what_is_wrong_with_them() {
        let market = head("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n1 1 1\n3 2 5\n").unwrap();
        let found = entries(&market, "1 1 2.5\r\n\n% c\n 3\t2 -1e1 \n").unwrap();
        assert_eq!(found, [(0, 0, 2.5), (2, 1, -10.0), (1, 2, -10.0)]);
        for (text, at, names) in [
            ("1 1 1\n4 1 1\n", 6, "outside"),
            ("0 1 1\n", 0, "outside"),
            ("1 1\n", 0, "expected"),
            ("1 x 1\n", 0, "expected"),
            ("1 1 1 1\n", 0, "more than"),
            ("1 1 1\n1 1 0x4\n", 6, "more than"),
            ("-1 1 1\n", 0, "expected"),
            ("99999999999999999999999 1 1\n", 0, "expected"),
        ] {
            let (place, message) = entries(&market, text).unwrap_err();
            assert!(place == at && message.contains(names), "{text:?}: {place} {message}");
        }
        let array = Market { coordinate: false, ..market.clone() };
        // the columns 3 entries, 2, 1; the block begins with the third entry
        let mut out = Vec::new();
        let count = array.triangle(b"5\n6\n7\n", 2, &mut |i, j, v| {
            out.push((i, j, v));
            Ok(())
        });
        assert_eq!(count, Ok(3));
        assert_eq!(out, [(2, 0, 5.0), (0, 2, 5.0), (1, 1, 6.0), (2, 1, 7.0), (1, 2, 7.0)]);
        let pattern = Market { pattern: true, symmetric: false, ..market };
        assert_eq!(entries(&pattern, "2 3\n").unwrap(), [(1, 2, 1.0)]);
    }
}
