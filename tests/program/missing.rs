//! Missing entries: the updates against loops over the observed entries, and held-out entries.

use std::path::Path;

use ndarray::Array2;
use tempfile::tempdir;

use fednmf_linalg::Order;
use fednmf_linalg::random::{Purpose, Stream, uniform_factor};
use fednmf_linalg::sketch;
use fednmf_linalg::sketch::SketchKind;

use crate::common::{distance, factor, fednmf, matrix, number, save_npy};

/// A product of random factors with a `share` of its entries replaced by NaN.
fn data(m: usize, n: usize, share: f64) -> Array2<f64> {
    let random = |purpose, rows, k| uniform_factor::<f64>(&Stream::new(9, purpose, 0), 0..rows, k, 1.0);
    let mut x = random(Purpose::SyntheticU, m, 4).dot(&random(Purpose::SyntheticV, n, 4).t());
    let mut cursor = Stream::new(9, Purpose::Probe, 0).at(0);
    x.iter_mut().filter(|_| cursor.uniform() < share).for_each(|x| *x = f64::NAN);
    x
}

fn write_mtx(path: &Path, (m, n): (usize, usize), entries: &[(usize, usize, f64)]) {
    let mut text = format!("%%MatrixMarket matrix coordinate real general\n{m} {n} {}\n", entries.len());
    entries.iter().for_each(|(i, j, x)| text.push_str(&format!("{} {} {x:?}\n", i + 1, j + 1)));
    std::fs::write(path, text).unwrap();
}

/// Half an iteration of `kl-mu` on the rows of x for the entries of m that are not NaN.
fn half_for_divergence(m: &Array2<f64>, x: &mut Array2<f64>, y: &Array2<f64>) {
    for i in 0..x.nrows() {
        let seen: Vec<usize> = (0..m.ncols()).filter(|&j| !m[[i, j]].is_nan()).collect();
        let before = x.row(i).to_owned();
        for l in 0..x.ncols() {
            let above: f64 = seen.iter().map(|&j| m[[i, j]] / before.dot(&y.row(j)) * y[[j, l]]).sum();
            let below: f64 = seen.iter().map(|&j| y[[j, l]]).sum();
            x[[i, l]] = before[l] * above / below;
        }
    }
}

/// The divergence of the entries that are not NaN.
fn divergence(m: &Array2<f64>, product: &Array2<f64>) -> f64 {
    let one = |(&m, &f): (&f64, &f64)| if m > 0.0 { m * (m / f).ln() - m + f } else { f };
    m.iter().zip(product).filter(|(m, _)| !m.is_nan()).map(one).sum()
}

/// One sweep over the rows of x for the entries of m that are not NaN.
fn half(multiplicative: bool, m: &Array2<f64>, x: &mut Array2<f64>, y: &Array2<f64>) {
    for i in 0..x.nrows() {
        let seen: Vec<usize> = (0..m.ncols()).filter(|&j| !m[[i, j]].is_nan()).collect();
        let before = x.row(i).to_owned();
        for l in 0..x.ncols() {
            let row = if multiplicative { before.clone() } else { x.row(i).to_owned() };
            let fit = |j: usize| row.dot(&y.row(j));
            if multiplicative {
                let above: f64 = seen.iter().map(|&j| m[[i, j]] * y[[j, l]]).sum();
                let below: f64 = seen.iter().map(|&j| fit(j) * y[[j, l]]).sum();
                x[[i, l]] = if below > 0.0 { before[l] * above / below } else { before[l] };
            } else {
                let descent: f64 = seen.iter().map(|&j| (m[[i, j]] - fit(j)) * y[[j, l]]).sum();
                let curve: f64 = seen.iter().map(|&j| y[[j, l]] * y[[j, l]]).sum();
                if curve > 0.0 {
                    x[[i, l]] = (x[[i, l]] + descent / curve).max(0.0);
                }
            }
        }
    }
}

/// The factors after some iterations of `hals`, `mu` or `bpp`, and the error over the observed entries.
fn naive(algo: &str, m: &Array2<f64>, k: usize, seed: u64, iterations: usize) -> (Array2<f64>, Array2<f64>, f64) {
    let seen: Vec<f64> = m.iter().copied().filter(|x| !x.is_nan()).collect();
    let scale = 2.0 * (seen.iter().sum::<f64>() / seen.len() as f64 / k as f64).sqrt();
    let start = |purpose, rows| uniform_factor::<f64>(&Stream::new(seed, purpose, 0), 0..rows, k, scale);
    let (mut u, mut v) = (start(Purpose::StartU, m.nrows()), start(Purpose::StartV, m.ncols()));
    let turned = m.t().to_owned();
    // So many sweeps find the exact solution.
    let sweeps = if algo == "bpp" { 5000 } else { 1 };
    for _ in 0..iterations {
        (0..sweeps).for_each(|_| half(algo == "mu", m, &mut u, &v));
        (0..sweeps).for_each(|_| half(algo == "mu", &turned, &mut v, &u));
    }
    let off = (m - &u.dot(&v.t())).iter().filter(|x| !x.is_nan()).map(|x| x * x).sum::<f64>();
    let error = (off / seen.iter().map(|x| x * x).sum::<f64>()).sqrt();
    (u, v, error)
}

