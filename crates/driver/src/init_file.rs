//! `--init FILE`: start from the factors of an earlier run.

use std::path::Path;

use ndarray::ArrayViewMut2;
use serde_json::Value;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::warning::warn;
use fednmf_comm::Communicator;
use fednmf_data::NAMES;
use fednmf_data::state::{Owner, ReadRows};
use fednmf_files::names::{Match, Names};
use fednmf_files::output::matrices::{Factor, Stored};
use fednmf_files::{InputSpec, Scale, names};
use fednmf_linalg::Real;
use fednmf_methods::parameters::ParamType as _;
use fednmf_methods::shared::missing::MissingParams;

/// Stored factors of the right shape, in either precision.
pub struct Initial {
    stored: Stored,
    /// The rows of U and V in the file for each row and column of the matrix, if names show that the order differs.
    orders: [Option<Vec<usize>>; 2],
}

impl Initial {
    /// Opens the factors for an m × n matrix, read as `input` says, with k components. If matrix and factors have names
    /// (those of the matrix are on rank 0), rows and columns are matched by name. `left_out` are the entries that do
    /// not count, and the seed that draws those held out. Collective.
    ///
    /// # Errors
    /// On all ranks, if the file has no factors, or of another shape or other rows or columns.
    pub fn open(
        path: &Path,
        (m, n): (usize, usize),
        (k, input): (usize, &InputSpec),
        left_out: Option<(&MissingParams, u64)>,
        matrix: &Names,
        comm: &Communicator,
    ) -> SharedResult<Self> {
        // A mistyped keyword looks like a file that does not exist.
        let no_such_word = path.extension().is_none() && !path.exists();
        let hint =
            if no_such_word { ", or give auto, random, sampled, nndsvd, nndsvda, nndsvdar or compressed" } else { "" };
        let at = |e: Error| {
            let message = format!("--init: {}{hint}", e.message);
            e.with_message(message)
        };
        let open = || {
            let stored = Stored::open(path)?;
            stored.check_factors()?;
            let [u, v] = [Factor::open(&stored, "U")?.shape(), Factor::open(&stored, "V")?.shape()];
            check(path, [u, v], (m, n), k)?;
            if m == n && was_transposed(&stored).is_some_and(|was| was != input.transpose) {
                return Err(Error::input(format!(
                    "{}: holds factors of the transposed matrix: add or omit --transpose",
                    path.display()
                )));
            }
            Ok(stored)
        };
        let stored = comm.agree_on_error(open().map_err(at))?;
        if comm.is_root()
            && let Some(text) = other_scale(&stored, input.scale)
        {
            warn(&format!("--init: {text}"));
        }
        let orders = if comm.is_root() { orders(path, matrix, &stored.names()).map_err(at) } else { Ok([None, None]) };
        let orders = comm.broadcast_value(NAMES, comm.agree_on_error(orders)?);
        if let Some((args, seed)) = left_out
            && comm.is_root()
            && !has_left_out(&stored, args, seed, orders.iter().any(Option::is_some))
        {
            warn(&format!(
                "--init {}: the run that made it did not hold out the same entries, so this start has seen them, and the error \
                 on them (heldout_rmse) is not that of unseen ones; start from factors of a run with the same --holdout, \
                 --missing and --seed, or at random",
                path.display()
            ));
        }
        Ok(Initial { stored, orders })
    }
}

/// A parameter of the run that made the factors, if it is known.
fn parameter<'a>(stored: &'a Stored, name: &str) -> Option<&'a Value> {
    let attributes = stored.attributes();
    attributes.get("params").and_then(|params| params.get(name)).or(attributes.get(name))
}

/// Whether that run transposed its matrix.
fn was_transposed(stored: &Stored) -> Option<bool> {
    let found = parameter(stored, "transpose")?;
    found.as_bool().or_else(|| found.as_u64().map(|number| number != 0))
}

