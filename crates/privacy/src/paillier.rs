//! The Paillier cryptosystem (Public-Key Cryptosystems Based on Composite Degree Residuosity Classes, EUROCRYPT 1999) on
//! GMP: sums and integer multiples of encrypted integers, without the secret key. E(x) = (1 + n)^x rⁿ mod n².
//!
//! Nearly all of the time of an encryption goes into the randomness rⁿ mod n², which a table replaces: with
//! p ≡ q ≡ 3 (mod 4), gcd(p − 1, q − 1) = 2 and h = (−x²)ⁿ mod n² for a secret random x, h^a serves as rⁿ for a
//! random exponent a of half the length of the key. This is the scheme of Damgård, Jurik and Nielsen (A generalization of
//! Paillier's public-key system with applications to electronic voting, Int. J. Inf. Secur. 9, 2010, section 4.2), whose
//! security rests on the decisional composite residuosity assumption and on the indistinguishability of short and long
//! exponents of h. h is fixed, so h^a is a product of table entries. The owner of the key computes modulo p² and q².
//!
//! That argument needs an honest owner: with primes for which p − 1 has small factors only, the owner of a key could compute
//! a, and so find out how an answer was computed. A neighbour therefore refreshes its answers with rⁿ for a random r of full
//! length, which hides this for all primes, as long as n is coprime to φ(n).

use rand::Rng;
use rand::rngs::StdRng;
use rug::integer::{IsPrime, Order};
use rug::{Assign, Complete, Integer};

use fednmf_base::error::{Error, Result};

use super::released::{Ciphertexts, PublicKeys};

/// Bits of the exponent per multiplication by the table.
const WINDOW: u32 = 6;
/// Rounds of the Miller-Rabin primality test.
const ROUNDS: u32 = 30;
/// A public modulus must have no prime factor up to this.
const SMALL: u32 = 1 << 16;
/// Steps of Fermat's method that must not factor a public modulus.
const CLOSE: usize = 1 << 10;

/// Randomness and scratch integers of one thread, reused between calls.
pub struct Worker {
    rng: StdRng,
    exponent: Vec<u64>,
    pub a: Integer,
    pub b: Integer,
    pub c: Integer,
    /// The plaintext.
    pub x: Integer,
}

impl Worker {
    pub fn new(rng: StdRng) -> Self {
        Worker { rng, exponent: Vec::new(), a: Integer::new(), b: Integer::new(), c: Integer::new(), x: Integer::new() }
    }

    /// Draws a secret exponent of `bits` bits (a multiple of 64, or less than 64).
    fn draw(&mut self, bits: u32) {
        self.exponent.clear();
        for at in (0..bits).step_by(64) {
            let word = self.rng.next_u64();
            self.exponent.push(if bits - at < 64 { word & ((1 << (bits - at)) - 1) } else { word });
        }
    }
}

/// A fixed-base table for base^a mod `modulus`: entry (w, d) is base^(d·2^(window·w)).
struct Table {
    modulus: Integer,
    window: u32,
    powers: Vec<Integer>,
}

impl Table {
    fn new(base: &Integer, modulus: &Integer, bits: u32, window: u32) -> Self {
        let mut powers = Vec::new();
        let mut step = base.clone() % modulus;
        for _ in 0..bits.div_ceil(window) {
            let mut power = Integer::from(1);
            for _ in 0..1u32 << window {
                let next = Integer::from(&power * &step) % modulus;
                powers.push(std::mem::replace(&mut power, next));
            }
            step = power;
        }
        Table { modulus: modulus.clone(), window, powers }
    }

    /// out = base^exponent, with the same number of multiplications for every exponent.
    fn power(&self, exponent: &[u64], out: &mut Integer, scratch: &mut Integer) {
        out.assign(1);
        let each = 1usize << self.window;
        for (w, powers) in self.powers.chunks_exact(each).enumerate() {
            let bit = w * self.window as usize;
            let low = exponent.get(bit / 64).copied().unwrap_or(0) >> (bit % 64);
            let high = match bit % 64 {
                0 => 0,
                shift => exponent.get(bit / 64 + 1).copied().unwrap_or(0) << (64 - shift),
            };
            scratch.assign(&*out * &powers[(low | high) as usize & (each - 1)]);
            out.assign(&*scratch % &self.modulus);
        }
    }
}

