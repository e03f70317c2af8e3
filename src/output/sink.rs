//! One file of named matrices, in any of the formats that factors are kept in.

use std::path::Path;

use serde_json::{Map, Value};

use super::anndata;
use super::npz;
use crate::error::{Error, Result};
use crate::linalg::Real;
use crate::output::anndata::Cells;
use crate::output::h5::{Part, Rows, Writer};
use crate::output::plan::Matrix;

/// The formats, by the ending of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Hdf5,
    AnnData,
    Npz,
}

/// Endings of formats that no factors are written in.
const OTHERS: [&str; 11] = ["npy", "mtx", "csv", "tsv", "txt", "gz", "mat", "rds", "json", "jsonl", "html"];

impl Kind {
    /// What a name's ending stands for; HDF5 where it stands for nothing.
    ///
    /// # Errors
    /// For the ending of another format.
    pub fn of(path: &Path) -> Result<Kind> {
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        match ending.as_str() {
            "h5ad" => Ok(Kind::AnnData),
            "npz" => Ok(Kind::Npz),
            other if OTHERS.contains(&other) => Err(Error::input(format!(
                "{}: factors are written as HDF5 (.h5), AnnData (.h5ad) or for NumPy (.npz); end the name in one of these",
                path.display()
            ))),
            _ => Ok(Kind::Hdf5),
        }
    }

    /// With what the format needs.
    pub(super) fn form(self, cells: &Cells) -> Form<'_> {
        match self {
            Kind::Hdf5 => Form::Hdf5,
            Kind::AnnData => Form::AnnData(cells),
            Kind::Npz => Form::Npz,
        }
    }
}

/// A format, and what it needs beside matrices and attributes.
#[derive(Debug, Clone, Copy)]
pub enum Form<'a> {
    Hdf5,
    AnnData(&'a Cells),
    Npz,
}

/// A file being written: its matrices one after the other, each by rows. Dropped before [`Sink::finish`], it leaves
/// nothing.
pub enum Sink<'a> {
    // What writes goes before what it writes to.
    Hdf5(Option<Rows>, Writer),
    AnnData(anndata::Sheet<'a>),
    Npz(Box<npz::Archive>),
}

impl<'a> Sink<'a> {
    /// Begins the file that will be `path`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(form: Form<'a>, path: &Path, attributes: Map<String, Value>) -> Result<Self> {
        Ok(match form {
            Form::Hdf5 => {
                let writer = Writer::create(path)?;
                writer.attributes(&attributes)?;
                Sink::Hdf5(None, writer)
            }
            Form::AnnData(cells) => Sink::AnnData(anndata::Sheet::create(path, &attributes, cells)?),
            Form::Npz => Sink::Npz(Box::new(npz::Archive::create(path, attributes)?)),
        })
    }

    /// Begins a matrix.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin<T: Real>(&mut self, matrix: &Matrix) -> Result<()> {
        match self {
            Sink::Hdf5(rows, writer) => *rows = Some(writer.matrix::<T>(matrix)?),
            Sink::AnnData(sheet) => sheet.begin::<T>(matrix)?,
            Sink::Npz(archive) => archive.begin::<T>(matrix)?,
        }
        Ok(())
    }

    /// Adds the next rows of the matrix, row after row.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn push<T: Real>(&mut self, values: &[T]) -> Result<()> {
        match self {
            Sink::Hdf5(rows, _) => rows.as_mut().map_or(Ok(()), |rows| rows.push(values)),
            Sink::AnnData(sheet) => sheet.push(values),
            Sink::Npz(archive) => archive.push(values),
        }
    }

    /// Ends the matrix.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn end(&mut self) -> Result<()> {
        match self {
            Sink::Hdf5(rows, _) => rows.take().map_or(Ok(()), Rows::end),
            Sink::AnnData(sheet) => sheet.end(),
            Sink::Npz(_) => Ok(()),
        }
    }

    /// Closes the file and brings it to the disk.
    ///
    /// # Errors
    /// When that fails: it was not written whole.
    pub fn finish(self) -> Result<Part> {
        match self {
            Sink::Hdf5(_, writer) => writer.finish(),
            Sink::AnnData(sheet) => sheet.finish(),
            Sink::Npz(archive) => archive.finish(),
        }
    }
}
