//! The row-wise methods against their definitions.

use ndarray::{Array2, s};
use proptest::prelude::*;

use crate::nls::{Penalty, Sweep, gradient_step, gradient_step_below, sweep, sweep_below};
use crate::random::{Purpose, Stream, uniform_factor};
use crate::simd::with_each_arch;
use crate::{Order, Real};

/// The definition of the sweep, in f64.
fn plain(x: &Array2<f64>, r: &Array2<f64>, g: &Array2<f64>, settings: Sweep<f64>) -> Array2<f64> {
    let Sweep { mu, passes, penalty: Penalty { l1, l2 } } = settings;
    let mut x = x.clone();
    for _ in 0..passes {
        for i in 0..x.nrows() {
            for j in 0..x.ncols() {
                let fit = (0..x.ncols()).map(|l| g[[j, l]] * x[[i, l]]).sum::<f64>() - r[[i, j]];
                let gradient = fit + l1 + l2 * x[[i, j]];
                let curvature = g[[j, j]] + l2 + mu;
                if curvature > 0.0 {
                    x[[i, j]] = (x[[i, j]] - gradient / curvature).max(0.0);
                } else if l1 > 0.0 {
                    x[[i, j]] = 0.0;
                }
            }
        }
    }
    x
}

fn ordered<T: Real>(a: &Array2<f64>, order: Order) -> Array2<T> {
    let mut out = order.zeros(a.nrows(), a.ncols());
    out.zip_mut_with(a, |o, &a| *o = T::from_f64(a));
    out
}

/// X, R and G of a well-posed problem; component `dead` of the Gram matrix, if any, is zero.
fn problem(seed: u64, rows: usize, k: usize, dead: Option<usize>) -> [Array2<f64>; 3] {
    let draw = |slot, rows| uniform_factor::<f64>(&Stream::new(seed, Purpose::Probe, slot), 0..rows, k, 1.0);
    let mut y = draw(0, 2 * k + 3);
    if let Some(j) = dead {
        y.column_mut(j % k).fill(0.0);
    }
    let r = draw(1, rows).dot(&y.t()).dot(&y);
    [draw(2, rows), r, y.t().dot(&y)]
}

fn agrees<T: Real>(
    [x, r, g]: &[Array2<f64>; 3],
    orders: [Order; 2],
    (mu, penalty): (f64, Penalty),
    passes: usize,
) -> Result<(), TestCaseError> {
    let tolerance = 1e4 * T::epsilon().as_f64() * passes as f64;
    let (start, rhs, gram) = (ordered::<T>(x, orders[0]), ordered::<T>(r, orders[1]), ordered::<T>(g, Order::RowMajor));
    let wide = |a: &Array2<T>| a.mapv(T::as_f64);
    let (x, r, g) = (wide(&start), wide(&rhs), wide(&gram));
    let close = |a: &Array2<T>, b: &Array2<f64>| {
        a.iter().zip(b).all(|(a, b)| (a.as_f64() - b).abs() <= tolerance * (1.0 + b.abs()))
    };

    let mut got = start.clone();
    let settings = Sweep { mu: T::from_f64(mu), passes, penalty };
    sweep(&mut got.view_mut(), &rhs.view(), &gram.view(), settings);
    let by_loops = plain(&x, &r, &g, Sweep { mu: T::from_f64(mu).as_f64(), passes, penalty });
    prop_assert!(close(&got, &by_loops));

    // Any subset of the rows has the same bits, also as a view into a larger array.
    let (from, to) = (x.nrows() / 3, x.nrows() - x.nrows() / 4);
    let mut part = start.clone();
    sweep(&mut part.slice_mut(s![from..to, ..]), &rhs.slice(s![from..to, ..]), &gram.view(), settings);
    prop_assert_eq!(part.slice(s![from..to, ..]), got.slice(s![from..to, ..]));
    prop_assert_eq!(part.slice(s![..from, ..]), start.slice(s![..from, ..]));
    prop_assert_eq!(part.slice(s![to.., ..]), start.slice(s![to.., ..]));

    let eta = 0.5 / (1.0 + g.diag().sum());
    let mut got = start;
    gradient_step(&mut got.view_mut(), &rhs.view(), &gram.view(), T::from_f64(eta), penalty);
    let gradient = x.dot(&g) - &r + &(&x * penalty.l2) + penalty.l1;
    prop_assert!(close(&got, &(&x - &(gradient * eta)).mapv(|x| x.max(0.0))));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn updates_follow_their_definitions(
        seed in 0..1000u64, rows in 0..150usize, k in 1..36usize, dead in proptest::option::of(0..40usize),
        mu in prop_oneof![Just(0.0), Just(0.7)], passes in 1..4usize, own in any::<bool>(), other in any::<bool>(),
        l1 in prop_oneof![Just(0.0), Just(3.0)], l2 in prop_oneof![Just(0.0), Just(2.0)],
    ) {
        let problem = problem(seed, rows, k, dead);
        let terms = (mu, Penalty { l1, l2 });
        let order = |b| if b { Order::RowMajor } else { Order::ColumnMajor };
        with_each_arch(|| {
            agrees::<f64>(&problem, [order(own), order(other)], terms, passes)?;
            agrees::<f32>(&problem, [order(own), order(other)], terms, passes)
        })?;
    }
}