/// The defect of a modulus of `bits` bits that anybody can detect without its factors; `None` if there is none. Whether
/// it has exactly two factors and is coprime to φ(n) cannot be detected.
fn modulus_defect(n: &Integer, bits: u32) -> Option<&'static str> {
    let close = || {
        // Fermat: n = a² − b² with a near √n.
        let mut a = n.sqrt_ref().complete();
        (0..CLOSE).any(|_| {
            a += 1;
            (a.square_ref().complete() - n).is_perfect_square()
        })
    };
    if n.significant_bits() != bits {
        Some("has another length")
    } else if n.is_even() {
        Some("is even")
    } else if n.gcd_ref(&Integer::primorial(SMALL).complete()).complete() != 1 {
        Some("has a small prime factor")
    } else if n.is_probably_prime(ROUNDS) != IsPrime::No {
        Some("is a prime")
    } else if n.is_perfect_power() {
        Some("is a power")
    } else if close() {
        Some("has two factors so close that they are easily found")
    } else {
        None
    }
}

/// A public key: n, and n².
pub struct PublicKey {
    pub n: Integer,
    pub nn: Integer,
    bits: u32,
}

impl PublicKey {
    /// Reads the key that [`PublicKey::words`] wrote.
    ///
    /// # Errors
    /// If the words are no key of `bits` bits.
    pub fn from_words(words: &[u64], bits: u32) -> Result<Self> {
        let n = Integer::from_digits(words, Order::Lsf);
        match modulus_defect(&n, bits) {
            None => Ok(PublicKey::new(n, bits)),
            Some(why) => {
                Err(Error::failed(format!("a neighbour sent an invalid public key of {bits} bits: its modulus {why}")))
            }
        }
    }

    fn new(n: Integer, bits: u32) -> Self {
        let nn = n.square_ref().complete();
        PublicKey { n, nn, bits }
    }

    /// Number of words of [`PublicKey::words`].
    pub fn length(bits: u32) -> usize {
        bits as usize / 64
    }

    /// n as words, for a message.
    pub fn words(&self) -> PublicKeys<u64> {
        let mut words = vec![0; PublicKey::length(self.bits)];
        self.n.write_digits(&mut words, Order::Lsf);
        PublicKeys::new(words)
    }

    /// Bits of a nonnegative integer that always fits into one plaintext.
    pub fn room(bits: u32) -> u32 {
        bits - 1
    }

    /// Words of a ciphertext.
    pub fn ciphertext_words(bits: u32) -> usize {
        2 * bits as usize / 64
    }

    /// The ciphertext of the sum of the plaintexts of some ciphertexts, each of which is as long as `out`.
    pub fn multiply<'a>(&self, ciphertexts: impl Iterator<Item = &'a [u64]>, out: &mut [u64]) {
        let product = ciphertexts
            .fold(Integer::from(1), |product, words| product * Integer::from_digits(words, Order::Lsf) % &self.nn);
        out.fill(0);
        product.write_digits(out, Order::Lsf);
    }

    /// Adds the plaintext `w.b` in [0, n) to the ciphertext `w.a` and rerandomises it: the result, in `w.a`, is distributed
    /// as a fresh encryption of its plaintext, independent of how `w.a` was computed.
    pub fn add_and_refresh(&self, w: &mut Worker) -> FreshCiphertext {
        w.draw(self.bits);
        let Worker { exponent, a, b, c, .. } = w;
        let r = Integer::from_digits(exponent, Order::Lsf) % &self.n;
        // 1 + b n
        *b *= &self.n;
        *b += 1;
        c.assign(&*a * &*b);
        a.assign(&*c % &self.nn);
        // rⁿ mod n²; n is positive and n² is not 0, so there is a power.
        if let Ok(power) = r.pow_mod(&self.n, &self.nn) {
            b.assign(power);
        }
        c.assign(&*a * &*b);
        a.assign(&*c % &self.nn);
        FreshCiphertext(())
    }
}

/// Proof that a worker's `a` is a fresh ciphertext, which may leave the party.
pub struct FreshCiphertext(());

