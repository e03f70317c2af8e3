//! The choice of k on a matrix with known k, in one job and resumed.

use std::io::Read;
use std::path::{Path, PathBuf};

use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use fednmf_driver::model_selection;
use fednmf_files::output::matrices::Stored;
use fednmf_linalg::random::{Purpose, Stream};

use crate::common::processes::signal;
use crate::common::{fednmf, finish, matrix, save_npy};

#[test]
fn a_refused_sweep_leaves_no_directory() {
    let dir = tempdir().unwrap();
    let sweep =
        |k: &str| fednmf(0, &format!("sweep --k {k} --runs 2 --max-iters 5 --input synthetic:planted,m=9,n=8,k=2"));
    sweep("2,9").arg("--output").arg(dir.path().join("a/b")).refused(&["--k", "9 components"]);
    assert!(!dir.path().join("a").exists());
    std::fs::create_dir(dir.path().join("c")).unwrap();
    sweep("2,9").arg("--output").arg(dir.path().join("c")).refused(&["--k"]);
    assert!(dir.path().join("c").exists());
}

/// Hours of computing are printed, whatever became of the file.
#[test]
fn a_sweep_whose_file_cannot_be_written_prints_its_results() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    std::fs::create_dir(&out).unwrap();
    // A directory has the temporary name of the file. The shell's process becomes that of the program.
    let part = fednmf_base::unfinished::part_of(&out.join("sweep.json")).display().to_string();
    let part = part.replace(&format!("-{}.", std::process::id()), "-$$.");
    let line = "sweep --k 1,2 --runs 2 --max-iters 5 --input synthetic:planted,m=9,n=8,k=2 --output";
    let script = format!("mkdir \"{part}\" && exec '{}' {line} '{}'", env!("CARGO_BIN_EXE_fednmf"), out.display());
    let done = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let told = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert_ne!(done.status.code(), Some(0), "{told:?}");
    assert!(told[0].contains("recommended:") && told[1].contains("sweep.json: cannot be written"), "{told:?}");
}

#[test]
fn a_sweep_finds_the_planted_k_and_can_be_resumed() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    let line =
        "sweep --k 2..7 --runs 4 --input synthetic:blocks,m=90,n=60,k=4,noise=0.05,seed=3 --json --quiet --output";
    let run = |ranks: usize, more: &str| {
        let done = fednmf(ranks, &format!("{line} {} {more}", out.display())).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        serde_json::from_str::<Value>(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stdout))
    };
    let found = run(3, "");
    assert_eq!(found["recommended"], 4, "{found:#}");
    assert_eq!(found["points"].as_array().map(Vec::len), Some(6));
    let of = |k: usize| found["points"][k - 2].clone();
    assert!(
        of(4)["stability"]["mean"].as_f64() > Some(0.95) && of(7)["stability"]["mean"].as_f64() < Some(0.9),
        "{found:#}"
    );
    assert!(of(4)["heldout"][0].as_f64() < Some(0.5 * of(3)["heldout"][0].as_f64().unwrap()), "{found:#}");
    assert!(!found["reasons"].as_array().unwrap().is_empty());
    let page = std::fs::read_to_string(out.join("sweep.html")).unwrap();
    assert!(page.contains("Recommended: k = 4") && page.contains("id=\"elbow\"") && page.contains("id=\"stability\""));
    // Both answers come first, and are marked in the plots; the errors of fit and prediction have a plot each.
    let answers = page.find("for prediction</dt><dd>k = 4<").zip(page.find("for interpretation</dt><dd>k = 4<"));
    assert!(answers.is_some_and(|(a, b)| a.max(b) < page.find("<figure").unwrap()), "{page}");
    assert!(page.contains("id=\"heldout\"") && page.matches(">k = 4: recommended</text>").count() == 3);
    assert!(page.contains("standard error over the runs") && page.contains("id=\"consensus\""));
    assert!(
        page.contains("<h2>Reproduce</h2>") && page.contains("mpirun -n 3 fednmf sweep --k 2..7 --runs 4"),
        "{page}"
    );
    assert!(page.contains("Paper to cite: Cichocki") && found["args"][2] == "--k" && found["version"].is_string());
    assert_eq!(found["warnings"].as_array().map(Vec::len), Some(0), "{found:#}");
    assert_eq!(
        serde_json::from_str::<Value>(&std::fs::read_to_string(out.join("sweep.json")).unwrap()).unwrap(),
        found
    );

    // A missing run is repeated by other ranks in one group with the same result; the other runs stay untouched.
    let removed = out.join("k0004-run002.h5");
    let other = out.join("k0005-run000.h5");
    let before = std::fs::metadata(&other).unwrap().modified().unwrap();
    std::fs::remove_file(&removed).unwrap();
    let again = run(2, "--groups 1");
    assert!(removed.exists() && std::fs::metadata(&other).unwrap().modified().unwrap() == before);
    assert_eq!(again["recommended"], 4);
    let error = |all: &Value| all["points"][2]["rmse"].as_f64().unwrap();
    assert!((error(&found) / error(&again) - 1.0).abs() < 1e-9);
    fednmf(2, &format!("{line} {} --seed 9", out.display())).refused(&["another sweep", "seed"]);
}

const BLOCKS: &str = "synthetic:blocks,m=90,n=60,k=4,noise=0.05,seed=3";

/// The JSON of a sweep over the matrix with four blocks.
fn swept(ranks: usize, words: &str, out: &Path) -> Value {
    let line = format!("sweep --input {BLOCKS} --json --quiet {words} --output {}", out.display());
    let done = fednmf(ranks, &line).run();
    assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stdout))
}

