//! HALS (Cichocki and Phan 2009): the exact counterpart of DSANLS, and its limit for full sketches.
//!
//! One iteration minimises exactly over each component of U in turn, with all others fixed, then over those of V: U_:j ←
//! max(0, U_:j + ((M V)_:j − U (VᵀV)_:j) / (VᵀV)_jj). Penalties change VᵀV to VᵀV + λ₂I and M V to M V − λ₁.
//!
//! Several such sweeps can share a product with the data (accelerated HALS, Gillis and Glineur 2012: `--inner-sweeps`). A
//! factor's update may be based on the extrapolated point (Ang and Gillis 2019: `--extrapolation`).

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use fednmf_base::error::Result;
use fednmf_linalg::Real;
use fednmf_linalg::nls::{Penalty, Sweep, sweep};

use crate::cost::Kernel;
use crate::decision::Decision;
use crate::description::Description;
use crate::method::SweepSettings;
use crate::parameters::{Auto, auto, count};
use crate::shared::alternating::{ExactParams, Factor, FactorUpdate, Sizes};
use crate::shared::exact_method::{ExactMethod, describe};
use crate::shared::extrapolation::Extrapolation;
use crate::shared::missing::{MissingParams, UpdateKind};

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

impl ExactMethod for Hals {
    const METHOD: Description = describe(
        "hals",
        &[],
        "hierarchical alternating least squares: exact coordinate descent",
        "Cichocki, Phan: Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor Factorizations (2009); distributed as MPI-FAUN (Kannan, Ballard, Park 2018)",
    );
    const KERNEL: Kernel = Kernel::Sweep;

    fn exact(&self) -> &ExactParams {
        &self.exact
    }

    fn extrapolation(&self) -> Extrapolation {
        self.extrapolation
    }

    /// The requested number of sweeps, or else as many as pay off.
    fn passes(&self, sizes: &Sizes) -> [usize; 2] {
        self.inner_sweeps.given().map_or_else(|| sizes.sweeps(), |n| [n; 2])
    }

    fn on_observed(&self) -> Option<(&MissingParams, UpdateKind)> {
        // Further sweeps on a row that is in memory need no product; their number is the requested one, or else one.
        Some((&self.missing, UpdateKind::Hals { passes: self.inner_sweeps.given().unwrap_or(1) }))
    }

    /// On observed entries sweeps are cheap, because a row and its operands are in cache.
    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        let (missing, exact) = (settings.missing.clone(), self.exact.for_sweep(settings));
        Some(Hals { inner_sweeps: Auto::Given(2), missing, exact, ..self.clone() })
    }

    fn step<T: Real>(&self, sizes: &Sizes) -> Box<dyn FactorUpdate<T>> {
        Box::new(HalsStep { passes: self.passes(sizes) })
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

    fn decisions(&self) -> Vec<Decision> {
        vec![Decision::InnerSweeps(self.passes)]
    }
}
