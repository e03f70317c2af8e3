//! The only comm to MPI. Everything that leaves a rank or a party passes a method of [`Communicator`], under a name and with a
//! payload type, and is written into the [`Ledger`].
//!
//! Two columns are kept. *Party bytes*: what the hosted parties hand over and get back; equal on any number of ranks
//! (for the algorithms whose blocks are the ranks', a rank is a party). *MPI bytes*: what crosses the rank's border.

mod collective;
mod exit;
mod ledger;
#[allow(unsafe_code)]
mod mpi;
mod parties;
mod reproducible;
mod shares;
mod talk;
pub mod watchdog;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use ::mpi::topology::SimpleCommunicator;
use ::mpi::traits::Communicator as _;

use crate::error::{Error, ErrorKind, Result};
use crate::linalg::flops;

pub use crate::linalg::even_part;
pub use collective::Parts;
pub use exit::{Signals, abort_on_panic, end_job, end_without_the_lost, launched_rank, stand_aside};
pub use ledger::{Entry, Ledger, MessageTag, Payload};
pub use parties::Parties;
pub use shares::LARGEST;
pub use talk::{Backoff, Word};

const AGREEMENT: MessageTag = MessageTag::new("agreement", Payload::Control);

/// A handle to a group of ranks; cheap to clone, all clones and splits write into one ledger.
#[derive(Clone)]
pub struct Communicator {
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
    /// The bins of [`Communicator::sum_parties`]; grows to the longest sum and is then kept.
    bins: RefCell<Vec<f64>>,
}

impl Communicator {
    /// Opens the comm to the ranks of `comm`. `FEDNMF_CHUNK` lowers the number of elements for one MPI call, so that
    /// tests can walk the path of messages beyond 2³¹.
    pub fn new(comm: SimpleCommunicator) -> Self {
        mpi::settle(&comm);
        let chunk = std::env::var("FEDNMF_CHUNK").ok().and_then(|v| v.parse().ok()).filter(|&c| c > 0);
        Communicator::with_ledger(comm, chunk.unwrap_or(1 << 30), Rc::default())
    }

    fn with_ledger(comm: SimpleCommunicator, chunk: usize, ledger: Rc<RefCell<Ledger>>) -> Self {
        let (rank, size) = (comm.rank() as usize, comm.size() as usize);
        Communicator {
            inner: Rc::new(Inner { comm, rank, size, chunk, bins: RefCell::default() }),
            ledger,
            inside: false,
        }
    }

    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// Whether this rank speaks for all: prints, writes shared files.
    pub fn is_root(&self) -> bool {
        self.inner.rank == 0
    }

    /// The ranks that pass the same `color`, ordered by their present rank.
    pub fn split(&self, color: usize) -> Communicator {
        let comm = self
            .inner
            .comm
            .split_by_color_with_key(::mpi::topology::Color::with_value(color as i32), self.rank() as i32);
        Communicator::with_ledger(comm.expect("every rank has a color"), self.inner.chunk, self.ledger.clone())
    }

    /// The same ranks and the same ledger, with at most `chunk` elements in one MPI call.
    pub fn chunked(&self, chunk: usize) -> Communicator {
        let mut comm = self.split(0);
        if let Some(inner) = Rc::get_mut(&mut comm.inner) {
            inner.chunk = chunk.max(1);
        }
        comm
    }

    /// The same comm for ranks that together play a server: what passes it is booked between ranks, but is no party's.
    pub fn server(&self) -> Communicator {
        Communicator { inside: true, ..self.clone() }
    }

    /// Reads the ledger.
    pub fn ledger(&self) -> std::cell::Ref<'_, Ledger> {
        self.ledger.borrow()
    }

    /// Does local work and books its time and its flops under `phase`.
    pub fn work<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        let (start, before) = (Instant::now(), flops::total());
        let result = watchdog::working(phase, f);
        self.ledger.borrow_mut().worked(phase, start.elapsed().as_secs_f64(), flops::total() - before);
        result
    }

    /// Does what is partly communication and books its whole time under `phase`, apart from local work.
    pub fn span<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = watchdog::working(phase, f);
        self.ledger.borrow_mut().spanned(phase, start.elapsed().as_secs_f64());
        result
    }

    /// Does `f`, a communication that hands over and gets back `words` elements of type T in all, and books it.
    fn booked<T, R>(&self, tag: MessageTag, words: usize, messages: usize, f: impl FnOnce() -> R) -> R {
        self.booked_apart::<T, R>(tag, words, words, messages, f)
    }

    /// The same where the hosted parties hand over and get back another number of elements than crosses the rank's border.
    fn booked_apart<T, R>(
        &self,
        tag: MessageTag,
        party_words: usize,
        words: usize,
        messages: usize,
        f: impl FnOnce() -> R,
    ) -> R {
        let start = Instant::now();
        let result = watchdog::waiting(tag.kind, f);
        let bytes = |words: usize| (words * size_of::<T>()) as u64;
        let alone = self.size() == 1;
        let entry = Entry {
            calls: 1,
            seconds: start.elapsed().as_secs_f64(),
            party_bytes: if self.inside { 0 } else { bytes(party_words) },
            mpi_bytes: if alone { 0 } else { bytes(words) },
            messages: if alone { 0 } else { messages as u64 },
            flops: 0,
        };
        self.ledger.borrow_mut().sent(tag, &entry);
        result
    }

    /// Turns a result of each rank into the same result on all: the error of the lowest rank that has one wins.
    ///
    /// # Errors
    /// On all ranks, when any rank has an error.
    pub fn agree_on_error<R>(&self, result: Result<R>) -> Result<R> {
        let mine: Option<(bool, String)> =
            result.as_ref().err().map(|e| (e.kind == ErrorKind::Input, e.message.clone()));
        let mut any = [u32::from(mine.is_some())];
        self.max(AGREEMENT, &mut any);
        if any[0] == 0 {
            return result;
        }
        let errors = self.all_gather_value(AGREEMENT, &mine);
        let (input, message) = errors.into_iter().flatten().next().expect("some rank has an error");
        Err(if input { Error::input(message) } else { Error::failed(message) }.on_all_ranks())
    }

    /// Waits for all ranks. For the ends of a run only: nothing inside an iteration may call this.
    pub fn barrier(&self) {
        watchdog::waiting("barrier", || mpi::barrier(&self.inner.comm));
    }
}
