//! The choice of k from finished runs of parties.

use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{factor, fednmf};

const DATA: &str = "synthetic:blocks,m=900,n=40,k=4,noise=0.05,seed=3";

/// Runs k = 3, 4 and 5 with two seeds each; returns the names of their outputs.
fn run_all(dir: &Path, line: &str) -> String {
    let mut names = Vec::new();
    for (k, seed) in [(3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (5, 2)] {
        let name = dir.join(format!("k{k}-{seed}.h5")).display().to_string();
        let done = fednmf(3, &format!("{line} --input {DATA} -k {k} --seed {seed} --output {name}")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        names.push(name);
    }
    names.join(" ")
}

/// The JSON that a command prints.
fn answer(line: &str) -> Value {
    let done = fednmf(0, line).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stdout))
}

#[test]
fn parties_choose_the_planted_k_and_fit_their_rows_to_the_consensus() {
    let dir = tempdir().unwrap();
    let names = run_all(dir.path(), "--algo fed-kl --secure-sum --accept-risk membership --max-iters 60");
    let consensus = dir.path().join("consensus.h5");
    let found = answer(&format!("choose {names} --json --output {}", consensus.display()));
    assert_eq!(found["recommended"], 4, "{found:#}");
    assert!(found["points"][1]["stability"]["least"].as_f64() > Some(0.95), "{found:#}");
    assert!(found["points"][1]["divergence"].as_f64() < found["points"][0]["divergence"].as_f64());
    let answers = ["for_interpretation", "consensus_k"].map(|name| &found[name]);
    assert!(answers.iter().all(|k| **k == 4) && found["for_prediction"].is_null(), "{found:#}");
    // The mean of two runs that agree is each of them, up to order and scale.
    let (mean, one) = (factor(&consensus, "V"), factor(&dir.path().join("k4-1.h5"), "V"));
    for mean in mean.columns() {
        let cosine =
            |other: ndarray::ArrayView1<'_, f64>| mean.dot(&other) / (mean.dot(&mean) * other.dot(&other)).sqrt();
        assert!(one.columns().into_iter().map(cosine).fold(0.0, f64::max) > 0.99);
    }

    // The weights of an owner fit the owner's rows by the divergence that the runs minimise.
    let [data, weights] = ["data.npy", "weights.h5"].map(|name| dir.path().join(name));
    assert_eq!(fednmf(0, &format!("generate {DATA} --output {}", data.display())).run().code, Some(0));
    let project = format!("project {} --input {} --output {}", consensus.display(), data.display(), weights.display());
    let done = fednmf(2, &project).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let fit = answer(&format!("evaluate {} --input {} --json", weights.display(), data.display()));
    let of_runs = found["points"][1]["divergence"].as_f64().unwrap();
    assert!(fit["kl_divergence"].as_f64() < Some(1.02 * of_runs), "{fit}");
}

/// Entries of all parties are held out, and k is the one that predicts them best.
#[test]
fn parties_choose_k_by_entries_that_each_holds_out() {
    let dir = tempdir().unwrap();
    let line = "--algo fed-kl --secure-sum --accept-risk membership,rare-entries --holdout 0.05 --max-iters 60";
    let names = run_all(dir.path(), line);
    let found = answer(&format!("choose {names} --json"));
    assert_eq!(found["recommended"], 4, "{found:#}");
    let held = |at: usize| found["points"][at]["heldout"][0].as_f64().unwrap();
    assert!(held(1) < 0.5 * held(0) && held(1) < held(2), "{found:#}");
    assert!(found["reasons"].to_string().contains("held-out KL divergence per entry is least at k = 4"), "{found:#}");
}

