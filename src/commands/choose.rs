//! `fednmf choose`: the number of components that finished runs support, by the rules of `fednmf sweep`. It reads results and no
//! data, so each site of a run between institutions can do it by itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use ndarray::Array2;
use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::{print, print_line};
use fednmf_base::unfinished::Access;
use fednmf_base::units::precise;
use fednmf_comm::Communicator;
use fednmf_data::state::Piece;
use fednmf_driver::model_selection::{Choice, Errors, Matched, Point, Spectra, Stability, choose as choose_k, point};
use fednmf_files::output::attributes;
use fednmf_files::output::matrices::{self, Annotations, SET, Stored};
use fednmf_files::output::targets::{self, Content, Target};
use fednmf_methods::description::{Description, Partition};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::registry;
use fednmf_methods::shared::disclosure::{DisclosureParams, Duration, OpenedSums, PrivatePart, Risk};
use fednmf_methods::shared::dp::DpParams;

use super::provenance::{METHOD_OF_V, with_all_params};

/// `fednmf choose`.
#[derive(Debug, Args)]
pub struct ChooseArgs {
    /// Outputs of runs of one method on the same data: several k, and for each several seeds (.h5, .h5ad, .npz)
    #[arg(required = true, value_name = "F.h5")]
    pub runs: Vec<PathBuf>,
    /// Write the consensus of the runs with the chosen k: the mean of each component over the runs. 'fednmf project' fits the
    /// other factor to it
    #[arg(short = 'o', long, value_name = "F.h5")]
    pub output: Option<PathBuf>,
    /// Leave out outlying components, as cNMF: those whose mean distance to their nearest neighbours, as many as 0.3 of the runs, is
    /// not below D. The consensus has the medians of clusters of the others (k-means) [default: means of all, matched one to one]
    #[arg(long, value_name = "D", value_parser = distance, requires = "output")]
    pub density_threshold: Option<f64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn distance(text: &str) -> std::result::Result<f64, String> {
    let parsed = text.parse().ok().filter(|d: &f64| *d > 0.0 && *d <= 2.0);
    parsed.ok_or_else(|| "must be a number above 0 and at most 2, such as 0.5".to_string())
}

/// What has to be equal in all runs.
const ALIKE: [&str; 6] = ["algo", "m", "n", "parties", "lost", "resample"];
/// The same, of the parameters: what determines the matrix, the loss and the noise.
const ALIKE_PARAMETERS: [&str; 21] = [
    "suppress_rare",
    "holdout",
    "transpose",
    "scale",
    "binarize",
    "feature_type",
    "highly_variable",
    "common_columns",
    "missing",
    "beta",
    "alpha_u",
    "alpha_v",
    "l1_ratio",
    "min_volume",
    "own_penalty",
    "personalize",
    "symmetry_weight",
    "dp",
    "dp_noise",
    "epsilon",
    "clip",
];

/// A finished run.
pub struct Run<'a> {
    pub path: &'a Path,
    attributes: Map<String, Value>,
    /// The factor that all parties share, and the names of its rows.
    pub shared: Array2<f64>,
    pub names: Option<Vec<String>>,
    /// Whether the vectors that `project` fits are columns of the input.
    pub by_columns: bool,
    errors: Errors,
    /// Whether `errors.rmse` is relative to the norm of the data, which runs between owners do not tell.
    is_relative: bool,
    /// The method, with the parameters of the run.
    pub method: Arc<dyn ConfiguredMethod>,
}

/// The factor that all parties know: the components are its columns.
fn shared_factor(method: &Description) -> &'static str {
    if method.partition == Partition::PartyColumns { "U" } else { "V" }
}

