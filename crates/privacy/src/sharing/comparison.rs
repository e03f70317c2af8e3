//! The sign of secret numbers, and selection by it.
//!
//! After a masked opening ([`super::truncation`]) parties 0 and 1 know c and party 2 knows r, and z = c − r is negative exactly
//! if c₆₃ xor r₆₃ xor b is 1, where b is the borrow of the lower 63 bits. As Boolean shares (components whose exclusive or is
//! the word) neither needs a message: c is component 1, and r consists of components 0 and 2. The borrow is the carry of a
//! parallel prefix circuit with g = ¬c ∧ r and p = ¬(c xor r) for each bit, and (g, p) of two neighbouring runs of bits
//! (g_h xor p_h g_l, p_h p_l): seven rounds, in which a number costs each party 24 bytes. The bits are permuted at first,
//! so that neighbouring runs are the two halves of a word, and words that have become short are packed.
//!
//! A product with the resulting bit takes two rounds: the bit is β xor b₂, where party 0 knows β and parties 1 and 2 know b₂,
//! and t (β xor b₂) = t b₂ + β t (1 − 2 b₂).

use super::truncation::OFFSET;
use super::{COMPUTING, Computation, Purpose, Shared, Terms, Wire, fill, following, previous};

/// The widths of the runs that are combined.
const WIDTHS: [u32; 6] = [32, 16, 8, 4, 2, 1];

/// Boolean components of some words.
#[derive(Default)]
struct Bits {
    own: Vec<u64>,
    next: Vec<u64>,
}

/// A party's components of the circuit's words.
#[derive(Default)]
pub(super) struct Circuit {
    generate: Bits,
    propagate: Bits,
    left: Bits,
    right: Bits,
    /// Of ¬c and r.
    words: Bits,
    /// Of the resulting bits, 64 in a word.
    result: Bits,
    /// Of β, and of t (1 − 2 b₂).
    bit: Bits,
    signed: Bits,
}

impl Bits {
    fn resize(&mut self, length: usize) {
        self.own.clear();
        self.own.resize(length, 0);
        self.next.clear();
        self.next.resize(length, 0);
    }

    fn each(&mut self) -> [&mut Vec<u64>; 2] {
        [&mut self.own, &mut self.next]
    }
}

/// The bits that a level of this width sends for each number.
fn level_bits(width: u32) -> u32 {
    if width > 1 { 2 * width } else { 1 }
}

/// The words that a level of this width sends for `length` numbers.
fn packed(length: usize, width: u32) -> usize {
    length.div_ceil((64 / level_bits(width)) as usize)
}

/// Exchanges the index bits i and j (i < j) of the positions in a word; `mask` has the positions with i set and j clear.
#[inline(always)]
fn swap_index_bits(x: u64, mask: u64, shift: u32) -> u64 {
    let moved = ((x >> shift) ^ x) & mask;
    x ^ moved ^ (moved << shift)
}

/// Moves each bit to the position with the reversed six-bit index.
#[inline(always)]
fn reverse_index(x: u64) -> u64 {
    // Positions with index bit 0 set and bit 5 clear, 1 and 4, 2 and 3; the shifts are 2^j − 2^i.
    let x = swap_index_bits(x, 0x0000_0000_aaaa_aaaa, 31);
    let x = swap_index_bits(x, 0x0000_cccc_0000_cccc, 14);
    swap_index_bits(x, 0x00f0_00f0_00f0_00f0, 4)
}

