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

/// Some successive entries. Its memory is used again for the next ones.
#[derive(Debug, Default)]
pub struct Step {
    pub entries: Range<u64>,
    /// Those that are no index of any matrix are [`NO_INDEX`].
    pub indices: Vec<u32>,
    pub values: Vec<f64>,
}

/// What a number in place of an index becomes that is negative, not whole or too large; no dimension is as large.
pub const NO_INDEX: u32 = u32::MAX;

/// Reads the arrays of indices and values.
pub trait CompressedArrays {
    /// Reads indices and values of `step.entries`; successive ranges ascend.
    ///
    /// # Errors
    /// If the file does not contain them.
    fn read(&mut self, step: &mut Step) -> Result<()>;
}

/// Entries read at once: they are still in cache when they are used.
const STEP: u64 = 1 << 15;

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

    /// Reads the first entries of `range`, at most [`STEP`], and takes them from it.
    ///
    /// # Errors
    /// If the file does not contain them.
    pub fn step(&mut self, range: &mut Range<u64>, step: &mut Step) -> Result<()> {
        step.entries = range.start..range.end.min(range.start + STEP);
        range.start = step.entries.end;
        self.arrays.read(step)
    }

    /// Calls `f` with each line that has some of the entries, and their places among them.
    ///
    /// # Errors
    /// If an index is out of range, or `f` fails; the message of `f` gets the path.
    pub fn lines(
        &self,
        step: &Step,
        mut f: impl FnMut(usize, Range<usize>) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let &Compressed { rows, cols, by_columns, .. } = self.matrix;
        let inner = if by_columns { rows } else { cols };
        let Range { start: first, end } = step.entries;
        let mut entry = first;
        let mut outer = self.starts.partition_point(|&s| s <= first) - 1;
        while entry < end {
            while self.starts[outer + 1] <= entry {
                outer += 1;
            }
            let line = (entry - first) as usize..(end.min(self.starts[outer + 1]) - first) as usize;
            let is_outside = |index: &u32| *index as usize >= inner;
            // No branch per entry.
            if step.indices[line.clone()].iter().fold(false, |any, index| any | is_outside(index)) {
                let what = if by_columns { "column" } else { "row" };
                let at = step.indices[line.clone()].iter().position(is_outside).unwrap_or(0) as u64;
                return Err(Error::input(format!(
                    "{}: stored entry {}, in {what} {}, has an index outside 0..{inner}",
                    self.path,
                    entry + at,
                    outer + 1
                )));
            }
            entry = first + line.end as u64;
            f(outer, line).map_err(|what| Error::input(what).at(self.path))?;
        }
        Ok(())
    }

    /// Passes the entries on to `sink`, and returns their number.
    ///
    /// # Errors
    /// If an index is out of range, or the sink refuses a value.
    pub fn emit(&self, step: &Step, sink: &mut impl EntrySink) -> Result<u64> {
        let by_columns = self.matrix.by_columns;
        self.lines(step, |outer, line| {
            step.indices[line.clone()].iter().zip(&step.values[line]).try_for_each(|(&index, &value)| {
                let inner = index as usize;
                let (i, j) = if by_columns { (inner, outer) } else { (outer, inner) };
                sink(i, j, value)
            })
        })?;
        Ok(step.values.len() as u64)
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
        let mut step = Step::default();
        while !range.is_empty() {
            self.step(&mut range, &mut step)?;
            found += self.emit(&step, sink)?;
            progress(found as f64 / all);
        }
        Ok(found)
    }
}
