//! The exact methods on grids of ranks: the traffic follows the formula, and the grid does not change the result.

use crate::common::{data, distance, events, fednmf, matrix};
use serde_json::Value;
use tempfile::tempdir;

const GRIDS: [(usize, usize); 6] = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 3)];

/// Bytes that all ranks passed to MPI and received from it for a message kind.
fn bytes(summary: &Value, purpose: &str) -> u64 {
    let rows = summary["wire"].as_array().unwrap().iter();
    rows.filter(|row| row["purpose"] == purpose).map(|row| row["mpi_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn bytes_are_those_of_mpi_faun() {
    let (m, n, k, iterations) = (90, 70, 5, 6);
    for (algo, input, precision, word) in [
        ("hals", "synthetic:planted,m=90,n=70,k=5", "f64", 8),
        ("hals", "synthetic:sparse,m=90,n=70,density=0.1,law=power", "f64", 8),
        ("mu", "synthetic:sparse,m=90,n=70,density=0.1", "f32", 4),
        ("bpp", "synthetic:planted,m=90,n=70,k=5", "f64", 8),
    ] {
        for (pr, pc) in GRIDS {
            let line = format!("--algo {algo} --input {input} -k {k} --precision {precision} --grid {pr}x{pc}");
            let run = fednmf(pr * pc, &format!("{line} --max-iters {iterations} --eval-every 0")).ok();
            let what = format!("{algo} {input} {pr}x{pc}");
            // An all-gather of V among the pr ranks of a grid column: together they contribute it once, and each
            // receives the whole block; likewise for a reduce-scatter. The grid columns together have n rows.
            let moved = |parts: usize, rows: usize| if parts > 1 { (parts + 1) * rows * k } else { 0 };
            let gram = if pr * pc > 1 { 2 * k * k * pr * pc } else { 0 };
            for (purpose, words) in [
                ("gather V", moved(pr, n)),
                ("sum M'U", moved(pr, n)),
                ("gather U", moved(pc, m)),
                ("sum M V", moved(pc, m)),
                ("Gram of U", gram),
                ("Gram of V", gram),
            ] {
                assert_eq!(bytes(&run, purpose), (iterations * words * word) as u64, "{what}: {purpose}");
            }
        }
    }
}

#[test]
fn the_grid_does_not_change_the_result() {
    let dir = tempdir().unwrap();
    let digits = data("digits.npy").display().to_string();
    for algo in ["hals", "mu", "bpp"] {
        for input in [digits.as_str(), "synthetic:sparse,m=300,n=150,density=0.05,seed=4"] {
            let mut first = None;
            for (pr, pc) in GRIDS {
                let file = dir.path().join("o.h5");
                let line = format!("--algo {algo} --input {input} -k 5 --max-iters 20 --seed 3 --grid {pr}x{pc}");
                let error = fednmf(pr * pc, &line).arg("--output").arg(&file).ok()["rel_error"].as_f64().unwrap();
                let (u, v) = (matrix(&file, "U"), matrix(&file, "V"));
                let (e, a, b) = first.get_or_insert_with(|| (error, u.clone(), v.clone()));
                assert!((error - *e).abs() <= 1e-9 * *e, "{line}: {error} {e}");
                assert!(distance(a, &u) < 1e-7 && distance(b, &v) < 1e-7, "{line}");
            }
        }
    }
}

#[test]
fn the_default_grid_has_the_least_traffic_and_is_in_the_trace() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    for (ranks, m, n, grid) in [(4, 60, 60, "2x2"), (4, 600, 60, "4x1"), (4, 60, 600, "1x4"), (6, 60, 90, "2x3")] {
        let line = format!("--algo hals --input synthetic:planted,m={m},n={n} --max-iters 2");
        fednmf(ranks, &line).arg("--trace").arg(&trace).ok();
        assert_eq!(events(&trace)[0]["params"]["grid"], grid, "{m} x {n} on {ranks}");
    }
}

#[test]
fn a_run_resumes_on_another_grid() {
    let dir = tempdir().unwrap();
    let checkpoint = dir.path().join("c.h5");
    let line = "--algo hals --input synthetic:planted,m=60,n=50 -k 4";
    let whole = fednmf(1, &format!("{line} --max-iters 12")).ok();
    fednmf(4, &format!("{line} --max-iters 6 --grid 2x2 --checkpoint")).arg(&checkpoint).ok();
    let resumed = fednmf(3, &format!("{line} --max-iters 12 --grid 1x3 --resume --checkpoint")).arg(&checkpoint).ok();
    let error = |run: &Value| run["rel_error"].as_f64().unwrap();
    assert!((error(&whole) - error(&resumed)).abs() < 1e-9, "{whole} {resumed}");
}

#[test]
fn a_grid_that_does_not_fit_is_refused() {
    fednmf(3, "--algo hals --grid 2x2").refused(&["--grid 2x2", "4 ranks", "has 3"]);
    fednmf(1, "--algo mu --grid 99999999999999x99999999999999").refused(&["--grid", "far too many"]);
    fednmf(2, "--algo dsanls --grid 2x1").refused(&["--grid", "hals, bpp, mu"]);
}