impl Ciphertexts {
    /// Fills parts of `width` words, distributed over the workers' threads: `encrypt(worker, i)` writes part i to the
    /// worker's `a`.
    pub fn fill(
        &mut self,
        workers: &mut [Worker],
        width: usize,
        encrypt: impl Fn(&mut Worker, usize) -> FreshCiphertext + Sync,
    ) {
        let run = |worker: &mut Worker, first: usize, out: &mut [u64]| {
            for (i, part) in out.chunks_exact_mut(width).enumerate() {
                let FreshCiphertext(()) = encrypt(worker, first + i);
                worker.a.write_digits(part, Order::Lsf);
            }
        };
        let out = self.words_mut();
        let each = (out.len() / width).div_ceil(workers.len().max(1)).max(1);
        match workers {
            [worker] => run(worker, 0, out),
            _ => std::thread::scope(|scope| {
                for (t, (worker, out)) in workers.iter_mut().zip(out.chunks_mut(each * width)).enumerate() {
                    scope.spawn(move || run(worker, t * each, out));
                }
            }),
        }
    }
}

/// A key pair.
pub struct PrivateKey {
    p: Integer,
    q: Integer,
    /// q⁻¹ mod p and p⁻¹ mod q.
    q_inverse: Integer,
    p_inverse: Integer,
    pub public: PublicKey,
    modulo_pp: Table,
    modulo_qq: Table,
    /// q² and its inverse mod p².
    qq: Integer,
    qq_inverse: Integer,
}

/// A random integer of at most `bits` bits.
fn random_bits(rng: &mut StdRng, bits: u32) -> Integer {
    let words: Vec<u64> = (0..bits.div_ceil(64)).map(|_| rng.next_u64()).collect();
    Integer::from_digits(&words, Order::Lsf).keep_bits(bits)
}

/// A prime ≡ 3 (mod 4) of exactly `bits` bits whose two highest are set, so that a product of two has 2·bits.
fn prime(rng: &mut StdRng, bits: u32) -> Integer {
    loop {
        let mut p = random_bits(rng, bits);
        for bit in [0, 1, bits - 1, bits - 2] {
            p.set_bit(bit, true);
        }
        if p.is_probably_prime(ROUNDS) != IsPrime::No {
            return p;
        }
    }
}

/// Whether two primes make a key that neighbours accept, that decrypts (n and φ(n) are coprime), and whose h generates a
/// group without small factors.
fn is_valid_prime_pair(p: &Integer, q: &Integer, bits: u32) -> bool {
    let n = Integer::from(p * q);
    let (less_p, less_q) = (Integer::from(p - 1), Integer::from(q - 1));
    let phi = Integer::from(&less_p * &less_q);
    less_p.gcd(&less_q) == 2 && n.gcd_ref(&phi).complete() == 1 && modulus_defect(&n, bits).is_none()
}

impl PrivateKey {
    /// A new key pair with a modulus of `bits` bits.
    ///
    /// # Errors
    /// If the primes have no inverses modulo each other, which distinct primes do.
    pub fn generate(rng: &mut StdRng, bits: u32) -> Result<Self> {
        let p = prime(rng, bits / 2);
        let q = loop {
            let q = prime(rng, bits / 2);
            if is_valid_prime_pair(&p, &q, bits) {
                break q;
            }
        };
        let n = Integer::from(&p * &q);
        let nn = n.square_ref().complete();
        let x = loop {
            let x = random_bits(rng, bits + 64) % &n;
            if x.gcd_ref(&n).complete() == 1 {
                break x;
            }
        };
        let square = n.clone() - (x.square() % &n);
        let h = square.secure_pow_mod(&n, &nn);
        let (pp, qq) = (p.square_ref().complete(), q.square_ref().complete());
        let inverse = |x: &Integer, modulus: &Integer| {
            Integer::from(x % modulus)
                .invert(modulus)
                .map_err(|_| Error::failed("two primes that are not coprime; this is a bug, please report it"))
        };
        Ok(PrivateKey {
            modulo_pp: Table::new(&h, &pp, bits / 2, WINDOW),
            modulo_qq: Table::new(&h, &qq, bits / 2, WINDOW),
            public: PublicKey::new(n, bits),
            qq_inverse: inverse(&qq, &pp)?,
            q_inverse: inverse(&q, &p)?,
            p_inverse: inverse(&p, &q)?,
            qq,
            p,
            q,
        })
    }

