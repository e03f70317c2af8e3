//! Throughput of the numerical primitives in flop/s (criterion shows elem/s), with a large MKL GEMM in the same run for
//! comparison. `cargo bench --bench kernels [FILTER]`.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use ndarray::{Array2, Axis, ShapeBuilder};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use sprs::CsMatI;

use fednmf_linalg::nls::divergence::{DivergenceUpdate as _, FixedFactor, KlMultiply, column_sums};
use fednmf_linalg::nls::{Penalty, Sweep, gradient_step, sweep};
use fednmf_linalg::{
    Block, Context, ContextOptions, Contiguous, ContiguousMut, Csr, Order, ProductKernel, Real, gemm, gram,
};
use fednmf_privacy::sharing::{
    COMPUTING, Computation, Keys, Mail, Purpose, Reciprocals, Shared, Terms, Wire, shares_of,
};

fn random<T: Real>(rows: usize, cols: usize, order: Order, rng: &mut impl Rng) -> Array2<T> {
    Array2::from_shape_simple_fn((rows, cols).set_f(order == Order::ColumnMajor), || T::from_f64(rng.random::<f64>()))
}

fn measure<T: Real>(c: &mut Criterion, group: &str, case: String, flops: usize, mut f: impl FnMut()) {
    let mut group = c.benchmark_group(format!("{group}/{}", T::NAME));
    group.throughput(Throughput::Elements(flops as u64));
    group.bench_function(BenchmarkId::from_parameter(case), |b| b.iter(&mut f));
}

/// Square GEMM, as the peak of the machine.
fn peak<T: Real>(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(1);
    let n = 1500;
    let (a, b) = (random::<T>(n, n, Order::RowMajor, rng), random::<T>(n, n, Order::RowMajor, rng));
    let mut out = Array2::zeros((n, n));
    measure::<T>(c, "peak", format!("gemm {n}"), 2 * n * n * n, || {
        gemm(T::one(), &a.view(), &b.view(), T::zero(), &mut out.view_mut());
    });
}

/// The nonnegative sweep and the projected gradient step in both memory orders.
fn rowwise<T: Real>(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(2);
    for k in [10, 40, 100] {
        let rows = 200_000 / k;
        let f = random::<T>(rows, k, Order::ColumnMajor, rng);
        let mut g = Array2::zeros((k, k));
        gram(&f.view(), &mut g.view_mut());
        for order in [Order::ColumnMajor, Order::RowMajor] {
            let mut x = random::<T>(rows, k, order, rng);
            let mut r = order.zeros::<T>(rows, k);
            gemm(T::one(), &x.view(), &g.view(), T::zero(), &mut r.view_mut());
            let flops = 2 * rows * k * k;
            let case = format!("k={k} {order:?}");
            measure::<T>(c, "sweep", case.clone(), flops, || {
                sweep(
                    &mut x.view_mut(),
                    &r.view(),
                    &g.view(),
                    Sweep { mu: T::zero(), passes: 1, penalty: Penalty::NONE },
                );
            });
            measure::<T>(c, "sweep 3 passes", case.clone(), 3 * flops, || {
                sweep(
                    &mut x.view_mut(),
                    &r.view(),
                    &g.view(),
                    Sweep { mu: T::zero(), passes: 3, penalty: Penalty::NONE },
                );
            });
            let eta = T::from_f64(0.5 / g.diag().sum().as_f64());
            measure::<T>(c, "gradient step", case, flops, || {
                gradient_step(&mut x.view_mut(), &r.view(), &g.view(), eta, Penalty::NONE);
            });
        }
    }
}

/// A random sparse matrix with nearly the same number of nonzeros in each row.
fn sparse<T: Real>(rows: usize, cols: usize, per_row: usize, rng: &mut impl Rng) -> CsMatI<T, i32, usize> {
    let (mut indptr, mut indices) = (vec![0], Vec::with_capacity(rows * per_row));
    for _ in 0..rows {
        let mut row: Vec<i32> = (0..per_row).map(|_| rng.random_range(0..cols as i32)).collect();
        row.sort_unstable();
        row.dedup();
        indices.extend(row);
        indptr.push(indices.len());
    }
    let values: Vec<T> = indices.iter().map(|_| T::from_f64(rng.random::<f64>())).collect();
    CsMatI::new((rows, cols), indptr, indices, values)
}

