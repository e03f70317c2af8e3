//! Tests inside the ranks: collectives, loading, and iterations without allocations. Each test below runs on 1, 2, 3
//! and 4 ranks.

#![allow(unsafe_code)] // the allocator that counts

use std::alloc::{GlobalAlloc, System};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ndarray::{Array2, Axis};

use fednmf::cli::parameters;
use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::{Communicator, LARGEST, MessageTag, Parties, Parts, Payload, even_part};
use fednmf_data::{GridTraffic, Layout, Loaded, PartySplit, SideTraffic, Statistics};
use fednmf_files as data;
use fednmf_files::{InputSpec, Threshold};
use fednmf_linalg::{Block, Context, ContextOptions, Order};
use fednmf_methods::Problem;
use fednmf_methods::description::{Partition, Unit};
use fednmf_methods::method::ConfiguredMethod;
use fednmf_methods::parameters::Init;
use fednmf_methods::precision::Precision;
use fednmf_methods::registry;
use fednmf_methods::shared::factor_side::FactorSide;
use fednmf_methods::shared::grid;
use fednmf_methods::shared::init::{Start, Task, on_grid};
use fednmf_methods::shared::rank_data::{Occupied, RankData, UpdateRows, rank_data};
use fednmf_methods::shared::sizes::Sizes;
use fednmf_privacy::Declared;

use crate::common::session::{on_ranks, perform};

/// The system's allocator with a counter.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: forwards every call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller guarantees it.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

on_ranks! {
    collectives_follow_their_definitions: collectives,
    an_exchange_beyond_a_chunk_takes_several_rounds: exchange_in_rounds,
    neighbours_exchange_messages_in_pieces: exchange_with_neighbours,
    sums_over_parties_have_the_same_bits_on_any_number_of_ranks: party_sums,
    rank_0_has_a_value_of_each_rank: values_on_the_root,
    an_error_on_one_rank_becomes_the_same_error_on_all: agreement,
    what_one_rank_refuses_while_a_method_is_built_all_refuse: refusals,
    subgroups_communicate_among_themselves: splits,
    the_tiles_of_every_plan_hold_the_entries_of_the_matrix: plans,
    the_traffic_of_every_grid_is_what_its_blocks_touch: traffic_of_grids,
    an_iteration_allocates_nothing: allocations,
    the_work_of_a_sketched_update_does_not_grow_with_the_other_dimension: sketched_work,
}

type Side = FactorSide<f64>;

const TEST: MessageTag = MessageTag::new("test", Payload::Scalar);

fn collectives(comm: &Communicator) {
    let (r, p) = (comm.rank(), comm.size());
    let mut sum = vec![r as f64 + 1.0; 3];
    comm.sum(TEST, &mut sum);
    assert_eq!(sum, vec![(p * (p + 1) / 2) as f64; 3]);
    let mut sum = vec![r as f64 + 1.0; 1000];
    let meanwhile = comm.sum_while(TEST, &mut sum, || {
        // Other messages may be exchanged in the meantime.
        let mut largest = [r as u32];
        comm.max(TEST, &mut largest);
        largest[0]
    });
    assert_eq!((meanwhile, sum), (p as u32 - 1, vec![(p * (p + 1) / 2) as f64; 1000]));
    let mut max = [r as u64, 7];
    comm.max(TEST, &mut max);
    assert_eq!(max, [p as u64 - 1, 7]);

    let rows: Vec<_> = (0..p).map(|i| even_part(10, p, i)).collect();
    let parts = Parts::new(&rows, 2);
    let local: Vec<u32> = parts.range(r).map(|i| i as u32).collect();
    let mut all = vec![0; 20];
    comm.all_gather(TEST, &local, &parts, &mut all);
    assert_eq!(all, (0..20).collect::<Vec<u32>>());

    let mut send: Vec<f64> = (0..20).map(|i| i as f64 * (r + 1) as f64).collect();
    let mut own = vec![0.0; parts.range(r).len()];
    comm.reduce_scatter(TEST, &mut send, &parts, &mut own);
    let expected: Vec<f64> = parts.range(r).map(|i| (i * p * (p + 1) / 2) as f64).collect();
    assert_eq!(own, expected);

    let send: Vec<Vec<u64>> = (0..p).map(|to| vec![(100 * r + to) as u64; to + 1]).collect();
    let got = comm.all_to_all(TEST, &send);
    assert_eq!(got, (0..p).flat_map(|from| vec![(100 * from + r) as u64; r + 1]).collect::<Vec<_>>());

    assert_eq!(comm.broadcast_value(TEST, format!("from {r}")), "from 0");
    assert_eq!(comm.all_gather_value(TEST, &(r * r)), (0..p).map(|i| i * i).collect::<Vec<_>>());
    if p > 1 {
        let mut buffer = [0.0f32; 5];
        match r {
            0 => comm.send(TEST, 1, &[1.5f32; 5]),
            1 => {
                comm.receive(TEST, 0, &mut buffer);
                assert_eq!(buffer, [1.5; 5]);
            }
            _ => {}
        }
    }
}

