//! Data of single cells: features of several types, highly variable genes, labels and names in HDF5 files.

use std::fs;
use std::path::Path;

use hdf5::types::{FixedAscii, VarLenUnicode};
use ndarray::{Array2, Axis};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::common::{factor, fednmf, matrix};

fn text(s: &str) -> VarLenUnicode {
    s.parse().unwrap()
}

/// 9 cells × 6 features, the last two of which are antibodies.
fn counts() -> Array2<f64> {
    Array2::from_shape_fn((9, 6), |(i, j)| ((i * 5 + j * 3) % 4) as f64 + if i % 3 == j % 3 { 7.0 } else { 0.0 })
}

const TYPES: [&str; 6] = [
    "Gene Expression",
    "Gene Expression",
    "Antibody Capture",
    "Gene Expression",
    "Gene Expression",
    "Antibody Capture",
];
const GENES: [usize; 4] = [0, 1, 3, 4];
const VARIABLE: [bool; 6] = [true, false, true, true, true, false];

fn names(of: char, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{of}{i}")).collect()
}

/// A directory as Cell Ranger writes it: features × cells.
fn directory(path: &Path) {
    fs::create_dir(path).unwrap();
    let x = counts();
    let entries: Vec<_> = x.indexed_iter().filter(|(_, x)| **x != 0.0).collect();
    let mut lines = format!("%%MatrixMarket matrix coordinate integer general\n6 9 {}\n", entries.len());
    entries.iter().for_each(|((i, j), x)| lines += &format!("{} {} {x}\n", j + 1, i + 1));
    fs::write(path.join("matrix.mtx"), lines).unwrap();
    let features: String = TYPES.iter().enumerate().map(|(j, kind)| format!("ENS{j}\tg{j}\t{kind}\n")).collect();
    fs::write(path.join("features.tsv"), features).unwrap();
    fs::write(path.join("barcodes.tsv"), names('c', 9).join("\n") + "\n").unwrap();
}

fn group_of_csr(file: &hdf5::Group, name: &str, x: &Array2<f64>) {
    let group = file.create_group(name).unwrap();
    let stored = sprs::CsMat::csr_from_dense(x.view(), 0.0);
    let new = || group.new_dataset_builder();
    new().with_data(stored.data()).create("data").unwrap();
    new().with_data(&stored.indices().iter().map(|&j| j as i32).collect::<Vec<_>>()).create("indices").unwrap();
    new().with_data(&stored.proper_indptr().iter().map(|&i| i as i64).collect::<Vec<_>>()).create("indptr").unwrap();
}

/// The same as a file of Cell Ranger.
fn tenx(path: &Path) {
    let file = hdf5::File::create(path).unwrap();
    // By cells, which are its columns.
    group_of_csr(&file, "matrix", &counts());
    let group = file.group("matrix").unwrap();
    group.new_dataset_builder().with_data(&[6i32, 9]).create("shape").unwrap();
    let list = |group: &hdf5::Group, name: &str, all: &[String]| {
        let all: Vec<FixedAscii<32>> = all.iter().map(|name| FixedAscii::from_ascii(name).unwrap()).collect();
        group.new_dataset_builder().with_data(&all).create(name).unwrap();
    };
    list(&group, "barcodes", &names('c', 9));
    let features = group.create_group("features").unwrap();
    list(&features, "name", &names('g', 6));
    list(&features, "feature_type", &TYPES.map(str::to_string));
}

/// AnnData of cells × features, sparse or dense.
fn annotated(path: &Path, sparse: bool) {
    annotate(&hdf5::File::create(path).unwrap(), sparse);
}

