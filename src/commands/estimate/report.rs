//! The answer as JSON, as text, and as the head of a batch script.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::machine::Rates;
use super::{Job, Point, Question, WORTH};
use crate::algorithms::cost::Cost;
use crate::units::bytes;

pub struct Report<'a> {
    pub question: &'a Question,
    pub job: &'a Job,
    pub ranks: usize,
    pub cost: &'a Cost,
    pub rates: &'a Rates,
    pub scan: &'a [Point],
    pub worth: usize,
    /// Bytes of the program itself.
    pub base: f64,
}

impl Report<'_> {
    fn parts(&self) -> Option<BTreeMap<&'static str, f64>> {
        self.rates.seconds(self.cost)
    }

    fn seconds(&self) -> Option<f64> {
        self.parts().map(|parts| parts.values().sum())
    }

    fn peak(&self) -> f64 {
        self.base + self.cost.peak()
    }

    /// Flops by kernel: of the busiest rank, and of all.
    fn flops(&self) -> BTreeMap<&'static str, [f64; 2]> {
        let mut all = BTreeMap::new();
        for work in &self.cost.work {
            let sum = all.entry(work.kernel.name()).or_insert([0.0; 2]);
            *sum = [sum[0] + work.rank, sum[1] + work.total];
        }
        all
    }

    pub fn json(&self) -> Value {
        let Report { question, job, ranks, cost, rates, scan, worth, .. } = self;
        let by_kernel: Map<String, Value> = self
            .flops()
            .into_iter()
            .map(|(name, [rank, total])| (name.to_string(), json!({"rank": rank, "total": total})))
            .collect();
        let by_purpose: Map<String, Value> = cost
            .messages
            .iter()
            .map(|m| {
                let row = json!({"mpi_bytes": m.mpi_bytes, "messages": m.messages, "party_bytes": m.party_bytes});
                (m.kind.to_string(), row)
            })
            .collect();
        let [mpi_bytes, messages, party_bytes] = cost.traffic();
        let sum = |at: usize| self.flops().values().map(|f| f[at]).sum::<f64>();
        let scan: Vec<Value> = scan
            .iter()
            .map(|p| {
                json!({
                    "ranks": p.ranks, "seconds": p.seconds, "mpi_bytes": p.cost.traffic()[0], "data_bytes": p.cost.data,
                })
            })
            .collect();
        json!({
            "algo": job.method.description().name, "chosen_by_auto": job.automatic, "m": job.workload.m, "n": job.workload.n, "stored": job.workload.stored, "sparse": job.workload.sparse, "k": job.workload.k,
            "ranks": ranks, "parties": job.workload.parties(*ranks).0, "word": job.workload.word, "params": job.method.parameters(),
            "grid": cost.grid.map(|(pr, pc)| format!("{pr}x{pc}")),
            "memory": {"data_bytes": cost.data, "factor_bytes": cost.factors, "peak_bytes": self.peak()},
            "flops": {"rank": sum(0), "total": sum(1), "by_kernel": by_kernel},
            "traffic": {"mpi_bytes": mpi_bytes, "messages": messages, "party_bytes": party_bytes,
                        "by_purpose": by_purpose},
            "seconds": self.seconds(), "parts": self.parts(), "about": cost.about,
            "rates": rates.json(), "rates_between_ranks_assumed": !rates.known,
            "scan": scan, "worth_asking_for": worth, "sbatch": self.sbatch(),
            "max_iters": question.max_iters,
        })
    }

    pub fn text(&self) -> String {
        let Report { question, job, ranks, cost, rates, scan, worth, .. } = self;
        let mut out = String::new();
        let kind =
            if job.workload.sparse { format!("{:.0} entries", job.workload.stored) } else { "dense".to_string() };
        let grid = cost.grid.map_or_else(String::new, |(pr, pc)| format!(" ({pr} x {pc} grid)"));
        let _ = writeln!(
            out,
            "{}{} of {} x {} ({kind}), k = {}, f{}, on {ranks} rank(s){grid}; each iteration:\n",
            job.method.description().name,
            if job.automatic { ", which --algo auto takes," } else { "" },
            job.workload.m,
            job.workload.n,
            job.workload.k,
            8 * job.workload.word,
        );
        let size = |x: f64| bytes(x as u64);
        let _ = writeln!(
            out,
            "memory    {} of data and {} of factors on a rank; at most {} while it loads",
            size(cost.data),
            size(cost.factors),
            size(self.peak())
        );
        let flops = self.flops();
        let total: f64 = flops.values().map(|f| f[0]).sum();
        let list: Vec<String> = flops.iter().map(|(name, f)| format!("{name} {:.4}", f[0] / 1e9)).collect();
        let _ = writeln!(out, "work      {:.4} Gflop on a rank: {}", total / 1e9, list.join(", "));
        let [mpi, messages, party] = cost.traffic();
        let _ = writeln!(out, "traffic   {} in {messages} messages, all ranks together", bytes(mpi));
        if job.method.description().partition.is_private() {
            let _ = writeln!(out, "          {} handed over and got back by all parties", bytes(party));
        }
        match self.parts() {
            Some(parts) => {
                let list: Vec<String> = parts.iter().map(|(name, s)| format!("{name} {s:.2e}")).collect();
                let _ = writeln!(out, "time      {:.3e} s: {}", parts.values().sum::<f64>(), list.join(", "));
            }
            None => out.push_str("time      not predicted: some of its loops are not measured\n"),
        }
        if let Some(about) = cost.about {
            let _ = writeln!(out, "note      {about}");
        }
        let _ = writeln!(
            out,
            "\nbetween ranks: latency {:.2e} s, bandwidth {:.2e} B/s{}\n",
            rates.latency,
            rates.bandwidth,
            if rates.known { "" } else { " (assumed: start this with mpirun -n 2, or give --latency and --bandwidth)" }
        );
        if self.seconds().is_some() {
            out.push_str("  ranks    seconds  speedup  data on a rank  traffic of all\n");
            let first = scan.first().and_then(|p| p.seconds).unwrap_or(0.0);
            let shown = scan.iter().filter(|p| p.ranks <= (4 * worth).max(8));
            for (point, seconds) in shown.filter_map(|p| p.seconds.map(|s| (p, s))) {
                let _ = writeln!(
                    out,
                    "{:>7}  {seconds:>9.3e}  {:>7.1}  {:>14}  {:>14}",
                    point.ranks,
                    first / seconds,
                    size(point.cost.data),
                    bytes(point.cost.traffic()[0])
                );
            }
            let _ = writeln!(
                out,
                "\nworth asking for: up to {worth} rank(s); from there a doubling makes an iteration less than {WORTH} times \
                 faster"
            );
        }
        let _ = writeln!(out, "\nto paste ({} iterations):\n{}", question.max_iters, self.sbatch());
        out
    }

    /// The head of a batch script: memory with a tenth to spare, time with as much again and ten minutes.
    pub fn sbatch(&self) -> String {
        let threads = self.question.threads.max(1);
        let megabytes = (1.1 * self.peak() / threads as f64 / f64::from(1 << 20)).ceil().max(1.0);
        let mut out = format!(
            "#SBATCH --ntasks={}\n#SBATCH --cpus-per-task={threads}\n#SBATCH --mem-per-cpu={megabytes}M\n",
            self.ranks
        );
        if let Some(seconds) = self.seconds() {
            let minutes = (2.0 * seconds * self.question.max_iters as f64 / 60.0).ceil() as u64 + 10;
            let _ = writeln!(out, "#SBATCH --time={:02}:{:02}:00", minutes / 60, minutes % 60);
        }
        out
    }
}
