//! Files: what a header tells, and how the entries behind it are read.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::dense::Lines;
use super::lines::{RawLines, TextLines};
use super::mtx::{self, Market, shape, text_bytes};
use super::number::Rule;
use super::raw::Raw;
use super::text::{Blocks, error_at, io_error, open, read_full};
use super::{idx, npy};
use crate::comm::even_part;
use crate::error::{Error, Result};
use crate::linalg::Real;

/// All that is known of a file before its entries are read. Plain data: one rank finds it out and tells the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileInfo {
    pub path: String,
    pub gz: bool,
    /// Shape as the file has it.
    pub rows: usize,
    pub cols: usize,
    pub stored: Option<u64>,
    /// For the user.
    pub format: String,
    pub body: Body,
    /// What the parts of a dense text hold: filled by [`survey`].
    pub parts: Vec<Survey>,
}

/// How the entries are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Body {
    Raw(Raw),
    Market(Market),
}

/// What one reader's part of a text holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// Entries of a dense text.
    pub entries: u64,
}

/// A line of the form "<path>: what is wrong".
fn wrong(path: &str, what: impl std::fmt::Display) -> Error {
    Error::input(format!("{path}: {what}"))
}

/// Reads the header of a file of any known format. The name's ending decides which it is, or else the first bytes.
pub fn probe(path: &str, dataset: Option<&str>) -> Result<FileInfo> {
    let mut file = open(path)?;
    let size = file.metadata().map_err(|e| io_error(path, &e))?.len();
    if size == 0 {
        return Err(wrong(path, "is an empty file"));
    }
    let mut lead = [0u8; 16];
    let got = read_full(&mut file, &mut lead).map_err(|e| io_error(path, &e))?;
    let gz = lead[..got].starts_with(&[0x1f, 0x8b]);
    let lower = path.to_ascii_lowercase();
    let name = lower.strip_suffix(".gz").unwrap_or(&lower);
    if name.len() < lower.len() && !gz {
        return Err(wrong(path, "is named .gz but is not compressed by gzip"));
    }
    file.seek(SeekFrom::Start(0)).map_err(|e| io_error(path, &e))?;
    let mut from: Box<dyn Read> =
        if gz { Box::new(MultiGzDecoder::new(std::io::BufReader::new(file))) } else { Box::new(file) };
    let ending = Path::new(name).extension().and_then(|e| e.to_str()).unwrap_or_default();
    if dataset.is_some() {
        return Err(wrong(path, "only an HDF5 file has datasets inside"));
    }
    let kind = match ending {
        "mtx" | "mm" => Kind::Market,
        "npy" => Kind::Npy,
        "idx" => Kind::Idx,
        _ => {
            // The ending says nothing: look inside.
            let mut lead = [0u8; 16];
            let got = read_full(&mut from, &mut lead).map_err(|e| io_error(path, &e))?;
            let kind = sniff(&lead[..got]).ok_or_else(|| wrong(path, format!("is of no known format; {KNOWN}")))?;
            from = super::text::stream(path, gz)?;
            kind
        }
    };
    let info = |rows, cols, stored, format, body| FileInfo {
        path: path.to_string(),
        gz,
        rows,
        cols,
        stored,
        format,
        body,
        parts: Vec::new(),
    };
    match kind {
        Kind::Market => {
            let market = mtx::header(path, gz, size)?;
            let format = market.banner.clone() + if gz { ", gzip" } else { "" };
            Ok(info(market.rows, market.cols, Some(market.entries), format, Body::Market(market)))
        }
        Kind::Npy | Kind::Idx => {
            let (raw, dims, name) = if kind == Kind::Npy {
                let header = npy::header(&mut from).map_err(|e| wrong(path, e))?;
                (header.raw, header.shape, "npy")
            } else {
                let (raw, dims) = idx::header(&mut from).map_err(|e| wrong(path, e))?;
                (raw, dims, "idx")
            };
            let (rows, cols) = two_dimensions(&dims, raw.by_columns).map_err(|e| wrong(path, e))?;
            let bytes = rows as u128 * cols as u128 * raw.number.size() as u128;
            let left = text_bytes(size, gz).saturating_sub(raw.start);
            if bytes > u128::from(left) {
                return Err(wrong(
                    path,
                    format!(
                        "the header promises {rows} × {cols} numbers, {bytes} bytes; the file holds {left} (truncated?)"
                    ),
                ));
            }
            let order = if raw.by_columns { "column order" } else { "row order" };
            let end = if raw.big_endian && raw.number.size() > 1 { " big-endian" } else { "" };
            let format = format!("{name} {}{end}, {order}{}", raw.number.name(), if gz { ", gzip" } else { "" });
            Ok(info(rows, cols, Some(rows as u64 * cols as u64), format, Body::Raw(raw)))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Market,
    Npy,
    Idx,
}

const KNOWN: &str = "MatrixMarket (.mtx), NumPy (.npy) and idx can be read, each also as .gz";

fn sniff(lead: &[u8]) -> Option<Kind> {
    if lead.starts_with(npy::MAGIC) {
        Some(Kind::Npy)
    } else if lead.len() >= 14 && lead[..14].eq_ignore_ascii_case(b"%%MatrixMarket") {
        Some(Kind::Market)
    } else if idx::known(lead) {
        Some(Kind::Idx)
    } else {
        None
    }
}

/// Rows and columns: one dimension is one column; more than two are laid out in one, row by row.
fn two_dimensions(dims: &[u64], by_columns: bool) -> std::result::Result<(usize, usize), String> {
    let all = dims.iter().try_fold(1u64, |all, &d| all.checked_mul(d));
    let (rows, cols) = match (dims, all) {
        (&[rows], _) => (rows, 1),
        (&[rows, cols], Some(_)) => (rows, cols),
        (&[rows, ref rest @ ..], Some(_)) if !by_columns => (rows, rest.iter().product()),
        (&[], _) => return Err("holds a single number, not a matrix".into()),
        (_, Some(_)) => return Err(format!("has {} dimensions in Fortran order; a matrix has two", dims.len())),
        (_, None) => return Err("the header promises more entries than can be counted".into()),
    };
    shape(rows as usize, cols as usize, None)?;
    Ok((rows as usize, cols as usize))
}

impl FileInfo {
    /// Whether blocks of it are stored sparse.
    pub fn sparse(&self) -> bool {
        match &self.body {
            Body::Raw(_) => false,
            Body::Market(market) => market.coordinate,
        }
    }

    /// Whether entries come one by one, with their places.
    pub fn scattered(&self) -> bool {
        match &self.body {
            Body::Raw(_) => false,
            Body::Market(market) => market.coordinate || market.symmetric,
        }
    }

    /// Whether several ranks can each read a part.
    pub fn divisible(&self) -> bool {
        !self.gz
    }

    /// Whether the parts of the text must be looked through before it is known which entries they hold.
    pub fn needs_survey(&self) -> bool {
        matches!(&self.body, Body::Market(market) if !market.coordinate)
    }

    /// Whether its lines are columns.
    pub fn by_columns(&self) -> bool {
        match &self.body {
            Body::Raw(raw) => raw.by_columns,
            Body::Market(_) => true,
        }
    }

    /// The text of one part of the file.
    pub fn blocks(&self, start: u64, part: usize, parts: usize) -> Result<Blocks> {
        if self.gz { Blocks::whole(&self.path, true, start) } else { Blocks::part(&self.path, start, part, parts) }
    }

    /// Looks through one part of a text.
    pub fn survey(&self, part: usize, parts: usize) -> Result<Survey> {
        let Body::Market(market) = &self.body else { return Ok(Survey { entries: 0 }) };
        let mut blocks = self.blocks(market.start, part, parts)?;
        let mut entries = 0;
        while let Some((text, _)) = blocks.next()? {
            let mut at = 0;
            while let Some(line) = mtx::next_line(text, &mut at) {
                at = memchr::memchr(b'\n', &text[line..]).map_or(text.len(), |end| line + end + 1);
                entries += 1;
            }
        }
        Ok(Survey { entries })
    }

    /// Takes the surveys of all parts.
    ///
    /// # Errors
    /// When together they do not hold what the header promises.
    pub fn settle(&mut self, parts: Vec<Survey>) -> Result<()> {
        if let Body::Market(market) = &self.body {
            let found: u64 = parts.iter().map(|p| p.entries).sum();
            if found != market.entries {
                return Err(self.count_error(market.entries, found));
            }
        }
        self.parts = parts;
        Ok(())
    }

    fn count_error(&self, promised: u64, found: u64) -> Error {
        wrong(&self.path, format!("the header promises {promised} entries, the file holds {found} (truncated?)"))
    }

    /// The entries, counted line after line, that each of `parts` readers of a dense file reads.
    pub fn shares(&self, parts: usize) -> Vec<Range<usize>> {
        let (lines, width) = if self.by_columns() { (self.cols, self.rows) } else { (self.rows, self.cols) };
        if self.parts.len() == parts {
            let ends = self.parts.iter().scan(0, |end, part| {
                *end += part.entries as usize;
                Some(*end - part.entries as usize..*end)
            });
            return ends.collect();
        }
        (0..parts)
            .map(|i| {
                let part = even_part(lines, parts, i);
                part.start * width..part.end * width
            })
            .collect()
    }

    /// A reader of part `part` of `parts` of a dense file, which holds the entries `share`.
    pub fn lines<T: Real>(
        &self,
        part: usize,
        parts: usize,
        share: Range<usize>,
        rule: Rule,
    ) -> Result<Box<dyn Lines<T> + '_>> {
        Ok(match &self.body {
            Body::Raw(raw) => Box::new(RawLines::open(self, raw, rule)?),
            Body::Market(market) => {
                Box::new(TextLines::new(self, self.blocks(market.start, part, parts)?, share.start, rule))
            }
        })
    }

    /// Reads the scattered entries of part `part` of `parts`: (row, column, value) as the file has them.
    /// Returns how many entries were written in it.
    pub fn entries(
        &self,
        part: usize,
        parts: usize,
        sink: &mut impl FnMut(usize, usize, f64) -> std::result::Result<(), String>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<u64> {
        let Body::Market(market) = &self.body else { return Ok(0) };
        let mut blocks = self.blocks(market.start, part, parts)?;
        let all = blocks.left().unwrap_or(0).max(1) as f64;
        let mut count = if market.coordinate { 0 } else { self.shares(parts)[part].start as u64 };
        let first = count;
        while let Some((text, offset)) = blocks.next()? {
            count += self.text_entries(market, text, offset, count, sink)?;
            progress(blocks.left().map_or(0.0, |left| 1.0 - left as f64 / all));
        }
        Ok(count - first)
    }

    /// Reads the entries of a block of text that lies at byte `offset`, before which `before` entries lie.
    pub fn text_entries(
        &self,
        market: &Market,
        text: &[u8],
        offset: u64,
        before: u64,
        sink: &mut impl FnMut(usize, usize, f64) -> std::result::Result<(), String>,
    ) -> Result<u64> {
        let found =
            if market.coordinate { market.coordinates(text, sink) } else { market.triangle(text, before, sink) };
        found.map_err(|(at, what)| error_at(&self.path, self.gz, offset + at as u64, &what))
    }

    /// Checks that as many entries were found as promised.
    pub fn check_count(&self, found: u64) -> Result<()> {
        match &self.body {
            Body::Market(market) if market.entries != found => Err(self.count_error(market.entries, found)),
            _ => Ok(()),
        }
    }
}
