//! `fednmf audit report`: what output checkers ask of factors before they leave a site, in the words of SACRO-ML's reports: a
//! structural attack, and attacks that infer membership from the shared factor. As in its `report.json`, each attack is an entry of
//! its own, which its readers look for.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;
use ndarray::{Array2, ArrayView2, Axis};
use serde_json::{Map, Value, json};

use fednmf_audit::membership::{auc, chance_of, misfits};
use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print;
use fednmf_base::warning::{note, warn};
use fednmf_comm::Communicator;
use fednmf_driver::progress::Progress;
use fednmf_files::TableOptions;
use fednmf_files::names;
use fednmf_files::output::attributes;
use fednmf_linalg::Block;
use fednmf_linalg::nls;

use crate::cli::parameters::Group;
use crate::commands::matched_input::{MatchedInput, OpenedInput, Order, StoredFactors, spec_of, whole};
use crate::commands::provenance::Provenance;

/// Arguments of `fednmf audit report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Files of --output
    #[arg(required = true, value_name = "RESULT")]
    pub results: Vec<PathBuf>,
    /// This party's data of the run; they stay here, and no row of them is in the report. Columns are matched by name
    #[arg(short = 'i', long, value_name = "PATH")]
    pub input: String,
    /// Rows (or columns) like those of the run that were in nobody's data, for the attacks that infer membership.
    /// Columns are matched by name: it has all those of V, and others are ignored. Without names it has the same columns
    #[arg(long, value_name = "PATH")]
    pub others: Option<String>,
    #[command(flatten)]
    pub table: Group<TableOptions>,
    /// Least number of rows that carry a component, and by which rows exceed components
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub threshold: usize,
}

/// Scores rows (c × n) by the shared factor (n × k), lower for those that were in the data.
type Score = fn(&ArrayView2<'_, f64>, &ArrayView2<'_, f64>) -> Vec<f64>;

/// The keys of the attacks.
const STRUCTURE: &str = "StructuralAttack";
const MEMBERSHIP: &str = "MembershipAttack";
const NEAREST: &str = "NearestRecordAttack";

/// The probability of a chance success below which an attack counts as one that works.
const UNLIKELY: f64 = 0.05;

/// The share of a component's weight that is carried by the rows that count for it.
const CARRIED: f64 = 0.9;

/// Prints the report: as text on a terminal, and as JSON to a file or a pipe; rank 0 makes it. Collective.
///
/// # Errors
/// If factors or data cannot be read, or do not fit.
pub fn report(args: &ReportArgs, comm: &Communicator) -> Result<i32> {
    let text = comm.agree_on_error(if comm.is_root() { on_rank_0(args) } else { Ok(String::new()) })?;
    if comm.is_root() {
        print(&text)?;
    }
    Ok(EXIT_DONE)
}

fn on_rank_0(args: &ReportArgs) -> Result<String> {
    let found = args.results.iter().map(|path| Ok((path, of_result(args, path)?))).collect::<Result<Vec<_>>>()?;
    if std::io::stdout().is_terminal() {
        return Ok(found.iter().map(|(path, entries)| in_words(path, entries)).collect());
    }
    let mut all = Map::new();
    for (path, entries) in found {
        all.extend(entries.into_iter().map(|(name, entry)| (format!("{name}_{}", path.display()), entry)));
    }
    Ok(serde_json::to_string_pretty(&all).expect("plain data") + "\n")
}

