//! The exchange between neighbours: in every ADMM iteration each agent i gets ρ_ij (U_j − U_i) from each neighbour j,
//! and neither sees the other's U (lines 10–15 of the paper's Algorithm 1):
//!
//! 1. i sends E_i(−û_i), encrypted for itself, to all its neighbours;
//! 2. j answers with E_i(G_ji (û_j − û_i)), computed on the ciphertext;
//! 3. i decrypts and multiplies by its own G_ij.
//!
//! G is drawn independently for each entry and iteration from the upper half of 1..=G_max, and a random remainder below
//! G is added to the answer: at most half a quantisation step after the division by G. If G were drawn once for a whole
//! message, as in the paper (`--scalar-g`), the greatest common divisor of what i decrypts would be G, and û_j would
//! follow exactly; without the remainder a single answer could still be factorised; and a g that grows to its limit is
//! known from the public bound τ. What remains: an answer reveals |û_j − û_i| up to a factor of two, and many answers
//! reveal its mean. Agents that finally agree have little more to hide from each other, but this is a mitigation, not a
//! proof.

use rand::Rng;
use rand::rngs::StdRng;

use crate::algorithms::network::ppdnmf::encrypted::Vault;
use crate::algorithms::network::ppdnmf::fixed_point::Fixed;
use crate::algorithms::network::ppdnmf::topology::Graph;
use crate::comm::{Interrupt, MessageTag, Parties, PartyCommunicator, Payload};
use crate::error::Result;
use crate::privacy::{Ciphertexts, DeclaredMut};
use crate::random::{mix, secret_rng};

pub const FORWARD: MessageTag = MessageTag::new("encrypted U to neighbours", Payload::Ciphertext);
pub const ANSWER: MessageTag = MessageTag::new("encrypted answers of neighbours", Payload::Ciphertext);
pub const PLAIN_FORWARD: MessageTag =
    MessageTag::new("U to neighbours, not encrypted (--plain)", Payload::SharedFactor);
pub const PLAIN_ANSWER: MessageTag =
    MessageTag::new("answers of neighbours, not encrypted (--plain)", Payload::SharedFactor);
pub const FLAG: MessageTag = MessageTag::new("flags to neighbours", Payload::Control);

/// The name of a party's own weights in a recorded view; they follow the answer that they belong to.
pub const OWN_WEIGHTS: &str = "own weights";
/// The name of a party's own quantised copy of X in a recorded view.
pub const OWN_COPY: &str = "own copy of X";

/// How the weights of an edge's end are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Independently for each entry.
    Entry,
    /// One for all entries, growing within each estimation of X, as in the paper.
    Scalar,
}

/// Parameters of all exchanges.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Entries of U at each party.
    pub entries: usize,
    pub fixed: Fixed,
    pub weights: Weights,
    pub secret_seed: Option<u64>,
}

/// A message to a neighbour, or its answer.
enum Wire {
    Encrypted(Ciphertexts),
    /// With `--plain`.
    Plain(Vec<u64>),
}

impl Wire {
    fn new(encrypted: bool, words: usize) -> Self {
        if encrypted { Wire::Encrypted(Ciphertexts::room(words)) } else { Wire::Plain(vec![0; words]) }
    }

    fn words(&self) -> &[u64] {
        match self {
            Wire::Encrypted(ciphertexts) => ciphertexts.words(),
            Wire::Plain(words) => words,
        }
    }

    fn copy_from(&mut self, other: &Wire) {
        match (self, other) {
            (Wire::Encrypted(own), Wire::Encrypted(other)) => own.copy_from(other),
            (Wire::Plain(own), Wire::Plain(other)) => own.copy_from_slice(other),
            _ => unreachable!("all messages of a run are encrypted, or none"),
        }
    }

    fn transfer(&mut self, comm: &PartyCommunicator, [encrypted, plain]: [MessageTag; 2], way: &Way) {
        match self {
            Wire::Encrypted(ciphertexts) => comm.transfer_on_edge(encrypted, way.from, way.to, ciphertexts),
            Wire::Plain(words) => comm.transfer_on_edge(plain, way.from, way.to, &mut DeclaredMut(words)),
        }
    }
}

/// One end of an edge: what a hosted party draws, receives and sends.
struct End {
    /// Index among the hosted parties.
    local: usize,
    party: usize,
    neighbour: usize,
    rng: StdRng,
    weights: Vec<u64>,
    /// What is added to −û_i times the weight.
    offsets: Vec<i64>,
    /// Received from the neighbour: its message, and its answer.
    message: Wire,
    answer: Wire,
    /// Sent to the neighbour.
    reply: Wire,
    flag: u64,
}

