//! The summary at the end of a run: time, bytes and memory by phase, as JSON in the trace's end event and as a table on
//! stdout.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fednmf_base::units::{bytes, counted, short, thousands};
use fednmf_comm::{Communicator, Entry, Ledger};
use fednmf_data::messages::{CHECKPOINT, OUTPUT, SUMMARY};
use fednmf_data::{PASS, WAITING};
use fednmf_methods::metrics::Measure;

use crate::iterate::Stop;

/// One rank's part of the profile.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Share {
    /// By name: calls, seconds, MPI bytes, flops.
    phases: BTreeMap<String, (u64, f64, u64, u64)>,
    compute_seconds: f64,
    cpu_seconds: f64,
    sent: [u64; 3],
    /// Message kind, payload and protection; MPI bytes, party bytes, messages.
    messages: Vec<([String; 3], [u64; 3])>,
    /// Sending party, receiving party, messages, bytes, seconds.
    edges: Vec<(usize, usize, u64, u64, f64)>,
    peak_rss: u64,
}

impl Share {
    fn of(ledger: &Ledger, peak_rss: u64) -> Share {
        let mut share = Share { peak_rss, cpu_seconds: ledger.cpu_seconds(), ..Share::default() };
        let edge = |((from, to), e): ((usize, usize), &Entry)| (from, to, e.calls, e.party_bytes, e.seconds);
        share.edges = ledger.edges().map(edge).collect();
        for (name, entry) in ledger.work() {
            share.add(name, entry);
            if name != WAITING {
                share.compute_seconds += entry.seconds;
            }
        }
        for (name, entry) in ledger.spans() {
            share.add(name, entry);
        }
        for (tag, entry) in ledger.messages() {
            let row = [entry.mpi_bytes, entry.party_bytes, entry.messages];
            let key = [tag.kind.into(), tag.payload.name().into(), tag.protection().name().into()];
            share.messages.push((key, row));
            share.add(tag.kind, entry);
            if tag.payload.is_of_method() && ![OUTPUT, CHECKPOINT].contains(tag) {
                for (sum, x) in share.sent.iter_mut().zip([entry.mpi_bytes, entry.party_bytes, entry.messages]) {
                    *sum += x;
                }
            }
        }
        share
    }

    /// The part that may leave a rank with data of parties: what it sent, which the receivers know. Times, operations and
    /// memory are functions of the data.
    fn of_messages(&self) -> Share {
        let edges = self.edges.iter().map(|&(from, to, messages, bytes, _)| (from, to, messages, bytes, 0.0));
        Share { sent: self.sent, messages: self.messages.clone(), edges: edges.collect(), ..Share::default() }
    }

    fn add(&mut self, name: &str, entry: &Entry) {
        let phase = self.phases.entry(name.to_string()).or_default();
        let Entry { calls, seconds, mpi_bytes, flops, .. } = *entry;
        *phase = (phase.0 + calls, phase.1 + seconds, phase.2 + mpi_bytes, phase.3 + flops);
    }
}

/// One kind of work or message, over all ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Phase {
    /// Largest number of calls of any rank.
    pub calls: u64,
    pub seconds_max: f64,
    /// Over all ranks, including those without a call.
    pub seconds_mean: f64,
    /// MPI bytes, all ranks together.
    pub bytes: u64,
    /// Floating-point operations counted by kernels, all ranks together.
    pub flops: u64,
    /// The seconds of each rank; empty for more than [`RANKS_LISTED`] ranks.
    pub by_rank: Vec<f64>,
}

/// Up to this many ranks the trace lists the seconds of each.
const RANKS_LISTED: usize = 256;

/// The profile of a run so far, over all ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    pub phases: BTreeMap<String, Phase>,
    /// MPI bytes of the algorithm including its evaluations, all ranks; without loading, output and control.
    pub bytes_sent: u64,
    /// Bytes that all parties sent and received for it.
    pub party_bytes: u64,
    /// MPI calls behind it, all ranks.
    pub messages: u64,
    /// The messages that left ranks and parties, by kind, payload and protection: MPI bytes, party bytes, messages of all
    /// ranks.
    pub by_message: BTreeMap<[String; 3], [u64; 3]>,
    /// Between neighbours, by sending and receiving party: messages, bytes, and the seconds of the slower of the two
    /// ranks; 0 if neither shares its times.
    pub edges: BTreeMap<(usize, usize), (u64, u64, f64)>,
    /// Largest compute time of a rank over the mean; 1 is perfect balance. `None` if the ranks do not share their times.
    pub imbalance: Option<f64>,
    /// Largest processor time of a rank's computing, in seconds.
    pub cpu_seconds_max: f64,
    /// Largest peak resident memory of a rank.
    pub peak_rss_bytes: u64,
    /// Sum of the ranks' peaks.
    pub peak_rss_sum_bytes: u64,
}

