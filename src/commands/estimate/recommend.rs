//! How many ranks to ask for: the most that are used well, and what keeps more of them from being so.

use super::machine::Rates;
use super::{Job, Point};

/// Ranks are used well while at least this share of their time, and of their memory, is what one rank alone would need.
pub const WELL: f64 = 0.75;

/// Bytes of all ranks together up to which parties may share them however thinly: each may bring its own machine, and a
/// simulation fits on one.
const SMALL: f64 = 4.0 * (1u64 << 30) as f64;

/// What a recommendation is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    TimeAndMemory,
    /// Where no time is predicted.
    Memory,
    /// The time alone, with private data that needs little memory: each party brings its own.
    Time,
    /// A rank for each party, where no time is predicted.
    Parties,
}

/// What keeps more ranks from being used well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Every rank has a copy of the program, and factors of its own.
    Memory,
    /// Messages take time however short they are.
    Latency,
    /// The bytes of messages.
    Messages,
    /// Rows do not divide evenly, or every rank repeats some work.
    Rows,
    /// A rank hosts whole parties.
    Parties,
}

impl Limit {
    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Memory => "memory",
            Limit::Latency => "latency",
            Limit::Messages => "messages",
            Limit::Rows => "rows per rank",
            Limit::Parties => "parties per rank",
        }
    }

    /// In a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Limit::Memory => "memory: each rank has the program and its own copies of factors",
            Limit::Latency => "the latency of messages",
            Limit::Messages => "the bytes of messages",
            Limit::Rows => "too few rows per rank: work that does not divide evenly, or is repeated",
            Limit::Parties => "parties that do not divide evenly over the ranks, or work that is repeated",
        }
    }
}

/// How well some ranks are used: shares of their time, where that is predicted, and of their memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    pub ranks: usize,
    pub time: Option<f64>,
    pub memory: f64,
}

/// The next larger number of ranks, and why it is not recommended.
#[derive(Debug, Clone)]
pub struct Beyond {
    pub used: Use,
    /// Shares of the lost time, the largest first; empty where no time is predicted.
    pub lost: Vec<(Limit, f64)>,
}

impl Beyond {
    /// What limits first.
    pub fn limit(&self) -> Limit {
        match self.lost.first() {
            Some((limit, _)) if self.used.time.is_some_and(|time| time < WELL) => *limit,
            _ => Limit::Memory,
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Recommendation {
    pub used: Use,
    pub basis: Basis,
    /// `None` where more ranks would have nothing to do, or are not predicted.
    pub beyond: Option<Beyond>,
    /// Whether the time alone would allow more.
    pub more_by_time: bool,
}

/// Recommends from the costs on growing numbers of ranks, the first of which is one; `base` is the memory of the program.
pub fn recommend(job: &Job, scan: &[Point], rates: &Rates, base: f64) -> Recommendation {
    let timed = scan.iter().all(|point| point.seconds.is_some());
    let share = |need: &dyn Fn(&Point) -> f64, point: &Point| {
        need(&scan[0]) / (point.ranks as f64 * need(point)).max(f64::MIN_POSITIVE)
    };
    let used = |point: &Point| Use {
        ranks: point.ranks,
        time: timed.then(|| share(&|p| p.seconds.unwrap_or(0.0), point)),
        memory: share(&|p| base + p.cost.peak(), point),
    };
    let beyond = |at: usize| {
        let lost = |point| if timed { lost(job, &scan[0], point, rates) } else { Vec::new() };
        scan.get(at + 1).map(|point| Beyond { used: used(point), lost: lost(point) })
    };
    let in_time = |point: &Point| used(point).time.is_none_or(|time| time >= WELL);
    let in_memory = |point: &Point| {
        let little = job.is_private() && point.ranks as f64 * (base + point.cost.peak()) <= SMALL;
        little || used(point).memory >= WELL
    };
    let most = |well: &dyn Fn(&Point) -> bool| scan.iter().rposition(well).unwrap_or(0);
    let at = most(&|point| in_time(point) && in_memory(point));
    let held_back = most(&in_time) > at;
    let basis = match (job.is_private() && !held_back, timed) {
        (true, true) => Basis::Time,
        (true, false) => Basis::Parties,
        (false, true) => Basis::TimeAndMemory,
        (false, false) => Basis::Memory,
    };
    Recommendation { used: used(&scan[at]), basis, beyond: beyond(at), more_by_time: timed && held_back }
}

/// The shares of the time by which `point` is slower than its part of what one rank takes.
fn lost(job: &Job, one: &Point, point: &Point, rates: &Rates) -> Vec<(Limit, f64)> {
    let latency: f64 = point.cost.messages.iter().map(|m| rates.of_message(m)[0]).sum();
    let messages: f64 = point.cost.messages.iter().map(|m| rates.of_message(m)[1]).sum();
    let [all, fair] = [point.seconds, one.seconds.map(|s| s / point.ranks as f64)].map(|s| s.unwrap_or(0.0));
    let undivided = if job.is_private() { Limit::Parties } else { Limit::Rows };
    let work = (all - latency - messages - fair).max(0.0);
    let sum = (latency + messages + work).max(f64::MIN_POSITIVE);
    let mut shares = vec![(Limit::Latency, latency / sum), (Limit::Messages, messages / sum), (undivided, work / sum)];
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}
