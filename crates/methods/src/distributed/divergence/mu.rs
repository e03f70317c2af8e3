//! Multiplicative updates for the Kullback-Leibler divergence (Lee and Seung 2001):
//! U_il ← U_il (Σ_j m_ij V_jl / (U_i·V_j)) / Σ_j V_jl, then V likewise with the new U. With extrapolation, block
//! majorisation-minimisation (Hien, Leplat, Gillis, arXiv 2401.06646). [`super::volume`] has the minimum-volume
//! penalty.

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_linalg::Real;
use fednmf_linalg::nls::divergence::{Extrapolated, KlMultiply};

use super::volume::{Volume, VolumeParams};
use super::{KlParams, Loss, MESSAGES_WITH_MISSING, describe, factorisation, streamed, volume};
use crate::cost::{Cost, Workload};
use crate::description::{Description, MessageSpec};
use crate::method::{Method, SweepSettings};
use crate::metrics::Measure;
use crate::parameters::Init;
use crate::shared::extrapolation::Extrapolation;
use crate::shared::factor_side::GATHER_V;
use crate::shared::missing::UpdateKind;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of multiplicative updates for the Kullback-Leibler divergence.
    pub struct KlMu {
        /// Where a factor's update starts [default: restart; none with --missing, --holdout and
        /// --min-volume]
        pub extrapolation: Option<Extrapolation> = None, "HOW";
        group kl: KlParams;
        group volume: VolumeParams;
    }
}

/// The gathers of V, which are the first of [`MESSAGES_WITH_MISSING`].
const GATHERS: MessageSpec = MessageSpec::new(
    GATHER_V,
    "n x k",
    "each iteration, twice with --min-volume, and each evaluation; once for a computed start, or for each of its samples, \
     and for --min-volume",
);

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
    all[2] = GATHERS;
    all
};

/// Operations per entry and component.
const FLOPS: f64 = KlMultiply::FLOPS as f64;

impl KlMu {
    /// The extrapolation of a run.
    pub fn extrapolation(&self) -> Extrapolation {
        let plain = self.kl.missing.any() || self.volume.is_on();
        let fastest = if plain { Extrapolation::None } else { Extrapolation::Restart };
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
            "Lee, Seung: Algorithms for Non-negative Matrix Factorization (2001)",
            Measure::Divergence,
        )
    };

    fn check(&self) -> Result<()> {
        self.kl.check(self.extrapolation())?;
        if !self.volume.is_on() {
            return Ok(());
        }
        let why = if self.kl.missing.any() {
            "cannot be combined with --missing and --holdout; leave them out"
        } else if self.extrapolation() == Extrapolation::Restart {
            "cannot be combined with --extrapolation restart; leave it out"
        } else if self.kl.regularization.is_on_v() {
            "V has columns of sum 1, and no other penalty; add --alpha-v 0"
        } else {
            return Ok(());
        };
        Err(Error::input(format!("--min-volume: {why}")))
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        Some(KlMu { kl: self.kl.for_sweep(settings), volume: settings.volume.clone(), ..self.clone() })
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let mut cost = super::cost(&self.kl.start(), self.extrapolation(), workload, ranks, FLOPS);
        if self.volume.is_on() {
            volume::add_cost(&mut cost, workload, ranks);
        }
        Ok(Some(cost))
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        let KlParams { init, missing, .. } = &self.kl;
        let starts = !init.is_computed() && init.init != Init::BySize;
        (starts && !missing.any() && !self.volume.is_on())
            .then(|| streamed::cost(workload, self.extrapolation(), ranks, FLOPS))
    }

    fn build<T: Real>(&self, mut problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        if let Some(panels) = problem.data.panels.take() {
            return streamed::build((&self.kl, self.extrapolation()), panels, problem);
        }
        let update = KlMultiply::new(problem.k);
        if self.volume.is_on() {
            let (sum, shape) = (problem.data.statistics.sum, (problem.data.header.cols, problem.k));
            let (start, penalties) = (self.kl.start(), &self.kl.regularization);
            let mut nmf = factorisation(problem, &start, penalties, Loss::KullbackLeibler, update)?;
            let mut volume = Volume::new(&self.volume, sum, shape);
            volume.normalise(&mut nmf.u.factor, &mut nmf.v.factor);
            nmf.volume = Some(volume);
            return Ok(Box::new(nmf));
        }
        match self.extrapolation() {
            Extrapolation::None => self.kl.build(problem, update, UpdateKind::KlMu),
            Extrapolation::Restart => {
                let update = Extrapolated::<T, _>::new(update, problem.k);
                self.kl.build(problem, update, UpdateKind::KlMu)
            }
        }
    }
}
