//! Before the first iteration: check, load, build the method, resume, open the trace.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use serde_json::{Map, Value, json};

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::watchdog;
use fednmf_comm::{CONTROL, Communicator, Parties, Signals};
use fednmf_data::state::{Owner, ReadRows};
use fednmf_data::{GridChooser, GridTraffic, Header, Layout, Loaded, PartySplit, memory};
use fednmf_files as data;
use fednmf_files::names::Names;
use fednmf_files::output::attributes;
use fednmf_files::output::checkpoint;
use fednmf_files::output::checkpoint::Checkpoint;
use fednmf_files::output::matrices::Annotations;
use fednmf_files::output::view::ViewFile;
use fednmf_files::{Input, Source};
use fednmf_linalg as linalg;
use fednmf_linalg::{Context, ProductKernels, Real};
use fednmf_methods::cost::Workload;
use fednmf_methods::description::Partition;
use fednmf_methods::federated::graph::ppdnmf::GRAPH;
use fednmf_methods::method::MatrixShape;
use fednmf_methods::precision::Precision;
use fednmf_methods::shared::grid::plan as layout_of;
use fednmf_methods::shared::missing::MissingParams;
use fednmf_methods::{Algorithm, Problem};
use fednmf_report::{Lines, Sample};

use super::checks::{check_form, check_grid, check_quantile, check_shape, check_size, share, split_name};
use super::init_file::Initial;
use super::settings::{self, Settings};
use super::{budget, grid, identity, kernels, metadata, missing, notes, precision, report, streaming, view};
use crate::checkpoint::Checkpointer;
use crate::iterate::{Driver, Limits, Trajectory};
use crate::progress::Progress;
use crate::trace::Trace;

/// The part of a run that stays the same and is written with its results.
pub struct Run {
    pub settings: Settings,
    /// The trace's start event.
    pub start: Value,
    pub annotations: Annotations,
    /// Lines of the matrix for the report.
    pub sample: Option<Sample>,
    /// Who owns which block.
    pub parties: Parties,
    /// Whether a factor stays with the parties.
    pub private_factor: bool,
}

/// The data of this rank, and how it was divided.
struct Divided<T: Real> {
    loaded: Loaded<T>,
    plan: Layout,
    /// What was counted to choose a grid.
    grids: Option<Value>,
    parties: Parties,
    /// The counts of `--split`.
    split: Option<String>,
    seconds: f64,
}

impl<T: Real> Divided<T> {
    /// The parties that `rank` hosts, with the rows or columns that are theirs.
    fn hosted(&self, rank: usize) -> Vec<(usize, Range<usize>)> {
        let cuts = &self.loaded.cuts;
        let parts = if matches!(self.plan, Layout::PartyColumns { .. }) { &cuts.cols } else { &cuts.rows };
        self.parties.hosted(rank).filter_map(|party| Some((party, parts.get(party)?.clone()))).collect()
    }
}

/// A run whose input is open: its settings are complete.
pub struct Opened {
    settings: Settings,
    precision: settings::Precision,
    input: Input,
    share: PartySplit,
    resuming: bool,
    view: Option<Rc<RefCell<ViewFile>>>,
    lines: Option<Lines>,
    progress: Progress,
    loading: Instant,
}

impl Opened {
    /// The precision of the run.
    pub fn precision(&self) -> settings::Precision {
        self.precision
    }
}

/// Opens the input and completes the settings; `resuming`: there is a checkpoint to go on from. Collective.
///
/// # Errors
/// On wrong input, on all ranks alike.
pub fn open(settings: &Settings, comm: &Communicator, resuming: bool) -> SharedResult<Opened> {
    check_grid(settings, comm.size()).map_err(Error::on_all_ranks)?;
    if let Some(path) = settings.checkpoint.as_ref().filter(|_| resuming) {
        checkpoint::roll_back_to_common(path, comm)?;
    }
    let share = comm.agree_on_error(share(settings, comm))?;
    let view = settings.record_view.as_ref().map(|path| ViewFile::create(path, comm.rank()));
    let view = comm.agree_on_error(view.transpose())?;
    if let Some(view) = &view {
        comm.record_view(view.clone());
    }
    watchdog::enter("loading");
    let loading = Instant::now();
    let input = data::open(&settings.input, comm)?;
    let header = input.header().clone();
    check_shape(settings, &header).map_err(Error::on_all_ranks)?;
    let mut settings = settings.settled(header.rows, header.cols, header.sparse);
    settings.input.complete(&header);
    if let Some((_, display)) = &mut settings.report {
        display.show_images(header.image);
    }
    let chosen = precision::choose(&settings, &header, resuming, comm);
    (settings.precision, settings.precision_why) = (Some(chosen.precision), chosen.why);
    let settings = settled_by_memory(settings, &input, resuming, comm);
    let lines = report::lines(&settings, &header).map_err(Error::on_all_ranks)?;
    let mut progress = Progress::quiet(comm.reports(), settings.quiet, Some(settings.max_iters));
    notes::of_settings(&settings, &mut progress);
    progress.notes(&header.notes);
    progress.warnings(&header.warnings);
    Ok(Opened { precision: chosen.precision, settings, input, share, resuming, view, lines, progress, loading })
}

