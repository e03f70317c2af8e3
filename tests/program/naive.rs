//! Algorithms as plain loops and simple readers, which share only the start with the program.

use std::path::Path;

use ndarray::Array2;

use fednmf_linalg::random::{Purpose, Stream, uniform_factor};

/// An iteration of HALS as in the paper.
pub fn hals(m: &Array2<f64>, u: &mut Array2<f64>, v: &mut Array2<f64>) {
    let half = |m: &Array2<f64>, x: &mut Array2<f64>, y: &Array2<f64>| {
        for j in 0..x.ncols() {
            let yy: f64 = y.column(j).iter().map(|a| a * a).sum();
            for i in 0..x.nrows() {
                let mut gradient = 0.0;
                for c in 0..m.ncols() {
                    let fit: f64 = (0..x.ncols()).map(|l| x[[i, l]] * y[[c, l]]).sum();
                    gradient += (m[[i, c]] - fit) * y[[c, j]];
                }
                x[[i, j]] = (x[[i, j]] + gradient / yy).max(0.0);
            }
        }
    };
    half(m, u, v);
    half(&m.t().to_owned(), v, u);
}

/// Extrapolated HALS: two sweeps per factor, starting from the extrapolated one. If the objective at the new U
/// increased, β is reduced and both factors are reset. On return U is extrapolated, and V is the one that was fitted to
/// it.
pub fn extrapolated_hals(m: &Array2<f64>, u: &mut Array2<f64>, v: &mut Array2<f64>, iterations: usize) {
    let half = |m: &Array2<f64>, x: &mut Array2<f64>, y: &Array2<f64>| {
        let (gram, product) = (y.t().dot(y), m.dot(y));
        for i in 0..x.nrows() {
            for j in (0..x.ncols()).chain(0..x.ncols()) {
                let fit: f64 = (0..x.ncols()).map(|l| x[[i, l]] * gram[[l, j]]).sum();
                x[[i, j]] = (x[[i, j]] + (product[[i, j]] - fit) / gram[[j, j]]).max(0.0);
            }
        }
    };
    let (mut u_new, mut v_new) = (u.clone(), v.clone());
    let (mut beta, mut bound, mut last) = (0.4, 1.0, f64::INFINITY);
    for iteration in 0..iterations {
        // The first iterations are not extrapolated.
        let weight = |beta: f64, plain: usize| if iteration < plain { 0.0 } else { beta };
        half(m, u, v);
        let objective = (m - &u.dot(&v.t())).mapv(|e| e * e).sum();
        let beyond = (&*u + &((&*u - &u_new) * weight(beta, 3))).mapv(|x| x.max(0.0));
        u_new = std::mem::replace(u, beyond);
        if objective <= last {
            beta = f64::min(beta * 1.01, bound);
            bound = f64::min(bound * 1.005, 1.0);
        } else {
            (bound, beta) = (beta, beta / 1.5);
            (*u, *v) = (u_new.clone(), v_new.clone());
        }
        last = objective;
        half(&m.t().to_owned(), v, u);
        let beyond = (&*v + &((&*v - &v_new) * weight(beta, 2))).mapv(|x| x.max(0.0));
        v_new = std::mem::replace(v, beyond);
    }
    *v = v_new;
}

/// The matrix of tests/data/digits.npy.
pub fn digits() -> Array2<f64> {
    let bytes = std::fs::read(crate::common::data("digits.npy")).unwrap();
    let pixels = bytes[bytes.len() - 1797 * 64..].iter().map(|&b| f64::from(b)).collect();
    Array2::from_shape_vec((1797, 64), pixels).unwrap()
}

/// The start of a run with this seed.
pub fn start(m: &Array2<f64>, k: usize, seed: u64) -> (Array2<f64>, Array2<f64>) {
    let c = 2.0 * (m.mean().unwrap() / k as f64).sqrt();
    let factor = |purpose, rows| uniform_factor(&Stream::new(seed, purpose, 0), 0..rows, k, c);
    (factor(Purpose::StartU, m.nrows()), factor(Purpose::StartV, m.ncols()))
}

/// Reads a MatrixMarket array file.
pub fn array_of_mtx(path: &Path) -> Array2<f64> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut numbers =
        text.lines().filter(|l| !l.starts_with('%')).flat_map(str::split_whitespace).map(|w| w.parse().unwrap());
    let mut next = || -> f64 { numbers.next().unwrap() };
    let (m, n) = (next() as usize, next() as usize);
    Array2::from_shape_fn((n, m), |_| next()).reversed_axes().as_standard_layout().into_owned()
}

/// The minimiser of ½ x G xᵀ − r xᵀ over x ≥ 0 by trying every set of positive coordinates.
fn least(g: &Array2<f64>, r: &[f64]) -> Vec<f64> {
    let k = r.len();
    let mut best = (0.0, vec![0.0; k]);
    for set in 1..1usize << k {
        let members: Vec<usize> = (0..k).filter(|j| set >> j & 1 == 1).collect();
        // Gaussian elimination.
        let f = members.len();
        let mut a =
            Array2::from_shape_fn((f, f + 1), |(i, j)| if j < f { g[[members[i], members[j]]] } else { r[members[i]] });
        for i in 0..f {
            for l in 0..f {
                if l != i {
                    let by = a[[l, i]] / a[[i, i]];
                    (0..=f).for_each(|j| a[[l, j]] -= by * a[[i, j]]);
                }
            }
        }
        let solution: Vec<f64> = (0..f).map(|i| a[[i, f]] / a[[i, i]]).collect();
        if solution.iter().all(|x| *x >= 0.0) {
            // At a stationary point the value is −½ r·x.
            let value = -0.5 * members.iter().zip(&solution).map(|(&j, x)| r[j] * x).sum::<f64>();
            if value < best.0 {
                let mut x = vec![0.0; k];
                members.iter().zip(&solution).for_each(|(&j, s)| x[j] = *s);
                best = (value, x);
            }
        }
    }
    best.1
}

/// Each row x of X ← the minimiser of ½ x G xᵀ − r xᵀ over x ≥ 0, or one sweep of coordinate descent towards it.
pub fn least_squares(x: &mut Array2<f64>, g: &Array2<f64>, r: &Array2<f64>, exact: bool) {
    let k = x.ncols();
    for (mut x, r) in x.rows_mut().into_iter().zip(r.rows()) {
        if exact {
            x.iter_mut().zip(least(g, &r.to_vec())).for_each(|(x, new)| *x = new);
        } else {
            for j in 0..k {
                let slope: f64 = (0..k).map(|l| g[[j, l]] * x[l]).sum::<f64>() - r[j];
                x[j] = f64::max(0.0, x[j] - slope / g[[j, j]]);
            }
        }
    }
}
