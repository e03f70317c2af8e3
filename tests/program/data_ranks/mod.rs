//! The readers on several ranks: for every plan and number of ranks the tiles together are the matrix that was written,
//! the statistics have the same bits, and all ranks report the same error for a wrong file.

mod bad;
mod foreign;
mod good;
mod tables;

use std::path::Path;

use ndarray::Array2;
use tempfile::tempdir;

use fednmf_comm::{Communicator, MessageTag, Parties, Payload};
use fednmf_data::{Layout, PartySplit, Statistics};
use fednmf_files::{InputSpec, open};
use fednmf_linalg::{Block, Real};

use crate::common::session::on_ranks;

const TEST: MessageTag = MessageTag::new("test", Payload::Metadata);

on_ranks! {
    every_format_is_read_into_every_plan: good_files,
    synthetic_matrices_equal_their_files: synthetic,
    files_of_parties_stay_with_their_owners: party_files,
    wrong_files_are_refused_alike_on_all_ranks: bad_files,
    files_of_other_programs_are_read: foreign_files,
    tables_with_index_and_header_are_their_numbers: tables,
    tables_with_missing_values_are_read: missing_values,
    triples_are_a_sparse_matrix: triples,
    damaged_files_do_not_crash_a_reader: damaged_files,
    a_rank_reads_and_holds_its_part_of_a_file_by_rows: parts_of_rows,
}

/// Calls `test` with a directory that all ranks share.
fn in_shared_directory(comm: &Communicator, test: impl FnOnce(&str)) {
    let own = tempdir().expect("a temporary directory");
    let shared: String = comm.broadcast_value(TEST, own.path().to_str().expect("a path in UTF-8").to_string());
    test(&shared);
    // Rank 0 removes it.
    comm.barrier();
}

/// Calls `test` with the directory and the matrices of the files in it.
fn with_files(comm: &Communicator, test: impl FnOnce(&str, &[good::Case])) {
    in_shared_directory(comm, |dir| {
        let own = Path::new(dir).join(format!("own-{}", comm.rank()));
        let cases = good::write_files(if comm.is_root() { Path::new(dir) } else { &own });
        comm.barrier();
        test(dir, &cases);
    });
}

fn good_files(comm: &Communicator) {
    with_files(comm, |dir, cases| good::good_files(comm, dir, cases));
}

fn synthetic(comm: &Communicator) {
    in_shared_directory(comm, |dir| good::synthetic(comm, dir));
}

fn party_files(comm: &Communicator) {
    in_shared_directory(comm, |dir| good::party_files(comm, dir));
}

fn bad_files(comm: &Communicator) {
    with_files(comm, |dir, _| bad::bad_files(comm, dir));
}

fn foreign_files(comm: &Communicator) {
    in_shared_directory(comm, |dir| foreign::foreign_files(comm, dir));
}

fn tables(comm: &Communicator) {
    in_shared_directory(comm, |dir| tables::tables(comm, dir));
}

fn missing_values(comm: &Communicator) {
    in_shared_directory(comm, |dir| tables::missing_values(comm, dir));
}

fn triples(comm: &Communicator) {
    with_files(comm, |dir, _| tables::triples(comm, dir));
}

/// Each rank damages files of its own, so one number of ranks is enough.
fn damaged_files(comm: &Communicator) {
    if comm.size() == 2 {
        with_files(comm, |dir, _| bad::damaged_files(comm, dir));
    }
}

fn parts_of_rows(comm: &Communicator) {
    in_shared_directory(comm, |dir| good::parts_of_rows(comm, dir));
}

fn plans(size: usize) -> Vec<Layout> {
    let parties = |count| Parties { count, ranks: size };
    let mut plans = vec![
        Layout::Grid { pr: size, pc: 1 },
        Layout::Grid { pr: 1, pc: size },
        Layout::RowsAndColumns { ranks: size },
        Layout::PartyRows { parties: parties(5), split: PartySplit::Even },
        Layout::PartyRows { parties: parties(2), split: PartySplit::First(0.75) },
        Layout::PartyColumns { parties: parties(3), split: PartySplit::First(0.0) },
    ];
    if size == 4 {
        // Cut in both directions, which every reader must support.
        plans.push(Layout::Grid { pr: 2, pc: 2 });
    }
    plans
}

/// The whole matrix from the tiles of all ranks, once for each set of tiles that covers it.
fn load<T: Real>(comm: &Communicator, spec: &InputSpec, plan: &Layout) -> (Vec<Array2<f64>>, Statistics, u64) {
    let input = open(spec, comm).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let (m, n) = (input.header().rows, input.header().cols);
    let mut last = 0.0;
    let loaded = input.load::<T>(plan, comm, &mut |x| last = x).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let tiles = plan.tiles(&loaded.cuts, comm.rank());
    assert_eq!(tiles.len(), loaded.blocks.len());
    assert!(tiles.is_empty() || last == 1.0, "progress ends at {last}");
    let twice = matches!(plan, Layout::RowsAndColumns { .. });
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
    plan: &Layout,
    expected: &Array2<f64>,
    statistics: &mut Option<Statistics>,
) -> u64 {
    let (wholes, found, duplicates) = load::<f64>(comm, spec, plan);
    for whole in wholes {
        assert_eq!(whole, *expected, "{spec:?} {plan:?}");
    }
    let private = matches!(plan, Layout::PartyRows { .. } | Layout::PartyColumns { .. });
    let known = statistics.get_or_insert(found);
    // A hash of private data stays with its party.
    let checksum = if known.checksum == 0 { found.checksum } else { known.checksum };
    // The parties' range stays with them, and their terms are rounded.
    if !private && known.checksum == 0 {
        *known = found;
    }
    known.checksum = checksum;
    if private {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-14 * b.abs();
        assert!(close(found.sum, known.sum) && close(found.norm2, known.norm2), "{spec:?} {plan:?}");
        assert_eq!((found.nonzeros, found.checksum), (known.nonzeros, 0), "{spec:?} {plan:?}");
    } else {
        assert_eq!(*known, found, "{spec:?} {plan:?}");
    }
    let (narrow, ..) = load::<f32>(comm, spec, plan);
    for whole in narrow {
        assert_eq!(whole, expected.mapv(|x| f64::from(x as f32)), "{spec:?} {plan:?} in f32");
    }
    duplicates
}