fn exchange_in_rounds(whole: &Communicator) {
    let (r, p) = (whole.rank(), whole.size());
    let comm = whole.chunked(5);
    // unequal lengths, some of them zero, most of them longer than one round
    let length = |from: usize, to: usize| (7 * from + 3 * to) % 11;
    let message = |from: usize, to: usize| (0..length(from, to)).map(move |i| (from * 10_000 + to * 100 + i) as u64);
    let send: Vec<Vec<u64>> = (0..p).map(|to| message(r, to).collect()).collect();
    let expected: Vec<u64> = (0..p).flat_map(|from| message(from, r)).collect();
    let messages = || comm.ledger().messages().find(|(p, _)| **p == TEST).map_or(0, |(_, e)| e.messages);
    let before = messages();
    assert_eq!(whole.all_to_all(TEST, &send), expected);
    let plain = messages() - before;
    assert_eq!(comm.all_to_all(TEST, &send), expected);
    let longest = (0..p * p).map(|i| length(i / p, i % p)).max().unwrap_or(0);
    let rounds = if p == 1 { 0 } else { longest.div_ceil((5 / p).max(1)) };
    assert_eq!((plain, messages() - before - plain), if p == 1 { (0, 0) } else { (3, 2 + rounds as u64) });
    assert!(p == 1 || rounds > 1);
}

fn exchange_with_neighbours(whole: &Communicator) {
    let (r, p) = (whole.rank(), whole.size());
    // Rank r has something for r + 1 and r + 2, but nothing if that is itself.
    let length =
        |from: usize, to: usize| if from != to && (to + p - from) % p <= 2 { 3 + 4 * from + 2 * to } else { 0 };
    let message = |from: usize, to: usize| (0..length(from, to)).map(move |i| (from * 10_000 + to * 100 + i) as u64);
    let send: Vec<u64> = (0..p).flat_map(|to| message(r, to)).collect();
    let expected: Vec<u64> = (0..p).flat_map(|from| message(from, r)).collect();
    for chunk in [1 << 30, 4] {
        let comm = whole.with_new_ledger().chunked(chunk);
        let to = comm.route((0..p).map(|to| (to, length(r, to))));
        let from = comm.route((0..p).map(|from| (from, length(from, r))));
        let mut receive = vec![0; expected.len()];
        comm.exchange_along(TEST, (&to, &send), (&from, &mut receive));
        assert_eq!(receive, expected, "rank {r}, chunks of {chunk}");
        let pieces: usize = (0..p).map(|i| length(r, i).div_ceil(chunk) + length(i, r).div_ceil(chunk)).sum();
        let entry = comm.ledger().messages().find(|(tag, _)| **tag == TEST).map(|(_, entry)| *entry).expect("recorded");
        let bytes = 8 * (send.len() + receive.len());
        assert_eq!((entry.messages, entry.mpi_bytes), (pieces as u64, bytes as u64), "rank {r}, chunks of {chunk}");
    }
}

