//! What an attack may compare with.

use fednmf_comm::Communicator;
use fednmf_files::output::view::RecordedView;

use super::truth::Truth;

/// What the attacks are told beside the views.
pub struct Asked<'a> {
    pub truth: Truth,
    pub candidates: Option<&'a str>,
    /// The view of the party that is attacked.
    pub victim: Option<RecordedView>,
    /// A communicator of this rank alone, for reading matrices.
    pub alone: &'a Communicator,
}
