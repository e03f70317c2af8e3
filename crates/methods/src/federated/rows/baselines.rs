//! The methods that FNMF is compared with. All use its framework ([`super::fnmf::federated`]):
//!
//! | method | local steps | exchange |
//! | --- | --- | --- |
//! | `fedavg` | inertial proximal or HALS | plain mean of all V_j in each round |
//! | `fedprox` | the same, pulled to V̄, component by component without alignment | plain mean in each round |
//! | `ipalm` | inertial proximal alternating minimisation | plain mean once, at the end |
//! | `mur` | multiplicative updates | plain mean once, at the end |

use fednmf_base::error::Result;
use fednmf_linalg::Real;

use super::fnmf::federated::{
    self, FederatedParams, FederatedSettings, MESSAGES, MESSAGES_ONCE, Normalize, RoundParams,
};
use super::fnmf::{LIMITS, LocalRule};
use crate::description::{Description, DifferentialPrivacy, Form, MessageSpec, Partition, ProtectedUnit, Unit};
use crate::method::Method;
use crate::metrics::Measure;
use crate::parameters::number;
use crate::{Algorithm, Problem};

/// What `--normalize auto` is for FedAvg and FedProx.
const NORMALIZE: Normalize = Normalize::None;

const fn describe(
    name: &'static str,
    summary: &'static str,
    paper: &'static str,
    unit: Unit,
    messages: &'static [MessageSpec],
) -> Description {
    Description {
        name,
        aliases: &[],
        summary,
        paper,
        partition: Partition::PartyRows,
        unit,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure: Measure::Rmsd,
        dp: DifferentialPrivacy::Offered(ProtectedUnit::Party),
        limits: Some(LIMITS),
        messages,
    }
}

fednmf_base::parameters! {
    /// Parameters of FedAvg for NMF (McMahan et al. 2017).
    pub struct FedAvg {
        group rounds: RoundParams;
        group federated: FederatedParams;
    }
}

impl Method for FedAvg {
    const DESCRIPTION: &'static Description = &describe(
        "fedavg",
        "federated averaging: local steps and the plain mean of all V; drifts where parties order components differently",
        "McMahan et al. 2017, as NMF in Dalleiger and Gionis (FNMF)",
        Unit::Round,
        MESSAGES,
    );

    fn check(&self) -> Result<()> {
        self.rounds.check_scale(&self.federated, NORMALIZE)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        let settings = FederatedSettings::rounds(&self.rounds, &self.federated, NORMALIZE);
        federated::build(problem, settings, &self.federated)
    }
}

fednmf_base::parameters! {
    /// Parameters of FedProx for NMF (Li et al. 2020).
    pub struct FedProx {
        group rounds: RoundParams;
        /// Weight of the pull of a party's V to the shared one, in every local step
        pub gamma: f64 = 0.1, "X", number(0.0, f64::INFINITY);
        group federated: FederatedParams;
    }
}

impl Method for FedProx {
    const DESCRIPTION: &'static Description = &describe(
        "fedprox",
        "FedAvg with a pull to the mean V in every local step",
        "Li et al. 2020, as NMF in Dalleiger and Gionis (FNMF)",
        Unit::Round,
        MESSAGES,
    );

    fn check(&self) -> Result<()> {
        self.rounds.check_scale(&self.federated, NORMALIZE)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        let rounds = FederatedSettings::rounds(&self.rounds, &self.federated, NORMALIZE);
        federated::build(
            problem,
            FederatedSettings { gamma: self.gamma, pull_in_first_round: true, ..rounds },
            &self.federated,
        )
    }
}

fednmf_base::parameters! {
    /// Parameters of independent inertial proximal alternating minimisation (Pock and Sabach 2016).
    pub struct Ipalm {
        /// Share of the last change that a proximal step carries on: X (t-1)/(t+2) in local step t; 0 for none
        pub inertia: f64 = 1.0, "X", number(0.0, 1.0);
        group federated: FederatedParams;
    }
}

impl Method for Ipalm {
    const DESCRIPTION: &'static Description = &describe(
        "ipalm",
        "every party alone by inertial proximal steps; the mean of all V once, at the end",
        "Pock and Sabach 2016; as a baseline in Dalleiger and Gionis (FNMF)",
        Unit::Update,
        MESSAGES_ONCE,
    );

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        let settings = FederatedSettings::once(&self.federated, LocalRule::Ipalm { inertia: self.inertia });
        federated::build(problem, settings, &self.federated)
    }
}

fednmf_base::parameters! {
    /// Parameters of independent multiplicative updates (Lee and Seung 2000).
    pub struct Mur {
        group federated: FederatedParams;
    }
}

impl Method for Mur {
    const DESCRIPTION: &'static Description = &describe(
        "mur",
        "every party alone by multiplicative updates; the mean of all V once, at the end",
        "Lee and Seung 2000; as a baseline in Dalleiger and Gionis (FNMF)",
        Unit::Update,
        MESSAGES_ONCE,
    );

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        federated::build(problem, FederatedSettings::once(&self.federated, LocalRule::Mur), &self.federated)
    }
}
