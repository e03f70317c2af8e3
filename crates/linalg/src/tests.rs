//! The products of all kinds of blocks against plain loops in f64.

use ndarray::{Array2, ArrayView2};
use proptest::prelude::*;
use proptest::sample::select;
use sprs::CsMatI;

use super::{Bits, Block, Context, ContextOptions, Csr, Order, ProductKernel, Real, gram, squares};
use crate::random::{Purpose, Stream, uniform_factor};
use crate::simd::with_each_arch;

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
enum BlockKind {
    Dense,
    Sparse(ProductKernel),
    Bits,
}

fn draw<T: Real>(seed: u64, slot: u64, rows: usize, cols: usize) -> Array2<T> {
    uniform_factor::<T>(&Stream::new(seed, Purpose::Probe, slot), 0..rows, cols, 1.0)
}

/// A block with a third of its entries nonzero and none in every seventh row, and the same matrix in f64.
fn block<T: Real>(kind: BlockKind, seed: u64, rows: usize, cols: usize, k: usize) -> (Block<T>, Array2<f64>) {
    let mut x = draw::<T>(seed, 0, rows, cols);
    for ((i, _), x) in x.indexed_iter_mut() {
        let keep = x.as_f64() > 0.67 && i % 7 != 3;
        *x = if !keep {
            T::zero()
        } else if kind == BlockKind::Bits {
            T::one()
        } else {
            *x
        };
    }
    let wide = x.mapv(T::as_f64);
    let block = match kind {
        BlockKind::Dense => Block::Dense(x.into()),
        BlockKind::Bits => {
            let mut bits = Bits::zeros(rows, cols);
            x.indexed_iter().filter(|(_, x)| !x.is_zero()).for_each(|((i, j), _)| bits.set(i, j));
            Block::Bits(bits)
        }
        BlockKind::Sparse(kernel) => {
            let (mut indptr, mut indices, mut data) = (vec![0], vec![], vec![]);
            for row in x.rows() {
                for (j, &x) in row.iter().enumerate().filter(|(_, x)| !x.is_zero()) {
                    indices.push(j as i32);
                    data.push(x);
                }
                indptr.push(indices.len());
            }
            let mut csr = Csr::new(CsMatI::new((rows, cols), indptr, indices, data));
            let options = ContextOptions { kernels: kernel.into(), ..ContextOptions::default() };
            Context::new(options).and_then(|context| context.install(|| csr.prepare(k))).unwrap();
            Block::Sparse(csr)
        }
    };
    (block, wide)
}

fn ordered<T: Real>(a: &Array2<T>, order: Order) -> Array2<T> {
    let mut out = order.zeros(a.nrows(), a.ncols());
    out.assign(a);
    out
}

/// A·B by its definition.
fn product(a: &ArrayView2<f64>, b: &ArrayView2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((a.nrows(), b.ncols()), |(i, j)| (0..a.ncols()).map(|l| a[[i, l]] * b[[l, j]]).sum())
}

fn close<T: Real>(got: &Array2<T>, want: &Array2<f64>) -> bool {
    let tolerance = 200.0 * T::epsilon().as_f64();
    got.dim() == want.dim() && got.iter().zip(want).all(|(a, b)| (a.as_f64() - b).abs() <= tolerance * (1.0 + b.abs()))
}