/// Whether the consensus has the components of the runs, and the U that minimises the loss for them exactly.
fn check_consensus(found: &Value, k: usize, out: &Path) {
    let consensus = &found["consensus"];
    let file = out.join(format!("consensus-k{k:04}.h5"));
    assert_eq!((consensus["file"].as_str(), consensus["k"].as_u64()), (file.to_str(), Some(k as u64)));
    let numbers: Vec<u64> =
        consensus["components"].as_array().unwrap().iter().map(|c| c["component"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..k as u64).collect::<Vec<_>>(), "numbered from 0");
    let fitted = out.join("fitted.h5");
    let project =
        fednmf(0, &format!("project {} --input {BLOCKS} --json --output {}", file.display(), fitted.display()));
    let done = project.run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let (u, exact, v) = (matrix(&file, "U"), matrix(&fitted, "U"), matrix(&file, "V"));
    assert_eq!((u.dim(), v.dim()), ((90, k), (60, k)));
    let largest = exact.iter().copied().fold(0.0, f64::max);
    assert!((&u - &exact).iter().all(|e| e.abs() < 1e-7 * largest), "the exact minimiser");
    assert!(v.columns().into_iter().all(|v| (v.dot(&v) - 1.0).abs() < 1e-9 && v.iter().all(|x| *x >= 0.0)));
    let weights: Vec<f64> = u.columns().into_iter().map(|u| u.dot(&u)).collect();
    assert!(weights.is_sorted_by(|a, b| *a >= b * (1.0 - 1e-7)), "by weight: {weights:?}");
    // As accurate as the runs: all of them find the same components.
    let mean = found["points"].as_array().unwrap().iter().find(|p| p["k"] == k).unwrap()["rmse"].as_f64().unwrap();
    let rmse = consensus["rmse"].as_f64().unwrap();
    assert!(rmse < 1.1 * mean, "{rmse} {mean}");
    let evaluated = fednmf(0, &format!("evaluate {} --json --input {BLOCKS}", file.display())).run();
    let error: Value = serde_json::from_str(&evaluated.stdout).unwrap();
    let measured = ["kl_divergence", "beta_divergence"].iter().find_map(|key| error[key].as_f64());
    assert_eq!(measured.is_some(), consensus["divergence"].is_number(), "{error} {consensus}");
    if let Some((measured, told)) = measured.zip(consensus["divergence"].as_f64()) {
        assert!((measured / told - 1.0).abs() < 1e-9, "{measured} {told}");
        let points = found["points"].as_array().unwrap();
        let mean = points.iter().find(|p| p["k"] == k).unwrap()["divergence"].as_f64().unwrap();
        assert!(told < 1.1 * mean, "{told} {mean}");
    }
    let norm = matrix_norm();
    assert!(
        (error["rel_error"].as_f64().unwrap() * norm / f64::sqrt(90.0 * 60.0) / rmse - 1.0).abs() < 1e-6,
        "{error}"
    );
}

/// ‖M‖ of the matrix with four blocks, from its entries.
fn matrix_norm() -> f64 {
    let dir = tempdir().unwrap();
    let path = dir.path().join("m.mtx");
    let made =
        fednmf(0, &format!("generate {} --output {}", BLOCKS.trim_start_matches("synthetic:"), path.display())).run();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let entries = std::fs::read_to_string(path).unwrap();
    let last = entries.lines().filter(|l| !l.starts_with('%')).skip(1);
    last.map(|l| l.split_whitespace().last().unwrap().parse::<f64>().unwrap().powi(2)).sum::<f64>().sqrt()
}

#[test]
fn the_consensus_is_written_and_leads_to_the_next_command() {
    let dir = tempdir().unwrap();
    // On a grid, and by rows where entries are held out.
    for (ranks, words) in [(4, "--holdout 0 --groups 1"), (3, "--groups 1"), (2, "")] {
        let out = dir.path().join(format!("sweep-{ranks}"));
        let found = swept(ranks, &format!("--k 3..6 --runs 3 {words}"), &out);
        assert_eq!(found["recommended"], 4, "{found:#}");
        check_consensus(&found, 4, &out);
    }
    let out = dir.path().join("sweep-2");
    let line = format!("sweep --input {BLOCKS} --k 3..6 --runs 3 --output {}", out.display());
    let text = fednmf(2, &line).run().stdout;
    let command = text.trim_end().lines().last().unwrap().to_string();
    let start = format!("fednmf --input {BLOCKS} -k 4 --init {}/consensus-k0004.h5", out.display());
    assert!(command.starts_with(&start), "{text}");
    assert!(text.contains("Use 4 components. Every start finds the same components."), "{text}");
    let page = std::fs::read_to_string(out.join("sweep.html")).unwrap();
    // Below it is the command that repeats the sweep.
    let next = page.rsplit("<pre class=\"command\">").nth(1).unwrap();
    assert!(next.starts_with(&command), "{next}");
    assert!(page.contains("consensus-k0004.h5 ") && page.contains("Components of k = 4"), "{page}");

    // What is to be copied runs.
    let factors = dir.path().join("f.h5");
    let words = command.strip_prefix("fednmf ").unwrap().replace("factors-k4.h5", &factors.display().to_string());
    let run = fednmf(2, &words).ok();
    let rmse = run["rel_error"].as_f64().unwrap() * matrix_norm() / f64::sqrt(90.0 * 60.0);
    let before = serde_json::from_str::<Value>(&std::fs::read_to_string(out.join("sweep.json")).unwrap()).unwrap();
    let before = before["consensus"]["rmse"].as_f64().unwrap();
    assert!(rmse <= before && factors.exists(), "{rmse} {before}");

    // Another form of the same method is another sweep.
    let out = dir.path().join("sweep-4");
    let line = format!("sweep --input {BLOCKS} --k 3..6 --runs 3 --holdout 0 --algo auto --output {}", out.display());
    fednmf(2, &line).refused(&["another sweep", "extrapolation"]);
}

#[test]
fn every_centralised_method_can_be_swept() {
    let dir = tempdir().unwrap();
    let all = [
        ("--algo hals", "fednmf --input"),
        ("--algo bpp", "fednmf --algo bpp "),
        ("--algo kl-mu", "fednmf --algo kl-mu "),
        ("--algo kl-cd", "fednmf --algo kl-cd "),
        ("--algo auto", "fednmf --input"),
        ("--algo mu", "fednmf --algo mu "),
        ("--algo dsanls", "fednmf --algo dsanls "),
        ("--algo online --max-iters 100", "fednmf --algo online "),
        ("--loss frobenius", "fednmf --loss frobenius "),
        ("--loss kl", "fednmf --loss kl "),
        ("--loss 1.5", "fednmf --loss 1.5 "),
        ("--loss kl --algo kl-cd", "fednmf --algo kl-cd --loss kl "),
    ];
    for method in model_selection::sweepable() {
        let name = method.description().name;
        let tested = name == "kl-online" || all.iter().any(|(words, _)| words.split(' ').any(|word| word == name));
        assert!(tested, "{name}");
    }
    // With more components, its runs end in different optima.
    let out = dir.path().join("kl-online");
    check_consensus(&swept(2, "--k 1 --runs 2 --algo kl-online --max-iters 20", &out), 1, &out);
    for (algo, next) in all {
        let out = dir.path().join(algo.replace(' ', ""));
        let found = swept(2, &format!("--k 3,4,6 --runs 3 {algo}"), &out);
        let points = found["points"].as_array().unwrap();
        let divergence = algo.contains("kl") || algo.contains("1.5");
        let all_used = divergence || algo.contains("online");
        assert!(points.iter().all(|p| p["heldout"].is_null() == all_used), "{algo}: {found:#}");
        assert!(points.iter().all(|p| p["divergence"].is_null() != divergence), "{algo}: {found:#}");
        let k = found["recommended"].as_u64().unwrap_or_else(|| panic!("{algo}: {found:#}"));
        assert!(algo.contains("dsanls") || k == 4, "{algo}: {found:#}");
        let next = (found["next_command"].as_str().unwrap(), next);
        assert!(next.0.starts_with(next.1), "{algo}: {found:#}");
        let multiplies = ["--algo mu", "--algo kl-mu", "--loss kl", "--loss 1.5"].contains(&algo);
        assert_eq!(next.0.contains("--init"), !multiplies, "{found:#}");
        if k == 4 && !algo.contains("dsanls") {
            check_consensus(&found, 4, &out);
        }
    }
    for (words, why) in [
        ("--algo hals --loss kl", &["--loss kl", "--algo hals minimises", "leave --algo out"][..]),
        ("--loss mse", &["--loss", "kullback-leibler or kl"]),
        ("--loss 1.5 --holdout 0.1", &["--holdout", "--loss beta-divergence"]),
        ("--loss 1.5 --missing zero-unobserved", &["--missing", "--loss frobenius"]),
    ] {
        let line = format!("sweep --k 3 --input {BLOCKS} {words} --output {}", dir.path().join("none").display());
        fednmf(2, &line).refused(why);
    }
}

