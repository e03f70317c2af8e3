//! The pr × pc grid of MPI-FAUN: rank (i, j) holds the block M_ij and a share of the rows of U_i and of V_j.
//!
//! For U's update every rank needs the whole V_j (gathered in its grid column) and the product M V. It holds one term
//! of the product for all rows of block i (summed and scattered in its grid row). V's update works the other way round.
//! With pc = 1 (1-D by rows) U is never sent and V is sent twice per iteration: 2nk words in all. If blocks are so
//! sparse that they reference few rows, only these are sent (`row_exchange`).

use std::ops::Range;

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::{Communicator, Parties};
use fednmf_data::{Cuts, GridTraffic, Layout, PartySplit, SideTraffic};
use fednmf_linalg::{Real, even_part};

use super::factor_side::{FactorSide, FactorTags};
use super::rank_data::{Occupied, RankData};
use super::row_exchange::{Exchange, Load, saves_a_quarter};
use crate::decision::Decision;
use crate::description::Partition;
use crate::parameters::{Auto, GridShape};
use crate::shared::alternating::Factor;

fednmf_base::parameters! {
    /// The grid of ranks.
    pub struct GridParams {
        /// Cut the matrix into PR x PC blocks, one for each rank (only rows: PRx1). auto: the grid that sends the fewest words. On
        /// sparse data another grid, if its busiest rank then computes and sends a quarter less
        #[affects_result = false]
        pub grid: Auto<GridShape> = Auto::Auto, "PRxPC";
        /// How ranks exchange factors and products of sparse data. dense: all rows, by collectives. sparse: only the rows that a
        /// block's nonzeros need, point to point. auto: sparse if the busiest rank then sends a quarter less
        #[affects_result = false]
        #[words_in_help = true]
        pub exchange: Exchange = Exchange::Auto, "HOW";
    }
}

/// The layout of an m × n matrix: the requested grid, or else the one that sends the fewest words if all rows of the
/// factors are exchanged.
pub fn plan(
    partition: Partition,
    (m, n): (usize, usize),
    ranks: usize,
    parties: Parties,
    share: PartySplit,
    grid: Option<GridShape>,
) -> Layout {
    match partition {
        Partition::Grid => {
            let (pr, pc) = grid.map_or_else(|| fewest_words(m, n, ranks), |grid| (grid.rows, grid.cols));
            Layout::Grid { pr, pc }
        }
        Partition::Rows => Layout::Grid { pr: ranks, pc: 1 },
        Partition::RowsAndColumns => Layout::RowsAndColumns { ranks },
        Partition::Symmetric => Layout::Grid { pr: 1, pc: ranks },
        Partition::PartyRows => Layout::PartyRows { parties, split: share },
        Partition::PartyColumns => Layout::PartyColumns { parties, split: share },
    }
}

/// The grid of `ranks` ranks, rows × columns, that sends the fewest words for an m × n matrix.
///
/// In an all-gather a rank sends and receives (pr − 1)/pr of the n/pc rows of V_j, as many again in a reduce-scatter, and
/// likewise for U. That is 2k ((pr − 1) n + (pc − 1) m)/p words in all, also for sparse data if all rows are exchanged.
/// Ties go to the grid with the most rows of ranks.
pub fn fewest_words(m: usize, n: usize, ranks: usize) -> (usize, usize) {
    let words = |pr: usize| (pr as u128 - 1) * n as u128 + ((ranks / pr) as u128 - 1) * m as u128;
    let pr = (1..=ranks).rev().filter(|pr| ranks.is_multiple_of(*pr)).min_by_key(|&pr| words(pr)).unwrap_or(ranks);
    (pr, ranks / pr)
}

/// Chooses the rank grid for a sparse matrix, once the positions of its entries are known.
#[derive(Debug, Clone, Copy)]
pub struct GridChoice {
    /// The best grid for a dense matrix of this size.
    pub by_size: (usize, usize),
    pub exchange: Exchange,
    /// Bytes of a row of a factor.
    pub row: u64,
    /// Memory in bytes for the rows of factors that a rank gathers.
    pub room: f64,
}

impl GridChoice {
    /// A choice without a limit on memory, for rows of `row` bytes and the grid `by_size`.
    pub fn of_row(row: u64, exchange: Exchange, by_size: (usize, usize)) -> Self {
        GridChoice { by_size, exchange, row, room: f64::INFINITY }
    }

    /// The index of the grid to use. It is the one by size, unless the busiest rank of another grid computes and sends a
    /// quarter less per iteration. Ties go to the first grid. Ranks that pass the same numbers make the same choice.
    pub fn choose(&self, grids: &[GridTraffic]) -> usize {
        let is_by_size = |grid: &&GridTraffic| (grid.pr, grid.pc) == self.by_size;
        let usual = grids.iter().position(|grid| is_by_size(&grid)).expect("a grid of all ranks");
        let fits = |grid: &GridTraffic| (self.gathered(grid) * self.row) as f64 <= self.room;
        let others = (0..grids.len()).filter(|&at| at != usual && fits(&grids[at]));
        match others.min_by_key(|&at| self.cost_bytes(&grids[at])) {
            Some(best) if saves_a_quarter(self.cost_bytes(&grids[best]), self.cost_bytes(&grids[usual])) => best,
            _ => usual,
        }
    }

