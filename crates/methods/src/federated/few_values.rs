//! How many bits an entry of a party's data has at most, if the entries have few values: counts, counts times any factor
//! (of the matrix, of a row or of a column, such as counts per million), logarithms of counts. From a few exact equations
//! lattice reduction finds such entries.
//!
//! Two signs are looked for, each among all entries, in each column and in each row: *few distinct values*, which no
//! one-to-one transformation hides, and *a common unit* of which all entries, or their e^x − 1, are multiples, which small
//! blocks show too. A third one is few distinct values once weights of rows and of columns are divided out, as of tf-idf.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};

use fednmf_data::assemble::Entries;
use fednmf_data::rare::rare;
use fednmf_linalg::{Block, Real};

/// Values within this relative distance are one value: transformations that are one-to-one round differently.
const SAME: f64 = 1e-12;
/// Entries of lines that are multiples of each other differ by less than this, relative to the largest of the line.
const ALIKE: f64 = 1e-6;
/// On average, each of few values occurs at least as often.
const REPEATS: usize = 2;
/// Units of numbers with 2^-b relative precision are at least 2^(-b/2) of the largest number, so that rounding does not look
/// like a remainder.
const HALF: f64 = 0.5;

/// Properties of a party's entries that limit what may be released about them.
pub trait EntryFacts {
    /// Bits of an entry, zeros included, if the entries have few values.
    fn bits(&self) -> Option<f64>;

    /// The smallest share of nonzero entries in a row. Rows of zeros only are excluded, because any combination shows them.
    fn nonzero_share(&self) -> f64;

    /// Bits of a number of the block after the leading one.
    fn precision(&self) -> f64;

    /// The number of rows, or columns, that are neither empty nor multiples of others.
    fn distinct(&self, of_columns: bool) -> usize;

    /// Whether fewer than `least` rows, or columns, differ from all others in some entry.
    fn has_rare(&self, of_columns: bool, least: usize) -> bool;
}

impl<T: Real> EntryFacts for Block<T> {
    fn bits(&self) -> Option<f64> {
        // A Boolean block has two values.
        Entries::of(self).map_or(Some(1.0), |entries| entries.bits())
    }

    fn nonzero_share(&self) -> f64 {
        let (rows, cols) = self.shape();
        match self {
            Block::Bits(x) => fewest((0..rows).map(|i| x.ones(i).count()), cols),
            Block::Dense(_) | Block::Sparse(_) => Entries::of(self).map_or(1.0, |entries| entries.nonzero_share()),
        }
    }

    fn precision(&self) -> f64 {
        precision::<T>()
    }

    fn distinct(&self, of_columns: bool) -> usize {
        match self {
            Block::Bits(x) => {
                let ones = (0..self.shape().0).flat_map(|i| x.ones(i).map(move |j| (i, j, 1.0)));
                distinct_lines(ones, of_columns, self.shape())
            }
            Block::Dense(_) | Block::Sparse(_) => Entries::of(self).map_or(0, |entries| entries.distinct(of_columns)),
        }
    }

    // Methods on Boolean blocks have no exact sums.
    fn has_rare(&self, of_columns: bool, least: usize) -> bool {
        Entries::of(self).is_some_and(|entries| entries.has_rare(of_columns, least))
    }
}

impl<T: Real> EntryFacts for Entries<'_, T> {
    fn bits(&self) -> Option<f64> {
        bits(*self)
    }

    fn nonzero_share(&self) -> f64 {
        let nonzeros = |values: &[T]| values.iter().filter(|x| **x != T::zero()).count();
        match self {
            Entries::Dense(x) => {
                fewest(x.rows().into_iter().map(|row| row.iter().filter(|x| **x != T::zero()).count()), x.ncols())
            }
            Entries::Sparse(x) => fewest(x.outer_iterator().map(|row| nonzeros(row.data())), x.cols()),
        }
    }

    fn precision(&self) -> f64 {
        precision::<T>()
    }

    fn distinct(&self, of_columns: bool) -> usize {
        distinct_lines(nonzeros(*self).into_iter(), of_columns, shape(*self))
    }

    fn has_rare(&self, of_columns: bool, least: usize) -> bool {
        !rare(*self, of_columns, least).is_empty()
    }
}

/// The facts of entries that become zeros and ones (`--binarize`).
pub struct ZerosAndOnes<'a>(pub &'a dyn EntryFacts);

