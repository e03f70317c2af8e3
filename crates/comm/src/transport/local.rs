//! A group of one rank, without MPI: every collective returns this rank's own data.

use std::rc::Rc;
use std::time::Duration;

use super::interface::{Buffer, BufferMut, ControlMessage, Op, OwnedBuffer, Transport};

/// One process.
#[derive(Debug)]
pub struct Local;

fn no_other_rank(rank: usize) -> ! {
    panic!("there is no rank {rank} besides this one")
}

impl Transport for Local {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn barrier(&self) {}

    fn all_reduce(&self, _: Op, _: BufferMut<'_>) {}

    fn all_reduce_while(&self, _: Op, _: BufferMut<'_>, work: &mut dyn FnMut()) {
        work();
    }

    fn reduce_scatter(&self, send: Buffer<'_>, _: &[i32], receive: BufferMut<'_>) {
        receive.bytes.copy_from_slice(send.bytes);
    }

    fn all_gather(&self, local: Buffer<'_>, _: &[i32], _: &[i32], receive: BufferMut<'_>) {
        receive.bytes.copy_from_slice(local.bytes);
    }

    fn all_to_all(&self, send: Buffer<'_>, _: &[i32], receive: BufferMut<'_>, _: &[i32]) {
        receive.bytes.copy_from_slice(send.bytes);
    }

    fn broadcast(&self, _: usize, _: BufferMut<'_>) {}

    fn send(&self, rank: usize, _: Buffer<'_>) {
        no_other_rank(rank)
    }

    fn receive(&self, rank: usize, _: BufferMut<'_>) {
        no_other_rank(rank)
    }

    fn send_within(&self, rank: usize, _: &mut dyn OwnedBuffer, _: usize, _: Duration) -> bool {
        no_other_rank(rank)
    }

    fn receive_within(&self, rank: usize, _: &mut dyn OwnedBuffer, _: usize, _: Duration) -> bool {
        no_other_rank(rank)
    }

    fn send_control(&self, rank: usize, _: ControlMessage) {
        no_other_rank(rank)
    }

    fn try_receive_control(&self, _: Option<usize>) -> Option<(usize, ControlMessage)> {
        None
    }

    fn split(&self, _: usize) -> Rc<dyn Transport> {
        Rc::new(Local)
    }

    fn subgroup(&self, _: &[usize]) -> Rc<dyn Transport> {
        Rc::new(Local)
    }
}