/// The entries on one result as lines for people, and what speaks against its release.
fn in_words(path: &Path, entries: &Map<String, Value>) -> String {
    let entry = |name: &str| entries.get(name).unwrap_or(&Value::Null);
    let figures = |attack: &str| &entry(attack)["attack_experiment_logger"]["attack_instance_logger"]["instance_0"];
    let (target, structure) = (entry("target"), figures(STRUCTURE));
    let records = target["records"].as_str().unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let (mut against, mut untested) = (Vec::new(), false);
    let mut out = format!(
        "{}: {}, k = {}, {} parties\n  {} {records} of this site, {} more than components\n",
        path.display(),
        text(&target["model_name"]),
        target["k"],
        target["parties"],
        structure["n_rows"],
        structure["residual_dof"]
    );
    if structure["DoF_risk"] == 1 {
        against.push(format!("{records} exceed the components by less than {}", structure["threshold"]));
    }
    let carriers = structure["rows_per_component"].as_array().into_iter().flatten();
    let carriers: Vec<String> = carriers.map(Value::to_string).collect();
    let _ = writeln!(out, "  {records} that carry {:.0} % of each component: {}", 100.0 * CARRIED, carriers.join(", "));
    if structure["k_anonymity_risk"] == 1 {
        let below = structure["components_below_threshold"].as_array().into_iter().flatten();
        let below: Vec<String> = below.map(Value::to_string).collect();
        let threshold = &structure["threshold"];
        against.push(format!("fewer than {threshold} {records} carry component {}", below.join(", ")));
    }
    for (attack, what) in [(MEMBERSHIP, "by the fit"), (NEAREST, "by the nearest component")] {
        let found = figures(attack);
        let Some((auc, chance)) = found["AUC"].as_f64().zip(found["P_HIGHER_AUC"].as_f64()) else {
            untested = true;
            let _ =
                writeln!(out, "  membership {what}: not tested; --others names {records} that were in nobody's data");
            continue;
        };
        let _ = writeln!(out, "  membership {what}: AUC {auc:.2}; by chance as high with probability {chance:.2}");
        if chance < UNLIKELY {
            against.push(format!("membership {what} is guessed better than by chance"));
        }
    }
    match against[..] {
        [] if untested => out.push_str("Membership was not tested: give --others.\n"),
        [] => out.push_str("Nothing that was tested speaks against a release. Other attacks may find more.\n"),
        _ => {
            let _ = writeln!(out, "Do not release: {}.", against.join("; "));
        }
    }
    if let Some(risks) = target["accept_risk"].as_str() {
        let _ = writeln!(out, "Do not release if nobody agreed to the risks that the run accepted: {risks}.");
    }
    out
}

/// The entries on one result, by name.
fn of_result(args: &ReportArgs, path: &Path) -> Result<Map<String, Value>> {
    let factors = StoredFactors::open(path)?;
    if factors.run.has_missing() {
        return Err(Error::input(format!(
            "{}: is of a run with missing entries, which the attacks do not know",
            path.display()
        )));
    }
    // The parties have rows, and V is shared, or the other way round.
    let by_columns = factors.run.stack() == "columns";
    let shared = whole(&factors.factor(if by_columns { "U" } else { "V" })?)?;
    let (own, weights) = own_records(args, &factors, &shared, by_columns).map_err(|e| e.at("--input"))?;
    let others = args.others.as_deref().map(|name| {
        let mut factors = StoredFactors::open(path)?;
        // The names of V choose the genes of another matrix.
        factors.run.features.highly_variable = Some(false);
        let input = opened(&factors, name, &args.table.0)?;
        new_records(input, name, &factors, (by_columns, shared.nrows()))
    });
    let others = others.transpose().map_err(|e| e.at("--others"))?;
    let (own, shared) = (own.view(), shared.view());
    // As they are in the file.
    let records = if by_columns == factors.run.transpose { "rows" } else { "columns" };
    if by_columns {
        let of_all = if factors.run.transpose { "columns" } else { "rows" };
        warn(&format!(
            "{}: U has a row for each of the {} {of_all} of your file, and all sites have it. If {of_all} are persons, it is \
             personal data. The figures are about the {} {records} of your file",
            path.display(),
            shared.nrows(),
            own.nrows()
        ));
    }
    let mut all = Map::new();
    let asked = json!({"threshold": args.threshold});
    all.insert(STRUCTURE.into(), attack("Structural attack", &asked, structure(&weights, args.threshold)));
    let attacks: [(&str, &str, Score); 2] = [
        (MEMBERSHIP, "Membership: rows that the shared factor fits better were in the data", misfits),
        (NEAREST, "Nearest record: rows that are nearer to a component were in the data", distances),
    ];
    for (key, name, score) in attacks {
        let scores = score(&own, &shared);
        let against = others.as_ref().map(|others| score(&others.view(), &shared));
        let found = against.as_ref().and_then(|against| auc(&scores, against));
        let (count, against) = (scores.len(), against.map_or(0, |against| against.len()));
        let by_chance = found.map(|auc| chance_of(auc, count, against));
        let figures = json!({"AUC": found, "P_HIGHER_AUC": by_chance, "n_pos_test_examples": count, "n_neg_test_examples": against});
        all.insert(key.into(), attack(name, &json!({}), figures));
    }
    let attributes = factors.stored.attributes();
    let given = |name: &str| attributes.get(name).cloned().unwrap_or(Value::Null);
    let option =
        |name: &str| attributes.get("params").and_then(|params| params.get(name)).cloned().unwrap_or(Value::Null);
    all.insert(
        "target".into(),
        json!({"records": records, "model_name": given("algo"), "k": given("k"), "parties": given("parties"), "iterations": given("iterations"),
               "secure_sum": option("secure_sum"), "dp": option("dp"), "accept_risk": option("accept_risk"),
               "privacy": given("privacy")}),
    );
    Ok(all)
}

