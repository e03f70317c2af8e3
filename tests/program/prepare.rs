//! `fednmf prepare`: a run reads its output; refusals.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ndarray::array;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::{fednmf, save_npy};

#[test]
fn a_prepared_matrix_is_read_with_its_names() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("people.csv"), "id,sex,age\n7,f,30\n8,m,41\n9,f,52\n10,,63\n").unwrap();
    let made = fednmf(0, "prepare one-hot --bins 2").arg(file("people.csv")).arg("-o").arg(file("hot.csv")).run();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let text = std::fs::read_to_string(file("hot.csv")).unwrap();
    let (mark, text) = text.split_once(',').unwrap();
    assert!(mark.starts_with("fednmf-crc32-"), "{mark}");
    assert!(text.starts_with("\"sex=f\",\"sex=m\",\"age<=46.5\",\"age>46.5\"\n\"7\",1,0,1,0\n"), "{text}");
    let seen = fednmf(0, "inspect --json").arg(file("hot.csv")).run();
    let seen: Value = serde_json::from_str(&seen.stdout).unwrap();
    assert_eq!((&seen["rows"], &seen["cols"], &seen["nonzeros"]), (&4.into(), &4.into(), &7.into()));
    assert_eq!((&seen["header"], &seen["index_col"]), (&true.into(), &true.into()));
}

#[test]
fn rules_of_one_matrix_serve_another() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (name, seed) in [("a", 1), ("b", 2)] {
        let spec = format!("generate sparse,m=40,n=20,density=0.3,values=counts,seed={seed} -o");
        assert_eq!(fednmf(0, &spec).arg(file(&format!("{name}.mtx"))).run().code, Some(0));
    }
    for how in ["tf-idf", "quantile"] {
        let rules = file(&format!("{how}.json"));
        let run = |input: &str, output: &str, option: &str| {
            let line = format!("prepare {how}");
            let run = fednmf(0, &line).arg(file(input)).arg("-o").arg(file(output)).arg(option).arg(&rules).run();
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            std::fs::read_to_string(file(output)).unwrap()
        };
        let first = run("a.mtx", &format!("{how}-a.mtx"), "--save-rules");
        // The same matrix by its own rules, and another one.
        assert_eq!(run("a.mtx", &format!("{how}-again.mtx"), "--rules"), first);
        assert_ne!(run("b.mtx", &format!("{how}-b.mtx"), "--rules"), first);
        let summary = fednmf(0, "-k 3 --max-iters 5 --input").arg(file(&format!("{how}-b.mtx"))).ok();
        assert!(summary["rel_error"].as_f64().unwrap() < 1.0);
    }
}

/// Of columns without names those that are left keep their numbers, or it is said that they do not.
#[test]
fn left_columns_keep_their_numbers() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(
        file("c.mtx"),
        "%%MatrixMarket matrix coordinate integer general\n3 4 5\n1 1 3\n1 3 2\n2 1 1\n2 4 7\n3 3 5\n",
    )
    .unwrap();
    let run = |words: &str, output: &str| {
        let run = fednmf(0, &format!("prepare counts --keep-counts {words}"))
            .arg(file("c.mtx"))
            .arg("-o")
            .arg(file(output))
            .run();
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stderr
    };
    let told = run("", "c.csv");
    assert!(told.contains("left out: 1 of 4 columns") && !told.contains("numbered anew"), "{told}");
    let text = std::fs::read_to_string(file("c.csv")).unwrap();
    assert!(text.split_once(',').unwrap().1.starts_with("\"0\",\"2\",\"3\"\n0,3,2,0\n"), "{text}");
    run("", "c.h5ad");
    let out = file("o.h5");
    fednmf(0, "-k 2 --max-iters 3 --input").arg(file("c.h5ad")).arg("-o").arg(&out).ok();
    let top = fednmf(0, "top").arg(&out).run().stdout;
    assert!(top.lines().any(|line| line.split('\t').nth(2) == Some("3")), "{top}");
    for (words, left) in [("", "1 of 4"), ("--variable-columns 2", "2 of 4")] {
        assert!(run(words, "c.npz").contains(&format!("{left} columns are left out")), "{words}");
    }
}

