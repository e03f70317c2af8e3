//! Lines and fields of text tables, and the kinds of fields: a number, the mark of a missing value, or a name.

use std::ops::Range;

use fednmf_base::error::Result;

use crate::formats::io::InputFile;
use crate::formats::number::float;
use crate::formats::text::TextBlocks;
use crate::output::own_mark;

/// Number of lines at the start of a file from which its layout is inferred.
const LOOK: usize = 20;
/// Bytes kept of each line after the second: its first few fields.
const KEPT: usize = 1 << 12;
/// The mark with which some programs begin a text in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The first lines of a table, usually at most twenty, without blank ones and the comments (`#`) above it.
pub struct FirstLines {
    /// The byte between fields; a blank stands for any run of blanks.
    pub separator: u8,
    /// Positions and texts. The first two lines are complete; of the others, at least the first fields are kept.
    lines: Vec<(u64, Vec<u8>)>,
    /// Number of comment lines above the table.
    comments: usize,
}

impl FirstLines {
    /// Reads the lines; `tabs` fixes the separator.
    ///
    /// # Errors
    /// If the file cannot be read, or has no line other than blank ones and comments.
    pub fn read(file: &InputFile, tabs: bool) -> Result<Self> {
        Self::read_many(file, tabs, LOOK)
    }

    /// As [`FirstLines::read`], but at most `look` lines.
    ///
    /// # Errors
    /// As [`FirstLines::read`].
    pub fn read_many(file: &InputFile, tabs: bool, look: usize) -> Result<Self> {
        let mut blocks = TextBlocks::open(file, 0, 0, 1)?;
        let mut lines: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut comments = Vec::new();
        'all: while let Some((text, offset)) = blocks.next_block()? {
            if offset == 0 && (text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff])) {
                return Err(file.error("is UTF-16 text; save it as UTF-8"));
            }
            if offset == 0 && text.contains(&b'\r') && !text.contains(&b'\n') {
                return Err(file.error("has lines that end with a carriage return alone; save it with line feeds"));
            }
            let mut at = if offset == 0 && text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            // The separator is not known yet, and may be a tab.
            while let Some(line) = next_row(text, &mut at, b'\t') {
                if lines.is_empty() && text[line.start] == b'#' && !is_spreadsheet_error(&text[line.clone()]) {
                    comments.push((offset + line.start as u64 + 1, text[line.start + 1..line.end].to_vec()));
                    continue;
                }
                let most = if lines.len() < 2 { usize::MAX } else { KEPT };
                lines.push((offset + line.start as u64, text[line].iter().copied().take(most).collect()));
                if lines.len() == look {
                    break 'all;
                }
            }
        }
        let Some((_, first)) = lines.iter().find(|(_, line)| !is_blank(line, b' ')) else {
            return Err(file.error("holds no line with numbers"));
        };
        let separator = if tabs { b'\t' } else { guess_separator(first) };
        lines.retain(|(_, line)| !is_blank(line, separator));
        // `# gene,a,b` above the rows is a header.
        let width = fields(&lines[0].1, separator).count();
        let is_header = |(_, line): &(u64, Vec<u8>)| {
            let names: Vec<&[u8]> = fields(line, separator).collect();
            width > 1 && names.len() == width && names.iter().any(|name| is_name(name))
        };
        if comments.last().is_some_and(is_header) {
            lines.splice(..0, comments.pop());
        }
        Ok(FirstLines { separator, lines, comments: comments.len() })
    }

    /// Refuses lines that end within quotation marks.
    ///
    /// # Errors
    /// If there is such a line; the message has the number of the first one, counted from 1.
    pub fn check_quotes(&self, file: &InputFile) -> Result<()> {
        let is_whole = |at: usize, line: &[u8]| at <= 2 || line.len() < KEPT;
        let is_open = |(at, line): &(usize, &[u8])| is_whole(*at, line) && ends_within_quotes(line, self.separator);
        match (1..).zip(self.lines()).find(is_open) {
            Some((at, _)) => Err(file.error(format!("line {at}: {OPEN_QUOTE}"))),
            None => Ok(()),
        }
    }

    /// A note for the user about skipped lines.
    pub fn note(&self) -> Option<String> {
        let count = self.comments;
        (count > 0).then(|| format!("{count} line(s) above the table that begin with # are comments"))
    }

    /// The fields of each line.
    pub fn fields(&self) -> Vec<Vec<&[u8]>> {
        self.lines.iter().map(|(_, line)| fields(line, self.separator).collect()).collect()
    }

    /// The text of each line; long lines are cut.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(|(_, line)| line.as_slice())
    }

    /// The position of a line in the (uncompressed) text, if the line exists.
    pub fn offset(&self, line: usize) -> Option<u64> {
        self.lines.get(line).map(|(offset, _)| *offset)
    }

    /// The text of the first line.
    pub fn first(&self) -> &[u8] {
        self.lines.first().map_or(&[], |(_, text)| text)
    }

    /// The description of a separator for the user.
    pub fn format(separator: u8) -> String {
        match separator {
            b' ' => "separated by blanks".to_string(),
            b'\t' => "TSV".to_string(),
            other => format!("CSV ({})", char::from(other)),
        }
    }
}

