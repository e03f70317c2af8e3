//! Joint NMF of several matrices (`inmf`): its iterates against plain loops, planted shared and own parts, and limits.

use std::path::Path;

use ndarray::{Array2, Axis, concatenate, s};
use serde_json::Value;
use tempfile::tempdir;

use fednmf_linalg::random::{Purpose, Stream};

use crate::common::{data, distance, errors, events, factor, fednmf, matrix, number, save_npy};
use crate::naive::least_squares;

/// V or W of each party, n × k.
fn own_parts(out: &Path, parties: usize) -> Vec<Array2<f64>> {
    let n = matrix(out, "V").nrows();
    let all = factor(out, "W");
    (0..parties).map(|party| all.slice(s![party * n..(party + 1) * n, ..]).to_owned()).collect()
}

/// Numbers from 0 to 1, some of them zero.
fn random(seed: u64, rows: usize, cols: usize) -> Array2<f64> {
    let mut cursor = Stream::new(seed, Purpose::StartU, 7).at(0);
    Array2::from_shape_simple_fn((rows, cols), || if cursor.uniform() < 0.3 { 0.0 } else { cursor.uniform() })
}

/// The problem of each party, as it is printed.
struct Plain {
    x: Vec<Array2<f64>>,
    u: Vec<Array2<f64>>,
    w: Vec<Array2<f64>>,
    v: Array2<f64>,
    lambda: f64,
}

impl Plain {
    /// An iteration. Each block is a least squares problem A ≈ X Bᵀ whose A and B are stacked from those of all terms.
    fn iterate(&mut self, exact: bool) {
        let solve = |x: &mut Array2<f64>, a: &Array2<f64>, b: &Array2<f64>| {
            least_squares(x, &b.t().dot(b), &a.dot(b), exact);
        };
        let stack = |axis: usize, parts: &[Array2<f64>]| {
            concatenate(Axis(axis), &parts.iter().map(|part| part.view()).collect::<Vec<_>>()).unwrap()
        };
        let root = self.lambda.sqrt();
        for ((x, u), w) in self.x.iter().zip(&mut self.u).zip(&mut self.w) {
            let zeros = Array2::zeros(x.dim());
            solve(u, &stack(1, &[x.clone(), zeros.clone()]), &stack(0, &[&self.v + &*w, &*w * root]));
            let rest = x - &u.dot(&self.v.t());
            solve(w, &stack(1, &[rest.reversed_axes(), zeros.reversed_axes()]), &stack(0, &[u.clone(), &*u * root]));
        }
        let rest: Vec<Array2<f64>> =
            self.x.iter().zip(&self.u).zip(&self.w).map(|((x, u), w)| (x - &u.dot(&w.t())).reversed_axes()).collect();
        solve(&mut self.v, &stack(1, &rest), &stack(0, &self.u));
    }

    fn objective(&self) -> f64 {
        let squares = |a: Array2<f64>| a.mapv(|x| x * x).sum();
        let each = self.x.iter().zip(&self.u).zip(&self.w);
        let each =
            each.map(|((x, u), w)| squares(x - &u.dot(&(&self.v + w).t())) + self.lambda * squares(u.dot(&w.t())));
        0.5 * each.sum::<f64>()
    }
}