fn low(width: u32) -> u64 {
    if width == 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Packs values of `bits` bits each into `out`, which must be zero.
fn pack(out: &mut [u64], bits: u32, values: impl Iterator<Item = u64>) {
    let each = 64 / bits as usize;
    for (place, value) in values.enumerate() {
        out[place / each] |= value << ((place % each) as u32 * bits);
    }
}

/// A party's term of the conjunction of two Boolean words.
fn and(a: (u64, u64), b: (u64, u64)) -> u64 {
    (a.0 & (b.0 ^ b.1)) ^ (a.1 & b.0)
}

impl Circuit {
    /// Sets the components of ¬c and r, and of the propagate bits.
    fn begin(&mut self, index: usize, opened: &super::truncation::Opened) {
        let length = opened.value.len();
        let Circuit { generate, propagate, words, .. } = self;
        [&mut *generate, propagate, words].into_iter().for_each(|bits| bits.resize(length));
        // The component that holds c is complemented. The lower 63 bits are shifted by one position, whose borrow is 0, so
        // that there are 64.
        let [own, next] = words.each();
        let known = opened.value.iter().map(|c| !c.wrapping_sub(OFFSET));
        match index {
            0 => {
                own.copy_from_slice(&opened.of_first);
                next.iter_mut().zip(known).for_each(|(word, c)| *word = c);
            }
            1 => {
                own.iter_mut().zip(known).for_each(|(word, c)| *word = c);
                next.copy_from_slice(&opened.of_last);
            }
            _ => {
                own.copy_from_slice(&opened.of_last);
                next.copy_from_slice(&opened.of_first);
            }
        }
        let of_c = |component: usize| u64::from(component == 1);
        for (place, (own, next)) in words.own.iter().zip(&words.next).enumerate() {
            propagate.own[place] = reverse_index((own << 1) | of_c(index));
            propagate.next[place] = reverse_index((next << 1) | of_c(following(index)));
        }
    }

    /// The party's terms of the conjunctions of a level, packed.
    fn level(&mut self, width: u32, terms: &mut Vec<u64>) {
        let Circuit { generate, propagate, left, right, .. } = self;
        let (bits, length) = (level_bits(width), packed(generate.own.len(), width));
        left.resize(length);
        right.resize(length);
        let components = generate.each().into_iter().zip(propagate.each());
        for ((g, p), (left, right)) in components.zip(left.each().into_iter().zip(right.each())) {
            if width > 1 {
                pack(left, bits, p.iter().map(|p| (p >> width) | ((p >> width) << width)));
                pack(right, bits, g.iter().zip(&*p).map(|(g, p)| (g & low(width)) | ((p & low(width)) << width)));
            } else {
                pack(left, 1, p.iter().map(|p| p >> 1));
                pack(right, 1, g.iter().map(|g| g & 1));
            }
        }
        terms.clear();
        let pairs = left.own.iter().zip(&left.next).zip(right.own.iter().zip(&right.next));
        terms.extend(pairs.map(|((a, b), (c, d))| and((*a, *b), (*c, *d))));
    }

    /// Combines neighbouring runs, from the result of a level.
    fn combine(&mut self, width: u32) {
        let Circuit { generate, propagate, left, .. } = self;
        let (bits, each) = (level_bits(width), (64 / level_bits(width)) as usize);
        for ((g, p), found) in generate.each().into_iter().zip(propagate.each()).zip(left.each()) {
            for (place, (g, p)) in g.iter_mut().zip(p.iter_mut()).enumerate() {
                let found = (found[place / each] >> ((place % each) as u32 * bits)) & low(bits);
                *g = (*g >> width) ^ (found & low(width));
                *p = found >> width;
            }
        }
    }

    /// Sets the components of the resulting bits, which are 1 for numbers that are not negative.
    fn end(&mut self) {
        let Circuit { generate, words, result, .. } = self;
        result.resize(words.own.len().div_ceil(64));
        for ((result, borrow), word) in result.each().into_iter().zip(generate.each()).zip(words.each()) {
            pack(result, 1, borrow.iter().zip(&*word).map(|(borrow, word)| (borrow & 1) ^ (word >> 63)));
        }
    }
}

fn bit(words: &[u64], place: usize) -> u64 {
    (words[place / 64] >> (place % 64)) & 1
}

/// 1 − 2 b.
fn sign(words: &[u64], place: usize) -> u64 {
    1u64.wrapping_sub(2 * bit(words, place))
}

impl Computation {
    /// For each number of a masked opening, whether it is not negative, in seven rounds. A truncation of the same opening has its
    /// second round in the first of these.
    fn signs(&mut self, first: u64, length: usize, truncated: Option<(u32, &mut Shared)>, wire: &mut dyn Wire) {
        for party in &mut self.parties {
            party.circuit.begin(party.index, &party.opened);
            let Bits { own, next } = &party.circuit.propagate;
            party.terms.clear();
            match party.index {
                2 => party.terms.resize(length, 0),
                _ => party.terms.extend(own.iter().zip(next).map(|(own, next)| own & next)),
            }
        }
        self.send_bits(length);
        match truncated {
            Some((bits, out)) => {
                self.send_truncated(first, length);
                wire.exchange(&mut self.mail, Purpose::Compute);
                self.receive_bits(length, |circuit| &mut circuit.generate);
                out.resize(self.parties.len(), length);
                self.receive_truncated(first, bits, out);
            }
            None => {
                wire.exchange(&mut self.mail, Purpose::Compute);
                self.receive_bits(length, |circuit| &mut circuit.generate);
            }
        }
        for width in WIDTHS {
            for party in &mut self.parties {
                party.circuit.level(width, &mut party.terms);
            }
            let words = packed(length, width);
            self.send_bits(words);
            wire.exchange(&mut self.mail, Purpose::Compute);
            self.receive_bits(words, |circuit| &mut circuit.left);
            self.parties.iter_mut().for_each(|party| party.circuit.combine(width));
        }
        self.parties.iter_mut().for_each(|party| party.circuit.end());
    }

    /// Masks the Boolean terms of each party, and starts a round with them.
    fn send_bits(&mut self, length: usize) {
        let number = self.numbers(1);
        let Computation { parties, mail, .. } = self;
        mail.begin();
        (0..COMPUTING).for_each(|from| mail.expect(from, previous(from), length));
        for party in parties {
            // Streams that cancel in the exclusive or over the parties.
            let masks = &mut party.circuit.signed;
            masks.resize(length);
            fill(&mut party.own, number, &mut masks.own);
            fill(&mut party.next, number, &mut masks.next);
            for (term, (a, b)) in party.terms.iter_mut().zip(masks.own.iter().zip(&masks.next)) {
                *term ^= a ^ b;
            }
            mail.send(party.index, previous(party.index)).extend_from_slice(&party.terms);
        }
    }

    fn receive_bits(&mut self, length: usize, place: impl Fn(&mut Circuit) -> &mut Bits) {
        let Computation { parties, mail, .. } = self;
        for party in parties {
            let out = place(&mut party.circuit);
            out.own.clear();
            out.own.extend_from_slice(&party.terms);
            out.next.clear();
            out.next.extend_from_slice(mail.take(following(party.index), party.index, length));
        }
    }

    /// out ← `value` where the bit of the last [`Computation::signs`] is 1, and 0 elsewhere. Two rounds.
    fn keep(&mut self, value: &Shared, scratch: &mut Terms, out: &mut Shared, wire: &mut dyn Wire) {
        let (length, number) = (value.length, self.numbers(3));
        let Computation { parties, mail, .. } = self;
        mail.begin();
        (0..COMPUTING).for_each(|from| mail.expect(from, previous(from), length));
        mail.expect(0, 1, length);
        for (party, value) in parties.iter_mut().zip(&value.parts) {
            let mut terms = std::mem::take(&mut party.terms);
            let Circuit { result, bit: shared_bit, .. } = &mut party.circuit;
            shared_bit.resize(length);
            terms.clear();
            match party.index {
                0 => {
                    terms.resize(length, 0);
                    let known = |place| bit(&result.own, place) ^ bit(&result.next, place);
                    fill(&mut party.own, number, &mut shared_bit.own);
                    for (place, (own, next)) in shared_bit.own.iter().zip(&mut shared_bit.next).enumerate() {
                        *next = known(place).wrapping_sub(*own);
                    }
                    mail.send(0, 1).extend_from_slice(&shared_bit.next);
                }
                1 => {
                    let signed = value.own.iter().enumerate().map(|(i, x)| x.wrapping_mul(sign(&result.next, i)));
                    terms.extend(signed);
                }
                _ => {
                    fill(&mut party.next, number, &mut shared_bit.next);
                    let sum = value.own.iter().zip(&value.next).map(|(own, next)| own.wrapping_add(*next));
                    terms.extend(sum.enumerate().map(|(i, x)| x.wrapping_mul(sign(&result.own, i))));
                }
            }
            party.mask(number + 1, &mut terms);
            mail.send(party.index, previous(party.index)).extend_from_slice(&terms);
            party.terms = terms;
        }
        wire.exchange(mail, Purpose::Compute);
        scratch.length = length;
        scratch.parts.resize_with(parties.len(), Vec::new);
        for ((party, value), terms) in parties.iter_mut().zip(&value.parts).zip(&mut scratch.parts) {
            let Circuit { result, bit: shared_bit, signed, .. } = &mut party.circuit;
            signed.resize(length);
            signed.own.copy_from_slice(&party.terms);
            if party.index == 1 {
                // Party 0 sends its component of β in addition to the terms.
                shared_bit.own.copy_from_slice(mail.take(0, 1, length));
            }
            signed.next.copy_from_slice(mail.take(following(party.index), party.index, length));
            terms.clear();
            terms.extend((0..length).map(|i| {
                let (b, s) = ((shared_bit.own[i], shared_bit.next[i]), (signed.own[i], signed.next[i]));
                let product = b.0.wrapping_mul(s.0.wrapping_add(s.1)).wrapping_add(b.1.wrapping_mul(s.0));
                let kept = match party.index {
                    0 => 0,
                    1 => value.own[i].wrapping_mul(bit(&result.next, i)),
                    _ => value.own[i].wrapping_add(value.next[i]).wrapping_mul(bit(&result.own, i)),
                };
                product.wrapping_add(kept)
            }));
        }
        self.reshare(number + 2, scratch, out, wire);
    }

    /// out ← max(0, z) / 2^`bits`, rounded as by [`Computation::truncate`], for terms with |z| < 2⁶². Ten rounds; `scratch` is
    /// overwritten.
    pub fn rectify(
        &mut self,
        terms: &mut Terms,
        bits: u32,
        (scratch, out): (&mut Shared, &mut Shared),
        wire: &mut dyn Wire,
    ) {
        let first = self.open_masked(terms, Some(bits), wire);
        self.signs(first, terms.length, Some((bits, &mut *scratch)), wire);
        self.keep(scratch, terms, out, wire);
    }

    /// out ← `value` where z ≥ 0, and 0 elsewhere, for terms with |z| < 2⁶². Ten rounds.
    pub fn select(&mut self, terms: &mut Terms, value: &Shared, out: &mut Shared, wire: &mut dyn Wire) {
        let first = self.open_masked(terms, None, wire);
        self.signs(first, terms.length, None, wire);
        self.keep(value, terms, out, wire);
    }
}

/// The words that the circuit sends for `length` numbers, of all parties together.
pub(super) fn circuit_words(length: usize) -> usize {
    COMPUTING * (length + WIDTHS.iter().map(|&width| packed(length, width)).sum::<usize>())
}
