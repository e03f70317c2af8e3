//! Files written by other programs: tests/data/formats.

use std::path::Path;

use ndarray::Array2;

use fednmf_comm::Communicator;
use fednmf_data::Layout;
use fednmf_files::InputSpec;

use super::bad::refused;
use super::good::gz;
use super::{check, plans};

/// All files of one matrix give the same bits.
pub fn foreign_files(comm: &Communicator, dir: &str) {
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
    if comm.is_root() {
        gz(Path::new(&format!("{dir}/baskets.dat.gz")), read("baskets.dat").as_bytes());
        gz(Path::new(&format!("{dir}/table.npy.gz")), &std::fs::read(format!("{formats}/table-fortran.npy")).unwrap());
        std::fs::create_dir(format!("{dir}/bad")).unwrap();
    }
    comm.barrier();
    comm.barrier();
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
        ("table.parquet", &table, false),
        ("table-arrow.parquet", &table, false),
        ("table.tsv.gz", &table, false),
        ("table-plain.csv", &table, false),
        ("table.h5:/table", &table, false),
        ("table.h5", &table, false),
        ("table.h5:/deep/one", &table, false),
        ("table.h5:/deep/int", &eightfold, false),
        ("table.h5:/deep/bool", &binary, false),
        ("packed.h5:/lzf", &table, false),
        ("packed.h5:/half", &table, false),
        ("counts.loom", &counts, true),
        ("baskets.dat", &baskets, false),
        ("baskets.dat.gz", &baskets, false),
        ("table.npy.gz", &table, false),
    ];
    let mut statistics = std::collections::BTreeMap::new();
    for (name, matrix, transpose) in cases {
        let place = if name.ends_with("dat.gz") || name.ends_with("npy.gz") { dir } else { formats };
        let mut spec = InputSpec::parse(&format!("{place}/{name}")).unwrap();
        spec.transpose = transpose;
        for plan in plans(comm.size()) {
            let known = statistics.entry(matrix.sum().to_bits()).or_insert(None);
            check(comm, &spec, &plan, matrix, known);
        }
        spec.transpose = !transpose;
        let turned = matrix.t().as_standard_layout().into_owned();
        check(comm, &spec, &Layout::RowsAndColumns { ranks: comm.size() }, &turned, &mut None);
    }
    let cut = |name: &str, share: f64| {
        let bytes = std::fs::read(format!("{formats}/{name}")).unwrap();
        bytes[..(bytes.len() as f64 * share) as usize].to_vec()
    };
    let strange = |index: f64| {
        let strips = |f: &dyn Fn(&hdf5::Group)| {
            let path = format!("{dir}/strange-{}.h5", comm.size());
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
    // HDF5 locks an open file, so only rank 0 may create these
    let made = if comm.is_root() { [strange(3.0), strange(f64::NAN)] } else { [Vec::new(), Vec::new()] };
    let bad = [
        ("coo.npz", cut("counts-coo.npz", 1.0), "save_npz"),
        ("arrays.npz", cut("arrays.npz", 1.0), "numpy.save"),
        ("cut.npz", cut("counts-csr.npz", 0.6), "cut.npz: "),
        ("garbage.npz", vec![7; 300], "archive"),
        ("cut.h5ad", cut("counts.h5ad", 0.5), "damaged or truncated"),
        ("garbage.h5", vec![7; 300], "HDF5"),
        ("index.h5", made[0].clone(), "an index outside 0..3"),
        ("nan.h5", made[1].clone(), "an index outside 0.."),
        ("ragged.csv", b"a,b\n1,2\n3\n".to_vec(), "line 3: has 1 numbers, but the first row has 2"),
        ("long.csv", b"1,2\n3,4,5\n".to_vec(), "line 2: has 3 numbers"),
        ("missing.csv", b"2,1\n3,\n".to_vec(), "line 2: the entry in row 1, column 1 is empty"),
        ("na.csv", b"x,y\n1,2\n3,NA\n".to_vec(), "line 3: the entry in row 1, column 1 is 'NA'"),
        ("negative.csv", b"2,1\n-3,2\n".to_vec(), "row 1, column 0 is negative"),
        ("words.csv", b"this is,no table\nat all,really\n".to_vec(), "words and no numbers"),
        ("words.dat", b"1 2\n3 x\n".to_vec(), "line 2: expected whole numbers"),
        ("none.dat", b"\n\n".to_vec(), "no transaction"),
        ("far.dat", b"1 4000000000\n".to_vec(), "more rows or columns"),
        ("packed.h5", [&[0x1f, 0x8b][..], &[0; 30]].concat(), "unpack"),
    ];
    if comm.is_root() {
        // Datasets on any level are named, and a group may contain itself.
        let file = hdf5::File::create(format!("{dir}/bad/levels.h5")).unwrap();
        let inner = file.create_group("a/b/c").unwrap();
        inner.new_dataset_builder().with_data(&ndarray::arr2(&[[1.0, 2.0]])).create("x").unwrap();
        file.link_soft("/a", "a/b/again").unwrap();
        bad.iter().for_each(|(name, bytes, _)| std::fs::write(format!("{dir}/bad/{name}"), bytes).unwrap());
    }
    comm.barrier();
    bad.iter().for_each(|(name, _, names)| refused(comm, &format!("{dir}/bad/{name}"), names));
    refused(comm, &format!("{formats}/table.h5:/nosuch"), "/deep/one");
    refused(comm, &format!("{dir}/bad/levels.h5"), "/a/b/c/x");
    refused(comm, &format!("{dir}/bad/levels.h5:/a/b"), "is a group, not a matrix; the file has /a/b/");
    refused(comm, &format!("{formats}/table.h5:/deep"), "is a group, not a matrix");
    refused(comm, &format!("{formats}/table.h5:/deep/text"), "not numbers");
}
