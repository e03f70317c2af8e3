//! The preparation of the matrix in the run that made stored factors, applied to another matrix: scaling, threshold,
//! missing entries.

use std::path::Path;

use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_data::Stack;
use fednmf_driver::missing::{COLUMN_ORDER, HELD_OUT, HELD_OUT_OF_SPARSE, MARKS, Marks, ROW_ORDER};
use fednmf_files::features::FeatureChoice;
use fednmf_files::names::{Names, digest};
use fednmf_files::{InputSpec, Scale, Threshold};
use fednmf_methods::description::Description;
use fednmf_methods::distributed::divergence::volume::VolumeParams;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters;
use fednmf_methods::parameters::Missing;
use fednmf_methods::registry;
use fednmf_methods::shared::regularization::RegularizationParams;

/// The attribute of projected factors that names the method of the run that V is from.
pub const METHOD_OF_V: &str = "method_of_v";

/// The attribute of projected factors that counts the columns of the new matrix which V lacks: the projection ignored them.
pub const COLUMNS_IGNORED: &str = "columns_ignored";

/// The parameters that describe the matrix of a run, and so not another one on which its components are projected.
pub const OF_THE_DATA: [&str; 9] = [
    MARKS,
    ROW_ORDER,
    COLUMN_ORDER,
    HELD_OUT,
    HELD_OUT_OF_SPARSE,
    "observed_entries",
    "listed",
    "unobserved_rows",
    "unobserved_columns",
];

/// The `algo` of files that are not of one run; earlier versions did not add the method.
const OF_SEVERAL: [&str; 3] = ["project", "choose", "sweep"];

/// Parameters of the matrix that the files of a sweep have beside those of the method.
const OF_SWEEPS: [&str; 9] = [
    "transpose",
    "scale",
    "scale_divisor",
    "binarize",
    "binarize_threshold",
    "missing",
    "holdout",
    "feature_type",
    "highly_variable",
];

/// The attributes of a run with all of its parameters in `params`, also if it is one of a sweep.
pub fn with_all_params(mut attributes: Map<String, Value>) -> Map<String, Value> {
    let outside = OF_SWEEPS.iter().filter_map(|name| Some(((*name).to_string(), attributes.get(*name)?.clone())));
    let outside: Vec<(String, Value)> = outside.collect();
    if let Value::Object(params) = attributes.entry("params").or_insert_with(|| Map::new().into()) {
        for (name, value) in outside {
            params.entry(name).or_insert(value);
        }
    }
    attributes
}

/// A warning if a projection left out some of `n` columns, since the components have none of them.
pub fn warning_of_ignored(columns: u64, n: usize) -> Option<String> {
    (columns > 0).then(|| {
        format!(
            "an earlier projection ignored {columns} of these {n} columns, of which the components have none; the error counts them \
             too, with a fit of zero"
        )
    })
}

/// The parameters of a run that determine the matrix that was factorised.
#[derive(Debug, Clone)]
pub struct Provenance {
    pub method: Option<&'static Description>,
    /// The β of the divergence that the factors minimise, where they do not minimise the squared error.
    pub beta: Option<f64>,
    scale: Scale,
    binarize: Option<Threshold>,
    /// The least entry that became 1, where the run has kept it.
    least_one: Option<f64>,
    pub missing: Missing,
    /// The penalties on the factors.
    pub regularization: RegularizationParams,
    pub volume: VolumeParams,
    /// The weight of the penalty on the parties' own parts of V, where they have them.
    pub own_penalty: Option<f64>,
    /// Whether parties have components of their own instead of shared ones.
    personalized: bool,
    /// The share of the entries that were held out, and the seed that drew them.
    pub holdout: Option<(f64, u64)>,
    pub transpose: bool,
    /// The features that were used.
    pub features: FeatureChoice,
    /// Whether the columns are those that the files of all parties have.
    pub common_columns: bool,
    /// With this `--suppress-rare` rare entries were changed in the parties' data.
    pub suppressed: Option<usize>,
    /// How `{party}` files are combined.
    stack: Stack,
    /// Whether the user specified which entries are missing.
    pub own_missing: bool,
    /// Whether zeros were missing in the run, whatever the user specifies now.
    zeros_were_missing: bool,
    /// The checksum of the marks of `--missing FILE`, where it is known.
    marks: Option<String>,
    /// Whether the matrix was sparse, where entries were held out.
    sparse: Option<bool>,
    /// Digests of the names of rows and columns in the run, where entries were left out by their place.
    order: [Option<String>; 2],
    /// How many columns the projection ignored.
    pub columns_ignored: u64,
    /// Rows and columns of the matrix of the run.
    pub shape: [Option<u64>; 2],
    /// Why the factors, which are of Python, cannot be used together with a matrix.
    unusable: Option<&'static str>,
}

