//! Writes a prepared matrix, row by row. The file gets its name when it is complete.

use std::fs::File;
use std::io::{BufWriter, Error as IoError, Result as IoResult, Seek, SeekFrom, Write};
use std::path::Path;

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished;
use fednmf_base::unfinished::Access;
use fednmf_base::warning::{note, warn};
use fednmf_comm::Signals;
use fednmf_files::formats::npy::write_marked_header;
use fednmf_files::output::csr::{Array, NamedRows, save_h5ad, save_npz};
use fednmf_files::output::own_mark::{MARK, seal};
use fednmf_files::output::targets::check_space;

use super::matrix::{Matrix, Row, Transform};

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
    Bytes(fn(&Written<'_>, &mut Output<'_>) -> IoResult<()>),
    Anndata,
}

/// A matrix, and what is written of it.
struct Written<'a> {
    matrix: &'a Matrix,
    transform: &'a Transform<'a>,
    path: &'a Path,
}

impl Written<'_> {
    /// Calls `f` with each written row.
    fn each(&self, mut f: impl FnMut(&Row) -> IoResult<()>) -> IoResult<()> {
        let mut failed = Ok(());
        let read = self.matrix.each(|row| {
            (self.transform.of_row)(row);
            failed = f(row);
            // The other error counts.
            if failed.is_err() { Err(Error::failed("a row is not written")) } else { Ok(()) }
        });
        failed.and(read.map_err(IoError::other))
    }

    fn columns(&self) -> Option<&[String]> {
        self.transform.column_names.as_deref()
    }

    /// Where each row begins among the entries, and their number, if the file system has room for entries of `bytes` bytes.
    fn starts(&self, bytes: usize) -> IoResult<Vec<i64>> {
        let mut starts = Vec::with_capacity(self.matrix.rows + 1);
        starts.push(0);
        self.each(|row| {
            starts.push(starts[starts.len() - 1] + row.len() as i64);
            Ok(())
        })?;
        self.check_space(starts[starts.len() - 1] as f64, bytes)?;
        Ok(starts)
    }

    fn check_space(&self, entries: f64, bytes: usize) -> IoResult<()> {
        let place = format!("--output {}", self.path.display());
        check_space(&place, self.path, "the matrix takes", entries * bytes as f64).map_err(IoError::other)
    }

    /// Checks the space for all entries, zeros too.
    fn check_dense(&self, bytes: usize) -> IoResult<()> {
        self.check_space(self.matrix.rows as f64 * self.transform.cols as f64, bytes)
    }
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

/// Writes what `transform` makes of a matrix, in the format of the name.
///
/// # Errors
/// If the file cannot be written, or the matrix cannot be read.
pub fn matrix(matrix: &Matrix, transform: &Transform<'_>, path: &Path, access: Access) -> Result<()> {
    check_name(path)?;
    let Some(write) = writer(path) else { return Ok(()) };
    let written = Written { matrix, transform, path };
    let has_names = path.extension().is_some_and(|extension| extension == "csv" || extension == "h5ad");
    if (matrix.row_names.is_some() || matrix.column_names.is_some()) && !has_names {
        warn(&format!("{}: has no place for the names of rows and columns; .h5ad and .csv have", path.display()));
    }
    if matrix.column_names.is_none() && written.columns().is_some() && !has_names {
        note(&format!(
            "{}: {} of {} columns are left out, and the others are numbered anew; .h5ad and .csv keep their numbers",
            path.display(),
            matrix.cols - transform.cols,
            matrix.cols
        ));
    }
    if path.extension().is_some_and(|extension| extension == "csv") {
        check_lines(&written)?;
    }
    let write = match write {
        Writer::Bytes(write) => write,
        Writer::Anndata => return anndata(&written, access),
    };
    let signals = Signals::catch()?;
    let done = unfinished::replace(path, access, |file| {
        let mut to = BufWriter::with_capacity(1 << 20, Stoppable { file: &mut *file, signals: &signals });
        write(&written, &mut to)?;
        to.flush()?;
        drop(to);
        seal(file)
    });
    done.map_err(|e| signals.or_stopped(path, unwritable(path, e)))
}

/// Refuses names that would break the lines of a table, which no run reads.
fn check_lines(written: &Written<'_>) -> Result<()> {
    let mut names = written.matrix.row_names.iter().flatten().chain(written.columns().into_iter().flatten());
    names.find(|name| name.contains(['\n', '\r'])).map_or(Ok(()), |name| {
        let why = format!("the name {name:?} has a line break, which a table in text cannot have; write .h5ad");
        Err(Error::input(format!("--output {}: {why}", written.path.display())))
    })
}

