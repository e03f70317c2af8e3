//! Code that several methods use: parameters, starts, steps, sums over parties, extrapolation, penalties, missing entries,
//! differential privacy.

pub mod alternating;
pub mod batches;
pub mod disclosure;
pub mod dp;
pub mod exact_method;
pub mod extrapolated;
pub mod extrapolation;
pub mod factor_side;
pub mod grid;
pub mod init;
pub mod joint;
pub mod least_squares;
pub mod missing;
pub mod rank_data;
pub mod regularization;
pub mod row_exchange;
pub mod sampled_product;
pub mod secure_sum;
pub mod sizes;
pub mod sketched_step;
pub mod stationarity;

use fednmf_linalg::{Block, Real};

/// The row block (transposed, n × own rows) and the column block (m × own columns) of a rank.
pub(crate) fn row_and_column_block<T: Real>(blocks: Vec<Block<T>>) -> [Block<T>; 2] {
    let mut blocks = blocks.into_iter();
    std::array::from_fn(|_| blocks.next().expect("the plan gives a row block and a column block"))
}

/// The blocks of a rank with its own lines as rows: own rows × n, and own columns × m.
pub(crate) fn blocks_of_own_lines<T: Real>(blocks: Vec<Block<T>>, ranks: usize) -> [Block<T>; 2] {
    let [rows, cols] = row_and_column_block(blocks);
    // A single rank has the whole matrix, in both orders.
    if ranks == 1 { [cols, rows] } else { [rows, cols].map(|block| block.transposed()) }
}
