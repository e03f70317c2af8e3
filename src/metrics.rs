//! Measures of a factorisation, in f64 in either precision.

use ndarray::ArrayView2;

use crate::comm::{Communicator, MessageTag, Payload};
use crate::linalg::{Block, Real};

/// The term of a rank in an evaluation.
pub const RESIDUAL: MessageTag = MessageTag::new("evaluation: squared residual", Payload::Scalar);

/// The relative error ‖M − UVᵀ‖_F / ‖M‖_F from the blocks (X, A, B) of all ranks with X ≈ A Bᵀ, which partition M;
/// `norm2` is ‖M‖_F². For M = 0 the error is 0 if the product is zero, otherwise infinite. Collective.
pub fn relative_error<'a, T: Real>(
    comm: &Communicator,
    norm2: f64,
    blocks: impl Iterator<Item = (&'a Block<T>, ArrayView2<'a, T>, ArrayView2<'a, T>)>,
) -> f64 {
    let mut residual: [f64; 1] = [blocks.map(|(x, a, b)| x.residual2(&a, &b)).sum()];
    comm.sum(RESIDUAL, &mut residual);
    relative(residual[0], norm2)
}

/// ‖M − UVᵀ‖_F / ‖M‖_F from the squared norms; for M = 0 as in [`relative_error`].
pub fn relative(residual2: f64, norm2: f64) -> f64 {
    if norm2 > 0.0 {
        f64::sqrt(residual2.max(0.0) / norm2)
    } else if residual2 > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}
