//! The exchange between neighbours. In every ADMM iteration each agent i receives ρ_ij (U_j − U_i) from each neighbour j,
//! and neither sees the other's U (lines 10–15 of Algorithm 1 of the PPDNMF paper):
//!
//! 1. i sends E_i(−û_i), encrypted for itself, to all its neighbours;
//! 2. j answers with E_i(G_j (û_j − û_i) + mask), computed on the ciphertext;
//! 3. i multiplies the answers, decrypts Σ_j G_j (û_j − û_i), and multiplies by its own G_i: ρ_ij = G_i G_j.
//!
//! The masks of i's neighbours cancel in the sum (`privacy::masking`), so i sees only the sum. With one neighbour there is
//! nothing to mask. The masks require that an agent has one G for all of its neighbours. Agents that collude can therefore
//! cancel it: if all neighbours of two of them except j collude, the two have G_j (û_j − û_i) for two known û_i, and so
//! û_j.
//!
//! G is drawn independently for each entry and iteration from the upper half of 1..=G_max. A random remainder below G is
//! added to the answer, which is at most half a quantisation step after the division by G. With one G for a whole message,
//! as in the paper (`--scalar-g`), the greatest common divisor of what i decrypts would be G, and û_j would follow exactly.
//! Without the remainder, a single answer could be factorised. A g that grows to its limit is known from the public bound
//! τ. The answer of a party's only neighbour still reveals |û_j − û_i| up to a factor of two, and many answers reveal its
//! mean; a sum reveals as much about the mean of several neighbours. Agents that agree in the end have little more to hide
//! from each other, but this is a mitigation, not a proof.
//! to hide from each other, but this is a mitigation, not a proof.

use rand::Rng;
use rand::rngs::StdRng;

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::{ControlTag, Interrupt, MessageTag, Parties, PartyCommunicator, Payload};
use fednmf_linalg::random::{mix, secret_rng};
use fednmf_privacy::{Ciphertexts, DeclaredMut};

use crate::federated::graph::ppdnmf::encrypted::{EdgeEnd, KeyStore, Masking};
use crate::federated::graph::ppdnmf::fixed_point::FixedPointScale;
use crate::federated::graph::ppdnmf::topology::Graph;

pub const PUBLIC_KEY: ControlTag = ControlTag::new("public keys to neighbours");
pub const FORWARD: MessageTag = MessageTag::new("encrypted U to neighbours", Payload::Ciphertext);
pub const ANSWER: MessageTag = MessageTag::new("encrypted answers of neighbours", Payload::Ciphertext);
pub const PLAIN_FORWARD: MessageTag =
    MessageTag::new("U to neighbours, not encrypted (--plain)", Payload::SharedFactor);
pub const PLAIN_ANSWER: MessageTag =
    MessageTag::new("answers of neighbours, not encrypted (--plain)", Payload::SharedFactor);
pub const FLAG: MessageTag = MessageTag::new("flags to neighbours", Payload::Metadata);

/// The name of a party's own weights in a recorded view; they follow the answer that they belong to.
pub const OWN_WEIGHTS: &str = "own weights";
/// The name of the sum of several neighbours' answers in a recorded view.
pub const SUM_OF_ANSWERS: MessageTag = MessageTag::new("sum of the neighbours' answers", Payload::Ciphertext);
/// The name of a party's own quantised copy of X in a recorded view.
pub const OWN_COPY: &str = "own copy of X";

/// How the weights of an agent are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Drawn independently for each entry.
    Entry,
    /// One weight for all entries, growing within each estimation of X, as in the paper.
    Scalar,
}

/// Parameters of all exchanges.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeParams {
    /// Number of entries of U at each party.
    pub entries: usize,
    pub fixed: FixedPointScale,
    pub weights: Weights,
    pub secret_seed: Option<u64>,
}

/// A message to a neighbour, or the neighbour's answer.
enum NeighbourMessage {
    Encrypted(Ciphertexts),
    /// In the clear, with `--plain`.
    Plain(Vec<u64>),
}

impl NeighbourMessage {
    fn new(encrypted: bool, words: usize) -> Self {
        if encrypted {
            NeighbourMessage::Encrypted(Ciphertexts::room(words))
        } else {
            NeighbourMessage::Plain(vec![0; words])
        }
    }

    fn words(&self) -> &[u64] {
        match self {
            NeighbourMessage::Encrypted(ciphertexts) => ciphertexts.words(),
            NeighbourMessage::Plain(words) => words,
        }
    }

