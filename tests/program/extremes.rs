//! Edge cases: empty rows and columns, one column, one component, huge and tiny numbers, more ranks than rows, every
//! file format of one matrix.

use std::path::Path;

use ndarray::{Array2, s};
use tempfile::tempdir;

use fednmf_methods::description::Partition;
use fednmf_methods::registry;

use crate::common::{data, distance, errors, factor, fednmf, matrix, number, session};

/// Writes the nonzeros of a matrix as MatrixMarket coordinates.
fn write(path: &Path, m: &Array2<f64>) {
    let entries: Vec<String> = m
        .indexed_iter()
        .filter(|(_, v)| **v != 0.0)
        .map(|((i, j), v)| format!("{} {} {v:e}\n", i + 1, j + 1))
        .collect();
    let head =
        format!("%%MatrixMarket matrix coordinate real general\n{} {} {}\n", m.nrows(), m.ncols(), entries.len());
    std::fs::write(path, head + &entries.concat()).unwrap();
}

/// The same entries as a dense array file.
fn write_dense(path: &Path, m: &Array2<f64>) {
    let entries: String = m.t().iter().map(|v| format!("{v:e}\n")).collect();
    let head = format!("%%MatrixMarket matrix array real general\n{} {}\n", m.nrows(), m.ncols());
    std::fs::write(path, head + &entries).unwrap();
}

/// No command prints a small number as 0.
#[test]
fn small_numbers_are_printed_with_their_digits() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let m = Array2::from_shape_fn((20, 6), |(i, j)| 1e-8 * (1.0 + ((7 * i + 3 * j * j) % 11) as f64));
    write_dense(&at("m.mtx"), &m);
    let mut told = Vec::new();
    for (name, options) in
        [("s.h5", "--holdout 0.1"), ("b.h5", "--loss 1.5"), ("p.h5", "--alpha-u 1e-12"), ("k.h5", "--loss kl")]
    {
        fednmf(0, &format!("-k 2 -q {options} --input")).arg(at("m.mtx")).arg("-o").arg(at(name)).ok();
        told.push(fednmf(0, "evaluate").arg(at(name)).arg("--input").arg(at("m.mtx")).run());
        let projected = format!("projected-{name}");
        told.push(
            fednmf(0, "project").arg(at(name)).arg("--input").arg(at("m.mtx")).arg("-o").arg(at(&projected)).run(),
        );
    }
    std::fs::write(at("pairs.csv"), "0,1,3e-8\n2,3,4e-8\n").unwrap();
    told.push(fednmf(0, "predict").arg(at("s.h5")).arg(at("pairs.csv")).run());
    told.push(fednmf(0, "sweep --k 1..3 --runs 2 --input").arg(at("m.mtx")).arg("--output").arg(at("sweep")).run());
    for output in told {
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let mut words = output.stdout.split_whitespace().chain(output.stderr.split_whitespace());
        assert!(
            words.all(|word| !word.starts_with("0.0") || word.parse() != Ok(0.0)),
            "{}{}",
            output.stdout,
            output.stderr
        );
    }
}

/// Squares of the entries underflow, but the norm does not.
#[test]
fn inspect_knows_the_norm_of_tiny_entries() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("m.mtx");
    for scale in [1e-320, 1e-200, 1e-162, 1e-150, 1.0] {
        let m = Array2::from_shape_fn((20, 6), |(i, j)| scale * ((7 * i + 3 * j * j) % 11) as f64);
        write_dense(&path, &m);
        let expected = scale * (m.mapv(|x| (x / scale).powi(2)).sum()).sqrt();
        for ranks in [0, 2] {
            let told = fednmf(ranks, "inspect --json").arg(&path).run();
            let found = number(&serde_json::from_str(&told.stdout).unwrap(), "norm");
            assert!((found / expected - 1.0).abs() < 1e-3, "{scale}: {found} {expected}");
        }
    }
}

