//! What the Boolean factorisations share: A_i ≈ U_i ∘ V̂ᵀ (rows of party i × n, OR for +) with a private Boolean U_i and
//! shared Boolean components V̂, on 0/1 data.

mod cover;
mod ones;
pub mod proximal;
mod result;

pub use cover::{Components, Counts, Signal, rounded};
pub use ones::Ones;
pub use result::{COUNTS, Client, Outcome, clients, pieces, private, round_rows};
