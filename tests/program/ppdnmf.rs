//! PPDNMF and its centralised counterpart: the paper's first experiment, the bits of encrypted and plain runs,
//! refusals.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ndarray::{Array2, s};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common::processes::{ranks_of, signal, wait_for};
use crate::common::{distance, events, factor, fednmf, finish, matrix};

/// Columns of the ten agents in the reference runs.
const COLUMNS: [usize; 10] = [4, 8, 12, 16, 20, 20, 24, 28, 32, 36];

fn number(summary: &Value, name: &str) -> f64 {
    summary[name].as_f64().unwrap_or_else(|| panic!("no {name} in {summary}"))
}

/// A plain MatrixMarket array file.
fn write(path: &Path, m: &Array2<f64>) {
    let mut text = format!("%%MatrixMarket matrix array real general\n{} {}\n", m.nrows(), m.ncols());
    m.t().iter().for_each(|x| text += &format!("{x:e}\n"));
    std::fs::write(path, text).unwrap();
}

/// Writes the matrix of the paper's first experiment as one file per agent; returns the `--input`.
fn experiment(dir: &TempDir, seed: usize) -> PathBuf {
    let whole = dir.path().join(format!("{seed}.mtx"));
    let spec = format!("generate exponential,m=30,n=200,k=5,seed={seed} --output");
    assert_eq!(fednmf(0, &spec).arg(&whole).run().code, Some(0));
    let text = std::fs::read_to_string(&whole).unwrap();
    let mut numbers =
        text.lines().filter(|l| !l.starts_with('%')).flat_map(str::split_whitespace).map(|w| w.parse::<f64>().unwrap());
    let (m, n) = (numbers.next().unwrap() as usize, numbers.next().unwrap() as usize);
    let all = Array2::from_shape_vec((n, m), numbers.collect()).unwrap().reversed_axes();
    let mut first = 0;
    for (party, columns) in COLUMNS.into_iter().enumerate() {
        let part = all.slice(s![.., first..first + columns]).to_owned();
        write(&dir.path().join(format!("{seed}-{party}.mtx")), &part);
        first += columns;
    }
    dir.path().join(format!("{seed}-{{party}}.mtx"))
}

const PAPER: &str = "--parties 10 -k 5 --mu-penalty 0.1 --eta 1";

/// Independent prototypes, 5 seeds: NMSE .0972 ± .0071 centralised and .0972 ± .0071 for the corrected algorithm with
/// any quantisation; .1017 after 10 iterations; disagreement about .004; the mean X with Y refitted is as good as any.
#[test]
fn the_first_experiment_reaches_the_centralised_error() {
    let dir = tempdir().unwrap();
    let (mut sum, mut at_ten) = (0.0, 0.0);
    for seed in 0..5 {
        let input = experiment(&dir, seed);
        let trace = dir.path().join("t.jsonl");
        let run = |line: &str| fednmf(0, &format!("{line} {PAPER} --seed {seed} --input")).arg(&input);
        let central = run("--algo admm").ok();
        let line = "--algo ppdnmf --plain --g-max 0.033 --secret-seed 4";
        let agents = run(line).arg("--trace").arg(&trace).ok();
        let (a, c) = (number(&agents, "nmse"), number(&central, "nmse"));
        assert!((a - c).abs() < 0.01 * c, "{a} {c}");
        assert!(number(&agents, "rel_error") < 1.005 * number(&central, "rel_error"));
        assert!(number(&agents, "disagreement") < 0.02, "{agents}");
        let coarse = run(line).arg("--quantization").arg("10").ok();
        assert!((number(&coarse, "nmse") - c).abs() < 0.03 * c && number(&coarse, "disagreement") < 0.08, "{coarse}");
        sum += a / 5.0;
        let ten = events(&trace).into_iter().find(|e| e["iter"] == 10).unwrap();
        at_ten += number(&ten, "nmse") / 5.0;
        std::fs::remove_file(&trace).unwrap();
    }
    // Three standard deviations of the difference of two means of five.
    let spread = 3.0 * 0.0071 * (2.0f64 / 5.0).sqrt();
    assert!((sum - 0.0972).abs() < spread, "{sum}");
    assert!((at_ten - 0.1017).abs() < spread && at_ten > sum, "{at_ten}");
}

