//! Statistics of the whole matrix, with the same bits on any number of ranks: sums are taken in fixed point, 61 bits below
//! the largest entry, so their order does not matter. Of private data each party computes its own, and only their sums leave
//! it, masked where sums are.

use libm::{frexp, ldexp};
use pulp::{Simd, WithSimd};

use crate::comm::{Communicator, Parties, PartyCommunicator};
use crate::data::distribute::assemble::{Entries, LocalBlock};
use crate::data::layout::Tile;
use crate::data::messages::{LARGEST_ENTRY, STATISTICS};
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::linalg::simd::dispatch;
use crate::party_sum::PartySum;
use crate::privacy::wide;

/// Statistics of the whole matrix, with the same bits on any number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Statistics {
    /// Number of nonzero entries.
    pub nonzeros: u64,
    /// Number of missing entries (NaN); 0 for data of parties.
    pub missing: u64,
    pub sum: f64,
    /// ‖M‖_F²
    pub norm2: f64,
    /// The smallest and the largest entry that is not missing, NaN if there is none; of private data, of those that this rank hosts, which do not leave it.
    pub min: f64,
    pub max: f64,
    /// Wrapping sum over the nonzeros of a hash of (row, column, value as f64): equal for the same matrix in any
    /// format, dense or sparse, in any order.
    /// Of all entries; 0 for data of parties, whose fingerprints stay with them ([`Statistics::of_parties`]).
    pub checksum: u64,
}

/// An exact sum of numbers of bounded magnitude.
struct Exact {
    /// The power of two that brings them below 2³¹, as a product of two, since it may exceed the range of f64.
    scale: [f64; 2],
    /// In units of 2⁻³¹ of the scaled numbers.
    sum: i128,
}

/// The nearest whole number to a scaled number, and what is left in units of 2⁻³¹, each in the last bits of [`ROUNDER`].
type Digits = [u64; 2];

/// A number of magnitude below 2⁵¹ that is added to it is rounded to a whole number, which then stands in its last bits: a
/// conversion for vectors that have none.
const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

impl Exact {
    /// An empty sum of numbers of magnitude at most `largest`, which is finite.
    fn new(largest: f64) -> Self {
        // largest < 2^exponent
        let (_, exponent) = frexp(largest);
        let bits = 31 - exponent;
        Exact { scale: [ldexp(1.0, bits / 2), ldexp(1.0, bits - bits / 2)], sum: 0 }
    }

    #[inline(always)]
    fn digits(scale: [f64; 2], x: f64) -> Digits {
        let x = x * scale[0] * scale[1];
        let whole = x + ROUNDER;
        let rest = (x - (whole - ROUNDER)) * (1u64 << 31) as f64 + ROUNDER;
        [whole.to_bits(), rest.to_bits()]
    }

    /// Adds fewer than 2³² numbers, of whose digits these are the sums.
    fn add(&mut self, numbers: usize, digits: Digits) {
        let rounders = (numbers as u64).wrapping_mul(ROUNDER.to_bits());
        let [whole, rest] = digits.map(|sum| i128::from(sum.wrapping_sub(rounders) as i64));
        self.sum += (whole << 31) + rest;
    }

    fn limbs(&self) -> [i64; 4] {
        std::array::from_fn(|k| {
            let limb = self.sum >> (32 * k);
            if k < 3 { (limb & 0xffff_ffff) as i64 } else { limb as i64 }
        })
    }

    fn value(&self, limbs: &[i64]) -> f64 {
        let sum: i128 = limbs.iter().enumerate().map(|(k, &limb)| i128::from(limb) << (32 * k)).sum();
        sum as f64 / (1u64 << 31) as f64 / self.scale[0] / self.scale[1]
    }
}

/// The largest value, and the negative of the smallest.
type Ends = [f64; 2];

/// Where there is no value.
const NO_ENDS: Ends = [f64::NEG_INFINITY; 2];

/// The ends of values, without those that are NaN.
struct EndsOf<'a, T>(&'a [T]);

