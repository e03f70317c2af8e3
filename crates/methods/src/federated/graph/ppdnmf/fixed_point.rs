//! Fixed point: the integers that neighbours exchange.
//!
//! An entry u of U is sent as û = round(u·N), and a weight g of an edge's end is G = g·N_g, so ρ(u_j − u_i) is the
//! exact integer G_i·G_j·(û_j − û_i). Both ends see the same ρ and opposite differences, so ΣQ_i stays 0.

use fednmf_base::error::{Error, Result};
use fednmf_linalg::Real;

/// Additional bits of a slot of a packed plaintext, so that an overflow is detected instead of spilling unnoticed into the
/// next slot.
const GUARD: u32 = 2;

/// The scales of the integers, and their bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FixedPointScale {
    /// The scale N of entries.
    n: f64,
    /// The scale N_g of weights.
    g_scale: f64,
    /// Largest |û|.
    pub bound: i64,
    /// Largest G.
    pub g_max: u64,
}

impl FixedPointScale {
    /// # Errors
    /// When the integers do not fit into words, or G has too few values to hide anything.
    pub fn new(n: usize, range: f64, g_scale: usize, g_max: f64) -> Result<Self> {
        let bound = (range * n as f64).ceil();
        let largest = (g_max * g_scale as f64).floor();
        let fixed =
            FixedPointScale { n: n as f64, g_scale: g_scale as f64, bound: bound as i64, g_max: largest as u64 };
        if largest < 2.0 {
            return Err(Error::input(format!(
                "--g-scale {g_scale}: g up to {g_max:.3e} is less than 2 steps of 1/{g_scale}; use a larger --g-scale, \
                 or --scale max"
            )));
        }
        // An answer must fit into a word with its sign.
        let fits = bound >= 1.0 && (2.0 * bound + 1.0) * largest < 2f64.powi(62);
        if !fits {
            return Err(Error::input(format!(
                "--quantization {n} times --x-range {range} times --g-scale {g_scale} times g ({g_max:.3e}) leaves the \
                 64 bits of a word; lower one of them, or divide the data (--scale max)"
            )));
        }
        Ok(fixed)
    }

    /// Largest |G (û_j − û_i) + a remainder below G|.
    pub fn largest_answer(&self) -> i64 {
        (2 * self.bound + 1) * self.g_max as i64
    }

    /// Bits of a slot for one answer and its sign.
    pub fn slot_bits(&self) -> u32 {
        64 - self.largest_answer().leading_zeros() + 1 + GUARD
    }

    /// Fixed-point value round(N·u) of each entry.
    ///
    /// # Errors
    /// If an entry is out of range.
    pub fn quantise<T: Real>(&self, u: &[T], party: usize, out: &mut [i64]) -> Result<()> {
        for (out, u) in out.iter_mut().zip(u) {
            let x = (u.as_f64() * self.n).round();
            // False for NaN too.
            let fits = x.abs() <= self.bound as f64;
            if !fits {
                return Err(Error::failed(format!(
                    "party {party}: an entry of its X is beyond the {:e} that the exchange can carry; divide the data \
                     (--scale max) or raise --x-range",
                    self.bound as f64 / self.n
                )));
            }
            *out = x as i64;
        }
        Ok(())
    }

    /// The real number that a sum of G_i G_j (û_j − û_i) represents.
    pub fn real(&self, sum: i128) -> f64 {
        sum as f64 / (self.n * self.g_scale * self.g_scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_to_their_resolution() {
        let fixed = FixedPointScale::new(1000, 10.0, 1 << 10, 0.5).unwrap();
        assert_eq!((fixed.bound, fixed.g_max, fixed.largest_answer()), (10_000, 512, 20_001 * 512));
        assert!(1i128 << (fixed.slot_bits() - 1) > 2 * i128::from(fixed.largest_answer()));
        let mut out = [0; 3];
        fixed.quantise(&[1.2344, -0.0006, 10.0], 0, &mut out).unwrap();
        assert_eq!(out, [1234, -1, 10_000]);
        assert_eq!(fixed.real(i128::from(out[0]) * 512 * 512), 1.234 / 4.0);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let fixed = FixedPointScale::new(10, 1.0, 100, 0.1).unwrap();
        for wrong in [1.06, -2.0, f64::NAN, f64::INFINITY] {
            let e = fixed.quantise(&[wrong], 3, &mut [0]).unwrap_err();
            assert!(e.message.contains("party 3") && e.exit_code() == 1, "{e}");
        }
        assert!(FixedPointScale::new(10, 1.0, 10, 0.1).unwrap_err().message.contains("--g-scale"));
        assert!(FixedPointScale::new(1_000_000_000, 1e9, 1 << 20, 1.0).unwrap_err().message.contains("64 bits"));
        assert!(FixedPointScale::new(10, 1.0, 10, f64::NAN).is_err());
    }
}
