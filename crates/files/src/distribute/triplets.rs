//! Entries with positions: read by any rank, held in chunks or as rows, and sent to the ranks that own them in bounded rounds.

use fednmf_base::error::Result;
use fednmf_comm::Communicator;
use fednmf_data::assemble::{Combine, LocalBlock, TileBuilder};
use fednmf_data::layout::Tile;
use fednmf_data::messages::{COUNTS, ENTRIES};
use fednmf_data::panels::empty;
use fednmf_linalg::{CsrMatrix, Real};

use crate::distribute::route::Route;

/// Entries per chunk. A chunk is freed as soon as its entries are sent; it is large enough that the allocator returns it
/// to the system at once.
const CHUNK: usize = 1 << 19;
/// Entries that all ranks together send in one round.
const ROUND: usize = 1 << 21;

/// The entries that this rank has read.
pub enum Held<T: Real> {
    Triplets(Triplets<T>),
    /// Rows from the given one on.
    Rows(usize, CsrMatrix<T>),
}

impl<T: Real> Held<T> {
    fn len(&self) -> usize {
        match self {
            Held::Triplets(all) => all.chunks.iter().map(|c| c.0.len()).sum(),
            Held::Rows(_, rows) => rows.nnz(),
        }
    }

    /// Calls `f` with each entry, in the order in which they were read.
    pub fn for_each(&self, mut f: impl FnMut(usize, usize, T)) {
        match self {
            Held::Triplets(all) => all.chunks.iter().for_each(|(positions, values)| {
                positions.iter().zip(values).for_each(|(&position, &value)| {
                    let (i, j) = unpack(position);
                    f(i, j, value);
                });
            }),
            Held::Rows(first, rows) => rows.outer_iterator().enumerate().for_each(|(i, row)| {
                row.iter().for_each(|(j, &value)| f(first + i, j, value));
            }),
        }
    }

    /// The number of entries in each row and each column, over all ranks.
    pub fn counts(&self, comm: &Communicator, m: usize, n: usize) -> (Vec<u64>, Vec<u64>) {
        let (mut rows, mut cols) = (vec![0u64; m], vec![0u64; n]);
        self.for_each(|i, j, _| {
            rows[i] += 1;
            cols[j] += 1;
        });
        comm.sum(COUNTS, &mut rows);
        comm.sum(COUNTS, &mut cols);
        (rows, cols)
    }
}

/// Entries (row, column, value) in any order.
pub struct Triplets<T> {
    /// Row and column of each entry, 32 bits each, and the values.
    chunks: Vec<(Vec<u64>, Vec<T>)>,
}

impl<T: Real> Triplets<T> {
    pub fn new() -> Self {
        Triplets { chunks: Vec::new() }
    }

    /// Adds an entry; indices must be below 2³².
    #[inline]
    pub fn push(&mut self, i: usize, j: usize, value: T) {
        match self.chunks.last_mut() {
            Some((positions, values)) if positions.len() < CHUNK => {
                positions.push(pack(i, j));
                values.push(value);
            }
            _ => {
                self.chunks.push((Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK)));
                self.push(i, j, value);
            }
        }
    }
}

#[inline]
fn pack(i: usize, j: usize) -> u64 {
    (i as u64) << 32 | j as u64
}

#[inline]
fn unpack(position: u64) -> (usize, usize) {
    ((position >> 32) as usize, (position & 0xffff_ffff) as usize)
}

/// How entries are brought to the tiles.
pub struct Exchange<'a> {
    pub comm: &'a Communicator,
    /// All entries are on the rank that owns them: nothing is sent.
    pub stays_local: bool,
    /// Whether the tiles are stored sparse.
    pub sparse: bool,
    /// The value of a position that several entries have.
    pub combine: Combine,
    /// This rank's tiles.
    pub tiles: &'a [Tile],
}

