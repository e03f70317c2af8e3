//! The exact methods on grids of ranks: the traffic follows the formula, and the grid does not change the result.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::{data, distance, events, fednmf, matrix, number, save_npy, write_circulant};

const GRIDS: [(usize, usize); 6] = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 3)];

/// Bytes that all ranks passed to MPI and received from it for a message kind.
fn bytes(summary: &Value, purpose: &str) -> u64 {
    let rows = summary["wire"].as_array().unwrap().iter();
    rows.filter(|row| row["purpose"] == purpose).map(|row| row["mpi_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn bytes_are_those_of_mpi_faun() {
    let (m, n, k, iterations) = (90, 70, 5, 6);
    for (algo, input, precision, word) in [
        ("hals", "synthetic:planted,m=90,n=70,k=5", "f64", 8),
        ("hals", "synthetic:sparse,m=90,n=70,density=0.1,law=power", "f64", 8),
        ("mu", "synthetic:sparse,m=90,n=70,density=0.1", "f32", 4),
        ("bpp", "synthetic:planted,m=90,n=70,k=5", "f64", 8),
    ] {
        for (pr, pc) in GRIDS {
            let line = format!("--algo {algo} --input {input} -k {k} --precision {precision} --grid {pr}x{pc}");
            let line = format!("{line} --exchange dense");
            let run = fednmf(pr * pc, &format!("{line} --max-iters {iterations} --eval-every 0")).ok();
            let what = format!("{algo} {input} {pr}x{pc}");
            // An all-gather of V among the pr ranks of a grid column: together they contribute it once, and each
            // receives the whole block; likewise for a reduce-scatter. The grid columns together have n rows.
            let moved = |parts: usize, rows: usize| if parts > 1 { (parts + 1) * rows * k } else { 0 };
            let gram = if pr * pc > 1 { 2 * k * k * pr * pc } else { 0 };
            for (purpose, words) in [
                ("gather V", moved(pr, n)),
                ("sum M'U", moved(pr, n)),
                ("gather U", moved(pc, m)),
                ("sum M V", moved(pc, m)),
                ("Gram of U", gram),
                ("Gram of V", gram),
            ] {
                assert_eq!(bytes(&run, purpose), (iterations * words * word) as u64, "{what}: {purpose}");
            }
        }
    }
}

#[test]
fn the_grid_does_not_change_the_result() {
    let dir = tempdir().unwrap();
    let digits = data("digits.npy").display().to_string();
    for algo in ["hals", "mu", "bpp"] {
        for input in [digits.as_str(), "synthetic:sparse,m=300,n=150,density=0.05,seed=4"] {
            let mut first = None;
            for (pr, pc) in GRIDS {
                let file = dir.path().join("o.h5");
                let line = format!("--algo {algo} --input {input} -k 5 --max-iters 20 --seed 3 --grid {pr}x{pc}");
                let error = fednmf(pr * pc, &line).arg("--output").arg(&file).ok()["rel_error"].as_f64().unwrap();
                let (u, v) = (matrix(&file, "U"), matrix(&file, "V"));
                let (e, a, b) = first.get_or_insert_with(|| (error, u.clone(), v.clone()));
                assert!((error - *e).abs() <= 1e-9 * *e, "{line}: {error} {e}");
                assert!(distance(a, &u) < 1e-7 && distance(b, &v) < 1e-7, "{line}");
            }
        }
    }
}

#[test]
fn the_default_grid_has_the_least_traffic_and_is_in_the_trace() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    for (ranks, m, n, grid) in [(4, 60, 60, "2x2"), (4, 600, 60, "4x1"), (4, 60, 600, "1x4"), (6, 60, 90, "2x3")] {
        let line = format!("--algo hals --input synthetic:planted,m={m},n={n} --max-iters 2");
        fednmf(ranks, &line).arg("--trace").arg(&trace).ok();
        assert_eq!(events(&trace)[0]["params"]["grid"], grid, "{m} x {n} on {ranks}");
    }
}

/// The counted grids in the trace, by name.
fn counted(trace: &Path) -> HashMap<String, Value> {
    let start = events(trace)[0].clone();
    let grids = start["grids"].as_array().cloned().unwrap_or_default();
    grids.into_iter().map(|grid| (grid["grid"].as_str().unwrap().to_string(), grid)).collect()
}

#[test]
fn the_grid_of_sparse_data_is_chosen_by_its_nonzeros() {
    let dir = tempdir().unwrap();
    let (input, trace) = (dir.path().join("m.mtx"), dir.path().join("t.jsonl"));
    let (n, k, iterations) = (4000, 10, 2);
    let places = write_circulant(&input, n, &[0, 1]);
    let banded = input.display().to_string();
    let run = |ranks, input: &str, more: &str| {
        let line = format!("--algo hals -k {k} --max-iters {iterations} --init random {more} --input {input} --trace");
        let run = fednmf(ranks, &line).arg(&trace).limit(300).ok();
        (run, events(&trace)[0]["params"].clone(), counted(&trace))
    };
    for (ranks, by_size) in [(4, "2x2"), (16, "4x4")] {
        let rows_alone = format!("{ranks}x1");
        let (chosen, parameters, grids) = run(ranks, &banded, "--eval-every 0");
        assert_eq!((&parameters["grid"], &parameters["exchange_v"]), (&Value::from(&*rows_alone), &"sparse".into()));
        // Both neighbours of a rank have one row for it or need one of it.
        let record = &grids[&rows_alone];
        assert_eq!(record["bytes"], 2 * k * 8, "a row is gathered and one is summed: {record}");
        assert_eq!(record["largest_block"], 2 * n / ranks, "{record}");
        let [of_v, _] = crossing(&places, n, (ranks, 1));
        assert_eq!(bytes(&chosen, "gather V"), (2 * iterations * of_v.0 * k * 8) as u64);
        // A block on the diagonal touches all of its rows and columns.
        let record = &grids[by_size];
        let side = n * (ranks.isqrt() - 1) / ranks;
        assert_eq!(record["bytes"], 4 * side * k * 8, "{record}");
        let (other, parameters, grids) = run(ranks, &banded, &format!("--grid {by_size}"));
        assert_eq!((&parameters["grid"], grids.len()), (&by_size.into(), 0), "nothing to choose");
        let (chosen, _, _) = run(ranks, &banded, "");
        let error = |run: &Value| run["rel_error"].as_f64().unwrap();
        assert!((error(&chosen) - error(&other)).abs() <= 1e-9 * error(&other), "{chosen} {other}");
        // All rows are sent.
        assert_eq!(run(ranks, &banded, "--exchange dense").1["grid"], by_size);
    }
    // A rank has room for all rows of its block: those of V are 320 kB, which is more than half of a rank's part, and on the
    // square grid 80 kB of each factor.
    assert_eq!(run(16, &banded, "--memory 4300000").1["grid"], "4x4");
    // A sparse exchange gains nothing if each block touches most rows and columns, as for words in documents. The graph,
    // whose clusters are consecutive, gains by a grid of 4x1.
    for (input, grid) in [
        ("synthetic:sparse,m=600,n=600,density=0.05,law=power", "2x2"),
        ("synthetic:graph,n=600,k=3,density=0.2", "4x1"),
    ] {
        let (one, _, _) = run(1, input, "");
        let (four, parameters, grids) = run(4, input, "");
        assert_eq!((&parameters["grid"], grids.len()), (&grid.into(), 3), "{input}");
        let error = |run: &Value| run["rel_error"].as_f64().unwrap();
        assert!((error(&one) - error(&four)).abs() <= 1e-9 * error(&one), "{one} {four}");
    }
    // The summary reports it with --verbose.
    let line = format!("--algo hals -k {k} --max-iters 2 --verbose --input {banded}");
    let run = fednmf(4, &line).run();
    assert!(run.stderr.contains("--grid auto: 4x1: 2000 nonzeros and 160 B an iteration"), "{}", run.stderr);
    assert!(run.stdout.contains("2x2  3999"), "{}", run.stdout);
}

#[test]
fn a_run_resumes_on_another_grid() {
    let dir = tempdir().unwrap();
    let checkpoint = dir.path().join("c.h5");
    let line = "--algo hals --input synthetic:planted,m=60,n=50 -k 4";
    let whole = fednmf(1, &format!("{line} --max-iters 12")).ok();
    fednmf(4, &format!("{line} --max-iters 6 --grid 2x2 --checkpoint")).arg(&checkpoint).ok();
    let resumed = fednmf(3, &format!("{line} --max-iters 12 --grid 1x3 --resume --checkpoint")).arg(&checkpoint).ok();
    let error = |run: &Value| run["rel_error"].as_f64().unwrap();
    assert!((error(&whole) - error(&resumed)).abs() < 1e-9, "{whole} {resumed}");
}

#[test]
fn a_grid_that_does_not_fit_is_refused() {
    fednmf(3, "--algo hals --grid 2x2").refused(&["--grid 2x2", "4 ranks", "has 3"]);
    fednmf(1, "--algo mu --grid 99999999999999x99999999999999").refused(&["--grid", "far too many"]);
    fednmf(2, "--algo dsanls --grid 2x1").refused(&["--grid", "hals, bpp, mu"]);
}

/// Rows of V and of U that cross a border in one sparse exchange on an even grid, and messages: by the definition, from
/// the positions of the entries. n is a multiple of pr pc.
fn crossing(places: &[(usize, usize)], n: usize, (pr, pc): (usize, usize)) -> [(usize, usize); 2] {
    let share = n / (pr * pc);
    // Rank (i, j) owns share i of the pr in column block j of V, and share j of the pc in row block i of U.
    let of_v = |row: usize, col: usize| (col, row / (n / pr), col / (n / pc), col % (n / pc) / share);
    let of_u = |row: usize, col: usize| (row, col / (n / pc), row / (n / pr), row % (n / pr) / share);
    [&of_v as &dyn Fn(usize, usize) -> (usize, usize, usize, usize), &of_u].map(|side| {
        let all = places.iter().map(|&(row, col)| side(row, col));
        let needed: HashSet<_> = all.filter(|(_, needs, _, owns)| needs != owns).collect();
        let pairs: HashSet<_> = needed.iter().map(|&(_, needs, group, owns)| (needs, group, owns)).collect();
        (needed.len(), pairs.len())
    })
}

#[test]
fn a_sparse_exchange_sends_the_rows_that_blocks_touch_and_gives_the_same_result() {
    let dir = tempdir().unwrap();
    let input = dir.path().join("m.mtx");
    let (n, k, iterations) = (240, 4, 5);
    let places = write_circulant(&input, n, &[0, 1, 17]);
    let count = |run: &Value, purpose: &str, column: &str| -> u64 {
        let rows = run["wire"].as_array().unwrap().iter();
        rows.filter(|row| row["purpose"] == purpose).map(|row| row[column].as_u64().unwrap()).sum()
    };
    for (algo, precision, word) in [("hals", "f64", 8), ("bpp", "f64", 8), ("mu", "f32", 4), ("auto", "f64", 8)] {
        for grid in [(2, 1), (1, 3), (4, 1), (2, 2), (3, 2)] {
            let (pr, pc) = grid;
            let run = |exchange: &str, more: &str| {
                let file = dir.path().join("o.h5");
                let line =
                    format!("--algo {algo} -k {k} --precision {precision} --grid {pr}x{pc} --max-iters {iterations}");
                let line = format!("{line} --init random --exchange {exchange} {more} --input");
                let run = fednmf(pr * pc, &line).arg(&input).arg("--output").arg(&file).ok();
                (run, matrix(&file, "U"), matrix(&file, "V"))
            };
            let ((dense, u, v), (sparse, a, b)) = (run("dense", ""), run("sparse", ""));
            let close = if word == 8 { 1e-9 } else { 1e-4 };
            let what = format!("{algo} {pr}x{pc}");
            let error = |run: &Value| run["rel_error"].as_f64().unwrap();
            assert!((error(&dense) - error(&sparse)).abs() <= close * error(&dense), "{what}: {dense} {sparse}");
            assert!(distance(&u, &a) < 1e2 * close && distance(&v, &b) < 1e2 * close, "{what}");
            // The same messages come again, in whatever order, and are summed in that of the ranks.
            let (_, a2, b2) = run("sparse", "");
            assert!(a == a2 && b == b2, "{what}: not the same bits");
            let (sparse, _, _) = run("sparse", "--eval-every 0");
            let [of_v, of_u] = crossing(&places, n, grid);
            for (purpose, (rows, pairs)) in
                [("gather V", of_v), ("sum M'U", of_v), ("gather U", of_u), ("sum M V", of_u)]
            {
                // After a rise of the objective an extrapolated iteration repeats nothing of these. Each row and message
                // is counted where it is sent and where it is received.
                assert_eq!(
                    count(&sparse, purpose, "mpi_bytes"),
                    (2 * iterations * rows * k * word) as u64,
                    "{what} {purpose}"
                );
                assert_eq!(count(&sparse, purpose, "messages"), (2 * iterations * pairs) as u64, "{what} {purpose}");
            }
        }
    }
}

#[test]
fn sixteen_ranks_exchange_what_blocks_touch() {
    let dir = tempdir().unwrap();
    let input = dir.path().join("m.mtx");
    let (n, k, iterations) = (240, 4, 3);
    let places = write_circulant(&input, n, &[0, 1, 17]);
    let one = fednmf(1, &format!("--algo hals -k {k} --max-iters {iterations} --input")).arg(&input).ok();
    for grid in [(4, 4), (16, 1)] {
        let line = format!("--algo hals -k {k} --max-iters {iterations} --eval-every 0 --grid {}x{}", grid.0, grid.1);
        let run = fednmf(16, &format!("{line} --exchange sparse --input")).arg(&input).limit(300).ok();
        let [of_v, of_u] = crossing(&places, n, grid);
        for (purpose, (rows, _)) in [("gather V", of_v), ("sum M'U", of_v), ("gather U", of_u), ("sum M V", of_u)] {
            assert_eq!(bytes(&run, purpose), (2 * iterations * rows * k * 8) as u64, "{grid:?} {purpose}");
        }
        let line = line.replace(" --eval-every 0", "");
        let run = fednmf(16, &format!("{line} --exchange sparse --input")).arg(&input).limit(300).ok();
        let error = |run: &Value| run["rel_error"].as_f64().unwrap();
        assert!((error(&one) - error(&run)).abs() <= 1e-9 * error(&one), "{grid:?}: {one} {run}");
    }
}

#[test]
fn the_exchange_that_sends_less_is_chosen_and_in_the_trace() {
    let dir = tempdir().unwrap();
    let (input, trace) = (dir.path().join("m.mtx"), dir.path().join("t.jsonl"));
    let chosen = |input: &str, words: &str| {
        fednmf(4, &format!("--algo hals -k 10 --max-iters 2 --input {input} {words} --trace")).arg(&trace).ok();
        let params = events(&trace)[0]["params"].clone();
        [params["exchange_v"].clone(), params["exchange_u"].clone()]
    };
    write_circulant(&input, 4000, &[0, 1]);
    let banded = input.display().to_string();
    assert_eq!(chosen(&banded, "--grid 4x1"), [Value::from("sparse"), Value::Null], "U does not travel");
    assert_eq!(chosen(&banded, "--grid 1x4"), [Value::Null, Value::from("sparse")], "V does not travel");
    assert_eq!(chosen(&banded, "--grid 4x1 --exchange dense"), [Value::from("dense"), Value::Null]);
    // The blocks on the diagonal touch all of their rows and columns.
    assert_eq!(chosen(&banded, "--grid 2x2"), ["dense", "dense"]);
    // Each block touches all rows and columns.
    assert_eq!(chosen("synthetic:sparse,m=200,n=200,density=0.3", "--grid 2x2"), ["dense", "dense"]);
    // Three messages cost more than the bytes that they save of two.
    write_circulant(&input, 60, &[0, 1, 17, 33, 47]);
    assert_eq!(chosen(&input.display().to_string(), "--grid 4x1"), [Value::from("dense"), Value::Null]);
}

#[test]
fn a_sparse_exchange_of_dense_data_is_refused() {
    fednmf(2, "--algo hals --exchange sparse --input synthetic:planted,m=30,n=20 -k 3").refused(&[
        "--exchange sparse",
        "dense",
        "leave it out",
    ]);
}

/// Each rank reads its own rows of a dense file, or its own columns of one that is stored by columns.
#[test]
fn lines_of_a_dense_file_that_stay_are_not_exchanged() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let x = Array2::from_shape_fn((40, 9), |(i, j)| ((7 * i + 3 * j) % 5) as f64);
    save_npy(&file("x.npy"), &x);
    for (words, exchanged) in [("--grid 2x1", false), ("--grid 1x2", true), ("--transpose --grid 1x2", false)] {
        let run = |ranks, grid: &str| {
            let line = format!("--algo hals -k 3 --max-iters 3 --precision f64 {grid} --input");
            fednmf(ranks, &line).arg(file("x.npy")).ok()
        };
        let two = run(2, words);
        let sent = two["wire"].as_array().unwrap().iter().any(|w| w["purpose"] == "load entries");
        assert_eq!(sent, exchanged, "{words}: {}", two["wire"]);
        let one = run(0, if words.contains("transpose") { "--transpose" } else { "" });
        assert!((number(&one, "rel_error") - number(&two, "rel_error")).abs() < 1e-12, "{words}");
    }
}
