//! What the ranks of each possible grid would compute and exchange for a sparse matrix, counted from the places of its
//! entries before these are brought to the blocks.
//!
//! Rows and columns are cut into as many parts as there are ranks. The parts of a coarser grid are unions of these, so the
//! pairs (column, part of the rows) and (row, part of the columns) that have entries determine the traffic of all grids.
//! A rank collects the pairs of one part of the columns and of one part of the rows: a bit for each line that is its own
//! and each rank, so a p-th of (m + n) p bits. It adds up what the ranks of each grid would exchange of these lines.

use std::ops::Range;

use crate::comm::{Communicator, even_part};
use crate::data::layout::{Cuts, Layout};
use crate::data::messages::{COUNTS, ENTRIES};

/// What a grid's ranks exchange of one factor, in one direction and once; a gather and a sum move the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct SideTraffic {
    /// Ranks that share the rows of a block.
    pub sharers: usize,
    /// Rows of its block that a rank does not own, at most: what it receives if all rows travel.
    pub lacking: u64,
    /// Rows that the busiest rank sends or receives if those alone travel that blocks touch.
    pub touched: u64,
    /// Messages that these need, of the rank that has most.
    pub messages: u64,
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

/// Chooses one of several grids, by its index. All ranks call it with the same numbers and must decide alike.
pub type GridChooser<'a> = &'a dyn Fn(&[GridTraffic]) -> usize;

/// Passes the row and the column of each entry that this rank has read, in the matrix's own coordinates.
pub type Places<'a> = &'a dyn Fn(&mut dyn FnMut(usize, usize));

/// Pairs that a rank sends at once.
const ROUND: usize = 1 << 17;

/// The grids of all ranks of `comm`, the one with most rows first, and what is exchanged on each. The matrix has `counts`
/// entries in each row and column, and each rank passes some of them as `places`. Collective.
pub fn count(comm: &Communicator, counts: &(Vec<u64>, Vec<u64>), places: Places) -> Vec<GridTraffic> {
    let ranks = comm.size();
    let shape = (counts.0.len(), counts.1.len());
    let cuts = |pr, pc| Layout::Grid { pr, pc }.cuts(shape.0, shape.1, Some(&counts.0), Some(&counts.1));
    let finest = cuts(ranks, ranks);
    let (part_of_row, part_of_col) = (parts(&finest.rows), parts(&finest.cols));
    let shapes = (1..=ranks).rev().filter(|pr| ranks.is_multiple_of(*pr)).map(|pr| (pr, ranks / pr));
    let grids: Vec<(usize, usize)> = shapes.collect();
    // Of each grid: entries by rank, then for V and for U rows received and sent, and messages received and sent.
    let mut sums = vec![0u64; grids.len() * 9 * ranks];
    let (mut of_v, mut of_u) = (Once::new(shape.1), Once::new(shape.0));
    let mut rounds = [0u64; 2];
    places(&mut |i, j| {
        let (row, col) = (part_of_row[i], part_of_col[j]);
        for (&(pr, pc), sums) in grids.iter().zip(sums.chunks_exact_mut(9 * ranks)) {
            sums[row as usize / pc * pc + col as usize / pr] += 1;
        }
        rounds[0] += u64::from(of_v.is_new(j, row));
        rounds[1] += u64::from(of_u.is_new(i, col));
    });
    rounds.iter_mut().for_each(|pairs| *pairs = pairs.div_ceil(ROUND as u64));
    comm.max(COUNTS, &mut rounds);
    let of_v = Pairs::collect(comm, &finest.cols, rounds[0], |sink| places(&mut |i, j| sink(j, part_of_row[i])));
    let of_u = Pairs::collect(comm, &finest.rows, rounds[1], |sink| places(&mut |i, j| sink(i, part_of_col[j])));
    for (&(pr, pc), sums) in grids.iter().zip(sums.chunks_exact_mut(9 * ranks)) {
        let Cuts { rows, cols } = cuts(pr, pc);
        let (v, u) = sums[ranks..].split_at_mut(4 * ranks);
        of_v.add(comm, (&cols, pr), &|col, row| row * pc + col, v);
        of_u.add(comm, (&rows, pc), &|row, col| row * pc + col, u);
    }
    comm.sum(COUNTS, &mut sums);
    let traffic = grids.iter().zip(sums.chunks_exact(9 * ranks)).map(|(&(pr, pc), sums)| {
        let most = |of: Range<usize>| sums[of.start * ranks..of.end * ranks].iter().copied().max().unwrap_or(0);
        let Cuts { rows, cols } = cuts(pr, pc);
        let side = |blocks: &[Range<usize>], sharers: usize, first: usize| SideTraffic {
            sharers,
            lacking: blocks.iter().map(|block| (block.len() - block.len() / sharers) as u64).max().unwrap_or(0),
            touched: most(first..first + 2),
            messages: most(first + 2..first + 4),
        };
        GridTraffic { pr, pc, entries: most(0..1), v: side(&cols, pr, 1), u: side(&rows, pc, 5) }
    });
    traffic.collect()
}

/// The part that each line is in.
fn parts(cuts: &[Range<usize>]) -> Vec<u32> {
    cuts.iter().enumerate().flat_map(|(part, lines)| std::iter::repeat_n(part as u32, lines.len())).collect()
}

