//! One round of the protocol, as messages and states.
//!
//! In addition to the pairwise masks ([`crate::masking`]), every term has the party's own mask. Each party shares
//! both of its secrets (the key of its pairwise masks and the seed of its own mask) among all parties by Shamir's scheme.
//! When the masked terms have arrived, the survivors send the server shares of one secret of each party: of its seed if its
//! term arrived, of its key if it dropped out before that. They never send shares of both, so the term of every party
//! remains masked.
//!
//! The stages of a round; parties may drop out in each:
//! 1. keys: every party publishes two public keys, one for masks and one for encryption;
//! 2. shares: every remaining party sends each other party its shares, encrypted;
//! 3. terms: every remaining party sends its masked term;
//! 4. unmasking: every remaining party sends the shares of secrets that the server requests.
//!
//! With fewer than `threshold` parties at any stage the round ends with an error and reveals nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use chacha20::ChaCha20Rng;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Nonce, Tag};
use rand::{Rng, SeedableRng};
use x25519_dalek::{PublicKey, StaticSecret};

use fednmf_base::error::{Error, Result};

use super::shamir::{self, SECRET, SHARE};
use crate::key_agreement::{KEY, shared_key};
use crate::masking::add_stream;
use crate::released::{MaskedWords, PublicKeys, SealedShares, UnmaskShares};

/// The public keys of a party in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundKeys {
    masking: [u8; KEY],
    sealing: [u8; KEY],
}

/// Bytes of [`RoundKeys`].
pub const ROUND_KEYS: usize = 2 * KEY;

impl RoundKeys {
    pub fn to_bytes(self) -> [u8; ROUND_KEYS] {
        let mut bytes = [0; ROUND_KEYS];
        bytes[..KEY].copy_from_slice(&self.masking);
        bytes[KEY..].copy_from_slice(&self.sealing);
        bytes
    }

    pub fn from_bytes(bytes: &[u8; ROUND_KEYS]) -> RoundKeys {
        let half = |first: usize| std::array::from_fn(|i| bytes[first + i]);
        RoundKeys { masking: half(0), sealing: half(KEY) }
    }
}

/// One party's shares of the two secrets of another: of the key of the pairwise masks and of the seed of the own mask.
type SharePair = [[u64; SHARE]; 2];

/// Bytes of a [`SharePair`].
const PAIR: usize = size_of::<SharePair>();
/// Bytes of the authentication tag.
const TAG: usize = 16;
/// Bytes of [`Sealed`].
pub const SEALED: usize = PAIR + TAG;

/// A [`SharePair`] under authenticated encryption (ChaCha20-Poly1305, RFC 8439): ciphertext, then tag.
pub type Sealed = [u8; SEALED];

/// The cipher of one direction between two parties. Its key serves one message of one round, so the nonce is constant.
struct Seal(ChaCha20Poly1305);

impl Seal {
    fn new(secret: &StaticSecret, other: &[u8; KEY], ends: [&[u8; KEY]; 2]) -> Result<Self> {
        let key = shared_key(b"fednmf dropout share v2", secret, other, ends)?;
        Ok(Seal(ChaCha20Poly1305::new(&key.into())))
    }

    fn seal(&self, pair: &SharePair) -> Sealed {
        let mut sealed = [0; SEALED];
        let (text, tag) = sealed.split_at_mut(PAIR);
        for (bytes, word) in text.as_chunks_mut::<8>().0.iter_mut().zip(pair.as_flattened()) {
            *bytes = word.to_le_bytes();
        }
        let of_text = self.0.encrypt_inout_detached(&Nonce::default(), &[], text.into());
        tag.copy_from_slice(&of_text.expect("a text of 80 bytes is below the limit of the cipher"));
        sealed
    }

    /// Opens a sealed message; `None` if it was changed, or sealed with another key.
    fn open(&self, sealed: &Sealed) -> Option<SharePair> {
        let mut text: [u8; PAIR] = std::array::from_fn(|i| sealed[i]);
        let tag: [u8; TAG] = std::array::from_fn(|i| sealed[PAIR + i]);
        let opened = self.0.decrypt_inout_detached(&Nonce::default(), &[], text.as_mut_slice().into(), &Tag::from(tag));
        opened.ok()?;
        let mut pair = [[0; SHARE]; 2];
        for (word, bytes) in pair.as_flattened_mut().iter_mut().zip(text.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Some(pair)
    }
}

/// The server's request to the survivors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmaskRequest {
    /// Parties whose terms arrived.
    pub present: Vec<usize>,
    /// Parties that had shared their secrets and dropped out before their terms arrived.
    pub lost: Vec<usize>,
}

