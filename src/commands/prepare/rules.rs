//! What a preparation finds in data, as a JSON file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::write::unwritable;
use crate::error::{Error, Result};

/// What was found in data, and is applied to it or to other data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rules {
    /// Number of documents, and in how many of them each term occurs.
    TfIdf { documents: usize, frequencies: Vec<usize> },
    /// The least value of each column that becomes 1; `None` where none does.
    Quantile { thresholds: Vec<Option<f64>> },
    /// The columns of a table.
    OneHot { columns: Vec<Column> },
}

/// The indicators of one column of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
}

/// What a column is divided into.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its values, ascending.
    Values(Vec<String>),
    /// Ascending numbers that end intervals; one more interval follows the last.
    Cuts(Vec<f64>),
}

impl Rules {
    /// # Errors
    /// If the file cannot be read, or is not one of rules.
    pub fn read(path: &Path) -> Result<Rules> {
        let wrong = |why: String| Error::input(format!("--rules {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read ({e}); check the name")))?;
        serde_json::from_str(&text).map_err(|e| wrong(format!("is not what --save-rules writes ({e})")))
    }

    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|e| unwritable(path, &e.into()))?;
        std::fs::write(path, text + "\n").map_err(|e| unwritable(path, &e))
    }

    /// The error for rules of another kind than `asked`.
    pub fn another_kind(&self, asked: &str) -> Error {
        let kind = match self {
            Rules::TfIdf { .. } => "tf-idf",
            Rules::Quantile { .. } => "quantile",
            Rules::OneHot { .. } => "one-hot",
        };
        Error::input(format!("--rules: the file has rules for {kind}, not for {asked}; give another file"))
    }
}

/// Refuses rules for another number of columns.
///
/// # Errors
/// Naming both numbers.
pub fn check_columns(rules: usize, matrix: usize) -> Result<()> {
    if rules == matrix {
        return Ok(());
    }
    Err(Error::input(format!(
        "--rules: the rules are for {rules} columns, but the matrix has {matrix}; prepare matrices with the same columns"
    )))
}