/// The runs of a sweep stop by what they minimise: their divergences are those of a run with the same start.
#[test]
fn the_divergences_of_a_sweep_are_those_of_runs() {
    let dir = tempdir().unwrap();
    for input in ["synthetic:planted,m=90,n=60,k=6,noise=0.3", "synthetic:sparse,m=90,n=70,density=0.3,values=counts"] {
        for (algo, measure) in
            [("--algo kl-mu", "kl_divergence"), ("--loss kl", "kl_divergence"), ("--loss 1.5", "beta_divergence")]
        {
            let out = dir.path().join("sweep");
            let _ = std::fs::remove_dir_all(&out);
            let line = format!("sweep --k 4 --runs 3 {algo} --input {input} --quiet --output {}", out.display());
            assert_eq!(fednmf(2, &line).run().code, Some(0), "{line}");
            for run in 0..3 {
                let line = format!("{algo} -k 4 --seed {run} --init random --input {input}");
                let expected = fednmf(0, &line).ok()[measure].as_f64().unwrap();
                let file = hdf5::File::open(out.join(format!("k0004-run00{run}.h5"))).unwrap();
                let found = file.attr(measure).unwrap().read_scalar::<f64>().unwrap();
                assert!(found < 1.01 * expected, "{algo} {input}: {found} {expected}");
            }
        }
    }
}

/// Where entries are missing, the consensus minimises the divergence of the others.
#[test]
fn the_consensus_of_a_divergence_leaves_missing_entries_out() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    let found = swept(2, "--k 4 --runs 3 --loss kl --missing zero-unobserved", &out);
    let file = out.join("consensus-k0004.h5");
    let evaluated = fednmf(0, &format!("evaluate {} --json --input {BLOCKS}", file.display())).run();
    let evaluated: Value =
        serde_json::from_str(&evaluated.stdout).unwrap_or_else(|e| panic!("{e}: {}", evaluated.stderr));
    let [measured, told] =
        [&evaluated["kl_divergence"], &found["consensus"]["divergence"]].map(|x| x.as_f64().unwrap());
    assert!((measured / told - 1.0).abs() < 1e-9, "{measured} {told}");
    let project = fednmf(1, &format!("project {} --json --input {BLOCKS}", file.display())).run();
    let projected: Value = serde_json::from_str(&project.stdout).unwrap_or_else(|e| panic!("{e}: {}", project.stderr));
    assert!((projected["kl_divergence"].as_f64().unwrap() / told - 1.0).abs() < 1e-7, "{projected} {told}");
}

