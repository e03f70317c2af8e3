//! Multiplicative updates for the Kullback-Leibler divergence (Lee and Seung 2001):
//! U_il ← U_il (Σ_j m_ij V_jl / (U_i·V_j)) / Σ_j V_jl, then V likewise with the new U.

use fednmf_base::error::Result;
use fednmf_linalg::Real;
use fednmf_linalg::nls::divergence::KlMultiply;

use super::{KlParams, describe};
use crate::cost::{Cost, Workload};
use crate::description::Description;
use crate::method::{Method, SweepSettings};
use crate::metrics::Measure;
use crate::shared::missing::UpdateKind;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of multiplicative updates for the Kullback-Leibler divergence.
    pub struct KlMu {
        group kl: KlParams;
    }
}

impl Method for KlMu {
    const DESCRIPTION: &'static Description = &Description {
        keeps_zeros: true,
        ..describe(
            "kl-mu",
            &["mu-kl"],
            "multiplicative updates for the Kullback-Leibler divergence: for counts, monotone",
            "Lee and Seung 2001",
            Measure::Divergence,
        )
    };

    fn check(&self) -> Result<()> {
        self.kl.check()
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        Some(KlMu { kl: self.kl.for_sweep(settings) })
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        // Operations per entry: the fit, and its terms in k ratios.
        Ok(Some(super::cost(&self.kl.init, workload, ranks, 4.0)))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        let update = KlMultiply::new(problem.k);
        self.kl.build(problem, update, UpdateKind::KlMu)
    }
}
