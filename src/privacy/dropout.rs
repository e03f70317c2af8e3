//! Masked sums that survive parties which vanish (Bonawitz et al. 2017, against parties that are honest but curious).
//!
//! Beside the pairwise masks of `masking`, every share has a mask of the party's own. Both secrets, the key of the
//! pairwise masks and the seed of the own one, are shared out among all parties (`shamir`). After the shares are in, the
//! survivors hand the server what takes the masks off: for a party whose share came, shares of its own seed; for one that
//! vanished before, shares of its key, from which its half of the pairwise masks follows. Never both for one party: either
//! secret alone leaves its data covered.
//!
//! The stages of a round, each of which may lose parties:
//! 1. keys: every party says its two public keys (one for the masks, one to encrypt shares of secrets with);
//! 2. shares: every party that is left sends each other one its shares, encrypted;
//! 3. values: every party that is left sends its masked values;
//! 4. unmasking: every party that is left hands over shares of secrets, as the server asks for them.
//!
//! Below `threshold` survivors at any stage the round ends with an error, and nothing is learned. This is the protocol as
//! messages and states; `survivors` carries them between ranks.

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use rand::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

use super::shamir;
use crate::error::{Error, Result};
use crate::privacy::shamir::{SECRET, SHARE};

/// The public keys of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    masking: [u8; 32],
    sealing: [u8; 32],
}

/// Bytes of a party's public keys.
pub const KEYS: usize = 64;

impl Keys {
    /// As they travel.
    pub fn bytes(&self) -> [u8; KEYS] {
        let mut bytes = [0; KEYS];
        bytes[..32].copy_from_slice(&self.masking);
        bytes[32..].copy_from_slice(&self.sealing);
        bytes
    }

    /// From what [`Keys::bytes`] gave.
    pub fn of(bytes: &[u8; KEYS]) -> Keys {
        let half = |first: usize| std::array::from_fn(|i| bytes[first + i]);
        Keys { masking: half(0), sealing: half(32) }
    }
}

/// Bytes of a pair of shares, encrypted: of the key and of the own seed.
pub const SEALED: usize = 2 * 8 * SHARE;

/// Shares of one party's two secrets for another one, encrypted.
pub type Sealed = [u8; SEALED];

/// What the server asks the survivors for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Parties whose values came.
    pub present: Vec<usize>,
    /// Parties that had shared their secrets, and vanished before their values came.
    pub lost: Vec<usize>,
}

/// Shares of secrets, each with the party whose secret it is.
type Held = Vec<(usize, [u64; SHARE])>;

/// What a survivor answers.
#[derive(Debug, Clone)]
pub struct Answer {
    own_seeds: Held,
    keys: Held,
}

impl Answer {
    /// As it travels: a share for each of `parties`, zeros where none was asked for.
    pub fn words(&self, parties: usize) -> Vec<u64> {
        let mut words = vec![0; parties * SHARE];
        for (party, share) in self.own_seeds.iter().chain(&self.keys) {
            words[party * SHARE..(party + 1) * SHARE].copy_from_slice(share);
        }
        words
    }

    /// From what [`Answer::words`] gave for this request.
    pub fn of(request: &Request, words: &[u64]) -> Answer {
        let held =
            |parties: &[usize]| parties.iter().map(|&p| (p, std::array::from_fn(|i| words[p * SHARE + i]))).collect();
        Answer { own_seeds: held(&request.present), keys: held(&request.lost) }
    }
}

/// A stream of masks or of encryption, from the secret of two parties.
fn stream(purpose: &[u8], secret: &StaticSecret, other: &[u8; 32], ends: [&[u8; 32]; 2]) -> Result<ChaCha20Rng> {
    let shared = secret.diffie_hellman(&PublicKey::from(*other));
    if !shared.was_contributory() {
        return Err(Error::failed("a party sent a public key that makes no secret; stop trusting it"));
    }
    let mut hash = Sha256::new();
    for part in [purpose, shared.as_bytes(), ends[0], ends[1]] {
        hash.update(part);
    }
    Ok(ChaCha20Rng::from_seed(hash.finalize().into()))
}

/// The stream of pairwise masks between two parties, whose secret key one of them has.
fn pairwise(secret: &StaticSecret, other: &[u8; 32]) -> Result<ChaCha20Rng> {
    let own = PublicKey::from(secret);
    let (a, b) = (own.as_bytes(), other);
    stream(b"fednmf dropout mask v1", secret, other, if a < b { [a, b] } else { [b, a] })
}

