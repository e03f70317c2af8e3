//! `fednmf attack`: what the releases of a `dsanls-secure` run give away.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum as _};
use ndarray::{Array2, s};
use serde_json::{Map, Value, json};

use crate::comm::Communicator;
use crate::data;
use crate::data::formats::detect::is_table_name;
use crate::data::{InputSpec, Layout, Scale, Stack, TableOptions, Threshold};
use crate::error::{EXIT_DONE, Error, Result};
use crate::linalg::Order;
use crate::output::matrices;
use crate::output::matrices::Stored;
use crate::output::targets;
use crate::output::targets::{Content, Target};
use crate::privacy::attack::Recovery;
use crate::sketch;
use crate::state::{Owner, Piece, ReadRows as _};

/// What `fednmf attack` is told.
#[derive(Debug, Args)]
pub struct AttackArgs {
    /// The file of --record-releases
    pub releases: PathBuf,
    /// The matrix to compare with [default: the run's own --input]
    #[arg(long, value_name = "PATH")]
    pub input: Option<String>,
    /// Write what was found as the matrix M of this HDF5 file
    #[arg(long, value_name = "F.h5")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Most bytes that the attack may keep.
const MOST: usize = 8 << 30;

/// What is known after some releases.
struct Known {
    releases: usize,
    independent: usize,
    error: f64,
    columns: usize,
}

/// What the file of releases says of the run.
struct Released {
    m: usize,
    n: usize,
    d: usize,
    count: usize,
    seed: u64,
    kind: sketch::SketchKind,
    /// All releases, one below the other: (count · m) × d.
    all: Array2<f64>,
    /// How close a column must come to count as known, relative to the largest entry.
    tolerance: f64,
}

/// Rank 0 attacks, the others wait. Collective.
///
/// # Errors
/// When a file cannot be read, is none of `--record-releases`, or the matrix is another one or too large.
pub fn attack(args: &AttackArgs, comm: &Communicator) -> Result<i32> {
    let alone = comm.split(comm.rank());
    let told = if comm.is_root() { on_rank_0(args, &alone) } else { Ok(String::new()) };
    let text = comm.agree_on_error(told)?;
    if comm.is_root() {
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
    Ok(EXIT_DONE)
}

fn on_rank_0(args: &AttackArgs, alone: &Communicator) -> Result<String> {
    if let Some(path) = &args.output {
        let mut sources = vec![("RELEASES", args.releases.clone())];
        sources.extend(args.input.iter().map(|path| ("--input", PathBuf::from(path))));
        targets::check(&[Target { option: "--output", path, content: Content::Matrices }], &sources)?;
    }
    let stored = Stored::open(&args.releases)?;
    let about = stored.attributes();
    let released = read(&stored, &args.releases.display().to_string())?;
    let m = matrix(args, about, &released, alone)?;
    let mut recovery = Recovery::new(released.m, released.n);
    let history = history(&released, &m, &mut recovery);
    if let Some(path) = &args.output {
        let found = Piece::shared("M", released.m, 0, recovery.estimate().view());
        matrices::write(alone, path, &[found], &Map::new())?;
    }
    Ok(if args.json { format!("{}\n", as_json(&released, &history)) } else { table(&released, &history) })
}

/// The releases and what a party knows of how they were made.
fn read(stored: &Stored, path: &str) -> Result<Released> {
    let about = stored.attributes();
    let lacks = |what: &str| Error::input(format!("{path}: has no {what}; it must be a file of --record-releases"));
    let count = |name: &str| about.get(name).and_then(Value::as_u64).map(|x| x as usize).ok_or_else(|| lacks(name));
    let (m, n) = (count("m")?, count("n")?);
    let seed = about.get("seed").and_then(Value::as_u64).ok_or_else(|| lacks("seed"))?;
    let kind = about.get("params").and_then(|p| p.get("sketch")).and_then(Value::as_str);
    let kind = kind.and_then(|k| sketch::SketchKind::from_str(k, false).ok()).ok_or_else(|| lacks("kind of sketch"))?;
    let (rows, d) = stored.matrix("released").map_err(|_| lacks("releases"))?;
    if m == 0 || n == 0 || d == 0 || d > n || rows == 0 || rows % m != 0 {
        return Err(Error::input(format!("{path}: {rows} x {d} is no shape for releases of an {m} x {n} matrix")));
    }
    let bytes = n.checked_mul(n + 4 * m).and_then(|x| x.checked_mul(size_of::<f64>()));
    if bytes.is_none_or(|bytes| bytes > MOST) {
        return Err(Error::input(format!(
            "{path}: an attack on a matrix of {m} x {n} would keep more than 8 GiB (n x n numbers and some copies); show it on a \
             smaller one"
        )));
    }
    let mut all = Array2::zeros((rows, d));
    let narrow = stored.precision("released")? == "f32";
    if narrow {
        let mut single = Array2::<f32>::zeros((rows, d));
        stored.rows("released", Owner::Shared, 0, single.view_mut())?;
        all.assign(&single.mapv(f64::from));
    } else {
        stored.rows("released", Owner::Shared, 0, all.view_mut())?;
    }
    Ok(Released { m, n, d, count: rows / m, seed, kind, all, tolerance: if narrow { 1e-2 } else { 1e-6 } })
}

/// The true matrix, as the run saw it.
fn matrix(
    args: &AttackArgs,
    about: &Map<String, Value>,
    released: &Released,
    alone: &Communicator,
) -> Result<Array2<f64>> {
    let recorded = about.get("input").and_then(Value::as_str);
    let input = args.input.as_deref().or(recorded).ok_or_else(|| {
        Error::input(format!("{}: does not say what matrix it is of; give --input", args.releases.display()))
    })?;
    let param = |name: &str| about.get("params").and_then(|p| p.get(name));
    let truth = |value: &Value| value.as_bool().unwrap_or(value == 1);
    let mut spec = InputSpec::parse(input)?;
    spec.transpose = param("transpose").is_some_and(truth);
    // A matrix that is named now may be in another format.
    if args.input.as_deref().is_none_or(is_table_name) {
        spec.table = about.get("params").map(TableOptions::from_json).unwrap_or_default();
    }
    spec.scale = if param("scale").is_some_and(|s| s == "max") { Scale::Max } else { Scale::None };
    spec.binarize = param("binarize").and_then(Threshold::from_json);
    spec.parties = about.get("parties").and_then(Value::as_u64).map(|p| p as usize);
    spec.stack = Stack::Columns;
    let opened = data::open(&spec, alone)?;
    let shape = (opened.header().rows, opened.header().cols);
    if shape != (released.m, released.n) {
        return Err(Error::input(format!(
            "{input}: is {} x {}, but the releases are of an {} x {} matrix",
            shape.0, shape.1, released.m, released.n
        )));
    }
    let loaded = opened.load::<f64>(&Layout::Grid { pr: 1, pc: 1 }, alone, &mut |_| ())?;
    let mut m = Order::Components.zeros(released.m, released.n);
    let block = &loaded.blocks[0];
    let mut product = block.order().zeros(released.m, released.n);
    block.mul(&Array2::eye(released.n).view(), &mut product.view_mut());
    m.assign(&product);
    if !is_sketched_by(released, &m) {
        return Err(Error::input(format!("{input}: is not the matrix of the run: its first sketch is another one")));
    }
    Ok(m)
}

/// Whether the first release is the sketch M S of this matrix.
fn is_sketched_by(released: &Released, m: &Array2<f64>) -> bool {
    let Released { n, d, .. } = *released;
    let mut made = sketch::make::<f64>(released.kind, n, d, n, Order::Rows);
    let mut across = Array2::zeros((d, n));
    made.draw(&sketch::stream(released.seed, true, 0));
    made.sketch_rows(0, &Array2::eye(n).view(), &mut across.view_mut());
    let expected = m.dot(&across.t());
    let first = released.all.slice(s![..released.m, ..]);
    let norm2 = |x: &Array2<f64>| x.iter().map(|x| x * x).sum::<f64>();
    norm2(&(&expected - &first)) <= (10.0 * released.tolerance).powi(2) * norm2(&expected)
}

fn history(released: &Released, m: &Array2<f64>, recovery: &mut Recovery) -> Vec<Known> {
    let Released { n, d, .. } = *released;
    let mut made = sketch::make::<f64>(released.kind, n, d, n, Order::Rows);
    let identity = Array2::eye(n);
    let mut across = Array2::zeros((d, n));
    let steps = (0..released.count).map(|t| {
        made.draw(&sketch::stream(released.seed, true, t));
        made.sketch_rows(0, &identity.view(), &mut across.view_mut());
        let mut release = released.all.slice(s![t * released.m..(t + 1) * released.m, ..]).t().to_owned();
        recovery.add(&mut across.view_mut(), &mut release.view_mut());
        let (error, columns) = recovery.compare(&m.view(), released.tolerance);
        Known { releases: t + 1, independent: recovery.rank(), error, columns }
    });
    steps.collect()
}

fn recovered_after(released: &Released, history: &[Known]) -> Option<usize> {
    history.iter().find(|known| known.columns == released.n).map(|known| known.releases)
}

fn as_json(released: &Released, history: &[Known]) -> Value {
    let Released { m, n, d, kind, .. } = released;
    let steps: Vec<Value> = history
        .iter()
        .map(|k| {
            json!({"releases": k.releases, "equations": k.releases * d, "independent": k.independent,
                   "rel_error": k.error, "columns_known": k.columns})
        })
        .collect();
    json!({"m": m, "n": n, "sketch": kind.name(), "sketch_size": d, "theorem": n.div_ceil(*d),
           "recovered_after": recovered_after(released, history), "history": steps})
}

fn table(released: &Released, history: &[Known]) -> String {
    let Released { m, n, d, kind, .. } = released;
    let mut out =
        format!("{} sketches of {d} columns, of a {m} x {n} matrix; each row of it is {n} unknowns\n\n", kind.name());
    out.push_str("releases  equations  independent  relative error  columns known\n");
    for k in history {
        let Known { releases, independent, error, columns } = k;
        let _ = writeln!(out, "{releases:8}  {:9}  {independent:11}  {error:14.3e}  {columns:13}", releases * d);
    }
    let least = n.div_ceil(*d);
    let _ = match recovered_after(released, history) {
        Some(after) => {
            writeln!(out, "\nThe data is known after {after} releases; no fewer than {least} can be enough.")
        }
        None => writeln!(
            out,
            "\nThe data is not determined by these {} releases; {least} or more are needed.",
            history.len()
        ),
    };
    out
}