#[test]
fn updates_equal_loops_over_the_observed_entries() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let check =
        |expected: &(Array2<f64>, Array2<f64>, f64), line: &str, input: &Path, listed: &str, ranks: &[usize]| {
            for &ranks in ranks {
                let run = fednmf(ranks, line)
                    .args(["--factor-scale", "as-found", "--input"])
                    .arg(input)
                    .arg("--output")
                    .arg(file("o.h5"));
                let summary = run.ok();
                let what = format!("{line}, {ranks} ranks");
                assert_eq!(summary["params"]["listed"], listed, "{what}");
                assert!((summary["rel_error"].as_f64().unwrap() - expected.2).abs() < 1e-9, "{what}: {summary}");
                assert!(distance(&expected.0, &matrix(&file("o.h5"), "U")) < 1e-7, "{what}");
                assert!(distance(&expected.1, &matrix(&file("o.h5"), "V")) < 1e-7, "{what}");
            }
        };
    // With few observed entries in a row the exact solution is not unique.
    for (shape, share, listed, methods) in [
        ((37, 26), 0.15, "missing", &["hals", "mu", "bpp"][..]),
        ((37, 26), 0.8, "observed", &["hals", "mu"]),
        ((80, 60), 0.8, "observed", &["bpp"]),
    ] {
        let m = data(shape.0, shape.1, share);
        save_npy(&file("m.npy"), &m);
        for algo in methods {
            let expected = naive(algo, &m, 3, 5, 8);
            let line = format!("--algo {algo} --missing nan -k 3 --seed 5 --max-iters 8");
            check(&expected, &line, &file("m.npy"), listed, &[0, 2, 3]);
        }
    }
    // The same in a table in text, where they are empty or NA.
    let m = data(37, 26, 0.15);
    let field = |((_, j), x): ((usize, usize), &f64)| match (x.is_nan(), j % 2) {
        (false, _) => format!("{x:?}"),
        (true, 0) => String::new(),
        (true, _) => "NA".to_string(),
    };
    let fields: Vec<String> = m.indexed_iter().map(field).collect();
    let lines: Vec<String> = fields.chunks(26).map(|line| line.join(",")).collect();
    std::fs::write(file("m.csv"), lines.join("\n")).unwrap();
    let expected = naive("hals", &m, 3, 5, 8);
    check(&expected, "--algo hals --missing nan -k 3 --seed 5 --max-iters 8", &file("m.csv"), "missing", &[0, 3]);
    fednmf(2, "--algo hals --input").arg(file("m.csv")).refused(&["m.csv", "line 1", "--missing nan"]);
    // A row and a column without observed entries do not count; their rows of the factors are zeros.
    let mut m = data(20, 12, 0.1);
    m.row_mut(3).fill(f64::NAN);
    m.column_mut(7).fill(f64::NAN);
    save_npy(&file("m.npy"), &m);
    let mut expected = naive("hals", &m, 3, 5, 5);
    expected.0.row_mut(3).fill(0.0);
    expected.1.row_mut(7).fill(0.0);
    check(&expected, "--algo hals --missing nan -k 3 --seed 5 --max-iters 5", &file("m.npy"), "missing", &[2]);
    let line = "--algo mu --missing nan -k 3 --max-iters 2 --quiet --input";
    for ranks in [1, 3] {
        let warned = fednmf(ranks, line).arg(file("m.npy")).run().stderr;
        for words in ["observed in 1 row of", "rows of U are zeros", "in 1 column of", "rows of V are zeros"] {
            assert_eq!(warned.matches(words).count(), 1, "{words}: {warned}");
        }
    }

    // Sparse data: entries that are not stored are missing, or zero unless a file lists them as missing.
    let m = data(30, 22, 0.7);
    let stored: Vec<(usize, usize, f64)> =
        m.indexed_iter().filter(|(_, x)| !x.is_nan()).map(|((i, j), &x)| (i, j, x)).collect();
    write_mtx(&file("m.mtx"), (30, 22), &stored);
    for algo in ["hals", "mu"] {
        let expected = naive(algo, &m, 3, 5, 8);
        let line = format!("--algo {algo} --missing zero-unobserved -k 3 --seed 5 --max-iters 8");
        check(&expected, &line, &file("m.mtx"), "observed", &[0, 3]);
    }
    let mut zeros = m.mapv(|x| if x.is_nan() { 0.0 } else { x });
    let missing = [(0, 0), (4, 7), (4, 8), (29, 21), (13, 2), (17, 2)];
    write_mtx(&file("missing.mtx"), (30, 22), &missing.map(|(i, j)| (i, j, 1.0)));
    let truth = zeros.clone();
    missing.iter().for_each(|&place| zeros[place] = f64::NAN);
    let expected = naive("hals", &zeros, 3, 5, 8);
    let line = format!("--algo hals --missing {} -k 3 --seed 5 --max-iters 8", file("missing.mtx").display());
    check(&expected, &line, &file("m.mtx"), "missing", &[0, 2, 3]);
    let summary = fednmf(2, &line).arg("--input").arg(file("m.mtx")).ok();
    let product = expected.0.dot(&expected.1.t());
    let off: f64 = missing.iter().map(|&place| (truth[place] - product[place]).powi(2)).sum();
    assert!((summary["heldout_rmse"].as_f64().unwrap() - (off / 6.0).sqrt()).abs() < 1e-9, "{summary}");
}

#[test]
fn zeros_that_a_file_stores_are_warned_of_where_zeros_are_missing() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("r.csv"), "u,i,r\na,x,5\na,y,0\nb,x,0\nb,y,3\nb,z,4\na,z,2\n").unwrap();
    let entries = [(0, 0, 5.0), (0, 1, 0.0), (1, 0, 0.0), (1, 1, 3.0), (1, 2, 4.0), (0, 2, 2.0)];
    write_mtx(&file("r.mtx"), (2, 3), &entries);
    let words = "2 entries of the input are given as 0";
    for (input, option) in [("r.csv", "--format triples"), ("r.mtx", "")] {
        for ranks in [0, 2] {
            let line =
                |missing: &str| format!("--algo hals -k 1 {option} --missing {missing} --max-iters 5 --json --input");
            let done = fednmf(ranks, &line("zero-unobserved")).arg(file(input)).run();
            assert_eq!(done.stderr.matches(words).count(), 1, "{input} on {ranks}: {done:?}");
            let summary: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
            assert_eq!(summary["params"]["observed_entries"].as_f64(), Some(4.0), "{summary}");
            assert!(!fednmf(ranks, &line("none")).arg(file(input)).run().stderr.contains("given as 0"));
        }
    }
    // A rating without a value has no line.
    std::fs::write(file("gap.csv"), "u,i,r\na,x,5\na,y,\nb,y,3\nb,x,4\n").unwrap();
    let gap = fednmf(0, "--algo hals -k 1 --format triples --missing zero-unobserved --input").arg(file("gap.csv"));
    gap.refused(&["line 3", "remove its line from triples"]);
    let sweep =
        fednmf(0, "sweep --k 1 --runs 2 --holdout 0 --max-iters 5 --format triples --missing zero-unobserved --input");
    let done = sweep.arg(file("r.csv")).arg("--output").arg(file("sweep")).arg("--quiet").run();
    assert!(done.code == Some(0) && done.stderr.contains(words), "{done:?}");
}

#[test]
fn held_out_entries_are_predicted_alike_on_any_number_of_ranks() {
    let planted = "--input synthetic:planted,m=80,n=60,k=4,noise=0,seed=2";
    let sparse = "--input synthetic:sparse,m=300,n=150,density=0.05,seed=4";
    for (input, missing, share) in [(planted, "none", 0.2), (sparse, "none", 0.03), (sparse, "zero-unobserved", 0.2)] {
        let mut first: Option<(f64, f64)> = None;
        for ranks in [0, 3] {
            let line = format!("--algo hals --missing {missing} --holdout {share} -k 4 --max-iters 60 {input}");
            let summary = fednmf(ranks, &line).ok();
            let params = &summary["params"];
            let (held, observed) =
                (params["heldout_entries"].as_f64().unwrap(), params["observed_entries"].as_f64().unwrap());
            assert!((held / (held + observed) / share - 1.0).abs() < 0.2, "{line}: {params}");
            let [train, test] = ["rmse", "heldout_rmse"].map(|name| summary[name].as_f64().unwrap());
            let (a, b) = *first.get_or_insert((train, test));
            assert!((a - train).abs() < 1e-7 && (b - test).abs() < 1e-7, "{line}: {summary}");
            if input == planted {
                // The entries are of order 1.
                assert!(test < 0.05 && train < 0.05, "{summary}");
            }
        }
    }
    let narrow = fednmf(2, &format!("--holdout 0.1 -k 4 --precision f32 --max-iters 60 {planted}")).ok();
    assert!(narrow["heldout_rmse"].as_f64().unwrap() < 0.05 && narrow["params"]["extrapolation"] == "none", "{narrow}");
}

