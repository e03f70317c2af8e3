//! The runs of a sweep: one for each k and seed, with a file of its own, which says what it belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ndarray::Array2;
use serde_json::{Map, Value, json};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, Signals};
use fednmf_data::state::OwnedPiece;
use fednmf_data::{Loaded, Resample};
use fednmf_driver::Stop;
use fednmf_driver::missing::HELD_OUT_OF_SPARSE;
use fednmf_driver::model_selection;
use fednmf_driver::model_selection::{Errors, Matched, Point, SweepMissing, Trial, point};
use fednmf_driver::spec::Scale;
use fednmf_files as data;
use fednmf_files::InputSpec;
use fednmf_files::names::Names;
use fednmf_files::output::attributes;
use fednmf_files::output::matrices;
use fednmf_files::output::matrices::Annotations;
use fednmf_files::output::matrices::Stored;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_methods::distributed::divergence::beta::Beta;
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters;
use fednmf_methods::shared::missing::MissingParams;

use super::args::{SweepArgs, numbers};
use crate::commands::factorize::ZEROS_OF_BINARIZE;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    pub k: usize,
    pub run: usize,
}

/// The settings and data that all runs share.
pub struct Sweep<'a> {
    pub args: &'a SweepArgs,
    /// The requested method.
    pub algo: Arc<dyn ConfiguredMethod>,
    /// The most iterations of a run.
    pub max_iters: usize,
    /// The entries that do not count.
    pub left_out: MissingParams,
    /// The method of each k, as soon as the shape of the matrix is known.
    pub methods: BTreeMap<usize, Arc<dyn ConfiguredMethod>>,
    pub input: InputSpec,
    /// Whether the matrix is sparse, by which the entries to hold out are drawn.
    pub sparse: bool,
    /// Whether it is read from the file in each pass.
    pub streamed: bool,
    /// The names of the matrix, on rank 0 of each group.
    pub names: Names,
    pub ks: Vec<usize>,
    /// The number of ranks, for those who repeat the sweep.
    pub ranks: usize,
}

