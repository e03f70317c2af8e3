//! The exact solution for one factor with the other fixed.

use std::any::Any;

use ndarray::{Array2, ArrayView1, ArrayView2, Axis, s};

use super::Penalty;
use super::bpp::Pivoting;
use super::coordinate_descent::{Sweep, sweep};
use crate::{Block, Order, Real, gram};

/// Rows that are solved at a time, since the solver keeps a state for each.
const STEP: usize = 4096;
/// Entries of data in f32 that are converted at a time: a megabyte.
const CONVERTED: usize = 1 << 17;
/// Passes of coordinate descent before block principal pivoting. They are cheap, and most of their signs are those of the
/// solution, so that few exchanges remain.
const PASSES: usize = 8;

/// The U ≥ 0 (rows × k) that minimises ½‖M − U Vᵀ‖_F² and the penalty on U, for a block M (rows × columns) and a fixed V
/// (columns × k). Computed in f64.
pub fn project<T: Real>(block: &Block<T>, v: &ArrayView2<'_, T>, penalty: Penalty) -> Array2<T> {
    let equations = NormalEquations::new(v, penalty, block.order());
    let mut solver = Pivoting::new(v.ncols());
    in_double(block, v.ncols(), |part| {
        let (mut u, _) = equations.solve(part, &mut solver);
        for (mut column, &scale) in u.columns_mut().into_iter().zip(&equations.scales) {
            column.mapv_inplace(|x| x * scale);
        }
        u
    })
}

/// The rows of U (rows × k) that `solve` returns for a block in f64. Data in f32 are converted, some rows at a time: normal equations
/// square the rounding errors.
pub(super) fn in_double<T: Real>(
    block: &Block<T>,
    k: usize,
    mut solve: impl FnMut(&Block<f64>) -> Array2<f64>,
) -> Array2<T> {
    let rows = block.shape().0;
    let mut u = Array2::zeros((rows, k));
    let mut keep = |first: usize, found: Array2<f64>| {
        u.slice_mut(s![first..first + found.nrows(), ..]).zip_mut_with(&found, |u, &x| *u = T::from_f64(x));
    };
    match (block as &dyn Any).downcast_ref::<Block<f64>>() {
        Some(block) => keep(0, solve(block)),
        None => {
            let step = (CONVERTED / block.stored().div_ceil(rows.max(1)).max(1)).clamp(1, STEP);
            for first in (0..rows).step_by(step) {
                let part: Vec<usize> = (first..rows.min(first + step)).collect();
                keep(first, solve(&block.select(Axis(0), &part).converted()));
            }
        }
    }
    u
}

/// The normal equations of rows for a fixed V (columns × k).
pub(super) struct NormalEquations {
    /// Powers of two, by which the columns of V are multiplied.
    pub scales: Vec<f64>,
    /// The penalty on the components of U divided by them.
    pub penalty: Penalty,
    /// The Gram matrix of the scaled V.
    pub gram: Array2<f64>,
    scaled: Array2<f64>,
    order: Order,
}

impl NormalEquations {
    /// For blocks with this order of factors.
    pub fn new<T: Real>(v: &ArrayView2<'_, T>, penalty: Penalty, order: Order) -> Self {
        let (scales, penalty) = scales(v, penalty);
        let mut scaled = order.zeros(v.nrows(), v.ncols());
        for ((mut scaled, v), &scale) in scaled.columns_mut().into_iter().zip(v.columns()).zip(&scales) {
            scaled.zip_mut_with(&v, |scaled, x| *scaled = x.as_f64() * scale);
        }
        let mut g = Array2::zeros((v.ncols(), v.ncols()));
        gram(&scaled.view(), &mut g.view_mut());
        NormalEquations { scales, penalty, gram: g, scaled, order }
    }

    /// U divided by the scales, and the right-hand side (both rows × k).
    pub fn solve(&self, block: &Block<f64>, solver: &mut Pivoting) -> (Array2<f64>, Array2<f64>) {
        let NormalEquations { penalty, gram: g, scaled, order, .. } = self;
        let rows = block.shape().0;
        let [mut rhs, mut u] = [(); 2].map(|()| order.zeros(rows, scaled.ncols()));
        block.mul(&scaled.view(), &mut rhs.view_mut());
        sweep(&mut u.view_mut(), &rhs.view(), &g.view(), Sweep { mu: 0.0, passes: PASSES, penalty: *penalty });
        for first in (0..rows).step_by(STEP) {
            let part = s![first..(first + STEP).min(rows), ..];
            solver.solve_penalized(&mut u.slice_mut(part), &rhs.slice(part), &g.view(), *penalty);
        }
        (u, rhs)
    }
}

