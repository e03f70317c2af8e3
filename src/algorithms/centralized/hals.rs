//! HALS (Cichocki and Phan 2009): the exact rival of DSANLS, and its limit for a full sketch.
//!
//! One iteration: U's components in turn, each the exact minimiser with all others fixed, then V's:
//! U_:j ← max(0, U_:j + ((M V)_:j − U (VᵀV)_:j) / (VᵀV)_jj).
//!
//! A product with the data serves for several such sweeps (accelerated HALS, Gillis and Glineur 2012: `--inner-sweeps`), and
//! a factor's update may start beyond its last one (Ang and Gillis 2019: `--extrapolation`).

use ndarray::Array2;

use super::exact;
use crate::algorithms::centralized::exact::{Factor, Sizes, Step};
use crate::algorithms::options::{EXTRAPOLATION, HOLDOUT, INNER_SWEEPS, MISSING, Options, Taken};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::shared::missing;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;
use crate::nls::{Sweep, sweep};

pub static METHOD: Method = Method {
    name: "hals",
    aliases: &[],
    summary: "hierarchical alternating least squares: exact coordinate descent on the whole matrix",
    paper: "Cichocki and Phan 2009; distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
    partition: Partition::Grid,
    unit: Unit::Update,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &OPTIONS,
    messages: exact::MESSAGES,
    build64: build,
    build32: build,
};

const OPTIONS: [Taken; 7] = [
    INNER_SWEEPS.or("1"),
    EXTRAPOLATION.or("none"),
    exact::OPTIONS[0],
    exact::OPTIONS[1],
    exact::OPTIONS[2],
    MISSING.or("none"),
    HOLDOUT.or("0"),
];

/// Sweeps of U and of V for each product.
struct Hals {
    passes: [usize; 2],
}

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let extrapolate = problem.options.word(&EXTRAPOLATION) == "restart";
    let options = problem.options;
    if options.missing().is_some() {
        // Sweeps on a row that is at hand cost no product; their number is as typed, else one.
        let passes = options.count_or_auto(&INNER_SWEEPS).unwrap_or(1);
        return missing::build(problem, missing::Kind::Hals { passes });
    }
    exact::build(problem, extrapolate, |sizes| Hals { passes: sweeps(options, sizes) })
}

/// Sweeps of U and of V: as typed, or those that pay.
pub fn sweeps(options: &Options, sizes: &Sizes) -> [usize; 2] {
    options.count_or_auto(&INNER_SWEEPS).map_or_else(|| passes(sizes), |n| [n; 2])
}

/// Sweeps of U and of V that pay for one product: they take up to a quarter of its flops. With a product that costs no
/// more than a few sweeps the first one does most, and beyond eight nothing was gained on any data tried.
fn passes(sizes: &Sizes) -> [usize; 2] {
    const SHARE: f64 = 0.25;
    const MOST: f64 = 8.0;
    let Sizes { m, n, entries, k } = *sizes;
    [m, n].map(|rows| {
        let ratio = entries / (rows as f64 * k as f64);
        (1.0 + SHARE * ratio).clamp(1.0, MOST) as usize
    })
}

impl<T: Real> Step<T> for Hals {
    fn update(&mut self, factor: Factor, x: &mut Array2<T>, r: &Array2<T>, g: &Array2<T>) -> Result<()> {
        let passes = self.passes[if factor == Factor::U { 0 } else { 1 }];
        sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: T::zero(), passes });
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("inner_sweeps", serde_json::json!(self.passes))]
    }
}
