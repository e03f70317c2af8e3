//! Shape and format of the input, known before its entries are read.

use std::ops::Range;

use fednmf_base::error::{Error, Result};

use crate::layout::Layout;
use crate::values::Values;

/// Largest number of rows and of columns, since BLAS and the column indices of sparse matrices have 32 bits.
pub const MAX_DIMENSION: usize = i32::MAX as usize;

/// Refuses a matrix with too many rows or columns.
///
/// # Errors
/// If there are more than [`MAX_DIMENSION`] rows or columns; the message names the shape and the maximum.
pub fn check_dimensions((rows, cols): (usize, usize), sparse: bool) -> Result<()> {
    if rows.max(cols) <= MAX_DIMENSION {
        return Ok(());
    }
    let kind = if sparse { "sparse" } else { "dense" };
    Err(Error::input(format!("{rows} × {cols}: a {kind} matrix may have up to {MAX_DIMENSION} rows and columns")))
}

/// The columns that the files of all parties have, in their order.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommonColumns {
    /// The key of the digests. Between sites they alone know it.
    pub key: [u8; 32],
    /// A digest of each name.
    pub digests: Vec<String>,
}

/// Shape and format of the input, after `--transpose`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    pub rows: usize,
    pub cols: usize,
    /// Whether its blocks are stored sparse.
    pub sparse: bool,
    /// Number of stored entries, if the header declares it.
    pub stored: Option<u64>,
    /// Whether each rank reads whole rows, in the order in which a grid of rows holds them.
    pub by_rows: bool,
    /// Element type of the entries; for several files, the one that needs the highest precision.
    pub values: Values,
    /// `MatrixMarket coordinate real general`, `npy <f8, C order`, …
    pub format: String,
    /// Number of `{party}` files, if the input consists of such files.
    pub files: Option<usize>,
    /// Whether a text table has a header and an index column; if there are several files, those of the first.
    pub labels: Option<Labels>,
    /// Assumptions about text tables that the user should know, with the name of the file.
    pub notes: Vec<String>,
    /// Ambiguities in text tables, with the name of the file.
    pub warnings: Vec<String>,
    /// The item numbers of the columns (rows, if transposed), if the input is a list of transactions.
    pub items: Option<Range<u64>>,
    /// With `--common-columns`, the columns that the files of all parties have.
    pub common: Option<CommonColumns>,
    /// Height and width, if each row (column, if transposed) is an image in the file.
    pub image: Option<(usize, usize)>,
}

impl Header {
    /// That of a matrix which is in no file.
    pub fn in_memory((rows, cols): (usize, usize), sparse: bool, stored: Option<u64>) -> Self {
        Header {
            rows,
            cols,
            sparse,
            stored: stored.filter(|_| sparse),
            by_rows: true,
            values: Values::Double,
            format: "in memory".to_string(),
            items: None,
            files: None,
            labels: None,
            notes: Vec::new(),
            warnings: Vec::new(),
            common: None,
            image: None,
        }
    }

    /// Lower bound of the bytes of a rank's blocks, if all ranks have equal shares; `word` is the size of an entry in bytes.
    pub fn least_bytes(&self, layout: &Layout, ranks: usize, word: usize) -> f64 {
        let Header { rows, cols, sparse, stored, .. } = *self;
        let copies = if matches!(layout, Layout::RowsAndColumns { .. }) { 2.0 } else { 1.0 };
        copies * least_bytes((rows, cols), sparse, stored, word) / ranks as f64
    }

    /// How many times its blocks a rank holds at most while they are loaded.
    pub fn copies_while_loading(&self, layout: &Layout, word: usize) -> f64 {
        if self.sparse { copies_while_loading(layout, self.by_rows, word) } else { 1.0 }
    }
}

/// As [`Header::copies_while_loading`] of a sparse matrix with entries of `word` bytes. Entries that are read in another order than
/// `by_rows` are held as triples too.
pub fn copies_while_loading(layout: &Layout, by_rows: bool, word: usize) -> f64 {
    let word = word as f64;
    let (held, triple) = (word + 4.0, word + 8.0);
    match *layout {
        Layout::Grid { pc: 1, .. } | Layout::RowsAndColumns { ranks: 1 } if by_rows => 1.0,
        // Both blocks, or what was read, and a block of triples; or such a block, and its values while they are moved.
        Layout::RowsAndColumns { .. } => (2.0 * held + triple) / (2.0 * held),
        _ if by_rows => (held + triple) / held,
        _ => (triple + word) / held,
    }
}

/// Lower bound of the bytes of a matrix with entries of `word` bytes.
pub fn least_bytes((rows, cols): (usize, usize), sparse: bool, stored: Option<u64>, word: usize) -> f64 {
    match sparse {
        true => stored.map_or(0.0, |stored| stored as f64) * (word + size_of::<i32>()) as f64,
        false => rows as f64 * cols as f64 * word as f64,
    }
}

/// The labels found in a text table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Labels {
    /// Whether the first line names the columns.
    pub header: bool,
    /// Whether the first column names the rows.
    pub index_col: bool,
}
