//! The principal inertias of a matrix, as in correspondence analysis (Greenacre, Theory and Applications of Correspondence
//! Analysis, 1984).
//!
//! The squared error of a factorisation is dominated by large rows and columns: it falls steadily while components fit their
//! noise. Divided by the roots of the sums of its row and column, each entry is relative to what these sums let one expect, and
//! the squared singular values drop where the structure of the matrix ends.

use ndarray::{Array2, Axis, s};
use ndarray_linalg::{EigValsh, UPLO};

use fednmf_base::error::SharedResult;
use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::{Loaded, Panels};
use fednmf_linalg::random::{Purpose, Stream, uniform_factor};
use fednmf_linalg::{Block, Order};

const MARGINS: MessageTag = MessageTag::new("sweep: sums of rows and columns", Payload::Product);
const PRODUCT: MessageTag = MessageTag::new("sweep: product for the inertias", Payload::Product);

/// Columns of the basis in addition to the requested inertias: the first ones converge faster.
const MORE: usize = 8;
/// Orthogonal iterations.
const PASSES: usize = 12;

/// Approximates the largest `count` squared singular values of m_ij / √(r_i c_j), for the sums r_i of the rows and c_j of the
/// columns, in descending order and in a common unit. Rows and columns of zeros stay zeros. Collective.
///
/// # Errors
/// On all ranks, if a kernel refuses a block, or a file cannot be read.
pub fn inertias(loaded: &Loaded<f64>, count: usize, comm: &Communicator) -> SharedResult<Vec<f64>> {
    let (m, n) = (loaded.header.rows, loaded.header.cols);
    let l = (count + MORE).min(m).min(n);
    let Loaded { layout, cuts, mut blocks, mut panels, .. } = loaded.copy();
    // If two blocks each cover the matrix, the second one is stored untransposed.
    let mut block = blocks.pop();
    comm.agree_on_error(block.as_mut().map_or(Ok(()), |block| block.prepare(l)))?;
    let tile = layout.tiles(&cuts, comm.rank()).pop().expect("a rank has a tile");
    // The ranks that have the same rows, if none has them alone.
    let parts = cuts.cols.len();
    let across = (parts > 1).then(|| comm.split(comm.rank() / parts));
    let mut margins = vec![0.0; m + n];
    Panels::pass_over(&mut panels, block.as_ref(), comm, |rows, block| {
        for i in 0..rows.len() {
            block.for_each_nonzero(i, |j, x| {
                margins[tile.rows.start + rows.start + i] += x;
                margins[m + tile.cols.start + j] += x;
            });
        }
    })?;
    comm.sum(MARGINS, &mut margins);
    let total: f64 = margins[..m].iter().sum();
    // Relative to the mean sum, so that the squares neither overflow nor underflow.
    let scales = |sums: &[f64], power: i32| -> Vec<f64> {
        let mean = total / sums.len() as f64;
        sums.iter().map(|&sum| if sum > 0.0 { (mean / sum).sqrt().powi(power) } else { 0.0 }).collect()
    };
    let (of_rows, of_columns) = (scales(&margins[..m], 2), scales(&margins[m..], 1));
    let mean = total / (m as f64 * n as f64);

    // The product of the scaled matrix, and then of its transpose, with Q.
    let mut product = |q: &Array2<f64>| -> SharedResult<Array2<f64>> {
        let order = panels
            .as_ref()
            .map_or_else(|| block.as_ref().map(Block::order), |panels| Some(panels.empty_block().order()));
        let order = order.unwrap_or(Order::RowMajor);
        let scale_columns = |x: &mut Array2<f64>| {
            let scales = &of_columns[tile.cols.clone()];
            x.rows_mut().into_iter().zip(scales).for_each(|(mut row, scale)| row *= *scale / mean);
        };
        let mut operand = order.zeros(tile.cols.len(), l);
        operand.assign(&q.slice(s![tile.cols.clone(), ..]));
        scale_columns(&mut operand);
        let mut sum = order.zeros(tile.cols.len(), l);
        Panels::pass_over(&mut panels, block.as_ref(), comm, |rows, block| {
            let mut image = order.zeros(rows.len(), l);
            block.mul(&operand.view(), &mut image.view_mut());
            if let Some(across) = &across {
                across.sum(PRODUCT, image.as_slice_memory_order_mut().expect("contiguous"));
            }
            let scales = &of_rows[tile.rows.start + rows.start..];
            image.rows_mut().into_iter().zip(scales).for_each(|(mut row, scale)| row *= *scale);
            block.tmul_add(&image.view(), &mut sum.view_mut());
        })?;
        scale_columns(&mut sum);
        let mut all = Array2::<f64>::zeros((n, l));
        all.slice_mut(s![tile.cols.clone(), ..]).assign(&sum);
        comm.sum(PRODUCT, all.as_slice_mut().expect("made in row order"));
        Ok(all)
    };
    let mut q = uniform_factor::<f64>(&Stream::new(0, Purpose::Probe, 0), 0..n, l, 1.0) - 0.5;
    orthonormalise(&mut q);
    for _ in 1..PASSES {
        q = product(&q)?;
        orthonormalise(&mut q);
    }
    Ok(ritz_values(&q, &product(&q)?, count))
}

