//! Communication between ranks and parties. Everything that leaves a rank or a party passes a method of [`Communicator`],
//! under a [`MessageTag`], and is recorded in the [`Ledger`].
//!
//! From the bottom up: [`transport`] moves bytes between ranks, through MPI or within one process; `collective`,
//! `neighbours`, `point_to_point` and `party_reductions` are the communicator's methods; `reproducible` makes sums over
//! parties independent of their order. In addition, [`watchdog`] ends a job that makes no progress and `exit` ends one that
//! has failed.
//!
//! The ledger has two columns. *Party bytes* are those that the hosted parties send and receive; they are equal on any
//! number of ranks (in a distributed method, a rank counts as a party). *MPI bytes* are those that enter or leave the rank.

mod collective;
mod exit;
mod ledger;
mod neighbours;
mod parties;
mod party_communicator;
mod party_reductions;
pub mod party_sum;
mod point_to_point;
mod reproducible;
mod shares;
#[cfg(test)]
mod tests;
pub mod transport;
mod view;
pub mod watchdog;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fednmf_base::error::{EXIT_INPUT, Error, ErrorKind, Result, SharedResult};
use fednmf_base::failure::at_failure;
use fednmf_base::warning::error;
use fednmf_linalg::{Element, flops};
use fednmf_privacy::transcript::{SiteSignature, Transcript};

pub use self::transport::Loss;
use self::transport::{Local, Transport};
pub use self::transport::{launched_rank, library, reports_refused_start, unused_tasks};
pub use collective::Parts;
pub use exit::{Interrupt, Signals, abort_on_panic, end_job, end_without_lost_ranks, idle_until_abort};
pub use fednmf_linalg::even_part;
pub use ledger::{ControlTag, Entry, Ledger, MessageTag, Payload, SendFilter, SumGuard};
pub use neighbours::Route;
pub use parties::Parties;
pub use party_communicator::{PartyCommunicator, ServerCommunicator};
pub use party_reductions::LARGEST;
pub use point_to_point::Backoff;
pub use shares::ShareWire;
use view::SharedRecorder;
pub use view::{Knowledge, Recorder, ViewRecord};

/// Settings and decisions, mostly of rank 0.
pub const CONTROL: ControlTag = ControlTag::new("control");
/// Whether any rank has an error, and its text.
pub const AGREEMENT: MessageTag = MessageTag::new("agreement", Payload::Metadata);

/// The processor time of this process, all threads together.
fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(now).map_or(0.0, |since| since.as_secs_f64())
}

/// Lowers [`CHUNK`], so that tests can cut messages; in debug builds only.
const CHUNK_VARIABLE: &str = "FEDNMF_CHUNK";
/// Most elements in one call of the transport.
const CHUNK: usize = 1 << 30;

/// The value of an environment variable by which tests make a run fail or reproducible. A release build has no such variables:
/// who sets the environment of a site must not decide what it sends.
pub fn test_switch(name: &str) -> Option<String> {
    if cfg!(debug_assertions) { std::env::var(name).ok() } else { None }
}

/// A group of ranks and the ledger of what they exchange. Clones are cheap; clones, splits and subgroups share the ledger.
#[derive(Clone)]
pub struct Communicator {
    inner: Rc<Inner>,
    ledger: Rc<RefCell<Ledger>>,
    /// The recorder of what this rank receives, if any; clones, splits and subgroups share it.
    view: Rc<RefCell<Option<SharedRecorder>>>,
    /// Whether these ranks together implement a server; their messages then do not count as any party's.
    server: bool,
}

struct Inner {
    transport: Rc<dyn Transport>,
    rank: usize,
    size: usize,
    /// Most elements in one call of the transport.
    chunk: usize,
    /// The bins of [`Communicator::sum_parties`], as long as the longest sum so far.
    bins: RefCell<Vec<f64>>,
}

/// What one communication adds to the ledger.
#[derive(Debug, Clone, Copy)]
struct Volume {
    /// Bytes that the hosted parties send and receive.
    party: usize,
    /// Bytes that this rank sends and receives, if it is not the only rank.
    rank: usize,
    /// Calls of the transport, if it is not the only rank.
    messages: usize,
}

impl Communicator {
    /// All ranks of the job, see [`transport::start`]. MPI ends with the last communicator.
    ///
    /// # Errors
    /// As [`transport::start`].
    pub fn start() -> SharedResult<Self> {
        let chunk = test_switch(CHUNK_VARIABLE).and_then(|v| v.parse().ok()).filter(|&c| c > 0);
        Ok(Communicator::new(transport::start()?, chunk.unwrap_or(CHUNK), Rc::default()))
    }

    /// The ranks of a transport that was started elsewhere.
    pub fn over(transport: Rc<dyn Transport>) -> Self {
        Communicator::new(transport, CHUNK, Rc::default())
    }

