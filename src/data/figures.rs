//! Figures of the whole matrix, the same bits on any number of ranks: sums are taken in fixed point, 62 bits below the
//! largest entry, where no order can matter.

use super::assemble::Local;
use super::partition::Tile;
use super::{FIGURES, Figures};
use crate::comm::Door;
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::random::mix;

/// An exact sum of numbers below a known magnitude.
struct Exact {
    /// A power of two in two steps, since it may be larger than f64 holds.
    scale: [f64; 2],
    sum: i128,
}

impl Exact {
    /// For numbers of magnitude at most `largest`, which is finite.
    fn new(largest: f64) -> Self {
        // 2^exponent > largest
        let exponent = if largest > 0.0 { largest.log2().floor() as i32 + 2 } else { 0 };
        let bits = 62 - exponent;
        Exact { scale: [2f64.powi(bits / 2), 2f64.powi(bits - bits / 2)], sum: 0 }
    }

    #[inline]
    fn add(&mut self, x: f64) {
        self.sum += i128::from((x * self.scale[0] * self.scale[1]) as i64);
    }

    fn limbs(&self) -> [i64; 4] {
        std::array::from_fn(|k| {
            let limb = self.sum >> (32 * k);
            if k < 3 { (limb & 0xffff_ffff) as i64 } else { limb as i64 }
        })
    }

    fn value(&self, limbs: &[i64]) -> f64 {
        let sum: i128 = limbs.iter().enumerate().map(|(k, &limb)| i128::from(limb) << (32 * k)).sum();
        sum as f64 / self.scale[0] / self.scale[1]
    }
}

/// Largest magnitude, largest and smallest stored value of all ranks' blocks.
pub fn extremes<T: Real>(door: &Door, blocks: &[Local<T>]) -> (f64, f64) {
    let mut ends = [f64::NEG_INFINITY; 2];
    for block in blocks {
        block.visit(|_, _, v| {
            let v = v.wide();
            ends[0] = ends[0].max(v);
            ends[1] = ends[1].max(-v);
        });
    }
    door.max(FIGURES, &mut ends);
    (-ends[1], ends[0])
}

/// A hash of an entry and its place: one mixing of a sum with odd weights, since every entry of the data passes here.
#[inline]
fn entry_hash(i: u64, j: u64, bits: u64) -> u64 {
    const WEIGHTS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0xff51_afd7_ed55_8ccd];
    let [i, j, bits] = [i.wrapping_mul(WEIGHTS[0]), j.wrapping_mul(WEIGHTS[1]), bits.wrapping_mul(WEIGHTS[2])];
    mix(i.wrapping_add(j).wrapping_add(bits))
}

/// The figures of an m × n matrix from blocks that cover it once.
///
/// # Errors
/// When its entries are too large to be squared and added up.
pub fn figures<T: Real>(door: &Door, blocks: &[Local<T>], tiles: &[Tile], (m, n): (usize, usize)) -> Result<Figures> {
    let (mut min, mut max) = extremes(door, blocks);
    let largest = max.max(-min).max(0.0);
    if !(largest * largest * 4.0).is_finite() {
        return Err(Error::input(format!(
            "the largest entry is {largest:e}: its square cannot be computed; divide the data first (--scale max)"
        )));
    }
    let (mut sum, mut norm2) = (Exact::new(largest), Exact::new(largest * largest));
    let (mut nonzeros, mut checksum) = (0u64, 0u64);
    for (block, tile) in blocks.iter().zip(tiles) {
        block.visit(|a, b, v| {
            if v == T::zero() {
                return;
            }
            let (a, b) = if tile.transposed { (b, a) } else { (a, b) };
            let (i, j, v) = (tile.rows.start + a, tile.cols.start + b, v.wide());
            if v.is_nan() {
                checksum = checksum.wrapping_add(entry_hash(i as u64, j as u64, v.to_bits()));
                return;
            }
            sum.add(v);
            norm2.add(v * v);
            nonzeros += 1;
            checksum = checksum.wrapping_add(entry_hash(i as u64, j as u64, v.to_bits()));
        });
    }
    let mut limbs = [sum.limbs(), norm2.limbs()].concat();
    door.sum(FIGURES, &mut limbs);
    let mut counts = [nonzeros, checksum];
    door.sum(FIGURES, &mut counts);
    if u128::from(counts[0]) < m as u128 * n as u128 {
        (min, max) = (min.min(0.0), max.max(0.0));
    }
    let figures = Figures {
        nonzeros: counts[0],
        sum: sum.value(&limbs[..4]),
        norm2: norm2.value(&limbs[4..]),
        min,
        max,
        checksum: counts[1],
    };
    if figures.norm2.is_finite() {
        Ok(figures)
    } else {
        Err(Error::input(
            "the squares of the entries add up to more than f64 holds; divide the data first (--scale max)",
        ))
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
                order.for_each(|&x| exact.add(x));
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
        [-7.5, 0.25].iter().for_each(|&x| parts[0].add(x));
        [3.0, -8.0].iter().for_each(|&x| parts[1].add(x));
        let limbs: Vec<i64> = parts[0].limbs().iter().zip(parts[1].limbs()).map(|(a, b)| a + b).collect();
        assert_eq!(parts[0].value(&limbs), -12.25);
    }
}
