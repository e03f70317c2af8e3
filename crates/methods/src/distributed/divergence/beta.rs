//! Multiplicative updates for any β-divergence (Févotte and Idier 2011), such as Itakura-Saito (β = 0), Kullback-Leibler (β
//! = 1) and least squares (β = 2). The iterates are those of scikit-learn's NMF with `solver="mu"`.

use fednmf_base::error::{Error, Result};
use fednmf_linalg::Real;
use fednmf_linalg::nls::divergence::BetaMultiply;

use super::{Loss, describe};
use crate::cost::{Cost, Workload};
use crate::description::Description;
use crate::method::Method;
use crate::metrics::Measure;
use crate::parameters::{ParamType, ParamValue, Parsed, number};
use crate::shared::init::InitParams;
use crate::shared::regularization::RegularizationParams;
use crate::{Algorithm, Problem};

/// β, given as a number or as the name of its divergence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beta(pub f64);

/// The names of some β in scikit-learn.
const NAMES: [(&str, f64); 3] = [("itakura-saito", 0.0), ("kullback-leibler", 1.0), ("frobenius", 2.0)];
/// Largest |β|. For larger values, powers of the fit exceed the range of floating-point numbers.
const MOST: f64 = 10.0;

fn beta(text: &str) -> Parsed<Beta> {
    match NAMES.iter().find(|(name, _)| *name == text) {
        Some((_, beta)) => Ok(Beta(*beta)),
        None => number(-MOST, MOST)(text)
            .map(Beta)
            .map_err(|must| format!("{must}, or itakura-saito (0), kullback-leibler (1) or frobenius (2)")),
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
        group init: InitParams;
        group regularization: RegularizationParams;
    }
}

impl Method for BetaMu {
    const DESCRIPTION: &'static Description = &Description {
        keeps_zeros: true,
        ..describe(
            "beta-mu",
            &["mu-beta"],
            "multiplicative updates for any beta-divergence, such as Itakura-Saito: for spectra",
            "Fevotte and Idier 2011",
            Measure::BetaDivergence,
        )
    };

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let Workload { m, n, .. } = *workload;
        // Operations per entry: the fit, and its terms in the numerator and the denominator. For β = 1 and β = 2, zeros
        // contribute nothing.
        let entries = if [1.0, 2.0].contains(&self.beta.0) { workload.stored } else { m as f64 * n as f64 };
        let mut cost = super::cost(&self.init, &Workload { stored: entries, sparse: false, ..*workload }, ranks, 6.0);
        let (rows, cols) = (m.div_ceil(ranks), n.div_ceil(ranks));
        cost.data = workload.block(rows, workload.part(rows, n)) + workload.block(cols, workload.part(m, cols));
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        let (Beta(beta), header) = (self.beta, &problem.data.header);
        let zeros = header.rows as u64 * header.cols as u64 - problem.data.statistics.nonzeros;
        if beta <= 0.0 && zeros > 0 {
            return Err(Error::input(format!(
                "--beta {beta}: the matrix has {zeros} zero(s), whose divergence from any fit is infinite for a beta of at \
                 most 0; use a larger beta, or add a small number to all entries"
            ))
            .on_all_ranks()
            .into());
        }
        let update = BetaMultiply::new(beta, problem.k);
        super::build(problem, &self.init, &self.regularization, Loss::Beta(beta), update)
    }
}
