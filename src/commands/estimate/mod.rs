//! `fednmf estimate`: the cost of an iteration on each rank, from formulas that tests compare with the ledger, and its
//! duration, from rates measured on this machine.

mod args;
mod bound;
mod machine;
mod memory;
mod recommend;
mod report;
mod simgrid;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ndarray::Array2;
use ndarray_linalg::{Eigh, UPLO};

pub use self::args::EstimateArgs;
use fednmf_base::error::{EXIT_DONE, Error, Result};
use fednmf_base::stdout::print;
use fednmf_base::units;
use fednmf_base::warning::warn;
use fednmf_comm::{Communicator, Parties};
use fednmf_data::header::copies_while_loading;
use fednmf_data::{GridTraffic, Layout, Loaded, PartySplit, Transfer};
use fednmf_driver::spec::{Precision, Requested};
use fednmf_driver::{kernels, precision, too_few_cores};
use fednmf_files as data;
use fednmf_files::{Input, InputSpec};
use fednmf_linalg as linalg;
use fednmf_linalg::{Block, Context, ContextOptions, ProductKernel, Real};
use fednmf_methods::cost::{Cost, Workload};
use fednmf_methods::description::Partition;
use fednmf_methods::method::{ConfiguredMethod, MatrixShape};
use fednmf_methods::registry;
use fednmf_methods::shared::grid;
use fednmf_methods::shared::grid::GridChoice;
use fednmf_methods::shared::row_exchange::Exchange;

use self::machine::{MESSAGES, Rates, Stored};
use self::recommend::recommend;
use self::report::Report;

/// The request, checked as far as possible without data.
pub struct EstimateRequest {
    pub method: Arc<dyn ConfiguredMethod>,
    /// Shape and stored entries, or a matrix to take them from.
    pub matrix: Matrix,
    pub k: usize,
    /// Number of ranks to report the costs for; by default the recommended number.
    pub ranks: Option<usize>,
    pub parties: Option<usize>,
    /// None: that of the data.
    pub precision: Option<Precision>,
    pub threads: usize,
    pub max_iters: usize,
    /// None: by processor and data.
    pub kernel: Option<ProductKernel>,
    /// Latency (s) and bandwidth (B/s) between ranks, instead of measured ones.
    pub latency: Option<f64>,
    pub bandwidth: Option<f64>,
    /// Ranks that share a node and its network card; by default all.
    pub ranks_per_node: Option<usize>,
    /// Rates that were measured before.
    pub rates: Option<PathBuf>,
    /// Directory for a trace that SimGrid can replay.
    pub trace: Option<PathBuf>,
    pub json: bool,
}

/// The matrix that the estimate is for.
pub enum Matrix {
    /// m, n, and the stored entries where it is sparse.
    Shape(usize, usize, Option<f64>),
    Input(Box<InputSpec>),
}

/// The factorisation that is estimated: matrix and method.
pub(crate) struct Job {
    pub method: Arc<dyn ConfiguredMethod>,
    /// Whether `--algo auto` has chosen it.
    pub automatic: bool,
    pub workload: Workload,
    /// The traffic and messages of a grid of the requested number of ranks, if the data was available for counting.
    pub counted: Option<Counted>,
    /// Whether the method has a formula for its work and messages. Without one only its memory is predicted.
    pub formula: bool,
    /// Whether each rank reads whole rows of the file.
    pub by_rows: bool,
    /// Whether the data are kept in f32 too, for the first iterations.
    pub mixed: bool,
}

/// Counts from the positions of the nonzeros.
pub(crate) struct Counted {
    pub traffic: GridTraffic,
    /// The number of rows of V, and of U, that a rank needs from their owner.
    pub transfers: [Vec<Transfer>; 2],
}

impl Job {
    /// Whether the data belongs to parties, whose number does not depend on the ranks.
    pub fn is_private(&self) -> bool {
        self.method.description().partition.is_private()
    }

