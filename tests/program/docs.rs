//! The generated documents are up to date, and the rules about unsafe code hold.

use crate::common::fednmf;

fn file(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_reference_is_up_to_date() {
    let made = fednmf(0, "list --markdown").run().stdout;
    assert!(file("docs/reference.md") == made, "run: make docs");
}

#[test]
fn the_readme_lists_the_algorithms() {
    assert!(file("README.md").contains(&fednmf::cli::algorithms()), "run: make docs");
}

#[test]
fn what_methods_reveal_is_up_to_date() {
    assert!(file("SECURITY.md").contains(&fednmf::cli::revealed()), "run: make docs");
}

/// Every `unsafe` has a comment that says why it is sound, and their number is the one that was reviewed: a new one
/// needs a review and a change here.
#[test]
fn unsafe_code_is_counted_and_justified() {
    let mut found = std::collections::BTreeMap::new();
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = std::fs::read_to_string(&entry).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let of_code = |line: &str| {
                line.split("//")
                    .next()
                    .unwrap()
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .filter(|w| *w == "unsafe")
                    .count()
            };
            for (at, line) in lines.iter().enumerate() {
                let here = of_code(line);
                // The comment stands above the statement, which may be a call with two closures.
                let said =
                    lines[at.saturating_sub(8)..=at].iter().any(|l| l.contains("SAFETY:") || l.contains("# Safety"));
                let passed_on = line.trim_start().starts_with("unsafe fn");
                assert!(here == 0 || said || passed_on, "{}:{}: no SAFETY comment", entry.display(), at + 1);
                if here > 0 {
                    *found.entry(entry.file_name().unwrap().to_str().unwrap().to_string()).or_insert(0) += here;
                }
            }
        }
    }
    let known = [("mkl.rs".to_string(), MKL), ("mpi.rs".to_string(), MPI)];
    assert_eq!(found, known.into());
}

/// Calls of MKL, one system call, two `Send` or `Sync` declarations, and the prefetch.
const MKL: usize = 14;
/// Calls of MPI, most of them in a blocking and a nonblocking form. Two are the exchange between neighbours, five belong to
/// the control messages of asynchronous runs and to long messages that are cancelled if the other side is silent.
const MPI: usize = 28;
