//! The rows of a stored factor with the scale of its components removed, and their names.

use std::path::Path;

use ndarray::{Array1, Array2, Axis, aview1};

use fednmf_base::error::{Error, Result};
use fednmf_files::formats::fields::quoted;
use fednmf_files::names;
use fednmf_files::output::matrices::{Factor, OwnParts};

use super::matched_input::{StoredFactors, whole};

/// Rows of the matrix (those of U), or its columns (those of V).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    Rows,
    Columns,
}

/// The scale of components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The components of this factor have norm 1.
    Unit,
    /// The components of both factors have the same norm.
    Balanced,
}

/// The rows of a factor.
pub struct FactorRows {
    pub weights: Array2<f64>,
    /// The sum of each component of the other factor, at the scale of `weights`: for each row, or one for all. Only with
    /// [`Scale::Balanced`].
    pub other_sums: Array2<f64>,
    names: Option<Vec<String>>,
}

impl FactorRows {
    /// Reads U or V; `terms` lists names that replace those of the file.
    ///
    /// # Errors
    /// If the file or the names cannot be read, or their numbers differ.
    pub fn read(path: &Path, side: Side, scale: Scale, terms: Option<&str>) -> Result<FactorRows> {
        let factors = StoredFactors::open(path)?;
        let names = factors.stored.names();
        let (name, other, known) = match side {
            Side::Rows => ("U", "V", names.rows),
            Side::Columns => ("V", "U", names.columns),
        };
        let read = |name| -> Result<Array2<f64>> {
            let factor = factors.factor(name)?;
            // A party may have components of its own.
            if name == "V" && factors.stored.party().is_some() && factors.run.own_parts() {
                let own = factors.own_parts(&factors.factor("U")?, &factor)?;
                return own.map_or_else(|| whole(&factor), |own| Ok(own.of_row(0).clone()));
            }
            whole(&factor)
        };
        let mut weights = read(name)?;
        let mut scales: Vec<f64> = norms(&weights).into_iter().map(|own| 1.0 / own).collect();
        let mut other_sums = Array2::zeros((0, 0));
        if scale == Scale::Balanced {
            let other = read(other)?;
            match (recorded_balance(&factors, weights.ncols()), side) {
                (Some(of_u), Side::Rows) => scales = of_u,
                (Some(of_u), Side::Columns) => scales = of_u.into_iter().map(|scale| 1.0 / scale).collect(),
                (None, _) => {
                    for (scale, norm) in scales.iter_mut().zip(norms(&other)) {
                        *scale = (*scale * norm).sqrt();
                    }
                }
            }
            let sums = |other: &Array2<f64>| other.sum_axis(Axis(0)) / aview1(&scales);
            other_sums = match own_parts(&factors, side)? {
                Some(own) => each_row(&own, weights.nrows(), sums),
                None => sums(&other).insert_axis(Axis(0)),
            };
        }
        for (mut column, scale) in weights.columns_mut().into_iter().zip(scales) {
            if scale.is_finite() {
                column.mapv_inplace(|x| x * scale);
            }
        }
        let named = terms.map(|text| names::list("--terms", text)).transpose()?;
        if let (Some(list), Some(text)) = (&named, terms)
            && list.len() != weights.nrows()
        {
            return Err(Error::input(format!(
                "--terms {text}: has {} names, and {name} has {} rows; give one for each{}",
                list.len(),
                weights.nrows(),
                names::hint_at_header(list.len(), weights.nrows())
            )));
        }
        Ok(FactorRows { weights, other_sums, names: named.or(known) })
    }

    /// The names of all rows, if they are known.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// The name of a row, or its number.
    pub fn name(&self, row: usize) -> String {
        self.names.as_ref().map_or_else(|| row.to_string(), |names| names[row].clone())
    }

    /// The same in a table between tabs.
    pub fn cell(&self, row: usize) -> String {
        quoted(&self.name(row), '\t')
    }
}

/// The attribute of projected factors with the [`balance`] of those that they were projected on.
pub const BALANCE: &str = "balance";

/// By what to multiply each component of U, and divide that of V, so that both have the same norm. Projected rows keep that of the
/// first ones: so the component that a row belongs to does not depend on the other rows. `None` without U.
///
/// # Errors
/// If the factors cannot be read.
pub fn balance(factors: &StoredFactors) -> Result<Option<Vec<f64>>> {
    let v = factors.factor("V")?;
    if let Some(known) = recorded_balance(factors, v.shape().1) {
        return Ok(Some(known));
    }
    if !factors.stored.has("U") || factors.run.own_parts() {
        return Ok(None);
    }
    let [u, v] = [norms_of_stored(&factors.factor("U")?)?, norms_of_stored(&v)?];
    Ok(Some(u.into_iter().zip(v).map(|(u, v)| (v / u).sqrt()).collect()))
}

fn recorded_balance(factors: &StoredFactors, k: usize) -> Option<Vec<f64>> {
    let list = factors.stored.attributes().get(BALANCE)?.as_array()?;
    // A component without weight in U has no balance.
    let list: Vec<f64> = list.iter().map(|x| x.as_f64().unwrap_or(f64::INFINITY)).collect();
    (list.len() == k).then_some(list)
}

/// The parts of V that parties have of their own, for rows of all of them; those of one party are read as its V.
fn own_parts(factors: &StoredFactors, side: Side) -> Result<Option<OwnParts>> {
    if side == Side::Columns || factors.stored.party().is_some() || !factors.run.own_parts() {
        return Ok(None);
    }
    factors.own_parts(&factors.factor("U")?, &factors.factor("V")?)
}

/// The `sums` of the V of each row. Rows of a party follow each other.
fn each_row(own: &OwnParts, rows: usize, sums: impl Fn(&Array2<f64>) -> Array1<f64>) -> Array2<f64> {
    let mut all: Vec<Array1<f64>> = Vec::with_capacity(rows);
    for i in 0..rows {
        let same = i > 0 && std::ptr::eq(own.of_row(i), own.of_row(i - 1));
        all.push(if same { all[i - 1].clone() } else { sums(own.of_row(i)) });
    }
    let k = all.first().map_or(0, Array1::len);
    Array2::from_shape_fn((rows, k), |(i, l)| all[i][l])
}

/// The norm of each column of a factor, which may be too large for memory.
fn norms_of_stored(factor: &Factor<'_>) -> Result<Vec<f64>> {
    const ROWS: usize = 1 << 16;
    let (rows, k) = factor.shape();
    let mut all = vec![0f64; k];
    for first in (0..rows).step_by(ROWS) {
        let part = norms(&factor.rows(None, first..rows.min(first + ROWS))?);
        all.iter_mut().zip(part).for_each(|(all, part)| *all = all.hypot(part));
    }
    Ok(all)
}

/// The norm of each column.
fn norms(factor: &Array2<f64>) -> Vec<f64> {
    factor.columns().into_iter().map(|column| column.iter().fold(0.0, |norm: f64, x| norm.hypot(*x))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_cell_and_otherwise_stays() {
        let names = Some(vec!["g\u{200b}\nx\ty".to_string()]);
        let rows = FactorRows { weights: Array2::zeros((1, 1)), other_sums: Array2::zeros((0, 0)), names };
        assert_eq!(rows.cell(0), "\"g\u{200b}\nx\ty\"");
    }
}