/// Rows of one or two nonzeros make updates of tiny numbers.
#[test]
fn multiplicative_updates_of_very_sparse_data_never_rise() {
    for (seed, precision) in [(0, "f64"), (1, "f64"), (2, "f32"), (3, "f32")] {
        let input =
            format!("--input synthetic:sparse,m=100,n=60,density=0.02,values=ones,law=power,seed=1 --seed {seed}");
        let dir = tempdir().unwrap();
        let trace = dir.path().join("t.jsonl");
        let line = format!(
            "--algo mu -k 3 --init random --max-iters 1000 --eval-every 50 --precision {precision} {input} --trace"
        );
        fednmf(0, &line).arg(&trace).ok();
        let errors = errors(&trace);
        let rises = errors.windows(2).any(|pair| pair[1].1 > pair[0].1 * (1.0 + 1e-6));
        assert!(!rises && errors.last().unwrap().1 < 0.97, "{precision} {seed}: {errors:?}");
    }
}

fn sample(rows: usize, cols: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, cols), |(i, j)| ((i * 31 + j * 17) % 7) as f64 * ((i + 2 * j) % 3) as f64)
}

/// An edge case and how it is factorised.
struct Case {
    what: &'static str,
    m: Array2<f64>,
    k: usize,
    ranks: usize,
    words: &'static str,
}

fn case(what: &'static str, m: Array2<f64>, k: usize, ranks: usize) -> Case {
    Case { what, m, k, ranks, words: "" }
}

