//! Sketches: random matrices S (N × d) with E[SSᵀ] = I that shrink one dimension of a subproblem. One file per kind.
//!
//! S is never sent: every rank draws the same one from (seed, purpose, iteration), and only the part it needs.
//! What an algorithm needs of S are two products: B = SᵀF of a factor whose rows are spread over ranks (each rank gives
//! its own rows' share of the sum), and Xᵀ S B, the right-hand side (MS)(SᵀV) of the sketched subproblem for a block X
//! stored with the sketched dimension as its rows.

mod count;
mod iid;
mod srht;
mod subsample;

use clap::ValueEnum as _;
use ndarray::{ArrayView2, ArrayViewMut2};

use crate::linalg::{Block, Order, Real};
use crate::random::{Purpose, Stream};

pub use count::Count;
pub use iid::{Entries, Iid};
pub use srht::Srht;
pub use subsample::Subsample;

/// A kind of sketch, drawn anew for each iteration.
pub trait Sketch<T: Real> {
    /// Number of columns d of S.
    fn size(&self) -> usize;

    /// Draws S from a public stream.
    fn draw(&mut self, stream: &Stream);

    /// out (d × k) = S[rows, :]ᵀ F for rows `first_row ..` of S and as many rows F of the factor.
    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>);

    /// out (cols × k) = Xᵀ S B for X (N × cols) and B (d × k); B and out in the block's order.
    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>);
}

/// The kinds of sketches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Picks rows or columns
    Subsample,
    /// Adds them up with random signs
    Count,
    /// Independent Gaussian entries
    Gaussian,
    /// Independent uniform entries
    Uniform,
    /// Subsampled randomised Hadamard transform
    Srht,
}

