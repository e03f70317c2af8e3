//! Builds the block of a tile from entries in any order.

use std::ops::Range;

use ndarray::Array2;

use fednmf_base::error::{Error, Result};
use fednmf_linalg::{Block, Csr, CsrMatrix, Dense, Order, Real, large_pages};

use crate::layout::Tile;
use crate::policy::rounded;

/// A block of this rank while its values can still be changed.
pub enum LocalBlock<T: Real> {
    Dense(Dense<T>),
    Sparse(CsrMatrix<T>),
}

impl<T: Real> LocalBlock<T> {
    /// All stored values.
    pub fn values_mut(&mut self) -> &mut [T] {
        match self {
            LocalBlock::Dense(x) => x.as_slice_mut().unwrap_or_default(),
            LocalBlock::Sparse(x) => x.data_mut(),
        }
    }

    /// All stored values.
    pub fn values(&self) -> &[T] {
        self.entries().values()
    }

    /// The stored entries.
    pub fn entries(&self) -> Entries<'_, T> {
        match self {
            LocalBlock::Dense(x) => Entries::Dense(x),
            LocalBlock::Sparse(x) => Entries::Sparse(x),
        }
    }

    /// Removes the stored zeros of a sparse block.
    pub fn without_zeros(self) -> Self {
        match self {
            LocalBlock::Sparse(x) if x.data().iter().any(|v| *v == T::zero()) => {
                let (shape, mut indptr) = (x.shape(), x.indptr().raw_storage().to_vec());
                let (_, indices, values) = x.into_raw_storage();
                let (mut indices, mut values) = (indices.into_vec(), values.into_vec());
                let (mut from, mut to) = (0, 0);
                for end in &mut indptr[1..] {
                    while from < *end {
                        if values[from] != T::zero() {
                            (indices[to], values[to]) = (indices[from], values[from]);
                            to += 1;
                        }
                        from += 1;
                    }
                    *end = to;
                }
                indices.truncate(to);
                values.truncate(to);
                LocalBlock::Sparse(CsrMatrix::new(shape, indptr, indices.into(), values.into()))
            }
            other => other,
        }
    }

    /// The finished block.
    pub fn finish(self) -> Block<T> {
        match self {
            LocalBlock::Dense(x) => Block::Dense(x),
            LocalBlock::Sparse(x) => Block::Sparse(Csr::from_rows(x)),
        }
    }
}

/// The stored entries of a block: row-major if dense, CSR if sparse.
#[derive(Clone, Copy)]
pub enum Entries<'a, T: Real> {
    Dense(&'a Dense<T>),
    Sparse(&'a CsrMatrix<T>),
}

impl<'a, T: Real> Entries<'a, T> {
    /// The entries of a block; `None` if it is Boolean.
    pub fn of(block: &'a Block<T>) -> Option<Self> {
        match block {
            Block::Dense(x) => Some(Entries::Dense(x)),
            Block::Sparse(x) => Some(Entries::Sparse(x.matrix())),
            Block::Bits(_) => None,
        }
    }

    /// The number of rows, or of columns.
    pub fn lines(self, of_columns: bool) -> usize {
        let (rows, cols) = match self {
            Entries::Dense(x) => x.dim(),
            Entries::Sparse(x) => x.shape(),
        };
        if of_columns { cols } else { rows }
    }

    /// All stored values.
    pub fn values(self) -> &'a [T] {
        match self {
            Entries::Dense(x) => x.as_slice().unwrap_or_default(),
            Entries::Sparse(x) => x.data(),
        }
    }

    /// Calls `f` for each row that has stored values in `range`: with the row index; the first column and `None` if the
    /// columns are consecutive, otherwise 0 and the column of each value; and the values.
    pub fn for_each_row_of(self, range: Range<usize>, mut f: impl FnMut(usize, usize, Option<&[i32]>, &[T])) {
        let values = self.values();
        match self {
            Entries::Dense(x) => {
                let width = x.ncols().max(1);
                for row in range.start / width..range.end.div_ceil(width) {
                    let part = range.start.max(row * width)..range.end.min((row + 1) * width);
                    f(row, part.start - row * width, None, &values[part]);
                }
            }
            Entries::Sparse(x) => {
                let (indptr, places) = (x.indptr(), x.indices());
                let starts = indptr.raw_storage();
                let first = starts.partition_point(|&start| start <= range.start).saturating_sub(1);
                for (row, bounds) in starts.windows(2).enumerate().skip(first) {
                    if bounds[0] >= range.end {
                        break;
                    }
                    let part = range.start.max(bounds[0])..range.end.min(bounds[1]);
                    f(row, 0, Some(&places[part.clone()]), &values[part]);
                }
            }
        }
    }
}

