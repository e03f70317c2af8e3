//! Count sketch (Clarkson and Woodruff, Low Rank Approximation and Regression in Input Sparsity Time, STOC 2013): row i of
//! S has a random sign in one random column h(i) and is zero elsewhere.
//!
//! For a dense block A = XᵀS is computed by additions only, in tiles of columns that stay in cache, and multiplied by B
//! there: N·cols additions and 2·d·k·cols flops. Adding rows does not shrink a sparse block, whose nonzeros remain; there
//! the product is Xᵀ(S B), whose rows of S B are looked up, at the cost of the exact product.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::operator::Sketch;
use crate::random::Stream;
use crate::{Block, Contiguous, Order, Real, gemm};

/// Bytes of a tile of A: half of a typical second-level cache.
const TILE_BYTES: usize = 512 << 10;

/// A count sketch; see the module.
pub struct CountSketch<T: Real> {
    d: usize,
    column: Vec<u32>,
    sign: Vec<T>,
    /// S B, N × k, for sparse blocks.
    expanded: Array2<T>,
    order: Order,
    k: usize,
    tile: Vec<T>,
}

impl<T: Real> CountSketch<T> {
    /// A sketch of N rows to d, for factors with k columns in `order`.
    pub fn new(n: usize, d: usize, k: usize, order: Order) -> Self {
        CountSketch {
            d,
            column: vec![0; n],
            sign: vec![T::one(); n],
            expanded: order.zeros(0, k),
            order,
            k,
            tile: Vec::new(),
        }
    }

    fn dense_product(&mut self, x: &ArrayView2<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        let cols = x.ncols();
        let width = (TILE_BYTES / size_of::<T>() / self.d.max(1)).clamp(32, 4096).min(cols.max(1));
        self.tile.resize(self.d * width, T::zero());
        for first in (0..cols).step_by(width) {
            let w = width.min(cols - first);
            let tile = &mut self.tile[..self.d * w];
            tile.fill(T::zero());
            for (i, row) in x.rows().into_iter().enumerate() {
                let row = row.slice(s![first..first + w]);
                let row = row.row_major();
                let h = self.column[i] as usize;
                let sign = self.sign[i];
                for (t, &v) in tile[h * w..(h + 1) * w].iter_mut().zip(row) {
                    *t += sign * v;
                }
            }
            let tile = ArrayView2::from_shape((self.d, w), &self.tile[..self.d * w]).expect("cut to this size");
            gemm(T::one(), &tile.t(), b, T::zero(), &mut out.slice_mut(s![first..first + w, ..]));
        }
    }
}

impl<T: Real> Sketch<T> for CountSketch<T> {
    fn size(&self) -> usize {
        self.d
    }

    fn draw(&mut self, stream: &Stream) {
        let mut cursor = stream.at(0);
        for (h, sign) in self.column.iter_mut().zip(&mut self.sign) {
            // The top bit is the sign, the rest the column.
            let bits = cursor.bits();
            *sign = if bits >> 63 == 1 { T::one() } else { -T::one() };
            *h = ((u128::from(bits << 1) * self.d as u128) >> 64) as u32;
        }
    }

    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        out.fill(T::zero());
        for (i, row) in f.rows().into_iter().enumerate() {
            let i = first_row + i;
            out.row_mut(self.column[i] as usize).scaled_add(self.sign[i], &row);
        }
    }

    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        if let Block::Dense(x) = x {
            return self.dense_product(&x.view(), b, out);
        }
        if self.expanded.nrows() != self.column.len() {
            self.expanded = self.order.zeros(self.column.len(), self.k);
        }
        for (i, mut row) in self.expanded.rows_mut().into_iter().enumerate() {
            let sign = self.sign[i];
            row.zip_mut_with(&b.row(self.column[i] as usize), |e, &b| *e = sign * b);
        }
        x.tmul(&self.expanded.view(), out);
    }
}