fn annotate(file: &hdf5::Group, sparse: bool) {
    file.new_attr::<VarLenUnicode>().create("encoding-type").unwrap().write_scalar(&text("anndata")).unwrap();
    let x = counts();
    if sparse {
        group_of_csr(file, "X", &x);
        let group = file.group("X").unwrap();
        group.new_attr::<VarLenUnicode>().create("encoding-type").unwrap().write_scalar(&text("csr_matrix")).unwrap();
        group.new_attr::<i64>().shape(2).create("shape").unwrap().write(&[9i64, 6]).unwrap();
    } else {
        file.new_dataset_builder().with_data(&x.as_standard_layout()).create("X").unwrap();
    }
    for (frame, names) in [("obs", names('c', 9)), ("var", names('g', 6))] {
        let group = file.create_group(frame).unwrap();
        group.new_attr::<VarLenUnicode>().create("_index").unwrap().write_scalar(&text("_index")).unwrap();
        let names: Vec<VarLenUnicode> = names.iter().map(|name| text(name)).collect();
        group.new_dataset_builder().with_data(&names).create("_index").unwrap();
    }
    let var = file.group("var").unwrap();
    var.new_dataset_builder().with_data(&VARIABLE).create("highly_variable").unwrap();
    let categories = |group: &hdf5::Group, name: &str, codes: &[i8], categories: &[&str]| {
        let group = group.create_group(name).unwrap();
        group.new_dataset_builder().with_data(codes).create("codes").unwrap();
        let categories: Vec<VarLenUnicode> = categories.iter().map(|name| text(name)).collect();
        group.new_dataset_builder().with_data(&categories).create("categories").unwrap();
    };
    let codes = TYPES.map(|kind| i8::from(kind == "Gene Expression"));
    categories(&var, "feature_types", &codes, &["Antibody Capture", "Gene Expression"]);
    let obs = file.group("obs").unwrap();
    categories(&obs, "kind", &[0, 1, 2, 0, 1, 2, 0, 1, 2], &["B", "T", "NK"]);
    obs.new_dataset_builder().with_data(&[0i64, 1, 2, 0, 1, 2, 0, 1, 2]).create("number").unwrap();
}

#[test]
fn features_of_one_type_are_used() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    directory(&at("tenx"));
    tenx(&at("tenx.h5"));
    annotated(&at("sparse.h5ad"), true);
    annotated(&at("dense.h5ad"), false);
    crate::common::save_npy(&at("genes.npy"), &counts().select(Axis(1), &GENES));
    let line = "--algo hals -k 2 --max-iters 8 --init random --factor-scale as-found";
    fednmf(0, line).arg("--input").arg(at("genes.npy")).arg("--output").arg(at("expected.h5")).ok();
    for (name, turned) in [("tenx", true), ("tenx.h5", true), ("sparse.h5ad", false), ("dense.h5ad", false)] {
        let inspected = fednmf(0, "inspect --json").arg(at(name)).run();
        let inspected: Value = serde_json::from_str(&inspected.stdout).expect(&inspected.stderr);
        assert_eq!(inspected["feature_types"], json!({"Antibody Capture": 2, "Gene Expression": 4}), "{name}");
        for ranks in [0, 2] {
            let run = || {
                let run = fednmf(ranks, line).arg("--input").arg(at(name)).arg("--output").arg(at("f.h5"));
                if turned { run.arg("--transpose") } else { run }
            };
            run().refused(&["Gene Expression (4)", "Antibody Capture (2)", "--feature-type NAME"]);
            run().args(["--feature-type"]).arg("Peaks").refused(&["--feature-type Peaks", "Gene Expression (4)"]);
            run().args(["--feature-type"]).arg("Gene Expression").ok();
            for factor in ["U", "V"] {
                let off = matrix(&at("f.h5"), factor) - matrix(&at("expected.h5"), factor);
                assert!(off.iter().all(|x| x.abs() < 1e-9), "{name} {ranks} {factor}: {off}");
            }
            let top = fednmf(0, "top").own_process().arg(at("f.h5")).run().stdout;
            assert!(top.contains("\tg3\t") && top.contains("\tg4\t") && !top.contains("\tg2\t"), "{name}: {top}");
        }
        let estimate = |kind: &str| {
            let run = fednmf(0, "estimate -k 2 --json --feature-type").arg(kind).arg("--input").arg(at(name)).run();
            let all: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|e| panic!("{e}: {}", run.stderr));
            all[if turned { "m" } else { "n" }].clone()
        };
        assert_eq!((estimate("Gene Expression"), estimate("Antibody Capture")), (json!(4), json!(2)));
        // What reads the matrix again chooses the same features.
        for command in ["evaluate", "project"] {
            let mut done = fednmf(0, command).arg(at("f.h5")).arg("--input").arg(at(name));
            if turned {
                done = done.arg("--transpose");
            }
            let done = done.run();
            assert!(done.code == Some(0) && !done.stderr.contains("ignored"), "{name}: {}", done.stderr);
        }
    }
    let none = fednmf(0, "-k 2").arg("--input").arg(at("genes.npy")).args(["--feature-type", "Peaks"]);
    none.refused(&["--feature-type Peaks", "does not tell the types"]);
    fednmf(0, "estimate -m 9 -n 6 --feature-type Peaks").refused(&["--feature-type", "--input"]);
}

