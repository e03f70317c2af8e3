//! The rules that a preparation derives from data, as a JSON file.

use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use fednmf_base::error::{Error, Result, why_not_json};
use fednmf_base::unfinished::{Access, replace};
use fednmf_base::warning::warn;
use fednmf_files::names;
use fednmf_files::names::Match;
use fednmf_files::output::own_mark::{MARK, seal};

use super::counts::CountRules;
use super::matrix::Matrix;
use super::write::unwritable;

/// The rules derived from data, which are applied to the same or to other data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rules {
    /// Number of documents, and in how many of them each term occurs.
    TfIdf {
        documents: usize,
        frequencies: Vec<usize>,
        columns: ColumnNames,
    },
    /// The quantile of each column, above which entries become 1.
    Quantile {
        thresholds: Vec<f64>,
        columns: ColumnNames,
    },
    /// The columns of a table, and the title of the column that names its rows.
    OneHot {
        columns: Vec<Column>,
        #[serde(default)]
        index: Option<String>,
    },
    Counts(CountRules),
}

/// The names of the columns of the matrix, where it has any.
pub type ColumnNames = Option<Vec<String>>;

/// The indicators of one column of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
}

/// The values or intervals that a column is divided into.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its values, ascending.
    Values(Vec<String>),
    /// Ascending numbers that end intervals; one more interval follows the last.
    Cuts(Vec<f64>),
}

impl Rules {
    /// Reads the rules in a file.
    ///
    /// # Errors
    /// If the file cannot be read, or does not contain rules.
    pub fn read(path: &Path) -> Result<Rules> {
        let wrong = |why: String| Error::input(format!("--rules {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e}); check the name")))?;
        let rules = serde_json::from_str(&text).and_then(|mut rules: Value| {
            rules.as_object_mut().and_then(|rules| rules.remove("mark"));
            serde_json::from_value(rules)
        });
        rules.map_err(|e| wrong(format!("is not what --save-rules writes ({})", why_not_json(&e))))
    }

    /// Writes the rules to a file that only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_value(self).map_err(|e| unwritable(path, e.into()))?;
        text["mark"] = MARK.into();
        // Rules contain information about the data.
        let written = replace(path, Access::OwnerOnly, |out| writeln!(out, "{text}").and_then(|()| seal(out)));
        written.map_err(|e| unwritable(path, e))
    }

    /// The names of the columns of the matrix that the rules are for, where it had any.
    pub fn names(&self) -> Option<&[String]> {
        match self {
            Rules::TfIdf { columns, .. } | Rules::Quantile { columns, .. } => columns.as_deref(),
            Rules::OneHot { .. } | Rules::Counts(_) => None,
        }
    }

    /// The rule for the column of a table with this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let Rules::OneHot { columns, .. } = self else { return None };
        columns.iter().find(|column| column.name == name)
    }

    /// The error for rules of another kind than `requested`.
    pub fn another_kind(&self, requested: &str) -> Error {
        let kind = match self {
            Rules::TfIdf { .. } => "tf-idf",
            Rules::Quantile { .. } => "quantile",
            Rules::OneHot { .. } => "one-hot",
            Rules::Counts(_) => "counts",
        };
        Error::input(format!("--rules: the file has rules for {kind}, not for {requested}; give another file"))
    }
}

/// Warns if only the matrix, or only the rules, have names of columns.
pub fn warn_of_positions(matrix_has_names: bool, rules_have_names: bool) {
    let which = match (matrix_has_names, rules_have_names) {
        (true, false) => "the matrix has column names, but the rules have none",
        (false, true) => "the rules have column names, but the matrix has none",
        _ => return,
    };
    warn(&format!("{which}: columns are matched by position"));
}

/// The value of a rule for each column of the matrix: by name if both have names, otherwise by position.
///
/// # Errors
/// If the columns differ from those of the rules.
pub fn of_columns<T: Copy>(values: &[T], named: Option<&[String]>, matrix: &Matrix) -> Result<Vec<T>> {
    let (rules, cols) = (values.len(), matrix.cols);
    if rules != cols {
        return Err(Error::input(format!(
            "--rules: the rules are for {rules} columns, but the matrix has {cols}; prepare matrices with the same columns"
        )));
    }
    let names = matrix.column_names.as_deref();
    warn_of_positions(names.is_some(), named.is_some());
    match names::compare(names, named) {
        Match::Equal => Ok(values.to_vec()),
        Match::Reordered(order) => Ok(order.into_iter().map(|at| values[at]).collect()),
        Match::Repeated(name) => Err(Error::input(format!("--rules: {}", names::repeated("column", &name)))),
        Match::Different(at, ours, theirs) => Err(Error::input(format!(
            "--rules: column {at} of the matrix is {ours}, that of the rules is {theirs}; give a matrix with the same columns"
        ))),
    }
}
