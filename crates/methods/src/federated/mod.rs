//! Methods of parties that keep their data to themselves: their blocks are columns, rows, or those of the nodes of a graph.

pub mod columns;
pub mod graph;
pub mod rows;
