//! L1 and L2 penalties on the factors, in the scale of scikit-learn's NMF (1.2 and later):
//!
//! loss + α_U n (ρ‖U‖₁ + ½(1 − ρ)‖U‖_F²) + α_V m (ρ‖V‖₁ + ½(1 − ρ)‖V‖_F²)
//!
//! for an m × n matrix, where the loss is ½‖M − UVᵀ‖_F² or the divergence, and ρ is `--l1-ratio`. The factors n and m keep
//! the balance of loss and penalties when rows or columns are added. The penalties determine the scale of the components: U
//! D and V D⁻¹ no longer have the same objective as U and V.

use std::fmt;

use ndarray::ArrayView2;
use serde_json::Value;

use fednmf_comm::Communicator;
use fednmf_linalg::Real;
use fednmf_linalg::nls::Penalty;

use crate::description::MessageSpec;
use crate::metrics;
use crate::metrics::Measure;
use crate::parameters::{ParamType, ParamValue, Parsed, number};

/// Messages that leave a rank in an evaluation.
pub const MESSAGES: MessageSpec =
    MessageSpec::new(metrics::PENALTY, "1", "each evaluation, with --alpha-u or --alpha-v");

/// The weight of a penalty, or `same` as that of the other factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Weight {
    Same,
    Given(f64),
}

/// Parses a weight, or `same`.
///
/// # Errors
/// If the weight is not valid; the message states what it must be.
pub fn weight(text: &str) -> Parsed<Weight> {
    if text == "same" {
        return Ok(Weight::Same);
    }
    let parsed = number(0.0, f64::INFINITY)(text);
    parsed.map(Weight::Given).map_err(|must| format!("{must}, or same"))
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Weight::Same => f.write_str("same"),
            Weight::Given(x) => x.fmt(f),
        }
    }
}

impl From<f64> for Weight {
    fn from(x: f64) -> Self {
        Weight::Given(x)
    }
}

impl ParamType for Weight {
    fn value(&self) -> ParamValue {
        match self {
            Weight::Same => ParamValue::Text("same".into()),
            Weight::Given(x) => ParamValue::Number(*x),
        }
    }

    fn parse(text: &str) -> Parsed<Self> {
        weight(text)
    }
}

fednmf_base::parameters! {
    /// Penalties on the factors.
    pub struct RegularizationParams {
        /// Weight of the penalty on U, as alpha_W of scikit-learn's NMF: multiplied by the number of columns of the matrix
        pub alpha_u: f64 = 0.0, "X", number(0.0, f64::INFINITY);
        /// Weight of the penalty on V, as alpha_H: multiplied by the number of rows of the matrix. same: that of --alpha-u
        pub alpha_v: Weight = Weight::Same, "X";
        /// Share of L1 in the penalties: 0 is only |.|_F^2 / 2, 1 is only |.|_1
        #[needs(alpha_u | alpha_v: "divides a penalty, and there is none; add --alpha-u or --alpha-v")]
        pub l1_ratio: f64 = 0.0, "X", number(0.0, 1.0);
    }
}

impl RegularizationParams {
    pub const NONE: RegularizationParams = RegularizationParams { alpha_u: 0.0, alpha_v: Weight::Same, l1_ratio: 0.0 };

    /// The penalties of a run from its parameters in trace or output; no penalties if the run had no such parameters.
    pub fn from_parameters<'a>(parameter: impl Fn(&str) -> Option<&'a Value>) -> Self {
        let number = |name: &str| parameter(name).and_then(Value::as_f64);
        RegularizationParams {
            alpha_u: number("alpha_u").unwrap_or(0.0),
            alpha_v: number("alpha_v").map_or(Weight::Same, Weight::Given),
            l1_ratio: number("l1_ratio").unwrap_or(0.0),
        }
    }

    /// Whether a factor has a penalty.
    pub fn is_on(&self) -> bool {
        self.alpha_u > 0.0 || self.weight_on_v() > 0.0
    }

    /// The command-line options for these penalties; empty without a penalty.
    pub fn words(&self) -> Vec<String> {
        let RegularizationParams { alpha_u, alpha_v, l1_ratio } = self;
        if !self.is_on() {
            return Vec::new();
        }
        let options = [("--alpha-u", alpha_u.to_string()), ("--alpha-v", alpha_v.to_string())];
        let ratio = ("--l1-ratio", l1_ratio.to_string());
        options.into_iter().chain([ratio]).flat_map(|(option, value)| [option.to_string(), value]).collect()
    }

    /// The factor that alone has a penalty, and the other one.
    pub fn one_sided(&self) -> Option<(&'static str, &'static str)> {
        match (self.alpha_u > 0.0, self.weight_on_v() > 0.0) {
            (true, false) => Some(("U", "V")),
            (false, true) => Some(("V", "U")),
            _ => None,
        }
    }

    /// Whether V has an L1 penalty.
    pub fn has_l1_on_v(&self) -> bool {
        self.weight_on_v() > 0.0 && self.l1_ratio > 0.0
    }

    /// Whether V has a penalty.
    pub fn is_on_v(&self) -> bool {
        self.weight_on_v() > 0.0
    }

    /// The weight of the penalty on V.
    pub fn weight_on_v(&self) -> f64 {
        match self.alpha_v {
            Weight::Same => self.alpha_u,
            Weight::Given(alpha) => alpha,
        }
    }

    /// A description of the penalty on U; `None` without one.
    pub fn note_on_u(&self) -> Option<String> {
        let RegularizationParams { alpha_u, l1_ratio, .. } = self;
        (*alpha_u > 0.0).then(|| format!("as in the run: a penalty on U, --alpha-u {alpha_u} --l1-ratio {l1_ratio}"))
    }

    /// The penalties for an m × n matrix.
    pub fn penalties(&self, (m, n): (usize, usize)) -> Penalties {
        // Neither a weight nor its square may overflow; larger weights act as this one.
        let most = f64::MAX.sqrt();
        let penalty = |alpha: f64, length: usize| {
            let weight = (alpha * length as f64).min(most);
            Penalty { l1: weight * self.l1_ratio, l2: weight * (1.0 - self.l1_ratio) }
        };
        Penalties { u: penalty(self.alpha_u, n), v: penalty(self.weight_on_v(), m) }
    }
}

