//! The raw MPI calls: what rsmpi's safe layer lacks or cannot do in place, and waiting that gives way to other ranks. The
//! only `unsafe` of the communication.
//!
//! Counts are checked against the buffers here; cutting long messages into chunks is the comm's business.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{AsRaw, Communicator, Equivalence, Source};

/// The element-wise operations of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Sum,
    Max,
}

impl Op {
    fn raw(self) -> ffi::MPI_Op {
        // SAFETY: constants that the shim library defines.
        unsafe {
            match self {
                Op::Sum => ffi::RSMPI_SUM,
                Op::Max => ffi::RSMPI_MAX,
            }
        }
    }
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

/// Where a slice lies. An empty one has no address of its own, and the made-up one of an empty slice of bytes is 1, which
/// Open MPI takes for `MPI_IN_PLACE`.
fn address<T>(slice: &[T]) -> *const c_void {
    static NOWHERE: u64 = 0;
    if slice.is_empty() { (&raw const NOWHERE).cast() } else { slice.as_ptr().cast() }
}

/// As [`address`]; MPI writes nothing to an empty slice.
fn address_mut<T>(slice: &mut [T]) -> *mut c_void {
    if slice.is_empty() { address(slice).cast_mut() } else { slice.as_mut_ptr().cast() }
}

fn datatype<T: Equivalence>() -> ffi::MPI_Datatype {
    T::equivalent_datatype().as_raw()
}

fn int(n: usize) -> c_int {
    c_int::try_from(n).expect("the comm cuts messages below 2^31 elements")
}

fn check(status: c_int, call: &str) {
    // The default error handler aborts before this; a caller's own handler must not be ignored.
    assert_eq!(status, 0, "{call} failed");
}

/// Whether ranks give way while they wait, because some node has more of them than cores.
static CROWDED: OnceLock<bool> = OnceLock::new();

/// Finds out, once and alike on all ranks, whether some node has more ranks than cores. A rank that waits inside an MPI
/// library keeps its core busy, and there another rank's work would stand still until the kernel takes turns, some
/// milliseconds for every message. MPICH never gives way; so on a crowded node every call below is started, and then
/// asked for with the core given away in between. Elsewhere its own waiting is the faster one. Open MPI gives way by
/// itself where `mpirun` knows that there are too few cores.
pub fn settle(world: &SimpleCommunicator) {
    if is_open_mpi() || CROWDED.get().is_some() {
        return;
    }
    let node = world.split_shared(world.rank());
    // Ranks may be bound to a core each: the node's cores are those of all its ranks together.
    let mut cores = allowed_cores();
    all_reduce(&node, Op::Max, &mut cores);
    let own: u32 = cores.iter().map(|word| u32::from(*word)).sum();
    let mut crowded = [u8::from(node.size() as u32 > own)];
    all_reduce(world, Op::Max, &mut crowded);
    let _ = CROWDED.set(crowded[0] == 1);
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

/// Does a call as the library does it, or on a crowded node starts it and gives way until it is done.
fn call(name: &str, whole: impl FnOnce() -> c_int, start: impl FnOnce(*mut ffi::MPI_Request) -> c_int) {
    if !crowded() {
        return check(whole(), name);
    }
    // SAFETY: a constant that the shim library defines.
    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
    check(start(&mut request), name);
    give_way_until_done(&mut request, name);
}

/// Asks for a request until it is done, and gives the core away in between.
fn give_way_until_done(request: &mut ffi::MPI_Request, name: &str) {
    give_way_until(request, name, || false);
}

/// As [`give_way_until_done`], unless `late` says that it lasts too long; whether it is done.
fn give_way_until(request: &mut ffi::MPI_Request, name: &str, late: impl Fn() -> bool) -> bool {
    let mut done: c_int = 0;
    for attempt in 0u64.. {
        // SAFETY: a request that was started and whose buffers the caller keeps borrowed, asked for until it is done.
        check(unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) }, name);
        if done != 0 || late() {
            return done != 0;
        }
        // Who only ever gives way comes last wherever others compute all the time; who sleeps is woken at once.
        if attempt < 30 { std::thread::yield_now() } else { std::thread::sleep(std::time::Duration::from_micros(20)) }
    }
    unreachable!("2^64 looks")
}

