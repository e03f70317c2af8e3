//! The theorems of the DSANLS paper: bounded factors (22), stationary points (Theorem 1), and the leakage of sketches
//! of the data (Theorem 3).

use std::path::Path;

use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::{data, distance, events, fednmf, matrix, npy, number};

/// The norm of the projected gradient by its definition.
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
            fednmf(ranks, &format!("--algo {algo} -k 6 --max-iters 9 --eval-every 3 --factor-scale as-found --measure projected-gradient"))
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
fn the_projected_gradient_vanishes_where_hals_converges() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    let line = "--algo hals --input synthetic:planted,m=40,n=30,k=3 -k 3 --max-iters 4000 --eval-every 2000";
    fednmf(2, &format!("{line} --measure projected-gradient --trace")).arg(&trace).ok();
    let found: Vec<f64> = events(&trace).iter().filter_map(|e| e["projected_gradient"].as_f64()).collect();
    assert!(found.last().unwrap() < &(1e-6 * found[0]), "{found:?}");
}

#[test]
fn only_bounded_factors_are_within_the_bound() {
    let dir = tempdir().unwrap();
    let (input, out) = (dir.path().join("m.mtx"), dir.path().join("o.h5"));
    // With one large entry the first update overshoots from a small start.
    let mut text = String::from("%%MatrixMarket matrix array real general\n200 4\n");
    (0..800).for_each(|i| text += if i == 17 { "100\n" } else { "0.001\n" });
    std::fs::write(&input, text).unwrap();
    let bound = (2.0f64 * (100.0f64.powi(2) + 799.0 * 1e-6).sqrt()).sqrt();
    for (solver, alpha) in [("pcd", 0), ("pgd", 1)] {
        let largest = |option: &str| {
            let line = format!(
                "--algo dsanls -k 2 --max-iters 1 --sketch-size 100% --mu-alpha {alpha} --solver {solver} {option} --factor-scale as-found"
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

/// Theorem 3: reconstructs M from `releases` sketches with what every party has, the sketches and the public seed.
/// Returns the largest error of an entry relative to the largest entry.
fn attack(dir: &Path, input: &str, m: &Array2<f64>, sketch: &str, d: usize, releases: usize) -> f64 {
    use ndarray::s;
    use ndarray_linalg::LeastSquaresSvd;

    use fednmf_base::words::Words as _;
    use fednmf_linalg::Order;
    use fednmf_linalg::sketch;

    let kind = sketch::SketchKind::parse(sketch).expect("a kind of sketch");
    let (rows, n) = m.dim();
    let (seen, kept) = (dir.join("seen.h5"), dir.join("kept.npz"));
    let line = format!(
        "--algo dsanls-secure --parties 5 --input {input} -k 5 --sketch {sketch} --sketch-size {d},{} --seed 11 \
         --max-releases {releases} --max-iters {releases} --accept-risk sketches --checkpoint",
        rows / 2
    );
    // A checkpoint of another run is not replaced.
    let _ = std::fs::remove_file(&seen);
    fednmf(1, &line).arg(&seen).arg("--record-view").arg(&kept).ok();
    let released = matrix(&seen, "released");
    assert_eq!(released.dim(), (releases * rows, d));
    // Stacks Sᵀ and the sketches of all releases, and solves Sᵀ Mᵀ = (M S)ᵀ for Mᵀ.
    let mut known = Array2::zeros((releases * d, n));
    let mut right = Array2::zeros((releases * d, rows));
    let mut made = sketch::make::<f64>(kind, n, d, n, Order::RowMajor);
    for t in 0..releases {
        let lies = s![t * d..(t + 1) * d, ..];
        made.draw(&sketch::stream(11, true, t));
        made.sketch_rows(0, &Array2::eye(n).view(), &mut known.slice_mut(lies));
        right.slice_mut(lies).assign(&released.slice(s![t * rows..(t + 1) * rows, ..]).t());
    }
    let found = known.least_squares(&right).unwrap().solution;
    let found = found.t().to_owned();
    // The program's own attack gives the same result from only the sums.
    let told = fednmf(0, "audit attack --json").arg(dir.join("kept.rank-00.npz")).run();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let linear = told["findings"].as_array().unwrap().iter().find(|f| f["attack"] == "linear").unwrap();
    let norm = |a: &Array2<f64>| a.iter().map(|x| x * x).sum::<f64>().sqrt();
    let error = number(linear, "rel_error");
    assert!((error - norm(&(m - &found)) / norm(m)).abs() < 1e-6, "{linear}");
    assert_eq!(linear["recovered"] == rows, error < 1e-6, "{told}");
    distance(m, &found)
}

#[test]
fn theorem_3_enough_releases_reveal_the_data() {
    let dir = tempdir().unwrap();
    // Synthetic data, and real digits: 64 pixels × 200 digits.
    let made = dir.path().join("m.npy");
    assert_eq!(fednmf(0, "generate planted,m=50,n=200,k=5 --output").arg(&made).run().code, Some(0));
    let bytes = std::fs::read(&made).unwrap();
    let planted = bytes[bytes.len() - 50 * 200 * 8..].as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b));
    let planted = Array2::from_shape_vec((50, 200), planted.collect()).unwrap();
    let digits = npy(dir.path(), "d.npy", 0..200);
    let bytes = std::fs::read(&digits).unwrap();
    let pixels = bytes[bytes.len() - 200 * 64..].iter().map(|&b| f64::from(b)).collect();
    let real = Array2::from_shape_vec((200, 64), pixels).unwrap().reversed_axes().as_standard_layout().into_owned();
    for (input, m) in [(made.display().to_string(), &planted), (format!("{} --transpose", digits.display()), &real)] {
        // Gaussian, d = 40 of n = 200: five releases suffice, four do not.
        let [four, five] = [4, 5].map(|releases| attack(dir.path(), &input, m, "gaussian", 40, releases));
        assert!(five < 1e-6 && four > 1e-2, "gaussian {input}: {four} {five}");
        // Subsampled: a column is known once it is drawn; after 60 releases all are.
        let [one, many] = [1, 60].map(|releases| attack(dir.path(), &input, m, "subsample", 40, releases));
        assert!(many < 1e-9 && one > 1e-2, "subsample {input}: {one} {many}");
    }
}
