//! The experience of a new user: the leading measure, warnings, and messages about wrong options.

use tempfile::tempdir;

use crate::common::{data, events, fednmf, number};

/// Values of a measure at the evaluations of a trace.
fn trajectory(trace: &std::path::Path, measure: &str) -> Vec<f64> {
    events(trace).iter().filter(|e| e["event"] == "iter").map(|e| e[measure].as_f64().unwrap()).collect()
}

#[test]
fn the_tolerance_watches_what_the_method_minimises() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    for (algo, measure, loss) in [
        (
            "kl-mu --input synthetic:sparse,m=60,n=40,density=0.3,values=counts",
            "kl_divergence",
            (|x| x) as fn(f64) -> f64,
        ),
        ("felb --input synthetic:tiles,m=60,n=40,k=4,noise=0.02", "f1", |f1| 1.0 - f1),
    ] {
        let line = format!("--algo {algo} -k 4 --max-iters 400 --eval-every 5 --tol 1e-3 --trace");
        let end = fednmf(0, &line).arg(&trace).ok();
        let loss: Vec<f64> = trajectory(&trace, measure).into_iter().map(loss).collect();
        // A divergence may begin far above the others, so it is compared with its last value.
        let size = |i: usize| if measure == "f1" { loss[0] } else { loss[i - 1] };
        let falls = |i: usize| loss[i - 1] - loss[i] >= 1e-3 * size(i);
        let last = loss.len() - 1;
        assert_eq!(end["stopped_by"], "tol", "{algo}: {end}");
        assert!(!falls(last) && (1..last).all(falls), "{algo}: {loss:?}");
    }
}

#[test]
fn held_out_ratings_lead_and_warn_when_they_rise() {
    let dir = tempdir().unwrap();
    let ratings = dir.path().join("ratings.csv");
    // No structure at all: a closer fit of the observed ratings fits noise.
    let noise = |i: u64| {
        let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
    };
    let line = |i: u64| {
        format!("u{},i{},{}\n", noise(i) % 31, noise(i + 1000) % 21, 0.001 * (1 + noise(i + 2000) % 999) as f64)
    };
    std::fs::write(&ratings, (0..300).map(line).collect::<String>()).unwrap();
    let run = "--format triples --repeated mean --missing zero-unobserved --holdout 0.1 -k 8 --max-iters 300 --input";
    let done = fednmf(0, run).arg(&ratings).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("held-out RMSE rose"), "{}", done.stderr);
    let place = |word: &str| done.stdout.find(word).unwrap_or_else(|| panic!("{word}: {}", done.stdout));
    assert!(place("held-out RMSE") < place("relative error"));
}

