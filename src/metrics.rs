//! Measures of a factorisation, in f64 whatever the precision of the factors.

use ndarray::ArrayView2;

use crate::comm::{Communicator, MessageTag, Payload};
use crate::linalg::{Block, Real};

/// The one number that each rank adds at an evaluation.
pub const RESIDUAL: MessageTag = MessageTag::new("evaluation: squared residual", Payload::Scalar);

/// ‖M − UVᵀ‖_F / ‖M‖_F from each rank's blocks X ≈ A Bᵀ, which together cover M once; ‖M‖_F² = `norm2`.
/// An all-zero matrix has relative error 0 if the product is zero too, else infinity. Collective.
pub fn relative_error<'a, T: Real>(
    comm: &Communicator,
    norm2: f64,
    blocks: impl Iterator<Item = (&'a Block<T>, ArrayView2<'a, T>, ArrayView2<'a, T>)>,
) -> f64 {
    let mut residual: [f64; 1] = [blocks.map(|(x, a, b)| x.residual2(&a, &b)).sum()];
    comm.sum(RESIDUAL, &mut residual);
    relative(residual[0], norm2)
}

/// ‖M − UVᵀ‖_F / ‖M‖_F from the squares of both; for an all-zero matrix as in [`relative_error`].
pub fn relative(residual2: f64, norm2: f64) -> f64 {
    if norm2 > 0.0 {
        f64::sqrt(residual2.max(0.0) / norm2)
    } else if residual2 > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}
