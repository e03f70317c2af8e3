//! Sketches: random matrices S (N × d) with E[SSᵀ] = I that reduce one dimension of a subproblem. One file per kind.
//!
//! S is never sent: every rank draws the same S from (seed, purpose, iteration), and only the part that it needs.

mod count;
mod iid;
mod operator;
mod srht;
mod subsample;
mod weighted;

pub use operator::Sketch;
pub use weighted::{TOTALS, WORDS, WeightedSampler};

use self::count::CountSketch;
use self::iid::{EntryDistribution, IidSketch};
use self::srht::SrhtSketch;
use self::subsample::SubsampleSketch;
use crate::random::{Purpose, Stream};
use crate::{Order, Real};

fednmf_base::words! {
    /// The kinds of sketches.
    pub enum SketchKind {
        /// Picks rows or columns
        Subsample = "subsample",
        /// Adds them up with random signs
        Count = "count",
        /// Independent Gaussian entries
        Gaussian = "gaussian",
        /// Independent uniform entries
        Uniform = "uniform",
        /// Subsampled randomised Hadamard transform
        Srht = "srht",
    }
}

impl SketchKind {
    /// Whether it selects rows without mixing them ([`Sketch::picked`]).
    pub fn picks(self) -> bool {
        self == SketchKind::Subsample
    }
}

/// A sketch of N rows to d columns, for factors with k columns in `order`.
pub fn make<T: Real>(kind: SketchKind, n: usize, d: usize, k: usize, order: Order) -> Box<dyn Sketch<T>> {
    match kind {
        SketchKind::Gaussian => Box::new(IidSketch::new(EntryDistribution::Gaussian, n, d, k, order)),
        SketchKind::Uniform => Box::new(IidSketch::new(EntryDistribution::Uniform, n, d, k, order)),
        SketchKind::Count => Box::new(CountSketch::new(n, d, k, order)),
        SketchKind::Srht => Box::new(SrhtSketch::new(n, d, k, order)),
        SketchKind::Subsample => Box::new(SubsampleSketch::new(n, d, k, order)),
    }
}

/// The random stream of the sketch in an iteration: for the update of U (it sketches the rows of V) or of V.
pub fn stream(seed: u64, for_u: bool, iteration: usize) -> Stream {
    Stream::new(seed, if for_u { Purpose::SketchForU } else { Purpose::SketchForV }, iteration as u64)
}

/// Default d for N rows and k components: N/10, but for small N up to min(N/2, 10 k), and at least 2 k, so that the
/// subproblem is overdetermined.
pub fn default_size(n: usize, k: usize) -> usize {
    (n / 10).max((n / 2).min(10 * k)).max(2 * k).clamp(1, n.max(1))
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use fednmf_base::words::Words as _;

    use super::*;
    use crate::Block;

    /// S itself, obtained by applying Sᵀ to the identity.
    fn materialise(sketch: &mut dyn Sketch<f64>, n: usize) -> Array2<f64> {
        let mut out = Order::ColumnMajor.zeros(sketch.size(), n);
        sketch.sketch_rows(0, &Array2::eye(n).view(), &mut out.view_mut());
        out.reversed_axes()
    }

    #[test]
    fn the_mean_of_s_s_transposed_is_the_identity() {
        let (n, d, rounds) = (12, 5, 4000);
        for &kind in SketchKind::ALL {
            let mut sketch = make::<f64>(kind, n, d, n, Order::ColumnMajor);
            let mut mean = Array2::<f64>::zeros((n, n));
            for t in 0..rounds {
                sketch.draw(&stream(11, true, t));
                let s = materialise(&mut *sketch, n);
                mean += &s.dot(&s.t());
            }
            mean /= rounds as f64;
            // The variance of an entry is at most 2n/d here; five standard deviations of the mean.
            let bound = 5.0 * (2.0 * n as f64 / d as f64 / rounds as f64).sqrt();
            let worst = (&mean - &Array2::<f64>::eye(n)).iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            assert!(worst < bound, "{kind:?}: {worst} > {bound}");
        }
    }

    /// Equation (16) of Qian et al.: the mean gradient of the sketched subproblem is the gradient of the full problem.
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
        let x = Block::Dense(m.t().as_standard_layout().into_owned().into());
        for &kind in SketchKind::ALL {
            let mut sketch = make::<f64>(kind, n, d, k, Order::ColumnMajor);
            let (mut sum, mut squares) = (Array2::<f64>::zeros((rows, k)), Array2::<f64>::zeros((rows, k)));
            let (mut b, mut product) = (Order::ColumnMajor.zeros(d, k), Order::ColumnMajor.zeros(rows, k));
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
        let mut columns = Order::ColumnMajor.zeros(d, k);
        columns.assign(&b);
        for &kind in SketchKind::ALL {
            let mut sketch = make::<f64>(kind, n, d, k, Order::ColumnMajor);
            sketch.draw(&stream(5, false, 3));
            // The rows of the factor in two parts, as two ranks hold them.
            let mut left = Order::ColumnMajor.zeros(d, n);
            let mut right = Order::ColumnMajor.zeros(d, n);
            let eye = Array2::<f64>::eye(n);
            let mut wide = make::<f64>(kind, n, d, n, Order::ColumnMajor);
            wide.draw(&stream(5, false, 3));
            wide.sketch_rows(0, &eye.slice(ndarray::s![..17, ..]), &mut left.view_mut());
            wide.sketch_rows(17, &eye.slice(ndarray::s![17.., ..]), &mut right.view_mut());
            let s = (left + right).reversed_axes();
            let expected = x.t().dot(&s).dot(&b);
            let mut out = Order::ColumnMajor.zeros(cols, k);
            sketch.product(&Block::Dense(x.clone().into()), &columns.view(), &mut out.view_mut());
            assert!((&out - &expected).iter().all(|e| e.abs() < 1e-10), "{kind:?} dense");

            let mut by_rows = make::<f64>(kind, n, d, k, Order::RowMajor);
            by_rows.draw(&stream(5, false, 3));
            let csr = sprs::CsMatI::<f64, i32, usize>::csr_from_dense(x.view(), 0.0);
            let mut out = Order::RowMajor.zeros(cols, k);
            by_rows.product(&Block::Sparse(crate::Csr::new(csr)), &b.view(), &mut out.view_mut());
            assert!((&out - &expected).iter().all(|e| e.abs() < 1e-10), "{kind:?} sparse");
        }
    }
}