    /// The cost of an iteration on `ranks` ranks; only memory if there is no formula.
    ///
    /// # Errors
    /// When a parameter does not fit the shape.
    pub fn cost(&self, ranks: usize) -> Result<Cost> {
        let counted = self.counted.as_ref().map(|counted| counted.traffic);
        let traffic = counted.filter(|grid| grid.pr * grid.pc == ranks);
        let mut cost = match self.method.cost(&Workload { traffic, ..self.workload }, ranks)? {
            Some(mut cost) => {
                cost.add_largest_terms(self.workload.parties(ranks).0);
                cost
            }
            None => memory::least(self.method.description().partition, &self.workload, ranks),
        };
        cost.loading = self.loading(&cost, ranks);
        if self.mixed {
            let narrow = Workload { word: size_of::<f32>(), ..self.workload };
            cost.data += match self.method.cost(&narrow, ranks)? {
                Some(single) => single.data,
                None => memory::least(self.method.description().partition, &narrow, ranks).data,
            };
            cost.caveat("work, traffic and time are those of iterations in f64; the first ones, in f32, need less");
        }
        Ok(cost)
    }

    /// Bytes that a rank holds while the data are loaded.
    fn loading(&self, cost: &Cost, ranks: usize) -> f64 {
        if self.workload.sparse {
            let layout = match (self.method.description().partition, cost.grid) {
                (Partition::RowsAndColumns, _) => Layout::RowsAndColumns { ranks },
                (_, Some((pr, pc))) => Layout::Grid { pr, pc },
                (_, None) => Layout::PartyRows { parties: Parties { count: ranks, ranks }, split: PartySplit::Even },
            };
            return cost.data * copies_while_loading(&layout, self.by_rows, self.workload.word);
        }
        // Several ranks read each of their blocks of a dense file through a buffer.
        let blocks = if self.method.description().partition == Partition::RowsAndColumns { 2.0 } else { 1.0 };
        let buffers = if ranks > 1 { blocks * fednmf_files::DENSE_ROUND as f64 / ranks as f64 } else { 0.0 };
        cost.data + buffers
    }

    /// Seconds of an iteration on `ranks` ranks by its parts; `None` where not all of them are known.
    pub fn seconds(&self, cost: &Cost, rates: &Rates, ranks: usize) -> Option<BTreeMap<&'static str, f64>> {
        rates.of_ranks(ranks).seconds(cost).filter(|_| self.formula)
    }
}

/// The methods that have a formula.
pub(crate) fn with_formula() -> Vec<&'static str> {
    let any = Workload { m: 8, n: 8, stored: 64.0, sparse: false, k: 2, parties: None, word: 8, traffic: None };
    let formula = |method: &&Arc<dyn ConfiguredMethod>| matches!(method.cost(&any, 1), Ok(Some(_)));
    registry::ALL.iter().filter(formula).map(|method| method.description().name).collect()
}

/// Prints the estimate on stdout of rank 0. Collective: rates are measured on all ranks at once.
///
/// # Errors
/// When a parameter does not fit the shape, or the matrix or the rates cannot be read.
pub fn estimate(request: &EstimateRequest, comm: &Communicator) -> Result<i32> {
    if comm.is_root() && request.rates.is_none() {
        too_few_cores(request.threads).iter().for_each(|warning| warn(&format!("{warning}; rates are measured here")));
    }
    let base = program();
    let matrix = match &request.matrix {
        Matrix::Input(spec) => Opened::Input(Box::new(data::open(spec, comm)?)),
        &Matrix::Shape(m, n, stored) => Opened::Shape(m, n, stored),
    };
    let sparse = match &matrix {
        Opened::Input(input) => input.header().sparse,
        Opened::Shape(.., stored) => stored.is_some(),
    };
    let kernel = request.kernel.unwrap_or_else(|| kernels::of_processor(sparse, request.k));
    let options = ContextOptions { threads: request.threads, kernels: kernel.into() };
    let context = comm.agree_on_error(Context::new(options))?;
    let private = request.method.description().partition.is_private();
    let of_data = || match &matrix {
        Opened::Input(input) if !private && !input.spec().by_party() => precision::suited(input.header().values),
        _ => Precision::F64,
    };
    let precision = request.precision.unwrap_or_else(of_data);
    context.install(|| match precision {
        Precision::F32 => answer::<f32>(request, matrix, base, comm),
        Precision::F64 | Precision::Mixed => answer::<f64>(request, matrix, base, comm),
    })
}

/// The matrix of the estimate: its shape and number of nonzeros, or an input whose header has been read.
enum Opened {
    Shape(usize, usize, Option<f64>),
    Input(Box<Input>),
}

