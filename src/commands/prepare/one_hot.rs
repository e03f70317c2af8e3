//! Indicators of the values of a table in text: a column of zeros and ones for each value of each column.

use std::collections::BTreeSet;
use std::path::Path;

use fednmf_base::error::{Error, Result};
use fednmf_driver::progress::Progress;
use fednmf_files::TableOptions;
use fednmf_files::formats::detect;
use fednmf_files::formats::detect::FileKind;
use fednmf_files::formats::fields::{
    FirstLines, OPEN_QUOTE, ends_within_quotes, fields, is_missing, names_an_index, next_line, number, text_of,
};
use fednmf_files::formats::header::LabelDetection;
use fednmf_files::formats::io::InputFile;
use fednmf_files::formats::options::Presence;
use fednmf_files::formats::refusal::Refusal;
use fednmf_files::formats::text::TextBlocks;

use super::matrix::{Matrix, Row};
use super::rules::{Column, Kind, Rules};
use super::weights::quantile_of;

/// Whole numbers up to this one are distinct as floats.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Maximum number of distinct values of a column: a column with more contains numbers or row names.
const MOST_VALUES: usize = 1000;

/// Minimum number of rows for a column of distinct values to count as row names.
const FEWEST: usize = 3;

/// A table by its columns of text; a missing value is `None`.
struct Text {
    /// The title of the column that names the rows.
    index: Option<String>,
    names: Vec<String>,
    columns: Vec<Vec<Option<String>>>,
    rows: Option<Vec<String>>,
    count: usize,
}

/// The indicators of a table, by the given rules or by those of the table. A missing value has none.
///
/// # Errors
/// If the file is no table with a header or cannot be read, two of its columns have one name, a column has too many values, or
/// the rules do not know columns or values.
pub fn prepare(
    path: &str,
    options: TableOptions,
    bins: Option<usize>,
    given: Option<Rules>,
) -> Result<(Matrix, Rules)> {
    let Some((file, tabs)) = detect::table_in_text(path, options.format)? else { return Err(no_table(path)) };
    let text = read(&file, tabs, options, given.as_ref())?;
    let rules = match given {
        Some(rules) => rules,
        None => {
            let kinds = text.names.iter().zip(&text.columns).map(|(name, column)| {
                Ok(Column { name: name.clone(), kind: kind(name, column, bins).map_err(|e| e.at(path))? })
            });
            Rules::OneHot { columns: kinds.collect::<Result<_>>()?, index: text.index.clone() }
        }
    };
    let Rules::OneHot { columns, .. } = &rules else { return Err(rules.another_kind("one-hot")) };
    let unknown: Vec<&str> =
        text.names.iter().filter(|name| rules.column(name).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(file.error(format!(
            "there are no rules for column {}; remove it, or, if it names the rows, put it first and give --index-col \
             yes",
            unknown.join(", ")
        )));
    }
    let mut rows = vec![Row::new(); text.count];
    let mut names = Vec::new();
    for column in columns {
        let Some(at) = text.names.iter().position(|name| *name == column.name) else {
            return Err(file
                .error(format!("has no column {}, for which there are rules; give a table that has it", column.name)));
        };
        for (row, value) in text.columns[at].iter().enumerate() {
            let Some(value) = value else { continue };
            let place = column.kind.place(value).ok_or_else(|| {
                file.error(format!(
                    "row {row}: column {} has the value {value}, which the rules do not know; correct it, or leave it empty",
                    column.name
                ))
            })?;
            rows[row].push((names.len() + place, 1.0));
        }
        names.extend(column.kind.labels(&column.name));
    }
    let empty = text.columns.iter().flatten().filter(|value| value.is_none()).count();
    if empty > 0 {
        let note =
            format!("{path}: {empty} missing values (empty, NA, nan) have no column, so their rows have zeros there");
        Progress::new(true, None).notes(&[note]);
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
        return Err(file.error(format!("two columns would be called {twice}; rename a column of the table")));
    }
    Ok((Matrix::of_rows(rows, names.len()).named(text.rows, Some(names)), rules))
}

/// The error for a file that is no table in text.
pub fn no_table(path: &str) -> Error {
    let hint = match detect::kind(Path::new(path)) {
        Some(FileKind::Other("text")) => "; if it is one, give --format table",
        _ => "",
    };
    Error::input(format!("{path}: one-hot takes a table in text (CSV or TSV), and this file is none{hint}"))
}

