//! One HDF5 file, written under a temporary name and published by a rename.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ndarray::{ArrayView2, s};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_base::file_lock::{FileLock, lock_of};
use fednmf_base::unfinished::{Access, create_part, part_of};
use fednmf_linalg::Real;

use crate::formats::hdf5::real;
use crate::output::checksum;
use crate::output::checksum::Checksum;
use crate::output::part::{Part, keep_owner, unwritten};
use crate::output::plan::{Matrix, block_rows};
use crate::output::values::Scalar;

/// A file being written. If dropped before [`Writer::finish`], it leaves nothing.
pub struct Writer {
    // Declared before `part`, so that it is closed before it is removed.
    file: hdf5::File,
    part: Part,
}

impl Writer {
    /// Creates the file that will be `path`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: &Path, access: Access) -> Result<Self> {
        let part = Part::new(path);
        // HDF5 truncates the file, which keeps its mode.
        create_part(path, access).map_err(|e| unwritten(path, e))?;
        let file = hdf5::File::create(part_of(path)).map_err(|e| unwritten(path, e))?;
        Ok(Writer { file, part })
    }

    /// Opens a copy of the file at `path`; the finished copy replaces the file. A lock makes other processes wait until
    /// then, so that their additions are not lost.
    ///
    /// # Errors
    /// If it cannot be locked, copied or opened.
    pub fn copy(path: &Path) -> Result<Self> {
        let lock = FileLock::acquire(&lock_of(path, "lock")).map_err(|e| unwritten(path, e))?;
        let mut part = Part::new(path);
        part.keep(lock);
        create_part(path, Access::OwnerOnly)
            .and_then(|_| fs::copy(path, part_of(path)))
            .and_then(|_| keep_owner(path, &part_of(path)))
            .map_err(|e| unwritten(path, e))?;
        let file = hdf5::File::open_rw(part_of(path)).map_err(|e| unwritten(path, e))?;
        Ok(Writer { file, part })
    }

    /// The error with its path.
    pub fn failed(&self, e: impl std::fmt::Display) -> Error {
        unwritten(self.part.path(), e)
    }

    /// The file, for layouts other than matrices and attributes.
    pub fn file(&self) -> &hdf5::File {
        &self.file
    }

    /// Writes the attributes of the file's root.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn attributes(&self, attributes: &Map<String, Value>) -> Result<()> {
        for (name, value) in attributes {
            if let Some(scalar) = Scalar::from_json(value) {
                scalar.write(&self.file, name).map_err(|e| self.failed(e))?;
            }
        }
        Ok(())
    }

    /// Creates a dataset of shape rows × cols, dtype of T, C order.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn matrix<T: Real>(&self, matrix: &Matrix) -> Result<Rows> {
        self.matrix_at::<T>(&matrix.name, matrix)
    }

    /// As [`Writer::matrix`], at another path in the file; its groups must exist.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn matrix_at<T: Real>(&self, place: &str, matrix: &Matrix) -> Result<Rows> {
        let shape = (matrix.rows, matrix.cols);
        let dataset = self.file.new_dataset_builder().empty_as(real::descriptor::<T>()).shape(shape).create(place);
        let dataset = dataset.map_err(|e| self.failed(e))?;
        let block = block_rows(matrix.rows, matrix.cols);
        let seal = Checksum::new(block * matrix.cols);
        Ok(Rows { dataset, path: self.part.path().to_path_buf(), cols: matrix.cols, next: 0, block, seal })
    }

    /// Closes the file, adds the checksum trailer and syncs it to disk.
    ///
    /// # Errors
    /// If the file is incomplete.
    pub fn finish(self) -> Result<Part> {
        let numbers = numbers(&self.file).map_err(|e| self.failed(e));
        let part = self.close()?;
        checksum::append(&part_of(part.path()), numbers?).map_err(|e| unwritten(part.path(), e))?;
        fs::File::open(part_of(part.path())).and_then(|f| f.sync_all()).map_err(|e| unwritten(part.path(), e))?;
        Ok(part)
    }

    /// Closes the file and syncs it to disk, without a trailer: for files that other programs will write to.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub fn close(self) -> Result<Part> {
        let Writer { file, part } = self;
        // Without this flush, closing would hide a failure to write the last buffers.
        let flushed = file.flush().map_err(|e| unwritten(part.path(), e));
        let closed = file.close().map_err(|e| unwritten(part.path(), e));
        flushed.and(closed)?;
        fs::File::open(part_of(part.path())).and_then(|f| f.sync_all()).map_err(|e| unwritten(part.path(), e))?;
        Ok(part)
    }
}

/// The ranges of bytes that hold the values of the file's datasets, which are contiguous.
fn numbers(file: &hdf5::File) -> std::result::Result<Vec<Range<u64>>, hdf5::Error> {
    let datasets = file.datasets()?;
    // A dataset without rows has no offset.
    let placed = datasets.iter().filter_map(|d| Some((d.offset()?, d.storage_size())));
    Ok(placed.map(|(start, size)| start..start + size).collect())
}

/// A dataset whose rows are written in order.
pub struct Rows {
    dataset: hdf5::Dataset,
    path: PathBuf,
    cols: usize,
    next: usize,
    block: usize,
    seal: Checksum,
}

impl Rows {
    /// Appends rows, given row by row.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn push<T: Real>(&mut self, values: &[T]) -> Result<()> {
        let rows = values.len().checked_div(self.cols).unwrap_or(0);
        let view = ArrayView2::from_shape((rows, self.cols), values).map_err(|e| unwritten(&self.path, e))?;
        let slice = s![self.next..self.next + rows, ..];
        real::write(&self.dataset, view, slice).map_err(|e| unwritten(&self.path, e))?;
        self.next += rows;
        self.seal.add(values);
        Ok(())
    }

    /// The dataset, to which other layouts add attributes.
    pub fn dataset(&self) -> &hdf5::Dataset {
        &self.dataset
    }

    /// Adds the checksums, after the last row.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(self) -> Result<()> {
        let sums = self.seal.sums();
        let write = || -> std::result::Result<(), hdf5::Error> {
            self.dataset.new_attr::<u64>().create(checksum::BLOCK)?.write_scalar(&(self.block as u64))?;
            self.dataset.new_attr::<u32>().shape(sums.len()).create(checksum::SUMS)?.write(&sums[..])
        };
        write().map_err(|e| unwritten(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_incomplete_gets_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.h5");
        fs::write(&path, "before").unwrap();
        let matrix = Matrix { name: "U".into(), rows: 2, cols: 2, segments: Vec::new() };
        let writer = Writer::create(&path, Access::Default).unwrap();
        writer.matrix::<f64>(&matrix).unwrap().push(&[1.0, 2.0]).unwrap();
        drop(writer);
        assert_eq!(fs::read(&path).unwrap(), b"before");
        drop(Writer::create(&path, Access::Default).unwrap().finish().unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        Writer::create(&path, Access::Default).unwrap().finish().unwrap().publish().unwrap();
        assert_ne!(fs::read(&path).unwrap(), b"before");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