fn answer<T: Real>(request: &EstimateRequest, matrix: Opened, base: f64, comm: &Communicator) -> Result<i32> {
    let (job, blocks) = job::<T>(request, matrix, comm)?;
    let given = comm.agree_on_error(request.rates.as_deref().map(Rates::read).transpose())?;
    // Rates are measured on the present ranks; a requested grid applies to other numbers of ranks.
    let here = job.cost(request.ranks.unwrap_or(comm.size())).map_err(Error::on_all_ranks)?;
    let mut rates = match given {
        Some(rates) => rates,
        None => {
            let Workload { m, n, stored, sparse, k, .. } = job.workload;
            let density = sparse.then(|| stored / (m as f64 * n as f64));
            let stored = Stored { density, k };
            machine::measure::<T>(comm, &here, stored, blocks)?
        }
    };
    rates.set(request.latency, request.bandwidth);
    rates.ranks_per_node = request.ranks_per_node;
    let scan = scan(&job, &rates)?;
    let recommended = recommend(&job, &scan, &rates, base);
    let ranks = request.ranks.unwrap_or(recommended.used.ranks);
    let cost = job.cost(ranks).map_err(Error::on_all_ranks)?;
    let written = match &request.trace {
        Some(dir) if comm.is_root() => write_trace(dir, &job, &cost, &rates, ranks, request.max_iters),
        _ => Ok(()),
    };
    comm.agree_on_error(written)?;
    if comm.is_root() {
        let recommended = &recommended;
        let report = Report { request, job: &job, ranks, cost: &cost, rates: &rates, scan: &scan, recommended, base };
        let text = if request.json { format!("{}\n", report.json()) } else { report.text() };
        print(&text)?;
    }
    Ok(EXIT_DONE)
}

/// Writes the requested trace.
fn write_trace(dir: &Path, job: &Job, cost: &Cost, rates: &Rates, ranks: usize, iterations: usize) -> Result<()> {
    let Some(parts) = job.seconds(cost, rates, ranks) else {
        return Err(Error::input(format!(
            "--trace: the time of {} with these options is not predicted, so there is nothing to replay",
            job.method.description().name
        )));
    };
    let computing = parts.iter().filter(|(name, _)| **name != MESSAGES).map(|(_, seconds)| seconds).sum();
    let none = [Vec::new(), Vec::new()];
    let transfers = job.counted.as_ref().map_or(&none, |counted| &counted.transfers);
    let iteration = simgrid::Iteration { cost, transfers, row: job.workload.k * job.workload.word, seconds: computing };
    simgrid::write(dir, &iteration, ranks, iterations)
}

/// The job, and this rank's blocks where a matrix was given.
fn job<T: Real>(request: &EstimateRequest, matrix: Opened, comm: &Communicator) -> Result<(Job, Vec<Block<T>>)> {
    let EstimateRequest { k, parties, .. } = request;
    let settle = |m, n, sparse| {
        let shape = MatrixShape { m, n, k: *k, sparse, streamed: false };
        let (method, why) = Requested::new(request.method.clone()).choose(shape);
        (method, why.is_some())
    };
    let mut by_rows = false;
    let (m, n, stored, (method, automatic), files, (blocks, counted)) = match matrix {
        Opened::Shape(m, n, stored) => (m, n, stored, settle(m, n, stored.is_some()), None, (Vec::new(), None)),
        Opened::Input(input) => {
            let (m, n, sparse) = (input.header().rows, input.header().cols, input.header().sparse);
            let chosen = settle(m, n, sparse);
            by_rows = input.header().by_rows;
            let files = input.header().files;
            let parties = Parties { count: parties.or(files).unwrap_or(comm.size()), ranks: comm.size() };
            let partition = chosen.0.description().partition;
            let plan = grid::plan(partition, (m, n), comm.size(), parties, PartySplit::Even, None);
            let loaded = input.load::<T>(&plan, comm, &mut |_| ())?;
            let counted = count(&*chosen.0, &loaded, request, comm);
            (m, n, sparse.then_some(loaded.statistics.nonzeros as f64), chosen, files, (loaded.blocks, counted))
        }
    };
    if *k > m.min(n) {
        let most = units::counted(m.min(n), "component makes", "components make");
        return Err(Error::input(format!("-k {k}: the matrix is {m} x {n}, so at most {most} sense"))
            .on_all_ranks()
            .into());
    }
    let private = method.description().partition.is_private();
    let parties = parties.or(files).or(request.ranks).filter(|_| private);
    if private && parties.is_none() {
        return Err(Error::input(format!(
            "--algo {}: how many parties own the data? Give --parties, or --ranks for one party on each",
            method.description().name
        ))
        .on_all_ranks()
        .into());
    }
    let workload = Workload {
        m,
        n,
        stored: stored.unwrap_or(m as f64 * n as f64),
        sparse: stored.is_some(),
        k: *k,
        parties,
        word: size_of::<T>(),
        traffic: None,
    };
    let formula = method.cost(&workload, request.ranks.unwrap_or(1)).map_err(Error::on_all_ranks)?.is_some();
    let mixed = request.precision == Some(Precision::Mixed);
    Ok((Job { method, automatic, workload, counted, formula, by_rows, mixed }, blocks))
}