/// One direction of an edge.
#[derive(Clone, Copy)]
struct Way {
    /// Party and rank.
    from: (usize, usize),
    to: (usize, usize),
    /// Indices of the ends that send and receive, if hosted here.
    sender: Option<usize>,
    receiver: Option<usize>,
}

/// The edges of this rank's parties.
pub struct Network {
    comm: PartyCommunicator,
    hosted: std::ops::Range<usize>,
    ends: Vec<End>,
    ways: Vec<Way>,
    terms: Terms,
    vault: Option<Vault>,
    /// For each hosted party: û, its message, and Σ_j G_ij G_ji (û_j − û_i).
    quantised: Vec<Vec<i64>>,
    messages: Vec<Wire>,
    sums: Vec<Vec<i128>>,
    /// Decrypted answers of one neighbour.
    opened: Vec<i64>,
    interrupt: Interrupt,
}

impl Network {
    /// The edges of `graph` at the hosted parties; without a vault nothing is encrypted.
    ///
    /// # Errors
    /// When a neighbour sends no valid key, or there is no randomness.
    pub fn new(
        comm: &PartyCommunicator,
        parties: Parties,
        graph: &Graph,
        terms: Terms,
        mut vault: Option<Vault>,
    ) -> Result<Self> {
        let Terms { entries, secret_seed, .. } = terms;
        let hosted = parties.hosted(comm.rank());
        let mut ends = Vec::new();
        for (local, party) in hosted.clone().enumerate() {
            for &neighbour in &graph.neighbours[party] {
                let rng = secret_rng(secret_seed, owner(party, neighbour, 0))?;
                ends.push(End::new(local, (party, neighbour), rng, entries));
            }
        }
        let end_of = |party: usize, neighbour: usize| {
            ends.iter().position(|end| (end.party, end.neighbour) == (party, neighbour))
        };
        let mut ways = Vec::new();
        for &(i, j) in &graph.edges {
            let (a, b) = (parties.host(i), parties.host(j));
            if a == comm.rank() || b == comm.rank() {
                for (from_party, to, from_rank, to_rank) in [(i, j, a, b), (j, i, b, a)] {
                    let (sender, receiver) = (end_of(from_party, to), end_of(to, from_party));
                    let (from, to) = ((from_party, from_rank), (to, to_rank));
                    ways.push(Way { from, to, sender, receiver });
                }
            }
        }
        if let Some(vault) = &mut vault {
            let pairs: Vec<_> = ways.iter().map(|w| (w.from.0, w.from.1, w.to.1)).collect();
            vault.exchange_keys(comm, &pairs)?;
        }
        let (message, answer) = match &vault {
            Some(vault) => (vault.message_words(entries), vault.answer_words(entries)),
            None => (entries, entries),
        };
        for end in &mut ends {
            end.message = Wire::new(vault.is_some(), message);
            end.answer = Wire::new(vault.is_some(), answer);
            end.reply = Wire::new(vault.is_some(), answer);
        }
        Ok(Network {
            comm: comm.clone(),
            quantised: hosted.clone().map(|_| vec![0; entries]).collect(),
            messages: hosted.clone().map(|_| Wire::new(vault.is_some(), message)).collect(),
            sums: hosted.clone().map(|_| vec![0; entries]).collect(),
            opened: vec![0; entries],
            hosted,
            ends,
            ways,
            terms,
            vault,
            interrupt: Interrupt::default(),
        })
    }

    /// Begins an estimation of X. With a secret seed the weights are a function of the iteration, so that a resumed run
    /// draws the same ones.
    ///
    /// # Errors
    /// When the operating system has no randomness.
    pub fn begin(&mut self, iteration: usize) -> Result<()> {
        for end in &mut self.ends {
            if self.terms.secret_seed.is_some() {
                end.rng = secret_rng(self.terms.secret_seed, owner(end.party, end.neighbour, iteration as u64 + 1))?;
            }
            end.weights.fill(0);
        }
        Ok(())
    }

    /// Whether what is sent is encrypted, so that an exchange may take minutes.
    pub fn is_encrypted(&self) -> bool {
        self.vault.is_some()
    }

    /// Seconds of an exchange at this rank, as measured; `None` if nothing is encrypted.
    pub fn seconds(&mut self) -> Option<f64> {
        let ends = (self.hosted.len(), self.ends.len());
        let Terms { entries, fixed, .. } = self.terms;
        self.vault.as_mut().map(|vault| vault.seconds(ends, entries, fixed.g_max))
    }

