//! Files of parties whose columns differ (`--common-columns`).

use std::path::Path;

use tempfile::tempdir;

use crate::common::{distance, fednmf, matrix};

/// A party's table: its columns, and its rows.
type Table<'a> = (&'a [&'a str], usize);

/// Three hospitals: another order, a column that others lack, and both.
const TABLES: [Table; 3] = [
    (&["actb", "gapdh", "cd3e", "cd19", "nkg7"], 30),
    (&["nkg7", "cd19", "own", "actb", "gapdh", "cd3e"], 25),
    (&["cd19", "other", "cd3e", "actb", "nkg7", "gapdh", "last"], 35),
];
const COMMON: [&str; 5] = ["actb", "gapdh", "cd3e", "cd19", "nkg7"];

/// A number that depends on the row and on the name of the column.
fn entry(party: usize, row: usize, name: &str) -> u64 {
    let hash = name.bytes().fold(17u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (hash.wrapping_mul((31 * party + row) as u64 + 7) >> 7) % 6
}

fn write_csv(dir: &Path, name: &str, party: usize, (columns, rows): Table) {
    let mut text = format!("id,{}\n", columns.join(","));
    for row in 0..rows {
        let line: Vec<String> = columns.iter().map(|name| entry(party, row, name).to_string()).collect();
        text += &format!("p{party}r{row},{}\n", line.join(","));
    }
    std::fs::write(dir.join(name), text).unwrap();
}

/// A directory as 10x writes it: genes × cells.
fn write_10x(dir: &Path, party: usize, (columns, rows): Table) {
    let cells: Vec<Vec<u64>> =
        (0..rows).map(|row| columns.iter().map(|name| entry(party, row, name)).collect()).collect();
    let names: Vec<String> = (0..rows).map(|row| format!("p{party}r{row}")).collect();
    let genes: Vec<String> = columns.iter().map(ToString::to_string).collect();
    crate::common::write_10x(&dir.join(format!("tenx-{party}")), &genes, &names, &cells);
}

#[test]
fn aligned_files_have_the_factors_of_files_with_the_common_columns() {
    let dir = tempdir().unwrap();
    for (party, table) in TABLES.into_iter().enumerate() {
        write_csv(dir.path(), &format!("raw-{party}.csv"), party, table);
        write_csv(dir.path(), &format!("same-{party}.csv"), party, (&COMMON, table.1));
        write_10x(dir.path(), party, table);
    }
    let (out, expected) = (dir.path().join("o.h5"), dir.path().join("e.h5"));
    for algo in ["fnmf", "inmf", "felb --binarize 2"] {
        let line = |name: &str, more: &str, out: &Path| {
            let (input, out) = (dir.path().join(name), out.display());
            format!("--algo {algo} -k 2 --max-iters 5 --seed 4 --input {} {more} --output {out}", input.display())
        };
        fednmf(3, &line("same-{party}.csv", "", &expected)).ok();
        for ranks in 1..=3 {
            for (name, more) in
                [("raw-{party}.csv", "--common-columns"), ("tenx-{party}", "--transpose --common-columns")]
            {
                fednmf(ranks, &line(name, &format!("{more} --parties 3"), &out)).ok();
                let (found, expected) = (matrix(&out, "V"), matrix(&expected, "V"));
                // The sums of sparse and dense data differ in their order.
                assert!(distance(&found, &expected) < 1e-9, "{algo} {name} on {ranks} ranks");
            }
        }
    }
}

/// New rows are matched by name, as those of any run; the run's own files have the columns of the run.
#[test]
fn new_rows_may_lack_common_columns_and_have_others() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    TABLES
        .into_iter()
        .enumerate()
        .for_each(|(party, table)| write_csv(dir.path(), &format!("raw-{party}.csv"), party, table));
    write_csv(dir.path(), "new.csv", 7, (&["cd3e", "actb", "fos", "cd19", "nkg7"], 12));
    let line = "--algo fnmf -k 2 --max-iters 20 --parties 3 --common-columns --accept-risk membership,few-rows";
    fednmf(0, &format!("{line} --input {} --output {}", at("raw-{party}.csv"), at("f.h5"))).ok();
    let project = |ranks: usize, name: &str, out: &str| {
        let done = fednmf(ranks, &format!("project {} --input {} --output {}", at("f.h5"), at(name), at(out))).run();
        assert_eq!(done.code, Some(0), "{done:?}");
        (matrix(Path::new(&at(out)), "U"), matrix(Path::new(&at(out)), "V"), done.stderr)
    };
    for ranks in [0, 2] {
        let (_, v, told) = project(ranks, "new.csv", "new.h5");
        assert!(
            told.contains("1 of the 5 columns of the factors are missing") && told.contains("1 of its columns"),
            "{told}"
        );
        assert_eq!((v.nrows(), v.row(2).sum()), (5, 0.0));
        // A party's own rows get about the weights that the run gave them.
        let (u, v, told) = project(ranks, "raw-1.csv", "own.h5");
        assert!(told.contains("0 of the 5 columns of the factors are missing") && v.nrows() == 6, "{told}");
        assert_eq!(u.nrows(), 25);
    }
}