/// The bits of the sums.
fn party_sums(comm: &Communicator) -> String {
    let parties = Parties { count: 7, ranks: comm.size() };
    let share = |party: usize| -> Vec<f64> {
        (0..40usize).map(|i| ((party * 37 + i * 11) as f64 * 0.7).sin() * 10f64.powi(i as i32 % 9 - 4)).collect()
    };
    let shares: Vec<Vec<f64>> = parties.hosted(comm.rank()).map(share).collect();
    let mut out = vec![0.0; 40];
    let bytes = |tag| comm.ledger().messages().find(|(p, _)| **p == tag).map_or(0, |(_, e)| e.party_bytes);
    let before = bytes(TEST);
    comm.sum_parties(TEST, 7, shares.iter().map(|share| Declared(share.as_slice())), &mut out).expect("finite");
    assert_eq!(bytes(TEST) - before, (2 * shares.len() * 40 * 8) as u64);
    // plus the largest term
    assert_eq!(bytes(LARGEST), (2 * shares.len() * 8) as u64);
    for (i, x) in out.iter().enumerate() {
        let plain: f64 = (0..7).map(|p| share(p)[i]).sum();
        assert!((x - plain).abs() <= 1e-14 * 1e4, "{x} {plain}");
    }
    let hash = out.iter().fold(0u64, |h, x| h.rotate_left(7) ^ x.to_bits());
    let bad = vec![f64::NAN; 40];
    let result = comm.sum_parties(TEST, 7, shares.iter().map(|_| Declared(bad.as_slice())), &mut out);
    assert!(result.is_err());
    format!("{hash:016x}")
}

/// Values of ranks that differ in length, an empty one among them.
fn values_on_the_root(comm: &Communicator) {
    let own: Vec<usize> = (0..comm.rank() * 3 % 5).collect();
    let found = comm.gather_value(TEST, &own);
    let expected: Vec<Vec<usize>> = (0..comm.size()).map(|r| (0..r * 3 % 5).collect()).collect();
    assert_eq!(found, if comm.is_root() { expected } else { Vec::new() });
}

fn agreement(comm: &Communicator) {
    assert_eq!(comm.agree_on_error(Ok(3)), Ok(3));
    let mine = if comm.rank() == comm.size() - 1 { Err(Error::input("line 7 is wrong")) } else { Ok(()) };
    let error = comm.agree_on_error(mine).unwrap_err();
    assert!(error.is_shared() && error.exit_code() == 2 && error.message == "line 7 is wrong");
}

/// A block of which the last rank cannot compute products.
struct Refused(Box<dyn RankData<f64>>);

const REFUSAL: &str = "the kernels refuse this block";

impl RankData<f64> for Refused {
    fn order(&self) -> Order {
        self.0.order()
    }

    fn prepare(&mut self, _k: usize) -> Result<()> {
        Err(Error::failed(REFUSAL))
    }

    fn occupied(&self) -> Occupied {
        Occupied::All
    }

    fn select(&mut self, comm: &Communicator, axis: Axis, places: &[usize]) -> SharedResult<Block<f64>> {
        self.0.select(comm, axis, places)
    }

    fn product_for_u(&mut self, _: &Communicator, _: &mut Side, _: &mut Side) -> SharedResult<()> {
        unreachable!("it is refused before")
    }

    fn product_for_v(&mut self, _: &Communicator, _: &mut Side, _: &mut Side) -> SharedResult<()> {
        unreachable!("it is refused before")
    }

    fn update_u(
        &mut self,
        _: &Communicator,
        _: (&mut Side, &mut Side),
        _: &mut Array2<f64>,
        _: &mut UpdateRows<'_, f64>,
    ) -> Result<()> {
        unreachable!("it is refused before")
    }

    fn product_for_v_after_update(&mut self, _: &Communicator, _: &mut Side, _: &mut Side) -> SharedResult<()> {
        unreachable!("it is refused before")
    }

    fn residual2(&mut self, _: &Communicator, _: &mut Side, _: &mut Side) -> SharedResult<f64> {
        unreachable!("it is refused before")
    }
}

fn problem<'a>(
    data: Loaded<f64>,
    k: usize,
    max_iters: usize,
    parties: Parties,
    comm: &Communicator,
) -> Problem<'a, f64> {
    Problem {
        data,
        k,
        seed: 1,
        max_iters,
        parties,
        continue_on_loss: false,
        initial: None,
        missing: None,
        resuming: false,
        comm: comm.clone(),
    }
}

