//! Sparse nonnegative columns in a known space, up to their scale, by linear programs: of all vectors x ≥ 0 of the space with
//! x_i = 1 the one with the least sum is a vertex, hence has at least h − 1 zeros, and if a column with an entry in row i
//! has many more, it is this one (the search for a sparse vector in a subspace by linear programming; Spielman, Wang, Wright
//! 2012).

use std::time::{Duration, Instant};

use microlp::{ComparisonOp, OptimizationDirection, Problem};
use ndarray::{Array1, Axis};

use super::space::Space;

/// Entries below this part of the largest are zeros.
const ZERO: f64 = 1e-6;
/// Zeros that a column has beyond those of any vertex, at least.
const MORE_ZEROS: usize = 5;
/// Columns that differ by less, relative to the largest entry, are the same.
const SAME: f64 = 1e-5;

/// The sparse columns of the space, with largest entry 1. Stops after `limit`.
pub fn sparse(space: &Space, limit: Duration) -> Vec<Array1<f64>> {
    let (began, (m, h)) = (Instant::now(), space.basis.dim());
    let basis = &space.basis * (m as f64).sqrt();
    let sums = basis.sum_axis(Axis(0));
    let mut found: Vec<Array1<f64>> = Vec::new();
    for i in 0..m {
        if began.elapsed() > limit || found.len() == h {
            break;
        }
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let unknowns: Vec<_> =
            sums.iter().map(|&sum| problem.add_var(sum, (f64::NEG_INFINITY, f64::INFINITY))).collect();
        for (j, row) in basis.rows().into_iter().enumerate() {
            let terms: Vec<_> = unknowns.iter().copied().zip(row.iter().copied()).collect();
            let (op, value) = if i == j { (ComparisonOp::Eq, 1.0) } else { (ComparisonOp::Ge, 0.0) };
            problem.add_constraint(terms.as_slice(), op, value);
        }
        let Ok(solution) = problem.solve() else { continue };
        let Ok(solution) = solution.into_solution() else { continue };
        let x: Array1<f64> = unknowns.iter().map(|&unknown| solution[unknown]).collect();
        let column = basis.dot(&x);
        let largest = column.iter().fold(f64::MIN_POSITIVE, |a: f64, x| a.max(x.abs()));
        let column = column / largest;
        let zeros = column.iter().filter(|x| x.abs() < ZERO).count();
        let is_known = |other: &Array1<f64>| other.iter().zip(&column).all(|(a, b)| (a - b).abs() < SAME);
        if zeros >= h - 1 + MORE_ZEROS && !found.iter().any(is_known) {
            found.push(column);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    /// Columns with a density, in a space of sums with unknown weights: found and wrong ones.
    fn found(m: usize, h: usize, density: f64) -> (usize, usize) {
        let mut draws = Stream::new(6, Purpose::Probe, h as u64).at(0);
        let hidden = Array2::from_shape_fn((m, h), |_| if draws.uniform() < density { draws.uniform() } else { 0.0 });
        let weights = Array2::from_shape_fn((h, h + 5), |_| draws.uniform());
        let space = Space::of(&hidden.dot(&weights).view(), h, 1e-11).unwrap();
        let found = sparse(&space, Duration::from_secs(60));
        let is = |found: &Array1<f64>| {
            hidden.columns().into_iter().any(|column| {
                let largest = column.iter().fold(0.0, |a: f64, &x| a.max(x));
                column.iter().zip(found).all(|(a, b)| (a / largest - b).abs() < 1e-4)
            })
        };
        let right = found.iter().filter(|found| is(found)).count();
        (right, found.len() - right)
    }

    #[test]
    fn sparse_columns_follow_from_their_space() {
        let (right, wrong) = found(80, 10, 0.2);
        assert!(right >= 8 && wrong == 0, "{right} {wrong}");
    }

    #[test]
    fn dense_columns_are_not_invented() {
        assert_eq!(found(60, 10, 1.0), (0, 0));
    }
}
