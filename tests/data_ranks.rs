//! The readers on several ranks: whatever the plan and the number of ranks, the tiles put together are the matrix that
//! was written, the figures have the same bits, and what is wrong with a file is told alike on all ranks.
//!
//! Runs itself under `mpirun -n 4`; smaller groups are split off from the four ranks.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use fednmf::comm::{Door, Parcel, Parties, Payload, abort_on_panic};
use fednmf::data::{Figures, InputSpec, Plan, Scale, Source, Stack, generate, inspect, open};
use fednmf::error::Kind;
use fednmf::linalg::{Block, Real};
use mpi::traits::Communicator;
use ndarray::Array2;

const TEST: Parcel = Parcel::new("test", Payload::Control);
const INSIDE: &str = "FEDNMF_TEST_DATA_RANKS";

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_none() {
        return launch();
    }
    abort_on_panic();
    let Some(universe) = mpi::initialize() else { return ExitCode::FAILURE };
    let world = Door::new(universe.world().duplicate());
    assert_eq!(world.size(), 4, "the test wants four ranks");
    let dir = PathBuf::from(std::env::var_os(INSIDE).unwrap_or_default());
    let cases =
        if world.speaks() { write_files(&dir) } else { write_files(&dir.join(format!("own-{}", world.rank()))) };
    let dir = dir.to_str().unwrap_or_default().to_string();
    world.barrier();
    for size in 1..=4 {
        let door = world.split(usize::from(world.rank() >= size));
        if world.rank() < size {
            good_files(&door, &dir, &cases);
            synthetic(&door, &dir);
            party_files(&door, &dir);
            bad_files(&door, &dir);
            foreign_files(&door, &dir);
        }
        if size == 4 {
            damaged_files(&door, &dir);
        }
        world.barrier();
    }
    if world.speaks() {
        println!("data_ranks: all good on 1, 2, 3 and 4 ranks");
    }
    ExitCode::SUCCESS
}

fn launch() -> ExitCode {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let out = Command::new("mpirun")
        .args(["-n", "4", "--oversubscribe"])
        .arg(std::env::current_exe().expect("this program"))
        .env(INSIDE, dir.path())
        .output()
        .expect("mpirun runs");
    let text = String::from_utf8_lossy(&out.stdout);
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "the ranks failed: {}", out.status);
    assert!(text.contains("all good on 1, 2, 3 and 4 ranks"), "the ranks did not run");
    ExitCode::SUCCESS
}

/// A file and the matrix in it.
struct Case {
    name: &'static str,
    matrix: Array2<f64>,
    duplicates: u64,
}

/// Every fifth entry or so of a 23 × 17 matrix.
fn sparse_matrix() -> Array2<f64> {
    Array2::from_shape_fn(
        (23, 17),
        |(i, j)| if (i * 7 + j * 3) % 5 == 0 { (i * 17 + j) as f64 / 8.0 + 0.125 } else { 0.0 },
    )
}

fn dense_matrix() -> Array2<f64> {
    Array2::from_shape_fn((23, 17), |(i, j)| ((i * 31 + j * 17) % 251) as f64)
}