/// A rank that left a collective function would let the others wait, or receive another message than they expect.
fn refusals(comm: &Communicator) {
    let is_last = comm.rank() == comm.size() - 1;
    let load = |text: &str, layout: &Layout| {
        let spec = InputSpec::parse(text).expect("known");
        data::open(&spec, comm).expect("opens").load::<f64>(layout, comm, &mut |_| ()).expect("loads")
    };
    let in_step = || {
        let mut ranks = [1u64];
        comm.sum(TEST, &mut ranks);
        assert_eq!(ranks[0], comm.size() as u64);
    };

    let (m, n, k) = (60, 40, 3);
    for init in [Init::Nndsvd, Init::Compressed, Init::Sampled] {
        let text = format!("synthetic:sparse,m={m},n={n},density=0.3");
        let Loaded { cuts, statistics, mut blocks, .. } = load(&text, &Layout::Grid { pr: comm.size(), pc: 1 });
        let Statistics { sum, norm2, nonzeros, .. } = statistics;
        let entries = nonzeros as f64;
        let block = blocks.remove(0);
        let data = rank_data(vec![block], None, None);
        let data = if is_last { Box::new(Refused(data)) } else { data };
        let start = Start::choose(&init, &Sizes { m, n, entries, k }, true);
        assert_ne!(start, Start::Random, "{init:?}");
        let task = Task { comm, cuts: &cuts, shape: (m, n), entries, k, sum, norm2, seed: 1 };
        let rows = grid::own_rows(comm, &cuts);
        let refused = on_grid(start, None, &task, false, data, rows.each_ref(), [1.0; 2]).err().expect("refused");
        assert_eq!(refused.message, REFUSAL, "{init:?}");
        in_step();
    }

    let parties = Parties { count: comm.size(), ranks: comm.size() };
    for name in ["asso", "felb"] {
        let entry = registry::find(name).expect("in the registry");
        let plan = grid::plan(entry.description().partition, (60, 40), comm.size(), parties, PartySplit::Even, None);
        let mut data = load("synthetic:planted,m=60,n=40,k=3", &plan);
        for block in &mut data.blocks {
            let (rows, cols) = block.shape();
            *block = Block::Dense(Array2::from_elem((rows, cols), if is_last { 2.0 } else { 1.0 }).into());
        }
        let problem = problem(data, k, 3, parties, comm);
        let refused = f64::build(&**entry, problem).err().expect("refused");
        let last = comm.size() - 1;
        assert!(refused.message.starts_with(&format!("the data of party {last}")), "{name}: {}", refused.message);
        in_step();
    }
}

fn splits(comm: &Communicator) {
    let half = comm.split(comm.rank() % 2);
    let mut sum = [comm.rank() as u64];
    half.sum(TEST, &mut sum);
    let expected: usize = (0..comm.size()).filter(|r| r % 2 == comm.rank() % 2).sum();
    assert_eq!(sum[0], expected as u64);
    assert_eq!(half.size(), (comm.size() + 1 - comm.rank() % 2) / 2);
}

/// The block's entries as a dense matrix.
fn entries(block: &Block<f64>) -> Array2<f64> {
    let (rows, cols) = block.shape();
    let mut out = Array2::zeros((rows, cols));
    match block {
        Block::Dense(x) => out.assign(x),
        Block::Sparse(x) => x.matrix().iter().for_each(|(&v, (i, j))| out[[i as usize, j as usize]] = v),
        Block::Bits(x) => out = x.to_dense(),
    }
    out
}

