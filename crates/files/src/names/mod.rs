//! Names of rows and columns, from a list or from the input itself.

#[cfg(feature = "hdf5")]
pub(crate) mod hdf5_lists;
#[cfg(not(feature = "hdf5"))]
#[path = "absent.rs"]
pub(crate) mod hdf5_lists;
mod labels;

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use fednmf_base::error::{Error, Result};

use crate::formats::detect;
use crate::formats::detect::{files_of_tenx, matrix_of_tenx};
use crate::formats::fields::{BYTE_ORDER_MARK, decoded};
use crate::hdf5_probe;
use crate::hdf5_probe::Content;
use crate::spec::{InputSpec, Source, party_path};

pub use hdf5_lists::of_file;
pub use labels::labels;

/// Names of the columns and rows of a matrix, if known.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Names {
    pub columns: Option<Vec<String>>,
    pub rows: Option<Vec<String>>,
    /// Whether the columns are the observations of AnnData, as in 10x files: genes × cells.
    pub turned: bool,
}

/// Maximum size of a list that is read, in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// The file and the column given by `text`: `FILE:2` is the second column of a tab-separated table.
fn column_of(text: &str) -> (&str, usize) {
    let numbered = text.rsplit_once(':');
    let numbered = numbered.and_then(|(path, n)| Some((path, n.parse::<usize>().ok().filter(|&n| n > 0)?)));
    numbered.unwrap_or((text, 1))
}

/// The file that `text` names, perhaps with a column.
pub fn file_of(text: &str) -> PathBuf {
    let named = text.rsplit_once(':').map(|(path, _)| path).filter(|path| Path::new(path).is_file());
    named.unwrap_or(text).into()
}

/// The list of names given by `option`, one per line; `FILE:2` takes the second column of a tab-separated table. `.gz`
/// is unpacked.
///
/// # Errors
/// If it cannot be read, is not text, or a line lacks the column.
pub fn list(option: &str, text: &str) -> Result<Vec<String>> {
    let (path, column) = column_of(text);
    let wrong = |what: String| Error::input(format!("{option} {path}: {what}"));
    let lines = lines_of(option, path)?;
    let name = |(i, line): (usize, &str)| {
        let name = line.trim_end_matches('\r').split('\t').nth(column - 1);
        // As R writes them.
        let unquoted = |name: &str| name.strip_prefix('"')?.strip_suffix('"').map(|name| name.replace("\"\"", "\""));
        name.map(|name| unquoted(name).unwrap_or_else(|| name.to_string()))
            .ok_or_else(|| wrong(format!("line {} has no column {column}", i + 1)))
    };
    lines.lines().enumerate().map(name).collect()
}

/// The text of a file, perhaps compressed.
fn lines_of(option: &str, path: &str) -> Result<String> {
    let wrong = |what: String| Error::input(format!("{option} {path}: {what}"));
    let file = std::fs::File::open(path).map_err(|e| wrong(format!("cannot be read ({e}); check the name")))?;
    let mut all = Vec::new();
    let read = if Path::new(path).extension().is_some_and(|e| e == "gz") {
        flate2::read::MultiGzDecoder::new(file).take(MOST_BYTES).read_to_end(&mut all)
    } else {
        file.take(MOST_BYTES).read_to_end(&mut all)
    };
    read.map_err(|e| wrong(format!("cannot be read ({e})")))?;
    if all.contains(&0) {
        return Err(wrong("is not text; give a text file with a name on each line".into()));
    }
    Ok(decoded(all.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&all)))
}

/// A hint for a user whose list has one line more than the required `count`.
pub fn hint_at_header(lines: usize, count: usize) -> &'static str {
    if lines == count + 1 { " (if its first line is a header, remove it)" } else { "" }
}

/// The names in the input. AnnData and 10x files and text tables may contain names; it is not an error if there are none.
pub fn of_input(spec: &InputSpec) -> Names {
    let Source::File { path, .. } = &spec.source else { return Names::default() };
    if spec.by_party() { Names::default() } else { of_path(path, spec) }
}

/// The names in one file of an input that are used, after `--transpose`.
pub fn of_path(path: &str, spec: &InputSpec) -> Names {
    let Names { columns, rows, turned } = if let Some(items) = &spec.items {
        Names { columns: Some(items.clone().map(|item| item.to_string()).collect()), ..Names::default() }
    } else {
        spec.selected(path, dataset_of(spec), in_file(path, spec))
    };
    if spec.transpose {
        Names { columns: rows, rows: columns, turned: !turned }
    } else {
        Names { columns, rows, turned }
    }
}

fn dataset_of(spec: &InputSpec) -> Option<&str> {
    if let Source::File { dataset, .. } = &spec.source { dataset.as_deref() } else { None }
}

