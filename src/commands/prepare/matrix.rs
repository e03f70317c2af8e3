//! A prepared matrix.

/// A matrix by its nonzeros, row by row, with the names that it has.
#[derive(Debug, Default, PartialEq)]
pub struct Prepared {
    /// (column, value), ascending.
    pub rows: Vec<Vec<(usize, f64)>>,
    pub cols: usize,
    pub row_names: Option<Vec<String>>,
    pub column_names: Option<Vec<String>>,
}
