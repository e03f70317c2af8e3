//! Files: no file of the user is overwritten, and names keep their meaning.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use hdf5::types::VarLenUnicode;
use ndarray::Array2;
use tempfile::tempdir;

use crate::common::{data, fednmf, finish, matrix, number, save_npy, session, write_npy};

/// Copies a file of tests/data, so that it may be destroyed.
fn copied(dir: &Path, name: &str) -> std::path::PathBuf {
    let to = dir.join(Path::new(name).file_name().unwrap());
    fs::copy(data(name), &to).unwrap();
    to
}

#[test]
fn an_input_is_never_an_output() {
    let dir = tempdir().unwrap();
    let input = copied(dir.path(), "formats/counts.h5ad");
    let before = fs::read(&input).unwrap();
    let link = dir.path().join("link.h5ad");
    std::os::unix::fs::symlink(&input, &link).unwrap();
    for option in ["--output", "--trace", "--report", "--checkpoint"] {
        for path in [&input, &link] {
            let run = fednmf(2, "-k 2 --max-iters 1 --input").arg(&input).arg(option).arg(path);
            run.refused(&[option, "--input"]);
        }
    }
    let factors = dir.path().join("f.h5");
    fednmf(0, "--algo hals -k 2 --max-iters 1 --input").arg(&input).arg("--output").arg(&factors).ok();
    for to in [&input, &factors] {
        let done = fednmf(0, "project").arg(&factors).arg("--input").arg(&input).arg("--output").arg(to).run();
        assert_eq!(done.code, Some(2), "{}", done.stderr);
    }
    assert!(fs::read(&input).unwrap() == before);
}

/// Written by pandas, and by Arrow without the notes of pandas.
#[test]
fn a_table_of_parquet_is_that_of_csv() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |name: &str, to: &str| {
        let line = "--algo hals -k 2 --max-iters 5 --input";
        fednmf(0, line).arg(data(&format!("formats/{name}"))).arg("--output").arg(at(to)).ok()
    };
    let by_csv = run("table.csv", "csv.h5");
    for name in ["table.parquet", "table-arrow.parquet"] {
        let done = run(name, "parquet.h5");
        assert_eq!(done["checksum"], by_csv["checksum"], "{name}");
        for factor in ["U", "V"] {
            assert_eq!(matrix(&at("parquet.h5"), factor), matrix(&at("csv.h5"), factor), "{name}");
        }
        // By the names of rows and columns.
        let file = data(&format!("formats/{name}"));
        let measured = summary(&format!("evaluate {} --json --input {}", at("csv.h5").display(), file.display()));
        assert!((number(&measured, "rel_error") - number(&by_csv, "rel_error")).abs() < 1e-12, "{name}");
        let top = fednmf(0, "top --of columns").arg(at("parquet.h5")).run();
        assert!(top.stdout.contains("gene 3, 'x'"), "{name}: {}", top.stdout);
    }
    let table = data("formats/table-arrow.parquet");
    fednmf(0, "--index-col no -k 2 --input").arg(&table).refused(&["column 'index' has text", "set_index"]);
    fednmf(0, "--header no -k 2 --input").arg(&table).refused(&["--header is for tables in text"]);
    for (party, name) in [(0, "table.parquet"), (1, "table-arrow.parquet")] {
        fs::copy(data(&format!("formats/{name}")), at(&format!("q-{party}.parquet"))).unwrap();
    }
    let joint = "--algo fnmf -k 2 --max-iters 3 --parties 2 --common-columns --accept-risk membership,few-rows --input";
    fednmf(2, joint).arg(at("q-{party}.parquet")).ok();
}

#[test]
fn outputs_are_distinct_and_replace_only_what_fednmf_wrote() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |k: usize| fednmf(0, &format!("--algo hals -k {k} --max-iters 2 --input")).arg(data("digits.npy"));
    run(2).arg("--output").arg(at("a.h5")).arg("--checkpoint").arg(at("a.h5")).refused(&["--checkpoint", "--output"]);
    for (option, name) in [("--output", "notes.h5"), ("--trace", "notes.jsonl"), ("--report", "notes.html")] {
        fs::write(at(name), "what I found out this year").unwrap();
        run(2).arg(option).arg(at(name)).refused(&[option, name, "not replaced"]);
        assert_eq!(fs::read(at(name)).unwrap(), b"what I found out this year");
    }
    for (option, name) in [("--output", "o.h5"), ("--trace", "t.jsonl"), ("--report", "r.html")] {
        run(2).arg(option).arg(at(name)).ok();
        run(3).arg(option).arg(at(name)).ok();
    }
    assert_eq!(matrix(&at("o.h5"), "U").ncols(), 3);
}

#[test]
fn a_checkpoint_of_another_run_is_kept() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("c.h5");
    let run = |k: usize| {
        fednmf(2, &format!("--algo hals -k {k} --max-iters 4 --checkpoint-every 2 --input"))
            .arg(data("digits.npy"))
            .arg("--checkpoint")
            .arg(&path)
    };
    run(3).ok();
    run(4).refused(&["--checkpoint", "not replaced", "k was 3"]);
    run(3).ok();
    fs::write(&path, "not a checkpoint at all").unwrap();
    run(3).refused(&["--checkpoint", "not replaced"]);
    assert_eq!(fs::read(&path).unwrap(), b"not a checkpoint at all");
}

#[test]
fn factors_are_added_to_a_file_that_keeps_the_rest() {
    let dir = tempdir().unwrap();
    let input = copied(dir.path(), "formats/counts.h5ad");
    let before = hdf5::File::open(&input).unwrap();
    let names = |file: &hdf5::File, frame: &str| {
        let group = file.group(frame).unwrap();
        let index: VarLenUnicode = group.attr("_index").unwrap().read_scalar().unwrap();
        group.dataset(&index).unwrap().read_raw::<VarLenUnicode>().unwrap()
    };
    let (members, obs) = (before.member_names().unwrap(), names(&before, "obs"));
    drop(before);
    for ranks in [1, 2] {
        let run = fednmf(ranks, "--algo hals -k 2 --max-iters 3 --input").arg(&input);
        run.arg("--add-to").arg(&input).ok();
        let file = hdf5::File::open(&input).unwrap();
        assert!(members.iter().all(|name| file.link_exists(name)), "{members:?}");
        assert_eq!(names(&file, "obs"), obs);
        let (x, factor) = (obs.len(), file.dataset("obsm/X_nmf").unwrap());
        assert_eq!(factor.shape(), [x, 2]);
        assert!(file.link_exists("uns/nmf/algo"));
        // The user's own entries stay.
        if ranks == 1 {
            drop((file, factor));
            let file = hdf5::File::open_rw(&input).unwrap();
            file.new_dataset::<f64>().create("uns/nmf/mine").unwrap().write_scalar(&0.5).unwrap();
        } else {
            assert_eq!(file.dataset("uns/nmf/mine").unwrap().read_scalar::<f64>().unwrap(), 0.5);
        }
    }
    let mistake = fednmf(0, "--algo hals -k 2 --max-iters 1 --input").arg(data("digits.npy"));
    mistake.arg("--add-to").arg(&input).refused(&["--add-to", "1797 x 64"]);
    let missing = fednmf(0, "-k 2 --max-iters 1 --input").arg(&input).arg("--add-to").arg(dir.path().join("no.h5ad"));
    missing.refused(&["--add-to", "no.h5ad"]);
}

/// Its names are read, but nothing is added to it.
#[test]
fn a_file_of_an_old_version_of_anndata_is_named_as_such() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("old.h5ad");
    let file = hdf5::File::create(&path).unwrap();
    file.new_dataset_builder().with_data(&example()).create("X").unwrap();
    for (frame, length) in [("obs", example().nrows()), ("var", example().ncols())] {
        file.new_dataset::<i32>().shape(length).create(frame).unwrap();
    }
    drop(file);
    let run = fednmf(0, "--algo hals -k 2 --max-iters 1 --input").arg(&path).arg("--add-to").arg(&path);
    run.refused(&["--add-to", "old.h5ad", "before 0.7", "write_h5ad"]);
}

