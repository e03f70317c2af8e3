//! A method: the type of its parameters ([`Method`]), and its type-erased forms ([`Entry`], [`ConfiguredMethod`]),
//! for code that treats all methods alike.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::Real;

use super::cost::{Cost, Workload};
use super::description::Description;
use super::parameters;
use super::parameters::{Missing, Parameter, Parameters, Parsed};
use super::shared::dp::DpParams;
use super::shared::grid::GridParams;
use super::shared::init::InitParams;
use super::shared::missing::{MissingParams, PartyMissing, PartyMissingParams};
use super::shared::regularization::RegularizationParams;
use super::shared::secure_sum::{SecureSumParams, ThresholdParams};
use super::shared::sketched_step::StepParams;
use super::{Algorithm, Problem};
use crate::metrics::Measure;

/// The parameter groups that other parts of the program handle; `None` if a method does not have the group.
#[derive(Debug, Clone, Copy, Default)]
pub struct Groups<'a> {
    pub grid: Option<&'a GridParams>,
    pub init: Option<&'a InitParams>,
    pub missing: Option<&'a MissingParams>,
    pub party_missing: Option<&'a PartyMissingParams>,
    pub regularization: Option<&'a RegularizationParams>,
    pub secure_sum: Option<&'a SecureSumParams>,
    pub threshold: Option<&'a ThresholdParams>,
    pub dp: Option<&'a DpParams>,
    pub step: Option<&'a StepParams>,
    /// Whether parties take their turns in real time.
    pub real_time: bool,
    /// Where the order of merges is to be written.
    pub record_order: Option<&'a Path>,
    /// The order of merges to replay.
    pub replay: Option<&'a Path>,
}

impl Groups<'_> {
    /// Whether a factor has a penalty.
    pub fn is_regularized(&self) -> bool {
        self.regularization.is_some_and(RegularizationParams::is_on)
    }

    /// Whether the method supports missing entries.
    pub fn supports_missing(&self) -> bool {
        self.missing.is_some() || self.party_missing.is_some()
    }

    /// Whether NaN in the data marks missing entries.
    pub fn accepts_nan(&self) -> bool {
        self.missing.is_some_and(|group| group.missing == Missing::Nan)
            || self.party_missing.is_some_and(|group| group.missing == PartyMissing::Nan)
    }

    /// The measure that progress, summary and `--tol` go by: the error on held-out entries if there are any, the objective
    /// with penalties, otherwise that of the method.
    pub fn measure(&self, method: &Description) -> Measure {
        let held_out = |group: &MissingParams| group.holdout > 0.0 || group.missing.marks().is_some();
        if self.missing.is_some_and(held_out) {
            Measure::HeldoutRmse
        } else if self.is_regularized() {
            Measure::Objective
        } else {
            method.measure
        }
    }

    /// Checks each group, and the groups against each other.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    fn check(&self, method: &Description) -> Result<()> {
        if let (Some(threshold), Some(sum)) = (self.threshold, self.secure_sum) {
            threshold.check(sum, self.dp.is_some_and(DpParams::is_on))?;
        }
        self.dp.zip(method.protects()).map_or(Ok(()), |(dp, unit)| dp.check(unit))
    }
}

/// A method: the type of its parameters.
pub trait Method: Parameters + Default + Clone + fmt::Debug + PartialEq + Send + Sync + 'static {
    const DESCRIPTION: &'static Description;

    /// Checks, before any data is read, what the value parsers cannot check: mutually exclusive parameters, and values
    /// that this method does not support. [`Groups::check`] checks sums and noise.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Why the method does not have an option of other methods (`name` without dashes), if there is a reason to state.
    fn why_not(_name: &str) -> Option<&'static str> {
        None
    }

    /// The shared groups among the parameters. An option of a group that is not listed here has no effect; a test of
    /// the registry refuses that.
    fn groups(&self) -> Groups<'_> {
        Groups::default()
    }

    /// Whether sums over parties are masked.
    fn masks_sums(&self) -> bool {
        self.groups().secure_sum.is_some_and(|sum| sum.secure_sum)
    }

    /// The method that these parameters choose for a matrix, and why; before the matrix is known (`None`) a first guess.
    /// Only `auto` chooses.
    fn choose(&self, _matrix: Option<MatrixShape>) -> Option<Choice> {
        None
    }

    /// What an iteration costs on `ranks` ranks, without the largest terms of exact sums; `None` without a formula.
    ///
    /// # Errors
    /// When a parameter does not fit the shape.
    fn cost(&self, _workload: &Workload, _ranks: usize) -> Result<Option<Cost>> {
        Ok(None)
    }

    /// As [`Method::cost`], if each rank reads its rows from the file in each pass. The panels are not counted. `None`
    /// if the method needs its data in memory.
    fn streamed_cost(&self, _workload: &Workload, _ranks: usize) -> Option<Cost> {
        None
    }

    /// Makes the algorithm from its problem.
    ///
    /// # Errors
    /// When the parameters do not fit the data.
    fn build<T: Real>(&self, problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>>;
}

/// The input of `auto`'s choice.
#[derive(Debug, Clone, Copy)]
pub struct MatrixShape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub sparse: bool,
    /// Whether its rows have to be read from the file in each pass, since memory cannot hold them.
    pub streamed: bool,
}

