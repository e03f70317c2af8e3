//! A local block of the data in whichever form it has, and the products that the algorithms ask of it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use super::dense::{self, Dense};
use super::threads::threads;
use super::{Bits, Csr, Order, Real, SparseKernel, gemm, over_rows};
use crate::error::Result;

/// A local block X (rows × cols) of the data matrix.
pub enum Block<T: Real> {
    Dense(Dense<T>),
    Sparse(Csr<T>),
    Bits(Bits),
}

/// Memory that products need beside their operands; grows on first use and is then kept, so that iterations allocate
/// nothing.
#[derive(Default)]
pub struct Scratch<T> {
    /// One for each thread.
    tiles: Vec<Mutex<Vec<T>>>,
}

/// Bytes of a tile of gathered rows: half of a usual second-level cache.
const TILE_BYTES: usize = 512 << 10;

impl<T: Real> Block<T> {
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Block::Dense(x) => x.dim(),
            Block::Sparse(x) => x.shape(),
            Block::Bits(x) => x.shape(),
        }
    }

    /// Number of stored entries.
    pub fn stored(&self) -> usize {
        match self {
            Block::Dense(x) => x.len(),
            Block::Sparse(x) => x.matrix().nnz(),
            Block::Bits(x) => x.count(),
        }
    }

    /// A copy of Xᵀ, for methods that pick columns as often as rows.
    pub fn transposed(&self) -> Self {
        match self {
            Block::Dense(x) => Block::Dense(x.t().as_standard_layout().into_owned()),
            Block::Sparse(x) => Block::Sparse(Csr::new(x.matrix().transpose_view().to_csr())),
            Block::Bits(x) => {
                let (rows, cols) = x.shape();
                let mut out = Bits::zeros(cols, rows);
                (0..rows).for_each(|i| x.ones(i).for_each(|j| out.set(j, i)));
                Block::Bits(out)
            }
        }
    }

    /// The memory order that factors and right-hand sides of this block's products must have.
    pub fn order(&self) -> Order {
        match self {
            Block::Dense(_) => Order::Components,
            Block::Sparse(_) | Block::Bits(_) => Order::Rows,
        }
    }

    /// Settles how a sparse block multiplies with k columns; nothing to do for the others.
    ///
    /// # Errors
    /// When MKL refuses the block.
    pub fn prepare(&mut self, kernel: SparseKernel, k: usize) -> Result<()> {
        match self {
            Block::Sparse(x) => x.prepare(kernel, k),
            _ => Ok(()),
        }
    }

    /// out = X·B, for B cols × k and out rows × k in this block's order.
    pub fn mul(&self, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::mul(&x.view(), b, out),
            Block::Sparse(x) => x.mul(b, out),
            Block::Bits(x) => {
                for (i, mut out) in out.rows_mut().into_iter().enumerate() {
                    out.fill(T::zero());
                    x.ones(i).for_each(|j| out += &b.row(j));
                }
            }
        }
    }

    /// out = XᵀU, for U rows × k and out cols × k in this block's order.
    pub fn tmul(&self, u: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => dense::tmul(&x.view(), u, out),
            Block::Sparse(x) => x.tmul(u, out),
            Block::Bits(x) => {
                out.fill(T::zero());
                for (i, u) in u.rows().into_iter().enumerate() {
                    x.ones(i).for_each(|j| out.row_mut(j).scaled_add(T::one(), &u));
                }
            }
        }
    }

    /// out += (X_R)ᵀ·B for consecutive rows R of X: B |R| × k, out cols × k, in this block's order.
    pub fn range_tmul_add(&self, rows: Range<usize>, b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>) {
        match self {
            Block::Dense(x) => gemm(T::one(), &x.slice(s![rows, ..]).t(), b, T::one(), out),
            Block::Sparse(x) => x.rows_tmul_add(rows, b, out),
            Block::Bits(x) => {
                for (i, b) in rows.zip(b.rows()) {
                    x.ones(i).for_each(|j| out.row_mut(j).scaled_add(T::one(), &b));
                }
            }
        }
    }

    /// out = (X_S)ᵀ·B for the rows S of X: work and memory traffic ∝ |S|, X_S is never stored whole.
    /// B is |S| × k, out cols × k, in this block's order.
    pub fn rows_tmul(&self, rows: &[usize], b: &ArrayView2<T>, out: &mut ArrayViewMut2<T>, scratch: &mut Scratch<T>) {
        match self {
            Block::Dense(x) => gathered_tmul(x, rows, b, out, scratch),
            Block::Sparse(x) => x.rows_tmul(rows, b, out),
            Block::Bits(x) => {
                out.fill(T::zero());
                for (&i, b) in rows.iter().zip(b.rows()) {
                    x.ones(i).for_each(|j| out.row_mut(j).scaled_add(T::one(), &b));
                }
            }
        }
    }
}

/// The dense case of [`Block::rows_tmul`]: pieces of some of the chosen rows are copied into a tile that stays in cache
/// and multiplied there, so that the matrix crosses the memory bus once.
fn gathered_tmul<T: Real>(
    x: &Array2<T>,
    rows: &[usize],
    b: &ArrayView2<T>,
    out: &mut ArrayViewMut2<T>,
    scratch: &mut Scratch<T>,
) {
    let cols = x.ncols();
    if rows.is_empty() || cols == 0 {
        out.fill(T::zero());
        return;
    }
    // Enough rows for GEMM to pay for reading and writing the result, and pieces as long as the tile then allows.
    let room = TILE_BYTES / size_of::<T>();
    let height = (room / cols).clamp(128, 512).min(rows.len());
    let strip = (room / height).min(cols);
    scratch.tiles.resize_with(threads(), Mutex::default);
    let tiles = &scratch.tiles;
    over_rows(out, &|first, mut out| {
        // Each run of rows begins at another thread's share, so no two wait for one tile.
        let place = (first * tiles.len()).div_ceil(cols).min(tiles.len() - 1);
        let mut tile = tiles[place].lock().unwrap_or_else(PoisonError::into_inner);
        if tile.len() < height * strip {
            tile.resize(height * strip, T::zero());
        }
        for start in (0..out.nrows()).step_by(strip) {
            let width = strip.min(out.nrows() - start);
            let out = &mut out.slice_mut(s![start..start + width, ..]);
            let from = first + start;
            // The first piece overwrites what stands in the result.
            let mut beta = T::zero();
            for (chosen, b) in rows.chunks(height).zip(b.axis_chunks_iter(Axis(0), height)) {
                let tile = &mut tile[..chosen.len() * width];
                for (to, &i) in tile.chunks_exact_mut(width).zip(chosen) {
                    let row = x.slice(s![i, from..from + width]);
                    to.copy_from_slice(row.as_slice().expect("rows of a block are contiguous"));
                }
                let tile = ArrayView2::from_shape((chosen.len(), width), tile).expect("the tile has this shape");
                gemm(T::one(), &tile.t(), &b, beta, out);
                beta = T::one();
            }
        }
    });
}
