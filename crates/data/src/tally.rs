//! Totals of a block, computed while its entries arrive: each piece is added while it is still in cache. The scale of the
//! sums depends on the largest entry, of which only the largest so far is known. Pieces that were summed before the scale
//! changed are summed again at the end.

use std::ops::Range;

use fednmf_linalg::Real;

use crate::assemble::Entries;
use crate::ends::{Ends, NO_ENDS, Span, joined, largest_magnitude};
use crate::layout::Tile;
use crate::totals::Totals;

/// Bytes of values that are added at once.
const PIECE: usize = 256 << 10;

/// Ends and totals of the stored values of one block.
pub struct Tally {
    tile: Tile,
    ends: Ends,
    /// The values included in `ends`.
    seen: Ranges,
    /// Scaled for the largest magnitude so far.
    totals: Totals,
    /// The values included in `totals`.
    summed: Ranges,
}

impl Tally {
    /// An empty tally of the tile's block.
    pub fn new(tile: &Tile) -> Self {
        let (seen, summed) = (Ranges::default(), Ranges::default());
        Tally { tile: tile.clone(), ends: NO_ENDS, seen, totals: Totals::new(0.0), summed }
    }

    /// Adds the stored values `range` of the block, which must not change any more. Adds nothing if some are infinite; such
    /// entries are refused.
    pub fn add<T: Real>(&mut self, entries: Entries<'_, T>, range: Range<usize>) -> Span {
        let mut part = self.totals.emptied();
        let span = part.add(entries, range.clone(), &self.tile);
        let ends = joined(self.ends, span.ends);
        let largest = largest_magnitude(ends);
        if !largest.is_finite() {
            return span;
        }
        self.ends = ends;
        if !self.totals.scaled_for(largest) {
            self.scale(largest);
            part = self.totals.emptied();
            part.add(entries, range.clone(), &self.tile);
        }
        self.totals.merge(&part);
        self.seen.add(range.clone());
        self.summed.add(range);
        span
    }

    /// Resets the sums unless their scale suits values of at most this magnitude.
    fn scale(&mut self, largest: f64) {
        if !self.totals.scaled_for(largest) {
            self.totals = Totals::new(largest);
            self.summed = Ranges::default();
        }
    }

    /// Adds the values of the finished block that were not added before.
    pub fn complete<T: Real>(&mut self, entries: Entries<'_, T>) {
        let step = PIECE / size_of::<T>();
        for gap in self.seen.gaps(entries.values().len()) {
            for start in gap.clone().step_by(step) {
                self.add(entries, start..gap.end.min(start + step));
            }
        }
    }

    /// The ends of the values added so far.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// The totals of the finished block, scaled for the largest magnitude of all blocks whose totals are added up.
    pub fn finish<T: Real>(mut self, entries: Entries<'_, T>, largest: f64) -> Totals {
        self.scale(largest);
        let gaps = self.summed.gaps(entries.values().len());
        for gap in gaps {
            self.totals.add(entries, gap, &self.tile);
        }
        self.totals
    }
}

/// Disjoint ranges, in the order in which they were added.
#[derive(Default)]
struct Ranges(Vec<Range<usize>>);

