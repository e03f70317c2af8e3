//! The recommended number of ranks: the largest that is used efficiently, and what limits it.

use super::machine::Rates;
use super::{Job, Point};

/// Minimum efficiency of a recommended number of ranks: the time, and the memory, of one rank over those of all ranks
/// together.
pub const MIN_EFFICIENCY: f64 = 0.75;

/// Total bytes of all ranks up to which only the time counts: any machine has as much.
const SMALL: f64 = 4.0 * (1u64 << 30) as f64;

/// The basis of a recommendation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    TimeAndMemory,
    /// If no time is predicted.
    Memory,
    /// Only the time, because a rank needs little memory.
    Time,
    /// A rank for each party, where no time is predicted.
    Parties,
}

/// What limits the efficiency of more ranks.
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

/// The efficiency of a number of ranks, in time (if predicted) and in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utilization {
    pub ranks: usize,
    pub time: Option<f64>,
    pub memory: f64,
}

/// The next larger number of ranks, and why it is not recommended.
#[derive(Debug, Clone)]
pub struct Beyond {
    pub used: Utilization,
    /// Shares of the lost time, the largest first; empty where no time is predicted.
    pub lost: Vec<(Limit, f64)>,
}

impl Beyond {
    /// The first limit.
    pub fn limit(&self) -> Limit {
        match self.lost.first() {
            Some((limit, _)) if self.used.time.is_some_and(|time| time < MIN_EFFICIENCY) => *limit,
            _ => Limit::Memory,
        }
    }
}

/// A recommended number of ranks, and why it is not larger.
#[derive(Debug, Clone)]
pub struct Recommendation {
    pub used: Utilization,
    pub basis: Basis,
    /// `None` if more ranks would be idle, or are not predicted.
    pub beyond: Option<Beyond>,
    /// Whether the time by itself would allow more.
    pub more_by_time: bool,
}

/// Recommends from the costs on growing numbers of ranks, the first of which is one; `base` is the memory of the program.
pub fn recommend(job: &Job, scan: &[Point], rates: &Rates, base: f64) -> Recommendation {
    let timed = scan.iter().all(|point| point.seconds.is_some());
    let share = |need: &dyn Fn(&Point) -> f64, point: &Point| {
        need(&scan[0]) / (point.ranks as f64 * need(point)).max(f64::MIN_POSITIVE)
    };
    let used = |point: &Point| Utilization {
        ranks: point.ranks,
        time: timed.then(|| share(&|p| p.seconds.unwrap_or(0.0), point)),
        memory: share(&|p| base + p.cost.peak(), point),
    };
    let beyond = |at: usize| {
        let lost = |point| if timed { lost(job, &scan[0], point, rates) } else { Vec::new() };
        scan.get(at + 1).map(|point| Beyond { used: used(point), lost: lost(point) })
    };
    let in_time = |point: &Point| used(point).time.is_none_or(|time| time >= MIN_EFFICIENCY);
    let in_memory = |point: &Point| {
        let is_small = point.ranks as f64 * (base + point.cost.peak()) <= SMALL;
        is_small && (timed || job.is_private()) || used(point).memory >= MIN_EFFICIENCY
    };
    let most = |well: &dyn Fn(&Point) -> bool| scan.iter().rposition(well).unwrap_or(0);
    let at = most(&|point| in_time(point) && in_memory(point));
    let held_back = most(&in_time) > at;
    let is_small = scan[at].ranks as f64 * (base + scan[at].cost.peak()) <= SMALL;
    let basis = match (timed, job.is_private()) {
        (true, _) if is_small && !held_back => Basis::Time,
        (true, _) => Basis::TimeAndMemory,
        (false, true) if !held_back => Basis::Parties,
        (false, _) => Basis::Memory,
    };
    Recommendation { used: used(&scan[at]), basis, beyond: beyond(at), more_by_time: timed && held_back }
}

/// The causes' shares of the time that `point` takes in excess of ideal speed-up over one rank.
fn lost(job: &Job, one: &Point, point: &Point, rates: &Rates) -> Vec<(Limit, f64)> {
    let rates = rates.of_ranks(point.ranks);
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
