//! The rows of a matrix in batches, for methods that visit a part of the data at a time ([`Batches`]).
//!
//! A batch takes consecutive rows from each of [`PLACES`] equal parts of the matrix. Files are often sorted, by sample or by
//! class, and neighbouring rows represent the matrix badly. Rows of a class may come back at equal distances, so each part begins
//! with another share of its rows. Each rank has a part of each batch, because ranks own consecutive rows. The batches depend on
//! the shape only.

use std::ops::Range;
use std::time::Instant;

use fednmf_base::error::SharedResult;
use fednmf_comm::Communicator;
use fednmf_data::{PASS, Panels};
use fednmf_linalg::{Block, Order, Real, even_part};

use crate::decision::Decision;
use crate::parameters::Auto;

/// Places of the matrix from which a batch takes rows; fewer if a batch has fewer rows.
pub const PLACES: usize = 16;

/// The least rows of a batch whose size is not given, and the batches in a pass over a matrix with more.
const LEAST_ROWS: usize = 1024;
const IN_A_PASS: usize = 20;

/// The fractional parts of multiples of the golden ratio are spread evenly.
const GOLDEN_RATIO: f64 = 1.618_033_988_749_895;

/// Rows of a batch of a matrix with m rows.
pub fn rows_of_batch(size: Auto<usize>, m: usize) -> usize {
    size.given().unwrap_or_else(|| LEAST_ROWS.max(m.div_ceil(IN_A_PASS))).min(m.max(1))
}

/// The rows of each batch of about `size` of m rows, as ranges in ascending order.
pub fn schedule(m: usize, size: usize) -> Vec<Vec<Range<usize>>> {
    let (count, places) = (m.div_ceil(size), PLACES.min(size));
    let part = |place: usize, batch: usize| {
        let all = even_part(m, places, place);
        let first = (count as f64 * (place as f64 * GOLDEN_RATIO).fract()) as usize;
        let rows = even_part(all.len(), count, (first + batch) % count);
        all.start + rows.start..all.start + rows.end
    };
    let of_batch = |batch| {
        let mut all: Vec<Range<usize>> = Vec::new();
        for rows in (0..places).map(|place| part(place, batch)).filter(|rows| !rows.is_empty()) {
            match all.last_mut() {
                Some(last) if last.end == rows.start => last.end = rows.end,
                _ => all.push(rows),
            }
        }
        all
    };
    (0..count).map(of_batch).collect()
}

/// The number of batches of about `size` of m rows.
pub fn count(m: usize, size: usize) -> usize {
    m.div_ceil(size)
}

/// The part of a batch on one rank: its rows, counted from the rank's first row.
type Parts = Vec<Range<usize>>;

enum Rows<T: Real> {
    InMemory(Block<T>),
    /// The panels of the file, and their number for each batch.
    InFile(Panels<T>, Vec<usize>),
}

/// A rank's rows, in batches.
pub struct Batches<T: Real> {
    rows: Rows<T>,
    batches: Vec<Parts>,
    /// Rows of each batch on all ranks.
    sizes: Vec<usize>,
    order: Order,
    /// Batches since the last full pass over a file, and the seconds that they took.
    since_pass: (usize, f64),
}

impl<T: Real> Batches<T> {
    /// Batches of about `size` of m rows, of which this rank has the rows `own` in its block or in its panels.
    pub fn new(block: Option<Block<T>>, panels: Option<Panels<T>>, own: &Range<usize>, m: usize, size: usize) -> Self {
        let all = schedule(m, size);
        let sizes = all.iter().map(|batch| batch.iter().map(ExactSizeIterator::len).sum()).collect();
        let of_rank = |rows: &Range<usize>| {
            let rows = rows.start.max(own.start)..rows.end.min(own.end);
            (!rows.is_empty()).then(|| rows.start - own.start..rows.end - own.start)
        };
        let batches: Vec<Parts> = all.iter().map(|batch| batch.iter().filter_map(of_rank).collect()).collect();
        let rows = match panels {
            Some(panels) => Rows::InFile(panels, Vec::new()),
            None => Rows::InMemory(block.expect("a rank has one block, or panels")),
        };
        let order = match &rows {
            Rows::InMemory(block) => block.order(),
            Rows::InFile(panels, _) => panels.empty_block().order(),
        };
        let mut batches = Batches { rows, batches, sizes, order, since_pass: (0, 0.0) };
        batches.start_at(0);
        batches
    }

    /// Number of batches.
    pub fn count(&self) -> usize {
        self.batches.len()
    }

    /// Rows of a batch on all ranks.
    pub fn rows(&self, batch: usize) -> usize {
        self.sizes[batch]
    }

    /// The batch of an iteration.
    pub fn of_iteration(&self, iteration: usize) -> usize {
        iteration % self.count()
    }

    /// All batches in cyclic order, from that of an iteration on.
    pub fn from_iteration(&self, iteration: usize) -> impl Iterator<Item = usize> + use<T> {
        let first = self.of_iteration(iteration);
        (first..self.count()).chain(0..first)
    }

    /// ρ, by which a batch multiplies statistics that lose the factor `forget` in a pass over all rows.
    pub fn forgetting(&self, forget: f64, batch: usize) -> f64 {
        forget.powf(self.rows(batch) as f64 / self.all_rows() as f64)
    }

