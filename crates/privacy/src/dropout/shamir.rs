//! Shamir's secret sharing (How to Share a Secret, Commun. ACM 22, 1979): any `threshold` shares reconstruct the secret,
//! and fewer reveal nothing about it.
//!
//! A secret of 32 bytes is split into five parts of at most 56 bits. Each part is the constant term of a random polynomial
//! of degree threshold − 1 over the prime field of 2⁶¹ − 1 elements; party i gets its value at i + 1.

use rand::Rng;

use fednmf_base::error::{Error, Result};

const PRIME: u64 = (1 << 61) - 1;
/// Bytes of a part, which must be a field element.
const PART: usize = 7;
const PARTS: usize = SECRET.div_ceil(PART);

/// Bytes of a secret.
pub const SECRET: usize = 32;
/// Words of a share.
pub const SHARE: usize = PARTS;

fn multiply(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

fn add(a: u64, b: u64) -> u64 {
    (a + b) % PRIME
}

/// 1/a = a^(p − 2).
fn inverse(a: u64) -> u64 {
    let (mut result, mut square, mut exponent) = (1, a, PRIME - 2);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

/// A uniformly random field element.
fn element(random: &mut impl Rng) -> u64 {
    loop {
        let x = random.next_u64() >> 3;
        if x < PRIME {
            return x;
        }
    }
}

/// Splits a secret into one share for each of `parties`.
///
/// # Errors
/// If the threshold is 0 or above the number of parties.
pub fn split(
    secret: &[u8; SECRET],
    threshold: usize,
    parties: usize,
    random: &mut impl Rng,
) -> Result<Vec<[u64; SHARE]>> {
    if threshold == 0 || threshold > parties {
        return Err(Error::input(format!(
            "a threshold of {threshold} for {parties} parties: must be at least 1, and no more than the parties"
        )));
    }
    let mut shares = vec![[0; SHARE]; parties];
    for (part, bytes) in secret.chunks(PART).enumerate() {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        let constant = u64::from_le_bytes(padded);
        let higher: Vec<u64> = (1..threshold).map(|_| element(random)).collect();
        for (party, share) in shares.iter_mut().enumerate() {
            let x = party as u64 + 1;
            let value = higher.iter().rev().fold(0, |sum, c| multiply(add(sum, *c), x));
            share[part] = add(value, constant);
        }
    }
    Ok(shares)
}

/// The secret from shares of different parties, as (party, share); `None` if there is no share, two of one party, or the
/// shares are inconsistent. Fewer shares than the threshold give a wrong secret: the caller has to count them.
pub fn reconstruct(shares: &[(usize, [u64; SHARE])]) -> Option<[u8; SECRET]> {
    let places: Vec<u64> = shares.iter().map(|(party, _)| *party as u64 + 1).collect();
    let twice = (0..places.len()).any(|i| places[..i].contains(&places[i]));
    if shares.is_empty() || twice || shares.iter().any(|(_, s)| s.iter().any(|x| *x >= PRIME)) {
        return None;
    }
    // Lagrange weights at 0: Π x_j / (x_j − x_i).
    let weights: Vec<u64> = (0..places.len())
        .map(|i| {
            let others = (0..places.len()).filter(|j| *j != i);
            let (above, below) = others.fold((1, 1), |(above, below), j| {
                (multiply(above, places[j]), multiply(below, add(places[j], PRIME - places[i])))
            });
            multiply(above, inverse(below))
        })
        .collect();
    let mut secret = [0; SECRET];
    for (part, bytes) in secret.chunks_mut(PART).enumerate() {
        let terms = shares.iter().zip(&weights).map(|((_, share), weight)| multiply(share[part], *weight));
        let value = terms.fold(0, add).to_le_bytes();
        if value[bytes.len()..].iter().any(|x| *x != 0) {
            return None;
        }
        bytes.copy_from_slice(&value[..bytes.len()]);
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::secret_rng;

    use super::*;

    fn secret(random: &mut impl Rng) -> [u8; SECRET] {
        let mut secret = [0; SECRET];
        random.fill_bytes(&mut secret);
        secret
    }

    #[test]
    fn any_threshold_of_shares_reconstructs_the_secret_and_fewer_do_not() {
        let mut random = secret_rng(Some(1), 0).unwrap();
        for (threshold, parties) in [(1, 1), (1, 3), (2, 3), (5, 7), (20, 300)] {
            let secret = secret(&mut random);
            let shares: Vec<_> =
                split(&secret, threshold, parties, &mut random).unwrap().into_iter().enumerate().collect();
            for first in 0..parties.min(4) {
                let some: Vec<_> =
                    (0..threshold).map(|i| shares[(first + i * (parties / threshold)) % parties]).collect();
                assert_eq!(reconstruct(&some), Some(secret), "{threshold} of {parties}");
                if threshold > 1 {
                    assert_ne!(reconstruct(&some[1..]), Some(secret), "{} of {parties}", threshold - 1);
                }
            }
            assert_eq!(reconstruct(&shares), Some(secret));
        }
    }

    /// Fewer shares reveal nothing: they are consistent with every secret.
    #[test]
    fn one_share_below_the_threshold_has_the_same_distribution_for_all_secrets() {
        let mut random = secret_rng(None, 0).unwrap();
        let mut mean = |byte: u8| {
            let shares =
                (0..4000).map(|_| split(&[byte; SECRET], 2, 2, &mut random).unwrap()[0][0] as f64 / PRIME as f64);
            shares.sum::<f64>() / 4000.0
        };
        let sd = (1.0f64 / 12.0 / 4000.0).sqrt();
        for byte in [0, 255] {
            assert!((mean(byte) - 0.5).abs() < 5.0 * sd);
        }
    }

    #[test]
    fn wrong_shares_are_refused() {
        let mut random = secret_rng(Some(2), 0).unwrap();
        let shares = split(&[7; SECRET], 2, 3, &mut random).unwrap();
        assert_eq!(reconstruct(&[]), None);
        assert_eq!(reconstruct(&[(0, shares[0]), (0, shares[0])]), None);
        assert_eq!(reconstruct(&[(0, [PRIME; SHARE]), (1, shares[1])]), None);
        for threshold in [0, 4] {
            assert!(split(&[7; SECRET], threshold, 3, &mut random).is_err_and(|e| e.exit_code() == 2));
        }
    }

    #[test]
    fn elements_have_inverses() {
        for a in [1, 2, 12345, PRIME - 1] {
            assert_eq!(multiply(a, inverse(a)), 1);
            assert_eq!(add(a, PRIME - a), 0);
        }
    }
}
