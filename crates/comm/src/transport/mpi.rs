//! Messages through MPI: operations that rsmpi's safe layer lacks or cannot do in place, and waiting that yields the core
//! to other ranks. The only `unsafe` code of the communication.
//!
//! Counts are checked against the buffers here; the communicator cuts long messages.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mpi::environment::Universe;
use mpi::ffi;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{AsRaw, Communicator, Equivalence, Group, Source};

use fednmf_base::error::{Error, SharedResult};
use fednmf_linalg::ElementType;

use super::interface::{Buffer, BufferMut, ControlMessage, Op, OwnedBuffer, RankPart, Transport};

/// MPI tags: control messages, messages with a deadline and exchanges are never mistaken for others.
const PLAIN: c_int = 0;
const CONTROL: c_int = 1;
const WITHIN: c_int = 2;
const EXCHANGE: c_int = 3;

/// An MPI communicator.
pub struct Mpi {
    comm: SimpleCommunicator,
    /// Finalises MPI when the last group is gone; after `comm`, which must be freed before.
    universe: Rc<Universe>,
    /// The requests of an exchange; kept, so that iterations do not allocate.
    requests: RefCell<Vec<ffi::MPI_Request>>,
}

impl Mpi {
    /// Initialises MPI; the group is all ranks of the job.
    ///
    /// # Errors
    /// If MPI was initialised before.
    pub fn start() -> SharedResult<Self> {
        let universe = mpi::initialize().ok_or_else(|| Error::failed("MPI is already initialised").on_all_ranks())?;
        let world = Mpi { comm: universe.world(), universe: Rc::new(universe), requests: RefCell::default() };
        world.find_crowded_nodes();
        Ok(world)
    }

    fn group(&self, comm: SimpleCommunicator) -> Mpi {
        Mpi { comm, universe: self.universe.clone(), requests: RefCell::default() }
    }

    /// Determines, once and with the same result on all ranks, whether some node has more ranks than cores.
    ///
    /// A rank that waits inside an MPI library keeps its core busy, so on such a node another rank would make no progress
    /// until the kernel preempts the waiting one, which takes milliseconds for every message. MPICH never yields; on a
    /// crowded node every call below is therefore started as a nonblocking one and tested, with the core yielded in
    /// between. Elsewhere the library's own waiting is faster. Open MPI yields by itself if `mpirun` knows that there are
    /// too few cores.
    fn find_crowded_nodes(&self) {
        if is_open_mpi() || CROWDED.get().is_some() {
            return;
        }
        let node = self.group(self.comm.split_shared(self.comm.rank()));
        // Ranks may be bound to a core each: the node's cores are those of all its ranks together.
        let mut cores = allowed_cores();
        node.all_reduce(Op::Max, BufferMut::new(&mut cores));
        let own: usize = cores.iter().map(|&core| usize::from(core)).sum();
        let mut crowded = [u8::from(node.size() > own)];
        self.all_reduce(Op::Max, BufferMut::new(&mut crowded));
        let _ = CROWDED.set(crowded[0] == 1);
    }
}

/// Whether ranks yield while they wait, because some node has more of them than cores.
static CROWDED: OnceLock<bool> = OnceLock::new();

fn crowded() -> bool {
    CROWDED.get().copied().unwrap_or(false)
}

/// A 1 for each core that this process may run on.
fn allowed_cores() -> Vec<u8> {
    const MOST: usize = 8192;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut cores = vec![0; MOST];
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or("0-8191");
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            (first..=last.min(MOST - 1)).for_each(|core| cores[core] = 1);
        }
    }
    cores
}

/// Name and version of the library, the first line or clause of what it says of itself.
pub fn library() -> Option<String> {
    let text = mpi::environment::library_version().ok()?;
    text.split(['\n', ',']).next().map(|first| first.trim().replace('\t', " "))
}

fn is_open_mpi() -> bool {
    static OPEN_MPI: OnceLock<bool> = OnceLock::new();
    *OPEN_MPI.get_or_init(|| mpi::environment::library_version().is_ok_and(|v| v.contains("Open MPI")))
}

