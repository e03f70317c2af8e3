//! `fednmf project`: the factor U of new rows, for the V of an earlier run.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use clap::Args;
use ndarray::{Array2, Axis, s};
use serde_json::{Map, Value, json};

use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print_line;
use fednmf_base::units::parse_bytes;
use fednmf_comm::{CONTROL, Communicator};
use fednmf_data::state::Piece;
use fednmf_data::{Layout, Panels};
use fednmf_driver::metadata::Destination;
use fednmf_driver::progress::Progress;
use fednmf_driver::{metadata, missing, streaming};
use fednmf_files as data;
use fednmf_files::formats::options::TableFormat;
use fednmf_files::names;
use fednmf_files::names::Names;
use fednmf_files::output::attributes;
use fednmf_files::output::matrices;
use fednmf_files::output::matrices::{Factor, Stored};
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Target};
use fednmf_files::{InputSpec, TableOptions};
use fednmf_linalg::Block;
use fednmf_linalg::nls;
use fednmf_methods::metrics;
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters;
use fednmf_methods::parameters::{Missing, ParamType as _};
use fednmf_methods::shared::missing::Observed;

use crate::cli::parameters::Group;

use super::provenance::{METHOD_OF_V, Provenance, order};

/// `fednmf project`.
#[derive(Debug, Args)]
pub struct ProjectArgs {
    /// File with V, as --output writes it (.h5, .h5ad, .npz)
    pub factors: PathBuf,
    /// The new matrix: any input that a run takes, with the columns of the old one
    #[arg(short = 'i', long, value_name = "PATH")]
    pub input: String,
    /// Write the new U, and V with its rows in the order of the new matrix's columns, to this file (.h5, .h5ad, .npz)
    #[arg(short = 'o', long, value_name = "F.h5")]
    pub output: Option<PathBuf>,
    /// Add both to this AnnData file, which keeps everything else; may be the input
    #[arg(long, value_name = "F.h5ad", conflicts_with = "output")]
    pub add_to: Option<PathBuf>,
    /// Missing entries of the new matrix: none, nan, zero-unobserved, or a matrix file that marks them [default: as in the run
    /// that made the factors]
    #[arg(long, value_name = "WHICH", value_parser = parameters::missing)]
    pub missing: Option<Missing>,
    /// Transpose the new matrix
    #[arg(long)]
    pub transpose: bool,
    #[command(flatten)]
    pub table: Group<TableOptions>,
    /// Memory that the ranks of a node may use together: 4G, 512M [default: what is free there]. Rows that do not fit are read
    /// from the file a panel at a time, unless entries are missing
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
/// observed entries where some are missing, and with the penalty on U that the factors were made with, as an update of
/// U by `bpp` would find it. For factors that a method made for the divergence it is the least divergence in its place.
/// The matrix is scaled as that of the factors. Every rank solves its own rows; V is on all of them. Collective.
///
/// # Errors
/// If factors or data cannot be read, their shapes or names do not fit, or the output cannot be written.
pub fn project(args: &ProjectArgs, comm: &Communicator) -> Result<i32> {
    let mut spec = InputSpec::parse(&args.input).map_err(Error::on_all_ranks)?;
    spec.transpose = args.transpose;
    spec.table = args.table.0;
    spec.memory = args.memory;
    let checked = if comm.is_root() { check_files(args, &spec) } else { Ok(()) };
    let stored = comm.agree_on_error(checked.and_then(|()| Stored::open_factors(&args.factors)))?;
    let provenance = comm.agree_on_error(provenance(args, &stored))?;
    comm.agree_on_error(provenance.check_one_v(&args.factors))?;
    provenance.apply(&mut spec);
    if !spec.transpose {
        // New transactions need not have every item.
        spec.items = stored.names().columns.as_deref().and_then(names::items);
    }
    let input = data::open(&spec, comm)?;
    spec.complete(input.header());
    let (m, n) = (input.header().rows, input.header().cols);
    let stored_v = comm.agree_on_error(Factor::open(&stored, "V"))?;
    let (columns, k) = stored_v.shape();
    let names = metadata::names_of(&spec, false, comm);
    let matched = if comm.is_root() { matched(&stored, args, &names, (m, n), columns) } else { Ok(Columns::Same) };
    let matched = comm.broadcast_value(CONTROL, comm.agree_on_error(matched)?);
    comm.agree_on_error(provenance.check_orientation(&args.factors, (m, n), args.transpose))?;
    let mut v = comm.agree_on_error(stored_v.rows(None, 0..columns))?;
    let mut progress = Progress::quiet(comm.is_root(), args.quiet, None);
    progress.notes(&input.header().notes);
    progress.warnings(&input.header().warnings);
    match &matched {
        Columns::Same => {}
        Columns::Reordered(order) => {
            v = v.select(Axis(0), order);
            progress.note(
                "the columns of the new matrix are in another order than those of the factors: V is sorted like them",
            );
        }
        Columns::Among(_) => {
            progress
                .note(&format!("the new matrix has {n} of the {columns} items of the factors; the others are empty"));
        }
    }
    if !provenance.note(None).is_empty() {
        progress.note(&provenance.note(None));
    }
    let by_least_squares = provenance.beta.is_none_or(|beta| beta != 1.0);
    if provenance.beta.is_some() && by_least_squares && provenance.missing != Missing::None {
        progress.note("with --missing U is found by least squares, not by the divergence that the factors are for");
    }
    if let Some(note) = provenance.regularization.note_on_u() {
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
    let mut annotations = metadata::annotations(destination, &spec, (m, columns), comm)?;
    annotations.owner_only = stored_v.is_private();
    if comm.is_root() && (annotations.columns.is_none() || matches!(matched, Columns::Among(_))) {
        annotations.columns = stored.names().columns;
    }
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let need = (size_of::<f64>() * k * (m.div_ceil(comm.size()) + columns)) as f64;
    let data = input.least_bytes::<f64>(&plan, comm.size());
    let streamed = match (&provenance.missing, &matched) {
        (Missing::None, Columns::Same | Columns::Reordered(_)) => Ok(need),
        (Missing::None, _) => Err("the new matrix lacks items of the factors".to_string()),
        _ => Err("--missing needs the whole matrix in memory".to_string()),
    };
    let (mut loaded, note) =
        streaming::load::<f64>(input, (&plan, None), (need + data, streamed), comm, &mut |part| {
            progress.loading(part)
        })?;
    note.iter().for_each(|note| progress.note(note));
    progress.finish();
    let own = loaded.cuts.rows[comm.rank()].clone();
    let marks = match provenance.missing.marks() {
        Some(file) => missing::read(file, (m, n), &names, &loaded.cuts, comm)?.places.rows,
        None => Vec::new(),
    };
    if let Some(warning) = missing::warning_of_stored_zeros(&provenance.missing, loaded.stored_zeros) {
        progress.warn(&warning);
    }
    let norm2 = loaded.statistics.norm2;
    let mut block = loaded.blocks.into_iter().next();
    if let (Columns::Among(places), Some(Block::Sparse(x))) = (&matched, &block) {
        block = Some(Block::Sparse(x.with_columns_at(places, columns)));
    }
    let n = columns;
    let penalty = provenance.regularization.penalties((m, n)).u;
    let mut divergence = None;
    let (u, error) = if provenance.missing == Missing::None {
        let mut u = Array2::zeros((own.len(), k));
        let mut sums = [0.0; 2];
        Panels::pass_over(&mut loaded.panels, block.as_ref(), comm, |rows, block| {
            let solved = match provenance.beta {
                None => nls::project(block, &v.view(), penalty),
                Some(1.0) => nls::divergence::project(block, &v.view(), penalty),
                Some(beta) => nls::divergence::project_beta(block, &v.view(), beta, penalty),
            };
            sums[0] += block.residual2(&solved.view(), &v.view());
            if let Some(beta) = provenance.beta {
                sums[1] += metrics::own_divergence(beta, block, &solved.view(), &v.view());
            }
            u.slice_mut(s![rows, ..]).assign(&solved);
        })?;
        comm.sum(metrics::RESIDUAL, &mut sums);
        if let (Some(_), Some(method)) = (provenance.beta, provenance.method) {
            divergence = Some((method.measure, sums[1]));
        }
        (u, metrics::relative(sums[0], norm2))
    } else {
        let marks = marks.into_iter().map(|(i, j)| (i - own.start, matched.place(j)));
        let block = block.ok_or_else(|| Error::failed("a rank has no block"))?;
        let observed = Observed::new(block, provenance.missing == Missing::ZeroUnobserved, marks);
        let u = if by_least_squares {
            observed.project(&v.view(), penalty)
        } else {
            let u = observed.project_by_divergence(&v.view(), penalty);
            let mut sum = [observed.divergence(&u.view(), &v.view())];
            comm.sum(metrics::DIVERGENCE, &mut sum);
            divergence = Some((Measure::Divergence, sum[0]));
            u
        };
        let fit = observed.fit(&u.view(), &v.view());
        let mut sums = [fit.residual2, fit.norm2];
        comm.sum(metrics::RESIDUAL, &mut sums);
        (u, metrics::relative(sums[0], sums[1]))
    };
    if let Some(Destination { path, .. }) = destination {
        let own_v = fednmf_comm::even_part(n, comm.size(), comm.rank());
        let pieces =
            [Piece::shared("U", m, own.start, u.view()), Piece::shared("V", n, own_v.start, v.slice(s![own_v, ..]))];
        let about = attributes_of(args, &stored, &provenance, (m, n), k, error);
        matrices::write_factors(comm, path, &pieces, &about, &annotations)?;
    }
    if let Some(note) = divergence.and_then(|(_, x)| metrics::note_infinite(x)) {
        progress.warn(note);
    }
    if comm.is_root() {
        if args.json {
            let mut all = json!({"rel_error": error, "m": m, "n": n, "k": k, "output": destination.map(|to| to.path)});
            if let Some((measure, divergence)) = divergence {
                all[measure.key()] = divergence.into();
            }
            print_line(&all.to_string())?;
        } else {
            let output = destination.map_or_else(
                || "U was not kept (no --output).".into(),
                |to| {
                    let sorted =
                        if matches!(matched, Columns::Reordered(_)) { ", sorted like the new columns," } else { "" };
                    format!("U and V{sorted} are in {}.", to.path.display())
                },
            );
            let divergence =
                divergence.map_or_else(String::new, |(measure, x)| format!("{} {x:.6e}, ", measure.label()));
            print_line(&format!("{divergence}relative error {error:.6} ({m} x {n}, k = {k}). {output}"))?;
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

/// What the factors were made with, and the missing entries of the new matrix.
fn provenance(args: &ProjectArgs, stored: &Stored) -> Result<Provenance> {
    let mut provenance = Provenance::of(stored, &args.factors)?;
    provenance.check_divisor(&args.factors)?;
    if let Some(method) = provenance.method.filter(|method| method.is_boolean()) {
        return Err(Error::input(format!(
            "{}: holds Boolean factors (of {}); only real ones can be projected on",
            args.factors.display(),
            method.name
        )));
    }
    // Entries held out of the run are unrelated to another matrix.
    provenance.holdout = None;
    if args.missing.is_some() {
        provenance.name_missing(args.missing.as_ref(), &args.factors)?;
    } else if let Some(file) = provenance.missing.marks() {
        return Err(Error::input(format!(
            "{}: the run left out the entries that {file} marks; say which ones are missing in the new matrix: --missing FILE, \
             or --missing none",
            args.factors.display()
        )));
    }
    Ok(provenance)
}

/// How the columns of the new matrix relate to the rows of V.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
enum Columns {
    Same,
    /// Column j is row `order[j]` of V.
    Reordered(Vec<usize>),
    /// Column j is row `places[j]` of V, and the columns of the other rows are empty.
    Among(Vec<usize>),
}

impl Columns {
    /// The column of the solved matrix that corresponds to column j of the file.
    fn place(&self, j: usize) -> usize {
        if let Columns::Among(places) = self { places[j] } else { j }
    }
}

/// Matches the columns of the new m × n matrix with the `rows` of V. Triples have the items that occur in them: all others are
/// empty columns.
fn matched(
    stored: &Stored,
    args: &ProjectArgs,
    matrix: &Names,
    (m, n): (usize, usize),
    rows: usize,
) -> Result<Columns> {
    let factors = stored.names();
    if let (TableFormat::Triples, Some(items), Some(known)) = (args.table.0.format, &matrix.columns, &factors.columns)
        && items.len() != known.len()
    {
        let places: HashMap<&str, usize> = known.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
        let place = |item: &String| {
            places.get(item.as_str()).copied().ok_or_else(|| {
                Error::input(format!(
                    "{}: the item {item} of the new matrix is not among the {rows} of the factors; leave it out",
                    args.factors.display()
                ))
            })
        };
        return Ok(Columns::Among(items.iter().map(place).collect::<Result<_>>()?));
    }
    if let Some((new, known)) =
        matrix.columns.as_ref().zip(factors.columns.as_ref()).filter(|(new, _)| new.len() > rows)
    {
        let known: HashSet<&String> = known.iter().collect();
        if let Some(name) = new.iter().find(|name| !known.contains(name)) {
            return Err(Error::input(format!(
                "{}: column {name} of the new matrix is not among the {rows} of the factors; leave it out",
                args.factors.display()
            )));
        }
    }
    if rows != n {
        let hint = match (m == rows, args.transpose) {
            (true, false) => ": add --transpose",
            (true, true) => ": omit --transpose",
            _ => "",
        };
        return Err(Error::input(format!(
            "{}: V has {rows} rows, one for each column of its matrix, but the new matrix is {m} x {n}; it needs the same \
             columns{hint}",
            args.factors.display()
        )));
    }
    let order = order(&args.factors, "column", matrix.columns.as_deref(), factors.columns.as_deref())?;
    Ok(order.map_or(Columns::Same, Columns::Reordered))
}

/// The attributes of the output. The parameters are those of the run, so that the result can be evaluated and projected on.
fn attributes_of(
    args: &ProjectArgs,
    stored: &Stored,
    provenance: &Provenance,
    (m, n): (usize, usize),
    k: usize,
    error: f64,
) -> Map<String, Value> {
    let mut params = stored.attributes().get("params").cloned().unwrap_or_else(|| json!({}));
    params["missing"] = provenance.missing.value().into();
    params["transpose"] = args.transpose.into();
    params["holdout"] = 0.into();
    params["stack"] = provenance.stack().into();
    let mut all = attributes::provenance();
    let more = json!({
        "algo": "project", "factors": args.factors, "input": args.input, "m": m, "n": n, "k": k, "rel_error": error,
        "params": params,
    });
    all.extend(more.as_object().cloned().unwrap_or_default());
    // Of projected factors again the method that they began with.
    all.extend(provenance.method.map(|method| (METHOD_OF_V.to_string(), method.name.into())));
    all
}
