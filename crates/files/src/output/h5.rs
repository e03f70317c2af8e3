//! One HDF5 file, written under a temporary name and published by a rename: under its final name it is complete or absent.

use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use ndarray::{ArrayView2, s};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_base::file_lock::{FileLock, lock_of};
use fednmf_base::unfinished::{Access, create_part, directory, part_of};
use fednmf_linalg::Real;

use super::checksum;
use crate::formats::hdf5_real;
use crate::output::checksum::Checksum;
use crate::output::plan::{Matrix, block_rows};
use crate::output::values::Scalar;

/// Checks that a file can be written at `path`, and leaves nothing behind.
///
/// # Errors
/// If its directory does not exist or cannot be written to, or `path` is a directory itself.
pub fn check_writable(path: &Path) -> Result<()> {
    let (shown, dir) = (path.display(), directory(path));
    let named_as_directory = path.as_os_str().as_bytes().ends_with(b"/");
    if path.file_name().is_none() || path.is_dir() || named_as_directory {
        return Err(Error::input(format!("{shown}: is a directory; add the name of a file in it")));
    }
    if !dir.is_dir() {
        return Err(Error::input(format!(
            "{shown}: there is no directory {}; create it first, or give another name",
            dir.display()
        )));
    }
    let tried = create_part(path, Access::OwnerOnly).and_then(|_| fs::remove_file(part_of(path)));
    tried.map_err(|e| {
        Error::input(format!("{shown}: cannot write into {} ({e}); choose a directory of your own", dir.display()))
    })
}

/// The system's message inside an HDF5 error, or all of it if there is none.
fn plain(words: &str) -> &str {
    let quoted = words.split_once("error message = '").and_then(|(_, rest)| rest.split_once('\''));
    quoted.map_or(words, |(message, _)| message)
}

pub(super) fn unwritten(path: &Path, e: impl std::fmt::Display) -> Error {
    let words = e.to_string();
    Error::failed(format!(
        "{}: cannot be written ({}); check the free space and the rights in {}",
        path.display(),
        plain(&words),
        directory(path).display()
    ))
}

/// A file being written. If dropped before [`Writer::finish`], it leaves nothing.
pub struct Writer {
    // Declared before `part`, so that it is closed before it is removed.
    file: hdf5::File,
    part: Part,
}

/// A finished file under its temporary name. If dropped before [`Part::publish`], it is removed.
pub struct Part {
    path: PathBuf,
    published: bool,
    /// Of an existing file that is changed.
    lock: Option<FileLock>,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.published {
            // Nothing depends on whether the unwanted file can be removed.
            let _ = fs::remove_file(part_of(&self.path));
        }
    }
}

impl Part {
    /// A file to be published at `path`.
    pub(super) fn new(path: &Path) -> Self {
        Part { path: path.to_path_buf(), published: false, lock: None }
    }

    /// The final name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to its final name, replacing an existing file.
    ///
    /// # Errors
    /// If the rename fails.
    pub fn publish(mut self) -> Result<()> {
        fs::rename(part_of(&self.path), &self.path).map_err(|e| unwritten(&self.path, e))?;
        self.published = true;
        self.lock = None;
        // The rename must be on disk before anything relies on it.
        fs::File::open(directory(&self.path)).and_then(|d| d.sync_all()).map_err(|e| unwritten(&self.path, e))
    }
}

