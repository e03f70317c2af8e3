//! Sketches with independent entries of mean 0 and variance 1/d: Gaussian, and the uniform one of the published code.
//!
//! The right-hand side (MS)(SᵀV) needs M S only in the product with B = SᵀV. It is computed as M (S B), in that order:
//! 2Nd k + 2N k |I| flops instead of 2N d |I| + 2d k |I|: for k < d cheaper by about d/k, and exactly the same sketch.
//! S is drawn a strip of rows at a time and never stored whole.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::Sketch;
use crate::linalg::{Block, Order, Real, gemm};
use crate::random::{Cursor, Purpose, Stream};

/// Rows of S drawn at a time.
const STRIP: usize = 256;

/// The distribution of an entry, before division by √d.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    /// N(0, 1).
    Gaussian,
    /// Uniform(-√3, √3), whose variance is 1.
    Uniform,
}

impl Entries {
    fn draw(self, cursor: &mut Cursor) -> f64 {
        match self {
            Entries::Gaussian => cursor.normal(),
            Entries::Uniform => 3f64.sqrt() * (2.0 * cursor.uniform() - 1.0),
        }
    }
}

/// See the module.
pub struct Iid<T: Real> {
    entries: Entries,
    n: usize,
    d: usize,
    stream: Stream,
    /// A strip of S, STRIP × d.
    strip: Array2<T>,
    /// S B, N × k.
    expanded: Array2<T>,
}

impl<T: Real> Iid<T> {
    /// A sketch of N rows to d, for factors with k columns in `order`.
    pub fn new(entries: Entries, n: usize, d: usize, k: usize, order: Order) -> Self {
        Iid {
            entries,
            n,
            d,
            stream: Stream::new(0, Purpose::Probe, 0),
            strip: Array2::zeros((STRIP.min(n), d)),
            expanded: order.zeros(n, k),
        }
    }

    /// Draws rows `first .. first + rows` of S into the strip.
    fn fill(&mut self, first: usize, rows: usize) {
        let scale = 1.0 / (self.d as f64).sqrt();
        let mut cursor = self.stream.at(first as u128 * self.d as u128);
        for x in self.strip.slice_mut(s![..rows, ..]).iter_mut() {
            *x = T::from_f64(scale * self.entries.draw(&mut cursor));
        }
    }
}

impl<T: Real> Sketch<T> for Iid<T> {
    fn size(&self) -> usize {
        self.d
    }

    fn draw(&mut self, stream: &Stream) {
        self.stream = stream.clone();
    }

    fn sketch_rows(&mut self, first_row: usize, f: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        out.fill(T::zero());
        for first in (0..f.nrows()).step_by(STRIP) {
            let rows = STRIP.min(f.nrows() - first);
            self.fill(first_row + first, rows);
            let strip = self.strip.slice(s![..rows, ..]);
            gemm(T::one(), &strip.t(), &f.slice(s![first..first + rows, ..]), T::one(), out);
        }
    }

    fn product(&mut self, x: &Block<T>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        for first in (0..self.n).step_by(STRIP) {
            let rows = STRIP.min(self.n - first);
            self.fill(first, rows);
            let strip = self.strip.slice(s![..rows, ..]);
            gemm(T::one(), &strip, b, T::zero(), &mut self.expanded.slice_mut(s![first..first + rows, ..]));
        }
        x.tmul(&self.expanded.view(), out);
    }
}
