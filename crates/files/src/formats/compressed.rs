//! Compressed sparse rows and columns (CSR and CSC): three arrays, in any container.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};

use crate::formats::limits::check_shape;
use crate::formats::reader::EntrySink;

/// A CSR matrix, or a CSC matrix if `by_columns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compressed {
    pub rows: usize,
    pub cols: usize,
    pub by_columns: bool,
    pub entries: u64,
}

/// Reads the arrays of indices and values.
pub trait CompressedArrays {
    /// Indices and values of the entries `range`; successive ranges ascend.
    ///
    /// # Errors
    /// If the file does not contain them.
    fn read(&mut self, range: Range<u64>) -> Result<(Vec<f64>, Vec<f64>)>;
}

/// Entries read at once.
const STEP: u64 = 1 << 16;

impl Compressed {
    /// A matrix of the given `shape`, from the lengths of its `indptr`, `indices` and `data`.
    ///
    /// # Errors
    /// If the lengths do not fit the shape; the message is a predicate: "has …".
    pub fn new(shape: &[f64], by_columns: bool, lengths: [u64; 3]) -> std::result::Result<Self, String> {
        let &[rows, cols] = shape else {
            return Err(format!("has a shape of {} numbers; a matrix has two", shape.len()));
        };
        let [starts, indices, entries] = lengths;
        if !(rows >= 0.0 && cols >= 0.0 && rows < 9e15 && cols < 9e15) {
            return Err(format!("has the shape {rows} × {cols}"));
        }
        let (rows, cols) = (rows as usize, cols as usize);
        check_shape(rows, cols, Some(entries))?;
        let (outer, what) = if by_columns { (cols, "columns") } else { (rows, "rows") };
        if starts != outer as u64 + 1 {
            return Err(format!("has {outer} {what}, but its indptr has {starts} entries instead of {}", outer + 1));
        }
        if indices != entries {
            return Err(format!("has {indices} indices for {entries} values"));
        }
        Ok(Compressed { rows, cols, by_columns, entries })
    }

    /// The name of the format.
    pub fn name(&self) -> &'static str {
        if self.by_columns { "CSC" } else { "CSR" }
    }

    /// The entries in part `part` of `parts`.
    pub fn share(&self, part: usize, parts: usize) -> Range<u64> {
        let border = |i: usize| (u128::from(self.entries) * i as u128 / parts as u128) as u64;
        border(part)..border(part + 1)
    }
}

/// Reader of a compressed matrix, with the row (or column) index of each entry.
pub struct CompressedReader<'a> {
    path: &'a str,
    matrix: &'a Compressed,
    /// Index of the first entry of each row (or column).
    starts: Vec<u64>,
    arrays: Box<dyn CompressedArrays>,
}

impl<'a> CompressedReader<'a> {
    /// Reads from `arrays`; `starts` is the content of `indptr`.
    ///
    /// # Errors
    /// If `indptr` does not ascend from 0 to the number of entries.
    pub fn new(
        path: &'a str,
        matrix: &'a Compressed,
        (starts, arrays): (Vec<f64>, Box<dyn CompressedArrays>),
    ) -> Result<Self> {
        let outer = if matrix.by_columns { matrix.cols } else { matrix.rows };
        let wrong = |what: String| Err(Error::input(format!("{path}: indptr {what}")));
        if starts.len() != outer + 1 {
            return wrong(format!("has {} entries instead of {}", starts.len(), outer + 1));
        }
        if starts[0] != 0.0 || starts[outer] != matrix.entries as f64 {
            return wrong(format!("does not run from 0 to {}", matrix.entries));
        }
        if let Some(at) = starts.windows(2).position(|w| w[0].is_nan() || w[1].is_nan() || w[0] > w[1]) {
            return wrong(format!("falls at index {}", at + 1));
        }
        Ok(CompressedReader { path, matrix, starts: starts.into_iter().map(|x| x as u64).collect(), arrays })
    }

    /// The entries of some lines: rows, or columns of a CSC matrix.
    pub fn entries_of(&self, lines: Range<usize>) -> Range<u64> {
        self.starts[lines.start]..self.starts[lines.end]
    }

    /// The number of entries of each line.
    pub fn counts(&self) -> Vec<u64> {
        self.starts.windows(2).map(|w| w[1] - w[0]).collect()
    }

    /// The fraction of all entries that precedes entry `at`.
    pub fn done(&self, at: u64) -> f64 {
        at as f64 / self.matrix.entries.max(1) as f64
    }

    /// Reads the first entries of `range`, at most [`STEP`]: their range, indices and values.
    ///
    /// # Errors
    /// If the file does not contain them.
    pub fn step(&mut self, range: &Range<u64>) -> Result<(Range<u64>, Vec<f64>, Vec<f64>)> {
        let step = range.start..range.end.min(range.start + STEP);
        let (indices, values) = self.arrays.read(step.clone())?;
        Ok((step, indices, values))
    }

    /// Passes the entries from entry `first` on to `sink`, and returns their number.
    ///
    /// # Errors
    /// If an index is out of range, or the sink refuses a value.
    pub fn emit(&self, first: u64, indices: &[f64], values: &[f64], sink: &mut impl EntrySink) -> Result<u64> {
        let &Compressed { rows, cols, by_columns, .. } = self.matrix;
        let inner = if by_columns { rows } else { cols };
        let mut outer = self.starts.partition_point(|&s| s <= first) - 1;
        for ((entry, &index), &value) in (first..).zip(indices).zip(values) {
            while self.starts[outer + 1] <= entry {
                outer += 1;
            }
            if !(index >= 0.0 && index < inner as f64 && index.fract() == 0.0) {
                let what = if by_columns { "column" } else { "row" };
                return Err(Error::input(format!(
                    "{}: stored entry {entry}, in {what} {}, has an index outside 0..{inner}",
                    self.path,
                    outer + 1
                )));
            }
            let (i, j) = if by_columns { (index as usize, outer) } else { (outer, index as usize) };
            sink(i, j, value).map_err(|what| Error::input(what).at(self.path))?;
        }
        Ok(values.len() as u64)
    }

    /// Passes the entries of `range` to `sink`, and returns their number.
    ///
    /// # Errors
    /// As [`CompressedReader::step`] and [`CompressedReader::emit`].
    pub fn entries(
        &mut self,
        mut range: Range<u64>,
        sink: &mut impl EntrySink,
        progress: &mut dyn FnMut(f64),
    ) -> Result<u64> {
        let (mut found, all) = (0, (range.end - range.start).max(1) as f64);
        while range.start < range.end {
            let (step, indices, values) = self.step(&range)?;
            found += self.emit(step.start, &indices, &values, sink)?;
            range.start = step.end;
            progress(found as f64 / all);
        }
        Ok(found)
    }
}
