//! Files whose header is known, and how their entries are read.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::fimi;
use super::mtx;
use crate::comm::even_part;
use crate::data::distribute::dense::Lines;
use crate::data::formats::compressed::{Reader, Strips};
use crate::data::formats::fimi::Baskets;
use crate::data::formats::hdf5::DatasetLines;
use crate::data::formats::lines::{RawLines, TextLines};
use crate::data::formats::mtx::{Market, shape};
use crate::data::formats::number::Rule;
use crate::data::formats::raw::Raw;
use crate::data::formats::table::{Table, TableLines, count_rows};
use crate::data::formats::text::{Blocks, error_at};
use crate::error::{Error, Result};
use crate::linalg::Real;

/// All that is known of a file before its entries are read. Plain data: one rank finds it out and tells the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileInfo {
    pub path: String,
    pub gz: bool,
    /// Shape as the file has it; of formats without a header known when they are settled.
    pub rows: usize,
    pub cols: usize,
    pub stored: Option<u64>,
    /// For the user.
    pub format: String,
    pub(in crate::data) body: Body,
    /// What the parts of a text hold, where that had to be counted.
    parts: Vec<Survey>,
}

/// How the entries are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Body {
    Raw(Raw),
    Market(Market),
    Table(Table),
    Baskets(Baskets),
    Strips(Strips),
    /// A dense HDF5 dataset's name.
    Dataset(String),
}

/// What one part of a text holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Survey {
    /// Lines of a MatrixMarket array, or rows of a table.
    Lines(u64),
    Baskets(Baskets),
}

impl Survey {
    /// Lines that the file's entries are counted by.
    fn lines(&self) -> u64 {
        match self {
            Survey::Lines(lines) => *lines,
            Survey::Baskets(found) => found.rows,
        }
    }
}

/// Takes (row, column, value) of an entry as the file has it; the error says what is wrong with the value. Readers are
/// generic in it: it is called for every entry.
pub trait Sink: FnMut(usize, usize, f64) -> std::result::Result<(), String> {}

impl<F: FnMut(usize, usize, f64) -> std::result::Result<(), String>> Sink for F {}

impl FileInfo {
    pub fn new(
        path: &str,
        gz: bool,
        (rows, cols): (usize, usize),
        stored: Option<u64>,
        format: String,
        body: Body,
    ) -> Self {
        FileInfo { path: path.to_string(), gz, rows, cols, stored, format, body, parts: Vec::new() }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::input(format!("{}: {what}", self.path))
    }

    /// Whether blocks of it are stored sparse.
    pub fn sparse(&self) -> bool {
        match &self.body {
            Body::Raw(_) | Body::Table(_) | Body::Dataset(_) => false,
            Body::Market(market) => market.coordinate,
            Body::Baskets(_) | Body::Strips(_) => true,
        }
    }

    /// Whether entries come one by one, with their places.
    pub fn scattered(&self) -> bool {
        self.sparse() || matches!(&self.body, Body::Market(market) if market.symmetric)
    }

    /// Whether several ranks can each read a part.
    pub fn divisible(&self) -> bool {
        !self.gz && !matches!(&self.body, Body::Strips(strips) if !strips.divisible())
    }

    /// Whether the parts of the text must be looked through before it is known which entries they hold.
    pub fn needs_survey(&self) -> bool {
        match &self.body {
            Body::Market(market) => !market.coordinate,
            Body::Table(_) | Body::Baskets(_) => true,
            Body::Raw(_) | Body::Strips(_) | Body::Dataset(_) => false,
        }
    }

    /// Whether its lines are columns.
    pub fn by_columns(&self) -> bool {
        match &self.body {
            Body::Raw(raw) => raw.by_columns,
            Body::Market(_) => true,
            _ => false,
        }
    }

    /// The text of one part of the file.
    fn blocks(&self, part: usize, parts: usize) -> Result<Blocks> {
        let start = match &self.body {
            Body::Market(market) => market.start,
            Body::Table(table) => table.start,
            _ => 0,
        };
        if self.gz { Blocks::whole(&self.path, true, start) } else { Blocks::part(&self.path, start, part, parts) }
    }

    /// Looks through one part of a text.
    ///
    /// # Errors
    /// When it is not the text it should be.
    pub fn survey(&self, part: usize, parts: usize) -> Result<Survey> {
        let mut blocks = self.blocks(part, parts)?;
        let (mut lines, mut found) = (0, Baskets::NOTHING);
        while let Some((text, offset)) = blocks.next()? {
            match &self.body {
                Body::Baskets(_) => {
                    let more = fimi::survey(text).map_err(|e| self.text_error(offset, e))?;
                    found = found.and(more);
                }
                _ => lines += self.count_lines(text),
            }
        }
        Ok(if matches!(self.body, Body::Baskets(_)) { Survey::Baskets(found) } else { Survey::Lines(lines) })
    }

