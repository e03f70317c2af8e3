//! Decides from the first lines of a text whether the first line names the columns, and whether the first field of each line
//! names the row; in one place for all text formats. The user's options ([`TableOptions`]) take precedence. Ambiguous files
//! are refused until the user gives the option.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use fednmf_base::error::Result;
use fednmf_data::Labels;

use crate::formats::fields::{
    FirstLines, counts_from, falls, heads_names, integer, is_clone, is_date, is_mark, is_missing, is_name, names_an_id,
    names_an_index, number, rises,
};
use crate::formats::io::InputFile;
use crate::formats::options::{Presence, TableOptions};

/// Layout of a text, inferred from its first lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The byte between fields; a blank stands for any run of blanks.
    pub separator: u8,
    /// Whether the first line is a header, and whether the first field of each line is a name instead of an entry.
    pub labels: Labels,
    /// Position of the first line below the header in the (uncompressed) text.
    pub start: u64,
    /// A note on the inferred labels, with the option that overrides them.
    pub note: Option<String>,
}

/// Whether a first line or column holds labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Yes,
    No,
    /// Consecutive numbers, but most likely data: read as data, with a note.
    Counts,
    /// Few numbers that rise or fall: read as data, with a note.
    Ordered,
    /// Either labels or data, for this reason: refused.
    Ambiguous(&'static str),
    /// Labels, followed by a column of identifiers, which would be read as data: refused.
    BeforeIds,
}

/// The content of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A row of the matrix.
    Row,
    /// An entry: user, item, value.
    Triple,
}

/// The labels of a text, inferred from its first lines.
pub struct LabelDetection {
    pub labels: Labels,
    kind: Kind,
    header: Found,
    index: Found,
    options: TableOptions,
}

impl LabelDetection {
    /// Infers the labels of rows of a matrix from the fields of the first lines.
    pub fn of_rows(lines: &[Vec<&[u8]>], options: TableOptions) -> Self {
        let header = find_header(lines, options);
        let (first, rows) = lines.split_at(usize::from(header == Found::Yes).min(lines.len()));
        let titles = first.first().map(Vec::as_slice);
        let index = match find_index(titles, rows, options) {
            Found::Yes if options.index_col == Presence::Auto && has_more_ids(titles, rows) => Found::BeforeIds,
            found => found,
        };
        LabelDetection::new(Kind::Row, header, index, options)
    }

    /// As [`LabelDetection::of_rows`], for triples.
    pub fn of_triples(lines: &[Vec<&[u8]>], options: TableOptions) -> Self {
        let header = find_header_of_triples(lines, options);
        let index = find_index_of_triples(lines, header == Found::Yes, options);
        LabelDetection::new(Kind::Triple, header, index, options)
    }

    fn new(kind: Kind, header: Found, index: Found, options: TableOptions) -> Self {
        let labels = Labels { header: header == Found::Yes, index_col: index == Found::Yes };
        LabelDetection { labels, kind, header, index, options }
    }

    /// The header, with notes on inferred labels and `further` findings, if there is no ambiguity. `start` is the position
    /// of the first line below the header.
    ///
    /// # Errors
    /// As [`LabelDetection::check`].
    pub fn header(&self, file: &InputFile, lines: &FirstLines, start: u64, further: Option<&str>) -> Result<Header> {
        self.check(file)?;
        let all = lines.fields();
        let row = all.get(usize::from(self.labels.header)).map_or(&[][..], Vec::as_slice);
        let inferred = self.note(all.first().map_or(&[][..], Vec::as_slice), row);
        let notes: Vec<String> = [inferred, further.map(str::to_string), lines.note()].into_iter().flatten().collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(Header { separator: lines.separator, labels: self.labels, start, note })
    }

    /// Refuses lines that may be labels or data.
    ///
    /// # Errors
    /// If lines are ambiguous; the message names the option that decides.
    pub fn check(&self, file: &InputFile) -> Result<()> {
        self.ambiguity().map_or(Ok(()), |why| Err(file.error(why)))
    }

