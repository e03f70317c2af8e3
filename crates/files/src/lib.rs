//! Files: matrices in many formats, factors, checkpoints.
//!
//! [`InputSpec`] specifies the input. [`open`] reads the header, with the same result on all ranks; [`Input::load`] then
//! reads the entries and redistributes them, so that each rank has the blocks of its layout. No rank ever holds the whole
//! matrix. A matrix that does not fit into memory is not loaded: [`Input::stream`] prepares panels of its rows, which each
//! pass over the data reads from the file.
//!
//! `formats` reads parts of files, and `distribute` brings these parts to the blocks; [`output`] writes factors and
//! checkpoints and reads them back.

// Some code is only used for HDF5 files.
#![cfg_attr(not(feature = "hdf5"), allow(dead_code))]

pub mod features;
pub mod formats;
pub mod hdf5_probe;
pub mod names;
pub mod output;

mod align;
mod distribute;
mod generate;
mod load;
mod open;
mod panel_source;
mod same_file;
mod spec;
mod stream;

pub use align::{common_names, common_places};
pub use distribute::dense::DENSE_ROUND;
pub use formats::options::{Presence, Repeated, TableFormat, TableOptions};
pub use generate::generate;
pub use load::EntryCheck;
pub use open::{Input, highest_party, open};
pub use spec::{InputSpec, PARTY, Scale, Source, Threshold, party_path};
pub use stream::PANELS;

/// The version of the HDF5 library; `None` in a build without it.
pub fn hdf5_version() -> Option<String> {
    #[cfg(feature = "hdf5")]
    {
        let (major, minor, release) = hdf5::library_version();
        Some(format!("{major}.{minor}.{release}"))
    }
    #[cfg(not(feature = "hdf5"))]
    None
}
