//! Entries on their way: read anywhere, kept in chunks, and sent to the ranks that own them in bounded rounds.

use crate::comm::Communicator;
use crate::data::distribute::assemble::{Builder, Local};
use crate::data::distribute::route::Route;
use crate::data::partition::Tile;
use crate::data::{COUNTS, ENTRIES};
use crate::error::Result;
use crate::linalg::Real;

/// Entries of a chunk. A chunk is freed as a whole while its entries go out; it is large enough that the allocator takes
/// it from the system and gives it back at once.
const CHUNK: usize = 1 << 19;
/// Entries that all ranks together send in one round.
const ROUND: usize = 1 << 21;

/// Entries (row, column, value) in any order.
pub struct Triplets<T> {
    /// Row and column of each entry, 32 bits each, and its value.
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
            Some((places, values)) if places.len() < CHUNK => {
                places.push((i as u64) << 32 | j as u64);
                values.push(value);
            }
            _ => {
                self.chunks.push((Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK)));
                self.push(i, j, value);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.chunks.iter().map(|c| c.0.len()).sum()
    }

    fn iter(&self) -> impl Iterator<Item = (usize, usize, T)> {
        self.chunks.iter().flat_map(|(places, values)| {
            places.iter().zip(values).map(|(&place, &value)| {
                let (i, j) = unpack(place);
                (i, j, value)
            })
        })
    }

    /// How many entries each row and each column has, over all ranks.
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
fn unpack(place: u64) -> (usize, usize) {
    ((place >> 32) as usize, (place & 0xffff_ffff) as usize)
}

/// What a pass over the entries needs to know.
pub struct Delivery<'a> {
    pub comm: &'a Communicator,
    /// All entries are where they belong: nothing is sent, nobody is asked.
    pub at_home: bool,
    /// Whether the tiles are stored sparse.
    pub sparse: bool,
    /// This rank's tiles.
    pub tiles: &'a [Tile],
}

impl Delivery<'_> {
    /// Brings the entries to the tiles that `route` gives them to; `progress` runs from 0 to 1.
    /// The blocks of the route's tiles, in their order, and this rank's number of duplicates.
    ///
    /// # Errors
    /// When a block cannot be put together.
    pub fn deliver<T: Real>(
        &self,
        route: &Route,
        entries: &mut Source<T>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Vec<Local<T>>, u64)> {
        let mut totals = vec![0u64; route.parts()];
        if route.parts() == 1 {
            totals[0] = entries.0.len() as u64;
        } else {
            entries.0.iter().for_each(|(i, j, _)| totals[route.part(i, j)] += 1);
        }
        if !self.at_home {
            self.comm.sum(COUNTS, &mut totals);
        }
        // A builder for each tile of this rank on this route.
        let mut builders: Vec<Option<Builder<T>>> = self.tiles.iter().map(|_| None).collect();
        for (part, &total) in totals.iter().enumerate() {
            let (rank, tile) = route.owner(part);
            if rank == self.comm.rank() {
                let at = &self.tiles[tile];
                builders[tile] =
                    Some(if self.sparse { Builder::sparse(at, total as usize) } else { Builder::dense(at) });
            }
        }
        self.rounds(route, entries, &mut builders, progress);
        let mut blocks = Vec::new();
        let mut duplicates = 0;
        for builder in builders.into_iter().flatten() {
            let (block, more) = builder.finish()?;
            duplicates += more;
            blocks.push(block);
        }
        Ok((blocks, duplicates))
    }

    fn rounds<T: Real>(
        &self,
        route: &Route,
        entries: &mut Source<T>,
        builders: &mut [Option<Builder<T>>],
        progress: &mut dyn FnMut(f64),
    ) {
        let (me, ranks) = (self.comm.rank(), self.comm.size());
        let mut keep = |i: usize, j: usize, value: T, tile: usize| {
            if let Some(builder) = &mut builders[tile] {
                builder.push(i, j, value);
            }
        };
        let limit = (ROUND / ranks).clamp(1 << 12, 1 << 17);
        let mut rounds = [entries.0.len().div_ceil(limit) as u64];
        if !self.at_home {
            self.comm.max(COUNTS, &mut rounds);
        }
        let mut walk = Walk::default();
        for round in 0..rounds[0] {
            let mut places: Vec<Vec<u64>> = vec![Vec::new(); ranks];
            let mut values: Vec<Vec<T>> = vec![Vec::new(); ranks];
            let mut left = limit;
            while let Some((some_places, some_values)) = walk.next(entries, left) {
                left -= some_places.len();
                for (&place, &value) in some_places.iter().zip(some_values) {
                    let (i, j) = unpack(place);
                    let (rank, tile) = route.owner(route.part(i, j));
                    if rank == me {
                        keep(i, j, value, tile);
                    } else {
                        places[rank].push(place);
                        values[rank].push(value);
                    }
                }
            }
            if !self.at_home && ranks > 1 {
                let places = self.comm.all_to_all(ENTRIES, &places);
                let values = self.comm.all_to_all(ENTRIES, &values);
                for (place, value) in places.into_iter().zip(values) {
                    let (i, j) = unpack(place);
                    keep(i, j, value, route.owner(route.part(i, j)).1);
                }
            }
            progress((round + 1) as f64 / rounds[0] as f64);
        }
    }
}

/// Entries to deliver, and whether this is the last time.
pub struct Source<T>(pub Triplets<T>, pub bool);

/// A walk over the entries, a bounded number at a time; frees what is behind it on the last time.
#[derive(Default)]
struct Walk {
    chunk: usize,
    at: usize,
}

impl Walk {
    /// The next entries, some but at most `limit` as long as that is not 0.
    fn next<'a, T: Real>(&mut self, source: &'a mut Source<T>, limit: usize) -> Option<(&'a [u64], &'a [T])> {
        if limit == 0 {
            return None;
        }
        if source.0.chunks.get(self.chunk)?.0.len() == self.at {
            if source.1 {
                source.0.chunks[self.chunk] = (Vec::new(), Vec::new());
            }
            self.chunk += 1;
            self.at = 0;
        }
        let (places, values) = source.0.chunks.get(self.chunk)?;
        let part = self.at..places.len().min(self.at + limit);
        self.at = part.end;
        Some((&places[part.clone()], &values[part]))
    }
}
