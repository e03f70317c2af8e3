//! Multiplicative updates (Lee and Seung 2001): U ← U ∘ (M V) ⊘ (U VᵀV), then V likewise. Monotone, cheap and slow.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::Result;
use fednmf_linalg::nls::{Penalty, multiply};
use fednmf_linalg::{Order, Real};

use crate::cost::{Cost, Kernel, Workload};
use crate::description::{Description, Form, NO_PARTIES, Partition, Unit};
use crate::method::Method;
use crate::metrics::Measure;
use crate::shared::alternating;
use crate::shared::alternating::{ExactParams, Factor, FactorUpdate};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing;
use crate::shared::missing::MissingParams;
use crate::{Algorithm, Problem};

fednmf_base::parameters! {
    /// Parameters of multiplicative updates.
    pub struct Mu {
        group exact: ExactParams;
        group missing: MissingParams;
    }
}

impl Method for Mu {
    const DESCRIPTION: &'static Description = &Description {
        name: "mu",
        aliases: &[],
        summary: "multiplicative updates: monotone, a baseline",
        paper: "Lee and Seung 2001; distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
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
        self.exact.check_missing(&self.missing, Extrapolation::None)
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let mut cost = self.exact.cost(Extrapolation::None, (Kernel::Multiply, [1, 1]), workload, ranks);
        if self.missing.any() {
            // The start is random.
            cost.start = 0.0;
        }
        Ok(Some(cost))
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        let update = (Kernel::Multiply, [1, 1]);
        (!self.missing.any()).then(|| self.exact.streamed_cost(Extrapolation::None, update, workload, ranks))
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
        if self.missing.any() {
            return missing::build(problem, &self.missing, &self.exact.regularization, missing::UpdateKind::Mu);
        }
        let step = |sizes: &alternating::Sizes| MuStep { tile: Order::ColumnMajor.zeros(1024, sizes.k) };
        alternating::build(problem, &self.exact, Extrapolation::None, step)
    }
}

struct MuStep<T: Real> {
    /// U VᵀV for some rows at a time.
    tile: Array2<T>,
}

impl<T: Real> FactorUpdate<T> for MuStep<T> {
    fn update(
        &mut self,
        _: Factor,
        x: &mut ArrayViewMut2<'_, T>,
        r: &ArrayView2<'_, T>,
        g: &Array2<T>,
        penalty: Penalty,
    ) -> Result<()> {
        multiply(x, r, &g.view(), penalty, &mut self.tile);
        Ok(())
    }

    fn preserves_zeros(&self) -> bool {
        true
    }
}
