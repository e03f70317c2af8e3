//! Attacks: computations on what a party receives. They are independent of methods and files; `fednmf audit attack`
//! applies them to recorded views.
//!
//! - [`linear`]: the least-norm solution of known linear equations.
//! - [`pursuit`]: bounded entries, of which many are zero, from few equations.
//! - [`lattice`]: integers from few equations.
//! - [`dynamics`]: fits data and factors to all sums of a run.
//! - [`neighbour`]: a neighbour's factor from weighted differences, and its products from the steps of a round.
//! - [`subset_sums`]: whole-number columns from sums with unknown weights.
//! - [`space`]: the space that sums span; membership in it, and completion of a column.
//! - [`candidates`]: which vectors of a list make up sums.
//! - [`deviations`]: standardised deviations from what vectors have in common, for membership.
//! - [`rare`]: entries that few hidden vectors have.
//! - [`quadratic`]: columns of zeros and ones in a space.
//! - [`sparse_columns`]: sparse columns in a space.
//! - [`row_spans`]: rows of parties with few of them, from the factors of all rounds.
//! - [`differencing`]: two sums over sets of parties that differ by one.
//! - [`membership`]: whether a row was among those that a factor was fitted to.
//! - [`noised`]: columns from sums under noise of known variance.
//! - [`distinguishing`]: a lower bound on ε from runs on neighbouring data.

pub mod candidates;
pub mod deviations;
pub mod differencing;
pub mod distinguishing;
pub mod dynamics;
pub mod lattice;
pub mod linear;
pub mod membership;
pub mod neighbour;
pub mod noised;
pub mod pursuit;
pub mod quadratic;
pub mod rare;
pub mod ratios;
pub mod row_spans;
pub mod space;
pub mod sparse_columns;
pub mod subset_sums;
