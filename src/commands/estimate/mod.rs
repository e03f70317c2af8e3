//! `fednmf estimate`: what an iteration costs on each rank before it is run, from formulas that tests hold to the
//! ledger's counts, and how long it takes, from rates that are measured on the spot.

mod args;
mod machine;
mod report;

use std::path::PathBuf;
use std::sync::Arc;

pub use self::args::EstimateArgs;
use self::machine::{Rates, Stored};
use self::report::Report;
use crate::algorithms::cost::{Cost, Workload};
use crate::algorithms::method::{ConfiguredMethod, MatrixShape};
use crate::algorithms::registry;
use crate::algorithms::shared::grid;
use crate::comm::{Communicator, Parties};
use crate::data;
use crate::data::{InputSpec, PartySplit};
use crate::error::{EXIT_DONE, Error, Result};
use crate::linalg;
use crate::linalg::{Block, Real, SparseKernel};

/// What is asked, checked as far as can be without data.
pub struct Question {
    pub method: Arc<dyn ConfiguredMethod>,
    /// Shape and stored entries, or a matrix to take them from.
    pub matrix: Matrix,
    pub k: usize,
    /// Ranks to tell the costs for; by default as many as are worth it.
    pub ranks: Option<usize>,
    pub parties: Option<usize>,
    pub narrow: bool,
    pub threads: usize,
    pub max_iters: usize,
    pub kernel: SparseKernel,
    /// Seconds and bytes a second between ranks, instead of what is measured.
    pub latency: Option<f64>,
    pub bandwidth: Option<f64>,
    /// Rates that were measured before.
    pub rates: Option<PathBuf>,
    pub json: bool,
}

/// The matrix that is asked about.
pub enum Matrix {
    /// m, n, and the stored entries where it is sparse.
    Shape(usize, usize, Option<f64>),
    Input(InputSpec),
}

/// A doubling of the ranks is worth it while an iteration becomes so much faster.
pub(crate) const WORTH: f64 = 1.5;

/// What is to be factorised, and by which method.
pub(crate) struct Job {
    pub method: Arc<dyn ConfiguredMethod>,
    /// Whether `--algo auto` has chosen it.
    pub automatic: bool,
    pub workload: Workload,
}

impl Job {
    /// What an iteration costs on `ranks` ranks.
    ///
    /// # Errors
    /// When there is no formula for the method, or a parameter does not fit the shape.
    pub fn cost(&self, ranks: usize) -> Result<Cost> {
        let Some(mut cost) = self.method.cost(&self.workload, ranks)? else {
            return Err(Error::input(format!(
                "--algo {}: there is no formula for what it costs; there is one for {}",
                self.method.description().name,
                with_formula()?.join(", ")
            )));
        };
        cost.add_largest_terms(self.workload.parties(ranks).0);
        Ok(cost)
    }
}

/// The methods that have a formula.
fn with_formula() -> Result<Vec<&'static str>> {
    let any = Workload { m: 8, n: 8, stored: 64.0, sparse: false, k: 2, parties: None, word: 8 };
    let mut names = Vec::new();
    for entry in registry::ALL {
        if entry.defaults().cost(&any, 1)?.is_some() {
            names.push(entry.description().name);
        }
    }
    Ok(names)
}

/// Answers the question on stdout of rank 0. Collective: rates are measured on all ranks at once.
///
/// # Errors
/// When there is no formula for the method, or the matrix or the rates cannot be read.
pub fn estimate(question: &Question, comm: &Communicator) -> Result<i32> {
    comm.agree_on_error(linalg::start_threads(question.threads))?;
    if question.narrow { answer::<f32>(question, comm) } else { answer::<f64>(question, comm) }
}

