//! Tables in text: CSV, TSV and numbers separated by blanks, with or without a header line and a first column of names.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::data::formats::io::InputFile;
use crate::data::formats::number::float;
use crate::data::formats::reader::{DenseReader, EntryPolicy, position};
use crate::data::formats::text::{LineCursor, TextBlocks, quote};
use crate::error::Result;
use crate::linalg::Real;

/// How a table is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The byte between fields; a blank stands for any run of blanks.
    pub separator: u8,
    /// Whether each row begins with a name.
    pub names: bool,
    /// Position of the first row of numbers in the (uncompressed) text.
    pub start: u64,
    pub cols: usize,
}

/// Derives the layout from the first two lines; `tabs` fixes the separator.
///
/// # Errors
/// If the file cannot be read, or has no row of numbers.
pub fn header(file: &InputFile, tabs: bool) -> Result<Table> {
    let mut blocks = TextBlocks::open(file, 0, 0, 1)?;
    let mut lines: Vec<(u64, Vec<u8>)> = Vec::new();
    'all: while let Some((text, offset)) = blocks.next_block()? {
        let mut at = 0;
        while let Some(row) = next_row(text, &mut at) {
            lines.push((offset + row.start as u64, text[row].to_vec()));
            if lines.len() == 2 {
                break 'all;
            }
        }
    }
    let Some((first_offset, first)) = lines.first() else {
        return Err(file.error("holds no line with numbers"));
    };
    let separator = if tabs { b'\t' } else { guess_separator(first) };
    let first: Vec<&[u8]> = fields(first, separator).collect();
    // A first line of numbers is a row; only its first field may be a name.
    let titled = first.len() > 1 && first[1..].iter().any(|f| number(f).is_none())
        || first.len() == 1 && number(first[0]).is_none()
        || first[0].is_empty();
    let (start, row) = match lines.get(1) {
        Some((offset, row)) if titled => (*offset, fields(row, separator).collect()),
        None if titled => {
            return Err(file.error(format!("line 1: expected numbers, found {}", quote(&lines[0].1))));
        }
        _ => (*first_offset, first.clone()),
    };
    let named = number(row[0]).is_none();
    let names = row.len() > 1 && (named || titled && (first[0].is_empty() || first.len() + 1 == row.len()));
    let cols = row.len() - usize::from(names);
    Ok(Table { separator, names, start, cols })
}

/// The separator that splits the line into most fields.
fn guess_separator(line: &[u8]) -> u8 {
    let count = |separator: u8| fields(line, separator).count();
    let best = [b',', b';', b'\t'].into_iter().max_by_key(|&s| (count(s), s == b',')).unwrap_or(b',');
    if count(best) == 1 && count(b' ') > 1 { b' ' } else { best }
}

/// The next line at or after `at` that is neither blank nor a comment (`#`), without its line end.
fn next_row(text: &[u8], at: &mut usize) -> Option<Range<usize>> {
    loop {
        if *at >= text.len() {
            return None;
        }
        let start = *at;
        let end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |end| start + end);
        *at = end + 1;
        let end = if text[..end].ends_with(b"\r") && end > start { end - 1 } else { end };
        let line = &text[start..end];
        if line.first() != Some(&b'#') && !line.trim_ascii().is_empty() {
            return Some(start..end);
        }
    }
}

/// The fields of a line, without surrounding blanks and quotation marks. A quoted field may contain the separator.
fn fields(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(if separator == b' ' { line.trim_ascii() } else { line });
    std::iter::from_fn(move || {
        let line = rest?;
        let quoted = line.first() == Some(&b'"');
        let from = if quoted { 1 + closing(&line[1..]) } else { 0 };
        let other = if separator == b' ' { b'\t' } else { separator };
        let end = memchr::memchr2(separator, other, &line[from..]).map(|end| from + end);
        rest = end.map(|end| {
            let rest = &line[end + 1..];
            if separator == b' ' { rest.trim_ascii_start() } else { rest }
        });
        let field = line[..end.unwrap_or(line.len())].trim_ascii();
        Some(field.strip_prefix(b"\"").and_then(|f| f.strip_suffix(b"\"")).unwrap_or(field))
    })
}

/// The position after the closing quotation mark; a doubled mark is part of the field.
fn closing(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match memchr::memchr(b'"', &text[at..]) {
            Some(mark) if text.get(at + mark + 1) == Some(&b'"') => at += mark + 2,
            Some(mark) => return at + mark + 1,
            None => return text.len(),
        }
    }
}

/// A field that is a number as a whole.
fn number(field: &[u8]) -> Option<f64> {
    float(field).filter(|(_, used)| *used == field.len()).map(|(value, _)| value)
}

