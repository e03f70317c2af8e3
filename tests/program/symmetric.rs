//! Symmetric NMF: its iterates against plain loops, planted groups of a graph, and what it refuses.

use std::path::Path;

use ndarray::Array2;
use tempfile::tempdir;

use crate::common::{data, distance, factor, fednmf, matrix, number, save_npy, session};
use crate::naive::least_squares;

/// Iterations from U = V, with penalty α, each row solved exactly or by one sweep.
fn anls(a: &Array2<f64>, start: &Array2<f64>, alpha: f64, iterations: usize, exact: bool) -> [Array2<f64>; 2] {
    let mut factors = [start.clone(), start.clone()];
    let k = start.ncols();
    for half in 0..2 * iterations {
        let fixed = factors[1 - half % 2].clone();
        let g = fixed.t().dot(&fixed) + Array2::<f64>::eye(k) * alpha;
        let r = a.dot(&fixed) + &fixed * alpha;
        least_squares(&mut factors[half % 2], &g, &r, exact);
    }
    factors
}

#[test]
fn iterates_are_those_of_plain_loops() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    fednmf(0, "generate graph,n=30,k=3,density=0.6,noise=0.2 --output").arg(file("g.mtx")).run();
    let graph = from_edges(&file("g.mtx"));
    let digits = matrix_of_npy(&data("similarity.npy"));
    for (name, a) in [("g.mtx", &graph), ("similarity.npy", &digits)] {
        let input = if name == "g.mtx" { file(name) } else { data(name) };
        for (words, exact, alpha) in [
            ("", true, a.iter().copied().fold(0.0, f64::max)),
            ("--symmetry-weight 0.3", true, 0.3),
            ("--solver hals --symmetry-weight 2", false, 2.0),
        ] {
            let line = |iterations: usize, out: &Path, more: &str| {
                let (input, out) = (input.display(), out.display());
                format!(
                    "--algo symnmf -k 3 --seed 4 --input {input} --output {out} --factor-scale as-found {words} {more} \
                     --max-iters {iterations}"
                )
            };
            fednmf(1, &line(0, &file("start.h5"), "")).ok();
            let start = matrix(&file("start.h5"), "V");
            assert_eq!(start, matrix(&file("start.h5"), "U"));
            let [u, v] = anls(a, &start, alpha, 6, exact);
            for ranks in [1, 2, 3, 4] {
                let summary = fednmf(ranks, &line(6, &file("o.h5"), "")).ok();
                let found = [matrix(&file("o.h5"), "U"), matrix(&file("o.h5"), "V")];
                let far = [distance(&u, &found[0]), distance(&v, &found[1])];
                assert!(far.iter().all(|far| *far < 1e-9), "{name} {words} on {ranks} ranks: {far:?}");
                let norm = |x: &Array2<f64>| x.mapv(|x| x * x).sum().sqrt();
                let error = norm(&(a - &u.dot(&v.t()))) / norm(a);
                assert!((number(&summary, "rel_error") - error).abs() < 1e-9);
                assert!((number(&summary, "factor_distance") - norm(&(&u - &v)) / norm(&v)).abs() < 1e-9);
            }
        }
    }
}

/// The 0/1 matrix of a coordinate file.
fn from_edges(path: &Path) -> Array2<f64> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text
        .lines()
        .filter(|line| !line.starts_with('%'))
        .map(|line| line.split_whitespace().map(|word| word.parse::<usize>().unwrap()).collect::<Vec<_>>());
    let n = lines.next().unwrap()[0];
    let mut a = Array2::zeros((n, n));
    lines.for_each(|edge| a[[edge[0] - 1, edge[1] - 1]] = 1.0);
    a
}

/// A square .npy of f64.
fn matrix_of_npy(path: &Path) -> Array2<f64> {
    let bytes = std::fs::read(path).unwrap();
    let n = 40;
    let entries = bytes[bytes.len() - 8 * n * n..].as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x));
    Array2::from_shape_vec((n, n), entries.collect()).unwrap()
}

