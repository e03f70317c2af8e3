//! The request to load a matrix, and the blocks that each rank receives.

use fednmf_comm::Communicator;
use fednmf_data::assemble::{Combine, LocalBlock};
use fednmf_data::header::Header;
use fednmf_data::layout::{Cuts, Layout};
use fednmf_data::policy::EntryPolicy;
use fednmf_data::tally::Tally;
use fednmf_data::traffic::{EntryPattern, GridChooser, GridTraffic, Places};
use fednmf_linalg::Real;

/// A matrix to be loaded.
pub struct Request<'a> {
    pub comm: &'a Communicator,
    pub header: &'a Header,
    pub layout: &'a Layout,
    /// Chooses the grid from the positions of a sparse matrix's entries; `None` keeps the grid of `layout`.
    pub choose: Option<GridChooser<'a>>,
    /// Whether the input is the transpose of the matrix.
    pub transpose: bool,
    pub policy: EntryPolicy,
    /// The value of a position that several entries have.
    pub combine: Combine,
    /// Whether an entry of 0 is one of them.
    pub counts_zeros: bool,
}

impl Request<'_> {
    /// Whether the matrix is cut according to the number of entries in its rows and columns.
    pub fn balances(&self) -> bool {
        let parties = matches!(self.layout, Layout::PartyRows { .. } | Layout::PartyColumns { .. });
        self.header.sparse && self.comm.size() > 1 && !parties
    }

    /// The final layout, the traffic of each grid if one was chosen, and the cuts. The grid is chosen for a sparse matrix
    /// with `counts` entries in each row and column; this rank has read the entries at `places`. Collective.
    pub fn settle(&self, counts: Option<(Vec<u64>, Vec<u64>)>, places: Places) -> (Layout, Vec<GridTraffic>, Cuts) {
        let (layout, grids, counts) = match (self.layout, self.choose, counts) {
            (Layout::Grid { .. }, Some(choose), Some(counts)) => {
                let pattern = EntryPattern::collect(self.comm, self.comm.size(), counts, places);
                let grids = pattern.traffic(self.comm);
                let GridTraffic { pr, pc, .. } = grids[choose(&grids)];
                (Layout::Grid { pr, pc }, grids, Some(pattern.counts))
            }
            (layout, _, counts) => (layout.clone(), Vec::new(), counts),
        };
        let cuts = self.cuts(&layout, counts);
        (layout, grids, cuts)
    }

    /// Cuts the matrix into even parts, or, if `counts` are given, into parts with about the same number of entries.
    pub fn cuts(&self, layout: &Layout, counts: Option<(Vec<u64>, Vec<u64>)>) -> Cuts {
        let (rows, cols) = counts.unzip();
        layout.cuts(self.header.rows, self.header.cols, rows.as_deref(), cols.as_deref())
    }
}

/// This rank's blocks of a matrix, in the order of its tiles.
pub struct LocalBlocks<T: Real> {
    /// The requested layout, except that the grid may be another one.
    pub layout: Layout,
    /// Traffic of each possible grid; empty if none was chosen.
    pub grids: Vec<GridTraffic>,
    pub cuts: Cuts,
    pub blocks: Vec<LocalBlock<T>>,
    /// The statistics accumulated for each block while its entries were read. They are invalid once the block changes.
    pub tallies: Vec<Tally>,
    /// Entries that were added to another one at the same position: in the whole matrix, or, if each party has a file,
    /// only in this rank's files.
    pub duplicates: u64,
    /// Zeros that sparse files store, counted over the same files as `duplicates`.
    pub stored_zeros: u64,
}
