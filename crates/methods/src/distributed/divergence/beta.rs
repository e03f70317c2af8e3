//! Multiplicative updates for any β-divergence (Févotte and Idier 2011), such as Itakura-Saito (β = 0), Kullback-Leibler (β
//! = 1) and least squares (β = 2). The iterates are those of scikit-learn's NMF with `solver="mu"`. With extrapolation, for 1 ≤ β
//! ≤ 2, block majorisation-minimisation (Hien, Leplat, Gillis, arXiv 2401.06646).

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_linalg::nls::divergence::{BetaMultiply, Extrapolated, unit};
use fednmf_linalg::{Block, Real};

use super::{Loss, describe};
use crate::cost::{Cost, Workload};
use crate::description::Description;
use crate::method::{ConfiguredMethod, Method};
use crate::metrics::Measure;
use crate::parameters::{ParamType, ParamValue, Parsed, number};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::init::InitParams;
use crate::shared::regularization::RegularizationParams;
use crate::{Algorithm, Problem};

/// β, given as a number or as the name of its divergence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beta(pub f64);

impl Beta {
    /// The squared error.
    pub const FROBENIUS: Beta = Beta(2.0);
    /// The generalised Kullback-Leibler divergence.
    pub const KULLBACK_LEIBLER: Beta = Beta(1.0);

    /// The loss that a method minimises; `None` if it is no β-divergence.
    pub fn of_method(method: &dyn ConfiguredMethod) -> Option<Beta> {
        match method.description().measure {
            Measure::RelativeError => Some(Beta::FROBENIUS),
            Measure::Divergence => Some(Beta::KULLBACK_LEIBLER),
            Measure::BetaDivergence => method.as_any().downcast_ref::<BetaMu>().map(|method| method.beta),
            _ => None,
        }
    }

    /// Whether the divergence is convex in each factor, as extrapolation needs it to be.
    pub fn is_convex(self) -> bool {
        (1.0..=2.0).contains(&self.0)
    }

    /// The name, or a description with the number if there is none.
    pub fn name(self) -> String {
        let named = NAMES.iter().find(|(_, beta)| *beta == self.0);
        named.map_or_else(|| format!("beta-divergence with beta {}", self.0), |(name, _)| (*name).to_string())
    }
}

/// The names of some β: those of scikit-learn, and short ones.
const NAMES: [(&str, f64); 5] =
    [("itakura-saito", 0.0), ("kullback-leibler", 1.0), ("frobenius", 2.0), ("is", 0.0), ("kl", 1.0)];
/// Largest |β|. For larger values, powers of the fit exceed the range of floating-point numbers.
const MOST: f64 = 10.0;

fn beta(text: &str) -> Parsed<Beta> {
    match NAMES.iter().find(|(name, _)| *name == text) {
        Some((_, beta)) => Ok(Beta(*beta)),
        // The formulas for other β lose all digits near 0, 1 and 2.
        None => {
            number(-MOST, MOST)(text).map(|b| Beta(if (b - b.round()).abs() < 1e-8 { b.round() } else { b })).map_err(
                |must| format!("{must}, or itakura-saito or is (0), kullback-leibler or kl (1), or frobenius (2)"),
            )
        }
    }
}

impl ParamType for Beta {
    fn value(&self) -> ParamValue {
        ParamValue::Number(self.0)
    }

    fn parse(text: &str) -> Parsed<Self> {
        beta(text)
    }
}

fednmf_base::parameters! {
    /// Parameters of multiplicative updates for a β-divergence.
    pub struct BetaMu {
        /// Divergence: a number, or itakura-saito (0), kullback-leibler (1) or frobenius (2). From 0 down, no entry may be zero
        pub beta: Beta = Beta(1.5), "X";
        /// Where a factor's update starts [default: restart, if --beta is from 1 to 2 and there is no penalty; else none]
        pub extrapolation: Option<Extrapolation> = None, "HOW";
        group init: InitParams;
        group regularization: RegularizationParams;
    }
}

impl BetaMu {
    /// The extrapolation of a run.
    pub fn extrapolation(&self) -> Extrapolation {
        let applies = self.beta.is_convex() && !self.regularization.is_on();
        let fastest = if applies { Extrapolation::Restart } else { Extrapolation::None };
        self.extrapolation.unwrap_or(fastest)
    }
}