/// The settings, with another method if `--algo auto` chose one that needs its data in memory and memory is
/// insufficient. Collective.
fn settled_by_memory(settings: Settings, input: &Input, resuming: bool, comm: &Communicator) -> Settings {
    let Header { rows: m, cols: n, sparse, .. } = *input.header();
    let needs_memory =
        streaming::bytes_besides_panels::<f64>(&settings, input.header(), comm.size(), resuming).is_err();
    if settings.automatic.is_none() || !needs_memory || input.check_streaming().is_err() {
        return settings;
    }
    let parties = Parties { count: comm.size(), ranks: comm.size() };
    let partition = settings.description().partition;
    let plan = layout_of(partition, (m, n), comm.size(), parties, PartySplit::Even, None);
    let need = match settings.precision {
        Some(settings::Precision::F32) => least_bytes::<f32>(&settings, input, &plan, (parties, comm.rank()), resuming),
        _ => least_bytes::<f64>(&settings, input, &plan, (parties, comm.rank()), resuming),
    };
    match memory::nodes(need, settings.input.memory, comm).iter().any(memory::Node::lacks) {
        true => settings.settled_for(MatrixShape { m, n, k: settings.k, sparse, streamed: true }),
        false => settings,
    }
}

/// Bytes that a rank holds at least where its data are in memory.
fn least_bytes<T: Real>(
    settings: &Settings,
    input: &Input,
    plan: &Layout,
    (parties, rank): (Parties, usize),
    resuming: bool,
) -> f64 {
    let workspace = workspace_bytes::<T>(settings, input.header(), parties, rank, resuming);
    let mixed = settings.precision == Some(settings::Precision::Mixed);
    let narrow = if mixed { input.least_bytes::<f32>(plan, parties.ranks) } else { 0.0 };
    input.least_bytes::<T>(plan, parties.ranks) + workspace + narrow
}