#[test]
fn iterates_are_those_of_plain_loops() {
    let dir = tempdir().unwrap();
    let (input, out) = (dir.path().join("x.npy"), dir.path().join("o.h5"));
    let x = random(1, 24, 10);
    save_npy(&input, &x);
    for (words, exact, lambda) in [
        ("--own-penalty 0.3", true, 0.3),
        ("--own-penalty 0", true, 0.0),
        ("--own-penalty 2 --update hals", false, 2.0),
    ] {
        let line = |iterations: usize| {
            let (input, out) = (input.display(), out.display());
            format!("--algo inmf --parties 3 -k 3 {words} --input {input} --max-iters {iterations} --output {out}")
        };
        fednmf(2, &line(0)).ok();
        let parts = |whole: Array2<f64>| (0..3).map(|i| whole.slice(s![8 * i..8 * i + 8, ..]).to_owned()).collect();
        let (x, u) = (parts(x.clone()), parts(factor(&out, "U")));
        let mut plain = Plain { x, u, w: own_parts(&out, 3), v: matrix(&out, "V"), lambda };
        let mut last = f64::INFINITY;
        for _ in 0..6 {
            plain.iterate(exact);
            let objective = plain.objective();
            assert!(objective <= last * (1.0 + 1e-12), "{words}: {last} {objective}");
            last = objective;
        }
        let run = fednmf(2, &line(6)).ok();
        assert!((number(&run, "objective") - last).abs() < 1e-9 * last, "{words}: {run} {last}");
        assert!(distance(&plain.v, &matrix(&out, "V")) < 1e-8, "{words}");
        for ((party, w), u) in own_parts(&out, 3).into_iter().enumerate().zip(&plain.u) {
            assert!(distance(&plain.w[party], &w) < 1e-8, "{words}");
            let found = factor(&out, "U").slice(s![8 * party..8 * party + 8, ..]).to_owned();
            assert!(distance(u, &found) < 1e-8, "{words}");
        }
    }
}

#[test]
fn the_objective_falls_in_every_iteration() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    for words in ["", "--update hals", "--update hals --local-iters 3 --own-penalty 0.1"] {
        let line = format!("--algo inmf --parties 4 -k 6 --max-iters 30 --eval-every 1 {words} --input");
        fednmf(2, &line).arg(data("digits.npy")).arg("--trace").arg(&trace).ok();
        let events = events(&trace);
        let objectives: Vec<f64> = events.iter().filter_map(|event| event["objective"].as_f64()).collect();
        assert!(objectives.len() >= 30 && objectives.windows(2).all(|w| w[1] <= w[0] * (1.0 + 1e-9)), "{words}");
        assert!(objectives[30] < 0.95 * objectives[1], "{words}: {objectives:?}");
        assert_eq!(errors(&trace).len(), 31);
        std::fs::remove_file(&trace).unwrap();
    }
}

/// Rows of `parties`, whose components have a part that all share and one of the party's own, in columns of its own.
fn planted(parties: usize, rows: usize, k: usize) -> (Array2<f64>, Array2<f64>, Vec<Array2<f64>>) {
    let n = 6 * k * (1 + parties);
    let mut cursor = Stream::new(3, Purpose::StartU, 1).at(0);
    // Part 0 is shared.
    let mut part = |part: usize| {
        Array2::from_shape_fn((n, k), |(j, l)| if j / 6 == part * k + l { 0.5 + cursor.uniform() } else { 0.0 })
    };
    let v = part(0);
    let w: Vec<Array2<f64>> = (1..=parties).map(&mut part).collect();
    let mut cursor = Stream::new(4, Purpose::StartU, 2).at(0);
    let mut entry = || if cursor.uniform() < 0.5 { 0.0 } else { cursor.uniform() };
    let blocks: Vec<Array2<f64>> =
        w.iter().map(|w| Array2::from_shape_simple_fn((rows, k), &mut entry).dot(&(&v + w).t())).collect();
    let x = concatenate(Axis(0), &blocks.iter().map(|block| block.view()).collect::<Vec<_>>()).unwrap();
    (x, v, w)
}

#[test]
fn shared_and_own_parts_are_found() {
    let dir = tempdir().unwrap();
    let (input, out) = (dir.path().join("x.npy"), dir.path().join("o.h5"));
    let (x, v, w) = planted(3, 40, 3);
    save_npy(&input, &x);
    // Single starts may end in a local minimum.
    let run = |seed: u64| {
        let line = format!("--algo inmf --own-penalty 0.05 --parties 3 -k 3 --max-iters 200 --seed {seed} --input");
        fednmf(2, &line).arg(&input).arg("--output").arg(&out).ok()
    };
    let best =
        (0..10).map(|seed| (number(&run(seed), "objective"), seed)).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1;
    let run = run(best);
    assert!(number(&run, "rel_error") < 0.05, "{run}");
    let (found, own) = (matrix(&out, "V"), own_parts(&out, 3));
    let cosine = |a: ndarray::ArrayView1<f64>, b: ndarray::ArrayView1<f64>| {
        a.dot(&b) / (a.dot(&a) * b.dot(&b)).sqrt().max(f64::MIN_POSITIVE)
    };
    for (l, truth) in v.columns().into_iter().enumerate() {
        let at = (0..3).max_by(|&a, &b| cosine(found.column(a), truth).total_cmp(&cosine(found.column(b), truth)));
        let at = at.unwrap();
        assert!(cosine(found.column(at), truth) > 0.995, "component {l}: {found}");
        for (party, (own, truth)) in own.iter().zip(&w).enumerate() {
            assert!(cosine(own.column(at), truth.column(l)) > 0.995, "component {l} of party {party}");
        }
    }
}

