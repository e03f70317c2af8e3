//! Copies of a matrix of counts, drawn anew around them: what other samples of the same kind might have been. A copy is a
//! function of the counts and the seed only, so it is the same on any number of ranks, in any layout, dense or sparse.

use ndarray::Array2;

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::Communicator;
use fednmf_linalg::Block;
use fednmf_linalg::random::{Purpose, Stream};

use crate::assemble::{Entries, LocalBlock};
use crate::layout::{Layout, Tile};
use crate::loaded::Loaded;
use crate::messages::STATISTICS;
use crate::policy::position;
use crate::statistics::Statistics;
use crate::tally::Tally;

fednmf_base::words! {
    /// How the counts of a copy are drawn.
    pub enum Resample {
        /// Each from the Poisson distribution whose mean is the count
        Poisson = "poisson",
        /// Those of each row with the total of the row, each in one of its columns with probability in proportion to the counts
        Multinomial = "multinomial",
    }
}

/// Larger whole numbers are not exact.
const MOST: f64 = (1u64 << 53) as f64;
/// Rounds in which a multinomial row takes Poisson numbers, with a total of [`BELOW`] standard deviations below what is left of
/// its own. The columns of the rest are drawn one by one: of 10¹⁵ counts some 200.
const ROUNDS: u128 = 3;
const BELOW: f64 = 4.0;

/// The counts of a row that are drawn together.
#[derive(Clone, Copy)]
struct Row {
    total: f64,
    /// What the rounds before have not drawn.
    left: f64,
    /// The sum of the Poisson numbers of this round.
    drawn: f64,
}

impl Row {
    fn of(total: f64) -> Self {
        Row { total, left: total, drawn: 0.0 }
    }

    /// The mean of a Poisson number for each count. Given their total, Poisson numbers are multinomial with that total.
    fn share(self) -> f64 {
        if self.total > 0.0 { (self.left - BELOW * self.left.sqrt()).max(0.0) / self.total } else { 0.0 }
    }

    /// If the Poisson numbers exceed what is left, as hardly ever, they are discarded.
    fn discards(self) -> bool {
        self.drawn > self.left
    }

    fn after_round(self) -> Self {
        let left = self.left - if self.discards() { 0.0 } else { self.drawn };
        Row { left, drawn: 0.0, ..self }
    }
}

/// Calls `f` for each stored entry of a tile, the columns of each row ascending: place among the stored values, row, column, entry.
fn for_each(entries: Entries<'_, f64>, tile: &Tile, mut f: impl FnMut(usize, usize, usize, f64)) {
    let mut at = 0;
    entries.for_each_row_of(0..entries.values().len(), |a, first, places, values| {
        for (t, &x) in values.iter().enumerate() {
            let b = places.map_or(first + t, |places| places[t] as usize);
            let (i, j) = if tile.transposed { (b, a) } else { (a, b) };
            f(at, tile.rows.start + i, tile.cols.start + j, x);
            at += 1;
        }
    });
}

impl Loaded<f64> {
    /// Checks that the entries are counts that can be resampled. Collective.
    ///
    /// # Errors
    /// On all ranks, if they are not whole numbers or too large.
    pub fn check_counts(&self, comm: &Communicator) -> SharedResult<()> {
        let tiles = self.layout.tiles(&self.cuts, comm.rank());
        let mut fraction = None;
        for (tile, entries) in tiles.iter().zip(self.blocks.iter().filter_map(Entries::of)) {
            for_each(entries, tile, |_, i, j, x| {
                if fraction.is_none() && x.fract() != 0.0 && !x.is_nan() {
                    fraction = Some(position(i, j));
                }
            });
        }
        let wrong = match fraction {
            Some(place) => format!("the entry in {place} is not a whole number"),
            None if self.statistics.sum > MOST => format!("their sum {:e} is too large", self.statistics.sum),
            None => return comm.agree_on_error(Ok(())),
        };
        comm.agree_on_error(Err(Error::input(format!(
            "only counts can be resampled, and {wrong}; give the counts before they are divided or their logarithms are taken"
        ))))
    }