/// The divergence is for counts; with logarithms a run and a sweep say so.
#[test]
fn logarithms_of_counts_are_noticed_with_the_divergence() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let done = |line: String| {
        let run = fednmf(0, &line).run();
        assert_eq!(run.code, Some(0), "{line}: {}", run.stderr);
        run.stderr
    };
    done(format!("generate sparse,m=60,n=80,density=0.5,values=counts,seed=1 -o {}", file("counts.mtx")));
    for (name, how) in [("logs.mtx", "--log1p"), ("shares.mtx", ""), ("same.mtx", "--keep-counts")] {
        done(format!("prepare counts {how} {} -o {}", file("counts.mtx"), file(name)));
        let sweep = format!("sweep --k 2 --runs 1 --max-iters 2 --output {}", file(&format!("{name}-sweep")));
        for line in ["-k 2 --max-iters 2", sweep.as_str()] {
            let says = done(format!("{line} --loss kl --input {}", file(name)));
            assert_eq!(says.contains("look like logarithms of counts"), name == "logs.mtx", "{line}, {name}: {says}");
        }
        let says = done(format!("-k 2 --max-iters 2 --input {}", file(name)));
        assert!(!says.contains("logarithms"), "{name}: {says}");
    }
}

/// A command replaces what it wrote itself, and neither an input nor what anybody changed.
#[test]
fn own_outputs_are_replaced_and_others_are_not() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let run = |line: &str| {
        let done = fednmf(0, line).run();
        (done.code, done.stderr)
    };
    let (input, factors) = (file("in.mtx"), file("f.h5"));
    assert_eq!(run(&format!("generate sparse,m=30,n=12,density=0.4,values=counts -o {input}")).0, Some(0));
    fednmf(0, &format!("-k 2 --max-iters 5 --input {input} --output {factors}")).ok();
    let sparse = "generate sparse,m=20,n=9,density=0.3 -o";
    for (name, line) in [
        ("a.npy", "generate planted,m=20,n=9,k=2 -o".to_string()),
        ("b.mtx", "generate planted,m=20,n=9,k=2 -o".to_string()),
        ("c.mtx", sparse.to_string()),
        ("d.npz", sparse.to_string()),
        ("e.mtx", format!("prepare tf-idf {input} -o")),
        ("f.npy", format!("prepare tf-idf {input} -o")),
        ("g.csv", format!("prepare tf-idf {input} -o")),
        ("i.npz", format!("prepare tf-idf {input} -o")),
        ("j.h5ad", format!("prepare tf-idf {input} -o")),
        ("rules.json", format!("prepare tf-idf {input} -o {} --save-rules", file("h.npy"))),
        ("top.tsv", format!("top {factors} --output")),
        ("top.json", format!("top {factors} --output")),
        ("clusters.tsv", format!("clusters {factors} --output")),
    ] {
        let (line, path) = (format!("{line} {}", file(name)), file(name));
        assert_eq!(run(&line), (Some(0), String::new()), "{line}");
        let first = std::fs::read(&path).unwrap();
        assert_eq!(run(&line), (Some(0), String::new()), "{line}");
        assert_eq!(std::fs::read(&path).unwrap(), first, "{name}");
        if !name.ends_with(".tsv") && name != "top.json" && name != "rules.json" {
            assert_eq!(run(&format!("inspect {path}")).0, Some(0), "{name}");
        }
        let text = [&first[..], b"note\n"].concat();
        std::fs::write(&path, &text).unwrap();
        let (code, told) = run(&line);
        assert!(code == Some(2) && told.contains("is not replaced") && told.contains(name), "{line}: {told}");
        assert_eq!(std::fs::read(&path).unwrap(), text, "{name}");
    }
    let (code, told) = run(&format!("prepare tf-idf {input} -o {input}"));
    assert!(code == Some(2) && told.contains("would overwrite"), "{told}");
}

