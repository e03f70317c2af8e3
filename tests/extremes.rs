//! Matrices at the edges: empty rows and columns, one column, one component, huge and tiny numbers, more ranks than rows,
//! every file format of one matrix.

mod common;

use std::path::Path;

use common::{data, distance, fednmf, matrix};
use fednmf::algo::registry;
use fednmf::algo::registry::Form;
use ndarray::Array2;
use tempfile::tempdir;

/// The algorithms for nonnegative data, which all of these matrices suit.
fn methods() -> impl Iterator<Item = &'static str> {
    registry::ALL.iter().filter(|m| m.forms.contains(&Form::Sparse) && !m.partition.is_private()).map(|m| m.name)
}

/// Writes a matrix as MatrixMarket, its zeros left out.
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

fn sample(rows: usize, cols: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, cols), |(i, j)| ((i * 31 + j * 17) % 7) as f64 * ((i + 2 * j) % 3) as f64)
}

/// Runs every algorithm on 1 and `ranks` ranks: finite factors without negative entries, the same error.
fn all_agree(m: &Array2<f64>, k: usize, ranks: usize, what: &str) {
    let dir = tempdir().unwrap();
    let (sparse, dense, out) = (dir.path().join("s.mtx"), dir.path().join("d.mtx"), dir.path().join("o.h5"));
    write(&sparse, m);
    write_dense(&dense, m);
    for algo in methods() {
        for input in [&sparse, &dense] {
            let run = |ranks| {
                let line = format!("--algo {algo} -k {k} --max-iters 15");
                let error =
                    fednmf(ranks, &line).arg("--input").arg(input).arg("--output").arg(&out).ok()["rel_error"].as_f64();
                let (u, v) = (matrix(&out, "U"), matrix(&out, "V"));
                assert!(u.iter().chain(&v).all(|x| x.is_finite() && *x >= 0.0), "{what}: {algo}");
                let fit = (m - &u.dot(&v.t())).mapv(|e| e * e).sum().sqrt() / m.mapv(|e| e * e).sum().sqrt();
                let error = error.unwrap_or_else(|| panic!("{what}: {algo}: no error"));
                assert!((error - fit).abs() < 1e-6 * (1.0 + fit), "{what}: {algo}: {error} {fit}");
                error
            };
            let (one, many) = (run(0), run(ranks));
            assert!((one - many).abs() < 1e-6 * (one + 1e-3), "{what}: {algo}: {one} {many}");
        }
    }
}

#[test]
fn zero_rows_and_columns() {
    let mut m = sample(30, 20);
    m.row_mut(0).fill(0.0);
    m.row_mut(29).fill(0.0);
    m.column_mut(7).fill(0.0);
    all_agree(&m, 4, 3, "zero rows and columns");
}

#[test]
fn a_block_without_nonzeros() {
    let mut m = sample(30, 20);
    m.slice_mut(ndarray::s![10..20, ..]).fill(0.0);
    all_agree(&m, 4, 3, "a block without nonzeros");
}

#[test]
fn one_component_and_one_column() {
    all_agree(&sample(25, 12), 1, 3, "k = 1");
    all_agree(&sample(25, 1), 1, 3, "one column");
    all_agree(&sample(1, 25), 1, 2, "one row");
}

#[test]
fn more_ranks_than_rows() {
    all_agree(&sample(3, 14), 2, 6, "more ranks than rows");
    all_agree(&sample(14, 3), 2, 6, "more ranks than columns");
}

#[test]
fn large_and_small_numbers() {
    all_agree(&(sample(20, 12) * 1e150), 3, 2, "1e150");
    all_agree(&(sample(20, 12) * 1e-140), 3, 2, "1e-140");
    all_agree(&(sample(20, 12) * (2f64.powi(53) / 12.0)), 3, 2, "2^53");
}

#[test]
fn integers_up_to_two_to_the_53_are_read_exactly() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("m.mtx");
    let text = "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 9007199254740991\n2 2 9007199254740992\n";
    std::fs::write(&path, text).unwrap();
    let said = fednmf(2, "inspect --json").arg(&path).run().stdout;
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
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
    // 10x stores genes by cells, the others the transpose
    for (i, (file, line)) in
        [("counts.h5ad", ""), ("counts-csr.npz", ""), ("counts-csc-plain.npz", ""), ("counts-10x.h5", "--transpose")]
            .iter()
            .enumerate()
    {
        assert_eq!(first, run(file, line, i + 1), "{file}");
    }
}