#[test]
fn noise_leaves_factors_that_fit_the_released_ones() {
    let run = |epsilon: f64| {
        let line = format!(
            "--algo fnmf --parties 3 --dp gaussian --epsilon {epsilon} -k 4 --max-iters 3 --eval-every 3 --quiet --input"
        );
        fednmf(0, &line).arg(data("digits.npy")).run()
    };
    // The factor of zeros has an error of 1.
    let good = run(8.0);
    let error = good.stdout.split("relative error ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(error.parse::<f64>().unwrap() < 1.0, "{}", good.stdout);
    // Three parties with 256 numbers each cannot hide in so much noise, and the run says so.
    assert!(good.stderr.contains("mostly noise"), "{}", good.stderr);
    assert!(!run(1e6).stderr.contains("mostly noise"));
    // Warnings of privacy are not silenced.
    assert!(good.stderr.contains("without --eval-every it has one"), "{}", good.stderr);
}

#[test]
fn what_does_not_fit_into_memory_is_refused_before_it_is_read() {
    let line = "--input synthetic:planted,m=200000,n=200000 -k 5 --memory";
    for ranks in [0, 2] {
        fednmf(ranks, &format!("{line} 4G")).refused(&["596.", "4.0 GiB", "--memory"]);
    }
    fednmf(0, &format!("{line} 4Q")).refused(&["--memory 4Q", "4G"]);
    let dir = tempdir().unwrap();
    let output = dir.path().join("m.npy");
    let done = fednmf(0, "generate planted,m=1000000,n=1000000000 --output").arg(&output).run();
    assert!(done.code == Some(2) && done.stderr.contains("memory") && !output.exists(), "{}", done.stderr);
}

#[test]
fn phases_are_shown_on_request_and_party_bytes_always() {
    let line = "--algo syn-sd --parties 4 -k 2 --max-iters 2 --quiet --input synthetic:planted,m=30,n=20";
    let short = fednmf(0, line).run().stdout;
    assert!(!short.contains("seconds max") && short.contains("KiB exchanged"), "{short}");
    assert!(fednmf(0, &format!("{line} --verbose")).run().stdout.contains("seconds max"));
}

#[test]
fn options_of_other_programs_are_explained() {
    for (typed, meant) in [
        ("--rank 5", "-k"),
        ("--n-iter 5", "--max-iters"),
        ("--np 4", "mpirun -n"),
        ("--random-state 1", "--seed"),
        ("-k -3", "at least 1"),
        ("--clients 3", "--parties"),
        ("--init compress", "did you mean compressed?"),
        ("--init svd", "did you mean nndsvd?"),
        ("--algo hals --missing NA", "did you mean nan?"),
        ("--init nothing", "auto, random, sampled, nndsvd, nndsvda, nndsvdar or compressed"),
    ] {
        fednmf(0, typed).refused(&[meant]);
    }
    let k = |option: &str| number(&fednmf(0, &format!("--algo hals {option} 3 --max-iters 1")).ok(), "k");
    for option in ["-k", "--k", "--components", "--n-components"] {
        assert_eq!(k(option), 3.0, "{option}");
    }
    let dir = tempdir().unwrap();
    let output = dir.path().join("o.h5");
    fednmf(0, "-k 2 --max-iters 1 -i").arg(data("digits.npy")).arg("-o").arg(&output).ok();
    assert!(output.exists());
    let layer = format!("{}:layers/counts", data("formats/counts.h5ad").display());
    let wrong = fednmf(0, "inspect").arg(&layer).run();
    assert!(wrong.code == Some(0) || wrong.stderr.contains("layers/counts"), "{}", wrong.stderr);
}

#[test]
fn a_masked_sum_of_fnmf_needs_no_further_options() {
    let run = fednmf(2, "--algo fnmf --parties 3 --secure-sum -k 3 --max-iters 3 --input").arg(data("digits.npy"));
    let params = run.ok()["params"].clone();
    assert_eq!((params["barycenter"].as_str(), params["start"].as_str()), (Some("mean"), Some("shared")));
    let two =
        fednmf(2, "--algo fnmf --parties 2 --secure-sum -k 3 --max-iters 1 --quiet --input").arg(data("digits.npy"));
    assert!(two.run().stderr.contains("each can subtract its own term"));
}

#[test]
fn a_directory_of_10x_is_a_matrix_with_names() {
    use std::io::Write as _;
    let dir = tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        flate2::write::GzEncoder::new(file, flate2::Compression::fast()).write_all(text.as_bytes()).unwrap();
    };
    write(
        "matrix.mtx.gz",
        "%%MatrixMarket matrix coordinate integer general\n3 4 5\n1 1 2\n2 2 1\n3 3 4\n1 4 1\n2 1 3\n",
    );
    write("features.tsv.gz", "E1\tActin\tGene\nE2\tMyosin\tGene\nE3\tTitin\tGene\n");
    write("barcodes.tsv.gz", "AA\nCC\nGG\nTT\n");
    let output = dir.path().join("o.h5ad");
    fednmf(0, "--transpose -k 2 --max-iters 2 --input").arg(dir.path()).arg("--output").arg(&output).ok();
    let file = hdf5::File::open(&output).unwrap();
    let index = |frame: &str| {
        let names = file.dataset(&format!("{frame}/_index")).unwrap().read_raw::<hdf5::types::VarLenUnicode>().unwrap();
        names.iter().map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        (index("obs"), index("var")),
        (
            vec!["AA".into(), "CC".into(), "GG".into(), "TT".into()],
            vec!["Actin".into(), "Myosin".into(), "Titin".into()]
        )
    );
}

#[test]
fn files_of_the_wrong_kind_are_named_as_what_they_are() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let digits = data("digits.npy");
    std::fs::write(at("notes.h5"), "what I found out this year").unwrap();
    fednmf(0, "-k 2 --max-iters 1 --input").arg(&digits).arg("--output").arg(at("f.h5")).ok();
    std::fs::copy(at("f.h5"), at("f.npz")).unwrap();
    for (factors, kind) in
        [(digits.clone(), "a NumPy array"), (at("notes.h5"), "is text"), (at("f.npz"), "an HDF5 file")]
    {
        let done = fednmf(0, "evaluate").arg(&factors).arg("--input").arg(&digits).run();
        assert!(
            done.code == Some(2) && done.stderr.contains(kind) && !done.stderr.contains("damaged"),
            "{}",
            done.stderr
        );
    }
    std::fs::create_dir(at("d")).unwrap();
    for directory in [at("d"), at("d/"), at("new/")] {
        fednmf(0, "-k 2 --input").arg(&digits).arg("--output").arg(&directory).refused(&[
            "--output",
            "is a directory",
            "a file",
        ]);
    }
    fednmf(0, "-k 2 --input").arg(&digits).arg("--report").arg(at("r.pdf")).refused(&["--report", ".html"]);
    let absent =
        fednmf(0, "-k 2 --max-iters 1 --input").arg(data("formats/counts.h5ad")).arg("--add-to").arg(at("no.h5ad"));
    let done = absent.run();
    assert!(done.stderr.contains("there is no such file") && !done.stderr.contains("H5F"), "{}", done.stderr);
}

