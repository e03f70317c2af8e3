//! The raw MPI calls that rsmpi's safe layer lacks or cannot do in place: the only `unsafe` of the communication.
//!
//! Counts are checked against the buffers here; cutting long messages into chunks is the door's business.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{AsRaw, Equivalence};

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

/// `MPI_IN_PLACE` is a macro, so no binding has it. Open MPI (and what is built on it) defines it as 1, the libraries of
/// the MPICH ABI (MPICH, Intel MPI, MVAPICH, Cray) as -1.
fn in_place() -> *mut c_void {
    static OPEN_MPI: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let open = *OPEN_MPI.get_or_init(|| mpi::environment::library_version().is_ok_and(|v| v.contains("Open MPI")));
    if open { std::ptr::without_provenance_mut(1) } else { std::ptr::without_provenance_mut(usize::MAX) }
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
    c_int::try_from(n).expect("the door cuts messages below 2^31 elements")
}

fn check(status: c_int, call: &str) {
    // The default error handler aborts before this; a caller's own handler must not be ignored.
    assert_eq!(status, 0, "{call} failed");
}

/// In-place all-reduce.
pub fn all_reduce<T: Equivalence>(comm: &SimpleCommunicator, op: Op, buffer: &mut [T]) {
    // SAFETY: the buffer has the length that is passed; in place it is both input and output.
    let status = unsafe {
        ffi::MPI_Allreduce(in_place(), address_mut(buffer), int(buffer.len()), datatype::<T>(), op.raw(), comm.as_raw())
    };
    check(status, "MPI_Allreduce");
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
        // SAFETY: the request is the one that was started, and is waited for once.
        let status = unsafe { ffi::MPI_Wait(&mut self.request, ffi::RSMPI_STATUS_IGNORE) };
        check(status, "MPI_Wait");
    }
}

/// Reduce-scatter with unequal counts: rank r gets the sum of the r-th part.
pub fn reduce_scatter<T: Equivalence>(comm: &SimpleCommunicator, send: &[T], counts: &[c_int], receive: &mut [T]) {
    assert_eq!(counts.iter().map(|&c| c as usize).sum::<usize>(), send.len());
    // SAFETY: the counts cover the send buffer exactly, and the receive buffer has this rank's count (the door's part).
    let status = unsafe {
        ffi::MPI_Reduce_scatter(
            address(send),
            address_mut(receive),
            counts.as_ptr(),
            datatype::<T>(),
            ffi::RSMPI_SUM,
            comm.as_raw(),
        )
    };
    check(status, "MPI_Reduce_scatter");
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
    // SAFETY: every part lies inside the receive buffer (checked).
    let status = unsafe {
        ffi::MPI_Allgatherv(
            address(local),
            int(local.len()),
            datatype::<T>(),
            address_mut(out),
            counts.as_ptr(),
            starts.as_ptr(),
            datatype::<T>(),
            comm.as_raw(),
        )
    };
    check(status, "MPI_Allgatherv");
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
    // SAFETY: the counts cover both buffers exactly (checked).
    let status = unsafe {
        ffi::MPI_Alltoallv(
            address(send),
            send_counts.as_ptr(),
            send_starts.as_ptr(),
            datatype::<T>(),
            address_mut(receive),
            receive_counts.as_ptr(),
            receive_starts.as_ptr(),
            datatype::<T>(),
            comm.as_raw(),
        )
    };
    check(status, "MPI_Alltoallv");
}

/// Ends the whole job, whatever the other ranks do; never returns.
pub fn abort(code: i32) -> ! {
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        // SAFETY: MPI is initialised and not finalised.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) };
    }
    std::process::exit(code)
}
