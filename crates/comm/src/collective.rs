//! Collectives: reductions, gathers, exchanges, broadcasts. Every rank of the group calls them, in the same order. Messages
//! of more than 2³⁰ elements are sent in pieces.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use fednmf_linalg::Element;
use fednmf_privacy::Public;

use super::transport::{Buffer, BufferMut, Op};
use super::{Communicator, ControlTag, MessageTag, Volume, watchdog};

/// Where each rank's part lies in a concatenation by rank, in the form that MPI expects; created once and used repeatedly.
#[derive(Debug, Clone)]
pub struct Parts {
    ranges: Vec<Range<usize>>,
    counts: Vec<i32>,
    offsets: Vec<i32>,
}

impl Parts {
    /// Parts of a matrix split by rows, each row `width` elements wide.
    pub fn new(rows: &[Range<usize>], width: usize) -> Self {
        let ranges: Vec<Range<usize>> = rows.iter().map(|r| r.start * width..r.end * width).collect();
        // Longer messages are sent in pieces, which do not use these counts.
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let counts = ranges.iter().map(|r| int(r.len())).collect();
        let offsets = ranges.iter().map(|r| int(r.start)).collect();
        Parts { ranges, counts, offsets }
    }

    /// The elements of rank r's part.
    pub fn range(&self, r: usize) -> Range<usize> {
        self.ranges[r].clone()
    }
}

/// The text of a file of settings, or why it cannot be read.
#[derive(Serialize, Deserialize)]
struct Settings(Result<String, String>);

impl Public for Settings {
    const WHY: &'static str = "a file of settings, which the user names";
}

impl Communicator {
    /// All-reduce in place: `buffer` becomes the sum over the ranks, element by element.
    pub fn sum<T: Element>(&self, tag: MessageTag, buffer: &mut [T]) {
        self.all_reduce(tag, Op::Sum, buffer);
    }

    /// [`Communicator::sum`] that overlaps with `work`, which may communicate too but does not see the sum yet. The
    /// recorded seconds are those that `work` does not hide: the start and the wait at the end.
    pub fn sum_while<T: Element, R>(&self, tag: MessageTag, buffer: &mut [T], work: impl FnOnce() -> R) -> R {
        if buffer.len() > self.inner.chunk {
            self.sum(tag, buffer);
            return work();
        }
        self.sends(tag, buffer);
        let volume = self.volume::<T>(2 * buffer.len(), 1);
        let (mut work, mut result, mut worked, mut waiting) = (Some(work), None, 0.0, None);
        let start = Instant::now();
        self.transport().all_reduce_while(Op::Sum, BufferMut::new(buffer), &mut || {
            let start = Instant::now();
            result = work.take().map(|work| work());
            worked = start.elapsed().as_secs_f64();
            waiting = Some(watchdog::begin_waiting(tag.kind));
        });
        drop(waiting);
        self.record(tag, volume, start.elapsed().as_secs_f64() - worked);
        self.received(tag, buffer);
        result.expect("the transport does the work once")
    }

    /// All-reduce in place: `buffer` becomes the maximum over the ranks, element by element.
    pub fn max<T: Element>(&self, tag: MessageTag, buffer: &mut [T]) {
        self.all_reduce(tag, Op::Max, buffer);
    }

    fn all_reduce<T: Element>(&self, tag: MessageTag, op: Op, buffer: &mut [T]) {
        self.sends(tag, buffer);
        let volume = self.volume::<T>(2 * buffer.len(), self.pieces(buffer.len()));
        self.timed(tag, volume, || self.reduce_in_pieces(op, buffer));
        self.received(tag, buffer);
    }

    /// An all-reduce that the caller records.
    pub(super) fn reduce_in_pieces<T: Element>(&self, op: Op, buffer: &mut [T]) {
        for piece in buffer.chunks_mut(self.inner.chunk) {
            self.transport().all_reduce(op, BufferMut::new(piece));
        }
    }

    /// All-gather of parts of unequal length: `out` becomes the concatenation of every rank's `local`.
    pub fn all_gather<T: Element>(&self, tag: MessageTag, local: &[T], parts: &Parts, out: &mut [T]) {
        self.gather_of_hosted(tag, 1, local, parts, out);
    }

