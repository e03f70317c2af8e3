//! Starts of the factors, and projections onto given ones.

use ndarray::Array2;
use ndarray_linalg::SVD;
use tempfile::tempdir;

use crate::common::{data, distance, errors, factor, fednmf, matrix};

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

#[test]
fn zeros_of_nndsvd_become_usual_entries_or_small_random_numbers() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let spec = "planted,m=70,n=43,seed=3,k=9,noise=0";
    assert_eq!(fednmf(0, &format!("generate {spec} --output")).arg(file("m.npy")).run().code, Some(0));
    let m = npy(&file("m.npy"));
    let usual = (m.mean().unwrap() / 5.0).sqrt();
    let (w, h) = nndsvd(&m, 5);
    let filled = |x: Array2<f64>| x.mapv(|x| if x == 0.0 { usual } else { x });
    for ranks in [0, 2] {
        let line = "--algo hals -k 5 --init nndsvda --max-iters 0 --factor-scale as-found --input";
        fednmf(ranks, line).arg(file("m.npy")).arg("--output").arg(file("o.h5")).ok();
        let (u, v) = (matrix(&file("o.h5"), "U"), matrix(&file("o.h5"), "V"));
        assert!(w.iter().any(|x| *x == 0.0) && h.iter().any(|x| *x == 0.0));
        assert!(distance(&filled(w.clone()), &u) < 1e-7 && distance(&filled(h.clone()), &v) < 1e-7, "{ranks}");
        let line = line.replace("nndsvda", "nndsvdar");
        fednmf(ranks, &line).arg(file("m.npy")).arg("--output").arg(file("r.h5")).ok();
        for (name, exact) in [("U", &w), ("V", &h)] {
            let found = matrix(&file("r.h5"), name);
            let drawn: Vec<f64> = exact.iter().zip(&found).filter(|(x, _)| **x == 0.0).map(|(_, y)| *y).collect();
            assert!(exact.iter().zip(&found).all(|(x, y)| *x == 0.0 || (x - y).abs() < 1e-7), "{ranks}");
            // Half of a normal distribution: its second moment is the square of the deviation.
            let moment = drawn.iter().map(|y| y * y).sum::<f64>() / drawn.len() as f64;
            assert!(drawn.iter().all(|y| *y > 0.0) && (moment.sqrt() / (0.01 * usual) - 1.0).abs() < 0.3, "{moment}");
        }
    }
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
fn the_start_is_the_same_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let dense = "planted,m=400,n=300,k=8,noise=0.1";
    let wide = "planted,m=150,n=900,k=8,noise=0.1";
    let sparse = "sparse,m=500,n=300,density=0.1";
    // Of more than one component beyond the rank, rounding must not decide which one starts.
    let of_rank_5 = "planted,m=70,n=50,k=5,noise=0";
    for (start, spec) in [
        ("nndsvd", of_rank_5),
        ("compressed", of_rank_5),
        ("auto", dense),
        ("auto", sparse),
        ("compressed", wide),
        ("compressed", sparse),
        ("sampled", wide),
        ("sampled", sparse),
        ("nndsvda", wide),
        ("nndsvdar", wide),
    ] {
        for (precision, near) in [("f64", 1e-8), ("f32", 1e-2)] {
            let mut first: Option<(Array2<f64>, Array2<f64>)> = None;
            for (ranks, grid) in [(0, "1x1"), (2, "1x2"), (3, "3x1"), (4, "2x2")] {
                let line = format!(
                    "--algo hals -k 8 --init {start} --max-iters 0 --grid {grid} --precision {precision} --input synthetic:{spec}"
                );
                fednmf(ranks, &line).arg("--output").arg(file("o.h5")).ok();
                let (u, v) = (factor(&file("o.h5"), "U"), factor(&file("o.h5"), "V"));
                let (a, b) = first.get_or_insert_with(|| (u.clone(), v.clone()));
                let far = distance(a, &u).max(distance(b, &v));
                assert!(far < near, "{start} {spec} {precision} {grid}: {far}");
            }
        }
    }
}

/// The methods for the divergence compute their start on a grid of rows, and cut the columns by what is in them.
#[test]
fn the_divergence_starts_where_multiplicative_updates_do() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let tall = "sparse,law=power,m=150,n=90,density=0.1,seed=3";
    for (start, spec) in [
        ("nndsvd", tall),
        ("nndsvda", "planted,m=40,n=90,k=9,noise=0"),
        ("compressed", tall),
        ("sampled", "planted,m=150,n=90,k=9,noise=0.1"),
    ] {
        let factors = |algo: &str, ranks: usize| {
            let line = format!("--algo {algo} -k 5 --init {start} --max-iters 0 --factor-scale as-found");
            let run = fednmf(ranks, &line).arg(format!("--input=synthetic:{spec}"));
            let params = run.arg("--output").arg(file("o.h5")).ok()["params"].clone();
            assert_eq!(params["init"], start, "{algo}");
            (matrix(&file("o.h5"), "U"), matrix(&file("o.h5"), "V"))
        };
        let (u, v) = factors("mu", 0);
        for (algo, ranks) in [("kl-mu", 0), ("kl-mu", 3), ("kl-cd", 2), ("beta-mu", 4)] {
            let (a, b) = factors(algo, ranks);
            assert!(distance(&u, &a) < 1e-6 && distance(&v, &b) < 1e-6, "{start} {algo} on {ranks}");
        }
    }
}

