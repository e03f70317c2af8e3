//! Tables in text: CSV, TSV and numbers separated by blanks, with or without a header line and a first column of names.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::data::formats::fields::{
    FirstLines, counts_from, fields, heads_names, integer, is_missing, is_name, names_an_id, names_an_index, next_line,
    number, rises, text_of,
};
use crate::data::formats::io::InputFile;
use crate::data::formats::options::{Labels, Names, Presence, TableFormat, TableOptions};
use crate::data::formats::reader::{DenseReader, EntryPolicy, position};
use crate::data::formats::refusal::Refusal;
use crate::data::formats::text::{LineCursor, TextBlocks};
use crate::error::Result;
use crate::linalg::Real;

/// How a table is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The byte between fields; a blank stands for any run of blanks.
    pub separator: u8,
    /// Whether there is a header, and whether each row begins with a name.
    pub labels: Labels,
    /// Position of the first row of numbers in the (uncompressed) text.
    pub start: u64,
    pub cols: usize,
    /// What was concluded from the first lines, and which option says otherwise.
    pub note: Option<String>,
    /// Why the first line or column may be names, where it is taken as data.
    pub doubt: Option<String>,
}

/// Derives the layout from the first lines; `tabs` fixes the separator.
///
/// # Errors
/// If the file cannot be read, or has no row of numbers, or not the header or index column that `options` promise.
pub fn header(file: &InputFile, tabs: bool, options: TableOptions) -> Result<Table> {
    let lines = FirstLines::read(file, tabs)?;
    let all = lines.fields();
    if let Some(line) = decimal_comma(lines.lines()) {
        return Err(file.error(format!(
            "line {line}: has numbers with a decimal comma between semicolons; write them with decimal points (in a shell: tr \
             ',;' '.,')"
        )));
    }
    let header = find_header(&all, options);
    let titled = header == Found::Yes;
    let rows = &all[usize::from(titled)..];
    let (Some(row), Some(start)) = (rows.first(), lines.offset(usize::from(titled))) else {
        return Err(
            file.error(Refusal::quoting(lines.first(), |text| format!("line 1: expected numbers, found {text}")))
        );
    };
    let index = find_index(titled.then_some(&*all[0]), rows, options);
    let named = index == Found::Yes;
    if named && row.len() == 1 {
        return Err(file.error("--index-col yes: the table has one column only; leave the option out"));
    }
    if options.format == TableFormat::Auto && options.index_col == Presence::Auto && row.len() <= MOST_FIELDS {
        let many = FirstLines::read_many(file, tabs, LOOK_FOR_TRIPLES)?;
        if let Some(why) = like_triples(&many.fields(), titled) {
            return Err(file.error(why.map(|why| {
                format!(
                    "looks like triples, an entry on each line (user, item, value): {why}; --format triples reads it so, --format \
                     table reads each line as a row of the matrix"
                )
            })));
        }
    }
    let columns = row.len() - usize::from(named);
    let names = all[0].len();
    // A single field is a title.
    if titled && names > 1 && names != columns && names != row.len() {
        return Err(file.error(format!(
            "line 1: the header has {names} fields, but the first row has {}; correct one of them, or leave the header out and \
             give --header no",
            row.len()
        )));
    }
    let note = note(&all[0], row, (options, header, index));
    let labels = Labels { header: titled, index_col: named };
    let doubt = doubt(header, index);
    Ok(Table { separator: lines.separator, labels, start, cols: columns, note, doubt })
}

/// The first line (from 1) with fields between semicolons all of which are numbers, some with a decimal comma.
fn decimal_comma<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let with_point = |field: &[u8]| -> Vec<u8> { field.iter().map(|&c| if c == b',' { b'.' } else { c }).collect() };
    let wrong = |line: &[u8]| {
        let has_comma = fields(line, b';').any(|field| field.contains(&b','));
        let mut values = fields(line, b';').skip(1).peekable();
        has_comma && values.peek().is_some() && values.all(|value| number(&with_point(value)).is_some())
    };
    (1..).zip(lines).find_map(|(at, line)| wrong(line).then_some(at))
}

/// Whether a table has a header or an index column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Yes,
    No,
    /// It may be one, but numbers are as likely.
    Unsure,
    /// It is taken as data, but numbers that only rise are more often labels.
    Doubtful,
}

