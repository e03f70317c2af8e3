//! Text tables: CSV, TSV and numbers separated by blanks, with or without a header line and a first column of names.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_data::Labels;
use fednmf_data::policy::{EntryPolicy, position, rounded};
use fednmf_data::values::Values;
use fednmf_linalg::Real;

use crate::formats::fields::{
    FirstLines, OPEN_QUOTE, ends_within_quotes, fields, has_decimal_comma, has_letters_behind_number, is_missing,
    is_name, is_other_missing_mark, is_whole, next_row, number, number_with_comma, text_of,
};
use crate::formats::header::{Header, LabelDetection};
use crate::formats::io::InputFile;
use crate::formats::like_triples;
use crate::formats::options::{Names, Presence, TableFormat, TableOptions};
use crate::formats::reader::DenseReader;
use crate::formats::refusal::{Refusal, not_a_number};
use crate::formats::text::{LineCursor, TextBlocks, error_at};

/// The layout of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub header: Header,
    pub cols: usize,
}

/// Infers the layout from the first lines; `tabs` fixes the separator.
///
/// # Errors
/// If the file cannot be read, has no row of numbers, lacks the header or index column that `options` declare, or is
/// ambiguous about them.
pub fn layout(file: &InputFile, tabs: bool, options: TableOptions) -> Result<Table> {
    let lines = FirstLines::read(file, tabs)?;
    lines.check_quotes(file)?;
    check_excel(file, &lines)?;
    let all = lines.fields();
    if let Some(line) = decimal_comma(&lines) {
        return Err(file.error(format!(
            "line {line}: has numbers with a decimal comma; write them with decimal points (between semicolons, in a shell: tr ',;' \
             '.,')"
        )));
    }
    if let [first, below @ ..] = &all[..]
        && !below.is_empty()
        && below.iter().all(|row| row.len() == first.len() + 1 && row.last().is_some_and(|field| field.is_empty()))
    {
        return Err(file.error(
            "the lines below the header end with a separator, which makes an empty column; remove it from their ends",
        ));
    }
    let detected = LabelDetection::of_rows(&all, options);
    let Labels { header: has_header, index_col: has_index } = detected.labels;
    let rows = &all[usize::from(has_header)..];
    let (Some(row), Some(start)) = (rows.first(), lines.offset(usize::from(has_header))) else {
        return Err(
            file.error(Refusal::quoting(lines.first(), |text| format!("line 1: expected numbers, found {text}")))
        );
    };
    if has_index && row.len() == 1 {
        return Err(file.error("--index-col yes: the table has one column only; leave the option out"));
    }
    if options.format == TableFormat::Auto
        && options.index_col == Presence::Auto
        && row.len() <= like_triples::MAX_FIELDS
    {
        let many = FirstLines::read_many(file, tabs, like_triples::LOOK)?;
        if let Some(why) = like_triples::why(&many.fields(), has_header) {
            return Err(file.error(why.map(|why| {
                format!(
                    "looks like triples, an entry on each line (user, item, value): {why}; --format triples reads it so, --format \
                     table reads each line as a row of the matrix"
                )
            })));
        }
    }
    let columns = row.len() - usize::from(has_index);
    let names = all[0].len();
    // A single field is a title, not a list of names.
    let misfit = has_header && names > 1 && names != columns && names != row.len();
    let numberless = all.len() > 1 && all.iter().flatten().all(|field| is_name(field));
    if (misfit || numberless)
        && let Some((at, mark)) = comment(&lines, &all)
    {
        return Err(error_at(file, at, format!("begins with {mark}, as a comment does; remove the line")));
    }
    if numberless && all[1..].iter().flatten().all(|field| has_letters_behind_number(field)) {
        return Err(
            file.error("the numbers have units, such as 5 mg; write numbers alone, and the units in the header")
        );
    }
    let separated = |by: u8| {
        let split = |row: &Vec<&[u8]>| fields(row[0], by).skip(1).any(|part| number(part).is_some());
        all[1..].iter().all(|row| row.len() == 1) && all[1..].iter().any(split)
    };
    if numberless && let Some(by) = [b';', b',', b'|', b':', b'/'].into_iter().find(|by| separated(*by)) {
        let cure = match by {
            b';' | b',' if tabs => "the name says that tabs do; let it end in .csv",
            b';' | b',' => {
                "the first line has another, or is a title; write one separator in all lines, and no title above"
            }
            _ => "separate them by commas, semicolons, tabs or blanks",
        };
        return Err(file.error(format!("'{}' separates the fields; {cure}", char::from(by))));
    }
    if numberless {
        return Err(file.error(
            "holds words and no numbers; for lists of items, such as baskets, write an entry on each line (basket,item) and give \
             --format triples",
        ));
    }
    if misfit {
        return Err(file.error(format!(
            "line 1: the header has {names} fields, but the first row has {}; correct one of them, or leave the header out and \
             give --header no",
            row.len()
        )));
    }
    Ok(Table { header: detected.header(file, &lines, start, None)?, cols: columns })
}

