//! Stands in for `columns` in a build without Parquet.

use std::ops::Range;

use fednmf_base::error::{Error, Result};
use fednmf_data::policy::EntryPolicy;
use fednmf_data::values::Values;
use fednmf_linalg::Real;

use super::Parquet;
use crate::formats::io::InputFile;
use crate::formats::options::{Names, TableOptions};
use crate::formats::reader::DenseReader;

fn absent(file: &InputFile) -> Error {
    file.error("is Parquet, which this build does not read; store the table as .csv, or build with the feature parquet")
}

pub fn header(file: &InputFile, _options: TableOptions) -> Result<(Parquet, (usize, usize), Values)> {
    Err(absent(file))
}

pub fn names(file: &InputFile, _options: TableOptions) -> Result<Names> {
    Err(absent(file))
}

pub struct ParquetReader<'a>(&'a InputFile, EntryPolicy);

impl<'a> ParquetReader<'a> {
    pub fn open(file: &'a InputFile, _parquet: &'a Parquet, _policy: EntryPolicy) -> Result<Self> {
        Err(absent(file))
    }
}

impl<T: Real> DenseReader<T> for ParquetReader<'_> {
    fn read(&mut self, _lines: Range<usize>, _within: Range<usize>, _out: &mut [T]) -> Result<()> {
        Err(absent(self.0))
    }

    fn policy(&self) -> EntryPolicy {
        self.1
    }

    fn refusal(&self, _line: usize, _at: usize, _why: &str) -> Error {
        absent(self.0)
    }
}
