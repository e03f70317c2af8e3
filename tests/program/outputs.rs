//! Output formats: files for AnnData and NumPy, which this program reads again.

use std::io::Read;
use std::path::Path;

use hdf5::types::VarLenUnicode;
use ndarray::Array2;
use tempfile::tempdir;

use crate::common::{data, distance, fednmf, matrix, number};

/// A text attribute.
fn label(of: &hdf5::Location, name: &str) -> String {
    of.attr(name).and_then(|a| a.read_scalar::<VarLenUnicode>()).unwrap_or_else(|e| panic!("{name}: {e}")).to_string()
}

fn names(file: &hdf5::File, frame: &str) -> Vec<String> {
    let group = file.group(frame).unwrap();
    assert_eq!((label(&group, "encoding-type").as_str(), label(&group, "_index").as_str()), ("dataframe", "_index"));
    assert_eq!(group.attr("column-order").unwrap().size(), 0);
    let index = group.dataset("_index").unwrap();
    assert_eq!(label(&index, "encoding-type"), "string-array");
    index.read_raw::<VarLenUnicode>().unwrap().iter().map(ToString::to_string).collect()
}

/// Checks that every element has the encoding attributes that AnnData's file format requires.
fn labelled(group: &hdf5::Group) {
    for (kind, version) in [("dict", "0.1.0"), ("anndata", "0.1.0"), ("dataframe", "0.2.0")] {
        assert!(label(group, "encoding-type") != kind || label(group, "encoding-version") == version);
    }
    for name in group.member_names().unwrap() {
        if let Ok(inner) = group.group(&name) {
            labelled(&inner);
            continue;
        }
        let dataset = group.dataset(&name).unwrap();
        let kind = label(&dataset, "encoding-type");
        let fits = match dataset.ndim() {
            0 => ["string", "numeric-scalar"].contains(&kind.as_str()),
            1 => ["string-array", "array"].contains(&kind.as_str()),
            _ => kind == "array",
        };
        assert!(fits && label(&dataset, "encoding-version") == "0.2.0", "{name}: {kind}");
    }
}

/// An array of an .npz file: the dictionary of its header and the bytes of its numbers.
fn member(path: &Path, name: &str) -> (String, Vec<u8>) {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    zip.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8(bytes[10..10 + length].to_vec()).unwrap();
    (header, bytes.split_off(10 + length))
}