/// Shares of secrets, each with the party that the secret belongs to.
type OwnedShares = Vec<(usize, [u64; SHARE])>;

/// A survivor's answer to an [`UnmaskRequest`].
#[derive(Debug, Clone)]
pub struct UnmaskAnswer {
    pub(super) seeds: OwnedShares,
    pub(super) keys: OwnedShares,
}

impl UnmaskAnswer {
    /// A share for each of `parties`, zeros where none was requested.
    pub fn to_words(&self, parties: usize) -> Vec<u64> {
        let mut words = vec![0; parties * SHARE];
        for (party, share) in self.seeds.iter().chain(&self.keys) {
            words[party * SHARE..(party + 1) * SHARE].copy_from_slice(share);
        }
        words
    }

    /// The inverse of [`UnmaskAnswer::to_words`] for this request.
    pub fn from_words(request: &UnmaskRequest, words: &[u64]) -> UnmaskAnswer {
        let shares =
            |parties: &[usize]| parties.iter().map(|&p| (p, std::array::from_fn(|i| words[p * SHARE + i]))).collect();
        UnmaskAnswer { seeds: shares(&request.present), keys: shares(&request.lost) }
    }
}

/// The stream of pairwise masks that the owners of `secret` and of the public key `other` share.
fn pairwise_stream(secret: &StaticSecret, other: &[u8; KEY]) -> Result<ChaCha20Rng> {
    let own = PublicKey::from(secret);
    let (a, b) = (own.as_bytes(), other);
    let ends = if a < b { [a, b] } else { [b, a] };
    Ok(ChaCha20Rng::from_seed(shared_key(b"fednmf dropout mask v1", secret, other, ends)?))
}

/// A party's side of one round.
pub struct PartyRound {
    index: usize,
    threshold: usize,
    masking: StaticSecret,
    sealing: StaticSecret,
    seed: [u8; SECRET],
    random: ChaCha20Rng,
    /// The public keys of all parties that published theirs.
    keys: BTreeMap<usize, RoundKeys>,
    /// Shares of the secrets of the parties that sent them, this one included.
    held: BTreeMap<usize, SharePair>,
}

