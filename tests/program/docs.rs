//! The generated documents are up to date.

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
fn the_guide_lists_the_methods() {
    assert!(file("docs/guide/algorithms.md").contains(&fednmf::cli::algorithms()), "run: make docs");
}

#[test]
fn what_methods_reveal_is_up_to_date() {
    assert!(file("docs/privacy/what-leaves.md").contains(&fednmf::cli::revealed()), "run: make docs");
}
