//! β-divergences: the reported number against its definition; projections; zeros.

use ndarray::Array2;
use tempfile::tempdir;

use crate::common::{data, distance, factor, fednmf, number, save_npy};

/// The β-divergence, entry by entry.
fn divergence(beta: f64, m: &Array2<f64>, fit: &Array2<f64>) -> f64 {
    let one = |(&m, &f): (&f64, &f64)| match beta {
        0.0 => m / f - (m / f).ln() - 1.0,
        1.0 => (if m > 0.0 { m * (m / f).ln() } else { 0.0 }) - m + f,
        _ => (m.powf(beta) + (beta - 1.0) * f.powf(beta) - beta * m * f.powf(beta - 1.0)) / (beta * (beta - 1.0)),
    };
    m.iter().zip(fit).map(one).sum()
}

#[test]
fn the_divergence_of_a_run_is_that_of_its_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let m = Array2::from_shape_fn((30, 20), |(i, j)| ((i * 7 + j * 5 + i * j) % 13) as f64);
    save_npy(&file("zeros.npy"), &m);
    save_npy(&file("positive.npy"), &(&m + 0.5));
    for (beta, value) in
        [("itakura-saito", 0.0), ("0.5", 0.5), ("kullback-leibler", 1.0), ("1.5", 1.5), ("2", 2.0), ("3", 3.0)]
    {
        let name = if value > 0.0 { "zeros.npy" } else { "positive.npy" };
        let m = if value > 0.0 { m.clone() } else { &m + 0.5 };
        let line = format!("--algo beta-mu --beta {beta} -k 3 --max-iters 40 --input {}", file(name).display());
        let mut first = None;
        for ranks in [1, 3] {
            let summary = fednmf(ranks, &line).arg("--output").arg(file("o.h5")).ok();
            let product = factor(&file("o.h5"), "U").dot(&factor(&file("o.h5"), "V").t());
            let (told, expected) = (number(&summary, "beta_divergence"), divergence(value, &m, &product));
            assert!((told / expected - 1.0).abs() < 1e-9, "{beta}: {told} {expected}");
            assert!(distance(first.get_or_insert_with(|| product.clone()), &product) < 1e-9, "{beta} on {ranks} ranks");
        }
        let evaluated = fednmf(2, "evaluate --json").arg(file("o.h5")).arg("--input").arg(file(name)).run();
        let evaluated: serde_json::Value = serde_json::from_str(&evaluated.stdout).expect("JSON");
        let told = divergence(value, &m, first.as_ref().unwrap());
        assert!((number(&evaluated, "beta_divergence") / told - 1.0).abs() < 1e-9, "{evaluated} {told}");
        // The best rows of U for V fit at least as well as those of the run.
        let projected = fednmf(2, "project --json").arg(file("o.h5")).arg("--input").arg(file(name)).run();
        let projected: serde_json::Value = serde_json::from_str(&projected.stdout).expect("JSON");
        assert!(number(&projected, "beta_divergence") <= told * (1.0 + 1e-6), "{beta}: {projected} {told}");
    }
}

#[test]
fn zeros_and_wrong_exponents_are_refused() {
    for ranks in [0, 2] {
        let run =
            |more: &str| fednmf(ranks, &format!("--algo beta-mu -k 2 {more}")).arg("--input").arg(data("digits.npy"));
        run("--beta 0").refused(&["--beta 0", "zero(s)", "add a small number"]);
        run("--beta -0.5").refused(&["--beta -0.5", "zero(s)"]);
        run("--beta 11").refused(&["--beta", "from -10 to 10", "itakura-saito"]);
        run("--beta is").refused(&["--beta", "itakura-saito"]);
    }
    fednmf(0, "--algo beta-mu --beta 0 -k 2 --input synthetic:sparse,m=30,n=20,density=0.5").refused(&["zero(s)"]);
}

/// Floors are relative to the data: scaled by a power of two, all numbers are the same but for its power.
#[test]
fn the_scale_of_the_data_is_that_of_the_result() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let m = Array2::from_shape_fn((12, 9), |(i, j)| ((i * 7 + j * 5 + i * j) % 13) as f64);
    for (beta, positive) in [(0.0, true), (0.5, false), (1.0, false), (1.5, false), (3.0, false)] {
        let line = format!("--algo beta-mu --beta {beta} -k 3 --max-iters 30");
        let found = |exponent: i32| {
            let x = if positive { &m + 0.5 } else { m.clone() };
            save_npy(&file("x.npy"), &(x * 2f64.powi(exponent)));
            let run = fednmf(0, &line).arg("--input").arg(file("x.npy")).arg("--output").arg(file("o.h5")).ok();
            let again = |command: &str| {
                let done = fednmf(0, &format!("{command} --json")).arg(file("o.h5")).arg("--input").arg(file("x.npy"));
                number(&serde_json::from_str(&done.run().stdout).expect("JSON"), "beta_divergence")
            };
            [number(&run, "beta_divergence"), again("evaluate"), again("project")]
        };
        let one = found(0);
        for exponent in [-120, 80] {
            for (one, other) in one.into_iter().zip(found(exponent)) {
                let ratio = other / 2f64.powi(exponent).powf(beta) / one;
                assert!((ratio - 1.0).abs() < 1e-9, "beta {beta} at 2^{exponent}: {one} {other}");
            }
        }
    }
    save_npy(&file("x.npy"), &(m * 2f64.powi(-400)));
    fednmf(0, "--algo beta-mu --beta 4 -k 3").arg("--input").arg(file("x.npy")).refused(&["--beta 4", "--scale max"]);
}
