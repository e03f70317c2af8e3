//! Results that are read again: factors in the files of the parties, entries that were held out, masks and starts whose
//! names are those of the matrix in another order.

use std::fs;
use std::path::Path;

use hdf5::types::VarLenUnicode;
use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::{Run, data, fednmf, matrix, npy, number, save_npy};

/// What a subcommand prints as JSON, on that many ranks.
fn summary(ranks: usize, line: &str) -> Value {
    let done = fednmf(ranks, line).run();
    assert_eq!(done.code, Some(0), "{line}\n{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{line}: {e}\n{}", done.stdout))
}

/// The names of the files in a directory, in order.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn private_factors_are_read_from_the_files_of_the_parties() {
    let dir = tempdir().unwrap();
    let digits = data("digits.npy");
    // U is private, with parts of different sizes; V is; U is, and Boolean; another format.
    for (i, (options, output)) in [
        ("--algo fnmf --skew 0.5", "a.h5"),
        ("--algo syn-sd", "b.h5"),
        ("--algo felb --binarize 8", "c.h5"),
        ("--algo dsanls-secure --accept-risk sketches --precision f32", "d.npz"),
    ]
    .into_iter()
    .enumerate()
    {
        let output = dir.path().join(output);
        let run = fednmf(2, &format!("{options} --parties 3 -k 3 --max-iters 5 --input")).arg(&digits);
        let run = run.arg("--output").arg(&output).ok();
        for ranks in [0, 2] {
            let line = format!("{} --json --input {}", output.display(), digits.display());
            let evaluated = summary(ranks, &format!("evaluate {line}"));
            for name in ["rel_error", "f1"].into_iter().filter(|name| !evaluated[*name].is_null()) {
                let (there, here) = (number(&run, name), number(&evaluated, name));
                assert!((there - here).abs() < 1e-6, "{options}: {name} {there} {here}");
            }
            if !options.contains("felb") {
                let projected = number(&summary(ranks, &format!("project {line}")), "rel_error");
                assert!(projected < number(&run, "rel_error") + 1e-6, "{options}: {projected}");
            }
        }
        if i == 1 {
            use std::os::unix::fs::PermissionsExt as _;
            let whole = dir.path().join("whole.h5");
            let project = fednmf(0, "project").arg(&output).arg("--input").arg(&digits).arg("--output").arg(&whole);
            let done = project.run();
            assert!(done.code == Some(0) && done.stderr.contains("V of all parties"), "{}", done.stderr);
            // As many columns as party 1 has.
            save_npy(
                &dir.path().join("own.npy"),
                &Array2::from_elem((4, matrix(&dir.path().join("b.party-01.h5"), "V").nrows()), 1.0),
            );
            let project = fednmf(0, "project").arg(dir.path().join("b.party-01.h5"));
            let done = project.arg("--input").arg(dir.path().join("own.npy")).arg("--output").arg(&whole).run();
            assert!(done.code == Some(0) && done.stderr.contains("V of party 1,"), "{}", done.stderr);
            let project = fednmf(0, "project").arg(&output).arg("--input").arg(&digits).arg("--output").arg(&whole);
            assert_eq!(project.run().code, Some(0));
            assert_eq!(matrix(&whole, "V").dim(), (64, 3));
            assert_eq!(fs::metadata(&whole).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    fs::write(dir.path().join("pairs.csv"), "row,column\n1,1\n").unwrap();
    // A party's own file lacks what all share.
    fs::create_dir(dir.path().join("alone")).unwrap();
    for (line, file, shared) in [
        ("clusters", "a.party-01.h5", "a.h5"),
        ("evaluate --input synthetic:planted,m=20,n=9", "a.party-02.h5", "a.h5"),
        ("predict", "b.party-00.h5", "b.h5"),
        ("predict", "d.party-01.npz", "d.npz"),
    ] {
        let alone = dir.path().join("alone").join(file);
        fs::copy(dir.path().join(file), &alone).unwrap();
        let mut run = fednmf(0, line).own_process().arg(alone);
        if line == "predict" {
            run = run.arg(dir.path().join("pairs.csv"));
        }
        run.refused(&[file, "its private factors", shared, "beside it"]);
    }
    fs::remove_file(dir.path().join("a.party-01.h5")).unwrap();
    let evaluated = fednmf(0, "evaluate").arg(dir.path().join("a.h5")).arg("--input").arg(&digits);
    evaluated.refused(&["a.h5", "party 1", "a.party-01.h5", "next to it"]);
}

#[test]
fn the_file_of_a_party_that_is_named_is_the_one_that_is_read() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    npy(dir.path(), "p0.npy", 0..30);
    let own = npy(dir.path(), "p1.npy", 30..80);
    let run = |k: usize| {
        let run = fednmf(0, &format!("--algo fnmf --parties 2 -k {k} --max-iters 2 --input"));
        run.arg(at("p{party}.npy")).arg("--output").arg(at("a.h5")).ok()
    };
    let evaluate = |name: &str, input: &Path| {
        fednmf(0, "evaluate").own_process().arg(at(name)).arg("--input").arg(input).arg("--json")
    };
    let k_of = |name: &str, input: &Path| {
        let done = evaluate(name, input).run();
        assert_eq!(done.code, Some(0), "{name}: {}", done.stderr);
        serde_json::from_str::<Value>(&done.stdout).unwrap()["k"].as_u64()
    };
    let parts = ["h5", "party-00.h5", "party-01.h5"];
    run(3);
    fs::copy(at("a.party-01.h5"), at("kept.party-01.h5")).unwrap();
    for part in parts {
        fs::rename(at(&format!("a.{part}")), at(&format!("b.{part}"))).unwrap();
    }
    // All of them renamed.
    assert_eq!(k_of("b.h5", &at("p{party}.npy")), Some(3));
    evaluate("kept.party-01.h5", &own).refused(&["kept.party-01.h5", "renamed", "a.h5"]);
    run(5);
    // Another run under the old name.
    for (name, input) in [("b.h5", &at("p{party}.npy")), ("b.party-01.h5", &own)] {
        assert_eq!(k_of(name, input), Some(3), "{name}");
    }
    let clusters = fednmf(0, "clusters --json").arg(at("b.party-01.h5")).run();
    assert!(clusters.code == Some(0) && !clusters.stdout.contains("\"3\""), "{}{}", clusters.stdout, clusters.stderr);
    // The file of a party is kept apart, and what it belongs to is gone.
    evaluate("kept.party-01.h5", &own).refused(&["kept.party-01.h5", "does not belong to", "a.h5"]);
    fs::rename(at("a.party-01.h5"), at("mine.h5")).unwrap();
    assert_eq!(k_of("mine.h5", &own), Some(5), "any name, beside the shared file under its own");
    evaluate("a.h5", &at("p{party}.npy")).refused(&["party 1", "a.party-01.h5", "next to it"]);
    fs::rename(at("b.party-01.h5"), at("c.party-01.h5")).unwrap();
    evaluate("b.h5", &at("p{party}.npy")).refused(&["party 1", "b.party-01.h5", "written as a.h5"]);
}

#[test]
fn files_of_parties_are_stacked_as_the_method_split_them() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // As many rows as columns, so that only the method shows which are stacked.
    for party in 0..2 {
        npy(dir.path(), &format!("p{party}.npy"), 64 * party..64 * (party + 1));
    }
    for (algo, shape) in [("syn-sd", [64, 128]), ("fnmf", [128, 64])] {
        let run = fednmf(2, &format!("--algo {algo} -k 3 --max-iters 5 --input")).arg(at("p{party}.npy"));
        let run = run.arg("--output").arg(at("o.h5")).ok();
        let input = at("p{party}.npy");
        let line = format!("evaluate {} --json --input {}", at("o.h5").display(), input.display());
        let evaluated = summary(0, &line);
        assert_eq!(["m", "n"].map(|name| evaluated[name].as_u64().unwrap()), shape, "{algo}");
        assert!((number(&run, "rel_error") - number(&evaluated, "rel_error")).abs() < 1e-9, "{algo}");
        let line = format!(
            "project {} --json --input {} --output {}",
            at("o.h5").display(),
            input.display(),
            at("p.h5").display()
        );
        let projected = number(&summary(0, &line), "rel_error");
        let line = format!("evaluate {} --json --input {}", at("p.h5").display(), input.display());
        assert!((number(&summary(0, &line), "rel_error") - projected).abs() < 1e-9, "{algo}");
    }
}