/// The separator that splits the line into the most fields.
fn guess_separator(line: &[u8]) -> u8 {
    let line = without_quoted(line);
    let count = |separator: u8| fields(&line, separator).count();
    let best = [b',', b';', b'\t'].into_iter().max_by_key(|&s| (count(s), s == b',')).unwrap_or(b',');
    if count(best) == 1 && count(b' ') > 1 { b' ' } else { best }
}

/// The line with a letter in place of each field in quotation marks, for any separator.
fn without_quoted(line: &[u8]) -> Vec<u8> {
    let (mut bare, mut at) = (Vec::with_capacity(line.len()), 0);
    while let Some(&c) = line.get(at) {
        let begins = c == b'"' && (at == 0 || b",;\t ".contains(&line[at - 1]));
        match begins.then(|| closing(&line[at + 1..])).flatten() {
            Some(end) => {
                bare.push(b'x');
                at += 1 + end;
            }
            None => {
                bare.push(c);
                at += 1;
            }
        }
    }
    bare
}

/// The next line at or after `at` that is not blank, without its line end.
pub fn next_line(text: &[u8], at: &mut usize) -> Option<Range<usize>> {
    next_row(text, at, b' ')
}

/// As [`next_line`], but between tabs a line of tabs alone is a row, whose entries are all missing.
pub fn next_row(text: &[u8], at: &mut usize, separator: u8) -> Option<Range<usize>> {
    loop {
        if *at >= text.len() {
            return None;
        }
        let start = *at;
        let end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |end| start + end);
        *at = end + 1;
        let end = if text[..end].ends_with(b"\r") && end > start { end - 1 } else { end };
        if !is_blank(&text[start..end], separator) {
            return Some(start..end);
        }
    }
}

fn is_blank(line: &[u8], separator: u8) -> bool {
    line.trim_ascii().is_empty() && !(separator == b'\t' && line.contains(&b'\t'))
}

/// Counts the lines that [`next_row`] finds.
pub fn count_rows(text: &[u8], separator: u8) -> u64 {
    let mut at = 0;
    std::iter::from_fn(|| next_row(text, &mut at, separator)).count() as u64
}

/// The fields of a line, without surrounding blanks and quotation marks. A quoted field may contain the separator.
pub fn fields(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    quoted_fields(line, separator).map(|(field, _)| {
        let field = field.trim_ascii();
        field.strip_prefix(b"\"").and_then(|f| f.strip_suffix(b"\"")).unwrap_or(field)
    })
}

/// The reason for refusing a line that ends within quotation marks.
pub const OPEN_QUOTE: &str = "a quotation mark is not closed on its line, and line breaks within quotation marks are not \
                              supported; write each row on one line";