impl Kind {
    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

/// A sketch of a dimension of N to d columns, for factors with k columns in `order`.
pub fn make<T: Real>(kind: Kind, n: usize, d: usize, k: usize, order: Order) -> Box<dyn Sketch<T>> {
    match kind {
        Kind::Gaussian => Box::new(Iid::new(Entries::Gaussian, n, d, k, order)),
        Kind::Uniform => Box::new(Iid::new(Entries::Uniform, n, d, k, order)),
        Kind::Count => Box::new(Count::new(n, d, k, order)),
        Kind::Srht => Box::new(Srht::new(n, d, k, order)),
        Kind::Subsample => Box::new(Subsample::new(n, d, k, order)),
    }
}

/// The stream of the sketch for U's (of V's rows) or V's (of U's rows) update in an iteration.
pub fn stream(seed: u64, for_u: bool, iteration: usize) -> Stream {
    Stream::new(seed, if for_u { Purpose::SketchForU } else { Purpose::SketchForV }, iteration as u64)
}

/// Default size for a dimension of N with k components: a tenth of it, more (up to half, at most 10 k) where N is small,
/// and at least 2 k, below which the subproblem is no longer determined.
pub fn default_size(n: usize, k: usize) -> usize {
    (n / 10).max((n / 2).min(10 * k)).max(2 * k).clamp(1, n.max(1))
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    /// S itself, column by column: Sᵀ applied to the identity.
    fn materialise(sketch: &mut dyn Sketch<f64>, n: usize) -> Array2<f64> {
        let mut out = Order::Components.zeros(sketch.size(), n);
        sketch.sketch_rows(0, &Array2::eye(n).view(), &mut out.view_mut());
        out.reversed_axes()
    }

    #[test]
    fn the_mean_of_s_s_transposed_is_the_identity() {
        let (n, d, rounds) = (12, 5, 4000);
        for &kind in Kind::value_variants() {
            let mut sketch = make::<f64>(kind, n, d, n, Order::Components);
            let mut mean = Array2::<f64>::zeros((n, n));
            for t in 0..rounds {
                sketch.draw(&stream(11, true, t));
                let s = materialise(&mut *sketch, n);
                mean += &s.dot(&s.t());
            }
            mean /= rounds as f64;
            // An entry's variance is at most 2n/d here; five standard deviations of the mean.
            let bound = 5.0 * (2.0 * n as f64 / d as f64 / rounds as f64).sqrt();
            let worst = (&mean - &Array2::<f64>::eye(n)).iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            assert!(worst < bound, "{kind:?}: {worst} > {bound}");
        }
    }

    /// (16): the mean of the sketched subproblem's gradient, with the products that the program computes, is the
    /// gradient of the whole problem.
    #[test]
    fn the_mean_of_the_sketched_gradient_is_the_gradient() {
        let (n, d, k, rows, rounds) = (14, 6, 3, 4, 6000);
        let entry = |i: usize, j: usize, by: usize| ((i * 5 + j * by) % 7) as f64 / 7.0 + 0.1;
        let m = Array2::from_shape_fn((rows, n), |(i, j)| entry(i, j, 3));
        let (u, v) = (
            Array2::from_shape_fn((rows, k), |(i, j)| entry(i, j, 2)),
            Array2::from_shape_fn((n, k), |(i, j)| entry(i, j, 4)),
        );
        let whole = u.dot(&v.t()).dot(&v) - m.dot(&v);
        let x = Block::Dense(m.t().as_standard_layout().into_owned());
        for &kind in Kind::value_variants() {
            let mut sketch = make::<f64>(kind, n, d, k, Order::Components);
            let (mut sum, mut squares) = (Array2::<f64>::zeros((rows, k)), Array2::<f64>::zeros((rows, k)));
            let (mut b, mut product) = (Order::Components.zeros(d, k), Order::Components.zeros(rows, k));
            for t in 0..rounds {
                sketch.draw(&stream(13, true, t));
                sketch.sketch_rows(0, &v.view(), &mut b.view_mut());
                sketch.product(&x, &b.view(), &mut product.view_mut());
                let gradient = u.dot(&b.t()).dot(&b) - &product;
                squares += &gradient.mapv(|g| g * g);
                sum += &gradient;
            }
            let rounds = rounds as f64;
            for ((&sum, &squares), &whole) in sum.iter().zip(&squares).zip(&whole) {
                let mean = sum / rounds;
                let deviation = ((squares / rounds - mean * mean) / rounds).sqrt();
                assert!((mean - whole).abs() < 5.0 * deviation, "{kind:?}: {mean}, not {whole} (± {deviation})");
            }
        }
    }

    #[test]
    fn products_are_those_of_the_matrix() {
        let (n, d, k, cols) = (40, 13, 3, 9);
        let x = Array2::from_shape_fn((n, cols), |(i, j)| ((i * 7 + j * 3) % 11) as f64);
        let b = Array2::from_shape_fn((d, k), |(i, j)| (i as f64 - 2.0 * j as f64).sin());
        let mut columns = Order::Components.zeros(d, k);
        columns.assign(&b);
        for &kind in Kind::value_variants() {
            let mut sketch = make::<f64>(kind, n, d, k, Order::Components);
            sketch.draw(&stream(5, false, 3));
            // the factor's rows in two pieces, as two ranks would hold them
            let mut left = Order::Components.zeros(d, n);
            let mut right = Order::Components.zeros(d, n);
            let eye = Array2::<f64>::eye(n);
            let mut wide = make::<f64>(kind, n, d, n, Order::Components);
            wide.draw(&stream(5, false, 3));
            wide.sketch_rows(0, &eye.slice(ndarray::s![..17, ..]), &mut left.view_mut());
            wide.sketch_rows(17, &eye.slice(ndarray::s![17.., ..]), &mut right.view_mut());
            let s = (left + right).reversed_axes();
            let expected = x.t().dot(&s).dot(&b);
            let mut out = Order::Components.zeros(cols, k);
            sketch.product(&Block::Dense(x.clone()), &columns.view(), &mut out.view_mut());
            assert!((&out - &expected).iter().all(|e| e.abs() < 1e-10), "{kind:?} dense");

            let mut by_rows = make::<f64>(kind, n, d, k, Order::Rows);
            by_rows.draw(&stream(5, false, 3));
            let csr = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(x.view(), 0.0);
            let mut out = Order::Rows.zeros(cols, k);
            by_rows.product(&Block::Sparse(crate::linalg::Csr::new(csr)), &b.view(), &mut out.view_mut());
            assert!((&out - &expected).iter().all(|e| e.abs() < 1e-10), "{kind:?} sparse");
        }
    }
}
