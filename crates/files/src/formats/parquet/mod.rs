//! Parquet: tables stored by columns, as pandas, polars and Arrow write them.

#[cfg(not(feature = "parquet"))]
mod absent;
#[cfg(feature = "parquet")]
mod columns;

use serde::{Deserialize, Serialize};

#[cfg(not(feature = "parquet"))]
pub use absent::{ParquetReader, header, names};
#[cfg(feature = "parquet")]
pub use columns::{ParquetReader, header, names};

/// The first bytes of a file, and the last ones.
pub const MAGIC: &[u8] = b"PAR1";
/// The byte after it: a header in Thrift, whose first field is a number. Text begins otherwise.
pub const FIRST_FIELD: u8 = 0x15;

/// The columns of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parquet {
    /// The place in the file of each column of the matrix.
    pub columns: Vec<usize>,
    /// That of the column with the names of the rows.
    pub index: Option<usize>,
    /// That the first column was taken for it, by the rule for tables in text.
    pub note: Option<String>,
}
