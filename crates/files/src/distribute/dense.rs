//! Dense files: their entries are exchanged rectangle by rectangle. All ranks can compute the schedule of reads, so only
//! the entries themselves are sent.

use std::ops::Range;

use fednmf_base::error::{Error, Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::assemble::{Entries, LocalBlock, zeros};
use fednmf_data::layout::Tile;
use fednmf_data::messages::ENTRIES;
use fednmf_data::tally::Tally;
use fednmf_linalg::{Dense, Real};

use crate::distribute::route::Route;
use crate::formats::reader::DenseReader;

/// Bytes of entries that all ranks together read in one round.
pub const DENSE_ROUND: usize = 32 << 20;
/// Bytes that a rank reads at once if no other rank needs them and the format does not require larger reads: they are still
/// in cache when they are checked and added to the tally.
const PIECE: usize = 256 << 10;

/// The rectangle of a dense file in the matrix, and the parts of it that each rank reads.
#[derive(Debug, Clone)]
pub struct DenseFile {
    /// Its rectangle of the matrix.
    pub rows: Range<usize>,
    pub cols: Range<usize>,
    /// Whether its lines are columns of the matrix.
    pub by_columns: bool,
    /// Entries that are best read together.
    pub together: usize,
    /// The reading ranks, each with its range of entries in storage order.
    pub readers: Vec<(usize, Range<usize>)>,
}

impl DenseFile {
    fn width(&self) -> usize {
        if self.by_columns { self.rows.len() } else { self.cols.len() }
    }

    /// The rectangle of the matrix that consists of the entries `within` of `lines`.
    fn rectangle(&self, lines: &Range<usize>, within: &Range<usize>) -> Rectangle {
        let shift = |r: &Range<usize>, by: usize| r.start + by..r.end + by;
        let (rows, cols) = if self.by_columns { (within, lines) } else { (lines, within) };
        Rectangle {
            rows: shift(rows, self.rows.start),
            cols: shift(cols, self.cols.start),
            by_columns: self.by_columns,
        }
    }
}

/// The longest rectangle of at most `limit` entries at the start of the entries `from..end` of lines of `width`: its lines,
/// and its range within each.
fn front(from: usize, end: usize, width: usize, limit: usize) -> (Range<usize>, Range<usize>) {
    let (line, at) = (from / width, from % width);
    let size = (end - from).min(limit);
    if at > 0 || size < width {
        return (line..line + 1, at..width.min(at + size));
    }
    (line..line + size / width, 0..width)
}

/// The rectangles that one rank reads, in order.
struct Schedule {
    rank: usize,
    /// The files of which this rank reads a part, and the remaining range of each part.
    jobs: Vec<(usize, Range<usize>)>,
    job: usize,
}

/// A rectangle that a rank reads at once.
#[derive(Clone)]
struct Piece {
    job: usize,
    file: usize,
    lines: Range<usize>,
    within: Range<usize>,
}

impl Schedule {
    fn new(rank: usize, files: &[DenseFile]) -> Self {
        let jobs = files.iter().enumerate().flat_map(|(f, file)| {
            file.readers.iter().filter(move |(r, _)| *r == rank).map(move |(_, range)| (f, range.clone()))
        });
        Schedule { rank, jobs: jobs.filter(|(_, range)| !range.is_empty()).collect(), job: 0 }
    }

    fn next(&mut self, files: &[DenseFile], limit: usize) -> Option<Piece> {
        let (file, range) = self.jobs.get_mut(self.job)?;
        let (lines, within) = front(range.start, range.end, files[*file].width(), limit);
        range.start += lines.len() * within.len();
        let piece = Piece { job: self.job, file: *file, lines, within };
        if range.start == range.end {
            self.job += 1;
        }
        Some(piece)
    }

    /// Number of entries left.
    fn left(&self) -> usize {
        self.jobs.iter().map(|(_, range)| range.len()).sum()
    }
}

/// Reads the files and brings their entries to this rank's tiles; `open(file, entries)` opens a reader of `file`. Entries
/// that are read directly into a block are added to its tally at once.
///
/// # Errors
/// On all ranks, if any reader fails.
pub fn exchange<'a, T: Real>(
    comm: &Communicator,
    stays_local: bool,
    routes: &[Route],
    tiles: &[Tile],
    files: &[DenseFile],
    mut open: impl FnMut(usize, Range<usize>) -> Result<Box<dyn DenseReader<T> + 'a>>,
    progress: &mut dyn FnMut(f64),
) -> SharedResult<(Vec<LocalBlock<T>>, Vec<Tally>)> {
    let (me, ranks) = (comm.rank(), comm.size());
    let limit = if stays_local {
        let together = files.iter().map(|f| f.together).max().unwrap_or(1);
        together.clamp(PIECE / size_of::<T>(), DENSE_ROUND / size_of::<T>())
    } else {
        (DENSE_ROUND / ranks / size_of::<T>()).max(1 << 14)
    };
    let mut blocks: Vec<Dense<T>> = tiles.iter().map(|tile| zeros(tile).into()).collect();
    let mut tallies: Vec<Tally> = tiles.iter().map(Tally::new).collect();
    // If nothing is sent, the other ranks' schedules do not matter.
    let mut schedules: Vec<Schedule> =
        (0..ranks).filter(|&r| !stays_local || r == me).map(|r| Schedule::new(r, files)).collect();
    let own = schedules.iter().position(|s| s.rank == me).unwrap_or(0);
    let own_parts = schedules[own].jobs.clone();
    let all = schedules.iter().map(Schedule::left).max().unwrap_or(0);
    let mut reader: Option<(usize, Box<dyn DenseReader<T> + 'a>)> = None;
    let mut buffer: Vec<T> = Vec::new();
    let mut result = Ok(());
    loop {
        let left = schedules.iter().map(Schedule::left).max().unwrap_or(0);
        progress(1.0 - left as f64 / all.max(1) as f64);
        if left == 0 || stays_local && result.is_err() {
            break;
        }
        let pieces: Vec<_> = schedules.iter_mut().map(|s| s.next(files, limit)).collect();
        let mut outgoing: Vec<Vec<T>> = vec![Vec::new(); ranks];
        if let Some(Piece { job, file, lines, within }) = pieces[own].clone() {
            let whole = files[file].rectangle(&lines, &within);
            if reader.as_ref().is_none_or(|(at, _)| *at != job) {
                let opened = open(file, own_parts[job].1.clone()).map(|opened| (job, opened));
                (reader, result) = opened.map_or_else(|error| (None, Err(error)), |opened| (Some(opened), Ok(())));
            }
            // The error is agreed on with the other ranks after the loop.
            let Some((_, reader)) = &mut reader else { break };
            if let ([tile], [block], [tally]) = (tiles, &mut blocks[..], &mut tallies[..])
                && stays_local
                && let Some(place) = whole.place(tile)
            {
                result = read_in_place(reader.as_mut(), (lines, within), block, place, tally);
                continue;
            }
            let (height, width) = whole.size();
            buffer.resize(height * width, T::zero());
            result = reader.fill(lines, within, &mut buffer);
            for share in routes.iter().flat_map(|r| r.overlaps(&whole.rows, &whole.cols)) {
                let part = Rectangle { rows: share.rows, cols: share.cols, ..whole };
                let (first, stride) = part.inside(&whole);
                if share.rank == me {
                    part.copy(&buffer[first..], stride, &tiles[share.tile], &mut blocks[share.tile]);
                } else {
                    let (lines, width) = part.size();
                    (0..lines).for_each(|l| {
                        outgoing[share.rank].extend_from_slice(&buffer[first + l * stride..][..width]);
                    });
                }
            }
        }
        if stays_local {
            continue;
        }
        comm.agree_on_error(result)?;
        result = Ok(());
        if ranks > 1 {
            let incoming = comm.all_to_all(ENTRIES, &outgoing);
            let mut at = 0;
            let others = schedules.iter().zip(&pieces).filter(|(s, _)| s.rank != me);
            for Piece { file, lines, within, .. } in others.filter_map(|(_, piece)| piece.as_ref()) {
                let whole = files[*file].rectangle(lines, within);
                let overlaps = routes.iter().flat_map(|r| r.overlaps(&whole.rows, &whole.cols));
                for share in overlaps.filter(|o| o.rank == me) {
                    let part = Rectangle { rows: share.rows, cols: share.cols, ..whole };
                    let (lines, width) = part.size();
                    part.copy(&incoming[at..], width, &tiles[share.tile], &mut blocks[share.tile]);
                    at += lines * width;
                }
            }
        }
    }
    comm.agree_on_error(result)?;
    Ok((blocks.into_iter().map(LocalBlock::Dense).collect(), tallies))
}

/// Reads a part of a file to its `place` in a block, and checks and adds it to the tally while it is in cache.
fn read_in_place<T: Real>(
    reader: &mut dyn DenseReader<T>,
    (lines, within): (Range<usize>, Range<usize>),
    block: &mut Dense<T>,
    place: Range<usize>,
    tally: &mut Tally,
) -> Result<()> {
    let Some(values) = block.as_slice_mut() else { return Err(Error::failed("a block is not contiguous")) };
    reader.read(lines.clone(), within.clone(), &mut values[place.clone()])?;
    let span = tally.add(Entries::Dense(block), place.clone());
    if reader.policy().accepts_all::<T>(span) {
        return Ok(());
    }
    reader.check(lines, within, &Entries::Dense(block).values()[place])
}

/// A rectangle of the matrix whose entries are in a buffer, line by line.
struct Rectangle {
    rows: Range<usize>,
    cols: Range<usize>,
    by_columns: bool,
}

impl Rectangle {
    /// Number of lines and their width.
    fn size(&self) -> (usize, usize) {
        let (r, c) = (self.rows.len(), self.cols.len());
        if self.by_columns { (c, r) } else { (r, c) }
    }

    /// The index of its first entry in the buffer of `whole`, and the stride between its lines there.
    fn inside(&self, whole: &Rectangle) -> (usize, usize) {
        let stride = whole.size().1;
        let (row, col) = (self.rows.start - whole.rows.start, self.cols.start - whole.cols.start);
        let (line, at) = if self.by_columns { (col, row) } else { (row, col) };
        (line * stride + at, stride)
    }

    /// The range of the entries among the values of a tile's block, if the block holds all of them contiguously and in the
    /// order of the file.
    fn place(&self, tile: &Tile) -> Option<Range<usize>> {
        let (lines, width) = self.size();
        let (_, pitch) = tile.stored_shape();
        let inside = |part: &Range<usize>, all: &Range<usize>| all.start <= part.start && part.end <= all.end;
        if self.by_columns != tile.transposed
            || lines > 1 && width != pitch
            || !(inside(&self.rows, &tile.rows) && inside(&self.cols, &tile.cols))
        {
            return None;
        }
        let (row, col) = (self.rows.start - tile.rows.start, self.cols.start - tile.cols.start);
        let first = if self.by_columns { col * pitch + row } else { row * pitch + col };
        Some(first..first + lines * width)
    }

    /// Copies the entries, whose lines are `stride` apart, to the block of a tile.
    fn copy<T: Real>(&self, data: &[T], stride: usize, tile: &Tile, block: &mut Dense<T>) {
        let (row, col) = (self.rows.start - tile.rows.start, self.cols.start - tile.cols.start);
        let (a, b) = if tile.transposed { (col, row) } else { (row, col) };
        let (lines, width) = self.size();
        let pitch = block.ncols();
        let Some(out) = block.as_slice_mut() else { return };
        if self.by_columns == tile.transposed {
            for l in 0..lines {
                out[(a + l) * pitch + b..][..width].copy_from_slice(&data[l * stride..][..width]);
            }
            return;
        }
        // Transposes in squares that stay in cache.
        const SIDE: usize = 32;
        for l0 in (0..lines).step_by(SIDE) {
            let l1 = lines.min(l0 + SIDE);
            for w in 0..width {
                let to = &mut out[(a + w) * pitch + b..][l0..l1];
                to.iter_mut().enumerate().for_each(|(l, x)| *x = data[(l0 + l) * stride + w]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_cover_a_range() {
        for (width, limit) in [(5, 100), (5, 7), (5, 3), (1, 4)] {
            let (mut at, end) = (7, 61);
            let mut seen = Vec::new();
            while at < end {
                let (lines, within) = front(at, end, width, limit);
                assert!(lines.len() * within.len() <= limit);
                assert!(lines.len() == 1 || within == (0..width));
                seen.extend(lines.clone().flat_map(|l| within.clone().map(move |w| l * width + w)));
                at += lines.len() * within.len();
            }
            assert!(seen.iter().copied().eq(7..61), "{width} {limit}");
        }
    }

    #[test]
    fn copies_are_transposed_where_necessary() {
        let tile_rows = 3..50;
        let tile_cols = 1..45;
        for by_columns in [false, true] {
            for transposed in [false, true] {
                let tile = Tile { rows: tile_rows.clone(), cols: tile_cols.clone(), transposed };
                let mut block: Dense<f64> = zeros(&tile).into();
                let whole = Rectangle { rows: 0..60, cols: 0..50, by_columns };
                let value = |i: usize, j: usize| (i * 100 + j) as f64;
                let buffer: Vec<f64> = if by_columns {
                    (0..50).flat_map(|j| (0..60).map(move |i| value(i, j))).collect()
                } else {
                    (0..60).flat_map(|i| (0..50).map(move |j| value(i, j))).collect()
                };
                let part = Rectangle { rows: 4..50, cols: 2..44, by_columns };
                let (first, stride) = part.inside(&whole);
                part.copy(&buffer[first..], stride, &tile, &mut block);
                for (i, j) in [(4, 2), (49, 43), (20, 7)] {
                    let (a, b) = if transposed { (j - 1, i - 3) } else { (i - 3, j - 1) };
                    assert_eq!(block[[a, b]], value(i, j));
                }
                assert_eq!(block.iter().filter(|&&x| x != 0.0).count(), 46 * 42);
                let line = if by_columns {
                    Rectangle { rows: 5..49, cols: 7..8, by_columns }
                } else {
                    Rectangle { rows: 9..10, cols: 2..44, by_columns }
                };
                match line.place(&tile) {
                    Some(place) => {
                        assert_eq!(by_columns, transposed);
                        let values = block.as_slice().unwrap()[place].iter().copied();
                        assert!(values.eq(line.rows.clone().flat_map(|i| line.cols.clone().map(move |j| value(i, j)))));
                    }
                    None => assert_ne!(by_columns, transposed),
                }
                assert!(part.place(&tile).is_none() && whole.place(&tile).is_none());
            }
        }
    }
}