/// Collects the entries of one tile.
pub struct TileBuilder<T: Real> {
    tile: Tile,
    storage: Storage<T>,
}

enum Storage<T: Real> {
    Dense(Array2<T>),
    Sparse { rows: Vec<u32>, cols: Vec<i32>, values: Vec<T> },
}

/// Zeros in the stored shape of a tile.
pub fn zeros<T: Real>(tile: &Tile) -> Array2<T> {
    let (rows, cols) = tile.stored_shape();
    Order::RowMajor.zeros(rows, cols)
}

impl<T: Real> TileBuilder<T> {
    /// A builder of a sparse tile with at most `entries` entries.
    pub fn sparse(tile: &Tile, entries: usize) -> Self {
        let (mut cols, mut values) = (Vec::with_capacity(entries), Vec::with_capacity(entries));
        large_pages(cols.spare_capacity_mut());
        large_pages(values.spare_capacity_mut());
        let storage = Storage::Sparse { rows: Vec::with_capacity(entries), cols, values };
        TileBuilder { tile: tile.clone(), storage }
    }

    /// A builder of a dense tile.
    pub fn dense(tile: &Tile) -> Self {
        TileBuilder { tile: tile.clone(), storage: Storage::Dense(zeros(tile)) }
    }

    /// Adds entry (i, j) of the whole matrix.
    #[inline]
    pub fn push(&mut self, i: usize, j: usize, value: T) {
        let (i, j) = (i - self.tile.rows.start, j - self.tile.cols.start);
        let (a, b) = if self.tile.transposed { (j, i) } else { (i, j) };
        match &mut self.storage {
            Storage::Dense(x) => x[[a, b]] = value,
            Storage::Sparse { rows, cols, values } => {
                rows.push(a as u32);
                cols.push(b as i32);
                values.push(value);
            }
        }
    }

    /// The block, and the number of entries that were added to another one at the same position.
    ///
    /// # Errors
    /// If the arrays do not form a matrix, which would be a bug.
    pub fn finish(self, combine: Combine) -> Result<(LocalBlock<T>, u64)> {
        let (rows, cols, values) = match self.storage {
            Storage::Dense(x) => return Ok((LocalBlock::Dense(x.into()), 0)),
            Storage::Sparse { rows, cols, values } => (rows, cols, values),
        };
        let shape = self.tile.stored_shape();
        let (mut indptr, mut cols, mut values) = into_rows(&rows, cols, values, shape.0);
        drop(rows);
        let duplicates = sort_rows(&mut indptr, &mut cols, &mut values, combine);
        let matrix = CsrMatrix::try_new(shape, indptr, cols.into(), values.into())
            .map_err(|(_, _, _, e)| Error::failed(format!("a sparse block of the input: {e}")))?;
        Ok((LocalBlock::Sparse(matrix), duplicates))
    }
}

/// Moves the entries to their rows, and returns the start of each row first. The order within a row remains.
fn into_rows<T: Real>(rows: &[u32], cols: Vec<i32>, values: Vec<T>, count: usize) -> (Vec<usize>, Vec<i32>, Vec<T>) {
    let mut indptr = vec![0usize; count + 1];
    rows.iter().for_each(|&r| indptr[r as usize + 1] += 1);
    for i in 0..count {
        indptr[i + 1] += indptr[i];
    }
    if rows.is_sorted() {
        return (indptr, cols, values);
    }
    let (cols, values) = (moved(rows, &indptr, cols), moved(rows, &indptr, values));
    (indptr, cols, values)
}

