//! The pattern of a synthetic sparse matrix: independent entries, found by jumping from one to the next, so that the
//! work is proportional to the entries. A row is cut into strips of about sixteen entries; each cell (row, strip) has
//! its own stream, so a rectangle costs no more than its own cells.

use std::ops::Range;

use super::{Law, Synthetic, Values};
use crate::random::{Cursor, Purpose, Stream, mix};

/// Entries that a cell has on average.
const CELL: f64 = 16.0;
const POWER: f64 = 0.7;

/// See the module.
pub struct Pattern {
    seed: u64,
    values: Values,
    /// `strips[s]..strips[s + 1]` are the columns of strip s.
    strips: Vec<usize>,
    law: Law,
    /// Density of column j is min(1, level · (j + 1)^-POWER), or the level itself.
    level: f64,
}

impl Pattern {
    /// Settles the density of each column, and the strips.
    pub fn new(spec: &Synthetic) -> Self {
        let mut made =
            Pattern { seed: spec.seed, values: spec.values, strips: vec![0], law: spec.law, level: spec.density };
        if spec.law == Law::Power {
            // The level whose columns have the wanted density on average; it grows with the level, so bisect.
            let goal = spec.density * spec.n as f64;
            let (mut low, mut high) = (0.0, (spec.n as f64).powf(POWER));
            for _ in 0..60 {
                made.level = (low + high) / 2.0;
                let sum: f64 = (0..spec.n).map(|j| made.density(j)).sum();
                if sum < goal { low = made.level } else { high = made.level }
            }
        }
        let mut first = 0;
        while first < spec.n {
            // The density falls from left to right: in a strip by at most a half, so that few candidates are refused.
            let density = made.density(first);
            let wide = first + (CELL / density).min(spec.n as f64).ceil() as usize;
            let last = if spec.law == Law::Power { wide.min(2 * (first + 1)) } else { wide }.min(spec.n);
            made.strips.push(last);
            first = last;
        }
        made
    }

    fn density(&self, j: usize) -> f64 {
        match self.law {
            Law::Uniform => self.level,
            Law::Power => (self.level * ((j + 1) as f64).powf(-POWER)).min(1.0),
        }
    }

    /// Hands the entries of `rows` × `cols` to `sink`, by rows, columns ascending.
    pub fn entries(&self, rows: Range<usize>, cols: Range<usize>, sink: &mut dyn FnMut(usize, usize, f64)) {
        if cols.is_empty() {
            return;
        }
        let first = self.strips.partition_point(|&s| s <= cols.start) - 1;
        let last = self.strips.partition_point(|&s| s < cols.end);
        for i in rows {
            for strip in first..last {
                self.cell(i, strip, &cols, sink);
            }
        }
    }

    fn cell(&self, i: usize, strip: usize, cols: &Range<usize>, sink: &mut dyn FnMut(usize, usize, f64)) {
        let mut cursor = Stream::new(self.seed, Purpose::SyntheticPattern, cell_key(i, strip)).at(0);
        let end = self.strips[strip + 1].min(cols.end);
        let most = self.density(self.strips[strip]);
        let rest = (1.0 - most).ln();
        let mut j = self.strips[strip];
        while j < end {
            // The gap to the next candidate is geometric.
            if most < 1.0 {
                let gap = (1.0 - cursor.uniform()).ln() / rest;
                if gap >= (end - j) as f64 {
                    return;
                }
                j += gap as usize;
            }
            let taken = self.law == Law::Uniform || cursor.uniform() * most < self.density(j);
            if taken {
                let value = self.value(&mut cursor);
                if cols.contains(&j) {
                    sink(i, j, value);
                }
            }
            j += 1;
        }
    }

    fn value(&self, cursor: &mut Cursor) -> f64 {
        match self.values {
            Values::Uniform => 1.0 - cursor.uniform(),
            Values::Counts => f64::from(cursor.bits().trailing_zeros().min(52) + 1),
            Values::Ones => 1.0,
        }
    }
}

/// The stream key of a cell of the sparse pattern.
fn cell_key(row: usize, strip: usize) -> u64 {
    mix(row as u64) ^ (strip as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, rows: Range<usize>, cols: Range<usize>) -> Vec<(usize, usize, u64)> {
        let mut out = Vec::new();
        Pattern::new(&Synthetic::parse(text).unwrap())
            .entries(rows, cols, &mut |i, j, v| out.push((i, j, v.to_bits())));
        out
    }

    #[test]
    fn a_rectangle_holds_what_the_whole_holds() {
        for law in ["uniform", "power"] {
            for density in ["1", "0.3", "0.01"] {
                let text = format!("sparse,m=40,n=300,density={density},law={law}");
                let whole = all(&text, 0..40, 0..300);
                assert!(whole.windows(2).all(|w| (w[0].0, w[0].1) < (w[1].0, w[1].1)), "sorted, no duplicates");
                let mut part = whole.clone();
                part.retain(|e| (5..17).contains(&e.0) && (33..218).contains(&e.1));
                assert_eq!(part, all(&text, 5..17, 33..218), "{text}");
            }
        }
    }

    #[test]
    fn densities_are_as_asked() {
        for law in ["uniform", "power"] {
            let entries = all(&format!("sparse,m=2000,n=1000,density=0.02,law={law}"), 0..2000, 0..1000);
            // Five standard deviations of a sum of independent entries.
            assert!((entries.len() as f64 - 40_000.0).abs() < 5.0 * 200.0, "{law}: {}", entries.len());
            let first = entries.iter().filter(|e| e.1 < 100).count() as f64;
            if law == "power" {
                let share = (1..=100).map(|j| f64::from(j).powf(-POWER)).sum::<f64>()
                    / (1..=1000).map(|j| f64::from(j).powf(-POWER)).sum::<f64>();
                assert!((first / 40_000.0 - share).abs() < 0.02, "{first} {share}");
            } else {
                assert!((first - 4000.0).abs() < 5.0 * 64.0);
            }
        }
    }

    #[test]
    fn counts_halve() {
        let mut entries = all("sparse,m=100,n=1000,density=0.1,values=counts", 0..100, 0..1000);
        entries.retain(|e| f64::from_bits(e.2) == 1.0);
        assert!((entries.len() as f64 - 5000.0).abs() < 500.0, "{}", entries.len());
    }
}
