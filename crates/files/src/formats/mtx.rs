//! MatrixMarket: `coordinate` and `array`; `real`, `integer` and `pattern`; `general` and `symmetric`.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_data::policy::{EntryPolicy, position};
use fednmf_linalg::Real;

use crate::formats::io::InputFile;
use crate::formats::limits::{check_shape, unpacked_bytes};
use crate::formats::number::{float, whole};
use crate::formats::reader::{BlockResult, DenseReader, EntrySink};
use crate::formats::refusal::Refusal;
use crate::formats::text::{LineCursor, TextBlocks};

/// The header of a MatrixMarket file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Market {
    pub rows: usize,
    pub cols: usize,
    /// Number of entries written in the file.
    pub entries: u64,
    pub coordinate: bool,
    pub pattern: bool,
    pub symmetric: bool,
    /// Whether the declared field has only whole numbers.
    pub whole: bool,
    /// Position of the entries in the (uncompressed) text.
    pub start: u64,
    /// The banner without its first word.
    pub banner: String,
}

/// Maximum length of the banner and of the size line, in bytes.
const LONGEST_LINE: u64 = 1 << 12;

/// Reads the header of a file of `size` bytes.
///
/// # Errors
/// If a line is invalid; the message has its number.
pub fn header(file: &InputFile, size: u64) -> Result<Market> {
    let mut from = BufReader::new(file.stream()?);
    let io_error = |e| file.io_error(&e);
    let mut start = 0;
    let mut line = Vec::new();
    let mut banner: Option<Banner> = None;
    for number in 1.. {
        if banner.is_some() && from.fill_buf().map_err(io_error)?.first() == Some(&b'%') {
            start += from.skip_until(b'\n').map_err(io_error)? as u64;
            continue;
        }
        line.clear();
        let got = (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(io_error)?;
        start += got as u64;
        if got == 0 {
            break;
        }
        let words: Vec<String> =
            String::from_utf8_lossy(&line).split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
        let Some(banner) = &banner else {
            if words.first().is_none_or(|w| w != "%%matrixmarket") {
                return Err(file.error(Refusal::quoting(&line, |text| {
                    format!("line 1: begins with {text}, not with %%MatrixMarket")
                })));
            }
            let known = parse_banner(&words);
            banner = Some(known.map_err(|what| file.error(what.map(|what| format!("line {number}: {what}"))))?);
            continue;
        };
        if words.is_empty() {
            continue;
        }
        let market = parse_size(banner, &words).map(|market| Market { start, ..market });
        let left = unpacked_bytes(size, file.gz).saturating_sub(start);
        let checked = market.and_then(|market| check(&market, left).map(|()| market));
        return checked.map_err(|what| file.error(what.map(|what| format!("line {number}: {what}"))));
    }
    Err(file.error("ends before its size line (an empty or truncated file)"))
}

/// The declarations in the first line of a file.
struct Banner {
    coordinate: bool,
    pattern: bool,
    symmetric: bool,
    whole: bool,
    text: String,
}

/// Parses the words of the first line.
fn parse_banner(words: &[String]) -> std::result::Result<Banner, Refusal> {
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    let known = |i: usize, good: &[&str], what: &str| {
        if good.contains(&word(i)) {
            Ok(())
        } else {
            let supported = good.join(", ");
            Err(Refusal::quoting(word(i).as_bytes(), |word| {
                format!("the header declares the {what} {word}; supported: {supported}")
            }))
        }
    };
    known(1, &["matrix"], "object")?;
    known(2, &["coordinate", "array"], "format")?;
    known(3, &["real", "double", "integer", "unsigned-integer", "pattern"], "field")?;
    known(4, &["general", "symmetric"], "symmetry")?;
    let coordinate = word(2) == "coordinate";
    let pattern = word(3) == "pattern";
    if pattern && !coordinate {
        return Err("an array cannot be a pattern".into());
    }
    Ok(Banner {
        coordinate,
        pattern,
        symmetric: word(4) == "symmetric",
        whole: matches!(word(3), "integer" | "unsigned-integer" | "pattern"),
        text: format!("MatrixMarket {} {} {}", word(2), word(3), word(4)),
    })
}

/// Parses the words of the size line.
fn parse_size(banner: &Banner, size: &[String]) -> std::result::Result<Market, Refusal> {
    let &Banner { coordinate, pattern, symmetric, whole, .. } = banner;
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
            return Err(Refusal::quoting(size.join(" ").as_bytes(), |text| {
                format!("the size line must hold the numbers of {want}, not {text}")
            }));
        }
    };
    if symmetric && rows != cols {
        return Err(format!("symmetric, but {rows} × {cols}").into());
    }
    let (rows, cols, banner) = (rows as usize, cols as usize, banner.text.clone());
    Ok(Market { rows, cols, entries, coordinate, pattern, symmetric, whole, start: 0, banner })
}

