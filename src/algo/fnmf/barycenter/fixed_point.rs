//! The fixed point of "align to V̄, then average" (Alg. 1).

use super::Server;
use crate::error::Result;
use crate::linalg::Real;

/// Turns at most.
const TURNS: usize = 50;
/// Relative fall of the loss below which it has come to rest.
const REST: f64 = 1e-9;

/// From the plain mean where `afresh` (as printed), else from the last V̄, which the parties started from.
pub fn run<T: Real>(server: &mut Server<T>, afresh: bool) -> Result<()> {
    if afresh {
        server.average()?;
    }
    let mut last = f64::INFINITY;
    for _ in 0..TURNS {
        server.align_all();
        server.sum()?;
        let loss = server.divide();
        if loss >= last * (1.0 - REST) {
            break;
        }
        last = loss;
    }
    Ok(())
}