/// Whether a field of the line has no closing quotation mark.
pub fn ends_within_quotes(line: &[u8], separator: u8) -> bool {
    quoted_fields(line, separator).any(|(_, is_open)| is_open)
}

/// The fields of a line as they are written, and whether one has no closing quotation mark.
fn quoted_fields(line: &[u8], separator: u8) -> impl Iterator<Item = (&[u8], bool)> {
    let mut rest = Some(if separator == b' ' { line.trim_ascii() } else { line });
    std::iter::from_fn(move || {
        let line = rest?;
        let closed = line.strip_prefix(b"\"").map(closing);
        let from = closed.map_or(0, |end| end.map_or(line.len(), |end| 1 + end));
        let other = if separator == b' ' { b'\t' } else { separator };
        let end = memchr::memchr2(separator, other, &line[from..]).map(|end| from + end);
        rest = end.map(|end| {
            let rest = &line[end + 1..];
            if separator == b' ' { rest.trim_ascii_start() } else { rest }
        });
        Some((&line[..end.unwrap_or(line.len())], closed == Some(None)))
    })
}

/// The position after the closing quotation mark, if there is one; a doubled mark is part of the field.
fn closing(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let mark = at + memchr::memchr(b'"', &text[at..])?;
        if text.get(mark + 1) != Some(&b'"') {
            return Some(mark + 1);
        }
        at = mark + 2;
    }
}

/// The number in a field, if it is the whole field.
pub fn number(field: &[u8]) -> Option<f64> {
    float(field).filter(|(_, used)| *used == field.len()).map(|(value, _)| value)
}

/// The number in a field that is written with one comma between digits and no point, as `4,5`.
pub fn number_with_comma(field: &[u8]) -> Option<f64> {
    let at = memchr::memchr(b',', field)?;
    let between_digits =
        field[..at].last().is_some_and(u8::is_ascii_digit) && field[at + 1..].first().is_some_and(u8::is_ascii_digit);
    let point: Vec<u8> = field.iter().map(|&c| if c == b',' { b'.' } else { c }).collect();
    if between_digits && !field.contains(&b'.') { number(&point) } else { None }
}

/// Whether a field is such a number, and its comma does not stand between thousands.
pub fn has_decimal_comma(field: &[u8]) -> bool {
    number_with_comma(field).is_some() && why_unreadable(field).is_none()
}

/// Whether a field marks a missing value, as pandas, R and spreadsheets write it.
pub fn is_missing(field: &[u8]) -> bool {
    field.is_empty()
        || [&b"na"[..], b"nan", b"null", b"n/a", b"<na>"].iter().any(|word| field.eq_ignore_ascii_case(word))
}

/// Whether a field is written as a whole number, or missing.
pub fn is_whole(field: &[u8]) -> bool {
    field.iter().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-')) || is_missing(field)
}

/// Whether a text begins with the error value of a spreadsheet formula.
fn is_spreadsheet_error(text: &[u8]) -> bool {
    [&b"#N/A"[..], b"#VALUE!", b"#REF!", b"#DIV/0!", b"#NAME?", b"#NULL!", b"#NUM!"]
        .iter()
        .any(|mark| text.starts_with(mark))
}

/// Whether a text marks a missing entry or is a truth value: a line of these is no header.
pub fn is_mark(field: &[u8]) -> bool {
    const MARKS: [&[u8]; 12] =
        [b"nd", b"n.d.", b"n/d", b"n.a.", b"none", b"missing", b"true", b"false", b"bdl", b"b.d.l.", b"lod", b"<lod"];
    !field.is_empty() && field.iter().all(u8::is_ascii_punctuation)
        || MARKS.iter().any(|mark| field.eq_ignore_ascii_case(mark))
        || is_spreadsheet_error(field)
}

