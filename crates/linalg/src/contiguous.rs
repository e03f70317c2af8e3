//! The entries of contiguous arrays as one slice.
//!
//! Factors, right-hand sides and Gram matrices are made by [`Order::zeros`](crate::Order::zeros) or `Array2::zeros` and keep
//! their memory order. Only this file relies on that.

use ndarray::{ArrayBase, Data, DataMut, Dimension};

/// Arrays whose entries follow each other in memory. The methods panic if they do not, or not in the required order, which
/// is a bug of the caller.
pub trait Contiguous {
    type Entry;

    /// The entries in memory order, whether row-major or column-major.
    fn entries(&self) -> &[Self::Entry];

    /// The entries of a row-major array.
    fn row_major(&self) -> &[Self::Entry];
}

/// As [`Contiguous`], for arrays that may be changed.
pub trait ContiguousMut: Contiguous {
    /// The entries in memory order, whether row-major or column-major.
    fn entries_mut(&mut self) -> &mut [Self::Entry];

    /// The entries of a row-major array.
    fn row_major_mut(&mut self) -> &mut [Self::Entry];
}

const EXPECTED: &str = "the array is contiguous in the required order";

impl<S: Data, D: Dimension> Contiguous for ArrayBase<S, D> {
    type Entry = S::Elem;

    fn entries(&self) -> &[S::Elem] {
        self.as_slice_memory_order().expect(EXPECTED)
    }

    fn row_major(&self) -> &[S::Elem] {
        self.as_slice().expect(EXPECTED)
    }
}

impl<S: DataMut, D: Dimension> ContiguousMut for ArrayBase<S, D> {
    fn entries_mut(&mut self) -> &mut [S::Elem] {
        self.as_slice_memory_order_mut().expect(EXPECTED)
    }

    fn row_major_mut(&mut self) -> &mut [S::Elem] {
        self.as_slice_mut().expect(EXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Order;

    #[test]
    fn entries_are_in_memory_order() {
        for order in [Order::RowMajor, Order::ColumnMajor] {
            let mut x = order.zeros::<f64>(2, 3);
            x[[0, 1]] = 1.0;
            let at = if order == Order::RowMajor { 1 } else { 2 };
            assert_eq!(x.entries()[at], 1.0);
            x.entries_mut()[at] = 2.0;
            assert_eq!(x[[0, 1]], 2.0);
            assert_eq!(x.as_slice().is_some(), order == Order::RowMajor);
        }
        assert_eq!(Order::RowMajor.zeros::<f64>(2, 3).row_major_mut().len(), 6);
    }
}
