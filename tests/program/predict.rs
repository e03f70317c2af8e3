//! `fednmf predict`: entries of U Vᵀ for pairs, by name, in the units of the input.

use tempfile::tempdir;

use crate::common::{factor, fednmf};

/// Values of the last column of a table.
fn values(table: &str) -> Vec<f64> {
    table.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn ratings_of_pairs_have_the_units_of_the_input() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let ratings: String = (0..60).map(|i| format!("u{},i{},{}\n", i % 12, i * 7 % 15, 1 + i % 5)).collect();
    std::fs::write(file("ratings.csv"), format!("user,item,rating\n{ratings}")).unwrap();
    let line = "-k 2 --max-iters 50 --missing zero-unobserved --scale max --format triples --input";
    fednmf(0, line).arg(file("ratings.csv")).arg("--output").arg(file("f.h5")).ok();
    std::fs::write(file("pairs.csv"), "user,item\nu3,i6\nu0,i0\n").unwrap();
    let ask = || fednmf(0, "predict").arg(file("f.h5")).arg(file("pairs.csv"));
    let printed = ask().run();
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    assert!(printed.stdout.starts_with("user,item,predicted\nu3,i6,"), "{}", printed.stdout);
    // Users and items have the order of the file: u0 and i0 are first, u3 is fourth, i6 = 7 · 3 mod 15 is fourth.
    let (u, v) = (factor(&file("f.h5"), "U"), factor(&file("f.h5"), "V"));
    let expected = [(3, 3), (0, 0)].map(|(i, j)| 5.0 * u.row(i).dot(&v.row(j)));
    for (found, expected) in values(&printed.stdout).into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1.0), "{found} {expected}");
    }
    // The same into a file, which is not replaced.
    let written = ask().arg("-o").arg(file("o.csv")).run();
    assert_eq!((written.code, std::fs::read_to_string(file("o.csv")).unwrap()), (Some(0), printed.stdout));
    let again = ask().arg("-o").arg(file("o.csv")).run();
    assert!(again.code == Some(2) && again.stderr.contains("not replaced"), "{}", again.stderr);
    // With observed values, the error to them is printed.
    std::fs::write(file("test.csv"), "user,item,rating\nu3,i6,4\nu0,i0,1\n").unwrap();
    let tested = fednmf(0, "predict").arg(file("f.h5")).arg(file("test.csv")).run();
    assert!(tested.stdout.starts_with("user,item,rating,predicted\nu3,i6,4,"), "{}", tested.stdout);
    let rmse = (((expected[0] - 4.0).powi(2) + (expected[1] - 1.0).powi(2)) / 2.0).sqrt();
    assert!(tested.stderr.contains(&format!("RMSE {rmse:.6} to 2 observed values")), "{}", tested.stderr);
    std::fs::write(file("pairs.csv"), "user,item\nu3,i99\n").unwrap();
    let wrong = ask().run();
    assert!(wrong.code == Some(2) && wrong.stderr.contains("i99 is no column"), "{}", wrong.stderr);
}

/// Of a run on zeros and ones, what is observed is compared as the run saw it, also if the threshold was a quantile.
#[test]
fn observed_values_are_binarised_as_the_run_was() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let entry = |i: usize, j: usize| (i * 5 + j * 3) % 10;
    let row = |i: usize| (0..6).map(|j| entry(i, j).to_string()).collect::<Vec<_>>().join(",") + "\n";
    std::fs::write(file("x.csv"), (0..8).map(row).collect::<String>()).unwrap();
    std::fs::write(file("pairs.csv"), format!("row,column,x\n0,1,{}\n3,4,{}\n", entry(0, 1), entry(3, 4))).unwrap();
    // The upper 40 % of 48 entries. The largest is 9.
    for (threshold, least) in [("4", 4), ("q0.6", 6), ("0.5 --scale max", 5), ("0.7 --scale max --precision f32", 7)] {
        let line = format!("-k 2 --max-iters 20 --header no --index-col no --binarize {threshold} --input");
        fednmf(0, &line).arg(file("x.csv")).arg("--output").arg(file("f.h5")).ok();
        let told = fednmf(0, "predict").arg(file("f.h5")).arg(file("pairs.csv")).run();
        let found = values(&told.stdout);
        let ones = (0..48).filter(|at| entry(at / 6, at % 6) >= least).count();
        assert!(!threshold.starts_with('q') || ones <= 20, "{ones} of the entries are ones");
        let error = |found: f64, x: usize| (found - f64::from(u8::from(x >= least))).powi(2);
        let rmse = ((error(found[0], entry(0, 1)) + error(found[1], entry(3, 4))) / 2.0).sqrt();
        let told = told.stderr;
        let printed = told.split("RMSE ").nth(1).and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        assert!(printed.is_some_and(|printed| (printed - rmse).abs() < 1e-6), "{rmse} {told}");
        assert!(told.contains(" to 2 observed values") && told.contains("(--binarize)"), "{told}");
    }
}