fn answer<T: Real>(question: &Question, comm: &Communicator) -> Result<i32> {
    let base = resident();
    let (job, blocks) = job::<T>(question, comm)?;
    let given = comm.agree_on_error(question.rates.as_deref().map(Rates::read).transpose())?;
    // Rates come from the ranks that are here; a grid that was asked for is for others.
    let here = job.cost(question.ranks.unwrap_or(comm.size())).map_err(Error::on_all_ranks)?;
    let mut rates = match given {
        Some(rates) => rates,
        None => {
            let Workload { m, n, stored, sparse, k, .. } = job.workload;
            let density = sparse.then(|| stored / (m as f64 * n as f64));
            let stored = Stored { density, k, kernel: question.kernel };
            comm.agree_on_error(machine::measure::<T>(comm, &here, stored, blocks))?
        }
    };
    rates.set(question.latency, question.bandwidth);
    let scan = scan(&job, &rates)?;
    let worth = worth(&scan);
    let ranks = question.ranks.unwrap_or(worth);
    let cost = job.cost(ranks).map_err(Error::on_all_ranks)?;
    if comm.is_root() {
        let report = Report { question, job: &job, ranks, cost: &cost, rates: &rates, scan: &scan, worth, base };
        let text = if question.json { format!("{}\n", report.json()) } else { report.text() };
        print!("{text}");
    }
    Ok(EXIT_DONE)
}

/// The job, and this rank's blocks where a matrix was given.
fn job<T: Real>(question: &Question, comm: &Communicator) -> Result<(Job, Vec<Block<T>>)> {
    let Question { k, parties, .. } = question;
    let settle = |m, n, sparse| match question.method.choose(Some(MatrixShape { m, n, k: *k, sparse })) {
        Some(choice) => (choice.method, true),
        None => (question.method.clone(), false),
    };
    let (m, n, stored, (method, automatic), blocks) = match &question.matrix {
        Matrix::Shape(m, n, stored) => (*m, *n, *stored, settle(*m, *n, stored.is_some()), Vec::new()),
        Matrix::Input(spec) => {
            let input = data::open(spec, comm)?;
            let (m, n, sparse) = (input.header().rows, input.header().cols, input.header().sparse);
            let settled = settle(m, n, sparse);
            let parties = Parties { count: parties.unwrap_or(comm.size()), ranks: comm.size() };
            let partition = settled.0.description().partition;
            let plan = grid::plan(partition, (m, n), comm.size(), parties, PartySplit::Even, None);
            let loaded = input.load::<T>(&plan, comm, &mut |_| ())?;
            (m, n, sparse.then_some(loaded.statistics.nonzeros as f64), settled, loaded.blocks)
        }
    };
    if *k > m.min(n) {
        return Err(Error::input(format!("-k {k}: the matrix is {m} x {n}")).on_all_ranks());
    }
    let workload = Workload {
        m,
        n,
        stored: stored.unwrap_or(m as f64 * n as f64),
        sparse: stored.is_some(),
        k: *k,
        parties: *parties,
        word: size_of::<T>(),
    };
    Ok((Job { method, automatic, workload }, blocks))
}

/// One number of ranks, and what an iteration then takes.
pub(crate) struct Point {
    pub ranks: usize,
    pub cost: Cost,
    pub seconds: Option<f64>,
}

/// The costs for 1, 2, 4, … ranks, each with the grid that suits it.
fn scan(job: &Job, rates: &Rates) -> Result<Vec<Point>> {
    let most = job.workload.m.max(job.workload.n).min(1 << 16);
    let powers = std::iter::successors(Some(1usize), |p| Some(2 * p)).take_while(|&p| p <= most);
    powers
        .map(|ranks| {
            let cost = job.cost(ranks).map_err(Error::on_all_ranks)?;
            let seconds = rates.seconds(&cost).map(|parts| parts.values().sum());
            Ok(Point { ranks, cost, seconds })
        })
        .collect()
}

/// The largest number of ranks up to which every doubling was worth it; 1 where no time is predicted.
fn worth(scan: &[Point]) -> usize {
    let gains = scan.windows(2).take_while(|pair| match (pair[0].seconds, pair[1].seconds) {
        (Some(before), Some(after)) => before >= WORTH * after,
        _ => false,
    });
    scan[gains.count()].ranks
}

/// Bytes that this process holds, before it has done anything.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}
