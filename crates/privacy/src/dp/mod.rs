//! Differential privacy of the parties' releases.
//!
//! A [`NoiseRequest`] and a bound on messages determine a [`NoisePlan`]: sensitivity, grid, scale of the noise and the
//! number of releases within the budget. [`Releases`] applies it to the messages of a run. `sampler` draws the noise
//! exactly, and `accounting` and `gaussian` compute the privacy loss.

mod accounting;
mod budget;
mod budget_key;
mod budget_scope;
mod gaussian;
mod noise_plan;
mod releases;
mod sampler;

pub use accounting::PrivacyLoss;
pub use budget::{BudgetFile, Charge, ReleasedAt, RunLoss, delta_text, round_down_text, round_up_text};
pub use budget_key::BudgetKey;
pub use budget_scope::{BudgetScope, BudgetUnit, Covers, Division, Lines};
pub use noise_plan::{Bound, ColumnBound, Mechanism, NoisePlan, NoiseRequest};
pub use releases::{BeforeRelease, ReleaseState, Releases};
pub use sampler::NOISE_KEY;

#[cfg(test)]
mod tests;
