//! The fixed point of "align to V̄, then average" (FNMF, Alg. 1).

use fednmf_base::error::SharedResult;
use fednmf_linalg::Real;

use super::greedy;
use super::server::Server;

/// Maximum number of iterations.
const MAX_ITERATIONS: usize = 50;
/// Relative decrease of the loss below which the iteration has converged.
const TOLERANCE: f64 = 1e-9;

/// Iterates to the fixed point from the last V̄, from which the parties started. In the first round there are two
/// candidates, the plain mean, as printed, and the greedy barycenter; both are iterated to convergence with one-to-one
/// alignment, and the better one is kept. From the mean only, the iteration often converges to a poor fixed point if the
/// parties differ: Σ RMSD of 1.8 instead of 0.59.
pub fn run<T: Real>(server: &mut Server<T>, first_round: bool) -> SharedResult<()> {
    if first_round {
        std::mem::swap(&mut server.aligner, &mut server.first_aligner);
        let started = first(server);
        std::mem::swap(&mut server.aligner, &mut server.first_aligner);
        started?;
    }
    iterate(server)?;
    Ok(())
}

fn first<T: Real>(server: &mut Server<T>) -> SharedResult<()> {
    server.average()?;
    let from_mean = iterate(server)?;
    let kept = server.mean.clone();
    greedy::run(server)?;
    if iterate(server)? > from_mean {
        server.mean.assign(&kept);
    }
    Ok(())
}

/// Aligns and averages until the loss no longer decreases; returns the loss before the last average.
fn iterate<T: Real>(server: &mut Server<T>) -> SharedResult<f64> {
    let mut last = f64::INFINITY;
    for _ in 0..MAX_ITERATIONS {
        server.align_all();
        server.sum()?;
        let (loss, moved) = server.divide();
        // V̄ is unchanged, so every later alignment would be the same.
        if !moved || loss >= last * (1.0 - TOLERANCE) {
            return Ok(loss);
        }
        last = loss;
    }
    Ok(last)
}
