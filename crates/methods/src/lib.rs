//! The methods, by how the data is split, and the registry that lists them.
//!
//! The modules depend on each other in this order: [`description`], [`parameters`] and [`cost`] are the vocabulary.
//! [`algorithm`] is a factorisation in progress, and [`decision`] is what it reports. [`shared`] holds code that several
//! methods use. [`method`] defines the trait that the families of methods implement, and [`registry`] lists all of them.

pub mod algorithm;
pub mod boolean;
pub mod cost;
pub mod decision;
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
