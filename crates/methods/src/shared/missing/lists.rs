//! Lists of the observed or of the missing entries, by row or by column.

use std::collections::HashSet;
use std::ops::Range;

use ndarray::{Array2, ArrayView2};

use fednmf_linalg::random::{Purpose, Stream, mix};
use fednmf_linalg::{Block, Csr, Real};

use crate::metrics::not_negative;

/// What the list of a row contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// The observed entries.
    Observed,
    /// The missing entries.
    Missing,
}

/// For each row, the columns of the listed entries, and the values there if they are needed.
pub struct Lists<T> {
    starts: Vec<usize>,
    index: Vec<u32>,
    values: Vec<T>,
}

impl<T: Real> Lists<T> {
    fn new(rows: usize) -> Self {
        let mut starts = Vec::with_capacity(rows + 1);
        starts.push(0);
        Lists { starts, index: Vec::new(), values: Vec::new() }
    }

    /// The columns and the values of a row.
    pub fn row(&self, a: usize) -> (&[u32], &[T]) {
        let range = self.starts[a]..self.starts[a + 1];
        (&self.index[range.clone()], self.values.get(range).unwrap_or_default())
    }

    pub fn longest(&self) -> usize {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Lists without values, row after row, each ascending.
    pub fn of_places(rows: usize, mut places: Vec<(u32, u32)>) -> Self {
        places.sort_unstable();
        places.dedup();
        let mut lists = Lists::new(rows);
        let mut at = 0;
        for a in 0..rows {
            while let Some(&(_, b)) = places.get(at).filter(|p| p.0 as usize == a) {
                lists.index.push(b);
                at += 1;
            }
            lists.starts.push(lists.index.len());
        }
        lists
    }

    /// All entries that a block stores, including zeros of a dense block, except those in `without`.
    pub fn of_block(block: &Block<T>, without: &Lists<T>) -> Self {
        let rows = block.shape().0;
        let mut lists = Lists::new(rows);
        for a in 0..rows {
            let (gone, _) = without.row(a);
            let mut gone = gone.iter().copied().peekable();
            each(block, a, |b, value| {
                while gone.next_if(|&g| g < b).is_some() {}
                if gone.peek() != Some(&b) {
                    lists.index.push(b);
                    lists.values.push(value);
                }
            });
            lists.starts.push(lists.index.len());
        }
        lists
    }
}

impl<T: Real> Lists<T> {
    /// The same lists by columns, of which there are n.
    pub fn transposed(&self, n: usize) -> Self {
        let mut starts = vec![0; n + 1];
        self.index.iter().for_each(|&b| starts[b as usize + 1] += 1);
        for b in 0..n {
            starts[b + 1] += starts[b];
        }
        let mut next = starts.clone();
        let (mut index, mut values) = (vec![0; self.index.len()], vec![T::zero(); self.values.len()]);
        for a in 0..self.starts.len() - 1 {
            let (columns, row) = self.row(a);
            for (t, &b) in columns.iter().enumerate() {
                let at = next[b as usize];
                index[at] = a as u32;
                if let Some(&value) = row.get(t) {
                    values[at] = value;
                }
                next[b as usize] += 1;
            }
        }
        Lists { starts, index, values }
    }

    /// Zeros the rows of a factor that have no observed entry, because no update would change them. A row of the data has n
    /// entries. Returns the number of such rows.
    pub fn clear_unobserved(&self, listed: Listed, n: usize, factor: &mut Array2<T>) -> f64 {
        let nothing = if listed == Listed::Observed { 0 } else { n };
        let mut cleared = 0.0;
        for (a, mut row) in factor.rows_mut().into_iter().enumerate() {
            if self.row(a).0.len() == nothing {
                row.fill(T::zero());
                cleared += 1.0;
            }
        }
        cleared
    }

