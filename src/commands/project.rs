//! `fednmf project`: the factor U of new rows, for the V of an earlier run.

use std::path::PathBuf;

use clap::Args;
use ndarray::{Array2, Axis, s};
use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_base::unfinished::Access;
use fednmf_base::units::{counted, parse_bytes, precise};
use fednmf_comm::Communicator;
use fednmf_data::Panels;
use fednmf_data::state::Piece;
use fednmf_driver::metadata::Destination;
use fednmf_driver::missing::{MARKS, checksum_text};
use fednmf_driver::progress::Progress;
use fednmf_driver::{metadata, missing, warning_of_logarithms};
use fednmf_files::names;
use fednmf_files::output::attributes;
use fednmf_files::output::matrices;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_files::{InputSpec, TableOptions};
use fednmf_linalg::Block;
use fednmf_linalg::nls;
use fednmf_linalg::nls::divergence::unit;
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters;
use fednmf_methods::parameters::{Missing, ParamType as _};
use fednmf_methods::shared::missing::Observed;

use crate::cli::parameters::Group;

use super::factor_rows::{BALANCE, balance};
use super::matched_input::{Common, Order, StoredFactors, spec_of, whole};
use super::provenance::{COLUMNS_IGNORED, METHOD_OF_V, OF_THE_DATA, warning_of_ignored, with_all_params};