/// An AnnData file of a dense matrix with the given names of variables.
fn annotated(path: &Path, x: &Array2<f64>, genes: &[&str]) {
    let file = hdf5::File::create(path).unwrap();
    let text = |s: &str| s.parse::<VarLenUnicode>().unwrap();
    file.new_attr::<VarLenUnicode>().create("encoding-type").unwrap().write_scalar(&text("anndata")).unwrap();
    file.new_dataset_builder().with_data(&x.as_standard_layout()).create("X").unwrap();
    let cells: Vec<String> = (0..x.nrows()).map(|i| format!("cell{i}")).collect();
    for (frame, names) in [("obs", cells.iter().map(String::as_str).collect::<Vec<_>>()), ("var", genes.to_vec())] {
        let group = file.create_group(frame).unwrap();
        group.new_attr::<VarLenUnicode>().create("_index").unwrap().write_scalar(&text("_index")).unwrap();
        let names: Vec<VarLenUnicode> = names.into_iter().map(text).collect();
        group.new_dataset::<VarLenUnicode>().shape(names.len()).create("_index").unwrap().write(&names).unwrap();
    }
}

fn example() -> Array2<f64> {
    Array2::from_shape_fn((12, 4), |(i, j)| ((i * 7 + j * 3) % 5) as f64 + if i % 4 == j { 6.0 } else { 0.0 })
}

#[test]
fn columns_are_matched_by_name() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let genes = ["A", "B", "C", "D"];
    let x = example();
    annotated(&at("train.h5ad"), &x, &genes);
    annotated(&at("shuffled.h5ad"), &x.select(ndarray::Axis(1), &[2, 0, 3, 1]), &["C", "A", "D", "B"]);
    annotated(&at("other.h5ad"), &x, &["A", "B", "C", "E"]);
    for output in ["f.h5", "f.npz", "f.h5ad"] {
        let run = fednmf(0, "--algo hals -k 2 --max-iters 30 --input").arg(at("train.h5ad"));
        run.arg("--output").arg(at(output)).ok();
        for command in ["project", "evaluate"] {
            let error = |input: &str| {
                let line =
                    [command, at(output).to_str().unwrap(), "--json", "--input", at(input).to_str().unwrap()].join(" ");
                number(&summary(&line), "rel_error")
            };
            let (same, shuffled) = (error("train.h5ad"), error("shuffled.h5ad"));
            assert!((same - shuffled).abs() < 1e-9, "{output} {command}: {same} {shuffled}");
            let wrong = fednmf(0, command).arg(at(output)).arg("--input").arg(at("other.h5ad"));
            if command == "evaluate" {
                wrong.refused(&["column 3", "E", "D"]);
            } else {
                let told = wrong.run().stderr;
                assert!(told.contains("1 of the 4 columns of the factors are missing"), "{told}");
            }
        }
    }
}

/// A table of the given rows and columns of [`example`], named c0 … and A …
fn table(path: &Path, rows: &[usize], columns: &[usize]) {
    let (x, name) = (example(), |j: usize| char::from(b'A' + j as u8));
    let mut text = columns.iter().map(|&j| format!(",{}", name(j))).collect::<String>() + "\n";
    for &i in rows {
        text += &format!("c{i}{}\n", columns.iter().map(|&j| format!(",{}", x[[i, j]])).collect::<String>());
    }
    std::fs::write(path, text).unwrap();
}

/// The names in an attribute of an output.
fn list_of(path: &Path, name: &str) -> Option<Vec<String>> {
    let file = hdf5::File::open(path).unwrap();
    let text = file.attr(name).ok()?.read_scalar::<VarLenUnicode>().unwrap().to_string();
    Some(serde_json::from_str(&text).unwrap())
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn names_that_are_private_to_a_party_are_in_its_file_alone() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (rows, columns): (Vec<usize>, Vec<usize>) = ((0..12).collect(), (0..4).collect());
    table(&at("whole.csv"), &rows, &columns);
    // admm writes all of V into the shared file, but not the names of its rows.
    for algo in ["fnmf", "syn-sd", "admm"] {
        let by_rows = algo == "fnmf";
        let own = if by_rows { "row_names" } else { "column_names" };
        for party in 0..2 {
            let path = at(&format!("p{party}.csv"));
            match by_rows {
                true => table(&path, &rows[6 * party..6 * party + 6], &columns),
                false => table(&path, &rows, &columns[2 * party..2 * party + 2]),
            }
        }
        // The same items in another order, and an item that is not the factors'.
        match by_rows {
            true => table(&at("shuffled.csv"), &[5, 11, 0, 7, 2, 3, 10, 4, 6, 9, 8, 1], &columns),
            false => table(&at("shuffled.csv"), &rows, &[2, 0, 3, 1]),
        }
        let other = std::fs::read_to_string(at("whole.csv")).unwrap();
        std::fs::write(at("other.csv"), if by_rows { other.replace("c7", "x7") } else { other.replace(",D", ",X") })
            .unwrap();
        for input in ["p{party}.csv", "whole.csv"] {
            if algo == "admm" && input == "whole.csv" {
                continue; // Of one file all names are in the output.
            }
            let run = fednmf(2, &format!("--algo {algo} --parties 2 -k 2 --max-iters 5 --input")).arg(at(input));
            run.arg("--output").arg(at("o.h5")).ok();
            assert_eq!(list_of(&at("o.h5"), own), None, "{algo} {input}");
            let parts = [0, 1].map(|party| list_of(&at(&format!("o.party-0{party}.h5")), own).unwrap());
            let expected = if by_rows { ["c0", "c6"] } else { ["A", "C"] };
            assert_eq!([&parts[0][0], &parts[1][0]], expected, "{algo} {input}");
            assert_eq!(parts[0].len() + parts[1].len(), if by_rows { 12 } else { 4 }, "{algo} {input}");
            for command in ["evaluate", "project"] {
                let line = format!("{command} {} --json --input", at("o.h5").display());
                let error = |matrix: &str| number(&summary(&format!("{line} {}", at(matrix).display())), "rel_error");
                let (same, shuffled) = (error("whole.csv"), error("shuffled.csv"));
                assert!((same - shuffled).abs() < 1e-9, "{algo} {input} {command}: {same} {shuffled}");
                let done = fednmf(0, &line).arg(at("whole.csv")).run();
                assert!(!done.stderr.contains("by position"), "{algo} {input} {command}: {}", done.stderr);
                if command == "evaluate" {
                    let name = if by_rows { "x7" } else { "X" };
                    fednmf(0, &line).arg(at("other.csv")).refused(&[name]);
                }
            }
        }
    }
}

#[test]
fn a_projection_of_a_matrix_without_names_keeps_those_of_v() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = example();
    annotated(&at("train.h5ad"), &x, &["A", "B", "C", "D"]);
    annotated(&at("shuffled.h5ad"), &x.select(ndarray::Axis(1), &[2, 0, 3, 1]), &["C", "A", "D", "B"]);
    let text: String =
        x.outer_iter().map(|row| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n").collect();
    std::fs::write(at("plain.csv"), text).unwrap();
    fednmf(0, "--algo hals -k 2 --max-iters 30 --input").arg(at("train.h5ad")).arg("--output").arg(at("f.h5")).ok();
    for output in ["p.h5", "p.npz", "p.h5ad"] {
        let project = fednmf(0, "project --header no --index-col no --input").arg(at("plain.csv")).arg(at("f.h5"));
        let done = project.arg("--output").arg(at(output)).run();
        assert!(done.code == Some(0) && done.stderr.contains("by position"), "{}", done.stderr);
        let evaluated = |matrix: &str| {
            let line = format!("evaluate {} --json --input {}", at(output).display(), at(matrix).display());
            number(&summary(&line), "rel_error")
        };
        // The rows have no names, so they are matched by position, also where AnnData has numbers in place of names.
        assert!((evaluated("train.h5ad") - evaluated("shuffled.h5ad")).abs() < 1e-9, "{output}");
    }
    let file = hdf5::File::open(at("p.h5")).unwrap();
    assert!(file.attr("column_names").is_ok() && !file.attr_names().unwrap().contains(&"row_names".to_string()));
    let file = hdf5::File::open(at("p.h5ad")).unwrap();
    let index = |frame: &str| file.dataset(&format!("{frame}/_index")).unwrap().read_raw::<VarLenUnicode>().unwrap();
    assert_eq!((index("obs")[3].as_str(), index("var")[3].as_str()), ("3", "D"));
}

