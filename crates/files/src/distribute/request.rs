//! What is to be loaded, and what each rank receives.

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
    /// Replaces a grid by one that suits the places of a sparse matrix's entries, if at all.
    pub choose: Option<GridChooser<'a>>,
    /// Whether the input is the transpose of the matrix.
    pub transpose: bool,
    pub policy: EntryPolicy,
    /// The value of a position that several entries have.
    pub combine: Combine,
}

impl Request<'_> {
    /// Whether the matrix is cut according to the number of entries in its rows and columns.
    pub fn balances(&self) -> bool {
        let parties = matches!(self.layout, Layout::PartyRows { .. } | Layout::PartyColumns { .. });
        self.header.sparse && self.comm.size() > 1 && !parties
    }

    /// The layout, with the grid that is chosen for a sparse matrix with `counts` entries in each row and column, of which
    /// this rank has read those at `places`; what was counted of all grids; and the cuts. Collective.
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

    /// Cuts into even parts, or into balanced ones by the number of entries in each row and column.
    pub fn cuts(&self, layout: &Layout, counts: Option<(Vec<u64>, Vec<u64>)>) -> Cuts {
        let (rows, cols) = counts.unzip();
        layout.cuts(self.header.rows, self.header.cols, rows.as_deref(), cols.as_deref())
    }
}

/// This rank's blocks of a matrix, in the order of its tiles.
pub struct LocalBlocks<T: Real> {
    /// The layout: as requested, except that the grid may be another one.
    pub layout: Layout,
    /// What was counted to choose the grid; empty where none was chosen.
    pub grids: Vec<GridTraffic>,
    pub cuts: Cuts,
    pub blocks: Vec<LocalBlock<T>>,
    /// The statistics accumulated for each block while its entries were read. They are invalid once the block changes.
    pub tallies: Vec<Tally>,
    /// Entries that were added to another one in the same position: of the whole matrix, or where each party has its file, of
    /// this rank's.
    pub duplicates: u64,
    /// Zeros that sparse files store: of the same entries as `duplicates`.
    pub stored_zeros: u64,
}
