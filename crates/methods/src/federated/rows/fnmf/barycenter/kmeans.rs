//! Lloyd's k-means on the rows of all V_j: a baseline without one-to-one correspondence. Its centres come in any order.

use fednmf_base::error::SharedResult;
use fednmf_linalg::Real;
use fednmf_linalg::random::{Purpose, Stream};

use super::server::Server;

/// Turns at most.
const TURNS: usize = 50;
/// Relative fall of the loss below which it has come to rest.
const REST: f64 = 1e-9;

/// V̄ ← the centres, from k random rows.
pub fn run<T: Real>(server: &mut Server<T>, round: usize) -> SharedResult<()> {
    random_rows(server, round)?;
    let (k, n) = (server.k, server.n);
    let mut last = f64::INFINITY;
    for _ in 0..TURNS {
        let Server { uploads, aligner, mean, .. } = server;
        for upload in uploads.iter_mut().filter(|u| u.active) {
            upload.share.fill(T::zero());
            let distances = aligner.distances2(&upload.values.view(), &mean.view());
            let mut loss = 0.0;
            for (row, distances) in upload.values.rows().into_iter().zip(distances.chunks_exact(k)) {
                let nearest = (0..k).min_by(|&a, &b| distances[a].total_cmp(&distances[b])).expect("k > 0");
                loss += distances[nearest];
                let sum = &mut upload.share[nearest * n..(nearest + 1) * n];
                sum.iter_mut().zip(row).for_each(|(s, x)| *s += *x);
                upload.share[k * n + nearest] += T::one();
            }
            upload.share[k * n + k] = T::from_f64(loss);
        }
        server.sum()?;
        let (loss, _) = server.divide();
        if loss >= last * (1.0 - REST) {
            break;
        }
        last = loss;
    }
    Ok(())
}

/// V̄ ← k different rows of the active parties' matrices, drawn from the public seed.
pub fn random_rows<T: Real>(server: &mut Server<T>, round: usize) -> SharedResult<()> {
    let (k, n) = (server.k, server.n);
    let mut cursor = Stream::new(server.seed, Purpose::Start, round as u64).at(0);
    let all = (server.active.len() * k) as u64;
    server.uploads.iter_mut().for_each(|u| u.share.fill(T::zero()));
    // Rows without replacement: a draw among those left, counted up past the ones taken before it.
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
