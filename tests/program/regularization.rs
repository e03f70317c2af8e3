//! Penalties on the factors: the minimum is the right one, and all commands that use a result take account of them.

use std::path::Path;

use ndarray::Array2;
use tempfile::tempdir;

use fednmf_methods::metrics::Measure;
use fednmf_methods::registry;

use crate::common::{data, distance, events, factor, fednmf, matrix, needs, number};
use crate::naive;

const ALPHAS: &str = "--alpha-u 0.05 --alpha-v 0.02 --l1-ratio 0.3";

/// ½‖M − UVᵀ‖², counted where M is not NaN, and the penalties of [`ALPHAS`].
fn objective(m: &Array2<f64>, u: &Array2<f64>, v: &Array2<f64>) -> f64 {
    let penalty = |x: &Array2<f64>| 0.3 * x.sum() + 0.35 * x.mapv(|x| x * x).sum();
    let squared =
        m.iter().zip(&u.dot(&v.t())).map(|(m, f)| if m.is_nan() { 0.0 } else { (m - f).powi(2) }).sum::<f64>();
    let (rows, cols) = (m.nrows() as f64, m.ncols() as f64);
    0.5 * squared + 0.05 * cols * penalty(u) + 0.02 * rows * penalty(v)
}

/// The largest violation of the conditions of a minimum, min(x, gradient) = 0, with gradients relative to the largest entry of M V
/// and MᵀU.
fn violation(m: &Array2<f64>, u: &Array2<f64>, v: &Array2<f64>) -> f64 {
    let of = |m: &Array2<f64>, x: &Array2<f64>, y: &Array2<f64>, weight: f64| {
        let scale = m.mapv(|m| if m.is_nan() { 0.0 } else { m }).dot(y).iter().fold(0.0, |a: f64, b| a.max(*b));
        let mut worst = 0.0_f64;
        for ((i, l), &x_il) in x.indexed_iter() {
            let mut gradient = weight * (0.3 + 0.7 * x_il);
            for j in (0..m.ncols()).filter(|&j| !m[[i, j]].is_nan()) {
                gradient += (x.row(i).dot(&y.row(j)) - m[[i, j]]) * y[[j, l]];
            }
            worst = worst.max(x_il.min(gradient / scale).abs());
        }
        worst
    };
    let turned = m.t().to_owned();
    of(m, u, v, 0.05 * m.ncols() as f64).max(of(&turned, v, u, 0.02 * m.nrows() as f64))
}

