//! HDF5: dense datasets, and CSR or CSC groups as AnnData and 10x write them.
//!
//! [`header`], [`probe`], [`group_memory`], [`open_group`] and [`DatasetReader`] call the HDF5 library; without the feature
//! `hdf5` they refuse the file.

#[cfg(feature = "hdf5")]
mod chunks;
#[cfg(feature = "hdf5")]
mod reader;
#[cfg(not(feature = "hdf5"))]
#[path = "absent.rs"]
mod reader;
#[cfg(feature = "hdf5")]
pub mod real;
#[cfg(feature = "hdf5")]
pub mod text;

use std::path::Path;

use serde::{Deserialize, Serialize};

use fednmf_base::error::Error;
use fednmf_data::values::Values;

use crate::formats::compressed::Compressed;
use crate::formats::raw::RawArray;

pub use reader::{DatasetReader, group_memory, header, open_group, probe};
#[cfg(feature = "hdf5")]
pub use reader::{check_own, exists, in_modality, is_biom, tenx_group};

/// The error for an HDF5 file in a build without the library; `None` in a build with it.
pub fn refusal(path: &Path) -> Option<Error> {
    (!cfg!(feature = "hdf5"))
        .then(|| Error::input(format!("{}: is an HDF5 file; built without HDF5 (feature hdf5)", path.display())))
}

/// File name extensions of HDF5 files.
pub const EXTENSIONS: [&str; 8] = ["h5", "hdf5", "h5ad", "h5mu", "hdf", "he5", "loom", "biom"];

/// Whether the file name has an HDF5 extension.
pub fn is_hdf5_name(path: &str) -> bool {
    let extension = Path::new(path).extension();
    extension.is_some_and(|e| EXTENSIONS.iter().any(|name| e.eq_ignore_ascii_case(name)))
}

/// Maximum memory for unpacked chunks, in bytes. A row of chunks of a wide dataset must fit, otherwise each chunk would be
/// unpacked several times.
pub const CHUNK_CACHE: usize = 64 << 20;

/// A matrix in an HDF5 file.
pub enum Hdf5Matrix {
    /// A dataset: rows, columns, its name, number type and storage.
    Dense(usize, usize, String, Numbers, Storage),
    /// A group: the matrix, its name, the program that writes such groups, and the number type of its data.
    Sparse(Compressed, String, &'static str, Numbers),
}

/// The storage of a dataset's numbers.
pub enum Storage {
    /// Contiguous in the file, so that they can be read without the library.
    InPlace(RawArray),
    /// Only readable by the library; perhaps in chunks.
    ByLibrary(Option<Chunks>),
}

/// The number type of a dataset.
pub struct Numbers {
    /// Name for messages: u8, f64, …
    pub name: String,
    pub values: Values,
}

/// The chunks of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunks {
    pub rows: usize,
    /// Bytes of an unpacked chunk.
    pub bytes: usize,
    /// Whether each row is contiguous in the file, so that a few rows can be read without the rest of their chunk.
    pub rows_apart: bool,
}
