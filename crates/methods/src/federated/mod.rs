//! Methods whose blocks of the data belong to parties: columns, rows, or columns at the nodes of a graph.

pub mod columns;
pub mod graph;
pub mod rows;

use ndarray::Array2;

use fednmf_linalg::{Contiguous, ContiguousMut};

/// All entries of a factor in memory order.
fn entries<T>(factor: &Array2<T>) -> &[T] {
    factor.entries()
}

/// As [`entries`].
fn entries_mut<T>(factor: &mut Array2<T>) -> &mut [T] {
    factor.entries_mut()
}
