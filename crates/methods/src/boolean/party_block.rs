//! A party's 0/1 block, in the forms that the methods need.

use ndarray::{ArrayView2, ArrayViewMut2};
use sprs::CsMatI;

use fednmf_base::error::{Error, Result};
use fednmf_linalg::{Bits, Block, Csr, Real};

/// A Boolean block, stored as the positions of its ones, by rows and, for products with its transpose, by columns. Both
/// products then gather rows of the factor, in the same order on any number of ranks.
pub struct Ones<T: Real> {
    by_row: Csr<T>,
    by_col: Csr<T>,
}

impl<T: Real> Ones<T> {
    /// Converts a block with entries 0 and 1.
    ///
    /// # Errors
    /// If an entry is neither 0 nor 1; the message names its position.
    pub fn new(block: Block<T>) -> Result<Self> {
        let by_row = match block {
            Block::Dense(x) => {
                let (mut starts, mut columns) = (vec![0], Vec::new());
                for (i, row) in x.rows().into_iter().enumerate() {
                    for (j, &x) in row.iter().enumerate().filter(|(_, x)| **x != T::zero()) {
                        boolean(x, (i, j))?;
                        columns.push(j as i32);
                    }
                    starts.push(columns.len());
                }
                let ones = vec![T::one(); columns.len()];
                CsMatI::new(x.dim(), starts, columns, ones)
            }
            Block::Sparse(x) => {
                x.matrix().iter().try_for_each(|(&x, (i, j))| boolean(x, (i as usize, j as usize)))?;
                // Stored zeros would count as ones.
                if x.matrix().data().contains(&T::zero()) {
                    return Ones::new(Block::Bits(to_bits(&x)));
                }
                x.matrix().to_owned()
            }
            Block::Bits(x) => {
                let (rows, cols) = x.shape();
                let (mut starts, mut columns) = (vec![0], Vec::with_capacity(x.count()));
                for i in 0..rows {
                    columns.extend(x.ones(i).map(|j| j as i32));
                    starts.push(columns.len());
                }
                let ones = vec![T::one(); columns.len()];
                CsMatI::new((rows, cols), starts, columns, ones)
            }
        };
        let by_col = by_row.to_csc().transpose_into();
        Ok(Ones { by_row: Csr::new(by_row), by_col: Csr::new(by_col) })
    }

    pub fn shape(&self) -> (usize, usize) {
        self.by_row.shape()
    }

    /// Number of ones.
    pub fn count(&self) -> usize {
        self.by_row.matrix().nnz()
    }

    /// The columns of the ones of row i, ascending.
    pub fn row(&self, i: usize) -> &[i32] {
        let starts = self.by_row.matrix().indptr().into_raw_storage();
        &self.by_row.matrix().indices()[starts[i]..starts[i + 1]]
    }

    /// The rows of the ones of column j, ascending.
    pub fn column(&self, j: usize) -> &[i32] {
        let starts = self.by_col.matrix().indptr().into_raw_storage();
        &self.by_col.matrix().indices()[starts[j]..starts[j + 1]]
    }

    /// out = X V, with V (cols × k) and out (rows × k) row-major.
    pub fn mul(&self, v: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        self.by_row.mul(v, out);
    }

    /// out = XᵀU, with U (rows × k) and out (cols × k) row-major.
    pub fn tmul(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        self.by_col.mul(u, out);
    }

    /// The same block with one bit per entry.
    pub fn bits(&self) -> Bits {
        to_bits(&self.by_row)
    }
}

fn to_bits<T: Real>(x: &Csr<T>) -> Bits {
    let (rows, cols) = x.shape();
    let mut bits = Bits::zeros(rows, cols);
    x.matrix().iter().filter(|(x, _)| **x != T::zero()).for_each(|(_, (i, j))| bits.set(i as usize, j as usize));
    bits
}

/// Checks an entry. All parties see the error, so it contains the position of the entry but not its value.
fn boolean<T: Real>(x: T, (i, j): (usize, usize)) -> Result<()> {
    if x == T::one() || x == T::zero() {
        return Ok(());
    }
    Err(Error::input(format!(
        "the entry in row {i} and column {j} is neither 0 nor 1; --binarize T makes entries of at least T ones and all others \
         zeros"
    )))
}
