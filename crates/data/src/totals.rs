//! Sums, counts and hash of entries, with the same bits in any order: sums are taken in fixed point, 61 bits below the
//! largest entry.

use std::ops::Range;

use libm::{frexp, ldexp};
use pulp::{Simd, WithSimd};

use fednmf_linalg::Real;
use fednmf_linalg::simd::dispatch;

use crate::assemble::Entries;
use crate::ends::{Ends, Extremes, NO_ENDS, Span, ends_of, joined};
use crate::layout::Tile;

/// An exact sum of numbers of bounded magnitude.
pub struct Exact {
    scale: Scale,
    /// In units of 2⁻³¹ of the scaled numbers.
    sum: i128,
}

/// The power of two that scales numbers below 2³¹, split so that every factor is in the range of f64.
#[derive(Clone, Copy, PartialEq)]
struct Scale {
    exponent: i32,
    /// 2^`exponent`, or a smaller power of two in the range of f64; the rounders then compensate for the difference.
    factor: f64,
    /// [`ROUNDER`] for whole numbers, and for units of 2⁻³¹.
    rounders: [f64; 2],
}

/// The nearest integer to a scaled number, and the remainder in units of 2⁻³¹, each in the last bits of its rounder.
type Digits = [u64; 2];

/// Adding a number of magnitude below 2⁵¹ to this constant rounds it to an integer, which is in the last bits of the sum.
/// This converts to integers where vector instructions cannot. Divided by 2^b, it rounds to a multiple of 2⁻ᵇ.
const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

/// The largest exponent of a [`Scale::factor`]; products of the factor with the numbers of its scale stay finite.
const LARGEST_EXPONENT: i32 = 1000;

impl Scale {
    /// The scale for numbers of magnitude at most `largest`.
    fn new(largest: f64) -> Self {
        // largest < 2^exponent
        let (_, exponent) = frexp(largest);
        let exponent = 31 - exponent;
        let factor = exponent.min(LARGEST_EXPONENT);
        let rounder = |bits: i32| ldexp(ROUNDER, factor - exponent - bits);
        Scale { exponent, factor: ldexp(1.0, factor), rounders: [rounder(0), rounder(31)] }
    }

    /// `FUSED` uses FMA and saves a multiplication. The digits are the same, because the product is exact except for bits
    /// far below them.
    #[inline(always)]
    fn digits<const FUSED: bool>(self, x: f64) -> Digits {
        let product_plus = |y: f64| if FUSED { x.mul_add(self.factor, y) } else { x * self.factor + y };
        let whole = product_plus(self.rounders[0]);
        let rest = product_plus(self.rounders[0] - whole) + self.rounders[1];
        [whole.to_bits(), rest.to_bits()]
    }
}

impl Exact {
    /// An empty sum of numbers of magnitude at most `largest`, which is finite.
    fn new(largest: f64) -> Self {
        Exact { scale: Scale::new(largest), sum: 0 }
    }

    /// Adds fewer than 2³² numbers, given the wrapping sums of their digits.
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

    /// The sum as four limbs of 32 bits, each of which can be added up over ranks separately.
    pub fn limbs(&self) -> [i64; 4] {
        std::array::from_fn(|k| {
            let limb = self.sum >> (32 * k);
            if k < 3 { (limb & 0xffff_ffff) as i64 } else { limb as i64 }
        })
    }

    /// The value of summed limbs.
    pub fn value(&self, limbs: &[i64]) -> f64 {
        let sum: i128 = limbs.iter().enumerate().map(|(k, &limb)| i128::from(limb) << (32 * k)).sum();
        // The power of two may exceed the range of f64.
        let (half, exponent) = (self.scale.exponent / 2, self.scale.exponent);
        sum as f64 / (1u64 << 31) as f64 / ldexp(1.0, half) / ldexp(1.0, exponent - half)
    }
}

/// The odd weights of row and column in the hash of an entry.
const WEIGHTS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];

/// The hash of an entry from the weighted sum of its row and column. It is cheap, because it is computed for every entry,
/// and uses only vector operations (one 32-bit product). The product makes the sum of hashes depend on the position of
/// each value, and not only on sums over rows and columns.
#[inline(always)]
fn hash(place: u64, value: f64) -> u64 {
    let bits = place.wrapping_add(value.to_bits());
    let bits = bits ^ (bits >> 29);
    (bits & 0xffff_ffff) * (bits >> 32)
}

