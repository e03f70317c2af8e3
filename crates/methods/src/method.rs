//! A method: the type of its parameters ([`Method`]), and a value of any such type ([`ConfiguredMethod`]), for code that
//! treats all methods alike.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_linalg::Real;
use fednmf_privacy::NoisePlan;

use super::cost::{Cost, Workload};
use super::description::Description;
use super::distributed::divergence::volume::VolumeParams;
use super::federated::columns::asyn::ClockParams;
use super::federated::few_values::EntryFacts;
use super::parameters;
use super::parameters::{Auto, Missing, Parameter, Parameters, Parsed, Size, Sizes, group};
use super::shared::disclosure::{DisclosureParams, OpenedSums, PrivatePart};
use super::shared::dp::{DpParams, Expected};
use super::shared::grid::GridParams;
use super::shared::init::InitParams;
use super::shared::missing::{MissingParams, PartyHoldoutParams, PartyMissing, PartyMissingParams};
use super::shared::regularization::RegularizationParams;
use super::shared::secure_sum::{SecureSumParams, ThresholdParams};
use super::shared::sketched_step::{DsanlsSketchParams, SketchParams, StepParams};
use super::{Algorithm, Problem};
use crate::metrics::Measure;

/// The parameter groups that the driver serves; `None` if a method does not have the group. A group among a method's
/// parameters is found by its type.
#[derive(Debug, Clone, Copy, Default)]
pub struct Groups<'a> {
    pub grid: Option<&'a GridParams>,
    pub init: Option<&'a InitParams>,
    pub missing: Option<&'a MissingParams>,
    pub party_missing: Option<&'a PartyMissingParams>,
    pub party_holdout: Option<&'a PartyHoldoutParams>,
    pub regularization: Option<&'a RegularizationParams>,
    pub volume: Option<&'a VolumeParams>,
    pub secure_sum: Option<&'a SecureSumParams>,
    pub disclosure: Option<&'a DisclosureParams>,
    pub threshold: Option<&'a ThresholdParams>,
    pub dp: Option<&'a DpParams>,
    pub step: Option<&'a StepParams>,
    pub sketch_size: Option<Auto<Sizes>>,
    pub clock: Option<&'a ClockParams>,
}

impl<'a> Groups<'a> {
    /// The groups that `parameters` contains.
    fn of(parameters: &'a (impl Parameters + ?Sized)) -> Self {
        Groups {
            grid: group(parameters),
            init: group(parameters),
            missing: group(parameters),
            party_missing: group(parameters),
            party_holdout: group(parameters),
            regularization: group(parameters),
            volume: group(parameters),
            secure_sum: group(parameters),
            disclosure: group(parameters),
            threshold: group(parameters),
            dp: group(parameters),
            step: group(parameters),
            sketch_size: group(parameters)
                .map(|sketch: &SketchParams| sketch.sketch_size)
                .or(group(parameters).map(|sketch: &DsanlsSketchParams| sketch.sketch_size)),
            clock: group(parameters),
        }
    }

    /// Whether what parties release is noised.
    pub fn is_noised(&self) -> bool {
        self.dp.is_some_and(DpParams::is_on)
    }

    /// Whether a factor has a penalty.
    pub fn is_regularized(&self) -> bool {
        self.regularization.is_some_and(RegularizationParams::is_on)
    }

    /// Whether what is minimised has a penalty in addition to the loss.
    pub fn is_penalized(&self) -> bool {
        self.is_regularized() || self.volume.is_some_and(VolumeParams::is_on)
    }

    /// Whether the scale of a component can drift between sketches: the component grows in one factor and vanishes in the
    /// other. A sketch of all rows and columns is exact, so that the step is that of HALS and scales do not drift.
    pub fn lets_scales_drift(&self) -> bool {
        const ALL: Sizes = Sizes { u: Size::Share(1.0), v: Size::Share(1.0) };
        let sketched = self.sketch_size.is_some_and(|size| size.given() != Some(ALL));
        sketched && self.step.is_some_and(StepParams::lets_scales_drift)
    }

    /// Whether the method supports missing entries.
    pub fn supports_missing(&self) -> bool {
        self.missing.is_some() || self.party_missing.is_some()
    }

    /// Whether zeros in the data are missing entries.
    pub fn zeros_are_missing(&self) -> bool {
        self.missing.is_some_and(|group| group.missing == Missing::ZeroUnobserved)
            || self.party_missing.is_some_and(|group| group.missing == PartyMissing::ZeroUnobserved)
    }

    /// Whether NaN in the data marks missing entries.
    pub fn accepts_nan(&self) -> bool {
        self.missing.is_some_and(|group| group.missing == Missing::Nan)
            || self.party_missing.is_some_and(|group| group.missing == PartyMissing::Nan)
    }

