//! Independent multiplicative updates (Lee and Seung 2000) at every party, averaged once at the end.

use super::fnmf;
use crate::algorithms::options::{SECURE_THRESHOLD, START};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::rows::fnmf::Rule;
use crate::algorithms::shared::dp;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;

pub static METHOD: Method = Method {
    name: "mur",
    aliases: &[],
    summary: "every party alone by multiplicative updates; the mean of all V once, at the end",
    paper: "Lee and Seung 2000; as a rival in Dalleiger and Gionis (FNMF)",
    partition: Partition::PartyRows,
    unit: Unit::Update,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &dp::with::<2, 12>([START.or("independent"), SECURE_THRESHOLD.or("none")]),
    messages: fnmf::MESSAGES_ONCE,
    build64: build,
    build32: build,
};

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let method = fnmf::once(problem.options, Rule::Mur);
    fnmf::build_federated(problem, method)
}
