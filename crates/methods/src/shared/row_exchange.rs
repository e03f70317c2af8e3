//! Sparse exchange of the rows of a factor (Kaya, Kannan, Ballard 2018). Only the rows that a rank's sparse block
//! references are sent between their owners and the ranks that need them, instead of an all-gather and a reduce-scatter of
//! all rows.
//!
//! A product M V needs only the rows of V at the block's nonempty columns, and a term of MᵀU has only these rows. The
//! pattern of the block determines which rows are needed, so the ranks exchange the lists once. Each exchange then sends
//! one message to each rank with common rows. A sum sends the same rows as a gather, in the opposite direction.

use std::ops::Range;

use ndarray::Array2;

use fednmf_comm::{Communicator, MessageTag, Payload, Route};
use fednmf_linalg::{Contiguous, ContiguousMut, Real};

/// The rows that a rank needs from each other rank, which reveal the positions of nonzeros.
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
    /// Bytes, in the direction with more of them.
    pub bytes: u64,
    /// Messages, in the direction with more of them.
    pub messages: u64,
}

impl Load {
    /// Number of bytes that a network transfers during the latency of a message: about 1 µs at 8 GB/s.
    const MESSAGE: u64 = 8192;

    /// Bytes, plus the byte equivalent of the messages.
    pub fn cost_bytes(self) -> u64 {
        self.bytes + self.messages * Load::MESSAGE
    }

    /// The load of an all-gather or reduce-scatter over `ranks` ranks, in which this rank handles `others` bytes of other
    /// ranks. The number of messages is at best the number of doublings.
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

    /// Whether a sparse exchange with this load should replace a collective. It has to save a quarter, because it copies
    /// each row at both ends and the collectives of MPI libraries are tuned.
    pub fn is_worthwhile(self, collective: Self) -> bool {
        saves_a_quarter(self.cost_bytes(), collective.cost_bytes())
    }
}

/// Whether a cost is at least a quarter below the usual one, which justifies deviating from it.
pub fn saves_a_quarter(cost: u64, usual: u64) -> bool {
    4 * u128::from(cost) < 3 * u128::from(usual)
}

/// The exchanged rows of one factor, and their buffers.
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
    /// Exchanges with the ranks of `comm` which rows each block references. `touched` has an element per row of the block.
    /// Rank r owns `rows[r]`; a row has k elements. Collective.
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
        let requested = comm.all_to_all(PATTERN, &lengths);
        let given: Vec<usize> = comm.all_to_all(PATTERN, &lists).into_iter().map(|row| row as usize).collect();
        let needed: Vec<usize> = (0..comm.size()).flat_map(wanted).collect();
        let others = |rows: &dyn Fn(usize) -> usize| -> Vec<(usize, usize)> {
            (0..comm.size()).map(|r| (r, rows(r) * k)).filter(|(_, length)| *length > 0).collect()
        };
        let (from, to) = (others(&|r| lists[r].len()), others(&|r| requested[r] as usize));
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

    /// Gathers the rows that the block references into `whole`, which has all rows of the block; the first own row is row
    /// `first` of it. Other rows of `whole` are unchanged. Both are row-major.
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

    /// Sums the terms of the own rows: this rank's terms, which begin at row `first` of `whole`, then those of other ranks
    /// in the order of ranks, so that the result does not depend on the order of arrival. Both are row-major.
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
