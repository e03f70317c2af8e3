//! β-divergences: the reported number against its definition; projections; zeros; the choice by `--loss`; extrapolation.

use ndarray::Array2;
use tempfile::tempdir;

use crate::common::{data, distance, errors, events, factor, fednmf, number, save_npy};

/// The β-divergence, entry by entry.
fn divergence(beta: f64, m: &Array2<f64>, fit: &Array2<f64>) -> f64 {
    let one = |(&m, &f): (&f64, &f64)| match beta {
        0.0 => m / f - (m / f).ln() - 1.0,
        1.0 => (if m > 0.0 { m * (m / f).ln() } else { 0.0 }) - m + f,
        _ => (m.powf(beta) + (beta - 1.0) * f.powf(beta) - beta * m * f.powf(beta - 1.0)) / (beta * (beta - 1.0)),
    };
    m.iter().zip(fit).map(one).sum()
}

#[test]
fn the_divergence_of_a_run_is_that_of_its_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let m = Array2::from_shape_fn((30, 20), |(i, j)| ((i * 7 + j * 5 + i * j) % 13) as f64);
    save_npy(&file("zeros.npy"), &m);
    save_npy(&file("positive.npy"), &(&m + 0.5));
    for (beta, value) in
        [("itakura-saito", 0.0), ("0.5", 0.5), ("kullback-leibler", 1.0), ("1.5", 1.5), ("2", 2.0), ("3", 3.0)]
    {
        let name = if value > 0.0 { "zeros.npy" } else { "positive.npy" };
        let m = if value > 0.0 { m.clone() } else { &m + 0.5 };
        let line = format!("--algo beta-mu --beta {beta} -k 3 --max-iters 40 --input {}", file(name).display());
        let mut first = None;
        for ranks in [1, 3] {
            let summary = fednmf(ranks, &line).arg("--output").arg(file("o.h5")).ok();
            let product = factor(&file("o.h5"), "U").dot(&factor(&file("o.h5"), "V").t());
            let (told, expected) = (number(&summary, "beta_divergence"), divergence(value, &m, &product));
            assert!((told / expected - 1.0).abs() < 1e-9, "{beta}: {told} {expected}");
            assert!(distance(first.get_or_insert_with(|| product.clone()), &product) < 1e-9, "{beta} on {ranks} ranks");
        }
        let evaluated = fednmf(2, "evaluate --json").arg(file("o.h5")).arg("--input").arg(file(name)).run();
        let evaluated: serde_json::Value = serde_json::from_str(&evaluated.stdout).expect("JSON");
        let told = divergence(value, &m, first.as_ref().unwrap());
        assert!((number(&evaluated, "beta_divergence") / told - 1.0).abs() < 1e-9, "{evaluated} {told}");
        // The best rows of U for V fit at least as well as those of the run.
        let projected = fednmf(2, "project --json").arg(file("o.h5")).arg("--input").arg(file(name)).run();
        let projected: serde_json::Value = serde_json::from_str(&projected.stdout).expect("JSON");
        assert!(number(&projected, "beta_divergence") <= told * (1.0 + 1e-6), "{beta}: {projected} {told}");
        // With missing entries it is another fit, which --quiet does not hide.
        let line = "project --quiet --missing nan";
        let masked = fednmf(0, line).arg(file("o.h5")).arg("--input").arg(file(name)).run();
        let warned = masked.stderr.contains("warning: with --missing U is found by least squares");
        assert_eq!((masked.code, warned), (Some(0), value != 1.0), "{beta}: {}", masked.stderr);
    }
}

#[test]
fn zeros_and_wrong_exponents_are_refused() {
    for ranks in [0, 2] {
        let run =
            |more: &str| fednmf(ranks, &format!("--algo beta-mu -k 2 {more}")).arg("--input").arg(data("digits.npy"));
        run("--beta 0").refused(&["--beta 0", "zero(s)", "add a small number"]);
        run("--beta -0.5").refused(&["--beta -0.5", "zero(s)"]);
        run("--beta 11").refused(&["--beta", "from -10 to 10", "itakura-saito"]);
        run("--beta is").refused(&["--beta 0", "zero(s)"]);
        run("--beta mse").refused(&["--beta mse", "itakura-saito"]);
    }
    fednmf(0, "--algo beta-mu --beta 0 -k 2 --input synthetic:sparse,m=30,n=20,density=0.5").refused(&["zero(s)"]);
}

