//! `fednmf project`: the factor U of new rows, for the V of an earlier run.

use std::path::{Path, PathBuf};

use clap::Args;
use ndarray::Array2;
use serde_json::{Map, Value, json};

use crate::algorithms::registry;
use crate::comm::Communicator;
use crate::data;
use crate::data::{InputSpec, Layout, TableOptions};
use crate::error::{EXIT_DONE, Error, Result};
use crate::linalg::gram;
use crate::metrics;
use crate::nls::Pivoting;
use crate::output::attributes;
use crate::output::matrices;
use crate::output::matrices::Stored;
use crate::output::progress::Progress;
use crate::state::Piece;

/// `fednmf project`.
#[derive(Debug, Args)]
pub struct ProjectArgs {
    /// File with V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// The new matrix: any input that a run takes, with the columns of the old one
    #[arg(long, value_name = "PATH")]
    pub input: String,
    /// Write the new U, and V as it was, to this file (.h5, .h5ad, .npz)
    #[arg(long, value_name = "F.h5")]
    pub output: Option<PathBuf>,
    /// Transpose the new matrix
    #[arg(long)]
    pub transpose: bool,
    #[command(flatten)]
    pub table: TableOptions,
    /// No progress on stderr
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Rows that are solved at a time: the solver keeps its state for each.
const STEP: usize = 4096;

/// Each row u of the new U is the exact solution of min ‖x − V u‖ over u ≥ 0 for a row x of the new matrix, as an update
/// of U by `bpp` would find it. Every rank solves its own rows; V is on all of them. Collective.
///
/// # Errors
/// When factors or data cannot be read, do not fit, or the output not be written.
pub fn project(args: &ProjectArgs, comm: &Communicator) -> Result<i32> {
    let mut spec = InputSpec::parse(&args.input).map_err(Error::on_all_ranks)?;
    spec.transpose = args.transpose;
    spec.table = args.table;
    let opened = match &args.output {
        Some(path) if comm.is_root() => {
            matrices::Format::of(path).and_then(|_| matrices::check_writable(path)).map_err(|e| e.at("--output"))
        }
        _ => Ok(()),
    };
    let stored = comm.agree_on_error(opened.and_then(|()| Stored::open(&args.factors)))?;
    comm.agree_on_error(usable(&stored, &args.factors))?;
    let input = data::open(&spec, comm)?;
    let (m, n) = (input.header().rows, input.header().cols);
    let (rows, k) = comm.agree_on_error(stored.matrix("V"))?;
    if rows != n {
        return Err(Error::input(format!(
            "{}: V has {rows} rows, one for each column of its matrix, but the new matrix is {m} x {n}; it needs the same \
             columns (is --transpose missing?)",
            args.factors.display()
        ))
        .on_all_ranks());
    }
    let mut v = Array2::<f64>::zeros((n, k));
    comm.agree_on_error(stored.as_f64("V", 0, v.view_mut()))?;
    let mut progress = Progress::new(comm.is_root() && !args.quiet, None);
    progress.notes(&input.header().notes);
    if let Some(Value::Object(params)) = stored.attributes().get("params")
        && params.get("scale").is_some_and(|s| s == "max")
    {
        progress
            .note("the factors were made with --scale max: divide the new matrix by the same number as the old one");
    }
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let loaded = input.load::<f64>(&plan, comm, &mut |part| progress.loading(part))?;
    progress.finish();
    let block = &loaded.blocks[0];
    let own = loaded.cuts.rows[comm.rank()].clone();
    let mut by_order = block.order().zeros(n, k);
    by_order.assign(&v);
    let mut rhs = block.order().zeros(own.len(), k);
    block.mul(&by_order.view(), &mut rhs.view_mut());
    let mut g = Array2::zeros((k, k));
    gram(&v.view(), &mut g.view_mut());
    let mut u = Array2::<f64>::zeros((own.len(), k));
    let mut solver = Pivoting::new(k);
    for first in (0..own.len()).step_by(STEP) {
        let part = ndarray::s![first..(first + STEP).min(own.len()), ..];
        solver.solve(&mut u.slice_mut(part), &rhs.slice(part), &g.view());
    }
    let error = metrics::relative_error(comm, loaded.statistics.norm2, std::iter::once((block, u.view(), v.view())));
    if let Some(path) = &args.output {
        let own_v = crate::comm::even_part(n, comm.size(), comm.rank());
        let pieces = [
            Piece::shared("U", m, own.start, u.view()),
            Piece::shared("V", n, own_v.start, v.slice(ndarray::s![own_v, ..])),
        ];
        let annotations = crate::driver::metadata::annotations(Some(path), &spec, comm);
        matrices::write_factors(comm, path, &pieces, &provenance(args, (m, n), k, error), &annotations)?;
    }
    if comm.is_root() {
        if args.json {
            println!("{}", json!({"rel_error": error, "m": m, "n": n, "k": k, "output": args.output}));
        } else {
            let output = args.output.as_ref().map_or_else(
                || "U was not kept (no --output).".into(),
                |path| format!("U, and V as it was, are in {}.", path.display()),
            );
            println!("relative error {error:.6} ({m} x {n}, k = {k}). {output}");
        }
    }
    Ok(EXIT_DONE)
}

/// Whether the factors are of a kind for which least squares is the right question.
fn usable(stored: &Stored, path: &Path) -> Result<()> {
    let algo = stored
        .attributes()
        .get("algo")
        .and_then(Value::as_str)
        .and_then(registry::find)
        .map(|entry| entry.description());
    match algo {
        Some(method) if method.is_boolean() => Err(Error::input(format!(
            "{}: holds Boolean factors (of {}); only real ones can be projected on",
            path.display(),
            method.name
        ))),
        _ => Ok(()),
    }
}

fn provenance(args: &ProjectArgs, (m, n): (usize, usize), k: usize, error: f64) -> Map<String, Value> {
    let mut all = attributes::provenance();
    let more = json!({
        "algo": "project", "factors": args.factors, "input": args.input, "m": m, "n": n, "k": k, "rel_error": error,
    });
    all.extend(more.as_object().cloned().unwrap_or_default());
    all
}