/// The names choose the columns, whatever types the new file has.
#[test]
fn new_cells_may_have_features_of_several_types() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = counts();
    let cells = names('c', 9).into_iter().zip(x.rows());
    let lines = cells.map(|(cell, row)| format!("{cell},{},{},{}\n", row[4], row[0], row[1])).collect::<String>();
    fs::write(at("genes.csv"), format!("cell,g4,g0,g1\n{lines}")).unwrap();
    directory(&at("tenx"));
    annotated(&at("x.h5ad"), true);
    fednmf(0, "-k 2 --max-iters 50 --input").arg(at("genes.csv")).arg("--output").arg(at("f.h5")).ok();
    let run = || fednmf(0, "project").arg(at("f.h5")).arg("--input");
    run().arg(at("genes.csv")).arg("--output").arg(at("expected.h5")).ok();
    for (name, more) in [("tenx", "--transpose"), ("x.h5ad", "")] {
        let done = run().arg(at(name)).args(more.split_whitespace()).arg("--output").arg(at("new.h5")).run();
        assert!(done.code == Some(0) && done.stderr.contains("3 of its columns are not in the factors"), "{done:?}");
        let [found, expected] = ["new.h5", "expected.h5"].map(|name| factor(&at(name), "U"));
        assert!((&found - &expected).iter().all(|x| x.abs() < 1e-9), "{name}: {found} {expected}");
    }
}

#[test]
fn highly_variable_genes_are_used_when_asked_for() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let line = "--algo hals -k 2 --max-iters 8 --init random --factor-scale as-found";
    let kept: Vec<usize> = GENES.into_iter().filter(|&j| VARIABLE[j]).collect();
    crate::common::save_npy(&at("kept.npy"), &counts().select(Axis(1), &kept));
    fednmf(0, line).arg("--input").arg(at("kept.npy")).arg("--output").arg(at("expected.h5")).ok();
    for sparse in [true, false] {
        annotated(&at("x.h5ad"), sparse);
        let run = || {
            let run = fednmf(0, line).arg("--input").arg(at("x.h5ad")).arg("--output").arg(at("f.h5"));
            run.args(["--feature-type"]).arg("Gene Expression")
        };
        let told = run().run();
        assert!(
            told.stderr.contains("4 of 6 genes are marked as highly variable, and all are used"),
            "{}",
            told.stderr
        );
        let told = run().arg("--highly-variable").run();
        assert!(told.code == Some(0) && !told.stderr.contains("marked"), "{}", told.stderr);
        for factor in ["U", "V"] {
            let off = matrix(&at("f.h5"), factor) - matrix(&at("expected.h5"), factor);
            assert!(off.iter().all(|x| x.abs() < 1e-9), "{factor}: {off}");
        }
        let done = fednmf(0, "evaluate").arg(at("f.h5")).arg("--input").arg(at("x.h5ad")).run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        // The names of V, which are of cells, choose no genes.
        run().args(["--highly-variable", "--transpose"]).ok();
        let done = fednmf(0, "project --transpose --json").arg(at("f.h5")).arg("--input").arg(at("x.h5ad")).run();
        let told: Value = serde_json::from_str(&done.stdout).expect(&done.stderr);
        assert!(told["m"] == 4 && done.stderr.contains("only highly variable genes"), "{}", done.stderr);
    }
    let file = hdf5::File::open_rw(at("x.h5ad")).unwrap();
    file.group("var").unwrap().unlink("highly_variable").unwrap();
    drop(file);
    let none = fednmf(0, "-k 2").arg("--input").arg(at("x.h5ad")).args(["--highly-variable", "--feature-type"]);
    none.arg("Gene Expression").refused(&["--highly-variable", "no column highly_variable"]);
}

