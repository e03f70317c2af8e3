//! `--algo auto` chooses the method for the loss. For divergences it chooses multiplicative updates with extrapolation. For the
//! squared error it chooses between extrapolated HALS with several sweeps per product and DSANLS. DSANLS is chosen if the
//! matrix is dense and so large that a few exact products cost more than many sketched ones.
//!
//! The choice compares the flops that each method needs to reach 1.01 times the best error, including the start. It depends
//! only on the sizes, because the result must not depend on the number of ranks or on time. The numbers of iterations were
//! measured on planted matrices (`bench/run choice`, `bench/run regime`). HALS needs about 19 iterations from a random
//! start, and at most one from a start that is computed from the data, because such a start reaches this error by itself.
//! DSANLS with d = 10k needs about 350. On real data DSANLS does not reach this error. On sparse data a product costs
//! little more than the sweeps, which a sketch does not save.

use std::sync::Arc;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_linalg::Real;

use super::divergence::KlParams;
use super::divergence::beta::{Beta, BetaMu};
use super::divergence::mu::KlMu;
use super::dsanls::Dsanls;
use super::hals::Hals;
use crate::description::{DefaultStop, Description};
use crate::method::{Choice, ConfiguredMethod, MatrixShape, Method, SweepSettings};
use crate::parameters::{Auto, ParamType as _, Size, Sizes as SketchSizes, auto, count};
use crate::shared::alternating::{ExactParams, Sizes};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::init::{InitParams, Start};
use crate::shared::missing::MissingParams;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// The loss, and parameters of HALS with the defaults of its accelerated form. If one of these is given, HALS is chosen.
    pub struct Automatic {
        /// Loss to minimise: frobenius or 2 (the squared error), kullback-leibler, kl or 1 (for counts), itakura-saito, is or 0 (for
        /// spectra without zeros), or the number β of another β-divergence
        pub loss: Beta = Beta::FROBENIUS, "LOSS";
        /// Sweeps of a factor for each product with the data. auto: several where a product costs more than a sweep, by their
        /// flops (accelerated HALS)
        pub inner_sweeps: Auto<usize> = Auto::Auto, "N", auto(count(1));
        /// Where a factor's update starts [default: restart; none with --missing or --holdout]
        pub extrapolation: Option<Extrapolation> = None, "HOW";
        group exact: ExactParams;
        group missing: MissingParams;
    }
}

const WHY_HALS: &str = "the fewest operations for a matrix of this size";
const WHY_MULTIPLY: &str = "for divergences, multiplicative updates with extrapolation";
const WHY_PLAIN: &str = "multiplicative updates decrease every divergence, with penalties and missing entries too";
const WHY_STREAMED: &str = "memory cannot hold the matrix, and exact products read it from the file";
const WHY_DSANLS: &str = "a dense matrix of this size is sketched many times at the price of one exact product";

/// Iterations to 1.01 times the best error: extrapolated HALS from a random start and from a start that is computed from
/// the data, and DSANLS.
const EXACT_FROM_RANDOM: f64 = 19.0;
const EXACT_FROM_DATA: f64 = 1.0;
const SKETCHED: f64 = 350.0;
/// Number of sketched rows or columns per component.
const DRAWS: usize = 10;
/// Flops of a product with the whole matrix that take as long as one with sampled rows (`bench/run regime`).
const SAMPLED_FLOP: f64 = 1.5;

/// The methods for divergences.
enum Divergence {
    Kl(KlMu),
    Beta(BetaMu),
}

impl Divergence {
    fn check(&self) -> Result<()> {
        match self {
            Divergence::Kl(method) => Method::check(method),
            Divergence::Beta(method) => Method::check(method),
        }
    }

    fn choice(self) -> Choice {
        let (extrapolation, method): (_, Arc<dyn ConfiguredMethod>) = match self {
            Divergence::Kl(method) => (method.extrapolation(), Arc::new(method)),
            Divergence::Beta(method) => (method.extrapolation(), Arc::new(method)),
        };
        let why = if extrapolation == Extrapolation::Restart { WHY_MULTIPLY } else { WHY_PLAIN };
        Choice { method, why }
    }
}

impl Automatic {
    /// The method for a divergence; `None` for the squared error.
    fn divergence(&self) -> Option<Divergence> {
        let Automatic { loss, extrapolation, missing, .. } = self.clone();
        let ExactParams { init, regularization, .. } = self.exact.clone();
        match loss {
            Beta::FROBENIUS => None,
            Beta::KULLBACK_LEIBLER => Some(Divergence::Kl(KlMu {
                extrapolation,
                kl: KlParams { init, regularization, missing },
                ..KlMu::default()
            })),
            beta => Some(Divergence::Beta(BetaMu { beta, extrapolation, init, regularization })),
        }
    }