/// A user without a rating has no prediction to be trusted.
#[test]
fn pairs_without_weights_are_counted() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("r.csv"), "user,item,rating\nu1,a,4\nu1,b,2\nu2,a,3\nu2,b,5\nu3,a,0\nu3,b,0\n").unwrap();
    let run = fednmf(0, "-k 1 --max-iters 20 --missing zero-unobserved --format triples --input");
    run.arg(file("r.csv")).arg("--output").arg(file("f.h5")).ok();
    std::fs::write(file("pairs.csv"), "user,item\nu1,a\nu3,a\nu3,b\n").unwrap();
    let asked = fednmf(0, "predict").arg(file("f.h5")).arg(file("pairs.csv")).run();
    assert!(asked.stderr.contains("2 of 3 pairs have a row or column without any weight"), "{}", asked.stderr);
}

#[test]
fn boolean_factors_predict_zeros_and_ones() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    fednmf(0, "--algo asso --parties 1 -k 3 --input synthetic:tiles,m=20,n=15,k=3 --output").arg(file("f.h5")).ok();
    let pairs: String = (0..20).flat_map(|i| (0..15).map(move |j| format!("{i},{j}\n"))).collect();
    std::fs::write(file("pairs.csv"), pairs).unwrap();
    let found = values(&fednmf(0, "predict").arg(file("f.h5")).arg(file("pairs.csv")).run().stdout);
    assert_eq!(found.len(), 300);
    assert!(found.iter().all(|x| *x == 0.0 || *x == 1.0) && found.contains(&1.0), "{found:?}");
}

/// A first pair that the factors do not have is reported, not skipped as a header.
#[test]
fn a_first_pair_of_others_is_no_header() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("x.csv"), "name,c,d\n1,1,2\n2,3,4\n3,5,6\n").unwrap();
    let run = fednmf(0, "-k 1 --max-iters 5 --index-col yes --input").arg(at("x.csv"));
    run.arg("--output").arg(at("f.h5")).ok();
    for (pairs, why) in [
        ("0,0\n", "row 1: 0 is no row"),
        ("9,c\n8,c\n", "row 1: 9 is no row"),
        ("c,1\n1,c\n", "row 1: c is a column and 1 is a row"),
        ("user,item\n", "no pair of the factors"),
    ] {
        std::fs::write(at("p.csv"), pairs).unwrap();
        fednmf(0, "predict").arg(at("f.h5")).arg(at("p.csv")).own_process().refused(&["p.csv", why]);
    }
    // Of pairs that the run knows in part, the others have no value.
    std::fs::write(at("p.csv"), "9,c\n1,c\n").unwrap();
    let some = fednmf(0, "predict").arg(at("f.h5")).arg(at("p.csv")).run();
    assert!(some.stdout.starts_with("row,column,predicted\n9,c,\n1,c,"), "{}", some.stdout);
    assert!(some.stderr.contains("1 of 2 pairs have no prediction"), "{}", some.stderr);
    std::fs::write(at("p.csv"), "user,item\n1,c\n").unwrap();
    assert_eq!(fednmf(0, "predict").arg(at("f.h5")).arg(at("p.csv")).run().code, Some(0));
}

/// A first pair whose names are known, even if each belongs to several rows or columns, is no header.
#[test]
fn a_pair_of_ambiguous_names_is_refused_on_any_line() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("x.csv"), "name,a,a,b\nx,1,2,3\nx,4,5,6\ny,7,8,9\n").unwrap();
    fednmf(0, "-k 1 --max-iters 5 --input").arg(at("x.csv")).arg("--output").arg(at("f.h5")).ok();
    for pairs in ["x,a\ny,b\n", "y,b\nx,a\n"] {
        std::fs::write(at("p.csv"), pairs).unwrap();
        let asked = fednmf(0, "predict").arg(at("f.h5")).arg(at("p.csv")).run();
        assert_eq!(asked.code, Some(2), "{asked:?}");
        assert!(asked.stderr.contains("x is the name of several rows"), "{asked:?}");
    }
}
