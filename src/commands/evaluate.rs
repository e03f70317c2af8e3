//! `fednmf evaluate`: how stored factors fit a matrix.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use ndarray::{Array2, s};
use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print;
use fednmf_base::units::parse_bytes;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::{Layout, Panels};
use fednmf_driver::progress::Progress;
use fednmf_driver::{metadata, missing, streaming};
use fednmf_files as data;
use fednmf_files::names::Names;
use fednmf_files::output::matrices::{Factor, OwnParts, Stored};
use fednmf_files::{InputSpec, TableOptions};
use fednmf_linalg::Block;
use fednmf_methods::Measures;
use fednmf_methods::boolean::{Components, Ones, agreement, rounded};
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters;
use fednmf_methods::parameters::Missing;
use fednmf_methods::shared::missing::{Counted, HELD_OUT, Holdout, Observed, held_out_positions};
use fednmf_methods::shared::regularization::Penalties;

use crate::cli::parameters::Group;

use super::provenance::{Provenance, order};

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
    let mut spec = InputSpec::parse(&args.input).map_err(Error::on_all_ranks)?;
    spec.transpose = args.transpose;
    spec.table = args.table.0;
    spec.memory = args.memory;
    let stored = comm.agree_on_error(Stored::open_factors(&args.factors))?;
    let mut provenance = comm.agree_on_error(Provenance::of(&stored, &args.factors))?;
    if provenance.holdout.is_some() && stored.party().is_some() {
        return Err(Error::input(format!(
            "{}: which entries the run held out follows from the rows of all parties; name the shared file, with the files \
             of all parties beside it",
            args.factors.display()
        ))
        .on_all_ranks()
        .into());
    }
    comm.agree_on_error(provenance.name_missing(args.missing.as_ref(), &args.factors))?;
    provenance.apply(&mut spec);
    spec.allow_negative = true;
    let input = data::open(&spec, comm)?;
    spec.complete(input.header());
    let (m, n) = (input.header().rows, input.header().cols);
    let factors = || Ok((Factor::open(&stored, "U")?, Factor::open(&stored, "V")?));
    let (u, v) = comm.agree_on_error(factors())?;
    let own_parts = provenance.own_parts().then(|| OwnParts::read(&stored, &u, &v)).transpose();
    let own_parts = comm.agree_on_error(own_parts)?;
    let fits = fitting((u.shape(), v.shape()), &args.factors, (m, n), args.transpose);
    let k = comm.agree_on_error(fits)?;
    let own = [&u, &v].into_iter().find_map(|factor| factor.part_sizes());
    check_parts(own, &input.parts(), &args.factors).map_err(Error::on_all_ranks)?;
    comm.agree_on_error(provenance.check_orientation(&args.factors, (m, n), args.transpose))?;
    let names = metadata::names_of(&spec, false, comm);
    let matched = || {
        let known = stored.names();
        Ok((orders(&known, &args.factors, &names)?, provenance.reordered(&known, &names, (m, n))))
    };
    let matched = if comm.is_root() { matched() } else { Ok(([None, None], [false, false])) };
    let ([of_rows, of_columns], reordered) = comm.broadcast_value(FIT, comm.agree_on_error(matched)?);
    provenance.check_places(&args.factors, reordered).map_err(Error::on_all_ranks)?;
    let mut progress = Progress::new(comm.is_root(), None);
    progress.notes(&input.header().notes);
    progress.warnings(&input.header().warnings);
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let sparse = input.header().sparse;
    let need = (size_of::<f64>() * k * (m.div_ceil(comm.size()) + n)) as f64;
    let data = input.least_bytes::<f64>(&plan, comm.size());
    let streamed = match () {
        () if provenance.leaves_out() => Err("missing entries need the whole matrix in memory".to_string()),
        () if provenance.is_boolean() => Err("Boolean factors need the whole matrix in memory".to_string()),
        () => Ok(need),
    };
    let (mut loaded, note) =
        streaming::load::<f64>(input, (&plan, None), (need + data, streamed), comm, &mut |part| {
            progress.loading(part)
        })?;
    note.iter().for_each(|note| progress.note(note));
    progress.finish();
    let rows = loaded.cuts.rows[comm.rank()].clone();
    let u = comm.agree_on_error(u.rows(of_rows.as_deref(), rows.clone()))?;
    let v = comm.agree_on_error(v.rows(of_columns.as_deref(), 0..n))?;
    // The index in the stored factors of a row or column of the matrix.
    let place = |order: &Option<Vec<usize>>, i: usize| order.as_ref().map_or(i, |order| order[i]);
    let own_row = |a: usize| place(&of_rows, rows.start + a);
    let own_penalty = match (&own_parts, provenance.own_penalty) {
        (Some(own), Some(weight)) if !provenance.leaves_out() => {
            let mut sum = [own.norm2(&u, own_row)];
            comm.sum(FIT, &mut sum);
            Some(0.5 * weight * sum[0])
        }
        _ => None,
    };
    let (u, v) = match &own_parts {
        Some(own) => own.widened(&u, own_row, of_columns.as_deref()),
        None => (u, v),
    };
    let marks = match provenance.missing.marks() {
        Some(file) => {
            let marks = missing::read(file, (m, n), &names, &loaded.cuts, comm)?;
            let other = [of_rows.is_some() || reordered[0], of_columns.is_some() || reordered[1]];
            let checked = marks.check_order(file, other);
            checked.and_then(|()| provenance.check_marks(file, marks.checksum)).map_err(Error::on_all_ranks)?;
            marks.places.rows
        }
        None => Vec::new(),
    };
    let mut marks: Vec<(usize, usize)> = marks.into_iter().map(|(i, j)| (i - rows.start, j)).collect();
    let norm2 = loaded.statistics.norm2;
    let block = loaded.blocks.into_iter().next();
    provenance.check_form(&args.factors, sparse).map_err(Error::on_all_ranks)?;
    if let (Some((share, seed)), Some(block)) = (provenance.holdout, &block) {
        let counted = Counted {
            shape: (m, n),
            nonzeros: loaded.statistics.nonzeros,
            sparse,
            only_stored: provenance.missing == Missing::ZeroUnobserved,
        };
        // The run drew held-out entries by their positions in its own matrix.
        let back = of_columns.as_deref().map(inverse);
        marks.extend(held_out_positions(
            block,
            Holdout::new(seed, share, counted),
            |a| place(&of_rows, rows.start + a),
            |b| place(&of_columns, b),
            |j| place(&back, j),
        ));
    }
    let mut measures = measures(&provenance, (block, loaded.panels.take()), marks, (&u, &v), (norm2, m), comm)?;
    if let (Some(penalty), Some((_, error))) = (own_penalty, measures.first()) {
        measures.push((Measure::Objective.key(), 0.5 * error * error * norm2 + penalty));
    }
    let infinite = measures.iter().find_map(|(name, x)| match *name == Measure::Divergence.key() {
        true => metrics::note_infinite(*x),
        false => None,
    });
    infinite.iter().for_each(|note| progress.warn(note));
    if comm.is_root() {
        print(&text(args, &provenance, stored.party(), &measures, (m, n, k)))?;
    }
    Ok(EXIT_DONE)
}

