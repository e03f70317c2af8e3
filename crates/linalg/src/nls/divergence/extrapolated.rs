//! Extrapolation of multiplicative updates with a safeguard.
//!
//! A multiplicative update minimises a majorant that touches the objective at the starting point of the update. Block
//! majorisation-minimisation with extrapolation (Hien, Leplat, Gillis, arXiv 2401.06646) starts at x̂ = x + α max(0, x −
//! x_old): only entries that grow are extrapolated, so no entry becomes negative.
//!
//! The safeguard: for a convex objective F with the gradient g, F(x̂) − F(x) ≤ g(x̂)·(x̂ − x), and the update from x̂ to x_new
//! decreases F by at least the decrease of the majorant. If these two bounds do not show F(x_new) ≤ F(x), the row is updated
//! from x instead. Both bounds follow from sums that the update computes anyway, so they cost neither a pass over the data nor a
//! message, and the objective never increases.

use super::{DivergenceUpdate, FixedFactor};
use crate::nls::Penalty;
use crate::simd::dispatch_fn;
use crate::{Block, Real};

/// An update that minimises a majorant of a convex objective.
pub trait Majorant<T: Real>: DivergenceUpdate<T> {
    /// Largest number of rows in one call of `update_rows` after which [`Majorant::rise`] still knows the sums of each row.
    const ROWS: usize;

    /// An upper bound of the objective at `to` less that at `last`, after an update that led from `from` to `to`.
    fn rise(&self, y: FixedFactor<'_, T>, last: &[T], from: &[T], to: &[T], penalty: Penalty) -> f64;
}

/// The update `R`, starting at extrapolated rows.
#[derive(Debug, Clone)]
pub struct Extrapolated<T, R> {
    update: R,
    /// The extrapolated rows of one call of `R::update_rows`, and whether each is updated from the last one instead.
    from: Vec<T>,
    again: Vec<bool>,
}

impl<T: Real, R: Majorant<T>> Extrapolated<T, R> {
    pub fn new(update: R, k: usize) -> Self {
        Extrapolated { update, from: vec![T::zero(); R::ROWS * k], again: vec![false; R::ROWS] }
    }
}

impl<T: Real, R: Majorant<T>> DivergenceUpdate<T> for Extrapolated<T, R> {
    fn update(&mut self, data: (&Block<T>, usize), y: FixedFactor<'_, T>, x: &mut [T], penalty: Penalty) {
        self.update.update(data, y, x, penalty);
    }

    fn update_rows(
        &mut self,
        (block, first): (&Block<T>, usize),
        y: FixedFactor<'_, T>,
        x: &mut [T],
        last: &[T],
        penalty: Penalty,
    ) {
        let Extrapolated { update, from, again } = self;
        let (k, tile) = (y.sums.len(), from.len());
        for (at, (x, last)) in x.chunks_mut(tile).zip(last.chunks(tile)).enumerate() {
            let first = first + at * R::ROWS;
            let from = &mut from[..x.len()];
            from.copy_from_slice(x);
            update.update_rows((block, first), y, x, &[], penalty);
            dispatch_fn(
                #[inline(always)]
                || {
                    let rows = x.chunks_exact(k).zip(from.chunks_exact(k)).zip(last.chunks_exact(k));
                    for (((x, from), last), again) in rows.zip(&mut *again) {
                        let rise = if from == last { 0.0 } else { update.rise(y, last, from, x, penalty) };
                        *again = rise.is_nan() || rise > 0.0;
                    }
                },
            );
            let rows = x.chunks_exact_mut(k).zip(last.chunks_exact(k)).zip(&*again);
            for (i, ((x, last), _)) in rows.enumerate().filter(|(_, (_, again))| **again) {
                x.copy_from_slice(last);
                update.update((block, first + i), y, x, penalty);
            }
        }
    }

    fn flops(&self, stored: usize, all: usize) -> usize {
        self.update.flops(stored, all)
    }

    fn takes_gram(&self) -> bool {
        self.update.takes_gram()
    }