/// One message, exit code 2, and no output.
#[test]
fn wrong_preparations_are_refused() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (input, out, rules) = (file("a.npy"), file("o.mtx"), file("r.json"));
    assert_eq!(fednmf(0, "generate planted,m=9,n=8,k=2 -o").arg(&input).run().code, Some(0));
    std::fs::write(file("twice.csv"), "x,x\n1,1\n2,2\n").unwrap();
    std::fs::write(file("alike.csv"), "x,x=1\n1=2,3\n2,2\n").unwrap();
    std::fs::write(file("numbers.csv"), "1,2\n3,4\n5,6\n").unwrap();
    std::fs::write(file("sets.dat"), "1 2\n2 3\n").unwrap();
    std::fs::write(file("a.mtx"), "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n").unwrap();
    let ones: String = (1..=1000).map(|i| format!("{i} {i} 1\n")).collect();
    let huge = format!("%%MatrixMarket matrix coordinate real general\n1000000 1000000 1000\n{ones}");
    std::fs::write(file("huge.mtx"), huge).unwrap();
    std::fs::write(&rules, r#"{"how":"quantile","thresholds":[1.0]}"#).unwrap();
    let with_rules = |how: &str| format!("prepare {how} {input} -o {out} --rules {rules}");
    for (line, words) in [
        // Quantiles and values over parties would leave them.
        (format!("prepare quantile {} -o {}", file("a-{party}.npy"), file("o-{party}.mtx")), ["quantile", "--rules"]),
        (format!("prepare counts {} -o {out}", file("a-{party}.npy")), ["--output", "{party}"]),
        (format!("prepare counts {input} -o {}", file("o-{party}.mtx")), ["--output", "one file"]),
        (format!("prepare counts {input} -o {out}"), ["a.npy", "whole numbers"]),
        (format!("prepare counts {input} -o {out} --row-total 0"), ["--row-total", "positive"]),
        (format!("prepare counts {input} -o {out} --variable-by seurat"), ["--variable-columns", "is missing"]),
        (format!("prepare counts {input} -o {out} --keep-counts --log1p"), ["--keep-counts", "--log1p"]),
        (format!("prepare tf-idf {input} -o {out} --log1p"), ["--log1p", "prepare counts"]),
        (format!("prepare counts {input} -o {out} --parties 2"), ["--parties", "{party}"]),
        (format!("prepare counts {input} -o {out} --common-columns"), ["--common-columns", "{party}"]),
        (format!("prepare quantile {input} -o {out} --quantile 1"), ["--quantile", "between 0 and 1"]),
        (format!("prepare one-hot {input} -o {out} --transpose"), ["--transpose", "one-hot"]),
        (format!("prepare tf-idf {input} -o {out} --rules /no/such.json"), ["--rules", "/no/such.json"]),
        (format!("prepare tf-idf {input} -o {}", file("o.xls")), ["o.xls", ".h5ad, .npz, .mtx, .npy or .csv"]),
        (format!("prepare tf-idf {input} -o {input}"), ["a.npy", "would overwrite"]),
        (
            format!("prepare tf-idf {} -o {}", file("huge.mtx"), file("huge.npy")),
            ["huge.npy", "choose another directory"],
        ),
        (format!("prepare tf-idf {input} -o {out} --quantile 0.5"), ["--quantile", "prepare quantile"]),
        (format!("prepare quantile {input} -o {out} --bins 3"), ["--bins", "prepare one-hot"]),
        (format!("prepare quantile {input} -o {out} --rules {rules} --quantile 0.5"), ["--quantile", "--rules"]),
        (format!("prepare one-hot {} -o {out} --header yes", file("twice.csv")), ["the name 'x'", "rename"]),
        (format!("prepare one-hot {} -o {out}", file("alike.csv")), ["x=1=2", "rename"]),
        (format!("prepare one-hot {} -o {out}", file("numbers.csv")), ["'1,2'", "--header yes"]),
        (format!("prepare one-hot {} -o {out}", file("sets.dat")), ["table in text (CSV or TSV)", "--format table"]),
        (format!("prepare one-hot {input} -o {out}"), ["a.npy", "table in text (CSV or TSV)"]),
        (format!("prepare one-hot {} -o {out} --header yes", file("a.mtx")), ["a.mtx", "table in text (CSV or TSV)"]),
        (
            format!("prepare one-hot {} -o {out} --format triples", file("alike.csv")),
            ["--format triples", "leave the option out"],
        ),
        (format!("prepare one-hot synthetic:tiles -o {out}"), ["synthetic:tiles", "table in text (CSV or TSV)"]),
        (with_rules("tf-idf"), ["--rules", "quantile"]),
        (with_rules("quantile"), ["--rules", "1 columns"]),
    ] {
        let output = fednmf(0, &line).run();
        assert_eq!(output.code, Some(2), "{line}: {}", output.stderr);
        assert!(words.iter().all(|word| output.stderr.contains(word)), "{line}: {}", output.stderr);
        assert!(!std::path::Path::new(&out).exists(), "{line}");
    }
}