/// `MPI_IN_PLACE` is a macro, so no binding has it. Open MPI (and what is built on it) defines it as 1, the libraries of
/// the MPICH ABI (MPICH, Intel MPI, MVAPICH, Cray) as -1.
fn in_place() -> *mut c_void {
    if is_open_mpi() { std::ptr::without_provenance_mut(1) } else { std::ptr::without_provenance_mut(usize::MAX) }
}

/// The address of a buffer. An empty slice of bytes has the dangling address 1, which Open MPI takes for `MPI_IN_PLACE`.
fn address(bytes: &[u8]) -> *const c_void {
    static NOWHERE: u64 = 0;
    if bytes.is_empty() { (&raw const NOWHERE).cast() } else { bytes.as_ptr().cast() }
}

/// As [`address`]; MPI writes nothing to an empty buffer.
fn address_mut(bytes: &mut [u8]) -> *mut c_void {
    if bytes.is_empty() { address(bytes).cast_mut() } else { bytes.as_mut_ptr().cast() }
}

fn datatype(element: ElementType) -> ffi::MPI_Datatype {
    match element {
        ElementType::U8 => u8::equivalent_datatype().as_raw(),
        ElementType::U32 => u32::equivalent_datatype().as_raw(),
        ElementType::U64 => u64::equivalent_datatype().as_raw(),
        ElementType::F32 => f32::equivalent_datatype().as_raw(),
        ElementType::F64 => f64::equivalent_datatype().as_raw(),
    }
}

fn operation(op: Op) -> ffi::MPI_Op {
    // SAFETY: constants that the shim library defines.
    unsafe {
        match op {
            Op::Sum => ffi::RSMPI_SUM,
            Op::Max => ffi::RSMPI_MAX,
        }
    }
}

fn null_request() -> ffi::MPI_Request {
    // SAFETY: a constant that the shim library defines.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

fn int(n: usize) -> c_int {
    c_int::try_from(n).expect("the communicator cuts messages below 2^31 elements")
}

fn total(counts: &[c_int]) -> usize {
    counts.iter().map(|&count| count as usize).sum()
}

/// Where each part begins, if they lie one after another.
fn offsets(counts: &[c_int]) -> Vec<c_int> {
    let mut end = 0;
    let begin = |&count: &c_int| {
        end += count;
        end - count
    };
    counts.iter().map(begin).collect()
}

fn check(status: c_int, call: &str) {
    // The default error handler aborts before this; an error that another handler returns must not be ignored.
    assert_eq!(status, 0, "{call} failed");
}

/// Makes a blocking call, or on a crowded node starts the nonblocking one and yields until it is done.
fn call(name: &str, blocking: impl FnOnce() -> c_int, start: impl FnOnce(*mut ffi::MPI_Request) -> c_int) {
    if !crowded() {
        return check(blocking(), name);
    }
    let mut request = null_request();
    check(start(&mut request), name);
    yield_until_done(&mut request, name);
}

/// Tests a request until it is done, and yields the core in between.
fn yield_until_done(request: &mut ffi::MPI_Request, name: &str) {
    yield_until(request, name, || false);
}

/// As [`yield_until_done`], but gives up once `late`; returns whether the request is done.
fn yield_until(request: &mut ffi::MPI_Request, name: &str, late: impl Fn() -> bool) -> bool {
    let mut done: c_int = 0;
    for attempt in 0u64.. {
        // SAFETY: a started request whose buffers the caller keeps borrowed; it is tested until it is done.
        check(unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) }, name);
        if done != 0 || late() {
            return done != 0;
        }
        // Where others compute all the time, a thread that only yields runs last; one that sleeps is woken at once.
        if attempt < 30 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(20)) }
    }
    unreachable!("2^64 polls")
}

