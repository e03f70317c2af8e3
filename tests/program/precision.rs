//! `--precision auto`: the type of the data decides, equally on all ranks, without loss of accuracy.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::tempdir;

use fednmf_linalg::ProductKernel;

use crate::common::{data, events, factor, fednmf, npy, number, session, write_npy};

/// Writes a file of these bytes, and returns its path.
fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A small .npy of numbers of a type, from their bytes.
fn numbers(dir: &Path, name: &str, descr: &str, bytes: Vec<u8>) -> PathBuf {
    let path = dir.join(name);
    write_npy(&path, descr, (6, 5), &bytes);
    path
}

/// A table of 6 × 5 numbers, with a name at the head of each row, written with this many decimals.
fn table(decimals: usize) -> String {
    let row = |i: usize| {
        let fields: Vec<String> = (0..5).map(|j| format!("{:.decimals$}", ((3 * i + 2 * j) % 7) as f64)).collect();
        format!("gene.{i},{}\n", fields.join(","))
    };
    ",a,b,c,d,e\n".to_string() + &(0..6).map(row).collect::<String>()
}

/// A sparse matrix of counts in MatrixMarket form, with heavy tails in its rows and columns.
fn counts(dir: &Path) -> PathBuf {
    let mut entries = Vec::new();
    for i in 1..=400usize {
        for j in 1..=250usize {
            let mixed = (i * 7919 + j * 104_729 + i * j * 31) % 1009;
            if mixed * i * j < 120_000 {
                entries.push(format!("{i} {j} {}\n", 1 + mixed % 9 + 40 / (1 + i.min(j) / 3)));
            }
        }
    }
    let head = format!("%%MatrixMarket matrix coordinate integer general\n400 250 {}\n", entries.len());
    write(dir, "counts.mtx", head + &entries.concat())
}

fn chosen(summary: &Value) -> (&str, &str) {
    (summary["precision"].as_str().unwrap(), summary["params"]["precision_chosen_by_auto"].as_str().unwrap_or(""))
}

#[test]
fn the_type_of_the_data_decides_on_any_number_of_ranks() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let values: Vec<u32> = (0..30).map(|i| 1 + i * i % 11).collect();
    let market =
        |field: &str| format!("%%MatrixMarket matrix coordinate {field} general\n3 3 3\n1 1 2\n2 2 3\n3 3 4\n");
    let hdf5 = |name: &str| {
        let path = dir.join(name);
        let file = hdf5::File::create(&path).unwrap();
        let all = ndarray::Array2::from_shape_fn((6, 5), |(i, j)| f64::from(values[5 * i + j]));
        match name {
            "u16.h5" => drop(file.new_dataset_builder().with_data(&all.mapv(|x| x as u16)).create("m").unwrap()),
            "f32.h5" => drop(file.new_dataset_builder().with_data(&all.mapv(|x| x as f32)).create("m").unwrap()),
            _ => drop(file.new_dataset_builder().with_data(&all).create("m").unwrap()),
        }
        path
    };
    let cases = [
        (npy(dir, "u8.npy", 0..50), "f32", "whole"),
        (
            numbers(dir, "i64.npy", "<i8", values.iter().flat_map(|x| u64::from(*x).to_le_bytes()).collect()),
            "f32",
            "whole",
        ),
        (numbers(dir, "f32.npy", "<f4", values.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect()), "f32", "f32"),
        (
            numbers(dir, "f64.npy", "<f8", values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect()),
            "f64",
            "f64",
        ),
        (write(dir, "whole.csv", table(0)), "f32", "whole"),
        (write(dir, "decimal.csv", table(2)), "f64", "f64"),
        // One number with a fraction, in the last row.
        (write(dir, "one.csv", table(0) + "gene.6,1,2,3,4,0.5\n"), "f64", "f64"),
        (write(dir, "integer.mtx", market("integer")), "f32", "whole"),
        (write(dir, "real.mtx", market("real")), "f64", "f64"),
        (write(dir, "sets.dat", "1 2\n2 3\n1 3\n"), "f32", "whole"),
        (hdf5("u16.h5"), "f32", "whole"),
        (hdf5("f32.h5"), "f32", "f32"),
        (hdf5("f64.h5"), "f64", "f64"),
    ];
    let asked: Vec<String> = cases
        .iter()
        .map(|(path, ..)| format!("--algo hals --precision auto -k 2 --max-iters 2 --input {}", path.display()))
        .collect();
    for ranks in [1, 3] {
        for (summary, (path, precision, why)) in session::ok(ranks, &asked).iter().zip(&cases) {
            let (found, reason) = chosen(summary);
            assert!(found == *precision && reason.contains(why), "{} on {ranks}: {found}, {reason}", path.display());
        }
    }
    let triples = |name: &str, value: &str| {
        let path = write(dir, name, format!("user,item,value\n1,7,{value}\n2,8,3\n5,7,1\n5,9,2\n"));
        let line = "--algo hals --format triples --precision auto -k 2 --max-iters 2 --input";
        fednmf(1, line).arg(&path).ok()["precision"].clone()
    };
    assert_eq!([triples("whole.tsv.csv", "4"), triples("half.csv", "2.5")], ["f32", "f64"]);
    let generated = fednmf(1, "--precision auto -k 3 --max-iters 2 --input synthetic:planted,m=30,n=20,k=3").ok();
    assert_eq!(generated["precision"], "f64");
    // Without a choice there is nothing to report.
    let asked = fednmf(1, "--precision f32 -k 3 --max-iters 2 --input synthetic:planted,m=30,n=20,k=3").ok();
    assert_eq!(chosen(&asked), ("f32", ""));
}