/// Names of any encoding and length reach every format, and are found again by what reads it.
#[test]
fn names_in_hdf5_may_be_latin_1_and_long() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    tenx(&at("x.h5"));
    let mut bytes = fs::read(at("x.h5")).unwrap();
    for name in names('g', 6) {
        let stored = format!("{name}\0\0\0\0\0\0");
        let place = bytes.windows(stored.len()).position(|part| part == stored.as_bytes()).unwrap();
        bytes[place] = 0xe9;
    }
    fs::write(at("x.h5"), bytes).unwrap();
    let file = hdf5::File::open_rw(at("x.h5")).unwrap();
    file.unlink("matrix/barcodes").unwrap();
    let cells: Vec<String> = names('c', 9).iter().map(|name| "x".repeat(290) + name).collect();
    let fixed: Vec<FixedAscii<300>> = cells.iter().map(|name| FixedAscii::from_ascii(name).unwrap()).collect();
    file.new_dataset_builder().with_data(&fixed).create("matrix/barcodes").unwrap();
    drop(file);
    let line = "--algo hals -k 2 --max-iters 8 --init random --transpose --feature-type";
    for end in ["h5ad", "h5", "npz"] {
        let run = fednmf(0, line).arg("Gene Expression").arg("--input").arg(at("x.h5"));
        run.arg("--output").arg(at(&format!("f.{end}"))).ok();
        let ask = |line: &str| {
            let done = fednmf(0, line).own_process().arg(at(&format!("f.{end}"))).run();
            assert_eq!(done.code, Some(0), "{end}: {}", done.stderr);
            done.stdout
        };
        let top = ask("top");
        assert!(top.contains("\té3\t") && top.contains("\té4\t"), "{end}: {top}");
        let clusters = ask("clusters");
        assert!(cells.iter().all(|name| clusters.contains(&format!("\n{name}\t"))), "{end}: {clusters}");
        let again = fednmf(0, "evaluate --transpose --input").arg(at("x.h5")).arg(at(&format!("f.{end}"))).run();
        assert!(again.code == Some(0) && !again.stderr.contains("position"), "{end}: {}", again.stderr);
    }
}

/// The same labels in every form; the components are those of the cells modulo 3.
#[test]
fn labels_are_columns_of_tables_and_of_anndata_or_numbers() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let x = Array2::from_shape_fn((9, 6), |(i, j)| if i % 3 == j % 3 { 5.0 + i as f64 } else { 0.0 });
    let header = format!("cell,{}\n", names('g', 6).join(","));
    let rows = x
        .outer_iter()
        .enumerate()
        .map(|(i, row)| format!("c{i},{}\n", row.iter().map(f64::to_string).collect::<Vec<_>>().join(",")));
    fs::write(at("x.csv"), header + &rows.collect::<String>()).unwrap();
    fednmf(0, "-k 3 --max-iters 60 --input").arg(at("x.csv")).arg("--output").arg(at("f.h5")).ok();
    annotated(&at("a.h5ad"), true);
    let shuffled = [4, 7, 1, 0, 8, 2, 5, 3, 6];
    let table = |separator: &str| {
        let row = |i: &usize| format!("c{i}{separator}\"kind {}\"{separator}{i}\n", i % 3);
        format!("cell{separator}kind{separator}place\n{}", shuffled.iter().map(row).collect::<String>())
    };
    fs::write(at("l.csv"), table(",")).unwrap();
    fs::write(at("l.tsv"), table("\t")).unwrap();
    let numbers = Array2::from_shape_fn((9, 1), |(i, _)| (i % 3) as f64);
    crate::common::save_npy(&at("l.npy"), &numbers);
    let mut idx = vec![0, 0, 8, 1, 0, 0, 0, 9];
    idx.extend((0..9).map(|i| i % 3));
    fs::write(at("l-idx1-ubyte"), idx).unwrap();
    let clusters =
        |labels: String| fednmf(0, "clusters --json").own_process().arg(at("f.h5")).arg("--labels").arg(at(&labels));
    for labels in ["a.h5ad:obs/kind", "a.h5ad:/obs/number", "l.csv:kind", "l.tsv:kind", "l.npy", "l-idx1-ubyte"] {
        let done = clusters(labels.into()).run();
        assert_eq!(done.code, Some(0), "{labels}: {}", done.stderr);
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(found["adjusted_rand"], 1.0, "{labels}");
    }
    let mut numbers = numbers;
    numbers[[0, 0]] = f64::NAN;
    crate::common::save_npy(&at("l.npy"), &numbers);
    let done = clusters("l.npy".into()).run();
    assert!(done.code == Some(0) && done.stderr.contains("1 of 9"), "{}", done.stderr);
    crate::common::save_npy(&at("l.npy"), &(numbers + 2f64.powi(53)));
    clusters("l.npy".into()).refused(&["l.npy", "beyond 2^53", "as text"]);
    clusters("a.h5ad:obs/type".into()).refused(&["no such column", "kind, number"]);
    clusters("a.h5ad".into()).refused(&["FILE.h5ad:obs/COLUMN"]);
    clusters("l.csv:type".into()).refused(&["no such column", "cell, kind, place"]);
    clusters("a.h5ad:var/highly_variable".into()).refused(&["has 6 labels", "9 rows"]);
}