/// All names in one file of an input, as they are in the file.
pub fn in_file(path: &str, spec: &InputSpec) -> Names {
    let dataset = dataset_of(spec);
    if Path::new(path).is_dir() {
        of_directory(Path::new(path)).0
    } else if !detect::is_hdf5(path) {
        let (columns, rows) = detect::names(path, spec.table);
        // A text table does not define its observations: they are the rows of the matrix, transposed or not.
        Names { columns, rows, turned: spec.transpose }
    } else {
        let can_be_read = hdf5_probe::run(Content::Names, path, dataset).is_ok();
        let names = if can_be_read { of_file(path, dataset) } else { Names::default() };
        // Nor does a file of plain datasets.
        match can_be_read && hdf5_lists::has_observations(path) {
            true => names,
            false => Names { turned: spec.transpose, ..names },
        }
    }
}

/// Reads, in the process of a probe, all names that may be requested.
pub fn probe(path: &str, dataset: Option<&str>) {
    for of in [None, Some("raw/X"), dataset] {
        drop(of_file(path, of));
        drop((hdf5_lists::feature_types(path, of), hdf5_lists::highly_variable(path, of)));
    }
}

/// Checks that there are as many names as rows and columns of the matrix (before `--transpose`). Directories and HDF5 files
/// have separate lists of names, which may be incomplete. A warning if there are lists that cannot be read.
///
/// # Errors
/// If the numbers differ; the message has both.
pub fn check(path: &str, dataset: Option<&str>, rows: usize, cols: usize) -> Result<Option<String>> {
    let (names, unreadable) = if Path::new(path).is_dir() {
        of_directory(Path::new(path))
    } else if detect::is_hdf5(path) && hdf5_probe::run(Content::Names, path, dataset).is_ok() {
        let unreadable = hdf5_lists::unreadable(path, dataset)?;
        (of_file(path, dataset), unreadable)
    } else {
        return Ok(None);
    };
    for (what, names, length) in [("row", &names.rows, rows), ("column", &names.columns, cols)] {
        if let Some(names) = names.as_ref().filter(|names| names.len() != length) {
            return Err(Error::input(format!(
                "{path}: has {} names of {what}s, but the matrix has {length} {what}s; names and matrix do not belong \
                 together, or one of them is incomplete",
                names.len()
            )));
        }
    }
    Ok((!unreadable.is_empty()).then(|| {
        format!(
            "{path}: names are not read from {}; rows and columns without names are known by their positions alone",
            unreadable.join(", ")
        )
    }))
}

/// The range of items of a list of names, if these are consecutive whole numbers, as for transactions.
pub fn items(names: &[String]) -> Option<Range<u64>> {
    let first: u64 = names.first()?.parse().ok()?;
    let items = first..first + names.len() as u64;
    items.clone().zip(names).all(|(item, name)| *name == item.to_string()).then_some(items)
}

