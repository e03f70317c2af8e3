//! Rare entries: in hardly any of a party's records a variable differs from what it is in all its others. In statistical
//! disclosure control these are small cells. Sums over records show differences from the usual value alone, so they show single
//! records where these are few; and if a diagnosis is a column of ones, and its absence another, both are rare in the same
//! record.

use std::collections::BTreeSet;

use fednmf_base::error::Result;
use fednmf_linalg::Real;

use crate::assemble::{Combine, Entries, LocalBlock, TileBuilder};
use crate::layout::Tile;

/// A variable with rare entries, and the value that it usually has.
pub type Rare<T> = (usize, T);

/// The variables in which 1 to `least` − 1 records differ from all others, which are more than half. Records are rows, or columns;
/// missing values (NaN) do not count.
pub fn rare<T: Real>(block: Entries<'_, T>, of_columns: bool, least: usize) -> Vec<Rare<T>> {
    let (records, variables) = (block.lines(of_columns), block.lines(!of_columns));
    let (mut nonzeros, mut missing) = (vec![0; variables], vec![0; variables]);
    // A value that most records have wins each vote (Boyer and Moore 1991).
    let mut votes = vec![(T::zero(), 0usize); variables];
    for_each_nonzero(block, of_columns, |variable, x| {
        if x.is_nan() {
            missing[variable] += 1;
            return;
        }
        nonzeros[variable] += 1;
        match &mut votes[variable] {
            (value, count) if *value == x => *count += 1,
            vote @ (_, 0) => *vote = (x, 1),
            (_, count) => *count -= 1,
        }
    });
    let mut alike = vec![0; variables];
    for_each_nonzero(block, of_columns, |variable, x| alike[variable] += usize::from(votes[variable].0 == x));
    let rare = |variable: usize| {
        let observed = records - missing[variable];
        let zeros = observed - nonzeros[variable];
        let (usual, count) =
            if 2 * zeros > observed { (T::zero(), zeros) } else { (votes[variable].0, alike[variable]) };
        (2 * count > observed && (1..least).contains(&(observed - count))).then_some((variable, usual))
    };
    (0..variables).filter_map(rare).collect()
}

/// Gives the rare entries of a block the usual value of their variable; also returns the variables that have some.
///
/// # Errors
/// As [`TileBuilder::finish`].
pub fn suppress<T: Real>(block: LocalBlock<T>, of_columns: bool, least: usize) -> Result<(LocalBlock<T>, Vec<usize>)> {
    let found = rare(block.entries(), of_columns, least);
    let changed = found.iter().map(|(variable, _)| *variable).collect();
    if found.is_empty() {
        return Ok((block, changed));
    }
    match block {
        LocalBlock::Dense(mut x) => {
            for (variable, usual) in found {
                let mut entries = if of_columns { x.row_mut(variable) } else { x.column_mut(variable) };
                entries.mapv_inplace(|x| if x.is_nan() { x } else { usual });
            }
            Ok((LocalBlock::Dense(x), changed))
        }
        LocalBlock::Sparse(x) => {
            let (rows, cols) = x.shape();
            let records = if of_columns { cols } else { rows };
            let mut usual = vec![None; if of_columns { rows } else { cols }];
            found.iter().for_each(|&(variable, value)| usual[variable] = Some(value));
            let everywhere: Vec<Rare<T>> = found.into_iter().filter(|(_, value)| *value != T::zero()).collect();
            let tile = Tile { rows: 0..rows, cols: 0..cols, transposed: false };
            let mut builder = TileBuilder::sparse(&tile, x.nnz() + everywhere.len() * records);
            let mut gaps = BTreeSet::new();
            for (value, (i, j)) in x.iter() {
                let (i, j) = (i as usize, j as usize);
                let is_rare = usual[if of_columns { i } else { j }].is_some();
                if !is_rare || value.is_nan() {
                    builder.push(i, j, *value);
                }
                if is_rare && value.is_nan() {
                    gaps.insert((i, j));
                }
            }
            for (variable, value) in everywhere {
                for record in 0..records {
                    let (i, j) = if of_columns { (variable, record) } else { (record, variable) };
                    if !gaps.contains(&(i, j)) {
                        builder.push(i, j, value);
                    }
                }
            }
            Ok((builder.finish(Combine::Sum)?.0, changed))
        }
    }
}