impl Provenance {
    /// Reads the parameters from the attributes of an output, or the start event of a trace, at `path`.
    ///
    /// # Errors
    /// If they make no sense.
    pub fn of(attributes: &Map<String, Value>, path: &Path) -> Result<Provenance> {
        let named = |name: &str| attributes.get(name).and_then(Value::as_str).and_then(registry::find);
        let method = named("algo").or_else(|| named(METHOD_OF_V)).map(|entry| entry.description());
        let wrong = |why: &str| Err(Error::input(format!("{}: {why}", path.display())));
        let algo =
            attributes.get("algo").filter(|algo| method.is_none() && !OF_SEVERAL.iter().any(|name| **algo == *name));
        if let Some(algo) = algo {
            return wrong(&format!(
                "its algo is {algo}, which is no method, so the loss of the factors is not known; 'fednmf list' shows the methods \
                 (kl-mu is for the Kullback-Leibler divergence, hals for the squared error)"
            ));
        }
        if attributes.get("params").is_some_and(|params| !params.is_object()) {
            return wrong("its params are no set of parameters as a run writes them; use the file as its run wrote it");
        }
        // The files of a sweep contain some of these parameters next to the method's.
        let parameter =
            |name: &str| attributes.get("params").and_then(|params| params.get(name)).or_else(|| attributes.get(name));
        let divisor = parameter("scale_divisor").and_then(Value::as_f64);
        if divisor.is_some_and(|divisor| !(divisor.is_finite() && divisor > 0.0)) {
            return wrong("its scale_divisor is no number above 0; use the file as its run wrote it");
        }
        let scaled = parameter("scale").is_some_and(|scale| scale == "max");
        let scale = match (scaled, divisor) {
            (false, _) => Scale::None,
            (true, Some(divisor)) => Scale::By(divisor),
            (true, None) => Scale::Max,
        };
        // A quantile became a threshold on the data of the run, and a number that of their precision.
        let threshold = parameter("binarize_threshold").and_then(Value::as_f64);
        let given = parameter("binarize").and_then(Threshold::from_json);
        let given = if let Some(Threshold::At(_)) = given { given } else { threshold.map(Threshold::At).or(given) };
        let in_f32 = parameter("precision").is_some_and(|precision| precision == "f32");
        let binarize = given.map(|threshold| if in_f32 { threshold.of_f32() } else { threshold });
        let missing = match parameter("missing").and_then(Value::as_str) {
            Some(text) => parameters::missing(text)
                .map_err(|must| Error::input(format!("{}: its --missing {text} must be {must}", path.display())))?,
            None => Missing::None,
        };
        let transpose = parameter("transpose").is_some_and(|value| value == true || value == 1);
        let seed = attributes.get("seed").and_then(Value::as_u64);
        let holdout = parameter("holdout").and_then(Value::as_f64).filter(|share| *share > 0.0).zip(seed);
        let by_columns = parameter("stack").is_some_and(|stack| stack == "columns");
        let of_method = method.map_or(Stack::Rows, |method| method.partition.stack());
        let stack = if by_columns { Stack::Columns } else { of_method };
        let beta = match method.map(|method| method.measure) {
            Some(Measure::Divergence) => Some(1.0),
            Some(Measure::BetaDivergence) => parameter("beta").and_then(Value::as_f64),
            _ => None,
        };
        if beta.is_none() && method.is_some_and(|method| method.measure == Measure::BetaDivergence) {
            return wrong("says that it is of a beta-divergence, but not of which: its params have no beta");
        }
        let regularization = RegularizationParams::from_parameters(parameter);
        let text = |name: &str| parameter(name).and_then(Value::as_str).map(str::to_string);
        Ok(Provenance {
            method,
            beta,
            scale,
            binarize,
            least_one: threshold,
            regularization,
            volume: VolumeParams { min_volume: parameter("min_volume").and_then(Value::as_f64).unwrap_or(0.0) },
            own_penalty: parameter("own_penalty").and_then(Value::as_f64),
            personalized: parameter("personalize").is_some_and(|value| *value == true || *value == 1),
            holdout,
            transpose,
            features: FeatureChoice::from_json(parameter),
            common_columns: parameter("common_columns").is_some_and(|value| *value == true || *value == 1),
            suppressed: parameter("suppress_rare").and_then(Value::as_u64).map(|least| least as usize),
            stack,
            own_missing: false,
            zeros_were_missing: missing == Missing::ZeroUnobserved,
            missing,
            marks: text(MARKS),
            order: [ROW_ORDER, COLUMN_ORDER].map(text),
            columns_ignored: attributes.get(COLUMNS_IGNORED).and_then(Value::as_u64).unwrap_or(0),
            shape: ["m", "n"].map(|name| attributes.get(name).and_then(Value::as_u64)),
            unusable: match (parameter("use_highly_variable"), parameter("beta_loss")) {
                (Some(some), _) if *some == true || *some == 1 => Some(
                    "fednmf.tl has factorised its highly variable genes alone; use fednmf.tl.project, or factorise \
                     adata[:, adata.var['highly_variable']].copy()",
                ),
                (_, Some(_)) if method.is_none() => Some(
                    "was written by an earlier fednmf.tl, which does not say by which loss; use fednmf.tl.project, or factorise it again",
                ),
                _ => None,
            },
            sparse: parameter(HELD_OUT_OF_SPARSE).map(|sparse| *sparse == true || *sparse == 1),
        })
    }