/// Runs every algorithm on each matrix, dense and sparse, without mpirun and on several ranks, and checks that the
/// factors are finite and nonnegative, that their error is the reported one, and that it does not depend on the number
/// of ranks.
fn all_agree(cases: &[Case], parties: usize) {
    let dir = tempdir().unwrap();
    let mut wrong = Vec::new();
    for ranks in cases.iter().map(|c| c.ranks).collect::<std::collections::BTreeSet<_>>() {
        let mut asked: [Vec<String>; 2] = Default::default();
        let mut of: Vec<(&Case, &str, bool)> = Vec::new();
        for (number, case) in cases.iter().enumerate().filter(|(_, c)| c.ranks == ranks) {
            let [sparse, dense] = ["s", "d"].map(|kind| dir.path().join(format!("{number}-{kind}.mtx")));
            write(&sparse, &case.m);
            write_dense(&dense, &case.m);
            // Symmetric matrices have edge cases of their own: the module symmetric.
            for method in registry::descriptions().filter(|m| m.partition != Partition::Symmetric) {
                let private = method.partition.is_private();
                let mut words = case.words.to_string();
                if private {
                    words += &format!(" --parties {parties}");
                }
                if method.is_boolean() {
                    words += " --scale max --binarize 0.3";
                }
                words += match method.name {
                    "ppdnmf" => " --plain --secret-seed 1",
                    "mpc-columns" | "mpc-rows" => " --secret-seed 1",
                    "dsanls-secure" => " --accept-risk sketches",
                    _ => "",
                };
                for input in [&sparse, &dense] {
                    for (which, lines) in asked.iter_mut().enumerate() {
                        let out = dir.path().join(format!("{}-{which}.h5", of.len()));
                        lines.push(format!(
                            "--algo {} -k {} --max-iters 15 {words} --input {} --output {}",
                            method.name,
                            case.k,
                            input.display(),
                            out.display()
                        ));
                    }
                    of.push((case, method.name, private));
                }
            }
        }
        let [one, many] = [(0, &asked[0]), (ranks, &asked[1])].map(|(ranks, lines)| session::all(ranks, lines));
        for (i, (case, algo, private)) in of.into_iter().enumerate() {
            let out = |which: usize| dir.path().join(format!("{i}-{which}.h5"));
            if let Err(why) = in_order(case, algo, private, [&one[i], &many[i]], [&out(0), &out(1)]) {
                wrong.push(format!("{}: {why}\n    {}", case.what, asked[1][i]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} runs\n{}", wrong.len(), wrong.join("\n"));
}

/// Methods with constants or fixed point beside products of factors.
const OF_MODERATE_SCALE: [&str; 6] = ["ppdnmf", "admm", "fedavg", "fedprox", "ipalm", "mur"];

/// Checks a run on one rank and one on several.
fn in_order(case: &Case, algo: &str, private: bool, done: [&session::Done; 2], out: [&Path; 2]) -> Result<(), String> {
    if let Some(failed) = done.iter().find(|d| d.code != 0) {
        // They cover data of moderate size; the message must say so.
        let fixed = OF_MODERATE_SCALE.contains(&algo) && failed.code == 2 && failed.message.contains("--scale max");
        return if fixed { Ok(()) } else { Err(failed.message.clone()) };
    }
    let tolerance = if case.words.contains("f32") { 1e-3 } else { 1e-6 };
    let errors = done.map(|d| d.summary["rel_error"].as_f64());
    let [Some(one), Some(many)] = errors else { return Err(format!("errors {errors:?}")) };
    for out in out {
        let (u, v) = (factor(out, "U"), factor(out, "V"));
        if !u.iter().chain(&v).all(|x| x.is_finite() && *x >= 0.0) {
            return Err("factors with entries that are negative or not finite".into());
        }
        if !private {
            let largest =
                if case.words.contains("--scale") { 1.0 } else { case.m.iter().fold(0.0, |l: f64, x| l.max(*x)) };
            let m = &case.m / case.m.iter().fold(0.0, |l: f64, x| l.max(*x));
            let fit = u.dot(&(&v / largest).t());
            let fit = (&m - &fit).mapv(|e| e * e).sum().sqrt() / m.mapv(|e| e * e).sum().sqrt();
            if (one - fit).abs() >= tolerance * (1.0 + fit) {
                return Err(format!("reports {one}, but the factors give {fit}"));
            }
        }
    }
    let same = if private { one.to_bits() == many.to_bits() } else { (one - many).abs() < tolerance * (one + 0.1) };
    if same { Ok(()) } else { Err(format!("{algo}: {one} alone, {many} on several ranks")) }
}

#[test]
fn zero_rows_and_columns_and_blocks() {
    let mut edges = sample(30, 20);
    edges.row_mut(0).fill(0.0);
    edges.row_mut(29).fill(0.0);
    edges.column_mut(7).fill(0.0);
    // all data of party 1 of five, by rows and by columns
    let mut party = sample(30, 20);
    party.slice_mut(s![6..12, ..]).fill(0.0);
    party.slice_mut(s![.., 4..8]).fill(0.0);
    // a single nonzero
    let mut single = Array2::zeros((12, 10));
    single[[7, 3]] = 2.5;
    let cases = [
        case("zero rows and columns", edges, 4, 3),
        case("a block without nonzeros", party, 4, 3),
        case("a single entry", single, 2, 3),
    ];
    all_agree(&cases, 5);
}

#[test]
fn fewer_dimensions_than_components() {
    // rank 2 and rank 1, five components
    let two = Array2::from_shape_fn((20, 15), |(i, j)| ((i % 4) * (j % 3) + (i % 3) * (j % 5)) as f64);
    let cases = [case("rank 2", two, 5, 3), case("constant", Array2::from_elem((16, 12), 3.0), 5, 3)];
    all_agree(&cases, 4);
}

#[test]
fn single_rows_columns_and_components() {
    let cases = [
        case("k = 1", sample(25, 12), 1, 3),
        case("one row or column for each party", sample(5, 5), 2, 3),
        case("more ranks than rows and columns", sample(5, 5), 2, 6),
    ];
    all_agree(&cases, 5);
    let cases = [
        case("one column", sample(25, 1), 1, 3),
        case("one row", sample(1, 25), 1, 2),
        case("more ranks than rows", sample(3, 14), 2, 6),
        case("more ranks than columns", sample(14, 3), 2, 6),
    ];
    all_agree(&cases, 1);
}

#[test]
fn large_and_small_numbers() {
    let narrow = |c| Case { words: "--precision f32", ..c };
    let scaled = |c| Case { words: "--scale max", ..c };
    let cases = [
        case("1e150", sample(20, 12) * 1e150, 3, 2),
        case("1e-140", sample(20, 12) * 1e-140, 3, 2),
        case("2^53", sample(20, 12) * (2f64.powi(53) / 12.0), 3, 2),
        scaled(case("1e-300, scaled", sample(20, 12) * 1e-300, 3, 2)),
        scaled(case("1e300, scaled", sample(20, 12) * 1e300, 3, 2)),
        narrow(case("1e15 in f32", sample(20, 12) * 1e15, 3, 2)),
        narrow(case("1e-15 in f32", sample(20, 12) * 1e-15, 3, 2)),
        narrow(case("2^53 in f32", sample(20, 12) * (2f64.powi(53) / 12.0), 3, 2)),
    ];
    all_agree(&cases, 4);
}

#[test]
fn numbers_whose_square_is_not_finite_are_refused_with_a_remedy() {
    let dir = tempdir().unwrap();
    for (scale, word) in [(1e-300, "underflows"), (1e300, "is beyond the range of numbers")] {
        let path = dir.path().join("m.mtx");
        write(&path, &(sample(20, 12) * scale));
        fednmf(2, "--algo hals -k 2 --input").arg(&path).refused(&[word, "--scale max"]);
    }
}

#[test]
fn methods_for_data_of_moderate_size_refuse_others_with_a_remedy() {
    let dir = tempdir().unwrap();
    for algo in OF_MODERATE_SCALE {
        let plain = if algo == "ppdnmf" { "--plain --topology complete" } else { "" };
        let turned = if ["ppdnmf", "admm"].contains(&algo) { "--transpose" } else { "" };
        let run = |scale: f64, more: &str| {
            let path = dir.path().join("m.mtx");
            write(&path, &(sample(40, 12) * scale));
            fednmf(0, &format!("--algo {algo} {plain} {turned} --parties 2 -k 2 --max-iters 5 {more} --json --input"))
                .arg(&path)
        };
        for (scale, word) in [(1e-60, "too small"), (1e60, "too large")] {
            run(scale, "").refused(&[word, "--scale max"]);
        }
        let error = |scale| number(&run(scale, "--scale max").ok(), "rel_error");
        let (small, one) = (error(1e-60), error(1.0));
        assert!(one < 0.9 && (small - one).abs() < 1e-6, "{algo}: {small} {one}");
    }
}

#[test]
fn integers_up_to_two_to_the_53_are_read_exactly() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("m.mtx");
    let text = "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 9007199254740991\n2 2 9007199254740992\n";
    std::fs::write(&path, text).unwrap();
    let output = fednmf(2, "inspect --json").arg(&path).run().stdout;
    let told: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!((told["min"].as_f64(), told["max"].as_f64()), (Some(0.0), Some(9007199254740992.0)));
}

#[test]
fn sixty_four_ranks_agree_with_one() {
    for algo in ["hals", "dsanls"] {
        let line = format!("--algo {algo} --input synthetic:planted,m=300,n=200 --max-iters 5 --eval-every 0");
        let dir = tempdir().unwrap();
        let run = |ranks, name: &str| {
            let out = dir.path().join(name);
            fednmf(ranks, &line).arg("--output").arg(&out).limit(100).ok();
            matrix(&out, "U")
        };
        assert!(distance(&run(1, "1.h5"), &run(64, "64.h5")) < 1e-9, "{algo}");
    }
}

#[test]
fn one_matrix_in_every_format_gives_the_same_bits() {
    let dir = tempdir().unwrap();
    let run = |file: &str, line: &str, i: usize| {
        let out = dir.path().join(format!("{i}.h5"));
        let input = data("formats").join(file);
        fednmf(2, &format!("--algo hals -k 3 --max-iters 10 --seed 1 {line} --input"))
            .arg(input)
            .arg("--output")
            .arg(&out)
            .ok();
        matrix(&out, "U")
    };
    let first = run("counts.mtx", "", 0);
    // 10x files store genes by cells, the others the transpose
    for (i, (file, line)) in
        [("counts.h5ad", ""), ("counts-csr.npz", ""), ("counts-csc-plain.npz", ""), ("counts-10x.h5", "--transpose")]
            .iter()
            .enumerate()
    {
        assert_eq!(first, run(file, line, i + 1), "{file}");
    }
}