/// The penalties on U and on V.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Penalties {
    pub u: Penalty,
    pub v: Penalty,
}

impl Penalties {
    /// Whether U or V has a penalty.
    pub fn any(self) -> bool {
        !self.u.is_none() || !self.v.is_none()
    }

    /// The value of the penalties for some rows of U and of V.
    pub fn value<T: Real>(self, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
        self.u.value(u) + self.v.value(v)
    }

    /// The value of the penalties from disjoint rows of U and V on the ranks. Collective if there is a penalty.
    pub fn sum<T: Real>(self, comm: &Communicator, u: &ArrayView2<'_, T>, v: &ArrayView2<'_, T>) -> f64 {
        if !self.any() {
            return 0.0;
        }
        let mut sum = [self.value(u, v)];
        comm.sum(metrics::PENALTY, &mut sum);
        sum[0]
    }

    /// The objective as a measure: the loss plus the value of the penalties. `None` without penalties, because it is then
    /// the loss.
    pub fn objective(self, loss: f64, value: f64) -> Option<(&'static str, f64)> {
        self.any().then(|| (Measure::Objective.key(), loss + value))
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn weights_are_those_of_scikit_learn() {
        let args = RegularizationParams { alpha_u: 0.5, alpha_v: Weight::Same, l1_ratio: 0.25 };
        let penalties = args.penalties((10, 4));
        assert_eq!(penalties.u, Penalty { l1: 0.5, l2: 1.5 });
        assert_eq!(penalties.v, Penalty { l1: 1.25, l2: 3.75 });
        let (u, v) = (array![[1.0, 2.0]], array![[2.0, 0.0]]);
        assert_eq!(penalties.value(&u.view(), &v.view()), 1.5 + 0.75 * 5.0 + 2.5 + 0.5 * 3.75 * 4.0);
        assert_eq!(penalties.objective(2.0, 3.0), Some(("objective", 5.0)));
        let none = RegularizationParams { alpha_u: 0.0, ..args };
        let on = |alpha_u, alpha_v| RegularizationParams { alpha_u, alpha_v: Weight::Given(alpha_v), l1_ratio: 0.0 };
        assert_eq!([on(1.0, 0.0), on(0.0, 1.0)].map(|one| one.one_sided()), [Some(("U", "V")), Some(("V", "U"))]);
        assert_eq!([args.one_sided(), on(1.0, 1.0).one_sided(), none.one_sided()], [None; 3]);
        assert!(!none.is_on() && !none.penalties((10, 4)).any());
        assert!(RegularizationParams { alpha_v: Weight::Given(1.0), ..none.clone() }.is_on());
        assert_eq!(none.penalties((10, 4)).objective(2.0, 0.0), None);
    }

    #[test]
    fn huge_weights_stay_finite() {
        let args = RegularizationParams { alpha_u: 1e308, alpha_v: Weight::Same, l1_ratio: 0.5 };
        let Penalties { u, .. } = args.penalties((1000, 1000));
        assert!(u.l1.is_finite() && (u.l1 * u.l1).is_finite() && u.value(&array![[0.0]].view()) == 0.0);
    }

    #[test]
    fn a_weight_is_a_number_or_same() {
        assert_eq!(weight("same"), Ok(Weight::Same));
        assert_eq!(weight("0.5"), Ok(Weight::Given(0.5)));
        assert!(weight("-1").is_err_and(|must| must.contains("same")));
    }
}
