//! An HDF5 file of named matrices, open for reading.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5::types::TypeDescriptor;
use ndarray::{ArrayViewMut2, s};
use serde_json::{Map, Value};

use fednmf_base::error::{Error, Result};
use fednmf_linalg::Real;

use super::sheet;
use super::values::read_all;
use crate::formats::hdf5::{check_own, real};
use crate::output::anndata;
use crate::output::checksum;
use crate::output::checksum::Checksum;
use crate::output::plan::{block_rows, blocks};
use crate::output::stored::{TEXTS, damaged};

/// The open file.
#[derive(Debug)]
pub struct Container {
    file: hdf5::File,
    path: PathBuf,
    /// Whether the factors are at their AnnData paths.
    anndata: bool,
}

impl Container {
    /// Opens a file; also returns its attributes.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn open(path: &Path) -> Result<(Self, Map<String, Value>)> {
        let file = hdf5::File::open(path)
            .map_err(|e| damaged(path, format!("it is no HDF5 file, or one that was cut short: {e}")))?;
        let scalars = read_all(&file).map_err(|e| damaged(path, e))?;
        let mut attributes: Map<String, Value> =
            scalars.into_iter().map(|(name, value)| (name, value.to_json())).collect();
        let others = file.attr_names().map_err(|e| damaged(path, e))?;
        for name in TEXTS {
            if !attributes.contains_key(name) && (others.iter().any(|other| other == name) || file.link_exists(name)) {
                // An array instead of a text: there, but not read.
                attributes.insert(name.into(), Value::Null);
            }
        }
        let anndata = anndata::is_one(&attributes);
        if anndata {
            attributes = sheet::about(&file).map_err(|e| damaged(path, e))?;
        }
        Ok((Container { file, path: path.to_path_buf(), anndata }, attributes))
    }

    /// Whether the factors are at their AnnData paths.
    pub fn is_anndata(&self) -> bool {
        self.anndata
    }

    /// Whether an AnnData file contains only factors, provenance and names.
    pub fn holds_only_factors(&self) -> bool {
        sheet::holds_only_factors(&self.file)
    }

    /// Whether there is something at `place`.
    pub fn has(&self, place: &str) -> bool {
        // HDF5 prints its own error for a link in a missing group.
        let group = place.split('/').next().unwrap_or(place);
        self.file.link_exists(group) && self.file.link_exists(place)
    }

    /// Rows and columns of the matrix `name` at `place`, which exists.
    ///
    /// # Errors
    /// If it is not a matrix.
    pub fn shape(&self, name: &str, place: &str) -> Result<(usize, usize)> {
        match self.dataset(place)?.shape()[..] {
            [rows, cols] => Ok((rows, cols)),
            ref other => Err(Error::input(format!(
                "{}: {name} has {} dimensions where a matrix has 2",
                self.path.display(),
                other.len()
            ))),
        }
    }

    /// The element type of the matrix at `place`: `f32`, `f64`, or HDF5's name for another.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn element_type(&self, place: &str) -> Result<String> {
        let found = self.dataset(place)?.dtype().and_then(|kind| kind.to_descriptor());
        match found.map_err(|e| damaged(&self.path, e))? {
            TypeDescriptor::Float(size) => Ok(format!("f{}", 8 * size as usize)),
            other => Ok(other.to_string()),
        }
    }

    /// The dataset at `place`, which has its contents in this file.
    fn dataset(&self, place: &str) -> Result<hdf5::Dataset> {
        let found = self.file.dataset(place).map_err(|e| damaged(&self.path, e))?;
        check_own(&self.path.display().to_string(), place, &self.file, &found)?;
        Ok(found)
    }

    /// Fills `out` with the rows `wanted` of the matrix `name` at `place`, whose element type is T.
    ///
    /// # Errors
    /// If they cannot be read, or do not match their checksums.
    pub fn read<T: Real>(
        &self,
        (name, place): (&str, &str),
        wanted: Range<usize>,
        mut out: ArrayViewMut2<'_, T>,
    ) -> Result<()> {
        let path = &self.path;
        let (rows, cols) = self.shape(name, place)?;
        let dataset = self.dataset(place)?;
        let seals = Sums::read(&dataset).map_err(|e| damaged(path, e))?;
        let block = match &seals {
            Some(seals) if seals.block == 0 || seals.sums.len() != rows.div_ceil(seals.block) => {
                return Err(damaged(path, format!("the checksums of {name} are not as they should be")));
            }
            Some(seals) => seals.block,
            None => block_rows(rows, cols),
        };
        for part in blocks(wanted.clone(), block) {
            // A checksum covers a whole block.
            let whole = part.start / block * block..(part.start / block * block).saturating_add(block).min(rows);
            let read = if seals.is_some() { whole } else { part.clone() };
            let values = real::read::<T, _, _>(&dataset, s![read.clone(), ..]).map_err(|e| damaged(path, e))?;
            if let (Some(seals), Some(flat)) = (&seals, values.as_slice()) {
                let mut seal = Checksum::new(block.saturating_mul(cols));
                seal.add(flat);
                if seal.sums().first() != seals.sums.get(part.start / block) {
                    return Err(damaged(
                        path,
                        format!("rows {}..{} of {name} fail their checksum", read.start, read.end),
                    ));
                }
            }
            out.slice_mut(s![part.start - wanted.start..part.end - wanted.start, ..])
                .assign(&values.slice(s![part.start - read.start..part.end - read.start, ..]));
        }
        Ok(())
    }
}

/// The checksums of a matrix.
struct Sums {
    block: usize,
    sums: Vec<u32>,
}

impl Sums {
    /// Reads the checksums of a dataset; `None` if it has none.
    fn read(dataset: &hdf5::Dataset) -> std::result::Result<Option<Sums>, hdf5::Error> {
        if !dataset.attr_names()?.iter().any(|name| name == checksum::SUMS) {
            return Ok(None);
        }
        let block: u64 = dataset.attr(checksum::BLOCK)?.read_scalar()?;
        let sums = dataset.attr(checksum::SUMS)?.read_raw()?;
        Ok(Some(Sums { block: usize::try_from(block).unwrap_or(0), sums }))
    }
}