#[test]
fn files_of_parties_of_an_earlier_run_do_not_stay() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |algo: &str| {
        let run = fednmf(2, &format!("--algo {algo} -k 2 --max-iters 2 --input")).arg(data("digits.npy"));
        run.arg("--output").arg(at("o.h5"))
    };
    run("fnmf --parties 5").ok();
    // The owner of these may be another run, whose shared file has another name.
    fs::copy(at("o.party-04.h5"), at("x.party-04.h5")).unwrap();
    let kept = fs::read(at("o.party-01.h5")).unwrap();
    run("fnmf --parties 3").ok();
    let parts = ["o.h5", "o.party-00.h5", "o.party-01.h5", "o.party-02.h5"];
    assert_eq!(names(dir.path()), [&parts[..], &["x.party-04.h5"]].concat());
    // Files of two runs do not go together.
    fs::write(at("o.party-01.h5"), kept).unwrap();
    let mixed = fednmf(0, "evaluate").arg(at("o.h5")).arg("--input").arg(data("digits.npy"));
    mixed.refused(&["o.party-01.h5", "does not belong to", "one run"]);
    run("hals").ok();
    assert_eq!(names(dir.path()), ["o.h5", "x.party-04.h5"]);
    // An output that is no party's is not taken for one.
    fs::copy(at("o.h5"), at("o.party-01.h5")).unwrap();
    run("fnmf --parties 3").refused(&["--output", "o.party-01.h5", "fednmf did not write it"]);
}

#[test]
fn a_checkpoint_replaces_no_files_of_others() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = || {
        fednmf(2, "--algo syn-sd --parties 2 -k 2 --max-iters 4 --checkpoint-every 1 --input")
            .arg(data("digits.npy"))
            .arg("--checkpoint")
            .arg(at("c.h5"))
    };
    fs::write(at("c.party-00.g2.h5"), "my own, and older").unwrap();
    run().refused(&["--checkpoint", "c.party-00.g2.h5", "fednmf did not write it"]);
    assert_eq!(names(dir.path()), ["c.party-00.g2.h5"]);
    fs::remove_file(at("c.party-00.g2.h5")).unwrap();
    run().ok();
    run().arg("--resume").ok();
    assert_eq!(names(dir.path()).len(), 3, "{:?}", names(dir.path()));
}

