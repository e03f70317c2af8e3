//! Writes a synthetic matrix to a file, for `fednmf generate`. Rows are generated as they are written, so that only a few
//! are in memory.

use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::Path;

use ndarray::Array2;

use fednmf_base::error;
use fednmf_base::error::Error;
use fednmf_base::unfinished::{self, Access};
use fednmf_base::units::bytes;
use fednmf_data::memory;
use fednmf_data::synthetic::{Generator, Synthetic, SyntheticKind};

use crate::formats::npy::write_marked_header;
use crate::output::csr::{Array, NamedRows, save_h5ad, save_npz};
use crate::output::own_mark::{MARK, seal};
use crate::output::targets;

/// Rows generated at once.
const STEP: usize = 256;

/// Writes a matrix.
enum Writer {
    /// As the bytes of a file.
    Bytes(fn(&Synthetic, BufWriter<File>, &mut Progress<'_>) -> Result<BufWriter<File>>),
    Anndata,
}

/// Called with the completed fraction; an error ends the work.
type Progress<'a> = dyn FnMut(f64) -> Result<()> + 'a;

/// The format in which a matrix is written.
struct Format {
    write: Writer,
    /// Whether the matrix is written column by column.
    by_columns: bool,
    /// Bytes of an entry; the minimum if they vary.
    entry: usize,
    /// Bytes of memory for each row.
    row: usize,
}

impl Format {
    /// The format for a file's extension, if it suits this kind of matrix.
    fn of(output: &Path, sparse: bool) -> Option<Format> {
        match (output.extension()?.to_str()?, sparse) {
            ("npy", false) => Some(Format { write: Writer::Bytes(npy), by_columns: false, entry: 8, row: 0 }),
            ("mtx", false) => Some(Format { write: Writer::Bytes(array), by_columns: true, entry: 2, row: 0 }),
            ("mtx", true) => Some(Format { write: Writer::Bytes(coordinate), by_columns: false, entry: 6, row: 0 }),
            ("npz", true) => Some(Format { write: Writer::Bytes(npz), by_columns: false, entry: 12, row: 8 }),
            ("h5ad", true) => Some(Format { write: Writer::Anndata, by_columns: false, entry: 12, row: 8 }),
            _ => None,
        }
    }

    /// Refuses a matrix that cannot be generated within the memory: a few rows or columns, its factors, or its graph.
    fn check_memory(&self, spec: &Synthetic) -> error::Result<()> {
        let (m, n) = (spec.m as f64, spec.n as f64);
        let lines = match spec.kind {
            // The neighbours of all nodes.
            SyntheticKind::Graph => spec.entries() * size_of::<u32>() as f64,
            SyntheticKind::Sparse => 0.0,
            _ if self.by_columns => 8.0 * m * STEP.min(spec.n) as f64,
            _ => 8.0 * n * STEP.min(spec.m) as f64,
        };
        let factors = if spec.has_factors() { 8.0 * (m + n) * spec.k as f64 } else { 0.0 };
        let (need, free) = (lines + factors + m * self.row as f64, memory::free());
        if need <= free {
            return Ok(());
        }
        Err(Error::input(format!(
            "{m} x {n}: generating it needs {} of memory, and {} are free; generate a smaller matrix",
            bytes(need as u64),
            bytes(free as u64)
        )))
    }

    /// Refuses a matrix that does not fit on the file system of the output, if that can be determined; otherwise the write
    /// might fail after hours.
    fn check_space(&self, spec: &Synthetic, output: &Path) -> error::Result<()> {
        let need = spec.entries() * self.entry as f64 + (spec.m * self.row) as f64;
        let what = format!("a matrix of {} x {} takes", spec.m, spec.n);
        targets::check_space(&output.display().to_string(), output, &what, need)
    }
}

/// Writes a synthetic matrix: dense kinds to `.npy` or `.mtx`, sparse ones to `.npz`, `.mtx` or `.h5ad`. The file gets its name when
/// it is complete; an error of `progress` ends the work.
///
/// # Errors
/// If the extension does not fit the kind of matrix, memory or disk space is insufficient, or the file cannot be written.
pub fn generate(spec: &Synthetic, output: &Path, progress: &mut Progress<'_>) -> error::Result<()> {
    let Some(format) = Format::of(output, spec.sparse()) else {
        let (what, others) = if spec.sparse() { ("sparse", ".npz, .mtx or .h5ad") } else { ("dense", ".npy or .mtx") };
        return Err(Error::input(format!(
            "{}: a {what} matrix is written to {others}; use one of these extensions",
            output.display()
        )));
    };
    format.check_memory(spec)?;
    format.check_space(spec, output)?;
    let Writer::Bytes(write) = format.write else { return anndata(spec, output, progress) };
    let written = unfinished::replace(output, Access::Default, |file| {
        let to = write(spec, BufWriter::with_capacity(1 << 20, file.try_clone()?), progress)?;
        to.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        seal(file)
    });
    written.map_err(|e| unwritable(output, &e))
}

fn unwritable(output: &Path, e: &std::io::Error) -> Error {
    Error::failed(format!("{}: cannot be written: {e}; check the free space", output.display()))
}

fn npy(spec: &Synthetic, mut to: BufWriter<File>, progress: &mut Progress<'_>) -> Result<BufWriter<File>> {
    write_marked_header(&mut to, "<f8", &format!("{}, {}", spec.m, spec.n))?;
    let generator = Generator::new(spec);
    for first in (0..spec.m).step_by(STEP) {
        let mut block = Array2::<f64>::zeros((STEP.min(spec.m - first), spec.n));
        generator.fill(first, 0, &mut block.view_mut());
        block.iter().try_for_each(|x| to.write_all(&x.to_le_bytes()))?;
        progress((first + STEP).min(spec.m) as f64 / spec.m as f64)?;
    }
    Ok(to)
}

/// A MatrixMarket array is stored by columns, so a few columns are generated at a time.
fn array(spec: &Synthetic, mut to: BufWriter<File>, progress: &mut Progress<'_>) -> Result<BufWriter<File>> {
    writeln!(to, "%%MatrixMarket matrix array real general\n% {MARK}\n{} {}", spec.m, spec.n)?;
    let generator = Generator::new(spec);
    for first in (0..spec.n).step_by(STEP) {
        let mut block = Array2::<f64>::zeros((spec.m, STEP.min(spec.n - first)));
        generator.fill(0, first, &mut block.view_mut());
        block.columns().into_iter().flatten().try_for_each(|x| writeln!(to, "{x}"))?;
        progress((first + STEP).min(spec.n) as f64 / spec.n as f64)?;
    }
    Ok(to)
}

/// Passes all entries to `write`, row by row.
fn entries(
    spec: &Synthetic,
    progress: &mut Progress<'_>,
    mut write: impl FnMut(usize, usize, f64) -> Result<()>,
) -> Result<()> {
    let generator = Generator::new(spec);
    for first in (0..spec.m).step_by(STEP) {
        let end = (first + STEP).min(spec.m);
        let mut result = Ok(());
        generator.entries(first..end, 0..spec.n, &mut |i, j, value| {
            if result.is_ok() {
                result = write(i, j, value);
            }
        });
        result?;
        progress(end as f64 / spec.m as f64)?;
    }
    Ok(())
}

fn coordinate(spec: &Synthetic, mut to: BufWriter<File>, progress: &mut Progress<'_>) -> Result<BufWriter<File>> {
    let mut count = 0u64;
    entries(spec, &mut |part| progress(part / 2.0), |_, _, _| {
        count += 1;
        Ok(())
    })?;
    writeln!(to, "%%MatrixMarket matrix coordinate real general\n% {MARK}\n{} {} {count}", spec.m, spec.n)?;
    let mut second = |part: f64| progress(0.5 + part / 2.0);
    entries(spec, &mut second, |i, j, value| writeln!(to, "{} {} {value}", i + 1, j + 1))?;
    Ok(to)
}

/// Where each row of a CSR matrix begins, and the number of entries.
fn starts(spec: &Synthetic, progress: &mut Progress<'_>) -> Result<Vec<i64>> {
    let mut starts = vec![0; spec.m + 1];
    entries(spec, progress, |i, _, _| {
        starts[i + 1] += 1;
        Ok(())
    })?;
    for i in 0..spec.m {
        starts[i + 1] += starts[i];
    }
    Ok(starts)
}

/// Writes a CSR matrix. The matrix is generated once per array.
fn npz(spec: &Synthetic, to: BufWriter<File>, progress: &mut Progress<'_>) -> Result<BufWriter<File>> {
    let starts = starts(spec, &mut |part| progress(part / 3.0))?;
    save_npz(to, (spec.m, spec.n, starts[spec.m] as u64), |array, to| match array {
        Array::Starts => starts.iter().try_for_each(|x| to.write_all(&x.to_le_bytes())),
        Array::Columns => {
            entries(spec, &mut |part| progress((1.0 + part) / 3.0), |_, j, _| to.write_all(&(j as i32).to_le_bytes()))
        }
        Array::Values => {
            entries(spec, &mut |part| progress((2.0 + part) / 3.0), |_, _, value| to.write_all(&value.to_le_bytes()))
        }
    })
}

/// Writes a CSR matrix as the `X` of an AnnData file.
fn anndata(spec: &Synthetic, output: &Path, progress: &mut Progress<'_>) -> error::Result<()> {
    let starts = starts(spec, &mut |part| progress(part / 2.0)).map_err(|e| unwritable(output, &e))?;
    let rows = NamedRows { cols: spec.n, starts: &starts, row_names: None, column_names: None };
    save_h5ad(output, &rows, Access::Default, &mut |push| {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        let (mut last, mut failed) = (0, None);
        let done = entries(spec, &mut |part| progress(0.5 + part / 2.0), |i, j, value| {
            if i >= last + STEP {
                push(&columns, &values).map_err(|e| {
                    let text = e.to_string();
                    failed = Some(e);
                    std::io::Error::other(text)
                })?;
                columns.clear();
                values.clear();
                last = i;
            }
            columns.push(j as i32);
            values.push(value);
            Ok(())
        });
        if let Some(e) = failed {
            return Err(e);
        }
        done.map_err(|e| unwritable(output, &e))?;
        push(&columns, &values)
    })
}