/// Marks of another number of genes would shift the rows of the matrix.
#[test]
fn marks_of_another_length_are_refused() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (i, length) in [4, 5, 7].into_iter().enumerate() {
        let path = at(&format!("{i}.h5ad"));
        annotated(&path, true);
        let file = hdf5::File::open_rw(&path).unwrap();
        let var = file.group("var").unwrap();
        var.unlink("highly_variable").unwrap();
        var.new_dataset_builder().with_data(&vec![true; length]).create("highly_variable").unwrap();
        drop((var, file));
        let line = "-k 1 --max-iters 1 --highly-variable --input";
        let run = fednmf(0, line).arg(&path).arg("--feature-type").arg("Gene Expression");
        run.refused(&[&format!("of {length} features, but the matrix has 6 columns")]);
    }
}

/// Names through a link to another file, or in one, would be read from a file that nobody named.
#[test]
fn names_in_other_files_are_refused() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    annotated(&at("whole.h5ad"), true);
    let line = "-k 1 --max-iters 1 --feature-type";
    let run = |name: &str| fednmf(0, line).arg("Gene Expression").arg("--input").arg(at(name));
    run("whole.h5ad").ok();
    let names: Vec<FixedAscii<8>> = names('g', 6).iter().map(|name| FixedAscii::from_ascii(name).unwrap()).collect();
    let source = hdf5::File::create(at("names.h5")).unwrap();
    source.new_dataset_builder().with_data(&names).create("names").unwrap();
    drop(source);
    let raw: Vec<u8> = (0..6).flat_map(|i| format!("g{i}\0\0\0\0\0\0").into_bytes()).collect();
    fs::write(at("names.bin"), raw).unwrap();
    for (name, other) in [("linked.h5ad", "names.h5"), ("external.h5ad", "names.bin")] {
        fs::copy(at("whole.h5ad"), at(name)).unwrap();
        let file = hdf5::File::open_rw(at(name)).unwrap();
        let var = file.group("var").unwrap();
        var.unlink("_index").unwrap();
        let from = at(other);
        if other == "names.h5" {
            var.link_external(from.to_str().unwrap(), "names", "_index").unwrap();
        } else {
            let new = var.new_dataset::<FixedAscii<8>>().external(from.to_str().unwrap(), 0, 48);
            new.shape(6).create("_index").unwrap();
        }
        drop((var, file));
        run(name).refused(&[name, other, "another file"]);
    }
}

/// The factor of a single party has no others beside it to keep it from.
#[test]
fn one_party_has_both_factors_in_the_file() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (algo, more) in [("grecond", "--binarize 7"), ("fnmf", ""), ("secure-hals", "")] {
        for ranks in [0, 2] {
            crate::common::save_npy(&at("x.npy"), &counts());
            let line = format!("--algo {algo} --parties 1 -k 2 --max-iters 3 {more} --input");
            fednmf(ranks, &line).arg(at("x.npy")).arg("--output").arg(at("f.h5")).ok();
            assert_eq!([matrix(&at("f.h5"), "U").dim(), matrix(&at("f.h5"), "V").dim()], [(9, 2), (6, 2)], "{algo}");
            let beside = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(!beside.into_iter().any(|name| name.to_string_lossy().contains("party")), "{algo}");
            let done = fednmf(0, "evaluate").arg(at("f.h5")).arg("--input").arg(at("x.npy")).run();
            assert_eq!(done.code, Some(0), "{algo}: {}", done.stderr);
        }
    }
    // Of two parties each keeps its own.
    let line = "--algo fnmf --parties 2 -k 2 --max-iters 3 --input";
    fednmf(0, line).arg(at("x.npy")).arg("--output").arg(at("two.h5")).ok();
    assert!(!hdf5::File::open(at("two.h5")).unwrap().link_exists("U"));
    assert_eq!(factor(&at("two.h5"), "U").dim(), (9, 2));
}

