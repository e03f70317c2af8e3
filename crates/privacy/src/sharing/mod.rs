//! Replicated secret sharing modulo 2⁶⁴ among three computing parties of which no two collude (Araki, Furukawa, Lindell,
//! Nof and Ohara, High-Throughput Semi-Honest Secure Three-Party Computation with an Honest Majority, CCS 2016; Mohassel
//! and Rindal, ABY3, CCS 2018). All parties follow the protocol.
//!
//! A word x is the sum x₀ + x₁ + x₂ of components, and party i knows x_i and x_{i+1} (indices modulo 3). Any two components are
//! uniformly random; any two parties together know all three. Parties i and i − 1 share a key kᵢ, from which they draw the same
//! ChaCha20 streams.
//!
//! - [`terms`]: sums of products, vectorised, without a message: party i computes its term of x y = Σ_i (x_i y_i + x_i y_{i+1} +
//!   x_{i+1} y_i);
//! - [`truncation`]: division of such sums by a power of two, in two rounds, and the masked opening at its start;
//! - [`comparison`]: the sign, by a parallel prefix circuit on the masked opening, and selection by it;
//! - [`reciprocal`]: Newton's iteration;
//! - [`input`]: the shares of a contributor's words;
//! - [`mail`]: the messages of a round, which a [`Wire`] transports.
//!
//! Every message is uniformly random to its receiver. Only [`Computation::open`] adds components of different parties.

pub mod comparison;
pub mod input;
pub mod mail;
pub mod reciprocal;
mod ring;
pub mod terms;
#[cfg(test)]
mod tests;
pub mod truncation;

use chacha20::ChaCha20Rng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::random::secret_rng;

pub use input::{ShareWords, shares_of};
pub use mail::{Mail, Purpose, Wire};
pub use reciprocal::Reciprocals;
pub use terms::Terms;

use super::masking::add_stream;

/// The number of computing parties.
pub const COMPUTING: usize = 3;

/// Words of a key.
const KEY_WORDS: usize = 4;

/// Distinguishes the keys from other secrets of a party.
const KEYS: u64 = 0x5348_4152_4544_0000;

/// Components i and i + 1 of some words, of party i. They can be neither printed nor copied.
#[derive(Default)]
struct Components {
    own: Vec<u64>,
    next: Vec<u64>,
}

/// Secret words, as the components of each computing party on this rank.
///
/// ```compile_fail,E0277
/// # use fednmf_privacy::sharing::Shared;
/// println!("{:?}", Shared::default());
/// ```
///
/// ```compile_fail,E0599
/// # use fednmf_privacy::sharing::Shared;
/// let _ = Shared::default().clone();
/// ```
#[derive(Default)]
pub struct Shared {
    length: usize,
    parts: Vec<Components>,
}

/// The components of a computing party in its own checkpoint.
#[derive(Serialize, Deserialize)]
pub struct SavedComponents {
    own: Vec<u64>,
    next: Vec<u64>,
}

/// Two words of the keys of a computing party ([`Computation::tags`]), in its own checkpoint.
#[derive(Clone, Serialize, Deserialize)]
pub struct Tags([u64; 2]);

/// The number of the draw of a tag: no iteration comes to it.
const TAG: u64 = u64::MAX;

/// A computing party on this rank: its keys, and memory for the protocols.
struct ComputingParty {
    index: usize,
    /// The streams of kᵢ, shared with party i − 1, and of kᵢ₊₁, shared with party i + 1.
    own: ChaCha20Rng,
    next: ChaCha20Rng,
    opened: truncation::Opened,
    circuit: comparison::Circuit,
    terms: Vec<u64>,
}

/// The keys that the computing parties of a rank have drawn.
pub struct Keys(Vec<(usize, [u64; KEY_WORDS])>);

/// The computing parties of this rank.
pub struct Computation {
    parties: Vec<ComputingParty>,
    mail: Mail,
    /// The number of the next draw. Each key has a separate stream for each number.
    number: u64,
}

/// Overwrites `words` with a stream.
fn fill(stream: &mut ChaCha20Rng, number: u64, words: &mut [u64]) {
    words.fill(0);
    add(stream, number, words, false);
}

/// Adds a stream to `words`, or subtracts it.
fn add(stream: &mut ChaCha20Rng, number: u64, words: &mut [u64], subtract: bool) {
    stream.set_stream(number);
    stream.set_word_pos(0);
    add_stream(words, stream, subtract);
}

impl ComputingParty {
    fn new(index: usize, own: &[u64]) -> Self {
        ComputingParty {
            index,
            own: stream_of(own),
            next: stream_of(&[0; KEY_WORDS]),
            opened: truncation::Opened::default(),
            circuit: comparison::Circuit::default(),
            terms: Vec::new(),
        }
    }

