//! From a file, or from nothing, to every rank's local blocks.
//!
//! [`open`] reads what a header tells, on all ranks alike; [`Input::load`] then reads and redistributes the entries so
//! that each rank ends with the blocks its [`Plan`] asks for, and nobody ever holds the whole matrix.

pub mod distribute;
pub mod formats;
mod generate;
mod inspect;
pub mod names;
mod open;
mod partition;
mod spec;
mod split;
mod synthetic;

pub use formats::hdf5::hdf5_probe;
pub use generate::generate;
pub use inspect::{Summary, inspect};
pub use open::{Input, open};
pub use partition::{Cuts, Plan, Tile};
pub use spec::{InputSpec, Scale, Source, Stack, Threshold};
pub use split::Share;
pub use synthetic::{Kind, Law, Synthetic, Tiles, Values};

use crate::comm::{MessageTag, Payload};
use crate::linalg::{Block, Real};

const ENTRIES: MessageTag = MessageTag::new("load entries", Payload::Data);
const COUNTS: MessageTag = MessageTag::new("load counts", Payload::Control);
const HEADERS: MessageTag = MessageTag::new("load headers", Payload::Control);
/// Sum, norm, range, number of nonzeros and checksum of the matrix: what every rank adds while loading.
pub const STATISTICS: MessageTag = MessageTag::new("statistics of the matrix", Payload::Scalar);

/// What is known of a matrix before its entries are read (after `--transpose`).
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    pub rows: usize,
    pub cols: usize,
    /// Whether blocks of it are stored sparse.
    pub sparse: bool,
    /// Stored entries, where the header tells.
    pub stored: Option<u64>,
    /// `MatrixMarket coordinate real general`, `npy <f8, C order`, …
    pub format: String,
    /// Number of `{party}` files, if the input is such.
    pub files: Option<usize>,
}

/// Statistics of the whole matrix; the same bits on any number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Statistics {
    /// Entries that are not zero.
    pub nonzeros: u64,
    pub sum: f64,
    /// ‖M‖_F²
    pub norm2: f64,
    pub min: f64,
    pub max: f64,
    /// Wrapping sum over the nonzeros of a hash of (row, column, value as f64): equal for the same matrix in any
    /// format, dense or sparse, in any order.
    pub checksum: u64,
}

/// One rank's share of the matrix.
pub struct Loaded<T: Real> {
    pub header: Header,
    pub statistics: Statistics,
    /// Entries that were written more than once in the file, and added up.
    pub duplicates: u64,
    /// Where the matrix was cut.
    pub cuts: Cuts,
    /// This rank's blocks, in the order of its plan's tiles.
    pub blocks: Vec<Block<T>>,
    /// The Boolean signal behind the data, where that is made up of tiles.
    pub signal: Option<Tiles>,
    /// From where on entries became ones, with `--binarize`.
    pub threshold: Option<f64>,
}

impl<T: Real> Loaded<T> {
    /// The same again, for another factorisation; what the blocks' products had prepared is not copied.
    pub fn copy(&self) -> Self {
        Loaded {
            header: self.header.clone(),
            cuts: self.cuts.clone(),
            blocks: self.blocks.iter().map(Block::copy).collect(),
            signal: self.signal.clone(),
            ..*self
        }
    }
}
