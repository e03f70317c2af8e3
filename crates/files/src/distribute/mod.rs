//! From parts of files and generators to the blocks of ranks and parties, in rounds of bounded size.
//!
//! [`request`] states what is to be loaded and what each rank receives. [`files`] reads files and [`synthesize`] generates
//! a synthetic matrix. Entries of a file are exchanged in one of two ways: [`dense`] exchanges rectangles, [`triplets`]
//! exchanges single entries with their positions, which [`scatter`] distributes if only one rank can read the file.
//! [`route`] determines the destination of an entry, and [`assemble`] builds the blocks; [`traffic`] counts the traffic of
//! each grid, to choose one. [`quantile`] and [`statistics`] are computed from the finished blocks of all ranks; the
//! statistics add up each rank's [`tally`] of [`totals`], which can begin while entries arrive.

pub mod dense;
pub mod files;
pub mod request;
pub mod route;
pub mod scatter;
pub mod synthesize;
pub mod triplets;
