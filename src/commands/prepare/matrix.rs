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

impl Prepared {
    /// Keeps these columns, in this order.
    pub fn select(&mut self, kept: &[usize]) {
        let mut places = vec![None; self.cols];
        kept.iter().enumerate().for_each(|(new, &old)| places[old] = Some(new));
        for row in &mut self.rows {
            *row = row.iter().filter_map(|&(j, x)| Some((places[j]?, x))).collect();
            row.sort_unstable_by_key(|(j, _)| *j);
        }
        self.cols = kept.len();
        self.column_names = self.column_names.take().map(|names| kept.iter().map(|&j| names[j].clone()).collect());
    }

    /// The number of rows with an entry in each column.
    pub fn carriers(&self) -> Vec<u64> {
        let mut carriers = vec![0; self.cols];
        self.rows.iter().flatten().for_each(|&(j, _)| carriers[j] += 1);
        carriers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_kept_in_the_given_order() {
        let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
        let rows = vec![vec![(0, 1.0), (2, 3.0)], vec![(1, 5.0)]];
        let mut matrix = Prepared { rows, cols: 3, column_names: names(&["a", "b", "c"]), ..Prepared::default() };
        assert_eq!(matrix.carriers(), [1, 1, 1]);
        matrix.select(&[2, 0]);
        assert_eq!(matrix.rows, [vec![(0, 3.0), (1, 1.0)], vec![]]);
        assert_eq!((matrix.cols, matrix.column_names), (2, names(&["c", "a"])));
    }
}