const PLANTED: &str = "synthetic:planted,m=90,n=60,k=4,noise=0.3";
const COUNTS: &str = "synthetic:sparse,m=90,n=70,density=0.3,values=counts";

#[test]
fn new_rows_with_zeros_have_no_finite_divergence_below_zero() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let m = Array2::from_shape_fn((8, 5), |(i, j)| 1.0 + ((i * 7 + j * 5 + i * j) % 13) as f64);
    let mut with_zero = m.clone();
    with_zero[[2, 3]] = 0.0;
    save_npy(&file("m.npy"), &m);
    save_npy(&file("zero.npy"), &with_zero);
    for beta in ["-1", "-0.5", "0"] {
        fednmf(0, &format!("--loss {beta} -k 2")).arg(file("m.npy")).arg("--output").arg(file("f.h5")).ok();
        let run = fednmf(0, "project").arg(file("f.h5")).arg("--input").arg(file("zero.npy"));
        run.refused(&["zero.npy", "has zeros", beta]);
        let told = fednmf(0, "evaluate --json").arg(file("f.h5")).arg("--input").arg(file("zero.npy")).run();
        assert!(told.code == Some(0) && told.stdout.contains("\"beta_divergence\":null"), "{told:?}");
        assert!(told.stderr.contains("that of a zero from any fit is"), "{told:?}");
    }
}

#[test]
fn the_loss_chooses_the_method() {
    let dir = tempdir().unwrap();
    let positive = dir.path().join("positive.npy");
    save_npy(&positive, &Array2::from_shape_fn((30, 20), |(i, j)| ((i * 7 + j * 5 + i * j) % 13) as f64 + 0.5));
    let positive = positive.display().to_string();
    for (loss, input, algo, measure) in [
        ("frobenius", COUNTS, "hals", "rel_error"),
        ("kl", COUNTS, "kl-mu", "kl_divergence"),
        ("kullback-leibler", positive.as_str(), "kl-mu", "kl_divergence"),
        ("1.5", COUNTS, "beta-mu", "beta_divergence"),
        ("is", positive.as_str(), "beta-mu", "beta_divergence"),
    ] {
        let summary = fednmf(2, &format!("--loss {loss} -k 3 --max-iters 10 --input {input}")).ok();
        assert_eq!(summary["algo"], algo, "{loss}");
        assert!(number(&summary, measure) >= 0.0 && summary["params"]["chosen_by_auto"].is_string(), "{summary}");
        assert_eq!(summary["params"]["init"] == "sampled", algo != "hals", "{summary}");
    }
    // A method that is named has its own loss, which may be repeated.
    for (line, algo) in
        [("kl-mu --loss kl", "kl-mu"), ("hals --loss 2", "hals"), ("beta-mu --beta 3 --loss 3", "beta-mu")]
    {
        let summary = fednmf(0, &format!("--algo {line} -k 3 --max-iters 2 --input {COUNTS}")).ok();
        assert_eq!(summary["algo"], algo);
    }
    for (line, words) in [
        ("--algo hals --loss kl", &["--loss kl", "hals", "frobenius", "leave --algo out"][..]),
        ("--algo kl-cd --loss frobenius", &["kl-cd", "kullback-leibler"]),
        ("--algo beta-mu --loss is", &["beta-mu", "give --beta 0"]),
        ("--algo felb --loss kl", &["felb", "a loss of its own"]),
        ("--loss mse", &["--loss mse", "kullback-leibler or kl"]),
        ("--loss is", &["zero(s)", "add a small number"]),
        ("--loss kl --inner-sweeps 3", &["--inner-sweeps", "squared error only"]),
        ("--loss 0.5 --holdout 0.1", &["--holdout", "--loss frobenius"]),
        ("--loss 0.5 --extrapolation restart", &["--extrapolation", "convex"]),
        ("--loss kl --holdout 0.1 --extrapolation restart", &["--extrapolation", "--holdout"]),
    ] {
        for ranks in [0, 2] {
            fednmf(ranks, &format!("{line} -k 3 --input {COUNTS}")).refused(words);
        }
    }
}

