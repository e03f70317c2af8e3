//! Measures of a factorisation, always computed in f64.

use ndarray::ArrayView2;

use crate::comm::{Communicator, MessageTag, Payload};
use crate::linalg::{Block, Real};

/// The measure that a method is about: the one that progress and summary lead with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// ‖M − UVᵀ‖_F / ‖M‖_F.
    RelativeError,
    /// Sum over the parties of the root mean squared deviation of their rows.
    Rmsd,
    /// Harmonic mean of precision and recall of the ones.
    F1,
}

impl Measure {
    /// Its key among a method's measures, in trace and output.
    pub fn key(self) -> &'static str {
        match self {
            Measure::RelativeError => "rel_error",
            Measure::Rmsd => "rmsd",
            Measure::F1 => "f1",
        }
    }

    /// Its name in a sentence.
    pub fn label(self) -> &'static str {
        match self {
            Measure::RelativeError => "relative error",
            Measure::Rmsd => "RMSD",
            Measure::F1 => "F1",
        }
    }

    /// Whether a smaller value is a better one.
    pub fn smaller_is_better(self) -> bool {
        self != Measure::F1
    }

    /// This measure and its value, then the relative error where it is another one: what is shown of an evaluation.
    pub fn leading(self, value: impl Fn(&str) -> Option<f64>) -> Vec<(Measure, f64)> {
        let mut shown = vec![self, Measure::RelativeError];
        shown.dedup();
        shown.into_iter().filter_map(|measure| Some((measure, value(measure.key())?))).collect()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relative_error_follows_the_measure_that_leads() {
        let value = |key: &str| (key != "rmsd").then_some(if key == "f1" { 0.9 } else { 0.3 });
        assert_eq!(Measure::F1.leading(value), [(Measure::F1, 0.9), (Measure::RelativeError, 0.3)]);
        assert_eq!(Measure::RelativeError.leading(value), [(Measure::RelativeError, 0.3)]);
        // A measure that was not computed is left out.
        assert_eq!(Measure::Rmsd.leading(value), [(Measure::RelativeError, 0.3)]);
    }
}