/// A small matrix as CSV; NaN where `missing`.
fn small(dir: &Path, missing: bool) -> (std::path::PathBuf, Array2<f64>) {
    let m = Array2::from_shape_fn((18, 12), |(i, j)| {
        if missing && (i * 5 + j * 7) % 6 == 0 { f64::NAN } else { ((i * 7 + j * j * 3 + i * j) % 11) as f64 }
    });
    let rows = m.rows().into_iter().map(|row| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    let path = dir.join(if missing { "missing.csv" } else { "m.csv" });
    std::fs::write(&path, rows.collect::<Vec<_>>().join("\n")).unwrap();
    (path, m)
}

#[test]
fn the_result_is_a_minimum_of_the_objective_that_is_reported() {
    let dir = tempdir().unwrap();
    for (missing, words, tolerance) in [
        (false, "--algo hals", 1e-8),
        (false, "--algo auto", 1e-8),
        (false, "--algo bpp", 1e-8),
        (false, "--algo vr-dsanls", 1e-8),
        (false, "--algo mu", 1e-3),
        (
            false,
            "--algo secure-hals --parties 3 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
            1e-6,
        ),
        (false, "--algo secure-hals --parties 3 --update bpp", 1e-6),
        (false, "--algo ipalm --parties 1", 1e-3),
        (false, "--algo syn-sd --parties 1", 1e-3),
        (true, "--algo hals --missing nan", 1e-8),
        (true, "--algo mu --missing nan", 1e-3),
        (true, "--algo dsanls --sketch-size 100% --mu-beta 0 --missing nan", 1e-6),
        (true, "--algo syn-sd --parties 1 --mu-beta 0 --missing nan", 1e-3),
    ] {
        let (input, m) = small(dir.path(), missing);
        let (out, trace) = (dir.path().join("o.h5"), dir.path().join("t.jsonl"));
        let line = format!("{words} {ALPHAS} -k 3 --seed 2 --max-iters 5000 --eval-every 100 --input");
        let run = fednmf(0, &line).arg(&input).arg("--output").arg(&out).arg("--trace").arg(&trace);
        let summary = run.ok();
        let (u, v) = (factor(&out, "U"), factor(&out, "V"));
        let (told, expected) = (number(&summary, "objective"), objective(&m, &u, &v));
        assert!((told / expected - 1.0).abs() < 1e-6, "{words}: {told} {expected}");
        let found = violation(&m, &u, &v);
        assert!(found < tolerance, "{words}: {found}");
        let iterations: Vec<f64> =
            events(&trace).iter().filter(|e| e["event"] == "iter").map(|e| number(e, "objective")).collect();
        assert!(iterations.len() > 10 && iterations.last() < iterations.first(), "{words}: {iterations:?}");
        let evaluated = fednmf(0, "evaluate --json --input").arg(&input).arg(&out).run();
        let stored: serde_json::Value = serde_json::from_str(&evaluated.stdout).expect("JSON");
        assert!((number(&stored, "objective") / told - 1.0).abs() < 1e-6, "{words}: {stored} {told}");
    }
}

#[test]
fn weights_of_zero_change_no_bit() {
    let dir = tempdir().unwrap();
    for entry in registry::ALL.iter().filter(|entry| entry.takes("alpha-u")) {
        let method = entry.description();
        let of = |name: &str, words: &str| {
            let out = dir.path().join(name);
            let line = format!("--algo {} {} {words} -k 4 --seed 3 --max-iters 6", method.name, needs(method));
            let summary = fednmf(2, &line).arg("--input").arg(data("digits.npy")).arg("--output").arg(&out).ok();
            (summary, factor(&out, "U"), factor(&out, "V"))
        };
        let (plain, u, v) = of("plain.h5", "");
        let (zero, x, y) = of("zero.h5", "--alpha-u 0 --alpha-v 0 --l1-ratio 0.7");
        assert!(u == x && v == y, "{}", method.name);
        assert_eq!(plain["rel_error"], zero["rel_error"], "{}", method.name);
        assert!(plain["objective"].is_null() && zero["objective"].is_null(), "{}", method.name);
    }
}

#[test]
fn weights_that_leave_nothing_are_warned_of() {
    for (weight, warned) in [("1e6", true), ("0.01", false)] {
        let line = format!("-k 3 --max-iters 30 --quiet --alpha-u {weight} --input");
        let output = fednmf(0, &line).arg(data("digits.npy")).run();
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert_eq!(
            output.stderr.contains("no component is left under the penalties"),
            warned,
            "{weight}: {}",
            output.stderr
        );
    }
}

#[test]
fn huge_weights_give_zeros_and_no_nan() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("o.h5");
    for precision in ["f64", "f32"] {
        for ratio in ["0", "0.5", "1"] {
            for words in [
                "--algo hals",
                "--algo auto",
                "--algo bpp",
                "--algo bpp --extrapolation restart",
                "--algo mu",
                "--algo kl-mu",
                "--algo kl-cd",
                "--algo dsanls",
                "--algo dsanls --solver pgd",
                "--algo vr-dsanls",
                "--algo hals --holdout 0.1",
                "--algo dsanls --holdout 0.1",
                "--algo mu --holdout 0.1",
                "--algo kl-mu --holdout 0.1",
                "--algo kl-cd --holdout 0.1",
                "--algo secure-hals --parties 3",
            ] {
                let line = format!("{words} -k 3 --max-iters 30 --precision {precision} --l1-ratio {ratio}");
                let run = fednmf(2, &format!("{line} --alpha-u 1e12 --input")).arg(data("digits.npy"));
                let summary = run.arg("--output").arg(&out).ok();
                let what = format!("{words} {precision} {ratio}");
                for name in ["U", "V"] {
                    let largest = factor(&out, name).iter().fold(0.0, |a: f64, x| a.max(x.abs()));
                    assert!(largest < 1e-3, "{what}: {name} {largest}");
                }
                assert!((number(&summary, "rel_error") - 1.0).abs() < 1e-6, "{what}: {summary}");
            }
        }
    }
}