/// `prepare` has no --missing, so it does not advise it.
#[test]
fn missing_values_are_refused_with_what_helps() {
    let dir = tempdir().unwrap();
    let (nan, empty) = (dir.path().join("nan.npy"), dir.path().join("empty.csv"));
    save_npy(&nan, &array![[1.0, f64::NAN], [2.0, 3.0]]);
    std::fs::write(&empty, "a,b\n2,\n1,3\n").unwrap();
    for how in ["tf-idf", "quantile"] {
        for input in [&nan, &empty] {
            let run = fednmf(0, &format!("prepare {how}")).arg(input).arg("-o").arg(dir.path().join("o.mtx")).run();
            assert_eq!(run.code, Some(2), "{}", run.stderr);
            assert!(run.stderr.contains("fill them in") && !run.stderr.contains("--missing"), "{}", run.stderr);
        }
    }
}

#[test]
fn quantiles_of_negative_entries_are_prepared() {
    let dir = tempdir().unwrap();
    let (input, output) = (dir.path().join("x.npy"), dir.path().join("ones.mtx"));
    save_npy(&input, &array![[-3.0, 1.0], [-1.0, -2.0], [-2.0, 0.0]]);
    let run = fednmf(0, "prepare quantile --quantile 0.5").arg(&input).arg("-o").arg(&output).run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = std::fs::read_to_string(&output).unwrap();
    assert!(text.ends_with("3 2 2\n1 2 1\n2 1 1\n"), "{text}");
    let weights = fednmf(0, "prepare tf-idf").arg(&input).arg("-o").arg(dir.path().join("w.mtx")).run();
    assert!(weights.code == Some(2) && weights.stderr.contains("negative"), "{}", weights.stderr);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn several_ranks_prepare_only_files_of_parties() {
    let dir = tempdir().unwrap();
    let output = fednmf(2, "prepare tf-idf synthetic:sparse,m=9,n=8 -o").arg(dir.path().join("o.mtx")).run();
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("{party}"), "{}", output.stderr);
}

/// The columns of each party's file: others lack some, and their order differs.
const COLUMNS: [&[&str]; 3] = [
    &["a", "b", "c", "d", "rare", "e", "f"],
    &["own", "f", "e", "d", "c", "b", "a", "rare"],
    &["c", "a", "rare", "e", "f", "more", "b", "d"],
];
const ROWS: [usize; 3] = [60, 80, 70];

