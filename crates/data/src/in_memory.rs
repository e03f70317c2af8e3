//! Blocks that the caller has in memory, in place of a file: for programs that use fednmf as a library, in one process.

use std::sync::Arc;

use ndarray::ArrayView1;

use fednmf_base::error::{Error, Result};
use fednmf_comm::{Communicator, Parties};
use fednmf_linalg::{Block, CsrMatrix, Dense, Real, owned_rows};

use crate::Loaded;
use crate::assemble::{Entries, LocalBlock};
use crate::header::{Header, check_dimensions};
use crate::layout::{Layout, Tile};
use crate::loaded::check_nonzero;
use crate::panels::{Panels, RowSource};
use crate::policy::{EntryPolicy, position};
use crate::rare;
use crate::split::PartySplit;
use crate::statistics::{Sharing, Statistics};
use crate::tally::Tally;

/// A matrix in memory. A borrowed row-major matrix is not copied, except by methods that need both row and column blocks.
pub enum Matrix<T: Real> {
    Dense(Dense<T>),
    /// Compressed sparse rows with ascending columns.
    Sparse(CsrMatrix<T>),
}

impl<T: Real> Matrix<T> {
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Matrix::Dense(x) => x.dim(),
            Matrix::Sparse(x) => x.shape(),
        }
    }

    pub fn is_sparse(&self) -> bool {
        matches!(self, Matrix::Sparse(_))
    }

    /// The matrix as a block, if its entries are accepted.
    ///
    /// # Errors
    /// If an entry is negative or not finite; the message names it. If there are too many rows or columns.
    pub fn checked_block(self) -> Result<Block<T>> {
        check_dimensions(self.shape(), self.is_sparse())?;
        self.check(0, EntryPolicy::default())?;
        Ok(self.into_block().finish())
    }

    fn into_block(self) -> LocalBlock<T> {
        match self {
            Matrix::Dense(x) => LocalBlock::Dense(by_rows(x)),
            Matrix::Sparse(x) => LocalBlock::Sparse(x),
        }
    }

    fn transposed(&self) -> Self {
        match self {
            // The transpose of a borrowed column-major matrix is row-major, and needs no copy.
            Matrix::Dense(x) if x.is_view() => Matrix::Dense(by_rows(x.clone().reversed_axes())),
            Matrix::Dense(x) => Matrix::Dense(x.t().as_standard_layout().into_owned().into()),
            Matrix::Sparse(x) => Matrix::Sparse(owned_rows(x.to_csc().transpose_into())),
        }
    }

    /// The matrix as a panel of rows from `first` on, if its entries are accepted.
    ///
    /// # Errors
    /// If an entry is not; the message names it.
    pub fn checked_panel(self, first: usize, policy: EntryPolicy) -> Result<LocalBlock<T>> {
        self.check(first, policy)?;
        Ok(self.into_block())
    }

    fn check(&self, first: usize, policy: EntryPolicy) -> Result<()> {
        let refused = match self {
            Matrix::Dense(x) => {
                let (rows, columns) = x.dim();
                let turned = x.t();
                if let Some(all) = x.as_slice() {
                    policy.first_refused(all).map(|(at, why)| (at / columns, at % columns, why))
                } else if let Some(all) = turned.as_slice() {
                    policy.first_refused(all).map(|(at, why)| (at % rows, at / rows, why))
                } else {
                    let in_row = |row: ArrayView1<'_, T>| policy.first_refused(&row.to_vec());
                    x.outer_iter().enumerate().find_map(|(i, row)| in_row(row).map(|(j, why)| (i, j, why)))
                }
            }
            Matrix::Sparse(x) => policy.first_refused(x.data()).map(|(at, why)| {
                let row = x.indptr().raw_storage().partition_point(|&start| start <= at) - 1;
                (row, x.indices()[at] as usize, why)
            }),
        };
        refused
            .map_or(Ok(()), |(i, j, why)| Err(Error::input(format!("the entry in {} {why}", position(first + i, j)))))
    }
}

