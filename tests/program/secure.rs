//! NMF over private columns: errors of the prototypes, the same bits on any number of ranks, and what leaves a party.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{data, distance, factor, fednmf, matrix, npy, number};

/// The first 1000 digits, one per row: with --transpose the 64 × 1000 matrix of the reference values.
fn thousand_digits(dir: &Path) -> PathBuf {
    npy(dir, "thousand.npy", 0..1000)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median over seeds of the error before and after the last local fit of V. As in the prototypes, S₁ has 30 % of a
/// party's columns and S₂ 20 % of the rows.
fn errors_of(algo: &str, digits: Option<&Path>, line: &str) -> [f64; 2] {
    let runs: Vec<Value> = (0..5)
        .map(|seed| {
            let input = digits.map_or(format!("synthetic:planted,m=300,n=200,k=10,noise=0.05,seed={seed}"), |path| {
                format!("{} --transpose", path.display())
            });
            let sizes = if algo.contains("ssd") { "--sketch-size 30%,20%" } else { "" };
            fednmf(0, &format!("--algo {algo} --input {input} -k 10 --parties 10 --seed {seed} {sizes} {line}")).ok()
        })
        .collect();
    ["rel_error_unfitted", "rel_error"].map(|name| median(runs.iter().map(|run| number(run, name)).collect()))
}

/// Reference values: independent prototypes, error before the last fit after 20 rounds × 10 steps, with their standard
/// deviations (of the seeds of one method in one setting, or .004 where the spread of three seeds was smaller).
#[test]
fn the_synchronous_methods_reach_the_errors_of_the_prototypes() {
    let dir = tempdir().unwrap();
    let digits = thousand_digits(dir.path());
    for (algo, planted, planted_skew, on_digits, on_digits_skew) in [
        ("syn-sd", (0.1235, 0.0106), (0.1489, 0.0101), (0.3526, 0.0045), (0.3633, 0.004)),
        ("syn-ssd-u", (0.0412, 0.004), (0.0424, 0.004), (0.354, 0.004), (0.3614, 0.0067)),
        ("syn-ssd-v", (0.0702, 0.0166), (0.1127, 0.0104), (0.3562, 0.004), (0.3675, 0.0107)),
        ("syn-ssd-uv", (0.0425, 0.004), (0.0447, 0.004), (0.3485, 0.004), (0.3648, 0.004)),
    ] {
        for (input, skew, (mean, spread)) in [
            (None, "", planted),
            (None, "--skew 0.5", planted_skew),
            (Some(digits.as_path()), "", on_digits),
            (Some(digits.as_path()), "--skew 0.5", on_digits_skew),
        ] {
            let [unfitted, fitted] = errors_of(algo, input, &format!("--max-iters 20 {skew}"));
            let what = format!("{algo} {input:?} {skew}: {unfitted} and {fitted}, reference {mean}");
            assert!(unfitted < mean + 3.0 * spread, "{what}");
            assert!(fitted <= unfitted, "the last fit is the best there is: {what}");
            let central = if input.is_some() { 0.3178 } else { 0.0395 };
            assert!(fitted > central, "better than one place with all data: {what}");
        }
    }
}

#[test]
fn u_first_is_the_order_of_the_paper_and_as_slow_as_in_the_prototypes() {
    let [unfitted, _] = errors_of("syn-sd", None, "--max-iters 20 --order u-first");
    assert!((unfitted - 0.249).abs() < 3.0 * 0.0085, "{unfitted}");
}

#[test]
fn equal_weights_match_the_prototypes_and_are_worse_under_skew() {
    // The skewed runs of the prototypes weighted all copies equally, as in the paper; .1489 is the mean of three seeds.
    let [columns, equal] = ["columns", "equal"]
        .map(|weights| errors_of("syn-sd", None, &format!("--max-iters 20 --skew 0.5 --weights {weights}"))[0]);
    assert!(columns < 0.06 && equal > 0.07 && equal < 0.1489 + 3.0 * 0.0101, "{columns} {equal}");
    // With shares of equal size only rounding differs.
    let line = "--algo syn-ssd-u --input synthetic:planted,m=60,n=40 --parties 4 --max-iters 3 --weights";
    let [a, b] = ["columns", "equal"].map(|w| number(&fednmf(0, &format!("{line} {w}")).ok(), "rel_error"));
    assert!((a - b).abs() < 1e-9, "{a} {b}");
}

/// Inputs of the exact methods.
fn inputs() -> [String; 2] {
    [data("digits.npy").display().to_string(), "synthetic:sparse,m=300,n=150,density=0.05,seed=4".to_string()]
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn secure_hals_is_hals() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.h5"), dir.path().join("b.h5"));
    for (input, extrapolation) in inputs().into_iter().flat_map(|i| [(i.clone(), "none"), (i, "restart")]) {
        let line = format!("--input {input} -k 6 --max-iters 40 --seed 2 --extrapolation {extrapolation}");
        let exact = fednmf(1, &format!("--algo hals {line} --factor-scale as-found")).arg("--output").arg(&a).ok();
        for (ranks, parties, tolerance) in [
            (1, "--parties 7", 1e-9),
            (3, "--parties 7 --skew 0.5", 1e-9),
            // The fixed point has about 40 bits for a sum of the expected size.
            (
                2,
                "--parties 5 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --start public",
                1e-7,
            ),
        ] {
            let secure = fednmf(ranks, &format!("--algo secure-hals {line} {parties}")).arg("--output").arg(&b).ok();
            let what = format!("{line} {parties}: {} {}", secure["rel_error"], exact["rel_error"]);
            let (x, y) = (number(&exact, "rel_error"), number(&secure, "rel_error"));
            assert!((x - y).abs() < tolerance * x, "{what}");
            assert!(distance(&matrix(&a, "U"), &matrix(&b, "U")) < 100.0 * tolerance, "{what}");
            assert!(distance(&matrix(&a, "V"), &factor(&b, "V")) < 100.0 * tolerance, "{what}");
            std::fs::read_dir(dir.path()).unwrap().flatten().for_each(|e| {
                if e.path() != a {
                    std::fs::remove_file(e.path()).unwrap();
                }
            });
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_sketched_sum_is_exact_in_its_rows() {
    let dir = tempdir().unwrap();
    let (whole, all) = (dir.path().join("whole.h5"), dir.path().join("all.h5"));
    for input in inputs() {
        let line = format!("--algo secure-hals --input {input} -k 5 --parties 4 --max-iters 30");
        fednmf(1, &line).arg("--output").arg(&whole).ok();
        fednmf(2, &format!("{line} --sketch subsample --sketch-size 100%")).arg("--output").arg(&all).ok();
        assert!(distance(&matrix(&whole, "U"), &matrix(&all, "U")) < 1e-8, "{input}");
        // With a tenth of the rows per iteration the error decreases monotonically to that of whole sums.
        let trace = dir.path().join("t.jsonl");
        let some = format!("{line}0 --eval-every 1 --sketch subsample --sketch-size 10% --trace");
        let some = number(&fednmf(2, &some).arg(&trace).ok(), "rel_error");
        let errors = crate::common::errors(&trace);
        assert!(errors.windows(2).all(|w| w[1].1 <= w[0].1 * (1.0 + 1e-9)), "{input}");
        let exact = number(&fednmf(1, &line).ok(), "rel_error");
        assert!(some < 1.01 * exact, "{input}: {some} against {exact}");
    }
    let line = "--algo secure-hals --parties 4";
    fednmf(2, &format!("{line} --sketch gaussian")).refused(&["--sketch gaussian", "none, subsample"]);
    fednmf(2, &format!("{line} --sketch-size 10%")).refused(&["--sketch-size", "--sketch subsample"]);
    fednmf(2, &format!("{line} --sketch subsample --extrapolation restart")).refused(&["--extrapolation", "--sketch"]);
}

#[test]
fn several_sweeps_for_a_sum_save_sums() {
    let line = "--algo secure-hals --input synthetic:planted,m=300,n=200,seed=3 -k 10 --parties 4 --max-iters 10";
    let [one, five, exact] = ["", "--local-iters 5", "--update bpp"]
        .map(|more| number(&fednmf(0, &format!("{line} {more}")).ok(), "rel_error"));
    assert!(five < one && exact < one, "{one} {five} {exact}");
}

/// Without this the masked run has a start of its own.
fn start(algo: &str) -> &'static str {
    match algo {
        "secure-hals" => "--start public --accept-risk few-values",
        // For whole numbers, of which it allows no release.
        "dsanls-secure" => "--accept-risk sketches",
        _ => "",
    }
}

/// With a start that others know, the first masked sum M V_0 is k equations for each row of the data. So every run with
/// `--secure-sum` has a start of its own, which no seed determines.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_start_of_v_is_private_where_sums_are_masked() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("o.h5");
    let start = |more: &str| {
        let line = format!("--algo secure-hals --input {} -k 3 --parties 4 --max-iters 0 {more}", inputs()[0]);
        fednmf(2, &line).arg("--output").arg(&file).ok();
        factor(&file, "V")
    };
    let public = start("");
    assert_eq!(start("--secure-sum --accept-risk few-rows,membership,few-values,rare-entries --start public"), public);
    let (first, second) = (
        start("--secure-sum --accept-risk few-rows,membership,few-values,rare-entries"),
        start("--secure-sum --accept-risk few-rows,membership,few-values,rare-entries"),
    );
    let part =
        |v: &ndarray::Array2<f64>, party: usize| v.slice(ndarray::s![16 * party..16 * (party + 1), ..]).to_owned();
    for party in 0..4 {
        assert!(part(&first, party) != part(&public, party) && part(&first, party) != part(&second, party));
        assert!((0..party).all(|other| part(&first, party) != part(&first, other)));
    }
    // The scale is the public one.
    let largest = |v: &ndarray::Array2<f64>| v.iter().copied().fold(0.0, f64::max);
    assert!((largest(&first) / largest(&public) - 1.0).abs() < 0.1);
    let seeded = "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries --secret-seed 5";
    assert_eq!(start(seeded), start(seeded));
}

/// The methods with --secure-sum.
const FAMILY: [&str; 6] = ["syn-sd", "syn-ssd-u", "syn-ssd-v", "syn-ssd-uv", "secure-hals", "dsanls-secure"];

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn masked_sums_do_not_depend_on_ranks_or_keys() {
    let dir = tempdir().unwrap();
    for algo in FAMILY {
        for input in inputs() {
            let mut first = None;
            // Every run draws new keys; the two runs on one rank show that the result does not depend on them.
            for ranks in [1, 1, 2, 4] {
                let file = dir.path().join("o.h5");
                let line = format!(
                    "--algo {algo} --input {input} -k 4 --parties 6 --max-iters 3 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries {}",
                    start(algo)
                );
                let run = fednmf(ranks, &line).arg("--output").arg(&file).ok();
                let found = (number(&run, "rel_error").to_bits(), matrix(&file, "U"), factor(&file, "V"));
                assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{algo} {input} on {ranks} ranks");
            }
        }
    }
}

#[test]
fn masked_runs_are_as_good_as_plain_ones() {
    for algo in FAMILY {
        let line = format!("--algo {algo} --input synthetic:planted,m=120,n=90 -k 5 --parties 4 --max-iters 8");
        let masked =
            format!("{line} --secure-sum --accept-risk few-rows,membership,few-values,rare-entries {}", start(algo));
        let (plain, masked) = (fednmf(0, &line).ok(), fednmf(0, &masked).ok());
        let (x, y) = (number(&plain, "rel_error"), number(&masked, "rel_error"));
        assert!((x - y).abs() < 1e-6 * x, "{algo}: {x} {y}");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn with_a_secure_sum_nothing_unmasked_leaves_a_party() {
    for algo in FAMILY {
        let line = format!(
            "--algo {algo} --input synthetic:planted,m=60,n=40 --parties 4 --max-iters 5 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries"
        );
        let summary = fednmf(2, &line).ok();
        let wire = summary["wire"].as_array().unwrap();
        assert!(wire.iter().any(|row| row["payload"] == "Masked"));
        for row in wire {
            let payload = row["payload"].as_str().unwrap();
            let loading = row["purpose"] == "statistics of the matrix" || payload == "Data";
            // U is the result of all parties.
            let result = row["purpose"] == "evaluation: gather U";
            assert!(matches!(payload, "Masked" | "Control" | "Metadata") || loading || result, "{algo}: {row}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn values_beyond_the_fixed_point_end_the_run() {
    // One entry has the norm of the whole matrix, so one row has most of a sum that is expected to spread over 5000
    // rows.
    let dir = tempdir().unwrap();
    let input = dir.path().join("spike.mtx");
    std::fs::write(&input, "%%MatrixMarket matrix coordinate real general\n5000 50 2\n7 3 1e6\n90 40 1\n").unwrap();
    for ranks in [1, 2] {
        let line = "--algo secure-hals -k 1 --parties 4 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --headroom 1 --input";
        let output = fednmf(ranks, line).arg(&input).run();
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        for word in ["party ", "sum of", "--headroom"] {
            assert!(output.stderr.contains(word), "{}", output.stderr);
        }
    }
    fednmf(2, "--algo syn-sd --parties 1 --secure-sum").refused(&["--secure-sum", "one party"]);
    fednmf(1, "--algo syn-ssd-u --parties 3 --sketch-size 10,3000").refused(&["--sketch-size", "2000"]);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_traffic_is_the_formula() {
    let (m, k, d, rounds, steps, parties) = (120, 5, 30, 4, 3, 6);
    for (algo, words) in [
        ("syn-sd", rounds * m * k),
        ("syn-ssd-u --sketch-size 10,30", rounds * (m * k + steps * d * k)),
        ("syn-ssd-v --sketch-size 10,30", rounds * m * k),
        ("syn-ssd-uv --sketch-size 10,30", rounds * (m * k + steps * d * k)),
        ("secure-hals", rounds * (m * k + k * k)),
        ("secure-hals --sketch subsample --sketch-size 10,30", rounds * (d * k + k * k)),
    ] {
        for secure in ["", "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries"] {
            for ranks in [1, 3] {
                let line = format!(
                    "--algo {algo} --input synthetic:planted,m={m},n=80,k=4 -k {k} --parties {parties} \
                     --local-iters {steps} --max-iters {rounds} --eval-every 0 {secure}"
                );
                let summary = fednmf(ranks, &line).ok();
                let rows = summary["wire"].as_array().unwrap().iter();
                let kinds = ["SharedFactor", "SketchedFactor", "Product", "Gram", "Masked"];
                let bytes: u64 = rows
                    .filter(|row| kinds.iter().any(|kind| row["payload"] == *kind))
                    .filter(|row| row["purpose"] != "statistics of the matrix")
                    .map(|row| row["party_bytes"].as_u64().unwrap())
                    .sum();
                // Every party receives as many words as it sends.
                assert_eq!(bytes, (2 * 8 * words * parties) as u64, "{algo} {secure} {ranks} ranks");
            }
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn v_stays_with_its_party() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("o.h5");
    fednmf(
        2,
        "--algo syn-ssd-uv --input synthetic:planted,m=60,n=40 -k 3 --parties 3 --skew 0.5 --max-iters 2 --output",
    )
    .arg(&out)
    .ok();
    let shared = hdf5::File::open(&out).unwrap();
    assert!(shared.link_exists("U") && !shared.link_exists("V"));
    let rows = [0, 1, 2].map(|p| matrix(&dir.path().join(format!("o.party-{p:02}.h5")), "V").nrows());
    assert_eq!(rows, [20, 10, 10]);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn files_of_the_parties_are_read_by_their_owners() {
    let dir = tempdir().unwrap();
    let cuts = [0, 600, 1199, 1797];
    (0..3).for_each(|p| drop(npy(dir.path(), &format!("part-{p}.npy"), cuts[p]..cuts[p + 1])));
    let line = "--algo syn-ssd-uv -k 4 --transpose --max-iters 3 --parties 3";
    let parts = dir.path().join("part-{party}.npy");
    let split = fednmf(2, line).arg("--input").arg(&parts).ok();
    let whole = fednmf(3, line).arg("--input").arg(data("digits.npy")).ok();
    // 1797 columns in three equal parts are 599 each, so the parts differ, but all columns are present.
    assert_eq!((split["m"].as_u64(), split["n"].as_u64()), (Some(64), Some(1797)));
    assert!((number(&split, "rel_error") - number(&whole, "rel_error")).abs() < 0.02);
    // No data was sent.
    let wire = split["wire"].as_array().unwrap();
    assert!(wire.iter().all(|row| row["payload"] != "Data" || row["mpi_bytes"] == 0), "{split}");
}

/// Reference values as above, after 200 merges; ρ = 1, 10, 100.
#[test]
fn the_asynchronous_methods_reach_the_errors_of_the_prototypes() {
    let dir = tempdir().unwrap();
    let digits = thousand_digits(dir.path());
    for (algo, input, skew, rho, mean, spread) in [
        ("asyn-sd", None, "", "1", 0.202, 0.0143),
        ("asyn-sd", None, "", "auto", 0.175, 0.0105),
        ("asyn-sd", None, "", "100", 0.26, 0.0109),
        ("asyn-ssd-v", None, "", "auto", 0.144, 0.0222),
        ("asyn-sd", None, "--skew 0.5", "auto", 0.25, 0.0125),
        ("asyn-ssd-v", None, "--skew 0.5", "auto", 0.182, 0.0267),
        ("asyn-sd", Some(digits.as_path()), "", "auto", 0.378, 0.0125),
        ("asyn-ssd-v", Some(digits.as_path()), "", "auto", 0.373, 0.0146),
        ("asyn-sd", Some(digits.as_path()), "--skew 0.5", "auto", 0.439, 0.0141),
    ] {
        let [unfitted, fitted] = errors_of(algo, input, &format!("--max-iters 200 --rho {rho} {skew}"));
        let what = format!("{algo} {input:?} {skew} rho {rho}: {unfitted} and {fitted}, reference {mean}");
        assert!(unfitted < mean + 3.0 * spread, "{what}");
        assert!(fitted <= unfitted, "{what}");
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn releases_of_the_data_are_limited() {
    // Without zeros.
    let input = "--input synthetic:exponential,m=60,n=200,noise=0 -k 3";
    // 40 of 200 columns: three releases are 120 equations for the 150 columns that a party does not know, four would be 160.
    let run = |more: &str| fednmf(2, &format!("--algo dsanls-secure --parties 4 {input} --sketch-size 40,30 {more}"));
    let summary = run("--max-iters 12").ok();
    assert_eq!(summary["params"]["releases"], 3);
    let released = |summary: &Value| -> u64 {
        let rows = summary["wire"].as_array().unwrap().iter();
        rows.filter(|r| r["payload"] == "Sketch").map(|r| r["party_bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!(released(&summary), 3 * 4 * 2 * 8 * 60 * 40);
    assert!(number(&summary, "rel_error") < 0.3, "{summary}");
    run("--max-releases 5").refused(&["--max-releases 5", "at most 3", "--accept-risk sketches"]);
    run("--sketch subsample").refused(&["subsample", "columns of M as they are"]);
    assert_eq!(released(&run("--max-iters 3 --max-releases 1").ok()), 4 * 2 * 8 * 60 * 40);
    let all = run("--max-releases 12 --max-iters 12 --accept-risk sketches").ok();
    assert_eq!(released(&all), 12 * 4 * 2 * 8 * 60 * 40);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_file_gives_the_split_of_the_columns() {
    let dir = tempdir().unwrap();
    let (split, out) = (dir.path().join("split.txt"), dir.path().join("o.h5"));
    let run = |algo: &str, ranks: usize, text: &str| {
        std::fs::write(&split, text).unwrap();
        let line = format!("--algo {algo} --input synthetic:planted,m=60,n=40,k=3 -k 3 --max-iters 3 --split");
        fednmf(ranks, &line).arg(&split)
    };
    let three = "20 # the largest\n0\n\n20\n";
    for (ranks, even) in [(1, "10\n10\n10\n10"), (3, "10\n10\n10\n10\n")] {
        run("syn-sd", ranks, three).arg("--output").arg(&out).ok();
        let rows = [0, 1, 2].map(|p| matrix(&dir.path().join(format!("o.party-{p:02}.h5")), "V").nrows());
        assert_eq!(rows, [20, 0, 20]);
        // Equal counts give the default split.
        let counted = run("secure-hals", ranks, even).ok();
        let line = "--algo secure-hals --input synthetic:planted,m=60,n=40,k=3 -k 3 --max-iters 3 --parties 4";
        assert_eq!(counted["rel_error"], fednmf(ranks, line).ok()["rel_error"]);
        assert_eq!(counted["parties"], 4);
    }
    run("syn-sd", 2, "20\n2o\n").refused(&["split.txt", "line 2", "2o"]);
    run("syn-sd", 2, "20\n19\n").refused(&["split.txt", "39", "40 columns"]);
    run("fnmf", 2, "20\n19\n").refused(&["split.txt", "39", "60 rows"]);
    run("syn-sd", 2, "20\n20\n").arg("--parties").arg("3").refused(&["2 counts", "3 parties"]);
    run("syn-sd", 0, "").refused(&["split.txt", "no count"]);
    fednmf(2, "--algo syn-sd --split /no/such.txt").refused(&["--split /no/such.txt", "cannot be read"]);
}

/// In asynchronous runs the server holds the state: without evaluations too, the last fit of the parties must use the
/// last U of the server.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_run_without_evaluations_gives_the_same_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for algo in ["asyn-sd", "asyn-ssd-v", "syn-sd"] {
        let line = format!("--algo {algo} --input synthetic:planted,m=60,n=40,k=3 -k 3 --parties 4 --max-iters 9");
        for (every, name) in [("3", "a.h5"), ("0", "b.h5")] {
            let run = fednmf(2, &line).arg("--eval-every").arg(every).arg("--output").arg(file(name)).ok();
            let wire = run["wire"].as_array().unwrap();
            let scalars = wire.iter().filter(|row| row["purpose"] == fednmf_methods::metrics::RESIDUAL.kind).count();
            assert_eq!(scalars, usize::from(every != "0"), "{run}");
        }
        assert_eq!(matrix(&file("a.h5"), "U"), matrix(&file("b.h5"), "U"), "{algo}");
        assert_eq!(factor(&file("a.h5"), "V"), factor(&file("b.h5"), "V"), "{algo}");
    }
}