    /// Adds this party's share of zero, so that the terms of all parties are random with the same sum.
    fn mask(&mut self, number: u64, terms: &mut [u64]) {
        add(&mut self.own, number, terms, false);
        add(&mut self.next, number, terms, true);
    }
}

/// The stream of a key.
fn stream_of(key: &[u64]) -> ChaCha20Rng {
    let mut bytes = [0; 8 * KEY_WORDS];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(key) {
        *bytes = word.to_le_bytes();
    }
    ChaCha20Rng::from_seed(bytes)
}

/// A random key.
fn random_key(rng: &mut impl Rng) -> [u64; KEY_WORDS] {
    std::array::from_fn(|_| rng.next_u64())
}

/// The party with the components i − 1 and i, to which party i sends its new component.
fn previous(index: usize) -> usize {
    (index + COMPUTING - 1) % COMPUTING
}

/// The party with the components i + 1 and i + 2.
fn following(index: usize) -> usize {
    (index + 1) % COMPUTING
}

impl Keys {
    /// Keys of the computing parties `hosted` on this rank (below 3), fresh ones, or from a `secret_seed`, for tests.
    ///
    /// # Errors
    /// If the operating system provides no random numbers.
    pub fn draw(hosted: impl Iterator<Item = usize>, secret_seed: Option<u64>) -> Result<Self> {
        let draw = |index| Ok((index, random_key(&mut secret_rng(secret_seed, KEYS ^ index as u64)?)));
        hosted.map(draw).collect::<Result<_>>().map(Keys)
    }
}

impl Computation {
    /// The computing parties with these keys, of which each is sent to the previous party. All ranks take part.
    pub fn new(keys: &Keys, wire: &mut dyn Wire) -> Self {
        let mut mail = Mail::default();
        mail.begin();
        (0..COMPUTING).for_each(|from| mail.expect(from, previous(from), KEY_WORDS));
        let mut parties = Vec::new();
        for (index, key) in &keys.0 {
            mail.send(*index, previous(*index)).extend(key);
            parties.push(ComputingParty::new(*index, key));
        }
        wire.exchange(&mut mail, Purpose::Compute);
        for party in &mut parties {
            party.next = stream_of(mail.take(following(party.index), party.index, KEY_WORDS));
        }
        Computation { parties, mail, number: 0 }
    }

    /// Numbers the draws by iteration, so that a resumed run with a secret seed has the same ones.
    ///
    /// # Panics
    /// If a number would be used again.
    pub fn begin(&mut self, iteration: usize) {
        let number = (iteration as u64) << 32;
        assert!(number >= self.number, "a stream of iteration {iteration} has been used");
        self.number = number;
    }

    /// Numbers that tell the shares of one run from those of any other: for each computing party of this rank one of kᵢ and one of
    /// kᵢ₊₁.
    pub fn tags(&mut self) -> Vec<Tags> {
        let tag = |stream: &mut ChaCha20Rng| {
            let mut word = [0];
            fill(stream, TAG, &mut word);
            word[0]
        };
        self.parties.iter_mut().map(|party| Tags([tag(&mut party.own), tag(&mut party.next)])).collect()
    }

    /// Whether these tags, which the parties of this rank saved with their shares, fit those of the others. All ranks take part.
    pub fn are_of_one_run(&mut self, saved: &[Tags], wire: &mut dyn Wire) -> bool {
        let Computation { parties, mail, .. } = self;
        mail.begin();
        (0..COMPUTING).for_each(|from| mail.expect(from, previous(from), 1));
        for (party, Tags([own, _])) in parties.iter().zip(saved) {
            mail.send(party.index, previous(party.index)).push(*own);
        }
        wire.exchange(mail, Purpose::Compute);
        let fits = |(party, Tags([_, next])): (&ComputingParty, &Tags)| {
            mail.take(following(party.index), party.index, 1) == [*next]
        };
        parties.iter().zip(saved).map(fits).fold(saved.len() == parties.len(), |all, one| all & one)
    }

    /// The computing parties of this rank.
    pub fn hosted(&self) -> impl Iterator<Item = usize> {
        self.parties.iter().map(|party| party.index)
    }

    /// Reserves `count` numbers of draws and returns the first.
    fn numbers(&mut self, count: u64) -> u64 {
        self.number += count;
        self.number - count
    }

    /// `length` words with the public value 0.
    pub fn zeros(&self, length: usize) -> Shared {
        let zeros = || Components { own: vec![0; length], next: vec![0; length] };
        Shared { length, parts: self.parties.iter().map(|_| zeros()).collect() }
    }

