//! A matrix file of any format: the list of formats, and the readers of a part of such a file.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};
use fednmf_data::Labels;
use fednmf_data::header::least_bytes;
use fednmf_data::policy::EntryPolicy;
use fednmf_data::values::Values;
use fednmf_linalg::{Real, even_part};

use crate::features::Selection;
use crate::formats::compressed::{Compressed, CompressedReader, Step};
use crate::formats::fimi::{Items, Transactions};
use crate::formats::hdf5::{CHUNK_CACHE, Chunks, DatasetReader};
use crate::formats::header::Header;
use crate::formats::io::InputFile;
use crate::formats::limits::check_shape;
use crate::formats::mtx::{ArrayReader, Market};
use crate::formats::parquet::{Parquet, ParquetReader};
use crate::formats::raw::{RawArray, RawReader};
use crate::formats::reader::{BlockResult, DenseReader, EntrySink, SelectedReader};
use crate::formats::refusal::Refusal;
use crate::formats::table::{Table, TableReader};
use crate::formats::text::{TextBlocks, error_at};
use crate::formats::triples::{Triples, TriplesReader};
use crate::formats::{fields, fimi, hdf5, mtx, npz, triples};
use crate::spec::InputSpec;

/// Everything known about a file before its entries are read. One rank determines it and sends it to the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatrixFile {
    pub file: InputFile,
    /// Shape of the matrix in the file; for formats without a header, set by [`MatrixFile::set_counts`].
    pub rows: usize,
    pub cols: usize,
    /// Number of stored entries, if known.
    pub stored: Option<u64>,
    /// Description for the user.
    pub format: String,
    /// Height and width, if each row is an image: an array of three dimensions.
    pub image: Option<(usize, usize)>,
    /// Element type of the stored entries; for a text table, [`Values::Double`] until its values have been examined.
    pub values: Values,
    encoding: Encoding,
    /// The rows or columns that are used, of which alone `rows` and `cols` tell.
    pub selection: Option<Selection>,
    /// A note on them.
    selection_note: Option<String>,
    /// A warning about names of rows and columns that cannot be read.
    pub names_warning: Option<String>,
    /// The counts of all parts of a text, if it had to be counted.
    counts: Vec<PartCount>,
}

/// The encoding of the entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Encoding {
    Raw(RawArray),
    Market(Market),
    Table(Table),
    Triples(Triples),
    Transactions(Transactions),
    Npz(Compressed, npz::Arrays),
    /// A sparse HDF5 group and its name.
    Hdf5Group(Compressed, String),
    /// The name of a dense HDF5 dataset, and its chunks.
    Hdf5Dataset(String, Option<Chunks>),
    Parquet(Parquet),
}

/// The content of one part of a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PartCount {
    /// Lines of a MatrixMarket array.
    Lines(u64),
    /// Rows of a table, and the type of its numbers if it was requested.
    Rows(u64, Option<Values>),
    Transactions(Transactions),
}

impl PartCount {
    fn lines(&self) -> u64 {
        match self {
            PartCount::Lines(lines) | PartCount::Rows(lines, _) => *lines,
            PartCount::Transactions(counts) => counts.rows,
        }
    }
}

impl MatrixFile {
    /// A file whose header was read.
    pub fn new(
        file: InputFile,
        (rows, cols): (usize, usize),
        stored: Option<u64>,
        format: String,
        encoding: Encoding,
    ) -> Self {
        let (image, values) = (None, Values::Double);
        MatrixFile {
            file,
            rows,
            cols,
            stored,
            format,
            image,
            values,
            encoding,
            selection: None,
            selection_note: None,
            names_warning: None,
            counts: Vec::new(),
        }
    }

    /// The path for messages.
    pub fn path(&self) -> &str {
        &self.file.path
    }

    /// The header of a text table; `None` for other formats.
    fn header(&self) -> Option<&Header> {
        match &self.encoding {
            Encoding::Table(table) => Some(&table.header),
            Encoding::Triples(triples) => Some(&triples.header),
            _ => None,
        }
    }

