//! Pairwise masking (Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017,
//! section 4.0.1): a sum over parties that reveals no single term.
//!
//! Parties i < j share a key by X25519. Both expand it to the same ChaCha20 key stream; i adds the stream to its term and
//! j subtracts it. The streams cancel in the sum over all parties, and the masked terms of any proper subset are uniformly
//! random. Terms are numbers modulo 2⁶⁴ ([`super::fixed_point`]), so the cancellation is exact.
//!
//! Limits: parties are honest but curious, since keys are exchanged without certificates. The sum itself is public: with
//! two parties nothing is hidden, and all parties but one together can compute the remaining term. A party that drops out
//! leaves its streams in the sum; the run then ends (`dropout` has the protocol that continues).

#[cfg(feature = "paillier")]
mod answers;

use std::ops::Range;

use chacha20::ChaCha20Rng;
use rand::{Rng, SeedableRng};
use x25519_dalek::{PublicKey, StaticSecret};

use fednmf_base::error::Result;

use super::key_agreement::{KEY, shared_key};
use super::released::{MaskedWords, PublicKeys};

#[cfg(feature = "paillier")]
pub use answers::SumMasks;

/// A party's secret key with its public key.
pub struct KeyPair {
    secret: StaticSecret,
    public: PublicKey,
}

impl KeyPair {
    /// A new key pair from 32 random bytes.
    pub fn new(random: &mut impl Rng) -> Self {
        let mut bytes = [0; KEY];
        random.fill_bytes(&mut bytes);
        let secret = StaticSecret::from(bytes);
        let public = PublicKey::from(&secret);
        KeyPair { secret, public }
    }

    fn public(&self) -> &[u8; KEY] {
        self.public.as_bytes()
    }
}

/// The masks of one party: its side of every pair.
pub struct Masks {
    /// The key stream shared with each other party, and whether this party subtracts it.
    streams: Vec<(ChaCha20Rng, bool)>,
}

/// Words of a key stream generated at a time.
const CHUNK: usize = 512;

/// values ← values ± stream modulo 2⁶⁴.
pub fn add_stream(values: &mut [u64], stream: &mut ChaCha20Rng, subtract: bool) {
    let mut bytes = [0u8; 8 * CHUNK];
    for part in values.chunks_mut(CHUNK) {
        let bytes = &mut bytes[..8 * part.len()];
        stream.fill_bytes(bytes);
        for (x, mask) in part.iter_mut().zip(bytes.as_chunks::<8>().0) {
            let mask = u64::from_le_bytes(*mask);
            *x = if subtract { x.wrapping_sub(mask) } else { x.wrapping_add(mask) };
        }
    }
}

impl Masks {
    /// The masks of `party`, whose key pair is `own`, for the public keys of all parties in order.
    ///
    /// # Errors
    /// If a public key is invalid.
    pub fn new(party: usize, own: &KeyPair, public: &[[u8; KEY]]) -> Result<Self> {
        let others = public.iter().enumerate().filter(|&(other, _)| other != party);
        let streams = others.map(|(other, key)| {
            let ends = if party < other { [own.public(), key] } else { [key, own.public()] };
            let key = shared_key(b"fednmf pairwise mask v1", &own.secret, key, ends)
                .map_err(|e| e.at(format!("party {other}")))?;
            Ok((ChaCha20Rng::from_seed(key), party > other))
        });
        Ok(Masks { streams: streams.collect::<Result<_>>()? })
    }

    /// Adds a term to the sum, with its masks. `number` identifies the sum: unique per sum, equal for all parties. The term
    /// is masked in place.
    pub fn add(&mut self, number: u64, term: &mut [u64], sum: &mut MaskedWords) {
        self.apply(number, term);
        sum.add(term);
    }

    fn apply(&mut self, number: u64, term: &mut [u64]) {
        for (stream, subtract) in &mut self.streams {
            stream.set_stream(number);
            stream.set_word_pos(0);
            add_stream(term, stream, *subtract);
        }
    }
}

/// The public keys of the hosted parties, for the others.
pub fn public_keys(own: &[KeyPair]) -> PublicKeys<u8> {
    PublicKeys::new(own.iter().flat_map(|pair| *pair.public()).collect())
}