    /// A note for the user on labels that were inferred; `first` is the first line, `row` the first line below the header.
    pub fn note(&self, first: &[&[u8]], row: &[&[u8]]) -> Option<String> {
        let is_inferred = |requested: Presence, found: Found| requested == Presence::Auto && found == Found::Yes;
        let has_header = is_inferred(self.options.header, self.header);
        let has_index = is_inferred(self.options.index_col, self.index);
        let mut parts = Vec::new();
        if self.kind == Kind::Triple {
            parts.extend(has_header.then_some("the first line is taken as a header"));
            let index = "the first column is taken as an index and not used; --index-col no to read it as users";
            parts.extend(has_index.then_some(index));
            return (!parts.is_empty()).then(|| parts.join("; "));
        }
        // Only labels that are numbers could also be read as data.
        let title = first.iter().skip(usize::from(self.labels.index_col));
        let title_is_number = has_header && title.into_iter().all(|field| !is_name(field));
        let name_is_number = has_index && !is_name(row[0]);
        parts.extend(match (has_header, has_index) {
            (true, true) => Some("the first line is taken as a header and the first column as row names"),
            (true, false) => Some("the first line is taken as a header"),
            // A header whose names are numbers would look the same.
            (false, true) if self.options.header == Presence::Auto && is_name(first[0]) => Some(
                "the first column is taken as row names, and the first line as a row; --header yes if it names the columns",
            ),
            (false, true) => Some("the first column is taken as row names"),
            (false, false) => None,
        });
        parts.extend(match (title_is_number, name_is_number) {
            (true, true) => Some("--header no, --index-col no to read them as data"),
            (true, false) => Some("--header no to read the line as data"),
            (false, true) => Some("--index-col no to read the column as data"),
            (false, false) => None,
        });
        parts.extend(match self.header {
            Found::Counts => Some("the first line counts up and was read as data; if it names the columns, add --header yes"),
            Found::Ordered => Some(
                "the numbers of the first line alone rise or fall; it was read as data, and if it names the columns, add --header yes",
            ),
            _ => None,
        });
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The reason why lines may be labels or data, with the option that decides; `None` if there is no ambiguity.
    pub fn ambiguity(&self) -> Option<String> {
        let data = if self.kind == Kind::Row { "data" } else { "an entry" };
        let line = match self.header {
            Found::Ambiguous(why) => Some(format!(
                "the first line {why}, so it may be a header or {data}; give --header yes if it names the columns, --header no \
                 if not"
            )),
            _ => None,
        };
        let column = match self.index {
            Found::Ambiguous(why) => Some(format!(
                "the first column {why}, so it may be names or data; give --index-col yes if it names the rows, --index-col no \
                 if not"
            )),
            Found::BeforeIds => Some(
                "the second column holds identifiers or years, which are not data and should be removed; --index-col yes \
                 takes them as data"
                    .to_string(),
            ),
            _ => None,
        };
        let parts: Vec<String> = [line, column].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Whether the first line of rows is a header.
fn find_header(lines: &[Vec<&[u8]>], options: TableOptions) -> Found {
    let Some((first, below)) = lines.split_first() else { return Found::No };
    let may_have_index = options.index_col != Presence::No && first.len() > 1;
    // A first line of numbers is a row; its first field may be the row's name.
    let labels = if may_have_index { &first[1..] } else { &first[..] };
    let shorter_by_one = first.len() > 1 && below.first().is_some_and(|row| row.len() == first.len() + 1);
    // Beside such a header a column that counts names the rows, as R writes it.
    let leaves_out_index =
        shorter_by_one && matches!(find_index(None, below, options), Found::Yes | Found::Ambiguous("counts"));
    match options.header {
        Presence::Yes => Found::Yes,
        Presence::No => Found::No,
        Presence::Auto if is_a_row(first, below) => Found::No,
        Presence::Auto if is_mixed(first, labels, below) => Found::Ambiguous("has both numbers and other text"),
        Presence::Auto if is_one_word(first) || is_one_word(labels) => {
            Found::Ambiguous("repeats one word, as marks of missing entries and repeated names do")
        }
        Presence::Auto if are_marks(labels) => Found::Ambiguous("has marks of missing entries, or a date"),
        Presence::Auto if labels.iter().any(|field| is_name(field)) => Found::Yes,
        Presence::Auto if may_lack_an_entry(first, below) => {
            Found::Ambiguous("begins with an empty field, as a missing entry is")
        }
        Presence::Auto if first.len() > 1 && names_an_index(first[0]) => Found::Yes,
        // R omits the name of the index column.
        Presence::Auto if leaves_out_index => Found::Yes,
        Presence::Auto if heads_names(first[0]) && has_names(below) => Found::Yes,
        // A word above numbers, as user_name above 1, 2, 7.
        Presence::Auto if is_name(first[0]) && are_numbers(below) => {
            if are_marks(&first[..1]) {
                Found::Ambiguous("begins with a mark or a date")
            } else {
                Found::Yes
            }
        }
        Presence::Auto => find_numbered_header(first, below, may_have_index, options),
    }
}

/// Whether a first line of numbers is a header: pandas numbers the columns of a table that has no column names.
fn find_numbered_header(first: &[&[u8]], below: &[Vec<&[u8]>], may_have_index: bool, options: TableOptions) -> Found {
    let skipped = usize::from(may_have_index && (is_name(first[0]) || options.index_col == Presence::Yes));
    let labels = &first[skipped..];
    let count = labels.len() as i64;
    let Some(from) = counts(labels.iter().copied()).filter(|_| count > 1) else {
        let likely = look_like_labels(labels, below, skipped);
        let codes = skipped == 1 && options.index_col == Presence::Auto && are_codes(labels, below);
        return match () {
            () if likely => Found::Ambiguous("has numbers that rise or fall, as years or wave numbers do"),
            () if codes => Found::Ambiguous("has different whole numbers above all others, as codes are"),
            () if alone_is_ordered(labels, below, skipped) => Found::Ordered,
            () => Found::No,
        };
    };
    let next_counts_on = below.first().is_some_and(|row| {
        let row = row.get(skipped..).unwrap_or_default();
        counts_from(row.iter().copied()) == Some(from + count)
    });
    // 0,1 is a likely row of a table of zeros and ones, but not of a table whose other numbers have decimals.
    let decimals = |row: &Vec<&[u8]>| row[skipped.min(row.len())..].iter().all(|field| integer(field).is_none());
    // A few numbers may count by chance if the numbers below are of the same size.
    let beyond = |field: &&[u8]| number(field).is_some_and(|x| !(from as f64..(from + count) as f64).contains(&x));
    let others = |row: &Vec<&[u8]>| row[skipped.min(row.len())..].iter().all(beyond);
    let few = count < MIN_LABELS as i64;
    let differs = count > 2 && (!few || below.iter().all(|row| others(row) || decimals(row)))
        || below.len() >= MIN_ROWS && below.iter().all(decimals);
    if differs && !next_counts_on && !below.is_empty() {
        return Found::Yes;
    }
    let is_binary = |field: &&[u8]| integer(field).is_some_and(|x| (0..=1).contains(&x));
    let binary = below.iter().all(|row| row.iter().skip(skipped).all(is_binary));
    if below.is_empty() || next_counts_on || binary { Found::Counts } else { Found::Ambiguous("counts") }
}

/// Whether the first line is a row of numbers like the lines below, perhaps with a name, and its other fields are unreadable
/// entries: `<0.1`, `ND`, `1,234`. Such an entry is refused with its position, whereas a row taken for a header would be
/// lost. A header has no decimals, or many ascending numbers, or a title.
fn is_a_row(first: &[&[u8]], below: &[Vec<&[u8]>]) -> bool {
    if first.len() < 2 || names_an_index(first[0]) || heads_names(first[0]) {
        return false;
    }
    let skipped = usize::from(has_names(below));
    let numbers: Vec<&[u8]> = first[skipped..].iter().copied().filter(|field| number(field).is_some()).collect();
    let decimals = numbers.iter().any(|field| integer(field).is_none());
    let are_labels = numbers.len() >= MIN_LABELS && rises(numbers.iter().copied())
        || numbers.len() >= MIN_STEPS && has_equal_steps(&numbers)
        || are_years(&numbers);
    let alike = |row: &Vec<&[u8]>| row.len() == first.len() && row[skipped..].iter().all(|field| !is_name(field));
    2 * numbers.len() > first.len() - skipped
        && decimals
        && !are_labels
        && below.len() >= MIN_ROWS
        && below.iter().all(alike)
}

/// Whether a first line of numbers behind an empty field may be a row whose first entry is missing: its numbers are repeated, or
/// entries are missing elsewhere too. Programs that number columns count from 0 or 1.
fn may_lack_an_entry(first: &[&[u8]], below: &[Vec<&[u8]>]) -> bool {
    let Some((corner, labels)) = first.split_first().filter(|(_, labels)| !labels.is_empty()) else { return false };
    let distinct: BTreeSet<&[u8]> = labels.iter().copied().collect();
    let missing = || below.iter().flat_map(|row| row.iter().skip(1)).chain(labels).any(|field| is_missing(field));
    corner.is_empty()
        && !has_names(below)
        && labels.iter().all(|field| !is_name(field))
        && counts(labels.iter().copied()).is_none()
        && (distinct.len() < labels.len() || missing())
}

/// Whether a first line has numbers and other text, such as the marker of a missing entry, and its first field does not show
/// that it is a header.
fn is_mixed(first: &[&[u8]], labels: &[&[u8]], below: &[Vec<&[u8]>]) -> bool {
    // The first field counts too: a number is no title of a column of names.
    let numbers = first.iter().filter(|field| number(field).is_some()).count();
    let decimals = labels.iter().any(|field| number(field).is_some() && integer(field).is_none());
    let names = labels.iter().filter(|field| is_name(field)).count();
    // A word above numbers heads them, but not next to decimals.
    let word = is_name(first[0]) && are_numbers(below) && decimals;
    let titled = names_an_index(first[0]) || heads_names(first[0]);
    !titled && (numbers > 0 && names > 0 || word)
}

/// Whether the first line repeats one word.
fn is_one_word(labels: &[&[u8]]) -> bool {
    labels.len() > 1 && is_name(labels[0]) && labels.iter().all(|field| field == &labels[0])
}

/// Whether all text in the first line marks missing entries, or is a single date; several dates may be titles.
fn are_marks(labels: &[&[u8]]) -> bool {
    let names: Vec<&[u8]> = labels.iter().copied().filter(|field| is_name(field)).collect();
    !names.is_empty() && (names.iter().all(|name| is_mark(name)) || names.len() == 1 && is_date(names[0]))
}

/// Whether the first column holds names: the first conclusive field and most of them are names. NAN and INF are
/// inconclusive, since they are also names of genes, and so are marks of missing entries.
fn has_names(rows: &[Vec<&[u8]>]) -> bool {
    let telling = |field: &&[u8]| !is_missing(field) && !is_mark(field) && !number(field).is_some_and(f64::is_infinite);
    let column = rows.iter().map(|row| row.first().copied().unwrap_or_default()).filter(telling);
    let names: Vec<bool> = column.map(is_name).collect();
    let few = 2 * names.iter().filter(|is_name| **is_name).count() <= names.len();
    names.first() == Some(&true) && !few
}

/// Whether the first column holds numbers.
fn are_numbers(rows: &[Vec<&[u8]>]) -> bool {
    let mut column = rows.iter().map(|row| row.first().copied().unwrap_or_default()).filter(|field| !is_missing(field));
    column.next().is_some_and(|first| number(first).is_some()) && column.all(|field| number(field).is_some())
}

/// Whether fields are distinct whole numbers, larger than all numbers of the rows below.
fn are_codes(fields: &[&[u8]], below: &[Vec<&[u8]>]) -> bool {
    let codes: BTreeSet<i64> = fields.iter().filter_map(|field| integer(field)).collect();
    let largest = below.iter().flatten().filter_map(|field| number(field)).fold(0.0, f64::max);
    fields.len() > 1 && codes.len() == fields.len() && codes.first().is_some_and(|&min| min as f64 > largest)
}

/// Whether the numbers of the first line may name the columns: they rise or fall, like times, masses and wave numbers, have equal
/// steps, or are years, and those of most other lines do not.
fn look_like_labels(labels: &[&[u8]], below: &[Vec<&[u8]>], skipped: usize) -> bool {
    // With few rows, comparing with the other lines is less conclusive.
    let enough = if below.len() < MIN_ROWS { MIN_LABELS_OF_FEW_ROWS } else { MIN_LABELS };
    let rise = |fields: &[&[u8]]| rises(fields.iter().copied());
    let order = |fields: &[&[u8]]| rise(fields) || falls(fields.iter().copied());
    let (n, rows) = (labels.len(), || below.iter().map(|row| row.get(skipped..).unwrap_or_default()));
    let ordered = n >= enough && rise(labels) || n >= MIN_LABELS && order(labels);
    !below.is_empty()
        && (are_years(labels) && !are_most(rows(), are_years)
            || n >= MIN_STEPS && has_equal_steps(labels) && !are_most(rows(), has_equal_steps)
            || ordered && !(if n >= MIN_LABELS { are_most(rows(), order) } else { rows().any(order) }))
}

/// Whether at least half of the lines or columns are such.
fn are_most<X>(all: impl Iterator<Item = X>, are_such: impl Fn(X) -> bool) -> bool {
    let (such, count) = all.fold((0, 0), |(such, count), x| (such + usize::from(are_such(x)), count + 1));
    2 * such >= count
}

/// Whether three or more numbers rise or fall, and those of no line below do.
fn alone_is_ordered(labels: &[&[u8]], below: &[Vec<&[u8]>], skipped: usize) -> bool {
    let ordered = |fields: &[&[u8]]| rises(fields.iter().copied()) || falls(fields.iter().copied());
    let others = || below.iter().any(|row| ordered(row.get(skipped..).unwrap_or_default()));
    labels.len() >= MIN_LABELS_OF_FEW_ROWS && !below.is_empty() && ordered(labels) && !others()
}

/// Whether all fields are years.
fn are_years(fields: &[&[u8]]) -> bool {
    let is_year = |x: f64| x.fract() == 0.0 && (1900.0..=2100.0).contains(&x);
    fields.len() > 1 && fields.iter().all(|field| number(field).is_some_and(is_year))
}

/// Whether each number differs from the one before by the same amount, which is not 0.
fn has_equal_steps(fields: &[&[u8]]) -> bool {
    let numbers: Vec<f64> = fields.iter().map_while(|field| number(field)).collect();
    let steps: Vec<f64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let equal = |step: &f64| (step - steps[0]).abs() <= 1e-6 * steps[0].abs();
    numbers.len() == fields.len() && steps.first().is_some_and(|step| *step != 0.0) && steps.iter().all(equal)
}

/// Minimum count of numbers that are unlikely to ascend by chance.
const MIN_LABELS: usize = 5;
/// Minimum count of numbers that are unlikely to have equal steps by chance.
const MIN_STEPS: usize = 4;
/// Minimum count of ascending numbers that may be labels, if there are few rows.
const MIN_LABELS_OF_FEW_ROWS: usize = 3;

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
    if has_names(rows) || column(0).any(|field| is_code(field) || is_clone(field)) {
        return Found::Yes;
    }
    let ids: BTreeSet<i64> = column(0).filter_map(integer).collect();
    let distinct = ids.len() == rows.len();
    // Consecutive rows may belong to the same patient or subject.
    let identifies = distinct || ids.len() > 1 && column(0).all(|field| integer(field).is_some());
    if distinct && header.is_some_and(|header| header.first().is_some_and(|name| names_an_id(name))) {
        return Found::Yes;
    }
    let Some(from) = counts(column(0)).filter(|_| rows.len() > 1) else {
        let largest = rows.iter().flat_map(|row| &row[1..]).filter_map(|field| number(field)).fold(0.0, f64::max);
        // Times rise, and wave numbers often fall.
        let ordered = |j: usize| rises(column(j)) || rows.len() > MIN_ROWS && falls(column(j));
        let least = column(0).filter_map(number).fold(f64::INFINITY, f64::min);
        let far_off = || (identifies || ordered(0) || falls(column(0))) && least >= 100.0 && least > 10.0 * largest;
        let steps = |j: usize| rows.len() >= MIN_STEPS && has_equal_steps(&column(j).collect::<Vec<_>>());
        let alone_is_ordered = || match rows.len() >= MIN_LABELS {
            true => ordered(0) && !are_most(1..width, ordered),
            false => ordered(0) && !(1..width).any(ordered) || steps(0) && !are_most(1..width, steps),
        };
        let few = if distinct { 2 } else { MIN_ROWS };
        let enough = rows.len() >= MIN_LABELS || rows.len() >= few && width >= MIN_LABELS_OF_FEW_ROWS;
        return match () {
            () if identifies && header.is_some_and(|header| header.first().is_some_and(|name| heads_names(name))) => {
                Found::Ambiguous("has the title of row names")
            }
            () if rows.len() > 1 && far_off() || enough && alone_is_ordered() => {
                Found::Ambiguous("looks like numbers of the rows")
            }
            () => Found::No,
        };
    };
    let next_counts_on = counts_from(column(1)).is_some_and(|next| next >= from + rows.len() as i64);
    // Doses, ages and weeks count too.
    let is_titled = header.is_some_and(|header| header.first().is_some_and(|name| heads_names(name)));
    if is_titled && rows.len() >= MIN_ROWS && !next_counts_on { Found::Yes } else { Found::Ambiguous("counts") }
}

/// Whether the column behind an index has identifiers too, as tables of genes often do, or is an index that was written again.
fn has_more_ids(titles: Option<&[&[u8]]>, rows: &[Vec<&[u8]>]) -> bool {
    let (Some(titles), Some(width)) = (titles, rows.first().map(Vec::len)) else { return false };
    // R omits the title of the index.
    let title = titles.get(usize::from(titles.len() == width));
    // The gene BID is no identifier.
    let is_id = title.is_some_and(|title| names_an_id(title) && !title.iter().all(u8::is_ascii_uppercase));
    let ids: Vec<i64> = rows.iter().filter_map(|row| integer(row.get(1)?)).collect();
    let is_distinct = || ids.iter().collect::<BTreeSet<_>>().len() == ids.len();
    let years = |j: usize| {
        let year =
            |row: &Vec<&[u8]>| row.get(j).and_then(|field| integer(field)).is_some_and(|x| (1900..=2100).contains(&x));
        rows.iter().all(year)
    };
    let of_genes = title.is_some_and(|title| {
        let title = title.to_ascii_lowercase();
        heads_names(&title) || [&b"entrez"[..], b"ncbi"].iter().any(|word| title.starts_with(word))
    });
    // An index may begin anew with each of several tables. Years are beside numbers that are none.
    let are_ids = match title {
        Some(title) if names_an_index(title) => true,
        Some(title) if title.eq_ignore_ascii_case(b"year") => years(1),
        _ => {
            (is_id || of_genes) && is_distinct() || rows.len() >= MIN_ROWS && years(1) && width > 2 && !years(width - 1)
        }
    };
    rows.len() > 1 && ids.len() == rows.len() && are_ids
}

/// Whether the first line of triples is a header: it has a name above numbers, or calls its columns users and items.
fn find_header_of_triples(lines: &[Vec<&[u8]>], options: TableOptions) -> Found {
    match options.header {
        Presence::Yes => return Found::Yes,
        Presence::No => return Found::No,
        Presence::Auto => {}
    }
    let Some((first, below)) = lines.split_first() else { return Found::No };
    let above_numbers = |j: usize| {
        let mut column = below.iter().filter_map(|line| line.get(j)).peekable();
        is_name(first[j]) && column.peek().is_some() && column.all(|field| !is_name(field))
    };
    // Next to two numbers, a third field that is not a number is an unreadable entry.
    let has_titles = first.iter().take(2).any(|field| is_name(field)) && (0..first.len()).any(above_numbers);
    let unnamed_index = first[0].is_empty() && first[1..].iter().all(|field| is_name(field));
    match () {
        () if unnamed_index || has_titles || name_users_and_items(first) => Found::Yes,
        // Names above names: a header or an entry.
        () if first.len() > 1 && first.iter().all(|field| is_name(field)) => {
            Found::Ambiguous("has names only, like the lines below it")
        }
        () => Found::No,
    }
}

/// Whether the first fields can only be titles of the columns.
fn name_users_and_items(first: &[&[u8]]) -> bool {
    matches!(first, [user, item, ..] if names_users(user) && (names_users(item) || names_an_id(item) || heads_names(item)))
}

fn names_users(field: &[u8]) -> bool {
    const WORDS: [&[u8]; 8] = [b"user", b"users", b"customer", b"client", b"patient", b"product", b"movie", b"reader"];
    names_an_id(field) || WORDS.iter().any(|word| field.eq_ignore_ascii_case(word))
}

/// Whether each triple follows an index.
fn find_index_of_triples(lines: &[Vec<&[u8]>], has_header: bool, options: TableOptions) -> Found {
    let entries = &lines[usize::from(has_header).min(lines.len())..];
    let first = lines.first().and_then(|line| line.first()).copied().unwrap_or_default();
    let found = match (options.index_col, entries.first().map_or(0, Vec::len)) {
        (Presence::Yes, _) => true,
        (Presence::No, _) => false,
        // A triple may be followed by more, such as the time of a rating.
        (Presence::Auto, width) if width > 3 => {
            let column = entries.iter().map(|line| line.first().copied().unwrap_or_default());
            has_header && names_an_index(first) || entries.len() > 2 && counts(column).is_some()
        }
        (Presence::Auto, width) => width == 3 && has_header && (first.is_empty() || first.starts_with(b"Unnamed: 0")),
    };
    if found { Found::Yes } else { Found::No }
}

/// Minimum number of rows to conclude that a column contains running numbers.
const MIN_ROWS: usize = 3;

/// The first number, if the fields are 0, 1, 2, … or 1, 2, 3, …; otherwise `None`.
fn counts<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<i64> {
    counts_from(fields).filter(|from| (0..=1).contains(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::fields::fields;
    use crate::formats::options::{Repeated, TableFormat};

    const AUTO: TableOptions = TableOptions {
        header: Presence::Auto,
        index_col: Presence::Auto,
        format: TableFormat::Auto,
        repeated: Repeated::Refuse,
    };

    fn lines_of(text: &str) -> Vec<Vec<&[u8]>> {
        let separator = if text.contains(',') { b',' } else { b' ' };
        text.lines().take(20).map(|line| fields(line.as_bytes(), separator).collect()).collect()
    }

    fn detected(text: &str, options: TableOptions) -> LabelDetection {
        LabelDetection::of_rows(&lines_of(text), options)
    }

    /// Whether a header and an index column are found, and the number of columns of numbers.
    fn found(text: &str, options: TableOptions) -> (bool, bool, usize) {
        let Labels { header, index_col } = detected(text, options).labels;
        (header, index_col, lines_of(text)[usize::from(header)].len() - usize::from(index_col))
    }

    #[test]
    fn identifiers_beside_names_are_no_data() {
        let of = |titles: &str, options| {
            detected(&format!("{titles}\nTP53,7157,1,2\nEGFR,1956,3,4\nKRAS,3845,0.5,4\n"), options).ambiguity()
        };
        let years = detected("site,Year,a\na,2019,3\na,2020,1\nb,2019,4\n", AUTO).ambiguity();
        assert!(years.is_some_and(|why| why.contains("or years")));
        for title in ["yr", "period", "date", "x"] {
            let years = detected(&format!("site,{title},a\na,2019,3\nb,2020,1\nc,2021,4\n"), AUTO).ambiguity();
            assert!(years.is_some_and(|why| why.contains("or years")), "{title}");
        }
        for titles in [
            "Hugo_Symbol,Entrez_Gene_Id,S1,S2",
            "patient,patient_id,a,b",
            "Entrez_Gene_Id,S1,S2",
            "gene,ENTREZID,S1,S2",
            "gene,entrezgene,S1,S2",
            "sample,patient,S1,S2",
        ] {
            assert!(of(titles, AUTO).is_some_and(|why| why.contains("should be removed")), "{titles}");
            assert_eq!(of(titles, TableOptions { index_col: Presence::Yes, ..AUTO }), None);
        }
        // An index that was written as a column, of one table or of two.
        for titles in [",Unnamed: 0,a,b", ",index,a,b", ",,a,b"] {
            for index in [["0,0", "1,1", "2,2", "3,3"], ["x,0", "x,1", "y,0", "y,1"]] {
                let rows: String = index.iter().map(|index| format!("{index},4.5,2\n")).collect();
                let why = detected(&format!("{titles}\n{rows}"), AUTO).ambiguity();
                assert!(why.is_some_and(|why| why.contains("should be removed")), "{titles} {index:?}");
            }
        }
        assert_eq!([of("cell,BID,S1,S2", AUTO), of("gene,S0,S1,S2", AUTO)], [None, None]);
    }

    /// An unreadable entry is refused. Taken as a name or a title, it would remove the numbers around it.
    #[test]
    fn one_entry_that_is_no_number_removes_neither_a_column_nor_a_row() {
        let rows: String = (0..9).map(|i| format!("{}.5,{}.25,{}.75\n", 9 - i, (7 * i) % 5, (3 * i) % 4)).collect();
        for entry in ["<0.1", "ND", "?", "12%", "TRUE"] {
            assert_eq!(found(&format!("a,b,c\n{entry},3.5,1.5\n{rows}"), AUTO), (true, false, 3), "{entry}");
            assert_eq!(found(&format!("{entry},3.5,1.5\n{rows}"), AUTO), (false, false, 3), "{entry}");
            assert_eq!(found(&format!("4.5,{entry},1.5\n{rows}"), AUTO), (false, false, 3), "{entry}");
        }
        let named: String = rows.lines().enumerate().map(|(i, row)| format!("p{i},{row}\n")).collect();
        assert_eq!(found(&format!("p,4.5,<0.1,1.5\n{named}"), AUTO), (false, true, 3));
        assert_eq!(found(&format!("a,b,c\n<0.1,3.5,1.5\n<0.1,2.5,1.5\n{rows}"), AUTO), (true, false, 3));
        assert_eq!(
            found(&format!("ND,<0.1,1.5,2.5,3.5\n{}", rows.replace('\n', ",1.5,0.5\n")), AUTO),
            (false, false, 5)
        );
        // Titles that are numbers ascend, or have no decimals; there is more than one name.
        assert_eq!(found(&format!("sample,100.5,200.5\n{rows}"), AUTO), (true, false, 3));
        assert_eq!(found("x,1.5,0.5\ny,2.5,1.5\nz,3.5,0.5\n7,1.5,0.5\n", AUTO), (false, true, 2));
    }

    /// Few rows do not show which line is the exception, and numbers with separators or units are no names.
    #[test]
    fn lines_of_numbers_and_other_text_are_refused_and_marred_numbers_are_no_names() {
        for text in [
            "1.5,ND,3\n4,4,5\n2.5,6,7\n",
            "ND,1.5,3\n4,4,5\n2,6,7\n",
            "p,1,low\nq,2,3\n",
            "x,2,y\n1,2,3\n",
            "5,ND\n4,4\n2,6\n",
            "5,ND,ND\n4,4,1\n2,6,3\n",
        ] {
            let found = detected(text, AUTO).ambiguity();
            assert!(found.is_some_and(|why| why.contains("numbers and other text")), "{text:?}");
        }
        for number in [
            "1,234",
            "1 234.5",
            "12'345'678",
            "12%",
            "12 %",
            "$5",
            "5 \u{20ac}",
            "<0.1",
            "\u{2265} 3",
            "1_000",
            "1.234,5",
            "1 234,5",
            "1.234.567,8",
        ] {
            let text = format!("a,b\n\"{number}\",2\n3,4\n5,6\n");
            assert_eq!(found(&text, AUTO), (true, false, 2), "{number}");
        }
        for name in ["5S_rRNA", "10x", "2019-01-02", "1,2,3,4", "12,34", "A1", "1.2.3"] {
            let text = format!("a,b\n\"{name}\",2\n\"{name}\",4\n\"{name}\",6\n");
            assert_eq!(found(&text, AUTO), (true, true, 1), "{name}");
        }
    }

    #[test]
    fn a_missing_first_entry_is_no_corner_of_names() {
        for text in [
            ",5,3,4\n4,,2,1\n5,1,5,2\n3,4,,5\n2,2,3,1\n",
            ",5.5,5.5,5.5\n4,1,2,1\n5,1,5,2\n3,4,2,5\n",
            ",5,3,4\n4,1,2,\n2,1,5,2\n",
        ] {
            let table = detected(text, AUTO);
            assert!(table.ambiguity().is_some_and(|why| why.contains("--header no")), "{text:?}");
        }
        for text in [",0,1,2\n0,5,,6\n1,7,8,9\n", ",2010,2011\na,5,\nb,7,8\n", ",7,3\n10,5,6\n11,7,8\n12,1,1\n"] {
            assert_eq!(detected(text, AUTO).ambiguity(), None, "{text:?}");
            assert!(found(text, AUTO).0, "{text:?}");
        }
        // A mark in the first row of few does not make the column one of names.
        for mark in ["?", "-", "#N/A", "missing"] {
            assert_eq!(found(&format!("a,b,c\n{mark},3,1\n4,5,6\n7,8,8\n"), AUTO), (true, false, 3), "{mark}");
        }
    }

    #[test]
    fn column_names_that_are_numbers_are_a_header_below_a_title_or_said_to_be_data() {
        for title in ["Geneid", "Mutation Types", "protein", "Probe_ID", "species", "Compounds", "locus", "gene.symbol"]
        {
            let text = format!("{title},1263,2123,2617,217\nTP53,5012,310,870,44\nEGFR,120,4500,33,2300\n");
            assert_eq!(found(&text, AUTO), (true, true, 4), "{title}");
        }
        let text = "zyx,1263,2123,2617,217\nTP53,5012,310,870,44\nEGFR,120,4500,33,2300\n";
        let lines = lines_of(text);
        assert_eq!(found(text, AUTO), (false, true, 4));
        let note = detected(text, AUTO).note(&lines[0], &lines[0]).unwrap();
        assert!(note.contains("the first line as a row; --header yes if it names the columns"), "{note}");
        let no = TableOptions { header: Presence::No, ..AUTO };
        assert!(!detected(text, no).note(&lines[0], &lines[0]).unwrap().contains("--header"));
    }

    #[test]
    fn wave_numbers_above_data_are_refused() {
        for line in ["1100,1102,1104,1106", "4000,3998,3996,3994", "0.5,0.75,1.0,1.25", "4000,3990,3970,3940,3900"] {
            let width = line.split(',').count();
            let rows = ["5,3,4,1,2", "2,7,1,6,3", "9,1,8,2,5"].map(|row| &row[..2 * width - 1]).join("\n");
            let text = format!("{line}\n{rows}\n");
            assert!(detected(&text, AUTO).ambiguity().is_some_and(|why| why.contains("rise or fall")), "{text}");
        }
        assert_eq!(found("9,7,5\n5,3,4\n2,7,1\n9,1,8\n", AUTO), (false, false, 3));
    }

    #[test]
    fn a_row_that_rises_by_chance_hides_no_labels() {
        let ambiguous = |text: &str| detected(text, AUTO).ambiguity().is_some();
        for (labels, hidden) in [
            ("2018,2019,2020,2021,2022", true),
            ("400,410,420,430,440", true),
            ("4000,3990,3970,3940,3900", true),
            ("2018,2019,2020", true),
        ] {
            let width = labels.split(',').count();
            let rows = ["3,1,4,1,5", "9,2,6,5,3", "1,2,4,6,9"].map(|row| &row[..2 * width - 1]).join("\n");
            assert_eq!(ambiguous(&format!("{labels}\n{rows}\n")), hidden, "{labels}");
        }
        // Series that grow, below years.
        assert!(ambiguous("2018,2019,2020,2021,2022\n1,2,3,5,8\n2,4,7,9,11\n3,3.5,4,6,7\n"));
        for column in ["0.0,0.5,1.0,1.5", "10,20,30,45,50,80"] {
            let rows = ["3,1,5", "9,2,4", "4,3,9", "6,4,1", "2,5,7", "8,6,3"];
            let rows: String = column.split(',').zip(rows).map(|(time, row)| format!("{time},{row}\n")).collect();
            assert!(ambiguous(&format!("time,s0,s1,s2\n{rows}")), "{column}");
        }
        // A table in which most rows and columns rise.
        assert!(!ambiguous("1,2,4,7,11\n2,4,7,11,16\n4,7,11,16,22\n5,9,13,21,30\n8,14,23,40,50\n"));
    }

    #[test]
    fn identifiers_of_clones_are_names() {
        let text = "gene,s1,s2,s3\n2310009E13,3,5,7\n1700001e04,4,1,6\n4930402E16,9,2,3\n";
        assert_eq!(found(text, AUTO), (true, true, 3));
        assert_eq!(found("a,b\n2.5e13,3\n1e04,4\n12e3,5\n", AUTO), (true, false, 2));
    }

    #[test]
    fn a_first_line_that_counts_is_a_header() {
        for (text, header) in [
            ("0,1,2\n5,6,7\n", true),
            ("1,2,3\n5,6,7\n", true),
            ("0,1,2,3,4\n0,1,2,3,4\n3,4,5,1,0\n", true),
            ("0,1,2\n0.5,1.5,2.5\n3.5,4.5,0.5\n", true),
            ("g,0,1,2\ng1,5,6,7\n", true),
            ("0,1\n5.5,6.5\n7.5,1.0\n0.0,1.5\n", true),
            // A table of consecutive numbers.
            ("0,1,2\n3,4,5\n6,7,8\n", false),
            // Zeros and ones, too few rows, and numbers that are not consecutive.
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
        // Without names or running numbers below it, a line is too long.
        assert_eq!(found("2001 2004\n7 5 6\n7 8 9\n7 8 9\n", AUTO), (false, false, 2));
        assert_eq!(found("2001 2004\n1 5\n7 8\n", AUTO), (false, false, 2));
    }

    #[test]
    fn a_first_column_that_counts_is_an_index_by_its_title_or_refused() {
        for title in ["", "index", "id", "gene", "sample", "Unnamed: 0"] {
            let text = format!("{title},y\n1,5\n2,6\n3,6\n");
            assert_eq!((found(&text, AUTO).1, detected(&text, AUTO).ambiguity()), (true, None), "{text:?}");
        }
        for text in [
            "0,5\n1,6\n2,6\n",
            "1,5\n2,6\n3,6\n",
            "dose,y\n1,5\n2,6\n3,6\n",
            "gene,y\n1,5\n2,6\n",
            &(0..25).map(|i| format!("{},5\n", i % 22)).collect::<String>(),
            // Consecutive numbers, column by column.
            "0,3,6\n1,4,7\n2,5,8\n",
        ] {
            let refused = detected(text, AUTO).ambiguity();
            assert!(refused.is_some_and(|why| why.contains("counts") && why.contains("--index-col yes")), "{text:?}");
        }
        for text in ["0,5\n1,6\n3,7\n", "5,5\n6,6\n7,6\n", "0\n1\n2\n", "a,b\n1/2,2\n3,4\n"] {
            assert!(!found(text, AUTO).1, "{text:?}");
        }
    }

    #[test]
    fn a_first_column_called_an_index_is_one() {
        for (name, index) in [
            ("", true),
            ("index", true),
            ("Unnamed: 0", true),
            ("ID", true),
            ("Row.names", true),
            ("rowname", true),
            ("obs_names", true),
            ("x", false),
        ] {
            let text = format!("{name},y\n17,5\n4,6\n");
            assert_eq!(found(&text, AUTO), (true, index, 2 - usize::from(index)), "{text:?}");
            // The name is sufficient to make this line a header.
            let text = format!("{name},2001\n17,5\n4,6\n");
            assert_eq!(found(&text, AUTO), (true, index, 2 - usize::from(index)), "{text:?}");
        }
    }

    #[test]
    fn numbers_that_name_columns_are_a_header_or_refused() {
        for text in ["gene,2019,2020\ng1,5,6\ng2,7,8\n", "Sample_ID,0.5,24\na,5,6\nb,7,2\n"] {
            assert_eq!(found(text, AUTO), (true, true, 2), "{text:?}");
        }
        for text in ["userId,10,20,47\n1,4.0,2,3\n3,1,5,1\n7,2,2.5,4\n", "player,10,20\n7,1,1\n3,4,5\n"] {
            assert!(found(text, AUTO).0, "{text:?}");
        }
        for text in [
            "year,2019,2020\ng1,5,6\ng2,7,2\ng3,1,1\n",
            "zzRNA,101,103,102\nlet7,4,2,3\nmir21,9,9,1\nmir5,0,0,1\n",
            "2019,2020,2021\n5,6,1\n7,2,9\n",
            "2018.0,2019.0,2020.0\n5,3,4\n1,1,1\n3,3,1\n9,2,1\n",
            "0.5,1.5,2.5,4,8\n5,6,1,0,0\n7,2,9,9,9\n",
        ] {
            let table = detected(text, AUTO);
            assert!(!table.labels.header, "{text:?}");
            assert!(table.ambiguity().is_some_and(|ambiguity| ambiguity.contains("--header yes")), "{text:?}");
        }
        let few = "250,500,1000,2000\n8.06,50.84,45.83,15.30\n29.73,26.97,39.09,47.32\n5.63,1.70,50.15,25.97\n";
        let note = detected(few, AUTO).note(&lines_of(few)[0], &lines_of(few)[0]);
        assert!(note.is_some_and(|note| note.contains("alone rise or fall")));
        for text in ["2019,5,6\n7,8,9\n1,5,2\n", "1,2,3,5,8\n1,2,3,4,9\n5,1,1,1,1\n", "g1,3,4\ng2,5,1\ng3,4,4\n"] {
            assert_eq!(detected(text, AUTO).ambiguity(), None, "{text:?}");
        }
    }

    #[test]
    fn numbers_that_name_rows_are_an_index_or_refused() {
        for text in
            ["patient_id,x,y\n1001,5,3\n1007,6,1\n1003,1,1\n", "sampleID,x\n48,5\n11,3\n", "zip,x\n18135,4\n09412,3\n"]
        {
            assert!(found(text, AUTO).1, "{text:?}");
        }
        for text in [
            "patient,x,y\n101,5,3\n103,6,1\n107,1,1\n120,8,8\n121,0,0\n",
            "4801,5,3\n1101,6,1\n9101,1,1\n5555,8,8\n4444,0,0\n",
            "entrez,a,b\n7422,5,0\n672,3,1\n1956,0,2\n",
            // Several rows of one patient.
            "patient_id,a,b\n10102,5,0\n10101,3,1\n10101,0,2\n10109,4,1\n",
            "subject,a,b\n1,5,0\n1,3,1\n2,0,2\n2,4,1\n",
            "10101,5,0\n10101,3,1\n10102,0,2\n10102,4,1\n",
            "time,a,b\n0,1,5\n0.5,3,3\n1.0,2,2\n1.5,0,1\n2.0,4,1\n",
            // Numbers that fall: wave numbers, shifts, depths.
            "wavenumber,a,b\n3999.64,0.1,0.3\n3997.71,0.2,0.1\n3995.78,0.1,0.2\n",
            "ppm,a,b\n9.5,0.1,0.3\n9.0,0.2,0.1\n8.5,0.1,0.2\n8.0,0.3,0.2\n",
            "depth,a,b\n50,3,12\n40,0,31\n30,12,8\n20,22,4\n10,41,0\n",
            "4000.5,3\n3998.5,9\n3996.5,2\n",
        ] {
            let table = detected(text, AUTO);
            assert!(!table.labels.index_col, "{text:?}");
            assert!(table.ambiguity().is_some_and(|ambiguity| ambiguity.contains("--index-col yes")), "{text:?}");
        }
        for text in [
            "paid,x,y\n101,5,3\n103,6,1\n99,1,1\n120,8,8\n121,0,0\n",
            "grid_id,x\n5,5\n5,3\n5,7\n",
            "1,10,3\n2,20,1\n4,30,1\n5,40,8\n9,50,0\n",
        ] {
            let table = detected(text, AUTO);
            assert_eq!((table.labels.index_col, table.ambiguity()), (false, None), "{text:?}");
        }
    }

    #[test]
    fn conclusions_are_told_with_the_option_against_them() {
        let note = |text: &str, options| {
            let (lines, detected) = (lines_of(text), detected(text, options));
            detected.note(&lines[0], &lines[usize::from(detected.labels.header)]).unwrap_or_default()
        };
        assert_eq!(
            note(",0,1\n0,5,6\n", AUTO),
            "the first line is taken as a header and the first column as row names; --header no, --index-col no to read them as \
             data"
        );
        assert_eq!(note("a,b\nr,5\n", AUTO), "the first line is taken as a header and the first column as row names");
        assert_eq!(note("a,b\n7,5\n", AUTO), "the first line is taken as a header");
        assert_eq!(note("a\n7\n", AUTO), "the first line is taken as a header");
        assert!(note("gene,y\n1,5\n2,6\n3,6\n", AUTO).contains("--index-col no"));
        assert!(note("0,1,2\n5,6,7\n", AUTO).ends_with("--header no to read the line as data"));
        assert!(note("0,1\n1,1\n1,0\n", AUTO).contains("--header yes"));
        assert!(detected("0,5\n1,6\n", AUTO).ambiguity().unwrap().contains("--index-col yes"));
        let explicit = TableOptions { header: Presence::Yes, index_col: Presence::Yes, ..AUTO };
        assert_eq!(note(",0,1\n0,5,6\n", explicit), "");
        assert_eq!(note("7,5\n3,2\n", AUTO), "");
    }

    #[test]
    fn names_of_users_and_items_are_a_header_also_above_names() {
        let is = |fields: [&str; 2]| name_users_and_items(&fields.map(str::as_bytes));
        for pair in [["customer", "product"], ["user", "item"], ["customer_id", "product_id"], ["patient", "gene"]] {
            assert!(is(pair), "{pair:?}");
        }
        assert!(!is(["ann", "milk"]) && !is(["user", "milk"]) && !is(["madrid", "item"]));
    }

    #[test]
    fn few_rows_that_may_have_names_are_refused() {
        for (text, option) in [
            // Years, times, wavelengths, and running numbers.
            ("2019,2020,2021\n5,6,1\n", "--header yes"),
            ("0,1\n5,6\n7,2\n3,3\n", "--header yes"),
            // A row of ratings, and one of marks.
            ("1,2,3\n5,1,2\n2,2,3\n", "--header yes"),
            ("ND,ND,ND\n5,1,2\n2,2,3\n", "--header yes"),
            ("?\n5\n2\n", "--header yes"),
            ("n.d.,-\n5,1\n2,2\n", "--header yes"),
            ("2020-01-01,158,49\n872,150,18\n209,50,38\n", "--header yes"),
            ("TRUE,20,10\n872,15,1\n209,5,3\n", "--header yes"),
            ("#N/A\n15\n5\n", "--header yes"),
            ("20,30,40,50\n5,6,1,0\n7,2,9,9\n", "--header yes"),
            ("0,1\n5.5,6.5\n", "--header yes"),
            // Numbers of samples, dates, and a title.
            ("101,5,3\n205,6,1\n", "--index-col yes"),
            ("20260101,5,3\n20260102,6,1\n", "--index-col yes"),
            ("3,0.5,9\n8,0.1,2\n", "--index-col yes"),
            ("patient,x,y\n7,5,3\n", "--index-col yes"),
        ] {
            let table = detected(text, AUTO);
            let taken = if option == "--header yes" { table.labels.header } else { table.labels.index_col };
            assert!(
                !taken && table.ambiguity().is_some_and(|ambiguity| ambiguity.contains(option)),
                "{text:?} {:?}",
                table.ambiguity()
            );
            let said = TableOptions { header: Presence::No, index_col: Presence::No, ..AUTO };
            let table = detected(&text.replace("patient", "1"), said);
            assert_eq!(table.ambiguity(), None, "{text:?}");
        }
        assert_eq!(detected("id,2020-01-01,2020-02-01\na,5,3\nb,4,6\n", AUTO).ambiguity(), None);
        for text in ["5,3,1\n4,6,2\n", "1,2,3\n4,5,6\n", "0.5,1\n0.7,0\n", "1,0\n1,1\n", "7,8,2\n", "1,1\n0,1\n"] {
            assert_eq!(detected(text, AUTO).ambiguity(), None, "{text:?}");
        }
    }
}