impl Sweep<'_> {
    /// Checks the arguments.
    ///
    /// # Errors
    /// Naming the option that is wrong.
    pub fn new(args: &SweepArgs) -> Result<Sweep<'_>> {
        let algo = model_selection::requested(args.algo.as_ref(), args.loss.as_deref())?;
        let left_out = model_selection::left_out(&*algo, args.missing.into(), args.holdout)?;
        args.criterion.map_or(Ok(()), |criterion| criterion.check(&*algo, &left_out.missing))?;
        let max_iters = args.max_iters.unwrap_or_else(|| model_selection::iterations(&*algo));
        if args.runs == 0 || max_iters == 0 {
            return Err(Error::input("--runs and --max-iters: must be at least 1"));
        }
        if !(args.tol >= 0.0 && args.tol.is_finite()) {
            return Err(Error::input(format!("--tol {}: must be a number of at least 0", args.tol)));
        }
        if args.regularization.0.l1_ratio > 0.0 && !args.regularization.0.is_on() {
            return Err(Error::input("--l1-ratio: divides a penalty, and there is none; add --alpha-u or --alpha-v"));
        }
        let settings = args.settings(&left_out);
        model_selection::check_settings(&*algo, &settings)?;
        let mut input = InputSpec::parse(&args.input)?;
        input.transpose = args.transpose;
        input.table = args.table.0;
        input.features = args.features.choice();
        input.memory = args.memory;
        input.scale = if args.scale == Scale::Max { data::Scale::Max } else { data::Scale::None };
        input.binarize = args.binarize;
        if args.binarize.is_some() && args.missing == SweepMissing::Nan {
            return Err(Error::input("--binarize makes 0 of what is missing: it does not go with --missing nan"));
        }
        if args.binarize.is_some() && args.missing == SweepMissing::ZeroUnobserved {
            return Err(Error::input(ZEROS_OF_BINARIZE));
        }
        let prepared = args.binarize.is_some() || args.scale != Scale::None;
        if args.resample.is_some() && (prepared || args.missing == SweepMissing::ZeroUnobserved) {
            return Err(Error::input(
                "--resample: draws copies of counts, in which a zero is one too; leave out --scale, --binarize and \
                 --missing zero-unobserved",
            ));
        }
        input.allow_nan = args.missing == SweepMissing::Nan;
        Ok(Sweep {
            args,
            algo,
            max_iters,
            left_out,
            methods: BTreeMap::new(),
            input,
            names: Names::default(),
            sparse: false,
            streamed: false,
            ks: numbers(&args.components.join(","))?,
            ranks: 1,
        })
    }

    /// What ran, when and where, with its command line.
    pub fn provenance(&self) -> Map<String, Value> {
        let mut all = attributes::provenance();
        all.insert("args".into(), std::env::args().collect());
        all.insert("seed".into(), self.args.seed.into());
        all
    }

    /// The method of the runs with k components.
    pub fn method(&self, k: usize) -> &dyn ConfiguredMethod {
        &*self.methods[&k]
    }

    /// Whether held-out entries would count, and its method can hold them out of this matrix.
    pub fn can_hold_out(&self) -> bool {
        let missing = MissingParams { holdout: 0.05, ..self.left_out.clone() };
        let able = !self.streamed && self.args.criterion.is_none() && self.algo.groups().missing.is_some();
        able && model_selection::check_settings(&*self.algo, &self.args.settings(&missing)).is_ok()
    }

    /// The measure of its methods.
    pub fn measure(&self) -> Measure {
        self.method(self.ks[0]).description().measure
    }

    /// The β of the divergence that they minimise.
    pub fn beta(&self) -> Option<f64> {
        Beta::of_method(self.method(self.ks[0])).map(|beta| beta.0)
    }

    /// The name of the measure, with its β.
    pub fn measure_name(&self) -> String {
        self.measure().label_with(self.beta())
    }

    /// The contents of its files in addition to factors and attributes.
    pub fn annotations(&self) -> Annotations {
        Annotations { rows: self.names.rows.clone(), columns: self.names.columns.clone(), ..Annotations::default() }
    }

    /// The seeds of the runs count on from the first, and begin again after the largest number.
    fn seed(&self, task: Task) -> u64 {
        self.args.seed.wrapping_add(task.run as u64)
    }

    fn file(&self, task: Task) -> PathBuf {
        self.args.output.join(format!("k{:04}-run{:03}.h5", task.k, task.run))
    }

    /// Everything that determines the results of a run.
    fn identity(&self, task: Task, checksum: u64) -> Map<String, Value> {
        let args = self.args;
        let all = json!({
            "algo": self.method(task.k).description().name, "k": task.k, "seed": self.seed(task),
            "holdout": self.left_out.holdout, "missing": args.missing, "max_iters": self.max_iters, "tol": args.tol,
            "transpose": u8::from(args.transpose), "checksum": format!("{checksum:016x}"),
            "resample": args.resample.map_or("none", Resample::name), "params": parameters::to_json(self.method(task.k)),
        });
        let mut all = all.as_object().cloned().unwrap_or_default();
        all.extend(self.preparation());
        if self.left_out.holdout > 0.0 {
            all.insert(HELD_OUT_OF_SPARSE.into(), u8::from(self.sparse).into());
        }
        all
    }

    /// How the matrix was scaled and thresholded, and its features chosen; empty if nothing was done.
    fn preparation(&self) -> Map<String, Value> {
        let mut all = Map::new();
        if self.args.scale == Scale::Max {
            all.insert("scale".into(), "max".into());
        }
        all.extend(self.args.binarize.map(|threshold| ("binarize".to_string(), threshold.to_json())));
        all.extend(self.input.features.to_json());
        all
    }

    /// The attributes from which a reader of the factors can prepare a matrix in the same way.
    pub fn prepared(&self, loaded: &Loaded<f64>) -> Map<String, Value> {
        let mut all = self.preparation();
        all.extend(loaded.divisor.map(|d| ("scale_divisor".to_string(), json!(d))));
        all.extend(loaded.threshold.map(|t| ("binarize_threshold".to_string(), json!(t))));
        all
    }

    /// Whether the file of a run exists.
    pub fn is_done(&self, task: Task) -> bool {
        self.file(task).exists()
    }

    /// The attributes of a finished run; `None` if it is still to do.
    ///
    /// # Errors
    /// If its file belongs to another sweep.
    pub fn done(&self, task: Task, checksum: u64) -> Result<Option<Map<String, Value>>> {
        let path = self.file(task);
        if !self.is_done(task) {
            return Ok(None);
        }
        let stored = Stored::open(&path).map_err(|e| damaged(&e))?;
        for (name, value) in self.identity(task, checksum) {
            let found = stored.attributes().get(&name).cloned().unwrap_or(Value::Null);
            if let Some((name, found, value)) = difference(&name, &found, &value) {
                return Err(Error::input(format!(
                    "{}: belongs to another sweep: its {name} is {found}, not {value}; give another directory with --output",
                    path.display()
                )));
            }
        }
        Ok(Some(stored.attributes().clone()))
    }

    /// Checks that the file of a finished run has the names of the matrix, which the consensus gets. For rank 0, which
    /// knows them.
    ///
    /// # Errors
    /// If it has others.
    pub fn check_names(&self, task: Task) -> Result<()> {
        let path = self.file(task);
        let found = Stored::open(&path)?.names();
        let others = |found: &Option<Vec<String>>, matrix: &Option<Vec<String>>| found.is_some() && found != matrix;
        for (what, differ) in
            [("rows", others(&found.rows, &self.names.rows)), ("columns", others(&found.columns, &self.names.columns))]
        {
            if differ {
                return Err(Error::input(format!(
                    "{}: belongs to another sweep: the matrix now has other names of {what}; give another directory \
                     with --output",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Performs one run and writes its file. If a signal ends the run, it is returned and nothing is written. Collective in the
    /// group.
    ///
    /// # Errors
    /// If the run fails, or its file cannot be written.
    pub fn run(
        &self,
        task: Task,
        loaded: &Loaded<f64>,
        signals: &Signals,
        group: &Communicator,
    ) -> Result<Option<usize>> {
        let trial = Trial {
            method: self.method(task.k),
            k: task.k,
            seed: self.seed(task),
            max_iters: self.max_iters,
            tol: self.args.tol,
            resample: self.args.resample,
        };
        let found = trial.run(loaded, &self.left_out, (None, Some(signals.clone())), group)?;
        if let Stop::Signal(signal) = found.stop {
            return Ok(Some(signal));
        }
        let mut all = self.identity(task, loaded.statistics.checksum);
        all.extend(found.measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))));
        all.extend(self.prepared(loaded));
        all.insert("iterations".into(), found.iterations.into());
        all.insert("input".into(), self.args.input.clone().into());
        let factors: Vec<_> = found.factors.iter().map(OwnedPiece::view).collect();
        let file = self.file(task);
        let target = Target { option: "--output", path: &file, content: Content::Factors };
        group.agree_on_error(if group.is_root() { targets::check_existing(&target) } else { Ok(()) })?;
        matrices::write_factors(group, &file, &factors, &all, &self.annotations())?;
        Ok(None)
    }

    /// V (n × k) of a finished run.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub fn components_of(&self, task: Task) -> Result<Array2<f64>> {
        let stored = Stored::open(&self.file(task))?;
        let mut v = Array2::zeros(stored.matrix("V")?);
        stored.as_f64("V", 0, v.view_mut()).map_err(|e| damaged(&e))?;
        Ok(v)
    }

    /// V (n × k) of every run with k components.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn components(&self, k: usize) -> Result<Vec<Array2<f64>>> {
        (0..self.args.runs).map(|run| self.components_of(Task { k, run })).collect()
    }

    /// The runs with k components, matched, on rank 0 of a group. Collective in it.
    ///
    /// # Errors
    /// On all ranks of the group, if a file cannot be read.
    pub fn matched(&self, k: usize, group: &Communicator) -> SharedResult<Option<Matched>> {
        let read = || self.components(k).map(|components| Matched::new(&components));
        group.agree_on_error(if group.is_root() { read() } else { Ok(None) })
    }

    /// Error and stability of one k, from the files of its runs.
    ///
    /// # Errors
    /// If a file is gone, cannot be read, or belongs to another sweep.
    pub fn point(&self, k: usize, checksum: u64) -> Result<Point> {
        let errors = |run| -> Result<Errors> {
            let task = Task { k, run };
            let Some(found) = self.done(task, checksum)? else {
                return Err(Error::failed(format!("{}: is no longer there", self.file(task).display())));
            };
            Ok(Errors::named(|name| found.get(name).and_then(Value::as_f64)))
        };
        let errors = (0..self.args.runs).map(errors).collect::<Result<Vec<Errors>>>()?;
        Ok(point(k, &errors, &self.components(k)?))
    }
}

/// The error of a file of a finished run that cannot be read.
fn damaged(error: &Error) -> Error {
    Error::input(format!(
        "{}; if you remove this file of a finished run, the same sweep repeats the run",
        error.message
    ))
}

/// The first difference of two values, by name; for a set of parameters, the first one that differs.
fn difference(name: &str, found: &Value, value: &Value) -> Option<(String, Value, Value)> {
    if let (Some(found), Some(value)) = (found.as_object(), value.as_object()) {
        let null = Value::Null;
        let names: BTreeSet<&String> = found.keys().chain(value.keys()).collect();
        let of = |all: &'_ Map<String, Value>, name: &str| all.get(name).unwrap_or(&null).clone();
        return names.into_iter().find_map(|name| difference(name, &of(found, name), &of(value, name)));
    }
    let equal = found == value || found.as_f64().zip(value.as_f64()).is_some_and(|(a, b)| a == b);
    (!equal).then(|| (name.to_string(), found.clone(), value.clone()))
}
