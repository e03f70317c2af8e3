//! Initialisation of the factors: random, U, V ~ Uniform(0, c) with c = 2 √(mean(M) / k), so that UVᵀ has about the mean of M;
//! from the data's singular vectors; or from a file.

use std::ops::Range;
use std::path::Path;

use ndarray::{Array2, ArrayViewMut2};

use super::nndsvd;
use crate::algorithms::parameters::{self, Init};
use crate::error::{Error, Result};
use crate::linalg::{Block, Real};
use crate::random::{Purpose, Stream, uniform_rows};
use crate::state::{Owner, ReadRows};

/// c for an m × n matrix with this sum of entries. A matrix without a positive mean starts at c = 1.
pub fn scale(sum: f64, (m, n): (usize, usize), k: usize) -> f64 {
    let mean = sum / (m as f64 * n as f64);
    if mean > 0.0 { 2.0 * (mean / k as f64).sqrt() } else { 1.0 }
}

/// The root mean square of an entry of a random start with that scale.
pub fn start_entry(scale: f64) -> f64 {
    scale / 3f64.sqrt()
}

/// Rows of U's start.
pub fn u<T: Real>(seed: u64, rows: &Range<usize>, scale: f64, out: ArrayViewMut2<'_, T>) {
    uniform_rows(&Stream::new(seed, Purpose::StartU, 0), rows.clone(), scale, out);
}

/// Rows of V's start.
pub fn v<T: Real>(seed: u64, rows: &Range<usize>, scale: f64, out: ArrayViewMut2<'_, T>) {
    uniform_rows(&Stream::new(seed, Purpose::StartV, 0), rows.clone(), scale, out);
}

/// The start of the factors.
#[derive(Debug, Clone, PartialEq, clap::Args, serde::Serialize)]
pub struct InitArgs {
    /// Where the factors start: random, nndsvd (the data's leading singular vectors, by a randomised SVD over the ranks;
    /// hals, bpp and mu), or a file that --output wrote
    #[arg(long, value_name = "HOW", default_value = "random", value_parser = parameters::init)]
    pub init: Init,
}

impl InitArgs {
    /// The file to start from, if one was named.
    pub fn file(&self) -> Option<&Path> {
        if let Init::File(path) = &self.init { Some(path) } else { None }
    }

    /// Refuses `nndsvd` for `method`, which does not start from it.
    ///
    /// # Errors
    /// When that was asked for.
    pub fn refuse_nndsvd(&self, method: &str) -> Result<()> {
        if self.init == Init::Nndsvd {
            return Err(Error::input(format!(
                "--init nndsvd: {method} starts at random or from a file; hals, bpp and mu take nndsvd"
            )));
        }
        Ok(())
    }
}

/// Where the factors start, with the contents of the file.
#[derive(Clone, Copy)]
pub enum Start<'a, T> {
    Random,
    Nndsvd,
    Given(&'a dyn ReadRows<T>),
}

impl<'a, T> Start<'a, T> {
    /// The start that was asked for; `given` are the factors of the file, if one was named.
    pub fn new(args: &InitArgs, given: Option<&'a dyn ReadRows<T>>) -> Self {
        match given {
            Some(given) => Start::Given(given),
            None if args.init == Init::Nndsvd => Start::Nndsvd,
            None => Start::Random,
        }
    }
}

/// Own rows of both factors of an m × n matrix from the grid's block, which comes back. Where `positive`, zeros of
/// NNDSVD become small instead (a hundredth of the mean entry: NNDSVDa), since multiplicative updates keep zeros. Collective.
///
/// # Errors
/// When there are no such factors, or the singular vectors cannot be computed.
pub fn on_grid<T: Real>(
    start: Start<'_, T>,
    task: &nndsvd::Task<'_>,
    sum: f64,
    positive: bool,
    block: Block<T>,
    rows: [&Range<usize>; 2],
) -> Result<(Block<T>, Array2<T>, Array2<T>)> {
    let (shape, k, order) = (task.shape, task.k, block.order());
    let [mut of_u, mut of_v] = rows.map(|rows| order.zeros::<T>(rows.len(), k));
    match start {
        Start::Random => {
            let scale = scale(sum, shape, k);
            u(task.seed, rows[0], scale, of_u.view_mut());
            v(task.seed, rows[1], scale, of_v.view_mut());
        }
        Start::Given(given) => {
            let read = self::given(given, rows, [of_u.view_mut(), of_v.view_mut()]);
            task.comm.agree_on_error(read)?;
        }
        Start::Nndsvd => {
            let (block, mut of_u, mut of_v) = nndsvd::start(task, block)?;
            if positive {
                let small = T::from_f64(sum / (shape.0 as f64 * shape.1 as f64) / 100.0);
                for x in of_u.iter_mut().chain(&mut of_v).filter(|x| **x <= T::zero()) {
                    *x = small;
                }
            }
            return Ok((block, of_u, of_v));
        }
    }
    Ok((block, of_u, of_v))
}

/// Rows of given factors.
///
/// # Errors
/// When they are of another shape, or no start.
pub fn given<T: Real>(given: &dyn ReadRows<T>, rows: [&Range<usize>; 2], out: [ArrayViewMut2<'_, T>; 2]) -> Result<()> {
    for ((name, rows), mut out) in ["U", "V"].into_iter().zip(rows).zip(out) {
        given.rows(name, Owner::Shared, rows.start, out.view_mut())?;
        if let Some(x) = out.iter().find(|x| !(x.is_finite() && **x >= T::zero())) {
            return Err(Error::input(format!(
                "--init: {name} has the entry {x}, and a start is finite and not negative"
            )));
        }
    }
    Ok(())
}
