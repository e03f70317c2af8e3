//! The input specification given by `--input` and its options, parsed and checked without disk access.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::Value;

use fednmf_base::error::{Error, Result};
use fednmf_data::header::Header;
use fednmf_data::policy::{EntryPolicy, NanRemedy};
use fednmf_data::synthetic::Synthetic;
use fednmf_data::values::Values;
use fednmf_data::{CommonColumns, Sharing, Stack};

use crate::align;
use crate::features::{FeatureChoice, Selection};
use crate::formats::hdf5::is_hdf5_name;
use crate::formats::options::{Repeated, TableFormat, TableOptions};
use crate::names;
use crate::names::Names;

/// The source of the matrix.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A file; with `{party}` in its name, one file for each party. `dataset` names the matrix in an HDF5 file.
    File { path: String, dataset: Option<String> },
    /// A generated matrix.
    Synthetic(Synthetic),
}

/// The scaling of the entries (`--scale`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    None,
    /// Divide by the largest entry.
    Max,
    /// Divide by this number: the largest entry of an earlier matrix.
    By(f64),
}

/// The threshold of `--binarize`: entries of at least this value become 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    At(f64),
    /// The q-quantile of the matrix, zeros included: the upper 1 − q become ones.
    Quantile(f64),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
        match text.strip_prefix('q') {
            Some(share) => match number(share) {
                Some(q) if q > 0.0 && q < 1.0 => Ok(Threshold::Quantile(q)),
                _ => Err("a quantile is q and a fraction between 0 and 1, such as q0.95".to_string()),
            },
            None => match number(text) {
                Some(t) if t > 0.0 => Ok(Threshold::At(t)),
                Some(_) => {
                    Err("the threshold must be positive; otherwise entries that are not stored would become 1"
                        .to_string())
                }
                None => Err("give a number, or a quantile such as q0.95".to_string()),
            },
        }
    }
}

impl Threshold {
    /// The value; `None` if it is computed from the matrix.
    pub fn given(self) -> Option<f64> {
        if let Threshold::At(value) = self { Some(value) } else { None }
    }

    /// The threshold for entries of `word` bytes from a file with these values, compared in f64.
    #[must_use]
    pub fn for_entries(self, word: usize, values: Values) -> Self {
        if is_rounded(word, values) { self.of_f32() } else { self }
    }

    /// The threshold for f64 that selects the numbers which f32, with its rounding, has at or above this one.
    #[must_use]
    pub fn of_f32(self) -> Self {
        // A threshold that f32 rounds to 0 would select zeros.
        let rounded = |t: f64| (t as f32).max(f32::from_bits(1));
        if let Threshold::At(t) = self { Threshold::At(least_that_rounds_to(rounded(t))) } else { self }
    }

    /// Parses the result of [`Threshold::to_json`].
    pub fn from_json(value: &Value) -> Option<Self> {
        value.as_f64().map(Threshold::At).or_else(|| value.as_str()?.parse().ok())
    }

    /// As on the command line: a number, or a quantile such as `q0.95`.
    pub fn to_json(self) -> Value {
        match self {
            Threshold::At(t) => t.into(),
            Threshold::Quantile(q) => format!("q{q}").into(),
        }
    }
}

/// Whether entries of `word` bytes from a file with these values are f32.
pub fn is_rounded(word: usize, values: Values) -> bool {
    word == size_of::<f32>() || values == Values::Single
}

/// The smallest f64 whose nearest f32 is at least `t`: from halfway to the f32 below on, which itself becomes the even
/// one.
pub fn least_that_rounds_to(t: f32) -> f64 {
    if !(t.is_finite() && t > 0.0) {
        return t.into();
    }
    let halfway = f64::midpoint(t.next_down().into(), t.into());
    if halfway as f32 >= t { halfway } else { halfway.next_up() }
}

