//! Division by a power of two, as Escudero, Ghosh, Keller, Rachuri and Scholl (Improved Primitives for MPC over Mixed
//! Arithmetic-Binary Circuits, CRYPTO 2020) with a party as the dealer (Dalskov, Escudero and Keller, Secure Evaluation of
//! Quantized Neural Networks, PETS 2020), in two rounds:
//!
//! 1. Parties 0 and 1 learn c = z + 2⁶² + r modulo 2⁶⁴. Only party 2 knows the random r, and it does not learn c.
//! 2. Parties 0 and 1 share the result. For |z| < 2⁶² and c' and r' without their top bits,
//!
//! ```text
//! ⌊c' / 2ᶠ⌋ − ⌊r' / 2ᶠ⌋ + 2⁶³⁻ᶠ (c₆₃ xor r₆₃) − 2⁶²⁻ᶠ
//! ```
//!
//! is ⌊z / 2ᶠ⌋ or one more, the latter with probability (z mod 2ᶠ) / 2ᶠ: the result is off by less than 1 and unbiased. There
//! is no other error.
//!
//! r is the exclusive or of a stream of k₀ and one of k₂. Party 2 sends party 1 the part of the result that depends on r for
//! either c₆₃, each under a mask that party 0 knows.

use super::{COMPUTING, Computation, Purpose, Shared, Terms, Wire, add, fill};

/// Shifts z into 0 .. 2⁶³.
pub(super) const OFFSET: u64 = 1 << 62;
/// All bits but the top one.
const LOW: u64 = u64::MAX >> 1;

/// The streams of a masked opening, by their distance from its first number.
const ZERO: u64 = 0;
const MASK: u64 = 1;
const CHOICES: [u64; 2] = [2, 3];
const RESULT: u64 = 4;
const STREAMS: u64 = 5;

/// What a party holds of a masked opening.
#[derive(Default)]
pub(super) struct Opened {
    /// c at parties 0 and 1.
    pub value: Vec<u64>,
    /// The streams whose exclusive or is r: that of k₀ at parties 0 and 2, that of k₂ at parties 1 and 2.
    pub of_first: Vec<u64>,
    pub of_last: Vec<u64>,
    /// At party 1 the chosen word of party 2, at party 0 minus its mask; then the party's summand of component 1.
    share: Vec<u64>,
    other: Vec<u64>,
}

impl Opened {
    fn resize(&mut self, length: usize) {
        let Opened { value, of_first, of_last, share, other } = self;
        [value, of_first, of_last, share, other].into_iter().for_each(|words| words.resize(length, 0));
    }
}

/// The part of the result that depends on r, if the top bit of c is `top`.
fn dealt(r: u64, top: u64, bits: u32) -> u64 {
    (((r >> 63) ^ top) << (63 - bits)).wrapping_sub((r & LOW) >> bits)
}

