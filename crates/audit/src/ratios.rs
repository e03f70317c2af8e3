//! What a row adds to the sums of a multiplicative update for a β-divergence: its entries, weighted by their fit.
//!
//! The update of V sums N = Σ_r w_r u_rᵀ over the rows, with w_rj = x_rj f_rj^(β−2) and the fit f_r = V u_r. So the columns of N are
//! combinations of the w_r of hidden rows, and membership follows from the distances of w_r from their span
//! ([`deviations`](super::deviations)). An attacker who has a row fits u_r to the shared V.

use ndarray::{Array2, ArrayView2};

/// Multiplicative steps that fit a row.
const STEPS: usize = 50;

/// The fit U Vᵀ (r × n), with a bound that keeps zeros out of divisions.
fn fit(u: &Array2<f64>, v: &ArrayView2<f64>) -> Array2<f64> {
    u.dot(&v.t()).mapv(|f| f.max(f64::MIN_POSITIVE.sqrt()))
}

/// The weighted entries of rows (r × n) with the factor `u` (r × k): x f^(β−2).
pub fn weighted(rows: &ArrayView2<f64>, u: &Array2<f64>, v: &ArrayView2<f64>, beta: f64) -> Array2<f64> {
    rows * &fit(u, v).mapv(|f| f.powf(beta - 2.0))
}

/// The weighted entries of rows whose factor has to be fitted to V (n × k) first.
pub fn fitted(rows: &ArrayView2<f64>, v: &ArrayView2<f64>, beta: f64) -> Array2<f64> {
    let total = v.sum().max(f64::MIN_POSITIVE);
    let mut u = Array2::from_shape_fn((rows.nrows(), v.ncols()), |(row, _)| rows.row(row).sum() / total);
    for _ in 0..STEPS {
        let denominator = fit(&u, v).mapv(|f| f.powf(beta - 1.0)).dot(v);
        u *= &weighted(rows, &u, v, beta).dot(v);
        u /= &denominator.mapv(|x| x.max(f64::MIN_POSITIVE));
    }
    weighted(rows, &u, v, beta)
}

/// The sum N (n × k) of rows with the factor `u`.
pub fn sum(rows: &ArrayView2<f64>, u: &Array2<f64>, v: &ArrayView2<f64>, beta: f64) -> Array2<f64> {
    weighted(rows, u, v, beta).reversed_axes().dot(u)
}

/// V∘N, as methods for β = 1 send it, without V (n × k); 0 where V is.
pub fn without_factor(terms: &Array2<f64>, v: &ArrayView2<f64>) -> Array2<f64> {
    let mut all = terms.clone();
    all.zip_mut_with(v, |x, &v| *x = if v > 0.0 { *x / v } else { 0.0 });
    all
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;
    use crate::deviations::Deviations;
    use crate::membership::auc;

    #[test]
    fn the_sum_is_that_of_the_update_and_the_fit_is_exact_where_it_can_be() {
        let mut stream = Stream::new(3, Purpose::Probe, 0).at(0);
        let mut draw = |rows, cols| Array2::from_shape_fn((rows, cols), |_| 0.1 + stream.uniform());
        let (u, v) = (draw(5, 2), draw(30, 2));
        let x = u.dot(&v.t());
        for beta in [0.5, 1.0, 1.5] {
            // An exact fit leaves f^(β−1).
            let found = fitted(&x.view(), &v.view(), beta);
            let expected = x.mapv(|f| f.powf(beta - 1.0));
            let worst = (&found / &expected).iter().fold(0.0, |worst: f64, ratio| worst.max((ratio - 1.0).abs()));
            assert!(worst < 0.05, "{beta}: {worst}");
        }
        let naive =
            Array2::from_shape_fn((30, 2), |(j, l)| (0..5).map(|r| x[[r, j]] / x[[r, j]] * u[[r, l]]).sum::<f64>());
        let terms = sum(&x.view(), &u, &v.view(), 1.0);
        assert!((&terms - &naive).iter().all(|e| e.abs() < 1e-9));
        let mut zero = v.clone();
        zero[[0, 0]] = 0.0;
        let without = without_factor(&(&terms * &zero), &zero.view());
        assert!(without[[0, 0]] == 0.0 && (without[[1, 1]] / terms[[1, 1]] - 1.0).abs() < 1e-12);
    }

    /// Counts of six programmes, a row in a few of them.
    fn counts(draws: &mut impl FnMut() -> f64, rows: usize, programmes: &Array2<f64>) -> Array2<f64> {
        let weights = Array2::from_shape_fn((rows, 6), |_| if draws() < 0.4 { -draws().ln() } else { 0.0 });
        weights.dot(programmes).mapv(|mean| (0..40).filter(|_| draws() < mean / 40.0).count() as f64)
    }

    /// Rows of two owners are factorised, and one attacks the other by its sum of the last update.
    #[test]
    fn weighted_entries_distinguish_members_better_than_the_rows_themselves() {
        let mut stream = Stream::new(5, Purpose::Probe, 1).at(0);
        let mut draws = || stream.uniform();
        let programmes = Array2::from_shape_fn((6, 300), |_| if draws() < 0.3 { -2.0 * draws().ln() } else { 0.02 });
        let [known, members, others] = [60, 80, 80].map(|rows| counts(&mut draws, rows, &programmes));
        let beta = 1.5;
        let mut v = Array2::from_shape_fn((300, 8), |_| 0.1 + draws());
        let [mut u_known, mut u] = [60, 80].map(|rows| Array2::from_shape_fn((rows, 8), |_| 0.1 + draws()));
        let mut sums = Array2::zeros((300, 8));
        for _ in 0..20 {
            let mut whole = (Array2::<f64>::zeros((300, 8)), Array2::<f64>::zeros((300, 8)));
            for (x, u) in [(&known, &mut u_known), (&members, &mut u)] {
                let below = fit(u, &v.view()).mapv(|f| f.powf(beta - 1.0)).dot(&v);
                *u *= &(weighted(&x.view(), u, &v.view(), beta).dot(&v) / below);
                sums = sum(&x.view(), u, &v.view(), beta);
                whole.0 += &sums;
                whole.1 += &fit(u, &v.view()).mapv(|f| f.powf(beta - 1.0)).t().dot(u);
            }
            v *= &(whole.0 / whole.1);
        }
        let of = |feature: &dyn Fn(&Array2<f64>) -> Array2<f64>| {
            let deviations = Deviations::of(&feature(&known).view(), 8).unwrap();
            let space = deviations.space(&sums.view(), 300, 1e-11).unwrap();
            let distances = |rows: &Array2<f64>| space.distances(&deviations.from_common(&feature(rows).view()).view());
            auc(&distances(&members), &distances(&others)).unwrap()
        };
        let (by_weight, plain) = (of(&|rows| fitted(&rows.view(), &v.view(), beta)), of(&Array2::clone));
        assert!(by_weight > 0.6 && by_weight > plain, "{by_weight}, of rows as they are {plain}");
    }
}