    /// The exchange of the rows of one factor, and its load on the busiest rank.
    pub fn of_side(&self, side: &SideTraffic) -> Option<(Exchange, Load)> {
        (side.group_size > 1).then(|| {
            let dense = Load::of_collective(side.group_size, side.lacking * self.row);
            let sparse = Load { bytes: side.touched * self.row, messages: side.messages };
            match self.exchange {
                Exchange::Dense => (Exchange::Dense, dense),
                Exchange::Auto if !sparse.is_worthwhile(dense) => (Exchange::Dense, dense),
                _ => (Exchange::Sparse, sparse),
            }
        })
    }

    /// Bytes that the busiest rank sends or receives in an iteration: each factor is gathered once and summed once.
    pub fn bytes(&self, grid: &GridTraffic) -> u64 {
        [&grid.u, &grid.v].into_iter().filter_map(|side| self.of_side(side)).map(|(_, load)| 2 * load.bytes).sum()
    }

    /// Cost of half an iteration for the busiest rank, in bytes. For each entry, a product reads a row of a factor, which
    /// takes about as long as sending the row.
    fn cost_bytes(&self, grid: &GridTraffic) -> u64 {
        let sides = [&grid.u, &grid.v].into_iter().filter_map(|side| self.of_side(side));
        grid.entries * self.row + sides.map(|(_, load)| load.cost_bytes()).sum::<u64>()
    }

    /// Number of rows of both factors that a rank stores in addition to its own.
    fn gathered(&self, grid: &GridTraffic) -> u64 {
        [&grid.u, &grid.v].into_iter().filter(|side| side.group_size > 1).map(|side| side.lacking).sum()
    }
}

/// The grid: this rank's part of the data and of both factors.
pub struct Grid<T: Real> {
    /// Number of rows and columns of ranks.
    shape: (usize, usize),
    pub data: Box<dyn RankData<T>>,
    /// U, whose rows are shared by the ranks of a grid row.
    pub u: FactorSide<T>,
    /// V, whose rows are shared by the ranks of a grid column.
    pub v: FactorSide<T>,
}

/// The rows of U and of V that this rank will own in a [`Grid`] with these cuts.
pub fn own_rows(comm: &Communicator, cuts: &Cuts) -> [Range<usize>; 2] {
    let (pr, pc) = (cuts.rows.len(), cuts.cols.len());
    let (i, j) = (comm.rank() / pc, comm.rank() % pc);
    // The rows of a block row are shared by its pc ranks, in the order of their columns; likewise for columns.
    [(&cuts.rows[i], pc, j), (&cuts.cols[j], pr, i)].map(|(block, group_size, place)| {
        let part = even_part(block.len(), group_size, place);
        block.start + part.start..block.start + part.end
    })
}

impl<T: Real> Grid<T> {
    /// This rank's place in a grid with `cuts`; rank i·pc + j has block (i, j).
    pub fn new(comm: &Communicator, data: Box<dyn RankData<T>>, cuts: &Cuts, k: usize, tags: [FactorTags; 2]) -> Self {
        let pc = cuts.cols.len();
        let (i, j) = (comm.rank() / pc, comm.rank() % pc);
        let order = data.order();
        let side = |tags, color, blocks: &[Range<usize>], place: usize| {
            let (sharing, block) = (comm.split(color), &blocks[place]);
            let cuts = (0..sharing.size()).map(|r| even_part(block.len(), sharing.size(), r)).collect();
            let total = blocks.last().map_or(0, |last| last.end);
            FactorSide::new(tags, &sharing, (block, total), cuts, k, order).with_rhs().with_gathered_if_shared()
        };
        let [tags_u, tags_v] = tags;
        let (u, v) = (side(tags_u, i, &cuts.rows, i), side(tags_v, j, &cuts.cols, j));
        Grid { shape: (cuts.rows.len(), pc), data, u, v }
    }

    /// Chooses the exchange of each factor for the products that follow. Dense blocks reference all rows. Collective.
    ///
    /// # Errors
    /// If a sparse exchange of dense data is requested.
    pub fn choose_exchange(&mut self, comm: &Communicator, requested: Exchange) -> SharedResult<()> {
        match self.data.occupied() {
            Occupied::Some([rows, cols]) => {
                self.u.choose_exchange(comm, &rows, requested);
                self.v.choose_exchange(comm, &cols, requested);
                Ok(())
            }
            Occupied::All if requested == Exchange::Sparse => {
                let why = "--exchange sparse: the matrix is dense, so each rank needs all rows; leave it out";
                Err(Error::input(why).on_all_ranks())
            }
            Occupied::All | Occupied::Unknown => Ok(()),
        }
    }