#[test]
fn held_out_entries_are_evaluated_apart() {
    let dir = tempdir().unwrap();
    let output = dir.path().join("o.h5");
    let (digits, counts) = (data("digits.npy"), data("formats/counts.mtx"));
    // Selected by a hash, drawn among the zeros of sparse data, and among only the stored entries.
    for (input, more) in
        [(&digits, ""), (&counts, ""), (&counts, "--missing zero-unobserved"), (&digits, "--transpose")]
    {
        let line = format!("--algo hals -k 3 --max-iters 5 --holdout 0.2 --seed 7 {more} --input");
        let run = fednmf(2, &line).arg(input).arg("--output").arg(&output).ok();
        let turned = if more == "--transpose" { more } else { "" };
        let line = format!("evaluate {} {turned} --json --input {}", output.display(), input.display());
        for ranks in [0, 2] {
            let evaluated = summary(ranks, &line);
            for name in ["heldout_rmse", "rel_error", "rmse"] {
                let (there, here) = (number(&run, name), number(&evaluated, name));
                assert!((there - here).abs() < 1e-9 * there, "{} {more}: {name} {there} {here}", input.display());
            }
        }
    }
    let shown = fednmf(0, "evaluate").arg(&output).arg("--transpose").arg("--input").arg(&digits).run().stdout;
    assert!(shown.starts_with("held-out RMSE") && shown.contains("on the observed entries"), "{shown}");
}

/// Writes a table with names; `rows` and `columns` are places in `all`.
fn table(path: &Path, all: &[[f64; 4]; 6], rows: &[usize], columns: &[usize]) {
    let mut text = format!("gene,{}\n", columns.iter().map(|j| format!("c{j}")).collect::<Vec<_>>().join(","));
    for &i in rows {
        let fields: Vec<String> = columns.iter().map(|&j| all[i][j].to_string()).collect();
        text += &format!("g{i},{}\n", fields.join(","));
    }
    fs::write(path, text).unwrap();
}

const ROWS: [usize; 6] = [0, 1, 2, 3, 4, 5];
const COLUMNS: [usize; 4] = [0, 1, 2, 3];

#[test]
fn masks_and_starts_are_matched_by_name() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x: [[f64; 4]; 6] = std::array::from_fn(|i| std::array::from_fn(|j| ((i * 7 + j * 3) % 5) as f64 + 1.0));
    let mut marks = [[0.0; 4]; 6];
    (marks[1][2], marks[4][0]) = (1.0, 1.0);
    table(&at("x.csv"), &x, &ROWS, &COLUMNS);
    table(&at("same.csv"), &marks, &ROWS, &COLUMNS);
    table(&at("sorted.csv"), &marks, &[5, 3, 1, 0, 2, 4], &[1, 0, 3, 2]);
    table(&at("x-sorted.csv"), &x, &[5, 3, 1, 0, 2, 4], &[1, 0, 3, 2]);
    let run = |input: &str| fednmf(2, "--algo hals -k 2 --max-iters 20 --input").arg(at(input));
    let masked = |mask: &str| run("x.csv").arg("--missing").arg(at(mask));
    let errors = |mask: &str| {
        let run = masked(mask).arg("--output").arg(at("m.h5")).ok();
        [number(&run, "rel_error"), number(&run, "heldout_rmse")]
    };
    let same = errors("same.csv");
    assert_eq!(same, errors("sorted.csv"));
    let evaluated = |more: &str| {
        let line = format!("evaluate {} --json {more} --input {}", at("m.h5").display(), at("x-sorted.csv").display());
        let found = summary(0, &line);
        [number(&found, "rel_error"), number(&found, "heldout_rmse")]
    };
    assert!(evaluated("").iter().zip(same).all(|(a, b)| (a - b).abs() < 1e-9));
    // A mask that has moved is named again.
    fs::rename(at("sorted.csv"), at("moved.csv")).unwrap();
    let lost = fednmf(0, "evaluate").arg(at("m.h5")).arg("--input").arg(at("x.csv"));
    lost.refused(&["sorted.csv", "not here", "--missing FILE"]);
    let moved = evaluated(&format!("--missing {}", at("moved.csv").display()));
    assert!(moved.iter().zip(same).all(|(a, b)| (a - b).abs() < 1e-9));
    // The marks of the run in another order, of a matrix in either; other marks.
    let refused = |mask: &str| {
        let run = fednmf(2, "evaluate").arg(at("m.h5")).arg("--input").arg(at("x-sorted.csv"));
        run.arg("--missing").arg(at(mask)).refused(&[mask, "other entries"]);
    };
    let of_run = evaluated(&format!("--missing {}", at("same.csv").display()));
    assert!(of_run.iter().zip(same).all(|(a, b)| (a - b).abs() < 1e-9));
    assert_eq!(errors("same.csv"), same);
    for input in ["x.csv", "x-sorted.csv"] {
        let run = fednmf(2, "evaluate").arg(at("m.h5")).arg("--input").arg(at(input));
        let done = run.arg("--missing").arg(at("moved.csv")).run();
        assert_eq!(done.code, Some(0), "{input}: {}", done.stderr);
    }
    (marks[4][0], marks[3][0]) = (0.0, 1.0);
    table(&at("more.csv"), &marks, &ROWS, &COLUMNS);
    refused("more.csv");
    (marks[4][0], marks[3][0]) = (1.0, 0.0);

    fs::write(at("other.csv"), fs::read_to_string(at("same.csv")).unwrap().replace("g4", "g9")).unwrap();
    masked("other.csv").refused(&["--missing", "other.csv", "row 4", "g9", "g4"]);
    table(&at("few.csv"), &marks, &ROWS[..5], &COLUMNS);
    masked("few.csv").refused(&["--missing", "5 x 4", "6 x 4"]);

    run("x.csv").arg("--output").arg(at("f.h5")).ok();
    let start = |input: &str, k: usize| {
        fednmf(2, &format!("--algo hals -k {k} --max-iters 0 --input")).arg(at(input)).arg("--init").arg(at("f.h5"))
    };
    let [a, b] = ["x.csv", "x-sorted.csv"].map(|input| number(&start(input, 2).ok(), "rel_error"));
    assert!((a - b).abs() < 1e-12, "{a} {b}");
    start("x.csv", 3).refused(&["--init", "-k 2"]);
    fs::write(at("x-other.csv"), fs::read_to_string(at("x.csv")).unwrap().replace("c3", "z")).unwrap();
    start("x-other.csv", 2).refused(&["--init", "column 3", "z", "c3"]);
}