/// Leaves out pairs that come again: entries of a line that follow one another are mostly in the same part.
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

/// For each line of one part, a column or a row, the parts of the other dimension in which it has entries.
struct Pairs<'a> {
    /// The lines of all parts.
    cuts: &'a [Range<usize>],
    own: Range<usize>,
    /// Words of bits for each own line.
    width: usize,
    bits: Vec<u64>,
}

impl<'a> Pairs<'a> {
    /// Collects the pairs of the lines that are this rank's part of `cuts`, in `rounds` rounds; `pairs` passes those that
    /// this rank has read. Collective.
    fn collect(
        comm: &Communicator,
        cuts: &'a [Range<usize>],
        rounds: u64,
        pairs: impl FnOnce(&mut dyn FnMut(usize, u32)),
    ) -> Self {
        let own = cuts[comm.rank()].clone();
        let width = comm.size().div_ceil(64);
        let mut collected = Pairs { cuts, width, bits: vec![0; own.len() * width], own };
        let holder = parts(cuts);
        let mut once = Once::new(holder.len());
        let mut outgoing = vec![Vec::<u64>::new(); comm.size()];
        let (mut waiting, mut left) = (0, rounds);
        pairs(&mut |line, part| {
            if once.is_new(line, part) {
                outgoing[holder[line] as usize].push((line as u64) << 32 | u64::from(part));
                waiting += 1;
            }
            if waiting == ROUND {
                collected.exchange(comm, &mut outgoing);
                (waiting, left) = (0, left - 1);
            }
        });
        // What is left, and nothing where others have more.
        (0..left).for_each(|_| collected.exchange(comm, &mut outgoing));
        collected
    }

    /// Sends pairs to the ranks that collect them, and receives own ones. Collective.
    fn exchange(&mut self, comm: &Communicator, outgoing: &mut [Vec<u64>]) {
        for pair in comm.all_to_all(ENTRIES, outgoing) {
            self.set((pair >> 32) as usize, (pair & 0xffff_ffff) as usize);
        }
        outgoing.iter_mut().for_each(Vec::clear);
    }

    fn set(&mut self, line: usize, part: usize) {
        self.bits[(line - self.own.start) * self.width + part / 64] |= 1 << (part % 64);
    }

    /// The parts in which an own line has entries, ascending.
    fn of(&self, line: usize) -> impl Iterator<Item = usize> {
        let at = (line - self.own.start) * self.width;
        set_bits(&self.bits[at..at + self.width])
    }

    /// Adds what the ranks exchange of the own lines where `blocks` of lines are each shared by `sharers` ranks, of which
    /// `rank(block, sharer)` is one: to `sums`, rows received and sent and messages received and sent, by rank.
    /// Collective.
    fn add(
        &self,
        comm: &Communicator,
        (blocks, sharers): (&[Range<usize>], usize),
        rank: &dyn Fn(usize, usize) -> usize,
        sums: &mut [u64],
    ) {
        if sharers == 1 {
            return;
        }
        let (ranks, width) = (comm.size(), sharers.div_ceil(64));
        // Finest parts of the other dimension in the block of one sharer.
        let finest = ranks / sharers;
        let mut outgoing = vec![Vec::<u64>::new(); ranks];
        let mut open = None;
        let finish = |sums: &mut [u64], (block, owner): (usize, usize), needs: &[u64]| {
            for sharer in set_bits(needs) {
                sums[2 * ranks + rank(block, sharer)] += 1;
                sums[3 * ranks + rank(block, owner)] += 1;
            }
        };
        for (block, lines) in blocks.iter().enumerate() {
            if lines.end <= self.own.start || lines.start >= self.own.end {
                continue;
            }
            for owner in 0..sharers {
                let share = even_part(lines.len(), sharers, owner);
                let share = lines.start + share.start..lines.start + share.end;
                let here = share.start.max(self.own.start)..share.end.min(self.own.end);
                if here.is_empty() {
                    continue;
                }
                let mut needs = vec![0u64; width];
                for line in here {
                    let mut last = None;
                    for sharer in self.of(line).map(|part| part / finest) {
                        if last.replace(sharer) != Some(sharer) && sharer != owner {
                            sums[rank(block, sharer)] += 1;
                            sums[ranks + rank(block, owner)] += 1;
                            needs[sharer / 64] |= 1 << (sharer % 64);
                        }
                    }
                }
                // Lines of one owner that several ranks count here are one message; the rank with the first has the sum.
                if share.start < self.own.start {
                    let first = self.cuts.partition_point(|part| part.end <= share.start);
                    outgoing[first].extend(&needs);
                } else if share.end > self.own.end {
                    open = Some(((block, owner), needs));
                } else {
                    finish(sums, (block, owner), &needs);
                }
            }
        }
        let arrived = comm.all_to_all(ENTRIES, &outgoing);
        if let Some((source, mut needs)) = open {
            for more in arrived.chunks_exact(width) {
                needs.iter_mut().zip(more).for_each(|(all, more)| *all |= more);
            }
            finish(sums, source, &needs);
        }
    }
}

fn set_bits(words: &[u64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(at, &word)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(64 * at + bit)
        })
    })
}
