//! Work and traffic of the ranks of each possible grid for a sparse matrix, counted from the positions of its entries before
//! these are distributed.
//!
//! Rows and columns are cut into as many parts as there are ranks. The parts of a coarser grid are unions of these, so the
//! pairs (column, part of the rows) and (row, part of the columns) that have entries determine the traffic of all grids.
//! A rank collects the pairs of one part of the columns and of one part of the rows: a bit for each of its lines and each
//! rank, about m + n bits. It adds up the traffic of these lines for each grid.

use std::collections::BTreeMap;
use std::ops::Range;

use fednmf_comm::{Communicator, even_part};

use crate::layout::{Cuts, Layout};
use crate::messages::{COUNTS, ENTRIES};

/// The traffic of one factor on a grid for one gather or one sum, which exchange the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct SideTraffic {
    /// Ranks that share the rows of a block.
    pub group_size: usize,
    /// Maximum number of rows of its block that a rank does not own: what it receives if all rows are sent.
    pub lacking: u64,
    /// Rows that the busiest rank sends or receives if only referenced rows are sent.
    pub touched: u64,
    /// Maximum number of messages of a rank, if only referenced rows are sent.
    pub messages: u64,
    /// Rows and messages of all ranks together, each counted once.
    pub all_touched: u64,
    pub all_messages: u64,
}

/// The busiest rank's share of an iteration on a grid of pr × pc ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct GridTraffic {
    pub pr: usize,
    pub pc: usize,
    /// Entries of the largest block.
    pub entries: u64,
    pub u: SideTraffic,
    pub v: SideTraffic,
}

/// Chooses one of several grids, by its index. All ranks call it with the same numbers and must make the same choice.
pub type GridChooser<'a> = &'a dyn Fn(&[GridTraffic]) -> usize;

/// Calls its argument with the row and the column, in the whole matrix, of each entry that this rank has read.
pub type Places<'a> = &'a dyn Fn(&mut dyn FnMut(usize, usize));

/// Number of rows of a factor that one rank owns and another rank's block references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Transfer {
    pub owner: usize,
    pub needs: usize,
    pub rows: u64,
}

/// Pairs that a rank sends at once.
const ROUND: usize = 1 << 17;

/// The positions of a sparse matrix's entries, at the resolution that the grids of a number of ranks need.
pub struct EntryPattern {
    /// Entries in each row and each column.
    pub counts: (Vec<u64>, Vec<u64>),
    /// The possible grids in descending order of pr, and the number of entries in each block that this rank has read.
    grids: Vec<((usize, usize), Vec<u64>)>,
    of_v: Pairs,
    of_u: Pairs,
}

impl EntryPattern {
    /// The pattern for grids of `ranks` ranks, which may differ from the size of `comm`. `counts` are the entries in each
    /// row and column of the matrix; each rank passes the positions of those that it has read as `places`. Collective.
    pub fn collect(comm: &Communicator, ranks: usize, counts: (Vec<u64>, Vec<u64>), places: Places) -> Self {
        let finest = cuts(&counts, (ranks, ranks));
        let (part_of_row, part_of_col) = (parts(&finest.rows), parts(&finest.cols));
        let shapes = (1..=ranks).rev().filter(|pr| ranks.is_multiple_of(*pr)).map(|pr| (pr, ranks / pr));
        let mut grids: Vec<_> = shapes.map(|shape| (shape, vec![0u64; ranks])).collect();
        let mut once = [Once::new(part_of_col.len()), Once::new(part_of_row.len())];
        let mut rounds = [0u64; 2];
        places(&mut |i, j| {
            let (row, col) = (part_of_row[i], part_of_col[j]);
            for ((pr, pc), entries) in &mut grids {
                entries[row as usize / *pc * *pc + col as usize / *pr] += 1;
            }
            rounds[0] += u64::from(once[0].is_new(j, row));
            rounds[1] += u64::from(once[1].is_new(i, col));
        });
        drop(once);
        rounds.iter_mut().for_each(|pairs| *pairs = pairs.div_ceil(ROUND as u64));
        comm.max(COUNTS, &mut rounds);
        let of_v = Pairs::collect(comm, &finest.cols, rounds[0], |sink| places(&mut |i, j| sink(j, part_of_row[i])));
        let of_u = Pairs::collect(comm, &finest.rows, rounds[1], |sink| places(&mut |i, j| sink(i, part_of_col[j])));
        EntryPattern { counts, grids, of_v, of_u }
    }