    /// Lines that entries are counted by, in a block of text.
    fn count_lines(&self, text: &[u8]) -> u64 {
        match &self.body {
            Body::Table(_) => count_rows(text),
            Body::Baskets(_) => {
                memchr::memchr_iter(b'\n', text).count() as u64 + u64::from(text.last().is_some_and(|&b| b != b'\n'))
            }
            Body::Market(market) if !market.coordinate => mtx::count_lines(text),
            _ => 0,
        }
    }

    /// Takes the surveys of all parts.
    ///
    /// # Errors
    /// When together they do not hold what the header promises, or nothing.
    pub fn settle(&mut self, parts: Vec<Survey>) -> Result<()> {
        let lines = parts.iter().map(Survey::lines).sum::<u64>();
        match &mut self.body {
            Body::Market(market) if lines != market.entries => {
                let promised = market.entries;
                return Err(self.count_error(promised, lines));
            }
            Body::Table(table) => {
                self.rows = lines as usize;
                self.stored = Some(lines * table.cols as u64);
            }
            Body::Baskets(all) => {
                for part in &parts {
                    if let Survey::Baskets(part) = part {
                        *all = all.and(*part);
                    }
                }
                if all.ones == 0 {
                    return Err(self.wrong("holds no transaction with an item"));
                }
                self.rows = all.rows as usize;
                self.cols = usize::try_from((all.most - all.base()).saturating_add(1)).unwrap_or(usize::MAX);
                self.stored = Some(all.ones);
                shape(self.rows, self.cols, self.stored).map_err(|what| self.wrong(what))?;
            }
            _ => {}
        }
        self.parts = parts;
        Ok(())
    }

    fn count_error(&self, promised: u64, found: u64) -> Error {
        self.wrong(format!("the header promises {promised} entries, the file holds {found} (truncated?)"))
    }

    /// Lines before a part.
    fn lines_before(&self, part: usize) -> u64 {
        self.parts.iter().take(part).map(Survey::lines).sum()
    }

    /// The entries, counted line after line, that each of `parts` readers of a dense file reads.
    pub fn shares(&self, parts: usize) -> Vec<Range<usize>> {
        let (lines, width) = if self.by_columns() { (self.cols, self.rows) } else { (self.rows, self.cols) };
        if self.parts.len() == parts {
            // a line of a table is a row, one of an array an entry
            let each = if matches!(self.body, Body::Table(_)) { width } else { 1 };
            let border = |part: usize| self.lines_before(part) as usize * each;
            return (0..parts).map(|part| border(part)..border(part + 1)).collect();
        }
        (0..parts)
            .map(|i| {
                let part = even_part(lines, parts, i);
                part.start * width..part.end * width
            })
            .collect()
    }

