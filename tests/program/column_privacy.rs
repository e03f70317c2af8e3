//! `secure-hals --dp`: differential privacy of single columns.

use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::{data, distance, fednmf, matrix, npy, number};

const LINE: &str = "--algo secure-hals --parties 3 --secure-sum --dp gaussian";

/// Digits as columns, 64 × n.
fn digits(n: usize) -> Array2<f64> {
    let bytes = std::fs::read(data("digits.npy")).unwrap();
    let pixels = &bytes[bytes.len() - 1797 * 64..];
    Array2::from_shape_fn((64, n), |(i, j)| f64::from(pixels[64 * j + i]))
}

/// X ≥ 0 that minimises ‖B Xᵀ − A‖ for A (rows × cols) and B (rows × k): coordinate descent to convergence.
fn nonnegative(a: &Array2<f64>, b: &Array2<f64>) -> Array2<f64> {
    let (r, g) = (a.t().dot(b), b.t().dot(b));
    let mut x = Array2::<f64>::zeros(r.dim());
    for _ in 0..20_000 {
        let before = x.clone();
        for i in 0..x.nrows() {
            for l in 0..g.nrows() {
                let slope = r[[i, l]] - x.row(i).dot(&g.column(l));
                x[[i, l]] = (x[[i, l]] + slope / g[[l, l]]).max(0.0);
            }
        }
        if distance(&before, &x) < 1e-14 {
            break;
        }
    }
    x
}

#[test]
fn without_noise_it_is_alternating_least_squares() {
    let dir = tempdir().unwrap();
    let n = 60;
    let (input, m) = (npy(dir.path(), "d.npy", 0..n), digits(n));
    // With --clip no column is scaled; without it all have norm 1.
    for (clip, norm) in [("--clip 100", None), ("", Some(1.0))] {
        let run = |iters: usize| {
            let file = dir.path().join(format!("{iters}.h5"));
            let noise = if norm.is_some() { 1e-8 } else { 1e-4 };
            let line = format!("{LINE} {clip} --dp-noise {noise} --max-iters {iters} -k 3 --transpose --input");
            fednmf(0, &line).arg(&input).arg("--output").arg(&file).ok();
            matrix(&file, "U")
        };
        let mut u = run(0);
        let mut columns = m.clone();
        if let Some(norm) = norm {
            columns.columns_mut().into_iter().for_each(|mut c| {
                let own = c.dot(&c).sqrt();
                c.mapv_inplace(|x| x * norm / own);
            });
        }
        for _ in 0..6 {
            let v = nonnegative(&columns, &u);
            u = nonnegative(&columns.t().to_owned(), &v);
            u.columns_mut().into_iter().for_each(|mut c| {
                let own = c.dot(&c).sqrt();
                c.mapv_inplace(|x| x / own);
            });
        }
        let found = distance(&run(6), &u);
        assert!(found < 1e-5, "{clip}: {found}");
    }
}

#[test]
fn the_error_comes_near_to_that_of_exact_sums() {
    let run = |line: &str| {
        let line = format!("{line} -k 10 --parties 3 --transpose --secure-sum --eval-every 0 --input");
        let dir = tempdir().unwrap();
        let (file, input) = (dir.path().join("o.h5"), data("digits.npy"));
        fednmf(0, &line).arg(&input).arg("--output").arg(&file).ok();
        // --eval-every 0 computes no error.
        let (m, u) = (digits(1797), matrix(&file, "U"));
        let (residual, norm) = (&m - &u.dot(&nonnegative(&m, &u).t()), m.iter().map(|x| x * x).sum::<f64>());
        (residual.iter().map(|x| x * x).sum::<f64>() / norm).sqrt()
    };
    let exact = run("--algo secure-hals --update bpp --max-iters 8 --accept-risk rare-entries");
    let noised = |epsilon: f64| run(&format!("--algo secure-hals --dp gaussian --epsilon {epsilon} --secret-seed 1"));
    let (weak, strict, much) = (noised(8.0), noised(1.0), noised(0.01));
    assert!(weak < 1.08 * exact && strict < 1.6 * exact && much > strict, "{exact} {weak} {strict} {much}");
}

