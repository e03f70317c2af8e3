//! `--precision auto`: the precision that holds the data, as scikit-learn keeps the type of its input.
//!
//! Whole numbers and f32 data are factorised in f32, f64 data in f64. Sums over many terms, Gram matrices and errors
//! are in f64 in either, so the relative difference between the errors of the results is below [`SAME_ERROR`]. The
//! choice depends on the header of the data and on the settings, which are the same on all ranks.

use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_data::{Header, Values};
use fednmf_methods::description::{Description, ProtectedUnit};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::mixed_precision::RESOLUTION;

use super::spec::{Precision, Spec};

/// Maximum relative difference between the errors of runs in f32 and f64 that find the same factors; checked by tests.
pub const SAME_ERROR: f64 = 1e-4;
/// Relative errors below this one are affected by the rounding of factors in f32.
const LEAST_ERROR: f64 = 1e-4;

/// A precision, and why it was chosen; `None` if the user requested it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub precision: Precision,
    pub why: Option<String>,
}

/// The precision of a run: the requested one, when it resumes that of its checkpoint (`saved`), otherwise the one that
/// suits data and tolerances.
pub fn choose(spec: &Spec, header: &Header, saved: Option<Precision>) -> Chosen {
    if let Some(precision) = spec.precision {
        return Chosen { precision, why: None };
    }
    let (precision, why) = match saved {
        Some(precision) => (precision, "as in the checkpoint".to_string()),
        // The parties' element types may differ, and are private.
        None if spec.description().partition.is_private() || spec.input.by_party() => {
            (Precision::F64, "the data of several parties, whatever their types".to_string())
        }
        None => of_values(header.values, beyond_single(spec)),
    };
    Chosen { precision, why: Some(why) }
}

/// The precision that holds such values.
pub fn suited(values: Values) -> Precision {
    of_values(values, None).0
}

fn of_values(values: Values, beyond: Option<String>) -> (Precision, String) {
    match (values, beyond) {
        (Values::Double, _) => (Precision::F64, "the data are in f64".to_string()),
        (_, Some(beyond)) => (Precision::F64, format!("{beyond} is finer than f32 resolves")),
        (Values::Whole, None) => (Precision::F32, "the data are whole numbers".to_string()),
        (Values::Single, None) => (Precision::F32, "the data are in f32".to_string()),
    }
}

/// The key of the precision in a checkpoint.
pub const SAVED: &str = "precision";

/// The precision of the run that wrote a checkpoint with these attributes.
pub fn saved(attributes: &Map<String, Value>) -> Option<Precision> {
    let name = attributes.get(SAVED).and_then(Value::as_str)?;
    [Precision::F64, Precision::F32].into_iter().find(|precision| precision.name() == name)
}

/// The option that requires a finer resolution than f32 has, if there is one.
fn beyond_single(spec: &Spec) -> Option<String> {
    let limits = [("--tol", spec.tol, RESOLUTION), ("--target-error", spec.target_error, LEAST_ERROR)];
    // With --tol 0 a run stops at the first rise.
    limits
        .into_iter()
        .find_map(|(name, requested, least)| requested.filter(|x| *x < least).map(|x| format!("{name} {x}")))
}

/// A warning if a run in f32 may stop because of rounding.
pub fn warning(spec: &Spec, precision: Precision) -> Option<String> {
    let option = beyond_single(spec).filter(|_| precision == Precision::F32)?;
    Some(format!(
        "{option}: f32 resolves changes of the error down to {RESOLUTION:e} of its first value, and errors down to {LEAST_ERROR:e}, so the \
         run may stop too early or not at all; use --precision f64, or mixed"
    ))
}

/// Refuses `--precision mixed` if nothing can trigger the change, and for parties, whose messages would change too.
///
/// # Errors
/// In these cases.
pub fn check_mixed(method: &Description, eval_every: usize) -> Result<()> {
    let why = if method.partition.is_private() {
        format!("{} is a method of parties, whose messages have one precision", method.name)
    } else if eval_every == 0 {
        "evaluations tell when f32 gains no more, and --eval-every 0 has none".into()
    } else {
        return Ok(());
    };
    Err(Error::input(format!("--precision mixed: {why}; use --precision f32 or f64")))
}

/// Refuses single precision for sums over columns with noise. One column also changes the rounding of the others, and in f32 the
/// bound on that, which is part of the sensitivity, is soon larger than what the column itself contributes.
///
/// # Errors
/// In this case.
pub fn check_noise(method: &dyn ConfiguredMethod) -> Result<()> {
    let description = method.description();
    if !(method.groups().is_noised() && description.protects() == Some(ProtectedUnit::Column)) {
        return Ok(());
    }
    Err(Error::input(format!(
        "--precision f32: with --dp {} adds up all columns, and in f32 the noise would have to hide the rounding of these sums, \
         more than a column; use --precision f64",
        description.name
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_the_data_is_kept_where_it_resolves_the_tolerance() {
        let chosen = |values, beyond: Option<&str>| of_values(values, beyond.map(str::to_string)).0;
        assert_eq!(chosen(Values::Whole, None), Precision::F32);
        assert_eq!(chosen(Values::Single, None), Precision::F32);
        assert_eq!(chosen(Values::Double, None), Precision::F64);
        assert_eq!(chosen(Values::Whole, Some("--tol 1e-9")), Precision::F64);
        assert!(of_values(Values::Single, Some("--tol 1e-9".into())).1.contains("--tol 1e-9"));
    }

    #[test]
    fn of_several_files_the_widest_type_decides() {
        assert_eq!([Values::Single, Values::Whole].into_iter().max(), Some(Values::Single));
        assert_eq!([Values::Double, Values::Single].into_iter().max(), Some(Values::Double));
    }
}