/// A nullable column of AnnData: values, and a mask over those that are missing.
fn nullable<T: hdf5::H5Type>(group: &hdf5::Group, name: &str, values: &[T], mask: &[bool]) {
    let group = group.create_group(name).unwrap();
    group.new_dataset_builder().with_data(values).create("values").unwrap();
    group.new_dataset_builder().with_data(mask).create("mask").unwrap();
}

#[test]
fn masked_values_are_missing() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    annotated(&at("x.h5ad"), false);
    let file = hdf5::File::open_rw(at("x.h5ad")).unwrap();
    let [obs, var] = ["obs", "var"].map(|name| file.group(name).unwrap());
    let labels: Vec<i64> = (0..9).map(|i| i % 3).collect();
    nullable(&obs, "nullable", &labels, &std::array::from_fn::<bool, 9, _>(|i| i > 5));
    var.unlink("highly_variable").unwrap();
    nullable(&var, "highly_variable", &[true; 6], &VARIABLE.map(|variable| !variable));
    drop((obs, var, file));
    let line = "--algo hals -k 3 --max-iters 8 --init random --feature-type";
    let run = || {
        let run = fednmf(0, line).arg("Gene Expression").arg("--input").arg(at("x.h5ad"));
        run.arg("--output").arg(at("f.h5"))
    };
    // A gene whose mark is missing is neither marked nor unmarked.
    run().arg("--highly-variable").refused(&["--highly-variable", "neither true nor false"]);
    run().ok();
    let compared = fednmf(0, "clusters --labels").arg(format!("{}:obs/nullable", at("x.h5ad").display()));
    let compared = compared.arg(at("f.h5")).run().stderr;
    assert!(compared.contains("3 of 9 rows have no label"), "{compared}");
    // A row without a name cannot be found by it.
    let file = hdf5::File::open_rw(at("x.h5ad")).unwrap();
    let obs = file.group("obs").unwrap();
    obs.unlink("_index").unwrap();
    let names: Vec<VarLenUnicode> = names('c', 9).iter().map(|name| text(name)).collect();
    nullable(&obs, "_index", &names, &std::array::from_fn::<bool, 9, _>(|i| i == 4));
    drop((obs, file));
    run().refused(&["obs/_index", "lacks some of the names"]);
}