/// What is measured on held-out entries is what the method minimises, and `evaluate` finds the same.
#[test]
fn the_divergence_of_held_out_entries_chooses_k() {
    let dir = tempdir().unwrap();
    for algo in ["kl-mu", "kl-cd"] {
        let out = dir.path().join(algo);
        let found = swept(2, &format!("--k 3,4,6 --runs 3 --holdout 0.1 --algo {algo}"), &out);
        assert_eq!(found["heldout_measure"], "heldout_kl_divergence", "{found:#}");
        assert_eq!(found["recommended"], 4, "{algo}: {found:#}");
        assert!(
            found["reasons"][0].as_str().unwrap().contains("held-out KL divergence per entry is least"),
            "{found:#}"
        );
        let points = found["points"].as_array().unwrap();
        let mut sum = 0.0;
        for run in 0..3 {
            let file = out.join(format!("k0004-run00{run}.h5"));
            let evaluated = fednmf(0, "evaluate --json").arg(&file).arg("--input").arg(BLOCKS).run();
            let evaluated: Value =
                serde_json::from_str(&evaluated.stdout).unwrap_or_else(|e| panic!("{e}: {}", evaluated.stderr));
            let stored =
                |name: &str| hdf5::File::open(&file).unwrap().attr(name).unwrap().read_scalar::<f64>().unwrap();
            for name in ["heldout_kl_divergence", "heldout_rmse", "kl_divergence"] {
                let (told, kept) = (evaluated[name].as_f64().unwrap(), stored(name));
                assert!((told / kept - 1.0).abs() < 1e-6, "{name}: {told} {kept}");
            }
            sum += stored("heldout_kl_divergence");
        }
        let of_four = points.iter().find(|p| p["k"] == 4).unwrap()["heldout"][0].as_f64().unwrap();
        assert!((sum / 3.0 / of_four - 1.0).abs() < 1e-9, "{sum} {of_four}");
    }
    // Missing entries are not fitted either.
    let line =
        format!("sweep --k 2..3 --runs 2 --missing zero-unobserved --input {BLOCKS} --algo kl-cd --json --quiet");
    let done = fednmf(0, &line).arg("--output").arg(dir.path().join("x")).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

#[test]
fn penalties_hold_for_the_runs_of_a_sweep_and_the_next_command() {
    let dir = tempdir().unwrap();
    let none = format!("sweep --k 3 --l1-ratio 0.5 --input {BLOCKS} --output {}", dir.path().join("none").display());
    fednmf(0, &none).refused(&["--l1-ratio", "--alpha-u"]);
    for algo in ["hals", "kl-cd", "bpp"] {
        let out = dir.path().join(algo);
        let found = swept(2, &format!("--k 3..5 --runs 3 --algo {algo} --alpha-u 0.001 --l1-ratio 0.5"), &out);
        assert_eq!(found["recommended"], 4, "{algo}: {found:#}");
        let next = found["next_command"].as_str().unwrap();
        assert!(next.contains("--alpha-u 0.001 --alpha-v same --l1-ratio 0.5"), "{next}");
        // The objective of a run is that of its file.
        let file = out.join("k0004-run001.h5");
        let evaluated = fednmf(0, "evaluate --json").arg(&file).arg("--input").arg(BLOCKS).run();
        let evaluated: Value =
            serde_json::from_str(&evaluated.stdout).unwrap_or_else(|e| panic!("{e}: {}", evaluated.stderr));
        let stored = hdf5::File::open(&file).unwrap().attr("objective").unwrap().read_scalar::<f64>().unwrap();
        assert!((evaluated["objective"].as_f64().unwrap() / stored - 1.0).abs() < 1e-6, "{evaluated} {stored}");
        let line = format!("sweep --k 3..5 --runs 3 --algo {algo} --input {BLOCKS} --output {}", out.display());
        fednmf(2, &format!("{line} --alpha-u 0.002 --l1-ratio 0.5")).refused(&["another sweep"]);
    }
}

#[test]
fn a_sweep_over_fewer_k_keeps_page_numbers_and_consensus_of_the_first() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    let input = "--max-iters 20 --input synthetic:planted,m=60,n=40,k=3";
    let sweep = |ks: &str, runs: usize| {
        let done = fednmf(2, &format!("sweep --k {ks} --runs {runs} {input}")).arg("--output").arg(&out).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stdout
    };
    // The file of the consensus that a summary describes, and its k.
    let consensus = |name: &str| {
        let numbers: Value = serde_json::from_slice(&std::fs::read(out.join(name)).unwrap()).unwrap();
        let told = &numbers["consensus"];
        let file = PathBuf::from(told["file"].as_str().unwrap());
        assert_eq!(Stored::open(&file).unwrap().attributes()["runs"], told["runs"], "{name}");
        (file, told["k"].as_u64().unwrap())
    };
    sweep("2..4", 3);
    let (file, k) = consensus("sweep.json");
    assert_eq!(file, out.join(format!("consensus-k{k:04}.h5")));
    let kept =
        || [out.join("sweep.html"), out.join("sweep.json"), file.clone()].map(|file| std::fs::read(file).unwrap());
    let first = kept();
    // The k of the first consensus alone, and with another.
    let (own, own_file) = (format!("sweep-k{k:04}"), out.join(format!("consensus-k{k:04}-of-sweep-k{k:04}.h5")));
    let told = sweep(&k.to_string(), 2);
    assert!(told.contains(&format!("{own}.html")) && told.contains(&own_file.display().to_string()), "{told}");
    assert_eq!(consensus(&format!("{own}.json")), (own_file, k));
    assert!(sweep("3..4", 2).contains("sweep-k0003-k0004.html"));
    let (other_file, k) = consensus("sweep-k0003-k0004.json");
    assert_eq!(other_file, out.join(format!("consensus-k{k:04}-of-sweep-k0003-k0004.h5")));
    assert!(sweep("2,4", 2).contains("sweep-k0002_k0004.html"));
    assert!(first == kept(), "the first page, numbers or consensus changed");
    // Of all k of the first and one more.
    assert!(sweep("2..5", 2).contains("sweep.html"));
    assert_ne!(first[1], std::fs::read(out.join("sweep.json")).unwrap());
}

#[test]
fn both_edges_of_the_range_are_warned_of() {
    let dir = tempdir().unwrap();
    for (ks, words) in [("2..4", "k = 4 is the largest"), ("4..6", "k = 4 is the smallest")] {
        let found = swept(2, &format!("--k {ks} --runs 3"), &dir.path().join(ks));
        assert_eq!(found["recommended"], 4, "{found:#}");
        assert!(found["warnings"][0].as_str().is_some_and(|w| w.contains(words) && w.contains("try ")), "{found:#}");
        let page = std::fs::read_to_string(dir.path().join(ks).join("sweep.html")).unwrap();
        assert!(page.contains(&format!("Warning: {words}")), "{page}");
    }
}

#[test]
fn a_consensus_with_missing_entries_is_fitted_to_the_others() {
    let dir = tempdir().unwrap();
    let input = "synthetic:sparse,m=80,n=50,density=0.4,seed=2";
    let line = format!("sweep --k 2,3 --runs 3 --missing zero-unobserved --input {input} --json --quiet");
    let done = fednmf(2, &line).arg("--output").arg(dir.path()).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    let next = found["next_command"].as_str().unwrap();
    assert!(next.contains("--missing zero-unobserved"), "{next}");
    // Unobserved entries add no error, so it is below that of factors that also fit the zeros.
    let point = |k: &Value| found["points"].as_array().unwrap().iter().find(|p| p["k"] == *k).unwrap()["rmse"].as_f64();
    let rmse = found["consensus"]["rmse"].as_f64().unwrap();
    assert!(rmse > 0.0 && rmse < 2.0 * point(&found["recommended"]).unwrap(), "{found:#}");
}

#[test]
fn without_held_out_entries_stability_decides() {
    let dir = tempdir().unwrap();
    let line = "sweep --k 3,4,6 --runs 3 --holdout 0 --input synthetic:blocks,m=90,n=60,k=4,noise=0.05,seed=3";
    let done = fednmf(2, line).arg("--output").arg(dir.path()).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stdout.contains("recommended: k = ") && done.stdout.contains("Nothing was held out"),
        "{}",
        done.stdout
    );
    // Neither criterion is available: the message recommends the missing runs and held-out entries, not another method.
    let line = "sweep --k 2,3 --runs 1 --holdout 0 --input synthetic:planted,m=30,n=20";
    let done = fednmf(0, line).arg("--output").arg(dir.path().join("one")).run();
    assert!(done.stdout.contains("--runs") && done.stdout.contains("--holdout 0.05"), "{done:?}");
    // Also for baskets, which store only the positions of ones.
    let baskets =
        fednmf(2, "sweep --k 2,3 --runs 2 --json --quiet --input").arg(crate::common::data("formats/baskets.dat"));
    let done = baskets.arg("--output").arg(dir.path().join("baskets")).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(found["points"].as_array().unwrap().iter().all(|p| p["rmse"].as_f64() < Some(0.5)), "{found:#}");
    for (words, word) in
        [("--k 0", "--k"), ("--k 99", "90 x 60"), ("--k 2 --algo fnmf", "fnmf"), ("--k 2 --runs 0", "--runs")]
    {
        let line = format!("sweep {words} --input synthetic:planted,m=90,n=60");
        fednmf(2, &line).arg("--output").arg(dir.path()).refused(&[word]);
    }
    assert!(!dir.path().join("k0002-run000.h5").exists());
}