/// The JSON that a subcommand prints.
fn summary(line: &str) -> serde_json::Value {
    let done = fednmf(0, line).run();
    assert_eq!(done.code, Some(0), "{line}\n{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{line}: {e}\n{}", done.stdout))
}

#[test]
fn files_of_parties_have_the_same_columns() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = example();
    annotated(&at("p0.h5ad"), &x, &["A", "B", "C", "D"]);
    annotated(&at("p1.h5ad"), &x, &["A", "B", "D", "C"]);
    let pattern = at("p{party}.h5ad");
    for algo in ["fnmf", "hals"] {
        let run = fednmf(2, &format!("--algo {algo} -k 2 --max-iters 2 --input")).arg(&pattern);
        run.refused(&["different names", "same columns in the same order"]);
    }
    annotated(&at("p1.h5ad"), &x, &["A", "B", "C", "D"]);
    let run = fednmf(2, "--algo hals -k 2 --max-iters 2 --input").arg(&pattern);
    run.arg("--output").arg(at("o.h5ad")).ok();
    let file = hdf5::File::open(at("o.h5ad")).unwrap();
    let index = |frame: &str| file.dataset(&format!("{frame}/_index")).unwrap().read_raw::<VarLenUnicode>().unwrap();
    assert_eq!(index("obs").len(), 24);
    assert_eq!((index("obs")[13].as_str(), index("var")[1].as_str()), ("cell1", "B"));
}

#[test]
fn files_of_different_widths_are_columns_side_by_side() {
    let dir = tempdir().unwrap();
    let pattern = dir.path().join("w-{party}.npy");
    let sizes = [5, 7, 4];
    for (party, columns) in sizes.into_iter().enumerate() {
        let x = Array2::from_shape_fn((12, columns), |(i, j)| (1 + (i * j + party) % 5) as f64);
        save_npy(&dir.path().join(format!("w-{party}.npy")), &x);
    }
    let line = |line: &str| format!("{line} --input {}", pattern.display());
    let found = summary(&line("estimate --json -k 2 --algo secure-hals"));
    assert_eq!((&found["m"], &found["n"]), (&12.into(), &16.into()));
    fednmf(0, &line("estimate -k 2 --algo fnmf")).refused(&["the file of party 1", "7 columns"]);
    let done = fednmf(0, &format!("inspect --json {}", pattern.display())).run();
    let found: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&found["rows"], &found["cols"]), (&12.into(), &16.into()));
    assert!(done.stderr.contains("side by side"), "{}", done.stderr);
    // Equal widths are stacked as a method of private columns does, too.
    for party in 0..3 {
        save_npy(&dir.path().join(format!("w-{party}.npy")), &Array2::ones((12, 5)));
    }
    let found = summary(&line("estimate --json -k 2 --algo secure-hals"));
    assert_eq!((&found["m"], &found["n"]), (&12.into(), &15.into()));
    let done = fednmf(0, &format!("inspect --json {}", pattern.display())).run();
    assert!(done.stdout.contains("\"rows\":36") && done.stderr.contains("stacked by rows"), "{}", done.stderr);
}

#[test]
fn factors_meet_a_matrix_as_they_were_made() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let digits = data("digits.npy");
    for (i, (options, leading)) in [
        ("--algo hals --scale max", "rel_error"),
        ("--algo hals --missing zero-unobserved", "rel_error"),
        ("--algo elbmf --parties 1 --binarize q0.8", "f1"),
        ("--algo kl-mu", "kl_divergence"),
        ("--algo kl-cd", "kl_divergence"),
    ]
    .into_iter()
    .enumerate()
    {
        let output = at(&format!("o{i}.h5"));
        let line = format!("{options} -k 4 --max-iters 20 --output {} --input {}", output.display(), digits.display());
        let run = &session::ok(1, &[line])[0];
        let stored = hdf5::File::open(&output).unwrap();
        if !stored.link_exists("U") {
            continue;
        }
        let evaluated = summary(&format!("evaluate {} --json --input {}", output.display(), digits.display()));
        for name in [leading, "rel_error"] {
            let (there, here) = (number(run, name), number(&evaluated, name));
            assert!((there - here).abs() <= 1e-9 * there.abs(), "{options}: {name} {there} {here}");
        }
        if leading != "f1" {
            let projected = summary(&format!("project {} --json --input {}", output.display(), digits.display()));
            let (there, here) = (number(run, "rel_error"), number(&projected, "rel_error"));
            // With the best U for this V, no squared error is larger; the divergence is another objective.
            assert!(here <= there + 1e-9 || leading == "kl_divergence", "{options}: {there} {here}");
        }
    }
}

/// Permission bits of a file.
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn secrets_are_readable_by_their_owner_alone() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let line = "--algo syn-sd --parties 2 -k 2 --max-iters 2 --input synthetic:planted,m=20,n=16,k=2";
    let run = || fednmf(1, line).arg("--output").arg(at("o.h5")).arg("--checkpoint").arg(at("c.h5"));
    run().ok();
    let private: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).filter(|p| *p != at("o.h5")).collect();
    assert!(private.len() >= 4, "{private:?}");
    for path in private {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn private_data_leaves_no_fingerprint_and_is_compared_on_resume() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = example();
    annotated(&at("p0.h5ad"), &x, &["A", "B", "C", "D"]);
    annotated(&at("p1.h5ad"), &x, &["A", "B", "C", "D"]);
    let run = |iterations: usize| {
        fednmf(2, &format!("--algo fnmf --parties 2 -k 2 --max-iters {iterations} --input"))
            .arg(at("p{party}.h5ad"))
            .arg("--checkpoint")
            .arg(at("c.h5"))
            .arg("--trace")
            .arg(at("t.jsonl"))
            .arg("--output")
            .arg(at("o.h5"))
    };
    run(2).ok();
    assert!(crate::common::events(&at("t.jsonl")).iter().all(|event| event["checksum"].is_null()));
    assert!(!hdf5::File::open(at("o.h5")).unwrap().attr_names().unwrap().contains(&"checksum".to_string()));
    run(3).arg("--resume").ok();
    annotated(&at("p1.h5ad"), &(&x + 1.0), &["A", "B", "C", "D"]);
    let changed = run(4).arg("--resume").run();
    assert!(changed.code == Some(2) && changed.stderr.contains("party 1"), "{}", changed.stderr);
}

#[test]
fn devices_and_pipes_stay_what_they_are() {
    let dir = tempdir().unwrap();
    let pipe = dir.path().join("pipe.h5");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let run = || fednmf(0, "--algo hals -k 2 --max-iters 1 --input").arg(data("digits.npy"));
    for option in ["--output", "--checkpoint"] {
        run().arg(option).arg(&pipe).refused(&[option, "device or a pipe"]);
    }
    let pipe = dir.path().join("pipe.html");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    run().arg("--report").arg(&pipe).refused(&["--report", "device or a pipe"]);
    let matrix = dir.path().join("pipe.npy");
    assert!(std::process::Command::new("mkfifo").arg(&matrix).status().unwrap().success());
    fednmf(0, "generate planted,m=9,n=5,k=2 --output").arg(matrix).refused(&["pipe.npy", "device or a pipe"]);
    let made = std::fs::symlink_metadata(&pipe).unwrap();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&made.file_type()));
}

