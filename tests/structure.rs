//! Rules of the structure that the compiler cannot check: which crates depend on which libraries, and that methods of
//! parties keep no communicator that sends anything but releases.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of all packages that a crate of the workspace is built from, without optional features.
fn dependencies(package: &str) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--no-default-features"]);
    let output = command.args(["--package", package]).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
}

#[test]
fn crates_depend_on_no_library_of_another_layer() {
    let (mpi, hdf5, gmp, tls) =
        (["mpi", "mpi-sys"], ["hdf5-metno", "hdf5-metno-sys"], ["rug", "gmp-mpfr-sys"], ["rustls", "rcgen"]);
    for (package, forbidden) in [
        ("fednmf-linalg", vec![&mpi[..], &hdf5, &gmp, &tls, &["clap", "fednmf-comm", "fednmf-data"]]),
        ("fednmf-comm", vec![&mpi[..], &hdf5, &gmp, &tls, &["clap", "fednmf-data"]]),
        ("fednmf-data", vec![&mpi[..], &hdf5, &gmp, &tls, &["clap", "fednmf-files"]]),
        ("fednmf-methods", vec![&mpi[..], &hdf5, &gmp, &tls, &["clap", "fednmf-files", "fednmf-driver"]]),
        ("fednmf-files", vec![&mpi[..], &hdf5, &gmp, &tls, &["clap", "fednmf-methods"]]),
        ("fednmf-driver", vec![&mpi[..], &tls, &["clap"]]),
        // Only the library.
        ("fednmf", vec![&mpi[..], &hdf5, &gmp, &tls, &["clap", "fednmf-sites", "age"]]),
    ] {
        let found = dependencies(package);
        assert!(found.iter().any(|name| name == "ndarray"), "{package}: the tree is not understood: {found:?}");
        for name in forbidden.into_iter().flatten() {
            assert!(!found.iter().any(|found| found == name), "{package} depends on {name}");
        }
    }
}

#[test]
fn the_bill_of_materials_has_every_crate_with_its_checksum() {
    let output = Command::new(root().join("packaging/sbom")).arg("--offline").output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bill: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let components = bill["components"].as_array().unwrap();
    let of = |name: &str| components.iter().find(|one| one["name"] == name);
    for name in dependencies("fednmf").into_iter().filter(|name| name != "fednmf") {
        let one = of(&name).unwrap_or_else(|| panic!("{name} is missing"));
        let is_own = name.starts_with("fednmf-");
        assert!(is_own || one["hashes"][0]["content"].as_str().is_some_and(|sum| sum.len() == 64), "{one}");
    }
    // What connects sites is part of the program, what only tests need is not there.
    assert!(of("rustls").is_some_and(|one| one["scope"] == "required") && of("statrs").is_none());
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Methods are built from a [`Problem`](fednmf_methods::algorithm::Problem), whose communicator they make one of parties at
/// once. From there on the compiler checks that they send releases only.
#[test]
fn methods_of_parties_do_not_name_a_raw_communicator() {
    let methods = root().join("crates/methods/src");
    let files: Vec<PathBuf> =
        ["federated", "boolean"].iter().flat_map(|folder| sources(&methods.join(folder))).collect();
    assert!(files.len() > 30, "the folders are elsewhere: {}", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("\nmod tests").next().unwrap();
        let code = code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
        let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        let forbidden = ["Communicator", "WireAccess"];
        assert!(!words.any(|word| forbidden.contains(&word)), "{}: sends raw messages", path.display());
    }
}

/// The values of these types pass in the clear without a declaration. A type that is added here must not be computed from
/// data.
#[test]
fn types_that_are_public_are_known() {
    let folders = ["crates", "src"].map(|folder| root().join(folder));
    let mut found: Vec<String> = Vec::new();
    for path in folders.iter().flat_map(|folder| sources(folder)) {
        let text = std::fs::read_to_string(&path).unwrap();
        let named = text.lines().filter_map(|line| line.trim().strip_prefix("impl Public for "));
        found.extend(named.map(|name| name.trim_end_matches(" {").to_string()));
    }
    found.sort_unstable();
    let known = [
        "Agreed",
        "Choices",
        "Compared",
        "Conflict",
        "Encryption",
        "Generation",
        "HasOthers",
        "HasPrivateFactor",
        "Mark",
        "Missing",
        "Moments",
        "Notice",
        "Notice",
        "Places",
        "Raised",
        "Resuming",
        "Settings",
        "Told",
        "Vendor",
    ];
    assert_eq!(found, known);
}