/// A count that depends on the party, the row and the name of the column.
fn count(party: usize, row: usize, name: &str) -> u64 {
    let hash = name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let drawn = hash.wrapping_mul((101 * party + row + 3) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match name {
        "rare" => u64::from(row == 5),
        "a" => drawn % 3 * (drawn >> 8) % 40,
        _ => drawn % 7,
    }
}

fn table(columns: &[&str], parties: &[usize]) -> String {
    let row = |party: usize, row: usize| {
        // A party has zeros in what it lacks.
        let cell = |name: &&str| if COLUMNS[party].contains(name) { count(party, row, name) } else { 0 };
        let line: Vec<String> = columns.iter().map(|name| cell(name).to_string()).collect();
        format!("p{party}r{row},{}\n", line.join(","))
    };
    let rows = parties.iter().flat_map(|&party| (0..ROWS[party]).map(move |i| row(party, i)));
    format!("id,{}\n{}", columns.join(","), rows.collect::<String>())
}

/// The name of a row, and its numbers.
type Row = (String, Vec<f64>);

/// The numbers of a prepared table, with the names of its columns and rows.
fn parsed(path: &Path) -> (Vec<String>, Vec<Row>) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"')).collect::<Vec<_>>());
    let names = lines.next().unwrap()[1..].iter().map(ToString::to_string).collect();
    let rows = lines.map(|cells| (cells[0].to_string(), cells[1..].iter().map(|x| x.parse().unwrap()).collect()));
    (names, rows.collect())
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn parties_prepare_their_rows_as_one_owner_would() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (party, columns) in COLUMNS.iter().enumerate() {
        std::fs::write(file(&format!("raw-{party}.csv")), table(columns, &[party])).unwrap();
    }
    std::fs::write(file("all.csv"), table(&["a", "b", "c", "d", "rare", "e", "f"], &[0, 1, 2])).unwrap();
    let run = |ranks: usize, line: &str, input: &str, output: &str| {
        let done = fednmf(ranks, &format!("prepare {line}")).arg(file(input)).arg("-o").arg(file(output)).run();
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
    };
    let united = ["a", "b", "c", "d", "rare", "e", "f", "own", "more"];
    std::fs::write(file("united.csv"), table(&united, &[0, 1, 2])).unwrap();
    for (line, columns) in [
        ("tf-idf", "common"),
        ("tf-idf", "all"),
        ("counts --min-rows-per-column 4", "common"),
        ("counts --min-rows-per-column 4 --log1p --variable-columns 4 --unit-variance", "common"),
        ("counts --min-rows-per-column 4 --log1p --variable-columns 6 --unit-variance", "all"),
        (
            "counts --min-rows-per-column 4 --row-total 50 --variable-columns 3 --variable-by seurat --keep-counts",
            "common",
        ),
    ] {
        run(0, line, if columns == "all" { "united.csv" } else { "all.csv" }, "one.csv");
        let (names, rows) = parsed(&file("one.csv"));
        assert!(line == "tf-idf" || !names.contains(&"rare".to_string()), "{names:?}");
        for ranks in [0, 2, 3] {
            run(ranks, &format!("{line} --{columns}-columns"), "raw-{party}.csv", "out-{party}.csv");
            let mut found = Vec::new();
            for party in 0..3 {
                let path = file(&format!("out-{party}.csv"));
                let (of_party, rows) = parsed(&path);
                assert_eq!(of_party, names, "{line} on {ranks} ranks");
                found.extend(rows);
                let kept = file(&format!("first-{party}.csv"));
                if ranks == 0 {
                    std::fs::copy(&path, kept).unwrap();
                } else {
                    assert!(std::fs::read(path).unwrap() == std::fs::read(kept).unwrap(), "{line} on {ranks} ranks");
                }
            }
            let near = |(found, expected): (&Row, &Row)| {
                found.0 == expected.0
                    && found.1.len() == expected.1.len()
                    && found.1.iter().zip(&expected.1).all(|(x, y)| (x - y).abs() <= 1e-12 * y.abs().max(1.0))
            };
            assert!(found.len() == rows.len() && found.iter().zip(&rows).all(near), "{line} on {ranks} ranks");
        }
    }
}

