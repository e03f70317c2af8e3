//! The trait of a transport, and the buffers and messages that pass through it.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use fednmf_base::error::Result;
use fednmf_linalg::{Element, ElementType};
use fednmf_privacy::transcript::SiteSignature;

/// A short message that a rank may send at any time. Sender and receiver define the meaning of the two numbers.
pub type ControlMessage = [u64; 2];

/// A rank, and the elements of a buffer that it receives or sends.
pub type RankPart = (usize, Range<usize>);

/// The element-wise operation of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Sum,
    Max,
}

/// A rank that was lost while the others continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub rank: usize,
    /// The reason, to follow the name of the rank: `was lost: …`.
    pub why: String,
}

/// Elements to send, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct Buffer<'a> {
    pub element: ElementType,
    pub bytes: &'a [u8],
}

impl<'a> Buffer<'a> {
    pub fn new<T: Element>(elements: &'a [T]) -> Self {
        Buffer { element: T::TYPE, bytes: bytemuck::cast_slice(elements) }
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.bytes.len() / self.element.size()
    }
}

/// Elements to receive into or to reduce, as bytes.
#[derive(Debug)]
pub struct BufferMut<'a> {
    pub element: ElementType,
    pub bytes: &'a mut [u8],
}

impl<'a> BufferMut<'a> {
    pub fn new<T: Element>(elements: &'a mut [T]) -> Self {
        BufferMut { element: T::TYPE, bytes: bytemuck::cast_slice_mut(elements) }
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.bytes.len() / self.element.size()
    }

    /// Pieces of at most `elements` elements.
    pub fn chunks(self, elements: usize) -> impl Iterator<Item = BufferMut<'a>> {
        let element = self.element;
        self.bytes.chunks_mut(elements * element.size()).map(move |bytes| BufferMut { element, bytes })
    }
}

/// A buffer that a transport may leak, because an abandoned message may still be read from it or written to it.
pub trait OwnedBuffer {
    /// All elements.
    fn buffer(&mut self) -> BufferMut<'_>;
    /// Leaks the memory and leaves the owner with an empty buffer.
    fn leak(&mut self);
}

impl<T: Element> OwnedBuffer for Vec<T> {
    fn buffer(&mut self) -> BufferMut<'_> {
        BufferMut::new(self)
    }

    fn leak(&mut self) {
        std::mem::take(self).leak();
    }
}

/// A group of ranks that exchange messages.
///
/// All ranks of the group call a collective in the same order and with the same element type, operation and counts. Counts
/// and offsets are in elements; they are `i32` as in MPI, and the communicator cuts longer messages. Buffers have exactly
/// the length that counts and group size imply. Failures of the network end the job.
pub trait Transport {
    /// This process's number in the group, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks in the group.
    fn size(&self) -> usize;

    /// The owner of a rank's machine, if each rank has its own owner, with a terminal and a disk that the others do not see.
    fn owner(&self, _rank: usize) -> Option<&str> {
        None
    }

    /// Signs `key`, the public key of this rank's transcript, with the owner's certificate; `None` if there is none.
    ///
    /// # Errors
    /// If the certificate's key cannot sign.
    fn sign_transcript_key(&self, _key: &str) -> Result<Option<SiteSignature>> {
        Ok(None)
    }

    /// From now on, collectives continue without lost ranks if the transport supports it, as long as `least` ranks
    /// remain. A lost rank adds nothing to a reduction and contributes zeros to a gather, identically at all ranks.
    /// Collective.
    fn continue_without_lost(&self, _least: usize) {}

    /// Whether a rank took part in the last collective.
    fn participated(&self, _rank: usize) -> bool {
        true
    }

    /// The ranks that were lost while the others continue; the same at all ranks after a collective that began after
    /// the loss.
    fn losses(&self) -> Vec<Loss> {
        Vec::new()
    }

    /// The lowest rank that is not lost, as far as this one knows.
    fn root(&self) -> usize {
        0
    }

    /// Waits until all ranks have called it.
    fn barrier(&self);

    /// Reduces the buffers of all ranks, element by element, into every rank's buffer.
    fn all_reduce(&self, op: Op, buffer: BufferMut<'_>);

    /// [`Transport::all_reduce`] that may make progress while `work` is done. `work` may use the transport, but sees an
    /// undefined buffer. The sum is complete on return.
    fn all_reduce_while(&self, op: Op, buffer: BufferMut<'_>, work: &mut dyn FnMut());

    /// Sums `send` over the ranks; rank r gets the r-th of the parts that `counts` describes.
    fn reduce_scatter(&self, send: Buffer<'_>, counts: &[i32], receive: BufferMut<'_>);

    /// Puts rank r's `counts[r]` elements at `offsets[r]` of every rank's `receive`.
    fn all_gather(&self, local: Buffer<'_>, counts: &[i32], offsets: &[i32], receive: BufferMut<'_>);

    /// Sends the r-th part of `send` to rank r and receives the parts for this rank, in rank order.
    fn all_to_all(&self, send: Buffer<'_>, send_counts: &[i32], receive: BufferMut<'_>, receive_counts: &[i32]);

    /// Sends parts of a buffer to other ranks and receives theirs into parts of another one. The parts are pairs of a
    /// rank and its elements, in ascending order of ranks and contiguous. Sender and receiver use the same parts. Only
    /// ranks that exchange data need to communicate.
    fn exchange(&self, send: (Buffer<'_>, &[RankPart]), receive: (BufferMut<'_>, &[RankPart])) {
        let counts = |parts: &[RankPart]| {
            let mut counts = vec![0; self.size()];
            for (rank, part) in parts {
                counts[*rank] += i32::try_from(part.len()).expect("the communicator cuts messages below 2^31 elements");
            }
            counts
        };
        self.all_to_all(send.0, &counts(send.1), receive.0, &counts(receive.1));
    }

    /// Copies the buffer of rank `root` to every rank.
    fn broadcast(&self, root: usize, buffer: BufferMut<'_>);

    /// Sends to another rank, which calls [`Transport::receive`] with the same length.
    fn send(&self, rank: usize, elements: Buffer<'_>);

    /// Receives from another rank.
    fn receive(&self, rank: usize, elements: BufferMut<'_>);

    /// [`Transport::send`], in pieces of at most `chunk` elements, to a rank that calls [`Transport::receive_within`].
    /// Returns whether the message is delivered within `limit`; if it is not, the elements are leaked.
    fn send_within(&self, rank: usize, elements: &mut dyn OwnedBuffer, chunk: usize, limit: Duration) -> bool;

    /// The counterpart of [`Transport::send_within`].
    fn receive_within(&self, rank: usize, elements: &mut dyn OwnedBuffer, chunk: usize, limit: Duration) -> bool;

    /// Sends a control message to another rank without waiting for it.
    fn send_control(&self, rank: usize, message: ControlMessage);

    /// Returns the sender and the next control message, from `rank` or from any rank, or `None` if nothing has arrived.
    fn try_receive_control(&self, rank: Option<usize>) -> Option<(usize, ControlMessage)>;

    /// The group of the ranks that pass the same `color`, in the same order. Collective.
    fn split(&self, color: usize) -> Rc<dyn Transport>;

    /// The group of these `ranks`, ascending; only they call this.
    fn subgroup(&self, ranks: &[usize]) -> Rc<dyn Transport>;
}
