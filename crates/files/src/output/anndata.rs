//! Factors in AnnData's file format (`.h5ad`): `obsm/X_nmf` and `varm/NMF` with the names of observations and variables,
//! and provenance in `uns/nmf`. The data itself (`X`) is not copied; factors can be added to the file that has it.
//!
//! The layout is AnnData's `anndata` 0.1.0 with data frames and arrays of version 0.2.0: two attributes of every group and
//! dataset state its encoding.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use fednmf_base::unfinished::Access;

/// The factor of the observations.
pub(super) const OBS: &str = "obsm/X_nmf";
/// The factor of the variables.
pub(super) const VAR: &str = "varm/NMF";
/// Provenance and everything else.
pub(super) const ABOUT: &str = "uns/nmf";
/// The entry of [`ABOUT`] that lists the entries written by fednmf, itself included; other entries are the user's.
pub(super) const ENTRIES: &str = "entries";

/// The provenance entries for rows and columns of the matrix that have no names.
pub const NUMBERED_ROWS: &str = "numbered_rows";
pub const NUMBERED_COLUMNS: &str = "numbered_columns";

/// Names that are private to a party.
#[derive(Debug, Clone)]
pub enum PartyNames {
    Rows(Vec<String>),
    Columns(Vec<String>),
}

/// The contents of an AnnData file in addition to factors and provenance.
#[derive(Debug, Clone, Default)]
pub struct Annotations {
    /// Names of the rows of the factorised matrix, if known.
    pub rows: Option<Vec<String>>,
    /// Names of its columns.
    pub columns: Option<Vec<String>>,
    /// Names of rows or columns that are private to the parties of this rank, by party; each for that party's file.
    pub of_parties: BTreeMap<usize, PartyNames>,
    /// Whether its columns, not its rows, are the observations.
    pub transposed: bool,
    /// The evaluations of the run: one list of numbers per measure.
    pub history: Map<String, Value>,
    /// Whether the factors are added to an existing file, which keeps its other contents.
    pub add: bool,
    /// Whether only the owner may read the file, in any format, because it contains private data of parties.
    pub owner_only: bool,
}

impl Annotations {
    /// Who may read the file.
    pub(super) fn access(&self) -> Access {
        if self.owner_only { Access::OwnerOnly } else { Access::Default }
    }
}

/// The path of a factor; other names unchanged.
pub(super) fn place(transposed: bool, name: &str) -> &str {
    match (name, transposed) {
        ("U", false) | ("V", true) => OBS,
        ("V", false) | ("U", true) => VAR,
        (other, _) => other,
    }
}

/// Whether root attributes belong to an AnnData file.
pub fn is_one(attributes: &Map<String, Value>) -> bool {
    attributes.get("encoding-type").is_some_and(|kind| kind == "anndata")
}

/// The path of U or V in a file with these contents of `uns/nmf`; other names unchanged.
pub fn find<'a>(about: &'a Map<String, Value>, name: &'a str) -> &'a str {
    let said = about.get(name).and_then(Value::as_str).filter(|place| [OBS, VAR].contains(place));
    said.unwrap_or_else(|| place(false, name))
}
