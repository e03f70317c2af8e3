//! The scale of the components of a start with penalties. U D and V D⁻¹ have the same product as U and V, but other penalties:
//! where these are large, the first updates would remove whole components. A random start has the scales that follow from the
//! expected sums of its columns, so that it needs no message.

use ndarray::{Array2, ArrayView2};

use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::Real;
use fednmf_linalg::nls::Penalty;

use super::uniform::scale;
use crate::shared::regularization::Penalties;

pub const NORMS: MessageTag = MessageTag::new("start: norms of the components", Payload::Scalar);

/// If only one factor has a penalty, no scale is best: the smaller that factor, the smaller the penalty. The start has this
/// share of the loss.
const SHARE: f64 = 1e-4;
/// Bisection steps for the logarithm of a scale.
const STEPS: usize = 100;

/// Scales the components (own rows of U and of V, × k) such that their penalties are least; `loss` is the loss of the zero
/// factors. Collective if there is a penalty.
pub fn balance<T: Real>(comm: &Communicator, penalties: Penalties, loss: f64, [u, v]: [&mut Array2<T>; 2]) {
    if !penalties.any() {
        return;
    }
    let k = u.ncols();
    let mut norms = [norms(&u.view()), norms(&v.view())].concat();
    comm.sum(NORMS, &mut norms);
    let at = |i: usize, l: usize| norms[i * k + l];
    for l in 0..k {
        let scale = best_scale(penalties, [at(0, l), at(1, l)], [at(2, l), at(3, l)], SHARE * loss / k as f64);
        u.column_mut(l).mapv_inplace(|x| T::from_f64(x.as_f64() * scale));
        v.column_mut(l).mapv_inplace(|x| T::from_f64(x.as_f64() / scale));
    }
}

/// The scales of a random start of U and of V, for an m × n matrix with this sum of entries and the β-divergence: [`scale`], by
/// which the penalties are least.
pub fn random_scales(penalties: Penalties, sum: f64, (m, n): (usize, usize), k: usize, beta: f64) -> [f64; 2] {
    let usual = scale(sum, (m, n), k);
    if !penalties.any() {
        return [usual; 2];
    }
    let entries = m as f64 * n as f64;
    // The usual scale squared is 4 mean / k. The loss of a matrix of equal entries is about this.
    let loss = entries * (0.25 * k as f64 * usual * usual).powf(beta);
    let of_column = |rows: usize| [rows as f64 * usual / 2.0, rows as f64 * usual * usual / 3.0];
    let by = best_scale(penalties, of_column(m), of_column(n), SHARE * loss / k as f64);
    [usual * by, usual / by]
}

/// The factor of a column of U, and divisor of that of V, for which their penalties are least, or `share` if one alone has a
/// larger penalty: a power of two, which changes no digit. Both columns are given by the sums of entries and of squares.
fn best_scale(penalties: Penalties, u: [f64; 2], v: [f64; 2], share: f64) -> f64 {
    let scale = match (penalties.u.is_none(), penalties.v.is_none()) {
        (false, false) => least_sum(|s| slope(penalties.u, u, s), |s| slope(penalties.v, v, s)),
        (false, true) if value(penalties.u, u) > share => reaching(penalties.u, u, share),
        (true, false) if value(penalties.v, v) > share => 1.0 / reaching(penalties.v, v, share),
        _ => 1.0,
    };
    let scale = scale.log2().round().exp2();
    if scale.is_normal() { scale } else { 1.0 }
}

/// The sums of the entries of each column, then of their squares.
fn norms<T: Real>(x: &ArrayView2<'_, T>) -> Vec<f64> {
    let sum = |f: fn(f64) -> f64| x.columns().into_iter().map(move |c| c.iter().map(|x| f(x.as_f64())).sum::<f64>());
    sum(|x| x).chain(sum(|x| x * x)).collect()
}

/// The penalty on a column with these sums.
fn value(penalty: Penalty, [sum, squares]: [f64; 2]) -> f64 {
    penalty.l1 * sum + 0.5 * penalty.l2 * squares
}

