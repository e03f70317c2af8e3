//! Weighted draws and variance reduction: samples between exact products, and their messages.

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{data, distance, fednmf, matrix};

const SPARSE: &str = "synthetic:sparse,m=300,n=150,density=0.05,seed=4";

fn inputs() -> [String; 2] {
    [data("digits.npy").display().to_string(), SPARSE.to_string()]
}

fn error(summary: &Value) -> f64 {
    summary["rel_error"].as_f64().unwrap()
}

#[test]
fn weighted_draws_give_the_same_bits_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    for input in inputs() {
        for precision in ["f64", "f32"] {
            let run = |ranks: usize| {
                let out = dir.path().join(format!("{ranks}.h5"));
                let line = format!(
                    "--algo dsanls --sketch weighted -k 5 --max-iters 30 --seed 3 --factor-scale as-found --precision \
                     {precision} --input {input}"
                );
                fednmf(ranks, &line).arg("--output").arg(&out).ok();
                (matrix(&out, "U"), matrix(&out, "V"))
            };
            let alone = run(1);
            for ranks in 2..=4 {
                assert!(alone == run(ranks), "{input}, {precision}, {ranks} ranks");
            }
        }
    }
}

#[test]
fn weights_are_the_default_on_sparse_data_and_win_there() {
    let run = |words: &str| fednmf(1, &format!("--algo dsanls -k 6 --max-iters 60 {words} --input {SPARSE}")).ok();
    let [plain, weighted, default] = ["--sketch subsample", "--sketch weighted", ""].map(run);
    assert_eq!(default["params"]["sketch"], "weighted");
    assert_eq!(error(&default), error(&weighted));
    assert!(error(&weighted) < error(&plain), "{} {}", error(&weighted), error(&plain));
    let dense = fednmf(1, "--algo dsanls -k 6 --max-iters 2 --input").arg(data("digits.npy")).ok();
    assert_eq!(dense["params"]["sketch"], "subsample");
}

#[test]
fn weights_are_refused_where_parties_keep_their_data() {
    for algo in ["dsanls-secure", "syn-ssd-uv", "asyn-ssd-v", "secure-hals"] {
        fednmf(0, &format!("--algo {algo} --sketch weighted")).refused(&[
            "--sketch weighted",
            "other parties",
            "dsanls",
        ]);
    }
    fednmf(0, "--algo dsanls --sketch heavy").refused(&["--sketch heavy", "weighted", "subsample"]);
    for words in ["--missing m.txt", "--holdout 0.1"] {
        fednmf(0, &format!("--algo vr-dsanls {words}")).refused(&[words.split(' ').next().unwrap(), "hals"]);
    }
    fednmf(0, "--algo vr-dsanls --init nndsvd").refused(&["--init", "vr-dsanls"]);
}

#[test]
fn an_epoch_of_one_iteration_is_hals() {
    let dir = tempdir().unwrap();
    for input in inputs() {
        for ranks in [1, 3] {
            let run = |name: &str, line: &str| {
                let out = dir.path().join(name);
                fednmf(ranks, &format!("{line} -k 4 --seed 2 --max-iters 15 --input {input} --output")).arg(&out).ok();
                (matrix(&out, "U"), matrix(&out, "V"))
            };
            let (u, v) = run("hals.h5", "--algo hals --inner-sweeps 2");
            let (a, b) = run("vr.h5", "--algo vr-dsanls --epoch 1 --extrapolation none --inner-sweeps 2");
            assert!(distance(&u, &a) < 1e-9 && distance(&v, &b) < 1e-9, "{input} on {ranks} ranks");
        }
    }
}

/// A fixed point of HALS is also one of sampled iterations.
#[test]
fn fixed_points_are_those_of_hals() {
    let dir = tempdir().unwrap();
    let (there, out) = (dir.path().join("hals.h5"), dir.path().join("vr.h5"));
    let input = "--input synthetic:planted,m=60,n=40,k=3,noise=0.1 -k 3";
    fednmf(1, &format!("--algo hals --max-iters 20000 --eval-every 0 {input} --output")).arg(&there).ok();
    let line = format!("--algo vr-dsanls --epoch 5 --sketch-size 10 --max-iters 60 {input} --init {}", there.display());
    for more in ["", "--extrapolation none"] {
        fednmf(2, &format!("{line} {more} --output")).arg(&out).ok();
        for name in ["U", "V"] {
            let moved = distance(&matrix(&there, name), &matrix(&out, name));
            assert!(moved < 1e-7, "{name} moved by {moved} {more}");
        }
    }
}

