//! Online NMF: its iterates against plain loops, its result against exact methods, and its memory.

use std::path::Path;

use ndarray::{Array2, Axis};
use tempfile::tempdir;

use crate::common::{data, distance, events, fednmf, matrix, number, save_npy, session};
use crate::naive::{digits, least_squares, start};

/// The part `i` of `parts` equal ones of `rows`; the first ones are longer.
fn part(rows: &[usize], parts: usize, i: usize) -> &[usize] {
    let start = |i: usize| i * (rows.len() / parts) + i.min(rows.len() % parts);
    &rows[start(i)..start(i + 1)]
}

/// The rows of a batch: some of each sixteenth of the matrix, which begins with a share of its rows that follows the golden ratio.
fn batch(m: usize, size: usize, at: usize) -> Vec<usize> {
    let (all, places, count) = ((0..m).collect::<Vec<_>>(), size.min(16), m.div_ceil(size));
    let golden = f64::midpoint(1.0, 5f64.sqrt());
    let rows = |place: usize| {
        let first = count as f64 * (golden * place as f64 - (golden * place as f64).floor());
        part(part(&all, places, place), count, (first as usize + at) % count).to_vec()
    };
    (0..places).flat_map(rows).collect()
}

/// Penalties (λ₁, λ₂) on the factors of the whole matrix.
struct Penalties {
    u: (f64, f64),
    v: (f64, f64),
}

/// The exact U for a fixed V.
fn usages(x: &Array2<f64>, v: &Array2<f64>, (l1, l2): (f64, f64)) -> Array2<f64> {
    let mut u = Array2::zeros((x.nrows(), v.ncols()));
    let g = v.t().dot(v) + Array2::<f64>::eye(v.ncols()) * l2;
    least_squares(&mut u, &g, &(x.dot(v) - l1), true);
    u
}

fn online(
    x: &Array2<f64>,
    k: usize,
    (size, forget): (usize, f64),
    p: &Penalties,
    iterations: usize,
) -> [Array2<f64>; 2] {
    let m = x.nrows();
    let (_, mut v) = start(x, k, 5);
    let (mut a, mut b, mut held) = (Array2::<f64>::zeros((k, k)), Array2::<f64>::zeros((x.ncols(), k)), 0.0);
    for iteration in 0..iterations {
        let rows = batch(m, size, iteration % m.div_ceil(size));
        let x = x.select(Axis(0), &rows);
        let u = usages(&x, &v, p.u);
        let rho = forget.powf(rows.len() as f64 / m as f64);
        a = a * rho + u.t().dot(&u);
        b = b * rho + x.t().dot(&u);
        held = held * rho + rows.len() as f64;
        let share = held / m as f64;
        least_squares(&mut v, &(&a + &(Array2::<f64>::eye(k) * (share * p.v.1))), &(&b - share * p.v.0), false);
    }
    [usages(x, &v, p.u), v]
}