/// The input of a run and its preprocessing, in this order: transpose, suppress, scale, binarize.
#[derive(Debug, Clone, PartialEq)]
pub struct InputSpec {
    pub source: Source,
    /// Transpose the matrix (of each file, if there are several).
    pub transpose: bool,
    /// In variables in which 1 to this number − 1 of a party's rows (or columns) differ from all others, these get the value of the
    /// others.
    pub suppress: Option<usize>,
    pub scale: Scale,
    /// Entries of at least this threshold become 1, all others 0.
    pub binarize: Option<Threshold>,
    /// Whether negative entries are accepted; otherwise the first one is an error.
    pub allow_negative: bool,
    /// Whether entries may be NaN, which marks a missing value. The statistics ignore them, except the checksum.
    pub allow_nan: bool,
    /// The remedy to suggest if a NaN entry is refused.
    pub nan_remedy: NanRemedy,
    /// Memory in bytes that all ranks of a node may use; by default the node's free memory.
    pub memory: Option<u64>,
    /// Options for text tables; for other inputs only the defaults are accepted.
    pub table: TableOptions,
    /// Number of `{party}` files; by default the number of ranks.
    pub parties: Option<usize>,
    /// Range of items that must be columns of transactions, even if no file has them; once the input is open, all items.
    pub items: Option<Range<u64>>,
    /// Which features of single-cell data are used.
    pub features: FeatureChoice,
    /// Whether only the columns that the files of all parties have are used, in the order of party 0.
    pub common_columns: bool,
    /// These columns, once the input is open.
    pub common: Option<CommonColumns>,
    /// How `{party}` files are combined.
    pub stack: Stack,
    /// How parties share the statistics of their data while loading.
    pub sharing: Sharing,
    /// Whether errors, which reach all ranks, must not quote the files' text; by default for `{party}` files.
    pub private: bool,
    /// Whether `{party}` files stay with the ranks that read them: others learn their shapes, and neither their format nor
    /// the number of their entries.
    pub kept: bool,
    /// Whether the element type matters; for a text table it is determined only then.
    pub ask_values: bool,
    /// Whether each rank has its own disk, with the file of its party at this path.
    pub own_disk: bool,
}

/// The placeholder of the party's number (0, 1, …) in a path.
pub const PARTY: &str = "{party}";

impl InputSpec {
    /// Copies the number of parties, the items and the common names from the header, since only the files determine them.
    pub fn complete(&mut self, header: &Header) {
        self.parties = header.files.or(self.parties);
        self.items.clone_from(&header.items);
        self.common.clone_from(&header.common);
    }

    /// Parses `PATH`, `PATH:/dataset` or `synthetic:KIND,key=value,…`. All other fields have their defaults: no
    /// preprocessing, no negative entries, party files stacked by rows.
    ///
    /// # Errors
    /// If the text is empty, or has an unknown kind or key, or a value out of range.
    pub fn parse(text: &str) -> Result<Self> {
        let source = match text.strip_prefix("synthetic:") {
            Some(words) => Source::Synthetic(Synthetic::parse(words)?),
            None if text == "synthetic" => Source::Synthetic(Synthetic::parse("planted")?),
            None => file(text)?,
        };
        let private = matches!(&source, Source::File { path, .. } if path.contains(PARTY));
        Ok(InputSpec {
            source,
            transpose: false,
            suppress: None,
            scale: Scale::None,
            binarize: None,
            allow_negative: false,
            allow_nan: false,
            nan_remedy: NanRemedy::default(),
            memory: None,
            table: TableOptions::default(),
            parties: None,
            items: None,
            features: FeatureChoice::default(),
            common_columns: false,
            common: None,
            stack: Stack::Rows,
            kept: false,
            sharing: Sharing::Clear,
            private,
            ask_values: false,
            own_disk: false,
        })
    }

    /// Uses only the columns with these names, in this order.
    pub fn use_columns(&mut self, names: &[String]) {
        self.common = Some(align::named(names));
    }

    /// The rows or columns of a file that are used; `None` if all are.
    ///
    /// # Errors
    /// As [`FeatureChoice::select`].
    pub(crate) fn selection(&self, path: &str, dataset: Option<&str>) -> Result<Option<Selection>> {
        let chosen = self.features.select(path, dataset, self.private)?;
        let Some(common) = &self.common else { return Ok(chosen) };
        align::selection(common, self, &names::in_file(path, self), chosen).map(Some)
    }

    /// The names of the rows and columns that are used, among all names of a file.
    pub(crate) fn selected(&self, path: &str, dataset: Option<&str>, mut all: Names) -> Names {
        if let Ok(Some(selection)) = self.selection(path, dataset) {
            let side = if selection.of_rows { &mut all.rows } else { &mut all.columns };
            *side = side.take().map(|names| selection.names(&names));
        }
        all
    }

    /// Which entries are accepted.
    pub fn entry_policy(&self) -> EntryPolicy {
        let &InputSpec { allow_negative, allow_nan, nan_remedy, .. } = self;
        EntryPolicy { allow_negative, allow_nan, nan_remedy }
    }

    /// Whether the input is one file for each party.
    pub fn by_party(&self) -> bool {
        matches!(&self.source, Source::File { path, .. } if self.own_disk || path.contains(PARTY))
    }