/// With the automatic penalties the agents agree, also where each has few columns and there are many components.
#[test]
fn automatic_penalties_lead_to_consensus() {
    for (input, most) in [
        ("--input synthetic:planted,m=200,n=300,seed=1 -k 10 --max-iters 30".to_string(), 0.005),
        ("--input synthetic:exponential,seed=1 -k 5 --max-iters 30".to_string(), 0.005),
        (format!("--transpose -k 49 --max-iters 10 --input {}", crate::common::data("digits.npy").display()), 0.05),
    ] {
        let summary = fednmf(0, &format!("--algo ppdnmf --plain --parties 10 --eval-every 1000 {input}")).ok();
        let disagreement = number(&summary, "disagreement");
        assert!(disagreement < most, "{input}: {disagreement}");
    }
}

const SMALL: &str = "--algo ppdnmf --input synthetic:exponential,m=8,n=30,k=3 -k 3 --admm-iters 3 --max-iters 2";

#[test]
fn decrypted_results_are_the_plain_ones() {
    let dir = tempdir().unwrap();
    let mut first: Option<(Value, Array2<f64>, Array2<f64>)> = None;
    let keys = "--key-bits 128 --insecure-key";
    for (ranks, words) in [(1, "--plain"), (4, "--plain"), (1, keys), (3, keys), (2, ""), (1, "--crypto-threads 2")] {
        let out = dir.path().join(format!("{ranks}{}.h5", words.replace(' ', "")));
        let line = format!("{SMALL} --parties 5 --secret-seed 8 {words}");
        let summary = fednmf(ranks, &line).arg("--output").arg(&out).ok();
        let (u, v) = (matrix(&out, "U"), factor(&out, "V"));
        let (s, a, b) = first.get_or_insert_with(|| (summary.clone(), u.clone(), v.clone()));
        for name in ["rel_error", "nmse", "disagreement"] {
            let (a, b) = (number(s, name), number(&summary, name));
            assert!((a - b).abs() < 1e-9 * a, "{ranks} {words} {name}: {a} {b}");
        }
        // The mean U is a masked sum, in fixed point.
        assert!(distance(a, &u) < 1e-9 && distance(b, &v) < 1e-7, "{ranks} {words}");
        let payloads: Vec<&str> =
            summary["wire"].as_array().unwrap().iter().map(|w| w["payload"].as_str().unwrap()).collect();
        assert_eq!(payloads.contains(&"Ciphertext"), words != "--plain");
    }
}

/// U and V in the files have the error that the run reports, also before the agents agree.
#[test]
fn the_error_is_that_of_the_written_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let input = crate::common::npy(dir.path(), "m.npy", 0..20);
    let bytes = std::fs::read(&input).unwrap();
    let m = Array2::from_shape_fn((20, 64), |(i, j)| f64::from(bytes[bytes.len() - 20 * 64 + 64 * i + j]));
    for iters in [0, 2] {
        let out = file(&format!("{iters}.h5"));
        let line = format!("--algo ppdnmf -k 3 --plain --parties 5 --admm-iters 3 --max-iters {iters}");
        let summary = fednmf(2, &line).arg("--input").arg(&input).arg("--output").arg(&out).ok();
        let (u, v) = (matrix(&out, "U"), factor(&out, "V"));
        let norm = |x: &Array2<f64>| x.mapv(|x| x * x).sum().sqrt();
        let error = norm(&(&m - &u.dot(&v.t()))) / norm(&m);
        assert!((error - number(&summary, "rel_error")).abs() < 1e-6, "{iters}: {error}");
    }
}