fn gz(path: &Path, bytes: &[u8]) {
    let mut to = flate2::write::GzEncoder::new(std::fs::File::create(path).unwrap(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap();
}

fn npy(descr: &str, fortran: bool, (m, n): (usize, usize), data: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({m}, {n}), }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out.extend(data.flatten());
    out
}

fn write_files(dir: &Path) -> Vec<Case> {
    std::fs::create_dir_all(dir).unwrap();
    let sparse = sparse_matrix();
    let dense = dense_matrix();
    let mut text = String::from("%%MatrixMarket matrix coordinate real general\n% a comment\n");
    let entries: Vec<(usize, usize, f64)> =
        sparse.indexed_iter().filter(|(_, x)| **x != 0.0).map(|((i, j), x)| (i, j, *x)).collect();
    // The first entry in three pieces, in places far apart.
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

fn plans(size: usize) -> Vec<Plan> {
    let parties = |count| Parties { count, ranks: size };
    let mut plans = vec![
        Plan::Grid { pr: size, pc: 1 },
        Plan::Grid { pr: 1, pc: size },
        Plan::RowsAndColumns { ranks: size },
        Plan::PartyRows { parties: parties(5), skew: None },
        Plan::PartyRows { parties: parties(2), skew: Some(0.75) },
        Plan::PartyColumns { parties: parties(3), skew: Some(0.0) },
    ];
    if size == 4 {
        plans.push(Plan::Grid { pr: 2, pc: 2 });
    }
    plans
}

/// The whole matrix out of all ranks' tiles, once for each set of them that covers it.
fn load<T: Real>(door: &Door, spec: &InputSpec, plan: &Plan) -> (Vec<Array2<f64>>, Figures, u64) {
    let input = open(spec, door).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let (m, n) = (input.header().rows, input.header().cols);
    let mut last = 0.0;
    let loaded = input.load::<T>(plan, door, &mut |x| last = x).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let tiles = plan.tiles(&loaded.cuts, door.rank());
    assert_eq!(tiles.len(), loaded.blocks.len());
    assert!(tiles.is_empty() || last == 1.0, "progress ends at {last}");
    let twice = matches!(plan, Plan::RowsAndColumns { .. });
    let mut wholes = vec![Array2::<f64>::zeros((m, n)); if twice { 2 } else { 1 }];
    for (at, (tile, block)) in tiles.iter().zip(&loaded.blocks).enumerate() {
        let (r, c) = (tile.rows.len(), tile.cols.len());
        assert_eq!(block.shape(), if tile.transposed { (c, r) } else { (r, c) });
        let part = match block {
            Block::Dense(x) => x.mapv(T::wide),
            Block::Sparse(x) => x.matrix().to_dense().mapv(T::wide),
            Block::Bits(x) => x.to_dense(),
        };
        let part = if tile.transposed { part.reversed_axes() } else { part };
        let mut place = wholes[if twice { at } else { 0 }]
            .slice_mut(ndarray::s![tile.rows.clone(), tile.cols.clone()])
            .into_owned();
        place += &part;
        wholes[if twice { at } else { 0 }].slice_mut(ndarray::s![tile.rows.clone(), tile.cols.clone()]).assign(&place);
    }
    for whole in &mut wholes {
        door.sum(TEST, whole.as_slice_mut().unwrap_or_default());
    }
    (wholes, loaded.figures, loaded.duplicates)
}

fn check(door: &Door, spec: &InputSpec, plan: &Plan, expected: &Array2<f64>, figures: &mut Option<Figures>) -> u64 {
    let (wholes, found, duplicates) = load::<f64>(door, spec, plan);
    for whole in wholes {
        assert_eq!(whole, *expected, "{spec:?} {plan:?}");
    }
    assert_eq!(*figures.get_or_insert(found), found, "{spec:?} {plan:?}: figures");
    let (narrow, ..) = load::<f32>(door, spec, plan);
    for whole in narrow {
        assert_eq!(whole, expected.mapv(|x| f64::from(x as f32)), "{spec:?} {plan:?} in f32");
    }
    duplicates
}

fn good_files(door: &Door, dir: &str, cases: &[Case]) {
    for case in cases {
        let mut spec = InputSpec::parse(&format!("{dir}/{}", case.name)).unwrap();
        let mut figures = None;
        for plan in plans(door.size()) {
            assert_eq!(check(door, &spec, &plan, &case.matrix, &mut figures), case.duplicates, "{}", case.name);
        }
        let figures = figures.unwrap();
        assert_eq!(figures.sum, case.matrix.sum());
        assert!((figures.norm2 - case.matrix.mapv(|x| x * x).sum()).abs() <= 1e-15 * figures.norm2);
        assert_eq!(figures.nonzeros as usize, case.matrix.iter().filter(|&&x| x != 0.0).count());
        assert_eq!(figures.min, case.matrix.iter().copied().fold(f64::INFINITY, f64::min));
        let largest = case.matrix.iter().copied().fold(0.0, f64::max);
        assert_eq!(figures.max, largest);
        spec.transpose = true;
        let turned = case.matrix.t().as_standard_layout().into_owned();
        plans(door.size()).iter().for_each(|plan| {
            check(door, &spec, plan, &turned, &mut None);
        });
        spec.transpose = false;
        spec.scale = Scale::Max;
        spec.binarize = Some(0.5);
        let binary = case.matrix.mapv(|x| f64::from(u8::from(x / largest >= 0.5)));
        check(door, &spec, &Plan::RowsAndColumns { ranks: door.size() }, &binary, &mut None);
    }
    // the same matrix has the same checksum in any format
    let checksum = |name: &str| {
        let spec = InputSpec::parse(&format!("{dir}/{name}")).unwrap();
        load::<f64>(door, &spec, &Plan::Grid { pr: door.size(), pc: 1 }).1.checksum
    };
    assert_eq!(checksum("array.mtx"), checksum("images-idx3-ubyte.gz"));
    assert_eq!(checksum("coordinate.mtx"), checksum("coordinate.mtx.gz"));
    assert_ne!(checksum("array.mtx"), checksum("coordinate.mtx"));
}

fn synthetic(door: &Door, dir: &str) {
    let alone = door.split(door.rank());
    // what is written to a file is what is made on the spot
    for (text, names) in [
        ("planted,m=41,n=29,k=3", ["made.npy", "made.mtx"]),
        ("sparse,m=300,n=270,density=0.01,law=power", ["made.npz", "made.mtx"]),
    ] {
        let spec = InputSpec::parse(&format!("synthetic:{text}")).unwrap();
        let (whole, figures, _) = load::<f64>(&alone, &spec, &Plan::Grid { pr: 1, pc: 1 });
        for name in names {
            let path = format!("{dir}/{name}");
            let Source::Synthetic(made) = &spec.source else { panic!("synthetic") };
            if door.speaks() {
                generate(made, Path::new(&path), &mut |_| ()).unwrap();
            }
            door.barrier();
            let file = InputSpec::parse(&path).unwrap();
            let plan = Plan::RowsAndColumns { ranks: door.size() };
            check(door, &file, &plan, &whole[0], &mut Some(figures));
            let summary = inspect(&file, door, &mut |_| ()).unwrap();
            assert_eq!(summary.checksum, format!("{:016x}", figures.checksum));
            let zero = |lane: &ndarray::ArrayView1<f64>| lane.iter().all(|&x| x == 0.0);
            assert_eq!(summary.zero_rows as usize, whole[0].rows().into_iter().filter(zero).count());
            assert_eq!(summary.zero_cols as usize, whole[0].columns().into_iter().filter(zero).count());
            door.barrier();
        }
        let Source::Synthetic(made) = &spec.source else { panic!("synthetic") };
        let wrong = generate(made, &Path::new(dir).join("made.xyz"), &mut |_| ()).unwrap_err();
        assert_eq!(wrong.kind, Kind::Input);
        assert!(generate(made, &Path::new(dir).join("no/made.mtx"), &mut |_| ()).is_err());
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
            let (whole, figures, _) = load::<f64>(&alone, &spec, &Plan::Grid { pr: 1, pc: 1 });
            for plan in plans(door.size()) {
                check(door, &spec, &plan, &whole[0], &mut Some(figures));
            }
        }
    }
    let sent = |door: &Door| -> u64 {
        door.ledger().wire().filter(|(p, _)| p.purpose == "load entries").map(|(_, e)| e.calls).sum()
    };
    let before = sent(door);
    load::<f64>(door, &InputSpec::parse("synthetic").unwrap(), &Plan::RowsAndColumns { ranks: door.size() });
    assert_eq!(sent(door), before, "synthetic matrices are made where they belong");
}

fn party_files(door: &Door, dir: &str) {
    let dense = dense_matrix();
    let cuts = [0..9, 9..10, 10..23];
    if door.speaks() {
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
    door.barrier();
    let parties = Parties { count: 3, ranks: door.size() };
    for name in ["dense-{party}.npy", "sparse-{party}.mtx"] {
        let mut spec = InputSpec::parse(&format!("{dir}/{name}")).unwrap();
        spec.parties = Some(3);
        // by row blocks: nothing is sent
        let data = |door: &Door| -> u64 {
            door.ledger().wire().filter(|(p, _)| p.payload == Payload::Data).map(|(_, e)| e.party_bytes).sum()
        };
        let before = data(door);
        let plan = Plan::PartyRows { parties, skew: None };
        let mut figures = None;
        check(door, &spec, &plan, &dense, &mut figures);
        assert_eq!(data(door), before, "a party's entries stay with it");
        let loaded = open(&spec, door).unwrap().load::<f64>(&plan, door, &mut |_| ()).unwrap();
        assert_eq!(loaded.cuts.rows, cuts);
        assert_eq!(loaded.header.files, Some(3));
        // by any other plan they are stacked and shared out
        for plan in plans(door.size()).into_iter().filter(|p| !matches!(p, Plan::PartyRows { .. })) {
            check(door, &spec, &plan, &dense, &mut figures);
        }
        // column blocks, out of the transposed files
        spec.transpose = true;
        spec.stack = Stack::Columns;
        let turned = dense.t().as_standard_layout().into_owned();
        let before = data(door);
        check(door, &spec, &Plan::PartyColumns { parties, skew: None }, &turned, &mut None);
        assert_eq!(data(door), before);
        check(door, &spec, &Plan::RowsAndColumns { ranks: door.size() }, &turned, &mut None);
        // too few, too many
        for count in [2, 4] {
            spec.parties = Some(count);
            let error = open(&spec, door).err().expect("a wrong number of parties");
            assert_eq!(error.kind, Kind::Input);
            assert!(error.message.contains("--parties"), "{error}");
        }
    }
}

/// The input must be refused, in words that hold `names`, the same on all ranks.
fn refused(door: &Door, path: &str, names: &str) {
    let spec = InputSpec::parse(path).unwrap();
    let plan = Plan::RowsAndColumns { ranks: door.size() };
    let result = open(&spec, door).and_then(|input| input.load::<f64>(&plan, door, &mut |_| ()));
    let error = result.err().unwrap_or_else(|| panic!("{path} was read"));
    assert_eq!(error.kind, Kind::Input, "{path}: {error}");
    assert!(error.everywhere, "{path}: {error}");
    assert!(error.message.contains(names), "{path}: {error}");
    let all = door.collect(TEST, &error.message);
    assert!(all.iter().all(|m| *m == error.message), "{all:?}");
}

fn bad_files(door: &Door, dir: &str) {
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
            "line 4: the entry in row 2, column 2 is not a number",
        ),
        (
            "inf.mtx",
            format!("{head}2 2 2\n1 1 inf\n2 2 1\n").into(),
            "line 3: the entry in row 1, column 1 is infinite",
        ),
        ("negative.mtx", format!("{head}2 2 2\n1 1 -1\n2 2 1\n").into(), "row 1, column 1 is -1: negative"),
        ("word.mtx", format!("{head}2 2 2\n1 1 1\ntwo 2 1\n").into(), "line 4: expected"),
        ("zeros.mtx", format!("{head}2 2 1\n1 1 0\n").into(), "nothing to factorise"),
        (
            "array.mtx",
            "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\nx\n".into(),
            "line 6: expected a number",
        ),
        ("short.mtx", "%%MatrixMarket matrix array real general\n2 2\n1.5\n2.5\n3.5\n".into(), "holds 3"),
        ("promise.npy", npy("<f8", false, (1 << 30, 1 << 20), std::iter::empty()), "promises"),
        ("cut.npy", npy("<f8", false, (2, 2), (0..3).map(|x| f64::from(x).to_le_bytes().to_vec())), "truncated"),
        (
            "nan.npy",
            npy("<f8", false, (2, 2), [1.0, f64::NAN, 1.0, 2.0].iter().map(|x| x.to_le_bytes().to_vec())),
            "row 1, column 2",
        ),
        ("negative.npy", npy("<i1", true, (2, 2), [1, 2, 255, 4].iter().map(|x| vec![*x])), "row 1, column 2 is -1"),
        ("none.npy", npy("<f8", false, (0, 2), std::iter::empty()), "empty: 0 × 2"),
        ("text.npy", b"1 2 3".to_vec(), "NumPy"),
        ("named.mtx.gz", b"%%MatrixMarket".to_vec(), "not compressed"),
        ("cut-idx3-ubyte.gz", good[..good.len() - 30].to_vec(), "cut-idx3-ubyte.gz: "),
        ("bent.mtx.gz", [&[0x1f, 0x8b, 8, 0][..], &[0x55; 300][..]].concat(), "damaged"),
    ];
    if door.speaks() {
        std::fs::create_dir_all(format!("{dir}/bad")).unwrap();
        cases.iter().for_each(|(name, bytes, _)| std::fs::write(format!("{dir}/bad/{name}"), bytes).unwrap());
    }
    door.barrier();
    cases.iter().for_each(|(name, _, names)| refused(door, &format!("{dir}/bad/{name}"), names));
    refused(door, &format!("{dir}/missing.mtx"), "no such file");
    refused(door, dir, "directory");
    refused(door, "synthetic:exponential", "negative");
}