    /// As [`Communicator::all_gather`]; `local` holds what the `hosted` parties send, and each of them receives all.
    pub fn gather_of_hosted<T: Element>(
        &self,
        tag: MessageTag,
        hosted: usize,
        local: &[T],
        parts: &Parts,
        out: &mut [T],
    ) {
        assert!(parts.ranges.len() == self.size() && local.len() == parts.ranges[self.rank()].len());
        self.sends(tag, local);
        let short = out.len() <= self.inner.chunk;
        let messages = if short { 1 } else { parts.ranges.iter().map(|p| self.pieces(p.len())).sum() };
        let volume = self.volume::<T>(local.len() + out.len(), messages);
        let volume = Volume { party: size_of_val(local) + hosted * size_of_val(out), ..volume };
        self.timed(tag, volume, || {
            if short {
                let (local, out) = (Buffer::new(local), BufferMut::new(out));
                return self.transport().all_gather(local, &parts.counts, &parts.offsets, out);
            }
            out[parts.range(self.rank())].copy_from_slice(local);
            for (root, part) in parts.ranges.iter().enumerate() {
                self.broadcast_in_pieces(root, &mut out[part.clone()]);
            }
        });
        self.received(tag, out);
    }

    /// Reduce-scatter: `out` becomes this rank's part of the sum of `send` over the ranks. `send` may be overwritten.
    pub fn reduce_scatter<T: Element>(&self, tag: MessageTag, send: &mut [T], parts: &Parts, out: &mut [T]) {
        assert!(parts.ranges.len() == self.size() && out.len() == parts.ranges[self.rank()].len());
        self.sends(tag, send);
        let short = send.len() <= self.inner.chunk;
        let messages = if short { 1 } else { self.pieces(send.len()) };
        self.timed(tag, self.volume::<T>(send.len() + out.len(), messages), || {
            if short {
                return self.transport().reduce_scatter(Buffer::new(send), &parts.counts, BufferMut::new(out));
            }
            self.reduce_in_pieces(Op::Sum, send);
            out.copy_from_slice(&send[parts.range(self.rank())]);
        });
        self.received(tag, out);
    }

    /// All-to-all: sends `send[r]` to rank r and returns what the ranks sent to this one, concatenated in rank order. A
    /// rank sends and receives at most one chunk at a time, so the longest message determines the number of rounds. Not
    /// recorded if there is only one rank.
    pub fn all_to_all<T: Element>(&self, tag: MessageTag, send: &[Vec<T>]) -> Vec<T> {
        if self.size() == 1 {
            return send[0].clone();
        }
        send.iter().for_each(|part| self.sends(tag, part));
        self.exchange(tag, None, send)
    }

    /// [`Communicator::all_to_all`] between parties: those hosted here send and receive `party_words` elements.
    /// The lengths are known: `receive[r]` elements come from rank r.
    pub fn between_parties<T: Element>(
        &self,
        tag: MessageTag,
        party_words: usize,
        send: &[Vec<T>],
        receive: &[usize],
    ) -> Vec<T> {
        send.iter().for_each(|part| self.sends(tag, part));
        let party = party_words * size_of::<T>();
        if self.size() == 1 {
            self.received(tag, &send[0]);
            return self.timed(tag, Volume { party, rank: 0, messages: 0 }, || send[0].clone());
        }
        self.exchange(tag, Some((party, receive)), send)
    }