/// The traffic follows the formula on any number of ranks: m k ciphertexts to each neighbour, and as many numbers back
/// in packed ciphertexts.
#[test]
fn only_neighbours_exchange_and_answers_are_packed() {
    for ranks in [1, 4] {
        let summary = fednmf(ranks, &format!("{SMALL} --parties 5 --topology ring --secret-seed 8")).ok();
        let bytes = |purpose: &str| -> u64 {
            let rows = summary["wire"].as_array().unwrap();
            rows.iter().find(|r| r["purpose"] == purpose).unwrap()["party_bytes"].as_u64().unwrap()
        };
        let slots = summary["params"]["slots"].as_u64().unwrap();
        assert!(slots >= 20, "{slots}");
        // 10 directed edges, 2·3 exchanges, 512 bytes; sent and received
        let each = 10 * 2 * 3 * 512 * 2;
        assert_eq!(bytes("encrypted U to neighbours"), each * 24);
        assert_eq!(bytes("encrypted answers of neighbours"), each * 24u64.div_ceil(slots));
        let edges = summary["edges"].as_array().unwrap();
        assert_eq!(edges.len(), 10);
        for edge in edges {
            let [from, to, messages, bytes] =
                ["from", "to", "messages", "bytes"].map(|key| edge[key].as_u64().unwrap());
            assert!((from + 1) % 5 == to || (to + 1) % 5 == from, "{from} and {to} are not neighbours on the ring");
            let flags = messages - 2 * 2 * 3;
            assert_eq!(bytes, 2 * 3 * 512 * (24 + 24u64.div_ceil(slots)) + 8 * flags);
        }
        // The times of other ranks are not shared.
        let timed = edges.iter().filter_map(|edge| edge["seconds"].as_f64());
        assert!(timed.clone().all(|seconds| seconds > 0.0), "{edges:?}");
        assert!(if ranks == 1 { timed.count() == 10 } else { (1..10).contains(&timed.count()) }, "{edges:?}");
    }
}

#[test]
fn flags_stop_all_agents_at_the_same_iteration() {
    let line = "--algo ppdnmf --plain --input synthetic:exponential -k 5 --parties 7 --topology ring --secret-seed 2";
    let run = |ranks, words: &str| fednmf(ranks, &format!("{line} --max-iters 20 {words}")).ok();
    let sent = |summary: &Value| {
        let rows = summary["wire"].as_array().unwrap().iter();
        rows.filter(|r| r["payload"] == "SharedFactor").map(|r| r["party_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let all = run(1, "");
    let stopped = [1, 2, 4].map(|ranks| run(ranks, "--admm-tol 0.02"));
    assert!(sent(&stopped[0]) < sent(&all), "no agent converged");
    for other in &stopped[1..] {
        assert_eq!(number(other, "nmse").to_bits(), number(&stopped[0], "nmse").to_bits());
        assert_eq!(sent(other), sent(&stopped[0]));
    }
}

#[test]
fn impossible_options_are_refused() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("g.txt");
    std::fs::write(&file, "0 1\n2 3\n").unwrap();
    let line = "--algo ppdnmf --parties 4 --plain --input synthetic:exponential -k 3 --max-iters 2";
    for ranks in [1, 3] {
        fednmf(ranks, &format!("{line} --topology")).arg(&file).refused(&["--topology", "connected"]);
        fednmf(ranks, &format!("{line} --topology /no/such")).refused(&["--topology", "/no/such"]);
        fednmf(ranks, &format!("{line} --g-max 0.1 --g-scale 10")).refused(&["--g-scale"]);
        fednmf(ranks, &format!("{line} --x-range 1e12")).refused(&["--x-range", "--quantization"]);
    }
    fednmf(1, "--algo ppdnmf --key-bits 128 --input synthetic:exponential -k 3").refused(&["--insecure-key"]);
    fednmf(1, "--algo hals --topology ring").refused(&["--topology", "ppdnmf"]);
    std::fs::write(&file, "0 1\n2 3\n1 2\n").unwrap();
    fednmf(2, &format!("{line} --topology")).arg(&file).ok();
    // A file of other edges is another run.
    let checkpoint = dir.path().join("c.h5");
    let resumed = |iterations: usize| {
        let more = format!("--checkpoint {} --resume --max-iters {iterations} --topology", checkpoint.display());
        fednmf(2, &format!("{line} {more}")).arg(&file)
    };
    resumed(2).ok();
    std::fs::write(&file, "2 3\n# in another order\n0 1\n1 2\n").unwrap();
    resumed(3).ok();
    std::fs::write(&file, "0 1\n2 3\n0 3\n").unwrap();
    resumed(4).refused(&["c.h5", "graph"]);
    // An entry outside the range ends the run, whichever rank it is on.
    let output = fednmf(3, &format!("{line} --x-range 0.1")).run();
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("--x-range") && output.stderr.contains("party"), "{}", output.stderr);
    // No value of a party: the limit is the only number in the message.
    assert!(!output.stderr.contains("X is ") || output.stderr.contains("X is beyond the 1e-1 "), "{}", output.stderr);
}

#[test]
fn an_encrypted_run_resumes_where_it_stopped() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |iters: &str, out: &str| {
        fednmf(2, &format!("{SMALL} --parties 3 --secret-seed 8 --key-bits 128 --insecure-key --max-iters {iters}"))
            .arg("--output")
            .arg(file(out))
    };
    run("4", "whole.h5").ok();
    run("2", "half.h5").arg("--checkpoint").arg(file("c.h5")).ok();
    run("4", "rest.h5").arg("--checkpoint").arg(file("c.h5")).arg("--resume").ok();
    for name in ["U", "V", "X", "Y"] {
        assert_eq!(factor(&file("whole.h5"), name), factor(&file("rest.h5"), name), "{name}");
    }
}

