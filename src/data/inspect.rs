//! `fednmf inspect`: what is in a file.

use super::assemble::stored_shape;
use super::{COUNTS, InputSpec, Plan, open};
use crate::comm::Door;
use crate::error::Result;
use crate::linalg::Block;

/// What `inspect` tells of a matrix.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    pub rows: usize,
    pub cols: usize,
    pub format: String,
    /// Whether blocks of it are stored sparse.
    pub sparse: bool,
    pub nonzeros: u64,
    /// Nonzeros over rows times columns.
    pub density: f64,
    pub min: f64,
    pub max: f64,
    pub sum: f64,
    /// ‖M‖_F
    pub norm: f64,
    pub zero_rows: u64,
    pub zero_cols: u64,
    pub duplicates: u64,
    /// In hexadecimal; equal for the same matrix in any format.
    pub checksum: String,
}

/// Reads the whole input in double precision, each rank a block of rows, and describes it. Negative entries may pass.
///
/// # Errors
/// As [`super::Input::load`].
pub fn inspect(spec: &InputSpec, door: &Door, progress: &mut dyn FnMut(f64)) -> Result<Summary> {
    let spec = InputSpec { allow_negative: true, ..spec.clone() };
    let plan = Plan::Grid { pr: door.size(), pc: 1 };
    let input = open(&spec, door)?;
    let loaded = input.load_any::<f64>(&plan, door, progress)?;
    let (m, n) = (loaded.header.rows, loaded.header.cols);
    let mut cols = vec![0u64; n];
    let mut zero_rows = [0u64];
    for (block, tile) in loaded.blocks.iter().zip(plan.tiles(&loaded.cuts, door.rank())) {
        debug_assert_eq!(block.shape(), stored_shape(&tile));
        match block {
            Block::Dense(x) => {
                for row in x.outer_iter() {
                    zero_rows[0] += u64::from(row.iter().all(|&v| v == 0.0));
                    cols.iter_mut().zip(row).for_each(|(count, &v)| *count += u64::from(v != 0.0));
                }
            }
            Block::Sparse(x) => {
                for row in x.matrix().outer_iterator() {
                    zero_rows[0] += u64::from(row.data().iter().all(|&v| v == 0.0));
                    row.iter().for_each(|(j, &v)| cols[j] += u64::from(v != 0.0));
                }
            }
            Block::Bits(x) => {
                for i in 0..x.shape().0 {
                    zero_rows[0] += u64::from(x.ones(i).next().is_none());
                    x.ones(i).for_each(|j| cols[j] += 1);
                }
            }
        }
    }
    door.sum(COUNTS, &mut cols);
    door.sum(COUNTS, &mut zero_rows);
    let figures = loaded.figures;
    Ok(Summary {
        rows: m,
        cols: n,
        format: loaded.header.format,
        sparse: loaded.header.sparse,
        nonzeros: figures.nonzeros,
        density: figures.nonzeros as f64 / (m as f64 * n as f64),
        min: figures.min,
        max: figures.max,
        sum: figures.sum,
        norm: figures.norm2.sqrt(),
        zero_rows: zero_rows[0],
        zero_cols: cols.iter().filter(|&&c| c == 0).count() as u64,
        duplicates: loaded.duplicates,
        checksum: format!("{:016x}", figures.checksum),
    })
}
