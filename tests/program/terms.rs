//! `top` and `clusters`: the names and numbers of a factor file, as tables and JSON.

use std::path::Path;

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{Output, fednmf, matrix};

fn good(output: Output) -> String {
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout
}

/// Two groups of rows, each with its own columns, and a column that both have.
fn table(path: &Path) {
    let mut text = "cell,cat,dog,tree,moss,air\n".to_string();
    for i in 0..12 {
        let animal = i % 2 == 0;
        let [a, b] = if animal { [9 + i % 5, 0] } else { [0, 7 + i % 3] };
        text += &format!("c{i},{a},{},{b},{},{}\n", 2 * a, 3 * b, 1 + i % 2);
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn top_terms_are_those_of_the_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    table(&file("t.csv"));
    let run = fednmf(0, "--algo hals -k 2 --max-iters 200 --quiet --input").arg(file("t.csv"));
    good(run.arg("--output").arg(file("f.h5")).run());
    let text = good(fednmf(0, "top -n 3").arg(file("f.h5")).run());
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows[0], ["component", "rank", "name", "weight", "score"]);
    // By plain loops over V.
    let (v, names) = (matrix(&file("f.h5"), "V"), ["cat", "dog", "tree", "moss", "air"]);
    let mut expected = Vec::new();
    for (component, column) in v.columns().into_iter().enumerate() {
        let norm = column.dot(&column).sqrt();
        let mut order: Vec<usize> = (0..5).filter(|&j| column[j] > 0.0).collect();
        order.sort_by(|&a, &b| column[b].total_cmp(&column[a]));
        expected.extend(
            order.iter().take(3).enumerate().map(|(rank, &j)| (component, rank + 1, names[j], column[j] / norm)),
        );
    }
    assert_eq!(rows.len() - 1, expected.len());
    for (row, (component, rank, name, weight)) in rows[1..].iter().zip(expected) {
        assert_eq!((row[0], row[1], row[2]), (&*component.to_string(), &*rank.to_string(), name), "{text}");
        assert!((row[3].parse::<f64>().unwrap() - weight).abs() < 1e-12, "{text}");
    }
    // A marker belongs to one component; a column of both marks neither.
    let markers: Value =
        serde_json::from_str(&good(fednmf(0, "top --json --by marker").arg(file("f.h5")).run())).unwrap();
    let lists = markers["components"].as_array().unwrap();
    let first = |list: &Value| list["terms"][0]["name"].as_str().unwrap().to_string();
    let of = |list: &Value| list["terms"].as_array().unwrap().iter().map(|t| t["name"].to_string()).collect::<Vec<_>>();
    assert!(of(&lists[0]).iter().all(|name| !of(&lists[1]).contains(name)), "{markers}");
    assert!(lists.iter().all(|list| first(list) != "air"), "{markers}");
    // The same in files; rows of the matrix; names from a list.
    good(fednmf(0, "top -n 3").arg(file("f.h5")).arg("--output").arg(file("top.tsv")).run());
    assert_eq!(std::fs::read_to_string(file("top.tsv")).unwrap(), text);
    good(fednmf(0, "top --of rows").arg(file("f.h5")).arg("--output").arg(file("top.json")).run());
    let rows: Value = serde_json::from_str(&std::fs::read_to_string(file("top.json")).unwrap()).unwrap();
    assert!(rows["components"][0]["terms"][0]["name"].as_str().unwrap().starts_with('c'), "{rows}");
    std::fs::write(file("names.txt"), "A\nB\nC\nD\nE\n").unwrap();
    let named = good(fednmf(0, "top -n 1").arg(file("f.h5")).arg("--terms").arg(file("names.txt")).run());
    assert!(named.lines().skip(1).all(|line| ["A", "B", "C", "D", "E"].contains(&line.split('\t').nth(2).unwrap())));
    std::fs::write(file("few.txt"), "A\nB\n").unwrap();
    for (line, more, words) in [
        ("top", Some(file("few.txt")), &["--terms", "has 2 names", "5 rows"][..]),
        ("top --count 0", None, &["--count 0"]),
        ("top --output o.csv", None, &["--output o.csv", ".tsv or .json"]),
    ] {
        let run = fednmf(0, line).own_process().arg(file("f.h5"));
        match more {
            Some(terms) => run.arg("--terms").arg(terms).refused(words),
            None => run.refused(words),
        }
    }
    fednmf(2, "top").own_process().arg(file("f.h5")).refused(&["one rank"]);
    fednmf(0, "top").arg(file("t.csv")).own_process().refused(&["t.csv"]);
}