    fn copy_from(&mut self, other: &NeighbourMessage) {
        match (self, other) {
            (NeighbourMessage::Encrypted(own), NeighbourMessage::Encrypted(other)) => own.copy_from(other),
            (NeighbourMessage::Plain(own), NeighbourMessage::Plain(other)) => own.copy_from_slice(other),
            _ => unreachable!("all messages of a run are encrypted, or none"),
        }
    }

    fn transfer(&mut self, comm: &PartyCommunicator, [encrypted, plain]: [MessageTag; 2], way: &DirectedEdge) {
        match self {
            NeighbourMessage::Encrypted(ciphertexts) => comm.transfer_on_edge(encrypted, way.from, way.to, ciphertexts),
            NeighbourMessage::Plain(words) => comm.transfer_on_edge(plain, way.from, way.to, &mut DeclaredMut(words)),
        }
    }
}

/// One end of an edge: what a hosted party draws, receives and sends there.
struct End {
    /// Index among the hosted parties.
    local: usize,
    party: usize,
    neighbour: usize,
    /// Random generator of the remainders.
    rng: StdRng,
    /// The offsets that are added to the weighted −û_i.
    offsets: Vec<i64>,
    /// The message received from the neighbour, and later its answer.
    message: NeighbourMessage,
    answer: NeighbourMessage,
    /// The answer sent to the neighbour.
    reply: NeighbourMessage,
    flag: u64,
}

/// A hosted party's weights G, which are the same for all of its neighbours.
struct PartyWeights {
    rng: StdRng,
    weights: Vec<u64>,
}

/// A directed edge.
#[derive(Clone, Copy)]
struct DirectedEdge {
    /// The party that sends, and its rank.
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
    directed_edges: Vec<DirectedEdge>,
    terms: ExchangeParams,
    vault: Option<KeyStore>,
    /// For each hosted party: û, its message, Σ_j G_i G_j (û_j − û_i), and its weights.
    quantised: Vec<Vec<i64>>,
    messages: Vec<NeighbourMessage>,
    sums: Vec<Vec<i128>>,
    own: Vec<PartyWeights>,
    /// `None` if no masks are needed.
    masking: Option<Masking>,
    interrupt: Interrupt,
}

impl Network {
    /// The edges of `graph` at the hosted parties. Without a vault messages are not encrypted.
    ///
    /// # Errors
    /// On all ranks, if a neighbour sends no valid key, or no random numbers are available.
    pub fn new(
        comm: &PartyCommunicator,
        parties: Parties,
        graph: &Graph,
        terms: ExchangeParams,
        mut vault: Option<KeyStore>,
    ) -> SharedResult<Self> {
        let ExchangeParams { entries, secret_seed, .. } = terms;
        let hosted = parties.hosted(comm.rank());
        let own_ends = || {
            let (mut ends, mut own) = (Vec::new(), Vec::new());
            for (local, party) in hosted.clone().enumerate() {
                let rng = secret_rng(secret_seed, owner(party, party, 0))?;
                own.push(PartyWeights { rng, weights: vec![0; entries] });
                for &neighbour in &graph.neighbours[party] {
                    let rng = secret_rng(secret_seed, owner(party, neighbour, 0))?;
                    ends.push(End::new(local, (party, neighbour), rng, entries));
                }
            }
            Ok((ends, own))
        };
        let (mut ends, own) = comm.agree_on_error(own_ends())?;
        let end_of = |party: usize, neighbour: usize| {
            ends.iter().position(|end| (end.party, end.neighbour) == (party, neighbour))
        };
        let mut directed_edges = Vec::new();
        for &(i, j) in &graph.edges {
            let (a, b) = (parties.host(i), parties.host(j));
            if a == comm.rank() || b == comm.rank() {
                for (from_party, to, from_rank, to_rank) in [(i, j, a, b), (j, i, b, a)] {
                    let (sender, receiver) = (end_of(from_party, to), end_of(to, from_party));
                    let (from, to) = ((from_party, from_rank), (to, to_rank));
                    directed_edges.push(DirectedEdge { from, to, sender, receiver });
                }
            }
        }
        if let Some(vault) = &mut vault {
            let pairs: Vec<_> = directed_edges.iter().map(|w| (w.from.0, w.from.1, w.to.1)).collect();
            vault.exchange_keys(comm, &pairs)?;
        }
        let masking = match &vault {
            Some(_) => {
                let edge = |end: &End| EdgeEnd { local: end.local, party: end.party, neighbour: end.neighbour };
                Some(Masking::new(comm, parties, graph, &ends.iter().map(edge).collect::<Vec<_>>())?)
            }
            None => None,
        };
        let (message, answer) = match &vault {
            Some(vault) => (vault.message_words(entries), vault.answer_words(entries)),
            None => (entries, entries),
        };
        for end in &mut ends {
            end.message = NeighbourMessage::new(vault.is_some(), message);
            end.answer = NeighbourMessage::new(vault.is_some(), answer);
            end.reply = NeighbourMessage::new(vault.is_some(), answer);
        }
        Ok(Network {
            comm: comm.clone(),
            quantised: hosted.clone().map(|_| vec![0; entries]).collect(),
            messages: hosted.clone().map(|_| NeighbourMessage::new(vault.is_some(), message)).collect(),
            sums: hosted.clone().map(|_| vec![0; entries]).collect(),
            own,
            masking,
            hosted,
            ends,
            directed_edges,
            terms,
            vault,
            interrupt: Interrupt::default(),
        })
    }