fn plans(comm: &Communicator) {
    let p = comm.size();
    for text in [
        "synthetic:planted,m=31,n=17,k=3",
        "synthetic:sparse,m=40,n=29,density=0.2",
        "synthetic:sparse,m=40,n=3,density=0.02",
    ] {
        for transpose in [false, true] {
            let mut spec = InputSpec::parse(text).expect("known");
            spec.transpose = transpose;
            let load = |plan: &Layout, comm: &Communicator| {
                data::open(&spec, comm).expect("opens").load::<f64>(plan, comm, &mut |_| ()).expect("loads")
            };
            let own = comm.split(comm.rank());
            let whole = load(&Layout::Grid { pr: 1, pc: 1 }, &own);
            let m = entries(&whole.blocks[0]);
            let parties = Parties { count: 5, ranks: p };
            for plan in [
                Layout::Grid { pr: p, pc: 1 },
                Layout::Grid { pr: 1, pc: p },
                Layout::Grid { pr: if p == 4 { 2 } else { p }, pc: if p == 4 { 2 } else { 1 } },
                Layout::RowsAndColumns { ranks: p },
                Layout::PartyRows { parties, split: PartySplit::First(0.5) },
                Layout::PartyRows { parties, split: PartySplit::Counts(vec![1, 0, m.nrows() - 2, 1, 0]) },
                Layout::PartyColumns { parties, split: PartySplit::Even },
            ] {
                let loaded = load(&plan, comm);
                // A hash of private data stays with its party.
                let private = matches!(plan, Layout::PartyRows { .. } | Layout::PartyColumns { .. });
                let checksum = if private { 0 } else { whole.statistics.checksum };
                let known = Statistics { checksum, ..whole.statistics };
                if private {
                    // The terms of the parties are rounded, and their range stays with them.
                    let (found, close) = (loaded.statistics, |a: f64, b: f64| (a - b).abs() <= 1e-14 * b.abs());
                    assert!(close(found.sum, known.sum) && close(found.norm2, known.norm2), "{text} {plan:?}");
                    assert_eq!((found.nonzeros, found.checksum), (known.nonzeros, 0), "{text} {plan:?}");
                    assert!(found.min >= known.min && found.max <= known.max, "{text} {plan:?}");
                } else {
                    assert_eq!(loaded.statistics, known, "{text} {plan:?}");
                }
                let tiles = plan.tiles(&loaded.cuts, comm.rank());
                assert_eq!(tiles.len(), loaded.blocks.len());
                for (tile, block) in tiles.iter().zip(&loaded.blocks) {
                    let part = m.slice(ndarray::s![tile.rows.clone(), tile.cols.clone()]);
                    let part = if tile.transposed { part.reversed_axes() } else { part };
                    assert_eq!(entries(block), part, "{text} {plan:?}");
                }
            }
        }
    }
}

/// A mesh of `side` x `side` cells and their neighbours, as a file.
fn write_mesh(path: &std::path::Path, side: usize) {
    let cells = (0..side).flat_map(|y| (0..side).map(move |x| (y, x)));
    let near = |(y, x): (usize, usize)| {
        let steps = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)];
        let at = steps.map(|(dy, dx)| (y.checked_add_signed(dy), x.checked_add_signed(dx)));
        let inside = at.into_iter().filter_map(|(v, u)| Some((v?, u?))).filter(|&(v, u)| v < side && u < side);
        inside.map(|(v, u)| format!("{} {}\n", y * side + x + 1, v * side + u + 1)).collect::<Vec<_>>()
    };
    let lines: Vec<String> = cells.flat_map(near).collect();
    let head = format!("%%MatrixMarket matrix coordinate pattern general\n{0} {0} {1}\n", side * side, lines.len());
    std::fs::write(path, head + &lines.concat()).expect("a temporary file");
}

