//! FedAvg for NMF (McMahan et al. 2017): inertial local steps, and V̄ is the plain mean of all V_j.

use super::fnmf;
use crate::algorithms::options::{INERTIA, LOCAL_ITERS, LOCAL_TOL, PARTICIPATION, SECURE_THRESHOLD, START, UPDATE};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::shared::dp;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;

pub static METHOD: Method = Method {
    name: "fedavg",
    aliases: &[],
    summary: "federated averaging: local steps and the plain mean of all V; drifts where parties order components differently",
    paper: "McMahan et al. 2017, as NMF in Dalleiger and Gionis (FNMF)",
    partition: Partition::PartyRows,
    unit: Unit::Round,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &dp::with::<7, 17>([
        LOCAL_ITERS.or("10"),
        LOCAL_TOL.or("0"),
        UPDATE.among(fnmf::UPDATES, "ipalm"),
        INERTIA.or("1"),
        START.or("independent"),
        PARTICIPATION.or("1"),
        SECURE_THRESHOLD.or("none"),
    ]),
    messages: fnmf::MESSAGES,
    build64: build,
    build32: build,
};

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let method = fnmf::rounds(problem.options);
    fnmf::build_federated(problem, method)
}
