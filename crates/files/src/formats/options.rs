//! Options for text tables: `--header`, `--index-col` and `--format`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Whether a table has a header, or an index column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// As its first lines suggest.
    #[default]
    Auto,
    Yes,
    No,
}

/// What the lines of a table are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableFormat {
    /// Rows of the matrix; refused if they look like triples.
    #[default]
    Auto,
    /// Rows of the matrix
    Table,
    /// One entry each: user, item, value
    Triples,
}

/// How a table in text is to be read. Other files are refused with anything but the defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[serde(default)]
pub struct TableOptions {
    /// Whether the first line of a table in text names the columns; auto: if it holds names, or counts 0, 1, 2, ...
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t = Presence::Auto, help_heading = "Tables in text")]
    pub header: Presence,

    /// Whether the first column of a table in text names the rows; auto: if it holds names, counts, or is called index
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t = Presence::Auto, help_heading = "Tables in text")]
    pub index_col: Presence,

    /// triples: each line of a table in text is one entry (user, item, value) of a sparse matrix users x items; table: it is a
    /// row; auto: a row, unless the lines look like triples, which are refused
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = TableFormat::Auto, help_heading = "Tables in text")]
    pub format: TableFormat,
}

impl TableOptions {
    /// The first option that is not at its default, as it is typed.
    pub fn first_given(self) -> Option<&'static str> {
        if self.format == TableFormat::Triples {
            Some("--format triples")
        } else if self.format == TableFormat::Table {
            Some("--format table")
        } else if self.header != Presence::Auto {
            Some("--header")
        } else if self.index_col != Presence::Auto {
            Some("--index-col")
        } else {
            None
        }
    }

    /// The options that are not at their defaults, as words of a command line.
    pub fn words(self) -> Vec<String> {
        let defaults = Self::default().to_json();
        let given = self.to_json().into_iter().filter(|(name, value)| defaults.get(name) != Some(value));
        let word = |(name, value): (String, Value)| {
            [format!("--{}", name.replace('_', "-")), value.as_str().unwrap_or_default().to_string()]
        };
        given.flat_map(word).collect()
    }

    /// The options by name, for the parameters of a run.
    pub fn to_json(self) -> Map<String, Value> {
        let all = serde_json::to_value(self).ok();
        all.and_then(|all| all.as_object().cloned()).unwrap_or_default()
    }

    /// The options among the parameters of a run; the defaults where it has none.
    pub fn from_json(parameters: &Value) -> Self {
        Self::deserialize(parameters).unwrap_or_default()
    }
}

/// The names of the columns and those of the rows, where known.
pub type Names = (Option<Vec<String>>, Option<Vec<String>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_back() {
        let options = TableOptions { header: Presence::No, index_col: Presence::Yes, format: TableFormat::Triples };
        let mut all = options.to_json();
        assert_eq!(all["index_col"], "yes");
        all.insert("k".into(), 3.into());
        assert_eq!(TableOptions::from_json(&Value::from(all)), options);
        assert_eq!(TableOptions::from_json(&serde_json::json!({"k": 3})), TableOptions::default());
        assert_eq!(TableOptions::from_json(&Value::Null), TableOptions::default());
        assert_eq!(options.first_given(), Some("--format triples"));
        assert_eq!(options.words().join(" "), "--header no --index-col yes --format triples");
        assert!(TableOptions::default().words().is_empty());
        assert_eq!(TableOptions::default().first_given(), None);
    }
}