impl<T: Real> Loaded<T> {
    /// The loaded data of a method with this layout, from one matrix or the blocks of all parties in order; with `suppress`, rare
    /// entries of parties get the usual value ([`rare`]). Parties share their statistics as `sharing` says. For one process.
    ///
    /// # Errors
    /// If there is no entry, the policy refuses one, all are zero, the blocks do not fit together, or there are too many
    /// rows or columns.
    pub fn in_memory(
        parts: Vec<Matrix<T>>,
        layout: &Layout,
        policy: EntryPolicy,
        (suppress, sharing): (Option<usize>, Sharing),
        comm: &Communicator,
    ) -> Result<Self> {
        parts.iter().try_for_each(|part| check_dimensions(part.shape(), part.is_sparse()))?;
        for (party, part) in parts.iter().enumerate() {
            let named = |e: Error| if parts.len() > 1 { e.at(format!("part {party}")) } else { e };
            part.check(0, policy).map_err(named)?;
        }
        let by_columns = matches!(layout, Layout::PartyColumns { .. });
        let shapes = || parts.iter().map(Matrix::shape);
        let lengths: Vec<usize> = shapes().map(|(m, n)| if by_columns { n } else { m }).collect();
        let common = shapes().map(|(m, n)| if by_columns { m } else { n }).next().unwrap_or(0);
        let differs = |(m, n): (usize, usize)| (if by_columns { m } else { n }) != common;
        if let Some(party) = shapes().position(differs) {
            let what = if by_columns { "rows" } else { "columns" };
            return Err(Error::input(format!(
                "party {party} has another number of {what} than party 0, which has {common}"
            )));
        }
        let total = lengths.iter().sum();
        let (rows, cols) = if by_columns { (common, total) } else { (total, common) };
        if rows == 0 || cols == 0 {
            return Err(Error::input(format!("the matrix is {rows} x {cols}: there is nothing to factorise")));
        }
        let sparse = parts.iter().any(Matrix::is_sparse);
        check_dimensions((rows, cols), sparse)?;
        let stored = parts.iter().map(|part| if let Matrix::Sparse(x) = part { x.nnz() as u64 } else { 0 }).sum();
        let layout = match layout.clone() {
            Layout::PartyRows { parties, .. } => Layout::PartyRows { parties, split: PartySplit::Counts(lengths) },
            Layout::PartyColumns { parties, .. } => {
                Layout::PartyColumns { parties, split: PartySplit::Counts(lengths) }
            }
            other => other,
        };
        let cuts = layout.cuts(rows, cols, None, None);
        let mut parts = parts;
        if matches!(layout, Layout::RowsAndColumns { .. }) {
            let transposed: Vec<_> = parts.iter().map(Matrix::transposed).collect();
            parts.splice(0..0, transposed);
        }
        let once = if matches!(layout, Layout::RowsAndColumns { .. }) { 1 } else { parts.len() };
        let blocks = parts.into_iter().map(Matrix::into_block);
        let blocks: Vec<_> = match suppress {
            Some(least) => {
                blocks.map(|block| Ok(rare::suppress(block, by_columns, least)?.0)).collect::<Result<_>>()?
            }
            None => blocks.collect(),
        };
        let tallies = layout.tiles(&cuts, comm.rank())[..once].iter().map(Tally::new).collect();
        let (once, shape) = (&blocks[..once], (rows, cols));
        let (statistics, fingerprints) = match layout {
            Layout::PartyRows { parties, .. } | Layout::PartyColumns { parties, .. } => {
                Statistics::of_parties(comm, (parties, sharing), once, tallies, shape)?
            }
            _ => Statistics::compute(comm, once, tallies, shape)?,
        };
        check_nonzero(&statistics)?;
        let header = Header::in_memory(shape, sparse, Some(stored));
        let blocks = blocks.into_iter().map(LocalBlock::finish).collect();
        Ok(Loaded {
            header,
            statistics,
            duplicates: 0,
            stored_zeros: 0,
            layout,
            grids: Vec::new(),
            cuts,
            blocks,
            panels: None,
            signal: None,
            threshold: None,
            divisor: None,
            fingerprints,
        })
    }
}

impl<T: Real> Loaded<T> {
    /// A matrix of `rows` rows that the caller has elsewhere, and of which each pass reads `at_once` rows after the other. For one
    /// process.
    ///
    /// # Errors
    /// As [`Loaded::in_memory`], and if the source fails.
    pub fn in_panels(source: Arc<dyn RowSource<T>>, rows: usize, at_once: usize, comm: &Communicator) -> Result<Self> {
        let (cols, sparse) = (source.cols(), source.is_sparse());
        check_dimensions((rows, cols), sparse)?;
        if rows == 0 || cols == 0 {
            return Err(Error::input(format!("the matrix is {rows} x {cols}: there is nothing to factorise")));
        }
        let panels = (0..rows).step_by(at_once.max(1)).map(|first| first..rows.min(first + at_once.max(1)));
        let mut panels = Panels::new(source, 0, panels.collect());
        let statistics = Statistics::of_passes::<T>(comm, (rows, cols), |add| {
            let read = panels.pass(comm, |rows, block| {
                if let Some(entries) = Entries::of(block) {
                    add(entries, &Tile { rows, cols: 0..cols, transposed: false });
                }
                Ok(())
            });
            comm.agree_on_error(read.map(drop))
        })?;
        check_nonzero(&statistics)?;
        let layout = Layout::Grid { pr: 1, pc: 1 };
        Ok(Loaded {
            header: Header::in_memory((rows, cols), sparse, Some(statistics.nonzeros)),
            statistics,
            duplicates: 0,
            stored_zeros: 0,
            cuts: layout.cuts(rows, cols, None, None),
            layout,
            grids: Vec::new(),
            blocks: Vec::new(),
            panels: Some(panels),
            signal: None,
            threshold: None,
            divisor: None,
            fingerprints: Vec::new(),
        })
    }
}

/// The same matrix in row-major order; copied if it was stored otherwise.
fn by_rows<T: Real>(x: Dense<T>) -> Dense<T> {
    if x.is_standard_layout() { x } else { x.as_standard_layout().into_owned().into() }
}

/// Parties that are all in this process.
pub fn parties_in_memory(count: usize) -> Parties {
    Parties { count, ranks: 1 }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array0, CowArray};

    use super::*;
    use crate::header::MAX_DIMENSION;

    #[test]
    fn a_dimension_of_more_than_31_bits_is_refused() {
        let one: &'static Array0<f64> = Box::leak(Box::new(ndarray::arr0(1.0)));
        let large = || Matrix::Dense(CowArray::from(one.broadcast((MAX_DIMENSION + 1, 1)).unwrap()));
        assert_eq!(
            large().checked_block().err().unwrap().message,
            "2147483648 × 1: a dense matrix may have up to 2147483647 rows and columns"
        );
        let layout = Layout::RowsAndColumns { ranks: 1 };
        let refused = Loaded::in_memory(
            vec![large()],
            &layout,
            EntryPolicy::default(),
            (None, Sharing::Clear),
            &Communicator::local(),
        );
        assert!(refused.err().unwrap().message.contains("2147483647 rows"));
    }
}