#[test]
fn tolerances_and_parties_take_f64() {
    let dir = tempdir().unwrap();
    let digits = data("digits.npy").display().to_string();
    let run = |words: &str| fednmf(2, &format!("--precision auto -k 4 --max-iters 3 --eval-every 1 {words}")).ok();
    for (words, precision, why) in [
        ("--algo hals --tol 1e-4", "f32", "whole"),
        ("--algo hals --tol 1e-9", "f64", "--tol"),
        ("--algo hals --target-error 0.2", "f32", "whole"),
        ("--algo hals --target-error 1e-6", "f64", "--target-error"),
        ("--algo fnmf --parties 3", "f64", "parties"),
    ] {
        let summary = run(&format!("{words} --input {digits}"));
        let (found, reason) = chosen(&summary);
        assert!(found == precision && reason.contains(why), "{words}: {found}, {reason}");
    }
    npy(dir.path(), "part-0.npy", 0..40);
    npy(dir.path(), "part-1.npy", 40..90);
    let parts = run(&format!("--algo hals --input {}", dir.path().join("part-{party}.npy").display()));
    assert_eq!(chosen(&parts).0, "f64");
    let warned = fednmf(1, &format!("--algo hals --precision f32 --tol 1e-9 -k 4 --max-iters 3 --input {digits}"));
    let stderr = warned.own_process().run().stderr;
    assert!(stderr.contains("--tol") && stderr.contains("--precision f64"), "{stderr}");
    let told = fednmf(1, &format!("--algo hals --precision auto -k 4 --max-iters 3 --input {digits}"));
    let stderr = told.own_process().run().stderr;
    assert!(stderr.contains("--precision auto: f32 (the data are whole numbers)"), "{stderr}");
}