#[test]
fn names_are_read_or_missed_aloud() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let warned = |name: &str| {
        let mut run = fednmf(0, "-k 2 --max-iters 2 --quiet --input").arg(at(name)).arg("--output").arg(at("f.h5"));
        if name != "x.loom" {
            run = run.args(["--feature-type", "Gene Expression"]);
        }
        let done = run.run();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        done.stderr
    };
    annotated(&at("x.h5ad"), false);
    let replace = |name: &str, with: &dyn Fn(&hdf5::Group)| {
        let file = hdf5::File::open_rw(at("x.h5ad")).unwrap();
        let frame = file.group(name).unwrap();
        frame.unlink("_index").unwrap();
        with(&frame);
    };
    // Names that are numbers or categories are read.
    replace("obs", &|obs| {
        obs.new_dataset_builder().with_data(&[70i64, 71, 72, 73, 74, 75, 76, 77, 78]).create("_index").unwrap();
    });
    replace("var", &|var| {
        let index = var.create_group("_index").unwrap();
        index.new_dataset_builder().with_data(&[5i8, 4, 3, 2, 1, 0]).create("codes").unwrap();
        let all: Vec<VarLenUnicode> = names('g', 6).iter().map(|name| text(name)).collect();
        index.new_dataset_builder().with_data(&all).create("categories").unwrap();
    });
    assert!(!warned("x.h5ad").contains("names are not read"));
    let top = fednmf(0, "top").own_process().arg(at("f.h5")).run().stdout;
    assert!(top.contains("\tg5\t"), "{top}");
    let stored = hdf5::File::open(at("f.h5")).unwrap();
    let rows = stored.attr("row_names").unwrap().read_scalar::<VarLenUnicode>().unwrap();
    assert_eq!(serde_json::from_str::<Vec<String>>(&rows).unwrap()[8], "78");
    drop(stored);
    // Others are not, which is said.
    replace("obs", &|obs| {
        obs.new_dataset_builder().with_data(&Array2::<i64>::zeros((9, 2))).create("_index").unwrap();
    });
    let stderr = warned("x.h5ad");
    assert!(stderr.contains("warning:") && stderr.contains("names are not read from obs/_index"), "{stderr}");
    directory(&at("tenx"));
    for sample in ["GSM1_", "GSM2_"] {
        fs::copy(at("tenx/barcodes.tsv"), at(&format!("tenx/{sample}barcodes.tsv"))).unwrap();
    }
    assert!(!warned("tenx").contains("names are not read"));
    fs::remove_file(at("tenx/barcodes.tsv")).unwrap();
    assert!(warned("tenx").contains("GSM1_barcodes.tsv, whose name does not begin as that of the matrix"));
    for list in ["matrix.mtx", "features.tsv"] {
        fs::rename(at(&format!("tenx/{list}")), at(&format!("tenx/GSM2_{list}"))).unwrap();
    }
    fs::write(at("tenx/GSM1_features.tsv"), "another sample").unwrap();
    assert!(!warned("tenx").contains("names are not read"), "the lists with the matrix's own prefix");
    fs::rename(at("tenx/GSM2_features.tsv"), at("tenx/features.tsv")).unwrap();
    assert!(!warned("tenx").contains("names are not read"), "a list of all samples");
    let file = hdf5::File::create(at("x.loom")).unwrap();
    file.new_dataset_builder().with_data(&counts().as_standard_layout()).create("matrix").unwrap();
    for (group, name) in [("row_attrs", "Gene"), ("col_attrs", "Accession")] {
        let count = if group == "row_attrs" { 9 } else { 6 };
        let all: Vec<VarLenUnicode> = names('x', count).iter().map(|name| text(name)).collect();
        file.create_group(group).unwrap().new_dataset_builder().with_data(&all).create(name).unwrap();
    }
    drop(file);
    // Its rows are genes.
    let inspected = fednmf(0, "inspect").arg(at("x.loom")).run();
    assert!((inspected.stdout + &inspected.stderr).contains("with --transpose they are the columns"));
    let inspected = fednmf(0, "inspect --transpose").arg(at("x.loom")).run();
    assert!(!(inspected.stdout + &inspected.stderr).contains("with --transpose they are the columns"));
    let stderr = warned("x.loom");
    assert!(stderr.contains("col_attrs (neither CellID nor obs_names is in it)"), "{stderr}");
    assert!(!stderr.contains("row_attrs"), "{stderr}");
}

#[test]
fn modalities_have_names_of_their_own() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let write = |name: &str, modalities: &[&str]| {
        let file = hdf5::File::create(at(name)).unwrap();
        // The names of the root are in another order.
        for (frame, names) in [("obs", names('c', 9)), ("var", names('g', 6))] {
            let names: Vec<VarLenUnicode> = names.iter().rev().map(|name| text(name)).collect();
            let group = file.create_group(frame).unwrap();
            group.new_dataset_builder().with_data(&names).create("_index").unwrap();
            if frame == "obs" {
                let kinds: Vec<VarLenUnicode> = (0..9).map(|i| text(["B", "T", "NK"][i % 3])).collect();
                group.new_dataset_builder().with_data(&kinds).create("kind").unwrap();
            }
        }
        let all = file.create_group("mod").unwrap();
        modalities.iter().for_each(|name| annotate(&all.create_group(name).unwrap(), *name == "rna"));
    };
    write("two.h5mu", &["rna", "atac"]);
    write("one.h5mu", &["rna"]);
    annotated(&at("a.h5ad"), true);
    let run = |input: &str, output: &str| {
        let run = fednmf(0, "--algo hals -k 3 --max-iters 8 --init random --input").arg(at(input));
        run.arg("--output").arg(at(output)).args(["--feature-type", "Gene Expression"])
    };
    run("two.h5mu", "f.h5").refused(&["several modalities", "two.h5mu:/mod/rna/X", "two.h5mu:/mod/atac/X"]);
    run("a.h5ad", "expected.h5").ok();
    for input in ["two.h5mu:/mod/rna/X", "two.h5mu:/mod/atac/X", "two.h5mu:mod/rna/X", "one.h5mu"] {
        let note = run(input, "f.h5").run().stderr;
        assert!(note.contains("4 of 6 genes are marked as highly variable"), "{input}: {note}");
        for names in ["row_names", "column_names"] {
            let list = |file: &str| {
                let file = hdf5::File::open(at(file)).unwrap();
                file.attr(names).unwrap().read_raw::<VarLenUnicode>().unwrap().to_vec()
            };
            assert_eq!(list("f.h5"), list("expected.h5"), "{input}: {names}");
        }
        assert_eq!(matrix(&at("f.h5"), "U").dim(), (9, 3));
    }
    // The labels of the root have its names, and those of a modality the names of this.
    run("one.h5mu", "f.h5").ok();
    let clusters = |labels: &str| fednmf(0, "clusters --json --labels").arg(at(labels)).arg(at("f.h5")).run();
    let [of_modality, of_root] = ["one.h5mu:mod/rna/obs/kind", "one.h5mu:obs/kind"].map(clusters);
    assert_eq!(of_modality.code, Some(0), "{}", of_modality.stderr);
    let found: Vec<Value> =
        [of_modality, of_root].iter().map(|done| serde_json::from_str(&done.stdout).expect(&done.stderr)).collect();
    // In the order of their names, kind i % 3 of the modality is kind (8 - i) % 3 of the root: the same partition.
    assert_eq!(found[0]["adjusted_rand"], found[1]["adjusted_rand"]);
}