/// The derivative by ln s of the penalty on s times a column with these sums.
fn slope(penalty: Penalty, [sum, squares]: [f64; 2], s: f64) -> f64 {
    penalty.l1 * sum * s + penalty.l2 * squares * s * s
}

/// The s with which the penalty is `target`.
fn reaching(penalty: Penalty, [sum, squares]: [f64; 2], target: f64) -> f64 {
    let linear = penalty.l1 * sum;
    2.0 * target / (linear + (linear * linear + 2.0 * penalty.l2 * squares * target).sqrt())
}

/// The s that minimises p(s) + q(1 / s), by the derivatives of p and q by the logarithms of their arguments.
fn least_sum(p: impl Fn(f64) -> f64, q: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (-300.0, 300.0);
    for _ in 0..STEPS {
        let middle: f64 = 0.5 * (low + high);
        let s = middle.exp();
        if p(s) < q(s.recip()) { low = middle } else { high = middle }
    }
    (0.5 * (low + high)).exp()
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn penalties_are_least_and_products_stay() {
        let comm = Communicator::local();
        let (u, v) = (array![[1.0, 0.0], [2.0, 5.0]], array![[3.0, 1.0], [0.0, 2.0], [4.0, 2.0]]);
        let product = u.dot(&v.t());
        let (l1, l2) = (Penalty { l1: 3.0, l2: 0.0 }, Penalty { l1: 0.0, l2: 100.0 });
        for (of_u, of_v) in [(l1, l1), (l2, l1), (l1, Penalty { l1: 1e-6, l2: 1e-9 }), (l2, Penalty::NONE)] {
            let penalties = Penalties { u: of_u, v: of_v };
            let (mut a, mut b) = (u.clone(), v.clone());
            balance(&comm, penalties, 50.0, [&mut a, &mut b]);
            assert!((&a.dot(&b.t()) - &product).iter().all(|e: &f64| e.abs() < 1e-12));
            let found = penalties.value(&a.view(), &b.view());
            if of_v.is_none() {
                assert!(found < 2.0 * SHARE * 50.0, "{found}");
                continue;
            }
            // Powers of two are at most √2 from the best scale.
            for s in [0.5, 2.0] {
                let other = penalties.value(&(&a * s).view(), &(&b / s).view());
                assert!(found <= other, "{penalties:?}: {found} {other}");
            }
        }
        let (mut a, mut b) = (u.clone(), v.clone());
        balance(&comm, Penalties { u: Penalty::NONE, v: Penalty::NONE }, 50.0, [&mut a, &mut b]);
        assert_eq!((a, b), (u, v));
    }

    #[test]
    fn a_random_start_has_the_scales_of_its_penalties() {
        let (shape, k) = ((40, 10), 4);
        let of = |u: Penalty, v: Penalty, beta: f64| random_scales(Penalties { u, v }, 1600.0, shape, k, beta);
        let penalty = |l1: f64, l2: f64| Penalty { l1, l2 };
        assert_eq!(of(Penalty::NONE, Penalty::NONE, 1.0), [2.0; 2]);
        // Penalties as of scikit-learn are equal for factors of any shape.
        assert_eq!(of(penalty(1.0, 0.0), penalty(4.0, 0.0), 1.0), [2.0; 2]);
        assert_eq!(of(penalty(16.0, 0.0), penalty(4.0, 0.0), 1.0), [0.5, 8.0]);
        for (u, v) in [
            (penalty(30.0, 0.0), Penalty::NONE),
            (penalty(3.0, 7.0), Penalty::NONE),
            (Penalty::NONE, penalty(0.0, 9.0)),
        ] {
            for beta in [0.0, 1.0, 2.0] {
                let [a, b] = of(u, v, beta);
                assert_eq!(a * b, 4.0);
                let column = |rows: f64, s: f64| [rows * s / 2.0, rows * s * s / 3.0];
                let part = value(u, column(40.0, a)) + value(v, column(10.0, b));
                let share = SHARE * 400.0 * 4f64.powf(beta) / 4.0;
                assert!((0.25..4.0).contains(&(part / share)), "{part} {share}");
            }
        }
    }
}
