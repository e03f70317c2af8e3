//! The destination of an entry: its rank and tile.

use std::ops::Range;

use fednmf_data::layout::{Cuts, Layout};
use fednmf_data::split::whole;

/// A division of the whole matrix into rectangles, each with one owner. A layout with overlapping blocks has several routes.
#[derive(Debug, Clone)]
pub struct Route {
    rows: Vec<Range<usize>>,
    cols: Vec<Range<usize>>,
    /// Owner of rectangle (a, b) at a · cols + b: the rank, and the index among its tiles.
    owners: Vec<(usize, usize)>,
}

/// The part of a rectangle that one tile owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    pub rank: usize,
    pub tile: usize,
    pub rows: Range<usize>,
    pub cols: Range<usize>,
}

impl Route {
    /// The routes of a layout; each covers the matrix once.
    pub fn all(layout: &Layout, cuts: &Cuts) -> Vec<Route> {
        let (m, n) = (cuts.rows.last().map_or(0, |r| r.end), cuts.cols.last().map_or(0, |c| c.end));
        let route = |rows: &[Range<usize>], cols: &[Range<usize>], owner: &dyn Fn(usize) -> (usize, usize)| Route {
            rows: rows.to_vec(),
            cols: cols.to_vec(),
            owners: (0..rows.len() * cols.len()).map(owner).collect(),
        };
        match *layout {
            Layout::Grid { .. } => vec![route(&cuts.rows, &cuts.cols, &|part| (part, 0))],
            Layout::RowsAndColumns { .. } => {
                vec![route(&cuts.rows, &whole(n), &|part| (part, 0)), route(&whole(m), &cuts.cols, &|part| (part, 1))]
            }
            Layout::PartyRows { parties, .. } | Layout::PartyColumns { parties, .. } => {
                let owners: Vec<(usize, usize)> = (0..parties.ranks)
                    .flat_map(|r| parties.hosted(r).enumerate().map(move |(tile, _)| (r, tile)))
                    .collect();
                vec![route(&cuts.rows, &cuts.cols, &|part| owners[part])]
            }
        }
    }

    /// Number of rectangles.
    pub fn parts(&self) -> usize {
        self.owners.len()
    }

    /// Rank and tile of a rectangle.
    pub fn owner(&self, part: usize) -> (usize, usize) {
        self.owners[part]
    }

    /// The rectangle that contains entry (i, j).
    #[inline]
    pub fn part(&self, i: usize, j: usize) -> usize {
        let find = |ranges: &[Range<usize>], at: usize| {
            if ranges.len() == 1 { 0 } else { ranges.partition_point(|r| r.end <= at) }
        };
        find(&self.rows, i) * self.cols.len() + find(&self.cols, j)
    }

    /// The overlaps of a rectangle with the tiles, row by row.
    pub fn overlaps(&self, rows: &Range<usize>, cols: &Range<usize>) -> Vec<Overlap> {
        let mut overlaps = Vec::new();
        for a in overlapping(&self.rows, rows) {
            for b in overlapping(&self.cols, cols) {
                let (rank, tile) = self.owners[a * self.cols.len() + b];
                let (rows, cols) = (common(&self.rows[a], rows), common(&self.cols[b], cols));
                if !rows.is_empty() && !cols.is_empty() {
                    overlaps.push(Overlap { rank, tile, rows, cols });
                }
            }
        }
        overlaps
    }
}

fn overlapping(ranges: &[Range<usize>], with: &Range<usize>) -> Range<usize> {
    let first = ranges.partition_point(|r| r.end <= with.start);
    first..first.max(ranges.partition_point(|r| r.start < with.end))
}

fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use fednmf_comm::Parties;
    use fednmf_data::split::PartySplit;

    use super::*;

    #[test]
    fn every_entry_has_one_owner_on_each_route() {
        let (m, n) = (7, 5);
        for layout in [
            Layout::Grid { pr: 2, pc: 3 },
            Layout::RowsAndColumns { ranks: 9 },
            Layout::PartyRows { parties: Parties { count: 5, ranks: 2 }, split: PartySplit::First(0.6) },
            Layout::PartyColumns { parties: Parties { count: 3, ranks: 4 }, split: PartySplit::Even },
        ] {
            let cuts = layout.cuts(m, n, None, None);
            for (pass, route) in Route::all(&layout, &cuts).iter().enumerate() {
                for i in 0..m {
                    for j in 0..n {
                        let (rank, tile) = route.owner(route.part(i, j));
                        let tile_of = &layout.tiles(&cuts, rank)[tile];
                        assert!(tile_of.rows.contains(&i) && tile_of.cols.contains(&j), "{layout:?} {pass} {i} {j}");
                    }
                }
                let area: usize = route.overlaps(&(1..6), &(2..5)).iter().map(|o| o.rows.len() * o.cols.len()).sum();
                assert_eq!(area, 15);
            }
        }
    }
}