impl Ranges {
    fn add(&mut self, range: Range<usize>) {
        match self.0.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.0.push(range),
        }
    }

    /// The gaps that the ranges leave in `0..end`.
    fn gaps(&self, end: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let mut all = self.0.clone();
        all.sort_by_key(|range| range.start);
        all.push(end..end);
        all.into_iter()
            .scan(0, |from, range| Some(std::mem::replace(from, range.end)..range.start))
            .filter(|gap| !gap.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use fednmf_comm::Communicator;

    use super::*;
    use crate::assemble::{Combine, LocalBlock, TileBuilder};
    use crate::statistics::Statistics;

    #[test]
    fn ranges_leave_gaps() {
        let mut ranges = Ranges::default();
        assert!(ranges.gaps(7).eq(std::iter::once(0..7)));
        for range in [10..12, 12..15, 3..5, 5..6] {
            ranges.add(range);
        }
        assert_eq!(ranges.0.len(), 2);
        assert_eq!(ranges.gaps(20).collect::<Vec<_>>(), [0..3, 6..10, 15..20]);
        assert_eq!(ranges.gaps(15).collect::<Vec<_>>(), [0..3, 6..10]);
        assert_eq!(Ranges::default().gaps(0).count(), 0);
    }

    /// Compares the statistics from tallies of pieces with the totals of the whole block, whose scale is known in advance.
    fn check<T: Real>(rows: usize, cols: usize, transposed: bool, value: impl Fn(usize) -> f64, sparse: bool) {
        let tile = Tile { rows: 3..3 + rows, cols: 5..5 + cols, transposed };
        let (height, width) = tile.stored_shape();
        let block = if sparse {
            let mut builder = TileBuilder::<T>::sparse(&tile, rows * cols);
            for at in (0..rows * cols).filter(|at| at % 3 != 1) {
                builder.push(3 + at / cols, 5 + at % cols, T::from_f64(value(at)));
            }
            builder.finish(Combine::Sum).unwrap().0
        } else {
            let values = Array2::from_shape_fn((height, width), |(a, b)| T::from_f64(value(a * width + b)));
            LocalBlock::Dense(values.into())
        };
        let length = block.values().len();
        let values = || block.values().iter().map(|v| v.as_f64()).filter(|v| !v.is_nan());
        let largest = values().fold(0.0, |largest: f64, v| largest.max(v.abs()));
        let mut plain = Totals::new(largest);
        plain.add(block.entries(), 0..length, &tile);
        let comm = Communicator::local();
        let shape = (rows + 3, cols + 5);
        let compute = |tally| Statistics::compute(&comm, std::slice::from_ref(&block), vec![tally], shape).unwrap();
        let (whole, _) = compute(Tally::new(&tile));
        // Pieces that end within rows, in another order and with some left out.
        for (step, left_out) in [(1, 5), (7, 3), (length / 2 + 1, usize::MAX), (length, usize::MAX)] {
            let mut tally = Tally::new(&tile);
            let pieces = (0..length).step_by(step).map(|start| start..length.min(start + step)).enumerate();
            let (even, odd): (Vec<_>, Vec<_>) =
                pieces.filter(|(i, _)| i % left_out != left_out - 1).partition(|(i, _)| i % 2 == 0);
            for (_, piece) in even.into_iter().chain(odd) {
                tally.add(block.entries(), piece);
            }
            let (statistics, fingerprints) = compute(tally);
            assert_eq!(statistics, whole, "{step}");
            let [sum, norm2] = [&plain.sum, &plain.norm2].map(|exact| exact.value(&exact.limbs()).to_bits());
            assert_eq!([statistics.sum.to_bits(), statistics.norm2.to_bits()], [sum, norm2], "{step}");
            let counts = [statistics.nonzeros, statistics.missing, statistics.checksum];
            assert_eq!(counts, [plain.nonzeros, plain.missing, plain.checksum], "{step}");
            assert_eq!(fingerprints, [plain.checksum]);
        }
    }

    #[test]
    fn rising_values_do_not_change_a_bit() {
        let rising = |at: usize| (at as f64 + 0.1) * 1.37f64.powi(at as i32 / 11);
        let falling = |at: usize| rising(400 - at);
        let first_zeros = |at: usize| if at < 100 { 0.0 } else { -1e-9 / (at as f64) };
        let missing = |at: usize| if at.is_multiple_of(5) { f64::NAN } else { rising(at) };
        for transposed in [false, true] {
            for sparse in [false, true] {
                for value in [&rising as &dyn Fn(usize) -> f64, &falling, &first_zeros, &missing, &|_| 0.0] {
                    check::<f64>(19, 17, transposed, value, sparse);
                    check::<f32>(19, 17, transposed, value, sparse);
                }
            }
        }
        // Longer than one piece in cache.
        check::<f64>(300, 250, false, |at| at as f64, false);
        check::<f32>(300, 250, true, |at| (at as f64).sqrt(), false);
    }
}
