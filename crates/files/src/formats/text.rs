//! Text files in blocks of whole lines: a byte range of a plain file, or all of a compressed one.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};

use fednmf_base::error::{Error, Result};

use crate::formats::io::{InputFile, Section, open, read_full, skip};
use crate::formats::refusal::Refusal;

/// Bytes read at once.
const BLOCK: usize = if cfg!(fuzzing) { 1 << 10 } else { 1 << 20 };
/// Maximum length of a line in bytes, some millions of numbers. A compressed file of 2 MB may have a line of 2 GB.
const LONGEST_LINE: usize = 64 << 20;

/// The lines of one part of a text.
pub struct TextBlocks {
    source: InputFile,
    stream: Stream,
    /// `buffer[used..]` was read and not returned yet.
    buffer: Vec<u8>,
    used: usize,
    /// Position of `buffer` in the (uncompressed) text.
    offset: u64,
    ended: bool,
}

enum Stream {
    Range {
        section: Section<File>,
        begin: u64,
    },
    /// A whole file: its bytes, a second handle that shares the cursor, and the size of the file.
    Whole(Box<dyn Read>, File, u64),
}

impl TextBlocks {
    /// Part `part` of `parts` of the lines from byte `start` on. A line belongs to the part in which it begins; a
    /// compressed file has one part.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(source: &InputFile, start: u64, part: usize, parts: usize) -> Result<Self> {
        let file = open(&source.path)?;
        let stream = if source.gz { whole(source, file, start) } else { range(file, start, part, parts) };
        let stream = stream.map_err(|e| source.io_error(&e))?;
        let offset = if let Stream::Range { begin, .. } = stream { begin } else { start };
        Ok(TextBlocks { source: source.clone(), stream, buffer: Vec::new(), used: 0, offset, ended: false })
    }

    /// The fraction of the part, in bytes of the file, that was read.
    pub fn done(&self) -> f64 {
        let (read, all) = match &self.stream {
            Stream::Range { section, begin } => (section.at - begin, section.end - begin),
            Stream::Whole(_, cursor, size) => ((&*cursor).stream_position().unwrap_or(0), *size),
        };
        read as f64 / all.max(1) as f64
    }

    /// The next whole lines (the last one may lack its line end) and their position in the text.
    ///
    /// # Errors
    /// If the file cannot be read, or has a line that is too long.
    pub fn next_block(&mut self) -> Result<Option<(&[u8], u64)>> {
        self.buffer.drain(..self.used);
        self.offset += self.used as u64;
        self.used = 0;
        let mut searched = 0;
        loop {
            if let Some(end) = memchr::memrchr(b'\n', &self.buffer[searched..]) {
                self.used = searched + end + 1;
                break;
            }
            if self.ended {
                self.used = self.buffer.len();
                break;
            }
            searched = self.buffer.len();
            if searched >= LONGEST_LINE {
                return Err(self.source.error(format!(
                    "no line end in {} MiB: not a table of text; store matrices with this many columns as .npy, .npz or HDF5",
                    LONGEST_LINE >> 20
                )));
            }
            self.read_more().map_err(|e| self.source.io_error(&e))?;
        }
        Ok((self.used > 0).then_some((&self.buffer[..self.used], self.offset)))
    }

    fn read_more(&mut self) -> std::io::Result<()> {
        let filled = self.buffer.len();
        // A long line is read in growing steps so that searching it stays linear.
        let mut step = BLOCK.max(filled).min(LONGEST_LINE);
        let got = match &mut self.stream {
            Stream::Range { section, .. } => {
                step = step.min((section.end - section.at) as usize);
                self.buffer.resize(filled + step, 0);
                let got = read_full(section, &mut self.buffer[filled..])?;
                if got < step {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.ended = section.at == section.end;
                got
            }
            Stream::Whole(stream, ..) => {
                self.buffer.resize(filled + step, 0);
                let got = read_full(stream, &mut self.buffer[filled..])?;
                self.ended = got < step;
                got
            }
        };
        self.buffer.truncate(filled + got);
        Ok(())
    }
}

fn range(file: File, start: u64, part: usize, parts: usize) -> std::io::Result<Stream> {
    let size = file.metadata()?.len();
    let border = |i: usize| start + (u128::from(size.saturating_sub(start)) * i as u128 / parts as u128) as u64;
    let align = |at: u64| if at <= start { Ok(start) } else { line_start(&file, at, size) };
    let begin = align(border(part))?;
    let end = if part + 1 == parts { size } else { align(border(part + 1))? };
    Ok(Stream::Range { section: Section { file, at: begin, end: end.max(begin) }, begin })
}

fn whole(source: &InputFile, file: File, start: u64) -> std::io::Result<Stream> {
    let (cursor, size) = (file.try_clone()?, file.metadata()?.len());
    let mut stream = source.decode(file);
    skip(&mut stream, start)?;
    Ok(Stream::Whole(stream, cursor, size))
}