#[test]
fn options_say_what_they_need() {
    for (line, words) in [
        ("--secure-sum", &["--algo", "fnmf", "secure-hals"][..]),
        ("--dp gaussian --epsilon 1", &["--algo", "fnmf", "one domain of trust"]),
        ("--algo syn-sd --parties 3 --dp gaussian --epsilon 1 --input synthetic:planted,m=30,n=20", &["--clip 0."]),
        ("--seed abc", &["--seed abc: must be a whole number"]),
        ("--seed -1", &["--seed -1: must be a whole number"]),
        ("sweep -k 2 -i x.npy -o d --seed -1", &["--seed -1: must be a whole number"]),
        ("--max-iters 3.5", &["--max-iters 3.5: must be a whole number as in"]),
        ("--eval-every x", &["--eval-every x: must be a whole number"]),
        ("--algo felb --parties 2 --max-iters 1 -k 2.5", &["--components 2.5: must be a whole number"]),
        ("sweep -k 2 -i x.npy -o d --runs 2.5", &["--runs 2.5: must be a whole number"]),
        ("prepare one-hot x.csv -o o.csv --bins 2.5", &["--bins 2.5: must be a whole number from 2 to 1000"]),
        ("account --noise x", &["--noise x: must be a number"]),
        ("--tol x", &["--tol x: must be a number"]),
    ] {
        fednmf(0, line).own_process().refused(words);
    }
    let counted = fednmf(0, "--max-iters 2e0 --eval-every 1_0 --input synthetic:planted,m=20,n=10,k=2 -k 2e0").ok();
    assert_eq!((counted["iter"].as_u64(), counted["k"].as_u64()), (Some(2), Some(2)), "{counted}");
    let help = fednmf(0, "generate --help").run().stdout;
    assert!(help.contains(".npz") && help.contains("-o, --output"), "{help}");
}

#[test]
fn nan_that_does_not_occur_is_told() {
    let run = |ranks: usize, name: &str| {
        fednmf(ranks, "-k 2 --max-iters 1 --missing nan --quiet --input").arg(data(name)).run().stderr
    };
    assert!(run(2, "formats/counts.mtx").contains("no entry is NaN, so none is missing; zeros count as observed"));
    assert!(run(0, "digits.npy").contains("no entry is NaN"));
}

#[test]
fn data_cannot_be_read_from_a_pipe() {
    let dir = tempdir().unwrap();
    let pipe = dir.path().join("pipe.csv");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fednmf(0, "-k 2 --input").arg(&pipe).own_process().refused(&["pipe.csv", "is a pipe", "give a file"]);
    fednmf(0, "-k 2 --input").arg("/dev/null").own_process().refused(&["/dev/null", "give a file"]);
}

#[test]
fn messages_of_the_system_have_no_codes() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("notes.txt"), "mine").unwrap();
    let sweep = fednmf(0, "sweep -k 2 --runs 1 --input synthetic:planted,m=20,n=10 --output");
    sweep.arg(at("notes.txt")).refused(&["notes.txt", "is a file", "directory"]);
    for command in [
        fednmf(0, "sweep -k 2 --runs 1 --input synthetic:planted,m=20,n=10 --output").arg(at("notes.txt").join("d")),
        fednmf(0, "-k 2 --max-iters 1 --input synthetic:planted,m=20,n=10 --output").arg(at("no/o.h5")),
        fednmf(0, "report").arg(at("none.jsonl")).arg("--output").arg(at("r.html")),
    ] {
        let done = command.run();
        assert!(done.code == Some(2) && !done.stderr.contains("os error"), "{done:?}");
    }
}

#[test]
fn the_next_command_of_a_sweep_reads_the_table_as_the_sweep_did() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let ratings: String = (0..60).map(|i| format!("{},{},{}\n", i % 12, i * 7 % 15, 1 + i % 5)).collect();
    std::fs::write(at("r.csv"), format!("2001,2002,2003\n{ratings}")).unwrap();
    let options = "--format triples --header yes --index-col no";
    for (i, holdout) in ["--holdout 0", "--holdout 0.1"].into_iter().enumerate() {
        let line = format!("sweep -k 1,2 --runs 2 --max-iters 10 {holdout} {options} --json -i");
        let swept = fednmf(0, &line).arg(at("r.csv")).arg("-o").arg(at(&format!("s{i}"))).run();
        assert_eq!(swept.code, Some(0), "{}", swept.stderr);
        let swept: serde_json::Value = serde_json::from_str(&swept.stdout).unwrap();
        let next = swept["next_command"].as_str().unwrap().strip_prefix("fednmf ").unwrap();
        let given = options.split(" --").all(|option| next.contains(option.trim_start_matches("--")));
        assert!(given, "{next}");
        let next = next.replace("--output factors", &format!("--output {}/factors", dir.path().display()));
        let run = fednmf(0, &next).run();
        assert_eq!(run.code, Some(0), "{next}: {}", run.stderr);
    }
}

