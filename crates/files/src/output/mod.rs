//! What a run writes: factors, checkpoints, trace, progress, summary.
//!
//! Nothing here knows a method: results come as [`Piece`](fednmf_data::state::Piece)s, which name the owner of their rows.

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
mod sink;
mod stored;
pub mod targets;
mod values;
pub mod view;
