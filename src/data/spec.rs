//! What was typed as `--input`, checked without touching the disk.

use std::path::Path;

use super::synthetic::Synthetic;
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
    /// Entries of at least this (positive) threshold become 1, all others 0.
    pub binarize: Option<f64>,
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

    /// What must hold between the fields; [`super::open`] asks for it.
    pub(super) fn check(&self) -> Result<()> {
        match self.binarize {
            Some(t) if !(t > 0.0 && t.is_finite()) => Err(Error::input(format!(
                "--binarize {t}: the threshold must be a positive number, or entries that are not stored would count as 1"
            ))),
            _ if self.parties == Some(0) => Err(Error::input("--parties 0: there must be at least one party")),
            _ => Ok(()),
        }
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
    fn thresholds_that_fill_a_sparse_matrix_are_refused() {
        let mut spec = InputSpec::parse("x.mtx").unwrap();
        for (t, good) in [(0.5, true), (0.0, false), (-1.0, false), (f64::NAN, false)] {
            spec.binarize = Some(t);
            assert_eq!(spec.check().is_ok(), good);
        }
    }
}