/// The largest eigenvalues of A within the span of the orthonormal Q, from the product A Q, in descending order.
fn ritz_values(q: &Array2<f64>, product: &Array2<f64>, count: usize) -> Vec<f64> {
    let small = q.t().dot(product);
    // LAPACK does not fail for finite symmetric matrices.
    let mut values = small.eigvalsh(UPLO::Lower).map_or_else(|_| small.diag().to_vec(), |values| values.to_vec());
    values.reverse();
    values.truncate(count);
    values
}

/// Makes the columns orthonormal, zero where they depend on others, and returns the norms of their new parts.
fn orthonormalise(q: &mut Array2<f64>) -> Vec<f64> {
    /// Below this share of the largest norm, what is left of a column is rounding error.
    const NOTHING: f64 = 1e-13;
    let mut norms: Vec<f64> = Vec::with_capacity(q.ncols());
    for j in 0..q.ncols() {
        let (before, mut rest) = q.view_mut().split_at(Axis(1), j);
        let mut column = rest.column_mut(0);
        // Twice is enough for orthogonality to working precision.
        for _ in 0..2 {
            for other in before.columns() {
                let along = other.dot(&column);
                column.scaled_add(-along, &other);
            }
        }
        let norm = column.dot(&column).sqrt();
        let is_new = norm > NOTHING * norms.first().copied().unwrap_or(0.0);
        column *= if is_new { norm.recip() } else { 0.0 };
        norms.push(if is_new { norm } else { 0.0 });
    }
    norms
}

/// For each k in `ks` the mean inertia up to k, from the k before it on, over the mean inertia after k, up to the next one; 0 for
/// k = 1, because the first inertia is that of the sums of rows and columns.
pub fn drops(ks: &[usize], inertias: &[f64]) -> Vec<f64> {
    let mean = |from: usize, to: usize| {
        let some = inertias.get(from..to.min(inertias.len())).unwrap_or_default();
        some.iter().sum::<f64>() / some.len().max(1) as f64
    };
    // Smaller inertias are rounding errors.
    let least = 1e-9 * inertias.first().copied().unwrap_or(0.0);
    (0..ks.len())
        .map(|i| {
            let (before, after) =
                (if i == 0 { ks[i] - 1 } else { ks[i - 1] }, ks.get(i + 1).copied().unwrap_or(ks[i] + 1));
            let (up_to, beyond) = (mean(before, ks[i]), mean(ks[i], after));
            if ks[i] == 1 || up_to <= least { 0.0 } else { up_to / beyond.max(least) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fednmf_data::policy::EntryPolicy;
    use fednmf_data::{Layout, Matrix, Sharing};

    #[test]
    fn a_basis_is_orthonormal() {
        let mut q = Array2::from_shape_fn((9, 4), |(i, j)| ((i * (j + 2)) % 7) as f64);
        let third = q.column(0).to_owned() + q.column(1);
        q.column_mut(2).assign(&third);
        let norms = orthonormalise(&mut q);
        assert!(norms[2] == 0.0 && norms[3] > 0.0, "{norms:?}");
        let gram = q.t().dot(&q);
        let expected = Array2::from_diag(&ndarray::array![1.0, 1.0, 0.0, 1.0]);
        assert!((&gram - &expected).iter().all(|x| x.abs() < 1e-12), "{gram}");
    }

    #[test]
    fn close_inertias_are_those_of_all_singular_values() {
        let (m, n) = (40, 25);
        let x = uniform_factor::<f64>(&Stream::new(4, Purpose::Probe, 0), 0..m, n, 1.0);
        let comm = Communicator::local();
        let layout = Layout::Grid { pr: 1, pc: 1 };
        let parts = vec![Matrix::Dense(x.clone().into())];
        let loaded = Loaded::in_memory(parts, &layout, EntryPolicy::default(), (None, Sharing::Clear), &comm).unwrap();
        let (rows, columns) = (x.sum_axis(Axis(1)), x.sum_axis(Axis(0)));
        let scaled = Array2::from_shape_fn((m, n), |(i, j)| x[[i, j]] / (rows[i] * columns[j]).sqrt());
        let exact = scaled.t().dot(&scaled).eigvalsh(UPLO::Lower).unwrap();
        let found = inertias(&loaded, 5, &comm).unwrap();
        for (i, value) in found.iter().enumerate() {
            let ratio = value / found[0] / (exact[n - 1 - i] / exact[n - 1]);
            assert!((ratio - 1.0).abs() < 1e-2, "{i}: {ratio}");
        }
    }

    #[test]
    fn drops_are_those_of_the_means_between_the_ks() {
        let inertias = [10.0, 4.0, 3.0, 1.0, 0.5, 0.5];
        assert_eq!(drops(&[1, 2, 3, 4], &inertias), [0.0, 4.0 / 3.0, 3.0, 2.0]);
        assert_eq!(drops(&[2, 4], &inertias), [8.0 / 4.0, 4.0]);
        assert!(drops(&[3], &[1.0, 0.5, 0.4, 0.0])[0] > 1e6, "nothing is left");
    }
}