#[test]
fn long_factors_cross_tiles() {
    for (rows, k) in [(3000, 10), (700, 100)] {
        for order in [Order::RowMajor, Order::ColumnMajor] {
            agrees::<f64>(&problem(5, rows, k, None), [order, order], (0.0, Penalty::NONE), 1).unwrap();
            agrees::<f32>(&problem(5, rows, k, None), [order, order], (0.0, Penalty::NONE), 1).unwrap();
        }
    }
}

#[test]
fn components_without_curvature_are_unchanged() {
    for order in [Order::RowMajor, Order::ColumnMajor] {
        let mut x = ordered::<f64>(&Array2::from_elem((5, 3), 2.0), order);
        let r = ordered::<f64>(&Array2::from_elem((5, 3), 1.0), order);
        let g = Array2::zeros((3, 3));
        sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: 0.0, passes: 2, penalty: Penalty::NONE });
        assert!(x.iter().all(|&x| x == 2.0));
        let g = Array2::from_elem((3, 3), 1e-310);
        sweep(&mut x.view_mut(), &r.view(), &g.view(), Sweep { mu: 0.0, passes: 1, penalty: Penalty::NONE });
        assert!(x.iter().all(|x| x.is_finite()), "{x}");
        // Only the L1 penalty acts on them.
        let penalty = Penalty { l1: 0.1, l2: 0.0 };
        sweep(&mut x.view_mut(), &r.view(), &Array2::zeros((3, 3)).view(), Sweep { mu: 0.0, passes: 1, penalty });
        assert!(x.iter().all(|&x| x == 0.0), "{x}");
    }
}

#[test]
fn entries_stay_below_the_bound() {
    for (rows, k, upper) in [(5, 3, 0.2), (40, 11, 0.5), (7, 20, 0.05)] {
        let [start, r, g] = problem(17, rows, k, None);
        let start = start.mapv(|x| x.min(upper));
        let mut by_loops = start.clone();
        for i in 0..rows {
            for j in 0..k {
                let gradient = by_loops.row(i).dot(&g.row(j)) - r[[i, j]];
                by_loops[[i, j]] = (by_loops[[i, j]] - gradient / (g[[j, j]] + 0.1)).clamp(0.0, upper);
            }
        }
        let eta = 0.3 / g.diag().sum();
        let stepped = (&start - &((start.dot(&g) - &r) * eta)).mapv(|x: f64| x.clamp(0.0, upper));
        for order in [Order::RowMajor, Order::ColumnMajor] {
            let (r, mut x) = (ordered::<f64>(&r, order), ordered::<f64>(&start, order));
            sweep_below(
                &mut x.view_mut(),
                &r.view(),
                &g.view(),
                Sweep { mu: 0.1, passes: 1, penalty: Penalty::NONE },
                upper,
            );
            assert!((&x - &by_loops).iter().all(|e| e.abs() < 1e-12) && x.iter().any(|&x| x == upper));
            let mut x = ordered::<f64>(&start, order);
            gradient_step_below(&mut x.view_mut(), &r.view(), &g.view(), eta, Penalty::NONE, upper);
            assert!((&x - &stepped).iter().all(|e| e.abs() < 1e-12));
        }
    }
}
