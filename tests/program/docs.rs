//! The generated documents are up to date.

use crate::common::fednmf;

fn file(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_reference_is_up_to_date() {
    for (option, page) in
        [("--markdown", "docs/reference.md"), ("--markdown=command-line", "docs/reference/command-line.md")]
    {
        assert!(file(page) == fednmf(0, &format!("list {option}")).run().stdout, "{page}: run: make docs");
    }
}

#[test]
fn the_tables_of_methods_are_up_to_date() {
    for (table, page) in [("algorithms", "docs/guide/algorithms.md"), ("revealed", "docs/privacy/what-leaves.md")] {
        let made = fednmf(0, &format!("list --markdown={table}")).run().stdout;
        assert!(made.starts_with("| ") && file(page).contains(&made), "{page}: run: make docs");
    }
}

/// SECURITY.md says of each private method what its risks are; it calls all others not private.
#[test]
fn the_page_of_risks_has_every_private_method() {
    let page = file("SECURITY.md");
    let private = fednmf_methods::registry::descriptions().filter(|method| method.partition.is_private());
    let missing: Vec<&str> =
        private.map(|method| method.name).filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "SECURITY.md lacks {missing:?}");
}

/// The numbers in the README are those of the records, the page of claims, and the list of methods.
#[test]
fn the_readme_has_the_numbers_of_the_records() {
    let readme = file("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let has = |words: String| assert!(readme.contains(&words), "README.md lacks: {words}");
    // Cells such as `6.95 (4.25–10.2)`.
    let ratio =
        |cell: &str| cell.split_once(" (").filter(|(_, range)| range.contains('–'))?.0.trim().parse::<f64>().ok();
    let comparison = file("bench/README.md");
    let ratios: Vec<f64> = comparison.lines().flat_map(|line| line.split('|')).filter_map(ratio).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    assert!(ratios.len() > 30, "{ratios:?}");
    has(format!("{least:.1} to {most:.0} times as fast"));
    let claims = file("bench/CLAIMS.md");
    let row = |line: &str| -> Option<[usize; 3]> {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, counts @ ..] = cells.as_slice() else { return None };
        counts.iter().map(|cell| cell.parse().ok()).collect::<Option<Vec<usize>>>()?.try_into().ok()
    };
    let rows: Vec<[usize; 3]> =
        claims.lines().filter(|line| !line.contains("of this project")).filter_map(row).collect();
    assert_eq!(rows.len(), 4, "a row for each paper");
    let [holds, fails, undecided] = [0, 1, 2].map(|verdict| rows.iter().map(|row| row[verdict]).sum::<usize>());
    let all = holds + fails + undecided;
    has(format!("{all} claims of the four papers"));
    has(format!("{holds} could be confirmed, {fails} could not, {undecided} are undecided"));
    has(format!("each of the {} methods", fednmf_methods::registry::ALL.len()));
}