#[test]
fn anndata_and_numpy_files_hold_the_same_factors() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let counts = data("formats/counts.h5ad");
    let line = "--algo hals -k 4 --max-iters 20";
    for name in ["a.h5", "a.h5ad", "a.npz"] {
        fednmf(3, line).arg("--input").arg(&counts).arg("--output").arg(file(name)).ok();
    }
    let (u, v) = (matrix(&file("a.h5"), "U"), matrix(&file("a.h5"), "V"));
    assert_eq!((matrix(&file("a.h5ad"), "obsm/X_nmf"), matrix(&file("a.h5ad"), "varm/NMF")), (u.clone(), v.clone()));
    let made = hdf5::File::open(file("a.h5ad")).unwrap();
    assert_eq!(label(&made, "encoding-type"), "anndata");
    labelled(&made);
    let source = hdf5::File::open(&counts).unwrap();
    let of_source = |frame: &str| source.group(frame).unwrap().attr("_index").unwrap().read_scalar::<VarLenUnicode>();
    for frame in ["obs", "var"] {
        let index = format!("{frame}/{}", of_source(frame).unwrap());
        let wanted = source.dataset(&index).unwrap().read_raw::<VarLenUnicode>().unwrap();
        assert_eq!(names(&made, frame), wanted.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    let scalar = |name: &str| made.dataset(name).unwrap().read_scalar::<f64>().unwrap();
    assert_eq!((scalar("uns/nmf/k"), scalar("uns/nmf/params/max_iters")), (4.0, 20.0));
    let course = |name: &str| made.dataset(&format!("uns/nmf/trace/{name}")).unwrap().read_raw::<f64>().unwrap();
    assert_eq!(course("iter"), [0.0, 10.0, 20.0]);
    assert_eq!(course("rel_error").last(), Some(&scalar("uns/nmf/rel_error")));
    drop(made);

    let numbers = |name: &str| -> Array2<f64> {
        let (header, bytes) = member(&file("a.npz"), name);
        let rows = if name == "U" { 40 } else { 30 };
        assert!(
            header.contains(&format!("'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, 4), ")),
            "{header}"
        );
        let values = bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()));
        Array2::from_shape_vec((rows, 4), values.collect()).unwrap()
    };
    assert_eq!((numbers("U"), numbers("V")), (u, v));
    let (header, bytes) = member(&file("a.npz"), "algo");
    assert!(header.contains("'<U4'") && header.contains("'shape': ()"), "{header}");
    assert_eq!(bytes, "hals".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect::<Vec<u8>>());
    assert_eq!(member(&file("a.npz"), "k").1, 4i64.to_le_bytes());

    // Every format can be read again: the same error, projection and start, and a report.
    fednmf(0, line).arg("--input").arg(&counts).arg("--trace").arg(file("t.jsonl")).ok();
    let mut told = Vec::new();
    for name in ["a.h5", "a.h5ad", "a.npz"] {
        let evaluated = fednmf(2, "evaluate --json --input").arg(&counts).arg(file(name)).run();
        let projected = fednmf(0, "project --json --quiet --input").arg(&counts).arg(file(name)).run();
        let started = fednmf(2, "--algo dsanls -k 4 --max-iters 5").arg("--init").arg(file(name));
        let started = started.arg("--input").arg(&counts).arg("--output").arg(file("s.npz")).ok();
        told.push((evaluated.stdout, projected.stdout, started["rel_error"].to_string()));
        let mut report = fednmf(0, "report").arg(file("t.jsonl")).arg("--factors").arg(file(name));
        report = report.arg("--output").arg(file("r.html"));
        assert_eq!(report.run().code, Some(0));
        let page = std::fs::read_to_string(file("r.html")).unwrap();
        assert!(page.contains("id=\"components-0\"") && page.contains("id=\"reconstruction-0\""), "{name}");
    }
    assert!(told[0].0.contains("rel_error") && told[0].1.contains("rel_error"), "{told:?}");
    assert!(told.iter().all(|all| *all == told[0]), "{told:?}");
}

#[test]
fn observations_are_cells_for_either_orientation_of_the_matrix() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let shape = |name: &str, place: &str| matrix(&file(name), place).dim();
    let run = |input: &str, words: &str, out: &str| {
        let line = format!("--algo mu -k 3 --max-iters 3 --precision f32 {words} --input");
        fednmf(2, &line).arg(data(input)).arg("--output").arg(file(out)).ok();
    };
    run("formats/counts.h5ad", "--transpose", "t.h5ad");
    assert_eq!((shape("t.h5ad", "obsm/X_nmf"), shape("t.h5ad", "varm/NMF")), ((40, 3), (30, 3)));
    run("formats/counts-10x.h5", "", "x.h5ad");
    let made = hdf5::File::open(file("x.h5ad")).unwrap();
    assert_eq!(names(&made, "obs")[7], "cell-7");
    assert_eq!((names(&made, "obs").len(), shape("x.h5ad", "obsm/X_nmf")), (40, (40, 3)));
    // U belongs to the genes there, and the file records it.
    let error = fednmf(0, "evaluate --json --input").arg(data("formats/counts-10x.h5")).arg(file("x.h5ad")).run();
    assert_eq!(error.code, Some(0), "{}", error.stderr);
    // Without names the index holds numbers, as in AnnData.
    run("digits.npy", "", "d.h5ad");
    let made = hdf5::File::open(file("d.h5ad")).unwrap();
    assert_eq!((names(&made, "obs")[1796].as_str(), names(&made, "var").len()), ("1796", 64));
    fednmf(0, "project --quiet --input")
        .arg(data("digits.npy"))
        .arg(file("d.h5ad"))
        .arg("--output")
        .arg(file("p.h5ad"))
        .run();
    assert_eq!(shape("p.h5ad", "obsm/X_nmf"), (1797, 3));
}