    /// `known` is the number of party bytes, and of elements from each rank; without it, the ranks first exchange the
    /// lengths and count as parties.
    fn exchange<T: Element>(&self, tag: MessageTag, known: Option<(usize, &[usize])>, send: &[Vec<T>]) -> Vec<T> {
        assert_eq!(send.len(), self.size());
        let lengths: Vec<u64> = send.iter().map(|s| s.len() as u64).collect();
        let (party, mut incoming) = match known {
            Some((party, receive)) => (Some(party), receive.iter().map(|&n| n as u64).collect()),
            None => (None, vec![0u64; self.size()]),
        };
        let one_each = vec![1; self.size()];
        let mut longest = [lengths.iter().copied().max().unwrap_or(0)];
        watchdog::waiting(tag.kind, || {
            if known.is_none() {
                let (lengths, incoming) = (Buffer::new(&lengths), BufferMut::new(&mut incoming));
                self.transport().all_to_all(lengths, &one_each, incoming, &one_each);
            }
            self.transport().all_reduce(Op::Max, BufferMut::new(&mut longest));
        });
        let agreements = if known.is_none() { 2 } else { 1 };
        let chunk = (self.inner.chunk / self.size()).max(1);
        let rounds = (longest[0] as usize).div_ceil(chunk);

        let incoming: Vec<usize> = incoming.into_iter().map(|n| n as usize).collect();
        let mut out = vec![T::default(); incoming.iter().sum()];
        let volume = self.volume::<T>(send.iter().map(Vec::len).sum::<usize>() + out.len(), agreements + rounds);
        let volume = Volume { party: party.unwrap_or(volume.party), ..volume };
        self.timed(tag, volume, || {
            let piece = |length: usize, round: usize| length.min(round * chunk)..length.min((round + 1) * chunk);
            let count = |length: usize, round| i32::try_from(piece(length, round).len()).expect("below a chunk");
            for round in 0..rounds {
                let flat: Vec<T> = send.iter().flat_map(|s| &s[piece(s.len(), round)]).copied().collect();
                let outgoing: Vec<i32> = send.iter().map(|s| count(s.len(), round)).collect();
                let taken: Vec<i32> = incoming.iter().map(|&length| count(length, round)).collect();
                if rounds == 1 {
                    self.transport().all_to_all(Buffer::new(&flat), &outgoing, BufferMut::new(&mut out), &taken);
                    break;
                }
                let mut received = vec![T::default(); taken.iter().map(|&n| n as usize).sum()];
                self.transport().all_to_all(Buffer::new(&flat), &outgoing, BufferMut::new(&mut received), &taken);
                // Each piece of this round is placed after what its sender sent before.
                let (mut from, mut at) = (0, 0);
                for &length in &incoming {
                    let piece = piece(length, round);
                    out[at + piece.start..at + piece.end].copy_from_slice(&received[from..from + piece.len()]);
                    (from, at) = (from + piece.len(), at + length);
                }
            }
        });
        self.received(tag, &out);
        out
    }

    /// Broadcasts rank 0's bytes to every rank.
    pub fn broadcast(&self, tag: MessageTag, bytes: &mut Vec<u8>) {
        if self.is_root() {
            self.sends(tag, bytes);
        }
        let mut length = [bytes.len() as u64];
        self.timed(tag, self.volume::<u8>(bytes.len(), 2), || {
            let root = self.transport().root();
            self.broadcast_in_pieces(root, &mut length);
            bytes.resize(length[0] as usize, 0);
            self.broadcast_in_pieces(root, bytes);
        });
        self.received(tag, bytes);
    }

    fn broadcast_in_pieces<T: Element>(&self, root: usize, buffer: &mut [T]) {
        for piece in buffer.chunks_mut(self.inner.chunk) {
            self.transport().broadcast(root, BufferMut::new(piece));
        }
    }

    /// The words become their maxima over the ranks.
    pub fn max_public<T: Element, W: Public + AsMut<[T]>>(&self, tag: ControlTag, words: &mut W) {
        self.max(tag.recorded(), words.as_mut());
    }

    /// As [`Communicator::broadcast_value`], for public values.
    pub fn broadcast_public<V: Public + Serialize + DeserializeOwned>(&self, tag: ControlTag, value: V) -> V {
        self.broadcast_value(tag.recorded(), value)
    }

    /// As [`Communicator::all_gather_value`], for public values.
    ///
    /// # Panics
    /// As [`Communicator::all_gather_value`].
    pub fn all_gather_public<V: Public + Serialize + DeserializeOwned>(&self, tag: ControlTag, value: &V) -> Vec<V> {
        self.all_gather_value(tag.recorded(), value)
    }

    /// As [`Communicator::gather_present`], for public values.
    pub fn gather_public_present<V: Public + Serialize + DeserializeOwned>(
        &self,
        tag: ControlTag,
        value: &V,
    ) -> Vec<Option<V>> {
        self.gather_present(tag.recorded(), value)
    }

