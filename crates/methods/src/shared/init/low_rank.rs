//! A low-rank approximation of the data by random projection (Halko, Martinsson, Tropp 2011): M ≈ L Rᵀ with l = k + 5 or k
//! + 10 columns.
//!
//! With random numbers in the shorter factor S, S ← orth(Mᵀ (M S)) is repeated a few times; then M ≈ (M S) Sᵀ. This uses
//! the same products and sums as the exact methods. Only the shorter factor is orthonormalised, by eigenproblems of its l ×
//! l Gram matrix. Rank 0 solves these and broadcasts the result: the signs of eigenvectors are arbitrary, and all ranks
//! must have the same.

use std::any::Any;
use std::mem::{swap, take};

use ndarray::{Array1, Array2, CowArray, Ix2};
use ndarray_linalg::{Eigh, UPLO};

use fednmf_base::error::{Error, SharedResult};
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::Cuts;
use fednmf_linalg::ContiguousMut;
use fednmf_linalg::random::{Purpose, Stream};
use fednmf_linalg::{Order, Real, gemm, gram};

use super::TAGS;
use crate::shared::grid::Grid;
use crate::shared::rank_data::RankData;

/// The cost parameters of an approximation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowRankParams {
    /// Passes over the data before the last product; each pass computes two products.
    pub passes: usize,
    /// Oversampling columns (l − k). The subspace converges as (σ_{l+1}/σ_k)² per pass.
    pub spare: usize,
}

impl LowRankParams {
    /// The number of columns l for an m × n matrix.
    pub fn columns(self, k: usize, (m, n): (usize, usize)) -> usize {
        (k + self.spare).min(m).min(n)
    }
}

pub const GRAM: MessageTag = MessageTag::new("start: Gram", Payload::Gram);
const BASIS: MessageTag = MessageTag::new("start: change of basis", Payload::Metadata);
pub const GATHER: MessageTag = MessageTag::new("start: gather", Payload::SharedFactor);
pub const PRODUCT: MessageTag = MessageTag::new("start: sum of products", Payload::Product);

/// The problem that a start is computed for.
pub struct Task<'a> {
    pub comm: &'a Communicator,
    pub cuts: &'a Cuts,
    /// m and n.
    pub shape: (usize, usize),
    /// Number of entries that a product visits.
    pub entries: f64,
    pub k: usize,
    /// The sum of M's entries, and ‖M‖_F².
    pub sum: f64,
    pub norm2: f64,
    pub seed: u64,
}

/// M ≈ L Rᵀ: this rank's rows of both, which correspond to its own rows of U and V.
pub struct LowRank<T> {
    /// L and R (× l), row-major.
    pub sides: [Array2<T>; 2],
    /// Index of the side with orthonormal columns, which is the shorter one. Columns in excess of the data's rank are zero.
    pub orthonormal: usize,
}

/// Computes the approximation, and returns the data too. Collective.
///
/// # Errors
/// On all ranks, if MKL refuses a sparse block, data cannot be read, or a small eigenproblem has non-finite entries.
pub fn approximate<T: Real>(
    task: &Task<'_>,
    mut data: Box<dyn RankData<T>>,
    effort: LowRankParams,
) -> SharedResult<(Box<dyn RankData<T>>, LowRank<T>)> {
    let Task { comm, cuts, shape, k, norm2, seed, .. } = *task;
    let l = effort.columns(k, shape);
    comm.agree_on_error(data.prepare(l))?;
    let mut grid = Grid::new(comm, data, cuts, l, [TAGS; 2]);
    let wide = shape.0 < shape.1;
    let short = if wide { &mut grid.u } else { &mut grid.v };
    let mut cursor = Stream::new(seed, Purpose::StartV, 1).at(short.own_rows.start as u128 * l as u128);
    // Scaled so that two products neither overflow nor underflow.
    let scale = norm2.sqrt().recip();
    for mut row in short.own.rows_mut() {
        // Uniform numbers serve as well as normal ones, whose generation takes longer than a product with very sparse data.
        row.iter_mut().for_each(|x| *x = T::from_f64(scale * (2.0 * cursor.uniform() - 1.0)));
    }
    let product =
        |grid: &mut Grid<T>, for_u: bool| if for_u { grid.product_for_u(comm) } else { grid.product_for_v(comm) };
    for pass in 1..=effort.passes {
        product(&mut grid, !wide)?;
        let long = if wide { &mut grid.v } else { &mut grid.u };
        swap(&mut long.own, &mut long.rhs);
        product(&mut grid, wide)?;
        let short = if wide { &mut grid.u } else { &mut grid.v };
        let basis = orthonormal(comm, &short.rhs)?;
        // The last basis is multiplied once only, and its product is the result.
        let scale = if pass < effort.passes { scale } else { 1.0 };
        short.own.zip_mut_with(&basis, |x, &basis| *x = T::from_f64(scale * basis));
    }
    product(&mut grid, !wide)?;
    let sides = if wide { [&mut grid.u.own, &mut grid.v.rhs] } else { [&mut grid.u.rhs, &mut grid.v.own] };
    let sides = sides.map(|side| in_rows(take(side)));
    Ok((grid.data, LowRank { sides, orthonormal: usize::from(!wide) }))
}

/// Converts to row-major order.
fn in_rows<T: Real>(a: Array2<T>) -> Array2<T> {
    if a.is_standard_layout() { a } else { a.as_standard_layout().into_owned() }
}