#[test]
fn clusters_agree_with_known_groups() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (n, k) = (200, 4);
    let line =
        format!("--algo symnmf --input synthetic:graph,n={n},k={k},density=0.5,noise=0.02 -k {k} --max-iters 60");
    good(fednmf(0, &format!("{line} --quiet --output")).arg(file("f.npz")).run());
    let labels: String = (0..n).map(|i| format!("node {i}\tgroup {}\n", i * k / n)).collect();
    std::fs::write(file("labels.tsv"), labels).unwrap();
    let labels = format!("{}:2", file("labels.tsv").display());
    let run = fednmf(0, "clusters --json").arg(file("f.npz")).arg("--labels").arg(&labels);
    let found: Value = serde_json::from_str(&good(run.arg("--output").arg(file("c.tsv")).run())).unwrap();
    assert!(found["adjusted_rand"].as_f64().unwrap() > 0.99, "{found}");
    let told = fednmf(0, "clusters").arg(file("f.npz")).arg("--labels").arg(&labels).run().stderr;
    assert!(told.contains("the factors have no names of rows, so the labels"), "{told}");
    let sizes: Vec<u64> = found["sizes"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
    let text = std::fs::read_to_string(file("c.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!((rows[0].as_slice(), rows.len()), (&["name", "cluster", "share"][..], n + 1));
    for (cluster, size) in sizes.iter().enumerate() {
        assert_eq!(rows[1..].iter().filter(|row| row[1] == cluster.to_string()).count() as u64, *size);
    }
    assert!(
        good(fednmf(0, "clusters").arg(file("f.npz")).arg("--labels").arg(&labels).run()).contains("adjusted Rand")
    );
    std::fs::write(file("few.txt"), "a\n").unwrap();
    fednmf(0, "clusters")
        .own_process()
        .arg(file("f.npz"))
        .arg("--labels")
        .arg(file("few.txt"))
        .refused(&["has 1 labels", "200 rows"]);
    let titled = format!("group\n{}", "a\n".repeat(n));
    std::fs::write(file("titled.txt"), titled).unwrap();
    std::fs::write(file("binary.npy"), b"\x93NUMPY\x01\x00\n\n").unwrap();
    for (name, words) in [("titled.txt", ["has 201 labels", "header"]), ("binary.npy", ["--labels", "binary.npy"])] {
        fednmf(0, "clusters").own_process().arg(file("f.npz")).arg("--labels").arg(file(name)).refused(&words);
    }
    fednmf(0, "clusters --output c.csv").own_process().arg(file("f.npz")).refused(&["c.csv", ".tsv"]);
}

/// Labels with names are matched by name, and rows without a cluster do not count in the agreement.
#[test]
fn labels_are_matched_by_the_names_beside_them() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("t.csv"), "id,a,b,c,d\nr0,3,3,0,0\nr1,2,2,0,0\nr2,0,0,2,2\nr3,0,0,5,5\nr4,0,0,0,0\n").unwrap();
    good(
        fednmf(0, "--algo hals -k 2 --max-iters 30 -q --input")
            .arg(file("t.csv"))
            .arg("--output")
            .arg(file("f.h5"))
            .run(),
    );
    let labelled = |name: &str, text: &str, column: &str| {
        std::fs::write(file(name), text).unwrap();
        let labels = format!("{}{column}", file(name).display());
        fednmf(0, "clusters").own_process().arg(file("f.h5")).arg("--labels").arg(labels)
    };
    // The label of the row of zeros is another one.
    for text in ["r0\tx\nr1\tx\nr2\ty\nr3\ty\nr4\tx\n", "r3\ty\nr0\tx\nr4\tx\nr2\ty\nr1\tx\n"] {
        let told = good(labelled("l.tsv", text, ":2").run());
        assert!(told.contains("1.000000 (4 rows in 2 clusters, without 1 of zeros alone)"), "{told}");
    }
    // The names may be in any column, and the table may have others; a row without a label does not count.
    for text in
        ["kind,id\ny,r3\nx,r0\nz,r9\nx,r4\ny,r2\nx,r1\n", "kind,id,n\nNA,r3,1\nx,r0,0\nx,r4,0\ny,r2,1\nx,r1,2\n"]
    {
        let done = labelled("k.csv", text, ":kind").run();
        assert!(done.stdout.contains("1.000000"), "{}{}", done.stdout, done.stderr);
        assert_eq!(done.stderr.contains("1 of 5 rows have no label"), text.contains("NA"), "{}", done.stderr);
    }
    // Between blanks or semicolons, below a comment, as R writes names, and in a single column, which may have commas.
    for (name, text) in [
        ("k.txt", "id kind\nr3 y\nr0 x\nr4 x\nr2 y\nr1 x\n"),
        ("k.csv", "# of a study, in 2020\n\"id\";kind\n\nr3;y\nr0;x\nr4;x\nr2;y\nr1;x\n"),
        ("k.tsv", "kind\nr3\ty\nr0\tx\nr4\tx\nr2\ty\nr1\tx\n"),
        ("k.csv", "kind\nx, 1\nx, 1\n y 2\ny 2\n\"x, 1\"\n"),
    ] {
        let done = labelled(name, text, ":kind").run();
        assert!(done.stdout.contains("1.000000 (4 rows"), "{text}{}{}", done.stdout, done.stderr);
    }
    labelled("k.csv", "kind,kind\nx,y\nx,x\ny,y\ny,x\nx,y\n", ":kind").refused(&["two columns", "rename one"]);
    labelled("k.csv", "id,kind\nr0,x\nr1\n", ":kind").refused(&["--labels", "line 3", "1 columns"]);
    // A name that is not there, or twice, is never passed over.
    labelled("k.csv", "id,kind\nr0,x\nr1,x\nr2x,y\nr3,y\nr4,x\n", ":kind").refused(&["--labels", "has no label of r2"]);
    labelled("k.csv", "id,kind\nr0,x\nr1,x\nr2,y\nr2,y\nr3,y\nr4,x\n", ":kind").refused(&["called r2"]);
    let done = labelled("k.csv", "id,kind\na,x\nb,x\nc,y\nd,y\ne,x\n", ":kind").run();
    assert!(done.stdout.contains("1.000000") && done.stderr.contains("in the order of the rows"), "{}", done.stderr);
    labelled("l.tsv", "r0\tx\nr1\tx\nr2\ty\nr3\ty\nr4\tx\n", "").refused(&[
        "--labels",
        "a label of its own",
        "FILE:COLUMN",
    ]);
    labelled("l.csv", "r0,x\nr1,x\nr2,y\nr3,y\nr4,x\n", "").refused(&["--labels", "FILE:COLUMN"]);
}