/// The hash of the entry in this row and column; [`Totals::checksum`] is the wrapping sum of those of the nonzeros.
pub fn entry_hash(row: usize, column: usize, value: f64) -> u64 {
    let [row, column] = [row, column].map(|at| at as u64);
    hash(row.wrapping_mul(WEIGHTS[0]).wrapping_add(column.wrapping_mul(WEIGHTS[1])), value)
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
    /// The column of each entry; `None` if they are consecutive.
    places: Option<&'a [i32]>,
    /// Weighted sum of the row and the first entry's column (column 0 if there are places), and the weight of a step along
    /// the row.
    first: u64,
    step: u64,
}

impl<T: Real> WithSimd for RowPart<'_, T> {
    /// The ends of the values.
    type Output = Ends;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> Ends {
        if self.values.is_empty() {
            return NO_ENDS;
        }
        // All vector instruction sets used here have FMA.
        let ends = if size_of::<S::f64s>() > size_of::<f64>() {
            self.add_part::<true, false>()
        } else {
            self.add_part::<false, false>()
        };
        ends.unwrap_or_else(|| {
            self.add_part::<false, true>();
            ends_of(self.values)
        })
    }
}

impl<T: Real> RowPart<'_, T> {
    #[inline(always)]
    fn add_part<const FUSED: bool, const MISSING: bool>(&mut self) -> Option<Ends> {
        let (first, step) = (self.first, self.step);
        match self.places {
            None => {
                // A running sum, since vector products of 64-bit integers are slow.
                let mut next = first;
                self.add::<FUSED, MISSING>(|_| {
                    let place = next;
                    next = next.wrapping_add(step);
                    place
                })
            }
            Some(places) => {
                let places = &places[..self.values.len()];
                self.add::<FUSED, MISSING>(|at| first.wrapping_add((places[at] as u64).wrapping_mul(step)))
            }
        }
    }

    /// Adds the values and returns their ends. Adds nothing and returns `None` if some are NaN and `MISSING` is not set.
    /// Vectorisable: no branches, and sums that fit into vector lanes. Zeros add nothing. `place` is called for the entries
    /// in order.
    #[inline(always)]
    fn add<const FUSED: bool, const MISSING: bool>(&mut self, mut place: impl FnMut(usize) -> u64) -> Option<Ends> {
        let (sum, norm2) = (self.totals.sum.scale, self.totals.norm2.scale);
        let mut digits = [[0u64; 2]; 2];
        let (mut counted, mut missing, mut checksum) = (0u64, 0u64, 0u64);
        let mut extremes = Extremes::NONE;
        for (at, v) in self.values.iter().enumerate() {
            let mut v = v.as_f64();
            // A missing entry adds 0 to the sums and does not count as a nonzero, but it counts in the checksum.
            checksum = checksum.wrapping_add(hash(place(at), v) & u64::from(v != 0.0).wrapping_neg());
            counted += u64::from(v != 0.0);
            if MISSING {
                missing += u64::from(v.is_nan());
                v = if v.is_nan() { 0.0 } else { v };
            }
            extremes.add(v);
            let both = [sum.digits::<FUSED>(v), norm2.digits::<FUSED>(v * v)];
            for (total, digits) in digits.as_flattened_mut().iter_mut().zip(both.as_flattened()) {
                *total = total.wrapping_add(*digits);
            }
        }
        let ends = extremes.ends()?;
        self.totals.sum.add(self.values.len(), digits[0]);
        self.totals.norm2.add(self.values.len(), digits[1]);
        self.totals.nonzeros += counted - missing;
        self.totals.missing += missing;
        self.totals.checksum = self.totals.checksum.wrapping_add(checksum);
        Some(ends)
    }
}

impl Totals {
    /// Empty totals, for entries of magnitude at most `largest`.
    pub fn new(largest: f64) -> Self {
        Totals { sum: Exact::new(largest), norm2: Exact::new(largest * largest), nonzeros: 0, missing: 0, checksum: 0 }
    }

    /// Whether the sums have the scale of [`Totals::new`].
    pub fn scaled_for(&self, largest: f64) -> bool {
        self.sum.scale == Scale::new(largest) && self.norm2.scale == Scale::new(largest * largest)
    }

