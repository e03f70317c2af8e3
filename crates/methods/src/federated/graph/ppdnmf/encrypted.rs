//! The encrypted exchange: one ciphertext per entry is sent, and the answers come back packed. With one weight for a
//! whole message (`--scalar-g`) both directions are packed.
//!
//! A weight G acts on a whole plaintext, so entries with different weights need separate ciphertexts. The answers are
//! moved into slots of one plaintext: Π_s c_s^(G_s 2^(ws)) · E(Σ_s (o_s + 2^(w−1)) 2^(ws)), whose slot s, less 2^(w−1),
//! is o_s − G_s û_i,s, with o_s = G_s û_j,s and a remainder. The returned bytes and the decryptions shrink by the
//! number of slots. One weight for all slots of a plaintext acts on all of them at once, so −û_i can be packed before
//! it is sent.
//!
//! The receiver needs only the sum of its neighbours' answers. If it has several neighbours, each adds a mask modulo n to
//! its plaintext, and the masks cancel in the sum. Slots are wide enough for the sum, which is less than n. The receiver
//! multiplies the answers and decrypts the product.

use std::collections::BTreeSet;
use std::time::Instant;

use rug::Assign;
pub use rug::Integer;
use rug::integer::Order;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::party_sum::KEYS;
use fednmf_comm::{Parties, Parts, PartyCommunicator};
use fednmf_linalg::random::{mix, secret_rng};
use fednmf_privacy::key_agreement::KEY;
use fednmf_privacy::masking::{KeyPair, SumMasks, public_keys};
use fednmf_privacy::paillier::{PrivateKey, PublicKey, Worker};
use fednmf_privacy::{Ciphertexts, PublicKeys};

use crate::federated::graph::ppdnmf::exchange::PUBLIC_KEY;
use crate::federated::graph::ppdnmf::fixed_point::FixedPointScale;
use crate::federated::graph::ppdnmf::topology::Graph;

/// Keys of the hosted parties and of their neighbours, and scratch memory.
pub struct KeyStore {
    bits: u32,
    /// Bits of a slot for the sum of a party's answers.
    slot: u32,
    /// Bits of one answer, including its sign.
    single: u32,
    slots: usize,
    /// Entries in one ciphertext of a message.
    together: usize,
    largest: i64,
    first: usize,
    own: Vec<PrivateKey>,
    /// The neighbours' keys, by party.
    public: Vec<Option<PublicKey>>,
    workers: Vec<Worker>,
}

impl KeyStore {
    /// Generates keys for the hosted parties, each of which has at most `neighbours` neighbours. `one_weight` says whether
    /// all entries of a message have the same weight.
    ///
    /// # Errors
    /// If a slot does not fit into a plaintext, or no random numbers are available.
    pub fn new(
        parties: Parties,
        rank: usize,
        bits: u32,
        (fixed, neighbours): (FixedPointScale, usize),
        one_weight: bool,
        (secret_seed, threads): (Option<u64>, usize),
    ) -> Result<Self> {
        let single = fixed.slot_bits();
        let slot = single + neighbours.max(1).next_power_of_two().trailing_zeros();
        let slots = (PublicKey::room(bits) / slot) as usize;
        if slots == 0 {
            return Err(Error::input(format!(
                "--key-bits {bits}: an answer of {slot} bits does not fit; lower --quantization, --x-range or --g-scale"
            )));
        }
        let rng = |domain: u64, owner: usize| secret_rng(secret_seed, mix(mix(domain) ^ owner as u64));
        let hosted = parties.hosted(rank);
        let mut own = Vec::new();
        for party in hosted.clone() {
            own.push(PrivateKey::generate(&mut rng(1, party)?, bits)?);
        }
        let mut workers = Vec::new();
        for thread in 0..threads {
            workers.push(Worker::new(rng(2, rank * 65_536 + thread)?));
        }
        let public = (0..parties.count).map(|_| None).collect();
        let (largest, first, together) = (fixed.largest_answer(), hosted.start, if one_weight { slots } else { 1 });
        Ok(KeyStore { bits, slot, single, slots, together, largest, first, own, public, workers })
    }