fn coordinate(written: &Written<'_>, to: &mut Output<'_>) -> IoResult<()> {
    let (rows, cols) = (written.matrix.rows, written.transform.cols);
    let count = written.starts(6)?[rows];
    writeln!(to, "%%MatrixMarket matrix coordinate real general\n% {MARK}\n{rows} {cols} {count}")?;
    let mut i = 0;
    written.each(|row| {
        i += 1;
        row.iter().try_for_each(|(j, x)| writeln!(to, "{i} {} {x}", j + 1))
    })
}

/// The file has one array after the other, and each takes a visit of all rows.
fn npz(written: &Written<'_>, to: &mut Output<'_>) -> IoResult<()> {
    let starts = written.starts(12)?;
    let rows = written.matrix.rows;
    save_npz(to, (rows, written.transform.cols, starts[rows] as u64), |array, to| match array {
        Array::Starts => starts.iter().try_for_each(|x| to.write_all(&x.to_le_bytes())),
        Array::Columns => {
            written.each(|row| row.iter().try_for_each(|(j, _)| to.write_all(&(*j as i32).to_le_bytes())))
        }
        Array::Values => written.each(|row| row.iter().try_for_each(|(_, x)| to.write_all(&x.to_le_bytes()))),
    })?;
    Ok(())
}

/// Entries that are passed on together.
const AT_ONCE: usize = 1 << 16;

fn anndata(written: &Written<'_>, access: Access) -> Result<()> {
    let path = written.path;
    let starts = written.starts(12).map_err(|e| unwritable(path, e))?;
    let rows = NamedRows {
        cols: written.transform.cols,
        starts: &starts,
        row_names: written.matrix.row_names.as_deref(),
        column_names: written.columns(),
    };
    save_h5ad(path, &rows, access, &mut |push| {
        let (mut columns, mut values) = (Vec::<i32>::new(), Vec::<f64>::new());
        written.matrix.each(|row| {
            (written.transform.of_row)(row);
            columns.extend(row.iter().map(|(j, _)| *j as i32));
            values.extend(row.iter().map(|(_, x)| x));
            if values.len() >= AT_ONCE {
                push(&columns, &values)?;
                columns.clear();
                values.clear();
            }
            Ok(())
        })?;
        push(&columns, &values)
    })
}

/// Passes each row with its zeros to `write`.
fn dense(written: &Written<'_>, mut write: impl FnMut(usize, &[f64]) -> IoResult<()>) -> IoResult<()> {
    let (mut line, mut i) = (vec![0.0; written.transform.cols], 0);
    written.each(|row| {
        line.fill(0.0);
        row.iter().for_each(|&(j, x)| line[j] = x);
        i += 1;
        write(i - 1, &line)
    })
}

fn npy(written: &Written<'_>, to: &mut Output<'_>) -> IoResult<()> {
    written.check_dense(8)?;
    write_marked_header(to, "<f8", &format!("{}, {}", written.matrix.rows, written.transform.cols))?;
    dense(written, |_, line| line.iter().try_for_each(|x| to.write_all(&x.to_le_bytes())))
}

/// With a header and an index column, whose title is the mark: numbers, where there are no names.
fn csv(written: &Written<'_>, to: &mut Output<'_>) -> IoResult<()> {
    written.check_dense(2)?;
    write!(to, "{MARK}")?;
    for j in 0..written.transform.cols {
        write!(to, ",{}", quoted(written.columns(), j))?;
    }
    writeln!(to)?;
    dense(written, |i, line| {
        write!(to, "{}", quoted(written.matrix.row_names.as_deref(), i))?;
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

/// An error about a file that cannot be written, or that of the matrix which could not be read meanwhile.
pub fn unwritable(path: &Path, e: IoError) -> Error {
    e.downcast::<Error>().unwrap_or_else(|e| {
        Error::failed(format!("{}: cannot be written: {e}; check the directory and the free space", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use fednmf_comm::Communicator;
    use fednmf_files::{InputSpec, Source, generate, open};

    use super::*;

    #[test]
    fn a_matrix_that_changes_while_it_is_written_leaves_no_output() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        let spec = InputSpec::parse("synthetic:planted,m=2000,n=40,k=2").unwrap();
        let Source::Synthetic(spec) = spec.source else { panic!("generated") };
        generate(&spec, &path, &mut |_| Ok(())).unwrap();
        let comm = Communicator::local();
        let input = open(&InputSpec::parse(path.to_str().unwrap()).unwrap(), &comm).unwrap();
        let rows = input.rows::<f64>(&comm).unwrap();
        let panels = input.stream::<f64>(rows, 1e5, &comm, &mut |_| ()).unwrap().panels.unwrap();
        let streamed = Matrix::of_panels(panels, (2000, 40));
        File::options().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        for end in ["npz", "mtx", "npy", "csv", "h5ad"] {
            let out = dir.path().join(format!("o.{end}"));
            let failed = matrix(&streamed, &Transform::none(&streamed), &out, Access::Default).unwrap_err();
            assert!(failed.message.contains("x.npy: was changed"), "{end}: {failed}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing incomplete is left");
    }
}
