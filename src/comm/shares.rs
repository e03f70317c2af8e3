//! What parties hand over: exact sums, masked sums, messages from one party to another.

use std::time::Instant;

use ::mpi::traits::Equivalence;

use super::{Communicator, Entry, MessageTag, Payload, mpi, watchdog};
use crate::comm::mpi::Op;
use crate::comm::reproducible::Bins;
use crate::error::Result;
use crate::linalg::Real;

/// What an exact sum in the clear shares beside its result: the bins are laid out by the largest magnitude of all terms.
pub const LARGEST: MessageTag = MessageTag::new("largest term of an exact sum", Payload::Scalar);

impl Communicator {
    /// Sums one share from every party into `out` on every rank, with the same bits on any number of ranks.
    /// `shares` are those of the hosted parties; `parties` counts all.
    ///
    /// # Errors
    /// On all ranks, when a value is not finite or too large to be summed.
    pub fn sum_parties<'a, T: Real>(
        &self,
        tag: MessageTag,
        parties: usize,
        shares: impl Iterator<Item = &'a [T]> + Clone,
        out: &mut [T],
    ) -> Result<()> {
        let hosted = shares.clone().count();
        let mut largest = [0.0f64];
        for x in shares.clone().flatten() {
            // NaN must win, and f64::max would drop it.
            let x = x.as_f64().abs();
            largest[0] = if x.is_nan() { f64::INFINITY } else { largest[0].max(x) };
        }
        let (alone, start) = (self.size() == 1, Instant::now());
        if !alone {
            watchdog::waiting(LARGEST.kind, || mpi::all_reduce(&self.inner.comm, Op::Max, &mut largest));
        }
        let of_a_party = |words: usize, size: usize| if self.inside { 0 } else { (2 * hosted * words * size) as u64 };
        let entry = Entry {
            calls: 1,
            seconds: start.elapsed().as_secs_f64(),
            party_bytes: of_a_party(1, size_of::<f64>()),
            mpi_bytes: if alone { 0 } else { 2 * size_of::<f64>() as u64 },
            messages: if alone { 0 } else { 1 },
            flops: 0,
        };
        self.ledger.borrow_mut().sent(LARGEST, &entry);
        let bins = Bins::new(largest[0], parties).map_err(|e| e.at(tag.kind).on_all_ranks())?;
        let start = Instant::now();
        let mut sums = self.inner.bins.borrow_mut();
        sums.clear();
        sums.resize(2 * out.len(), 0.0);
        for share in shares {
            assert_eq!(share.len(), out.len(), "the share of a party");
            for (pair, x) in sums.chunks_exact_mut(2).zip(share) {
                let [high, low] = bins.split(x.as_f64());
                pair[0] += high;
                pair[1] += low;
            }
        }
        if !alone {
            for part in sums.chunks_mut(self.inner.chunk) {
                watchdog::waiting(tag.kind, || mpi::all_reduce(&self.inner.comm, Op::Sum, part));
            }
        }
        for (x, pair) in out.iter_mut().zip(sums.chunks_exact(2)) {
            *x = T::from_f64(pair[0] + pair[1]);
        }
        let entry = Entry {
            calls: 1,
            seconds: start.elapsed().as_secs_f64(),
            party_bytes: of_a_party(out.len(), size_of::<T>()),
            mpi_bytes: if alone { 0 } else { 2 * size_of_val(sums.as_slice()) as u64 },
            messages: if alone { 0 } else { sums.len().div_ceil(self.inner.chunk) as u64 },
            flops: 0,
        };
        self.ledger.borrow_mut().sent(tag, &entry);
        Ok(())
    }

    /// Sums masked words over the ranks, in place and modulo 2⁶⁴: `buffer` holds the sum of the masked shares of the
    /// `hosted` parties, each of which hands over and gets back as many words.
    pub fn sum_masked(&self, tag: MessageTag, hosted: usize, buffer: &mut [u64]) {
        let start = Instant::now();
        if self.size() > 1 {
            for part in buffer.chunks_mut(self.inner.chunk) {
                watchdog::waiting(tag.kind, || mpi::all_reduce(&self.inner.comm, Op::Sum, part));
            }
        }
        let alone = self.size() == 1;
        let bytes = size_of_val(buffer) as u64;
        let entry = Entry {
            calls: 1,
            seconds: start.elapsed().as_secs_f64(),
            party_bytes: 2 * hosted as u64 * bytes,
            mpi_bytes: if alone { 0 } else { 2 * bytes },
            messages: if alone { 0 } else { buffer.len().div_ceil(self.inner.chunk) as u64 },
            flops: 0,
        };
        self.ledger.borrow_mut().sent(tag, &entry);
    }

    /// Hands elements from a party hosted by rank `from` to one hosted by rank `to`; both call this (with the same
    /// length), other ranks need not. Where both are hosted here, nothing moves but the books are kept.
    pub fn hand_over<T: Equivalence>(&self, tag: MessageTag, from: usize, to: usize, elements: &mut [T]) {
        if from != to {
            if self.rank() == from {
                self.send(tag, to, elements);
            } else {
                self.receive(tag, from, elements);
            }
            return;
        }
        let party_bytes = 2 * size_of_val(elements) as u64;
        self.ledger.borrow_mut().sent(tag, &Entry { calls: 1, party_bytes, ..Entry::default() });
    }

    /// [`Communicator::hand_over`] from a party (and its rank) to a neighbour (and its rank), booked by its edge too.
    pub fn pass_on<T: Equivalence>(
        &self,
        tag: MessageTag,
        (from, from_rank): (usize, usize),
        (to, to_rank): (usize, usize),
        elements: &mut [T],
    ) {
        let start = Instant::now();
        self.hand_over(tag, from_rank, to_rank, elements);
        let seconds = start.elapsed().as_secs_f64();
        let sent = u64::from(self.rank() == from_rank);
        let party_bytes = sent * size_of_val(elements) as u64;
        let entry = Entry { calls: sent, seconds, party_bytes, ..Entry::default() };
        self.ledger.borrow_mut().passed((from, to), &entry);
    }

    /// Books that `hosted` parties of this rank each hand `words` elements to the part of the server on their own rank,
    /// or get them from it: party bytes that cross no rank's border.
    pub fn hand_to_server<T>(&self, tag: MessageTag, hosted: usize, words: usize) {
        let party_bytes = (hosted * words * size_of::<T>()) as u64;
        self.ledger.borrow_mut().sent(tag, &Entry { calls: 1, party_bytes, ..Entry::default() });
    }
}
