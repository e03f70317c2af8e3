//! Subsampling: S selects d of N rows without replacement and scales them by √(N/d).

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use super::operator::Sketch;
use crate::random::{Cursor, Stream};
use crate::{Block, Order, Real};

/// Draws d of N numbers without replacement, in O(d log d) time and without allocation.
pub(super) struct Sampler {
    /// 0..N, restored after each draw, so that a draw depends only on its random numbers.
    order: Vec<usize>,
    swaps: Vec<usize>,
    sample: Vec<usize>,
}

impl Sampler {
    /// For samples of d ≤ N of 0..N.
    pub(super) fn new(n: usize, d: usize) -> Self {
        Sampler { order: (0..n).collect(), swaps: Vec::with_capacity(d), sample: vec![0; d.min(n)] }
    }

    /// The last sample, ascending.
    pub(super) fn sample(&self) -> &[usize] {
        &self.sample
    }

    /// Draws a new sample, with one random number per element.
    pub(super) fn draw(&mut self, cursor: &mut Cursor) {
        let (n, d) = (self.order.len(), self.sample.len());
        // The first d steps of a Fisher-Yates shuffle.
        self.swaps.clear();
        for i in 0..d {
            let j = i + cursor.below((n - i) as u64) as usize;
            self.order.swap(i, j);
            self.swaps.push(j);
        }
        self.sample.copy_from_slice(&self.order[..d]);
        for (i, &j) in self.swaps.iter().enumerate().rev() {
            self.order.swap(i, j);
        }
        self.sample.sort_unstable();
    }
}

/// A subsampling sketch; see the module.
pub struct SubsampleSketch<T: Real> {
    sampler: Sampler,
    scale: T,
    scaled: Array2<T>,
}

impl<T: Real> SubsampleSketch<T> {
    /// A sketch of N rows to d ≤ N, for factors with k columns in `order`.
    pub fn new(n: usize, d: usize, k: usize, order: Order) -> Self {
        SubsampleSketch {
            sampler: Sampler::new(n, d),
            scale: T::from_f64((n as f64 / d as f64).sqrt()),
            scaled: order.zeros(d, k),
        }
    }
}

impl<T: Real> Sketch<T> for SubsampleSketch<T> {
    fn size(&self) -> usize {
        self.sampler.sample().len()
    }

    fn draw(&mut self, stream: &Stream) {
        self.sampler.draw(&mut stream.at(0));
    }

    fn picked(&self) -> Option<&[usize]> {
        Some(self.sampler.sample())
    }

    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        out.fill(T::zero());
        let sample = self.sampler.sample();
        let end = first_row + f.nrows();
        let from = sample.partition_point(|&i| i < first_row);
        let to = sample.partition_point(|&i| i < end);
        // Along the contiguous dimension of the factor.
        if f.strides()[0] == 1 {
            for (f, mut out) in f.columns().into_iter().zip(out.columns_mut()) {
                for place in from..to {
                    out[place] = self.scale * f[sample[place] - first_row];
                }
            }
        } else {
            for place in from..to {
                let row = f.row(sample[place] - first_row);
                out.row_mut(place).zip_mut_with(&row, |o, &x| *o = self.scale * x);
            }
        }
    }

    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        self.scaled.zip_mut_with(b, |s, &b| *s = self.scale * b);
        x.rows_tmul(self.sampler.sample(), &self.scaled.view(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::stream;

    #[test]
    fn samples_are_sets_that_depend_only_on_their_stream() {
        let mut a = Sampler::new(100, 30);
        for t in 0..50 {
            a.draw(&mut stream(1, true, t).at(0));
            assert!(a.sample().windows(2).all(|w| w[0] < w[1]) && a.sample()[29] < 100);
        }
        let mut b = Sampler::new(100, 30);
        b.draw(&mut stream(1, true, 49).at(0));
        assert_eq!(a.sample(), b.sample());
        b.draw(&mut stream(1, false, 49).at(0));
        assert_ne!(a.sample(), b.sample());
    }

    #[test]
    fn a_full_sample_is_the_identity() {
        let mut all = SubsampleSketch::<f64>::new(7, 7, 1, Order::RowMajor);
        all.draw(&stream(3, true, 0));
        assert_eq!(all.sampler.sample(), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(all.scale, 1.0);
    }
}
