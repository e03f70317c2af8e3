//! Multiplicative updates (Lee and Seung 2001): U ← U ∘ (M V) ⊘ (U VᵀV), then V likewise. An update never increases the
//! error and is cheap, but convergence is slow.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::Result;
use fednmf_linalg::nls::{Penalty, multiply};
use fednmf_linalg::{Order, Real};

use crate::cost::Kernel;
use crate::description::Description;
use crate::method::SweepSettings;
use crate::shared::alternating::{ExactParams, Factor, FactorUpdate, Sizes};
use crate::shared::exact_method::{ExactMethod, describe};
use crate::shared::missing::{MissingParams, UpdateKind};

fednmf_base::parameters! {
    /// Parameters of multiplicative updates.
    pub struct Mu {
        group exact: ExactParams;
        group missing: MissingParams;
    }
}

impl ExactMethod for Mu {
    const METHOD: Description = Description {
        keeps_zeros: true,
        ..describe(
            "mu",
            &[],
            "multiplicative updates: monotone, a baseline",
            "Lee, Seung: Algorithms for Non-negative Matrix Factorization (2001); distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
        )
    };
    const KERNEL: Kernel = Kernel::Multiply;

    fn exact(&self) -> &ExactParams {
        &self.exact
    }

    fn on_observed(&self) -> Option<(&MissingParams, UpdateKind)> {
        Some((&self.missing, UpdateKind::Mu))
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        let (missing, exact) = (settings.missing.clone(), self.exact.for_sweep(settings));
        Some(Mu { missing, exact })
    }

    fn step<T: Real>(&self, sizes: &Sizes) -> Box<dyn FactorUpdate<T>> {
        Box::new(MuStep { tile: Order::ColumnMajor.zeros(1024, sizes.k) })
    }
}

struct MuStep<T: Real> {
    /// U VᵀV for a tile of rows.
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
