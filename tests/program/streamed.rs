//! Matrices that do not fit into `--memory`: their rows are read from the file in each pass, with the result of a run that
//! has them in memory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdf5::types::{FixedAscii, VarLenUnicode};
use ndarray::Array2;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::processes::ranks_of;
use crate::common::{Run, distance, errors, events, fednmf, finish, matrix, number, save_npy, write_npy};

/// A matrix of low rank with some noise and a `share` of nonzeros.
fn entries(m: usize, n: usize, share: f64) -> Array2<f64> {
    let number = |i: usize, j: usize| {
        let mixed =
            (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add((j as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as f64 / (1u64 << 24) as f64
    };
    Array2::from_shape_fn((m, n), |(i, j)| {
        if number(i + 7, j + m) >= share {
            return 0.0;
        }
        let fit: f64 = (0..3).map(|l| number(i, m + n + l) * number(2 * m + l, j)).sum();
        fit + 0.1 * number(i, j)
    })
}

/// The arrays of a CSR matrix.
fn compressed(x: &Array2<f64>) -> (Vec<i64>, Vec<i32>, Vec<f64>) {
    let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in x.rows() {
        for (j, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            indices.push(j as i32);
            values.push(value);
        }
        starts.push(values.len() as i64);
    }
    (starts, indices, values)
}

/// Writes a CSR matrix as AnnData does, its long arrays in compressed chunks.
fn save_h5ad(path: &Path, x: &Array2<f64>) {
    let (starts, indices, values) = compressed(x);
    let file = hdf5::File::create(path).unwrap();
    let group = file.create_group("X").unwrap();
    let shape = [x.nrows() as i64, x.ncols() as i64];
    group.new_attr_builder().with_data(&shape).create("shape").unwrap();
    let kind: VarLenUnicode = "csr_matrix".parse().unwrap();
    group.new_attr::<VarLenUnicode>().create("encoding-type").unwrap().write_scalar(&kind).unwrap();
    group.new_dataset_builder().with_data(&starts).create("indptr").unwrap();
    group.new_dataset_builder().chunk(2500).deflate(1).with_data(&indices).create("indices").unwrap();
    group.new_dataset_builder().chunk(2500).shuffle().deflate(1).with_data(&values).create("data").unwrap();
}

/// Writes a CSR matrix as scipy.sparse.save_npz does, compressed or not.
pub fn save_npz(path: &Path, x: &Array2<f64>, method: zip::CompressionMethod) {
    let (starts, indices, values) = compressed(x);
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let mut add = |name: &str, descr: &str, shape: String, bytes: Vec<u8>| {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        archive.start_file(name, options).unwrap();
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
        while (header.len() + 11) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let lead = [b"\x93NUMPY\x01\x00".to_vec(), (header.len() as u16).to_le_bytes().to_vec()].concat();
        archive.write_all(&[lead, header.into_bytes(), bytes].concat()).unwrap();
    };
    let (m, n) = x.dim();
    let bytes = |numbers: &[i64]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    add("indices.npy", "<i4", format!("{},", indices.len()), indices.iter().flat_map(|x| x.to_le_bytes()).collect());
    add("indptr.npy", "<i8", format!("{},", starts.len()), bytes(&starts));
    add("format.npy", "|S3", String::new(), b"csr".to_vec());
    add("shape.npy", "<i8", "2,".into(), bytes(&[m as i64, n as i64]));
    add("data.npy", "<f8", format!("{},", values.len()), values.iter().flat_map(|x| x.to_le_bytes()).collect());
    archive.finish().unwrap();
}

/// A matrix in a file, and a limit of a tenth of its size.
struct Large {
    file: PathBuf,
    memory: &'static str,
}

/// Writes a HDF5 file under another name first: a process that another test starts meanwhile inherits the open file, and
/// with it the lock of the library.
fn unlocked(file: &Path, write: impl Fn(&Path)) {
    let first = file.with_extension("first");
    write(&first);
    std::fs::copy(&first, file).unwrap();
    std::fs::remove_file(first).unwrap();
}

fn in_file(dir: &Path, name: &str, x: &Array2<f64>, memory: &'static str) -> Large {
    let file = dir.join(name);
    let hdf5 = |path: &Path, chunk: Option<(usize, usize)>| {
        let whole = hdf5::File::create(path).unwrap();
        let builder = whole.new_dataset_builder();
        match chunk {
            Some(chunk) => builder.chunk(chunk).deflate(1).with_data(x).create("x").unwrap(),
            None => builder.with_data(x).create("x").unwrap(),
        };
    };
    match name {
        "rows.npy" => save_npy(&file, x),
        "columns.npy" => {
            let turned: Vec<u8> = x.t().iter().flat_map(|x| x.to_le_bytes()).collect();
            write_npy(&file, "<f8", (x.ncols(), x.nrows()), &turned);
            let bytes = std::fs::read(&file).unwrap();
            let header =
                String::from_utf8_lossy(&bytes[10..128]).replace("'fortran_order': False", "'fortran_order': True ");
            let header =
                header.replace(&format!("({}, {})", x.ncols(), x.nrows()), &format!("({}, {})", x.nrows(), x.ncols()));
            std::fs::write(&file, [&bytes[..10], header.as_bytes(), &bytes[128..]].concat()).unwrap();
        }
        "chunks.h5" => unlocked(&file, |path| hdf5(path, Some((5, 300)))),
        "piece.h5" => unlocked(&file, |path| hdf5(path, None)),
        "x.h5ad" => unlocked(&file, |path| save_h5ad(path, x)),
        "plain.npz" => save_npz(&file, x, zip::CompressionMethod::Stored),
        "packed.npz" => save_npz(&file, x, zip::CompressionMethod::Deflated),
        "x.csv" => {
            let rows =
                x.rows().into_iter().map(|row| row.iter().map(|x| format!("{x:e}")).collect::<Vec<_>>().join(","));
            std::fs::write(&file, rows.collect::<Vec<_>>().join("\n")).unwrap();
        }
        other => panic!("{other}"),
    }
    Large { file, memory }
}

/// 16 MiB dense, and 14 MiB sparse: more than ten times what they may use.
fn dense() -> Array2<f64> {
    entries(2400, 900, 1.0)
}

fn sparse() -> Array2<f64> {
    entries(2500, 1600, 0.3)
}

/// One run with its factors.
struct Done {
    summary: Value,
    u: Array2<f64>,
    v: Array2<f64>,
}

impl Large {
    fn run(&self, ranks: usize, words: &str, limited: bool) -> Done {
        let name = format!("{}-{ranks}-{limited}.out.h5", self.file.file_name().unwrap().to_string_lossy());
        let out = self.file.with_file_name(name);
        let memory = if limited { format!(" --memory {}", self.memory) } else { String::new() };
        let k = if words.contains("-k ") { "" } else { " -k 3" };
        let line = format!("{words}{k} --seed 5{memory}");
        let summary = fednmf(ranks, &line).arg("--input").arg(&self.file).arg("--output").arg(&out).ok();
        Done { summary, u: matrix(&out, "U"), v: matrix(&out, "V") }
    }

    /// Compares a streamed run with one in memory, and returns both summaries.
    fn compare(&self, ranks: usize, words: &str) -> [Value; 2] {
        let [streamed, held] = [true, false].map(|limited| self.run(ranks, words, limited));
        let what = format!("{} {words} on {ranks}", self.file.display());
        let (u, v) = (distance(&held.u, &streamed.u), distance(&held.v, &streamed.v));
        assert!(u < 1e-9 && v < 1e-9, "{what}: {u:e} {v:e}");
        let error = (number(&streamed.summary, "rel_error"), number(&held.summary, "rel_error"));
        assert!((error.0 - error.1).abs() < 1e-9, "{what}: {error:?}");
        assert!(streamed.summary["streamed"]["passes"].is_u64(), "{what}: {}", streamed.summary);
        assert!(held.summary["streamed"].is_null(), "{what}");
        [streamed.summary, held.summary]
    }
}

const FORMATS: [(&str, &str); 6] = [
    ("rows.npy", "1600K"),
    ("chunks.h5", "1600K"),
    ("piece.h5", "1600K"),
    ("columns.npy", "1600K"),
    ("x.h5ad", "1400K"),
    ("plain.npz", "1400K"),
];

#[test]
fn a_matrix_ten_times_larger_than_the_memory_has_the_factors_of_a_run_in_memory() {
    let dir = tempdir().unwrap();
    let (dense, sparse) = (dense(), sparse());
    for (name, memory) in FORMATS {
        let is_sparse = name.ends_with("npz") || name.ends_with("h5ad");
        let large = in_file(dir.path(), name, if is_sparse { &sparse } else { &dense }, memory);
        let transpose = if name == "columns.npy" { " --transpose" } else { "" };
        for ranks in 1..=4 {
            let [streamed, _] = large.compare(ranks, &format!("--algo hals --max-iters 6 --eval-every 2{transpose}"));
            // Three for the statistics and the first evaluation; one for each iteration.
            assert_eq!(streamed["streamed"]["passes"], 9, "{name} on {ranks}");
        }
    }
}

/// The block of one rank is so large that an update reads it once; those of two ranks are not.
#[test]
fn a_large_dense_block_that_is_read_once_has_the_result_of_smaller_ones() {
    for options in ["--extrapolation none", "--threads 2"] {
        let line =
            format!("--algo hals -k 4 --max-iters 6 {options} --input synthetic:planted,m=3100,n=700,k=4,seed=2");
        let [one, two] = [1, 2].map(|ranks| number(&fednmf(ranks, &line).ok(), "rel_error"));
        assert!((one - two).abs() < 1e-9 * two, "{options}: {one} {two}");
    }
}

#[test]
fn every_method_and_start_streams() {
    let dir = tempdir().unwrap();
    let mut dense = in_file(dir.path(), "rows.npy", &dense(), "1600K");
    let mut sparse = in_file(dir.path(), "plain.npz", &sparse(), "1400K");
    let mut restarts = 0;
    for (words, passes) in [
        ("--algo bpp --max-iters 4", None),
        ("--algo mu --max-iters 4", Some(7)),
        ("--algo hals --inner-sweeps 3 --extrapolation restart --max-iters 12", None),
        ("--algo bpp --extrapolation restart --max-iters 20", None),
        ("--algo hals --alpha-u 0.01 --alpha-v 0.02 --max-iters 4", Some(7)),
        ("--algo hals --measure projected-gradient --max-iters 4", None),
        ("--algo hals --init nndsvd --max-iters 4", None),
        ("--algo mu --init nndsvda --max-iters 4", None),
        ("--algo hals --init sampled --max-iters 4", None),
        ("--algo online --batch-size 400 --max-iters 15 --eval-every 7", None),
        ("--algo online --batch-size 1200 --alpha-u 0.01 --alpha-v 0.02 --max-iters 7", None),
        ("--algo kl-online --batch-size 400 --max-iters 15 --eval-every 7", None),
        ("--algo kl-online --batch-size 1200 --alpha-u 0.01 --alpha-v 0.02 --max-iters 7", None),
        // Each of two evaluations takes a pass.
        ("--algo kl-mu --init random --extrapolation none --max-iters 4 --eval-every 4", Some(8)),
        ("--algo kl-mu --init random --extrapolation none --alpha-u 0.01 --alpha-v 0.02 --max-iters 4", None),
        // Long enough for the safeguard to reject rows.
        ("--algo kl-mu --init random --max-iters 30 --eval-every 30", Some(34)),
        ("--algo kl-mu --init random --alpha-u 0.01 --alpha-v 0.02 --max-iters 8", None),
        ("--algo hals --scale max --max-iters 4", Some(8)),
        ("--algo hals --binarize 0.5 --max-iters 4", Some(7)),
    ] {
        // A start from the data needs memory of its own.
        if words.contains("nndsvd") || words.contains("sampled") {
            (dense.memory, sparse.memory) = ("4M", "4M");
        } else if words.contains("kl-mu") {
            (dense.memory, sparse.memory) = ("1900K", "1900K");
        } else {
            (dense.memory, sparse.memory) = ("1600K", "1400K");
        }
        for (large, ranks) in [(&dense, 1), (&sparse, 1), (&dense, 3), (&sparse, 2)] {
            let [streamed, held] = large.compare(ranks, words);
            if words.contains("bpp --extrapolation") {
                restarts += number(&streamed["streamed"], "passes") as usize - 23;
            }
            for measure in ["projected_gradient", "objective", "kl_divergence"] {
                let [a, b] = [&streamed, &held].map(|summary| summary[measure].as_f64());
                assert_eq!(a.is_some(), b.is_some(), "{words}");
                let near = a.zip(b).is_none_or(|(a, b)| (a - b).abs() <= 1e-6 * b.abs());
                assert!(near, "{words} {measure}: {a:?} {b:?}");
            }
            assert!(passes.is_none_or(|passes| streamed["streamed"]["passes"] == passes), "{words}: {streamed}");
        }
    }
    // After a rise of the objective U goes back, and its product with the data takes another pass.
    assert!(restarts > 0);
}

#[test]
fn auto_takes_a_method_that_streams() {
    let dir = tempdir().unwrap();
    let mut large = in_file(dir.path(), "rows.npy", &dense(), "1600K");
    let [streamed, held] = [true, false].map(|limited| large.run(2, "--init random --max-iters 2", limited).summary);
    assert_eq!((&streamed["algo"], &held["algo"]), (&"hals".into(), &"dsanls".into()));
    // Its start is computed from the data, which are read for it.
    large.memory = "5M";
    let line = "--algo auto --extrapolation restart -k 12 --max-iters 5";
    let [streamed, held] = [true, false].map(|limited| large.run(2, line, limited));
    // Nine components fit noise, and their directions are less certain than rounding.
    assert!(distance(&held.u, &streamed.u) < 1e-6 && distance(&held.v, &streamed.v) < 1e-6);
    let [streamed, held] = [streamed, held].map(|done| done.summary);
    assert!((number(&streamed, "rel_error") - number(&held, "rel_error")).abs() < 1e-9);
    assert_eq!(streamed["params"]["init"], held["params"]["init"]);
    assert_ne!(held["params"]["init"], "random");
    assert!(streamed["params"]["streamed"]["panel_rows"].as_u64().is_some_and(|rows| rows < 400), "{streamed}");
}

#[test]
fn single_precision_and_threads_stream() {
    let dir = tempdir().unwrap();
    let (dense, sparse) = (dense(), sparse());
    for (name, x, memory) in [("rows.npy", &dense, "1000K"), ("plain.npz", &sparse, "1100K")] {
        let large = in_file(dir.path(), name, x, memory);
        let line = "--algo hals --max-iters 4 --eval-every 2 --precision f32 --threads 2";
        let [streamed, held] = [true, false].map(|limited| large.run(2, line, limited));
        assert!(distance(&held.u, &streamed.u) < 1e-4 && distance(&held.v, &streamed.v) < 1e-4, "{name}");
        let [a, b] = [&streamed, &held].map(|done| number(&done.summary, "rel_error"));
        assert!((a - b).abs() < 1e-5, "{name}: {a} {b}");
        // Products in f32 are not good enough for an evaluation: each of the three is a pass.
        assert_eq!(streamed.summary["streamed"]["passes"], 2 + 4 + 3, "{name}");
    }
}

#[test]
fn a_streamed_run_holds_much_less() {
    let dir = tempdir().unwrap();
    let (dense, sparse) = (entries(4000, 1500, 1.0), entries(4000, 3000, 0.35));
    for (name, x, memory) in [
        ("rows.npy", &dense, "4500K"),
        ("chunks.h5", &dense, "4500K"),
        ("x.h5ad", &sparse, "4500K"),
        ("plain.npz", &sparse, "4500K"),
    ] {
        let Large { file, .. } = in_file(dir.path(), name, x, memory);
        let peak = |more: &str| {
            let line = format!("--algo hals -k 3 --max-iters 2 {more} --input");
            number(&fednmf(0, &line).arg(&file).own_process().ok(), "peak_rss_bytes")
        };
        let bare = "--algo hals -k 2 --max-iters 1 --input synthetic:planted,m=20,n=20,k=2";
        let bare = number(&fednmf(0, bare).own_process().ok(), "peak_rss_bytes");
        let [streamed, held] = [format!("--memory {memory}"), String::new()].map(|more| peak(&more) - bare);
        // The matrix has 45 MiB and more; the library of HDF5 takes some memory of its own.
        assert!(held > 40e6 && streamed < 16e6, "{name}: {streamed} streamed, {held} in memory");
    }
}

#[test]
fn a_streamed_run_resumes_anywhere() {
    let dir = tempdir().unwrap();
    let algos = [("hals --extrapolation restart", "1400K"), ("kl-mu --init random", "1900K")];
    for (name, x) in [("rows.npy", dense()), ("x.h5ad", sparse())] {
        for (algo, memory) in algos {
            let large = in_file(dir.path(), name, &x, memory);
            let limit = format!("--memory {memory}");
            let whole = large.run(2, &format!("--algo {algo} --max-iters 10"), true);
            let at = |file: &str| dir.path().join(file);
            let line = |iterations: usize, memory: &str| {
                format!("--algo {algo} -k 3 --seed 5 --max-iters {iterations} {memory}")
            };
            // In memory, streamed on other ranks, and in memory again.
            for (ranks, iterations, memory) in [(1, 4, ""), (3, 7, limit.as_str()), (2, 10, "")] {
                let run = fednmf(ranks, &line(iterations, memory)).arg("--input").arg(&large.file);
                let run = run
                    .arg("--checkpoint")
                    .arg(at("c.h5"))
                    .arg("--resume")
                    .arg("--output")
                    .arg(at(&format!("{iterations}.h5")));
                let done = run.ok();
                assert_eq!(done["streamed"].is_null(), memory.is_empty(), "{name}");
            }
            let [u, v] = ["U", "V"].map(|factor| matrix(&at("10.h5"), factor));
            assert!(distance(&whole.u, &u) < 1e-9 && distance(&whole.v, &v) < 1e-9, "{name} {algo}");
            std::fs::remove_file(at("c.h5")).unwrap();
        }
    }
}

#[test]
fn limits_trace_and_report_know_of_the_passes() {
    let dir = tempdir().unwrap();
    let large = in_file(dir.path(), "rows.npy", &dense(), "1600K");
    let at = |file: &str| dir.path().join(file);
    let line = "--algo hals -k 3 --max-iters 200 --eval-every 5 --tol 1e-3";
    let run = |memory: &str, trace: &str| {
        let run = fednmf(2, &format!("{line} {memory}")).arg("--input").arg(&large.file).arg("--trace").arg(at(trace));
        run.arg("--report").arg(at(&format!("{trace}.html"))).ok()
    };
    let (streamed, held) = (run("--memory 1600K", "s.jsonl"), run("", "h.jsonl"));
    assert_eq!(streamed["stopped_by"], "tol");
    assert_eq!(streamed["iter"], held["iter"]);
    let [a, b] = ["s.jsonl", "h.jsonl"].map(|trace| errors(&at(trace)));
    assert_eq!(a.len(), b.len());
    for ((i, a), (j, b)) in a.iter().zip(&b) {
        assert!(i == j && (a - b).abs() < 1e-9, "{i}: {a} {b}");
    }
    let all = events(&at("s.jsonl"));
    let end = all.last().unwrap();
    let wait = end["phases"]["wait for the file"]["seconds_max"].as_f64().unwrap();
    assert_eq!(end["streamed"]["wait_seconds"].as_f64(), Some(wait));
    assert!(end["phases"]["pass over the file"]["seconds_max"].as_f64().unwrap() >= wait);
    let [streamed, held] = ["s.jsonl.html", "h.jsonl.html"].map(|page| std::fs::read_to_string(at(page)).unwrap());
    assert!(streamed.contains("were read from the file in") && !held.contains("were read from the file in"));
    let told = fednmf(1, "--algo hals -k 3 --max-iters 2 --memory 1600K").arg("--input").arg(&large.file).run();
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(
        told.stdout.contains("the file was read 5 times") && told.stdout.contains("s of waiting"),
        "{}",
        told.stdout
    );
    assert!(
        told.stderr.contains("note: the rows are read from the file in each pass, ")
            && told.stderr.contains(" at a time: in memory, 1 rank on ")
            && told.stderr.contains(", and --memory allows 1.6 MiB"),
        "{}",
        told.stderr
    );
}

#[test]
fn what_cannot_be_streamed_is_refused_with_advice() {
    let dir = tempdir().unwrap();
    let (dense, sparse) = (dense(), sparse());
    let file = |name: &str| in_file(dir.path(), name, if name.ends_with("npz") { &sparse } else { &dense }, "").file;
    let (rows, columns) = (file("rows.npy"), file("columns.npy"));
    let (packed, text) = (file("packed.npz"), file("x.csv"));
    for (line, file, words) in [
        ("--algo dsanls", &rows, &["dsanls needs the whole matrix", "hals, bpp, mu", "--algo hals"][..]),
        ("--algo kl-cd", &rows, &["kl-cd needs"]),
        ("--algo kl-mu --init sampled", &rows, &["kl-mu reads the rows in passes", "default options only"]),
        ("--algo online --precision mixed", &rows, &["--precision mixed"]),
        ("--algo hals --missing zero-unobserved", &rows, &["--missing"]),
        ("--algo hals --holdout 0.1", &rows, &["--holdout"]),
        ("--algo hals --precision mixed", &rows, &["--precision mixed", "f32"]),
        ("--algo hals --grid 1x2", &rows, &["--grid 1x2", "leave it out"]),
        ("--algo hals --binarize q0.9", &rows, &["quantile"]),
        ("--algo hals", &columns, &["columns.npy", "by columns", "--transpose"]),
        ("--algo hals --transpose", &rows, &["by rows", "leave --transpose out"]),
        ("--algo hals", &packed, &["packed.npz", "compressed=False"]),
        ("--algo hals", &text, &["x.csv is text", ".npy"]),
        ("--algo hals", &rows, &["even if the rows are read"]),
    ] {
        let memory = if words[0].starts_with("even") { "200K" } else { "1400K" };
        let out = dir.path().join("refused.h5");
        let run = fednmf(2, &format!("{line} -k 3 --max-iters 2 --memory {memory}")).arg("--input").arg(file);
        run.arg("--output").arg(&out).refused(&[&["memory", "--memory allows"][..], words].concat());
        assert!(!out.exists(), "{line}");
    }
    // How much the data of a party need is for its own rank.
    fednmf(2, "--algo syn-sd -k 3 --memory 1400K --input")
        .arg(&rows)
        .refused(&["lacks memory for its data", "--memory"]);
    fednmf(2, "--algo hals -k 3 --memory 1M --input synthetic:planted,m=2000,n=500,k=3").refused(&["fednmf generate"]);
}

#[test]
fn entries_that_are_not_accepted_are_named() {
    let dir = tempdir().unwrap();
    for (bad, why) in [(-1.0, "negative"), (f64::NAN, "NaN")] {
        let (mut dense, mut sparse) = (dense(), sparse());
        (dense[[2000, 5]], sparse[[2000, 5]]) = (bad, bad);
        for (name, x) in [("rows.npy", &dense), ("chunks.h5", &dense), ("x.h5ad", &sparse), ("plain.npz", &sparse)] {
            let Large { file, .. } = in_file(dir.path(), name, x, "");
            let run = fednmf(3, "--algo hals -k 3 --max-iters 2 --memory 1400K").arg("--input").arg(file);
            run.refused(&[name, "row 2000, column 5", why]);
        }
    }
}

#[test]
fn factors_are_evaluated_and_projected_on_in_passes() {
    let dir = tempdir().unwrap();
    let (dense, sparse) = (dense(), sparse());
    for (name, x, memory) in [("rows.npy", &dense, "1600K"), ("x.h5ad", &sparse, "1400K")] {
        let Large { file, .. } = in_file(dir.path(), name, x, memory);
        let at = |file: &str| dir.path().join(file);
        for (algo, ranks) in [("hals --alpha-u 0.1", 2), ("kl-mu", 1)] {
            let line = format!("--algo {algo} -k 3 --max-iters 3");
            fednmf(2, &line).arg("--input").arg(&file).arg("--output").arg(at("f.h5")).ok();
            let answer = |command: &str, more: &str, out: Option<&str>| -> Value {
                let run = fednmf(ranks, command).arg(at("f.h5")).args(["--json", "--input"]).arg(&file);
                let run = if more.is_empty() { run } else { run.arg("--memory").arg(more) };
                let run = if let Some(out) = out { run.arg("--output").arg(at(out)) } else { run };
                let done = run.run();
                assert_eq!(done.code, Some(0), "{command} {name}: {}", done.stderr);
                assert_eq!(
                    done.stderr.contains("read from the file in each pass"),
                    !more.is_empty(),
                    "{}",
                    done.stderr
                );
                serde_json::from_str(&done.stdout).unwrap()
            };
            for (command, outs) in [("evaluate", [None, None]), ("project", [Some("s.h5"), Some("h.h5")])] {
                let (streamed, held) = (answer(command, memory, outs[0]), answer(command, "", outs[1]));
                for measure in ["rel_error", "objective", "kl_divergence"] {
                    let (a, b) = (streamed[measure].as_f64(), held[measure].as_f64());
                    assert_eq!(a.is_some(), b.is_some(), "{command} {name} {algo} {measure}");
                    assert!(a.zip(b).is_none_or(|(a, b)| (a - b).abs() <= 1e-9 * b), "{command} {name}: {a:?} {b:?}");
                }
            }
            assert!(distance(&matrix(&at("h.h5"), "U"), &matrix(&at("s.h5"), "U")) < 1e-9, "{name} {algo}");
        }
        let refused =
            fednmf(1, "project --missing zero-unobserved --memory 1M").arg(at("f.h5")).arg("--input").arg(&file);
        refused.refused(&["--missing needs the whole matrix"]);
    }
}

/// Whether two values of JSON differ in rounding only.
fn are_close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_close(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| are_close(a, b)))
        }
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * (1.0 + b.abs()),
            _ => a == b,
        },
    }
}