impl Computation {
    /// Opens the terms to parties 0 and 1 under the mask r. For a truncation by `bits`, party 2 deals its part too. Returns
    /// the number of the opening's first stream.
    pub(super) fn open_masked(&mut self, terms: &mut Terms, bits: Option<u32>, wire: &mut dyn Wire) -> u64 {
        let (first, length) = (self.numbers(STREAMS), terms.length);
        let choices = if bits.is_some() { 2 * length } else { 0 };
        let Computation { parties, mail, .. } = self;
        mail.begin();
        [(0, 1, length), (1, 0, length), (2, 0, length), (2, 1, length + choices)]
            .into_iter()
            .for_each(|(from, to, words)| mail.expect(from, to, words));
        for (party, terms) in parties.iter_mut().zip(&mut terms.parts) {
            party.mask(first + ZERO, terms);
            party.opened.resize(length);
            let opened = &mut party.opened;
            match party.index {
                0 => {
                    fill(&mut party.own, first + MASK, &mut opened.of_first);
                    terms.iter_mut().for_each(|term| *term = term.wrapping_add(OFFSET));
                    mail.send(0, 1).extend_from_slice(terms);
                }
                1 => {
                    fill(&mut party.next, first + MASK, &mut opened.of_last);
                    mail.send(1, 0).extend_from_slice(terms);
                }
                _ => {
                    fill(&mut party.own, first + MASK, &mut opened.of_last);
                    fill(&mut party.next, first + MASK, &mut opened.of_first);
                    let r = || opened.of_first.iter().zip(&opened.of_last).map(|(a, b)| a ^ b);
                    terms.iter_mut().zip(r()).for_each(|(term, r)| *term = term.wrapping_add(r));
                    mail.send(2, 0).extend_from_slice(terms);
                    mail.send(2, 1).extend_from_slice(terms);
                    for (top, choice) in CHOICES.into_iter().enumerate().filter(|_| bits.is_some()) {
                        let bits = bits.unwrap_or_default();
                        opened.share.iter_mut().zip(r()).for_each(|(share, r)| *share = dealt(r, top as u64, bits));
                        add(&mut party.next, first + choice, &mut opened.share, false);
                        mail.send(2, 1).extend_from_slice(&opened.share);
                    }
                }
            }
        }
        wire.exchange(mail, Purpose::Compute);
        for (party, terms) in parties.iter_mut().zip(&terms.parts).filter(|(party, _)| party.index < 2) {
            let opened = &mut party.opened;
            opened.value.copy_from_slice(terms);
            for from in (0..COMPUTING).filter(|from| *from != party.index) {
                let arrived = mail.take(from, party.index, length);
                opened.value.iter_mut().zip(arrived).for_each(|(value, x)| *value = value.wrapping_add(*x));
            }
            if bits.is_none() {
                continue;
            }
            // The words that party 2 sent to party 1, or their masks at party 0.
            for top in [0, 1] {
                if party.index == 0 {
                    fill(&mut party.own, first + CHOICES[top], &mut opened.other);
                    opened.other.iter_mut().for_each(|mask| *mask = mask.wrapping_neg());
                } else {
                    opened.other.copy_from_slice(mail.take(2, 1, length));
                }
                let chosen = opened.value.iter().map(|value| value >> 63 == top as u64);
                let choices = opened.share.iter_mut().zip(&opened.other).zip(chosen);
                choices.filter(|(_, chosen)| *chosen).for_each(|((share, other), _)| *share = *other);
            }
        }
        first
    }

    /// Adds the messages of the second round of a truncation to the mail.
    pub(super) fn send_truncated(&mut self, first: u64, length: usize) {
        let Computation { parties, mail, .. } = self;
        mail.expect(0, 1, length);
        mail.expect(1, 0, length);
        for party in parties.iter_mut().filter(|party| party.index < 2) {
            let (stream, opened) = match party.index {
                0 => (&mut party.own, &mut party.opened),
                _ => (&mut party.next, &mut party.opened),
            };
            add(stream, first + RESULT, &mut opened.share, true);
            mail.send(party.index, 1 - party.index).extend_from_slice(&opened.share);
        }
    }

    /// The result of the second round.
    pub(super) fn receive_truncated(&mut self, first: u64, bits: u32, out: &mut Shared) {
        let Computation { parties, mail, .. } = self;
        let length = out.length;
        for (party, out) in parties.iter_mut().zip(&mut out.parts) {
            let (middle, outer) = match party.index {
                0 => (&mut out.next, (&mut party.own, &mut out.own)),
                1 => (&mut out.own, (&mut party.next, &mut out.next)),
                _ => {
                    fill(&mut party.own, first + RESULT, &mut out.own);
                    fill(&mut party.next, first + RESULT, &mut out.next);
                    continue;
                }
            };
            fill(outer.0, first + RESULT, outer.1);
            let theirs = mail.take(1 - party.index, party.index, length);
            let parts = party.opened.value.iter().zip(party.opened.share.iter().zip(theirs));
            for (middle, (value, (own, theirs))) in middle.iter_mut().zip(parts) {
                let public = ((value & LOW) >> bits).wrapping_sub(OFFSET >> bits);
                *middle = public.wrapping_add(*own).wrapping_add(*theirs);
            }
        }
    }

    /// out ← z / 2^`bits`, rounded up or down at random, for terms with |z| < 2⁶². Two rounds.
    pub fn truncate(&mut self, terms: &mut Terms, bits: u32, out: &mut Shared, wire: &mut dyn Wire) {
        let first = self.open_masked(terms, Some(bits), wire);
        self.mail.begin();
        self.send_truncated(first, terms.length);
        wire.exchange(&mut self.mail, Purpose::Compute);
        out.resize(self.parties.len(), terms.length);
        self.receive_truncated(first, bits, out);
    }
}