    /// Checks that the factors can be used together with a matrix.
    ///
    /// # Errors
    /// If it is not known from which columns they are, or by which loss.
    pub fn check_usable(&self, path: &Path) -> Result<()> {
        self.unusable.map_or(Ok(()), |why| Err(Error::input(format!("{}: {why}", path.display()))))
    }

    /// Reads the input as the run did: divisor, threshold, NaN and the stack of `{party}` files.
    pub fn apply(&self, input: &mut InputSpec) {
        input.scale = self.scale;
        input.binarize = self.binarize;
        input.allow_nan = self.missing == Missing::Nan;
        input.stack = self.stack;
        input.features = self.features.clone();
        input.common_columns = self.common_columns && input.by_party();
    }

    /// Whether each party has parts of V of its own, in its file.
    pub fn own_parts(&self) -> bool {
        self.own_penalty.is_some() || self.personalized
    }

    /// Refuses factors with own parts, for rows of no party.
    ///
    /// # Errors
    /// If they have them.
    pub fn check_one_v(&self, path: &Path) -> Result<()> {
        if self.own_parts() {
            return Err(Error::input(format!(
                "{}: each party has a part of V of its own, and new rows are no party's; factorise all rows together",
                path.display()
            )));
        }
        Ok(())
    }

    /// Whether the run made zeros and ones of its entries.
    pub fn is_binarized(&self) -> bool {
        self.binarize.is_some()
    }

    /// Whether the factors are Boolean.
    pub fn is_boolean(&self) -> bool {
        self.method.is_some_and(|method| method.is_boolean())
    }

    /// Whether some entries are missing or held out.
    pub fn has_missing(&self) -> bool {
        self.missing != Missing::None || self.holdout.is_some()
    }