/// Numbers of rows, which AnnData gives for names, are in any column of numbers: only an index has them as names.
#[test]
fn labels_are_not_matched_by_a_column_of_other_numbers() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("t.csv"), "id,a,b,c,d\n0,3,3,0,0\n1,2,2,0,0\n2,0,0,2,2\n3,0,0,5,5\n").unwrap();
    let run = fednmf(0, "--algo hals -k 2 --max-iters 30 -q --header yes --index-col yes --input").arg(file("t.csv"));
    good(run.arg("--output").arg(file("f.h5")).run());
    for (name, text, column, by_position) in [
        ("k.csv", "rank,kind\n3,x\n0,x\n2,y\n1,y\n", ":kind", true),
        ("k.csv", "age,kind\n3,x\n3,x\n0,y\n3,y\n", ":kind", true),
        ("k.tsv", "3\tx\n0\tx\n2\ty\n1\ty\n", ":2", true),
        ("k.csv", ",kind\n3,y\n0,x\n2,y\n1,x\n", ":kind", false),
        ("k.tsv", "kind\n3\ty\n0\tx\n2\ty\n1\tx\n", ":kind", false),
    ] {
        std::fs::write(file(name), text).unwrap();
        let labels = format!("{}{column}", file(name).display());
        let done = fednmf(0, "clusters").own_process().arg(file("f.h5")).arg("--labels").arg(labels).run();
        assert!(done.stdout.contains("1.000000 (4 rows"), "{text}{}{}", done.stdout, done.stderr);
        assert_eq!(done.stderr.contains("in the order of the rows"), by_position, "{text}{}", done.stderr);
    }
}

