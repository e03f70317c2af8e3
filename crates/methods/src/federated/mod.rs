//! Methods whose blocks of the data belong to parties: columns, rows, or columns at the nodes of a graph.

pub mod columns;
pub mod graph;
pub mod rows;

use ndarray::Array2;

/// All entries of a factor in memory order.
fn entries<T>(factor: &Array2<T>) -> &[T] {
    factor.as_slice_memory_order().expect("factors are contiguous")
}

/// As [`entries`].
fn entries_mut<T>(factor: &mut Array2<T>) -> &mut [T] {
    factor.as_slice_memory_order_mut().expect("factors are contiguous")
}
