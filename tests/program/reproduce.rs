//! Every figure of `bench/reproduce` runs on a small scale with bundled data, and gives the columns that it plots.

use std::path::Path;
use std::process::Command;

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn every_figure_runs() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/reproduce");
    let out = Command::new("python3")
        .arg(script)
        .args(["--smoke", "--binary", env!("CARGO_BIN_EXE_fednmf")])
        .env("FEDNMF_MPIRUN", crate::common::mpirun())
        .output()
        .expect("python3 is on the PATH");
    let told = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{told}{}", String::from_utf8_lossy(&out.stderr));
    // the figures of the papers are all in the list
    for figure in ["dsanls-fig2", "dsanls-fig9", "secure-bytes", "fnmf-fig3", "fnmf-table1", "felb-fig2", "felb-table1"]
    {
        assert!(told.contains(&format!("ok      {figure}")), "no {figure} in:\n{told}");
    }
    assert!(told.contains("ok      ppdnmf-fig1a"), "{told}");
}

#[test]
fn an_unknown_figure_is_refused() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/reproduce");
    let out = Command::new("python3").arg(script).arg("no-such-figure").output().expect("python3 is on the PATH");
    assert!(
        !out.status.success() && String::from_utf8_lossy(&out.stderr).contains("no figure no-such-figure"),
        "{out:?}"
    );
}