/// Products of a sparse block of 200000 × 20000 with 8 million nonzeros, with either kernel, and of sampled rows.
fn sparse_products<T: Real>(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(3);
    let (rows, cols, per_row) = (200_000, 20_000, 40);
    let mut x = Block::Sparse(Csr::new(sparse::<T>(rows, cols, per_row, rng)));
    let sample: Vec<usize> = (0..rows).step_by(10).collect();
    for k in [10, 50, 100] {
        let b = random::<T>(cols, k, Order::RowMajor, rng);
        let u = random::<T>(rows, k, Order::RowMajor, rng);
        let part = random::<T>(sample.len(), k, Order::RowMajor, rng);
        let (mut xb, mut xu) = (Order::RowMajor.zeros::<T>(rows, k), Order::RowMajor.zeros::<T>(cols, k));
        let flops = 2 * x.stored() * k;
        for &kernel in ProductKernel::ALL {
            let options = ContextOptions { kernels: kernel.into(), ..ContextOptions::default() };
            Context::new(options).expect("one thread").install(|| {
                let case = format!("k={k} {kernel:?}");
                x.prepare(k).expect("the kernel takes the matrix");
                measure::<T>(c, "csr mul", case.clone(), flops, || x.mul(&b.view(), &mut xb.view_mut()));
                measure::<T>(c, "csr tmul", case, flops, || x.tmul(&u.view(), &mut xu.view_mut()));
            });
        }
        measure::<T>(c, "csr rows_tmul", format!("k={k} every 10th"), flops / 10, || {
            x.rows_tmul(&sample, &part.view(), &mut xu.view_mut());
        });
    }
}

/// Products of a dense block with its factors, of sampled rows, and the Gram matrix.
fn dense_products<T: Real>(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(4);
    for (rows, cols, k) in [(20_000, 2_000, 40), (60_000, 784, 40), (1797, 64, 10)] {
        let x = random::<T>(rows, cols, Order::RowMajor, rng);
        let sample: Vec<usize> = (0..rows).step_by(10).collect();
        let contiguous = x.select(Axis(0), &sample);
        let x = Block::Dense(x.into());
        let (b, u) = (random::<T>(cols, k, x.order(), rng), random::<T>(rows, k, x.order(), rng));
        let (mut xb, mut xu) = (x.order().zeros::<T>(rows, k), x.order().zeros::<T>(cols, k));
        let mut g = Array2::zeros((k, k));
        let case = format!("{rows}x{cols} k={k}");
        let flops = 2 * rows * cols * k;
        measure::<T>(c, "dense mul", case.clone(), flops, || x.mul(&b.view(), &mut xb.view_mut()));
        measure::<T>(c, "dense tmul", case.clone(), flops, || x.tmul(&u.view(), &mut xu.view_mut()));
        measure::<T>(c, "gram", case.clone(), 2 * rows * k * k, || gram(&u.view(), &mut g.view_mut()));
        let part = random::<T>(sample.len(), k, x.order(), rng);
        let flops = 2 * sample.len() * cols * k;
        measure::<T>(c, "dense rows_tmul", format!("{case} every 10th"), flops, || {
            x.rows_tmul(&sample, &part.view(), &mut xu.view_mut());
        });
        measure::<T>(c, "dense rows_tmul", format!("{case} as if contiguous"), flops, || {
            gemm(T::one(), &contiguous.t(), &part.view(), T::zero(), &mut xu.view_mut());
        });
    }
}

/// Delivers the messages of computing parties within the process.
struct Here;

impl Wire for Here {
    fn exchange(&mut self, mail: &mut Mail, _: Purpose) {
        (0..COMPUTING * COMPUTING).for_each(|pair| mail.deliver(pair / COMPUTING, pair % COMPUTING));
    }
}