    /// Σ (m_ab − x_a·y_b)² over the observed entries of a block that has zeros at the others.
    pub fn residual2(&self, listed: Listed, block: &Block<T>, x: &ArrayView2<'_, T>, y: &ArrayView2<'_, T>) -> f64 {
        let mut sum = 0.0;
        for (a, x) in x.rows().into_iter().enumerate() {
            let (columns, values) = self.row(a);
            for (t, &b) in columns.iter().enumerate() {
                let fit: f64 = x.iter().zip(y.row(b as usize)).map(|(x, y)| x.as_f64() * y.as_f64()).sum();
                sum += (values.get(t).map_or(0.0, |m| m.as_f64()) - fit).powi(2);
            }
        }
        match listed {
            Listed::Observed => sum,
            // A missing entry is zero in the block, so the fit's term there is subtracted.
            Listed::Missing => not_negative(block.residual2(x, y) - sum),
        }
    }
}

/// Calls `f` for every stored entry of a row, in the order of columns.
pub fn each<T: Real>(block: &Block<T>, row: usize, mut f: impl FnMut(u32, T)) {
    match block {
        Block::Dense(x) => x.row(row).iter().enumerate().for_each(|(b, &value)| f(b as u32, value)),
        Block::Sparse(x) => {
            if let Some(row) = x.matrix().outer_view(row) {
                row.iter().for_each(|(b, &value)| f(b as u32, value));
            }
        }
        Block::Bits(x) => x.ones(row).for_each(|b| f(b as u32, T::one())),
    }
}

/// The block with zeros where `keep` is false.
pub fn kept<T: Real>(block: Block<T>, keep: impl Fn(usize, u32, T) -> bool) -> Block<T> {
    match block {
        Block::Dense(mut x) => {
            for (a, mut row) in x.rows_mut().into_iter().enumerate() {
                for (b, value) in row.iter_mut().enumerate() {
                    if !keep(a, b as u32, *value) {
                        *value = T::zero();
                    }
                }
            }
            Block::Dense(x)
        }
        Block::Sparse(x) => {
            let mut matrix = x.matrix().clone();
            for (a, mut row) in matrix.outer_iterator_mut().enumerate() {
                for (b, value) in row.iter_mut() {
                    if !keep(a, b as u32, *value) {
                        *value = T::zero();
                    }
                }
            }
            Block::Sparse(Csr::from_rows(matrix))
        }
        bits => bits,
    }
}

/// The known entries at the positions `absent`: own row, column, value. With `only_stored`, zeros are unknown.
pub fn held_out<T: Real>(block: &Block<T>, absent: &Lists<T>, only_stored: bool) -> Vec<(u32, u32, T)> {
    let mut held = Vec::new();
    for a in 0..block.shape().0 {
        for &b in absent.row(a).0 {
            let x = match block {
                Block::Dense(x) => x[[a, b as usize]],
                Block::Sparse(x) => x.matrix().get(a, b as usize).copied().unwrap_or(T::zero()),
                Block::Bits(x) => {
                    if x.get(a, b as usize) {
                        T::one()
                    } else {
                        T::zero()
                    }
                }
            };
            if x.is_finite() && (x != T::zero() || !only_stored) {
                held.push((a as u32, b, x));
            }
        }
    }
    held
}

/// The rule that selects held-out entries: a function of the seed and the position only.
#[derive(Debug, Clone, Copy)]
pub struct Holdout {
    seed: u64,
    share: f64,
    /// Whether there are too many zeros to visit. If so, [`Holdout::columns`] draws the entries; otherwise
    /// [`Holdout::takes`] tests each entry.
    drawn: bool,
}

impl Holdout {
    /// The held-out entries for `--holdout SHARE` of this matrix.
    pub fn new(seed: u64, share: f64, of: Counted) -> Self {
        let drawn = of.sparse && !of.only_stored;
        // Held-out zeros cost as much as nonzeros, so at most as many are drawn.
        let most = if drawn { of.nonzeros as f64 / (of.shape.0 as f64 * of.shape.1 as f64) } else { 1.0 };
        Holdout { seed, share: share.min(most), drawn }
    }

