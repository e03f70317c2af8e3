//! What a run writes: factors, checkpoints, trace, progress, summary.
//!
//! Nothing here knows a method: results come as [`Piece`](crate::state::Piece)s, which name the owner of their rows.

mod anndata;
pub mod attributes;
pub mod checkpoint;
mod checksum;
mod factor;
mod gather;
pub mod h5;
pub mod matrices;
pub mod npz;
mod own_parts;
pub mod own_text;
pub mod party_files;
mod plan;
pub mod progress;
mod sink;
pub mod stdout;
mod stored;
pub mod summary;
pub mod targets;
pub mod trace;
mod values;
pub mod view;

use crate::comm::{MessageTag, Payload};

pub use own_parts::{OWN_COMPONENTS, OWN_PART};

/// Shared rows on their way to rank 0's output file.
pub const OUTPUT: MessageTag = MessageTag::new("output", Payload::SharedFactor);
/// What the components are scaled and sorted by; never of parties' factors.
pub const NORMS: MessageTag = MessageTag::new("norms of the components", Payload::Scalar);
/// Sample lines of the matrix for the report; never of parties' data.
pub const SAMPLE: MessageTag = MessageTag::new("rows for the report", Payload::Data);
/// Shared rows on their way to rank 0's checkpoint.
pub const CHECKPOINT: MessageTag = MessageTag::new("checkpoint", Payload::SharedFactor);
