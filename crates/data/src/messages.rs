//! Messages that are sent while a matrix is loaded, and while results are written.

use fednmf_comm::{MessageTag, Payload};

pub const ENTRIES: MessageTag = MessageTag::new("load entries", Payload::Data);
pub const COUNTS: MessageTag = MessageTag::new("load counts", Payload::Control);
pub const HEADERS: MessageTag = MessageTag::new("load headers", Payload::Control);
/// Memory required by each rank and available on its node.
pub const MEMORY: MessageTag = MessageTag::new("memory of the nodes", Payload::Control);
/// Names of rows and columns, sent to rank 0 for its output.
pub const NAMES: MessageTag = MessageTag::new("names for the output", Payload::Control);
/// Sum, norm and number of nonzeros of the matrix, and without private data its range and checksum.
pub const STATISTICS: MessageTag = MessageTag::new("statistics of the matrix", Payload::Scalar);
/// The largest entry, by which `--scale max` divides.
pub const LARGEST_ENTRY: MessageTag = MessageTag::new("largest entry", Payload::Scalar);
/// Shared rows, sent to rank 0 for its output file.
pub const OUTPUT: MessageTag = MessageTag::new("output", Payload::SharedFactor);
/// Norms by which the components are scaled and sorted; never those of parties' factors.
pub const NORMS: MessageTag = MessageTag::new("norms of the components", Payload::Scalar);
/// Sample lines of the matrix for the report; never of parties' data.
pub const SAMPLE: MessageTag = MessageTag::new("rows for the report", Payload::Data);
/// Shared rows, sent to rank 0 for its checkpoint.
pub const CHECKPOINT: MessageTag = MessageTag::new("checkpoint", Payload::SharedFactor);
/// Times and bytes of each rank, for the summary.
pub const SUMMARY: MessageTag = MessageTag::new("summary", Payload::Control);