#[test]
fn held_out_entries_that_are_all_zeros_are_warned_of() {
    let dir = tempdir().unwrap();
    let mut diagonal = Array2::zeros((400, 300));
    (0..8).for_each(|i| diagonal[[i, i]] = 1.0 + i as f64);
    let path = dir.path().join("m.npy");
    save_npy(&path, &diagonal);
    for (share, named) in [(0.0001, true), (0.5, false)] {
        for ranks in [0, 2] {
            let done =
                fednmf(ranks, &format!("--algo hals -k 2 --max-iters 3 --holdout {share} --input")).arg(&path).run();
            assert_eq!(done.code, Some(0), "{done:?}");
            assert_eq!(done.stderr.contains("held-out entries are zeros"), named, "{share}: {done:?}");
        }
    }
}

#[test]
fn options_that_exclude_missing_entries_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("m.npy");
    save_npy(&path, &data(20, 12, 0.1));
    fednmf(2, "--algo hals --input").arg(&path).refused(&["NaN", "--missing nan"]);
    fednmf(0, "--algo beta-mu --missing nan --input").arg(&path).refused(&["--missing", "beta-mu", "hals"]);
    fednmf(0, "--algo kl-mu --init nndsvd --missing nan --input").arg(&path).refused(&["--init nndsvd", "--missing"]);
    for words in [
        "--extrapolation restart",
        "--init nndsvd",
        "--init compressed",
        "--init sampled",
        "--measure projected-gradient",
        "--grid 1x1",
        "--exchange sparse",
    ] {
        let option = words.split(' ').next().unwrap();
        fednmf(0, &format!("--algo hals --missing nan {words} --input")).arg(&path).refused(&[option, "--missing"]);
    }
    fednmf(0, "--missing nan --binarize 0.5 --input").arg(&path).refused(&["--binarize"]);
    fednmf(2, "--algo hals --missing nan --holdout 2 --input").arg(&path).refused(&["--holdout"]);
    // So small a share that nothing is held out.
    for (ranks, algo) in [(2, "hals"), (0, "dsanls"), (3, "kl-mu")] {
        let line = format!("--algo {algo} --holdout 1e-9 -k 2 --input synthetic:planted,m=12,n=8,k=2");
        fednmf(ranks, &line).refused(&["--holdout 0.000000001", "12 x 8", "larger"]);
    }
    save_npy(&path, &Array2::ones((20, 12)));
    let missing = dir.path().join("missing.npy");
    save_npy(&missing, &Array2::ones((12, 20)));
    let run = fednmf(2, "--algo hals --input").arg(&path).arg("--missing");
    run.arg(&missing).refused(&["--missing", "12 x 20", "20 x 12"]);
    save_npy(&missing, &Array2::ones((20, 12)));
    fednmf(2, "--algo hals --input").arg(&path).arg("--missing").arg(&missing).refused(&["observed"]);
    save_npy(&missing, &Array2::from_elem((20, 12), f64::NAN));
    let run = fednmf(2, "--algo hals --input").arg(&path).arg("--missing").arg(&missing);
    run.refused(&["--missing", "row 0, column 0", "NaN", "1 where an entry of the data is missing"]);
}

/// With changed marks, or another storage of the matrix, other entries would be left out than in the run.
#[test]
fn other_entries_are_not_left_out_in_the_name_of_the_run() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = data(12, 9, 0.0);
    save_npy(&at("x.npy"), &x);
    let entries: Vec<_> = x.indexed_iter().map(|((i, j), v)| (i, j, *v)).collect();
    write_mtx(&at("x.mtx"), (12, 9), &entries);
    let mask = |places: &[(usize, usize)]| {
        let mut mask = Array2::zeros((12, 9));
        places.iter().for_each(|place| mask[*place] = 1.0);
        save_npy(&at("mask.npy"), &mask);
    };
    let run = |options: &str, name: &str| {
        let line = format!("--algo hals -k 2 {options} --output {} --input", at("f.h5").display());
        fednmf(0, &line).arg(at(name))
    };
    let evaluate = |name: &str| fednmf(0, "evaluate").arg(at("f.h5")).arg("--input").arg(at(name));
    let marked = |iterations: usize| {
        let checkpoint = at("c.h5");
        let (mask, checkpoint) = (at("mask.npy"), checkpoint.display().to_string());
        let options =
            format!("--missing {} --checkpoint {checkpoint} --resume --max-iters {iterations}", mask.display());
        run(&options, "x.npy")
    };
    mask(&[(0, 0), (3, 4), (7, 7)]);
    marked(10).ok();
    assert_eq!(evaluate("x.npy").run().code, Some(0));
    mask(&[(0, 0), (3, 4), (8, 2)]);
    evaluate("x.npy").refused(&["mask.npy", "other entries", "--missing FILE"]);
    // The entries that it marks now were fitted, even if the user names the file.
    evaluate("x.npy").arg("--missing").arg(at("mask.npy")).refused(&["mask.npy", "other entries"]);
    marked(20).refused(&["c.h5", "missing_checksum"]);
    mask(&[(0, 0), (3, 4), (7, 7)]);
    marked(20).ok();
    let error = |least: f64| {
        let mut mask = Array2::zeros((12, 9));
        [((0, 0), 1.0), ((3, 4), least), ((7, 7), 1e300)].into_iter().for_each(|(place, mark)| mask[place] = mark);
        save_npy(&at("sizes.npy"), &mask);
        run(&format!("--max-iters 20 --missing {}", at("sizes.npy").display()), "x.npy").ok()["rel_error"].clone()
    };
    assert_eq!(error(1.0), error(1e-300), "a mark of any size is one");

    // A run without marks held nothing out; a matrix without remaining entries has no error.
    run("--max-iters 10", "x.npy").ok();
    let told = evaluate("x.npy").arg("--missing").arg(at("mask.npy")).run();
    assert!(told.code == Some(0) && !told.stdout.contains("held-out") && told.stdout.contains("RMSE"), "{told:?}");
    save_npy(&at("all.npy"), &Array2::ones(x.dim()));
    evaluate("x.npy").arg("--missing").arg(at("all.npy")).refused(&["--missing", "nothing of the matrix is observed"]);

    run("--holdout 0.2 --max-iters 10", "x.npy").ok();
    assert_eq!(evaluate("x.npy").run().code, Some(0));
    evaluate("x.mtx").refused(&["f.h5", "dense matrix", "sparse"]);
}

