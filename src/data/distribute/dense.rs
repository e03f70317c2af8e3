//! Dense matrices on their way from files to tiles, rectangle by rectangle. Who reads which rectangle when is a function
//! of what all ranks know, so only the entries themselves are sent.

use std::ops::Range;

use ndarray::Array2;

use crate::comm::Communicator;
use crate::data::ENTRIES;
use crate::data::distribute::assemble::{Local, zeros};
use crate::data::distribute::route::Route;
use crate::data::partition::Tile;
use crate::error::Result;
use crate::linalg::Real;

/// Bytes of entries that all ranks together read in one round.
const ROUND: usize = 32 << 20;
/// Bytes that a rank reads at once when nobody else wants them: they are still in its cache when they are checked and
/// laid down. Of chunked datasets a round's, since every piece may unpack whole chunks.
const PIECE: usize = 256 << 10;

/// Hands over a dense file's entries in the order they lie in.
pub trait Lines<T> {
    /// Entries `within` of `lines`, line after line, into `out`. Calls walk forward through the reader's share.
    ///
    /// # Errors
    /// When the file does not hold them, or they are not fit for use.
    fn fill(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()>;
}

/// Where a dense file lies in the matrix, and who reads how much of it.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// Its rectangle of the matrix.
    pub rows: Range<usize>,
    pub cols: Range<usize>,
    /// Its lines are columns of the matrix.
    pub by_columns: bool,
    /// Its entries lie one after the other in a file that is no HDF5.
    pub plain: bool,
    /// The rank that reads, and its entries, counted line after line.
    pub readers: Vec<(usize, Range<usize>)>,
}

impl Sheet {
    fn width(&self) -> usize {
        if self.by_columns { self.rows.len() } else { self.cols.len() }
    }

    /// The rectangle of the matrix that is behind some lines' entries.
    fn rectangle(&self, lines: &Range<usize>, within: &Range<usize>) -> (Range<usize>, Range<usize>) {
        let shift = |r: &Range<usize>, by: usize| r.start + by..r.end + by;
        if self.by_columns {
            (shift(within, self.rows.start), shift(lines, self.cols.start))
        } else {
            (shift(lines, self.rows.start), shift(within, self.cols.start))
        }
    }
}

/// The longest rectangle of at most `limit` entries at the front of entries `from..end` of lines of `width`:
/// lines, and what of them.
fn front(from: usize, end: usize, width: usize, limit: usize) -> (Range<usize>, Range<usize>) {
    let (line, at) = (from / width, from % width);
    let size = (end - from).min(limit);
    if at > 0 || size < width {
        return (line..line + 1, at..width.min(at + size));
    }
    (line..line + size / width, 0..width)
}

/// A rank's walk through its shares of all sheets.
struct Walk {
    rank: usize,
    /// Sheet and reader, among those of this rank.
    jobs: Vec<(usize, Range<usize>)>,
    job: usize,
}

impl Walk {
    fn new(rank: usize, sheets: &[Sheet]) -> Self {
        let jobs = sheets.iter().enumerate().flat_map(|(s, sheet)| {
            sheet.readers.iter().filter(move |(r, _)| *r == rank).map(move |(_, range)| (s, range.clone()))
        });
        Walk { rank, jobs: jobs.filter(|(_, range)| !range.is_empty()).collect(), job: 0 }
    }

    /// The next rectangle: job, sheet, lines, and what of them.
    fn next(&mut self, sheets: &[Sheet], limit: usize) -> Option<(usize, usize, Range<usize>, Range<usize>)> {
        let (sheet, range) = self.jobs.get_mut(self.job)?;
        let (lines, within) = front(range.start, range.end, sheets[*sheet].width(), limit);
        range.start += lines.len() * within.len();
        let next = (self.job, *sheet, lines, within);
        if range.start == range.end {
            self.job += 1;
        }
        Some(next)
    }

    fn left(&self) -> usize {
        self.jobs.iter().map(|(_, range)| range.len()).sum()
    }
}

