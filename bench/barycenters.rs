//! Barycenters of permuted copies of one matrix, as in Figure 1 of the FNMF paper: for each server the loss (4), with its
//! own alignment and with the best permutation, the distance to the truth, the orthogonality gap and the seconds, as CSV.
//! `cargo bench --bench barycenters -- SEEDS`; `bench/run barycenters` checks the paper's claims with it.

use std::time::Instant;

use ndarray::Array2;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use fednmf_comm::{Communicator, Parties, PartyCommunicator};
use fednmf_methods::federated::rows::fnmf::align::{Aligner, Alignment};
use fednmf_methods::federated::rows::fnmf::barycenter::{Barycenter, Server};

const K: usize = 10;
const N: usize = 100;
const CLIENTS: [usize; 3] = [4, 16, 64];
/// Standard deviation of the noise of each copy, of which the positive part is added.
const CASES: [(&str, f64); 3] = [("ideal", 0.0), ("realistic", 0.3), ("noisy", 1.0)];
const SERVERS: [(&str, Alignment, Barycenter); 8] = [
    ("LAP", Alignment::Lap, Barycenter::FixedPoint),
    ("LAP-rho", Alignment::LapRho, Barycenter::FixedPoint),
    ("SK", Alignment::Sinkhorn, Barycenter::FixedPoint),
    ("k-NN", Alignment::Knn, Barycenter::FixedPoint),
    ("greedy", Alignment::Lap, Barycenter::Greedy),
    ("tree", Alignment::Lap, Barycenter::Tree),
    ("KMC", Alignment::Lap, Barycenter::Kmeans),
    ("FCM", Alignment::Lap, Barycenter::Fuzzy),
];

/// A standard normal number (Box and Muller).
fn normal(rng: &mut impl Rng) -> f64 {
    let (u, angle) = (1.0 - rng.random::<f64>(), std::f64::consts::TAU * rng.random::<f64>());
    (-2.0 * u.ln()).sqrt() * angle.cos()
}

/// K components (rows) with dense blocks: 5 to 20 % of the N columns, entries from U(0.5, 1.5).
fn truth(rng: &mut impl Rng) -> Array2<f64> {
    let mut v = Array2::zeros((K, N));
    let mut columns: Vec<usize> = (0..N).collect();
    for mut row in v.rows_mut() {
        columns.shuffle(rng);
        for &j in &columns[..rng.random_range(N / 20..=N / 5)] {
            row[j] = 0.5 + rng.random::<f64>();
        }
    }
    v
}

/// The rows of `v` in random order, with the positive part of noise.
fn copy(v: &Array2<f64>, noise: f64, rng: &mut impl Rng) -> Array2<f64> {
    let mut order: Vec<usize> = (0..K).collect();
    order.shuffle(rng);
    let mut copy = Array2::zeros((K, N));
    for (mut row, &from) in copy.rows_mut().into_iter().zip(&order) {
        for (x, y) in row.iter_mut().zip(v.row(from)) {
            *x = y + (noise * normal(rng)).max(0.0);
        }
    }
    copy
}

/// ‖A − P B‖² with the best permutation P.
fn distance2(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    let (mut aligner, mut moved) = (Aligner::new(Alignment::Lap, K), Array2::zeros((K, N)));
    aligner.align(&a.view(), &b.view());
    aligner.apply(&b.view(), &mut moved.view_mut());
    (a - &moved).iter().map(|d| d * d).sum()
}

fn main() {
    let seeds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(10);
    println!("case,server,clients,seed,loss,permutation_loss,distance,gap,seconds");
    for (case, noise) in CASES {
        for clients in CLIENTS {
            for seed in 0..seeds {
                let rng = &mut Pcg64::seed_from_u64(seed);
                let v = truth(rng);
                let copies: Vec<_> = (0..clients).map(|_| copy(&v, noise, rng)).collect();
                for (name, how, kind) in SERVERS {
                    let comm = PartyCommunicator::new(Communicator::local());
                    let parties = Parties { count: clients, ranks: 1 };
                    let mut aligner = Aligner::new(how, K);
                    let mut server = Server::new(&comm, parties, seed, (K, N), aligner.clone());
                    server.open(0..clients);
                    for (party, copy) in copies.iter().enumerate() {
                        server.take(party, &copy.view(), |_| false);
                    }
                    let start = Instant::now();
                    server.aggregate(kind, 0).expect("finite sums");
                    let seconds = start.elapsed().as_secs_f64();
                    let loss = server.loss().expect("finite sums");
                    let permutation: f64 = copies.iter().map(|c| 0.5 * distance2(&server.mean, c)).sum();
                    let gap = copies.iter().map(|copy| {
                        aligner.reset();
                        aligner.align(&server.mean.view(), &copy.view());
                        aligner.orthogonality_gap()
                    });
                    let gap = gap.sum::<f64>() / clients as f64;
                    let distance = distance2(&server.mean, &v).sqrt();
                    println!("{case},{name},{clients},{seed},{loss},{permutation},{distance},{gap},{seconds}");
                }
            }
        }
    }
}
