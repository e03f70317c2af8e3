//! Multiplicative updates for the Kullback-Leibler divergence (Lee and Seung 2001):
//! U_il ← U_il (Σ_j m_ij V_jl / (U_i·V_j)) / Σ_j V_jl, then V likewise with the new U. With extrapolation, block
//! majorisation-minimisation (Hien, Leplat, Gillis, arXiv 2401.06646).

use fednmf_base::error::{Result, SharedResult};
use fednmf_linalg::Real;
use fednmf_linalg::nls::divergence::{Extrapolated, KlMultiply};

use super::{KlParams, MESSAGES_WITH_MISSING, describe, streamed};
use crate::cost::{Cost, Workload};
use crate::description::{Description, MessageSpec};
use crate::method::{Method, SweepSettings};
use crate::metrics::Measure;
use crate::parameters::Init;
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing::UpdateKind;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of multiplicative updates for the Kullback-Leibler divergence.
    pub struct KlMu {
        /// Where a factor's update starts [default: restart; none with --missing and --holdout]
        pub extrapolation: Option<Extrapolation> = None, "HOW";
        group kl: KlParams;
    }
}

/// Those of every method for the divergence, and of data read in passes.
const MESSAGES: &[MessageSpec] = &{
    const STREAMED: [MessageSpec; 2] = [
        MessageSpec::new(streamed::RATIOS, "n x k", "each iteration, of data read in passes"),
        MessageSpec::new(streamed::SUMS, "k", "each iteration, of data read in passes"),
    ];
    let mut all = [STREAMED[0]; MESSAGES_WITH_MISSING.len() + 2];
    all[1] = STREAMED[1];
    let mut i = 0;
    while i < MESSAGES_WITH_MISSING.len() {
        all[i + 2] = MESSAGES_WITH_MISSING[i];
        i += 1;
    }
    all
};

/// Operations per entry and component: the fit, and its terms in k ratios.
const FLOPS: f64 = 4.0;

impl KlMu {
    /// The extrapolation of a run.
    pub fn extrapolation(&self) -> Extrapolation {
        let fastest = if self.kl.missing.any() { Extrapolation::None } else { Extrapolation::Restart };
        self.extrapolation.unwrap_or(fastest)
    }
}

impl Method for KlMu {
    const DESCRIPTION: &'static Description = &Description {
        keeps_zeros: true,
        messages: MESSAGES,
        ..describe(
            "kl-mu",
            &["mu-kl"],
            "multiplicative updates for the Kullback-Leibler divergence: for counts, monotone",
            "Lee and Seung 2001",
            Measure::Divergence,
        )
    };

    fn check(&self) -> Result<()> {
        self.kl.check(self.extrapolation())
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        Some(KlMu { kl: self.kl.for_sweep(settings), ..self.clone() })
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        Ok(Some(super::cost(&self.kl.start(), self.extrapolation(), workload, ranks, FLOPS)))
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        let KlParams { init, missing, .. } = &self.kl;
        let starts = !init.is_computed() && init.init != Init::BySize;
        (starts && !missing.any()).then(|| streamed::cost(workload, self.extrapolation(), ranks, FLOPS))
    }

    fn build<T: Real>(&self, mut problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        if let Some(panels) = problem.data.panels.take() {
            return streamed::build((&self.kl, self.extrapolation()), panels, problem);
        }
        let update = KlMultiply::new(problem.k);
        match self.extrapolation() {
            Extrapolation::None => self.kl.build(problem, update, UpdateKind::KlMu),
            Extrapolation::Restart => {
                let update = Extrapolated::<T, _>::new(update, problem.k);
                self.kl.build(problem, update, UpdateKind::KlMu)
            }
        }
    }
}
