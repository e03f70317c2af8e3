//! Membership inference: rows that a factor was fitted to are fitted better by it than others (Shokri et al. 2017).

use ndarray::{Array2, ArrayView2};

use fednmf_linalg::gram;
use fednmf_linalg::nls::Pivoting;

/// How badly V (n × k) fits each row (c × n): the relative residual of its nonnegative least squares; 1 for a row of zeros.
pub fn misfits(rows: &ArrayView2<f64>, v: &ArrayView2<f64>) -> Vec<f64> {
    let k = v.ncols();
    let mut g = Array2::zeros((k, k));
    gram(v, &mut g.view_mut());
    let right = rows.dot(v);
    let mut u = Array2::zeros(right.dim());
    Pivoting::new(k).solve(&mut u.view_mut(), &right.view(), &g.view());
    let residual = rows - &u.dot(&v.t());
    let norm2 = |x: ndarray::ArrayView1<'_, f64>| x.dot(&x);
    let each = residual.rows().into_iter().zip(rows.rows());
    each.map(|(left, row)| if norm2(row) > 0.0 { (norm2(left) / norm2(row)).sqrt() } else { 1.0 }).collect()
}

/// The area under the ROC curve of a guess by `scores`, lower for members: the probability that a member has a lower score
/// than another row, ties counting half. ½ is no better than chance. `None` without both.
pub fn auc(members: &[f64], others: &[f64]) -> Option<f64> {
    if members.is_empty() || others.is_empty() {
        return None;
    }
    let mut sorted = others.to_vec();
    sorted.sort_by(f64::total_cmp);
    let above = |score: f64| {
        let (less, upto) = (sorted.partition_point(|&x| x < score), sorted.partition_point(|&x| x <= score));
        (sorted.len() - upto) as f64 + 0.5 * (upto - less) as f64
    };
    Some(members.iter().map(|&score| above(score)).sum::<f64>() / members.len() as f64 / others.len() as f64)
}

/// The probability of an [`auc`] of at least this if members and others do not differ, for large numbers of both (Mann and Whitney
/// 1947).
pub fn chance_of(auc: f64, members: usize, others: usize) -> f64 {
    0.5 * libm::erfc((auc - 0.5) / deviation(members, others) / std::f64::consts::SQRT_2)
}

/// The standard deviation of an [`auc`] if members and others do not differ.
pub fn deviation(members: usize, others: usize) -> f64 {
    let (members, others) = (members as f64, others as f64);
    ((members + others + 1.0) / (12.0 * members * others)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_that_of_the_definition() {
        assert_eq!(auc(&[1.0, 2.0], &[3.0, 4.0]), Some(1.0));
        assert_eq!(auc(&[3.0], &[1.0, 2.0]), Some(0.0));
        // Of four pairs, one is right and one is a tie.
        assert_eq!(auc(&[1.0, 5.0], &[1.0, 3.0]), Some(0.375));
        assert_eq!(auc(&[], &[1.0]), None);
    }

    #[test]
    fn chance_is_that_of_the_normal_approximation() {
        // scipy.stats.norm.sf(0.1 / sqrt(151 / (12 * 90 * 60)))
        assert!((chance_of(0.6, 90, 60) - 0.019_152_9).abs() < 1e-6, "{}", chance_of(0.6, 90, 60));
        assert!((chance_of(0.5, 7, 9) - 0.5).abs() < 1e-15 && chance_of(1.0, 50, 50) < 1e-15);
    }

    #[test]
    fn rows_in_the_cone_fit_and_others_do_not() {
        let v = ndarray::array![[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]];
        let rows = ndarray::array![[2.0, 2.0, 5.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]];
        let found = misfits(&rows.view(), &v.view());
        assert!(found[0] < 1e-12 && (found[1] - 0.5f64.sqrt()).abs() < 1e-12 && found[2] == 1.0, "{found:?}");
    }
}
