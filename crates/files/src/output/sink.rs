//! One file of named matrices, in any of the formats for factors.

use std::path::Path;

use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_base::unfinished::Access;
use fednmf_linalg::Real;

use super::npz;
use crate::formats::hdf5;
use crate::output::anndata::Annotations;
use crate::output::hdf5::{Rows, Sheet, Writer};
use crate::output::part::Part;
use crate::output::plan::Matrix;

/// The formats, by file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Hdf5,
    AnnData,
    Npz,
}

impl Format {
    /// The format for a file extension; HDF5 without one.
    ///
    /// # Errors
    /// If the extension is that of another format, whose programs could not read the file.
    pub fn of(path: &Path) -> Result<Format> {
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
        let format = match ending.as_str() {
            "npz" => return Ok(Format::Npz),
            "h5ad" => Format::AnnData,
            "h5" | "hdf5" | "" => Format::Hdf5,
            _ => {
                return Err(Error::input(format!(
                    "{}: factors are written as HDF5 (.h5), AnnData (.h5ad) or for NumPy (.npz); end the name in one of these",
                    path.display()
                )));
            }
        };
        hdf5::refusal(path).map_or(Ok(format), Err)
    }

    /// The format with the data that it needs.
    pub(super) fn encoding(self, annotations: &Annotations) -> Encoding<'_> {
        match self {
            Format::Hdf5 => Encoding::Hdf5,
            Format::AnnData => Encoding::AnnData(annotations),
            Format::Npz => Encoding::Npz,
        }
    }
}

/// A format, and the data that it needs in addition to matrices and attributes.
#[derive(Debug, Clone, Copy)]
pub enum Encoding<'a> {
    Hdf5,
    AnnData(&'a Annotations),
    Npz,
}

/// A file being written: one matrix after the other, each row by row. If dropped before [`Sink::finish`], it leaves nothing.
pub enum Sink<'a> {
    // The dataset must be dropped before its file.
    Hdf5(Option<Rows>, Writer),
    AnnData(Sheet<'a>),
    Npz(Box<npz::Archive>),
}

impl<'a> Sink<'a> {
    /// Creates the file that will be `path`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(encoding: Encoding<'a>, path: &Path, attributes: Map<String, Value>, access: Access) -> Result<Self> {
        Ok(match encoding {
            Encoding::Hdf5 => {
                let writer = Writer::create(path, access)?;
                writer.attributes(&attributes)?;
                Sink::Hdf5(None, writer)
            }
            Encoding::AnnData(annotations) => Sink::AnnData(Sheet::create(path, &attributes, annotations)?),
            Encoding::Npz => Sink::Npz(Box::new(npz::Archive::create(path, attributes, access)?)),
        })
    }

    /// Begins a matrix.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin<T: Real>(&mut self, matrix: &Matrix) -> Result<()> {
        match self {
            Sink::Hdf5(rows, writer) => *rows = Some(writer.matrix::<T>(matrix)?),
            Sink::AnnData(sheet) => sheet.begin::<T>(matrix)?,
            Sink::Npz(archive) => archive.begin::<T>(matrix)?,
        }
        Ok(())
    }

    /// Appends rows to the matrix, given row by row.
    ///
    /// # Errors
    /// If the file cannot be written.
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
    /// If the file cannot be written.
    pub fn end(&mut self) -> Result<()> {
        match self {
            Sink::Hdf5(rows, _) => rows.take().map_or(Ok(()), Rows::end),
            Sink::AnnData(sheet) => sheet.end(),
            Sink::Npz(_) => Ok(()),
        }
    }

    /// Closes the file and syncs it to disk.
    ///
    /// # Errors
    /// If the file is incomplete.
    pub fn finish(self) -> Result<Part> {
        match self {
            Sink::Hdf5(_, writer) => writer.finish(),
            Sink::AnnData(sheet) => sheet.finish(),
            Sink::Npz(archive) => archive.finish(),
        }
    }
}
