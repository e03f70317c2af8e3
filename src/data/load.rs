//! Loads an opened input: entries, `--scale`, `--binarize` and statistics.

use crate::comm::Communicator;
use crate::data::distribute::assemble::LocalBlock;
use crate::data::distribute::files;
use crate::data::distribute::quantile::upper_quantile;
use crate::data::distribute::request::{LocalBlocks, Request};
use crate::data::distribute::statistics::{Statistics, largest};
use crate::data::distribute::synthesize::synthesize;
use crate::data::distribute::traffic::{EntryPattern, GridChooser, GridTraffic};
use crate::data::header::Header;
use crate::data::layout::{Cuts, Layout};
use crate::data::memory;
use crate::data::messages::{COUNTS, STATISTICS};
use crate::data::open::{Input, Origin};
use crate::data::panels::Panels;
use crate::data::spec::{Scale, Threshold};
use crate::data::synthetic::PlantedTiles;
use crate::error::{Error, Result};
use crate::linalg::{Block, Real};

/// One rank's part of a matrix.
pub struct Loaded<T: Real> {
    pub header: Header,
    pub statistics: Statistics,
    /// Entries that were added to another one in the same position; where each party has its file, those of this rank's.
    pub duplicates: u64,
    /// Zeros that the input stores; where each party has its file, those of this rank's.
    pub stored_zeros: u64,
    /// How the matrix is cut: as was asked for, but for a grid that was chosen by the entries.
    pub layout: Layout,
    /// What the ranks of each grid would exchange, where one was chosen.
    pub grids: Vec<GridTraffic>,
    pub cuts: Cuts,
    /// This rank's blocks, in the order of its tiles; none where `panels` are read instead.
    pub blocks: Vec<Block<T>>,
    /// This rank's rows, where they are read from the file in each pass.
    pub panels: Option<Panels<T>>,
    /// The Boolean matrix behind synthetic data of kind `tiles`.
    pub signal: Option<PlantedTiles>,
    /// The value from which on entries became ones, with `--binarize`.
    pub threshold: Option<f64>,
    /// What the entries were divided by, with `--scale`.
    pub divisor: Option<f64>,
    /// A hash of each of this rank's blocks. Those of a party's data must not leave it.
    pub fingerprints: Vec<u64>,
}

impl<T: Real> Loaded<T> {
    /// A copy in another precision, of blocks alone. The statistics stay those of this one.
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

    /// A copy for another factorisation, without what the blocks prepared for their products. There are no copies of
    /// panels.
    #[must_use]
    pub fn copy(&self) -> Self {
        Loaded {
            header: self.header.clone(),
            layout: self.layout.clone(),
            grids: self.grids.clone(),
            cuts: self.cuts.clone(),
            blocks: self.blocks.iter().map(Block::copy).collect(),
            panels: None,
            signal: self.signal.clone(),
            fingerprints: self.fingerprints.clone(),
            ..*self
        }
    }
}

