//! The predictions of `fednmf estimate` equal the counts of the ledger.

use std::collections::BTreeMap;

use serde_json::Value;
use tempfile::tempdir;

use fednmf_methods::federated::mpc;

use crate::common::{fednmf, number, write_circulant};

/// A file of rates, so that these tests measure none.
fn rates(dir: &std::path::Path) -> String {
    let path = dir.join("rates.json");
    let all = r#"{"mul": 4e10, "tmul": 4e10, "sampled for U": 2e10, "sampled for V": 2e10, "gram": 3e10, "sweep": 2e10,
                  "multiply": 1e10, "pivot": 1e9, "ring": 4e9, "shares": 1e8, "copy": 1e10, "latency": 1e-6, "bandwidth": 1e10}"#;
    std::fs::write(&path, all).unwrap();
    path.display().to_string()
}

fn estimate(line: &str, dir: &std::path::Path) -> Value {
    estimate_on(0, line, dir)
}

/// A launcher's connections take memory of each rank: the memory of a run is compared with an estimate on as many
/// ranks.
fn estimate_on(ranks: usize, line: &str, dir: &std::path::Path) -> Value {
    let output = fednmf(ranks, &format!("estimate {line} --rates {} --json", rates(dir))).run();
    assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

fn sum(rows: &Value, purpose: &str, column: &str) -> u64 {
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|r| r["purpose"] == purpose).map(|r| r[column].as_u64().unwrap()).sum()
}

/// Flops of all ranks in the phases of a run.
fn counted(run: &Value) -> f64 {
    run["phases"].as_object().unwrap().values().map(|p| p["flops"].as_u64().unwrap()).sum::<u64>() as f64
}

const SHAPE: (usize, usize, usize) = (96, 64, 5);

