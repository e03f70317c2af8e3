//! Messages from one rank to another: plain ones, ones with a deadline, control messages, and transfers between parties
//! wherever they are hosted.

use std::time::{Duration, Instant};

use fednmf_linalg::Element;
use fednmf_privacy::Public;

use super::transport::{Buffer, BufferMut, ControlMessage};
use super::{Communicator, ControlTag, Entry, MessageTag, Volume, watchdog};

/// Waits between two polls: yields the core at first, and sleeps when nothing has happened for a while.
#[derive(Debug, Default)]
pub struct Backoff {
    polls: u32,
}

impl Backoff {
    /// Polls that yield before the first one that sleeps.
    const YIELDS: u32 = 50;

    /// Waits a little.
    pub fn wait(&mut self) {
        // A caller that polls has a time limit of its own.
        watchdog::step();
        self.polls = self.polls.saturating_add(1);
        if self.polls < Backoff::YIELDS {
            std::thread::yield_now()
        } else {
            std::thread::sleep(Duration::from_micros(50))
        }
    }
}

impl Communicator {
    /// Sends elements to another rank, which calls [`Communicator::receive`] with the same length.
    pub fn send<T: Element>(&self, tag: MessageTag, rank: usize, elements: &[T]) {
        self.sends(tag, elements);
        self.timed(tag, self.volume::<T>(elements.len(), self.pieces(elements.len())), || {
            for piece in elements.chunks(self.inner.chunk) {
                self.transport().send(rank, Buffer::new(piece));
            }
        });
    }

    /// Receives what another rank sends.
    pub fn receive<T: Element>(&self, tag: MessageTag, rank: usize, elements: &mut [T]) {
        self.timed(tag, self.volume::<T>(elements.len(), self.pieces(elements.len())), || {
            for piece in elements.chunks_mut(self.inner.chunk) {
                self.transport().receive(rank, BufferMut::new(piece));
            }
        });
        self.received(tag, elements);
    }

    /// [`Communicator::send`] to a rank that calls [`Communicator::receive_within`]; returns whether the message is
    /// delivered within `limit`. If it is not, `elements` is empty afterwards: the receiver may still read the memory, so it
    /// is leaked.
    pub fn send_within<T: Element>(
        &self,
        tag: MessageTag,
        rank: usize,
        elements: &mut Vec<T>,
        limit: Duration,
    ) -> bool {
        self.sends(tag, elements);
        let volume = self.volume::<T>(elements.len(), self.pieces(elements.len()));
        self.timed(tag, volume, || self.transport().send_within(rank, elements, self.inner.chunk, limit))
    }

    /// The counterpart of [`Communicator::send_within`].
    pub fn receive_within<T: Element>(
        &self,
        tag: MessageTag,
        rank: usize,
        elements: &mut Vec<T>,
        limit: Duration,
    ) -> bool {
        let volume = self.volume::<T>(elements.len(), self.pieces(elements.len()));
        let arrived =
            self.timed(tag, volume, || self.transport().receive_within(rank, elements, self.inner.chunk, limit));
        self.received(tag, elements);
        arrived
    }

    /// Sends a control message to another rank without waiting for it.
    pub fn send_control(&self, tag: ControlTag, rank: usize, message: impl Public + Into<ControlMessage>) {
        let (tag, message) = (tag.recorded(), message.into());
        self.sends(tag, &message);
        self.timed(tag, self.volume::<u64>(message.len(), 1), || self.transport().send_control(rank, message));
    }

    /// Returns the sender and the next control message, from `rank` or from any rank, or `None` if nothing has arrived.
    pub fn try_recv_control(&self, tag: ControlTag, rank: Option<usize>) -> Option<(usize, ControlMessage)> {
        let (tag, start) = (tag.recorded(), Instant::now());
        let (from, message) = self.transport().try_receive_control(rank)?;
        watchdog::step();
        self.record(tag, self.volume::<u64>(message.len(), 1), start.elapsed().as_secs_f64());
        self.received(tag, &message);
        Some((from, message))
    }

    /// Moves elements from a party on rank `from` to a party on rank `to`. Both ranks call this with the same length, others
    /// need not. If both parties are on this rank, the transfer is only recorded.
    pub fn transfer<T: Element>(&self, tag: MessageTag, from: usize, to: usize, elements: &mut [T]) {
        if from == to {
            self.sends(tag, elements);
            self.record_local::<T>(tag, 2 * elements.len());
        } else if self.rank() == from {
            self.send(tag, to, elements);
        } else {
            self.receive(tag, from, elements);
        }
    }

    /// [`Communicator::transfer`] from a party (and its rank) to a neighbour (and its rank), recorded by edge too.
    pub fn transfer_on_edge<T: Element>(
        &self,
        tag: MessageTag,
        (from, from_rank): (usize, usize),
        (to, to_rank): (usize, usize),
        elements: &mut [T],
    ) {
        let start = Instant::now();
        self.transfer(tag, from_rank, to_rank, elements);
        let seconds = start.elapsed().as_secs_f64();
        let sent = u64::from(self.rank() == from_rank);
        let party_bytes = sent * size_of_val(elements) as u64;
        let entry = Entry { calls: sent, seconds, party_bytes, ..Entry::default() };
        self.ledger.borrow_mut().record_edge((from, to), &entry);
    }

    /// Records `elements` of type T that parties hosted here send or receive without leaving the rank.
    pub fn record_local<T>(&self, tag: MessageTag, elements: usize) {
        self.record(tag, Volume { party: elements * size_of::<T>(), rank: 0, messages: 0 }, 0.0);
    }
}