#[test]
fn the_error_is_that_of_f64() {
    let dir = tempdir().unwrap();
    let inputs = [data("digits.npy").display().to_string(), counts(dir.path()).display().to_string()];
    for (algo, input) in inputs.iter().flat_map(|i| ["hals", "auto", "bpp", "mu"].map(|algo| (algo, i))) {
        let [narrow, wide] = ["auto", "f64"].map(|precision| {
            fednmf(2, &format!("--algo {algo} --precision {precision} -k 6 --max-iters 150 --input {input}")).ok()
        });
        assert_eq!((narrow["precision"].as_str(), wide["precision"].as_str()), (Some("f32"), Some("f64")));
        let [narrow, wide] = [narrow, wide].map(|summary| number(&summary, "rel_error"));
        let apart = (narrow - wide).abs() / wide;
        assert!(apart < fednmf_driver::precision::SAME_ERROR, "{algo} {input}: {narrow}, {wide} in f64");
    }
}

#[test]
fn a_resumed_run_keeps_the_precision_of_its_checkpoint() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let digits = data("digits.npy").display().to_string();
    let planted = "synthetic:planted,m=60,n=40,k=4";
    for (first, input, other) in [("f32", planted, "f64"), ("f64", digits.as_str(), "f32")] {
        let run = |precision: &str, iterations: usize, words: &str| {
            let line =
                format!("--algo hals -k 4 --precision {precision} --max-iters {iterations} --input {input} {words}");
            fednmf(2, &line)
        };
        let (whole, rest) = (file(&format!("{first}.h5")), file(&format!("{first}-rest.h5")));
        let (saved, trace) = (file(&format!("{first}-c.h5")), file(&format!("{first}.jsonl")));
        run(first, 12, &format!("--output {whole}")).ok();
        run(first, 5, &format!("--checkpoint {saved}")).ok();
        let resumed = run("auto", 12, &format!("--checkpoint {saved} --resume --output {rest} --trace {trace}")).ok();
        assert_eq!(chosen(&resumed), (first, "as in the checkpoint"));
        assert_eq!(events(Path::new(&trace))[0]["precision"], first);
        assert_eq!(factor(Path::new(&whole), "U"), factor(Path::new(&rest), "U"));
        // Without the checkpoint the data would have decided otherwise.
        assert_eq!(run("auto", 1, "").ok()["precision"], other);
    }
}

#[test]
fn an_estimate_counts_the_bytes_of_the_precision() {
    let digits = data("digits.npy").display().to_string();
    let bytes = |words: &str| {
        let line = format!("estimate --algo hals -k 4 --ranks 1 --json {words}");
        let output = fednmf(0, &line).run();
        let answer: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stderr));
        answer["memory"]["data_bytes"].as_f64().unwrap()
    };
    assert_eq!(2.0 * bytes(&format!("--precision auto --input {digits}")), bytes(&format!("--input {digits}")));
    assert_eq!(bytes("-m 500 -n 300 --precision auto"), bytes("-m 500 -n 300"));
}

#[test]
fn the_kernels_of_auto_follow_the_processor() {
    let dir = tempdir().unwrap();
    let inputs = [data("digits.npy").display().to_string(), counts(dir.path()).display().to_string()];
    for input in inputs {
        let run = |words: &str| fednmf(2, &format!("--algo hals -k 5 --max-iters 20 --input {input} {words}")).ok();
        let of_kernel = |kernel: &ProductKernel| number(&run(&format!("--kernel {}", kernel.name())), "rel_error");
        let errors: Vec<f64> = ProductKernel::ALL.iter().map(of_kernel).collect();
        assert!(errors.iter().all(|error| (error - errors[0]).abs() < 1e-9 * error), "{input}: {errors:?}");
        let [first, second] = [run("--kernel auto"), run("--kernel auto")];
        assert_eq!(number(&first, "rel_error").to_bits(), number(&second, "rel_error").to_bits());
        assert_eq!(first["params"]["kernel"], "auto");
        // The former name.
        assert_eq!(run("--sparse-kernel native")["params"]["kernel"], "native");
    }
}

