//! Tables in text on the command line: detected formats are reported, options override them, and names reach the outputs.

use std::path::Path;

use hdf5::types::VarLenUnicode;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::{fednmf, matrix};

/// A table with an index and a header that only count, as pandas writes it.
fn counting(path: &Path) {
    let mut text = format!(",{}\n", (0..6).map(|j| j.to_string()).collect::<Vec<_>>().join(","));
    for i in 0..12 {
        let fields: Vec<String> = (0..6).map(|j| format!("{}.5", (i * 5 + j * 7) % 11)).collect();
        text += &format!("{i},{}\n", fields.join(","));
    }
    std::fs::write(path, text).unwrap();
}

/// Ratings of users 10, 20, … for items a, b, … .
fn ratings(path: &Path) {
    let mut text = String::from("user,item,rating\n");
    for i in (1..15).rev() {
        for j in (0..8).filter(|j| (i + j) % 3 > 0) {
            text += &format!("{},{},{}\n", 10 * i, ["a", "b", "c", "d", "e", "f", "g", "h"][j], 1 + (i * j) % 5);
        }
    }
    std::fs::write(path, text).unwrap();
}

fn inspect(words: &str, path: &Path) -> (Value, String) {
    let output = fednmf(0, &format!("inspect --json {words}")).arg(path).run();
    assert_eq!(output.code, Some(0), "{output:?}");
    (serde_json::from_str(&output.stdout).unwrap(), output.stderr)
}

#[test]
fn missing_entries_are_no_zeros() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("t.csv");
    // Rows: full, of zeros where it is observed, without observations, full. The last column is zero or missing.
    std::fs::write(&path, "a,b,c\n2,3,\nNA,0,0\n,,\n5,4,nan\n").unwrap();
    for ranks in [0, 3] {
        let output = fednmf(ranks, "inspect --json").arg(&path).run();
        let summary: Value = serde_json::from_str(&output.stdout).unwrap();
        let numbers = ["nonzeros", "missing", "zero_rows", "zero_cols", "missing_rows", "missing_cols"];
        assert_eq!(numbers.map(|name| summary[name].as_u64().unwrap()), [4, 6, 1, 1, 1, 0], "{summary}");
        assert_eq!(summary["whole_numbers"], true, "{summary}");
        assert_eq!(["min", "max", "sum"].map(|name| summary[name].as_f64().unwrap()), [0.0, 5.0, 14.0], "{summary}");
        assert!((summary["density"].as_f64().unwrap() - 4.0 / 6.0).abs() < 1e-12, "{summary}");
    }
    // Nothing that is observed is zero.
    std::fs::write(&path, "a,b\n2,3\n,7\n").unwrap();
    assert_eq!(inspect("", &path).0["min"], 2.0);
}

#[test]
fn conclusions_are_told() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("t.csv");
    counting(&path);
    let note =
        "t.csv: the first line is taken as a header and the first column as row names; --header no, --index-col no";
    let (summary, told) = inspect("", &path);
    assert!(told.contains(note), "{told}");
    assert_eq!([&summary["rows"], &summary["cols"]], [12, 6]);
    assert_eq!([&summary["header"], &summary["index_col"]], [true, true]);
    let (summary, told) = inspect("--index-col no --header yes", &path);
    assert_eq!((&summary["cols"], &summary["index_col"], told.as_str()), (&7.into(), &false.into(), ""));
    let (summary, _) = inspect("", Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/formats/counts.mtx")));
    assert_eq!(summary.get("header"), None);

    // Rank 0 prints it once.
    let output = fednmf(2, "--algo hals -k 2 --max-iters 2 --input").arg(&path).run();
    assert_eq!((output.code, output.stderr.matches(note).count()), (Some(0), 1), "{output:?}");
    let factors = dir.path().join("f.h5");
    fednmf(0, "--algo hals -k 2 --max-iters 2 --input").arg(&path).arg("--output").arg(&factors).ok();
    for words in ["evaluate --input", "project --input"] {
        let output = fednmf(0, words).arg(&path).arg(&factors).run();
        assert_eq!((output.code, output.stderr.matches(note).count()), (Some(0), 1), "{words}: {output:?}");
    }
}

