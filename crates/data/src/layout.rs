//! How a matrix is cut into blocks, and which rank gets which block.

use std::ops::Range;

use fednmf_comm::{Parties, even_part};

use crate::split::{PartySplit, whole};

/// The blocks that an algorithm needs on each rank.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// Block (i, j) of a pr × pc process grid on rank i·pc + j. A 1-D partition has pc = 1.
    Grid { pr: usize, pc: usize },
    /// A row block and a column block on each rank r: first M[I_r, :]ᵀ (n × |I_r|), then M[:, J_r] (m × |J_r|). Sketched
    /// columns of the former and rows of the latter are then contiguous.
    RowsAndColumns { ranks: usize },
    /// A block of rows for each party.
    PartyRows { parties: Parties, split: PartySplit },
    /// A block of columns for each party.
    PartyColumns { parties: Parties, split: PartySplit },
}

/// How the matrices of several `{party}` files are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// Each file is a block of rows.
    Rows,
    /// Each file is a block of columns.
    Columns,
}

/// Where rows and columns are cut: part i of the rows is `rows[i]`, likewise for columns. Parts ascend and cover the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuts {
    pub rows: Vec<Range<usize>>,
    pub cols: Vec<Range<usize>>,
}

/// A rectangle of the matrix, as stored on the rank that owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    pub rows: Range<usize>,
    pub cols: Range<usize>,
    /// Whether the block is the transpose of the tile.
    pub transposed: bool,
}

impl Tile {
    /// Rows and columns of the block.
    pub fn stored_shape(&self) -> (usize, usize) {
        let (rows, cols) = (self.rows.len(), self.cols.len());
        if self.transposed { (cols, rows) } else { (rows, cols) }
    }
}

impl Layout {
    /// Number of parts of the rows and of the columns.
    pub fn parts(&self) -> (usize, usize) {
        match *self {
            Layout::Grid { pr, pc } => (pr, pc),
            Layout::RowsAndColumns { ranks } => (ranks, ranks),
            Layout::PartyRows { parties, .. } => (parties.count, 1),
            Layout::PartyColumns { parties, .. } => (1, parties.count),
        }
    }

    /// Cuts an m × n matrix into even parts, or into parts with about the same number of entries if the numbers per row
    /// and column are given. The shares of parties are never changed.
    pub fn cuts(&self, m: usize, n: usize, row_counts: Option<&[u64]>, col_counts: Option<&[u64]>) -> Cuts {
        let (pr, pc) = self.parts();
        match self {
            Layout::PartyRows { split, .. } => Cuts { rows: split.cuts(m, pr), cols: whole(n) },
            Layout::PartyColumns { split, .. } => Cuts { rows: whole(m), cols: split.cuts(n, pc) },
            _ => Cuts { rows: balanced(m, pr, row_counts), cols: balanced(n, pc, col_counts) },
        }
    }

    /// The tiles that `rank` holds.
    pub fn tiles(&self, cuts: &Cuts, rank: usize) -> Vec<Tile> {
        let (m, n) = (cuts.rows.last().map_or(0, |r| r.end), cuts.cols.last().map_or(0, |c| c.end));
        let tile = |rows: &Range<usize>, cols: &Range<usize>, transposed| Tile {
            rows: rows.clone(),
            cols: cols.clone(),
            transposed,
        };
        match *self {
            Layout::Grid { pc, .. } => vec![tile(&cuts.rows[rank / pc], &cuts.cols[rank % pc], false)],
            Layout::RowsAndColumns { .. } => {
                vec![tile(&cuts.rows[rank], &(0..n), true), tile(&(0..m), &cuts.cols[rank], false)]
            }
            Layout::PartyRows { parties, .. } => {
                parties.hosted(rank).map(|p| tile(&cuts.rows[p], &(0..n), false)).collect()
            }
            Layout::PartyColumns { parties, .. } => {
                parties.hosted(rank).map(|p| tile(&(0..m), &cuts.cols[p], false)).collect()
            }
        }
    }
}

/// Cuts `total` items into `parts` runs of about equal weight. The weight of an item is its count plus a small constant,
/// since each row also costs an update.
fn balanced(total: usize, parts: usize, counts: Option<&[u64]>) -> Vec<Range<usize>> {
    let Some(counts) = counts else {
        return (0..parts).map(|i| even_part(total, parts, i)).collect();
    };
    let own = (counts.iter().sum::<u64>() / (4 * total.max(1) as u64)).max(1);
    let whole: u128 = counts.iter().map(|&c| u128::from(c + own)).sum();
    let mut cuts = Vec::with_capacity(parts);
    let (mut start, mut weight, mut i) = (0, 0u128, 0);
    for part in 1..=parts as u128 {
        let goal = whole * part / parts as u128;
        // The item at the border goes to the part that holds more than half of its weight.
        while i < total && weight + u128::from(counts[i] + own) / 2 < goal {
            weight += u128::from(counts[i] + own);
            i += 1;
        }
        let end = if part == parts as u128 { total } else { i };
        cuts.push(start..end);
        start = end;
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(parts: &[Range<usize>], total: usize) -> bool {
        parts.iter().try_fold(0, |end, p| (end == p.start && p.end >= end).then_some(p.end)) == Some(total)
    }

    #[test]
    fn cuts_cover_all_items() {
        let counts: Vec<u64> = (0..97).map(|i| if i == 3 { 5000 } else { i % 5 }).collect();
        for parts in [1, 2, 3, 4, 97, 120] {
            let cuts = balanced(97, parts, Some(&counts));
            assert!(cuts.len() == parts && covers(&cuts, 97), "{parts} {cuts:?}");
        }
        assert!(covers(&balanced(0, 3, Some(&[])), 0));
    }

    #[test]
    fn heavy_rows_are_balanced() {
        let mut counts = vec![10u64; 100];
        counts[..10].fill(100);
        let cuts = balanced(100, 2, Some(&counts));
        let weight = |r: &Range<usize>| counts[r.clone()].iter().sum::<u64>();
        assert!(weight(&cuts[0]).abs_diff(weight(&cuts[1])) < 300, "{cuts:?}");
    }

    #[test]
    fn coarser_cuts_are_among_the_finer_ones() {
        let counts: Vec<u64> = (0..211).map(|i| if i % 50 == 3 { 900 } else { i % 7 }).collect();
        for finest in [12, 16, 300] {
            let fine = balanced(211, finest, Some(&counts));
            for parts in (1..=finest).filter(|parts| finest % parts == 0) {
                let size = finest / parts;
                let joined = fine.chunks(size).map(|some| some[0].start..some[size - 1].end);
                assert!(balanced(211, parts, Some(&counts)).into_iter().eq(joined), "{parts} of {finest}");
            }
        }
    }

    #[test]
    fn grid_tiles_cover_the_matrix_once() {
        let layout = Layout::Grid { pr: 2, pc: 3 };
        let cuts = layout.cuts(7, 11, None, None);
        let area: usize = (0..6).flat_map(|r| layout.tiles(&cuts, r)).map(|t| t.rows.len() * t.cols.len()).sum();
        assert_eq!(area, 77);
    }
}