/// Without room for own parts all parties share one V, as if they were one.
#[test]
fn with_a_large_penalty_it_is_nmf_of_all_rows() {
    let dir = tempdir().unwrap();
    let (a, b) = (dir.path().join("a.h5"), dir.path().join("b.h5"));
    let digits = data("digits.npy").display().to_string();
    for input in [digits, "synthetic:sparse,m=200,n=90,density=0.1,seed=4".to_string()] {
        let line = format!("--input {input} -k 5 --max-iters 12 --seed 2");
        let exact = fednmf(1, &format!("--algo bpp --init random {line} --factor-scale as-found"));
        let exact = exact.arg("--output").arg(&a).ok();
        let joint = fednmf(2, &format!("--algo inmf --own-penalty 1e12 --parties 5 {line}"));
        let joint = joint.arg("--output").arg(&b).ok();
        let (x, y) = (number(&exact, "rel_error"), number(&joint, "rel_error"));
        assert!((x - y).abs() < 1e-8 * x, "{input}: {x} {y}");
        assert!(number(&joint, "own_part") < 1e-8, "{joint}");
        assert!(distance(&matrix(&a, "V"), &matrix(&b, "V")) < 1e-6, "{input}");
        assert!(distance(&matrix(&a, "U"), &factor(&b, "U")) < 1e-6, "{input}");
        // The other end: each party for itself fits at least as well.
        let free = fednmf(2, &format!("--algo inmf --own-penalty 0 --parties 5 {line}")).ok();
        assert!(number(&free, "rel_error") < x && number(&free, "own_part") > 0.01, "{free}");
    }
}

#[test]
fn masked_sums_give_the_factors_of_plain_ones_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("o.h5");
    let digits = data("digits.npy").display().to_string();
    for words in ["", "--update hals"] {
        let line = format!("--algo inmf --input {digits} -k 4 --parties 5 --max-iters 4 {words}");
        let found = |ranks: usize, more: &str| {
            let run = fednmf(ranks, &format!("{line} {more}")).arg("--output").arg(&out).ok();
            (number(&run, "objective"), matrix(&out, "V"), factor(&out, "U"), factor(&out, "W"))
        };
        let (plain, masked) =
            (found(1, ""), found(1, "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries"));
        for ranks in 2..=4 {
            assert_eq!(found(ranks, ""), plain, "{words} on {ranks} ranks");
            assert_eq!(
                found(ranks, "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries"),
                masked,
                "{words} on {ranks} ranks"
            );
        }
        assert!((plain.0 - masked.0).abs() < 1e-6 * plain.0, "{words}: {} {}", plain.0, masked.0);
        assert!(distance(&plain.1, &masked.1) < 1e-5 && distance(&plain.3, &masked.3) < 1e-5, "{words}");
        let surviving = fednmf(
            2,
            &format!(
                "{line} --secure-sum --accept-risk few-rows,membership,few-values,rare-entries --secure-threshold 3"
            ),
        )
        .ok();
        assert!((number(&surviving, "objective") - plain.0).abs() < 1e-6 * plain.0, "{words}: {surviving}");
    }
    let wire = fednmf(
        2,
        "--algo inmf --parties 3 --secure-sum --accept-risk few-rows,membership,few-values,rare-entries -k 2 --max-iters 3 --input",
    )
    .arg(&digits)
    .ok();
    for row in wire["wire"].as_array().unwrap() {
        let payload = row["payload"].as_str().unwrap();
        assert!(["Masked", "Control", "Metadata", "Data"].contains(&payload) || row["bytes"] == 0, "{row}");
    }
}