#[test]
fn a_sweep_of_a_matrix_larger_than_the_memory_has_the_results_of_one_in_memory() {
    let dir = tempdir().unwrap();
    for (name, x, memory) in [("rows.npy", dense(), "1700K"), ("x.h5ad", sparse(), "1500K")] {
        let Large { file, .. } = in_file(dir.path(), name, &x, memory);
        let mut compared = 0;
        for (ranks, algo) in [(1, "hals"), (3, "hals"), (2, "kl-mu"), (2, "online"), (2, "bpp")] {
            let memory = if algo == "kl-mu" { "1900K" } else { memory };
            let swept = |more: &str, at: &str| {
                let out = dir.path().join(at);
                let _ = std::fs::remove_dir_all(&out);
                let line = format!("sweep --k 2,3 --runs 2 --max-iters 60 --algo {algo} --json {more}");
                let done = fednmf(ranks, &line).arg("--input").arg(&file).arg("--output").arg(&out).run();
                assert_eq!(done.code, Some(0), "{name} {line}: {}", done.stderr);
                let found: Value = serde_json::from_str(&done.stdout).unwrap();
                let consensus = found["consensus"]["file"].as_str().map(|file| matrix(Path::new(file), "U"));
                (found, consensus, done.stderr)
            };
            let (streamed, u, told) = swept(&format!("--memory {memory}"), "streamed");
            let (held, exact, _) = swept("--holdout 0", "held");
            assert!(told.contains("the rows are read from the file in each pass"), "{told}");
            let holds_out = ["hals", "bpp"].contains(&algo);
            assert_eq!(told.contains("memory is too small to hold entries out"), holds_out, "{told}");
            for part in ["points", "recommended", "reasons"] {
                assert!(are_close(&streamed[part], &held[part]), "{name} {algo}: {streamed:#} {held:#}");
            }
            if let Some((exact, u)) = exact.zip(u) {
                assert!(distance(&exact, &u) < 1e-6, "{name} {algo} on {ranks}");
                compared += 1;
            }
            let next = streamed["next_command"].as_str().unwrap();
            assert!(next.contains("--memory") && !next.contains("--holdout 0.05"), "{next}");
        }
        assert!(compared > 1, "{name}: no k is stable");
        // What was done in memory is not done again.
        let again = format!("sweep --k 2,3 --runs 2 --max-iters 60 --algo bpp --holdout 0 --memory {memory}");
        let done = fednmf(1, &again).arg("--input").arg(&file).arg("--output").arg(dir.path().join("held")).run();
        assert!(done.code == Some(0) && done.stderr.contains("0 of 4 runs to do"), "{}", done.stderr);
        for (words, why) in [
            ("--holdout 0.05", &["--holdout 0"][..]),
            ("--missing zero-unobserved", &["--missing"]),
            ("--groups 2", &["--groups 2", "leave it out"]),
            ("--algo dsanls --holdout 0", &["dsanls needs the whole matrix", "hals, bpp, mu, online do not"]),
        ] {
            let run = fednmf(2, &format!("sweep --k 2 --runs 2 --memory {memory} {words}")).arg("--input").arg(&file);
            run.arg("--output").arg(dir.path().join("refused")).refused(&[&["--memory allows"][..], why].concat());
        }
    }
}