/// `auto` and the methods for divergences stop by themselves, or after the iterations that are requested; the methods of papers
/// run their iterations.
#[test]
fn a_run_stops_by_itself_once_it_has_converged() {
    for loss in ["--loss frobenius", "--loss kl", "--loss 1.5", "--algo kl-mu", "--algo kl-cd", "--algo beta-mu"] {
        let line = format!("{loss} -k 4 --input {PLANTED}");
        let summary = fednmf(2, &line).ok();
        assert_eq!(summary["stopped_by"], "tol", "{loss}: {summary}");
        assert!(number(&summary, "iter") < 1000.0);
        let requested = fednmf(2, &format!("{line} --max-iters 12")).ok();
        assert_eq!((&requested["iter"], &requested["stopped_by"]), (&12.into(), &"max_iters".into()));
        let unseen = fednmf(0, &format!("{line} --eval-every 0")).ok();
        assert_eq!(unseen["iter"], 100);
    }
    for algo in ["hals", "mu", "dsanls"] {
        let summary = fednmf(0, &format!("--algo {algo} -k 4 --input {PLANTED}")).ok();
        assert_eq!((&summary["iter"], &summary["stopped_by"]), (&100.into(), &"max_iters".into()), "{algo}");
    }
}

/// Of the best of several long runs, on data of any scale.
#[test]
fn named_methods_for_divergences_end_near_the_optimum() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("x.npy");
    let blocks =
        Array2::from_shape_fn(
            (40, 32),
            |(i, j)| {
                if i / 10 == j / 8 { 1.0 + ((7 * i + 5 * j) % 11) as f64 / 11.0 } else { 0.0 }
            },
        );
    let counts =
        Array2::from_shape_fn((50, 30), |(i, j)| ((i % 5 + 1) * (j % 3 + 1) * ((3 * i + 2 * j) % 7) / 4) as f64);
    for (x, k) in [(&blocks, 4), (&counts, 6)] {
        for scale in [1.0, 1e-6, 1e6] {
            save_npy(&file, &(x * scale));
            let run = |line: &str| {
                number(&fednmf(0, &format!("{line} -k {k}")).arg("--input").arg(&file).ok(), "kl_divergence")
            };
            let long = |seed| run(&format!("--algo kl-cd --init random --max-iters 2000 --tol 1e-9 --seed {seed}"));
            let best = (0..5).map(long).fold(f64::INFINITY, f64::min);
            for line in ["--algo kl-mu", "--algo kl-cd", "--loss kl"] {
                let found = run(line);
                assert!(found <= 1.02 * best + 1e-9 * scale, "{line} at {scale}: {found} {best}");
            }
            let found = fednmf(0, &format!("--algo beta-mu --beta 1 -k {k}")).arg("--input").arg(&file).ok();
            assert!(number(&found, "beta_divergence") <= 1.02 * best + 1e-9 * scale, "beta-mu at {scale}");
        }
    }
}

/// Rounding errors of singular vectors are zeros, which `nndsvda` fills; multiplicative updates would not leave them.
#[test]
fn a_start_from_singular_vectors_keeps_no_rounding_errors() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("x.npy");
    let blocks =
        Array2::from_shape_fn(
            (41, 11),
            |(i, j)| {
                if i / 14 == j / 4 { 0.5 + ((7 * i + 5 * j) % 11) as f64 / 11.0 } else { 0.0 }
            },
        );
    for scale in [1.0, 1e-6, 1e6] {
        save_npy(&file, &(&blocks * scale));
        for beta in [0.5, 1.0, 1.5] {
            let run = |init: &str| {
                let line = format!("--algo beta-mu --beta {beta} -k 1 --max-iters 200 --init {init}");
                number(&fednmf(0, &line).arg("--input").arg(&file).ok(), "beta_divergence")
            };
            let (found, expected) = (run("nndsvda"), run("random"));
            assert!(found <= 1.01 * expected, "beta {beta} at {scale}: {found} {expected}");
        }
    }
}

