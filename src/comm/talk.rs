//! Messages between a server and those it serves: short words that may come at any time, and long ones that do not wait
//! forever. And the ranks that go on when one is lost.

use std::time::Duration;

use ::mpi::traits::{Communicator as _, Equivalence, Group};

use super::{Communicator, MessageTag, mpi, watchdog};

/// What a word says, in two numbers whose meaning is its users'.
pub type Word = [u64; 2];

/// How long a wait goes on giving the core away before it sleeps between two looks, in looks.
const POLLS: u32 = 50;

/// Waits a little while nothing happens, the longer the more often it is called in a row.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    pub fn wait(&mut self) {
        // Who waits here has a limit of its own.
        watchdog::step();
        self.0 = self.0.saturating_add(1);
        if self.0 < POLLS { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(50)) }
    }
}

impl Communicator {
    /// Says a word to `rank`; does not wait for anybody.
    pub fn send_control(&self, tag: MessageTag, rank: usize, word: Word) {
        self.booked::<u64, _>(tag, word.len(), 1, || mpi::send_control(&self.inner.comm, rank, &word));
    }

    /// A word that has come, from `rank` or from anybody, and whose it is; `None` if there is none yet.
    pub fn try_recv_control(&self, tag: MessageTag, rank: Option<usize>) -> Option<(usize, Word)> {
        let from = mpi::probe_control(&self.inner.comm, rank)?;
        let mut word = [0; 2];
        self.booked::<u64, _>(tag, word.len(), 1, || mpi::recv_control(&self.inner.comm, from, &mut word));
        Some((from, word))
    }

    /// [`Communicator::send`] that gives up after `limit`; whether the message has gone. One that has not keeps the memory of
    /// `elements`, which is then empty: the other side may still reach for it.
    pub fn send_within<T: Equivalence>(
        &self,
        tag: MessageTag,
        rank: usize,
        elements: &mut Vec<T>,
        limit: Duration,
    ) -> bool {
        self.long(tag, elements, |all| mpi::send_until(&self.inner.comm, rank, all, self.inner.chunk, limit))
    }

    /// [`Communicator::receive`] that gives up after `limit`; whether the message has come. Memory as for
    /// [`Communicator::send_within`].
    pub fn receive_within<T: Equivalence>(
        &self,
        tag: MessageTag,
        rank: usize,
        elements: &mut Vec<T>,
        limit: Duration,
    ) -> bool {
        self.long(tag, elements, |all| mpi::receive_until(&self.inner.comm, rank, all, self.inner.chunk, limit))
    }

    fn long<T>(&self, tag: MessageTag, elements: &mut Vec<T>, pass: impl FnOnce(Vec<T>) -> Option<Vec<T>>) -> bool {
        let length = elements.len();
        let through =
            self.booked::<T, _>(tag, length, length.div_ceil(self.inner.chunk), || pass(std::mem::take(elements)));
        through.map(|all| *elements = all).is_some()
    }

    /// A comm to these of the ranks, ascending, with the same ledger. All of them call this, the others need not.
    pub fn subgroup(&self, ranks: &[usize]) -> Communicator {
        let ranks: Vec<i32> = ranks.iter().map(|&rank| rank as i32).collect();
        let group = self.inner.comm.group().include(&ranks);
        let comm = self.inner.comm.split_by_subgroup(&group).expect("this rank is one of them");
        Communicator::with_ledger(comm, self.inner.chunk, self.ledger.clone())
    }
}