#[test]
fn a_sweep_has_as_many_groups_as_memory_has_room_for() {
    let dir = tempdir().unwrap();
    let Large { file, .. } = in_file(dir.path(), "rows.npy", &dense(), "");
    for (memory, groups) in [("120M", "3 groups"), ("80M", "2 groups"), ("45M", "1 group ")] {
        let line = format!("sweep --k 2 --runs 3 --max-iters 2 --holdout 0 --memory {memory}");
        let out = dir.path().join(memory);
        let done = fednmf(3, &line).arg("--input").arg(&file).arg("--output").arg(&out).run();
        assert!(done.code == Some(0) && done.stderr.contains(groups), "{memory}: {}", done.stderr);
        assert!(!done.stderr.contains("in each pass"), "{memory}: {}", done.stderr);
    }
}

/// Writes m cells × n genes of counts as AnnData does, with the names of the genes. Each cell has nonzeros in a third of the
/// genes, those of one of three groups most often.
fn save_cells(path: &Path, m: usize, n: usize) {
    let file = hdf5::File::create(path).unwrap();
    let text = |s: &str| s.parse::<VarLenUnicode>().unwrap();
    let attribute = |of: &hdf5::Location, name: &str, value: &str| {
        of.new_attr::<VarLenUnicode>().create(name).unwrap().write_scalar(&text(value)).unwrap();
    };
    let each = n / 3;
    let mixed = |i: usize, l: usize| ((i * each + l) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let column = |(i, l): (usize, usize)| (3 * l + (mixed(i, l) % 3) as usize) as i32;
    let value = |(i, l): (usize, usize)| {
        let likely = if column((i, l)) as usize * 3 / n == i % 3 { 9 } else { 2 };
        (1 + (mixed(i, l) >> 4) % likely) as f32
    };
    let all = || (0..m).flat_map(move |i| (0..each).map(move |l| (i, l)));
    let group = file.create_group("X").unwrap();
    attribute(&group, "encoding-type", "csr_matrix");
    group.new_attr_builder().with_data(&[m as i64, n as i64]).create("shape").unwrap();
    let starts: Vec<i64> = (0..=m).map(|i| (i * each) as i64).collect();
    group.new_dataset_builder().with_data(&starts).create("indptr").unwrap();
    group
        .new_dataset_builder()
        .chunk(20_000)
        .with_data(&all().map(column).collect::<Vec<_>>())
        .create("indices")
        .unwrap();
    group.new_dataset_builder().chunk(20_000).with_data(&all().map(value).collect::<Vec<_>>()).create("data").unwrap();
    attribute(&file, "encoding-type", "anndata");
    let var = file.create_group("var").unwrap();
    attribute(&var, "_index", "_index");
    let names: Vec<VarLenUnicode> = (0..n).map(|j| text(&format!("gene{j}"))).collect();
    var.new_dataset_builder().with_data(&names).create("_index").unwrap();
}

/// What is prepared, described and shown of a matrix in panels is that of the matrix in memory, to the bit.
#[test]
fn what_is_made_of_a_matrix_larger_than_the_memory_is_that_of_one_in_memory() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = |name: &str| at(name).display().to_string();
    unlocked(&at("cells.h5ad"), |path| save_cells(path, 4000, 360));
    let done = |line: &str, memory: &str| {
        let limit = if memory.is_empty() { String::new() } else { format!(" --memory {memory}") };
        let done = fednmf(0, &format!("{line}{limit}")).own_process().run();
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
        assert_eq!(
            done.stderr.contains("read from the file in each pass"),
            !memory.is_empty(),
            "{line}: {}",
            done.stderr
        );
        done.stdout
    };
    let quantiles = format!("quantile --rules {}", text("rules.json"));
    done(
        &format!("prepare quantile {} -o {} --save-rules {}", text("cells.h5ad"), text("q.npz"), text("rules.json")),
        "",
    );
    for (how, ends) in [
        ("counts --log1p --variable-columns 40 --unit-variance", &["h5ad", "npz", "npy"][..]),
        ("counts --keep-counts --variable-columns 40 --variable-by seurat-v3", &["mtx", "csv"]),
        ("tf-idf", &["h5ad"]),
        (&quantiles, &["npz"]),
    ] {
        for end in ends {
            let [held, streamed] = [("held", ""), ("streamed", "1M")].map(|(name, memory)| {
                let out = text(&format!("{name}.{end}"));
                done(&format!("prepare {how} {} -o {out}", text("cells.h5ad")), memory);
                std::fs::read(out).unwrap()
            });
            assert!(held.len() > 50_000 && held == streamed, "{how} {end}");
        }
    }
    let line = format!("prepare quantile {} --memory 1M -o {}", text("cells.h5ad"), text("q.npz"));
    fednmf(0, &line).refused(&["memory", "quantiles need all entries", "--rules"]);

    for (name, x, memory) in
        [("rows.npy", dense(), "1600K"), ("x.h5ad", sparse(), "1400K"), ("chunks.h5", dense(), "1600K")]
    {
        let Large { file, .. } = in_file(dir.path(), name, &x, memory);
        for ranks in [0, 3] {
            let [held, streamed] = ["", memory].map(|memory| {
                let run = fednmf(ranks, "inspect --json").arg(&file);
                let run = if memory.is_empty() { run } else { run.arg("--memory").arg(memory) };
                let done = run.run();
                assert_eq!(
                    done.stderr.contains("read from the file in each pass"),
                    !memory.is_empty(),
                    "{}",
                    done.stderr
                );
                serde_json::from_str::<Value>(&done.stdout).unwrap()
            });
            assert_eq!(held, streamed, "{name} on {ranks}");
        }
        let line = format!("--algo hals -k 3 --max-iters 3 --trace {} --output {}", text("t.jsonl"), text("f.h5"));
        fednmf(0, &line).arg("--input").arg(&file).own_process().ok();
        let [held, streamed] = [("held.html", ""), ("streamed.html", memory)].map(|(name, memory)| {
            done(&format!("report {} --input {} -o {}", text("t.jsonl"), file.display(), text(name)), memory);
            std::fs::read_to_string(at(name)).unwrap()
        });
        assert!(held == streamed && !held.contains("are not shown"), "{name}");
        std::fs::remove_file(at("t.jsonl")).unwrap();
    }
}