    /// Begins an estimation of X. With a secret seed the weights are a function of the iteration, so that a resumed run
    /// draws the same ones.
    ///
    /// # Errors
    /// If the operating system provides no random numbers.
    pub fn begin(&mut self, iteration: usize) -> Result<()> {
        for end in &mut self.ends {
            if self.terms.secret_seed.is_some() {
                end.rng = secret_rng(self.terms.secret_seed, owner(end.party, end.neighbour, iteration as u64 + 1))?;
            }
        }
        for (party, own) in self.hosted.clone().zip(&mut self.own) {
            if self.terms.secret_seed.is_some() {
                own.rng = secret_rng(self.terms.secret_seed, owner(party, party, iteration as u64 + 1))?;
            }
            own.weights.fill(0);
        }
        Ok(())
    }

    /// Whether messages are encrypted, so that an exchange may take minutes.
    pub fn is_encrypted(&self) -> bool {
        self.vault.is_some()
    }

    /// Measured seconds of an exchange at this rank; `None` if messages are not encrypted.
    pub fn seconds(&mut self) -> Option<f64> {
        let ends = (self.hosted.len(), self.ends.len());
        let ExchangeParams { entries, fixed, .. } = self.terms;
        self.vault.as_mut().map(|vault| vault.seconds(ends, entries, fixed.g_max))
    }

    /// Polls `interrupt` between parties.
    pub fn watch(&mut self, interrupt: &Interrupt) {
        self.interrupt = interrupt.clone();
    }

    /// Whether to stop early, agreed on by all ranks. Only an encrypted exchange takes long enough to poll.
    fn is_interrupted(&self) -> bool {
        self.vault.is_some() && self.comm.is_raised_anywhere(&self.interrupt)
    }

    /// Stores the copy U of a hosted party, in memory order.
    ///
    /// # Errors
    /// If an entry is out of range.
    pub fn put<T: fednmf_linalg::Real>(&mut self, local: usize, u: &[T]) -> Result<()> {
        self.terms.fixed.quantise(u, self.hosted.start + local, &mut self.quantised[local])
    }