/// The products of methods on secret shares, of one party (a third of the measured work): each product of two shared words takes two
/// multiplications and two additions modulo 2⁶⁴. Then the same products in floating point, which take one of each.
fn ring_products(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(6);
    for (rows, width, k) in [(300, 2000, 10), (64, 1797, 10), (2000, 784, 40)] {
        let computation = Computation::new(&Keys::draw(0..COMPUTING, Some(1)).expect("a seed"), &mut Here);
        let mut words = |length: usize| {
            let mut shared = computation.zeros(length);
            let drawn: Vec<u64> = (0..length).map(|_| rng.next_u64()).collect();
            for (index, message) in shares_of(&drawn, rng).iter().enumerate() {
                computation.accept(index, message, &mut shared, 0..length);
            }
            shared
        };
        let [x, f, h] = [rows * width, k * width, k * rows].map(&mut words);
        let mut terms = Terms::default();
        terms.clear(&computation, k * rows.max(width));
        let mut group = c.benchmark_group("ring");
        group.throughput(Throughput::Elements((COMPUTING * 4 * rows * width * k) as u64));
        let case = format!("{rows}x{width} k={k}");
        group.bench_function(BenchmarkId::new("mul", &case), |b| {
            b.iter(|| terms.add_rows_times(0, &x, &f, (rows, width, k)));
        });
        group.bench_function(BenchmarkId::new("tmul", &case), |b| {
            b.iter(|| terms.add_combined_rows(0, &x, &h, (rows, width, k)));
        });
        group.finish();
        let block = Block::Dense(random::<f64>(rows, width, Order::RowMajor, rng).into());
        let [f, h] = [width, rows].map(|length| random::<f64>(length, k, block.order(), rng));
        let [mut xf, mut xh] = [rows, width].map(|length| block.order().zeros(length, k));
        let flops = 2 * rows * width * k;
        measure::<f64>(c, "ring, as floating point: mul", case.clone(), flops, || {
            block.mul(&f.view(), &mut xf.view_mut())
        });
        measure::<f64>(c, "ring, as floating point: tmul", case, flops, || block.tmul(&h.view(), &mut xh.view_mut()));
    }
}

/// Quotients of shared numbers, as a multiplicative update for the Kullback-Leibler divergence would need one for each entry of the
/// data: a reciprocal within 24 powers of two, a product and its truncation, of all three parties.
fn ring_quotients(c: &mut Criterion) {
    const COUNT: usize = 4000;
    const BITS: u32 = 24;
    let mut computation = Computation::new(&Keys::draw(0..COMPUTING, Some(1)).expect("a seed"), &mut Here);
    let one = computation.public(&[1 << BITS; COUNT]);
    let (mut reciprocals, mut terms) = (Reciprocals::new(&computation, COUNT, BITS, -12..12), Terms::default());
    let [mut inverse, mut quotient] = [(); 2].map(|()| Shared::default());
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function(BenchmarkId::new("quotients", COUNT), |b| {
        b.iter(|| {
            reciprocals.invert(&mut computation, &one, &mut inverse, &mut Here);
            terms.clear(&computation, COUNT);
            terms.add_products(0, (&one, 0..COUNT), (&inverse, 0..COUNT));
            computation.truncate(&mut terms, BITS, &mut quotient, &mut Here);
        });
    });
    group.finish();
}

/// Half an iteration of the methods for the Kullback-Leibler divergence, in the flops of the two products that it takes at
/// each stored entry.
fn divergence<T: Real>(c: &mut Criterion) {
    let rng = &mut Pcg64::seed_from_u64(5);
    let (rows, cols, k) = (400, 10_000, 40);
    let dense = Block::Dense(random::<T>(rows, cols, Order::RowMajor, rng).into());
    let transposed = Block::Dense(random::<T>(rows, cols, Order::ColumnMajor, rng).into());
    let sparse = Block::Sparse(Csr::new(self::sparse(rows, cols, 500, rng)));
    let x = random::<T>(rows, k, Order::RowMajor, rng);
    let y = random::<T>(cols, k, Order::RowMajor, rng);
    let (y, mut sums) = (y.row_major(), vec![0.0; k]);
    column_sums(y, &mut sums);
    let fixed = FixedFactor { rows: y, sums: &sums, gram: &[] };
    for (case, block, entries) in
        [("dense", dense, rows * cols), ("dense transposed", transposed, rows * cols), ("sparse", sparse, rows * 500)]
    {
        let mut update = KlMultiply::new(k);
        measure::<T>(c, "kl multiply", case.into(), 4 * entries * k, || {
            let mut x = x.clone();
            let x = x.row_major_mut();
            update.update_rows((&block, 0), fixed, x, &[], Penalty::NONE);
        });
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
    dense_products::<f64>(&mut c);
    dense_products::<f32>(&mut c);
    sparse_products::<f64>(&mut c);
    sparse_products::<f32>(&mut c);
    ring_products(&mut c);
    ring_quotients(&mut c);
    divergence::<f64>(&mut c);
    divergence::<f32>(&mut c);
    c.final_summary();
}