/// A nonblocking call under way; dropping it waits. The caller keeps the buffer borrowed.
struct Pending {
    request: ffi::MPI_Request,
    name: &'static str,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if crowded() {
            return yield_until_done(&mut self.request, self.name);
        }
        // SAFETY: the request was started, and is waited for once.
        check(unsafe { ffi::MPI_Wait(&mut self.request, ffi::RSMPI_STATUS_IGNORE) }, self.name);
    }
}

/// Transfers a message in pieces through `start`, each within the remainder of `limit`.
fn pass(
    elements: &mut dyn OwnedBuffer,
    chunk: usize,
    limit: Duration,
    name: &str,
    start: impl Fn(BufferMut<'_>, *mut ffi::MPI_Request) -> c_int,
) -> bool {
    let until = Instant::now() + limit;
    let passed = elements.buffer().chunks(chunk).all(|part| {
        let mut request = null_request();
        check(start(part, &mut request), name);
        yield_until(&mut request, name, || Instant::now() >= until)
    });
    if !passed {
        elements.leak();
    }
    passed
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    fn size(&self) -> usize {
        self.comm.size() as usize
    }

    fn barrier(&self) {
        let comm = self.comm.as_raw();
        // SAFETY: no buffers.
        call(
            "MPI_Barrier",
            || unsafe { ffi::MPI_Barrier(comm) },
            |request| unsafe { ffi::MPI_Ibarrier(comm, request) },
        );
    }

    fn all_reduce(&self, op: Op, buffer: BufferMut<'_>) {
        let (n, t, op, comm) = (int(buffer.count()), datatype(buffer.element), operation(op), self.comm.as_raw());
        let at = address_mut(buffer.bytes);
        // SAFETY: the buffer has the length that is passed; in place it is both input and output.
        call(
            "MPI_Allreduce",
            || unsafe { ffi::MPI_Allreduce(in_place(), at, n, t, op, comm) },
            |request| unsafe { ffi::MPI_Iallreduce(in_place(), at, n, t, op, comm, request) },
        );
    }

    fn all_reduce_while(&self, op: Op, buffer: BufferMut<'_>, work: &mut dyn FnMut()) {
        let (n, t, op, comm) = (int(buffer.count()), datatype(buffer.element), operation(op), self.comm.as_raw());
        let mut pending = Pending { request: null_request(), name: "MPI_Iallreduce" };
        let (at, request) = (address_mut(buffer.bytes), &mut pending.request);
        // SAFETY: as for the blocking call; the borrow of the buffer outlives `pending`, which waits when it is dropped.
        check(unsafe { ffi::MPI_Iallreduce(in_place(), at, n, t, op, comm, request) }, pending.name);
        work();
    }

    fn reduce_scatter(&self, send: Buffer<'_>, counts: &[i32], receive: BufferMut<'_>) {
        assert_eq!(total(counts), send.count());
        assert_eq!(counts[self.rank()] as usize, receive.count());
        let (t, comm, counts) = (datatype(send.element), self.comm.as_raw(), counts.as_ptr());
        let (from, to) = (address(send.bytes), address_mut(receive.bytes));
        // SAFETY: the counts cover both buffers exactly (checked).
        call(
            "MPI_Reduce_scatter",
            || unsafe { ffi::MPI_Reduce_scatter(from, to, counts, t, ffi::RSMPI_SUM, comm) },
            |request| unsafe { ffi::MPI_Ireduce_scatter(from, to, counts, t, ffi::RSMPI_SUM, comm, request) },
        );
    }

    fn all_gather(&self, local: Buffer<'_>, counts: &[i32], offsets: &[i32], receive: BufferMut<'_>) {
        assert!(counts.iter().zip(offsets).all(|(&count, &offset)| (offset + count) as usize <= receive.count()));
        let (n, t, comm) = (int(local.count()), datatype(local.element), self.comm.as_raw());
        let (from, to, counts, offsets) =
            (address(local.bytes), address_mut(receive.bytes), counts.as_ptr(), offsets.as_ptr());
        // SAFETY: every part lies inside the receive buffer (checked).
        call(
            "MPI_Allgatherv",
            || unsafe { ffi::MPI_Allgatherv(from, n, t, to, counts, offsets, t, comm) },
            |request| unsafe { ffi::MPI_Iallgatherv(from, n, t, to, counts, offsets, t, comm, request) },
        );
    }

    fn all_to_all(&self, send: Buffer<'_>, send_counts: &[i32], receive: BufferMut<'_>, receive_counts: &[i32]) {
        assert!(total(send_counts) == send.count() && total(receive_counts) == receive.count());
        let (send_offsets, receive_offsets) = (offsets(send_counts), offsets(receive_counts));
        let (t, comm) = (datatype(send.element), self.comm.as_raw());
        let (from, n, at) = (address(send.bytes), send_counts.as_ptr(), send_offsets.as_ptr());
        let (to, n2, at2) = (address_mut(receive.bytes), receive_counts.as_ptr(), receive_offsets.as_ptr());
        // SAFETY: the counts cover both buffers exactly (checked).
        call(
            "MPI_Alltoallv",
            || unsafe { ffi::MPI_Alltoallv(from, n, at, t, to, n2, at2, t, comm) },
            |request| unsafe { ffi::MPI_Ialltoallv(from, n, at, t, to, n2, at2, t, comm, request) },
        );
    }

    fn exchange(&self, (send, to): (Buffer<'_>, &[RankPart]), (receive, from): (BufferMut<'_>, &[RankPart])) {
        let (t, comm, size) = (datatype(send.element), self.comm.as_raw(), send.element.size());
        let (sent, received) = (send.count(), receive.count());
        assert!(to.iter().all(|(_, part)| part.end <= sent) && from.iter().all(|(_, part)| part.end <= received));
        let mut requests = self.requests.borrow_mut();
        for (rank, part) in from {
            let mut request = null_request();
            let at = address_mut(&mut receive.bytes[part.start * size..part.end * size]);
            let (n, rank) = (int(part.len()), int(*rank));
            // SAFETY: the part has the length that is passed, is borrowed until the request is done below, and no other
            // part overlaps it; a longer message is an MPI error and is not written.
            check(unsafe { ffi::MPI_Irecv(at, n, t, rank, EXCHANGE, comm, &mut request) }, "MPI_Irecv");
            requests.push(request);
        }
        for (rank, part) in to {
            let mut request = null_request();
            let at = address(&send.bytes[part.start * size..part.end * size]);
            let (n, rank) = (int(part.len()), int(*rank));
            // SAFETY: the part has the length that is passed, and is borrowed until the request is done below.
            check(unsafe { ffi::MPI_Isend(at, n, t, rank, EXCHANGE, comm, &mut request) }, "MPI_Isend");
            requests.push(request);
        }
        for request in requests.drain(..) {
            // Dropping it waits.
            drop(Pending { request, name: "MPI_Wait" });
        }
    }

    fn broadcast(&self, root: usize, buffer: BufferMut<'_>) {
        let (n, t, root, comm) = (int(buffer.count()), datatype(buffer.element), int(root), self.comm.as_raw());
        let at = address_mut(buffer.bytes);
        // SAFETY: the buffer has the length that is passed.
        call(
            "MPI_Bcast",
            || unsafe { ffi::MPI_Bcast(at, n, t, root, comm) },
            |request| unsafe { ffi::MPI_Ibcast(at, n, t, root, comm, request) },
        );
    }

    fn send(&self, rank: usize, elements: Buffer<'_>) {
        let (n, t, rank, comm) = (int(elements.count()), datatype(elements.element), int(rank), self.comm.as_raw());
        let at = address(elements.bytes);
        // SAFETY: the buffer has the length that is passed, and is borrowed until the message is sent.
        call(
            "MPI_Send",
            || unsafe { ffi::MPI_Send(at, n, t, rank, PLAIN, comm) },
            |request| unsafe { ffi::MPI_Isend(at, n, t, rank, PLAIN, comm, request) },
        );
    }

    fn receive(&self, rank: usize, elements: BufferMut<'_>) {
        let (n, t, rank, comm) = (int(elements.count()), datatype(elements.element), int(rank), self.comm.as_raw());
        let at = address_mut(elements.bytes);
        // SAFETY: the buffer has the length that is passed; a longer message is an MPI error and is not written.
        call(
            "MPI_Recv",
            || unsafe { ffi::MPI_Recv(at, n, t, rank, PLAIN, comm, ffi::RSMPI_STATUS_IGNORE) },
            |request| unsafe { ffi::MPI_Irecv(at, n, t, rank, PLAIN, comm, request) },
        );
    }

    fn send_within(&self, rank: usize, elements: &mut dyn OwnedBuffer, chunk: usize, limit: Duration) -> bool {
        pass(elements, chunk, limit, "MPI_Isend", |part, request| {
            let (n, t, at) = (int(part.count()), datatype(part.element), address(part.bytes));
            // SAFETY: the buffer has the length that is passed; it outlives the message, or is leaked.
            unsafe { ffi::MPI_Isend(at, n, t, int(rank), WITHIN, self.comm.as_raw(), request) }
        })
    }

    fn receive_within(&self, rank: usize, elements: &mut dyn OwnedBuffer, chunk: usize, limit: Duration) -> bool {
        pass(elements, chunk, limit, "MPI_Irecv", |part, request| {
            let (n, t, at) = (int(part.count()), datatype(part.element), address_mut(part.bytes));
            // SAFETY: as for sending; a longer message is an MPI error and is not written.
            unsafe { ffi::MPI_Irecv(at, n, t, int(rank), WITHIN, self.comm.as_raw(), request) }
        })
    }

    fn send_control(&self, rank: usize, message: ControlMessage) {
        let (n, t, comm) = (int(message.len()), datatype(ElementType::U64), self.comm.as_raw());
        let at = message.as_ptr().cast();
        // SAFETY: the buffer has the length that is passed; the library copies such a short message.
        check(unsafe { ffi::MPI_Send(at, n, t, int(rank), CONTROL, comm) }, "MPI_Send");
    }

    fn try_receive_control(&self, rank: Option<usize>) -> Option<(usize, ControlMessage)> {
        let status = match rank {
            Some(rank) => self.comm.process_at_rank(int(rank)).immediate_probe_with_tag(CONTROL),
            None => self.comm.any_process().immediate_probe_with_tag(CONTROL),
        };
        let from = status?.source_rank();
        let mut message = ControlMessage::default();
        let (n, t, comm) = (int(message.len()), datatype(ElementType::U64), self.comm.as_raw());
        let at = message.as_mut_ptr().cast();
        // SAFETY: the buffer has the length that is passed; a longer message is an MPI error and is not written.
        check(unsafe { ffi::MPI_Recv(at, n, t, from, CONTROL, comm, ffi::RSMPI_STATUS_IGNORE) }, "MPI_Recv");
        Some((from as usize, message))
    }

    fn split(&self, color: usize) -> Rc<dyn Transport> {
        let comm = self.comm.split_by_color_with_key(Color::with_value(int(color)), self.comm.rank());
        Rc::new(self.group(comm.expect("every rank has a colour")))
    }

    fn subgroup(&self, ranks: &[usize]) -> Rc<dyn Transport> {
        let ranks: Vec<c_int> = ranks.iter().map(|&rank| int(rank)).collect();
        let comm = self.comm.split_by_subgroup(&self.comm.group().include(&ranks));
        Rc::new(self.group(comm.expect("this rank is one of them")))
    }
}

/// Ends the whole job if MPI is running, whatever the other ranks are doing.
pub fn abort(code: i32) {
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        // Gives the launcher time to forward the last output: MPICH's launcher drops it with the job.
        std::thread::sleep(Duration::from_millis(100));
        // SAFETY: MPI is initialised and not finalised.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) };
    }
}