#[test]
fn options_hold_for_every_command_that_reads_a_matrix() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    ratings(&file("r.csv"));
    let triples = "--format triples --input";
    let run = fednmf(0, &format!("--algo hals -k 2 --max-iters 5 {triples}")).arg(file("r.csv")).arg("--output");
    let run = run.arg(file("f.h5")).arg("--trace").arg(file("t.jsonl")).ok();
    assert_eq!([&run["m"], &run["n"], &run["params"]["format"]], [&14.into(), &8.into(), &Value::from("triples")]);
    let error = run["rel_error"].as_f64().unwrap();
    let evaluated = fednmf(2, &format!("evaluate --json {triples}")).arg(file("r.csv")).arg(file("f.h5")).run();
    let evaluated: Value = serde_json::from_str(&evaluated.stdout).unwrap();
    assert!((evaluated["rel_error"].as_f64().unwrap() - error).abs() < 1e-9);
    let projected = fednmf(2, &format!("project --json {triples}")).arg(file("r.csv")).arg(file("f.h5")).run();
    assert!(serde_json::from_str::<Value>(&projected.stdout).is_ok_and(|p| p["m"] == 14), "{projected:?}");
    let swept = fednmf(2, &format!("sweep -k 1,2 --runs 1 --max-iters 10 --json {triples}")).arg(file("r.csv"));
    let swept = swept.arg("--output").arg(file("sweep")).run();
    assert_eq!(swept.code, Some(0), "{swept:?}");
    // The trace says how the matrix was read.
    let report = fednmf(0, "report").arg(file("t.jsonl")).arg("--output").arg(file("r.html")).run();
    assert_eq!(report.code, Some(0), "{report:?}");

    fednmf(2, "--format triples --input")
        .arg(file("r-{party}.csv"))
        .refused(&["--format triples", "a file for each party"]);
    fednmf(2, "--header yes").refused(&["--header", "generated"]);
    fednmf(2, "--index-col no --input").arg(file("f.h5")).refused(&["--index-col", "f.h5", "leave the option out"]);
    fednmf(0, "--header maybe").refused(&["--header maybe: must be one of auto, yes, no"]);
}

#[test]
fn names_reach_the_outputs() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let names = |name: &str, frame: &str| -> Vec<String> {
        let file = hdf5::File::open(file(name)).unwrap();
        let index = file.dataset(&format!("{frame}/_index")).unwrap();
        index.read_raw::<VarLenUnicode>().unwrap().iter().map(ToString::to_string).collect()
    };
    ratings(&file("r.csv"));
    let run = |words: &str, output: &str| {
        let run = fednmf(2, &format!("--algo hals -k 2 --max-iters 5 {words} --input"));
        let words = if output == "r.h5ad" { "r.csv" } else { "t.csv" };
        run.arg(file(words)).arg("--output").arg(file(output)).ok();
    };
    run("--format triples", "r.h5ad");
    assert_eq!((names("r.h5ad", "obs")[0].as_str(), names("r.h5ad", "obs").len()), ("10", 14));
    // The items of the first user in the file, 140, come first.
    assert_eq!(names("r.h5ad", "var").concat(), "acdfgbeh");
    std::fs::write(file("t.csv"), "gene,x,y,z\ng1,1,2,3\ng2,3,2,2\ng3,4,1,1\n").unwrap();
    run("", "t.h5ad");
    assert_eq!(
        (names("t.h5ad", "obs"), names("t.h5ad", "var").concat()),
        (["g1", "g2", "g3"].map(String::from).into(), "xyz".into())
    );
    assert_eq!(matrix(&file("t.h5ad"), "obsm/X_nmf").dim(), (3, 2));
    run("--transpose", "turned.h5ad");
    assert_eq!(
        (names("turned.h5ad", "obs").concat(), names("turned.h5ad", "var").concat()),
        ("xyz".into(), "g1g2g3".into())
    );
}

