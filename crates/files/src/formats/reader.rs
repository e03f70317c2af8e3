//! The traits by which the readers of all formats pass entries on.

use std::ops::Range;

use fednmf_base::error::{Error, Result};
use fednmf_data::policy::EntryPolicy;
use fednmf_linalg::Real;

use crate::features::Selection;
use crate::formats::refusal::Refusal;

/// Receives (row, column, value) of each entry, with the indices of the file; the error states what is wrong with the value.
/// Readers are generic in it because it is called once per entry.
pub trait EntrySink: FnMut(usize, usize, f64) -> std::result::Result<(), String> {}

impl<F: FnMut(usize, usize, f64) -> std::result::Result<(), String>> EntrySink for F {}

/// The result of parsing a block of text; an error comes with the byte of the block at which its line begins.
pub type BlockResult<T> = std::result::Result<T, (usize, Refusal)>;

/// Reads a dense file in storage order. A *line* is a row, or a column of a file stored by columns.
pub trait DenseReader<T: Real> {
    /// Reads the entries `within` of each of `lines` into `out`, line after line. Successive calls move forward through
    /// the reader's part of the file; several lines are only requested completely. The caller checks the entries.
    ///
    /// # Errors
    /// If the file does not contain them.
    fn read(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()>;

    /// Which entries are accepted.
    fn policy(&self) -> EntryPolicy;

    /// The error for entry `at` of line `line`, which is refused for the reason `why`.
    fn refusal(&self, line: usize, at: usize, why: &str) -> Error;

    /// Checks entries that were read.
    ///
    /// # Errors
    /// If one is not accepted.
    fn check(&self, lines: Range<usize>, within: Range<usize>, entries: &[T]) -> Result<()> {
        let Some((at, why)) = self.policy().first_refused(entries) else { return Ok(()) };
        Err(self.refusal(lines.start + at / within.len(), within.start + at % within.len(), &why))
    }

    /// Reads entries and checks them.
    ///
    /// # Errors
    /// As [`DenseReader::read`] and [`DenseReader::check`].
    fn fill(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
        self.read(lines.clone(), within.clone(), out)?;
        self.check(lines, within, out)
    }
}

/// Reads some entries of each line.
pub struct SelectedReader<'a, T> {
    whole: Box<dyn DenseReader<T> + 'a>,
    selection: &'a Selection,
    /// Number of lines that are read together, beginning at a multiple of this number.
    together: usize,
    /// Whole lines, and their numbers.
    lines: (Range<usize>, Vec<T>),
}

impl<'a, T: Real> SelectedReader<'a, T> {
    pub fn new(whole: Box<dyn DenseReader<T> + 'a>, selection: &'a Selection, together: usize) -> Self {
        SelectedReader { whole, selection, together, lines: (0..0, Vec::new()) }
    }
}

impl<T: Real> DenseReader<T> for SelectedReader<'_, T> {
    fn read(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
        let all = self.selection.all;
        for (line, out) in lines.clone().zip(out.chunks_exact_mut(within.len().max(1))) {
            let (known, entries) = &mut self.lines;
            if !known.contains(&line) {
                let read = line..lines.end.min(line + self.together - line % self.together);
                *known = 0..0;
                entries.resize(read.len() * all, T::zero());
                self.whole.read(read.clone(), 0..all, entries)?;
                *known = read;
            }
            let entries = &entries[(line - known.start) * all..];
            let kept = &self.selection.kept[within.clone()];
            out.iter_mut().zip(kept).for_each(|(out, &at)| *out = entries[at]);
        }
        Ok(())
    }

    fn policy(&self) -> EntryPolicy {
        self.whole.policy()
    }

    fn refusal(&self, line: usize, at: usize, why: &str) -> Error {
        self.whole.refusal(line, self.selection.kept[at], why)
    }
}
