//! The performance of each kernel relative to the limits of the machine: `cargo bench --bench roofline [FILTER]` prints a
//! table.
//!
//! The limits are measured in the same run: a large square GEMM for flops at the start and at the end (another load on the
//! machine would otherwise look like a slow kernel), a triad for bandwidth. A kernel and what it is compared with alternate;
//! the best time of each counts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ndarray::{Array2, Axis};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use sprs::CsMatI;

use fednmf_linalg::nls::{Penalty, Sweep, sweep};
use fednmf_linalg::{Block, Context, ContextOptions, Contiguous, Csr, Order, ProductKernel, Real, gemm, gram};
use fednmf_methods::boolean::{Ones, proximal};

/// Minimum duration of a comparison, per call.
const TURN: Duration = Duration::from_millis(150);

fn random<T: Real>(rows: usize, cols: usize, order: Order) -> Array2<T> {
    let mut rng = Pcg64::seed_from_u64((rows * 31 + cols) as u64);
    let mut matrix = order.zeros(rows, cols);
    matrix.map_inplace(|x| *x = T::from_f64(rng.random::<f64>()));
    matrix
}

/// The best time in seconds of each of several alternating calls.
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
    let (a, b) = (random::<T>(n, n, Order::RowMajor), random::<T>(n, n, Order::RowMajor));
    let mut out = Array2::zeros((n, n));
    let [t] = best([&mut || gemm(T::one(), &a.view(), &b.view(), T::zero(), &mut out.view_mut())]);
    2.0 * (n * n * n) as f64 / t / 1e9
}

/// GB/s of a = b + s·c, as STREAM counts them.
fn triad() -> f64 {
    let n = 10_000_000;
    let (b, c, mut a) = (vec![1.0; n], vec![2.0; n], vec![0.0; n]);
    let [t] = best([&mut || {
        a.iter_mut().zip(&b).zip(&c).for_each(|((a, b), c)| *a = b + 3.0 * c);
        black_box(&a);
    }]);
    24.0 * n as f64 / t / 1e9
}

/// A row of the table: the performance of a kernel, its fraction of the peak, and the best of MKL in the same run.
struct Line<'a> {
    kernel: &'a str,
    case: String,
    flops: usize,
    seconds: f64,
    mkl: Option<f64>,
}

impl Line<'_> {
    fn print<T: Real>(&self, peak: f64) {
        let rate = |t: f64| self.flops as f64 / t / 1e9;
        let mkl = self.mkl.map_or("–".into(), |t| format!("{:.1}", rate(t)));
        let share = 100.0 * rate(self.seconds) / peak;
        let (kernel, case, own) = (self.kernel, &self.case, rate(self.seconds));
        println!("| {kernel} | {} | {case} | {own:.1} | {share:.0} % | {mkl} |", T::NAME);
    }
}

/// Both products of a dense block, the transposed one with a tenth of its rows, and the Gram matrix.
fn dense<T: Real>(filter: &str, peak: f64) {
    for (rows, cols) in [(20_000, 2_000), (10_000, 2_000), (60_000, 784), (1797, 64)] {
        let wanted = |k: &usize| format!("dense {} {rows}x{cols} k={k}", T::NAME).contains(filter);
        let all: Vec<usize> = [10, 20, 32, 40, 50, 100].into_iter().filter(wanted).collect();
        if all.is_empty() {
            continue;
        }
        let x = random::<T>(rows, cols, Order::RowMajor);
        let block = Block::Dense(random::<T>(rows, cols, Order::RowMajor).into());
        for k in all {
            let (b, u) = (random::<T>(cols, k, Order::ColumnMajor), random::<T>(rows, k, Order::ColumnMajor));
            let [mut out, mut other, mut third] = [rows; 3].map(|rows| Order::ColumnMajor.zeros::<T>(rows, k));
            let [mut tout, mut tother, mut sampled] = [cols; 3].map(|rows| Order::ColumnMajor.zeros::<T>(rows, k));
            let mut g = Array2::zeros((k, k));
            let sample: Vec<usize> = (0..rows).step_by(10).collect();
            let part = random::<T>(sample.len(), k, Order::ColumnMajor);
            let [own, mkl, blocked, town, tmkl, gather, grams] = best([
                &mut || block.mul(&b.view(), &mut out.view_mut()),
                &mut || gemm(T::one(), &x.view(), &b.view(), T::zero(), &mut other.view_mut()),
                &mut || {
                    let parts = x.axis_chunks_iter(Axis(0), 1024).zip(third.axis_chunks_iter_mut(Axis(0), 1024));
                    parts.for_each(|(x, mut out)| gemm(T::one(), &x, &b.view(), T::zero(), &mut out));
                },
                &mut || block.tmul(&u.view(), &mut tout.view_mut()),
                &mut || gemm(T::one(), &x.t(), &u.view(), T::zero(), &mut tother.view_mut()),
                &mut || block.rows_tmul(&sample, &part.view(), &mut sampled.view_mut()),
                &mut || gram(&u.view(), &mut g.view_mut()),
            ]);
            let flops = 2 * rows * cols * k;
            let case = format!("{rows}x{cols} k={k}");
            let line = |kernel, flops, seconds, mkl| Line { kernel, case: case.clone(), flops, seconds, mkl };
            line("dense X B", flops, own, Some(mkl.min(blocked))).print::<T>(peak);
            line("dense X'U", flops, town, Some(tmkl)).print::<T>(peak);
            line("dense X'U, every 10th row", 2 * sample.len() * cols * k, gather, None).print::<T>(peak);
            line("Gram", 2 * rows * k * k, grams, None).print::<T>(peak);
        }
    }
}

