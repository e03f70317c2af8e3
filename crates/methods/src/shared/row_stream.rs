//! Products of a factor with data that a rank reads from the file in panels ([`Panels`]), on a grid of rows alone.
//!
//! A pass over the panels gives both products of an iteration: for each panel the rows of M V, from them the new rows of
//! U, and their term of MᵀU. So an iteration reads the file once, where one with the data in memory multiplies it twice.

use std::mem::swap;
use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use fednmf_base::error::Result;
use fednmf_comm::{Communicator, MessageTag};
use fednmf_data::Panels;
use fednmf_linalg::{Block, Order, Real};

use super::grid::Grid;
use crate::decision::Decision;

/// This rank's part of the data: a block, or panels; with panels, the block is an empty one of the same kind.
pub struct RankData<T: Real> {
    pub block: Block<T>,
    pub stream: Option<RowStream<T>>,
}

impl<T: Real> RankData<T> {
    /// The first of a rank's blocks, or its panels.
    pub fn new(blocks: Vec<Block<T>>, panels: Option<Panels<T>>) -> Self {
        match panels {
            Some(panels) => {
                let (block, product) = (panels.empty_block(), Array2::zeros((0, 0)));
                RankData { block, stream: Some(RowStream { panels, product }) }
            }
            None => {
                let block = blocks.into_iter().next().expect("a grid has one block on each rank");
                RankData { block, stream: None }
            }
        }
    }

    /// A copy of the rows (axis 0) or columns (axis 1) with these places, which ascend, of the rank's part. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn select(&mut self, comm: &Communicator, axis: Axis, places: &[usize]) -> Result<Block<T>> {
        let Some(stream) = &mut self.stream else {
            return Ok(comm.work("start: sample", || self.block.select(axis, places)));
        };
        // A rank without rows has no panel.
        let mut parts = vec![self.block.select(axis, if axis == Axis(0) { &[] } else { places })];
        stream.pass(comm, |rows, block, _| {
            comm.work("start: sample", || {
                parts.push(if axis == Axis(0) {
                    let within = places.iter().filter(|&at| rows.contains(at)).map(|at| at - rows.start);
                    block.select(axis, &within.collect::<Vec<_>>())
                } else {
                    block.select(axis, places)
                });
            });
            Ok(())
        })?;
        Block::stacked(parts)
    }

    /// Prepares for products with k columns on a grid of n columns.
    pub fn prepare(&mut self, n: usize, k: usize) {
        let order = self.block.order();
        if let Some(stream) = &mut self.stream {
            stream.prepare(n, k, order);
        }
    }
}

/// The panels of a rank, and the memory for a product with all columns.
pub struct RowStream<T: Real> {
    panels: Panels<T>,
    /// This rank's term of MᵀU (n × k), on its way into the sum.
    product: Array2<T>,
}

impl<T: Real> RowStream<T> {
    fn prepare(&mut self, n: usize, k: usize, order: Order) {
        self.product = order.zeros(n, k);
    }

    /// The panels, for trace and output.
    pub fn decision(&self) -> Decision {
        Decision::Streamed { panels: self.panels.count(), rows: self.panels.rows() }
    }

    /// One pass over the panels; `f` may add to the product. Collective.
    fn pass(
        &mut self,
        comm: &Communicator,
        mut f: impl FnMut(Range<usize>, &Block<T>, &mut Array2<T>) -> Result<()>,
    ) -> Result<()> {
        let RowStream { panels, product } = self;
        let read = panels.pass(comm, |rows, block| f(rows, block, product));
        comm.agree_on_error(read).map(drop)
    }

    /// Computes U's right-hand side M V by rows, calls `update` with the rows of U and of the right-hand side, and adds up
    /// this rank's term of MᵀU for [`RowStream::sum_product`]. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read or an update fails.
    pub fn update_u(
        &mut self,
        comm: &Communicator,
        grid: &mut Grid<T>,
        gather: MessageTag,
        mut update: impl FnMut(Range<usize>, ArrayViewMut2<'_, T>, ArrayView2<'_, T>) -> Result<()>,
    ) -> Result<()> {
        self.product.fill(T::zero());
        let (v, side) = (grid.v.gather(gather), &mut grid.u);
        self.pass(comm, |rows, block, product| {
            let mut rhs = side.rhs.slice_mut(s![rows.clone(), ..]);
            comm.work("product M V", || block.mul(&v, &mut rhs));
            let mut u = side.own.slice_mut(s![rows.clone(), ..]);
            update(rows, u.view_mut(), rhs.view())?;
            comm.work("product M'U", || block.tmul_add(&u.view(), &mut product.view_mut()));
            Ok(())
        })
    }

    /// The right-hand side of V's owned rows, from the ranks' terms of MᵀU. Collective.
    pub fn sum_product(&mut self, grid: &mut Grid<T>, scatter: MessageTag) {
        // The memory in which V was gathered, or the last right-hand side, is that of the next product.
        grid.v.scatter(scatter, |out| swap(out, &mut self.product));
    }

    /// ‖M − UVᵀ‖² of this rank's rows. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    pub fn residual2(&mut self, comm: &Communicator, grid: &mut Grid<T>, gather: MessageTag) -> Result<f64> {
        let (v, u) = (grid.v.gather(gather), &grid.u.own);
        let mut sum = 0.0;
        self.pass(comm, |rows, block, _| {
            sum += block.residual2(&u.slice(s![rows, ..]), &v);
            Ok(())
        })?;
        Ok(sum)
    }

    fn product_for_u(&mut self, comm: &Communicator, grid: &mut Grid<T>, gather: MessageTag) -> Result<()> {
        let (v, rhs) = (grid.v.gather(gather), &mut grid.u.rhs);
        self.pass(comm, |rows, block, _| {
            comm.work("product M V", || block.mul(&v, &mut rhs.slice_mut(s![rows, ..])));
            Ok(())
        })
    }

    fn product_for_v(&mut self, comm: &Communicator, grid: &mut Grid<T>, scatter: MessageTag) -> Result<()> {
        self.product.fill(T::zero());
        let u = &grid.u.own;
        self.pass(comm, |rows, block, product| {
            comm.work("product M'U", || block.tmul_add(&u.slice(s![rows, ..]), &mut product.view_mut()));
            Ok(())
        })?;
        self.sum_product(grid, scatter);
        Ok(())
    }
}

/// Right-hand side M V of U's owned rows, from the grid's block or its stream. Collective.
///
/// # Errors
/// On all ranks, if a file cannot be read.
pub fn product_for_u<T: Real>(
    (grid, stream): (&mut Grid<T>, &mut Option<RowStream<T>>),
    comm: &Communicator,
    (gather, scatter): (MessageTag, MessageTag),
) -> Result<()> {
    match stream {
        Some(stream) => stream.product_for_u(comm, grid, gather),
        None => {
            grid.product_for_u(comm, gather, scatter);
            Ok(())
        }
    }
}

/// Right-hand side Mᵀ U of V's owned rows; otherwise as [`product_for_u`].
///
/// # Errors
/// On all ranks, if a file cannot be read.
pub fn product_for_v<T: Real>(
    (grid, stream): (&mut Grid<T>, &mut Option<RowStream<T>>),
    comm: &Communicator,
    (gather, scatter): (MessageTag, MessageTag),
) -> Result<()> {
    match stream {
        Some(stream) => stream.product_for_v(comm, grid, scatter),
        None => {
            grid.product_for_v(comm, gather, scatter);
            Ok(())
        }
    }
}