/// By default a divergence starts from the best of several samples.
#[test]
fn the_best_of_several_samples_is_the_same_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("o.h5");
    for (algo, spec) in [
        ("kl-mu", "planted,m=900,n=60,k=8,noise=0.3"),
        ("kl-mu", "sparse,m=900,n=60,density=0.15,values=counts"),
        ("kl-cd", "planted,m=60,n=900,k=8,noise=0.3"),
        ("beta-mu", "planted,m=900,n=60,k=8,noise=0.3"),
    ] {
        let factors = |ranks: usize| {
            let line = format!("--algo {algo} -k 4 --max-iters 0 --factor-scale as-found --input synthetic:{spec}");
            let params = fednmf(ranks, &line).arg("--output").arg(&file).ok()["params"].clone();
            assert!(params["init"] == "sampled" && params["init_tries"].as_u64().unwrap() > 1, "{params}");
            (matrix(&file, "U"), matrix(&file, "V"))
        };
        let (u, v) = factors(0);
        for ranks in [2, 3] {
            let (a, b) = factors(ranks);
            assert!(distance(&u, &a) < 1e-6 && distance(&v, &b) < 1e-6, "{algo} {spec} on {ranks}");
        }
    }
}

#[test]
fn the_best_of_several_samples_ends_lower_than_one() {
    let mean = |init: &str| {
        let run = |seed: u64| {
            let line = format!("--algo kl-mu -k 16 --seed {seed} --init {init} --max-iters 60 --input");
            fednmf(0, &line).arg(data("digits.npy")).ok()["kl_divergence"].as_f64().unwrap()
        };
        (0..6).map(run).sum::<f64>() / 6.0
    };
    let (best, one) = (mean("auto"), mean("sampled"));
    assert!(best < 0.995 * one, "{best} {one}");
}

/// The first error of a run, and its parameters.
fn first_error(line: &str) -> (f64, serde_json::Value) {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    fednmf(0, &format!("{line} --max-iters 0")).arg("--trace").arg(&trace).ok();
    let text = std::fs::read_to_string(&trace).unwrap();
    let start: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    (errors(&trace)[0].1, start["params"].clone())
}

#[test]
fn the_compressed_start_nearly_solves_an_exact_factorisation() {
    let line = "--algo hals -k 8 --input synthetic:planted,m=600,n=400,k=8,noise=0 --init";
    let (compressed, params) = first_error(&format!("{line} compressed"));
    assert_eq!((&params["init"], &params["init_iterations"]), (&"compressed".into(), &20.into()), "{params}");
    let (nndsvd, _) = first_error(&format!("{line} nndsvd"));
    let (random, params) = first_error(&format!("{line} random"));
    assert_eq!(params["init"], "random");
    assert!(compressed < 0.1 && compressed < 0.3 * nndsvd && nndsvd < random, "{compressed} {nndsvd} {random}");
}

/// 200 of 6000 rows, or columns, determine the other factor nearly as well as all of them.
#[test]
fn the_sampled_start_nearly_solves_an_exact_factorisation() {
    for spec in ["planted,m=6000,n=80,k=8,noise=0", "planted,m=80,n=6000,k=8,noise=0"] {
        let line = format!("--algo hals -k 8 --input synthetic:{spec} --init");
        let (sampled, params) = first_error(&format!("{line} sampled"));
        assert_eq!((&params["init"], &params["init_lines"]), (&"sampled".into(), &200.into()), "{params}");
        let (nndsvd, _) = first_error(&format!("{line} nndsvd"));
        assert!(sampled < 0.1 && sampled < 0.5 * nndsvd, "{spec}: {sampled} {nndsvd}");
    }
}

/// With fewer lines than the sample would have the start is HALS on all of them.
#[test]
fn a_sample_of_all_lines_is_the_whole_matrix() {
    let line = "--algo hals -k 8 --input synthetic:planted,m=60,n=50,k=8,noise=0.1 --init";
    let (sampled, params) = first_error(&format!("{line} sampled"));
    assert_eq!(params["init_lines"], 60);
    let (random, _) = first_error(&format!("{line} random"));
    assert!(sampled < 0.12 && random > 0.3, "{sampled} {random}");
}

