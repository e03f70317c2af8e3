//! Starts of the factors, and projections onto given ones.

use crate::common::{data, distance, errors, factor, fednmf, matrix};
use ndarray::Array2;
use ndarray_linalg::SVD;
use tempfile::tempdir;

/// NNDSVD as in the paper, from LAPACK's SVD: U (m × k) and V (n × k).
fn nndsvd(m: &Array2<f64>, k: usize) -> (Array2<f64>, Array2<f64>) {
    let (u, s, vt) = m.svd(true, true).unwrap();
    let (u, vt) = (u.unwrap(), vt.unwrap());
    let (mut w, mut h) = (Array2::zeros((m.nrows(), k)), Array2::zeros((m.ncols(), k)));
    let norm = |x: &ndarray::Array1<f64>| x.dot(x).sqrt();
    for j in 0..k {
        let halves = [1.0, -1.0].map(|sign| {
            let (x, y) = (u.column(j).mapv(|a| (sign * a).max(0.0)), vt.row(j).mapv(|a| (sign * a).max(0.0)));
            (norm(&x) * norm(&y), x, y)
        });
        let (product, x, y) = if halves[0].0 >= halves[1].0 { &halves[0] } else { &halves[1] };
        let weight = (s[j] * product).sqrt();
        if *product > 0.0 {
            w.column_mut(j).assign(&(x * (weight / norm(x))));
            h.column_mut(j).assign(&(y * (weight / norm(y))));
        }
    }
    (w, h)
}

#[test]
fn nndsvd_equals_that_of_the_paper_on_any_grid() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    // Of rank 9: the leading vectors are exact for any sketch.
    for (kind, extra) in [("planted", "k=9,noise=0"), ("sparse", "density=0.1")] {
        let spec = format!("{kind},m=70,n=43,seed=3,{extra}");
        let m = file(if kind == "planted" { "m.npy" } else { "m.mtx" });
        assert_eq!(fednmf(0, &format!("generate {spec} --output")).arg(&m).run().code, Some(0));
        let mut first: Option<(Array2<f64>, Array2<f64>)> = None;
        for (ranks, grid) in [(0, "1x1"), (2, "2x1"), (4, "2x2")] {
            let line = format!(
                "--algo hals -k 5 --init nndsvd --max-iters 0 --factor-scale as-found --grid {grid} --input synthetic:{spec}"
            );
            fednmf(ranks, &line).arg("--output").arg(file("o.h5")).ok();
            let (u, v) = (matrix(&file("o.h5"), "U"), matrix(&file("o.h5"), "V"));
            let (a, b) = first.get_or_insert_with(|| (u.clone(), v.clone()));
            assert!(distance(a, &u) < 1e-6 && distance(b, &v) < 1e-6, "{kind} {grid}");
        }
        let (u, v) = first.unwrap();
        let whole = if kind == "planted" { npy(&m) } else { mtx(&m) };
        let (w, h) = nndsvd(&whole, 5);
        // Sparse noise has no spectral gap, so a few passes only approximate LAPACK's vectors.
        let near = if kind == "planted" { 1e-7 } else { 0.05 };
        assert!(
            distance(&w, &u) < near && distance(&h, &v) < near,
            "{kind}: {} {}",
            distance(&w, &u),
            distance(&h, &v)
        );
    }
    let line = "--algo mu -k 5 --init nndsvd --max-iters 30 --input";
    let summary = fednmf(2, line).arg(data("digits.npy")).arg("--trace").arg(file("t.jsonl")).ok();
    let first = errors(&file("t.jsonl"))[0].1;
    assert!(summary["rel_error"].as_f64().unwrap() < 0.9 * first, "{summary}");
}

fn npy(path: &std::path::Path) -> Array2<f64> {
    let bytes = std::fs::read(path).unwrap();
    let values: Vec<f64> =
        bytes[bytes.len() - 70 * 43 * 8..].chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    Array2::from_shape_vec((70, 43), values).unwrap()
}

fn mtx(path: &std::path::Path) -> Array2<f64> {
    let mut out = Array2::zeros((70, 43));
    let text = std::fs::read_to_string(path).unwrap();
    for line in text.lines().filter(|l| !l.starts_with('%')).skip(1) {
        let words: Vec<f64> = line.split_whitespace().map(|w| w.parse().unwrap()).collect();
        out[[words[0] as usize - 1, words[1] as usize - 1]] = words[2];
    }
    out
}

#[test]
fn a_run_continues_from_given_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |ranks, words: &str, out: &str| {
        let line = format!("--algo hals -k 6 --seed 2 {words} --factor-scale as-found --input");
        fednmf(ranks, &line).arg(data("digits.npy")).arg("--output").arg(file(out)).ok();
    };
    run(2, "--max-iters 20", "whole.h5");
    run(0, "--max-iters 10", "half.h5");
    let init = format!("--max-iters 10 --init {}", file("half.h5").display());
    run(3, &init, "rest.h5");
    for name in ["U", "V"] {
        assert!(distance(&factor(&file("whole.h5"), name), &factor(&file("rest.h5"), name)) < 1e-9);
    }
    // Also in the other precision.
    run(0, &format!("{init} --precision f32"), "narrow.h5");
    let line = format!("--algo hals -k 5 --init {} --input", file("half.h5").display());
    fednmf(2, &line).arg(data("digits.npy")).refused(&["--init", "1797 x 6", "1797 x 5"]);
    fednmf(0, "--algo hals --init no-such.h5").refused(&["--init", "no-such.h5"]);
    fednmf(0, "--algo dsanls --init nndsvd").refused(&["--init", "dsanls"]);
    // Also with a sketched method: its first error is their last.
    let line = format!("--algo dsanls -k 6 --max-iters 0 --init {} --input", file("half.h5").display());
    let started = fednmf(3, &line).arg(data("digits.npy")).ok()["rel_error"].as_f64().unwrap();
    let found = fednmf(0, "evaluate --json --input").arg(data("digits.npy")).arg(file("half.h5")).run();
    let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
    assert!((started - found["rel_error"].as_f64().unwrap()).abs() < 1e-9);
}

#[test]
fn a_projection_is_the_update_of_u() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for precision in ["f64", "f32"] {
        for (iterations, out) in [(6, "before.h5"), (7, "after.h5")] {
            let line = format!(
                "--algo bpp -k 6 --seed 2 --max-iters {iterations} --precision {precision} --factor-scale as-found --input"
            );
            fednmf(2, &line).arg(data("digits.npy")).arg("--output").arg(file(out)).ok();
        }
        for ranks in [0, 3] {
            let run = fednmf(ranks, "project --json --quiet --input").arg(data("digits.npy")).arg(file("before.h5"));
            let done = run.arg("--output").arg(file("u.h5")).run();
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            let near = if precision == "f64" { 1e-9 } else { 1e-3 };
            assert!(distance(&matrix(&file("after.h5"), "U"), &matrix(&file("u.h5"), "U")) < near);
            let told: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
            let found = fednmf(0, "evaluate --json --input").arg(data("digits.npy")).arg(file("u.h5")).run();
            let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
            assert!((told["rel_error"].as_f64().unwrap() - found["rel_error"].as_f64().unwrap()).abs() < 1e-12);
        }
    }
    fednmf(2, "project --transpose --input")
        .arg(data("digits.npy"))
        .arg(file("before.h5"))
        .refused(&["V has 64", "--transpose"]);
}
