//! The only door to MPI. Everything that leaves a rank or a party passes a method of [`Door`], under a name and with a
//! payload type, and is written into the [`Ledger`].
//!
//! Two columns are kept. *Party bytes*: what the hosted parties hand over and get back; equal on any number of ranks
//! (for the algorithms whose blocks are the ranks', a rank is a party). *MPI bytes*: what crosses the rank's border.

mod exit;
mod ledger;
mod mpi;
mod parties;
mod reproducible;

use std::cell::RefCell;
use std::ffi::c_int;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use ::mpi::point_to_point::{Destination, Source};
use ::mpi::topology::SimpleCommunicator;
use ::mpi::traits::{Communicator, Equivalence, Root};

use self::mpi::Op;
use self::reproducible::Bins;
use crate::error::{Error, Kind, Result};
use crate::linalg::{Real, flops};

pub use crate::linalg::even_part;
pub use exit::{Signals, abort_on_panic, end_job, launched_rank};
pub use ledger::{Entry, Ledger, Parcel, Payload};
pub use parties::Parties;

const AGREEMENT: Parcel = Parcel::new("agreement", Payload::Control);

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

/// A handle to a group of ranks; cheap to clone, all clones and splits write into one ledger.
#[derive(Clone)]
pub struct Door {
    inner: Rc<Inner>,
    ledger: Rc<RefCell<Ledger>>,
    /// Whether what passes is between ranks that together play a server, and so no party's.
    inside: bool,
}

struct Inner {
    comm: SimpleCommunicator,
    rank: usize,
    size: usize,
    /// Most elements that one MPI call may carry.
    chunk: usize,
    /// The bins of [`Door::sum_parties`]; grows to the longest sum and is then kept.
    bins: RefCell<Vec<f64>>,
}

impl Door {
    /// Opens the door to the ranks of `comm`. `FEDNMF_CHUNK` lowers the number of elements for one MPI call, so that
    /// tests can walk the path of messages beyond 2³¹.
    pub fn new(comm: SimpleCommunicator) -> Self {
        let chunk = std::env::var("FEDNMF_CHUNK").ok().and_then(|v| v.parse().ok()).filter(|&c| c > 0);
        Door::with_ledger(comm, chunk.unwrap_or(1 << 30), Rc::default())
    }

    fn with_ledger(comm: SimpleCommunicator, chunk: usize, ledger: Rc<RefCell<Ledger>>) -> Self {
        let (rank, size) = (comm.rank() as usize, comm.size() as usize);
        Door { inner: Rc::new(Inner { comm, rank, size, chunk, bins: RefCell::default() }), ledger, inside: false }
    }

    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// Whether this rank speaks for all: prints, writes shared files.
    pub fn speaks(&self) -> bool {
        self.inner.rank == 0
    }

    /// The ranks that pass the same `color`, ordered by their present rank.
    pub fn split(&self, color: usize) -> Door {
        let comm = self
            .inner
            .comm
            .split_by_color_with_key(::mpi::topology::Color::with_value(color as i32), self.rank() as i32);
        Door::with_ledger(comm.expect("every rank has a color"), self.inner.chunk, self.ledger.clone())
    }

    /// The same door for ranks that together play a server: what passes it is booked between ranks, but is no party's.
    pub fn server(&self) -> Door {
        Door { inside: true, ..self.clone() }
    }

    /// Books that `hosted` parties of this rank each hand `words` elements to the part of the server on their own rank,
    /// or get them from it: party bytes that cross no rank's border.
    pub fn hand_to_server<T>(&self, parcel: Parcel, hosted: usize, words: usize) {
        let party_bytes = (hosted * words * size_of::<T>()) as u64;
        self.ledger.borrow_mut().sent(parcel, &Entry { calls: 1, party_bytes, ..Entry::default() });
    }

