//! Pairwise masking (Bonawitz et al. 2017, without dropouts): sums of which no single share can be seen.
//!
//! Parties i < j agree on a secret by X25519. From it both draw the same ChaCha20 key stream; i adds it to its share,
//! j subtracts it. In the sum over all parties every stream cancels, and any proper subset of the masked shares looks
//! random. Shares are whole numbers modulo 2⁶⁴ ([`FixedPoint`]), so the cancellation is exact: the masked sum has the
//! bits of the plain fixed-point sum.
//!
//! The limits. Parties are honest but curious: keys are exchanged without certificates. The sum itself is public, so
//! whoever knows all other shares knows the last one: with two parties nothing is hidden, and of any number of parties
//! all but one can together compute the share of the one. A party that drops out leaves its streams in the sum, which
//! is why the run ends then.

use std::ops::Range;

use chacha20::ChaCha20Rng;
use libm::ldexp;
use rand::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

use crate::error::{Error, Result};

/// Bytes of a public key.
pub const KEY: usize = 32;

/// Whole numbers modulo 2⁶⁴ for the entries of a sum: multiples of a power of two up to a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FixedPoint {
    /// Units in 1: a power of two.
    units: f64,
    limit: f64,
}

impl FixedPoint {
    /// For shares of `parties` parties with entries of magnitude at most `limit`. The unit is at most
    /// 2⁻⁶⁰ · parties · limit (never below 2⁻¹⁰⁰⁰).
    pub fn new(limit: f64, parties: usize) -> Self {
        let limit = if limit.is_finite() { limit.clamp(f64::MIN_POSITIVE, 1e280) } else { 1e280 };
        // parties · limit < 2^exponent: the sum stays below 2⁶², the sign and a bit for rounding beside it.
        let exponent = (parties.max(1) as f64).log2().ceil() as i32 + limit.log2().ceil() as i32;
        FixedPoint { units: ldexp(1.0, (62 - exponent).min(1000)), limit }
    }

    /// The largest magnitude that can be encoded.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The nearest multiple of the unit; `None` for what is out of range or no number.
    pub fn encode(&self, x: f64) -> Option<u64> {
        (x.abs() <= self.limit).then(|| ((x * self.units).round_ties_even() as i64).cast_unsigned())
    }

    /// The number that a sum of encoded ones stands for.
    pub fn decode(&self, sum: u64) -> f64 {
        sum.cast_signed() as f64 / self.units
    }
}

/// A party's secret key and the public one that goes to the others.
pub struct KeyPair {
    secret: StaticSecret,
    public: PublicKey,
}

impl KeyPair {
    /// From 32 secret random bytes.
    pub fn new(random: &mut impl Rng) -> Self {
        let mut bytes = [0; KEY];
        random.fill_bytes(&mut bytes);
        let secret = StaticSecret::from(bytes);
        let public = PublicKey::from(&secret);
        KeyPair { secret, public }
    }

    /// What the others get.
    pub fn public(&self) -> &[u8; KEY] {
        self.public.as_bytes()
    }
}

/// One party's side of all its pairs.
pub struct Masks {
    /// The key stream with each other party, and whether this party subtracts it.
    streams: Vec<(ChaCha20Rng, bool)>,
}

/// Key stream that is drawn at a time.
const CHUNK: usize = 512;

impl Masks {
    /// The masks of `party`, whose key pair is `own`, among those with these public keys (in the order of parties).
    ///
    /// # Errors
    /// When a public key is none that an honest party could have.
    pub fn new(party: usize, own: &KeyPair, public: &[[u8; KEY]]) -> Result<Self> {
        let others = public.iter().enumerate().filter(|&(other, _)| other != party);
        let streams = others.map(|(other, key)| {
            let shared = own.secret.diffie_hellman(&PublicKey::from(*key));
            if !shared.was_contributory() {
                return Err(Error::failed(format!(
                    "party {other} sent a public key that makes no secret; stop trusting it"
                )));
            }
            let (first, second) = if party < other { (own.public(), key) } else { (key, own.public()) };
            let mut hash = Sha256::new();
            for part in [b"fednmf pairwise mask v1".as_slice(), shared.as_bytes(), first, second] {
                hash.update(part);
            }
            Ok((ChaCha20Rng::from_seed(hash.finalize().into()), party > other))
        });
        Ok(Masks { streams: streams.collect::<Result<_>>()? })
    }

    /// Masks a share. `number` must be another for each sum, and the same for all parties in one sum.
    pub fn apply(&mut self, number: u64, share: &mut [u64]) {
        let mut bytes = [0u8; 8 * CHUNK];
        for (stream, subtracts) in &mut self.streams {
            stream.set_stream(number);
            stream.set_word_pos(0);
            for part in share.chunks_mut(CHUNK) {
                let bytes = &mut bytes[..8 * part.len()];
                stream.fill_bytes(bytes);
                for (x, mask) in part.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    let mask = u64::from_le_bytes(*mask);
                    *x = if *subtracts { x.wrapping_sub(mask) } else { x.wrapping_add(mask) };
                }
            }
        }
    }
}