/// Marks every third gene as highly variable.
fn mark_variable(path: &Path, n: usize) {
    let file = hdf5::File::append(path).unwrap();
    let var = file.create_group("var").unwrap();
    let marks: Vec<bool> = (0..n).map(|j| j % 3 == 0).collect();
    var.new_dataset_builder().with_data(&marks).create("highly_variable").unwrap();
}

/// Writes features × cells as Cell Ranger does, by cells: a third of the features are genes.
fn save_tenx(path: &Path, x: &Array2<f64>) {
    let (starts, indices, values) = compressed(x);
    let group = hdf5::File::create(path).unwrap().create_group("matrix").unwrap();
    let new = || group.new_dataset_builder();
    new().with_data(&[x.ncols() as i64, x.nrows() as i64]).create("shape").unwrap();
    new().with_data(&starts).create("indptr").unwrap();
    new().chunk(2500).shuffle().deflate(4).with_data(&indices).create("indices").unwrap();
    new().chunk(2500).shuffle().deflate(4).with_data(&values).create("data").unwrap();
    let list = |group: &hdf5::Group, name: &str, all: Vec<String>| {
        let all: Vec<FixedAscii<32>> = all.iter().map(|name| FixedAscii::from_ascii(name).unwrap()).collect();
        group.new_dataset_builder().with_data(&all).create(name).unwrap();
    };
    list(&group, "barcodes", (0..x.nrows()).map(|i| format!("c{i}")).collect());
    let features = group.create_group("features").unwrap();
    list(&features, "name", (0..x.ncols()).map(|j| format!("f{j}")).collect());
    list(
        &features,
        "feature_type",
        (0..x.ncols()).map(|j| if j % 3 == 0 { "Genes" } else { "Peaks" }.into()).collect(),
    );
}