#[test]
fn private_columns_share_the_other_factor() {
    let dir = tempdir().unwrap();
    let line = "--algo secure-hals --secure-sum --accept-risk membership,few-values --transpose --max-iters 40";
    let names = run_all(dir.path(), line);
    let [consensus, data, weights] = ["consensus.h5", "data.npy", "weights.h5"].map(|name| dir.path().join(name));
    // The parties' files are of the same runs.
    let parties = names.replace(".h5", ".party-01.h5");
    let found = answer(&format!("choose {names} {parties} --json --output {}", consensus.display()));
    assert!(found["recommended"] == 4 && found["points"][1]["runs"] == 2, "{found:#}");
    assert_eq!(factor(&consensus, "V").dim(), (40, 4), "the shared U, as the factor that stays");
    assert_eq!(fednmf(0, &format!("generate {DATA} --output {}", data.display())).run().code, Some(0));
    let project = format!("project {} --input {} --output {}", consensus.display(), data.display(), weights.display());
    assert_eq!(fednmf(0, &project).run().code, Some(0));
    let fit = answer(&format!("evaluate {} --input {} --json", weights.display(), data.display()));
    assert!(found["points"][1]["rmse"].is_null(), "runs tell relative errors only: {found:#}");
    let of_runs = found["points"][1]["rel_error"].as_f64().unwrap();
    assert!(fit["rel_error"].as_f64() < Some(1.02 * of_runs), "{fit}");
}

/// Runs with noise measure nothing, by default.
#[test]
fn without_errors_the_largest_stable_k_is_chosen() {
    let dir = tempdir().unwrap();
    let data = DATA.replace("m=900", "m=6000");
    let mut names = Vec::new();
    for (k, seed) in [(3, 1), (3, 2), (4, 1), (4, 2), (6, 1), (6, 2)] {
        let name = dir.path().join(format!("k{k}-{seed}.h5")).display().to_string();
        let line = "--algo secure-hals --transpose --parties 3 --secure-sum --dp gaussian --epsilon 8 --secret-seed 5";
        let done = fednmf(0, &format!("{line} --input {data} -k {k} --seed {seed} --output {name}")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        names.push(name);
    }
    let names = names.join(" ");
    let found = answer(&format!("choose {names} --json --output {}", dir.path().join("c.h5").display()));
    assert_eq!(found["recommended"], 4, "{found:#}");
    assert!(found["points"][0]["rmse"].is_null(), "{found:#}");
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("without errors stability alone decides"), "{warnings}");
    // Noise is no exact sum.
    assert!(!warnings.contains("the sums of these"), "{warnings}");
    let shown = fednmf(0, &format!("choose {names}")).run().stdout;
    assert!(shown.contains("No run has an error (--eval-every 0)") && !shown.contains("NaN"), "{shown}");
}