/// The profile of the run so far, on the ranks that report; empty on others. If the ranks have data of parties (`private`),
/// each shares its messages only: times, operations and memory are those of the reporting rank. Collective.
pub fn profile(comm: &Communicator, private: bool) -> Profile {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let own = Share::of(&comm.ledger(), peak_rss(&status));
    let shown = if private { own.of_messages() } else { own.clone() };
    // The messages of lost ranks are unknown.
    let shares: Vec<Share> = match comm.has_owners() {
        true => comm.gather_present(SUMMARY, &shown).into_iter().flatten().collect(),
        false => comm.gather_value(SUMMARY, &shown),
    };
    let profile = Profile::of(&shares);
    if private && comm.reports() { profile.with_work_of(&own) } else { profile }
}

/// `VmHWM` of a `/proc/…/status` in bytes; 0 if absent.
fn peak_rss(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

impl Profile {
    fn of(shares: &[Share]) -> Profile {
        let mut profile = Profile { imbalance: Some(1.0), ..Profile::default() };
        let ranks = shares.len().max(1) as f64;
        let (mut slowest, mut total) = (0f64, 0f64);
        for (rank, share) in shares.iter().enumerate() {
            for (name, &(calls, seconds, bytes, flops)) in &share.phases {
                let phase = profile.phases.entry(name.clone()).or_default();
                phase.calls = phase.calls.max(calls);
                phase.seconds_max = phase.seconds_max.max(seconds);
                phase.seconds_mean += seconds / ranks;
                phase.bytes += bytes;
                phase.flops += flops;
                if shares.len() <= RANKS_LISTED {
                    phase.by_rank.resize(shares.len(), 0.0);
                    phase.by_rank[rank] = seconds;
                }
            }
            for (key, row) in &share.messages {
                let sum = profile.by_message.entry(key.clone()).or_default();
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            for &(from, to, messages, bytes, seconds) in &share.edges {
                let edge = profile.edges.entry((from, to)).or_default();
                *edge = (edge.0 + messages, edge.1 + bytes, edge.2.max(seconds));
            }
            profile.bytes_sent += share.sent[0];
            profile.party_bytes += share.sent[1];
            profile.messages += share.sent[2];
            profile.peak_rss_bytes = profile.peak_rss_bytes.max(share.peak_rss);
            profile.peak_rss_sum_bytes += share.peak_rss;
            profile.cpu_seconds_max = profile.cpu_seconds_max.max(share.cpu_seconds);
            slowest = slowest.max(share.compute_seconds);
            total += share.compute_seconds;
        }
        if total > 0.0 {
            profile.imbalance = Some(slowest / (total / ranks));
        }
        profile
    }

    /// The messages of all ranks, and the work of one.
    fn with_work_of(self, own: &Share) -> Profile {
        let Profile { bytes_sent, party_bytes, messages, by_message, mut edges, .. } = self;
        for &(from, to, .., seconds) in &own.edges {
            edges.entry((from, to)).or_default().2 = seconds;
        }
        let own = Profile::of(std::slice::from_ref(own));
        Profile { bytes_sent, party_bytes, messages, by_message, edges, imbalance: None, ..own }
    }

    /// If the data were read from the file in each pass: the number of passes, and the longest time in seconds that a rank
    /// waited for its reader.
    pub fn streamed(&self) -> Option<(u64, f64)> {
        let passes = self.phases.get(PASS)?.calls;
        Some((passes, self.phases.get(WAITING).map_or(0.0, |phase| phase.seconds_max)))
    }

    /// For the trace: `wire`, `phases`, `bytes_sent`, `party_bytes`, `messages`, `imbalance`, `cpu_seconds_max`,
    /// `peak_rss_bytes` and
    /// `peak_rss_sum_bytes`; `edges` where parties have neighbours, `streamed` where data were read in passes.
    pub fn json(&self) -> Map<String, Value> {
        let phases: Map<String, Value> = self
            .phases
            .iter()
            .map(|(name, p)| {
                let value = json!({
                    "calls": p.calls, "seconds_max": p.seconds_max, "seconds_mean": p.seconds_mean, "bytes": p.bytes,
                    "flops": p.flops,
                    "seconds_by_rank": p.by_rank.iter().map(|s| (s * 1e6).round() / 1e6).collect::<Vec<f64>>(),
                });
                (name.clone(), value)
            })
            .collect();
        let wire: Vec<Value> = self
            .by_message
            .iter()
            .map(|([kind, payload, protection], [mpi, party, messages])| {
                json!({"purpose": kind, "payload": payload, "protection": protection, "party_bytes": party,
                       "mpi_bytes": mpi, "messages": messages})
            })
            .collect();
        let mut map = Map::new();
        map.insert("wire".into(), wire.into());
        map.insert("phases".into(), Value::Object(phases));
        if !self.edges.is_empty() {
            let edges = self.edges.iter().map(|((from, to), (messages, bytes, seconds))| {
                let seconds = (*seconds > 0.0).then_some(*seconds);
                json!({"from": from, "to": to, "messages": messages, "bytes": bytes, "seconds": seconds})
            });
            map.insert("edges".into(), edges.collect::<Vec<Value>>().into());
        }
        if let Some((passes, seconds)) = self.streamed() {
            map.insert("streamed".into(), json!({"passes": passes, "wait_seconds": seconds}));
        }
        map.insert("bytes_sent".into(), self.bytes_sent.into());
        map.insert("party_bytes".into(), self.party_bytes.into());
        map.insert("messages".into(), self.messages.into());
        map.extend(self.imbalance.map(|imbalance| ("imbalance".to_string(), imbalance.into())));
        map.insert("cpu_seconds_max".into(), self.cpu_seconds_max.into());
        map.insert("peak_rss_bytes".into(), self.peak_rss_bytes.into());
        map.insert("peak_rss_sum_bytes".into(), self.peak_rss_sum_bytes.into());
        map
    }

    /// As text: a line per phase, the slowest first, in aligned columns.
    pub fn table(&self) -> String {
        let mut phases: Vec<(&String, &Phase)> = self.phases.iter().collect();
        phases.sort_by(|a, b| b.1.seconds_max.total_cmp(&a.1.seconds_max));
        let mut lines = vec![["phase", "calls", "seconds max", "mean", "bytes"].map(String::from)];
        lines.extend(phases.into_iter().map(|(name, p)| {
            [
                name.clone(),
                p.calls.to_string(),
                format!("{:.3}", p.seconds_max),
                format!("{:.3}", p.seconds_mean),
                if p.bytes == 0 { "-".into() } else { bytes(p.bytes) },
            ]
        }));
        let widths: Vec<usize> =
            (0..5).map(|column| lines.iter().map(|l| l[column].chars().count()).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for line in &lines {
            let _ = write!(text, "{:<width$}", line[0], width = widths[0]);
            for (cell, &width) in line.iter().zip(&widths).skip(1) {
                let _ = write!(text, "  {cell:>width$}");
            }
            text.push('\n');
        }
        text
    }
}

/// The description of a run, for [`block`].
#[derive(Debug, Clone)]
pub struct SummaryInfo<'a> {
    pub algo: &'a str,
    /// Whether its updates are extrapolated.
    pub extrapolated: bool,
    /// m and n.
    pub shape: (usize, usize),
    pub k: usize,
    pub ranks: usize,
    /// Threads of each rank.
    pub threads: usize,
    pub parties: usize,
    pub iterations: usize,
    /// The iteration from which it went on; 0 if it was not resumed. Bytes are counted since then.
    pub resumed_from: usize,
    /// Seconds in the solver.
    pub seconds: f64,
    /// The measures of the last evaluation, the leading one first; empty if there was none.
    pub measures: Vec<(Measure, f64)>,
    /// β, where a β-divergence is minimised.
    pub beta: Option<f64>,
    pub stopped_by: Stop,
    /// The tolerance of the run.
    pub tol: Option<f64>,
    /// Path of the factors.
    pub output: Option<&'a str>,
    /// Path of the report.
    pub report: Option<&'a str>,
    /// What private parties sent and received, also between parties of the same rank.
    pub party_bytes: Option<u64>,
}

/// The summary mentions the slowest rank if its load exceeds the mean by this factor.
const IMBALANCE: f64 = 1.2;

/// The summary of a run in a few lines.
pub fn block(facts: &SummaryInfo<'_>, profile: &Profile) -> String {
    let (m, n) = (thousands(facts.shape.0), thousands(facts.shape.1));
    let measures: Vec<String> =
        facts.measures.iter().map(|(m, x)| format!("{} {}", m.label_with(facts.beta), short(*x))).collect();
    let measures = if measures.is_empty() { "not evaluated".into() } else { measures.join(", ") };
    let iterations = counted(facts.iterations, "iteration", "iterations");
    let seconds = short(facts.seconds);
    let mut stopped = facts.stopped_by.phrase();
    if let (Stop::Tolerance, Some(tol)) = (facts.stopped_by, facts.tol) {
        let _ = write!(stopped, " {tol:e}");
    }
    let mut text = format!("{m} x {n}, k = {}: {measures} ({iterations} in {seconds} s, {})\n", facts.k, stopped);
    let mut line = |name: &str, what: &str| {
        let _ = writeln!(text, "  {name:9} {what}");
    };
    let ranks = counted(facts.ranks, "rank", "ranks");
    let threads = match (facts.threads, facts.ranks) {
        (1, _) => String::new(),
        (threads, 1) => format!(" with {threads} threads"),
        (threads, _) => format!(" with {threads} threads each"),
    };
    let parties = match facts.parties == facts.ranks {
        true => String::new(),
        false => format!(" for {}", counted(facts.parties, "party", "parties")),
    };
    let memory = bytes(profile.peak_rss_bytes);
    // Where ranks do not share their times, they do not share their memory either.
    let whose = match profile.imbalance {
        _ if facts.ranks == 1 => String::new(),
        Some(_) => format!(" on a rank, {} on all", bytes(profile.peak_rss_sum_bytes)),
        None => " on this rank".to_string(),
    };
    let extrapolated = if facts.extrapolated { " with extrapolation" } else { "" };
    line("method", &format!("{}{extrapolated} on {ranks}{threads}{parties}, peak memory {memory}{whose}", facts.algo));
    let since = match facts.resumed_from {
        0 => String::new(),
        from => format!(" since iteration {from}"),
    };
    // Between sites both lines have the same bytes.
    let once = profile.imbalance.is_none() && facts.party_bytes == Some(profile.bytes_sent);
    if facts.ranks > 1 && !once {
        let slowest = profile.imbalance.filter(|imbalance| *imbalance > IMBALANCE);
        let slowest = slowest.map_or_else(String::new, |by| format!("; the slowest computes {by:.2} times the mean"));
        line("ranks", &format!("{} sent and received by all{since}{slowest}", bytes(profile.bytes_sent)));
    }
    if let Some(exchanged) = facts.party_bytes {
        line("parties", &format!("{} exchanged by all{since}", bytes(exchanged)));
    }
    if let Some((passes, seconds)) = profile.streamed() {
        line("streaming", &format!("the file was read {passes} times, {} s of waiting", short(seconds)));
    }
    line("factors", facts.output.unwrap_or("not kept (no --output)"));
    if let Some(report) = facts.report {
        line("report", report);
    }
    text
}

#[cfg(test)]
mod tests {
    use fednmf_comm::{MessageTag, Payload};

    use super::*;

    fn two_ranks() -> Profile {
        let shares: Vec<Share> = [1.0, 3.0]
            .into_iter()
            .map(|seconds| {
                let mut ledger = Ledger::default();
                ledger.record_work("sweep", [seconds, 0.5 * seconds], 50);
                ledger.record_work("sweep", [seconds, 0.5 * seconds], 50);
                let entry = Entry { calls: 2, seconds: 0.5, party_bytes: 70, mpi_bytes: 40, messages: 3, flops: 0 };
                ledger.sent(MessageTag::new("Gram", Payload::Gram), &entry);
                ledger.sent(MessageTag::new("load", Payload::Data), &entry);
                ledger.sent(OUTPUT, &entry);
                ledger.sent(MessageTag::new("output", Payload::Metadata), &entry);
                Share::of(&ledger, (seconds * 1000.0) as u64)
            })
            .collect();
        Profile::of(&shares)
    }

    #[test]
    fn ranks_are_added_up() {
        let profile = two_ranks();
        let sweep =
            Phase { calls: 2, seconds_max: 6.0, seconds_mean: 4.0, bytes: 0, flops: 200, by_rank: vec![2.0, 6.0] };
        assert_eq!(profile.phases["sweep"], sweep);
        let output =
            Phase { calls: 4, seconds_max: 1.0, seconds_mean: 1.0, bytes: 160, flops: 0, by_rank: vec![1.0; 2] };
        assert_eq!(profile.phases["output"], output);
        // Only the Gram matrix belongs to the algorithm.
        assert_eq!((profile.bytes_sent, profile.party_bytes, profile.messages), (80, 140, 6));
        assert_eq!((profile.imbalance, profile.peak_rss_bytes, profile.peak_rss_sum_bytes), (Some(1.5), 3000, 4000));
        assert_eq!(Profile::of(&[Share::default()]).imbalance, Some(1.0));
        let json = profile.json();
        assert_eq!(json["phases"]["sweep"]["seconds_max"], 6.0);
        assert_eq!((&json["bytes_sent"], &json["cpu_seconds_max"]), (&80.into(), &3.0.into()));
    }

    #[test]
    fn ranks_with_private_data_share_their_messages_only() {
        let of = |flops: u64| {
            let mut ledger = Ledger::default();
            ledger.record_work("product", [flops as f64 * 1e-9, 0.5], flops);
            ledger.record_edge((0, 1), &Entry { calls: 1, seconds: flops as f64, party_bytes: 8, ..Entry::default() });
            ledger.sent(MessageTag::new("Gram", Payload::Gram), &Entry { calls: 2, seconds: 0.5, ..Entry::default() });
            Share::of(&ledger, flops)
        };
        let sent = |share: &Share| serde_json::to_string(&share.of_messages()).unwrap();
        let (few, many) = (of(16_000), of(32_000));
        assert_eq!(sent(&few), sent(&many));
        assert!(sent(&few).contains("Gram"));
        let profile = Profile::of(&[few.of_messages(), many.of_messages()]).with_work_of(&many);
        assert_eq!((profile.phases["product"].flops, profile.imbalance), (32_000, None));
        assert_eq!((profile.edges[&(0, 1)].1, profile.edges[&(0, 1)].2), (16, 32_000.0));
    }

    #[test]
    fn the_table_is_aligned_and_begins_with_the_slowest() {
        let table = two_ranks().table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "phase   calls  seconds max   mean  bytes");
        assert_eq!(lines[1], "sweep       2        6.000  4.000      -");
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|l| l.len() == lines[0].len()));
    }

    #[test]
    fn numbers_as_text() {
        assert_eq!(peak_rss("Name:\tx\nVmHWM:\t   1234 kB\n"), 1234 * 1024);
        assert_eq!(peak_rss("VmHWM: none"), 0);
        let facts = SummaryInfo {
            algo: "hals",
            extrapolated: false,
            shape: (6, 4),
            k: 2,
            ranks: 1,
            threads: 1,
            parties: 5,
            iterations: 1,
            resumed_from: 0,
            seconds: 0.25,
            measures: vec![(Measure::RelativeError, 0.5)],
            beta: None,
            stopped_by: Stop::MaxIters,
            tol: Some(1e-5),
            output: Some("o.h5"),
            report: None,
            party_bytes: Some(2048),
        };
        let text = block(&facts, &two_ranks());
        let expected = "6 x 4, k = 2: relative error 0.5000 (1 iteration in 0.2500 s, stopped at --max-iters)\n  method    hals on 1 \
                        rank for 5 parties, peak memory 2.9 KiB\n  parties   2.0 KiB exchanged by all\n  factors   o.h5\n";
        assert_eq!(text, expected);
        let two = SummaryInfo {
            extrapolated: true,
            resumed_from: 7,
            ranks: 2,
            threads: 4,
            parties: 2,
            party_bytes: None,
            output: None,
            ..facts
        };
        let text = block(&two, &two_ranks());
        assert!(text.contains("hals with extrapolation on 2 ranks with 4 threads each, peak"), "{text}");
        assert!(text.contains(" KiB on a rank, ") && text.contains(" KiB on all\n"), "{text}");
        assert!(
            text.contains("\n  ranks     80 B sent and received by all since iteration 7; the slowest computes 1.50 times the mean\n"),
            "{text}"
        );
        assert!(text.ends_with("  factors   not kept (no --output)\n"), "{text}");
    }
}