    /// Whether a text table has a header and an index column; `None` for other formats.
    pub fn labels(&self) -> Option<Labels> {
        self.header().map(|header| header.labels)
    }

    /// A note for the user on inferred properties of a table.
    pub fn note(&self) -> Option<&str> {
        let inferred = match &self.encoding {
            Encoding::Parquet(parquet) => parquet.note.as_deref(),
            _ => self.header().and_then(|header| header.note.as_deref()),
        };
        inferred.or(self.selection_note.as_deref())
    }

    /// Restricts the file to the chosen features of single-cell data and the columns that all parties have.
    ///
    /// # Errors
    /// If the choice does not fit the file, or its entries are stored in an order in which they cannot be selected.
    pub fn select(&mut self, spec: &InputSpec, path: &str, dataset: Option<&str>) -> Result<()> {
        self.selection_note = spec.features.note(path, dataset);
        self.selection = spec.selection(path, dataset)?;
        if let Some(Selection { of_rows, kept, all }) = &self.selection {
            let (length, what) = if *of_rows { (self.rows, "rows") } else { (self.cols, "columns") };
            if *all != length {
                return Err(self.file.error(format!(
                    "has marks, types or names of {all} features, but the matrix has {length} {what}; they do not \
                     belong together, or one of them is incomplete"
                )));
            }
            if spec.common.is_some() {
                self.selection_note =
                    Some(format!("{} of {all} columns are in the files of all parties and are used", kept.len()));
            }
            if let (Encoding::Parquet(parquet), false) = (&mut self.encoding, *of_rows) {
                parquet.columns = kept.iter().map(|&at| parquet.columns[at]).collect();
                self.cols = kept.len();
                self.selection = None;
                return Ok(());
            }
            if !self.has_positions() && *of_rows != self.by_columns() {
                return Err(self.file.error(
                    "is a dense matrix stored feature by feature, from which features cannot be selected; store it sample by \
                     sample, or as a sparse matrix",
                ));
            }
            *(if *of_rows { &mut self.rows } else { &mut self.cols }) = kept.len();
        }
        Ok(())
    }

    /// Whether its blocks are stored sparse.
    pub fn sparse(&self) -> bool {
        match &self.encoding {
            Encoding::Raw(_) | Encoding::Table(_) | Encoding::Hdf5Dataset(..) | Encoding::Parquet(_) => false,
            Encoding::Market(market) => market.coordinate,
            Encoding::Triples(_) | Encoding::Transactions(_) | Encoding::Npz(..) | Encoding::Hdf5Group(..) => true,
        }
    }

    /// Lower bound of the bytes of its matrix with entries of `word` bytes.
    pub fn least_bytes(&self, word: usize) -> f64 {
        least_bytes((self.rows, self.cols), self.sparse(), self.stored, word)
    }

    /// Whether its entries are read with their positions, by [`MatrixFile::entries`]; otherwise they are read by
    /// [`MatrixFile::dense_reader`].
    pub fn has_positions(&self) -> bool {
        self.sparse() || matches!(&self.encoding, Encoding::Market(market) if market.symmetric)
    }

    /// Whether several ranks can each read a part.
    pub fn divisible(&self) -> bool {
        let whole = match &self.encoding {
            Encoding::Triples(_) => true,
            Encoding::Npz(_, arrays) => !arrays.divisible(),
            _ => self.file.gz,
        };
        !whole
    }

    /// Whether the parts of the text must be counted before it is known which entries they contain.
    pub fn needs_counts(&self) -> bool {
        match &self.encoding {
            Encoding::Market(market) => !market.coordinate,
            Encoding::Table(_) | Encoding::Transactions(_) => true,
            _ => false,
        }
    }

    /// Whether it is stored column by column.
    pub fn by_columns(&self) -> bool {
        match &self.encoding {
            Encoding::Raw(raw) => raw.by_columns,
            Encoding::Market(_) | Encoding::Parquet(_) => true,
            _ => false,
        }
    }