#[test]
fn a_transcript_has_a_file_of_its_own() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |ranks| fednmf(ranks, "--algo hals -k 2 --max-iters 1 --input").arg(data("digits.npy"));
    for (ranks, option, name, transcript) in [
        (0, "--output", "x.h5", "x.h5"),
        (0, "--trace", "x.jsonl.key", "x.jsonl"),
        (2, "--trace", "x.rank-00.jsonl", "x.jsonl"),
    ] {
        run(ranks).arg(option).arg(at(name)).arg("--transcript").arg(at(transcript)).refused(&["--transcript", option]);
    }
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn a_result_that_cannot_be_printed_is_a_failure() {
    let digits = data("digits.npy");
    let digits = digits.to_str().unwrap();
    for line in [
        "list",
        "--algo hals -k 2 --max-iters 1 --json --input DIGITS",
        "inspect DIGITS",
        "account --noise 2 --releases 2",
    ] {
        let binary = env!("CARGO_BIN_EXE_fednmf");
        let words: Vec<String> = line.split(' ').map(|word| word.replace("DIGITS", digits)).collect();
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let done = std::process::Command::new(binary).args(words).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(1) && stderr.contains("standard output"), "{line}: {stderr}");
    }
}

#[test]
fn other_files_under_the_names_of_outputs_are_kept() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["o.party-01.h5", "order.csv", "m.npy"] {
        fs::write(at(name), "my own, and older").unwrap();
    }
    let private =
        |more: &str| fednmf(0, &format!("{more} --parties 3 -k 2 --max-iters 2 --input")).arg(data("digits.npy"));
    private("--algo syn-sd").arg("--output").arg(at("o.h5")).refused(&["o.party-01.h5"]);
    private("--algo asyn-sd").arg("--record-order").arg(at("order.csv")).refused(&["--record-order", "order.csv"]);
    fednmf(0, "generate planted,m=9,n=5 --output").arg(at("m.npy")).refused(&["m.npy", "not replaced"]);
    for name in ["o.party-01.h5", "order.csv", "m.npy"] {
        assert_eq!(fs::read(at(name)).unwrap(), b"my own, and older");
    }
    fs::create_dir(at("d.party-02.h5")).unwrap();
    private("--algo fnmf").arg("--output").arg(at("d.h5")).refused(&["--output", "d.party-02.h5"]);
    assert!(!at("d.h5").exists());
    fs::create_dir(at("sweep")).unwrap();
    fs::write(at("sweep/sweep.json"), "my own, and older").unwrap();
    let sweep = fednmf(0, "sweep -k 2 --runs 1 --max-iters 1 --input").arg(data("digits.npy"));
    sweep.arg("--output").arg(at("sweep")).refused(&["sweep.json", "not replaced"]);
    let factors = at("f.h5ad");
    fednmf(0, "--algo hals -k 2 --max-iters 1 --input").arg(data("digits.npy")).arg("--output").arg(&factors).ok();
    let onto = fednmf(0, "project").arg(&factors).arg("--input").arg(data("digits.npy")).arg("--add-to").arg(&factors);
    onto.refused(&["--add-to", "FACTORS"]);
}

#[test]
fn factors_are_added_through_a_link_to_the_file_behind_it() {
    let dir = tempdir().unwrap();
    let input = copied(dir.path(), "formats/counts.h5ad");
    let link = dir.path().join("link.h5ad");
    std::os::unix::fs::symlink(&input, &link).unwrap();
    fednmf(0, "--algo hals -k 2 --max-iters 1 --input").arg(&input).arg("--add-to").arg(&link).ok();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(hdf5::File::open(&input).unwrap().link_exists("obsm/X_nmf"));
}

#[test]
fn an_output_replaces_no_link() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |output: &Path| {
        let run = fednmf(0, "--algo hals -k 2 --max-iters 1 --input synthetic:planted,m=12,n=9,k=2 --output");
        run.arg(output)
    };
    run(&at("o.h5")).ok();
    let before = fs::read(at("o.h5")).unwrap();
    for (link, target) in [("link.h5", "o.h5"), ("dangling.h5", "none.h5")] {
        std::os::unix::fs::symlink(at(target), at(link)).unwrap();
        run(&at(link)).refused(&["--output", link, "symbolic link"]);
        assert_eq!(fs::read_link(at(link)).unwrap(), at(target));
    }
    assert!(fs::read(at("o.h5")).unwrap() == before && !at("none.h5").exists());
    fednmf(0, "generate planted,m=9,n=5 --output").arg(at("dangling.h5")).run();
    assert!(fs::symlink_metadata(at("dangling.h5")).unwrap().is_symlink());
}

/// A matrix without names and an AnnData file with names are matched by position, and a message says so.
#[test]
fn factors_are_added_by_position_with_a_warning() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = example();
    annotated(&at("named.h5ad"), &x, &["A", "B", "C", "D"]);
    save_npy(&at("plain.npy"), &x);
    fednmf(0, "-k 2 --max-iters 1 --input").arg(at("plain.npy")).arg("--output").arg(at("numbered.h5ad")).ok();
    fednmf(0, "-k 2 --max-iters 1 --input").arg(at("plain.npy")).arg("--output").arg(at("f.h5")).ok();
    let added = |line: &str, to: &str| {
        let done = fednmf(0, line).arg("--input").arg(at("plain.npy")).arg("--add-to").arg(at(to)).run();
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        done.stderr
    };
    let project = format!("project {}", at("f.h5").display());
    for line in ["-k 2 --max-iters 1", &project] {
        let stderr = added(line, "named.h5ad");
        for what in ["rows are matched by position", "columns are matched by position"] {
            assert!(stderr.contains(what) && stderr.contains("named.h5ad"), "{line}: {stderr}");
        }
        // The numbers that AnnData files have in place of names are positions.
        assert!(!added(line, "numbered.h5ad").contains("by position"));
    }
    let named = fednmf(0, "-k 2 --max-iters 1 --input").arg(at("named.h5ad")).arg("--add-to").arg(at("named.h5ad"));
    assert!(!named.run().stderr.contains("by position"));
}

#[test]
fn a_missing_party_and_another_orientation_are_noticed() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for party in [0, 2] {
        annotated(&at(&format!("p{party}.h5ad")), &example(), &["A", "B", "C", "D"]);
    }
    for algo in ["hals", "fnmf"] {
        let run = fednmf(0, &format!("--algo {algo} -k 2 --max-iters 1 --input")).arg(at("p{party}.h5ad"));
        run.refused(&["party 2", "party 1"]);
    }
    // The shape of a square matrix does not show its orientation.
    let square = at("square.npy");
    assert_eq!(fednmf(0, "generate planted,m=12,n=12 --output").arg(&square).run().code, Some(0));
    let run = fednmf(0, "--algo hals --transpose -k 2 --max-iters 3 --input").arg(&square);
    run.arg("--output").arg(at("f.h5")).ok();
    for command in ["evaluate", "project"] {
        let wrong = fednmf(0, command).arg(at("f.h5")).arg("--input").arg(&square);
        wrong.refused(&["--transpose"]);
    }
    summary(&format!("evaluate {} --transpose --json --input {}", at("f.h5").display(), square.display()));
}

#[test]
fn a_projection_keeps_what_was_missing() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let digits = data("digits.npy").display().to_string();
    summary(&format!("--algo hals -k 3 --max-iters 9 --json --quiet --input {digits} --output {}", at("f.h5")));
    let line =
        format!("project {} --missing zero-unobserved --json --input {digits} --output {}", at("f.h5"), at("p.h5"));
    let projected = number(&summary(&line), "rel_error");
    let evaluated = number(&summary(&format!("evaluate {} --json --input {digits}", at("p.h5"))), "rel_error");
    assert!((projected - evaluated).abs() < 1e-9 * projected, "{projected} {evaluated}");
}

