//! The penalty on a factor, a parameter of every solver of this module.

use ndarray::ArrayView2;

use crate::Real;

/// The elastic-net penalty λ₁‖X‖₁ + ½λ₂‖X‖_F² on a factor X, added to ½‖M − X Yᵀ‖_F²: each row x of X minimises
/// ½ x (G + λ₂I) xᵀ − (r − λ₁) xᵀ over x ≥ 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Penalty {
    /// λ₁, at least 0.
    pub l1: f64,
    /// λ₂, at least 0.
    pub l2: f64,
}

impl Penalty {
    /// No penalty.
    pub const NONE: Penalty = Penalty { l1: 0.0, l2: 0.0 };

    /// Whether both weights are 0.
    pub fn is_none(self) -> bool {
        self == Penalty::NONE
    }

    /// The penalty with both weights multiplied by `share`, for a part of the data.
    #[must_use]
    pub fn times(self, share: f64) -> Penalty {
        Penalty { l1: self.l1 * share, l2: self.l2 * share }
    }

    /// λ₁‖X‖₁ + ½λ₂‖X‖_F² for some rows X ≥ 0 of the factor, rows × k.
    pub fn value<T: Real>(self, x: &ArrayView2<'_, T>) -> f64 {
        if self.is_none() {
            return 0.0;
        }
        let (mut sum, mut squares) = (0.0, 0.0);
        for x in x {
            let x = x.as_f64();
            sum += x;
            squares += x * x;
        }
        self.l1 * sum + 0.5 * self.l2 * squares
    }

    /// λ₁ and λ₂ in the arithmetic of a solver, in which neither they nor their reciprocals overflow.
    pub fn weights<T: Real>(self) -> (T, T) {
        let max = T::max_value().as_f64().sqrt();
        (T::from_f64(self.l1.min(max)), T::from_f64(self.l2.min(max)))
    }
}
