//! Messages that are sent while a matrix is loaded, and while results are written.

use fednmf_comm::{ControlTag, MessageTag, Payload};

pub const ENTRIES: MessageTag = MessageTag::new("load entries", Payload::Data);
pub const COUNTS: MessageTag = MessageTag::new("load counts", Payload::Data);
pub const HEADERS: MessageTag = MessageTag::new("load headers", Payload::Metadata);
/// Keyed digests of the names of columns, which all parties compare (`--common-columns`), and the shares of their key.
pub const NAME_DIGESTS: MessageTag = MessageTag::new("digests of names", Payload::Metadata);
/// Memory required by each rank and available on its node; never with parties' data, whose size it would reveal.
pub const MEMORY: MessageTag = MessageTag::new("memory of the nodes", Payload::Metadata);
/// Names of rows and columns, sent to rank 0 for its output.
pub const NAMES: MessageTag = MessageTag::new("names for the output", Payload::Metadata);
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
/// Bytes that each rank sent, for the summary; without parties' data its times, operations and memory too.
pub const SUMMARY: MessageTag = MessageTag::new("summary", Payload::Metadata);
/// Whether a rank's factors have an entry that is not finite.
pub const DIVERGED: MessageTag = MessageTag::new("factors that are not finite", Payload::Metadata);
/// Shapes of the shared rows that [`OUTPUT`] sends, and which ranks have files of parties.
pub const OUTPUT_SHAPES: ControlTag = ControlTag::new(OUTPUT.kind);
/// The same for [`CHECKPOINT`], and the number of the checkpoint.
pub const CHECKPOINT_SHAPES: ControlTag = ControlTag::new(CHECKPOINT.kind);
