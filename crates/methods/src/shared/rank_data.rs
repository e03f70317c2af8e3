//! This rank's part of the data ([`RankData`]): a block in memory, or panels that are read from a file in each pass.
//!
//! One pass over panels computes both products of an iteration: for each panel its rows of M V, from these its new rows
//! of U, and its term of MᵀU. An iteration therefore reads the file only once. A large dense block in memory is read
//! in the same way where memory limits its products ([`rows_in_cache`]).

use std::mem::swap;
use std::ops::Range;

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use fednmf_base::error::{Result, SharedResult};
use fednmf_comm::Communicator;
use fednmf_data::Panels;
use fednmf_linalg::{Block, Order, Real};

use crate::decision::Decision;

use super::factor_side::FactorSide;

/// The update of some rows of U (their range, counted from the first own row): the rows themselves, their right-hand
/// side, and the Gram matrix of V.
pub type UpdateRows<'a, T> =
    dyn FnMut(Range<usize>, ArrayViewMut2<'_, T>, ArrayView2<'_, T>, &Array2<T>) -> Result<()> + 'a;

/// The rows and columns of a block that hold entries.
pub enum Occupied {
    /// The marked rows and columns.
    Some([Vec<bool>; 2]),
    /// All: the block is dense.
    All,
    /// Unknown before the data is read.
    Unknown,
}

/// This rank's part of the data, and its products with the factors.
pub trait RankData<T: Real> {
    /// The memory order that products need of the factors.
    fn order(&self) -> Order;

    /// Prepares for products with k columns.
    ///
    /// # Errors
    /// On this rank only, if MKL refuses a sparse block.
    fn prepare(&mut self, k: usize) -> Result<()>;

    fn occupied(&self) -> Occupied;

    /// A copy of the rows (axis 0) or columns (axis 1) with these indices, in ascending order. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    fn select(&mut self, comm: &Communicator, axis: Axis, places: &[usize]) -> SharedResult<Block<T>>;

    /// Right-hand side M V of U's owned rows. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    fn product_for_u(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<()>;

    /// Right-hand side MᵀU of V's owned rows. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    fn product_for_v(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<()>;

    /// Computes V's Gram matrix g (k × k) and U's right-hand side, and updates all own rows of U. Collective.
    ///
    /// # Errors
    /// If an update fails; on all ranks, if a file cannot be read.
    fn update_u(
        &mut self,
        comm: &Communicator,
        sides: (&mut FactorSide<T>, &mut FactorSide<T>),
        g: &mut Array2<T>,
        update: &mut UpdateRows<'_, T>,
    ) -> Result<()>;

    /// As [`RankData::product_for_v`], for the U of the last [`RankData::update_u`]. Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    fn product_for_v_after_update(
        &mut self,
        comm: &Communicator,
        u: &mut FactorSide<T>,
        v: &mut FactorSide<T>,
    ) -> SharedResult<()>;

    /// This rank's part of ‖M − UVᵀ‖². Collective.
    ///
    /// # Errors
    /// On all ranks, if a file cannot be read.
    fn residual2(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<f64>;

    /// The block, if it is in memory.
    fn into_block(self: Box<Self>) -> Option<Block<T>> {
        None
    }

    /// Whether each product and residual reads a file.
    fn is_streamed(&self) -> bool {
        false
    }

    /// The decision to record in trace and output; `None` if there is none.
    fn decision(&self) -> Option<Decision> {
        None
    }
}

/// Bytes of the rows of a dense block that are multiplied, updated and multiplied again while they are in cache.
const PANEL_BYTES: usize = 2 << 20;
/// Smallest number of such rows: each panel reads both factors of the columns.
const LEAST_ROWS: usize = 64;
/// Largest number of components with which memory limits the products of a dense block.
const MOST_COMPONENTS: usize = 16;
/// Bytes of a block below which it stays in cache as a whole.
const LARGE_BLOCK: usize = 16 << 20;

/// Number of rows of a dense matrix of `word` bytes per entry on a grid, for which an iteration reads its block once;
/// `None` if that does not pay, or if ranks share rows of U, whose right-hand sides are sums over ranks. The same on
/// all ranks.
pub fn rows_in_cache((m, n): (usize, usize), (pr, pc): (usize, usize), k: usize, word: usize) -> Option<usize> {
    let rows = PANEL_BYTES / (n * word).max(1) / LEAST_ROWS * LEAST_ROWS;
    let large = m / pr * n * word >= LARGE_BLOCK;
    (pc == 1 && k <= MOST_COMPONENTS && large && rows > 0).then_some(rows)
}

