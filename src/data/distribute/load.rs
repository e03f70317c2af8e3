//! From an opened input to each rank's blocks.

use ndarray::Array2;

use super::dense;
use crate::comm::{Communicator, even_part};
use crate::data::distribute::assemble::{Builder, Local, zeros};
use crate::data::distribute::deal::deal;
use crate::data::distribute::dense::Sheet;
use crate::data::distribute::quantile::upper;
use crate::data::distribute::route::Route;
use crate::data::distribute::statistics::{extremes, statistics};
use crate::data::distribute::triplets::{Delivery, Source, Triplets};
use crate::data::formats::file::Body;
use crate::data::formats::number::{Rule, place};
use crate::data::open::{Input, Origin, Placed};
use crate::data::partition::{Cuts, Plan, Tile, whole};
use crate::data::spec::{Scale, Threshold};
use crate::data::split::Share;
use crate::data::synthetic::{Generator, Synthetic, Tiles};
use crate::data::{COUNTS, Loaded, STATISTICS};
use crate::error::{Error, Result};
use crate::linalg::Real;

/// This rank's blocks while they are made, and where the matrix was cut.
struct Cut<T: Real> {
    cuts: Cuts,
    blocks: Vec<Local<T>>,
    duplicates: u64,
}

impl Input {
    /// Reads the entries and brings each rank the blocks that `plan` asks for, in bounded rounds: nobody ever holds more
    /// than its own blocks and its share of the file. `{party}` files are read by their owners, and where the plan gives
    /// each party its file no entry is sent at all. `progress` is called with the share that is done.
    ///
    /// # Errors
    /// The same on all ranks: a file that does not hold what it should, entries that are not finite, or negative where
    /// that is not allowed, a matrix of zeros only.
    pub fn load<T: Real>(self, plan: &Plan, comm: &Communicator, progress: &mut dyn FnMut(f64)) -> Result<Loaded<T>> {
        let loaded = self.load_any(plan, comm, progress)?;
        if loaded.statistics.nonzeros == 0 {
            return Err(
                Error::input("the matrix has no entry that is not zero: there is nothing to factorise").on_all_ranks()
            );
        }
        Ok(loaded)
    }