impl Method for BetaMu {
    const DESCRIPTION: &'static Description = &Description {
        keeps_zeros: true,
        ..describe(
            "beta-mu",
            &["mu-beta"],
            "multiplicative updates for any beta-divergence, such as Itakura-Saito: for spectra",
            "Févotte, Idier: Algorithms for Nonnegative Matrix Factorization with the β-Divergence (2011)",
            Measure::BetaDivergence,
        )
    };

    fn check(&self) -> Result<()> {
        if self.extrapolation() == Extrapolation::None {
            return Ok(());
        }
        let why = if !self.beta.is_convex() {
            "needs a convex divergence, whose --beta is from 1 to 2"
        } else if self.regularization.is_on() {
            "cannot be combined with --alpha-u and --alpha-v here (kl-mu and hals can)"
        } else {
            return Ok(());
        };
        Err(Error::input(format!("--extrapolation restart: {why}; leave it out")))
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, .. } = *workload;
        // For β = 1 and β = 2, zeros contribute nothing.
        let entries = if [1.0, 2.0].contains(&self.beta.0) { workload.stored } else { m as f64 * n as f64 };
        let mut cost = super::cost(
            &self.init.by_size(),
            self.extrapolation(),
            &Workload { stored: entries, sparse: false, ..*workload },
            ranks,
            BetaMultiply::flops_of(self.beta.0, 1, 1) as f64,
        );
        let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
        cost.data = workload.block(rows, workload.part(rows, n)) + workload.block(cols, workload.part(m, cols));
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        let Beta(beta) = self.beta;
        let (update, unit) = update_for(beta, &problem)?;
        let (init, regularization, loss) = (&self.init.by_size(), &self.regularization, Loss::Beta(beta, unit));
        match self.extrapolation() {
            Extrapolation::None => super::build(problem, init, regularization, loss, update),
            Extrapolation::Restart => {
                let update = Extrapolated::<T, _>::new(update, problem.k);
                super::build(problem, init, regularization, loss, update)
            }
        }
    }
}

/// Refuses a matrix with zeros if their divergence from any fit is infinite.
///
/// # Errors
/// With their number.
pub fn check_zeros(beta: f64, zeros: u64) -> Result<()> {
    if beta > 0.0 || zeros == 0 {
        return Ok(());
    }
    Err(Error::input(format!(
        "--loss or --beta {beta}: the matrix has {zeros} zero(s), whose divergence from any fit is infinite for a beta of at most 0; use a \
         larger beta, or add a small number to all entries"
    )))
}

/// Checks that no entry of a block without zeros is too small for a β of at most 0: for f32, or for its power.
///
/// # Errors
/// If one is.
fn check_small_entries<T: Real>(beta: f64, unit: f64, block: &Block<T>) -> Result<()> {
    let (rows, columns) = block.shape();
    let (mut nonzeros, mut least) = (0, f64::INFINITY);
    for i in 0..rows {
        block.for_each_nonzero(i, |_, x| {
            nonzeros += 1;
            least = least.min(x.as_f64());
        });
    }
    let at = |why: &str| Err(Error::input(format!("--loss or --beta {beta}: {why}")));
    // Below its normal numbers f32 has few digits.
    if T::NAME == f32::NAME && (nonzeros < rows * columns || least < f64::from(f32::MIN_POSITIVE)) {
        return at("the matrix has entries that are too small for f32; use --precision f64");
    }
    if nonzeros > 0 && !(least / unit).powf(beta).is_finite() {
        return at(
            "the smallest entries are so far below the others that their powers overflow; raise them, or use a larger beta",
        );
    }
    Ok(())
}

/// The update of a row for these data, and their [`unit`].
///
/// # Errors
/// On all ranks, if the divergence from an entry is infinite, or powers of the entries overflow or underflow.
pub(crate) fn update_for<T: Real>(beta: f64, problem: &Problem<'_, T>) -> SharedResult<(BetaMultiply, f64)> {
    let header = &problem.data.header;
    check_zeros(beta, header.rows as u64 * header.cols as u64 - problem.data.statistics.nonzeros)
        .map_err(Error::on_all_ranks)?;
    let unit = unit(problem.data.statistics.norm2, header.rows as f64 * header.cols as f64);
    if beta <= 0.0 {
        let checked = problem.data.blocks.iter().try_for_each(|block| check_small_entries(beta, unit, block));
        problem.comm.agree_on_error(checked)?;
    }
    if ![beta - 1.0, beta].iter().all(|&by| unit.powf(by).is_normal()) {
        return Err(Error::input(format!(
            "--loss or --beta {beta}: the entries are of the order of {unit:.0e}, and their powers overflow or underflow; scale the data \
             (--scale max)"
        ))
        .on_all_ranks());
    }
    Ok((BetaMultiply::new(beta, problem.k, unit), unit))
}
