//! Columns of zeros and ones in a known space.
//!
//! A column b = B w of the space satisfies (b_i)² = b_i in each row, which is linear in the pair (w wᵀ, w). The solutions of
//! these m equations in h (h + 3) / 2 unknowns are, for m at least that number, the combinations Σ α_c (w_c w_cᵀ, w_c) of
//! those of the h columns. Two random combinations have the matrices W D Wᵀ with the same W and other diagonal matrices D,
//! so that W has the eigenvectors of one times the inverse of the other (the multivariate attack of Coron and Gini 2020 on
//! hidden subset sums, here over real numbers and without a lattice).

use ndarray::{Array1, Array2, Axis, s};
use ndarray_linalg::{Eig, FactorizeCInto, Inverse, QR, SolveC, UPLO};
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use fednmf_linalg::gemm;

use super::space::Space;

/// Most unknowns of the linear equations, which take memory for their square.
const LARGEST: usize = 3500;
/// Rows of equations that are in memory at a time.
const PANEL: usize = 512;
/// Added to the normal equations, relative to their mean diagonal, so that they can be solved.
const SHIFT: f64 = 1e-13;
const ITERATIONS: usize = 4;
/// How far an entry may be from a zero or a one.
const NEAR: f64 = 1e-2;

/// The number of rows that the attack needs for h dimensions.
pub fn needed_rows(h: usize) -> usize {
    h * (h + 3) / 2
}

/// The columns of zeros and ones in the space; `None` if it has too few rows for its dimensions, or too many dimensions.
pub fn zeros_and_ones(space: &Space) -> Option<Vec<Array1<f64>>> {
    let (m, h) = space.basis.dim();
    let unknowns = needed_rows(h);
    if m < unknowns || unknowns > LARGEST {
        return None;
    }
    // Entries of the size of those of columns.
    let basis = &space.basis * (m as f64).sqrt();
    let solutions = null_space(&basis)?;
    let mut rng = StdRng::seed_from_u64(1);
    let mut combination = || {
        let weights = Array1::from_shape_fn(h, |_| rng.random_range(-1.0..1.0));
        symmetric(&solutions.dot(&weights), h)
    };
    let (a, b) = (combination(), combination());
    let (_, vectors) = a.dot(&b.inv().ok()?).eig().ok()?;
    let mut found: Vec<Array1<f64>> = Vec::new();
    for vector in vectors.axis_iter(Axis(1)) {
        let column = basis.dot(&vector.mapv(|x| x.re));
        let largest = column.iter().copied().fold(0.0, |a: f64, x| if x.abs() > a.abs() { x } else { a });
        let column = column / largest;
        let whole = column.mapv(f64::round);
        let is_near = column.iter().zip(&whole).all(|(x, y)| (x - y).abs() < NEAR && (0.0..=1.0).contains(y));
        if is_near && !found.contains(&whole) {
            found.push(whole);
        }
    }
    Some(found)
}

/// The pairs (a, b), a ≤ b, of the entries of a symmetric matrix.
fn pairs(h: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..h).flat_map(move |a| (a..h).map(move |b| (a, b)))
}

/// The symmetric matrix of a solution.
fn symmetric(solution: &Array1<f64>, h: usize) -> Array2<f64> {
    let mut matrix = Array2::zeros((h, h));
    for ((a, b), &x) in pairs(h).zip(solution) {
        (matrix[[a, b]], matrix[[b, a]]) = (x, x);
    }
    matrix
}

/// An orthonormal basis (h (h + 3) / 2 × h) of what is nearest to the solutions of the equations, by inverse iteration.
fn null_space(basis: &Array2<f64>) -> Option<Array2<f64>> {
    let h = basis.ncols();
    let unknowns = needed_rows(h);
    let mut normal = Array2::zeros((unknowns, unknowns));
    for rows in basis.axis_chunks_iter(Axis(0), PANEL) {
        let mut equations = Array2::zeros((rows.nrows(), unknowns));
        for (row, mut equation) in rows.rows().into_iter().zip(equations.rows_mut()) {
            for ((a, b), x) in pairs(h).zip(&mut equation) {
                *x = row[a] * row[b] * if a == b { 1.0 } else { 2.0 };
            }
            equation.slice_mut(s![unknowns - h..]).assign(&-&row);
        }
        gemm(1.0, &equations.t(), &equations.view(), 1.0, &mut normal.view_mut());
    }
    let shift = SHIFT * normal.diag().sum() / unknowns as f64;
    normal.diag_mut().mapv_inplace(|x| x + shift);
    let factor = normal.factorizec_into(UPLO::Lower).ok()?;
    let mut rng = StdRng::seed_from_u64(2);
    let mut solutions = Array2::from_shape_fn((unknowns, h), |_| rng.random_range(-1.0..1.0));
    for _ in 0..ITERATIONS {
        for mut column in solutions.columns_mut() {
            let solved = factor.solvec(&column.to_owned()).ok()?;
            column.assign(&solved);
        }
        solutions = solutions.qr().ok()?.0;
    }
    Some(solutions)
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    fn found(m: usize, h: usize, valid: impl Fn(f64) -> f64) -> Option<usize> {
        let mut draws = Stream::new(8, Purpose::Probe, h as u64).at(0);
        let hidden = Array2::from_shape_fn((m, h), |_| valid(draws.uniform()));
        let weights = Array2::from_shape_fn((h, h + 5), |_| draws.uniform());
        let space = Space::of(&hidden.dot(&weights).view(), h, 1e-11)?;
        let found = zeros_and_ones(&space)?;
        Some(hidden.columns().into_iter().filter(|column| found.iter().any(|x| x == column)).count())
    }

    #[test]
    fn all_columns_of_zeros_and_ones_follow_from_their_space() {
        let coin = |x| f64::from(u8::from(x < 0.3));
        assert_eq!(found(200, 12, coin), Some(12));
        assert_eq!(found(400, 24, coin), Some(24));
        // Fewer rows than unknowns.
        assert_eq!(found(needed_rows(12) - 1, 12, coin), None);
    }

    #[test]
    fn no_column_is_invented() {
        let mut draws = Stream::new(8, Purpose::Probe, 1).at(0);
        let hidden = Array2::from_shape_fn((200, 12), |_| draws.uniform());
        let space = Space::of(&hidden.view(), 12, 1e-11).unwrap();
        assert_eq!(zeros_and_ones(&space), Some(Vec::new()));
    }
}
