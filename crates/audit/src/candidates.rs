//! A list of candidates, among which members are: sums X_hᵀ W (d × q) of hidden vectors are regressed on the candidates.
//!
//! Members that the list has all of explain the sums, by weights W that no method of this program makes negative. A ridge keeps
//! the weights of the others small, of which there may be more than entries.

use ndarray::ArrayView2;
use ndarray_linalg::{FactorizeC, SolveC, UPLO};

/// The ridge, relative to the mean square of a candidate.
const RIDGE: f64 = 0.1;

/// A score of each candidate (c × d), lower for members: minus its positive weights in a ridge regression of the sums (q × d) on all
/// candidates. Each sum counts alike. Vectors are deviations from what they have in common. `None` where that is nothing.
pub fn scores(candidates: &ArrayView2<f64>, sums: &ArrayView2<f64>) -> Option<Vec<f64>> {
    let count = candidates.nrows();
    let mut products = candidates.dot(&candidates.t());
    let ridge = RIDGE * products.diag().mean()?;
    if !(ridge > 0.0 && ridge.is_finite()) {
        return None;
    }
    products.diag_mut().mapv_inplace(|x| x + ridge);
    let solver = products.factorizec(UPLO::Lower).ok()?;
    let mut scores = vec![0.0; count];
    for sum in sums.rows().into_iter().filter(|sum| sum.dot(sum) > 0.0) {
        let weights = solver.solvec(&(candidates.dot(&sum) / sum.dot(&sum).sqrt())).ok()?;
        scores.iter_mut().zip(&weights).for_each(|(score, weight)| *score -= weight.max(0.0));
    }
    Some(scores)
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};
    use ndarray::{Array2, Axis, concatenate, s};

    use super::*;
    use crate::membership::auc;

    #[test]
    fn members_have_larger_weights_even_if_sums_are_few() {
        let mut draws = Stream::new(12, Purpose::Probe, 1).at(0);
        let mut matrix =
            |rows: usize, cols: usize| Array2::from_shape_fn((rows, cols), |_| draws.uniform().powi(4) - 0.2);
        let (members, others) = (matrix(80, 400), matrix(80, 400));
        let weights = matrix(80, 8).mapv(|x| x + 0.2);
        let sums = members.t().dot(&weights).reversed_axes();
        let found = |sums: &Array2<f64>| {
            let listed = concatenate(Axis(0), &[members.view(), others.view()]).unwrap();
            let all = scores(&listed.view(), &sums.view()).unwrap();
            auc(&all[..80], &all[80..]).unwrap()
        };
        assert!(found(&sums) > 0.95, "{}", found(&sums));
        // Sums of none of them.
        let strangers = matrix(80, 400).t().dot(&weights).reversed_axes();
        assert!((0.35..0.65).contains(&found(&strangers)), "{}", found(&strangers));
        assert_eq!(scores(&Array2::zeros((3, 5)).view(), &sums.slice(s![.., ..5])), None);
    }
}
