//! The memory order of factors.

use ndarray::{Array2, ShapeBuilder};

use super::contiguous::Contiguous;
use super::memory::large_pages;
use super::real::Real;

/// Memory order of a rows × k factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The k entries of each row are contiguous (C order).
    RowMajor,
    /// The entries of each component are contiguous (Fortran order).
    ColumnMajor,
}

impl Order {
    /// A rows × k matrix of zeros in this order.
    pub fn zeros<T: Real>(self, rows: usize, k: usize) -> Array2<T> {
        let zeros = Array2::zeros((rows, k).set_f(self == Order::ColumnMajor));
        large_pages(zeros.entries());
        zeros
    }
}
