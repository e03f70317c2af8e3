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
    fednmf(2, "--sketch-size 100000 --input")
        .arg(data("digits.npy"))
        .arg("--output")
        .arg(&out)
        .refused(&["--sketch-size"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