#[test]
fn nothing_missing_is_the_run_without_missing_entries() {
    let dir = tempdir().unwrap();
    for algo in ["hals", "mu", "dsanls", "syn-ssd-uv --parties 3", "asyn-sd --parties 3"] {
        let [plain, masked] = ["", "--missing nan"].map(|words| {
            let out = dir.path().join("o.h5");
            let line = format!("--algo {algo} {words} {ALPHAS} -k 4 --seed 1 --max-iters 20 --factor-scale as-found");
            let summary = fednmf(2, &line).arg("--input").arg(data("digits.npy")).arg("--output").arg(&out).ok();
            (number(&summary, "objective"), factor(&out, "U"), factor(&out, "V"))
        });
        assert!((plain.0 / masked.0 - 1.0).abs() < 1e-10, "{algo}: {} {}", plain.0, masked.0);
        assert!(distance(&plain.1, &masked.1) < 1e-8 && distance(&plain.2, &masked.2) < 1e-8, "{algo}");
    }
}

#[test]
fn secure_hals_with_penalties_is_hals() {
    let dir = tempdir().unwrap();
    let of = |algo: &str| {
        let out = dir.path().join("o.h5");
        let line = format!("{algo} {ALPHAS} -k 4 --seed 1 --max-iters 20 --factor-scale as-found --input");
        let summary = fednmf(3, &line).arg(data("digits.npy")).arg("--output").arg(&out).ok();
        (number(&summary, "objective"), factor(&out, "U"))
    };
    let (hals, u) = of("--algo hals");
    for words in [
        "",
        "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries",
        "--extrapolation restart --l1-ratio 0",
    ] {
        let line = format!("--algo secure-hals --parties 5 --start public {words}");
        if words.contains("restart") {
            // The same, but for --l1-ratio, which is given last.
            let last = |algo: &str| {
                let line = format!("{algo} --alpha-u 0.05 --alpha-v 0.02 -k 4 --seed 1 --max-iters 20 --input");
                number(&fednmf(2, &line).arg(data("digits.npy")).ok(), "objective")
            };
            let both = [last("--algo hals --extrapolation restart"), last(line.trim_end_matches("--l1-ratio 0"))];
            assert!((both[0] / both[1] - 1.0).abs() < 1e-9, "{both:?}");
            continue;
        }
        let (secure, w) = of(&line);
        assert!((hals / secure - 1.0).abs() < 1e-9 && distance(&u, &w) < 1e-6, "{words}: {hals} {secure}");
    }
    // A penalty on one factor decides the scales of both starts.
    let one = |algo: &str| {
        number(
            &fednmf(2, &format!("{algo} --alpha-u 5 --alpha-v 0 -k 4 --max-iters 20 --input"))
                .arg(data("digits.npy"))
                .ok(),
            "objective",
        )
    };
    let both = [one("--algo hals --init random"), one("--algo secure-hals --parties 5 --start public")];
    assert!((both[0] / both[1] - 1.0).abs() < 1e-9, "{both:?}");
}

#[test]
fn projection_has_the_penalty_of_the_run() {
    let dir = tempdir().unwrap();
    let (input, _) = small(dir.path(), false);
    let (out, again) = (dir.path().join("o.h5"), dir.path().join("p.h5"));
    let line = format!("--algo bpp {ALPHAS} -k 3 --max-iters 3000 --input");
    fednmf(1, &line).arg(&input).arg("--output").arg(&out).ok();
    let told = fednmf(1, "project --input").arg(&input).arg(&out).arg("--output").arg(&again).run();
    assert!(told.code == Some(0) && told.stderr.contains("--alpha-u 0.05 --l1-ratio 0.3"), "{told:?}");
    assert!(distance(&matrix(&out, "U"), &matrix(&again, "U")) < 1e-6);
    // A second projection uses it, too.
    let third = dir.path().join("q.h5");
    let told = fednmf(1, "project --input").arg(&input).arg(&again).arg("--output").arg(&third).run();
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(distance(&matrix(&out, "U"), &matrix(&third, "U")) < 1e-6);
}