    /// Sends public keys along `directed_edges` (party, its rank, the neighbour's rank), in the same order on both sides.
    /// Collective.
    ///
    /// # Errors
    /// On all ranks, if a neighbour sent no valid key.
    pub fn exchange_keys(
        &mut self,
        comm: &PartyCommunicator,
        directed_edges: &[(usize, usize, usize)],
    ) -> SharedResult<()> {
        let mut learned = Ok(());
        for &(party, from, to) in directed_edges {
            let mut words = match from == comm.rank() {
                true => self.public_words(party),
                false => PublicKeys::room(PublicKey::length(self.bits)),
            };
            comm.transfer_key(PUBLIC_KEY, from, to, &mut words);
            if to == comm.rank() {
                // After an invalid key the exchange goes on, because the neighbours wait for the other keys.
                learned = learned.and(self.learn(party, words.as_slice()));
            }
        }
        comm.agree_on_error(learned)
    }

    /// The public key of a hosted party.
    pub fn public_words(&self, party: usize) -> PublicKeys<u64> {
        self.own[party - self.first].public.words()
    }

    /// Stores the public key of a neighbour.
    ///
    /// # Errors
    /// If the key is not valid.
    pub fn learn(&mut self, party: usize, words: &[u64]) -> Result<()> {
        if self.public[party].is_none() {
            let key = PublicKey::from_words(words, self.bits).map_err(|e| e.at(format!("party {party}")))?;
            self.public[party] = Some(key);
        }
        Ok(())
    }

    /// Number of answers in one ciphertext.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Number of words of a message with this number of entries.
    pub fn message_words(&self, entries: usize) -> usize {
        entries.div_ceil(self.together) * PublicKey::ciphertext_words(self.bits)
    }

    /// Number of words of an answer with this number of entries.
    pub fn answer_words(&self, entries: usize) -> usize {
        entries.div_ceil(self.slots) * PublicKey::ciphertext_words(self.bits)
    }

    /// Seconds of one encryption, one answer and one decryption, on one thread, with a neighbour's key if there is one.
    pub fn time_each(&mut self, weight: u64) -> [f64; 3] {
        let words = PublicKey::ciphertext_words(self.bits);
        let party = self.first;
        let neighbour = (0..self.public.len()).find(|&other| self.public[other].is_some());
        if self.own.is_empty() {
            return [0.0; 3];
        }
        let cipher_count = self.slots.div_ceil(self.together);
        let (mut message, mut reply) = (Ciphertexts::room(cipher_count * words), Ciphertexts::room(words));
        let (numbers, weights) = (vec![1; self.slots], vec![weight; self.slots]);
        let start = Instant::now();
        self.seal(party, &numbers, &mut message);
        let threads = self.workers.len().min(cipher_count);
        let sealed = start.elapsed().as_secs_f64() * threads as f64 / cipher_count as f64;
        let start = Instant::now();
        if let Some(neighbour) = neighbour {
            // With another key the numbers differ, but the time is the same.
            self.answer(neighbour, message.words(), (&weights, &numbers), &[], &mut reply);
        }
        let answered = start.elapsed().as_secs_f64();
        let start = Instant::now();
        // The result does not matter.
        let _ = self.own[0].decrypt(&message.words()[..words]);
        [sealed, answered, start.elapsed().as_secs_f64()]
    }

    /// Upper estimate of the seconds of an exchange at this rank, for this number of hosted parties and edge ends, as
    /// if nothing overlapped.
    pub fn seconds(&mut self, (parties, ends): (usize, usize), entries: usize, weight: u64) -> f64 {
        let [seal, answer, open] = self.time_each(weight);
        let (messages, answers) = (entries.div_ceil(self.together), entries.div_ceil(self.slots));
        let turns = |ciphertexts: usize| ciphertexts.div_ceil(self.workers.len()) as f64;
        parties as f64 * (turns(messages) * seal + answers as f64 * open) + ends as f64 * turns(answers) * answer
    }

