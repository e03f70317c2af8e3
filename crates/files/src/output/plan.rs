//! The plan of a collective write: which rank sends which rows, computed identically on every rank from all lists of
//! pieces.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_data::state::Piece;

/// The description of a piece, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub name: String,
    pub total_rows: usize,
    pub first_row: usize,
    pub rows: usize,
    pub cols: usize,
}

impl Head {
    pub fn of<T>(piece: &Piece<'_, T>) -> Self {
        Head {
            name: piece.name.to_string(),
            total_rows: piece.total_rows,
            first_row: piece.first_row,
            rows: piece.values.nrows(),
            cols: piece.values.ncols(),
        }
    }

    /// Whether the piece contains these rows of the matrix `name`.
    pub fn covers(&self, name: &str, rows: &Range<usize>) -> bool {
        self.name == name && self.first_row <= rows.start && rows.end <= self.first_row + self.rows
    }
}

/// Rows of a matrix that one rank sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub rank: usize,
    /// Index among that rank's heads.
    pub piece: usize,
    /// Rows of the whole matrix.
    pub rows: Range<usize>,
}

/// A matrix, and the sources of its rows in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    pub name: String,
    pub rows: usize,
    pub cols: usize,
    pub segments: Vec<Segment>,
}

/// The matrices that the pieces of all ranks form, in order of first appearance. Rows that several ranks have (a
/// replicated factor) are taken from the piece that starts first, on the lowest rank.
///
/// # Errors
/// If pieces disagree on the shape, exceed it, or leave rows uncovered.
pub fn matrices(heads: &[Vec<Head>]) -> Result<Vec<Matrix>> {
    let mut names: Vec<&str> = Vec::new();
    for head in heads.iter().flatten() {
        if !names.contains(&head.name.as_str()) {
            names.push(&head.name);
        }
    }
    names.into_iter().map(|name| matrix(name, heads)).collect()
}

fn matrix(name: &str, heads: &[Vec<Head>]) -> Result<Matrix> {
    let all = heads.iter().enumerate().flat_map(|(rank, list)| list.iter().enumerate().map(move |(i, h)| (rank, i, h)));
    let mut pieces: Vec<(usize, usize, &Head)> = all.filter(|(.., h)| h.name == name).collect();
    pieces.sort_by_key(|&(rank, piece, h)| (h.first_row, rank, piece));
    let (rows, cols) = (pieces[0].2.total_rows, pieces[0].2.cols);
    let mut segments = Vec::new();
    let mut covered = 0;
    for (rank, piece, head) in pieces {
        let end = head.first_row.checked_add(head.rows).filter(|&end| end <= rows);
        let (Some(end), true) = (end, (head.total_rows, head.cols) == (rows, cols)) else {
            return Err(Error::failed(format!(
                "matrix {name} is {rows} x {cols}, but rank {rank} has {} x {} from row {} of {}; this is a bug, please report it",
                head.rows, head.cols, head.first_row, head.total_rows
            )));
        };
        if head.first_row <= covered && end > covered {
            segments.push(Segment { rank, piece, rows: covered..end });
            covered = end;
        }
    }
    if covered < rows {
        return Err(Error::failed(format!(
            "matrix {name} has {rows} rows, but no rank has row {covered}; this is a bug, please report it"
        )));
    }
    Ok(Matrix { name: name.to_string(), rows, cols, segments })
}

/// Rows of a block: about 4 MiB, and at most 4096 blocks per matrix.
pub fn block_rows(rows: usize, cols: usize) -> usize {
    ((4 << 20) / (8 * cols.max(1))).max(rows.div_ceil(4096)).max(1)
}

/// `rows`, cut at multiples of `block`.
pub fn blocks(rows: Range<usize>, block: usize) -> impl Iterator<Item = Range<usize>> {
    let mut next = rows.start;
    std::iter::from_fn(move || {
        let start = next;
        next = ((start / block + 1) * block).min(rows.end);
        (start < rows.end).then_some(start..next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(name: &str, total_rows: usize, rows: Range<usize>, cols: usize) -> Head {
        Head { name: name.into(), total_rows, first_row: rows.start, rows: rows.len(), cols }
    }

    #[test]
    fn each_row_has_one_source() {
        let heads = [
            vec![head("U", 10, 4..7, 2), head("V", 3, 0..3, 2)],
            vec![head("U", 10, 0..4, 2), head("V", 3, 0..3, 2)],
            vec![head("U", 10, 7..10, 2), head("U", 10, 4..4, 2), head("V", 3, 0..3, 2)],
        ];
        let plan = matrices(&heads).unwrap();
        assert_eq!(plan.len(), 2);
        let segment = |rank, piece, rows| Segment { rank, piece, rows };
        assert_eq!(plan[0].segments, [segment(1, 0, 0..4), segment(0, 0, 4..7), segment(2, 0, 7..10)]);
        // Replicated, but sent once.
        assert_eq!(plan[1].segments, [segment(0, 1, 0..3)]);
    }

    #[test]
    fn overlaps_are_cut_and_empty_matrices_pass() {
        let plan =
            matrices(&[vec![head("U", 6, 0..4, 1)], vec![head("U", 6, 2..6, 1), head("E", 0, 0..0, 3)]]).unwrap();
        assert_eq!(plan[0].segments[1].rows, 4..6);
        assert_eq!((plan[1].rows, plan[1].cols, plan[1].segments.len()), (0, 3, 0));
    }

    #[test]
    fn inconsistent_pieces_are_refused() {
        for heads in [
            vec![vec![head("U", 6, 0..4, 1)]],
            vec![vec![head("U", 6, 0..2, 1), head("U", 6, 3..6, 1)]],
            vec![vec![head("U", 6, 0..4, 1)], vec![head("U", 6, 4..6, 2)]],
            vec![vec![head("U", 6, 0..4, 1)], vec![head("U", 7, 4..7, 1)]],
            vec![vec![head("U", 6, 0..4, 1)], vec![head("U", 6, 4..7, 1)]],
        ] {
            assert!(matrices(&heads).is_err(), "{heads:?}");
        }
    }

    #[test]
    fn blocks_partition_rows_at_multiples() {
        for (rows, block) in [(0..10, 4), (3..11, 4), (5..5, 3), (7..8, 1), (2..3, 100)] {
            let parts: Vec<_> = blocks(rows.clone(), block).collect();
            assert_eq!(parts.iter().map(ExactSizeIterator::len).sum::<usize>(), rows.len());
            assert!(parts.windows(2).all(|w| w[0].end == w[1].start && w[0].end % block == 0));
            assert!(parts.iter().all(|p| p.start / block == (p.end - 1) / block));
        }
        assert!(1_000_000_000usize.div_ceil(block_rows(1_000_000_000, 40)) <= 4096);
    }
}