/// Refuses the line by which spreadsheets learn the separator.
///
/// # Errors
/// If the first line is such a line.
pub fn check_excel(file: &InputFile, lines: &FirstLines) -> Result<()> {
    let first = lines.first();
    match (first.len() <= 5 && first.starts_with(b"sep=")).then(|| lines.offset(0)).flatten() {
        Some(at) => Err(error_at(file, at, "is a mark for Excel, and no part of the table; remove it")),
        None => Ok(()),
    }
}

/// The position and the mark of a line that is a comment and is read as a part of the table: a first line, as in MATLAB, or one
/// between others, with another number of fields.
fn comment(lines: &FirstLines, all: &[Vec<&[u8]>]) -> Option<(u64, char)> {
    let is_comment = |at: usize, line: &[u8]| match at {
        0 => line.starts_with(b"%"),
        _ => line.starts_with(b"#") && all[at].len() != all[0].len(),
    };
    let at = lines.lines().enumerate().find_map(|(at, line)| is_comment(at, line).then_some(at))?;
    Some((lines.offset(at)?, if at == 0 { '%' } else { '#' }))
}

/// The first line (from 1) whose fields, or those between semicolons or tabs, are numbers, some with a decimal comma. The first field
/// may be a name.
fn decimal_comma(lines: &FirstLines) -> Option<usize> {
    let wrong = |line: &[u8], separator: u8| {
        let is_number = |field: &[u8]| number(field).is_some() || number_with_comma(field).is_some();
        let mut values = fields(line, separator).skip(1).peekable();
        values.peek().is_some() && values.all(is_number) && fields(line, separator).any(has_decimal_comma)
    };
    let any = |line: &[u8]| [b';', b'\t', lines.separator].iter().any(|&separator| wrong(line, separator));
    (1..).zip(lines.lines()).find_map(|(at, line)| any(line).then_some(at))
}

/// The names in the header and in the index column, if there are any.
///
/// # Errors
/// As [`layout`].
pub fn names(file: &InputFile, tabs: bool, options: TableOptions) -> Result<Names> {
    let table = layout(file, tabs, options)?;
    let lines = FirstLines::read(file, tabs)?;
    let columns = table.header.labels.header.then(|| {
        let first = fields(lines.first(), table.header.separator);
        let all: Vec<String> = first.map(text_of).collect();
        // The title of the index column may be missing.
        let extra = all.len().saturating_sub(table.cols);
        if all.len() == table.cols + usize::from(table.header.labels.index_col) || all.len() == table.cols {
            all.into_iter().skip(extra).collect()
        } else {
            Vec::new()
        }
    });
    let mut rows = table.header.labels.index_col.then(Vec::new);
    if let Some(rows) = &mut rows {
        let mut blocks = TextBlocks::open(file, table.header.start, 0, 1)?;
        while let Some((text, _)) = blocks.next_block()? {
            let mut at = 0;
            while let Some(line) = next_row(text, &mut at, table.header.separator) {
                rows.extend(fields(&text[line], table.header.separator).next().map(text_of));
            }
        }
    }
    Ok((columns.filter(|names| !names.is_empty()), rows))
}

impl Table {
    /// The kind of the numbers in these lines.
    pub fn values(&self, text: &[u8]) -> Values {
        let mut at = 0;
        while let Some(line) = next_row(text, &mut at, self.header.separator) {
            let mut numbers =
                fields(&text[line], self.header.separator).skip(usize::from(self.header.labels.index_col));
            if !numbers.all(is_whole) {
                return Values::Double;
            }
        }
        Values::Whole
    }