#[test]
fn some_of_the_features_stream() {
    let dir = tempdir().unwrap();
    let (file, memory) = (|name: &str| dir.path().join(name), "1600K");
    let marked = |path: &Path, x: &Array2<f64>, write: &dyn Fn(&Path)| {
        write(path);
        mark_variable(path, x.ncols());
    };
    let (dense, sparse) = (dense(), sparse());
    unlocked(&file("sparse.h5ad"), |path| marked(path, &sparse, &|path| save_h5ad(path, &sparse)));
    unlocked(&file("dense.h5ad"), |path| {
        marked(path, &dense, &|path| {
            let file = hdf5::File::create(path).unwrap();
            file.new_dataset_builder().chunk((5, 300)).deflate(1).with_data(&dense).create("X").unwrap();
        });
    });
    unlocked(&file("tenx.h5"), |path| save_tenx(path, &sparse));
    for (name, words) in [
        ("sparse.h5ad", "--highly-variable"),
        ("dense.h5ad", "--highly-variable"),
        ("tenx.h5", "--transpose --feature-type Genes"),
    ] {
        let large = Large { file: file(name), memory };
        for ranks in [1, 3] {
            let [streamed, _] = large.compare(ranks, &format!("--algo hals --max-iters 4 {words}"));
            assert_eq!(
                number(&streamed, "n") as usize,
                if name.starts_with("dense") { 300 } else { 534 },
                "{streamed}"
            );
        }
    }
}

