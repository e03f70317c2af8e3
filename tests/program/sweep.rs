//! The choice of k on a matrix with known k, in one job and resumed.

use crate::common::fednmf;
use serde_json::Value;
use tempfile::tempdir;

#[test]
fn a_sweep_finds_the_planted_k_and_can_be_resumed() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    let line =
        "sweep --k 2..7 --runs 4 --input synthetic:blocks,m=90,n=60,k=4,noise=0.05,seed=3 --json --quiet --output";
    let run = |ranks: usize, more: &str| {
        let done = fednmf(ranks, &format!("{line} {} {more}", out.display())).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        serde_json::from_str::<Value>(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stdout))
    };
    let found = run(3, "");
    assert_eq!(found["recommended"], 4, "{found:#}");
    assert_eq!(found["points"].as_array().map(Vec::len), Some(6));
    let of = |k: usize| found["points"][k - 2].clone();
    assert!(
        of(4)["stability"]["mean"].as_f64() > Some(0.95) && of(7)["stability"]["mean"].as_f64() < Some(0.9),
        "{found:#}"
    );
    assert!(of(4)["heldout"][0].as_f64() < Some(0.5 * of(3)["heldout"][0].as_f64().unwrap()), "{found:#}");
    assert!(!found["reasons"].as_array().unwrap().is_empty());
    let page = std::fs::read_to_string(out.join("sweep.html")).unwrap();
    assert!(page.contains("Recommended: k = 4") && page.contains("id=\"elbow\"") && page.contains("id=\"stability\""));

    // A missing run is repeated by other ranks in one group with the same result; the other runs stay untouched.
    let removed = out.join("k0004-run002.h5");
    let other = out.join("k0005-run000.h5");
    let before = std::fs::metadata(&other).unwrap().modified().unwrap();
    std::fs::remove_file(&removed).unwrap();
    let again = run(2, "--groups 1");
    assert!(removed.exists() && std::fs::metadata(&other).unwrap().modified().unwrap() == before);
    assert_eq!(again["recommended"], 4);
    let error = |all: &Value| all["points"][2]["rmse"].as_f64().unwrap();
    assert!((error(&found) / error(&again) - 1.0).abs() < 1e-9);
    fednmf(2, &format!("{line} {} --seed 9", out.display())).refused(&["another sweep", "seed"]);
}

#[test]
fn without_held_out_entries_stability_decides() {
    let dir = tempdir().unwrap();
    let line = "sweep --k 3,4,6 --runs 3 --holdout 0 --input synthetic:blocks,m=90,n=60,k=4,noise=0.05,seed=3";
    let done = fednmf(2, line).arg("--output").arg(dir.path()).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stdout.contains("recommended: k = ") && done.stdout.contains("nothing was held out"),
        "{}",
        done.stdout
    );
    // Also for baskets, which store only the positions of ones.
    let baskets =
        fednmf(2, "sweep --k 2,3 --runs 2 --json --quiet --input").arg(crate::common::data("formats/baskets.dat"));
    let done = baskets.arg("--output").arg(dir.path().join("baskets")).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(found["points"].as_array().unwrap().iter().all(|p| p["rmse"].as_f64() < Some(0.5)), "{found:#}");
    for (words, word) in
        [("--k 0", "--k"), ("--k 99", "90 x 60"), ("--k 2 --algo bpp", "bpp"), ("--k 2 --runs 0", "--runs")]
    {
        let line = format!("sweep {words} --input synthetic:planted,m=90,n=60");
        fednmf(2, &line).arg("--output").arg(dir.path()).refused(&[word]);
    }
    assert!(!dir.path().join("k0002-run000.h5").exists());
}