#[test]
fn a_consensus_replaces_no_file_of_others() {
    let dir = tempdir().unwrap();
    let theirs = dir.path().join("consensus-k0002.h5");
    let sweep = || {
        fednmf(0, "sweep --k 2..2 --runs 2 --max-iters 3 --input synthetic:planted,m=12,n=9 --output").arg(dir.path())
    };
    std::fs::write(&theirs, "precious").unwrap();
    sweep().refused(&["consensus-k0002.h5", "another directory"]);
    assert_eq!(std::fs::read(&theirs).unwrap(), b"precious");
    std::fs::remove_file(&theirs).unwrap();
    for _ in 0..2 {
        assert_eq!(sweep().run().code, Some(0));
    }
    let file = hdf5::File::open_rw(&theirs).unwrap();
    file.new_attr::<f64>().create("note").unwrap().write_scalar(&0.5).unwrap();
    drop(file);
    sweep().refused(&["consensus-k0002.h5", "added to it"]);
}

#[test]
fn factors_of_a_sweep_have_the_names_of_the_matrix() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let row = |i: usize| (0..6).map(|j| format!(",{}", (i * 7 + j * j * 3) % 11)).collect::<String>();
    let (mut same, mut turned) = ("g,a,b,c,d,e,f\n".to_string(), String::new());
    for i in 0..12 {
        same += &format!("r{i}{}\n", row(i));
        turned = format!("r{i}{}\n{turned}", row(i));
    }
    std::fs::write(at("same.csv"), same).unwrap();
    std::fs::write(at("turned.csv"), format!("g,a,b,c,d,e,f\n{turned}")).unwrap();
    let sweep = fednmf(2, "sweep --k 2..3 --runs 2 --max-iters 20 --quiet --input").arg(at("same.csv"));
    let done = sweep.arg("--output").arg(at("sweep")).run();
    assert_eq!(done.code, Some(0), "{done:?}");
    let one = at("sweep").join("k0002-run000.h5");
    let evaluated = |input: &str| fednmf(0, "evaluate --json").arg(&one).arg("--input").arg(at(input)).run();
    let (first, second) = (evaluated("same.csv"), evaluated("turned.csv"));
    let error = |done: &crate::common::Output| {
        let all: serde_json::Value = serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {done:?}"));
        all["rel_error"].as_f64().unwrap()
    };
    assert!((error(&first) - error(&second)).abs() < 1e-12, "{first:?} {second:?}");
    // Runs of the old names and a consensus of new ones would be one sweep of two tables.
    let renamed = std::fs::read_to_string(at("same.csv")).unwrap().replace("r3,", "r99,");
    std::fs::write(at("same.csv"), renamed).unwrap();
    let again = fednmf(2, "sweep --k 2..3 --runs 2 --max-iters 20 --quiet --input").arg(at("same.csv"));
    again.arg("--output").arg(at("sweep")).refused(&["another sweep", "other names of rows"]);
    // Without names on one side nothing can be matched, and a message says so.
    let text = std::fs::read_to_string(at("same.csv")).unwrap();
    let bare: String = text.lines().skip(1).map(|line| format!("{}\n", line.split_once(',').unwrap().1)).collect();
    std::fs::write(at("bare.csv"), bare).unwrap();
    assert!(evaluated("bare.csv").stderr.contains("matched by position"));
    assert!(!first.stderr.contains("matched by position"));
}

/// The header and the bytes of an array in an archive of NumPy.
fn array(archive: &Path, name: &str) -> (String, Vec<u8>) {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(archive).unwrap()).unwrap();
    let mut bytes = Vec::new();
    zip.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes[..7], *b"\x93NUMPY\x01");
    let begin = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8(bytes[10..begin].to_vec()).unwrap(), bytes[begin..].to_vec())
}

#[test]
fn runs_are_written_as_spectra_for_cnmf() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let row = |i: usize| (0..4).map(|j| format!(",{}", (i * 7 + j * j * 3) % 11)).collect::<String>();
    let rows: String = (0..9).map(|i| format!("cell{i}{}\n", row(i))).collect();
    std::fs::write(at("cells.csv"), format!("cell,A,B,Cäx,D\n{rows}")).unwrap();
    let sweep = |ranks: usize, runs: usize| {
        let line = format!("sweep --k 2..3 --runs {runs} --holdout 0 --max-iters 20 --quiet --input");
        fednmf(ranks, &line).arg(at("cells.csv")).arg("--output").arg(at("sweep")).arg("--cnmf").arg(at("pbmc"))
    };
    sweep(2, 1).refused(&["--cnmf", "cnmf prepare"]);
    std::fs::create_dir_all(at("pbmc/cnmf_tmp")).unwrap();
    // With a run of an earlier job.
    for (ranks, runs) in [(1, 1), (2, 2)] {
        let done = sweep(ranks, runs).run();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    for (k, run) in [(2, 0), (2, 1), (3, 0), (3, 1)] {
        let v = matrix(&at("sweep").join(format!("k{k:04}-run{run:03}.h5")), "V");
        let file = at("pbmc/cnmf_tmp").join(format!("pbmc.spectra.k_{k}.iter_{run}.df.npz"));
        let (header, data) = array(&file, "data");
        assert!(header.contains("'<f8'") && header.contains(&format!("({k},4,)")), "{header}");
        let data: Vec<f64> = data.chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect();
        assert_eq!(data, v.t().iter().copied().collect::<Vec<_>>(), "components x genes");
        let (header, index) = array(&file, "index");
        assert!(header.contains("'<i8'") && header.contains(&format!("({k},)")), "{header}");
        let index: Vec<i64> = index.chunks_exact(8).map(|x| i64::from_le_bytes(x.try_into().unwrap())).collect();
        assert_eq!(index, (1..=k).collect::<Vec<i64>>());
        let (header, genes) = array(&file, "columns");
        assert!(header.contains("'<U3'") && header.contains("(4,)"), "{header}");
        let character = |x: &[u8]| char::from_u32(u32::from_le_bytes(x.try_into().unwrap())).unwrap();
        assert_eq!(genes.chunks_exact(4).map(character).collect::<String>(), "A\0\0B\0\0CäxD\0\0");
    }
    // Fewer runs would leave some of the earlier ones, which cNMF would combine with them.
    sweep(1, 1).refused(&["iter_1", "--runs"]);
    // Other genes than those that were prepared, and cells in their place.
    let prepared = |genes: &[&str]| {
        let path = at("pbmc/cnmf_tmp/pbmc.norm_counts.h5ad");
        let file = hdf5::File::create(path).unwrap();
        let text = |s: &str| s.parse::<hdf5::types::VarLenUnicode>().unwrap();
        let attribute = |of: &hdf5::Location, name: &str, value: &str| {
            of.new_attr::<hdf5::types::VarLenUnicode>().create(name).unwrap().write_scalar(&text(value)).unwrap();
        };
        attribute(&file, "encoding-type", "anndata");
        for (frame, names) in [("obs", &["c0"][..]), ("var", genes)] {
            let group = file.create_group(frame).unwrap();
            attribute(&group, "_index", "_index");
            let names: Vec<hdf5::types::VarLenUnicode> = names.iter().map(|name| text(name)).collect();
            group.new_dataset_builder().with_data(&names).create("_index").unwrap();
        }
    };
    prepared(&["A", "B", "Cäx", "D"]);
    assert_eq!(sweep(1, 2).run().code, Some(0));
    prepared(&["A", "Cäx", "B", "D"]);
    sweep(1, 2).refused(&["norm_counts.h5ad", "the gene Cäx where the matrix has B"]);
    prepared(&["A", "B", "D"]);
    sweep(1, 2).refused(&["norm_counts.h5ad", "3 genes"]);
    std::fs::remove_file(at("pbmc/cnmf_tmp/pbmc.norm_counts.h5ad")).unwrap();
    // What cNMF itself wrote stays.
    let theirs = at("pbmc/cnmf_tmp/pbmc.spectra.k_2.iter_1.df.npz");
    std::fs::write(&theirs, "theirs").unwrap();
    sweep(1, 2).refused(&["pbmc.spectra.k_2.iter_1.df.npz", "not replaced"]);
    assert_eq!(std::fs::read(&theirs).unwrap(), b"theirs");
}

