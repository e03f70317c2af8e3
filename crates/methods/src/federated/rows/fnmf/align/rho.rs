//! The correlation distance 1 − cor between components, and the significance test of a correlation.

use ndarray::ArrayView2;

use fednmf_linalg::Real;

/// One-sided 5 % point of the standard normal distribution.
const SIGNIFICANT: f64 = 1.644_853_626_951_472_7;

/// distance[r, s] ← 1 − cor(a_r, b_s), infinite where the correlation is not significantly above `above` by Fisher's
/// z-test.
/// `dot` holds ⟨a_r, b_s⟩ for the rows of A and B (k × n); `scratch` has length 4k.
pub fn distances<T: Real>(
    a: &ArrayView2<T>,
    b: &ArrayView2<T>,
    dot: &ArrayView2<T>,
    above: f64,
    scratch: &mut [f64],
    distance: &mut [f64],
) {
    let (k, n) = a.dim();
    let (moments_a, moments_b) = scratch.split_at_mut(2 * k);
    moments(a, moments_a);
    moments(b, moments_b);
    for r in 0..k {
        for s in 0..k {
            let [mean_a, deviation_a, mean_b, deviation_b] =
                [moments_a[2 * r], moments_a[2 * r + 1], moments_b[2 * s], moments_b[2 * s + 1]];
            let covariance = dot[[r, s]].as_f64() / n as f64 - mean_a * mean_b;
            let product = deviation_a * deviation_b;
            let correlation = if product > 0.0 { (covariance / product).clamp(-1.0, 1.0) } else { 0.0 };
            distance[r * k + s] = if is_significant(correlation, above, n) { 1.0 - correlation } else { f64::INFINITY };
        }
    }
}

/// Whether a correlation over n entries is above ρ₀ at the 5 % level: (artanh ρ − artanh ρ₀) √(n − 3) is about standard
/// normal.
pub fn is_significant(correlation: f64, above: f64, n: usize) -> bool {
    (correlation.atanh() - above.atanh()) * (n.saturating_sub(3) as f64).sqrt() > SIGNIFICANT
}

/// Mean and standard deviation of each row, one after the other.
fn moments<T: Real>(rows: &ArrayView2<T>, out: &mut [f64]) {
    let n = rows.ncols().max(1) as f64;
    for (row, out) in rows.rows().into_iter().zip(out.chunks_exact_mut(2)) {
        let mean = row.iter().map(|x| x.as_f64()).sum::<f64>() / n;
        let variance = row.iter().map(|x| (x.as_f64() - mean).powi(2)).sum::<f64>() / n;
        (out[0], out[1]) = (mean, variance.sqrt());
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn distances_are_one_less_the_correlation() {
        let a = array![[1.0, 2.0, 3.0, 4.0, 5.0, 7.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]];
        let b = array![[2.0, 4.0, 6.0, 8.0, 10.0, 14.5], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]];
        let dot = a.dot(&b.t());
        let mut out = [0.0; 4];
        distances(&a.view(), &b.view(), &dot.view(), 0.0, &mut [0.0; 8], &mut out);
        // numpy.corrcoef(a[0], b[0])[0, 1]
        assert!((out[0] - (1.0 - 0.999_554_400_27)).abs() < 1e-9, "{}", out[0]);
        assert_eq!(out[1..], [f64::INFINITY; 3], "falling, or constant");
    }

    #[test]
    fn significance_is_that_of_the_table() {
        // the critical value for n = 103: tanh(1.6449 / 10)
        assert!(is_significant(0.1631, 0.0, 103) && !is_significant(0.1629, 0.0, 103));
        assert!(!is_significant(0.9, 0.0, 3) && is_significant(1.0, 0.0, 200) && !is_significant(f64::NAN, 0.0, 200));
        // tanh(artanh(0.75) + 1.6449 / 10) = 0.8130
        assert!(is_significant(0.814, 0.75, 103) && !is_significant(0.812, 0.75, 103));
    }
}
