//! Checks of the request, by itself and against the data.

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result, SharedError, SharedResult};
use fednmf_comm::{CONTROL, Communicator};
use fednmf_data::messages::DIVERGED;
use fednmf_data::{Header, PartySplit, Statistics};
use fednmf_files::output::party_files;
use fednmf_files::output::targets;
use fednmf_files::output::targets::{Content, Source, Target};
use fednmf_files::output::view::file_of;
use fednmf_files::{InputSpec, Threshold};
use fednmf_linalg::{Block, Real};
use fednmf_methods::Algorithm;
use fednmf_methods::description::{Description, Form, Partition};
use fednmf_methods::federated::columns::asyn::ClockParams;
use fednmf_methods::parameters::GridShape;
use fednmf_privacy::Public;

use super::plan::Planned;
use super::spec::{Precision, Spec};
use super::transcript;

/// Checks the files that the run writes, before anything is read; returns whether there is a checkpoint to resume from. Rank
/// 0 (or each owner of a rank) checks the common files, and every rank those of its parties, which may be on another
/// machine. Errors may differ between ranks.
pub(super) fn before_reading(spec: &Spec, comm: &Communicator) -> Result<bool> {
    let mut resuming = false;
    let mut checked = if comm.reports() {
        resuming = spec.resume && spec.checkpoint.as_ref().is_some_and(|p| p.exists());
        check_files(spec, comm)
    } else {
        files_with_parties(spec).into_iter().flatten().try_for_each(|target| target.check_party_files())
    };
    checked = checked.and_then(|()| check_moved(spec));
    let mine = resuming;
    let Resuming(resuming) = comm.broadcast_public(CONTROL, Resuming(resuming));
    if comm.has_owners() && mine != resuming && checked.is_ok() {
        checked = Err(Error::input(format!(
            "--resume: there is {} checkpoint here, but {} at {}; all sites need one, or none",
            if mine { "a" } else { "no" },
            if resuming { "one" } else { "none" },
            comm.name_of(0)
        )));
    }
    checked.map(|()| resuming)
}

/// Whether there is a checkpoint to resume from.
#[derive(Serialize, Deserialize)]
struct Resuming(bool);

impl Public for Resuming {
    const WHY: &'static str = "an option, and whether a file exists";
}

/// The outputs that parties complement with files of their own.
fn files_with_parties(spec: &Spec) -> [Option<Target<'_>>; 2] {
    let (option, content) = match spec.outputs.add {
        true => ("--add-to", Content::AddedFactors),
        false => ("--output", Content::Factors),
    };
    [
        spec.outputs.factors.as_deref().map(|path| Target { option, path, content }),
        spec.checkpoint.as_deref().map(|path| Target { option: "--checkpoint", path, content: Content::Checkpoint }),
    ]
}

/// Refuses the name of an output that was moved without the files of its parties, because it still refers to them. The
/// files of a killed run look the same; `--resume` completes them.
fn check_moved(spec: &Spec) -> Result<()> {
    let Some(path) = spec.outputs.factors.as_deref().filter(|path| !path.exists() && !spec.resume) else {
        return Ok(());
    };
    if !spec.description().partition.is_private() {
        return Ok(());
    }
    let own = party_files::beside(path).into_iter().find(|(file, name)| name.generation.is_none() && name.is_own(file));
    let Some((file, _)) = own else { return Ok(()) };
    Err(Error::input(format!(
        "--output {}: is not there, but {} is, and an output that was moved needs it; choose another name, or remove \
         the files of the parties",
        path.display(),
        file.display()
    )))
}

/// Checks the files that the run writes against each other and against those that it reads.
fn check_files(spec: &Spec, comm: &Communicator) -> Result<()> {
    let ranks = comm.size();
    let groups = spec.method.assumed().groups();
    let others = [
        ("--trace", spec.trace.as_deref(), Content::Trace),
        ("--report", spec.outputs.report.as_ref().map(|(path, _)| path.as_path()), Content::Report),
        ("--record-order", groups.clock.and_then(ClockParams::order_file), Content::Order),
    ];
    let views: Vec<_> = spec.record_view.iter().flat_map(|path| (0..ranks).map(|rank| file_of(path, rank))).collect();
    let transcripts = transcript::files(spec, comm);
    let transcripts = transcripts.iter().map(|(option, path)| Target { option, path, content: Content::Transcript });
    let views = views.iter().map(|path| Target { option: "--record-view", path, content: Content::View });
    let others = others.into_iter().filter_map(|(option, path, content)| Some(Target { option, path: path?, content }));
    let outputs = files_with_parties(spec).into_iter().flatten().chain(others).chain(views).chain(transcripts);
    let mut inputs: Vec<Source> = spec.input.files().into_iter().map(|path| ("--input", path)).collect();
    inputs.extend(spec.split.clone().map(|path| ("--split", path)));
    inputs.extend(groups.clock.and_then(ClockParams::replayed_file).map(|path| ("--replay", path.to_path_buf())));
    inputs.extend(groups.dp.and_then(|dp| dp.budget_path()).map(|budget| ("--budget", budget.path.to_path_buf())));
    inputs.extend(groups.init.and_then(|init| init.file()).map(|path| ("--init", path.to_path_buf())));
    inputs.extend(groups.missing.and_then(|group| group.missing.marks()).map(|path| ("--missing", path.into())));
    targets::check(&outputs.collect::<Vec<_>>(), &inputs)
}

