//! Federated methods with private rows: FNMF ([`fnmf`]) and the methods that it is compared with ([`baselines`]), which share
//! its rounds and its server.

pub mod baselines;
pub mod fnmf;