#[test]
fn private_factors_have_files_of_their_own_and_bad_names_are_refused() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    fednmf(2, "--algo syn-sd --parties 3 -k 3 --max-iters 2 --input")
        .arg(data("digits.npy"))
        .arg("--output")
        .arg(file("s.npz"))
        .ok();
    assert!(member(&file("s.npz"), "U").0.contains("(1797, 3)"));
    assert!(member(&file("s.party-02.npz"), "V").0.contains("(21, 3)"));
    fednmf(2, "--algo fnmf --parties 3 --output").arg(file("f.h5ad")).refused(&["AnnData", "fnmf", ".npz"]);
    for wrong in ["f.csv", "f.npy", "no/f.npz", "no/f.h5ad"] {
        fednmf(0, "--max-iters 1 --output").arg(file(wrong)).refused(&[wrong]);
    }
    std::fs::write(file("cut.npz"), &std::fs::read(file("s.npz")).unwrap()[..2000]).unwrap();
    fednmf(0, "--algo hals -k 3 --init").arg(file("cut.npz")).refused(&["cut.npz", ".npz"]);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".fednmf-part")), "{left:?}");
}

/// scikit-learn 1.9.1, `NMF(10, init="nndsvda", max_iter=1000, tol=1e-6)` on its digits: `reconstruction_err_` over the
/// norm.
const SCIKIT_LEARN: f64 = 0.32633;

#[test]
fn the_error_on_the_digits_is_that_of_scikit_learn() {
    let line = "-k 10 --init nndsvd --max-iters 1000 --tol 1e-7 --input";
    let found = fednmf(2, line).arg(data("digits.npy")).ok()["rel_error"].as_f64().unwrap();
    assert!((found / SCIKIT_LEARN - 1.0).abs() < 0.005, "{found}");
    let dir = tempdir().unwrap();
    fednmf(0, line).arg(data("digits.npy")).arg("--output").arg(dir.path().join("o.npz")).ok();
    let started = fednmf(0, "--algo hals -k 10 --max-iters 0 --init").arg(dir.path().join("o.npz"));
    let again = started.arg("--input").arg(data("digits.npy")).ok();
    assert!(
        distance(&Array2::from_elem((1, 1), found), &Array2::from_elem((1, 1), again["rel_error"].as_f64().unwrap()))
            < 1e-6
    );
}