/// Refuses a header that declares more entries than the `left` bytes after it can hold.
fn check(market: &Market, left: u64) -> std::result::Result<(), Refusal> {
    let &Market { rows, cols, entries, coordinate, pattern, .. } = market;
    // The shortest entries are `1 1`, `1 1 1` and `1`, each with a line end, which the last one may lack.
    let least = match (coordinate, pattern) {
        (true, true) => 4,
        (true, false) => 6,
        (false, _) => 2,
    };
    if entries.saturating_mul(least) > left.saturating_add(1) {
        return Err(
            format!("the header promises {entries} entries, more than the {left} bytes after it can hold").into()
        );
    }
    Ok(check_shape(rows, cols, coordinate.then_some(entries))?)
}

impl Market {
    /// Passes each entry of a block of coordinate lines to `sink`, an off-diagonal entry of a symmetric matrix twice.
    /// Returns the number of entries in the block.
    ///
    /// # Errors
    /// If a line is invalid: its position and the reason.
    pub fn coordinates(&self, text: &[u8], sink: &mut impl EntrySink) -> BlockResult<u64> {
        let mut at = 0;
        let mut entries = 0;
        while let Some(line) = next_line(text, &mut at) {
            let value_named = if self.pattern { "" } else { ", value" };
            let expected = || {
                let say = |found: &str| format!("expected row, column{value_named}, found {found}");
                (line, Refusal::quoting(&text[line..], say))
            };
            let mut p = line;
            let (Some(i), Some(j)) = (index(text, &mut p), index(text, &mut p)) else { return Err(expected()) };
            if i == 0 || j == 0 || i > self.rows as u64 || j > self.cols as u64 {
                let matrix = format!("outside the {} × {} matrix", self.rows, self.cols);
                let private = format!("an entry is {matrix}");
                return Err((line, Refusal::new(format!("row {i}, column {j} (counted from 1) is {matrix}"), private)));
            }
            let mut value = 1.0;
            if !self.pattern {
                let (number, used) = float(&text[p..]).ok_or_else(expected)?;
                value = number;
                p += used;
            }
            at = line_end(text, p).ok_or_else(|| {
                let hint =
                    if matches!(text.get(p), Some(b'd' | b'D')) { " (exponents are written with e or E)" } else { "" };
                let say = |found: &str| format!("more than row, column{value_named} on a line: {found}{hint}");
                (line, Refusal::quoting(&text[line..], say))
            })?;
            check_whole(self.whole, value).map_err(|what| (line, what))?;
            self.emit(i as usize - 1, j as usize - 1, value, sink).map_err(|what| (line, what.into()))?;
            entries += 1;
        }
        Ok(entries)
    }

    /// Passes each entry of a block of lines of a symmetric array to `sink`, off-diagonal entries twice, and returns the
    /// number of lines. The array is the lower triangle, column by column; `before` of its entries precede the block.
    ///
    /// # Errors
    /// If a line is invalid: its position and the reason.
    pub fn triangle(&self, text: &[u8], before: u64, sink: &mut impl EntrySink) -> BlockResult<u64> {
        let n = self.rows;
        let column_start = |j: usize| j as u64 * n as u64 - (j as u64 * (j as u64).saturating_sub(1)) / 2;
        // Bisection for the last column that begins at or before the block.
        let (mut low, mut high) = (0, n);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if column_start(middle) <= before { low = middle } else { high = middle }
        }
        let mut j = low;
        let mut i = j + (before - column_start(j)) as usize;
        let (mut at, mut entries) = (0, 0);
        while let Some(line) = next_array_line(text, &mut at) {
            let start = line.start;
            let value = array_entry(&text[line]).map_err(|what| (start, what))?;
            if j >= n {
                return Err((start, "more entries than the lower triangle has".into()));
            }
            check_whole(self.whole, value).map_err(|what| (start, what))?;
            self.emit(i, j, value, sink).map_err(|what| (start, what.into()))?;
            entries += 1;
            i += 1;
            if i == n {
                j += 1;
                i = j;
            }
        }
        Ok(entries)
    }

    #[inline]
    fn emit(&self, i: usize, j: usize, value: f64, sink: &mut impl EntrySink) -> std::result::Result<(), String> {
        sink(i, j, value)?;
        if self.symmetric && i != j { sink(j, i, value) } else { Ok(()) }
    }
}

/// Refuses a fraction if the header declares `whole` numbers: either is wrong.
#[inline]
fn check_whole(whole: bool, value: f64) -> std::result::Result<(), Refusal> {
    if whole && value.is_finite() && value.trunc() != value { Err(fraction(value)) } else { Ok(()) }
}

#[cold]
fn fraction(value: f64) -> Refusal {
    let full = format!("the value is {value}, but the header declares integers: write real there if it is right");
    Refusal::new(full, "a value is a fraction, but the header declares integers")
}

