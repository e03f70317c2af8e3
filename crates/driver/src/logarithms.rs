//! A warning for logarithms of counts, where a divergence of counts is minimised.

use std::ops::Range;

use fednmf_linalg::{Block, Real};
use fednmf_methods::metrics::Measure;

/// Rows that are looked at, evenly spread.
const ROWS: usize = 64;
/// Least number of rows of logarithms; fewer may be a coincidence.
const LEAST_ROWS: usize = 3;
/// Multiples of the least entry that say something: others are near a whole number by themselves.
const MULTIPLES: Range<f64> = 1.5..10.0;
/// Fewer of them may be near whole numbers by chance.
const LEAST_MULTIPLES: usize = 4;
/// How far a multiple may be from a whole number, for rounded entries.
const TOLERANCE: f64 = 0.01;

/// Whether most rows of a block have entries ln(1 + c n) with whole numbers n, as prepared counts of cells do.
pub fn has_logarithms<T: Real>(block: &Block<T>) -> bool {
    let rows = block.shape().0;
    let seen = ROWS.min(rows);
    let found: Vec<bool> = (0..seen).filter_map(|i| are_logarithms(&positive(block, i * rows / seen))).collect();
    let count = found.iter().filter(|logarithms| **logarithms).count();
    count >= LEAST_ROWS && 2 * count > found.len()
}

/// A warning if a run minimises the Kullback-Leibler divergence of logarithms. `block` is the untransposed block of this rank;
/// nothing is sent.
pub fn warning_of_logarithms<T: Real>(measure: Measure, block: Option<&Block<T>>) -> Option<String> {
    let block = block.filter(|_| measure == Measure::Divergence)?;
    has_logarithms(block).then(|| {
        "the Kullback-Leibler divergence is for counts, and the entries look like logarithms of counts (log1p); give \
         the counts, or use the default loss"
            .to_string()
    })
}

/// The positive entries of a row.
fn positive<T: Real>(block: &Block<T>, row: usize) -> Vec<f64> {
    let mut entries: Vec<f64> = match block {
        Block::Dense(x) => x.row(row).iter().map(|x| x.as_f64()).collect(),
        Block::Sparse(x) => match x.matrix().outer_view(row) {
            Some(row) => row.iter().map(|(_, x)| x.as_f64()).collect(),
            None => Vec::new(),
        },
        Block::Bits(_) => Vec::new(),
    };
    // NaN is missing.
    entries.retain(|x| *x > 0.0);
    entries
}

/// Whether the positive entries of a row are logarithms of scaled counts; `None` if they may be scaled counts, or are
/// too few to decide.
fn are_logarithms(entries: &[f64]) -> Option<bool> {
    let least = entries.iter().copied().fold(f64::INFINITY, f64::min);
    let are_multiples = |of: fn(f64) -> f64| {
        let all = entries.iter().map(|x| of(*x) / of(least)).filter(|x| MULTIPLES.contains(x));
        let all: Vec<f64> = all.collect();
        (all.len() >= LEAST_MULTIPLES).then(|| all.iter().all(|x| (x - x.round()).abs() <= TOLERANCE * x))
    };
    if !entries.is_empty() && entries.iter().all(|x| x.fract() == 0.0) {
        return Some(false);
    }
    match are_multiples(|x| x) {
        Some(true) => None,
        _ => are_multiples(f64::exp_m1),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    fn warns(entry: impl Fn(usize, usize) -> f64) -> bool {
        let matrix = Array2::from_shape_fn((30, 40), |(i, j)| entry(i, j));
        let block = Block::Dense(matrix.into());
        assert!(warning_of_logarithms(Measure::RelativeError, Some(&block)).is_none());
        warning_of_logarithms(Measure::Divergence, Some(&block)).is_some()
    }

    #[test]
    fn logarithms_of_counts_are_distinguished_from_other_entries() {
        let count = |i: usize, j: usize| ((i * 7 + j * j * 3) % 11).saturating_sub(6) as f64;
        let scale = |i: usize| 3.7 + i as f64 / 9.0;
        assert!(warns(|i, j| (scale(i) * count(i, j)).ln_1p()));
        assert!(warns(|i, j| (1000.0 * (scale(i) * count(i, j)).ln_1p()).round() / 1000.0), "rounded");
        assert!(!warns(count));
        assert!(!warns(|i, j| scale(i) * count(i, j)), "at a common total");
        assert!(!warns(|i, j| count(i, j) / 5000.0), "frequencies");
        assert!(!warns(|i, j| count(i, j) * (1.0 + (j as f64 + 1.0).sqrt())), "weights of words");
        assert!(!warns(|_, _| 0.5));
    }
}
