//! The methods that a sweep can run, and what they leave out of the fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use fednmf_base::error::{Error, Result};
use fednmf_methods::method::{ConfiguredMethod, MatrixShape, SweepSettings};
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters::Missing;
use fednmf_methods::registry;
use fednmf_methods::shared::missing::MissingParams;
use fednmf_methods::shared::regularization::RegularizationParams;

fednmf_base::words! {
    /// The entries that a sweep can leave out.
    pub enum SweepMissing {
        None = "none",
        /// NaN
        Nan = "nan",
        /// Zeros, stored or not: only nonzeros count
        ZeroUnobserved = "zero-unobserved",
    }
}

impl From<SweepMissing> for Missing {
    fn from(missing: SweepMissing) -> Missing {
        match missing {
            SweepMissing::None => Missing::None,
            SweepMissing::Nan => Missing::Nan,
            SweepMissing::ZeroUnobserved => Missing::ZeroUnobserved,
        }
    }
}

/// The default share of held-out entries.
const HELD_OUT: f64 = 0.05;

/// The methods that a sweep can run.
pub fn sweepable() -> impl Iterator<Item = &'static Arc<dyn ConfiguredMethod>> {
    let all = registry::ALL.iter().chain([&*registry::AUTO]);
    let settings = SweepSettings {
        missing: MissingParams { missing: Missing::None, holdout: 0.0 },
        regularization: RegularizationParams::NONE,
    };
    all.filter(move |method| method.for_sweep(&settings).is_some())
}

/// The method of a sweep that has this name.
///
/// # Errors
/// If there is none; the message has those that exist.
pub fn sweepable_method(name: &str) -> Result<Arc<dyn ConfiguredMethod>> {
    sweepable().find(|method| method.description().is_called(name)).cloned().ok_or_else(|| {
        let names: Vec<&str> = sweepable().map(|method| method.description().name).collect();
        Error::input(format!("{name:?} is no method of a sweep; they are {}", names.join(", ")))
    })
}

/// The missing and held-out entries of a sweep with these options. By default, methods for a divergence hold none out: their
/// runs are many times as fast then.
///
/// # Errors
/// If the method cannot leave entries out.
pub fn left_out(method: &dyn ConfiguredMethod, missing: Missing, holdout: Option<f64>) -> Result<MissingParams> {
    let (able, description) = (method.groups().missing.is_some(), method.description());
    let usual = if able && description.measure == Measure::RelativeError { HELD_OUT } else { 0.0 };
    let left_out = MissingParams { missing, holdout: holdout.unwrap_or(usual) };
    if left_out.any() && !able {
        let name = description.name;
        return Err(Error::input(format!(
            "--missing, --holdout: {name} uses all entries; leave them out, or take another method"
        )));
    }
    Ok(left_out)
}

/// The method of each k for a matrix of this shape, whatever its k. All are the same method, so that their errors can be
/// compared: `auto` uses its choice for the largest k for all.
pub fn configure(
    method: &Arc<dyn ConfiguredMethod>,
    ks: &[usize],
    shape: MatrixShape,
    settings: &SweepSettings,
) -> BTreeMap<usize, Arc<dyn ConfiguredMethod>> {
    let one = method.for_sweep(settings).unwrap_or_else(|| method.clone());
    let of = |k: usize| match one.choose(Some(MatrixShape { k, ..shape })) {
        Some(choice) => choice.method,
        None => one.clone(),
    };
    let largest = of(ks.iter().copied().max().unwrap_or(1));
    let alike = |method: &Arc<dyn ConfiguredMethod>| method.description().name == largest.description().name;
    ks.iter().map(|&k| (k, Some(of(k)).filter(alike).unwrap_or_else(|| largest.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use fednmf_methods::description::Unit;

    use super::*;

    #[test]
    fn methods_for_the_divergence_hold_entries_out_when_asked_to() {
        let mut fit_all = Vec::new();
        for method in sweepable() {
            let share = |holdout| left_out(&**method, Missing::None, holdout).map(|left_out| left_out.holdout);
            assert_eq!(share(Some(0.0)), Ok(0.0));
            let is_online = method.description().unit == Unit::Batch;
            assert!(if is_online { share(Some(0.2)).is_err() } else { share(Some(0.2)) == Ok(0.2) });
            if share(None) == Ok(0.0) && !is_online {
                fit_all.push(method.description().name);
            }
        }
        assert_eq!(fit_all, ["kl-mu", "kl-cd"]);
        assert!(sweepable_method("nmf").unwrap_err().message.contains("kl-mu"));
        assert_eq!(sweepable_method("anls").unwrap().description().name, "bpp");
    }

    #[test]
    fn all_k_have_one_method() {
        let names = |ks: &[usize]| -> Vec<&str> {
            let missing = MissingParams { missing: Missing::None, holdout: 0.0 };
            let settings = SweepSettings { missing, regularization: RegularizationParams::NONE };
            let shape = MatrixShape { m: 2000, n: 2000, k: 0, sparse: false, streamed: false };
            let all = configure(&registry::AUTO, ks, shape, &settings);
            all.values().map(|method| method.description().name).collect()
        };
        assert_eq!(names(&[2, 4]), ["dsanls", "dsanls"]);
        assert_eq!(names(&[2, 4, 40]), ["hals", "hals", "hals"], "for the largest, sketches do not pay");
    }
}