/// The objective falls in every iteration, further than without extrapolation, on any number of ranks; a resumed run has the same
/// bits.
#[test]
fn extrapolated_updates_are_monotone_and_faster() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (method, measure) in [
        ("kl-mu", "kl_divergence"),
        ("kl-mu --alpha-u 0.05 --alpha-v 0.02 --l1-ratio 0.3", "objective"),
        ("beta-mu --beta 1.3", "beta_divergence"),
        ("beta-mu --beta 2", "beta_divergence"),
    ] {
        for input in [COUNTS, PLANTED] {
            let line =
                format!("--algo {method} -k 5 --seed 3 --init random --max-iters 60 --eval-every 1 --input {input}");
            let plain = number(&fednmf(0, &format!("{line} --extrapolation none")).ok(), measure);
            let mut first = None;
            for ranks in [0, 2, 3, 4] {
                let run = fednmf(ranks, &line).arg("--output").arg(file("o.h5")).arg("--trace").arg(file("t.jsonl"));
                let summary = run.ok();
                let of = |event: &serde_json::Value| event[measure].as_f64();
                let values: Vec<f64> = events(&file("t.jsonl")).iter().filter_map(of).collect();
                assert!(values.len() > 60 && errors(&file("t.jsonl")).len() == 61);
                let falls = |pair: &[f64]| pair[1] <= pair[0] * (1.0 + 1e-12);
                assert!(values.windows(2).all(falls), "{method} {input} on {ranks}: {values:?}");
                assert!(number(&summary, measure) < plain, "{method} {input}: {} {plain}", number(&summary, measure));
                let product = factor(&file("o.h5"), "U").dot(&factor(&file("o.h5"), "V").t());
                assert!(distance(first.get_or_insert_with(|| product.clone()), &product) < 1e-8, "{method} on {ranks}");
            }
            let saved =
                |name: &str| fednmf(2, &line).arg("--checkpoint").arg(file("c.h5")).arg("--output").arg(file(name));
            fednmf(2, &line).arg("--output").arg(file("whole.h5")).ok();
            saved("part.h5").arg("--max-iters=7").ok();
            saved("rest.h5").arg("--resume").ok();
            for name in ["U", "V"] {
                assert_eq!(factor(&file("whole.h5"), name), factor(&file("rest.h5"), name), "{method} {input}");
            }
            std::fs::remove_file(file("c.h5")).unwrap();
        }
    }
}

/// Floors are relative to the data: scaled by a power of two, all numbers are the same but for its power.
#[test]
fn the_scale_of_the_data_is_that_of_the_result() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let m = Array2::from_shape_fn((12, 9), |(i, j)| ((i * 7 + j * 5 + i * j) % 13) as f64);
    for (beta, positive) in [(0.0, true), (0.5, false), (1.0, false), (1.5, false), (3.0, false)] {
        let line = format!("--algo beta-mu --beta {beta} -k 3 --max-iters 30");
        let found = |exponent: i32| {
            let x = if positive { &m + 0.5 } else { m.clone() };
            save_npy(&file("x.npy"), &(x * 2f64.powi(exponent)));
            let run = fednmf(0, &line).arg("--input").arg(file("x.npy")).arg("--output").arg(file("o.h5")).ok();
            let again = |command: &str| {
                let done = fednmf(0, &format!("{command} --json")).arg(file("o.h5")).arg("--input").arg(file("x.npy"));
                number(&serde_json::from_str(&done.run().stdout).expect("JSON"), "beta_divergence")
            };
            [number(&run, "beta_divergence"), again("evaluate"), again("project")]
        };
        let one = found(0);
        for exponent in [-120, 80] {
            for (one, other) in one.into_iter().zip(found(exponent)) {
                let ratio = other / 2f64.powi(exponent).powf(beta) / one;
                assert!((ratio - 1.0).abs() < 1e-9, "beta {beta} at 2^{exponent}: {one} {other}");
            }
        }
    }
    save_npy(&file("x.npy"), &(m * 2f64.powi(-400)));
    fednmf(0, "--algo beta-mu --beta 4 -k 3").arg("--input").arg(file("x.npy")).refused(&["--beta 4", "--scale max"]);
}