/// Whether the first line is a header.
fn find_header(lines: &[Vec<&[u8]>], options: TableOptions) -> Found {
    let Some((first, below)) = lines.split_first() else { return Found::No };
    let may_have_index = options.index_col != Presence::No && first.len() > 1;
    // A first line of numbers is a row; its first field may be the row's name.
    let labels = if may_have_index { &first[1..] } else { &first[..] };
    let shorter_by_one = first.len() > 1 && below.first().is_some_and(|row| row.len() == first.len() + 1);
    let leaves_out_index = shorter_by_one && find_index(None, below, options) == Found::Yes;
    match options.header {
        Presence::Yes => return Found::Yes,
        Presence::No => return Found::No,
        Presence::Auto if labels.iter().any(|field| is_name(field)) => return Found::Yes,
        Presence::Auto if names_an_index(first[0]) => return Found::Yes,
        // R leaves out the name of the index column.
        Presence::Auto if leaves_out_index => return Found::Yes,
        Presence::Auto if heads_names(first[0]) && has_names(below) => return Found::Yes,
        Presence::Auto => {}
    }
    // pandas numbers the columns of a table without names.
    let skipped = usize::from(may_have_index && (is_name(first[0]) || options.index_col == Presence::Yes));
    let labels = &first[skipped..];
    let count = labels.len() as i64;
    let Some(from) = counts(labels.iter().copied()).filter(|_| count > 1) else {
        return if look_like_labels(labels, below, skipped) { Found::Doubtful } else { Found::No };
    };
    let next_counts_on = below.first().is_some_and(|row| {
        let row = row.get(skipped..).unwrap_or_default();
        counts_from(row.iter().copied()) == Some(from + count)
    });
    // 0,1 is a likely row of a table of zeros and ones, but not of one in which all else has decimals.
    let decimals = |row: &Vec<&[u8]>| row[skipped.min(row.len())..].iter().all(|field| integer(field).is_none());
    let differs = count > 2 || below.len() >= FEWEST && below.iter().all(decimals);
    if differs && !next_counts_on && !below.is_empty() { Found::Yes } else { Found::Unsure }
}

/// Whether the first column holds names.
fn has_names(rows: &[Vec<&[u8]>]) -> bool {
    let mut column = rows.iter().map(|row| row.first().copied().unwrap_or_default());
    column.find(|field| !is_missing(field)).is_some_and(is_name)
}

/// Whether the numbers of the first line may name the columns, as times and masses do, which rise, and years. Those of no other
/// line do.
fn look_like_labels(labels: &[&[u8]], below: &[Vec<&[u8]>], skipped: usize) -> bool {
    let are_years = |fields: &[&[u8]]| fields.iter().all(|x| integer(x).is_some_and(|x| (1900..=2100).contains(&x)));
    let are_labels = |fields: &[&[u8]]| {
        fields.len() > 1 && are_years(fields) || fields.len() >= ENOUGH_LABELS && rises(fields.iter().copied())
    };
    below.len() > 1 && are_labels(labels) && !below.iter().any(|row| are_labels(row.get(skipped..).unwrap_or_default()))
}

/// Numbers that hardly rise by chance.
const ENOUGH_LABELS: usize = 5;

