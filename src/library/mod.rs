//! The library: methods as values, which factorise matrices that the caller has in memory.

mod estimator;
mod federated;
mod fit;
mod matrix;
pub(crate) mod methods;
mod online;
mod options;
mod run;
mod search;

pub use fednmf_base::error::{Error, ErrorKind, Result};
pub use fednmf_comm::Payload;
pub use fednmf_data::Resample;
pub use fednmf_driver::model_selection::{Choice, Consensus, Criterion, Point, Similarities};
pub use fednmf_driver::{Evaluation, FactorScale, Stop};
pub use fednmf_linalg::ProductKernel;
pub use fednmf_methods::distributed::divergence::beta::Beta;
pub use fednmf_methods::parameters::{Auto, Init, Missing, Size, Sizes};
pub use fednmf_methods::precision::Precision as Real;
#[doc(hidden)]
pub use fednmf_methods::registry::named;
pub use fednmf_methods::shared::disclosure::Risk;
pub use fednmf_methods::shared::dp::DpParams;
pub use fednmf_methods::shared::extrapolation::Extrapolation;
pub use fednmf_privacy::Protection;

use fednmf_methods::description::Partition;
use fednmf_methods::registry;

pub use estimator::{Estimator, OneMatrix, Parties};
pub use federated::{Federated, FederatedFit, Noise, SecureSums};
pub use fit::{Decision, Edge, Factor, Fit, Sent, has_logarithms, project};
pub use matrix::{Matrix, MatrixView};
pub use methods::*;
#[doc(hidden)]
pub use online::{
    JointBatch, JointRows, JointSet, JointStep, KlOnlineState, Majorant, OnlineState, OnlineStep, Surrogate, batches,
};
pub use options::Options;
#[doc(hidden)]
pub use run::{Start, run};
pub use search::{Search, SearchResult};

/// All methods: name, summary, and whose blocks the parties have (`rows` or `columns`), if a method has parties.
///
/// ```
/// assert!(fednmf::methods().any(|(name, _, parties)| name == "fnmf" && parties == Some("rows")));
/// ```
pub fn methods() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    let parties = |partition| match partition {
        Partition::PartyRows => Some("rows"),
        Partition::PartyColumns => Some("columns"),
        Partition::Grid | Partition::Rows | Partition::RowsAndColumns | Partition::Symmetric => None,
    };
    registry::descriptions().map(move |method| (method.name, method.summary, parties(method.partition)))
}

#[cfg(test)]
mod tests;