    /// Number of entries that are best read together: those of a row of chunks of an HDF5 dataset, which separate reads
    /// might unpack several times.
    pub fn together(&self) -> usize {
        match self.encoding {
            Encoding::Hdf5Dataset(_, Some(Chunks { rows, rows_apart: false, .. })) => rows.min(self.rows) * self.cols,
            _ => 1,
        }
    }

    /// One part of the text.
    fn blocks(&self, part: usize, parts: usize) -> Result<TextBlocks> {
        let start = match &self.encoding {
            Encoding::Market(market) => market.start,
            Encoding::Table(table) => table.header.start,
            _ => 0,
        };
        TextBlocks::open(&self.file, start, part, parts)
    }

    /// Counts the lines or entries of one part of a text; with `values`, also determines the element type of a table.
    ///
    /// # Errors
    /// If it cannot be read, or is not valid text of its format.
    pub fn count(&self, part: usize, parts: usize, values: bool) -> Result<PartCount> {
        let mut blocks = self.blocks(part, parts)?;
        let (mut lines, mut transactions) = (0, Transactions::EMPTY);
        let mut found = values.then_some(Values::Whole);
        while let Some((text, offset)) = blocks.next_block()? {
            if matches!(self.encoding, Encoding::Transactions(_)) {
                let more = Transactions::count(text).map_err(|e| self.text_error(offset, e))?;
                transactions = transactions.merge(more);
            } else {
                lines += self.count_lines(text);
            }
            if let (Encoding::Table(table), Some(Values::Whole)) = (&self.encoding, found) {
                found = Some(table.values(text));
            }
        }
        Ok(match self.encoding {
            Encoding::Table(_) => PartCount::Rows(lines, found),
            Encoding::Transactions(_) => PartCount::Transactions(transactions),
            _ => PartCount::Lines(lines),
        })
    }

    /// Counts the lines of a block of text that hold entries.
    fn count_lines(&self, text: &[u8]) -> u64 {
        match &self.encoding {
            Encoding::Table(table) => fields::count_rows(text, table.header.separator),
            Encoding::Transactions(_) => fimi::count_lines(text),
            Encoding::Market(market) if !market.coordinate => mtx::count_lines(text),
            _ => 0,
        }
    }

    /// Refuses a text in which a blank line may be a missing entry.
    ///
    /// # Errors
    /// If there is such a line.
    pub fn check_blank_lines(&self) -> Result<()> {
        if let Encoding::Table(table) = &self.encoding { table.check_blank_lines(&self.file) } else { Ok(()) }
    }

    /// Completes the header from the counts of all parts.
    ///
    /// # Errors
    /// If the counts differ from the header, or there are no entries.
    pub fn set_counts(&mut self, counts: Vec<PartCount>) -> Result<()> {
        let lines = counts.iter().map(PartCount::lines).sum::<u64>();
        match &mut self.encoding {
            Encoding::Market(market) if lines != market.entries => {
                let promised = market.entries;
                return Err(self.count_error(promised, lines));
            }
            Encoding::Table(table) => {
                self.rows = lines as usize;
                self.stored = Some(lines * table.cols as u64);
                let known = |count: &PartCount| if let PartCount::Rows(_, values) = count { *values } else { None };
                let all: Option<Vec<Values>> = counts.iter().map(known).collect();
                self.values = all.and_then(|all| all.into_iter().max()).unwrap_or(Values::Double);
            }
            Encoding::Transactions(all) => {
                for count in &counts {
                    if let PartCount::Transactions(part) = count {
                        *all = all.merge(*part);
                    }
                }
                if all.ones == 0 {
                    return Err(self.file.error("holds no transaction with an item"));
                }
                self.rows = all.rows as usize;
                self.cols = usize::try_from(all.cols()).unwrap_or(usize::MAX);
                self.stored = Some(all.ones);
                check_shape(self.rows, self.cols, self.stored).map_err(|what| self.file.error(what))?;
            }
            _ => {}
        }
        self.counts = counts;
        Ok(())
    }