/// A file of projected factors describes its own matrix: penalties, columns without components, missing entries.
#[test]
fn a_projection_on_projected_factors_is_that_on_those_of_the_run() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let table = |name: &str, rows: usize, columns: usize| {
        let title = |j: usize| format!("g{j}");
        let entry = |i: usize, j: usize| ((7 * i + 13 * j + i * j) % 11) as f64;
        let line = |i: usize| (0..columns).map(|j| entry(i, j).to_string()).collect::<Vec<_>>().join(",");
        let lines = std::iter::once((0..columns).map(title).collect::<Vec<_>>().join(",")).chain((0..rows).map(line));
        fs::write(at(name), lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    };
    table("old.csv", 30, 10);
    table("new.csv", 8, 50);
    let project = |from: &str, input: &str, to: &str| {
        let line = format!("project {} --quiet --json --input {} --output {}", at(from), at(input), at(to));
        let done = fednmf(0, &line).run();
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    };
    for penalty in ["--alpha-u 0.05", "--alpha-u 0.05 --alpha-v 0.02 --l1-ratio 0.3"] {
        let run = format!(
            "{} --algo hals -k 2 {penalty} --max-iters 50 --quiet --json --output {}",
            at("old.csv"),
            at("f.h5")
        );
        let objective = |from: &str, input: &str| {
            number(&summary(&format!("evaluate {} --json --input {}", at(from), at(input))), "objective")
        };
        summary(&run);
        let before = project("f.h5", "new.csv", "once.h5");
        assert!(!before.stderr.contains("an earlier projection"), "{before:?}");
        project("once.h5", "old.csv", "back.h5");
        project("f.h5", "old.csv", "direct.h5");
        let [back, direct] = ["back.h5", "direct.h5"].map(|name| matrix(Path::new(&at(name)), "U"));
        assert!(crate::common::distance(&back, &direct) < 1e-9, "{penalty}");
        let [back, direct] = ["back.h5", "direct.h5"].map(|name| objective(name, "old.csv"));
        assert!((back - direct).abs() < 1e-9 * direct, "{penalty}: {back} {direct}");
        let again = project("once.h5", "new.csv", "twice.h5");
        for told in [again, fednmf(0, &format!("evaluate {} --input {}", at("twice.h5"), at("new.csv"))).run()] {
            assert!(told.stderr.contains("an earlier projection ignored 40 of these 50 columns"), "{told:?}");
        }
    }
}

/// A row has the same component in whatever company it is projected.
#[test]
fn clusters_of_projected_rows_are_those_of_the_run() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let entry = |(i, j): (usize, usize)| {
        f64::from(u8::from(i / 20 == j * 3 / 40)) + ((7 * i + 13 * j + i * j) % 11) as f64 / 12.0
    };
    let all = Array2::from_shape_fn((60, 40), entry);
    save_npy(&dir.path().join("all.npy"), &all);
    summary(&format!("--algo hals -k 3 --quiet --json --input {} --output {}", at("all.npy"), at("f.h5")));
    let clusters = |file: &str| -> Vec<String> {
        let done = fednmf(0, &format!("clusters {}", at(file))).run();
        done.stdout.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap_or_default().to_string()).collect()
    };
    let before = clusters("f.h5");
    for first in 0..3 {
        // Rows of one component alone, nearly.
        let rows: Vec<usize> = (0..60).filter(|i| before[*i] == first.to_string() || i % 20 == 0).collect();
        save_npy(&dir.path().join("some.npy"), &all.select(ndarray::Axis(0), &rows));
        summary(&format!("project {} --quiet --json --input {} --output {}", at("f.h5"), at("some.npy"), at("p.h5")));
        summary(&format!("project {} --quiet --json --input {} --output {}", at("p.h5"), at("some.npy"), at("q.h5")));
        for file in ["p.h5", "q.h5"] {
            let expected: Vec<&String> = rows.iter().map(|i| &before[*i]).collect();
            assert_eq!(clusters(file).iter().collect::<Vec<_>>(), expected, "{file}");
        }
    }
}

#[test]
fn a_projection_has_its_own_missing_entries() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let entry = |(i, j): (usize, usize)| ((5 * i + 3 * j + i * j) % 7 + 1) as f64;
    let mark = |every: usize| move |(i, j): (usize, usize)| f64::from(u8::from((i + 2 * j) % every == 0));
    for (name, rows, marks, every) in [("a.npy", 30, "of-a.npy", 9), ("b.npy", 20, "of-b.npy", 11)] {
        save_npy(Path::new(&at(name)), &Array2::from_shape_fn((rows, 24), entry));
        save_npy(Path::new(&at(marks)), &Array2::from_shape_fn((rows, 24), mark(every)));
    }
    let run = format!(
        "{} --algo hals -k 3 --max-iters 20 --quiet --json --missing {} --output {}",
        at("a.npy"),
        at("of-a.npy"),
        at("f.h5")
    );
    summary(&run);
    let line = format!(
        "project {} --json --quiet --input {} --missing {} --output {}",
        at("f.h5"),
        at("b.npy"),
        at("of-b.npy"),
        at("p.h5")
    );
    let projected = number(&summary(&line), "rel_error");
    for missing in [String::new(), format!("--missing {}", at("of-b.npy"))] {
        let found = summary(&format!("evaluate {} --json --input {} {missing}", at("p.h5"), at("b.npy")));
        assert!((number(&found, "rel_error") - projected).abs() < 1e-9, "{missing}: {found} {projected}");
    }
    fednmf(0, &format!("evaluate {} --input {} --missing {}", at("p.h5"), at("b.npy"), at("of-a.npy")))
        .refused(&["of-a.npy"]);
}

#[test]
fn projected_factors_have_the_divergence_of_those_before() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let input = "--input synthetic:planted,m=30,n=20,k=3";
    for (method, measure) in [("kl-cd", "kl_divergence"), ("beta-mu --beta 0.5", "beta_divergence")] {
        let run = format!("--algo {method} -k 3 --max-iters 20 --json --quiet {input} --output {}", at("f.h5"));
        summary(&run);
        // Projected factors may be projected on again.
        for (from, to) in [("f.h5", "once.h5"), ("once.h5", "twice.h5")] {
            let projected = summary(&format!("project {} --json {input} --output {}", at(from), at(to)));
            let evaluated = summary(&format!("evaluate {} --json {input}", at(to)));
            let (told, found) = (number(&projected, measure), number(&evaluated, measure));
            assert!((told - found).abs() < 1e-9 * told, "{method}, {to}: {told} {found}");
        }
    }
}

/// A larger gain leaves fewer components, the same on any number of ranks and from a file read in panels.
#[test]
fn projections_have_few_components_on_request() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let input = "synthetic:sparse,m=60,n=40,density=0.5,values=counts,seed=2";
    for algo in ["hals", "kl-cd"] {
        summary(&format!("--algo {algo} -k 6 --max-iters 50 --json --quiet --input {input} --output {}", at("f.h5")));
        let project = |ranks: usize, words: &str| {
            let line = format!("project {} --json --input {input} {words} --output {}", at("f.h5"), at("p.h5"));
            let done = fednmf(ranks, &line).run();
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            let found: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
            let u = matrix(Path::new(&at("p.h5")), "U");
            (u.iter().filter(|x| **x > 0.0).count(), found["rel_error"].as_f64().unwrap(), u)
        };
        let (all, least, _) = project(0, "");
        let (same, error, _) = project(0, "--min-gain 0");
        assert!(same <= all && (error / least - 1.0).abs() < 1e-6, "{algo}: {error} {least}");
        let (few, more, u) = project(0, "--min-gain 0.02");
        assert!(few < all - 10 && more > least, "{algo}: {few} {all} {more} {least}");
        for ranks in 1..=4 {
            let (_, _, other) = project(ranks, "--min-gain 0.02");
            assert!((&other - &u).iter().all(|e| e.abs() < 1e-7), "{algo}, {ranks}");
        }
        let wrong = |words: &str| fednmf(0, &format!("project {} --input {input} {words}", at("f.h5")));
        wrong("--min-gain 2").refused(&["--min-gain"]);
        wrong("--min-gain 0.1 --missing zero-unobserved").refused(&["--min-gain", "missing"]);
    }
    let beta =
        format!("--algo beta-mu --beta 1.5 -k 3 --max-iters 5 --json --quiet --input {input} --output {}", at("b.h5"));
    summary(&beta);
    fednmf(0, &format!("project {} --min-gain 0.1 --input {input}", at("b.h5"))).refused(&["--min-gain"]);
}

