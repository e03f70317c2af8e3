//! Compares each hot kernel with a plain loop in C (`reference.c`) in the same run; `bench/run kernels` calls it and
//! explains the table. Prints CSV: kernel, matrix, k, precision, and the best seconds of fednmf, of MKL and of the C
//! loop.
//!
//! Arguments: the turns of each comparison, the numbers of components (with commas), the precisions, and files of
//! sparse matrices in MatrixMarket's coordinate format, in addition to generated matrices.
#![allow(unsafe_code)]

use std::env;
use std::ffi::{CString, c_void};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ndarray::{Array2, ArrayView2, Axis, azip, s};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use sprs::{CsMatI, TriMatI};

use fednmf_linalg::nls::Penalty;
use fednmf_linalg::nls::divergence::{DivergenceUpdate, FixedFactor, KlMultiply, KlSweeps, column_sums};
use fednmf_linalg::{Block, Context, ContextOptions, Contiguous, ContiguousMut, Csr, Order, ProductKernel, Real, gemm};

/// A sparse matrix, with a name.
type Named = (String, CsMatI<f64, i32, usize>);

/// A matrix as the C loops take it.
#[repr(C)]
struct CsrOfC<T> {
    rows: i64,
    starts: *const i64,
    columns: *const i32,
    values: *const T,
}

/// The C loops for one type and one number of components.
struct Loops {
    library: *mut c_void,
}

impl Loops {
    fn compile<T: Real>(directory: &Path, k: usize) -> Self {
        let element = if size_of::<T>() == 8 { "double" } else { "float" };
        let (source, library) = (
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/reference.c"),
            directory.join(format!("{element}-{k}.so")),
        );
        let done = Command::new(env::var("CC").unwrap_or("cc".into()))
            .args(["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"])
            .args([format!("-DT={element}"), format!("-DK={k}"), "-o".into()])
            .args([&library, &source])
            .status()
            .expect("a C compiler (CC)");
        assert!(done.success(), "the C compiler refuses reference.c");
        let path = CString::new(library.to_str().expect("a path in UTF-8")).expect("a path");
        // SAFETY: the library was built from reference.c, which runs no code when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "the loops in C cannot be loaded");
        Loops { library }
    }

    /// A function of reference.c as the function pointer `F`.
    fn get<F>(&self, name: &str) -> F {
        let name = CString::new(name).expect("a name");
        // SAFETY: the handle is that of a loaded library, which is never closed.
        let address = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!address.is_null() && size_of::<F>() == size_of_val(&address), "reference.c has no {name:?}");
        // SAFETY: callers name the type that the function has in reference.c.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

/// Numbers that are aligned to a cache line, with rows of `ld` of which k are used.
struct Padded<T> {
    memory: Vec<T>,
    start: usize,
}

impl<T: Real> Padded<T> {
    fn zeros(length: usize) -> Self {
        let memory = vec![T::zero(); length + 64];
        Padded { start: memory.as_ptr().align_offset(64), memory }
    }

    fn of(x: &Array2<T>, ld: usize) -> Self {
        let mut new = Self::zeros(x.nrows() * ld);
        for ((i, l), &x) in x.indexed_iter() {
            new.memory[new.start + i * ld + l] = x;
        }
        new
    }

    /// Checks that a loop has computed what the kernel has.
    fn agrees(&self, x: &Array2<T>, ld: usize) {
        let at = |i: usize, l: usize| self.memory[self.start + i * ld + l].as_f64();
        let difference: f64 = x.indexed_iter().map(|((i, l), x)| (x.as_f64() - at(i, l)).abs()).sum();
        let total: f64 = x.iter().map(|x| x.as_f64()).sum();
        assert!(difference < 0.02 * total, "the loops compute the same: {difference} of {total}");
    }

