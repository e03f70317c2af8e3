//! Decides everything about a run that does not need the entries of its matrix: method, precision, layout, kernels, and
//! whether the matrix is held in memory.
//!
//! [`plan`] is a pure function of what was requested, what is known of the matrix and what the machine has. These are the
//! same on all ranks, and so is the plan.

use std::sync::Arc;

use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_base::unfinished::Access;
use fednmf_comm::{Communicator, Parties};
use fednmf_data::memory::Node;
use fednmf_data::{Header, Layout, PartySplit, memory};
use fednmf_files::{Input, InputSpec, Source};
use fednmf_linalg::ProductKernels;
use fednmf_methods::cost::Workload;
use fednmf_methods::description::{Description, Partition};
use fednmf_methods::method::{ConfiguredMethod, MatrixShape};
use fednmf_methods::metrics::Measure;
use fednmf_methods::parameters::Missing;
use fednmf_methods::registry;
use fednmf_methods::shared::disclosure::{Disclosure, Duration};
use fednmf_methods::shared::grid;
use fednmf_methods::shared::grid::GridChoice;
use fednmf_methods::shared::missing::MissingParams;
use fednmf_methods::shared::row_exchange::Exchange;
use fednmf_privacy::sharing::COMPUTING;
use fednmf_report::Lines;

use super::checks::{check_quantile, check_shape, split_name};
use super::disclosure::PrivateCounts;
use super::nonce::RunNonce;
use super::spec::{Outputs, Precision, Spec};
use super::{disclosure, kernels, precision};
use crate::precision::Chosen;

/// The share of a rank's memory that the gathered rows of factors may occupy: the data need the rest.
const GATHERED_SHARE: f64 = 0.5;

/// What is known of the matrix of a run before its entries are read.
pub struct Found {
    pub header: Header,
    /// How it is divided among parties.
    pub split: PartySplit,
    /// The rows or columns of each `{party}` file; empty without such files.
    pub file_counts: Vec<usize>,
    /// Why its rows cannot be read from the file in each pass, if they cannot.
    pub streaming: std::result::Result<(), String>,
    /// The choices of the checkpoint that the run resumes from, if it does.
    pub saved: Option<Saved>,
    /// The nonce of a run between sites.
    pub nonce: Option<RunNonce>,
}

/// What a checkpoint records of the choices of its run; `None` if it cannot be read, which the resume reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Saved {
    pub precision: Option<Precision>,
    pub kernels: Option<ProductKernels>,
}

/// The ranks, nodes and processor of a run.
pub struct Machine {
    pub ranks: usize,
    /// Whether the ranks belong to different owners.
    pub owners: bool,
    /// The nodes of all ranks, with their free memory.
    pub nodes: Vec<Node>,
    /// The vendor of rank 0's processor; `None` if unknown or of no interest.
    pub vendor: Option<String>,
}

impl Machine {
    /// The machine that this job runs on; without its memory if the ranks have data of parties, whose size would follow
    /// from what they need: [`check_own_memory`] takes its place. Collective.
    pub fn observe(spec: &Spec, comm: &Communicator) -> Self {
        let private = spec.description().partition.is_private();
        let nodes = if private { Vec::new() } else { memory::nodes(0.0, spec.input.memory, comm) };
        let vendor = spec.kernel.is_none().then(|| kernels::vendor(comm)).flatten();
        Machine { ranks: comm.size(), owners: comm.has_owners(), nodes, vendor }
    }
}

/// Where the matrix is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Storage {
    InMemory,
    /// In the file, whose rows are read in each pass.
    Streamed {
        /// Why memory cannot hold it.
        lack: String,
        /// Bytes that a rank needs in addition to its panels.
        besides_panels: f64,
    },
}

