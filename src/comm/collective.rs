//! What ranks say to each other: sums, gathers, exchanges. Messages beyond 2³¹ elements go in chunks.

use std::ffi::c_int;
use std::ops::Range;
use std::time::Instant;

use ::mpi::traits::Equivalence;

use super::{Communicator, Entry, MessageTag, mpi, watchdog};
use crate::comm::mpi::Op;

/// Where each rank's part lies in a concatenation by rank, in the form that MPI wants it; made once, used every time.
#[derive(Debug, Clone)]
pub struct Parts {
    ranges: Vec<Range<usize>>,
    counts: Vec<c_int>,
    starts: Vec<c_int>,
}

impl Parts {
    /// Parts of a matrix cut by rows, each row `width` elements wide.
    pub fn new(rows: &[Range<usize>], width: usize) -> Self {
        let ranges: Vec<Range<usize>> = rows.iter().map(|r| r.start * width..r.end * width).collect();
        // A part beyond 2³¹ takes the path in chunks, which does not look at these.
        let int = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
        let counts = ranges.iter().map(|r| int(r.len())).collect();
        let starts = ranges.iter().map(|r| int(r.start)).collect();
        Parts { ranges, counts, starts }
    }

    /// The elements of rank r's part.
    pub fn range(&self, r: usize) -> Range<usize> {
        self.ranges[r].clone()
    }
}

impl Communicator {
    /// All-reduce in place: every rank hands over `buffer` and gets back the sum over the ranks.
    pub fn sum<T: Equivalence>(&self, tag: MessageTag, buffer: &mut [T]) {
        self.all_reduce(tag, Op::Sum, buffer);
    }

    /// [`Communicator::sum`] that is under way while `work` is done, which may talk to other ranks too but must not need the sum.
    /// Booked are the seconds that `work` did not hide: starting, and waiting at the end.
    pub fn sum_while<T: Equivalence, R>(&self, tag: MessageTag, buffer: &mut [T], work: impl FnOnce() -> R) -> R {
        if self.size() == 1 || buffer.len() > self.inner.chunk {
            self.sum(tag, buffer);
            return work();
        }
        let start = Instant::now();
        let bytes = 2 * size_of_val(buffer) as u64;
        let pending = mpi::start_all_reduce(&self.inner.comm, Op::Sum, buffer);
        let started = start.elapsed();
        let result = work();
        let start = Instant::now();
        watchdog::waiting(tag.kind, || drop(pending));
        let entry = Entry {
            calls: 1,
            seconds: (started + start.elapsed()).as_secs_f64(),
            party_bytes: if self.inside { 0 } else { bytes },
            mpi_bytes: bytes,
            messages: 1,
            flops: 0,
        };
        self.ledger.borrow_mut().sent(tag, &entry);
        result
    }

    /// All-reduce in place: the largest over the ranks, element by element.
    pub fn max<T: Equivalence>(&self, tag: MessageTag, buffer: &mut [T]) {
        self.all_reduce(tag, Op::Max, buffer);
    }

    fn all_reduce<T: Equivalence>(&self, tag: MessageTag, op: Op, buffer: &mut [T]) {
        let messages = buffer.len().div_ceil(self.inner.chunk);
        self.booked::<T, _>(tag, 2 * buffer.len(), messages, || {
            if self.size() > 1 {
                for part in buffer.chunks_mut(self.inner.chunk) {
                    mpi::all_reduce(&self.inner.comm, op, part);
                }
            }
        });
    }

    /// All-gather of parts of unequal length: `out` becomes the concatenation of every rank's `local`.
    pub fn all_gather<T: Equivalence + Copy>(&self, tag: MessageTag, local: &[T], parts: &Parts, out: &mut [T]) {
        assert!(parts.ranges.len() == self.size() && local.len() == parts.ranges[self.rank()].len());
        let short = out.len() <= self.inner.chunk;
        let messages = if short { 1 } else { parts.ranges.iter().map(|p| p.len().div_ceil(self.inner.chunk)).sum() };
        self.booked::<T, _>(tag, local.len() + out.len(), messages, || {
            if self.size() == 1 {
                out.copy_from_slice(local);
            } else if short {
                mpi::all_gather(&self.inner.comm, local, &parts.counts, &parts.starts, out);
            } else {
                out[parts.range(self.rank())].copy_from_slice(local);
                for (root, part) in parts.ranges.iter().enumerate() {
                    for piece in out[part.clone()].chunks_mut(self.inner.chunk) {
                        mpi::broadcast(&self.inner.comm, root, piece);
                    }
                }
            }
        });
    }