/// Why a table without a header is refused.
fn no_header(first: &[u8], requested: Presence) -> Refusal {
    let needed = "one-hot names its columns after those of the table, so the first line must be a header";
    match requested {
        Presence::No => format!("{needed}; add one, and leave --header out").into(),
        _ => Refusal::quoting(first, |line| {
            format!("{needed}, but looks like a row ({line}); add a header, or give --header yes if it is one")
        }),
    }
}

/// Reads a table; with `rules`, the row names are in the column that had them when the rules were made, whatever its
/// position.
fn read(file: &InputFile, tabs: bool, options: TableOptions, rules: Option<&Rules>) -> Result<Text> {
    let first = FirstLines::read(file, tabs)?;
    first.check_quotes(file)?;
    let lines = first.fields();
    let detected = LabelDetection::of_rows(&lines, options);
    if !detected.labels.header {
        return Err(file.error(no_header(first.first(), options.header)));
    }
    let mut names: Vec<String> = lines[0].iter().map(|name| text_of(name)).collect();
    // R omits the title of the index column.
    if detected.labels.index_col && lines.get(1).is_some_and(|row| row.len() == names.len() + 1) {
        names.insert(0, String::new());
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
        return Err(file.error(format!(
            "two columns of the table have the name '{twice}'; rename one, since indicators and rules have the columns' names"
        )));
    }
    let known_index = match rules {
        Some(Rules::OneHot { index: Some(index), .. }) => names.iter().position(|name| name == index),
        _ => None,
    };
    let is_index =
        |name: &&String| names_an_index(name.as_bytes()) && rules.is_none_or(|rules| rules.column(name).is_none());
    let index = match options.index_col {
        Presence::Yes => Some(0),
        Presence::No => None,
        Presence::Auto => known_index.or_else(|| names.first().filter(is_index).map(|_| 0)),
    };
    let mut text = rows_of(file, &first, names, index)?;
    let mut hint = "";
    if index.is_none() && detected.labels.index_col && rules.is_none() && text.take_index() {
        hint = " (--index-col no to read it as data)";
    }
    if text.index.is_none() && rules.is_none() {
        detected.check(file)?;
    }
    let of_index = match &text.index {
        Some(title) => format!(", column '{title}' as names of the rows{hint}"),
        None => String::new(),
    };
    let header = format!("the first line is taken as a header{of_index}");
    let of_file = |notes: [Option<String>; 2]| -> Vec<String> {
        notes.into_iter().flatten().map(|note| format!("{}: {note}", file.path)).collect()
    };
    let mut progress = Progress::new(true, None);
    progress.notes(&of_file([Some(header), first.note()]));
    Ok(text)
}

/// Reads the rows below the header, of which the column at `index` names the rows.
fn rows_of(file: &InputFile, first: &FirstLines, names: Vec<String>, index: Option<usize>) -> Result<Text> {
    let mut text = Text {
        index: index.map(|at| names[at].clone()),
        columns: vec![Vec::new(); names.len() - usize::from(index.is_some())],
        names: without(index, &names).cloned().collect(),
        rows: index.map(|_| Vec::new()),
        count: 0,
    };
    let start = first.offset(0).unwrap_or(0);
    let mut blocks = TextBlocks::open(file, start, 0, 1)?;
    let mut line_number = 0;
    while let Some((block, _)) = blocks.next_block()? {
        let mut at = 0;
        while let Some(line) = next_line(block, &mut at) {
            line_number += 1;
            if line_number == 1 {
                continue;
            }
            let row: Vec<&[u8]> = fields(&block[line.clone()], first.separator).collect();
            if row.len() != names.len() && ends_within_quotes(&block[line], first.separator) {
                return Err(file.error(format!("row {}: {OPEN_QUOTE}", line_number - 2)));
            }
            if row.len() != names.len() {
                return Err(file.error(format!(
                    "row {}: has {} fields, but the header has {}; correct the row",
                    line_number - 2,
                    row.len(),
                    names.len()
                )));
            }
            if let (Some(rows), Some(at)) = (&mut text.rows, index) {
                rows.push(text_of(row[at]));
            }
            for (column, field) in text.columns.iter_mut().zip(without(index, &row)) {
                column.push((!is_missing(field)).then(|| text_of(field)));
            }
            text.count += 1;
        }
    }
    if text.count == 0 {
        return Err(file.error("has no row below its header"));
    }
    Ok(text)
}