    /// Empty totals with the scale of `self`.
    pub fn emptied(&self) -> Self {
        let [sum, norm2] = [&self.sum, &self.norm2].map(|exact| Exact { scale: exact.scale, sum: 0 });
        Totals { sum, norm2, nonzeros: 0, missing: 0, checksum: 0 }
    }

    /// Adds the stored values `range` of the block of a tile. The sums are wrong if a value exceeds the scale.
    pub fn add<T: Real>(&mut self, entries: Entries<'_, T>, range: Range<usize>, tile: &Tile) -> Span {
        let (mut ends, missing) = (NO_ENDS, self.missing);
        // Entry (a, b) of the block has index a in dimension `across` of the matrix and b in dimension `along`.
        let (across, along) = if tile.transposed { (1, 0) } else { (0, 1) };
        let start = [tile.rows.start as u64, tile.cols.start as u64];
        let weighted = |at: usize, dimension: usize| (start[dimension] + at as u64).wrapping_mul(WEIGHTS[dimension]);
        entries.for_each_row_of(range, |a, b, places, values| {
            let first = weighted(a, across).wrapping_add(weighted(b, along));
            let part = RowPart { totals: self, values, places, first, step: WEIGHTS[along] };
            ends = joined(ends, dispatch(part));
        });
        Span { ends, missing: self.missing > missing }
    }

    /// Adds the totals of other entries, which must have the same scale.
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
    use ndarray::Array2;

    use super::*;
    use crate::assemble::LocalBlock;

    #[test]
    fn sums_are_exact_whatever_the_order() {
        for scale in [1.0, 1e-300, 1e150, 5e-320] {
            let values: Vec<f64> = (0..1000).map(|i| scale * f64::from(i * 7919 % 1000 - 300)).collect();
            let largest = values.iter().fold(0.0f64, |a, v| a.max(v.abs()));
            let total = |order: &mut dyn Iterator<Item = &f64>| {
                let mut exact = Exact::new(largest);
                order.for_each(|&x| {
                    assert_eq!(exact.scale.digits::<true>(x), exact.scale.digits::<false>(x));
                    exact.add(1, exact.scale.digits::<false>(x));
                });
                exact.value(&exact.limbs())
            };
            let forward = total(&mut values.iter());
            assert_eq!(forward.to_bits(), total(&mut values.iter().rev()).to_bits());
            let plain = 199_500.0 * scale;
            assert!((forward - plain).abs() <= 1e-12 * plain, "{scale}: {forward} {plain}");
        }
    }

    #[test]
    fn the_checksum_is_the_sum_of_the_hashes_of_the_nonzeros() {
        let x = Array2::from_shape_fn((3, 4), |(i, j)| ((i + j) % 3) as f64);
        let nonzeros = || x.indexed_iter().filter(|(_, x)| **x != 0.0);
        let expected = nonzeros().fold(0u64, |sum, ((i, j), x)| sum.wrapping_add(entry_hash(5 + i, 2 + j, *x)));
        for (block, transposed) in [(x.clone(), false), (x.t().as_standard_layout().into_owned(), true)] {
            let mut totals = Totals::new(2.0);
            let tile = Tile { rows: 5..8, cols: 2..6, transposed };
            totals.add(LocalBlock::Dense(block.into()).entries(), 0..12, &tile);
            assert_eq!(totals.checksum, expected);
        }
    }

    #[test]
    fn limbs_add_up_with_their_signs() {
        let mut parts = [Exact::new(8.0), Exact::new(8.0)];
        for (part, numbers) in parts.iter_mut().zip([[-7.5, 0.25], [3.0, -8.0]]) {
            numbers.iter().for_each(|&x| part.add(1, part.scale.digits::<false>(x)));
        }
        let limbs: Vec<i64> = parts[0].limbs().iter().zip(parts[1].limbs()).map(|(a, b)| a + b).collect();
        assert_eq!(parts[0].value(&limbs), -12.25);
    }

    #[test]
    fn matrices_of_equal_sums_differ_in_their_hashes() {
        let place = |i: u64, j: u64| i.wrapping_mul(WEIGHTS[0]).wrapping_add(j.wrapping_mul(WEIGHTS[1]));
        // One value at (i, j) and (a, b), or at (i, b) and (a, j): the row and column sums are equal.
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
