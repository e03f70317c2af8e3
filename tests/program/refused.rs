//! Wrong usage and wrong input: one message and exit code 2, on any number of ranks.

use std::io::Write as _;

use tempfile::tempdir;

use crate::common::{data, fednmf, finish, launch, matrix, session, write_npy};

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn wrong_options_are_refused_on_all_ranks() {
    let wrong = [
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
        ("--stall-timeout -1", &["--stall-timeout"]),
        ("--on-lost-party continue", &["--on-lost-party"]),
        ("evaluate /no/such.h5 --input synthetic:planted", &["/no/such.h5"]),
    ];
    // The binary: exit code and a single message, with and without mpirun.
    for (ranks, only) in [(0, wrong.len()), (2, 3)] {
        for (line, words) in &wrong[..only] {
            fednmf(ranks, line).own_process().refused(words);
        }
        fednmf(ranks, "list nosuch").own_process().refused(&["nosuch"]);
    }
    // More ranks, which must all have the same error (a session checks this).
    let lines = wrong.map(|(line, _)| line.to_string());
    for ranks in [1, 2, 3] {
        for (done, (line, words)) in session::all(ranks, &lines).iter().zip(&wrong) {
            assert_eq!(done.code, 2, "{ranks} ranks: {line}: {}", done.message);
            assert!(words.iter().all(|word| done.message.contains(word)), "{line}: {}", done.message);
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn help_and_lists_are_printed_once() {
    for line in ["--help", "--version", "list", "list dsanls", "completions bash", "man"] {
        for ranks in [0, 2] {
            let output = fednmf(ranks, line).run();
            assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
            assert!(!output.stdout.is_empty());
            let first = output.stdout.lines().next().unwrap();
            let again = output.stdout.lines().filter(|l| *l == first).count();
            assert!(
                ranks == 0 || line == "man" || line == "completions bash" || again == 1,
                "{line} was printed {again} times"
            );
        }
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn no_incomplete_file_is_left() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("o.h5");
    fednmf(2, "--algo dsanls --sketch-size 100000 --input")
        .arg(data("digits.npy"))
        .arg("--output")
        .arg(&out)
        .refused(&["--sketch-size"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Runs the binary on a file, which must be read (0) or refused (2) even if the HDF5 library crashes on it.
fn ends(ranks: usize, line: &str, path: &std::path::Path) -> i32 {
    let output = fednmf(ranks, line).arg(path).limit(60).run();
    let code = output.code.unwrap_or(-1);
    assert!(code == 0 || code == 2, "{line} {}: {code}\n{}", path.display(), output.stderr);
    assert!(!output.stderr.contains("internal error"), "{}", output.stderr);
    if code == 2 {
        assert_eq!(
            output.stderr.lines().filter(|line| line.starts_with("error: ")).count(),
            1,
            "one message\n{}",
            output.stderr
        );
    }
    code
}

/// Damages of the heap in which AnnData's files keep their strings: version 1.10 of the library crashes on the first
/// and never returns on the second.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_file_that_crashes_the_hdf5_library_is_refused() {
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
    // the undamaged file is read
    std::fs::write(&file, &good).unwrap();
    assert_eq!(ends(2, "inspect", &file), 0);
}

/// A byte of the numbers is another than that of which the file has the checksum.
#[test]
fn a_compressed_file_is_compared_with_its_checksum() {
    let dir = tempdir().unwrap();
    let numbers: Vec<u8> = (0..2000u32).map(|i| (i * 37 % 200) as u8).collect();
    write_npy(&dir.path().join("x.npy"), "|u1", (50, 40), &numbers);
    let plain = std::fs::read(dir.path().join("x.npy")).unwrap();
    let idx = [&[0u8, 0, 8, 2, 0, 0, 0, 50, 0, 0, 0, 40][..], &numbers].concat();
    let packed = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    };
    let npz = std::fs::read(data("formats/counts-csr.npz")).unwrap();
    let indptr = npz.windows(10).position(|name| name == b"indptr.npy").unwrap() + 150;
    for (name, good, at) in
        [("x.npy.gz", packed(&plain), 1000), ("x.idx.gz", packed(&idx), 1000), ("x.npz", npz, indptr)]
    {
        let file = dir.path().join(name);
        std::fs::write(&file, &good).unwrap();
        assert_eq!(ends(0, "inspect", &file), 0, "{name}");
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        for ranks in [0, 2] {
            fednmf(ranks, "inspect").arg(&file).refused(&[name, "checksum"]);
        }
        if name.ends_with("gz") {
            let more = [if name.contains("npy") { &plain } else { &idx }, &[0u8][..]].concat();
            std::fs::write(&file, packed(&more)).unwrap();
            fednmf(0, "inspect").arg(&file).refused(&[name, "more bytes than its header promises"]);
        }
    }
}

/// HDF5 files of other programs with bytes changed, cut out or cut off are read or refused, without a crash.
/// `FEDNMF_DAMAGES=1000` tries more of them.
#[test]
fn a_damaged_hdf5_file_is_read_or_refused() {
    let rounds: usize = std::env::var("FEDNMF_DAMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let dir = tempdir().unwrap();
    let mut state = 0xbad;
    let mut random = |below: usize| {
        state = fednmf_linalg::random::mix(state);
        (state % below as u64) as usize
    };
    let mut codes = [0, 0];
    for round in 0..rounds {
        let name = ["counts.h5ad", "counts-10x.h5", "dense.h5ad", "table.h5"][round % 4];
        let mut bytes = std::fs::read(data("formats").join(name)).unwrap();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(8) {
                0 => bytes.truncate(at.max(1)),
                1 => drop(bytes.drain(at..(at + 1 + random(64)).min(bytes.len()))),
                2 => bytes[at] = 0xff,
                _ => bytes[at] = random(256) as u8,
            }
        }
        let file = dir.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        codes[usize::from(ends(0, "inspect", &file) == 2)] += 1;
    }
    if rounds > 8 {
        println!("{} read, {} refused", codes[0], codes[1]);
    }
}

/// Outputs and checkpoints are sealed: a change of any byte is detected before HDF5 opens the file.
#[test]
fn a_change_of_any_byte_of_an_output_or_a_checkpoint_is_refused() {
    let dir = tempdir().unwrap();
    let (out, checkpoint) = (dir.path().join("o.h5"), dir.path().join("c.h5"));
    let line = format!("--algo hals -k 2 --input {} --max-iters", data("digits.npy").display());
    fednmf(0, &format!("{line} 3")).arg("--output").arg(&out).arg("--checkpoint").arg(&checkpoint).ok();
    fednmf(0, &format!("{line} 3 --resume --checkpoint")).arg(&out).refused(&["no checkpoint"]);
    let evaluate = format!("evaluate --input {}", data("digits.npy").display());
    assert_eq!((ends(0, &evaluate, &out), ends(0, &format!("{line} 4 --resume --checkpoint"), &checkpoint)), (0, 0));
    let mut lines = Vec::new();
    for (path, line) in [(out, evaluate), (checkpoint, format!("{line} 4 --resume --checkpoint"))] {
        let good = std::fs::read(path).unwrap();
        for step in 0..24 {
            // spread over the file, except for the last eight bytes, which mark the seal
            let mut bytes = good.clone();
            let at = step * (bytes.len() - 8) / 24;
            bytes[at] ^= 1 << (step % 8);
            let bent = dir.path().join(format!("{}.h5", lines.len()));
            std::fs::write(&bent, &bytes).unwrap();
            lines.push(format!("{line} {}", bent.display()));
        }
    }
    for done in session::all(0, &lines) {
        assert_eq!(done.code, 2, "{}: {}", done.line, done.message);
    }
}

/// AnnData outputs have no seal, since other programs add to them. Their factors have checksums: a change of a byte is detected,
/// or changes nothing of what is read.
#[test]
fn a_changed_byte_of_an_anndata_output_changes_no_number() {
    let dir = tempdir().unwrap();
    let (out, bent) = (dir.path().join("o.h5ad"), dir.path().join("bent.h5ad"));
    fednmf(0, "--algo hals -k 2 --max-iters 3 --input").arg(data("digits.npy")).arg("--output").arg(&out).ok();
    let good = std::fs::read(&out).unwrap();
    let numbers: Vec<u8> = matrix(&out, "varm/NMF").iter().flat_map(|x| x.to_le_bytes()).collect();
    let of_factor = good.windows(numbers.len()).position(|bytes| bytes == numbers).unwrap();
    let top = |path: &std::path::Path| fednmf(0, "top").arg(path).own_process().run();
    let right = top(&out).stdout;
    let spread = (0..24).map(|step| (step * good.len() / 24, 1 << (step % 8)));
    // A bit of a mantissa, and the number of rows for each checksum.
    let rows_of_a_checksum = good.windows(10).position(|name| name == b"crc32_rows").unwrap();
    let hit = [(of_factor + 8, 1)].into_iter().chain((16..64).map(|more| (rows_of_a_checksum + more, 0xff)));
    for (at, bits) in spread.chain(hit) {
        let mut bytes = good.clone();
        bytes[at] ^= bits;
        std::fs::write(&bent, &bytes).unwrap();
        let done = top(&bent);
        assert!(!done.stderr.contains("internal error"), "byte {at}: {}", done.stderr);
        assert!(done.code == Some(2) || done.code == Some(0) && done.stdout == right, "byte {at}: {:?}", done.code);
        assert!(at != of_factor + 8 || done.stderr.contains("fail their checksum"), "{}", done.stderr);
    }
}

/// All ranks read one file, each on its own node, which may lack it or have another one. Here a node is a directory.
#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn a_rank_that_sees_another_file_is_named() {
    let dir = tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| dir.path().join(name));
    [&here, &there].into_iter().for_each(|node| std::fs::create_dir(node).unwrap());
    let numbers: Vec<u8> = (0..2000u32).map(|i| (i % 200) as u8).collect();
    write_npy(&here.join("x.npy"), "|u1", (50, 40), &numbers);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_fednmf"));
    let line = ["--algo", "hals", "-k", "2", "--input", "x.npy"];
    let run = || {
        let mut command = launch(1, program);
        command.current_dir(&here).args(line).args([":", "-n", "1", "-wdir"]).arg(&there).arg(program).args(line);
        finish(command.spawn().unwrap(), std::time::Duration::from_secs(60), "two nodes")
    };
    let missing = run();
    assert!(missing.code == Some(2) && missing.stderr.contains("x.npy: rank 1"), "{}", missing.stderr);
    assert!(missing.stderr.contains("every node must see it"), "{}", missing.stderr);
    let reversed: Vec<u8> = numbers.iter().rev().copied().collect();
    write_npy(&there.join("x.npy"), "|u1", (50, 40), &reversed);
    let other = run();
    assert!(other.code == Some(2) && other.stderr.contains("sees another file than rank 0"), "{}", other.stderr);
    std::fs::copy(here.join("x.npy"), there.join("x.npy")).unwrap();
    assert_eq!(run().code, Some(0));
}
