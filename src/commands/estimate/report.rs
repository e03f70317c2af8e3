//! The estimate as JSON, as text, and as the head of a batch script.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use fednmf_base::units::{bytes, counted, short, thousands};
use fednmf_methods::cost::{Cost, Pattern};

use super::bound::words_of_products;
use super::machine::Rates;
use super::recommend::{Basis, Limit, MIN_EFFICIENCY, Recommendation, Utilization};
use super::{EstimateRequest, Job, MOST_RANKS, Point, memory, with_formula};

pub struct Report<'a> {
    pub request: &'a EstimateRequest,
    pub job: &'a Job,
    pub ranks: usize,
    pub cost: &'a Cost,
    pub rates: &'a Rates,
    pub scan: &'a [Point],
    pub recommended: &'a Recommendation,
    /// Bytes of the program itself.
    pub base: f64,
}

impl Report<'_> {
    fn parts(&self) -> Option<BTreeMap<&'static str, f64>> {
        self.job.seconds(self.cost, self.rates, self.ranks)
    }

    fn seconds(&self) -> Option<f64> {
        self.parts().map(|parts| parts.values().sum())
    }

    /// Words that a rank receives in the products, and their lower bound.
    fn words(&self) -> Option<[f64; 2]> {
        words_of_products(self.cost, &self.job.workload, self.ranks)
    }

    fn peak(&self) -> f64 {
        self.base + self.cost.peak() + self.counts()
    }

    /// Bytes of the number of nonzeros in each row, and of their sum over ranks, by which the ranks divide a sparse matrix. They are freed,
    /// but not given back to the system.
    fn counts(&self) -> f64 {
        let (m, sparse) = (self.job.workload.m, self.job.workload.sparse);
        let divided = sparse && self.ranks > 1 && !self.job.method.description().partition.is_private();
        if divided { (2 * size_of::<u64>() * m) as f64 } else { 0.0 }
    }

    fn streamed(&self) -> Option<f64> {
        memory::streamed(&*self.job.method, &self.job.workload, self.ranks).filter(|_| !self.job.mixed)
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
        let Report { request, job, ranks, cost, rates, scan, recommended, .. } = self;
        let by_kernel: Map<String, Value> = self
            .flops()
            .into_iter()
            .map(|(name, [rank, total])| (name.to_string(), json!({"rank": rank, "total": total})))
            .collect();
        let by_purpose: Map<String, Value> = cost
            .messages
            .iter()
            .map(|m| {
                let mut row = json!({"mpi_bytes": m.mpi_bytes, "messages": m.messages, "party_bytes": m.party_bytes});
                if let Pattern::Rounds(_) = m.pattern {
                    row["rounds"] = m.times.into();
                }
                (m.kind.to_string(), row)
            })
            .collect();
        let [mpi_bytes, messages, party_bytes] = cost.traffic();
        let sum = |at: usize| self.flops().values().map(|f| f[at]).sum::<f64>();
        let scan: Vec<Value> = scan
            .iter()
            .map(|p| {
                json!({
                    "ranks": p.ranks, "seconds": p.seconds, "efficiency": self.efficiency(p),
                    "mpi_bytes": p.cost.traffic()[0], "data_bytes": p.cost.data,
                })
            })
            .collect();
        json!({
            "algo": job.method.description().name, "chosen_by_auto": job.automatic, "m": job.workload.m, "n": job.workload.n, "stored": job.workload.stored, "sparse": job.workload.sparse, "k": job.workload.k,
            "ranks": ranks, "ranks_per_node": rates.ranks_per_node, "parties": job.workload.parties(*ranks).0, "word": job.workload.word, "params": fednmf_methods::parameters::to_json(&*job.method),
            "grid": cost.grid.map(|(pr, pc)| format!("{pr}x{pc}")),
            "memory": {"data_bytes": cost.data, "factor_bytes": cost.factors, "start_bytes": cost.start, "peak_bytes": self.peak(), "node_bytes": self.on_node().map(|ranks| ranks as f64 * self.peak()), "streamed_bytes": self.streamed()},
            "formula": job.formula,
            "flops": job.formula.then(|| json!({"rank": sum(0), "total": sum(1), "by_kernel": by_kernel})),
            "traffic": job.formula.then(|| json!({"mpi_bytes": mpi_bytes, "messages": messages,
                                                  "party_bytes": party_bytes, "by_purpose": by_purpose})),
            "words_of_products": self.words().map(|[words, least]| json!({"rank": words, "lower_bound": least})),
            "message_table": self.message_table(),
            "seconds": self.seconds(), "parts": self.parts(), "about": cost.about(),
            "rates": rates.json(), "rates_between_ranks_assumed": !rates.known,
            "scan": scan, "recommended_ranks": recommended.used.ranks, "limits": self.limits(), "sbatch": self.sbatch(),
            "max_iters": request.max_iters,
        })
    }

    /// Where the method has no formula, what the ranks or parties send, in the words of its message table.
    fn message_table(&self) -> Vec<Value> {
        let specs = self.job.method.description().messages.iter().filter(|_| !self.job.formula);
        let specs = specs.map(|m| (m.kind, m.in_words(false)));
        specs.map(|(kind, [size, when])| json!({"purpose": kind, "size": size, "when": when})).collect()
    }

    /// Time efficiency: the time of one rank over the total time of the ranks.
    fn efficiency(&self, point: &Point) -> Option<f64> {
        let one = self.scan.first()?.seconds?;
        Some(one / (point.ranks as f64 * point.seconds?))
    }

    /// The limits of more ranks than recommended.
    fn limits(&self) -> Option<Value> {
        self.recommended.beyond.as_ref().map(|beyond| {
            let lost: Map<String, Value> =
                beyond.lost.iter().map(|(limit, share)| (limit.name().to_string(), json!(share))).collect();
            let Utilization { ranks, time, memory } = beyond.used;
            json!({"ranks": ranks, "time_efficiency": time, "memory_efficiency": memory, "limit": beyond.limit().name(),
                   "time_lost_to": lost})
        })
    }

    pub fn text(&self) -> String {
        let Report { request, job, ranks, cost, rates, .. } = self;
        let mut out = String::new();
        let description = job.method.description();
        let kind = match job.workload.sparse {
            true => format!("{} nonzeros", thousands(job.workload.stored as usize)),
            false => "dense".to_string(),
        };
        let grid = cost.grid.map_or_else(String::new, |(pr, pc)| format!(" ({pr} x {pc} grid)"));
        let parties = job.workload.parties.map_or_else(String::new, |parties| format!("{parties} parties on "));
        let precision = match request.precision {
            Some(precision) => precision.name().to_string(),
            None => format!("f{}", 8 * job.workload.word),
        };
        let _ = writeln!(
            out,
            "{}{}: {} x {} ({kind}), k = {}, {precision}, on {parties}{}{grid}; each iteration:\n",
            description.name,
            if job.automatic { " (chosen by --algo auto)" } else { "" },
            thousands(job.workload.m),
            thousands(job.workload.n),
            job.workload.k,
            counted(*ranks, "rank", "ranks"),
        );
        let least = if job.formula { "" } else { "at least " };
        let _ = writeln!(
            out,
            "memory    {least}{} on a rank for its data, {} for factors",
            size(cost.data),
            size(cost.factors)
        );
        if cost.start > 0.0 {
            let _ = writeln!(out, "          {} for the start, which is freed before the iterations", size(cost.start));
        }
        if self.counts() > 0.0 {
            let _ = writeln!(
                out,
                "          {} for the nonzeros of each row, by which the ranks divide them",
                size(self.counts())
            );
        }
        let together = |ranks: usize| size(ranks as f64 * self.peak());
        let mut others = String::new();
        if let Some(on_node) = self.on_node().filter(|on_node| *on_node > 1) {
            let _ = write!(others, "; {} on a node", together(on_node));
        }
        if *ranks > 1 {
            let _ = write!(others, "; {} on all ranks", together(*ranks));
        }
        let _ = writeln!(out, "          about {} together with the program{others}", together(1));
        // Panels of a small matrix take more than the matrix, and the positions of rows more than the rows of a very sparse one.
        if let Some(streamed) = self.streamed().filter(|streamed| *streamed < cost.peak()) {
            // --memory is for all ranks of a node.
            let on_node = self.on_node().unwrap_or(*ranks);
            let least = (on_node as f64 * streamed / f64::from(1 << 20)).ceil();
            let _ = writeln!(
                out,
                "          with less memory, down to --memory {least}M for {} on a node, rows are read from the file in each pass",
                counted(on_node, "rank", "ranks")
            );
        }
        if job.formula {
            self.work_and_traffic(&mut out);
        } else {
            self.what_is_not_predicted(&mut out);
        }
        for caveat in &cost.caveats {
            let _ = writeln!(out, "note      {caveat}");
        }
        let _ = writeln!(
            out,
            "\nbetween ranks: latency {}, bandwidth {}/s{}{}\n",
            time(rates.latency),
            size(rates.bandwidth),
            self.on_node().map_or_else(String::new, |ranks| format!(
                ", shared by the {} of a node",
                counted(ranks, "rank", "ranks")
            )),
            match self.on_node() {
                Some(_) if rates.within_node =>
                    " (measured within one node: start this on two nodes, as with srun -N 2 -n 2, or give --latency and --bandwidth)",
                _ if rates.known => "",
                None => " (assumed: start this with mpirun -n 2, or give --latency and --bandwidth)",
                Some(_) =>
                    " (assumed: start this on two nodes, as with srun -N 2 -n 2, or give --latency and --bandwidth)",
            }
        );
        if job.is_private() {
            out.push_str("Between sites each party is one rank. What follows is for one owner's cluster:\n\n");
        }
        self.table(&mut out);
        self.recommendation(&mut out);
        let _ = writeln!(
            out,
            "\nlines for a batch script{} (memory: 10 % more than predicted, at least {LEAST_MEGABYTES} MiB{}):\n{}",
            if self.recommended.basis == Basis::Parties { ", where one batch job runs all parties" } else { "" },
            match self.seconds() {
                Some(_) => {
                    let more = match request.method.description().stop.tol {
                        Some(_) if request.max_iters < request.method.description().stop.max_iters => {
                            format!("; a run may need {}", request.method.description().stop.max_iters)
                        }
                        _ => String::new(),
                    };
                    format!("; time: twice that of {} iterations, plus ten minutes{more}", request.max_iters)
                }
                None => "; add --time, which is not predicted".to_string(),
            },
            self.sbatch()
        );
        out
    }

    fn work_and_traffic(&self, out: &mut String) {
        let flops = self.flops();
        let total: f64 = flops.values().map(|f| f[0]).sum();
        let list: Vec<String> =
            flops.iter().map(|(name, f)| format!("{} {}", in_words(name), short(f[0] / 1e9))).collect();
        let _ = writeln!(out, "work      {} Gflop on a rank: {}", short(total / 1e9), list.join(", "));
        let [mpi, messages, party] = self.cost.traffic();
        let messages = thousands(messages as usize);
        let _ = writeln!(out, "traffic   {} in {messages} calls of MPI, all ranks together", bytes(mpi));
        if mpi > 0 {
            let _ = writeln!(
                out,
                "          about {} of it between different ranks, all together",
                size(self.cost.between_ranks())
            );
        }
        if self.job.is_private() {
            let _ = writeln!(out, "          {} handed over and got back by all parties", bytes(party));
        }
        for message in self.cost.messages.iter().filter(|m| matches!(m.pattern, Pattern::Rounds(_))) {
            let [latency, share] = self.rates.of_ranks(self.ranks).of_message(message);
            let _ = writeln!(
                out,
                "          in {} rounds, one after another: {} of waiting, {} for the bytes",
                message.times,
                time(latency),
                time(share)
            );
        }
        if let Some([words, least]) = self.words() {
            let _ = writeln!(
                out,
                "          {} words to a rank for the two products, {:.2} times the lower bound of any algorithm",
                thousands(words as usize),
                words / least
            );
        }
        match self.parts() {
            Some(parts) => {
                let list: Vec<String> =
                    parts.iter().map(|(name, s)| format!("{} {}", in_words(name), time(*s))).collect();
                let _ = writeln!(out, "time      {}: {}", time(parts.values().sum()), list.join(", "));
            }
            None if self.request.rates.is_some() => {
                let name = self.job.method.description().name;
                let _ = writeln!(
                    out,
                    "time      not predicted: --rates has not all of its loops; make the file with --algo {name}"
                );
            }
            None => out.push_str("time      not predicted: some of its loops are not measured\n"),
        }
    }

    /// Writes the message table, and how to measure the time.
    fn what_is_not_predicted(&self, out: &mut String) {
        let description = self.job.method.description();
        out.push_str("messages  as its table says:\n");
        for message in description.messages {
            let _ = writeln!(out, "            {}: {}", message.kind, message.in_words(false).join("; "));
        }
        let parties = self.job.workload.parties.map_or_else(String::new, |parties| format!(" --parties {parties}"));
        let _ = writeln!(
            out,
            "time      not predicted: there is no formula for {0}; a short run tells it:\n            mpirun -n {1} fednmf \
             --algo {0}{parties} -k {2} --max-iters 2 --input FILE\n          there is a formula for {3}",
            description.name,
            self.ranks,
            self.job.workload.k,
            with_formula().join(", ")
        );
    }

    /// Time and traffic over ranks, where time is predicted.
    fn table(&self, out: &mut String) {
        if self.seconds().is_none() {
            return;
        }
        out.push_str("  ranks       time  speedup  efficiency  data on a rank   between ranks\n");
        let shown = self.scan.iter().filter(|p| p.ranks <= (4 * self.recommended.used.ranks).max(8));
        for (point, seconds, efficiency) in shown.filter_map(|p| Some((p, p.seconds?, self.efficiency(p)?))) {
            let _ = writeln!(
                out,
                "{:>7}  {:>9}  {:>7.1}  {:>8.0} %  {:>14}  {:>14}",
                point.ranks,
                time(seconds),
                efficiency * point.ranks as f64,
                100.0 * efficiency,
                size(point.cost.data),
                size(point.cost.between_ranks())
            );
        }
        out.push('\n');
    }

    fn recommendation(&self, out: &mut String) {
        let Recommendation { used, basis, beyond, more_by_time } = self.recommended;
        let percent = 100.0 * MIN_EFFICIENCY;
        let why = match basis {
            Basis::TimeAndMemory => {
                format!("the largest number with an efficiency of at least {percent:.0} % in time and in memory")
            }
            Basis::Memory => {
                format!(
                    "the largest number with an efficiency of at least {percent:.0} % in memory; no time is predicted"
                )
            }
            Basis::Time => {
                format!("the largest number with an efficiency of at least {percent:.0} %; they need little memory")
            }
            Basis::Parties => {
                out.push_str("Each party is one rank, or one site of 'fednmf join'; more ranks have nothing to do.\n");
                return;
            }
        };
        let ranks = counted(used.ranks, "rank", "ranks");
        let _ = writeln!(out, "recommended: {ranks}, {why}\n{}", describe_utilization(used));
        match beyond {
            Some(beyond) => {
                let _ = writeln!(out, "{}", describe_utilization(&beyond.used));
                if beyond.limit() == Limit::Memory {
                    let _ = writeln!(out, "  the limit is {}", Limit::Memory.words());
                } else {
                    for (limit, share) in beyond.lost.iter().filter(|(_, share)| *share >= 0.005) {
                        let _ = writeln!(out, "  {:.0} % of the loss is due to {}", 100.0 * share, limit.words());
                    }
                }
            }
            None => {
                let _ = writeln!(out, "  {}", self.end());
            }
        }
        if *more_by_time {
            out.push_str(
                "More ranks would still save time, but most of their memory would hold copies of the program and of factors.\n",
            );
        }
        out.push_str("(Efficiency: the time, or memory, of one rank divided by that of all ranks together.)\n");
    }

    /// Why no more ranks are predicted.
    fn end(&self) -> String {
        match self.scan.last() {
            Some(last) if last.ranks == MOST_RANKS => format!("nothing is predicted for more than {MOST_RANKS} ranks"),
            _ if self.job.is_private() => "more ranks than parties have nothing to do".to_string(),
            _ => "more ranks than rows or columns have nothing to do".to_string(),
        }
    }

    /// The ranks of a node, if there are several nodes.
    fn on_node(&self) -> Option<usize> {
        self.rates.ranks_per_node.filter(|on_node| *on_node < self.ranks)
    }

    /// The head of a batch script: memory with a margin of 10 %, but at least what MPI and the reading of text take; twice the time plus
    /// ten minutes.
    pub fn sbatch(&self) -> String {
        let threads = self.request.threads.max(1);
        let megabytes = (1.1 * self.peak() / threads as f64 / f64::from(1 << 20)).ceil().max(LEAST_MEGABYTES);
        let tasks = match self.on_node() {
            Some(on_node) => {
                format!("#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={on_node}\n", self.ranks.div_ceil(on_node))
            }
            None => format!("#SBATCH --nodes=1\n#SBATCH --ntasks={}\n", self.ranks),
        };
        let mut out = format!("{tasks}#SBATCH --cpus-per-task={threads}\n#SBATCH --mem-per-cpu={megabytes}M\n");
        if let Some(seconds) = self.seconds() {
            let minutes = (2.0 * seconds * self.request.max_iters as f64 / 60.0).ceil() as u64 + 10;
            let _ = writeln!(out, "#SBATCH --time={:02}:{:02}:00", minutes / 60, minutes % 60);
        }
        out
    }
}

