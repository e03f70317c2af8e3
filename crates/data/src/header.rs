//! Shape and format of the input, known before its entries are read.

use std::ops::Range;

use fednmf_base::error::{Error, Result};

use crate::values::Values;

/// Largest number of rows and of columns, since BLAS and the column indices of sparse matrices have 32 bits.
pub const MAX_DIMENSION: usize = i32::MAX as usize;

/// Refuses a matrix with too many rows or columns.
///
/// # Errors
/// Naming the shape and the maximum.
pub fn check_dimensions((rows, cols): (usize, usize), sparse: bool) -> Result<()> {
    if rows.max(cols) <= MAX_DIMENSION {
        return Ok(());
    }
    let kind = if sparse { "sparse" } else { "dense" };
    Err(Error::input(format!("{rows} × {cols}: a {kind} matrix may have up to {MAX_DIMENSION} rows and columns")))
}

/// Shape and format of the input, after `--transpose`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    pub rows: usize,
    pub cols: usize,
    /// Whether blocks of it are stored sparse.
    pub sparse: bool,
    /// Number of stored entries, if the header declares it.
    pub stored: Option<u64>,
    /// Element type of the entries; for several files, the one that needs the highest precision.
    pub values: Values,
    /// `MatrixMarket coordinate real general`, `npy <f8, C order`, …
    pub format: String,
    /// Number of `{party}` files, if the input consists of such files.
    pub files: Option<usize>,
    /// Whether a table in text has a header and an index column (of several files, the first).
    pub labels: Option<Labels>,
    /// What was concluded about tables in text that the user should know, with the name of the file.
    pub notes: Vec<String>,
    /// Ambiguities in them, with the name of the file.
    pub warnings: Vec<String>,
    /// The items that are the columns (rows, where transposed), if these are transactions.
    pub items: Option<Range<u64>>,
    /// Height and width, if each row (column, where transposed) is an image in the file.
    pub image: Option<(usize, usize)>,
}

/// The labels found in a text table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Labels {
    /// Whether the first line names the columns.
    pub header: bool,
    /// Whether the first column names the rows.
    pub index_col: bool,
}