/// What other programs write, in tests/data/formats: all files of one matrix give the same bits.
fn foreign_files(door: &Door, dir: &str) {
    let formats = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/formats");
    let read = |name: &str| std::fs::read_to_string(format!("{formats}/{name}")).unwrap();
    let mut counts = Array2::<f64>::zeros((40, 30));
    for line in read("counts.mtx").lines().filter(|l| !l.starts_with('%')).skip(1) {
        let n: Vec<usize> = line.split_whitespace().map(|w| w.parse().unwrap()).collect();
        counts[[n[0] - 1, n[1] - 1]] = n[2] as f64;
    }
    let numbers: Vec<f64> = read("table-plain.csv").split([',', '\n']).filter_map(|w| w.trim().parse().ok()).collect();
    let table = Array2::from_shape_vec((12, 7), numbers).unwrap();
    let eightfold = &table * 8.0;
    let binary = table.mapv(|x| f64::from(u8::from(x > 4.0)));
    let baskets = counts.mapv(|x| f64::from(u8::from(x > 0.0)));
    if door.speaks() {
        gz(Path::new(&format!("{dir}/baskets.dat.gz")), read("baskets.dat").as_bytes());
        gz(Path::new(&format!("{dir}/table.npy.gz")), &std::fs::read(format!("{formats}/table-fortran.npy")).unwrap());
    }
    door.barrier();
    let cases = [
        ("counts.mtx", &counts, false),
        ("counts-csr.npz", &counts, false),
        ("counts-csc-plain.npz", &counts, false),
        ("counts.h5ad", &counts, false),
        ("counts.h5ad:/layers/csc", &counts, false),
        ("counts.h5ad:/layers/dense", &counts, false),
        ("dense.h5ad", &counts, false),
        ("counts-10x.h5", &counts, true),
        ("table-fortran.npy", &table, false),
        ("table-f16.npy", &table, false),
        ("table-big-endian.npy", &eightfold, false),
        ("table.txt", &table, false),
        ("table.csv", &table, false),
        ("table.tsv.gz", &table, false),
        ("table-plain.csv", &table, false),
        ("table.h5:/table", &table, false),
        ("table.h5", &table, false),
        ("table.h5:/deep/one", &table, false),
        ("table.h5:/deep/int", &eightfold, false),
        ("table.h5:/deep/bool", &binary, false),
        ("baskets.dat", &baskets, false),
        ("baskets.dat.gz", &baskets, false),
        ("table.npy.gz", &table, false),
    ];
    let mut figures = std::collections::BTreeMap::new();
    for (name, matrix, transpose) in cases {
        let place = if name.ends_with("dat.gz") || name.ends_with("npy.gz") { dir } else { formats };
        let mut spec = InputSpec::parse(&format!("{place}/{name}")).unwrap();
        spec.transpose = transpose;
        for plan in plans(door.size()) {
            let known = figures.entry(matrix.sum().to_bits()).or_insert(None);
            check(door, &spec, &plan, matrix, known);
        }
        spec.transpose = !transpose;
        let turned = matrix.t().as_standard_layout().into_owned();
        check(door, &spec, &Plan::RowsAndColumns { ranks: door.size() }, &turned, &mut None);
    }
    let cut = |name: &str, share: f64| {
        let bytes = std::fs::read(format!("{formats}/{name}")).unwrap();
        bytes[..(bytes.len() as f64 * share) as usize].to_vec()
    };
    let strange = |index: f64| {
        let strips = |f: &dyn Fn(&hdf5::Group)| {
            let path = format!("{dir}/strange-{}.h5", door.size());
            let file = hdf5::File::create(&path).unwrap();
            f(&file.create_group("matrix").unwrap());
            drop(file);
            std::fs::read(path).unwrap()
        };
        strips(&|g| {
            g.new_dataset_builder().with_data(&[1.0, 2.0]).create("data").unwrap();
            g.new_dataset_builder().with_data(&[0.0, index]).create("indices").unwrap();
            g.new_dataset_builder().with_data(&[0, 1, 2]).create("indptr").unwrap();
            g.new_dataset_builder().with_data(&[3, 2]).create("shape").unwrap();
        })
    };
    // the library keeps one name for one file: only rank 0 may make them
    let made = if door.speaks() { [strange(3.0), strange(f64::NAN)] } else { [Vec::new(), Vec::new()] };
    let bad = [
        ("coo.npz", cut("counts-coo.npz", 1.0), "save_npz"),
        ("arrays.npz", cut("arrays.npz", 1.0), "numpy.save"),
        ("cut.npz", cut("counts-csr.npz", 0.6), "cut.npz: "),
        ("garbage.npz", vec![7; 300], "archive"),
        ("cut.h5ad", cut("counts.h5ad", 0.5), "damaged or truncated"),
        ("garbage.h5", vec![7; 300], "HDF5"),
        ("index.h5", made[0].clone(), "the index 3, which is outside 0..3"),
        ("nan.h5", made[1].clone(), "the index NaN"),
        ("ragged.csv", b"a,b\n1,2\n3\n".to_vec(), "line 3: has 1 numbers, but the first row has 2"),
        ("long.csv", b"1,2\n3,4,5\n".to_vec(), "line 2: has 3 numbers"),
        ("missing.csv", b"1,2\n3,\n".to_vec(), "line 2: the entry in row 2, column 2 is empty"),
        ("na.csv", b"x,y\n1,2\n3,NA\n".to_vec(), "line 3: the entry in row 2, column 2 is 'NA'"),
        ("negative.csv", b"1,2\n-3,2\n".to_vec(), "row 2, column 1 is -3: negative"),
        ("words.csv", b"this is,no table\nat all,really\n".to_vec(), "not a number"),
        ("words.dat", b"1 2\n3 x\n".to_vec(), "line 2: expected whole numbers"),
        ("none.dat", b"\n\n".to_vec(), "no transaction"),
        ("far.dat", b"1 4000000000\n".to_vec(), "more rows or columns"),
        ("packed.h5", [&[0x1f, 0x8b][..], &[0; 30]].concat(), "unpack"),
    ];
    if door.speaks() {
        bad.iter().for_each(|(name, bytes, _)| std::fs::write(format!("{dir}/bad/{name}"), bytes).unwrap());
    }
    door.barrier();
    bad.iter().for_each(|(name, _, names)| refused(door, &format!("{dir}/bad/{name}"), names));
    refused(door, &format!("{formats}/table.h5:/nosuch"), "/deep/one");
    refused(door, &format!("{formats}/table.h5:/deep"), "is a group, not a matrix");
    refused(door, &format!("{formats}/table.h5:/deep/text"), "not numbers");
}

