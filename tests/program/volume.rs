//! The minimum-volume penalty on V: its objective falls, it makes components unique, and what cannot have it refuses
//! it.

use std::path::Path;

use ndarray::{Array2, Axis};
use tempfile::tempdir;

use crate::common::{distance, events, factor, fednmf, number, save_npy};

const COUNTS: &str = "synthetic:sparse,m=90,n=70,density=0.3,values=counts";

/// log det of a symmetric positive definite matrix, by elimination.
fn log_determinant(mut a: Array2<f64>) -> f64 {
    let mut sum = 0.0;
    for i in 0..a.nrows() {
        sum += a[[i, i]].ln();
        for r in i + 1..a.nrows() {
            let by = a[[r, i]] / a[[i, i]];
            let row = a.row(i).to_owned();
            a.row_mut(r).scaled_add(-by, &row);
        }
    }
    sum
}

/// log det(I + 100 n VᵀV) with columns of V of sum 1.
fn volume(v: &Array2<f64>) -> f64 {
    let v = v / &v.sum_axis(Axis(0));
    log_determinant(Array2::<f64>::eye(v.ncols()) + v.t().dot(&v) * (100.0 * v.nrows() as f64))
}

/// The objective falls in every iteration, on any number of ranks, and is the divergence and the penalty of the
/// factors; a resumed run has the same bits.
#[test]
fn the_objective_falls_in_every_iteration() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for words in ["", "--alpha-u 0.05 --alpha-v 0", "--init random"] {
        let line = format!(
            "--algo kl-mu --min-volume 0.01 {words} -k 5 --seed 3 --max-iters 60 --eval-every 1 --input {COUNTS}"
        );
        let mut first = None;
        for ranks in [0, 2, 3, 4] {
            let run = fednmf(ranks, &line).arg("--output").arg(file("o.h5")).arg("--trace").arg(file("t.jsonl"));
            let summary = run.ok();
            let of = |event: &serde_json::Value| event["objective"].as_f64();
            let values: Vec<f64> = events(&file("t.jsonl")).iter().filter_map(of).collect();
            let falls = |pair: &[f64]| pair[1] <= pair[0] * (1.0 + 1e-12);
            assert!(values.len() > 60 && values.windows(2).all(falls), "{words} on {ranks}: {values:?}");
            let (u, v) = (factor(&file("o.h5"), "U"), factor(&file("o.h5"), "V"));
            let product = u.dot(&v.t());
            assert!(distance(first.get_or_insert_with(|| product.clone()), &product) < 1e-8, "{words} on {ranks}");
            let evaluated = fednmf(0, "evaluate --json").arg(file("o.h5")).arg("--input").arg(COUNTS).run();
            let told: serde_json::Value = serde_json::from_str(&evaluated.stdout).unwrap();
            let ratio = number(&told, "objective") / number(&summary, "objective");
            assert!((ratio - 1.0).abs() < 1e-9, "{words} on {ranks}: {told} {summary}");
            if !words.contains("alpha") {
                let sum = product.sum();
                let penalty = number(&summary, "objective") - number(&summary, "kl_divergence");
                // The fit has nearly the sum of the matrix.
                assert!((penalty / (0.01 * sum * volume(&v)) - 1.0).abs() < 1e-2, "{words}: {penalty}");
            }
        }
        let saved = |name: &str| fednmf(2, &line).arg("--checkpoint").arg(file("c.h5")).arg("--output").arg(file(name));
        fednmf(2, &line).arg("--output").arg(file("whole.h5")).ok();
        saved("part.h5").arg("--max-iters=7").ok();
        saved("rest.h5").arg("--resume").ok();
        for name in ["U", "V"] {
            assert_eq!(factor(&file("whole.h5"), name), factor(&file("rest.h5"), name), "{words}");
        }
        std::fs::remove_file(file("c.h5")).unwrap();
    }
}

/// The columns of V keep the sum 1 on the way, so that the iterates differ from those of the plain method, but not
/// their limit.
#[test]
fn with_a_tiny_weight_it_ends_as_the_plain_method() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("o.h5");
    for precision in ["f64", "f32"] {
        let run = |iterations: usize, words: &str| {
            let line = format!("--algo kl-mu {words} -k 4 --max-iters {iterations} --tol 0 --precision {precision}");
            let done = fednmf(2, &format!("{line} --input {COUNTS} --output")).arg(&out).ok();
            (factor(&out, "V"), number(&done, "kl_divergence"))
        };
        assert_eq!(run(30, "").0, run(30, "--min-volume 0").0);
        let [plain, small] = ["--extrapolation none", "--min-volume 1e-12"].map(|words| run(3000, words).1);
        assert!((small / plain - 1.0).abs() < 1e-4, "{precision}: {small} {plain}");
    }
}

