//! Tables in text: index columns and headers are no data, missing values are NaN, triples are entries.

use std::path::Path;

use ndarray::Array2;

use fednmf_comm::Communicator;
use fednmf_data::Layout;
use fednmf_files::{InputSpec, Presence, Repeated, TableFormat, open};

use super::bad::refused_input;
use super::good::{dense_matrix, gz, npy, sparse_matrix};
use super::{check, load, plans};

/// The lines of a table, with the text before each row (its number as `{}`) and between fields.
fn rows(matrix: &Array2<f64>, before: &str, separator: &str) -> String {
    let line = |(i, row): (usize, ndarray::ArrayView1<f64>)| {
        let fields: Vec<String> = row.iter().map(f64::to_string).collect();
        format!("{}{}\n", before.replace("{}", &i.to_string()), fields.join(separator))
    };
    matrix.outer_iter().enumerate().map(line).collect()
}

pub fn tables(comm: &Communicator, dir: &str) {
    let dense = dense_matrix();
    let numbers = |from: usize| (from..from + 17).map(|j| j.to_string()).collect::<Vec<_>>();
    let plain = rows(&dense, "", ",");
    // As pandas writes them: with index and header, without index, without header; then what other programs write.
    let files = [
        ("both.csv", format!(",{}\n{}", numbers(0).join(","), rows(&dense, "{},", ",")), true, true),
        ("both.tsv", format!("\t{}\n{}", numbers(0).join("\t"), rows(&dense, "{}\t", "\t")), true, true),
        ("header.csv", format!("{}\n{plain}", numbers(0).join(",")), true, false),
        ("from-1.csv", format!("{}\n{plain}", numbers(1).join(",")), true, false),
        ("index.csv", rows(&dense, "r{},", ","), false, true),
        ("named.csv", format!("index,{}\n{}", numbers(2001).join(","), rows(&dense, "7{},", ",")), true, true),
        ("r.txt", format!("{}\n{}", numbers(0).join(" "), rows(&dense, "{} ", " ")), true, true),
        ("plain.csv", plain.clone(), false, false),
    ];
    if comm.is_root() {
        let data = dense.iter().map(|x| x.to_le_bytes().to_vec());
        std::fs::write(format!("{dir}/d.npy"), npy("<f8", false, (23, 17), data)).unwrap();
        files.iter().for_each(|(name, text, ..)| std::fs::write(format!("{dir}/{name}"), text).unwrap());
        gz(Path::new(&format!("{dir}/both.csv.gz")), files[0].1.as_bytes());
        for party in 0..2 {
            std::fs::write(format!("{dir}/party-{party}.csv"), &files[0].1).unwrap();
        }
    }
    comm.barrier();
    let input = |name: &str| InputSpec::parse(&format!("{dir}/{name}")).unwrap();
    let mut statistics = None;
    check(comm, &input("d.npy"), &Layout::RowsAndColumns { ranks: comm.size() }, &dense, &mut statistics);
    let zipped = ("both.csv.gz", String::new(), true, true);
    for (name, _, header, index) in files.iter().chain([&zipped]) {
        for plan in plans(comm.size()) {
            check(comm, &input(name), &plan, &dense, &mut statistics);
        }
        let opened = open(&input(name), comm).unwrap();
        let labels = opened.header().labels.expect("a table");
        assert_eq!((labels.header, labels.index_col), (*header, *index), "{name}");
        let notes = comm.all_gather_value(super::TEST, &opened.header().notes);
        assert!(notes.iter().all(|notes| *notes == opened.header().notes), "{notes:?}");
        let told = notes[0].join(" ");
        assert_eq!(told.contains("as a header"), *header, "{told}");
        assert_eq!(told.contains("as row names"), *index, "{told}");
        assert!(told.is_empty() || told.starts_with(&format!("{dir}/{name}: ")), "{told}");
    }
    // Options override the detection.
    let mut spec = input("both.csv");
    spec.table.index_col = Presence::No;
    assert_eq!(shape(comm, &spec), (23, 18));
    spec = input("header.csv");
    spec.table.header = Presence::No;
    assert_eq!(shape(comm, &spec), (24, 17));
    spec = input("plain.csv");
    (spec.table.header, spec.table.index_col) = (Presence::Yes, Presence::Yes);
    assert_eq!(shape(comm, &spec), (22, 16));
    // Notes that hold for all parties are printed once.
    spec = input("party-{party}.csv");
    spec.parties = Some(2);
    let opened = open(&spec, comm).unwrap();
    assert_eq!((opened.header().rows, opened.header().cols, opened.header().notes.len()), (46, 17, 1));
    assert!(opened.header().notes[0].starts_with(&format!("{dir}/party-{{party}}.csv: ")));

    for (option, set) in [
        ("--header", (|spec: &mut InputSpec| spec.table.header = Presence::No) as fn(&mut InputSpec)),
        ("--index-col", |spec| spec.table.index_col = Presence::Yes),
        ("--format triples", |spec| spec.table.format = TableFormat::Triples),
    ] {
        for text in [&format!("{dir}/d.npy"), "synthetic:planted"] {
            let mut spec = InputSpec::parse(text).unwrap();
            set(&mut spec);
            refused_input(comm, &spec, &format!("{option} is for tables in text"));
        }
    }
    spec.table.format = TableFormat::Triples;
    refused_input(comm, &spec, "--format triples and edges: not with a file for each party");
}