    /// Obeys `interrupt` between parties.
    pub fn watch(&mut self, interrupt: &Interrupt) {
        self.interrupt = interrupt.clone();
    }

    /// Whether to break off, alike on all ranks. Only an encrypted exchange takes long enough to ask.
    fn is_interrupted(&self) -> bool {
        self.vault.is_some() && self.comm.is_raised_anywhere(&self.interrupt)
    }

    /// Stores the copy U of a hosted party, in memory order.
    ///
    /// # Errors
    /// When an entry is out of range.
    pub fn put<T: crate::linalg::Real>(&mut self, local: usize, u: &[T]) -> Result<()> {
        self.terms.fixed.quantise(u, self.hosted.start + local, &mut self.quantised[local])
    }

    /// The exchange of one ADMM iteration, after every hosted party has put its U. Returns whether it was broken off, alike on
    /// all ranks; what was exchanged is then of no use.
    ///
    /// # Errors
    /// When an answer cannot be decrypted.
    pub fn exchange(&mut self) -> Result<bool> {
        self.seal();
        if self.is_interrupted() {
            return Ok(true);
        }
        self.forward();
        self.answer();
        if self.is_interrupted() {
            return Ok(true);
        }
        self.send_answers();
        let opened = self.open();
        Ok(self.is_interrupted() || opened?)
    }

    /// Every hosted party encrypts its U.
    fn seal(&mut self) {
        let Network { comm, hosted, vault, quantised, messages, interrupt, .. } = self;
        if comm.is_viewed() {
            for (party, u) in hosted.clone().zip(&*quantised) {
                let numbers: Vec<f64> = u.iter().map(|&u| u as f64).collect();
                comm.knows(OWN_COPY, Some(party), (1, u.len()), &numbers);
            }
        }
        comm.work("encrypt", || {
            for ((party, u), message) in hosted.clone().zip(&*quantised).zip(&mut *messages) {
                match (&mut *vault, message) {
                    (Some(_), _) if interrupt.is_raised() => break,
                    (Some(vault), Wire::Encrypted(message)) => vault.seal(party, u, message),
                    (_, Wire::Plain(message)) => message.iter_mut().zip(u).for_each(|(word, &u)| *word = u as u64),
                    _ => {}
                }
            }
        });
    }

    /// Every hosted party sends its message to its neighbours.
    fn forward(&mut self) {
        let Network { comm, ends, ways, messages, .. } = self;
        for way in &*ways {
            match (way.sender, way.receiver) {
                (Some(s), Some(r)) => {
                    messages[ends[s].local].transfer(comm, [FORWARD, PLAIN_FORWARD], way);
                    let local = ends[s].local;
                    ends[r].message.copy_from(&messages[local]);
                }
                (Some(s), None) => {
                    messages[ends[s].local].transfer(comm, [FORWARD, PLAIN_FORWARD], way);
                }
                (None, Some(r)) => ends[r].message.transfer(comm, [FORWARD, PLAIN_FORWARD], way),
                (None, None) => {}
            }
        }
    }

    /// Every hosted party computes its answers.
    fn answer(&mut self) {
        let Network { comm, ends, terms, vault, quantised, interrupt, .. } = self;
        for end in &mut *ends {
            if vault.is_some() && interrupt.is_raised() {
                break;
            }
            end.prepare(terms.weights, terms.fixed.g_max, &quantised[end.local]);
            match (&mut *vault, &mut end.reply) {
                (Some(vault), Wire::Encrypted(reply)) => comm.work("answer", || {
                    vault.answer(end.neighbour, end.message.words(), &end.weights, &end.offsets, reply);
                }),
                (_, Wire::Plain(reply)) => {
                    let ours = end.weights.iter().zip(&end.offsets);
                    for ((reply, &theirs), (&g, &offset)) in reply.iter_mut().zip(end.message.words()).zip(ours) {
                        *reply = (offset - theirs as i64 * g as i64) as u64;
                    }
                }
                _ => {}
            }
        }
    }

    /// The answers go back.
    fn send_answers(&mut self) {
        let Network { comm, ends, ways, .. } = self;
        for way in &*ways {
            match (way.sender, way.receiver) {
                (Some(s), Some(r)) => {
                    ends[s].reply.transfer(comm, [ANSWER, PLAIN_ANSWER], way);
                    let reply = std::mem::replace(&mut ends[s].reply, Wire::Plain(Vec::new()));
                    ends[s].reply = std::mem::replace(&mut ends[r].answer, reply);
                }
                (Some(s), None) => ends[s].reply.transfer(comm, [ANSWER, PLAIN_ANSWER], way),
                (None, Some(r)) => ends[r].answer.transfer(comm, [ANSWER, PLAIN_ANSWER], way),
                (None, None) => {}
            }
        }
    }