impl EntryFacts for ZerosAndOnes<'_> {
    fn bits(&self) -> Option<f64> {
        Some(1.0)
    }

    fn nonzero_share(&self) -> f64 {
        self.0.nonzero_share()
    }

    fn precision(&self) -> f64 {
        self.0.precision()
    }

    /// Of the entries before they are zeros and ones, which may be fewer.
    fn distinct(&self, of_columns: bool) -> usize {
        self.0.distinct(of_columns)
    }

    fn has_rare(&self, of_columns: bool, least: usize) -> bool {
        self.0.has_rare(of_columns, least)
    }
}

/// The number of distinct rows, or columns, with these entries, relative to the largest entry of each.
fn distinct_lines(entries: impl Iterator<Item = Entry>, of_columns: bool, (rows, cols): (usize, usize)) -> usize {
    let mut lines: Vec<Vec<(usize, f64)>> = vec![Vec::new(); if of_columns { cols } else { rows }];
    for (i, j, x) in entries {
        let (line, at) = if of_columns { (j, i) } else { (i, j) };
        lines[line].push((at, x));
    }
    let digest = |line: &mut Vec<(usize, f64)>| {
        line.sort_unstable_by_key(|(at, _)| *at);
        let largest = line.iter().fold(0.0, |most: f64, (_, x)| most.max(x.abs()));
        let mut hasher = DefaultHasher::new();
        for (at, x) in line {
            hasher.write_usize(*at);
            hasher.write_i64((*x / largest / ALIKE).round() as i64);
        }
        hasher.finish()
    };
    lines.iter_mut().filter(|line| !line.is_empty()).map(digest).collect::<HashSet<u64>>().len()
}

fn precision<T: Real>() -> f64 {
    -T::epsilon().as_f64().log2()
}

/// The smallest of these counts that is not 0, as a share.
fn fewest(counts: impl Iterator<Item = usize>, cols: usize) -> f64 {
    counts.filter(|&count| count > 0).min().map_or(1.0, |fewest| fewest as f64 / cols as f64)
}

/// Bits of an entry of the block, zeros included; `None` if neither sign is found.
fn bits<T: Real>(block: Entries<'_, T>) -> Option<f64> {
    let entries = nonzeros(block);
    let (rows, cols) = shape(block);
    let views: [(usize, LineOf); 3] = [(1, |_| 0), (cols, |&(_, j, _)| j), (rows, |&(i, ..)| i)];
    let bits = views.into_iter().flat_map(|(lines, line)| {
        let mut groups = vec![Vec::new(); lines];
        entries.iter().for_each(|entry| groups[line(entry)].push(entry.2));
        groups.retain(|group: &Vec<f64>| !group.is_empty());
        groups.iter_mut().for_each(|group| group.sort_unstable_by(f64::total_cmp));
        [of_distinct::<T>(&groups), of_units::<T>(&groups)]
    });
    bits.flatten().chain(of_weighted::<T>(&entries, (rows, cols))).reduce(f64::min)
}

fn shape<T: Real>(block: Entries<'_, T>) -> (usize, usize) {
    match block {
        Entries::Dense(x) => x.dim(),
        Entries::Sparse(x) => x.shape(),
    }
}

/// Bits by the number of distinct values of x_ij / (r_i c_j), where the weights r and c make as many of these 1 as a spanning tree
/// of rows and columns has edges; `None` unless the values of the other entries repeat.
fn of_weighted<T: Real>(entries: &[Entry], (rows, cols): (usize, usize)) -> Option<f64> {
    let mut of_line: Vec<Vec<(usize, f64)>> = vec![Vec::new(); rows + cols];
    for &(i, j, x) in entries {
        let log = x.abs().ln();
        of_line[i].push((rows + j, log));
        of_line[rows + j].push((i, log));
    }
    // Of a row and a column the logarithms of the weights add up to that of the entry.
    let mut weight: Vec<Option<f64>> = vec![None; rows + cols];
    let mut left: Vec<f64> = Vec::new();
    let mut next = std::collections::VecDeque::new();
    for start in 0..rows {
        if weight[start].is_some() || of_line[start].is_empty() {
            continue;
        }
        weight[start] = Some(0.0);
        next.push_back(start);
        while let Some(line) = next.pop_front() {
            let own = weight[line].unwrap_or(0.0);
            for &(other, log) in &of_line[line] {
                match weight[other] {
                    None => {
                        weight[other] = Some(log - own);
                        next.push_back(other);
                    }
                    // Each entry is seen from its row and from its column.
                    Some(known) if line < rows => left.push(log - own - known),
                    Some(_) => {}
                }
            }
        }
    }
    left.sort_unstable_by(f64::total_cmp);
    let same = (SAME.max(4.0 * T::epsilon().as_f64()) * 1e3).max(ALIKE * 1e-3);
    // The entries of the tree are seen once more from the other side, with nothing left.
    let tree = weight.iter().flatten().count();
    let beyond = left.len().saturating_sub(tree);
    let distinct = 1 + left.windows(2).filter(|pair| pair[1] - pair[0] > same).count();
    (beyond > REPEATS && REPEATS * distinct <= beyond).then(|| (distinct as f64 + 1.0).log2())
}

