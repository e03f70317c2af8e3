//! ANLS by block principal pivoting (Kim and Park 2011): each half solves its nonnegative least squares exactly.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::Result;
use fednmf_linalg::Real;
use fednmf_linalg::nls::{Penalty, Pivoting};

use crate::cost::{Cost, Kernel, Workload};
use crate::description::{Description, Form, NO_PARTIES, Partition, Unit};
use crate::method::Method;
use crate::metrics::Measure;
use crate::shared::alternating;
use crate::shared::alternating::{ExactParams, Factor, FactorUpdate};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing;
use crate::shared::missing::{MissingParams, UpdateKind};
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of ANLS by block principal pivoting.
    pub struct Bpp {
        /// Where a factor's update starts
        pub extrapolation: Extrapolation = Extrapolation::None, "HOW";
        group exact: ExactParams;
        group missing: MissingParams;
    }
}

impl Method for Bpp {
    const DESCRIPTION: &'static Description = &Description {
        name: "bpp",
        aliases: &["anls-bpp", "anls"],
        summary: "ANLS by block principal pivoting: every subproblem solved exactly; fewest iterations, but the most \
                  expensive ones",
        paper: "Kim and Park 2011; distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
        partition: Partition::Grid,
        unit: Unit::Update,
        forms: &[Form::Dense, Form::Sparse],
        allows_negative: false,
        measure: Measure::RelativeError,
        dp: NO_PARTIES,
        limits: None,
        messages: alternating::MESSAGES,
    };

    fn check(&self) -> Result<()> {
        self.exact.check_missing(&self.missing, self.extrapolation)
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let mut cost = self.exact.cost(self.extrapolation, (Kernel::Pivot, [1, 1]), workload, ranks);
        if self.missing.any() {
            // The start is random.
            cost.start = 0.0;
        }
        Ok(Some(cost))
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        let cost = || self.exact.streamed_cost(self.extrapolation, (Kernel::Pivot, [1, 1]), workload, ranks);
        (!self.missing.any()).then(cost)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        if self.missing.any() {
            return missing::build(problem, &self.missing, &self.exact.regularization, UpdateKind::Bpp);
        }
        alternating::build(problem, &self.exact, self.extrapolation, |sizes| Pivoting::new(sizes.k))
    }
}

impl<T: Real> FactorUpdate<T> for Pivoting {
    fn update(
        &mut self,
        _: Factor,
        x: &mut ArrayViewMut2<'_, T>,
        r: &ArrayView2<'_, T>,
        g: &Array2<T>,
        penalty: Penalty,
    ) -> Result<()> {
        self.solve_penalized(x, r, &g.view(), penalty);
        Ok(())
    }
}