    /// Every hosted party decrypts and adds up the answers that it got. Returns whether it was broken off.
    fn open(&mut self) -> Result<bool> {
        let Network { comm, ends, vault, sums, opened, interrupt, .. } = self;
        sums.iter_mut().for_each(|sum| sum.fill(0));
        for end in &*ends {
            if vault.is_some() && interrupt.is_raised() {
                return Ok(true);
            }
            match vault {
                Some(vault) => {
                    comm.work("decrypt", || vault.open(end.party, end.answer.words(), opened))
                        .map_err(|e| e.at(format!("party {}, from party {}", end.party, end.neighbour)))?;
                }
                None => opened.iter_mut().zip(end.answer.words()).for_each(|(d, &word)| *d = word as i64),
            }
            if comm.is_viewed() {
                view(comm, if vault.is_some() { ANSWER } else { PLAIN_ANSWER }, end, opened);
            }
            for ((sum, &d), &g) in sums[end.local].iter_mut().zip(&*opened).zip(&end.weights) {
                *sum += i128::from(d) * i128::from(g);
            }
        }
        Ok(false)
    }

    /// Σ_j ρ_ij (U_j − U_i) of a hosted party, entry by entry.
    pub fn pull(&self, local: usize) -> impl Iterator<Item = f64> {
        self.sums[local].iter().map(|&sum| self.terms.fixed.real(sum))
    }

    /// Each hosted party sends its neighbours the smallest flag that it knows, and receives theirs.
    pub fn flood(&mut self, flags: &mut [u64]) {
        let Network { comm, ends, ways, .. } = self;
        // Flags received in this call are not passed on in it.
        ends.iter_mut().for_each(|end| end.flag = flags[end.local]);
        for way in &*ways {
            let mut flag = [way.sender.map_or(0, |s| ends[s].flag)];
            comm.transfer_on_edge(FLAG, way.from, way.to, &mut DeclaredMut(&mut flag));
            if let Some(r) = way.receiver {
                let local = ends[r].local;
                flags[local] = flags[local].min(flag[0]);
            }
        }
    }
}

/// Records what a party decrypts of a neighbour's answer, and its own weights.
fn view(comm: &PartyCommunicator, answer: MessageTag, end: &End, opened: &[i64]) {
    let numbers: Vec<f64> = opened.iter().map(|&d| d as f64).collect();
    comm.opened(answer, Some((end.neighbour, end.party)), &numbers);
    comm.knows(OWN_WEIGHTS, Some(end.party), (1, end.weights.len()), &end.weights);
}

/// The owner of a secret, for [`secret_rng`].
fn owner(party: usize, neighbour: usize, iteration: u64) -> u64 {
    mix(mix(mix(party as u64) ^ neighbour as u64) ^ iteration)
}

impl End {
    fn new(local: usize, (party, neighbour): (usize, usize), rng: StdRng, entries: usize) -> Self {
        End {
            local,
            party,
            neighbour,
            rng,
            weights: vec![0; entries],
            offsets: vec![0; entries],
            message: Wire::Plain(Vec::new()),
            answer: Wire::Plain(Vec::new()),
            reply: Wire::Plain(Vec::new()),
            flag: 0,
        }
    }

    /// Draws weights G, and the offsets G û + remainder that the answer adds to −G û_i.
    fn prepare(&mut self, draw: Weights, g_max: u64, u: &[i64]) {
        let End { rng, weights, offsets, .. } = self;
        match draw {
            Weights::Entry => {
                let low = g_max / 2;
                for ((g, offset), &u) in weights.iter_mut().zip(offsets).zip(u) {
                    *g = low + 1 + below(rng, g_max - low);
                    *offset = u * *g as i64 + below(rng, *g) as i64 - (*g / 2) as i64;
                }
            }
            Weights::Scalar => {
                // From (the last one, G_max], until G_max is reached.
                let last = weights.first().copied().unwrap_or(0);
                let g = if last < g_max { last + 1 + below(rng, g_max - last) } else { last };
                weights.fill(g);
                offsets.iter_mut().zip(u).for_each(|(offset, &u)| *offset = u * g as i64);
            }
        }
    }
}

