//! HALS (Cichocki and Phan 2009): the exact counterpart of DSANLS, and its limit for a full sketch.
//!
//! One iteration: U's components in turn, each the exact minimiser with all others fixed, then V's:
//! U_:j ← max(0, U_:j + ((M V)_:j − U (VᵀV)_:j) / (VᵀV)_jj), with penalties for VᵀV + λ₂I and M V − λ₁.
//!
//! A product with the data serves for several such sweeps (accelerated HALS, Gillis and Glineur 2012: `--inner-sweeps`), and
//! a factor's update may start beyond its last one (Ang and Gillis 2019: `--extrapolation`).

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::Result;
use fednmf_linalg::Real;
use fednmf_linalg::nls::{Penalty, Sweep, sweep};

use crate::cost::{Cost, Kernel, Workload};
use crate::description::{Description, Form, NO_PARTIES, Partition, Unit};
use crate::method::Method;
use crate::metrics::Measure;
use crate::parameters::{Auto, auto, count};
use crate::shared::alternating;
use crate::shared::alternating::{ExactParams, Factor, FactorUpdate, Sizes};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing;
use crate::shared::missing::MissingParams;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of HALS.
    pub struct Hals {
        /// Sweeps of a factor for each product with the data. auto: several where a product costs more than a sweep, by their
        /// flops (accelerated HALS)
        pub inner_sweeps: Auto<usize> = Auto::Given(1), "N", auto(count(1));
        /// Where a factor's update starts
        pub extrapolation: Extrapolation = Extrapolation::None, "HOW";
        group exact: ExactParams;
        group missing: MissingParams;
    }
}

impl Method for Hals {
    const DESCRIPTION: &'static Description = &Description {
        name: "hals",
        aliases: &[],
        summary: "hierarchical alternating least squares: exact coordinate descent on the whole matrix",
        paper: "Cichocki and Phan 2009; distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
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
        let Workload { m, n, k, stored, .. } = *workload;
        let update = (Kernel::Sweep, self.sweeps(&Sizes { m, n, entries: stored, k }));
        let mut cost = self.exact.cost(self.extrapolation, update, workload, ranks);
        if self.missing.any() {
            // The start is random.
            cost.start = 0.0;
        }
        Ok(Some(cost))
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        let Workload { m, n, k, stored, .. } = *workload;
        let update = (Kernel::Sweep, self.sweeps(&Sizes { m, n, entries: stored, k }));
        (!self.missing.any()).then(|| self.exact.streamed_cost(self.extrapolation, update, workload, ranks))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        if self.missing.any() {
            // Sweeps on a row that is at hand cost no product; their number is as given, else one.
            let passes = self.inner_sweeps.given().unwrap_or(1);
            return missing::build(
                problem,
                &self.missing,
                &self.exact.regularization,
                missing::UpdateKind::Hals { passes },
            );
        }
        alternating::build(problem, &self.exact, self.extrapolation, |sizes| HalsStep { passes: self.sweeps(sizes) })
    }
}

impl Hals {
    /// Sweeps of U and of V: as given, or those that pay.
    pub fn sweeps(&self, sizes: &Sizes) -> [usize; 2] {
        self.inner_sweeps.given().map_or_else(|| sizes.sweeps(), |n| [n; 2])
    }
}

/// Sweeps of U and of V for each product.
struct HalsStep {
    passes: [usize; 2],
}

impl<T: Real> FactorUpdate<T> for HalsStep {
    fn update(
        &mut self,
        factor: Factor,
        x: &mut ArrayViewMut2<'_, T>,
        r: &ArrayView2<'_, T>,
        g: &Array2<T>,
        penalty: Penalty,
    ) -> Result<()> {
        let passes = self.passes[if factor == Factor::U { 0 } else { 1 }];
        sweep(x, r, &g.view(), Sweep { mu: T::zero(), passes, penalty });
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("inner_sweeps", serde_json::json!(self.passes))]
    }
}