    /// The existing files of the input; for `{party}` files, those of consecutive parties from 0 on.
    pub fn files(&self) -> Vec<PathBuf> {
        let Source::File { path, .. } = &self.source else { return Vec::new() };
        if !path.contains(PARTY) {
            return vec![PathBuf::from(path)];
        }
        (0..self.parties.unwrap_or(usize::MAX)).map_while(|party| party_path(path, party)).map(PathBuf::from).collect()
    }

    /// Checks the fields; called by [`crate::open`].
    pub(super) fn check(&self) -> Result<()> {
        if self.parties == Some(0) {
            return Err(Error::input("--parties 0: there must be at least one party"));
        }
        if let (Source::Synthetic(_), Some(option)) = (&self.source, self.table.first_given()) {
            return Err(Error::input(format!(
                "{option} is for tables in text (.csv, .tsv, .txt), and the matrix is generated; leave the option out"
            )));
        }
        if self.table.repeated != Repeated::Refuse && self.table.format != TableFormat::Triples {
            return Err(Error::input("--repeated is for triples: add --format triples, or leave it out"));
        }
        if self.common_columns && !self.by_party() {
            return Err(Error::input(
                "--common-columns compares the files of several parties; give a file for each, with {party} in its name, or leave the \
                 option out",
            ));
        }
        if self.common_columns && self.stack != Stack::Rows {
            return Err(Error::input(
                "--common-columns is for methods with private rows; with private columns the common rows are often people, whose names a \
                 digest does not hide: bring the rows into the same order before the run",
            ));
        }
        if self.by_party() && matches!(self.table.format, TableFormat::Triples | TableFormat::Edges) {
            return Err(Error::input(
                "--format triples and edges: not with a file for each party, since each would number users and items in its own way; \
                 give one file, or each party's matrix as .mtx",
            ));
        }
        Ok(())
    }
}

/// The `{party}` file of a party, whose number may have leading zeros.
pub fn party_path(pattern: &str, party: usize) -> Option<String> {
    party_paths(pattern, party).next()
}

/// All files with the number of a party, with or without leading zeros.
pub fn party_paths(pattern: &str, party: usize) -> impl Iterator<Item = String> {
    let mut paths = [format!("{party}"), format!("{party:02}"), format!("{party:03}"), format!("{party:04}")]
        .map(|number| pattern.replace(PARTY, &number))
        .to_vec();
    paths.dedup();
    paths.into_iter().filter(|path| Path::new(path).exists())
}

fn file(text: &str) -> Result<Source> {
    if text.is_empty() {
        return Err(Error::input("--input is empty: give a file, or synthetic:KIND"));
    }
    // `data.h5ad:/layers/counts`, the first slash optional, but not a path that merely has a colon in a directory.
    let split = text.match_indices(':').find(|(at, _)| is_hdf5_name(&text[..*at]) && at + 1 < text.len());
    Ok(match split {
        Some((at, _)) => Source::File { path: text[..at].to_string(), dataset: Some(text[at + 1..].to_string()) },
        None => Source::File { path: text.to_string(), dataset: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_datasets_are_separated() {
        let path = |text: &str| match InputSpec::parse(text).unwrap().source {
            Source::File { path, dataset } => (path, dataset),
            Source::Synthetic(_) => unreachable!(),
        };
        assert_eq!(path("a/b.mtx.gz"), ("a/b.mtx.gz".into(), None));
        assert_eq!(path("a.h5ad:/layers/counts"), ("a.h5ad".into(), Some("/layers/counts".into())));
        assert_eq!(path("odd:/dir/b.npy"), ("odd:/dir/b.npy".into(), None));
        assert!(InputSpec::parse("b-{party}.mtx").unwrap().by_party());
        assert!(InputSpec::parse("").is_err());
    }

    #[test]
    fn thresholds_are_positive_numbers_or_quantiles() {
        assert_eq!("0.5".parse(), Ok(Threshold::At(0.5)));
        assert!(Threshold::At(1e-50).of_f32().given().is_some_and(|t| t > 0.0 && t < 1e-44), "zeros stay zeros");
        assert_eq!("q0.95".parse(), Ok(Threshold::Quantile(0.95)));
        for threshold in [Threshold::At(0.5), Threshold::Quantile(0.95)] {
            assert_eq!(Threshold::from_json(&threshold.to_json()), Some(threshold));
        }
        for (text, why) in [
            ("0", "positive"),
            ("-1", "positive"),
            ("nan", "number"),
            ("q0", "fraction"),
            ("q1", "fraction"),
            ("q", "fraction"),
        ] {
            assert!(text.parse::<Threshold>().unwrap_err().contains(why), "{text}");
        }
    }
}