    /// Encrypts the plaintext `w.x` modulo n, into `w.a`.
    pub fn encrypt(&self, w: &mut Worker) -> FreshCiphertext {
        w.draw(self.public.bits / 2);
        let Worker { exponent, a, b, c, x, .. } = w;
        self.modulo_pp.power(exponent, a, c);
        self.modulo_qq.power(exponent, b, c);
        // Chinese remainder theorem: c = b + q² ((a − b) q⁻² mod p²)
        *a -= &*b;
        c.assign(&*a * &self.qq_inverse);
        a.assign(c.modulo_ref(&self.modulo_pp.modulus));
        c.assign(&*a * &self.qq);
        *c += &*b;
        // c (1 + n)^x = c + (x c mod n) n (mod n²)
        a.assign(&*c * &*x);
        b.assign(a.modulo_ref(&self.public.n));
        a.assign(&*b * &self.public.n);
        *a += &*c;
        if *a >= self.public.nn {
            *a -= &self.public.nn;
        }
        FreshCiphertext(())
    }

    /// Decrypts a ciphertext to a plaintext in (−n/2, n/2).
    ///
    /// With L_p(u) = (u − 1)/p, the plaintext mod p is L_p(c^(p−1) mod p²) / L_p((1 + n)^(p−1) mod p²), whose denominator
    /// is −q mod p; likewise mod q (Paillier 1999, section 7).
    ///
    /// # Errors
    /// If `words` are no ciphertext of this key.
    pub fn decrypt(&self, words: &[u64]) -> Result<Integer> {
        let (n, nn) = (&self.public.n, &self.public.nn);
        let c = Integer::from_digits(words, Order::Lsf);
        if c >= *nn || c.gcd_ref(n).complete() != 1 {
            return Err(Error::failed("a message cannot be decrypted: it is no ciphertext of this party's key"));
        }
        let modulo = |p: &Integer, pp: &Integer, q_inverse: &Integer| {
            let u = Integer::from(&c % pp).secure_pow_mod(&Integer::from(p - 1), pp);
            let l: Integer = (u - 1u32) / p;
            (-l * q_inverse).modulo(p)
        };
        let of_p = modulo(&self.p, &self.modulo_pp.modulus, &self.q_inverse);
        let of_q = modulo(&self.q, &self.modulo_qq.modulus, &self.p_inverse);
        let x = &of_q + ((of_p - &of_q) * &self.q_inverse).modulo(&self.p) * &self.q;
        Ok(if Integer::from(&x << 1) >= *n { x - n } else { x })
    }
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::secret_rng;

    use super::*;

    fn key(bits: u32) -> (PrivateKey, Worker) {
        let mut rng = secret_rng(Some(7), u64::from(bits)).unwrap();
        (PrivateKey::generate(&mut rng, bits).unwrap(), Worker::new(rng))
    }

    #[test]
    fn numbers_are_decrypted_as_they_were_encrypted() {
        for bits in [128, 2048] {
            let (key, mut w) = key(bits);
            assert_eq!(key.public.n.significant_bits(), bits);
            let mut seen = Vec::new();
            for x in [0, 1, -1, 123_456_789, -987_654_321, i64::MAX, i64::MIN + 1] {
                let mut c = vec![0; PublicKey::ciphertext_words(bits)];
                w.x.assign(x);
                key.encrypt(&mut w);
                w.a.write_digits(&mut c, Order::Lsf);
                assert_eq!(key.decrypt(&c).unwrap(), x);
                seen.push(c);
            }
            let mut again = vec![0; PublicKey::ciphertext_words(bits)];
            w.x.assign(0);
            key.encrypt(&mut w);
            w.a.write_digits(&mut again, Order::Lsf);
            assert!(!seen.contains(&again), "equal plaintexts have equal ciphertexts");
        }
    }

    /// Decryption against its textbook form: L_n(c^λ mod n²) λ⁻¹ mod n, λ = lcm(p − 1, q − 1).
    #[test]
    fn decryption_agrees_with_its_definition() {
        let (key, mut w) = key(256);
        let (n, nn) = (&key.public.n, &key.public.nn);
        let lambda = Integer::from(&key.p - 1).lcm(&Integer::from(&key.q - 1));
        let inverse = lambda.clone().invert(n).unwrap();
        for _ in 0..20 {
            let c = random_bits(&mut w.rng, 600) % nn;
            let u = Integer::from(c.pow_mod_ref(&lambda, nn).unwrap());
            let textbook: Integer = (u - 1u32) / n * &inverse;
            let mut words = vec![0; PublicKey::ciphertext_words(256)];
            c.write_digits(&mut words, Order::Lsf);
            assert_eq!(key.decrypt(&words).unwrap().modulo(n), textbook.modulo(n));
        }
        let mut multiple = vec![0; PublicKey::ciphertext_words(256)];
        key.p.write_digits(&mut multiple[..2], Order::Lsf);
        assert!(key.decrypt(&multiple).is_err() && key.decrypt(&[u64::MAX; 8]).is_err());
    }