impl<'a> Run<'a> {
    /// Reads the output of a run.
    ///
    /// # Errors
    /// If the file is none.
    pub fn read(path: &'a Path) -> Result<Run<'a>> {
        let wrong = |why: &str| Error::input(format!("{}: {why}", path.display()));
        let stored = Stored::open_factors(path)?;
        let attributes = with_all_params(stored.attributes().clone());
        let method = attributes.get("algo").and_then(Value::as_str).and_then(registry::find);
        let Some(method) = method else {
            return Err(wrong("is not the output of a run; give files that runs wrote with --output"));
        };
        let parameter = |name: &str| match attributes.get("params")?.get(name)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let method = method.recorded(&parameter);
        let factor = shared_factor(method.description());
        let mut shared = Array2::zeros(stored.matrix(factor)?);
        stored.as_f64(factor, 0, shared.view_mut())?;
        let value = |name: &str| attributes.get(name).and_then(Value::as_f64).filter(|error| error.is_finite());
        let mut errors = Errors::named(value);
        errors.rmse = errors.rmse.or_else(|| value("rmsd_overall"));
        let is_relative = errors.rmse.is_none();
        errors.rmse = errors.rmse.or_else(|| value("rel_error"));
        let names = if factor == "V" { stored.names().columns } else { stored.names().rows };
        let transposed = parameter("transpose").is_some_and(|value| value == "true" || value == "1");
        let by_columns = (factor == "U") != transposed;
        Ok(Run { path, shared, names, by_columns, errors, is_relative, method, attributes })
    }

    /// Whether the run measured what it minimised.
    fn has_error(&self) -> bool {
        self.errors.rmse.is_some() || self.errors.divergence.is_some()
    }

    /// Whether noise was added to what it sent.
    fn has_noise(&self) -> bool {
        self.method.groups().dp.is_some_and(DpParams::is_on)
    }

    /// A number among the attributes, or among the parameters.
    fn count(&self, name: &str) -> usize {
        let attribute = self.attributes.get(name).or_else(|| self.attributes.get("params")?.get(name));
        attribute.and_then(Value::as_u64).map_or(0, |count| count as usize)
    }

    /// The number of vectors in the exact sums over private rows or columns that the run opened.
    fn opened_vectors(&self) -> usize {
        let run = Duration { iterations: self.count("iterations"), eval_every: self.count("eval_every") };
        let sums = self.method.opened_sums().filter(|_| !self.has_noise());
        sums.map_or(0, |sums| sums.over(run)) * self.shared.ncols()
    }

    /// Refuses runs that cannot be compared.
    ///
    /// # Errors
    /// Naming what differs.
    pub fn check_like(&self, other: &Run<'_>) -> Result<()> {
        let parameter = |run: &Run<'_>, name: &str| run.attributes.get("params").and_then(|all| all.get(name)).cloned();
        let of_run = ALIKE.into_iter().map(|name| (name, [other, self].map(|run| run.attributes.get(name).cloned())));
        let of_method = ALIKE_PARAMETERS.into_iter().map(|name| (name, [other, self].map(|run| parameter(run, name))));
        // Of the data; parties keep theirs.
        let of_data = [("checksum", [other, self].map(|run| run.attributes.get("checksum").cloned()))];
        let shown = |value: &Option<Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(value) if !value.is_null() => value.to_string(),
            _ => "none".into(),
        };
        if self.has_error() != other.has_error() {
            let (with, without) = if self.has_error() { (self, other) } else { (other, self) };
            return Err(Error::input(format!(
                "{}: has no error, since its run had --eval-every 0, and {} has one; give runs that all have errors, or none",
                without.path.display(),
                with.path.display()
            )));
        }
        // Files of a sweep do not have these.
        let unknown = |name: &str, [a, b]: &[Option<Value>; 2]| {
            ["m", "n", "parties"].contains(&name) && (a.is_none() || b.is_none())
        };
        let differ = |(name, values): &(&str, [Option<Value>; 2])| {
            shown(&values[0]) != shown(&values[1]) && !unknown(name, values)
        };
        let difference = of_run.chain(of_method).chain(of_data).find(differ);
        let difference =
            difference.map(|(name, [a, b])| format!("{name} is {} there and {} here", shown(&a), shown(&b)));
        let names = || (self.names != other.names).then(|| "the names are others".to_string());
        match difference.or_else(names) {
            Some(how) => Err(Error::input(format!(
                "{}: cannot be compared with {}: {how}; give runs of one method on the same data",
                self.path.display(),
                other.path.display()
            ))),
            None => Ok(()),
        }
    }
}