    /// The exchange of one ADMM iteration, after every hosted party has stored its U. Returns whether the exchange was
    /// interrupted, on all ranks alike; its results are then not usable.
    ///
    /// # Errors
    /// If an answer cannot be decrypted.
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
                    (Some(vault), NeighbourMessage::Encrypted(message)) => vault.seal(party, u, message),
                    (_, NeighbourMessage::Plain(message)) => {
                        message.iter_mut().zip(u).for_each(|(word, &u)| *word = u as u64)
                    }
                    _ => {}
                }
            }
        });
    }

    /// Every hosted party sends its message to its neighbours.
    fn forward(&mut self) {
        let Network { comm, ends, directed_edges, messages, .. } = self;
        for way in &*directed_edges {
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
        let Network { comm, ends, terms, vault, quantised, own, masking, interrupt, .. } = self;
        own.iter_mut().for_each(|own| own.draw(terms.weights, terms.fixed.g_max));
        if let Some(masking) = masking {
            masking.next();
        }
        for (place, end) in ends.iter_mut().enumerate() {
            if vault.is_some() && interrupt.is_raised() {
                break;
            }
            let (local, neighbour) = (end.local, end.neighbour);
            let weights = &own[local].weights;
            end.prepare(terms.weights, weights, &quantised[end.local]);
            match (&mut *vault, &mut end.reply) {
                (Some(vault), NeighbourMessage::Encrypted(reply)) => comm.work("answer", || {
                    let packs = vault.packs(terms.entries);
                    let masks =
                        masking.as_mut().map(|all| all.of(place, (local, neighbour), vault.modulus(neighbour), packs));
                    let masks = masks.unwrap_or_default();
                    vault.answer(neighbour, end.message.words(), (weights, &end.offsets), &masks, reply);
                }),
                (_, NeighbourMessage::Plain(reply)) => {
                    let ours = weights.iter().zip(&end.offsets);
                    for ((reply, &theirs), (&g, &offset)) in reply.iter_mut().zip(end.message.words()).zip(ours) {
                        *reply = (offset - theirs as i64 * g as i64) as u64;
                    }
                }
                _ => {}
            }
        }
    }

    /// Every hosted party receives the answers of its neighbours.
    fn send_answers(&mut self) {
        let Network { comm, ends, directed_edges, .. } = self;
        for way in &*directed_edges {
            match (way.sender, way.receiver) {
                (Some(s), Some(r)) => {
                    ends[s].reply.transfer(comm, [ANSWER, PLAIN_ANSWER], way);
                    let reply = std::mem::replace(&mut ends[s].reply, NeighbourMessage::Plain(Vec::new()));
                    ends[s].reply = std::mem::replace(&mut ends[r].answer, reply);
                }
                (Some(s), None) => ends[s].reply.transfer(comm, [ANSWER, PLAIN_ANSWER], way),
                (None, Some(r)) => ends[r].answer.transfer(comm, [ANSWER, PLAIN_ANSWER], way),
                (None, None) => {}
            }
        }
    }

    /// Every hosted party sums the answers that it has received and decrypts the sum. Returns whether the exchange was
    /// interrupted.
    fn open(&mut self) -> Result<bool> {
        let Network { comm, hosted, ends, vault, sums, own, interrupt, .. } = self;
        for (local, ((party, sum), own)) in hosted.clone().zip(&mut *sums).zip(&*own).enumerate() {
            // The ends of a party are consecutive.
            let [first, next] = [local, local + 1].map(|local| ends.partition_point(|end| end.local < local));
            let ends = &ends[first..next];
            if vault.is_some() && interrupt.is_raised() {
                return Ok(true);
            }
            sum.fill(0);
            match vault {
                Some(vault) if !ends.is_empty() => {
                    let answers: Vec<&[u64]> = ends.iter().map(|end| end.answer.words()).collect();
                    comm.work("decrypt", || vault.open(party, &answers, sum))
                        .map_err(|e| e.at(format!("party {party}, from its neighbours")))?;
                }
                _ => ends.iter().for_each(|end| {
                    sum.iter_mut().zip(end.answer.words()).for_each(|(sum, &word)| *sum += i128::from(word as i64));
                }),
            }
            if comm.is_viewed() {
                view(comm, vault.as_mut(), ends, &own.weights, sum)?;
            }
            sum.iter_mut().zip(&own.weights).for_each(|(sum, &g)| *sum *= i128::from(g));
        }
        Ok(false)
    }

    /// Σ_j ρ_ij (U_j − U_i) of a hosted party, entry by entry.
    pub fn pull(&self, local: usize) -> impl Iterator<Item = f64> {
        self.sums[local].iter().map(|&sum| self.terms.fixed.real(sum))
    }

    /// Each hosted party sends its neighbours the smallest flag that it knows, and receives theirs.
    pub fn flood(&mut self, flags: &mut [u64]) {
        let Network { comm, ends, directed_edges, .. } = self;
        // Flags that are received in this call are forwarded in the next one.
        ends.iter_mut().for_each(|end| end.flag = flags[end.local]);
        for way in &*directed_edges {
            let mut flag = [way.sender.map_or(0, |s| ends[s].flag)];
            comm.transfer_on_edge(FLAG, way.from, way.to, &mut DeclaredMut(&mut flag));
            if let Some(r) = way.receiver {
                let local = ends[r].local;
                flags[local] = flags[local].min(flag[0]);
            }
        }
    }
}

