//! Everything that is wrong is said once, in words, with exit code 2, on any number of ranks.

mod common;

use common::{data, fednmf};
use tempfile::tempdir;

#[test]
fn wrong_words_are_refused_on_all_ranks() {
    for ranks in [0, 1, 2, 3] {
        for (line, words) in [
            ("--nosuch", &["--nosuch"][..]),
            ("--algo nosuch", &["nosuch", "dsanls", "hals"]),
            ("--algo hals --solver pgd", &["--solver", "dsanls"]),
            ("-k 0", &["--components"]),
            ("-k 100000", &["--components", "100000"]),
            ("--input /no/such/file.mtx", &["/no/such/file.mtx"]),
            ("--input /no/such/file.xyz", &["/no/such/file.xyz"]),
            ("--sketch-size 100000", &["--sketch-size"]),
            ("--output /no/such/dir/o.h5", &["--output", "/no/such/dir"]),
            ("--trace /no/such/dir/t.jsonl", &["--trace", "/no/such/dir"]),
            ("--resume", &["--checkpoint"]),
            ("list nosuch", &["nosuch"]),
            ("evaluate /no/such.h5 --input synthetic:planted", &["/no/such.h5"]),
        ] {
            fednmf(ranks, line).refused(words);
        }
    }
}

#[test]
fn help_and_lists_need_no_mpi_and_come_once() {
    for line in ["--help", "--version", "list", "list dsanls", "completions bash", "man"] {
        for ranks in [0, 2] {
            let output = fednmf(ranks, line).run();
            assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
            assert!(!output.stdout.is_empty());
            let first = output.stdout.lines().next().unwrap();
            let again = output.stdout.lines().filter(|l| *l == first).count();
            assert!(
                ranks == 0 || line == "man" || line == "completions bash" || again == 1,
                "{line} came {again} times"
            );
        }
    }
}

#[test]
fn nothing_half_written_stays_behind() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("o.h5");
    fednmf(2, "--algo dsanls --sketch-size 100000 --input")
        .arg(data("digits.npy"))
        .arg("--output")
        .arg(&out)
        .refused(&["--sketch-size"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Runs that must end in order: read (0) or refused (2), whatever the HDF5 library makes of the file.
fn ends(ranks: usize, line: &str, path: &std::path::Path) -> i32 {
    let output = fednmf(ranks, line).arg(path).limit(60).run();
    let code = output.code.unwrap_or(-1);
    assert!(code == 0 || code == 2, "{line} {}: {code}\n{}", path.display(), output.stderr);
    assert!(!output.stderr.contains("internal error"), "{}", output.stderr);
    if code == 2 {
        assert_eq!(output.stderr.matches("fednmf: ").count(), 1, "one message\n{}", output.stderr);
    }
    code
}

/// Where AnnData's files keep their words, version 1.10 of the library crashes on the first of these damages, and turns
/// in a circle on the second.
#[test]
fn a_file_that_the_hdf5_library_dies_of_is_refused() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("bent.h5ad");
    let good = std::fs::read(data("formats/counts.h5ad")).unwrap();
    let heap = good.windows(4).position(|w| w == b"GCOL").unwrap();
    for (ranks, at, size) in [(0, 8, 17u64), (2, 8, 17), (0, 24, u64::MAX - 15)] {
        let mut bytes = good.clone();
        bytes[heap + at..heap + at + 8].copy_from_slice(&size.to_le_bytes());
        std::fs::write(&file, &bytes).unwrap();
        ends(ranks, "inspect", &file);
    }
    // and what is in order is read as before
    std::fs::write(&file, &good).unwrap();
    assert_eq!(ends(2, "inspect", &file), 0);
}

/// Outputs and checkpoints are sealed: whichever byte is another one, it is noticed before HDF5 sees the file.
#[test]
fn no_byte_of_an_output_or_a_checkpoint_may_change() {
    let dir = tempdir().unwrap();
    let (out, kept, bent) = (dir.path().join("o.h5"), dir.path().join("c.h5"), dir.path().join("bent.h5"));
    let line = format!("--algo hals -k 2 --input {} --max-iters", data("digits.npy").display());
    fednmf(0, &format!("{line} 3")).arg("--output").arg(&out).arg("--checkpoint").arg(&kept).ok();
    fednmf(0, &format!("{line} 3 --resume --checkpoint")).arg(&out).refused(&["no checkpoint"]);
    let evaluate = format!("evaluate --input {}", data("digits.npy").display());
    assert_eq!((ends(0, &evaluate, &out), ends(0, &format!("{line} 4 --resume --checkpoint"), &kept)), (0, 0));
    for (path, line) in [(out, evaluate), (kept, format!("{line} 4 --resume --checkpoint"))] {
        let good = std::fs::read(path).unwrap();
        for step in 0..24 {
            // spread over the file, but not in the last word, without which there is no seal
            let mut bytes = good.clone();
            let at = step * (bytes.len() - 8) / 24;
            bytes[at] ^= 1 << (step % 8);
            std::fs::write(&bent, &bytes).unwrap();
            assert_eq!(ends(0, &line, &bent), 2, "byte {at}");
        }
    }
}