impl<T: Real> WithSimd for EndsOf<'_, T> {
    type Output = Ends;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Ends {
        // Several maxima, so that they become lanes of vectors.
        let mut lanes = [[NO_ENDS[0]; 16]; 2];
        let larger = |a: f64, b: f64| if b > a { b } else { a };
        for part in self.0.chunks(16) {
            for (at, v) in part.iter().enumerate() {
                let v = v.as_f64();
                lanes[0][at] = larger(lanes[0][at], v);
                lanes[1][at] = larger(lanes[1][at], -v);
            }
        }
        lanes.map(|lanes| lanes.into_iter().fold(NO_ENDS[0], larger))
    }
}

/// The ends of these values and of others.
fn widened<T: Real>(ends: Ends, values: &[T]) -> Ends {
    let [most, least] = dispatch(EndsOf(values));
    [ends[0].max(most), ends[1].max(least)]
}

/// The ends of the stored values of blocks.
fn ends<T: Real>(blocks: &[LocalBlock<T>]) -> Ends {
    blocks.iter().fold(NO_ENDS, |ends, block| widened(ends, block.values()))
}

/// The largest stored value of all ranks' blocks.
pub fn largest<T: Real>(comm: &Communicator, blocks: &[LocalBlock<T>]) -> f64 {
    let [most, _] = ends(blocks);
    let mut most = [most];
    comm.max(LARGEST_ENTRY, &mut most);
    most[0]
}

/// The magnitude by which sums are scaled.
///
/// # Errors
/// If its square, or that of rounding errors above it, cannot be computed; `what` names the number.
fn magnitude([most, least]: Ends, what: impl Fn(f64) -> String) -> Result<f64> {
    let largest = most.max(least).max(0.0);
    if (largest * largest * 4.0).is_finite() {
        return Ok(largest);
    }
    Err(Error::input(format!(
        "{} is too large: its square cannot be computed; divide the data first (--scale max)",
        what(largest)
    )))
}

/// The magnitude by which sums over a public matrix are scaled.
fn largest_of_all(ends: Ends) -> Result<f64> {
    magnitude(ends, |largest| format!("the largest entry is {largest:e}"))
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

/// Totals over the entries of one rank.
struct Totals {
    sum: Exact,
    norm2: Exact,
    nonzeros: u64,
    missing: u64,
    checksum: u64,
}

/// One row of a block, to be added to the totals.
struct Row<'a, T> {
    totals: &'a mut Totals,
    values: &'a [T],
    /// The position of each entry in the row, unless every position has one.
    places: Option<&'a [i32]>,
    /// The contributions to the hash of the row and its first position, and of each step along the row.
    first: u64,
    step: u64,
}

impl<T: Real> WithSimd for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.places {
            None => self.add(|at| at as u64),
            Some(places) => {
                let places = &places[..self.values.len()];
                self.add(|at| places[at] as u64);
            }
        }
    }
}

impl<T: Real> Row<'_, T> {
    /// Vectorisable: without branches, and with sums that fit into vector lanes. Zeros add nothing.
    #[inline(always)]
    fn add(self, place: impl Fn(usize) -> u64) {
        let (sum, norm2) = (self.totals.sum.scale, self.totals.norm2.scale);
        let mut digits = [[0u64; 2]; 2];
        let (mut nonzeros, mut missing, mut checksum) = (0u64, 0u64, 0u64);
        for (at, v) in self.values.iter().enumerate() {
            let v = v.as_f64();
            let place = self.first.wrapping_add(place(at).wrapping_mul(self.step));
            checksum = checksum.wrapping_add(hash(place, v) & u64::from(v != 0.0).wrapping_neg());
            // A missing entry (NaN) adds 0 to the sums and is no nonzero, but it counts in the checksum.
            missing += u64::from(v.is_nan());
            let v = if v.is_nan() { 0.0 } else { v };
            nonzeros += u64::from(v != 0.0);
            let both = [Exact::digits(sum, v), Exact::digits(norm2, v * v)];
            for (total, digits) in digits.as_flattened_mut().iter_mut().zip(both.as_flattened()) {
                *total = total.wrapping_add(*digits);
            }
        }
        self.totals.sum.add(self.values.len(), digits[0]);
        self.totals.norm2.add(self.values.len(), digits[1]);
        self.totals.nonzeros += nonzeros;
        self.totals.missing += missing;
        self.totals.checksum = self.totals.checksum.wrapping_add(checksum);
    }
}

