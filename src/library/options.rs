//! Settings of a run that do not depend on the method.

use fednmf_base::error::{Error, Result};
use fednmf_driver::{FactorScale, Limits};
use fednmf_linalg::{ProductKernel, ProductKernels};
use fednmf_methods::description::{DefaultStop, Description};

/// Settings of a run that do not depend on the method; the defaults are those of the program.
///
/// The builders of methods have a setter for each of these fields, so most programs do not need the type.
///
/// ```
/// use fednmf::prelude::*;
///
/// let options = Options { seed: 7, max_iters: Some(50), ..Options::new(3) };
/// let x = ndarray::Array2::from_shape_fn((20, 10), |(i, j)| (1 + i * j % 7) as f64);
/// assert_eq!(Hals::with(options).fit(&x)?.iterations(), 50);
/// # Ok::<(), fednmf::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Number of components k, at least 1.
    pub components: usize,
    /// Seed of all public randomness: start, sketches. The same seed gives the same factors, bit by bit, for any number
    /// of threads.
    pub seed: u64,
    /// Largest number of iterations. `None`: 100; [`Automatic`](super::Automatic) stops once it has converged, or after 1000.
    pub max_iters: Option<usize>,
    /// Stop when the method's measure (with penalties the objective) falls between two evaluations by less than this share: of
    /// its first value, or of the last value of a divergence or an objective.
    pub tol: Option<f64>,
    /// Stop at this relative error.
    pub target_error: Option<f64>,
    /// Stop after this many seconds in the iterations.
    pub time_limit: Option<f64>,
    /// Iterations between two evaluations; 0: never.
    pub eval_every: usize,
    /// Threads of the products with the data.
    pub threads: usize,
    /// Kernels of the products with the data: [`ProductKernel::Native`] or [`ProductKernel::mkl`], whose sums round
    /// differently. `None`: by processor, form of the data and number of components, as `--kernel auto` of the program.
    pub kernel: Option<ProductKernel>,
    /// Iterate on `f64` data in `f32` for as long as that lowers the error, then in `f64`.
    pub mixed_precision: bool,
    /// Order and scale of the components of the factors. `None`: by weight, with columns of V of norm 1; with penalties,
    /// which determine the scale, by weight; as the iterations left them for methods with parties.
    pub scale: Option<FactorScale>,
}

impl Options {
    /// The defaults, with k = `components`.
    pub fn new(components: usize) -> Self {
        Options {
            components,
            seed: 0,
            max_iters: None,
            tol: None,
            target_error: None,
            time_limit: None,
            eval_every: 10,
            threads: 1,
            kernel: Some(ProductKernel::Native),
            mixed_precision: false,
            scale: None,
        }
    }

    /// Refuses values out of range.
    pub(super) fn check(&self) -> Result<()> {
        if self.components == 0 {
            return Err(Error::input("0 components: must be at least 1"));
        }
        if self.threads == 0 {
            return Err(Error::input("0 threads: must be at least 1"));
        }
        self.limits(Description::USUAL.stop).check()
    }

    pub(super) fn limits(&self, stop: DefaultStop) -> Limits {
        let &Options { max_iters, tol, target_error, time_limit, eval_every, .. } = self;
        let (max_iters, tol) = stop.resolve(max_iters, tol, eval_every > 0);
        Limits { max_iters, tol, target_error, time_limit, eval_every }
    }

    pub(super) fn kernels(&self, sparse: bool) -> ProductKernels {
        self.kernel.unwrap_or_else(|| fednmf_driver::kernels::of_processor(sparse, self.components)).into()
    }
}

/// The setters of [`Options`] for a type with a field `options`.
macro_rules! option_setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty $(=> $wrap:path)?;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.options.$name = $crate::library::options::option_setters!(@value $name $($wrap)?);
                self
            }
        )*
    };
    (@value $name:ident) => { $name };
    (@value $name:ident $wrap:path) => { $wrap($name) };
}
pub(super) use option_setters;
