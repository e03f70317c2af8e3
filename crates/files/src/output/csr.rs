//! Sparse matrices for other programs: as `scipy.sparse.save_npz(…, compressed=False)` writes them, and as AnnData.

use std::fs::File;
use std::io::{Result, Seek, Write};
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use fednmf_base::error;
use fednmf_base::unfinished::{Access, part_of};

use crate::formats::npy::write_header;
use crate::output::hdf5;
use crate::output::own_mark::{MARK, seal};
use crate::output::part::unwritten;

/// The arrays of a matrix in CSR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Array {
    /// Where each row begins, and the number of entries: `rows + 1` numbers of type u64.
    Starts,
    /// The column of each entry: i32.
    Columns,
    /// f64.
    Values,
}

/// Writes a matrix of `rows` × `cols`, whose arrays `write` passes on as little-endian bytes, and our mark.
///
/// # Errors
/// Those of `write` and of the output.
pub fn save_npz<W: Write + Seek>(
    to: W,
    (rows, cols, entries): (usize, usize, u64),
    mut write: impl FnMut(Array, &mut dyn Write) -> Result<()>,
) -> Result<W> {
    let mut zip = ZipWriter::new(to);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
    for (array, name, descr, length) in [
        (Array::Starts, "indptr.npy", "<i8", rows as u64 + 1),
        (Array::Columns, "indices.npy", "<i4", entries),
        (Array::Values, "data.npy", "<f8", entries),
    ] {
        zip.start_file(name, options)?;
        write_header(&mut zip, descr, &format!("{length},"))?;
        write(array, &mut zip)?;
    }
    zip.start_file("shape.npy", options)?;
    write_header(&mut zip, "<i8", "2,")?;
    [rows as u64, cols as u64].iter().try_for_each(|x| zip.write_all(&x.to_le_bytes()))?;
    zip.start_file("format.npy", options)?;
    write_header(&mut zip, "|S3", "")?;
    zip.write_all(b"csr")?;
    zip.set_comment(MARK)?;
    Ok(zip.finish()?)
}

/// The rows of a matrix in CSR, whose entries are written in parts, and the names of its rows and columns.
#[derive(Debug, Clone, Copy)]
pub struct NamedRows<'a> {
    pub cols: usize,
    /// Where each row begins, and the number of entries.
    pub starts: &'a [i64],
    pub row_names: Option<&'a [String]>,
    pub column_names: Option<&'a [String]>,
}

impl NamedRows<'_> {
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn entries(&self) -> usize {
        self.starts[self.count()] as usize
    }
}

/// Writes the columns and values of the next entries.
pub type Push<'a> = dyn FnMut(&[i32], &[f64]) -> error::Result<()> + 'a;

/// Writes a matrix as the `X` of an AnnData file, with our mark behind the HDF5 file, which readers of HDF5 ignore. `write`
/// passes on all entries, in order.
///
/// # Errors
/// Those of `write`, and if the file cannot be written.
pub fn save_h5ad(
    path: &Path,
    matrix: &NamedRows<'_>,
    access: Access,
    write: &mut dyn FnMut(&mut Push<'_>) -> error::Result<()>,
) -> error::Result<()> {
    let part = hdf5::write_csr(path, matrix, access, write)?;
    let mark = || -> Result<()> {
        let mut file = File::options().read(true).append(true).open(part_of(path))?;
        file.write_all(MARK.as_bytes())?;
        let mut file = File::options().read(true).write(true).open(part_of(path))?;
        seal(&mut file)?;
        file.sync_all()
    };
    mark().map_err(|e| unwritten(path, e))?;
    part.publish()
}

#[cfg(all(test, feature = "hdf5"))]
mod tests {
    use super::*;
    use crate::output::own_mark::is_sealed;

    #[test]
    fn an_anndata_file_has_the_matrix_and_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.h5ad");
        let rows = ["p".to_string(), "q".to_string(), "r".to_string()];
        let matrix = NamedRows { cols: 4, starts: &[0, 2, 2, 3], row_names: Some(&rows), column_names: None };
        let mut parts = |push: &mut Push<'_>| {
            push(&[0, 3], &[1.0, 2.5])?;
            push(&[], &[])?;
            push(&[1], &[3.0])
        };
        save_h5ad(&path, &matrix, Access::Default, &mut parts).unwrap();
        assert!(is_sealed(&path));
        let file = ::hdf5::File::open(&path).unwrap();
        assert_eq!(file.dataset("X/data").unwrap().read_raw::<f64>().unwrap(), [1.0, 2.5, 3.0]);
        assert_eq!(file.dataset("X/indices").unwrap().read_raw::<i32>().unwrap(), [0, 3, 1]);
        // One type for both, of 32 bits, which scikit-learn demands.
        assert!(["X/indices", "X/indptr"].iter().all(|name| file.dataset(name).unwrap().dtype().unwrap().is::<i32>()));
        assert_eq!(file.dataset("X/indptr").unwrap().read_raw::<i32>().unwrap(), [0, 2, 2, 3]);
        assert_eq!(file.group("X").unwrap().attr("shape").unwrap().read_raw::<i64>().unwrap(), [3, 4]);
        let names = file.dataset("obs/_index").unwrap().read_raw::<::hdf5::types::VarLenUnicode>().unwrap();
        assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["p", "q", "r"]);
        drop(file);
        let too_few = save_h5ad(&path, &matrix, Access::Default, &mut |push| push(&[0, 3], &[1.0, 2.5]));
        assert!(too_few.is_err() && is_sealed(&path), "the former file is still there");
        let empty = NamedRows { starts: &[0, 0, 0, 0], ..matrix };
        save_h5ad(&path, &empty, Access::Default, &mut |push| push(&[], &[])).unwrap();
        assert!(is_sealed(&path));
    }
}
