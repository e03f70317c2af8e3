//! What is to be loaded, and what each rank receives.

use crate::comm::Communicator;
use crate::data::distribute::assemble::LocalBlock;
use crate::data::formats::reader::EntryPolicy;
use crate::data::header::Header;
use crate::data::layout::{Cuts, Layout};
use crate::linalg::Real;

/// A matrix to be loaded.
pub struct Request<'a> {
    pub comm: &'a Communicator,
    pub header: &'a Header,
    pub layout: &'a Layout,
    /// Whether the input is the transpose of the matrix.
    pub transpose: bool,
    pub policy: EntryPolicy,
}

impl Request<'_> {
    /// Whether the matrix is cut according to the number of entries in its rows and columns.
    pub fn balances(&self) -> bool {
        let parties = matches!(self.layout, Layout::PartyRows { .. } | Layout::PartyColumns { .. });
        self.header.sparse && self.comm.size() > 1 && !parties
    }

    /// Cuts into even parts, or into balanced ones by the number of entries in each row and column.
    pub fn cuts(&self, counts: Option<(Vec<u64>, Vec<u64>)>) -> Cuts {
        let (rows, cols) = counts.unzip();
        self.layout.cuts(self.header.rows, self.header.cols, rows.as_deref(), cols.as_deref())
    }
}

/// This rank's blocks of a matrix, in the order of its tiles.
pub struct LocalBlocks<T: Real> {
    pub cuts: Cuts,
    pub blocks: Vec<LocalBlock<T>>,
    /// Entries that were added to another one in the same position: of the whole matrix, or where each party has its file, of
    /// this rank's.
    pub duplicates: u64,
    /// Zeros that sparse files store: of the same entries as `duplicates`.
    pub stored_zeros: u64,
}