    fn pointer(&mut self) -> *mut T {
        self.memory[self.start..].as_mut_ptr()
    }
}

/// The best seconds of calls that alternate for `turns` turns; `reset` runs before each, and is not measured.
fn best<const N: usize>(turns: usize, mut calls: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    for turn in 0..=turns {
        for (best, f) in best.iter_mut().zip(&mut calls) {
            let start = Instant::now();
            f();
            if turn > 0 {
                *best = best.min(start.elapsed().as_secs_f64());
            }
        }
    }
    best
}

fn print<T: Real>(kernel: &str, matrix: &str, k: usize, [own, mkl, c]: [Option<f64>; 3]) {
    let cell = |seconds: Option<f64>| seconds.map_or(String::new(), |seconds| format!("{seconds:.4e}"));
    println!("{kernel},{matrix},{k},{},{},{},{}", T::NAME, cell(own), cell(mkl), cell(c));
}

fn random<T: Real>(rows: usize, cols: usize, order: Order) -> Array2<T> {
    let mut rng = Pcg64::seed_from_u64((rows * 31 + cols) as u64);
    let mut matrix = order.zeros(rows, cols);
    matrix.map_inplace(|x| *x = T::from_f64(0.1 + rng.random::<f64>()));
    matrix
}

/// Counts whose columns are drawn from a power law, as words and genes are.
fn counts(rows: usize, cols: usize, stored: usize) -> CsMatI<f64, i32, usize> {
    let mut rng = Pcg64::seed_from_u64(7);
    let (mut starts, mut places, mut values) = (vec![0], Vec::new(), Vec::new());
    for _ in 0..rows {
        let length = (stored / rows / 2 + rng.random_range(0..stored / rows)).min(cols);
        let mut row: Vec<i32> =
            (0..length).map(|_| ((rng.random::<f64>().powi(2) * cols as f64) as usize * 7919 % cols) as i32).collect();
        row.sort_unstable();
        row.dedup();
        values.extend(row.iter().map(|_| f64::from(rng.random_range(1..6))));
        places.extend(row);
        starts.push(places.len());
    }
    CsMatI::new((rows, cols), starts, places, values)
}

fn read(path: &str) -> Named {
    let text = fs::read_to_string(path).expect("a readable matrix");
    let mut lines = text.lines().filter(|line| !line.starts_with('%')).map(|line| line.split_whitespace());
    let mut next = || -> Option<Vec<f64>> { lines.next()?.map(|word| word.parse().ok()).collect() };
    let sizes = next().expect("the sizes of a matrix");
    let mut all = TriMatI::new((sizes[0] as usize, sizes[1] as usize));
    while let Some(entry) = next().filter(|entry| entry.len() == 3) {
        all.add_triplet(entry[0] as usize - 1, entry[1] as usize - 1, entry[2]);
    }
    let name = Path::new(path).file_stem().map_or(path.into(), |name| name.to_string_lossy().into_owned());
    let all: CsMatI<f64, i32, usize> = all.to_csr();
    (name, all)
}

/// Runs `f` with MKL's kernels, if this build has them.
fn with_mkl<T>(f: impl FnOnce() -> T) -> Option<T> {
    let options = ContextOptions { kernels: ProductKernel::mkl().ok()?.into(), ..ContextOptions::default() };
    Some(Context::new(options).expect("one thread").install(f))
}

fn sparse<T: Real>((name, matrix): &Named, k: usize, turns: usize, c: &Loops) {
    let (rows, cols) = matrix.shape();
    let matrix = matrix.map(|&x| T::from_f64(x));
    let starts: Vec<i64> = matrix.indptr().raw_storage().iter().map(|&start| start as i64).collect();
    let mut columns = matrix.indices().to_vec();
    columns.extend([0; 64]);
    let values = matrix.data().to_vec();
    let x = CsrOfC { rows: rows as i64, starts: starts.as_ptr(), columns: columns.as_ptr(), values: values.as_ptr() };
    let ld = c.get::<extern "C" fn() -> i64>("padded")() as usize;
    let (u, v) = (random::<T>(rows, k, Order::RowMajor), random::<T>(cols, k, Order::RowMajor));
    let (mut padded_u, mut padded_v) = (Padded::of(&u, ld), Padded::of(&v, ld));
    let (pu, pv) = (padded_u.pointer(), padded_v.pointer());
    let [mut to_u, mut to_v] = [rows, cols].map(|rows| Padded::<T>::zeros(rows * ld));
    let (native, mut mkl) = (Block::Sparse(Csr::new(matrix.clone())), Block::Sparse(Csr::new(matrix)));
    let has_mkl = with_mkl(|| mkl.prepare(k).expect("MKL takes the matrix")).is_some();

    let [mut out, mut other] = [rows; 2].map(|rows| Order::RowMajor.zeros::<T>(rows, k));
    let product = c.get::<extern "C" fn(*const CsrOfC<T>, *const T, *mut T)>("product");
    let [own, theirs, plain] = best(
        turns,
        [
            &mut || native.mul(&v.view(), &mut out.view_mut()),
            &mut || mkl.mul(&v.view(), &mut other.view_mut()),
            &mut || product(&x, pv, to_u.pointer()),
        ],
    );
    print::<T>("sparse X V", name, k, [Some(own), has_mkl.then_some(theirs), Some(plain)]);

    let [mut out, mut other] = [cols; 2].map(|rows| Order::RowMajor.zeros::<T>(rows, k));
    let product = c.get::<extern "C" fn(*const CsrOfC<T>, *const T, *mut T)>("transposed_product");
    let [own, theirs, plain] = best(
        turns,
        [
            &mut || native.tmul(&u.view(), &mut out.view_mut()),
            &mut || mkl.tmul(&u.view(), &mut other.view_mut()),
            &mut || {
                to_v.memory.fill(T::zero());
                product(&x, pu, to_v.pointer());
            },
        ],
    );
    print::<T>("sparse X'U", name, k, [Some(own), has_mkl.then_some(theirs), Some(plain)]);

    let cross = c.get::<extern "C" fn(*const CsrOfC<T>, *const T, *const T) -> f64>("cross");
    let (mut found, mut expected) = (0.0, 0.0);
    let [own, plain] =
        best(turns, [&mut || found = native.cross(&u.view(), &v.view()), &mut || expected = cross(&x, pu, pv)]);
    assert!((found / expected - 1.0).abs() < 1e-6, "the loops compute the same: {found} {expected}");
    print::<T>("residual", name, k, [Some(own), None, Some(plain)]);

    let (rows_of_v, mut sums) = (v.row_major(), vec![0.0; k]);
    column_sums(rows_of_v, &mut sums);
    let fixed = FixedFactor { rows: rows_of_v, sums: &sums, gram: &[] };
    let sums_of_c: Vec<T> = sums.iter().map(|&sum| T::from_f64(sum)).collect();
    let (mut own_u, mut update) = (u.clone(), KlMultiply::new(k));
    let multiply = c.get::<extern "C" fn(*const CsrOfC<T>, *const T, *const T, *mut T)>("kl_multiply");
    let [own, plain] = best(
        turns,
        [&mut || update.update_rows((&native, 0), fixed, own_u.row_major_mut(), &[], Penalty::NONE), &mut || {
            multiply(&x, pv, sums_of_c.as_ptr(), pu)
        }],
    );
    padded_u.agrees(&own_u, ld);
    print::<T>("kl-mu", name, k, [Some(own), None, Some(plain)]);

    let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as usize + 16;
    let mut work = Padded::<T>::zeros(longest * (k + 2));
    let mut sweeps = KlSweeps::new(k, 1);
    let descend = c.get::<extern "C" fn(*const CsrOfC<T>, *const T, *const T, *mut T, *mut T)>("kl_descend");
    let [own, plain] = best(
        turns.div_ceil(2),
        [&mut || sweeps.update_rows((&native, 0), fixed, own_u.row_major_mut(), &[], Penalty::NONE), &mut || {
            descend(&x, pv, sums_of_c.as_ptr(), pu, work.pointer())
        }],
    );
    padded_u.agrees(&own_u, ld);
    print::<T>("kl-cd", name, k, [Some(own), None, Some(plain)]);
}

/// Products of dense data; their reference is a gemm of the build's BLAS, which is MKL's by default.
fn dense<T: Real>((rows, cols): (usize, usize), k: usize, turns: usize) {
    let block = Block::Dense(random::<T>(rows, cols, Order::RowMajor).into());
    let x = random::<T>(rows, cols, Order::RowMajor);
    let (u, v) = (random::<T>(rows, k, Order::ColumnMajor), random::<T>(cols, k, Order::ColumnMajor));
    let [mut out, mut other] = [rows; 2].map(|rows| Order::ColumnMajor.zeros::<T>(rows, k));
    let [own, theirs] = best(
        turns,
        [&mut || block.mul(&v.view(), &mut out.view_mut()), &mut || {
            gemm(T::one(), &x.view(), &v.view(), T::zero(), &mut other.view_mut())
        }],
    );
    let name = format!("{rows}x{cols}");
    print::<T>("dense X V", &name, k, [Some(own), Some(theirs), None]);
    let [mut out, mut other] = [cols; 2].map(|rows| Order::ColumnMajor.zeros::<T>(rows, k));
    let [own, theirs] = best(
        turns,
        [&mut || block.tmul(&u.view(), &mut out.view_mut()), &mut || {
            gemm(T::one(), &x.t(), &u.view(), T::zero(), &mut other.view_mut())
        }],
    );
    print::<T>("dense X'U", &name, k, [Some(own), Some(theirs), None]);
    let (u, v) = (random::<T>(rows, k, Order::RowMajor) + T::one(), random::<T>(cols, k, Order::RowMajor) + T::one());
    let transposed = Block::Dense(x.clone().reversed_axes().into());
    dense_kl("dense kl-mu of U", &name, turns, (&Block::Dense(x.clone().into()), &x.view()), (&u, &v));
    dense_kl("dense kl-mu of V", &name, turns, (&transposed, &x.t()), (&v, &u));
}

/// A multiplicative update of U for dense data. Its reference computes the fits and the sums of ratios by BLAS, for some rows at a
/// time.
fn dense_kl<T: Real>(
    kernel: &str,
    name: &str,
    turns: usize,
    (block, x): (&Block<T>, &ArrayView2<'_, T>),
    (u, v): (&Array2<T>, &Array2<T>),
) {
    let (k, mut sums) = (u.ncols(), vec![0.0; u.ncols()]);
    column_sums(v.row_major(), &mut sums);
    let fixed = FixedFactor { rows: v.row_major(), sums: &sums, gram: &[] };
    let (mut update, mut own_u, mut other_u) = (KlMultiply::new(k), u.clone(), u.clone());
    let (mut fits, mut ratios) = (Array2::<T>::zeros((64, v.nrows())), Array2::<T>::zeros((64, k)));
    let [own, theirs] = best(
        turns,
        [&mut || update.update_rows((block, 0), fixed, own_u.row_major_mut(), &[], Penalty::NONE), &mut || {
            for (x, mut u) in x.axis_chunks_iter(Axis(0), 64).zip(other_u.axis_chunks_iter_mut(Axis(0), 64)) {
                let (mut fits, mut ratios) =
                    (fits.slice_mut(s![..u.nrows(), ..]), ratios.slice_mut(s![..u.nrows(), ..]));
                gemm(T::one(), &u.view(), &v.t(), T::zero(), &mut fits);
                fits.zip_mut_with(&x, |fit, &x| *fit = x / *fit);
                gemm(T::one(), &fits.view(), &v.view(), T::zero(), &mut ratios);
                for (mut u, ratios) in u.rows_mut().into_iter().zip(ratios.rows()) {
                    azip!((u in &mut u, ratio in &ratios, sum in &sums[..]) *u *= *ratio / T::from_f64(*sum));
                }
            }
        }],
    );
    assert!((&own_u - &other_u).iter().all(|e| e.as_f64().abs() < 1e-3), "both compute the same");
    print::<T>(kernel, name, k, [Some(own), Some(theirs), None]);
}

fn run<T: Real>(matrices: &[Named], k: usize, turns: usize, directory: &Path) {
    let loops = Loops::compile::<T>(directory, k);
    matrices.iter().for_each(|matrix| sparse::<T>(matrix, k, turns, &loops));
    [(3615, 784), (8000, 1000)].into_iter().for_each(|shape| dense::<T>(shape, k, turns));
}

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let [turns, all, precisions, files @ ..] = &words[..] else {
        return eprintln!("reference TURNS K,... PRECISION,... [FILE...]");
    };
    let turns = turns.parse().expect("a number of turns");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut matrices: Vec<Named> = files.iter().map(|file| read(file)).collect();
    matrices.push(("words".into(), counts(3430, 6906, 420_000)));
    matrices.push(("cells".into(), counts(10_000, 1000, 800_000)));
    println!("kernel,matrix,k,precision,fednmf,mkl,c");
    for k in all.split(',').map(|k| k.parse().expect("a number of components")) {
        for precision in precisions.split(',') {
            match precision {
                "f32" => run::<f32>(&matrices, k, turns, directory.path()),
                _ => run::<f64>(&matrices, k, turns, directory.path()),
            }
        }
    }
}
