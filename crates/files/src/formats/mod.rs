//! File formats: what a header declares, and how the entries behind it are read.
//!
//! From the bottom up: [`io`] opens files as streams of bytes, [`text`] cuts them into blocks of whole lines,
//! [`number`] parses numbers, [`fields`] takes the lines of tables apart, [`options`] holds what the user says about
//! them, [`header`] finds their headers and index columns, [`like_triples`] recognises triples among them, [`limits`]
//! refuses headers that the file cannot honour, [`refusal`] says why without showing what is private, and [`reader`]
//! holds what all formats share: the traits by which entries are handed over, and which entries are accepted;
//! [`values`] describes them. Above these stands one module per format. A dense format implements
//! [`reader::DenseReader`]; a format whose entries come with their positions passes them to a [`reader::EntrySink`].
//! [`file`] lists the formats; [`detect`] finds out which one a file has.
//!
//! Nothing here knows MPI, ranks or tiles: a caller requests part `i` of `n` of a file.

pub mod compressed;
pub mod detect;
pub mod fields;
pub mod file;
pub mod fimi;
pub mod hdf5;
pub mod header;
pub mod idx;
pub mod io;
pub mod like_triples;
pub mod limits;
pub mod mtx;
pub mod npy;
pub mod npz;
pub mod number;
pub mod options;
pub mod raw;
pub mod reader;
pub mod refusal;
pub mod table;
pub mod text;
pub mod triples;
