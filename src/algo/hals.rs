//! HALS (Cichocki and Phan 2009): the exact rival of DSANLS, and its limit for a full sketch.
//!
//! One iteration: U's components in turn, each the exact minimiser with all others fixed, then V's:
//! U_:j ← max(0, U_:j + ((M V)_:j − U (VᵀV)_:j) / (VᵀV)_jj).

use ndarray::Array2;

use super::exact::{self, Step};
use super::registry::{Form, Method, Partition, Unit};
use super::{Algorithm, Problem};
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
    options: exact::OPTIONS,
    wire: exact::WIRE,
    build64: build,
    build32: build,
};

struct Hals;

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    exact::build(problem, |_| Hals)
}

impl<T: Real> Step<T> for Hals {
    fn update(&mut self, x: &mut Array2<T>, r: &mut Array2<T>, g: &Array2<T>) -> Result<()> {
        sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: T::zero(), passes: 1 });
        Ok(())
    }
}
