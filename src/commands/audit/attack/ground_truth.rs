//! The matrix with which an attack is compared, as the run read it.

use ndarray::Array2;
use serde_json::Value;

use fednmf_base::error::{Error, Result};
use fednmf_comm::Communicator;
use fednmf_data::{Layout, Stack};
use fednmf_files as data;
use fednmf_files::formats::detect::is_table_name;
use fednmf_files::{InputSpec, Scale, TableOptions, Threshold};

use super::pooled_view::PooledView;

/// Maximum number of entries that are loaded.
const MOST: usize = 1 << 28;

/// The matrix, if it is available.
#[derive(Debug, Default)]
pub struct GroundTruth {
    pub matrix: Option<Array2<f64>>,
}

impl GroundTruth {
    /// The matrix that was named, or the run's own input if it is still there.
    ///
    /// # Errors
    /// When a matrix that was named cannot be read, or has another shape.
    pub fn load(pooled: &PooledView, named: Option<&str>, alone: &Communicator) -> Result<GroundTruth> {
        let (m, n) = (pooled.m, pooled.n);
        if let Some(name) = named {
            let matrix = read(pooled, name, true, alone).map_err(|e| e.at("--truth"))?;
            if matrix.dim() != (m, n) {
                let (rows, cols) = matrix.dim();
                return Err(Error::input(format!(
                    "--truth {name}: is {rows} x {cols}, but the run was about a matrix of {m} x {n}"
                )));
            }
            return Ok(GroundTruth { matrix: Some(matrix) });
        }
        let own = pooled.about("input").as_str().and_then(|name| read(pooled, name, false, alone).ok());
        Ok(GroundTruth { matrix: own.filter(|matrix| matrix.dim() == (m, n)) })
    }

    /// The hidden columns, or the hidden rows.
    pub fn hidden(&self, pooled: &PooledView) -> Option<Array2<f64>> {
        let axis = ndarray::Axis(usize::from(pooled.by_columns));
        self.matrix.as_ref().map(|matrix| matrix.select(axis, &pooled.hidden()))
    }
}

/// A matrix as the run would have read it.
///
/// # Errors
/// When it cannot be read.
pub fn read(pooled: &PooledView, name: &str, is_named: bool, alone: &Communicator) -> Result<Array2<f64>> {
    let param = |name: &str| pooled.param(name);
    let mut spec = InputSpec::parse(name)?;
    spec.transpose = param("transpose").as_bool().unwrap_or(param("transpose") == 1);
    // A matrix that is named here may have another format.
    if !is_named || is_table_name(name) {
        spec.table = TableOptions::from_json(pooled.about("params"));
    }
    spec.scale = if param("scale") == "max" { Scale::Max } else { Scale::None };
    spec.binarize = match param("binarize") {
        Value::Null => None,
        value => Threshold::from_json(value),
    };
    spec.allow_negative = true;
    spec.parties = Some(pooled.cuts.len());
    spec.stack = if pooled.by_columns { Stack::Columns } else { Stack::Rows };
    let opened = data::open(&spec, alone)?;
    let (m, n) = (opened.header().rows, opened.header().cols);
    if m.checked_mul(n).is_none_or(|entries| entries > MOST) {
        return Err(Error::input(format!(
            "{name}: is {m} x {n}, too large for an attack; show it on a smaller matrix"
        )));
    }
    let loaded = opened.load::<f64>(&Layout::Grid { pr: 1, pc: 1 }, alone, &mut |_| ())?;
    let block = &loaded.blocks[0];
    let mut product = block.order().zeros(m, n);
    block.mul(&Array2::eye(n).view(), &mut product.view_mut());
    Ok(product)
}