    /// A copy of a matrix of counts. NaN stays NaN. `held(tile)` tells which entries of a tile are held out, if some are: they are
    /// not drawn, do not count for totals, and stay those of the same matrix. Collective.
    ///
    /// # Errors
    /// On all ranks, if no count is left.
    pub fn resampled<H: Fn(usize, usize) -> bool>(
        &self,
        how: Resample,
        seed: u64,
        held: Option<impl Fn(&Tile) -> H>,
        comm: &Communicator,
    ) -> SharedResult<Self> {
        let shape = (self.header.rows, self.header.cols);
        let tiles = self.layout.tiles(&self.cuts, comm.rank());
        let hidden: Vec<Option<H>> = tiles.iter().map(|tile| held.as_ref().map(|held| held(tile))).collect();
        let is_drawn =
            |t: usize, (i, j): (usize, usize), x: f64| x > 0.0 && !hidden[t].as_ref().is_some_and(|held| held(i, j));
        let old: Vec<Entries<'_, f64>> = self.blocks.iter().filter_map(Entries::of).collect();
        // The last tiles of all ranks cover the matrix once.
        let last = tiles.len() - 1;
        let part = self.cuts.cols.iter().position(|cols| *cols == tiles[last].cols).unwrap_or(0);
        let mut new: Vec<Vec<f64>> = old.iter().map(|entries| entries.values().to_vec()).collect();
        for (t, new) in new.iter_mut().enumerate() {
            for_each(old[t], &tiles[t], |at, i, j, x| {
                if is_drawn(t, (i, j), x) {
                    new[at] = 0.0;
                }
            });
        }
        // The Poisson number of an entry in a round, which may be drawn again.
        let poisson = |round: u128, (i, j): (usize, usize), mean: f64| {
            let index = (i as u64).wrapping_mul(shape.1 as u64).wrapping_add(j as u64);
            Stream::new(seed, Purpose::Resample, index).at(round << 96).poisson(mean)
        };
        if how == Resample::Poisson {
            for (t, new) in new.iter_mut().enumerate() {
                for_each(old[t], &tiles[t], |at, i, j, x| {
                    if is_drawn(t, (i, j), x) {
                        new[at] = poisson(0, (i, j), x);
                    }
                });
            }
        } else {
            // The total of each row in each part of the columns.
            let mut totals = Array2::<f64>::zeros((shape.0, self.cuts.cols.len()));
            for_each(old[last], &tiles[last], |_, i, j, x| {
                if is_drawn(last, (i, j), x) {
                    totals[[i, part]] += x;
                }
            });
            comm.sum(STATISTICS, totals.as_slice_mut().expect("made in row order"));
            let mut rows: Vec<Row> = totals.rows().into_iter().map(|parts| Row::of(parts.sum())).collect();
            for round in 0..ROUNDS {
                for (t, new) in new.iter_mut().enumerate() {
                    for_each(old[t], &tiles[t], |at, i, j, x| {
                        if is_drawn(t, (i, j), x) {
                            let more = poisson(round, (i, j), x * rows[i].share());
                            new[at] += more;
                            if t == last {
                                rows[i].drawn += more;
                            }
                        }
                    });
                }
                let mut drawn: Vec<f64> = rows.iter().map(|row| row.drawn).collect();
                comm.sum(STATISTICS, &mut drawn);
                rows.iter_mut().zip(drawn).for_each(|(row, drawn)| row.drawn = drawn);
                if rows.iter().any(|row| row.discards()) {
                    for (t, new) in new.iter_mut().enumerate() {
                        for_each(old[t], &tiles[t], |at, i, j, x| {
                            if rows[i].discards() && is_drawn(t, (i, j), x) {
                                new[at] -= poisson(round, (i, j), x * rows[i].share());
                            }
                        });
                    }
                }
                rows.iter_mut().for_each(|row| *row = row.after_round());
            }
            for (t, new) in new.iter_mut().enumerate() {
                let tile = &tiles[t];
                let before: Vec<bool> = self.cuts.cols.iter().map(|cols| cols.end <= tile.cols.start).collect();
                // Where each row of the tile begins among all its counts, and the places of those drawn, the largest first.
                let row = |i: usize| {
                    let parts = totals.row(i);
                    let begin: f64 = parts.iter().zip(&before).filter(|(_, before)| **before).map(|(sum, _)| sum).sum();
                    let mut cursor = Stream::new(seed, Purpose::ResampleRow, i as u64).at(0);
                    let count = rows[i].total as u64;
                    let mut places: Vec<u64> = (0..rows[i].left as u64).map(|_| cursor.below(count)).collect();
                    places.retain(|&place| place >= begin as u64);
                    places.sort_unstable_by(|a, b| b.cmp(a));
                    (begin, places)
                };
                let mut open: Vec<(f64, Vec<u64>)> = tile.rows.clone().map(row).collect();
                for_each(old[t], tile, |at, i, j, x| {
                    if is_drawn(t, (i, j), x) {
                        let (end, places) = &mut open[i - tile.rows.start];
                        *end += x;
                        while places.pop_if(|place| (*place as f64) < *end).is_some() {
                            new[at] += 1.0;
                        }
                    }
                });
            }
        }
        let blocks = self.blocks.iter().zip(new).filter_map(|(block, new)| match block {
            Block::Sparse(x) => {
                let mut copy = x.matrix().clone();
                copy.data_mut().copy_from_slice(&new);
                Some(LocalBlock::Sparse(copy).without_zeros())
            }
            Block::Dense(x) => Array2::from_shape_vec(x.dim(), new).ok().map(|copy| LocalBlock::Dense(copy.into())),
            // Counts are none.
            Block::Bits(_) => None,
        });
        let blocks: Vec<LocalBlock<f64>> = blocks.collect();
        let once = if matches!(self.layout, Layout::RowsAndColumns { .. }) { 1 } else { blocks.len() };
        let tallies = tiles[..once].iter().map(Tally::new).collect();
        let (mut statistics, fingerprints) = Statistics::compute(comm, &blocks[..once], tallies, shape)?;
        if statistics.nonzeros == 0 {
            return Err(
                Error::input("all counts of a resampled copy are zero: there is nothing to factorise").on_all_ranks()
            );
        }
        if held.is_some() {
            // The share that is held out of sparse data depends on it.
            statistics.nonzeros = self.statistics.nonzeros;
        }
        let blocks = blocks.into_iter().map(LocalBlock::finish).collect();
        Ok(self.with(statistics, blocks, fingerprints))
    }
}

