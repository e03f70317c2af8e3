//! The messages of a round between the computing parties.

use super::COMPUTING;
use crate::released::WireAccess;

/// What the messages of a round are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Uniformly random to each receiver.
    Compute,
    /// The components of a result that its receivers lack.
    Open,
}

/// Transports the messages of a round; all ranks with computing parties call it, with the same lengths.
pub trait Wire {
    fn exchange(&mut self, mail: &mut Mail, purpose: Purpose);
}

/// The messages of a round: their lengths, which all ranks know, those from the parties of this rank, and those to them.
#[derive(Default)]
pub struct Mail {
    lengths: [[usize; COMPUTING]; COMPUTING],
    sent: [[Vec<u64>; COMPUTING]; COMPUTING],
    received: [[Vec<u64>; COMPUTING]; COMPUTING],
    read: [[usize; COMPUTING]; COMPUTING],
}

impl Mail {
    /// Starts a round.
    pub(super) fn begin(&mut self) {
        self.lengths = Default::default();
        self.read = Default::default();
        self.sent.iter_mut().chain(&mut self.received).flatten().for_each(Vec::clear);
    }

    /// Announces `words` further words, on all ranks.
    pub(super) fn expect(&mut self, from: usize, to: usize, words: usize) {
        self.lengths[from][to] += words;
    }

    /// The message, to append to; on the rank of the sender.
    pub(super) fn send(&mut self, from: usize, to: usize) -> &mut Vec<u64> {
        &mut self.sent[from][to]
    }

    /// The next `words` words that arrived; on the rank of the receiver.
    pub(super) fn take(&mut self, from: usize, to: usize, words: usize) -> &[u64] {
        let start = self.read[from][to];
        self.read[from][to] += words;
        &self.received[from][to][start..start + words]
    }

    /// The number of words from one party to another.
    pub fn length(&self, from: usize, to: usize) -> usize {
        self.lengths[from][to]
    }

    /// The words to send, for the communicator.
    pub fn outgoing(&self, from: usize, to: usize, _: WireAccess) -> &[u64] {
        &self.sent[from][to]
    }

    /// The buffer for received words, for the communicator.
    pub fn incoming(&mut self, from: usize, to: usize, _: WireAccess) -> &mut [u64] {
        let length = self.lengths[from][to];
        let received = &mut self.received[from][to];
        received.resize(length, 0);
        received
    }

    /// Delivers a message whose receiver is on this rank too.
    pub fn deliver(&mut self, from: usize, to: usize) {
        std::mem::swap(&mut self.sent[from][to], &mut self.received[from][to]);
    }
}
