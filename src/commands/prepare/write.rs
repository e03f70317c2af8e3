//! Writes a prepared matrix. The file gets its name when it is complete.

use std::fs::File;
use std::io::{BufWriter, Result as IoResult, Seek, SeekFrom, Write};
use std::path::Path;

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::warning::warn;
use fednmf_comm::Signals;
use fednmf_files::formats::npy::write_marked_header;
use fednmf_files::output::csr::{Array, NamedCsr, save_h5ad, save_npz};
use fednmf_files::output::own_mark::{MARK, seal};

use super::matrix::Prepared;

/// Writes to the file until a signal is caught.
struct Stoppable<'a> {
    file: &'a mut File,
    signals: &'a Signals,
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.signals.check()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> IoResult<()> {
        self.file.flush()
    }
}

impl Seek for Stoppable<'_> {
    fn seek(&mut self, to: SeekFrom) -> IoResult<u64> {
        self.file.seek(to)
    }
}

type Output<'a> = BufWriter<Stoppable<'a>>;

/// How a matrix is written.
enum Writer {
    /// As a stream of bytes.
    Bytes(fn(&Prepared, &mut Output<'_>) -> IoResult<()>),
    Anndata,
}

fn writer(path: &Path) -> Option<Writer> {
    match path.extension()?.to_str()? {
        "mtx" => Some(Writer::Bytes(coordinate)),
        "npz" => Some(Writer::Bytes(npz)),
        "npy" => Some(Writer::Bytes(npy)),
        "csv" => Some(Writer::Bytes(csv)),
        "h5ad" => Some(Writer::Anndata),
        _ => None,
    }
}

/// Checks that the name of the output determines its format.
///
/// # Errors
/// If the name does not determine a format.
pub fn check_name(path: &Path) -> Result<()> {
    let wrong = || {
        let why = "a prepared matrix is written to .h5ad, .npz, .mtx, .npy or .csv; use one of these extensions";
        Error::input(format!("--output {}: {why}", path.display()))
    };
    writer(path).map(drop).ok_or_else(wrong)
}

/// Writes a matrix in the format of its name.
///
/// # Errors
/// If the file cannot be written.
pub fn matrix(matrix: &Prepared, path: &Path, access: Access) -> Result<()> {
    check_name(path)?;
    let Some(write) = writer(path) else { return Ok(()) };
    let named = matrix.row_names.is_some() || matrix.column_names.is_some();
    if named && path.extension().is_none_or(|extension| extension != "csv" && extension != "h5ad") {
        warn(&format!("{}: has no place for the names of rows and columns; .h5ad and .csv have", path.display()));
    }
    let write = match write {
        Writer::Bytes(write) => write,
        Writer::Anndata => return anndata(matrix, path, access),
    };
    let signals = Signals::catch()?;
    let written = unfinished::replace(path, access, |file| {
        let mut to = BufWriter::with_capacity(1 << 20, Stoppable { file: &mut *file, signals: &signals });
        write(matrix, &mut to)?;
        to.flush()?;
        drop(to);
        seal(file)
    });
    written.map_err(|e| signals.or_stopped(path, unwritable(path, &e)))
}

fn coordinate(matrix: &Prepared, to: &mut Output<'_>) -> IoResult<()> {
    let count: usize = matrix.rows.iter().map(Vec::len).sum();
    writeln!(
        to,
        "%%MatrixMarket matrix coordinate real general\n% {MARK}\n{} {} {count}",
        matrix.rows.len(),
        matrix.cols
    )?;
    for (i, row) in matrix.rows.iter().enumerate() {
        row.iter().try_for_each(|(j, x)| writeln!(to, "{} {} {x}", i + 1, j + 1))?;
    }
    Ok(())
}

/// Where each row begins among the entries, and their number.
fn starts(matrix: &Prepared) -> Vec<i64> {
    let mut starts = vec![0];
    starts.extend(matrix.rows.iter().scan(0, |sum, row| {
        *sum += row.len() as i64;
        Some(*sum)
    }));
    starts
}

fn npz(matrix: &Prepared, to: &mut Output<'_>) -> IoResult<()> {
    let starts = starts(matrix);
    let count = starts.last().map_or(0, |&count| count as u64);
    let mut entries = matrix.rows.iter().flatten();
    save_npz(to, (matrix.rows.len(), matrix.cols, count), |array, to| match array {
        Array::Starts => starts.iter().try_for_each(|x| to.write_all(&x.to_le_bytes())),
        Array::Columns => entries.clone().try_for_each(|(j, _)| to.write_all(&(*j as i32).to_le_bytes())),
        Array::Values => entries.try_for_each(|(_, x)| to.write_all(&x.to_le_bytes())),
    })?;
    Ok(())
}

fn anndata(matrix: &Prepared, path: &Path, access: Access) -> Result<()> {
    let (columns, values): (Vec<i32>, Vec<f64>) = matrix.rows.iter().flatten().map(|&(j, x)| (j as i32, x)).unzip();
    let starts = starts(matrix);
    let csr = NamedCsr {
        shape: (matrix.rows.len(), matrix.cols),
        starts: &starts,
        columns: &columns,
        values: &values,
        row_names: matrix.row_names.as_deref(),
        column_names: matrix.column_names.as_deref(),
    };
    save_h5ad(path, &csr, access)
}

/// Passes each row with its zeros to `write`.
fn dense(matrix: &Prepared, mut write: impl FnMut(usize, &[f64]) -> IoResult<()>) -> IoResult<()> {
    let mut line = vec![0.0; matrix.cols];
    for (i, row) in matrix.rows.iter().enumerate() {
        line.fill(0.0);
        row.iter().for_each(|&(j, x)| line[j] = x);
        write(i, &line)?;
    }
    Ok(())
}

fn npy(matrix: &Prepared, to: &mut Output<'_>) -> IoResult<()> {
    write_marked_header(to, "<f8", &format!("{}, {}", matrix.rows.len(), matrix.cols))?;
    dense(matrix, |_, line| line.iter().try_for_each(|x| to.write_all(&x.to_le_bytes())))
}

/// With a header and an index column, whose title is the mark: numbers, where there are no names.
fn csv(matrix: &Prepared, to: &mut Output<'_>) -> IoResult<()> {
    write!(to, "{MARK}")?;
    for j in 0..matrix.cols {
        write!(to, ",{}", quoted(matrix.column_names.as_deref(), j))?;
    }
    writeln!(to)?;
    dense(matrix, |i, line| {
        write!(to, "{}", quoted(matrix.row_names.as_deref(), i))?;
        line.iter().try_for_each(|x| write!(to, ",{x}"))?;
        writeln!(to)
    })
}

fn quoted(names: Option<&[String]>, at: usize) -> String {
    match names.and_then(|names| names.get(at)) {
        Some(name) => format!("\"{}\"", name.replace('"', "\"\"")),
        None => at.to_string(),
    }
}

/// An error about a file that cannot be written.
pub fn unwritable(path: &Path, e: &std::io::Error) -> Error {
    Error::failed(format!("{}: cannot be written: {e}; check the directory and the free space", path.display()))
}
