//! Text files in blocks that end at line ends: a rank's byte range of a plain file, or a whole compressed one.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::fs::FileExt;

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};

/// Bytes read at once.
const BLOCK: usize = if cfg!(fuzzing) { 1 << 10 } else { 1 << 20 };
/// No line may be longer: a file without line ends is not what it says it is.
const LONGEST_LINE: usize = 1 << 30;

/// A file that is read from front to back, compressed or not.
pub fn stream(path: &str, gz: bool) -> Result<Box<dyn Read>> {
    Ok(unpack(open(path)?, gz))
}

fn unpack(file: File, gz: bool) -> Box<dyn Read> {
    if gz { Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 18, file))) } else { Box::new(file) }
}

/// Opens a file for reading.
pub fn open(path: &str) -> Result<File> {
    let file = File::open(path).map_err(|e| io_error(path, &e))?;
    match file.metadata() {
        Ok(data) if data.is_dir() => Err(Error::input(format!("{path}: is a directory, not a file"))),
        Ok(_) => Ok(file),
        Err(e) => Err(io_error(path, &e)),
    }
}

/// What an input file's error means to the user.
pub fn io_error(path: &str, e: &std::io::Error) -> Error {
    use std::io::ErrorKind;
    let why = match e.kind() {
        ErrorKind::NotFound => "no such file".to_string(),
        ErrorKind::PermissionDenied => "no permission to read it".to_string(),
        ErrorKind::UnexpectedEof => "ends too early (a truncated file?)".to_string(),
        ErrorKind::InvalidInput | ErrorKind::InvalidData => format!("damaged ({e})"),
        _ => e.to_string(),
    };
    Error::input(format!("{path}: {why}"))
}

/// Fills `buffer` as far as the stream goes; how much that was.
pub fn read_full(from: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Lines of one part of a text.
pub struct Blocks {
    path: String,
    from: From,
    /// What was read: `buffer[used..]` is not handed out yet.
    buffer: Vec<u8>,
    used: usize,
    /// Where `buffer` begins in the (uncompressed) text.
    offset: u64,
    ended: bool,
}

enum From {
    Range {
        file: File,
        at: u64,
        begin: u64,
        end: u64,
    },
    /// A compressed file, a second handle to it with the same cursor, and its size.
    Stream(Box<dyn Read>, File, u64),
}

impl Blocks {
    /// Part `part` of `parts` of the lines of a plain file from byte `start` on: those that begin in its share of bytes.
    pub fn part(path: &str, start: u64, part: usize, parts: usize) -> Result<Self> {
        let file = open(path)?;
        let size = file.metadata().map_err(|e| io_error(path, &e))?.len();
        let border = |i: usize| start + (u128::from(size.saturating_sub(start)) * i as u128 / parts as u128) as u64;
        let align = |at: u64| if at <= start { Ok(start) } else { line_start(&file, at, size) };
        let (at, end) = align(border(part))
            .and_then(|at| Ok((at, if part + 1 == parts { size } else { align(border(part + 1))? })))
            .map_err(|e| io_error(path, &e))?;
        Ok(Blocks::new(path, From::Range { file, at, begin: at, end: end.max(at) }, at))
    }

    /// All lines of a compressed (or plain) file from byte `start` of the uncompressed text on.
    pub fn whole(path: &str, gz: bool, start: u64) -> Result<Self> {
        let file = open(path)?;
        let look = || Ok((file.try_clone()?, file.metadata()?.len()));
        let (cursor, size) = look().map_err(|e| io_error(path, &e))?;
        let mut from = unpack(file, gz);
        let skipped = std::io::copy(&mut from.by_ref().take(start), &mut std::io::sink());
        skipped.map_err(|e| io_error(path, &e))?;
        Ok(Blocks::new(path, From::Stream(from, cursor, size), start))
    }

    fn new(path: &str, from: From, offset: u64) -> Self {
        Blocks { path: path.to_string(), from, buffer: Vec::new(), used: 0, offset, ended: false }
    }

    /// The share of the part, in bytes of the file, that was read.
    pub fn done(&self) -> f64 {
        let (read, all) = match &self.from {
            From::Range { at, begin, end, .. } => (at - begin, end - begin),
            From::Stream(_, cursor, size) => ((&*cursor).stream_position().unwrap_or(0), *size),
        };
        read as f64 / all.max(1) as f64
    }

    /// The next whole lines (the last may lack its line end) and where they begin in the text.
    pub fn next(&mut self) -> Result<Option<(&[u8], u64)>> {
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
            if searched > LONGEST_LINE {
                return Err(Error::input(format!("{}: no line end in {searched} bytes: not a text file", self.path)));
            }
            self.read_more()?;
        }
        Ok((self.used > 0).then_some((&self.buffer[..self.used], self.offset)))
    }

    fn read_more(&mut self) -> Result<()> {
        let filled = self.buffer.len();
        // Long lines are read in growing steps, so that searching them stays linear.
        let step = BLOCK.max(filled);
        let result = match &mut self.from {
            From::Range { file, at, end, .. } => {
                let step = step.min((*end - *at) as usize);
                self.buffer.resize(filled + step, 0);
                let result = read_full(&mut At { file, at: *at }, &mut self.buffer[filled..]);
                *at += step as u64;
                self.ended = at == end;
                result.and_then(|got| if got < step { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(got) })
            }
            From::Stream(stream, ..) => {
                self.buffer.resize(filled + step, 0);
                let result = read_full(stream, &mut self.buffer[filled..]);
                self.ended = result.as_ref().is_ok_and(|&got| got < step);
                result
            }
        };
        let got = result.map_err(|e| io_error(&self.path, &e))?;
        self.buffer.truncate(filled + got);
        Ok(())
    }
}

