//! A whole factor of an output: from the shared file, or, if it is private, from the parties' files in the same directory.

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2, Axis, s};

use fednmf_base::error::{Error, Result};

use crate::output::stored::Stored;

/// A factor of an output. The rows of the selected parties follow one another, party 0 first, as in the matrix.
#[derive(Debug)]
pub struct Factor<'a> {
    stored: &'a Stored,
    name: &'static str,
    cols: usize,
    /// The parties and the rows of each, if the factor is private.
    parts: Option<Vec<(usize, Range<usize>)>>,
    rows: usize,
}

impl<'a> Factor<'a> {
    /// Finds U or V.
    ///
    /// # Errors
    /// If the factor does not exist, or the file of a party is missing, damaged or of another run.
    pub fn open(stored: &'a Stored, name: &'static str) -> Result<Self> {
        let (false, Some(parties)) = (stored.has(name), stored.parties()) else {
            let (rows, cols) = stored.matrix(name)?;
            return Ok(Factor { stored, name, cols, parts: None, rows });
        };
        let (mut rows, mut cols, mut parts) = (0, None, Vec::with_capacity(parties.len()));
        for party in parties {
            let (own, k) = stored.of_party(party)?.matrix(name)?;
            if *cols.get_or_insert(k) != k {
                return Err(Error::input(format!(
                    "{}: {name} of party {party} has {k} columns, and that of another party another number; put the files of one \
                     run back together",
                    stored.path().display()
                )));
            }
            parts.push((party, rows..rows + own));
            rows += own;
        }
        Ok(Factor { stored, name, cols: cols.unwrap_or(0), parts: Some(parts), rows })
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// The number of rows of each party, if the factor is private.
    pub fn part_sizes(&self) -> Option<Vec<usize>> {
        Some(self.parts()?.iter().map(|(_, rows)| rows.len()).collect())
    }

    /// Whether its rows are in files that only their parties may read.
    pub fn is_private(&self) -> bool {
        self.parts.is_some()
    }

    /// The parties and the rows of each, if the factor is private.
    pub(super) fn parts(&self) -> Option<&[(usize, Range<usize>)]> {
        self.parts.as_deref()
    }

    /// Fills `out` with rows `first_row ..`.
    ///
    /// # Errors
    /// If a file cannot be read, or there are fewer rows.
    pub fn read(&self, first_row: usize, mut out: ArrayViewMut2<'_, f64>) -> Result<()> {
        let Some(parts) = &self.parts else { return self.stored.as_f64(self.name, first_row, out) };
        let wanted = first_row..first_row + out.nrows();
        for (party, rows) in parts {
            let here = rows.start.max(wanted.start)..rows.end.min(wanted.end);
            if !here.is_empty() {
                let part = s![here.start - first_row..here.end - first_row, ..];
                self.stored.of_party(*party)?.as_f64(self.name, here.start - rows.start, out.slice_mut(part))?;
            }
        }
        Ok(())
    }

    /// Rows `wanted` of the reordered factor, whose row i is row `order[i]` of the file, or row i without an order.
    ///
    /// # Errors
    /// As [`Factor::read`].
    pub fn rows(&self, order: Option<&[usize]>, wanted: Range<usize>) -> Result<Array2<f64>> {
        let Some(order) = order else {
            let mut own = Array2::zeros((wanted.len(), self.cols));
            self.read(wanted.start, own.view_mut())?;
            return Ok(own);
        };
        let mut whole = Array2::zeros((self.rows, self.cols));
        self.read(0, whole.view_mut())?;
        Ok(whole.select(Axis(0), &order[wanted]))
    }
}
