//! The methods that a sweep can run, and what they leave out of the fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use fednmf_base::error::{Error, Result};
use fednmf_base::words::Words;
use fednmf_methods::distributed::auto::Automatic;
use fednmf_methods::distributed::bpp::Bpp;
use fednmf_methods::distributed::divergence::KlParams;
use fednmf_methods::distributed::divergence::cd::KlCd;
use fednmf_methods::distributed::divergence::mu::KlMu;
use fednmf_methods::distributed::dsanls::Dsanls;
use fednmf_methods::distributed::hals::Hals;
use fednmf_methods::distributed::mu::Mu;
use fednmf_methods::method::{ConfiguredMethod, MatrixShape};
use fednmf_methods::parameters::{Auto, Missing};
use fednmf_methods::shared::alternating::ExactParams;
use fednmf_methods::shared::init::InitParams;
use fednmf_methods::shared::missing::MissingParams;
use fednmf_methods::shared::regularization::RegularizationParams;

fednmf_base::words! {
    /// The methods that a sweep can run.
    pub enum SweepMethod {
        Hals = "hals",
        Mu = "mu",
        Auto = "auto",
        Bpp = "bpp" | "anls-bpp" | "anls",
        KlMu = "kl-mu" | "mu-kl",
        KlCd = "kl-cd" | "cd-kl",
        Dsanls = "dsanls" | "sanls",
    }
}

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

/// The default share of held-out entries for methods that support it.
const HELD_OUT: f64 = 0.05;

impl SweepMethod {
    /// The method of this name.
    ///
    /// # Errors
    /// If there is none; the message has those that exist.
    pub fn from_name(name: &str) -> Result<Self> {
        SweepMethod::parse(name).ok_or_else(|| {
            let names: Vec<&str> = SweepMethod::ALL.iter().map(|method| method.name()).collect();
            Error::input(format!("{name:?} is no method of a sweep; they are {}", names.join(", ")))
        })
    }

    /// Whether entries are left out of the fit: not where the divergence is minimised, since the error on held-out entries
    /// is the squared one.
    pub fn leaves_out(self) -> bool {
        !matches!(self, SweepMethod::KlMu | SweepMethod::KlCd)
    }

    /// The entries that do not count, by what was typed.
    ///
    /// # Errors
    /// If a sweep with this method fits all entries and some are to be left out.
    pub fn left_out(self, missing: Missing, holdout: Option<f64>) -> Result<MissingParams> {
        if self.leaves_out() {
            return Ok(MissingParams { missing, holdout: holdout.unwrap_or(HELD_OUT) });
        }
        if let Some(share) = holdout.filter(|&share| share > 0.0) {
            return Err(Error::input(format!(
                "--holdout {share}: a sweep with {} holds no entries out, since the error on them is the squared one and not \
                 the divergence; leave --holdout out, and k is chosen by stability and divergence, or take --algo hals",
                self.name()
            )));
        }
        if missing != Missing::None {
            return Err(Error::input(format!(
                "--missing: a sweep with {} fits all entries and knows no missing ones; take --algo hals",
                self.name()
            )));
        }
        Ok(MissingParams { missing, holdout: 0.0 })
    }

    /// The method of each k for an m × n matrix. All are of one kind, so that their errors can be compared: `auto` takes for
    /// all what it chooses for the largest.
    pub fn configure(
        self,
        ks: &[usize],
        (m, n, sparse): (usize, usize, bool),
        missing: &MissingParams,
        regularization: &RegularizationParams,
    ) -> BTreeMap<usize, Arc<dyn ConfiguredMethod>> {
        let (missing, regularization) = (missing.clone(), regularization.clone());
        // With excluded entries, sweeps are cheap: a row and its operands are in cache.
        let inner_sweeps = Auto::Given(2);
        // Runs that all start from the data's singular vectors would agree for any k.
        let exact =
            ExactParams { init: InitParams::RANDOM, regularization: regularization.clone(), ..Hals::default().exact };
        let one: Arc<dyn ConfiguredMethod> = match self {
            SweepMethod::Hals => Arc::new(Hals { inner_sweeps, missing, exact, ..Hals::default() }),
            SweepMethod::Mu => Arc::new(Mu { missing, exact }),
            SweepMethod::Auto if missing.any() => {
                Arc::new(Automatic { inner_sweeps, missing, exact, ..Automatic::default() })
            }
            SweepMethod::Auto => Arc::new(Automatic { exact, ..Automatic::default() }),
            SweepMethod::Bpp => Arc::new(Bpp { missing, exact, ..Bpp::default() }),
            SweepMethod::KlMu => Arc::new(KlMu { kl: KlParams { regularization, ..KlMu::default().kl } }),
            SweepMethod::KlCd => {
                let defaults = KlCd::default();
                Arc::new(KlCd { kl: KlParams { regularization, ..defaults.kl }, ..defaults })
            }
            SweepMethod::Dsanls => Arc::new(Dsanls { missing, regularization, ..Dsanls::default() }),
        };
        let of = |k: usize| match one.choose(Some(MatrixShape { m, n, k, sparse, streamed: false })) {
            Some(choice) => choice.method,
            None => one.clone(),
        };
        let largest = of(ks.iter().copied().max().unwrap_or(1));
        let alike = |method: &Arc<dyn ConfiguredMethod>| method.description().name == largest.description().name;
        ks.iter().map(|&k| (k, Some(of(k)).filter(alike).unwrap_or_else(|| largest.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_for_the_divergence_hold_no_entries_out() {
        let share = |method: SweepMethod, holdout| method.left_out(Missing::None, holdout).map(|left| left.holdout);
        for method in [SweepMethod::Hals, SweepMethod::Mu, SweepMethod::Auto, SweepMethod::Bpp, SweepMethod::Dsanls] {
            assert_eq!((share(method, None), share(method, Some(0.2))), (Ok(HELD_OUT), Ok(0.2)));
        }
        for method in [SweepMethod::KlMu, SweepMethod::KlCd] {
            assert_eq!((share(method, None), share(method, Some(0.0))), (Ok(0.0), Ok(0.0)));
            let refused = share(method, Some(0.2)).unwrap_err();
            assert!(refused.message.contains("--holdout 0.2") && refused.message.contains(method.name()), "{refused}");
            assert!(method.left_out(Missing::Nan, None).is_err_and(|e| e.message.contains("--missing")));
        }
        let named = SweepMethod::ALL.iter().map(|method| SweepMethod::from_name(method.name()).unwrap());
        assert_eq!(named.collect::<Vec<_>>(), SweepMethod::ALL);
        assert!(SweepMethod::from_name("nmf").unwrap_err().message.contains("kl-mu"));
    }

    #[test]
    fn all_k_have_one_method() {
        let names = |ks: &[usize]| -> Vec<&str> {
            let none = MissingParams { missing: Missing::None, holdout: 0.0 };
            let free = RegularizationParams::NONE;
            let all = SweepMethod::Auto.configure(ks, (2000, 2000, false), &none, &free);
            all.values().map(|method| method.description().name).collect()
        };
        assert_eq!(names(&[2, 4]), ["dsanls", "dsanls"]);
        assert_eq!(names(&[2, 4, 40]), ["hals", "hals", "hals"], "for the largest, sketches do not pay");
    }
}