    /// Refuses blank lines between the rows of a single column, where each may be a missing entry, or none.
    ///
    /// # Errors
    /// If there is such a line; the message has its number.
    pub fn check_blank_lines(&self, file: &InputFile) -> Result<()> {
        if self.cols > 1 || self.header.labels.index_col {
            return Ok(());
        }
        let mut blocks = TextBlocks::open(file, self.header.start, 0, 1)?;
        let mut blank = None;
        while let Some((text, offset)) = blocks.next_block()? {
            let mut at = offset;
            for line in text.split_inclusive(|&byte| byte == b'\n') {
                match blank {
                    _ if line.trim_ascii().is_empty() => blank = blank.or(Some(at)),
                    Some(blank) => {
                        let why = "is blank, which may be a missing entry; write NA there, or remove the line";
                        return Err(error_at(file, blank, why));
                    }
                    None => {}
                }
                at += line.len() as u64;
            }
        }
        Ok(())
    }

    /// Parses row `row` into `out`.
    fn parse<T: Real>(
        &self,
        line: &[u8],
        row: usize,
        policy: EntryPolicy,
        out: &mut [T],
    ) -> std::result::Result<(), Refusal> {
        let mut count = 0;
        for field in fields(line, self.header.separator).skip(usize::from(self.header.labels.index_col)) {
            if let Some(out) = out.get_mut(count) {
                let wrong = |why| format!("the entry in {} {why}", position(row, count));
                *out = entry(field, policy).map_err(|why| why.map(wrong))?;
            }
            count += 1;
        }
        if count == self.cols {
            Ok(())
        } else if ends_within_quotes(line, self.header.separator) {
            Err(OPEN_QUOTE.into())
        } else {
            Err(format!("has {count} numbers, but the first row has {}", self.cols).into())
        }
    }
}

/// The value of a field; NaN for a missing value, if these are accepted.
///
/// # Errors
/// The reason for a refusal, as a predicate: "is …".
pub fn entry<T: Real>(field: &[u8], policy: EntryPolicy) -> std::result::Result<T, Refusal> {
    let remedy = policy.nan_remedy;
    match number(field) {
        Some(value) => Ok(policy.check(value)?),
        None if is_missing(field) && policy.allow_nan => Ok(policy.check(f64::NAN)?),
        None if field.is_empty() => Err(format!("is empty; {remedy}").into()),
        None if is_missing(field) => Err(Refusal::quoting(field, |text| format!("is {text}, not a number; {remedy}"))),
        None if is_other_missing_mark(field) => {
            let remedy = if policy.allow_nan { String::new() } else { format!("; {remedy}") };
            Err(Refusal::quoting(field, |text| {
                format!("is {text}; to mark a missing value, write NA in its place{remedy}")
            }))
        }
        None => Err(not_a_number(field, |text| format!("is {text}"))),
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
        let separator = self.table.header.separator;
        let next = |text: &[u8], at: &mut usize| next_row(text, at, separator);
        self.lines.parse(next, |line| self.table.parse(line, self.next - 1, self.policy, out))
    }
}