fn crowded() -> bool {
    CROWDED.get().copied().unwrap_or(false)
}

/// In-place all-reduce.
pub fn all_reduce<T: Equivalence>(comm: &SimpleCommunicator, op: Op, buffer: &mut [T]) {
    let (n, at, t, op, comm) = (int(buffer.len()), address_mut(buffer), datatype::<T>(), op.raw(), comm.as_raw());
    // SAFETY: the buffer has the length that is passed; in place it is both input and output.
    call(
        "MPI_Allreduce",
        || unsafe { ffi::MPI_Allreduce(in_place(), at, n, t, op, comm) },
        |request| unsafe { ffi::MPI_Iallreduce(in_place(), at, n, t, op, comm, request) },
    );
}

/// An all-reduce that is under way; the buffer is lent to it until it is waited for, also when it is dropped.
pub struct Pending<'a> {
    request: ffi::MPI_Request,
    buffer: PhantomData<&'a mut [u8]>,
}

/// Starts an in-place all-reduce.
pub fn start_all_reduce<'a, T: Equivalence>(comm: &SimpleCommunicator, op: Op, buffer: &'a mut [T]) -> Pending<'a> {
    let mut request = MaybeUninit::uninit();
    // SAFETY: as for the blocking one; the buffer stays borrowed as long as the value that is returned lives, and that
    // waits before it is gone.
    let status = unsafe {
        ffi::MPI_Iallreduce(
            in_place(),
            address_mut(buffer),
            int(buffer.len()),
            datatype::<T>(),
            op.raw(),
            comm.as_raw(),
            request.as_mut_ptr(),
        )
    };
    check(status, "MPI_Iallreduce");
    // SAFETY: the call has succeeded, so it has written the request.
    Pending { request: unsafe { request.assume_init() }, buffer: PhantomData }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if crowded() {
            return give_way_until_done(&mut self.request, "MPI_Iallreduce");
        }
        // SAFETY: the request is the one that was started, and is waited for once.
        let status = unsafe { ffi::MPI_Wait(&mut self.request, ffi::RSMPI_STATUS_IGNORE) };
        check(status, "MPI_Wait");
    }
}

/// Reduce-scatter with unequal counts: rank r gets the sum of the r-th part.
pub fn reduce_scatter<T: Equivalence>(comm: &SimpleCommunicator, send: &[T], counts: &[c_int], receive: &mut [T]) {
    assert_eq!(counts.iter().map(|&c| c as usize).sum::<usize>(), send.len());
    let (to, counts, t, comm) = (address_mut(receive), counts.as_ptr(), datatype::<T>(), comm.as_raw());
    // SAFETY: the counts cover the send buffer exactly, and the receive buffer has this rank's count (the comm's part).
    call(
        "MPI_Reduce_scatter",
        || unsafe { ffi::MPI_Reduce_scatter(address(send), to, counts, t, ffi::RSMPI_SUM, comm) },
        |request| unsafe { ffi::MPI_Ireduce_scatter(address(send), to, counts, t, ffi::RSMPI_SUM, comm, request) },
    );
}

/// All-gather with unequal counts; `out` is the concatenation by rank.
pub fn all_gather<T: Equivalence>(
    comm: &SimpleCommunicator,
    local: &[T],
    counts: &[c_int],
    starts: &[c_int],
    out: &mut [T],
) {
    assert!(counts.iter().zip(starts).all(|(&c, &s)| (s + c) as usize <= out.len()));
    let (n, to, t, comm) = (int(local.len()), address_mut(out), datatype::<T>(), comm.as_raw());
    let (counts, starts) = (counts.as_ptr(), starts.as_ptr());
    // SAFETY: every part lies inside the receive buffer (checked).
    call(
        "MPI_Allgatherv",
        || unsafe { ffi::MPI_Allgatherv(address(local), n, t, to, counts, starts, t, comm) },
        |request| unsafe { ffi::MPI_Iallgatherv(address(local), n, t, to, counts, starts, t, comm, request) },
    );
}

