//! Options for text tables: `--header`, `--index-col`, `--format` and `--repeated`.

use serde_json::{Map, Value};

use fednmf_base::parameters::{self, Parameters as _};

fednmf_base::words! {
    /// Whether a table has a header, or an index column.
    pub enum Presence {
        /// As its first lines suggest.
        Auto = "auto",
        Yes = "yes",
        No = "no",
    }
}

fednmf_base::words! {
    /// Role of the lines of a table.
    pub enum TableFormat {
        /// Rows of the matrix; refused if they look like triples.
        Auto = "auto",
        /// Rows of the matrix
        Table = "table",
        /// One entry each: user, item, value
        Triples = "triples",
        /// One edge of an undirected graph each: node, node, weight
        Edges = "edges",
    }
}

fednmf_base::words! {
    /// The value of a pair that several triples name.
    pub enum Repeated {
        /// None; the input is refused
        Refuse = "refuse",
        /// Their mean, as of ratings that were revised
        Mean = "mean",
        /// Their sum, as of events that are counted
        Sum = "sum",
    }
}

fednmf_base::parameters! {
    /// How a table in text is to be read. Other files are refused with anything but the defaults.
    #[derive(Copy, Eq)]
    pub struct TableOptions {
        /// Whether the first line of a table in text names the columns; auto: if it holds names, or counts 0, 1, 2, ...
        pub header: Presence = Presence::Auto, "WHETHER";
        /// Whether the first column of a table in text names the rows; auto: if it holds names, counts, or is called index
        pub index_col: Presence = Presence::Auto, "WHETHER";
        /// triples: each line of a table in text is one entry (user, item, value) of a sparse matrix users x items; edges: it is
        /// an edge (node, node, weight) of an undirected graph, there once or in both directions; table: it is a row; auto: a
        /// row, unless the lines look like triples, which are refused
        pub format: TableFormat = TableFormat::Auto, "FORMAT";
        /// The value of a pair of user and item that several triples name (--format triples)
        pub repeated: Repeated = Repeated::Refuse, "HOW";
    }
}

impl TableOptions {
    /// The first option that is not at its default, as on the command line.
    pub fn first_given(self) -> Option<&'static str> {
        if self.format == TableFormat::Triples {
            Some("--format triples")
        } else if self.format == TableFormat::Edges {
            Some("--format edges")
        } else if self.format == TableFormat::Table {
            Some("--format table")
        } else if self.header != Presence::Auto {
            Some("--header")
        } else if self.index_col != Presence::Auto {
            Some("--index-col")
        } else if self.repeated != Repeated::Refuse {
            Some("--repeated")
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
        parameters::to_json(&self)
    }

    /// The options among the parameters of a run; defaults for missing ones.
    pub fn from_json(of_run: &Value) -> Self {
        let mut options = Self::default();
        for parameter in parameters::all(&options) {
            // An unknown value, written by another version, counts as not given.
            if let Some(text) = of_run.get(parameter.name).and_then(Value::as_str) {
                let _ = options.set(parameter.name, text);
            }
        }
        options
    }
}

/// The names of the columns and of the rows, if known.
pub type Names = (Option<Vec<String>>, Option<Vec<String>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_back() {
        let options = TableOptions {
            header: Presence::No,
            index_col: Presence::Yes,
            format: TableFormat::Triples,
            repeated: Repeated::Mean,
        };
        let mut all = options.to_json();
        assert_eq!(all["index_col"], "yes");
        all.insert("k".into(), 3.into());
        assert_eq!(TableOptions::from_json(&Value::from(all)), options);
        assert_eq!(TableOptions::from_json(&serde_json::json!({"k": 3})), TableOptions::default());
        assert_eq!(TableOptions::from_json(&Value::Null), TableOptions::default());
        assert_eq!(options.first_given(), Some("--format triples"));
        assert_eq!(options.words().join(" "), "--header no --index-col yes --format triples --repeated mean");
        assert!(TableOptions::default().words().is_empty());
        assert_eq!(TableOptions::default().first_given(), None);
    }
}
