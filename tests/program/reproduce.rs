//! Every figure of `bench/run reproduce` runs on a small scale with bundled data, and gives the columns that it plots.
//! The comparison in README.md equals its record.

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
fn the_comparison_in_the_readme_equals_its_record() {
    let out = bench("run").args(["readme", "--check"]).output().expect("python3 is on the PATH");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