fn agrees<T: Real>(kind: BlockKind, seed: u64, [rows, cols, k]: [usize; 3]) -> Result<(), TestCaseError> {
    let (x, wide) = block::<T>(kind, seed, rows, cols, k);
    let order = x.order();
    let (u, v) = (ordered(&draw::<T>(seed, 1, rows, k), order), ordered(&draw::<T>(seed, 2, cols, k), order));
    let (wu, wv) = (u.mapv(T::as_f64), v.mapv(T::as_f64));
    // Prior contents of the output must not matter.
    let dirty = |rows| ordered(&Array2::from_elem((rows, k), T::nan()), order);

    let mut out = dirty(rows);
    x.mul(&v.view(), &mut out.view_mut());
    prop_assert!(close(&out, &product(&wide.view(), &wv.view())), "mul");
    let mut out = dirty(cols);
    x.tmul(&u.view(), &mut out.view_mut());
    prop_assert!(close(&out, &product(&wide.t(), &wu.view())), "tmul");
    let mut out = v.clone();
    x.tmul_add(&u.view(), &mut out.view_mut());
    prop_assert!(close(&out, &(&wv + &product(&wide.t(), &wu.view()))), "tmul_add");

    let chosen: Vec<usize> = (0..rows).filter(|i| i % 3 != 1).rev().collect();
    let b = ordered(&u.select(ndarray::Axis(0), &chosen), order);
    let want = product(&wide.select(ndarray::Axis(0), &chosen).t(), &b.mapv(T::as_f64).view());
    let mut out = dirty(cols);
    x.rows_tmul(&chosen, &b.view(), &mut out.view_mut());
    prop_assert!(close(&out, &want), "rows_tmul");

    let mut some: Vec<usize> = chosen.clone();
    some.sort_unstable();
    let mut out = ordered(&Array2::from_elem((some.len(), k), T::nan()), order);
    x.rows_mul(&some, &v.view(), &mut out.view_mut());
    prop_assert!(close(&out, &product(&wide.select(ndarray::Axis(0), &some).view(), &wv.view())), "rows_mul");

    let part = rows / 4..rows - rows / 3;
    let of_part = wide.slice(ndarray::s![part.clone(), ..]);
    let mut out = ordered(&Array2::from_elem((part.len(), k), T::nan()), order);
    x.part_mul(part.clone(), &v.view(), &mut out.view_mut());
    prop_assert!(close(&out, &product(&of_part, &wv.view())), "part_mul");
    let mut out = v.clone();
    x.part_tmul_add(part.clone(), &u.slice(ndarray::s![part.clone(), ..]), &mut out.view_mut());
    let want = &wv + &product(&of_part.t(), &wu.slice(ndarray::s![part, ..]));
    prop_assert!(close(&out, &want), "part_tmul_add");

    // Selected blocks by their products with the identity.
    let is = |x: Block<T>, want: Array2<f64>| {
        let identity = ordered(&Array2::<T>::eye(want.ncols()), order);
        let mut out = ordered(&Array2::from_elem(want.dim(), T::nan()), order);
        x.mul(&identity.view(), &mut out.view_mut());
        close(&out, &want)
    };
    let columns: Vec<usize> = (0..cols).filter(|j| j % 4 != 2).collect();
    let [by_rows, by_columns] = [ndarray::Axis(0), ndarray::Axis(1)];
    prop_assert!(is(x.select(by_rows, &some), wide.select(by_rows, &some)), "selected rows");
    prop_assert!(is(x.select(by_columns, &columns), wide.select(by_columns, &columns)), "selected columns");
    if kind != BlockKind::Bits {
        let cut = rows / 3;
        let [first, rest]: [Vec<usize>; 2] = [(0..cut).collect(), (cut..rows).collect()];
        let parts = vec![x.select(by_rows, &first), x.select(by_rows, &rest)];
        prop_assert!(is(Block::stacked(parts).unwrap(), wide.clone()), "stacked");
    }

    let mut out = Array2::zeros((k, k));
    gram(&u.view(), &mut out.view_mut());
    prop_assert!(close(&out, &product(&wu.t(), &wu.view())), "gram");

    let near = |a: f64, b: f64| (a - b).abs() <= 1e-10 * (1.0 + b.abs());
    let approximation = product(&wu.view(), &wv.t());
    prop_assert!(near(x.norm2(), wide.iter().map(|x| x * x).sum()), "norm2");
    prop_assert!(near(x.cross(&u.view(), &v.view()), (&wide * &approximation).sum()), "cross");
    let want = (&wide - &approximation).iter().map(|x| x * x).sum();
    prop_assert!(near(x.residual2(&u.view(), &v.view()), want), "residual2");
    prop_assert!(near(x.direct_residual2(&u.view(), &v.view()), want), "direct_residual2");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn products_follow_their_definition(
        kind in prop_oneof![Just(BlockKind::Dense), Just(BlockKind::Bits), select(ProductKernel::ALL).prop_map(BlockKind::Sparse)],
        seed in 0..1000u64, rows in 0..60usize, cols in 0..80usize, k in prop_oneof![1..20usize, 60..70usize, 125..150usize],
    ) {
        with_each_arch(|| {
            agrees::<f64>(kind, seed, [rows, cols, k])?;
            agrees::<f32>(kind, seed, [rows, cols, k])
        })?;
    }
}

#[test]
fn long_blocks_cross_tiles() {
    let sparse = ProductKernel::ALL.iter().map(|kernel| BlockKind::Sparse(*kernel));
    for kind in sparse.clone().chain([BlockKind::Dense]) {
        agrees::<f64>(kind, 3, [2500, 11, 5]).unwrap();
        agrees::<f64>(kind, 7, [40, 0, 5]).unwrap();
        agrees::<f64>(kind, 7, [0, 40, 5]).unwrap();
        agrees::<f64>(kind, 4, [130, 1100, 3]).unwrap();
    }
    sparse.for_each(|kind| agrees::<f64>(kind, 5, [5000, 7, 3]).unwrap());
}

#[test]
fn a_residual_near_zero_keeps_its_digits() {
    // UVᵀ = X up to one part in 10⁹: the Gram form would only return rounding errors of ‖X‖².
    let (x, wide) = block::<f64>(BlockKind::Sparse(ProductKernel::Native), 6, 40, 30, 30);
    let u = ordered(&(&wide * (1.0 + 1e-9)), Order::RowMajor);
    let v = Array2::eye(30);
    let want = wide.iter().map(|x| (x * 1e-9).powi(2)).sum::<f64>();
    let got = x.residual2(&u.view(), &v.view());
    assert!((got - want).abs() < 1e-6 * want, "{got} {want}");
}

/// A first square of 2²⁸: compared with it, squares of ones vanish in f32, also in sums over lanes.
#[test]
fn long_sums_in_f32_lose_no_terms() {
    let ones = 1usize << 22;
    let mut values = vec![1.0f32; ones + 16];
    values[..16].fill(16384.0);
    let expected = 16.0 * f64::from(1 << 28) + ones as f64;
    assert_eq!(squares(&values), expected);
    // The terms of a Gram matrix are added up in parts, of which only the first has large ones.
    let factor = ArrayView2::from_shape((values.len(), 1), &values).unwrap();
    let mut out = Array2::<f32>::zeros((1, 1));
    gram(&factor, &mut out.view_mut());
    assert!((f64::from(out[[0, 0]]) - expected).abs() < 1e5, "{} {expected}", out[[0, 0]]);
}

#[test]
fn dense_blocks_are_compressed() {
    let dense = Array2::from_shape_fn((7, 5), |(i, j)| if (i + 2 * j) % 3 == 0 { (i * j + 1) as f64 } else { 0.0 });
    let Block::Sparse(rows) = Block::Dense(dense.clone().into()).sparsified() else { panic!("it is compressed") };
    assert_eq!(
        (rows.matrix().to_dense(), rows.matrix().nnz()),
        (dense.clone(), dense.iter().filter(|x| **x > 0.0).count())
    );
    let empty = Block::Dense(Array2::<f64>::zeros((3, 0)).into()).sparsified();
    assert_eq!(empty.shape(), (3, 0));
}