/// `admm` belongs to the methods of parties, but gives all factors to all of them.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn factors_that_all_parties_have_keep_all_names() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    table(&at("t.csv"), &(0..12).collect::<Vec<_>>(), &[0, 1, 2, 3]);
    for ranks in [0, 2] {
        let run = fednmf(ranks, "--algo admm --parties 2 -k 2 --max-iters 5 --input").arg(at("t.csv"));
        run.arg("--output").arg(at("o.h5")).ok();
        assert_eq!(list_of(&at("o.h5"), "row_names").map(|names| names.len()), Some(12));
        assert_eq!(list_of(&at("o.h5"), "column_names").unwrap(), ["A", "B", "C", "D"]);
    }
}

/// A moved output still refers to the files of its parties.
#[test]
fn files_of_parties_go_only_with_the_output_that_they_belong_to() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let line =
        |algo: &str| format!("--algo {algo} -k 2 --max-iters 3 --input synthetic:planted,m=20,n=10,k=2 --output");
    let run = |algo: &str| fednmf(0, &line(algo)).arg(at("o.h5")).ok();
    run("fnmf --parties 2");
    fs::rename(at("o.h5"), at("kept.h5")).unwrap();
    for ranks in [0, 2] {
        let again = fednmf(ranks, &line("fnmf --parties 2 --seed 1")).arg(at("o.h5"));
        again.refused(&["an output that was moved needs it"]);
    }
    assert!(!at("o.h5").exists());
    run("hals");
    assert!(at("o.party-00.h5").exists() && at("o.party-01.h5").exists());
    fs::rename(at("kept.h5"), at("o.h5")).unwrap();
    run("hals");
    assert!(!at("o.party-00.h5").exists() && !at("o.party-01.h5").exists(), "they belonged to what was replaced");
}

/// The placeholder for the parties of an input is refused in an output: the files next to `F-{party}.h5` would not be
/// recognised.
#[test]
fn the_word_for_parties_names_no_output() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("u-00.party-00.h5"), "mine").unwrap();
    let line = "--algo syn-sd --parties 2 -k 2 --max-iters 2 --input synthetic:planted,m=12,n=8,k=2";
    for (ranks, option, name) in
        [(0, "--output", "u-{party}.h5"), (2, "--checkpoint", "{party}/c.h5"), (2, "--trace", "t-{party}.jsonl")]
    {
        fednmf(ranks, &format!("{line} {option}")).arg(at(name)).refused(&[option, "{party} stands for", "--input"]);
    }
    assert_eq!(fednmf(0, "generate planted,m=12,n=8,k=2 --output").arg(at("m.npy")).run().code, Some(0));
    let prepare =
        fednmf(0, "prepare quantile --quantile 0.5").arg(at("m.npy")).arg("--output").arg(at("q-{party}.npy"));
    prepare.own_process().refused(&["--output", "{party} belongs to"]);
    assert_eq!(fs::read_to_string(at("u-00.party-00.h5")).unwrap(), "mine");
}

#[test]
fn a_checkpoint_beyond_the_last_iteration_is_warned_of() {
    let dir = tempdir().unwrap();
    let line = |iterations: usize| format!("--algo hals -k 2 --max-iters {iterations} --resume --checkpoint");
    let run = |iterations| {
        let run = fednmf(0, &line(iterations)).arg(dir.path().join("c.h5"));
        run.arg("--input").arg("synthetic:planted,m=20,n=10,k=2").run()
    };
    let first = run(20);
    assert!(first.code == Some(0) && !first.stderr.contains("--max-iters 20"), "{}", first.stderr);
    let second = run(10);
    assert!(second.stderr.contains("--max-iters 10: the checkpoint is of iteration 20"), "{}", second.stderr);
}

/// A run ends as usual even if nobody reads its progress.
#[test]
fn a_stderr_that_cannot_be_written_ends_no_run() {
    let dir = tempdir().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fednmf"));
    command.args("-i synthetic:planted,m=40,n=30,k=3 -k 3 --max-iters 20 --eval-every 1 -o".split(' '));
    let done = command.arg(dir.path().join("o.h5")).stderr(full).output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    assert!(dir.path().join("o.h5").exists() && !done.stdout.is_empty());
}

/// Factors are added to the existing contents: a group of the user's under their name is not replaced.
#[test]
fn a_foreign_group_is_not_replaced_by_added_factors() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("a.h5ad");
    let run =
        |option: &str| fednmf(0, &format!("-i synthetic:planted,m=40,n=30,k=3 -k 3 --max-iters 5 {option}")).arg(&file);
    run("-o").ok();
    let open = hdf5::File::open_rw(&file).unwrap();
    for factor in ["obsm/X_nmf", "varm/NMF", "uns/nmf"] {
        open.unlink(factor).unwrap();
    }
    open.create_group("uns/nmf").unwrap().new_dataset::<f64>().create("my_params").unwrap();
    drop(open);
    run("--add-to").refused(&["uns/nmf", "did not write"]);
}

/// A list of whole numbers may be anything; the order of merges begins with a line that says what it is.
#[test]
fn an_order_of_merges_replaces_no_other_list() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = |words: &str, name: &str| {
        let line = format!("--algo asyn-sd --parties 2 -i synthetic:planted,m=40,n=30,k=3 -k 3 --max-iters 4 {words}");
        fednmf(0, &line).arg(at(name))
    };
    fs::write(at("labels.txt"), "3\n14\n15\n").unwrap();
    run("--record-order", "labels.txt").refused(&["labels.txt", "an order of merges"]);
    run("--record-order", "order.txt").ok();
    run("--record-order", "order.txt").ok();
    let before = fs::read_to_string(at("order.txt")).unwrap();
    let line = format!("--replay {} --record-order", at("order.txt").display());
    run(&line, "order.txt").refused(&["order.txt", "--replay"]);
    run("--replay", "order.txt").ok();
    assert_eq!(fs::read_to_string(at("order.txt")).unwrap(), before);
}

#[test]
fn files_of_parties_and_their_budgets_have_no_gaps() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for party in 1..=3 {
        fs::write(at(&format!("y-{party}.csv")), "1,2,3\n4,5,6\n").unwrap();
        fs::write(at(&format!("b-{party}.json")), r#"{"fednmf_budget": 1, "limit": 2, "runs": []}"#).unwrap();
    }
    let parties = fednmf(0, "--algo fnmf -k 1 --max-iters 1 --input").arg(at("y-{party}.csv"));
    parties.refused(&["a file for party 3, but none for party 0"]);
    fednmf(0, "account --budget").arg(at("b-{party}.json")).refused(&["b-0.json", "cannot be read"]);
    fs::write(at("b-0.json"), r#"{"fednmf_budget": 1, "limit": 2, "runs": []}"#).unwrap();
    let told = fednmf(0, "account --budget").arg(at("b-{party}.json")).run();
    assert_eq!((told.code, told.stdout.matches("a budget for all runs").count()), (Some(0), 4), "{told:?}");
    fs::remove_file(at("b-2.json")).unwrap();
    fednmf(0, "account --budget").arg(at("b-{party}.json")).refused(&["b-2.json"]);
}

#[test]
fn a_quantile_above_all_entries_is_refused_as_such() {
    let line = "--binarize q0.999 -i synthetic:planted,m=10,n=10,k=2 -k 1 --algo felb --parties 1";
    fednmf(0, line).refused(&["q0.999", "less than one"]);
}

/// Adds an array to a .npz as numpy.savez would write all of it again.
fn add_array(path: &Path) {
    let mut old = zip::ZipArchive::new(fs::File::open(path).unwrap()).unwrap();
    let mut new = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for i in 0..old.len() {
        new.raw_copy_file(old.by_index(i).unwrap()).unwrap();
    }
    let array = path.with_file_name("clusters.npy");
    write_npy(&array, "|u1", (1, 3), &[1, 2, 3]);
    let plain = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    new.start_file("clusters.npy", plain).unwrap();
    new.write_all(&fs::read(array).unwrap()).unwrap();
    fs::write(path, new.finish().unwrap().into_inner()).unwrap();
}

#[test]
fn an_output_to_which_anything_was_added_is_not_replaced() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, add) in [
        ("o.npz", &add_array as &dyn Fn(&Path)),
        ("o.h5", &|path: &Path| {
            let file = hdf5::File::open_rw(path).unwrap();
            file.new_attr::<f64>().create("threshold").unwrap().write_scalar(&0.5).unwrap();
        }),
        ("o.h5ad", &|path: &Path| {
            let group = hdf5::File::open_rw(path).unwrap().group("uns/nmf").unwrap();
            group.new_dataset::<f64>().create("threshold").unwrap().write_scalar(&0.5).unwrap();
        }),
        ("n.h5ad", &|path: &Path| {
            let group = hdf5::File::open_rw(path).unwrap().group("uns/nmf").unwrap();
            group.new_attr::<f64>().create("note").unwrap().write_scalar(&0.5).unwrap();
        }),
        ("p.h5ad", &|path: &Path| {
            let group = hdf5::File::open_rw(path).unwrap().group("obs").unwrap();
            group.new_dataset::<f64>().shape(3).create("mine").unwrap();
        }),
    ] {
        let run = || {
            let line = "--algo hals -k 2 --max-iters 2 --input synthetic:planted,m=12,n=9 --output";
            fednmf(0, line).arg(at(name))
        };
        run().ok();
        run().ok();
        add(&at(name));
        let before = fs::read(at(name)).unwrap();
        run().refused(&["--output", name, "not replaced"]);
        assert!(fs::read(at(name)).unwrap() == before, "{name}");
        // It can still be read.
        let read = fednmf(0, "evaluate").arg(at(name)).arg("--input").arg("synthetic:planted,m=12,n=9").run();
        assert_eq!(read.code, Some(0), "{}", read.stderr);
    }
}

