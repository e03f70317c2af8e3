//! Readers of dense files: entries line after line.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::data::distribute::dense::Lines;
use crate::data::formats::file::FileInfo;
use crate::data::formats::mtx::next_line;
use crate::data::formats::number::{Rule, float, place};
use crate::data::formats::raw::Raw;
use crate::data::formats::text::{Blocks, error_at, io_error, open, quote, read_full, stream};
use crate::error::{Error, Result};
use crate::linalg::Real;

/// Bytes read at once.
const STEP: usize = 1 << 20;

/// Reader of numbers in binary.
pub struct RawLines<'a> {
    info: &'a FileInfo,
    raw: &'a Raw,
    rule: Rule,
    from: From,
    bytes: Vec<u8>,
}

enum From {
    File(File),
    /// A compressed file can only be read from front to back; the entry that comes next.
    Stream(Box<dyn Read>, usize),
}

impl<'a> RawLines<'a> {
    pub fn open(info: &'a FileInfo, raw: &'a Raw, rule: Rule) -> Result<Self> {
        let from = if info.gz {
            let mut from = stream(&info.path, true)?;
            let head = std::io::copy(&mut from.by_ref().take(raw.start), &mut std::io::sink());
            head.map_err(|e| io_error(&info.path, &e))?;
            From::Stream(from, 0)
        } else {
            From::File(open(&info.path)?)
        };
        Ok(RawLines { info, raw, rule, from, bytes: Vec::new() })
    }

    /// Reads `out.len()` numbers from number `first` on.
    fn run<T: Real>(&mut self, first: usize, out: &mut [T]) -> Result<()> {
        let size = self.raw.number.size();
        for (step, out) in out.chunks_mut(STEP / size).enumerate() {
            let first = first + step * (STEP / size);
            self.bytes.resize(out.len() * size, 0);
            let read = match &mut self.from {
                From::File(file) => file.read_exact_at(&mut self.bytes, self.raw.start + (first * size) as u64),
                From::Stream(from, next) => {
                    debug_assert_eq!(*next, first);
                    *next = first + out.len();
                    read_full(from, &mut self.bytes).and_then(|got| {
                        if got == self.bytes.len() { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
                    })
                }
            };
            read.map_err(|e| io_error(&self.info.path, &e))?;
            self.raw.number.decode(&self.bytes, self.raw.big_endian, out);
        }
        Ok(())
    }
}

/// Row and column, as the file has them, of entry `at`, counted line after line.
pub fn place_of(info: &FileInfo, at: usize) -> String {
    if info.by_columns() { place(at % info.rows, at / info.rows) } else { place(at / info.cols, at % info.cols) }
}

impl<T: Real> Lines<T> for RawLines<'_> {
    fn fill(&mut self, lines: Range<usize>, within: Range<usize>, out: &mut [T]) -> Result<()> {
        let width = if self.info.by_columns() { self.info.rows } else { self.info.cols };
        // More than one line only comes whole, so it is one run of numbers.
        let first = lines.start * width + within.start;
        self.run(first, out)?;
        match self.rule.first_wrong(out) {
            Some((at, why)) => {
                Err(Error::input(format!("{}: the entry in {} {why}", self.info.path, place_of(self.info, first + at))))
            }
            None => Ok(()),
        }
    }
}

/// Reader of a text with one number on a line.
pub struct TextLines<'a> {
    info: &'a FileInfo,
    blocks: Blocks,
    rule: Rule,
    /// Lines that were read and not parsed yet, and where they begin in the text.
    text: Vec<u8>,
    at: usize,
    offset: u64,
    /// The entry that comes next.
    next: usize,
}

impl<'a> TextLines<'a> {
    pub fn new(info: &'a FileInfo, blocks: Blocks, first: usize, rule: Rule) -> Self {
        TextLines { info, blocks, rule, text: Vec::new(), at: 0, offset: 0, next: first }
    }

    fn number<T: Real>(&mut self) -> Result<T> {
        let line = loop {
            if let Some(line) = next_line(&self.text, &mut self.at) {
                break line;
            }
            let Some((text, offset)) = self.blocks.next()? else {
                return Err(io_error(&self.info.path, &std::io::ErrorKind::UnexpectedEof.into()));
            };
            self.text.clear();
            self.text.extend_from_slice(text);
            (self.at, self.offset) = (0, offset);
        };
        let entry = number_line(&self.text, line).and_then(|(value, end)| {
            self.at = end;
            self.rule.entry(value).map_err(|why| format!("the entry in {} {why}", place_of(self.info, self.next)))
        });
        self.next += 1;
        entry.map_err(|what| error_at(&self.info.path, self.info.gz, self.offset + line as u64, &what))
    }
}

/// The one number on a line, and where the next line begins.
pub fn number_line(text: &[u8], line: usize) -> std::result::Result<(f64, usize), String> {
    let end = memchr::memchr(b'\n', &text[line..]).map_or(text.len(), |end| line + end + 1);
    match float(&text[line..end]) {
        Some((value, used)) if text[line + used..end].trim_ascii().is_empty() => Ok((value, end)),
        _ => Err(format!("expected a number, found {}", quote(&text[line..]))),
    }
}

impl<T: Real> Lines<T> for TextLines<'_> {
    fn fill(&mut self, _: Range<usize>, _: Range<usize>, out: &mut [T]) -> Result<()> {
        out.iter_mut().try_for_each(|x| self.number().map(|value| *x = value))
    }
}