    /// The range of the items, if the file contains transactions.
    pub fn items(&self) -> Option<Items> {
        if let Encoding::Transactions(all) = &self.encoding { Some(all.items()) } else { None }
    }

    /// Extends the columns of transactions to a range of items that includes their own.
    pub fn widen(&mut self, items: Items) {
        if let Encoding::Transactions(all) = &mut self.encoding {
            *all = all.within(items);
            self.cols = usize::try_from(all.cols()).unwrap_or(usize::MAX);
        }
    }

    fn count_error(&self, promised: u64, found: u64) -> Error {
        let (more, why) = match found < promised {
            true => ("more", "truncated?"),
            false => ("fewer", "a wrong header, or lines of another file?"),
        };
        self.file.error(Refusal::new(
            format!("the header promises {promised} entries, the file holds {found} ({why})"),
            format!("the header promises {more} entries than the file holds ({why})"),
        ))
    }

    /// Lines before a part.
    fn lines_before(&self, part: usize) -> u64 {
        self.counts.iter().take(part).map(PartCount::lines).sum()
    }

    /// The range of entries, in storage order, that each of `parts` readers of a dense file reads.
    pub fn shares(&self, parts: usize) -> Vec<Range<usize>> {
        let (lines, width) = if self.by_columns() { (self.cols, self.rows) } else { (self.rows, self.cols) };
        if self.counts.len() == parts {
            // A line of a table is a row; a line of a MatrixMarket array is an entry.
            let per_line = if matches!(self.encoding, Encoding::Table(_)) { width } else { 1 };
            let border = |part: usize| self.lines_before(part) as usize * per_line;
            return (0..parts).map(|part| border(part)..border(part + 1)).collect();
        }
        let scale = |lines: Range<usize>| lines.start * width..lines.end * width;
        (0..parts).map(|i| scale(even_part(lines, parts, i))).collect()
    }