/// An attack with its settings and figures.
fn attack(name: &str, asked: &Value, figures: Value) -> Value {
    json!({"log_time": attributes::now(), "metadata": {"attack_name": name, "attack_params": asked, "global_metrics": {}},
           "attack_experiment_logger": {"attack_instance_logger": {"instance_0": figures}}})
}

/// How many rows stand behind the components, by their weights (c × k).
fn structure(weights: &Array2<f64>, threshold: usize) -> Value {
    let (c, k) = weights.dim();
    let carriers: Vec<usize> = weights.columns().into_iter().map(|column| carriers(column.to_vec())).collect();
    let few = |count: &usize| *count < threshold;
    json!({
        "n_rows": c,
        "parameters_per_row": k as f64 / c as f64,
        "residual_dof": c as i64 - k as i64,
        "DoF_risk": u8::from(c < k + threshold),
        "k_anonymity_risk": u8::from(carriers.iter().any(few)),
        "threshold": threshold,
        "rows_per_component": carriers,
        "components_below_threshold": (0..k).filter(|&l| few(&carriers[l])).collect::<Vec<_>>(),
    })
}

/// The number of rows that together carry [`CARRIED`] of the weight of a component; the heaviest first.
fn carriers(mut weights: Vec<f64>) -> usize {
    weights.sort_by(|a, b| b.total_cmp(a));
    let all: f64 = weights.iter().sum();
    let sums = weights.iter().scan(0.0, |sum, weight| {
        let before = *sum;
        *sum += weight;
        Some((before, *weight))
    });
    sums.take_while(|(before, weight)| *weight > 0.0 && *before < CARRIED * all).count()
}

/// One less the cosine of each row (c × n) with the nearest component (n × k).
fn distances(rows: &ArrayView2<'_, f64>, shared: &ArrayView2<'_, f64>) -> Vec<f64> {
    let norms = |matrix: &ArrayView2<'_, f64>, axis| matrix.map_axis(Axis(axis), |line| line.dot(&line).sqrt());
    let (of_rows, of_components) = (norms(rows, 1), norms(shared, 0));
    let products = rows.dot(shared);
    let cosine = |i: usize, l: usize| match of_rows[i] * of_components[l] {
        norm if norm > 0.0 => products[(i, l)] / norm,
        _ => 0.0,
    };
    (0..rows.nrows()).map(|i| 1.0 - (0..shared.ncols()).map(|l| cosine(i, l)).fold(0.0, f64::max)).collect()
}