#[test]
fn the_matrix_of_a_directory_of_10x_mixes_types_aloud() {
    let dir = tempdir().unwrap();
    directory(&dir.path().join("tenx"));
    let matrix = dir.path().join("tenx/matrix.mtx");
    let run = fednmf(0, "-k 2 --max-iters 2 --algo hals --input").arg(&matrix).run();
    assert!(run.code == Some(0) && run.stderr.contains("(Gene Expression, Antibody Capture)"), "{run:?}");
    let prepare = |more: &str| {
        let line = format!("prepare counts {} --feature-type gene {more} -o", dir.path().join("tenx").display());
        fednmf(0, &line).arg(dir.path().join(format!("x{}.npz", more.len()))).run().stderr
    };
    assert!(prepare("").contains("has genes as rows") && !prepare("--transpose").contains("has genes as rows"));
}

/// Also where a file has no types of its features.
#[test]
fn features_in_rows_are_noticed_in_all_their_formats() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    tenx(&at("three.h5"));
    directory(&at("three"));
    let two_columns: String = (0..6).map(|j| format!("ENS{j}\tg{j}\n")).collect();
    for (name, list) in [("two", "features.tsv"), ("old", "genes.tsv")] {
        directory(&at(name));
        fs::remove_file(at(name).join("features.tsv")).unwrap();
        fs::write(at(name).join(list), &two_columns).unwrap();
    }
    // Cell Ranger 2: a group with the name of the genome.
    let file = hdf5::File::create(at("two.h5")).unwrap();
    group_of_csr(&file, "GRCh38", &counts());
    let group = file.group("GRCh38").unwrap();
    group.new_dataset_builder().with_data(&[6i64, 9]).create("shape").unwrap();
    for (list, names) in [("genes", names('g', 6)), ("gene_names", names('g', 6)), ("barcodes", names('c', 9))] {
        let names: Vec<VarLenUnicode> = names.iter().map(|name| text(name)).collect();
        group.new_dataset_builder().with_data(&names).create(list).unwrap();
    }
    drop(group);
    file.close().unwrap();
    for name in ["three.h5", "three", "two", "old", "two.h5"] {
        for (transpose, is_noticed) in [("", true), ("--transpose", false)] {
            let inspected = fednmf(0, &format!("inspect {transpose}")).arg(at(name)).run();
            let told = [inspected.stdout, inspected.stderr].concat();
            assert_eq!(told.contains("the rows are features"), is_noticed, "{name} {transpose}: {told}");
            let out = at(&format!("{name}{}.npz", transpose.len()));
            let line = format!("prepare counts --feature-type all {transpose}");
            let prepared = fednmf(0, &line).arg(at(name)).arg("-o").arg(out).run();
            let told = prepared.stderr;
            assert_eq!(told.contains("has genes as rows"), is_noticed, "{name} {transpose}: {told}");
        }
    }
    // A plain matrix has no orientation.
    let file = hdf5::File::create(at("plain.h5")).unwrap();
    file.new_dataset_builder().with_data(&counts()).create("matrix").unwrap();
    file.close().unwrap();
    let inspected = fednmf(0, "inspect").arg(at("plain.h5")).run();
    assert!(![inspected.stdout, inspected.stderr].concat().contains("features"));
}