/// The adjusted Rand index (Hubert and Arabie 1985), from its definition over pairs.
fn adjusted_rand(a: &[usize], b: &[usize]) -> f64 {
    let pairs = || (0..a.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
    let same = |x: &[usize]| pairs().filter(|&(i, j)| x[i] == x[j]).count() as f64;
    let both = pairs().filter(|&(i, j)| a[i] == a[j] && b[i] == b[j]).count() as f64;
    let expected = same(a) * same(b) / pairs().count() as f64;
    (both - expected) / (0.5 * (same(a) + same(b)) - expected)
}

/// The component with the largest entry of each row.
fn clusters(u: &Array2<f64>) -> Vec<usize> {
    let largest = |x: ndarray::ArrayView1<f64>| (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap();
    u.rows().into_iter().map(largest).collect()
}

#[test]
fn planted_groups_are_found_exactly_and_with_samples() {
    let dir = tempdir().unwrap();
    let (n, k) = (600, 6);
    let groups: Vec<usize> = (0..n).map(|i| i * k / n).collect();
    let graph = format!("synthetic:graph,n={n},k={k},density=0.3,noise=0.02");
    let words = ["", "--solver hals", "--sketch leverage", "--sketch leverage --sketch-size 50%,200 --precision f32"];
    for ranks in [1, 2, 4] {
        let out = |i: usize| dir.path().join(format!("{ranks}-{i}.h5"));
        let line = |(i, words): (usize, &&str)| {
            format!("--algo symnmf -k {k} --input {graph} --max-iters 60 {words} --output {}", out(i).display())
        };
        let lines: Vec<String> = words.iter().enumerate().map(line).collect();
        for (i, summary) in session::ok(ranks, &lines).iter().enumerate() {
            let index = adjusted_rand(&groups, &clusters(&factor(&out(i), "U")));
            assert!(index >= 0.95, "{}: {index}", lines[i]);
            // Every sample has another minimiser.
            let near = if words[i].contains("leverage") { 0.5 } else { 1e-3 };
            assert!(number(summary, "factor_distance") < near, "{}: {summary}", lines[i]);
        }
    }
    // Few samples leave errors, which an exact iteration removes.
    let (few, exact) = (dir.path().join("few.h5"), dir.path().join("exact.h5"));
    let line =
        |more: &str, out: &Path| format!("--algo symnmf -k {k} --input {graph} {more} --output {}", out.display());
    fednmf(2, &line("--max-iters 60 --sketch leverage --sketch-size 60", &few)).ok();
    fednmf(2, &line(&format!("--max-iters 1 --init {}", few.display()), &exact)).ok();
    let index = |out: &Path| adjusted_rand(&groups, &clusters(&factor(out, "U")));
    let found = [index(&few), index(&exact)];
    assert!(found[0] < found[1] && found[1] >= 0.95, "{found:?}");
    assert!((adjusted_rand(&[0, 0, 1, 1], &[0, 0, 1, 2]) - 0.571_428_571).abs() < 1e-6);
}

/// A list with each edge once, in any order and direction, is the matrix of the graph.
#[test]
fn a_graph_is_read_from_its_edges() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let made = fednmf(0, "generate graph,n=60,k=3,density=0.4,noise=0 --output").arg(file("graph.mtx")).run();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let a = from_edges(&file("graph.mtx"));
    let mut edges: Vec<String> = a
        .indexed_iter()
        .filter(|((i, j), x)| **x > 0.0 && (i <= j))
        .map(|((i, j), _)| if (i + j) % 2 == 0 { format!("{i},{j},1") } else { format!("{j},{i},1") })
        .collect();
    edges.reverse();
    std::fs::write(file("edges.csv"), format!("source,target,weight\n{}\n", edges.join("\n"))).unwrap();
    let run = |input: &str, words: &str, out: &str| {
        let line = format!("--algo symnmf -k 3 --max-iters 20 {words} --output {} --input", file(out).display());
        fednmf(2, &line).arg(file(input)).ok()
    };
    let [listed, stored] = [run("edges.csv", "--format edges", "e.h5"), run("graph.mtx", "", "m.h5")];
    assert_eq!(listed["rel_error"], stored["rel_error"]);
    assert!(distance(&factor(&file("e.h5"), "U"), &factor(&file("m.h5"), "U")) < 1e-12);
    // As triples the nodes would be numbered twice.
    let line = "--algo symnmf -k 3 --format triples --header yes --input";
    std::fs::write(file("few.csv"), "source,target\nann,bob\nann,eve\n").unwrap();
    fednmf(0, line).arg(file("few.csv")).refused(&["1 x 2", "--format edges"]);
}

#[test]
fn what_is_not_symmetric_is_refused() {
    let dir = tempdir().unwrap();
    let mut a = matrix_of_npy(&data("similarity.npy"));
    a[[17, 3]] += 1e-4;
    let near = dir.path().join("near.npy");
    save_npy(&near, &a);
    let near = near.display().to_string();
    for ranks in [0, 3] {
        let run = |input: &str| fednmf(ranks, &format!("--algo symnmf -k 2 --input {input}"));
        run("synthetic:planted,m=30,n=20").refused(&["30 x 20", "square", "--algo auto"]);
        run("synthetic:sparse,m=300,n=300,density=0.1").refused(&["not symmetric", "(A + A')/2"]);
        let output = run(&near).run();
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        let rows = ["row 17 ", "row 3 "];
        assert!(rows.iter().any(|row| output.stderr.contains(row)), "{}", output.stderr);
    }
    fednmf(0, "estimate --algo symnmf -m 60 -n 50 -k 3").own_process().refused(&["60 x 50", "square"]);
    for (words, why) in [
        ("--factor-scale unit-v --output x.h5", "balanced"),
        ("--init nndsvd", "--init nndsvd"),
        ("--sketch-size 10", "--sketch-size"),
        ("--sketch leverage --sketch-size 2000", "--sketch-size 2000"),
        ("--symmetry-weight -1", "--symmetry-weight"),
        ("--grid 2x1", "--grid"),
    ] {
        let line = format!("--algo symnmf -k 2 --input synthetic:graph,n=50,k=2 {words}");
        fednmf(0, &line).own_process().refused(&[why]);
    }
}

#[test]
fn names_in_two_orders_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("s.csv");
    for (rows, fits) in [("bac", false), ("abc", true), ("xyz", true)] {
        let line = |(name, entries): (char, &str)| format!("{name},{entries}\n");
        let lines: String = rows.chars().zip(["0,1,2", "1,0,3", "2,3,0"]).map(line).collect();
        std::fs::write(&path, format!("s,a,b,c\n{lines}")).unwrap();
        for ranks in [0, 2] {
            let run = || fednmf(ranks, "--algo symnmf -k 1 --max-iters 2 --input").arg(&path);
            match fits {
                true => drop(run().ok()),
                false => run().refused(&["row 0 is b and column 0 is a", "sort"]),
            }
        }
    }
}