#[cfg(test)]
mod tests {
    use sprs::CsMatI;

    use fednmf_linalg::owned_rows;

    use super::*;
    use crate::in_memory::Matrix;
    use crate::policy::EntryPolicy;
    use crate::statistics::Sharing;

    const SHAPE: (usize, usize) = (40, 30);

    /// Counts from 0 to 50 000, many of them 0, and a row of zeros.
    fn counts() -> Array2<f64> {
        let mut cursor = Stream::new(1, Purpose::Probe, 0).at(0);
        Array2::from_shape_fn(SHAPE, |(i, _)| {
            let x = cursor.uniform();
            if i == 7 || x < 0.5 { 0.0 } else { (10f64.powf((x - 0.5) * (i % 10) as f64)).round() }
        })
    }

    fn loaded(x: &Array2<f64>, layout: &Layout, sparse: bool) -> Loaded<f64> {
        let sparse_rows = || Matrix::Sparse(owned_rows(CsMatI::csr_from_dense(x.view(), 0.0)));
        let matrix = if sparse { sparse_rows() } else { Matrix::Dense(x.clone().into()) };
        let policy = EntryPolicy { allow_nan: true, ..EntryPolicy::default() };
        Loaded::in_memory(vec![matrix], layout, policy, (None, Sharing::Clear), &Communicator::local()).unwrap()
    }

    fn entries(loaded: &Loaded<f64>, block: usize) -> Array2<f64> {
        let mut all = Array2::zeros(SHAPE);
        let tile = &loaded.layout.tiles(&loaded.cuts, 0)[block];
        for_each(Entries::of(&loaded.blocks[block]).unwrap(), tile, |_, i, j, x| all[[i, j]] = x);
        all
    }

    type Never = fn(&Tile) -> fn(usize, usize) -> bool;

    fn drawn(x: &Array2<f64>, how: Resample, seed: u64) -> Array2<f64> {
        let loaded = loaded(x, &Layout::Grid { pr: 1, pc: 1 }, false);
        entries(&loaded.resampled(how, seed, None::<Never>, &Communicator::local()).unwrap(), 0)
    }