    /// Public words as shares.
    pub fn public(&self, words: &[u64]) -> Shared {
        let mut shared = self.zeros(words.len());
        for (place, word) in words.iter().enumerate() {
            self.add_public(&mut shared, place..place + 1, *word);
        }
        shared
    }

    /// Adds a public word to each of the words in `range`: to component 0.
    pub fn add_public(&self, shared: &mut Shared, range: std::ops::Range<usize>, word: u64) {
        for (party, part) in self.parties.iter().zip(&mut shared.parts) {
            let component = match party.index {
                0 => &mut part.own,
                2 => &mut part.next,
                _ => continue,
            };
            component[range.clone()].iter_mut().for_each(|x| *x = x.wrapping_add(word));
        }
    }

    /// Opens the words: each party sends the component that the following one lacks. `None` on a rank without computing
    /// parties. No other function reveals anything.
    pub fn open(&mut self, shared: &Shared, wire: &mut dyn Wire) -> Option<Vec<u64>> {
        let length = shared.length;
        let Computation { parties, mail, .. } = self;
        mail.begin();
        (0..COMPUTING).for_each(|from| mail.expect(from, following(from), length));
        for (party, part) in parties.iter().zip(&shared.parts) {
            mail.send(party.index, following(party.index)).extend_from_slice(&part.own);
        }
        wire.exchange(mail, Purpose::Open);
        let sums = parties.iter().zip(&shared.parts).map(|(party, part)| {
            let third = mail.take(previous(party.index), party.index, length);
            let two = part.own.iter().zip(&part.next);
            two.zip(third).map(|((a, b), c)| a.wrapping_add(*b).wrapping_add(*c)).collect()
        });
        sums.collect::<Vec<Vec<u64>>>().pop()
    }

    /// Masks each party's term and makes it a component of a new sharing: one round, in which each party sends one word for each
    /// term.
    fn reshare(&mut self, number: u64, terms: &mut Terms, out: &mut Shared, wire: &mut dyn Wire) {
        let length = terms.length;
        let Computation { parties, mail, .. } = self;
        mail.begin();
        (0..COMPUTING).for_each(|from| mail.expect(from, previous(from), length));
        for (party, terms) in parties.iter_mut().zip(&mut terms.parts) {
            party.mask(number, terms);
            mail.send(party.index, previous(party.index)).extend_from_slice(terms);
        }
        wire.exchange(mail, Purpose::Compute);
        out.resize(parties.len(), length);
        for ((party, terms), out) in parties.iter().zip(&terms.parts).zip(&mut out.parts) {
            out.own.copy_from_slice(terms);
            out.next.copy_from_slice(mail.take(following(party.index), party.index, length));
        }
    }
}

impl Shared {
    /// Resizes to `length` words at `parties` computing parties.
    fn resize(&mut self, parties: usize, length: usize) {
        self.length = length;
        self.parts.resize_with(parties, Components::default);
        for part in &mut self.parts {
            part.own.resize(length, 0);
            part.next.resize(length, 0);
        }
    }

    /// self[at ..] ← the words of `other` in `range`.
    pub fn copy_from(&mut self, at: usize, other: &Shared, range: std::ops::Range<usize>) {
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            part.own[at..at + range.len()].copy_from_slice(&other.own[range.clone()]);
            part.next[at..at + range.len()].copy_from_slice(&other.next[range.clone()]);
        }
    }

    /// The components of each computing party of this rank, for its own checkpoint.
    pub fn saved(&self) -> Vec<SavedComponents> {
        let saved = |part: &Components| SavedComponents { own: part.own.clone(), next: part.next.clone() };
        self.parts.iter().map(saved).collect()
    }

    /// The counterpart of [`Shared::saved`].
    ///
    /// # Errors
    /// If the components are those of other parties, or have another length.
    pub fn restore(&mut self, saved: Vec<SavedComponents>) -> Result<()> {
        let fits = saved.len() == self.parts.len()
            && self
                .parts
                .iter()
                .zip(&saved)
                .all(|(part, saved)| part.own.len() == saved.own.len() && part.next.len() == saved.next.len());
        if !fits {
            return Err(Error::input("the checkpoint holds other shares; start again without --resume"));
        }
        for (part, saved) in self.parts.iter_mut().zip(saved) {
            (part.own, part.next) = (saved.own, saved.next);
        }
        Ok(())
    }
}

/// The words that all computing parties together send in [`Computation::truncate`] for `length` numbers.
pub fn truncate_words(length: usize) -> usize {
    8 * length
}

/// The same for [`Computation::select`].
pub fn select_words(length: usize) -> usize {
    11 * length + comparison::circuit_words(length)
}

/// The same for [`Computation::rectify`].
pub fn rectify_words(length: usize) -> usize {
    select_words(length) + 4 * length
}