#[test]
fn a_shape_that_does_not_fit_is_explained() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let digits = data("digits.npy");
    fednmf(0, "--algo hals -k 2 --max-iters 1 --input").arg(&digits).arg("--output").arg(at("f.h5")).ok();
    for (name, spec) in [("turned", "m=64,n=1797"), ("new", "m=20,n=64"), ("other", "m=5,n=6")] {
        let made = fednmf(0, &format!("generate planted,{spec},k=2 -o")).arg(at(&format!("{name}.npy"))).run();
        assert_eq!(made.code, Some(0), "{}", made.stderr);
    }
    let message = |command: &str, input: &str| {
        let done = fednmf(0, command).arg(at("f.h5")).arg("--input").arg(at(input)).run();
        assert_eq!(done.code, Some(2), "{command} {input}: {}", done.stderr);
        done.stderr
    };
    assert!(message("evaluate", "turned.npy").contains("add --transpose"));
    assert!(message("project", "turned.npy").contains("add --transpose"));
    assert!(message("evaluate", "new.npy").contains("fednmf project"));
    for command in ["evaluate", "project"] {
        assert!(!message(command, "other.npy").contains("--transpose"));
    }
}

/// The shared file and the file of one party give the same results for its rows, or columns, as the files of all
/// parties.
#[test]
fn a_party_reads_its_own_part_alone() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for party in 0..3 {
        npy(dir.path(), &format!("p{party}.npy"), 40 * party..40 * (party + 1));
    }
    let squares = |party: usize| {
        let file = fs::read(at(&format!("p{party}.npy"))).unwrap();
        file[file.len() - 40 * 64..].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>()
    };
    for (options, by_columns) in [
        ("--algo fnmf --align lap-rho --personalize", false),
        ("--algo inmf", false),
        ("--algo felb --binarize 8", false),
        ("--algo syn-sd", true),
    ] {
        let run = fednmf(2, &format!("{options} -k 3 --max-iters 5 --input")).arg(at("p{party}.npy"));
        let run = run.arg("--output").arg(at("o.h5")).ok();
        let mut residual2 = 0.0;
        for party in 0..3 {
            // All that the party has.
            let own = tempdir().unwrap();
            let mine = own.path().join(format!("o.party-0{party}.h5"));
            for name in ["o.h5", &format!("o.party-0{party}.h5"), &format!("p{party}.npy")] {
                fs::copy(at(name), own.path().join(name)).unwrap();
            }
            let input = own.path().join(format!("p{party}.npy"));
            let evaluated = summary(0, &format!("evaluate {} --json --input {}", mine.display(), input.display()));
            let about = ["m", "n", "party"].map(|name| evaluated[name].as_u64().unwrap());
            assert_eq!(about, [40, 64, party as u64], "{options}");
            residual2 += number(&evaluated, "rel_error").powi(2) * squares(party);
            let place = |i: usize, j: usize| if by_columns { (i, 64 * party + j) } else { (40 * party + i, j) };
            let predicted = |factors: &Path, pairs: [(usize, usize); 2]| -> Vec<String> {
                let lines: String = pairs.iter().map(|(i, j)| format!("{i},{j}\n")).collect();
                fs::write(at("pairs.csv"), format!("row,column\n{lines}")).unwrap();
                let text = fednmf(0, "predict").arg(factors).arg(at("pairs.csv")).run().stdout;
                text.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().to_string()).collect()
            };
            let own_values = predicted(&mine, [(3, 5), (7, 2)]);
            assert_eq!(own_values, predicted(&at("o.h5"), [place(3, 5), place(7, 2)]), "{options}");
            assert_eq!(own_values.len(), 2, "{options}");
        }
        if !options.contains("felb") {
            let whole = (residual2 / (0..3).map(squares).sum::<f64>()).sqrt();
            assert!((whole - number(&run, "rel_error")).abs() < 1e-6 && whole < 0.9, "{options}: {whole} {run}");
        }
    }
}