/// Files with bytes changed, cut out or cut off: read or refused, never a panic. Each rank tries its own.
fn damaged_files(door: &Door, dir: &str) {
    let alone = door.split(door.rank());
    let formats = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/formats");
    let mut state = 0x5eed + door.rank() as u64;
    let mut random = |below: usize| {
        state = fednmf::random::mix(state);
        (state % below.max(1) as u64) as usize
    };
    let own = ["coordinate.mtx", "array.mtx", "symmetric.mtx", "pattern.mtx", "coordinate.mtx.gz", "images-idx3-ubyte"];
    let foreign =
        ["counts-csr.npz", "counts-csc-plain.npz", "table-fortran.npy", "table.csv", "table.txt", "baskets.dat"];
    let paths = own.iter().map(|n| format!("{dir}/{n}")).chain(foreign.iter().map(|n| format!("{formats}/{n}")));
    let (mut read, mut refused) = (0, 0);
    for path in paths {
        let good = std::fs::read(&path).unwrap();
        let name = path.rsplit('/').next().unwrap_or_default();
        let damaged = format!("{dir}/damaged-{}-{name}", door.rank());
        for _ in 0..60 {
            let mut bytes = good.clone();
            // headers are where most can go wrong
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
            let plan = Plan::RowsAndColumns { ranks: 1 };
            match open(&spec, &alone).and_then(|input| input.load::<f64>(&plan, &alone, &mut |_| ())) {
                Ok(_) => read += 1,
                Err(e) => {
                    assert_eq!(e.kind, Kind::Input, "{name}: {e}");
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
}
