//! The fixed-point numbers of the computation, and a proof that they do not overflow.
//!
//! All parties know σ = ‖M‖_F from a masked sum while loading. The computation factorises M/σ, which has norm 1, with the
//! ridge λ (‖F‖² + ‖H‖²)/2, λ = 2⁻¹²: `hals` with `--alpha-u A --alpha-v A --l1-ratio 0` for A = λ σ / √(m n) minimises the same.
//! The ridge bounds every number:
//!
//! HALS sets f ← max(0, (E h) / (‖h‖² + λ)) with E ≤ M/σ entry by entry, since all other components are nonnegative. Hence
//!
//! 1. ‖f‖ ≤ ‖h‖ / (‖h‖² + λ) ≤ B = 1 / (2 √λ) = 2⁵, and likewise ‖h‖ ≤ B;
//! 2. ‖f_j‖ ‖h_j‖ ≤ 1 for every component j, whichever of the two was updated last;
//! 3. entries of M H, M H / (‖h‖² + λ) and of the Gram matrices are at most B, B and B², by Cauchy and Schwarz, and the Gram
//!    matrix divided by its diagonal plus λ has entries of at most B²;
//! 4. F g for a column g of that is at most Σ_j ‖f_j‖ ‖h_j‖ ‖h‖ / (‖h‖² + λ) ≤ k B;
//! 5. the numbers that are inverted are from λ to B² + λ, and each step of Newton's iteration is a product of at most 1/λ = 4 B².
//!
//! Products have twice the fractional bits f of their factors and must be below 2⁶² before they are truncated, so
//! (k + 1) B 2²ᶠ and 4 B² 2²ᶠ must be. A factor of 4 is left for the start, which has ‖f_j‖ ‖h_j‖ ≤ 4/k · ‖M‖₁/(√(m n) ‖M‖_F) ≤ 4/k,
//! and for rounding. An entry of E h ≤ M h / σ is too large by less than a unit 2⁻ᶠ, which the reciprocal multiplies by at most
//! 1 / (‖h‖² + λ) ≤ 2¹²; the other roundings are smaller, and what the other components subtract stays nonnegative. So with r rows
//! ‖f‖ grows by less than √r 2¹²⁻ᶠ, which is at most B up to r = 2²ᶠ⁻¹⁴ rows ([`Format::check_rows`]), and ‖f‖ ‖h‖ by less than
//! √r 2⁻ᶠ ‖h‖ / (‖h‖² + λ) ≤ √r 2⁻ᶠ B ≤ 2⁻² there. An entry that is too small is harmless.

use fednmf_base::error::{Error, Result};

/// λ = 2^−RIDGE.
pub const RIDGE: i32 = 12;
/// B = 2^BOUND.
const BOUND: usize = 5;
/// log₂ of the factor left for rounding and the start.
const SLACK: usize = 2;
/// Products are below 2^LIMIT.
const LIMIT: usize = 62;

/// Fixed-point numbers with `bits` fractional bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub bits: u32,
}

impl Format {
    /// The format for k components: 24 bits up to k = 127, and one bit less whenever k is four times as large.
    pub fn for_components(k: usize) -> Self {
        let sum = (k + 1).next_power_of_two().ilog2() as usize + BOUND;
        Format { bits: ((LIMIT - SLACK - sum.max(2 * BOUND + 2)) / 2) as u32 }
    }

    /// Whether factors of this many rows fit.
    ///
    /// # Errors
    /// If they do not.
    pub fn check_rows(self, rows: usize) -> Result<()> {
        let most = 1u64 << (2 * self.bits as usize + 2 * BOUND - 2 * RIDGE as usize);
        if rows as u64 <= most {
            return Ok(());
        }
        Err(Error::input(format!(
            "with this -k fixed-point numbers have {} fractional bits, which suffice for at most {most} rows and columns, and there \
             are {rows}; choose a smaller -k",
            self.bits
        )))
    }

    fn units(self) -> f64 {
        2f64.powi(self.bits as i32)
    }

    /// The nearest fixed-point number.
    ///
    /// # Errors
    /// If it is not finite or above the bound.
    pub fn encode(self, x: f64) -> Result<u64> {
        if x.abs() <= 2f64.powi(BOUND as i32) {
            return Ok(((x * self.units()).round_ties_even() as i64).cast_unsigned());
        }
        Err(Error::failed(
            "an entry of the data is larger than their norm, to which the fixed-point numbers are scaled",
        ))
    }

    /// An entry of M/σ.
    ///
    /// # Errors
    /// If it is not from 0 to 1, up to rounding.
    pub fn encode_entry(self, x: f64) -> Result<u64> {
        if (0.0..=1.0 + 2f64.powi(-20)).contains(&x) {
            return self.encode(x);
        }
        Err(Error::failed("an entry of the data is negative, or larger than their norm"))
    }

    /// λ.
    pub fn ridge(self) -> u64 {
        1 << (self.bits as i32 - RIDGE)
    }

    pub fn decode(self, word: u64) -> f64 {
        word.cast_signed() as f64 / self.units()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_products_fit() {
        let b = 2f64.powi(BOUND as i32);
        assert_eq!(b, 0.5 / 2f64.powi(-RIDGE).sqrt());
        for k in [1, 2, 10, 64, 127, 128, 500, 5000] {
            let bits = Format::for_components(k).bits;
            let largest = ((k + 1) as f64 * b).max(4.0 * b * b) * 2f64.powi(2 * bits as i32);
            assert!(4.0 * largest <= 2f64.powi(62), "{k}");
            // One bit more would not fit.
            assert!(4.0 * 4.0 * 2.0 * largest > 2f64.powi(62), "{k}");
        }
        assert_eq!([127, 128].map(|k| Format::for_components(k).bits), [24, 23]);
    }

    #[test]
    fn numbers_are_rounded_and_refused_above_the_bound() {
        let format = Format::for_components(10);
        for x in [0.0, 1.0, -0.3, 1e-7, 31.9] {
            assert!((format.decode(format.encode(x).unwrap()) - x).abs() <= 0.5 / format.units());
        }
        assert!(format.encode(f64::NAN).is_err() && format.encode(33.0).is_err());
        assert_eq!(format.decode(format.ridge()), 2f64.powi(-RIDGE));
        assert!(format.encode_entry(1.0 + 1e-9).is_ok() && format.encode_entry(0.0).is_ok());
        assert!([-1e-9, 1.001, f64::NAN].iter().all(|x| format.encode_entry(*x).is_err()));
    }

    /// √r 2^(RIDGE − bits) ≤ B holds for r rows and for no more.
    #[test]
    fn the_rows_of_a_factor_are_limited() {
        for k in [10, 128, 2047] {
            let format = Format::for_components(k);
            let excess = |rows: f64| rows.sqrt() * 2f64.powi(RIDGE - format.bits as i32);
            let most = 2f64.powi(2 * format.bits as i32 - 14);
            assert!(excess(most) <= 2f64.powi(BOUND as i32) && format.check_rows(most as usize).is_ok());
            assert!(excess(most + 1.0) > 2f64.powi(BOUND as i32) && format.check_rows(most as usize + 1).is_err());
        }
    }
}
