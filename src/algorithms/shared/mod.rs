//! What several methods share: starts, steps, extrapolation, stationarity, missing entries, differential privacy.

pub mod dp;
pub mod extrapolation;
pub mod grid;
pub mod limits;
pub mod missing;
pub mod nndsvd;
pub mod sketched_step;
pub mod start;
pub mod stationarity;