/// This party's records of the run (c × n, in the order of the shared factor), and their weights (c × k): those of the
/// result, or of the only party beside it with such data, or else by the loss and the penalty of the run.
///
/// # Errors
/// If the data are not of the run, or their weights are unknown and cannot be computed.
fn own_records(
    args: &ReportArgs,
    factors: &StoredFactors,
    shared: &Array2<f64>,
    by_columns: bool,
) -> Result<(Array2<f64>, Array2<f64>)> {
    let input = opened(factors, &args.input, &args.table.0)?;
    let stored = &factors.stored;
    let several = stored.attributes().get("parties").and_then(Value::as_u64).is_some_and(|parties| parties > 1);
    let weights = if by_columns { "V" } else { "U" };
    // Where the weights are of one party alone, other data are refused, as by 'evaluate'.
    let of_one = stored.party().is_some() || (!several && stored.has(weights));
    let itself = of_one || input.fits(factors);
    let parties = if itself { Vec::new() } else { factors.of_parties() };
    let mut of_party = parties.iter().filter(|party| input.belongs_to(party));
    let party = of_party.next().filter(|_| of_party.next().is_none());
    let holder = if itself { Some(factors) } else { party };
    if let Some(factors) = holder {
        let (u, v) = (factors.factor("U")?, factors.factor("V")?);
        let mut weights = whole(if by_columns { &v } else { &u })?;
        // As 'evaluate' rounds them.
        if factors.run.is_boolean() {
            weights.mapv_inplace(|x| f64::from(u8::from(x > 0.5)));
        }
        // The report has no errors, which a run on changed entries would have others of.
        let matched = input.with_factors(factors).match_run(&u, &v, &Communicator::local())?.without_errors();
        return Ok((records(matched, by_columns, shared.nrows())?, weights));
    }
    let (path, run) = (factors.path.display(), &factors.run);
    if run.is_boolean() || run.own_parts() {
        return Err(Error::input(format!(
            "{path}: has no weights of these data, and what all parties share does not determine them; give the file of \
             this party"
        )));
    }
    warn(&format!(
        "{path}: has no weights of the data of --input, so that they are computed by the loss of the run; for those of \
         the run give the file of this party"
    ));
    let own = new_records(input, &args.input, factors, (by_columns, shared.nrows()))?;
    let weights = projected(run, &own, &shared.view(), by_columns);
    Ok((own, weights))
}

/// The weights (c × k) of records (c × n) by the shared factor (n × k), with the loss and the penalty of the run.
fn projected(run: &Provenance, own: &Array2<f64>, shared: &ArrayView2<'_, f64>, by_columns: bool) -> Array2<f64> {
    let (c, n) = own.dim();
    let penalty =
        if by_columns { run.regularization.penalties((n, c)).v } else { run.regularization.penalties((c, n)).u };
    let block = Block::Dense(own.clone().into());
    match run.beta {
        None => nls::project(&block, shared, penalty),
        Some(beta) => nls::divergence::project_on(&block, shared, beta, penalty),
    }
}

/// A matrix, to be read as in the run.
fn opened<'a>(factors: &'a StoredFactors, name: &str, table: &TableOptions) -> Result<OpenedInput<'a>> {
    let mut spec = spec_of(name, factors.run.transpose, *table, None)?;
    if !spec.transpose {
        // The transactions of one party need not have every item.
        spec.items = factors.stored.names().columns.as_deref().and_then(names::items);
    }
    factors.choose_columns(&mut spec);
    factors.open_input(spec, &Communicator::local())
}

/// The records (c × `length`) of the matrix `name`, which need not be those of the run.
///
/// # Errors
/// If it lacks entries that the records of the run have, since records are compared in all of them.
fn new_records(
    input: OpenedInput<'_>,
    name: &str,
    factors: &StoredFactors,
    (by_columns, length): (bool, usize),
) -> Result<Array2<f64>> {
    let alone = Communicator::local();
    let matched = match by_columns {
        true => input.match_rows(&factors.factor("U")?, &alone)?,
        false => input.match_columns(&factors.factor("V")?, &alone)?,
    };
    if let Order::Common(common) = &matched.orders.columns {
        if common.missing() > 0 && !common.others_are_zero() {
            return Err(Error::input(format!(
                "{name}: lacks {} of the {length} columns of V, in which rows are compared; give data with all of them",
                common.missing()
            )));
        }
        note(&common.note(name, &factors.run.missing, &whole(&factors.factor("V")?)?));
    }
    records(matched, by_columns, length)
}