/// Compares prediction and run: bytes and messages of every message kind, and flops if `flops`.
fn compare(algo: &str, options: &str, sparse: bool, ranks: usize, flops: bool) {
    let dir = tempdir().unwrap();
    let (m, n, k) = SHAPE;
    let input = if sparse {
        format!("synthetic:sparse,m={m},n={n},density=0.2,seed=3")
    } else {
        format!("synthetic:planted,m={m},n={n},k=4")
    };
    let input = if algo == "symnmf" { format!("synthetic:graph,n={n},k=4,density=0.5") } else { input };
    let iterations = 3;
    let line = format!("--algo {algo} -k {k} --input {input} {options}");
    let run = fednmf(ranks, &format!("{line} --max-iters {iterations} --eval-every 0")).limit(300).ok();
    let predicted = estimate(&format!("{line} --ranks {ranks}"), dir.path());
    let what = format!("{line} on {ranks} ranks");
    let purposes = predicted["traffic"]["by_purpose"].as_object().unwrap();
    for (purpose, row) in purposes {
        for column in ["mpi_bytes", "messages", "party_bytes"] {
            // The number of iterations of the barycenter depends on the data.
            let turns = purpose == "inside the server" || (algo == "fnmf" && purpose == "largest term of an exact sum");
            // U is computed for all rows after the last batch.
            let at_end = algo == "online" && ["gather V", "Gram of V"].contains(&purpose.as_str());
            let times = iterations + u64::from(at_end);
            if !turns {
                let expected = times * row[column].as_u64().unwrap();
                assert_eq!(sum(&run["wire"], purpose, column), expected, "{what}: {purpose}, {column}");
            }
        }
    }
    for row in run["wire"].as_array().unwrap() {
        let (purpose, payload) = (row["purpose"].as_str().unwrap(), &row["payload"]);
        let common = ["Control", "Metadata", "Data"].iter().any(|common| payload == common);
        let common = common || ["statistics of the matrix", "test of symmetry"].contains(&purpose);
        let silent = row["mpi_bytes"] == 0;
        assert!(common || silent || purposes.contains_key(purpose), "{what}: {purpose} was not predicted");
    }
    if flops {
        let expected = iterations as f64 * predicted["flops"]["total"].as_f64().unwrap();
        let found = counted(&run);
        assert!((found - expected).abs() <= 1e-9 * expected, "{what}: {found} flops, not {expected}");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn exact_methods_cost_what_was_predicted() {
    for ranks in 1..=8 {
        compare("hals", "", false, ranks, true);
        compare("mu", "", true, ranks, true);
    }
    for grid in ["1x4", "4x1", "2x2"] {
        compare("hals", &format!("--grid {grid}"), true, 4, true);
    }
    compare("hals", "--precision f32", false, 3, true);
    compare("hals", "--inner-sweeps auto", false, 3, true);
    compare("hals", "--inner-sweeps 3", true, 2, true);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn divergences_cost_what_was_predicted() {
    for (algo, options) in
        [("kl-mu", "--extrapolation none"), ("kl-cd", ""), ("kl-cd", "--inner-sweeps 3"), ("beta-mu", "--beta 1.5")]
    {
        for sparse in [false, true] {
            for ranks in 1..=3 {
                compare(algo, &format!("--init random {options}"), sparse, ranks, true);
            }
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn online_methods_cost_what_was_predicted() {
    // The flops of pivoting depend on the data.
    for ranks in 1..=4 {
        compare("online", "--batch-size 40", false, ranks, false);
        compare("online", "--batch-size 40 --precision f32", true, ranks, false);
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn sketched_methods_cost_what_was_predicted() {
    for ranks in 1..=8 {
        compare("dsanls", "", false, ranks, true);
    }
    compare("dsanls", "--sketch-size 20,30 --precision f32", false, 3, true);
    compare("dsanls", "--sketch gaussian", true, 2, true);
    compare("dsanls", "--sketch count", false, 3, true);
    // The flops depend on which rows are drawn.
    for ranks in [1, 3] {
        compare("dsanls", "", true, ranks, false);
        compare("dsanls", "--sketch subsample", true, ranks, false);
        compare("dsanls", "--sketch weighted --precision f32", false, ranks, false);
    }
    for ranks in 1..=4 {
        compare("vr-dsanls", "--epoch 1 --extrapolation none", false, ranks, true);
    }
    compare("vr-dsanls", "--epoch 1 --extrapolation none --inner-sweeps 2", true, 3, true);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn symmetric_methods_cost_what_was_predicted() {
    // The flops of pivoting depend on the data, and those of samples on which rows are drawn.
    for ranks in [1, 3, 4] {
        compare("symnmf", "--solver hals", true, ranks, false);
        compare("symnmf", "--sketch leverage --sketch-size 20,30", true, ranks, false);
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn federated_methods_cost_what_was_predicted() {
    for (algo, options, flops) in [
        ("secure-hals", "--local-iters 2", true),
        ("secure-hals", "--extrapolation restart", true),
        ("syn-sd", "--local-iters 3", true),
        ("syn-ssd-u", "--local-iters 3", true),
        ("syn-ssd-v", "--local-iters 3 --sketch-size 7,20", true),
        ("syn-ssd-uv", "--local-iters 3", true),
        ("fnmf", "--local-iters 3", false),
        ("inmf", "--update hals --local-iters 2", false),
    ] {
        for (ranks, parties) in [(1, 4), (2, 4), (3, 4), (4, 8)] {
            // Ranks with data of parties share no operations.
            compare(algo, &format!("--parties {parties} {options}"), false, ranks, flops && ranks == 1);
        }
        compare(algo, options, true, 2, false);
        compare(algo, &format!("--parties 2 {options}"), true, 1, flops && !algo.contains("ssd"));
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn masked_sums_send_what_was_predicted() {
    for (algo, options, survives) in [
        ("secure-hals", "", true),
        ("secure-hals", "--dp gaussian --dp-noise 1 --clip 10", false),
        ("syn-sd", "", true),
        ("syn-ssd-uv", "--local-iters 2", true),
        ("fnmf", "", true),
        ("inmf", "", true),
    ] {
        for (ranks, parties) in [(1, 4), (3, 4), (4, 8)] {
            let line = format!(
                "--parties {parties} {options} --secure-sum --accept-risk few-rows,membership,few-values,rare-entries"
            );
            compare(algo, &line, false, ranks, false);
            if survives && ranks < 4 {
                compare(algo, &format!("{line} --secure-threshold 3"), false, ranks, false);
            }
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn boolean_rounds_send_what_was_predicted() {
    let dir = tempdir().unwrap();
    for (ranks, masked) in
        [(1, ""), (3, ""), (3, "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries")]
    {
        let line = format!("--algo felb -k 4 --parties 5 {masked}");
        let run = format!("{line} --input synthetic:tiles,m=60,n=40,k=4 --max-iters 3 --eval-every 0");
        let run = fednmf(ranks, &run).ok();
        let predicted = estimate(&format!("{line} -m 60 -n 40 --density 0.3 --ranks {ranks}"), dir.path());
        let purposes: &[&str] =
            if masked.is_empty() { &["sum V_i", "largest term of an exact sum"] } else { &["sum V_i"] };
        for purpose in purposes {
            for column in ["mpi_bytes", "messages", "party_bytes"] {
                let expected = 3 * predicted["traffic"]["by_purpose"][purpose][column].as_u64().unwrap();
                assert_eq!(sum(&run["wire"], purpose, column), expected, "{ranks}: {purpose}, {column}");
            }
        }
        assert!(predicted["seconds"].is_null(), "its loops are not measured");
        assert_eq!(predicted["recommended_ranks"], 5, "one for each party");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn methods_for_the_divergence_send_what_was_predicted() {
    for (ranks, sparse) in [(1, false), (2, true), (3, false), (4, true)] {
        compare("kl-mu", "--init random", sparse, ranks, false);
        compare("kl-cd", "--init random", sparse, ranks, false);
    }
}

/// Rounds, bytes and messages of methods on shares, against the ledger and the formula; keys and the first iteration of private
/// columns are in no difference of two longer runs.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn methods_on_shares_send_what_was_predicted() {
    let dir = tempdir().unwrap();
    let (m, n, k) = SHAPE;
    for (method, ranks, parties) in [
        ("mpc-columns", 1, 3),
        ("mpc-columns", 2, 3),
        ("mpc-columns", 3, 3),
        ("mpc-rows", 3, 2),
        ("mpc-rows", 4, 3),
        ("mpc-rows", 4, 7),
    ] {
        let line = format!("--algo {method} -k {k} --input synthetic:planted,m={m},n={n},k=4 --parties {parties}");
        let run = |iterations: usize| {
            fednmf(ranks, &format!("{line} --max-iters {iterations} --eval-every 0")).ok()["wire"].clone()
        };
        let (shorter, longer) = (run(2), run(5));
        let predicted = estimate(&format!("{line} --ranks {ranks}"), dir.path());
        let predicted = &predicted["traffic"]["by_purpose"]["secret shares"];
        for column in ["mpi_bytes", "messages", "party_bytes"] {
            let found = sum(&longer, "secret shares", column) - sum(&shorter, "secret shares", column);
            assert_eq!(found, 3 * predicted[column].as_u64().unwrap(), "{line} on {ranks} ranks: {column}");
        }
        // Sent and received, in words of 8 bytes.
        let formula = 2 * 8 * (mpc::words(m, k) + mpc::words(n, k));
        assert_eq!(predicted["party_bytes"], formula, "{line}");
        assert_eq!(predicted["rounds"], 2 * mpc::rounds(k), "{line}");
    }
}

#[test]
fn the_time_of_methods_on_shares_follows_from_rounds_and_bytes() {
    let dir = tempdir().unwrap();
    let (m, n, k) = (2000, 300, 10);
    let messages = |latency: f64, bandwidth: f64| {
        let line = format!("--algo mpc-columns -m {m} -n {n} -k {k} --parties 3 --ranks 3");
        let told = estimate(&format!("{line} --latency {latency} --bandwidth {bandwidth}"), dir.path());
        told["parts"]["messages"].as_f64().unwrap()
    };
    let fast = messages(1e-3, 1e15);
    assert!((fast - 0.26).abs() < 1e-6, "{fast}");
    let slow = messages(30e-3, 1e15);
    assert!((slow - 7.8).abs() < 1e-6, "{slow}");
    // The busiest party sends or receives at least a third of all, and not all of it.
    let bytes = 8.0 * (mpc::words(m, k) + mpc::words(n, k)) as f64;
    let share = messages(1e-9, 1e6) * 1e6 / bytes;
    assert!((1.0 / 3.0..0.6).contains(&share), "{share}");
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn sixty_four_ranks_send_what_was_predicted() {
    compare("hals", "", false, 64, true);
    compare("dsanls", "", false, 64, true);
    compare("hals", "--grid 16x4", true, 64, true);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_predicted_memory_is_a_close_upper_bound() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("m.npy");
    assert_eq!(fednmf(0, "generate planted,m=6000,n=2000,k=5 --output").arg(&file).run().code, Some(0));
    for algo in ["hals", "dsanls"] {
        let run = fednmf(2, &format!("--algo {algo} -k 10 --max-iters 3 --input")).arg(&file).own_process().ok();
        let predicted = estimate_on(2, &format!("--algo {algo} -m 6000 -n 2000 -k 10 --ranks 2"), dir.path());
        let (peak, most) = (run["peak_rss_bytes"].as_f64(), predicted["memory"]["peak_bytes"].as_f64());
        let data = predicted["memory"]["data_bytes"].as_f64().unwrap();
        assert!(peak <= most.map(|m| 1.1 * m) && peak.unwrap() > data, "{algo}: {peak:?} of {most:?}, data {data}");
    }
}

/// What a run of a file holds is predicted within a tenth. Several ranks read a dense file through a buffer of some megabytes.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_memory_of_a_run_is_predicted_within_a_tenth() {
    let dir = tempdir().unwrap();
    let file = |name: &str, words: &str| {
        let path = dir.path().join(name);
        assert_eq!(fednmf(0, &format!("generate {words} --output")).arg(&path).run().code, Some(0));
        path
    };
    let dense = file("m.npy", "planted,m=30000,n=800,k=5");
    let sparse = file("m.npz", "sparse,m=200000,n=1000,density=0.06,values=counts");
    let tall = file("t.npz", "sparse,m=900000,n=200,density=0.03,values=counts");
    for (path, words) in [
        (&dense, "--algo hals --init random -k 10"),
        (&dense, "--algo bpp --init random -k 10"),
        (&dense, "--algo mu --init random -k 24"),
        (&sparse, "--algo hals --init random -k 20 --grid"),
        (&sparse, "--algo hals --init random -k 20 --extrapolation restart --grid"),
        (&tall, "--algo hals --init random -k 4 --grid"),
        // Two blocks, of which the second is transposed from the first, or from triples.
        (&sparse, "--algo kl-mu --init random -k 20"),
        (&sparse, "--algo dsanls --init random -k 20"),
        (&dense, "--algo kl-mu --init random -k 10"),
    ] {
        for ranks in [1, 2, 4].into_iter().filter(|ranks| *ranks == 1 || path != &dense) {
            let words = match words.strip_suffix("--grid") {
                Some(words) => format!("{words} --grid {ranks}x1"),
                None => words.to_string(),
            };
            let run = fednmf(ranks, &format!("{words} --max-iters 2 --input")).arg(path).own_process().ok();
            let line = format!("{words} --ranks {ranks} --input {}", path.display());
            let predicted = estimate_on(ranks, &line, dir.path());
            let (peak, most) = (number(&run, "peak_rss_bytes"), number(&predicted["memory"], "peak_bytes"));
            // The program is rounded up.
            let least = 0.9 * most - f64::from(24 << 20);
            assert!((least..1.1 * most).contains(&peak), "{words} on {ranks}: {peak} of {most}, {predicted}");
        }
    }
}

/// A start from singular vectors holds more columns than the factors, and the data is small.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_memory_of_the_start_is_predicted() {
    let dir = tempdir().unwrap();
    for (words, ranks, columns) in [
        ("--algo hals --init nndsvd", 1, 400),
        ("--algo auto --init compressed", 2, 400),
        ("--algo hals --init sampled", 2, 400),
        ("--algo kl-mu --init nndsvda", 2, 400),
        // The samples of sparse data are sparse.
        ("--algo hals --init sampled", 1, 4000),
        ("--algo kl-mu", 1, 4000),
        ("--algo kl-cd", 2, 4000),
    ] {
        let input = format!("--input synthetic:sparse,m=300000,n={columns},density=0.0005");
        let run = fednmf(ranks, &format!("{words} -k 20 --max-iters 1 {input}")).own_process().ok();
        let line = format!("{words} -m 300000 -n {columns} --nnz {} -k 20 --ranks {ranks}", 150 * columns);
        let predicted = estimate_on(ranks, &line, dir.path());
        let bytes = |name: &str| predicted["memory"][name].as_f64().unwrap();
        let peak = run["peak_rss_bytes"].as_f64().unwrap();
        assert!(
            bytes("start_bytes") > bytes("factor_bytes") || !words.contains("nndsvd") && !words.contains("compressed"),
            "{words}: {predicted}"
        );
        assert!(0.6 * bytes("peak_bytes") < peak && peak < 1.1 * bytes("peak_bytes"), "{words}: {peak}, {predicted}");
    }
    let random = estimate("--algo hals -m 300000 -n 400 --nnz 60000 -k 20 --ranks 1", dir.path());
    assert_eq!(random["memory"]["start_bytes"], 0.0);
    // A run that has no room for its start is refused before it loads.
    let line = "--algo hals -k 20 --init nndsvd --max-iters 1 --memory 200M --input";
    fednmf(0, &format!("{line} synthetic:planted,m=300000,n=40,k=2")).refused(&["memory"]);
    fednmf(0, "--algo hals -k 20 --max-iters 1 --memory 200M --input synthetic:planted,m=300000,n=40,k=2").ok();
    // Extrapolation has a third copy of each factor: 8 (m n + 3 k (m + n + k)) bytes are 228.9 MiB.
    let line = "--algo hals -k 20 --extrapolation restart --max-iters 1 --input synthetic:planted,m=300000,n=40,k=2";
    fednmf(0, &format!("{line} --memory 200M")).refused(&["228.9 MiB", "--memory allows 200.0 MiB"]);
    fednmf(0, &format!("{line} --memory 230M")).ok();
}

/// A rank that reads rows from the file needs as much as is predicted, and a byte less is refused.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_memory_of_a_streamed_run_is_predicted() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("m.npy");
    assert_eq!(fednmf(0, "generate planted,m=1200,n=300,k=5 --output").arg(&file).run().code, Some(0));
    for (words, ranks) in
        [("--algo hals", 1), ("--algo bpp --extrapolation restart", 3), ("--algo mu --init nndsvd", 2)]
    {
        let predicted = estimate(&format!("{words} -m 1200 -n 300 -k 6 --ranks {ranks}"), dir.path());
        let bytes = predicted["memory"]["streamed_bytes"].as_f64().unwrap() as usize * ranks;
        let run =
            |bytes: usize| fednmf(ranks, &format!("{words} -k 6 --max-iters 2 --memory {bytes} --input")).arg(&file);
        assert!(run(bytes).ok()["streamed"]["passes"].is_u64(), "{words}");
        run(bytes - ranks).refused(&["even if the rows are read from the file"]);
    }
    let dsanls = estimate("--algo dsanls -m 1200 -n 300 -k 6 --ranks 1", dir.path());
    assert!(dsanls["memory"]["streamed_bytes"].is_null(), "{dsanls}");
}

#[test]
fn the_recommended_number_of_ranks_follows_the_predicted_time() {
    let dir = tempdir().unwrap();
    let line = "--algo hals -m 2000000 -n 20000 -k 50";
    let fast = estimate(line, dir.path());
    let recommended = fast["recommended_ranks"].as_u64().unwrap();
    assert_eq!(fast["ranks"].as_u64(), Some(recommended), "the default is the recommended number");
    let slow = estimate(&format!("{line} --latency 1e-2 --bandwidth 1e8"), dir.path());
    let fewer = slow["recommended_ranks"].as_u64().unwrap();
    assert!(fewer < recommended && recommended > 8, "{fewer} {recommended}");
    let scan = fast["scan"].as_array().unwrap();
    let seconds = |at: usize| scan[at]["seconds"].as_f64().unwrap();
    assert!(seconds(1) < seconds(0) / 1.9, "two ranks halve the work");

    // By hand: 4mnk flops for the products, plus those of the Gram matrices and the sweeps, at the rates of the file.
    let (m, n, k) = (2e6, 2e4, 50.0);
    let expected = 4.0 * m * n * k / 4e10 + 2.0 * (m + n) * k * k * (1.0 / 3e10 + 1.0 / 2e10);
    assert!((seconds(0) - expected).abs() < 1e-9 * expected, "{} {expected}", seconds(0));
    assert!(fast["sbatch"].as_str().unwrap().contains(&format!("--ntasks={recommended}")), "{}", fast["sbatch"]);

    // The most that use at least three quarters of their time.
    for point in slow["scan"].as_array().unwrap() {
        let (ranks, efficiency) = (point["ranks"].as_u64().unwrap(), point["efficiency"].as_f64().unwrap());
        assert_eq!(efficiency >= 0.75, ranks <= fewer, "{ranks}: {efficiency}");
    }
    let limits = &slow["limits"];
    assert_eq!((limits["ranks"].as_u64(), limits["limit"].as_str()), (Some(2 * fewer), Some("latency")), "{limits}");
    assert!(limits["time_efficiency"].as_f64() < Some(0.75), "{limits}");
    let lost: f64 = limits["time_lost_to"].as_object().unwrap().values().map(|x| x.as_f64().unwrap()).sum();
    assert!((lost - 1.0).abs() < 1e-9, "{limits}");
}

#[test]
fn a_small_matrix_does_not_get_many_ranks() {
    let dir = tempdir().unwrap();
    // 2.2 GiB: time would allow thousands of ranks, each of which would mostly hold a copy of the program.
    let found = estimate("--algo hals -m 1e6 -n 20_000 --nnz 2e8 -k 50 --latency 1e-7", dir.path());
    assert_eq!(
        (found["m"].as_u64(), found["n"].as_u64(), found["stored"].as_f64()),
        (Some(1_000_000), Some(20_000), Some(2e8))
    );
    let ranks = found["recommended_ranks"].as_u64().unwrap();
    assert!((4..=512).contains(&ranks), "{ranks}");
    assert_eq!(found["limits"]["limit"], "memory", "{}", found["limits"]);
    assert!(found["limits"]["memory_efficiency"].as_f64() < Some(0.75), "{}", found["limits"]);
    let text = fednmf(0, &format!("estimate -m 1e6 -n 2e4 --nnz 2e8 -k 50 --rates {}", rates(dir.path()))).run().stdout;
    for words in ["recommended: ", "efficiency", "the limit is memory", "More ranks would still save time"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    // Neither are thousands of ranks named, nor recommended to thousands of parties.
    let thousands = |text: &str| {
        text.lines()
            .any(|line| line.contains("ranks") && line.split(' ').any(|w| w.parse().is_ok_and(|n: u64| n > 512)))
    };
    assert!(!thousands(&text), "{text}");
    for algo in ["secure-hals", "asso", "fnmf"] {
        let line = format!("--algo {algo} -m 30000 -n 10000 -k 10 --parties 10000 --latency 1e-7");
        let found = estimate(&line, dir.path());
        let ranks = found["recommended_ranks"].as_u64().unwrap();
        assert!((2..=512).contains(&ranks), "{algo}: {ranks}");
        // For secure-hals the messages limit even earlier.
        assert!(algo == "secure-hals" || found["limits"]["limit"] == "memory", "{algo}: {}", found["limits"]);
    }
}

#[test]
fn parties_are_not_split_over_ranks() {
    let dir = tempdir().unwrap();
    let found = estimate("--algo secure-hals -m 1e5 -n 1e4 --parties 10", dir.path());
    assert_eq!((found["parties"].as_u64(), found["recommended_ranks"].as_u64()), (Some(10), Some(10)));
    let ranks: Vec<u64> = found["scan"].as_array().unwrap().iter().map(|p| p["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [1, 2, 4, 8, 10]);
    assert!(found["limits"].is_null(), "more ranks than parties have nothing to do");
    // Without --parties one on each of the ranks; the scan keeps their number.
    let found = estimate("--algo syn-sd -m 1e5 -n 1e4 --ranks 3", dir.path());
    assert_eq!((found["parties"].as_u64(), found["scan"].as_array().map(Vec::len)), (Some(3), Some(3)));
}

#[test]
fn without_a_formula_memory_and_messages_are_told() {
    let dir = tempdir().unwrap();
    for (algo, purpose) in [("ppdnmf", "public keys to neighbours"), ("asyn-sd", ""), ("asso", ""), ("fedavg", "")] {
        let found = estimate(&format!("--algo {algo} -m 1e3 -n 800 -k 5 --parties 4"), dir.path());
        assert_eq!(
            (&found["formula"], &found["flops"], &found["seconds"]),
            (&false.into(), &Value::Null, &Value::Null)
        );
        assert_eq!(found["recommended_ranks"], 4, "{algo}");
        assert_eq!(found["memory"]["data_bytes"].as_f64(), Some(1e3 * 200.0 * 8.0), "{algo}: a quarter of the matrix");
        let table = found["message_table"].as_array().unwrap();
        assert!(table.iter().any(|m| m["purpose"].as_str().unwrap().contains(purpose)), "{algo}: {table:?}");
        let text = fednmf(0, &format!("estimate --algo {algo} -m 1000 -n 800 -k 5 --parties 4")).run();
        assert_eq!(text.code, Some(0), "{}", text.stderr);
        for words in
            ["no formula", "there is a formula for dsanls, vr-dsanls, hals", "--max-iters 2", "#SBATCH --ntasks=4"]
        {
            assert!(text.stdout.contains(words), "{words} in\n{}", text.stdout);
        }
        assert!(!text.stdout.contains("#SBATCH --time"), "{}", text.stdout);
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_report_lists_measured_and_assumed_rates() {
    let output = fednmf(2, "estimate --algo dsanls -m 600 -n 400 -k 8").run();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    for word in ["memory", "traffic", "recommended: ", "efficiency", "#SBATCH --ntasks", "latency"] {
        assert!(output.stdout.contains(word), "{word} in\n{}", output.stdout);
    }
    assert!(!output.stdout.contains("assumed"), "two ranks measure the network\n{}", output.stdout);
    // Those of one node say nothing of a network between nodes.
    assert!(!output.stdout.contains("within one node"), "{}", output.stdout);
    let nodes = "estimate --algo hals -k 4 --input synthetic:planted,m=400,n=300,k=3 --ranks 4 --ranks-per-node 2";
    assert!(fednmf(2, nodes).run().stdout.contains("measured within one node: start this on two nodes"));
    let given = fednmf(2, &format!("{nodes} --latency 2e-6 --bandwidth 10G")).run().stdout;
    assert!(!given.contains("within one node") && !given.contains("assumed"), "{given}");
    assert_eq!(output.stdout.matches("#SBATCH --ntasks").count(), 1, "one rank prints");
    let alone = fednmf(0, "estimate --algo bpp -m 300 -n 200 --density 0.1 --ranks 4").run();
    assert!(alone.stdout.contains("assumed"), "{}", alone.stdout);
}

#[test]
fn the_report_tells_bytes_between_ranks_the_memory_of_a_node_and_each_caveat() {
    let dir = tempdir().unwrap();
    let report = |line: &str| {
        let output =
            fednmf(0, &format!("estimate --algo hals -m 1e6 -n 20000 -k 50 {line} --rates {}", rates(dir.path())))
                .run();
        assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
        output.stdout
    };
    // 2k ((pr - 1) n + (pc - 1) m) words, and the Gram matrices: the grid by size sends less than another.
    for (grid, between) in [("", "1.7 GiB"), ("--grid 128x1", "1.9 GiB")] {
        let text = report(&format!("--ranks 128 --ranks-per-node 64 {grid}"));
        assert!(text.contains(&format!("about {between} of it between different ranks")), "{text}");
        assert!(text.contains(" for 64 ranks on a node, rows are read from the file"), "{text}");
    }
    assert!(!report("--ranks 1").contains("between different ranks"));
    // In f64 and f32: half as much again, and nothing is streamed.
    let data = |precision: &str| {
        let text = report(&format!("--ranks 4 --json --precision {precision}"));
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        (number(&told["memory"], "data_bytes"), told["memory"]["streamed_bytes"].is_null())
    };
    assert_eq!((data("f64"), data("mixed")), ((4e10, false), (6e10, true)));
    let sketched =
        fednmf(0, "estimate --algo dsanls -m 1e6 -n 2e4 -k 10 --sketch-size 400,5000 --ranks 2").run().stdout;
    assert!(sketched.contains("sketches of 400 columns and 5,000 rows"), "{sketched}");
    let of_parties = fednmf(0, "estimate --algo mpc-rows -m 600 -n 40 -k 3 --parties 3 --ranks 3").run();
    let text = of_parties.stdout;
    assert!(
        text.contains("Between sites each party is one rank") && !report("--ranks 3").contains("Between sites"),
        "{text}"
    );
    let notes = report("--nnz 2e8 --extrapolation restart --ranks 4");
    assert_eq!(notes.lines().filter(|line| line.starts_with("note  ")).count(), 2, "{notes}");
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn impossible_questions_are_refused() {
    let dir = tempdir().unwrap();
    let bad = dir.path().join("bad.json");
    std::fs::write(&bad, r#"{"mul": -1}"#).unwrap();
    for (line, words) in [
        ("estimate".to_string(), &["-m", "--input"][..]),
        ("estimate -m 10 -n 0".into(), &["-n 0"]),
        ("estimate -m 10 -n 10 -k 11".into(), &["-k 11", "10 x 10"]),
        ("estimate -m 10 -n 10 --density 2".into(), &["--density 2"]),
        ("estimate -m 10 -n 10 --nnz 101".into(), &["--nnz 101"]),
        ("estimate -m 10 -n 10 --algo asso".into(), &["asso", "how many parties", "--parties", "--ranks"]),
        ("estimate -m 2.5 -n 10".into(), &["--rows 2.5", "whole number", "1e6"]),
        ("estimate -m 10 -n 1__0".into(), &["--cols 1__0", "1_000_000"]),
        ("estimate -m 10 -n 10 --nnz 1e-1".into(), &["--nnz 1e-1", "whole number"]),
        ("estimate -m -3 -n 10".into(), &["--rows -3", "whole number"]),
        ("estimate -m 10 -n 10 --algo nosuch".into(), &["nosuch"]),
        ("estimate -m 10 -n 10 --algo mu --sketch count".into(), &["--sketch", "mu"]),
        ("estimate -m 10 -n 10 --grid 2x2 --ranks 3".into(), &["--grid 2x2"]),
        ("estimate -m 10 -n 10 --latency -1".into(), &["--latency"]),
        ("estimate -m 10 -n 10 --ranks 0".into(), &["--ranks"]),
        ("estimate -m 10 -n 10 --rates /no/such".into(), &["--rates", "/no/such"]),
        (format!("estimate -m 10 -n 10 --rates {}", bad.display()), &["mul", "positive"]),
        ("estimate --input /no/such.npy".into(), &["/no/such.npy"]),
        (
            format!("estimate -m 10 -n 10 --algo hals -k 2 --trace {}", dir.path().display()),
            &["--trace", "new directory"],
        ),
        (
            format!("estimate -m 10 -n 10 --algo hals -k 2 --trace {}/x", bad.display()),
            &["--trace", "cannot be written"],
        ),
    ] {
        fednmf(1, &line).refused(words);
    }
}

/// Bytes that the trace of one rank sends in the replay: in all-reduces, and in messages to other ranks.
fn bytes_of_trace(text: &str) -> [u64; 2] {
    let mut bytes = [0; 2];
    for line in text.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[1..] {
            ["allreduce", size, _] => bytes[0] += size.parse::<u64>().unwrap(),
            ["isend", _, _, size] => bytes[1] += size.parse::<u64>().unwrap(),
            _ => {}
        }
    }
    bytes
}

/// The tests above compare the formulas with the ledger.
#[test]
fn a_trace_for_simgrid_has_the_bytes_of_the_prediction() {
    let dir = tempdir().unwrap();
    for (ranks, (rows, cols)) in [(4, (2, 2)), (6, (3, 2)), (16, (4, 4)), (5, (5, 1))] {
        let trace = dir.path().join(ranks.to_string());
        let line = format!("--algo hals -m 960 -n 960 -k 5 --ranks {ranks} --grid {rows}x{cols} --max-iters 1");
        let predicted = estimate(&format!("{line} --trace {}", trace.display()), dir.path());
        let list = std::fs::read_to_string(trace.join("ranks.txt")).unwrap();
        assert_eq!(list.lines().count(), ranks);
        let of_ranks = list.lines().map(|name| bytes_of_trace(&std::fs::read_to_string(trace.join(name)).unwrap()));
        let [reduced, sent] = of_ranks.fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
        let bytes = |kind: &str| predicted["traffic"]["by_purpose"][kind]["mpi_bytes"].as_u64().unwrap_or(0);
        // The ledger counts what goes into an all-reduce and what comes out.
        assert_eq!(2 * reduced, bytes("Gram of U") + bytes("Gram of V"), "{line}");
        // And each rank's own part of a gathered vector twice, which no message has.
        let moved = |kind, group: u64| bytes(kind) * (group - 1) / (group + 1);
        let of_v = moved("gather V", rows) + moved("sum M'U", rows);
        let of_u = moved("gather U", cols) + moved("sum M V", cols);
        assert_eq!(sent, of_u + of_v, "{line}");
    }
}

/// Messages and bytes between two ranks that a trace has, by the ends; every one is received as it is sent.
fn messages_of_trace(dir: &std::path::Path) -> BTreeMap<(u64, u64), [u64; 2]> {
    let list = std::fs::read_to_string(dir.join("ranks.txt")).unwrap();
    let [mut sent, mut received] = [BTreeMap::new(), BTreeMap::new()];
    for name in list.lines() {
        for line in std::fs::read_to_string(dir.join(name)).unwrap().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            let (of, ends) = match words[1] {
                "isend" => (&mut sent, (number(0), number(2))),
                "recv" => (&mut received, (number(2), number(0))),
                _ => continue,
            };
            let all = of.entry(ends).or_insert([0; 2]);
            *all = [all[0] + 1, all[1] + number(4)];
        }
    }
    assert_eq!(sent, received);
    sent
}

/// The ledger of a run on sixteen ranks, and the trace of what was predicted from the places of the nonzeros.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_trace_of_sparse_data_has_the_messages_of_a_run_on_sixteen_ranks() {
    let dir = tempdir().unwrap();
    let mesh = dir.path().join("m.mtx");
    write_circulant(&mesh, 2000, &[0, 1, 44]);
    let mesh = mesh.display().to_string();
    let power = "synthetic:sparse,m=400,n=300,density=0.02,law=power";
    for (at, (input, options, grid)) in [
        (mesh.as_str(), "", "16x1"),
        (mesh.as_str(), "--grid 8x2 --exchange sparse", "8x2"),
        (power, "--grid 1x16 --exchange sparse", "1x16"),
        (power, "--grid 4x4 --exchange sparse --precision f32", "4x4"),
    ]
    .into_iter()
    .enumerate()
    {
        let iterations = 3;
        let line = format!("--algo hals -k 7 --input {input} {options} --max-iters {iterations}");
        let run = fednmf(16, &format!("{line} --eval-every 0")).limit(300).ok();
        let trace = dir.path().join(format!("trace{at}"));
        let predicted = estimate(&format!("{line} --ranks 16 --trace {}", trace.display()), dir.path());
        assert_eq!((&predicted["grid"], &predicted["about"]), (&grid.into(), &Value::Null), "{line}");
        let of_kinds = |column: &str| -> u64 {
            let kinds = ["gather V", "sum M'U", "gather U", "sum M V"];
            for kind in kinds {
                let expected = iterations * predicted["traffic"]["by_purpose"][kind][column].as_u64().unwrap_or(0);
                assert_eq!(sum(&run["wire"], kind, column), expected, "{line}: {kind}, {column}");
            }
            kinds.iter().map(|kind| sum(&run["wire"], kind, column)).sum()
        };
        // The ledger counts both ends.
        let all = messages_of_trace(&trace);
        assert!(all.len() > 15, "{line}");
        assert_eq!(all.values().map(|[messages, _]| messages).sum::<u64>(), of_kinds("messages") / 2, "{line}");
        assert_eq!(all.values().map(|[_, bytes]| bytes).sum::<u64>(), of_kinds("mpi_bytes") / 2, "{line}");
    }
    // The counts are the same if two ranks have parts of the matrix.
    let line = format!("estimate --algo hals -k 7 --input {mesh} --ranks 16 --rates {} --json", rates(dir.path()));
    let both = [1, 2].map(|ranks| serde_json::from_str::<Value>(&fednmf(ranks, &line).run().stdout).unwrap());
    assert_eq!(both[0]["traffic"], both[1]["traffic"]);
    assert!(both[0]["traffic"]["mpi_bytes"].as_u64() > Some(0));
    // Without --ranks nothing is counted for the number that is recommended.
    let unknown = estimate(&format!("--algo hals -k 7 --input {mesh}"), dir.path());
    assert!(
        unknown["about"].as_str().is_some_and(|about| about.contains("--ranks")) || unknown["ranks"] == 1,
        "{unknown}"
    );
}

/// The measured blocks do not grow with the matrix of the estimate.
#[test]
fn large_shapes_are_estimated_in_little_memory() {
    for line in ["-m 1e8 -n 1e8 -k 10 --density 1e-6", "-m 2e9 -n 2e9 -k 50 --algo dsanls"] {
        let mut command = std::process::Command::new("bash");
        command.arg("-c").arg("ulimit -v 1000000; exec \"$0\" \"$@\"").arg(env!("CARGO_BIN_EXE_fednmf"));
        let done = command.arg("estimate").args(line.split_whitespace()).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// As a run does.
#[test]
fn missing_entries_are_read_where_they_are_expected() {
    let dir = tempdir().unwrap();
    let input = dir.path().join("e.csv");
    std::fs::write(&input, "5,,3\n4,5,6\n7,8,1\n").unwrap();
    let line = format!("estimate --algo hals -k 1 --rates {} --input {}", rates(dir.path()), input.display());
    fednmf(0, &line).refused(&["row 0, column 1", "--missing nan"]);
    assert_eq!(fednmf(0, &format!("{line} --missing nan")).run().code, Some(0));
}