    /// A reader of part `part` of `parts` of a dense file, which holds the entries `share`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn dense_reader<T: Real>(
        &self,
        part: usize,
        parts: usize,
        share: Range<usize>,
        policy: EntryPolicy,
    ) -> Result<Box<dyn DenseReader<T> + '_>> {
        let reader: Box<dyn DenseReader<T> + '_> = match &self.encoding {
            Encoding::Raw(raw) => {
                let (lines, width) = if raw.by_columns { (self.cols, self.rows) } else { (self.rows, self.cols) };
                let width = self.selection.as_ref().map_or(width, |selection| selection.all);
                Box::new(RawReader::open(&self.file, raw, (lines, width), policy)?)
            }
            Encoding::Table(table) => {
                let blocks = self.blocks(part, parts)?;
                Box::new(TableReader::new(&self.file, table, blocks, share.start / self.cols, policy))
            }
            Encoding::Hdf5Dataset(name, _) => {
                // Memory for two rows of chunks: a read may span two. Contiguous rows need none: the library then reads
                // them directly from the file.
                let cache = CHUNK_CACHE.min(2 * size_of::<f64>() * self.together());
                Box::new(DatasetReader::open(self.path(), name, cache, policy)?)
            }
            Encoding::Parquet(parquet) => Box::new(ParquetReader::open(&self.file, parquet, policy)?),
            Encoding::Market(market) => {
                Box::new(ArrayReader::new(market, self.blocks(part, parts)?, share.start, policy))
            }
            _ => return Err(self.file.error("holds no dense matrix")),
        };
        // Features are selected within each line.
        Ok(match &self.selection {
            Some(selection) => Box::new(SelectedReader::new(reader, selection, 1)),
            None => reader,
        })
    }

    /// Checks that single lines (rows, or columns if `by_columns`) can be read in any order and repeatedly.
    ///
    /// # Errors
    /// If they cannot: the reason and a remedy, as a predicate: "is …".
    pub fn check_lines(&self, by_columns: bool) -> std::result::Result<(), String> {
        if self.selection.as_ref().is_some_and(|selection| selection.of_rows != by_columns) {
            return Err("is stored feature by feature, and some of these are used; store it sample by sample".into());
        }
        let stored = match &self.encoding {
            Encoding::Npz(_, arrays) if !arrays.divisible() => {
                return Err("is compressed; write it by scipy.sparse.save_npz(…, compressed=False)".into());
            }
            Encoding::Raw(_) if self.file.gz => return Err("is compressed by gzip; unpack it (gunzip)".into()),
            Encoding::Npz(matrix, _) | Encoding::Hdf5Group(matrix, _) => matrix.by_columns,
            Encoding::Raw(raw) => raw.by_columns,
            Encoding::Hdf5Dataset(..) => false,
            Encoding::Parquet(_) => true,
            _ => {
                return Err(
                    "is text; convert it to .npy (numpy.save), .npz (scipy.sparse.save_npz(…, compressed=False)) or \
                            .h5ad"
                        .into(),
                );
            }
        };
        if stored == by_columns {
            return Ok(());
        }
        Err(if by_columns {
            "is stored by rows, and --transpose makes columns of them; leave --transpose out, which exchanges U and V"
                .into()
        } else {
            "is stored by columns; factorise its transpose (--transpose), which exchanges U and V, or store it by rows"
                .into()
        })
    }

    /// Whether it is sparse and stored by rows (or columns if `by_columns`), and all that is used of a line is in that line.
    pub fn stores_lines(&self, by_columns: bool) -> bool {
        let whole = self.selection.as_ref().is_none_or(|selection| selection.of_rows == by_columns);
        match &self.encoding {
            Encoding::Npz(matrix, _) | Encoding::Hdf5Group(matrix, _) => whole && matrix.by_columns == by_columns,
            _ => false,
        }
    }

    /// A reader of lines, for a file that [`MatrixFile::check_lines`] accepts.
    ///
    /// It is also for a file that [`MatrixFile::stores_lines`], of which all lines are read once and in order.
    ///
    /// # Errors
    /// If the file cannot be opened, or is damaged.
    pub fn line_reader<T: Real>(&self, policy: EntryPolicy) -> Result<LineReader<'_, T>> {
        let LineShape { cache, together, .. } = self.line_shape()?;
        if let Some((_, reader)) = self.compressed_reader(Some(cache))? {
            return Ok(LineReader::Sparse(reader));
        }
        Ok(LineReader::Dense(match (&self.encoding, &self.selection) {
            (Encoding::Hdf5Dataset(name, _), selection) => {
                let reader = Box::new(DatasetReader::open(self.path(), name, cache, policy)?);
                match selection {
                    Some(selection) => Box::new(SelectedReader::new(reader, selection, together)),
                    None => reader,
                }
            }
            _ => self.dense_reader(0, 1, 0..self.rows * self.cols, policy)?,
        }))
    }

    /// The storage of the lines.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn line_shape(&self) -> Result<LineShape> {
        Ok(match &self.encoding {
            // Each chunk is read once, and needs no cache.
            Encoding::Hdf5Dataset(_, Some(chunks)) => {
                let whole =
                    self.selection.as_ref().map_or(0, |selection| selection.all * chunks.rows * size_of::<f64>());
                LineShape { together: chunks.rows, cache: 0, scratch: chunks.bytes + whole }
            }
            Encoding::Hdf5Group(_, name) => {
                let (cache, scratch) = hdf5::group_memory(self.path(), name)?;
                LineShape { together: 1, cache, scratch }
            }
            _ => LineShape { together: 1, cache: 0, scratch: 0 },
        })
    }

    /// The number of entries of each line of a CSR or CSC matrix.
    ///
    /// # Errors
    /// If the file cannot be opened, or is damaged.
    pub fn line_counts(&self) -> Result<Option<Vec<u64>>> {
        Ok(self.compressed_reader(None)?.map(|(_, reader)| reader.counts()))
    }

    /// Passes the entries of part `part` of `parts` to `sink`, and returns the number of entries written in it.
    ///
    /// # Errors
    /// If an entry is invalid or refused; the message has its line or position.
    pub fn entries(
        &self,
        part: usize,
        parts: usize,
        sink: &mut impl EntrySink,
        progress: &mut dyn FnMut(f64),
    ) -> Result<u64> {
        if let Some((matrix, mut reader)) = self.compressed_reader(None)? {
            return reader.entries(matrix.share(part, parts), sink, progress);
        }
        if let Encoding::Triples(triples) = &self.encoding {
            let mut reader = TriplesReader::open(&self.file, triples)?;
            let mut found = 0;
            while let Some(chunk) = reader.next_chunk()? {
                found += triples::decode(&self.file, &chunk, sink)?;
                progress(reader.done());
            }
            return Ok(found);
        }
        let mut blocks = self.blocks(part, parts)?;
        let (mut before, mut found) = (self.lines_before(part), 0);
        while let Some((text, offset)) = blocks.next_block()? {
            found += self.text_entries(text, offset, before, sink)?;
            before += self.count_lines(text);
            progress(blocks.done());
        }
        Ok(found)
    }

    /// The reader of a CSR or CSC matrix, with `cache` bytes of memory for the chunks of each array.
    fn compressed_reader(&self, cache: Option<usize>) -> Result<Option<(&Compressed, CompressedReader<'_>)>> {
        let (matrix, arrays) = match &self.encoding {
            Encoding::Npz(matrix, arrays) => (matrix, arrays.open(self.path())?),
            Encoding::Hdf5Group(matrix, name) => (matrix, hdf5::open_group(self.path(), name, cache)?),
            _ => return Ok(None),
        };
        Ok(Some((matrix, CompressedReader::new(self.path(), matrix, arrays)?)))
    }

    /// Passes the entries of a block of text at byte `offset` to `sink`; `before` lines precede it.
    fn text_entries(&self, text: &[u8], offset: u64, before: u64, sink: &mut impl EntrySink) -> Result<u64> {
        let found = match &self.encoding {
            Encoding::Market(market) if market.coordinate => market.coordinates(text, sink),
            Encoding::Market(market) => market.triangle(text, before, sink),
            Encoding::Transactions(all) => all.entries(text, before, sink),
            _ => BlockResult::Ok(0),
        };
        found.map_err(|e| self.text_error(offset, e))
    }

    fn text_error(&self, offset: u64, (at, what): (usize, Refusal)) -> Error {
        error_at(&self.file, offset + at as u64, what)
    }

    /// Checks the number of entries against the header.
    ///
    /// # Errors
    /// If they differ.
    pub fn check_count(&self, found: u64) -> Result<()> {
        match self.stored {
            Some(promised) if self.has_positions() && promised != found => Err(self.count_error(promised, found)),
            _ => Ok(()),
        }
    }

    /// Cuts an indivisible file with positions into chunks that any rank can decode.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn chunk_reader(&self) -> Result<ChunkReader<'_>> {
        Ok(match (self.compressed_reader(None)?, &self.encoding) {
            (Some((matrix, reader)), _) => ChunkReader::Compressed(reader, matrix.share(0, 1)),
            (None, Encoding::Triples(triples)) => ChunkReader::Triples(TriplesReader::open(&self.file, triples)?),
            (None, _) => ChunkReader::Text(self, self.blocks(0, 1)?, 0),
        })
    }

    /// Decodes the chunks of [`MatrixFile::chunk_reader`].
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn chunk_decoder(&self) -> Result<ChunkDecoder<'_>> {
        Ok(match (self.compressed_reader(None)?, &self.encoding) {
            (Some((_, reader)), _) => ChunkDecoder::Compressed(reader),
            (None, Encoding::Triples(_)) => ChunkDecoder::Triples(&self.file),
            (None, _) => ChunkDecoder::Text(self),
        })
    }
}