    /// Refuses options of the methods for the squared error together with another loss.
    fn check_divergence(&self) -> Result<()> {
        let name = self.loss.name();
        let Automatic { exact, .. } = Automatic::default();
        let of_hals = [
            ("--inner-sweeps", self.inner_sweeps != Auto::Auto),
            (
                "--grid, --exchange and --measure",
                (&self.exact.grid, &self.exact.measure) != (&exact.grid, &exact.measure),
            ),
        ];
        if let Some((what, _)) = of_hals.into_iter().find(|(_, given)| *given) {
            return Err(Error::input(format!(
                "{what}: for the squared error only, not for --loss {name}; leave it out"
            )));
        }
        if self.missing.any() && self.loss != Beta::KULLBACK_LEIBLER {
            return Err(Error::input(format!(
                "--missing and --holdout: not for --loss {name}; use --loss frobenius or kullback-leibler"
            )));
        }
        Ok(())
    }

    fn hals(&self) -> Hals {
        let accelerated = if self.missing.any() { Extrapolation::None } else { Extrapolation::Restart };
        Hals {
            inner_sweeps: self.inner_sweeps,
            extrapolation: self.extrapolation.unwrap_or(accelerated),
            exact: self.exact.by_size(),
            missing: self.missing.clone(),
        }
    }

    /// DSANLS with ten sketched rows or columns per component; `None` if the sizes favour HALS.
    fn dsanls(&self, MatrixShape { m, n, k, sparse, streamed }: MatrixShape) -> Option<Dsanls> {
        if sparse || streamed {
            return None;
        }
        let sizes = Sizes { m, n, entries: m as f64 * n as f64, k };
        let start = Start::choose(&self.exact.by_size().init.init, &sizes, sparse);
        let iterations = if start == Start::Random { EXACT_FROM_RANDOM } else { EXACT_FROM_DATA };
        let exact = start.flops(&sizes, sparse) + iterations * 4.0 * sizes.entries * k as f64;
        // The products; then the Gram matrices and updates.
        let draws = DRAWS * k;
        let sketched = SKETCHED * SAMPLED_FLOP * 2.0 * (m + n) as f64 * (k * (draws + k)) as f64;
        if exact <= sketched {
            return None;
        }
        let size = Size::Count(draws);
        let mut args = Dsanls::default();
        args.sketch.sketch_size = Auto::Given(SketchSizes { u: size, v: size });
        args.regularization = self.exact.regularization.clone();
        Some(args)
    }
}

/// The name of the parameter that selects the loss.
pub const LOSS: &str = "loss";

/// A method for the loss of this name or number. `auto` chooses one; a method that is named has its own loss, which is only
/// confirmed.
///
/// # Errors
/// If there is no such loss, or the method has another one.
pub fn with_loss(method: &Arc<dyn ConfiguredMethod>, text: &str) -> Result<Arc<dyn ConfiguredMethod>> {
    if method.takes(LOSS) {
        return method.configure(&[(LOSS, text)]);
    }
    let requested = Beta::parse(text).map_err(|must| Error::input(format!("--loss {text}: {must}")))?;
    let (name, own) = (method.description().name, Beta::of_method(&**method));
    if own == Some(requested) {
        return Ok(method.clone());
    }
    let minimises = match own {
        Some(own) => format!("--algo {name} minimises the loss {}", own.name()),
        None => format!("--algo {name} has a loss of its own"),
    };
    let cure =
        if method.takes("beta") { format!("give --beta {}", requested.0) } else { "leave --algo out".to_string() };
    Err(Error::input(format!("--loss {text}: {minimises}; {cure}, or leave --loss out")))
}