    #[test]
    fn the_table_agrees_with_plain_exponentiation() {
        let modulus = Integer::from(1_000_003u32).square();
        for window in [1, 4, 6, 7] {
            let table = Table::new(&Integer::from(123_457), &modulus, 128, window);
            for exponent in [[0, 0], [1, 0], [u64::MAX, u64::MAX], [0x0123_4567_89ab_cdef, 0xfedc_ba98]] {
                let (mut out, mut scratch) = (Integer::new(), Integer::new());
                table.power(&exponent, &mut out, &mut scratch);
                let e = Integer::from_digits(&exponent, Order::Lsf);
                assert_eq!(out, Integer::from(123_457).pow_mod(&e, &modulus).unwrap());
            }
        }
    }

    #[test]
    fn a_neighbour_adds_without_the_key() {
        let (key, mut w) = key(2048);
        let public = PublicKey::from_words(key.public.words().as_slice(), 2048).unwrap();
        let mut c = vec![0; PublicKey::ciphertext_words(2048)];
        w.x.assign(-40);
        key.encrypt(&mut w);
        w.b.assign(100);
        public.add_and_refresh(&mut w);
        w.a.write_digits(&mut c, Order::Lsf);
        assert_eq!(key.decrypt(&c).unwrap(), 60);
        c.fill(0);
        assert!(key.decrypt(&c).is_err());
        assert!(PublicKey::from_words(&vec![2; PublicKey::length(2048)], 2048).is_err());
    }

    /// A modulus is refused if it is prime, a power or of another length, or if it has a small factor or factors close to
    /// each other.
    #[test]
    fn unsound_keys_are_refused() {
        let mut rng = secret_rng(Some(3), 1).unwrap();
        let answer = |n: &Integer| {
            let mut words = vec![0; PublicKey::length(128)];
            n.write_digits(&mut words, Order::Lsf);
            PublicKey::from_words(&words, 128).map(|_| ()).map_err(|e| e.message)
        };
        let accepted = |n: &Integer| answer(n).is_ok();
        let refused = |n: &Integer, why: &str| {
            let message = answer(n).unwrap_err();
            assert!(message.contains(why), "{message}");
        };
        refused(&(prime(&mut rng, 62) * prime(&mut rng, 64)), "another length");
        refused(&((prime(&mut rng, 64) * prime(&mut rng, 63)) << 1u32), "is even");
        refused(&prime(&mut rng, 64).square(), "is a power");
        let near = prime(&mut rng, 64);
        refused(&(near.clone().next_prime() * &near), "close");
        refused(&Integer::from(0), "another length");
        let sized = |make: Box<dyn FnMut() -> Integer>| {
            std::iter::repeat_with(make).find(|n| n.significant_bits() == 128).unwrap()
        };
        let half = prime(&mut rng, 64);
        assert!(accepted(&(prime(&mut rng, 64) * &half)));
        assert!(!accepted(&half.square()));
        let mut other = secret_rng(Some(4), 1).unwrap();
        assert!(!accepted(&sized(Box::new(move || prime(&mut other, 128)))));
        let mut other = secret_rng(Some(5), 1).unwrap();
        assert!(!accepted(&sized(Box::new(move || prime(&mut other, 112) * 65_521u32))));
    }

    /// A key whose n has a factor in common with φ(n) does not decrypt; none is generated here.
    #[test]
    fn own_keys_are_coprime_to_their_totient() {
        // 23 = 2 · 11 + 1: n = 11 · 23 has the factor 11 in common with φ(n) = 10 · 22.
        assert!(!is_valid_prime_pair(&Integer::from(11), &Integer::from(23), 8));
        for bits in [128, 256, 512] {
            for seed in 0..5 {
                let key = PrivateKey::generate(&mut secret_rng(Some(seed), 0).unwrap(), bits).unwrap();
                let phi = Integer::from(&key.p - 1) * Integer::from(&key.q - 1);
                assert_eq!(key.public.n.gcd_ref(&phi).complete(), 1);
                assert!(PublicKey::from_words(key.public.words().as_slice(), bits).is_ok());
                assert!(is_valid_prime_pair(&key.p, &key.q, bits) && !is_valid_prime_pair(&key.p, &key.p, bits));
            }
        }
    }
}