/// tests/data/seurat_v3.py has made counts, and the scores that scanpy computes.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_columns_by_seurat_v3_are_those_of_scanpy() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let text = std::fs::read_to_string(crate::common::data("seurat_v3.json")).unwrap();
    let data: serde_json::Value = serde_json::from_str(&text).unwrap();
    let counts: Vec<Vec<u64>> = serde_json::from_value(data["counts"].clone()).unwrap();
    let scores: Vec<f64> = serde_json::from_value(data["variances_norm"].clone()).unwrap();
    let header: String = (0..scores.len()).map(|j| format!(",g{j}")).collect();
    let line = |(i, row): (usize, &Vec<u64>)| {
        format!("c{i},{}\n", row.iter().map(u64::to_string).collect::<Vec<_>>().join(","))
    };
    let lines: Vec<String> = counts.iter().enumerate().map(line).collect();
    for (name, part) in [("all.csv", &lines[..]), ("part-0.csv", &lines[..22]), ("part-1.csv", &lines[22..])] {
        std::fs::write(file(name), format!("{header}\n{}", part.concat())).unwrap();
    }
    let rule = "--min-rows-per-column 1 --variable-columns 20 --variable-by seurat-v3 --keep-counts";
    for (ranks, more, input, output) in
        [(0, "", "all.csv", "out.csv"), (2, "--accept-risk few-rows,membership", "part-{party}.csv", "out-{party}.csv")]
    {
        let done = fednmf(ranks, &format!("prepare counts {rule} {more} {} -o {}", file(input), file(output))).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(20);
    order.sort_unstable();
    let expected: Vec<String> = order.iter().map(|j| format!("g{j}")).collect();
    for output in ["out.csv", "out-0.csv", "out-1.csv"] {
        assert_eq!(parsed(file(output).as_ref()).0, expected, "{output}");
    }
    std::fs::write(file("few.csv"), table(COLUMNS[0], &[0])).unwrap();
    fednmf(0, &format!("prepare counts {rule} {} -o {}", file("few.csv"), file("few-out.csv")))
        .own_process()
        .refused(&["--variable-by seurat-v3", "too few", "another rule"]);
}