/// Whether the run that made the factors held out all entries that this run holds out.
fn has_left_out(stored: &Stored, args: &MissingParams, seed: u64, reordered: bool) -> bool {
    let missing = args.missing.marks();
    if args.holdout == 0.0 && missing.is_none() {
        return true;
    }
    let share = parameter(stored, "holdout").and_then(Value::as_f64).unwrap_or(0.0);
    let seeded = stored.attributes().get("seed").and_then(Value::as_u64) == Some(seed);
    let same = parameter(stored, "missing").is_some_and(|was| *was == Value::from(args.missing.value()));
    // Held-out positions depend on the order of the matrix; marks are matched by name.
    same && (args.holdout == 0.0 || share == args.holdout && seeded && !reordered)
}

/// A warning if the factors belong to a matrix in another unit.
fn other_scale(stored: &Stored, scale: Scale) -> Option<&'static str> {
    let was_divided = parameter(stored, "scale")? == "max";
    match (was_divided, scale == Scale::None) {
        (true, true) => {
            Some("the factors are of a matrix that --scale max divided, far below this one; add --scale max")
        }
        (false, false) => Some("the factors are of a matrix without --scale, far above this one; omit --scale"),
        _ => None,
    }
}

fn check(path: &Path, [u, v]: [(usize, usize); 2], (m, n): (usize, usize), k: usize) -> Result<()> {
    if (u, v) == ((m, k), (n, k)) {
        return Ok(());
    }
    let what = match () {
        () if (u.0, v.0) == (m, n) => format!("so this run must have -k {}", u.1),
        () if (v.0, u.0) == (m, n) => "which are factors of the transposed matrix: add or omit --transpose".to_string(),
        () if v.0 == n => {
            "but U must have a row for each of the matrix; 'fednmf project' makes a U for other rows".to_string()
        }
        () => "which are factors of another matrix".to_string(),
    };
    Err(Error::input(format!(
        "{}: U is {} x {} and V {} x {}, {what} (the matrix is {m} x {n}, -k is {k})",
        path.display(),
        u.0,
        u.1,
        v.0,
        v.1
    )))
}

fn orders(path: &Path, matrix: &Names, factors: &Names) -> Result<[Option<Vec<usize>>; 2]> {
    let pairs = [("row", &matrix.rows, &factors.rows), ("column", &matrix.columns, &factors.columns)];
    for text in pairs.into_iter().filter_map(|(what, ours, theirs)| {
        names::unmatched(what, ours.as_deref(), "the factors have", theirs.as_deref())
    }) {
        warn(&format!("--init: {text}"));
    }
    let order = |what: &str, matrix: Option<&[String]>, factors: Option<&[String]>| match names::compare(
        matrix, factors,
    ) {
        Match::Equal => Ok(None),
        Match::Reordered(order) => Ok(Some(order)),
        Match::Repeated(name) => Err(Error::input(format!("{}: {}", path.display(), names::repeated(what, &name)))),
        Match::Different(at, matrix, factors) => Err(Error::input(format!(
            "{}: {what} {at} is {matrix} in the matrix, but {factors} in the factors; start from factors of the same {what}s",
            path.display()
        ))),
    };
    Ok([
        order("row", matrix.rows.as_deref(), factors.rows.as_deref())?,
        order("column", matrix.columns.as_deref(), factors.columns.as_deref())?,
    ])
}

impl<T: Real> ReadRows<T> for Initial {
    fn rows(&self, name: &str, _: Owner, first_row: usize, mut out: ArrayViewMut2<'_, T>) -> Result<()> {
        let (name, order) = if name == "U" { ("U", &self.orders[0]) } else { ("V", &self.orders[1]) };
        let read = || Factor::open(&self.stored, name)?.rows(order.as_deref(), first_row..first_row + out.nrows());
        let wide = read().map_err(|e| e.at("--init"))?;
        out.zip_mut_with(&wide, |out, &x| *out = T::from_f64(x));
        Ok(())
    }
}
