//! The features of single-cell data that are used: those of one type, of 10x data, and the highly variable genes of AnnData.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};

use crate::formats::detect;
use crate::hdf5_probe;
use crate::hdf5_probe::Content;
use crate::names;
use crate::names::hdf5_lists;

/// The type of the features that are used (`--feature-type`), where the input tells types: genes, antibodies, …
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FeatureType {
    /// The only one; an input with several is refused.
    #[default]
    Only,
    /// Features of all types.
    All,
    Named(String),
    /// As `Named`, but all features of an input that tells no types.
    NamedIfTyped(String),
}

/// Which features are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureChoice {
    pub feature_type: FeatureType,
    /// Whether only those of AnnData's `var/highly_variable` are; if it was not said, all are, with a note.
    pub highly_variable: Option<bool>,
}

/// Rows or columns of a file that are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    pub of_rows: bool,
    /// Their places, ascending.
    pub kept: Vec<usize>,
    /// Number of rows or columns of the file.
    pub all: usize,
}

impl Selection {
    /// The new place of each row or column of the file, if it is used.
    pub fn places(&self) -> Vec<Option<usize>> {
        let mut places = vec![None; self.all];
        self.kept.iter().enumerate().for_each(|(new, &old)| places[old] = Some(new));
        places
    }

    /// The names of those that are used.
    pub fn names(&self, all: &[String]) -> Vec<String> {
        self.kept.iter().filter_map(|&i| all.get(i).cloned()).collect()
    }
}

/// The types of the features in a 10x directory, a 10x file or AnnData, and whether the features are the rows of the matrix;
/// `None` if the input does not tell them.
pub fn types(path: &str, dataset: Option<&str>) -> Option<(bool, Vec<String>)> {
    if Path::new(path).is_dir() {
        return names::types_in_directory(Path::new(path)).map(|types| (true, types));
    }
    is_readable(path, dataset).then(|| hdf5_lists::feature_types(path, dataset)).flatten()
}

/// Whether the rows of the matrix are features, as the file's format says: 10x, loom, BIOM.
pub fn are_rows(path: &str, dataset: Option<&str>) -> bool {
    let stored = || {
        let names = hdf5_lists::of_file(path, dataset);
        names.turned && (names.rows.is_some() || names.columns.is_some())
    };
    Path::new(path).is_dir()
        || Path::new(path).extension().is_some_and(|end| end.eq_ignore_ascii_case("loom"))
        || is_readable(path, dataset) && stored()
}

/// Whether each column of an AnnData matrix is marked as highly variable, or a mark that cannot be read; `None` if nothing is.
fn highly_variable(path: &str, dataset: Option<&str>) -> Option<std::result::Result<Vec<bool>, String>> {
    is_readable(path, dataset).then(|| hdf5_lists::highly_variable(path, dataset)).flatten()
}

fn is_readable(path: &str, dataset: Option<&str>) -> bool {
    detect::is_hdf5(path) && hdf5_probe::run(Content::Names, path, dataset).is_ok()
}

/// The types with the number of features of each, by first appearance.
pub fn counts(types: &[String]) -> Vec<(&str, usize)> {
    let mut all: Vec<(&str, usize)> = Vec::new();
    for name in types {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => all.push((name, 1)),
        }
    }
    all
}