/// Names with tabs and quotation marks stay what they are in tables and JSON.
#[test]
fn names_in_tables_are_quoted_where_need_be() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let rows = "\"\"\"r\"\"\",3,3,0\n\"s\tt\",2,2,0\n\"\"\"u\",0,0,2\nv,0,0,5\n";
    std::fs::write(file("t.csv"), format!("id,\"\"\"q\"\"\",\"a\tb\",c\n{rows}")).unwrap();
    let run = fednmf(0, "--algo hals -k 2 --max-iters 30 -q --input").arg(file("t.csv"));
    good(run.arg("--output").arg(file("f.h5")).run());
    // The second table replaces the first one, which is recognised.
    for _ in 0..2 {
        good(fednmf(0, "clusters").arg(file("f.h5")).arg("--output").arg(file("c.tsv")).run());
    }
    let table = std::fs::read_to_string(file("c.tsv")).unwrap();
    let begins = table.lines().skip(1).map(|line| line.rsplitn(3, '\t').last().unwrap()).collect::<Vec<_>>();
    assert_eq!(begins, ["\"\"\"r\"\"\"", "\"s\tt\"", "\"\"\"u\"", "v"]);
    let labels = format!("{}:cluster", file("c.tsv").display());
    let same = good(fednmf(0, "clusters").arg(file("f.h5")).arg("--labels").arg(labels).run());
    assert!(same.contains("1.000000 (4 rows"), "{same}");
    let top = good(fednmf(0, "top").arg(file("f.h5")).run());
    assert!(top.contains("\t\"\"\"q\"\"\"\t") && top.contains("\t\"a\tb\"\t"), "{top}");
    let top = good(fednmf(0, "top --json").arg(file("f.h5")).run());
    assert!(top.contains("\"name\":\"a\\tb\"") && top.contains("\"name\":\"\\\"q\\\"\""), "{top}");
}

#[test]
fn items_keep_their_numbers() {
    let dir = tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let factorise = |input: &Path, words: &str| {
        let output = input.with_extension("h5");
        let run = fednmf(0, &format!("--algo hals -k 2 --max-iters 50 --quiet {words} --input")).arg(input);
        good(run.arg("--output").arg(&output).run());
        output
    };
    let items = |factors: &Path| {
        let text = good(fednmf(0, "top -n 9").arg(factors).run());
        let names = text.lines().skip(1).map(|line| line.split('\t').nth(2).unwrap().to_string());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let from_one = factorise(&file("ten.dat", "10 20\n20 30\n30\n"), "");
    assert_eq!(items(&from_one).into_iter().collect::<Vec<_>>(), ["10", "20", "30"]);
    let from_zero = factorise(&file("zero.dat", "0 1\n0 1\n2 3 4\n2 3 4\n1 4\n"), "");
    assert_eq!(items(&from_zero).into_iter().collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);

    let project = |factors: &Path, input: &Path| {
        let output = input.with_extension("projected.h5");
        fednmf(0, "project --json --quiet").arg(factors).arg("--input").arg(input).arg("--output").arg(output)
    };
    // A file with some of the factors' items gives the same rows as one with all of them.
    let some = file("some.dat", "1\n2 3\n1 3\n");
    good(project(&from_zero, &some).run());
    let all = file("all.dat", "1\n2 3\n1 3\n0 4\n");
    good(project(&from_zero, &all).run());
    let [some, all] = [some, all].map(|input| matrix(&input.with_extension("projected.h5"), "U"));
    assert!((&some - &all.slice(ndarray::s![..3, ..])).iter().all(|e| e.abs() < 1e-12), "{some} {all}");
    // Others belong to no column, and are ignored.
    let [five, four] = [file("five.dat", "1 2\n2 3 5\n1 4\n"), file("four.dat", "1 2\n2 3\n1 4\n")];
    let [five, four] = [five, four].map(|input| {
        good(project(&from_zero, &input).run());
        matrix(&input.with_extension("projected.h5"), "U")
    });
    assert!((&five - &four).iter().all(|e| e.abs() < 1e-12), "{five} {four}");
    // Rules are for items as factors are.
    let at = |name: &str| dir.path().join(name).display().to_string();
    for (line, output) in [("zero.dat --save-rules", "zero.mtx"), ("some.dat --rules", "some.mtx")] {
        let line = format!("prepare tf-idf {}{line} {} -o {}", at(""), at("rules.json"), at(output));
        good(fednmf(0, &line).run());
    }
    assert!(std::fs::read_to_string(at("some.mtx")).unwrap().contains("\n3 5 "), "three baskets of five items");
    let inspected = fednmf(0, "inspect").arg(dir.path().join("ten.dat")).run();
    assert!(inspected.stderr.contains("items 1 to 30"), "{inspected:?}");

    // Parties have the items of all, whichever each has itself.
    file("p-0.dat", "0 2\n1 2\n");
    file("p-1.dat", "1 3\n2 3\n");
    let output = dir.path().join("p.h5");
    let run = fednmf(2, "--algo fnmf -k 2 --parties 2 --max-iters 20 --quiet --input");
    good(run.arg(dir.path().join("p-{party}.dat")).arg("--output").arg(&output).run());
    let found = items(&output);
    assert!(found.contains("3") && found.iter().all(|item| item.parse::<usize>().unwrap() <= 3), "{found:?}");
}