/// Components by descending weight and columns of V of norm 1, equal on any number of ranks; the product U Vᵀ is that of the
/// iterations.
#[test]
fn components_are_written_by_weight_and_at_a_common_scale() {
    let dir = tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for algo in ["hals", "dsanls", "kl-mu", "kl-cd"] {
        let run = |ranks, words: &str, out: &str| {
            let iterations = if words.contains("--max-iters") { "" } else { "--max-iters 20" };
            let line = format!("--algo {algo} -k 5 --seed 3 {iterations} {words} --input");
            fednmf(ranks, &line).arg(data("digits.npy")).arg("--output").arg(file(out)).ok();
            (matrix(&file(out), "U"), matrix(&file(out), "V"))
        };
        let (u, v) = run(1, "", "one.h5");
        let norms = |x: &Array2<f64>| x.columns().into_iter().map(|x| x.dot(&x).sqrt()).collect::<Vec<_>>();
        assert!(norms(&u).is_sorted_by(|a, b| a >= b), "{algo}: {:?}", norms(&u));
        assert!(norms(&v).iter().all(|norm| (norm - 1.0).abs() < 1e-12), "{algo}");
        for ranks in 2..=4 {
            let (a, b) = run(ranks, "", "more.h5");
            assert!(distance(&u, &a) < 1e-7 && distance(&v, &b) < 1e-7, "{algo} on {ranks} ranks");
        }
        let (a, b) = run(2, "--factor-scale as-found", "found.h5");
        assert!(distance(&u.dot(&v.t()), &a.dot(&b.t())) < 1e-8 && distance(&v, &b) > 0.1, "{algo}");
        let (a, b) = run(2, "--factor-scale balanced", "balanced.h5");
        assert!(norms(&a).iter().zip(norms(&b)).all(|(a, b)| (a - b).abs() < 1e-9 * a), "{algo}");
        // The checkpoint keeps the iterates.
        let saved = format!("--checkpoint {}", file(&format!("{algo}-c.h5")).display());
        run(2, &format!("{saved} --max-iters 10"), "half.h5");
        let (a, b) = run(2, &format!("{saved} --resume"), "whole.h5");
        assert!(distance(&u, &a) < 1e-7 && distance(&v, &b) < 1e-7, "{algo} resumed");
    }
    // The weight of a component at each party is private.
    let line = "--algo fnmf --parties 2 --max-iters 2 -k 2 --factor-scale";
    fednmf(2, &format!("{line} balanced --input")).arg(data("digits.npy")).refused(&[
        "--factor-scale",
        "fnmf",
        "parties",
    ]);
    let kept = fednmf(2, &format!("{line} as-found --input")).arg(data("digits.npy"));
    kept.arg("--output").arg(file("parties.h5")).ok();
}

/// What earlier versions wrote, in `tests/data/old/VERSION`, is read. A change of a format adds files of the version before it.
#[test]
fn files_of_earlier_versions_are_read() {
    let input = data("formats/counts.mtx");
    let dir = tempdir().unwrap();
    let checkpoint = dir.path().join("checkpoint.h5");
    let line = "-k 2 --algo hals --max-iters 8 --kernel native";
    let whole = fednmf(0, line).arg("--input").arg(&input).ok();
    for old in std::fs::read_dir(data("old")).unwrap().map(|entry| entry.unwrap().path()) {
        for name in ["factors.h5", "factors.h5ad", "factors.npz"] {
            let evaluated = fednmf(0, "evaluate --json").arg(old.join(name)).arg("--input").arg(&input).run();
            let evaluated =
                serde_json::from_str(&evaluated.stdout).unwrap_or_else(|e| panic!("{e}: {}", evaluated.stderr));
            // Of 5 iterations, by NumPy.
            let error = number(&evaluated, "rel_error");
            assert!((error - 0.821820127971952).abs() < 1e-9, "{}: {name}: {error}", old.display());
        }
        std::fs::copy(old.join("checkpoint.h5"), &checkpoint).unwrap();
        let resumed = fednmf(0, line).arg("--input").arg(&input).arg("--checkpoint").arg(&checkpoint);
        let resumed = resumed.arg("--resume").ok();
        assert_eq!(resumed["resumed_from"], 5, "{}", old.display());
        let (resumed, whole) = (number(&resumed, "rel_error"), number(&whole, "rel_error"));
        assert!((resumed - whole).abs() < 1e-9, "{}: {resumed}, {whole}", old.display());
        let ca = old.join("ca.pem");
        for (command, name, ca, told) in [
            ("audit verify --json", "transcript.jsonl", None, "fnmf"),
            ("audit verify", "site-log.jsonl", Some(&ca), "the log of site north: 2 entries, unchanged"),
            ("account --budget", "budget.json", None, "1 run"),
        ] {
            let read = fednmf(0, command).arg(old.join(name));
            let read = ca.into_iter().fold(read, |read, ca| read.arg("--ca").arg(ca)).run();
            assert!(read.code == Some(0) && read.stdout.contains(told), "{}: {name}: {}", old.display(), read.stderr);
        }
    }
}
