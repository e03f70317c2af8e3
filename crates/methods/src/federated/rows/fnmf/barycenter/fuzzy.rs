//! Fuzzy c-means (Dunn 1974) with the usual exponent 2 on the rows of all V_j: a baseline.

use fednmf_base::error::SharedResult;
use fednmf_linalg::Real;

use super::kmeans::update_centres;
use super::server::Server;

/// Maximum number of iterations.
const MAX_ITERATIONS: usize = 100;
/// Relative change of the loss below which the iteration has converged.
const TOLERANCE: f64 = 1e-9;

/// V̄ ← the centres, starting from the last V̄. In the first round the start is the components of one party, which are k
/// distinct ones. From k random rows, some of which may be the same component, soft centres would coincide and remain
/// equal.
pub fn run<T: Real>(server: &mut Server<T>, first_round: bool) -> SharedResult<()> {
    if first_round {
        if let Some(at) = server.local(0) {
            let upload = &mut server.uploads[at];
            upload.share.iter_mut().zip(&upload.values).for_each(|(x, v)| *x = *v);
        }
        server.publish(0)?;
    }
    let mut last = f64::INFINITY;
    for _ in 0..MAX_ITERATIONS {
        let loss = update_centres(server, |distances, add| {
            // Memberships 1/d_l² over their sum; a row that equals a centre belongs only to this one.
            let smallest = distances.iter().fold(f64::INFINITY, |a, &b| a.min(b)).max(f64::MIN_POSITIVE);
            let whole: f64 = distances.iter().map(|d| smallest / d.max(f64::MIN_POSITIVE)).sum();
            for (l, d) in distances.iter().enumerate() {
                let membership = smallest / d.max(f64::MIN_POSITIVE) / whole;
                add(l, membership * membership);
            }
        })?;
        if (last - loss).abs() <= TOLERANCE * last {
            break;
        }
        last = loss;
    }
    Ok(())
}