    fn extrapolates(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::super::{BetaMultiply, KlMultiply, add_gram, column_sums, divergence_of};
    use super::*;
    use crate::random::{Purpose, Stream, uniform_factor};

    fn random(i: u64, rows: usize, k: usize) -> Array2<f64> {
        uniform_factor::<f64>(&Stream::new(i, Purpose::Probe, 0), 0..rows, k, 1.0) + 0.01
    }

    /// The objective after each update of rows x, extrapolated by `weight` times the last step.
    fn objectives<R: Majorant<f64>>(update: R, beta: f64, weight: f64, penalty: Penalty) -> Vec<f64> {
        let (k, m) = (4, random(1, 70, 12));
        let m = Array2::from_shape_fn(m.dim(), |at| if (at.0 + at.1) % 3 == 0 { 0.0 } else { m[at] });
        let (block, y) = (Block::Dense(m.into()), random(3, 12, k));
        let (mut sums, mut gram) = (vec![0.0; k], vec![0.0; k * k]);
        column_sums(y.as_slice().unwrap(), &mut sums);
        add_gram(y.as_slice().unwrap(), k, &mut gram);
        let fixed = FixedFactor { rows: y.as_slice().unwrap(), sums: &sums, gram: &gram };
        let mut update = Extrapolated::new(update, k);
        let (mut x, mut last) = (random(2, 70, k), random(2, 70, k));
        let objective =
            |x: &Array2<f64>| divergence_of(beta, &block, &x.view(), &y.view(), 1.0) + penalty.value(&x.view());
        let mut found = vec![objective(&x)];
        for _ in 0..60 {
            let new = x.clone();
            x.zip_mut_with(&last, |x, last| *x += weight * (*x - last).max(0.0));
            last = new;
            let rows = (x.as_slice_mut().unwrap(), last.as_slice().unwrap());
            update.update_rows((&block, 0), fixed, rows.0, rows.1, penalty);
            found.push(objective(&x));
        }
        found
    }

    fn check(found: &[f64], plain: &[f64], about: &str) {
        for pair in found.windows(2) {
            assert!(pair[1] <= pair[0] + 1e-12 * pair[0].abs(), "{about}: {pair:?}");
        }
        let (found, plain) = (found.last().unwrap(), plain.last().unwrap());
        assert!(*found <= plain + 1e-12 * plain.abs(), "{about}: {found} {plain}");
    }

    /// Also with weights at which steps without a safeguard would overshoot. For a fixed other factor the problem is convex, so
    /// both kinds of updates approach the same minimum, and the extrapolated ones are not behind.
    #[test]
    fn the_objective_never_increases_and_is_below_that_of_plain_updates() {
        for weight in [0.7, 1.0, 5.0] {
            for penalty in [Penalty::NONE, Penalty { l1: 0.3, l2: 0.0 }, Penalty { l1: 0.1, l2: 2.0 }] {
                let of = |weight| objectives(KlMultiply::new(4), 1.0, weight, penalty);
                check(&of(weight), &of(0.0), &format!("{weight} {penalty:?}"));
            }
            for beta in [1.0, 1.25, 1.5, 2.0] {
                let of = |weight| objectives(BetaMultiply::new(beta, 4, 1.0), beta, weight, Penalty::NONE);
                check(&of(weight), &of(0.0), &format!("{weight} {beta}"));
            }
        }
    }

    /// The bound is never below the change of the objective.
    #[test]
    fn the_bound_holds() {
        let (m, y) = (random(5, 1, 12), random(6, 12, 3));
        let block = Block::Dense(m.into());
        let (mut sums, mut gram) = (vec![0.0; 3], vec![0.0; 9]);
        column_sums(y.as_slice().unwrap(), &mut sums);
        add_gram(y.as_slice().unwrap(), 3, &mut gram);
        let fixed = FixedFactor { rows: y.as_slice().unwrap(), sums: &sums, gram: &gram };
        for seed in 10..60 {
            let (last, step) = (random(seed, 1, 3), random(100 + seed, 1, 3));
            let from = &last + &step;
            for beta in [1.0, 1.3, 2.0] {
                let loss = |x: &Array2<f64>| divergence_of(beta, &block, &x.view(), &y.view(), 1.0);
                let (mut to, mut update) = (from.clone(), BetaMultiply::new(beta, 3, 1.0));
                update.update((&block, 0), fixed, to.as_slice_mut().unwrap(), Penalty::NONE);
                let [a, b, c] = [&last, &from, &to].map(|x| x.as_slice().unwrap());
                let bound = update.rise(fixed, a, b, c, Penalty::NONE);
                let change = loss(&to) - loss(&last);
                assert!(change <= bound + 1e-12, "{seed} {beta}: {change} {bound}");
            }
        }
    }
}