/// Marks without names are matched by position, which changes with the order of the matrix.
#[test]
fn marks_by_position_do_not_follow_a_matrix_in_another_order() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let table = |rows: &[usize]| {
        let line = |i: &usize| format!("r{i},{},{},{}\n", 1 + i * 7 % 5, 2 + i * 3 % 4, 1 + i * i % 6);
        format!("name,a,b,c\n{}", rows.iter().map(line).collect::<String>())
    };
    std::fs::write(at("x.csv"), table(&[0, 1, 2, 3, 4, 5])).unwrap();
    std::fs::write(at("turned.csv"), table(&[5, 4, 3, 2, 1, 0])).unwrap();
    let mut mask = Array2::zeros((6, 3));
    mask[[1, 2]] = 1.0;
    save_npy(&at("mask.npy"), &mask);
    let line = format!("--algo hals -k 1 --max-iters 5 --missing {} --output", at("mask.npy").display());
    fednmf(0, &line).arg(at("f.h5")).arg("--input").arg(at("x.csv")).ok();
    let evaluate = |name: &str| fednmf(0, "evaluate").arg(at("f.h5")).arg("--input").arg(at(name));
    assert_eq!(evaluate("x.csv").run().code, Some(0));
    evaluate("turned.csv").refused(&["mask.npy", "has no names", "another order"]);
}

#[test]
fn the_divergence_of_the_observed_entries_is_minimised() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (share, listed) in [(0.15, "missing"), (0.8, "observed")] {
        let mut m = data(37, 26, share);
        m.iter_mut().step_by(5).filter(|x| !x.is_nan()).for_each(|x| *x = 0.0);
        save_npy(&file("m.npy"), &m);
        let input = file("m.npy").display().to_string();
        let out = file("o.h5");
        let line = |algo: &str, iterations: usize| {
            format!(
                "--algo {algo} --missing nan -k 3 --seed 5 --max-iters {iterations} --factor-scale as-found --input {input} \
                 --output {}",
                out.display()
            )
        };
        fednmf(1, &line("kl-mu", 0)).ok();
        let (mut u, mut v) = (matrix(&out, "U"), matrix(&out, "V"));
        let turned = m.t().to_owned();
        for _ in 0..8 {
            half_for_divergence(&m, &mut u, &v);
            half_for_divergence(&turned, &mut v, &u);
        }
        for ranks in [0, 2, 3] {
            let summary = fednmf(ranks, &line("kl-mu", 8)).ok();
            assert_eq!(summary["params"]["listed"], listed);
            assert!(distance(&u, &matrix(&out, "U")) < 1e-9 && distance(&v, &matrix(&out, "V")) < 1e-9, "{listed}");
            let (told, expected) = (number(&summary, "kl_divergence"), divergence(&m, &u.dot(&v.t())));
            assert!((told / expected - 1.0).abs() < 1e-9, "{told} {expected}");
        }
        let evaluated = fednmf(2, "evaluate --json --input").arg(&input).arg(&out).run();
        let evaluated: serde_json::Value = serde_json::from_str(&evaluated.stdout).expect("JSON");
        assert!(
            (number(&evaluated, "kl_divergence") / divergence(&m, &u.dot(&v.t())) - 1.0).abs() < 1e-9,
            "{evaluated}"
        );
        // Coordinate descent converges to a stationary point: min(x, gradient) = 0.
        for ranks in [1, 3] {
            let summary = fednmf(ranks, &line("kl-cd", 3000)).ok();
            let (u, v) = (matrix(&out, "U"), matrix(&out, "V"));
            let product = u.dot(&v.t());
            assert!((number(&summary, "kl_divergence") / divergence(&m, &product) - 1.0).abs() < 1e-9);
            let slope = Array2::from_shape_fn(m.dim(), |at| match m[at] {
                missing if missing.is_nan() => 0.0,
                0.0 => 1.0,
                entry => 1.0 - entry / product[at],
            });
            for (x, gradient) in [(&u, slope.dot(&v)), (&v, slope.t().dot(&u))] {
                for (x, g) in x.iter().zip(&gradient) {
                    assert!(*g > -1e-3 && (x.min(1.0) * g).abs() < 1e-3, "{listed}: {x} {g}");
                }
            }
            // A projection of the same rows is no worse.
            let told = fednmf(2, "project --json --input").arg(&input).arg(&out).run();
            let told: serde_json::Value = serde_json::from_str(&told.stdout).expect("JSON");
            assert!(number(&told, "kl_divergence") <= number(&summary, "kl_divergence") * (1.0 + 1e-6), "{told}");
        }
    }
    // Entries held out are predicted.
    let counts = "synthetic:planted,m=80,n=60,k=3,noise=0";
    for algo in ["kl-mu", "kl-cd"] {
        let run = |ranks: usize| {
            fednmf(ranks, &format!("--algo {algo} --holdout 0.1 -k 3 --max-iters 300 --input {counts}")).ok()
        };
        let [one, three] = [run(1), run(3)].map(|summary| number(&summary, "heldout_rmse"));
        assert!((one - three).abs() < 1e-6 * one + 1e-9 && one < 0.1, "{algo}: {one} {three}");
    }
}

/// Each party's rows are completed by its own factors, so one party does what loops over the completed matrix do.
#[test]
fn a_party_completes_its_rows_before_each_step() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let (k, steps) = (3, 6);
    let m = data(37, 26, 0.3);
    let sum: f64 = m.iter().filter(|x| !x.is_nan()).sum();
    let scale = 2.0 * (sum / m.len() as f64 / k as f64).sqrt();
    let start = |purpose, rows| uniform_factor::<f64>(&Stream::new(5, purpose, 0), 0..rows, k, scale);
    let (mut u, mut v) = (start(Purpose::StartU, 37), start(Purpose::StartV, 26));
    let sweep = |completed: &Array2<f64>, x: &mut Array2<f64>, y: &Array2<f64>| {
        for i in 0..x.nrows() {
            for l in 0..k {
                let descent: f64 =
                    (0..y.nrows()).map(|j| (completed[[i, j]] - x.row(i).dot(&y.row(j))) * y[[j, l]]).sum();
                x[[i, l]] = (x[[i, l]] + descent / y.column(l).dot(&y.column(l))).max(0.0);
            }
        }
    };
    let completed = |u: &Array2<f64>, v: &Array2<f64>| {
        ndarray::Zip::from(&m).and(&u.dot(&v.t())).map_collect(|&m, &f| if m.is_nan() { f } else { m })
    };
    for _ in 0..steps {
        sweep(&completed(&u, &v), &mut u, &v);
        sweep(&completed(&u, &v).t().to_owned(), &mut v, &u);
    }
    let product = u.dot(&v.t());
    let off = |x: &Array2<f64>| (x - &product).iter().filter(|x| !x.is_nan()).map(|x| x * x).sum::<f64>();
    let norm2: f64 = m.iter().filter(|x| !x.is_nan()).map(|x| x * x).sum();
    for (missing, data) in [("nan", m.clone()), ("zero-unobserved", m.mapv(|x| if x.is_nan() { 0.0 } else { x }))] {
        save_npy(&file, &data);
        for ranks in [0, 2] {
            let line = format!(
                "--algo fedavg --parties 1 --update hals --start shared --missing {missing} -k {k} --seed 5 --max-iters 1 \
                 --local-iters {steps} --input"
            );
            let summary = fednmf(ranks, &line).arg(&file).arg("--output").arg(&out).ok();
            let found = factor(&out, "U").dot(&matrix(&out, "V").t());
            assert!(distance(&found, &product) < 1e-6, "{missing} on {ranks}");
            assert!((number(&summary, "rel_error") - (off(&m) / norm2).sqrt()).abs() < 1e-6, "{missing}: {summary}");
        }
    }
}

