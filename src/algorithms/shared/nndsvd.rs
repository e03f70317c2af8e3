//! NNDSVD (Boutsidis and Gallopoulos 2008): a start from the leading singular vectors, by a randomised SVD over the grid.
//!
//! The SVD (Halko, Martinsson, Tropp 2011, subspace iteration): from a random V with l = k + 10 columns, V ← orth(Mᵀ
//! orth(M V)) a few times, then the SVD of M V, which is that of its l × l Gram matrix. It needs the products and sums
//! that the exact methods make anyway, and one small eigenproblem, solved by rank 0 and sent to all: eigenvectors are
//! known but for their sign, and all ranks must have the same.
//!
//! Of each pair of singular vectors the parts with the larger product of norms are kept, the positive or the negative
//! ones: U_j = √(σ_j ν) x/‖x‖, V_j = √(σ_j ν) y/‖y‖ with ν = ‖x‖‖y‖.

use ndarray::{Array1, Array2, ArrayView2, s};
use ndarray_linalg::{Eigh, UPLO};

use crate::algorithms::description::MessageSpec;
use crate::algorithms::shared::grid::Grid;
use crate::comm::{Communicator, MessageTag, Payload};
use crate::data::Cuts;
use crate::error::{Error, Result};
use crate::linalg::{Block, Order, Real, SparseKernels, gram};
use crate::random::{Purpose, Stream};

/// Columns beyond k: the subspace converges as (σ_{l+1}/σ_k)² for each pass.
const SPARE: usize = 10;
/// Passes over the data, of two products each.
const PASSES: usize = 6;

const GRAM: MessageTag = MessageTag::new("start: Gram", Payload::Gram);
const BASIS: MessageTag = MessageTag::new("start: change of basis", Payload::Control);
const NORMS: MessageTag = MessageTag::new("start: norms of both parts", Payload::Scalar);
const GATHER: MessageTag = MessageTag::new("start: gather", Payload::SharedFactor);
const PRODUCT: MessageTag = MessageTag::new("start: sum of products", Payload::Product);

/// What leaves a rank for it.
pub const MESSAGES: [MessageSpec; 4] = [
    MessageSpec::new(GRAM, "(k + 10) x (k + 10)", "25 times, with --init nndsvd"),
    MessageSpec::new(NORMS, "4 x k", "once, with --init nndsvd"),
    MessageSpec::new(
        GATHER,
        "(m / pr + n / pc) x (k + 10)",
        "7 times, with --init nndsvd, where more ranks share the rows or columns",
    ),
    MessageSpec::new(
        PRODUCT,
        "(m / pr + n / pc) x (k + 10)",
        "7 times, with --init nndsvd, where more ranks share the rows or columns",
    ),
];

/// What a start is made from.
pub struct Task<'a> {
    pub comm: &'a Communicator,
    pub cuts: &'a Cuts,
    /// m and n.
    pub shape: (usize, usize),
    pub k: usize,
    pub kernel: SparseKernels,
    pub seed: u64,
}

/// This rank's rows of U and of V, and the block back. Collective.
///
/// # Errors
/// When a sparse block is refused by MKL, or the small eigenproblem is no numbers.
pub fn start<T: Real>(task: &Task<'_>, mut block: Block<T>) -> Result<(Block<T>, Array2<T>, Array2<T>)> {
    let Task { comm, cuts, shape, k, kernel, seed } = *task;
    let l = (k + SPARE).min(shape.0).min(shape.1);
    block.prepare(kernel, l)?;
    let mut grid = Grid::new(comm, block, cuts, l);
    let stream = Stream::new(seed, Purpose::StartV, 1);
    let mut cursor = stream.at(grid.v.own_rows.start as u128 * l as u128);
    grid.v
        .own
        .rows_mut()
        .into_iter()
        .for_each(|mut row| row.iter_mut().for_each(|x| *x = T::from_f64(cursor.normal())));
    for _ in 0..PASSES {
        grid.product_for_u(comm, GATHER, PRODUCT);
        let y = orthonormal(comm, &grid.u.rhs)?;
        grid.u.own.assign(&y);
        grid.product_for_v(comm, GATHER, PRODUCT);
        let y = orthonormal(comm, &grid.v.rhs)?;
        grid.v.own.assign(&y);
    }
    // M ≈ (M V) Vᵀ = (B W S⁻¹) S (V W)ᵀ with BᵀB = W S² Wᵀ.
    grid.product_for_u(comm, GATHER, PRODUCT);
    let (squares, basis) = eigen(comm, &grid.u.rhs)?;
    let singular: Vec<f64> = squares.iter().map(|s| s.max(0.0).sqrt()).collect();
    let mut left = wide(&grid.u.rhs).dot(&basis);
    for (mut column, &s) in left.columns_mut().into_iter().zip(&singular) {
        column *= if s > 0.0 { 1.0 / s } else { 0.0 };
    }
    let right = wide(&grid.v.own).dot(&basis);
    let (left, right) = (left.slice(s![.., ..k]), right.slice(s![.., ..k]));
    let (u, v) = parts(comm, left, right, &singular);
    let order = grid.block.order();
    Ok((grid.block, narrow(&u, order), narrow(&v, order)))
}