/// All choices about a run that do not need the entries of the matrix.
pub struct Planned {
    pub spec: Spec,
    pub method: Arc<dyn ConfiguredMethod>,
    /// Why `--algo auto` chose the method; `None` if it was requested.
    pub method_why: Option<&'static str>,
    pub precision: Precision,
    /// Why `--precision auto` chose it; `None` if it was requested.
    pub precision_why: Option<String>,
    pub kernels: ProductKernels,
    /// The input, completed by what its files determine.
    pub input: InputSpec,
    pub parties: Parties,
    /// Whether each rank is a party because neither option nor input says how many there are.
    pub parties_follow_ranks: bool,
    pub split: PartySplit,
    pub layout: Layout,
    /// What others would learn of the parties' data beyond the limits. A run whose sums are masked, or whose ranks belong to
    /// different owners, is refused instead.
    pub disclosure: Option<Disclosure>,
    /// The private rows or columns of each party.
    pub private_counts: Option<PrivateCounts>,
    /// How the positions of the nonzeros decide the grid, once they are known; `None` if `layout` is final.
    pub grid: Option<GridChoice>,
    pub storage: Storage,
    /// Rows and columns of the matrix.
    pub shape: (usize, usize),
    pub outputs: Outputs,
    /// The lines of the matrix that the report shows.
    pub lines: Option<Lines>,
    pub resuming: bool,
    /// The nonce of a run between sites.
    pub nonce: Option<RunNonce>,
}

/// Plans a run.
///
/// # Errors
/// On all ranks, if the request does not fit the matrix, or the run does not fit into memory even if it is streamed.
pub fn plan(spec: &Spec, found: &Found, machine: &Machine) -> SharedResult<Planned> {
    planned(spec, found, machine).map_err(Error::on_all_ranks)
}

fn planned(spec: &Spec, found: &Found, machine: &Machine) -> Result<Planned> {
    let Found { header, split, file_counts, streaming, saved, nonce } = found;
    check_shape(spec, header)?;
    let resuming = saved.is_some();
    let saved = (*saved).unwrap_or_default();
    let (rows, cols) = (header.rows, header.cols);
    let Chosen { precision, why: precision_why } = precision::choose(spec, header, saved.precision);
    let (method, method_why) = choose_method(spec, found, precision, machine);
    let mut outputs = spec.outputs.clone();
    if let Some((_, display)) = &mut outputs.report {
        display.show_images(header.image);
    }
    let lines = match &outputs.report {
        Some((_, display)) => Some(display.lines((rows, cols))?.unwrap_or(Lines::Rows)),
        None => None,
    };
    let partition = method.description().partition;
    let counted = if let PartySplit::Counts(counts) = split { Some(counts.len()) } else { None };
    let given = spec.parties.or(counted).or(header.files);
    let count = given.unwrap_or(machine.ranks);
    let parties = Parties { count, ranks: machine.ranks };
    check_quantile(&spec.input, partition, count)?;
    if machine.owners && method.description().on_shares && count < COMPUTING {
        return Err(Error::input(format!(
            "{}: it computes on secret shares at three sites, and with {count} a site would see all data; use three sites or more",
            method.description().name
        )));
    }
    let (items, what) = divided(partition, (rows, cols));
    split.check(items, count, what).map_err(|e| e.at(split_name(spec)))?;
    let layout = layout(&*method, (rows, cols), machine.ranks, parties, split.clone());
    let run = Duration { iterations: spec.max_iters, eval_every: spec.eval_every };
    let counts = disclosure::counts(&layout, (rows, cols), file_counts);
    let disclosure = counts.as_ref().and_then(|counts| disclosure::found(&*method, counts, spec.k, run));
    if let Some(Disclosure { reason, .. }) = &disclosure
        && (method.masks_sums() || machine.owners)
    {
        return Err(Error::input(reason.clone()));
    }
    let footprint = Footprint { k: spec.k, method: &*method, header, precision, resuming };
    let besides_panels = footprint
        .besides_panels(machine.ranks, registry::ALL.iter())
        .and_then(|besides| streaming.clone().map(|()| besides));
    let storage = storage(&machine.nodes, |rank| footprint.least_bytes(&layout, parties, rank), besides_panels)?;
    let grid = open_grid(&*method, (spec.k, precision.word()), header.sparse, &layout, machine);
    let mut input = spec.input.clone();
    input.complete(header);
    Ok(Planned {
        spec: spec.clone(),
        method,
        method_why,
        precision,
        precision_why,
        kernels: kernels::choose(
            spec.kernel,
            saved.kernels,
            kernels::suited(machine.vendor.as_deref(), header.sparse, spec.k),
        ),
        input,
        parties,
        parties_follow_ranks: given.is_none(),
        split: split.clone(),
        layout,
        disclosure,
        private_counts: counts,
        grid,
        storage,
        shape: (rows, cols),
        outputs,
        lines,
        resuming,
        nonce: nonce.clone(),
    })
}