    /// Reads the ledger.
    pub fn ledger(&self) -> std::cell::Ref<'_, Ledger> {
        self.ledger.borrow()
    }

    /// Does local work and books its time and its flops under `phase`.
    pub fn work<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        let (start, before) = (Instant::now(), flops::total());
        let result = f();
        self.ledger.borrow_mut().worked(phase, start.elapsed().as_secs_f64(), flops::total() - before);
        result
    }

    /// Does what is partly communication and books its whole time under `phase`, apart from local work.
    pub fn span<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = f();
        self.ledger.borrow_mut().spanned(phase, start.elapsed().as_secs_f64());
        result
    }

    /// Does `f`, a communication that hands over and gets back `words` elements of type T in all, and books it.
    fn booked<T, R>(&self, parcel: Parcel, words: usize, messages: usize, f: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = f();
        let bytes = (words * size_of::<T>()) as u64;
        let alone = self.size() == 1;
        let entry = Entry {
            calls: 1,
            seconds: start.elapsed().as_secs_f64(),
            party_bytes: if self.inside { 0 } else { bytes },
            mpi_bytes: if alone { 0 } else { bytes },
            messages: if alone { 0 } else { messages as u64 },
            flops: 0,
        };
        self.ledger.borrow_mut().sent(parcel, &entry);
        result
    }

    /// All-reduce in place: every rank hands over `buffer` and gets back the sum over the ranks.
    pub fn sum<T: Equivalence>(&self, parcel: Parcel, buffer: &mut [T]) {
        self.all_reduce(parcel, Op::Sum, buffer);
    }

    /// [`Door::sum`] that is under way while `work` is done, which may talk to other ranks too but must not need the sum.
    /// Booked are the seconds that `work` did not hide: starting, and waiting at the end.
    pub fn sum_while<T: Equivalence, R>(&self, parcel: Parcel, buffer: &mut [T], work: impl FnOnce() -> R) -> R {
        if self.size() == 1 || buffer.len() > self.inner.chunk {
            self.sum(parcel, buffer);
            return work();
        }
        let start = Instant::now();
        let bytes = 2 * size_of_val(buffer) as u64;
        let pending = mpi::start_all_reduce(&self.inner.comm, Op::Sum, buffer);
        let started = start.elapsed();
        let result = work();
        let start = Instant::now();
        drop(pending);
        let entry = Entry {
            calls: 1,
            seconds: (started + start.elapsed()).as_secs_f64(),
            party_bytes: if self.inside { 0 } else { bytes },
            mpi_bytes: bytes,
            messages: 1,
            flops: 0,
        };
        self.ledger.borrow_mut().sent(parcel, &entry);
        result
    }

    /// All-reduce in place: the largest over the ranks, element by element.
    pub fn max<T: Equivalence>(&self, parcel: Parcel, buffer: &mut [T]) {
        self.all_reduce(parcel, Op::Max, buffer);
    }

    fn all_reduce<T: Equivalence>(&self, parcel: Parcel, op: Op, buffer: &mut [T]) {
        let messages = buffer.len().div_ceil(self.inner.chunk);
        self.booked::<T, _>(parcel, 2 * buffer.len(), messages, || {
            if self.size() > 1 {
                for part in buffer.chunks_mut(self.inner.chunk) {
                    mpi::all_reduce(&self.inner.comm, op, part);
                }
            }
        });
    }

    /// Sums one share from every party into `out` on every rank, with the same bits on any number of ranks.
    /// `shares` are those of the hosted parties; `parties` counts all.
    ///
    /// # Errors
    /// On all ranks, when a value is not finite or too large to be summed.
    pub fn sum_parties<'a, T: Real>(
        &self,
        parcel: Parcel,
        parties: usize,
        shares: impl Iterator<Item = &'a [T]> + Clone,
        out: &mut [T],
    ) -> Result<()> {
        let hosted = shares.clone().count();
        let mut largest = [0.0f64];
        for x in shares.clone().flatten() {
            // NaN must win, and f64::max would drop it.
            let x = x.wide().abs();
            largest[0] = if x.is_nan() { f64::INFINITY } else { largest[0].max(x) };
        }
        let start = Instant::now();
        if self.size() > 1 {
            mpi::all_reduce(&self.inner.comm, Op::Max, &mut largest);
        }
        let bins = Bins::new(largest[0], parties).map_err(|e| e.at(parcel.purpose))?;
        let mut sums = self.inner.bins.borrow_mut();
        sums.clear();
        sums.resize(2 * out.len(), 0.0);
        for share in shares {
            assert_eq!(share.len(), out.len(), "the share of a party");
            for (pair, x) in sums.chunks_exact_mut(2).zip(share) {
                let [high, low] = bins.split(x.wide());
                pair[0] += high;
                pair[1] += low;
            }
        }
        let messages = 1 + sums.len().div_ceil(self.inner.chunk);
        if self.size() > 1 {
            for part in sums.chunks_mut(self.inner.chunk) {
                mpi::all_reduce(&self.inner.comm, Op::Sum, part);
            }
        }
        for (x, pair) in out.iter_mut().zip(sums.chunks_exact(2)) {
            *x = T::of(pair[0] + pair[1]);
        }
        let alone = self.size() == 1;
        let entry = Entry {
            calls: 1,
            seconds: start.elapsed().as_secs_f64(),
            party_bytes: if self.inside { 0 } else { (2 * hosted * out.len() * size_of::<T>()) as u64 },
            mpi_bytes: if alone { 0 } else { 2 * 8 * (sums.len() as u64 + 1) },
            messages: if alone { 0 } else { messages as u64 },
            flops: 0,
        };
        self.ledger.borrow_mut().sent(parcel, &entry);
        Ok(())
    }

    /// Sums masked words over the ranks, in place and modulo 2⁶⁴: `buffer` holds the sum of the masked shares of the
    /// `hosted` parties, each of which hands over and gets back as many words.
    pub fn sum_masked(&self, parcel: Parcel, hosted: usize, buffer: &mut [u64]) {
        let start = Instant::now();
        if self.size() > 1 {
            for part in buffer.chunks_mut(self.inner.chunk) {
                mpi::all_reduce(&self.inner.comm, Op::Sum, part);
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
        self.ledger.borrow_mut().sent(parcel, &entry);
    }

    /// Hands elements from a party hosted by rank `from` to one hosted by rank `to`; both call this (with the same
    /// length), other ranks need not. Where both are hosted here, nothing moves but the books are kept.
    pub fn hand_over<T: Equivalence>(&self, parcel: Parcel, from: usize, to: usize, elements: &mut [T]) {
        if from != to {
            if self.rank() == from {
                self.send(parcel, to, elements);
            } else {
                self.receive(parcel, from, elements);
            }
            return;
        }
        let party_bytes = 2 * size_of_val(elements) as u64;
        self.ledger.borrow_mut().sent(parcel, &Entry { calls: 1, party_bytes, ..Entry::default() });
    }

    /// All-gather of parts of unequal length: `out` becomes the concatenation of every rank's `local`.
    pub fn all_gather<T: Equivalence + Copy>(&self, parcel: Parcel, local: &[T], parts: &Parts, out: &mut [T]) {
        assert!(parts.ranges.len() == self.size() && local.len() == parts.ranges[self.rank()].len());
        let short = out.len() <= self.inner.chunk;
        let messages = if short { 1 } else { parts.ranges.iter().map(|p| p.len().div_ceil(self.inner.chunk)).sum() };
        self.booked::<T, _>(parcel, local.len() + out.len(), messages, || {
            if self.size() == 1 {
                out.copy_from_slice(local);
            } else if short {
                mpi::all_gather(&self.inner.comm, local, &parts.counts, &parts.starts, out);
            } else {
                out[parts.range(self.rank())].copy_from_slice(local);
                for (root, part) in parts.ranges.iter().enumerate() {
                    for piece in out[part.clone()].chunks_mut(self.inner.chunk) {
                        self.inner.comm.process_at_rank(root as i32).broadcast_into(piece);
                    }
                }
            }
        });
    }

    /// Reduce-scatter: the sum over ranks of `send`, of which each rank gets its part. `send` may be overwritten.
    pub fn reduce_scatter<T: Equivalence + Copy>(&self, parcel: Parcel, send: &mut [T], parts: &Parts, out: &mut [T]) {
        assert!(parts.ranges.len() == self.size() && out.len() == parts.ranges[self.rank()].len());
        let short = send.len() <= self.inner.chunk;
        let messages = if short { 1 } else { send.len().div_ceil(self.inner.chunk) };
        self.booked::<T, _>(parcel, send.len() + out.len(), messages, || {
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

    /// All-to-all: `send[r]` goes to rank r; what came from each rank, one after another in rank order.
    /// Callers keep one round's total below 2³¹ elements.
    pub fn all_to_all<T: Equivalence + Copy + Default>(&self, parcel: Parcel, send: &[Vec<T>]) -> Vec<T> {
        assert_eq!(send.len(), self.size());
        if self.size() == 1 {
            return send[0].clone();
        }
        let counts: Vec<i32> = ints(send.iter().map(Vec::len));
        let mut received = vec![0i32; self.size()];
        mpi::all_to_all(&self.inner.comm, &counts, &vec![1; self.size()], &mut received, &vec![1; self.size()]);
        let flat = send.concat();
        let mut out = vec![T::default(); received.iter().map(|&c| c as usize).sum()];
        self.booked::<T, _>(parcel, flat.len() + out.len(), 2, || {
            mpi::all_to_all(&self.inner.comm, &flat, &counts, &mut out, &received);
        });
        out
    }

    /// Rank 0's bytes, on every rank.
    pub fn broadcast(&self, parcel: Parcel, bytes: &mut Vec<u8>) {
        let mut length = [bytes.len() as u64];
        self.booked::<u8, _>(parcel, bytes.len(), 2, || {
            if self.size() > 1 {
                let root = self.inner.comm.process_at_rank(0);
                root.broadcast_into(&mut length[..]);
                bytes.resize(length[0] as usize, 0);
                for part in bytes.chunks_mut(self.inner.chunk) {
                    root.broadcast_into(part);
                }
            }
        });
    }

    /// Rank 0's value, on every rank.
    pub fn share<V: serde::Serialize + serde::de::DeserializeOwned>(&self, parcel: Parcel, value: V) -> V {
        if self.size() == 1 {
            return value;
        }
        let mut bytes = if self.speaks() { serde_json::to_vec(&value).expect("plain data") } else { Vec::new() };
        self.broadcast(parcel, &mut bytes);
        if self.speaks() { value } else { serde_json::from_slice(&bytes).expect("written by rank 0") }
    }

    /// Sends elements to `rank`, which calls [`Door::receive`].
    pub fn send<T: Equivalence>(&self, parcel: Parcel, rank: usize, elements: &[T]) {
        self.booked::<T, _>(parcel, elements.len(), elements.len().div_ceil(self.inner.chunk), || {
            for part in elements.chunks(self.inner.chunk) {
                self.inner.comm.process_at_rank(rank as i32).send(part);
            }
        });
    }

    /// Receives what `rank` sends; both must agree on the length.
    pub fn receive<T: Equivalence>(&self, parcel: Parcel, rank: usize, elements: &mut [T]) {
        self.booked::<T, _>(parcel, elements.len(), elements.len().div_ceil(self.inner.chunk), || {
            for part in elements.chunks_mut(self.inner.chunk) {
                self.inner.comm.process_at_rank(rank as i32).receive_into(part);
            }
        });
    }

    /// A small value of every rank, on every rank, in rank order.
    pub fn collect<V: serde::Serialize + serde::de::DeserializeOwned>(&self, parcel: Parcel, value: &V) -> Vec<V> {
        let mine = serde_json::to_vec(value).expect("plain data");
        let mut lengths = vec![0u64; self.size()];
        let one_each: Vec<Range<usize>> = (0..self.size()).map(|r| r..r + 1).collect();
        self.all_gather(parcel, &[mine.len() as u64], &Parts::new(&one_each, 1), &mut lengths);
        let parts: Vec<Range<usize>> = lengths
            .iter()
            .scan(0, |end, &l| {
                let start = *end;
                *end += l as usize;
                Some(start..*end)
            })
            .collect();
        let mut all = vec![0u8; parts.last().map_or(0, |p| p.end)];
        self.all_gather(parcel, &mine, &Parts::new(&parts, 1), &mut all);
        parts.into_iter().map(|p| serde_json::from_slice(&all[p]).expect("written by a rank")).collect()
    }

    /// Turns a result of each rank into the same result on all: the error of the lowest rank that has one wins.
    ///
    /// # Errors
    /// On all ranks, when any rank has an error.
    pub fn agree<R>(&self, result: Result<R>) -> Result<R> {
        let mine: Option<(bool, String)> = result.as_ref().err().map(|e| (e.kind == Kind::Input, e.message.clone()));
        let mut any = [u32::from(mine.is_some())];
        self.max(AGREEMENT, &mut any);
        if any[0] == 0 {
            return result;
        }
        let errors = self.collect(AGREEMENT, &mine);
        let (input, message) = errors.into_iter().flatten().next().expect("some rank has an error");
        Err(if input { Error::input(message) } else { Error::failed(message) }.on_all_ranks())
    }

    /// Waits for all ranks. For the ends of a run only: nothing inside an iteration may call this.
    pub fn barrier(&self) {
        use ::mpi::collective::CommunicatorCollectives;
        self.inner.comm.barrier();
    }
}

fn ints(values: impl Iterator<Item = usize>) -> Vec<c_int> {
    values.map(|v| c_int::try_from(v).expect("messages are cut below 2^31 elements")).collect()
}
