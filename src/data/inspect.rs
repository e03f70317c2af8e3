//! Describes an input, for `fednmf inspect`.

use crate::comm::Communicator;
use crate::data::formats::options::Labels;
use crate::data::layout::Layout;
use crate::data::messages::COUNTS;
use crate::data::open::open;
use crate::data::spec::InputSpec;
use crate::error::Result;
use crate::linalg::Block;

/// The description of a matrix.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    pub rows: usize,
    pub cols: usize,
    pub format: String,
    /// Of a table in text: whether it has a header and an index column.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// What was concluded about a table in text, and which option says otherwise.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Whether blocks of it are stored sparse.
    pub sparse: bool,
    pub nonzeros: u64,
    /// Nonzeros divided by rows times columns.
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

/// Reads the whole input in double precision, each rank a block of rows, and describes it. Negative entries are accepted, and errors quote the file.
///
/// # Errors
/// As [`crate::data::Input::load`].
pub fn inspect(spec: &InputSpec, comm: &Communicator, progress: &mut dyn FnMut(f64)) -> Result<Summary> {
    let spec = InputSpec { allow_negative: true, allow_nan: true, private: false, ..spec.clone() };
    let layout = Layout::Grid { pr: comm.size(), pc: 1 };
    let input = open(&spec, comm)?;
    let loaded = input.load_any::<f64>(&layout, comm, progress)?;
    let (m, n) = (loaded.header.rows, loaded.header.cols);
    let mut cols = vec![0u64; n];
    let mut zero_rows = [0u64];
    for (block, tile) in loaded.blocks.iter().zip(layout.tiles(&loaded.cuts, comm.rank())) {
        debug_assert_eq!(block.shape(), tile.stored_shape());
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
    comm.sum(COUNTS, &mut cols);
    comm.sum(COUNTS, &mut zero_rows);
    let statistics = loaded.statistics;
    Ok(Summary {
        rows: m,
        cols: n,
        format: loaded.header.format,
        labels: loaded.header.labels,
        notes: [loaded.header.notes, loaded.header.warnings].concat(),
        sparse: loaded.header.sparse,
        nonzeros: statistics.nonzeros,
        density: statistics.nonzeros as f64 / (m as f64 * n as f64),
        min: statistics.min,
        max: statistics.max,
        sum: statistics.sum,
        norm: statistics.norm2.sqrt(),
        zero_rows: zero_rows[0],
        zero_cols: cols.iter().filter(|&&c| c == 0).count() as u64,
        duplicates: loaded.duplicates,
        checksum: format!("{:016x}", statistics.checksum),
    })
}