/// Three parties miss three tenths of their rows each, and one of them a column: the missing entries are recovered.
#[test]
fn parties_recover_what_they_miss_alike_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let truth = data(120, 40, 0.0);
    let mut m = data(120, 40, 0.3);
    m.slice_mut(ndarray::s![..40, 7]).fill(f64::NAN);
    m.row_mut(50).fill(f64::NAN);
    save_npy(&file, &m);
    for line in [
        "fnmf --update hals --local-iters 10 --max-iters 60",
        "fedavg --update hals --start shared --local-iters 10 --max-iters 60",
        "fedprox --start shared --local-iters 20 --max-iters 60",
    ] {
        let mut first: Option<(Array2<f64>, u64)> = None;
        for ranks in [0, 2, 3] {
            let line = format!("--algo {line} --parties 3 --missing nan -k 4 --seed 2 --input");
            let summary = fednmf(ranks, &line).arg(&file).arg("--output").arg(&out).ok();
            let (u, v) = (factor(&out, "U"), matrix(&out, "V"));
            let fit = u.dot(&v.t());
            let error = |hidden| error_of(&fit, &truth, |at| at.0 != 50 && m[at].is_nan() == hidden);
            assert!(error(true) < 0.05, "{line}: hidden {}, seen {}", error(true), error(false));
            assert!((number(&summary, "rel_error") - error(false)).abs() < 1e-9, "{summary}");
            assert!(u.row(50).iter().all(|x| *x == 0.0), "nothing is known of this row");
            let bits = number(&summary, "rmsd_refit").to_bits();
            let (fit_there, bits_there) = first.get_or_insert_with(|| (fit.clone(), bits));
            assert!(*fit_there == fit && *bits_there == bits, "{line} on {ranks} ranks");
        }
    }
    let run = |words: &str| fednmf(0, &format!("--algo fnmf --parties 3 {words} --input")).arg(&file);
    run("--missing none").refused(&["NaN"]);
    run("--missing marks.npy").refused(&["--missing", "nan"]);
    run("--missing nan --holdout 0.1").refused(&["--holdout", "fnmf"]);
    run("--missing nan --binarize 0.5").refused(&["--binarize"]);
}

/// With few observed entries, some components are determined by none. Scaling by 2^-40 loses no bit of the data; the start
/// is scaled by its root.
#[test]
fn exact_solutions_do_not_depend_on_the_scale_of_the_data() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("m.npy");
    let m = data(37, 26, 0.9);
    let error = |scale: f64| {
        save_npy(&file, &(&m * scale));
        let line = "--algo bpp --missing nan -k 6 --seed 5 --max-iters 10 --input";
        number(&fednmf(0, line).arg(&file).ok(), "rel_error")
    };
    let expected = error(1.0);
    assert!(expected < 0.3, "{expected}");
    for scale in [2f64.powi(-40), 2f64.powi(40)] {
        let found = error(scale);
        assert!((found - expected).abs() <= 1e-12 * expected.max(1e-3), "{scale}: {found} {expected}");
    }
}

/// Threads divide the rows of an update, so the result has the same bits.
#[test]
fn threads_change_no_bit_of_an_update_with_missing_entries() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    for share in [0.2, 0.8] {
        save_npy(&file, &data(160, 90, share));
        for algo in ["hals", "mu", "bpp", "kl-mu", "kl-cd", "fnmf --parties 2 --update hals"] {
            let run = |threads: usize| {
                let line = format!("--algo {algo} --missing nan -k 3 --max-iters 5 --threads {threads} --input");
                fednmf(0, &line).arg(&file).arg("--output").arg(&out).ok();
                (factor(&out, "U"), matrix(&out, "V"))
            };
            let ((u, v), (u3, v3)) = (run(1), run(3));
            // OpenBLAS rounds a product by the number of its rows.
            let same =
                cfg!(feature = "openblas") && distance(&u, &u3).max(distance(&v, &v3)) < 1e-12 || (u, v) == (u3, v3);
            assert!(same, "{algo}, {share} missing");
        }
    }
}

/// A sweep of proximal coordinate descent on the rows of x, for the completed rows of m whose numbers are `sample`, each
/// with the weight `weight`.
fn sampled_sweep(m: &Array2<f64>, x: &mut Array2<f64>, y: &Array2<f64>, (sample, weight): (&[usize], f64), t: usize) {
    let k = x.ncols();
    let mu = (0.1 + 0.01 * t as f64) * y.iter().map(|y| y * y).sum::<f64>() / k as f64;
    for i in 0..x.nrows() {
        let before = x.row(i).to_owned();
        let completed = |j: usize| if m[[i, j]].is_nan() { before.dot(&y.row(j)) } else { m[[i, j]] };
        for l in 0..k {
            let off = |j: usize| completed(j) - x.row(i).dot(&y.row(j));
            let descent: f64 = sample.iter().map(|&j| weight * off(j) * y[[j, l]]).sum();
            let curve: f64 = sample.iter().map(|&j| weight * y[[j, l]] * y[[j, l]]).sum();
            x[[i, l]] = (x[[i, l]] + descent / (curve + mu)).max(0.0);
        }
    }
}

/// The rows that DSANLS draws in an iteration.
fn sample(seed: u64, for_u: bool, t: usize, (total, d): (usize, usize)) -> Vec<usize> {
    let mut sketch = sketch::make::<f64>(SketchKind::Subsample, total, d, 1, Order::RowMajor);
    sketch.draw(&sketch::stream(seed, for_u, t));
    sketch.picked().unwrap().to_vec()
}

