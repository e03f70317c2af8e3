//! The subcommands that read or write data: `generate`, `inspect`, `evaluate`.

use std::path::Path;

use ndarray::Array2;
use serde_json::json;

use crate::comm::Communicator;
use crate::data;
use crate::data::{InputSpec, Layout, Source, TableOptions};
use crate::error::{EXIT_DONE, Error, Result};
use crate::metrics;
use crate::output::matrices::Stored;
use crate::output::progress::Progress;

/// `fednmf generate`: rank 0 writes, the others wait.
///
/// # Errors
/// When the specification is wrong or the file cannot be written.
pub fn generate(spec: &str, output: &Path, comm: &Communicator) -> Result<i32> {
    let text = if spec.starts_with("synthetic:") { spec.to_string() } else { format!("synthetic:{spec}") };
    let parsed = InputSpec::parse(&text).map_err(Error::on_all_ranks)?;
    let Source::Synthetic(made) = &parsed.source else {
        return Err(Error::input(format!("{spec}: no kind of synthetic matrix")).on_all_ranks());
    };
    let mut progress = Progress::new(comm.is_root(), None);
    let written =
        if comm.is_root() { data::generate(made, output, &mut |part| progress.loading(part)) } else { Ok(()) };
    comm.agree_on_error(written)?;
    progress.finish();
    Ok(EXIT_DONE)
}

/// The matrix that the arguments of `inspect` and `evaluate` name.
///
/// # Errors
/// When the name makes no sense.
pub fn matrix(input: &str, transpose: bool, table: TableOptions) -> Result<InputSpec> {
    Ok(InputSpec { transpose, table, ..InputSpec::parse(input)? })
}

/// `fednmf inspect`: what a matrix is.
///
/// # Errors
/// When it cannot be read.
pub fn inspect(spec: &InputSpec, as_json: bool, comm: &Communicator) -> Result<i32> {
    let mut progress = Progress::new(comm.is_root(), None);
    let summary = data::inspect(spec, comm, &mut |part| progress.loading(part))?;
    progress.notes(&summary.notes);
    progress.finish();
    if comm.is_root() {
        let value = json!(summary);
        if as_json {
            println!("{value}");
        } else {
            for (name, value) in value.as_object().into_iter().flatten() {
                let plain = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                println!("{:<12} {plain}", name.replace('_', " "));
            }
        }
    }
    Ok(EXIT_DONE)
}

/// `fednmf evaluate`: the relative error of stored factors.
///
/// # Errors
/// When factors or data cannot be read, or their shapes do not fit.
pub fn evaluate(factors: &Path, spec: &InputSpec, as_json: bool, comm: &Communicator) -> Result<i32> {
    let spec = InputSpec { allow_negative: true, ..spec.clone() };
    let stored = comm.agree_on_error(Stored::open(factors))?;
    let input = data::open(&spec, comm)?;
    let (m, n) = (input.header().rows, input.header().cols);
    let k = comm.agree_on_error(fitting(&stored, factors, (m, n)))?;
    let mut progress = Progress::new(comm.is_root(), None);
    progress.notes(&input.header().notes);
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let loaded = input.load::<f64>(&plan, comm, &mut |part| progress.loading(part))?;
    progress.finish();
    let rows = loaded.cuts.rows[comm.rank()].clone();
    let (mut u, mut v) = (Array2::<f64>::zeros((rows.len(), k)), Array2::<f64>::zeros((n, k)));
    let read = stored.as_f64("U", rows.start, u.view_mut()).and_then(|()| stored.as_f64("V", 0, v.view_mut()));
    comm.agree_on_error(read)?;
    let block = std::iter::once((&loaded.blocks[0], u.view(), v.view()));
    let error = metrics::relative_error(comm, loaded.statistics.norm2, block);
    if comm.is_root() {
        if as_json {
            println!("{}", json!({"rel_error": error, "m": m, "n": n, "k": k}));
        } else {
            println!("relative error {error:.6} ({m} x {n}, k = {k})");
        }
    }
    Ok(EXIT_DONE)
}

/// The number of components of factors that fit an m × n matrix.
fn fitting(stored: &Stored, path: &Path, (m, n): (usize, usize)) -> Result<usize> {
    let (u, v) = (stored.matrix("U")?, stored.matrix("V")?);
    if u.0 != m || v.0 != n || u.1 != v.1 {
        return Err(Error::input(format!(
            "{}: U is {} x {} and V {} x {}, which does not fit a matrix of {m} x {n} (is --transpose missing?)",
            path.display(),
            u.0,
            u.1,
            v.0,
            v.1
        )));
    }
    Ok(u.1)
}