/// An orthonormal basis of the columns of Y; zero columns if they do not span l dimensions. The Gram matrix squares
/// rounding errors. If the columns are not orthogonal enough after one eigenproblem, a second one follows.
fn orthonormal<T: Real>(comm: &Communicator, y: &Array2<T>) -> SharedResult<Array2<f64>> {
    /// If all eigenvalues are at least this fraction of the largest one, the columns are orthogonal to about ten digits.
    const ENOUGH: f64 = 1e-6;
    let mut y = wide(y);
    for _ in 0..2 {
        let (values, mut basis) = eigen(comm, &y)?;
        let greatest = values.first().copied().unwrap_or(0.0).max(0.0);
        for (mut column, &value) in basis.columns_mut().into_iter().zip(&values) {
            column *= if value > greatest * 1e-14 { value.sqrt().recip() } else { 0.0 };
        }
        y = product(&y, &basis).into();
        if values.last().is_some_and(|&least| least > greatest * ENOUGH) {
            break;
        }
    }
    Ok(y.into_owned())
}

/// Eigenvalues in descending order, and eigenvectors, of YᵀY over all ranks' rows of Y; identical on all ranks. Collective.
///
/// # Errors
/// On all ranks, if they cannot be computed.
pub fn eigen(comm: &Communicator, y: &CowArray<'_, f64, Ix2>) -> SharedResult<(Vec<f64>, Array2<f64>)> {
    let l = y.ncols();
    let mut g = Array2::<f64>::zeros((l, l));
    gram(&y.view(), &mut g.view_mut());
    comm.sum(GRAM, g.row_major_mut());
    let found = if comm.is_root() {
        // LAPACK compares squares of the entries with the smallest normal number. Powers of two are exact.
        let scale = g.diag().iter().fold(f64::MIN_POSITIVE, |a, &x| x.max(a)).log2().floor().exp2();
        g.mapv_inplace(|x| x / scale);
        let found = g.eigh(UPLO::Lower).map_err(|e| {
            Error::failed(format!("--init: the singular vectors cannot be computed ({e}); use --init random"))
        });
        found.map(|(values, vectors)| {
            let values: Array1<f64> = values;
            // LAPACK returns them in ascending order.
            let values = values.iter().rev().map(|x| x * scale).collect();
            (values, vectors.columns().into_iter().rev().flatten().copied().collect())
        })
    } else {
        Ok((Vec::new(), Vec::new()))
    };
    let (values, vectors): (Vec<f64>, Vec<f64>) = comm.broadcast_value(BASIS, comm.agree_on_error(found)?);
    let vectors = Array2::from_shape_vec((l, l), vectors).map(Array2::reversed_axes);
    let vectors = vectors.map_err(|e| Error::failed(format!("--init: {e}; this is a bug, please report it")));
    Ok((values, vectors.map_err(Error::on_all_ranks)?))
}

/// A B, row-major, for tall or small matrices.
pub fn product(a: &CowArray<'_, f64, Ix2>, b: &Array2<f64>) -> Array2<f64> {
    let mut out = Order::RowMajor.zeros(a.nrows(), b.ncols());
    gemm(1.0, &a.view(), &b.view(), 0.0, &mut out.view_mut());
    out
}

/// The matrix in f64; copied only from f32.
pub fn wide<T: Real>(a: &Array2<T>) -> CowArray<'_, f64, Ix2> {
    match (a as &dyn Any).downcast_ref::<Array2<f64>>() {
        Some(a) => a.into(),
        None => a.mapv(Real::as_f64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns whose norms fall by `ratio`; each contains a part of its predecessor. With `dependent`, the last one equals
    /// its predecessor.
    fn columns(ratio: f64, dependent: bool) -> Array2<f64> {
        let random = Stream::new(1, Purpose::StartV, 0);
        let mut cursor = random.at(0);
        let mut y = Array2::from_shape_simple_fn((200, 4), || cursor.normal());
        for j in 1..4 {
            let before = y.column(j - 1).to_owned();
            y.column_mut(j).zip_mut_with(&before, |x, &before| *x = ratio * (*x + before));
        }
        if dependent {
            let before = y.column(2).to_owned();
            y.column_mut(3).assign(&before);
        }
        y
    }

    #[test]
    fn the_scale_of_the_columns_changes_no_bit_of_the_basis() {
        let basis = |exponent: i32| {
            let scaled = columns(0.02, false) * 2f64.powi(exponent);
            orthonormal(&Communicator::local(), &scaled).unwrap()
        };
        for exponent in [-480, -250, 250, 480] {
            assert_eq!(basis(exponent), basis(0), "2^{exponent}");
        }
    }

    #[test]
    fn a_basis_is_orthonormal_whatever_the_size_of_the_columns() {
        // One eigenproblem suffices for the first case but not for the second; the third spans only three dimensions.
        for (ratio, dependent) in [(0.5, false), (0.02, false), (0.5, true)] {
            let basis = orthonormal(&Communicator::local(), &columns(ratio, dependent)).unwrap();
            let product = basis.t().dot(&basis);
            for ((i, j), &x) in product.indexed_iter() {
                let expected = if i == j && !(dependent && j == 3) { 1.0 } else { 0.0 };
                assert!((x - expected).abs() < 1e-9, "{ratio}, {dependent}: {product}");
            }
        }
    }
}
