//! The two precisions.

use std::iter::Sum;
use std::str::FromStr;

use ndarray::NdFloat;

use crate::blas::Kernels;
use crate::element::Element;
use crate::simd::Lanes;

/// f32 or f64: everything the numerical code needs of an element type.
pub trait Real: NdFloat + Kernels + Lanes + Element + Sum + FromStr {
    /// Its name in `--precision`.
    const NAME: &'static str;
    /// The nearest number of this precision.
    fn from_f64(x: f64) -> Self;
    /// The same number in f64.
    fn as_f64(self) -> f64;
}

impl Real for f32 {
    const NAME: &'static str = "f32";
    fn from_f64(x: f64) -> Self {
        x as f32
    }
    fn as_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const NAME: &'static str = "f64";
    fn from_f64(x: f64) -> Self {
        x
    }
    fn as_f64(self) -> f64 {
        self
    }
}
