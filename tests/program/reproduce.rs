//! Every figure of `bench/run reproduce` runs on a small scale with bundled data, and gives the columns that it plots.
//! The comparisons in bench/README.md and in the guide to Python equal their records.

use std::path::Path;
use std::process::Command;

fn bench(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("bench").join(script));
    command
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn every_figure_runs() {
    let out = bench("reproduce")
        .args(["--smoke", "--binary", env!("CARGO_BIN_EXE_fednmf")])
        .env("FEDNMF_MPIRUN", crate::common::mpirun())
        .output()
        .expect("python3 is on the PATH");
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{stdout}{}", String::from_utf8_lossy(&out.stderr));
    // The list still covers the papers.
    for figure in ["dsanls-fig2", "dsanls-fig9", "secure-bytes", "fnmf-fig3", "fnmf-table1", "felb-fig2", "felb-table1"]
    {
        assert!(stdout.contains(&format!("ok      {figure}")), "no {figure} in:\n{stdout}");
    }
    assert!(stdout.contains("ok      ppdnmf-fig1a"), "{stdout}");
}

#[test]
fn an_unknown_figure_is_refused() {
    let out = bench("run").args(["reproduce", "no-such-figure"]).output().expect("python3 is on the PATH");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && stderr.contains("no figure no-such-figure"), "{out:?}");
}

#[test]
fn the_comparisons_equal_their_records() {
    let out = bench("run").args(["tables", "--check"]).output().expect("python3 is on the PATH");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// The examples in the texts of the rule (what holds, what fails, what a single run cannot decide) and of `confirm` (which
/// values are the same).
#[test]
fn verdicts_and_confirmations_follow_their_rules() {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench");
    for rule in ["lib/verdict.py", "commands/confirm.py"] {
        let mut examples = Command::new("python3");
        examples
            .args(["-m", "doctest"])
            .arg(bench.join(rule))
            .env("PYTHONPATH", &bench)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let out = examples.output().expect("python3 is on the PATH");
        assert!(out.status.success(), "{rule}: {}", String::from_utf8_lossy(&out.stdout));
    }
}

/// The page of claims has a line for every claim, with one of the three verdicts, and links to records that exist.
#[test]
fn the_page_of_claims_is_made_from_the_records() {
    let scratch = tempfile::tempdir().unwrap();
    let page = scratch.path().join("claims.md");
    let out = bench("run").args(["claims", "--out"]).arg(&page).output().expect("python3 is on the PATH");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(&page).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| **")).collect();
    assert!(rows.len() > 50, "{} claims", rows.len());
    let verdicts = ["| **holds**", "| **fails**", "| **undecided**"];
    assert!(rows.iter().all(|row| verdicts.iter().any(|verdict| row.starts_with(verdict))), "{text}");
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench");
    for row in rows {
        let Some((_, link)) = row.split_once("](") else { continue };
        let path = link.split_once(')').map(|(path, _)| path).unwrap();
        assert!(bench.join(path).exists(), "{row}");
    }
}
