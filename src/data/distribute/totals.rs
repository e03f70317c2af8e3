//! Sums, counts and hash of entries, with the same bits in any order: sums are taken in fixed point, 61 bits below the
//! largest entry.

use std::ops::Range;

use libm::{frexp, ldexp};
use pulp::{Simd, WithSimd};

use crate::data::distribute::assemble::Entries;
use crate::data::layout::Tile;
use crate::linalg::Real;
use crate::linalg::simd::dispatch;

/// An exact sum of numbers of bounded magnitude.
pub struct Exact {
    scale: Scale,
    /// In units of 2⁻³¹ of the scaled numbers.
    sum: i128,
}

/// The power of two that brings numbers below 2³¹, as vectors multiply by it.
#[derive(Clone, Copy, PartialEq)]
struct Scale {
    exponent: i32,
    /// The power of two, or one that is in the range of f64: then the rounders make up for it.
    factor: f64,
    /// [`ROUNDER`] for whole numbers, and for units of 2⁻³¹.
    rounders: [f64; 2],
}

/// The nearest whole number to a scaled number, and what is left in units of 2⁻³¹, each in the last bits of its rounder.
type Digits = [u64; 2];

/// A number of magnitude below 2⁵¹ that is added to it is rounded to a whole number, which then stands in its last bits: a
/// conversion for vectors that have none. Divided by a power of two, it rounds to a multiple of that fraction.
const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

/// The largest exponent of a [`Scale::factor`], with which any number that it is for can still be multiplied.
const LARGEST_EXPONENT: i32 = 1000;

impl Scale {
    /// For numbers of magnitude at most `largest`.
    fn new(largest: f64) -> Self {
        // largest < 2^exponent
        let (_, exponent) = frexp(largest);
        let exponent = 31 - exponent;
        let factor = exponent.min(LARGEST_EXPONENT);
        let rounder = |bits: i32| ldexp(ROUNDER, factor - exponent - bits);
        Scale { exponent, factor: ldexp(1.0, factor), rounders: [rounder(0), rounder(31)] }
    }

    #[inline(always)]
    fn digits(self, x: f64) -> Digits {
        let x = x * self.factor;
        let whole = x + self.rounders[0];
        let rest = x - (whole - self.rounders[0]) + self.rounders[1];
        [whole.to_bits(), rest.to_bits()]
    }
}

impl Exact {
    /// An empty sum of numbers of magnitude at most `largest`, which is finite.
    fn new(largest: f64) -> Self {
        Exact { scale: Scale::new(largest), sum: 0 }
    }

    /// Adds fewer than 2³² numbers, of whose digits these are the sums.
    fn add(&mut self, numbers: usize, digits: Digits) {
        let rounders = self.scale.rounders.map(|rounder| (numbers as u64).wrapping_mul(rounder.to_bits()));
        let [whole, rest] = [0, 1].map(|at| i128::from(digits[at].wrapping_sub(rounders[at]) as i64));
        self.sum += (whole << 31) + rest;
    }

    /// Adds another sum of the same scale.
    fn merge(&mut self, other: &Exact) {
        debug_assert!(self.scale == other.scale);
        self.sum += other.sum;
    }

    /// The sum in parts that can be added up over ranks, each on its own.
    pub fn limbs(&self) -> [i64; 4] {
        std::array::from_fn(|k| {
            let limb = self.sum >> (32 * k);
            if k < 3 { (limb & 0xffff_ffff) as i64 } else { limb as i64 }
        })
    }

    /// The value of such parts.
    pub fn value(&self, limbs: &[i64]) -> f64 {
        let sum: i128 = limbs.iter().enumerate().map(|(k, &limb)| i128::from(limb) << (32 * k)).sum();
        // The power of two may exceed the range of f64.
        let (half, exponent) = (self.scale.exponent / 2, self.scale.exponent);
        sum as f64 / (1u64 << 31) as f64 / ldexp(1.0, half) / ldexp(1.0, exponent - half)
    }
}

/// The largest value, and the negative of the smallest.
pub type Ends = [f64; 2];

/// Where there is no value.
pub const NO_ENDS: Ends = [f64::NEG_INFINITY; 2];

/// The ends of values, without those that are NaN.
struct EndsOf<'a, T>(&'a [T]);

