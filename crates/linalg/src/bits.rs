//! The Boolean block: one bit per entry, 64 per word; every row starts at a word.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use super::real::Real;

/// A Boolean block, rows × cols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits {
    rows: usize,
    cols: usize,
    /// Words of a row.
    width: usize,
    words: Vec<u64>,
}

impl Bits {
    /// A block of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        let width = cols.div_ceil(64);
        Bits { rows, cols, width, words: vec![0; rows * width] }
    }

    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Sets entry (i, j) to 1.
    pub fn set(&mut self, i: usize, j: usize) {
        assert!(j < self.cols, "column {j} of {}", self.cols);
        self.row_mut(i)[j / 64] |= 1 << (j % 64);
    }

    /// Whether entry (i, j) is 1.
    pub fn get(&self, i: usize, j: usize) -> bool {
        assert!(j < self.cols, "column {j} of {}", self.cols);
        self.row(i)[j / 64] >> (j % 64) & 1 == 1
    }

    /// The words of row i; bits beyond the last column are zero.
    pub fn row(&self, i: usize) -> &[u64] {
        &self.words[i * self.width..(i + 1) * self.width]
    }

    /// The words of row i; bits beyond the last column must stay zero.
    pub fn row_mut(&mut self, i: usize) -> &mut [u64] {
        &mut self.words[i * self.width..(i + 1) * self.width]
    }

    /// The transpose.
    pub fn transposed(&self) -> Bits {
        let mut out = Bits::zeros(self.cols, self.rows);
        for i in 0..self.rows {
            self.ones(i).for_each(|j| out.set(j, i));
        }
        out
    }

    /// The columns of the ones in row i, ascending.
    pub fn ones(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        self.row(i).iter().enumerate().flat_map(|(w, &word)| {
            std::iter::successors((word != 0).then_some(word), |&x| Some(x & (x - 1)).filter(|&y| y != 0))
                .map(move |x| w * 64 + x.trailing_zeros() as usize)
        })
    }

    /// Number of ones.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// out = X_S·B for selected rows S of X, B cols × k and out |S| × k.
    pub fn rows_mul<T: Real>(&self, rows: impl Iterator<Item = usize>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        for (i, mut out) in rows.zip(out.rows_mut()) {
            out.fill(T::zero());
            self.ones(i).for_each(|j| out += &b.row(j));
        }
    }

    /// out += (X_S)ᵀB for selected rows S of X, B |S| × k and out cols × k.
    pub fn rows_tmul_add<T: Real>(
        &self,
        rows: impl Iterator<Item = usize>,
        b: &ArrayView2<T>,
        out: &mut ArrayViewMut2<T>,
    ) {
        for (i, b) in rows.zip(b.rows()) {
            self.ones(i).for_each(|j| out.row_mut(j).scaled_add(T::one(), &b));
        }
    }

    /// The block as a matrix of numbers 0 and 1.
    pub fn to_dense<T: Real>(&self) -> Array2<T> {
        let mut out = Array2::zeros((self.rows, self.cols));
        for i in 0..self.rows {
            for j in self.ones(i) {
                out[[i, j]] = T::one();
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_are_found_across_words() {
        let mut bits = Bits::zeros(2, 130);
        for j in [0, 63, 64, 127, 129] {
            bits.set(1, j);
        }
        assert_eq!(bits.ones(1).collect::<Vec<_>>(), [0, 63, 64, 127, 129]);
        assert_eq!(bits.ones(0).count(), 0);
        assert_eq!(bits.count(), 5);
        assert!(bits.get(1, 127) && !bits.get(1, 126));
        assert_eq!(bits.to_dense::<f64>().sum(), 5.0);
    }
}
