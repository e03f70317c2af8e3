//! Loads an opened input: entries, `--suppress-rare`, `--scale`, `--binarize` and statistics.

use std::collections::BTreeSet;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::units::counted;
use fednmf_base::warning::note;
use fednmf_comm::Communicator;
use fednmf_data::NanRemedy;
use fednmf_data::assemble::{Combine, Entries, LocalBlock};
use fednmf_data::layout::Layout;
use fednmf_data::loaded::{Loaded, check_largest, check_nonzero};
use fednmf_data::memory;
use fednmf_data::messages::STATISTICS;
use fednmf_data::policy::rounded;
use fednmf_data::quantile::upper_quantile;
use fednmf_data::rare;
use fednmf_data::statistics::{Statistics, largest};
use fednmf_data::synthetic::PlantedTiles;
use fednmf_data::tally::Tally;
use fednmf_data::traffic::GridChooser;
use fednmf_linalg::Real;

use crate::distribute::files;
use crate::distribute::request::{LocalBlocks, Request};
use crate::distribute::synthesize::synthesize;
use crate::formats::options::{Repeated, TableFormat, TableOptions};
use crate::open::{Input, Origin};
use crate::spec::{Scale, Source, Threshold, is_rounded};

/// Checks this rank's entries as they were read, before anything about them is shared, and again once they are zeros and ones.
pub type EntryCheck<'a, T> = &'a dyn Fn(&[Entries<'_, T>]) -> Result<()>;

impl Input {
    /// Reads the entries and brings its blocks in `layout` to each rank, in bounded rounds: no rank ever holds
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
    ) -> SharedResult<Loaded<T>> {
        let loaded = self.load_any(layout, comm, progress)?;
        check_nonzero(&loaded.statistics).map_err(Error::on_all_ranks)?;
        Ok(loaded)
    }

    /// As [`Input::load`], but accepts a matrix of zeros.
    pub fn load_any<T: Real>(
        self,
        layout: &Layout,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> SharedResult<Loaded<T>> {
        self.load_checked(layout, None, None, comm, progress)
    }

    /// As [`Input::load_any`]; of a sparse matrix the grid in `layout` may be replaced by one of as many ranks that `choose`
    /// prefers, and `check` may refuse this rank's entries. Collective.
    ///
    /// # Errors
    /// As [`Input::load_any`], and on all ranks if `check` refuses on any.
    pub fn load_checked<T: Real>(
        self,
        layout: &Layout,
        choose: Option<GridChooser>,
        check: Option<EntryCheck<'_, T>>,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> SharedResult<Loaded<T>> {
        let copies = self.header.copies_while_loading(layout, size_of::<T>());
        let need = copies * self.least_bytes(layout, comm, size_of::<T>());
        match self.spec.kept {
            // The need follows from the number of entries, which stays with the party.
            true => memory::check_own(need, self.spec.memory, comm)?,
            false => memory::check(need, self.spec.memory, comm)?,
        }
        let policy = self.spec.entry_policy();
        let combine = if self.spec.table.repeated == Repeated::Mean { Combine::Mean } else { Combine::Sum };
        let request = Request {
            comm,
            header: &self.header,
            layout,
            choose,
            transpose: self.spec.transpose,
            policy,
            combine,
            counts_zeros: self.spec.table.format == TableFormat::Triples,
        };
        let local = match &self.origin {
            Origin::Synthetic(spec) => synthesize(spec, &request, progress),
            Origin::Files { files, by_position } => files::read((files, *by_position), &request, progress),
        };
        let LocalBlocks { layout, grids, cuts, mut blocks, mut tallies, duplicates, stored_zeros } = local?;
        self.check_repeated(duplicates).map_err(Error::on_all_ranks)?;
        // If two blocks overlap, the first covers the matrix once.
        let once = if matches!(layout, Layout::RowsAndColumns { .. }) { 1 } else { blocks.len() };
        let of_columns = matches!(layout, Layout::PartyColumns { .. });
        blocks = comm.agree_on_error(self.own_blocks(blocks, of_columns, check))?;
        // A mark counts whatever its size, of which squares might leave the range of numbers.
        let marks = self.spec.nan_remedy == NanRemedy::Mark;
        if marks {
            let values = blocks.iter_mut().flat_map(LocalBlock::values_mut);
            values.filter(|x| **x != T::zero()).for_each(|x| *x = T::one());
        }
        let of_parties = matches!(layout, Layout::PartyRows { .. } | Layout::PartyColumns { .. });
        let hosted = if of_parties { blocks.len() } else { 1 };
        let divisor = self.rescale(comm, &mut blocks, hosted)?;
        let threshold = self.binarize(comm, &mut blocks, once)?;
        if self.spec.binarize.is_some() {
            blocks = blocks.into_iter().map(LocalBlock::without_zeros).collect();
            blocks = comm.agree_on_error(self.own_blocks(blocks, of_columns, check))?;
        }
        if marks || divisor.is_some() || threshold.is_some() || self.spec.suppress.is_some() {
            tallies = layout.tiles(&cuts, comm.rank()).iter().map(Tally::new).collect();
        }
        tallies.truncate(once);
        progress(1.0);
        let shape = (self.header.rows, self.header.cols);
        let blocks_once = &blocks[..once];
        let (statistics, fingerprints) = match &layout {
            Layout::PartyRows { parties, .. } | Layout::PartyColumns { parties, .. } => {
                Statistics::of_parties(comm, (*parties, self.spec.sharing), blocks_once, tallies, shape)?
            }
            _ => Statistics::compute(comm, blocks_once, tallies, shape)?,
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

    /// This rank's blocks without rare entries, if they are suppressed, which a note says here alone; and checked.
    fn own_blocks<T: Real>(
        &self,
        blocks: Vec<LocalBlock<T>>,
        of_columns: bool,
        check: Option<EntryCheck<'_, T>>,
    ) -> Result<Vec<LocalBlock<T>>> {
        let blocks = match self.spec.suppress {
            Some(least) => {
                let suppressed = blocks.into_iter().map(|block| rare::suppress(block, of_columns, least));
                let (blocks, changed): (Vec<_>, Vec<_>) = suppressed.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                // Several parties of a rank may change the same column.
                let changed: BTreeSet<usize> = changed.into_iter().flatten().collect();
                let (all, what) = (changed.len(), if of_columns { ["row", "rows"] } else { ["column", "columns"] });
                let changed = counted(all, what[0], what[1]);
                note(&format!(
                    "--suppress-rare changed {changed} before anything was computed from them; no file is changed"
                ));
                blocks
            }
            None => blocks,
        };
        if let Some(check) = check {
            let entries: Vec<Entries<'_, T>> = blocks.iter().map(LocalBlock::entries).collect();
            check(&entries)?;
        }
        Ok(blocks)
    }

    /// Refuses triples that name a pair more than once, unless it was said what that means.
    fn check_repeated(&self, duplicates: u64) -> Result<()> {
        let TableOptions { format, repeated, .. } = self.spec.table;
        let Source::File { path, .. } = &self.spec.source else { return Ok(()) };
        if duplicates == 0 || format != TableFormat::Triples || repeated != Repeated::Refuse {
            return Ok(());
        }
        Err(Error::input(format!(
            "{path}: {duplicates} of the triples name a user and an item that an earlier one names; --repeated mean averages \
             their values, as of ratings, --repeated sum adds them up, as of events"
        )))
    }

    /// Bytes that this rank's blocks take at least, with entries of `word` bytes: those of its own files if these stay here,
    /// otherwise those of equal shares.
    pub fn least_bytes(&self, layout: &Layout, comm: &Communicator, word: usize) -> f64 {
        if !(self.spec.kept && self.spec.by_party()) {
            return self.header.least_bytes(layout, comm.size(), word);
        }
        let own = self.origin.files().iter().filter(|file| file.owner == Some(comm.rank()));
        own.filter_map(|file| file.content.as_ref()).map(|file| file.least_bytes(word)).sum()
    }

    /// The tiles behind synthetic data, transposed as the matrix is.
    fn signal(&self) -> Option<PlantedTiles> {
        let Origin::Synthetic(spec) = &self.origin else { return None };
        let PlantedTiles { rows, cols } = PlantedTiles::new(spec)?;
        Some(if self.spec.transpose { PlantedTiles { rows: cols, cols: rows } } else { PlantedTiles { rows, cols } })
    }

    /// Applies `--scale`, and returns what the entries were divided by.
    fn rescale<T: Real>(
        &self,
        comm: &Communicator,
        blocks: &mut [LocalBlock<T>],
        hosted: usize,
    ) -> SharedResult<Option<f64>> {
        let divisor = match self.spec.scale {
            Scale::None => return Ok(None),
            Scale::By(divisor) => divisor,
            Scale::Max => check_largest::<T>(largest(comm, blocks, hosted)).map_err(Error::on_all_ranks)?,
        };
        blocks.iter_mut().flat_map(LocalBlock::values_mut).for_each(|x| *x = rounded(x.as_f64() / divisor));
        Ok(Some(divisor))
    }

    /// Applies `--binarize`, and returns its threshold. The first `once` blocks cover the matrix once.
    fn binarize<T: Real>(
        &self,
        comm: &Communicator,
        blocks: &mut [LocalBlock<T>],
        once: usize,
    ) -> SharedResult<Option<f64>> {
        let Some(threshold) = self.spec.binarize else { return Ok(None) };
        let (word, kind) = (size_of::<T>(), self.header.values);
        let threshold = match threshold.for_entries(word, kind) {
            Threshold::At(t) => t,
            Threshold::Quantile(q) => {
                let values = || blocks[..once].iter().flat_map(LocalBlock::values).map(|x| x.as_f64());
                let shape = (self.header.rows, self.header.cols);
                let found = upper_quantile(values, |counts| comm.sum(STATISTICS, counts), q, shape);
                let least = found.map_err(Error::on_all_ranks)?;
                // The next f32, from which `evaluate` finds the same entries.
                let single = least as f32;
                match is_rounded(word, kind) {
                    true if f64::from(single) < least => single.next_up().into(),
                    true => single.into(),
                    false => least,
                }
            }
        };
        let one = |x: T| if x.as_f64() >= threshold { T::one() } else { T::zero() };
        blocks.iter_mut().flat_map(LocalBlock::values_mut).for_each(|x| *x = one(*x));
        Ok(Some(threshold))
    }
}