/// If only some parties' files have names, a different order of their columns cannot be detected.
#[test]
fn parties_of_which_one_lacks_names_are_warned_of() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let rows = |first: usize| {
        (first..first + 8).map(|i| format!("{}.5,{}.25,{}.75\n", i, 9 * i % 7, 5 * i % 6)).collect::<String>()
    };
    fs::write(at("p0.csv"), format!("a,b,c\n{}", rows(0))).unwrap();
    fs::write(at("p1.csv"), rows(8)).unwrap();
    let run = || fednmf(2, "--algo fnmf -k 2 --max-iters 2 --index-col no --input").arg(at("p{party}.csv")).run();
    let warned = run();
    assert!(warned.code == Some(0) && warned.stderr.contains("matched by position"), "{}", warned.stderr);
    fs::write(at("p1.csv"), format!("a,b,c\n{}", rows(8))).unwrap();
    let quiet = run();
    assert!(quiet.code == Some(0) && !quiet.stderr.contains("matched by position"), "{}", quiet.stderr);
}

/// The error about a refused entry reaches all parties, so it must not show the entry.
#[test]
fn errors_about_a_partys_entries_do_not_show_them() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("p0.csv"), "0,1,1\n1,0,1\n1,1,0\n1,1,1\n").unwrap();
    fs::write(at("p1.csv"), "0,1,1\n1,0,1\n1,1,7.25\n1,1,1\n").unwrap();
    for method in ["felb", "felb-mu", "elbmf", "zhang", "asso", "grecond", "mebf"] {
        let line = format!("--algo {method} -k 2 --max-iters 2 --header no --input");
        let refused = fednmf(2, &line).arg(at("p{party}.csv")).run();
        assert!(refused.code == Some(2) && refused.stderr.contains("row 2 and column 2"), "{refused:?}");
        assert!(!refused.stderr.contains("7.25"), "{refused:?}");
    }
}

/// The rows of a party are matched with those of its private factor.
#[test]
fn files_of_parties_in_another_order_are_refused() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, rows) in [("p0.npy", 0..20), ("p1.npy", 20..50), ("q0.npy", 20..50), ("q1.npy", 0..20)] {
        npy(dir.path(), name, rows);
    }
    let run = fednmf(2, "--algo fnmf -k 2 --max-iters 2 --input").arg(at("p{party}.npy"));
    run.arg("--output").arg(at("o.h5")).ok();
    let evaluate = |input: &str| fednmf(0, "evaluate").arg(at("o.h5")).arg("--input").arg(at(input));
    assert_eq!(evaluate("p{party}.npy").run().code, Some(0));
    evaluate("q{party}.npy").refused(&["party 0 has 20 rows", "its file 30", "order"]);
}

/// The output and the messages of a run that succeeds.
fn told(run: Run) -> (String, String) {
    let done = run.run();
    assert_eq!(done.code, Some(0), "{done:?}");
    (done.stdout, done.stderr)
}

/// The held-out entries are selected by position, which the user of an AnnData file may change.
#[test]
fn a_file_that_was_sorted_since_has_no_held_out_error() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let write = |rows: &[usize]| {
        let file = hdf5::File::create(at("x.h5ad")).unwrap();
        let text = |name: &str| name.parse::<VarLenUnicode>().unwrap();
        file.new_attr::<VarLenUnicode>().create("encoding-type").unwrap().write_scalar(&text("anndata")).unwrap();
        let x = Array2::from_shape_fn((rows.len(), 6), |(i, j)| ((rows[i] * 5 + j * 3) % 7) as f64 + 1.0);
        file.new_dataset_builder().with_data(&x).create("X").unwrap();
        for (frame, names) in [
            ("obs", rows.iter().map(|i| text(&format!("c{i}"))).collect::<Vec<_>>()),
            ("var", (0..6).map(|j| text(&format!("g{j}"))).collect()),
        ] {
            file.create_group(frame).unwrap().new_dataset_builder().with_data(&names).create("_index").unwrap();
        }
    };
    let rows: Vec<usize> = (0..12).collect();
    write(&rows);
    let run = fednmf(0, "--algo hals -k 2 --max-iters 5 --holdout 0.2 --input").arg(at("x.h5ad"));
    run.arg("--add-to").arg(at("x.h5ad")).ok();
    let evaluate = || fednmf(2, "evaluate").arg(at("x.h5ad")).arg("--input").arg(at("x.h5ad"));
    let (shown, _) = told(evaluate());
    assert!(shown.starts_with("held-out RMSE") && shown.contains("entries held out by --holdout 0.2"), "{shown}");
    let file = hdf5::File::open_rw(at("x.h5ad")).unwrap();
    for name in ["X", "obsm/X_nmf"] {
        let data = file.dataset(name).unwrap();
        let turned = data.read_2d::<f64>().unwrap().slice(ndarray::s![..;-1, ..]).as_standard_layout().to_owned();
        data.write(&turned).unwrap();
    }
    let names = file.dataset("obs/_index").unwrap();
    let mut turned = names.read_raw::<VarLenUnicode>().unwrap();
    turned.reverse();
    names.write(&turned).unwrap();
    drop((file, names));
    evaluate().refused(&["x.h5ad", "its rows are not those of the run", "held out"]);
}

