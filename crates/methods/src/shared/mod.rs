//! What several methods share: parameters, starts, steps, sums over parties, extrapolation, penalties, missing entries,
//! differential privacy.

pub mod alternating;
pub mod dp;
pub mod exact_method;
pub mod extrapolated;
pub mod extrapolation;
pub mod factor_side;
pub mod grid;
pub mod init;
pub mod least_squares;
pub mod missing;
pub mod rank_data;
pub mod regularization;
pub mod row_exchange;
pub mod sampled_product;
pub mod secure_sum;
pub mod sizes;
pub mod sketched_step;
pub mod stationarity;
