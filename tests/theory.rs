//! What the DSANLS paper proves something about: bounded factors (22), and stationary points (Theorem 1).

mod common;

use common::{data, events, fednmf, matrix};
use ndarray::Array2;
use tempfile::tempdir;

/// The norm of the projected gradient, by its definition.
fn projected_gradient(m: &Array2<f64>, u: &Array2<f64>, v: &Array2<f64>) -> f64 {
    let residual = u.dot(&v.t()) - m;
    let part = |x: &Array2<f64>, gradient: Array2<f64>| -> f64 {
        x.iter().zip(&gradient).map(|(&x, &g)| if x > 0.0 || g < 0.0 { g * g } else { 0.0 }).sum()
    };
    (part(u, residual.dot(v)) + part(v, residual.t().dot(u))).sqrt()
}

fn digits() -> Array2<f64> {
    let bytes = std::fs::read(data("digits.npy")).unwrap();
    let entries = bytes[bytes.len() - 1797 * 64..].iter().map(|&b| f64::from(b)).collect();
    Array2::from_shape_vec((1797, 64), entries).unwrap()
}

#[test]
fn the_projected_gradient_is_that_of_the_factors() {
    let (dir, m) = (tempdir().unwrap(), digits());
    let (trace, out) = (dir.path().join("t.jsonl"), dir.path().join("o.h5"));
    for algo in ["hals", "mu", "bpp", "dsanls"] {
        for ranks in [1, 4] {
            fednmf(ranks, &format!("--algo {algo} -k 6 --max-iters 9 --eval-every 3 --measure projected-gradient"))
                .arg("--input")
                .arg(data("digits.npy"))
                .arg("--trace")
                .arg(&trace)
                .arg("--output")
                .arg(&out)
                .ok();
            let all = events(&trace);
            let found: Vec<f64> = all.iter().filter_map(|e| e["projected_gradient"].as_f64()).collect();
            // the start, three evaluations, and the end
            assert_eq!(found.len(), 5, "{algo} {ranks}");
            let expected = projected_gradient(&m, &matrix(&out, "U"), &matrix(&out, "V"));
            assert!((found[4] - expected).abs() < 1e-8 * expected, "{algo} {ranks}: {} {expected}", found[4]);
        }
    }
}

#[test]
fn it_vanishes_where_hals_comes_to_rest() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    let line = "--algo hals --input synthetic:planted,m=40,n=30,k=3 -k 3 --max-iters 4000 --eval-every 2000";
    fednmf(2, &format!("{line} --measure projected-gradient --trace")).arg(&trace).ok();
    let found: Vec<f64> = events(&trace).iter().filter_map(|e| e["projected_gradient"].as_f64()).collect();
    assert!(found.last().unwrap() < &(1e-6 * found[0]), "{found:?}");
}

#[test]
fn bounded_factors_are_within_the_bound_and_others_not() {
    let dir = tempdir().unwrap();
    let (input, out) = (dir.path().join("m.mtx"), dir.path().join("o.h5"));
    // One large entry: from a small start the first update overshoots.
    let mut text = String::from("%%MatrixMarket matrix array real general\n200 4\n");
    (0..800).for_each(|i| text += if i == 17 { "100\n" } else { "0.001\n" });
    std::fs::write(&input, text).unwrap();
    let bound = (2.0f64 * (100.0f64.powi(2) + 799.0 * 1e-6).sqrt()).sqrt();
    for (solver, alpha) in [("pcd", 0), ("pgd", 1)] {
        let largest = |option: &str| {
            let line = format!(
                "--algo dsanls -k 2 --max-iters 1 --sketch-size 100% --mu-alpha {alpha} --solver {solver} {option}"
            );
            fednmf(2, &format!("{line} --input")).arg(&input).arg("--output").arg(&out).ok();
            let all = [matrix(&out, "U"), matrix(&out, "V")];
            all.iter().flatten().fold(0.0, |a: f64, &b| a.max(b))
        };
        assert!(largest("") > bound, "{solver}");
        assert!(largest("--bound") <= bound * (1.0 + 1e-12), "{solver}");
    }
    fednmf(1, "--algo hals --bound").refused(&["--bound", "dsanls"]);
}
