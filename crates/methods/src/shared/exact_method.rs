//! Exact methods: both factors are updated in turn from the Gram matrix of the other one and the product with the data, row
//! by row. A method is its parameters ([`ExactMethod`]) and its step ([`FactorUpdate`]); grid, sparse exchange, start,
//! penalties, extrapolation, streaming, evaluation, checkpoints and costs are [`super::alternating`]'s.
//!
//! To add one, write `distributed/NAME.rs`, with its `pub mod` line in `distributed/mod.rs` and its line in
//! [`crate::registry::ALL`]:
//!
//! ```
//! use ndarray::{Array2, ArrayView2, ArrayViewMut2};
//!
//! use fednmf_base::error::Result;
//! use fednmf_linalg::Real;
//! use fednmf_linalg::nls::Penalty;
//! use fednmf_methods::cost::Kernel;
//! use fednmf_methods::description::Description;
//! use fednmf_methods::shared::alternating::{ExactParams, Factor, FactorUpdate, Sizes};
//! use fednmf_methods::shared::exact_method::{ExactMethod, describe};
//!
//! fednmf_base::parameters! {
//!     /// Parameters of Landweber's method. Further fields are its own options.
//!     pub struct Landweber {
//!         group exact: ExactParams;
//!     }
//! }
//!
//! impl ExactMethod for Landweber {
//!     const METHOD: Description = describe("landweber", &[], "projected gradient with the step 1/trace", "Landweber 1951");
//!     /// The measured kernel whose time per flop the step has; flops are 2 k² for each row and pass.
//!     const KERNEL: Kernel = Kernel::Sweep;
//!
//!     fn exact(&self) -> &ExactParams {
//!         &self.exact
//!     }
//!
//!     fn step<T: Real>(&self, _: &Sizes) -> Box<dyn FactorUpdate<T>> {
//!         Box::new(LandweberStep)
//!     }
//! }
//!
//! /// Memory that the step needs, allocated once.
//! struct LandweberStep;
//!
//! impl<T: Real> FactorUpdate<T> for LandweberStep {
//!     fn update(
//!         &mut self,
//!         _: Factor,
//!         x: &mut ArrayViewMut2<'_, T>,
//!         r: &ArrayView2<'_, T>,
//!         g: &Array2<T>,
//!         penalty: Penalty,
//!     ) -> Result<()> {
//!         let (l1, l2) = penalty.weights::<T>();
//!         let trace = g.diag().sum() + l2;
//!         for (mut x, r) in x.rows_mut().into_iter().zip(r.rows()) {
//!             for l in 0..g.nrows() {
//!                 let gradient = g.row(l).dot(&x) - r[l] + l1 + l2 * x[l];
//!                 x[l] = (x[l] - gradient / trace).max(T::zero());
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//! ```
//!
//! Optional are [`ExactMethod::passes`], [`ExactMethod::extrapolation`], [`ExactMethod::on_observed`], without which a method
//! has no `--missing` and `--holdout`, and [`ExactMethod::for_sweep`], without which `sweep` does not offer it.

use std::fmt;

use fednmf_base::error::{Result, SharedResult};
use fednmf_linalg::Real;

use super::alternating::{self, ExactParams, FactorUpdate, Sizes};
use super::extrapolation::Extrapolation;
use super::missing::{self, MissingParams, UpdateKind};
use crate::cost::{Cost, Kernel, Workload};
use crate::description::{Description, Partition};
use crate::method::{Method, SweepSettings};
use crate::parameters::Parameters;
use crate::{Algorithm, Problem};

/// The parameters of an exact method, and everything in which exact methods differ.
pub trait ExactMethod: Parameters + Default + Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// See [`describe`].
    const METHOD: Description;

    /// The kernel whose measured rate gives the time of the step.
    const KERNEL: Kernel;

    fn exact(&self) -> &ExactParams;

    /// The step on the rows of a factor.
    fn step<T: Real>(&self, sizes: &Sizes) -> Box<dyn FactorUpdate<T>>;

    /// See [`Method::for_sweep`].
    fn for_sweep(&self, _settings: &SweepSettings) -> Option<Self> {
        None
    }

    /// Passes of the step over U and over V for each product with the data.
    fn passes(&self, _sizes: &Sizes) -> [usize; 2] {
        [1, 1]
    }

    fn extrapolation(&self) -> Extrapolation {
        Extrapolation::None
    }

    /// Which entries are excluded, and the step on the observed ones; `None` if the method has no such options.
    fn on_observed(&self) -> Option<(&MissingParams, UpdateKind)> {
        None
    }
}

/// The declaration of an exact method; all other fields are common to them.
pub const fn describe(
    name: &'static str,
    aliases: &'static [&'static str],
    summary: &'static str,
    paper: &'static str,
) -> Description {
    let partition = Partition::Grid;
    Description { name, aliases, summary, paper, partition, messages: alternating::MESSAGES, ..Description::USUAL }
}

/// The step on the observed entries; `None` if no entries are excluded.
fn on_observed<M: ExactMethod>(method: &M) -> Option<(&MissingParams, UpdateKind)> {
    method.on_observed().filter(|(missing, _)| missing.any())
}

/// The update's kernel, and its passes over U and V.
fn update<M: ExactMethod>(method: &M, workload: &Workload) -> (Kernel, [usize; 2]) {
    let Workload { m, n, k, stored, .. } = *workload;
    (M::KERNEL, method.passes(&Sizes { m, n, entries: stored, k }))
}

impl<M: ExactMethod> Method for M {
    const DESCRIPTION: &'static Description = &M::METHOD;

    fn check(&self) -> Result<()> {
        match self.on_observed() {
            Some((missing, _)) => self.exact().check_missing(missing, self.extrapolation()),
            None => Ok(()),
        }
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Self> {
        ExactMethod::for_sweep(self, settings)
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        let mut cost = self.exact().cost(self.extrapolation(), update(self, workload), workload, ranks);
        if on_observed(self).is_some() {
            // The start is random.
            cost.start = 0.0;
        }
        Ok(Some(cost))
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        let cost = || self.exact().streamed_cost(self.extrapolation(), update(self, workload), workload, ranks);
        on_observed(self).is_none().then(cost)
    }

    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>> {
        if let Some((missing, kind)) = on_observed(self) {
            return missing::build(problem, missing, &self.exact().regularization, kind);
        }
        alternating::build(problem, self.exact(), self.extrapolation(), |sizes| self.step(sizes))
    }
}