/// The parties' files are protected like the shared one, whether the next run replaces or removes them.
#[test]
fn a_file_of_a_party_to_which_anything_was_added_is_kept() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (output, own) in [("a.h5", "a.party-02.h5"), ("a.npz", "a.party-02.npz")] {
        let run = |more: &str| {
            let line = format!("{more} -k 2 --max-iters 2 --input synthetic:planted,m=30,n=12 --output");
            fednmf(0, &line).arg(at(output))
        };
        run("--algo fnmf --parties 3").ok();
        run("--algo fnmf --parties 3").ok();
        if output.ends_with("npz") {
            add_array(&at(own));
        } else {
            let file = hdf5::File::open_rw(at(own)).unwrap();
            file.new_attr::<f64>().create("threshold").unwrap().write_scalar(&0.5).unwrap();
        }
        let before = fs::read(at(own)).unwrap();
        for more in ["--algo fnmf --parties 3", "--algo fnmf --parties 2", "--algo hals"] {
            run(more).refused(&["--output", own, "added to it"]);
        }
        assert!(fs::read(at(own)).unwrap() == before && at(&own.replace("02", "01")).exists(), "{own}");
    }
}

/// Lists of names with a line too few or too many would label every row after it wrongly.
#[test]
fn names_beside_a_matrix_are_as_many_as_its_rows_and_columns() {
    let dir = tempdir().unwrap();
    let tenx = dir.path().join("10x");
    let write = |genes: &str, cells: &str| {
        fs::create_dir_all(&tenx).unwrap();
        fs::write(
            tenx.join("matrix.mtx"),
            "%%MatrixMarket matrix coordinate integer general\n2 3 3\n1 1 4\n2 2 5\n1 3 6\n",
        )
        .unwrap();
        fs::write(tenx.join("features.tsv"), genes).unwrap();
        fs::write(tenx.join("barcodes.tsv"), cells).unwrap();
    };
    let run = || fednmf(0, "-k 1 --max-iters 2 --input").arg(&tenx);
    let (genes, cells) = ("id1\tA\nid2\tB\n", "c1\nc2\nc3\n");
    write(genes, cells);
    run().ok();
    write(genes, "barcode\nc1\nc2\nc3\n");
    run().refused(&["4 names of columns", "3 columns"]);
    write("id1\tA\n", cells);
    run().refused(&["1 names of rows", "2 rows"]);

    let path = dir.path().join("10x.h5");
    fs::copy(data("formats/counts-10x.h5"), &path).unwrap();
    let h5 = || fednmf(0, "-k 1 --max-iters 2 --input").arg(&path);
    h5().ok();
    let file = hdf5::File::open_rw(&path).unwrap();
    file.unlink("matrix/barcodes").unwrap();
    let short: Vec<VarLenUnicode> = vec!["c1".parse().unwrap()];
    file.new_dataset_builder().with_data(&short).create("matrix/barcodes").unwrap();
    drop(file);
    h5().refused(&["1 names of columns"]);
}

#[test]
fn the_items_of_all_parties_have_the_same_numbers() {
    let dir = tempdir().unwrap();
    // Party 1 has no item 0, and no item 4.
    fs::write(dir.path().join("p-0.dat"), "0 2\n1 4\n0 1\n").unwrap();
    fs::write(dir.path().join("p-1.dat"), "1 3\n2 3\n").unwrap();
    let pattern = dir.path().join("p-{party}.dat");
    let told = fednmf(0, "inspect --json").arg(&pattern).run();
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!((&told["rows"], &told["cols"], &told["nonzeros"]), (&5.into(), &5.into(), &10.into()), "{told}");
    let out = dir.path().join("o.h5");
    fednmf(2, "--algo asso --parties 2 -k 2 --output").arg(&out).arg("--input").arg(&pattern).ok();
    assert_eq!(matrix(&out, "V").nrows(), 5);
}

/// Jobs of an array may share a directory, and by mistake a file.
#[test]
fn runs_that_write_the_same_file_at_once_do_not_mix() {
    let dir = tempdir().unwrap();
    for name in ["o.npz", "o.h5"] {
        let out = dir.path().join(name);
        let runs: Vec<_> = (2..6)
            .map(|k| {
                let line = "--algo mu --max-iters 2 --input synthetic:planted,m=4000,n=30 --init random --quiet -k";
                fednmf(0, line).arg(k.to_string()).arg("--output").arg(&out).own_process().spawn()
            })
            .collect();
        let ends = runs.into_iter().map(|run| finish(run, std::time::Duration::from_secs(60), "a run beside others"));
        let (done, refused): (Vec<_>, Vec<_>) = ends.partition(|end| end.code == Some(0));
        assert!(!done.is_empty());
        assert!(refused.iter().all(|end| end.code == Some(2) && end.stderr.contains("another run")), "{refused:?}");
        let told = fednmf(0, "evaluate --json").arg(&out).arg("--input").arg("synthetic:planted,m=4000,n=30").run();
        assert_eq!(told.code, Some(0), "{}", told.stderr);
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// A file that a user puts in place of an output during a run is kept, and so is the result.
#[test]
fn what_takes_a_name_during_a_run_is_not_replaced() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = example();
    annotated(&at("in.h5ad"), &x, &["A", "B", "C", "D"]);
    annotated(&at("reordered.h5ad"), &x, &["D", "C", "B", "A"]);
    fs::copy(at("in.h5ad"), at("to.h5ad")).unwrap();
    // While the run is under way, `change` is called; returns the end of the run.
    let during = |outputs: &[(&str, &str)], change: &dyn Fn()| {
        let trace = at("trace.jsonl");
        let _ = fs::remove_file(&trace);
        let line = "--algo hals -k 2 --max-iters 1000000000 --eval-every 0 --time-limit 1.5 --input";
        let run = fednmf(0, line).arg(at("in.h5ad")).arg("--trace").arg(&trace);
        let run = outputs.iter().fold(run, |run, (option, name)| run.arg(option).arg(at(name)));
        let child = run.spawn();
        while !trace.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        change();
        finish(child, std::time::Duration::from_secs(60), "a run whose outputs change")
    };
    let mine = |name: &str| fs::write(at(name), "my own").unwrap();

    let end =
        during(&[("--output", "o.h5"), ("--report", "r.html")], &|| ["o.h5", "r.html"].into_iter().for_each(mine));
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stderr.contains("o-1.h5") && end.stderr.contains("r-1.html"), "{end:?}");
    for name in ["o.h5", "r.html"] {
        assert_eq!(fs::read(at(name)).unwrap(), b"my own");
    }
    assert_eq!(matrix(&at("o-1.h5"), "U").dim(), (12, 2));
    assert!(fs::read_to_string(at("r-1.html")).unwrap().contains("<html"));

    let end = during(&[("--add-to", "to.h5ad")], &|| {
        fs::copy(at("reordered.h5ad"), at("to.h5ad")).unwrap();
    });
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stderr.contains("in another order") && end.stderr.contains("to-1.h5ad"), "{end:?}");
    assert_eq!(fs::read(at("to.h5ad")).unwrap(), fs::read(at("reordered.h5ad")).unwrap());
    assert!(hdf5::File::open(at("to-1.h5ad")).unwrap().link_exists("obsm/X_nmf"));

    let end = during(&[("--checkpoint", "c.h5")], &|| mine("c.h5"));
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stderr.contains("--checkpoint") && end.stderr.contains("not replaced"), "{end:?}");
    assert_eq!(fs::read(at("c.h5")).unwrap(), b"my own");
}

