//! Files as streams of bytes, compressed by gzip or not, and their errors in the user's terms.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use fednmf_base::error::{Error, Result};

use crate::formats::refusal::Refusal;

/// A file that is compressed by gzip or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    pub path: String,
    pub gz: bool,
    /// Whether errors must not quote its text.
    pub private: bool,
}

impl InputFile {
    /// A stream of the uncompressed bytes.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn stream(&self) -> Result<Box<dyn Read>> {
        Ok(self.decode(open(&self.path)?))
    }

    /// The uncompressed bytes of an open handle to this file.
    pub fn decode(&self, file: File) -> Box<dyn Read> {
        if self.gz { Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 18, file))) } else { Box::new(file) }
    }

    /// An input error that names the file; does not quote its text if that is private.
    pub fn error(&self, what: impl Into<Refusal>) -> Error {
        Error::input(what.into().reason(self.private)).at(&self.path)
    }

    /// An I/O error that names the file.
    pub fn io_error(&self, e: &std::io::Error) -> Error {
        io_error(&self.path, e)
    }
}

/// Opens a file for reading.
///
/// # Errors
/// If it cannot be opened, is a directory, or can be read only once, like a pipe.
pub fn open(path: &str) -> Result<File> {
    let wrong = |what: &str| Err(Error::input(format!("{path}: {what}")));
    // Opening a pipe would wait for a program that writes into it.
    let kind = std::fs::metadata(path).map_err(|e| io_error(path, &e))?.file_type();
    if kind.is_dir() {
        let is_zarr = ["zarr.json", ".zgroup", ".zarray"].iter().any(|name| Path::new(path).join(name).exists());
        return wrong(match is_zarr {
            true => "is a directory of zarr; write it as .h5ad in Python: anndata.read_zarr(PATH).write_h5ad(FILE)",
            false => "is a directory, not a file",
        });
    }
    if !kind.is_file() {
        return wrong("is a pipe or a device; the data are read more than once, so give a file");
    }
    File::open(path).map_err(|e| io_error(path, &e))
}

/// Translates an I/O error on an input file.
pub fn io_error(path: &str, e: &std::io::Error) -> Error {
    let why = match e.kind() {
        ErrorKind::NotFound => "no such file".to_string(),
        ErrorKind::PermissionDenied => "no permission to read it".to_string(),
        ErrorKind::UnexpectedEof => "ends too early (truncated, or followed by other bytes?)".to_string(),
        ErrorKind::InvalidInput | ErrorKind::InvalidData => format!("damaged ({e})"),
        _ => e.to_string(),
    };
    Error::input(why).at(path)
}

/// Fills `buffer` until it is full or the stream ends; returns the number of bytes read.
///
/// # Errors
/// If the stream fails.
pub fn read_full(from: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// The next `length` bytes of a header.
///
/// # Errors
/// If the stream fails or ends too early.
pub fn read_header(from: &mut dyn Read, length: usize) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = vec![0; length];
    match read_full(from, &mut bytes) {
        Ok(got) if got == length => Ok(bytes),
        Ok(_) => Err("ends inside its header (truncated)".to_string()),
        Err(e) => Err(e.to_string()),
    }
}

/// Skips `count` bytes.
///
/// # Errors
/// If the stream fails.
pub fn skip(from: &mut dyn Read, count: u64) -> std::io::Result<()> {
    std::io::copy(&mut from.take(count), &mut std::io::sink()).map(drop)
}

/// The bytes `at..end` of a file, read without moving its cursor.
pub struct Section<F> {
    pub file: F,
    pub at: u64,
    pub end: u64,
}

impl<F: std::borrow::Borrow<File>> Read for Section<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min((self.end - self.at) as usize);
        let got = self.file.borrow().read_at(&mut buffer[..most], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}