/// Powers of two for the columns of V, with which no entry of the Gram matrix over- or underflows, and the penalty on the
/// components of U divided by them. With a penalty all are the same.
fn scales<T: Real>(v: &ArrayView2<'_, T>, penalty: Penalty) -> (Vec<f64>, Penalty) {
    let limit = f64::MAX.log2().floor() - 8.0;
    let inverse = |largest: f64| {
        if largest > 0.0 { (-largest.log2()).round().clamp(-limit, limit).exp2() } else { 1.0 }
    };
    let largest = |column: ArrayView1<'_, T>| column.iter().fold(0.0, |most: f64, x| most.max(x.as_f64()));
    let each: Vec<f64> = v.columns().into_iter().map(largest).collect();
    if penalty.is_none() {
        return (each.into_iter().map(inverse).collect(), penalty);
    }
    let scale = inverse(each.iter().copied().fold(0.0, f64::max));
    let penalty = Penalty { l1: penalty.l1 * scale, l2: penalty.l2 * scale * scale };
    (vec![scale; v.ncols()], penalty)
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::random::{Purpose, Stream};

    /// Components of any size, with those of the others, have the same relative accuracy.
    #[test]
    fn the_solution_is_exact_at_every_scale() {
        let stream = Stream::new(5, Purpose::Probe, 0);
        let mut cursor = stream.at(0);
        let (mut v, u) = (Array2::zeros((40, 5)), Array2::from_shape_fn((60, 5), |_| cursor.uniform()));
        for (l, scale) in [1.0, 1e-8, 1e8, 1e-150, 1e140].into_iter().enumerate() {
            (8 * l..8 * l + 8).for_each(|j| v[[j, l]] = scale * (0.1 + cursor.uniform()));
        }
        let x = Block::Dense(u.dot(&v.t()).into());
        let found = project(&x, &v.view(), Penalty::NONE);
        assert!(found.iter().zip(&u).all(|(a, b)| (a - b).abs() < 1e-12), "{found}");
        // Scaling the fixed factor is undone by the other one, with penalties too.
        let v = Array2::from_shape_fn((40, 3), |_| cursor.uniform());
        let x = Array2::from_shape_fn((30, 40), |_| cursor.uniform());
        for penalty in [Penalty::NONE, Penalty { l1: 0.3, l2: 0.7 }] {
            let one = project(&Block::Dense(x.clone().into()), &v.view(), penalty);
            let c = 2f64.powi(400);
            let scaled = Penalty { l1: penalty.l1 / c, l2: penalty.l2 / c / c };
            let other = project(&Block::Dense(x.clone().into()), &(&v / c).view(), scaled);
            assert_eq!(one, other / c);
        }
    }

    /// Data in f32 are converted in parts, dense or sparse.
    #[test]
    fn rows_in_single_precision_have_the_solution_in_double() {
        let mut cursor = Stream::new(7, Purpose::Probe, 0).at(0);
        let v = Array2::from_shape_fn((90, 4), |_| cursor.uniform() as f32);
        let x = Array2::from_shape_fn((2 * CONVERTED / 90 + 5, 90), |_| (cursor.uniform() as f32 - 0.4).max(0.0));
        let double = Block::Dense(x.mapv(f64::from).into());
        let expected = project(&double, &v.mapv(f64::from).view(), Penalty::NONE);
        for block in [Block::Dense(x.clone().into()), Block::Dense(x.clone().into()).sparsified()] {
            let found = project(&block, &v.view(), Penalty::NONE);
            assert!(found.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-6));
        }
    }

    /// Components that differ by about the rounding of single precision, and more components than dimensions.
    #[test]
    fn nearly_equal_components_have_finite_weights_that_fit_in_both_precisions() {
        let stream = Stream::new(6, Purpose::Probe, 0);
        let mut cursor = stream.at(0);
        for draw in 0..300 {
            let (n, k): (usize, usize) = (2 + draw % 18, 2 + draw * 7 % 17);
            let base = Array2::from_shape_fn((n, k.div_ceil(2)), |_| (cursor.uniform() - 0.3).max(0.0));
            let noise = [0.0, 1e-7, 1e-6, 1e-4][draw % 4];
            let v = Array2::from_shape_fn((n, k), |(j, l)| {
                let scale = 10f64.powi(l as i32 % 6 - 3);
                (scale * base[[j, l / 2]] * (1.0 + noise * cursor.normal())).max(0.0) as f32
            });
            let constant = draw % 3 == 0;
            let x = Array2::from_shape_fn((9, n), |_| if constant { 3.0 } else { cursor.uniform() as f32 });
            for penalty in [Penalty::NONE, Penalty { l1: 1e-6, l2: 0.0 }] {
                let single = project(&Block::Dense(x.clone().into()), &v.view(), penalty).mapv(f64::from);
                let (x, v) = (x.mapv(f64::from), v.mapv(f64::from));
                let double = project(&Block::Dense(x.clone().into()), &v.view(), penalty);
                let objective =
                    |u: &Array2<f64>| (&x - &u.dot(&v.t())).mapv(|e| e * e).sum() + 2.0 * penalty.value(&u.view());
                let (single, double, size) = (objective(&single), objective(&double), x.mapv(|x| x * x).sum());
                assert!(single <= double + 1e-9 * size, "{draw}: {single} {double} {size}");
            }
        }
    }
}
