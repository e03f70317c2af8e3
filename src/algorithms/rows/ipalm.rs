//! Independent inertial proximal alternating minimisation (Pock and Sabach 2016) at every party, averaged once at the end.

use super::fnmf;
use crate::algorithms::options::{INERTIA, SECURE_THRESHOLD, START};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::rows::fnmf::Rule;
use crate::algorithms::shared::dp;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;

pub static METHOD: Method = Method {
    name: "ipalm",
    aliases: &[],
    summary: "every party alone by inertial proximal steps; the mean of all V once, at the end",
    paper: "Pock and Sabach 2016; as a rival in Dalleiger and Gionis (FNMF)",
    partition: Partition::PartyRows,
    unit: Unit::Update,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &dp::with::<3, 13>([INERTIA.or("1"), START.or("independent"), SECURE_THRESHOLD.or("none")]),
    messages: fnmf::MESSAGES_ONCE,
    build64: build,
    build32: build,
};

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let method = fnmf::once(problem.options, Rule::Ipalm { inertia: problem.options.number(&INERTIA) });
    fnmf::build_federated(problem, method)
}