/// Uniform in 0..n, by Lemire's multiply-shift; the bias is below n/2⁶⁴.
fn below(rng: &mut StdRng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: usize = 150;

    /// What party 0 decrypts in each of four ADMM iterations, with real keys, from party 1's answers.
    fn decrypted(draw: Weights, bits: u32, own: &[i64], theirs: &[i64]) -> Vec<Vec<i64>> {
        let fixed = Fixed::new(1_000_000, 10.0, 1 << 20, 0.033).unwrap();
        let parties = Parties { count: 2, ranks: 1 };
        let mut vault = Vault::new(parties, 0, bits, fixed, draw == Weights::Scalar, (Some(3), 2)).unwrap();
        vault.learn(0, vault.public_words(0).as_slice()).unwrap();
        let mut end = End::new(1, (1, 0), secret_rng(Some(1), 2).unwrap(), ENTRIES);
        let mut message = Ciphertexts::room(vault.message_words(ENTRIES));
        let mut reply = Ciphertexts::room(vault.answer_words(ENTRIES));
        assert_eq!(message.words().len() == reply.words().len(), draw == Weights::Scalar, "one weight packs both ways");
        let mut out = vec![0; ENTRIES];
        (0..4)
            .map(|_| {
                vault.seal(0, own, &mut message);
                end.prepare(draw, fixed.g_max, theirs);
                vault.answer(0, message.words(), &end.weights, &end.offsets, &mut reply);
                vault.open(0, reply.words(), &mut out).unwrap();
                let expected = end.offsets.iter().zip(own).zip(&end.weights).map(|((o, u), &g)| o - u * g as i64);
                assert!(out.iter().copied().eq(expected), "the decrypted numbers are not the plain ones");
                out.clone()
            })
            .collect()
    }

    fn factors() -> (Vec<i64>, Vec<i64>) {
        let mut rng = secret_rng(Some(9), 9).unwrap();
        let mut numbers = || (0..ENTRIES).map(|_| below(&mut rng, 600_000) as i64 - 100_000).collect::<Vec<i64>>();
        (numbers(), numbers())
    }

    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }

    /// The attack: party 0 takes the greatest common divisor of what it decrypts for G, and solves for the neighbour's
    /// û.
    fn attack(answers: &[i64], own: &[i64]) -> Vec<i64> {
        let g = answers.iter().fold(0, |g, d| gcd(g, d.unsigned_abs())).max(1) as i64;
        answers.iter().zip(own).map(|(d, u)| d / g + u).collect()
    }

    #[test]
    fn the_common_divisor_gives_a_scalar_weight_away() {
        let (own, theirs) = factors();
        for answers in decrypted(Weights::Scalar, 2048, &own, &theirs) {
            assert_eq!(attack(&answers, &own), theirs, "the attack is expected to succeed with --scalar-g");
        }
    }

    #[test]
    fn weights_by_entry_with_remainders_have_no_common_divisor() {
        let (own, theirs) = factors();
        for answers in decrypted(Weights::Entry, 128, &own, &theirs) {
            assert_eq!(answers.iter().fold(0, |g, d| gcd(g, d.unsigned_abs())), 1);
            let found = attack(&answers, &own);
            assert!(found.iter().zip(&theirs).filter(|(a, b)| a == b).count() < ENTRIES / 20);
        }
        // A single answer does not reveal its weight as a factor either.
        let mut end = End::new(1, (1, 0), secret_rng(Some(1), 2).unwrap(), ENTRIES);
        end.prepare(Weights::Entry, 34_603, &theirs);
        let multiples = end.offsets.iter().zip(&own).zip(&end.weights).filter(|((o, u), g)| {
            let g = **g as i64;
            (*o - *u * g) % g == 0
        });
        assert!(multiples.count() < 5);
        assert!(end.weights.iter().all(|g| (17_302..=34_603).contains(g)));
    }

    /// The remainder changes a difference by less than one quantisation step.
    #[test]
    fn remainders_cost_half_a_step() {
        let (own, theirs) = factors();
        let mut end = End::new(1, (1, 0), secret_rng(Some(5), 2).unwrap(), ENTRIES);
        end.prepare(Weights::Entry, 1000, &theirs);
        for (((o, u), t), g) in end.offsets.iter().zip(&own).zip(&theirs).zip(&end.weights) {
            let g = *g as f64;
            assert!(((*o as f64 - *u as f64 * g) / g - (t - u) as f64).abs() <= 0.5 + 1.0 / g);
        }
    }
}
