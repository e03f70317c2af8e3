//! Stored factors for a report: the whole factor whose components are shown, and a few rows of the other one.

use ndarray::{Array1, Array2, s};

use fednmf_base::error::{Error, Result};
use fednmf_files::output::matrices::Stored;

/// Lines of the matrix: its rows, which the components of V resemble, or its columns, which the components of U resemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Lines {
    Rows,
    Columns,
}

impl Lines {
    /// Name of the factor whose components resemble the lines, and of the other one.
    fn factors(self) -> (&'static str, &'static str) {
        match self {
            Lines::Rows => ("V", "U"),
            Lines::Columns => ("U", "V"),
        }
    }

    /// Number and length of the lines of an m × n matrix.
    pub fn shape(self, (m, n): (usize, usize)) -> (usize, usize) {
        match self {
            Lines::Rows => (m, n),
            Lines::Columns => (n, m),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Lines::Rows => "row",
            Lines::Columns => "column",
        }
    }
}

/// Sample lines of the matrix.
#[derive(Debug, Clone)]
pub struct Sample {
    pub lines: Lines,
    /// Their indices.
    pub at: Vec<usize>,
    /// Their entries, one line per row.
    pub values: Array2<f64>,
}

/// `count` indices spread evenly over 0..`total`.
pub fn spread(count: usize, total: usize) -> Vec<usize> {
    let count = count.min(total);
    (0..count).map(|i| (2 * i + 1) * total / (2 * count)).collect()
}

/// Maximum number of entries of a factor that a report reads.
const MOST: usize = 1 << 28;
/// Rows read at a time to compute norms.
const STEP: usize = 1 << 14;

/// Factors with their components in descending order of weight.
pub struct Factors {
    pub lines: Lines,
    /// The shown factor, length of a line × number of components.
    pub shown: Array2<f64>,
    /// Index of each component in the file.
    pub number: Vec<usize>,
    /// ‖u_j v_jᵀ‖_F divided by the sum of these norms; `None` if a factor is not in the file.
    pub share: Option<Vec<f64>>,
}

impl Factors {
    /// Reads the factor to show; if the other one is private and only one is in the file, that one.
    ///
    /// # Errors
    /// If the file has no factor, or one that is too large to show.
    pub fn read(stored: &Stored, wanted: Option<Lines>) -> Result<Factors> {
        let has = |lines: Lines| stored.has(lines.factors().0);
        let lines = wanted.unwrap_or(Lines::Rows);
        let lines = if has(lines) || wanted.is_some() { lines } else { Lines::Columns };
        let (name, other) = lines.factors();
        let (rows, k) = stored.matrix(name)?;
        if rows.saturating_mul(k) > MOST {
            return Err(Error::input(format!(
                "{name} is {rows} x {k}: too large for a report; at most {MOST} numbers are read"
            )));
        }
        let mut shown = Array2::zeros((rows, k));
        stored.as_f64(name, 0, shown.view_mut())?;
        let mut weight: Vec<f64> = shown.columns().into_iter().map(|c| c.dot(&c).sqrt()).collect();
        let mut share = None;
        if stored.has(other) {
            let norms = norms(stored, other, k)?;
            weight.iter_mut().zip(norms).for_each(|(w, n)| *w *= n);
            let total: f64 = weight.iter().sum();
            share = Some(weight.iter().map(|w| if total > 0.0 { w / total } else { 0.0 }).collect::<Vec<f64>>());
        }
        let mut number: Vec<usize> = (0..k).collect();
        number.sort_by(|&a, &b| weight[b].total_cmp(&weight[a]));
        let share = share.map(|share| number.iter().map(|&j| share[j]).collect());
        let shown = shown.select(ndarray::Axis(1), &number);
        Ok(Factors { lines, shown, number, share })
    }

    /// The reconstruction of the lines `at`, |at| × length; `None` if the other factor is not in the file.
    ///
    /// # Errors
    /// If it cannot be read or belongs to another matrix.
    pub fn reconstruct(&self, stored: &Stored, at: &[usize], boolean: bool) -> Result<Option<Array2<f64>>> {
        let (_, other) = self.lines.factors();
        if !stored.has(other) {
            return Ok(None);
        }
        let (k, mut out) = (self.number.len(), Array2::zeros((at.len(), self.shown.nrows())));
        for (&i, mut line) in at.iter().zip(out.rows_mut()) {
            let mut row = Array2::<f64>::zeros((1, k));
            stored.as_f64(other, i, row.view_mut())?;
            let weights: Array1<f64> = self.number.iter().map(|&j| row[[0, j]]).collect();
            line.assign(&self.shown.dot(&weights));
            if boolean {
                line.mapv_inplace(|x| x.min(1.0));
            }
        }
        Ok(Some(out))
    }
}

/// The norm of each component of a factor, read in blocks of rows.
fn norms(stored: &Stored, name: &str, k: usize) -> Result<Vec<f64>> {
    let (rows, cols) = stored.matrix(name)?;
    if cols != k {
        return Err(Error::input(format!(
            "{name} has {cols} components, and the other factor {k}; is the file damaged?"
        )));
    }
    let mut squares = vec![0.0; k];
    let mut part = Array2::zeros((STEP.min(rows), k));
    for first in (0..rows).step_by(STEP) {
        let mut part = part.slice_mut(s![..STEP.min(rows - first), ..]);
        stored.as_f64(name, first, part.view_mut())?;
        part.columns().into_iter().zip(&mut squares).for_each(|(c, square)| *square += c.dot(&c));
    }
    Ok(squares.into_iter().map(f64::sqrt).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_and_never_too_many() {
        assert_eq!(spread(3, 30), [5, 15, 25]);
        assert_eq!(spread(5, 2), [0, 1]);
        assert!(spread(4, 0).is_empty() && spread(0, 9).is_empty());
    }
}