impl<T: Real> DenseReader<T> for TableReader<'_> {
    fn read(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
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
        out.iter_mut().zip(piece).for_each(|(out, &x)| *out = rounded(x));
        Ok(())
    }

    fn policy(&self) -> EntryPolicy {
        self.policy
    }

    fn refusal(&self, line: usize, at: usize, why: &str) -> Error {
        self.file.error(format!("the entry in {} {why}", position(line, at)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::formats::options::Repeated;

    const AUTO: TableOptions = TableOptions {
        header: Presence::Auto,
        index_col: Presence::Auto,
        format: TableFormat::Auto,
        repeated: Repeated::Refuse,
    };

    fn with_file<R>(text: &str, f: impl FnOnce(&InputFile) -> R) -> R {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        f(&InputFile { path: file.path().to_str().unwrap().to_string(), gz: false, private: false })
    }

    fn head(text: &str, options: TableOptions) -> Result<Table> {
        with_file(text, |file| layout(file, false, options))
    }

    /// Whether a header and an index column are found, and the number of columns of numbers.
    fn found(text: &str, options: TableOptions) -> (bool, bool, usize) {
        let table = head(text, options).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        (table.header.labels.header, table.header.labels.index_col, table.cols)
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
            let header = Header { separator, labels, start, note: table.header.note.clone() };
            assert_eq!(table, Table { header, cols }, "{text:?}");
        }
        for (text, what) in [
            ("gene,a,b,c,d\ng1,1,2,3\ng2,3,4,5\n", "5 fields, but the first row has 4"),
            ("a,b\n1,2,3,4\n", "2 fields, but the first row has 4"),
            ("\u{feff}a,b\r1,2\r3,4", "carriage return"),
            ("\"a\nb\",c,d\n1,2,3\n4,5,6\n", "line 1: a quotation mark is not closed"),
            ("x,y,z\n\"a\nb\",2,3\n4,5,6\n", "line 2: a quotation mark is not closed"),
            ("%c\n1 2 3\n4 5 6\n", "line 1: begins with %"),
            ("% from MATLAB, edited\n1 2 3\n4 5 6\n", "line 1: begins with %"),
            ("1 2 3\n# mid\n4 5 6\n", "line 2: begins with #"),
            ("sep=;\na;b\n1;2\n", "line 1: is a mark for Excel"),
        ] {
            assert!(head(text, AUTO).unwrap_err().message.contains(what), "{text:?}");
        }
        for text in [
            "1,5;2,5\n3,0;4\n",
            "0,645;0,123\n0,500;0,250\n",
            "gene;a;b\ng1;1,5;2\n",
            "1,5\t2,3\n3,5\t4,25\n",
            "g\ta\tb\nx\t1,5\t2,3\n",
            "\"1,5\",\"2,3\"\n\"3,5\",\"4,25\"\n",
        ] {
            assert!(head(text, AUTO).unwrap_err().message.contains("decimal comma"), "{text:?}");
        }
        // Commas in names are not decimal commas.
        for text in [
            "id;a;b\nr1;0.5;0.25\n\"Smith, J\";0.5;0.75\n",
            "id;\"1,2-DCE\";\"1,3-DCE\"\nr1;0.5;0.25\nr2;0.5;0.75\n",
            "id;a;b\n1,2-DCE;0.5;0.25\nT2;0.5;0.75\n",
        ] {
            let table = head(text, AUTO).unwrap();
            assert_eq!((table.header.separator, table.cols), (b';', 2), "{text:?}");
        }
        assert!(head("", AUTO).unwrap_err().message.contains("no line"));
        for text in ["A,B,C\n15,4,7,\n2,5,8,\n300,6,9,\n", "g;T;P\na;1;2;\nb;3;4;\n"] {
            assert!(head(text, AUTO).unwrap_err().message.contains("end with a separator"), "{text:?}");
        }
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
            "a,x,5\na,y,1\nb,x,2\nb,z,4\n",
            "196,242,3,881250949\n196,302,3,891717742\n205,377,1,878887116\n",
            &unordered,
        ] {
            let error = head(text, AUTO).unwrap_err();
            assert!(error.exit_code() == 2, "{text:?}");
            for word in ["--format triples", "--format table", "triples"] {
                assert!(error.message.contains(word), "{text:?}: {}", error.message);
            }
            // The first column may still be names.
            let table =
                TableOptions { format: TableFormat::Table, header: Presence::Auto, index_col: Presence::No, ..AUTO };
            assert!(head(text, table).map_or_else(|e| e.message.contains("--header yes"), |_| true), "{text:?}");
        }
        let titled = head("userId,movieId,rating\n1,\"Film 24, \"\"x\"\"\",2.5\n", AUTO).unwrap_err().message;
        assert!(titled.contains("userId and movieId") && titled.contains("--format triples"), "{titled}");
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
            // Their first column may still be names.
            assert!(head(text, AUTO).map_or_else(|e| !e.message.contains("triples"), |_| true), "{text:?}");
        }
    }

    #[test]
    fn options_decide() {
        let options = |header, index_col| TableOptions { header, index_col, ..AUTO };
        use Presence::{Auto, No, Yes};
        let text = "0,1,2,3,4\n1,5,6,1,2\n2,7,8,3,4\n3,9,9,5,6\n";
        for (header, index, expected) in [
            (No, Yes, (false, true, 4)),
            (Auto, No, (true, false, 5)),
            (No, No, (false, false, 5)),
            (Yes, Yes, (true, true, 4)),
        ] {
            assert_eq!(found(text, options(header, index)), expected, "{header:?} {index:?}");
        }
        assert!(head(text, AUTO).unwrap_err().message.contains("--index-col yes if it names the rows"));
        assert_eq!(found("7,8\n9,9\n", options(Yes, Yes)), (true, true, 1));
        assert!(head("a,1,2\nb,3,4\n", options(Auto, No)).unwrap_err().message.contains("numbers and other text"));
        assert!(head("7\n8\n", options(No, Yes)).unwrap_err().message.contains("one column"));
        assert!(head("7,8\n", options(Yes, Auto)).unwrap_err().message.contains("expected numbers"));
    }

    #[test]
    fn names_are_those_of_the_numbers() {
        let read = |text: &str| with_file(text, |file| names(file, false, AUTO)).unwrap();
        let list = |names: Option<Vec<String>>| names.map(|names| names.join("|"));
        for (text, columns, rows) in [
            ("# by hand\n,\"a \"\"x\"\"\",b\nr,1,2\n\ns,3,4\n", Some("a \"x\"|b"), Some("r|s")),
            // Below the comments, # is an ordinary character, and a line of names above the rows is their header.
            ("well,a,b\n#1,1,2\n#2,3,4\n", Some("a|b"), Some("#1|#2")),
            ("# 3 by 2\n#well,a,b\nx,1,2\ny,3,4\n", Some("a|b"), Some("x|y")),
            ("#1,1,2\nx,1,2\ny,3,4\n", None, Some("x|y")),
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
    fn a_row_of_missing_entries_is_a_row() {
        for (text, rows) in
            [("5\t2\n\t\n3\t4\n", 3), ("5\t2\n\n3\t4\n \n", 2), ("5,2\n\t\n3,4\n", 2), ("5 2\n\t\n3 4\n", 2)]
        {
            let separator = head(text, AUTO).unwrap().header.separator;
            assert_eq!(crate::formats::fields::count_rows(text.as_bytes(), separator), rows, "{text:?}");
        }
        // In a single column it may be none.
        let check = |text: &str| with_file(text, |file| layout(file, false, AUTO)?.check_blank_lines(file));
        let refused = check("5\n2\n\n3\n").unwrap_err().message;
        assert!(refused.contains("line 3") && refused.contains("blank"), "{refused}");
        for text in ["5\n2\nNA\n3\n\n", "5,2\n\n3,4\n", "x,1\n\ny,2\n"] {
            assert!(check(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn numbers_with_units_and_other_separators_are_named() {
        for (text, names) in [
            ("a,b\n5kg,3kg\n1kg,2kg\n", "units"),
            ("a|b|c\n1|2|3\n4|5|6\n", "'|' separates the fields"),
            ("a:b:c\nx:2:3\ny:5:6\n", "':' separates the fields"),
            ("milk,bread\nbeer,7up\n", "--format triples"),
        ] {
            let refused = with_file(text, |file| layout(file, false, AUTO).map(drop)).unwrap_err().message;
            assert!(refused.contains(names), "{text:?}: {refused}");
        }
        let tabs = with_file("a;b;c\nx;2;3\ny;5;6\n", |file| layout(file, true, AUTO).map(drop)).unwrap_err().message;
        assert!(tabs.contains("';' separates the fields") && tabs.contains(".csv"), "{tabs}");
    }

    #[test]
    fn rows_are_parsed_or_refused() {
        let labels = Labels { header: false, index_col: true };
        let header = Header { separator: b',', labels, start: 0, note: None };
        let table = Table { header, cols: 3 };
        let policy = EntryPolicy::default();
        let mut out = [0.0f64; 3];
        table.parse(b"\"a \"\"x\"\", b\", 1 ,\"2.5\",3e1", 0, policy, &mut out).unwrap();
        assert_eq!(out, [1.0, 2.5, 30.0]);
        for (line, names) in [
            ("a,1,2", "has 2 numbers, but the first row has 3"),
            ("\"a", "line breaks within quotation marks are not supported"),
            ("a,1,2,3,4", "has 4 numbers"),
            ("a,1,,3", "row 4, column 1 is empty; if that marks a missing value, --missing nan"),
            ("a,1,NA,3", "'NA', not a number; if that marks a missing value, --missing nan"),
            ("a,1,x,3", "'x', not a number"),
            (
                "a,1,ND,3",
                "is 'ND'; to mark a missing value, write NA in its place; if that marks a missing value, --missing nan",
            ),
            ("a,1,5 mg,3", "'5 mg', not a number; it has a unit"),
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
        let header = Header { separator: b',', labels, start: 0, note: None };
        let table = Table { header, cols: 8 };
        let policy = EntryPolicy { allow_nan: true, ..EntryPolicy::default() };
        let mut out = [0.0f32; 8];
        table.parse(b"1,,NA,NaN,nan,<NA>,N/A,\"\"", 0, policy, &mut out).unwrap();
        assert!(out[0] == 1.0 && out[1..].iter().all(|x| x.is_nan()), "{out:?}");
        assert!(table.parse(b"1,x,1,1,1,1,1,1", 0, policy, &mut out).is_err());
    }
}