/// An orthonormal basis of the columns of Y; where they do not span all dimensions, zeros. Twice, since the Gram matrix
/// squares what is lost to rounding.
fn orthonormal<T: Real>(comm: &Communicator, y: &Array2<T>) -> Result<Array2<T>> {
    let mut y = wide(y);
    for _ in 0..2 {
        let (values, mut basis) = eigen(comm, &y)?;
        let least = values.first().copied().unwrap_or(0.0).max(0.0) * 1e-14;
        for (mut column, &value) in basis.columns_mut().into_iter().zip(&values) {
            column *= if value > least { value.sqrt().recip() } else { 0.0 };
        }
        y = y.dot(&basis);
    }
    Ok(narrow(&y, Order::Rows))
}

/// Eigenvalues, falling, and eigenvectors of YᵀY over all ranks' rows of Y, the same on all ranks.
fn eigen<T: Real>(comm: &Communicator, y: &Array2<T>) -> Result<(Vec<f64>, Array2<f64>)> {
    let l = y.ncols();
    let mut g = Array2::<f64>::zeros((l, l));
    gram(&wide(y).view(), &mut g.view_mut());
    comm.sum(GRAM, g.as_slice_mut().expect("made contiguous"));
    let found = if comm.is_root() {
        let found = g.eigh(UPLO::Lower).map_err(|e| {
            Error::failed(format!("--init nndsvd: the singular vectors cannot be computed ({e}); use --init random"))
        });
        found.map(|(values, vectors)| {
            let values: Array1<f64> = values;
            // Rising as LAPACK has them.
            (values.iter().rev().copied().collect(), vectors.slice(s![.., ..;-1]).iter().copied().collect())
        })
    } else {
        Ok((Vec::new(), Vec::new()))
    };
    let (values, vectors): (Vec<f64>, Vec<f64>) = comm.broadcast_value(BASIS, comm.agree_on_error(found)?);
    let vectors = Array2::from_shape_vec((l, l), vectors);
    Ok((values, vectors.map_err(|e| Error::failed(format!("--init nndsvd: {e}; this is a bug, please report it")))?))
}

/// The nonnegative parts that are kept, scaled.
fn parts(
    comm: &Communicator,
    left: ArrayView2<'_, f64>,
    right: ArrayView2<'_, f64>,
    singular: &[f64],
) -> (Array2<f64>, Array2<f64>) {
    let k = left.ncols();
    let positive = |x: f64| x.max(0.0);
    let negative = |x: f64| (-x).max(0.0);
    let mut norms = vec![0.0; 4 * k];
    for j in 0..k {
        for (place, (side, part)) in
            [(left, positive as fn(f64) -> f64), (right, positive), (left, negative), (right, negative)]
                .into_iter()
                .enumerate()
        {
            norms[4 * j + place] = side.column(j).iter().map(|&x| part(x) * part(x)).sum();
        }
    }
    comm.sum(NORMS, &mut norms);
    norms.iter_mut().for_each(|x| *x = x.sqrt());
    let (mut u, mut v) = (Array2::zeros(left.dim()), Array2::zeros(right.dim()));
    for j in 0..k {
        let [xp, yp, xn, yn] = std::array::from_fn(|place| norms[4 * j + place]);
        let (x, y, part) = if xp * yp >= xn * yn {
            (xp, yp, positive as fn(f64) -> f64)
        } else {
            (xn, yn, negative as fn(f64) -> f64)
        };
        let weight = (singular.get(j).copied().unwrap_or(0.0) * x * y).sqrt();
        for (out, side, norm) in [(&mut u, left, x), (&mut v, right, y)] {
            let scale = if norm > 0.0 { weight / norm } else { 0.0 };
            out.column_mut(j).zip_mut_with(&side.column(j), |out, &x| *out = scale * part(x));
        }
    }
    (u, v)
}

fn wide<T: Real>(a: &Array2<T>) -> Array2<f64> {
    let mut out = Array2::zeros(a.dim());
    out.zip_mut_with(a, |out, a| *out = a.as_f64());
    out
}

fn narrow<T: Real>(a: &Array2<f64>, order: Order) -> Array2<T> {
    let mut out = order.zeros(a.nrows(), a.ncols());
    out.zip_mut_with(a, |out: &mut T, &a| *out = T::from_f64(a));
    out
}
