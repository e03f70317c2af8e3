//! Known labels of rows or columns: a column of a table or of an AnnData file, or numbers in a binary file.

use std::collections::HashSet;
use std::path::Path;

use ndarray::ArrayView1;

use fednmf_base::error::{Error, Result};
use fednmf_base::units::counted;
use fednmf_base::warning::note;
use fednmf_comm::Communicator;
use fednmf_data::layout::Layout;
use fednmf_data::statistics::Statistics;
use fednmf_linalg::Block;

use super::{Names, are_numbers, column_of, hdf5_lists, hint_at_header, list, of_file, places, repeated};
use crate::formats::fields::{
    FirstLines, OPEN_QUOTE, decoded, ends_within_quotes, fields, is_missing, names_an_index, next_row, text_of,
};
use crate::formats::hdf5;
use crate::formats::hdf5::is_hdf5_name;
use crate::formats::io::InputFile;
use crate::formats::text::{TextBlocks, error_at};
use crate::open::open;
use crate::spec::InputSpec;

/// The labels that `option` names for items with these names, in their order: `FILE.h5ad:obs/COLUMN`, `FILE:COLUMN` with the
/// title or the number of a column of a text table, `.npy`, idx, or a text file with a label on each line. Labels of an AnnData file
/// or of a table that has the names of the items are matched by name; `None` is a missing label.
///
/// # Errors
/// If the file cannot be read or has no such column, names or labels of some items are not there, or, without names, the number of
/// labels is not `count`.
pub fn labels(option: &str, text: &str, known: Option<&[String]>, count: usize) -> Result<Vec<Option<String>>> {
    let wrong = |what: String| Error::input(format!("{option} {text}: {what}"));
    let Labelled { labels, names } = match text.rsplit_once(':') {
        Some((path, place)) if is_hdf5_name(path) => in_anndata(path, place).map_err(wrong)?,
        Some((path, title)) if column_of(text).0 == text && Path::new(path).is_file() => titled(option, path, title)?,
        _ if is_hdf5_name(text) => {
            return Err(wrong("which column? Give it as FILE.h5ad:obs/COLUMN".into()));
        }
        _ if is_numbers(text) => Labelled { labels: numbers(text).map_err(|e| e.at(option))?, names: Vec::new() },
        _ => in_list(option, text)?,
    };
    let has_others = !names.is_empty();
    let order = known.map_or(Ok(None), |known| order_of(known, names)).map_err(wrong)?;
    if order.is_none() && labels.len() != count {
        return Err(wrong(format!(
            "has {} labels, and there are {count} rows; give one for each{}",
            labels.len(),
            match labels.last() {
                Some(last) if last.is_empty() && labels.len() == count + 1 => " (the last line is blank; remove it)",
                _ => hint_at_header(labels.len(), count),
            }
        )));
    }
    if order.is_none() && has_others {
        let why = if known.is_some() { "no names of rows are in it" } else { "the factors have no names of rows" };
        note(&format!("{option} {text}: {why}, so the labels are taken in the order of the rows"));
    }
    let label = |label: &String| {
        let label = label.trim();
        (!is_missing(label.as_bytes())).then(|| label.to_string())
    };
    Ok(match order {
        Some(order) => order.into_iter().map(|i| label(&labels[i])).collect(),
        None => labels.iter().map(label).collect(),
    })
}

/// Labels, and the columns beside them, one of which may have the names of what is labelled.
struct Labelled {
    labels: Vec<String>,
    names: Vec<Column>,
}

/// A column other than that of the labels.
struct Column {
    cells: Vec<String>,
    /// Whether the table says that it has the names of the rows.
    is_index: bool,
}

/// The least share of the names of the items, as its reciprocal, with which a column is one of names.
const FEW: usize = 10;

/// The lines of the items `known`, by the column that has most of their names; `None` if hardly any of them is in a column.
///
/// # Errors
/// Naming an item that is not there, or there more than once; if two columns have the names in different orders.
fn order_of(known: &[String], columns: Vec<Column>) -> std::result::Result<Option<Vec<usize>>, String> {
    // Any column of numbers has some of the names that AnnData gives where there are none.
    let numbered = are_numbers(known);
    let columns: Vec<Vec<String>> =
        columns.into_iter().filter(|column| column.is_index || !numbered).map(|column| column.cells).collect();
    let in_it = |names: &&Vec<String>| {
        let names: HashSet<&String> = names.iter().collect();
        known.iter().filter(|name| names.contains(name)).count()
    };
    let Some(names) = columns.iter().rev().max_by_key(in_it).filter(|names| FEW * in_it(names) >= known.len()) else {
        return Ok(None);
    };
    let found = places(known, names).map_err(|name| repeated("row", &name))?;
    let mut others = columns.iter().filter(|other| *other != names && in_it(other) == in_it(&names));
    if others.any(|other| places(known, other).is_ok_and(|places| places != found)) {
        return Err("has the names of the rows in two columns, in different orders; leave one of them out".into());
    }
    let places = found;
    let missing = places.iter().filter(|place| place.is_none()).count();
    if let Some(first) = places.iter().position(Option::is_none) {
        let others = match missing - 1 {
            0 => String::new(),
            others => format!(", nor of {}", counted(others, "other", "others")),
        };
        let first = &known[first];
        return Err(format!(
            "has no label of {first}{others}; give each row a label (NA if it has none) under its name"
        ));
    }
    Ok(Some(places.into_iter().flatten().collect()))
}