/// A warning if the sums of all runs together tell more of private rows or columns than those of one run may.
fn opened_together(runs: &[&Run<'_>]) -> Option<String> {
    let first = *runs.first()?;
    let (m, n) = (first.count("m"), first.count("n"));
    let (all, length, what) = match first.method.description().partition {
        Partition::PartyRows => (m, n, "rows"),
        Partition::PartyColumns => (n, m, "columns"),
        _ => return None,
    };
    let parties = first.count("parties").max(1);
    // How the parties divide them is not known: even parts hide the most.
    let counts: Vec<usize> = (0..parties).map(|party| all / parties + usize::from(party < all % parties)).collect();
    let vectors: usize = runs.iter().map(|run| run.opened_vectors()).sum();
    let summed = first.method.participants(parties);
    let part = PrivatePart {
        counts: &counts,
        length,
        k: vectors,
        masked: first.method.masks_sums(),
        summed,
        left: parties,
        what,
        instead: &[],
    };
    let limits = first.method.groups().disclosure?;
    // Only the number of vectors counts.
    let limits = DisclosureParams { accept_risk: Risk::FewRows.into(), ..limits.clone() };
    let found = limits.check(&part, Some(OpenedSums::AtEvaluations), Duration { iterations: 0, eval_every: 0 });
    found.filter(|_| vectors > 0).map(|_| {
        let one = what.trim_end_matches('s');
        format!(
            "the sums of these {} runs together give others {} vectors in the space of the {what} that they do not have, more than a \
             tenth of these, which is the limit of one run: they may let them tell whether a {one} is among these; next time make \
             fewer runs, with fewer iterations, or add noise (--dp)",
            runs.len(),
            vectors.min(length)
        )
    })
}

/// The consensus of the runs with one k (n × k), and the number of outlying components that are left out of it.
///
/// # Errors
/// If there are too few runs to tell which are outlying, or too few components are left.
fn consensus_of(components: &[Array2<f64>], threshold: Option<f64>) -> Result<(Array2<f64>, Option<usize>)> {
    let Some(threshold) = threshold else {
        return Ok((Matched::new(components).as_ref().map(Matched::means).unwrap_or_default(), None));
    };
    let (spectra, clusters) = Spectra::kept(components, threshold)?;
    Ok((clusters.kept.reversed_axes().as_standard_layout().into_owned(), Some(spectra.outlying(threshold))))
}

/// Reads runs that can be compared, by k. Files of the parties of one run count as one.
///
/// # Errors
/// If a file cannot be read, or the runs are not of one kind.
pub fn read_runs(paths: &[PathBuf]) -> Result<BTreeMap<usize, Vec<Run<'_>>>> {
    let runs = paths.iter().map(|path| Run::read(path)).collect::<Result<Vec<_>>>()?;
    runs.iter().skip(1).try_for_each(|run| run.check_like(&runs[0]))?;
    let mut by_k = BTreeMap::<usize, Vec<Run<'_>>>::new();
    for run in runs {
        let alike = by_k.entry(run.shared.ncols()).or_default();
        // `*.h5` names the files of the parties of a run too.
        let set = run.attributes.get(SET);
        if set.is_some() && alike.iter().any(|other| other.attributes.get(SET) == set) {
            continue;
        }
        // Of other seeds they may be the same to the bit, where both have converged; from one file they always are.
        let init = run.attributes.get("params").and_then(|all| all["init"].as_str()).unwrap_or("auto").to_string();
        let is_drawn = ["auto", "random", "sampled", "compressed", "nndsvdar"].contains(&init.as_str());
        let is_same =
            |other: &&Run<'_>| other.shared == run.shared && (!is_drawn || other.count("seed") == run.count("seed"));
        if let Some(other) = alike.iter().find(is_same) {
            return Err(Error::input(format!(
                "{} and {} have the same components: they are one run; give each run a --seed of its own",
                other.path.display(),
                run.path.display()
            )));
        }
        alike.push(run);
    }
    Ok(by_k)
}

