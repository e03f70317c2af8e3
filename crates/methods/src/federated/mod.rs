//! Methods whose blocks of the data belong to parties: columns, rows, columns at the nodes of a graph, or secret shares.

pub mod columns;
pub mod few_values;
pub mod graph;
pub mod mpc;
pub mod rows;
