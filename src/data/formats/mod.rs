//! Readers, one for each file format.

pub mod compressed;
pub mod decimal;
pub mod detect;
pub mod file;
pub mod fimi;
pub mod hdf5;
pub mod hdf5_real;
pub mod idx;
pub mod lines;
pub mod mtx;
pub mod npy;
pub mod npz;
pub mod number;
pub mod raw;
pub mod table;
pub mod text;