/// All masks of the hosted parties, from everybody's public keys.
///
/// # Errors
/// As [`Masks::new`].
pub fn all(hosted: Range<usize>, own: &[KeyPair], public: &[[u8; KEY]]) -> Result<Vec<Masks>> {
    hosted.zip(own).map(|(party, pair)| Masks::new(party, pair, public)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{mix, secret_rng};

    fn pairs(parties: usize) -> (Vec<KeyPair>, Vec<[u8; KEY]>) {
        let own: Vec<KeyPair> =
            (0..parties).map(|p| KeyPair::new(&mut secret_rng(Some(5), p as u64).unwrap())).collect();
        let public = own.iter().map(|k| *k.public()).collect();
        (own, public)
    }

    #[test]
    fn masks_cancel_to_the_bit_and_hide_all_before() {
        for parties in [2, 3, 7] {
            let (own, public) = pairs(parties);
            let mut masks = all(0..parties, &own, &public).unwrap();
            let share = |p: usize, i: usize| (p * 1000 + i) as u64;
            for number in [0, 1, 77] {
                let mut total = vec![0u64; 1300];
                let mut uncovered = 0;
                for (p, masks) in masks.iter_mut().enumerate() {
                    let mut words: Vec<u64> = (0..1300).map(|i| share(p, i)).collect();
                    masks.apply(number, &mut words);
                    uncovered += words.iter().enumerate().filter(|&(i, w)| *w == share(p, i)).count();
                    // Half of the bits of a masked word are set, give or take.
                    let ones: u32 = words.iter().map(|w| w.count_ones()).sum();
                    let expected = 1300.0 * 32.0;
                    assert!((f64::from(ones) - expected).abs() < 6.0 * (1300.0f64 * 16.0).sqrt());
                    total.iter_mut().zip(&words).for_each(|(t, w)| *t = t.wrapping_add(*w));
                }
                assert_eq!(uncovered, 0);
                for (i, t) in total.iter().enumerate() {
                    assert_eq!(*t, (0..parties).map(|p| share(p, i)).sum::<u64>());
                }
            }
        }
    }

    /// What colluders make of a victim's masked share: each takes its own stream with the victim off, then all they know
    /// of the sum. How many of `words` they find.
    fn uncovered_by(colluders: usize, parties: usize, words: usize) -> [usize; 2] {
        let (own, public) = pairs(parties);
        let mut masks = all(0..parties, &own, &public).unwrap();
        let share = |p: usize, i: usize| mix((p * 100_000 + i) as u64);
        let (mut total, mut seen) = (vec![0u64; words], Vec::new());
        for (p, masks) in masks.iter_mut().enumerate() {
            let mut masked: Vec<u64> = (0..words).map(|i| share(p, i)).collect();
            masks.apply(4, &mut masked);
            total.iter_mut().zip(&masked).for_each(|(t, w)| *t = t.wrapping_add(*w));
            seen.push(masked);
        }
        // The victim is party 0: it adds all of its streams, and the others subtract theirs with it, their first ones.
        let mut victim = seen.swap_remove(0);
        for masks in &mut masks[1..=colluders] {
            let one = Masks { streams: vec![masks.streams.swap_remove(0)] };
            let mut zeros = vec![0; words];
            { one }.apply(4, &mut zeros);
            victim.iter_mut().zip(&zeros).for_each(|(v, z)| *v = v.wrapping_add(*z));
        }
        for p in 1..=colluders {
            total.iter_mut().enumerate().for_each(|(i, t)| *t = t.wrapping_sub(share(p, i)));
        }
        [victim, total].map(|found| found.iter().enumerate().filter(|(i, w)| **w == share(0, *i)).count())
    }

    /// What is said of colluding parties, as an attack: all but one find the one's share, both ways; with one more honest
    /// party nothing of it is found, but the sum of the two.
    #[test]
    fn all_but_one_together_find_the_share_of_the_one_and_fewer_do_not() {
        for parties in [2, 3, 6] {
            assert_eq!(uncovered_by(parties - 1, parties, 1000), [1000, 1000], "{parties} parties");
        }
        for parties in [3, 6] {
            assert_eq!(uncovered_by(parties - 2, parties, 1000), [0, 0], "{parties} parties");
        }
    }

    #[test]
    fn no_two_sums_share_a_mask() {
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
    fn a_key_that_makes_no_secret_is_refused() {
        let (own, mut public) = pairs(3);
        public[2] = [0; KEY];
        assert!(Masks::new(0, &own[0], &public).is_err_and(|e| e.message.contains("party 2")));
    }

    #[test]
    fn fixed_point_rounds_to_its_unit_and_refuses_what_is_beyond() {
        for (limit, parties) in [(1.0, 1), (1e-9, 10), (3e17, 50), (1e-200, 3), (1e270, 1000)] {
            let fixed = FixedPoint::new(limit, parties);
            for x in [0.0, 1.0, -1.0, 0.3, -0.7123, 1e-5] {
                let back = fixed.decode(fixed.encode(x * limit).unwrap());
                assert!((back - x * limit).abs() <= limit * parties as f64 * 2f64.powi(-60), "{x} {limit}: {back}");
            }
            assert_eq!((fixed.encode(limit * 1.0001), fixed.encode(-2.0 * limit)), (None, None));
            assert_eq!((fixed.encode(f64::NAN), fixed.encode(f64::INFINITY)), (None, None));
            // The largest shares of all parties do not wrap around.
            let sum = (0..parties).fold(0u64, |s, _| s.wrapping_add(fixed.encode(-limit).unwrap()));
            assert!((fixed.decode(sum) / (-limit * parties as f64) - 1.0).abs() < 1e-12);
        }
    }
}