/// A checkpoint belongs to its kernels: those of another command line could not replace it.
#[test]
fn a_run_resumes_with_its_own_kernels_only() {
    let dir = tempfile::tempdir().unwrap();
    let run = |words: &str| {
        let line = format!(
            "--algo hals -k 3 --max-iters 5 --resume {words} --input synthetic:planted,m=30,n=20,k=3 --checkpoint"
        );
        fednmf(0, &line).arg(dir.path().join("c.h5"))
    };
    let [first, second] = [0, 1].map(|at| ProductKernel::ALL[at].name());
    run(&format!("--kernel {first}")).ok();
    run(&format!("--kernel {second}")).refused(&["kernel"]);
    run("--kernel auto").ok();
}

/// `--version` names the BLAS library, and the kernels of another one are refused.
#[test]
fn a_build_has_the_kernels_of_its_blas() {
    let version = fednmf(0, "--version").run().stdout;
    let line = "--algo hals -k 2 --max-iters 2 --kernel mkl";
    if ProductKernel::mkl().is_ok() {
        assert!(version.contains("Math Kernel Library") && version.contains("mkl"), "{version}");
        fednmf(0, line).ok();
    } else {
        assert!(version.contains("BLAS:     OpenBLAS") && version.contains("openblas"), "{version}");
        fednmf(0, line).refused(&["--kernel mkl", "OpenBLAS"]);
        fednmf(0, "estimate --algo hals -m 50 -n 40 -k 2 --kernel mkl").refused(&["--kernel mkl", "OpenBLAS"]);
    }
}