/// A column of a list, with the other columns.
fn in_list(option: &str, text: &str) -> Result<Labelled> {
    let (path, column) = column_of(text);
    let labels = list(option, text)?;
    let before = (1..column).filter_map(|other| list(option, &format!("{path}:{other}")).ok());
    let behind = (column + 1..).map_while(|other| list(option, &format!("{path}:{other}")).ok());
    let names = before.chain(behind).map(|cells| Column { cells, is_index: false }).collect();
    Ok(Labelled { labels, names })
}

/// A column of a data frame, with the names of its rows.
fn in_anndata(path: &str, place: &str) -> std::result::Result<Labelled, String> {
    let place = place.trim_start_matches('/');
    // In MuData a modality has frames of its own.
    let frame = place.match_indices('/').map(|(at, _)| &place[..at]).find(|frame| is_frame(frame));
    let (frame, title) = frame.map_or(("obs", place), |frame| (frame, &place[frame.len() + 1..]));
    if let Some(refusal) = hdf5::refusal(Path::new(path)) {
        return Err(refusal.message);
    }
    if !Path::new(path).is_file() {
        return Err("there is no such file; check the name".into());
    }
    let matrix = match frame.rsplit_once('/') {
        _ if place.contains('/') && title == place => {
            return Err("give a column as FILE.h5ad:obs/COLUMN or FILE.h5ad:var/COLUMN".into());
        }
        Some((modality, _)) => format!("{modality}/X"),
        None => "X".into(),
    };
    crate::hdf5_probe::run(crate::hdf5_probe::Content::Names, path, Some(&matrix)).map_err(|e| e.message)?;
    let Names { rows, columns, .. } = of_file(path, Some(&matrix));
    let names = if frame.ends_with("obs") { rows } else { columns };
    match hdf5_lists::column_of_frame(path, frame, title) {
        Some(labels) => {
            let index = names.map(|cells| Column { cells, is_index: true });
            Ok(Labelled { labels, names: index.into_iter().collect() })
        }
        None => {
            let there = hdf5_lists::columns_of_frame(path, frame).join(", ");
            Err(format!("{frame} has no such column; it has {}", if there.is_empty() { "none" } else { &there }))
        }
    }
}

/// Whether this is the name of a data frame of AnnData, or of one in a modality of MuData.
fn is_frame(name: &str) -> bool {
    let of_modality = name.strip_prefix("mod/").and_then(|rest| rest.split_once('/')).map(|(_, frame)| frame);
    ["obs", "var"].contains(&of_modality.unwrap_or(name))
}

/// The column of a text table with this title, and the other columns.
fn titled(option: &str, path: &str, title: &str) -> Result<Labelled> {
    let file = InputFile { path: path.to_string(), gz: path.ends_with(".gz"), private: false };
    let tabs = [".tsv", ".tsv.gz"].iter().any(|end| path.ends_with(end));
    let wrong = |what: String| Error::input(format!("{option} {path}:{title}: {what}"));
    let first = FirstLines::read(&file, tabs).map_err(|e| e.at(option))?;
    // In the only column blanks and commas belong to the labels.
    let is_only = decoded(first.first().trim_ascii()) == title || fields(first.first(), first.separator).count() == 1;
    let separator = if is_only { b'\t' } else { first.separator };
    let titles: Vec<String> = fields(first.first(), separator).map(text_of).collect();
    let mut found = (0..titles.len()).filter(|j| titles[*j] == title);
    let at = match (found.next(), found.next()) {
        (Some(at), None) => at,
        (None, _) => return Err(wrong(format!("there is no such column; there are {}", titles.join(", ")))),
        _ => return Err(wrong("two columns of the table have this name; rename one".into())),
    };
    if let Some(skipped) = first.note() {
        note(&format!("{option} {path}: {skipped}"));
    }
    let rows = rows_below(&file, &first, separator, titles.len()).map_err(|e| e.at(option))?;
    let width = rows.first().map_or(0, Vec::len);
    let column = |j: usize| rows.iter().map(|row| row[j].clone()).collect::<Vec<String>>();
    let untitled = width.saturating_sub(titles.len());
    let at = at + untitled;
    let labels = if width == 0 { Vec::new() } else { column(at) };
    let names_rows = |title: &String| names_an_index(title.as_bytes()) || title == "name";
    let beside = |j: usize| Column {
        cells: column(j),
        is_index: j.checked_sub(untitled).is_none_or(|j| names_rows(&titles[j])),
    };
    Ok(Labelled { labels, names: (0..width).filter(|j| *j != at).map(beside).collect() })
}