/// Whether the first column of `rows` is an index, below the `header`, if there is one.
fn find_index(header: Option<&[&[u8]]>, rows: &[Vec<&[u8]>], options: TableOptions) -> Found {
    match options.index_col {
        Presence::Yes => return Found::Yes,
        Presence::No => return Found::No,
        Presence::Auto => {}
    }
    let Some(width) = rows.first().map(Vec::len).filter(|&width| width > 1) else { return Found::No };
    if header.is_some_and(|header| header.len() + 1 == width || header.first().is_some_and(|name| names_an_index(name)))
    {
        return Found::Yes;
    }
    // A value may be missing in the first rows; codes such as 09412 are names.
    let column = |j: usize| rows.iter().map(move |row| row.get(j).copied().unwrap_or_default());
    let is_code = |field: &[u8]| field.len() > 1 && field[0] == b'0' && field.iter().all(u8::is_ascii_digit);
    if has_names(rows) || column(0).any(is_code) {
        return Found::Yes;
    }
    let ids: BTreeSet<i64> = column(0).filter_map(integer).collect();
    let distinct = ids.len() == rows.len();
    if distinct && header.is_some_and(|header| header.first().is_some_and(|name| names_an_id(name))) {
        return Found::Yes;
    }
    let Some(from) = counts(column(0)).filter(|_| rows.len() > 1) else {
        let largest = rows.iter().flat_map(|row| &row[1..]).filter_map(|field| number(field)).fold(0.0, f64::max);
        let far_off = || distinct && ids.first().is_some_and(|&least| least >= 100 && least as f64 > 10.0 * largest);
        let rising = || rises(column(0)) && !(1..width).any(|j| rises(column(j)));
        let unlikely_data = rows.len() >= FEWEST && far_off() || rows.len() >= ENOUGH_LABELS && rising();
        return if unlikely_data { Found::Doubtful } else { Found::No };
    };
    let next_counts_on = counts_from(column(1)).is_some_and(|next| next >= from + rows.len() as i64);
    if rows.len() >= FEWEST && !next_counts_on { Found::Yes } else { Found::Unsure }
}

/// Lines that are judged for being triples.
const LOOK_FOR_TRIPLES: usize = 1000;
/// Most fields of a triple: one that counts, user, item, value and time.
const MOST_FIELDS: usize = 5;

/// Why a table looks like triples, if it does; `titled`: whether it has a header.
fn like_triples(lines: &[Vec<&[u8]>], titled: bool) -> Option<Refusal> {
    let rows = &lines[usize::from(titled)..];
    let width = rows.first()?.len();
    let ids = |j: usize| -> Option<Vec<i64>> {
        let id = |row: &Vec<&[u8]>| integer(row.get(j)?).filter(|&id| id >= 0);
        rows.iter().map(id).collect()
    };
    if titled {
        let names = &lines[0];
        let offset = width.saturating_sub(names.len());
        let called = names.windows(2).position(|pair| pair.iter().all(|name| names_one_of_a_pair(name)));
        if let Some(at) = called.filter(|&at| at + offset <= 1 && ids(at + offset + 1).is_some()) {
            let [user, item] = [names[at], names[at + 1]].map(text_of);
            let full = format!("columns are called {user} and {item}");
            return Some(Refusal::new(full, "two columns are called so"));
        }
    }
    if !(2..=4).contains(&width) || rows.len() < FEWEST {
        return None;
    }
    let (users, items) = (ids(0)?, ids(1)?);
    let timed = width < 4 || ids(3).is_some_and(|times| times.iter().all(|&time| time >= FIRST_TIME));
    let repeated = users.iter().collect::<BTreeSet<_>>().len() < users.len();
    // No entry is given twice. Of few lines of counts that is so by chance; triples are then mostly in order.
    let distinct = users.iter().zip(&items).collect::<BTreeSet<_>>().len() == rows.len();
    let likely = rows.len() >= ENOUGH || users.is_sorted();
    // Zeros and ones are data.
    let large = users.iter().chain(&items).any(|&id| id > 1);
    (timed && repeated && distinct && likely && large).then(|| {
        "the first two columns hold whole numbers, the first one repeats some, and no pair occurs twice".into()
    })
}

/// Rows from which distinct pairs are hardly a coincidence.
const ENOUGH: usize = 10;
/// The least number that is the time of a rating, in seconds of 1970.
const FIRST_TIME: i64 = 100_000_000;

/// Whether a header calls the column with this name the numbers of users, items or the like.
fn names_one_of_a_pair(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let of_a_pair =
        ["user", "item", "movie", "book", "product", "customer", "row", "col", "column", "i", "j", "source", "target"];
    of_a_pair.contains(&name.as_str()) || name.len() > 2 && name.ends_with("id")
}

/// Fewest rows from which is concluded that a column counts.
const FEWEST: usize = 3;

/// Whether fields are 0, 1, 2, … or 1, 2, 3, …, and at which of these they start.
fn counts<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<i64> {
    counts_from(fields).filter(|from| (0..=1).contains(from))
}