/// Counts what the grid of `--ranks` that a run would take exchanges for a sparse matrix. Collective.
fn count<T: Real>(
    method: &dyn ConfiguredMethod,
    loaded: &Loaded<T>,
    request: &EstimateRequest,
    comm: &Communicator,
) -> Option<Counted> {
    let ranks = request.ranks.filter(|ranks| *ranks > 1)?;
    let grid_params = method.groups().grid?;
    let pattern = loaded.entry_pattern(ranks, comm)?;
    let grids = pattern.traffic(comm);
    let by_size = grid::fewest_words(loaded.header.rows, loaded.header.cols, ranks);
    let choice = GridChoice::of_row((request.k * size_of::<T>()) as u64, grid_params.exchange, by_size);
    let traffic = match grid_params.grid.given() {
        Some(given) => *grids.iter().find(|grid| (grid.pr, grid.pc) == (given.rows, given.cols))?,
        None if grid_params.exchange == Exchange::Dense => *grids.iter().find(|grid| (grid.pr, grid.pc) == by_size)?,
        None => grids[choice.choose(&grids)],
    };
    let travels = |side| matches!(choice.of_side(side), Some((Exchange::Sparse, _)));
    let mut transfers = [Vec::new(), Vec::new()];
    if travels(&traffic.v) || travels(&traffic.u) {
        transfers = pattern.transfers(comm, (traffic.pr, traffic.pc));
    }
    Some(Counted { traffic, transfers })
}

/// A number of ranks, with cost and time of an iteration on them.
pub(crate) struct Point {
    pub ranks: usize,
    pub cost: Cost,
    pub seconds: Option<f64>,
}

/// Maximum number of ranks that is predicted.
pub(crate) const MOST_RANKS: usize = 1 << 16;

/// The costs for 1, 2, 4, … ranks, each with the grid that suits it, and for a rank for each party.
fn scan(job: &Job, rates: &Rates) -> Result<Vec<Point>> {
    let Workload { m, n, parties, .. } = job.workload;
    let most = parties.unwrap_or(m.max(n)).min(MOST_RANKS);
    let powers = std::iter::successors(Some(1usize), |p| Some(2 * p)).take_while(|&p| p <= most);
    let mut numbers: Vec<usize> = powers.chain(parties.map(|_| most)).collect();
    numbers.dedup();
    numbers
        .into_iter()
        .map(|ranks| {
            let cost = job.cost(ranks).map_err(Error::on_all_ranks)?;
            let seconds = job.seconds(&cost, rates, ranks).map(|parts| parts.values().sum());
            Ok(Point { ranks, cost, seconds })
        })
        .collect()
}

/// Bytes that a rank of a run holds without data. This process is measured with its libraries in use: the first products map most
/// of MKL. A run uses more of the program and of MPI: 10 to 14 MiB were measured on 1 to 8 ranks. The sum is rounded up, since measurements differ a little and the recommended
/// ranks should not.
fn program() -> f64 {
    const MORE_IN_A_RUN: f64 = 12.0 * (1u64 << 20) as f64;
    const STEP: f64 = 16.0 * (1u64 << 20) as f64;
    let small = Array2::<f64>::eye(64);
    let mut product = Array2::zeros((64, 64));
    linalg::gemm(1.0, &small.view(), &small.view(), 0.0, &mut product.view_mut());
    // A failure here would fail again, with a message, where a run needs it.
    let _ = product.eigh(UPLO::Lower);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    ((kilobytes.unwrap_or(0.0) * 1024.0 + MORE_IN_A_RUN) / STEP).ceil() * STEP
}
