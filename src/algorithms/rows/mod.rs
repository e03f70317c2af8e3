//! Federated methods with private rows: FNMF and its baselines.

pub mod fedavg;
pub mod fedprox;
pub mod fnmf;
pub mod ipalm;
pub mod mur;