/// All-to-all with unequal counts; parts lie one after another in both buffers.
pub fn all_to_all<T: Equivalence>(
    comm: &SimpleCommunicator,
    send: &[T],
    send_counts: &[c_int],
    receive: &mut [T],
    receive_counts: &[c_int],
) {
    let starts = |counts: &[c_int]| -> Vec<c_int> {
        counts
            .iter()
            .scan(0, |sum, &c| {
                let s = *sum;
                *sum += c;
                Some(s)
            })
            .collect()
    };
    let total = |counts: &[c_int]| counts.iter().map(|&c| c as usize).sum::<usize>();
    assert!(total(send_counts) == send.len() && total(receive_counts) == receive.len());
    let (send_starts, receive_starts) = (starts(send_counts), starts(receive_counts));
    let (from, n, at) = (address(send), send_counts.as_ptr(), send_starts.as_ptr());
    let (to, n2, at2) = (address_mut(receive), receive_counts.as_ptr(), receive_starts.as_ptr());
    let (t, comm) = (datatype::<T>(), comm.as_raw());
    // SAFETY: the counts cover both buffers exactly (checked).
    call(
        "MPI_Alltoallv",
        || unsafe { ffi::MPI_Alltoallv(from, n, at, t, to, n2, at2, t, comm) },
        |request| unsafe { ffi::MPI_Ialltoallv(from, n, at, t, to, n2, at2, t, comm, request) },
    );
}

/// The elements of rank `root`, on every rank.
pub fn broadcast<T: Equivalence>(comm: &SimpleCommunicator, root: usize, buffer: &mut [T]) {
    let (n, at, t, root, comm) = (int(buffer.len()), address_mut(buffer), datatype::<T>(), int(root), comm.as_raw());
    // SAFETY: the buffer has the length that is passed.
    call(
        "MPI_Bcast",
        || unsafe { ffi::MPI_Bcast(at, n, t, root, comm) },
        |request| unsafe { ffi::MPI_Ibcast(at, n, t, root, comm, request) },
    );
}

/// One message to `rank`.
pub fn send<T: Equivalence>(comm: &SimpleCommunicator, rank: usize, elements: &[T]) {
    let (n, at, t, rank, comm) = (int(elements.len()), address(elements), datatype::<T>(), int(rank), comm.as_raw());
    // SAFETY: the buffer has the length that is passed, and is borrowed until the message is gone.
    call(
        "MPI_Send",
        || unsafe { ffi::MPI_Send(at, n, t, rank, 0, comm) },
        |request| unsafe { ffi::MPI_Isend(at, n, t, rank, 0, comm, request) },
    );
}

/// One message from `rank`.
pub fn receive<T: Equivalence>(comm: &SimpleCommunicator, rank: usize, elements: &mut [T]) {
    let (n, at, t, rank, comm) =
        (int(elements.len()), address_mut(elements), datatype::<T>(), int(rank), comm.as_raw());
    // SAFETY: the buffer has the length that is passed; a longer message is MPI's error, not written.
    call(
        "MPI_Recv",
        || unsafe { ffi::MPI_Recv(at, n, t, rank, 0, comm, ffi::RSMPI_STATUS_IGNORE) },
        |request| unsafe { ffi::MPI_Irecv(at, n, t, rank, 0, comm, request) },
    );
}

/// Words have a tag of their own, and so have long messages with a limit: neither is taken for another.
const WORD: c_int = 1;
const LONG: c_int = 2;