#[test]
fn sampled_updates_equal_loops_over_the_completed_sample() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let (k, iterations, d) = (3, 8, (11, 14));
    for (share, listed) in [(0.3, "missing"), (0.8, "observed")] {
        let m = data(37, 26, share);
        save_npy(&file, &m);
        let (mut u, mut v, _) = naive("hals", &m, k, 5, 0);
        let turned = m.t().to_owned();
        for t in 0..iterations {
            sampled_sweep(&m, &mut u, &v, (&sample(5, true, t, (26, d.0)), 26.0 / d.0 as f64), t);
            sampled_sweep(&turned, &mut v, &u, (&sample(5, false, t, (37, d.1)), 37.0 / d.1 as f64), t);
        }
        let seen = || m.iter().zip(u.dot(&v.t())).filter(|(m, _)| !m.is_nan()).map(|(m, f)| (*m, f));
        let (off, norm2) = seen().fold((0.0, 0.0), |(off, norm2), (m, f)| (off + (m - f).powi(2), norm2 + m * m));
        for ranks in [0, 2, 3, 4] {
            let line = format!(
                "--algo dsanls --sketch-size {},{} --missing nan -k {k} --seed 5 --max-iters {iterations} --factor-scale as-found \
                 --input",
                d.0, d.1
            );
            let summary = fednmf(ranks, &line).arg(&file).arg("--output").arg(&out).ok();
            assert_eq!(summary["params"]["listed"], listed);
            assert!((number(&summary, "rel_error") - (off / norm2).sqrt()).abs() < 1e-9, "{ranks}: {summary}");
            assert!(distance(&u, &matrix(&out, "U")) < 1e-9 && distance(&v, &matrix(&out, "V")) < 1e-9, "{ranks}");
        }
    }
}

/// With all rows and columns in the sketch, DSANLS converges to a stationary point over the observed entries.
#[test]
fn sketched_updates_end_where_the_observed_entries_are_fitted() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let mut m = data(37, 26, 0.3);
    // Full rank: the error has a minimum above 0.
    m.indexed_iter_mut().for_each(|((i, j), x)| *x += ((i * 7 + j * 11) % 13) as f64 / 13.0);
    save_npy(&file, &m);
    for solver in ["pcd", "pgd"] {
        for (ranks, iterations) in [(0, 6000), (3, 100)] {
            let line = format!(
                "--algo dsanls --sketch-size 100% --solver {solver} --mu-alpha {} --mu-beta 0 --measure projected-gradient \
                 --missing nan -k 3 --seed 5 --max-iters {iterations} --eval-every {iterations} --factor-scale as-found --input",
                if solver == "pcd" { 0.01 } else { 1.0 }
            );
            let summary = fednmf(ranks, &line).arg(&file).arg("--output").arg(&out).ok();
            let (u, v) = (matrix(&out, "U"), matrix(&out, "V"));
            let residual = Array2::from_shape_fn(m.dim(), |at| match m[at] {
                missing if missing.is_nan() => 0.0,
                entry => u.row(at.0).dot(&v.row(at.1)) - entry,
            });
            let mut squared = 0.0;
            for (x, gradient) in [(&u, residual.dot(&v)), (&v, residual.t().dot(&u))] {
                let projected = |(x, g): (&f64, &f64)| if *x > 0.0 { *g } else { g.min(0.0) };
                squared += x.iter().zip(&gradient).map(|both| projected(both).powi(2)).sum::<f64>();
            }
            let told = number(&summary, "projected_gradient");
            assert!((told - squared.sqrt()).abs() < 1e-7 * (1.0 + told), "{solver}: {told}, not {}", squared.sqrt());
            assert!(told < 1e-3 || iterations < 1000, "{solver}: {told}");
        }
    }
}

#[test]
fn sketched_updates_recover_what_is_missing_as_exact_ones_do() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("m.npy");
    save_npy(&file, &data(150, 120, 0.3));
    let run = |ranks: usize, line: &str| {
        fednmf(ranks, &format!("{line} --missing nan --holdout 0.1 -k 4 --input")).arg(&file).ok()
    };
    let exact = run(0, "--algo hals --max-iters 200");
    for words in ["--sketch subsample", "--sketch weighted"] {
        let mut first = None;
        for ranks in [0, 3] {
            let sketched = run(
                ranks,
                &format!("--algo dsanls --sketch-size 50% --mu-alpha 0.01 --mu-beta 0 {words} --max-iters 600"),
            );
            assert_eq!(sketched["params"]["heldout_entries"], exact["params"]["heldout_entries"]);
            for name in ["rmse", "heldout_rmse"] {
                let [exact, sketched] = [&exact, &sketched].map(|summary| number(summary, name));
                // The entries are of order 1.
                assert!(exact < 0.01 && sketched < 0.02, "{words}, {name}: {exact} {sketched}");
            }
            let told = number(&sketched, "heldout_rmse");
            assert!((told - *first.get_or_insert(told)).abs() < 1e-7, "{words} on {ranks}");
        }
    }
    // Sparse data: only stored entries count, or all entries except the held-out ones.
    let sparse = "synthetic:sparse,m=300,n=150,density=0.1,seed=4";
    for missing in ["zero-unobserved", "none"] {
        let run = |ranks: usize, line: &str| {
            fednmf(ranks, &format!("{line} --missing {missing} --holdout 0.05 -k 3 --input {sparse}")).ok()
        };
        let exact = number(&run(0, "--algo hals --max-iters 200"), "rel_error");
        let sketched = [0, 3].map(|ranks| number(&run(ranks, "--algo dsanls --max-iters 400"), "rel_error"));
        assert!((sketched[0] - sketched[1]).abs() < 1e-7, "{missing}: {sketched:?}");
        assert!(sketched[0] < 1.1 * exact, "{missing}: {exact} {sketched:?}");
    }
}

#[test]
fn what_missing_entries_do_not_go_with_is_refused_with_the_reason() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("m.npy");
    save_npy(&file, &data(20, 12, 0.1));
    let refused = |line: &str, words: &[&str]| fednmf(2, &format!("{line} --input")).arg(&file).refused(words);
    for sketch in ["count", "gaussian", "uniform", "srht"] {
        refused(&format!("--algo dsanls --missing nan --sketch {sketch}"), &[sketch, "mixes missing", "weighted"]);
        for algo in ["syn-ssd-u", "syn-ssd-v", "syn-ssd-uv", "asyn-ssd-v"] {
            refused(&format!("--algo {algo} --missing nan --sketch {sketch}"), &[sketch, "mixes missing", "subsample"]);
        }
    }
    refused("--algo dsanls --holdout 0.1 --bound", &["--bound", "--holdout"]);
    refused("--algo vr-dsanls --missing nan", &["--missing", "completed data", "dsanls"]);
    refused("--algo dsanls-secure --missing nan", &["--missing", "released sketches", "syn-ssd-u"]);
    refused("--algo secure-hals --missing nan", &["--missing", "observed entries", "syn-ssd-u"]);
    refused("--algo syn-sd --missing nan --holdout 0.1", &["--holdout", "syn-sd"]);
}

