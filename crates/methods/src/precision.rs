//! The precisions in which methods compute.

use fednmf_base::error::SharedResult;
use fednmf_linalg::Real;

use super::method::ConfiguredMethod;
use super::{Algorithm, Problem, mixed_precision};

/// A precision for which methods can be built.
pub trait Precision: Real {
    /// Builds the method in this precision.
    ///
    /// # Errors
    /// As [`Method::build`].
    fn build(method: &dyn ConfiguredMethod, problem: Problem<'_, Self>) -> SharedResult<Box<dyn Algorithm<Self>>>;

    /// Builds the method so that its first iterations run in f32.
    ///
    /// # Errors
    /// As [`Method::build`].
    fn build_mixed(method: &dyn ConfiguredMethod, problem: Problem<'_, Self>)
    -> SharedResult<Box<dyn Algorithm<Self>>>;
}

impl Precision for f64 {
    fn build(method: &dyn ConfiguredMethod, problem: Problem<'_, f64>) -> SharedResult<Box<dyn Algorithm<f64>>> {
        method.build_f64(problem)
    }

    fn build_mixed(method: &dyn ConfiguredMethod, problem: Problem<'_, f64>) -> SharedResult<Box<dyn Algorithm<f64>>> {
        mixed_precision::build(method, problem)
    }
}

impl Precision for f32 {
    fn build(method: &dyn ConfiguredMethod, problem: Problem<'_, f32>) -> SharedResult<Box<dyn Algorithm<f32>>> {
        method.build_f32(problem)
    }

    fn build_mixed(method: &dyn ConfiguredMethod, problem: Problem<'_, f32>) -> SharedResult<Box<dyn Algorithm<f32>>> {
        method.build_f32(problem)
    }
}