#[test]
fn epsilon_is_what_account_says_and_hides_a_column() {
    for (more, releases) in [("", 8.0), ("--max-iters 5", 5.0), ("--dp-releases 3", 3.0)] {
        let run = fednmf(0, &format!("{LINE} --epsilon 2 -k 3 {more} --input")).arg(data("digits.npy")).ok();
        let table = &run["privacy"];
        assert_eq!(table["unit"], "one column of your file, replaced by any other");
        assert_eq!(number(table, "releases"), releases, "{table}");
        let ratio = number(table, "noise") / number(table, "sensitivity");
        let told = fednmf(0, &format!("account --noise {ratio} --releases {releases} --json")).run().stdout;
        let told = number(&serde_json::from_str::<Value>(&told).unwrap(), "epsilon");
        let spent = number(table, "epsilon_spent");
        assert!(spent <= 2.0 && (told - spent).abs() < 1e-3 * spent, "{told} {spent}");
    }
    assert!(fednmf(0, "account --epsilon 1").run().stdout.contains("With secure-hals: one column of your file"));
    assert!(fednmf(0, "list secure-hals").run().stdout.contains("--dp hides: one column"));
    assert!(fednmf(0, "list syn-sd").run().stdout.contains("--dp hides: the whole data of a party"));
}

#[test]
fn longer_columns_are_counted() {
    let m = digits(1797);
    let longer = m.columns().into_iter().filter(|c| c.dot(c) > 55.0 * 55.0).count();
    let line = format!("{LINE} --epsilon 8 --clip 55 -k 3 --eval-every 8 --transpose --input");
    let run = fednmf(0, &line).arg(data("digits.npy")).ok();
    assert!(longer > 100 && number(&run, "clipped_columns") == longer as f64, "{longer}: {run}");
    // Sensitivity is the square of the clip.
    assert!((number(&run["privacy"], "sensitivity") / (55.0 * 55.0) - 1.0).abs() < 1e-4);
}

/// Zeros and ones, rows × cols.
fn coins(path: &Path, rows: usize, cols: usize) -> PathBuf {
    let coin = |i: usize, j: usize| (i * 7 + j * 13 + i * j * j) % 5 % 2;
    let row = |i: usize| (0..cols).map(|j| coin(i, j).to_string()).collect::<Vec<_>>().join(",") + "\n";
    std::fs::write(path, (0..rows).map(row).collect::<String>()).unwrap();
    path.to_path_buf()
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn attacks_on_noised_sums_find_nothing_unless_the_noise_is_too_small() {
    let dir = tempdir().unwrap();
    let input = coins(&dir.path().join("m.csv"), 40, 54);
    let told = |noise: &str| -> Value {
        let view = dir.path().join("v.npz");
        let line = format!("{LINE} {noise} -k 5 --eval-every 0 --input");
        fednmf(3, &line).arg(&input).arg("--record-view").arg(&view).ok();
        let told = fednmf(0, "audit attack --json").arg(dir.path().join("v.rank-01.npz")).run();
        (0..3).for_each(|rank| std::fs::remove_file(dir.path().join(format!("v.rank-0{rank}.npz"))).unwrap());
        serde_json::from_str(&told.stdout).unwrap()
    };
    let finding = |told: &Value, name: &str| -> Value {
        let all = told["findings"].as_array().unwrap();
        all.iter().find(|f| f["attack"] == name).unwrap_or_else(|| panic!("no {name} in {told}")).clone()
    };
    let private = told("--epsilon 8");
    for name in ["linear", "lattice", "dynamics", "noised sums", "noised sums, one column"] {
        let found = finding(&private, name);
        assert!(found["recovered"].as_u64().unwrap_or(0) == 0, "{found}");
    }
    // No better than the mean of the own columns.
    let alone = finding(&private, "noised sums, one column");
    assert!(number(&alone, "rel_error") > 0.9 * number(&alone, "baseline"), "{alone}");
    let broken = told("--dp-noise 1e-4 --max-iters 8");
    let alone = finding(&broken, "noised sums, one column");
    assert!(number(&alone, "rel_error") < 0.05 * number(&alone, "baseline"), "{alone}");
}