/// Whether a text marks a missing entry in another way than those that are read as one.
pub fn is_other_missing_mark(field: &[u8]) -> bool {
    is_mark(field) && ![&b"true"[..], b"false"].iter().any(|word| field.eq_ignore_ascii_case(word))
}

/// Whether a field is a number and letters behind it, as a unit.
pub fn has_letters_behind_number(field: &[u8]) -> bool {
    let rest = float(field).map(|(_, used)| String::from_utf8_lossy(&field[used..]).into_owned());
    rest.is_some_and(|rest| {
        let rest = rest.trim_start();
        rest.starts_with(|c: char| c.is_alphabetic() || c == '\u{b0}')
    })
}

/// Whether a field looks like a date or a time: digits and at least two of the same separator.
pub fn is_date(field: &[u8]) -> bool {
    let digits = field.iter().all(|b| b.is_ascii_digit() || b"-/.:T ".contains(b));
    let separated = |by: u8| field.iter().filter(|b| **b == by).count() >= 2;
    digits && field.first().is_some_and(u8::is_ascii_digit) && b"-/.:".iter().any(|&by| separated(by))
}

/// Whether a field can only be a name.
pub fn is_name(field: &[u8]) -> bool {
    number(field).is_none() && !is_missing(field) && why_unreadable(field).is_none()
}

/// Why a field that shows a number cannot be read as one, and what to do; `None` for numbers and for other text.
pub fn why_unreadable(field: &[u8]) -> Option<&'static str> {
    let text = std::str::from_utf8(field).ok()?;
    let signs = |c: char| "<>~\u{2264}\u{2265}\u{2248}$\u{20ac}\u{a3}\u{a5}% ".contains(c);
    let bare = text.trim_matches(signs);
    if !bare.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return None;
    }
    let affix = "has a sign or a unit beside its number; write numbers alone";
    if bare.len() < text.len() && (number(bare.as_bytes()).is_some() || groups(bare)) {
        return Some(affix);
    }
    if groups(bare) {
        return Some("has separators between thousands; write numbers without them");
    }
    None
}

/// Whether a text is a number with groups of three digits: `1,234`, `1 234.5`, `12'345'678`, `1.234,5`.
fn groups(text: &str) -> bool {
    const SPACES: [char; 6] = ['\'', ' ', '_', '\u{2009}', '\u{202f}', '\u{a0}'];
    let digits = text.trim_start_matches(['+', '-']);
    let point = [','].into_iter().chain(SPACES).map(|separator| (separator, '.'));
    let comma = ['.'].into_iter().chain(SPACES).map(|separator| (separator, ','));
    // One point alone is that of decimals.
    let comma = comma.filter(|_| digits.contains(','));
    point.chain(comma).any(|(separator, decimal)| {
        let mut parts = digits.split(separator);
        let is = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
            lengths.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
        };
        // 0,645 has no thousands.
        let first = parts.next().is_some_and(|part| is(part, 1..=3) && !part.starts_with('0'));
        let rest: Vec<&str> = parts.collect();
        let Some((last, middle)) = rest.split_last() else { return false };
        let (whole, decimals) = last.split_once(decimal).unwrap_or((last, "0"));
        first && is(whole, 3..=3) && is(decimals, 1..=usize::MAX) && middle.iter().all(|part| is(part, 3..=3))
    })
}

/// The value of a field that is a whole number as programs write it: without a plus sign or leading zeros.
pub fn integer(field: &[u8]) -> Option<i64> {
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    let plain = digits == b"0" && field.len() == 1 || digits.first().is_some_and(|d| (b'1'..=b'9').contains(d));
    if plain { std::str::from_utf8(field).ok()?.parse().ok() } else { None }
}

/// The first number, if the fields are consecutive whole numbers; `None` if they are not, or there are none.
pub fn counts_from<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<i64> {
    let mut fields = fields.into_iter();
    let start = integer(fields.next()?)?;
    let follows = |(i, field): (i64, &[u8])| integer(field).is_some_and(|x| x.checked_sub(start) == Some(i));
    (1..).zip(fields).all(follows).then_some(start)
}