#[test]
fn a_run_resumes_with_its_own_penalties_only() {
    let dir = tempdir().unwrap();
    let checkpoint = dir.path().join("c.h5");
    let run = |words: &str, iterations: usize| {
        let line = format!("--algo hals {words} -k 3 --max-iters {iterations} --resume --input");
        fednmf(1, &line).arg(data("digits.npy")).arg("--checkpoint").arg(&checkpoint)
    };
    run(ALPHAS, 5).ok();
    run("--alpha-u 0.05 --alpha-v 0.02 --l1-ratio 0.4", 8).refused(&["l1_ratio was 0.3, now is 0.4"]);
    run("", 8).refused(&["alpha_u was 0.05, now is 0"]);
    let resumed = run(ALPHAS, 8).ok();
    let line = format!("--algo hals {ALPHAS} -k 3 --max-iters 8 --input");
    let whole = fednmf(1, &line).arg(data("digits.npy")).ok();
    assert_eq!(resumed["objective"], whole["objective"]);
}

#[test]
fn the_tolerance_and_the_report_go_by_the_objective() {
    let dir = tempdir().unwrap();
    let (trace, report) = (dir.path().join("t.jsonl"), dir.path().join("r.html"));
    let line = format!("--algo hals {ALPHAS} -k 3 --max-iters 5000 --eval-every 5 --tol 1e-4 --input");
    let run = fednmf(1, &line).arg(data("digits.npy")).arg("--trace").arg(&trace).arg("--report").arg(&report);
    let told = run.run();
    assert!(told.stdout.contains("objective ") && told.stdout.contains("stopped at --tol"), "{told:?}");
    let values: Vec<f64> =
        events(&trace).iter().filter(|e| e["event"] == "iter").map(|e| number(e, "objective")).collect();
    let falls: Vec<f64> = values.windows(2).map(|pair| (pair[0] - pair[1]) / pair[0]).collect();
    let (last, before) = falls.split_last().unwrap();
    assert!(*last < 1e-4 && before.iter().all(|fall| *fall >= 1e-4), "{falls:?}");
    let page = std::fs::read_to_string(&report).unwrap();
    assert!(page.contains("Objective over iterations") && page.contains("Relative error over iterations"));
}

#[test]
fn what_would_change_the_penalties_is_refused() {
    let digits = || data("digits.npy");
    let refused = |words: &str, expected: &[&str]| {
        fednmf(1, &format!("{words} -k 3 --max-iters 2 --input")).arg(digits()).refused(expected);
    };
    refused("--algo hals --alpha-u 1 --factor-scale unit-v", &["--factor-scale unit-v", "sorted"]);
    refused("--algo hals --alpha-v 1 --factor-scale balanced", &["--factor-scale balanced"]);
    refused("--algo fnmf --parties 3 --alpha-u 1", &["--normalize none"]);
    refused("--algo fedavg --parties 3 --update hals --alpha-u 1", &["--normalize none"]);
    refused("--algo secure-hals --parties 3 --dp column --epsilon 1 --alpha-u 1", &["--dp"]);
    refused("--algo secure-hals --parties 3 --extrapolation restart --alpha-u 1 --l1-ratio 1", &["--extrapolation"]);
    refused("--algo dsanls --bound --alpha-u 1", &["--bound"]);
    refused("--algo asso --binarize 3 --alpha-u 1", &["--alpha-u", "asso"]);
    refused("--algo hals --alpha-u -1", &["--alpha-u", "at least 0"]);
    refused("--algo hals --alpha-v some", &["--alpha-v", "same"]);
    refused("--algo hals --l1-ratio 2", &["--l1-ratio", "from 0 to 1"]);
}

