//! Sketches with independent entries of mean 0 and variance 1/d: Gaussian, or uniform as in the published code of DSANLS.
//!
//! The right-hand side (MS)(SᵀV) is computed as M (S B) with B = SᵀV: 2N·d·k + 2N·k·cols flops instead of
//! 2N·d·cols + 2d·k·cols, cheaper by a factor of about d/k for k < d. S is drawn in blocks of rows and never stored whole.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::operator::Sketch;
use crate::random::{Cursor, Purpose, Stream};
use crate::{Block, Order, Real, gemm};

/// Rows of S that are drawn at a time.
const BLOCK_ROWS: usize = 256;

/// The distribution of an entry before division by √d.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryDistribution {
    /// N(0, 1).
    Gaussian,
    /// Uniform(-√3, √3), whose variance is 1.
    Uniform,
}

impl EntryDistribution {
    fn draw(self, cursor: &mut Cursor) -> f64 {
        match self {
            EntryDistribution::Gaussian => cursor.normal(),
            EntryDistribution::Uniform => 3f64.sqrt() * (2.0 * cursor.uniform() - 1.0),
        }
    }
}

/// A sketch with independent entries; see the module.
pub struct IidSketch<T: Real> {
    entries: EntryDistribution,
    n: usize,
    d: usize,
    stream: Stream,
    /// A block of rows of S, BLOCK_ROWS × d.
    block: Array2<T>,
    /// S B, N × k.
    expanded: Array2<T>,
}

impl<T: Real> IidSketch<T> {
    /// A sketch of N rows to d, for factors with k columns in `order`.
    pub fn new(entries: EntryDistribution, n: usize, d: usize, k: usize, order: Order) -> Self {
        IidSketch {
            entries,
            n,
            d,
            stream: Stream::new(0, Purpose::Probe, 0),
            block: Array2::zeros((BLOCK_ROWS.min(n), d)),
            expanded: order.zeros(n, k),
        }
    }

    /// Draws rows `first .. first + rows` of S into the block.
    fn fill(&mut self, first: usize, rows: usize) {
        let scale = 1.0 / (self.d as f64).sqrt();
        let mut cursor = self.stream.at(first as u128 * self.d as u128);
        for x in self.block.slice_mut(s![..rows, ..]).iter_mut() {
            *x = T::from_f64(scale * self.entries.draw(&mut cursor));
        }
    }
}

impl<T: Real> Sketch<T> for IidSketch<T> {
    fn size(&self) -> usize {
        self.d
    }

    fn draw(&mut self, stream: &Stream) {
        self.stream = stream.clone();
    }

    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        out.fill(T::zero());
        for first in (0..f.nrows()).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(f.nrows() - first);
            self.fill(first_row + first, rows);
            let block = self.block.slice(s![..rows, ..]);
            gemm(T::one(), &block.t(), &f.slice(s![first..first + rows, ..]), T::one(), out);
        }
    }

    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        for first in (0..self.n).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(self.n - first);
            self.fill(first, rows);
            let block = self.block.slice(s![..rows, ..]);
            gemm(T::one(), &block, b, T::zero(), &mut self.expanded.slice_mut(s![first..first + rows, ..]));
        }
        x.tmul(&self.expanded.view(), out);
    }
}
