//! Sparse matrices that own their entries, or borrow those of a caller for as long as the matrix exists.

use std::ops::{Deref, DerefMut};

use sprs::{CsMatBase, CsMatI};

use super::real::Real;

/// A sparse matrix by rows, with i32 column indices sorted in each row.
pub type CsrMatrix<T> = CsMatBase<T, i32, Vec<usize>, CowSlice<i32>, CowSlice<T>, usize>;

/// A matrix that owns its entries, from one in the CSR format.
pub fn owned_rows<T: Real>(matrix: CsMatI<T, i32, usize>) -> CsrMatrix<T> {
    assert!(matrix.is_csr(), "the matrix is stored by rows");
    let shape = matrix.shape();
    let (starts, indices, values) = matrix.into_raw_storage();
    CsMatBase::new(shape, starts, indices.into(), values.into())
}

/// A slice that is owned or borrowed; changing a borrowed one copies it.
#[derive(Debug, Clone)]
pub enum CowSlice<T: Clone + 'static> {
    Owned(Vec<T>),
    Borrowed(&'static [T]),
}

impl<T: Clone> CowSlice<T> {
    /// The elements, copied if they are borrowed.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            CowSlice::Owned(all) => all,
            CowSlice::Borrowed(all) => all.to_vec(),
        }
    }
}

impl<T: Clone> Deref for CowSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            CowSlice::Owned(all) => all,
            CowSlice::Borrowed(all) => all,
        }
    }
}

impl<T: Clone> DerefMut for CowSlice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if let CowSlice::Borrowed(all) = self {
            *self = CowSlice::Owned(all.to_vec());
        }
        match self {
            CowSlice::Owned(all) => all,
            CowSlice::Borrowed(_) => unreachable!("it was copied above"),
        }
    }
}

impl<T: Clone> From<Vec<T>> for CowSlice<T> {
    fn from(all: Vec<T>) -> Self {
        CowSlice::Owned(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_copies_what_is_borrowed() {
        static GIVEN: [i32; 3] = [1, 2, 3];
        let mut slice = CowSlice::Borrowed(&GIVEN);
        assert_eq!(slice.as_ptr(), GIVEN.as_ptr());
        assert_eq!(slice.clone().as_ptr(), GIVEN.as_ptr(), "a copy borrows too");
        slice[1] = 7;
        assert_eq!((&slice[..], GIVEN), (&[1, 7, 3][..], [1, 2, 3]));
        assert_eq!(slice.into_vec(), [1, 7, 3]);
    }
}