/// An iteration of minutes; its steps take about a second each.
const SLOW: &str =
    "--algo ppdnmf --parties 3 --topology ring --input synthetic:exponential,m=40,n=60,k=3 -k 3 --max-iters 3";

#[test]
fn the_expected_time_is_told_before_the_first_iteration() {
    let output = fednmf(0, &format!("{SLOW} --time-limit 0.1 --quiet")).run();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let line = output
        .stderr
        .lines()
        // A warning, since it takes more than a minute.
        .find(|line| line.starts_with("warning: encryption: about "))
        .unwrap_or_else(|| panic!("{output:?}"));
    assert!(
        line.contains(" an iteration and about ") && line.contains(" for 3 iterations, as measured here"),
        "{line}"
    );
    assert!(line.contains(" min") || line.contains(" s"), "{line}");
    let quick = fednmf(0, &format!("{SLOW} --plain")).run();
    assert!(quick.code == Some(0) && !quick.stderr.contains("encryption:"), "nothing is encrypted: {quick:?}");
}

#[test]
fn a_stop_does_not_wait_for_the_end_of_an_iteration() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for ranks in [0, 2] {
        let checkpoint = file(&format!("{ranks}.h5"));
        let start = Instant::now();
        let child = fednmf(ranks, &format!("{SLOW} --time-limit 1 --checkpoint")).arg(&checkpoint).spawn();
        let output = finish(child, Duration::from_secs(60), "a run with a time limit");
        assert_eq!(output.code, Some(75), "{}", output.stderr);
        assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
        // None of the iterations was finished.
        let saved: u64 = hdf5::File::open(&checkpoint).unwrap().attr("iteration").unwrap().read_scalar().unwrap();
        assert_eq!(saved, 0);

        let trace = file("t.jsonl");
        let run = fednmf(ranks, &format!("{SLOW} --resume --checkpoint")).arg(&checkpoint).arg("--trace").arg(&trace);
        let child = run.spawn();
        wait_for(&trace);
        std::thread::sleep(Duration::from_secs(2));
        signal("TERM", &ranks_of(child.id()));
        let output = finish(child, Duration::from_secs(25), "a run that got a signal");
        assert_eq!(output.code, Some(75), "{}", output.stderr);
        assert_eq!(events(&trace).pop().unwrap()["stopped_by"], "SIGTERM");
    }
}

/// Small keys, so that a run can be broken off within an iteration and be finished by others.
#[test]
fn a_run_broken_off_within_an_iteration_ends_as_if_it_had_not_been() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line = "--algo ppdnmf --parties 3 --topology ring --input synthetic:exponential,m=40,n=60,k=3 -k 3 --max-iters 2 \
                --key-bits 128 --insecure-key --secret-seed 3 --admm-iters 100 --eval-every 1";
    let run = |words: &str| fednmf(2, &format!("{line} {words}"));
    run("").arg("--output").arg(file("whole.h5")).ok();
    let mut broken_off = 0;
    for _ in 0..60 {
        let trace = file("t.jsonl");
        let output = run("--time-limit 0.02 --resume --checkpoint").arg(file("c.h5")).arg("--trace").arg(&trace).run();
        assert!([Some(0), Some(75)].contains(&output.code), "{}", output.stderr);
        broken_off += u32::from(events(&trace).pop().unwrap()["stopped_by"] == "time_limit");
        std::fs::remove_file(&trace).unwrap();
        if broken_off == 2 {
            break;
        }
    }
    assert!(broken_off > 0);
    run("--resume --checkpoint").arg(file("c.h5")).arg("--output").arg(file("rest.h5")).ok();
    for name in ["U", "V", "X", "Y"] {
        assert_eq!(factor(&file("whole.h5"), name), factor(&file("rest.h5"), name), "{name}");
    }
}
