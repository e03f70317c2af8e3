//! A matrix that is prepared: its rows are visited one after the other, as often as needed, and read from the file each time if
//! memory does not hold them.

use fednmf_base::error::Result;
use fednmf_comm::Communicator;
use fednmf_data::Panels;
use fednmf_linalg::Block;

/// The nonzeros of a row: (column, value), ascending.
pub type Row = Vec<(usize, f64)>;

/// A matrix by its nonzeros, with the names that it has.
pub struct Matrix {
    entries: Entries,
    /// The place of each column of `entries`, if it is one of the matrix; `None` if all are, in this order.
    places: Option<Places>,
    pub rows: usize,
    pub cols: usize,
    pub row_names: Option<Vec<String>>,
    pub column_names: Option<Vec<String>>,
}

enum Entries {
    Rows(Vec<Row>),
    Block(Block<f64>),
    Panels(Panels<f64>),
}

/// The new place of each column, if it is kept.
pub struct Places(pub Vec<Option<usize>>);

impl Places {
    /// Keeps these of `all` columns, in this order.
    pub fn of(kept: &[usize], all: usize) -> Self {
        let mut places = vec![None; all];
        kept.iter().enumerate().for_each(|(new, &old)| places[old] = Some(new));
        Places(places)
    }

    /// Leaves the columns of a row that are kept, at their new places.
    pub fn apply(&self, row: &mut Row) {
        row.retain_mut(|(j, _)| self.0[*j].map(|new| *j = new).is_some());
        row.sort_unstable_by_key(|(j, _)| *j);
    }
}

impl Matrix {
    /// A matrix of these rows.
    pub fn of_rows(rows: Vec<Row>, cols: usize) -> Self {
        let count = rows.len();
        Matrix { entries: Entries::Rows(rows), places: None, rows: count, cols, row_names: None, column_names: None }
    }

    /// A matrix in memory.
    pub fn of_block(block: Block<f64>) -> Self {
        let (rows, cols) = block.shape();
        Matrix { entries: Entries::Block(block), places: None, rows, cols, row_names: None, column_names: None }
    }

    /// A matrix of this shape that is read from its file in each pass.
    pub fn of_panels(panels: Panels<f64>, (rows, cols): (usize, usize)) -> Self {
        Matrix { entries: Entries::Panels(panels), places: None, rows, cols, row_names: None, column_names: None }
    }

    /// The same matrix with these names of its rows and columns.
    #[must_use]
    pub fn named(self, row_names: Option<Vec<String>>, column_names: Option<Vec<String>>) -> Self {
        Matrix { row_names, column_names, ..self }
    }

    /// Calls `f` with each row, which it may change: the next visit begins with the same rows.
    ///
    /// # Errors
    /// If the file cannot be read or has changed, and those of `f`.
    pub fn each(&self, mut f: impl FnMut(&mut Row) -> Result<()>) -> Result<()> {
        let mut row = Row::new();
        let mut visit = |row: &mut Row| {
            self.places.iter().for_each(|places| places.apply(row));
            f(row)
        };
        let mut of_block = |block: &Block<f64>| {
            (0..block.shape().0).try_for_each(|i| {
                row.clear();
                block.for_each_nonzero(i, |j, x| row.push((j, x)));
                visit(&mut row)
            })
        };
        match &self.entries {
            Entries::Rows(rows) => rows.iter().try_for_each(|own| {
                row.clone_from(own);
                visit(&mut row)
            }),
            Entries::Block(block) => of_block(block),
            Entries::Panels(panels) => panels.copy().pass(&Communicator::local(), |_, block| of_block(block)).map(drop),
        }
    }

    /// Keeps these columns, in this order.
    pub fn select(&mut self, kept: &[usize]) {
        let names = self.column_names.take().map(|names| kept.iter().map(|&j| names[j].clone()).collect());
        self.set_columns(Places::of(kept, self.cols), kept.len(), names);
    }

    /// Gives each column its place among `cols` columns with these names; a matrix has this done once.
    pub fn set_columns(&mut self, places: Places, cols: usize, names: Option<Vec<String>>) {
        debug_assert!(self.places.is_none(), "columns are placed once");
        (self.places, self.cols, self.column_names) = (Some(places), cols, names);
    }

    /// The number of rows with an entry in each column.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn carriers(&self) -> Result<Vec<u64>> {
        let mut carriers = vec![0; self.cols];
        self.each(|row| {
            row.iter().for_each(|&(j, _)| carriers[j] += 1);
            Ok(())
        })?;
        Ok(carriers)
    }

    /// All rows, as a transformation writes them.
    #[cfg(test)]
    pub fn written(&self, transform: &Transform<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        let push = |row: &mut Row| {
            (transform.of_row)(row);
            rows.push(row.clone());
            Ok(())
        };
        self.each(push).unwrap();
        rows
    }
}

/// What is written of a matrix.
pub struct Transform<'a> {
    pub cols: usize,
    /// Where some columns of a matrix without names are left out: the numbers of the others.
    pub column_names: Option<Vec<String>>,
    /// Makes a written row of a row.
    pub of_row: Box<dyn Fn(&mut Row) + 'a>,
}

impl Transform<'_> {
    /// Writes the matrix as it is.
    pub fn none(matrix: &Matrix) -> Self {
        Transform { cols: matrix.cols, column_names: matrix.column_names.clone(), of_row: Box::new(|_| ()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_kept_in_the_given_order() {
        let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
        let mut matrix = Matrix::of_rows(vec![vec![(0, 1.0), (2, 3.0)], vec![(1, 5.0)]], 3);
        matrix.column_names = names(&["a", "b", "c"]);
        assert_eq!(matrix.carriers().unwrap(), [1, 1, 1]);
        matrix.select(&[2, 0]);
        assert_eq!(matrix.written(&Transform::none(&matrix)), [vec![(0, 3.0), (1, 1.0)], vec![]]);
        assert_eq!((matrix.cols, matrix.column_names), (2, names(&["c", "a"])));
    }
}