fn add_stream(values: &mut [u64], mut stream: ChaCha20Rng, subtract: bool) {
    for x in values {
        let mask = stream.next_u64();
        *x = if subtract { x.wrapping_sub(mask) } else { x.wrapping_add(mask) };
    }
}

/// One party in one round.
pub struct Party {
    index: usize,
    threshold: usize,
    masking: StaticSecret,
    sealing: StaticSecret,
    own_seed: [u8; SECRET],
    random: ChaCha20Rng,
    /// The keys of all that said theirs.
    keys: BTreeMap<usize, Keys>,
    /// Shares of others' secrets, from those that sent theirs.
    held: BTreeMap<usize, [[u64; SHARE]; 2]>,
}

impl Party {
    /// A party with fresh secrets. At least `threshold` parties have to stay to the end.
    pub fn new(index: usize, threshold: usize, random: &mut impl Rng) -> Self {
        let mut draw = || {
            let mut bytes = [0; SECRET];
            random.fill_bytes(&mut bytes);
            bytes
        };
        Party {
            index,
            threshold,
            masking: StaticSecret::from(draw()),
            sealing: StaticSecret::from(draw()),
            own_seed: draw(),
            random: ChaCha20Rng::from_seed(draw()),
            keys: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Stage 1: what everybody gets.
    pub fn keys(&self) -> Keys {
        Keys {
            masking: *PublicKey::from(&self.masking).as_bytes(),
            sealing: *PublicKey::from(&self.sealing).as_bytes(),
        }
    }

    /// Stage 2: the keys of all that said theirs, for shares of this party's secrets to each of them (its own is kept).
    ///
    /// # Errors
    /// When too few are left, or a key is none.
    pub fn share(&mut self, keys: &BTreeMap<usize, Keys>) -> Result<BTreeMap<usize, Sealed>> {
        enough(keys.len(), self.threshold, "said their keys")?;
        self.keys = keys.clone();
        let most = keys.keys().max().map_or(0, |p| p + 1);
        let of_key = shamir::split(self.masking.as_bytes(), self.threshold, most, &mut self.random)?;
        let of_seed = shamir::split(&self.own_seed, self.threshold, most, &mut self.random)?;
        let mut out = BTreeMap::new();
        for (&other, theirs) in keys {
            let pair = [of_key[other], of_seed[other]];
            if other == self.index {
                self.held.insert(other, pair);
                continue;
            }
            let mut sealed = [0; SEALED];
            for (bytes, word) in sealed.as_chunks_mut::<8>().0.iter_mut().zip(pair.as_flattened()) {
                *bytes = word.to_le_bytes();
            }
            self.cipher(theirs, true, &mut sealed)?;
            out.insert(other, sealed);
        }
        Ok(out)
    }

    /// Encrypts or decrypts what goes to, or comes from, the party with these keys.
    fn cipher(&self, theirs: &Keys, to: bool, sealed: &mut Sealed) -> Result<()> {
        let own = self.keys().sealing;
        let ends = if to { [&own, &theirs.sealing] } else { [&theirs.sealing, &own] };
        let mut pad = [0; SEALED];
        stream(b"fednmf dropout share v1", &self.sealing, &theirs.sealing, ends)?.fill_bytes(&mut pad);
        sealed.iter_mut().zip(pad).for_each(|(x, p)| *x ^= p);
        Ok(())
    }

    /// Stage 3: the shares that others sent this party, for its masked `values`, in place. Pairs are masked with those
    /// whose shares came.
    ///
    /// # Errors
    /// When too few are left.
    pub fn mask(&mut self, sealed: &BTreeMap<usize, Sealed>, values: &mut [u64]) -> Result<()> {
        enough(sealed.len() + 1, self.threshold, "shared their secrets")?;
        for (&other, sealed) in sealed {
            let theirs = *self.keys.get(&other).ok_or_else(|| stranger(other))?;
            let mut plain = *sealed;
            self.cipher(&theirs, false, &mut plain)?;
            let mut pair = [[0; SHARE]; 2];
            for (word, bytes) in pair.as_flattened_mut().iter_mut().zip(plain.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.held.insert(other, pair);
            add_stream(values, pairwise(&self.masking, &theirs.masking)?, self.index > other);
        }
        add_stream(values, ChaCha20Rng::from_seed(self.own_seed), false);
        Ok(())
    }

    /// Stage 4: shares of secrets, as the server asks for them.
    ///
    /// # Errors
    /// When the server asks for both secrets of a party, for a stranger's, or with too few left: then nothing is said.
    pub fn answer(&self, request: &Request) -> Result<Answer> {
        enough(request.present.len(), self.threshold, "sent their values")?;
        if let Some(both) = request.present.iter().find(|p| request.lost.contains(p)) {
            return Err(Error::failed(format!("both secrets of party {both} are asked for: that would uncover it")));
        }
        let held = |of: &usize| self.held.get(of).ok_or_else(|| stranger(*of));
        Ok(Answer {
            own_seeds: request.present.iter().map(|p| Ok((*p, held(p)?[1]))).collect::<Result<_>>()?,
            keys: request.lost.iter().map(|p| Ok((*p, held(p)?[0]))).collect::<Result<_>>()?,
        })
    }
}

pub(super) fn enough(left: usize, threshold: usize, did: &str) -> Result<()> {
    if left >= threshold {
        return Ok(());
    }
    Err(Error::failed(format!("{left} parties {did}, and the sum needs {threshold}: too many have vanished")))
}

fn stranger(party: usize) -> Error {
    Error::failed(format!("party {party} takes part that has not said its keys"))
}

/// The server: it passes on keys and encrypted shares, adds up masked values and takes the masks off the sum.
pub struct Server {
    threshold: usize,
    keys: BTreeMap<usize, Keys>,
    /// Parties whose shares came.
    shared: Vec<usize>,
    present: Vec<usize>,
    sum: Vec<u64>,
}

impl Server {
    /// For a round in which these keys came, and shares from the parties `shared`.
    pub fn new(threshold: usize, keys: BTreeMap<usize, Keys>, shared: Vec<usize>, length: usize) -> Self {
        Server { threshold, keys, shared, present: Vec::new(), sum: vec![0; length] }
    }

    /// Adds the masked values of parties, or the sum of them.
    pub fn take(&mut self, parties: &[usize], masked: &[u64]) {
        self.present.extend(parties);
        self.sum.iter_mut().zip(masked).for_each(|(s, x)| *s = s.wrapping_add(*x));
    }

    /// What it needs to know from the survivors.
    ///
    /// # Errors
    /// When too few are left.
    pub fn request(&self) -> Result<Request> {
        enough(self.present.len(), self.threshold, "sent their values")?;
        let lost = self.shared.iter().copied().filter(|p| !self.present.contains(p)).collect();
        Ok(Request { present: self.present.clone(), lost })
    }

    /// The sum of the values of those that are present, from the survivors' answers (party, answer).
    ///
    /// # Errors
    /// When too few answered, or their answers fit no secret.
    pub fn unmask(mut self, answers: &[(usize, Answer)]) -> Result<Vec<u64>> {
        enough(answers.len(), self.threshold, "handed over their shares")?;
        let request = self.request()?;
        let wrong = |p: usize| Error::failed(format!("the shares of party {p}'s secret fit no secret"));
        let answers = &answers[..self.threshold];
        let joined = |of: usize, which: fn(&Answer) -> &Held| {
            let share = |(party, answer): &(usize, Answer)| {
                which(answer).iter().find(|(p, _)| *p == of).map(|(_, share)| (*party, *share))
            };
            let shares: Option<Vec<_>> = answers.iter().map(share).collect();
            shares.and_then(|shares| shamir::join(&shares)).ok_or_else(|| wrong(of))
        };
        for &party in &request.present {
            let seed = joined(party, |a| &a.own_seeds)?;
            add_stream(&mut self.sum, ChaCha20Rng::from_seed(seed), true);
        }
        for &gone in &request.lost {
            let secret = StaticSecret::from(joined(gone, |a| &a.keys)?);
            let known = self.keys.get(&gone).is_some_and(|k| k.masking == *PublicKey::from(&secret).as_bytes());
            if !known {
                return Err(wrong(gone));
            }
            for &party in &request.present {
                let theirs = self.keys.get(&party).ok_or_else(|| stranger(party))?;
                // What the present party had put on is taken off.
                add_stream(&mut self.sum, pairwise(&secret, &theirs.masking)?, party < gone);
            }
        }
        Ok(self.sum)
    }
}

#[cfg(test)]
#[path = "dropout_tests.rs"]
mod tests;