    /// Only this process, without MPI.
    pub fn local() -> Self {
        Communicator::new(Rc::new(Local), CHUNK, Rc::default())
    }

    fn new(transport: Rc<dyn Transport>, chunk: usize, ledger: Rc<RefCell<Ledger>>) -> Self {
        let (rank, size) = (transport.rank(), transport.size());
        Communicator {
            inner: Rc::new(Inner { transport, rank, size, chunk, bins: RefCell::default() }),
            ledger,
            view: Rc::default(),
            server: false,
        }
    }

    /// Another group of ranks, with the same ledger.
    fn group(&self, transport: Rc<dyn Transport>) -> Self {
        let group = Communicator::new(transport, self.inner.chunk, self.ledger.clone());
        Communicator { view: self.view.clone(), ..group }
    }

    /// The same ranks with an empty ledger.
    #[must_use]
    pub fn with_new_ledger(&self) -> Self {
        Communicator { ledger: Rc::default(), ..self.clone() }
    }

    /// The same ranks and ledger, with at most `chunk` elements in one call of the transport.
    #[must_use]
    pub fn chunked(&self, chunk: usize) -> Self {
        let chunked = Communicator::new(self.inner.transport.clone(), chunk.max(1), self.ledger.clone());
        Communicator { view: self.view.clone(), ..chunked }
    }

    /// The same ranks and ledger, for ranks that together implement a server: messages count as MPI bytes only.
    #[must_use]
    pub fn server(&self) -> Self {
        Communicator { server: true, ..self.clone() }
    }

    /// The ranks that pass the same `color`, in the same order. Collective.
    #[must_use]
    pub fn split(&self, color: usize) -> Self {
        self.group(self.transport().split(color))
    }

    /// The subgroup of these ranks, ascending. Only they call this.
    #[must_use]
    pub fn subgroup(&self, ranks: &[usize]) -> Self {
        self.group(self.transport().subgroup(ranks))
    }

    /// This process's number in the group, from 0.
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// The number of ranks in the group.
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// Whether this rank decides for all: rank 0, or the lowest remaining rank if the run continues without lost ones.
    pub fn is_root(&self) -> bool {
        self.inner.rank == self.transport().root()
    }

    /// As [`Transport::continue_without_lost`].
    pub fn continue_without_lost(&self, least: usize) {
        self.transport().continue_without_lost(least);
    }

    /// As [`Transport::losses`].
    pub fn losses(&self) -> Vec<Loss> {
        self.transport().losses()
    }

    /// Whether each rank has an owner of its own, see [`Transport::owner`].
    pub fn has_owners(&self) -> bool {
        self.transport().owner(self.rank()).is_some()
    }

    /// Signs the key of this rank's transcript, as [`Transport::sign_transcript_key`].
    ///
    /// # Errors
    /// If the certificate's key cannot sign.
    pub fn sign_transcript_key(&self, key: &str) -> Result<Option<SiteSignature>> {
        self.transport().sign_transcript_key(key)
    }

    /// The name of a rank for messages to the user: `rank 3`, or `site NAME`.
    pub fn name_of(&self, rank: usize) -> String {
        self.transport().owner(rank).map_or_else(|| format!("rank {rank}"), |owner| format!("site {owner}"))
    }

    /// Whether this rank prints and writes shared files: rank 0, or each one that has its own owner.
    pub fn reports(&self) -> bool {
        self.is_root() || self.has_owners()
    }

    fn transport(&self) -> &dyn Transport {
        &*self.inner.transport
    }