#[test]
fn a_sweep_prepares_the_matrix_as_a_run_does() {
    let dir = tempdir().unwrap();
    let digits = data("digits.npy");
    for (i, (options, largest)) in
        [("--scale max", "divided by 16"), ("--binarize 8", "entries from 8 on")].into_iter().enumerate()
    {
        let results = dir.path().join(format!("s{i}"));
        let sweep = fednmf(2, &format!("sweep {options} -k 2 --runs 1 --max-iters 10 --json -i")).arg(&digits);
        let done = sweep.arg("-o").arg(&results).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let swept: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        assert!(swept["next_command"].as_str().unwrap().contains(options), "{swept}");
        for factors in ["k0002-run000.h5", "consensus-k0002.h5"] {
            let evaluated = fednmf(0, "evaluate").arg(results.join(factors)).arg("--input").arg(&digits).run();
            assert!(evaluated.stdout.contains(largest), "{factors}: {}", evaluated.stdout);
        }
        let other = fednmf(2, "sweep -k 2 --runs 1 --max-iters 10 -i").arg(&digits).arg("-o").arg(&results);
        assert!(other.run().stderr.contains("belongs to another sweep"));
    }
}

#[test]
fn each_command_has_a_man_page() {
    let dir = tempdir().unwrap();
    let made = fednmf(0, "man --output").arg(dir.path()).run();
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{}", made.stderr);
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let main = "fednmf\\-sweep(1)";
    assert!(text("fednmf.1").contains(main) && fednmf(0, "man").run().stdout.contains(main));
    assert!(
        text("fednmf-sweep.1").contains("Numbers of components") && dir.path().join("fednmf-audit-attack.1").exists()
    );
    fednmf(0, "man --output").arg(dir.path().join("none")).refused(&["--output", "cannot be written"]);
}

/// Names of a file cannot write over what a person reads, and reach a pipe as they are.
#[test]
fn control_characters_of_names_are_escaped_on_a_terminal() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("x.csv"), "id,a\u{1b}[2K,b\nr,1,2\ns\u{202e},3,1\nt,2,2\n").unwrap();
    let run = fednmf(0, "--algo hals -k 1 -q --input").arg(file("x.csv")).arg("--output").arg(file("f.h5"));
    assert_eq!(run.run().code, Some(0));
    for (command, raw, escaped) in [("top", "a\u{1b}[2K", "a\\u{1b}[2K"), ("clusters", "s\u{202e}", "s\\u{202e}")] {
        let line = format!("{} {command} {}", env!("CARGO_BIN_EXE_fednmf"), file("f.h5").display());
        let done = std::process::Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
        let shown = String::from_utf8(done.stdout).unwrap();
        assert!(shown.contains(escaped) && !shown.contains(raw), "{shown:?}");
        let piped = fednmf(0, command).arg(file("f.h5")).run().stdout;
        assert!(piped.contains(raw) && !piped.contains(escaped), "{piped:?}");
    }
}

#[test]
fn colours_are_there_when_asked_for() {
    let says = |line: &str, no_color: &str| fednmf(0, line).env("NO_COLOR", no_color).run().stderr;
    assert!(says("--color always --algo halz", "1").contains("\x1b[1;31merror:\x1b[0m"));
    assert!(!says("--algo halz", "").contains('\x1b') && !says("--color never --algo halz", "").contains('\x1b'));
    fednmf(0, "--color sometimes").refused(&["--color", "auto"]);
}

#[test]
fn a_sketch_that_cannot_determine_the_components_is_warned_of() {
    let told = |line: &str| fednmf(1, line).run().stderr;
    let input = "--max-iters 2 -k 10 --input synthetic:planted,m=60,n=50,k=3";
    let warned = told(&format!("--algo dsanls --sketch-size 5,20 {input}"));
    assert!(warned.contains("5 columns are sketched for the update of U, fewer than the 10 components"), "{warned}");
    assert!(!warned.contains("update of V"), "{warned}");
    // All columns are exact, however few they are.
    let exact = "--algo dsanls -k 10 --max-iters 2 --input synthetic:planted,m=60,n=8,k=3";
    assert!(!told(exact).contains("are sketched"), "{}", told(exact));
}
