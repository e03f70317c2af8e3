//! The matrix on the ranks: which rank and which party gets which block ([`Layout`], [`PartySplit`]), a rank's loaded part
//! ([`Loaded`]), the statistics of the matrix, and synthetic matrices.
//!
//! This crate does not read files: a matrix in memory becomes a [`Loaded`] directly, files are read by `fednmf-files`, and
//! [`Panels`] read the rows of a matrix that is not held in memory through a [`panels::RowSource`].

pub mod assemble;
pub mod ends;
pub mod header;
mod in_memory;
pub mod layout;
pub mod loaded;
pub mod memory;
pub mod messages;
pub mod panels;
pub mod policy;
pub mod quantile;
pub mod rare;
mod resample;
pub mod split;
pub mod state;
pub mod statistics;
pub mod synthetic;
pub mod tally;
pub mod totals;
pub mod traffic;
pub mod values;

pub use header::{CommonColumns, Header, Labels};
pub use in_memory::{Matrix, parties_in_memory};
pub use layout::{Cuts, Layout, Stack, Tile};
pub use loaded::Loaded;
pub use messages::{COUNTS, ENTRIES, HEADERS, LARGEST_ENTRY, MEMORY, NAME_DIGESTS, NAMES, STATISTICS};
pub use panels::{PASS, Panels, WAITING};
pub use policy::NanRemedy;
pub use resample::Resample;
pub use split::PartySplit;
pub use statistics::{Sharing, Statistics};
pub use synthetic::{PlantedTiles, Synthetic};
pub use traffic::{EntryPattern, GridChooser, GridTraffic, SideTraffic, Transfer};
pub use values::Values;
