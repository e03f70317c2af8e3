//! What the Boolean factorisations share: A_i ≈ U_i ∘ V̂ᵀ (rows of party i × n, OR for +) with a private Boolean U_i and
//! shared Boolean components V̂, on 0/1 data.

pub mod asso;
mod cover;
pub mod elbmf_zhang;
pub mod felb;
pub mod grecond;
mod greedy;
pub mod mebf;
mod party_block;
pub mod proximal;
mod result;
mod thresholds;
pub mod vote;

use ndarray::Array2;

pub use cover::{Components, Counts, Signal, rounded};
pub use party_block::Ones;
pub use result::{COUNTS, Client, Outcome, Refit, agreement, clients, pieces, round_rows};

/// All entries of a factor, row by row.
fn slice<T>(factor: &Array2<T>) -> &[T] {
    factor.as_slice().expect("factors are row-major")
}

/// As [`slice`].
fn slice_mut<T>(factor: &mut Array2<T>) -> &mut [T] {
    factor.as_slice_mut().expect("factors are row-major")
}

/// Guarantees that the Boolean methods do not give.
const LIMITS: [&str; 2] = [
    "without --dp the components of each party are seen as they are, and are patterns of its rows;",
    "--epsilon covers what a party releases as V_i, not the statistics at loading and not evaluations (--eval-every 0).",
];
