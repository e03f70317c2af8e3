//! Simultaneous messages between each rank and the few others that it exchanges data with.

use fednmf_linalg::Element;

use super::transport::{Buffer, BufferMut, RankPart};
use super::{Communicator, MessageTag};

/// The places in a buffer of the messages to other ranks, or from them; created once and used repeatedly.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// The rank and the elements of each call of the transport; a long message takes several.
    pieces: Vec<RankPart>,
    elements: usize,
}

impl Route {
    /// Forgets all messages and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.elements = 0;
    }

    /// The number of elements of all messages.
    pub(super) fn elements(&self) -> usize {
        self.elements
    }
}

impl Communicator {
    /// The route of messages of these lengths, in elements, by rank. Empty messages are not sent.
    pub fn route(&self, lengths: impl IntoIterator<Item = (usize, usize)>) -> Route {
        let mut route = Route::default();
        lengths.into_iter().for_each(|(rank, length)| self.extend_route(&mut route, rank, length));
        route
    }

    /// Adds a message to a route, for one that is made anew in the same memory.
    pub(super) fn extend_route(&self, Route { pieces, elements }: &mut Route, rank: usize, length: usize) {
        let end = *elements + length;
        for start in (*elements..end).step_by(self.inner.chunk) {
            pieces.push((rank, start..end.min(start.saturating_add(self.inner.chunk))));
        }
        *elements = end;
    }

    /// Sends the messages in `send` along `to`, and receives those along `from` into `receive`. Both ends of a message
    /// know its length. Ranks with nothing for each other do not communicate; each rank that has a message calls this.
    pub fn exchange_along<T: Element>(
        &self,
        tag: MessageTag,
        (to, send): (&Route, &[T]),
        (from, receive): (&Route, &mut [T]),
    ) {
        assert!(to.elements == send.len() && from.elements == receive.len(), "buffers as long as their routes");
        self.sends(tag, send);
        let volume = self.volume::<T>(send.len() + receive.len(), to.pieces.len() + from.pieces.len());
        self.timed(tag, volume, || {
            let (send, receive) = (Buffer::new(send), BufferMut::new(&mut *receive));
            self.transport().exchange((send, &to.pieces), (receive, &from.pieces));
        });
        self.received(tag, receive);
    }
}
