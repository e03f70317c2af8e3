//! Sums over parties: exact ones, which have the same bits on any number of ranks, and masked ones.

use std::time::Instant;

use fednmf_base::error::SharedResult;
use fednmf_linalg::{Element, Real};
use fednmf_privacy::Release;

use super::transport::Op;
use super::{Communicator, MessageTag, Payload, Volume, watchdog};
use crate::reproducible::Bins;

/// The largest magnitude of all terms, on which the bins depend: an unmasked exact sum reveals it in addition to its result.
pub const LARGEST: MessageTag = MessageTag::new("largest term of an exact sum", Payload::Scalar);

impl Communicator {
    /// Sums one term of every party into `out` on every rank, with the same bits on any number of ranks. `terms` are those
    /// of the hosted parties, each as long as `out`; `parties` counts all parties.
    ///
    /// # Errors
    /// On all ranks, if a value is not finite or too large to be summed.
    pub fn sum_parties<T: Real, R: Release<T>>(
        &self,
        tag: MessageTag,
        parties: usize,
        terms: impl Iterator<Item = R> + Clone,
        out: &mut [T],
    ) -> SharedResult<()> {
        let hosted = terms.clone().count();
        let party = |elements: usize, size: usize| 2 * hosted * elements * size;
        let mut largest = [0.0f64];
        for term in terms.clone() {
            for x in term.values() {
                // A NaN must be detected, but f64::max would drop it.
                let x = x.as_f64().abs();
                largest[0] = if x.is_nan() { f64::INFINITY } else { largest[0].max(x) };
            }
        }
        let volume = Volume { party: party(1, size_of::<f64>()), rank: 2 * size_of::<f64>(), messages: 1 };
        self.sends(LARGEST.under(R::PROTECTION), &largest);
        self.timed(LARGEST.under(R::PROTECTION), volume, || self.reduce_in_pieces(Op::Max, &mut largest));
        self.received(LARGEST.under(R::PROTECTION), &largest);
        let bins = Bins::new(largest[0], parties).map_err(|e| e.at(tag.kind).on_all_ranks())?;

        let start = Instant::now();
        let mut sums = self.inner.bins.borrow_mut();
        sums.clear();
        sums.resize(2 * out.len(), 0.0);
        for term in terms {
            assert_eq!(term.values().len(), out.len(), "the term of a party");
            for (pair, x) in sums.chunks_exact_mut(2).zip(term.values()) {
                let [high, low] = bins.split(x.as_f64());
                pair[0] += high;
                pair[1] += low;
            }
        }
        self.sends(tag, &sums);
        watchdog::waiting(tag.kind, || self.reduce_in_pieces(Op::Sum, &mut sums));
        for (x, pair) in out.iter_mut().zip(sums.chunks_exact(2)) {
            *x = T::from_f64(pair[0] + pair[1]);
        }
        let volume = Volume {
            party: party(out.len(), size_of::<T>()),
            rank: 2 * size_of_val(sums.as_slice()),
            messages: self.pieces(sums.len()),
        };
        self.record(tag, volume, start.elapsed().as_secs_f64());
        self.received(tag, out);
        Ok(())
    }

    /// Sums words over the ranks, in place and modulo 2⁶⁴. `buffer` holds the sum over the `hosted` parties; each of them sends
    /// and receives as many words.
    pub fn sum_of_hosted(&self, tag: MessageTag, hosted: usize, buffer: &mut [u64]) {
        self.reduce_of_hosted(Op::Sum, tag, hosted, buffer);
    }

    /// The largest numbers over the ranks, in place. `buffer` holds those of the `hosted` parties; each of them sends and
    /// receives as many.
    pub fn max_of_hosted<T: Element>(&self, tag: MessageTag, hosted: usize, buffer: &mut [T]) {
        self.reduce_of_hosted(Op::Max, tag, hosted, buffer);
    }

    fn reduce_of_hosted<T: Element>(&self, op: Op, tag: MessageTag, hosted: usize, buffer: &mut [T]) {
        self.sends(tag, buffer);
        let bytes = size_of_val(buffer);
        let volume = Volume { party: 2 * hosted * bytes, rank: 2 * bytes, messages: self.pieces(buffer.len()) };
        self.timed(tag, volume, || self.reduce_in_pieces(op, buffer));
        self.received(tag, buffer);
    }
}