#[test]
fn iterates_are_those_of_plain_loops() {
    let dir = tempdir().unwrap();
    let digits = digits();
    // Three groups of columns, with counts that do not repeat.
    let counts = Array2::from_shape_fn((211, 30), |(i, j)| {
        let mixed = (i as u64 * 0x9e37_79b9 + j as u64 * 0x85eb_ca6b).wrapping_mul(0xc2b2_ae3d_27d4_eb4f) >> 40;
        if mixed % 5 < 2 { ((mixed >> 8) % 7 + if i % 3 == j / 10 { 6 } else { 0 }) as f64 } else { 0.0 }
    });
    let sparse = dir.path().join("x.mtx");
    let nonzeros: Vec<_> = counts.indexed_iter().filter(|(_, x)| **x != 0.0).collect();
    let lines: String = nonzeros.iter().map(|((i, j), x)| format!("{} {} {x}\n", i + 1, j + 1)).collect();
    let head = format!("%%MatrixMarket matrix coordinate real general\n211 30 {}\n", nonzeros.len());
    std::fs::write(&sparse, head + &lines).unwrap();
    let cases = [
        (&digits, data("digits.npy"), 4, "--batch-size 200 --forget-factor 0.1", (200, 0.1), "", 13),
        (&digits, data("digits.npy"), 4, "--batch-size 500 --forget-factor 1", (500, 1.0), "", 3),
        (&counts, sparse.clone(), 3, "--batch-size 7 --forget-factor 0.1", (7, 0.1), "", 40),
        (
            &counts,
            sparse,
            3,
            "--batch-size 50 --forget-factor 0.3",
            (50, 0.3),
            "--alpha-u 0.02 --alpha-v 0.01 --l1-ratio 0.4",
            9,
        ),
    ];
    for (x, input, k, words, settings, penalty, iterations) in cases {
        let (m, n) = (x.nrows() as f64, x.ncols() as f64);
        let (on_u, on_v) = if penalty.is_empty() { (0.0, 0.0) } else { (0.02 * n, 0.01 * m) };
        let p = Penalties { u: (0.4 * on_u, 0.6 * on_u), v: (0.4 * on_v, 0.6 * on_v) };
        let [u, v] = online(x, k, settings, &p, iterations);
        let norm = |x: &Array2<f64>| x.mapv(|x| x * x).sum().sqrt();
        let error = norm(&(x - &u.dot(&v.t()))) / norm(x);
        for ranks in [1, 2, 3, 4] {
            let out = dir.path().join("o.h5");
            let line = format!(
                "--algo online -k {k} --seed 5 {words} {penalty} --max-iters {iterations} --eval-every 4 --factor-scale as-found"
            );
            let summary = fednmf(ranks, &line).arg("--input").arg(&input).arg("--output").arg(&out).ok();
            let far = [distance(&u, &matrix(&out, "U")), distance(&v, &matrix(&out, "V"))];
            assert!(far.iter().all(|far| *far < 1e-9), "{words} on {ranks} ranks: {far:?}");
            assert!((number(&summary, "rel_error") - error).abs() < 1e-9, "{words} on {ranks} ranks");
        }
    }
}

/// After the same order of passes, the error is that of an exact method.
#[test]
fn it_reaches_the_error_of_an_exact_method() {
    let input = data("digits.npy").display().to_string();
    let line = |algo: &str, iterations: usize| {
        format!("--algo {algo} -k 10 --seed 2 --max-iters {iterations} --eval-every 1000 --input {input}")
    };
    let lines = [
        line("bpp", 100),
        line("online --forget-factor 0.1 --batch-size 100", 18 * 40),
        line("online --forget-factor 0.1 --batch-size 400", 5 * 60),
    ];
    let [exact, small, large] = &session::ok(2, &lines)[..] else { panic!("three runs") };
    for online in [small, large] {
        let (online, exact) = (number(online, "rel_error"), number(exact, "rel_error"));
        assert!(online < 1.005 * exact, "{online}, not {exact}");
    }
}

#[test]
fn the_size_of_a_batch_is_chosen_by_the_rows_and_recorded() {
    let dir = tempdir().unwrap();
    let (input, trace) = (dir.path().join("x.npy"), dir.path().join("t.jsonl"));
    for (m, size) in [(50, 50), (2000, 1024), (30_000, 1500)] {
        save_npy(&input, &Array2::from_shape_fn((m, 4), |(i, j)| ((i + j) % 7) as f64));
        let run = fednmf(2, "--algo online -k 2 --max-iters 2 --input").arg(&input).arg("--trace").arg(&trace).ok();
        assert_eq!(run["params"]["batch_size"], size);
        assert_eq!(events(&trace)[0]["params"]["batch_size"], size);
    }
}

#[test]
fn what_it_does_not_take_is_refused() {
    let input = data("digits.npy");
    let run = |words: &str| fednmf(1, &format!("--algo online -k 3 {words} --input")).arg(&input);
    run("--init nndsvd").refused(&["--init nndsvd", "online starts at random"]);
    run("--batch-size 0").refused(&["--batch-size", "at least 1"]);
    run("--forget-factor 0").refused(&["--forget-factor"]);
    run("--forget-factor 1.5").refused(&["--forget-factor"]);
    run("--missing nan").refused(&["--missing", "online"]);
    run("--grid 1x1").refused(&["--grid", "online"]);
}

/// Bytes that a command takes beyond a run on a tiny matrix.
fn peak(line: &str, files: &[&Path]) -> f64 {
    let of = |line: &str, files: &[&Path]| {
        let run = files.iter().fold(fednmf(0, line).own_process(), |run, file| run.arg("--input").arg(file));
        number(&run.ok(), "peak_rss_bytes")
    };
    of(line, files) - of("--algo hals -k 2 --max-iters 1 --input synthetic:planted,m=20,n=20,k=2", &[])
}