impl<T: Real> WithSimd for EndsOf<'_, T> {
    type Output = Ends;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Ends {
        let (vectors, rest) = T::vectors::<S>(self.0);
        // Several vectors of either, so that none has to wait for the one before.
        let mut most = [T::splat_v(simd, T::neg_infinity()); 4];
        let mut least = [T::splat_v(simd, T::infinity()); 4];
        let mut widen = |at: usize, v: T::Vector<S>| {
            most[at] = T::max_v(simd, v, most[at]);
            least[at] = T::min_v(simd, v, least[at]);
        };
        let (groups, left) = vectors.as_chunks::<4>();
        for group in groups {
            group.iter().enumerate().for_each(|(at, &v)| widen(at, v));
        }
        left.iter().for_each(|&v| widen(0, v));
        let larger = |a: f64, b: f64| if b > a { b } else { a };
        let all = |lanes: &[T], sign: f64| lanes.iter().chain(rest).map(|v| sign * v.as_f64()).fold(NO_ENDS[0], larger);
        [all(bytemuck::cast_slice(&most), 1.0), all(bytemuck::cast_slice(&least), -1.0)]
    }
}

/// The ends of these values and of others.
pub fn widened<T: Real>(ends: Ends, values: &[T]) -> Ends {
    joined(ends, dispatch(EndsOf(values)))
}

/// The ends of two sets of values.
pub fn joined(a: Ends, b: Ends) -> Ends {
    [a[0].max(b[0]), a[1].max(b[1])]
}

/// The largest magnitude of values.
pub fn largest_magnitude([most, least]: Ends) -> f64 {
    most.max(least).max(0.0)
}

/// The odd weights of row and column in the hash of an entry.
const WEIGHTS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];

/// The hash of an entry from the weighted sum of its row and column: cheap, because every entry of the data passes here, and
/// of operations that vectors have (one product of 32 bits). That product makes the sum of hashes depend on which value is
/// where, and not on the sums of rows and columns alone.
#[inline(always)]
fn hash(place: u64, value: f64) -> u64 {
    let bits = place.wrapping_add(value.to_bits());
    let bits = bits ^ (bits >> 29);
    (bits & 0xffff_ffff) * (bits >> 32)
}

/// Totals over entries.
pub struct Totals {
    pub sum: Exact,
    pub norm2: Exact,
    pub nonzeros: u64,
    pub missing: u64,
    pub checksum: u64,
}

/// A part of one row of a block, to be added to the totals.
struct RowPart<'a, T> {
    totals: &'a mut Totals,
    values: &'a [T],
    /// The column of each entry, unless they follow each other.
    places: Option<&'a [i32]>,
    /// The contributions to the hash of the row and of the first entry's column, or of column 0 if there are places; and
    /// of each step along the row.
    first: u64,
    step: u64,
}

impl<T: Real> WithSimd for RowPart<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let RowPart { first, step, .. } = self;
        match self.places {
            None => {
                // A sum, since vectors multiply such numbers slowly.
                let mut next = first;
                self.add(|_| {
                    let place = next;
                    next = next.wrapping_add(step);
                    place
                });
            }
            Some(places) => {
                let places = &places[..self.values.len()];
                self.add(|at| first.wrapping_add((places[at] as u64).wrapping_mul(step)));
            }
        }
    }
}

impl<T: Real> RowPart<'_, T> {
    /// Vectorisable: without branches, and with sums that fit into vector lanes. Zeros add nothing. `place` is called for one
    /// entry after the other.
    #[inline(always)]
    fn add(self, mut place: impl FnMut(usize) -> u64) {
        let (sum, norm2) = (self.totals.sum.scale, self.totals.norm2.scale);
        let mut digits = [[0u64; 2]; 2];
        let (mut counted, mut missing, mut checksum) = (0u64, 0u64, 0u64);
        for (at, v) in self.values.iter().enumerate() {
            let v = v.as_f64();
            // A missing entry (NaN) adds 0 to the sums and is no nonzero, but it counts in the checksum.
            checksum = checksum.wrapping_add(hash(place(at), v) & u64::from(v != 0.0).wrapping_neg());
            counted += u64::from(v != 0.0);
            missing += u64::from(v.is_nan());
            let v = if v.is_nan() { 0.0 } else { v };
            let both = [sum.digits(v), norm2.digits(v * v)];
            for (total, digits) in digits.as_flattened_mut().iter_mut().zip(both.as_flattened()) {
                *total = total.wrapping_add(*digits);
            }
        }
        self.totals.sum.add(self.values.len(), digits[0]);
        self.totals.norm2.add(self.values.len(), digits[1]);
        self.totals.nonzeros += counted - missing;
        self.totals.missing += missing;
        self.totals.checksum = self.totals.checksum.wrapping_add(checksum);
    }
}