    #[test]
    fn a_copy_does_not_depend_on_layout_or_form() {
        let (x, comm) = (counts(), Communicator::local());
        let held = |tile: &Tile| {
            let rows = tile.rows.clone();
            move |i: usize, j: usize| rows.contains(&i) && (i + 2 * j).is_multiple_of(9)
        };
        let is_held = |(i, j): (usize, usize)| (i + 2 * j).is_multiple_of(9);
        for how in [Resample::Poisson, Resample::Multinomial] {
            let copy = |layout: &Layout, sparse| {
                let old = loaded(&x, layout, sparse);
                let new = old.resampled(how, 3, Some(held), &comm).unwrap();
                assert_eq!(new.statistics.nonzeros, old.statistics.nonzeros);
                (0..new.blocks.len()).map(|block| entries(&new, block)).collect::<Vec<_>>()
            };
            let grid = copy(&Layout::Grid { pr: 1, pc: 1 }, false).swap_remove(0);
            for (layout, sparse) in [
                (Layout::Grid { pr: 1, pc: 1 }, true),
                (Layout::RowsAndColumns { ranks: 1 }, false),
                (Layout::RowsAndColumns { ranks: 1 }, true),
            ] {
                assert!(copy(&layout, sparse).iter().all(|found| *found == grid), "{how} {layout:?} {sparse}");
            }
            assert!(grid.indexed_iter().all(|(at, y)| if is_held(at) || x[at] == 0.0 {
                *y == x[at]
            } else {
                y.fract() == 0.0
            }));
            for (old, new) in x.rows().into_iter().zip(grid.rows()) {
                assert!(
                    how == Resample::Poisson || old.sum() == new.sum(),
                    "held-out entries have no part in the total"
                );
            }
        }
    }

    /// Mean and variance of each entry over many copies.
    #[test]
    fn copies_have_the_moments_of_their_distribution() {
        let x = counts();
        for how in [Resample::Poisson, Resample::Multinomial] {
            let draws = 2000;
            let (mut sum, mut squares) = (Array2::<f64>::zeros(SHAPE), Array2::<f64>::zeros(SHAPE));
            for seed in 0..draws {
                let off = drawn(&x, how, seed) - &x;
                squares += &off.mapv(|e| e * e);
                sum += &off;
            }
            let (mut worst, mut ratios) = (0.0f64, Vec::new());
            for ((i, j), &count) in x.indexed_iter().filter(|(_, count)| **count > 0.0) {
                let share = count / x.row(i).sum();
                let variance = count * if how == Resample::Multinomial { 1.0 - share } else { 1.0 };
                worst = worst.max(sum[[i, j]].abs() / (f64::from(draws as u32) * variance).sqrt().max(1e-9));
                if variance > 5.0 {
                    ratios.push(squares[[i, j]] / f64::from(draws as u32) / variance);
                }
            }
            // The largest of some 600 standard normal numbers; a ratio has the deviation √(2 / 2000).
            assert!(worst < 5.0, "{how}: {worst}");
            assert!(ratios.len() > 100 && ratios.iter().all(|ratio| (ratio - 1.0).abs() < 0.17), "{how}: {ratios:?}");
        }
    }

    #[test]
    fn seeds_draw_other_copies_and_nan_stays() {
        let mut x = counts();
        x[[3, 4]] = f64::NAN;
        for how in [Resample::Poisson, Resample::Multinomial] {
            let copy = drawn(&x, how, 1);
            assert!(copy[[3, 4]].is_nan() && copy != drawn(&x, how, 2));
            assert_eq!(copy.mapv(f64::to_bits), drawn(&x, how, 1).mapv(f64::to_bits));
        }
    }

    #[test]
    fn what_cannot_be_resampled_is_refused() {
        let comm = Communicator::local();
        let check = |x: &Array2<f64>| loaded(x, &Layout::Grid { pr: 1, pc: 1 }, false).check_counts(&comm);
        let mut x = counts();
        assert!(check(&x).is_ok());
        x[[2, 5]] = 0.5;
        let refused = check(&x).unwrap_err().message.clone();
        assert!(refused.contains("row 2, column 5 is not a whole number"), "{refused}");
        x[[2, 5]] = 2f64.powi(54);
        assert!(check(&x).unwrap_err().message.contains("too large"));
        let one = Array2::from_shape_fn((1, 1), |_| 1.0);
        let gone = |seed| {
            let loaded = loaded(&one, &Layout::Grid { pr: 1, pc: 1 }, false);
            loaded.resampled(Resample::Poisson, seed, None::<Never>, &comm).err()
        };
        assert!((0..20).filter_map(gone).all(|e| e.message.contains("nothing to factorise")));
        assert!((0..20).filter_map(gone).count() > 2);
    }
}
