//! The methods on secret shares: their factors, what they send, and what they refuse.

use ndarray::Array2;
use tempfile::tempdir;

use fednmf_methods::federated::mpc::words;

#[cfg(feature = "sites")]
use crate::common::sites::{NAMES, Stage};
use crate::common::{distance, factor, fednmf, npy, number};

/// Rows of the digits, their number of columns, and components.
const SHAPE: (usize, usize, usize) = (60, 64, 4);

/// The columns of a factor with norm 1, so that scales of the components do not count.
fn directions(mut x: Array2<f64>) -> Array2<f64> {
    for mut column in x.columns_mut() {
        let norm = column.dot(&column).sqrt();
        column /= norm.max(f64::MIN_POSITIVE);
    }
    x
}

/// Exact up to the rounding of fixed-point numbers, on any number of ranks and for any number of parties.
#[test]
fn the_factor_is_that_of_hals_with_the_ridge() {
    let dir = tempdir().unwrap();
    let input = npy(dir.path(), "digits.npy", 0..SHAPE.0);
    let run = |ranks: usize, words: &str, name: &str| {
        let out = dir.path().join(name);
        let line = format!("{words} -k {} --max-iters 12 --seed 5 --input", SHAPE.2);
        let summary = fednmf(ranks, &line).arg(&input).arg("--output").arg(&out).ok();
        (out, number(&summary, "rel_error"))
    };
    // λ = 2⁻¹² relative to the norm of the data.
    let norm2: f64 = {
        let raw = std::fs::read(&input).unwrap();
        raw[raw.len() - SHAPE.0 * SHAPE.1..].iter().map(|entry| f64::from(*entry).powi(2)).sum()
    };
    let alpha = (norm2 / (SHAPE.0 * SHAPE.1) as f64).sqrt() / 4096.0;
    let (exact, error) = run(
        0,
        &format!("--algo hals --alpha-u {alpha} --alpha-v {alpha} --l1-ratio 0 --factor-scale as-found"),
        "exact.h5",
    );
    for (method, opened) in [("mpc-columns", "U"), ("mpc-rows", "V")] {
        let expected = directions(factor(&exact, opened));
        for (ranks, parties) in [(0, 1), (0, 2), (1, 5), (2, 3), (3, 3), (4, 4)] {
            let words = format!("--algo {method} --parties {parties}");
            let (out, found) = run(ranks, &words, &format!("{method}-{ranks}-{parties}.h5"));
            let far = distance(&expected, &directions(factor(&out, opened)));
            // A unit is 6e-8; a reciprocal multiplies it by up to 4096.
            assert!(far < 1e-4, "{words} on {ranks} ranks: {far}");
            // The other factor is the exact fit, so the error is smaller.
            assert!(found <= error + 1e-5 && found > 0.95 * error, "{words} on {ranks} ranks: {found} {error}");
            let (u, v) = (factor(&out, "U"), factor(&out, "V"));
            assert!(u.iter().chain(&v).all(|x| *x >= 0.0));
        }
    }
}

#[test]
fn the_ledger_has_the_bytes_of_the_formula() {
    let dir = tempdir().unwrap();
    let input = npy(dir.path(), "digits.npy", 0..SHAPE.0);
    let ((m, n, k), iterations) = (SHAPE, 3);
    let of_parties = |method: &str, ranks: usize, purpose: &str| -> usize {
        let line = format!("--algo {method} --parties 4 -k {k} --max-iters {iterations} --input");
        let summary = fednmf(ranks, &line).arg(&input).ok();
        let rows = summary["wire"].as_array().unwrap().iter().filter(|row| row["purpose"] == purpose);
        rows.map(|row| row["party_bytes"].as_u64().unwrap() as usize).sum()
    };
    // Sent and received, in words of 8 bytes; three keys of 4 words.
    let bytes = |words: usize| 2 * 8 * words;
    for ranks in [0, 3] {
        let updates = iterations * words(m, k) + (iterations - 1) * words(n, k);
        assert_eq!(of_parties("mpc-columns", ranks, "secret shares"), bytes(updates + 12));
        let updates = iterations * (words(m, k) + words(n, k));
        assert_eq!(of_parties("mpc-rows", ranks, "secret shares"), bytes(updates + 12));
        // The fourth party sends its quarter to all three, the others theirs to two.
        let data = m * n / 4 * (2 * 4 - 1 - 1) + 4 * (4 + 4 + 8) - (4 + 4 + 8);
        assert_eq!(of_parties("mpc-rows", ranks, "secret shares of the data"), bytes(data));
        // Three components, and the result for the fourth party.
        assert_eq!(of_parties("mpc-rows", ranks, "shared factor, opened"), bytes(4 * n * k));
    }
}