    /// The text of a file of settings, which rank 0 reads.
    ///
    /// # Errors
    /// On all ranks: why it cannot be read.
    pub fn broadcast_settings(&self, tag: ControlTag, path: &Path) -> Result<String, String> {
        let text = if self.is_root() { std::fs::read_to_string(path) } else { Ok(String::new()) };
        // Some editors write a byte order mark.
        let text = text.map(|text| text.trim_start_matches('\u{feff}').to_string());
        self.broadcast_public(tag, Settings(text.map_err(|e| e.to_string()))).0
    }

    /// Broadcasts rank 0's value and returns it on every rank. Not recorded if there is only one rank.
    pub fn broadcast_value<V: Serialize + DeserializeOwned>(&self, tag: MessageTag, value: V) -> V {
        if self.size() == 1 {
            return value;
        }
        // The root keeps fields that are not serialised, such as the keys of triples.
        let is_root = self.is_root();
        let mut bytes = if is_root { serde_json::to_vec(&value).expect("plain data") } else { Vec::new() };
        self.broadcast(tag, &mut bytes);
        if is_root { value } else { serde_json::from_slice(&bytes).expect("written by the root") }
    }

    /// Gathers a small value of every rank on every rank, in rank order.
    ///
    /// # Panics
    /// If the run continues without lost ranks: use [`Communicator::gather_present`] then.
    pub fn all_gather_value<V: Serialize + DeserializeOwned>(&self, tag: MessageTag, value: &V) -> Vec<V> {
        self.gather_present(tag, value).into_iter().map(|value| value.expect("no rank is lost")).collect()
    }

    /// Gathers a small value of every rank on rank 0, in rank order. The others send two messages each and return nothing.
    /// Not for runs in which ranks may be lost.
    pub fn gather_value<V: Serialize + DeserializeOwned>(&self, tag: MessageTag, value: &V) -> Vec<V> {
        let mine = serde_json::to_vec(value).expect("plain data");
        let others = if self.is_root() { 1..self.size() } else { 0..0 };
        let send = if self.is_root() { &[][..] } else { &mine[..] };
        let to = |length: usize| self.route((!self.is_root()).then_some((0, length)));
        let mut lengths = vec![0u64; others.len()];
        let length = [send.len() as u64];
        let length = if self.is_root() { &[][..] } else { &length[..] };
        self.exchange_along(tag, (&to(1), length), (&self.route(others.clone().map(|r| (r, 1))), &mut lengths));
        let from = self.route(others.zip(lengths.iter().map(|&length| length as usize)));
        let mut all = vec![0u8; lengths.iter().sum::<u64>() as usize];
        self.exchange_along(tag, (&to(send.len()), send), (&from, &mut all));
        if !self.is_root() {
            return Vec::new();
        }
        let value = |part: &[u8]| serde_json::from_slice(part).expect("written by a rank");
        let mut rest = &all[..];
        let parts = lengths.iter().map(|&length| {
            let (part, behind) = rest.split_at(length as usize);
            rest = behind;
            value(part)
        });
        std::iter::once(value(&mine)).chain(parts).collect()
    }

    /// As [`Communicator::all_gather_value`]; `None` for ranks that are lost.
    pub fn gather_present<V: Serialize + DeserializeOwned>(&self, tag: MessageTag, value: &V) -> Vec<Option<V>> {
        let mine = serde_json::to_vec(value).expect("plain data");
        let mut lengths = vec![0u64; self.size()];
        let one_each: Vec<Range<usize>> = (0..self.size()).map(|r| r..r + 1).collect();
        self.all_gather(tag, &[mine.len() as u64], &Parts::new(&one_each, 1), &mut lengths);
        let mut end = 0;
        let part = |length: u64| {
            let start = end;
            end += length as usize;
            start..end
        };
        let parts: Vec<Range<usize>> = lengths.into_iter().map(part).collect();
        let mut all = vec![0u8; end];
        self.all_gather(tag, &mine, &Parts::new(&parts, 1), &mut all);
        let value = |part: &[u8]| serde_json::from_slice(part).expect("written by a rank");
        let participated = |rank: usize, part: &Range<usize>| !part.is_empty() && self.transport().participated(rank);
        parts.into_iter().enumerate().map(|(rank, part)| participated(rank, &part).then(|| value(&all[part]))).collect()
    }
}
