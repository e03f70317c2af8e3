//! From an input, a file or a synthetic matrix, to the blocks on every rank.
//!
//! [`InputSpec`] is what the user asks for. [`open`] reads the header, with the same result on all ranks; [`Input::load`]
//! then reads the entries and redistributes them so that each rank ends with the blocks that its [`Layout`] asks for. No
//! rank ever holds the whole matrix. A matrix that does not fit into memory is not loaded: [`Input::stream`] prepares [`Panels`]
//! of its rows, which each pass over the data reads from the file.
//!
//! `formats` reads parts of files, `synthetic` generates parts of matrices, and `distribute` brings these parts to the
//! blocks. `layout` and `split` define which rank and which party gets which block.

pub mod formats;
pub mod names;

mod distribute;
mod ends;
mod generate;
mod header;
mod in_memory;
mod inspect;
mod layout;
mod load;
pub mod memory;
mod messages;
mod open;
mod panels;
mod spec;
mod split;
mod stream;
mod synthetic;

pub use distribute::statistics::Statistics;
pub use distribute::traffic::{EntryPattern, GridChooser, GridTraffic, SideTraffic, Transfer};
pub use formats::options::{Labels, Presence, TableFormat, TableOptions};
pub use formats::reader::NanRemedy;
pub use formats::values::Values;
pub use generate::generate;
pub use header::Header;
pub use in_memory::{Matrix, parties_in_memory};
pub use inspect::{Summary, inspect};
pub use layout::{Cuts, Layout, Tile};
pub use load::Loaded;
pub use messages::{COUNTS, ENTRIES, HEADERS, LARGEST_ENTRY, MEMORY, NAMES, STATISTICS};
pub use open::{Input, highest_party, open};
pub use panels::{PASS, Panels, WAITING};
pub use spec::{InputSpec, PARTY, Scale, Source, Stack, Threshold};
pub use split::PartySplit;
pub use stream::PANELS;
pub use synthetic::{PlantedTiles, Synthetic};
