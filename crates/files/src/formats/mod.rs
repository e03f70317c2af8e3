//! File formats: what a header declares, and how the entries behind it are read.
//!
//! From the bottom up: [`io`] opens files as streams of bytes, [`text`] cuts them into blocks of whole lines,
//! [`number`] parses numbers, [`fields`] splits the lines of tables, [`options`] holds the user's options for them,
//! [`header`] finds their headers and index columns, [`like_triples`] recognises triples among them, [`triple_columns`] finds
//! the columns of triples, [`limits`] refuses headers that declare more than the file can hold, [`refusal`] gives reasons without quoting private text, and
//! [`reader`] holds what all formats share: the traits that pass entries on, and the check of entries; [`values`] is their
//! element type. Above these there is one module per format. A dense format implements [`reader::DenseReader`]; a format
//! whose entries have positions passes them to a [`reader::EntrySink`]. [`file`] lists the formats; [`detect`] determines
//! the format of a file.
//!
//! Nothing here depends on MPI, ranks or tiles: a caller requests part `i` of `n` of a file.

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
pub mod parquet;
pub mod raw;
pub mod reader;
pub mod refusal;
pub mod table;
pub mod text;
pub mod triple_columns;
pub mod triples;