    /// The message of a party: E(−û) for each entry, or E(Σ_s −û_s 2^(ws)) for each pack of entries.
    pub fn seal(&mut self, party: usize, u: &[i64], message: &mut Ciphertexts) {
        let key = &self.own[party - self.first];
        let words = PublicKey::ciphertext_words(self.bits);
        let (together, slot) = (self.together, self.slot);
        message.fill(&mut self.workers, words, |worker, pack| {
            worker.x.assign(0);
            for u in u[pack * together..].iter().take(together).rev() {
                worker.x <<= slot;
                worker.x -= *u;
            }
            key.encrypt(worker)
        });
    }

    /// The modulus n of a neighbour.
    pub fn modulus(&self, neighbour: usize) -> &Integer {
        &self.public[neighbour].as_ref().expect("keys were handed over at the start").n
    }

    /// Number of ciphertexts of an answer with this number of entries.
    pub fn packs(&self, entries: usize) -> usize {
        entries.div_ceil(self.slots)
    }

    /// The answer to a neighbour's message: E(offset − G û_i + mask) for the own weights and offsets, with a mask for each
    /// ciphertext, or none.
    pub fn answer(
        &mut self,
        neighbour: usize,
        message: &[u64],
        (weights, offsets): (&[u64], &[i64]),
        masks: &[Integer],
        reply: &mut Ciphertexts,
    ) {
        let key = self.public[neighbour].as_ref().expect("keys were handed over at the start");
        let words = PublicKey::ciphertext_words(self.bits);
        let (slots, slot, single, together) = (self.slots, self.slot, self.single, self.together);
        reply.fill(&mut self.workers, words, |worker, pack| {
            let entries = pack * slots..((pack + 1) * slots).min(weights.len());
            // Square and multiply through the bits of all exponents at once, from the highest.
            worker.a.assign(1);
            for entry in entries.clone().step_by(together).rev() {
                let g = weights[entry];
                worker.c.assign_digits(&message[entry / together * words..][..words], Order::Lsf);
                power_of_two(worker, slot - (64 - g.leading_zeros()), key);
                for bit in (0..64 - g.leading_zeros()).rev() {
                    worker.a.square_mut();
                    worker.b.assign(&worker.a % &key.nn);
                    if g >> bit & 1 == 1 {
                        worker.a.assign(&worker.b * &worker.c);
                        worker.a %= &key.nn;
                    } else {
                        std::mem::swap(&mut worker.a, &mut worker.b);
                    }
                }
            }
            worker.b.assign(0);
            for entry in entries.rev() {
                worker.b <<= slot;
                worker.b += i128::from(offsets[entry]) + (1i128 << (single - 1));
            }
            if let Some(mask) = masks.get(pack) {
                worker.b += mask;
                worker.b %= &key.n;
            }
            key.add_and_refresh(worker)
        });
    }

    /// Decrypts the sum of the answers of all neighbours of a party.
    ///
    /// # Errors
    /// If the sum cannot be decrypted, or a number exceeds the largest possible one.
    pub fn open(&mut self, party: usize, answers: &[&[u64]], out: &mut [i128]) -> Result<()> {
        let key = &self.own[party - self.first];
        let words = PublicKey::ciphertext_words(self.bits);
        let wrong = || Error::failed("an answer exceeds the largest possible one: the exchange is out of step");
        let terms = answers.len() as i128;
        let mut product = vec![0; words];
        for (pack, out) in out.chunks_mut(self.slots).enumerate() {
            let each = answers.iter().map(|answer| &answer[pack * words..][..words]);
            key.public.multiply(each, &mut product);
            let mut packed = key.decrypt(&product)?;
            if packed < 0 {
                packed += &key.public.n;
            }
            for out in out {
                let slot = Integer::from(packed.keep_bits_ref(self.slot));
                packed >>= self.slot;
                let d = slot.to_i128().ok_or_else(wrong)? - terms * (1i128 << (self.single - 1));
                *out = Some(d).filter(|d| d.abs() <= terms * i128::from(self.largest)).ok_or_else(wrong)?;
            }
            if packed != 0 {
                return Err(wrong());
            }
        }
        Ok(())
    }

