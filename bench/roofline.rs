//! What each kernel reaches of what this machine can do: `cargo bench --bench roofline [FILTER]` prints a table.
//!
//! Machine limits are measured in the same run (large square GEMM for flops, a triad for bandwidth), and between the
//! kernels again, since another load on the machine would otherwise pass for a slow kernel. Every kernel and what it is
//! held against take turns; the best of all turns counts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fednmf::linalg::{Block, Order, Real, gemm, gram};
use ndarray::{Array2, Axis, ShapeBuilder};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// How long one comparison takes at least.
const TURN: Duration = Duration::from_millis(400);

fn random<T: Real>(rows: usize, cols: usize, order: Order) -> Array2<T> {
    let mut rng = Pcg64::seed_from_u64((rows * 31 + cols) as u64);
    Array2::from_shape_simple_fn((rows, cols).set_f(order == Order::Components), || T::of(rng.random::<f64>()))
}

/// Best seconds of each of some calls that take turns.
fn best<const N: usize>(mut calls: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    calls.iter_mut().for_each(|f| f());
    let start = Instant::now();
    let mut turns = 0;
    while turns < 3 || start.elapsed() < TURN * N as u32 {
        for (best, f) in best.iter_mut().zip(&mut calls) {
            let start = Instant::now();
            f();
            *best = best.min(start.elapsed().as_secs_f64());
        }
        turns += 1;
    }
    best
}

/// GF/s of a large square product.
fn peak<T: Real>() -> f64 {
    let n = 1000;
    let (a, b) = (random::<T>(n, n, Order::Rows), random::<T>(n, n, Order::Rows));
    let mut out = Array2::zeros((n, n));
    let [t] = best([&mut || gemm(T::one(), &a.view(), &b.view(), T::zero(), &mut out.view_mut())]);
    2.0 * (n * n * n) as f64 / t / 1e9
}

/// GB/s of a = b + s c, as STREAM counts them.
fn triad() -> f64 {
    let n = 10_000_000;
    let (b, c, mut a) = (vec![1.0; n], vec![2.0; n], vec![0.0; n]);
    let [t] = best([&mut || {
        a.iter_mut().zip(&b).zip(&c).for_each(|((a, b), c)| *a = b + 3.0 * c);
        black_box(&a);
    }]);
    24.0 * n as f64 / t / 1e9
}

fn dense<T: Real>(filter: &str) {
    let peak = peak::<T>();
    for (rows, cols) in [(20_000, 2_000), (10_000, 2_000), (60_000, 784), (1797, 64)] {
        let x = random::<T>(rows, cols, Order::Rows);
        let block = Block::Dense(x.clone());
        for k in [10, 20, 32, 40, 50, 100] {
            if !format!("dense {} {rows}x{cols} k={k}", T::NAME).contains(filter) {
                continue;
            }
            let (b, u) = (random::<T>(cols, k, Order::Components), random::<T>(rows, k, Order::Components));
            let [mut out, mut other, mut third] = [rows, rows, rows].map(|rows| Order::Components.zeros::<T>(rows, k));
            let [mut tout, mut tother] = [cols, cols].map(|rows| Order::Components.zeros::<T>(rows, k));
            let sample: Vec<usize> = (0..rows).step_by(10).collect();
            let part = random::<T>(sample.len(), k, Order::Components);
            let mut sampled = Order::Components.zeros::<T>(cols, k);
            let [own, mkl, blocked, town, tmkl, gather] = best([
                &mut || block.mul(&b.view(), &mut out.view_mut()),
                &mut || gemm(T::one(), &x.view(), &b.view(), T::zero(), &mut other.view_mut()),
                &mut || {
                    for (x, mut out) in x.axis_chunks_iter(Axis(0), 1024).zip(third.axis_chunks_iter_mut(Axis(0), 1024)) {
                        gemm(T::one(), &x, &b.view(), T::zero(), &mut out);
                    }
                },
                &mut || block.tmul(&u.view(), &mut tout.view_mut()),
                &mut || gemm(T::one(), &x.t(), &u.view(), T::zero(), &mut tother.view_mut()),
                &mut || block.rows_tmul(&sample, &part.view(), &mut sampled.view_mut()),
            ]);
            let rate = |t: f64| 2.0 * (rows * cols * k) as f64 / t / 1e9;
            let gb = (size_of::<T>() * rows * cols) as f64 / 1e9;
            println!(
                "| {} {rows}x{cols} k={k} | {:.1} ({:.0} %) | {:.1} | {:.1} | {:.1} ({:.0} %) | {:.1} | {:.1} | {:.1} GB/s |",
                T::NAME, rate(own), 100.0 * rate(own) / peak, rate(mkl.min(blocked)), rate(mkl),
                rate(town), 100.0 * rate(town) / peak, rate(tmkl), rate(gather) / 10.0, gb / own
            );
        }
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    println!("GEMM peak: f64 {:.1}, f32 {:.1} GF/s; triad {:.1} GB/s", peak::<f64>(), peak::<f32>(), triad());
    dense::<f64>(&filter);
    dense::<f32>(&filter);
    let _ = gram::<f64>;
}
