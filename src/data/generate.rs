//! `fednmf generate`: a synthetic matrix into a file. Rows are made as they are written, so memory holds a few.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use ndarray::Array2;

use super::npy::write_header;
use super::synthetic::{Generator, Synthetic};
use crate::error::{Error, Result};

/// Rows made at once.
const STEP: usize = 256;

/// Writes a synthetic matrix to `.npy` (dense kinds) or `.mtx`. The file appears under its name when it is complete.
///
/// # Errors
/// An ending that does not fit the kind of matrix, or a file that cannot be written.
pub fn generate(spec: &Synthetic, output: &Path, progress: &mut dyn FnMut(f64)) -> Result<()> {
    let ending = output.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let write: fn(&Synthetic, &mut dyn Write, &mut dyn FnMut(f64)) -> std::io::Result<()> =
        match (ending, spec.sparse()) {
            ("npy", false) => npy,
            ("mtx", false) => array,
            ("mtx", true) => coordinate,
            ("npy", true) => return Err(Error::input("a sparse matrix is written to .mtx, not to .npy")),
            _ => {
                return Err(Error::input(format!(
                    "{}: name the output .npy or .mtx, which says what is written",
                    output.display()
                )));
            }
        };
    let unfinished = output.with_extension(format!("{ending}.unfinished"));
    let result = File::create(&unfinished).and_then(|file| {
        let mut to = BufWriter::with_capacity(1 << 20, file);
        write(spec, &mut to, progress)?;
        to.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&unfinished, output)
    });
    result.map_err(|e| {
        let _ = std::fs::remove_file(&unfinished); // what failed is told below
        Error::input(format!("{}: cannot be written: {e}", output.display()))
    })
}

/// Hands the matrix to `row`, row by row.
fn rows(
    spec: &Synthetic,
    progress: &mut dyn FnMut(f64),
    mut row: impl FnMut(&[f64]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let generator = Generator::new(spec);
    for first in (0..spec.m).step_by(STEP) {
        let mut block = Array2::<f64>::zeros((STEP.min(spec.m - first), spec.n));
        generator.fill(first, 0, &mut block.view_mut());
        for line in block.rows() {
            row(line.as_slice().unwrap_or_default())?;
        }
        progress((first + STEP).min(spec.m) as f64 / spec.m as f64);
    }
    Ok(())
}

fn npy(spec: &Synthetic, to: &mut dyn Write, progress: &mut dyn FnMut(f64)) -> std::io::Result<()> {
    write_header(to, "<f8", &format!("{}, {}", spec.m, spec.n))?;
    rows(spec, progress, |row| row.iter().try_for_each(|x| to.write_all(&x.to_le_bytes())))
}

/// A MatrixMarket array goes by columns, and so this makes the matrix column by column.
fn array(spec: &Synthetic, to: &mut dyn Write, progress: &mut dyn FnMut(f64)) -> std::io::Result<()> {
    writeln!(to, "%%MatrixMarket matrix array real general\n{} {}", spec.m, spec.n)?;
    let generator = Generator::new(spec);
    for first in (0..spec.n).step_by(STEP) {
        let mut block = Array2::<f64>::zeros((spec.m, STEP.min(spec.n - first)));
        generator.fill(0, first, &mut block.view_mut());
        for x in block.columns().into_iter().flatten() {
            writeln!(to, "{x}")?;
        }
        progress((first + STEP).min(spec.n) as f64 / spec.n as f64);
    }
    Ok(())
}

fn coordinate(spec: &Synthetic, to: &mut dyn Write, progress: &mut dyn FnMut(f64)) -> std::io::Result<()> {
    let generator = Generator::new(spec);
    let mut entries = 0u64;
    generator.entries(0..spec.m, 0..spec.n, &mut |_, _, _| entries += 1);
    writeln!(to, "%%MatrixMarket matrix coordinate real general\n{} {} {entries}", spec.m, spec.n)?;
    for first in (0..spec.m).step_by(STEP) {
        let end = (first + STEP).min(spec.m);
        let mut result = Ok(());
        generator.entries(first..end, 0..spec.n, &mut |i, j, value| {
            if result.is_ok() {
                result = writeln!(to, "{} {} {value}", i + 1, j + 1);
            }
        });
        result?;
        progress(end as f64 / spec.m as f64);
    }
    Ok(())
}
