//! Federated methods with private rows: FNMF ([`fnmf`]) and its baselines ([`baselines`]), which share rounds and server;
//! joint NMF with shared and own components ([`inmf`]) and the divergences ([`divergence`]), whose sums are exact.

pub mod baselines;
pub mod divergence;
pub mod fnmf;
pub mod inmf;