/// For sparse data, other entries are drawn if zeros are missing.
#[test]
fn other_missing_entries_have_no_held_out_error() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let input = "synthetic:sparse,m=90,n=60,density=0.05,seed=3";
    for (missing, other) in [("none", "zero-unobserved"), ("zero-unobserved", "none")] {
        let line = format!("--algo hals -k 2 --max-iters 3 --holdout 0.5 --missing {missing} --input {input}");
        let (_, messages) = told(fednmf(0, &line).arg("--output").arg(at("f.h5")));
        // Fewer entries than the share says, if zeros are among them.
        let few = messages.contains("entries are held out, the share");
        assert_eq!(few, missing == "none", "{messages}");
        let evaluate = |more: &str| fednmf(2, &format!("evaluate {more} --input {input}")).arg(at("f.h5"));
        let (shown, _) = told(evaluate(""));
        let (json, _) = told(evaluate("--json"));
        let json: Value = serde_json::from_str(&json).unwrap();
        assert!(shown.contains(&format!("{} entries held out by --holdout 0.5", json["heldout_entries"])), "{shown}");
        evaluate(&format!("--missing {other}")).refused(&["f.h5", "would be others", "omit --missing"]);
    }
}

/// A start that was fitted to entries that are now held out has seen them.
#[test]
fn a_start_that_has_seen_the_held_out_entries_is_warned_of() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |line: &str, output: &str| {
        let line = format!("--algo hals -k 2 --max-iters 3 {line} --input synthetic:planted,m=30,n=20");
        told(fednmf(0, &line).arg("--output").arg(at(output))).1
    };
    run("", "whole.h5");
    run("--holdout 0.2 --seed 4", "held.h5");
    let start = |line: &str, name: &str| run(&format!("{line} --init {}", at(name).display()), "o.h5");
    let warning = "did not hold out the same entries";
    for (line, name, warned) in [
        ("--holdout 0.2 --seed 4", "whole.h5", true),
        ("--holdout 0.2 --seed 5", "held.h5", true),
        ("--holdout 0.3 --seed 4", "held.h5", true),
        ("--holdout 0.2 --seed 4", "held.h5", false),
        ("--seed 4", "whole.h5", false),
    ] {
        assert_eq!(start(line, name).contains(warning), warned, "{line} {name}");
    }
}

#[test]
fn the_objective_is_shown_beside_the_held_out_error() {
    let dir = tempdir().unwrap();
    let output = dir.path().join("f.h5");
    let input = "synthetic:planted,m=30,n=20";
    let line = format!("--algo hals -k 2 --max-iters 3 --holdout 0.2 --alpha-u 0.01 --input {input} --output");
    let (run, _) = told(fednmf(0, &line).arg(&output));
    let (evaluated, _) = told(fednmf(0, &format!("evaluate --input {input}")).arg(&output));
    for shown in [run, evaluated] {
        assert!(["held-out RMSE", "objective", "relative error"].iter().all(|name| shown.contains(name)), "{shown}");
    }
}

#[test]
fn small_entries_have_a_finite_divergence_or_are_refused() {
    let dir = tempdir().unwrap();
    let input = dir.path().join("x.csv");
    for smallest in ["1e-323", "1e-310", "1e-160", "1e-60"] {
        std::fs::write(&input, format!("1,2\n3,4\n5,{smallest}\n6,7\n")).unwrap();
        let run = |loss: &str| fednmf(0, &format!("--header no --index-col no -k 2 --loss={loss} --input")).arg(&input);
        let found = run("is").ok()["beta_divergence"].as_f64();
        assert!(found.is_some_and(|x| x > 0.0), "{smallest}: {found:?}");
        run("-6").refused(&["--loss or --beta -6", "powers overflow"]);
    }
}

#[test]
fn an_infinite_divergence_is_explained() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut x = Array2::from_shape_fn((8, 5), |(i, j)| ((i * 3 + j) % 4) as f64);
    x.column_mut(2).fill(0.0);
    save_npy(&at("x.npy"), &x);
    x.column_mut(2).fill(1.0);
    save_npy(&at("new.npy"), &x);
    let run = fednmf(0, "--algo kl-mu -k 2 --max-iters 20 --input").arg(at("x.npy"));
    run.arg("--output").arg(at("f.h5")).ok();
    for command in ["evaluate --json", "project --json"] {
        let (json, messages) = told(fednmf(2, command).arg(at("f.h5")).arg("--input").arg(at("new.npy")));
        assert!(json.contains("\"kl_divergence\":null") && messages.contains("is infinite"), "{json}{messages}");
    }
    for command in ["evaluate", "project"] {
        let (text, _) = told(fednmf(2, command).arg(at("f.h5")).arg("--input").arg(at("new.npy")));
        assert!(text.starts_with("infinite KL divergence, relative error 0."), "{text}");
    }
    // Updates keep the zeros of a start.
    let run = fednmf(2, "--algo kl-mu -k 2 --max-iters 20 --init").arg(at("f.h5")).arg("--input").arg(at("new.npy"));
    let (text, messages) = told(run);
    assert!(!text.contains("KL divergence") && messages.contains("is infinite"), "{text}{messages}");
}

