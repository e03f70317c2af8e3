//! The documents that are made from the registry are those that the program makes now.

mod common;

use common::fednmf;

fn file(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_reference_is_the_one_of_the_registry() {
    let made = fednmf(0, "list --markdown").run().stdout;
    assert!(file("docs/reference.md") == made, "run: make docs");
}

#[test]
fn the_readme_lists_the_algorithms() {
    assert!(file("README.md").contains(&fednmf::cli::algorithms()), "run: make docs");
}
