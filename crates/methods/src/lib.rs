//! The methods, by how the data is split, and the registry that lists them.
//!
//! From below: [`description`], [`parameters`] and [`cost`] are vocabulary; [`algorithm`] is a factorisation in
//! progress; [`shared`] is what several methods use; [`method`] is the type of a method's parameters; the families implement it, and [`registry`] imports them all.

pub mod algorithm;
pub mod boolean;
pub mod cost;
pub mod description;
pub mod distributed;
pub mod federated;
pub mod method;
pub mod metrics;
pub mod mixed_precision;
pub mod parameters;
pub mod precision;
pub mod registry;
pub mod shared;

pub use algorithm::{Algorithm, Asynchronous, Forecast, Measures, Problem};