    /// Reads the ledger.
    pub fn ledger(&self) -> std::cell::Ref<'_, Ledger> {
        self.ledger.borrow()
    }

    /// Runs local work and records its time and its flops under `phase`.
    pub fn work<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        let (start, cpu, before) = (Instant::now(), cpu_seconds(), flops::total());
        let result = watchdog::working(phase, f);
        let seconds = [start.elapsed().as_secs_f64(), cpu_seconds() - cpu];
        self.ledger.borrow_mut().record_work(phase, seconds, flops::total() - before);
        result
    }

    /// Runs work that includes communication and records its whole time under `phase`, separately from local work.
    pub fn span<R>(&self, phase: &'static str, f: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = watchdog::working(phase, f);
        self.record_span(phase, start.elapsed().as_secs_f64());
        result
    }

    /// Records a span whose parts were timed one by one.
    pub fn record_span(&self, phase: &'static str, seconds: f64) {
        self.ledger.borrow_mut().record_span(phase, seconds);
    }

    /// Keeps a transcript of what this rank and its parties send from now on. If the process ends with an error, it is signed as that
    /// of a failed run.
    pub fn keep_transcript(&self, transcript: Transcript) {
        let kept = Arc::new(Mutex::new(Some(transcript)));
        self.ledger.borrow_mut().transcript = Some(kept.clone());
        at_failure(move || {
            // What cannot be written now stays unsigned.
            let _ = kept.try_lock().ok().and_then(|mut kept| kept.take()).map(Transcript::fail);
        });
    }

    /// Ends and returns the transcript.
    pub fn end_transcript(&self) -> Option<Transcript> {
        let kept = self.ledger.borrow_mut().transcript.take()?;
        kept.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Calls `add` with the transcript, if one is kept.
    fn with_transcript(&self, add: impl FnOnce(&mut Transcript)) {
        if let Some(kept) = &self.ledger.borrow().transcript
            && let Some(transcript) = kept.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
        {
            add(transcript);
        }
    }

    /// Adds a list that all parties agreed on to the transcript, if one is kept.
    pub fn note_agreed<'a>(&self, what: &str, names: impl Iterator<Item = &'a str>) {
        self.with_transcript(|transcript| transcript.agreed(what, names));
    }

    /// From now on, ends the job before a message that `send_filter` refuses is sent.
    pub fn set_send_filter(&self, send_filter: SendFilter) {
        self.ledger.borrow_mut().send_filter = Some(send_filter);
    }

    /// From now on, asks `guard` with the parties of each sum that continues without lost ones, before it is opened.
    pub fn set_sum_guard(&self, guard: SumGuard) {
        self.ledger.borrow_mut().sum_guard = Some(guard);
    }

    /// Checks that a message may be sent, and adds it to the transcript.
    fn sends<T: Element>(&self, tag: MessageTag, content: &[T]) {
        if let Some(send_filter) = &self.ledger.borrow().send_filter
            && let Err(why) = send_filter(tag)
        {
            error(&why);
            end_job(EXIT_INPUT);
        }
        self.with_transcript(|transcript| {
            transcript.sent(tag.kind, tag.payload.name(), tag.protection().name(), bytemuck::cast_slice(content));
        });
    }

    /// Runs the communication `f` and records its time and its volume.
    fn timed<R>(&self, tag: MessageTag, volume: Volume, f: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = watchdog::waiting(tag.kind, f);
        self.record(tag, volume, start.elapsed().as_secs_f64());
        result
    }

    /// Records one communication. A server's messages count as no party's, and nothing leaves a rank that is the only one.
    fn record(&self, tag: MessageTag, volume: Volume, seconds: f64) {
        let alone = self.size() == 1;
        let entry = Entry {
            calls: 1,
            seconds,
            party_bytes: if self.server { 0 } else { volume.party as u64 },
            mpi_bytes: if alone { 0 } else { volume.rank as u64 },
            messages: if alone { 0 } else { volume.messages as u64 },
            flops: 0,
        };
        self.ledger.borrow_mut().sent(tag, &entry);
    }

    /// The volume of `elements` of type T, the same for the hosted parties and for the rank.
    fn volume<T>(&self, elements: usize, messages: usize) -> Volume {
        let bytes = elements * size_of::<T>();
        Volume { party: bytes, rank: bytes, messages }
    }

    /// Number of calls of the transport for a message of this many elements.
    fn pieces(&self, elements: usize) -> usize {
        elements.div_ceil(self.inner.chunk)
    }

    /// Agrees on errors: if any rank has one, all ranks return that of the lowest rank. What is wrong at a site can tell about its
    /// data, so each site has its own error, and the others only learn which site that is.
    ///
    /// # Errors
    /// On all ranks, if any rank has an error.
    pub fn agree_on_error<R>(&self, result: Result<R>) -> SharedResult<R> {
        let mine: Option<(bool, String)> = result.as_ref().err().map(|e| {
            let text = if self.has_owners() { String::new() } else { e.message.clone() };
            (e.kind != ErrorKind::Failed, text)
        });
        let mut any = [u32::from(mine.is_some())];
        self.max(AGREEMENT, &mut any);
        if any[0] == 0 {
            // No rank has an error, so this one has none either.
            return result.map_err(Error::on_all_ranks);
        }
        let errors = self.gather_present(AGREEMENT, &mine);
        let first = errors.into_iter().enumerate().find_map(|(rank, error)| Some((rank, error.flatten()?)));
        let message = match (&first, result) {
            (_, Err(own)) if self.has_owners() => own.message,
            (Some((rank, _)), _) if self.has_owners() => {
                format!("{} cannot go on, for a reason that it prints itself", self.name_of(*rank))
            }
            (Some((_, (_, text))), _) => text.clone(),
            (None, _) => "a site that is lost had an error, which it prints itself".into(),
        };
        let is_input = first.is_some_and(|(_, (is_input, _))| is_input);
        Err(if is_input { Error::input(message) } else { Error::failed(message) }.on_all_ranks())
    }

    /// Waits for all ranks. Not recorded; for the end of a run, never inside an iteration.
    pub fn barrier(&self) {
        watchdog::waiting("barrier", || self.transport().barrier());
    }
}