/// A signal ends the run that it meets; finished runs are kept, and the same command does the others.
#[test]
fn programmes_replace_no_file_of_cnmf() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let row = |i: usize| (0..20).map(|j| format!(",{}", 1 + (i * 7 + j * j * 3 + i * j) % 11)).collect::<String>();
    let rows: String = (0..60).map(|i| format!("c{i}{}\n", row(i))).collect();
    let genes: String = (0..20).map(|j| format!(",g{j}")).collect();
    std::fs::write(at("c.csv"), format!("cell{genes}\n{rows}")).unwrap();
    std::fs::create_dir_all(at("pe/cnmf_tmp")).unwrap();
    let done = |line: String| {
        let done = fednmf(0, &line).run();
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
    };
    let norm = at("norm.h5ad");
    done(format!("prepare counts {} --keep-counts --variable-columns 15 --unit-variance --output {norm}", at("c.csv")));
    done(format!("prepare counts {} --row-total 1e6 --output {}", at("c.csv"), at("pe/cnmf_tmp/pe.tpm.h5ad")));
    let sweep = format!("sweep --k 2 --runs 4 --holdout 0 --quiet --density-threshold 2 --input {norm} --output");
    let line = format!("{sweep} {} --cnmf {}", at("sweep"), at("pe"));
    // Its own files are written again.
    done(line.clone());
    done(line.clone());
    let programs = (0..4).map(|run| at(&format!("sweep/k0002-run{run:03}.h5"))).collect::<Vec<_>>().join(" ");
    let programs = format!(
        "programs {programs} --density-threshold 2 --input {norm} --tpm {} --cnmf {}",
        at("pe/cnmf_tmp/pe.tpm.h5ad"),
        at("pe")
    );
    for (theirs, archive) in [
        ("pe.usages.k_2.dt_2_0.consensus.txt", Some("pe.usages.k_2.dt_2_0.consensus.df.npz")),
        ("pe.k_selection_stats.df.npz", None),
        ("cnmf_tmp/pe.spectra.k_2.merged.df.npz", None),
    ] {
        let path = at(&format!("pe/{theirs}"));
        let before = std::fs::read(&path).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        if let Some(archive) = archive {
            std::fs::remove_file(at(&format!("pe/cnmf_tmp/{archive}"))).unwrap();
        }
        for line in [&line, &programs] {
            fednmf(0, line).refused(&[theirs, "not replaced"]);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        if archive.is_some() {
            std::fs::remove_file(&path).unwrap();
        } else {
            std::fs::write(&path, before).unwrap();
        }
    }
}

#[test]
fn a_stopped_sweep_says_what_is_kept() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    let line = "sweep --k 2..4 --runs 2 --holdout 0 --tol 0 --algo hals --input synthetic:planted,m=300,n=200,k=3";
    let sweep = |iterations: &str| fednmf(0, line).arg("--max-iters").arg(iterations).arg("--output").arg(&out);
    let child = sweep("100000000").spawn();
    // Signals are caught before the directory is made.
    while !out.exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    signal("TERM", &[child.id()]);
    let stopped = finish(child, std::time::Duration::from_secs(30), "a sweep that got a signal");
    assert_eq!(stopped.code, Some(75), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("stopped by SIGTERM: 0 of 6 runs are kept"), "{}", stopped.stderr);

    // A damaged file is named, with what to do.
    assert_eq!(sweep("5").run().code, Some(0));
    let file = out.join("k0003-run001.h5");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(7);
    std::fs::write(&file, bytes).unwrap();
    sweep("5").refused(&["k0003-run001.h5", "remove this file"]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(sweep("5").run().code, Some(0));
}

/// A small table of counts with four components, as a sparse and as a dense file.
fn counts(dir: &Path) -> (Array2<f64>, [String; 2]) {
    let mut cursor = Stream::new(2, Purpose::Probe, 0).at(0);
    let mean = |i: usize, j: usize| if i % 4 == j % 4 { 9.0 } else { 0.4 };
    let x = Array2::from_shape_fn((60, 40), |(i, j)| cursor.poisson(mean(i, j)));
    let [sparse, dense] = ["counts.mtx", "counts.npy"].map(|name| dir.join(name));
    save_npy(&dense, &x);
    let entries: Vec<String> =
        x.indexed_iter().filter(|(_, x)| **x > 0.0).map(|((i, j), x)| format!("{} {} {x}\n", i + 1, j + 1)).collect();
    let head = format!("%%MatrixMarket matrix coordinate real general\n60 40 {}\n", entries.len());
    std::fs::write(&sparse, head + &entries.concat()).unwrap();
    (x, [sparse, dense].map(|path| path.display().to_string()))
}