/// Records each single answer as a party decrypts it, and the sum of several, each followed by the party's own weights.
fn view(
    comm: &PartyCommunicator,
    mut vault: Option<&mut KeyStore>,
    ends: &[End],
    weights: &[u64],
    sum: &[i128],
) -> Result<()> {
    let record = |tag: MessageTag, from: usize, to: usize, numbers: &[i128]| {
        let numbers: Vec<f64> = numbers.iter().map(|&d| d as f64).collect();
        comm.opened(tag, Some((from, to)), &numbers);
        comm.knows(OWN_WEIGHTS, Some(to), (1, weights.len()), weights);
    };
    let mut alone = vec![0; sum.len()];
    for end in ends {
        let tag = match &mut vault {
            Some(vault) => {
                vault.open_alone(end.party, end.answer.words(), &mut alone)?;
                ANSWER
            }
            None => {
                alone.iter_mut().zip(end.answer.words()).for_each(|(d, &word)| *d = i128::from(word as i64));
                PLAIN_ANSWER
            }
        };
        record(tag, end.neighbour, end.party, &alone);
    }
    if let (Some(_), [first, _, ..]) = (vault, ends) {
        record(SUM_OF_ANSWERS, first.party, first.party, sum);
    }
    Ok(())
}

impl PartyWeights {
    /// Draws weights G.
    fn draw(&mut self, draw: Weights, g_max: u64) {
        let PartyWeights { rng, weights } = self;
        match draw {
            Weights::Entry => {
                let low = g_max / 2;
                weights.iter_mut().for_each(|g| *g = low + 1 + below(rng, g_max - low));
            }
            Weights::Scalar => {
                // From (the last one, G_max], until G_max is reached.
                let last = weights.first().copied().unwrap_or(0);
                let g = if last < g_max { last + 1 + below(rng, g_max - last) } else { last };
                weights.fill(g);
            }
        }
    }
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
            offsets: vec![0; entries],
            message: NeighbourMessage::Plain(Vec::new()),
            answer: NeighbourMessage::Plain(Vec::new()),
            reply: NeighbourMessage::Plain(Vec::new()),
            flag: 0,
        }
    }

    /// The offsets G û + remainder that the answer adds to −G û_i, for drawn weights G.
    fn prepare(&mut self, draw: Weights, weights: &[u64], u: &[i64]) {
        let End { rng, offsets, .. } = self;
        for ((&g, offset), &u) in weights.iter().zip(offsets).zip(u) {
            let remainder = match draw {
                Weights::Entry => below(rng, g) as i64 - (g / 2) as i64,
                Weights::Scalar => 0,
            };
            *offset = u * g as i64 + remainder;
        }
    }
}