/// A method that `auto` has chosen.
#[derive(Debug, Clone)]
pub struct Choice {
    pub method: Arc<dyn ConfiguredMethod>,
    pub why: &'static str,
}

/// A method with checked parameters.
pub trait ConfiguredMethod: Parameters + fmt::Debug + Send + Sync {
    fn description(&self) -> &'static Description;

    /// Names and values of all parameters, for trace, output and checkpoint.
    fn parameters(&self) -> Map<String, Value>;

    /// See [`Method::check`].
    ///
    /// # Errors
    /// Naming the option that is wrong.
    fn check(&self) -> Result<()>;

    fn groups(&self) -> Groups<'_>;

    /// See [`Method::masks_sums`].
    fn masks_sums(&self) -> bool;

    /// See [`Method::choose`].
    fn choose(&self, matrix: Option<MatrixShape>) -> Option<Choice>;

    /// See [`Method::cost`].
    ///
    /// # Errors
    /// When a parameter does not fit the shape.
    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>>;

    /// See [`Method::streamed_cost`].
    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost>;

    /// See [`Method::build`].
    ///
    /// # Errors
    /// When the parameters do not fit the data.
    fn build_f64(&self, problem: Problem<'_, f64>) -> Result<Box<dyn Algorithm<f64>>>;

    /// See [`Method::build`].
    ///
    /// # Errors
    /// When the parameters do not fit the data.
    fn build_f32(&self, problem: Problem<'_, f32>) -> Result<Box<dyn Algorithm<f32>>>;
}

impl<M: Method> ConfiguredMethod for M {
    fn description(&self) -> &'static Description {
        M::DESCRIPTION
    }

    fn parameters(&self) -> Map<String, Value> {
        parameters::to_json(self)
    }

    fn check(&self) -> Result<()> {
        Method::groups(self).check(M::DESCRIPTION)?;
        Method::check(self)
    }

    fn groups(&self) -> Groups<'_> {
        Method::groups(self)
    }

    fn masks_sums(&self) -> bool {
        Method::masks_sums(self)
    }

    fn choose(&self, matrix: Option<MatrixShape>) -> Option<Choice> {
        Method::choose(self, matrix)
    }

    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>> {
        Method::cost(self, workload, ranks)
    }

    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost> {
        Method::streamed_cost(self, workload, ranks)
    }

    fn build_f64(&self, problem: Problem<'_, f64>) -> Result<Box<dyn Algorithm<f64>>> {
        self.build(problem)
    }

    fn build_f32(&self, problem: Problem<'_, f32>) -> Result<Box<dyn Algorithm<f32>>> {
        self.build(problem)
    }
}

/// A method of the registry, whatever the type of its parameters.
pub trait Entry: Sync {
    fn description(&self) -> &'static Description;

    /// Its parameters with their defaults.
    fn parameters(&self) -> Vec<Parameter>;

    /// The method with the parameters that are given by name and text, its defaults for the rest.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    fn configure(&self, given: &[(&str, &str)]) -> Result<Arc<dyn ConfiguredMethod>>;

    /// # Errors
    /// What the value of this parameter must be.
    fn check(&self, name: &str, text: &str) -> Parsed<()>;

    /// The method with all its defaults.
    fn defaults(&self) -> Arc<dyn ConfiguredMethod>;

    /// See [`Method::why_not`].
    fn why_not(&self, name: &str) -> Option<&'static str>;

    /// Whether the method takes `--name`.
    fn takes(&self, name: &str) -> bool {
        self.parameters().iter().any(|parameter| parameter.option() == name)
    }
}

impl<M: Method> Entry for PhantomData<M> {
    fn description(&self) -> &'static Description {
        M::DESCRIPTION
    }

    fn why_not(&self, name: &str) -> Option<&'static str> {
        M::why_not(name)
    }

    fn parameters(&self) -> Vec<Parameter> {
        parameters::all(&M::default())
    }

    fn configure(&self, given: &[(&str, &str)]) -> Result<Arc<dyn ConfiguredMethod>> {
        let mut method = M::default();
        for (name, text) in given {
            let refuse = |must| Error::input(format!("--{} {text}: {must}", name.replace('_', "-")));
            set(&mut method, name, text).map_err(refuse)?;
        }
        if let Some(ignored) = method.ignored(&|name| given.iter().any(|(given, _)| *given == name)) {
            return Err(Error::input(format!("--{}: {}", ignored.name.replace('_', "-"), ignored.advice)));
        }
        ConfiguredMethod::check(&method)?;
        Ok(Arc::new(method))
    }

    fn check(&self, name: &str, text: &str) -> Parsed<()> {
        set(&mut M::default(), name, text)
    }

    fn defaults(&self) -> Arc<dyn ConfiguredMethod> {
        Arc::new(M::default())
    }
}

/// The registry's entry of a method.
pub const fn entry<M: Method>() -> &'static dyn Entry {
    &PhantomData::<M>
}

fn set(method: &mut impl Parameters, name: &str, text: &str) -> Parsed<()> {
    method.set(name, text).unwrap_or_else(|| Err("there is no such option".into()))
}