impl PartyRound {
    /// Party `index` with fresh secrets. At least `threshold` parties have to stay to the end.
    pub fn new(index: usize, threshold: usize, random: &mut impl Rng) -> Self {
        let mut draw = || {
            let mut bytes = [0; SECRET];
            random.fill_bytes(&mut bytes);
            bytes
        };
        PartyRound {
            index,
            threshold,
            masking: StaticSecret::from(draw()),
            sealing: StaticSecret::from(draw()),
            seed: draw(),
            random: ChaCha20Rng::from_seed(draw()),
            keys: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Stage 1: the public keys, for all parties.
    pub fn keys(&self) -> RoundKeys {
        RoundKeys {
            masking: *PublicKey::from(&self.masking).as_bytes(),
            sealing: *PublicKey::from(&self.sealing).as_bytes(),
        }
    }

    /// Stage 2: takes the keys of all parties that published theirs; returns the shares of this party's secrets for each
    /// of the others, encrypted.
    ///
    /// # Errors
    /// If fewer parties than the threshold are left, or a key is invalid.
    pub fn share(&mut self, keys: &BTreeMap<usize, RoundKeys>) -> Result<BTreeMap<usize, Sealed>> {
        enough(keys.len(), self.threshold, "published their keys")?;
        self.keys = keys.clone();
        let parties = keys.keys().max().map_or(0, |p| p + 1);
        let of_key = shamir::split(self.masking.as_bytes(), self.threshold, parties, &mut self.random)?;
        let of_seed = shamir::split(&self.seed, self.threshold, parties, &mut self.random)?;
        let own = self.keys().sealing;
        let mut out = BTreeMap::new();
        for (&other, theirs) in keys {
            let pair = [of_key[other], of_seed[other]];
            if other == self.index {
                self.held.insert(other, pair);
                continue;
            }
            let seal = Seal::new(&self.sealing, &theirs.sealing, [&own, &theirs.sealing]);
            out.insert(other, seal.map_err(|e| e.at(format!("party {other}")))?.seal(&pair));
        }
        Ok(out)
    }

    /// Stage 3: takes the shares that others sent this party and adds its term to the sum, masked (in place) for pairs with
    /// those parties.
    ///
    /// # Errors
    /// If fewer parties than the threshold are left, or a message does not come from its alleged sender.
    pub fn add(&mut self, sealed: &BTreeMap<usize, Sealed>, term: &mut [u64], sum: &mut MaskedWords) -> Result<()> {
        self.mask(sealed, term)?;
        sum.include(self.index);
        sum.add(term);
        Ok(())
    }

    pub(super) fn mask(&mut self, sealed: &BTreeMap<usize, Sealed>, term: &mut [u64]) -> Result<()> {
        enough(sealed.len() + 1, self.threshold, "shared their secrets")?;
        let own = self.keys().sealing;
        for (&other, sealed) in sealed {
            let theirs = *self.keys.get(&other).ok_or_else(|| unknown(other))?;
            let pair = Seal::new(&self.sealing, &theirs.sealing, [&theirs.sealing, &own])?.open(sealed);
            let pair = pair.ok_or_else(|| {
                Error::failed(format!(
                    "party {other}: its shares of secrets fail authentication; they were tampered with"
                ))
            })?;
            self.held.insert(other, pair);
            add_stream(term, &mut pairwise_stream(&self.masking, &theirs.masking)?, self.index > other);
        }
        add_stream(term, &mut ChaCha20Rng::from_seed(self.seed), false);
        Ok(())
    }

    /// Stage 4: the shares of secrets that the server requests.
    ///
    /// # Errors
    /// If the server requests both secrets of a party, a secret of an unknown party, or too few parties are left. The
    /// party then reveals nothing.
    pub fn answer(&self, request: &UnmaskRequest) -> Result<UnmaskAnswer> {
        enough(request.present.len(), self.threshold, "sent their terms")?;
        if let Some(both) = request.present.iter().find(|p| request.lost.contains(p)) {
            return Err(Error::failed(format!(
                "both secrets of party {both} are requested: that would reveal its term"
            )));
        }
        let held = |party: &usize| self.held.get(party).ok_or_else(|| unknown(*party));
        Ok(UnmaskAnswer {
            seeds: request.present.iter().map(|p| Ok((*p, held(p)?[1]))).collect::<Result<_>>()?,
            keys: request.lost.iter().map(|p| Ok((*p, held(p)?[0]))).collect::<Result<_>>()?,
        })
    }
}

/// Stage 1, for the other parties: for each of the `hosted` parties a flag and its keys, if it takes part.
pub fn publish(hosted: &Range<usize>, rounds: &BTreeMap<usize, PartyRound>) -> PublicKeys<u8> {
    let mut keys = vec![0u8; (1 + ROUND_KEYS) * hosted.len()];
    for (slot, party) in keys.chunks_exact_mut(1 + ROUND_KEYS).zip(hosted.clone()) {
        if let Some(round) = rounds.get(&party) {
            slot[0] = 1;
            slot[1..].copy_from_slice(&round.keys().to_bytes());
        }
    }
    PublicKeys::new(keys)
}

/// Stage 2, for the other parties: for each rank, which hosts the parties `to`, and each of the `hosted` parties a flag and
/// its shares, those for parties of its own rank included.
pub fn address(
    hosted: &Range<usize>,
    sealed: &BTreeMap<usize, BTreeMap<usize, Sealed>>,
    to: impl Iterator<Item = Range<usize>>,
) -> SealedShares {
    let by_rank = to.map(|to| {
        let mut bytes = Vec::with_capacity(hosted.len() * (1 + SEALED * to.len()));
        for from in hosted.clone() {
            let shares = sealed.get(&from);
            bytes.push(u8::from(shares.is_some()));
            for party in to.clone() {
                bytes.extend(shares.and_then(|s| s.get(&party)).unwrap_or(&[0; SEALED]));
            }
        }
        bytes
    });
    SealedShares::new(by_rank.collect())
}

/// Stage 4, for the server: for each of the `hosted` parties a flag and a share for every one of `all` parties.
///
/// # Errors
/// As [`PartyRound::answer`].
pub fn answer(
    hosted: &Range<usize>,
    staying: impl Iterator<Item = usize>,
    rounds: &BTreeMap<usize, PartyRound>,
    request: &UnmaskRequest,
    all: usize,
) -> Result<UnmaskShares> {
    let slot = 1 + SHARE * all;
    let mut words = vec![0u64; slot * hosted.len()];
    for party in staying {
        if let Some(round) = rounds.get(&party) {
            let mine = &mut words[(party - hosted.start) * slot..][..slot];
            mine[0] = 1;
            mine[1..].copy_from_slice(&round.answer(request)?.to_words(all));
        }
    }
    Ok(UnmaskShares::new(words))
}

/// # Errors
/// If fewer than `threshold` parties completed a stage.
pub fn enough(left: usize, threshold: usize, did: &str) -> Result<()> {
    if left >= threshold {
        return Ok(());
    }
    Err(Error::failed(format!("{left} parties {did}, and the sum needs {threshold}: too many have dropped out")))
}

fn unknown(party: usize) -> Error {
    Error::failed(format!("party {party} takes part but has published no keys"))
}

/// The server's side of one round: it adds up masked terms and removes the masks from the sum.
pub struct ServerRound {
    threshold: usize,
    keys: BTreeMap<usize, RoundKeys>,
    /// Parties that shared their secrets.
    shared: Vec<usize>,
    present: Vec<usize>,
    sum: Vec<u64>,
}

impl ServerRound {
    /// For a round with these public keys, in which the parties `shared` shared their secrets; terms of `length` words.
    pub fn new(threshold: usize, keys: BTreeMap<usize, RoundKeys>, shared: Vec<usize>, length: usize) -> Self {
        ServerRound { threshold, keys, shared, present: Vec::new(), sum: vec![0; length] }
    }

    /// Adds the sum of the masked terms of `parties`.
    pub fn add(&mut self, parties: &[usize], masked: &[u64]) {
        self.present.extend(parties);
        self.sum.iter_mut().zip(masked).for_each(|(s, x)| *s = s.wrapping_add(*x));
    }

    /// The request to the survivors.
    ///
    /// # Errors
    /// If fewer parties than the threshold are left.
    pub fn request(&self) -> Result<UnmaskRequest> {
        enough(self.present.len(), self.threshold, "sent their terms")?;
        let lost = self.shared.iter().copied().filter(|p| !self.present.contains(p)).collect();
        Ok(UnmaskRequest { present: self.present.clone(), lost })
    }

    /// The sum of the terms of the parties that are present, from the survivors' answers as (party, answer).
    ///
    /// # Errors
    /// If fewer parties than the threshold answered, or their shares do not reconstruct a secret.
    pub fn unmask(mut self, answers: &[(usize, UnmaskAnswer)]) -> Result<Vec<u64>> {
        enough(answers.len(), self.threshold, "returned their shares")?;
        let request = self.request()?;
        let wrong = |p: usize| Error::failed(format!("the shares of party {p}'s secret do not reconstruct it"));
        let answers = &answers[..self.threshold];
        let reconstructed = |of: usize, which: fn(&UnmaskAnswer) -> &OwnedShares| {
            let share = |(party, answer): &(usize, UnmaskAnswer)| {
                which(answer).iter().find(|(p, _)| *p == of).map(|(_, share)| (*party, *share))
            };
            let shares: Option<Vec<_>> = answers.iter().map(share).collect();
            shares.and_then(|shares| shamir::reconstruct(&shares)).ok_or_else(|| wrong(of))
        };
        for &party in &request.present {
            let seed = reconstructed(party, |a| &a.seeds)?;
            add_stream(&mut self.sum, &mut ChaCha20Rng::from_seed(seed), true);
        }
        for &gone in &request.lost {
            let secret = StaticSecret::from(reconstructed(gone, |a| &a.keys)?);
            if self.keys.get(&gone).is_none_or(|k| k.masking != *PublicKey::from(&secret).as_bytes()) {
                return Err(wrong(gone));
            }
            for &party in &request.present {
                let theirs = self.keys.get(&party).ok_or_else(|| unknown(party))?;
                // With the sign opposite to that of the party that is present.
                add_stream(&mut self.sum, &mut pairwise_stream(&secret, &theirs.masking)?, party < gone);
            }
        }
        Ok(self.sum)
    }
}