/// The first line start at or after byte `at` > 0.
fn line_start(file: &File, at: u64, size: u64) -> std::io::Result<u64> {
    let mut from = Section { file, at: at - 1, end: size };
    let mut buffer = vec![0; 1 << 14];
    loop {
        let begin = from.at;
        let got = read_full(&mut from, &mut buffer)?;
        if got == 0 {
            return Ok(size);
        }
        if let Some(end) = memchr::memchr(b'\n', &buffer[..got]) {
            return Ok(begin + end as u64 + 1);
        }
    }
}

/// Reads the lines of a text one at a time.
pub struct LineCursor {
    blocks: TextBlocks,
    /// The current block, and the position in it.
    text: Vec<u8>,
    at: usize,
    offset: u64,
}

impl LineCursor {
    /// Starts before the first line of `blocks`.
    pub fn new(blocks: TextBlocks) -> Self {
        LineCursor { blocks, text: Vec::new(), at: 0, offset: 0 }
    }

    /// The file that the text is from.
    pub fn source(&self) -> &InputFile {
        &self.blocks.source
    }

    /// Parses the next line. `find` returns the line that begins at or after a position in a block, and moves the
    /// position past it; `parse` gets the line.
    ///
    /// # Errors
    /// If the text ends, or `parse` refuses the line; the message has its number.
    pub fn parse<R>(
        &mut self,
        find: impl Fn(&[u8], &mut usize) -> Option<std::ops::Range<usize>>,
        parse: impl FnOnce(&[u8]) -> std::result::Result<R, Refusal>,
    ) -> Result<R> {
        let line = loop {
            if let Some(line) = find(&self.text, &mut self.at) {
                break line;
            }
            let Some((text, offset)) = self.blocks.next_block()? else {
                return Err(self.blocks.source.io_error(&ErrorKind::UnexpectedEof.into()));
            };
            self.text.clear();
            self.text.extend_from_slice(text);
            (self.at, self.offset) = (0, offset);
        };
        let start = self.offset + line.start as u64;
        parse(&self.text[line]).map_err(|what| error_at(&self.blocks.source, start, what))
    }
}

/// An error at byte `offset` of a text, with the number of its line. Counting the lines costs another read of the file,
/// which is acceptable for an error.
pub fn error_at(source: &InputFile, offset: u64, what: impl Into<Refusal>) -> Error {
    let count = || -> Option<u64> {
        let mut from = source.stream().ok()?.take(offset);
        let mut buffer = vec![0; BLOCK];
        let mut lines = 1;
        loop {
            match read_full(&mut from, &mut buffer).ok()? {
                0 => return Some(lines),
                got => lines += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64,
            }
        }
    };
    let place = count().map_or_else(|| format!("at byte {offset}"), |line| format!("line {line}"));
    source.error(what.into().map(|what| format!("{place}: {what}")))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(text: &[u8]) -> (tempfile::NamedTempFile, InputFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        let source = InputFile { path: file.path().to_str().unwrap().to_string(), gz: false, private: false };
        (file, source)
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        (0..100).for_each(|_| packed.write_all(&vec![b'1'; 1 << 20]).unwrap());
        let (_file, source) = file(&packed.finish().unwrap());
        let mut blocks = TextBlocks::open(&InputFile { gz: true, ..source }, 0, 0, 1).unwrap();
        let refused = blocks.next_block().map(|_| ()).unwrap_err().message;
        assert!(refused.contains("no line end in 64 MiB"), "{refused}");
        assert!(blocks.buffer.capacity() <= 2 * LONGEST_LINE);
    }

    #[test]
    fn parts_are_a_partition_of_the_lines() {
        let mut text = b"header\n".to_vec();
        for i in 0..200 {
            text.extend(std::iter::repeat_n(b'a' + (i % 26) as u8, i * 7 % 31));
            text.push(b'\n');
        }
        text.extend_from_slice(b"no end");
        let (_file, source) = file(&text);
        for parts in [1, 2, 3, 7, 1000] {
            let mut all = Vec::new();
            for part in 0..parts {
                let mut blocks = TextBlocks::open(&source, 7, part, parts).unwrap();
                let mut lines = Vec::new();
                while let Some((bytes, _)) = blocks.next_block().unwrap() {
                    lines.extend_from_slice(bytes);
                }
                assert!(
                    lines.is_empty()
                        || part + 1 == parts
                        || lines.ends_with(b"\n")
                        || all.len() + lines.len() == text.len() - 7
                );
                all.extend(lines);
            }
            assert_eq!(all, &text[7..], "{parts}");
        }
        assert!(error_at(&source, 7, "x").message.ends_with("line 2: x"));
    }

    #[test]
    fn lines_longer_than_a_block_come_whole() {
        let long = vec![b'x'; 3 * BLOCK + 5];
        let (_file, source) = file(&[b"a\n", &long[..], b"\nb"].concat());
        let mut blocks = TextBlocks::open(&source, 0, 0, 1).unwrap();
        let mut sizes = Vec::new();
        while let Some((bytes, offset)) = blocks.next_block().unwrap() {
            sizes.push((bytes.len(), offset));
        }
        assert_eq!(sizes, [(2, 0), (long.len() + 1, 2), (1, long.len() as u64 + 3)]);
    }
}
