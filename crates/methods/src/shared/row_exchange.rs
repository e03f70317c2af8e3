//! The rows of a factor that a rank's sparse block touches, exchanged between those that own them and those that need
//! them (Kaya, Kannan, Ballard 2018), in place of an all-gather and a reduce-scatter of all rows.
//!
//! A product M V needs the rows of V at columns of the block with stored entries, and a term of Mᵀ U has no others. What
//! is needed follows from the pattern of the block, so the ranks tell each other once, and then send one message to each
//! rank that they share such rows with. Those of a gather and of a sum are the same, in opposite directions.

use std::ops::Range;

use ndarray::Array2;

use fednmf_comm::{Communicator, MessageTag, Payload, Route};
use fednmf_linalg::{Contiguous, ContiguousMut, Real};

/// The rows that a rank needs from each other rank. They depend on the positions of the nonzeros.
pub const PATTERN: MessageTag = MessageTag::new("rows that blocks touch", Payload::Data);

fednmf_base::words! {
    /// How the ranks of a grid exchange rows of factors.
    pub enum Exchange {
        /// By what is counted, for each factor
        Auto = "auto",
        /// All rows, in collectives
        Dense = "dense",
        /// The rows that a sparse block touches, from rank to rank
        Sparse = "sparse",
    }
}

/// What the busiest rank sends or receives in one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Bytes, in the direction that has more.
    pub bytes: u64,
    /// Messages, in the direction that has more.
    pub messages: u64,
}

impl Load {
    /// Bytes that a network transfers in the latency of a message: about 1 µs at 8 GB/s.
    const MESSAGE: u64 = 8192;

    /// Bytes, plus the byte equivalent of the messages.
    pub fn cost_bytes(self) -> u64 {
        self.bytes + self.messages * Load::MESSAGE
    }

    /// Of an all-gather or reduce-scatter over `ranks` ranks, in which this one has `others` bytes of the others: at
    /// best as many messages as doublings.
    pub fn of_collective(ranks: usize, others: u64) -> Self {
        Load { bytes: others, messages: u64::from(ranks.next_power_of_two().trailing_zeros()) }
    }

    /// The maximum over all ranks. Collective.
    #[must_use]
    pub fn busiest(self, comm: &Communicator) -> Self {
        let mut largest = [self.bytes, self.messages];
        comm.max(PATTERN, &mut largest);
        Load { bytes: largest[0], messages: largest[1] }
    }

    /// Whether a sparse exchange with this load is worth it in place of a collective: it has to save a quarter, since it
    /// copies each row at both ends and the collectives of MPI libraries are tuned.
    pub fn is_worthwhile(self, collective: Self) -> bool {
        saves_a_quarter(self.cost_bytes(), collective.cost_bytes())
    }
}

/// Whether a cost is at least a quarter below the usual one, which justifies a deviation from it.
pub fn saves_a_quarter(cost: u64, usual: u64) -> bool {
    4 * u128::from(cost) < 3 * u128::from(usual)
}

/// The rows of one side of a grid that are exchanged, and their buffers.
pub struct RowExchange<T> {
    /// Rows that this rank's block references and other ranks own, counted from the block's first row; grouped by
    /// owner.
    needed: Vec<usize>,
    needed_from: Route,
    /// Own rows that the blocks of other ranks reference, counted from the first own row; grouped by rank.
    given: Vec<usize>,
    given_to: Route,
    of_needed: Vec<T>,
    of_given: Vec<T>,
    load: Load,
}

impl<T: Real> RowExchange<T> {
    /// Tells the ranks of `comm` which rows this one's block touches (`touched`, by row of the block). Rank r owns
    /// `rows[r]`; a row has k elements. Collective.
    pub fn new(comm: &Communicator, touched: &[bool], rows: &[Range<usize>], k: usize) -> Self {
        let me = comm.rank();
        let wanted = |r: usize| {
            let rows = if r == me { 0..0 } else { rows[r].clone() };
            rows.filter(|&row| touched[row])
        };
        // The row indices of a block fit i32, see `CsrMatrix`.
        let lists: Vec<Vec<u32>> =
            (0..comm.size()).map(|r| wanted(r).map(|row| (row - rows[r].start) as u32).collect()).collect();
        let lengths: Vec<Vec<u64>> = lists.iter().map(|list| vec![list.len() as u64]).collect();
        let asked = comm.all_to_all(PATTERN, &lengths);
        let given: Vec<usize> = comm.all_to_all(PATTERN, &lists).into_iter().map(|row| row as usize).collect();
        let needed: Vec<usize> = (0..comm.size()).flat_map(wanted).collect();
        let others = |rows: &dyn Fn(usize) -> usize| -> Vec<(usize, usize)> {
            (0..comm.size()).map(|r| (r, rows(r) * k)).filter(|(_, length)| *length > 0).collect()
        };
        let (from, to) = (others(&|r| lists[r].len()), others(&|r| asked[r] as usize));
        let load = Load {
            bytes: (needed.len().max(given.len()) * k * size_of::<T>()) as u64,
            messages: from.len().max(to.len()) as u64,
        };
        RowExchange {
            needed_from: comm.route(from),
            given_to: comm.route(to),
            of_needed: vec![T::zero(); needed.len() * k],
            of_given: vec![T::zero(); given.len() * k],
            needed,
            given,
            load,
        }
    }

    /// The load of this rank.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Puts the rows that the block touches at their places in `whole`, all rows of the block; the first of `own` goes to
    /// row `first`. Other rows of `whole` stay as they are. Both in row order.
    pub fn gather(
        &mut self,
        (comm, tag): (&Communicator, MessageTag),
        own: &Array2<T>,
        first: usize,
        whole: &mut Array2<T>,
    ) {
        let k = own.ncols();
        let (own, whole) = (own.row_major(), whole.row_major_mut());
        for (&row, to) in self.given.iter().zip(self.of_given.chunks_exact_mut(k)) {
            to.copy_from_slice(&own[row * k..(row + 1) * k]);
        }
        comm.exchange_along(tag, (&self.given_to, &self.of_given), (&self.needed_from, &mut self.of_needed));
        whole[first * k..first * k + own.len()].copy_from_slice(own);
        for (&row, from) in self.needed.iter().zip(self.of_needed.chunks_exact(k)) {
            whole[row * k..(row + 1) * k].copy_from_slice(from);
        }
    }

    /// Sums the terms of the own rows: this rank's, which begin at row `first` of `whole`, then those of the others by
    /// rank, so that the order does not depend on which message comes first. Both in row order.
    pub fn scatter(
        &mut self,
        (comm, tag): (&Communicator, MessageTag),
        whole: &Array2<T>,
        first: usize,
        sum: &mut Array2<T>,
    ) {
        let k = sum.ncols();
        let (whole, sum) = (whole.row_major(), sum.row_major_mut());
        for (&row, to) in self.needed.iter().zip(self.of_needed.chunks_exact_mut(k)) {
            to.copy_from_slice(&whole[row * k..(row + 1) * k]);
        }
        comm.exchange_along(tag, (&self.needed_from, &self.of_needed), (&self.given_to, &mut self.of_given));
        sum.copy_from_slice(&whole[first * k..first * k + sum.len()]);
        for (&row, term) in self.given.iter().zip(self.of_given.chunks_exact(k)) {
            sum[row * k..(row + 1) * k].iter_mut().zip(term).for_each(|(sum, &term)| *sum += term);
        }
    }
}