/// A digest of a list of names in order. Names can be guessed from it, so it may only cover
/// names that others may know.
pub fn digest(names: &[String]) -> String {
    let mut hash = Sha256::new();
    for name in names {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The names in the `{party}` file of a party; none if it has no file.
pub fn of_party(pattern: &str, party: usize, spec: &InputSpec) -> Names {
    party_path(pattern, party).map_or_else(Names::default, |path| of_path(&path, spec))
}

/// The relation of two lists of names of the same items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// They are equal, or one of them is unknown.
    Equal,
    /// They have the same names in another order: item `i` of the first list is item `order[i]` of the second.
    Reordered(Vec<usize>),
    /// They have the same names in another order, but this one belongs to several items.
    Repeated(String),
    /// The first difference: position, name in the first list, name in the second.
    Different(usize, String, String),
}

/// The error for lists with a repeated name, which cannot be matched; `what` is row or column.
pub fn repeated(what: &str, name: &str) -> String {
    format!(
        "several {what}s are called {name}, so that {what}s in another order cannot be matched by name; give unique names \
         (identifiers in place of symbols) to both, or the same order"
    )
}

/// The note if a matrix and stored data cannot be compared, since only one of them has names; `what` is row or column,
/// `has` as in "the factors have".
pub fn unmatched(what: &str, matrix: Option<&[String]>, has: &str, stored: Option<&[String]>) -> Option<String> {
    let (with, without) = match (matrix, stored) {
        (Some(_), None) => ("the matrix has", format!("{has} none")),
        (None, Some(_)) => (has, "the matrix has none".to_string()),
        _ => return None,
    };
    Some(format!("{with} names of {what}s, {without}: {what}s are matched by position"))
}

/// Compares the names of the same items in two files.
pub fn compare(first: Option<&[String]>, second: Option<&[String]>) -> Match {
    let (Some(first), Some(second)) = (first, second) else { return Match::Equal };
    if first == second {
        return Match::Equal;
    }
    let places: HashMap<&str, usize> = second.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let mut taken = vec![false; second.len()];
    // A name that occurs twice does not determine a position.
    let order = first.iter().map(|name| {
        let place = *places.get(name.as_str())?;
        (!std::mem::replace(&mut taken[place], true)).then_some(place)
    });
    match order.collect::<Option<Vec<usize>>>() {
        Some(order) if first.len() == second.len() && places.len() == second.len() => Match::Reordered(order),
        _ => {
            let name = |list: &[String], i: usize| list.get(i).cloned().unwrap_or_else(|| "nothing".into());
            // A name that only one list has is more informative than the first position at which they differ.
            let unknown = first.iter().position(|name| !places.contains_key(name.as_str()));
            let mut seen = HashSet::new();
            if let Some(name) = second.iter().find(|name| !seen.insert(name.as_str()))
                && first.len() == second.len()
                && sorted(first) == sorted(second)
            {
                return Match::Repeated(name.clone());
            }
            let differs = || (0..first.len().max(second.len())).find(|&i| first.get(i) != second.get(i)).unwrap_or(0);
            let at = unknown.unwrap_or_else(differs);
            Match::Different(at, name(first, at), name(second, at))
        }
    }
}

/// The place in `second` of each name of `first`, where it has one.
///
/// # Errors
/// A name that both have, and one of them more than once.
pub fn places(first: &[String], second: &[String]) -> std::result::Result<Vec<Option<usize>>, String> {
    let mut known = HashMap::new();
    let mut ambiguous = HashSet::new();
    for (i, name) in second.iter().enumerate() {
        if known.insert(name, i).is_some() {
            ambiguous.insert(name);
        }
    }
    let mut taken = vec![false; second.len()];
    let place = |name: &String| match known.get(name) {
        None => Ok(None),
        Some(&i) if ambiguous.contains(name) || std::mem::replace(&mut taken[i], true) => Err(name.clone()),
        Some(&i) => Ok(Some(i)),
    };
    first.iter().map(place).collect()
}

/// Whether names are the numbers of their places, which AnnData gives where there are none.
pub fn are_numbers(names: &[String]) -> bool {
    (0..).zip(names).all(|(i, name)| *name == i.to_string())
}

fn sorted(names: &[String]) -> Vec<&String> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort_unstable();
    names
}

/// The first of the lists with these names in a directory written by 10x, with the prefix of the matrix, or else without one, as
/// archives have lists of several samples. The list of another sample has another prefix.
///
/// # Errors
/// The first list that belongs to another sample, if there is no other.
fn list_in_directory(path: &Path, names: &[&str]) -> std::result::Result<Option<PathBuf>, PathBuf> {
    let ends = names.iter().flat_map(|name| [format!("{name}.tsv.gz"), format!("{name}.tsv")]);
    let found: Vec<_> = ends.flat_map(|end| files_of_tenx(path, &end)).collect();
    let own = matrix_of_tenx(path).map_or_else(String::new, |(_, prefix)| prefix);
    let with = |wanted: &str| found.iter().find(|(_, prefix)| prefix == wanted);
    match (with(&own).or(with("")), found.first()) {
        (Some((file, _)), _) => Ok(Some(file.clone())),
        (None, Some((file, _))) => Err(file.clone()),
        (None, None) => Ok(None),
    }
}

/// The types of the features in a directory written by 10x, in the third column of their list.
pub fn types_in_directory(path: &Path) -> Option<Vec<String>> {
    list("", &format!("{}:3", list_in_directory(path, &["features"]).ok()??.display())).ok()
}

