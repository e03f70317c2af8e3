//! The smallest and the largest of many values.

use pulp::{Simd, WithSimd};

use fednmf_linalg::Real;
use fednmf_linalg::simd::dispatch;

/// The largest value, and the negative of the smallest, so that both are reduced by a maximum.
pub type Ends = [f64; 2];

/// The ends of an empty set of values.
pub const NO_ENDS: Ends = [f64::NEG_INFINITY; 2];

/// Range and missing values of some entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Of the values that are not NaN.
    pub ends: Ends,
    /// Whether some values are NaN.
    pub missing: bool,
}

/// The ends of values, ignoring NaN.
struct EndsOf<'a, T>(&'a [T]);

impl<T: Real> WithSimd for EndsOf<'_, T> {
    type Output = Ends;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Ends {
        let (vectors, rest) = T::vectors::<S>(self.0);
        // Several accumulators for each, so that no operation has to wait for the previous one.
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

/// The ends of values, ignoring NaN.
pub fn ends_of<T: Real>(values: &[T]) -> Ends {
    dispatch(EndsOf(values))
}

/// The ends of these values and of others.
pub fn widened<T: Real>(ends: Ends, values: &[T]) -> Ends {
    joined(ends, ends_of(values))
}

/// The ends of two sets of values.
pub fn joined(a: Ends, b: Ends) -> Ends {
    [a[0].max(b[0]), a[1].max(b[1])]
}

/// The largest magnitude of values.
pub fn largest_magnitude([most, least]: Ends) -> f64 {
    most.max(least).max(0.0)
}

/// The minimum and maximum of the bit patterns of numbers, read as signed and as unsigned integers. The ends follow from
/// them, and these loops are vectorised, unlike loops over the minimum and maximum of the numbers themselves.
#[derive(Clone, Copy)]
pub struct Extremes {
    signed: [i64; 2],
    unsigned: [u64; 2],
}

impl Extremes {
    /// The extremes of an empty set.
    pub const NONE: Extremes = Extremes { signed: [i64::MAX, i64::MIN], unsigned: [u64::MAX, u64::MIN] };

    #[inline(always)]
    pub fn add(&mut self, x: f64) {
        let bits = x.to_bits();
        let signed = bits.cast_signed();
        self.signed = [self.signed[0].min(signed), self.signed[1].max(signed)];
        self.unsigned = [self.unsigned[0].min(bits), self.unsigned[1].max(bits)];
    }

    /// The ends of at least one number; `None` if some are NaN.
    #[inline(always)]
    pub fn ends(self) -> Option<Ends> {
        // For numbers of one sign, the bits increase with the magnitude, and NaN has the largest. The sign is the first bit.
        let Extremes { signed: [signed_min, signed_max], unsigned: [unsigned_min, unsigned_max] } = self;
        let most = if signed_max >= 0 { signed_max } else { signed_min };
        let least = if unsigned_max.cast_signed() < 0 { unsigned_max } else { unsigned_min };
        let [most, least] = [f64::from_bits(most.cast_unsigned()), f64::from_bits(least)];
        (!most.is_nan() && !least.is_nan()).then_some([most, -least])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extremes(values: &[f64]) -> Option<Ends> {
        let mut extremes = Extremes::NONE;
        values.iter().for_each(|&x| extremes.add(x));
        extremes.ends()
    }

    #[test]
    fn bits_tell_the_ends() {
        let mixed = [3.0, -1.0, 0.5, -7.0, 0.0, f64::MIN_POSITIVE / 2.0, -0.0];
        for from in 0..mixed.len() {
            for to in from + 1..=mixed.len() {
                assert_eq!(extremes(&mixed[from..to]), Some(ends_of(&mixed[from..to])), "{from} {to}");
            }
        }
        let signs = |sign: f64| [5.0, 2.0, 1e300, 1e-300].map(|x| sign * x);
        assert_eq!(extremes(&signs(1.0)), Some([1e300, -1e-300]));
        assert_eq!(extremes(&signs(-1.0)), Some([-1e-300, 1e300]));
        assert_eq!(extremes(&[1.0, f64::INFINITY, f64::NEG_INFINITY]), Some([f64::INFINITY; 2]));
        for nan in [f64::NAN, -f64::NAN] {
            assert_eq!([extremes(&[nan]), extremes(&[1.0, nan]), extremes(&[nan, -1.0])], [None; 3]);
        }
    }

    #[test]
    fn missing_values_have_no_ends() {
        for length in [1, 3, 16, 31, 64, 200] {
            let mut values: Vec<f32> = (0..length).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
            for at in 0..length {
                let others: Vec<f64> =
                    values.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, &v)| v.into()).collect();
                let kept = std::mem::replace(&mut values[at], f32::NAN);
                assert_eq!(ends_of(&values), extremes(&others).unwrap_or(NO_ENDS));
                values[at] = kept;
            }
        }
    }
}
