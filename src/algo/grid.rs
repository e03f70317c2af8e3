//! The pr × pc grid of MPI-FAUN: rank (i, j) holds the block M_ij and a share of the rows of U_i and of V_j.
//!
//! For U's update every rank needs V_j whole (gathered in its grid column) and the product M V, of which it holds one
//! term for all rows of block i (summed and scattered in its grid row); for V's update the other way round.
//! With pc = 1 (1-D by rows) U never moves and V crosses the network twice per iteration: 2nk words in all.

use std::ops::Range;

use ndarray::{Array2, ArrayView2};

use crate::comm::{Door, Parcel, Parts, even_part};
use crate::linalg::{Block, Order, Real};

/// One side of the grid: a factor's rows of this rank's block, shared out over the ranks that have the same rows.
pub struct Side<T: Real> {
    /// The ranks that share these rows: the grid row for U, the grid column for V.
    door: Door,
    /// Rows of the whole factor that this rank owns.
    pub own_rows: Range<usize>,
    /// The rows owned: |own_rows| × k.
    pub own: Array2<T>,
    /// Right-hand side of the owned rows.
    pub rhs: Array2<T>,
    /// All rows of the block, gathered; empty where they are all owned.
    whole: Array2<T>,
    parts: Parts,
    rows: Vec<Range<usize>>,
    stage: Vec<T>,
}

impl<T: Real> Side<T> {
    /// The side of a factor whose rows `block` belong to this rank's block; `door` leads to those that share them.
    pub fn new(door: Door, block: &Range<usize>, k: usize, order: Order) -> Self {
        let rows: Vec<Range<usize>> = (0..door.size()).map(|r| even_part(block.len(), door.size(), r)).collect();
        let mine = rows[door.rank()].clone();
        let shared = if door.size() > 1 { block.len() } else { 0 };
        Side {
            own_rows: block.start + mine.start..block.start + mine.end,
            own: order.zeros(mine.len(), k),
            rhs: order.zeros(mine.len(), k),
            whole: order.zeros(shared, k),
            parts: Parts::new(&rows, k),
            stage: if order == Order::Components { vec![T::zero(); shared * k] } else { Vec::new() },
            rows,
            door,
        }
    }

    /// All rows of the block: what is owned, where that is all, else gathered from those that share them.
    pub fn gather(&mut self, parcel: Parcel) -> ArrayView2<'_, T> {
        if self.door.size() == 1 {
            return self.own.view();
        }
        let own = memory(&self.own);
        if self.stage.is_empty() {
            let whole = self.whole.as_slice_memory_order_mut().expect("made contiguous");
            self.door.all_gather(parcel, own, &self.parts, whole);
        } else {
            self.door.all_gather(parcel, own, &self.parts, &mut self.stage);
            let k = self.own.ncols();
            for (r, rows) in self.rows.iter().enumerate() {
                let part = &self.stage[self.parts.range(r)];
                for j in 0..k {
                    let from = &part[j * rows.len()..(j + 1) * rows.len()];
                    let mut to = self.whole.slice_mut(ndarray::s![rows.clone(), j]);
                    to.as_slice_mut().expect("a component is contiguous").copy_from_slice(from);
                }
            }
        }
        self.whole.view()
    }

    /// The right-hand side of the owned rows: `product` computes this rank's term for all rows of the block.
    pub fn scatter(&mut self, parcel: Parcel, product: impl FnOnce(&mut Array2<T>)) {
        if self.door.size() == 1 {
            product(&mut self.rhs);
            return;
        }
        product(&mut self.whole);
        let rhs = self.rhs.as_slice_memory_order_mut().expect("made contiguous");
        if self.stage.is_empty() {
            let whole = self.whole.as_slice_memory_order_mut().expect("made contiguous");
            self.door.reduce_scatter(parcel, whole, &self.parts, rhs);
        } else {
            for (r, rows) in self.rows.iter().enumerate() {
                let part = &mut self.stage[self.parts.range(r)];
                for j in 0..self.whole.ncols() {
                    let from = self.whole.slice(ndarray::s![rows.clone(), j]);
                    part[j * rows.len()..(j + 1) * rows.len()]
                        .copy_from_slice(from.as_slice().expect("a component is contiguous"));
                }
            }
            self.door.reduce_scatter(parcel, &mut self.stage, &self.parts, rhs);
        }
    }
}

/// The elements in the order they have in memory.
fn memory<T: Real>(a: &Array2<T>) -> &[T] {
    a.as_slice_memory_order().expect("factors are made contiguous")
}

/// The grid: this rank's block and the two sides.
pub struct Grid<T: Real> {
    pub block: Block<T>,
    pub u: Side<T>,
    pub v: Side<T>,
}

impl<T: Real> Grid<T> {
    /// The place of `door`'s rank in a grid with `cuts`; rank i·pc + j has block (i, j).
    pub fn new(door: &Door, block: Block<T>, cuts: &crate::data::Cuts, k: usize) -> Self {
        let pc = cuts.cols.len();
        let (i, j) = (door.rank() / pc, door.rank() % pc);
        let order = block.order();
        Grid {
            u: Side::new(door.split(i), &cuts.rows[i], k, order),
            v: Side::new(door.split(j), &cuts.cols[j], k, order),
            block,
        }
    }

    /// Right-hand side M V of U's owned rows.
    pub fn product_for_u(&mut self, door: &Door, gather: Parcel, scatter: Parcel) {
        let v = self.v.gather(gather);
        let block = &self.block;
        self.u.scatter(scatter, |out| door.work("product M V", || block.mul(&v, &mut out.view_mut())));
    }

    /// Right-hand side Mᵀ U of V's owned rows.
    pub fn product_for_v(&mut self, door: &Door, gather: Parcel, scatter: Parcel) {
        let u = self.u.gather(gather);
        let block = &self.block;
        self.v.scatter(scatter, |out| door.work("product M'U", || block.tmul(&u, &mut out.view_mut())));
    }
}