impl Text {
    /// Uses the first column as row names if all its values are distinct, because its indicators would carry no
    /// information. With few rows, any column may look like this.
    fn take_index(&mut self) -> bool {
        let Some(first) = self.columns.first().filter(|_| self.columns.len() > 1 && self.count >= FEWEST) else {
            return false;
        };
        let distinct: BTreeSet<&str> = first.iter().flatten().map(String::as_str).collect();
        if distinct.len() < self.count {
            return false;
        }
        self.rows = Some(self.columns.remove(0).into_iter().flatten().collect());
        self.index = Some(self.names.remove(0));
        true
    }
}

/// The items without the one at `index`.
fn without<T>(index: Option<usize>, items: &[T]) -> impl Iterator<Item = &T> {
    items.iter().enumerate().filter(move |(at, _)| Some(*at) != index).map(|(_, item)| item)
}

/// Whether a value is a number and nothing else: no code such as 007 or 1E3, and no whole number that a float cannot
/// tell apart from its neighbours.
fn is_plain(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let code = digits.starts_with('0') && digits[1..].starts_with(|c: char| c.is_ascii_digit());
    let decimal = digits.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    !code && decimal && number(value.as_bytes()).is_some_and(|x| x.abs() < MOST_EXACT)
}

/// A number as it names its indicator, the same for 1, 1.0 and 1.00.
fn canonical(value: &str) -> String {
    // Adding 0 turns -0 into 0.
    number(value.as_bytes()).map_or_else(|| value.to_string(), |x| format!("{}", x + 0.0))
}

/// The values or intervals that a column is divided into.
fn kind(name: &str, column: &[Option<String>], bins: Option<usize>) -> Result<Kind> {
    let mut values: BTreeSet<String> = column.iter().flatten().cloned().collect();
    if values.iter().all(|value| is_plain(value)) {
        values = values.iter().map(|value| canonical(value)).collect();
    }
    let finite = |value: &String| number(value.as_bytes()).filter(|x| x.is_finite());
    let numbers: Option<Vec<f64>> = column.iter().flatten().map(finite).collect();
    match (numbers, bins) {
        (Some(mut numbers), Some(bins)) if values.len() > bins => {
            numbers.sort_unstable_by(f64::total_cmp);
            let quantile = |i: usize| quantile_of(&numbers, numbers.len(), i as f64 / bins as f64);
            let mut cuts: Vec<f64> = (1..bins).map(quantile).collect();
            cuts.dedup();
            // No value is above the largest number.
            cuts.retain(|cut| numbers.last().is_some_and(|last| cut < last));
            Ok(Kind::Cuts(cuts))
        }
        (numbers, _) if values.len() > MOST_VALUES => Err(Error::input(format!(
            "column {name} has {} different values: {}",
            values.len(),
            if numbers.is_some() {
                "--bins N divides its numbers into N intervals"
            } else {
                "remove it, or use --index-col yes if it is the first and names the rows"
            }
        ))),
        _ => Ok(Kind::Values(values.into_iter().collect())),
    }
}

impl Kind {
    /// The indicator of a value, if there is one.
    fn place(&self, value: &str) -> Option<usize> {
        match self {
            Kind::Values(values) => {
                let numbers = || is_plain(value) && values.iter().all(|known| is_plain(known));
                let same = |known: &String| known == value || numbers() && canonical(known) == canonical(value);
                values.iter().position(same)
            }
            Kind::Cuts(cuts) => number(value.as_bytes()).map(|x| cuts.iter().filter(|cut| **cut < x).count()),
        }
    }