/// The error if nothing can be recommended, with what follows from it.
fn none_stable(follows: &str, noised: bool) -> Error {
    let instead = match noised {
        true => "noise hides them: take a larger epsilon, fewer and smaller k, or more rows",
        false => "run more seeds of each k, with more iterations, or smaller k",
    };
    Error::failed(format!("choose: no k has stable components{follows}; {instead}"))
}

/// Chooses. On one rank.
///
/// # Errors
/// If a file cannot be read, the runs are not of one kind, or no k is stable.
pub fn choose(args: &ChooseArgs, comm: &Communicator) -> Result<i32> {
    if comm.size() > 1 {
        return Err(Error::input("choose: works on one rank; start it without mpirun").on_all_ranks().into());
    }
    if let Some(path) = &args.output {
        let sources: Vec<_> = args.runs.iter().map(|run| ("F.h5", run.clone())).collect();
        targets::check(&[Target { option: "--output", path, content: Content::Factors }], &sources)?;
    }
    let by_k = read_runs(&args.runs)?;
    let first = by_k.values().flatten().next().expect("at least one run");
    let largest = ["m", "n"].iter().filter_map(|name| first.attributes.get(*name)?.as_u64()).min().unwrap_or(u64::MAX);
    let components = |k: usize| by_k[&k].iter().map(|run| run.shared.clone()).collect::<Vec<_>>();
    let of = |(k, runs): (&usize, &Vec<Run<'_>>)| {
        point(*k, &runs.iter().map(|run| run.errors).collect::<Vec<_>>(), &components(*k))
    };
    let points: Vec<Point> = by_k.iter().map(of).collect();
    let choice = choose_k(&points, usize::try_from(largest).unwrap_or(usize::MAX));
    let mut warnings = choice.as_ref().map(|choice| choice.warnings.clone()).unwrap_or_default();
    warnings.extend(opened_together(&by_k.values().flatten().collect::<Vec<_>>()));
    let consensus = args.output.as_deref().zip(choice.as_ref());
    let mut left_out = None;
    if let Some((path, choice)) = consensus {
        let k = choice.of_consensus();
        let (centres, outlying) = consensus_of(&components(k), args.density_threshold)?;
        left_out = outlying;
        write(path, &by_k[&k][0], &centres, by_k[&k].len(), comm)?;
    }
    let written = consensus.map(|(path, choice)| (path, choice.of_consensus()));
    let by_columns = by_k.values().flatten().any(|run| run.by_columns);
    let noised = by_k.values().flatten().any(Run::has_noise);
    if args.json {
        let is_relative = by_k.values().flatten().any(|run| run.is_relative);
        let all = json!({
            "points": points.iter().map(|point| in_json(point, is_relative)).collect::<Vec<_>>(),
            "recommended": choice.as_ref().map(|choice| choice.k),
            "for_prediction": choice.as_ref().and_then(|choice| choice.prediction),
            "for_interpretation": choice.as_ref().and_then(|choice| choice.interpretation),
            "reasons": choice.as_ref().map_or_else(|| vec!["no k has stable components".to_string()], |choice| choice.reasons.clone()),
            "warnings": warnings, "consensus": written.map(|(path, _)| path), "consensus_k": written.map(|(_, k)| k),
            "left_out": left_out,
        });
        print_line(&all.to_string())?;
    } else {
        print(&text(&points, (choice.as_ref(), &warnings), written.map(|(path, k)| (path, k, by_columns)), left_out))?;
    }
    match (&choice, &args.output) {
        (Some(_), _) => Ok(EXIT_DONE),
        (None, Some(path)) => Err(none_stable(&format!(", so {} is not written", path.display()), noised)),
        (None, None) => Err(none_stable("", noised)),
    }
}