#[test]
fn what_would_open_more_is_refused() {
    let line = "--algo mpc-columns --parties 3 -k 2";
    for (more, words) in [
        ("--eval-every 5", &["--eval-every", "--eval-every 0"][..]),
        ("--tol 1e-3", &["--tol", "--max-iters"]),
        ("--target-error 0.1", &["--target-error", "--max-iters"]),
        ("--dp gaussian", &["--dp"]),
        ("--secure-sum", &["--secure-sum"]),
    ] {
        fednmf(0, &format!("{line} {more}")).refused(words);
    }
    let summary = fednmf(0, &format!("{line} --eval-every 0 --max-iters 2")).ok();
    assert!(summary["rel_error"].is_null(), "{summary}");
    assert_eq!((&summary["opened_factors"], &summary["opened_errors"]), (&1.into(), &0.into()), "{summary}");
}

/// A run that stops before its end and can be resumed opens nothing, and opens no other iteration later.
#[test]
fn a_stopped_run_opens_nothing_and_a_resumed_one_the_result() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let input = npy(dir.path(), "digits.npy", 0..SHAPE.0);
    let run = |more: &str, out: &str| {
        let line = format!("--algo mpc-rows --parties 3 -k 3 --secret-seed 7 {more} --input");
        fednmf(0, &line).arg(&input).arg("--output").arg(file(out))
    };
    let with_checkpoint = |more: &str, out: &str| run(more, out).arg("--checkpoint").arg(file("c.h5"));
    let stopped = with_checkpoint("--max-iters 1000 --time-limit 0.3", "early.h5").run();
    assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
    assert!(!file("early.h5").exists() && stopped.stdout.contains("factors   not written"), "{}", stopped.stdout);
    with_checkpoint("--max-iters 1 --resume", "other.h5").refused(&["--max-iters 1:", "resume with --max-iters 1000"]);
    let summary = with_checkpoint("--max-iters 1000 --resume", "end.h5").ok();
    assert!(number(&summary, "iter") == 1000.0 && file("end.h5").exists(), "{summary}");
    assert!(number(&summary, "rel_error") < 0.6, "{summary}");
    with_checkpoint("--max-iters 1001 --resume", "other.h5").refused(&["resume with --max-iters 1000"]);
    run("--max-iters 1000", "whole.h5").ok();
    assert_eq!(factor(&file("end.h5"), "V"), factor(&file("whole.h5"), "V"));
}

/// The ridge and the rounding cost less than 1 % of the error on data with noise, in at most twice the iterations.
#[test]
fn the_error_comes_within_one_percent_of_hals() {
    let dir = tempdir().unwrap();
    let digits = npy(dir.path(), "digits.npy", 0..SHAPE.0).display().to_string();
    for (input, k) in [(digits.as_str(), 4), ("synthetic:planted,m=80,n=60,k=5,noise=0.1", 5)] {
        let error =
            |words: &str| number(&fednmf(0, &format!("{words} -k {k} --seed 3 --input {input}")).ok(), "rel_error");
        let exact = error("--algo hals --max-iters 30 --eval-every 30");
        for method in ["mpc-columns", "mpc-rows"] {
            let found = error(&format!("--algo {method} --parties 3 --max-iters 60"));
            assert!(found <= 1.01 * exact, "{method} on {input}: {found} {exact}");
        }
    }
}

