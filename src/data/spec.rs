//! What was typed as `--input`, checked without touching the disk.

use std::path::Path;
use std::str::FromStr;

use serde_json::Value;

use crate::data::synthetic::Synthetic;
use crate::error::{Error, Result};

/// Where the matrix comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A file; with `{party}` in its name, one file for each party. `dataset` names what to read inside an HDF5 file.
    File { path: String, dataset: Option<String> },
    /// Made up on the spot.
    Synthetic(Synthetic),
}

/// What is done to the size of the entries (`--scale`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    None,
    /// Divide by the largest entry.
    Max,
}

/// From which value on an entry becomes 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Threshold {
    At(f64),
    /// From the matrix's own q-quantile on, zeros counted: the upper 1 − q become ones.
    Quantile(f64),
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
        match text.strip_prefix('q') {
            Some(share) => match number(share) {
                Some(q) if q > 0.0 && q < 1.0 => Ok(Threshold::Quantile(q)),
                _ => Err("a quantile is q and a share between 0 and 1, such as q0.95".to_string()),
            },
            None => match number(text) {
                Some(t) if t > 0.0 => Ok(Threshold::At(t)),
                Some(_) => {
                    Err("the threshold must be positive, or entries that are not stored would count as 1".to_string())
                }
                None => Err("give a number, or a quantile such as q0.95".to_string()),
            },
        }
    }
}

impl Threshold {
    /// From what [`Threshold::to_json`] made.
    pub fn from_json(value: &Value) -> Option<Self> {
        value.as_f64().map(Threshold::At).or_else(|| value.as_str()?.parse().ok())
    }

    /// As it was asked for: a number, or such as `q0.95`.
    pub fn to_json(self) -> Value {
        match self {
            Threshold::At(t) => t.into(),
            Threshold::Quantile(q) => format!("q{q}").into(),
        }
    }
}

/// How the matrices of several `{party}` files make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// Each file is a block of rows.
    Rows,
    /// Each file is a block of columns.
    Columns,
}

/// The input of a run and what the readers do to it, in this order: transpose, scale, binarize.
#[derive(Debug, Clone, PartialEq)]
pub struct InputSpec {
    pub source: Source,
    /// Hand over the transposed matrix (of each file, where there are several).
    pub transpose: bool,
    pub scale: Scale,
    /// Entries from this threshold on become 1, all others 0.
    pub binarize: Option<Threshold>,
    /// Whether negative entries may pass; otherwise the first one found is an error.
    pub allow_negative: bool,
    /// Whether entries may be NaN: missing. They count in no figure but the checksum.
    pub allow_nan: bool,
    /// Number of `{party}` files; the number of ranks if not given.
    pub parties: Option<usize>,
    /// How `{party}` files are put together.
    pub stack: Stack,
}

/// The mark in a path that stands for the party's number (0, 1, …).
pub const PARTY: &str = "{party}";

impl InputSpec {
    /// Reads `PATH`, `PATH:/dataset` or `synthetic:KIND,key=value,…`; all else as the defaults are: as it stands,
    /// nonnegative, party files stacked by rows.
    ///
    /// # Errors
    /// On an empty text, an unknown kind or key, a value that is not one.
    pub fn parse(text: &str) -> Result<Self> {
        let source = match text.strip_prefix("synthetic:") {
            Some(words) => Source::Synthetic(Synthetic::parse(words)?),
            None if text == "synthetic" => Source::Synthetic(Synthetic::parse("planted")?),
            None => file(text)?,
        };
        Ok(InputSpec {
            source,
            transpose: false,
            scale: Scale::None,
            binarize: None,
            allow_negative: false,
            allow_nan: false,
            parties: None,
            stack: Stack::Rows,
        })
    }

    /// Whether the input is one file for each party.
    pub fn by_party(&self) -> bool {
        matches!(&self.source, Source::File { path, .. } if path.contains(PARTY))
    }

    /// What must hold between the fields; [`crate::data::open`] asks for it.
    pub(super) fn check(&self) -> Result<()> {
        if self.parties == Some(0) {
            return Err(Error::input("--parties 0: there must be at least one party"));
        }
        Ok(())
    }
}

fn file(text: &str) -> Result<Source> {
    if text.is_empty() {
        return Err(Error::input("--input is empty: give a file, or synthetic:KIND"));
    }
    // `data.h5ad:/layers/counts`, but not a path that merely has a colon in one of its directories.
    let hdf5 =
        |path: &str| Path::new(path).extension().is_some_and(|e| HDF5.iter().any(|name| e.eq_ignore_ascii_case(name)));
    let split = text.match_indices(":/").find(|(at, _)| hdf5(&text[..*at]));
    Ok(match split {
        Some((at, _)) => Source::File { path: text[..at].to_string(), dataset: Some(text[at + 1..].to_string()) },
        None => Source::File { path: text.to_string(), dataset: None },
    })
}

/// Endings of HDF5 files' names.
pub(super) const HDF5: [&str; 5] = ["h5", "hdf5", "h5ad", "hdf", "he5"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_datasets_come_apart() {
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
        assert_eq!("q0.95".parse(), Ok(Threshold::Quantile(0.95)));
        for threshold in [Threshold::At(0.5), Threshold::Quantile(0.95)] {
            assert_eq!(Threshold::from_json(&threshold.to_json()), Some(threshold));
        }
        for (text, why) in
            [("0", "positive"), ("-1", "positive"), ("nan", "number"), ("q0", "share"), ("q1", "share"), ("q", "share")]
        {
            assert!(text.parse::<Threshold>().unwrap_err().contains(why), "{text}");
        }
    }
}