/// The masks of all hosted parties, for the public keys of all parties in order.
///
/// # Errors
/// As [`Masks::new`].
pub fn masks(hosted: Range<usize>, own: &[KeyPair], public: &[[u8; KEY]]) -> Result<Vec<Masks>> {
    hosted.zip(own).map(|(party, pair)| Masks::new(party, pair, public)).collect()
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{mix, secret_rng};

    use super::*;

    pub fn pairs(parties: usize) -> (Vec<KeyPair>, Vec<[u8; KEY]>) {
        let own: Vec<KeyPair> =
            (0..parties).map(|p| KeyPair::new(&mut secret_rng(Some(5), p as u64).unwrap())).collect();
        let public = own.iter().map(|k| *k.public()).collect();
        (own, public)
    }

    #[test]
    fn masks_hide_every_term_and_cancel_exactly() {
        for parties in [2, 3, 7] {
            let (own, public) = pairs(parties);
            let mut masks = masks(0..parties, &own, &public).unwrap();
            let term = |p: usize, i: usize| (p * 1000 + i) as u64;
            for number in [0, 1, 77] {
                let mut total = vec![0u64; 1300];
                let mut unmasked = 0;
                for (p, masks) in masks.iter_mut().enumerate() {
                    let mut words: Vec<u64> = (0..1300).map(|i| term(p, i)).collect();
                    masks.apply(number, &mut words);
                    unmasked += words.iter().enumerate().filter(|&(i, w)| *w == term(p, i)).count();
                    // About half of the bits of a masked word are set.
                    let ones: u32 = words.iter().map(|w| w.count_ones()).sum();
                    let expected = 1300.0 * 32.0;
                    assert!((f64::from(ones) - expected).abs() < 6.0 * (1300.0f64 * 16.0).sqrt());
                    total.iter_mut().zip(&words).for_each(|(t, w)| *t = t.wrapping_add(*w));
                }
                assert_eq!(unmasked, 0);
                for (i, t) in total.iter().enumerate() {
                    assert_eq!(*t, (0..parties).map(|p| term(p, i)).sum::<u64>());
                }
            }
        }
    }

    /// An attack by colluding parties on the term of party 0: once by removing their own streams from its masked term,
    /// once by subtracting their terms from the sum. How many of `words` each way recovers.
    fn recovered_by(colluders: usize, parties: usize, words: usize) -> [usize; 2] {
        let (own, public) = pairs(parties);
        let mut masks = masks(0..parties, &own, &public).unwrap();
        let term = |p: usize, i: usize| mix((p * 100_000 + i) as u64);
        let (mut total, mut seen) = (vec![0u64; words], Vec::new());
        for (p, masks) in masks.iter_mut().enumerate() {
            let mut masked: Vec<u64> = (0..words).map(|i| term(p, i)).collect();
            masks.apply(4, &mut masked);
            total.iter_mut().zip(&masked).for_each(|(t, w)| *t = t.wrapping_add(*w));
            seen.push(masked);
        }
        // Party 0 adds all of its streams; the first stream of each other party is the one that it shares with party 0.
        let mut victim = seen.swap_remove(0);
        for masks in &mut masks[1..=colluders] {
            let mut one = Masks { streams: vec![masks.streams.swap_remove(0)] };
            let mut zeros = vec![0; words];
            one.apply(4, &mut zeros);
            victim.iter_mut().zip(&zeros).for_each(|(v, z)| *v = v.wrapping_add(*z));
        }
        for p in 1..=colluders {
            total.iter_mut().enumerate().for_each(|(i, t)| *t = t.wrapping_sub(term(p, i)));
        }
        [victim, total].map(|found| found.iter().enumerate().filter(|(i, w)| **w == term(0, *i)).count())
    }

    /// The documented limit: all parties but one recover the remaining term both ways; with one more honest party
    /// nothing of it is recovered.
    #[test]
    fn all_parties_but_one_recover_the_remaining_term_and_fewer_do_not() {
        for parties in [2, 3, 6] {
            assert_eq!(recovered_by(parties - 1, parties, 1000), [1000, 1000], "{parties} parties");
        }
        for parties in [3, 6] {
            assert_eq!(recovered_by(parties - 2, parties, 1000), [0, 0], "{parties} parties");
        }
    }

    #[test]
    fn every_sum_has_masks_of_its_own() {
        let (own, public) = pairs(2);
        let mut masks = Masks::new(0, &own[0], &public).unwrap();
        let mut mask = |number| {
            let mut words = [0u64; 4];
            masks.apply(number, &mut words);
            words
        };
        assert_ne!(mask(0), mask(1));
        assert_eq!(mask(3), mask(3));
    }

    #[test]
    fn an_invalid_public_key_is_refused() {
        let (own, mut public) = pairs(3);
        public[2] = [0; KEY];
        assert!(Masks::new(0, &own[0], &public).is_err_and(|e| e.message.contains("party 2")));
    }
}