/// Each run is within the limits, all together are not.
#[test]
fn the_sums_of_all_runs_together_are_warned_of() {
    let dir = tempdir().unwrap();
    let data = DATA.replace("n=40", "n=400");
    let mut names = Vec::new();
    for k in 2..=4 {
        let name = dir.path().join(format!("k{k}.h5")).display().to_string();
        let line = "--algo fed-kl --parties 3 --secure-sum --max-iters 10";
        let done = fednmf(0, &format!("{line} --input {data} -k {k} --output {name}")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        names.push(name);
    }
    // 600 rows are hidden from each party, so 60 vectors are allowed.
    let warned = |names: &[String]| {
        let done = fednmf(0, &format!("choose {} --json", names.join(" "))).run();
        // A single run of each k says nothing of its stability.
        assert!(done.code == Some(1) && done.stderr.contains("no k has stable components; run more seeds"), "{done:?}");
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        assert!(found["recommended"].is_null() && found["reasons"][0] == "no k has stable components", "{found:#}");
        found["warnings"].to_string()
    };
    assert!(!warned(&names[..2]).contains("vectors"), "{}", warned(&names[..2]));
    let all = warned(&names);
    assert!(all.contains("these 3 runs together give others 90 vectors in the space of the rows"), "{all}");
    let output = dir.path().join("none.h5");
    let done = fednmf(0, &format!("choose {} --output {}", names.join(" "), output.display())).run();
    assert!(done.code == Some(1) && !output.exists() && done.stdout.contains("recommended: none"), "{done:?}");
    assert!(done.stderr.contains("none.h5 is not written"), "{}", done.stderr);
}

/// As in cNMF, a cluster may have several components of a run, and outlying ones are in none.
#[test]
fn the_consensus_leaves_out_outlying_components() {
    let dir = tempdir().unwrap();
    let mut names = Vec::new();
    for seed in 1..=4 {
        let name = dir.path().join(format!("{seed}.h5")).display().to_string();
        // One run is far from done.
        let line = format!("--algo hals -k 4 --seed {seed} --max-iters {}", if seed == 4 { 1 } else { 80 });
        let done = fednmf(0, &format!("{line} --input {DATA} --output {name}")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        names.push(name);
    }
    let consensus = dir.path().join("c.h5");
    let choose = |runs: usize, threshold: f64| {
        let names = names[..runs].join(" ");
        format!("choose {names} --json --density-threshold {threshold} --output {}", consensus.display())
    };
    let found = answer(&choose(4, 0.3));
    let (left_out, v) = (found["left_out"].as_u64().unwrap(), factor(&consensus, "V"));
    assert!((1..=4).contains(&left_out), "{found:#}");
    assert!(v.columns().into_iter().all(|column| (column.sum() - 1.0).abs() < 1e-12), "as cNMF's spectra");
    let one = factor(names[0].as_ref(), "V");
    for column in v.columns() {
        let cosine =
            |other: ndarray::ArrayView1<'_, f64>| column.dot(&other) / (column.dot(&column) * other.dot(&other)).sqrt();
        assert!(one.columns().into_iter().map(cosine).fold(0.0, f64::max) > 0.99);
    }
    assert_eq!(answer(&choose(4, 2.0))["left_out"], 0);
    fednmf(0, &choose(3, 0.3)).own_process().refused(&["--density-threshold 0.3", "at least 4"]);
    fednmf(0, &choose(4, 1e-9)).own_process().refused(&["components are not outlying", "larger threshold"]);
}

#[test]
fn runs_that_cannot_be_compared_are_refused() {
    let dir = tempdir().unwrap();
    let run = |name: &str, line: &str| {
        let path = dir.path().join(name).display().to_string();
        let done = fednmf(0, &format!("--max-iters 5 --output {path} {line}")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        path
    };
    let small = "--input synthetic:planted,m=30,n=20,k=3,seed=1";
    let a = run("a.h5", &format!("{small} --algo hals -k 2 --seed 1"));
    let same = run("same.h5", &format!("{small} --algo hals -k 2 --seed 1"));
    let other_method = run("mu.h5", &format!("{small} --algo mu -k 2 --seed 2"));
    let other_shape = run("m.h5", "--input synthetic:planted,m=31,n=20,k=3,seed=1 --algo hals -k 2 --seed 2");
    let scaled = run("scaled.h5", &format!("{small} --algo hals -k 2 --seed 2 --scale max"));
    let silent = run("silent.h5", &format!("{small} --algo hals -k 2 --seed 2 --eval-every 0"));
    let refused = |other: &str, words: &[&str]| fednmf(0, &format!("choose {a} {other}")).own_process().refused(words);
    refused(&same, &["same.h5", "the same components", "--seed"]);
    refused(&other_method, &["mu.h5", "algo is hals there and mu here"]);
    refused(&other_shape, &["m.h5", "m is 30 there and 31 here"]);
    refused(&scaled, &["scaled.h5", "scale is none there and max here"]);
    refused(&silent, &["silent.h5: has no error", "--eval-every 0", "a.h5 has one"]);
    let other_data = run("d.h5", "--input synthetic:planted,m=30,n=20,k=3,seed=2 --algo hals -k 2 --seed 2");
    refused(&other_data, &["d.h5", "checksum is"]);
    // A sweep's files lack the shape, and what differs is told.
    let sweep = dir.path().join("sweep").display().to_string();
    let done = fednmf(0, &format!("sweep {small} -k 2 --runs 1 --max-iters 5 --quiet --output {sweep}")).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    refused(&format!("{sweep}/k0002-run000.h5"), &["holdout is 0.0 there and 0.05 here"]);
    let copy = dir.path().join("x.npy").display().to_string();
    assert_eq!(fednmf(0, &format!("generate planted,m=9,n=8,k=2 --output {copy}")).run().code, Some(0));
    refused(&copy, &["x.npy"]);
    fednmf(0, &format!("choose {a} --output {a}")).own_process().refused(&["--output"]);
    fednmf(2, &format!("choose {a}")).refused(&["one rank"]);
}
