//! The cost of an iteration: its messages are counted by running it without any party, so that nothing is computed.

use fednmf_base::error::Result;
use fednmf_comm::Parties;
use fednmf_privacy::sharing::{COMPUTING, Computation, Keys, Mail, Purpose, Wire};

use super::SHARES;
use super::format::Format;
use super::half::{Shares, Side};
use super::run::{Private, owner};
use crate::cost::{CHUNK, Cost, Kernel, Message, Pattern, Shape, Workload};

const WORD: usize = size_of::<u64>();

/// Counts the messages between computing parties on these ranks.
struct Counter {
    hosts: [usize; COMPUTING],
    rounds: usize,
    /// Words of all messages, and of those between ranks; the number of these messages.
    words: usize,
    between: usize,
    messages: usize,
    /// Words that the busiest rank sends or receives, round by round.
    busiest: usize,
}

impl Counter {
    fn new(hosts: [usize; COMPUTING]) -> Self {
        Counter { hosts, rounds: 0, words: 0, between: 0, messages: 0, busiest: 0 }
    }

    /// The words from one rank to another.
    fn sent(&self, mail: &Mail, from: usize, to: usize) -> usize {
        let pairs = (0..COMPUTING * COMPUTING).map(|pair| (pair / COMPUTING, pair % COMPUTING));
        pairs.filter(|&(a, b)| self.hosts[a] == from && self.hosts[b] == to).map(|(a, b)| mail.length(a, b)).sum()
    }
}

impl Wire for Counter {
    fn exchange(&mut self, mail: &mut Mail, _: Purpose) {
        let mut ranks = self.hosts.to_vec();
        ranks.sort_unstable();
        ranks.dedup();
        let mut busiest = 0;
        for &from in &ranks {
            let [mut out, mut back] = [0; 2];
            for &to in &ranks {
                let words = self.sent(mail, from, to);
                self.words += words;
                if from != to {
                    self.between += words;
                    self.messages += words.div_ceil(CHUNK);
                    out += words;
                    back += self.sent(mail, to, from);
                }
            }
            busiest = busiest.max(out).max(back);
        }
        self.busiest += busiest;
        self.rounds += 1;
    }
}

/// An iteration, with the updates of both factors; the first one of private columns updates only the shared factor.
pub fn of(private: Private, workload: &Workload, ranks: usize) -> Result<Cost> {
    let Workload { m, n, k, .. } = *workload;
    let (count, hosted) = workload.parties(ranks);
    let (items, width) = if private == Private::Columns { (n, m) } else { (m, n) };
    let parties = Parties { count, ranks };
    let hosts: [usize; COMPUTING] = std::array::from_fn(|computing| parties.host(owner(computing, parties)));

    let mut counter = Counter::new(hosts);
    let mut computation = Computation::new(&Keys::draw(std::iter::empty(), None)?, &mut counter);
    let mut shares = Shares::new(&computation, (items, width), k, Format::for_components(k));
    counter = Counter::new(hosts);
    [Side::Private, Side::Shared].into_iter().for_each(|side| shares.update(side, &mut computation, &mut counter));
    let Counter { rounds, words, between, messages, busiest, .. } = counter;

    let mut cost = Cost::default();
    let bytes = |words: usize| (2 * WORD * words) as u64;
    let is_local = hosts.iter().all(|host| *host == hosts[0]);
    cost.add_message(Message {
        kind: SHARES.kind,
        pattern: Pattern::Rounds(hosts),
        group: if is_local { 1 } else { ranks },
        stride: 1,
        times: rounds as u64,
        vector: (WORD * busiest) as f64,
        partners: 0,
        mpi_bytes: bytes(between),
        messages: 2 * messages as u64,
        party_bytes: bytes(words),
    });
    // Products of a party: each of two words of shares. The data with both factors, the Gram matrices, and the components with
    // one another.
    let products = 2 * items * width * k + (items + width) * (k * (k + 1) / 2 + k * k);
    let together = (0..COMPUTING).map(|a| hosts.iter().filter(|host| **host == hosts[a]).count()).max().unwrap_or(1);
    let flops = 4.0 * products as f64;
    cost.add(Kernel::Ring, together as f64 * flops, COMPUTING as f64 * flops);
    let each = words as f64 / COMPUTING as f64;
    cost.add(Kernel::Shares, together as f64 * each, words as f64);

    let own = items.div_ceil(count) * hosted;
    cost.data = workload.block(if private == Private::Columns { m * hosted } else { own }, workload.part(own, width));
    // Two words for each shared one, and about 20 for each entry of the larger factor in the messages and what they are made of.
    let held = items * width + k * (items + width) + 10 * k * items.max(width);
    cost.factors = (2 * WORD * together * held) as f64 + workload.bytes((width + 2 * own) * k);
    cost.shape = Shape { block: (items, width), updated: items.max(width), ..Shape::default() };
    cost.caveat(ONCE);
    Ok(cost)
}

const ONCE: &str =
    "in addition, once: the shares of the data, 16 bytes for each entry, and at the end the shared factor";