/// DSANLS does not reach the error of HALS; with variance reduction it does.
#[test]
fn there_is_no_error_floor() {
    let input = "--input synthetic:planted,m=300,n=200,k=4,noise=0.1,seed=3 -k 4 --seed 2";
    for precision in ["f64", "f32"] {
        let run = |line: &str| error(&fednmf(1, &format!("--algo {line} {input} --precision {precision}")).ok());
        let exact = run("hals --max-iters 2000 --eval-every 500");
        let reduced = run("vr-dsanls --epoch 5 --sketch-size 30 --max-iters 2000 --eval-every 500");
        let plain = run("dsanls --sketch weighted --sketch-size 30 --max-iters 2000 --eval-every 500");
        assert!(reduced < exact * (1.0 + 1e-4), "{precision}: {reduced}, HALS {exact}");
        assert!(plain > exact * (1.0 + 1e-3), "{precision}: {plain}, HALS {exact}");
    }
}

fn words_of(summary: &Value, kinds: &[&str]) -> (u64, u64) {
    let rows = || summary["wire"].as_array().unwrap().iter();
    let sum = |column: &str| -> u64 {
        rows().filter(|r| kinds.contains(&r["purpose"].as_str().unwrap())).map(|r| r[column].as_u64().unwrap()).sum()
    };
    (sum("party_bytes") / 8, sum("mpi_bytes") / 8)
}

#[test]
fn exact_iterations_send_what_hals_sends_and_the_others_their_sketches() {
    let (k, d_u, d_v) = (5, 30, 20);
    for (m, n, cut) in [(200, 120, "rows"), (110, 240, "columns")] {
        let input = format!("--input synthetic:planted,m={m},n={n},k=4 -k {k} --eval-every 0");
        for ranks in [1, 2, 4] {
            // Two exact iterations, then one of each three: 1, 2, 5 and 8.
            let line = "--algo vr-dsanls --extrapolation none --epoch 3 --max-iters 8";
            let run = fednmf(ranks, &format!("{line} --sketch-size {d_u},{d_v} {input}")).ok();
            let grid = if cut == "rows" { format!("{ranks}x1") } else { format!("1x{ranks}") };
            let hals = fednmf(ranks, &format!("--algo hals --grid {grid} --max-iters 4 {input}")).ok();
            let products = ["gather U", "gather V", "sum M V", "sum M'U"];
            let evaluations = ["evaluation: squared residual"];
            assert_eq!(words_of(&run, &products), words_of(&hals, &products), "{cut}, {ranks} ranks");
            assert_eq!(words_of(&run, &evaluations), words_of(&hals, &evaluations));
            // The objective before and after U's update, two words each.
            let (grams, objectives) = (["Gram of U", "Gram of V"], (4 * 2 * 4 * ranks) as u64);
            assert_eq!(words_of(&run, &grams).0, words_of(&hals, &grams).0 + objectives, "{cut}, {ranks} ranks");
            let sketches = 4 * 2 * ranks * ((d_u + d_v) * (k + 2) + 4 * k * k);
            let found = words_of(&run, &["sketched change of U", "sketched change of V"]);
            assert_eq!(found, (sketches as u64, if ranks == 1 { 0 } else { sketches as u64 }), "{ranks} ranks");
            let scores = 4 * 2 * 4 * ranks * (ranks + 1);
            assert_eq!(words_of(&run, &["scores of U", "scores of V"]).0, scores as u64, "{ranks} ranks");
        }
    }
}

#[test]
fn weighted_draws_send_two_words_more_for_each_and_no_norms_of_rows() {
    for ranks in [1, 2, 4] {
        let line = "--algo dsanls --sketch weighted --input synthetic:planted,m=200,n=120,k=4 -k 5 --eval-every 0";
        let run = fednmf(ranks, &format!("{line} --sketch-size 30,20 --max-iters 7")).ok();
        let expected = (7 * 2 * ranks * (30 + 20) * (5 + 2)) as u64;
        assert_eq!(words_of(&run, &["sketched U", "sketched V"]).0, expected);
        let scores = (7 * 2 * 4 * ranks * (ranks + 1)) as u64;
        assert_eq!(words_of(&run, &["scores of U", "scores of V"]).0, scores, "{ranks} ranks");
    }
}