impl Totals {
    /// Of no entry; those to come are of magnitude at most `largest`.
    fn new(largest: f64) -> Self {
        Totals { sum: Exact::new(largest), norm2: Exact::new(largest * largest), nonzeros: 0, missing: 0, checksum: 0 }
    }

    /// Adds the entries of the block of a tile, and returns their fingerprint.
    fn add<T: Real>(&mut self, entries: Entries<'_, T>, tile: &Tile) -> u64 {
        let before = self.checksum;
        // Entry (a, b) of the block has index a in dimension `across` of the matrix and b in dimension `along`.
        let (across, along) = if tile.transposed { (1, 0) } else { (0, 1) };
        let start = [tile.rows.start as u64, tile.cols.start as u64];
        entries.for_each_row(|a, places, values| {
            let row = (start[across] + a as u64).wrapping_mul(WEIGHTS[across]);
            let first = row.wrapping_add(start[along].wrapping_mul(WEIGHTS[along]));
            dispatch(Row { totals: self, values, places, first, step: WEIGHTS[along] });
        });
        self.checksum.wrapping_sub(before)
    }
}

impl Statistics {
    /// The statistics of an m × n matrix from blocks that cover it once, and a fingerprint of each block. Collective.
    ///
    /// # Errors
    /// If its entries are too large to be squared and added up.
    pub fn compute<T: Real>(
        comm: &Communicator,
        blocks: &[LocalBlock<T>],
        tiles: &[Tile],
        shape: (usize, usize),
    ) -> Result<(Statistics, Vec<u64>)> {
        let mut ends = ends(blocks);
        comm.max(STATISTICS, &mut ends);
        let mut totals = Totals::new(largest_of_all(ends)?);
        let fingerprints = blocks.iter().zip(tiles).map(|(block, tile)| totals.add(block.entries(), tile)).collect();
        Ok((Statistics::total::<T>(comm, &totals, ends, shape)?, fingerprints))
    }

