//! Describes an input, for `fednmf inspect`.

use std::collections::BTreeMap;

use fednmf_base::error::SharedResult;
use fednmf_comm::Communicator;
use fednmf_data::messages::{COUNTS, STATISTICS};
use fednmf_data::{Labels, Panels, Stack};
use fednmf_files::features::{self, FeatureType};
use fednmf_files::{Input, InputSpec, Repeated, Source, TableFormat, open};
use fednmf_linalg::Block;

use super::streaming;

/// The description of a matrix.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    pub rows: usize,
    pub cols: usize,
    pub format: String,
    /// Whether a text table has a header and an index column; `None` for other formats.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// Notes on inferred properties of text tables, with the options that override them.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// The number of features of each type, where a file of 10x or AnnData tells types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_types: Option<BTreeMap<String, u64>>,
    /// Whether its blocks are stored sparse.
    pub sparse: bool,
    pub nonzeros: u64,
    /// Missing entries (NaN), which are not included in the other numbers.
    pub missing: u64,
    /// Nonzeros divided by the number of entries that are not missing.
    pub density: f64,
    pub min: f64,
    pub max: f64,
    /// Whether all entries are whole numbers, as counts are.
    pub whole_numbers: bool,
    pub sum: f64,
    /// ‖M‖_F
    pub norm: f64,
    /// Rows and columns whose observed entries are all zero, and that have at least one.
    pub zero_rows: u64,
    pub zero_cols: u64,
    /// Rows and columns whose entries are all missing.
    pub missing_rows: u64,
    pub missing_cols: u64,
    pub duplicates: u64,
    /// Checksum in hexadecimal; equal for the same matrix in any format.
    pub checksum: String,
}

/// Opens the input; `{party}` files are stacked by rows if they fit, otherwise by columns. Also returns a note on which.
///
/// # Errors
/// As [`open`] by rows.
fn open_either_way(spec: InputSpec, comm: &Communicator) -> SharedResult<(Input, Option<String>)> {
    let by_rows = open(&spec, comm);
    if !spec.by_party() {
        return by_rows.map(|input| (input, None));
    }
    match by_rows {
        Ok(input) => {
            Ok((input, Some("the parties' files are stacked by rows, as methods of private rows take them".into())))
        }
        Err(e) => {
            let by_columns = open(&InputSpec { stack: Stack::Columns, ..spec }, comm).map_err(|_| e)?;
            let stacked =
                "the parties' files are side by side, as methods of private columns take them: by rows they do not fit";
            Ok((by_columns, Some(stacked.into())))
        }
    }
}

/// The sum of squares below which some squares may have lost digits.
const SMALL_SQUARES: f64 = f64::MIN_POSITIVE / f64::EPSILON;

