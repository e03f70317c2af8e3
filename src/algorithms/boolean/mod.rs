//! What the Boolean factorisations share: A_i ≈ U_i ∘ V̂ᵀ (rows of party i × n, OR for +) with a private Boolean U_i and
//! shared Boolean components V̂, on 0/1 data.

pub mod asso;
mod cover;
pub mod felb;
mod found;
pub mod grecond;
pub mod mebf;
mod ones;
pub mod proximal;
pub mod relaxed;
mod result;
mod rival;
mod thresholds;

pub use cover::{Components, Counts, Signal, rounded};
pub use ones::Ones;
pub use result::{COUNTS, Client, Outcome, clients, pieces, round_rows};