    /// The slots of one neighbour's answer without those of the others: random numbers if it is masked.
    ///
    /// # Errors
    /// If the answer cannot be decrypted.
    pub fn open_alone(&mut self, party: usize, answer: &[u64], out: &mut [i128]) -> Result<()> {
        let key = &self.own[party - self.first];
        let words = PublicKey::ciphertext_words(self.bits);
        for (cipher, out) in answer.chunks_exact(words).zip(out.chunks_mut(self.slots)) {
            let mut packed = key.decrypt(cipher)?;
            if packed < 0 {
                packed += &key.public.n;
            }
            for out in out {
                let slot = Integer::from(packed.keep_bits_ref(self.slot)).to_i128().unwrap_or(i128::MAX);
                packed >>= self.slot;
                *out = slot - (1i128 << (self.single - 1));
            }
        }
        Ok(())
    }
}

/// An end of an edge: a hosted party, its index among them, and its neighbour.
#[derive(Debug, Clone, Copy)]
pub struct EdgeEnd {
    pub local: usize,
    pub party: usize,
    pub neighbour: usize,
}

/// The masks of the hosted parties' answers.
pub struct Masking {
    /// The masks of each hosted party.
    masks: Vec<SumMasks>,
    /// For each end of an edge of this rank, the other neighbours of the party that it sends to.
    peers: Vec<Vec<usize>>,
    parties: usize,
    /// The number of this exchange.
    exchange: u64,
}

impl Masking {
    /// Agrees on keys between the hosted parties and all parties with which they have a common neighbour. Collective.
    pub fn new(comm: &PartyCommunicator, parties: Parties, graph: &Graph, ends: &[EdgeEnd]) -> SharedResult<Masking> {
        let hosted = parties.hosted(comm.rank());
        // Masks do not affect the result, so tests need not fix them.
        let own = hosted.clone().map(|party| Ok(KeyPair::new(&mut secret_rng(None, party as u64)?)));
        let own = comm.agree_on_error(own.collect::<Result<Vec<KeyPair>>>())?;
        let ranges: Vec<_> = (0..parties.ranks).map(|rank| parties.hosted(rank)).collect();
        let mut public = vec![0u8; KEY * parties.count];
        comm.gather_keys(KEYS, own.len(), &public_keys(&own), &Parts::new(&ranges, KEY), &mut public);
        let peers_of = |end: &EdgeEnd| -> Vec<usize> {
            graph.neighbours[end.neighbour].iter().copied().filter(|&other| other != end.party).collect()
        };
        let peers: Vec<Vec<usize>> = ends.iter().map(peers_of).collect();
        let masks = hosted.zip(&own).enumerate().map(|(local, (party, pair))| {
            let others = ends.iter().zip(&peers).filter(|(end, _)| end.local == local).flat_map(|(_, peers)| peers);
            let others: BTreeSet<usize> = others.copied().collect();
            SumMasks::new(party, pair, others.into_iter(), public.as_chunks::<KEY>().0)
        });
        let masks = comm.agree_on_error(masks.collect::<Result<Vec<SumMasks>>>())?;
        Ok(Masking { masks, peers, parties: parties.count, exchange: 0 })
    }

    /// Begins the next exchange, which has its own masks.
    pub fn next(&mut self) {
        self.exchange += 1;
    }

    /// The masks of the answer of the hosted party `local` to the party `to`, one for each of `packs` ciphertexts; empty if
    /// `to` has only one neighbour.
    pub fn of(&mut self, place: usize, (local, to): (usize, usize), modulus: &Integer, packs: usize) -> Vec<Integer> {
        let peers = &self.peers[place];
        let mut out = vec![Integer::new(); if peers.is_empty() { 0 } else { packs }];
        let number = self.exchange * self.parties as u64 + to as u64;
        self.masks[local].fill(peers.iter().copied(), number, modulus, &mut out);
        out
    }
}

/// a ← a^(2^times) mod n².
fn power_of_two(worker: &mut Worker, times: u32, key: &PublicKey) {
    if worker.a == 1 {
        return;
    }
    for _ in 0..times {
        worker.a.square_mut();
        worker.b.assign(&worker.a % &key.nn);
        std::mem::swap(&mut worker.a, &mut worker.b);
    }
}