/// The order of the rows of U and of V, if names show that it differs from the matrix's.
fn orders(factors: &Names, path: &Path, matrix: &Names) -> Result<[Option<Vec<usize>>; 2]> {
    Ok([
        order(path, "row", matrix.rows.as_deref(), factors.rows.as_deref())?,
        order(path, "column", matrix.columns.as_deref(), factors.columns.as_deref())?,
    ])
}

/// Refuses `{party}` files whose sizes are not those of the parties of the run, in this order.
fn check_parts(factors: Option<Vec<usize>>, files: &[Range<usize>], path: &Path) -> Result<()> {
    let Some(factors) = factors.filter(|factors| factors.len() == files.len()) else { return Ok(()) };
    match factors.iter().zip(files).position(|(own, file)| *own != file.len()) {
        Some(party) => Err(Error::input(format!(
            "{}: party {party} has {} rows of its private factor, and its file {}; give the files in the order of the run",
            path.display(),
            factors[party],
            files[party].len()
        ))),
        None => Ok(()),
    }
}

fn inverse(order: &[usize]) -> Vec<usize> {
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &at)| places[at] = i);
    places
}

/// The measures of U (own rows × k) and V (n × k): on the observed entries where some are missing, and on those held out
/// (`marks`, by row of the block and column) as far as the data has them; those of Boolean products for Boolean methods, the divergence where the method minimises
/// it, and the objective with the penalties of the run. Collective.
fn measures(
    provenance: &Provenance,
    (block, mut panels): (Option<Block<f64>>, Option<Panels<f64>>),
    marks: Vec<(usize, usize)>,
    (u, v): (&Array2<f64>, &Array2<f64>),
    (norm2, m): (f64, usize),
    comm: &Communicator,
) -> Result<Measures> {
    let penalties = provenance.regularization.penalties((m, v.nrows()));
    // Each rank has the whole V.
    let of_u = Penalties { u: penalties.u, ..Penalties::default() }.sum(comm, &u.view(), &v.view());
    let penalty = of_u + penalties.v.value(&v.view());
    let whole = |block: Option<Block<f64>>| block.ok_or_else(|| Error::failed("a rank has no block"));
    if provenance.leaves_out() {
        let only_stored = provenance.missing == Missing::ZeroUnobserved;
        let observed = Observed::new(whole(block)?, only_stored, marks.into_iter());
        let fit = observed.fit(&u.view(), &v.view());
        let mut sums = [fit.residual2, fit.norm2, fit.count, fit.held2, fit.held];
        comm.sum(FIT, &mut sums);
        let [residual2, norm2, count, held2, held] = sums;
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
            loss = sum[0];
            measures.push((Measure::Divergence.key(), loss));
        }
        measures.extend(penalties.objective(loss, penalty));
        if held > 0.0 && provenance.held_out() {
            measures.push((Measure::HeldoutRmse.key(), (held2 / held).sqrt()));
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
    Panels::pass_over(&mut panels, block.as_ref(), comm, |rows, block| {
        let u = u.slice(s![rows, ..]);
        sums[0] += block.residual2(&u, &v.view());
        if let Some(beta) = provenance.beta {
            sums[1] += metrics::own_divergence(beta, block, &u, &v.view());
        }
    })?;
    comm.sum(metrics::RESIDUAL, &mut sums);
    let error = metrics::relative(sums[0], norm2);
    let mut measures = vec![("rel_error", error)];
    let mut loss = 0.5 * error * error * norm2;
    if let (Some(_), Some(method)) = (provenance.beta, provenance.method) {
        loss = sums[1];
        measures.push((method.measure.key(), loss));
    }
    measures.extend(penalties.objective(loss, penalty));
    Ok(measures)
}

/// `party`: the one whose part of the matrix is measured, if it is not the whole.
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
    let leading = match value(Measure::HeldoutRmse.key()) {
        Some(_) => Measure::HeldoutRmse,
        None if value(Measure::Objective.key()).is_some() => Measure::Objective,
        None => provenance.method.map_or(Measure::RelativeError, |method| method.measure),
    };
    let mut shown: Vec<String> =
        leading.leading(value).iter().map(|(measure, x)| format!("{} {x:.6}", measure.label())).collect();
    shown.extend(value("rmse").map(|x| format!("RMSE {x:.6} on the observed entries")));
    let note = if note.is_empty() { note } else { format!("; {note}") };
    let of_party = party.map_or_else(String::new, |party| format!("party {party}: "));
    format!("{} ({of_party}{m} x {n}, k = {k}{note})\n", shown.join(", "))
}

/// The number of components of factors, by their shapes, that fit an m × n matrix; `turned`: which was transposed.
fn fitting(
    (u, v): ((usize, usize), (usize, usize)),
    path: &Path,
    (m, n): (usize, usize),
    turned: bool,
) -> Result<usize> {
    if (u.0, v.0) == (m, n) && u.1 == v.1 {
        return Ok(u.1);
    }
    let (add, other) = if turned { ("omit", "") } else { ("add", " --transpose") };
    let hint = match () {
        () if u.1 != v.1 => "; they are not the factors of one run".to_string(),
        () if (v.0, u.0) == (m, n) => format!("; they fit the transposed one: {add} --transpose"),
        () if v.0 == n => "; V fits: 'fednmf project' computes U for other rows than those of the run".to_string(),
        () if v.0 == m => {
            format!(
                "; V fits the transposed one: 'fednmf project{other}' computes U for other rows than those of the run"
            )
        }
        () => "; give the matrix that they were made of".to_string(),
    };
    Err(Error::input(format!(
        "{}: U is {} x {} and V {} x {}, which does not fit a matrix of {m} x {n}{hint}",
        path.display(),
        u.0,
        u.1,
        v.0,
        v.1
    )))
}