/// Counts of flat components, which plain factorisations do not find exactly: the planted components (columns × 3).
fn planted(path: &Path) -> Array2<f64> {
    let mut state = 1_u64;
    let mut exponential = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        -(((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64).ln()
    };
    let v = Array2::from_shape_simple_fn((40, 3), || 2.0 + exponential().powf(1.5));
    let v = &v / &v.sum_axis(Axis(0));
    let u = Array2::from_shape_simple_fn((80, 3), || exponential().powi(3));
    let u = &u / &u.sum_axis(Axis(1)).insert_axis(Axis(1));
    save_npy(path, &(u.dot(&v.t()) * 1e6).mapv(f64::round));
    v
}

/// The least cosine of a planted component with the most similar one that was found.
fn least_cosine(planted: &Array2<f64>, found: &Array2<f64>) -> f64 {
    let cosine =
        |a: ndarray::ArrayView1<'_, f64>, b: ndarray::ArrayView1<'_, f64>| a.dot(&b) / (a.dot(&a) * b.dot(&b)).sqrt();
    let best = |a| found.columns().into_iter().map(|b| cosine(a, b)).fold(0.0, f64::max);
    planted.columns().into_iter().map(best).fold(1.0, f64::min)
}

#[test]
fn planted_components_are_found_again() {
    let dir = tempdir().unwrap();
    let (input, out) = (dir.path().join("x.npy"), dir.path().join("o.h5"));
    let parts = planted(&input);
    for seed in 0..3 {
        let found = |words: &str| {
            let line =
                format!("--algo kl-mu {words} -k 3 --seed {seed} --init random --max-iters 1500 --tol 0 --input");
            fednmf(0, &line).arg(&input).arg("--output").arg(&out).ok();
            least_cosine(&parts, &factor(&out, "V"))
        };
        let (with, without) = (found("--min-volume 0.0005"), found(""));
        assert!(with > 0.995 && with > without + 0.002, "seed {seed}: {with} {without}");
    }
    // In a sweep, each run has the penalty.
    let sweep = dir.path().join("sweep");
    let line =
        "sweep --k 2..4 --runs 4 --algo kl-mu --min-volume 0.0005 --tol 1e-6 --max-iters 3000 --quiet --json --input";
    let run = fednmf(2, line).arg(&input).arg("--output").arg(&sweep).run();
    let summary: serde_json::Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {}", run.stderr));
    assert_eq!(summary["recommended"], 3, "{summary:#}");
    assert!(summary["next_command"].as_str().unwrap().contains("--min-volume 0.0005"), "{summary:#}");
    let consensus = factor(&sweep.join("consensus-k0003.h5"), "V");
    assert!(least_cosine(&parts, &consensus) > 0.995, "{}", least_cosine(&parts, &consensus));
}

#[test]
fn what_cannot_have_it_refuses_it() {
    let dir = tempdir().unwrap();
    for (words, why) in [
        ("--algo hals", &["--min-volume"][..]),
        ("--algo kl-cd", &["--min-volume"]),
        ("--algo kl-mu --alpha-u 0.1", &["--min-volume", "--alpha-v 0"]),
        ("--algo kl-mu --extrapolation restart", &["--min-volume", "--extrapolation"]),
        ("--algo kl-mu --holdout 0.1", &["--min-volume", "--holdout"]),
        ("--algo kl-mu --missing zero-unobserved", &["--min-volume", "--missing"]),
    ] {
        fednmf(0, &format!("{words} --min-volume 0.1 -k 3 --input {COUNTS}")).refused(why);
    }
    for (words, why) in [
        ("", &["--min-volume", "--algo kl-mu"][..]),
        ("--loss kl", &["--min-volume", "--algo kl-mu"]),
        ("--algo kl-mu --holdout 0.1", &["--min-volume", "--holdout"]),
    ] {
        let line = format!("sweep --k 3 {words} --min-volume 0.1 --input {COUNTS} --output");
        fednmf(0, &line).arg(dir.path().join("none")).refused(why);
    }
}
