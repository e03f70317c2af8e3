//! Replaces the reader in a build without the HDF5 library: refuses every file.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

use fednmf_base::error::{Error, Result};
use fednmf_data::policy::EntryPolicy;
use fednmf_linalg::Real;

use crate::formats::compressed::CompressedArrays;
use crate::formats::hdf5::{Hdf5Matrix, refusal};
use crate::formats::reader::DenseReader;

fn refuse<T>(path: &str) -> Result<T> {
    Err(refusal(Path::new(path)).expect("the library is not in this build"))
}

pub fn probe(path: &str, _dataset: Option<&str>) -> Result<()> {
    refuse(path)
}

pub fn header(path: &str, _dataset: Option<&str>) -> Result<Hdf5Matrix> {
    refuse(path)
}

pub fn group_memory(path: &str, _name: &str) -> Result<(usize, usize)> {
    refuse(path)
}

pub fn open_group(path: &str, _name: &str, _cache: Option<usize>) -> Result<(Vec<f64>, Box<dyn CompressedArrays>)> {
    refuse(path)
}

/// A reader that cannot be constructed in this build.
pub struct DatasetReader<'a>(Infallible, PhantomData<&'a str>);

impl<'a> DatasetReader<'a> {
    pub fn open(path: &'a str, _name: &str, _cache: usize, _policy: EntryPolicy) -> Result<Self> {
        refuse(path)
    }
}

impl<T: Real> DenseReader<T> for DatasetReader<'_> {
    fn read(&mut self, _lines: Range<usize>, _within: Range<usize>, _out: &mut [T]) -> Result<()> {
        match self.0 {}
    }

    fn policy(&self) -> EntryPolicy {
        match self.0 {}
    }

    fn refusal(&self, _line: usize, _at: usize, _why: &str) -> Error {
        match self.0 {}
    }
}