/// The names in a directory written by 10x, genes × cells, and the lists that cannot be read.
fn of_directory(path: &Path) -> (Names, Vec<String>) {
    let mut unreadable = Vec::new();
    let mut list = |names: &[&str], column: usize| {
        let file = list_in_directory(path, names).unwrap_or_else(|other| {
            unreadable.push(format!("{}, whose name does not begin as that of the matrix", other.display()));
            None
        })?;
        let file = file.display().to_string();
        let names_in = |column: usize| list("", &format!("{file}:{column}")).ok();
        if let Some(names) = names_in(column) {
            return Some(names);
        }
        // A list may lack the second column, that of the symbols, but not in some lines only.
        if lines_of("", &file).is_ok_and(|text| text.contains('\t')) {
            unreadable.push(format!("{file}, of which some lines have one column and others more"));
            return None;
        }
        let identifiers = names_in(1);
        if identifiers.is_none() {
            unreadable.push(file);
        }
        identifiers
    };
    let names = Names { rows: list(&["features", "genes"], 2), columns: list(&["barcodes"], 1), turned: true };
    (names, unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::options::TableFormat;

    fn file(name: &str) -> String {
        format!("{}/../../tests/data/formats/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn lists_may_begin_with_a_mark_and_be_latin_1() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words.tsv");
        for text in [&b"\xef\xbb\xbfg\xc3\xa9\nx\n"[..], b"g\xe9\nx\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(list("--terms", &path.display().to_string()).unwrap(), ["gé", "x"]);
        }
    }

    /// Symbols of some genes and identifiers of others would not be those of another file.
    #[test]
    fn a_list_of_genes_without_some_symbols_has_no_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("barcodes.tsv"), "c1\n").unwrap();
        let genes = |text: &str| {
            std::fs::write(dir.path().join("features.tsv"), text).unwrap();
            let (names, unreadable) = of_directory(dir.path());
            (names.rows, unreadable.len())
        };
        let names = |names: [&str; 2]| Some(names.map(String::from).to_vec());
        assert_eq!(genes("E1\tActin\nE2\tMyosin\n"), (names(["Actin", "Myosin"]), 0));
        assert_eq!(genes("E1\nE2\n"), (names(["E1", "E2"]), 0));
        assert_eq!(genes("E1\tActin\nE2\n"), (None, 1));
    }

    #[test]
    fn lists_are_columns_of_tables() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words.tsv");
        std::fs::write(&path, "g1\tActin\r\ng2\tMyosin\n").unwrap();
        let path = path.display().to_string();
        assert_eq!(list("--terms", &path).unwrap(), ["g1", "g2"]);
        assert_eq!(list("--terms", &format!("{path}:2")).unwrap(), ["Actin", "Myosin"]);
        assert!(list("--terms", &format!("{path}:3")).unwrap_err().message.contains("line 1"));
        assert!(list("--terms", "/no/such:1").unwrap_err().message.contains("/no/such"));
    }

    #[test]
    fn names_are_compared_whatever_their_order() {
        let list = |names: &str| names.split(' ').map(str::to_string).collect::<Vec<_>>();
        let compared = |a: &str, b: &str| compare(Some(&list(a)), Some(&list(b)));
        assert_eq!(compared("a b c", "a b c"), Match::Equal);
        assert_eq!(compared("c a b", "a b c"), Match::Reordered(vec![2, 0, 1]));
        assert_eq!(compared("a b d", "c a b"), Match::Different(2, "d".into(), "b".into()));
        assert_eq!(compared("a b", "a b c"), Match::Different(2, "nothing".into(), "c".into()));
        // Equal lists may repeat a name; others cannot be matched then.
        assert_eq!(compared("a a b", "a a b"), Match::Equal);
        assert_eq!(compared("a a b", "b a a"), Match::Repeated("a".into()));
        assert_eq!(compared("a a b", "a b b"), Match::Different(1, "a".into(), "b".into()));
        assert_eq!(compare(None, Some(&list("a"))), Match::Equal);
    }

    #[test]
    fn places_are_those_of_unambiguous_names() {
        let list = |names: &str| names.split(' ').map(str::to_string).collect::<Vec<_>>();
        assert_eq!(places(&list("x c a"), &list("a b c")), Ok(vec![None, Some(2), Some(0)]));
        // A name that only one list has may be repeated.
        assert_eq!(places(&list("x x a"), &list("a b b")), Ok(vec![None, None, Some(0)]));
        assert_eq!(places(&list("a a"), &list("a b")), Err("a".into()));
        assert_eq!(places(&list("b"), &list("a b b")), Err("b".into()));
    }

    #[test]
    fn tables_and_triples_have_names() {
        let mut spec = InputSpec::parse(&file("table.csv")).unwrap();
        let names = of_input(&spec);
        assert_eq!(names.columns.as_ref().map(|n| (n.len(), n[1].as_str())), Some((7, "gene 1, 'x'")));
        assert_eq!(names.rows.as_ref().map(|n| (n.len(), n[11].as_str())), Some((12, "cell11")));
        spec.transpose = true;
        let Names { columns, rows, turned } = of_input(&spec);
        assert_eq!((columns, rows, turned), (names.rows, names.columns, false));
        let zipped = of_input(&InputSpec::parse(&file("table.tsv.gz")).unwrap());
        assert_eq!(zipped.columns.map(|n| n.len()), Some(7));
        assert_eq!(of_input(&InputSpec::parse(&file("table-plain.csv")).unwrap()), Names::default());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ratings.csv");
        std::fs::write(&path, "user,item,value\n20,x,1\n3,y,2\n").unwrap();
        spec = InputSpec::parse(path.to_str().unwrap()).unwrap();
        spec.table.format = TableFormat::Triples;
        let Names { columns, rows, .. } = of_input(&spec);
        assert_eq!((columns.unwrap(), rows.unwrap()), (vec!["x".into(), "y".into()], vec!["3".into(), "20".into()]));
    }
}