/// A sum of ratings is no rating, and a mean of events no number of events.
#[test]
fn repeated_triples_are_refused_or_combined_as_requested() {
    let dir = tempdir().unwrap();
    let (path, out) = (dir.path().join("r.csv"), dir.path().join("o.h5"));
    std::fs::write(&path, "user,item,rating\nu,a,4\nv,a,1\nu,b,3\nu,a,2\nv,b,5\nu,a,3\n").unwrap();
    for ranks in [0, 2] {
        let run = |words: &str| fednmf(ranks, &format!("--algo hals -k 2 --max-iters 500 {words} --input")).arg(&path);
        run("--format triples").refused(&["r.csv", "2 of the triples", "--repeated mean", "--repeated sum"]);
        run("--repeated mean").refused(&["--repeated", "--format triples"]);
        for (how, value) in [("mean", 3.0), ("sum", 9.0)] {
            run(&format!("--format triples --repeated {how}")).arg("--output").arg(&out).ok();
            let fitted = matrix(&out, "U").dot(&matrix(&out, "V").t());
            assert!((fitted[[0, 0]] - value).abs() < 1e-3, "{how} on {ranks}: {fitted}");
            let evaluated = fednmf(ranks, &format!("evaluate --json --format triples --repeated {how} --input"));
            let evaluated = evaluated.arg(&path).arg(&out).run();
            let error = serde_json::from_str::<Value>(&evaluated.stdout).expect("JSON")["rel_error"].as_f64();
            assert!(error.is_some_and(|error| error < 1e-3), "{how}: {evaluated:?}");
        }
    }
    let inspected = fednmf(0, "inspect --json --format triples").arg(&path).run();
    assert_eq!(serde_json::from_str::<Value>(&inspected.stdout).expect("JSON")["duplicates"], 2);
    // A value of 0 counts, and one that is missing does not.
    std::fs::write(&path, "user,item,rating\nu,a,0\nu,a,4\nu,b,2\nv,a,1\nv,b,NA\nv,b,3\n").unwrap();
    for ranks in [0, 2] {
        fednmf(ranks, "--algo hals -k 1 --format triples --missing nan --input")
            .arg(&path)
            .refused(&["2 of the triples"]);
        for (how, sum) in [("mean", 8.0), ("sum", 7.0)] {
            let told = fednmf(ranks, &format!("inspect --json --format triples --repeated {how}")).arg(&path).run();
            let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
            assert_eq!((&told["sum"], &told["duplicates"]), (&sum.into(), &2.into()), "{how}");
        }
    }
}

#[test]
fn triples_with_some_of_the_items_are_projected() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    ratings(&file("r.csv"));
    let rated = "user,item,rating\nx,c,3\nx,h,5\ny,a,1\ny,c,4\n";
    std::fs::write(file("some.csv"), rated).unwrap();
    // A further user who rated everything brings the other items along, in another order.
    let all: String = "hgfedcba".chars().map(|item| format!("z,{item},1\n")).collect();
    std::fs::write(file("all.csv"), format!("{rated}{all}")).unwrap();
    std::fs::write(file("unknown.csv"), "user,item,rating\nx,c,3\nx,q,5\n").unwrap();
    std::fs::write(file("known.csv"), "user,item,rating\nx,c,3\n").unwrap();
    std::fs::write(file("others.csv"), "user,item,rating\nx,c,3\ny,q,5\n").unwrap();
    std::fs::write(file("other.csv"), "user,item,rating\nx,p,3\nx,q,5\n").unwrap();
    for missing in ["none", "zero-unobserved"] {
        let run = fednmf(2, &format!("--algo hals -k 2 --max-iters 30 --missing {missing} --format triples --input"));
        run.arg(file("r.csv")).arg("--output").arg(file("f.h5")).ok();
        let project = |input: &str| {
            fednmf(2, "project --format triples")
                .arg(file("f.h5"))
                .arg("--input")
                .arg(file(input))
                .arg("--output")
                .arg(file("p.h5"))
        };
        let [some, all] = ["some.csv", "all.csv"].map(|input| {
            let done = project(input).run();
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            assert_eq!(matrix(&file("p.h5"), "V").dim(), (8, 2));
            matrix(&file("p.h5"), "U")
        });
        let difference = &some - &all.slice(ndarray::s![..2, ..]);
        assert!(difference.iter().all(|x| x.abs() < 1e-9), "{missing}: {some} {all}");
        // Items that the factors do not know are ignored.
        let told = project("unknown.csv").run();
        assert!(told.stderr.contains("1 of its columns are not in the factors, and are ignored"), "{}", told.stderr);
        let with_unknown = matrix(&file("p.h5"), "U");
        assert_eq!((project("known.csv").run().code, matrix(&file("p.h5"), "U")), (Some(0), with_unknown));
        project("other.csv").refused(&["no column of the new matrix", "p and a"]);
        let told = project("others.csv").run().stderr;
        let nothing = "nothing is observed in 1 row of the new matrix";
        assert_eq!(told.contains(nothing), missing == "zero-unobserved", "{told}");
    }
}