    /// A reader of part `part` of `parts` of a dense file, which holds the entries `share`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn lines<T: Real>(
        &self,
        part: usize,
        parts: usize,
        share: Range<usize>,
        rule: Rule,
    ) -> Result<Box<dyn Lines<T> + '_>> {
        Ok(match &self.body {
            Body::Raw(raw) => Box::new(RawLines::open(self, raw, rule)?),
            Body::Table(table) => {
                let first = share.start / table.cols;
                Box::new(TableLines::new(self, table, self.blocks(part, parts)?, first, rule))
            }
            Body::Dataset(name) => Box::new(DatasetLines::open(self, name, rule)?),
            _ => Box::new(TextLines::new(self, self.blocks(part, parts)?, share.start, rule)),
        })
    }

    /// Reads the scattered entries of part `part` of `parts`, and returns how many were written in it.
    ///
    /// # Errors
    /// With the line or place of what is wrong.
    pub fn entries(
        &self,
        part: usize,
        parts: usize,
        sink: &mut impl Sink,
        progress: &mut dyn FnMut(f64),
    ) -> Result<u64> {
        if let Body::Strips(strips) = &self.body {
            return strips.open(&self.path)?.entries(strips.share(part, parts), sink, progress);
        }
        let mut blocks = self.blocks(part, parts)?;
        let (mut before, mut found) = (self.lines_before(part), 0);
        while let Some((text, offset)) = blocks.next()? {
            found += self.text_entries(text, offset, before, sink)?;
            before += self.count_lines(text);
            progress(blocks.done());
        }
        Ok(found)
    }

    /// Reads the entries of a block of text that lies at byte `offset` behind `before` lines.
    fn text_entries(&self, text: &[u8], offset: u64, before: u64, sink: &mut impl Sink) -> Result<u64> {
        let found = match &self.body {
            Body::Market(market) if market.coordinate => market.coordinates(text, sink),
            Body::Market(market) => market.triangle(text, before, sink),
            Body::Baskets(all) => {
                let mut ones = 0;
                let base = all.base();
                let items = fimi::items(text, &mut |line, item| {
                    ones += 1;
                    sink((before + line) as usize, (item - base) as usize, 1.0)
                });
                items.map(|_| ones)
            }
            _ => Ok(0),
        };
        found.map_err(|e| self.text_error(offset, e))
    }

    fn text_error(&self, offset: u64, (at, what): (usize, String)) -> Error {
        error_at(&self.path, self.gz, offset + at as u64, &what)
    }

    /// Checks that as many entries were found as promised.
    ///
    /// # Errors
    /// When not.
    pub fn check_count(&self, found: u64) -> Result<()> {
        match self.stored {
            Some(promised) if self.scattered() && promised != found => Err(self.count_error(promised, found)),
            _ => Ok(()),
        }
    }

    /// Starts dealing out a file that only one can unpack.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn dealer(&self) -> Result<Dealer<'_>> {
        Ok(match &self.body {
            Body::Strips(strips) => Dealer::Strips(strips.open(&self.path)?, strips.share(0, 1)),
            _ => Dealer::Text(self, self.blocks(0, 1)?, 0),
        })
    }

    /// Starts taking what is dealt.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn taker(&self) -> Result<Taker<'_>> {
        Ok(match &self.body {
            Body::Strips(strips) => Taker::Strips(strips.open(&self.path)?),
            _ => Taker::Text(self),
        })
    }
}

/// Cuts a compressed file into hands of unread entries that anyone can make sense of.
pub enum Dealer<'a> {
    /// The text, and the lines dealt so far.
    Text(&'a FileInfo, Blocks, u64),
    /// The entries that are left.
    Strips(Reader<'a>, Range<u64>),
}

impl Dealer<'_> {
    /// The share that was dealt.
    pub fn done(&self) -> f64 {
        match self {
            Dealer::Text(_, blocks, _) => blocks.done(),
            Dealer::Strips(reader, left) => reader.done(left.start),
        }
    }

    /// The next hand: two numbers that say where it lies, and what lies there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn hand(&mut self) -> Result<Option<Vec<u8>>> {
        let hand = |a: u64, b: u64| [a.to_le_bytes(), b.to_le_bytes()].concat();
        match self {
            Dealer::Text(info, blocks, dealt) => {
                let Some((text, offset)) = blocks.next()? else { return Ok(None) };
                let mut hand = hand(offset, *dealt);
                *dealt += info.count_lines(text);
                hand.extend_from_slice(text);
                Ok(Some(hand))
            }
            Dealer::Strips(_, left) if left.start >= left.end => Ok(None),
            Dealer::Strips(reader, left) => {
                let (step, indices, values) = reader.step(left)?;
                left.start = step.end;
                let mut hand = hand(step.start, indices.len() as u64);
                indices.iter().chain(&values).for_each(|x| hand.extend_from_slice(&x.to_le_bytes()));
                Ok(Some(hand))
            }
        }
    }
}

/// Makes sense of hands.
pub enum Taker<'a> {
    Text(&'a FileInfo),
    Strips(Reader<'a>),
}

impl Taker<'_> {
    /// Reads the entries of a hand, and returns how many were written in it.
    ///
    /// # Errors
    /// With the line or place of what is wrong.
    pub fn take(&self, hand: &[u8], sink: &mut impl Sink) -> Result<u64> {
        let (Some((a, rest)), b) = (hand.split_first_chunk::<8>(), hand.get(8..16)) else { return Ok(0) };
        let (Some(b), Some(rest)) = (b.and_then(|b| b.first_chunk::<8>()), rest.get(8..)) else { return Ok(0) };
        let (a, b) = (u64::from_le_bytes(*a), u64::from_le_bytes(*b));
        match self {
            Taker::Text(info) => info.text_entries(rest, a, b, sink),
            Taker::Strips(reader) => {
                let numbers: Vec<f64> = rest.as_chunks::<8>().0.iter().map(|&x| f64::from_le_bytes(x)).collect();
                let (indices, values) = numbers.split_at(b as usize);
                reader.emit(a, indices, values, sink)
            }
        }
    }
}
