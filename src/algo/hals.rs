//! HALS (Cichocki and Phan 2009), distributed as in MPI-FAUN: the exact rival of DSANLS, and its limit for a full sketch.
//!
//! One iteration: U's components in turn, each the exact minimiser with all others fixed, then V's:
//! U_:j ← max(0, U_:j + ((M V)_:j − U (VᵀV)_:j) / (VᵀV)_jj).

use ndarray::Array2;

use super::grid::Grid;
use super::registry::{Form, Method, Partition, Unit, Wire};
use super::{Algorithm, Measures, Owner, Piece, Problem, Restore, start};
use crate::comm::{Door, Parcel, Payload};
use crate::error::Result;
use crate::linalg::{Real, gram};
use crate::metrics;
use crate::nls::{Sweep, sweep};

pub static METHOD: Method = Method {
    name: "hals",
    aliases: &[],
    summary: "hierarchical alternating least squares: exact coordinate descent on the whole matrix",
    paper: "Cichocki and Phan 2009; distributed as MPI-FAUN (Kannan et al. 2018)",
    partition: Partition::Grid,
    unit: Unit::Update,
    forms: &[Form::Dense, Form::Sparse],
    options: &[],
    wire: &[
        Wire { purpose: GRAM_V.purpose, payload: GRAM_V.payload, shape: "k x k", when: "each iteration" },
        Wire { purpose: GRAM_U.purpose, payload: GRAM_U.payload, shape: "k x k", when: "each iteration" },
        Wire {
            purpose: GATHER_V.purpose,
            payload: GATHER_V.payload,
            shape: "(n / pc) x k",
            when: "each iteration, where the grid has rows; each evaluation",
        },
        Wire {
            purpose: GATHER_U.purpose,
            payload: GATHER_U.payload,
            shape: "(m / pr) x k",
            when: "each iteration, where the grid has columns; each evaluation",
        },
        Wire {
            purpose: RHS_U.purpose,
            payload: RHS_U.payload,
            shape: "(m / pr) x k",
            when: "each iteration, where the grid has columns",
        },
        Wire {
            purpose: RHS_V.purpose,
            payload: RHS_V.payload,
            shape: "(n / pc) x k",
            when: "each iteration, where the grid has rows",
        },
        Wire {
            purpose: metrics::RESIDUAL.purpose,
            payload: metrics::RESIDUAL.payload,
            shape: "1",
            when: "each evaluation",
        },
    ],
    build64: build,
    build32: build,
};

const GRAM_V: Parcel = Parcel::new("Gram of V", Payload::Gram);
const GRAM_U: Parcel = Parcel::new("Gram of U", Payload::Gram);
const GATHER_V: Parcel = Parcel::new("gather V", Payload::SharedFactor);
const GATHER_U: Parcel = Parcel::new("gather U", Payload::SharedFactor);
const RHS_U: Parcel = Parcel::new("sum M V", Payload::Product);
const RHS_V: Parcel = Parcel::new("sum M'U", Payload::Product);

struct Hals<T: Real> {
    door: Door,
    grid: Grid<T>,
    gram: Array2<T>,
    shape: (usize, usize),
    norm2: f64,
    iteration: usize,
}

fn build<T: Real>(problem: Problem<'_, T>) -> Result<Box<dyn Algorithm<T>>> {
    let Problem { data, k, seed, kernel, door, .. } = problem;
    let shape = (data.header.rows, data.header.cols);
    let mut block = data.blocks.into_iter().next().expect("a grid has one block on each rank");
    block.prepare(kernel, k)?;
    let mut grid = Grid::new(&door, block, &data.cuts, k);
    let scale = start::scale(data.figures.sum, shape, k);
    start::u(seed, &grid.u.own_rows, scale, grid.u.own.view_mut());
    start::v(seed, &grid.v.own_rows, scale, grid.v.own.view_mut());
    Ok(Box::new(Hals { door, grid, gram: Array2::zeros((k, k)), shape, norm2: data.figures.norm2, iteration: 0 }))
}

impl<T: Real> Hals<T> {
    /// The Gram matrix of a factor whose owned rows are given, summed over all ranks.
    fn sum_gram(&mut self, parcel: Parcel, of_u: bool) {
        let factor = if of_u { &self.grid.u.own } else { &self.grid.v.own };
        let out = &mut self.gram;
        self.door.work("Gram", || gram(&factor.view(), &mut out.view_mut()));
        self.door.sum(parcel, out.as_slice_mut().expect("made contiguous"));
    }
}

impl<T: Real> Algorithm<T> for Hals<T> {
    fn advance(&mut self, n: usize) -> Result<()> {
        let settings = Sweep { mu: T::zero(), passes: 1 };
        for _ in 0..n {
            self.sum_gram(GRAM_V, false);
            self.grid.product_for_u(&self.door, GATHER_V, RHS_U);
            let u = &mut self.grid.u;
            self.door.work("sweep", || sweep(&mut u.own.view_mut(), &u.rhs.view(), &self.gram.view(), settings));

            self.sum_gram(GRAM_U, true);
            self.grid.product_for_v(&self.door, GATHER_U, RHS_V);
            let v = &mut self.grid.v;
            self.door.work("sweep", || sweep(&mut v.own.view_mut(), &v.rhs.view(), &self.gram.view(), settings));
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
            Piece {
                name: "U",
                owner: Owner::Shared,
                total_rows: self.shape.0,
                first_row: u.own_rows.start,
                values: u.own.view(),
            },
            Piece {
                name: "V",
                owner: Owner::Shared,
                total_rows: self.shape.1,
                first_row: v.own_rows.start,
                values: v.own.view(),
            },
        ]
    }

    fn restore(&mut self, from: &dyn Restore<T>, iteration: usize) -> Result<()> {
        from.rows("U", Owner::Shared, self.grid.u.own_rows.start, self.grid.u.own.view_mut())?;
        from.rows("V", Owner::Shared, self.grid.v.own_rows.start, self.grid.v.own.view_mut())?;
        self.iteration = iteration;
        Ok(())
    }
}