    /// The shape of the grid, and the exchange of each factor whose rows are exchanged.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> {
        let exchanges = [(Factor::U, self.u.exchange()), (Factor::V, self.v.exchange())];
        let exchanges = exchanges.into_iter().filter_map(|(factor, how)| Some(Decision::Exchange(factor, how?)));
        std::iter::once(Decision::Grid(self.shape.0, self.shape.1)).chain(exchanges)
    }

    /// Right-hand side M V of U's owned rows. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn product_for_u(&mut self, comm: &Communicator) -> SharedResult<()> {
        self.data.product_for_u(comm, &mut self.u, &mut self.v)
    }

    /// Right-hand side MᵀU of V's owned rows; otherwise as [`Grid::product_for_u`].
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn product_for_v(&mut self, comm: &Communicator) -> SharedResult<()> {
        self.data.product_for_v(comm, &mut self.u, &mut self.v)
    }

    /// This rank's part of ‖M − UVᵀ‖². Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn residual2(&mut self, comm: &Communicator) -> SharedResult<f64> {
        self.data.residual2(comm, &mut self.u, &mut self.v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(pr: usize, pc: usize, entries: u64, [u, v]: [(u64, u64, u64); 2]) -> GridTraffic {
        let side = |group_size, (lacking, touched, messages)| SideTraffic {
            group_size,
            lacking,
            touched,
            messages,
            ..SideTraffic::default()
        };
        GridTraffic { pr, pc, entries, u: side(pc, u), v: side(pr, v) }
    }

    #[test]
    fn another_grid_than_that_by_size_has_to_save_a_quarter() {
        let none = (0, 0, 0);
        let grids = |rows: u64| {
            [
                traffic(4, 1, 1000, [none, (9000, rows, 2)]),
                traffic(2, 2, 1000, [(3000, 2900, 1), (3000, 2900, 1)]),
                traffic(1, 4, 1000, [(9000, 8900, 3), none]),
            ]
        };
        let choice = GridChoice { by_size: (2, 2), exchange: Exchange::Auto, row: 80, room: f64::INFINITY };
        // 1000 entries and 6000 rows of 80 bytes, and one message per doubling in collectives.
        let usual = 1000 * 80 + 2 * (3000 * 80 + 8192);
        assert_eq!(choice.cost_bytes(&grids(0)[1]), usual);
        let limit = (3 * usual / 4 - 2 * 8192 - 1000 * 80) / 80;
        assert_eq!((choice.choose(&grids(limit - 1)), choice.choose(&grids(limit + 1))), (0, 1));
        // Referenced rows make no difference to collectives.
        assert_eq!(GridChoice { exchange: Exchange::Dense, ..choice }.choose(&grids(0)), 1);
        // A sparse exchange is no use if the rows of the factor that the block needs do not fit into memory.
        assert_eq!(GridChoice { room: 80.0 * 8999.0, ..choice }.choose(&grids(0)), 1);
        assert_eq!(GridChoice { room: 80.0 * 9000.0, ..choice }.choose(&grids(0)), 0);
        // A block with all entries takes longer than all messages.
        let uneven = [traffic(4, 1, 9000, [none, (9000, 10, 2)]), grids(0)[1]];
        assert_eq!(choice.choose(&uneven), 1);
        // In an iteration a factor is gathered and summed.
        assert_eq!(choice.bytes(&grids(7)[0]), 2 * 7 * 80);
        assert_eq!(choice.bytes(&grids(7)[1]), 2 * 6000 * 80);
    }

    #[test]
    fn long_matrices_are_cut_by_rows_and_square_ones_both_ways() {
        assert_eq!(fewest_words(20_000, 2_000, 1), (1, 1));
        assert_eq!(fewest_words(20_000, 2_000, 2), (2, 1));
        assert_eq!(fewest_words(2_000, 20_000, 7), (1, 7));
        assert_eq!(fewest_words(1_000, 1_000, 16), (4, 4));
        assert_eq!(fewest_words(1_000, 1_000, 2), (2, 1));
        assert_eq!(fewest_words(4_000, 1_000, 16), (8, 2));
        assert_eq!(fewest_words(100, 100, 7), (7, 1));
    }

    #[test]
    fn no_other_grid_sends_less() {
        for (m, n) in [(37, 1000), (500, 499), (1, 9), (12, 12)] {
            for ranks in 1..40 {
                let (pr, pc) = fewest_words(m, n, ranks);
                assert_eq!(pr * pc, ranks);
                // The number of rows that rank (i, j) sends, by loops over its partners.
                let sent = |pr: usize, pc: usize| {
                    let side = |parts: usize, rows: usize| (0..parts).filter(|&p| p > 0).count() * rows;
                    side(pr, n) + side(pc, m)
                };
                let best = (1..=ranks).filter(|r| ranks % r == 0).map(|r| sent(r, ranks / r)).min();
                assert_eq!(Some(sent(pr, pc)), best, "{m} x {n} on {ranks}");
            }
        }
    }
}