/// Each row is measured with the V of its party, also with other ranks than the run had.
#[test]
fn factors_with_own_parts_are_evaluated_with_them() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (x, ..) = planted(3, 13, 2);
    save_npy(&at("x.npy"), &x);
    for (line, name) in [
        ("--algo inmf --own-penalty 0.2 --max-iters 20", "o.h5"),
        ("--algo inmf --own-penalty 0.2 --max-iters 20", "n.npz"),
        ("--algo fnmf --align lap-rho --personalize --max-iters 20", "p.h5"),
    ] {
        let run = fednmf(3, &format!("{line} --parties 3 -k 3 --input")).arg(at("x.npy"));
        let run = run.arg("--output").arg(at(name)).ok();
        for ranks in [0, 2, 4] {
            let found = fednmf(ranks, "evaluate --json --input").arg(at("x.npy")).arg(at(name)).run();
            let found: Value = serde_json::from_str(&found.stdout).unwrap_or_else(|e| panic!("{e}: {found:?}"));
            for measure in ["rel_error", "objective"] {
                let (found, expected) = (found[measure].as_f64(), run[measure].as_f64());
                let same = found.zip(expected).map_or(found == expected, |(a, b)| (a - b).abs() < 1e-9 * b);
                assert!(same, "{line} {name} on {ranks} ranks: {measure} {found:?} {expected:?}");
            }
        }
        fednmf(0, "project --input").arg(at("x.npy")).arg(at(name)).refused(&["a part of V of its own", name]);
    }
    std::fs::write(at("pairs.csv"), "row,column\n0,0\n20,7\n38,40\n").unwrap();
    let told = fednmf(0, "predict").arg(at("o.h5")).arg(at("pairs.csv")).run();
    let (u, v, w) = (factor(&at("o.h5"), "U"), matrix(&at("o.h5"), "V"), own_parts(&at("o.h5"), 3));
    let lines: Vec<&str> = told.stdout.lines().skip(1).collect();
    assert_eq!(lines.len(), 3, "{told:?}");
    for (line, (i, j, party)) in lines.iter().zip([(0, 0, 0), (20, 7, 1), (38, 40, 2)]) {
        let found: f64 = line.rsplit(',').next().unwrap().parse().unwrap();
        let expected = u.row(i).dot(&(&v.row(j) + &w[party].row(j)));
        assert!((found - expected).abs() < 1e-12, "{line}: {expected}");
    }
}

#[test]
fn options_that_mean_nothing_to_it_are_refused() {
    let line = "--algo inmf --parties 3 --input synthetic:planted,m=30,n=20,k=3 -k 2 --max-iters 1";
    fednmf(2, &format!("{line} --own-penalty -1")).refused(&["--own-penalty", "from 0 to"]);
    fednmf(2, &format!("{line} --local-iters 2")).refused(&["--local-iters", "--update hals"]);
    fednmf(2, &format!("{line} --dp gaussian --epsilon 1")).refused(&["--dp", "inmf"]);
    fednmf(2, "--algo hals --own-penalty 1").refused(&["--own-penalty", "inmf"]);
    fednmf(2, &format!("{line} --secure-sum --parties 1")).refused(&["--parties"]);
}