/// What was concluded and not asked for, for the user.
fn note(first: &[&[u8]], row: &[&[u8]], (options, header, index): (TableOptions, Found, Found)) -> Option<String> {
    let concluded = |asked: Presence, found: Found| asked == Presence::Auto && found == Found::Yes;
    let (titled, named) = (concluded(options.header, header), concluded(options.index_col, index));
    // Names cannot be read as data.
    let title = first.iter().skip(usize::from(index == Found::Yes));
    let title_is_number = titled && title.into_iter().all(|field| !is_name(field));
    let name_is_number = named && !is_name(row[0]);
    let mut parts = Vec::new();
    parts.extend(match (titled, named) {
        (true, true) => Some("the first line is taken as a header and the first column as row names"),
        (true, false) => Some("the first line is taken as a header"),
        (false, true) => Some("the first column is taken as row names"),
        (false, false) => None,
    });
    parts.extend(match (title_is_number, name_is_number) {
        (true, true) => Some("--header no, --index-col no to read them as data"),
        (true, false) => Some("--header no to read the line as data"),
        (false, true) => Some("--index-col no to read the column as data"),
        (false, false) => None,
    });
    if header == Found::Unsure {
        parts.push("the first line counts, but is taken as data; --header yes if it names the columns");
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What is taken as data, but names rows or columns as likely as not, for the user.
fn doubt(header: Found, index: Found) -> Option<String> {
    let column = match index {
        Found::Unsure => Some("counts"),
        Found::Doubtful => Some("looks like numbers of the rows"),
        Found::Yes | Found::No => None,
    };
    let column = column.map(|why| {
        format!("the first column {why}, but is taken as data; --index-col yes if it names the rows, no if not")
    });
    let line = (header == Found::Doubtful).then(|| {
        "the numbers of the first line rise, as years or times do, but are taken as data; --header yes if they name the \
         columns, no if not"
            .to_string()
    });
    let parts: Vec<String> = [line, column].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The names in the header and those in the index column, where there are such.
///
/// # Errors
/// As [`header`].
pub fn names(file: &InputFile, tabs: bool, options: TableOptions) -> Result<Names> {
    let table = header(file, tabs, options)?;
    let lines = FirstLines::read(file, tabs)?;
    let columns = table.labels.header.then(|| {
        let first = fields(lines.first(), table.separator);
        let all: Vec<String> = first.map(text_of).collect();
        // The name of the index column may be there or not.
        let extra = all.len().saturating_sub(table.cols);
        if all.len() == table.cols + usize::from(table.labels.index_col) || all.len() == table.cols {
            all.into_iter().skip(extra).collect()
        } else {
            Vec::new()
        }
    });
    let mut rows = table.labels.index_col.then(Vec::new);
    if let Some(rows) = &mut rows {
        let mut blocks = TextBlocks::open(file, table.start, 0, 1)?;
        while let Some((text, _)) = blocks.next_block()? {
            let mut at = 0;
            while let Some(line) = next_line(text, &mut at) {
                rows.extend(fields(&text[line], table.separator).next().map(text_of));
            }
        }
    }
    Ok((columns.filter(|names| !names.is_empty()), rows))
}

impl Table {
    /// Parses row `row` into `out`.
    fn parse<T: Real>(
        &self,
        line: &[u8],
        row: usize,
        policy: EntryPolicy,
        out: &mut [T],
    ) -> std::result::Result<(), Refusal> {
        let mut count = 0;
        for field in fields(line, self.separator).skip(usize::from(self.labels.index_col)) {
            if let Some(out) = out.get_mut(count) {
                let wrong = |why| format!("the entry in {} {why}", position(row, count));
                *out = entry(field, policy).map_err(|why| why.map(wrong))?;
            }
            count += 1;
        }
        if count == self.cols {
            Ok(())
        } else {
            Err(format!("has {count} numbers, but the first row has {}", self.cols).into())
        }
    }
}

/// The value of a field: NaN if it is missing, and missing values are accepted.
///
/// # Errors
/// The reason why it is refused, as a predicate: "is …".
pub fn entry<T: Real>(field: &[u8], policy: EntryPolicy) -> std::result::Result<T, Refusal> {
    let remedy = "if that marks a missing value, use --missing nan (with hals and mu)";
    match number(field) {
        Some(value) => Ok(policy.check(value)?),
        None if is_missing(field) && policy.allow_nan => Ok(policy.check(f64::NAN)?),
        None if field.is_empty() => Err(format!("is empty; {remedy}").into()),
        None if is_missing(field) => Err(Refusal::quoting(field, |text| format!("is {text}, not a number; {remedy}"))),
        None => Err(Refusal::quoting(field, |text| format!("is {text}, not a number"))),
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
        self.lines.parse(next_line, |line| self.table.parse(line, self.next - 1, self.policy, out))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const AUTO: TableOptions =
        TableOptions { header: Presence::Auto, index_col: Presence::Auto, format: TableFormat::Auto };

    fn with_file<R>(text: &str, f: impl FnOnce(&InputFile) -> R) -> R {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        f(&InputFile { path: file.path().to_str().unwrap().to_string(), gz: false, private: false })
    }

    fn head(text: &str, options: TableOptions) -> Result<Table> {
        with_file(text, |file| header(file, false, options))
    }

    /// Whether a header and an index column are found, and how many columns of numbers.
    fn found(text: &str, options: TableOptions) -> (bool, bool, usize) {
        let table = head(text, options).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        (table.labels.header, table.labels.index_col, table.cols)
    }

    #[test]
    fn headers_and_names_are_distinguished_from_numbers() {
        for (text, separator, labels, start, cols) in [
            ("1,2,3\n4,5,6\n", b',', (false, false), 0, 3),
            ("a,b,c\n1,2,3\n", b',', (true, false), 6, 3),
            ("# note\n\n,a,b\ncell1,1,2\n", b',', (true, true), 13, 2),
            (",0,1\n0,5,6\n", b',', (true, true), 5, 2),
            ("a b\nr1 5 6\n", b' ', (true, true), 4, 2),
            ("gene;x;y\n\"one; two\";1;2\n", b';', (true, true), 9, 2),
            ("g1\t1\t2\ng2\t3\t4\n", b'\t', (false, true), 0, 2),
            ("1.5\n2.5\n", b',', (false, false), 0, 1),
            ("  1.0e+00   2.0e+00\n", b' ', (false, false), 0, 2),
            ("a,b\r\n1,2\r\n", b',', (true, false), 5, 2),
            ("\u{feff}1,2\n3,4\n", b',', (false, false), 3, 2),
        ] {
            let table = head(text, AUTO).unwrap();
            let labels = Labels { header: labels.0, index_col: labels.1 };
            assert_eq!(
                Table { note: None, doubt: None, ..table },
                Table { separator, labels, start, cols, note: None, doubt: None },
                "{text:?}"
            );
        }
        for (text, what) in [
            ("gene,a,b,c,d\ng1,1,2,3\ng2,3,4,5\n", "5 fields, but the first row has 4"),
            ("a,b\n1,2,3,4\n", "2 fields, but the first row has 4"),
            ("\u{feff}a,b\r1,2\r3,4", "carriage return"),
        ] {
            assert!(head(text, AUTO).unwrap_err().message.contains(what), "{text:?}");
        }
        for text in ["1,5;2,5\n3,0;4\n", "gene;a;b\ng1;1,5;2\n"] {
            assert!(head(text, AUTO).unwrap_err().message.contains("decimal comma"), "{text:?}");
        }
        assert!(head("", AUTO).unwrap_err().message.contains("no line"));
        assert!(head("a,b,c\n", AUTO).unwrap_err().message.contains("expected numbers"));
    }

    #[test]
    fn ratings_are_not_read_as_rows_of_numbers() {
        let unordered: String = (0..40).map(|i| format!("{}\t{}\t{}\n", i * 7 % 20 + 3, i * 11 % 37, i % 5)).collect();
        for text in [
            "userId,movieId,rating\n1,31,2.5\n2,10,4\n3,17,5\n",
            ",user,item,rating\n0,1,31,2.5\n1,1,10,4\n2,2,17,5\n",
            "user_id,item_id\n7,3\n8,3\n9,1\n",
            "i,j,x\n0,5,1.5\n1,2,2.5\n",
            "1,10,5\n1,11,3\n2,10,4\n",
            "0 1\n0 2\n1 2\n",
            "196,242,3,881250949\n196,302,3,891717742\n205,377,1,878887116\n",
            &unordered,
        ] {
            let error = head(text, AUTO).unwrap_err();
            assert!(error.exit_code() == 2, "{text:?}");
            for word in ["--format triples", "--format table", "triples"] {
                assert!(error.message.contains(word), "{text:?}: {}", error.message);
            }
            let table = TableOptions { format: TableFormat::Table, ..AUTO };
            assert!(head(text, table).is_ok(), "{text:?}");
        }
        for text in [
            // Decimals, zeros and ones, pairs that repeat, few rows without order, names, more columns.
            "1.5,2,3\n1.5,3,4\n2.5,4,4\n",
            "0,1\n0,0\n1,1\n1,0\n",
            "5,2,1\n3,1,1\n5,2,0\n3,1,1\n",
            "3,1,2\n1,0,2\n3,4,4\n",
            "g1,3,4\ng1,4,5\ng2,5,1\n",
            "1,2,3,4,5,6\n1,3,4,5,6,7\n2,2,2,2,2,2\n",
            "id,width,height\n0,5,3\n1,5,2\n2,7,9\n",
            "1,2,3\n4,5,6\n7,8,9\n",
        ] {
            assert!(head(text, AUTO).is_ok(), "{text:?}: {}", head(text, AUTO).unwrap_err());
        }
    }

    #[test]
    fn a_first_line_that_counts_is_a_header() {
        for (text, header) in [
            ("0,1,2\n5,6,7\n", true),
            ("1,2,3\n5,6,7\n", true),
            ("0,1,2\n0,1,2\n3,4,5\n", true),
            ("g,0,1,2\ng1,5,6,7\n", true),
            ("0,1\n5.5,6.5\n7.5,1.0\n0.0,1.5\n", true),
            // A table that counts on, as a range of numbers does.
            ("0,1,2\n3,4,5\n6,7,8\n", false),
            // Zeros and ones, too few rows, and what does not count.
            ("0,1\n1,0\n0,0\n1,1\n", false),
            ("0,1\n5.5,6.5\n", false),
            ("0,1,3\n5,6,7\n", false),
            ("2,3,4\n5,6,7\n", false),
            ("0.0,1.0,2.0\n5.0,6.0,7.0\n", false),
            ("0,1,2\n", false),
            ("0\n5.5\n6.5\n7.5\n", false),
        ] {
            assert_eq!(found(text, AUTO).0, header, "{text:?}");
        }
    }

    #[test]
    fn a_line_with_a_missing_value_is_no_header() {
        for (text, cols) in [("5,NA,3\n1,2,4\n", 3), ("5,,3\n1,2,4\n", 3), ("NA,5,3\n1,2,4\n2,5,5\n", 3)] {
            assert_eq!(found(text, AUTO), (false, false, cols), "{text:?}");
        }
    }

    #[test]
    fn a_header_may_leave_out_the_index_column() {
        assert_eq!(found("2001 2004\n1 5 6\n2 8 9\n3 8 9\n", AUTO), (true, true, 2));
        assert_eq!(found("2001 2004\nr 5 6\n", AUTO), (true, true, 2));
        // Without names or a count below it, a line is too long.
        assert_eq!(found("2001 2004\n7 5 6\n7 8 9\n7 8 9\n", AUTO), (false, false, 2));
        assert_eq!(found("2001 2004\n1 5\n7 8\n", AUTO), (false, false, 2));
    }

    #[test]
    fn a_first_column_that_counts_is_an_index() {
        for (text, index) in [
            ("0,5\n1,6\n2,6\n", true),
            ("1,5\n2,6\n3,6\n", true),
            ("x,y\n1,5\n2,6\n3,6\n", true),
            // Beyond the lines that are looked at, it may do what it wants.
            (&((0..25).map(|i| format!("{},5\n", i % 22)).collect::<String>()), true),
            ("0,5\n1,6\n", false),
            ("0,5\n1,6\n3,7\n", false),
            ("5,5\n6,6\n7,6\n", false),
            ("0\n1\n2\n", false),
            // A range of numbers, by columns.
            ("0,3,6\n1,4,7\n2,5,8\n", false),
        ] {
            assert_eq!(found(text, AUTO).1, index, "{text:?}");
        }
    }

    #[test]
    fn a_first_column_called_an_index_is_one() {
        for (name, index) in [("", true), ("index", true), ("Unnamed: 0", true), ("ID", true), ("x", false)] {
            let text = format!("{name},y\n17,5\n4,6\n");
            assert_eq!(found(&text, AUTO), (true, index, 2 - usize::from(index)), "{text:?}");
            // The name alone makes a header of it.
            let text = format!("{name},2001\n17,5\n4,6\n");
            assert_eq!(found(&text, AUTO).1, index || name == "x", "{text:?}");
        }
    }

    #[test]
    fn numbers_that_name_columns_are_a_header_or_warned_of() {
        for text in ["gene,2019,2020\ng1,5,6\ng2,7,8\n", "Sample_ID,0.5,24\na,5,6\nb,7,2\n"] {
            assert_eq!(found(text, AUTO), (true, true, 2), "{text:?}");
        }
        for text in [
            "year,2019,2020\ng1,5,6\ng2,7,2\ng3,1,1\n",
            "2019,2020,2021\n5,6,1\n7,2,9\n",
            "0.5,1.5,2.5,4,8\n5,6,1,0,0\n7,2,9,9,9\n",
        ] {
            let table = head(text, AUTO).unwrap();
            assert!(!table.labels.header, "{text:?}");
            assert!(table.doubt.is_some_and(|doubt| doubt.contains("--header yes")), "{text:?}");
        }
        for text in ["2019,5,6\n7,8,9\n1,5,2\n", "1,2,3,5,8\n1,2,3,4,9\n5,1,1,1,1\n", "g1,3,4\ng2,5,1\ng3,4,4\n"] {
            assert_eq!(head(text, AUTO).unwrap().doubt, None, "{text:?}");
        }
    }

    #[test]
    fn numbers_that_name_rows_are_an_index_or_warned_of() {
        for text in
            ["patient_id,x,y\n1001,5,3\n1007,6,1\n1003,1,1\n", "sampleID,x\n48,5\n11,3\n", "zip,x\n18135,4\n09412,3\n"]
        {
            assert!(found(text, AUTO).1, "{text:?}");
        }
        for text in [
            "patient,x,y\n101,5,3\n103,6,1\n107,1,1\n120,8,8\n121,0,0\n",
            "4801,5,3\n1101,6,1\n9101,1,1\n5555,8,8\n4444,0,0\n",
            "entrez,a,b\n7422,5,0\n672,3,1\n1956,0,2\n",
            "time,a,b\n0,1,5\n0.5,3,3\n1.0,2,2\n1.5,0,1\n2.0,4,1\n",
        ] {
            let table = head(text, AUTO).unwrap();
            assert!(!table.labels.index_col, "{text:?}");
            assert!(table.doubt.is_some_and(|doubt| doubt.contains("--index-col yes")), "{text:?}");
        }
        for text in [
            "paid,x,y\n101,5,3\n103,6,1\n99,1,1\n120,8,8\n121,0,0\n",
            "grid_id,x\n5,5\n5,3\n5,7\n",
            "1,10,3\n2,20,1\n4,30,1\n5,40,8\n9,50,0\n",
        ] {
            let format = TableOptions { format: TableFormat::Table, ..AUTO };
            let table = head(text, format).unwrap();
            assert_eq!((table.labels.index_col, table.doubt), (false, None), "{text:?}");
        }
    }

    #[test]
    fn options_decide() {
        let options = |header, index_col| TableOptions { header, index_col, ..AUTO };
        use Presence::{Auto, No, Yes};
        let text = "0,1,2\n1,5,6\n2,7,8\n3,9,9\n";
        for (header, index, expected) in [
            (Auto, Auto, (true, true, 2)),
            (No, Auto, (false, true, 2)),
            (Auto, No, (true, false, 3)),
            (No, No, (false, false, 3)),
            (Yes, Yes, (true, true, 2)),
        ] {
            assert_eq!(found(text, options(header, index)), expected, "{header:?} {index:?}");
        }
        assert_eq!(found("7,8\n9,9\n", options(Yes, Yes)), (true, true, 1));
        assert_eq!(found("a,1,2\nb,3,4\n", options(Auto, No)), (true, false, 3));
        assert!(head("7\n8\n", options(No, Yes)).unwrap_err().message.contains("one column"));
        assert!(head("7,8\n", options(Yes, Auto)).unwrap_err().message.contains("expected numbers"));
    }

    #[test]
    fn conclusions_are_told_with_the_option_against_them() {
        let note = |text: &str, options| head(text, options).unwrap().note.unwrap_or_default();
        assert_eq!(
            note(",0,1\n0,5,6\n", AUTO),
            "the first line is taken as a header and the first column as row names; --header no, --index-col no to read them as \
             data"
        );
        assert_eq!(note("a,b\nr,5\n", AUTO), "the first line is taken as a header and the first column as row names");
        assert_eq!(note("a,b\n7,5\n", AUTO), "the first line is taken as a header");
        assert_eq!(note("a\n7\n", AUTO), "the first line is taken as a header");
        assert!(note("0,5\n1,6\n2,6\n", AUTO).ends_with("--index-col no to read the column as data"));
        assert!(note("0,1,2\n5,6,7\n", AUTO).ends_with("--header no to read the line as data"));
        assert!(note("0,1\n1,1\n1,0\n", AUTO).contains("--header yes"));
        assert!(head("0,5\n1,6\n", AUTO).unwrap().doubt.unwrap().contains("--index-col yes"));
        let asked = TableOptions { header: Presence::Yes, index_col: Presence::Yes, ..AUTO };
        assert_eq!(note(",0,1\n0,5,6\n", asked), "");
        assert_eq!(note("7,5\n3,2\n", AUTO), "");
    }

    #[test]
    fn names_are_those_of_the_numbers() {
        let read = |text: &str| with_file(text, |file| names(file, false, AUTO)).unwrap();
        let list = |names: Option<Vec<String>>| names.map(|names| names.join("|"));
        for (text, columns, rows) in [
            (",\"a \"\"x\"\"\",b\nr,1,2\n# no row\n\ns,3,4\n", Some("a \"x\"|b"), Some("r|s")),
            ("a b\nr 1 2\n", Some("a|b"), Some("r")),
            ("a,b\n7,2\n", Some("a|b"), None),
            ("r,1,2\ns,3,4\n", None, Some("r|s")),
            ("7,1,2\n", None, None),
            // A title, not names.
            ("Measurements\n7,1,3\n8,9,2\n", None, None),
        ] {
            let (found_columns, found_rows) = read(text);
            assert_eq!((list(found_columns).as_deref(), list(found_rows).as_deref()), (columns, rows), "{text:?}");
        }
    }

    #[test]
    fn rows_are_parsed_or_refused() {
        let labels = Labels { header: false, index_col: true };
        let table = Table { separator: b',', labels, start: 0, cols: 3, note: None, doubt: None };
        let policy = EntryPolicy { allow_negative: false, allow_nan: false };
        let mut out = [0.0f64; 3];
        table.parse(b"\"a \"\"x\"\", b\", 1 ,\"2.5\",3e1", 0, policy, &mut out).unwrap();
        assert_eq!(out, [1.0, 2.5, 30.0]);
        for (line, names) in [
            ("a,1,2", "has 2 numbers, but the first row has 3"),
            ("a,1,2,3,4", "has 4 numbers"),
            ("a,1,,3", "row 5, column 2 is empty; if that marks a missing value, use --missing nan"),
            ("a,1,NA,3", "'NA', not a number; if that marks a missing value, use --missing nan"),
            ("a,1,x,3", "'x', not a number"),
            ("a,1,nan,3", "NaN"),
            ("a,1,-2,3", "negative"),
        ] {
            let message = table.parse(line.as_bytes(), 4, policy, &mut out).unwrap_err().reason(false);
            assert!(message.contains(names), "{line}: {message}");
        }
    }

    #[test]
    fn missing_values_are_read_where_they_are_accepted() {
        let labels = Labels { header: false, index_col: false };
        let table = Table { separator: b',', labels, start: 0, cols: 8, note: None, doubt: None };
        let policy = EntryPolicy { allow_negative: false, allow_nan: true };
        let mut out = [0.0f32; 8];
        table.parse(b"1,,NA,NaN,nan,null,N/A,\"\"", 0, policy, &mut out).unwrap();
        assert!(out[0] == 1.0 && out[1..].iter().all(|x| x.is_nan()), "{out:?}");
        assert!(table.parse(b"1,x,1,1,1,1,1,1", 0, policy, &mut out).is_err());
    }
}
