//! Files that must be refused, with the same message on all ranks, and damaged files that must not cause a panic.

use fednmf_base::error::ErrorKind;
use fednmf_comm::Communicator;
use fednmf_data::Layout;
use fednmf_files::{InputSpec, open};

use super::TEST;
use super::good::npy;

/// The input must be refused with a message that contains `names`, the same on all ranks.
pub fn refused(comm: &Communicator, path: &str, names: &str) {
    refused_input(comm, &InputSpec::parse(path).unwrap(), names);
}

/// As [`refused`], with the options of the specification.
pub fn refused_input(comm: &Communicator, spec: &InputSpec, names: &str) {
    let path = format!("{:?}", spec.source);
    let plan = Layout::RowsAndColumns { ranks: comm.size() };
    let result = open(spec, comm).and_then(|input| input.load::<f64>(&plan, comm, &mut |_| ()));
    let error = result.err().unwrap_or_else(|| panic!("{path} was read"));
    assert_eq!(error.kind, ErrorKind::Input, "{path}: {error}");
    assert!(error.is_shared(), "{path}: {error}");
    assert!(error.message.contains(names), "{path}: {error}");
    let all = comm.all_gather_value(TEST, &error.message);
    assert!(all.iter().all(|m| *m == error.message), "{all:?}");
}

pub fn bad_files(comm: &Communicator, dir: &str) {
    let head = "%%MatrixMarket matrix coordinate real general\n";
    let good = std::fs::read(format!("{dir}/images-idx3-ubyte.gz")).unwrap();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty.mtx", Vec::new(), "empty"),
        ("garbage.mtx", vec![0xab; 5000], "%%MatrixMarket"),
        ("garbage", vec![0xab; 5000], "no known format"),
        ("range.mtx", format!("{head}2 2 2\n1 1 1\n2 3 1\n").into(), "line 4: row 2, column 3"),
        ("few.mtx", format!("{head}2 2 3\n1 1 1.00000\n2 2 1.00000\n").into(), "promises 3 entries, the file holds 2"),
        ("many.mtx", format!("{head}2 2 1\n1 1 1\n2 2 1\n").into(), "promises 1 entries, the file holds 2"),
        (
            "nan.mtx",
            format!("{head}2 2 2\n1 1 1\n2 2 NaN\n").into(),
            "line 4: the entry in row 1, column 1 is not a number",
        ),
        (
            "inf.mtx",
            format!("{head}2 2 2\n1 1 inf\n2 2 1\n").into(),
            "line 3: the entry in row 0, column 0 is infinite",
        ),
        ("negative.mtx", format!("{head}2 2 2\n1 1 -1\n2 2 1\n").into(), "row 0, column 0 is negative"),
        ("word.mtx", format!("{head}2 2 2\n1 1 1\ntwo 2 1\n").into(), "line 4: expected"),
        ("zeros.mtx", format!("{head}2 2 1\n1 1 0\n").into(), "nothing to factorise"),
        (
            "array.mtx",
            "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\nx\n".into(),
            "line 6: expected a number",
        ),
        ("short.mtx", "%%MatrixMarket matrix array real general\n2 2\n1.5\n2.5\n3.5\n".into(), "holds 3"),
        ("promise.npy", npy("<f8", false, (1 << 30, 1 << 20), std::iter::empty()), "promises"),
        // a header of 4 GB, in a file of 12 bytes
        ("header.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "header.npy: "),
        ("cut.npy", npy("<f8", false, (2, 2), (0..3).map(|x| f64::from(x).to_le_bytes().to_vec())), "truncated"),
        (
            "nan.npy",
            npy("<f8", false, (2, 2), [1.0, f64::NAN, 1.0, 2.0].iter().map(|x| x.to_le_bytes().to_vec())),
            "row 0, column 1",
        ),
        (
            "negative.npy",
            npy("<i1", true, (2, 2), [1, 2, 255, 4].iter().map(|x| vec![*x])),
            "row 0, column 1 is negative",
        ),
        ("none.npy", npy("<f8", false, (0, 2), std::iter::empty()), "empty: 0 × 2"),
        ("text.npy", b"1 2 3".to_vec(), "NumPy"),
        ("named.mtx.gz", b"%%MatrixMarket".to_vec(), "not compressed"),
        ("cut-idx3-ubyte.gz", good[..good.len() - 30].to_vec(), "cut-idx3-ubyte.gz: "),
        ("bent.mtx.gz", [&[0x1f, 0x8b, 8, 0][..], &[0x55; 300][..]].concat(), "damaged"),
    ];
    if comm.is_root() {
        std::fs::create_dir_all(format!("{dir}/bad")).unwrap();
        cases.iter().for_each(|(name, bytes, _)| std::fs::write(format!("{dir}/bad/{name}"), bytes).unwrap());
    }
    comm.barrier();
    // Restarts the peak: other tests used these processes before.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    cases.iter().for_each(|(name, _, names)| refused(comm, &format!("{dir}/bad/{name}"), names));
    // No memory is reserved for the sizes in their headers: each file has a few kilobytes.
    assert!(peak() < before + (32 << 10), "{} KiB more", peak() - before);
    // Files that broke a reader once (bench/safety) must not cause a panic.
    let bent = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/bent");
    for entry in std::fs::read_dir(bent).unwrap() {
        let path = entry.unwrap().path();
        let spec = InputSpec::parse(path.to_str().unwrap()).unwrap();
        let plan = Layout::RowsAndColumns { ranks: comm.size() };
        let result = open(&spec, comm).and_then(|input| input.load::<f64>(&plan, comm, &mut |_| ()));
        assert!(result.err().is_none_or(|e| e.is_shared() && e.kind == ErrorKind::Input), "{}", path.display());
    }
    refused(comm, &format!("{dir}/missing.mtx"), "no such file");
    refused(comm, dir, "directory");
    refused(comm, "synthetic:exponential", "negative");
}