/// Reads the sheets and brings their entries to the tiles; `open(sheet, entries)` starts one of this rank's readers.
///
/// # Errors
/// On all ranks, when any rank's reader fails.
pub fn deliver<'a, T: Real>(
    comm: &Communicator,
    at_home: bool,
    routes: &[Route],
    tiles: &[Tile],
    sheets: &[Sheet],
    mut open: impl FnMut(usize, Range<usize>) -> Result<Box<dyn Lines<T> + 'a>>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Local<T>>> {
    let (me, ranks) = (comm.rank(), comm.size());
    let bytes = if at_home && sheets.iter().all(|s| s.plain) { PIECE } else { ROUND / ranks };
    let limit = (bytes / size_of::<T>()).max(1 << 14);
    let mut blocks: Vec<Array2<T>> = tiles.iter().map(zeros).collect();
    // At home nobody else's walk concerns this rank.
    let mut walks: Vec<Walk> = (0..ranks).filter(|&r| !at_home || r == me).map(|r| Walk::new(r, sheets)).collect();
    let starts: Vec<Vec<Range<usize>>> = walks.iter().map(|w| w.jobs.iter().map(|j| j.1.clone()).collect()).collect();
    let all = walks.iter().map(Walk::left).max().unwrap_or(0);
    let mut reader: Option<(usize, Box<dyn Lines<T> + 'a>)> = None;
    let mut buffer: Vec<T> = Vec::new();
    let mut result = Ok(());
    loop {
        let left = walks.iter().map(Walk::left).max().unwrap_or(0);
        progress(1.0 - left as f64 / all.max(1) as f64);
        if left == 0 || at_home && result.is_err() {
            break;
        }
        let pieces: Vec<_> = walks.iter_mut().map(|w| w.next(sheets, limit)).collect();
        let mine = walks.iter().position(|w| w.rank == me);
        let mut outgoing: Vec<Vec<T>> = vec![Vec::new(); ranks];
        if let Some((walk, (job, sheet, lines, within))) = mine.and_then(|w| Some((w, pieces[w].clone()?))) {
            buffer.resize(lines.len() * within.len(), T::zero());
            result = (|| {
                if reader.as_ref().is_none_or(|(at, _)| *at != job) {
                    reader = Some((job, open(sheet, starts[walk][job].clone())?));
                }
                match &mut reader {
                    Some((_, reader)) => reader.fill(lines.clone(), within.clone(), &mut buffer),
                    None => Ok(()),
                }
            })();
            let whole = Sub::new(&sheets[sheet], &lines, &within);
            for route in routes {
                for share in route.shares(&whole.rows, &whole.cols) {
                    let part = Sub { rows: share.rows.clone(), cols: share.cols.clone(), ..whole.clone() };
                    let (first, stride) = part.inside(&whole);
                    if share.rank == me {
                        part.place(&buffer[first..], stride, &tiles[share.tile], &mut blocks[share.tile]);
                    } else {
                        let (lines, width) = part.size();
                        (0..lines).for_each(|l| {
                            outgoing[share.rank].extend_from_slice(&buffer[first + l * stride..][..width]);
                        });
                    }
                }
            }
        }
        if at_home {
            continue;
        }
        result = comm.agree_on_error(result);
        result.clone()?;
        if ranks > 1 {
            let incoming = comm.all_to_all(ENTRIES, &outgoing);
            let mut at = 0;
            for (walk, piece) in walks.iter().zip(&pieces).filter(|(w, _)| w.rank != me) {
                let Some((_, sheet, lines, within)) = piece else { continue };
                let whole = Sub::new(&sheets[*sheet], lines, within);
                debug_assert_ne!(walk.rank, me);
                for share in routes.iter().flat_map(|r| r.shares(&whole.rows, &whole.cols)) {
                    if share.rank == me {
                        let part = Sub { rows: share.rows, cols: share.cols, ..whole.clone() };
                        let (lines, width) = part.size();
                        part.place(&incoming[at..], width, &tiles[share.tile], &mut blocks[share.tile]);
                        at += lines * width;
                    }
                }
            }
        }
    }
    comm.agree_on_error(result)?;
    Ok(blocks.into_iter().map(Local::Dense).collect())
}

/// A rectangle of the matrix whose entries lie line by line in a buffer.
#[derive(Clone)]
struct Sub {
    rows: Range<usize>,
    cols: Range<usize>,
    by_columns: bool,
}

impl Sub {
    fn new(sheet: &Sheet, lines: &Range<usize>, within: &Range<usize>) -> Self {
        let (rows, cols) = sheet.rectangle(lines, within);
        Sub { rows, cols, by_columns: sheet.by_columns }
    }

    /// Number of lines and their width.
    fn size(&self) -> (usize, usize) {
        let (r, c) = (self.rows.len(), self.cols.len());
        if self.by_columns { (c, r) } else { (r, c) }
    }

    /// Where this rectangle begins in the buffer of `whole`, and how far its lines are apart there.
    fn inside(&self, whole: &Sub) -> (usize, usize) {
        let stride = whole.size().1;
        let (row, col) = (self.rows.start - whole.rows.start, self.cols.start - whole.cols.start);
        let (line, at) = if self.by_columns { (col, row) } else { (row, col) };
        (line * stride + at, stride)
    }

    /// Copies the entries, whose lines are `stride` apart, to their places in a tile's block.
    fn place<T: Real>(&self, data: &[T], stride: usize, tile: &Tile, block: &mut Array2<T>) {
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
        // Turned, in squares that stay in cache.
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
    fn rectangles_cover_a_share() {
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
    fn places_turn_where_they_must() {
        let tile_rows = 3..50;
        let tile_cols = 1..45;
        for by_columns in [false, true] {
            for transposed in [false, true] {
                let tile = Tile { rows: tile_rows.clone(), cols: tile_cols.clone(), transposed };
                let mut block: Array2<f64> = zeros(&tile);
                let whole = Sub { rows: 0..60, cols: 0..50, by_columns };
                let value = |i: usize, j: usize| (i * 100 + j) as f64;
                let buffer: Vec<f64> = if by_columns {
                    (0..50).flat_map(|j| (0..60).map(move |i| value(i, j))).collect()
                } else {
                    (0..60).flat_map(|i| (0..50).map(move |j| value(i, j))).collect()
                };
                let part = Sub { rows: 4..50, cols: 2..44, by_columns };
                let (first, stride) = part.inside(&whole);
                part.place(&buffer[first..], stride, &tile, &mut block);
                for (i, j) in [(4, 2), (49, 43), (20, 7)] {
                    let (a, b) = if transposed { (j - 1, i - 3) } else { (i - 3, j - 1) };
                    assert_eq!(block[[a, b]], value(i, j));
                }
                assert_eq!(block.iter().filter(|&&x| x != 0.0).count(), 46 * 42);
            }
        }
    }
}
