//! Fits hidden columns M (m × n) and their factors V_t (n × k) to all sums M V_t and V_tᵀV_t of a run, given U_t and how V_t
//! follows from U_t and M: alternately least squares for M, and a walk through the iterations that corrects V_t by the sums.
//! The order of the columns is arbitrary.

use ndarray::{Array1, Array2, Axis};

use fednmf_linalg::Cholesky;

/// The observations of one iteration.
#[derive(Debug, Clone)]
pub struct Step {
    /// M V_t, m × k.
    pub product: Array2<f64>,
    /// U after the update by this sum, m × k.
    pub u: Array2<f64>,
}

/// Limits of an entry of M, and its mean.
#[derive(Debug, Clone, Copy)]
pub struct Prior {
    pub low: f64,
    pub high: f64,
    pub mean: f64,
}

/// X with X (A + λI) = B for symmetric A.
pub fn divide(b: &Array2<f64>, a: &Array2<f64>, ridge: f64) -> Option<Array2<f64>> {
    let n = a.nrows();
    let mut cholesky = Cholesky::default();
    if !cholesky.factorise(n, 0.0, |i, j| a[[i, j]] + if i == j { ridge } else { 0.0 }) {
        return None;
    }
    let mut x = b.to_owned();
    for mut row in x.axis_iter_mut(Axis(0)) {
        let mut values = row.to_vec();
        cholesky.solve(&mut values);
        row.assign(&Array1::from(values));
    }
    Some(x)
}

/// The estimate of M after `rounds` of fitting; `first` is the guess of V at the start, `advance` computes V_{t+1} from V_t,
/// MᵀU_t (n × k) and U_tᵀU_t.
pub fn fit(
    steps: &[Step],
    first: &Array2<f64>,
    prior: Prior,
    rounds: usize,
    advance: impl Fn(&mut Array2<f64>, &Array2<f64>, &Array2<f64>),
) -> Option<Array2<f64>> {
    let (n, k) = first.dim();
    let m = steps.first()?.product.nrows();
    let mut vs: Vec<Array2<f64>> = vec![first.clone(); steps.len()];
    let mut data = Array2::from_elem((m, n), prior.mean);
    for round in 0..rounds {
        // M from all sums, near the mean where they contain no information.
        let (mut left, mut right) = (Array2::<f64>::zeros((n, n)), Array2::<f64>::zeros((m, n)));
        for (v, step) in vs.iter().zip(steps) {
            left += &v.dot(&v.t());
            right += &(&step.product - &(Array2::from_elem((m, n), prior.mean).dot(v))).dot(&v.t());
        }
        let trust = 0.3f64.powi((round / 4) as i32).max(1e-9);
        let ridge = trust * left.diag().sum() / n as f64 + f64::MIN_POSITIVE;
        data = divide(&right, &left, ridge)?.mapv(|x| (x + prior.mean).clamp(prior.low, prior.high));
        // V_t from the sums and from its prediction by V_{t−1}.
        let gram = data.t().dot(&data);
        let ridge = trust.max(1e-6) * gram.diag().sum() / n as f64 + f64::MIN_POSITIVE;
        let mut predicted = vs[0].clone();
        for (t, step) in steps.iter().enumerate() {
            if t > 0 {
                predicted = vs[t - 1].clone();
                let u = &steps[t - 1].u;
                advance(&mut predicted, &data.t().dot(u), &u.t().dot(u));
            }
            let left = (&step.product - &data.dot(&predicted)).t().dot(&data);
            let change = divide(&left, &gram, ridge)?;
            vs[t] = (&predicted + &change.t()).mapv(|x| x.max(0.0));
        }
        debug_assert_eq!(vs[0].dim(), (n, k));
    }
    Some(data)
}

/// For each column of the truth the column of the estimate that is nearest among those not yet taken, the best pairs first.
pub fn matched(estimate: &Array2<f64>, truth: &Array2<f64>) -> Array2<f64> {
    let n = truth.ncols();
    let gap = |i: usize, j: usize| {
        let difference = &estimate.column(i) - &truth.column(j);
        difference.dot(&difference)
    };
    let mut pairs: Vec<(f64, usize, usize)> =
        (0..n).flat_map(|j| (0..n).map(move |i| (i, j))).map(|(i, j)| (gap(i, j), i, j)).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut used, mut done, mut out) = (vec![false; n], vec![false; n], truth.clone());
    for (_, i, j) in pairs {
        if !used[i] && !done[j] {
            (used[i], done[j]) = (true, true);
            out.column_mut(j).assign(&estimate.column(i));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_from_the_true_factor_is_nearer_to_the_data_than_their_mean() {
        // Sums fix M and V_t up to a change of basis, so the fit is not exact.
        let first = Array2::from_shape_fn((3, 3), |(i, j)| if i == j { 2.0 } else { 0.25 });
        let truth = Array2::from_shape_fn((6, 3), |(i, j)| ((i * 3 + j) % 5) as f64);
        let steps = vec![Step { product: truth.dot(&first), u: Array2::zeros((6, 3)) }; 2];
        let prior = Prior { low: 0.0, high: 4.0, mean: 2.0 };
        let found = fit(&steps, &first, prior, 60, |_, _, _| ()).unwrap();
        let distance = |m: &Array2<f64>| (m - &truth).mapv(|x| x * x).sum().sqrt();
        assert!(distance(&found) < 0.7 * distance(&Array2::from_elem((6, 3), 2.0)), "{found} {truth}");
    }

    #[test]
    fn columns_are_compared_in_the_best_order() {
        let truth = ndarray::array![[1.0, 5.0, 9.0]];
        assert_eq!(matched(&ndarray::array![[9.5, 1.0, 4.0]], &truth), ndarray::array![[1.0, 4.0, 9.5]]);
    }
}
