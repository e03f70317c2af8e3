//! What several methods share: parameters, starts, steps, sums over parties, extrapolation, penalties, missing entries,
//! differential privacy.

pub mod alternating;
pub mod dp;
pub mod extrapolation;
pub mod grid;
pub mod init;
pub mod least_squares;
pub mod missing;
pub mod regularization;
pub mod row_exchange;
pub mod row_stream;
pub mod secure_sum;
pub mod sizes;
pub mod sketched_step;
pub mod stationarity;