/// Each run has another copy, which is the same on any number of ranks and in any form; the errors are those on the counts.
#[test]
fn resampled_runs_do_not_depend_on_ranks_or_form() {
    let dir = tempdir().unwrap();
    let (x, [sparse, dense]) = counts(dir.path());
    for (how, words) in [
        ("poisson", "--holdout 0"),
        ("multinomial", "--holdout 0"),
        ("multinomial", "--algo online --holdout 0"),
        ("poisson", "--algo kl-online"),
        ("multinomial", "--holdout 0.1"),
        ("poisson", "--loss kl"),
        ("multinomial", "--loss kl --holdout 0.1"),
    ] {
        let v = |ranks: usize, words: &str, input: &str, run: usize| {
            let out = dir.path().join("sweep");
            let _ = std::fs::remove_dir_all(&out);
            let line = format!("sweep --k 3 --runs 2 --max-iters 30 --tol 0 --quiet --json {words} --input {input}");
            let done = fednmf(ranks, &line).arg("--output").arg(&out).run();
            assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
            let file = out.join(format!("k0003-run00{run}.h5"));
            let stored = |name| hdf5::File::open(&file).unwrap().attr(name).unwrap().read_scalar::<f64>().unwrap();
            (matrix(&file, "U"), matrix(&file, "V"), stored("rmse"), stored("iterations"))
        };
        let words = format!("{words} --resample {how}");
        let (u, one, rmse, _) = v(1, &words, &sparse, 1);
        // Held-out entries of a dense matrix are drawn in another way.
        let forms = if words.contains("0.1") { vec![&sparse] } else { vec![&sparse, &dense] };
        for (ranks, input) in (2..=4).flat_map(|ranks| forms.iter().map(move |input| (ranks, *input))) {
            let (_, other, error, _) = v(ranks, &format!("{words} --groups 1"), input, 1);
            let off = (&other - &one).iter().fold(0.0, |most: f64, e| most.max(e.abs()));
            assert!(off < 1e-7 && (error / rmse - 1.0).abs() < 1e-7, "{words} {ranks} {input}: {off}");
        }
        let (_, other, ..) = v(2, &words, &sparse, 0);
        assert!((&other - &one).iter().any(|e| e.abs() > 1e-3), "{words}: another seed has another copy");
        if words.contains("--holdout 0 ") {
            let error = (&x - &u.dot(&one.t())).mapv(|e| e * e).mean().unwrap().sqrt();
            assert!((error / rmse - 1.0).abs() < 1e-9, "{how}: {error} {rmse}");
            let (_, plain, least, _) = v(1, "--holdout 0", &sparse, 1);
            assert!(least < rmse && (&plain - &one).iter().any(|e| e.abs() > 1e-3), "{least} {rmse}");
        }
    }
}

/// `evaluate` finds the errors of a run with held-out entries from the counts themselves, so the run held the same entries out.
#[test]
fn resampled_runs_keep_held_out_entries_and_resume() {
    let dir = tempdir().unwrap();
    let (_, [sparse, dense]) = counts(dir.path());
    for (input, loss) in [(&sparse, "frobenius"), (&dense, "frobenius"), (&sparse, "kl")] {
        let out = dir.path().join("sweep");
        let _ = std::fs::remove_dir_all(&out);
        let line = format!("sweep --k 2,3 --runs 2 --holdout 0.1 --resample multinomial --loss {loss} --input {input}");
        let run = |more: &str| fednmf(2, &format!("{line} {more} --quiet --json --output")).arg(&out).run();
        let done = run("");
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let file = out.join("k0003-run001.h5");
        let stored = |name: &str| hdf5::File::open(&file).unwrap().attr(name).unwrap().read_scalar::<f64>().unwrap();
        let evaluated = fednmf(0, "evaluate --json").arg(&file).arg("--input").arg(input).run();
        let evaluated: Value =
            serde_json::from_str(&evaluated.stdout).unwrap_or_else(|e| panic!("{e}: {}", evaluated.stderr));
        let told = evaluated["heldout_rmse"].as_f64().unwrap();
        assert!((told / stored("heldout_rmse") - 1.0).abs() < if loss == "kl" { 1e-2 } else { 1e-6 }, "{evaluated}");
        // A missing run is repeated with the same result.
        let before = (matrix(&file, "V"), stored("heldout_rmse"));
        std::fs::remove_file(&file).unwrap();
        let again = run("--groups 1");
        assert_eq!(again.code, Some(0), "{}", again.stderr);
        assert!((matrix(&file, "V") - before.0).iter().all(|e| e.abs() < 1e-9));
        assert!((stored("heldout_rmse") / before.1 - 1.0).abs() < 1e-9);
        let found: Value = serde_json::from_str(&again.stdout).unwrap();
        assert_eq!(found["resample"], "multinomial");
        for other in ["--resample poisson", ""] {
            let line = line.replace("--resample multinomial", other);
            fednmf(2, &line).arg("--output").arg(&out).refused(&["another sweep", "resample"]);
        }
    }
}

#[test]
fn what_cannot_be_resampled_is_refused() {
    let dir = tempdir().unwrap();
    let (_, [sparse, _]) = counts(dir.path());
    let none = dir.path().join("none").display().to_string();
    for (words, why) in [
        (format!("--input {BLOCKS}"), &["--resample", "only counts", "row 0, column 0 is not a whole number"][..]),
        (format!("--input {sparse} --scale max"), &["--resample", "--scale"]),
        (format!("--input {sparse} --binarize 1"), &["--resample", "--binarize"]),
        (format!("--input {sparse} --missing zero-unobserved"), &["--resample", "zero-unobserved"]),
        (format!("--input {sparse} --loss is"), &["zero"]),
    ] {
        let line = format!("sweep --k 2 --runs 2 --resample poisson {words} --output {none}");
        fednmf(2, &line).refused(why);
        assert!(!Path::new(&none).exists());
    }
    fednmf(0, &format!("sweep --k 2 --resample bootstrap --input {sparse} --output {none}")).refused(&["multinomial"]);
}

