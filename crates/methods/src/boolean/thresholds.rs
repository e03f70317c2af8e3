//! The search for the thresholds α for U and β for V, on a grid of 100 × 100, whose Boolean product fits best (Dalleiger,
//! Vreeken, Kamp: Federated Binary Matrix Factorization using Proximal Optimization, B.1). For each β, each row of the data
//! is visited once for all α: as α decreases, the components of the row join one by one. The zeros and ones that each newly
//! covers are counted in 64-bit words. No product is formed.

use ndarray::Array2;

use fednmf_linalg::{Bits, Real};

use crate::boolean::party_block::Ones;

/// Points of the grid in each direction, from `MIN_THRESHOLD` to 1.
const POINTS: usize = 100;
const MIN_THRESHOLD: f64 = 1e-12;

/// The threshold at position `at` of the grid.
fn point(at: usize) -> f64 {
    MIN_THRESHOLD + (1.0 - MIN_THRESHOLD) * at as f64 / (POINTS - 1) as f64
}

/// The number of grid points that are at most x: x is a one for these thresholds.
fn reached(x: f64) -> usize {
    if x.is_nan() || x < MIN_THRESHOLD {
        return 0;
    }
    // The division may be off by one; comparison with the grid points corrects it.
    let near = ((x - MIN_THRESHOLD) / (1.0 - MIN_THRESHOLD) * (POINTS - 1) as f64).min((POINTS - 1) as f64) as usize;
    let mut count = near.saturating_sub(1);
    while count < POINTS && x >= point(count) {
        count += 1;
    }
    count
}

/// U (rows × k) and Vᵀ (k × n) as bits at the best thresholds; ties go to the lowest.
pub fn best_thresholds<T: Real>(x: &Ones<T>, u: &Array2<T>, v: &Array2<T>) -> (Bits, Bits) {
    let (rows, n) = x.shape();
    let k = v.ncols();
    // For each row: the grid points that its components reach, and the components, in the order in which they join.
    let mut order: Vec<Vec<(usize, usize)>> = Vec::with_capacity(rows);
    for row in u.rows() {
        let mut all: Vec<(usize, usize)> =
            row.iter().enumerate().map(|(c, x)| (reached(x.as_f64()), c)).filter(|(at, _)| *at > 0).collect();
        all.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        order.push(all);
    }
    let points_of_v: Vec<usize> = v.iter().map(|x| reached(x.as_f64())).collect();
    let bits_of_v = |beta: usize| {
        let mut bits = Bits::zeros(k, n);
        points_of_v.iter().enumerate().filter(|(_, at)| **at > beta).for_each(|(at, _)| bits.set(at % k, at / k));
        bits
    };
    let mut taken = [false; POINTS + 1];
    points_of_v.iter().for_each(|&at| taken[at] = true);

    let mut best = (i64::MAX, 0, 0);
    let mut covered = vec![0u64; n.div_ceil(64)];
    let mut own = vec![0u64; n.div_ceil(64)];
    // If no entry of V lies between a threshold and the one before, both give the same bits.
    for beta in (0..POINTS).filter(|&beta| beta == 0 || taken[beta]) {
        let bits = bits_of_v(beta);
        // Change in the number of wrong entries when the threshold falls to each grid point.
        let mut change = [0i64; POINTS];
        for (i, order) in order.iter().enumerate().filter(|(_, order)| !order.is_empty()) {
            covered.fill(0);
            own.fill(0);
            x.row(i).iter().for_each(|&j| own[j as usize / 64] |= 1 << (j % 64));
            for &(at, c) in order {
                let mut sum = 0i64;
                for ((covered, own), v) in covered.iter_mut().zip(&own).zip(bits.row(c)) {
                    let fresh = v & !*covered;
                    sum += i64::from(fresh.count_ones()) - 2 * i64::from((fresh & own).count_ones());
                    *covered |= v;
                }
                change[at - 1] += sum;
            }
        }
        let mut errors = 0;
        for alpha in (0..POINTS).rev() {
            errors += change[alpha];
            if (errors, beta, alpha) < best {
                best = (errors, beta, alpha);
            }
        }
    }
    let (_, beta, alpha) = best;
    let mut u_bits = Bits::zeros(rows, k);
    for (i, order) in order.iter().enumerate() {
        order.iter().filter(|(at, _)| *at > alpha).for_each(|&(_, c)| u_bits.set(i, c));
    }
    (u_bits, bits_of_v(beta))
}

#[cfg(test)]
mod tests {
    use fednmf_linalg::Block;
    use fednmf_linalg::random::{Purpose, Stream, uniform_factor};

    use super::*;

    #[test]
    fn points_are_reached_from_themselves_on() {
        for at in 0..POINTS {
            let x = point(at);
            assert_eq!(reached(x), at + 1);
            assert_eq!(reached(x * (1.0 - 1e-15) - f64::MIN_POSITIVE), at);
        }
        assert_eq!((reached(0.0), reached(f64::NAN), reached(2.0)), (0, 0, POINTS));
    }

    #[test]
    fn the_best_of_all_ten_thousand_is_found() {
        for seed in 0..3 {
            let draw = |at, rows| uniform_factor::<f64>(&Stream::new(seed, Purpose::Probe, at), 0..rows, 3, 1.0);
            let (u, v) = (draw(1, 8), draw(2, 70));
            let a = draw(3, 8).dot(&draw(4, 70).t()).mapv(|x| f64::from(u8::from(x > 0.9)));
            let x = Ones::new(Block::Dense(a.clone().into())).unwrap();
            let errors =
                |u: &Array2<f64>, v: &Array2<f64>| (&u.dot(&v.t()).mapv(|x| x.min(1.0)) - &a).mapv(f64::abs).sum();
            let at_least = |x: &Array2<f64>, at| x.mapv(|x| f64::from(u8::from(x >= point(at))));
            let mut fewest = f64::INFINITY;
            for alpha in 0..POINTS {
                for beta in 0..POINTS {
                    fewest = fewest.min(errors(&at_least(&u, alpha), &at_least(&v, beta)));
                }
            }
            let (u_bits, v_bits) = best_thresholds(&x, &u, &v);
            assert_eq!(errors(&u_bits.to_dense(), &v_bits.transposed().to_dense()), fewest);
        }
    }
}