impl Totals {
    /// Of no entry; those to come are of magnitude at most `largest`.
    pub fn new(largest: f64) -> Self {
        Totals { sum: Exact::new(largest), norm2: Exact::new(largest * largest), nonzeros: 0, missing: 0, checksum: 0 }
    }

    /// Whether the sums are scaled as those of [`Totals::new`].
    pub fn scaled_for(&self, largest: f64) -> bool {
        self.sum.scale == Scale::new(largest) && self.norm2.scale == Scale::new(largest * largest)
    }

    /// Adds the stored values `range` of the block of a tile.
    pub fn add<T: Real>(&mut self, entries: Entries<'_, T>, range: Range<usize>, tile: &Tile) {
        // Entry (a, b) of the block has index a in dimension `across` of the matrix and b in dimension `along`.
        let (across, along) = if tile.transposed { (1, 0) } else { (0, 1) };
        let start = [tile.rows.start as u64, tile.cols.start as u64];
        let weighted = |at: usize, dimension: usize| (start[dimension] + at as u64).wrapping_mul(WEIGHTS[dimension]);
        entries.for_each_row_of(range, |a, b, places, values| {
            let first = weighted(a, across).wrapping_add(weighted(b, along));
            dispatch(RowPart { totals: self, values, places, first, step: WEIGHTS[along] });
        });
    }

    /// Adds the totals of other entries, of the same scale.
    pub fn merge(&mut self, other: &Totals) {
        self.sum.merge(&other.sum);
        self.norm2.merge(&other.norm2);
        self.nonzeros += other.nonzeros;
        self.missing += other.missing;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_whatever_the_order() {
        for scale in [1.0, 1e-300, 1e150, 5e-320] {
            let values: Vec<f64> = (0..1000).map(|i| scale * f64::from(i * 7919 % 1000 - 300)).collect();
            let largest = values.iter().fold(0.0f64, |a, v| a.max(v.abs()));
            let total = |order: &mut dyn Iterator<Item = &f64>| {
                let mut exact = Exact::new(largest);
                order.for_each(|&x| exact.add(1, exact.scale.digits(x)));
                exact.value(&exact.limbs())
            };
            let forward = total(&mut values.iter());
            assert_eq!(forward.to_bits(), total(&mut values.iter().rev()).to_bits());
            let plain = 199_500.0 * scale;
            assert!((forward - plain).abs() <= 1e-12 * plain, "{scale}: {forward} {plain}");
        }
    }

    #[test]
    fn limbs_add_up_with_their_signs() {
        let mut parts = [Exact::new(8.0), Exact::new(8.0)];
        for (part, numbers) in parts.iter_mut().zip([[-7.5, 0.25], [3.0, -8.0]]) {
            numbers.iter().for_each(|&x| part.add(1, part.scale.digits(x)));
        }
        let limbs: Vec<i64> = parts[0].limbs().iter().zip(parts[1].limbs()).map(|(a, b)| a + b).collect();
        assert_eq!(parts[0].value(&limbs), -12.25);
    }

    #[test]
    fn matrices_of_equal_sums_differ_in_their_hashes() {
        let place = |i: u64, j: u64| i.wrapping_mul(WEIGHTS[0]).wrapping_add(j.wrapping_mul(WEIGHTS[1]));
        // One value at (i, j) and (a, b), or at (i, b) and (a, j): the same sums of rows and columns.
        for value in [1.0, 3.0, 0.1] {
            for [i, j, a, b] in (0..20_000u64).map(|n| [n % 7, n % 11, 8 + n % 1013, 12 + n % 8009]) {
                let pair = |p: [u64; 2], q: [u64; 2]| {
                    hash(place(p[0], p[1]), value).wrapping_add(hash(place(q[0], q[1]), value))
                };
                assert_ne!(pair([i, j], [a, b]), pair([i, b], [a, j]), "{value} {i} {j} {a} {b}");
            }
        }
    }
}