impl Exchange<'_> {
    /// Brings the entries to the tiles of `route`; if `last`, frees them as they are sent. `progress` runs from 0 to 1.
    /// Returns this rank's blocks on the route, in the order of its tiles, and their number of duplicates.
    ///
    /// # Errors
    /// If a block cannot be built.
    pub fn run<T: Real>(
        &self,
        route: &Route,
        entries: &mut Held<T>,
        last: bool,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Vec<LocalBlock<T>>, u64)> {
        let mut totals = vec![0u64; route.parts()];
        if route.parts() == 1 {
            totals[0] = entries.len() as u64;
        } else {
            entries.for_each(|i, j, _| totals[route.part(i, j)] += 1);
        }
        if !self.stays_local {
            self.comm.sum(COUNTS, &mut totals);
        }
        // A builder for each tile of this rank on this route.
        let mut builders: Vec<Option<TileBuilder<T>>> = self.tiles.iter().map(|_| None).collect();
        for (part, &total) in totals.iter().enumerate() {
            let (rank, tile) = route.owner(part);
            if rank == self.comm.rank() {
                let at = &self.tiles[tile];
                builders[tile] =
                    Some(if self.sparse { TileBuilder::sparse(at, total as usize) } else { TileBuilder::dense(at) });
            }
        }
        self.rounds(route, entries, last, &mut builders, progress);
        let mut blocks = Vec::new();
        let mut duplicates = 0;
        for builder in builders.into_iter().flatten() {
            let (block, more) = builder.finish(self.combine)?;
            duplicates += more;
            blocks.push(block);
        }
        Ok((blocks, duplicates))
    }

    fn rounds<T: Real>(
        &self,
        route: &Route,
        entries: &mut Held<T>,
        last: bool,
        builders: &mut [Option<TileBuilder<T>>],
        progress: &mut dyn FnMut(f64),
    ) {
        let (me, ranks) = (self.comm.rank(), self.comm.size());
        let mut keep = |i: usize, j: usize, value: T, tile: usize| {
            if let Some(builder) = &mut builders[tile] {
                builder.push(i, j, value);
            }
        };
        let limit = (ROUND / ranks).clamp(1 << 12, 1 << 17);
        let mut rounds = [entries.len().div_ceil(limit) as u64];
        if !self.stays_local {
            self.comm.max(COUNTS, &mut rounds);
        }
        let mut cursor = Cursor { outer: 0, at: 0, free: last };
        for round in 0..rounds[0] {
            let mut positions: Vec<Vec<u64>> = vec![Vec::new(); ranks];
            let mut values: Vec<Vec<T>> = vec![Vec::new(); ranks];
            cursor.take(entries, limit, |i, j, value| {
                let (rank, tile) = route.owner(route.part(i, j));
                if rank == me {
                    keep(i, j, value, tile);
                } else {
                    positions[rank].push(pack(i, j));
                    values[rank].push(value);
                }
            });
            if !self.stays_local && ranks > 1 {
                let positions = self.comm.all_to_all(ENTRIES, &positions);
                let values = self.comm.all_to_all(ENTRIES, &values);
                for (position, value) in positions.into_iter().zip(values) {
                    let (i, j) = unpack(position);
                    keep(i, j, value, route.owner(route.part(i, j)).1);
                }
            }
            progress((round + 1) as f64 / rounds[0] as f64);
        }
    }
}

/// A position in the entries, which moves forward a bounded number at a time.
struct Cursor {
    /// The chunk, or the row, and the place in the chunk or in all rows.
    outer: usize,
    at: usize,
    /// Whether the chunks before it are freed.
    free: bool,
}

impl Cursor {
    /// Calls `f` with the next entries, at most `limit`.
    fn take<T: Real>(&mut self, entries: &mut Held<T>, limit: usize, mut f: impl FnMut(usize, usize, T)) {
        match entries {
            Held::Triplets(Triplets { chunks }) => {
                let mut left = limit;
                while let Some((positions, values)) = chunks.get(self.outer).filter(|_| left > 0) {
                    let part = self.at..positions.len().min(self.at + left);
                    for (&position, &value) in positions[part.clone()].iter().zip(&values[part.clone()]) {
                        let (i, j) = unpack(position);
                        f(i, j, value);
                    }
                    left -= part.len();
                    self.at = part.end;
                    if self.at == positions.len() {
                        if self.free {
                            chunks[self.outer] = (Vec::new(), Vec::new());
                        }
                        self.outer += 1;
                        self.at = 0;
                    }
                }
            }
            Held::Rows(first, rows) => {
                let (indptr, cols, values) = (rows.indptr(), rows.indices(), rows.data());
                let (starts, end) = (indptr.raw_storage(), cols.len().min(self.at + limit));
                while self.at < end {
                    while starts[self.outer + 1] <= self.at {
                        self.outer += 1;
                    }
                    let part = self.at..end.min(starts[self.outer + 1]);
                    for (&j, &value) in cols[part.clone()].iter().zip(&values[part.clone()]) {
                        f(*first + self.outer, j as usize, value);
                    }
                    self.at = part.end;
                }
                if self.free && self.at == cols.len() {
                    *rows = empty(rows.cols());
                    self.at = 0;
                }
            }
        }
    }
}
