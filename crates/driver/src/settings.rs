//! Validated settings of a run, complete except for what depends on the data's shape.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use fednmf_files as data;
use fednmf_files::{InputSpec, Threshold};
use fednmf_linalg::ProductKernel;
use fednmf_methods::description::Description;
use fednmf_methods::method::{ConfiguredMethod, MatrixShape};
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters::Parameter;
use fednmf_methods::registry;
use fednmf_report::Display;

use super::arrange::FactorScale;

/// The input if the user names no matrix.
pub const SAMPLE_INPUT: &str = "synthetic:planted";

/// The arithmetic of a factorisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    F64,
    F32,
    /// f32 first, then f64.
    Mixed,
}

impl Precision {
    /// As in `--precision`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F64 => "f64",
            Precision::F32 => "f32",
            Precision::Mixed => "mixed",
        }
    }
}

fednmf_base::words! {
    /// What `--precision` takes.
    pub enum PrecisionChoice {
        F64 = "f64",
        F32 = "f32",
        Mixed = "mixed",
        Auto = "auto",
    }
}

impl PrecisionChoice {
    /// The precision, unless the data decide it.
    pub fn given(self) -> Option<Precision> {
        match self {
            PrecisionChoice::F64 => Some(Precision::F64),
            PrecisionChoice::F32 => Some(Precision::F32),
            PrecisionChoice::Mixed => Some(Precision::Mixed),
            PrecisionChoice::Auto => None,
        }
    }
}

fednmf_base::words! {
    pub enum Scale {
        None = "none",
        Max = "max",
    }
}

fednmf_base::words! {
    pub enum Kernel {
        Mkl = "mkl",
        Native = "native",
        Auto = "auto",
    }
}

fednmf_base::words! {
    pub enum OnLostParty {
        Abort = "abort",
        Continue = "continue",
    }
}

/// How often something happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Every {
    /// Some minutes, and not more than a small part of the run's time.
    Auto,
    Iterations(usize),
    Seconds(f64),
}

/// The parameter with the number of releases that a budget is split over.
pub const DP_RELEASES: &str = "dp_releases";

/// Validated settings of a run.
#[derive(Clone)]
pub struct Settings {
    pub method: Arc<dyn ConfiguredMethod>,
    /// Why `--algo auto` chose the method; `None` where one was asked for.
    pub automatic: Option<&'static str>,
    /// The requested method, if it chooses another one by the sizes.
    pub chooser: Arc<dyn ConfiguredMethod>,
    pub input: InputSpec,
    /// The input as it was typed.
    pub input_text: String,
    pub k: usize,
    pub parties: Option<usize>,
    pub skew: Option<f64>,
    pub split: Option<PathBuf>,
    pub max_iters: usize,
    pub tol: Option<f64>,
    pub target_error: Option<f64>,
    pub time_limit: Option<f64>,
    /// Whether to continue without unresponsive ranks.
    pub continue_on_loss: bool,
    pub eval_every: usize,
    pub seed: u64,
    /// None: that of the data.
    pub precision: Option<Precision>,
    /// Why `--precision auto` chose it; `None` where it was asked for.
    pub precision_why: Option<String>,
    /// None: by the processor.
    pub kernel: Option<ProductKernel>,
    pub threads: usize,
    /// Order and scale of the components in the output.
    pub factor_scale: FactorScale,
    pub output: Option<PathBuf>,
    /// Whether `output` exists, and the factors are added to its contents.
    pub add: bool,
    pub trace: Option<PathBuf>,
    /// The signed record of what is sent, and its key, if that is elsewhere.
    pub transcript: Option<PathBuf>,
    pub transcript_key: Option<PathBuf>,
    /// Each rank records what it receives in a file of its own.
    pub record_view: Option<PathBuf>,
    /// The page about the run, and what it shall show.
    pub report: Option<(PathBuf, Display)>,
    pub checkpoint: Option<PathBuf>,
    pub checkpoint_every: Every,
    /// How long a rank may be without progress; `None`: unlimited.
    pub stall_timeout: Option<Duration>,
    pub resume: bool,
    pub quiet: bool,
    /// Whether the summary has a line for each phase.
    pub verbose: bool,
    pub json: bool,
    /// The command line, for provenance.
    pub words: Vec<String>,
}