/// In f32 an exact factorisation is found only to the digits of f32; the remaining iterations are in f64.
#[test]
fn mixed_precision_ends_where_f64_does() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let run = |ranks: usize, precision: &str, more: &str| {
        let line = "--algo hals -k 4 --seed 3 --input synthetic:planted,m=80,n=60,k=4,seed=5,noise=0 --eval-every 5";
        fednmf(ranks, &format!("{line} --precision {precision} {more}"))
    };
    let error = |precision: &str, more: &str| number(&run(0, precision, more).ok(), "rel_error");
    let (single, double) = (error("f32", "--max-iters 3000"), error("f64", "--max-iters 3000"));
    let mixed = run(0, "mixed", "--max-iters 3000").ok();
    let changed_at = number(&mixed, "iterations_in_f32");
    assert!(changed_at > 20.0 && changed_at < 2000.0, "{mixed}");
    assert!(number(&mixed, "rel_error") < 2.0 * double && double < 0.2 * single, "{single} {double} {mixed}");
    assert_eq!(mixed["precision"], "mixed");
    assert!(mixed["params"]["iterations_in_f32"].is_null(), "it is not known before the run");

    // With noise the result is that of f64, in the same number of iterations, on any number of ranks.
    for ranks in [0, 2, 4] {
        let noisy = |precision: &str| {
            let line = "--algo auto -k 5 --max-iters 150 --input synthetic:planted,m=90,n=70,k=6,noise=0.2 --precision";
            number(&fednmf(ranks, &format!("{line} {precision}")).ok(), "rel_error")
        };
        let (mixed, double) = (noisy("mixed"), noisy("f64"));
        assert!((mixed - double).abs() < 1e-4 * double, "{ranks}: {mixed} {double}");
    }

    // A tolerance ends the iterations in f32, and then the run.
    let ended = run(0, "mixed", "--tol 1e-3 --max-iters 3000").ok();
    let in_f32 = number(&ended, "iterations_in_f32");
    assert!(in_f32 > 0.0 && in_f32 < number(&ended, "iter") && ended["stopped_by"] == "tol", "{ended}");

    // Every method that takes it, on positive data, which all of them take.
    for method in ["hals --extrapolation none", "bpp", "mu", "kl-mu", "kl-cd", "beta-mu", "dsanls", "vr-dsanls"] {
        let error = |precision: &str| {
            let line = format!("--algo {method} -k 3 --max-iters 400 --eval-every 40 --precision {precision} --input");
            let input = "synthetic:planted,m=40,n=30,k=5,noise=0.3,seed=2";
            let run = fednmf(0, &line).arg(input).ok();
            (number(&run, "rel_error"), run["iterations_in_f32"].as_u64())
        };
        let ((mixed, in_f32), (double, _)) = (error("mixed"), error("f64"));
        // Rounding may lead a sketched run to another point, but not to a worse one.
        assert!(mixed < 1.001 * double && in_f32.is_some_and(|n| n > 0), "{method}: {mixed} {double} {in_f32:?}");
    }

    // A run that stops before the change, between two evaluations or after the change continues to the same bits.
    let whole = file("whole.h5");
    run(0, "mixed", "--max-iters 600").arg("--output").arg(&whole).ok();
    for first in [10, 11, changed_at as usize + 5] {
        let checkpoint = file(&format!("c{first}.h5"));
        let resumed = file(&format!("r{first}.h5"));
        run(0, "mixed", &format!("--max-iters {first}")).arg("--checkpoint").arg(&checkpoint).ok();
        let rest = run(0, "mixed", "--max-iters 600 --resume").arg("--checkpoint").arg(&checkpoint);
        let done = rest.arg("--output").arg(&resumed).ok();
        assert_eq!(number(&done, "iterations_in_f32"), changed_at);
        for name in ["U", "V"] {
            assert_eq!(factor(&whole, name), factor(&resumed, name), "{first}");
        }
    }
    // Numbers that f32 cannot multiply are refused, whatever comes after it.
    for (i, factor) in ["1e-24", "1e20"].iter().enumerate() {
        let rows: String =
            (1..=12).map(|i| format!("{0}{factor2},{1}{factor2}\n", i, 13 - i, factor2 = &factor[1..])).collect();
        std::fs::write(file(&format!("x{i}.csv")), rows).unwrap();
        for precision in ["f32", "mixed"] {
            let line = format!("--algo hals -k 1 --header no --index-col no --precision {precision} --input");
            fednmf(0, &line).arg(file(&format!("x{i}.csv"))).refused(&["--precision", "f64"]);
        }
    }
    // A tolerance that f32 does not resolve is that of f64.
    let tight = run(0, "mixed", "--max-iters 3000 --tol 1e-9").ok();
    assert!(number(&tight, "iter") > number(&tight, "iterations_in_f32"), "{tight}");

    run(0, "mixed", "--eval-every 0").refused(&["--precision mixed", "--eval-every 0"]);
    // An entry that is zero in f32 alone.
    let quiet = ndarray::Array2::from_shape_fn((9, 7), |at| if at == (3, 4) { 1e-50 } else { 1.0 });
    crate::common::save_npy(&file("quiet.npy"), &quiet);
    for ranks in [0, 2] {
        let of_quiet = |more: &str| fednmf(ranks, &format!("--loss is -k 2 {more} --input")).arg(file("quiet.npy"));
        of_quiet("--precision mixed").refused(&["too small for f32", "--precision f64"]);
        of_quiet("--precision f64").ok();
    }
    let line = "--algo fnmf --parties 2 -k 2 --input synthetic:tiles,m=20,n=20 --precision mixed";
    fednmf(0, line).refused(&["--precision mixed", "parties"]);
}

