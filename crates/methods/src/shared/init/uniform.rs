//! Random factors: U, V ~ Uniform(0, c) with c = 2 √(mean(M) / k), so that UVᵀ has about the mean of M.

use std::ops::Range;

use ndarray::ArrayViewMut2;

use fednmf_linalg::Real;
use fednmf_linalg::random::{Purpose, Stream, uniform_rows};

/// The scale c for an m × n matrix with this sum of entries; 1 if the mean is not positive.
pub fn scale(sum: f64, (m, n): (usize, usize), k: usize) -> f64 {
    let mean = sum / (m as f64 * n as f64);
    if mean > 0.0 { 2.0 * (mean / k as f64).sqrt() } else { 1.0 }
}

/// The root mean square of the entries of a random start with that scale.
pub fn start_entry(scale: f64) -> f64 {
    scale / 3f64.sqrt()
}

/// Rows of the initial U.
pub fn u<T: Real>(seed: u64, rows: &Range<usize>, scale: f64, out: ArrayViewMut2<'_, T>) {
    uniform_rows(&Stream::new(seed, Purpose::StartU, 0), rows.clone(), scale, out);
}

/// Rows of the initial V.
pub fn v<T: Real>(seed: u64, rows: &Range<usize>, scale: f64, out: ArrayViewMut2<'_, T>) {
    uniform_rows(&Stream::new(seed, Purpose::StartV, 0), rows.clone(), scale, out);
}