/// Refuses outputs for which there is no space, before hours are spent on them: the shared factors, which go to the output
/// and to the checkpoint. Collective.
///
/// # Errors
/// On all ranks.
pub(super) fn check_output_space(planned: &Planned, comm: &Communicator) -> SharedResult<()> {
    let method = planned.description();
    let (rows, cols) = planned.shape;
    let lines = match method.partition {
        Partition::PartyRows => cols,
        partition if partition.is_private() => rows,
        _ => rows + cols,
    };
    let word = if method.is_boolean() { 1 } else { planned.precision.word() };
    let need = lines as f64 * (planned.spec.k * word) as f64;
    let outputs = [("--output", &planned.outputs.factors), ("--checkpoint", &planned.spec.checkpoint)];
    let enough = outputs.into_iter().filter(|_| comm.reports()).try_for_each(|(option, path)| match path {
        Some(path) => targets::check_space(&format!("{option} {}", path.display()), path, "the factors take", need),
        None => Ok(()),
    });
    comm.agree_on_error(enough)
}

/// How the data is divided among the parties. Only rank 0 reads the file of `--split`. Collective.
pub(super) fn share(spec: &Spec, comm: &Communicator) -> Result<PartySplit> {
    let Some(path) = &spec.split else {
        return Ok(spec.skew.map_or(PartySplit::Even, PartySplit::First));
    };
    let text = comm.broadcast_settings(CONTROL, path);
    let text = text.map_err(|e| format!("cannot be read ({e}); check the name"));
    text.map_err(Error::input).and_then(|text| PartySplit::parse(&text)).map_err(|e| e.at(split_name(spec)))
}

/// The option that divides the data, for messages.
pub(super) fn split_name(spec: &Spec) -> String {
    match (&spec.split, spec.skew) {
        (Some(path), _) => format!("--split {}", path.display()),
        (None, Some(skew)) => format!("--skew {skew}"),
        (None, None) => String::new(),
    }
}

pub(super) fn check_grid(spec: &Spec, ranks: usize) -> Result<()> {
    match spec.method.assumed().groups().grid.and_then(|group| group.grid.given()) {
        Some(GridShape { rows: pr, cols: pc }) if pr.checked_mul(pc) != Some(ranks) => {
            let product = pr.checked_mul(pc).map_or_else(|| "far too many".into(), |p| p.to_string());
            Err(Error::input(format!(
                "--grid {pr}x{pc}: that is for {product} ranks, and this run has {ranks}; rows times columns of the grid must \
                 be the number of ranks (mpirun -n)"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses a quantile of private data: it would be found from counts of the parties' values in the clear.
pub(super) fn check_quantile(input: &InputSpec, partition: Partition, parties: usize) -> Result<()> {
    let quantile = matches!(input.binarize, Some(Threshold::Quantile(_)));
    if quantile && parties > 1 && partition.is_private() {
        return Err(Error::input(
            "--binarize: a quantile over the data of several parties would reveal how many entries of each have which value; \
             agree on a threshold, and give that number",
        ));
    }
    Ok(())
}

pub(super) fn check_shape(spec: &Spec, header: &Header) -> Result<()> {
    let smaller = header.rows.min(header.cols);
    if smaller == 0 {
        return Err(Error::input(format!("the matrix is empty ({} x {})", header.rows, header.cols)));
    }
    spec.description().partition.check_shape(header.rows, header.cols)?;
    if spec.k > smaller {
        return Err(Error::input(format!(
            "--components {}: the matrix is {} x {}, so at most {smaller} components make sense",
            spec.k, header.rows, header.cols
        )));
    }
    Ok(())
}

pub(super) fn check_form<T: Real>(method: &Description, block: &Block<T>) -> Result<()> {
    let form = match block {
        Block::Dense(_) => Form::Dense,
        Block::Sparse(_) => Form::Sparse,
        Block::Bits(_) => Form::Bits,
    };
    if method.forms.contains(&form) {
        return Ok(());
    }
    Err(Error::input(format!("{} does not work on {form:?} data", method.name)))
}

/// Refuses entries whose squares underflow, or cannot be multiplied in the precision of the run: relative errors would be
/// undefined.
///
/// # Errors
/// With the size of the entries and what to do.
pub fn check_size(precision: Precision, statistics: &Statistics) -> Result<()> {
    if !statistics.norm2.is_normal() {
        return Err(Error::input("the square of the largest entry underflows; multiply the data first (--scale max)"));
    }
    let square = statistics.norm2 / statistics.nonzeros.max(1) as f64;
    let single = matches!(precision, Precision::F32 | Precision::Mixed);
    if single && !(SQUARES_IN_F32.contains(&square)) {
        return Err(Error::input(format!(
            "--precision {}: f32 cannot multiply numbers as {} as most entries; use --precision f64, or scale the data (--scale max)",
            precision.name(),
            if square < 1.0 { "small" } else { "large" }
        )));
    }
    Ok(())
}

/// Mean squares of entries with which products of three factors neither underflow nor overflow in f32.
const SQUARES_IN_F32: std::ops::RangeInclusive<f64> = 1e-34..=1e34;

/// Refuses factors with entries that are not finite. Collective.
///
/// # Errors
/// On all ranks, if any rank has such an entry.
pub(super) fn all_finite<T: Real>(comm: &Communicator, algorithm: &dyn Algorithm<T>) -> SharedResult<()> {
    let finite = algorithm.factors().iter().all(|piece| piece.values.iter().all(|x| x.is_finite()));
    let mut wrong = [u32::from(!finite)];
    comm.max(DIVERGED, &mut wrong);
    if wrong[0] == 0 { Ok(()) } else { Err(diverged(algorithm.iteration(), "")) }
}

/// The error of factors that are no longer finite; `more` follows the iteration.
pub(super) fn diverged(iteration: usize, more: &str) -> SharedError {
    Error::failed(format!(
        "the factors are no longer finite numbers after iteration {iteration}{more}; try --scale max, or --precision f64"
    ))
    .on_all_ranks()
}
