//! Multiplicative updates for the Kullback-Leibler divergence (Lee and Seung 2001):
//! U_il ← U_il (Σ_j m_ij V_jl / (U_i·V_j)) / Σ_j V_jl, then V likewise with the new U.

use super::{Loss, MESSAGES_WITH_MISSING};
use crate::algorithms::cost::{Cost, Workload};
use crate::algorithms::description::{Description, Form, NO_PARTIES, Partition, Unit};
use crate::algorithms::method::{Groups, Method};
use crate::algorithms::shared::init::InitArgs;
use crate::algorithms::shared::missing::{self, MissingArgs};
use crate::algorithms::shared::regularization::RegularizationArgs;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;
use crate::metrics::Measure;
use crate::nls::divergence::KlMultiply;

/// Parameters of multiplicative updates for the Kullback-Leibler divergence.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct KlMuArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub init: InitArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub regularization: RegularizationArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub missing: MissingArgs,
}

impl Method for KlMuArgs {
    const DESCRIPTION: &'static Description = &Description {
        name: "kl-mu",
        aliases: &["mu-kl"],
        summary: "multiplicative updates for the Kullback-Leibler divergence: for counts, monotone",
        paper: "Lee and Seung 2001",
        partition: Partition::RowsAndColumns,
        unit: Unit::Update,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure: Measure::Divergence,
        dp: NO_PARTIES,
        limits: None,
        messages: MESSAGES_WITH_MISSING,
    };

    fn check(&self) -> Result<()> {
        self.init.refuse_nndsvd("kl-mu")
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            init: Some(&self.init),
            regularization: Some(&self.regularization),
            missing: Some(&self.missing),
            ..Groups::default()
        }
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        // What the factors say of an entry, and its share in k ratios.
        Ok(Some(super::cost(workload, ranks, 4.0)))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        if self.missing.any() {
            return missing::build(problem, &self.missing, &self.regularization, missing::UpdateKind::KlMu);
        }
        let update = KlMultiply::new(problem.k);
        super::build(problem, &self.regularization, Loss::KullbackLeibler, update)
    }
}