/// The message names the file in which a name is repeated.
#[test]
fn columns_with_one_name_are_refused_in_their_file() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("t.csv"), "id,a,b,c\np,3,1,0\nq,2,0,5\nr,1,4,1\n").unwrap();
    fednmf(0, "-k 2 --max-iters 5 --input").arg(file("t.csv")).arg("--output").arg(file("f.h5")).ok();
    std::fs::write(file("n.csv"), "id,a,a,c\np,3,1,0\nq,2,0,5\n").unwrap();
    fednmf(0, "project")
        .arg(file("f.h5"))
        .arg("--input")
        .arg(file("n.csv"))
        .refused(&["n.csv: several columns are called a"]);
}

#[test]
fn ratings_under_another_name_are_read_with_the_option_that_the_message_names() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("u.data");
    std::fs::write(&path, "196\t242\t3\n186\t302\t3\n22\t377\t1\n196\t302\t5\n").unwrap();
    fednmf(0, "inspect").arg(&path).refused(&["no known format", "--format triples", "--format table"]);
    assert_eq!(inspect("--format triples", &path).0["rows"], 3);
    // Binary files have no such interpretation.
    let path = dir.path().join("u.bin");
    std::fs::write(&path, [0xab; 500]).unwrap();
    let told = fednmf(0, "inspect").arg(&path).run();
    assert!(told.code == Some(2) && !told.stderr.contains("--format"), "{}", told.stderr);
}

#[test]
fn line_breaks_within_quotation_marks_are_refused_by_that_name() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("x.csv");
    let broken = "\"a\nb\",2,3,5,8,9,7\n";
    let rows = "r,1,2,6,4,3,8\n".repeat(100);
    for (text, line) in [
        (format!("{broken}{rows}"), 1),
        (format!("n,t,u,v,w,x,y\n{broken}"), 2),
        (format!("n,t,u,v,w,x,y\n{rows}{broken}"), 102),
    ] {
        std::fs::write(&path, text).unwrap();
        let words = [&*format!("line {line}: "), "line breaks within quotation marks are not supported"];
        fednmf(0, "inspect").own_process().arg(&path).refused(&words);
        fednmf(0, "prepare one-hot")
            .own_process()
            .arg(&path)
            .arg("-o")
            .arg(dir.path().join("o.csv"))
            .refused(&words[1..]);
    }
    std::fs::write(&path, "n,\"x, \"\"X\"\"\",y\n\"r, s\",1,2\n\"t\",3,4\n").unwrap();
    assert_eq!(inspect("", &path).0["cols"].as_u64(), Some(2));
}

#[test]
fn tables_that_look_like_triples_are_not_factorised() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("r.csv");
    let mut text = String::from("userId,movieId,rating\n");
    for i in 0..30 {
        text += &format!("{},{},{}\n", 1 + i / 5, 10 + i * 7 % 11, 1 + i % 5);
    }
    std::fs::write(&path, text).unwrap();
    for ranks in [1, 3] {
        let words = ["r.csv", "userId and movieId", "--format triples", "--format table"];
        fednmf(ranks, "--algo hals -k 2 --max-iters 2 --input").arg(&path).refused(&words);
    }
    let run = |words: &str| fednmf(2, &format!("--algo hals -k 2 --max-iters 2 {words} --input")).arg(&path).ok();
    let table = "--format table --index-col no";
    assert_eq!((run("--format triples")["m"].as_u64(), run("--format triples")["n"].as_u64()), (Some(6), Some(11)));
    assert_eq!((run(table)["m"].as_u64(), run(table)["n"].as_u64()), (Some(30), Some(3)));
    fednmf(0, "inspect").arg(&path).refused(&["--format triples"]);
    let out = dir.path().join("o.h5");
    let run =
        fednmf(2, &format!("--algo hals -k 2 --max-iters 2 {table} --input")).arg(&path).arg("--output").arg(&out);
    run.ok();
    assert_eq!(fednmf(0, &format!("evaluate {table} --input")).arg(&path).arg(&out).run().code, Some(0));
}