/// Peak resident memory of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).expect("Linux reports the peak")
}

/// Files with bytes changed, cut out or cut off: read or refused, never a panic. Each rank tries its own.
pub fn damaged_files(comm: &Communicator, dir: &str) {
    let alone = comm.split(comm.rank());
    let formats = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/formats");
    let mut state = 0x5eed + comm.rank() as u64;
    let mut random = |below: usize| {
        state = fednmf_linalg::random::mix(state);
        (state % below.max(1) as u64) as usize
    };
    let own = ["coordinate.mtx", "array.mtx", "symmetric.mtx", "pattern.mtx", "coordinate.mtx.gz", "images-idx3-ubyte"];
    let foreign = [
        "counts-csr.npz",
        "counts-csc-plain.npz",
        "table-fortran.npy",
        "table.csv",
        "table.txt",
        "table.parquet",
        "baskets.dat",
    ];
    let paths = own.iter().map(|n| format!("{dir}/{n}")).chain(foreign.iter().map(|n| format!("{formats}/{n}")));
    let (mut read, mut refused) = (0, 0);
    for path in paths {
        let good = std::fs::read(&path).unwrap();
        let name = path.rsplit('/').next().unwrap_or_default();
        let damaged = format!("{dir}/damaged-{}-{name}", comm.rank());
        for _ in 0..60 {
            let mut bytes = good.clone();
            // half of the damages hit the header
            let place = |random: &mut dyn FnMut(usize) -> usize, length: usize| {
                let near = random(2) == 0;
                random(if near { length.min(120) } else { length })
            };
            for _ in 0..=random(3) {
                let at = place(&mut random, bytes.len());
                match random(4) {
                    0 => bytes.truncate(at),
                    1 => drop(bytes.drain(at..(at + random(9)).min(bytes.len()))),
                    2 if at < bytes.len() => bytes[at] = b"0919- \n\xff"[random(8)],
                    _ if at < bytes.len() => bytes[at] = random(256) as u8,
                    _ => {}
                }
            }
            std::fs::write(&damaged, &bytes).unwrap();
            let spec = InputSpec::parse(&damaged).unwrap();
            let plan = Layout::RowsAndColumns { ranks: 1 };
            match open(&spec, &alone).and_then(|input| input.load::<f64>(&plan, &alone, &mut |_| ())) {
                Ok(_) => read += 1,
                Err(e) => {
                    assert_eq!(e.kind, ErrorKind::Input, "{name}: {e}");
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
}
