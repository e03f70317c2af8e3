//! What the exact alternating methods share (MPI-FAUN, Kannan et al. 2018): the data on a grid, and in each half of an
//! iteration the Gram matrix of one factor, the product with the data, and a step of the method on
//! (Gram, right-hand side) for the rows of the other factor. `hals`, `mu` and `bpp` are such steps.

use ndarray::Array2;

use super::grid::Grid;
use super::options::{GRID, Taken};
use super::registry::Wire;
use super::{Algorithm, Measures, Owner, Piece, Problem, Restore, start};
use crate::comm::{Door, Parcel, Payload};
use crate::error::Result;
use crate::linalg::{self, Real};
use crate::metrics;

/// A method's update of the rows of one factor.
pub trait Step<T: Real> {
    /// Changes x (rows × k) for the right-hand side r (rows × k) and the Gram matrix g (k × k) of the fixed factor.
    /// `r` may be overwritten.
    ///
    /// # Errors
    /// When the numbers can no longer be carried on with.
    fn update(&mut self, x: &mut Array2<T>, r: &mut Array2<T>, g: &Array2<T>) -> Result<()>;
}

/// What every exact method takes.
pub const OPTIONS: &[Taken] = &[GRID.or("auto")];

const GRAM_V: Parcel = Parcel::new("Gram of V", Payload::Gram);
const GRAM_U: Parcel = Parcel::new("Gram of U", Payload::Gram);
const GATHER_V: Parcel = Parcel::new("gather V", Payload::SharedFactor);
const GATHER_U: Parcel = Parcel::new("gather U", Payload::SharedFactor);
const RHS_U: Parcel = Parcel::new("sum M V", Payload::Product);
const RHS_V: Parcel = Parcel::new("sum M'U", Payload::Product);

/// What leaves a rank, the same for every step.
pub const WIRE: &[Wire] = &[
    Wire::new(GRAM_V, "k x k", "each iteration"),
    Wire::new(GRAM_U, "k x k", "each iteration"),
    Wire::new(GATHER_V, "(n / pc) x k", "each iteration, where the grid has several rows; each evaluation"),
    Wire::new(GATHER_U, "(m / pr) x k", "each iteration, where the grid has several columns; each evaluation"),
    Wire::new(RHS_U, "(m / pr) x k", "each iteration, where the grid has several columns"),
    Wire::new(RHS_V, "(n / pc) x k", "each iteration, where the grid has several rows"),
    Wire::new(metrics::RESIDUAL, "1", "each evaluation"),
];

/// See the module.
pub struct Exact<T: Real, S> {
    door: Door,
    grid: Grid<T>,
    gram: Array2<T>,
    step: S,
    shape: (usize, usize),
    norm2: f64,
    iteration: usize,
}

/// Puts the method together; `step` is made for a number of components.
///
/// # Errors
/// When a sparse block is refused by MKL.
pub fn build<T: Real, S: Step<T> + 'static>(
    problem: Problem<'_, T>,
    step: impl FnOnce(usize) -> S,
) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, door, .. } = problem;
    let shape = (data.header.rows, data.header.cols);
    let mut block = data.blocks.into_iter().next().expect("a grid has one block on each rank");
    block.prepare(kernel, k)?;
    let mut grid = Grid::new(&door, block, &data.cuts, k);
    let scale = start::scale(data.figures.sum, shape, k);
    start::u(seed, &grid.u.own_rows, scale, grid.u.own.view_mut());
    start::v(seed, &grid.v.own_rows, scale, grid.v.own.view_mut());
    let (gram, norm2) = (Array2::zeros((k, k)), data.figures.norm2);
    Ok(Box::new(Exact { door, grid, gram, step: step(k), shape, norm2, iteration: 0 }))
}

impl<T: Real, S: Step<T>> Algorithm<T> for Exact<T, S> {
    fn advance(&mut self, n: usize) -> Result<()> {
        let Exact { door, grid, gram, step, .. } = self;
        for _ in 0..n {
            // The sum of a Gram matrix is not needed before the update: it travels while the data is multiplied.
            door.work("Gram", || linalg::gram(&grid.v.own.view(), &mut gram.view_mut()));
            let words = gram.as_slice_mut().expect("made contiguous");
            door.sum_while(GRAM_V, words, || grid.product_for_u(door, GATHER_V, RHS_U));
            door.work("update", || step.update(&mut grid.u.own, &mut grid.u.rhs, gram))?;

            door.work("Gram", || linalg::gram(&grid.u.own.view(), &mut gram.view_mut()));
            let words = gram.as_slice_mut().expect("made contiguous");
            door.sum_while(GRAM_U, words, || grid.product_for_v(door, GATHER_U, RHS_V));
            door.work("update", || step.update(&mut grid.v.own, &mut grid.v.rhs, gram))?;
            self.iteration += 1;
        }
        Ok(())
    }

    fn iteration(&self) -> usize {
        self.iteration
    }

    fn measure(&mut self) -> Result<Measures> {
        let u = self.grid.u.gather(GATHER_U);
        let v = self.grid.v.gather(GATHER_V);
        let error = metrics::relative_error(&self.door, self.norm2, std::iter::once((&self.grid.block, u, v)));
        Ok(vec![("rel_error", error)])
    }

    fn factors(&self) -> Vec<Piece<'_, T>> {
        let (u, v) = (&self.grid.u, &self.grid.v);
        vec![
            Piece::shared("U", self.shape.0, u.own_rows.start, u.own.view()),
            Piece::shared("V", self.shape.1, v.own_rows.start, v.own.view()),
        ]
    }

    fn restore(&mut self, from: &dyn Restore<T>, iteration: usize) -> Result<()> {
        from.rows("U", Owner::Shared, self.grid.u.own_rows.start, self.grid.u.own.view_mut())?;
        from.rows("V", Owner::Shared, self.grid.v.own_rows.start, self.grid.v.own.view_mut())?;
        self.iteration = iteration;
        Ok(())
    }

    fn decisions(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("grid", self.grid.name().into())]
    }
}