/// Signatures of 96 types, and the mutations of samples, most of which have some of them.
fn planted_signatures() -> (Array2<f64>, Array2<f64>) {
    let (types, samples, k) = (96, 150, 4);
    let stream = Stream::new(3, Purpose::Probe, 0);
    let mut cursor = stream.at(0);
    // Sharp signatures in a few types, over a flat part.
    let signatures = Array2::from_shape_fn((types, k), |(j, l)| {
        let peak = if j % 7 == l { 3.0 } else { 0.0 };
        0.05 + (3.0 * cursor.normal() - 3.0 + peak).exp().min(20.0)
    });
    let signatures = &signatures / &signatures.sum_axis(ndarray::Axis(0));
    let exposures =
        Array2::from_shape_fn(
            (samples, k),
            |_| {
                if cursor.uniform() < 0.6 { (6.0 + cursor.normal()).exp() } else { 20.0 }
            },
        );
    let counts = exposures.dot(&signatures.t()).mapv(|mean| cursor.poisson(mean));
    (signatures, counts)
}

/// The least cosine of a signature with the most similar component.
fn least_cosine(signatures: &Array2<f64>, v: &Array2<f64>) -> f64 {
    let of = |planted: ndarray::ArrayView1<'_, f64>| {
        let cosine = |v: ndarray::ArrayView1<'_, f64>| v.dot(&planted) / (planted.dot(&planted) * v.dot(&v)).sqrt();
        v.columns().into_iter().map(cosine).fold(0.0, f64::max)
    };
    signatures.columns().into_iter().map(of).fold(1.0, f64::min)
}

#[test]
fn planted_signatures_are_found_from_resampled_counts() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("sweep");
    let (signatures, counts) = planted_signatures();
    let table: String = counts
        .rows()
        .into_iter()
        .map(|row| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n")
        .collect();
    std::fs::write(dir.path().join("counts.csv"), table).unwrap();
    let line = "sweep --k 2..6 --runs 6 --loss kl --resample poisson --max-iters 300 --json --quiet --input";
    let done = fednmf(2, line).arg(dir.path().join("counts.csv")).arg("--output").arg(&out).run();
    let found: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stderr));
    assert_eq!(found["recommended"], 4, "{found:#}");
    let least = least_cosine(&signatures, &matrix(&out.join("consensus-k0004.h5"), "V"));
    assert!(least > 0.95, "{least}");
}

/// A table as SigProfiler writes it (types in rows, samples in columns) leads to the planted signatures by its rule, on any number of
/// ranks, and the names of types and samples stay, also in a fit of samples whose types have another order.
#[test]
fn tables_of_sigprofiler_keep_their_names_and_have_its_rule() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (signatures, counts) = planted_signatures();
    let (changes, letters) = (["C>A", "C>G", "C>T", "T>A", "T>C", "T>G"], ["A", "C", "G", "T"]);
    let name = |j: usize| format!("{}[{}]{}", letters[j / 4 % 4], changes[j / 16], letters[j % 4]);
    let types: Vec<String> = (0..96).map(name).collect();
    let samples: Vec<String> = (0..counts.nrows()).map(|i| format!("Sample{i}")).collect();
    let table = |order: &mut dyn Iterator<Item = usize>| {
        let line = |j: usize| -> String { counts.column(j).iter().map(|count| format!("\t{count}")).collect() };
        let head = format!("MutationType\t{}\n", samples.join("\t"));
        head + &order.map(|j| format!("{}{}\n", types[j], line(j))).collect::<String>()
    };
    std::fs::write(at("samples.txt"), table(&mut (0..96))).unwrap();
    std::fs::write(at("turned.txt"), table(&mut (0..96).rev())).unwrap();
    let swept = |ranks: usize, words: &str| -> Value {
        let out = at(&format!("sweep-{ranks}"));
        let line = format!(
            "sweep --k 1..6 --runs 4 --loss kl --resample multinomial --criterion sigprofiler --max-iters 300 --transpose {words} \
             --json --quiet --input"
        );
        let done = fednmf(ranks, &line).arg(at("samples.txt")).arg("--output").arg(out).run();
        serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stderr))
    };
    let found = swept(0, "");
    assert_eq!((&found["recommended"], &found["criterion"]), (&4.into(), &"sigprofiler".into()), "{found:#}");
    let consensus = at("sweep-0").join("consensus-k0004.h5");
    let v = matrix(&consensus, "V");
    assert!(least_cosine(&signatures, &v) > 0.95);
    // The errors of the samples are those of nonnegative least squares.
    let mut errors = fednmf_audit::membership::misfits(&counts.view(), &v.view());
    errors.sort_by(f64::total_cmp);
    let median = f64::midpoint(errors[counts.nrows() / 2 - 1], errors[counts.nrows() / 2]);
    let reasons = found["reasons"].as_array().unwrap();
    assert!(
        reasons[0].as_str().unwrap().contains(&format!("error of {:.2} %", 100.0 * median)),
        "{median} {reasons:?}"
    );
    if cfg!(feature = "mpi") {
        assert_eq!(swept(2, "--groups 1")["reasons"], found["reasons"]);
        assert_eq!(swept(3, "")["reasons"], found["reasons"]);
    }

    let names = |file: &Path| {
        let attributes = Stored::open(file).unwrap().names();
        (attributes.rows.unwrap(), attributes.columns.unwrap())
    };
    let turned: Vec<String> = types.iter().rev().cloned().collect();
    assert_eq!(names(&consensus), (samples.clone(), types.clone()));
    let projected = |input: &str| {
        let project =
            fednmf(0, "project --min-gain 0.01 --transpose --quiet").arg(&consensus).arg("--input").arg(at(input));
        assert_eq!(project.arg("--output").arg(at("u.h5")).run().code, Some(0));
        (matrix(&at("u.h5"), "U"), names(&at("u.h5")))
    };
    let ((same, of_same), (other, of_other)) = (projected("samples.txt"), projected("turned.txt"));
    assert_eq!((of_same, of_other), ((samples.clone(), types), (samples, turned)));
    assert!((&same - &other).iter().all(|e| e.abs() < 1e-6 * same.sum()));
}

#[test]
fn the_criterion_is_for_counts_without_missing_entries() {
    let dir = tempdir().unwrap();
    let none = dir.path().join("none");
    for (words, named) in [
        ("sigprofiler", &["--criterion sigprofiler", "--loss kl"][..]),
        ("sigprofiler --loss kl --missing nan", &["--criterion sigprofiler", "--missing"]),
        ("elbow --loss kl", &["sigprofiler"]),
    ] {
        let line = format!("sweep --k 2..3 --runs 2 --input {BLOCKS} --criterion {words} --output");
        fednmf(0, &line).arg(&none).refused(named);
        assert!(!none.exists());
    }
}