/// A threshold is rounded as the entries are: 0.7 is at least 0.7 in f32 as well, and `evaluate` finds the same ones.
#[test]
fn ones_of_a_threshold_do_not_depend_on_the_precision() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let tenths: Vec<f64> = (0..30).map(|i| f64::from(i * 7 % 10) / 10.0).collect();
    numbers(dir.path(), "f64.npy", "<f8", tenths.iter().flat_map(|x| x.to_le_bytes()).collect());
    numbers(dir.path(), "f32.npy", "<f4", tenths.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect());
    for (name, precision) in [("f64.npy", "f32"), ("f32.npy", "f64"), ("f32.npy", "f32")] {
        let line = format!("--algo hals -k 1 --max-iters 5 --binarize q0.7 --precision {precision} --input");
        let done = fednmf(0, &line).arg(at(name)).arg("--output").arg(at("o.h5")).ok();
        let evaluated = fednmf(0, "evaluate --json").arg(at("o.h5")).arg("--input").arg(at(name)).run();
        let told: Value = serde_json::from_str(&evaluated.stdout).unwrap();
        assert!((number(&told, "rel_error") - number(&done, "rel_error")).abs() < 1e-5, "{name}: {told} {done}");
    }
    for tenth in 1..10 {
        let ones = tenths.iter().filter(|x| **x >= f64::from(tenth) / 10.0).count();
        for (name, precision) in [("f64.npy", "f64"), ("f64.npy", "f32"), ("f32.npy", "f64"), ("f32.npy", "f32")] {
            let line = format!("--algo hals -k 1 --max-iters 5 --binarize 0.{tenth} --precision {precision} --input");
            let done = fednmf(0, &line).arg(at(name)).arg("--output").arg(at("o.h5")).ok();
            assert_eq!(done["nnz"].as_u64(), Some(ones as u64), "{name} {line}");
            let evaluated = fednmf(0, "evaluate --json").arg(at("o.h5")).arg("--input").arg(at("f64.npy")).run();
            let told: Value = serde_json::from_str(&evaluated.stdout).unwrap();
            assert!((number(&told, "rel_error") - number(&done, "rel_error")).abs() < 1e-5, "{told} {done}");
        }
    }
}

/// They are zero in f32, though not in the file.
#[test]
fn entries_too_small_for_f32_are_named_as_such() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("tiny.csv");
    std::fs::write(&path, "1e-199,2e-199\n3e-199,5e-199\n").unwrap();
    let run = fednmf(0, "--algo hals --precision f32 -k 1 --max-iters 2 --input");
    run.arg(&path).refused(&["f32 cannot multiply numbers as ", "--precision f64"]);
}

/// What is too small for f32 is not zero: zeros may be missing.
#[test]
fn observed_entries_stay_observed_in_f32() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let small = ndarray::arr2(&[[1.0, 2.0, 1.0], [3.0, 4.0, 2.0], [5.0, 1e-50, 3.0]]);
    crate::common::save_npy(&at("x.npy"), &small);
    let rows: Vec<String> =
        small.rows().into_iter().map(|row| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",")).collect();
    write(dir.path(), "x.csv", rows.join("\n"));
    let mtx: String = small.indexed_iter().map(|((i, j), x)| format!("{} {} {x:e}\n", i + 1, j + 1)).collect();
    write(dir.path(), "x.mtx", format!("%%MatrixMarket matrix coordinate real general\n3 3 9\n{mtx}"));
    let file = hdf5::File::create(at("x.h5")).unwrap();
    file.new_dataset_builder().with_data(&small).create("x").unwrap();
    file.close().unwrap();
    for name in ["x.npy", "x.csv", "x.mtx", "x.h5"] {
        let run = |precision: &str| {
            let line = format!("--algo hals -k 1 --missing zero-unobserved --precision {precision} --input");
            fednmf(0, &line).arg(at(name)).arg("--output").arg(at(&format!("{precision}.h5"))).ok()
        };
        let (single, double) = (run("f32"), run("f64"));
        let evaluated = fednmf(0, "evaluate --json").arg(at("f32.h5")).arg("--input").arg(at(name)).run();
        let evaluated: Value = serde_json::from_str(&evaluated.stdout).unwrap();
        for found in [&single, &evaluated] {
            assert!(
                (number(found, "rel_error") - number(&double, "rel_error")).abs() < 1e-4,
                "{name}: {found} {double}"
            );
        }
        assert_eq!(single["nnz"], 9, "{name}");
    }
}
