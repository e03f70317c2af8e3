//! The residual of a factorisation in units of the matrix's margins.
//!
//! Entries of large rows and columns have large errors, and the squared error is mostly theirs: it falls steadily while
//! components fit their noise. Relative to what the margins let expect, all entries count alike, and the residual has its
//! elbow where the structure ends. It is the inertia of correspondence analysis (Greenacre, Theory and Applications of
//! Correspondence Analysis, 1984), of M − U Vᵀ instead of M less its margins.

use ndarray::Array2;

use fednmf_comm::{Communicator, MessageTag, Payload};
use fednmf_data::Loaded;
use fednmf_data::state::OwnedPiece;

const MARGINS: MessageTag = MessageTag::new("sweep: sums of rows and columns", Payload::Product);
const FACTORS: MessageTag = MessageTag::new("sweep: gather the factors", Payload::SharedFactor);
const INERTIA: MessageTag = MessageTag::new("sweep: residual inertia", Payload::Scalar);

/// Its key among the measures of a run.
pub const KEY: &str = "inertia";

/// Σ (m_ij − (U Vᵀ)_ij)² N / (r_i c_j) with the sums r_i of the rows, c_j of the columns and N of all entries, over the rows and
/// columns whose sums are positive; the factors are this rank's pieces. Collective.
pub fn inertia(loaded: &Loaded<f64>, factors: &[OwnedPiece<f64>], comm: &Communicator) -> f64 {
    let (m, n) = (loaded.header.rows, loaded.header.cols);
    let block = &loaded.blocks[0];
    let tile = &loaded.layout.tiles(&loaded.cuts, comm.rank())[0];
    // Row, column and entry, whether or not the block is the transpose of its tile.
    let each = |f: &mut dyn FnMut(usize, usize, f64)| {
        for a in 0..block.shape().0 {
            block.for_each_nonzero(a, |b, x| {
                let (i, j) = if tile.transposed { (b, a) } else { (a, b) };
                f(tile.rows.start + i, tile.cols.start + j, x);
            });
        }
    };
    let mut margins = vec![0.0; m + n];
    each(&mut |i, j, x| {
        margins[i] += x;
        margins[m + j] += x;
    });
    comm.sum(MARGINS, &mut margins);
    let total: f64 = margins[..m].iter().sum();
    // In units of a mean sum, so that the square of no weight leaves the range of numbers.
    let weights = |sums: &[f64]| -> Vec<f64> {
        let mean = total / sums.len() as f64;
        sums.iter().map(|&sum| if sum > 0.0 { mean / sum } else { 0.0 }).collect()
    };
    let (of_rows, of_columns) = (weights(&margins[..m]), weights(&margins[m..]));
    let [u, v] = [("U", m), ("V", n)].map(|(name, rows)| gathered(factors, name, rows, comm));
    let mut sum = 0.0;
    each(&mut |i, j, x| {
        let fit = u.row(i).dot(&v.row(j));
        sum += of_rows[i] * of_columns[j] * x * (x - 2.0 * fit);
    });
    if comm.is_root() {
        let gram = |factor: &Array2<f64>, weights: &[f64]| {
            let mut weighted = factor.clone();
            weighted.rows_mut().into_iter().zip(weights).for_each(|(mut row, &w)| row *= w);
            weighted.t().dot(factor)
        };
        sum += (&gram(&u, &of_rows) * &gram(&v, &of_columns)).sum();
    }
    let mut sum = [sum];
    comm.sum(INERTIA, &mut sum);
    let mean = total / (m as f64 * n as f64);
    (sum[0] / mean).max(0.0)
}

/// All rows of a factor. Collective.
fn gathered(factors: &[OwnedPiece<f64>], name: &str, rows: usize, comm: &Communicator) -> Array2<f64> {
    let own: Vec<&OwnedPiece<f64>> = factors.iter().filter(|piece| piece.name == name).collect();
    let mut k = [own.iter().map(|piece| piece.values.ncols() as u32).max().unwrap_or(0)];
    comm.max(FACTORS, &mut k);
    let mut all = Array2::<f64>::zeros((rows, k[0] as usize));
    for piece in own {
        let rows = piece.first_row..piece.first_row + piece.values.nrows();
        all.slice_mut(ndarray::s![rows, ..]).assign(&piece.values);
    }
    comm.sum(FACTORS, all.as_slice_mut().expect("made in row order"));
    all
}