/// A file read from a place on, without moving its cursor.
pub struct At<'a> {
    pub file: &'a File,
    pub at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.file.read_at(buffer, self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// The first line start at or after byte `at`.
fn line_start(file: &File, at: u64, size: u64) -> std::io::Result<u64> {
    let mut from = At { file, at: at - 1 };
    let mut buffer = vec![0; 1 << 14];
    while from.at < size {
        let begin = from.at;
        let got = read_full(&mut from, &mut buffer)?;
        if got == 0 {
            break;
        }
        if let Some(end) = memchr::memchr(b'\n', &buffer[..got]) {
            return Ok(begin + end as u64 + 1);
        }
    }
    Ok(size)
}

/// An error at byte `offset` of a text, with the number of its line; counting them costs another read of the file,
/// which an error may.
pub fn error_at(path: &str, gz: bool, offset: u64, what: &str) -> Error {
    let count = || -> Option<u64> {
        let mut from = stream(path, gz).ok()?.take(offset);
        let mut buffer = vec![0; BLOCK];
        let mut lines = 1;
        loop {
            match read_full(&mut from, &mut buffer).ok()? {
                0 => return Some(lines),
                got => lines += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64,
            }
        }
    };
    match count() {
        Some(line) => Error::input(format!("{path}: line {line}: {what}")),
        None => Error::input(format!("{path}: at byte {offset}: {what}")),
    }
}

/// A piece of a line for a message: printable, and short.
pub fn quote(text: &[u8]) -> String {
    let end = text.iter().position(|&b| matches!(b, b'\n' | b'\r')).unwrap_or(text.len()).min(40);
    format!("'{}'", String::from_utf8_lossy(&text[..end]).escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines_of(mut blocks: Blocks) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some((bytes, _)) = blocks.next().unwrap() {
            out.extend_from_slice(bytes);
        }
        out
    }

    #[test]
    fn parts_are_a_partition_of_the_lines() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut text = b"header\n".to_vec();
        for i in 0..200 {
            text.extend(std::iter::repeat_n(b'a' + (i % 26) as u8, i * 7 % 31));
            text.push(b'\n');
        }
        text.extend_from_slice(b"no end");
        file.write_all(&text).unwrap();
        let path = file.path().to_str().unwrap();
        for parts in [1, 2, 3, 7, 1000] {
            let mut all = Vec::new();
            for part in 0..parts {
                let lines = lines_of(Blocks::part(path, 7, part, parts).unwrap());
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
        assert_eq!(lines_of(Blocks::whole(path, false, 7).unwrap()), &text[7..]);
        assert!(error_at(path, false, 7, "x").message.ends_with("line 2: x"));
    }

    #[test]
    fn lines_longer_than_a_block_come_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let long = vec![b'x'; 3 * BLOCK + 5];
        file.write_all(b"a\n").unwrap();
        file.write_all(&long).unwrap();
        file.write_all(b"\nb").unwrap();
        let mut blocks = Blocks::part(file.path().to_str().unwrap(), 0, 0, 1).unwrap();
        let mut sizes = Vec::new();
        while let Some((bytes, offset)) = blocks.next().unwrap() {
            sizes.push((bytes.len(), offset));
        }
        assert_eq!(sizes, [(2, 0), (long.len() + 1, 2), (1, long.len() as u64 + 3)]);
    }
}