    /// As [`Input::load`], zeros too.
    pub(crate) fn load_any<T: Real>(
        self,
        plan: &Plan,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Loaded<T>> {
        self.bring(plan, comm, progress).map_err(Error::on_all_ranks)
    }

    fn bring<T: Real>(self, plan: &Plan, comm: &Communicator, progress: &mut dyn FnMut(f64)) -> Result<Loaded<T>> {
        let made = match &self.origin {
            Origin::Synthetic(spec) => self.synthesize(spec, plan, comm, progress),
            Origin::Files(files) => self.read(files, plan, comm, progress),
        }?;
        let Cut { cuts, mut blocks, duplicates } = made;
        // The first block of two that overlap covers the matrix once.
        let once = if matches!(plan, Plan::RowsAndColumns { .. }) { 1 } else { blocks.len() };
        let threshold = self.rescale(comm, &mut blocks, once)?;
        if self.spec.binarize.is_some() {
            blocks = blocks.into_iter().map(Local::without_zeros).collect();
        }
        let tiles = plan.tiles(&cuts, comm.rank());
        progress(1.0);
        let statistics = statistics(comm, &blocks[..once], &tiles[..once], (self.header.rows, self.header.cols))?;
        let signal = self.signal();
        Ok(Loaded {
            header: self.header,
            statistics,
            duplicates,
            cuts,
            blocks: blocks.into_iter().map(Local::finish).collect(),
            signal,
            threshold,
        })
    }

    /// The tiles of made-up data, as the matrix is handed over.
    fn signal(&self) -> Option<Tiles> {
        let Origin::Synthetic(spec) = &self.origin else { return None };
        let Tiles { rows, cols } = Tiles::new(spec)?;
        Some(if self.spec.transpose { Tiles { rows: cols, cols: rows } } else { Tiles { rows, cols } })
    }

    fn rule(&self) -> Rule {
        Rule { allow_negative: self.spec.allow_negative, allow_nan: self.spec.allow_nan }
    }

    /// `--scale` and `--binarize`; the first `once` blocks cover the matrix once. The threshold, if there is one.
    fn rescale<T: Real>(&self, comm: &Communicator, blocks: &mut [Local<T>], once: usize) -> Result<Option<f64>> {
        if self.spec.scale == Scale::Max {
            let (_, largest) = extremes(comm, blocks);
            if largest.is_nan() || largest <= 0.0 {
                return Err(Error::input("--scale max: the matrix has no positive entry to divide by"));
            }
            blocks.iter_mut().flat_map(Local::values_mut).for_each(|x| *x = T::from_f64(x.as_f64() / largest));
        }
        let Some(threshold) = self.spec.binarize else { return Ok(None) };
        let threshold = match threshold {
            Threshold::At(t) => t,
            Threshold::Quantile(q) => {
                let values = || blocks[..once].iter().flat_map(Local::values).map(|x| x.as_f64());
                upper(values, |counts| comm.sum(STATISTICS, counts), q, (self.header.rows, self.header.cols))?
            }
        };
        let one = |x: T| if x.as_f64() >= threshold { T::one() } else { T::zero() };
        blocks.iter_mut().flat_map(Local::values_mut).for_each(|x| *x = one(*x));
        Ok(Some(threshold))
    }

    /// Makes this rank's tiles on the spot.
    fn synthesize<T: Real>(
        &self,
        spec: &Synthetic,
        plan: &Plan,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Cut<T>> {
        let generator = Generator::new(spec);
        let (rows, cols) = (self.header.rows, self.header.cols);
        // Tiles are of the matrix handed over; the generator knows the one that is not transposed.
        let turn = self.spec.transpose;
        if !spec.sparse() {
            let cuts = plan.cuts(rows, cols, None, None);
            let tiles = plan.tiles(&cuts, comm.rank());
            let mut blocks = Vec::with_capacity(tiles.len());
            let result = tiles.iter().enumerate().try_for_each(|(done, tile)| {
                let part = |share: f64| progress((done as f64 + share) / tiles.len() as f64);
                blocks.push(self.fill(&generator, tile, turn, part)?);
                Ok(())
            });
            comm.agree_on_error(result)?;
            return Ok(Cut { cuts, blocks, duplicates: 0 });
        }
        let cuts = if balances(plan, comm) {
            let share = even_part(spec.m, comm.size(), comm.rank());
            let (mut by_row, mut by_col) = (vec![0u64; spec.m], vec![0u64; spec.n]);
            generator.entries(share, 0..spec.n, &mut |i, j, _| {
                by_row[i] += 1;
                by_col[j] += 1;
            });
            comm.sum(COUNTS, &mut by_row);
            comm.sum(COUNTS, &mut by_col);
            let (by_row, by_col) = if turn { (by_col, by_row) } else { (by_row, by_col) };
            plan.cuts(rows, cols, Some(&by_row), Some(&by_col))
        } else {
            plan.cuts(rows, cols, None, None)
        };
        let tiles = plan.tiles(&cuts, comm.rank());
        let mut blocks = Vec::with_capacity(tiles.len());
        let result = tiles.iter().enumerate().try_for_each(|(done, tile)| {
            let (rows, cols) = if turn { (&tile.cols, &tile.rows) } else { (&tile.rows, &tile.cols) };
            let mut entries = 0;
            generator.entries(rows.clone(), cols.clone(), &mut |_, _, _| entries += 1);
            let mut builder = Builder::sparse(tile, entries);
            generator.entries(rows.clone(), cols.clone(), &mut |i, j, value| {
                let (i, j) = if turn { (j, i) } else { (i, j) };
                builder.push(i, j, T::from_f64(value));
            });
            blocks.push(builder.finish()?.0);
            progress((done + 1) as f64 / tiles.len() as f64);
            Ok(())
        });
        comm.agree_on_error(result)?;
        Ok(Cut { cuts, blocks, duplicates: 0 })
    }

    /// A tile of a dense synthetic matrix.
    fn fill<T: Real>(
        &self,
        generator: &Generator,
        tile: &Tile,
        turn: bool,
        mut progress: impl FnMut(f64),
    ) -> Result<Local<T>> {
        // Rows made between two looks at negative entries and two reports.
        const STEP: usize = 256;
        let mut block: Array2<T> = zeros(tile);
        let mut view = block.view_mut();
        if tile.transposed != turn {
            view = view.reversed_axes(); // now rows × cols of the generator's matrix
        }
        let (first_row, first_col) =
            if turn { (tile.cols.start, tile.rows.start) } else { (tile.rows.start, tile.cols.start) };
        let rows = view.nrows();
        for (step, mut part) in view.axis_chunks_iter_mut(ndarray::Axis(0), STEP).enumerate() {
            let row = first_row + step * STEP;
            generator.fill(row, first_col, &mut part);
            if !self.spec.allow_negative
                && let Some(((i, j), x)) = part.indexed_iter().find(|(_, x)| **x < T::zero())
            {
                let place = place(row + i, first_col + j);
                return Err(Error::input(format!(
                    "the made-up entry in {place} is {x}: negative, and the factorisation is of nonnegative matrices"
                )));
            }
            progress(((step + 1) * STEP).min(rows) as f64 / rows as f64);
        }
        Ok(Local::Dense(block))
    }

    fn read<T: Real>(
        &self,
        files: &[Placed],
        plan: &Plan,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Cut<T>> {
        let own_cuts = self.party_cuts(files, plan)?;
        let at_home = own_cuts.is_some() || comm.size() == 1;
        let (m, n) = (self.header.rows, self.header.cols);
        if !files.iter().any(|f| f.info.scattered()) {
            let cuts = own_cuts.unwrap_or_else(|| plan.cuts(m, n, None, None));
            let blocks = self.read_dense(files, plan, &cuts, at_home, comm, progress)?;
            return Ok(Cut { cuts, blocks, duplicates: 0 });
        }
        let entries = self.read_entries::<T>(files, comm, &mut |share| progress(0.6 * share))?;
        let cuts = match own_cuts {
            Some(cuts) => cuts,
            None if self.header.sparse && balances(plan, comm) => {
                let (by_row, by_col) = entries.counts(comm, m, n);
                plan.cuts(m, n, Some(&by_row), Some(&by_col))
            }
            None => plan.cuts(m, n, None, None),
        };
        let tiles = plan.tiles(&cuts, comm.rank());
        let delivery = Delivery { comm, at_home, sparse: self.header.sparse, tiles: &tiles };
        let routes = Route::all(plan, &cuts);
        let mut source = Source(entries, false);
        let mut blocks = Vec::with_capacity(tiles.len());
        let mut duplicates = 0;
        for (pass, route) in routes.iter().enumerate() {
            source.1 = pass + 1 == routes.len();
            let share = |x: f64| 0.6 + 0.4 * (pass as f64 + x) / routes.len() as f64;
            let made = delivery.deliver(route, &mut source, &mut |x| progress(share(x)));
            let (made, more) = comm.agree_on_error(made)?;
            blocks.extend(made);
            if pass == 0 {
                duplicates = more;
            }
        }
        let mut all = [duplicates];
        comm.sum(COUNTS, &mut all);
        Ok(Cut { cuts, blocks, duplicates: all[0] })
    }

    /// The cuts between parties, where the plan gives each its own file.
    fn party_cuts(&self, files: &[Placed], plan: &Plan) -> Result<Option<Cuts>> {
        let (parties, share, by_rows) = match plan {
            Plan::PartyRows { parties, share } => (parties, share, true),
            Plan::PartyColumns { parties, share } => (parties, share, false),
            _ => return Ok(None),
        };
        let stacked_alike = files
            .iter()
            .all(|f| if by_rows { f.cols.len() == self.header.cols } else { f.rows.len() == self.header.rows });
        if self.header.files.is_none() || !stacked_alike {
            return Ok(None);
        }
        if files.len() != parties.count {
            return Err(Error::input(format!("{} files for {} parties", files.len(), parties.count)));
        }
        if *share != Share::Even {
            return Err(Error::input("--skew, --split: the parties' files say how much of the data each has"));
        }
        let (m, n) = (self.header.rows, self.header.cols);
        Ok(Some(if by_rows {
            Cuts { rows: files.iter().map(|f| f.rows.clone()).collect(), cols: whole(n) }
        } else {
            Cuts { rows: whole(m), cols: files.iter().map(|f| f.cols.clone()).collect() }
        }))
    }

    fn read_dense<T: Real>(
        &self,
        files: &[Placed],
        plan: &Plan,
        cuts: &Cuts,
        at_home: bool,
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Local<T>>> {
        let sheets: Vec<Sheet> = files
            .iter()
            .map(|file| {
                let parts = file.readers(comm);
                let shares = file.info.shares(parts).into_iter().enumerate();
                Sheet {
                    rows: file.rows.clone(),
                    cols: file.cols.clone(),
                    by_columns: file.info.by_columns() != self.spec.transpose,
                    plain: !matches!(file.info.body, Body::Dataset(_)),
                    readers: shares.map(|(part, share)| (file.owner.unwrap_or(part), share)).collect(),
                }
            })
            .collect();
        let tiles = plan.tiles(cuts, comm.rank());
        let open = |sheet: usize, share: std::ops::Range<usize>| {
            let file = &files[sheet];
            let parts = file.readers(comm);
            let part = if parts == 1 { 0 } else { comm.rank() };
            file.info.lines(part, parts, share, self.rule())
        };
        dense::deliver(comm, at_home, &Route::all(plan, cuts), &tiles, &sheets, open, progress)
    }

    /// This rank's share of the entries of scattered files.
    fn read_entries<T: Real>(
        &self,
        files: &[Placed],
        comm: &Communicator,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Triplets<T>> {
        let mut entries = Triplets::new();
        let mut mine = Ok(());
        for file in files {
            let rule = self.rule();
            let turn = self.spec.transpose;
            let mut sink = |i: usize, j: usize, value: f64| {
                if value != 0.0 {
                    let value = rule.entry::<T>(value).map_err(|why| format!("the entry in {} {why}", place(i, j)))?;
                    let (i, j) = if turn { (j, i) } else { (i, j) };
                    entries.push(file.rows.start + i, file.cols.start + j, value);
                }
                Ok(())
            };
            let parts = file.readers(comm);
            match file.owner {
                // Owners read on their own, and agree when all are done.
                Some(owner) if owner == comm.rank() && mine.is_ok() => {
                    let found = file.info.entries(0, 1, &mut sink, progress);
                    mine = found.and_then(|found| file.info.check_count(found));
                }
                Some(_) => {}
                None if parts == 1 && comm.size() > 1 => deal(file, comm, &mut sink, progress)?,
                None => {
                    let part = if parts == 1 { 0 } else { comm.rank() };
                    let reads = comm.rank() < parts;
                    let found = if reads { file.info.entries(part, parts, &mut sink, progress) } else { Ok(0) };
                    let mut total = [comm.agree_on_error(found)?];
                    comm.sum(COUNTS, &mut total);
                    file.info.check_count(total[0])?;
                }
            }
        }
        comm.agree_on_error(mine)?;
        Ok(entries)
    }
}

impl Placed {
    /// How many ranks read it.
    fn readers(&self, comm: &Communicator) -> usize {
        if self.owner.is_none() && self.info.divisible() { comm.size() } else { 1 }
    }
}

/// Whether counts of entries decide where the matrix is cut.
fn balances(plan: &Plan, comm: &Communicator) -> bool {
    comm.size() > 1 && !matches!(plan, Plan::PartyRows { .. } | Plan::PartyColumns { .. })
}