#[test]
fn what_is_read_only_or_has_other_names_is_not_changed() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = || fednmf(0, "--algo hals -k 2 --max-iters 1 --input synthetic:planted,m=12,n=4,k=2");
    run().arg("--output").arg(at("o.h5")).ok();
    let mut rights = fs::metadata(at("o.h5")).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(at("o.h5"), rights).unwrap();
    run().arg("--output").arg(at("o.h5")).refused(&["--output", "read-only"]);
    annotated(&at("a.h5ad"), &example(), &["A", "B", "C", "D"]);
    fs::hard_link(at("a.h5ad"), at("b.h5ad")).unwrap();
    run().arg("--add-to").arg(at("a.h5ad")).refused(&["--add-to", "hard links"]);
}

/// Factors of a matrix with another scale are a bad start.
#[test]
fn a_start_from_factors_of_another_scale_is_told() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    save_npy(&at("x.npy"), &(1000.0 * example()));
    for (made, options) in [("scaled.h5", "--scale max"), ("plain.h5", "")] {
        fednmf(0, &format!("-k 2 --max-iters 1 {options} --input")).arg(at("x.npy")).arg("--output").arg(at(made)).ok();
    }
    let warned = |start: &str, options: &str| {
        let line = format!("--algo hals -k 2 --max-iters 1 {options} --input");
        let done = fednmf(0, &line).arg(at("x.npy")).arg("--init").arg(at(start)).run();
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stderr
    };
    assert!(warned("scaled.h5", "").contains("add --scale max"));
    assert!(warned("plain.h5", "--scale max").contains("omit --scale"));
    for (start, options) in [("scaled.h5", "--scale max"), ("plain.h5", "")] {
        assert!(!warned(start, options).contains("--init"));
    }
}

#[test]
fn a_matrix_larger_than_the_disk_is_not_begun() {
    let dir = tempdir().unwrap();
    for (spec, name) in [("planted,m=1e9,n=1e9,k=1", "m.npy"), ("sparse,m=1e9,n=1e9,density=0.01", "m.npz")] {
        let spec = format!("generate {spec} --output");
        fednmf(0, &spec).arg(dir.path().join(name)).refused(&["1000000000 x 1000000000"]);
    }
}

/// HDF5 reads other files of the machine, and gives zeros where one is missing.
#[test]
fn numbers_that_stand_for_others_by_an_attribute_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x.h5");
    let stored = hdf5::File::create(&path).unwrap();
    for (name, attribute, value) in [
        ("packed", "scale_factor", 0.1),
        ("moved", "add_offset", 5.0),
        ("marked", "_FillValue", 7.0),
        ("plain", "scale_factor", 1.0),
    ] {
        let data =
            stored.new_dataset_builder().with_data(&ndarray::array![[1i16, 2], [3, 4], [5, 7]]).create(name).unwrap();
        data.new_attr::<f64>().create(attribute).unwrap().write_scalar(&value).unwrap();
    }
    stored.close().unwrap();
    for (name, attribute) in [("packed", "scale_factor"), ("moved", "add_offset"), ("marked", "_FillValue")] {
        fednmf(0, "-k 1 --input").arg(format!("{}:/{name}", path.display())).refused(&[name, attribute]);
    }
    fednmf(0, "-k 1 --input").arg(format!("{}:/plain", path.display())).ok();
}

#[test]
fn numbers_in_other_files_are_refused() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let raw: Vec<u8> = (1..=6).flat_map(|x| f64::from(x).to_le_bytes()).collect();
    std::fs::write(file("raw.bin"), raw).unwrap();
    let stored = hdf5::File::create(file("external.h5")).unwrap();
    let raw = file("raw.bin");
    stored.new_dataset::<f64>().external(raw.to_str().unwrap(), 0, 48).shape((3, 2)).create("X").unwrap();
    drop(stored);
    let source = hdf5::File::create(file("source.h5")).unwrap();
    source.new_dataset_builder().with_data(&ndarray::arr2(&[[1.0, 2.0], [3.0, 4.0]])).create("X").unwrap();
    drop(source);
    let stored = hdf5::File::create(file("virtual.h5")).unwrap();
    let from = file("source.h5");
    stored
        .new_dataset::<f64>()
        .virtual_map(from.to_str().unwrap(), "X", (2, 2), hdf5::Selection::All, (2, 2), hdf5::Selection::All)
        .shape((2, 2))
        .create("X")
        .unwrap();
    drop(stored);
    // Rows of several files, as most virtual datasets have them.
    let stored = hdf5::File::create(file("rows.h5")).unwrap();
    let selected = |rows: std::ops::Range<usize>| hdf5::Selection::try_new(ndarray::s![rows, ..]).unwrap();
    stored
        .new_dataset::<f64>()
        .virtual_map(from.to_str().unwrap(), "X", (2, 2), hdf5::Selection::All, (4, 2), selected(0..2))
        .virtual_map("gone.h5", "X", (2, 2), hdf5::Selection::All, (4, 2), selected(2..4))
        .shape((4, 2))
        .create("X")
        .unwrap();
    drop(stored);
    for (name, other) in [("external.h5", "raw.bin"), ("virtual.h5", "source.h5"), ("rows.h5", "")] {
        fednmf(0, "-k 1 --max-iters 1 --input").arg(file(name)).refused(&[name, other, "another file"]);
    }
    fednmf(0, "-k 1 --max-iters 1 --input").arg(file("source.h5")).ok();
}

#[test]
fn a_zarr_store_is_refused_with_advice() {
    let dir = tempdir().unwrap();
    for (name, mark) in [("two.zarr", ".zgroup"), ("three.zarr", "zarr.json")] {
        let store = dir.path().join(name);
        std::fs::create_dir(&store).unwrap();
        std::fs::write(store.join(mark), "{}").unwrap();
        fednmf(0, "-k 2 --input").arg(&store).refused(&[name, "is a directory of zarr", "write_h5ad"]);
    }
}

#[test]
fn a_generated_matrix_is_the_same_in_every_format() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let u = |name: &str| {
        let generated = fednmf(0, "generate sparse,m=700,n=50,density=0.1 --output").arg(file(name)).run();
        assert_eq!(generated.code, Some(0), "{generated:?}");
        let run = fednmf(0, "--algo hals -k 3 --max-iters 3 --input").arg(file(name));
        run.arg("--output").arg(file("f.h5")).ok();
        matrix(&file("f.h5"), "U")
    };
    let first = u("x.npz");
    for name in ["x.mtx", "x.h5ad"] {
        assert_eq!(u(name), first, "{name}");
    }
    fednmf(0, "generate sparse,m=9,n=5 --output").arg(file("x.npy")).refused(&[".npz, .mtx or .h5ad"]);
}