/// A party completes its columns by its own factors, so one party does what loops over the completed matrix do.
#[test]
fn a_party_completes_its_columns_before_each_step() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let (k, steps) = (3, 6);
    let m = data(37, 26, 0.3);
    let sum: f64 = m.iter().filter(|x| !x.is_nan()).sum();
    let scale = 2.0 * (sum / m.len() as f64 / k as f64).sqrt();
    let start = |purpose, rows| uniform_factor::<f64>(&Stream::new(5, purpose, 0), 0..rows, k, scale);
    let (rows, columns): (Vec<usize>, Vec<usize>) = ((0..37).collect(), (0..26).collect());
    let turned = m.t().to_owned();
    // For each method: the sketches of its own columns and of the rows of U.
    for (algo, own, exchanged) in [
        ("syn-sd", false, false),
        ("asyn-sd", false, false),
        ("syn-ssd-v", true, false),
        ("asyn-ssd-v", true, false),
        ("syn-ssd-u", false, true),
        ("syn-ssd-uv", true, true),
    ] {
        let d = (11, 14);
        let (mut u, mut v) = (start(Purpose::StartU, 37), start(Purpose::StartV, 26));
        for t in 0..steps {
            let of_v =
                if exchanged { (sample(5, false, t, (37, d.1)), 37.0 / d.1 as f64) } else { (rows.clone(), 1.0) };
            sampled_step_of_party(&turned, &mut v, &u, (&of_v.0, of_v.1), t, exchanged);
            let of_u = if own { (sample(5, true, t, (26, d.0)), 26.0 / d.0 as f64) } else { (columns.clone(), 1.0) };
            sampled_step_of_party(&m, &mut u, &v, (&of_u.0, of_u.1), t, false);
        }
        let sketch = if own || exchanged { format!("--sketch-size {},{}", d.0, d.1) } else { String::new() };
        for (missing, data) in [("nan", m.clone()), ("zero-unobserved", m.mapv(|x| if x.is_nan() { 0.0 } else { x }))] {
            save_npy(&file, &data);
            for ranks in [0, 2] {
                let merges = if algo.starts_with("asyn") { "--rho 1e12 --clock virtual" } else { "" };
                let line = format!(
                    "--algo {algo} --parties 1 {sketch} {merges} --missing {missing} -k {k} --seed 5 --max-iters 1 \
                     --local-iters {steps} --input"
                );
                let summary = fednmf(ranks, &line).arg(&file).arg("--output").arg(&out).ok();
                assert!(distance(&u, &matrix(&out, "U")) < 1e-6, "{algo} {missing} on {ranks}");
                // V is refitted to the observed entries, so no error is below that.
                let fit = matrix(&out, "U").dot(&factor(&out, "V").t());
                let off = |fit: &Array2<f64>| (&m - fit).iter().filter(|x| !x.is_nan()).map(|x| x * x).sum::<f64>();
                let norm2: f64 = m.iter().filter(|x| !x.is_nan()).map(|x| x * x).sum();
                assert!((number(&summary, "rel_error") - (off(&fit) / norm2).sqrt()).abs() < 1e-6, "{algo}: {summary}");
                let unfitted = number(&summary, "rel_error_unfitted");
                assert!((unfitted - (off(&u.dot(&v.t())) / norm2).sqrt()).abs() < 1e-6, "{algo}: {summary}");
                assert!(number(&summary, "rel_error") < unfitted, "{algo}: {summary}");
            }
        }
    }
}

/// [`sampled_sweep`] with the parties' unit of the proximal weight: of a mean of sketched copies (`of_sample`) they know
/// only the sketch.
fn sampled_step_of_party(
    m: &Array2<f64>,
    x: &mut Array2<f64>,
    y: &Array2<f64>,
    (sample, weight): (&[usize], f64),
    t: usize,
    of_sample: bool,
) {
    if !of_sample {
        return sampled_sweep(m, x, y, (sample, weight), t);
    }
    // The same problem with the sketch as the whole matrix.
    let columns = m.select(ndarray::Axis(1), sample);
    let rows = y.select(ndarray::Axis(0), sample) * weight.sqrt();
    let all: Vec<usize> = (0..sample.len()).collect();
    sampled_sweep(&(columns * weight.sqrt()), x, &rows, (&all, 1.0), t);
}

/// Three parties miss three tenths of their columns each, and one of them a row: the missing entries are recovered.
#[test]
fn parties_with_columns_recover_what_they_miss_alike_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    let (file, out) = (dir.path().join("m.npy"), dir.path().join("o.h5"));
    let turned = |share: f64| data(120, 40, share).reversed_axes().as_standard_layout().into_owned();
    let truth = turned(0.0);
    let mut m = turned(0.3);
    m.slice_mut(ndarray::s![7, ..40]).fill(f64::NAN);
    m.column_mut(50).fill(f64::NAN);
    save_npy(&file, &m);
    for line in [
        "syn-sd --max-iters 60",
        "syn-sd --secure-sum --accept-risk few-rows,membership --max-iters 60",
        "syn-ssd-u --sketch-size 50% --max-iters 60",
        "syn-ssd-v --sketch-size 50% --max-iters 60",
        "syn-ssd-uv --sketch-size 50% --max-iters 60",
        "asyn-sd --max-iters 200",
        "asyn-ssd-v --sketch-size 50% --max-iters 200",
    ] {
        let mut first: Option<(Array2<f64>, u64)> = None;
        // Every number of ranks for the method with most messages.
        let all: &[usize] = if line.starts_with("syn-ssd-uv") { &[0, 2, 3, 4] } else { &[0, 3] };
        for &ranks in all {
            let line = format!("--algo {line} --parties 3 --missing nan -k 4 --seed 2 --input");
            let summary = fednmf(ranks, &line).arg(&file).arg("--output").arg(&out).ok();
            let (u, v) = (matrix(&out, "U"), factor(&out, "V"));
            let fit = u.dot(&v.t());
            let error = |hidden| error_of(&fit, &truth, |at| at.1 != 50 && m[at].is_nan() == hidden);
            assert!(error(true) < 0.1, "{line}: hidden {}, seen {}", error(true), error(false));
            assert!((number(&summary, "rel_error") - error(false)).abs() < 1e-9, "{summary}");
            assert!(v.row(50).iter().all(|x| *x == 0.0), "nothing is known of this column");
            let bits = number(&summary, "rel_error_unfitted").to_bits();
            let (fit_there, bits_there) = first.get_or_insert_with(|| (fit.clone(), bits));
            assert!(*fit_there == fit && *bits_there == bits, "{line} on {ranks} ranks");
        }
    }
}