/// Checks that this rank's memory can hold its data of parties and its work with them. The other ranks learn only whether it
/// can. Collective.
///
/// # Errors
/// On all ranks, if the memory of any rank cannot.
pub fn check_own_memory(planned: &Planned, input: &Input, comm: &Communicator) -> SharedResult<()> {
    let Planned { spec, precision, resuming, parties, layout, .. } = planned;
    let footprint = Footprint {
        k: spec.k,
        method: &*planned.method,
        header: input.header(),
        precision: *precision,
        resuming: *resuming,
    };
    let work = footprint.workspace_bytes(*parties, comm.rank());
    let (data, word) = (input.least_bytes(layout, comm, precision.word()), precision.word());
    let loading = data * input.header().copies_while_loading(layout, word);
    memory::check_own(loading.max(work + data), spec.input.memory, comm)
}

/// The method, and the reason if `--algo auto` chose it. The sizes decide, unless that method needs its data in memory, they
/// do not fit, and the rows can be read from the file in each pass; then a method that streams is chosen.
fn choose_method(
    spec: &Spec,
    found: &Found,
    precision: Precision,
    machine: &Machine,
) -> (Arc<dyn ConfiguredMethod>, Option<&'static str>) {
    let Header { rows: m, cols: n, sparse, .. } = found.header;
    let shape = MatrixShape { m, n, k: spec.k, sparse, streamed: false };
    let (method, why) = spec.method.choose(shape);
    let resuming = found.saved.is_some();
    let footprint = Footprint { k: spec.k, method: &*method, header: &found.header, precision, resuming };
    let needs_memory = footprint.besides_panels(machine.ranks, registry::ALL.iter()).is_err();
    if why.is_none() || !needs_memory || found.streaming.is_err() {
        return (method, why);
    }
    let ranks = machine.ranks;
    let parties = Parties { count: ranks, ranks };
    let by_size = grid::plan(method.description().partition, (m, n), ranks, parties, PartySplit::Even, None);
    let least = |rank| footprint.least_bytes(&by_size, parties, rank);
    match machine.nodes.iter().any(|node| node.needing(least).lacks()) {
        true => spec.method.choose(MatrixShape { streamed: true, ..shape }),
        false => (method, why),
    }
}

/// The layout of a matrix of this shape for a method.
pub fn layout(
    method: &dyn ConfiguredMethod,
    shape: (usize, usize),
    ranks: usize,
    parties: Parties,
    split: PartySplit,
) -> Layout {
    let groups = method.groups();
    if groups.missing.is_some_and(MissingParams::any) {
        return Layout::RowsAndColumns { ranks };
    }
    let given = groups.grid.and_then(|group| group.grid.given());
    grid::plan(method.description().partition, shape, ranks, parties, split, given)
}

/// Where a matrix is kept. A rank needs `in_memory(rank)` bytes to hold it in memory, and `besides_panels` bytes in addition
/// to panels to stream it; `Err` is the reason why it cannot be streamed.
///
/// # Errors
/// On all ranks, if memory cannot hold the matrix, and its rows cannot be read from the file.
pub fn storage(
    nodes: &[Node],
    in_memory: impl Fn(usize) -> f64,
    besides_panels: std::result::Result<f64, String>,
) -> SharedResult<Storage> {
    let Some(node) = nodes.iter().map(|node| node.needing(&in_memory)).find(Node::lacks) else {
        return Ok(Storage::InMemory);
    };
    match besides_panels {
        Ok(besides_panels) => Ok(Storage::Streamed { lack: node.would_need(), besides_panels }),
        Err(why) => Err(Error::input(format!(
            "{}. The rows cannot be read from the file in each iteration instead: {why}. Or {}",
            node.lack(),
            node.remedy()
        ))
        .on_all_ranks()),
    }
}

