//! A rank's part of the loaded matrix.

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_linalg::{Block, Real};

use crate::header::Header;
use crate::layout::{Cuts, Layout};
use crate::messages::COUNTS;
use crate::panels::Panels;
use crate::statistics::Statistics;
use crate::synthetic::PlantedTiles;
use crate::traffic::{EntryPattern, GridTraffic};

/// One rank's part of a matrix.
pub struct Loaded<T: Real> {
    pub header: Header,
    pub statistics: Statistics,
    /// Entries that were added to another one at the same position; if each party has a file, only in this rank's files.
    pub duplicates: u64,
    /// Zeros that the input stores; if each party has a file, only in this rank's files.
    pub stored_zeros: u64,
    /// The requested layout, except that the grid may have been chosen from the positions of the entries.
    pub layout: Layout,
    /// Traffic of each possible grid, if one was chosen.
    pub grids: Vec<GridTraffic>,
    pub cuts: Cuts,
    /// This rank's blocks, in the order of its tiles; empty if `panels` are read instead.
    pub blocks: Vec<Block<T>>,
    /// This rank's rows, if they are read from the file in each pass.
    pub panels: Option<Panels<T>>,
    /// The Boolean matrix behind synthetic data of kind `tiles`.
    pub signal: Option<PlantedTiles>,
    /// The threshold of `--binarize`: entries of at least this value became ones.
    pub threshold: Option<f64>,
    /// The divisor of all entries, with `--scale`.
    pub divisor: Option<f64>,
    /// A hash of each of this rank's blocks. Those of a party's data must not leave it.
    pub fingerprints: Vec<u64>,
}

impl<T: Real> Loaded<T> {
    /// A copy with the blocks in another precision and without panels. The statistics are not recomputed.
    #[must_use]
    pub fn converted<S: Real>(&self) -> Loaded<S> {
        Loaded {
            header: self.header.clone(),
            statistics: self.statistics,
            duplicates: self.duplicates,
            stored_zeros: self.stored_zeros,
            layout: self.layout.clone(),
            grids: self.grids.clone(),
            cuts: self.cuts.clone(),
            blocks: self.blocks.iter().map(Block::converted).collect(),
            panels: None,
            signal: self.signal.clone(),
            threshold: self.threshold,
            divisor: self.divisor,
            fingerprints: self.fingerprints.clone(),
        }
    }

    /// A copy for another factorisation, without the data that the blocks prepared for their products.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.with(self.statistics, self.blocks.iter().map(Block::copy).collect(), self.fingerprints.clone())
    }

    /// The same matrix with other entries.
    pub(crate) fn with(&self, statistics: Statistics, blocks: Vec<Block<T>>, fingerprints: Vec<u64>) -> Self {
        Loaded {
            header: self.header.clone(),
            statistics,
            layout: self.layout.clone(),
            grids: self.grids.clone(),
            cuts: self.cuts.clone(),
            blocks,
            panels: self.panels.as_ref().map(Panels::copy),
            signal: self.signal.clone(),
            fingerprints,
            ..*self
        }
    }

    /// Frees the memory of panels that were read ahead, until they are read again.
    pub fn release(&mut self) {
        if let Some(panels) = &self.panels {
            self.panels = Some(panels.copy());
        }
    }
}

impl<T: Real> Loaded<T> {
    /// The entry pattern of a sparse matrix with a grid layout, for grids of `ranks` ranks. `None` for dense data and other
    /// layouts. Collective.
    pub fn entry_pattern(&self, ranks: usize, comm: &Communicator) -> Option<EntryPattern> {
        let (Layout::Grid { .. }, Some(Block::Sparse(block))) = (&self.layout, self.blocks.first()) else {
            return None;
        };
        let tile = &self.layout.tiles(&self.cuts, comm.rank())[0];
        let places = |sink: &mut dyn FnMut(usize, usize)| {
            for (row, entries) in block.matrix().outer_iterator().enumerate() {
                entries.indices().iter().for_each(|&col| sink(tile.rows.start + row, tile.cols.start + col as usize));
            }
        };
        let (mut rows, mut cols) = (vec![0u64; self.header.rows], vec![0u64; self.header.cols]);
        places(&mut |i, j| {
            rows[i] += 1;
            cols[j] += 1;
        });
        comm.sum(COUNTS, &mut rows);
        comm.sum(COUNTS, &mut cols);
        Some(EntryPattern::collect(comm, ranks, (rows, cols), &places))
    }
}

/// Refuses a matrix whose entries are all zero.
///
/// # Errors
/// If all entries are zero.
pub fn check_nonzero(statistics: &Statistics) -> Result<()> {
    if statistics.nonzeros > 0 {
        return Ok(());
    }
    Err(Error::input("all entries of the matrix are zero: there is nothing to factorise"))
}

/// Checks the largest entry, by which `--scale max` divides.
///
/// # Errors
/// If the entries cannot be divided by the largest one.
pub fn check_largest<T: Real>(largest: f64) -> Result<f64> {
    // Smaller entries have fewer digits.
    let least = T::min_positive_value().as_f64() / T::epsilon().as_f64();
    match largest {
        _ if largest <= 0.0 => Err(Error::input("--scale max: the matrix has no positive entry to divide by")),
        _ if T::NAME != f64::NAME && largest < least => Err(Error::input(format!(
            "--scale max: the largest entry is smaller than {least:.0e}, and entries so small lose digits in {}; use --precision f64 with it",
            T::NAME
        ))),
        _ => Ok(largest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_entry_must_have_all_digits() {
        assert_eq!(check_largest::<f64>(1e-300).unwrap(), 1e-300);
        assert_eq!(check_largest::<f32>(1e-30).unwrap(), 1e-30);
        let refused = |found: Result<f64>| found.unwrap_err().message;
        assert!(refused(check_largest::<f32>(1e-40)).contains("lose digits in f32; use --precision f64"));
        assert!(refused(check_largest::<f32>(0.0)).contains("no positive entry"));
    }
}