/// The rank's panels, or else the first of its blocks, of which an update reads `rows` at a time ([`rows_in_cache`]).
pub fn rank_data<T: Real>(
    blocks: Vec<Block<T>>,
    panels: Option<Panels<T>>,
    rows: Option<usize>,
) -> Box<dyn RankData<T>> {
    let product = Array2::zeros((0, 0));
    match panels {
        Some(panels) => Box::new(InPanels { empty: panels.empty_block(), panels, product }),
        None => {
            let block = blocks.into_iter().next().expect("a grid has one block on each rank");
            Box::new(InMemory { block, rows, product })
        }
    }
}

/// Updates rows of U from their rows of M V, which `mul` computes; `tmul` adds their term of MᵀU.
fn update_panel<T: Real>(
    comm: &Communicator,
    u: &mut FactorSide<T>,
    (rows, g): (Range<usize>, &Array2<T>),
    update: &mut UpdateRows<'_, T>,
    mul: impl FnOnce(&mut ArrayViewMut2<'_, T>),
    tmul: impl FnOnce(&ArrayView2<'_, T>),
) -> Result<()> {
    let mut rhs = u.rhs.slice_mut(s![rows.clone(), ..]);
    comm.work("product M V", || mul(&mut rhs));
    let mut own = u.own.slice_mut(s![rows.clone(), ..]);
    comm.work("update", || update(rows, own.view_mut(), rhs.view(), g))?;
    comm.work("product M'U", || tmul(&own.view()));
    Ok(())
}

/// Data in one block in memory, on any grid.
struct InMemory<T: Real> {
    block: Block<T>,
    /// The rows that an update reads at a time; `None`: all, once for each product.
    rows: Option<usize>,
    /// This rank's term of MᵀU (n × k), before the sum over ranks, if an update computes it.
    product: Array2<T>,
}

/// Data in panels, on a grid of rows only.
struct InPanels<T: Real> {
    panels: Panels<T>,
    /// A block without rows, of the same form as the panels.
    empty: Block<T>,
    /// This rank's term of MᵀU (n × k), before the sum over ranks.
    product: Array2<T>,
}

impl<T: Real> RankData<T> for InMemory<T> {
    fn order(&self) -> Order {
        self.block.order()
    }

    fn prepare(&mut self, k: usize) -> Result<()> {
        if self.rows.is_some() {
            self.product = self.order().zeros(self.block.shape().1, k);
        }
        self.block.prepare(k)
    }

    fn occupied(&self) -> Occupied {
        match &self.block {
            Block::Sparse(block) => Occupied::Some(block.occupied()),
            _ => Occupied::All,
        }
    }

    fn select(&mut self, comm: &Communicator, axis: Axis, places: &[usize]) -> SharedResult<Block<T>> {
        Ok(comm.work("start: sample", || self.block.select(axis, places)))
    }

    fn product_for_u(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<()> {
        let v = v.gather_needed();
        u.sum_rhs(|out| comm.work("product M V", || self.block.mul(&v, &mut out.view_mut())));
        Ok(())
    }

    fn product_for_v(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<()> {
        let u = u.gather_needed();
        v.sum_rhs(|out| comm.work("product M'U", || self.block.tmul(&u, &mut out.view_mut())));
        Ok(())
    }

    /// If all rows are multiplied at once, the summed Gram matrix is not needed before the update, so the sum overlaps
    /// with the product.
    fn update_u(
        &mut self,
        comm: &Communicator,
        (u, v): (&mut FactorSide<T>, &mut FactorSide<T>),
        g: &mut Array2<T>,
        update: &mut UpdateRows<'_, T>,
    ) -> Result<()> {
        let Some(most) = self.rows else {
            v.gram_while(comm, g, |v| self.product_for_u(comm, u, v))?;
            return comm.work("update", || update(0..u.own.nrows(), u.own.view_mut(), u.rhs.view(), g));
        };
        v.gram(comm, g);
        let v = v.gather_needed();
        let InMemory { block, product, .. } = self;
        product.fill(T::zero());
        let all = u.own.nrows();
        for first in (0..all).step_by(most) {
            let rows = first..all.min(first + most);
            update_panel(
                comm,
                u,
                (rows.clone(), g),
                update,
                |rhs| block.part_mul(rows.clone(), &v, rhs),
                |own| block.part_tmul_add(rows.clone(), own, &mut product.view_mut()),
            )?;
        }
        Ok(())
    }

    fn product_for_v_after_update(
        &mut self,
        comm: &Communicator,
        u: &mut FactorSide<T>,
        v: &mut FactorSide<T>,
    ) -> SharedResult<()> {
        match self.rows {
            Some(_) => v.sum_rhs(|out| swap(out, &mut self.product)),
            None => self.product_for_v(comm, u, v)?,
        }
        Ok(())
    }

    fn residual2(&mut self, _: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<f64> {
        Ok(self.block.residual2(&u.gather(), &v.gather()))
    }

    fn into_block(self: Box<Self>) -> Option<Block<T>> {
        Some(self.block)
    }
}

impl<T: Real> InPanels<T> {
    /// One pass over the panels; `f` may add to the product. Collective.
    fn pass(
        &mut self,
        comm: &Communicator,
        mut f: impl FnMut(Range<usize>, &Block<T>, &mut Array2<T>) -> Result<()>,
    ) -> SharedResult<()> {
        let InPanels { panels, product, .. } = self;
        let read = panels.pass(comm, |rows, block| f(rows, block, product));
        comm.agree_on_error(read).map(drop)
    }
}

impl<T: Real> RankData<T> for InPanels<T> {
    fn order(&self) -> Order {
        self.empty.order()
    }

    fn prepare(&mut self, k: usize) -> Result<()> {
        self.product = self.order().zeros(self.empty.shape().1, k);
        self.empty.prepare(k)
    }

    fn occupied(&self) -> Occupied {
        Occupied::Unknown
    }

    fn select(&mut self, comm: &Communicator, axis: Axis, places: &[usize]) -> SharedResult<Block<T>> {
        // A rank without rows has no panel.
        let mut parts = vec![self.empty.select(axis, if axis == Axis(0) { &[] } else { places })];
        self.pass(comm, |rows, block, _| {
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
        comm.agree_on_error(Block::stacked(parts))
    }

    fn product_for_u(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<()> {
        let v = v.gather();
        self.pass(comm, |rows, block, _| {
            comm.work("product M V", || block.mul(&v, &mut u.rhs.slice_mut(s![rows, ..])));
            Ok(())
        })
    }

    fn product_for_v(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<()> {
        self.product.fill(T::zero());
        self.pass(comm, |rows, block, product| {
            comm.work("product M'U", || block.tmul_add(&u.own.slice(s![rows, ..]), &mut product.view_mut()));
            Ok(())
        })?;
        self.product_for_v_after_update(comm, u, v)
    }

    /// The pass also adds up this rank's term of MᵀU, for [`RankData::product_for_v_after_update`].
    fn update_u(
        &mut self,
        comm: &Communicator,
        (u, v): (&mut FactorSide<T>, &mut FactorSide<T>),
        g: &mut Array2<T>,
        update: &mut UpdateRows<'_, T>,
    ) -> Result<()> {
        v.gram(comm, g);
        self.product.fill(T::zero());
        let v = v.gather();
        self.pass(comm, |rows, block, product| {
            let tmul = |own: &ArrayView2<'_, T>| block.tmul_add(own, &mut product.view_mut());
            update_panel(comm, u, (rows, g), update, |rhs| block.mul(&v, rhs), tmul)
        })?;
        Ok(())
    }

    fn product_for_v_after_update(
        &mut self,
        _: &Communicator,
        _: &mut FactorSide<T>,
        v: &mut FactorSide<T>,
    ) -> SharedResult<()> {
        // The memory in which V was gathered, or the last right-hand side, is that of the next product.
        v.sum_rhs(|out| swap(out, &mut self.product));
        Ok(())
    }

    fn residual2(&mut self, comm: &Communicator, u: &mut FactorSide<T>, v: &mut FactorSide<T>) -> SharedResult<f64> {
        let (v, u) = (v.gather(), &u.own);
        let mut sum = 0.0;
        self.pass(comm, |rows, block, _| {
            sum += block.residual2(&u.slice(s![rows, ..]), &v);
            Ok(())
        })?;
        Ok(sum)
    }

    fn is_streamed(&self) -> bool {
        true
    }

    fn decision(&self) -> Option<Decision> {
        Some(Decision::Streamed { panels: self.panels.count(), rows: self.panels.rows() })
    }
}
