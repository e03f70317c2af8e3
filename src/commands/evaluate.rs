//! `fednmf evaluate`: how stored factors fit a matrix.

use std::path::PathBuf;

use clap::Args;
use ndarray::{Array2, s};
use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print;
use fednmf_base::units::{parse_bytes, precise};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::Panels;
use fednmf_driver::missing::HELD_OUT;
use fednmf_driver::progress::Progress;
use fednmf_files::TableOptions;
use fednmf_linalg::Block;
use fednmf_linalg::nls::divergence::unit;
use fednmf_methods::Measures;
use fednmf_methods::boolean::{Components, Ones, agreement, rounded};
use fednmf_methods::distributed::divergence::volume;
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters;
use fednmf_methods::parameters::Missing;
use fednmf_methods::shared::missing::{Counted, Holdout, Observed, held_out_positions};
use fednmf_methods::shared::regularization::Penalties;

use crate::cli::parameters::Group;

use super::matched_input::{PreparedMatrix, StoredFactors, spec_of};
use super::provenance::{Provenance, warning_of_ignored};

/// `fednmf evaluate`.
#[derive(Debug, Args)]
pub struct EvaluateArgs {
    /// File with U and V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// Any input that a run takes; scaled, thresholded and with entries missing as in the run that made the factors
    #[arg(short = 'i', long, value_name = "PATH")]
    pub input: String,
    /// Missing entries: none, nan, zero-unobserved, or a matrix file that marks them [default: as in the run that made the
    /// factors]
    #[arg(long, value_name = "WHICH", value_parser = parameters::missing)]
    pub missing: Option<Missing>,
    /// Compare with the transposed matrix
    #[arg(long)]
    pub transpose: bool,
    #[command(flatten)]
    pub table: Group<TableOptions>,
    /// Memory that the ranks of a node may use together: 4G, 512M [default: what is free there]. Rows that do not fit are read
    /// from the file a panel at a time, unless entries are missing or the factors are Boolean
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Sums over the rows of each rank.
const FIT: MessageTag = MessageTag::new("evaluation: fit", Payload::Scalar);

/// `fednmf evaluate`: the measures of the method that made the factors. Collective.
///
/// # Errors
/// If factors or data cannot be read, or their shapes or names do not fit.
pub fn evaluate(args: &EvaluateArgs, comm: &Communicator) -> Result<i32> {
    let mut spec = spec_of(&args.input, args.transpose, args.table.0, args.memory)?;
    spec.allow_negative = true;
    let factors = comm.agree_on_error(opened(args))?;
    let run = &factors.run;
    factors.choose_columns(&mut spec);
    let input = factors.open_input(spec, comm)?;
    let stored = || Ok((factors.factor("U")?, factors.factor("V")?));
    let (stored_u, stored_v) = comm.agree_on_error(stored())?;
    let own_parts = comm.agree_on_error(factors.own_parts(&stored_u, &stored_v))?;
    let matched = input.match_run(&stored_u, &stored_v, comm)?;
    let (m, n, k) = matched.sizes();
    let mut progress = Progress::new(comm.is_root(), None);
    matched.print_notes(&mut progress);
    if let Some(warning) = warning_of_ignored(run.columns_ignored, n) {
        progress.warn(&warning);
    }
    let streaming = match () {
        () if run.has_missing() => Err("missing entries need the whole matrix in memory".to_string()),
        () if run.is_boolean() => Err("Boolean factors need the whole matrix in memory".to_string()),
        () => Ok(()),
    };
    let mut matrix = matched.load(streaming, &mut progress, comm)?;
    if let (Some(file), Some(marks)) = (run.missing.marks(), &matrix.marks) {
        marks.check_order(file, matrix.orders.differ_from_run).map_err(Error::on_all_ranks)?;
        let (row, column) = (|i| matrix.orders.rows.factor_row(i), |j| matrix.orders.columns.factor_row(j));
        run.check_marks(file, marks, [&row, &column], comm).map_err(Error::on_all_ranks)?;
    }
    run.check_form(&args.factors, matrix.sparse).map_err(Error::on_all_ranks)?;
    let orders = &matrix.orders;
    let u = comm.agree_on_error(stored_u.rows(orders.rows.permutation(), matrix.rows.clone()))?;
    let v = comm.agree_on_error(stored_v.rows(orders.columns.permutation(), 0..n))?;
    let row_of_u = |a: usize| orders.rows.factor_row(matrix.rows.start + a);
    let own_penalty = match (&own_parts, run.own_penalty) {
        (Some(own), Some(weight)) if !run.has_missing() => {
            let mut sum = [own.norm2(&u, row_of_u)];
            comm.sum(FIT, &mut sum);
            Some(0.5 * weight * sum[0])
        }
        _ => None,
    };
    let (u, v) = match &own_parts {
        Some(own) => own.widened(&u, row_of_u, orders.columns.permutation()),
        None => (u, v),
    };
    let left_out = left_out(run, &matrix, (m, n));
    let (norm2, sum) = (matrix.norm2, matrix.sum);
    let entries = (matrix.block.take(), matrix.panels.take());
    let mut measures = measures(run, entries, left_out, (&u, &v), (sum, norm2, m), comm)?;
    if let (Some(penalty), Some((_, error))) = (own_penalty, measures.first()) {
        measures.push((Measure::Objective.key(), 0.5 * error * error * norm2 + penalty));
    }
    let of_divergence = [Measure::Divergence, Measure::BetaDivergence].map(Measure::key);
    let infinite = measures.iter().find_map(|(name, x)| match of_divergence.contains(name) {
        true => metrics::note_infinite(run.beta.unwrap_or(1.0), *x),
        false => None,
    });
    infinite.iter().for_each(|note| progress.warn(note));
    if comm.is_root() {
        print(&text(args, run, factors.stored.party(), &measures, (m, n, k)))?;
    }
    Ok(EXIT_DONE)
}

/// The factors, with the missing entries that the user names.
fn opened(args: &EvaluateArgs) -> Result<StoredFactors> {
    let mut factors = StoredFactors::open(&args.factors)?;
    if factors.run.holdout.is_some() && factors.stored.party().is_some() {
        return Err(Error::input(format!(
            "{}: which entries the run held out follows from the rows of all parties; name the shared file, with the files \
             of all parties beside it",
            args.factors.display()
        )));
    }
    factors.run.name_missing(args.missing.as_ref(), &args.factors)?;
    Ok(factors)
}

/// Positions of the entries that are marked as missing or were held out, by row of the block and column.
fn left_out(run: &Provenance, matrix: &PreparedMatrix, shape: (usize, usize)) -> Vec<(usize, usize)> {
    let mut positions: Vec<(usize, usize)> = matrix.marked().collect();
    if let (Some((share, seed)), Some(block)) = (run.holdout, &matrix.block) {
        let counted = Counted {
            shape,
            nonzeros: matrix.nonzeros,
            sparse: matrix.sparse,
            only_stored: run.missing == Missing::ZeroUnobserved,
        };
        let (rows, columns) = (&matrix.orders.rows, &matrix.orders.columns);
        // The run drew held-out entries by their positions in its own matrix.
        let column_of_v_row = columns.inverse();
        positions.extend(held_out_positions(
            block,
            Holdout::new(seed, share, counted),
            |a| rows.factor_row(matrix.rows.start + a),
            |b| columns.factor_row(b),
            |j| column_of_v_row.as_ref().map_or(j, |column| column[j]),
        ));
    }
    positions
}

/// The measures of U (own rows × k) and V (n × k): on the observed entries if some are missing, and on those held-out
/// entries that the data has (`left_out` has both, by row of the block and column). They include those of Boolean products
/// for Boolean methods, the divergence if the method minimises it, and the objective with the penalties of the run.
/// Collective.
fn measures(
    provenance: &Provenance,
    (block, mut panels): (Option<Block<f64>>, Option<Panels<f64>>),
    left_out: Vec<(usize, usize)>,
    (u, v): (&Array2<f64>, &Array2<f64>),
    (sum, norm2, m): (f64, f64, usize),
    comm: &Communicator,
) -> Result<Measures> {
    let penalties = provenance.regularization.penalties((m, v.nrows()));
    // Each rank has the whole V.
    let penalty_u = Penalties { u: penalties.u, ..Penalties::default() }.sum(comm, &u.view(), &v.view());
    let penalty = penalty_u + penalties.v.value(&v.view());
    let whole = |block: Option<Block<f64>>| block.ok_or_else(|| Error::failed("a rank has no block"));
    if provenance.has_missing() {
        let only_stored = provenance.missing == Missing::ZeroUnobserved;
        let observed = Observed::new(whole(block)?, only_stored, left_out.into_iter());
        let fit = observed.fit(&u.view(), &v.view());
        let mut sums = [fit.residual2, fit.norm2, fit.count, fit.held2, fit.held, fit.sum];
        comm.sum(FIT, &mut sums);
        let [residual2, norm2, count, held2, held, total] = sums;
        if count == 0.0 {
            return Err(Error::input("--missing: nothing of the matrix is observed; name the marks of the run")
                .on_all_ranks()
                .into());
        }
        let mut measures =
            vec![("rel_error", metrics::relative(residual2, norm2)), ("rmse", (residual2 / count.max(1.0)).sqrt())];
        let mut loss = 0.5 * residual2;
        if provenance.beta == Some(1.0) {
            let mut sum = [observed.divergence(&u.view(), &v.view())];
            comm.sum(FIT, &mut sum);
            loss = metrics::not_negative(sum[0]);
            measures.push((Measure::Divergence.key(), loss));
        }
        measures.extend(penalties.objective(loss, penalty));
        if held > 0.0 && provenance.held_out() {
            measures.push((Measure::HeldoutRmse.key(), (held2 / held).sqrt()));
            if provenance.beta == Some(1.0) {
                let mut sum = [observed.heldout_divergence(&u.view(), &v.view(), total / count)];
                comm.sum(FIT, &mut sum);
                measures.push((Measure::HeldoutDivergence.key(), metrics::not_negative(sum[0]) / held));
            }
            measures.push((HELD_OUT, held));
        }
        return Ok(measures);
    }
    if provenance.is_boolean() {
        let x = comm.agree_on_error(whole(block).and_then(Ones::new))?;
        let counts = Components::new(rounded(&v.view())).fit(&x, &rounded(&u.view()).transposed(), None);
        let mut sums = [counts.ones, counts.covered, counts.both].map(|count| count as f64);
        comm.sum(FIT, &mut sums);
        return Ok(agreement(sums[0], sums[1], sums[2]));
    }
    let mut sums = [0.0; 2];
    let unit = unit(norm2, m as f64 * v.nrows() as f64);
    Panels::pass_over(&mut panels, block.as_ref(), comm, |rows, block| {
        let u = u.slice(s![rows, ..]);
        sums[0] += block.residual2(&u, &v.view());
        if let Some(beta) = provenance.beta {
            sums[1] += metrics::own_divergence(beta, block, &u, &v.view(), unit);
        }
    })?;
    comm.sum(metrics::RESIDUAL, &mut sums);
    let error = metrics::relative(sums[0], norm2);
    let mut measures = vec![("rel_error", error)];
    let mut loss = 0.5 * error * error * norm2;
    if let (Some(_), Some(method)) = (provenance.beta, provenance.method) {
        loss = metrics::not_negative(sums[1]);
        measures.push((method.measure.key(), loss));
    }
    match provenance.volume.is_on() {
        true => measures.push((Measure::Objective.key(), loss + penalty + volume::value(&provenance.volume, sum, v))),
        false => measures.extend(penalties.objective(loss, penalty)),
    }
    Ok(measures)
}

/// The measures as text; `party` is the party whose part of the matrix was measured, `None` for the whole matrix.
fn text(
    args: &EvaluateArgs,
    provenance: &Provenance,
    party: Option<usize>,
    measures: &Measures,
    (m, n, k): (usize, usize, usize),
) -> String {
    let value = |key: &str| measures.iter().find(|(name, _)| *name == key).map(|(_, x)| *x);
    let note = provenance.note(value(HELD_OUT));
    if args.json {
        let mut all: Map<String, Value> = measures.iter().map(|(name, x)| ((*name).to_string(), json!(x))).collect();
        all.extend(value(HELD_OUT).map(|held| (HELD_OUT.to_string(), (held as u64).into())));
        all.extend([("m".to_string(), m.into()), ("n".into(), n.into()), ("k".into(), k.into())]);
        all.extend(party.map(|party| ("party".to_string(), party.into())));
        if !note.is_empty() {
            all.insert("preparation".into(), note.into());
        }
        return format!("{}\n", Value::from(all));
    }
    let beside = [Measure::HeldoutDivergence, Measure::HeldoutRmse, Measure::Objective];
    let beside = beside.into_iter().find(|measure| value(measure.key()).is_some());
    let leading = beside.or_else(|| Some(provenance.method?.measure)).unwrap_or(Measure::RelativeError);
    let mut shown: Vec<String> =
        leading.leading(value).iter().map(|(m, x)| m.with_value(*x, provenance.beta)).collect();
    shown.extend(value("rmse").map(|x| format!("RMSE {} on the observed entries", precise(x))));
    let note = if note.is_empty() { note } else { format!("; {note}") };
    let of_party = party.map_or_else(String::new, |party| format!("party {party}: "));
    format!("{} ({of_party}{m} x {n}, k = {k}{note})\n", shown.join(", "))
}