/// Sets the input fields that follow from the method: which entries are accepted, and how those of parties are combined
/// and kept private.
pub fn apply_method_requirements(input: &mut InputSpec, method: &dyn ConfiguredMethod) {
    let description = method.description();
    input.allow_negative = description.allows_negative;
    input.allow_nan = method.groups().accepts_nan();
    input.nan_remedy = registry::nan_remedy(method);
    input.masked = method.masks_sums();
    input.private |= description.partition.is_private();
    input.stack = description.partition.stack();
}

impl Settings {
    pub fn description(&self) -> &'static Description {
        self.method.description()
    }

    /// The measure that progress, summary and `--tol` go by.
    pub fn measure(&self) -> Measure {
        self.method.groups().measure(self.description())
    }

    /// The settings with the method that `--algo auto` chooses for a matrix of this shape; unchanged, where a method was
    /// asked for.
    #[must_use]
    pub fn settled(&self, m: usize, n: usize, sparse: bool) -> Self {
        self.settled_for(MatrixShape { m, n, k: self.k, sparse, streamed: false })
    }

    /// As [`Settings::settled`].
    #[must_use]
    pub fn settled_for(&self, matrix: MatrixShape) -> Self {
        let mut settled = self.clone();
        if let Some(choice) = self.chooser.choose(Some(matrix)) {
            (settled.method, settled.automatic) = (choice.method, Some(choice.why));
        }
        settled
    }

    /// All parameters that affect the result, by name; a resumed run must have the same.
    pub fn result_parameters(&self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert("algo".into(), self.description().name.into());
        all.insert("k".into(), self.k.into());
        all.insert("seed".into(), self.seed.into());
        all.insert("precision".into(), self.precision_name().into());
        all.insert("parties".into(), json!(self.parties));
        all.insert("skew".into(), json!(self.skew));
        all.insert("transpose".into(), self.input.transpose.into());
        all.insert("scale".into(), if self.input.scale == data::Scale::Max { "max" } else { "none" }.into());
        all.insert("binarize".into(), json!(self.input.binarize.map(Threshold::to_json)));
        let mut add = |parameter: Parameter| {
            if parameter.affects_result {
                all.insert(parameter.name.into(), parameter.value.into());
            }
        };
        self.method.visit(&mut add);
        // The split of a budget depends on the number of releases.
        let releases = self.method.groups().dp.and_then(|dp| dp.planned(self.max_iters, self.description()));
        all.extend(releases.map(|r| (DP_RELEASES.to_string(), r.into())));
        all
    }

    /// All effective parameters.
    pub fn all(&self) -> Map<String, Value> {
        let mut all = self.result_parameters();
        all.extend(self.method.parameters());
        all.insert("input".into(), self.input_text.clone().into());
        all.extend(self.input.table.to_json());
        all.insert("max_iters".into(), self.max_iters.into());
        all.insert("tol".into(), json!(self.tol));
        all.insert("target_error".into(), json!(self.target_error));
        all.insert("time_limit".into(), json!(self.time_limit));
        all.insert("eval_every".into(), self.eval_every.into());
        let kernel = match self.kernel {
            Some(ProductKernel::Mkl) => "mkl",
            Some(ProductKernel::Native) => "native",
            None => "auto",
        };
        all.insert("split".into(), json!(self.split));
        all.insert("factor_scale".into(), self.factor_scale.name().into());
        all.insert("threads".into(), self.threads.into());
        all.insert("kernel".into(), kernel.into());
        // The former name of this parameter.
        all.insert("sparse_kernel".into(), kernel.into());
        all.extend(self.precision_why.clone().map(|why| ("precision_chosen_by_auto".into(), why.into())));
        all.extend(self.automatic.map(|why| ("chosen_by_auto".into(), why.into())));
        all
    }

    pub fn precision_name(&self) -> &'static str {
        self.precision.map_or("auto", Precision::name)
    }
}