    /// Work and traffic on each grid, in descending order of pr. Collective.
    pub fn traffic(&self, comm: &Communicator) -> Vec<GridTraffic> {
        let ranks = self.grids[0].1.len();
        // For each grid: entries by rank, then for V and for U rows received and sent, and messages received and sent.
        let mut sums = vec![0u64; self.grids.len() * 9 * ranks];
        for (&((pr, pc), ref entries), sums) in self.grids.iter().zip(sums.chunks_exact_mut(9 * ranks)) {
            let Cuts { rows, cols } = cuts(&self.counts, (pr, pc));
            let (own, sides) = sums.split_at_mut(ranks);
            own.copy_from_slice(entries);
            let (v, u) = sides.split_at_mut(4 * ranks);
            self.of_v.add(comm, (&cols, pr), &|col, row| row * pc + col, v);
            self.of_u.add(comm, (&rows, pc), &|row, col| row * pc + col, u);
        }
        comm.sum(COUNTS, &mut sums);
        let traffic = self.grids.iter().zip(sums.chunks_exact(9 * ranks)).map(|(&((pr, pc), _), sums)| {
            let of = |which: usize| &sums[which * ranks..(which + 1) * ranks];
            let most = |which: usize| of(which).iter().copied().max().unwrap_or(0);
            let Cuts { rows, cols } = cuts(&self.counts, (pr, pc));
            let side = |blocks: &[Range<usize>], group_size: usize, first: usize| SideTraffic {
                group_size,
                lacking: blocks.iter().map(|block| (block.len() - block.len() / group_size) as u64).max().unwrap_or(0),
                touched: most(first).max(most(first + 1)),
                messages: most(first + 2).max(most(first + 3)),
                all_touched: of(first).iter().sum(),
                all_messages: of(first + 2).iter().sum(),
            };
            GridTraffic { pr, pc, entries: most(0), v: side(&cols, pr, 1), u: side(&rows, pc, 5) }
        });
        traffic.collect()
    }

    /// The transfers of rows of V, and of U, between each pair of ranks on a grid; one per message. Collective.
    pub fn transfers(&self, comm: &Communicator, (pr, pc): (usize, usize)) -> [Vec<Transfer>; 2] {
        let Cuts { rows, cols } = cuts(&self.counts, (pr, pc));
        [
            self.of_v.transfers(comm, (&cols, pr), &|col, row| row * pc + col),
            self.of_u.transfers(comm, (&rows, pc), &|row, col| row * pc + col),
        ]
    }
}

/// The cuts of a grid for a matrix with these numbers of entries in each row and column.
fn cuts((rows, cols): &(Vec<u64>, Vec<u64>), (pr, pc): (usize, usize)) -> Cuts {
    Layout::Grid { pr, pc }.cuts(rows.len(), cols.len(), Some(rows), Some(cols))
}

/// The part to which each line belongs.
fn parts(cuts: &[Range<usize>]) -> Vec<u32> {
    cuts.iter().enumerate().flat_map(|(part, lines)| std::iter::repeat_n(part as u32, lines.len())).collect()
}

/// Removes consecutive duplicates: consecutive entries of a line are mostly in the same part.
struct Once {
    last: Vec<u32>,
}

impl Once {
    fn new(lines: usize) -> Self {
        Once { last: vec![u32::MAX; lines] }
    }

    fn is_new(&mut self, line: usize, part: u32) -> bool {
        std::mem::replace(&mut self.last[line], part) != part
    }
}

/// For some lines (columns or rows), the parts of the other dimension in which they have entries. Each rank holds the lines
/// of a run of parts.
struct Pairs {
    /// The lines of each rank.
    of_ranks: Vec<Range<usize>>,
    own: Range<usize>,
    /// Number of parts of each dimension.
    parts: usize,
    /// Bytes of the bit set of each own line.
    width: usize,
    bits: Vec<u8>,
}

/// The lines of a block that one rank owns.
struct Source {
    block: usize,
    owner: usize,
    lines: Range<usize>,
}

impl Pairs {
    /// Collects the pairs of this rank's share of the lines in `rounds` rounds. `pairs` passes the pairs that this rank has
    /// read. Collective.
    fn collect(
        comm: &Communicator,
        cuts: &[Range<usize>],
        rounds: u64,
        pairs: impl FnOnce(&mut dyn FnMut(usize, u32)),
    ) -> Self {
        let of_rank = |rank| {
            let parts = &cuts[even_part(cuts.len(), comm.size(), rank)];
            parts.first().map_or(0, |part| part.start)..parts.last().map_or(0, |part| part.end)
        };
        let of_ranks: Vec<Range<usize>> = (0..comm.size()).map(of_rank).collect();
        let own = of_ranks[comm.rank()].clone();
        let width = cuts.len().div_ceil(8);
        let lines = cuts.last().map_or(0, |part| part.end);
        let mut collected = Pairs { of_ranks, parts: cuts.len(), width, bits: vec![0; own.len() * width], own };
        let mut once = Once::new(lines);
        let mut outgoing = vec![Vec::<u64>::new(); comm.size()];
        let (mut waiting, mut left) = (0, rounds);
        pairs(&mut |line, part| {
            if once.is_new(line, part) {
                outgoing[collected.holder(line)].push((line as u64) << 32 | u64::from(part));
                waiting += 1;
            }
            if waiting == ROUND {
                collected.exchange(comm, &mut outgoing);
                (waiting, left) = (0, left - 1);
            }
        });
        // Sends the remaining pairs, then takes part in the rounds of ranks that have more.
        (0..left).for_each(|_| collected.exchange(comm, &mut outgoing));
        collected
    }