/// The divergences over parties are those of all rows: the factors of `kl-mu` and `beta-mu` from the same start.
#[test]
fn divergences_over_parties_have_the_factors_of_all_rows() {
    let dir = tempdir().unwrap();
    let (out, whole) = (dir.path().join("o.h5"), dir.path().join("w.h5"));
    let counts = "--input synthetic:sparse,m=90,n=40,density=0.3 -k 4 --max-iters 12 --seed 3";
    let file = dir.path().join("positive.npy");
    save_npy(&file, &Array2::from_shape_fn((90, 40), |(i, j)| ((i * 7 + j * 5 + i * j) % 13) as f64 + 0.5));
    let positive = &format!("--input {} -k 4 --max-iters 12 --seed 3", file.display());
    let secure = "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries";
    for (federated, pooled, key, input) in [
        ("fed-kl", "kl-mu", "kl_divergence", counts),
        ("fed-kl", "kl-mu", "kl_divergence", positive),
        ("fed-beta --beta 1", "beta-mu --beta 1", "beta_divergence", counts),
        ("fed-beta --beta 1.5", "beta-mu --beta 1.5", "beta_divergence", counts),
        ("fed-beta --beta 3", "beta-mu --beta 3", "beta_divergence", counts),
        ("fed-beta --beta 0", "beta-mu --beta 0", "beta_divergence", positive),
    ] {
        let expected = fednmf(1, &format!("--algo {pooled} --extrapolation none --init random {input}"));
        let expected = expected.arg("--output").arg(&whole).ok();
        let run = |ranks: usize, more: &str| {
            let line = format!("--algo {federated} --parties 3 {input} {more}");
            let run = fednmf(ranks, &line).arg("--output").arg(&out).ok();
            // Components of shared and private factors differ in scale and order from those of one owner.
            (number(&run, key), factor(&out, "U").dot(&matrix(&out, "V").t()))
        };
        let plain = run(1, "");
        let product = factor(&whole, "U").dot(&matrix(&whole, "V").t());
        let expected = number(&expected, key);
        assert!((plain.0 - expected).abs() <= 1e-9 * expected, "{federated}: {} {expected}", plain.0);
        assert!(distance(&plain.1, &product) < 1e-8, "{federated}");
        let masked = run(2, secure);
        assert!((masked.0 - expected).abs() <= 1e-6 * expected, "{federated}: {} {expected}", masked.0);
        assert!(distance(&masked.1, &product) < 1e-5, "{federated}");
        for ranks in 2..=4 {
            assert_eq!(run(ranks, ""), plain, "{federated} on {ranks} ranks");
            assert_eq!(run(ranks, secure), masked, "{federated} on {ranks} ranks");
        }
    }
    let zeros = "--algo fed-beta --beta 0 --parties 3 -k 2 --input synthetic:sparse,m=30,n=20,density=0.3";
    fednmf(2, zeros).refused(&["--beta 0", "zero(s)"]);
    fednmf(2, "--algo fed-kl --parties 3 -k 2 --dp gaussian --epsilon 1").refused(&["--dp", "fed-kl"]);
}

/// What extrapolation starts from is known to all, so it sends nothing more.
#[test]
fn extrapolation_over_parties_sends_nothing_more_and_never_raises_the_divergence() {
    let dir = tempdir().unwrap();
    let (out, trace, checkpoint) = (dir.path().join("o.h5"), dir.path().join("t.jsonl"), dir.path().join("c.h5"));
    let line =
        "--algo fed-kl --parties 3 --input synthetic:sparse,m=90,n=40,density=0.3 -k 4 --seed 3 --eval-every 1 --tol 0";
    let run = |ranks: usize, more: &str| {
        let found = fednmf(ranks, &format!("{line} {more}")).arg("--output").arg(&out).ok();
        let sent: Vec<String> = found["wire"].as_array().unwrap().iter().map(|row| row.to_string()).collect();
        (number(&found, "kl_divergence"), matrix(&out, "V"), sent)
    };
    let plain = run(1, "--max-iters 40");
    let found = run(1, &format!("--max-iters 40 --extrapolation restart --trace {}", trace.display()));
    assert_eq!(found.2, plain.2);
    assert!(found.0 < plain.0, "{} {}", found.0, plain.0);
    let text = std::fs::read_to_string(&trace).unwrap();
    let each = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["kl_divergence"].as_f64());
    let each: Vec<f64> = each.collect();
    assert!(each.len() >= 40 && each.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-12)), "{each:?}");
    for ranks in 2..=3 {
        assert_eq!(run(ranks, "--max-iters 40 --extrapolation restart").1, found.1, "{ranks} ranks");
    }
    let masked = "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries";
    let masked = run(2, &format!("--max-iters 40 --extrapolation restart {masked}"));
    assert!((masked.0 - found.0).abs() < 1e-4 * found.0, "{} {}", masked.0, found.0);
    // A run that is continued has the bits of one that was not interrupted.
    let kept = format!("--extrapolation restart --checkpoint {}", checkpoint.display());
    run(1, &format!("{kept} --max-iters 17"));
    assert_eq!(run(2, &format!("{kept} --max-iters 40 --resume")).1, found.1);
}