/// Ten times as many rows take no more memory than the rows of U need.
#[test]
fn memory_does_not_grow_with_the_rows() {
    const ROOM: f64 = 20e6;
    // A report reads U, which has k numbers for each row, and sorts its rows.
    const ROOM_OF_REPORT: f64 = 32e6;
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (form, name) in [("planted,n=250,k=3", "x.npy"), ("sparse,n=600,density=0.2", "x.npz")] {
        for m in [12_000, 120_000] {
            let input = file(name);
            fednmf(0, &format!("generate {form},m={m} --output")).arg(&input).own_process().run();
            let size = std::fs::metadata(&input).unwrap().len() as f64;
            assert!(size > if m == 120_000 { 150e6 } else { 15e6 }, "{name}: {size}");
            let report = format!("hals --report {}", file("page.html").display());
            for algo in ["hals", "online", "kl-online", &report] {
                let line = format!("--algo {algo} -k 3 --max-iters 4 --memory 16M");
                let found = peak(&line, &[&input]);
                let room = if algo == report { ROOM_OF_REPORT } else { ROOM };
                assert!(found < room, "{algo} {name} with {m} rows: {found}");
            }
            std::fs::remove_file(&input).unwrap();
        }
    }
}

/// The exact U for a fixed V, by multiplicative updates.
fn kl_usages(x: &Array2<f64>, v: &Array2<f64>) -> Array2<f64> {
    let mut u = Array2::<f64>::ones((x.nrows(), v.ncols()));
    let sums = v.sum_axis(Axis(0));
    for _ in 0..3000 {
        u *= &(ratios(x, &u, v).dot(v) / &sums);
    }
    u
}

/// The entries over their fits; columns of zeros have fits of zero.
fn ratios(x: &Array2<f64>, u: &Array2<f64>, v: &Array2<f64>) -> Array2<f64> {
    x / &u.dot(&v.t()).mapv(|fit| fit.max(1e-300))
}

/// The iterates for the Kullback-Leibler divergence are those of plain loops, and the divergence that of `kl-mu`.
#[test]
fn iterates_for_the_divergence_are_those_of_plain_loops() {
    let dir = tempdir().unwrap();
    let (x, k) = (digits(), 4);
    let m = x.nrows();
    let (_, mut v) = start(&x, k, 5);
    let (mut a, mut b) = (Array2::<f64>::zeros((x.ncols(), k)), ndarray::Array1::<f64>::zeros(k));
    for iteration in 0..6 {
        let rows = batch(m, 400, iteration % m.div_ceil(400));
        let x = x.select(Axis(0), &rows);
        let u = kl_usages(&x, &v);
        let rho = f64::powf(0.1, rows.len() as f64 / m as f64);
        if iteration == 0 {
            b = u.sum_axis(Axis(0)) * 1e-3;
            a = &v * &b;
        }
        a = a * rho + &v * &ratios(&x, &u, &v).t().dot(&u);
        b = b * rho + u.sum_axis(Axis(0));
        v = &a / &b;
    }
    let out = dir.path().join("o.h5");
    for ranks in [1, 3] {
        let line = format!(
            "--algo kl-online -k {k} --seed 5 --batch-size 400 --forget-factor 0.1 --max-iters 6 --factor-scale as-found"
        );
        fednmf(ranks, &line).arg("--input").arg(data("digits.npy")).arg("--output").arg(&out).ok();
        let far = [distance(&kl_usages(&x, &v), &matrix(&out, "U")), distance(&v, &matrix(&out, "V"))];
        assert!(far.iter().all(|far| *far < 1e-3), "on {ranks} ranks: {far:?}");
    }
    let input = data("digits.npy").display().to_string();
    let line = |algo: &str, iterations: usize| {
        format!("--algo {algo} -k 10 --seed 2 --max-iters {iterations} --eval-every 1000 --input {input}")
    };
    let lines = [line("kl-mu --init random --extrapolation none", 600), line("kl-online --batch-size 100", 18 * 60)];
    let [exact, online] = &session::ok(2, &lines)[..] else { panic!("two runs") };
    let (online, exact) = (number(online, "kl_divergence"), number(exact, "kl_divergence"));
    assert!(online < 1.02 * exact, "{online}, not {exact}");
}