    /// Whether [`Holdout::columns`] draws the held-out entries; otherwise [`Holdout::takes`] tests each entry.
    pub fn is_drawn(self) -> bool {
        self.drawn
    }

    /// Whether any entry is held out.
    pub fn any(self) -> bool {
        self.share > 0.0
    }

    /// Whether the entry (i, j) of the matrix is held out. For data whose observed entries are visited anyway.
    pub fn takes(self, i: usize, j: usize) -> bool {
        let hash = mix(mix(mix(self.seed ^ 0x6d61_736b) ^ i as u64) ^ j as u64);
        ((hash >> 11) as f64) < self.share * (1u64 << 53) as f64
    }

    /// Calls `f` for the held-out columns below n of row i, ascending. For data with too many zeros to visit: gaps are
    /// drawn instead of testing entries, so that the work is proportional to the number of held-out entries.
    pub fn columns(self, i: usize, n: usize, mut f: impl FnMut(usize)) {
        if self.share <= 0.0 {
            return;
        }
        let mut cursor = Stream::new(self.seed, Purpose::Holdout, i as u64).at(0);
        let scale = (1.0 - self.share).ln().recip();
        let mut j = 0usize;
        loop {
            // The number of skipped entries has a geometric distribution.
            let gap = ((1.0 - cursor.uniform()).ln() * scale).floor();
            j = j.saturating_add(if gap < n as f64 { gap as usize } else { n });
            if j >= n {
                return;
            }
            f(j);
            j += 1;
        }
    }
}

impl Holdout {
    /// Whether an entry in these rows and columns of a matrix with n columns is held out.
    pub fn within(self, rows: Range<usize>, cols: Range<usize>, n: usize) -> impl Fn(usize, usize) -> bool {
        let mut places = HashSet::new();
        for i in rows.filter(|_| self.drawn) {
            self.columns(i, n, |j| {
                if cols.contains(&j) {
                    places.insert((i, j));
                }
            });
        }
        move |i, j| if self.drawn { places.contains(&(i, j)) } else { self.takes(i, j) }
    }
}

/// The properties of a matrix on which the held-out share depends.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub shape: (usize, usize),
    pub nonzeros: u64,
    /// Whether the blocks are sparse.
    pub sparse: bool,
    /// Whether only stored entries count.
    pub only_stored: bool,
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn observed_entries_are_those_not_taken_out() {
        let block = Block::Dense(array![[1.0, 0.0, 2.0], [3.0, 4.0, 0.0]].into());
        let gone = Lists::of_places(2, vec![(1, 1), (0, 2), (1, 0), (1, 1)]);
        assert_eq!((gone.row(0).0, gone.row(1).0, gone.longest()), (&[2][..], &[0, 1][..], 2));
        let seen = Lists::of_block(&block, &gone);
        assert_eq!(seen.row(0), (&[0, 1][..], &[1.0, 0.0][..]));
        assert_eq!(seen.row(1), (&[2][..], &[0.0][..]));
        assert_eq!(seen.len(), 3);
        let block = kept(block, |a, b, _| !gone.row(a).0.contains(&b));
        assert!(matches!(block, Block::Dense(x) if x == array![[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]));
    }

    #[test]
    fn the_share_is_held_out_either_way() {
        let (m, n) = (300, 400);
        let of = |nonzeros| Counted { shape: (m, n), nonzeros, sparse: true, only_stored: false };
        let holdout = Holdout::new(3, 0.1, of(120_000));
        let hashed = (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|&(i, j)| holdout.takes(i, j)).count();
        let mut drawn = 0;
        for i in 0..m {
            let mut last = None;
            holdout.columns(i, n, |j| {
                assert!(j < n && last < Some(j));
                (last, drawn) = (Some(j), drawn + 1);
            });
        }
        // Mean 12000, standard deviation 104.
        for count in [hashed, drawn] {
            assert!((11_400..12_600).contains(&count), "{count}");
        }
        Holdout::new(3, 0.0, of(120_000)).columns(0, n, |_| panic!("nothing is held out"));
    }
}
