//! The messages between the parties that compute on secret shares, on one rank or several.

use fednmf_privacy::sharing::{COMPUTING, Mail, Purpose, Wire};
use fednmf_privacy::{Protection, WireAccess};

use super::{MessageTag, PartyCommunicator, Route};

const WIRE: WireAccess = WireAccess::of_communicator();

/// Transports the messages of a round between the ranks that host computing parties; other ranks need not call it.
pub struct ShareWire {
    comm: PartyCommunicator,
    shares: MessageTag,
    opened: MessageTag,
    /// The rank of each computing party, and these ranks in ascending order.
    hosts: [usize; COMPUTING],
    ranks: Vec<usize>,
    to: Route,
    from: Route,
    send: Vec<u64>,
    receive: Vec<u64>,
}

impl ShareWire {
    /// For computing parties on these ranks; rounds are recorded under `shares`, an opening under `opened`.
    pub fn new(comm: &PartyCommunicator, [shares, opened]: [MessageTag; 2], hosts: [usize; COMPUTING]) -> Self {
        let mut ranks = hosts.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        ShareWire {
            comm: comm.clone(),
            shares,
            opened,
            hosts,
            ranks,
            to: Route::default(),
            from: Route::default(),
            send: Vec::new(),
            receive: Vec::new(),
        }
    }

    /// The messages from the parties of one rank to those of another one, by sender and receiver.
    fn between(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let hosts = self.hosts;
        let pairs = (0..COMPUTING * COMPUTING).map(|pair| (pair / COMPUTING, pair % COMPUTING));
        pairs.filter(move |&(a, b)| hosts[a] == from && hosts[b] == to)
    }
}

impl Wire for ShareWire {
    fn exchange(&mut self, mail: &mut Mail, purpose: Purpose) {
        let tag = match purpose {
            Purpose::Compute => self.shares.under(Protection::Shared),
            Purpose::Open => self.opened.under(Protection::Declared),
        };
        let own = self.comm.rank();
        self.to.clear();
        self.from.clear();
        self.send.clear();
        for place in 0..self.ranks.len() {
            let rank = self.ranks[place];
            let comm = self.comm.unrestricted();
            if rank == own {
                for (a, b) in self.between(own, own) {
                    if mail.length(a, b) == 0 {
                        continue;
                    }
                    comm.sends(tag, mail.outgoing(a, b, WIRE));
                    comm.record_local::<u64>(tag, 2 * mail.length(a, b));
                    mail.deliver(a, b);
                    comm.received(tag, mail.incoming(a, b, WIRE));
                }
                continue;
            }
            for (a, b) in self.between(own, rank) {
                self.send.extend_from_slice(mail.outgoing(a, b, WIRE));
            }
            let words = |pairs: &mut dyn Iterator<Item = (usize, usize)>| pairs.map(|(a, b)| mail.length(a, b)).sum();
            let (to, from) = (words(&mut self.between(own, rank)), words(&mut self.between(rank, own)));
            comm.extend_route(&mut self.to, rank, to);
            comm.extend_route(&mut self.from, rank, from);
        }
        if self.to.elements() + self.from.elements() == 0 {
            return;
        }
        self.receive.resize(self.from.elements(), 0);
        let comm = self.comm.unrestricted();
        comm.exchange_along(tag, (&self.to, &self.send), (&self.from, &mut self.receive));
        let mut start = 0;
        for place in 0..self.ranks.len() {
            let rank = self.ranks[place];
            for (a, b) in self.between(rank, own).filter(|_| rank != own) {
                let into = mail.incoming(a, b, WIRE);
                into.copy_from_slice(&self.receive[start..start + into.len()]);
                start += into.len();
            }
        }
    }
}
