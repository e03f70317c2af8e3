//! Basis pursuit (Chen, Donoho, Saunders 1998) with bounds: recovers hidden columns from fewer linear equations than
//! unknowns, if their entries are bounded and many are zero. Of all matrices that satisfy the equations it finds the one
//! with the least sum.
//!
//! The releases M Sᵀ span the columns of an M of low rank, so their rank reveals it, and the columns can be sought in that
//! span. Without bounds a low rank does not help: the least-norm solution has the least rank and nuclear norm too.

use ndarray::{Array1, Array2, ArrayView2};

use fednmf_linalg::gemm;

use super::linear::Recovery;

/// Parts of a release below this fraction of its norm are rounding errors.
const ROUNDING: f64 = 1e-8;
/// The step of the objective, relative to the largest entry. Any step converges.
const STEP: f64 = 0.02;

/// A matrix (m × n) that satisfies the equations of `recovery`, has entries from 0 to `high`, and the least sum, within the
/// accuracy of `rounds` of Douglas-Rachford splitting. The second value is the rank of M, if the releases reveal one below
/// their number.
pub fn least_sum(recovery: &Recovery, high: f64, rounds: usize) -> (Array2<f64>, Option<usize>) {
    let (basis, images) = recovery.equations();
    let columns = span(&images);
    let is_low = columns.nrows() < images.nrows().min(images.ncols());
    let (m, n) = recovery.estimate().dim();
    let mut remainder = Array2::zeros((images.nrows(), m));
    let mut coordinates = Array2::zeros((columns.nrows(), n));
    // The nearest matrix that satisfies the equations, in the span of the releases.
    let mut project = |found: &mut Array2<f64>| {
        if is_low {
            gemm(1.0, &columns.view(), &found.view(), 0.0, &mut coordinates.view_mut());
            gemm(1.0, &columns.t(), &coordinates.view(), 0.0, &mut found.view_mut());
        }
        remainder.assign(&images);
        gemm(-1.0, &basis, &found.t(), 1.0, &mut remainder.view_mut());
        gemm(1.0, &remainder.t(), &basis, 1.0, &mut found.view_mut());
    };
    let mut state = recovery.estimate().clone();
    let mut found = state.clone();
    for _ in 0..rounds {
        found.assign(&state);
        project(&mut found);
        state.zip_mut_with(&found, |z, &x| *z += (2.0 * x - *z - STEP * high).clamp(0.0, high) - x);
    }
    found.assign(&state);
    project(&mut found);
    (found, is_low.then_some(columns.nrows()))
}

