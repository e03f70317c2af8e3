//! Replaces the modules that need the HDF5 library in a build without it: no file is written or opened.

#![expect(clippy::extra_unused_type_parameters, reason = "the signatures are those of the build with HDF5")]

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

use ndarray::ArrayViewMut2;
use serde_json::{Map, Value};

use fednmf_base::error::Result;
use fednmf_base::unfinished::Access;
use fednmf_linalg::Real;

use crate::formats::hdf5::refusal;
use crate::output::anndata::Annotations;
use crate::output::csr::{NamedRows, Push};
use crate::output::part::Part;
use crate::output::plan::Matrix;

fn refuse<T>(path: &Path) -> Result<T> {
    Err(refusal(path).expect("the library is not in this build"))
}

pub fn appendable_shape(path: &Path) -> Result<(usize, usize)> {
    refuse(path)
}

pub fn write_csr(
    path: &Path,
    _matrix: &NamedRows<'_>,
    _access: Access,
    _write: &mut dyn FnMut(&mut Push<'_>) -> Result<()>,
) -> Result<Part> {
    refuse(path)
}

pub struct Writer(Infallible);

impl Writer {
    pub fn create(path: &Path, _access: Access) -> Result<Self> {
        refuse(path)
    }

    pub fn attributes(&self, _attributes: &Map<String, Value>) -> Result<()> {
        match self.0 {}
    }

    pub fn matrix<T: Real>(&self, _matrix: &Matrix) -> Result<Rows> {
        match self.0 {}
    }

    pub fn finish(self) -> Result<Part> {
        match self.0 {}
    }
}

pub struct Rows(Infallible);

impl Rows {
    pub fn push<T: Real>(&mut self, _values: &[T]) -> Result<()> {
        match self.0 {}
    }

    pub fn end(self) -> Result<()> {
        match self.0 {}
    }
}

pub struct Sheet<'a>(Infallible, PhantomData<&'a Annotations>);

impl<'a> Sheet<'a> {
    pub fn create(path: &Path, _attributes: &Map<String, Value>, _annotations: &'a Annotations) -> Result<Self> {
        refuse(path)
    }

    pub fn begin<T: Real>(&mut self, _matrix: &Matrix) -> Result<()> {
        match self.0 {}
    }

    pub fn push<T: Real>(&mut self, _values: &[T]) -> Result<()> {
        match self.0 {}
    }

    pub fn end(&mut self) -> Result<()> {
        match self.0 {}
    }

    pub fn finish(self) -> Result<Part> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub struct Container(Infallible);

impl Container {
    pub fn open(path: &Path) -> Result<(Self, Map<String, Value>)> {
        refuse(path)
    }

    pub fn is_anndata(&self) -> bool {
        match self.0 {}
    }

    pub fn holds_only_factors(&self) -> bool {
        match self.0 {}
    }

    pub fn has(&self, _place: &str) -> bool {
        match self.0 {}
    }

    pub fn shape(&self, _name: &str, _place: &str) -> Result<(usize, usize)> {
        match self.0 {}
    }

    pub fn element_type(&self, _place: &str) -> Result<String> {
        match self.0 {}
    }

    pub fn read<T: Real>(
        &self,
        _matrix: (&str, &str),
        _wanted: Range<usize>,
        _out: ArrayViewMut2<'_, T>,
    ) -> Result<()> {
        match self.0 {}
    }
}