impl FeatureChoice {
    /// The choices that were made, by name, for the parameters of a run.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut all = Map::new();
        if let FeatureType::Named(name) | FeatureType::NamedIfTyped(name) = &self.feature_type {
            all.insert("feature_type".into(), name.as_str().into());
        }
        if self.highly_variable == Some(true) {
            all.insert("highly_variable".into(), 1.into());
        }
        all
    }

    /// The choices of a run with these parameters, for its matrix or another one.
    pub fn from_json<'a>(parameter: impl Fn(&str) -> Option<&'a Value>) -> Self {
        let name = parameter("feature_type").and_then(Value::as_str);
        FeatureChoice {
            feature_type: name.map_or(FeatureType::Only, |name| FeatureType::NamedIfTyped(name.to_string())),
            highly_variable: Some(parameter("highly_variable").is_some_and(|value| *value == 1 || *value == true)),
        }
    }

    /// The rows or columns of a file that are used; `None` if all are. Errors about a `private` file do not quote it.
    ///
    /// # Errors
    /// If the file has features of several types and none was chosen, or lacks what was chosen.
    pub fn select(&self, path: &str, dataset: Option<&str>, private: bool) -> Result<Option<Selection>> {
        let by_type = self.by_type(path, dataset, private)?;
        if self.highly_variable != Some(true) {
            return Ok(by_type);
        }
        let wrong = |what: &str| Error::input(format!("--highly-variable: {path} {what}"));
        let marks = highly_variable(path, dataset).ok_or_else(|| {
            wrong(
                "has no column highly_variable in var for this matrix; find the genes first \
                 (scanpy.pp.highly_variable_genes), or leave the option out",
            )
        })?;
        let marks = marks.map_err(|mark| {
            let mark = if private || mark.is_empty() { "a mark".into() } else { format!("the mark {mark}") };
            wrong(&format!("has {mark} in var/highly_variable that is neither true nor false, perhaps missing; mark the genes again"))
        })?;
        let kept: Vec<usize> = match by_type {
            Some(Selection { kept, .. }) => kept.into_iter().filter(|&j| marks.get(j) == Some(&true)).collect(),
            None => (0..marks.len()).filter(|&j| marks[j]).collect(),
        };
        if kept.is_empty() {
            return Err(wrong("marks no gene as highly variable; leave the option out, or find the genes again"));
        }
        Ok(Some(Selection { of_rows: false, kept, all: marks.len() }))
    }

    fn by_type(&self, path: &str, dataset: Option<&str>, private: bool) -> Result<Option<Selection>> {
        if self.feature_type == FeatureType::All {
            return Ok(None);
        }
        let types = types(path, dataset);
        let found = types.as_ref().map(|(_, types)| counts(types)).unwrap_or_default();
        let listed = || match private {
            true => "'fednmf inspect' lists them".to_string(),
            false => found.iter().map(|(name, count)| format!("{name} ({count})")).collect::<Vec<_>>().join(", "),
        };
        let name = match (&self.feature_type, &types) {
            (FeatureType::Named(name), None) => {
                return Err(Error::input(format!(
                    "--feature-type {name}: {path} does not tell the types of its features; leave the option out"
                )));
            }
            (FeatureType::Named(name) | FeatureType::NamedIfTyped(name), Some(_)) => name.as_str(),
            (_, Some(_)) if found.len() > 1 => {
                return Err(Error::input(format!(
                    "{path}: has features of several types, which are measured on different scales: {}; choose one with \
                     --feature-type NAME",
                    listed()
                )));
            }
            _ => return Ok(None),
        };
        let Some((of_rows, types)) = &types else { return Ok(None) };
        let kept: Vec<usize> = (0..types.len()).filter(|&i| types[i] == name).collect();
        if kept.is_empty() {
            return Err(Error::input(format!(
                "--feature-type {name}: {path} has no such features; it has {}",
                listed()
            )));
        }
        Ok(Some(Selection { of_rows: *of_rows, kept, all: types.len() })
            .filter(|selection| selection.kept.len() < selection.all))
    }

    /// A note if genes are marked as highly variable, and it was not said whether they alone are used.
    pub fn note(&self, path: &str, dataset: Option<&str>) -> Option<String> {
        if self.highly_variable.is_some() {
            return None;
        }
        let marks = highly_variable(path, dataset)?.ok()?;
        let count = marks.iter().filter(|mark| **mark).count();
        (0 < count && count < marks.len()).then(|| {
            format!(
                "{count} of {} genes are marked as highly variable, and all are used; --highly-variable uses these alone",
                marks.len()
            )
        })
    }
}