#[test]
fn hals_with_penalties_equals_naive_loops() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("o.h5");
    let m = naive::digits();
    let (mut u, mut v) = naive::start(&m, 4, 7);
    let half = |m: &Array2<f64>, x: &mut Array2<f64>, y: &Array2<f64>, weight: f64| {
        let (gram, product) = (y.t().dot(y), m.dot(y));
        for i in 0..x.nrows() {
            for l in 0..x.ncols() {
                let gradient = x.row(i).dot(&gram.row(l)) - product[[i, l]] + weight * (0.3 + 0.7 * x[[i, l]]);
                x[[i, l]] = (x[[i, l]] - gradient / (gram[[l, l]] + 0.7 * weight)).max(0.0);
            }
        }
    };
    let turned = m.t().to_owned();
    for _ in 0..12 {
        half(&m, &mut u, &v, 0.05 * m.ncols() as f64);
        half(&turned, &mut v, &u, 0.02 * m.nrows() as f64);
    }
    for ranks in 1..=4 {
        let line = format!("--algo hals {ALPHAS} -k 4 --seed 7 --max-iters 12 --factor-scale as-found --input");
        fednmf(ranks, &line).arg(data("digits.npy")).arg("--output").arg(&out).ok();
        assert!(distance(&u, &matrix(&out, "U")) < 1e-9 && distance(&v, &matrix(&out, "V")) < 1e-9, "{ranks} ranks");
    }
}

/// A single step may overshoot, and the next ones make up for it.
#[test]
fn extrapolation_with_restarts_never_ends_above_plain_sweeps() {
    let dir = tempdir().unwrap();
    let (input, _) = small(dir.path(), false);
    for seed in 0..10 {
        let [plain, extrapolated] = ["none", "restart"].map(|how| {
            let trace = dir.path().join(format!("{how}.jsonl"));
            let line = format!(
                "--algo hals --inner-sweeps 2 --extrapolation {how} {ALPHAS} -k 3 --init random --seed {seed} --max-iters 200 \
                 --eval-every 1 --input"
            );
            fednmf(0, &line).arg(&input).arg("--trace").arg(&trace).ok();
            let iterations = events(&trace).into_iter().filter(|e| e["event"] == "iter");
            iterations.map(|e| number(&e, "objective")).collect::<Vec<f64>>()
        });
        let rise = plain.windows(2).find(|two| two[1] > two[0] * (1.0 + 1e-12));
        assert!(rise.is_none(), "seed {seed}: {rise:?}");
        let [plain, extrapolated] = [plain, extrapolated].map(|all| all[all.len() - 1]);
        assert!(extrapolated <= plain * (1.0 + 1e-9), "seed {seed}: {extrapolated} {plain}");
    }
}

#[test]
fn random_starts_keep_the_components_under_a_penalty_on_one_factor() {
    for alphas in ["--alpha-u 2 --alpha-v 0 --l1-ratio 1", "--alpha-u 0 --alpha-v 10 --l1-ratio 1"] {
        for entry in registry::ALL.iter().filter(|entry| entry.takes("alpha-u")) {
            let method = entry.description();
            if matches!(method.measure, Measure::Divergence | Measure::BetaDivergence) {
                continue;
            }
            let scaled = if entry.takes("normalize") { "--normalize none" } else { "" };
            let line =
                format!("--algo {} {} {scaled} {alphas} -k 5 --seed 1 --max-iters 200", method.name, needs(method));
            let summary = fednmf(2, &format!("{line} --input synthetic:planted,m=60,n=40,k=5,noise=0.05")).ok();
            // Without a component it is 281, and at the minimum 0.3. A mean of parties that work alone is far from it.
            let found = number(&summary, "objective");
            assert!(found < 60.0, "{line}: {found}");
        }
    }
}

#[test]
fn a_penalty_on_one_factor_is_noted() {
    for (alphas, note) in [
        ("--alpha-u 1 --alpha-v 0", Some("only U has a penalty, so it shrinks while V grows")),
        ("--alpha-u 0 --alpha-v 1", Some("only V has a penalty, so it shrinks while U grows")),
        ("--alpha-u 1", None),
        ("", None),
    ] {
        let done =
            fednmf(0, &format!("--algo hals {alphas} -k 2 --max-iters 2 --input synthetic:planted,m=9,n=8,k=2")).run();
        let told = done.stderr.contains(note.unwrap_or("has a penalty"));
        assert_eq!((done.code, told), (Some(0), note.is_some()), "{}", done.stderr);
    }
}