/// Whether this column name in a header denotes an index, as in files of pandas, R and most databases.
pub fn names_an_index(field: &[u8]) -> bool {
    field.is_empty()
        || field.starts_with(b"Unnamed: 0")
        || field.starts_with(own_mark::START.as_bytes())
        || [&b"index"[..], b"id"].iter().any(|word| field.eq_ignore_ascii_case(word))
        || [&b"rownames"[..], b"rowname", b"rn", b"obsnames", b"varnames"].contains(&&bare(field)[..])
}

/// A title in lower case, without separators.
fn bare(field: &[u8]) -> Vec<u8> {
    field.iter().filter(|byte| !b"_-. #".contains(byte)).map(u8::to_ascii_lowercase).collect()
}

/// Whether this column name in a header denotes identifiers of patients, samples or the like: `patient_id`, `SampleID`.
pub fn names_an_id(field: &[u8]) -> bool {
    let Some(stem) = field.len().checked_sub(2).map(|at| &field[..at]) else { return false };
    let before = stem.last().copied().unwrap_or(b'_');
    match &field[stem.len()..] {
        b"id" => !before.is_ascii_alphanumeric(),
        b"Id" => !before.is_ascii_uppercase(),
        b"ID" => true,
        _ => false,
    }
}

/// Whether this text in the corner of a table is the title of a column of names. The line is then a header even if its other
/// fields are numbers (years, times).
pub fn heads_names(field: &[u8]) -> bool {
    // In the singular, without separators.
    const WORDS: [&[u8]; 65] = [
        b"accession",
        b"analyte",
        b"antibody",
        b"article",
        b"asv",
        b"barcode",
        b"cell",
        b"cellline",
        b"chemical",
        b"compound",
        b"country",
        b"doc",
        b"document",
        b"donor",
        b"drug",
        b"ensembl",
        b"entrez",
        b"feature",
        b"gene",
        b"geneid",
        b"genesymbol",
        b"hostname",
        b"image",
        b"individual",
        b"item",
        b"kinase",
        b"label",
        b"locus",
        b"metabolite",
        b"mirna",
        b"motif",
        b"mutation",
        b"mutationtype",
        b"name",
        b"organism",
        b"otu",
        b"participant",
        b"pathway",
        b"patient",
        b"peak",
        b"peptide",
        b"person",
        b"probe",
        b"probeset",
        b"product",
        b"protein",
        b"region",
        b"row",
        b"sample",
        b"site",
        b"species",
        b"spectrum",
        b"station",
        b"strain",
        b"subject",
        b"symbol",
        b"taxa",
        b"taxon",
        b"taxonomy",
        b"term",
        b"ticker",
        b"token",
        b"transcript",
        b"variable",
        b"word",
    ];
    let word = bare(field);
    let singular = word.strip_suffix(b"s").unwrap_or(&word);
    names_an_index(field)
        || names_an_id(field)
        || WORDS.contains(&&word[..])
        || WORDS.contains(&singular)
        || field.to_ascii_lowercase().ends_with(b"_name")
}

/// Whether a field is an identifier such as 2310009E13 of a clone of RIKEN: a number in scientific notation has one digit before the
/// point.
pub fn is_clone(field: &[u8]) -> bool {
    let digits = field.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let exponent = field.get(digits + 1..).unwrap_or_default();
    digits >= 5
        && matches!(field.get(digits), Some(b'e' | b'E'))
        && !exponent.is_empty()
        && exponent.iter().all(u8::is_ascii_digit)
}

/// Whether each field is a number larger than the one before.
pub fn rises<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut before = f64::NEG_INFINITY;
    fields.into_iter().all(|field| number(field).is_some_and(|x| x > std::mem::replace(&mut before, x)))
}