    /// How `{party}` files are combined, in a word.
    pub fn stack(&self) -> &'static str {
        if self.stack == Stack::Columns { "columns" } else { "rows" }
    }

    /// Replaces the missing entries of the run by those that the user named, if any; otherwise the file that marks those of
    /// the run must still exist.
    ///
    /// # Errors
    /// If it does not.
    pub fn name_missing(&mut self, named: Option<&Missing>, path: &Path) -> Result<()> {
        if let Some(missing) = named {
            self.missing = missing.clone();
            self.own_missing = true;
        } else if let Some(file) = self.missing.marks()
            && !InputSpec::parse(file)?.files().iter().any(|file| file.exists())
        {
            return Err(Error::input(format!(
                "{}: the run left out the entries that {file} marks, and that file is not here (as seen from this directory); \
                 name it with --missing FILE",
                path.display()
            )));
        }
        Ok(())
    }

    /// Checks that the file of marks, possibly moved, has those of the run, which fitted all other entries; `orders` are as in
    /// [`Marks::agree_with`]. Collective.
    ///
    /// # Errors
    /// If it has not.
    pub fn check_marks(
        &self,
        file: &str,
        marks: &Marks,
        orders: [&dyn Fn(usize) -> usize; 2],
        comm: &Communicator,
    ) -> Result<()> {
        match &self.marks {
            Some(checksum) if !marks.agree_with(checksum, orders, comm) => Err(Error::input(format!(
                "{file}: marks other entries than in the run; name the file of the run with --missing FILE"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether entries were held out of the run, or marked as missing in it; entries that are marked only now were
    /// fitted.
    pub fn held_out(&self) -> bool {
        self.holdout.is_some() || self.marks.is_some() || !self.own_missing
    }

    /// Whether rows, and columns, of the stored factors are known to differ from those of the run, or in their order: the
    /// user may have sorted or selected the cells of a file since. The names of the factors are compared, or else those of
    /// the matrix.
    pub fn reordered(&self, factors: &Names, matrix: &Names, (m, n): (usize, usize)) -> [bool; 2] {
        let differs = |was: &Option<String>, names: [&Option<Vec<String>>; 2]| {
            let now = names.into_iter().flatten().next().map(|names| digest(names));
            was.as_ref().zip(now).is_some_and(|(was, now)| *was != now)
        };
        let resized = |was: Option<u64>, now: usize| was.is_some_and(|was| was != now as u64);
        [
            differs(&self.order[0], [&factors.rows, &matrix.rows]) || resized(self.shape[0], m),
            differs(&self.order[1], [&factors.columns, &matrix.columns]) || resized(self.shape[1], n),
        ]
    }

    /// Refuses factors whose rows or columns are no longer those of the run in their order (`reordered`), if entries were
    /// held out, since these were drawn by position.
    ///
    /// # Errors
    /// If they were.
    pub fn check_places(&self, path: &Path, reordered: [bool; 2]) -> Result<()> {
        let what = match reordered {
            [true, true] => "rows and columns are",
            [true, false] => "rows are",
            [false, true] => "columns are",
            [false, false] => return Ok(()),
        };
        match self.holdout {
            Some(_) => Err(Error::input(format!(
                "{}: its {what} not those of the run in their order (the file was sorted or cut since), so it is not known \
                 which entries were held out; give the factors as the run wrote them, with their matrix",
                path.display()
            ))),
            None => Ok(()),
        }
    }

    /// Checks that a matrix is stored, and its zeros are interpreted, as in the run: the draw of the held-out entries
    /// depends on both.
    ///
    /// # Errors
    /// If it is not.
    pub fn check_form(&self, path: &Path, sparse: bool) -> Result<()> {
        let form = |sparse: bool| if sparse { "sparse" } else { "dense" };
        match self.sparse.filter(|_| self.holdout.is_some()) {
            Some(was) if was != sparse => Err(Error::input(format!(
                "{}: the run held out entries of a {} matrix, and of a {} one it would be others; give the matrix in \
                 the format of the run",
                path.display(),
                form(was),
                form(sparse)
            ))),
            // For sparse data with observed zeros, other entries are drawn.
            _ if self.holdout.is_some()
                && sparse
                && self.zeros_were_missing != (self.missing == Missing::ZeroUnobserved) =>
            {
                let (was, now) = if self.zeros_were_missing { ("", "observed") } else { ("not ", "missing") };
                Err(Error::input(format!(
                    "{}: the run held out entries of a sparse matrix whose zeros were {was}missing, and with {now} zeros it \
                     would be others; omit --missing, which is then that of the run",
                    path.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// An entry of the data as the run saw it; `None` if the threshold of --binarize is not known.
    pub fn seen(&self, entry: f64) -> Option<f64> {
        let divisor = if let Scale::By(divisor) = self.scale { divisor } else { 1.0 };
        let Some(threshold) = self.binarize else { return Some(entry) };
        let least = self.least_one.or(threshold.given())?;
        Some(f64::from(u8::from(entry / divisor >= least)))
    }

    /// The largest entry, by which the run divided its matrix; 1 if it did not.
    ///
    /// # Errors
    /// If the file does not contain it.
    pub fn unit(&self, path: &Path) -> Result<f64> {
        self.check_divisor(path)?;
        // Zeros and ones have no unit.
        Ok(if let (Scale::By(divisor), None) = (self.scale, self.binarize) { divisor } else { 1.0 })
    }

    /// Refuses to scale a matrix like that of the run if the divisor is unknown.
    ///
    /// # Errors
    /// If it is.
    pub fn check_divisor(&self, path: &Path) -> Result<()> {
        if self.scale == Scale::Max {
            return Err(Error::input(format!(
                "{}: the factors were made with --scale max by a version that did not keep the divisor; factorise again",
                path.display()
            )));
        }
        Ok(())
    }

    /// Refuses a square matrix in an orientation other than that of the run, which its shape does not show.
    ///
    /// # Errors
    /// If `--transpose` (`typed`) is missing or superfluous.
    pub fn check_orientation(&self, path: &Path, (m, n): (usize, usize), typed: bool) -> Result<()> {
        if m == n && self.transpose != typed {
            let (was, now) = if self.transpose { ("with", "add") } else { ("without", "omit") };
            return Err(Error::input(format!(
                "{}: the factors were made {was} --transpose; {now} it, since a square matrix fits either way",
                path.display()
            )));
        }
        Ok(())
    }

    /// A description of the applied preparation, with the number of entries that are `held` out; empty if there was
    /// none.
    pub fn note(&self, held: Option<f64>) -> String {
        let mut applied = Vec::new();
        match self.scale {
            Scale::None => {}
            Scale::Max => applied.push("divided by its largest entry".to_string()),
            Scale::By(divisor) => applied.push(format!("divided by {divisor}")),
        }
        match self.binarize {
            Some(Threshold::At(t)) => applied.push(format!("entries from {t} on set to 1, others to 0")),
            Some(Threshold::Quantile(q)) => {
                applied.push(format!("entries from the quantile {q} on set to 1, others to 0"))
            }
            None => {}
        }
        match &self.missing {
            Missing::None => {}
            Missing::Nan => applied.push("NaN taken as missing".into()),
            Missing::ZeroUnobserved => applied.push("zeros taken as missing".into()),
            Missing::Marks(file) => applied.push(format!("entries marked in {file} taken as missing")),
        }
        // On sparse data it may be less than the requested share.
        if let (Some((share, _)), Some(held)) = (self.holdout, held) {
            let marked = if matches!(self.missing, Missing::Marks(_)) { "marked, or " } else { "" };
            applied.push(format!("{held} entries {marked}held out by --holdout {share}"));
        }
        let from = if self.own_missing { "" } else { "as in the run: " };
        if applied.is_empty() { String::new() } else { format!("{from}{}", applied.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Files that other programs wrote or changed.
    #[test]
    fn a_file_that_does_not_tell_its_loss_is_refused() {
        let read = |about: Value| {
            let Value::Object(about) = about else { unreachable!() };
            Provenance::of(&about, Path::new("F.npz")).map(|run| run.beta).map_err(|e| e.message)
        };
        assert_eq!(read(json!({})), Ok(None));
        assert_eq!(read(json!({"algo": "project"})), Ok(None));
        for kl in ["kl-mu", "KL-MU", "kl-cd", "fed-kl"] {
            assert_eq!(read(json!({"algo": kl})), Ok(Some(1.0)), "{kl}");
        }
        assert_eq!(read(json!({"algo": "sweep", METHOD_OF_V: "kl-mu"})), Ok(Some(1.0)));
        assert_eq!(read(json!({"algo": "beta-mu", "params": {"beta": 0.5}})), Ok(Some(0.5)));
        for (about, why) in [
            (json!({"algo": "kullback-leibler"}), "is no method"),
            (json!({"algo": "kl-mu "}), "is no method"),
            (json!({"algo": ""}), "is no method"),
            (json!({"algo": 7}), "is no method"),
            (json!({"algo": "beta-mu"}), "have no beta"),
            (json!({"algo": "hals", "params": []}), "no set of parameters"),
            (json!({"algo": "hals", "params": "{"}), "no set of parameters"),
            (json!({"algo": "hals", "params": null}), "no set of parameters"),
            (json!({"algo": null}), "is no method"),
            (json!({"algo": "hals", "params": {"scale_divisor": 0}}), "no number above 0"),
        ] {
            let found = read(about).unwrap_err();
            assert!(found.starts_with("F.npz: ") && found.contains(why), "{found}");
        }
    }
}
