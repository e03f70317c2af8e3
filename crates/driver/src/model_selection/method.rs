//! The methods that a sweep can run, and what they leave out of the fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use fednmf_base::error::{Error, Result};
use fednmf_methods::distributed::auto::with_loss;
use fednmf_methods::distributed::divergence::volume::VolumeParams;
use fednmf_methods::distributed::hals::Hals;
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

/// The default share of held-out entries, and the default number of iterations, for the squared error.
const HELD_OUT: f64 = 0.05;
const ITERATIONS: usize = 200;

/// The methods that a sweep can run.
pub fn sweepable() -> impl Iterator<Item = &'static Arc<dyn ConfiguredMethod>> {
    let all = registry::ALL.iter().chain([&*registry::AUTO]);
    let settings = SweepSettings {
        missing: MissingParams { missing: Missing::None, holdout: 0.0 },
        regularization: RegularizationParams::NONE,
        volume: VolumeParams::NONE,
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

/// The method of a sweep: by default `hals`, and for a loss the choice of `auto`.
///
/// # Errors
/// If there is no such loss, or the method has another one.
pub fn requested(method: Option<&Arc<dyn ConfiguredMethod>>, loss: Option<&str>) -> Result<Arc<dyn ConfiguredMethod>> {
    match (method, loss) {
        (method, Some(loss)) => with_loss(method.unwrap_or(&registry::AUTO), loss),
        (Some(method), None) => Ok(method.clone()),
        (None, None) => Ok(Arc::new(Hals::default())),
    }
}

/// Whether a method, or what it chooses, minimises the squared error.
pub(super) fn is_for_squared_error(method: &dyn ConfiguredMethod) -> bool {
    let measure = |method: &dyn ConfiguredMethod| method.description().measure;
    method.choose(None).map_or_else(|| measure(method), |choice| measure(&*choice.method)) == Measure::RelativeError
}

/// The missing and held-out entries of a sweep with these options. By default, methods for a divergence hold none out: their
/// runs are many times as fast then.
///
/// # Errors
/// If the method cannot leave entries out.
pub fn left_out(method: &dyn ConfiguredMethod, missing: Missing, holdout: Option<f64>) -> Result<MissingParams> {
    let able = method.groups().missing.is_some();
    let usual = if able && is_for_squared_error(method) { HELD_OUT } else { 0.0 };
    let left_out = MissingParams { missing, holdout: holdout.unwrap_or(usual) };
    if left_out.any() && !able {
        let name = method.description().name;
        return Err(Error::input(format!(
            "--missing, --holdout: {name} uses all entries; leave them out, or take another method"
        )));
    }
    Ok(left_out)
}

/// The most iterations of a run by default: for a divergence those of the method, which needs more than methods for the squared
/// error.
pub fn iterations(method: &dyn ConfiguredMethod) -> usize {
    if is_for_squared_error(method) {
        return ITERATIONS;
    }
    method.choose(None).map_or(method.description().stop, |choice| choice.method.description().stop).max_iters
}

/// Checks that a method supports the settings of a sweep.
///
/// # Errors
/// Naming the option that it does not support.
pub fn check_settings(method: &dyn ConfiguredMethod, settings: &SweepSettings) -> Result<()> {
    let Some(method) = method.for_sweep(settings) else { return Ok(()) };
    if settings.volume.is_on() && method.groups().volume.is_none() {
        let name = method.description().name;
        return Err(Error::input(format!("--min-volume: is not an option of {name}; add --algo kl-mu, which has it")));
    }
    method.check()
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
    fn a_loss_chooses_the_method() {
        let hals: Arc<dyn ConfiguredMethod> = Arc::new(Hals::default());
        let kl_cd = sweepable_method("kl-cd").unwrap();
        let found = |method: Option<&Arc<dyn ConfiguredMethod>>, loss| {
            let method = requested(method, loss).unwrap();
            let chosen = method.choose(None).map_or_else(|| method.clone(), |choice| choice.method);
            (chosen.description().name, left_out(&*method, Missing::None, None).unwrap().holdout, iterations(&*method))
        };
        assert_eq!(found(None, None), ("hals", 0.05, 200));
        assert_eq!(found(None, Some("frobenius")), ("hals", 0.05, 200));
        assert_eq!(found(None, Some("kl")), ("kl-mu", 0.0, 1000));
        assert_eq!(found(None, Some("1.5")), ("beta-mu", 0.0, 1000));
        assert_eq!(found(Some(&kl_cd), Some("1")), ("kl-cd", 0.0, 1000));
        assert!(requested(Some(&hals), Some("kl")).unwrap_err().message.contains("--algo hals"));
        assert!(requested(None, Some("mse")).unwrap_err().message.contains("--loss mse"));
        let held_out = MissingParams { missing: Missing::None, holdout: 0.1 };
        let settings =
            SweepSettings { missing: held_out, regularization: RegularizationParams::NONE, volume: VolumeParams::NONE };
        let check = |loss| check_settings(&*requested(None, Some(loss)).unwrap(), &settings);
        assert!(check("kl").is_ok() && check("2").is_ok() && check("1.5").unwrap_err().message.contains("--holdout"));
    }

    #[test]
    fn all_k_have_one_method() {
        let names = |ks: &[usize]| -> Vec<&str> {
            let missing = MissingParams { missing: Missing::None, holdout: 0.0 };
            let settings =
                SweepSettings { missing, regularization: RegularizationParams::NONE, volume: VolumeParams::NONE };
            let shape = MatrixShape { m: 2000, n: 2000, k: 0, sparse: false, streamed: false };
            let all = configure(&registry::AUTO, ks, shape, &settings);
            all.values().map(|method| method.description().name).collect()
        };
        assert_eq!(names(&[2, 4]), ["dsanls", "dsanls"]);
        assert_eq!(names(&[2, 4, 40]), ["hals", "hals", "hals"], "for the largest, sketches do not pay");
    }
}