/// Gives a copy the owner and the group of its original.
fn keep_owner(original: &Path, copy: &Path) -> std::io::Result<()> {
    let (original, found) = (fs::metadata(original)?, fs::metadata(copy)?);
    if (original.uid(), original.gid()) == (found.uid(), found.gid()) {
        return Ok(());
    }
    chown(copy, Some(original.uid()), Some(original.gid()))?;
    // A change of owner may clear bits of the mode.
    fs::set_permissions(copy, original.permissions())
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

    /// Opens a copy of the file at `path`, which the finished copy replaces. Others wait until then, lest what they add be
    /// lost.
    ///
    /// # Errors
    /// If it cannot be locked, copied or opened.
    pub(super) fn copy(path: &Path) -> Result<Self> {
        let lock = FileLock::acquire(&lock_of(path, "lock")).map_err(|e| unwritten(path, e))?;
        let mut part = Part::new(path);
        part.lock = Some(lock);
        create_part(path, Access::OwnerOnly)
            .and_then(|_| fs::copy(path, part_of(path)))
            .and_then(|_| keep_owner(path, &part_of(path)))
            .map_err(|e| unwritten(path, e))?;
        let file = hdf5::File::open_rw(part_of(path)).map_err(|e| unwritten(path, e))?;
        Ok(Writer { file, part })
    }

    /// The error with its path.
    pub(super) fn failed(&self, e: impl std::fmt::Display) -> Error {
        unwritten(&self.part.path, e)
    }

    /// The file, for layouts other than matrices and attributes.
    pub(super) fn file(&self) -> &hdf5::File {
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
    pub(super) fn matrix_at<T: Real>(&self, place: &str, matrix: &Matrix) -> Result<Rows> {
        let shape = (matrix.rows, matrix.cols);
        let dataset = self.file.new_dataset_builder().empty_as(hdf5_real::descriptor::<T>()).shape(shape).create(place);
        let dataset = dataset.map_err(|e| self.failed(e))?;
        let block = block_rows(matrix.rows, matrix.cols);
        let seal = Checksum::new(block * matrix.cols);
        Ok(Rows { dataset, path: self.part.path.clone(), cols: matrix.cols, next: 0, block, seal })
    }

    /// Closes the file, adds the checksum trailer and syncs it to disk.
    ///
    /// # Errors
    /// If the file is incomplete.
    pub fn finish(self) -> Result<Part> {
        let numbers = numbers(&self.file).map_err(|e| self.failed(e));
        let part = self.close()?;
        checksum::append(&part_of(&part.path), numbers?).map_err(|e| unwritten(&part.path, e))?;
        fs::File::open(part_of(&part.path)).and_then(|f| f.sync_all()).map_err(|e| unwritten(&part.path, e))?;
        Ok(part)
    }

    /// Closes the file and syncs it to disk, without a trailer: for files that other programs will write to.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub(super) fn close(self) -> Result<Part> {
        let Writer { file, part } = self;
        // Closing alone would hide a failure to write the last buffers.
        let flushed = file.flush().map_err(|e| unwritten(&part.path, e));
        let closed = file.close().map_err(|e| unwritten(&part.path, e));
        flushed.and(closed)?;
        fs::File::open(part_of(&part.path)).and_then(|f| f.sync_all()).map_err(|e| unwritten(&part.path, e))?;
        Ok(part)
    }
}

/// The bytes of the file that hold the values of its datasets, which are contiguous.
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
        hdf5_real::write(&self.dataset, view, slice).map_err(|e| unwritten(&self.path, e))?;
        self.next += rows;
        self.seal.add(values);
        Ok(())
    }

    /// The dataset, for attributes of other layouts.
    pub(super) fn dataset(&self) -> &hdf5::Dataset {
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
    fn paths_that_cannot_be_written_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.h5");
        check_writable(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let missing = check_writable(&dir.path().join("no/o.h5")).unwrap_err();
        assert!(missing.message.contains("create it first"), "{missing}");
        assert_eq!(missing.exit_code(), 2);
        assert!(check_writable(dir.path()).unwrap_err().message.contains("is a directory"));
        assert!(check_writable(Path::new("/proc/o.h5")).unwrap_err().message.contains("cannot write"));
        // A file where a directory should be.
        fs::write(&path, "x").unwrap();
        assert!(check_writable(&path.join("o.h5")).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn the_systems_message_is_found() {
        let words = "H5Dwrite(): can't write data: errno = 28, error message = 'No space left on device', buf = 0x5";
        assert_eq!(plain(words), "No space left on device");
        assert_eq!(plain("can't do it"), "can't do it");
    }

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