    /// Rows of all batches on all ranks.
    pub fn all_rows(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// The most rows that [`Batches::visit`] passes at a time.
    pub fn longest(&self) -> usize {
        match &self.rows {
            Rows::InMemory(_) => self.batches.iter().flatten().map(ExactSizeIterator::len).max().unwrap_or(0),
            Rows::InFile(panels, _) => panels.rows(),
        }
    }

    /// The memory order of factors and right-hand sides.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Whether each pass reads a file.
    pub fn is_streamed(&self) -> bool {
        matches!(self.rows, Rows::InFile(..))
    }

    /// The decision to record in trace and output; `None` if the data are in memory.
    pub fn decision(&self) -> Option<Decision> {
        match &self.rows {
            Rows::InMemory(_) => None,
            Rows::InFile(panels, _) => Some(Decision::Streamed { panels: panels.count(), rows: panels.rows() }),
        }
    }

    /// Makes `batch` the next one to visit.
    pub fn start_at(&mut self, batch: usize) {
        if let Rows::InFile(panels, counts) = &mut self.rows {
            let parts: Parts = self.batches.iter().flatten().cloned().collect();
            let each = panels.reorder(&parts, self.batches[..batch].iter().map(Vec::len).sum());
            let mut each = each.into_iter();
            *counts = self.batches.iter().map(|parts| each.by_ref().take(parts.len()).sum()).collect();
        }
    }

    /// Calls `f` with rows of this rank in `batch`, counted from its first row, the block in which they are, and their place
    /// in that block. Batches are visited in cyclic order. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn visit(
        &mut self,
        comm: &Communicator,
        batch: usize,
        mut f: impl FnMut(Range<usize>, &Block<T>, Range<usize>),
    ) -> SharedResult<()> {
        match &mut self.rows {
            Rows::InMemory(block) => {
                self.batches[batch].iter().for_each(|rows| f(rows.clone(), block, rows.clone()));
                Ok(())
            }
            Rows::InFile(panels, counts) => {
                let begin = Instant::now();
                let read = panels.read_next(comm, counts[batch], |rows, block| {
                    let within = 0..rows.len();
                    f(rows, block, within);
                    Ok(())
                });
                let (batches, seconds) = &mut self.since_pass;
                (*batches, *seconds) = (*batches + 1, *seconds + begin.elapsed().as_secs_f64());
                if *batches == self.batches.len() {
                    comm.record_span(PASS, *seconds);
                    self.since_pass = (0, 0.0);
                }
                comm.agree_on_error(read).map(drop)
            }
        }
    }

    /// Calls `f` with all rows of this rank, counted from its first one, and the block that they are: at once if they are in
    /// memory, else a panel at a time. The next batch to visit stays the same. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn visit_all(&mut self, comm: &Communicator, mut f: impl FnMut(Range<usize>, &Block<T>)) -> SharedResult<()> {
        match &mut self.rows {
            Rows::InMemory(block) => {
                f(0..block.shape().0, block);
                Ok(())
            }
            Rows::InFile(panels, _) => {
                let read = panels.pass(comm, |rows, block| {
                    f(rows, block);
                    Ok(())
                });
                comm.agree_on_error(read).map(drop)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_partition_the_rows_and_come_from_everywhere() {
        for (m, size) in [(1, 1), (5, 1), (10, 3), (48, 5), (1000, 100), (1000, 999), (1000, 1000), (7, 100), (4096, 1)]
        {
            let batches = schedule(m, size);
            assert_eq!(batches.len(), count(m, size));
            let mut all: Vec<usize> = batches.iter().flatten().cloned().flatten().collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..m), "{m} {size}");
            let sizes: Vec<usize> = batches.iter().map(|b| b.iter().map(ExactSizeIterator::len).sum()).collect();
            assert!(sizes.iter().all(|rows| (1..=size + PLACES).contains(rows)), "{m} {size} {sizes:?}");
        }
        let whole = schedule(1000, 1000);
        assert!(whole.len() == 1 && whole[0].len() == 1 && whole[0][0] == (0..1000), "{whole:?}");
        let spread = &schedule(1600, 160)[4];
        assert!(spread.len() == PLACES && spread.iter().all(|rows| rows.len() == 10), "{spread:?}");
    }

    /// Rows of six classes, one after the other, that come back in each 1800 rows: as samples in one file.
    #[test]
    fn classes_that_come_back_at_equal_distances_are_in_every_batch() {
        let class = |row: usize| row / 300 % 6;
        for batch in schedule(14_400, 128) {
            let mut found: Vec<usize> = batch.into_iter().flatten().map(class).collect();
            found.sort_unstable();
            found.dedup();
            assert!(found.len() >= 5, "{found:?}");
        }
    }

    /// The parts of all ranks are the batch, wherever ranks are cut.
    #[test]
    fn ranks_share_the_batches() {
        let m = 100;
        let mut seen = vec![Vec::new(); count(m, 30)];
        for own in [0..37, 37..38, 38..38, 38..100] {
            let x = Block::Dense(ndarray::Array2::<f64>::zeros((own.len(), 2)).into());
            let mut batches = Batches::new(Some(x), None, &own, m, 30);
            for (batch, seen) in seen.iter_mut().enumerate() {
                batches
                    .visit(&Communicator::local(), batch, |rows, _, within| {
                        assert_eq!(rows, within);
                        seen.extend(own.start + rows.start..own.start + rows.end);
                    })
                    .unwrap();
                assert_eq!(
                    batches.rows(batch),
                    schedule(m, 30)[batch].iter().map(ExactSizeIterator::len).sum::<usize>()
                );
            }
        }
        for (mut seen, batch) in seen.into_iter().zip(schedule(m, 30)) {
            seen.sort_unstable();
            assert!(seen.into_iter().eq(batch.into_iter().flatten()));
        }
    }
}