/// A party that was not there prepares its rows by the rules of the others; its columns are found by name.
#[test]
fn rules_of_parties_serve_another_one() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    for party in 0..2 {
        std::fs::write(file(&format!("raw-{party}.csv")), table(COLUMNS[0], &[party])).unwrap();
    }
    std::fs::write(file("late.csv"), table(COLUMNS[2], &[2])).unwrap();
    let line = format!(
        "prepare counts --log1p --variable-columns 3 --unit-variance {} -o {} --save-rules {}",
        file("raw-{party}.csv"),
        file("out-{party}.csv"),
        file("rules.json")
    );
    let done = fednmf(0, &line).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("masks hide nothing between two parties"), "{}", done.stderr);
    let late =
        format!("prepare counts {} -o {} --rules {}", file("late.csv"), file("late-out.csv"), file("rules.json"));
    assert_eq!(fednmf(0, &late).run().code, Some(0));
    let (names, rows) = parsed(file("late-out.csv").as_ref());
    assert_eq!((names, rows.len()), (parsed(file("out-0.csv").as_ref()).0, ROWS[2]));
    // The rows of a party, and what its rules were applied to, are for their owner alone.
    for name in ["out-0.csv", "out-1.csv", "late-out.csv"] {
        assert_eq!(std::fs::metadata(file(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    for words in [["--log1p", "--rules"], ["--unit-variance", "--rules"]] {
        fednmf(0, &format!("{late} {}", words[0])).own_process().refused(&words);
    }
}

/// An entry that one row of a party has is left out before the sums, whether columns are found by name or not.
#[test]
fn rare_entries_of_a_party_are_left_out() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    for (party, carriers) in [3, 1, 0].into_iter().enumerate() {
        let row = |i: usize| format!("{},{},{}\n", 1 + i % 5, 2 + (i + party) % 3, u8::from(i < carriers));
        let rows: String = (0..40).map(row).collect();
        std::fs::write(file(&format!("raw-{party}.csv")), format!("a,b,x\n{rows}")).unwrap();
    }
    for columns in ["", "--common-columns"] {
        for (suppress, carriers) in [("", [3, 1, 0]), ("--suppress-rare 3", [3, 0, 0])] {
            let line = format!(
                "prepare counts --keep-counts --min-rows-per-column 1 {columns} {suppress} {} -o {}",
                file("raw-{party}.csv"),
                file("out-{party}.csv")
            );
            let done = fednmf(0, &line).run();
            assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
            let told = done.stderr.contains("--suppress-rare changed 1 column before anything was computed");
            assert_eq!(told, !suppress.is_empty(), "{line}: {}", done.stderr);
            let found = [0, 1, 2].map(|party| {
                let (_, rows) = parsed(file(&format!("out-{party}.csv")).as_ref());
                rows.iter().filter(|(_, row)| row[2] != 0.0).count()
            });
            assert_eq!(found, carriers, "{line}");
        }
    }
}

/// One message for all ranks, before anything but shapes has left.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn wrong_files_of_parties_are_refused() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let names = ["a", "b", "c", "d", "e", "f"];
    let put = |name: &str, columns: &[&str], rows: usize, cell: &str| {
        let line = format!("{}\n", vec![cell; columns.len()].join(","));
        std::fs::write(file(name), format!("{}\n{}", columns.join(","), line.repeat(rows))).unwrap();
    };
    for kind in ["few", "share", "other", "negative", "twice", "ok"] {
        (0..3).for_each(|party| put(&format!("{kind}-{party}.csv"), &names, 40, "2"));
    }
    put("twice-1.csv", &["a", "a", "b"], 40, "2");
    put("few-1.csv", &names, 7, "2");
    put("share-1.csv", &names, 40, "0.5");
    put("negative-2.csv", &names, 40, "-1");
    put("other-2.csv", &["u", "v", "w", "x", "y", "z"], 40, "2");
    for (kind, more, words) in [
        ("few", "", vec!["--min-rows 20", "--accept-risk few-rows"]),
        ("share", "", vec!["party 1", "whole numbers", "raw counts"]),
        ("negative", "", vec!["negative"]),
        (
            "other",
            "--common-columns",
            vec!["--common-columns", "no column name is in all files", "party 2 has 6 names, of which others have 0"],
        ),
        ("other", "", vec!["different names"]),
        ("twice", "--all-columns", vec!["--all-columns", "column 2", "name of its own"]),
        ("ok", "--variable-columns 2 --unit-variance --min-rows 30", vec![]),
        ("ok", "--variable-columns 2 --unit-variance --colluding 2", vec!["5 sums", "50 such rows", "membership"]),
        ("ok", "--min-rows-per-column 121", vec!["--min-rows-per-column"]),
        ("few", "--accept-risk few-rows,membership", vec![]),
    ] {
        let (input, output) = (file(&format!("{kind}-{{party}}.csv")), file("out-{party}.mtx"));
        let run = fednmf(3, &format!("prepare counts {input} -o {output} {more}"));
        match words.as_slice() {
            [] => assert_eq!(run.run().code, Some(0), "{kind} {more}"),
            words => {
                let done = run.run();
                let errors = done.stderr.lines().filter(|line| line.starts_with("error: ")).count();
                assert_eq!((done.code, errors), (Some(2), 1), "{kind} {more}: {}", done.stderr);
                assert!(words.iter().all(|word| done.stderr.contains(word)), "{kind} {more}: {}", done.stderr);
                assert!(!dir.path().join("out-0.mtx").exists(), "{kind} {more}");
            }
        }
        (0..3).for_each(|party| drop(std::fs::remove_file(file(&format!("out-{party}.mtx")))));
    }
    fednmf(3, &format!("prepare counts {} --parties 2 -o {}", file("ok-{party}.csv"), file("out-{party}.mtx")))
        .own_process()
        .refused(&["--parties"]);
}
