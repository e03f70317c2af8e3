//! Methods whose blocks of the data belong to parties: columns, rows, or columns at the nodes of a graph.

pub mod columns;
pub mod few_values;
pub mod graph;
pub mod rows;
