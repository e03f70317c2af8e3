//! Fuzzy c-means (Dunn 1974) with the usual exponent 2 on the rows of all V_j: the other baseline.

use fednmf_base::error::Result;
use fednmf_linalg::Real;

use super::server::Server;

/// Turns at most.
const TURNS: usize = 100;
/// Relative change of the loss below which it has come to rest.
const REST: f64 = 1e-9;

/// V̄ ← the centres, starting from the last V̄. In the first round (`first_round`) they start from the components of one
/// party, which are k distinct ones. From k random rows, some of which are the same component, soft centres coincide
/// and stay so.
pub fn run<T: Real>(server: &mut Server<T>, first_round: bool) -> Result<()> {
    if first_round {
        if let Some(at) = server.local(0) {
            let upload = &mut server.uploads[at];
            upload.share.iter_mut().zip(&upload.values).for_each(|(x, v)| *x = *v);
        }
        server.publish(0)?;
    }
    let (k, n) = (server.k, server.n);
    let mut last = f64::INFINITY;
    for _ in 0..TURNS {
        let Server { uploads, aligner, mean, .. } = server;
        for upload in uploads.iter_mut().filter(|u| u.active) {
            upload.share.fill(T::zero());
            let distances = aligner.distances2(&upload.values.view(), &mean.view());
            let mut loss = 0.0;
            for (row, distances) in upload.values.rows().into_iter().zip(distances.chunks_exact(k)) {
                // Memberships 1/d_l² over their sum; a row that is a centre belongs to that one alone.
                let smallest = distances.iter().fold(f64::INFINITY, |a, &b| a.min(b)).max(f64::MIN_POSITIVE);
                let whole: f64 = distances.iter().map(|d| smallest / d.max(f64::MIN_POSITIVE)).sum();
                for (l, d) in distances.iter().enumerate() {
                    let member = smallest / d.max(f64::MIN_POSITIVE) / whole;
                    let weight = member * member;
                    loss += weight * d;
                    let weight = T::from_f64(weight);
                    let sum = &mut upload.share[l * n..(l + 1) * n];
                    sum.iter_mut().zip(row).for_each(|(s, x)| *s += weight * *x);
                    upload.share[k * n + l] += weight;
                }
            }
            upload.share[k * n + k] = T::from_f64(loss);
        }
        server.sum()?;
        let (loss, _) = server.divide();
        if (last - loss).abs() <= REST * last {
            break;
        }
        last = loss;
    }
    Ok(())
}