/// Calls `f` with the variable of each entry that is not zero, and with the entry.
fn for_each_nonzero<T: Real>(block: Entries<'_, T>, of_columns: bool, mut f: impl FnMut(usize, T)) {
    let all = 0..block.values().len();
    block.for_each_row_of(all, |row, first, places, values| {
        for (at, x) in values.iter().enumerate().filter(|(_, x)| **x != T::zero()) {
            let column = places.map_or(first + at, |places| places[at] as usize);
            f(if of_columns { row } else { column }, *x);
        }
    });
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::CsrMatrix;
    use ndarray::Array2;
    use proptest::prelude::*;

    use super::*;

    /// 12 records of 8 variables: entries that 1, 2, 3 records have; complements of the first two; the same number in all, and in
    /// all but two; a variable with two usual values.
    fn example() -> Array2<f64> {
        Array2::from_shape_fn((12, 8), |(record, variable)| match variable {
            0..3 => f64::from(u8::from(record > 0 && record <= variable + 1)),
            3 | 4 => f64::from(u8::from(record == 0 || record > variable - 2)),
            5 => 7.5,
            6 => [7.5, 2.0, 3.0][record.saturating_sub(9)],
            _ => (record % 2) as f64,
        })
    }

    fn sparse(x: &Array2<f64>) -> LocalBlock<f64> {
        let (rows, cols) = x.dim();
        let mut builder = TileBuilder::sparse(&Tile { rows: 0..rows, cols: 0..cols, transposed: false }, x.len());
        x.indexed_iter().filter(|(_, x)| **x != 0.0).for_each(|((i, j), x)| builder.push(i, j, *x));
        builder.finish(Combine::Sum).unwrap().0
    }

    fn dense(x: &Array2<f64>) -> LocalBlock<f64> {
        LocalBlock::Dense(x.as_standard_layout().into_owned().into())
    }

    fn table(block: &LocalBlock<f64>) -> Array2<f64> {
        match block {
            LocalBlock::Dense(x) => x.to_owned(),
            LocalBlock::Sparse(x) => CsrMatrix::to_dense(x),
        }
    }

    #[test]
    fn entries_that_one_or_two_records_have_or_lack_are_rare() {
        let rows = example();
        let columns = rows.t().to_owned();
        let expected = [(0, 0.0), (1, 0.0), (3, 1.0), (4, 1.0), (6, 7.5)];
        for (x, of_columns) in [(&rows, false), (&columns, true)] {
            for block in [dense(x), sparse(x)] {
                assert_eq!(rare(block.entries(), of_columns, 3), expected);
                assert_eq!(rare(block.entries(), of_columns, 2).len(), 2);
                let (found, changed) = suppress(block, of_columns, 3).unwrap();
                assert_eq!(changed, expected.map(|(variable, _)| variable));
                assert_eq!(rare(found.entries(), of_columns, 3), []);
                let found = if of_columns { table(&found).reversed_axes() } else { table(&found) };
                let mut usual = rows.clone();
                expected.iter().for_each(|&(variable, value)| usual.column_mut(variable).fill(value));
                assert_eq!(found, usual);
            }
        }
    }

    #[test]
    fn missing_values_hide_nothing_and_stay() {
        // A one among zeros and twos, beside many gaps; a gap alone.
        let x = Array2::from_shape_fn((12, 3), |(i, j)| match (i, j) {
            (0..5, 0 | 1) | (3, 2) => f64::NAN,
            (11, 0 | 1) => 1.0,
            (_, 0) => 0.0,
            _ => 2.0,
        });
        for block in [dense(&x), sparse(&x)] {
            assert_eq!(rare(block.entries(), false, 3), [(0, 0.0), (1, 2.0)]);
            let (found, _) = suppress(block, false, 3).unwrap();
            let expected = x.mapv(|x| if x == 1.0 { -1.0 } else { x });
            for (found, expected) in table(&found).indexed_iter().map(|(at, x)| (*x, expected[at])) {
                assert!(found.is_nan() && expected.is_nan() || found == expected || expected == -1.0 && found != 1.0);
            }
        }
    }

    proptest! {
        /// By counting each value.
        #[test]
        fn rare_entries_are_those_of_the_definition(
            entries in proptest::collection::vec(0u8..3, 45), least in 2usize..6, of_columns in any::<bool>(),
        ) {
            let x = Array2::from_shape_fn((9, 5), |(i, j)| f64::from(entries[5 * i + j]));
            let lines = if of_columns { x.rows() } else { x.columns() };
            let by_count: Vec<Rare<f64>> = lines.into_iter().enumerate().filter_map(|(variable, line)| {
                let count = |value: f64| line.iter().filter(|x| **x == value).count();
                let usual = [0.0, 1.0, 2.0].into_iter().find(|value| 2 * count(*value) > line.len())?;
                (1..least).contains(&(line.len() - count(usual))).then_some((variable, usual))
            }).collect();
            prop_assert_eq!(rare(dense(&x).entries(), of_columns, least), by_count.clone());
            prop_assert_eq!(rare(sparse(&x).entries(), of_columns, least), by_count);
        }
    }
}
