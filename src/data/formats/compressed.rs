//! Compressed sparse rows and columns (CSR, CSC): three arrays, wherever they are stored.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{hdf5, npz};
use crate::data::formats::file::Sink;
use crate::error::{Error, Result};

/// A matrix as CSR, or as CSC if `by_columns`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Strips {
    pub rows: usize,
    pub cols: usize,
    pub by_columns: bool,
    pub entries: u64,
    pub store: Store,
}

/// Where the arrays lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Store {
    Npz(npz::Arrays),
    /// The group's name.
    Hdf5(String),
}

/// Hands over parts of the arrays of indices and values; entries in ascending order.
pub trait Arrays {
    /// Indices and values of entries `range`.
    ///
    /// # Errors
    /// When the file does not hold them.
    fn read(&mut self, range: Range<u64>) -> Result<(Vec<f64>, Vec<f64>)>;
}

/// Entries read at once.
const STEP: u64 = 1 << 16;

/// A strip reader: knows which row (or column) each entry lies in.
pub struct Reader<'a> {
    path: &'a str,
    strips: &'a Strips,
    /// Where each row's (or column's) entries begin.
    starts: Vec<u64>,
    arrays: Box<dyn Arrays>,
}

impl Strips {
    /// Whether any part can be read without what lies before it.
    pub fn divisible(&self) -> bool {
        match &self.store {
            Store::Npz(arrays) => arrays.divisible(),
            Store::Hdf5(_) => true,
        }
    }

    /// Opens the arrays and checks the one that tells where rows begin.
    pub fn open<'a>(&'a self, path: &'a str) -> Result<Reader<'a>> {
        let (starts, arrays) = match &self.store {
            Store::Npz(arrays) => arrays.open(path)?,
            Store::Hdf5(group) => hdf5::open_group(path, group)?,
        };
        let outer = if self.by_columns { self.cols } else { self.rows };
        let wrong = |what: String| Err(Error::input(format!("{path}: indptr {what}")));
        if starts.len() != outer + 1 {
            return wrong(format!("has {} entries; {} were to be expected", starts.len(), outer + 1));
        }
        if starts[0] != 0.0 || starts[outer] != self.entries as f64 {
            return wrong(format!("runs from {} to {}, not from 0 to {}", starts[0], starts[outer], self.entries));
        }
        if let Some(at) = starts.windows(2).position(|w| w[0].is_nan() || w[1].is_nan() || w[0] > w[1]) {
            return wrong(format!("falls from {} to {} at place {}", starts[at], starts[at + 1], at + 1));
        }
        Ok(Reader { path, strips: self, starts: starts.into_iter().map(|x| x as u64).collect(), arrays })
    }

    /// Rank `part`'s share of the entries.
    pub fn share(&self, part: usize, parts: usize) -> Range<u64> {
        let border = |i: usize| (u128::from(self.entries) * i as u128 / parts as u128) as u64;
        border(part)..border(part + 1)
    }
}

impl Reader<'_> {
    /// The share of all entries that lies before entry `at`.
    pub fn done(&self, at: u64) -> f64 {
        at as f64 / self.strips.entries.max(1) as f64
    }

    /// Indices and values of the next entries of `range`, at most a step.
    pub fn step(&mut self, range: &Range<u64>) -> Result<(Range<u64>, Vec<f64>, Vec<f64>)> {
        let step = range.start..range.end.min(range.start + STEP);
        let (indices, values) = self.arrays.read(step.clone())?;
        Ok((step, indices, values))
    }

    /// Hands (row, column, value) of entries to `sink`.
    pub fn emit(&self, first: u64, indices: &[f64], values: &[f64], sink: &mut impl Sink) -> Result<u64> {
        let inner = if self.strips.by_columns { self.strips.rows } else { self.strips.cols };
        let mut outer = self.starts.partition_point(|&s| s <= first) - 1;
        for ((entry, &index), &value) in (first..).zip(indices).zip(values) {
            while self.starts[outer + 1] <= entry {
                outer += 1;
            }
            if !(index >= 0.0 && index < inner as f64 && index.fract() == 0.0) {
                let what = if self.strips.by_columns { "column" } else { "row" };
                return Err(Error::input(format!(
                    "{}: stored entry {entry}, in {what} {}, has the index {index}, which is outside 0..{inner}",
                    self.path,
                    outer + 1
                )));
            }
            let (i, j) = if self.strips.by_columns { (index as usize, outer) } else { (outer, index as usize) };
            sink(i, j, value).map_err(|what| Error::input(format!("{}: {what}", self.path)))?;
        }
        Ok(values.len() as u64)
    }

    /// Reads the entries of `range`.
    pub fn entries(
        &mut self,
        mut range: Range<u64>,
        sink: &mut impl Sink,
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

/// Shape of a matrix that is stored so, and whether the arrays fit it.
pub fn check(
    shape: &[f64],
    by_columns: bool,
    starts: u64,
    indices: u64,
    values: u64,
) -> std::result::Result<(usize, usize), String> {
    let &[rows, cols] = shape else { return Err(format!("has a shape of {} numbers; a matrix has two", shape.len())) };
    if !(rows >= 0.0 && cols >= 0.0 && rows < 9e15 && cols < 9e15) {
        return Err(format!("has the shape {rows} × {cols}"));
    }
    let (rows, cols) = (rows as usize, cols as usize);
    crate::data::formats::mtx::shape(rows, cols, Some(values))?;
    let outer = if by_columns { cols } else { rows };
    if starts != outer as u64 + 1 {
        let what = if by_columns { "columns" } else { "rows" };
        return Err(format!("has {outer} {what}, but its indptr has {starts} entries instead of {}", outer + 1));
    }
    if indices != values {
        return Err(format!("has {indices} indices for {values} values"));
    }
    Ok((rows, cols))
}
