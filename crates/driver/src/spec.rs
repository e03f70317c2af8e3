//! What was requested of a run ([`Spec`]): checked as far as possible without the data, and never changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use fednmf_base::error::Result;
use fednmf_data::{NanRemedy, Sharing};
use fednmf_files as data;
use fednmf_files::{InputSpec, Threshold};
use fednmf_linalg::ProductKernel;
use fednmf_methods::description::Description;
use fednmf_methods::method::{ConfiguredMethod, MatrixShape};
use fednmf_methods::parameters::{self, Missing, Parameter};
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
    /// Bytes of a number in the arithmetic that the run ends with.
    pub fn word(self) -> usize {
        if self == Precision::F32 { size_of::<f32>() } else { size_of::<f64>() }
    }

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

impl Kernel {
    /// The kernel, unless processor and data decide it.
    ///
    /// # Errors
    /// If this build does not have it.
    pub fn given(self) -> Result<Option<ProductKernel>> {
        match self {
            Kernel::Mkl => ProductKernel::mkl().map(Some),
            Kernel::Native => Ok(Some(ProductKernel::Native)),
            Kernel::Auto => Ok(None),
        }
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
    /// Every few minutes, within a small share of the run's time.
    Auto,
    Iterations(usize),
    Seconds(f64),
}

/// The parameter with the number of releases that a budget is split over.
pub const DP_RELEASES: &str = "dp_releases";
/// The parameter with the iteration after which a method on shares opens its result.
pub const OPENED_AT: &str = "opened_at";

/// A method as requested. `auto` leaves the choice to the data.
#[derive(Clone)]
pub struct Requested {
    method: Arc<dyn ConfiguredMethod>,
    assumed: Arc<dyn ConfiguredMethod>,
}

impl Requested {
    /// A request for this method.
    pub fn new(method: Arc<dyn ConfiguredMethod>) -> Self {
        let assumed = method.choose(None).map_or_else(|| method.clone(), |choice| choice.method);
        Requested { method, assumed }
    }

    /// The method for all checks that precede the data: the requested one, or the one that `auto` takes for most sizes.
    pub fn assumed(&self) -> &dyn ConfiguredMethod {
        &*self.assumed
    }

    /// The method for a matrix of this shape, and why if `auto` chose it.
    pub fn choose(&self, shape: MatrixShape) -> (Arc<dyn ConfiguredMethod>, Option<&'static str>) {
        match self.method.choose(Some(shape)) {
            Some(choice) => (choice.method, Some(choice.why)),
            None => (self.method.clone(), None),
        }
    }
}

/// The files that a run writes at its end.
#[derive(Clone)]
pub struct Outputs {
    pub factors: Option<PathBuf>,
    /// Whether the file of factors exists, and they are added to its contents.
    pub add: bool,
    /// The HTML report, and what it shows.
    pub report: Option<(PathBuf, Display)>,
    pub place: Place,
}

/// Where results may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Place {
    /// If they cannot be written to their files, elsewhere.
    #[default]
    Anywhere,
    /// In their files only.
    OnlyThere,
    /// In their files until the run ends, then encrypted in this directory.
    Encrypted(PathBuf),
}

/// What the owner of a site agreed to, for the records of a run.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    /// SHA-256 of the policy's file.
    pub policy: Option<String>,
    /// Digest of the approved proposal.
    pub proposal: Option<String>,
    /// What `--profile` has set and requires, in words.
    pub profile: Option<String>,
    /// The name of the run in the log of the site.
    pub logged: Option<String>,
}

