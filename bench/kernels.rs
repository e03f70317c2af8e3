//! Throughput of the numerical primitives in flops (shown by criterion as elem/s), with the best that MKL's GEMM
//! reaches in the same run to hold them against. `cargo bench --bench kernels [FILTER]`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use fednmf::linalg::{Order, Real, gemm, gram};
use fednmf::nls::{Sweep, gradient_step, sweep};
use ndarray::{Array2, ShapeBuilder};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

fn random<T: Real>(rows: usize, cols: usize, order: Order, rng: &mut impl Rng) -> Array2<T> {
    Array2::from_shape_simple_fn((rows, cols).set_f(order == Order::Components), || T::of(rng.random::<f64>()))
}

fn measure<T: Real>(c: &mut Criterion, group: &str, case: String, flops: usize, mut f: impl FnMut()) {
    let mut group = c.benchmark_group(format!("{group}/{}", T::NAME));
    group.throughput(Throughput::Elements(flops as u64));
    group.bench_function(BenchmarkId::from_parameter(case), |b| b.iter(&mut f));
}

/// Square GEMM: what counts as the machine's peak.
fn peak<T: Real>(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(1);
    let n = 1500;
    let (a, b) = (random::<T>(n, n, Order::Rows, rng), random::<T>(n, n, Order::Rows, rng));
    let mut out = Array2::zeros((n, n));
    measure::<T>(c, "peak", format!("gemm {n}"), 2 * n * n * n, || {
        gemm(T::one(), &a.view(), &b.view(), T::zero(), &mut out.view_mut());
    });
}

/// The nonnegative sweep and the projected gradient step, both memory orders.
fn rowwise<T: Real>(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(2);
    for k in [10, 40, 100] {
        let rows = 200_000 / k;
        let f = random::<T>(rows, k, Order::Components, rng);
        let mut g = Array2::zeros((k, k));
        gram(&f.view(), &mut g.view_mut());
        for order in [Order::Components, Order::Rows] {
            let mut x = random::<T>(rows, k, order, rng);
            let mut r = order.zeros::<T>(rows, k);
            gemm(T::one(), &x.view(), &g.view(), T::zero(), &mut r.view_mut());
            let flops = 2 * rows * k * k;
            let case = format!("k={k} {order:?}");
            measure::<T>(c, "sweep", case.clone(), flops, || {
                sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: T::zero(), passes: 1 });
            });
            measure::<T>(c, "sweep 3 passes", case.clone(), 3 * flops, || {
                sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: T::zero(), passes: 3 });
            });
            let eta = T::of(0.5 / g.diag().sum().wide());
            measure::<T>(c, "gradient step", case, flops, || {
                gradient_step(&mut x.view_mut(), &r.view(), &g.view(), eta);
            });
        }
    }
}

fn main() {
    let mut c = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .without_plots()
        .configure_from_args();
    peak::<f64>(&mut c);
    peak::<f32>(&mut c);
    rowwise::<f64>(&mut c);
    rowwise::<f32>(&mut c);
    c.final_summary();
}
