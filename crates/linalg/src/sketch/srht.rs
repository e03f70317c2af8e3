//! Subsampled randomised Hadamard transform (Ailon and Chazelle 2006; Tropp, Improved Analysis of the Subsampled Randomized
//! Hadamard Transform, 2011): S = D Hᵀ R / √d, where D has random signs, H is the ±1 Hadamard matrix of the next power of
//! two, and R selects d of its rows without replacement.
//!
//! Both products transform factors with k columns: SᵀF has d rows of the transform of the signed factor, and
//! Xᵀ S B = Xᵀ (S B), where S B is the transform of B scattered to the d selected rows. The data is never transformed and
//! H is never formed: k·N·log₂ N additions in addition to the product.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::operator::Sketch;
use super::subsample::Sampler;
use crate::random::Stream;
use crate::{Block, ContiguousMut, Order, Real};

/// A subsampled randomised Hadamard transform; see the module.
pub struct SrhtSketch<T: Real> {
    n: usize,
    sign: Vec<T>,
    sampler: Sampler,
    scale: T,
    /// The matrix that is transformed, padded N × k with contiguous components.
    work: Array2<T>,
    /// S B, N × k in the order of the block.
    expanded: Array2<T>,
}

impl<T: Real> SrhtSketch<T> {
    /// A sketch of N rows to d ≤ N, for factors with k columns in `order`.
    pub fn new(n: usize, d: usize, k: usize, order: Order) -> Self {
        let padded = n.next_power_of_two();
        SrhtSketch {
            n,
            sign: vec![T::one(); n],
            sampler: Sampler::new(padded, d),
            scale: T::from_f64(1.0 / (d as f64).sqrt()),
            work: Order::ColumnMajor.zeros(padded, k),
            expanded: order.zeros(n, k),
        }
    }

    fn transform(&mut self) {
        let padded = self.work.nrows();
        self.work.entries_mut().chunks_exact_mut(padded).for_each(hadamard);
    }
}

/// In-place fast Walsh-Hadamard transform of a power-of-two length, without scaling.
fn hadamard<T: Real>(x: &mut [T]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

impl<T: Real> Sketch<T> for SrhtSketch<T> {
    fn size(&self) -> usize {
        self.sampler.sample().len()
    }

    fn draw(&mut self, stream: &Stream) {
        let mut cursor = stream.at(0);
        for sign in &mut self.sign {
            *sign = if cursor.bits() >> 63 == 1 { T::one() } else { -T::one() };
        }
        self.sampler.draw(&mut cursor);
    }

    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        self.work.fill(T::zero());
        let mut part = self.work.slice_mut(s![first_row..first_row + f.nrows(), ..]);
        part.assign(f);
        for (i, mut row) in part.rows_mut().into_iter().enumerate() {
            let sign = self.sign[first_row + i];
            row.mapv_inplace(|x| sign * x);
        }
        self.transform();
        for (mut out, &r) in out.rows_mut().into_iter().zip(self.sampler.sample()) {
            out.zip_mut_with(&self.work.row(r), |o, &w| *o = self.scale * w);
        }
    }

    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        self.work.fill(T::zero());
        for (b, &r) in b.rows().into_iter().zip(self.sampler.sample()) {
            self.work.row_mut(r).assign(&b);
        }
        self.transform();
        for (i, mut row) in self.expanded.rows_mut().into_iter().enumerate() {
            let factor = self.scale * self.sign[i];
            row.zip_mut_with(&self.work.row(i), |e, &w| *e = factor * w);
        }
        debug_assert_eq!(self.expanded.nrows(), self.n);
        x.tmul(&self.expanded.view(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_the_hadamard_matrix() {
        for i in 0..16usize {
            let mut x = vec![0.0f64; 16];
            x[i] = 1.0;
            hadamard(&mut x);
            for (j, v) in x.iter().enumerate() {
                assert_eq!(*v, if (i & j).count_ones() % 2 == 0 { 1.0 } else { -1.0 });
            }
        }
    }
}