/// The least memory of a core in a batch script.
const LEAST_MEGABYTES: f64 = 256.0;

/// `  64 ranks: efficiency 99 % in time, 27 % in memory (3.7 times that of one rank)`.
fn describe_utilization(used: &Utilization) -> String {
    let time = used.time.map_or_else(String::new, |time| format!("{:.0} % in time, ", 100.0 * time));
    let ranks = counted(used.ranks, "rank", "ranks");
    let (share, times) = (100.0 * used.memory, 1.0 / used.memory);
    format!("  {ranks}: efficiency {time}{share:.0} % in memory ({times:.1} times that of one rank)")
}

fn size(x: f64) -> String {
    bytes(x as u64)
}

/// A time in the unit that suits it: `7.44 s`, `102 ms`.
fn time(seconds: f64) -> String {
    let (x, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "us"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s if s < 7200.0 => (s, "s"),
        s => (s / 3600.0, "h"),
    };
    let digits = if x >= 99.95 {
        0
    } else if x >= 9.995 {
        1
    } else {
        2
    };
    format!("{x:.digits$} {unit}")
}

/// The name of a kernel for people.
fn in_words(kernel: &str) -> &str {
    match kernel {
        "mul" => "M V",
        "tmul" => "M'U",
        "gram" => "Gram matrices",
        "sweep" => "sweeps",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (seconds, text) in [
            (2e-6, "2.00 us"),
            (3.24e-3, "3.24 ms"),
            (0.1019, "102 ms"),
            (7.4415, "7.44 s"),
            (59.51, "59.5 s"),
            (7200.0, "2.00 h"),
        ] {
            assert_eq!(super::time(seconds), text);
        }
    }
}