/// A computed similarity matrix counts as symmetric despite rounding.
#[test]
fn rounding_is_accepted() {
    let dir = tempdir().unwrap();
    let mut a = matrix_of_npy(&data("similarity.npy"));
    a.indexed_iter_mut().filter(|((i, j), _)| i < j).for_each(|(_, x)| *x *= 1.0 + 1e-15);
    let path = dir.path().join("rounded.npy");
    save_npy(&path, &a);
    fednmf(2, "--algo symnmf -k 3 --max-iters 3 --input").arg(&path).ok();
}

#[test]
fn extreme_matrices_give_finite_factors() {
    let dir = tempdir().unwrap();
    let n = 6;
    for (name, a, k) in [
        ("one", Array2::from_elem((1, 1), 3.0), 1),
        ("diagonal", Array2::eye(n), n),
        ("isolated", Array2::from_shape_fn((n, n), |(i, j)| f64::from(u8::from(i < 3 && j < 3))), 2),
        ("huge", Array2::from_elem((n, n), 1e120), 2),
        ("tiny", Array2::from_elem((n, n), 1e-120), 2),
    ] {
        let (path, out) = (dir.path().join(format!("{name}.npy")), dir.path().join("o.h5"));
        save_npy(&path, &a);
        for words in ["", "--solver hals", "--sketch leverage", "--symmetry-weight 0", "--symmetry-weight 1e300"] {
            for ranks in [0, 3] {
                let line = format!("--algo symnmf -k {k} --max-iters 30 {words} --input {}", path.display());
                let summary = fednmf(ranks, &line).arg("--output").arg(&out).ok();
                let finite = |x: &Array2<f64>| x.iter().all(|x| x.is_finite() && *x >= 0.0);
                assert!(finite(&matrix(&out, "U")) && finite(&matrix(&out, "V")), "{line}: {summary}");
            }
        }
    }
}
