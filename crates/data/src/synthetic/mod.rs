//! Synthetic matrices: [`spec`] describes one, [`generator`] generates any rectangle of it, with the same bits on any rank.
//! Random numbers are keyed on global indices, so each rank generates its own tiles and nothing is sent. [`pattern`] places
//! the entries of sparse kinds, [`tiles`] those of the Boolean kind, and [`graph`] draws the edges of a graph.

mod generator;
mod graph;
mod pattern;
mod spec;
mod tiles;

pub use generator::Generator;
pub use spec::{Synthetic, SyntheticKind};
pub use tiles::PlantedTiles;
