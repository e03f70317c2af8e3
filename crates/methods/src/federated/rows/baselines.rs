//! The methods that FNMF is compared with: other pairs of local steps and aggregation in its loop
//! ([`federated`](super::fnmf::federated)).
//!
//! | method | local steps | aggregation |
//! | --- | --- | --- |
//! | `fedavg` | inertial proximal or HALS | plain mean of all V_j in each round |
//! | `fedprox` | the same, with a proximal term to V̄, component by component without alignment | plain mean in each round |
//! | `ipalm` | inertial proximal alternating minimisation | plain mean once, at the end |
//! | `mur` | multiplicative updates | plain mean once, at the end |

use super::fnmf::federated::{Federated, LocalStep, Mean, ProximalParams, Published, RoundParams, Schedule};
use super::fnmf::{LocalRule, LocalSteps};
use crate::parameters::number;

/// Parameters of FedAvg for NMF (McMahan et al. 2017).
pub type FedAvg = Federated<RoundParams, Mean>;

impl Published for FedAvg {
    const NAME: &'static str = "fedavg";
    const SUMMARY: &'static str = "federated averaging: local steps and the plain mean of all V, without alignment";
    const PAPER: &'static str = "McMahan et al. 2017, as NMF in Dalleiger and Gionis (FNMF)";
}

/// Parameters of FedProx for NMF (Li et al. 2020).
pub type FedProx = Federated<ProximalParams, Mean>;

impl Published for FedProx {
    const NAME: &'static str = "fedprox";
    const SUMMARY: &'static str = "FedAvg with a pull to the mean V in every local step";
    const PAPER: &'static str = "Li et al. 2020, as NMF in Dalleiger and Gionis (FNMF)";
}

fednmf_base::parameters! {
    /// Independent inertial proximal alternating minimisation (Pock and Sabach 2016).
    pub struct InertialParams {
        /// Share of the last change that a proximal step carries on: X (t-1)/(t+2) in local step t; 0 for none
        pub inertia: f64 = 1.0, "X", number(0.0, 1.0);
    }
}

/// Parameters of independent iPALM.
pub type Ipalm = Federated<InertialParams, Mean>;

impl LocalStep for InertialParams {
    const SCHEDULE: Schedule = Schedule::Once;

    fn steps(&self) -> LocalSteps {
        LocalSteps { steps: 1, tolerance: 0.0, rule: LocalRule::Ipalm { inertia: self.inertia } }
    }
}

impl Published for Ipalm {
    const NAME: &'static str = "ipalm";
    const SUMMARY: &'static str = "each party by itself, by inertial proximal steps; one mean of all V at the end";
    const PAPER: &'static str = "Pock and Sabach 2016; as a baseline in Dalleiger and Gionis (FNMF)";
}

fednmf_base::parameters! {
    /// Independent multiplicative updates (Lee and Seung 2000).
    pub struct MultiplicativeParams {}
}

/// Parameters of independent multiplicative updates.
pub type Mur = Federated<MultiplicativeParams, Mean>;

impl LocalStep for MultiplicativeParams {
    const SCHEDULE: Schedule = Schedule::Once;

    fn steps(&self) -> LocalSteps {
        LocalSteps { steps: 1, tolerance: 0.0, rule: LocalRule::Mur }
    }
}

impl Published for Mur {
    const NAME: &'static str = "mur";
    const SUMMARY: &'static str = "each party by itself, by multiplicative updates; one mean of all V at the end";
    const PAPER: &'static str = "Lee, Seung: Algorithms for Non-negative Matrix Factorization (2001); as a baseline in Dalleiger and Gionis (FNMF)";
}