#[test]
fn lines_and_columns_that_may_be_names_or_data_are_refused_with_the_option_that_decides() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("t.csv");
    // The column may be an index, or the numbers of the next column may count on; years may be a header.
    for (text, option, sizes) in [
        ("0,3,5\n1,4,9\n2,5,2\n", "--index-col", [[3, 3], [3, 2]]),
        ("2019,2020\n5,6\n7,2\n4,3\n", "--header", [[4, 2], [3, 2]]),
    ] {
        std::fs::write(&path, text).unwrap();
        let words = ["t.csv", &format!("{option} yes"), &format!("{option} no")];
        fednmf(2, "--algo hals -k 1 --max-iters 2 --quiet --input").arg(&path).refused(&words);
        fednmf(0, "inspect").arg(&path).refused(&words);
        for (answer, size) in ["no", "yes"].into_iter().zip(sizes) {
            let run = fednmf(2, &format!("--algo hals -k 1 --max-iters 2 {option} {answer} --input")).arg(&path).ok();
            assert_eq!([&run["m"], &run["n"]], [&size[0].into(), &size[1].into()] as [&Value; 2], "{text}");
        }
    }
    std::fs::write(&path, "bob,tea\nann,pen\n").unwrap();
    fednmf(0, "inspect --format triples").arg(&path).refused(&["--header yes", "--header no"]);
    assert_eq!(inspect("--format triples --header no", &path).0["rows"], 2);
}

#[test]
fn a_row_of_tabs_alone_is_a_row_of_missing_entries() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("t.tsv"), "1\t2\n\t\n3\t4\n").unwrap();
    for ranks in [0, 3] {
        let output = fednmf(ranks, "inspect --json --header no --index-col no").arg(at("t.tsv")).run();
        let summary: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stderr));
        assert_eq!(["rows", "missing_rows", "missing"].map(|name| summary[name].as_u64()), [Some(3), Some(1), Some(2)]);
    }
    // In a single column a blank line may be a missing entry, or no entry.
    std::fs::write(at("one.txt"), "1\n\n3\n4\n\n").unwrap();
    let run = |more: &str| fednmf(0, &format!("-k 1 --max-iters 2 {more} --input")).arg(at("one.txt"));
    run("--missing nan").refused(&["line 2", "blank"]);
    assert_eq!(run("").ok()["m"], 3);
}

#[test]
fn repeated_entries_are_warned_of() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let entries: Vec<String> = (1..=6)
        .flat_map(|i| (1..=4).filter(move |j| (i + j) % 3 > 0).map(move |j| format!("{i} {j} {}", i + j)))
        .collect();
    let all = [&entries[..], &entries[..2]].concat();
    let text = format!("%%MatrixMarket matrix coordinate real general\n6 4 {}\n{}\n", all.len(), all.join("\n"));
    std::fs::write(at("m.mtx"), text).unwrap();
    let words = "warning: 2 entries were given more than once and added up";
    for ranks in [0, 2] {
        let told = |line: &str| {
            let done = fednmf(ranks, line).arg("--input").arg(at("m.mtx")).run();
            assert_eq!((done.code, done.stderr.matches(words).count()), (Some(0), 1), "{line}: {}", done.stderr);
        };
        told(&format!("-k 2 --max-iters 3 --quiet --output {}", at("f.h5").display()));
        told(&format!("evaluate {}", at("f.h5").display()));
        told(&format!("project --quiet {} --output {}", at("f.h5").display(), at("p.h5").display()));
        told(&format!("sweep --k 2 --runs 1 --max-iters 3 --quiet --output {}", at(&format!("s{ranks}")).display()));
    }
}

#[test]
fn long_names_that_the_output_does_not_take_are_warned_of() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let rows: Vec<String> = (0..18).map(|i| format!("{}{i},{},{}\n", "x".repeat(1 << 20), i + 1, 2 * i)).collect();
    std::fs::write(at("t.csv"), format!("name,a,b\n{}", rows.concat())).unwrap();
    let done = fednmf(0, "-k 1 --max-iters 2 --quiet --input").arg(at("t.csv")).arg("--output").arg(at("f.h5")).run();
    assert!(done.code == Some(0) && done.stderr.contains("row_names: these names have 18 MiB"), "{}", done.stderr);
}