/// Reads the whole input in double precision, each rank a block of rows, which is read in panels if memory does not hold it, and
/// describes it. Negative entries are accepted. Errors quote the text of a single file, but not of parties' files.
///
/// # Errors
/// As [`streaming::load_any_rows`].
pub fn inspect(spec: &InputSpec, comm: &Communicator, progress: &mut dyn FnMut(f64)) -> SharedResult<Summary> {
    let mut spec = InputSpec { allow_negative: true, allow_nan: true, ..spec.clone() };
    spec.features.feature_type = FeatureType::All;
    let feature_types = match &spec.source {
        Source::File { path, dataset } if !spec.by_party() => features::types(path, dataset.as_deref()),
        _ => None,
    };
    let turned = match &spec.source {
        Source::File { path, dataset } if !spec.by_party() && !spec.transpose => {
            features::are_rows(path, dataset.as_deref())
        }
        _ => false,
    };
    let turned =
        turned.then(|| "the rows are features, as genes are; with --transpose they are the columns".to_string());
    let feature_types = feature_types
        .map(|(_, types)| features::counts(&types).into_iter().map(|(name, n)| (name.to_string(), n as u64)).collect());
    if spec.table.format == TableFormat::Triples && spec.table.repeated == Repeated::Refuse {
        spec.table.repeated = Repeated::Sum;
    }
    let (input, stacked) = open_either_way(spec, comm)?;
    let (m, n) = (input.header().rows, input.header().cols);
    let counts = (2 * size_of::<u64>() * n) as f64;
    let (mut loaded, streamed) = streaming::load_any_rows::<f64>(input, counts, Ok(()), comm, progress)?;
    // The number of nonzero and of missing entries in each column; below, in each row.
    let mut cols = [vec![0u64; n], vec![0u64; n]];
    let (mut rows, mut fractions) = ([0u64; 2], [0u64]);
    let statistics = loaded.statistics;
    // The squares of tiny entries underflow: they are summed in units of the largest.
    let unit =
        (statistics.norm2 < SMALL_SQUARES).then(|| statistics.max.max(-statistics.min)).filter(|unit| *unit > 0.0);
    let mut squares = [0.0];
    let mut close_row = |[nonzeros, missing]: [usize; 2]| {
        rows[0] += u64::from(nonzeros == 0 && missing < n);
        rows[1] += u64::from(missing == n);
    };
    Panels::pass_over(&mut loaded.panels, loaded.blocks.first(), comm, |_, block| {
        let mut count = |entries: &mut dyn Iterator<Item = (usize, f64)>| {
            let mut row = [0usize; 2];
            for (j, v) in entries.filter(|(_, v)| *v != 0.0) {
                let which = usize::from(v.is_nan());
                fractions[0] += u64::from(v.fract() != 0.0 && which == 0);
                row[which] += 1;
                cols[which][j] += 1;
                squares[0] += unit.map_or(0.0, |unit| if which == 0 { (v / unit).powi(2) } else { 0.0 });
            }
            close_row(row);
        };
        match block {
            Block::Dense(x) => x.outer_iter().for_each(|row| count(&mut row.iter().copied().enumerate())),
            Block::Sparse(x) => {
                x.matrix().outer_iterator().for_each(|row| count(&mut row.iter().map(|(j, &v)| (j, v))));
            }
            Block::Bits(x) => (0..x.shape().0).for_each(|i| count(&mut x.ones(i).map(|j| (j, 1.0)))),
        }
    })?;
    cols.iter_mut().for_each(|counts| comm.sum(COUNTS, counts));
    comm.sum(COUNTS, &mut rows);
    comm.sum(COUNTS, &mut fractions);
    comm.sum(STATISTICS, &mut squares);
    let [nonzeros, missing] = &cols;
    let columns =
        |f: &dyn Fn(u64, u64) -> bool| nonzeros.iter().zip(missing).filter(|(a, b)| f(**a, **b)).count() as u64;
    Ok(Summary {
        rows: m,
        cols: n,
        format: loaded.header.format,
        labels: loaded.header.labels,
        feature_types,
        notes: [
            loaded.header.notes,
            loaded.header.warnings,
            stacked.into_iter().chain(streamed).chain(turned).collect(),
        ]
        .concat(),
        sparse: loaded.header.sparse,
        nonzeros: statistics.nonzeros,
        missing: statistics.missing,
        density: statistics.nonzeros as f64 / (m as f64 * n as f64 - statistics.missing as f64).max(1.0),
        min: statistics.min,
        max: statistics.max,
        whole_numbers: fractions[0] == 0,
        sum: statistics.sum,
        norm: unit.map_or(statistics.norm2.sqrt(), |unit| unit * squares[0].sqrt()),
        zero_rows: rows[0],
        zero_cols: columns(&|nonzeros, missing| nonzeros == 0 && missing < m as u64),
        missing_rows: rows[1],
        missing_cols: columns(&|_, missing| missing == m as u64),
        duplicates: loaded.duplicates,
        checksum: format!("{:016x}", statistics.checksum),
    })
}
