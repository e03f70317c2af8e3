//! Multiplicative updates (Lee and Seung 2001): U ← U ∘ (M V) ⊘ (U VᵀV), then V likewise. Monotone, cheap and slow.

use ndarray::Array2;

use super::exact;
use crate::algorithms::centralized::exact::{Factor, Step};
use crate::algorithms::options::{HOLDOUT, MISSING};
use crate::algorithms::registry::{Form, Method, Partition, Unit};
use crate::algorithms::shared::missing;
use crate::algorithms::{Algorithm, Problem};
use crate::error::Result;
use crate::linalg::{Order, Real};
use crate::nls::multiply;

pub static METHOD: Method = Method {
    name: "mu",
    aliases: &[],
    summary: "multiplicative updates: monotone, a baseline",
    paper: "Lee and Seung 2001; distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
    partition: Partition::Grid,
    unit: Unit::Update,
    forms: &[Form::Dense, Form::Sparse],
    allows_negative: false,
    options: &[exact::OPTIONS[0], exact::OPTIONS[1], exact::OPTIONS[2], MISSING.or("none"), HOLDOUT.or("0")],
    messages: exact::MESSAGES,
    build64: build,
    build32: build,
};

struct Mu<T: Real> {
    /// U VᵀV for some rows at a time.
    tile: Array2<T>,
}

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    if problem.options.missing().is_some() {
        return missing::build(problem, missing::Kind::Mu);
    }
    exact::build(problem, false, |sizes| Mu { tile: Order::Components.zeros(1024, sizes.k) })
}

impl<T: Real> Step<T> for Mu<T> {
    fn update(&mut self, _: Factor, x: &mut Array2<T>, r: &Array2<T>, g: &Array2<T>) -> Result<()> {
        multiply(&mut x.view_mut(), &r.view(), &g.view(), &mut self.tile);
        Ok(())
    }

    fn keeps_zeros(&self) -> bool {
        true
    }
}