/// Prepares everything up to the first iteration. Collective.
///
/// # Errors
/// On wrong input (on all ranks alike), or if the run cannot start.
pub fn prepare<T: Precision>(
    opened: Opened,
    context: &Context,
    comm: &Communicator,
    signals: Signals,
) -> SharedResult<(Run, Driver<T>)> {
    let Opened { settings, input, share, resuming, view, lines, mut progress, loading, .. } = opened;
    let header = input.header().clone();
    let mut divided = load::<T>(&settings, comm, input, (share, resuming), loading, &mut progress)?;

    watchdog::enter("preparing");
    let hosted = settings.description().partition.is_private().then(|| divided.hosted(comm.rank()));
    let annotate = |private| {
        let to = settings.output.as_deref().map(|path| metadata::Destination { path, add: settings.add, private });
        metadata::annotations(to, &settings.input, (header.rows, header.cols), comm)
    };
    let public = hosted.is_none().then(|| annotate(None)).transpose()?;
    let sample = match lines {
        Some(lines) => report::sample_of(&settings, lines, &divided.plan, &mut divided.loaded, comm)?,
        None => None,
    };
    let kernels = context.options().kernels;
    let mut identity = identity::of(&settings, &divided.loaded, divided.parties, divided.split.as_deref());
    let mut start = start_event(&settings, comm, &divided, kernels);
    let (threshold, divisor) = (quantile_threshold(&settings, &divided.loaded), divided.loaded.divisor);
    let parties = divided.parties;
    let fingerprints = identity::fingerprints(&settings, &divided.loaded, parties, comm.rank());
    let protects = budget::scope(&settings, comm, &divided.loaded.cuts);
    let view = view.map(|file| view::Viewing::new(file, comm, &settings, divided.parties, &divided.loaded));
    let building = Instant::now();
    let (mut algorithm, marks) = build(&settings, comm, divided, resuming)?;
    let building = building.elapsed().as_secs_f64();
    let private_factor = hosted.is_some() && has_private_factor(&*algorithm, comm);
    let annotations = match public {
        Some(annotations) => annotations,
        // A method of parties may still give all factors to all parties.
        None if settings.input.by_party() || private_factor => annotate(hosted.as_deref())?,
        None => annotate(None)?,
    };
    notes::choices(&settings, &*algorithm, &mut progress);
    notes::unobserved(&*algorithm, &mut progress);
    notes::held_out(&settings, &*algorithm, (header.rows, header.cols), &mut progress);
    let left_out = identity::left_out(&settings, header.sparse, marks);
    identity.extend(left_out.clone());
    let graph = algorithm.decisions().into_iter().find(|(name, _)| *name == GRAPH);
    identity.extend(graph.map(|(name, digest)| (name.to_string(), digest)));
    let mut parameters = parameters(&settings, &*algorithm, threshold, divisor);
    parameters.extend(left_out);
    parameters.extend(identity::order_of_names(&settings, &annotations));
    start["params"] = parameters.into();

    let trajectory = match settings.checkpoint.as_ref().filter(|_| resuming) {
        Some(path) => {
            let trajectory =
                comm.agree_on_error(identity::resume(path, comm, &identity, &fingerprints, &mut *algorithm))?;
            progress.note(&format!("going on at iteration {} from {}", trajectory.iteration, path.display()));
            trajectory
        }
        None => {
            comm.agree_on_error(identity::check_replaced(&settings, comm, &identity, &mut progress))?;
            Trajectory::after(building)
        }
    };
    start["resumed_from"] = trajectory.iteration.into();
    if trajectory.iteration > settings.max_iters {
        progress.warn(&format!(
            "--max-iters {}: the checkpoint is of iteration {}, whose factors are kept as they are",
            settings.max_iters, trajectory.iteration
        ));
    }
    let forecast = comm.agree_on_error(algorithm.forecast())?;
    notes::duration(forecast, settings.max_iters.saturating_sub(trajectory.iteration), &mut progress);
    if algorithm.private_releases().is_some() && settings.eval_every > 0 {
        progress.warn(
            "--dp: evaluations send exact errors of the parties, which --epsilon does not cover; --eval-every 0 sends none",
        );
    }
    budget::reserve(&settings, comm, parties, protects.as_ref(), algorithm.private_releases())?;
    let trace = open_trace(&settings, comm, resuming.then_some(trajectory.iteration), &start)?;
    identity.insert(kernels::USED.into(), kernels::names(kernels));
    let checkpoint = settings.checkpoint.as_ref().map(|path| Checkpoint::new(path));
    let remembers = settings.output.is_some();
    let driver = Driver {
        comm: comm.clone(),
        algorithm,
        trajectory,
        limits: Limits {
            max_iters: settings.max_iters,
            tol: settings.tol,
            target_error: settings.target_error,
            time_limit: settings.time_limit,
            eval_every: settings.eval_every,
        },
        leading: settings.measure(),
        signals: Some(signals),
        trace,
        progress,
        checkpointer: Checkpointer::new(comm, checkpoint, identity, settings.checkpoint_every, remembers)
            .with_fingerprints(fingerprints),
        view,
    };
    Ok((Run { settings, start, annotations, sample, parties, private_factor }, driver))
}

/// Whether a factor stays with the parties. Collective.
fn has_private_factor<T: Real>(algorithm: &dyn Algorithm<T>, comm: &Communicator) -> bool {
    let own = algorithm.factors().iter().any(|piece| piece.owner != Owner::Shared);
    comm.all_gather_value(CONTROL, &own).into_iter().any(|any| any)
}