    /// Reduce-scatter: the sum over ranks of `send`, of which each rank gets its part. `send` may be overwritten.
    pub fn reduce_scatter<T: Equivalence + Copy>(&self, tag: MessageTag, send: &mut [T], parts: &Parts, out: &mut [T]) {
        assert!(parts.ranges.len() == self.size() && out.len() == parts.ranges[self.rank()].len());
        let short = send.len() <= self.inner.chunk;
        let messages = if short { 1 } else { send.len().div_ceil(self.inner.chunk) };
        self.booked::<T, _>(tag, send.len() + out.len(), messages, || {
            if self.size() == 1 {
                out.copy_from_slice(send);
            } else if short {
                mpi::reduce_scatter(&self.inner.comm, send, &parts.counts, out);
            } else {
                for part in send.chunks_mut(self.inner.chunk) {
                    mpi::all_reduce(&self.inner.comm, Op::Sum, part);
                }
                out.copy_from_slice(&send[parts.range(self.rank())]);
            }
        });
    }

    /// All-to-all: `send[r]` goes to rank r; what came from each rank, one after another in rank order. A rank gives and
    /// takes at most a chunk at a time, so it takes as many rounds as the longest of all messages needs.
    pub fn all_to_all<T: Equivalence + Copy + Default>(&self, tag: MessageTag, send: &[Vec<T>]) -> Vec<T> {
        if self.size() == 1 { send[0].clone() } else { self.exchange(tag, None, send) }
    }

    /// [`Communicator::all_to_all`] of what parties have for each other: those hosted here hand over and get `party_words` elements.
    pub fn between_parties<T: Equivalence + Copy + Default>(
        &self,
        tag: MessageTag,
        party_words: usize,
        send: &[Vec<T>],
    ) -> Vec<T> {
        if self.size() == 1 {
            self.booked_apart::<T, _>(tag, party_words, 0, 0, || send[0].clone())
        } else {
            self.exchange(tag, Some(party_words), send)
        }
    }

    fn exchange<T: Equivalence + Copy + Default>(
        &self,
        tag: MessageTag,
        party_words: Option<usize>,
        send: &[Vec<T>],
    ) -> Vec<T> {
        assert_eq!(send.len(), self.size());
        let comm = &self.inner.comm;
        let lengths: Vec<u64> = send.iter().map(|s| s.len() as u64).collect();
        let mut coming = vec![0u64; self.size()];
        let one_each = vec![1; self.size()];
        let mut longest = [lengths.iter().copied().max().unwrap_or(0)];
        watchdog::waiting(tag.kind, || {
            mpi::all_to_all(comm, &lengths, &one_each, &mut coming, &one_each);
            mpi::all_reduce(comm, Op::Max, &mut longest);
        });
        let piece = (self.inner.chunk / self.size()).max(1);
        let rounds = (longest[0] as usize).div_ceil(piece);

        let coming: Vec<usize> = coming.into_iter().map(|n| n as usize).collect();
        let mut out = vec![T::default(); coming.iter().sum()];
        let words = send.iter().map(Vec::len).sum::<usize>() + out.len();
        self.booked_apart::<T, _>(tag, party_words.unwrap_or(words), words, 2 + rounds, || {
            let part = |length: usize, round: usize| length.min(round * piece)..length.min((round + 1) * piece);
            let counts = |lengths: &mut dyn Iterator<Item = usize>, round| ints(lengths.map(|n| part(n, round).len()));
            for round in 0..rounds {
                let flat: Vec<T> = send.iter().flat_map(|s| &s[part(s.len(), round)]).copied().collect();
                let going = counts(&mut send.iter().map(Vec::len), round);
                let taken = counts(&mut coming.iter().copied(), round);
                if rounds == 1 {
                    mpi::all_to_all(comm, &flat, &going, &mut out, &taken);
                    break;
                }
                let mut got = vec![T::default(); taken.iter().map(|&n| n as usize).sum()];
                mpi::all_to_all(comm, &flat, &going, &mut got, &taken);
                // The pieces of this round, each behind what its sender gave before.
                let (mut from, mut at) = (0, 0);
                for &length in &coming {
                    let piece = part(length, round);
                    out[at + piece.start..at + piece.end].copy_from_slice(&got[from..from + piece.len()]);
                    (from, at) = (from + piece.len(), at + length);
                }
            }
        });
        out
    }