/// Reader of a general array: one entry per line, column by column.
pub struct ArrayReader {
    lines: LineCursor,
    rows: usize,
    whole: bool,
    policy: EntryPolicy,
    /// Index of the next entry.
    next: usize,
}

impl ArrayReader {
    /// Reads the entries of `market` in `blocks`, beginning with the entry of index `first`.
    pub fn new(market: &Market, blocks: TextBlocks, first: usize, policy: EntryPolicy) -> Self {
        let &Market { rows, whole, .. } = market;
        ArrayReader { lines: LineCursor::new(blocks), rows, whole, policy, next: first }
    }

    fn entry<T: Real>(&mut self) -> Result<T> {
        let (policy, whole, row, col) = (self.policy, self.whole, self.next % self.rows, self.next / self.rows);
        self.next += 1;
        self.lines.parse(next_array_line, |line| {
            let value = array_entry(line)?;
            check_whole(whole, value)?;
            let checked = policy.check(value);
            checked.map_err(|why| format!("the entry in {} {why}", position(row, col)).into())
        })
    }
}

impl<T: Real> DenseReader<T> for ArrayReader {
    fn read(&mut self, _: Range<usize>, _: Range<usize>, out: &mut [T]) -> Result<()> {
        out.iter_mut().try_for_each(|x| self.entry().map(|value| *x = value))
    }

    fn policy(&self) -> EntryPolicy {
        self.policy
    }

    fn refusal(&self, line: usize, at: usize, why: &str) -> Error {
        self.lines.source().error(format!("the entry in {} {why}", position(at, line)))
    }
}

/// The only number on a line.
fn array_entry(line: &[u8]) -> std::result::Result<f64, Refusal> {
    match float(line) {
        Some((value, used)) if line[used..].trim_ascii().is_empty() => Ok(value),
        _ => Err(Refusal::quoting(line, |text| format!("expected a number, found {text}"))),
    }
}

/// The start of the next line at or after `at` that is neither blank nor a comment.
fn next_line(text: &[u8], at: &mut usize) -> Option<usize> {
    loop {
        match text.get(*at)? {
            b' ' | b'\t' | b'\r' | b'\n' => *at += 1,
            b'%' => *at += memchr::memchr(b'\n', &text[*at..])? + 1,
            _ => return Some(*at),
        }
    }
}

/// The next line of an array; moves `at` past it.
fn next_array_line(text: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let line = next_line(text, at)?;
    *at = memchr::memchr(b'\n', &text[line..]).map_or(text.len(), |end| line + end + 1);
    Some(line..*at)
}

/// Counts the lines of an array.
pub fn count_lines(text: &[u8]) -> u64 {
    let mut at = 0;
    std::iter::from_fn(|| next_array_line(text, &mut at)).count() as u64
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

/// Parses an index and the blanks after it.
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
    use std::io::Write;

    use super::*;

    fn head(text: &str) -> Result<Market> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let source = InputFile { path: file.path().to_str().unwrap().to_string(), gz: false, private: false };
        header(&source, text.len() as u64)
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
            (
                "%%MatrixMarket matrix coordinate complex general\n% x\n1 1 1\n",
                "line 1: the header declares the field 'complex'",
            ),
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

    fn entries(market: &Market, text: &str) -> BlockResult<Entries> {
        let mut out = Vec::new();
        market.coordinates(text.as_bytes(), &mut |i, j, v| {
            out.push((i, j, v));
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn entries_are_parsed_or_refused() {
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
            let (place, refusal) = entries(&market, text).unwrap_err();
            let message = refusal.reason(false);
            assert!(place == at && message.contains(names), "{text:?}: {place} {message}");
        }
        let array = Market { coordinate: false, ..market.clone() };
        // The columns have 3, 2 and 1 entries; the block begins with the third.
        let mut out = Vec::new();
        let count = array.triangle(b"5\n6\n7\n", 2, &mut |i, j, v| {
            out.push((i, j, v));
            Ok(())
        });
        assert_eq!(count, Ok(3));
        assert_eq!(out, [(2, 0, 5.0), (0, 2, 5.0), (1, 1, 6.0), (2, 1, 7.0), (1, 2, 7.0)]);
        let whole = Market { whole: true, ..market.clone() };
        assert_eq!(entries(&whole, "1 1 3.0\n").unwrap(), [(0, 0, 3.0)]);
        let (place, refusal) = entries(&whole, "1 1 3\n2 2 2.5\n").unwrap_err();
        assert!(place == 6 && refusal.clone().reason(false).contains("2.5, but the header declares integers"));
        assert!(!refusal.reason(true).contains("2.5"));
        let pattern = Market { pattern: true, symmetric: false, ..market };
        assert_eq!(entries(&pattern, "2 3\n").unwrap(), [(1, 2, 1.0)]);
    }
}