/// What was requested of a run.
#[derive(Clone)]
pub struct Spec {
    pub method: Requested,
    pub input: InputSpec,
    /// The input as typed.
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
    /// `None`: by the data.
    pub precision: Option<Precision>,
    /// `None`: by the processor.
    pub kernel: Option<ProductKernel>,
    pub threads: usize,
    /// Order and scale of the components in the output.
    pub factor_scale: FactorScale,
    pub outputs: Outputs,
    pub trace: Option<PathBuf>,
    /// The signed record of what is sent, and its key if that is elsewhere.
    pub transcript: Option<PathBuf>,
    pub transcript_key: Option<PathBuf>,
    /// Each rank records what it receives in a file of its own.
    pub record_view: Option<PathBuf>,
    pub checkpoint: Option<PathBuf>,
    pub checkpoint_every: Every,
    /// How long a rank may be without progress; `None`: unlimited.
    pub stall_timeout: Option<Duration>,
    pub resume: bool,
    pub quiet: bool,
    /// Whether the summary has a line for each phase.
    pub verbose: bool,
    pub json: bool,
    pub consent: Consent,
    /// The command line, for provenance.
    pub words: Vec<String>,
}

/// How parties share the statistics of their data.
pub fn sharing(method: &dyn ConfiguredMethod, evaluates: bool) -> Sharing {
    match (method.groups().is_noised() && !evaluates, method.masks_sums()) {
        (true, _) => Sharing::Nothing,
        (false, true) => Sharing::Masked,
        (false, false) => Sharing::Clear,
    }
}

/// Sets the input fields that follow from the method: which entries are accepted, and how those of parties are combined
/// and kept private. `evaluates` says whether errors will be computed, which are relative to the norm of all data.
pub fn apply_method_requirements(input: &mut InputSpec, method: &dyn ConfiguredMethod, evaluates: bool) {
    let description = method.description();
    input.allow_negative = description.allows_negative;
    input.allow_nan = method.groups().accepts_nan();
    input.suppress = method.groups().disclosure.and_then(|limits| limits.suppress_rare.as_ref().copied());
    input.nan_remedy = registry::nan_remedy(method);
    if method.groups().missing.is_some_and(|group| group.missing == Missing::ZeroUnobserved) {
        input.nan_remedy = NanRemedy::Zero;
    }
    input.sharing = sharing(method, evaluates);
    input.private |= description.partition.is_private();
    input.kept = description.partition.is_private();
    input.stack = description.partition.stack();
}

/// Stands for the name of a file or a host.
const NOT_SHOWN: &str = "(not shown)";

/// A word of a command line, without the name of a file or a host in it: a number or a single word stays.
fn without_file(word: &str) -> String {
    let (option, value) = match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => (Some(option), value),
        _ => (None, word),
    };
    let letters = |at: usize| value.as_bytes().get(at).is_some_and(u8::is_ascii_alphabetic);
    let dot = |(at, _): (usize, &str)| letters(at + 1) || at > 0 && letters(at - 1);
    let is_generated = value.starts_with("synthetic");
    let hidden = !is_generated
        && !value.starts_with("--")
        && (value.contains(['/', '\\', '{']) || value.match_indices('.').any(dot) || Path::new(value).exists());
    let value = if hidden { NOT_SHOWN } else { value };
    option.map_or_else(|| value.to_string(), |option| format!("{option}={value}"))
}

/// Hides the name of a file in a parameter.
pub fn hide_files(value: &mut Value) {
    if let Value::String(text) = value {
        *text = without_file(text);
    }
}