fn shape(comm: &Communicator, spec: &InputSpec) -> (usize, usize) {
    let opened = open(spec, comm).unwrap();
    (opened.header().rows, opened.header().cols)
}

pub fn missing_values(comm: &Communicator, dir: &str) {
    let mut dense = dense_matrix();
    for at in [(0, 3), (4, 0), (5, 16), (22, 8), (22, 9), (7, 7), (8, 8)] {
        dense[at] = f64::NAN;
    }
    let words = ["", "NA", "NaN", "nan", "null", "N/A"];
    let mut at = 0;
    let mut text = format!("id,{}\n", (0..17).map(|j| format!("c{j}")).collect::<Vec<_>>().join(","));
    for row in dense.outer_iter() {
        let field = |x: &f64| {
            at += usize::from(x.is_nan());
            if x.is_nan() { words[at % words.len()].to_string() } else { x.to_string() }
        };
        text += &format!("a,{}\n", row.iter().map(field).collect::<Vec<_>>().join(","));
    }
    if comm.is_root() {
        let data = dense.iter().map(|x| x.to_le_bytes().to_vec());
        std::fs::write(format!("{dir}/na.npy"), npy("<f8", false, (23, 17), data)).unwrap();
        std::fs::write(format!("{dir}/na.csv"), text).unwrap();
    }
    comm.barrier();
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let read = |name: &str| {
        let mut spec = InputSpec::parse(&format!("{dir}/{name}")).unwrap();
        spec.allow_nan = true;
        let (wholes, statistics, _) = load::<f64>(comm, &spec, &plan);
        (wholes[0].mapv(|x| if x.is_nan() { -1.0 } else { x }), statistics)
    };
    let table = read("na.csv");
    assert_eq!(table.0, dense.mapv(|x| if x.is_nan() { -1.0 } else { x }));
    assert_eq!(table, read("na.npy"));
    let spec = InputSpec::parse(&format!("{dir}/na.csv")).unwrap();
    refused_input(
        comm,
        &spec,
        "line 2: the entry in row 0, column 3 is 'NA', not a number; if that marks a missing value",
    );
}

pub fn triples(comm: &Communicator, dir: &str) {
    let sparse = sparse_matrix();
    let entries: Vec<(usize, usize, f64)> =
        sparse.indexed_iter().filter(|(_, x)| **x != 0.0).map(|((i, j), x)| (i, j, *x)).collect();
    // Users and items are numbers: in ascending order, whatever that of the lines. One entry comes in two halves.
    let mut numbers = String::from("user,item,rating\n");
    for (i, j, x) in entries.iter().rev() {
        let parts = if (*i, *j) == (0, 0) { 2 } else { 1 };
        (0..parts).for_each(|_| numbers += &format!("{},{},{}\n", 3 * i + 95, *j as i64 - 5, x / f64::from(parts)));
    }
    // They are names: in the order in which they appear.
    let (mut users, mut items) = (Vec::new(), Vec::new());
    let mut words = String::new();
    for (i, j, x) in entries.iter().rev() {
        for (all, name) in [(&mut users, *i), (&mut items, *j)] {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        words += &format!("u{i}\t\"item {j}\"\t{x}\n");
    }
    let permuted = Array2::from_shape_fn(sparse.dim(), |(i, j)| sparse[[users[i], items[j]]]);
    // Without a value each is 1.
    let pairs: String = entries.iter().map(|(i, j, _)| format!("{i} {j}\n")).collect();
    let ones = sparse.mapv(|x| f64::from(u8::from(x > 0.0)));
    if comm.is_root() {
        std::fs::write(format!("{dir}/numbers.csv"), &numbers).unwrap();
        gz(Path::new(&format!("{dir}/numbers.csv.gz")), numbers.as_bytes());
        std::fs::write(format!("{dir}/words.tsv"), words).unwrap();
        std::fs::write(format!("{dir}/pairs.data"), pairs).unwrap();
        std::fs::write(format!("{dir}/wrong.csv"), "1,2,3\n1,3,-4\n2,2,5\n").unwrap();
        std::fs::write(format!("{dir}/ragged.csv"), "1,2,3\n1,3\n2,2,5\n").unwrap();
    }
    comm.barrier();
    let input = |name: &str| {
        let mut spec = InputSpec::parse(&format!("{dir}/{name}")).unwrap();
        if !name.contains(".mtx") {
            spec.table.format = TableFormat::Triples;
            spec.table.repeated = Repeated::Sum;
        }
        spec
    };
    let mut statistics = None;
    for plan in plans(comm.size()) {
        for (name, duplicates) in [("coordinate.mtx", 2), ("numbers.csv", 1), ("numbers.csv.gz", 1)] {
            assert_eq!(check(comm, &input(name), &plan, &sparse, &mut statistics), duplicates, "{name}");
        }
        check(comm, &input("words.tsv"), &plan, &permuted, &mut None);
        check(comm, &input("pairs.data"), &plan, &ones, &mut None);
        let mut turned = input("numbers.csv");
        turned.transpose = true;
        check(comm, &turned, &plan, &sparse.t().as_standard_layout().into_owned(), &mut None);
    }
    let mut once = input("numbers.csv");
    once.table.repeated = Repeated::Refuse;
    refused_input(comm, &once, "1 of the triples name a user and an item that an earlier one names");
    refused_input(comm, &input("wrong.csv"), "line 2: the entry in row 0, column 1 is negative");
    refused_input(comm, &input("ragged.csv"), "line 2: has 2 fields");
}