/// The number of items that are divided among parties, and their name.
pub fn divided(partition: Partition, (rows, cols): (usize, usize)) -> (usize, &'static str) {
    if partition == Partition::PartyRows { (rows, "rows") } else { (cols, "columns") }
}

/// The choice of the grid by the nonzeros; `None` if `layout` is final.
fn open_grid(
    method: &dyn ConfiguredMethod,
    (k, word): (usize, usize),
    sparse: bool,
    layout: &Layout,
    machine: &Machine,
) -> Option<GridChoice> {
    let Layout::Grid { pr, pc } = *layout else { return None };
    let requested = method.groups().grid?;
    let is_open = method.description().partition == Partition::Grid
        && requested.grid.given().is_none()
        && requested.exchange != Exchange::Dense;
    (sparse && machine.ranks > 1 && is_open).then(|| GridChoice {
        by_size: (pr, pc),
        exchange: requested.exchange,
        row: (k * word) as u64,
        room: GATHERED_SHARE * memory::room(&machine.nodes),
    })
}

/// The quantities that determine the memory of a run.
pub struct Footprint<'a> {
    pub k: usize,
    pub method: &'a dyn ConfiguredMethod,
    pub header: &'a Header,
    pub precision: Precision,
    pub resuming: bool,
}

impl Footprint<'_> {
    /// Minimum number of bytes that a rank holds if its data are in memory, at its peak.
    pub fn least_bytes(&self, layout: &Layout, parties: Parties, rank: usize) -> f64 {
        let data = |word| self.header.least_bytes(layout, parties.ranks, word);
        let narrow = if self.precision == Precision::Mixed { data(size_of::<f32>()) } else { 0.0 };
        let word = self.precision.word();
        let loading = data(word) * self.header.copies_while_loading(layout, word);
        loading.max(data(word) + self.workspace_bytes(parties, rank) + narrow)
    }

    /// Bytes that a rank holds in addition to its data. By the method's formula: the factors with their workspace, or the
    /// computation of the start if that needs more. Without a formula: each factor and its update.
    fn workspace_bytes(&self, parties: Parties, rank: usize) -> f64 {
        let Header { rows, cols, stored, sparse, .. } = *self.header;
        let (k, word) = (self.k, self.precision.word());
        let least = 2.0 * (rows as f64 + cols as f64) * (k * word) as f64 / parties.ranks as f64;
        let is_private = self.method.description().partition.is_private();
        // The formulas assume complete data, and a rank that hosts as many parties as any other.
        let missing = self.method.groups().missing.is_some_and(MissingParams::any);
        if missing || is_private && parties.hosted(rank).is_empty() || sparse && stored.is_none() {
            return least;
        }
        let workload = self.workload(is_private.then_some(parties.count));
        // The method itself refuses a parameter that does not fit.
        let cost = self.method.cost(&workload, parties.ranks).ok().flatten();
        cost.map_or(least, |cost| cost.factors.max(if self.resuming { 0.0 } else { cost.start }))
    }

    fn workload(&self, parties: Option<usize>) -> Workload {
        let Header { rows: m, cols: n, sparse, stored, .. } = *self.header;
        let stored = stored.filter(|_| sparse).map_or(m as f64 * n as f64, |stored| stored as f64);
        Workload { m, n, stored, sparse, k: self.k, parties, word: self.precision.word(), traffic: None }
    }

    /// Bytes that a rank holds in addition to panels if its rows are read from the file in each pass.
    ///
    /// # Errors
    /// If the method needs its data in memory: why, and what to do, such as to take one of `methods` instead.
    pub fn besides_panels<'m>(
        &self,
        ranks: usize,
        methods: impl Iterator<Item = &'m Arc<dyn ConfiguredMethod>>,
    ) -> std::result::Result<f64, String> {
        let groups = self.method.groups();
        if let Some(missing) = groups.missing.filter(|missing| missing.any()) {
            let cure = if missing.missing == Missing::None { " (--holdout 0 does not)" } else { "" };
            return Err(format!("--missing and --holdout need the whole matrix in memory{cure}"));
        }
        if self.precision == Precision::Mixed {
            return Err("--precision mixed holds the matrix twice, in f32 and f64; use one of them".into());
        }
        let workload = self.workload(None);
        let Some(cost) = self.method.streamed_cost(&workload, ranks) else {
            // Others have another loss.
            let loss = |method: &dyn ConfiguredMethod| match method.description().measure {
                own @ (Measure::Divergence | Measure::BetaDivergence | Measure::F1) => own,
                _ => Measure::RelativeError,
            };
            let able = methods.filter(|other| loss(&***other) == loss(self.method));
            let able = able.filter(|other| other.streamed_cost(&workload, 1).is_some());
            let able: Vec<&str> = able.map(|method| method.description().name).collect();
            let name = self.method.description().name;
            return Err(match able.first() {
                _ if able.contains(&name) => format!(
                    "{name} reads the rows in passes with its default options only, and needs the whole matrix in memory with these"
                ),
                Some(first) => {
                    format!("{name} needs the whole matrix in memory; {} do not (--algo {first})", able.join(", "))
                }
                None => format!("{name} needs the whole matrix in memory"),
            });
        };
        if let Some(grid) = groups.grid {
            if let Some(shape) = grid.grid.given().filter(|shape| shape.cols > 1) {
                return Err(format!("--grid {}x{} cuts the columns too; leave it out", shape.rows, shape.cols));
            }
            if grid.exchange == Exchange::Sparse {
                return Err("--exchange sparse looks at the whole matrix; leave it out".into());
            }
        }
        Ok(cost.factors.max(if self.resuming { 0.0 } else { cost.start }))
    }
}