/// A short message to `rank`, which the library keeps until it is asked for.
pub fn send_control(comm: &SimpleCommunicator, rank: usize, word: &[u64]) {
    let (n, at, t, rank, comm) = (int(word.len()), address(word), datatype::<u64>(), int(rank), comm.as_raw());
    // SAFETY: the buffer has the length that is passed, and is borrowed until the message is gone.
    check(unsafe { ffi::MPI_Send(at, n, t, rank, WORD, comm) }, "MPI_Send");
}

/// Who has said a word that has come but was not heard yet, of this rank or of all.
pub fn probe_control(comm: &SimpleCommunicator, rank: Option<usize>) -> Option<usize> {
    let status = match rank {
        Some(rank) => comm.process_at_rank(int(rank)).immediate_probe_with_tag(WORD),
        None => comm.any_process().immediate_probe_with_tag(WORD),
    };
    status.map(|status| status.source_rank() as usize)
}

/// The next word of `rank`.
pub fn recv_control(comm: &SimpleCommunicator, rank: usize, word: &mut [u64]) {
    let (n, at, t, rank, comm) = (int(word.len()), address_mut(word), datatype::<u64>(), int(rank), comm.as_raw());
    // SAFETY: the buffer has the length that is passed; a longer message is MPI's error, not written.
    check(unsafe { ffi::MPI_Recv(at, n, t, rank, WORD, comm, ffi::RSMPI_STATUS_IGNORE) }, "MPI_Recv");
}

/// Sends elements in pieces of at most `chunk`, and gives them back; gives up after `limit`, and then keeps their memory for
/// good, since the library may still reach for it.
pub fn send_until<T: Equivalence>(
    comm: &SimpleCommunicator,
    rank: usize,
    elements: Vec<T>,
    chunk: usize,
    limit: Duration,
) -> Option<Vec<T>> {
    pass(elements, chunk, limit, "MPI_Isend", |part, request| {
        let (n, at, t) = (int(part.len()), address(part), datatype::<T>());
        // SAFETY: the buffer has the length that is passed, and is kept until the message is gone, or for good.
        unsafe { ffi::MPI_Isend(at, n, t, int(rank), LONG, comm.as_raw(), request) }
    })
}

/// As [`send_until`], for elements that `rank` sends.
pub fn receive_until<T: Equivalence>(
    comm: &SimpleCommunicator,
    rank: usize,
    elements: Vec<T>,
    chunk: usize,
    limit: Duration,
) -> Option<Vec<T>> {
    pass(elements, chunk, limit, "MPI_Irecv", |part, request| {
        let (n, at, t) = (int(part.len()), address_mut(part), datatype::<T>());
        // SAFETY: as for sending; a longer message is MPI's error, not written.
        unsafe { ffi::MPI_Irecv(at, n, t, int(rank), LONG, comm.as_raw(), request) }
    })
}

fn pass<T>(
    mut elements: Vec<T>,
    chunk: usize,
    limit: Duration,
    name: &str,
    start: impl Fn(&mut [T], *mut ffi::MPI_Request) -> c_int,
) -> Option<Vec<T>> {
    let until = Instant::now() + limit;
    for part in elements.chunks_mut(chunk) {
        // SAFETY: a constant that the shim library defines.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        check(start(part, &mut request), name);
        if !give_way_until(&mut request, name, || Instant::now() >= until) {
            std::mem::forget(elements);
            return None;
        }
    }
    Some(elements)
}

/// Waits for all ranks.
pub fn barrier(comm: &SimpleCommunicator) {
    let comm = comm.as_raw();
    // SAFETY: no buffers.
    call("MPI_Barrier", || unsafe { ffi::MPI_Barrier(comm) }, |request| unsafe { ffi::MPI_Ibarrier(comm, request) });
}

/// Ends the whole job, whatever the other ranks do; never returns.
pub fn abort(code: i32) -> ! {
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        // What was said just now has still to pass the launcher, and MPICH's drops it with the job.
        std::thread::sleep(std::time::Duration::from_millis(100));
        // SAFETY: MPI is initialised and not finalised.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) };
    }
    std::process::exit(code)
}
