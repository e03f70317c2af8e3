//! A method with its parameters and the settings of a run.

use std::sync::Arc;

use ndarray::ArrayView2;

use fednmf_base::error::{Error, Result};
use fednmf_driver::FactorScale;
use fednmf_linalg::ProductKernel;
use fednmf_methods::Measures;
use fednmf_methods::method::{ConfiguredMethod, Method};

use super::fit::Fit;
use super::options::option_setters;
use super::run::run;
use super::{MatrixView, Options, Real};

/// A method, its parameters M and the [`Options`] of a run: the type of [`Hals`](super::Hals) and the other methods.
///
/// Setters return the changed estimator; [`fit`](Estimator::fit) may be called several times, and the same settings give
/// the same factors.
///
/// ```
/// use fednmf::Estimator;
/// use fednmf::prelude::*;
///
/// /// Any method of one matrix.
/// fn error<M: fednmf::OneMatrix>(method: &Estimator<M>, x: &ndarray::Array2<f64>) -> Result<f64, fednmf::Error> {
///     Ok(method.fit(x)?.relative_error())
/// }
/// let x = ndarray::Array2::from_shape_fn((30, 20), |(i, j)| (1 + (i * j) % 7) as f64);
/// assert!(error(&Hals::new(4), &x)? < error(&Mu::new(4), &x)?);
///
/// // From a start, and with a look at each evaluation.
/// let begun = Hals::new(4).max_iters(10).fit(&x)?;
/// let fit = Hals::new(4).max_iters(10).fit_from(&x, &begun.u().view(), &begun.v().view())?;
/// assert!(fit.relative_error() < begun.relative_error());
/// let mut calls = 0;
/// Hals::new(4).fit_observed(&x, |_, _| {
///     calls += 1;
///     true
/// })?;
/// assert!(calls > 0);
/// # Ok::<(), fednmf::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Estimator<M> {
    pub(super) method: M,
    pub(super) options: Options,
}

/// A method that takes one matrix.
pub trait OneMatrix: Method {}

/// A method whose parties each have a block of rows, or of columns, of the matrix.
pub trait Parties: Method {}

impl<M: Method> Estimator<M> {
    /// The method with its defaults, for k = `components`.
    #[must_use]
    pub fn new(components: usize) -> Self {
        Estimator::with(Options::new(components))
    }

    /// The method with its default parameters.
    #[must_use]
    pub fn with(options: Options) -> Self {
        Estimator { method: M::default(), options }
    }

    option_setters! {
        /// Seed of all public randomness.
        seed: u64;
        /// Largest number of iterations.
        max_iters: usize => Some;
        /// Stop when the method's measure falls by less than this share of its first value, a divergence or an objective of its
    /// last value, between two evaluations.
        tol: f64 => Some;
        /// Stop at this relative error.
        target_error: f64 => Some;
        /// Stop after this many seconds in the iterations.
        time_limit: f64 => Some;
        /// Iterations between two evaluations; 0: never.
        eval_every: usize;
        /// Threads of the products with the data.
        threads: usize;
        /// Kernels of the products with the data; `None`: by processor and data.
        kernel: Option<ProductKernel>;
        /// Iterate on `f64` data in `f32` first.
        mixed_precision: bool;
        /// Order and scale of the components.
        scale: FactorScale => Some;
    }

    /// The method's parameters, for a change of any of them.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut M)) -> Self {
        change(&mut self.method);
        self
    }

    pub(super) fn configured(&self) -> Arc<dyn ConfiguredMethod> {
        Arc::new(self.method.clone())
    }
}

impl<M: OneMatrix> Estimator<M> {
    /// Factorises a matrix: an `ndarray` view, a `sprs` view (CSR or CSC), or a [`Matrix`](super::Matrix) from a file.
    /// Its entries must be finite and nonnegative, unless the method accepts others.
    ///
    /// # Errors
    /// If a parameter or an entry is refused, naming it, or an iterate is not finite.
    pub fn fit<'a, T: Real>(&self, matrix: impl Into<MatrixView<'a, T>>) -> Result<Fit<T>> {
        run(self.configured(), vec![matrix.into()], &self.options, None, None)
    }

    /// As [`Estimator::fit`], from U (m × k) and V (n × k) in place of a computed start.
    ///
    /// # Errors
    /// As [`Estimator::fit`], and if the method takes no start, or the start has another shape.
    pub fn fit_from<'a, T: Real>(
        &self,
        matrix: impl Into<MatrixView<'a, T>>,
        u: &ArrayView2<'_, T>,
        v: &ArrayView2<'_, T>,
    ) -> Result<Fit<T>> {
        let method = self.configured();
        if method.groups().init.is_none() {
            return Err(Error::input(format!("{} takes no start", method.description().name)));
        }
        run(method, vec![matrix.into()], &self.options, Some((*u, *v)), None)
    }

    /// As [`Estimator::fit`]; `observe` is called about four times a second with the number of iterations and the last
    /// measures, and ends the run with `false`.
    ///
    /// # Errors
    /// As [`Estimator::fit`].
    pub fn fit_observed<'a, T: Real>(
        &self,
        matrix: impl Into<MatrixView<'a, T>>,
        observe: impl FnMut(usize, &Measures) -> bool,
    ) -> Result<Fit<T>> {
        run(self.configured(), vec![matrix.into()], &self.options, None, Some(Box::new(observe)))
    }
}