/// The traffic of a grid by its definition, from what the finished blocks touch.
fn traffic_of_blocks(comm: &Communicator, loaded: &Loaded<f64>) -> GridTraffic {
    let Layout::Grid { pr, pc } = loaded.layout else { panic!("a grid") };
    let Block::Sparse(block) = &loaded.blocks[0] else { panic!("sparse") };
    let touched = block.occupied().map(|lines| (0..lines.len()).filter(|&at| lines[at]).collect::<Vec<_>>());
    let all = comm.all_gather_value(TEST, &(touched, loaded.blocks[0].stored() as u64));
    // U's rows of a block are shared by the ranks of a grid row, V's by those of a grid column.
    let side =
        |which: usize, blocks: &[std::ops::Range<usize>], group_size: usize, rank: &dyn Fn(usize, usize) -> usize| {
            let mut side = SideTraffic { group_size, ..SideTraffic::default() };
            let (mut sent, mut received) = (vec![HashSet::new(); pr * pc], vec![HashSet::new(); pr * pc]);
            for (at, block) in blocks.iter().enumerate() {
                let owned: Vec<_> = (0..group_size).map(|sharer| even_part(block.len(), group_size, sharer)).collect();
                for (sharer, own) in owned.iter().enumerate() {
                    side.lacking = side.lacking.max((block.len() - own.len()) as u64);
                    let me = rank(at, sharer);
                    for &line in all[me].0[which].iter().filter(|line| !own.contains(*line)) {
                        let owner = rank(at, owned.iter().position(|part| part.contains(&line)).expect("of the block"));
                        received[me].insert((line, owner));
                        sent[owner].insert((line, me));
                    }
                }
            }
            let both = || sent.iter().chain(&received);
            side.touched = both().map(|lines| lines.len() as u64).max().unwrap_or(0);
            let partners =
                |lines: &HashSet<(usize, usize)>| lines.iter().map(|(_, rank)| rank).collect::<HashSet<_>>().len();
            side.messages = both().map(|lines| partners(lines) as u64).max().unwrap_or(0);
            side.all_touched = received.iter().map(|lines| lines.len() as u64).sum();
            side.all_messages = received.iter().map(|lines| partners(lines) as u64).sum();
            side
        };
    GridTraffic {
        pr,
        pc,
        entries: all.iter().map(|(_, entries)| *entries).max().unwrap_or(0),
        u: side(0, &loaded.cuts.rows, pc, &|row, col| row * pc + col),
        v: side(1, &loaded.cuts.cols, pr, &|col, row| row * pc + col),
    }
}