/// The items in the order of their rows. Swaps in place would save a copy, and would read memory in random order.
fn moved<E: Copy + Default>(rows: &[u32], indptr: &[usize], items: Vec<E>) -> Vec<E> {
    let mut out = vec![E::default(); items.len()];
    large_pages(&out);
    let mut next = indptr.to_vec();
    for (&row, item) in rows.iter().zip(items) {
        out[next[row as usize]] = item;
        next[row as usize] += 1;
    }
    out
}

/// The value of a position that several entries have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    Sum,
    /// That of the known ones.
    Mean,
}

impl Combine {
    fn value(self, all: impl Iterator<Item = f64> + Clone) -> f64 {
        let known = all.clone().filter(|x| !x.is_nan());
        match self {
            Combine::Sum => all.sum(),
            Combine::Mean => known.clone().sum::<f64>() / known.count() as f64,
        }
    }
}

/// Sorts each row by column and combines duplicates, in ascending order so that the result does not depend on the order of
/// arrival. Returns the number of duplicates.
pub fn sort_rows<T: Real>(indptr: &mut [usize], cols: &mut Vec<i32>, values: &mut Vec<T>, combine: Combine) -> u64 {
    let mut row: Vec<(i32, T)> = Vec::new();
    let mut to = 0;
    let mut begin = 0;
    for end in indptr.iter_mut().skip(1) {
        let range = begin..*end;
        begin = *end;
        if cols[range.clone()].windows(2).all(|w| w[0] < w[1]) {
            if to != range.start {
                cols.copy_within(range.clone(), to);
                values.copy_within(range.clone(), to);
            }
            to += range.len();
        } else {
            row.clear();
            row.extend(range.clone().map(|at| (cols[at], values[at])));
            row.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.as_f64().total_cmp(&b.1.as_f64())));
            for same in row.chunk_by(|a, b| a.0 == b.0) {
                cols[to] = same[0].0;
                values[to] = rounded(combine.value(same.iter().map(|e| e.1.as_f64())));
                to += 1;
            }
        }
        *end = to;
    }
    let duplicates = (cols.len() - to) as u64;
    cols.truncate(to);
    values.truncate(to);
    duplicates
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_are_those_of_a_dense_sum(
            entries in proptest::collection::vec((0usize..6, 0usize..5, 1u32..9), 0..60),
            transposed in any::<bool>(),
        ) {
            let tile = Tile { rows: 10..16, cols: 20..25, transposed };
            let mut builder = TileBuilder::<f64>::sparse(&tile, entries.len());
            let mut table = Array2::<f64>::zeros((6, 5));
            for &(i, j, v) in &entries {
                builder.push(10 + i, 20 + j, f64::from(v));
                table[[i, j]] += f64::from(v);
            }
            let distinct = table.iter().filter(|&&x| x != 0.0).count();
            let (local, duplicates) = builder.finish(Combine::Sum).unwrap();
            prop_assert_eq!(duplicates as usize, entries.len() - distinct);
            let LocalBlock::Sparse(matrix) = local else { panic!("sparse") };
            let dense = matrix.to_dense();
            prop_assert_eq!(if transposed { dense.reversed_axes() } else { dense }, table);
        }
    }

    #[test]
    fn zeros_are_dropped() {
        let tile = Tile { rows: 0..2, cols: 0..3, transposed: false };
        let mut builder = TileBuilder::<f32>::sparse(&tile, 4);
        for (i, j, v) in [(1, 2, 0.0), (1, 0, 3.0), (0, 1, 0.0), (0, 0, 1.0)] {
            builder.push(i, j, v);
        }
        let LocalBlock::Sparse(x) = builder.finish(Combine::Sum).unwrap().0.without_zeros() else { panic!("sparse") };
        assert_eq!((x.nnz(), x.get(1, 0), x.get(1, 2)), (2, Some(&3.0), None));
    }
}
