//! Reads the rows of a file as blocks, in any order and repeatedly.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use ndarray::Array2;

use fednmf_base::error::{Error, Result};
use fednmf_data::assemble::{Combine, LocalBlock, sort_rows};
use fednmf_data::panels::{Counts, Filled, OpenRows, RowSource, empty};
use fednmf_data::policy::{EntryPolicy, position, rounded};
use fednmf_linalg::{CsrMatrix, Real, large_pages};

use crate::features::Selection;
use crate::formats::compressed::{CompressedReader, Step};
use crate::formats::file::{LineReader, LineShape, MatrixFile};
use crate::formats::io;
use crate::formats::reader::DenseReader;

/// The preprocessing of each entry after it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Preparation {
    /// Divisor of the entry.
    pub divisor: Option<f64>,
    /// Threshold: larger or equal entries become 1, others 0.
    pub threshold: Option<f64>,
}

impl Preparation {
    #[inline]
    fn apply<T: Real>(self, x: T) -> T {
        let x = self.divisor.map_or(x, |divisor| rounded(x.as_f64() / divisor));
        match self.threshold {
            Some(threshold) if x.as_f64() >= threshold => T::one(),
            Some(_) => T::zero(),
            None => x,
        }
    }
}

/// A file whose rows are read; not open yet.
#[derive(Debug, Clone)]
pub struct Source {
    file: MatrixFile,
    /// Whether its columns are the rows of the matrix.
    transpose: bool,
    policy: EntryPolicy,
    preparation: Preparation,
    /// The state of the file when it was first opened, which all readers must find.
    first: Arc<OnceLock<FileState>>,
}

impl Source {
    /// The rows of the matrix in `file`, or of its transpose if `transpose`; [`MatrixFile::check_lines`] must accept it.
    pub fn new(file: MatrixFile, transpose: bool, policy: EntryPolicy) -> Self {
        Source { file, transpose, policy, preparation: Preparation::default(), first: Arc::default() }
    }

    /// The same rows with this preprocessing.
    #[must_use]
    pub fn prepared(&self, preparation: Preparation) -> Self {
        Source { preparation, ..self.clone() }
    }

    /// The storage of its rows.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn shape(&self) -> Result<LineShape> {
        self.file.line_shape()
    }

    /// The number of entries of each row of a sparse matrix; `None` if the matrix is dense.
    ///
    /// # Errors
    /// If the file cannot be opened, or is damaged.
    pub fn counts(&self) -> Result<Option<Vec<u64>>> {
        self.file.line_counts()
    }

    pub fn cols(&self) -> usize {
        if self.transpose { self.file.rows } else { self.file.cols }
    }

    /// Reads rows of a sparse matrix once; `progress` is called with the fraction that is done.
    ///
    /// # Errors
    /// As [`OpenRows::fill`].
    pub fn read<T: Real>(&self, rows: &Range<usize>, progress: &mut dyn FnMut(f64)) -> Result<(CsrMatrix<T>, Counts)> {
        let (file, state) = self.begin()?;
        let LineReader::Sparse(mut reader) = self.file.line_reader::<T>(self.policy)? else {
            return Err(Error::failed("rows of a dense matrix are read otherwise"));
        };
        let read = sparse(&mut reader, (self, self.places().as_deref()), rows, empty(self.cols()), progress);
        self.check(FileState::of(&file).is_ok_and(|found| found == state))?;
        read
    }

    /// Opens the file to see whether it changes.
    fn begin(&self) -> Result<(File, FileState)> {
        let path = self.file.path();
        let file = io::open(path)?;
        let state = FileState::of(&file).map_err(|e| io::io_error(path, &e))?;
        self.check(*self.first.get_or_init(|| state) == state)?;
        Ok((file, state))
    }

    /// The column of the matrix for each one of the file, if only some are used.
    fn places(&self) -> Option<Vec<Option<usize>>> {
        self.file.selection.as_ref().map(Selection::places)
    }
}

impl<T: Real> RowSource<T> for Source {
    fn cols(&self) -> usize {
        self.cols()
    }

    fn is_sparse(&self) -> bool {
        self.file.sparse()
    }

    fn open(&self) -> Result<Box<dyn OpenRows<T> + '_>> {
        let (file, state) = self.begin()?;
        Ok(Box::new(OpenSource {
            source: self,
            file,
            state,
            together: self.shape()?.together,
            places: self.places(),
            lines: self.file.line_reader(self.policy)?,
        }))
    }
}

/// An open file whose rows are read. If another file replaces it under its name, this one is still read.
pub struct OpenSource<'a, T> {
    source: &'a Source,
    file: File,
    state: FileState,
    /// Rows that are unpacked together.
    together: usize,
    places: Option<Vec<Option<usize>>>,
    lines: LineReader<'a, T>,
}

