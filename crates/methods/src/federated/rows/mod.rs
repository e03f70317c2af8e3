//! Federated methods with private rows: FNMF ([`fnmf`]) and its baselines ([`baselines`]), which share rounds and server;
//! and joint NMF with shared and own components ([`inmf`]), whose sums are exact.

pub mod baselines;
pub mod fnmf;
pub mod inmf;