/// Row, column and value.
type Entry = (usize, usize, f64);

/// The line that an entry is in.
type LineOf = fn(&Entry) -> usize;

fn nonzeros<T: Real>(block: Entries<'_, T>) -> Vec<Entry> {
    let all: Vec<Entry> = match block {
        Entries::Dense(x) => x.indexed_iter().map(|((i, j), x)| (i, j, x.as_f64())).collect(),
        Entries::Sparse(x) => x.iter().map(|(x, (i, j))| (i as usize, j as usize, x.as_f64())).collect(),
    };
    all.into_iter().filter(|(.., x)| *x != 0.0).collect()
}

/// Bits by the number of distinct values in each group of sorted numbers; `None` unless these repeat.
fn of_distinct<T: Real>(groups: &[Vec<f64>]) -> Option<f64> {
    let same = SAME.max(4.0 * T::epsilon().as_f64());
    let distinct = |group: &Vec<f64>| 1 + group.windows(2).filter(|w| w[1] - w[0] > same * w[1].abs()).count();
    let counts: Vec<usize> = groups.iter().map(distinct).collect();
    let entries: usize = groups.iter().map(Vec::len).sum();
    let repeat = entries > 1 && REPEATS * counts.iter().sum::<usize>() <= entries;
    // Zero is one more value.
    repeat.then(|| mean(counts.iter().map(|&count| (count as f64 + 1.0).log2())))
}

/// Bits by the number of units in the largest number of each group of sorted numbers; `None` unless every group has a unit.
fn of_units<T: Real>(groups: &[Vec<f64>]) -> Option<f64> {
    let entries: usize = groups.iter().map(Vec::len).sum();
    // One number is a multiple of itself.
    if entries < REPEATS * groups.len().max(1) {
        return None;
    }
    let transforms: [fn(f64) -> f64; 2] = [|x| x, f64::exp_m1];
    let units = |transform: fn(f64) -> f64| {
        let units: Option<Vec<f64>> = groups
            .iter()
            .map(|group| {
                let numbers: Vec<f64> = group.iter().map(|&x| transform(x)).collect();
                Some((numbers.last()?.abs() / unit::<T>(&numbers)? + 1.0).log2())
            })
            .collect();
        units.map(|all| mean(all.into_iter()))
    };
    transforms.into_iter().filter_map(units).reduce(f64::min)
}

/// The greatest number of which all of these sorted positive numbers are multiples, but for rounding; by Euclid's algorithm.
fn unit<T: Real>(numbers: &[f64]) -> Option<f64> {
    let largest = numbers.last()?.abs();
    let least = largest * T::epsilon().as_f64().powf(HALF);
    if !(largest.is_finite() && largest > 0.0) {
        return None;
    }
    let mut unit = largest;
    for &x in numbers {
        let (mut a, mut b) = (x.abs(), unit);
        while b > least {
            (a, b) = (b, (a - b * (a / b).round()).abs());
        }
        unit = a;
        if unit <= 4.0 * least {
            return None;
        }
    }
    // Its error has grown with each division.
    let unit = largest / (largest / unit).round();
    numbers.iter().all(|x| (x / unit - (x / unit).round()).abs() < 0.01).then_some(unit)
}

fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len().max(1);
    numbers.sum::<f64>() / count as f64
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    fn block(entry: impl Fn(usize, usize) -> f64) -> Block<f64> {
        Block::Dense(Array2::from_shape_fn((30, 12), |(i, j)| entry(i, j)).into())
    }

    fn bits(block: &Block<f64>) -> Option<f64> {
        block.bits()
    }

    /// A transformation of numbers.
    type Form = fn(f64) -> f64;

    /// Counts without a pattern, two thirds of them zeros.
    fn count(i: usize, j: usize) -> f64 {
        let mixed = ((i * 12 + j) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        if mixed.is_multiple_of(3) { (mixed / 3 % 9) as f64 } else { 0.0 }
    }

    #[test]
    fn transformed_counts_have_the_bits_of_counts() {
        let whole = bits(&block(count)).unwrap();
        assert!(whole <= 9f64.log2(), "{whole}");
        let forms: [(&str, Form); 5] = [
            ("sevenths", |x| x / 7.0),
            ("times pi", |x| x * std::f64::consts::PI),
            ("tiny", |x| x * 1.37e-9),
            ("log1p", f64::ln_1p),
            ("log1p of thirds", |x| (x / 3.0).ln_1p()),
        ];
        for (name, form) in forms {
            let found = bits(&block(|i, j| form(count(i, j)))).unwrap_or_else(|| panic!("{name}"));
            assert!((found - whole).abs() < 1e-9, "{name}: {found} and {whole}");
        }
        // No unit, but few values.
        assert!(bits(&block(|i, j| count(i, j).sqrt())).is_some_and(|bits| bits <= 9f64.log2()));
    }

    #[test]
    fn counts_per_million_are_counts_in_each_cell() {
        let library = |cell: usize| 1e6 / (37.0 + 13.7 * cell as f64);
        for (what, by_row) in [("cells are columns", false), ("cells are rows", true)] {
            let scaled = |i: usize, j: usize| count(i, j) * library(if by_row { i } else { j });
            let log = |i, j| scaled(i, j).ln_1p();
            for found in [bits(&block(scaled)), bits(&block(log))] {
                assert!(found.is_some_and(|bits| bits <= 9f64.log2()), "{what}: {found:?}");
            }
        }
    }

    #[test]
    fn weighted_zeros_and_ones_have_few_values() {
        let weight = |i: usize| 0.3 + ((i as f64 + 1.0) * 0.7311).sin().abs();
        let one = |i: usize, j: usize| f64::from(u8::from(count(i, j) > 0.0));
        // As tf-idf: weights of terms, and columns of norm 1.
        let tfidf = |i: usize, j: usize| {
            let norm2: f64 = (0..30).map(|i| (weight(i) * one(i, j)).powi(2)).sum();
            weight(i) * one(i, j) / norm2.sqrt()
        };
        assert!(bits(&block(tfidf)).is_some_and(|bits| bits <= 2.0), "{:?}", bits(&block(tfidf)));
        let noisy = |i: usize, j: usize| tfidf(i, j) * (1.0 + 0.1 * ((i * 12 + j) as f64 * 1.37).sin());
        assert_eq!(bits(&block(noisy)), None);
    }

    #[test]
    fn empty_lines_and_multiples_hide_nothing() {
        let x = block(|i, j| {
            if i < 4 {
                ((i * 12 + j) as f64).sin().abs()
            } else if i < 8 {
                3.0 * ((i - 4 + j) as f64).cos().abs()
            } else {
                0.0
            }
        });
        assert_eq!(x.distinct(false), 8);
        let copies = block(|i, j| (1 + i) as f64 * ((i % 3 * 12 + j) as f64).sin().abs());
        assert_eq!((copies.distinct(false), copies.distinct(true)), (3, 12));
    }

    #[test]
    fn few_entries_show_their_unit_and_measurements_have_none() {
        let few = Array2::from_shape_fn((2, 3), |(i, j)| (17 + 31 * i + 101 * j) as f64 / 7.0);
        let found = bits(&Block::<f64>::Dense(few.into())).unwrap();
        assert!(found <= 251f64.log2() + 1e-9, "{found}");
        let measured = |i: usize, j: usize| (1.3 + (i * 12 + j) as f64 * 0.7311).sin().abs() + 0.01;
        assert_eq!(bits(&block(measured)), None);
        // Sparse measurements: a column or a row with one entry has no unit.
        assert_eq!(bits(&block(|i, j| if (i * 7 + j) % 10 == 0 { measured(i, j) } else { 0.0 })), None);
    }
}
