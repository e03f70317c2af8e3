//! Reciprocals of positive secret numbers from a public range, by Newton's iteration y ← y (2 − d y).

use super::{Computation, Shared, Terms, Wire};

/// Steps of Newton's iteration: the first approximation is off by at most a third, and a step squares that.
const STEPS: usize = 4;

/// Constants and buffers for the reciprocals of `count` numbers.
pub struct Reciprocals {
    count: usize,
    /// Fractional bits.
    bits: u32,
    /// The numbers are between 2^exponents.start and 2^exponents.end.
    exponents: std::ops::Range<i32>,
    /// By how much the first approximation changes at each power of two within the range, for each number.
    steps: Shared,
    terms: Terms,
    chosen: Shared,
    product: Shared,
}

/// 2/3 of 2^−exponent: off by at most a third as the reciprocal of a number from 2^exponent to 2^(exponent + 1).
fn first(exponent: i32, bits: u32) -> i64 {
    (2.0 / 3.0 * 2f64.powi(bits as i32 - exponent)).round() as i64
}

impl Reciprocals {
    pub fn new(computation: &Computation, count: usize, bits: u32, exponents: std::ops::Range<i32>) -> Self {
        let inner = exponents.start + 1..exponents.end;
        let step = |exponent| (first(exponent, bits) - first(exponent - 1, bits)).cast_unsigned();
        let steps: Vec<u64> = inner.flat_map(|exponent| vec![step(exponent); count]).collect();
        Reciprocals {
            count,
            bits,
            exponents,
            steps: computation.public(&steps),
            terms: Terms::default(),
            chosen: Shared::default(),
            product: Shared::default(),
        }
    }

    /// out ← 1 / d for each number d. 26 rounds.
    pub fn invert(&mut self, computation: &mut Computation, d: &Shared, out: &mut Shared, wire: &mut dyn Wire) {
        let Reciprocals { count, bits, exponents, steps, terms, chosen, product } = self;
        let (count, bits, one) = (*count, *bits, 1u64 << *bits);
        let thresholds = exponents.start + 1..exponents.end;
        terms.clear(computation, steps.length);
        for (place, exponent) in thresholds.clone().enumerate() {
            terms.add_shifted(place * count, d, 0..count, 0);
            let threshold = 2f64.powi(bits as i32 + exponent) as u64;
            terms.add_public(computation, place * count, count, threshold.wrapping_neg());
        }
        computation.select(terms, steps, chosen, wire);
        out.resize(computation.parties.len(), count);
        for (out, chosen) in out.parts.iter_mut().zip(&chosen.parts) {
            for (out, chosen) in [(&mut out.own, &chosen.own), (&mut out.next, &chosen.next)] {
                out.fill(0);
                for step in chosen.chunks(count) {
                    out.iter_mut().zip(step).for_each(|(out, x)| *out = out.wrapping_add(*x));
                }
            }
        }
        computation.add_public(out, 0..count, first(exponents.start, bits).cast_unsigned());
        for _ in 0..STEPS {
            terms.clear(computation, count);
            terms.add_products(0, (d, 0..count), (out, 0..count));
            computation.truncate(terms, bits, product, wire);
            for part in &mut product.parts {
                part.own.iter_mut().chain(&mut part.next).for_each(|x| *x = x.wrapping_neg());
            }
            computation.add_public(product, 0..count, one << 1);
            terms.clear(computation, count);
            terms.add_products(0, (product, 0..count), (out, 0..count));
            computation.truncate(terms, bits, out, wire);
        }
    }
}