#[test]
#[cfg(feature = "sites")]
fn sites_compute_what_one_job_computes() {
    for (words, opened) in
        [("--algo mpc-rows -k 3 --max-iters 3", "V"), ("--algo mpc-columns --transpose -k 3 --max-iters 3", "U")]
    {
        let mut stage = Stage::new();
        stage.start_hub("");
        stage.start_sites(&format!("{words} --json --output {{site}}/f.h5 --transcript {{site}}/s.jsonl"));
        let summaries = stage.all_well();
        assert!(stage.says("d").contains("sites a, b, c compute"), "{}", stage.says("d"));
        let errors: Vec<f64> =
            summaries.iter().map(|summary| number(&serde_json::from_str(summary).unwrap(), "rel_error")).collect();
        let whole = crate::common::matrix(&stage.by_mpi(words), opened);
        for (site, error) in NAMES.iter().zip(&errors) {
            let own = crate::common::matrix(&stage.at(site).join("f.h5"), opened);
            // Rounded at random.
            let far = distance(&directions(whole.clone()), &directions(own));
            assert!(far < 1e-4 && error.to_bits() == errors[0].to_bits(), "{words}, site {site}: {far} {errors:?}");
            let transcript = stage.at(site).join("s.jsonl");
            let verified = fednmf(0, "audit verify").arg(&transcript).arg("--ca").arg(stage.keys("ca.pem")).run();
            assert_eq!(verified.code, Some(0), "{}", verified.stderr);
        }
    }
}

/// A run that loses a site opens nothing; all resume it with fresh shares and get the result.
#[test]
#[cfg(feature = "sites")]
fn sites_that_lose_one_resume() {
    let line = "--algo mpc-rows -k 3 --max-iters 40 --json --patience 20 --output {site}/f.h5 --checkpoint {site}/c.h5 \
                --checkpoint-every 5 --resume";
    let mut stage = Stage::new();
    stage.start_hub("--patience 1 --keep");
    stage.start_sites(line);
    stage.wait_for(|stage| NAMES.iter().all(|site| stage.at(site).join("c.h5").exists()));
    stage.sites[1].kill().unwrap();
    for (site, (code, _)) in NAMES.iter().zip(stage.finish_sites()) {
        assert_ne!(code, Some(0), "site {site}: {}", stage.says(site));
        assert!(!stage.at(site).join("f.h5").exists(), "site {site}");
    }
    stage.start_sites(line);
    for (code, summary) in stage.finish_sites() {
        assert_eq!(code, Some(0), "{}", stage.says("a"));
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert!(number(&summary, "resumed_from") >= 5.0 && number(&summary, "rel_error") < 0.6, "{summary}");
    }
}

#[test]
#[cfg(feature = "sites")]
fn a_policy_says_who_may_compute() {
    let mut stage = Stage::new();
    stage.start_hub("");
    std::fs::write(stage.at("p.json"), r#"{"computing": ["a", "b", "d"]}"#).unwrap();
    let words = "--algo mpc-rows -k 3 --max-iters 2";
    let careful = format!("{words} --policy {}", stage.at("p.json").display());
    stage.sites = NAMES
        .iter()
        .map(|site| stage.join(site, if *site == "d" { &careful } else { words }).spawn().unwrap())
        .collect();
    let ends = stage.finish_sites();
    assert!(ends[3].0 == Some(2) && stage.says("d").contains("computing: does not name site c"), "{}", stage.says("d"));
    // Site a may hear of the refusal before it has learned who computes.
    assert!(stage.says("a").contains("site d has refused the run") && ends[0].0 == Some(1), "{}", stage.says("a"));
}

#[test]
fn a_simulation_of_two_parties_is_warned_of() {
    let line = "--algo mpc-rows -k 2 --max-iters 1 --input synthetic:planted,m=40,n=10,k=2 --parties";
    for (parties, warned) in [("1", false), ("2", true), ("3", false)] {
        let done = fednmf(0, line).arg(parties).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert_eq!(done.stderr.contains("with two parties one of them sees all data"), warned, "{}", done.stderr);
    }
}
