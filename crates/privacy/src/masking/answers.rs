//! Masks of encrypted answers, modulo the receiver's Paillier modulus.

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use rand::{Rng, SeedableRng};
use rug::integer::Order;
use rug::{Assign, Integer};

use fednmf_base::error::Result;

use super::KeyPair;
use crate::key_agreement::{KEY, shared_key};

/// Masks of the messages from all neighbours of a party, which needs only their sum: integers modulo its Paillier modulus
/// that cancel in this sum. Each mask by itself is uniformly random.
pub struct SumMasks {
    party: usize,
    /// The key stream shared with each other party, by party.
    streams: BTreeMap<usize, ChaCha20Rng>,
}

/// Bits drawn in addition to those of a modulus, so that a number reduced by it is uniform up to a difference of 2⁻¹²⁸.
const BEYOND: u32 = 128;

impl SumMasks {
    /// The masks of `party`, whose key pair is `own`, with each of `others`; `public` are the public keys of all parties.
    ///
    /// # Errors
    /// If a public key is invalid.
    pub fn new(party: usize, own: &KeyPair, others: impl Iterator<Item = usize>, public: &[[u8; KEY]]) -> Result<Self> {
        let stream = |other: usize| {
            let key = &public[other];
            let ends = if party < other { [own.public(), key] } else { [key, own.public()] };
            let key = shared_key(b"fednmf mask of answers v1", &own.secret, key, ends)
                .map_err(|e| e.at(format!("party {other}")))?;
            Ok((other, ChaCha20Rng::from_seed(key)))
        };
        Ok(SumMasks { party, streams: others.map(stream).collect::<Result<_>>()? })
    }

    /// Writes the masks of a message to a party with that `modulus`, which all of `peers` send to as well, into `out`.
    /// `number` identifies receiver and message: never used twice, equal for all peers.
    pub fn fill(&mut self, peers: impl Iterator<Item = usize>, number: u64, modulus: &Integer, out: &mut [Integer]) {
        out.iter_mut().for_each(|mask| mask.assign(0));
        let mut bytes = vec![0u8; (modulus.significant_bits() + BEYOND).div_ceil(8) as usize];
        for peer in peers {
            let Some(stream) = self.streams.get_mut(&peer) else { unreachable!("a peer without a key") };
            stream.set_stream(number);
            stream.set_word_pos(0);
            for mask in &mut *out {
                stream.fill_bytes(&mut bytes);
                let random = Integer::from_digits(&bytes, Order::Lsf);
                if self.party < peer {
                    *mask += random;
                } else {
                    *mask -= random;
                }
            }
        }
        // The nonnegative remainder.
        out.iter_mut().for_each(|mask| *mask = mask.clone().modulo(modulus));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masking::tests::pairs;

    /// Four neighbours of a party mask their messages to it.
    #[test]
    fn masks_of_answers_cancel_in_the_sum_over_all_neighbours_alone() {
        let (own, public) = pairs(5);
        let modulus = Integer::from(Integer::u_pow_u(3, 81));
        let mut masks: Vec<SumMasks> =
            (0..5).map(|p| SumMasks::new(p, &own[p], (0..5).filter(|other| *other != p), &public).unwrap()).collect();
        let neighbours = [0, 1, 3, 4];
        let mut seen = Vec::new();
        for number in [2, 7] {
            let mut total = vec![Integer::new(); 400];
            for party in neighbours {
                let mut out = vec![Integer::new(); 400];
                let peers = neighbours.into_iter().filter(|other| *other != party);
                masks[party].fill(peers, number, &modulus, &mut out);
                assert!(out.iter().all(|mask| *mask >= 0 && *mask < modulus));
                // Each mask is in the lower half of the range half the time: six standard deviations.
                let low = out.iter().filter(|mask| Integer::from(*mask << 1) < modulus).count();
                assert!((140..=260).contains(&low), "{low}");
                assert!(!seen.contains(&out[0]), "a mask is used twice");
                seen.push(out[0].clone());
                total.iter_mut().zip(&out).for_each(|(total, mask)| *total += mask);
            }
            assert!(total.iter().all(|total| total.is_divisible(&modulus)));
        }
    }
}
