//! Files of matrices that are written and read with the HDF5 library.

mod container;
mod sheet;
mod values;
mod writer;

pub use container::Container;
pub use sheet::{Sheet, appendable_shape, write_csr};
pub use writer::{Rows, Writer};
