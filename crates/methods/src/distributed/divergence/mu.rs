//! Multiplicative updates for the Kullback-Leibler divergence (Lee and Seung 2001):
//! U_il ← U_il (Σ_j m_ij V_jl / (U_i·V_j)) / Σ_j V_jl, then V likewise with the new U. With extrapolation, block
//! majorisation-minimisation (Hien, Leplat, Gillis, arXiv 2401.06646).

use fednmf_base::error::Result;
use fednmf_linalg::Real;
use fednmf_linalg::nls::divergence::{Extrapolated, KlMultiply};

use super::{KlParams, describe};
use crate::cost::{Cost, Workload};
use crate::description::Description;
use crate::method::{Method, SweepSettings};
use crate::metrics::Measure;
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing::UpdateKind;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of multiplicative updates for the Kullback-Leibler divergence.
    pub struct KlMu {
        /// Where a factor's update starts
        pub extrapolation: Extrapolation = Extrapolation::None, "HOW";
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
        self.kl.check(self.extrapolation)
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        let kl = self.kl.for_sweep(settings);
        let extrapolation = if kl.missing.any() { Extrapolation::None } else { self.extrapolation };
        Some(KlMu { extrapolation, kl })
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        // Operations per entry: the fit, and its terms in k ratios.
        Ok(Some(super::cost(&self.kl.init, self.extrapolation, workload, ranks, 4.0)))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        let update = KlMultiply::new(problem.k);
        match self.extrapolation {
            Extrapolation::None => self.kl.build(problem, update, UpdateKind::KlMu),
            Extrapolation::Restart => {
                let update = Extrapolated::<T, _>::new(update, problem.k);
                self.kl.build(problem, update, UpdateKind::KlMu)
            }
        }
    }
}