/// Divides the matrix among ranks and parties and loads this rank's blocks. Collective.
fn load<T: Real>(
    settings: &Settings,
    comm: &Communicator,
    input: Input,
    (share, resuming): (PartySplit, bool),
    loading: Instant,
    progress: &mut Progress,
) -> SharedResult<Divided<T>> {
    let shape @ (m, n) = (input.header().rows, input.header().cols);
    let counted = if let PartySplit::Counts(counts) = &share { Some(counts.len()) } else { None };
    let count = settings.parties.or(counted).or(input.header().files).unwrap_or(comm.size());
    let parties = Parties { count, ranks: comm.size() };
    check_quantile(settings, count).map_err(Error::on_all_ranks)?;
    notes::few_parties(settings, count, progress);
    let one_file = matches!(settings.input.source, Source::File { .. }) && !settings.input.by_party();
    if one_file && settings.description().partition.is_private() && count > 1 && comm.size() > 1 {
        progress.warn(
            "the parties' data are one file, which all ranks read: entries pass between them in the clear; with {party} in \
             --input each party's file is read by its own rank alone",
        );
    }
    let partition = settings.description().partition;
    if settings.input.by_party() && !partition.is_private() {
        progress.warn(&notes::without_parties(settings));
    }
    let (items, what) = if partition == Partition::PartyRows { (m, "rows") } else { (n, "columns") };
    share.check(items, count, what).map_err(|e| e.at(split_name(settings)).on_all_ranks())?;
    let split = share.counts();
    let groups = settings.method.groups();
    let plan = if groups.missing.is_some_and(MissingParams::any) {
        Layout::RowsAndColumns { ranks: comm.size() }
    } else {
        layout_of(partition, shape, comm.size(), parties, share, groups.grid.and_then(|group| group.grid.given()))
    };
    let need = least_bytes::<T>(settings, &input, &plan, (parties, comm.rank()), resuming);
    let streamed = streaming::bytes_besides_panels::<T>(settings, input.header(), comm.size(), resuming);
    let choice = grid::choice::<T>(settings, input.header().sparse, &plan, comm);
    let choose = choice.map(|choice| move |grids: &[GridTraffic]| choice.choose(grids));
    let choose = choose.as_ref().map(|choose| choose as GridChooser);
    let (loaded, note) = streaming::load::<T>(input, (&plan, choose), (need, streamed), comm, &mut |part| {
        watchdog::step();
        progress.loading(part);
    })?;
    note.iter().for_each(|note| progress.note(note));
    let plan = loaded.layout.clone();
    let mut grids = None;
    if let Some(choice) = choice.filter(|_| !loaded.grids.is_empty()) {
        grids = Some(grid::counted(&choice, &loaded.grids));
        grid::note(&choice, &loaded.grids, &plan).iter().for_each(|text| progress.note(text));
    }
    let seconds = loading.elapsed().as_secs_f64();
    let parts = if partition == Partition::PartyRows { &loaded.cuts.rows } else { &loaded.cuts.cols };
    let empty = if partition.is_private() { parts.iter().filter(|part| part.is_empty()).count() } else { 0 };
    if empty > 0 {
        progress.warn(&format!(
            "{empty} of the {count} parties have no {what} of the matrix and add nothing; take fewer parties, or another \
             --skew or --split"
        ));
    }
    if let Some(threshold) = quantile_threshold(settings, &loaded) {
        progress.note(&format!("--binarize: entries from {threshold} on are ones"));
    }
    if loaded.duplicates > 0 {
        progress.note(&format!("{} entries were given more than once and added up", loaded.duplicates));
    }
    // Which parties have missing entries is private.
    if settings.input.allow_nan
        && !partition.is_private()
        && let Some(warning) = missing::warning_without_nan(loaded.blocks.first(), comm)
    {
        progress.warn(&warning);
    }
    if let Some(group) = groups.missing
        && let Some(warning) = missing::warning_of_stored_zeros(&group.missing, loaded.stored_zeros)
    {
        progress.warn(&warning);
    }
    if let Some(block) = loaded.blocks.first() {
        check_form(settings, block).map_err(Error::on_all_ranks)?;
    }
    check_size(settings, &loaded.statistics).map_err(Error::on_all_ranks)?;
    Ok(Divided { loaded, plan, grids, parties, split, seconds })
}

/// What a rank holds beside its data, in bytes: the factors and what belongs to them, or the start before they are there,
/// by the method's formula. Where that does not apply, each factor and what an update computes for it.
fn workspace_bytes<T: Real>(
    settings: &Settings,
    header: &Header,
    parties: Parties,
    rank: usize,
    resuming: bool,
) -> f64 {
    let Header { rows: m, cols: n, sparse, stored, .. } = *header;
    let (word, ranks) = (size_of::<T>(), parties.ranks);
    let least = 2.0 * (m as f64 + n as f64) * (settings.k * word) as f64 / ranks as f64;
    let private = settings.description().partition.is_private();
    // The formulas assume complete data, and a rank that hosts as many parties as any other.
    let missing = settings.method.groups().missing.is_some_and(MissingParams::any);
    if missing || private && parties.hosted(rank).is_empty() {
        return least;
    }
    let all = Some(m as f64 * n as f64).filter(|_| !sparse);
    let Some(stored) = all.or(stored.map(|stored| stored as f64)) else { return least };
    let of_parties = private.then_some(parties.count);
    let workload = Workload { m, n, stored, sparse, k: settings.k, parties: of_parties, word, traffic: None };
    // The method itself refuses a parameter that does not fit.
    let cost = settings.method.cost(&workload, ranks).ok().flatten();
    cost.map_or(least, |cost| cost.factors.max(if resuming { 0.0 } else { cost.start }))
}