    /// The measure that progress, summary and `--tol` use: the error on held-out entries if there are any, else the
    /// objective if there are penalties, else the measure of the method.
    pub fn measure(&self, method: &Description) -> Measure {
        let held_out = |group: &MissingParams| group.holdout > 0.0 || group.missing.marks().is_some();
        if self.missing.is_some_and(held_out) || self.party_holdout.is_some_and(|group| group.holdout > 0.0) {
            if method.measure == Measure::Divergence { Measure::HeldoutDivergence } else { Measure::HeldoutRmse }
        } else if self.is_penalized() {
            Measure::Objective
        } else {
            method.measure
        }
    }

    /// Checks each group, and the groups against each other.
    ///
    /// # Errors
    /// If an option is wrong; the message names it.
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
    /// If an option is wrong; the message names it.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The reason why the method does not have the option `name` (without dashes) of other methods, if there is one to
    /// state.
    fn why_not(_name: &str) -> Option<&'static str> {
        None
    }

    /// Whether sums over parties are masked.
    fn masks_sums(&self) -> bool {
        group(self).is_some_and(|sum: &SecureSumParams| sum.secure_sum)
    }

    /// Whether a run with these parameters sends messages of this kind of its table, which may be for some options only.
    /// What all methods decide alike is not asked: masks, noise, evaluations.
    fn sends(&self, _kind: &str) -> bool {
        true
    }

    /// The sums over parties that tell about their rows or columns; `None` if the rules for them do not apply.
    fn opened_sums(&self) -> Option<OpenedSums> {
        None
    }

    /// The noise of a run, as far as it is known before; `None` without `--dp`.
    ///
    /// # Errors
    /// If the request cannot be met.
    fn noise(&self, _run: Expected) -> Result<Option<NoisePlan>> {
        Ok(None)
    }

    /// The number of `parties` whose terms are in each sum.
    fn participants(&self, parties: usize) -> usize {
        parties
    }

    /// Checks the entries of the parties of this rank, before anything about them is shared.
    ///
    /// # Errors
    /// If the method would reveal too much about them.
    fn check_entries(&self, _part: &PrivatePart<'_>, _blocks: &[&dyn EntryFacts]) -> Result<()> {
        Ok(())
    }

    /// These parameters with the settings of a sweep over k; `None` if `sweep` does not support the method. A start from
    /// singular vectors is replaced by a random one, because repeated runs from the same start would agree for any k.
    fn for_sweep(&self, _settings: &SweepSettings) -> Option<Self> {
        None
    }

    /// The method that these parameters choose for a matrix, with the reason. Before the matrix is known (`None`) it is a
    /// provisional choice. Only `auto` chooses.
    fn choose(&self, _matrix: Option<MatrixShape>) -> Option<Choice> {
        None
    }

    /// The cost of an iteration on `ranks` ranks, without the largest terms of exact sums; `None` if there is no formula.
    ///
    /// # Errors
    /// If a parameter does not fit the shape.
    fn cost(&self, _workload: &Workload, _ranks: usize) -> Result<Option<Cost>> {
        Ok(None)
    }

    /// As [`Method::cost`] if each rank reads its rows from the file in each pass. The memory of the panels is not
    /// included. `None` if the method needs its data in memory.
    fn streamed_cost(&self, _workload: &Workload, _ranks: usize) -> Option<Cost> {
        None
    }

    /// Builds the algorithm. This allocates all memory that iterations need. Collective.
    ///
    /// # Errors
    /// On all ranks, if the parameters do not fit the data of one of them.
    fn build<T: Real>(&self, problem: Problem<'_, T>) -> SharedResult<Box<dyn Algorithm<T>>>;
}

/// The input of `auto`'s choice.
#[derive(Debug, Clone, Copy)]
pub struct MatrixShape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub sparse: bool,
    /// Whether the rows must be read from the file in each pass because they do not fit into memory.
    pub streamed: bool,
}

/// A method that `auto` has chosen.
#[derive(Debug, Clone)]
pub struct Choice {
    pub method: Arc<dyn ConfiguredMethod>,
    pub why: &'static str,
}

/// What a sweep over k sets in the parameters of its method.
#[derive(Debug, Clone)]
pub struct SweepSettings {
    pub missing: MissingParams,
    pub regularization: RegularizationParams,
    pub volume: VolumeParams,
}

/// A method with its parameters. Methods of the [registry](crate::registry) have default parameters.
pub trait ConfiguredMethod: Parameters + fmt::Debug + Send + Sync {
    fn description(&self) -> &'static Description;

    /// All parameters with their values.
    fn parameters(&self) -> Vec<Parameter>;

    /// This method with the parameters `given` by name and text; the others keep their values.
    ///
    /// # Errors
    /// If a name or value is wrong; the message names the option.
    fn configure(&self, given: &[(&str, &str)]) -> Result<Arc<dyn ConfiguredMethod>>;

    /// This method with the recorded parameters of a run; parameters that are not recorded keep their values.
    fn recorded(&self, text: &dyn Fn(&str) -> Option<String>) -> Arc<dyn ConfiguredMethod>;

    /// Checks the value `text` of the parameter `name`.
    ///
    /// # Errors
    /// If the value is not accepted; the message states what it must be.
    fn check_value(&self, name: &str, text: &str) -> Parsed<()>;

