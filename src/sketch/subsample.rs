//! Subsampling: d of N rows without replacement, scaled by √(N/d). S is d index numbers; nothing is multiplied by it.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};

use super::Sketch;
use crate::linalg::{Block, Order, Real};
use crate::random::{Cursor, Stream};

/// Draws d of N without replacement, in O(d) and without allocation.
pub(super) struct Chooser {
    /// A permutation of 0..N; put back in order after each draw, so that a draw depends on its numbers alone.
    order: Vec<usize>,
    swaps: Vec<usize>,
    chosen: Vec<usize>,
}

impl Chooser {
    /// Chooses d ≤ N of 0..N.
    pub(super) fn new(n: usize, d: usize) -> Self {
        Chooser { order: (0..n).collect(), swaps: Vec::with_capacity(d), chosen: vec![0; d.min(n)] }
    }

    /// The last choice, ascending: memory is then walked one way.
    pub(super) fn chosen(&self) -> &[usize] {
        &self.chosen
    }

    /// Chooses anew, with one draw for each place.
    pub(super) fn choose(&mut self, cursor: &mut Cursor) {
        let (n, d) = (self.order.len(), self.chosen.len());
        // Fisher-Yates, of which only the first d places are needed.
        self.swaps.clear();
        for i in 0..d {
            let j = i + cursor.below((n - i) as u64) as usize;
            self.order.swap(i, j);
            self.swaps.push(j);
        }
        self.chosen.copy_from_slice(&self.order[..d]);
        for (i, &j) in self.swaps.iter().enumerate().rev() {
            self.order.swap(i, j);
        }
        self.chosen.sort_unstable();
    }
}

/// See the module.
pub struct Subsample<T: Real> {
    chooser: Chooser,
    scale: T,
    scaled: Array2<T>,
}

impl<T: Real> Subsample<T> {
    /// A sketch of N rows to d ≤ N, for factors with k columns in `order`.
    pub fn new(n: usize, d: usize, k: usize, order: Order) -> Self {
        Subsample {
            chooser: Chooser::new(n, d),
            scale: T::from_f64((n as f64 / d as f64).sqrt()),
            scaled: order.zeros(d, k),
        }
    }
}

impl<T: Real> Sketch<T> for Subsample<T> {
    fn size(&self) -> usize {
        self.chooser.chosen().len()
    }

    fn draw(&mut self, stream: &Stream) {
        self.chooser.choose(&mut stream.at(0));
    }

    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        out.fill(T::zero());
        let chosen = self.chooser.chosen();
        let end = first_row + f.nrows();
        let from = chosen.partition_point(|&i| i < first_row);
        let to = chosen.partition_point(|&i| i < end);
        // The way both lie in memory: along the components where those are contiguous.
        if f.strides()[0] == 1 {
            for (f, mut out) in f.columns().into_iter().zip(out.columns_mut()) {
                for place in from..to {
                    out[place] = self.scale * f[chosen[place] - first_row];
                }
            }
        } else {
            for place in from..to {
                let row = f.row(chosen[place] - first_row);
                out.row_mut(place).zip_mut_with(&row, |o, &x| *o = self.scale * x);
            }
        }
    }

    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        self.scaled.zip_mut_with(b, |s, &b| *s = self.scale * b);
        x.rows_tmul(self.chooser.chosen(), &self.scaled.view(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::stream;

    #[test]
    fn every_choice_is_a_set_that_depends_on_its_stream_alone() {
        let mut a = Chooser::new(100, 30);
        for t in 0..50 {
            a.choose(&mut stream(1, true, t).at(0));
            assert!(a.chosen().windows(2).all(|w| w[0] < w[1]) && a.chosen()[29] < 100);
        }
        let mut b = Chooser::new(100, 30);
        b.choose(&mut stream(1, true, 49).at(0));
        assert_eq!(a.chosen(), b.chosen());
        b.choose(&mut stream(1, false, 49).at(0));
        assert_ne!(a.chosen(), b.chosen());
    }

    #[test]
    fn a_full_sample_is_the_identity() {
        let mut all = Subsample::<f64>::new(7, 7, 1, Order::Rows);
        all.draw(&stream(3, true, 0));
        assert_eq!(all.chooser.chosen(), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(all.scale, 1.0);
    }
}