impl<T: Real> Loaded<T> {
    /// Where a sparse matrix that is cut into blocks of a grid has entries, for grids of `ranks` ranks. `None` for dense data
    /// and other layouts. Collective.
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

impl Input {
    /// Reads the entries and brings the blocks that `layout` asks for to each rank, in bounded rounds: no rank ever holds
    /// more than its own blocks and its part of the file. `{party}` files are read by their owners; where the layout gives
    /// each party its own file, no entry is sent. `progress` is called with the fraction that is done.
    ///
    /// # Errors
    /// The same on all ranks: a file that does not hold what it should, entries that are not finite, or negative where
    /// that is not accepted, or a matrix of zeros.
    pub fn load<T: Real>(
        self,
        layout: &Layout,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Loaded<T>> {
        self.load_on_grid(layout, None, comm, progress)
    }

    /// As [`Input::load`]; of a sparse matrix the grid in `layout` may be replaced by one of as many ranks that `choose`
    /// prefers. Collective.
    ///
    /// # Errors
    /// As [`Input::load`].
    pub fn load_on_grid<T: Real>(
        self,
        layout: &Layout,
        choose: Option<GridChooser>,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Loaded<T>> {
        let loaded = self.try_load(layout, choose, comm, progress).map_err(Error::on_all_ranks)?;
        check_any(&loaded.statistics).map_err(Error::on_all_ranks)?;
        Ok(loaded)
    }

    /// As [`Input::load`], but accepts a matrix of zeros.
    pub(crate) fn load_any<T: Real>(
        self,
        layout: &Layout,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Loaded<T>> {
        self.try_load(layout, None, comm, progress).map_err(Error::on_all_ranks)
    }

    fn try_load<T: Real>(
        self,
        layout: &Layout,
        choose: Option<GridChooser>,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Loaded<T>> {
        memory::check(self.least_bytes::<T>(layout, comm.size()), self.spec.memory, comm)?;
        let policy = self.spec.policy();
        let request = Request { comm, header: &self.header, layout, choose, transpose: self.spec.transpose, policy };
        let local = match &self.origin {
            Origin::Synthetic(spec) => synthesize(spec, &request, progress),
            Origin::Files(files) => files::read(files, &request, progress),
        };
        let LocalBlocks { layout, grids, cuts, mut blocks, duplicates, stored_zeros } = local?;
        // Of two blocks that overlap, the first covers the matrix once.
        let once = if matches!(layout, Layout::RowsAndColumns { .. }) { 1 } else { blocks.len() };
        let divisor = self.rescale(comm, &mut blocks)?;
        let threshold = self.binarize(comm, &mut blocks, once)?;
        if self.spec.binarize.is_some() {
            blocks = blocks.into_iter().map(LocalBlock::without_zeros).collect();
        }
        let tiles = layout.tiles(&cuts, comm.rank());
        progress(1.0);
        let shape = (self.header.rows, self.header.cols);
        let (blocks_once, tiles) = (&blocks[..once], &tiles[..once]);
        let (statistics, fingerprints) = match &layout {
            Layout::PartyRows { parties, .. } | Layout::PartyColumns { parties, .. } => {
                Statistics::of_parties(comm, (*parties, self.spec.masked), blocks_once, tiles, shape)?
            }
            _ => Statistics::compute(comm, blocks_once, tiles, shape)?,
        };
        let signal = self.signal();
        let blocks = blocks.into_iter().map(LocalBlock::finish).collect();
        Ok(Loaded {
            header: self.header,
            statistics,
            duplicates,
            stored_zeros,
            layout,
            grids,
            cuts,
            blocks,
            panels: None,
            signal,
            threshold,
            divisor,
            fingerprints,
        })
    }

    /// Bytes that the blocks of a rank take at least, if they are alike.
    pub fn least_bytes<T: Real>(&self, layout: &Layout, ranks: usize) -> f64 {
        let word = size_of::<T>() as f64;
        let Header { rows, cols, sparse, stored, .. } = self.header;
        let entries = if sparse { stored.map_or(0.0, |stored| stored as f64) } else { rows as f64 * cols as f64 };
        let entry = if sparse { word + size_of::<i32>() as f64 } else { word };
        let copies = if matches!(layout, Layout::RowsAndColumns { .. }) { 2.0 } else { 1.0 };
        copies * entries * entry / ranks as f64
    }

    /// The tiles behind synthetic data, transposed as the matrix is.
    fn signal(&self) -> Option<PlantedTiles> {
        let Origin::Synthetic(spec) = &self.origin else { return None };
        let PlantedTiles { rows, cols } = PlantedTiles::new(spec)?;
        Some(if self.spec.transpose { PlantedTiles { rows: cols, cols: rows } } else { PlantedTiles { rows, cols } })
    }

    /// Applies `--scale`, and returns what the entries were divided by.
    fn rescale<T: Real>(&self, comm: &Communicator, blocks: &mut [LocalBlock<T>]) -> Result<Option<f64>> {
        let divisor = match self.spec.scale {
            Scale::None => return Ok(None),
            Scale::By(divisor) => divisor,
            Scale::Max => check_largest(largest(comm, blocks))?,
        };
        blocks.iter_mut().flat_map(LocalBlock::values_mut).for_each(|x| *x = T::from_f64(x.as_f64() / divisor));
        Ok(Some(divisor))
    }

    /// Applies `--binarize`, and returns its threshold. The first `once` blocks cover the matrix once.
    fn binarize<T: Real>(&self, comm: &Communicator, blocks: &mut [LocalBlock<T>], once: usize) -> Result<Option<f64>> {
        let Some(threshold) = self.spec.binarize else { return Ok(None) };
        let threshold = match threshold {
            Threshold::At(t) => t,
            Threshold::Quantile(q) => {
                let values = || blocks[..once].iter().flat_map(LocalBlock::values).map(|x| x.as_f64());
                let shape = (self.header.rows, self.header.cols);
                upper_quantile(values, |counts| comm.sum(STATISTICS, counts), q, shape)?
            }
        };
        let one = |x: T| if x.as_f64() >= threshold { T::one() } else { T::zero() };
        blocks.iter_mut().flat_map(LocalBlock::values_mut).for_each(|x| *x = one(*x));
        Ok(Some(threshold))
    }
}

/// Refuses a matrix of zeros.
///
/// # Errors
/// If it is one.
pub fn check_any(statistics: &Statistics) -> Result<()> {
    if statistics.nonzeros > 0 {
        return Ok(());
    }
    Err(Error::input("all entries of the matrix are zero: there is nothing to factorise"))
}

/// What `--scale max` divides by.
///
/// # Errors
/// If nothing can be divided by the largest entry.
pub fn check_largest(largest: f64) -> Result<f64> {
    if largest > 0.0 {
        Ok(largest)
    } else {
        Err(Error::input("--scale max: the matrix has no positive entry to divide by"))
    }
}
