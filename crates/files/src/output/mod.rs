//! The files that a run writes: factors, checkpoints and views.
//!
//! Nothing here depends on a method: results are [`Piece`](fednmf_data::state::Piece)s, which name the owner of their rows.

mod anndata;
pub mod attributes;
pub mod checkpoint;
mod checksum;
pub mod csr;
mod factor;
mod gather;
#[cfg(feature = "hdf5")]
mod hdf5;
#[cfg(not(feature = "hdf5"))]
#[path = "hdf5_absent.rs"]
mod hdf5;
pub mod matrices;
pub mod npz;
pub mod own_mark;
mod own_parts;
pub mod own_text;
mod part;
pub mod party_files;
mod plan;
mod sink;
mod stored;
pub mod targets;
mod values;
pub mod view;