/// Writes the consensus as V, with the attributes of one of its runs, from which `project` prepares a matrix.
fn write(path: &Path, run: &Run<'_>, means: &Array2<f64>, count: usize, comm: &Communicator) -> Result<()> {
    let mut all = attributes::provenance();
    let kept = ["params", "precision", "parties"];
    all.extend(kept.iter().filter_map(|name| Some(((*name).to_string(), run.attributes.get(*name)?.clone()))));
    let more = json!({
        "algo": "choose", METHOD_OF_V: run.attributes["algo"], "n": means.nrows(), "k": means.ncols(), "runs": count,
    });
    all.extend(more.as_object().cloned().unwrap_or_default());
    let owner_only = Access::as_of([run.path]) == Access::OwnerOnly;
    let annotations = Annotations { columns: run.names.clone(), owner_only, ..Annotations::default() };
    let pieces = [Piece::shared("V", means.nrows(), 0, means.view())];
    Ok(matrices::write_factors(comm, path, &pieces, &all, &annotations)?)
}

/// A point as JSON, with relative errors under their own names.
fn in_json(point: &Point, is_relative: bool) -> Value {
    let mut shown = json!(point);
    if let (true, Some(fields)) = (is_relative, shown.as_object_mut()) {
        for (name, relative) in [("rmse", "rel_error"), ("rmse_error", "rel_error_error")] {
            let value = fields.remove(name).unwrap_or_default();
            fields.insert(relative.into(), value);
        }
    }
    shown
}

/// The table and the recommendation, and how to go on from the consensus.
fn text(
    points: &[Point],
    (choice, warnings): (Option<&Choice>, &[String]),
    consensus: Option<(&Path, usize, bool)>,
    left_out: Option<usize>,
) -> String {
    let mut out = String::new();
    let number = |x: Option<f64>| x.map_or_else(|| "-".to_string(), |x| format!("{x:.4}"));
    let by_divergence = points.iter().any(|p| p.divergence.is_some());
    let error = if by_divergence { "divergence" } else { "error" };
    let _ = writeln!(
        out,
        "{:>6}  {:>4}  {error:>12}  {:>10}  {:>10}  {:>10}",
        "k", "runs", "silhouette", "least", "cosine"
    );
    for p in points {
        let error = if by_divergence { p.divergence } else { Some(p.rmse).filter(|error| error.is_finite()) };
        let stable = |of: fn(&Stability) -> f64| number(p.stability.as_ref().map(of));
        let _ = writeln!(
            out,
            "{:>6}  {:>4}  {:>12}  {:>10}  {:>10}  {:>10}",
            p.k,
            p.runs,
            error.map_or_else(|| "-".to_string(), precise),
            stable(|s| s.mean),
            stable(|s| s.least),
            stable(|s| s.cosine)
        );
    }
    match choice {
        Some(choice) => {
            let _ = writeln!(out, "\nrecommended: k = {}. {}", choice.k, choice.explanation());
        }
        None => out.push_str("\nrecommended: none\n"),
    }
    warnings.iter().for_each(|warning| {
        let _ = writeln!(out, "warning: {warning}");
    });
    if let Some(count) = left_out {
        let _ = writeln!(out, "\noutlying components that are left out of the consensus: {count}");
    }
    if let Some((path, k, by_columns)) = consensus {
        let transposed = if by_columns { " --transpose" } else { "" };
        let _ = writeln!(
            out,
            "\nThe consensus of the runs with k = {k} is in {0}. Each owner fits the weights of their own data to \
             it:\n\nfednmf project {0} --input DATA{transposed} --output weights.h5",
            path.display()
        );
    }
    out
}
