//! Entries with positions: read by any rank, held in chunks, and sent to the ranks that own them in bounded rounds.

use fednmf_base::error::Result;
use fednmf_comm::Communicator;
use fednmf_data::assemble::{Combine, LocalBlock, TileBuilder};
use fednmf_data::layout::Tile;
use fednmf_data::messages::{COUNTS, ENTRIES};
use fednmf_linalg::Real;

use crate::distribute::route::Route;

/// Entries per chunk. A chunk is freed as soon as its entries are sent; it is large enough that the allocator returns it
/// to the system at once.
const CHUNK: usize = 1 << 19;
/// Entries that all ranks together send in one round.
const ROUND: usize = 1 << 21;

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
                positions.push((i as u64) << 32 | j as u64);
                values.push(value);
            }
            _ => {
                self.chunks.push((Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK)));
                self.push(i, j, value);
            }
        }
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(|c| c.0.len()).sum()
    }

    /// The entries in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize, T)> {
        self.chunks.iter().flat_map(|(positions, values)| {
            positions.iter().zip(values).map(|(&position, &value)| {
                let (i, j) = unpack(position);
                (i, j, value)
            })
        })
    }

    /// The number of entries in each row and each column, over all ranks.
    pub fn counts(&self, comm: &Communicator, m: usize, n: usize) -> (Vec<u64>, Vec<u64>) {
        let (mut rows, mut cols) = (vec![0u64; m], vec![0u64; n]);
        for (i, j, _) in self.iter() {
            rows[i] += 1;
            cols[j] += 1;
        }
        comm.sum(COUNTS, &mut rows);
        comm.sum(COUNTS, &mut cols);
        (rows, cols)
    }
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
        entries: &mut Triplets<T>,
        last: bool,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Vec<LocalBlock<T>>, u64)> {
        let mut totals = vec![0u64; route.parts()];
        if route.parts() == 1 {
            totals[0] = entries.len() as u64;
        } else {
            entries.iter().for_each(|(i, j, _)| totals[route.part(i, j)] += 1);
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
        entries: &mut Triplets<T>,
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
        let mut cursor = Cursor { chunk: 0, at: 0, free: last };
        for round in 0..rounds[0] {
            let mut positions: Vec<Vec<u64>> = vec![Vec::new(); ranks];
            let mut values: Vec<Vec<T>> = vec![Vec::new(); ranks];
            let mut left = limit;
            while let Some((some_positions, some_values)) = cursor.next(entries, left) {
                left -= some_positions.len();
                for (&position, &value) in some_positions.iter().zip(some_values) {
                    let (i, j) = unpack(position);
                    let (rank, tile) = route.owner(route.part(i, j));
                    if rank == me {
                        keep(i, j, value, tile);
                    } else {
                        positions[rank].push(position);
                        values[rank].push(value);
                    }
                }
            }
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
    chunk: usize,
    at: usize,
    /// Whether the chunks before it are freed.
    free: bool,
}

impl Cursor {
    /// The next entries, at least one and at most `limit`; `None` at the end or if `limit` is 0.
    fn next<'a, T: Real>(&mut self, entries: &'a mut Triplets<T>, limit: usize) -> Option<(&'a [u64], &'a [T])> {
        if limit == 0 {
            return None;
        }
        if entries.chunks.get(self.chunk)?.0.len() == self.at {
            if self.free {
                entries.chunks[self.chunk] = (Vec::new(), Vec::new());
            }
            self.chunk += 1;
            self.at = 0;
        }
        let (positions, values) = entries.chunks.get(self.chunk)?;
        let part = self.at..positions.len().min(self.at + limit);
        self.at = part.end;
        Some((&positions[part.clone()], &values[part]))
    }
}