    /// Rank 0's bytes, on every rank.
    pub fn broadcast(&self, tag: MessageTag, bytes: &mut Vec<u8>) {
        let mut length = [bytes.len() as u64];
        self.booked::<u8, _>(tag, bytes.len(), 2, || {
            if self.size() > 1 {
                mpi::broadcast(&self.inner.comm, 0, &mut length);
                bytes.resize(length[0] as usize, 0);
                for part in bytes.chunks_mut(self.inner.chunk) {
                    mpi::broadcast(&self.inner.comm, 0, part);
                }
            }
        });
    }

    /// Rank 0's value, on every rank.
    pub fn broadcast_value<V: serde::Serialize + serde::de::DeserializeOwned>(&self, tag: MessageTag, value: V) -> V {
        if self.size() == 1 {
            return value;
        }
        let mut bytes = if self.is_root() { serde_json::to_vec(&value).expect("plain data") } else { Vec::new() };
        self.broadcast(tag, &mut bytes);
        if self.is_root() { value } else { serde_json::from_slice(&bytes).expect("written by rank 0") }
    }

    /// Sends elements to `rank`, which calls [`Communicator::receive`].
    pub fn send<T: Equivalence>(&self, tag: MessageTag, rank: usize, elements: &[T]) {
        self.booked::<T, _>(tag, elements.len(), elements.len().div_ceil(self.inner.chunk), || {
            for part in elements.chunks(self.inner.chunk) {
                mpi::send(&self.inner.comm, rank, part);
            }
        });
    }

    /// Receives what `rank` sends; both must agree on the length.
    pub fn receive<T: Equivalence>(&self, tag: MessageTag, rank: usize, elements: &mut [T]) {
        self.booked::<T, _>(tag, elements.len(), elements.len().div_ceil(self.inner.chunk), || {
            for part in elements.chunks_mut(self.inner.chunk) {
                mpi::receive(&self.inner.comm, rank, part);
            }
        });
    }

    /// A small value of every rank, on every rank, in rank order.
    pub fn all_gather_value<V: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        tag: MessageTag,
        value: &V,
    ) -> Vec<V> {
        let mine = serde_json::to_vec(value).expect("plain data");
        let mut lengths = vec![0u64; self.size()];
        let one_each: Vec<Range<usize>> = (0..self.size()).map(|r| r..r + 1).collect();
        self.all_gather(tag, &[mine.len() as u64], &Parts::new(&one_each, 1), &mut lengths);
        let parts: Vec<Range<usize>> = lengths
            .iter()
            .scan(0, |end, &l| {
                let start = *end;
                *end += l as usize;
                Some(start..*end)
            })
            .collect();
        let mut all = vec![0u8; parts.last().map_or(0, |p| p.end)];
        self.all_gather(tag, &mine, &Parts::new(&parts, 1), &mut all);
        parts.into_iter().map(|p| serde_json::from_slice(&all[p]).expect("written by a rank")).collect()
    }
}

fn ints(values: impl Iterator<Item = usize>) -> Vec<c_int> {
    values.map(|v| c_int::try_from(v).expect("messages are cut below 2^31 elements")).collect()
}