/// The largest resident memory of a command, in bytes.
fn peak_of(run: &Run) -> f64 {
    let mut child = run.spawn();
    let (mut peak, status) = (0.0f64, format!("/proc/{}/status", child.id()));
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let found = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        peak = peak.max(1024.0 * found.unwrap_or(0.0));
        if child.try_wait().unwrap().is_some() {
            let done = finish(child, Duration::from_secs(1), "a sweep");
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            return peak;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ten times as many cells take no more memory than their usages need, from their counts to the last file of cNMF.
#[test]
fn memory_of_a_sweep_and_of_its_programmes_does_not_grow_with_the_cells() {
    const ROOM: f64 = 50e6;
    let dir = tempdir().unwrap();
    for m in [10_000, 100_000] {
        let folder = dir.path().join(format!("cells{m}/cnmf_tmp"));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(format!("cells{m}.{name}.h5ad"));
        unlocked(&file("tpm"), |path| save_cells(path, m, 360));
        unlocked(&file("norm_counts"), |path| save_cells(path, m, 360));
        assert!(std::fs::metadata(file("tpm")).unwrap().len() as f64 > if m == 100_000 { 96e6 } else { 9.6e6 });
        let line = "sweep --k 2,3 --runs 4 --max-iters 3 --memory 12M --quiet";
        let run = fednmf(0, line).arg("--input").arg(file("norm_counts")).own_process();
        let run =
            run.arg("--output").arg(dir.path().join(format!("sweep{m}"))).arg("--cnmf").arg(folder.parent().unwrap());
        let bare = "sweep --k 2 --runs 1 --max-iters 1 --quiet --input synthetic:planted,m=20,n=20,k=2";
        let bare = fednmf(0, bare).own_process().arg("--output").arg(dir.path().join(format!("bare{m}")));
        let bare = peak_of(&bare);
        let found = peak_of(&run) - bare;
        assert!(found < ROOM, "{m} cells: {found}");
        let [cells, made, trace] = [file("norm_counts"), dir.path().join("made.h5ad"), dir.path().join("t.jsonl")];
        let [cells, made, trace] = [cells, made, trace].map(|path| path.display().to_string());
        let runs = (0..4).map(|run| format!("{}/sweep{m}/k0003-run{run:03}.h5", dir.path().display()));
        let [runs, tpm] = [runs.collect::<Vec<_>>().join(" "), file("tpm").display().to_string()];
        for line in [
            format!("programs {runs} --density-threshold 2 --input {cells} --tpm {tpm} --cnmf {trace}.cnmf"),
            format!("prepare counts --variable-columns 90 --unit-variance {cells} -o {made}"),
            format!("inspect {cells}"),
            format!("-k 3 --algo hals --max-iters 2 --quiet --trace {trace} --output {made} --input {cells}"),
            format!("evaluate {made} --input {cells}"),
            format!("project {made} --quiet --input {cells} --output {made}.u.h5"),
            format!("report {trace} --input {cells} -o {trace}.html"),
        ] {
            let found = peak_of(&fednmf(0, &format!("{line} --memory 12M")).own_process()) - bare;
            assert!(found < ROOM, "{m} cells: {line}: {found}");
            if line.starts_with("inspect") {
                // What a run writes does not replace a prepared matrix.
                std::fs::remove_file(&made).unwrap();
            }
        }
        for name in [&trace, &made] {
            std::fs::remove_file(name).unwrap();
        }
        let usages =
            std::fs::read_to_string(folder.with_file_name(format!("cells{m}.usages.k_3.dt_0_5.consensus.txt")));
        assert_eq!(usages.unwrap().lines().count(), m + 1);
        let last = folder.with_file_name(format!("cells{m}.k_selection_stats.df.npz"));
        assert!(last.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A file that is cut off or rewritten while a run reads it ends the run with one message.
#[test]
fn a_file_that_changes_during_the_run_ends_it() {
    let dir = tempdir().unwrap();
    for (name, x, cut) in [
        ("rows.npy", dense(), true),
        ("rows.npy", dense(), false),
        ("chunks.h5", dense(), true),
        ("plain.npz", sparse(), true),
    ] {
        let Large { file, .. } = in_file(dir.path(), name, &x, "");
        let trace = dir.path().join("t.jsonl");
        let _ = std::fs::remove_file(&trace);
        let run = fednmf(3, "--algo hals -k 3 --max-iters 1000000 --eval-every 1 --memory 1400K --input").arg(&file);
        let output = dir.path().join("o.h5");
        let run = run.arg("--trace").arg(&trace).arg("--output").arg(&output);
        let child = run.spawn();
        let launcher = child.id();
        let iterating = || std::fs::read_to_string(&trace).is_ok_and(|text| text.lines().count() > 3);
        for _ in 0..600 {
            if iterating() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(iterating(), "{name}: {:?}", ranks_of(launcher));
        let opened = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        if cut {
            opened.set_len(std::fs::metadata(&file).unwrap().len() / 2).unwrap();
        } else {
            std::os::unix::fs::FileExt::write_all_at(&opened, &[0; 64], 1 << 20).unwrap();
        }
        drop(opened);
        let done = finish(child, Duration::from_secs(60), name);
        let messages = done.stderr.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(messages.count(), 1, "{name}: {}", done.stderr);
        assert!(matches!(done.code, Some(1 | 2)), "{name}: {:?} {}", done.code, done.stderr);
        assert!(done.stderr.contains(name) && done.stderr.contains("changed"), "{name}: {}", done.stderr);
        // An existing output is complete: the factors of the last evaluation.
        if output.exists() {
            assert_eq!((matrix(&output, "U").nrows(), matrix(&output, "V").nrows()), x.dim(), "{name}");
            std::fs::remove_file(&output).unwrap();
        }
        let left =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = left.filter(|left| ![name, "t.jsonl"].contains(&left.as_str())).collect();
        assert!(
            left.iter().all(|left| left.ends_with(".npy") || left.ends_with(".h5") || left.ends_with(".npz")),
            "{left:?}"
        );
    }
}

/// Overwrites some bytes of the chunk in the middle of a data set.
fn damage(file: &Path, data: &str) {
    let (at, size) = {
        let whole = hdf5::File::open(file).unwrap();
        let data = whole.dataset(data).unwrap();
        let chunk = data.chunk_info(data.num_chunks().unwrap() / 2).unwrap();
        (chunk.addr, chunk.size)
    };
    let opened = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&opened, &[0xff; 64], at + size / 2).unwrap();
}

#[test]
fn a_damaged_chunk_is_named_with_its_place() {
    let dir = tempdir().unwrap();
    for (name, x, data, place) in
        [("chunks.h5", dense(), "x", "/x, rows 1"), ("x.h5ad", sparse(), "X/data", "/X/data, entries ")]
    {
        let Large { file, .. } = in_file(dir.path(), name, &x, "");
        damage(&file, data);
        for line in ["--algo hals -k 3 --max-iters 2", "sweep --k 2 --runs 2 --holdout 0"] {
            let out = dir.path().join("out.h5");
            let run = fednmf(2, &format!("{line} --memory 1700K")).arg("--input").arg(&file).arg("--output").arg(&out);
            run.refused(&[name, place, "damaged"]);
            assert!(!out.exists());
        }
    }
}

/// Waits until `begun`, cuts the file to a half, waits for the end of the run, and restores the file.
fn cut_while(file: &Path, run: &Run, begun: impl Fn() -> bool) {
    let copy = file.with_extension("copy");
    std::fs::copy(file, &copy).unwrap();
    let child = run.spawn();
    for _ in 0..1200 {
        if begun() {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    assert!(begun());
    let opened = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    opened.set_len(std::fs::metadata(file).unwrap().len() / 2).unwrap();
    drop(opened);
    let done = finish(child, Duration::from_secs(60), "a run whose file is cut");
    assert!(matches!(done.code, Some(1 | 2)) && done.stderr.contains("changed"), "{:?} {}", done.code, done.stderr);
    std::fs::rename(copy, file).unwrap();
}

#[test]
fn what_was_done_before_a_file_was_cut_is_kept() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Large { file, .. } = in_file(dir.path(), "plain.npz", &sparse(), "");
    let run = |iterations: usize| {
        let line = format!("--algo hals -k 3 --seed 5 --max-iters {iterations} --eval-every 1 --memory 1400K --resume");
        let run = fednmf(2, &format!("{line} --checkpoint-every 1")).arg("--input").arg(&file);
        run.arg("--checkpoint").arg(at("c.h5")).arg("--trace").arg(at("t.jsonl")).arg("--output").arg(at("o.h5"))
    };
    cut_while(&file, &run(1_000_000), || {
        std::fs::read_to_string(at("t.jsonl")).is_ok_and(|text| text.lines().count() > 4)
    });
    let kept = matrix(&at("o.h5"), "U");
    assert_eq!(kept.nrows(), 2500);
    let reached = errors(&at("t.jsonl")).last().unwrap().0 as usize;
    let done = run(reached + 3).run();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let goes_on = done.stderr.lines().find_map(|line| line.split_once("going on at iteration ")?.1.split(' ').next());
    let goes_on: usize = goes_on.unwrap().parse().unwrap();
    assert!(goes_on > 0 && goes_on <= reached, "{}", done.stderr);

    let sweep = || {
        let line = "sweep --k 2 --runs 20 --max-iters 40 --tol 0 --memory 1700K --holdout 0";
        fednmf(2, line).arg("--input").arg(&file).arg("--output").arg(at("sweep"))
    };
    let first = at("sweep").join("k0002-run000.h5");
    cut_while(&file, &sweep(), || first.exists());
    let before = std::fs::metadata(&first).unwrap().modified().unwrap();
    let again = sweep().run();
    assert!(again.code == Some(0) && !again.stderr.contains("20 of 20 runs to do"), "{}", again.stderr);
    assert_eq!(std::fs::metadata(&first).unwrap().modified().unwrap(), before);
}