/// The relative error of a fit on the positions that `asked` selects.
fn error_of(fit: &Array2<f64>, truth: &Array2<f64>, asked: impl Fn((usize, usize)) -> bool) -> f64 {
    let of = truth.indexed_iter().filter(|(at, _)| asked(*at));
    let (off, norm) =
        of.fold((0.0, 0.0), |(off, norm), (at, truth)| (off + (fit[at] - truth).powi(2), norm + truth.powi(2)));
    (off / norm).sqrt()
}

/// Parties send the same kinds and numbers of bytes, whichever entries are missing.
#[test]
fn what_parties_send_does_not_depend_on_what_they_miss() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("m.npy");
    for algo in [
        "syn-sd",
        "syn-sd --secure-sum --accept-risk few-rows,membership",
        "syn-ssd-uv --secure-sum --accept-risk few-rows,membership",
        "asyn-sd",
        "fnmf",
        "fed-kl --accept-risk rare-entries",
    ] {
        let mut sent = Vec::new();
        for share in [0.0, 0.3] {
            save_npy(&file, &data(40, 36, share));
            let line = format!("--algo {algo} --parties 3 --missing nan -k 3 --max-iters 6 --input");
            let summary = fednmf(3, &line).arg(&file).ok();
            let row = |row: &serde_json::Value| {
                ["purpose", "protection", "party_bytes"].map(|name| row[name].to_string()).join(" ")
            };
            // Whether to show progress is decided by the clock.
            let rows = summary["wire"].as_array().unwrap().iter().filter(|row| row["purpose"] != "control");
            sent.push(rows.map(row).collect::<Vec<_>>());
        }
        assert!(!sent[0].is_empty() && sent[0] == sent[1], "{algo}: {sent:?}");
    }
    // A budget holds whatever is missing: releases are clipped.
    let line = "--algo syn-sd --parties 3 --missing nan --dp gaussian --epsilon 5 --clip 1 -k 3 --max-iters 3 \
                --eval-every 3 --input";
    let summary = fednmf(2, line).arg(&file).ok();
    assert!(number(&summary, "clipped_releases") > 0.0, "{summary}");
}

/// Numerators and denominators over the observed entries of all parties are those of all rows: the factors of `kl-mu`, and its errors
/// on the same held-out entries.
#[test]
fn parties_fit_the_divergence_on_observed_entries_as_one_owner() {
    let dir = tempdir().unwrap();
    let [dense, sparse, out] = ["m.npy", "m.mtx", "o.h5"].map(|name| dir.path().join(name));
    let mut m = data(120, 40, 0.3);
    m.slice_mut(ndarray::s![..40, 7]).fill(f64::NAN);
    m.row_mut(50).fill(f64::NAN);
    save_npy(&dense, &m);
    let entries: Vec<(usize, usize, f64)> =
        (0..900).map(|i| (i * 7919 % 120, (i * i + 3 * i) / 7 % 40, ((i * i * 5 + i) % 9) as f64 + 1.0)).collect();
    let mut places: Vec<_> = entries.into_iter().map(|(i, j, x)| ((i, j), x)).collect();
    places.sort_by_key(|(place, _)| *place);
    places.dedup_by_key(|(place, _)| *place);
    write_mtx(&sparse, (120, 40), &places.into_iter().map(|((i, j), x)| (i, j, x)).collect::<Vec<_>>());
    // The sums tell single rows.
    let line = "--algo fed-kl --parties 3 --secure-sum --accept-risk few-rows,membership,few-values --missing nan -k 4 --input";
    fednmf(3, line).arg(&dense).refused(&["--missing, --holdout", "a single one of U", "--accept-risk rare-entries"]);
    let plain = "--accept-risk rare-entries";
    let secure = "--secure-sum --accept-risk few-rows,membership,few-values,rare-entries";
    for (file, left_out) in [
        (&dense, "--missing nan"),
        (&dense, "--missing nan --holdout 0.1"),
        (&sparse, "--missing zero-unobserved"),
        (&sparse, "--missing zero-unobserved --holdout 0.1"),
        (&sparse, "--holdout 0.05"),
    ] {
        let run = |ranks: usize, algo: &str| {
            let line = format!("--algo {algo} {left_out} -k 4 --max-iters 12 --seed 3 --tol 0 --input");
            let found = fednmf(ranks, &line).arg(file).arg("--output").arg(&out).ok();
            (found, factor(&out, "U").dot(&matrix(&out, "V").t()))
        };
        let (expected, product) = run(1, "kl-mu --init random");
        for (ranks, more, rounding) in [(1, plain, 1e-9), (3, plain, 1e-9), (2, secure, 1e-5)] {
            let (found, fit) = run(ranks, &format!("fed-kl --parties 3 {more}"));
            assert!(distance(&fit, &product) < rounding, "{left_out} {more}: {}", distance(&fit, &product));
            let held: &[&str] =
                if left_out.contains("holdout") { &["heldout_rmse", "heldout_kl_divergence"] } else { &[] };
            let counts = |summary: &serde_json::Value| {
                ["heldout_entries", "observed_entries"].map(|key| summary["params"][key].clone())
            };
            assert_eq!(counts(&found), counts(&expected), "{left_out} {more}");
            for key in [&["rel_error", "kl_divergence"], held].concat() {
                let [found, expected] = [&found, &expected].map(|summary| number(summary, key));
                assert!((found - expected).abs() <= rounding * expected, "{left_out} {more} {key}: {found} {expected}");
            }
        }
    }
    let run = |words: &str| fednmf(0, &format!("--algo fed-kl --parties 3 {plain} {words} --input")).arg(&dense);
    run("--missing nan --extrapolation restart").refused(&["--extrapolation restart", "--missing"]);
    run("--missing nan --holdout 1e-9").refused(&["--holdout", "larger"]);
}

/// What a mask hides decides neither a threshold nor a scale.
#[test]
fn masked_entries_decide_nothing() {
    let dir = tempdir().unwrap();
    let [x, mask] = ["x.npy", "mask.npy"].map(|name| dir.path().join(name));
    let observed = Array2::from_shape_fn((12, 8), |(i, j)| 1.0 + ((5 * i + 3 * j) % 7) as f64);
    let marks = Array2::from_shape_fn((12, 8), |(i, j)| f64::from(u8::from((i + 2 * j) % 9 == 0)));
    save_npy(&mask, &marks);
    let line = |more: &str| {
        let run = fednmf(2, &format!("--algo hals -k 2 --max-iters 5 {more} --missing"));
        run.arg(&mask).arg("--input").arg(&x)
    };
    for hidden in [0.0, 0.5, 1e6] {
        save_npy(&x, &Array2::from_shape_fn((12, 8), |at| if marks[at] > 0.0 { hidden } else { observed[at] }));
        line("--binarize q0.8").refused(&["--binarize", "--missing FILE"]);
        if hidden > 1.0 {
            line("--scale max").refused(&["--scale max", "1000000", "write 0 in its place"]);
        } else {
            line("--scale max --alpha-u 0.001").ok();
        }
    }
}