/// Columns of the factors that new rows lack are left out of the fit, as if they were missing, and other columns are ignored.
#[test]
fn new_rows_have_the_columns_that_their_names_say() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x: [[f64; 4]; 6] = std::array::from_fn(|i| std::array::from_fn(|j| ((i * 7 + j * 3) % 5) as f64 + 1.0));
    table(&at("old.csv"), &x, &ROWS, &COLUMNS);
    let line = |i: usize, fields: [&str; 4]| format!("g{i},{}\n", fields.join(","));
    // c1 is unknown in one file, and absent from the other, which has the others in another order and two of its own.
    let gaps = format!("gene,c0,c1,c2,c3\n{}{}", line(0, ["3", "nan", "1", "7"]), line(1, ["2", "nan", "6", "1"]));
    let named = format!("gene,z,c3,c0,y,c2\n{}{}", "g0,9,7,3,8,1\n", "g1,5,1,2,4,6\n");
    fs::write(at("gaps.csv"), gaps).unwrap();
    fs::write(at("named.csv"), named).unwrap();
    fs::write(at("zeros.csv"), "gene,c0,c1,c2,c3\ng0,3,0,1,7\ng1,2,0,6,1\n").unwrap();
    fs::write(at("foreign.csv"), "gene,p,q,r,s\ng0,3,0,1,7\n").unwrap();
    for method in
        ["--algo hals -k 2 --max-iters 40", "--algo kl-mu -k 2 --max-iters 40", "--algo hals -k 2 --alpha-u 0.1"]
    {
        fednmf(0, method).arg("--input").arg(at("old.csv")).arg("--output").arg(at("f.h5")).ok();
        let project = |ranks, input: &str, more: &str| {
            let to = at("p.h5");
            let line = format!(
                "project {} {more} --input {} --output {}",
                at("f.h5").display(),
                at(input).display(),
                to.display()
            );
            let done = fednmf(ranks, &line).run();
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            (matrix(&to, "U"), matrix(&to, "V"), done.stderr)
        };
        let (expected, v, _) = project(1, "gaps.csv", "--missing nan");
        for ranks in [1, 2] {
            let (u, own, told) = project(ranks, "named.csv", "");
            assert!((&u - &expected).iter().all(|x| x.abs() < 1e-5), "{method}: {u} {expected}");
            assert!(told.contains("1 of the 4 columns of the factors are missing"), "{told}");
            let shares = [0, 1].map(|component| 100.0 * v[[1, component]] / v.column(component).sum());
            let most = usize::from(shares[1] > shares[0]);
            let weight = format!(
                "(they carry {:.1} % of the weight of component {most}, and at most {:.1} % of that of any other)",
                shares[most],
                shares[1 - most]
            );
            assert!(told.contains(&weight), "{weight}: {told}");
            assert!(told.contains("2 of its columns are not in the factors"), "{told}");
            // V has a row for each column of the new matrix.
            for (row, of) in [None, Some(3), Some(0), None, Some(2)].into_iter().enumerate() {
                let there = of.map_or_else(|| ndarray::Array1::zeros(2), |of| v.row(of).to_owned());
                assert_eq!(own.row(row), there);
            }
            let line = format!("evaluate {} --input {}", at("p.h5").display(), at("named.csv").display());
            let told = fednmf(ranks, &line).run().stderr;
            assert!(told.contains("ignored 2 of these 5 columns"), "{told}");
        }
        let (zeros, ..) = project(1, "zeros.csv", "");
        assert!((&zeros - &expected).iter().any(|x| x.abs() > 1e-2), "a missing column is no column of zeros");
        fednmf(0, "project").arg(at("f.h5")).arg("--input").arg(at("foreign.csv")).refused(&["no column", "p", "c0"]);
    }
}

/// Names in another order cannot be matched where one of them occurs twice.
#[test]
fn repeated_names_are_the_reason_of_a_refusal() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("old.csv"), "cell,A,B,B,C\nx,1,2,3,4\ny,4,3,2,2\nz,5,1,1,3\n").unwrap();
    fs::write(at("new.csv"), "cell,C,B,B,A\nx,4,3,2,1\ny,2,2,3,4\n").unwrap();
    let run = fednmf(0, "--algo hals -k 2 --max-iters 5 --input").arg(at("old.csv"));
    run.arg("--output").arg(at("f.h5")).ok();
    let project = fednmf(0, "project").arg(at("f.h5")).arg("--input").arg(at("new.csv"));
    project.refused(&["several columns are called B", "unique names"]);
}