/// The storage of lines that are read individually.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineShape {
    /// Number of lines that are unpacked together, beginning at a multiple of this number.
    pub together: usize,
    /// Bytes of unpacked chunks that the reader keeps.
    cache: usize,
    /// Bytes that the library needs to unpack them.
    pub scratch: usize,
}

/// Reads lines of a file in any order.
pub enum LineReader<'a, T> {
    Dense(Box<dyn DenseReader<T> + 'a>),
    Sparse(CompressedReader<'a>),
}

/// Cuts a file into chunks: undecoded entries, preceded by two numbers that give their position in the file. Triples are
/// already decoded, since only the reading rank knows the names in them.
pub enum ChunkReader<'a> {
    /// The text, and the number of lines read so far.
    Text(&'a MatrixFile, TextBlocks, u64),
    Triples(TriplesReader<'a>),
    /// The remaining entries.
    Compressed(CompressedReader<'a>, Range<u64>),
}

impl ChunkReader<'_> {
    /// The fraction of the file that was read.
    pub fn done(&self) -> f64 {
        match self {
            ChunkReader::Text(_, blocks, _) => blocks.done(),
            ChunkReader::Triples(reader) => reader.done(),
            ChunkReader::Compressed(reader, left) => reader.done(left.start),
        }
    }

    /// The next chunk, or `None` at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let begin = |a: u64, b: u64| [a.to_le_bytes(), b.to_le_bytes()].concat();
        match self {
            ChunkReader::Text(file, blocks, lines) => {
                let Some((text, offset)) = blocks.next_block()? else { return Ok(None) };
                let mut chunk = begin(offset, *lines);
                *lines += file.count_lines(text);
                chunk.extend_from_slice(text);
                Ok(Some(chunk))
            }
            ChunkReader::Triples(reader) => reader.next_chunk(),
            ChunkReader::Compressed(_, left) if left.start >= left.end => Ok(None),
            ChunkReader::Compressed(reader, left) => {
                let mut step = Step::default();
                reader.step(left, &mut step)?;
                let mut chunk = begin(step.entries.start, step.entries.end);
                step.values.iter().for_each(|x| chunk.extend_from_slice(&x.to_le_bytes()));
                step.indices.iter().for_each(|x| chunk.extend_from_slice(&x.to_le_bytes()));
                Ok(Some(chunk))
            }
        }
    }
}

/// Decodes chunks.
pub enum ChunkDecoder<'a> {
    Text(&'a MatrixFile),
    Triples(&'a InputFile),
    Compressed(CompressedReader<'a>),
}

impl ChunkDecoder<'_> {
    /// Passes the entries of a chunk to `sink`, and returns the number of entries written in it.
    ///
    /// # Errors
    /// If an entry is invalid or refused; the message has its line or position.
    pub fn decode(&self, chunk: &[u8], sink: &mut impl EntrySink) -> Result<u64> {
        let place = chunk.split_first_chunk::<16>().map(|(place, rest)| {
            let numbers = place.as_chunks::<8>().0;
            (u64::from_le_bytes(numbers[0]), u64::from_le_bytes(numbers[1]), rest)
        });
        match (self, place) {
            (ChunkDecoder::Triples(file), _) => triples::decode(file, chunk, sink),
            (ChunkDecoder::Text(file), Some((offset, lines, text))) => file.text_entries(text, offset, lines, sink),
            (ChunkDecoder::Compressed(reader), Some((first, end, rest))) => {
                let (values, indices) = rest.split_at((end - first) as usize * size_of::<f64>());
                let values = values.as_chunks().0.iter().map(|&x| f64::from_le_bytes(x)).collect();
                let indices = indices.as_chunks().0.iter().map(|&x| u32::from_le_bytes(x)).collect();
                reader.emit(&Step { entries: first..end, indices, values }, sink)
            }
            (_, None) => Ok(0),
        }
    }
}