/// The records (c × `length`) of a matrix, with their entries in the order of the shared factor: rows, or columns if
/// the parties have columns.
fn records(matched: MatchedInput<'_>, by_columns: bool, length: usize) -> Result<Array2<f64>> {
    let mut progress = Progress::new(true, None);
    matched.print_notes(&mut progress);
    let in_memory = Err("the attacks need the whole matrix in memory".to_string());
    let matrix = matched.load(in_memory, &mut progress, &Communicator::local())?;
    let block = matrix.block.ok_or_else(|| Error::failed("a rank has no block"))?;
    let (m, n) = block.shape();
    let mut all = block.order().zeros(m, n);
    block.mul(&Array2::eye(n).view(), &mut all.view_mut());
    let (entries, order) =
        if by_columns { (all.reversed_axes(), matrix.orders.rows) } else { (all, matrix.orders.columns) };
    let mut records = Array2::zeros((entries.nrows(), length));
    for (j, entry) in entries.columns().into_iter().enumerate() {
        if let Some(row) = order.known_row(j) {
            records.column_mut(row).assign(&entry);
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component that one row has alone is found, and so is a row that is a component.
    #[test]
    fn few_rows_behind_a_component_are_seen() {
        let shared = ndarray::array![[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]];
        let mut rows = Array2::zeros((12, 3));
        for i in 0..12 {
            rows[(i, 0)] = 1.0;
            rows[(i, 1)] = 1.0;
        }
        rows[(3, 2)] = 5.0;
        let weights =
            Array2::from_shape_fn((12, 2), |(i, l)| if l == 0 { 1.0 } else { 5.0 * f64::from(u8::from(i == 3)) });
        let found = structure(&weights, 3);
        assert_eq!(
            (&found["rows_per_component"], &found["components_below_threshold"]),
            (&json!([11, 1]), &json!([1]))
        );
        assert_eq!((&found["k_anonymity_risk"], &found["DoF_risk"]), (&json!(1), &json!(0)));
        assert_eq!(structure(&weights, 11)["DoF_risk"], 1);
        let near = distances(&rows.view(), &shared.view());
        assert!(near[0] < 1e-12 && near[3] > 0.03, "{near:?}");
        assert_eq!(carriers(vec![0.0; 4]), 0);
    }

    #[test]
    fn on_a_terminal_the_report_says_what_speaks_against_a_release() {
        let structure = json!({"n_rows": 90, "residual_dof": 86, "DoF_risk": 0, "k_anonymity_risk": 1, "threshold": 10,
                               "rows_per_component": [40, 3], "components_below_threshold": [1]});
        let tested = json!({"AUC": 0.61, "P_HIGHER_AUC": 0.01});
        let mut all = Map::new();
        let target = json!({"records": "rows", "model_name": "fnmf", "k": 4, "parties": 3, "accept_risk": "few-rows"});
        all.insert("target".into(), target);
        for (key, figures) in [(STRUCTURE, structure), (MEMBERSHIP, tested), (NEAREST, json!({"AUC": null}))] {
            all.insert(key.into(), attack(key, &json!({}), figures));
        }
        let shown = in_words(Path::new("f.h5"), &all);
        for line in [
            "f.h5: fnmf, k = 4, 3 parties",
            "  rows that carry 90 % of each component: 40, 3",
            "  membership by the fit: AUC 0.61; by chance as high with probability 0.01",
            "  membership by the nearest component: not tested; --others names rows that were in nobody's data",
            "Do not release: fewer than 10 rows carry component 1; membership by the fit is guessed better than by chance.",
            "Do not release if nobody agreed to the risks that the run accepted: few-rows.",
        ] {
            assert!(shown.lines().any(|other| other == line), "{line}: {shown}");
        }
    }
}