    /// Sends pairs to the ranks that collect them, and receives those of this rank's lines. Collective.
    fn exchange(&mut self, comm: &Communicator, outgoing: &mut [Vec<u64>]) {
        for pair in comm.all_to_all(ENTRIES, outgoing) {
            self.set((pair >> 32) as usize, (pair & 0xffff_ffff) as usize);
        }
        outgoing.iter_mut().for_each(Vec::clear);
    }

    fn set(&mut self, line: usize, part: usize) {
        self.bits[(line - self.own.start) * self.width + part / 8] |= 1 << (part % 8);
    }

    /// The rank that holds a line.
    fn holder(&self, line: usize) -> usize {
        self.of_ranks.partition_point(|lines| lines.end <= line)
    }

    /// The owners of this rank's lines, if each block of lines is shared by `group_size` ranks.
    fn sources(&self, blocks: &[Range<usize>], group_size: usize) -> impl Iterator<Item = Source> {
        let here = |lines: &Range<usize>| lines.start.max(self.own.start) < lines.end.min(self.own.end);
        let blocks = blocks.iter().enumerate().filter(move |(_, lines)| here(lines));
        let sources = blocks.flat_map(move |(block, lines)| {
            (0..group_size).map(move |owner| {
                let share = even_part(lines.len(), group_size, owner);
                Source { block, owner, lines: lines.start + share.start..lines.start + share.end }
            })
        });
        sources.filter(move |source| here(&source.lines))
    }

    /// For each of this rank's lines in a source, calls `f` with each sharer, except the owner, that has entries in it.
    fn needed(&self, source: &Source, group_size: usize, mut f: impl FnMut(usize)) {
        // Parts of the other dimension in the block of one sharer.
        let finest = self.parts / group_size;
        for line in source.lines.start.max(self.own.start)..source.lines.end.min(self.own.end) {
            let at = (line - self.own.start) * self.width;
            let mut last = source.owner;
            for sharer in set_bits(&self.bits[at..at + self.width]).map(|part| part / finest) {
                // The parts ascend, so those of one sharer follow one another.
                if sharer != last && sharer != source.owner {
                    f(sharer);
                }
                last = sharer;
            }
        }
    }

    /// Adds the traffic of this rank's lines to `sums`: rows received and sent, then messages received and sent, by rank.
    /// Each of the `blocks` of lines is shared by `group_size` ranks, `rank(block, sharer)`. Collective.
    fn add(
        &self,
        comm: &Communicator,
        (blocks, group_size): (&[Range<usize>], usize),
        rank: &dyn Fn(usize, usize) -> usize,
        sums: &mut [u64],
    ) {
        if group_size == 1 {
            return;
        }
        let width = group_size.div_ceil(8);
        let mut outgoing = vec![Vec::<u8>::new(); comm.size()];
        let mut open = None;
        let finish = |sums: &mut [u64], source: &Source, needs: &[u8]| {
            for sharer in set_bits(needs) {
                sums[2 * self.parts + rank(source.block, sharer)] += 1;
                sums[3 * self.parts + rank(source.block, source.owner)] += 1;
            }
        };
        for source in self.sources(blocks, group_size) {
            let mut needs = vec![0u8; width];
            self.needed(&source, group_size, |sharer| {
                sums[rank(source.block, sharer)] += 1;
                sums[self.parts + rank(source.block, source.owner)] += 1;
                needs[sharer / 8] |= 1 << (sharer % 8);
            });
            // If several ranks count lines of one owner, these are one message; the rank with the first line counts it.
            if source.lines.start < self.own.start {
                outgoing[self.holder(source.lines.start)].extend(&needs);
            } else if source.lines.end > self.own.end {
                open = Some((source, needs));
            } else {
                finish(sums, &source, &needs);
            }
        }
        let arrived = comm.all_to_all(ENTRIES, &outgoing);
        if let Some((source, mut needs)) = open {
            for more in arrived.chunks_exact(width) {
                needs.iter_mut().zip(more).for_each(|(all, more)| *all |= more);
            }
            finish(sums, &source, &needs);
        }
    }

    /// See [`EntryPattern::transfers`].
    fn transfers(
        &self,
        comm: &Communicator,
        (blocks, group_size): (&[Range<usize>], usize),
        rank: &dyn Fn(usize, usize) -> usize,
    ) -> Vec<Transfer> {
        let mut all = BTreeMap::<(usize, usize), u64>::new();
        if group_size > 1 {
            for source in self.sources(blocks, group_size) {
                let owner = rank(source.block, source.owner);
                self.needed(&source, group_size, |sharer| {
                    *all.entry((owner, rank(source.block, sharer))).or_default() += 1
                });
            }
        }
        let own: Vec<_> = all.into_iter().collect();
        let mut all = BTreeMap::<(usize, usize), u64>::new();
        for (pair, rows) in comm.all_gather_value(COUNTS, &own).into_iter().flatten() {
            *all.entry(pair).or_default() += rows;
        }
        all.into_iter().map(|((owner, needs), rows)| Transfer { owner, needs, rows }).collect()
    }
}

/// The positions of the ones, ascending.
fn set_bits(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).flat_map(|(at, &byte)| {
        let mut left = byte;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(8 * at + bit)
        })
    })
}
