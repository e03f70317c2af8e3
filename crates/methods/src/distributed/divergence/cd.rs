//! Coordinate descent for the Kullback-Leibler divergence (Hsieh and Dhillon 2011): a Newton step for each entry of a row
//! in turn, several times for each half of an iteration. A step never increases the objective.

use fednmf_base::error::{Result, SharedResult};
use fednmf_linalg::Real;
use fednmf_linalg::nls::divergence::KlSweeps;

use super::{KlParams, describe};
use crate::cost::{Cost, Workload};
use crate::description::Description;
use crate::method::{Method, SweepSettings};
use crate::metrics::Measure;
use crate::parameters::count;
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing::UpdateKind;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of coordinate descent for the Kullback-Leibler divergence.
    pub struct KlCd {
        /// Sweeps of a factor in each iteration
        pub inner_sweeps: usize = 2, "N", count(1);
        group kl: KlParams;
    }
}

impl Method for KlCd {
    const DESCRIPTION: &'static Description = &describe(
        "kl-cd",
        &["cd-kl"],
        "coordinate descent for the Kullback-Leibler divergence: for counts",
        "Hsieh, Dhillon: Fast Coordinate Descent Methods with Variable Selection for Non-negative Matrix Factorization (2011)",
        Measure::Divergence,
    );

    fn check(&self) -> Result<()> {
        self.kl.check(Extrapolation::None)
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        Some(KlCd { kl: self.kl.for_sweep(settings), ..self.clone() })
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let flops = KlSweeps::flops_of(self.inner_sweeps) as f64;
        let mut cost = super::cost(&self.kl.start(), Extrapolation::None, workload, ranks, flops);
        // A copy of the other factor's rows at the nonzeros of a row.
        cost.factors += (size_of::<f64>() * workload.m.max(workload.n) * workload.k) as f64;
        Ok(Some(cost))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        let update = KlSweeps::new(problem.k, self.inner_sweeps);
        self.kl.build(problem, update, UpdateKind::KlCd { passes: self.inner_sweeps })
    }
}