/// Uniform in 0..n, by Lemire's multiply-shift; the bias is below n/2⁶⁴.
fn below(rng: &mut StdRng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

#[cfg(feature = "paillier")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::federated::graph::ppdnmf::Topology;

    const ENTRIES: usize = 150;

    fn own_weights(seed: u64) -> PartyWeights {
        PartyWeights { rng: secret_rng(Some(seed), 3).unwrap(), weights: vec![0; ENTRIES] }
    }

    /// Party 0 of a ring of three sees the sum of its neighbours' answers; each single answer is uniform modulo n.
    #[test]
    fn one_neighbours_answer_alone_is_masked() {
        let fixed = FixedPointScale::new(1_000_000, 10.0, 1 << 20, 0.033).unwrap();
        let parties = Parties { count: 3, ranks: 1 };
        let graph = Topology::Ring.build(3, 0, "").unwrap();
        let comm = PartyCommunicator::new(fednmf_comm::Communicator::local());
        let vault = KeyStore::new(parties, 0, 128, (fixed, 2), false, (Some(3), 1)).unwrap();
        let terms = ExchangeParams { entries: ENTRIES, fixed, weights: Weights::Entry, secret_seed: Some(5) };
        let mut network = Network::new(&comm, parties, &graph, terms, Some(vault)).unwrap();
        network.begin(0).unwrap();
        let (own, theirs) = factors();
        let copies: [Vec<i64>; 3] = [own, theirs.clone(), theirs.iter().map(|u| u / 2 + 7).collect()];
        for _ in 0..2 {
            for (local, copy) in copies.iter().enumerate() {
                let reals: Vec<f64> = copy.iter().map(|&u| u as f64 / 1e6).collect();
                network.put(local, &reals).unwrap();
            }
            assert!(!network.exchange().unwrap());
            let to_first: Vec<usize> = (0..network.ends.len()).filter(|&e| network.ends[e].neighbour == 0).collect();
            assert_eq!(to_first.len(), 2);
            for entry in 0..ENTRIES {
                let plain: i128 = to_first
                    .iter()
                    .map(|&e| {
                        let end = &network.ends[e];
                        let g = network.own[end.local].weights[entry] as i64;
                        i128::from(end.offsets[entry] - g * copies[0][entry])
                    })
                    .sum();
                assert_eq!(network.sums[0][entry], plain * i128::from(network.own[0].weights[entry]));
            }
            // The unmasked difference lies in a small part of the range; the masked one in all of it.
            let Network { ends, vault: Some(vault), .. } = &mut network else { panic!("encrypted") };
            for end in ends.iter().filter(|end| end.party == 0) {
                let mut alone = vec![0; ENTRIES];
                vault.open_alone(0, end.answer.words(), &mut alone).unwrap();
                let possible = alone.iter().filter(|d| d.abs() <= i128::from(fixed.largest_answer())).count();
                assert!(possible < ENTRIES * 3 / 4, "{possible} entries of {ENTRIES} may be differences");
                let close = alone.iter().zip(&copies[end.neighbour]).zip(&copies[0]).filter(|((d, a), b)| {
                    let ratio = **d as f64 / ((*a - *b) as f64 * fixed.g_max as f64);
                    (0.4..1.1).contains(&ratio)
                });
                assert!(close.count() < ENTRIES / 4, "answers are differences times weights");
            }
        }
    }

    /// What party 0 decrypts in each of four ADMM iterations, with real keys, from party 1's answers.
    fn decrypted(draw: Weights, bits: u32, own: &[i64], theirs: &[i64]) -> Vec<Vec<i64>> {
        let fixed = FixedPointScale::new(1_000_000, 10.0, 1 << 20, 0.033).unwrap();
        let parties = Parties { count: 2, ranks: 1 };
        let mut vault = KeyStore::new(parties, 0, bits, (fixed, 1), draw == Weights::Scalar, (Some(3), 2)).unwrap();
        vault.learn(0, vault.public_words(0).as_slice()).unwrap();
        let mut end = End::new(1, (1, 0), secret_rng(Some(1), 2).unwrap(), ENTRIES);
        let mut weights = own_weights(2);
        let mut message = Ciphertexts::room(vault.message_words(ENTRIES));
        let mut reply = Ciphertexts::room(vault.answer_words(ENTRIES));
        assert_eq!(message.words().len() == reply.words().len(), draw == Weights::Scalar, "one weight packs both ways");
        let mut out = vec![0; ENTRIES];
        (0..4)
            .map(|_| {
                vault.seal(0, own, &mut message);
                weights.draw(draw, fixed.g_max);
                end.prepare(draw, &weights.weights, theirs);
                vault.answer(0, message.words(), (&weights.weights, &end.offsets), &[], &mut reply);
                vault.open(0, &[reply.words()], &mut out).unwrap();
                let expected = end.offsets.iter().zip(own).zip(&weights.weights).map(|((o, u), &g)| o - u * g as i64);
                assert!(
                    out.iter().copied().eq(expected.map(i128::from)),
                    "the decrypted numbers are not the plain ones"
                );
                out.iter().map(|&d| d as i64).collect()
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
        let mut weights = own_weights(1);
        weights.draw(Weights::Entry, 34_603);
        let weights = weights.weights;
        end.prepare(Weights::Entry, &weights, &theirs);
        let multiples = end.offsets.iter().zip(&own).zip(&weights).filter(|((o, u), g)| {
            let g = **g as i64;
            (*o - *u * g) % g == 0
        });
        assert!(multiples.count() < 5);
        assert!(weights.iter().all(|g| (17_302..=34_603).contains(g)));
    }

    /// The remainder changes a difference by less than one quantisation step.
    #[test]
    fn remainders_cost_half_a_step() {
        let (own, theirs) = factors();
        let mut end = End::new(1, (1, 0), secret_rng(Some(5), 2).unwrap(), ENTRIES);
        let mut weights = own_weights(5);
        weights.draw(Weights::Entry, 1000);
        end.prepare(Weights::Entry, &weights.weights, &theirs);
        for (((o, u), t), g) in end.offsets.iter().zip(&own).zip(&theirs).zip(&weights.weights) {
            let g = *g as f64;
            assert!(((*o as f64 - *u as f64 * g) / g - (t - u) as f64).abs() <= 0.5 + 1.0 / g);
        }
    }
}
