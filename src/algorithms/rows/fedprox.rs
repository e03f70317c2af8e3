//! FedProx for NMF (Li et al. 2020): FedAvg whose local steps are pulled to V̄, component by component in their places.

use super::fnmf;
use crate::algorithms::options::{
    GAMMA, INERTIA, LOCAL_ITERS, LOCAL_TOL, PARTICIPATION, SECURE_THRESHOLD, START, UPDATE,
};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::shared::dp;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;

pub static METHOD: Method = Method {
    name: "fedprox",
    aliases: &[],
    summary: "FedAvg with a pull to the mean V in every local step",
    paper: "Li et al. 2020, as NMF in Dalleiger and Gionis (FNMF)",
    partition: Partition::PartyRows,
    unit: Unit::Round,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &dp::with::<8, 18>([
        LOCAL_ITERS.or("10"),
        LOCAL_TOL.or("0"),
        UPDATE.among(fnmf::UPDATES, "ipalm"),
        INERTIA.or("1"),
        GAMMA.or("0.1"),
        START.or("independent"),
        PARTICIPATION.or("1"),
        SECURE_THRESHOLD.or("none"),
    ]),
    messages: fnmf::MESSAGES,
    build64: build,
    build32: build,
};

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let method =
        fnmf::Settings { gamma: problem.options.number(&GAMMA), pull_at_once: true, ..fnmf::rounds(problem.options) };
    fnmf::build_federated(problem, method)
}