/// A random sparse matrix with nearly the same number of nonzeros in each row.
fn random_sparse<T: Real>(rows: usize, cols: usize, per_row: usize) -> CsMatI<T, i32, usize> {
    let mut rng = Pcg64::seed_from_u64(3);
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

/// Both products of a sparse block.
fn sparse<T: Real>(filter: &str, peak: f64) {
    let (rows, cols, per_row) = (200_000, 20_000, 40);
    let case = |k: usize| format!("{rows}x{cols}, 8e6 nonzeros, k={k}");
    let wanted = |k: &usize| format!("sparse {} {}", T::NAME, case(*k)).contains(filter);
    let all: Vec<usize> = [10, 20, 40, 50, 100].into_iter().filter(wanted).collect();
    if all.is_empty() {
        return;
    }
    let matrix = random_sparse::<T>(rows, cols, per_row);
    let native = Block::Sparse(Csr::new(matrix.clone()));
    let mut mkl = Block::Sparse(Csr::new(matrix));
    let options = ContextOptions { kernels: ProductKernel::Mkl.into(), ..ContextOptions::default() };
    let context = Context::new(options).expect("one thread");
    for k in all {
        context.install(|| mkl.prepare(k)).expect("MKL takes the matrix");
        let (b, u) = (random::<T>(cols, k, Order::RowMajor), random::<T>(rows, k, Order::RowMajor));
        let [mut out, mut other] = [rows; 2].map(|rows| Order::RowMajor.zeros::<T>(rows, k));
        let [mut tout, mut tother] = [cols; 2].map(|rows| Order::RowMajor.zeros::<T>(rows, k));
        let [own, theirs, town, ttheirs] = best([
            &mut || native.mul(&b.view(), &mut out.view_mut()),
            &mut || mkl.mul(&b.view(), &mut other.view_mut()),
            &mut || native.tmul(&u.view(), &mut tout.view_mut()),
            &mut || mkl.tmul(&u.view(), &mut tother.view_mut()),
        ]);
        let flops = 2 * native.stored() * k;
        let line = |kernel, seconds, mkl| Line { kernel, case: case(k), flops, seconds, mkl: Some(mkl) };
        line("CSR X B", own, theirs).print::<T>(peak);
        line("CSR X'U", town, ttheirs).print::<T>(peak);
    }
}

/// The nonnegative sweep, with one to eight passes per right-hand side.
fn sweeps<T: Real>(filter: &str, peak: f64) {
    for k in [10, 20, 32, 40, 50, 64, 100] {
        for order in [Order::ColumnMajor, Order::RowMajor] {
            if !format!("sweep {} k={k} {order:?}", T::NAME).contains(filter) {
                continue;
            }
            let rows = 20_000;
            let x = random::<T>(rows, k, order);
            let mut g = Array2::zeros((k, k));
            gram(&random::<T>(rows, k, Order::ColumnMajor).view(), &mut g.view_mut());
            let mut r = order.zeros::<T>(rows, k);
            gemm(T::one(), &x.view(), &g.view(), T::zero(), &mut r.view_mut());
            let mut all = [1, 2, 4, 8].map(|passes| (passes, x.clone()));
            let [one, two, four, eight] = &mut all;
            let run = |(passes, x): &mut (usize, Array2<T>)| {
                sweep(
                    &mut x.view_mut(),
                    &r.view(),
                    &g.view(),
                    Sweep { mu: T::zero(), passes: *passes, penalty: Penalty::NONE },
                );
            };
            let seconds = best([&mut || run(one), &mut || run(two), &mut || run(four), &mut || run(eight)]);
            for (passes, seconds) in [1, 2, 4, 8].into_iter().zip(seconds) {
                let case = format!("{rows} rows k={k}, {order:?} contiguous, passes {passes}");
                Line { kernel: "sweep", case, flops: 2 * rows * k * k * passes, seconds, mkl: None }.print::<T>(peak);
            }
        }
    }
}

/// The kernels of an iteration of ELBMF or of a local step of FELB; the last row is their sum, to compare with the
/// iteration of a run.
fn boolean<T: Real>(filter: &str, peak: f64) {
    let k = 20;
    for (rows, cols, per_row) in [(6000, 4000, 36), (8124, 119, 25), (163, 119, 25)] {
        let mut matrix = random_sparse::<T>(rows, cols, per_row);
        matrix.data_mut().fill(T::one());
        let case = format!("{rows}x{cols}, {} ones, k={k}", matrix.nnz());
        if !format!("boolean {} {case}", T::NAME).contains(filter) {
            continue;
        }
        let x = Ones::new(Block::Sparse(Csr::new(matrix))).expect("zeros and ones");
        let (mut u, mut v) = (random::<T>(rows, k, Order::RowMajor), random::<T>(cols, k, Order::RowMajor));
        let (fixed_u, fixed_v) = (u.clone(), v.clone());
        let [mut u_rhs, mut u_before] = [(); 2].map(|()| Order::RowMajor.zeros::<T>(rows, k));
        let [mut v_rhs, mut v_before] = [(); 2].map(|()| Order::RowMajor.zeros::<T>(cols, k));
        x.mul(&v.view(), &mut u_rhs.view_mut());
        x.tmul(&u.view(), &mut v_rhs.view_mut());
        let (r, s) = (u_rhs.clone(), v_rhs.clone());
        let [mut vv, mut uu] = [(); 2].map(|()| vec![T::zero(); k * k]);
        let flat = |a: &Array2<T>| a.row_major().to_vec();
        let (flat_u, flat_v, r, s) = (flat(&fixed_u), flat(&fixed_v), flat(&r), flat(&s));
        proximal::gram(&flat_v, k, &mut vv);
        proximal::gram(&flat_u, k, &mut uu);
        let (g, h) = (vv.clone(), uu.clone());
        let step = proximal::ProximalStep {
            rule: proximal::ProximalRule::Lipschitz,
            kappa: 0.001,
            lambda: 0.1,
            inertia: 0.001,
        };
        let [mul, tmul, gram_v, gram_u, step_u, step_v] = best([
            &mut || x.mul(&fixed_v.view(), &mut u_rhs.view_mut()),
            &mut || x.tmul(&fixed_u.view(), &mut v_rhs.view_mut()),
            &mut || proximal::gram(&flat_v, k, &mut vv),
            &mut || proximal::gram(&flat_u, k, &mut uu),
            &mut || {
                let (u, before) = (u.as_slice_mut().expect("rows"), u_before.as_slice_mut().expect("rows"));
                proximal::step(u, before, &r, &g, k, step, None);
            },
            &mut || {
                let (v, before) = (v.as_slice_mut().expect("rows"), v_before.as_slice_mut().expect("rows"));
                proximal::step(v, before, &s, &h, k, step, None);
            },
        ]);
        let line = |kernel, flops, seconds| {
            Line { kernel, case: case.clone(), flops, seconds, mkl: None }.print::<T>(peak);
        };
        let (products, squares) = (2 * x.count() * k, 2 * (rows + cols) * k * k);
        line("Boolean X V", products, mul);
        line("Boolean X'U", products, tmul);
        line("U'U and V'V", squares, gram_u + gram_v);
        line("proximal steps", squares, step_u + step_v);
        let all = mul + tmul + gram_u + gram_v + step_u + step_v;
        line(&format!("all of an iteration: {:.1} us", 1e6 * all), 2 * products + 2 * squares, all);
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let (wide, narrow) = (peak::<f64>(), peak::<f32>());
    println!("GEMM peak: f64 {wide:.1}, f32 {narrow:.1} GF/s; triad {:.1} GB/s", triad());
    println!("| kernel | precision | case | GF/s | of the peak | MKL's best |\n| --- | --- | --- | --- | --- | --- |");
    dense::<f64>(&filter, wide);
    dense::<f32>(&filter, narrow);
    sparse::<f64>(&filter, wide);
    sparse::<f32>(&filter, narrow);
    sweeps::<f64>(&filter, wide);
    sweeps::<f32>(&filter, narrow);
    boolean::<f64>(&filter, wide);
    boolean::<f32>(&filter, narrow);
    println!("GEMM peak at the end: f64 {:.1}, f32 {:.1} GF/s", peak::<f64>(), peak::<f32>());
}