impl<T: Real> OpenRows<T> for OpenSource<'_, T> {
    fn fill(&mut self, rows: &Range<usize>, memory: LocalBlock<T>) -> Result<Filled<T>> {
        let source = self.source;
        let filled = match &mut self.lines {
            LineReader::Dense(reader) => dense(reader.as_mut(), source, rows, self.together, memory),
            LineReader::Sparse(reader) => {
                let memory = if let LocalBlock::Sparse(x) = memory { x } else { empty(source.cols()) };
                let read = sparse(reader, (source, self.places.as_deref()), rows, memory, &mut |_| ());
                read.map(|(panel, counts)| Filled { panel: LocalBlock::Sparse(panel), counts })
            }
        };
        // If the file has changed, errors in its content are not meaningful.
        source.check(FileState::of(&self.file).is_ok_and(|found| found == self.state))?;
        filled
    }
}

fn dense<T: Real>(
    reader: &mut dyn DenseReader<T>,
    source: &Source,
    rows: &Range<usize>,
    together: usize,
    memory: LocalBlock<T>,
) -> Result<Filled<T>> {
    let cols = source.cols();
    let mut entries = match memory {
        LocalBlock::Dense(x) => x.into_owned().into_raw_vec_and_offset().0,
        LocalBlock::Sparse(_) => Vec::new(),
    };
    let length = rows.len() * cols;
    entries.reserve_exact(length.saturating_sub(entries.len()));
    entries.resize(length, T::zero());
    let mut from = rows.start;
    while from < rows.end && cols > 0 {
        // Rows that are unpacked together are read together; otherwise a few rows, which stay in cache for the check.
        let step =
            if together > 1 { together - from % together } else { (READ_AT_ONCE / (cols * size_of::<T>())).max(1) };
        let lines = from..rows.end.min(from + step);
        let out = &mut entries[(from - rows.start) * cols..(lines.end - rows.start) * cols];
        from = lines.end;
        reader.fill(lines, 0..cols, out)?;
        if source.preparation != Preparation::default() {
            out.iter_mut().for_each(|x| *x = source.preparation.apply(*x));
        }
    }
    let panel = Array2::from_shape_vec((rows.len(), cols), entries)
        .map_err(|e| Error::failed(format!("a panel of the input: {e}; this is a bug, please report it")))?;
    Ok(Filled { panel: LocalBlock::Dense(panel.into()), counts: Counts::default() })
}

/// Bytes of entries that are decoded at once.
const READ_AT_ONCE: usize = 256 << 10;

/// Reads rows of a matrix that is stored by rows, into the memory of another one.
fn sparse<T: Real>(
    reader: &mut CompressedReader<'_>,
    (source, places): (&Source, Option<&[Option<usize>]>),
    rows: &Range<usize>,
    memory: CsrMatrix<T>,
    progress: &mut dyn FnMut(f64),
) -> Result<(CsrMatrix<T>, Counts)> {
    let (mut starts, cols, values) = memory.into_raw_storage();
    let (mut cols, mut values) = (cols.into_vec(), values.into_vec());
    starts.clear();
    cols.clear();
    values.clear();
    let mut entries = reader.entries_of(rows.clone());
    let most = (entries.end - entries.start) as usize;
    starts.reserve_exact(rows.len() + 1);
    cols.reserve_exact(most);
    values.reserve_exact(most);
    large_pages(cols.spare_capacity_mut());
    large_pages(values.spare_capacity_mut());
    let Preparation { threshold, .. } = source.preparation;
    let (mut counts, mut step) = (Counts::default(), Step::default());
    while !entries.is_empty() {
        reader.step(&mut entries, &mut step)?;
        reader.lines(&step, |i, line| {
            // All rows up to this one begin at or before its entries.
            starts.resize(i - rows.start + 1, cols.len());
            for (&j, &value) in step.indices[line.clone()].iter().zip(&step.values[line]) {
                let j = j as usize;
                let Some(j) = places.map_or(Some(j), |places| places[j]) else { continue };
                if value == 0.0 {
                    counts.stored_zeros += 1;
                    continue;
                }
                let place = || if source.transpose { position(j, i) } else { position(i, j) };
                let checked = source.policy.check::<T>(value);
                let value = checked.map_err(|why| format!("the entry in {} {why}", place()))?;
                let value = source.preparation.apply(value);
                if value != T::zero() || threshold.is_none() {
                    cols.push(j as i32);
                    values.push(value);
                }
            }
            Ok(())
        })?;
        progress(1.0 - (entries.end - entries.start) as f64 / most as f64);
    }
    starts.resize(rows.len() + 1, cols.len());
    counts.duplicates = sort_rows(&mut starts, &mut cols, &mut values, Combine::Sum);
    let shape = (rows.len(), source.cols());
    let matrix = CsrMatrix::try_new(shape, starts, cols.into(), values.into())
        .map_err(|(_, _, _, e)| Error::failed(format!("sparse rows of the input: {e}")))?;
    Ok((matrix, counts))
}

/// What changes with a file.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FileState {
    length: u64,
    modified: Option<SystemTime>,
}

impl FileState {
    fn of(file: &File) -> std::io::Result<Self> {
        let found = file.metadata()?;
        Ok(FileState { length: found.len(), modified: found.modified().ok() })
    }
}

impl Source {
    /// Refuses a file that has changed since it was first opened.
    fn check(&self, is_same: bool) -> Result<()> {
        if is_same {
            return Ok(());
        }
        Err(Error::failed(format!(
            "{}: was changed while the run read its rows, so the result would be of no matrix; start again, and leave \
             the file alone",
            self.file.path()
        )))
    }
}