    /// As [`Statistics::compute`], of a matrix of which each rank reads its rows twice: `pass` hands each of its panels and
    /// their tiles to what it is given. Collective.
    ///
    /// # Errors
    /// As [`Statistics::compute`], and of a pass.
    pub fn of_passes<T: Real>(
        comm: &Communicator,
        shape: (usize, usize),
        mut pass: impl FnMut(&mut dyn FnMut(Entries<'_, T>, &Tile)) -> Result<()>,
    ) -> Result<Statistics> {
        let mut ends = NO_ENDS;
        pass(&mut |entries, _| ends = widened(ends, entries.values()))?;
        comm.max(STATISTICS, &mut ends);
        let mut totals = Totals::new(largest_of_all(ends)?);
        pass(&mut |entries, tile| {
            totals.add(entries, tile);
        })?;
        Statistics::total::<T>(comm, &totals, ends, shape)
    }

    /// The statistics from the totals of all ranks, whose values have these ends. Collective.
    fn total<T: Real>(comm: &Communicator, totals: &Totals, ends: Ends, shape: (usize, usize)) -> Result<Statistics> {
        let mut limbs = [totals.sum.limbs(), totals.norm2.limbs()].concat();
        // Two's complement: a sum modulo 2⁶⁴ is that of the signed numbers.
        comm.sum(STATISTICS, bytemuck::cast_slice_mut::<i64, u64>(&mut limbs));
        let mut counts = [totals.nonzeros, totals.checksum, totals.missing];
        comm.sum(STATISTICS, &mut counts);
        let (sum, norm2) = (totals.sum.value(&limbs[..4]), totals.norm2.value(&limbs[4..]));
        let [nonzeros, checksum, missing] = counts;
        let figures = Statistics { nonzeros, missing, sum, norm2, min: 0.0, max: 0.0, checksum };
        figures.with_range(ends, shape).checked::<T>()
    }

    /// As [`Statistics::compute`], for one block of each hosted party. Parties share the sums of their sums, norms and counts
    /// alone, under masks if `masked`. No fingerprint leaves its rank: whoever knows all other entries could try values until
    /// it fits. Collective.
    ///
    /// # Errors
    /// On all ranks, as [`Statistics::compute`]; if there is no secret randomness for the masks.
    pub fn of_parties<T: Real>(
        comm: &Communicator,
        (parties, masked): (Parties, bool),
        blocks: &[LocalBlock<T>],
        tiles: &[Tile],
        shape: (usize, usize),
    ) -> Result<(Statistics, Vec<u64>)> {
        let hosted = parties.hosted(comm.rank());
        let own = hosted.zip(blocks).zip(tiles).map(|((party, block), tile)| {
            let largest =
                magnitude(ends(std::slice::from_ref(block)), |_| format!("the largest entry of party {party}"))?;
            let mut totals = Totals::new(largest);
            totals.add(block.entries(), tile);
            Ok(totals)
        });
        let own = comm.agree_on_error(own.collect::<Result<Vec<Totals>>>())?;
        let parties_only = PartyCommunicator::new(comm.clone());
        // A single party has nobody to hide its figures from.
        let mut sums = if masked && parties.count > 1 {
            PartySum::masked(&parties_only, parties, 0)?
        } else {
            PartySum::plain(&parties_only, parties)
        };
        // Each term is rounded to f64, so that the sum tells no more of it than that.
        let total = sums.sum_words(&parties_only, STATISTICS, 2 * wide::WORDS + 1, |place, words| {
            let Totals { sum, norm2, nonzeros, .. } = &own[place];
            let (first, rest) = words.split_at_mut(wide::WORDS);
            wide::encode(sum.value(&sum.limbs()), first);
            wide::encode(norm2.value(&norm2.limbs()), &mut rest[..wide::WORDS]);
            rest[wide::WORDS] = *nonzeros;
        })?;
        let [sum, norm2] = [0, wide::WORDS].map(|at| wide::decode(&total[at..at + wide::WORDS]));
        let nonzeros = total[2 * wide::WORDS];
        let figures = Statistics { nonzeros, missing: 0, sum, norm2, min: 0.0, max: 0.0, checksum: 0 };
        let fingerprints = own.iter().map(|totals| totals.checksum).collect();
        Ok((figures.with_range(ends(blocks), shape).checked::<T>()?, fingerprints))
    }

    /// With the range of the stored entries, and of the zeros that are not stored.
    fn with_range(self, [max, least]: Ends, (m, n): (usize, usize)) -> Self {
        let observed = (m as u128 * n as u128).saturating_sub(self.missing.into());
        let (min, max) = match u128::from(self.nonzeros) {
            _ if observed == 0 => (f64::NAN, f64::NAN),
            nonzeros if nonzeros < observed => ((-least).min(0.0), max.max(0.0)),
            _ => (-least, max),
        };
        Statistics { min, max, ..self }
    }

    /// Products of factors and data are about as large as the sum of the squared entries.
    fn checked<T: Real>(self) -> Result<Self> {
        if T::from_f64(self.norm2) < T::infinity() {
            return Ok(self);
        }
        let precision = if T::NAME == f32::NAME { ", or use --precision f64" } else { "" };
        Err(Error::input(format!(
            "the sum of the squared entries exceeds the range of {}; divide the data first (--scale max){precision}",
            T::NAME
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_must_fit_the_precision() {
        let with =
            |norm2: f64| Statistics { nonzeros: 1, missing: 0, sum: 1.0, norm2, min: 0.0, max: 1.0, checksum: 0 };
        assert!(with(1e38).checked::<f32>().is_ok() && with(1e39).checked::<f64>().is_ok());
        assert!(with(1e39).checked::<f32>().unwrap_err().message.contains("--precision f64"));
        assert!(with(f64::INFINITY).checked::<f64>().unwrap_err().message.contains("range of f64"));
    }

    #[test]
    fn sums_are_exact_whatever_the_order() {
        for scale in [1.0, 1e-300, 1e150, 5e-320] {
            let values: Vec<f64> = (0..1000).map(|i| scale * f64::from(i * 7919 % 1000 - 300)).collect();
            let largest = values.iter().fold(0.0f64, |a, v| a.max(v.abs()));
            let total = |order: &mut dyn Iterator<Item = &f64>| {
                let mut exact = Exact::new(largest);
                order.for_each(|&x| exact.add(1, Exact::digits(exact.scale, x)));
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
            numbers.iter().for_each(|&x| part.add(1, Exact::digits(part.scale, x)));
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