impl Spec {
    /// The method that is assumed before the data are known, see [`Requested::assumed`].
    pub fn description(&self) -> &'static Description {
        self.method.assumed().description()
    }

    /// The parameters that decide the result, and the limits and accepted risks of this party, for those who see neither files nor
    /// command line of a party.
    pub fn shown_settings(&self) -> Map<String, Value> {
        let method = self.method.assumed();
        let mut all = self.result_parameters(method, self.precision);
        all.extend(method.groups().disclosure.map(fednmf_base::parameters::to_json).unwrap_or_default());
        all.values_mut().for_each(hide_files);
        all
    }

    /// The command line for trace, output and report; of a method of parties without names of files and hosts.
    pub fn shown_words(&self) -> Vec<String> {
        if !self.description().partition.is_private() {
            return self.words.clone();
        }
        let options = self.words.iter().skip(1).map(|word| without_file(word));
        std::iter::once("fednmf".to_string()).chain(options).collect()
    }

    /// The input as typed; of a method of parties without the name of a file.
    pub fn shown_input(&self) -> String {
        if self.description().partition.is_private() { without_file(&self.input_text) } else { self.input_text.clone() }
    }

    /// All parameters that affect the result of a run with this method and precision, by name; a resumed run must have the same.
    pub fn result_parameters(&self, method: &dyn ConfiguredMethod, precision: Option<Precision>) -> Map<String, Value> {
        let description = method.description();
        let mut all = Map::new();
        all.insert("algo".into(), description.name.into());
        all.insert("k".into(), self.k.into());
        all.insert("seed".into(), self.seed.into());
        all.insert("precision".into(), precision.map_or("auto", Precision::name).into());
        all.insert("parties".into(), json!(self.parties));
        all.insert("skew".into(), json!(self.skew));
        all.insert("transpose".into(), self.input.transpose.into());
        all.insert("scale".into(), if self.input.scale == data::Scale::Max { "max" } else { "none" }.into());
        all.insert("binarize".into(), json!(self.input.binarize.map(Threshold::to_json)));
        all.extend(self.input.features.to_json());
        all.extend(self.input.common_columns.then(|| ("common_columns".to_string(), true.into())));
        let mut add = |parameter: Parameter| {
            if parameter.affects_result {
                all.insert(parameter.name.into(), parameter.value.into());
            }
        };
        method.visit(&mut add);
        // The split of a budget depends on the number of releases.
        let releases = method.groups().dp.and_then(|dp| dp.planned(self.max_iters, description));
        all.extend(releases.map(|r| (DP_RELEASES.to_string(), r.into())));
        // The result is opened at one iteration only.
        if description.on_shares {
            all.insert(OPENED_AT.into(), self.max_iters.into());
        }
        // A run that shares errors has no formal guarantee, whatever it does after a resume.
        if method.groups().is_noised() {
            all.insert("evaluates".into(), (self.eval_every > 0).into());
        }
        all
    }

    /// All parameters of a run with this method and precision.
    pub fn all(&self, method: &dyn ConfiguredMethod, precision: Option<Precision>) -> Map<String, Value> {
        let mut all = self.result_parameters(method, precision);
        all.extend(parameters::to_json(method));
        all.insert("input".into(), self.input_text.clone().into());
        all.extend(self.input.table.to_json());
        all.insert("max_iters".into(), self.max_iters.into());
        all.insert("tol".into(), json!(self.tol));
        all.insert("target_error".into(), json!(self.target_error));
        all.insert("time_limit".into(), json!(self.time_limit));
        all.insert("eval_every".into(), self.eval_every.into());
        let kernel = match self.kernel {
            Some(kernel) => kernel.name(),
            None => Kernel::Auto.name(),
        };
        all.insert("split".into(), json!(self.split));
        all.insert("factor_scale".into(), self.factor_scale.name().into());
        all.insert("threads".into(), self.threads.into());
        all.insert("kernel".into(), kernel.into());
        // The former name of this parameter.
        all.insert("sparse_kernel".into(), kernel.into());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_hosts_are_not_shown() {
        for hidden in ["/home/a/patients.mtx", "patients.mtx", "part-{party}", "./x", "hub.example.org:4433", "src"] {
            assert_eq!(without_file(hidden), NOT_SHOWN, "{hidden}");
        }
        for shown in ["--secure-sum", "-k", "0.5", "1e-9", "gaussian", "synthetic:planted,noise=0.1", "5,10", "10%"] {
            assert_eq!(without_file(shown), shown);
        }
        assert_eq!(without_file("--input=patients.mtx"), format!("--input={NOT_SHOWN}"));
    }
}
