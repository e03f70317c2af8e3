//! `fednmf estimate`: what an iteration costs on each rank before it is run, from formulas that tests hold to the
//! ledger's counts, and how long it takes, from rates that are measured on the spot.

mod cost;
mod machine;
mod methods;
mod report;

use std::path::PathBuf;

use self::cost::Cost;
use self::machine::{Rates, Stored};
use self::methods::Job;
use self::report::Report;
use crate::algorithms::Method;
use crate::algorithms::centralized::auto;
use crate::algorithms::options::Options;
use crate::comm::{Communicator, Parties};
use crate::data;
use crate::data::{InputSpec, PartySplit};
use crate::error::{EXIT_DONE, Error, Result};
use crate::linalg;
use crate::linalg::{Block, Real, SparseKernel};

/// What is asked, checked as far as can be without data.
pub struct Question {
    pub method: &'static Method,
    /// The sizes may choose another method.
    pub auto: bool,
    pub options: Options,
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
    let (mut job, blocks) = job::<T>(question, comm)?;
    let given = comm.agree_on_error(question.rates.as_deref().map(Rates::read).transpose())?;
    // Rates come from the ranks that are here; a grid that was asked for is for others.
    let here = job.cost(question.ranks.unwrap_or(comm.size())).map_err(Error::on_all_ranks)?;
    let mut rates = match given {
        Some(rates) => rates,
        None => {
            let density = job.sparse.then(|| job.stored / (job.m as f64 * job.n as f64));
            let stored = Stored { density, k: job.k, kernel: question.kernel };
            comm.agree_on_error(machine::measure::<T>(comm, &here, stored, blocks))?
        }
    };
    rates.set(question.latency, question.bandwidth);
    let scan = scan(&mut job, &rates)?;
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
    let Question { options, k, parties, .. } = question;
    let settle = |m, n, sparse| -> Result<(&'static Method, Options)> {
        let other = if question.auto { auto::other_than_hals(m, n, *k, sparse)? } else { None };
        Ok(other.unwrap_or_else(|| (question.method, options.clone())))
    };
    let (m, n, stored, sparse, method, blocks) = match &question.matrix {
        Matrix::Shape(m, n, stored) => {
            let all = *m as f64 * *n as f64;
            (*m, *n, stored.unwrap_or(all), stored.is_some(), settle(*m, *n, stored.is_some())?, Vec::new())
        }
        Matrix::Input(spec) => {
            let input = data::open(spec, comm)?;
            let (m, n, sparse) = (input.header().rows, input.header().cols, input.header().sparse);
            let method = settle(m, n, sparse)?;
            let parties = Parties { count: parties.unwrap_or(comm.size()), ranks: comm.size() };
            let plan = method.0.partition.plan((m, n), comm.size(), parties, PartySplit::Even, None);
            let loaded = input.load::<T>(&plan, comm, &mut |_| ())?;
            let stored = if sparse { loaded.statistics.nonzeros as f64 } else { m as f64 * n as f64 };
            (m, n, stored, sparse, method, loaded.blocks)
        }
    };
    if *k > m.min(n) {
        return Err(Error::input(format!("-k {k}: the matrix is {m} x {n}")).on_all_ranks());
    }
    let (method, options) = method;
    let job = Job { method, options, m, n, stored, sparse, k: *k, parties: *parties, word: size_of::<T>() };
    Ok((job, blocks))
}

/// One number of ranks, and what an iteration then takes.
pub(crate) struct Point {
    pub ranks: usize,
    pub cost: Cost,
    pub seconds: Option<f64>,
}

/// The costs for 1, 2, 4, … ranks, each with the grid that suits it.
fn scan(job: &mut Job, rates: &Rates) -> Result<Vec<Point>> {
    let most = job.m.max(job.n).min(1 << 16);
    let powers = std::iter::successors(Some(1usize), |p| Some(2 * p)).take_while(|&p| p <= most);
    powers
        .map(|ranks| {
            let cost = job.cost(ranks).map_err(Error::on_all_ranks)?;
            let seconds = cost.seconds(rates).map(|parts| parts.values().sum());
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
