//! The exact solution for one factor with the other fixed.

use ndarray::{Array2, ArrayView2, s};

use super::Penalty;
use super::bpp::Pivoting;
use crate::{Block, Real, gram};

/// Rows that are solved at a time, since the solver keeps a state for each.
const STEP: usize = 4096;

/// The U ≥ 0 (rows × k) that minimises ½‖M − U Vᵀ‖_F² and the penalty on U, for a block M (rows × columns) and a fixed V
/// (columns × k).
pub fn project<T: Real>(block: &Block<T>, v: &ArrayView2<'_, T>, penalty: Penalty) -> Array2<T> {
    let ((rows, columns), k) = (block.shape(), v.ncols());
    let mut by_order = block.order().zeros(columns, k);
    by_order.assign(v);
    let mut rhs = block.order().zeros(rows, k);
    block.mul(&by_order.view(), &mut rhs.view_mut());
    let mut g = Array2::zeros((k, k));
    gram(v, &mut g.view_mut());
    let mut u = Array2::zeros((rows, k));
    let mut solver = Pivoting::new(k);
    for first in (0..rows).step_by(STEP) {
        let part = s![first..(first + STEP).min(rows), ..];
        solver.solve_penalized(&mut u.slice_mut(part), &rhs.slice(part), &g.view(), penalty);
    }
    u
}