/// The threshold of `--binarize` where the data decided it.
fn quantile_threshold<T: Real>(settings: &Settings, loaded: &Loaded<T>) -> Option<f64> {
    loaded.threshold.filter(|_| matches!(settings.input.binarize, Some(data::Threshold::Quantile(_))))
}

/// Builds the method; with the checksum of the marks of `--missing FILE`. Collective.
fn build<T: Precision>(
    settings: &Settings,
    comm: &Communicator,
    divided: Divided<T>,
    resuming: bool,
) -> SharedResult<(Box<dyn Algorithm<T>>, Option<u64>)> {
    let Divided { loaded, parties, .. } = divided;
    let shape = (loaded.header.rows, loaded.header.cols);
    let groups = settings.method.groups();
    let (start, marks) =
        (groups.init.and_then(|group| group.file()), groups.missing.and_then(|group| group.missing.marks()));
    let names = match start.is_some() || marks.is_some() {
        true => metadata::names_of(&settings.input, settings.description().partition.is_private(), comm),
        false => Names::default(),
    };
    let left_out = groups.missing.map(|group| (group, settings.seed));
    let open = |path| Initial::open(path, shape, (settings.k, &settings.input), left_out, &names, comm);
    let initial = start.map(open).transpose()?;
    let marks = marks.map(|path| missing::read(path, shape, &names, &loaded.cuts, comm)).transpose()?;
    let (missing, checksum) = marks.map(|marks| (marks.places, marks.checksum)).unzip();
    let problem = Problem {
        missing,
        resuming,
        initial: initial.as_ref().map(|initial| initial as &dyn ReadRows<T>),
        data: loaded,
        k: settings.k,
        seed: settings.seed,
        max_iters: settings.max_iters,
        parties,
        continue_on_loss: settings.continue_on_loss,
        comm: comm.clone(),
    };
    let build = if settings.precision == Some(settings::Precision::Mixed) { T::build_mixed } else { T::build };
    Ok((comm.agree_on_error(build(&*settings.method, problem))?, checksum))
}

/// The trace's start event. `params` and `resumed_from` are filled in when the method is built and resumed.
fn start_event<T: Real>(
    settings: &Settings,
    comm: &Communicator,
    divided: &Divided<T>,
    kernels: ProductKernels,
) -> Value {
    let Divided { loaded, parties, seconds, grids, .. } = divided;
    json!({
        "event": "start", "version": attributes::VERSION, "git": attributes::revision(), "algo": settings.description().name,
        "args": settings.words, "ranks": comm.size(), "parties": parties.count, "m": loaded.header.rows,
        "n": loaded.header.cols, "nnz": loaded.statistics.nonzeros, "k": settings.k, "seed": settings.seed,
        "precision": settings.precision_name(), "host": attributes::hostname(), "time": attributes::now(), "params": {},
        "format": loaded.header.format, "image": loaded.header.image, kernels::USED: kernels::names(kernels),
        "checksum": identity::checksum(settings, loaded), "mkl": linalg::mkl_version(), "load_seconds": seconds, "resumed_from": 0,
        "grids": grids, "output": settings.output,
        // At a site, the input is the data of one party.
        report::OWN_INPUT_OF: settings.input.own_disk.then(|| comm.rank()),
    })
}

/// All effective parameters, with what the data and the method decided.
fn parameters<T: Real>(
    settings: &Settings,
    algorithm: &dyn Algorithm<T>,
    threshold: Option<f64>,
    divisor: Option<f64>,
) -> Map<String, Value> {
    let mut all = settings.all();
    all.extend(threshold.map(|t| ("binarize_threshold".to_string(), json!(t))));
    all.extend(divisor.map(|d| ("scale_divisor".to_string(), json!(d))));
    all.extend(algorithm.decisions().into_iter().map(|(name, value)| (name.to_string(), value)));
    all
}

/// Opens the trace on rank 0, or at each owner of a rank, and writes its start event. Collective.
fn open_trace(
    settings: &Settings,
    comm: &Communicator,
    resumed_from: Option<usize>,
    start: &Value,
) -> SharedResult<Trace> {
    watchdog::enter("opening the trace");
    let trace = Trace::open(settings.trace.as_deref().filter(|_| comm.reports()), resumed_from);
    let mut trace = comm.agree_on_error(trace)?;
    if metadata::needs_history(settings) {
        trace = trace.in_memory();
    }
    comm.agree_on_error(trace.write(start))?;
    Ok(trace)
}