impl Planned {
    pub fn description(&self) -> &'static Description {
        self.method.description()
    }

    /// Whether rows or columns, and a factor of them, belong to parties.
    pub fn is_private(&self) -> bool {
        self.description().partition.is_private()
    }

    /// Who may read trace, output and report. They have exact errors and statistics, which masks and noise are to keep from
    /// others.
    pub fn results_access(&self) -> Access {
        let noised = self.method.groups().dp.is_some_and(|dp| dp.is_on());
        if self.is_private() && (self.method.masks_sums() || noised) { Access::OwnerOnly } else { Access::Default }
    }

    /// Whether the data of several parties are in one file, of which a rank may read entries of others, or send them.
    pub fn shows_entries(&self, ranks: usize) -> bool {
        let one_file = matches!(self.input.source, Source::File { .. }) && !self.input.by_party();
        one_file && self.is_private() && self.parties.count > 1 && ranks > 1
    }

    /// The seed of public randomness: that of `--seed`, between sites together with the nonce of the run.
    pub fn seed(&self) -> u64 {
        self.nonce.as_ref().map_or(self.spec.seed, |nonce| nonce.seed(self.spec.seed))
    }

    /// The measure that progress, summary and `--tol` use.
    pub fn measure(&self) -> Measure {
        self.method.groups().measure(self.description())
    }

    /// All parameters that affect the result, by name; a resumed run must have the same.
    pub fn result_parameters(&self) -> Map<String, Value> {
        self.spec.result_parameters(&*self.method, Some(self.precision))
    }

    /// All parameters, and why some were chosen.
    pub fn parameters(&self) -> Map<String, Value> {
        let mut all = self.spec.all(&*self.method, Some(self.precision));
        all.extend(self.precision_why.clone().map(|why| ("precision_chosen_by_auto".into(), why.into())));
        all.extend(self.method_why.map(|why| ("chosen_by_auto".into(), why.into())));
        all
    }
}

#[cfg(test)]
mod tests;
