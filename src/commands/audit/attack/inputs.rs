//! Inputs of an attack in addition to the views.

use fednmf_comm::Communicator;
use fednmf_files::output::view::RecordedView;

use super::ground_truth::GroundTruth;

/// Inputs of the attacks in addition to the views.
pub struct AttackInputs<'a> {
    pub ground_truth: GroundTruth,
    pub candidates: Option<&'a str>,
    /// The victim's view.
    pub victim: Option<RecordedView>,
    /// A communicator of only this rank, for reading matrices.
    pub alone: &'a Communicator,
}
