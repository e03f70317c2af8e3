//! Files that the test writes itself, in every format that is quick to write, and synthetic matrices.

use std::io::Write;
use std::path::Path;

use ndarray::Array2;

use fednmf_base::error::ErrorKind;
use fednmf_comm::{Communicator, Parties, Payload};
use fednmf_data::{ENTRIES, Layout, PartySplit, Stack};
use fednmf_driver::inspect::inspect;
use fednmf_files::{InputSpec, Scale, Source, Threshold, generate, open};
use fednmf_linalg::Block;

use super::{check, load, plans};
use crate::streamed::save_npz;

/// A file and the matrix in it.
pub struct Case {
    name: &'static str,
    matrix: Array2<f64>,
    duplicates: u64,
}

/// Every fifth entry or so of a 23 × 17 matrix.
pub fn sparse_matrix() -> Array2<f64> {
    Array2::from_shape_fn(
        (23, 17),
        |(i, j)| if (i * 7 + j * 3) % 5 == 0 { (i * 17 + j) as f64 / 8.0 + 0.125 } else { 0.0 },
    )
}

pub fn dense_matrix() -> Array2<f64> {
    Array2::from_shape_fn((23, 17), |(i, j)| ((i * 31 + j * 17) % 251) as f64)
}

pub fn gz(path: &Path, bytes: &[u8]) {
    let mut to = flate2::write::GzEncoder::new(std::fs::File::create(path).unwrap(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap();
}

pub fn npy(descr: &str, fortran: bool, (m, n): (usize, usize), data: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({m}, {n}), }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out.extend(data.flatten());
    out
}

pub fn write_files(dir: &Path) -> Vec<Case> {
    std::fs::create_dir_all(dir).unwrap();
    let sparse = sparse_matrix();
    let dense = dense_matrix();
    let mut text = String::from("%%MatrixMarket matrix coordinate real general\n% a comment\n");
    let entries: Vec<(usize, usize, f64)> =
        sparse.indexed_iter().filter(|(_, x)| **x != 0.0).map(|((i, j), x)| (i, j, *x)).collect();
    // The first entry in three pieces, far apart.
    let (i0, j0, x0) = entries[0];
    text += &format!("23 17 {}\n", entries.len() + 2);
    text += &format!("{} {} {}\n", i0 + 1, j0 + 1, x0 / 2.0);
    for (i, j, x) in entries[1..].iter().rev() {
        text += &format!("{} {} {x:e}\n", i + 1, j + 1);
    }
    text += &format!("{} {} {}\n{} {} {}\n", i0 + 1, j0 + 1, x0 / 4.0, i0 + 1, j0 + 1, x0 / 4.0);
    std::fs::write(dir.join("coordinate.mtx"), &text).unwrap();
    gz(&dir.join("coordinate.mtx.gz"), text.as_bytes());

    let pattern = Array2::from_shape_fn((9, 9), |(i, j)| f64::from(u8::from((i.max(j) * 3 + i.min(j)) % 4 == 0)));
    let lower: Vec<(usize, usize)> =
        pattern.indexed_iter().filter(|((i, j), x)| i >= j && **x > 0.0).map(|(at, _)| at).collect();
    let mut text = format!("%%MatrixMarket matrix coordinate pattern symmetric\n9 9 {}\n", lower.len());
    lower.iter().for_each(|(i, j)| text += &format!("{} {}\n", i + 1, j + 1));
    std::fs::write(dir.join("pattern.mtx"), text.trim_end()).unwrap();

    let mut text = String::from("%%MatrixMarket matrix array real general\n23 17\n");
    dense.t().iter().for_each(|x| text += &format!("{x}\n"));
    std::fs::write(dir.join("array.mtx"), &text).unwrap();
    gz(&dir.join("array.mtx.gz"), text.as_bytes());

    let symmetric = Array2::from_shape_fn((11, 11), |(i, j)| (i.max(j) * 11 + i.min(j)) as f64);
    let mut text = String::from("%%MatrixMarket matrix array integer symmetric\n11 11\n");
    (0..11).for_each(|j| (j..11).for_each(|i| text += &format!("{}\n", symmetric[[i, j]])));
    std::fs::write(dir.join("symmetric.mtx"), &text).unwrap();
    gz(&dir.join("symmetric.mtx.gz"), text.as_bytes());

    let bytes = |x: &f64| x.to_le_bytes().to_vec();
    std::fs::write(dir.join("c.npy"), npy("<f8", false, (23, 17), dense.iter().map(bytes))).unwrap();
    std::fs::write(dir.join("fortran.npy"), npy("<f8", true, (23, 17), dense.t().iter().map(bytes))).unwrap();
    let big = dense.iter().map(|&x| (x as i32).to_be_bytes().to_vec());
    std::fs::write(dir.join("big.npy"), npy(">i4", false, (23, 17), big)).unwrap();
    let mut idx = vec![0, 0, 8, 3, 0, 0, 0, 23, 0, 0, 0, 17, 0, 0, 0, 1];
    idx.extend(dense.iter().map(|&x| x as u8));
    std::fs::write(dir.join("images-idx3-ubyte"), &idx).unwrap();
    gz(&dir.join("images-idx3-ubyte.gz"), &idx);

    let case = |name, matrix: &Array2<f64>, duplicates| Case { name, matrix: matrix.clone(), duplicates };
    vec![
        case("coordinate.mtx", &sparse, 2),
        case("coordinate.mtx.gz", &sparse, 2),
        case("pattern.mtx", &pattern, 0),
        case("array.mtx", &dense, 0),
        case("array.mtx.gz", &dense, 0),
        case("symmetric.mtx", &symmetric, 0),
        case("symmetric.mtx.gz", &symmetric, 0),
        case("c.npy", &dense, 0),
        case("fortran.npy", &dense, 0),
        case("big.npy", &dense, 0),
        case("images-idx3-ubyte", &dense, 0),
        case("images-idx3-ubyte.gz", &dense, 0),
    ]
}

pub fn good_files(comm: &Communicator, dir: &str, cases: &[Case]) {
    for case in cases {
        let mut spec = InputSpec::parse(&format!("{dir}/{}", case.name)).unwrap();
        let mut statistics = None;
        for plan in plans(comm.size()) {
            assert_eq!(check(comm, &spec, &plan, &case.matrix, &mut statistics), case.duplicates, "{}", case.name);
        }
        let statistics = statistics.unwrap();
        assert_eq!(statistics.sum, case.matrix.sum());
        assert!((statistics.norm2 - case.matrix.mapv(|x| x * x).sum()).abs() <= 1e-15 * statistics.norm2);
        assert_eq!(statistics.nonzeros as usize, case.matrix.iter().filter(|&&x| x != 0.0).count());
        assert_eq!(statistics.min, case.matrix.iter().copied().fold(f64::INFINITY, f64::min));
        let largest = case.matrix.iter().copied().fold(0.0, f64::max);
        assert_eq!(statistics.max, largest);
        spec.transpose = true;
        let turned = case.matrix.t().as_standard_layout().into_owned();
        plans(comm.size()).iter().for_each(|plan| {
            check(comm, &spec, plan, &turned, &mut None);
        });
        spec.transpose = false;
        spec.scale = Scale::Max;
        spec.binarize = Some(Threshold::At(0.5));
        let binary = case.matrix.mapv(|x| f64::from(u8::from(x / largest >= 0.5)));
        check(comm, &spec, &Layout::RowsAndColumns { ranks: comm.size() }, &binary, &mut None);
    }
    // the same matrix has the same checksum in any format
    let checksum = |name: &str| {
        let spec = InputSpec::parse(&format!("{dir}/{name}")).unwrap();
        load::<f64>(comm, &spec, &Layout::Grid { pr: comm.size(), pc: 1 }).1.checksum
    };
    assert_eq!(checksum("array.mtx"), checksum("images-idx3-ubyte.gz"));
    assert_eq!(checksum("coordinate.mtx"), checksum("coordinate.mtx.gz"));
    assert_ne!(checksum("array.mtx"), checksum("coordinate.mtx"));
}

pub fn synthetic(comm: &Communicator, dir: &str) {
    let alone = comm.split(comm.rank());
    // `generate` writes the matrix that a run would make
    for (text, names) in [
        ("planted,m=41,n=29,k=3", ["made.npy", "made.mtx"]),
        ("sparse,m=300,n=270,density=0.01,law=power", ["made.npz", "made.mtx"]),
    ] {
        let spec = InputSpec::parse(&format!("synthetic:{text}")).unwrap();
        let (whole, statistics, _) = load::<f64>(&alone, &spec, &Layout::Grid { pr: 1, pc: 1 });
        for name in names {
            let path = format!("{dir}/{name}");
            let Source::Synthetic(made) = &spec.source else { panic!("synthetic") };
            if comm.is_root() {
                generate(made, Path::new(&path), &mut |_| Ok(())).unwrap();
            }
            comm.barrier();
            let file = InputSpec::parse(&path).unwrap();
            let plan = Layout::RowsAndColumns { ranks: comm.size() };
            check(comm, &file, &plan, &whole[0], &mut Some(statistics));
            let summary = inspect(&file, comm, &mut |_| ()).unwrap();
            assert_eq!(summary.checksum, format!("{:016x}", statistics.checksum));
            let zero = |lane: &ndarray::ArrayView1<f64>| lane.iter().all(|&x| x == 0.0);
            assert_eq!(summary.zero_rows as usize, whole[0].rows().into_iter().filter(zero).count());
            assert_eq!(summary.zero_cols as usize, whole[0].columns().into_iter().filter(zero).count());
            comm.barrier();
        }
        let Source::Synthetic(made) = &spec.source else { panic!("synthetic") };
        let wrong = generate(made, &Path::new(dir).join("made.xyz"), &mut |_| Ok(())).unwrap_err();
        assert_eq!(wrong.kind, ErrorKind::Input);
        assert!(generate(made, &Path::new(dir).join("no/made.mtx"), &mut |_| Ok(())).is_err());
    }
    for text in [
        "planted,m=41,n=29,k=3",
        "sparse,m=60,n=50,density=0.1,law=power",
        "sparse,m=60,n=50,values=counts,density=0.02",
        "blocks,m=20,n=33,k=3",
        "tiles,m=50,n=70",
        "exponential,m=20",
    ] {
        let mut spec = InputSpec::parse(&format!("synthetic:{text}")).unwrap();
        spec.allow_negative = true;
        for transpose in [false, true] {
            spec.transpose = transpose;
            let (whole, statistics, _) = load::<f64>(&alone, &spec, &Layout::Grid { pr: 1, pc: 1 });
            for plan in plans(comm.size()) {
                check(comm, &spec, &plan, &whole[0], &mut Some(statistics));
            }
        }
    }
    let sent = |comm: &Communicator| -> u64 {
        comm.ledger().messages().filter(|(p, _)| p.kind == "load entries").map(|(_, e)| e.calls).sum()
    };
    let before = sent(comm);
    load::<f64>(comm, &InputSpec::parse("synthetic").unwrap(), &Layout::RowsAndColumns { ranks: comm.size() });
    assert_eq!(sent(comm), before, "synthetic matrices are made where they belong");
}

pub fn party_files(comm: &Communicator, dir: &str) {
    let dense = dense_matrix();
    let cuts = [0..9, 9..10, 10..23];
    if comm.is_root() {
        for (party, rows) in cuts.iter().enumerate() {
            let part = dense.slice(ndarray::s![rows.clone(), ..]);
            let data = part.iter().map(|&x| (x as u16).to_le_bytes().to_vec());
            std::fs::write(format!("{dir}/dense-{party}.npy"), npy("<u2", false, part.dim(), data)).unwrap();
            let mut text =
                format!("%%MatrixMarket matrix coordinate integer general\n{} 17 {}\n", part.nrows(), part.len());
            part.indexed_iter().for_each(|((i, j), x)| text += &format!("{} {} {x}\n", i + 1, j + 1));
            std::fs::write(format!("{dir}/sparse-{party:02}.mtx"), text).unwrap();
        }
    }
    comm.barrier();
    let parties = Parties { count: 3, ranks: comm.size() };
    for name in ["dense-{party}.npy", "sparse-{party}.mtx"] {
        let mut spec = InputSpec::parse(&format!("{dir}/{name}")).unwrap();
        spec.parties = Some(3);
        // by row blocks: nothing is sent
        let data = |comm: &Communicator| -> u64 {
            comm.ledger().messages().filter(|(p, _)| p.payload == Payload::Data).map(|(_, e)| e.party_bytes).sum()
        };
        let before = data(comm);
        let plan = Layout::PartyRows { parties, split: PartySplit::Even };
        let mut statistics = None;
        check(comm, &spec, &plan, &dense, &mut statistics);
        assert_eq!(data(comm), before, "a party's entries stay with it");
        let loaded = open(&spec, comm).unwrap().load::<f64>(&plan, comm, &mut |_| ()).unwrap();
        assert_eq!(loaded.cuts.rows, cuts);
        assert_eq!(loaded.header.files, Some(3));
        // for any other plan they are stacked and distributed
        for plan in plans(comm.size()).into_iter().filter(|p| !matches!(p, Layout::PartyRows { .. })) {
            check(comm, &spec, &plan, &dense, &mut statistics);
        }
        // column blocks, out of the transposed files
        spec.transpose = true;
        spec.stack = Stack::Columns;
        let turned = dense.t().as_standard_layout().into_owned();
        let before = data(comm);
        check(comm, &spec, &Layout::PartyColumns { parties, split: PartySplit::Even }, &turned, &mut None);
        assert_eq!(data(comm), before);
        check(comm, &spec, &Layout::RowsAndColumns { ranks: comm.size() }, &turned, &mut None);
        // too few, too many
        for count in [2, 4] {
            spec.parties = Some(count);
            let error = open(&spec, comm).err().expect("a wrong number of parties");
            assert_eq!(error.kind, ErrorKind::Input);
            assert!(error.message.contains("--parties"), "{error}");
        }
    }
}

/// A number in a file of `/proc/self`.
fn of_process(file: &str, field: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("Linux counts it");
    line.split_whitespace().next().unwrap_or_default().parse().expect("a number")
}

/// The rows that a rank reads are its block: no entry is sent, none is read twice, and there is no copy.
pub fn parts_of_rows(comm: &Communicator, dir: &str) {
    let path = format!("{dir}/rows.npz");
    let entry = |i: usize, j: usize| if (3 * i + j).is_multiple_of(4) { (1 + i % 7) as f64 } else { 0.0 };
    let matrix = Array2::from_shape_fn((10_000, 400), |(i, j)| entry(i, j));
    if comm.is_root() {
        save_npz(Path::new(&path), &matrix, zip::CompressionMethod::Stored);
    }
    comm.barrier();
    let (spec, share) = (InputSpec::parse(&path).unwrap(), 12e6 / comm.size() as f64);
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (read, held) = (of_process("io", "rchar:"), of_process("status", "VmHWM:"));
    let plan = Layout::Grid { pr: comm.size(), pc: 1 };
    let loaded = open(&spec, comm).unwrap().load::<f64>(&plan, comm, &mut |_| ()).unwrap();
    let read = of_process("io", "rchar:") - read;
    let held = 1024.0 * (of_process("status", "VmHWM:") - held);
    // The starts of the rows, what it takes to find the arrays, and memory of the libraries.
    assert!(read > 0.9 * share && read < 1.1 * share + 1e6, "{read} of {share} bytes are read");
    assert!(held < 1.1 * share + 5e6, "{held} of {share} bytes are held");
    let sent: u64 =
        comm.ledger().messages().filter(|(tag, _)| tag.kind == ENTRIES.kind).map(|(_, e)| e.mpi_bytes).sum();
    assert_eq!(sent, 0);
    let Block::Sparse(block) = &loaded.blocks[0] else { panic!("sparse") };
    let rows = loaded.cuts.rows[comm.rank()].clone();
    assert_eq!(block.matrix().to_dense(), matrix.slice(ndarray::s![rows, ..]));
}
