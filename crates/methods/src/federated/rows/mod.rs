//! Federated methods with private rows: FNMF ([`fnmf`]) and its baselines ([`baselines`]), which share rounds and server;
//! joint NMF with shared and own components ([`inmf`]) and the divergences ([`divergence`]), whose sums are exact.

pub mod baselines;
pub mod divergence;
pub mod fnmf;
pub mod inmf;

use crate::description::DifferentialPrivacy;

/// Limits of methods that open exact sums in each iteration.
const EXACT_SUMS: [&str; 2] = [
    "It gives no formal guarantee: no bound is known on what exact sums reveal; --secure-sum hides only their terms,",
    "and with two parties nothing. Evaluations (--eval-every 0) are sums too.",
];

/// Why these methods have no `--dp`.
const UNBOUNDED: DifferentialPrivacy =
    DifferentialPrivacy::Refused("nothing bounds what one party adds to its exact sums");
