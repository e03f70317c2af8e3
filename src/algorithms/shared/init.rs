//! Initialisation of the factors: random, U, V ~ Uniform(0, c) with c = 2 √(mean(M) / k), so that UVᵀ has about the mean of M;
//! from the data's singular vectors; or from a file.

use std::ops::Range;
use std::path::Path;

use ndarray::{Array2, ArrayViewMut2};

use super::low_rank::{self, Task, narrow};
use super::{compressed, nndsvd};
use crate::algorithms::parameters::{self, Init};
use crate::error::{Error, Result};
use crate::linalg::{Block, Order, Real};
use crate::random::{Purpose, Stream, uniform_rows};
use crate::state::{Owner, ReadRows};

/// c for an m × n matrix with this sum of entries. A matrix without a positive mean starts at c = 1.
pub fn scale(sum: f64, (m, n): (usize, usize), k: usize) -> f64 {
    let mean = sum / (m as f64 * n as f64);
    if mean > 0.0 { 2.0 * (mean / k as f64).sqrt() } else { 1.0 }
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
    /// With small numbers instead of zeros, or without.
    Nndsvd { positive: bool },
    Compressed,
    Given(&'a dyn ReadRows<T>),
}

pub fn knob(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|t| t.parse().ok()).unwrap_or(default)
}

impl<'a, T> Start<'a, T> {
    /// The start that was asked for; `given` are the factors of the file, if one was named.
    pub fn new(args: &InitArgs, given: Option<&'a dyn ReadRows<T>>) -> Self {
        match (given, &args.init) {
            (Some(given), _) => Start::Given(given),
            (None, Init::Nndsvd) => Start::Nndsvd { positive: false },
            (None, Init::Nndsvda) => Start::Nndsvd { positive: true },
            (None, Init::Compressed) => Start::Compressed,
            (None, _) => Start::Random,
        }
    }
}

/// Own rows of both factors of an m × n matrix from the grid's block, which comes back. Where `positive`, zeros become
/// small instead, since multiplicative updates keep zeros. Collective.
///
/// # Errors
/// When there are no such factors, or the singular vectors cannot be computed.
pub fn on_grid<T: Real>(
    start: Start<'_, T>,
    task: &Task<'_>,
    sum: f64,
    positive: bool,
    block: Block<T>,
    rows: [&Range<usize>; 2],
) -> Result<(Block<T>, Array2<T>, Array2<T>)> {
    let (shape, k, order) = (task.shape, task.k, block.order());
    let [mut of_u, mut of_v] = rows.map(|rows| order.zeros::<T>(rows.len(), k));
    // As NNDSVDa has it.
    let small = sum / (shape.0 as f64 * shape.1 as f64) / 100.0;
    let fill = |factors: &mut [Array2<T>; 2]| {
        let zeros = factors.iter_mut().flatten().filter(|x| **x <= T::zero());
        zeros.for_each(|x| *x = T::from_f64(small));
    };
    match start {
        Start::Random => {
            let scale = scale(sum, shape, k) * knob("SCALE", 1.0);
            u(task.seed, rows[0], scale, of_u.view_mut());
            v(task.seed, rows[1], scale, of_v.view_mut());
        }
        Start::Given(given) => {
            let read = self::given(given, rows, [of_u.view_mut(), of_v.view_mut()]);
            task.comm.agree_on_error(read)?;
        }
        Start::Nndsvd { positive: everywhere } => {
            let (block, low_rank) = low_rank::approximate(task, block, knob("PASSES", 6.0) as usize)?;
            let mut factors = nndsvd::factors(task.comm, &low_rank, k, small)?.map(|x| narrow(&x, order));
            if everywhere || positive {
                fill(&mut factors);
            }
            let [of_u, of_v] = factors;
            return Ok((block, of_u, of_v));
        }
        Start::Compressed => {
            let t0 = std::time::Instant::now();
            let (block, low_rank) = low_rank::approximate(task, block, knob("PASSES", 1.0) as usize)?;
            let t1 = t0.elapsed();
            let mut factors = nndsvd::factors(task.comm, &low_rank, k, small)?.map(|x| narrow(&x, Order::Components));
            fill(&mut factors);
            let t2 = t0.elapsed();
            let mut factors =
                compressed::iterate(task.comm, low_rank, factors, task.norm2, knob("ITERS", 30.0) as usize);
            if knob("TIMES", 0.0) > 0.0 {
                eprintln!("approximate {t1:?}, nndsvd {t2:?}, compressed {:?}", t0.elapsed());
            }
            if positive {
                fill(&mut factors);
            }
            let [of_u, of_v] = factors.map(|x| {
                let mut out = order.zeros(x.nrows(), k);
                out.assign(&x);
                out
            });
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