impl Method for Automatic {
    const DESCRIPTION: &'static Description = &Description {
        name: "auto",
        aliases: &[],
        summary: "chooses by loss and sizes: HALS, DSANLS, or multiplicative updates, accelerated",
        stop: DefaultStop { max_iters: 1000, tol: Some(1e-5) },
        ..*Hals::DESCRIPTION
    };

    fn check(&self) -> Result<()> {
        match self.divergence() {
            Some(method) => self.check_divergence().and_then(|()| method.check()),
            None => Method::check(&self.hals()),
        }
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        let (missing, exact) = (settings.missing.clone(), self.exact.for_sweep(settings));
        let several = missing.any() && self.loss == Beta::FROBENIUS;
        let inner_sweeps = if several { Auto::Given(2) } else { self.inner_sweeps };
        Some(Automatic { inner_sweeps, missing, exact, ..self.clone() })
    }

    fn choose(&self, matrix: Option<MatrixShape>) -> Option<Choice> {
        let streamed = matrix.is_some_and(|shape| shape.streamed);
        if let Some(method) = self.divergence() {
            return Some(method.choice());
        }
        // A user who sets a HALS parameter gets HALS. A random start and penalties do not count, because DSANLS also has
        // them.
        let mut compared = self.clone();
        compared.exact.regularization = Automatic::default().exact.regularization;
        if compared.exact.init == InitParams::RANDOM {
            compared.exact.init = Automatic::default().exact.init;
        }
        let untouched = compared == Automatic::default();
        let sketched = matrix.filter(|_| untouched).and_then(|shape| self.dsanls(shape));
        Some(match sketched {
            Some(args) => Choice { method: Arc::new(args), why: WHY_DSANLS },
            None if streamed => Choice { method: Arc::new(self.hals()), why: WHY_STREAMED },
            None => Choice { method: Arc::new(self.hals()), why: WHY_HALS },
        })
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        match self.divergence() {
            Some(Divergence::Kl(method)) => method.build(problem),
            Some(Divergence::Beta(method)) => method.build(problem),
            None => self.hals().build(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(m: usize, n: usize, k: usize, sparse: bool) -> Choice {
        Method::choose(&Automatic::default(), Some(MatrixShape { m, n, k, sparse, streamed: false })).unwrap()
    }

    #[test]
    fn only_large_dense_matrices_are_sketched() {
        let name = |m, n, k, sparse| chosen(m, n, k, sparse).method.description().name;
        assert_eq!(name(20_000, 2_000, 40, false), "hals");
        assert_eq!(name(60_000, 784, 10, false), "hals");
        assert_eq!(name(4_000, 4_000, 20, false), "hals");
        assert_eq!(name(4_000, 4_000, 8, false), "hals");
        assert_eq!(name(8_000, 8_000, 20, false), "hals");
        assert_eq!(name(60_000, 60_000, 20, false), "dsanls");
        assert_eq!(name(60_000, 60_000, 20, true), "hals");
        assert_eq!(name(6_000, 6_000, 4, false), "hals");
        assert_eq!(name(60_000, 60_000, 4, false), "dsanls");
    }

    #[test]
    fn the_loss_decides() {
        let chosen = |given: &[(&str, &str)]| {
            let method = crate::registry::AUTO.configure(given)?;
            let Choice { method, why } = method.choose(None).unwrap();
            method.configure(&[])?;
            Ok::<_, Error>((method.description().name, Beta::of_method(&*method), why))
        };
        for (text, name, beta, why) in [
            ("frobenius", "hals", 2.0, WHY_HALS),
            ("2", "hals", 2.0, WHY_HALS),
            ("kl", "kl-mu", 1.0, WHY_MULTIPLY),
            ("kullback-leibler", "kl-mu", 1.0, WHY_MULTIPLY),
            ("1.5", "beta-mu", 1.5, WHY_MULTIPLY),
            ("is", "beta-mu", 0.0, WHY_PLAIN),
            ("3", "beta-mu", 3.0, WHY_PLAIN),
        ] {
            assert_eq!(chosen(&[("loss", text)]).unwrap(), (name, Some(Beta(beta)), why), "{text}");
        }
        assert_eq!(chosen(&[("loss", "kl"), ("alpha_u", "0.1")]).unwrap().2, WHY_MULTIPLY);
        for plain in [("alpha_u", "0.1"), ("alpha_v", "0.1")] {
            assert_eq!(chosen(&[("loss", "1.5"), plain]).unwrap().2, WHY_PLAIN);
        }
        assert_eq!(chosen(&[("loss", "kl"), ("holdout", "0.1")]).unwrap().2, WHY_PLAIN);
        for (wrong, word) in [
            (("inner_sweeps", "2"), "--inner-sweeps"),
            (("grid", "1x1"), "--grid"),
            (("holdout", "0.1"), "--holdout"),
            (("loss", "mse"), "--loss mse"),
        ] {
            let error = chosen(&[("loss", "1.5"), wrong]).unwrap_err();
            assert!(error.message.contains(word), "{}", error.message);
        }
    }

    #[test]
    fn what_memory_cannot_hold_is_not_sketched() {
        let name = |streamed| {
            let shape = MatrixShape { m: 60_000, n: 60_000, k: 20, sparse: false, streamed };
            Method::choose(&Automatic::default(), Some(shape)).unwrap().method.description().name
        };
        assert_eq!([name(false), name(true)], ["dsanls", "hals"]);
    }

    #[test]
    fn from_random_numbers_sketching_pays_earlier() {
        let mut args = Automatic::default();
        args.exact.init = InitParams::RANDOM;
        let name = |n| {
            let shape = MatrixShape { m: n, n, k: 20, sparse: false, streamed: false };
            Method::choose(&args, Some(shape)).unwrap().method.description().name
        };
        assert_eq!([name(4_000), name(8_000)], ["hals", "dsanls"]);
    }

    #[test]
    fn the_sketch_has_ten_rows_for_a_component() {
        assert_eq!(crate::parameters::to_json(&*chosen(60_000, 60_000, 20, false).method)["sketch_size"], "200,200");
    }
}