fn traffic_of_grids(comm: &Communicator) {
    let dir = comm.is_root().then(|| tempfile::tempdir().expect("a temporary directory"));
    let mesh = dir.as_ref().map(|dir| dir.path().join("mesh.mtx"));
    if let Some(path) = &mesh {
        write_mesh(path, 13);
    }
    let mesh = comm.broadcast_value(TEST, mesh).expect("of rank 0").display().to_string();
    for text in [
        mesh.as_str(),
        "synthetic:graph,n=90,k=5,density=0.3",
        "synthetic:sparse,m=140,n=75,density=0.05,law=power",
        "synthetic:sparse,m=40,n=3,density=0.05",
    ] {
        // Many ranks on few cores take their time.
        for transpose in [false, true].into_iter().take(if comm.size() > 4 { 1 } else { 2 }) {
            let mut spec = InputSpec::parse(text).expect("known");
            spec.transpose = transpose;
            let p = comm.size();
            let grids = (1..=p).rev().filter(|pr| p.is_multiple_of(*pr)).map(|pr| (pr, p / pr));
            for (at, (pr, pc)) in grids.enumerate() {
                let choose = |grids: &[GridTraffic]| {
                    assert_eq!((grids[at].pr, grids[at].pc), (pr, pc));
                    at
                };
                let input = data::open(&spec, comm).expect("opens");
                let by_size = Layout::Grid { pr: p, pc: 1 };
                let loaded = input.load_checked(&by_size, Some(&choose), None, comm, &mut |_| ()).expect("loads");
                if p > 1 {
                    let counted = loaded.grids[at];
                    assert_eq!(counted, traffic_of_blocks(comm, &loaded), "{text} {transpose} on {pr}x{pc}");
                } else {
                    assert!(loaded.grids.is_empty(), "there is no choice");
                }
            }
        }
    }
    // The root's files are there until all have read them.
    comm.sum(TEST, &mut [0u64]);
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "needs MPI")]
fn the_traffic_of_the_grids_of_more_ranks_is_what_their_blocks_touch() {
    let function = concat!("@", module_path!(), "::the_traffic_of_every_grid_is_what_its_blocks_touch");
    for ranks in [12, 16] {
        perform(ranks, &[function.to_string()], Duration::from_secs(300)).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// A method with the parameters that these arguments set, and its defaults for the rest.
fn configure(entry: &'static dyn ConfiguredMethod, arguments: &[&str]) -> Arc<dyn ConfiguredMethod> {
    let command = clap::Command::new("fednmf").args(parameters::args(entry));
    let matches = command.get_matches_from(["fednmf"].iter().chain(arguments));
    parameters::configure(entry, &matches).expect("the arguments pass their check")
}

fn allocations(comm: &Communicator) {
    let context = Context::new(ContextOptions::default()).expect("one thread");
    for entry in registry::ALL.iter().map(|method| &**method) {
        let method = entry.description();
        let (dense, sparse) = ("synthetic:planted,m=200,n=90,k=3", "synthetic:sparse,m=300,n=100,density=0.1");
        // Methods that complete what is missing take the blocks that they take without it.
        let completes = method.name == "dsanls" || entry.groups().party_missing.is_some();
        let cases = [(dense, false), (sparse, false), (dense, true), (sparse, true)];
        for (text, missing) in cases.into_iter().filter(|(_, missing)| completes || !missing) {
            let text = match method.partition {
                Partition::Symmetric => "synthetic:graph,n=120,k=3,density=0.5",
                _ => text,
            };
            let mut spec = InputSpec::parse(text).expect("known");
            spec.binarize = method.is_boolean().then_some(Threshold::At(0.5));
            let input = data::open(&spec, comm).expect("opens");
            let (m, n) = (input.header().rows, input.header().cols);
            let parties = Parties { count: comm.size(), ranks: comm.size() };
            let plan = grid::plan(method.partition, (m, n), comm.size(), parties, PartySplit::Even, None);
            let arguments: &[&str] = match method.name {
                _ if missing => &["--missing", "zero-unobserved"],
                _ if entry.takes("plain") => &["--plain"],
                _ if entry.takes("exchange") && text.starts_with("synthetic:sparse") => &["--exchange", "sparse"],
                "vr-dsanls" => &["--epoch", "3"],
                // Rows with many zeros allow no release.
                "dsanls-secure" => &["--accept-risk", "sketches"],
                _ => &[],
            };
            let configured = configure(entry, arguments);
            let data = input.load::<f64>(&plan, comm, &mut |_| ()).expect("loads");
            let mut algorithm = f64::build(&*configured, problem(data, 8, 8, parties, comm)).expect("builds");
            // The first iterations allocate. In asynchronous methods an iteration is one party's turn.
            let turns = if method.unit == Unit::Merge { 2 * parties.count } else { 3 };
            context.install(|| algorithm.advance(turns)).expect("runs");
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            context.install(|| algorithm.advance(5)).expect("runs");
            let made = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(made, 0, "{} allocates on {text}, {missing}", method.name);
        }
    }
}

/// The flops of an iteration follow the formula: a row of a factor costs 2 d k for the right-hand side and 2 k² for the
/// sweep, whatever the other dimension is. Only the gather of B's rows depends on n, and it has no flops.
fn sketched_work(comm: &Communicator) {
    let (k, d_u, d_v) = (4, 20, 30);
    for (m, n) in [(60, 50), (60, 800), (900, 50)] {
        let spec = InputSpec::parse(&format!("synthetic:planted,m={m},n={n},k=3")).expect("known");
        let input = data::open(&spec, comm).expect("opens");
        let entry = registry::find("dsanls").expect("in the registry");
        let method = entry.description();
        let parties = Parties { count: comm.size(), ranks: comm.size() };
        let plan = grid::plan(method.partition, (m, n), comm.size(), parties, PartySplit::Even, None);
        let configured = configure(&**entry, &["--sketch-size", &format!("{d_u},{d_v}")]);
        let data = input.load::<f64>(&plan, comm, &mut |_| ()).expect("loads");
        let problem = problem(data, k, 3, parties, comm);
        let mut algorithm = f64::build(&*configured, problem).expect("builds");
        let context = Context::new(ContextOptions::default()).expect("one thread");
        context.install(|| algorithm.advance(3)).expect("runs");
        let own = |total: usize| even_part(total, comm.size(), comm.rank()).len();
        let update = |rows: usize, d: usize| 2 * rows * d * k + 2 * rows * k * k + 2 * d * k * k;
        let expected = 3 * (update(own(m), d_u) + update(own(n), d_v));
        assert_eq!(context.flops(), expected as u64, "{m} x {n}");
    }
}
