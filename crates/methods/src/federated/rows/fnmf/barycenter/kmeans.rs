//! Lloyd's k-means on the rows of all V_j: a baseline without one-to-one correspondence. The order of centres is arbitrary.

use fednmf_base::error::SharedResult;
use fednmf_linalg::Real;
use fednmf_linalg::random::{Purpose, Stream};

use super::server::Server;

/// Maximum number of iterations.
const MAX_ITERATIONS: usize = 50;
/// Relative decrease of the loss below which the iteration has converged.
const TOLERANCE: f64 = 1e-9;

/// V̄ ← the centres, starting from k random rows.
pub fn run<T: Real>(server: &mut Server<T>, round: usize) -> SharedResult<()> {
    random_rows(server, round)?;
    let mut last = f64::INFINITY;
    for _ in 0..MAX_ITERATIONS {
        let loss = update_centres(server, |distances, add| {
            let nearest = (0..distances.len()).min_by(|&a, &b| distances[a].total_cmp(&distances[b]));
            add(nearest.expect("k > 0"), 1.0);
        })?;
        if loss >= last * (1.0 - TOLERANCE) {
            break;
        }
        last = loss;
    }
    Ok(())
}

/// V̄ ← the weighted means of the active parties' rows: `assign` gets the squared distances of a row from all centres, and
/// adds the row to centres with weights. Returns the weighted sum of the squared distances. Collective.
pub fn update_centres<T: Real>(
    server: &mut Server<T>,
    assign: impl Fn(&[f64], &mut dyn FnMut(usize, f64)),
) -> SharedResult<f64> {
    let Server { uploads, aligner, mean, k, n, .. } = server;
    let (k, n) = (*k, *n);
    for upload in uploads.iter_mut().filter(|u| u.active) {
        upload.share.fill(T::zero());
        let distances = aligner.distances2(&upload.values.view(), &mean.view());
        let (sums, rest) = upload.share.split_at_mut(k * n);
        let mut loss = 0.0;
        for (row, distances) in upload.values.rows().into_iter().zip(distances.chunks_exact(k)) {
            assign(distances, &mut |l, weight| {
                loss += weight * distances[l];
                let weight = T::from_f64(weight);
                sums[l * n..(l + 1) * n].iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * *x);
                rest[l] += weight;
            });
        }
        rest[k] = T::from_f64(loss);
    }
    server.sum()?;
    Ok(server.divide().0)
}

/// V̄ ← k different rows of the active parties' matrices, drawn from the public seed.
pub fn random_rows<T: Real>(server: &mut Server<T>, round: usize) -> SharedResult<()> {
    let (k, n) = (server.k, server.n);
    let mut cursor = Stream::new(server.seed, Purpose::Start, round as u64).at(0);
    let all = (server.active.len() * k) as u64;
    server.uploads.iter_mut().for_each(|u| u.share.fill(T::zero()));
    // Rows without replacement: a draw among the remaining rows, shifted past the ones taken before it.
    let mut taken: Vec<u64> = Vec::with_capacity(k);
    for l in 0..k {
        let mut row = cursor.below(all - l as u64);
        for &t in &taken {
            row += u64::from(t <= row);
        }
        taken.push(row);
        taken.sort_unstable();
        let (position, r) = ((row / k as u64) as usize, (row % k as u64) as usize);
        if let Some(at) = server.local(position) {
            let upload = &mut server.uploads[at];
            let place = &mut upload.share[l * n..(l + 1) * n];
            place.iter_mut().zip(upload.values.row(r)).for_each(|(x, v)| *x = *v);
            upload.share[k * n + l] = T::one();
        }
    }
    server.sum()?;
    server.divide();
    Ok(())
}
