//! ANLS by block principal pivoting (Kim and Park 2011): each half solves its nonnegative least-squares problem exactly.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::Result;
use fednmf_linalg::Real;
use fednmf_linalg::nls::{Penalty, Pivoting};

use crate::cost::Kernel;
use crate::description::Description;
use crate::method::SweepSettings;
use crate::shared::alternating::{ExactParams, Factor, FactorUpdate, Sizes};
use crate::shared::exact_method::{ExactMethod, describe};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing::{MissingParams, UpdateKind};

fednmf_base::parameters! {
    /// Parameters of ANLS by block principal pivoting.
    pub struct Bpp {
        /// Where a factor's update starts
        pub extrapolation: Extrapolation = Extrapolation::None, "HOW";
        group exact: ExactParams;
        group missing: MissingParams;
    }
}

impl ExactMethod for Bpp {
    const METHOD: Description = describe(
        "bpp",
        &["anls-bpp", "anls"],
        "ANLS by block principal pivoting: fewest iterations, but the most expensive ones",
        "Kim, Park: Fast Nonnegative Matrix Factorization: An Active-Set-Like Method and Comparisons (2011); distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
    );
    const KERNEL: Kernel = Kernel::Pivot;

    fn exact(&self) -> &ExactParams {
        &self.exact
    }

    fn extrapolation(&self) -> Extrapolation {
        self.extrapolation
    }

    fn on_observed(&self) -> Option<(&MissingParams, UpdateKind)> {
        Some((&self.missing, UpdateKind::Bpp))
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        let (missing, exact) = (settings.missing.clone(), self.exact.for_sweep(settings));
        Some(Bpp { missing, exact, ..self.clone() })
    }

    fn step<T: Real>(&self, sizes: &Sizes) -> Box<dyn FactorUpdate<T>> {
        Box::new(Pivoting::new(sizes.k))
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
        self.solve_keeping(x, r, &g.view(), penalty);
        Ok(())
    }

    /// Rows with the same nonzeros are solved together.
    fn is_by_row(&self) -> bool {
        false
    }
}