    /// The names of the indicators of the column with this name.
    fn labels(&self, name: &str) -> Vec<String> {
        match self {
            Kind::Values(values) => values.iter().map(|value| format!("{name}={value}")).collect(),
            Kind::Cuts(cuts) => {
                let between = cuts.windows(2).map(|ends| format!("{}<{name}<={}", ends[0], ends[1]));
                let first = cuts.first().map(|cut| format!("{name}<={cut}"));
                let last = cuts.last().map_or_else(|| name.to_string(), |cut| format!("{name}>{cut}"));
                first.into_iter().chain(between).chain([last]).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::prepare::matrix::Transform;

    fn all_rows(made: &Matrix) -> Vec<Row> {
        made.written(&Transform::none(made))
    }

    fn table(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        (dir, path)
    }

    #[test]
    fn each_value_has_a_column() {
        let (_dir, path) = table("id,sex,age\n7,f,30\n8,m,41\n9,,52\n10,f,63\n");
        let (made, rules) = prepare(&path, TableOptions::default(), Some(2), None).unwrap();
        assert_eq!(made.column_names.clone().unwrap(), ["sex=f", "sex=m", "age<=46.5", "age>46.5"]);
        assert_eq!(made.row_names.clone().unwrap(), ["7", "8", "9", "10"]);
        assert_eq!(
            all_rows(&made),
            [vec![(0, 1.0), (2, 1.0)], vec![(1, 1.0), (2, 1.0)], vec![(3, 1.0)], vec![(0, 1.0), (3, 1.0)]]
        );
        // Another table by the same rules has the same columns, whatever their order in it.
        let (_dir, other) = table("age,sex\n99,m\n");
        let (made, _) = prepare(&other, TableOptions::default(), None, Some(rules.clone())).unwrap();
        assert_eq!((made.cols, &all_rows(&made)[0]), (4, &vec![(1, 1.0), (3, 1.0)]));
        for (text, why) in [("age,sex\n9,x\n", "row 0: column sex has the value x"), ("age\n9\n", "no column sex")] {
            let (_dir, path) = table(text);
            let wrong = prepare(&path, TableOptions::default(), None, Some(rules.clone())).err().unwrap();
            assert!(wrong.message.contains(why), "{wrong}");
        }
        let (_dir, ragged) = table("a,b\n1\n");
        assert!(
            prepare(&ragged, TableOptions::default(), None, None)
                .err()
                .unwrap()
                .message
                .contains("row 0: has 1 fields")
        );
    }

    #[test]
    fn each_interval_is_named_by_both_of_its_ends() {
        let (_dir, path) = table("age\n10\n20\n30\n40\n50\n60\n");
        for (bins, names) in [
            (1, &["age"][..]),
            (2, &["age<=35", "age>35"]),
            (4, &["age<=22.5", "22.5<age<=35", "35<age<=47.5", "age>47.5"]),
            (5, &["age<=20", "20<age<=30", "30<age<=40", "40<age<=50", "age>50"]),
        ] {
            let (made, _) = prepare(&path, TableOptions::default(), Some(bins), None).unwrap();
            assert_eq!(made.column_names.clone().unwrap(), names, "{bins} intervals");
        }
    }

    #[test]
    fn cuts_are_quantiles_as_those_of_numpy() {
        let cut = |most: usize, bins: usize| {
            let rows: String = (0..most * 10).map(|i| format!("{}\n", i % most)).collect();
            let (_dir, path) = table(&format!("x\n{rows}"));
            let (made, rules) = prepare(&path, TableOptions::default(), Some(bins), None).unwrap();
            let Some(Kind::Cuts(cuts)) = rules.column("x").map(|column| column.kind.clone()) else { panic!("no cuts") };
            let lowest = all_rows(&made).iter().filter(|row| row[0].0 == 0).count();
            (cuts, lowest)
        };
        // numpy.quantile(x, [1/bins, 2/bins, …])
        assert_eq!(cut(4, 2), (vec![1.5], 20));
        assert_eq!(cut(10, 2), (vec![4.5], 50));
        assert_eq!(cut(4, 3), (vec![1.0, 2.0], 20));
    }

    #[test]
    fn columns_of_one_name_are_refused() {
        let titled = TableOptions { header: Presence::Yes, ..TableOptions::default() };
        for (text, options) in [
            ("id,v,v\nr1,1,100\nr2,2,300\nr3,3,200\nr4,4,400\n", titled),
            ("id,x,x\nr1,a,p\nr2,b,q\n", titled),
            ("v,v\na,1\n", TableOptions { index_col: Presence::Yes, ..titled }),
        ] {
            let (_dir, path) = table(text);
            for bins in [None, Some(2)] {
                let wrong = prepare(&path, options, bins, None).err().unwrap().message;
                assert!(
                    wrong.contains("two columns of the table have the name") && wrong.contains("rename"),
                    "{wrong}"
                );
            }
        }
    }

    #[test]
    fn a_first_line_of_numbers_is_no_header() {
        let (_dir, path) = table("1,2\n3,4\n5,6\n");
        let with = |header| prepare(&path, TableOptions { header, ..TableOptions::default() }, None, None);
        for header in [Presence::Auto, Presence::No] {
            assert!(with(header).err().unwrap().message.contains("must be a header"));
        }
        assert_eq!(with(Presence::Yes).unwrap().0.column_names.unwrap(), ["1=3", "1=5", "2=4", "2=6"]);
    }

    #[test]
    fn a_first_column_of_different_names_names_the_rows() {
        let (_dir, path) = table("barcode,type,age\nAA,t,1\nAC,b,2\nAG,t,1\n");
        let with = |index_col| {
            prepare(&path, TableOptions { index_col, ..TableOptions::default() }, None, None).map(|(made, _)| made)
        };
        let made = with(Presence::Auto).unwrap();
        assert_eq!(made.row_names.clone().unwrap(), ["AA", "AC", "AG"]);
        assert_eq!(made.column_names.clone().unwrap(), ["type=b", "type=t", "age=1", "age=2"]);
        assert_eq!(with(Presence::No).unwrap().cols, 7);
        // Values that repeat, or numbers, are data.
        for text in ["type,age\nt,1\nb,2\nt,1\n", "age,type\n30,t\n20,b\n40,t\n"] {
            let (_dir, path) = table(text);
            assert_eq!(prepare(&path, TableOptions::default(), None, None).unwrap().0.row_names, None, "{text}");
        }
        // R leaves out the title of the index.
        let (_dir, path) = table("type,age\nAA,t,1\nAC,b,2\nAG,t,1\n");
        assert_eq!(prepare(&path, TableOptions::default(), None, None).unwrap().0.row_names.unwrap()[1], "AC");
    }

    #[test]
    fn rules_know_which_column_names_the_rows() {
        let (_dir, path) = table("id,sex,age\n7,f,30\n8,m,41\n");
        let (_, rules) = prepare(&path, TableOptions::default(), None, None).unwrap();
        let apply = |text: &str, options: TableOptions| {
            let (_dir, path) = table(text);
            prepare(&path, options, None, Some(rules.clone())).map(|(made, _)| made)
        };
        for text in ["age,id,sex\n41,x,f\n", "id,age,sex\nx,41,f\n"] {
            let made = apply(text, TableOptions::default()).unwrap();
            assert_eq!(
                (made.row_names.clone().unwrap(), &all_rows(&made)[0]),
                (vec!["x".to_string()], &vec![(0, 1.0), (3, 1.0)])
            );
        }
        let named = TableOptions { index_col: Presence::Yes, ..TableOptions::default() };
        assert_eq!(apply("who,age,sex\ny,30,m\n", named).unwrap().row_names.unwrap(), ["y"]);
        for (text, column) in [("age,sex,town\n41,f,b\n", "column town"), ("who,age,sex\ny,30,m\n", "column who")] {
            let wrong = apply(text, TableOptions::default()).err().unwrap();
            assert!(wrong.message.contains("no rules for") && wrong.message.contains(column), "{wrong}");
        }
        // Rules of a table whose first column is data although it is called id.
        let data = TableOptions { index_col: Presence::No, ..TableOptions::default() };
        let (_, rules) = prepare(&path, data, None, None).unwrap();
        let (made, _) = prepare(&path, TableOptions::default(), None, Some(rules)).unwrap();
        assert_eq!((made.row_names, made.cols), (None, 6));
    }

    #[test]
    fn a_number_has_one_column_however_it_is_written() {
        let (_dir, path) = table("x,code,well\n1,007,1E3\n1.0,7,1000\n2.50,07,1D3\n2.5,007,1E3\n");
        let (made, rules) = prepare(&path, TableOptions::default(), None, None).unwrap();
        let names = ["x=1", "x=2.5", "code=007", "code=07", "code=7", "well=1000", "well=1D3", "well=1E3"];
        assert_eq!(made.column_names.clone().unwrap(), names);
        assert_eq!(all_rows(&made)[1], vec![(0, 1.0), (4, 1.0), (5, 1.0)]);
        let (_dir, other) = table("x,code,well\n2.500,7,1E3\n");
        let (made, _) = prepare(&other, TableOptions::default(), None, Some(rules)).unwrap();
        assert_eq!(all_rows(&made)[0], vec![(1, 1.0), (4, 1.0), (7, 1.0)]);
        assert!(!is_plain("9007199254740993") && is_plain("-0") && canonical("-0") == "0");
    }

    #[test]
    fn too_many_values_are_refused() {
        let rows: String = (0..1001).map(|i| format!("{}.5,n{i}\n", 617 * i % 1001)).collect();
        let (_dir, path) = table(&format!("x,name\n{rows}"));
        let wrong = |bins| prepare(&path, TableOptions::default(), bins, None).err().unwrap().message;
        assert!(wrong(None).contains("column x has 1001 different values: --bins"));
        assert!(wrong(Some(4)).contains("column name") && wrong(Some(4)).contains("remove it"));
    }
}
