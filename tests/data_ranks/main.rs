//! The readers on several ranks: for any layout and number of ranks, the tiles together are the matrix that was written,
//! the statistics have the same bits, and an error is the same on all ranks.
//!
//! Runs itself under mpirun with 1, 2, 3 and 4 ranks.

mod bad;
#[path = "../common/mod.rs"]
mod common;
mod foreign;
mod good;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use fednmf::comm::{Communicator, MessageTag, Parties, Payload, abort_on_panic};
use fednmf::data::{InputSpec, Layout, PartySplit, Statistics, open};
use fednmf::linalg::{Block, Real};
use ndarray::Array2;

const TEST: MessageTag = MessageTag::new("test", Payload::Control);
const INSIDE: &str = "FEDNMF_TEST_DATA_RANKS";

fn main() -> ExitCode {
    if std::env::var_os(INSIDE).is_none() {
        return launch();
    }
    abort_on_panic();
    let Some(universe) = mpi::initialize() else { return ExitCode::FAILURE };
    let comm = Communicator::new(universe.world());
    let dir = PathBuf::from(std::env::var_os(INSIDE).unwrap_or_default());
    let cases = if comm.is_root() {
        good::write_files(&dir)
    } else {
        good::write_files(&dir.join(format!("own-{}", comm.rank())))
    };
    let dir = dir.to_str().unwrap_or_default().to_string();
    comm.barrier();
    good::good_files(&comm, &dir, &cases);
    good::synthetic(&comm, &dir);
    good::party_files(&comm, &dir);
    bad::bad_files(&comm, &dir);
    foreign::foreign_files(&comm, &dir);
    if comm.size() == 2 {
        bad::damaged_files(&comm, &dir);
    }
    comm.barrier();
    if comm.is_root() {
        println!("data_ranks: all good on {} ranks", comm.size());
    }
    ExitCode::SUCCESS
}

fn launch() -> ExitCode {
    let exe = std::env::current_exe().expect("this program");
    for ranks in 1..=4 {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let child = common::launch(ranks, &exe).env(INSIDE, dir.path()).spawn().expect("mpirun runs");
        let out = common::finish(child, Duration::from_secs(120), &format!("the readers on {ranks} ranks"));
        print!("{}", out.stdout);
        eprint!("{}", out.stderr);
        assert_eq!(out.code, Some(0), "the ranks failed");
        assert!(out.stdout.contains(&format!("all good on {ranks} ranks")), "the ranks did not run");
    }
    ExitCode::SUCCESS
}

fn layouts(size: usize) -> Vec<Layout> {
    let parties = |count| Parties { count, ranks: size };
    let mut layouts = vec![
        Layout::Grid { pr: size, pc: 1 },
        Layout::Grid { pr: 1, pc: size },
        Layout::RowsAndColumns { ranks: size },
        Layout::PartyRows { parties: parties(5), split: PartySplit::Even },
        Layout::PartyRows { parties: parties(2), split: PartySplit::First(0.75) },
        Layout::PartyColumns { parties: parties(3), split: PartySplit::First(0.0) },
    ];
    if size == 4 {
        // Cut in both directions, which every reader must support.
        layouts.push(Layout::Grid { pr: 2, pc: 2 });
    }
    layouts
}

/// The whole matrix from the tiles of all ranks, once for each set of tiles that covers it.
fn load<T: Real>(comm: &Communicator, spec: &InputSpec, layout: &Layout) -> (Vec<Array2<f64>>, Statistics, u64) {
    let input = open(spec, comm).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let (m, n) = (input.header().rows, input.header().cols);
    let mut last = 0.0;
    let loaded = input.load::<T>(layout, comm, &mut |x| last = x).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let tiles = layout.tiles(&loaded.cuts, comm.rank());
    assert_eq!(tiles.len(), loaded.blocks.len());
    assert!(tiles.is_empty() || last == 1.0, "progress ends at {last}");
    let twice = matches!(layout, Layout::RowsAndColumns { .. });
    let mut wholes = vec![Array2::<f64>::zeros((m, n)); if twice { 2 } else { 1 }];
    for (at, (tile, block)) in tiles.iter().zip(&loaded.blocks).enumerate() {
        let (r, c) = (tile.rows.len(), tile.cols.len());
        assert_eq!(block.shape(), if tile.transposed { (c, r) } else { (r, c) });
        let part = match block {
            Block::Dense(x) => x.mapv(T::as_f64),
            Block::Sparse(x) => x.matrix().to_dense().mapv(T::as_f64),
            Block::Bits(x) => x.to_dense(),
        };
        let part = if tile.transposed { part.reversed_axes() } else { part };
        let whole = &mut wholes[if twice { at } else { 0 }];
        let mut place = whole.slice_mut(ndarray::s![tile.rows.clone(), tile.cols.clone()]);
        place += &part;
    }
    for whole in &mut wholes {
        comm.sum(TEST, whole.as_slice_mut().unwrap_or_default());
    }
    (wholes, loaded.statistics, loaded.duplicates)
}

fn check(
    comm: &Communicator,
    spec: &InputSpec,
    layout: &Layout,
    expected: &Array2<f64>,
    statistics: &mut Option<Statistics>,
) -> u64 {
    let (wholes, found, duplicates) = load::<f64>(comm, spec, layout);
    for whole in wholes {
        assert_eq!(whole, *expected, "{spec:?} {layout:?}");
    }
    assert_eq!(*statistics.get_or_insert(found), found, "{spec:?} {layout:?}: statistics");
    let (narrow, ..) = load::<f32>(comm, spec, layout);
    for whole in narrow {
        assert_eq!(whole, expected.mapv(|x| f64::from(x as f32)), "{spec:?} {layout:?} in f32");
    }
    duplicates
}
