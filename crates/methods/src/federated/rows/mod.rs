//! Federated methods with private rows: FNMF ([`fnmf`]) and the methods that it is compared with ([`baselines`]), which share
//! its rounds and its server; and joint NMF with shared and own components ([`inmf`]), whose sums are exact.

pub mod baselines;
pub mod fnmf;
pub mod inmf;
