//! The examples run, and print the documented results.

use std::path::PathBuf;
use std::process::Command;

/// The output of the example of this name. Cargo builds the examples with all tests, but not with only this one.
fn output(name: &str) -> String {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    // target/PROFILE/deps/examples-… is next to target/PROFILE/examples.
    path.pop();
    path.pop();
    path.extend(["examples", name]);
    assert!(path.is_file(), "{}: build it first (cargo build --examples)", path.display());
    let output = Command::new(&path).output().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_print_what_they_find() {
    for (name, part) in [
        ("dense", "Tolerance"),
        ("sparse", "of 190 documents"),
        ("parties", "Masked, masked"),
        ("components", "k = 4 is recommended"),
    ] {
        let text = output(name);
        assert!(text.contains(part), "{name}: {text}");
    }
}

#[test]
fn examples_are_short() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            assert!(std::fs::read_to_string(&path).unwrap().lines().count() < 30, "{}", path.display());
        }
    }
}