/// What `project` makes of the consensus of a sweep is in the units of the input, as what it makes of a run.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_projection_of_a_consensus_keeps_how_the_matrix_was_prepared() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    save_npy(&file("x.npy"), &Array2::from_shape_fn((30, 8), |(i, j)| ((5 * i + 3 * j) % 17) as f64));
    for (i, words) in ["--scale max", "--binarize 9", "--scale max --loss kl", "--transpose"].into_iter().enumerate() {
        let name = |what: &str| file(&format!("{what}{i}"));
        let sweep =
            fednmf(0, &format!("sweep --k 3 --runs 2 --max-iters 30 --holdout 0 {words} --json --quiet --input"));
        assert_eq!(sweep.arg(file("x.npy")).arg("--output").arg(name("sweep")).run().code, Some(0), "{words}");
        let turned = if words == "--transpose" { words } else { "" };
        let json = |command: &str, factors: &Path| -> Value {
            let done = fednmf(0, command).arg(factors).arg("--input").arg(file("x.npy")).arg("--json").run();
            assert_eq!(done.code, Some(0), "{words}: {done:?}");
            serde_json::from_str(&done.stdout).unwrap()
        };
        let output = name("p").with_extension("h5");
        let of_sweep = name("sweep").join("consensus-k0003.h5");
        let projected = json(&format!("project {turned} --quiet --output {}", output.display()), &of_sweep);
        let evaluated = json(&format!("evaluate {turned}"), &output);
        let again = json(&format!("project {turned} --quiet"), &output);
        for (what, found) in [("evaluate", &evaluated), ("project", &again)] {
            let (a, b) = (number(&projected, "rel_error"), number(found, "rel_error"));
            assert!((a - b).abs() < 1e-9, "{words}, {what}: {a} {b}");
        }
    }
}

/// `admm` protects nothing: all of V is in the shared file, and a party's file has the names of its own columns alone.
#[test]
fn names_of_one_party_are_not_those_of_a_whole_factor() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for party in 0..2 {
        let line = |i: usize| (0..3).map(|j| format!(",{}", (3 * i + 7 * j + party) % 11)).collect::<String>();
        let rows: String = (0..20).map(|i| format!("r{i}{}\n", line(i))).collect();
        let names: String = (0..3).map(|j| format!(",g{}", 3 * party + j)).collect();
        fs::write(at(&format!("a{party}.csv")), format!("{names}\n{rows}")).unwrap();
    }
    fednmf(0, "--algo admm -k 2 --max-iters 5 --parties 2 --input")
        .arg(at("a{party}.csv"))
        .arg("--output")
        .arg(at("a.h5"))
        .ok();
    for command in ["top", "project --input a1.csv", "clusters --of columns"] {
        fednmf(0, &command.replace("a1.csv", &at("a1.csv").display().to_string()))
            .arg(at("a.party-01.h5"))
            .own_process()
            .refused(&["a.party-01.h5", "names of party 1 alone", "a.h5"]);
    }
    let top = fednmf(0, "top -n 1").arg(at("a.h5")).run();
    assert!(top.code == Some(0) && top.stdout.contains("\tg"), "{}", top.stderr);
}

/// Rows of a party are those of the product with its own V, from whichever file they are read.
#[test]
fn clusters_of_rows_know_the_own_parts_of_the_parties() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (party, seed) in [(0, 1), (1, 9)] {
        let line = format!("generate planted,m=50,n=8,k=3,seed={seed} --output");
        assert_eq!(fednmf(0, &line).arg(at(&format!("p{party}.npy"))).run().code, Some(0));
    }
    let line =
        "--algo inmf --parties 2 -k 3 --own-penalty 0.1 --max-iters 50 --accept-risk few-rows,membership --input";
    fednmf(0, line).arg(at("p{party}.npy")).arg("--output").arg(at("p.h5")).ok();
    let clusters = |name: &str| -> Vec<(String, f64)> {
        let done = fednmf(0, "clusters").arg(at(name)).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let cells = |line: &str| line.split('\t').map(String::from).collect::<Vec<_>>();
        done.stdout.lines().skip(1).map(cells).map(|row| (row[1].clone(), row[2].parse().unwrap())).collect()
    };
    let (all, own) = (clusters("p.h5"), clusters("p.party-01.h5"));
    let pairs = all[50..].iter().zip(&own).filter(|(all, own)| all.0 == own.0);
    let differences: Vec<f64> = pairs.map(|(all, own)| (all.1 - own.1).abs()).collect();
    assert!(differences.len() > 25 && differences.iter().all(|x| *x < 1e-9), "{differences:?}");
}

#[test]
fn a_run_with_an_empty_party_can_be_resumed_and_read() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert_eq!(fednmf(0, "generate planted,m=9,n=9,k=2 --output").arg(at("x.npy")).run().code, Some(0));
    for algo in ["fnmf", "secure-hals"] {
        let line = |iterations: usize| {
            let line = format!("--algo {algo} --parties 4 --skew 0.8 -k 2 --max-iters {iterations} --input");
            let run = fednmf(0, &line).arg(at("x.npy")).arg("--output").arg(at(&format!("{algo}.h5")));
            run.arg("--checkpoint").arg(at(&format!("{algo}.ck")))
        };
        line(3).ok();
        line(6).arg("--resume").ok();
        let error = summary(
            0,
            &format!("evaluate --json {} --input {}", at(&format!("{algo}.h5")).display(), at("x.npy").display()),
        );
        assert!(number(&error, "rel_error") < 0.9, "{error}");
    }
}
