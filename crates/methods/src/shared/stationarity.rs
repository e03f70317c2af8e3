//! The distance of the factors from a stationary point of min ½‖M − UVᵀ‖_F², plus penalties, over U, V ≥ 0 (Theorem 1 of
//! DSANLS, Qian et al. 2019). It is the norm of the projected gradient: the gradient at positive entries, and its negative
//! part at zero entries.

use ndarray::Array2;

use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_linalg::Real;
use fednmf_linalg::nls::Penalty;

use crate::description::MessageSpec;

fednmf_base::words! {
    /// The measures that an evaluation computes.
    pub enum Evaluated {
        /// The error alone
        Error = "error",
        /// The norm of the projected gradient too
        ProjectedGradient = "projected-gradient",
    }
}

fednmf_base::parameters! {
    /// What evaluations compute.
    pub struct MeasureParams {
        /// What an evaluation computes. error: the error. projected-gradient: also the norm of the projected gradient of 1/2 |M - U
        /// V'|_F^2 and of the penalties, which is 0 at a stationary point. It takes two more products and gathers the factors
        #[affects_result = false]
        #[words_in_help = true]
        pub measure: Evaluated = Evaluated::Error, "WHAT";
    }
}

/// The single number that each rank contributes.
pub const GRADIENT: MessageTag = MessageTag::of_evaluation("evaluation: squared gradient", Payload::Scalar);

/// The line of a message table for [`GRADIENT`].
pub const MESSAGES: MessageSpec = MessageSpec::new(GRADIENT, "1", "each evaluation, with --measure projected-gradient");

/// The squared norm for the rows x (rows × k) of a factor, from the right-hand side r (rows × k) and the Gram matrix g
/// (k × k) of the other one: the gradient is X (G + λ₂I) − R + λ₁.
pub fn squared<T: Real>(x: &Array2<T>, r: &Array2<T>, g: &Array2<T>, penalty: Penalty) -> f64 {
    let k = g.ncols();
    let mut sum = 0.0;
    for (x, r) in x.rows().into_iter().zip(r.rows()) {
        for j in 0..k {
            let fit = (0..k).map(|l| x[l].as_f64() * g[[l, j]].as_f64()).sum::<f64>() - r[j].as_f64();
            let gradient = fit + penalty.l1 + penalty.l2 * x[j].as_f64();
            let projected = if x[j] > T::zero() { gradient } else { gradient.min(0.0) };
            sum += projected * projected;
        }
    }
    sum
}

/// The norm, from each rank's part of its square. Collective.
pub fn norm(comm: &Communicator, squared: f64) -> f64 {
    let mut sum = [squared];
    comm.sum(GRADIENT, &mut sum);
    sum[0].sqrt()
}