/// The cells below a header of `titles`, to which R gives none for the names of rows.
fn rows_below(file: &InputFile, first: &FirstLines, separator: u8, titles: usize) -> Result<Vec<Vec<String>>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut blocks = TextBlocks::open(file, first.offset(0).unwrap_or(0), 0, 1)?;
    let mut is_header = true;
    while let Some((block, offset)) = blocks.next_block()? {
        let mut at = 0;
        while let Some(line) = next_row(block, &mut at, separator) {
            if std::mem::take(&mut is_header) {
                continue;
            }
            let refused = |what: String| Err(error_at(file, offset + line.start as u64, what));
            let text = &block[line.clone()];
            if ends_within_quotes(text, separator) {
                return refused(OPEN_QUOTE.into());
            }
            let cells: Vec<String> = fields(text, separator).map(text_of).collect();
            let fits = [titles, titles + 1].contains(&cells.len());
            if !fits || rows.first().is_some_and(|first| first.len() != cells.len()) {
                return refused(format!("has {} columns, and the first line {titles}", cells.len()));
            }
            rows.push(cells);
        }
    }
    Ok(rows)
}

/// Whether the name, or the first bytes, are those of .npy or idx.
fn is_numbers(path: &str) -> bool {
    let name = path.strip_suffix(".gz").unwrap_or(path);
    name.ends_with(".npy") || ["idx1-ubyte", ".idx", "-ubyte"].iter().any(|end| name.ends_with(end))
}

/// The number below which f64 represents all whole numbers exactly.
const FIRST_INEXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// A vector of numbers.
fn numbers(path: &str) -> Result<Vec<String>> {
    let spec = InputSpec { allow_negative: true, allow_nan: true, ..InputSpec::parse(path)? };
    let comm = Communicator::local();
    let input = open(&spec, &comm)?;
    let loaded = input.load_any::<f64>(&Layout::Grid { pr: 1, pc: 1 }, &comm, &mut |_| ())?;
    let Statistics { min, max, .. } = loaded.statistics;
    if min.abs().max(max.abs()) >= FIRST_INEXACT {
        return Err(Error::input(format!(
            "{path}: has labels beyond 2^53, of which f64 does not keep all digits; write them as text, one on each \
             line"
        )));
    }
    match loaded.blocks.first() {
        Some(Block::Dense(x)) if x.ncols() == 1 || x.nrows() == 1 => {
            let text = |line: ArrayView1<'_, f64>| line.iter().map(f64::to_string).collect();
            Ok(if x.ncols() == 1 { text(x.column(0)) } else { text(x.row(0)) })
        }
        _ => Err(Error::input(format!("{path}: is a matrix; labels are a vector with one number for each row"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_matched_by_the_column_that_has_the_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("labels.csv");
        let known: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let found = |name: &str, text: &str, place: &str| {
            let path = path.with_file_name(name);
            std::fs::write(&path, text).unwrap();
            let found = labels("--labels", &format!("{}{place}", path.display()), Some(&known), 3);
            found.map(|all| all.into_iter().flatten().collect::<Vec<_>>().join(",")).map_err(|e| e.message)
        };
        // Before or behind the labels, and after a mark.
        assert_eq!(found("l.tsv", "3\tc\n1\ta\n2\tb\n", ":1").unwrap(), "1,2,3");
        assert_eq!(found("l.tsv", "c\t3\na\t1\nb\t2\n", ":2").unwrap(), "1,2,3");
        assert_eq!(found("l.csv", "\u{feff}x,id\n3,c\n1,a\n2,b\n", ":x").unwrap(), "1,2,3");
        // The names twice, in two orders; names of some rows only.
        let why = found("l.csv", "partner,id,x\na,c,3\nb,a,1\nc,b,2\n", ":x").unwrap_err();
        assert!(why.contains("in two columns"), "{why}");
        assert_eq!(found("l.csv", "id,again,x\nc,c,3\na,a,1\nb,b,2\n", ":x").unwrap(), "1,2,3");
        let why = found("l.csv", "id,x\nc,3\nd,1\ne,2\n", ":x").unwrap_err();
        assert!(why.contains("has no label of a"), "{why}");
        assert_eq!(found("l.csv", "id,x\np,3\nq,1\nr,2\n", ":x").unwrap(), "3,1,2");
        // One line too many.
        for (text, why) in [("x\ny\nz\n\n", "the last line is blank"), ("t\nx\ny\nz\n", "is a header")] {
            assert!(found("l.txt", text, "").unwrap_err().contains(why), "{text:?}");
        }
    }
}