    /// See [`Method::why_not`].
    fn why_not(&self, name: &str) -> Option<&'static str>;

    /// See [`Method::for_sweep`].
    fn for_sweep(&self, settings: &SweepSettings) -> Option<Arc<dyn ConfiguredMethod>>;

    /// The parameters, for downcasting to their own type.
    fn as_any(&self) -> &dyn Any;

    /// See [`Method::check`].
    ///
    /// # Errors
    /// If an option is wrong; the message names it.
    fn check(&self) -> Result<()>;

    fn groups(&self) -> Groups<'_>;

    /// See [`Method::masks_sums`].
    fn masks_sums(&self) -> bool;

    /// See [`Method::sends`].
    fn sends(&self, kind: &str) -> bool;

    /// See [`Method::opened_sums`].
    fn opened_sums(&self) -> Option<OpenedSums>;

    /// See [`Method::noise`].
    ///
    /// # Errors
    /// If the request cannot be met.
    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>>;

    /// See [`Method::participants`].
    fn participants(&self, parties: usize) -> usize;

    /// See [`Method::check_entries`].
    ///
    /// # Errors
    /// If the method would reveal too much about them.
    fn check_entries(&self, part: &PrivatePart<'_>, blocks: &[&dyn EntryFacts]) -> Result<()>;

    /// See [`Method::choose`].
    fn choose(&self, matrix: Option<MatrixShape>) -> Option<Choice>;

    /// See [`Method::cost`].
    ///
    /// # Errors
    /// If a parameter does not fit the shape.
    fn cost(&self, workload: &Workload, ranks: usize) -> Result<Option<Cost>>;

    /// See [`Method::streamed_cost`].
    fn streamed_cost(&self, workload: &Workload, ranks: usize) -> Option<Cost>;

    /// See [`Method::build`].
    ///
    /// # Errors
    /// On all ranks, if the parameters do not fit the data of one of them.
    fn build_f64(&self, problem: Problem<'_, f64>) -> SharedResult<Box<dyn Algorithm<f64>>>;

    /// See [`Method::build`].
    ///
    /// # Errors
    /// On all ranks, if the parameters do not fit the data of one of them.
    fn build_f32(&self, problem: Problem<'_, f32>) -> SharedResult<Box<dyn Algorithm<f32>>>;

    /// Whether the method takes `--option`.
    fn takes(&self, option: &str) -> bool {
        self.parameters().iter().any(|parameter| parameter.option() == option)
    }
}

impl<M: Method> ConfiguredMethod for M {
    fn description(&self) -> &'static Description {
        M::DESCRIPTION
    }

    fn parameters(&self) -> Vec<Parameter> {
        parameters::all(self)
    }

    fn configure(&self, given: &[(&str, &str)]) -> Result<Arc<dyn ConfiguredMethod>> {
        let mut method = self.clone();
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

    fn recorded(&self, text: &dyn Fn(&str) -> Option<String>) -> Arc<dyn ConfiguredMethod> {
        let mut method = self.clone();
        for parameter in ConfiguredMethod::parameters(self) {
            // A value that the run itself chose may not be among those that the parameter accepts.
            let _ = text(parameter.name).map(|text| set(&mut method, parameter.name, &text));
        }
        Arc::new(method)
    }

    fn check_value(&self, name: &str, text: &str) -> Parsed<()> {
        set(&mut self.clone(), name, text)
    }

    fn why_not(&self, name: &str) -> Option<&'static str> {
        M::why_not(name)
    }

    fn for_sweep(&self, settings: &SweepSettings) -> Option<Arc<dyn ConfiguredMethod>> {
        Some(Arc::new(Method::for_sweep(self, settings)?))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn check(&self) -> Result<()> {
        self.groups().check(M::DESCRIPTION)?;
        Method::check(self)
    }

    fn groups(&self) -> Groups<'_> {
        Groups::of(self)
    }

    fn masks_sums(&self) -> bool {
        Method::masks_sums(self)
    }

    fn sends(&self, kind: &str) -> bool {
        Method::sends(self, kind)
    }

    fn opened_sums(&self) -> Option<OpenedSums> {
        Method::opened_sums(self)
    }

    fn noise(&self, run: Expected) -> Result<Option<NoisePlan>> {
        Method::noise(self, run)
    }

    fn participants(&self, parties: usize) -> usize {
        Method::participants(self, parties)
    }

    fn check_entries(&self, part: &PrivatePart<'_>, blocks: &[&dyn EntryFacts]) -> Result<()> {
        Method::check_entries(self, part, blocks)
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

    fn build_f64(&self, problem: Problem<'_, f64>) -> SharedResult<Box<dyn Algorithm<f64>>> {
        self.build(problem)
    }

    fn build_f32(&self, problem: Problem<'_, f32>) -> SharedResult<Box<dyn Algorithm<f32>>> {
        self.build(problem)
    }
}

fn set(method: &mut impl Parameters, name: &str, text: &str) -> Parsed<()> {
    method.set(name, text).unwrap_or_else(|| Err("there is no such option".into()))
}
