//! ANLS by block principal pivoting (Kim and Park 2011): each half solves its nonnegative least squares exactly.

use ndarray::Array2;

use super::exact;
use crate::algorithms::centralized::exact::{Factor, Step};
use crate::algorithms::options::EXTRAPOLATION;
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::Real;
use crate::nls::Pivoting;

pub static METHOD: Method = Method {
    name: "bpp",
    aliases: &["anls-bpp", "anls"],
    summary: "ANLS by block principal pivoting: every subproblem solved exactly; fewest iterations, each the dearest",
    paper: "Kim and Park 2011; distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
    partition: Partition::Grid,
    unit: Unit::Update,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &[EXTRAPOLATION.or("none"), exact::OPTIONS[0], exact::OPTIONS[1], exact::OPTIONS[2]],
    messages: exact::MESSAGES,
    build64: build,
    build32: build,
};

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let extrapolate = problem.options.word(&EXTRAPOLATION) == "restart";
    exact::build(problem, extrapolate, |sizes| Pivoting::new(sizes.k))
}

impl<T: Real> Step<T> for Pivoting {
    fn update(&mut self, _: Factor, x: &mut Array2<T>, r: &Array2<T>, g: &Array2<T>) -> Result<()> {
        self.solve(&mut x.view_mut(), &r.view(), &g.view());
        Ok(())
    }
}
