//! Maximum a posteriori estimates of columns from noised sums, with the variance of the noise known, for a normal prior
//! with bounds. V is unknown too, but it is a function of the columns and of the public U, so the estimates alternate
//! between both.

use ndarray::{Array1, Array2, ArrayView2, Axis};

use super::dynamics::divide;

/// The observations of one iteration: sums with one term per column, with noise of the same standard deviation on each
/// entry.
#[derive(Debug, Clone)]
pub struct NoisedStep {
    /// U before the update by these sums, m × k.
    pub u: Array2<f64>,
    /// Σ m vᵀ, m × k.
    pub product: Array2<f64>,
    pub noise: f64,
}

/// Prior knowledge of an entry.
#[derive(Debug, Clone)]
pub struct Prior {
    pub low: f64,
    pub high: f64,
    /// The mean of the entries of each row.
    pub mean: Array1<f64>,
    pub variance: f64,
}

/// Rounds of alternation; further ones make no significant difference.
const ROUNDS: usize = 30;

/// All columns (m × n) from the sums of all steps, in any order. `first` is a guess, `fit` computes V (n × k) for
/// columns and U. `None` if the equations cannot be solved.
pub fn columns(
    steps: &[NoisedStep],
    first: &Array2<f64>,
    prior: &Prior,
    fit: impl Fn(&ArrayView2<f64>, &ArrayView2<f64>) -> Array2<f64>,
) -> Option<Array2<f64>> {
    let n = first.ncols();
    let mut data = first.clone();
    let mean = Array2::from_shape_fn(first.dim(), |(i, _)| prior.mean[i]);
    for _ in 0..ROUNDS {
        let (mut left, mut right) = (Array2::<f64>::zeros((n, n)), Array2::<f64>::zeros(first.dim()));
        for step in steps {
            let v = fit(&data.view(), &step.u.view());
            let weight = (step.noise * step.noise).recip();
            left.scaled_add(weight, &v.dot(&v.t()));
            right.scaled_add(weight, &(&step.product - &mean.dot(&v)).dot(&v.t()));
        }
        let next = (divide(&right, &left, prior.variance.recip())? + &mean).mapv(|x| x.clamp(prior.low, prior.high));
        // A guess that is too large makes V too large and the next guess too small; their mean is better than both.
        data = 0.5 * (data + next);
    }
    Some(data)
}

/// One column from sums from which all other terms were subtracted, so that m vᵀ with noise remains.
pub fn column(
    steps: &[NoisedStep],
    prior: &Prior,
    fit: impl Fn(&ArrayView2<f64>, &ArrayView2<f64>) -> Array2<f64>,
) -> Array1<f64> {
    let guess = prior.mean.clone().insert_axis(Axis(1));
    // One unknown for each row, so the equations always have a solution.
    columns(steps, &guess, prior, fit).map_or_else(|| prior.mean.clone(), |found| found.column(0).to_owned())
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::nls::Pivoting;
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    fn fit(columns: &ArrayView2<f64>, u: &ArrayView2<f64>) -> Array2<f64> {
        let mut v = Array2::zeros((columns.ncols(), u.ncols()));
        Pivoting::new(u.ncols()).solve(&mut v.view_mut(), &columns.t().dot(u).view(), &u.t().dot(u).view());
        v
    }

    /// The error of the estimate of one column relative to that of a guess of the mean.
    fn error(noise: f64) -> f64 {
        let (m, k) = (20, 3);
        let mut draws = Stream::new(8, Purpose::Probe, 0).at(0);
        let truth = Array1::from_shape_fn(m, |_| draws.uniform());
        let steps: Vec<NoisedStep> = (0..8)
            .map(|_| {
                let u = Array2::from_shape_fn((m, k), |_| draws.uniform());
                let v = fit(&truth.view().insert_axis(Axis(1)), &u.view());
                let mut product = truth.view().insert_axis(Axis(1)).dot(&v);
                product.mapv_inplace(|x| x + noise * draws.normal());
                NoisedStep { u, product, noise }
            })
            .collect();
        let mean = Array1::from_elem(m, 0.5);
        let prior = Prior { low: 0.0, high: 1.0, mean: mean.clone(), variance: 1.0 / 12.0 };
        let found = column(&steps, &prior, fit);
        let distance = |x: &Array1<f64>| (x - &truth).mapv(|x| x * x).sum().sqrt();
        distance(&found) / distance(&mean)
    }

    #[test]
    fn little_noise_gives_a_column_away_and_much_does_not() {
        assert!(error(1e-6) < 1e-3, "{}", error(1e-6));
        assert!(error(0.1) < 0.5, "{}", error(0.1));
        // With nothing but noise the estimate is the prior's mean.
        let lost = error(30.0);
        assert!(lost > 0.9 && lost < 1.1, "{lost}");
    }
}