/// `fednmf project`.
#[derive(Debug, Args)]
pub struct ProjectArgs {
    /// File with V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// The new matrix: any input that a run takes. Columns are matched by name: others than the old ones are ignored, and old
    /// ones that it lacks are left out of the fit. Without names it has the same columns
    #[arg(short = 'i', long, value_name = "PATH")]
    pub input: String,
    /// Write the new U, and V with a row for each column of the new matrix (zeros where the old one lacked it), to this file
    /// (.h5, .h5ad, .npz)
    #[arg(short = 'o', long, value_name = "F.h5")]
    pub output: Option<PathBuf>,
    /// Add both to this AnnData file, which keeps everything else; may be the input
    #[arg(long, value_name = "F.h5ad", conflicts_with = "output")]
    pub add_to: Option<PathBuf>,
    /// Few components for each row: use one only if it lowers the loss of the row by more than X times the size of the row. The size is
    /// half its squared norm for the squared error, and its sum for the Kullback-Leibler divergence. 0.01 suits signatures
    #[arg(long, value_name = "X", value_parser = parameters::number(0.0, 1.0))]
    pub min_gain: Option<f64>,
    /// Missing entries of the new matrix: none, nan, zero-unobserved, or a matrix file that marks them [default: as in the
    /// run that made the factors]
    #[arg(long, value_name = "WHICH", value_parser = parameters::missing)]
    pub missing: Option<Missing>,
    /// Transpose the new matrix
    #[arg(long)]
    pub transpose: bool,
    #[command(flatten)]
    pub table: Group<TableOptions>,
    /// Memory that the ranks of a node may use together: 4G, 512M [default: what is free there]. Rows that do not fit are
    /// read from the file a panel at a time, unless entries are missing
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// No progress on stderr
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Each row u of the new U is the exact solution of min ½‖x − V u‖² over u ≥ 0 for a row x of the new matrix, over its
/// observed entries if some are missing, and the columns that V has a row for, and with the penalty on U that the factors were made with, as in an update of
/// U by `bpp`. For factors that minimise a divergence, the divergence replaces the squared error. The matrix is scaled
/// as that of the factors. With `--min-gain` a row has few components, chosen by single steps. Every rank solves its own rows; V is on all of them. Collective.
///
/// # Errors
/// If factors or data cannot be read, their shapes or names do not fit, or the output cannot be written.
pub fn project(args: &ProjectArgs, comm: &Communicator) -> Result<i32> {
    let mut spec = spec_of(&args.input, args.transpose, args.table.0, args.memory)?;
    let checked = if comm.is_root() { check_files(args, &spec) } else { Ok(()) };
    let mut factors = comm.agree_on_error(checked.and_then(|()| opened(args)))?;
    // The names of V choose the genes of another matrix, unless genes are its rows.
    let of_chosen = factors.run.features.highly_variable.replace(false) == Some(true);
    let (stored, run) = (&factors.stored, &factors.run);
    if !spec.transpose {
        // New transactions need not have every item.
        spec.items = stored.names().columns.as_deref().and_then(names::items);
    }
    let input = factors.open_input(spec, comm)?;
    let stored_v = comm.agree_on_error(factors.factor("V"))?;
    let (v_rows, _) = stored_v.shape();
    let matched = input.match_columns(&stored_v, comm)?;
    let (m, n, k) = matched.sizes();
    let v = comm.agree_on_error(whole(&stored_v))?;
    let mut progress = Progress::quiet(comm.is_root(), args.quiet, None);
    matched.print_notes(&mut progress);
    match &matched.orders.columns {
        Order::Same => {}
        Order::Reordered(_) => progress.note(
            "the columns of the new matrix are in another order than those of the factors: V is sorted like them",
        ),
        Order::Common(common) => progress.note(&common.note(&args.input, &run.missing, &v)),
    }
    let v = match &matched.orders.columns {
        Order::Same => v,
        Order::Common(common) => common.factor(v),
        Order::Reordered(order) => v.select(Axis(0), order),
    };
    if !run.note(None).is_empty() {
        progress.note(&run.note(None));
    }
    if of_chosen && run.transpose {
        progress.note(
            "the run used only highly variable genes (--highly-variable), which were its rows; all rows of the new matrix get weights",
        );
    }
    let without_component = v.rows().into_iter().filter(|row| row.iter().all(|x| *x == 0.0)).count() as u64;
    let ignored_before = run.columns_ignored.min(without_component);
    if let Some(warning) = warning_of_ignored(ignored_before, n) {
        progress.warn(&warning);
    }
    let by_least_squares = run.beta.is_none_or(|beta| beta != 1.0);
    if run.beta.is_some() && by_least_squares && run.missing != Missing::None {
        progress.warn("with --missing U is found by least squares, not by the divergence that the factors are for");
    }
    if let Some(note) = run.regularization.note_on_u() {
        progress.note(&note);
    }
    if stored_v.is_private() && args.output.is_some() {
        let shown = args.factors.display();
        progress.warn(&match stored.party() {
            Some(party) => format!(
                "the output holds V of party {party}, which is private, as in {shown}; its owner alone may read it"
            ),
            None => format!(
                "the output holds V of all parties, which {shown} keeps in a file of each; its owner alone may read it"
            ),
        });
    }
    // The link is resolved, so that the target file gets the factors and the link stays.
    let add_to = args.add_to.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let destination = args.output.as_deref().or(add_to.as_deref());
    let destination = destination.map(|path| Destination { path, add: args.add_to.is_some(), private: None });
    // Without a list of its columns, the matrix has those of the factors.
    let keeps_v = matches!(&matched.orders.columns, Order::Common(common) if common.others_are_zero());
    let n = if keeps_v { v_rows } else { n };
    let mut annotations = metadata::annotations(destination, matched.spec(), (m, n), comm)?;
    let sources = matched.spec().files().into_iter().chain([args.factors.clone()]).chain(add_to.clone());
    annotations.owner_only = stored_v.is_private() || Access::as_of(sources) == Access::OwnerOnly;
    if comm.is_root() && (annotations.columns.is_none() || keeps_v) {
        annotations.columns = stored.names().columns;
    }
    let streaming = match run.missing {
        Missing::None => Ok(()),
        _ => Err("--missing needs the whole matrix in memory".to_string()),
    };
    let mut matrix = matched.load(streaming, &mut progress, comm)?;
    if let Some(warning) = missing::warning_of_stored_zeros(&run.missing, matrix.stored_zeros) {
        progress.warn(&warning);
    }
    let block = matrix.block.take();
    let of_counts = run.method.map(|method| method.measure);
    if let Some(warning) = of_counts.and_then(|measure| warning_of_logarithms(measure, block.as_ref())) {
        progress.warn(&warning);
    }
    let common = if let Order::Common(common) = &matrix.orders.columns { Some(common) } else { None };
    let penalty = run.regularization.penalties((m, v_rows)).u;
    let mut divergence = None;
    let (u, error) = if run.missing == Missing::None {
        let mut u = Array2::zeros((matrix.rows.len(), k));
        let mut sums = [0.0; 3];
        let unit = unit(matrix.norm2, m as f64 * n as f64);
        Panels::pass_over(&mut matrix.panels, block.as_ref(), comm, |rows, block| {
            let own = common.map(|common| common.block(block));
            let block = own.as_ref().unwrap_or(block);
            let solved = match (run.beta, args.min_gain) {
                (beta, Some(gain)) => nls::project_few(block, &v.view(), beta.is_some(), penalty, gain),
                (None, None) => nls::project(block, &v.view(), penalty),
                (Some(beta), None) => nls::divergence::project_on(block, &v.view(), beta, penalty),
            };
            sums[0] += block.residual2(&solved.view(), &v.view());
            if let Some(beta) = run.beta {
                sums[1] += metrics::own_divergence(beta, block, &solved.view(), &v.view(), unit);
            }
            sums[2] += own.as_ref().map_or(0.0, Block::norm2);
            u.slice_mut(s![rows, ..]).assign(&solved);
        })?;
        comm.sum(metrics::RESIDUAL, &mut sums);
        if let (Some(_), Some(method)) = (run.beta, run.method) {
            divergence = Some((method.measure, metrics::not_negative(sums[1])));
            if let Some(beta) = run.beta.filter(|beta| *beta <= 0.0 && sums[1] == f64::INFINITY) {
                return Err(Error::input(format!(
                    "{}: has zeros, whose divergence from any fit is infinite for a beta of {beta}; add a small number to all entries, \
                     or use factors for a larger beta",
                    args.input
                ))
                .on_all_ranks()
                .into());
            }
        }
        (u, metrics::relative(sums[0], if common.is_some() { sums[2] } else { matrix.norm2 }))
    } else {
        let mut block = block.ok_or_else(|| Error::failed("a rank has no block"))?;
        let mut marks: Vec<(usize, usize)> = matrix.marked().collect();
        if let Some(common) = common {
            let places = common.places();
            block = common.block(&block);
            marks = marks.into_iter().filter_map(|(a, j)| Some((a, places[j]?))).collect();
        }
        let observed = Observed::new(block, run.missing == Missing::ZeroUnobserved, marks.into_iter());
        let mut u = if by_least_squares {
            observed.project(&v.view(), penalty)
        } else {
            let u = observed.project_by_divergence(&v.view(), penalty);
            let mut sum = [observed.divergence(&u.view(), &v.view())];
            comm.sum(metrics::DIVERGENCE, &mut sum);
            divergence = Some((Measure::Divergence, metrics::not_negative(sum[0])));
            u
        };
        let unobserved = observed.clear_unobserved(&mut u);
        let fit = observed.fit(&u.view(), &v.view());
        let mut sums = [fit.residual2, fit.norm2, unobserved];
        comm.sum(metrics::RESIDUAL, &mut sums);
        if sums[2] > 0.0 {
            progress.warn(&format!(
                "nothing is observed in {} of the new matrix, so the rows of U are zeros there",
                counted(sums[2] as usize, "row", "rows")
            ));
        }
        (u, metrics::relative(sums[0], sums[1]))
    };
    let overflowed = u.iter().any(|x| !x.is_finite());
    comm.agree_on_error(if overflowed {
        let file = args.factors.display();
        Err(Error::input(format!(
            "{file}: V is so small that weights would exceed the largest number; multiply V by a large number"
        )))
    } else {
        Ok(())
    })?;
    if let Some(Destination { path, .. }) = destination {
        let v = if let Some(common) = common { common.spread(v) } else { v };
        let own_v = fednmf_comm::even_part(n, comm.size(), comm.rank());
        let pieces = [
            Piece::shared("U", m, matrix.rows.start, u.view()),
            Piece::shared("V", n, own_v.start, v.slice(s![own_v, ..])),
        ];
        let mut about = attributes_of(args, &factors, (m, n), k, error);
        let ignored = common.filter(|_| !keeps_v).map_or(0, Common::ignored) as u64 + ignored_before;
        if ignored > 0 {
            about.insert(COLUMNS_IGNORED.into(), ignored.into());
        }
        let measured = divergence.filter(|(_, x)| x.is_finite());
        about.extend(measured.map(|(measure, x)| (measure.key().to_string(), x.into())));
        let of_old_rows = comm.agree_on_error(if comm.is_root() { balance(&factors) } else { Ok(None) })?;
        about.extend(of_old_rows.map(|balance| (BALANCE.to_string(), balance.into())));
        if let Some(marks) = &matrix.marks {
            about["params"][MARKS] = checksum_text(marks.checksum(comm)).into();
        }
        matrices::write_factors(comm, path, &pieces, &about, &annotations)?;
    }
    if let Some(note) = divergence.and_then(|(_, x)| metrics::note_infinite(run.beta.unwrap_or(1.0), x)) {
        progress.warn(note);
    }
    if comm.is_root() {
        if args.json {
            let mut all = json!({"rel_error": error, "m": m, "n": n, "k": k, "output": destination.map(|to| to.path)});
            if let Some((measure, divergence)) = divergence {
                all[measure.key()] = divergence.into();
            }
            if let Some(common) = common {
                all["columns_missing"] = common.missing().into();
                all[COLUMNS_IGNORED] = common.ignored().into();
            }
            print_line(&all.to_string())?;
        } else {
            let output = destination.map_or_else(
                || "U was not kept (no --output).".into(),
                |to| {
                    let sorted = match &matrix.orders.columns {
                        Order::Reordered(_) => ", sorted like the new columns,",
                        Order::Common(common) if !common.others_are_zero() => {
                            ", with a row for each new column (zeros where the factors have none),"
                        }
                        _ => "",
                    };
                    format!("U and V{sorted} are in {}.", to.path.display())
                },
            );
            let divergence =
                divergence.map_or_else(String::new, |(measure, x)| format!("{}, ", measure.with_value(x, run.beta)));
            let used = common
                .map_or_else(String::new, |common| format!(", of whose columns {} are used", n - common.ignored()));
            print_line(&format!("{divergence}relative error {} ({m} x {n}{used}, k = {k}). {output}", precise(error)))?;
        }
    }
    Ok(EXIT_DONE)
}

/// Checks the output before anything is read.
fn check_files(args: &ProjectArgs, spec: &InputSpec) -> Result<()> {
    let mut sources = vec![("FACTORS", args.factors.clone())];
    sources.extend(spec.files().into_iter().map(|path| ("--input", path)));
    sources.extend(args.missing.as_ref().and_then(|missing| missing.marks()).map(|path| ("--missing", path.into())));
    let target = match (&args.output, &args.add_to) {
        (Some(path), _) => {
            matrices::Format::of(path).map_err(|e| e.at("--output"))?;
            Target { option: "--output", path, content: Content::Factors }
        }
        (None, Some(path)) => Target { option: "--add-to", path, content: Content::AddedFactors },
        (None, None) => return Ok(()),
    };
    targets::check(&[target], &sources)
}

/// The factors, with the missing entries of the new matrix.
fn opened(args: &ProjectArgs) -> Result<StoredFactors> {
    let mut factors = StoredFactors::open(&args.factors)?;
    let run = &mut factors.run;
    run.check_divisor(&args.factors)?;
    if let Some(method) = run.method.filter(|method| method.is_boolean()) {
        return Err(Error::input(format!(
            "{}: holds Boolean factors (of {}); only real ones can be projected on",
            args.factors.display(),
            method.name
        )));
    }
    // Entries held out of the run are unrelated to another matrix.
    run.holdout = None;
    if args.missing.is_some() {
        run.name_missing(args.missing.as_ref(), &args.factors)?;
    } else if let Some(file) = run.missing.marks() {
        return Err(Error::input(format!(
            "{}: the run left out the entries that {file} marks; say which ones are missing in the new matrix: --missing FILE, \
             or --missing none",
            args.factors.display()
        )));
    }
    if args.min_gain.is_some() && (run.missing != Missing::None || run.beta.is_some_and(|beta| beta != 1.0)) {
        return Err(Error::input(
            "--min-gain: is for the squared error and the Kullback-Leibler divergence, without missing entries; leave it out",
        ));
    }
    run.check_one_v(&args.factors)?;
    Ok(factors)
}

/// The attributes of the output. The parameters are those of the run, so that the result can be evaluated and projected on.
fn attributes_of(
    args: &ProjectArgs,
    StoredFactors { stored, run, .. }: &StoredFactors,
    (m, n): (usize, usize),
    k: usize,
    error: f64,
) -> Map<String, Value> {
    let mut params = with_all_params(stored.attributes().clone())["params"].take();
    if let Some(params) = params.as_object_mut() {
        OF_THE_DATA.iter().for_each(|name| drop(params.remove(*name)));
    }
    // A penalty counts for each row and column of its matrix. That on the new U is as it was.
    let scaled =
        |alpha: f64, length: Option<u64>, new: usize| alpha * length.map_or(1.0, |length| length as f64 / new as f64);
    let [m_of_run, n_of_run] = run.shape;
    if run.regularization.is_on() {
        params["alpha_u"] = scaled(run.regularization.alpha_u, n_of_run, n).into();
        params["alpha_v"] = scaled(run.regularization.weight_on_v(), m_of_run, m).into();
    }
    params["missing"] = run.missing.value().into();
    params["transpose"] = args.transpose.into();
    params["holdout"] = 0.into();
    params["stack"] = run.stack().into();
    // V has a row for each column of the new matrix, with zeros for those that were not used.
    params["highly_variable"] = 0.into();
    let mut all = attributes::provenance();
    let more = json!({
        "algo": "project", "factors": args.factors, "input": args.input, "m": m, "n": n, "k": k, "rel_error": error,
        "params": params, "min_gain": args.min_gain,
    });
    all.extend(more.as_object().cloned().unwrap_or_default());
    // Projected factors keep the method of the run that V is from.
    all.extend(run.method.map(|method| (METHOD_OF_V.to_string(), method.name.into())));
    all
}