/// Whether each field is a number smaller than the one before.
pub fn falls<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut before = f64::INFINITY;
    fields.into_iter().all(|field| number(field).is_some_and(|x| x < std::mem::replace(&mut before, x)))
}

/// Text that is not UTF-8 is read as Latin-1, so that different names stay different.
pub fn decoded(text: &[u8]) -> String {
    match std::str::from_utf8(text) {
        Ok(text) => text.to_string(),
        Err(_) => text.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// A name for the user: a doubled quotation mark stands for one.
pub fn text_of(field: &[u8]) -> String {
    let text = decoded(field);
    if text.contains("\"\"") { text.replace("\"\"", "\"") } else { text }
}

/// A field as it is written, so that [`fields`] and other programs read it again: within quotation marks if need be.
pub fn quoted(text: &str, separator: char) -> String {
    let bare = !text.contains([separator, '"', '\n', '\r']) && text.trim() == text;
    if bare { text.to_string() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_numbers_missing_or_names() {
        assert!(["", "NA", "NaN", "nan", "null", "N/A", "<NA>"].iter().all(|word| is_missing(word.as_bytes())));
        assert!(["a", "NAN1", "1a", "-", "none"].iter().all(|word| is_name(word.as_bytes())));
        assert!(["1", "-2.5", "1e3", "inf"].iter().all(|word| number(word.as_bytes()).is_some()));
        for (text, value) in [("0", 0), ("-3", -3), ("120", 120)] {
            assert_eq!(integer(text.as_bytes()), Some(value));
        }
        assert!(["0", "-3", "+12", "007", "", "NA"].iter().all(|text| is_whole(text.as_bytes())));
        assert!(["1.0", "2e3", ".5", "inf", "a"].iter().all(|text| !is_whole(text.as_bytes())));
        // The name 007 is not 7.
        assert!(
            ["007", "+5", "-0", "1.0", "", "-", "99999999999999999999"].iter().all(|t| integer(t.as_bytes()).is_none())
        );
    }

    #[test]
    fn marks_and_units_are_recognised() {
        assert!(
            ["ND", "n.d.", "-", "?", "None", "BDL", "#N/A"].iter().all(|mark| is_other_missing_mark(mark.as_bytes()))
        );
        assert!(["NA", "", "true", "x", "5"].iter().all(|other| !is_other_missing_mark(other.as_bytes())));
        let unit = |text: &str| has_letters_behind_number(text.as_bytes());
        assert!(["5 mg", "5mg", "1e3 counts", "20 \u{b0}C", "3.5 \u{b5}l"].into_iter().all(unit));
        assert!(!["5", "mg", "mg 5", "5 %", "1,234", ""].into_iter().any(unit));
    }

    #[test]
    fn counting_is_one_by_one() {
        let from = |text: &str| counts_from(fields(text.as_bytes(), b','));
        assert_eq!([from("0,1,2"), from("1,2"), from("7,8,9")], [Some(0), Some(1), Some(7)]);
        assert_eq!([from("0,2"), from("0,1,x"), from("0,1.0"), from("a")], [None; 4]);
        assert_eq!(from("9223372036854775807"), Some(i64::MAX));
    }

    #[test]
    fn quotation_marks_are_not_part_of_a_name() {
        let all: Vec<String> = fields(b"\"a \"\"x\"\", b\", c ,\"\"", b',').map(text_of).collect();
        assert_eq!(all, ["a \"x\", b", "c", ""]);
        let names = ["plain", "a\tb", "\"q\"", "\"ab", " c ", "d, e", ""];
        for separator in ['\t', ','] {
            let line = names.map(|name| quoted(name, separator)).join(&separator.to_string());
            let again: Vec<String> = fields(line.as_bytes(), separator as u8).map(text_of).collect();
            assert_eq!(again, names, "{line}");
        }
        assert_eq!(["a\tb", "d, e"].map(|name| quoted(name, '\t')), ["\"a\tb\"", "d, e"]);
    }
}
