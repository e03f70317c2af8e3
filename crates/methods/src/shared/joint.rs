//! The least squares problems of joint NMF, for several data sets with the same columns: X_i ≈ U_i (V + W_i)ᵀ, where V is shared
//! and the data set's own part W_i has the penalty ½ λ ‖U_i W_iᵀ‖² (Yang and Michailidis 2016). Each is row-wise:
//!
//! | block | Gram matrix | right-hand side |
//! | --- | --- | --- |
//! | U_i | (V + W_i)ᵀ(V + W_i) + λ W_iᵀW_i | X_i (V + W_i) |
//! | W_i | (1 + λ) A_i | B_i − V A_i |
//! | V | Σ_i A_i | Σ_i (B_i − W_i A_i) |
//!
//! with A_i = U_iᵀU_i and B_i = X_iᵀU_i. In the online form (Gao et al., "Iterative single-cell multi-omic integration using
//! online learning", Nature Biotechnology 39, 2021) A_i and B_i are sums over batches of rows, in which earlier ones lose weight.

use ndarray::{Array2, Zip};

use fednmf_linalg::nls::{Penalty, Sweep, sweep};
use fednmf_linalg::{Block, Real, gram};

use super::extrapolation::inner;
use super::least_squares::LeastSquaresUpdate;

/// combined ← V + W
pub fn combine<T: Real>(v: &Array2<T>, own: &Array2<T>, combined: &mut Array2<T>) {
    Zip::from(combined).and(v).and(own).for_each(|sum, &v, &own| *sum = v + own);
}

/// X ← X − F G, for X and F n × k in the same memory order, and G k × k.
pub fn subtract_product<T: Real>(x: &mut Array2<T>, f: &Array2<T>, g: &Array2<T>) {
    if x.is_standard_layout() {
        for (mut x, f) in x.rows_mut().into_iter().zip(f.rows()) {
            for (&f, g) in f.iter().zip(g.rows()) {
                x.scaled_add(-f, &g);
            }
        }
    } else {
        for (mut x, g) in x.columns_mut().into_iter().zip(g.columns()) {
            for (f, &g) in f.columns().into_iter().zip(g) {
                x.scaled_add(-g, &f);
            }
        }
    }
}

/// A data set: its own part of the components, and its statistics.
pub struct JointSet<T: Real> {
    /// W (n × k).
    pub own: Array2<T>,
    /// A (k × k).
    pub a: Array2<T>,
    /// B (n × k), in the memory order of W and V.
    pub b: Array2<T>,
}

/// Rows of a data set, with their U for the present V and W.
pub struct JointRows<T> {
    /// U (rows × k).
    pub u: Array2<T>,
    /// ‖X − U (V + W)ᵀ‖².
    pub residual2: f64,
    /// ‖U Wᵀ‖².
    pub own2: f64,
}

impl<T: Real> JointRows<T> {
    /// The U ≥ 0 of all rows of `block` (rows × n), for V and W (n × k) and the penalty λ.
    pub fn solve(block: &Block<T>, v: &Array2<T>, own: &Array2<T>, lambda: f64) -> Self {
        let ((rows, n), k, order) = (block.shape(), v.ncols(), block.order());
        let mut combined = order.zeros(n, k);
        combine(v, own, &mut combined);
        let [mut g, mut own_gram, mut a] = [(); 3].map(|()| Array2::zeros((k, k)));
        gram(&combined.view(), &mut g.view_mut());
        gram(&own.view(), &mut own_gram.view_mut());
        g.scaled_add(T::from_f64(lambda), &own_gram);
        let (mut rhs, mut u) = (order.zeros(rows, k), order.zeros(rows, k));
        block.part_mul(0..rows, &combined.view(), &mut rhs.view_mut());
        LeastSquaresUpdate::new(true, 1, k).apply(&mut u, &rhs, &g, Penalty::NONE);
        gram(&u.view(), &mut a.view_mut());
        let residual2 = block.residual2(&u.view(), &combined.view());
        let own2 = inner(&a.view(), &own_gram.view()).max(0.0);
        JointRows { u, residual2, own2 }
    }
}

impl<T: Real> JointSet<T> {
    /// Multiplies the statistics by ρ, adds a batch of rows, and updates W by a sweep of coordinate descent.
    pub fn add(&mut self, block: &Block<T>, rows: &JointRows<T>, rho: f64, v: &Array2<T>, lambda: f64) {
        let JointSet { own, a, b } = self;
        let (u, (n, k)) = (&rows.u, v.dim());
        let (mut term_a, mut term_b) = (Array2::zeros((k, k)), block.order().zeros(n, k));
        gram(&u.view(), &mut term_a.view_mut());
        block.part_tmul_add(0..u.nrows(), &u.view(), &mut term_b.view_mut());
        let rho = T::from_f64(rho);
        a.zip_mut_with(&term_a, |a, term| *a = rho * *a + *term);
        b.zip_mut_with(&term_b, |b, term| *b = rho * *b + *term);
        let mut rhs = b.clone();
        subtract_product(&mut rhs, v, a);
        // Divided by 1 + λ, so that the Gram matrix is that of the sum.
        let share = T::from_f64((1.0 + lambda).recip());
        rhs.mapv_inplace(|x| x * share);
        step(own, &rhs, a);
    }
}

/// Updates V by a sweep of coordinate descent on the statistics of all data sets.
pub fn update_shared<T: Real>(v: &mut Array2<T>, sets: &[JointSet<T>]) {
    let (mut g, mut rhs) = (Array2::zeros((v.ncols(), v.ncols())), Array2::zeros(v.dim()));
    for JointSet { own, a, b } in sets {
        g += a;
        rhs += b;
        subtract_product(&mut rhs, own, a);
    }
    step(v, &rhs, &g);
}

fn step<T: Real>(x: &mut Array2<T>, rhs: &Array2<T>, g: &Array2<T>) {
    let settings = Sweep { mu: T::zero(), passes: 1, penalty: Penalty::NONE };
    sweep(&mut x.view_mut(), &rhs.view(), &g.view(), settings);
}

#[cfg(test)]
mod tests {
    use ndarray::ShapeBuilder;

    use super::*;

    #[test]
    fn a_product_is_subtracted_in_either_memory_order() {
        let number = |(i, j): (usize, usize)| (3 * i + 7 * j) as f64 % 5.0 - 1.0;
        let g = Array2::from_shape_fn((3, 3), number);
        let (x, f) = (Array2::from_shape_fn((6, 3), number), Array2::from_shape_fn((6, 3), |(i, j)| number((j, i))));
        let expected = &x - &f.dot(&g);
        let by_columns = |a: &Array2<f64>| Array2::from_shape_fn((6, 3).f(), |at| a[at]);
        for (mut x, f) in [(x.clone(), f.clone()), (by_columns(&x), by_columns(&f))] {
            subtract_product(&mut x, &f, &g);
            assert_eq!(x, expected);
        }
    }
}