/// The number of equations per unknown that basis pursuit needs, for nonnegative unknowns of which the fraction `nonzero` is
/// not zero, for many unknowns and random equations: the statistical dimension of the descent cone (Amelunxen, Lotz,
/// McCoy, Tropp 2014, with one tail for one sign).
pub fn sufficient_equations(nonzero: f64) -> f64 {
    let needed = |t: f64| {
        let density = (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let tail = 0.5 * libm::erfc(t / std::f64::consts::SQRT_2);
        nonzero * (1.0 + t * t) + (1.0 - nonzero) * ((1.0 + t * t) * tail - t * density)
    };
    (0..=4000).map(|i| needed(1e-3 * f64::from(i))).fold(1.0, f64::min)
}

/// The number of equations from which basis pursuit hardly ever finds `unknowns` nonnegative numbers, of which the fraction
/// `nonzero` is not zero: three standard deviations below the threshold. The deviation is that of the intrinsic volumes of
/// the orthant, which are binomial: half the square root of the number of zeros.
pub fn insufficient_equations(nonzero: f64, unknowns: f64) -> f64 {
    (unknowns * sufficient_equations(nonzero) - 1.5 * ((1.0 - nonzero) * unknowns).sqrt()).max(0.0)
}

/// An orthonormal basis of the span of the rows, as rows.
fn span(rows: &ArrayView2<f64>) -> Array2<f64> {
    let norm = |x: &Array1<f64>| x.dot(x).sqrt();
    let mut left: Vec<Array1<f64>> = rows.rows().into_iter().map(|row| row.to_owned()).collect();
    let largest = left.iter().map(norm).fold(0.0, f64::max);
    let mut basis = Array2::zeros((0, rows.ncols()));
    // The longest remainder first, so that rounding errors come last.
    while let Some((at, length)) = left.iter().map(norm).enumerate().max_by(|a, b| a.1.total_cmp(&b.1)) {
        if length <= ROUNDING * largest || basis.nrows() == rows.ncols() {
            break;
        }
        let next = left.swap_remove(at) / length;
        for _ in 0..2 {
            for rest in &mut left {
                let along = next.dot(rest);
                rest.scaled_add(-along, &next);
            }
        }
        basis.push_row(next.view()).expect("a row has as many entries as the basis has columns");
    }
    basis
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Cursor, Purpose, Stream};

    use super::*;

    const ROWS: usize = 40;
    const COLUMNS: usize = 60;

    fn draws(number: u64) -> Cursor {
        Stream::new(4, Purpose::Probe, number).at(0)
    }

    /// Rows with the same share of nonzero entries, at places of their own.
    fn sparse(rows: usize, columns: usize, nonzero: f64, draws: &mut Cursor) -> Array2<f64> {
        let mut data = Array2::zeros((rows, columns));
        for mut row in data.rows_mut() {
            let mut places: Vec<(f64, usize)> = (0..columns).map(|j| (draws.uniform(), j)).collect();
            places.sort_by(|a, b| a.0.total_cmp(&b.0));
            for &(_, j) in &places[..(nonzero * columns as f64).round() as usize] {
                row[j] = draws.uniform();
            }
        }
        data
    }

    /// The result of this attack, the rank that it found, and the least-norm solution.
    fn attack(data: &Array2<f64>, equations: usize, rounds: usize) -> (Array2<f64>, Option<usize>, Array2<f64>) {
        let mut draws = draws(9);
        let mut across = Array2::from_shape_fn((equations, data.ncols()), |_| draws.normal());
        let mut release = across.dot(&data.t());
        let mut recovery = Recovery::new(data.nrows(), data.ncols());
        recovery.add(&mut across.view_mut(), &mut release.view_mut());
        let high = data.iter().copied().fold(0.0, f64::max);
        let (found, rank) = least_sum(&recovery, high, rounds);
        (found, rank, recovery.estimate().clone())
    }

    /// The errors of the least-norm solution and of this attack, and the rank that it found.
    fn errors(data: &Array2<f64>, equations: usize) -> (f64, f64, Option<usize>) {
        let (found, rank, least_norm) = attack(data, equations, 3000);
        let distance = |x: &Array2<f64>| ((x - data).mapv(|x| x * x).sum() / data.mapv(|x| x * x).sum()).sqrt();
        (distance(&least_norm), distance(&found), rank)
    }

    #[test]
    fn zeros_determine_rows_above_the_threshold() {
        for nonzero in [0.1, 0.3] {
            let data = sparse(ROWS, COLUMNS, nonzero, &mut draws(1));
            let threshold = sufficient_equations(nonzero) * COLUMNS as f64;
            let (linear, found, rank) = errors(&data, (1.35 * threshold) as usize);
            assert!(rank.is_none() && linear > 0.5 && found < 0.05, "{nonzero}: {linear} {found}");
        }
    }

    #[test]
    fn few_rows_are_found_from_insufficient_equations() {
        for nonzero in [0.1, 0.3, 0.5, 0.8] {
            let data = sparse(400, COLUMNS, nonzero, &mut draws(1));
            let equations = insufficient_equations(nonzero, COLUMNS as f64) as usize;
            let found = attack(&data, equations, 1000).0;
            let exact = |i: usize| (&found.row(i) - &data.row(i)).iter().all(|x| x.abs() < 1e-4);
            let rows = (0..data.nrows()).filter(|&i| exact(i)).count();
            assert!(rows <= 3, "{nonzero}: {rows} of 400 rows from {equations} equations");
        }
    }

    #[test]
    fn a_low_rank_is_seen_and_used() {
        let (u, v) = (sparse(80, 5, 0.4, &mut draws(2)), sparse(30, 5, 0.4, &mut draws(3)));
        let mut data = u.dot(&v.t());
        let (linear, found, rank) = errors(&data, 20);
        assert_eq!(rank, Some(5));
        let mut noise = draws(4);
        data.mapv_inplace(|x| x + 1e-3 * noise.uniform());
        let (_, blurred, rank) = errors(&data, 20);
        assert_eq!(rank, None);
        assert!(linear > 0.5 && found < 1e-6 && blurred > 0.01, "{linear} {found} {blurred}");
    }

    #[test]
    fn the_threshold_is_that_of_the_nonnegative_l1_problem() {
        // Without zeros all equations are needed; the bound alone saves half of the zeros' equations (Donoho and
        // Tanner 2010), the least sum saves more.
        assert!((sufficient_equations(1.0) - 1.0).abs() < 1e-9 && sufficient_equations(0.0) < 1e-3);
        assert!((sufficient_equations(0.9) - 0.95).abs() < 5e-3);
        // Donoho and Tanner 2005: at half as many equations, 0.558 of them.
        assert!((sufficient_equations(0.558 * 0.5) - 0.5).abs() < 2e-3, "{}", sufficient_equations(0.279));
    }
}
