//! Entropic transport between components (Cuturi 2013), in log space so that no cost is too large for an exponential.

/// Regularisation in units of the mean cost. With 0.005 the first rounds are unstable; with 0.2 all components coincide.
const REGULARISATION: f64 = 0.03;
/// Maximum number of scalings of rows and columns.
const SWEEPS: usize = 200;
/// Largest change of a potential, in units of the regularisation, at which the scaling has converged.
const CONVERGED: f64 = 1e-6;

/// The scaling with its memory. The potentials are kept as the next start.
#[derive(Debug, Clone)]
pub struct Sinkhorn {
    k: usize,
    row: Vec<f64>,
    column: Vec<f64>,
}

impl Sinkhorn {
    pub fn new(k: usize) -> Self {
        Sinkhorn { k, row: vec![0.0; k], column: vec![0.0; k] }
    }

    pub fn reset(&mut self) {
        self.row.fill(0.0);
        self.column.fill(0.0);
    }

    /// plan (k × k) ← exp((f_r + g_s − cost_rs) / ε), scaled to unit row and column sums, then its rows to 1. An infinite
    /// cost forbids a pair; a row with only forbidden pairs stays 0.
    pub fn solve(&mut self, cost: &[f64], plan: &mut [f64]) {
        let k = self.k;
        let (count, sum) = cost.iter().filter(|c| c.is_finite()).fold((0usize, 0.0), |(n, s), c| (n + 1, s + c));
        let epsilon = (REGULARISATION * sum / count.max(1) as f64).max(f64::MIN_POSITIVE);
        for _ in 0..SWEEPS {
            let mut change = 0.0f64;
            for r in 0..k {
                let new = soft_min((0..k).map(|s| cost[r * k + s] - self.column[s]), epsilon);
                // A row without a partner is ignored.
                let new = if new.is_finite() { new } else { 0.0 };
                change = change.max((new - self.row[r]).abs());
                self.row[r] = new;
            }
            for s in 0..k {
                let new = soft_min((0..k).map(|r| cost[r * k + s] - self.row[r]), epsilon);
                self.column[s] = if new.is_finite() { new } else { 0.0 };
            }
            if change <= CONVERGED * epsilon {
                break;
            }
        }
        for r in 0..k {
            let plan = &mut plan[r * k..(r + 1) * k];
            let whole = soft_min((0..k).map(|s| cost[r * k + s] - self.column[s]), epsilon);
            for (s, p) in plan.iter_mut().enumerate() {
                let share = (whole + self.column[s] - cost[r * k + s]) / epsilon;
                *p = if share.is_nan() { 0.0 } else { share.exp() };
            }
        }
    }
}

/// −ε log Σ exp(−x/ε); infinite if all values are infinite.
fn soft_min(values: impl Iterator<Item = f64> + Clone, epsilon: f64) -> f64 {
    let smallest = values.clone().fold(f64::INFINITY, f64::min);
    if !smallest.is_finite() {
        return smallest;
    }
    smallest - epsilon * values.map(|x| ((smallest - x) / epsilon).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::random::{Purpose, Stream};

    use super::*;

    #[test]
    fn sums_are_one_and_the_cheap_pairs_are_taken() {
        let k = 7;
        let mut cursor = Stream::new(2, Purpose::Probe, 0).at(0);
        // row r is nearest to column (3 r) mod 7
        let cost: Vec<f64> =
            (0..k * k).map(|p| if (3 * (p / k)) % k == p % k { 0.01 } else { 1.0 + cursor.uniform() }).collect();
        let mut plan = vec![0.0; k * k];
        Sinkhorn::new(k).solve(&cost, &mut plan);
        for r in 0..k {
            assert!((plan[r * k..(r + 1) * k].iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(((0..k).map(|s| plan[s * k + r]).sum::<f64>() - 1.0).abs() < 1e-4);
            assert!(plan[r * k + (3 * r) % k] > 0.99);
        }
    }

    #[test]
    fn huge_costs_and_forbidden_pairs_do_no_harm() {
        let inf = f64::INFINITY;
        let cost = [1e200, 2e200, inf, inf, inf, inf, 3e200, inf, 1e200];
        let mut plan = [0.0; 9];
        Sinkhorn::new(3).solve(&cost, &mut plan);
        assert!(plan.iter().all(|p| p.is_finite()) && plan[3..6] == [0.0; 3]);
        assert!((plan[0] + plan[1] - 1.0).abs() < 1e-9 && (plan[6] + plan[8] - 1.0).abs() < 1e-9);
        let mut plan = [1.0; 9];
        Sinkhorn::new(3).solve(&[inf; 9], &mut plan);
        assert_eq!(plan, [0.0; 9]);
        Sinkhorn::new(3).solve(&[0.0; 9], &mut plan);
        assert!(plan.iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-12), "{plan:?}");
    }
}