#[test]
fn every_start_works_on_extreme_matrices() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("m.csv");
    // Zero rows and columns; of rank 1; a single row.
    let zeros = "0,0,0,0\n1,0,2,0\n0,0,0,0\n3,0,1,0\n2,0,5,0\n";
    let rank_one = "2,4,6,8\n1,2,3,4\n3,6,9,12\n4,8,12,16\n";
    for (table, ks, most) in [(zeros, &[2, 4][..], 1e-3), (rank_one, &[1, 3, 4], 1e-3), ("1,0,2,4\n", &[1], 1e-6)] {
        std::fs::write(&path, table).unwrap();
        for start in ["auto", "random", "nndsvd", "nndsvda", "nndsvdar", "compressed", "sampled"] {
            for (k, precision) in ks.iter().flat_map(|k| [(k, "f64"), (k, "f32")]) {
                for algo in ["auto", "hals", "mu", "bpp"] {
                    let line =
                        format!("--algo {algo} -k {k} --init {start} --precision {precision} --max-iters 300 --input");
                    let error = fednmf(0, &line).arg(&path).ok()["rel_error"].as_f64().unwrap();
                    let most = if algo == "mu" { 0.05 } else { most };
                    assert!(error < most, "{algo} {start} k = {k} {precision}: {error}\n{table}");
                }
            }
        }
    }
    // More ranks than rows.
    std::fs::write(&path, rank_one).unwrap();
    for start in ["nndsvd", "compressed", "sampled"] {
        let error =
            fednmf(5, &format!("--algo hals -k 2 --init {start} --input")).arg(&path).ok()["rel_error"].as_f64();
        assert!(error.unwrap() < 1e-6, "{start} {error:?}");
    }
}

#[test]
fn a_start_counts_as_time_and_traffic_and_a_resumed_run_is_the_same() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let line = "--algo auto -k 8 --input synthetic:planted,m=400,n=300,k=8,noise=0.1 --max-iters";
    fednmf(2, &format!("{line} 6")).arg("--trace").arg(file("t.jsonl")).arg("--output").arg(file("whole.h5")).ok();
    let text = std::fs::read_to_string(file("t.jsonl")).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["params"]["init"], &events[1]["iter"]), (&"compressed".into(), &0.into()), "{text}");
    let seconds = |i: usize| events[i]["seconds"].as_f64().unwrap();
    assert!(0.0 < seconds(1) && seconds(1) < seconds(2), "{text}");
    // At least the compressed products of two ranks, of (8 + 18) x 8 words and two more.
    assert!(events[1]["bytes_sent"].as_u64().unwrap() > 2 * 20 * 2 * 2 * 8 * 210, "{text}");
    let saved = |iters: &str| fednmf(2, &format!("{line} {iters}")).arg("--checkpoint").arg(file("c.h5"));
    saved("3").ok();
    saved("6 --resume").arg("--output").arg(file("rest.h5")).arg("--trace").arg(file("r.jsonl")).ok();
    for name in ["U", "V"] {
        assert_eq!(factor(&file("whole.h5"), name), factor(&file("rest.h5"), name), "{name}");
    }
    let start = std::fs::read_to_string(file("r.jsonl")).unwrap();
    assert!(start.lines().next().unwrap().contains(r#""init":"compressed""#), "{start}");
    let told = fednmf(0, &format!("{line} 1")).run().stderr;
    assert!(told.contains("--init auto: compressed"), "{told}");
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
    fednmf(2, &line).arg(data("digits.npy")).refused(&["--init", "1797 x 6", "-k 6"]);
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

/// An exact step may not need a component of a random start. With zeros in both factors it could never come back.
#[test]
fn exact_steps_lose_no_component_of_the_start() {
    let dir = tempdir().unwrap();
    let [file, found] = ["x.csv", "f.h5"].map(|name| dir.path().join(name));
    let mut state = 22u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    // A few entries dominate each of four components.
    let mut random =
        |rows: usize, cols: usize, power| Array2::from_shape_simple_fn((rows, cols), || uniform().powi(power));
    let planted = 4.0 * random(60, 4, 3).dot(&random(4, 14, 3));
    let x = planted + 0.2 * random(60, 14, 1);
    let line = |row: ndarray::ArrayView1<'_, f64>| row.iter().map(|x| format!("{x:.5}")).collect::<Vec<_>>().join(",");
    std::fs::write(&file, x.rows().into_iter().map(|row| line(row) + "\n").collect::<String>()).unwrap();
    for (algo, shared) in [("bpp", "V"), ("secure-hals --parties 3 --update bpp", "U"), ("inmf --parties 3", "V")] {
        for seed in 0..5 {
            let line = format!("--algo {algo} -k 8 --seed {seed} --max-iters 60 --header no --index-col no --input");
            fednmf(0, &line).arg(&file).arg("--output").arg(&found).ok();
            let lost = factor(&found, shared).columns().into_iter().filter(|column| column.sum() == 0.0).count();
            assert_eq!(lost, 0, "{algo}, seed {seed}");
        }
    }
}
