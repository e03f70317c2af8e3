//! Writes a prepared matrix. The file gets its name when it is complete.

use std::fs::File;
use std::io::{BufWriter, Result as IoResult, Write};
use std::path::Path;

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::warning::warn;
use fednmf_comm::Signals;
use fednmf_files::formats::npy::write_marked_header;
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

type Output<'a> = BufWriter<Stoppable<'a>>;
type Writer = fn(&Prepared, &mut Output<'_>) -> IoResult<()>;

fn writer(path: &Path) -> Option<Writer> {
    match path.extension()?.to_str()? {
        "mtx" => Some(coordinate),
        "npy" => Some(npy),
        "csv" => Some(csv),
        _ => None,
    }
}

/// Checks that the name of the output determines its format.
///
/// # Errors
/// If the name does not determine a format.
pub fn check_name(path: &Path) -> Result<()> {
    let wrong = || {
        let why = "a prepared matrix is written to .mtx, .npy or .csv; use one of these extensions";
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
    if named && path.extension().is_none_or(|extension| extension != "csv") {
        warn(&format!("{}: has no place for the names of rows and columns; .csv has", path.display()));
    }
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
