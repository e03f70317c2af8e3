//! The scale of the components of a start with penalties. U D and V D⁻¹ have the same product as U and V, but other penalties:
//! where these are large, the first updates would remove whole components.

use ndarray::{Array2, ArrayView2};

use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::Real;
use fednmf_linalg::nls::Penalty;

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
        let u_at = |s: f64| value(penalties.u, at(0, l), at(1, l), s);
        let v_at = |s: f64| value(penalties.v, at(2, l), at(3, l), s);
        let share = SHARE * loss / k as f64;
        let scale = match (penalties.u.is_none(), penalties.v.is_none()) {
            (false, false) => {
                least_sum(|s| slope(penalties.u, at(0, l), at(1, l), s), |s| slope(penalties.v, at(2, l), at(3, l), s))
            }
            (false, true) if u_at(1.0) > share => reaching(penalties.u, at(0, l), at(1, l), share),
            (true, false) if v_at(1.0) > share => 1.0 / reaching(penalties.v, at(2, l), at(3, l), share),
            _ => 1.0,
        };
        // A power of two changes no digit.
        let scale = scale.log2().round().exp2();
        if scale.is_normal() {
            u.column_mut(l).mapv_inplace(|x| T::from_f64(x.as_f64() * scale));
            v.column_mut(l).mapv_inplace(|x| T::from_f64(x.as_f64() / scale));
        }
    }
}

/// The sums of the entries of each column, then of their squares.
fn norms<T: Real>(x: &ArrayView2<'_, T>) -> Vec<f64> {
    let sum = |f: fn(f64) -> f64| x.columns().into_iter().map(move |c| c.iter().map(|x| f(x.as_f64())).sum::<f64>());
    sum(|x| x).chain(sum(|x| x * x)).collect()
}

/// The penalty on a component with these norms, multiplied by s.
fn value(penalty: Penalty, sum: f64, squares: f64, s: f64) -> f64 {
    penalty.l1 * sum * s + 0.5 * penalty.l2 * squares * s * s
}

/// Its derivative by ln s.
fn slope(penalty: Penalty, sum: f64, squares: f64, s: f64) -> f64 {
    penalty.l1 * sum * s + penalty.l2 * squares * s * s
}

/// The s with which the penalty is `target`.
fn reaching(penalty: Penalty, sum: f64, squares: f64, target: f64) -> f64 {
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
}