impl Table {
    /// Parses row `row` into `out`.
    fn parse<T: Real>(
        &self,
        line: &[u8],
        row: usize,
        policy: EntryPolicy,
        out: &mut [T],
    ) -> std::result::Result<(), String> {
        let mut count = 0;
        for field in fields(line, self.separator).skip(usize::from(self.names)) {
            if let Some(out) = out.get_mut(count) {
                let wrong = |why| format!("the entry in {} {why}", position(row, count));
                let Some(value) = number(field) else {
                    let what = if field.is_empty() { "empty".to_string() } else { quote(field) };
                    return Err(wrong(format!("is {what}, not a number")));
                };
                *out = policy.check(value).map_err(wrong)?;
            }
            count += 1;
        }
        if count == self.cols {
            Ok(())
        } else {
            Err(format!("has {count} numbers, but the first row has {}", self.cols))
        }
    }
}

/// Reader of a table's rows.
pub struct TableReader<'a> {
    file: &'a InputFile,
    table: &'a Table,
    lines: LineCursor,
    policy: EntryPolicy,
    /// The current row, if it is requested in several pieces.
    row: Vec<f64>,
    /// Index of the next row.
    next: usize,
}

impl<'a> TableReader<'a> {
    /// Reads from `blocks`, which begin with row `first` of the table.
    pub fn new(file: &'a InputFile, table: &'a Table, blocks: TextBlocks, first: usize, policy: EntryPolicy) -> Self {
        TableReader { file, table, lines: LineCursor::new(blocks), policy, row: Vec::new(), next: first }
    }

    fn next_row<T: Real>(&mut self, out: &mut [T]) -> Result<()> {
        self.next += 1;
        self.lines.parse(next_row, |line| self.table.parse(line, self.next - 1, self.policy, out))
    }
}

impl<T: Real> DenseReader<T> for TableReader<'_> {
    fn fill(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
        let width = self.table.cols;
        if within.len() == width {
            return out.chunks_exact_mut(width).try_for_each(|row| self.next_row(row));
        }
        // A row that is requested in pieces is parsed once.
        if lines.start == self.next {
            let mut row = std::mem::take(&mut self.row);
            row.resize(width, 0.0);
            self.next_row(&mut row)?;
            self.row = row;
        }
        let piece = &self.row[within.clone()];
        out.iter_mut().zip(piece).for_each(|(out, &x)| *out = T::from_f64(x));
        match self.policy.first_refused(out) {
            Some((at, why)) => {
                let place = position(lines.start, within.start + at);
                Err(self.file.error(format!("the entry in {place} {why}")))
            }
            None => Ok(()),
        }
    }
}

/// Counts rows.
pub fn count_rows(text: &[u8]) -> u64 {
    let mut at = 0;
    std::iter::from_fn(|| next_row(text, &mut at)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn head(text: &str) -> Result<Table> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        header(&InputFile { path: file.path().to_str().unwrap().to_string(), gz: false }, false)
    }

    #[test]
    fn headers_and_names_are_distinguished_from_numbers() {
        for (text, separator, names, start, cols) in [
            ("1,2,3\n4,5,6\n", b',', false, 0, 3),
            ("a,b,c\n1,2,3\n", b',', false, 6, 3),
            ("# note\n\n,a,b\ncell1,1,2\n", b',', true, 13, 2),
            (",0,1\n0,5,6\n", b',', true, 5, 2),
            ("a b\nr1 5 6\n", b' ', true, 4, 2),
            ("gene;x;y\n\"one; two\";1;2\n", b';', true, 9, 2),
            ("g1\t1\t2\ng2\t3\t4\n", b'\t', true, 0, 2),
            ("1.5\n2.5\n", b',', false, 0, 1),
            ("  1.0e+00   2.0e+00\n", b' ', false, 0, 2),
            ("a,b\r\n1,2\r\n", b',', false, 5, 2),
        ] {
            let table = head(text).unwrap();
            assert_eq!(table, Table { separator, names, start, cols }, "{text:?}");
        }
        assert!(head("").unwrap_err().message.contains("no line"));
        assert!(head("a,b,c\n").unwrap_err().message.contains("expected numbers"));
    }

    #[test]
    fn rows_are_parsed_or_refused() {
        let table = Table { separator: b',', names: true, start: 0, cols: 3 };
        let policy = EntryPolicy { allow_negative: false, allow_nan: false };
        let mut out = [0.0f64; 3];
        table.parse(b"\"a \"\"x\"\", b\", 1 ,\"2.5\",3e1", 0, policy, &mut out).unwrap();
        assert_eq!(out, [1.0, 2.5, 30.0]);
        for (line, names) in [
            ("a,1,2", "has 2 numbers, but the first row has 3"),
            ("a,1,2,3,4", "has 4 numbers"),
            ("a,1,,3", "row 5, column 2 is empty"),
            ("a,1,NA,3", "'NA', not a number"),
            ("a,1,nan,3", "NaN"),
            ("a,1,-2,3", "negative"),
        ] {
            let message = table.parse(line.as_bytes(), 4, policy, &mut out).unwrap_err();
            assert!(message.contains(names), "{line}: {message}");
        }
    }
}
